"""The associative operations of reductions: sums, products, extrema, any and all."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

LEAST, GREATEST = "least", "greatest"


@dataclass(frozen=True, eq=False, repr=False)
class Fold:
    """An associative operation of an accumulator and the next value.

    `start` is the value of an empty fold: a number, or LEAST or GREATEST, a dtype's extreme value.
    `function` is NumPy's operation. `statement` is the emitted one: it updates `{acc}` with `{x}`,
    which it puts in parentheses if it is an operand. Where the accumulator is a float in a
    register, `loose` is emitted instead, if given: it leaves the order of the operations open.
    """

    name: str
    start: Any
    function: Callable[[Any, Any], Any]
    statement: str
    loose: str = ""
    wide: bool = False  # many float32 numbers are folded in float64
    ordered: bool = False  # the order makes a difference
    running: bool = False  # the accumulator may be read in between

    def identity(self, dtype: np.dtype) -> Any:
        """The value of an empty fold in this dtype."""
        if self.start not in (LEAST, GREATEST):
            if dtype.kind == "c" and self.start == 0:  # -0.0 in both parts if `start` is -0.0
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


# A running sum starts at -0.0, since -0.0 + x is x for every x. A plain sum starts at 0.0, as in
# NumPy.
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
