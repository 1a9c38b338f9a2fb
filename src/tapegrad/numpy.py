"""NumPy, with new arrays that can be filled with traced values: `import tapegrad.numpy as np`.

    y = np.zeros(5)
    for k in range(5):
        y[k] = x[k] ** 2

A plain NumPy array can't hold traced values. While a function is traced, the functions below
return *traced constants*, which can: writing to one is recorded as writing to any traced array is.
Outside a trace they are NumPy's, and so is everything else in here, at any time.

Arrays that come with their contents (`array`, `arange`, ...) are traced if they are real.
Integers and booleans, which index, count and choose, stay plain unless traced values are in them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy

from tapegrad.core.trees import is_array
from tapegrad.tracing.frontend.making import from_contents, is_traceable, uniform
from tapegrad.tracing.trace import current_trace
from tapegrad.tracing.tracer import Tracer


def __getattr__(name: str) -> Any:
    return getattr(numpy, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(numpy)})


# ---- arrays to be filled


def _to_be_filled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose result holds one value everywhere."""

    @functools.wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        plain, trace = function(*args, **kwargs), current_trace()
        if trace is None or isinstance(plain, Tracer) or not is_traceable(plain.dtype):
            return plain
        return uniform(trace, plain.shape, plain.flat[0] if plain.size else 0, plain.dtype)

    return made


zeros = _to_be_filled(numpy.zeros)
ones = _to_be_filled(numpy.ones)
empty = _to_be_filled(numpy.zeros)  # what an empty array holds is anyone's guess: zeros will do
zeros_like = _to_be_filled(numpy.zeros_like)
ones_like = _to_be_filled(numpy.ones_like)
empty_like = _to_be_filled(numpy.zeros_like)
full_like = _to_be_filled(numpy.full_like)
_full = _to_be_filled(numpy.full)


@functools.wraps(numpy.full)
def full(shape: Any, fill_value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    if isinstance(fill_value, Tracer):
        return numpy.full_like(fill_value, fill_value, dtype, shape=shape)
    return _full(shape, fill_value, dtype, **kwargs)


# ---- arrays that come with their contents


def _with_contents(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes a new array of arguments that aren't traced."""

    @functools.wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        plain, trace = function(*args, **kwargs), current_trace()
        if trace is None or not is_array(plain) or plain.dtype.kind not in "fc":
            return plain
        return from_contents(trace, plain)

    return made


eye = _with_contents(numpy.eye)
identity = _with_contents(numpy.identity)
tri = _with_contents(numpy.tri)
linspace = _with_contents(numpy.linspace)
logspace = _with_contents(numpy.logspace)
geomspace = _with_contents(numpy.geomspace)


_arange = _with_contents(numpy.arange)


@functools.wraps(numpy.arange)
def arange(*bounds: Any, **kwargs: Any) -> Any:
    whole = [isinstance(x, Tracer) and x.dtype.kind in "iu" for x in bounds]
    return _arange(*[int(x) if yes else x for x, yes in zip(bounds, whole, strict=True)], **kwargs)


@functools.wraps(numpy.array)
def array(
    object: Any, dtype: Any = None, *, copy: bool | None = True, ndmin: int = 0, **kwargs: Any
) -> Any:
    trace = current_trace()
    if trace is None or kwargs.get("like") is not None:
        return numpy.array(object, dtype, copy=copy, ndmin=ndmin, **kwargs)
    made = from_contents(trace, object, dtype)
    if made is object and copy:
        made = numpy.copy(made)
    return made.reshape((1,) * (ndmin - made.ndim) + made.shape) if ndmin > made.ndim else made


def _converting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes an array of what isn't one yet."""

    @functools.wraps(function)
    def converted(a: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        trace = current_trace()
        if trace is None or is_array(a):
            return function(a, dtype, *args, **kwargs)
        return from_contents(trace, a, dtype)

    return converted


asarray = _converting(numpy.asarray)
asanyarray = _converting(numpy.asanyarray)


@functools.wraps(numpy.copy)
def copy(a: Any, *args: Any, **kwargs: Any) -> Any:
    return numpy.copy(a, *args, **kwargs) if current_trace() is None else array(a)


@functools.wraps(numpy.fromiter)
def fromiter(iter: Iterable[Any], dtype: Any, *args: Any, **kwargs: Any) -> Any:
    if current_trace() is None or args or kwargs:
        return numpy.fromiter(iter, dtype, *args, **kwargs)
    return array(list(iter), dtype)
