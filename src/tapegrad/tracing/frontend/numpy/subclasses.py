"""NumPy's functions, methods and operators on traced arrays of subclasses of ndarray.

The values are traced on base ndarrays. The classes of the results, and the parents that
`__array_finalize__` gets, depend on the function, on priorities, and on arrays that NumPy makes
internally. So the call is repeated on the plain values, as arrays of a probe class that only
records what NumPy does with it.

The probe also records when NumPy's code reaches a method or attribute that the subclass overrides.
Then NumPy's result is unknown, and NumPy's Python code runs on the traced arrays themselves.
"""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.core.trees import is_array
from tapegrad.errors import UnsupportedError
from tapegrad.observe.answers.answers import declare
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects.purity import is_numpys_module
from tapegrad.observe.observer import observed, unobserved
from tapegrad.observe.program.source import at_line
from tapegrad.tracing.frontend.calling.library_code import borrowed, implementation_of
from tapegrad.tracing.frontend.calling.object_arrays import is_of_function
from tapegrad.tracing.frontend.operands.operands import as_tracer
from tapegrad.tracing.memory.created import create, is_created, is_traceable, shown
from tapegrad.tracing.recording.trace import current_trace, refusing
from tapegrad.tracing.tracers.subclass_tracers import (
    SUBCLASS,
    SubclassTracer,
    among,
    bare,
    is_followed,
    made,
    own_names,
    passing,
    tracers_of,
    users,
)
from tapegrad.tracing.tracers.tracer import Tracer

# ---- the probe


class _Own(Exception):
    """NumPy's code has reached a method or attribute that a subclass overrides."""


class _Noted(threading.local):
    def __init__(self) -> None:
        self.calls: list[_Call] = []  # the innermost one last


_noted = _Noted()


class _Shown(np.ndarray):
    """A probe: a plain array in the place of one of the subclass `of`, which NumPy's code sees as
    its class."""

    of: Any
    shaping: Any = None  # np.matrix's __array_finalize__, which gives intermediate arrays two axes

    def __array_finalize__(self, obj: Any) -> None:
        if _noted.calls:
            if self.shaping is not None:
                self.shaping(obj)
            _noted.calls[-1].parents.append((self, obj))


class _Trip:
    """A descriptor for an attribute that the subclass overrides: reading it raises `_Own`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, x: Any, kind: Any) -> Any:
        if x is None:
            return getattr(np.ndarray, self.name)
        _noted.calls[-1].own = self.name
        raise _Own

    def __set__(self, x: Any, value: Any) -> None:
        self.__get__(x, None)


def _wrapping(
    self: Any, array: Any, context: Any = None, return_scalar: bool = False
) -> np.ndarray:
    """The probe's `__array_wrap__`, for a subclass that overrides it."""
    found: Any = np.ndarray.__array_wrap__(self, array, context, return_scalar)
    _noted.calls[-1].wrapped.append((found, self, context, return_scalar))
    return found


def _shown_class(kind: Any) -> type:
    names: dict[str, Any] = {name: _Trip(name) for name in own_names(kind)}
    names |= {"of": kind, "__array_priority__": kind.__array_priority__}
    if kind.__array_wrap__ is not np.ndarray.__array_wrap__:
        names["__array_wrap__"] = _wrapping
    if issubclass(kind, np.matrix):
        names |= {"shaping": np.matrix.__array_finalize__, "_getitem": False}
    names["__class__"] = property(lambda self: kind)
    return type(kind.__name__, (_Shown,), names)


