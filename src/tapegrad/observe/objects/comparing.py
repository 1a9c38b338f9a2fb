"""How guards compare what they find."""

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
from tapegrad.observe.objects.harmless import (
    DISPATCHER,
    HEAP_TYPE,
    PLAIN_TYPES,
    is_inert,
    is_users_file,
)
from tapegrad.observe.objects.plainly import own_names
from tapegrad.observe.objects.settings import errors_of, keeps, settings

_EQUAL = (range, datetime.date, datetime.datetime, datetime.time, datetime.timedelta)
_EQUAL_TOO = {
    "decimal": "Decimal",
    "fractions": "Fraction",
    "optree": "PyTreeSpec",
}  # if loaded, as for all who have one


def is_equal(x: Any) -> bool:
    """Whether an object never changes, and equal ones are the same to whoever reads them."""
    found = [getattr(sys.modules.get(m), name, ()) for m, name in _EQUAL_TOO.items()]
    if isinstance(x, slice):
        return all(type(part) in PLAIN_TYPES for part in (x.start, x.stop, x.step))
    if isinstance(x, np.dtype):
        return x.names is None  # the names of fields can be set
    return type(x) in (*_EQUAL, *found)


def has_attributes(x: np.ndarray) -> bool:
    """Whether an array is more than its numbers: a masked one has a mask. Those of a file say
    where these are."""
    return bool(own_names(x)) and not isinstance(x, np.memmap)


def has_few(x: np.ndarray) -> bool:
    """Whether an array is one of objects, which are so few that they are compared one by one."""
    return x.dtype == object and x.size <= _FEW


def may_be_another(x: Any) -> bool:
    """Whether an object may stand in for another one: no function, class or array."""
    others = (type, types.FunctionType, types.ModuleType, types.MethodType, np.ndarray, np.ufunc)
    if isinstance(x, (*others, types.BuiltinFunctionType)):
        return False
    return is_watched(x) or not is_inert(type(x))


def lasts(x: Any) -> bool:
    """Whether it does no harm to hold an object."""
    if type(x) is type:
        return not x.__flags__ & HEAP_TYPE
    return type(x) in (DISPATCHER, types.BuiltinFunctionType)


def is_made_anew(x: Any) -> bool:
    """Whether a function was made by another one of the user's program, which makes such a function
    at each call. What it reads from its cells tells them apart: of other functions that isn't all
    seen."""
    if type(x) is not types.FunctionType or "<locals>" not in x.__code__.co_qualname:
        return False
    return is_users_file(x.__code__.co_filename)


def are_apart(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether some objects differ from each other, and from all others."""
    found = set(map(id, some))
    return len(found) == len(some) and found.isdisjoint(map(id, others))


def same_bytes(x: np.ndarray, content: bytes) -> bool:
    """Whether an array holds these bytes, in row-major order."""
    if x.nbytes < _LARGE or x.nbytes % 8 or not x.flags.c_contiguous:
        return np.ndarray.tobytes(x) == content
    words = x.reshape(-1).view(np.uint64)  # compared without a copy
    return len(content) == x.nbytes and bool((words == np.frombuffer(content, np.uint64)).all())


def shares_none(args: Any, kwargs: Any, x: np.ndarray) -> bool:
    """Whether no array among arguments lies in the memory of another one."""
    leaves = flatten((args, kwargs or {}))[0]
    return not any(isinstance(y, np.ndarray) and np.shares_memory(x, y) for y in leaves)


def same_value(x: Any, known: Any) -> bool:
    """Whether nobody can tell two values apart that never change."""
    return x is known or (
        type(x) is type(known)
        and x == known
        and repr(x) == repr(known)
        and getattr(x, "metadata", None) == getattr(known, "metadata", None)
        and getattr(x, "fold", 0) == getattr(known, "fold", 0)
    )


def is_same(a: Any, b: Any) -> bool:
    """Whether what is found in a place is what was there."""
    if a is b or type(a) is not type(b):
        return a is b
    if isinstance(a, tuple):  # entries may compare themselves in ways of their own
        return len(a) == len(b) and all(map(is_same, tuple.__iter__(a), tuple.__iter__(b)))
    if isinstance(a, np.dtype):
        return bool(a == b)
    return (type(a) in PLAIN_TYPES or isinstance(a, np.generic)) and repr(a) == repr(b)


def same_elements(found: Iterable[Any], known: list[Any]) -> bool:
    """Whether keys, or the elements of a set, are these, in this order."""
    here = list(found)
    return len(here) == len(known) and all(
        a is b or (type(b) in PLAIN_TYPES and same_value(a, b))
        for a, b in zip(here, known, strict=True)
    )


def same_class(kind: type, record: ClassRecord) -> bool:
    """Whether a class still has the bases that it had, and these and itself the same names."""
    bases, names = record
    now = kind.__mro__
    return (
        len(now) == len(bases)
        and all(b() is cls for b, cls in zip(bases, now, strict=True))
        and all([*vars(now[k])] == held for k, held in names.items())
    )


ClassRecord = tuple[list["weakref.ref[type]"], dict[int, list[str]]]


def is_empty(cell: types.CellType) -> bool:
    """Whether the variable of a closure isn't bound."""
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def is_decimal(kind: type) -> bool:
    """Whether numbers of a class are Python's decimal ones."""
    return kind is getattr(sys.modules.get("decimal"), "Decimal", None)


ALWAYS_SAME = (types.ModuleType, types.CodeType, np.ufunc)
# Tuples that never change: of classes, and of a code's names, which Python makes at each look-up.
FIXED_TUPLES = ("__mro__", ".co_varnames", ".co_freevars", ".co_cellvars")
BOUND = (types.BuiltinMethodType, types.MethodWrapperType)
_LARGE = 1 << 16  # bytes
_FEW = 100

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
