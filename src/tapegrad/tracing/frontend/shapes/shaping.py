"""Shapes, axes and repetition: reshape, transpose, squeeze, broadcast, flip, roll, tile, repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from tapegrad.core.arrays import is_half, native
from tapegrad.errors import UnsupportedError
from tapegrad.observe.program.source import at_line, is_in_package
from tapegrad.observe.sides.effects import Stopped
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Slice
from tapegrad.primitives.halves import Rounded
from tapegrad.primitives.scatter import Concatenate
from tapegrad.primitives.views import (
    BroadcastTo,
    Diagonal,
    ExpandDims,
    GetItem,
    PlaceDiagonal,
    Reshape,
    Squeeze,
    Transpose,
)
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import copy_of, of_array, unlinked
from tapegrad.tracing.frontend.operands.operands import as_tracer, cast, check_dtype, recorded
from tapegrad.tracing.recording.chains import show, views_of
from tapegrad.tracing.recording.layout import laid_out_like, lay_out
from tapegrad.tracing.recording.trace import Trace, current_trace
from tapegrad.tracing.tracers.subclass_tracers import bare
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, stand_in


def ints(x: Any) -> tuple[int, ...]:
    """A shape, or a list of axes or counts, as a tuple of integers. Traced ones are guarded."""
    if isinstance(x, int) or not (isinstance(x, (tuple, list)) or np.ndim(x)):
        return (x.__index__(),)
    return tuple(k.__index__() for k in x)


def _shown(shape: Sequence[int]) -> str:
    """A shape as in NumPy's messages."""
    return str(tuple(shape)).replace(" ", "")


@stands_for(np, of_complex=True)
@of_array
def reshape(x: Any, /, shape: Any = None, order: str = "C", *, copy: Any = None) -> Any:
    """np.reshape."""
    if order == "A":
        order = "F" if x.ndim > 1 and x.flags.fnc else "C"
    if order not in ("C", "F"):
        np.reshape(np.empty(x.shape), shape, order)  # type: ignore[call-overload]  # NumPy's own error
    dims = list(ints(shape))
    if dims.count(-1) == 1:
        known = math.prod(n for n in dims if n != -1)
        if known == 0 or x.size % known:
            raise ValueError(f"cannot reshape array of size {x.size} into shape {_shown(dims)}")
        dims[dims.index(-1)] = x.size // known
    if math.prod(dims) != x.size or any(n < 0 for n in dims):
        raise ValueError(f"cannot reshape array of size {x.size} into shape {_shown(dims)}")
    if copy is False:
        _check_view(x, dims, order)
    if order == "F":
        out = transpose(Reshape(tuple(reversed(dims)))(transpose(x)))
    else:
        out = Reshape(tuple(dims))(x)
    return copy_of(out) if copy else out


@stands_for(np.ndarray, name="reshape", of_complex=True)
def _reshape(x: Any, *shape: Any, order: str = "C", copy: Any = None) -> Any:
    return reshape(x, shape[0] if len(shape) == 1 else shape, order, copy=copy)


def _check_view(x: Any, dims: list[int], order: Any) -> None:
    """Raise NumPy's own error where a reshape can't be a view."""
    value = x._read()[1]
    if value is None or not x._owner._ordered:
        raise UnsupportedError(
            f"whether a reshape can be a view depends on how the array lies in memory, which isn't "
            f"followed here{at_line()}. Leave out copy=False"
        )
    np.reshape(value, dims, order, copy=False)


def set_shape(x: Any, shape: Any) -> None:
    """`x.shape = shape`, for an array that the function has made. `x` becomes a view of the owner
    of its memory; if `x` itself was the owner, of a new tracer that takes its place."""
    same = shape if isinstance(shape, tuple) else ()
    if same == x._aval.shape and all(type(n) is int for n in same):
        return
    trace = _let_be_shaped(x)
    if isinstance(value := x._read()[1], np.ndarray):
        value.view().shape = shape  # NumPy's own error
    view, root = reshape(bare(x) if x._subclass else x, shape, copy=False), x._root
    if root is None:
        root = stand_in(trace, *x._read())
        root._version, root._ordered = x._version, x._ordered
        root._may_alias, root._doubt = x._may_alias, x._doubt
        for other in views_of(x):
            show(other, root, other._chain)
    _become(x, view)
    show(x, root, view._chain)


