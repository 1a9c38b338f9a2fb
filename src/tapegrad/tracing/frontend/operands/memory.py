"""The memory of results: whether they share it with an operand, and the order of their elements.

Both decide whether `ravel` and `reshape` return a view or a copy, and so which arrays a write
changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from tapegrad.primitives import elementwise as ew
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.recording.layout import laid_out_like, lay_out
from tapegrad.tracing.tracers.tracer import Tracer


@stands_for(np, name="copy", of_complex=True)
def copy_of(x: Any, order: str = "K", subok: bool = False) -> Any:
    """np.copy. The copy of a scalar is an array, which can be written to."""
    out = ew.copy(x)
    if out._is_scalar():
        out._revalued(np.array(out._value))
    return lay_out(out, order)


def unlinked(out: Any, x: Any) -> Any:
    """`out`, computed from `x`, as an array with memory of its own: where NumPy copies, a write to
    one must not change the other."""
    return ew.copy(out) if out is x or out._root is not None else out


def lay_out_as(out: Any, x: Any, order: str) -> Any:
    """`out`, a new array computed from `x`, in the memory order of `np.empty_like(x, order=order)`.
    If the order of `x` isn't certain, neither is that of `out`."""
    value = x._read()[1]
    if value is not None and out._value is not None:
        like: Any = np.empty_like(value, out.dtype, order, shape=out.shape)  # type: ignore[call-overload]
        out._value = laid_out_like(out._value, like)
    out._ordered = x._owner._ordered and value is not None
    return out


def in_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for functions whose result NumPy allocates anew, in C order."""

    @wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        stored = any(out is x for x in (*args[1:], *kwargs.values()))  # out=
        if not isinstance(out, Tracer) or out._is_scalar() or stored:
            return out
        return lay_out(unlinked(out, args[0]), "C")

    return made


def of_array(view: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for functions that return a view: a Python number becomes an array first."""

    @wraps(view)
    def made(x: Any, *args: Any, **kwargs: Any) -> Any:
        number = isinstance(x, Tracer) and x._weak
        return view(copy_of(x) if number else x, *args, **kwargs)

    return made


def scalar(out: Any) -> Any:
    """A result without axes as a scalar, which can't be written to."""
    if isinstance(out, tuple):
        return tuple(map(scalar, out))
    if isinstance(out, Tracer) and out._root is None and isinstance(out._value, np.ndarray):
        return out if out.ndim else out._revalued(out._value[()])
    return out
