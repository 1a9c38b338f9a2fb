"""Joining and splitting: concatenate, stack, split and their relatives."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.primitives.scatter import Concatenate
from tapegrad.tracing.frontend.memory import lay_out_as
from tapegrad.tracing.frontend.operands import as_tracer, cast, store, untraced
from tapegrad.tracing.frontend.shaping import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    expand_dims,
    ints,
    ravel,
)
from tapegrad.tracing.tracer import Tracer


def _traced(xs: Any) -> list[Tracer]:
    """All of them as tracers, if one is."""
    xs = list(xs)
    return [as_tracer(x, *xs) for x in xs]


def _same_dtype(xs: Any, dtype: Any = None) -> list[Tracer]:
    arrays = _traced(xs)
    common = np.result_type(*[a.dtype for a in arrays]) if dtype is None else np.dtype(dtype)
    return [cast(a, common) for a in arrays]


def concatenate(
    arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    """np.concatenate."""
    xs = _same_dtype(arrays, dtype)
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    if any(x.ndim == 0 for x in xs):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    if len({x.ndim for x in xs}) != 1:
        raise ValueError(
            "all the input array dimensions must match exactly, but the arrays have "
            f"{', '.join(str(x.ndim) for x in xs)} dimensions"
        )
    for x in _traced(arrays):
        if not np.can_cast(x.dtype, xs[0].dtype, casting):
            raise TypeError(
                f"Cannot cast array data from {x.dtype!r} to {xs[0].dtype!r} according to the rule "
                f"{casting!r}"
            )
    axis = normalize_axis_index(axis, xs[0].ndim)
    for x in xs[1:]:
        for a, (n, m) in enumerate(zip(xs[0].shape, x.shape, strict=True)):
            if a != axis and n != m:
                raise ValueError(
                    "all the input array dimensions except for the concatenation axis must match "
                    f"exactly, but along dimension {a}, the sizes are {n} and {m}"
                )
    result = Concatenate(axis)(*xs)
    return result if out is None else store(out, result)


def stack(arrays: Any, axis: int = 0, out: Any = None, **kwargs: Any) -> Any:
    """np.stack."""
    xs = _traced(arrays)
    if len({x.shape for x in xs}) != 1:
        raise ValueError("all input arrays must have the same shape")
    axis = normalize_axis_index(axis, xs[0].ndim + 1)
    return concatenate([expand_dims(x, axis) for x in xs], axis, out, **kwargs)


def vstack(tup: Any, **kwargs: Any) -> Any:
    """np.vstack."""
    return concatenate([atleast_2d(x) for x in _traced(tup)], 0, **kwargs)


def hstack(tup: Any, **kwargs: Any) -> Any:
    """np.hstack."""
    xs = [atleast_1d(x) for x in _traced(tup)]
    return concatenate(xs, 0 if xs[0].ndim == 1 else 1, **kwargs)


def dstack(tup: Any) -> Any:
    """np.dstack."""
    return concatenate([atleast_3d(x) for x in _traced(tup)], 2)


def column_stack(tup: Any) -> Any:
    """np.column_stack."""
    return concatenate([atleast_2d(x).T if x.ndim < 2 else x for x in _traced(tup)], 1)


def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """np.append."""
    return concatenate(
        [ravel(x) for x in _traced((arr, values))] if axis is None else (arr, values), axis or 0
    )


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """np.array_split."""
    if not ary.ndim:
        np.array_split(untraced(ary), 1)  # NumPy's own error
    axis = normalize_axis_index(axis, ary.ndim)
    n = ary.shape[axis]
    if np.ndim(indices_or_sections) == 0:
        parts = int(indices_or_sections)
        if parts <= 0:
            raise ValueError("number sections must be larger than 0.")
        size, more = divmod(n, parts)
        ends = np.cumsum([size + 1] * more + [size] * (parts - more))
        bounds = [0, *map(int, ends)]
    else:
        bounds = [0, *ints(indices_or_sections, ary), n]
    before = (slice(None),) * axis
    return [ary[(*before, slice(a, b))] for a, b in pairwise(bounds)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """np.split."""
    if not ary.ndim:
        np.split(untraced(ary), 1 if np.ndim(indices_or_sections) == 0 else [1])  # NumPy's error
    if np.ndim(indices_or_sections) == 0 and ary.shape[axis] % int(indices_or_sections):
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """np.vsplit."""
    if ary.ndim < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(ary, indices_or_sections, 0)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """np.hsplit."""
    if ary.ndim == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return split(ary, indices_or_sections, 1 if ary.ndim > 1 else 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """np.dsplit."""
    if ary.ndim < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return split(ary, indices_or_sections, 2)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """np.unstack."""
    return tuple(np.moveaxis(x, axis, 0))


def block(arrays: Any) -> Any:
    """np.block: the innermost lists are joined along the last axis, those outside along others."""

    def depth(x: Any) -> int:
        return 1 + max(map(depth, x), default=0) if isinstance(x, list) else 0

    def leaves(x: Any) -> list[Any]:
        return [leaf for part in x for leaf in leaves(part)] if isinstance(x, list) else [x]

    traced = [x for x in leaves(arrays) if isinstance(x, Tracer)]
    levels = depth(arrays)
    ndim = max(levels, *[np.ndim(x) for x in leaves(arrays)])

    def joined(x: Any, level: int) -> Any:
        if isinstance(x, list):
            return concatenate([joined(part, level + 1) for part in x], ndim - levels + level)
        x = as_tracer(x, *traced)
        return x.reshape((1,) * (ndim - x.ndim) + x.shape)

    result = joined(arrays, 0)
    return np.copy(result) if levels == 0 else result


def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    """np.insert."""
    arr = as_tracer(arr, values)
    if axis is None:
        arr, axis = ravel(arr), 0
    axis = normalize_axis_index(axis, arr.ndim)
    n = arr.shape[axis]
    values = cast(as_tracer(values, arr), arr.dtype)
    if isinstance(obj, slice):
        obj = range(*obj.indices(n))
    places = np.array(ints(obj, arr), np.intp)
    if np.any((places < -n) | (places > n)):
        raise IndexError(f"index {obj} is out of bounds for axis {axis} with size {n}")
    places = np.where(places < 0, places + n, places)
    if len(places) == 1:
        values = values.reshape((1,) * (arr.ndim - values.ndim) + values.shape)
        if np.ndim(obj) == 0:
            values = np.moveaxis(values, 0, axis)
        places = np.repeat(places, values.shape[axis])
    order = np.argsort(places, kind="stable")
    places[order] += np.arange(len(places))
    grown = [m + len(places) if a == axis else m for a, m in enumerate(arr.shape)]
    result = np.zeros_like(arr, shape=grown)
    before = (slice(None),) * axis
    result[(*before, places)] = values
    result[(*before, np.setdiff1d(np.arange(grown[axis]), places))] = arr
    return result


def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """np.delete."""
    if axis is None:
        arr, axis = ravel(arr), 0
    axis = normalize_axis_index(axis, arr.ndim)
    gone = obj if isinstance(obj, slice) or np.asarray(obj).dtype == np.bool_ else ints(obj, arr)
    if isinstance(gone, tuple) and np.ndim(obj) == 0:
        (gone,) = gone
    kept = np.delete(np.arange(arr.shape[axis]), gone)
    result = arr[(slice(None),) * axis + (kept,)]
    gathered = not isinstance(obj, slice) and np.ndim(obj) > 0  # else NumPy copies the parts
    return result if gathered else lay_out_as(result, arr, "A")
