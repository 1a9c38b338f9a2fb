"""Operations on made arrays: NumPy does them at once where nothing traced takes part.

This is the entry to the front end. A call whose arguments are made arrays, numbers and captured
arrays is NumPy's own, on the plain arrays. New arrays that it returns are made arrays; scalars are
plain. So all of NumPy's functions work on made arrays, with NumPy's own errors. If the result is a
view of an argument, the call is repeated on tracers of a throwaway trace, which shows the views
that lead from the argument to the result. Where a traced value takes part, the front end gets
tracers that show the contents of the made arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from itertools import takewhile
from typing import Any

import numpy as np

from tapegrad.core.instances import PLAIN
from tapegrad.core.trees import is_array
from tapegrad.errors import UnsupportedError
from tapegrad.ir.tape import Builder
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import (
    note_computed,
    note_printed,
    note_remembered,
    unobserved,
)
from tapegrad.primitives.views import GetItem
from tapegrad.tracing.frontend.calling.object_arrays import calling, is_of_function
from tapegrad.tracing.frontend.indexing.indexing import getitem, plain_index
from tapegrad.tracing.frontend.indexing.writes import setitem
from tapegrad.tracing.frontend.numpy.methods import call_method
from tapegrad.tracing.frontend.numpy.subclasses import (
    all_bare,
    class_asked,
    of_function,
    of_method,
    of_ufunc,
    viewed,
)
from tapegrad.tracing.frontend.numpy.ufuncs import call_ufunc
from tapegrad.tracing.frontend.operands.declaring import METHODS
from tapegrad.tracing.memory.created import (
    CreatedTracer,
    create,
    handed,
    is_created,
    is_traceable,
    part_of,
    shown,
)
from tapegrad.tracing.recording.chains import Chosen
from tapegrad.tracing.recording.trace import Trace, current_trace
from tapegrad.tracing.tracers.subclass_tracers import among, is_followed
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, stand_in

_WRITERS = (np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal)
_TEXTS = (np.array2string, np.array_repr, np.array_str)
_CHANGING = frozenset(
    ["fill", "put", "sort", "partition", "itemset", "byteswap", "setfield", "setflags"]
)


class _Traced(Exception):
    """Something traced takes part, or a user's function, which may return a traced value."""


class _Shows(Exception):
    """The result `found` shares memory with a made array."""

    def __init__(self, found: Any) -> None:
        self.found = found


# ---- calls without traced values


class _Given:
    """The arguments of a call, with made arrays replaced by plain ones. `made` and `outside` list
    the made and the captured arrays."""

    def __init__(self) -> None:
        self.made: list[CreatedTracer] = []
        self.outside: list[np.ndarray] = []

    def plain(self, x: Any) -> Any:
        kind = type(x)
        if isinstance(x, Tracer):
            if not is_created(x):
                raise _Traced
            if not x._trace.alive:
                return self.plain(remembered(x))
            self.made.append(x)  # type: ignore[arg-type]
            return x._value
        if kind is list or kind is tuple:
            return kind([self.plain(part) for part in x])
        if kind is dict:
            return {key: self.plain(part) for key, part in x.items()}
        if kind is slice:
            return slice(self.plain(x.start), self.plain(x.stop), self.plain(x.step))
        if is_array(x):
            self.outside.append(x)
        elif callable(x) and not (isinstance(x, type) or _is_numpys(x)):
            raise _Traced
        return x

    def wrapped(self, x: Any) -> Any:
        """A result as the program gets it: new arrays as made arrays."""
        if self._shows(x):
            raise _Shows(x)
        return self._wrapped(x)

    def _shows(self, x: Any) -> bool:
        if isinstance(x, (tuple, list)):
            return any(map(self._shows, x))
        if not isinstance(x, np.ndarray) or any(x is known._value for known in self.made):
            return False
        shown = [y for y in self.made if np.may_share_memory(x, y._value)]
        if any(y.dtype.kind == "c" and x.dtype.kind == "f" for y in shown):
            raise _Traced  # the real or imaginary parts of a complex array
        return bool(shown)

    def _wrapped(self, x: Any) -> Any:
        kind = type(x)
        if kind is tuple or kind is list:
            return kind([self._wrapped(part) for part in x])
        if kind is not np.ndarray:
            return x
        for known in self.made:
            if x is known._value:
                return known
        return self.kept(x)

    def kept(self, x: np.ndarray) -> Any:
        """A new array; a made array if it is real, complex, or of a made argument's dtype."""
        trace = current_trace()
        if trace is None or not is_traceable(x.dtype) or not x.flags.writeable:
            return x
        if x.dtype.kind not in "fc" and all(x.dtype != known.dtype for known in self.made):
            return x
        return create(trace, x)


