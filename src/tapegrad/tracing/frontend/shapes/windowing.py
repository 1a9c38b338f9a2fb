"""Sliding windows and strided views of arrays: views in NumPy, copies here.

In NumPy, a write to the array or to the view changes the other. That isn't followed: after such a
write, reading the other is an error (see `tracing.recording.layout`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tapegrad.errors import UnsupportedError
from tapegrad.observe.answers.answers import declare
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import unobserved
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.base import Slice
from tapegrad.primitives.scatter import Stack
from tapegrad.primitives.views import BroadcastTo, GetItem
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import copy_of
from tapegrad.tracing.frontend.operands.operands import as_tracer, has_tracer
from tapegrad.tracing.memory.created import is_created
from tapegrad.tracing.recording.layout import note_may_alias
from tapegrad.tracing.tracers.attributes import laid_out

MAX_STACKED = 32  # slices that are stacked at most; longer windows are gathered


@stands_for(np.lib.stride_tricks, of_complex=True)
def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Any:
    """np.lib.stride_tricks.sliding_window_view."""
    x = as_tracer(x)
    shape = tuple(int(n) for n in np.atleast_1d(window_shape))
    if any(n < 0 for n in shape):
        raise ValueError("`window_shape` cannot contain negative values")
    axes = range(x.ndim) if axis is None else normalize_axis_tuple(axis, x.ndim, None, True)
    if len(shape) != len(axes):
        raise ValueError(f"there are {len(shape)} extents of windows for {len(axes)} axes")
    out = x
    for along, extent in zip(axes, shape, strict=True):
        if extent > out.shape[along]:
            raise ValueError("window shape cannot be larger than input array shape")
        out = _windows(out, along, extent)
    out = copy_of(out) if out is x else out
    note_may_alias(out._owner, x._owner)
    out._owner._ordered = False
    return out if writeable else BroadcastTo(out.shape)(out)


def _windows(x: Any, axis: int, extent: int) -> Any:
    """The windows along one axis. The last axis of the result runs within a window."""
    count = x.shape[axis] - extent + 1
    if not 0 < extent <= MAX_STACKED:
        places = np.arange(count)[:, None] + np.arange(extent)
        return np.moveaxis(x[(slice(None),) * axis + (places,)], axis + 1, -1)
    whole = [Slice(0, n) for n in x.shape]
    parts = [
        GetItem((*whole[:axis], Slice(k, count), *whole[axis + 1 :]))(x) for k in range(extent)
    ]
    return Stack(x.ndim)(*parts)


def as_strided(
    x: Any, shape: Any = None, strides: Any = None, subok: bool = False, writeable: bool = True
) -> Any:
    """np.lib.stride_tricks.as_strided: the elements at the given memory offsets. If elements of the
    result share an offset, it is read-only."""
    x = as_tracer(x)
    value = laid_out(x)
    shape = x.shape if shape is None else tuple(map(int, shape))
    strides = value.strides if strides is None else tuple(map(int, strides))
    if len(shape) != len(strides):
        raise ValueError("mismatch in length of strides and shape")
    if any(n < 0 for n in shape):
        raise ValueError("negative dimensions are not allowed")
    asked = _offsets(shape, strides)
    found = _places(x, asked, 0)
    root = x._owner
    if found is None and root is not x:
        memory = laid_out(root)
        if np.may_share_memory(value, memory):
            found = _places(root, asked, _address(value) - _address(memory))
    if found is None:
        raise UnsupportedError(
            f"np.lib.stride_tricks.as_strided reads memory{at_line()} that isn't an element of the "
            "array. Pass the array that it is a part of, or index that"
        )
    held, places = found
    out = held.reshape(-1)[places]
    note_may_alias(out._owner, root)
    out._owner._ordered = False
    alone = len(np.unique(places)) == places.size
    return out if alone and writeable else BroadcastTo(out.shape)(out)


def _offsets(shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """The offset of each element from the first, in bytes."""
    along = [np.arange(n) * step for n, step in zip(shape, strides, strict=True)]
    return functools.reduce(np.add, np.ix_(*along), np.zeros((), int))


def _address(value: np.ndarray) -> int:
    return int(value.__array_interface__["data"][0])


def _places(x: Any, asked: np.ndarray, behind: int) -> tuple[Any, np.ndarray] | None:
    """`x` and the flat positions of its elements whose offsets are `asked + behind` bytes; None
    unless there is one for each."""
    held = _offsets(x.shape, laid_out(x).strides).reshape(-1)
    order = np.argsort(held, kind="stable")
    wanted = asked + behind
    if not asked.size:
        return x, asked.astype(np.intp)
    if not held.size:
        return None
    at = np.minimum(np.searchsorted(held[order], wanted), held.size - 1)
    return (x, order[at]) if (held[order][at] == wanted).all() else None


@functools.wraps(np.lib.stride_tricks.as_strided)
@unobserved
def _as_strided(x: Any, *args: Any, **kwargs: Any) -> Any:
    if not has_tracer(x) or is_created(x):  # NumPy's function gets the memory itself
        return np.lib.stride_tricks.as_strided(x, *args, **kwargs)
    return as_strided(dispatch.as_operand(x), *args, **kwargs)


def declare_all() -> None:
    """Register the replacement."""
    declare(np.lib.stride_tricks, "as_strided", _as_strided)
