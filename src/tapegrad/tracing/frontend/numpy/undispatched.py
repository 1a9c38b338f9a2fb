"""Replacements, during a trace, for NumPy functions that don't dispatch on their arguments.

Functions that make arrays return NumPy's result as a *made array*, which can be filled with traced
values (`tracing/memory/created.py`): arrays of any kind that hold one number, and others if they
are of real numbers. Integers and booleans that are made with their contents, as indices and masks
are, stay plain. Lists of traced values are stacked, in every function that takes an array in their
place.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.core.trees import is_array
from tapegrad.errors import UnsupportedError
from tapegrad.observe.answers.answers import declare
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import note_computed, observed, unobserved
from tapegrad.observe.program.source import at_line
from tapegrad.tracing.frontend.calling.library_code import borrowed, borrowed_method
from tapegrad.tracing.frontend.calling.object_arrays import holds_traced, numbers_of, objects_of
from tapegrad.tracing.frontend.calling.validation import accepted
from tapegrad.tracing.frontend.indexing.flat import Flat
from tapegrad.tracing.frontend.indexing.masked import selects
from tapegrad.tracing.frontend.numpy.subclasses import typed
from tapegrad.tracing.frontend.operands.memory import copy_of
from tapegrad.tracing.frontend.operands.operands import as_tracer, of_itself, stands_for_labelled
from tapegrad.tracing.frontend.operands.parameters import letter
from tapegrad.tracing.frontend.python.mathematics import said_of
from tapegrad.tracing.frontend.shapes.making import from_contents
from tapegrad.tracing.frontend.shapes.shaping import reshape
from tapegrad.tracing.memory.created import CreatedTracer, create, is_created, is_traceable
from tapegrad.tracing.operators.deciding import has_varied
from tapegrad.tracing.operators.integer_bounds import added, sum_of
from tapegrad.tracing.recording.layout import note_may_alias
from tapegrad.tracing.recording.trace import current_trace, refusing
from tapegrad.tracing.tracers.subclass_tracers import among
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer


def has_traced(x: Any) -> bool:
    """Whether nested lists hold a traced value other than a made array."""
    if isinstance(x, (list, tuple, collections.deque)):
        return any(map(has_traced, x))
    return stands_for_labelled(x) or (isinstance(x, Tracer) and not is_created(x))


def unmade(x: Any) -> Any:
    """Nested lists with made arrays replaced by their plain ones."""
    if type(x) is CreatedTracer:
        return x._value if is_created(x) else x
    return type(x)(map(unmade, x)) if type(x) in (list, tuple) else x


def stacked(x: Any) -> Any:
    """A list with traced values as an array; other objects unchanged."""
    x = list(x) if type(x) is collections.deque else x
    return dispatch.as_operand(x) if _is_sequence(x) and has_traced(x) else x


def _is_sequence(x: Any) -> bool:
    """Whether NumPy makes an array of the elements of this list, tuple or named tuple."""
    kind: Any = type(x)
    if not isinstance(x, (list, tuple)) or hasattr(kind, "__array__"):
        return False
    return kind.__iter__ in (list.__iter__, tuple.__iter__)


def _kept(x: Any, kinds: str, filled: bool = False) -> Any:
    trace = current_trace()
    if trace is None or type(x) is not np.ndarray or x.dtype.kind not in kinds:
        return x
    return create(trace, x, filled) if is_traceable(x.dtype) and x.flags.writeable else x


# ---- functions that make arrays


MAKERS: dict[str, Callable[..., Any]] = {}  # replacements by the names of NumPy's functions


def _makes(numpys: Any, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the replacement for a NumPy function that makes arrays, also under `names`."""

    def declared(answer: Callable[..., Any]) -> Callable[..., Any]:
        made: Callable[..., Any] = functools.wraps(numpys)(unobserved(answer))
        MAKERS.update(dict.fromkeys((numpys.__name__, *names), made))
        return made

    return declared


