"""Nested arrays as one flat vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.core import trees

__all__ = ["flatten", "flatten_func"]


def flatten(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """All elements of nested lists, tuples and dicts of arrays and numbers, as one vector (dicts in
    the order of their sorted keys); and the function that restores the structure from a vector."""
    leaves, structure = trees.flatten(value)
    shapes = [np.shape(x) for x in leaves]
    real = [np.result_type(x).kind != "c" for x in leaves]
    ends = np.cumsum([0, *[int(np.prod(shape)) for shape in shapes]]).tolist()

    def unflatten(vector: Any) -> Any:
        parts = []
        for k, shape in enumerate(shapes):
            part = np.reshape(vector[ends[k] : ends[k + 1]], shape)[()]
            parts.append(np.real(part) if real[k] and not all(real) else part)
        return trees.unflatten(structure, parts)

    return np.concatenate([np.ravel(x) for x in leaves]) if leaves else np.array([]), unflatten


def flatten_func(func: Callable[..., Any], example: Any) -> tuple[Any, Any, Any]:
    """The function of a flat vector whose value is flat, too; the function that restores the
    structure; and the example as a vector."""
    flat, unflatten = flatten(example)

    def flat_func(x: Any, *args: Any) -> Any:
        return flatten(func(unflatten(x), *args))[0]

    return flat_func, unflatten, flat
