"""Arguments as trees: nested dicts, lists, tuples, named tuples and dataclasses of leaves.

optree does the work. Other trees (see `instances`) are registered with it when they are first seen,
under tapegrad's own namespace, so that nobody else's trees change. It is imported with the first
tree.
"""

from __future__ import annotations

import enum
import functools
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.core.ending import uncut
from tapegrad.core.instances import (
    PLAIN,
    Functions,
    Named,
    branches,
    is_instance,
    noted,
    put_together,
    take_apart,
    tree_of,
)
from tapegrad.core.locks import new_lock
from tapegrad.core.values import Value
from tapegrad.errors import ArgumentError

NAMESPACE = "tapegrad"
_registered: set[type] = set()
_lock = new_lock()


def _register(cls: type) -> None:
    """Register a class with optree."""
    import optree

    class Entry(optree.PyTreeEntry):
        """The path entry for a branch of a tree by functions."""

        def codify(self, node: str = "*") -> str:
            return f"branch_of({node}, {getattr(self.entry, 'number', self.entry)})"

    with _lock:
        if cls not in _registered:
            entries = Entry if isinstance(tree_of(cls), Functions) else optree.GetAttrEntry
            with warnings.catch_warnings():  # optree warns about named tuples
                warnings.simplefilter("ignore")
                optree.register_pytree_node(
                    cls,
                    take_apart,
                    functools.partial(put_together, cls),
                    path_entry_type=entries,
                    namespace=NAMESPACE,
                )
            _registered.add(cls)


class _Unregistered(Exception):
    pass


class _Reordered(Exception):
    pass


class _Foreign(Exception):
    pass


def _check(x: Any) -> bool:
    """The `is_leaf` hook of optree. It makes nothing a leaf, but notices unregistered classes."""
    cls = type(x)
    if cls in PLAIN:
        return False
    if cls not in _registered and is_instance(x):
        if _stood_in(x) is not None:
            raise _Foreign
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


def _is_reordered(x: Any) -> bool:
    """Whether `move_to_end` was used. optree follows the underlying dict, in the order of
    insertion."""
    return type(x) is OrderedDict and list(x) != list(dict.keys(x))


def _in_order(tree: Any) -> Any:
    """The tree with reordered dicts replaced by copies whose order of insertion is the visible
    order."""
    import optree

    def copied(x: Any) -> Any:
        return _in_order(OrderedDict(x)) if _is_reordered(x) else x

    return optree.tree_map(copied, tree, is_leaf=_is_reordered, namespace=NAMESPACE)


def _stood_in(x: Any) -> Any:
    """The function that makes a stand-in for a library's object, or None."""
    how = tree_of(type(x))
    return how.stand_in if isinstance(how, Functions) else None


def _with_stand_ins(tree: Any) -> Any:
    """The tree with stand-ins in place of libraries' objects."""
    import optree

    def is_foreign(x: Any) -> bool:
        return _stood_in(x) is not None

    def replaced(x: Any) -> Any:
        made = _stood_in(x)
        return x if made is None else made(x)

    return optree.tree_map(replaced, tree, is_leaf=is_foreign, namespace=NAMESPACE)


@uncut
def flatten_up_to(structure: Any, tree: Any) -> list[Any]:
    """The parts of a tree at the leaves of `structure`."""
    return list(structure.flatten_up_to(_with_stand_ins(tree)))


def flatten_each(structure: Any, trees: Sequence[Any]) -> list[Any]:
    """The parts of several trees at the leaves of a tuple's structure. None stands for a tree of
    Nones."""
    own = structure.children()
    if len(own) != len(trees):
        return flatten_up_to(structure, tuple(trees))  # an error
    return [
        part
        for inner, tree in zip(own, trees, strict=True)
        for part in ([None] * inner.num_leaves if tree is None else flatten_up_to(inner, tree))
    ]


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of a tree, and its structure."""
    return _walked("tree_flatten", tree)


@uncut
def _walked(how: str, tree: Any) -> Any:
    """The result of one of optree's functions for a tree."""
    import optree

    while True:
        try:
            found = getattr(optree, how)(tree, is_leaf=_check, namespace=NAMESPACE)
            if found[-1].num_nodes > 1 or type(tree) is not tuple or not tree:
                return found
            _register_again()
        except _Unregistered:
            continue
        except _Reordered:
            tree = _in_order(tree)
        except _Foreign:
            tree = _with_stand_ins(tree)


def _register_again() -> None:
    """Register optree's builtin types under our namespace. When the program ends, optree clears its
    registry before functions run that were given to atexit before it was imported."""
    import optree

    with _lock:
        classes: Any = tuple, list, dict, OrderedDict, defaultdict, deque, type(None)
        for cls in classes:
            known: Any = optree.register_pytree_node.get(cls)
            optree.register_pytree_node(
                cls,
                known.flatten_func,
                known.unflatten_func,
                path_entry_type=known.path_entry_type,
                namespace=NAMESPACE,
            )
        _registered.clear()


