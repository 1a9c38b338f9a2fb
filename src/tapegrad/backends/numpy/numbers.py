"""Numbers of played tapes: by operators of Python's, wherever these do what NumPy does.

Numbers of type float64 are Python's floats in a function, whose operators give the same bits in a
sixth of the time. Those of other types are NumPy's, and truth values may be either.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Call, Literal, Primitive
from tapegrad.primitives.base import Elementwise

FLOAT, TRUTH, INTEGER = map(np.dtype, (np.float64, np.bool_, np.int64))
TRUE, FLOATS = {TRUTH}, {FLOAT, TRUTH}  # the types of numbers that are Python's
NO: frozenset[int] = frozenset()
FUNCTIONS = {
    "divide": np.true_divide,
    "mod": np.mod,
    "sqrt": np.sqrt,
}  # for zero, in operators of numbers


def kinds_of(call: Call) -> set[np.dtype]:
    """The dtypes of the operands of a call that makes a number of numbers; nothing of others."""
    kinds: set[np.dtype] = set()
    if len(call.outs) == 1 and not call.outs[0].aval.shape:
        for x in call.operands:
            if isinstance(x, Literal):
                kinds.add(x.value.dtype)
            elif x.aval.shape:
                return set()
            else:
                kinds.add(x.aval.dtype)
    return kinds


def of_numbers(call: Call) -> Callable[..., Any] | None:
    """What gives a number of NumPy's numbers by their operators, where that is the same."""
    kinds = kinds_of(call) if isinstance(call.primitive, Elementwise) else ()
    return _function(call.primitive, len(call.operands), kinds == TRUE) if kinds else None


@lru_cache(maxsize=256)
def _function(primitive: Primitive, count: int, of_truth: bool) -> Callable[..., Any] | None:
    form, _ = form_of(primitive, count, of_truth)
    names = [f"x{k}" for k in range(count)]
    text = f"lambda {', '.join(names)}: {form.format(*names)}"
    return eval(text, dict(FUNCTIONS)) if form else None


@lru_cache(maxsize=256)
def form_of(primitive: Primitive, count: int, of_truth: bool) -> tuple[str, frozenset[int]]:
    """A number of so many numbers in operators, as a format; and which it reads more than once."""
    places = [f"{{{k}}}" for k in range(count)]
    form = primitive.scalar_text(places)
    # Of sums of truth values Python makes integers, and floats have no bits.
    if form == primitive.quick_text(places) if of_truth else {"&", "|"}.intersection(form):
        form = ""
    return form, frozenset(k for k, place in enumerate(places) if form.count(place) > 1)


def as_number(text: str, x: Aval) -> str:
    """A number as it is computed with. Some functions give arrays without axes."""
    if x.dtype == FLOAT:
        return f"float({text})"
    return text if x.dtype == TRUTH else f"{text}[()]"


def as_numpys(text: str, x: Aval) -> str:
    """What leaves, of a name or expression: the numbers are NumPy's."""
    if x.shape or x.dtype not in FLOATS:
        return text
    return f"{'float64' if x.dtype == FLOAT else 'bool_'}({text})"
