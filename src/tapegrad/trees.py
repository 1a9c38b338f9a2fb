"""Nested containers of arrays as one value: what the parameters of a model and their gradients are.

A *tree* is a dict, list, tuple, named tuple or dataclass of trees, or an instance of a class that
`register_tree` knows; everything else is a *leaf*, and None is a tree without leaves. optree takes
them apart, with what tapegrad knows of dataclasses and registered classes.

    params = {"w": np.zeros((3, 2)), "layers": [np.ones(4), np.ones(2)]}
    tree_map(np.shape, params)       -->  {"w": (3, 2), "layers": [(4,), (2,)]}
    tree_paths(params)               -->  [("w",), ("layers", 0), ("layers", 1)]
    vector, back = flatten(params)   -->  vector of 12 numbers; back(vector) is params again

The functions run on traced values as well: what is computed between them is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.core import trees as _trees
from tapegrad.core.arrays import computed_in
from tapegrad.core.values import dtype_called
from tapegrad.errors import ArgumentError

Path = tuple[Any, ...]

__all__ = [
    "cast",
    "deep_copy",
    "flatten",
    "nested_get",
    "nested_set",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_paths",
    "tree_unflatten",
]


def __dir__() -> list[str]:
    return __all__


def tree_flatten(tree: Any, *, paths: bool = False) -> tuple[Any, ...]:
    """Take a tree apart: `(leaves, structure)`, or `(paths, leaves, structure)` with `paths`.

    Leaves come in the order in which containers hold them, dicts in the order of their sorted keys.
    A path is the tuple of the keys, positions and names of fields that lead to a leaf.

        >>> tree_flatten({"b": 1.0, "a": (2.0, 3.0)}, paths=True)[:2]
        ([('a', 0), ('a', 1), ('b',)], [2.0, 3.0, 1.0])
    """
    if not paths:
        return _trees.flatten(tree)
    found, leaves, structure = _trees.flatten_with_paths(tree)
    return [tuple(path) for path in found], leaves, structure


def tree_unflatten(structure: Any, leaves: Sequence[Any]) -> Any:
    """The tree of a structure with these leaves: the inverse of `tree_flatten`.

    Raises
    ------
    ValueError : there are more or fewer leaves than the structure has.
    """
    return _trees.unflatten(structure, leaves)


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves of a tree."""
    return _trees.flatten(tree)[0]


def tree_paths(tree: Any) -> list[Path]:
    """The paths of a tree's leaves: keys, positions and names of fields, in the leaves' order."""
    return tree_flatten(tree, paths=True)[0]


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """The tree of `function(leaf, *others)`, where the others are what lies at the leaf's place.

        >>> tree_map(lambda p, g: p - 0.5 * g, {"w": 2.0}, {"w": 1.0})
        {'w': 1.5}

    Parameters
    ----------
    function : of as many values as there are trees.
    tree : the tree that says the structure.
    others : trees of the same structure, or with trees where it has leaves.

    Raises
    ------
    ArgumentError : another tree has another structure.
    """
    leaves, structure = _trees.flatten(tree)
    columns = [parts_at(structure, other) for other in others]
    return _trees.unflatten(
        structure, [function(*row) for row in zip(leaves, *columns, strict=True)]
    )


def parts_at(structure: Any, tree: Any) -> list[Any]:
    """The parts of a tree at the leaves of a structure."""
    if not structure.is_prefix(_trees.flatten(tree)[1]):
        found = tree_paths(tree)
        missing = next((path for path in structure.paths() if path not in found), None)
        said = f"nothing is at {missing} of it" if missing else f"its leaves are at {found}"
        raise ArgumentError(f"a tree has another structure: {said}")
    return _trees.flatten_up_to(structure, tree)


