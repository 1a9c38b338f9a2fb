"""Instances that are trees, besides Python's containers: dataclasses, subclasses of named tuples,
and classes declared to be trees.

A tree by *fields* has attributes as its branches. Its other attributes are *notes*: they aren't
traced or differentiated, and stay with the instance. A tree by *functions* is flattened and
unflattened by functions of its class's author; whatever these return besides the branches are notes
too.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.statics import exact_key, static_key
from tapegrad.core.values import Value
from tapegrad.errors import ArgumentError

_ABSENT: Any = object()
_SLOT = types.MemberDescriptorType


@dataclass(frozen=True)
class Fields:
    """A tree by fields: `names` are the attributes that are branches.

    A field in `may` is a note if its value is an integer or a string. If `wanted`, every field must
    be present. Fields in `static` are notes, in subclasses too.
    """

    names: tuple[str, ...]
    may: Collection[str] = ()
    wanted: bool = False
    static: tuple[str, ...] = ()


@dataclass(frozen=True)
class Functions:
    """A tree by functions.

    `flatten` returns the branches of an instance, and the rest. `unflatten` makes an instance of
    the rest and branches. Instances whose rests have the same `key` differ in their branches only.
    `names` returns the names of the branches, given the rest; without it they are numbered.
    `stand_in` maps an instance of a library's class to the object that is flattened instead. If
    `called`, generated code may call the functions, with any kind of branches.
    """

    flatten: Callable[[Any], tuple[Sequence[Any], Any]]
    unflatten: Callable[[Any, Sequence[Any]], Any]
    key: Callable[[type, Any], Any]
    names: Callable[[Any], Sequence[str]] | None = None
    stand_in: Callable[[Any], Any] | None = None
    called: bool = False


# Common types that aren't such instances
PLAIN = {np.ndarray, np.float64, np.float32, float, int, bool, str, type(None), dict, list, tuple}
_declared: dict[type, Fields | Functions] = {}
_slots: dict[type, list[str]] = {}
_adopted: dict[str, Callable[[type], Functions | None]] = {}  # library -> function of classes


class Named(str):
    """The name of a branch, with its number."""

    number: int

    @staticmethod
    def of(name: str, number: int) -> Named:
        made = Named(name)
        made.number = number
        return made


def adopt(library: str, how: Callable[[type], Functions | None]) -> None:
    """Register `how`, which says how a library's classes are trees."""
    _adopted[library] = how


def declare(cls: type, how: Fields | Functions) -> None:
    """Register instances of exactly this class as trees."""
    if isinstance(how, Fields):
        _check_storage(cls, how)
    _declared[cls] = how


def is_declared(cls: type) -> bool:
    """Whether a class is registered as a tree."""
    return cls in _declared


def tree_of(cls: Any) -> Fields | Functions | None:
    """The way in which instances of a class are trees, or None."""
    known = _declared.get(cls)
    if known is None:
        if dataclasses.is_dataclass(cls):
            known = fields_of(cls)
        elif _is_named_tuple_of_ones_own(cls):
            known = Fields(cls._fields)
        else:
            how = _adopted.get(cls.__module__.partition(".")[0])
            known = None if how is None else how(cls)
            if known is None:
                return None
        declare(cls, known)
    return known


def is_instance(x: Any) -> bool:
    """Whether this instance is a tree."""
    kind = type(x)
    return kind not in PLAIN and tree_of(kind) is not None


def fields_of(cls: Any, static: Sequence[str] = ()) -> Fields:
    """A dataclass or attrs class as a tree by its fields, without those that are static, here or in
    a base class."""
    above = [how for how in map(_declared.get, cls.__mro__[1:]) if isinstance(how, Fields)]
    fixed = dict.fromkeys([*static, *[name for how in above for name in how.static]])
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else cls.__attrs_attrs__
    branches = [f for f in fields if f.name not in fixed]
    may = [f.name for f in branches if not f.init]
    return Fields(tuple([f.name for f in branches]), frozenset(may), static=tuple(fixed))


def _is_named_tuple_of_ones_own(cls: Any) -> bool:
    """Whether a class derives from a named tuple's class, and so may hold or do more."""
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and cls.__bases__ != (tuple,)


def _check_storage(cls: type, how: Fields) -> None:
    """Raise an ArgumentError if a class controls what is stored in one of its fields."""
    for name in () if issubclass(cls, tuple) else how.names:
        found = inspect.getattr_static(cls, name, None)
        if hasattr(type(found), "__set__") and type(found) is not _SLOT:
            raise ArgumentError(
                f"the field {name!r} of {cls.__name__} is a {type(found).__name__} that decides "
                "what is stored: a traced value can't be put in its place. Pass the field's value"
            )


# ---- taking apart, and putting together


class _Note:
    """A value that an instance keeps besides its branches. Two are equal if no function can tell
    them apart, or if they are the same object, which is watched."""

    def __init__(self, name: str, value: Any, key: Any = None) -> None:
        self.name, self.value = name, value
        self.key = name, static_key(value) if key is None else key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Note) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"{self.name}={self.value!r}" if self.name else repr(self.value)