class _Call:
    """A call, and the record of what NumPy has done in it."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, Any, Any]] = []  # arrays: traced, as base ndarrays, as probes
        self.parents: list[tuple[Any, Any]] = []
        self.wrapped: list[tuple[Any, Any, Any, Any]] = []
        self.own = ""
        self.like: Any = None  # a traced value that takes part
        self.classes: dict[Any, type] = {}

    def taken(self, x: Any) -> tuple[Any, Any]:
        """An argument as the front end gets it, and as NumPy gets it."""
        kind = type(x)
        if kind is list or kind is tuple:
            pairs = list(map(self.taken, x))
            return kind([a for a, _ in pairs]), kind([b for _, b in pairs])
        if kind is dict:
            pairs = list(map(self.taken, x.values()))
            return dict(zip(x, [a for a, _ in pairs], strict=True)), dict(
                zip(x, [b for _, b in pairs], strict=True)
            )
        self.like = x if isinstance(x, Tracer) else self.like
        for known, own, plain in self.given:
            if known is x:
                return own, plain
        sub, own, plain = SUBCLASS[kind], x, _plain(x)
        if sub is not None:
            if sub not in self.classes:
                tracers_of(sub)  # raises an error if it isn't followed
                self.classes[sub] = _shown_class(sub)
            own, plain = bare(x), plain.view(self.classes[sub])
        if is_array(plain):
            self.given.append((x, own, plain))
        return own, plain

    # ---- results

    def left(self, x: Any, plain: Any) -> Any:
        """A result as the program gets it, from the front end's result and NumPy's."""
        if isinstance(plain, (list, tuple)) and isinstance(x, (list, tuple)):
            parts = [self.left(a, b) for a, b in zip(x, plain, strict=True)]
            kind: Any = type(x)
            return kind(*parts) if hasattr(x, "_fields") else kind(parts)
        for known, _, own in self.given:
            if plain is own:
                return known
        if not isinstance(plain, _Shown):
            return x
        traced = as_tracer(x, self.like)
        if traced.ndim == 0 and traced._is_scalar():
            traced._revalued(np.asarray(traced._value))
        for found, owner, context, return_scalar in self.wrapped:
            if found is plain:
                return self._wrapped(traced, owner, context, return_scalar)
        new = traced is x and not any(x is own for _, own, _ in self.given)
        if traced.shape != plain.shape:
            traced = dispatch.method("reshape", traced, plain.shape)
        found = made(plain.of, traced, self._parent(plain, traced), new)
        if found.shape != plain.shape:
            raise _gone_on(plain.of, "an __array_finalize__ that sets the shape")
        return found

    def is_numpys(self, x: Any, plain: Any) -> bool:
        """Whether the front end's result has the elements of NumPy's. The shapes may differ, since
        those of NumPy's intermediate arrays did."""
        if isinstance(plain, (list, tuple)) and isinstance(x, (list, tuple)):
            return len(x) == len(plain) and all(map(self.is_numpys, x, plain))
        if not isinstance(plain, _Shown):  # NumPy's code has made a matrix by itself, for example
            return SUBCLASS[type(plain)] is None
        if np.shape(x) == plain.shape:
            return True
        if isinstance(x, Tracer) and not is_created(x) and x._read()[1] is None:
            return x.ndim < 2 and plain.shape == (1, x.size)
        own, numpys = np.ravel(_plain(x)), np.asarray(plain).ravel()
        return own.size == numpys.size and np.allclose(own, numpys, equal_nan=True)

    def _parent(self, plain: Any, like: Tracer) -> Any:
        """The parent of an array that `__array_finalize__` gets."""
        parent = next(obj for x, obj in self.parents if x is plain)
        for known, _, own in self.given:
            if parent is own:
                return known
        if parent is None:
            return None
        kind = parent.of if isinstance(parent, _Shown) else np.ndarray
        above = self._parent(parent, like) if isinstance(parent, _Shown) else None
        return passing(kind, like, parent, above)

    def wraps_what_it_makes(self, plain: Any) -> bool:
        """Whether `__array_wrap__` of an internal array of NumPy's has made the result."""
        owners = [owner for found, owner, _, _ in self.wrapped if found is plain]
        return bool(owners) and all(own is not owners[0] for _, _, own in self.given)

    def _wrapped(self, x: Tracer, owner: Any, context: Any, return_scalar: bool) -> Any:
        """The result of the subclass's own `__array_wrap__`."""
        known = next((given for given, _, own in self.given if own is owner), None)
        if not isinstance(known, SubclassTracer):
            raise _gone_on(owner.of, "its own __array_wrap__")
        if context is not None:
            ufunc, args, k = context
            back = {id(own): given for given, _, own in self.given}
            context = ufunc, tuple([back.get(id(y), y) for y in args]), k
        hook = type(known).__array_wrap__
        all_of_it: tuple[Any, ...] = (known, x, context, return_scalar)
        try:
            inspect.signature(hook).bind(*all_of_it)
        except TypeError:
            all_of_it = all_of_it[:3]  # as before NumPy 2
        return users(hook, known)(*all_of_it)


def _gone_on(kind: Any, what: str) -> Any:
    """The error for NumPy's behaviour that isn't followed."""
    return refusing(
        UnsupportedError(
            f"NumPy goes on to {what} for a traced array of {kind.__qualname__}{at_line()}, a "
            "subclass of ndarray, where a trace doesn't follow. Use np.asarray(x) there"
        )
    )


_BACK = "a function that it calls back"


def _calls_back(x: Any) -> bool:
    """Whether NumPy may call this argument, which isn't one of NumPy's own functions."""
    if isinstance(x, (list, tuple)):
        return any(map(_calls_back, x))
    known = isinstance(x, (type, np.ufunc, Tracer, np.ndarray))
    return callable(x) and not known and not is_numpys_module(getattr(x, "__module__", None))


