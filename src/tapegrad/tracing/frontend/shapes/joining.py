"""Joining and splitting: concatenate, stack, insert, delete."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.primitives.scatter import Concatenate, Stack
from tapegrad.primitives.views import Reshape
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import lay_out_as
from tapegrad.tracing.frontend.operands.operands import as_tracer, cast, store
from tapegrad.tracing.frontend.shapes.shaping import expand_dims, ints, ravel
from tapegrad.tracing.loops.stacking import as_rows
from tapegrad.tracing.tracers.tracer import Tracer


def _traced(xs: Any) -> list[Tracer]:
    """The arrays as tracers. At least one is a tracer."""
    xs = list(xs)
    return [x if isinstance(x, Tracer) else as_tracer(x, *xs) for x in xs]


def _same_dtype(xs: Any, dtype: Any = None) -> list[Tracer]:
    arrays = _traced(xs)
    common = np.result_type(*[a.dtype for a in arrays]) if dtype is None else np.dtype(dtype)
    return [cast(a, common) for a in arrays]


@stands_for(np, of_complex=True, lists="arrays")
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


@stands_for(np, of_complex=True, lists="arrays")
def stack(arrays: Any, axis: int = 0, out: Any = None, **kwargs: Any) -> Any:
    """np.stack."""
    xs = _traced(arrays)
    if len({x.shape for x in xs}) != 1:
        raise ValueError("all input arrays must have the same shape")
    axis = normalize_axis_index(axis, xs[0].ndim + 1)
    if out is not None or kwargs:
        return concatenate([expand_dims(x, axis) for x in xs], axis, out, **kwargs)
    xs = _same_dtype(xs)
    found = as_rows(xs) if axis == 0 else None
    return Stack(axis)(*xs) if found is None else _with_rows(found)


def _with_rows(xs: Sequence[Any]) -> Any:
    """`stack` of single arrays and of groups of consecutive rows of other arrays."""
    parts = []
    for is_single, group in groupby(xs, lambda x: isinstance(x, Tracer)):
        for rows in [Stack(0)(*group)] if is_single else group:
            parts.append(rows if is_single else _in_turn(rows.parts()))
    return Concatenate(0)(*parts) if len(parts) > 1 else parts[0]


def _in_turn(arrays: Sequence[Tracer]) -> Any:
    """The rows of several arrays, interleaved."""
    if len(arrays) == 1:
        return arrays[0]
    turns = Stack(1)(*arrays)
    return Reshape((turns.shape[0] * turns.shape[1], *turns.shape[2:]))(turns)


@stands_for(np, of_complex=True)
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
    places = np.array(ints(obj), np.intp)
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


@stands_for(np, of_complex=True)
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """np.delete."""
    if axis is None:
        arr, axis = ravel(arr), 0
    axis = normalize_axis_index(axis, arr.ndim)
    gone = obj if isinstance(obj, slice) or np.asarray(obj).dtype == np.bool_ else ints(obj)
    if isinstance(gone, tuple) and np.ndim(obj) == 0:
        (gone,) = gone
    kept = np.delete(np.arange(arr.shape[axis]), gone)
    result = arr[(slice(None),) * axis + (kept,)]
    gathered = not isinstance(obj, slice) and np.ndim(obj) > 0  # otherwise NumPy copies the parts
    return result if gathered else lay_out_as(result, arr, "A")
