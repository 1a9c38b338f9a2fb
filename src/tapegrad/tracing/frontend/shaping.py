"""Shapes, axes and repetition: reshape, transpose, squeeze, broadcast, flip, roll, tile, repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from tapegrad.errors import UnsupportedError
from tapegrad.ir.tape import Literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Slice
from tapegrad.primitives.scatter import Concatenate, Place, PlaceDiagonal
from tapegrad.primitives.views import (
    BroadcastTo,
    Diagonal,
    ExpandDims,
    GetItem,
    Reshape,
    Squeeze,
    Transpose,
)
from tapegrad.tracing.frontend.indexing import as_tracer
from tapegrad.tracing.source import at_line
from tapegrad.tracing.tracer import Tracer


def _ints(x: Any) -> tuple[int, ...]:
    """A shape or a list of axes: one integer, or several. Traced integers are guarded."""
    if hasattr(x, "__index__") and not isinstance(x, (tuple, list)):
        return (x.__index__(),)
    return tuple(k.__index__() for k in x)


def reshape(x: Any, /, shape: Any = None, order: str = "C", *, copy: Any = None) -> Any:
    """np.reshape."""
    if order == "A":
        order = "C"
    dims = list(_ints(shape))
    if dims.count(-1) == 1:
        known = int(np.prod([n for n in dims if n != -1], dtype=int))
        if known == 0 or x.size % known:
            raise ValueError(f"cannot reshape array of size {x.size} into shape {tuple(dims)}")
        dims[dims.index(-1)] = x.size // known
    if int(np.prod(dims, dtype=int)) != x.size or any(n < 0 for n in dims):
        raise ValueError(f"cannot reshape array of size {x.size} into shape {tuple(dims)}")
    if order == "F":
        return transpose(Reshape(tuple(reversed(dims)))(transpose(x)))
    if tuple(dims) == x.shape:
        return GetItem(tuple(Slice(0, n) for n in dims))(x)
    return Reshape(tuple(dims))(x)


def ravel(x: Any, order: str = "C") -> Any:
    """np.ravel."""
    return reshape(x, -1, "F" if order == "F" else "C")


def flatten(x: Any, order: str = "C") -> Any:
    """ndarray.flatten: always a copy."""
    return copy(ravel(x, order))


def transpose(x: Any, axes: Any = None) -> Any:
    """np.transpose."""
    if axes is None:
        order = tuple(reversed(range(x.ndim)))
    else:
        order = tuple(normalize_axis_index(a, x.ndim) for a in _ints(axes))
        if sorted(order) != list(range(x.ndim)):
            raise ValueError("axes don't match array")
    return Transpose(order)(x)


def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """np.swapaxes."""
    order = list(range(x.ndim))
    a, b = normalize_axis_index(axis1, x.ndim), normalize_axis_index(axis2, x.ndim)
    order[a], order[b] = order[b], order[a]
    return Transpose(tuple(order))(x)


def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """np.moveaxis."""
    sources = normalize_axis_tuple(source, x.ndim, "source")
    destinations = normalize_axis_tuple(destination, x.ndim, "destination")
    if len(sources) != len(destinations):
        raise ValueError("`source` and `destination` must have the same number of elements")
    order = [a for a in range(x.ndim) if a not in sources]
    for to, a in sorted(zip(destinations, sources, strict=True)):
        order.insert(to, a)
    return Transpose(tuple(order))(x)


def rollaxis(x: Any, axis: int, start: int = 0) -> Any:
    """np.rollaxis."""
    axis = normalize_axis_index(axis, x.ndim)
    start = start + x.ndim if start < 0 else start
    return moveaxis(x, axis, start - 1 if axis < start else start)


def squeeze(x: Any, axis: Any = None) -> Any:
    """np.squeeze."""
    if axis is None:
        axes = tuple(a for a, n in enumerate(x.shape) if n == 1)
    else:
        axes = tuple(sorted(normalize_axis_tuple(axis, x.ndim)))
        if any(x.shape[a] != 1 for a in axes):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return Squeeze(axes)(x) if axes else reshape(x, x.shape)


def expand_dims(x: Any, axis: Any) -> Any:
    """np.expand_dims."""
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    return ExpandDims(tuple(sorted(normalize_axis_tuple(axes, x.ndim + len(axes)))))(x)


def atleast_1d(*xs: Any) -> Any:
    """np.atleast_1d."""
    done = tuple(reshape(x, 1) if np.ndim(x) == 0 else x for x in xs)
    return done[0] if len(done) == 1 else done


def atleast_2d(*xs: Any) -> Any:
    """np.atleast_2d."""
    done = tuple(x if np.ndim(x) >= 2 else reshape(x, (1, -1)) for x in xs)
    return done[0] if len(done) == 1 else done


def atleast_3d(*xs: Any) -> Any:
    """np.atleast_3d."""

    def grow(x: Any) -> Any:
        if np.ndim(x) >= 3:
            return x
        return expand_dims(x, 2) if np.ndim(x) == 2 else reshape(x, (1, -1, 1))

    done = tuple(grow(x) for x in xs)
    return done[0] if len(done) == 1 else done


def broadcast_to(x: Any, shape: Any, subok: bool = False) -> Any:
    """np.broadcast_to."""
    return BroadcastTo(_ints(shape))(x)


def broadcast_arrays(*xs: Any, subok: bool = False) -> tuple[Any, ...]:
    """np.broadcast_arrays."""
    shape = np.broadcast_shapes(*[np.shape(x) for x in xs])
    return tuple(broadcast_to(as_tracer(x, *xs), shape) for x in xs)


def flip(x: Any, axis: Any = None) -> Any:
    """np.flip."""
    axes = range(x.ndim) if axis is None else normalize_axis_tuple(axis, x.ndim)
    return x[tuple(slice(None, None, -1 if a in axes else None) for a in range(x.ndim))]


def rot90(x: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """np.rot90."""
    first, second = axes
    k = k % 4
    if k == 0:
        return reshape(x, x.shape)
    if k == 2:
        return flip(x, tuple(axes))
    return (
        swapaxes(flip(x, second), first, second)
        if k == 1
        else flip(swapaxes(x, first, second), second)
    )


def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """np.roll."""
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = normalize_axis_tuple(axis, x.ndim, allow_duplicate=True)
    shifts = _ints(shift)
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    for a, s in zip(axes, shifts, strict=True):
        n = x.shape[a]
        s = s % n if n else 0
        if s:
            before = [Slice(0, m) for m in x.shape]
            after = list(before)
            before[a], after[a] = Slice(n - s, s), Slice(0, n - s)
            x = Concatenate(a)(GetItem(tuple(before))(x), GetItem(tuple(after))(x))
    return x


def tile(x: Any, reps: Any) -> Any:
    """np.tile: the array broadcast along new axes, which reshaping merges."""
    times = list(_ints(reps))
    ndim = max(x.ndim, len(times))
    times = [1] * (ndim - len(times)) + times
    x = reshape(x, (1,) * (ndim - x.ndim) + x.shape)
    apart = [n for t, m in zip(times, x.shape, strict=True) for n in (t, m)]
    grown = expand_dims(x, tuple(range(0, 2 * ndim, 2)))
    merged = [t * m for t, m in zip(times, x.shape, strict=True)]
    return reshape(broadcast_to(grown, apart), merged)


def repeat(x: Any, repeats: Any, axis: Any = None) -> Any:
    """np.repeat."""
    if axis is None:
        x, axis = ravel(x), 0
    axis = normalize_axis_index(axis, x.ndim)
    if np.ndim(repeats) == 0:
        times = int(repeats)
        grown = expand_dims(x, axis + 1)
        shape = list(grown.shape)
        shape[axis + 1] = times
        merged = list(x.shape)
        merged[axis] *= times
        return reshape(broadcast_to(grown, shape), merged)
    counts = np.array([int(r) for r in repeats])
    picks = np.repeat(np.arange(x.shape[axis]), counts)
    return x[(slice(None),) * axis + (picks,)]


def pad(x: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Any:
    """np.pad, in the modes constant, edge, reflect, symmetric and wrap."""
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(a, pad_width.get(a - x.ndim, 0)) for a in range(x.ndim)]
        pad_width = [(w, w) if np.ndim(w) == 0 else w for w in pad_width]
    widths = [tuple(map(int, w)) for w in np.broadcast_to(np.asarray(pad_width), (x.ndim, 2))]
    if mode == "constant":
        return _pad_constant(x, widths, kwargs.get("constant_values", 0))
    if mode not in ("edge", "reflect", "symmetric", "wrap") or kwargs:
        raise UnsupportedError(
            f"np.pad with mode={mode!r} {kwargs or ''} isn't supported{at_line()}"
        )
    for axis, (before, after) in enumerate(widths):
        if before or after:
            picks = np.pad(np.arange(x.shape[axis]), (before, after), mode=mode)  # type: ignore[call-overload]
            x = x[(slice(None),) * axis + (picks,)]
    return x


def _pad_constant(x: Any, widths: list[tuple[int, ...]], values: Any) -> Any:
    shape = tuple(n + sum(w) for n, w in zip(x.shape, widths, strict=True))
    index = tuple(Slice(w[0], n) for n, w in zip(x.shape, widths, strict=True))
    if not isinstance(values, Tracer) and not np.any(values):
        return Place(shape, index)(x)
    if np.ndim(values) == 0:
        from tapegrad.primitives.scatter import SetItem
        from tapegrad.tracing.frontend.ufuncs import cast
        from tapegrad.tracing.tracer import record

        full = record(x._trace, BroadcastTo(shape), [cast(values, x.dtype)])
        return SetItem(index)(full, x)
    pairs = np.broadcast_to(np.asarray(values), (x.ndim, 2))
    for axis, (before, after) in enumerate(widths):
        parts = [x]
        for width, value, at in ((before, pairs[axis][0], 0), (after, pairs[axis][1], 1)):
            if width:
                block = list(x.shape)
                block[axis] = width
                filler = full_like(x, value, shape=block)
                parts.insert(0 if at == 0 else len(parts), filler)
        x = Concatenate(axis)(*parts) if len(parts) > 1 else x
    return x


# ---- matrices


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """np.diagonal."""
    return Diagonal(int(offset))(moveaxis(x, (axis1, axis2), (-2, -1)))


def diag(v: Any, k: int = 0) -> Any:
    """np.diag."""
    if v.ndim == 1:
        n = v.shape[0] + abs(k)
        return PlaceDiagonal((n, n), k)(v)
    if v.ndim != 2:
        raise ValueError("Input must be 1- or 2-d.")
    return diagonal(v, k)


def diagflat(v: Any, k: int = 0) -> Any:
    """np.diagflat."""
    return diag(ravel(v), k)


def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Any:
    """np.trace."""
    return np.sum(diagonal(a, offset, axis1, axis2), -1, dtype, out)  # type: ignore[call-overload]


def tril(m: Any, k: int = 0) -> Any:
    """np.tril."""
    mask = np.tri(m.shape[-2], m.shape[-1], k, dtype=bool)
    return ew.where(mask, m, Literal(m.dtype.type(0)))


def triu(m: Any, k: int = 0) -> Any:
    """np.triu."""
    mask = ~np.tri(m.shape[-2], m.shape[-1], k - 1, dtype=bool)
    return ew.where(mask, m, Literal(m.dtype.type(0)))


# ---- copies and arrays like another


def copy(x: Any, order: str = "K", subok: bool = False) -> Any:
    """np.copy."""
    return ew.copy(x)


def astype(x: Any, dtype: Any, *args: Any, copy: bool = True, **kwargs: Any) -> Any:
    """ndarray.astype."""
    from tapegrad.tracing.frontend.ufuncs import check_dtype

    dtype = np.dtype(dtype)
    check_dtype(dtype)
    if dtype == x.dtype:
        return ew.copy(x) if copy else x
    return ew.AsType(dtype)(x)


def full_like(
    x: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    **kwargs: Any,
) -> Any:
    """np.full_like: a traced array, so it can be written to with traced values."""
    from tapegrad.tracing.frontend.ufuncs import cast
    from tapegrad.tracing.tracer import record

    dtype = x.dtype if dtype is None else np.dtype(dtype)
    dims = x.shape if shape is None else _ints(shape)
    trace = (x if isinstance(x, Tracer) else fill_value)._trace
    out = record(trace, BroadcastTo(tuple(dims)), [cast(fill_value, dtype)])
    return record(trace, ew.copy, [out])


def zeros_like(
    x: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    **kwargs: Any,
) -> Any:
    """np.zeros_like."""
    return full_like(x, 0, dtype, shape=shape)


def ones_like(
    x: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    **kwargs: Any,
) -> Any:
    """np.ones_like."""
    return full_like(x, 1, dtype, shape=shape)