def flatten(tree: Any) -> tuple[np.ndarray, Callable[[Any], Any]]:
    """All numbers of a tree as one vector, and the function that makes the tree of such a vector.

        >>> vector, back = flatten({"b": 3.0, "a": np.array([[1.0, 2.0]])})
        >>> vector
        array([1., 2., 3.])
        >>> back(10 * vector)
        {'a': array([[10., 20.]]), 'b': np.float64(30.0)}

    It is what `scipy.optimize` and samplers want of nested parameters:
    `minimize(lambda v: loss(back(v)), vector)`.

    Parameters
    ----------
    tree : of arrays and numbers.

    Returns
    -------
    vector : float64[n], or of the dtype that NumPy finds for all leaves together.
    back : takes an array of n numbers. Its leaves have the shapes and dtypes of the tree's; of a
        traced vector they are parts, and differentiable.

    Raises
    ------
    ArgumentError : a leaf isn't numeric, or `back` is given another number of elements.
    """
    leaves, structure = _trees.flatten(tree)
    for leaf in leaves:
        if not _trees.is_traced(leaf):
            raise ArgumentError(f"a leaf of the tree is {leaf!r}, and only numbers lie in a vector")
    shapes = [np.shape(leaf) for leaf in leaves]
    dtypes = [np.result_type(leaf) for leaf in leaves]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes], dtype=int).tolist()

    size = ends[-1] if ends else 0

    def back(vector: Any) -> Any:
        if np.shape(vector) != (size,):
            raise ArgumentError(
                f"the vector has shape {np.shape(vector)}, and the tree has {size} numbers"
            )
        parts = []
        for start, end, shape, dtype in zip([0, *ends][:-1], ends, shapes, dtypes, strict=True):
            part = vector[start:end] if shape else vector[start]
            part = part.reshape(shape) if shape else part
            parts.append(part if part.dtype == dtype else part.astype(dtype))
        return _trees.unflatten(structure, parts)

    if not leaves:
        return np.zeros(0), back
    return np.concatenate([np.reshape(leaf, -1) for leaf in leaves]), back


def nested_get(tree: Any, path: Sequence[Any]) -> Any:
    """The part of a tree to which a path leads: `nested_get(tree, ("layers", 0, "w"))`.

    Raises
    ------
    ArgumentError : the path leads out of the tree; the message says where.
    """
    for depth in range(len(path)):
        parts, at, _ = _opened(tree, path, depth)
        tree = parts[at]
    return tree


def nested_set(tree: Any, path: Sequence[Any], value: Any) -> Any:
    """A tree with another value at the end of a path. The tree itself, and all other leaves, stay.

        >>> nested_set({"a": [1, 2], "b": 3}, ("a", 1), 20)
        {'a': [1, 20], 'b': 3}

    Raises
    ------
    ArgumentError : the path leads out of the tree.
    """

    def changed(tree: Any, depth: int) -> Any:
        if depth == len(path):
            return value
        parts, at, made_of = _opened(tree, path, depth)
        parts[at] = changed(parts[at], depth + 1)
        return made_of(parts)

    return changed(tree, 0)


def _opened(
    tree: Any, path: Sequence[Any], depth: int
) -> tuple[list[Any], int, Callable[[list[Any]], Any]]:
    """The parts of a tree, the number of the part to which a path leads, and what makes a tree of
    the parts."""
    key = path[depth]
    if tree is not None and not _trees.is_leaf(tree):
        parts, entries, made_of = _trees.open_once(tree)
        names = list(entries)
        fields = getattr(type(tree), "_fields", ())
        if key in names:
            return parts, names.index(key), made_of
        if key in fields:
            return parts, fields.index(key), made_of
    reached = "".join(f"[{part!r}]" for part in path[:depth])
    raise ArgumentError(
        f"the path {tuple(path)} leads out of the tree: tree{reached} has no part {key!r}"
    )


def cast(tree: Any, dtype: Any) -> Any:
    """A tree whose floating-point leaves have another dtype: a copy of each, by `astype`.

        >>> cast({"w": np.array([1.0, 0.1]), "n": np.array([3])}, np.float16)
        {'w': array([1. , 0.1], dtype=float16), 'n': array([3])}

    Inside a function that is traced it is differentiable, as `astype` is: the cotangent passes. So
    a loss may take parameters in float32 and compute with them as bfloat16 would have them,
    `loss(cast(params, "bfloat16"), x)`.

    Parameters
    ----------
    tree : arrays and NumPy's scalars of floats are cast. Python's floats, which take the dtype of
        what they meet, and leaves of another kind (integers, complex numbers, strings) stay.
    dtype : of floats; `"bfloat16"`, or ml_dtypes' type, where ml_dtypes is installed.

    Raises
    ------
    ArgumentError : the dtype isn't one of floats.
    """
    wanted = dtype_called(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    if computed_in(wanted).kind != "f":
        raise ArgumentError(f"cast: {wanted} isn't a dtype of floating-point numbers")

    def one(leaf: Any) -> Any:
        numeric = isinstance(leaf, (np.ndarray, np.generic))
        return leaf.astype(wanted) if numeric and computed_in(leaf.dtype).kind == "f" else leaf

    return tree_map(one, tree)


def deep_copy(tree: Any) -> Any:
    """A tree of the same structure with copies of the arrays; other leaves are the same objects."""
    return tree_map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)