def remembered(x: Any) -> np.ndarray:
    """The plain array of a made array from an earlier trace, which an object has kept."""
    note_remembered(x._value)
    value: np.ndarray = x._value
    return value


def _is_numpys(x: Any) -> bool:
    if isinstance(x, np.ufunc):
        return not is_of_function(x)
    return (getattr(x, "__module__", None) or "").partition(".")[0] == "numpy"


_NOT = object()


def _plainly(
    func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], written: Sequence[Any]
) -> Any:
    """NumPy's result for made and plain arrays; `_NOT` if something traced takes part."""
    given = _Given()
    try:
        plain = [given.plain(x) for x in args]
        named = {name: given.plain(x) for name, x in kwargs.items()}
    except _Traced:
        return _NOT
    targets = [x for x in written if type(x) is CreatedTracer]
    for x in targets:
        x._check_rounds()
    note_computed(given.outside)
    if func in _TEXTS and given.made:
        note_printed(given.made[0]._value)
    try:
        with calling(func):
            found = func(*plain, **named)
    finally:
        for x in targets:
            x._changed()
    try:
        return given.wrapped(found)
    except _Traced:  # real parts of complex arrays: such views aren't followed
        return _NOT


@cache
def _names_of(f: Any) -> tuple[str, ...]:
    """The names of a function's positional arguments; empty for C code without a signature."""
    try:
        found = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return ()
    by_name = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in takewhile(lambda p: p.kind not in by_name, found))