def take_apart(x: Any) -> tuple[list[Any], Any, Sequence[Any]]:
    """The branches of an instance, the data needed to put it together again, and the name or number
    of each branch."""
    how = _declared[type(x)]
    if isinstance(how, Functions):
        branches, rest = _parts(x, how)
        entries: Sequence[Any] = range(len(branches))
        if how.names is not None:
            entries = [Named.of(name, k) for k, name in enumerate(how.names(rest))]
        return branches, _Note("", rest, how.key(type(x), rest)), entries
    noted = notes_of(x)
    notes = tuple(_Note(*note) for note in noted.items())
    if isinstance(x, tuple):
        return list(tuple.__iter__(x)), (None, notes), how.names
    values = {name: _held(x, name) for name in how.names if name not in noted}
    names = tuple(name for name, value in values.items() if value is not _ABSENT)
    if how.wanted and len(names) < len(how.names):
        raise ArgumentError(
            f"a {type(x).__name__} has no attribute {min(set(how.names) - set(names))!r}, which "
            "was registered as one of its fields"
        )
    return [values[name] for name in names], (names, notes), names


def put_together(cls: type, data: Any, branches: Sequence[Any]) -> Any:
    """An instance of a class, made of branches and data from `take_apart`.

    A tree by fields is made without calling `__init__` or `__new__`, as by `copy.copy`: they have
    already processed the fields and whatever else the instance holds.
    """
    how = _declared[cls]
    if isinstance(how, Functions):
        return how.unflatten(data.value, list(branches))
    names, notes = data
    x: Any = object.__new__(cls) if names is not None else tuple.__new__(cls, branches)
    for name, value in () if names is None else zip(names, branches, strict=True):
        object.__setattr__(x, name, value)
    for note in notes:
        object.__setattr__(x, note.name, note.value)
    return x


def _parts(x: Any, how: Functions) -> tuple[list[Any], Any]:
    """The branches and the rest that the author's `flatten` returns."""
    found: Any = how.flatten(x)
    if type(found) is not tuple or len(found) != 2 or not isinstance(found[0], (list, tuple)):
        raise ArgumentError(
            f"the function by which a {type(x).__name__} is taken apart returns a pair: a list of "
            "its branches, and what else it takes to put it together"
        )
    return list(found[0]), found[1]


def rest_key(cls: type, rest: Any) -> Any:
    """The key by which rests are compared: by value if immutable, by identity otherwise,
    elementwise for tuples."""
    key = exact_key(rest)
    if key is not None:
        return key
    if type(rest) is tuple:
        return tuple, tuple([rest_key(cls, part) for part in rest])
    if isinstance(rest, _CHANGING):
        raise ArgumentError(
            f"what a {cls.__name__} keeps besides its branches holds a {type(rest).__name__}, "
            "which can change without notice. Let the function that takes it apart return tuples "
            "of numbers, strings and the like, and arrays among the branches"
        )
    return static_key(rest)


_CHANGING = (list, dict, set, bytearray, np.ndarray, Value)


# ---- looking at instances


def notes_of(x: Any) -> dict[str, Any]:
    """The attributes of a tree by fields that aren't branches. They aren't traced or
    differentiated, and stay with the instance.

    They are set by `__init__`, `__post_init__`, a cached property or anyone else; or they are
    static fields, or fields with `init=False` that hold a count or a name.
    """
    cls = type(x)
    how = tree_of(cls)
    if not isinstance(how, Fields):
        return {}
    slots = _slots.get(cls)
    if slots is None:
        made = [vars(c) for c in cls.__mro__ if "__slots__" in vars(c)]
        slots = _slots[cls] = [n for names in made for n, v in names.items() if type(v) is _SLOT]
    own = {**_held(x, "__dict__", {}), **{name: _held(x, name) for name in slots}}
    found = {n: v for n, v in own.items() if n not in how.names and v is not _ABSENT}
    return found | {n: _held(x, n) for n in how.names if n in how.may and _is_count(_held(x, n))}


def noted(x: Any) -> list[tuple[str, str, Any]]:
    """The notes of an instance as (name, expression, value). In the expression {} stands for the
    instance."""
    how = tree_of(type(x))
    if isinstance(how, Functions):
        return list(_leaves_of_rest("rest_of({})", _parts(x, how)[1]))
    return [(name, f"{{}}.{name}", value) for name, value in notes_of(x).items()]


def _leaves_of_rest(text: str, rest: Any) -> Iterator[tuple[str, str, Any]]:
    if type(rest) is tuple:
        for k, part in enumerate(rest):
            yield from _leaves_of_rest(f"{text}[{k}]", part)
    else:
        yield "what an argument keeps", text, rest


def branches(x: Any) -> list[tuple[str, Any]]:
    """The branches of an instance as (expression, value). In the expression {} stands for the
    instance."""
    how = tree_of(type(x))
    if isinstance(how, Functions):
        found = enumerate(_parts(x, how)[0])
        return [(f"branch_of({{}}, {k})", value) for k, value in found]
    names = how.names if how is not None else ()
    return [(f"{{}}.{n}", _held(x, n)) for n in names if _held(x, n) is not _ABSENT]


def branch_of(x: Any, k: int) -> Any:
    """Branch number `k` of a tree by functions."""
    return _parts(x, _declared[type(x)])[0][k]  # type: ignore[arg-type]


def rest_of(x: Any) -> Any:
    """The rest of a tree by functions."""
    return _parts(x, _declared[type(x)])[1]  # type: ignore[arg-type]


def _held(x: Any, name: str, otherwise: Any = _ABSENT) -> Any:
    """The attribute that an object or its class holds, bypassing the class's own attribute
    lookup."""
    try:
        return object.__getattribute__(x, name)
    except AttributeError:
        return otherwise


def _is_count(x: Any) -> bool:
    return isinstance(x, (int, str)) and not isinstance(x, Value)
