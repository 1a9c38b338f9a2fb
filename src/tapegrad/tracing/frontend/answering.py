"""NumPy's functions that don't ask their arguments, as the user's code calls them in a trace.

What makes arrays makes them as NumPy does, and what comes of it can be filled with traced values
(`tracing/made.py`): arrays of all kinds that hold one number, and of the others those of reals.
Integers and booleans that come with their contents, which index and choose, stay plain. Lists of
traced values are stacked, for every function that takes an array in their place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.core.trees import is_array
from tapegrad.tracing.answers import declare
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.frontend.borrowing import borrowed_method
from tapegrad.tracing.frontend.indexing import Flat
from tapegrad.tracing.frontend.making import from_contents
from tapegrad.tracing.frontend.memory import copy_of
from tapegrad.tracing.frontend.operands import as_tracer
from tapegrad.tracing.frontend.parameters import form_of
from tapegrad.tracing.frontend.shaping import reshape
from tapegrad.tracing.layout import lay_out, note_may_alias
from tapegrad.tracing.made import MadeTracer, is_made, is_traceable, make
from tapegrad.tracing.observe.observer import note_computed, observed, unobserved
from tapegrad.tracing.trace import current_trace
from tapegrad.tracing.tracer import Tracer


def has_traced(x: Any) -> bool:
    """Whether a traced value is in nested lists, besides made arrays."""
    if isinstance(x, (list, tuple)):
        return any(map(has_traced, x))
    return isinstance(x, Tracer) and not is_made(x)


def unmade(x: Any) -> Any:
    """Nested lists with plain arrays for made ones."""
    if type(x) is MadeTracer:
        return x._value if is_made(x) else x
    return type(x)(map(unmade, x)) if type(x) in (list, tuple) else x


def _kept(x: Any, kinds: str, filled: bool = False) -> Any:
    trace = current_trace()
    if trace is None or type(x) is not np.ndarray or x.dtype.kind not in kinds:
        return x
    return make(trace, x, filled) if is_traceable(x.dtype) and x.flags.writeable else x


# ---- what makes arrays


def _making(
    function: Callable[..., Any], kinds: str = "fiub", filled: bool = False
) -> Callable[..., Any]:
    """A function whose result may be filled with traced values, if it is of one of these kinds; it
    may be `filled` with one number."""

    @functools.wraps(function)
    @unobserved
    def made(*args: Any, **kwargs: Any) -> Any:
        return _kept(function(*args, **kwargs), kinds, filled)

    return made


zeros, ones = _making(np.zeros, filled=True), _making(np.ones, filled=True)
empty = zeros  # what an empty array holds is anyone's guess: zeros will do
zeros_like, ones_like = _making(np.zeros_like, filled=True), _making(np.ones_like, filled=True)
empty_like, full_like = zeros_like, _making(np.full_like)
eye, identity, tri = _making(np.eye, "f"), _making(np.identity, "f"), _making(np.tri, "f")
linspace, logspace = _making(np.linspace, "f"), _making(np.logspace, "f")
geomspace = _making(np.geomspace, "f")
_arange = _making(np.arange, "f")


@functools.wraps(np.full)
@unobserved
def full(shape: Any, fill_value: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    if has_traced(fill_value):
        traced = dispatch.as_operand(fill_value)
        return np.full_like(traced, traced, dtype, shape=shape)
    value = unmade(fill_value)
    return _kept(np.full(shape, value, dtype, *args, **kwargs), "fiub", np.ndim(value) == 0)


@functools.wraps(np.arange)
@unobserved
def arange(*bounds: Any, **kwargs: Any) -> Any:
    whole = [isinstance(x, Tracer) and x.dtype.kind in "iu" for x in bounds]
    return _arange(*[int(x) if yes else x for x, yes in zip(bounds, whole, strict=True)], **kwargs)


@unobserved
def ndarray(shape: Any, dtype: Any = float, buffer: Any = None, *args: Any, **kwargs: Any) -> Any:
    if buffer is not None:
        return np.ndarray(shape, dtype, buffer, *args, **kwargs)
    return _kept(np.zeros(shape, dtype, kwargs.get("order") or "C"), "fiub")


# ---- arrays of what isn't one yet


def _come_of(x: Any, found: np.ndarray, own: bool = False) -> Any:
    """What NumPy makes of `x`, which isn't traced: that itself, another view of it, or an array of
    its `own`, which may be filled. One in memory that others have is left plain."""
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
    return _kept(found, "f" if plain is x else "fiub")


_LENDING = ("__array__", "__array_interface__", "__array_struct__")


def _elements(flat: Flat) -> Any:
    """As NumPy makes an array of `x.flat`: a view, where the elements lie in order."""
    x = flat._x
    value, elements = x._read()[1], x.reshape(-1)
    view = value is None or np.may_share_memory(np.asarray(value.flat), value)
    return elements if view else np.broadcast_to(elements, elements.shape)


def _in_order(x: Any, order: str | None, copy: bool | None = None) -> Any:
    """A traced array itself, if it lies in this order, else a copy. Where it isn't known how it
    lies, a write to one of the two is an error once the other is read."""
    flag = {"C": "C_CONTIGUOUS", "F": "F_CONTIGUOUS"}.get(order or "K")
    value = x._read()[1]
    known = value is not None and x._owner._ordered
    if flag is None or (known and value.flags[flag]):
        return x
    if copy is False:
        np.array(np.ones((2, 2)), order="F", copy=False)  # NumPy's own error
    out = copy_of(x, order or "K")
    if not known:
        note_may_alias(out._owner, x._owner)
    return out


@functools.wraps(np.array)
@unobserved
def array(
    object: Any, dtype: Any = None, *, copy: bool | None = True, ndmin: int = 0, **kwargs: Any
) -> Any:
    trace = current_trace()
    if type(object) is Flat:
        object, copy = _elements(object), None
    if trace is None or kwargs.get("like") is not None:
        return np.array(object, dtype, copy=copy, ndmin=ndmin, **kwargs)
    if not has_traced(object):
        plain = unmade(object)
        with observed():  # objects are asked for what they hold
            new = np.array(plain, dtype, copy=copy, ndmin=ndmin, **kwargs)
        return _come_of(object, new, own=bool(copy))
    made, order = from_contents(trace, object, dtype), kwargs.get("order", "K")
    if made is object:
        made = copy_of(made, order) if copy else _in_order(made, order, copy)
    elif copy is False:
        np.array([0.0], copy=False)  # NumPy's own error
    else:
        made = lay_out(made, order)
    return reshape(made, (1,) * (ndmin - made.ndim) + made.shape) if ndmin > made.ndim else made


def _converting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes an array of what isn't one yet."""

    @functools.wraps(function)
    @unobserved
    def converted(a: Any, dtype: Any = None, order: Any = None, **kwargs: Any) -> Any:
        trace = current_trace()
        a = _elements(a) if type(a) is Flat else a
        if trace is None or (type(a) is np.ndarray and not kwargs):
            found = function(a, dtype, order, **kwargs)
            return found if found is a else _kept(found, "f")
        if has_traced(a):
            copy = kwargs.get("copy")
            return array(a, dtype, copy=copy, order=order or "K")
        with observed():
            found = function(unmade(a), dtype, order, **kwargs)
        return _come_of(a, found)

    return converted