def _plain(x: Any) -> Any:
    """The value of an argument: a copy, since NumPy may write to it."""
    if isinstance(x, Tracer):
        value = x._value if is_created(x) else x._read()[1]
        if value is None:  # only its type is known
            value = np.cos(np.arange(x.size) + 1.0).reshape(x.shape).astype(x.dtype)
            value = value if x.ndim else value[()]
        x = value
    return np.array(x, order="K") if is_array(x) else x


@unobserved
def typed(
    numpys: Callable[..., Any],
    traced: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    own: Callable[..., Any] | None = None,
) -> Any:
    """The result of a NumPy call with arrays of subclasses among its arguments. `traced` computes
    it on base ndarrays; `own` is NumPy's Python code for it, if there is any."""
    call = _Call()
    pairs, named = [call.taken(x) for x in args], {k: call.taken(x) for k, x in kwargs.items()}
    kind = next(iter(call.classes))

    def by_numpys_code(what: str) -> Any:
        if own is None:
            raise _gone_on(kind, what)
        with observed():
            return own(*args, **kwargs)

    if any(map(_calls_back, (*args, *kwargs.values()))):  # it must be called once, and followed
        return by_numpys_code(_BACK)
    plain: Any = _Own
    _noted.calls.append(call)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            call.parents.clear()
            plain = numpys(*[b for _, b in pairs], **{k: b for k, (_, b) in named.items()})
    except Exception as error:
        let_through(error)  # the front end raises NumPy's own
    finally:
        _noted.calls.pop()
    if call.own or call.wraps_what_it_makes(plain):
        return by_numpys_code(f"its own {call.own or '__array_wrap__'}")
    found = traced(*[a for a, _ in pairs], **{k: a for k, (a, _) in named.items()})
    if plain is _Own:
        raise _gone_on(kind, "what isn't known")
    if not call.is_numpys(found, plain):
        return by_numpys_code("what depends on its class")
    return call.left(found, plain)


# ---- NumPy's functions, methods, attributes and items