def _making(
    function: Callable[..., Any], kinds: str, *names: str, arrays: int = 0, filled: bool = False
) -> Callable[..., Any]:
    """The replacement for `function` that returns a made array if the result's dtype is of one of
    these kinds. The result is `filled` with one number; the first `arrays` arguments are arrays."""

    @_makes(function, *names)
    def made(*args: Any, **kwargs: Any) -> Any:
        if arrays:
            args = (*map(stacked, args[:arrays]), *args[arrays:])
        return _kept(function(*args, **kwargs), kinds, filled)

    return made


# The contents of an empty array are undefined: zeros are as good.
_making(np.zeros, "fciub", "empty", filled=True)
_making(np.ones, "fciub", filled=True)
_making(np.zeros_like, "fciub", "empty_like", arrays=1, filled=True)
_making(np.ones_like, "fciub", arrays=1, filled=True)
_making(np.full_like, "fciub", arrays=2)
_making(np.eye, "fc")
_making(np.identity, "fc")
_making(np.tri, "fc")
_making(np.copy, "fc", arrays=1)
_making(np.diag, "fc", arrays=1)
_making(np.linspace, "fc", arrays=2)
_making(np.logspace, "fc", arrays=2)
_making(np.geomspace, "fc", arrays=2)
_arange = _making(np.arange, "fc")


