"""Object arrays of traced numbers: NumPy's loops over them call Python's operators.

    np.array([x, y], dtype=object) * z  -->  np.array([x * z, y * z], dtype=object)

np.vectorize and np.frompyfunc call a Python function that way, with NumPy's order, broadcasting and
number of calls. np.frompyfunc returns an object array; here it is converted to an array of numbers,
as np.vectorize returns.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.observe.answers.answers import declare_calls
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import observed, unobserved
from tapegrad.observe.program.source import at_line
from tapegrad.tracing.frontend.calling.library_code import borrowed_method, followed
from tapegrad.tracing.frontend.operands.operands import has_tracer
from tapegrad.tracing.loops.stacking import strong
from tapegrad.tracing.memory.created import is_created
from tapegrad.tracing.recording.layout import laid_out_like
from tapegrad.tracing.recording.trace import current_trace, refusing
from tapegrad.tracing.tracers.subclass_tracers import check_stays
from tapegrad.tracing.tracers.tracer import Tracer


class _Number:
    """A wrapper in which NumPy sees a traced number as an object."""

    def __init__(self, x: Any) -> None:
        self.x = x


def objects_of(x: Any, **options: Any) -> Any:
    """`np.array(x, object, **options)`. Numbers in a list become the objects themselves. An array's
    elements become Python numbers, traced if it is, in the array's memory layout."""
    whole: dict[int, Any] = {}  # lists and arrays that become elements, if their shapes differ
    plain = _untraced(dispatch.number(x) if _is_scalar(x) else x, whole)
    found = np.array(plain, object, **{"copy": None, **options})
    if not has_tracer(x):
        return found
    for index in np.ndindex(found.shape):
        entry: Any = found[index]
        found[index] = entry.x if type(entry) is _Number else whole.get(id(entry), entry)
    return found


def _untraced(x: Any, whole: dict[int, Any]) -> Any:
    """Nested lists as NumPy traverses them, with traced values wrapped."""
    if type(x) in (list, tuple):
        plain = type(x)([_untraced(part, whole) for part in x])
        whole[id(plain)] = x
        return plain
    if not isinstance(x, Tracer):
        return x
    if is_created(x):
        whole[id(x._concrete)] = x
        return x._concrete
    if _is_scalar(x):
        return _Number(x)
    value = x._read()[1]
    found = np.empty_like(np.empty(x.shape) if value is None else np.asarray(value), object)
    rows: Any = [x] if not x.ndim else x if x.ndim == 1 else x.reshape(-1)
    numbers = [_Number(dispatch.number(e)) for e in rows]
    for k, index in enumerate(np.ndindex(x.shape)):
        found[index] = numbers[k]
    whole[id(found)] = x
    return found


def _is_scalar(x: Any) -> bool:
    return isinstance(x, Tracer) and not isinstance(x, np.ndarray)


def is_of_objects(x: Any) -> bool:
    """Whether `x` is an array of objects."""
    return type(x) is np.ndarray and x.dtype == object


def holds_traced(x: Any) -> bool:
    """Whether `x` is an array of objects with a traced value among them."""
    return is_of_objects(x) and any(isinstance(entry, Tracer) for entry in x.flat)


def numbers_of(found: Any, dtype: Any = None) -> Any:
    """The numbers in an object array as an array of numbers, in its memory layout."""
    parts = [found[index] for index in np.ndindex(found.shape)]
    trace = current_trace()
    if trace is None or not has_tracer(parts):
        return found if dtype is None else np.asarray(found, dtype)
    if any(np.ndim(part) for part in parts if not isinstance(part, Tracer) or part.ndim):
        if dtype is not None:
            raise ValueError("setting an array element with a sequence.")
        raise UnsupportedError(
            f"a function of elements returns arrays{at_line()}, of which np.frompyfunc makes an "
            "array of objects, which can't be traced. Use np.stack([f(v) for v in x])"
        )
    out = dispatch.stack([strong(part) for part in parts])
    out = out if found.ndim == 1 else out.reshape(found.shape)
    if dtype is not None and dtype != "O":
        out = _as_dtype(out, np.dtype(dtype))
    out._value = laid_out_like(out._value, np.empty_like(found, out.dtype))
    return out


def _as_dtype(x: Any, dtype: np.dtype) -> Any:
    """NumPy's conversion of objects, one by one, with its errors for integers out of range."""
    if dtype.kind in "iu" and x.dtype.kind in "fiu":
        held, whole = np.iinfo(dtype), np.trunc(x)
        if not np.all((whole >= float(held.min)) & (whole < float(held.max) + 1)):
            np.asarray(x._concrete.tolist(), object).astype(dtype)  # NumPy's own error
    if x.dtype.kind == "c" and dtype.kind in "fiu":
        np.full(x.shape, 1j, object).astype(dtype)  # NumPy's own error
    return x.astype(dtype, copy=False)


