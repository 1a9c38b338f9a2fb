"""Which values that aren't traced are alike: no function tells them apart.

`==` doesn't say so. 1 == 1.0 == True, 0.0 == -0.0, range(0) == range(5, 5), and an object's own
`__eq__` may say anything.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
from typing import Any

import numpy as np


class _Identity:
    """Equal for that very object only, whatever its own `__eq__` says."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.x is other.x

    def __hash__(self) -> int:
        return id(self.x)


class Keyed:
    """A value that knows the key by which it is compared."""

    key: Any


# Immutable values of these types are alike if their `repr` is, and only then.
_BY_TEXT = {
    "datetime": ("date", "time", "datetime", "timedelta"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "pathlib": ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"),
    "uuid": ("UUID",),
}


def exact_key(x: Any) -> Any:
    """A key for a value that never changes: equal for values that no function tells apart.

    None for a value of another type, of which nothing is known.
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
    """Whether this is a generator of random numbers of Python's or NumPy's: which one is passed
    makes no difference to a trace, as each call draws from the one that it gets. One of a class of
    the user's may do more."""
    kind: Any = type(x)
    return kind.__name__ in _GENERATORS.get(kind.__module__, ())


_GENERATORS = {
    "numpy.random._generator": ("Generator",),
    "numpy.random.mtrand": ("RandomState",),
    "random": ("Random",),
}


def is_watched(x: Any) -> bool:
    """Whether all that a function reads of an object is seen, so another one of its class will do:
    class statements made that."""
    kind: Any = type(x)
    return is_watched_class(kind)


@functools.lru_cache(maxsize=4096)
def is_watched_class(kind: Any) -> bool:
    """Whether they made a class and all above it. Then it holds nothing in C."""
    own = [base for base in kind.__mro__ if base not in (object, types.SimpleNamespace)]
    if issubclass(kind, (enum.Enum, Keyed)):  # whose members are few; which is compared by its key
        return False
    return all(base.__flags__ & _HEAP_TYPE for base in own) and not any(
        isinstance(x, _IN_C) for base in own for x in vars(base).values()
    )


_HEAP_TYPE = 1 << 9
_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType)


def static_key(x: Any) -> Any:
    """What a trace depends on in a value that isn't traced: the value, or which object it is, whose
    attributes are watched."""
    key = exact_key(x)
    if key is not None:
        return key
    if type(x) is np.ndarray and x.dtype.kind in "SU":  # which is compared by what it holds
        return np.ndarray, x.dtype, x.shape, x.strides, x.tobytes()
    if isinstance(x, Keyed):
        return type(x), x.key
    if isinstance(x, types.MethodType):  # made anew each time it is looked up
        return types.MethodType, _Identity(x.__self__), _Identity(x.__func__)
    return type(x), _Identity(x)
