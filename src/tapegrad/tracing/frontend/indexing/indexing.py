"""NumPy's indexing, decomposed into strict primitives.

Integers, slices, None and Ellipsis make a view. Index arrays make a gather: the indexed axes are
moved to the front, and the axes of the result to NumPy's positions. A boolean mask is converted to
indices, whose number is guarded. Captured index arrays are read at each call.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.ir.tape import Literal
from tapegrad.primitives.base import Slice, broadcast_shapes
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.scatter import Nonzero, gather
from tapegrad.primitives.views import (
    BroadcastTo,
    ExpandDims,
    GetItem,
    Reshape,
    Transpose,
    indexed_shape,
)
from tapegrad.primitives.windows import Window
from tapegrad.tracing.frontend.indexing.bounds import choice, integer, note_beyond
from tapegrad.tracing.frontend.indexing.masked import select
from tapegrad.tracing.frontend.indexing.moving_slices import moving
from tapegrad.tracing.frontend.indexing.varying_slices import front
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import in_rows
from tapegrad.tracing.frontend.operands.operands import (
    as_operand,
    as_tracer,
    cast,
    common_dtype,
    recorded,
    store,
)
from tapegrad.tracing.frontend.operands.parameters import beyond
from tapegrad.tracing.recording.trace import innermost
from tapegrad.tracing.tracers.fast_parts import part
from tapegrad.tracing.tracers.tracer import Tracer, link_chosen, stand_in, unwrap

# ---- decomposition


def _normal(k: Any) -> Any:
    """An entry of an index, with sequences and booleans as arrays."""
    if isinstance(k, Tracer):
        return k.__index__() if k._either else k
    if isinstance(k, (list, tuple)):
        found = as_operand(k) if len(k) else np.empty(0)
        return found if np.size(found) else np.empty(np.shape(found), np.intp)
    if isinstance(k, (bool, np.bool_)):
        return np.asarray(k)
    if k is None or isinstance(k, (np.ndarray, slice, str, bytes)) or hasattr(k, "__index__"):
        return k
    if hasattr(k, "__array__"):
        return np.asarray(k)
    return _normal(list(k)) if hasattr(k, "__getitem__") and hasattr(k, "__len__") else k


def _is_array(k: Any) -> bool:
    """Whether an entry is an index array. A traced integer isn't: it is guarded, or chosen."""
    if isinstance(k, Tracer):
        return k.ndim > 0 or k.dtype == np.bool_
    return isinstance(k, np.ndarray)


def _axes_used(k: Any) -> int:
    """The number of axes of the operand that an entry indexes."""
    if k is None or k is Ellipsis:
        return 0
    return k.ndim if _is_array(k) and k.dtype == np.bool_ else 1


def _entries(index: Any, ndim: int) -> list[Any]:
    """The index as a list that covers all axes. An Ellipsis is replaced by slices; one that covers
    no axis is kept."""
    entries = [_normal(k) for k in (index if isinstance(index, tuple) else (index,))]
    used = sum(map(_axes_used, entries))
    if used > ndim:
        raise IndexError(
            f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed"
        )
    fill: list[Any] = [slice(None)] * (ndim - used)
    places = [n for n, k in enumerate(entries) if k is Ellipsis]
    if not places:
        return entries + fill
    if len(places) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    return entries[: places[0]] + (fill or [Ellipsis]) + entries[places[0] + 1 :]


def _is_chosen(k: Any, x: Tracer) -> bool:
    """Whether an entry is an integer that may differ between calls or rounds. It remains a value,
    unless a guard already fixes it."""
    is_one = isinstance(k, Tracer) and k.ndim == 0 and k.dtype.kind in "iu"
    return is_one and not innermost([k, x]).is_guarded(k)


def _explicit(k: slice, extent: int) -> Slice:
    """The slice with explicit bounds. Traced ones are guarded."""

    def bound(x: Any) -> Any:
        return x if x is None else operator.index(x)

    start, stop, step = slice(bound(k.start), bound(k.stop), bound(k.step)).indices(extent)
    return Slice(start, len(range(start, stop, step)), step)


def _index_arrays(k: Any, x: Tracer) -> list[Tracer]:
    """The integer index arrays of an array entry: one for each axis of a mask."""
    k = as_tracer(k, x)
    if k.dtype == np.bool_:
        count = Sum(tuple(range(k.ndim)))(cast(k, np.intp))
        k._trace.guard(count, unwrap(count), "the number of true elements of a mask")
        found = Nonzero(int(unwrap(count)), k.ndim)(k)
        return list(found) if isinstance(found, tuple) else [found]
    if k.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    return [cast(k, np.intp)]


_BOUNDS = (int, type(None))


