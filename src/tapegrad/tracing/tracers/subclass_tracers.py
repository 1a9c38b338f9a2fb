"""Tracers of arrays of subclasses of ndarray that are written in Python.

Each such class has a class of tracers, made on first use. It derives from `SubclassTracer` as the
user's class derives from ndarray, through the same classes, and has the same functions, properties
and attributes. `super()` leads to the traced array's own method: `observe.operands.replacement`
replaces the user's class by the tracers' class in calls of `super`.

NumPy's functions treat such arrays as NumPy does: see `frontend.numpy.subclasses`.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Callable
from functools import partial, wraps
from types import FunctionType, MemberDescriptorType
from typing import Any

import numpy as np

from tapegrad.core.arrays import HARMLESS
from tapegrad.errors import UnsupportedError
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects.purity import is_numpys_module, is_pythons_class, module_of
from tapegrad.observe.observer import following, observed
from tapegrad.observe.program.source import TAPEGRAD, asks_itself, at_line, is_numpys_class
from tapegrad.tracing.operators.numpy import operators
from tapegrad.tracing.recording.chains import show
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, stand_in


def _attribute(name: str) -> Any:
    """An attribute that is an array, of the class that NumPy returns."""
    return property(lambda self: dispatch.attribute(name, self))


class SubclassTracer(ArrayTracer):
    """A traced array of a subclass of ndarray, `_subclass`."""

    __slots__ = ("_laid",)  # the flags of an intermediate array of NumPy's

    def __new__(kind, *args: Any, **kwargs: Any) -> Any:
        """Called by a library that has read the type of a traced array."""
        return kind._subclass(*args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def _read(self) -> Any:
        if self._operand is None:
            raise refusing(
                UnsupportedError(
                    "an __array_finalize__ reads the elements of an array that NumPy makes on the "
                    f"way to its result{at_line()}, which a trace doesn't know. Let it read "
                    "attributes alone"
                )
            )
        return super()._read()

    def _as_numpys(self, name: str) -> Any:
        """A method as ndarray has it, without the subclass's override."""
        own = getattr(SubclassTracer, name, None)
        return ArrayTracer.__getattr__(self, name) if own is None else partial(own, self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _INTERNAL and not sys._getframe(1).f_code.co_filename.startswith(TAPEGRAD):
            raise refused(self._subclass, f"which has an attribute {name!r}, as a tracer has,")
        object.__setattr__(self, name, value)

    def __array_finalize__(self, obj: Any, /) -> None: ...

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return dispatch.viewed(array, self._subclass, self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return dispatch.ufunc(ufunc, method, inputs, kwargs)

    def __getitem__(self, index: Any) -> Any:
        return dispatch.part(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        to: Any = self
        if _gives_a_view(index, self.ndim):  # then NumPy evaluates `self[index]` and writes to it
            hook = type(self).__getitem__
            own = hook is SubclassTracer.__getitem__
            to = self[index] if own else users(hook, self)(self, index)
            if not isinstance(to, np.ndarray):
                raise RuntimeError("Getitem not returning array")
            index = ...
        if isinstance(to, SubclassTracer):
            dispatch.setitem(bare(to), index, value)
        else:
            to[index] = value

    def __copy__(self, memo: Any = None) -> Any:
        return dispatch.method("copy", self, "K")

    __deepcopy__ = __copy__
    T, mT, real, imag = map(_attribute, ("T", "mT", "real", "imag"))

    @property
    def flags(self) -> Any:
        return super().flags if self._operand is not None else self._laid

    def _flat(self) -> Any:
        return dispatch.flat(bare(self), lambda x: made(self._subclass, x, self, new=True))

    flat = property(_flat, lambda self, value: self._flat().__setitem__(slice(None), value))

    def tolist(self) -> Any:
        return bare(self).tolist()

    def item(self, *args: Any) -> Any:
        return bare(self).item(*args)


def _gives_a_view(index: Any, ndim: int) -> bool:
    """Whether `x[index]` is a view in NumPy: neither an element, nor the result of index arrays."""
    parts = index if isinstance(index, tuple) else (index,)
    numbers = [p for p in parts if not (p is None or p is ... or isinstance(p, slice))]
    if any(isinstance(p, (np.ndarray, bool, np.bool_)) for p in numbers):
        return False
    if not all(hasattr(type(p), "__index__") for p in numbers):
        return False
    return not (len(parts) == 1 and parts[0] is ...) and not len(numbers) == len(parts) == ndim


# These cache their last call at each place of the code, for base ndarrays.
for _name, _operator in operators().items():
    setattr(SubclassTracer, _name, _operator)

_INTERNAL = frozenset(n for n in dir(ArrayTracer) if n[:1] == "_" != n[1:2]) | {"_laid"}
_LEFT_OUT = {"__new__", "__dict__", "__weakref__", "__module__", "__slots__", "__init_subclass__"}
_LEFT_OUT |= {"__class_getitem__", "__getattr__", "__classcell__"}


def refused(kind: Any, why: str) -> Any:
    """The error for a subclass that can't be followed."""
    return refusing(
        UnsupportedError(
            f"a traced array meets the class {kind.__module__}.{kind.__qualname__}{at_line()}, a "
            f"subclass of ndarray {why} which a trace doesn't follow. Take the numbers out of "
            "such an array, by np.asarray(x), compute with these, and make one of what the "
            "function returns"
        )
    )


def check_stays(x: Any, where: str) -> None:
    """Raise an error for an array of a subclass in a place where its class would be lost."""
    if isinstance(x, SubclassTracer):
        way = "x.filled(value)" if _may_be_masked(x._subclass) else "np.asarray(x)"
        raise refusing(
            UnsupportedError(
                f"an array of the class {x._subclass.__qualname__}, a subclass of ndarray, is "
                f"{where}{at_line()}, where its class would be lost. Let that be {way}"
            )
        )


def _may_be_masked(kind: type) -> bool:
    """Whether a class derives from `np.ma.MaskedArray`, if that is loaded."""
    return issubclass(kind, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def check_has_value(x: Any, of: str) -> None:
    """Raise an error for a returned element or array with a mask."""
    held = type(x).__dict__.get("_subclass") if isinstance(x, Tracer) else type(x)
    if held is None or not _may_be_masked(held):
        return
    if np.ma.getmask(x) is not np.ma.nomask:
        raise refusing(
            UnsupportedError(
                f"a result of {of} is masked, or is an array of np.ma with a mask, and the mask "
                "would be lost. Let it return x.filled(value) or np.ma.filled(x, value)"
            )
        )


def _above(kind: type) -> list[type]:
    """The classes from a subclass up to ndarray, in the order of attribute lookup."""
    mro = kind.__mro__
    return [*mro[: mro.index(np.ndarray)]]


def _is_plain(name: str, x: Any) -> bool:
    """Whether a property of NumPy's own classes reads like that of ndarray."""
    f = getattr(x, "fget", None)
    own = type(f) is FunctionType and is_numpys_class(f.__code__.co_filename)
    return own and name in _TYPES


_TYPES = ("shape", "dtype")


def own_names(kind: type) -> dict[str, Any]:
    """The attributes of ndarray that a subclass overrides, by name."""
    found: dict[str, Any] = {}
    for base in _above(kind):
        for name, x in vars(base).items():
            if name not in HARMLESS and hasattr(np.ndarray, name) and not _is_plain(name, x):
                found.setdefault(name, x)
    return found


def _is_numpys(kind: type) -> bool:
    """Whether a class is NumPy's, and its code isn't followed."""
    methods = [x for x in vars(kind).values() if type(x) is FunctionType]
    followed = any(is_numpys_class(f.__code__.co_filename) for f in methods)
    return is_numpys_module(module_of(kind)) and not followed


def _objection(kind: type) -> str:
    """The reason why a subclass isn't followed; empty if it is."""
    names = {name for base in _above(kind) for name in vars(base)}
    for base in _above(kind):
        if _is_numpys(base):
            return f"that is, or derives from, NumPy's own {base.__name__},"
        if issubclass(base, np.ndarray) and not is_pythons_class(base):
            return "that isn't written in Python,"
        if any(type(x) is MemberDescriptorType for x in vars(base).values()):
            return "with slots,"
    if type(kind) not in (type, ABCMeta):
        return "with a metaclass of its own,"
    for name in ("__array_function__", "__getattribute__", "__setattr__"):
        if name in names:
            return f"with its own {name},"
    for name in names & _INTERNAL:
        return f"with an attribute {name!r}, as a tracer has,"
    return ""


def is_followed(kind: Any) -> bool:
    """Whether arrays of this class, which may be ndarray, are followed."""
    return not _objection(kind)


class _OfClass:
    """A class method of the user's class, which is called with that class."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, x: Any, kind: Any) -> Any:
        return getattr(kind._subclass, self.name)


def _own_part(name: str, x: Any) -> Any:
    """An attribute of the user's class, adapted to the tracers' class."""
    if type(x) is classmethod:
        return _OfClass(name)
    if type(x) is property and name in _TYPES:  # tapegrad reads these itself
        own: Any = getattr(ArrayTracer, name)
        return x.getter(lambda self: (own if asks_itself() else x).__get__(self))
    return x


def _getter(users: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """The user's `__getattr__`, which Python calls for missing attributes."""

    def __getattr__(self: Any, name: str) -> Any:
        if hasattr(np.ndarray, name):
            return ArrayTracer.__getattr__(self, name)
        return users(self, name)

    return __getattr__


class _Made:
    """A class of tracers, and the attributes of the user's class when it was made."""

    def __init__(self, kind: type, tracers: type, seen: list[tuple[Any, ...]]) -> None:
        self.kind, self.tracers, self.seen = kind, tracers, seen


CACHED_CLASSES = 1000  # classes in the cache
_made: dict[type, _Made] = {}


def _seen(kind: type) -> list[tuple[Any, ...]]:
    return [(base, *map(id, vars(base).values())) for base in _above(kind)]


def tracers_of(kind: Any) -> Any:
    """The class of tracers for a subclass of ndarray.

    Raises
    ------
    UnsupportedError : The subclass can't be followed.
    """
    if kind is np.ndarray:
        return SubclassTracer
    known = _made.get(kind)
    seen = _seen(kind)
    if known is not None and known.seen == seen:
        return known.tracers
    why = _objection(kind)
    if why:
        raise refused(kind, why)
    bases = [tracers_of(x) if issubclass(x, np.ndarray) else x for x in kind.__bases__]
    told = property(lambda self: kind)
    tracers: Any = ABCMeta(kind.__name__, tuple(bases), {"_subclass": kind, "__class__": told})
    for name, x in vars(kind).items():
        if name not in _LEFT_OUT:
            setattr(tracers, name, _own_part(name, x))
    if "__getattr__" in vars(kind):
        tracers.__getattr__ = _getter(vars(kind)["__getattr__"])
    if len(_made) >= CACHED_CLASSES:
        _made.clear()
    _made[kind] = _Made(kind, tracers, seen)
    return tracers


class _Subclasses(dict[type, Any]):
    """Maps the classes of values, traced or not, to their subclass of ndarray; all others to None.
    np.memmap counts as ndarray."""

    def __missing__(self, kind: type) -> Any:
        found: Any = kind._subclass if issubclass(kind, Tracer) else None
        if issubclass(kind, np.ndarray) and kind not in (np.ndarray, np.memmap):
            found = kind
        if "<locals>" not in kind.__qualname__:  # a function's local class may be deleted soon
            self[kind] = found
        return found


SUBCLASS = _Subclasses()


def among(xs: Any, traced: bool = False) -> bool:
    """Whether arrays of subclasses are among values, or in lists there. With `traced`, only traced
    ones count."""
    for x in xs:
        kind = type(x)
        if kind is list or kind is tuple:
            if among(x, traced):
                return True
        elif SUBCLASS[kind] is not None and (not traced or isinstance(x, SubclassTracer)):
            return True
    return False


# ---- arrays


def bare(x: Any) -> Any:
    """An array of a subclass as a base ndarray, in the same memory."""
    if not isinstance(x, SubclassTracer):
        return np.asarray(x)
    operand, value = x._read()
    kind: Any = ArrayTracer
    out = kind(x._trace, operand, value)
    show(out, x._owner, x._chain)
    return out


def made(kind: Any, x: Tracer, parent: Any, new: bool = False) -> Any:
    """A traced array as one of a subclass, whose `__array_finalize__` gets `parent`. If it is
    `new`, it has memory of its own; otherwise it shares that of `x`."""
    become_traced = getattr(x._owner, "_become_traced", None)
    if become_traced is not None:  # a made array
        become_traced()
    tracers = tracers_of(kind)
    _note(kind)
    y = object.__new__(tracers)
    y._trace, y._aval, y._ordered = x._trace, x._aval, x._ordered
    y._operand, y._value = x._read()
    if isinstance(y._value, np.generic):
        y._value = np.asarray(y._value)
    y._may_alias, y._doubt = x._may_alias, x._doubt
    y._root, y._chain, y._version = None, (), 0
    if x._root is not None or not new:
        show(y, x._owner, x._chain)
    return finalized(y, parent)


def passing(kind: Any, like: Tracer, array: Any, parent: Any) -> Any:
    """A tracer for an intermediate array of NumPy's, of which only attributes are known."""
    found = stand_in(like._trace, like._read()[0], None)
    y = object.__new__(tracers_of(kind))
    y._trace, y._aval, y._ordered = like._trace, type(found._aval)(array.shape, array.dtype), True
    y._operand, y._value, y._may_alias, y._doubt = None, None, (), ""
    y._root, y._chain, y._version, y._laid = None, (), 0, array.flags
    return finalized(y, parent)


def finalized(y: Any, parent: Any) -> Any:
    """A new array after the call of its class's `__array_finalize__`."""
    hook = type(y).__array_finalize__
    if hook is not None and hook is not SubclassTracer.__array_finalize__:
        users(hook, y)(y, parent)
    return y


def users(f: Any, x: Any) -> Callable[..., Any]:
    """A user's method that NumPy calls implicitly, for explicit calls: it is observed."""

    @wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        here = following.observer
        if here is not None and type(f) is FunctionType:
            here.roots.add(f.__code__)
            here.lookups.attribute(x, f.__name__)
        with observed():
            return f(*args, **kwargs)

    return called


def _note(kind: Any) -> None:
    """Observe the methods of this class, which Python may call implicitly from here on."""
    here = following.observer
    if here is not None and not following.unwatched:
        here.kind(kind)
    elif any(_is_seen(name, x) for base in _above(kind) for name, x in vars(base).items()):
        raise refused(
            kind,
            "that calls super(), or has its own __init__ or reflected operators, in a run that "
            "isn't observed (under a debugger, say),",
        )


def _is_seen(name: str, x: Any) -> bool:
    """Whether an attribute of a class can be followed only if instructions are observed."""
    if name == "__init__" or (name in _REFLECTED and callable(x)):
        return True
    functions = (x.fget, x.fset) if isinstance(x, property) else (getattr(x, "__func__", x),)
    return any(type(f) is FunctionType and "super" in f.__code__.co_names for f in functions)


_REFLECTED = {f"__r{name[2:]}" for name in operators()}