def of_ufunc(ufunc: Any, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A ufunc, or a method of one. If a class overrides `__array_ufunc__`, NumPy calls that, except
    where the class itself calls the ufunc."""
    out = kwargs.get("out")
    given = (*inputs, *(out if isinstance(out, tuple) else (out,)))
    kinds = [kind for kind in map(SUBCLASS.__getitem__, map(type, given)) if kind is not None]
    for kind in kinds:
        if kind.__array_ufunc__ is not np.ndarray.__array_ufunc__:
            tracers_of(kind)  # raises an error if it isn't followed
            return NotImplemented
    if is_of_function(ufunc):
        raise _gone_on(kinds[0], _BACK)
    apply = ufunc if method == "__call__" else getattr(ufunc, method)
    return typed(
        apply, lambda *xs, **given: dispatch.ufunc(ufunc, method, xs, given), inputs, kwargs
    )


def of_function(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Any other NumPy function."""
    own = borrowed(func) if implementation_of(func) else None
    return typed(func, lambda *xs, **given: dispatch.function(func, xs, given), args, kwargs, own)


def of_method(name: str, x: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A method of ndarray."""
    numpys = getattr(np.ndarray, name)
    return typed(
        numpys,
        lambda y, *xs, **given: dispatch.method(name, y, *xs, **given),
        (x, *args),
        kwargs,
        _code_of_method(name),
    )


@cache
def _code_of_method(name: str) -> Any:
    """NumPy's Python code for a method of arrays, on traced arrays; None if there is none."""
    own = getattr(_METHODS_IN_PYTHON, f"_{name}", None)
    return borrowed(own, own) if isinstance(own, FunctionType) else None


_METHODS_IN_PYTHON: Any = import_module("numpy._core._methods")


def _attribute(name: str, x: Any) -> Any:
    own = getattr(np.ndarray, name)
    return typed(own.__get__, lambda y: getattr(y, name), (x,), {})


@unobserved
def _part(x: Any, index: Any) -> Any:
    """`x[index]`: a scalar for one element, else an array of the class of `x`."""
    found = dispatch.getitem(bare(x), index)
    scalar = found._is_scalar() or (found._value is None and not found.shape)
    return found if scalar else made(x._subclass, found, x, new=True)


def _beside(x: Any, y: Any) -> Any:
    """An array to the left of `y`, of a subclass that overrides operators: a tracer, since Python
    tries the right operand's operator first only if its class derives from that of `x`. None if `x`
    needs no replacement."""
    if not own_names(y._subclass) or not is_traceable(x.dtype):
        return None
    if is_created(x):
        return shown(x)
    return as_tracer(x, y) if type(x) is np.ndarray else None


def _with_bare(f: Any, *args: Any, **kwargs: Any) -> Any:
    """`f(*args)` on base ndarrays."""
    given, named = all_bare(args), {k: all_bare(x) for k, x in kwargs.items()}
    return f(*given, **named)


def all_bare(x: Any) -> Any:
    """A value, or the values in lists, as base ndarrays."""
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(map(all_bare, x))
    return bare(x) if isinstance(x, SubclassTracer) else x


# ---- construction


def class_asked(x: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The subclass that `x.view(*args, **kwargs)` requests, or that of `x`; None for ndarray."""
    for given in (kwargs.get("type"), kwargs.get("dtype"), *args):
        if isinstance(given, type) and issubclass(given, np.ndarray):
            return given
    return SUBCLASS[type(x)]


@unobserved
def viewed(x: Any, kind: Any, parent: Any = None) -> Any:
    """`x.view(kind)`."""
    own = bare(x) if isinstance(x, SubclassTracer) else x
    if is_created(own):
        own._become_traced()
    own = own.view()
    return own if kind is np.ndarray else made(kind, own, x if parent is None else parent)


@unobserved
def _new(kind: Any, *args: Any, **kwargs: Any) -> Any:
    """`np.ndarray.__new__`: in the memory of a traced array, or in new memory, which may be filled
    with traced values."""
    given = inspect.signature(_layout).bind(*args, **kwargs)
    buffer, trace = given.arguments.get("buffer"), current_trace()
    numpys = partial(np.ndarray.__new__, kind, *args, **kwargs)
    traced = isinstance(buffer, Tracer) or (buffer is None and is_followed(kind))
    if trace is None or not traced:
        return numpys()
    given.apply_defaults()
    _, dtype, _, offset, strides, order = given.args
    if buffer is None:
        plain = np.zeros(given.args[0], dtype, order or "C")
        if plain.dtype.kind not in "fciub":
            return numpys()
        return made(kind, as_tracer(create(trace, plain), ()), None)
    own = bare(buffer) if isinstance(buffer, SubclassTracer) else buffer
    if is_created(own):
        own._become_traced()
    value = own._read()[1]
    if value is not None:  # NumPy's own error
        value = np.ndarray(*[value if x is buffer else x for x in given.args])
    if offset or strides is not None or own.dtype != np.dtype(dtype):
        raise refusing(
            UnsupportedError(
                f"np.ndarray.__new__ reads the memory of a traced array otherwise than that "
                f"has it{at_line()}, which a trace doesn't follow. Use its dtype, and no strides"
            )
        )
    shape = given.args[0]
    count = int(np.prod(shape))
    part = own if own.size == count else own.reshape(-1)[:count]
    return made(kind, part.reshape(shape, order=order or "C"), None)


def _layout(
    shape: Any,
    dtype: Any = float,
    buffer: Any = None,
    offset: Any = 0,
    strides: Any = None,
    order: Any = None,
) -> None:
    """The signature of `np.ndarray.__new__`, after the class."""


def _called(kind: Any, *args: Any, **kwargs: Any) -> Any:
    """`kind(*args)`, with a call of `__init__`, which Python doesn't call on a tracer."""
    new = kind.__new__
    if new is np.ndarray.__new__:
        x = _new(kind, *args, **kwargs)
    else:
        x = users(new, kind)(kind, *args, **kwargs)
    if isinstance(x, kind) and kind.__init__ is not object.__init__:
        users(kind.__init__, kind)(x, *args, **kwargs)
    return x


def _made_of(kind: Any) -> Any:
    """The replacement for calls of a class; None if Python's own call is right."""
    if not issubclass(kind, np.ndarray) or kind is np.ndarray or SUBCLASS[kind] is None:
        return None
    plain = kind.__init__ is object.__init__ and kind.__new__ is not np.ndarray.__new__
    return None if plain or is_numpys_module(kind.__module__) else partial(_called, kind)


def _is_subclass(args: Sequence[Any]) -> bool:
    return bool(args) and isinstance(args[0], type) and args[0] is not np.ndarray


def _among_traced(args: Sequence[Any]) -> bool:
    return among(args, traced=True)


def declare_all() -> None:
    """Register the replacements."""
    declare(np.ndarray, "__new__", _new, when=_is_subclass)
    within: Any = np.lib._function_base_impl  # the median of masked arrays calls it
    declare(within, "_ureduce", borrowed(None, within._ureduce), when=_among_traced)


dispatch.with_bare = _with_bare
dispatch.beside, dispatch.made_of = _beside, _made_of
dispatch.attribute, dispatch.part, dispatch.viewed = _attribute, _part, viewed