@lru_cache(maxsize=4096)
def _bounded(start: int | None, stop: int | None, step: int | None, extent: int) -> Slice:
    return _explicit(slice(start, stop, step), extent)


def plain_index(x: Tracer, index: Any) -> tuple[int | Slice, ...] | None:
    """The integer or slice for each axis of `x`, if the index consists of plain integers within
    bounds and plain slices, as most do; else None."""
    shape = x._aval.shape
    if type(index) is int and len(shape) == 1:  # the most frequent index in loops
        (extent,) = shape
        inside = -extent <= index < extent
        return (index + extent if index < 0 else index,) if inside else None
    entries = index if type(index) is tuple else (index,)
    if len(entries) > len(shape):
        return None
    explicit: list[int | Slice] = []
    for k, extent in zip(entries, shape, strict=False):
        if type(k) is int:
            if not -extent <= k < extent:
                return None
            explicit.append(k + extent if k < 0 else k)
        elif type(k) is slice and all(type(b) in _BOUNDS for b in (k.start, k.stop, k.step)):
            explicit.append(_bounded(k.start, k.stop, k.step, extent))
        else:
            return None
    explicit += [_bounded(0, None, None, extent) for extent in shape[len(entries) :]]
    return tuple(explicit) if explicit else None


class IndexParts:
    """An index of an operand `x`, decomposed.

    `explicit` has an integer or a slice for each axis of `x`, and `new_axes` are the positions of
    None in the result. If there are index arrays, this is only the first step: `axes` of its result
    are then indexed by `arrays`, which have one shape, and the axes of that shape go to `target`.
    `steps` holds the axes and values of `chosen` integers, for which `explicit` has 0.
    """

    def __init__(self, x: Tracer, index: Any) -> None:
        entries = _entries(index, x.ndim)
        self.advanced = any(map(_is_array, entries))
        self.explicit: tuple[int | Slice, ...] = ()
        self.new_axes: list[int] = []
        self.axes: list[int] = []
        self.steps: list[tuple[int, Any]] = []
        found: list[Any] = []  # index arrays, and integers among them
        runs: list[int] = []  # their positions, to see whether they are adjacent
        axis = 0  # in the result of the first step
        for place, k in enumerate(entries):
            if k is Ellipsis:
                continue
            extent = x.shape[len(self.explicit)] if len(self.explicit) < x.ndim else 0
            if k is None:
                self.new_axes.append(axis)
                axis += 1
            elif isinstance(k, slice):
                position = len(self.explicit)
                moves = None if self.advanced else moving(k, x, extent, position)
                self.steps += [] if moves is None else [(position, moves[0])]
                self.explicit += (_explicit(k, extent) if moves is None else Slice(0, moves[1]),)
                axis += 1
            elif not _is_array(k) and not self.advanced and _is_chosen(k, x):
                position = len(self.explicit)
                self.steps.append((position, choice(k, extent, position)))
                self.explicit += (0,)
            elif not _is_array(k) and not self.advanced:
                self.explicit += (integer(k, extent, len(self.explicit)),)
            else:
                arrays, on = self._indexing(k, x)
                self.explicit += tuple(Slice(0, n) for n in on)
                self.new_axes += [] if on else [axis]
                found += arrays
                self.axes += range(axis, axis + len(arrays))
                axis += len(arrays)
                runs.append(place)
        self.shape = _index_shape([a.shape for a in found if not isinstance(a, int)])
        self.arrays = [_index_array(a, self.shape, x) for a in found]
        adjacent = bool(runs) and runs == list(range(runs[0], runs[-1] + 1))
        self.target = self.axes[0] if adjacent else 0

    def _indexing(self, k: Any, x: Tracer) -> tuple[list[Any], Sequence[int]]:
        """The index arrays or integers of an entry, and the extents of the axes they index."""
        position = len(self.explicit)
        if not _is_array(k):
            extent = x.shape[position]
            if _is_chosen(k, x):
                return [choice(k, extent, position)], [extent]
            return [integer(k, extent, position)], [extent]
        if k.dtype == np.bool_ and k.ndim == 0:  # a new axis of extent 1 or 0
            return [np.zeros(int(bool(k)), np.intp)], []
        axes = x.shape[position : position + max(_axes_used(k), 1)]
        fits = len(axes) == k.ndim and all(m in (0, n) for m, n in zip(k.shape, axes, strict=True))
        if k.dtype == np.bool_ and not fits:  # an empty mask fits any extent, as in NumPy
            raise IndexError(
                f"boolean index did not match indexed array: the mask's shape is {k.shape}, and "
                f"that of the axes {axes}"
            )
        return _index_arrays(k, x), axes

    def view(self, x: Tracer) -> Any:
        """The first step: integers, slices and None."""
        if self.steps:
            out = self.window(x, bool(self.new_axes))
            return ExpandDims(tuple(self.new_axes))(out) if self.new_axes else out
        if self.new_axes and not indexed_shape(self.explicit) and x.ndim:
            # All axes are new: a view of one element. The element itself would be a scalar.
            return Reshape((1,) * len(self.new_axes))(GetItem(self.cell)(x))
        is_all = all(k == Slice(0, n) for k, n in zip(self.explicit, x.shape, strict=True))
        out = x if is_all and self.new_axes else GetItem(self.explicit)(x)
        return ExpandDims(tuple(self.new_axes))(out) if self.new_axes else out

    @property
    def moves(self) -> tuple[tuple[int, ...], ...]:
        """The coefficients by which windows move with `steps`."""
        return tuple(
            [tuple([int(k == at) for k in range(len(self.explicit))]) for at, _ in self.steps]
        )

    def window(self, x: Tracer, array: bool) -> Any:
        """The part of `x` at chosen integers, a view. It is an `array` even if it has no axes."""
        window, steps = Window(self.explicit, self.moves), [step for _, step in self.steps]
        out = recorded(x, window, x, *steps)
        if array and not out.shape:
            out = out._revalued(None if out._value is None else np.asarray(out._value))
        link_chosen(out, window, x, steps)
        return out

    @property
    def cell(self) -> tuple[Slice, ...]:
        """The element at the integers, as slices of extent 1, which make a view."""
        return tuple(Slice(int(k), 1) for k in self.explicit)  # type: ignore[arg-type]

    def move_first(self, x: Tracer) -> Any:
        """The view with the axes for index arrays in front."""
        out = self.view(x)
        rest = [a for a in range(out.ndim) if a not in self.axes]
        order = (*self.axes, *rest)
        return out if order == tuple(range(out.ndim)) else Transpose(order)(out)

    def _order(self, ndim: int) -> tuple[int, ...]:
        """The permutation that moves a gathered array's index axes to NumPy's positions."""
        own = list(range(len(self.shape)))
        rest = list(range(len(self.shape), ndim))
        return (*rest[: self.target], *own, *rest[self.target :])

    def gathered(self, moved: Any) -> Any:
        """`x[index]`, from the result of `move_first`."""
        try:
            out = gather(moved, *self.arrays)
        except IndexError:
            note_beyond(moved, self.arrays)
            raise
        order = self._order(out.ndim)
        return out if order == tuple(range(out.ndim)) else Transpose(order)(out)

    def result_shape(self, moved: Any) -> tuple[int, ...]:
        """The shape of `x[index]`."""
        shape = (*self.shape, *moved.shape[len(self.arrays) :])
        return tuple(shape[a] for a in self._order(len(shape)))

    def arranged(self, x: Tracer, value: Any) -> Any:
        """A value of the result's shape, with its axes in the order of the gather."""
        order = self._order(len(value.shape))
        if order == tuple(range(len(order))):
            return value
        return recorded(x, Transpose(tuple(int(a) for a in np.argsort(order))), value)