def _with_named_out(names: Sequence[str], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The positional arguments up to `out`, and `out` and later ones by keyword. `names` are those
    of the positions."""
    at = names.index("out") if "out" in names else len(args)
    if not at < len(args) <= len(names):
        return args, kwargs
    return args[:at], {**dict(zip(names[at:], args[at:], strict=False)), **kwargs}


def _is_among(args: Sequence[Any]) -> bool:
    """Whether made arrays are among arguments, or in lists there."""
    for x in args:
        kind = type(x)
        if kind is CreatedTracer or ((kind is list or kind is tuple) and _is_among(x)):
            return True
    return False


def _shown(x: Any) -> Any:
    """An argument for the front end: a made array as a tracer that shows its contents."""
    kind = type(x)
    if kind is CreatedTracer:
        if not is_created(x):
            return x
        return shown(x) if x._trace.alive else remembered(x)
    if (kind is list or kind is tuple) and _is_among(x):
        return kind([_shown(part) for part in x])
    return x


def _leaving(x: Any) -> Any:
    """The front end's result for shown arrays, as the program gets it. Views of made arrays become
    made arrays. If a traced value selects the part, the whole array is traced from here on."""
    kind = type(x)
    if isinstance(x, (list, tuple)):
        parts = list(map(_leaving, x))
        if all(part is old for part, old in zip(parts, x, strict=True)):
            return x
        return kind(*parts) if hasattr(x, "_fields") else kind(parts)
    if not isinstance(x, Tracer) or kind is CreatedTracer or not is_created(x._root):
        return x
    root: Any = x._root
    if not x._chain:
        return root
    value = x._read()[1]
    if any(type(view) is Chosen for view in x._chain) or not _shares(value, root._value):
        root._become_traced()
        return x
    return part_of(root, x._chain, value)


def _shares(x: Any, y: np.ndarray) -> bool:
    return isinstance(x, np.ndarray) and (x.size == 0 or np.may_share_memory(x, y))


class _Apart:
    """A throwaway trace on which a call shows the views that lead to its result."""

    def __init__(self) -> None:
        self.trace = Trace(Builder("views"))
        self.given: list[tuple[Tracer, CreatedTracer]] = []

    def taken(self, x: Any) -> Any:
        kind = type(x)
        if kind is CreatedTracer:
            tracer = stand_in(self.trace, self.trace.builder.fresh(x._aval), x._value)
            self.given.append((tracer, x))
            return tracer
        return kind([self.taken(part) for part in x]) if kind in (list, tuple) else x

    def back(self, x: Any, found: Any) -> Any:
        """The program's value for NumPy's result `found`, where the front end's result is `x`. A
        part that isn't known as a view is plain, as if untraced code had requested it."""
        kind = type(found)
        if kind is list or kind is tuple:
            known = x if isinstance(x, (list, tuple)) and len(x) == len(found) else found
            return kind([self.back(part, own) for part, own in zip(known, found, strict=True)])
        if not isinstance(found, np.ndarray):
            return found
        for tracer, made in self.given:
            if not np.may_share_memory(found, made._value) or kind is not np.ndarray:
                continue
            if x is tracer:
                return made
            if isinstance(x, Tracer) and x._root is tracer:
                return part_of(made, x._chain, x._value)
        shared = [made for _, made in self.given if np.may_share_memory(found, made._value)]
        if shared:
            array = handed(shared, found)
            return array if kind is np.ndarray else array.view(kind)
        if not self.given or kind is not np.ndarray or not is_traceable(found.dtype):
            return found
        return create(self.given[0][1]._trace, found)


def _views(
    handler: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], found: Any
) -> Any:
    apart = _Apart()
    given = [apart.taken(x) for x in args]
    named = {name: apart.taken(x) for name, x in kwargs.items()}
    trace: Any = current_trace()
    refusal = trace.refusal
    try:
        known = handler(*given, **named)
    except UnsupportedError:
        known, trace.refusal = None, refusal
    return apart.back(known, found)


# ---- the entries