@stands_for(np.ndarray, name="resize", of_complex=True)
def resize_in_place(x: Any, *new_shape: Any, refcheck: bool = True) -> None:
    """ndarray.resize, for an array that the function has made: append zeros, or cut off."""
    trace = _let_be_shaped(x)
    np.zeros(x.shape).resize(*new_shape, refcheck=False)  # NumPy's own errors
    shape = new_shape[0] if len(new_shape) == 1 else new_shape
    if x._root is not None or (refcheck and views_of(x)):
        np.empty(2)[:1].resize(3)
    value = x._read()[1]
    if value is None or x._subclass or not value.flags.c_contiguous or views_of(x):
        raise UnsupportedError(
            "ndarray.resize of an array with views, of a subclass, or not in row-major order"
            f"{at_line()}, isn't followed. Make another array: np.concatenate([x, np.zeros(n)])"
        )
    dims = x.shape if shape is None or shape == () else ints(shape)
    size = math.prod(dims)
    flat = ravel(x)[:size]
    if size > x.size:
        flat = np.concatenate([flat, np.zeros(size - x.size, x.dtype)])
    _become(x, reshape(copy_of(flat), dims))
    x._version += 1
    trace.note_write(x)


def _let_be_shaped(x: Any) -> Trace:
    """The trace of an array whose shape is to be set in place. Raises an error unless the function
    has made the array."""
    if getattr(x, "_become_traced", None) is not None:
        x._become_traced()
    trace, here = x._trace, current_trace()
    given = x._root is None and id(x) in trace.arguments
    own = type(x) is ArrayTracer or x._subclass is not None
    if given or not own or here is None or here is not trace:
        raise UnsupportedError(
            f"the shape of a traced array is set in place{at_line()}, which a trace follows of "
            "arrays alone that the function has made. Make another array: y = x.reshape(...)"
        )
    if trace.writable is not None and not trace.writable(x._owner):
        raise Stopped
    return here


def _become(x: Any, other: Any) -> None:
    """Give a tracer the variable, value and type of another one."""
    x._aval, (x._operand, x._value) = other._aval, other._read()


@stands_for(np, np.ndarray, of_complex=True)
def ravel(x: Any, order: str = "C") -> Any:
    """np.ravel: a view if the array is contiguous in this order, else a copy."""
    if order == "K":  # in memory order: the axis with the largest stride first
        apart = x.strides if x.ndim > 1 else ()
        x = transpose(x, sorted(range(x.ndim), key=lambda k: -abs(apart[k]))) if apart else x
        order = "C"
    elif order == "A":
        order = "F" if x.ndim > 1 and x.flags.fnc else "C"
    flat = reshape(x, -1, order)
    value = x._read()[1]
    lies = "F_CONTIGUOUS" if order == "F" else "C_CONTIGUOUS"
    return flat if value is None or value.flags[lies] else unlinked(flat, x)


@stands_for(np.ndarray, of_complex=True)
def flatten(x: Any, order: str = "C") -> Any:
    """ndarray.flatten: always a copy."""
    return copy(ravel(x, order))


@stands_for(np, of_complex=True)
@of_array
def transpose(x: Any, axes: Any = None) -> Any:
    """np.transpose."""
    if axes is None:
        order = tuple(reversed(range(x.ndim)))
    else:
        order = tuple(normalize_axis_index(a, x.ndim) for a in ints(axes))
        if sorted(order) != list(range(x.ndim)):
            raise ValueError("axes don't match array")
    return Transpose(order)(x)


@stands_for(np.ndarray, name="transpose", of_complex=True)
def _transpose(x: Any, *axes: Any) -> Any:
    if len(axes) == 1 and (axes[0] is None or np.ndim(axes[0])):
        axes = axes[0]
    return transpose(x, None if axes is None or not len(axes) else axes)


@stands_for(np, np.ndarray, of_complex=True)
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """np.swapaxes."""
    order = list(range(x.ndim))
    a, b = normalize_axis_index(axis1, x.ndim), normalize_axis_index(axis2, x.ndim)
    order[a], order[b] = order[b], order[a]
    return Transpose(tuple(order))(x)


@stands_for(np, of_complex=True)
@of_array
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


@stands_for(np, np.ndarray, of_complex=True)
@of_array
def squeeze(x: Any, axis: Any = None) -> Any:
    """np.squeeze."""
    if axis is None:
        axes = tuple(a for a, n in enumerate(x.shape) if n == 1)
    else:
        if x.ndim == 0 and axis in (0, -1):
            axis = ()  # NumPy accepts these axes of a scalar
        axes = tuple(sorted(normalize_axis_tuple(axis, x.ndim)))
        if any(x.shape[a] != 1 for a in axes):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return Squeeze(axes)(x) if axes else reshape(x, x.shape)


@stands_for(np, of_complex=True)
def expand_dims(x: Any, axis: Any) -> Any:
    """np.expand_dims."""
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    return ExpandDims(tuple(sorted(normalize_axis_tuple(axes, x.ndim + len(axes)))))(x)