def _index_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape of several index arrays."""
    try:
        return broadcast_shapes((), *shapes)
    except ValueError as error:
        raise IndexError(f"shape mismatch: indexing arrays: {error}") from None


def _index_array(array: Any, shape: tuple[int, ...], x: Tracer) -> Any:
    """An index array or integer, broadcast."""
    if isinstance(array, int):
        return recorded(x, BroadcastTo(shape), Literal(np.intp(array)))
    array = as_tracer(array, x)
    return array if array.shape == shape else BroadcastTo(shape)(array)


# ---- reading


def getitem(x: Tracer, index: Any) -> Any:
    """`x[index]`."""
    plain = plain_index(x, index)
    if plain is not None:
        return part(GetItem(plain), x)
    found = select(x, index, _taken)
    if found is None:
        found = front(x, index, _taken)
    return _taken(x, index) if found is None else found


def _taken(x: Tracer, index: Any) -> Any:
    """`x[index]`, for an index that isn't of plain integers and slices alone."""
    found = IndexParts(x, index)
    if found.advanced:
        return found.gathered(found.move_first(x))
    one = not indexed_shape(found.explicit) and not found.new_axes
    if one and is_dotted(index) and not x._is_scalar():
        # With an Ellipsis, a result without axes is a view and not a scalar.
        if found.steps:
            return found.window(x, array=True)
        return Reshape(())(GetItem(found.cell)(x) if found.cell else x)
    return found.view(x)


def is_dotted(index: Any) -> bool:
    return index is Ellipsis or (isinstance(index, tuple) and any(k is Ellipsis for k in index))


