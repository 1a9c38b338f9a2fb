"""Order: sorting, medians and quantiles, searching. A sort is a gather by the sorting indices, so
its derivative puts each cotangent back where the element came from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from tapegrad.errors import UnsupportedError
from tapegrad.primitives.sorting import ArgSort, SearchSorted
from tapegrad.tracing.frontend.indexing import take_along_axis
from tapegrad.tracing.frontend.memory import lay_out_as, scalar
from tapegrad.tracing.frontend.operands import as_tracer, cast, common_dtype, is_weak, store
from tapegrad.tracing.frontend.shaping import ravel
from tapegrad.tracing.source import at_line
from tapegrad.tracing.tracer import Tracer


def argsort(
    a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> Any:
    """np.argsort."""
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


def _merged(a: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """`a` with the axes to reduce moved last and made one, and which they were."""
    every = tuple(range(a.ndim))
    axes = every if axis is None else tuple(sorted(normalize_axis_tuple(axis, a.ndim)))
    kept = [k for k in every if k not in axes]
    moved = np.transpose(a, (*kept, *axes))
    size = int(np.prod([a.shape[k] for k in axes], dtype=int))
    return moved.reshape([a.shape[k] for k in kept] + [size]), axes


def median(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False
) -> Any:
    """np.median: the middle element, or the mean of the two."""
    x, axes = _merged(a, axis)
    if x.shape[-1] == 0:  # NaN, and a warning
        return np.mean(a, axis, out=out, keepdims=keepdims)
    ordered = sort(x)
    half, odd = divmod(x.shape[-1], 2)
    middle = np.mean(ordered[..., half - 1 + odd : half + 1], axis=-1)
    if x.dtype.kind == "f":
        last = ordered[..., -1]  # NaN comes last
        middle = np.where(np.isnan(last), last, middle)
    result = np.expand_dims(middle, axes) if keepdims else middle
    return scalar(result) if out is None else store(out, result)


def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = False,
    *,
    weights: Any = None,
) -> Any:
    """np.quantile, with linear interpolation."""
    if method != "linear" or weights is not None or isinstance(q, Tracer):
        raise UnsupportedError(
            "np.quantile and np.percentile are supported on traced arrays with plain q, the "
            f"method 'linear' and no weights{at_line()}"
        )
    weak = is_weak(q)
    q = np.asarray(q)
    if not np.all((q >= 0) & (q <= 1)):
        raise ValueError("Quantiles must be in the range [0, 1]")
    x, axes = _merged(a, axis)
    if x.dtype.kind != "f":
        x = cast(x, np.float64)
    ordered = np.moveaxis(sort(x), -1, 0)
    place = q * (x.shape[-1] - 1)
    low = np.floor(place).astype(np.intp)
    high = np.minimum(low + 1, x.shape[-1] - 1)
    dtype = x.dtype if weak else common_dtype(x, q)
    share = (place - low).reshape(q.shape + (1,) * (x.ndim - 1)).astype(dtype)
    below, above = ordered[low], ordered[high]
    step = above - below
    # As NumPy does it: from the nearer end, so that rounding doesn't leave the interval.
    found = np.where(share < 0.5, below + step * share, above - step * (1 - share))
    last = ordered[-1]  # NaN comes last
    found = np.where(np.isnan(last), last, found)
    if keepdims:
        found = np.expand_dims(found, tuple(k + q.ndim for k in axes))
    return scalar(found) if out is None else store(out, found)


def percentile(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    """np.percentile."""
    return quantile(a, q / 100 if is_weak(q) else np.true_divide(q, 100), *args, **kwargs)


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """np.searchsorted."""
    if sorter is not None:
        raise UnsupportedError(f"np.searchsorted with sorter= isn't supported{at_line()}")
    a, v = as_tracer(a, v), as_tracer(v, a)
    dtype = common_dtype(a, v)
    return SearchSorted(side == "right")(cast(a, dtype), cast(v, dtype))


def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """np.digitize, for bins that increase."""
    x, bins = as_tracer(x, bins), as_tracer(bins, x)
    if not np.all(bins[1:] >= bins[:-1]):
        raise UnsupportedError(f"np.digitize with decreasing bins isn't supported{at_line()}")
    return searchsorted(bins, x, "left" if right else "right")
