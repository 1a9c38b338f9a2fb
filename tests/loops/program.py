"""What is known of a program with a loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# Loops of fewer rounds aren't counted: they go over the axes of small arrays.
LEAST = 5


@dataclass(frozen=True)
class Program:
    """A loss in plain NumPy, and what makes its arguments for a problem of so many steps.

    Every array that doesn't grow with the steps has fewer than `least` elements along each axis,
    and every loop that is expected has at least so many rounds. So the loops of the generated code
    that go over the steps can be told from those that go over the axes of arrays. Where there may
    be `passes`, the unrolled program has such loops, too; that its text grows with the steps tells
    it from the other.
    """

    function: Callable[..., Any]
    make: Callable[[np.random.Generator, int], tuple[Any, ...]]
    argnums: tuple[int, ...]  # the arguments that are differentiated
    loops: int | None = 1  # that its compiled value has; None where any number will do
    passes: int = 0  # further ones at most: operations on whole arrays that grow with the steps
    least: int = LEAST  # rounds of a loop that counts

    @property
    def name(self) -> str:
        return self.function.__name__