def as_python(x: Tracer) -> Any:
    """A scalar as a traced Python number."""
    if x.dtype == np.uint64:
        return int(x)  # guarded: it may exceed the range of traced integers
    x = x._as_scalar()
    x = cast(x, {"c": np.complex128, "f": np.float64, "b": np.bool_}.get(x.dtype.kind, np.int64))
    operand, value = x._read()
    return stand_in(x._trace, operand, value if value is None else np.asarray(value)[()], True)


def element(x: Tracer, index: tuple[Any, ...]) -> Any:
    """`x.item(*index)`. A boolean is guarded."""
    if len(index) == 1 and isinstance(index[0], tuple):
        (index,) = index
    if not index and x.size != 1:
        raise ValueError("can only convert an array of size 1 to a Python scalar")
    if len(index) not in (0, 1, x.ndim):
        raise ValueError("incorrect number of indices for array")
    if len(index) > 1:
        found = x[index]
    else:
        found = x.reshape(-1)[integer(index[0], x.size, 0) if index else 0]
    return bool(found) if found.dtype.kind == "b" else as_python(found)


def counting(indices: Any) -> Any:
    """Indices for functions that convert them, as NumPy does: floats, alone or in a list but not in
    an array, without their fractions, and booleans to 0 and 1."""
    if isinstance(indices, Tracer):
        return indices.astype(np.int64) if indices.dtype == np.bool_ else indices
    found = np.asarray(indices)
    floats = found.dtype.kind == "f" and not isinstance(indices, np.ndarray)
    return found.astype(np.int64) if floats or found.dtype == np.bool_ else indices


@stands_for(np, np.ndarray, of_complex=True)
@in_rows
def take(x: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    """np.take."""
    x = as_tracer(x, indices)
    if axis is None:
        x, axis = x.reshape(-1), 0
    x = x if x.ndim else x.reshape(-1)
    axis = normalize_axis_index(axis.__index__(), x.ndim)
    indices, mode = as_tracer(counting(indices), x), beyond(mode)
    if mode == "wrap":
        indices = np.mod(indices, x.shape[axis])
    elif mode == "clip":
        indices = np.clip(indices, 0, x.shape[axis] - 1)
    result = x[(slice(None),) * axis + (indices,)]
    if out is None:
        return result
    out[...] = result
    return out


def grids(x: Any, indices: Any, axis: int) -> tuple[Any, ...]:
    """The index with `indices` along an axis, and ranges along the others."""
    grids = []
    for a, n in enumerate(x.shape):
        along = [-1 if b == a else 1 for b in range(x.ndim)]
        grids.append(indices if a == axis else np.arange(n).reshape(along))
    return tuple(grids)


@stands_for(np, of_complex=True)
def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Any:
    """np.take_along_axis."""
    along = 0 if axis is None else normalize_axis_index(axis, x.ndim)  # lists are an error
    x = as_tracer(x, indices).reshape(-1) if axis is None else as_tracer(x, indices)
    return x[grids(x, indices, along)]


@stands_for(np, of_complex=True)
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    """np.compress."""
    a = as_tracer(a, condition)
    (chosen,) = nonzero(as_tracer(condition, a))
    return take(a, chosen, axis, out)


@stands_for(np.ndarray, name="compress", of_complex=True)
def _compress(x: Any, condition: Any, axis: Any = None, out: Any = None) -> Any:
    return compress(condition, x, axis, out)


@stands_for(np, np.ndarray, of_complex=True, lists="choices")
@in_rows
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """np.choose."""
    a = as_tracer(a, *choices)
    if not np.can_cast(a.dtype, np.intp):
        raise TypeError(
            f"Cannot cast array data from {a.dtype!r} to dtype('int64') according to the rule "
            "'safe'"
        )
    a, mode = cast(a, np.intp), beyond(mode)  # booleans choose as 0 and 1, and aren't a mask
    if mode == "raise" and not np.all((a >= 0) & (a < len(choices))):
        raise ValueError("invalid entry in choice array")
    if mode != "raise":
        a = np.mod(a, len(choices)) if mode == "wrap" else np.clip(a, 0, len(choices) - 1)
    dtype = common_dtype(*map(as_operand, choices))
    arrays = np.broadcast_arrays(a, *[cast(as_tracer(c, a), dtype) for c in choices])
    stacked = np.stack(arrays[1:])
    result = take_along_axis(stacked, arrays[0][None], 0)[0]
    return result if out is None else store(out, result)


@stands_for(np, np.ndarray, of_complex=True)
def nonzero(x: Any) -> Any:
    """np.nonzero. The number of results is guarded."""
    if x.ndim == 0:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d first")
    return tuple(_index_arrays(x if x.dtype == np.bool_ else x != 0, x))


@stands_for(np, of_complex=True)
def argwhere(x: Any) -> Any:
    """np.argwhere."""
    if x.ndim == 0:
        return argwhere(x.reshape(1))[:, :0]
    return np.stack(nonzero(x)).T
