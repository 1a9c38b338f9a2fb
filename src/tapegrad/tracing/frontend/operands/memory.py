"""Where results lie in memory: what they share it with, and in which order.

Whether `ravel` and `reshape` make a view or a copy depends on it, and so what a write reaches.
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
    """np.copy: of a scalar, too, an array that can be written to."""
    out = ew.copy(x)
    if out._is_scalar():
        out._revalued(np.array(out._value))
    return lay_out(out, order)


def unlinked(out: Any, x: Any) -> Any:
    """`out`, made of `x`, as an array of its own: where NumPy copies, a write reaches only one."""
    return ew.copy(out) if out is x or out._root is not None else out


def lay_out_as(out: Any, x: Any, order: str) -> Any:
    """`out`, which was just made of `x`, in the order that `np.empty_like(x, order=order)` has; if
    that of `x` isn't certain, neither is this."""
    value = x._read()[1]
    if value is not None and out._value is not None:
        like: Any = np.empty_like(value, out.dtype, order, shape=out.shape)  # type: ignore[call-overload]
        out._value = laid_out_like(out._value, like)
    out._ordered = x._owner._ordered and value is not None
    return out


def in_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """For a function whose result NumPy makes from scratch, row by row."""

    @wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        stored = any(out is x for x in (*args[1:], *kwargs.values()))  # out=
        if not isinstance(out, Tracer) or out._is_scalar() or stored:
            return out
        return lay_out(unlinked(out, args[0]), "C")

    return made


def of_array(view: Callable[..., Any]) -> Callable[..., Any]:
    """For a function that makes a view: of a Python number NumPy makes an array first."""

    @wraps(view)
    def made(x: Any, *args: Any, **kwargs: Any) -> Any:
        number = isinstance(x, Tracer) and x._weak
        return view(copy_of(x) if number else x, *args, **kwargs)

    return made


def scalar(out: Any) -> Any:
    """A result of a function that gives scalars where there are no axes: it isn't written to."""
    if isinstance(out, tuple):
        return tuple(map(scalar, out))
    if isinstance(out, Tracer) and out._root is None and isinstance(out._value, np.ndarray):
        return out if out.ndim else out._revalued(out._value[()])
    return out
