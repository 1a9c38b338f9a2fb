"""Selection and update of entries by number or mask, with PyTorch's names. Arguments are not
changed: updates return a copy."""

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

    `num_classes` is c; -1 means the largest label + 1, and a call with another such number is
    traced anew. Raises TypeError for labels that aren't integers, IndexError for labels that are
    negative or too large.
    """
    tensor = as_array(tensor)
    check_integers("one_hot", "tensor", tensor)
    if num_classes == -1:
        num_classes = operator.index(np.max(tensor)) + 1
    tensor = labels_in("one_hot", "tensor", tensor, num_classes)
    return (np.expand_dims(tensor, -1) == np.arange(num_classes)).astype(np.int64)


def embedding(
    input: Array,
    weight: Array,
    padding_idx: int | None = None,
    max_norm: None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    """The rows weight[input]: (*, d), for numbers (*) and a matrix (v, d).

    The row `padding_idx`, which may be counted from the end, gets no cotangent. With
    `scale_grad_by_freq` the cotangent of a row is divided by the number of times it was chosen.
    `norm_type` and `sparse` exist for PyTorch's signature and have no effect. Raises TypeError for
    numbers that aren't integers, IndexError for negative or too large numbers, ValueError for
    `max_norm`, with which PyTorch writes into `weight`.
    """
    if max_norm is not None:
        raise ValueError(
            "embedding: max_norm would write into weight. Shorten the rows that are too long "
            "where weight is updated, or pass shortened rows"
        )
    if np.ndim(weight) != 2:
        raise ValueError(f"embedding: weight has shape {np.shape(weight)}, not (v, d)")
    count = np.shape(weight)[0]
    input = labels_in("embedding", "input", input, count)
    rows = weight[input]
    if scale_grad_by_freq:
        often = filled.zeros(count, rows.dtype)
        np.add.at(often, input, 1)
        still = stop_gradient(rows)
        # For a number that isn't finite the difference would be NaN instead of 0.
        scaled = still - (still - rows) / np.expand_dims(often[input], -1)
        rows = np.where(np.isfinite(still), scaled, rows)
    if padding_idx is None:
        return rows
    pad = axis_in("embedding", padding_idx, count)
    return np.where(np.expand_dims(input == pad, -1), stop_gradient(rows), rows)


def embedding_bag(
    input: Array,
    weight: Array,
    offsets: Array | None = None,
    *,
    mode: str = "mean",
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Array:
    """The sum, mean or maximum of each bag of rows of a matrix: (bags, d).

    A bag without rows gives zeros. PyTorch's `max_norm` and `scale_grad_by_freq` are not supported.

    Parameters
    ----------
    input : the numbers of rows, (bags, k); or (k,) for bags of different sizes.
    weight : (v, d).
    offsets : the start of each bag in an input with one axis, from 0 up; otherwise None.
    mode : "sum", "mean" or "max"; "max" needs bags of one size.
    per_sample_weights : factors of the rows, of the shape of `input`, for "sum".
    include_last_offset : whether the last of `offsets` is the end of the last bag.
    padding_idx : the number of a row that is left out.

    Raises
    ------
    ValueError : shapes or options don't fit; row numbers raise as in `embedding`.
    """
    input = as_array(input)
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"embedding_bag: mode={mode!r} is none of 'sum', 'mean', 'max'")
    if input.ndim != (2 if offsets is None else 1):
        raise ValueError(
            f"embedding_bag: input has shape {input.shape}, and must be (bags, k), or (k,) with "
            "offsets"
        )
    if per_sample_weights is not None and mode != "sum":
        raise ValueError(f"embedding_bag: per_sample_weights is for mode='sum', not {mode!r}")
    if mode == "max" and offsets is not None:
        raise ValueError("embedding_bag: mode='max' takes bags of one size, and no offsets")
    rows = embedding(input, weight)
    if per_sample_weights is not None:
        check_shape("embedding_bag", "per_sample_weights", per_sample_weights, input.shape)
        rows = rows * np.expand_dims(per_sample_weights, -1)
    counts = np.ones(input.shape, bool)
    if padding_idx is not None:
        counts = input != axis_in("embedding_bag", padding_idx, np.shape(weight)[0])
        rows = np.where(np.expand_dims(counts, -1), rows, -np.inf if mode == "max" else 0)
    counts = counts.astype(rows.dtype)
    if offsets is not None:
        bags, of = _bags(as_array(offsets), len(input), include_last_offset)

    def in_bags(x: Array) -> Array:
        if offsets is None:
            return np.sum(x, axis=1)
        total = filled.zeros((bags, *x.shape[1:]), x.dtype)
        np.add.at(total, of, x)
        return total

    if mode == "sum":
        return in_bags(rows)
    filled_bags = in_bags(counts)[:, None]
    if mode == "mean":
        return in_bags(rows) / np.maximum(filled_bags, 1)
    if not rows.shape[1]:
        return np.sum(rows, axis=1)
    top = np.argmax(rows, axis=1)  # among equal elements the first has the slope, as in PyTorch
    found = np.take_along_axis(rows, np.expand_dims(top, 1), axis=1)[:, 0]
    return np.where(filled_bags == 0, 0, found)


def _bags(offsets: Array, count: int, include_last_offset: bool) -> tuple[int, Array]:
    """The number of bags, and the bag of each of `count` entries."""
    check_integers("embedding_bag", "offsets", offsets)
    if offsets.ndim != 1 or not offsets.shape[0]:
        raise ValueError(f"embedding_bag: offsets has shape {offsets.shape}, not (bags,)")
    last = offsets[-1] != count if include_last_offset else offsets[-1] > count
    if offsets[0] != 0 or last or np.any(offsets[1:] < offsets[:-1]):
        raise ValueError(f"embedding_bag: offsets must go up from 0 to {count}, the input's length")
    starts = offsets[:-1] if include_last_offset else offsets
    return len(starts), np.searchsorted(starts, np.arange(count), side="right") - 1


def masked_fill(input: Array, mask: Array, value: Any) -> Array:
    """`value` where the mask is True, else x. The mask broadcasts to the shape of `input`."""
    mask = _mask("masked_fill", mask)
    if np.ndim(value):
        raise ValueError(f"masked_fill: value has shape {np.shape(value)}; it must be a number")
    return np.where(mask, value, input).astype(np.result_type(input))


def masked_select(input: Array, mask: Array) -> Array:
    """The elements where the mask is True, as a vector. Input and mask broadcast."""
    mask = _mask("masked_select", mask)
    shape = np.broadcast_shapes(np.shape(input), np.shape(mask))
    return np.broadcast_to(input, shape)[np.broadcast_to(mask, shape)]


def index_add(input: Array, dim: int, index: Array, source: Array, *, alpha: float = 1) -> Array:
    """A copy of x with alpha * source[i] added to the entry index[i] along `dim`, for all i.

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
    """A copy of x with `value` at the entries index[i] along `dim`.

    `index` is (k,). Raises IndexError for numbers that are negative or too large.
    """
    at, _ = _entries("index_fill", input, dim, index)
    found = filled.array(input)
    found[at] = value
    return found


def scatter_add(input: Array, dim: int, index: Array, src: Array) -> Array:
    """A copy of x with the elements of `src` added at the places that `index` gives along `dim`.

    For matrices and dim=0: found[index[i, j], j] += src[i, j].

    `index` has at most the length of `src` along each axis and of `input` along the other axes, as
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
    """Repeat each entry along `dim` (or `axis`) `repeats` times, as `np.repeat`; None flattens."""
    return np.repeat(input, repeats, axis=chosen_axis("repeat_interleave", dim, axis, None))


def _mask(function: str, mask: Array) -> Array:
    mask = as_array(mask)
    if mask.dtype.kind != "b":
        raise TypeError(f"{function}: mask must be bool, not {mask.dtype}")
    return mask


def _entries(function: str, input: Array, dim: int, index: Array) -> tuple[tuple[Any, ...], int]:
    """The index of the entries with these numbers along an axis, and the axis."""
    axis = axis_in(function, dim, np.ndim(input))
    if np.ndim(index) != 1:
        raise ValueError(f"{function}: index has shape {np.shape(index)}, not (k,)")
    at = labels_in(function, "index", index, np.shape(input)[axis])
    return (*(slice(None),) * axis, at), axis
