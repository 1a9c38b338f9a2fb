"""Python's `float` and NumPy's types, called on traced values: a number of that type.

They are on the tape as casts. What isn't traced they make as they do anywhere.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.tracing.answers import declare
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.frontend.indexing import as_python
from tapegrad.tracing.frontend.making import strong
from tapegrad.tracing.frontend.mathematics import is_followed
from tapegrad.tracing.frontend.memory import scalar
from tapegrad.tracing.frontend.operands import cast
from tapegrad.tracing.made import is_made
from tapegrad.tracing.observe.observer import observed, unobserved
from tapegrad.tracing.tracer import Tracer


@unobserved
def _float(*args: Any, **kwargs: Any) -> Any:
    """float(x). What comes of integers alone is guarded, and a plain number."""
    x = args[0] if len(args) == 1 and not kwargs else None
    if not isinstance(x, Tracer) or not is_followed([x]):
        with observed():  # objects say what they are as a float
            return float(*args, **kwargs)
    x._trace.check_alive()
    if x.shape:
        float(np.empty(x.shape, x.dtype))  # NumPy's own error, where it makes no float of it
    return x if x._weak and x.dtype.kind == "f" else as_python(x)


def _type(kind: Any) -> Callable[..., Any]:
    """A type of NumPy's scalars: of an array it makes an array, and itself if it is of the type."""

    @unobserved
    def cast_to(*args: Any, **kwargs: Any) -> Any:
        x = args[0] if len(args) == 1 and not kwargs else None
        if isinstance(x, (list, tuple)):
            x = dispatch.as_operand(x)
        if not isinstance(x, Tracer) or is_made(x):
            with observed():
                return kind(*args, **kwargs)
        x._trace.check_alive()
        if x._weak and x.dtype.kind == "f" and issubclass(kind, np.integer):
            _check_fits(x, kind)
        if x._weak or x._is_scalar():
            same = x.dtype == kind and not x._weak
            return x if same else scalar(strong(cast(x, kind)))
        return x.astype(kind, copy=False) if x.ndim else x.astype(kind, copy=False)[()]

    cast_to.__name__ = cast_to.__qualname__ = kind.__name__
    return cast_to


def _check_fits(x: Any, kind: Any) -> None:
    """Python's error for a float whose integer the type doesn't hold. That it does is guarded."""
    held, whole = np.iinfo(kind), np.trunc(x)
    if not (whole >= float(held.min) and whole < float(held.max) + 1):
        kind(x._concrete.item())


_TYPES = """bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64"""


def declare_all() -> None:
    """Fill the table."""
    declare(builtins, "float", _float, traced=True)
    for name in _TYPES.split():
        declare(np, name, _type(getattr(np, name)), traced=True)