def beside_objects(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Any) -> Any:
    """A ufunc on traced values and object arrays: an object array, by Python's operators."""
    function = ufunc if method == "__call__" else getattr(ufunc, method)
    given = [objects_of(x) if has_tracer(x) else x for x in inputs]
    with observed():
        return function(*given, **kwargs)


# ---- np.frompyfunc


def is_of_function(ufunc: np.ufunc) -> bool:
    """Whether np.frompyfunc has made the ufunc."""
    return ufunc.__name__.endswith(" (vectorized)") and not set("".join(ufunc.types)) - set("O->")


def calling(ufunc: Any) -> Any:
    """The context in which NumPy runs a ufunc or one of its methods. The Python function of an
    np.frompyfunc ufunc is observed."""
    ufunc = getattr(ufunc, "__self__", ufunc)
    goes_on = isinstance(ufunc, np.ufunc) and is_of_function(ufunc)
    return observed() if goes_on else nullcontext()


def call(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A call of an np.frompyfunc ufunc or of its method, with a traced argument."""
    asked = {name for name, x in kwargs.items() if x is not None}
    refused = asked & {"out", "where"} or (method == "at" and {"at"})
    if refused:
        raise UnsupportedError(
            f"{ufunc.__name__} with {', '.join(refused)} isn't supported on traced arrays"
            f"{at_line()}. Use np.where, or indices"
        )
    first, *others = inputs
    if method == "reduceat":
        given = [objects_of(first), *others]
    else:
        given = [objects_of(x) for x in inputs]
    if "initial" in kwargs and isinstance(kwargs["initial"], Tracer):
        kwargs["initial"] = dispatch.number(kwargs["initial"])
    function = ufunc if method == "__call__" else getattr(ufunc, method)
    with observed():
        found = function(*given, **kwargs)
    return tuple(map(_result, found)) if isinstance(found, tuple) else _result(found)


def _result(x: Any) -> Any:
    if type(x) is not np.ndarray or x.dtype != object:
        return x
    found = numbers_of(x)
    if isinstance(found, Tracer) and found.dtype.kind == "c":
        raise refusing(
            UnsupportedError(
                f"a function that np.frompyfunc has made returns complex numbers{at_line()}, and "
                "of these the array of objects isn't followed. Use np.vectorize"
            )
        )
    return found


# ---- np.vectorize


class _Vectorized(np.vectorize):
    """An np.vectorize that accepts traced arrays, with the attributes of the user's."""

    _with_signature = borrowed_method(np.vectorize, "_vectorize_call_with_signature")

    def _vectorize_call(self, func: Any, args: Any) -> Any:
        if self.signature is not None:
            return self._with_signature(func, args)
        if not args:
            return func()
        arrays = [np.asarray(x) if not has_tracer(x) else dispatch.as_operand(x) for x in args]
        dtypes: list[Any] = list(self.otypes or ())
        if self.otypes is None:
            if any(x.size == 0 for x in arrays):
                raise ValueError("cannot call `vectorize` on size 0 inputs unless `otypes` is set")
            first = func(*[x.reshape(-1)[0] for x in arrays])
            outputs = first if isinstance(first, tuple) else (first,)
            dtypes = [_dtype_of(x) for x in outputs]
            func = _after(first, func) if self.cache else func
        ufunc = np.frompyfunc(func, len(arrays), len(dtypes))
        found = ufunc(*map(objects_of, args))
        found = found if isinstance(found, tuple) and len(dtypes) > 1 else (found,)
        results = [as_array(x, dtype) for x, dtype in zip(found, dtypes, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)


def as_array(x: Any, dtype: Any = None) -> Any:
    """The result of an object ufunc as an array of numbers. If all arguments are without axes, it
    is the return value of the Python function."""
    found = x
    if type(x) is not np.ndarray or x.dtype != object:
        found = np.empty((), object)
        found[()] = x
    return numbers_of(found, _dtype_of(x) if dtype is None else dtype)


def _dtype_of(x: Any) -> Any:
    return np.dtype(x.dtype.char) if isinstance(x, Tracer) else np.asarray(x).dtype


def _after(first: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """`func`, without its first call, whose result is `first`."""
    known = [first]
    return lambda *args: known.pop() if known else func(*args)


@unobserved
def vectorized(given: np.vectorize, *args: Any, **kwargs: Any) -> Any:
    function: Any = given.pyfunc
    if function is np._NoValue:  # as a decorator
        with observed():
            return given(*args, **kwargs)
    for x in (*args, *kwargs.values()):
        check_stays(x, "an argument of a function of np.vectorize")
    own = copy.copy(given)
    own.__class__ = _Vectorized
    own.pyfunc = partial(followed, function)
    return own(*args, **kwargs)


def declare_all() -> None:
    """Register the replacement."""
    declare_calls(np.vectorize, vectorized)