asarray, asanyarray = _converting(np.asarray), _converting(np.asanyarray)
asfarray = _converting(np.asarray)


def _ordering(function: Callable[..., Any], order: str) -> Callable[..., Any]:
    """np.ascontiguousarray, np.asfortranarray: itself, if it lies so; else a copy."""

    @functools.wraps(function)
    @unobserved
    def arranged(a: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not has_traced(a):
            return _come_of(a, function(unmade(a), dtype, *args, **kwargs))
        x: Any = asarray(a, dtype)
        return _in_order(reshape(x, (1,)) if not x.ndim else x, order)

    return arranged


ascontiguousarray = _ordering(np.ascontiguousarray, "C")
asfortranarray = _ordering(np.asfortranarray, "F")


@functools.wraps(np.fromiter)
@unobserved
def fromiter(iter: Any, dtype: Any, *args: Any, **kwargs: Any) -> Any:
    if args or kwargs:
        return np.fromiter(iter, dtype, *args, **kwargs)
    entries = list(iter)
    if has_traced(entries):
        return array(entries, dtype)
    return _kept(np.fromiter(unmade(entries), dtype), "f")


class Joining:
    """np.r_ and np.c_."""

    def __init__(self, numpys: Any) -> None:
        self._numpys = numpys

    def __getitem__(self, key: Any) -> Any:
        if not has_traced(key if isinstance(key, tuple) else (key,)):
            plain = tuple(map(unmade, key)) if isinstance(key, tuple) else unmade(key)
            note_computed([x for x in _flat(plain) if is_array(x)])
            return _kept(self._numpys[plain], "f")
        parts = [
            dispatch.as_operand(x) if isinstance(x, list) and has_traced(x) else x
            for x in (key if isinstance(key, tuple) else (key,))
        ]
        kind: Any = type(self._numpys)
        return borrowed_method(kind, "__getitem__")(self._numpys, tuple(parts))


_PLACES = (int, slice, type(None), type(Ellipsis), np.ndarray, np.integer, Tracer)


def _gathered(x: np.ndarray, key: Any) -> Tracer | None:
    """A plain array, as a traced one, that traced integers index: which elements that gives is
    followed, and not taken for granted. Which are asked for by a mask says how many, so it is."""
    places = key if type(key) is tuple else (key,)
    traced = [k for k in places if isinstance(k, Tracer) and not is_made(k)]
    if not traced or not is_traceable(x.dtype) or not all(isinstance(k, _PLACES) for k in places):
        return None
    if not all(k._trace.alive and k.dtype.kind in "iu" for k in traced):
        return None
    return as_tracer(x, *traced)


dispatch.gathered = _gathered


@functools.wraps(np.take)
@unobserved
def take(a: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
    """It asks its first argument alone."""
    a, indices = (dispatch.as_operand(x) if has_traced(x) else x for x in (a, indices))
    if isinstance(indices, Tracer) and not isinstance(a, Tracer):
        traced = _gathered(np.asarray(a), indices)
        a = a if traced is None else traced
    return np.take(a, indices, *args, **kwargs)


def _flat(x: Any) -> list[Any]:
    return [e for part in x for e in _flat(part)] if isinstance(x, (list, tuple)) else [x]


# ---- lists of traced values

# These look for traced values in lists themselves.
_BY_THEMSELVES = """
    block piecewise einsum_path result_type can_cast may_share_memory shares_memory
    zeros_like ones_like full_like empty_like
"""
# A list that these take is one of arrays, and its parts may be lists.
_OF_LISTS = "concatenate stack vstack hstack dstack column_stack select choose multi_dot"


def _stacking_parts(function: Any) -> Callable[..., Any]:
    """A function of NumPy's that takes lists of arrays, which may be lists of traced values."""

    @functools.wraps(function)
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        if any(map(has_traced, args)):
            args = tuple(map(_with_arrays, args))
        return function(*args, **kwargs)

    return called


def _with_arrays(x: Any) -> Any:
    if type(x) not in (list, tuple):
        return x
    return [dispatch.as_operand(e) if type(e) in (list, tuple) else e for e in x]


def _stacking(function: Any, parameters: Callable[[], Any]) -> Callable[..., Any]:
    """A function of NumPy's that takes lists of traced values for arrays."""

    @functools.wraps(function)
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        if not any(type(x) in (list, tuple) and has_traced(x) for x in args):
            return function(*args, **kwargs)
        form = parameters()
        skipped = () if form is None else form.positions
        more = len(args) if form is None or form.after is None else form.after
        given = [
            dispatch.as_operand(x)
            if type(x) in (list, tuple) and k not in skipped and k < more and has_traced(x)
            else x
            for k, x in enumerate(args)
        ]
        return function(*given, **kwargs)

    return called


copy, diag = (_making(_stacking(f, lambda: None), "f") for f in (np.copy, np.diag))


def declare_all(functions: dict[Any, Callable[..., Any]]) -> None:
    """Fill the table; `functions` are the front end's, by NumPy's."""
    places = (np, np.linalg)
    of_lists, by_themselves = (
        {getattr(p, n) for n in names.split() for p in places if hasattr(p, n)}
        for names in (_OF_LISTS, _BY_THEMSELVES)
    )
    for name, found in [*vars(np).items()]:  # `dir` has modules that load when they are asked for
        if isinstance(found, np.ufunc):
            declare(np, name, _stacking(found, lambda: None), lists=True)
    for module in places[::-1]:
        for name, found in [*vars(module).items()]:
            if type(found) is not type(np.sum) or found not in functions or found in by_themselves:
                continue
            form = functools.partial(form_of, functions[found], found)
            if found in of_lists:
                stacking = _stacking_parts(found)
            elif found is np.einsum:  # all may be operands
                stacking = _stacking(found, lambda: None)
            else:
                stacking = _stacking(found, form)
            declare(module, name, stacking, lists=True)
    for name in _MAKERS.split():
        declare(np, name, globals()[name])
    for name in ("r_", "c_"):
        declare(np, name, Joining(getattr(np, name)), looked_up=True)
    declare(np, "ndarray", ndarray)
    declare(np, "take", take)


_MAKERS = """
    zeros ones empty full zeros_like ones_like empty_like full_like arange eye identity tri
    linspace logspace geomspace array asarray asanyarray ascontiguousarray asfortranarray
    fromiter copy diag
"""
