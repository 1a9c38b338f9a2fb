"""Functions of Python's integers with integer results: `math.comb(n, k)`, `operator.index(n)`.

Such a function takes plain integers, which are guarded. Where a later call finds other ones, the
next trace has each call call the function anew (`of_integers`).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from tapegrad.observe.answers.answers import declare
from tapegrad.observe.observer import observed, unobserved
from tapegrad.tracing.memory.created import is_created
from tapegrad.tracing.operators.deciding import FOR_C, of_integers
from tapegrad.tracing.operators.integer_bounds import whole
from tapegrad.tracing.tracers.tracer import Tracer


def _is_traced(x: Any) -> bool:
    return isinstance(x, Tracer) and not is_created(x) and x._is_scalar() and x.dtype.kind in "iu"


def _itself(original: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement for a function that makes an integer of a number: a traced one stays."""

    @functools.wraps(original)
    @unobserved
    def called(x: Any, /) -> Any:
        if _is_traced(x):
            return whole(x)
        with observed():
            return original(x)

    return called


def _computed(original: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement for a function of integers."""

    @functools.wraps(original)
    @unobserved
    def called(*args: Any) -> Any:
        if any(map(_is_traced, args)) and all(
            type(x) is int or (_is_traced(x) and x._weak) for x in args
        ):
            return of_integers(original, FOR_C, *args)
        with observed():
            return original(*args)

    return called


def declare_all() -> None:
    """Register the replacements."""
    declare(operator, "index", _itself(operator.index), traced=True)
    for name in ("floor", "ceil", "trunc"):
        declare(math, name, _itself(getattr(math, name)), traced=True)
    for name in ("comb", "factorial", "gcd", "isqrt", "lcm", "perm"):
        declare(math, name, _computed(getattr(math, name)), traced=True)
