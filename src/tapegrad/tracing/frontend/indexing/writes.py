"""Writes: item assignment, ufunc.at, copyto, put, putmask, place, fill, put_along_axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.core.arrays import computed_in
from tapegrad.core.trees import is_array
from tapegrad.errors import ConversionError
from tapegrad.observe.program.source import at_line
from tapegrad.primitives import elementwise
from tapegrad.primitives.base import Slice, broadcast_shapes
from tapegrad.primitives.scatter import ScatterAdd, SetItem, scatter_set
from tapegrad.primitives.views import BroadcastTo, Squeeze, indexed_shape
from tapegrad.primitives.windows import SetWindow
from tapegrad.tracing.frontend.indexing.bounds import note_beyond
from tapegrad.tracing.frontend.indexing.flat import Flat
from tapegrad.tracing.frontend.indexing.indexing import (
    IndexParts,
    counting,
    grids,
    is_dotted,
    plain_index,
)
from tapegrad.tracing.frontend.indexing.masked import Selected, put_selected
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.operands import (
    as_operand,
    as_tracer,
    cast,
    cast_all,
    check_dtype,
    recorded,
    untraced,
)
from tapegrad.tracing.frontend.operands.parameters import beyond
from tapegrad.tracing.runs.floating_errors import cast_of, watching
from tapegrad.tracing.tracers.fast_parts import put as put_part
from tapegrad.tracing.tracers.tracer import Tracer

# ---- x[index] = value


def setitem(x: Tracer, index: Any, value: Any) -> None:
    """`x[index] = value`: afterwards `x` and all its views have the new elements."""
    if isinstance(value, Selected) and put_selected(x, index, value):
        return
    if x._is_scalar():
        raise TypeError("a traced scalar does not support item assignment")
    value = as_operand(value)
    takes_floats = computed_in(x.dtype).kind in "fc"
    if isinstance(value, Tracer) and value.dtype.kind == "f" and not takes_floats:
        raise ConversionError(
            f"a traced float is assigned into an array of dtype {x.dtype}{at_line()}: it would be "
            "truncated and lose its derivative. Make the array with a float dtype"
        )
    plain = plain_index(x, index)
    if plain is not None:
        shape = indexed_shape(plain)
        if len(getattr(value, "shape", ())) <= len(shape):
            put_part(SetItem(plain), x, fit(x, value, shape))
            return
    alone = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    if _is_mask_of(x, alone):
        if np.ndim(value) > 1:
            raise TypeError(
                "NumPy boolean array indexing assignment requires a 0 or 1-dimensional input, "
                f"input has {np.ndim(value)} dimensions"
            )
        if not np.ndim(value):
            # A choice by the mask needs no guard on the count, as indices would.
            chosen = elementwise.where(as_tracer(alone, x), fit(x, value, ()), x)
            x._write(SetItem(tuple(Slice(0, n) for n in x.shape)), chosen)
            return
    found = IndexParts(x, index)
    if not found.advanced:
        element = not indexed_shape(found.explicit) and not found.new_axes
        if element and np.ndim(value) and not is_dotted(index):
            np.zeros(1)[0] = np.zeros(np.shape(value))  # NumPy's own error, if it raises one
        part = fit(x, value, indexed_shape(found.explicit), found.new_axes)
        if found.steps:
            steps = [step for _, step in found.steps]
            x._write(SetWindow(found.explicit, found.moves), part, *steps)
        else:
            x._write(SetItem(found.explicit), part)
        return
    moved = found.move_first(x)  # a view of `x`: a write to it writes to `x`
    y = fit(x, value, found.result_shape(moved))
    try:
        moved._write(scatter_set, found.arranged(x, y), *found.arrays)
    except IndexError:
        note_beyond(moved, found.arrays)
        raise


def _is_mask_of(x: Tracer, index: Any) -> bool:
    is_array = isinstance(index, (Tracer, np.ndarray))
    return is_array and index.dtype == np.bool_ and index.shape == x.shape and x.ndim > 0


def fit(x: Tracer, value: Any, shape: tuple[int, ...], new_axes: Sequence[int] = ()) -> Any:
    """`value` with the dtype of `x` and this shape, broadcast as assignment does it.

    `new_axes` are axes of extent 1 in the index that the written part of `x` doesn't have.
    """
    if isinstance(value, Tracer) and not new_axes:
        aval = value._aval
        if aval.shape == shape and aval.dtype is x._aval.dtype and aval.dtype.kind == "f":
            return value
    if isinstance(value, Tracer) and value.dtype.kind == "c" != x.dtype.kind:
        raise ConversionError(
            f"a traced complex number is assigned into an array of dtype {x.dtype}{at_line()}: it "
            "would lose its imaginary part. Assign z.real, or make the array with dtype=complex"
        )
    if is_array(value):
        check_dtype(value.dtype)
        given = value
        value = watching(
            cast_of, (value, x.dtype), {}, lambda: cast_all([x, given], [x.dtype, x.dtype])[1]
        )
    else:
        value = cast(value, x.dtype)
    grown = list(shape)
    for axis in new_axes:
        grown.insert(axis, 1)
    found = value.shape
    extra = len(found) - len(grown)
    if extra > 0 and set(found[:extra]) == {1}:  # NumPy drops leading unit axes of the value
        value = recorded(x, Squeeze(tuple(range(extra))), value)
        found = value.shape
    try:
        fits = broadcast_shapes(found, tuple(grown)) == tuple(grown)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"could not broadcast input array from shape {found} into shape {tuple(grown)}"
        )
    if found != tuple(grown):
        value = recorded(x, BroadcastTo(tuple(grown)), value)
    return recorded(x, Squeeze(tuple(new_axes)), value) if new_axes else value


# ---- functions


def check_traced(x: Any, name: str) -> None:
    if not isinstance(x, Tracer):
        raise ConversionError(
            f"{name} of a traced value into a plain NumPy array{at_line()}, which carries no "
            "derivative. Make the array in the function, with np.zeros(n) or np.array(a)"
        )


def ufunc_at(ufunc: np.ufunc, x: Any, index: Any, *values: Any) -> None:
    """`ufunc.at(x, index, values)` for add and subtract. Repeated indices accumulate."""
    (value,) = values
    found = IndexParts(x, index)
    if not found.advanced:
        x[index] = ufunc(x[index], value)
        return
    moved = found.move_first(x)
    y = found.arranged(x, fit(x, as_operand(value), found.result_shape(moved)))
    try:
        added = recorded(x, ScatterAdd(moved.shape), y, *found.arrays)
    except IndexError:
        note_beyond(moved, found.arrays)
        raise
    moved[...] = ufunc(moved, added)


@stands_for(np, of_complex=True, lists=None)
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """np.copyto."""
    check_traced(dst, "np.copyto")
    src = as_operand(src)
    found = getattr(src, "dtype", type(src))  # a Python number can be cast to any dtype of its kind
    weak = isinstance(src, (bool, int)) and not isinstance(src, np.generic)
    weak = weak and (isinstance(src, bool) or dst.dtype.kind != "b")
    if not weak and not np.can_cast(found, dst.dtype, casting):  # type: ignore[arg-type]
        raise TypeError(
            f"Cannot cast array data from {np.dtype(found)!r} to {dst.dtype!r} according to the "
            f"rule {casting!r}"
        )
    dst[...] = src if where is True else np.where(where, src, dst)


@stands_for(np.ndarray, of_complex=True)
def fill(x: Tracer, value: Any) -> None:
    """ndarray.fill."""
    value = as_operand(value)
    if np.ndim(value):
        np.zeros(1).fill(np.zeros(np.shape(value)))  # NumPy's own error, unless it takes the array
    x[...] = value


@stands_for(np, np.ndarray, of_complex=True, lists=None)
def put(a: Any, indices: Any, v: Any, mode: str = "raise") -> None:
    """np.put: flat indices in row-major order; the values are repeated."""
    check_traced(a, "np.put")
    if a._weak:
        np.put(untraced(a), 0, 0)  # NumPy's own error
    ind, mode = as_operand(counting(indices)), beyond(mode)
    if mode == "wrap":
        ind = np.mod(ind, a.size)
    elif mode == "clip":
        ind = np.clip(ind, 0, a.size - 1)
    else:
        ind = ind if isinstance(ind, Tracer) else np.asarray(ind)
        if np.any((ind < -a.size) | (ind >= a.size)):
            raise IndexError(f"an index is out of bounds for an array of size {a.size}")
        ind = np.where(ind < 0, ind + a.size, ind)
    if a._is_scalar():
        return  # NumPy writes to a copy
    places, rest = [], ind.reshape(-1)
    for extent in reversed(a.shape):
        places.append(rest % extent)
        rest = rest // extent
    values = as_tracer(v, a).reshape(-1)
    count = int(np.prod(ind.shape, dtype=int))
    if count and values.size:
        values = values[np.arange(count) % values.size]
        a[tuple(reversed(places))] = values if places else values[-1]  # 0-d: the last value wins


@stands_for(np, of_complex=True, lists=None)
def putmask(a: Any, mask: Any, values: Any) -> None:
    """np.putmask: the values are repeated through the whole array, whatever the mask."""
    check_traced(a, "np.putmask")
    listed = isinstance(values, (list, tuple)) or np.ndim(values) == 0
    values = as_tracer(values, a)
    if not listed and not np.can_cast(values.dtype, a.dtype, "same_kind"):
        raise TypeError(
            f"Cannot cast array data from {values.dtype!r} to {a.dtype!r} according to the rule "
            "'same_kind'"
        )
    if values.shape != a.shape:
        flat = values.reshape(-1)
        values = flat[np.arange(a.size) % flat.size].reshape(a.shape)
    a[...] = np.where(mask, values, a)


@stands_for(np, of_complex=True, lists=None)
def place(arr: Any, mask: Any, vals: Any) -> None:
    """np.place: the values are repeated through the places where the mask is true."""
    check_traced(arr, "np.place")
    flat = as_tracer(vals, arr).reshape(-1)
    if arr.ndim == 0:
        if flat.size:
            arr[...] = np.where(mask, flat[0], arr)
        return
    chosen = np.nonzero(as_tracer(mask, arr).reshape(arr.shape))
    count = chosen[0].size
    if count:
        if not flat.size:
            raise ValueError("Cannot insert from an empty array!")
        arr[chosen] = flat[np.arange(count) % flat.size]


@stands_for(np, of_complex=True, lists=None)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """np.fill_diagonal."""
    check_traced(a, "np.fill_diagonal")
    if a.ndim < 2:
        np.fill_diagonal(untraced(a), 0)  # NumPy's own error
    if a.ndim > 2 and len(set(a.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    step = 1 + sum(int(np.prod(a.shape[k:], dtype=int)) for k in range(1, a.ndim))
    end = a.shape[1] ** 2 if a.ndim == 2 and not wrap else a.size  # with wrap also below a square
    Flat(a)[:end:step] = val


@stands_for(np, of_complex=True, lists=None)
def put_along_axis(x: Any, indices: Any, values: Any, axis: int | None) -> None:
    """np.put_along_axis."""
    check_traced(x, "np.put_along_axis")
    if axis is None:
        Flat(x)[indices] = values
    else:
        x[grids(x, indices, normalize_axis_index(axis, x.ndim))] = values
