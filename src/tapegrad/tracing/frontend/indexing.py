"""Indexing as NumPy does it, taken apart into strict primitives.

Integers, slices, None and Ellipsis become a view. Index arrays become a gather: the indexed axes
are moved to the front, and the result's axes are moved where NumPy puts them. A boolean mask is
its indices; how many there are is guarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.errors import ConversionError, UnsupportedError
from tapegrad.ir.tape import Literal
from tapegrad.primitives.base import Slice, broadcast_shapes
from tapegrad.primitives.elementwise import where
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.scatter import Nonzero, SetItem, gather, scatter_set
from tapegrad.primitives.views import (
    BroadcastTo,
    ExpandDims,
    GetItem,
    Transpose,
    indexed_shape,
)
from tapegrad.tracing.frontend.ufuncs import cast, cast_all, check_dtype, plain
from tapegrad.tracing.source import at_line
from tapegrad.tracing.trace import innermost
from tapegrad.tracing.tracer import Tracer, record, unwrap


def _entries(index: Any) -> list[Any]:
    return list(index) if isinstance(index, tuple) else [index]


def _is_array_index(k: Any) -> bool:
    if isinstance(k, Tracer):
        return k.ndim > 0 or k.dtype == np.bool_
    return isinstance(k, (np.ndarray, list)) or isinstance(k, (bool, np.bool_))


def _expand_ellipsis(entries: list[Any], ndim: int) -> list[Any]:
    """The index with its Ellipsis, or what is missing at the end, written out."""
    used = sum(_axes_used(k) for k in entries if k is not None and k is not Ellipsis)
    if used > ndim:
        raise IndexError(
            f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed"
        )
    fill = [slice(None)] * (ndim - used)
    if not any(k is Ellipsis for k in entries):
        return [*entries, *fill]
    position = next(i for i, k in enumerate(entries) if k is Ellipsis)
    if any(k is Ellipsis for k in entries[position + 1 :]):
        raise IndexError("an index can only have a single ellipsis ('...')")
    return [*entries[:position], *fill, *entries[position + 1 :]]


def _axes_used(k: Any) -> int:
    if _is_array_index(k):
        shape, dtype = _shape_dtype(k)
        return len(shape) if dtype == np.bool_ else 1
    return 1


def _shape_dtype(k: Any) -> tuple[tuple[int, ...], np.dtype]:
    if isinstance(k, Tracer):
        return k.shape, k.dtype
    array = np.asarray(k)
    return array.shape, array.dtype


def _integer(k: Any, extent: int, axis: int) -> int:
    at = k.__index__()
    if not -extent <= at < extent:
        raise IndexError(f"index {at} is out of bounds for axis {axis} with size {extent}")
    return at + extent if at < 0 else at


def _explicit(k: slice, extent: int) -> Slice:
    def bound(x: Any) -> Any:
        return x if x is None else x.__index__()

    start, stop, step = slice(bound(k.start), bound(k.stop), bound(k.step)).indices(extent)
    return Slice(start, len(range(start, stop, step)), step)


def _basic(entries: Sequence[Any], shape: tuple[int, ...]) -> tuple[tuple[Any, ...], list[int]]:
    """The explicit index, and where None puts new axes in the result."""
    index: list[int | Slice] = []
    new_axes: list[int] = []
    position = 0
    for k in entries:
        if k is None:
            new_axes.append(position)
            position += 1
        elif isinstance(k, slice):
            index.append(_explicit(k, shape[len(index)]))
            position += 1
        elif hasattr(k, "__index__"):
            index.append(_integer(k, shape[len(index)], len(index)))
        else:
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`), None and integer or boolean "
                f"arrays are valid indices, not {k!r}"
            )
    return tuple(index), new_axes


def _trivial(index: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    return all(k == Slice(0, n) for k, n in zip(index, shape, strict=True))


def getitem(x: Tracer, index: Any) -> Any:
    """`x[index]`."""
    entries = _expand_ellipsis(_entries(index), x.ndim)
    if any(_is_array_index(k) for k in entries):
        return _advanced(x, entries)
    explicit, new_axes = _basic(entries, x.shape)
    out = GetItem(explicit)(x) if not _trivial(explicit, x.shape) or not new_axes else x
    return ExpandDims(tuple(new_axes))(out) if new_axes else out


# ---- index arrays


def _index_arrays(k: Any, x: Tracer) -> list[Any]:
    """The integer index arrays that an array entry stands for: several for a boolean mask."""
    if isinstance(k, Tracer):
        if k.dtype != np.bool_:
            _require_integer(k.dtype)
            return [cast(k, np.intp)]
        count = Sum(tuple(range(k.ndim)))(cast(k, np.intp))
        k._trace.guard(count, unwrap(count), "the number of true elements of a mask")
        found = Nonzero(int(unwrap(count)), k.ndim)(k)
        return list(found) if isinstance(found, tuple) else [found]
    array = np.asarray(k)
    if array.dtype == np.bool_:
        return list(np.nonzero(array))
    if array.size == 0:
        array = array.astype(np.intp)
    _require_integer(array.dtype)
    return [array.astype(np.intp, copy=False)]


def _require_integer(dtype: np.dtype) -> None:
    if dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")


class _Plan:
    """An advanced index taken apart: basic part, axes to move first, index arrays, final order."""

    def __init__(self, x: Tracer, entries: list[Any]) -> None:
        basic: list[Any] = []
        arrays: list[Any] = []
        axes: list[int] = []  # of the basic result, where the arrays index
        runs: list[int] = []  # positions among the entries, to see whether they are adjacent
        position = 0  # axis of x
        axis = 0  # axis of the basic result
        for place, k in enumerate(entries):
            if k is None:
                basic.append(None)
                axis += 1
            elif _is_array_index(k):
                shape, dtype = _shape_dtype(k)
                if dtype == np.bool_:
                    here = x.shape[position : position + len(shape)]
                    if shape != here:
                        raise IndexError(
                            "boolean index did not match indexed array: mask of shape "
                            f"{shape}, axes of shape {here}"
                        )
                    if not shape:
                        raise UnsupportedError(
                            f"a single boolean as an index isn't supported{at_line()}. Use an if"
                        )
                for array in _index_arrays(k, x):
                    arrays.append(array)
                    basic.append(slice(None))
                    axes.append(axis)
                    position += 1
                    axis += 1
                runs.append(place)
            elif isinstance(k, slice):
                basic.append(k)
                position += 1
                axis += 1
            else:
                # An integer next to index arrays is one of them, for NumPy.
                at = _integer(k, x.shape[position], position)
                arrays.append(np.array(at, np.intp))
                basic.append(slice(None))
                axes.append(axis)
                runs.append(place)
                position += 1
                axis += 1
        self.basic = tuple(basic)
        self.axes = axes
        shape = broadcast_shapes(*[a.shape for a in arrays])
        self.arrays = [_broadcast_index(a, shape) for a in arrays]
        self.index_ndim = len(shape)
        adjacent = runs == list(range(runs[0], runs[0] + len(runs)))
        self.target = axes[0] if adjacent else 0

    def move_first(self, x: Any) -> Any:
        """`x[basic]` with the indexed axes in front."""
        out = getitem(x, self.basic)
        rest = [a for a in range(out.ndim) if a not in self.axes]
        order = (*self.axes, *rest)
        return out if order == tuple(range(out.ndim)) else Transpose(order)(out)

    def result_order(self, ndim: int) -> tuple[int, ...]:
        """Where the axes of the gathered array go: the index axes to where NumPy puts them."""
        index_axes = list(range(self.index_ndim))
        rest = list(range(self.index_ndim, ndim))
        return (*rest[: self.target], *index_axes, *rest[self.target :])


def _broadcast_index(array: Any, shape: tuple[int, ...]) -> Any:
    if array.shape == shape:
        return array
    if isinstance(array, Tracer):
        return BroadcastTo(shape)(array)
    return np.ascontiguousarray(np.broadcast_to(array, shape))


def _advanced(x: Tracer, entries: list[Any]) -> Any:
    plan = _Plan(x, entries)
    out = gather(plan.move_first(x), *plan.arrays)
    order = plan.result_order(out.ndim)
    return out if order == tuple(range(out.ndim)) else Transpose(order)(out)


# ---- writing


def setitem(x: Tracer, index: Any, value: Any) -> None:
    """`x[index] = value`: from here on, `x` and all its views have the new elements."""
    if x.is_scalar():
        raise TypeError("a traced scalar does not support item assignment")
    value = plain(value)
    if (
        x.dtype.kind != "f"
        and not isinstance(value, Tracer)
        and np.asarray(value).dtype.kind == "f"
    ):
        value = np.asarray(value).astype(x.dtype)
    if isinstance(value, Tracer) and value.dtype.kind == "f" and x.dtype.kind != "f":
        raise ConversionError(
            f"a traced float is assigned into an array of dtype {x.dtype}{at_line()}: it would be "
            "truncated and lose its derivative. Make the array with a float dtype"
        )
    entries = _expand_ellipsis(_entries(index), x.ndim)
    if any(_is_array_index(k) for k in entries):
        _set_advanced(x, entries, value)
        return
    explicit, new_axes = _basic(entries, x.shape)
    shape = indexed_shape(explicit)
    y = _fitted(x, value, shape, new_axes)
    x.write(SetItem(explicit), y)


def _fitted(x: Tracer, value: Any, shape: tuple[int, ...], new_axes: Sequence[int] = ()) -> Any:
    """`value` as a traced array of the dtype of `x` and of this shape, broadcast as in NumPy."""
    if isinstance(value, np.ndarray):
        check_dtype(value.dtype)
        (_, value) = cast_all([x, value], [x.dtype, x.dtype])
    else:
        value = cast(value, x.dtype)
    found = value.shape
    grown = list(shape)
    for axis in new_axes:
        grown.insert(axis, 1)
    extra = len(found) - len(grown)
    if extra > 0 and set(found[:extra]) == {1}:  # NumPy drops leading unit axes of the value
        from tapegrad.primitives.views import Squeeze

        value = _recorded(x, Squeeze(tuple(range(extra))), value)
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
        value = _recorded(x, BroadcastTo(tuple(grown)), value)
    if new_axes:
        from tapegrad.primitives.views import Squeeze

        value = _recorded(x, Squeeze(tuple(new_axes)), value)
    return value


def _recorded(x: Tracer, primitive: Any, value: Any) -> Any:
    """Apply a primitive to a value that may be a plain array, in the trace of `x`."""
    others = [value] if isinstance(value, Tracer) else []
    return record(innermost([x, *others]), primitive, [value])


def _set_advanced(x: Tracer, entries: list[Any], value: Any) -> None:
    (only, *rest) = entries
    if not rest and isinstance(only, (Tracer, np.ndarray)):
        shape, dtype = _shape_dtype(only)
        if dtype == np.bool_ and shape == x.shape and np.ndim(unwrap_shape(value)) == 0:
            _assign_all(x, where(only, _fitted(x, value, ()), x))
            return
    plan = _Plan(x, entries)
    moved = plan.move_first(x)
    shape = (*plan.arrays[0].shape, *moved.shape[len(plan.arrays) :])
    order = plan.result_order(len(shape))
    y = _fitted(x, value, tuple(shape[a] for a in order))
    if order != tuple(range(len(shape))):
        y = _recorded(x, Transpose(tuple(int(a) for a in np.argsort(order))), y)
    # `moved` is a view of `x`, or `x` itself: writing to it writes through.
    moved.write(scatter_set, y, *plan.arrays)


def unwrap_shape(value: Any) -> Any:
    """Something with the shape of `value`."""
    if isinstance(value, (Tracer, Literal)):
        return np.broadcast_to(0, value.shape)
    return value


def _assign_all(x: Tracer, new: Tracer) -> None:
    full = tuple(Slice(0, n) for n in x.shape)
    x.write(SetItem(full), new)


def take(x: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    """np.take."""
    if out is not None or mode != "raise":
        raise UnsupportedError(f"np.take with out= or mode= isn't supported{at_line()}")
    x = as_tracer(x, indices)
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = axis.__index__()
    axis = axis + x.ndim if axis < 0 else axis
    return x[
        (slice(None),) * axis + (indices if isinstance(indices, Tracer) else np.asarray(indices),)
    ]


def as_tracer(x: Any, *others: Any) -> Tracer:
    """`x` as a traced array, recorded in the trace of the tracers among `others`."""
    if isinstance(x, Tracer):
        return x
    from tapegrad.tracing.trace import to_operand

    x = plain(x)
    if isinstance(x, Tracer):
        return x
    trace = innermost([o for o in others if isinstance(o, Tracer)])
    value = np.asarray(x)
    check_dtype(value.dtype)
    operand, _ = to_operand(trace, value if value.ndim else value[()])
    return Tracer(trace, operand, value)


def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Any:
    """np.take_along_axis."""
    x = as_tracer(x, indices)
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = axis % x.ndim
    grids: list[Any] = []
    shape = indices.shape
    for a in range(x.ndim):
        if a == axis:
            grids.append(indices)
        else:
            grids.append(
                np.arange(x.shape[a]).reshape([-1 if b == a else 1 for b in range(len(shape))])
            )
    return x[tuple(grids)]


def put_along_axis(x: Any, indices: Any, values: Any, axis: int | None) -> None:
    """np.put_along_axis."""
    assert axis is not None
    axis = axis % x.ndim
    grids = [
        indices if a == axis else np.arange(n).reshape([-1 if b == a else 1 for b in range(x.ndim)])
        for a, n in enumerate(x.shape)
    ]
    x[tuple(grids)] = values