@stands_for(np, of_complex=True)
def broadcast_to(x: Any, shape: Any, subok: bool = False) -> Any:
    """np.broadcast_to."""
    shape = ints(shape)
    if len(shape) < x.ndim or np.broadcast_shapes(x.shape, shape) != shape:
        raise ValueError(f"cannot broadcast an array of shape {x.shape} to shape {shape}")
    return BroadcastTo(shape)(copy_of(x) if x._is_scalar() else x)  # a view, which is read-only


@stands_for(np, of_complex=True)
def broadcast_arrays(*xs: Any, subok: bool = False) -> tuple[Any, ...]:
    """np.broadcast_arrays."""
    shape = np.broadcast_shapes(*[np.shape(x) for x in xs])
    arrays = [as_tracer(x, *xs) for x in xs]
    arrays = [copy_of(x) if x._is_scalar() else x for x in arrays]
    return tuple(reshape(x, shape) if x.shape == shape else broadcast_to(x, shape) for x in arrays)


@stands_for(np, of_complex=True)
def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """np.roll. A traced shift makes indices of the entries."""
    x = as_tracer(x, shift)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    if not x.ndim:
        np.roll(np.zeros(()), shift, axis)  # NumPy's own error
    axes = normalize_axis_tuple(axis, x.ndim, allow_duplicate=True)
    if isinstance(shift, Tracer):
        for a in axes:  # the same shift along each
            index = np.mod(np.subtract(np.arange(x.shape[a]), shift), max(x.shape[a], 1))
            x = x[(slice(None),) * a + (index,)]
        return x
    given = x
    steps = [int(by) for by in (shift if np.ndim(shift) else (shift,))]  # NumPy accepts floats, too
    for a, by in zip(*np.broadcast_arrays(axes, steps), strict=True):
        n = x.shape[a]
        s = int(by) % n if n else 0
        if s:
            before = [Slice(0, m) for m in x.shape]
            after = list(before)
            before[a], after[a] = Slice(n - s, s), Slice(0, n - s)
            x = Concatenate(a)(GetItem(tuple(before))(x), GetItem(tuple(after))(x))
    return unlinked(x, given)


@stands_for(np, of_complex=True)
def tile(x: Any, reps: Any) -> Any:
    """np.tile: the array is broadcast along new axes, which a reshape merges with the others."""
    times = list(ints(reps))
    ndim = max(x.ndim, len(times))
    times = [1] * (ndim - len(times)) + times
    x = reshape(x, (1,) * (ndim - x.ndim) + x.shape)
    apart = [n for t, m in zip(times, x.shape, strict=True) for n in (t, m)]
    grown = expand_dims(x, tuple(range(0, 2 * ndim, 2)))
    merged = [t * m for t, m in zip(times, x.shape, strict=True)]
    return lay_out(unlinked(reshape(broadcast_to(grown, apart), merged), x), "C")


@stands_for(np, np.ndarray, of_complex=True)
def repeat(x: Any, repeats: Any, axis: Any = None) -> Any:
    """np.repeat."""
    if axis is None:
        x, axis = ravel(x), 0
    x = at_least_a_vector(x)
    axis = normalize_axis_index(axis, x.ndim)
    if np.ndim(repeats) == 0:
        times = int(repeats)
        if times < 0:
            raise ValueError("repeats may not contain negative values.")
        grown = expand_dims(x, axis + 1)
        shape = list(grown.shape)
        shape[axis + 1] = times
        merged = list(x.shape)
        merged[axis] *= times
        return unlinked(reshape(broadcast_to(grown, shape), merged), x)
    picks = np.repeat(np.arange(x.shape[axis]), [*map(int, repeats)])
    return x[(slice(None),) * axis + (picks,)]


@stands_for(np, of_complex=True)
def apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """np.apply_along_axis. The function runs, and is recorded, once for each vector."""
    axis = normalize_axis_index(axis, arr.ndim)
    vectors = np.moveaxis(arr, axis, -1)
    lead = vectors.shape[:-1]
    results = [as_tracer(func1d(vectors[k], *args, **kwargs), arr) for k in np.ndindex(lead)]
    if not results:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    whole = np.stack(results).reshape(lead + results[0].shape)
    extra = range(len(lead), whole.ndim)
    return np.moveaxis(whole, tuple(extra), tuple(range(axis, axis + len(extra))))


# ---- matrices


@stands_for(np, np.ndarray, of_complex=True)
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """np.diagonal."""
    return Diagonal(int(offset))(moveaxis(x, (axis1, axis2), (-2, -1)))


