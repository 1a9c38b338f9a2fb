"""Arguments as trees: nested dicts, lists, tuples, named tuples and dataclasses of leaves.

optree does the work. Dataclasses are registered with it when they are first seen, under a
namespace of tapegrad's own, so nobody else's trees change. It is imported with the first tree.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import warnings
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from tapegrad.core.locks import new_lock
from tapegrad.core.statics import static_key
from tapegrad.core.values import Value
from tapegrad.errors import ArgumentError

NAMESPACE = "tapegrad"
_registered: set[type] = set()
_known: weakref.WeakKeyDictionary[type, tuple[dict[str, bool], list[str]]] = (
    weakref.WeakKeyDictionary()
)
_lock = new_lock()


class _Note:
    """What an object carries along besides its branches: equal where no function can tell two
    apart, or for the same object, which is watched."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value
        self.key = name, static_key(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Note) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def notes_of(x: Any) -> dict[str, Any]:
    """The attributes of a dataclass's or a named tuple's instance that are no branches: they are
    neither traced nor differentiated, and go where the instance goes.

    They are what `__init__`, `__post_init__`, a cached property or anyone has set besides the
    fields, and fields with `init=False` that count or name something.
    """
    if not (is_dataclass(x) or _is_named_tuple_of_ones_own(x)):
        return {}
    fields, slots = _parts(type(x))
    own = {**_held(x, "__dict__", {}), **{name: _held(x, name) for name in slots}}
    found = {n: v for n, v in own.items() if n not in fields and v is not _ABSENT}
    return found | {n: _held(x, n) for n, may in fields.items() if may and _is_count(_held(x, n))}


_ABSENT: Any = object()


def _held(x: Any, name: str, otherwise: Any = _ABSENT) -> Any:
    """What an object or its class holds under a name, past what its class does with look-ups."""
    try:
        return object.__getattribute__(x, name)
    except AttributeError:
        return otherwise


def _parts(cls: Any) -> tuple[dict[str, bool], list[str]]:
    """The fields of a class, each with whether it may hold a note, and its instances' slots."""
    known = _known.get(cls)
    if known is None:
        if dataclasses.is_dataclass(cls):
            fields = {f.name: not f.init for f in dataclasses.fields(cls)}
        else:
            fields = dict.fromkeys(cls._fields, False)
        made = [vars(c) for c in cls.__mro__ if "__slots__" in vars(c)]
        slots = [n for names in made for n, x in names.items() if type(x) is _SLOT]
        known = _known[cls] = fields, slots
    return known


_SLOT = types.MemberDescriptorType


def _is_count(x: Any) -> bool:
    return isinstance(x, (int, str)) and not isinstance(x, Value)


def _register(cls: type) -> None:
    """Make a dataclass or a class of named tuples a kind of tree: its fields are the branches.

    An instance is put together without calling `__init__` or `__new__`, as `copy.copy` does it:
    they have done their work on the fields already, and on what else the instance holds.
    """
    named, (fields, _) = issubclass(cls, tuple), _parts(cls)
    for name in () if named else fields:
        found = inspect.getattr_static(cls, name, None)
        if hasattr(type(found), "__set__") and type(found) is not _SLOT:
            raise ArgumentError(
                f"the field {name!r} of {cls.__name__} is a {type(found).__name__} that decides "
                "what is stored: a traced value can't be put in its place. Pass the field's value"
            )

    def flatten(x: Any) -> tuple[list[Any], Any, tuple[str, ...]]:
        noted = notes_of(x)
        notes = tuple(_Note(*note) for note in noted.items())
        if named:
            return list(tuple.__iter__(x)), (None, notes), x._fields
        values = {n: _held(x, n) for n in fields if n not in noted}
        names = tuple(n for n, value in values.items() if value is not _ABSENT)
        return [values[n] for n in names], (names, notes), names

    def unflatten(data: Any, children: Any) -> Any:
        names, notes = data
        x: Any = tuple.__new__(cls, children) if named else object.__new__(cls)
        for name, value in () if named else zip(names, children, strict=True):
            object.__setattr__(x, name, value)
        for note in notes:
            object.__setattr__(x, note.name, note.value)
        return x

    import optree

    with _lock:
        if cls not in _registered:
            with warnings.catch_warnings():  # optree knows named tuples, and would make new ones
                warnings.simplefilter("ignore")
                optree.register_pytree_node(
                    cls,
                    flatten,
                    unflatten,
                    path_entry_type=optree.GetAttrEntry,
                    namespace=NAMESPACE,
                )
            _registered.add(cls)


class _Unregistered(Exception):
    pass