def _ufunc(ufunc: Any, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if among(inputs) or (kwargs and among(kwargs.values())):
        return of_ufunc(ufunc, method, inputs, kwargs)
    if not kwargs:
        for x in inputs:
            kind = type(x)
            if kind is CreatedTracer or kind is list or kind is tuple:
                break
            if kind in PLAIN:
                continue
            if dispatch.has_labels(x):
                return dispatch.labelled(ufunc, [*map(_shown, inputs)])
            if method == "__call__" and hasattr(kind, "_answers_first"):
                return x.__array_ufunc__(ufunc, method, *inputs)
        else:
            return call_ufunc(ufunc, method, inputs, kwargs)
    elif not _is_among([*inputs, *kwargs.values()]):
        return call_ufunc(ufunc, method, inputs, kwargs)
    return _met(ufunc, method, inputs, kwargs)


@unobserved
def _met(ufunc: Any, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    out = kwargs.get("out", ())
    written = list(out) if isinstance(out, tuple) else [out]
    if method == "at":
        written.append(inputs[0])
    func = ufunc if method == "__call__" else getattr(ufunc, method)
    found = _plainly(func, inputs, kwargs, written)
    if found is not _NOT:
        return found
    rest = [_shown(x) for x in inputs]
    if method == "at":
        rest[0] = inputs[0]
    named = {name: x if name == "out" else _shown(x) for name, x in kwargs.items()}
    return _leaving(call_ufunc(ufunc, method, rest, named))


def door(call_function: Callable[..., Any]) -> Callable[..., Any]:
    """The entry for NumPy's other functions, which `call_function` executes."""

    def function(func: Any, args: Any, kwargs: Any) -> Any:
        if among(args) or (kwargs and among(kwargs.values())):
            return of_function(func, args, kwargs)
        if not _is_among(args) and not (kwargs and _is_among([*kwargs.values()])):
            return call_function(func, args, kwargs)
        return met(func, args, kwargs)

    @unobserved
    def met(func: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = _with_named_out(_names_of(func), args, kwargs)
        out = kwargs.get("out")
        written = list(out) if isinstance(out, tuple) else [out]
        if func in _WRITERS:
            written.append(args[0] if args else None)
        try:
            found = _plainly(func, args, kwargs, written)
        except _Shows as shows:
            return _views(
                lambda *given, **named: call_function(func, given, named), args, kwargs, shows.found
            )
        if found is not _NOT:
            return found
        rest = [x if func in _WRITERS and k == 0 else _shown(x) for k, x in enumerate(args)]
        named = {name: x if name == "out" else _shown(x) for name, x in kwargs.items()}
        return _leaving(call_function(func, tuple(rest), named))

    return function


def _method(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    kind = class_asked(x, args, kwargs) if name == "view" and not x._weak else None
    if kind is not None and (is_followed(kind) or not is_created(x)):
        return viewed(x, kind)
    if x._subclass is not None or among(args) or among(kwargs.values()):
        return of_method(name, x, args, kwargs)
    if type(x) is not CreatedTracer and not _is_among(args) and not _is_among([*kwargs.values()]):
        return call_method(name, x, *args, **kwargs)
    return _method_met(name, x, args, kwargs)


@unobserved
def _method_met(name: str, x: Any, args: Any, kwargs: Any) -> Any:
    names = METHODS[name].form.names if name in METHODS else ()
    (_, *args), kwargs = _with_named_out(names, (x, *args), kwargs)
    if is_created(x) and name != "resize":  # resize would change the type of `x`
        written = [kwargs.get("out"), x if name in _CHANGING else None]
        try:
            found = _plainly(getattr(np.ndarray, name), (x, *args), kwargs, written)
        except _Shows as shows:
            return _views(
                lambda y, *more, **named: _own(name, y, more, named),
                (x, *args),
                kwargs,
                shows.found,
            )
        if found is not _NOT:
            return found
    named = {key: y if key == "out" else _shown(y) for key, y in kwargs.items()}
    target = x if name in _CHANGING or name == "resize" else _shown(x)
    return _leaving(_own(name, target, [_shown(y) for y in args], named))


def _own(name: str, x: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The front end's result for a method."""
    if name in METHODS:
        return call_method(name, x, *args, **kwargs)
    return ArrayTracer.__getattr__(x, name)(*args, **kwargs)


def _getitem(x: Any, index: Any) -> Any:
    index = all_bare(index) if among((index,)) else index
    kind = type(index)
    if type(x) is not CreatedTracer and kind is not CreatedTracer and kind is not tuple:
        return getitem(x, index)
    return _item(x, index)


@unobserved
def _item(x: Any, index: Any) -> Any:
    if is_created(x) and not x._trace.alive:
        x = remembered(x)
        note_computed([x])
        return x[index]
    if not is_created(x):
        return getitem(x, _shown(index))
    given = _Given()
    try:
        key = given.plain(index)
    except _Traced:
        return _leaving(getitem(shown(x), _shown(index)))
    note_computed(given.outside)
    found = x._value[key]
    if type(found) is not np.ndarray:
        return found
    if not np.may_share_memory(found, x._value):
        given.made.append(x)
        return given.kept(found)
    explicit = plain_index(x, key)
    if explicit is not None:
        return part_of(x, (GetItem(explicit),), found)
    return _views(getitem, (x, key), {}, found)


def _setitem(x: Any, index: Any, value: Any) -> None:
    if among((index, value)):
        index, value = all_bare(index), all_bare(value)
    if type(x) is CreatedTracer:
        _set(x, index, value)
    else:
        setitem(x, _shown(index), _shown(value))


@unobserved
def _set(x: Any, index: Any, value: Any) -> None:
    if is_created(x):
        given = _Given()
        try:
            key, new = given.plain(index), given.plain(value)
        except _Traced:
            pass
        else:
            x._check_rounds()
            note_computed(given.outside)
            try:
                x._value[key] = new
            finally:
                x._changed()
            return
    setitem(x, _shown(index), _shown(value))


dispatch.ufunc, dispatch.method = _ufunc, _method
dispatch.getitem, dispatch.setitem = _getitem, _setitem
