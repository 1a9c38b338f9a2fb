"""Arguments as trees: nested dicts, lists, tuples, named tuples and dataclasses of leaves.

optree does the work. Dataclasses are registered with it when they are first seen, under a
namespace of tapegrad's own, so nobody else's trees change. It is imported with the first tree.
"""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from tapegrad.primitives.base import Value
from tapegrad.statics import static_key

NAMESPACE = "tapegrad"
_registered: set[type] = set()
_lock = threading.Lock()


def _register(cls: type) -> None:
    """Make a dataclass a kind of tree: its fields are the branches.

    An instance is put together without calling `__init__`, as `copy.copy` does it: `__post_init__`
    has done its work on the fields already. What that counts and notes (fields with `init=False`
    that hold no array) is carried along.
    """
    fields = dataclasses.fields(cls)

    def flatten(x: Any) -> tuple[list[Any], Any, tuple[str, ...]]:
        given = [f for f in fields if hasattr(x, f.name)]
        notes = [f for f in given if not f.init and _is_note(getattr(x, f.name))]
        names = tuple(f.name for f in given if f not in notes)
        values = [getattr(x, f.name) for f in notes]
        noted = tuple((f.name, static_key(v), v) for f, v in zip(notes, values, strict=True))
        return [getattr(x, n) for n in names], (names, noted), names

    def unflatten(data: Any, children: Any) -> Any:
        names, noted = data
        x: Any = object.__new__(cls)
        values = [*zip(names, children, strict=True), *((name, v) for name, _, v in noted)]
        for name, value in values:
            object.__setattr__(x, name, value)
        return x

    import optree

    with _lock:
        if cls not in _registered:
            optree.register_pytree_node(
                cls,
                flatten,
                unflatten,
                path_entry_type=optree.GetAttrEntry,
                namespace=NAMESPACE,
            )
            _registered.add(cls)


def _is_note(x: Any) -> bool:
    return isinstance(x, (int, str)) and not isinstance(x, Value)


class _Unregistered(Exception):
    pass


class _Reordered(Exception):
    pass


def _check(x: Any) -> bool:
    """The `is_leaf` hook of optree: nothing is made a leaf, unknown dataclasses are noticed."""
    cls = type(x)
    if dataclasses.is_dataclass(cls) and cls not in _registered and not isinstance(x, type):
        _register(cls)
        raise _Unregistered
    if cls is OrderedDict and _is_reordered(x):
        raise _Reordered
    return False


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


def path_name(path: tuple[Any, ...]) -> str:
    """A name for the leaf at this path: `params["W1"]` is `params_W1`."""
    text = "_".join(str(p) for p in path)
    clean = "".join(c if c.isalnum() else "_" for c in text)
    return clean if clean and not clean[0].isdigit() else f"x{clean}"
