"""HIPS autograd's additions to NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tapegrad.numpy as np
from tapegrad.errors import ArgumentError

__all__ = [
    "array_from_args",
    "column_stack",
    "concatenate",
    "concatenate_args",
    "hstack",
    "make_diagonal",
    "metadata",
    "row_stack",
    "stack",
    "vstack",
    "wrap_namespace",
]


def _of_any(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function of a sequence of arrays, for any iterable."""

    @functools.wraps(function)
    def joined(arrays: Any, *args: Any, **kwargs: Any) -> Any:
        given = arrays if hasattr(arrays, "__getitem__") else [*arrays]
        return function(given, *args, **kwargs)

    return joined


concatenate, stack, column_stack = map(_of_any, (np.concatenate, np.stack, np.column_stack))
hstack, vstack = map(_of_any, (np.hstack, np.vstack))
row_stack = vstack
JOINING = ("concatenate", "stack", "column_stack", "hstack", "vstack", "row_stack")


def make_diagonal(D: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Matrices with the last axis of `D` on their diagonals: the inverse of `np.diagonal`."""
    if (offset, axis1, axis2) != (0, -1, -2):
        raise ArgumentError("make_diagonal takes offset=0, axis1=-1, axis2=-2, and no others")
    return np.expand_dims(D, -1) * np.eye(np.shape(D)[-1], dtype=np.result_type(D))


def concatenate_args(axis: int, *args: Any) -> Any:
    """`np.concatenate(args, axis)`."""
    return np.concatenate(args, axis)


def array_from_args(array_args: Any, array_kwargs: Any, *args: Any) -> Any:
    """`np.array(args)`, with these options."""
    return np.array(args, *array_args, **array_kwargs)


def metadata(A: Any) -> tuple[Any, ...]:
    """The shape, the number of axes, the dtype, and whether it is complex."""
    return np.shape(A), np.ndim(A), np.result_type(A), np.iscomplexobj(A)


def wrap_namespace(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Copy all public names of a module to another. Nothing needs wrapping."""
    new.update({name: x for name, x in old.items() if not name.startswith("_")})


def __getattr__(name: str) -> Any:
    return getattr(np, name)