@_makes(np.full)
def full(shape: Any, fill_value: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    if has_traced(fill_value):
        order, traced = kwargs.get("order", args[0] if args else "C"), stacked(fill_value)
        np.empty(0, order=order)  # NumPy's own error
        return np.full_like(traced, traced, dtype, order, shape=shape)
    value = unmade(fill_value)
    return _kept(np.full(shape, value, dtype, *args, **kwargs), "fciub", np.ndim(value) == 0)


@_makes(np.arange)
def arange(*bounds: Any, **kwargs: Any) -> Any:
    if len(bounds) == 2 and not kwargs and (count := _constant_count(*bounds)) is not None:
        return np.arange(count) + bounds[0]
    bounds = tuple(map(_plain_whole, bounds))
    kwargs = {name: _plain_whole(x) for name, x in kwargs.items()}
    if has_traced([*bounds, *kwargs.values()]) and kwargs.keys() <= {"start", "stop", "step"}:
        return _counted(*bounds, **kwargs)
    return _arange(*bounds, **kwargs)


def _constant_count(start: Any, stop: Any) -> int | None:
    """How many integers `np.arange(start, stop)` has, if that doesn't depend on traced bounds that
    another call had others of: 4 for `np.arange(n, n + 4)`. Else None."""
    if not all(isinstance(x, Tracer) and x._weak and x.dtype.kind == "i" for x in (start, stop)):
        return None
    if start._trace is not stop._trace or not has_varied(_BOUNDS):
        return None
    last, first = (sum_of(x._trace, x._read()[0]) for x in (stop, start))
    apart = added(last, first, -1)
    return max(apart.get(None, 0), 0) if set(apart) <= {None} else None


def _plain_whole(x: Any) -> Any:
    traced = isinstance(x, Tracer) and x.dtype.kind in "iub"
    return x._guarded_int(_BOUNDS) if traced else x


_BOUNDS = "the length or the bounds of np.arange"


def _counted(start: Any = 0, stop: Any = None, step: Any = 1) -> Any:
    """`np.arange` of traced real numbers. Their count is guarded."""
    if stop is None:
        start, stop = 0.0, start
    start, stop, step = (dispatch.as_operand(x) for x in (start, stop, step))
    count: Any = np.ceil((stop - start) / step)
    apart = (start + step) - start  # as NumPy rounds it
    return start + np.arange(max(int(count), 0)) * apart


@unobserved
def ndarray(shape: Any, dtype: Any = float, buffer: Any = None, *args: Any, **kwargs: Any) -> Any:
    if has_traced(buffer):
        raise refusing(
            UnsupportedError(
                f"np.ndarray(..., buffer=x) of a traced array isn't supported{at_line()}. Use "
                "x.reshape(shape), or np.lib.stride_tricks.as_strided"
            )
        )
    if buffer is not None:
        return np.ndarray(shape, dtype, buffer, *args, **kwargs)
    return _kept(np.zeros(shape, dtype, kwargs.get("order") or "C"), "fciub")


# ---- arrays of other objects


def _come_of(x: Any, found: np.ndarray, own: bool = False) -> Any:
    """The value of NumPy's array `found`, converted from an untraced `x`: `x` itself, another view
    of it, or an `own` copy, which may be filled. Arrays in memory of other objects stay plain."""
    plain = unmade(x)
    if found is plain:
        return x
    if plain is not x and isinstance(plain, np.ndarray) and np.may_share_memory(found, plain):
        return reshape(x, found.shape)
    if not own and not isinstance(x, (list, tuple)):
        known = isinstance(x, (np.ndarray, np.generic, Tracer))
        lent = not known and any(hasattr(x, name) for name in _LENDING)
        if lent or not found.flags.owndata:
            return found
    return _kept(found, "fc" if plain is x else "fciub")


_LENDING = ("__array__", "__array_interface__", "__array_struct__")


def _elements(flat: Flat) -> Any:
    """`x.flat` as an array, as NumPy makes it: a view if the elements are contiguous."""
    x = flat._x
    value, elements = x._read()[1], x.reshape(-1)
    view = value is None or np.may_share_memory(np.asarray(value.flat), value)
    return elements if view else np.broadcast_to(elements, elements.shape)


_COPIES = {np._CopyMode.ALWAYS: True, np._CopyMode.NEVER: False, np._CopyMode.IF_NEEDED: None}


@_makes(np.array)
def array(
    object: Any, dtype: Any = None, *, copy: Any = True, ndmin: int = 0, **kwargs: Any
) -> Any:
    trace = current_trace()
    if isinstance(copy, np._CopyMode):
        copy = _COPIES[copy]
    if type(object) is Flat:
        object, copy = _elements(object), None
    object = list(object) if type(object) is collections.deque else object
    if stands_for_labelled(object):
        object = object.to_numpy()
    if trace is None or kwargs.get("like") is not None:
        return np.array(object, dtype, copy=copy, ndmin=ndmin, **kwargs)
    if holds_traced(object) and dtype is not None:
        object, dtype = (object, None) if _is_object(dtype) else (numbers_of(object, dtype), None)
    if has_traced(object) and _is_object(dtype):
        return objects_of(object, copy=copy, ndmin=ndmin, **kwargs)
    if not has_traced(object):
        plain = unmade(object)
        with observed():  # objects' own methods return their contents
            new = np.array(plain, dtype, copy=copy, ndmin=ndmin, **kwargs)
        return _come_of(object, new, own=bool(copy))
    made = from_contents(trace, object, dtype)
    order = kwargs.get("order") or "K"
    own = made is not object
    made = copy_of(made, order_of(made, order)) if copy and not own else in_order(made, order)
    if copy is False and made is not object:
        np.array([0.0], copy=False)  # NumPy's own error
    return reshape(made, (1,) * (ndmin - made.ndim) + made.shape) if ndmin > made.ndim else made


def _is_object(dtype: Any) -> bool:
    return dtype is not None and np.dtype(dtype) == object


def _converting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement for a function that converts other objects to arrays."""

    @_makes(function)
    def converted(a: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        trace = current_trace()
        a = _elements(a) if type(a) is Flat else a
        if holds_traced(a) and dtype is not None:
            return array(a, dtype, copy=None)
        if trace is None or (type(a) is np.ndarray and not kwargs):
            found = function(a, dtype, *args, **kwargs)
            return found if found is a else _kept(found, "fc")
        if has_traced(a):
            order = kwargs.get("order", args[0] if args else None)
            return array(a, dtype, copy=kwargs.get("copy"), order=order or "K")
        with observed():
            found = function(unmade(a), dtype, *args, **kwargs)
        return _come_of(a, found)

    return converted


def in_order(x: Any, order: str) -> Any:
    """`x` itself if it is in this memory order, else a copy. Where the order of `x` isn't known,
    reading one of the two after a write to the other is an error."""
    if not isinstance(x, Tracer) or letter(order) == "K":
        return x
    asked = order_of(x, order)
    if _lies(x, asked):
        return x
    out = copy_of(x, asked)
    if x._read()[1] is None or not x._owner._ordered:
        note_may_alias(out._owner, x._owner)
    return out


def order_of(x: Any, order: str) -> str:
    """The concrete memory order of an array: "A" means the present one."""
    order, plain = letter(order), np.empty
    plain(0, order="C" if order in ("K", "A") else order)  # type: ignore[call-overload]  # NumPy's own error
    return ("F" if _lies(x, "F") and not _lies(x, "C") else "C") if order == "A" else order


def _lies(x: Any, order: str) -> bool:
    value = x._read()[1]
    return value is not None and x._owner._ordered and bool(value.flags[f"{order}_CONTIGUOUS"])


asarray, asanyarray = _converting(np.asarray), _converting(np.asanyarray)


def _in_order(function: Callable[..., Any], order: str) -> Callable[..., Any]:
    """The replacement for np.ascontiguousarray or np.asfortranarray: the array itself if it is in
    this order, else a copy."""

    @_makes(function)
    def arranged(a: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not has_traced(a):
            return _come_of(a, function(unmade(a), dtype, *args, **kwargs))
        x: Any = asarray(a, dtype)
        return in_order(reshape(x, (1,)) if not x.ndim else x, order)

    return arranged


ascontiguousarray = _in_order(np.ascontiguousarray, "C")
asfortranarray = _in_order(np.asfortranarray, "F")


@_makes(np.asarray_chkfinite)
def asarray_chkfinite(a: Any, dtype: Any = None, order: Any = None) -> Any:
    if not has_traced(a):
        return asarray(a, np.asarray_chkfinite(unmade(a), dtype, order).dtype, order)
    x: Any = asarray(a, dtype, order)
    if x.dtype.kind == "f" and not np.all(np.isfinite(x)):
        raise ValueError("array must not contain infs or NaNs")
    return x


@_makes(np.require)
def require(a: Any, dtype: Any = None, requirements: Any = None, **kwargs: Any) -> Any:
    if kwargs.get("like") is not None or not has_traced(a):
        return _come_of(a, np.require(unmade(a), dtype, requirements, **kwargs))
    np.require(0.0, None, requirements)  # NumPy's own error
    wanted = {name.upper()[0] for name in requirements or ()}
    x: Any = asarray(a, dtype)
    for order in wanted & {"C", "F"}:
        x = (ascontiguousarray if order == "C" else asfortranarray)(x) if x.ndim else x
    mine = "O" in wanted and not x.flags.owndata
    return copy_of(x) if mine or ("W" in wanted and not x.flags.writeable) else x


@_makes(np.fromiter)
def fromiter(iter: Any, dtype: Any, count: Any = -1, *, like: Any = None) -> Any:
    if like is not None:
        return np.fromiter(iter, dtype, count, like=like)
    entries = list(iter if count < 0 else itertools.islice(iter, count))
    if has_traced(entries):
        np.fromiter(range(len(entries)), int, count)  # NumPy's own error, where there are fewer
        if any(isinstance(x, ArrayTracer) and x.ndim for x in entries):
            np.fromiter([np.empty(2)], float)  # NumPy's own error
        return array(entries, dtype)
    return _kept(np.fromiter(unmade(entries), dtype, count), "fc")


class Joining:
    """The replacement for `np.r_` or `np.c_`."""

    def __init__(self, numpys: Any) -> None:
        self._numpys = numpys

    def __getitem__(self, key: Any) -> Any:
        if not has_traced(key if isinstance(key, tuple) else (key,)):
            plain = tuple(map(unmade, key)) if isinstance(key, tuple) else unmade(key)
            note_computed([x for x in _flat(plain) if is_array(x)])
            return _kept(self._numpys[plain], "fc")
        parts = [
            dispatch.as_operand(x) if isinstance(x, (list, tuple)) and has_traced(x) else x
            for x in (key if isinstance(key, tuple) else (key,))
        ]
        kind: Any = type(self._numpys)
        return borrowed_method(kind, "__getitem__")(self._numpys, tuple(parts))


_PLACES = (int, slice, type(None), type(Ellipsis), np.ndarray, np.integer, Tracer)


def _gathered(x: np.ndarray, key: Any) -> Tracer | None:
    """The traced form of a plain array that is indexed by traced integers, or by a mask whose count
    varies: the index isn't guarded then. None if the array stays plain."""
    places = key if type(key) is tuple else (key,)
    traced = [k for k in places if isinstance(k, Tracer) and not is_created(k)]
    if not traced or not is_traceable(x.dtype) or not all(isinstance(k, _PLACES) for k in places):
        return None
    if not all(k._trace.alive for k in traced):
        return None
    if all(k.dtype.kind in "iu" for k in traced) or selects(key):
        return as_tracer(x, *traced)
    return None


dispatch.gathered = _gathered


@functools.wraps(np.take)
@unobserved
def take(a: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
    """np.take with a traced index. NumPy dispatches on the first argument alone."""
    a, indices = (dispatch.as_operand(x) if has_traced(x) else x for x in (a, indices))
    if isinstance(indices, Tracer) and not isinstance(a, Tracer):
        traced = _gathered(np.asarray(a), indices)
        a = a if traced is None else traced
    return np.take(a, indices, *args, **kwargs)


@functools.wraps(np.from_dlpack)
@unobserved
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    if not isinstance(x, ArrayTracer):
        return np.from_dlpack(x, device=device, copy=copy)
    np.from_dlpack(np.empty(0), device=device)  # NumPy's own errors
    return np.copy(x) if copy else x.view()


_by_numpys_code = borrowed(np.piecewise)


@functools.wraps(np.piecewise)  # type: ignore[arg-type]
@unobserved
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kwargs: Any) -> Any:
    """np.piecewise. The functions may return traced values of a plain array, too."""
    trace = current_trace()
    if trace is not None and (is_created(x) or not isinstance(x, Tracer)):
        x = from_contents(trace, x)
    function = np.piecewise if trace is None or not isinstance(x, Tracer) else _by_numpys_code
    with observed():
        return function(x, condlist, funclist, *args, **kwargs)


def _flat(x: Any) -> list[Any]:
    return [e for part in x for e in _flat(part)] if isinstance(x, (list, tuple)) else [x]


_TYPES = (type, str, np.dtype)


def _as_numpys(numpys: Any, answer: Callable[..., Any]) -> Callable[..., Any]:
    """A replacement with the signature of NumPy's function."""

    @functools.wraps(answer)
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        if args:
            dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None)
            args = (
                said_of(of_itself(args[0]), dtype if isinstance(dtype, _TYPES) else None),
                *args[1:],
            )
        if not has_traced([*args, *kwargs.values()]):
            return answer(*args, **kwargs)
        if among([*args, *kwargs.values()], traced=True):
            return typed(numpys, called, args, kwargs)
        name = f"np.{numpys.__name__}"
        return accepted(numpys, args, kwargs, lambda: answer(*args, **kwargs), name)

    return called


def declare_all() -> None:
    """Register the replacements."""
    for name, answer in MAKERS.items():
        declare(np, name, _as_numpys(getattr(np, name), answer))
    for name in ("r_", "c_"):
        declare(np, name, Joining(getattr(np, name)), looked_up=True)
    declare(np, "ndarray", ndarray)
    declare(np, "take", take)
    declare(np, "from_dlpack", from_dlpack, traced=True)
    declare(np, "piecewise", piecewise)
