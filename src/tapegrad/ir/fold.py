"""What loops fold with: sums, extrema, and what else has an order that is free, or isn't."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

LEAST, GREATEST = "least", "greatest"


@dataclass(frozen=True, eq=False, repr=False)
class Fold:
    """An associative operation of a value folded so far and the next one.

    `start` is the value of no elements, a number or the least or greatest of a dtype. `function` is
    what NumPy computes, `statement` what is emitted: `{acc}` is updated with `{x}`, in parentheses
    if it is an operand. In registers of floats it is the `loose` one, if there is one, which leaves
    the order open.
    """

    name: str
    start: Any
    function: Callable[[Any, Any], Any]
    statement: str
    loose: str = ""
    wide: bool = False  # many float32 numbers are folded in float64
    ordered: bool = False  # the order counts
    running: bool = False  # what is folded so far may be read

    def identity(self, dtype: np.dtype) -> Any:
        """The value of no elements."""
        if self.start not in (LEAST, GREATEST):
            if dtype.kind == "c" and self.start == 0:  # zeros have its sign in both parts
                return complex(self.start, self.start)
            return self.start
        least = self.start == LEAST
        if dtype.kind == "f":
            return -np.inf if least else np.inf
        if dtype.kind == "b":
            return not least
        info = np.iinfo(dtype)
        return info.min if least else info.max

    def __str__(self) -> str:
        return self.name


# What is running starts at -0.0, which changes no number; a sum at 0.0, as NumPy's.
ADD = Fold("add", -0.0, operator.add, "{acc} += {x}", ordered=True, running=True)
SUM = Fold("sum", 0, operator.add, "{acc} += {x}", loose="{acc} = plus({acc}, {x})", wide=True)
PRODUCT = Fold("prod", 1, operator.mul, "{acc} *= ({x})", running=True)
MAX = Fold(
    "max", LEAST, np.maximum, "{acc} = maximum({acc}, {x})", loose="{acc} = largest({acc}, {x})"
)
MIN = Fold(
    "min", GREATEST, np.minimum, "{acc} = minimum({acc}, {x})", loose="{acc} = smallest({acc}, {x})"
)
ANY = Fold("any", False, operator.or_, "{acc} = {acc} | ({x})")
ALL = Fold("all", True, operator.and_, "{acc} = {acc} & ({x})")
