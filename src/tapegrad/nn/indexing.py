"""Entries by their numbers and by masks, as PyTorch names them. Nothing is written into."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import tapegrad.numpy as filled  # whose arrays can be filled with traced values
from tapegrad.api import stop_gradient
from tapegrad.nn.arguments import (
    Array,
    as_array,
    axis_in,
    check_integers,
    check_shape,
    chosen_axis,
    labels_in,
)


def one_hot(tensor: Array, num_classes: int = -1) -> Array:
    """1 at the label and 0 elsewhere, along a new last axis: integers of shape (*, c).

    `num_classes` is c; -1 stands for the largest label + 1, and calls of another such number are
    traced anew. Raises TypeError for labels that aren't integers, IndexError for those that are
    negative or too large.
    """
    tensor = as_array(tensor)
    check_integers("one_hot", "tensor", tensor)
    if num_classes == -1:
        num_classes = operator.index(np.max(tensor)) + 1
    tensor = labels_in("one_hot", "tensor", tensor, num_classes)
    return (np.expand_dims(tensor, -1) == np.arange(num_classes)).astype(np.int64)


def embedding(input: Array, weight: Array, padding_idx: int | None = None) -> Array:
    """The rows weight[input]: (*, d) of numbers (*) and a matrix (v, d).

    The row `padding_idx` gets no cotangent; it may be counted from the end. PyTorch's options that
    change `weight` or its gradient aren't there. Raises TypeError for numbers that aren't integers,
    IndexError for those that are negative or too large.
    """
    if np.ndim(weight) != 2:
        raise ValueError(f"embedding: weight has shape {np.shape(weight)}, not (v, d)")
    count = np.shape(weight)[0]
    input = labels_in("embedding", "input", input, count)
    rows = weight[input]
    if padding_idx is None:
        return rows
    pad = axis_in("embedding", padding_idx, count)
    return np.where(np.expand_dims(input == pad, -1), stop_gradient(rows), rows)


def masked_fill(input: Array, mask: Array, value: Any) -> Array:
    """`value` where the mask is True, else x. The mask broadcasts to the shape of `input`."""
    mask = _mask("masked_fill", mask)
    if np.ndim(value):
        raise ValueError(f"masked_fill: value has shape {np.shape(value)}; it must be a number")
    return np.where(mask, value, input).astype(np.result_type(input))


def masked_select(input: Array, mask: Array) -> Array:
    """The elements where the mask is True, in one row. Both broadcast."""
    mask = _mask("masked_select", mask)
    shape = np.broadcast_shapes(np.shape(input), np.shape(mask))
    return np.broadcast_to(input, shape)[np.broadcast_to(mask, shape)]


def index_add(input: Array, dim: int, index: Array, source: Array, *, alpha: float = 1) -> Array:
    """A copy of x to whose entry index[i] along `dim` alpha * source[i] has been added, for all i.

    `index` is (k,), and `source` has the shape of `input` with k along `dim`. Raises ValueError for
    other shapes, IndexError for numbers that are negative or too large.
    """
    at, axis = _entries("index_add", input, dim, index)
    shape = np.shape(input)
    check_shape(
        "index_add", "source", source, (*shape[:axis], np.shape(index)[0], *shape[axis + 1 :])
    )
    found = filled.array(input)
    np.add.at(found, at, source if alpha == 1 else alpha * source)
    return found


def index_fill(input: Array, dim: int, index: Array, value: Any) -> Array:
    """A copy of x whose entries index[i] along `dim` are `value`.

    `index` is (k,). Raises IndexError for numbers that are negative or too large.
    """
    at, _ = _entries("index_fill", input, dim, index)
    found = filled.array(input)
    found[at] = value
    return found


def scatter_add(input: Array, dim: int, index: Array, src: Array) -> Array:
    """A copy of x to which the elements of `src` have been added, each at its place with `index`
    along `dim`: found[index[i, j], j] += src[i, j] of matrices with dim=0.

    `index` has the shape of `src` or a smaller one, and fits into `input` along the other axes, as
    in PyTorch. Raises ValueError for other shapes, IndexError for numbers that are negative or too
    large.
    """
    axis = axis_in("scatter_add", dim, np.ndim(input))
    shape, given, least = np.shape(input), np.shape(src), np.shape(index)
    fits = len(shape) == len(given) == len(least) and all(
        n <= given[i] and (i == axis or n <= shape[i]) for i, n in enumerate(least)
    )
    if not fits:
        raise ValueError(
            f"scatter_add: index has shape {least}, which doesn't fit src's {given} and input's "
            f"{shape}"
        )
    at = [*np.ogrid[tuple(slice(n) for n in least)]]
    at[axis] = labels_in("scatter_add", "index", index, shape[axis])
    found = filled.array(input)
    np.add.at(found, tuple(at), src[tuple(slice(n) for n in least)])
    return found


def repeat_interleave(
    input: Array, repeats: Any, dim: int | None = None, *, axis: int | None = None
) -> Array:
    """Each entry along `dim` (or `axis`) `repeats` times, as `np.repeat`; None flattens first."""
    return np.repeat(input, repeats, axis=chosen_axis("repeat_interleave", dim, axis, None))


def _mask(function: str, mask: Array) -> Array:
    mask = as_array(mask)
    if mask.dtype.kind != "b":
        raise TypeError(f"{function}: mask must be bool, not {mask.dtype}")
    return mask


def _entries(function: str, input: Array, dim: int, index: Array) -> tuple[tuple[Any, ...], int]:
    """What chooses the entries with these numbers along an axis, and the axis."""
    axis = axis_in(function, dim, np.ndim(input))
    if np.ndim(index) != 1:
        raise ValueError(f"{function}: index has shape {np.shape(index)}, not (k,)")
    at = labels_in(function, "index", index, np.shape(input)[axis])
    return (*(slice(None),) * axis, at), axis
