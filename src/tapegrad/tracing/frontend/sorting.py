"""Order: sorting and searching. A sort is a gather by the sorting indices, so
its derivative puts each cotangent back where the element came from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.errors import UnsupportedError
from tapegrad.primitives.sorting import ArgSort, SearchSorted
from tapegrad.tracing.frontend.indexing import take_along_axis
from tapegrad.tracing.frontend.memory import lay_out_as
from tapegrad.tracing.frontend.operands import as_tracer, cast, common_dtype
from tapegrad.tracing.frontend.shaping import ravel
from tapegrad.tracing.source import at_line
from tapegrad.tracing.tracer import Tracer


def argsort(
    a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> Any:
    """np.argsort."""
    if order is not None:
        raise ValueError("Cannot specify order when the array has no fields.")
    if axis is None:
        a, axis = ravel(a), 0
    if a.ndim == 0:  # NumPy sorts a scalar as a vector of one element
        a = ravel(a)
    return ArgSort(normalize_axis_index(axis, a.ndim), bool(stable) or kind == "stable")(a)


def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """np.sort."""
    if axis is None:
        a, axis = ravel(a), 0
    done = take_along_axis(a, argsort(a, axis, kind, order, stable=stable), axis)
    return lay_out_as(done, a, "K")


def sort_in_place(
    x: Tracer, axis: int = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> None:
    """ndarray.sort."""
    x[...] = sort(x, axis, kind, order, stable=stable)


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """np.searchsorted."""
    if sorter is not None:
        raise UnsupportedError(f"np.searchsorted with sorter= isn't supported{at_line()}")
    a, v = as_tracer(a, v), as_tracer(v, a)
    dtype = common_dtype(a, v)
    return SearchSorted(side == "right")(cast(a, dtype), cast(v, dtype))


def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """np.digitize: whether the bins increase or decrease is guarded."""
    x, bins = as_tracer(x, bins), as_tracer(bins, x)
    side = "left" if right else "right"
    if np.all(bins[1:] >= bins[:-1]):
        return searchsorted(bins, x, side)
    if not np.all(bins[1:] <= bins[:-1]):
        raise ValueError("bins must be monotonically increasing or decreasing")
    return bins.size - searchsorted(bins[::-1], x, side)
