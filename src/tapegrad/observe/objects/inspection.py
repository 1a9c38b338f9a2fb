"""Inspection of objects without calling their own methods.

Methods of a user's class may print, count or loop for ever, and what they return isn't what the
object holds. So containers are read by the methods of the built-in class that they derive from, and
classes by those of `type`.
"""

from __future__ import annotations

import contextlib
import enum
import types
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tapegrad.core.named import own_attribute
from tapegrad.observe.objects.purity import CONTAINERS, MAPPINGS, PLAIN_TYPES

_mro = vars(type)["__mro__"].__get__
_names = vars(type)["__dict__"].__get__


def base_of(kind: type) -> Any:
    """The built-in container class that a class derives from, or None."""
    return next((cls for cls in _mro(kind) if cls in CONTAINERS), None)


_OF_ITEMS = (
    *("__getitem__", "__setitem__", "__delitem__", "__contains__", "__missing__", "__iter__"),
    "__len__",
)


def kind_of_items(x: Any) -> Any:
    """The built-in container class whose methods get and set an object's items. The object's own
    class if it overrides these, or isn't derived from such a class."""
    kind = type(x)
    if kind in CONTAINERS or (base := base_of(kind)) is None:
        return kind
    same = all(found_in_class(kind, name) is found_in_class(base, name) for name in _OF_ITEMS)
    return base if same else kind


def length(x: Any) -> int:
    """The number of items of a container."""
    found: int = base_of(type(x)).__len__(x)
    return found


def elements(x: Any) -> Iterator[Any]:
    """The elements of a container; the keys of a mapping."""
    found: Iterator[Any] = base_of(type(x)).__iter__(x)
    return found


def values(x: Any) -> list[Any]:
    """The values of a mapping, or the elements of another container."""
    if isinstance(x, np.ndarray):
        return list(x.ravel().tolist())
    base = base_of(type(x))
    return list(base.values(x) if base in MAPPINGS else base.__iter__(x))


def item(x: Any, key: Any) -> Any:
    """One item of a container that isn't a set."""
    return base_of(type(x)).__getitem__(x, key)


_MARSHALLED = frozenset([bool, int, complex, str, type(None)])


def is_plain(x: Any) -> bool:
    """Whether a dict, list or tuple holds only numbers and strings, and tuples of these, so that
    `marshal` distinguishes it from all others. Bytes are excluded, since `marshal` writes arrays
    and the like as bytes; so are nested lists and NaN, whose identity it doesn't see, and sets,
    whose order it doesn't."""
    kind = type(x)
    held = [*x, *x.values()] if kind is dict else x
    return kind in (dict, list, tuple) and all(
        type(v) in _MARSHALLED
        or (type(v) is float and v == v)
        or (type(v) is tuple and is_plain(v))
        for v in held
    )


def is_value(x: Any) -> bool:
    """Whether an object is an immutable value: a number, a text, a member of an enumeration, or a
    tuple or frozen dataclass of these with generated methods."""
    kind: Any = type(x)
    if kind in PLAIN_TYPES:
        return True
    if isinstance(x, enum.Enum):
        return found_in_class(kind, "__hash__") in (enum.Enum.__hash__, int.__hash__, str.__hash__)
    ways = [found_in_class(kind, name) for name in ("__hash__", "__eq__")]
    if ways == [tuple.__hash__, tuple.__eq__]:
        return not own_names(x) and all(map(is_value, tuple.__iter__(x)))
    generated = [*ways, found_in_class(kind, "__setattr__")]  # the last one because it is frozen
    return all(type(f) is types.FunctionType and _is_generated(f) for f in generated) and all(
        map(is_value, [*(own_names(x) or {}).values(), *in_slots(x)])
    )


def is_one(x: Any) -> bool:
    """Whether an object equals only itself."""
    ways = [found_in_class(type(x), name) for name in ("__hash__", "__eq__")]
    return ways == [object.__hash__, object.__eq__]


def _is_generated(f: types.FunctionType) -> bool:
    """Whether a function's code was generated, so that no file holds its text."""
    return f.__code__.co_filename.startswith("<")


def found_in_class(kind: type, name: str, default: Any = None) -> Any:
    """The attribute `name` of a class, or of the first base that has it."""
    for cls in _mro(kind):
        if name in _names(cls):
            return _names(cls)[name]
    return default


def own_names(x: Any) -> Any:
    """The dict of an object's own attributes; None if it has none."""
    try:
        return object.__getattribute__(x, "__dict__")
    except AttributeError:
        return None


def in_slots(x: Any) -> list[Any]:
    """The values in an object's slots that Python classes declare."""
    found = []
    for kind in _mro(type(x)):
        for slot in list(_names(kind).values()) if "__slots__" in _names(kind) else ():
            if type(slot) is types.MemberDescriptorType:
                with contextlib.suppress(AttributeError):  # an empty slot
                    found.append(slot.__get__(x))
    return found


def looks_up_itself(kind: type) -> bool:
    """Whether a class defines `__getattribute__` in Python."""
    return type(found_in_class(kind, "__getattribute__")) is types.FunctionType


def checksum(x: np.ndarray) -> int:
    """A checksum of an array's contents."""
    return zlib.crc32(np.ndarray.tobytes(x)) if not x.dtype.hasobject else 0


def is_slot(x: Any) -> bool:
    return isinstance(x, (types.MemberDescriptorType, types.GetSetDescriptorType))


def is_bound(x: Any) -> bool:
    """Whether a function written in C is a method, bound to an object."""
    return x.__self__ is not None and not isinstance(x.__self__, types.ModuleType)


def code_called(f: Any) -> Any:
    """The code that a call of a Python function or method runs; None for other callables."""
    f = own_attribute(f, "__func__", f) if type(f) is types.MethodType else f
    return f.__code__ if type(f) is types.FunctionType else None
