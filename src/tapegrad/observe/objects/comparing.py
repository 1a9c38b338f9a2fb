"""Comparisons that the generated guards make."""

from __future__ import annotations

import abc
import datetime
import inspect
import marshal
import sys
import threading
import types
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.instances import branch_of, rest_of
from tapegrad.core.statics import is_watched
from tapegrad.core.trees import flatten
from tapegrad.observe.objects.inspection import own_names
from tapegrad.observe.objects.purity import (
    DISPATCHER,
    HEAP_TYPE,
    PLAIN_TYPES,
    is_inert,
    is_users_file,
)
from tapegrad.observe.objects.settings import errors_of, keeps, settings

_EQUAL = (range, datetime.date, datetime.datetime, datetime.time, datetime.timedelta)
_EQUAL_TOO = {
    "decimal": "Decimal",
    "fractions": "Fraction",
    "optree": "PyTreeSpec",
}  # classes that are used only if their modules are loaded


def is_equal(x: Any) -> bool:
    """Whether an object is immutable, and equal objects are interchangeable."""
    found = [getattr(sys.modules.get(m), name, ()) for m, name in _EQUAL_TOO.items()]
    if isinstance(x, slice):
        return all(type(part) in PLAIN_TYPES for part in (x.start, x.stop, x.step))
    if isinstance(x, np.dtype):
        return x.names is None  # field names can be set
    return type(x) in (*_EQUAL, *found)


def has_attributes(x: np.ndarray) -> bool:
    """Whether an array has more than its numbers, as a masked array has a mask. The attributes of a
    `memmap` only locate the numbers."""
    return bool(own_names(x)) and not isinstance(x, np.memmap)


def has_few(x: np.ndarray) -> bool:
    """Whether an array is an object array small enough to be compared element by element."""
    return x.dtype == object and x.size <= _MAX_COMPARED


def may_be_another(x: Any) -> bool:
    """Whether an object may be replaced by another one with the same parts: no function, class or
    array."""
    others = (type, types.FunctionType, types.ModuleType, types.MethodType, np.ndarray, np.ufunc)
    if isinstance(x, (*others, types.BuiltinFunctionType)):
        return False
    return is_watched(x) or not is_inert(type(x))


def lasts(x: Any) -> bool:
    """Whether holding a reference to `x` keeps nothing else alive: it lives as long as the
    process."""
    if type(x) is type:
        return not x.__flags__ & HEAP_TYPE
    return type(x) in (DISPATCHER, types.BuiltinFunctionType)


def is_made_anew(x: Any) -> bool:
    """Whether a function was created by another one of the user's program, which creates one at
    each call. Such functions are told apart by what they read from their cells; of other functions
    not all reads are seen."""
    if type(x) is not types.FunctionType or "<locals>" not in x.__code__.co_qualname:
        return False
    return is_users_file(x.__code__.co_filename)


def are_apart(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether the objects in `some` differ from each other and from all of `others`."""
    found = set(map(id, some))
    return len(found) == len(some) and found.isdisjoint(map(id, others))


def same_bytes(x: np.ndarray, content: bytes) -> bool:
    """Whether an array holds these bytes, in row-major order."""
    if x.nbytes < _LARGE_BYTES or x.nbytes % 8 or not x.flags.c_contiguous:
        return np.ndarray.tobytes(x) == content
    words = x.reshape(-1).view(np.uint64)  # compared without a copy
    return len(content) == x.nbytes and bool((words == np.frombuffer(content, np.uint64)).all())


def shares_none(args: Any, kwargs: Any, x: np.ndarray) -> bool:
    """Whether no array among the arguments shares memory with `x`."""
    leaves = flatten((args, kwargs or {}))[0]
    return not any(isinstance(y, np.ndarray) and np.shares_memory(x, y) for y in leaves)


def same_value(x: Any, known: Any) -> bool:
    """Whether two immutable values are interchangeable."""
    return x is known or (
        type(x) is type(known)
        and x == known
        and repr(x) == repr(known)
        and getattr(x, "metadata", None) == getattr(known, "metadata", None)
        and getattr(x, "fold", 0) == getattr(known, "fold", 0)
    )


def is_same(a: Any, b: Any) -> bool:
    """Whether the value found in a place is the recorded one."""
    if a is b or type(a) is not type(b):
        return a is b
    if isinstance(a, tuple):  # the elements of a tuple may define `__eq__`
        return len(a) == len(b) and all(map(is_same, tuple.__iter__(a), tuple.__iter__(b)))
    if isinstance(a, np.dtype):
        return bool(a == b)
    return (type(a) in PLAIN_TYPES or isinstance(a, np.generic)) and repr(a) == repr(b)


def same_elements(found: Iterable[Any], known: list[Any]) -> bool:
    """Whether keys, or the elements of a set, equal `known`, in this order."""
    here = list(found)
    return len(here) == len(known) and all(
        a is b or (type(b) in PLAIN_TYPES and same_value(a, b))
        for a, b in zip(here, known, strict=True)
    )


def same_class(kind: type, record: ClassRecord) -> bool:
    """Whether a class still has the recorded bases, and each of them the recorded names."""
    bases, names = record
    now = kind.__mro__
    return (
        len(now) == len(bases)
        and all(b() is cls for b, cls in zip(bases, now, strict=True))
        and all([*vars(now[k])] == held for k, held in names.items())
    )


ClassRecord = tuple[list["weakref.ref[type]"], dict[int, list[str]]]


def is_empty(cell: types.CellType) -> bool:
    """Whether a closure's variable is unbound."""
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def is_decimal(kind: type) -> bool:
    """Whether a class is `decimal.Decimal`."""
    return kind is getattr(sys.modules.get("decimal"), "Decimal", None)


ALWAYS_SAME = (types.ModuleType, types.CodeType, np.ufunc)
# Tuples that never change: a class's bases, and a code's names, which Python builds at each read.
FIXED_TUPLES = ("__mro__", ".co_varnames", ".co_freevars", ".co_cellvars")
BOUND = (types.BuiltinMethodType, types.MethodWrapperType)
_LARGE_BYTES = 1 << 16  # bytes
_MAX_COMPARED = 100

HELPERS = {
    "plain_attribute": object.__getattribute__,
    "branch_of": branch_of,
    "rest_of": rest_of,
    "same_bytes": same_bytes,
    "are_apart": are_apart,
    "marshalled": marshal.dumps,
    "signbit": np.signbit,
    "is_empty": is_empty,
    "same_class": same_class,
    "same_value": same_value,
    "same_elements": same_elements,
    "names_of": dir,
    "same_contents": lambda x, known: known.are_in(x),
    "thread": threading.get_ident,
    "cache_token": abc.get_cache_token,
    "shares_none": shares_none,
    "static": inspect.getattr_static,
    "settings": settings,
    "errors_of": errors_of,
    "keeps": keeps,
}