def flatten_with_paths(tree: Any) -> tuple[list[tuple[Any, ...]], list[Any], Any]:
    """The paths of the leaves (keys, positions, field names), the leaves, and the structure."""
    return _walked("tree_flatten_with_path", tree)


def accessors(tree: Any) -> list[Any]:
    """The accessor of each leaf: `accessor.codify("tree")` is a Python expression for it."""
    return list(_walked("tree_flatten_with_accessor", tree)[0])


@uncut
def unflatten(structure: Any, leaves: Any) -> Any:
    """The tree of this structure with these leaves."""
    import optree

    return optree.tree_unflatten(structure, leaves)


def is_leaf(tree: Any) -> bool:
    """Whether this isn't flattened: neither a container nor an instance, nor None."""
    return bool(flatten(tree)[1].is_leaf())


@uncut
def open_once(tree: Any) -> tuple[list[Any], tuple[Any, ...], Any]:
    """The parts of a container or instance; their keys, positions or names; and the function that
    makes such a container of a list of parts."""
    import optree

    flatten(tree)  # registers new classes
    parts, rest, entries, made = optree.tree_flatten_one_level(tree, namespace=NAMESPACE)
    return list(parts), entries, functools.partial(made, rest)


# A traced value has the class of the value that it stands for (`Tracer.__class__`), so tests for
# plain numbers and arrays exclude it.


def is_number(x: Any) -> bool:
    """Whether a leaf is traced as a scalar: a Python int, float or complex, but no bool
    and no enum member."""
    others = (bool, np.generic, enum.Enum, Value)
    return isinstance(x, (int, float, complex)) and not isinstance(x, others)


def is_array(x: Any) -> bool:
    """Whether this is a plain array."""
    return isinstance(x, np.ndarray) and not isinstance(x, Value)


def is_of_texts(x: Any) -> bool:
    """Whether this is an array of strings."""
    return type(x) is np.ndarray and x.dtype.kind in "SU"


def is_traced(x: Any) -> bool:
    """Whether a leaf is traced: an array, a NumPy scalar, a Python number, or a traced value of an
    outer function. Others are static."""
    if isinstance(x, (np.ndarray, np.generic)):
        return not (isinstance(x, np.character) or is_of_texts(x))
    return is_number(x) or isinstance(x, Value)


@uncut
def mapped(function: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool]) -> Any:
    """The tree with a function applied to its leaves, and to parts for which `is_leaf` holds."""
    import optree

    flatten(tree)  # registers new classes
    return optree.tree_map(function, tree, is_leaf=is_leaf, namespace=NAMESPACE)


def array_leaves(tree: Any) -> list[Any]:
    """The leaves that are traced, in order."""
    return [x for x in flatten(tree)[0] if is_traced(x)]


def children(tree: Any) -> list[Any] | None:
    """The parts of a container or instance; None for other objects."""
    if isinstance(tree, dict):
        return list(tree.values())
    if isinstance(tree, (list, tuple, deque)):
        return list(tree)
    return [part for _, part in branches(tree)] if is_instance(tree) else None


def notes_in(tree: Any) -> Iterator[tuple[Any, str, Any]]:
    """All notes in a tree, as (instance, attribute name, value)."""
    parts = children(tree)
    if parts is None:
        return
    for name, _, value in noted(tree):
        yield tree, name, value
    for part in parts:
        yield from notes_in(part)


def takes_functions(structure: Any) -> bool:
    """Whether unflattening this structure calls a user's functions."""
    if structure.is_leaf():
        return False
    own = isinstance(tree_of(structure.type), Functions)
    return own or any(map(takes_functions, structure.children()))


def can_be_written(structure: Any) -> bool:
    """Whether generated code can unflatten this structure, which mustn't call a user's
    functions."""
    if structure.is_leaf():
        return True
    how = tree_of(structure.type)
    own = not isinstance(how, Functions) or how.called
    return own and all(map(can_be_written, structure.children()))


def is_whole(part: Any) -> bool:
    """Whether a part of a path is an unnamed entry for the whole object."""
    return isinstance(part, Named) and not part


def path_name(path: tuple[Any, ...]) -> str:
    """A name for the leaf at this path: `params["W1"]` is `params_W1`."""
    text = "_".join(str(p) for p in path if not is_whole(p))
    clean = "".join(c if c.isalnum() else "_" for c in text)
    return clean if clean and not clean[0].isdigit() else f"x{clean}"
