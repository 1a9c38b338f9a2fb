"""NumPy, with new arrays that can be filled with traced values: `import tapegrad.numpy as np`.

While a function is traced NumPy's own names do the same in its code (`observe/answers/answers.py`).
These do it wherever they are called from.

    y = np.zeros(5)
    for k in range(5):
        y[k] = x[k] ** 2

Outside a trace they are NumPy's, and so is everything else in here, at any time. Arrays that come
with their contents (`array`, `arange`, ...) can be filled if they are real. Integers and booleans,
which index, count and choose, stay plain unless traced values are in them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy

from tapegrad.tracing.frontend.numpy import undispatched
from tapegrad.tracing.frontend.shapes.making import from_contents
from tapegrad.tracing.recording.trace import current_trace, opened


def __getattr__(name: str) -> Any:
    return getattr(numpy, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(numpy)})


# ---- what makes arrays


def _in_a_trace(name: str) -> Callable[..., Any]:
    """NumPy's function of this name; while a function is traced, ours."""
    numpys, ours = getattr(numpy, name), undispatched.MAKERS[name]

    @functools.wraps(numpys)
    def made(*args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            return ours(*args, **kwargs)
        if (trace := opened(args)) is None:
            return numpys(*args, **kwargs)
        with trace:
            return ours(*args, **kwargs)

    return made


globals().update({name: _in_a_trace(name) for name in undispatched.MAKERS})
_array = _in_a_trace("array")


@functools.wraps(numpy.array)
def array(object: Any, *args: Any, **kwargs: Any) -> Any:
    plain = type(object) is numpy.ndarray and object.dtype.kind == "f"
    trace = current_trace()
    if not plain or trace is None or {*kwargs} - {"dtype"} or len(args) > 1:
        return _array(object, *args, **kwargs)
    return from_contents(trace, object, *args, **kwargs)  # as it is at each call


@functools.wraps(numpy.copy)
def copy(a: Any, *args: Any, **kwargs: Any) -> Any:
    return numpy.copy(a, *args, **kwargs) if current_trace() is None else array(a)
