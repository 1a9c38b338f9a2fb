"""Descriptions of the arguments and results of calls, which are compared from call to call.

A description is a copy in which a `Leaf` identifies each object.
"""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.tables import is_pandas_object
from tapegrad.observe.guards.pure_operations import ITERATORS
from tapegrad.observe.guards.queried import TYPES, Leaf, same
from tapegrad.observe.objects import inspection
from tapegrad.observe.objects.files import is_path
from tapegrad.observe.objects.purity import (
    CONTAINERS,
    DISPATCHER,
    PLAIN_TYPES,
    is_extensions,
    is_inside,
    is_scipys,
    module_of,
)


class Incomparable(Exception):
    """This value can't be compared from call to call."""


@dataclass(frozen=True)
class Made(Leaf):
    """Object number `part` in the result of call number `k`."""

    k: int
    part: int


@dataclass(frozen=True)
class New(Leaf):
    """Object number `part` of a result, which is new, and its class; or the class's name, if a
    function creates the class, as it may at each call."""

    part: int
    kind: Any


@dataclass(frozen=True)
class Bound(Leaf):
    """A Python method bound to this object."""

    holder: Any
    function: Any


class Same(Leaf):
    """An object that is always the same one."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.x is other.x

    __hash__ = None  # type: ignore[assignment]


def is_object(x: Any) -> bool:
    """Whether this is a mutable object of an installed package, or a function or class that it has
    created."""
    kind: Any = type(x)
    if kind is types.FunctionType:
        return getattr(sys.modules.get(str(x.__module__)), x.__name__, None) is not x
    if isinstance(x, type):
        return is_inside(x) and not module_of(x)
    if kind in PLAIN_TYPES or kind is np.ndarray or isinstance(x, (np.generic, np.dtype, type)):
        return False
    return is_extensions(kind) or is_pandas_object(x) or is_scipys(kind) or is_inside(kind)


def is_source(x: Any) -> bool:
    """Whether this yields successive values, as an iterator or a queue does, to whoever takes one
    first."""
    kind: Any = type(x)
    if kind is types.GeneratorType or kind in ITERATORS:
        return True
    name = f"{kind.__module__}.{kind.__name__}"
    return name.startswith("itertools.") or name in _QUEUES


_QUEUES = ("queue.Queue", "queue.LifoQueue", "queue.PriorityQueue", "_queue.SimpleQueue")


def shared_in(x: Any) -> list[Any]:
    """The containers in a value, or the value itself, that are referenced from elsewhere, besides
    the caller's variable."""
    own, *inner = _held(x)
    alone, inside = _ALONE
    rows = [
        (x, own > alone),
        *[(y, n > inside) for y, n in zip(inspection.values(x), inner, strict=True)],
    ]
    return [y for y, held in rows if held and type(y) in CONTAINERS and type(y) is not tuple]


def _held(x: Any) -> list[int]:
    """The reference counts of a container, and of each of its values."""
    return [sys.getrefcount(x), *[sys.getrefcount(y) for y in inspection.values(x)]]


def _alone() -> list[int]:
    """The same for a container without other references."""
    x: list[Any] = [[]]
    return (lambda x: _held(x))(x)  # called in the way that `shared_in` does


_ALONE = _alone()


def stays(x: Any) -> bool:
    """Whether this is a package's class, a module, or a function in C."""
    if isinstance(x, types.ModuleType) or type(x) in (np.ufunc, DISPATCHER):
        return True
    if type(x) is types.BuiltinFunctionType:
        return x.__self__ is None or isinstance(x.__self__, types.ModuleType)
    return isinstance(x, type) and is_inside(x) and module_of(x) != ""


def kind_of(x: Any) -> Any:
    """An object's kind, for comparisons: its class; for a generated function its code, which is
    equal each time."""
    kind: Any = type(x)
    if kind is types.FunctionType:
        return x.__code__
    if isinstance(x, type):
        return kind, x.__module__, x.__qualname__
    return kind if module_of(kind) else (kind.__module__, kind.__qualname__)


def copied(x: Any, each: Any = None) -> Any:
    """A copy of arguments or results, with parts copied by `each`."""
    kind, each = type(x), each or copied
    if kind is np.ndarray and not x.dtype.hasobject:
        return x.copy(order="K")
    if kind in (tuple, list):
        return kind(map(each, x))
    if kind is dict:
        return {key: each(value) for key, value in x.items()}
    if kind is slice:
        return slice(each(x.start), each(x.stop), each(x.step))
    is_scalar = isinstance(x, (np.generic, np.dtype)) and not isinstance(x, np.void)
    is_type = isinstance(x, type) and (x in TYPES or issubclass(x, np.generic))
    is_fixed = kind is range or kind in PLAIN_TYPES or is_path(x)
    if is_fixed or is_scalar or is_type or isinstance(x, Leaf):
        return x
    raise Incomparable


def varies(x: Any) -> bool:
    """Whether this can be an input of a tape."""
    if isinstance(x, (np.ndarray, np.generic)):
        return x.dtype.kind in ("fciu" if type(x) is np.ndarray else "fc")
    return type(x) is float or (type(x) is int and -(2**63) < x < 2**63)


def kinds_of(x: Any) -> Any:
    """A result with numbers and arrays replaced by their type, shape, dtype and strides."""
    if varies(x):
        return type(x), getattr(x, "shape", ()), getattr(x, "dtype", None), np.asarray(x).strides
    if type(x) in (tuple, list):
        return [type(x), *map(kinds_of, x)]
    return {k: kinds_of(v) for k, v in x.items()} if type(x) is dict else x


def holds_made(x: Any) -> bool:
    """Whether an object that a call has returned is among the arguments."""
    if isinstance(x, dict):
        return any(map(holds_made, x.values()))
    return isinstance(x, (Made, Bound)) or (
        isinstance(x, (tuple, list)) and any(map(holds_made, x))
    )


def contents_of(x: Any) -> Any:
    """A copy of the arrays and plain values among the arguments. Objects are replaced by None."""
    if is_object(x) or stays(x) or is_source(x) or type(x) is types.FunctionType:
        return None
    return copied(x, contents_of)


def write_back(found: Any, x: Any) -> None:
    """Copy the changes that a function has made to its arguments into these arguments."""
    if isinstance(x, np.ndarray):
        if found is not None and not same(found, x):
            x[...] = found
    elif type(x) in (tuple, list):
        for part, own in zip(found, x, strict=True):
            write_back(part, own)
    elif type(x) is dict:
        for key, own in x.items():
            write_back(found[key], own)
