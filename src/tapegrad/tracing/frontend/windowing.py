"""Sliding windows of arrays, which are views to NumPy, and copies here.

A write to either reaches the other in NumPy. That isn't followed: after one, reading the other is
an error (see `tracing.layout`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tapegrad.primitives.base import Slice
from tapegrad.primitives.scatter import Stack
from tapegrad.primitives.views import BroadcastTo, GetItem
from tapegrad.tracing.frontend.memory import copy_of
from tapegrad.tracing.frontend.operands import as_tracer
from tapegrad.tracing.layout import note_may_alias

MOST = 32  # slices that are stacked; longer windows are gathered


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
    """The windows along one axis; what is in each becomes the last axis."""
    count = x.shape[axis] - extent + 1
    if not 0 < extent <= MOST:
        places = np.arange(count)[:, None] + np.arange(extent)
        return np.moveaxis(x[(slice(None),) * axis + (places,)], axis + 1, -1)
    whole = [Slice(0, n) for n in x.shape]
    parts = [
        GetItem((*whole[:axis], Slice(k, count), *whole[axis + 1 :]))(x) for k in range(extent)
    ]
    return Stack(x.ndim)(*parts)