class _Reordered(Exception):
    pass


def _check(x: Any) -> bool:
    """The `is_leaf` hook of optree: nothing is made a leaf, unknown dataclasses are noticed."""
    cls = type(x)
    if cls not in _registered and (is_dataclass(x) or _is_named_tuple_of_ones_own(x)):
        _register(cls)
        raise _Unregistered
    if cls is OrderedDict and vars(x):
        raise ArgumentError(
            f"an OrderedDict has attributes of its own ({', '.join(vars(x))}), which a function "
            "that is traced wouldn't find. Pass them by themselves"
        )
    if cls is OrderedDict and _is_reordered(x):
        raise _Reordered
    return False


def is_dataclass(x: Any) -> bool:
    """Whether this is an instance of a dataclass."""
    return dataclasses.is_dataclass(type(x))


def _is_named_tuple_of_ones_own(x: Any) -> bool:
    """Whether the class of a named tuple was derived from one, and so may hold or do more."""
    cls = type(x)
    return isinstance(x, tuple) and hasattr(cls, "_fields") and cls.__bases__ != (tuple,)


def _is_reordered(x: Any) -> bool:
    """Whether `move_to_end` was used: optree goes by the order below, in which keys were added."""
    return type(x) is OrderedDict and list(x) != list(dict.keys(x))


def _in_order(tree: Any) -> Any:
    """The tree with copies of its reordered dicts, which optree takes apart as they look."""
    import optree

    def copied(x: Any) -> Any:
        return _in_order(OrderedDict(x)) if _is_reordered(x) else x

    return optree.tree_map(copied, tree, is_leaf=_is_reordered, namespace=NAMESPACE)


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of a tree, and its structure."""
    return _walked("tree_flatten", tree)


def _walked(how: str, tree: Any) -> Any:
    """What one of optree's functions makes of a tree."""
    import optree

    while True:
        try:
            return getattr(optree, how)(tree, is_leaf=_check, namespace=NAMESPACE)
        except _Unregistered:
            continue
        except _Reordered:
            tree = _in_order(tree)


def flatten_with_paths(tree: Any) -> tuple[list[tuple[Any, ...]], list[Any], Any]:
    """The paths of the leaves (keys, positions, field names), the leaves, and the structure."""
    return _walked("tree_flatten_with_path", tree)


def accessors(tree: Any) -> list[Any]:
    """How each leaf is reached: `accessor.codify("tree")` is Python for it."""
    return list(_walked("tree_flatten_with_accessor", tree)[0])


def unflatten(structure: Any, leaves: Any) -> Any:
    """The tree of this structure with these leaves."""
    import optree

    return optree.tree_unflatten(structure, leaves)


# A traced value passes for what it stands for (`Tracer.__class__`), so whoever asks for plain
# numbers and arrays excludes it.


def is_number(x: Any) -> bool:
    """Whether a leaf is traced as a scalar: a Python int or float, not a bool or an enum's."""
    others = (bool, np.generic, enum.Enum, Value)
    return isinstance(x, (int, float)) and not isinstance(x, others)


def is_array(x: Any) -> bool:
    """Whether this is a plain array."""
    return isinstance(x, np.ndarray) and not isinstance(x, Value)


def is_traced(x: Any) -> bool:
    """Whether a leaf is traced: an array, a NumPy scalar, a Python number, or a traced value of an
    outer function. Others are static."""
    if isinstance(x, (np.ndarray, np.generic)):
        return not isinstance(x, np.character)  # a string
    return is_number(x) or isinstance(x, Value)


def array_leaves(tree: Any) -> list[Any]:
    """The leaves that are traced, in order."""
    return [x for x in flatten(tree)[0] if is_traced(x)]


def notes_in(tree: Any) -> Iterator[tuple[Any, str, Any]]:
    """All notes in a tree: the instance, the name of the attribute, its value."""
    if isinstance(tree, dict):
        children: Any = list(tree.values())
    elif isinstance(tree, (list, tuple, deque)):
        children = list(tree)
    elif is_dataclass(tree):
        children = [getattr(tree, n) for n in _parts(type(tree))[0] if hasattr(tree, n)]
    else:
        return
    for name, value in notes_of(tree).items():
        yield tree, name, value
    for child in children:
        yield from notes_in(child)


def path_name(path: tuple[Any, ...]) -> str:
    """A name for the leaf at this path: `params["W1"]` is `params_W1`."""
    text = "_".join(str(p) for p in path)
    clean = "".join(c if c.isalnum() else "_" for c in text)
    return clean if clean and not clean[0].isdigit() else f"x{clean}"
