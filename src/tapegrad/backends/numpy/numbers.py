"""Scalars of played tapes: Python's operators, wherever they do what NumPy does.

Scalars of type float64 are Python floats in a function, whose operators return the same bits in a
sixth of the time. Scalars of other dtypes are NumPy's; booleans may be either.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Call, Literal, Primitive
from tapegrad.primitives.base import Elementwise

FLOAT, TRUTH, INTEGER = map(np.dtype, (np.float64, np.bool_, np.int64))
TRUE, FLOATS = {TRUTH}, {FLOAT, TRUTH}  # the dtypes of scalars that are Python's
NO: frozenset[int] = frozenset()
FUNCTIONS = {
    "divide": np.true_divide,
    "mod": np.mod,
    "sqrt": np.sqrt,
}  # called where Python's operators would raise, as for zero divisors


def kinds_of(call: Call) -> set[np.dtype]:
    """The dtypes of the operands of a call that computes a scalar from scalars; empty for
    others."""
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
    """A function that computes the call from NumPy's scalars by their operators; None where the
    result would differ."""
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
    """A format of operators for a scalar of `count` scalars, and the operands that occur in it more
    than once. "" if there is none."""
    places = [f"{{{k}}}" for k in range(count)]
    form = primitive.scalar_text(places)
    # Python sums booleans to integers, and floats have no bitwise operators.
    if form == primitive.quick_text(places) if of_truth else {"&", "|"}.intersection(form):
        form = ""
    return form, frozenset(k for k, place in enumerate(places) if form.count(place) > 1)


def as_number(text: str, x: Aval) -> str:
    """A scalar as it is computed with. Some functions return 0-d arrays."""
    if x.dtype == FLOAT:
        return f"float({text})"
    return text if x.dtype == TRUTH else f"{text}[()]"


def as_numpys(text: str, x: Aval) -> str:
    """A name or expression of a result: its scalars are NumPy's."""
    if x.shape or x.dtype not in FLOATS:
        return text
    return f"{'float64' if x.dtype == FLOAT else 'bool_'}({text})"
