"""Keys of static values: equal if and only if no function can tell the values apart.

`==` won't do. 1 == 1.0 == True, 0.0 == -0.0, range(0) == range(5, 5), and an object's own `__eq__`
may return anything.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
from typing import Any

import numpy as np


class _Identity:
    """A key that is equal for the very same object only, whatever its own `__eq__` says."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.x is other.x

    def __hash__(self) -> int:
        return id(self.x)


class Keyed:
    """A value that has the key by which it is compared."""

    key: Any


class Returnable(Keyed):
    """A part of a result besides its arrays, such as the labels of a table."""

    def stay(self) -> bool:
        """Whether each call may return it as it is now. From here on no program can change it."""
        return is_comparable(self.key)


class _Unlike:
    """A key that equals nothing, not even itself: for values that may change unnoticed."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__


unlike = _Unlike


def is_comparable(key: Any) -> bool:
    """Whether a key has no part that equals nothing. Tuples don't tell: the same object counts as
    equal in them."""
    if isinstance(key, tuple):
        return all(map(is_comparable, key))
    return not isinstance(key, _Unlike)


# Immutable values of these types are interchangeable if and only if their `repr` is equal.
_BY_TEXT = {
    "datetime": ("date", "time", "datetime", "timedelta"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "pathlib": ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"),
    "uuid": ("UUID",),
}


def exact_key(x: Any) -> Any:
    """The key of an immutable value, equal for values that no function can tell apart.

    None for values of other types.
    """
    kind: Any = type(x)
    if kind in (str, bytes, bool, int, type(None), type(...)) or isinstance(x, np.dtype):
        return kind, x
    if kind in (float, complex):
        return kind, repr(x)
    if kind in (slice, range):
        parts: Any = [exact_key(k) for k in (x.start, x.stop, x.step)]
        return None if None in parts else (kind, *parts)
    if kind in (tuple, frozenset):
        parts = [exact_key(k) for k in x]
        return None if None in parts else (kind, kind(parts))
    if isinstance(x, np.generic) and kind is x.dtype.type and not isinstance(x, np.void):
        return kind, x.tobytes()
    if kind.__name__ in _BY_TEXT.get(kind.__module__, ()):
        own = getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind
        return (kind, repr(x)) if own and getattr(x, "tzinfo", None) is None else None
    return None


def is_generator(x: Any) -> bool:
    """Whether this is a random generator of Python's or NumPy's own class. A trace doesn't depend
    on which one is passed, since each call draws from its own. Generators of users' classes may do
    more."""
    kind: Any = type(x)
    return kind.__name__ in _GENERATORS.get(kind.__module__, ())


_GENERATORS = {
    "numpy.random._generator": ("Generator",),
    "numpy.random.mtrand": ("RandomState",),
    "random": ("Random",),
}


def is_watched(x: Any) -> bool:
    """Whether every read of an object's attributes is observed, so that another instance of its
    class will do. That holds for classes made by class statements."""
    kind: Any = type(x)
    return is_watched_class(kind)


@functools.lru_cache(maxsize=4096)
def is_watched_class(kind: Any) -> bool:
    """Whether a class and all its bases were made by class statements. Then its instances hold
    nothing in C."""
    own = [base for base in kind.__mro__ if base not in (object, types.SimpleNamespace)]
    if issubclass(kind, (enum.Enum, Keyed)):  # few members; compared by its key
        return False
    return all(base.__flags__ & _HEAP_TYPE for base in own) and not any(
        isinstance(x, _IN_C) for base in own for x in vars(base).values()
    )


_HEAP_TYPE = 1 << 9
_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType)


def static_key(x: Any) -> Any:
    """The key of what a trace depends on in a static value: the value, or the identity of an object
    whose attributes are watched."""
    key = exact_key(x)
    if key is not None:
        return key
    if type(x) is np.ndarray and x.dtype.kind in "SU":  # compared by contents
        return np.ndarray, x.dtype, x.shape, x.strides, x.tobytes()
    if isinstance(x, Keyed):
        return type(x), x.key
    if isinstance(x, types.MethodType):  # a new object at each lookup
        return types.MethodType, _Identity(x.__self__), _Identity(x.__func__)
    return type(x), _Identity(x)
