"""Random programs of plain NumPy: what isn't an operation on an argument.

Arrays are made and filled, lists of traced values go into functions, integers and booleans leave
the trace, `math` computes, random numbers are drawn, numbers are complex. These lines are drawn
together with those of the other programs, so they stand in branches, loops and functions, and meet
what is captured.
"""

from __future__ import annotations

import random

import numpy as np
from tests.fuzz.further import COMPLEX, DRAWS, FURTHER
from tests.fuzz.growing import Grower
from tests.fuzz.making import FILLED, LEAVING, LISTS, MADE, MATH
from tests.fuzz.productions import STEPS
from tests.fuzz.programs import Program

TABLES = [MADE, FILLED, LISTS, MATH, LEAVING, DRAWS, COMPLEX, FURTHER]

# What programs are given besides what others are; how likely each is. Generators are captured.
INPUTS = {
    "reals(SHAPE)": 0.3,
    "complexes(SHAPE)": 0.25,
    "complexes((4,))": 0.1,
    "generator()": 0.3,
    "random_state()": 0.15,
    "indices(4, 3)": 0.2,
    "wholes(SHAPE)": 0.1,
    "flags(SHAPE)": 0.1,
    "whole(1, 4)": 0.2,
}


class PlainGrower(Grower):
    """A program of a few of these tables, and of a few of the others."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.chain = 0
        some = rng.sample(TABLES, 1 + rng.randrange(3))
        self.steps = [*some, *some, *rng.sample(STEPS, 1 + rng.randrange(3))]

    def inputs(self) -> None:
        super().inputs()
        for text, likely in INPUTS.items():
            if self.chance(likely):
                drawn_from = text in ("generator()", "random_state()")
                self.give(self.shaped(text), captured=drawn_from or self.chance(0.4))

    def result(self) -> str:
        """A complex number is among the results where there is one."""
        line = super().result()
        numbers = self.env(0).items()
        found = [n for n, x in numbers if getattr(x, "dtype", np.dtype(bool)).kind == "c"]
        listed = line.removeprefix("return ")
        return f"return [{listed}, {self.recent(found)}]" if found else line


def grow_plain(rng: random.Random, longest: int = 8) -> Program:
    """A program of plain NumPy, of up to so many steps."""
    grower = PlainGrower(rng)
    grower.inputs()
    for _ in range(2 + rng.randrange(longest)):
        grower.step(0)
    return grower.program((*grower.lines, grower.result()))