@stands_for(np, of_complex=True)
def diag(v: Any, k: int = 0) -> Any:
    """np.diag."""
    k = int(k)
    if v.ndim == 1:
        n = v.shape[0] + abs(k)
        return PlaceDiagonal((n, n), k)(v)
    if v.ndim != 2:
        raise ValueError("Input must be 1- or 2-d.")
    return diagonal(v, k)


@stands_for(np, of_complex=True)
def diagflat(v: Any, k: int = 0) -> Any:
    """np.diagflat."""
    return diag(ravel(v), k)


@stands_for(np, np.ndarray, of_complex=True)
def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Any:
    """np.trace."""
    return np.sum(diagonal(a, offset, axis1, axis2), -1, dtype, out)


# ---- copies and arrays like another


@stands_for(np.ndarray, of_complex=True)
def copy(x: Any, order: str = "C") -> Any:
    """ndarray.copy. The copy of a scalar is a scalar."""
    return ew.copy(x) if x._is_scalar() else copy_of(x, order)


def at_least_a_vector(x: Any) -> Any:
    """`x`, or a vector of one element for a scalar, as in NumPy's older functions."""
    return x if x.ndim else ravel(x)


@stands_for(np.ndarray, of_complex=True)
def view(x: Any, dtype: Any = None, type: Any = None) -> Any:
    """ndarray.view with the same dtype and class."""
    if dtype is not None and np.dtype(dtype) != x.dtype:
        use = "NumPy's functions in the place of that package's" if is_in_package() else "astype"
        raise x._trace.refused(
            UnsupportedError(
                f"ndarray.view as another type reads the bits of an array, which a trace doesn't "
                f"follow{at_line()}. Use {use}"
            )
        )
    return Reshape(x.shape)(x)


@stands_for(np, np.ndarray, of_complex=True)
def astype(
    x: Any,
    dtype: Any,
    order: str = "K",
    casting: Any = "unsafe",
    subok: bool = True,
    copy: bool = True,
    *,
    device: Any = None,
) -> Any:
    """ndarray.astype."""
    dtype = np.dtype(dtype)
    check_dtype(dtype)
    if not np.can_cast(x.dtype, dtype, casting):
        raise TypeError(
            f"Cannot cast array data from {x.dtype!r} to {dtype!r} according to the rule "
            f"{casting!r}"
        )
    if is_half(dtype):
        return lay_out(halved(x, dtype), order)
    if dtype != x.dtype:
        return lay_out(cast(x, dtype) if x.dtype.kind == "c" else ew.AsType(dtype)(x), order)
    if not copy:
        if order in ("C", "F") and x.ndim > 1:
            raise UnsupportedError(
                f"astype with copy=False and order={order!r} is a copy or not, as the array lies "
                f"in memory{at_line()}. Leave one of them out"
            )
        return x
    return lay_out(ew.copy(x), order)


def halved(x: Any, dtype: np.dtype) -> Any:
    """A traced array rounded to half precision, and stored as float32 until it leaves the trace."""
    real = x if x.dtype.kind == "f" else cast(x, np.dtype(np.float32))
    out = Rounded(native(dtype))(real)
    out._trace.keep_as(out, native(dtype))
    return out


@stands_for(np, of_complex=True)
def full_like(
    x: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    **kwargs: Any,
) -> Any:
    """np.full_like. The result is traced, so traced values can be written to it."""
    x = as_tracer(x, fill_value)
    dims = x.shape if shape is None else ints(shape)
    dtype = x.dtype if dtype is None else np.dtype(dtype)
    if type(fill_value) is int:
        dtype.type(fill_value)  # NumPy's OverflowError, if it doesn't fit
    value = cast(as_tracer(fill_value, x), dtype)
    # A view of one value isn't writable, but a copy of it is. A Python number becomes a literal.
    out = recorded(x, ew.copy, recorded(x, BroadcastTo(dims), value))
    if order == "K" and x._value is not None:
        out._value = laid_out_like(out._value, np.empty_like(x._value, out.dtype, shape=dims))
    out._ordered = x._owner._ordered and x._value is not None
    return lay_out(out, order)


def _filled_like(value: int) -> Callable[..., Any]:
    def function(
        x: Any,
        dtype: Any = None,
        order: str = "K",
        subok: bool = True,
        shape: Any = None,
        **kwargs: Any,
    ) -> Any:
        return full_like(x, value, dtype, order, subok, shape)

    return function


zeros_like = stands_for(np, name="zeros_like empty_like", of_complex=True)(_filled_like(0))
ones_like = stands_for(np, name="ones_like", of_complex=True)(_filled_like(1))
