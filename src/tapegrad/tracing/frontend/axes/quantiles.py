"""Medians and quantiles: elements of the sorted array, or interpolations between two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tapegrad.tracing.frontend.axes.sorting import argsort, sort
from tapegrad.tracing.frontend.indexing.indexing import take_along_axis
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import copy_of, lay_out_as, scalar
from tapegrad.tracing.frontend.operands.operands import as_tracer, has_tracer, is_weak, store
from tapegrad.tracing.recording.layout import overwritten


def _merged(a: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """`a` with the reduced axes moved last and merged into one, and their numbers."""
    every = tuple(range(a.ndim))
    axes = every if axis is None else tuple(sorted(normalize_axis_tuple(axis, a.ndim)))
    kept = [k for k in every if k not in axes]
    moved = np.transpose(a, (*kept, *axes))
    size = int(np.prod([a.shape[k] for k in axes], dtype=int))
    return moved.reshape([a.shape[k] for k in kept] + [size]), axes


@stands_for(np)
def median(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False
) -> Any:
    """np.median: the middle element, or the mean of the middle two."""
    a = as_tracer(a, out)
    x, axes = _merged(a, axis)
    if x.shape[-1] == 0:  # NaN, and a warning
        return np.mean(a, axis, out=out, keepdims=keepdims)
    ordered = sort(x)
    half, odd = divmod(x.shape[-1], 2)
    middle = np.mean(ordered[..., half - 1 + odd : half + 1], axis=-1)
    if x.dtype.kind == "f":
        last = ordered[..., -1]  # NaN is sorted last
        middle = np.where(np.isnan(last), last, middle)
    result = np.expand_dims(middle, axes) if keepdims else middle
    _note_memory(a, overwrite_input)
    return scalar(result) if out is None else store(out, result)


def _note_memory(a: Any, overwrite_input: bool) -> None:
    if overwrite_input:
        overwritten(a, "overwrite_input=True", None)


# The position of a quantile among n sorted elements, by method (Hyndman and Fan): an integer, or a
# fractional one, for which `_SHARES` may replace the weight of the upper neighbour.
_PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "inverted_cdf": lambda n, q: _nearer(n * q - 1, lambda share, at: share == 0),
    "closest_observation": lambda n, q: _nearer(
        n * q - 1 - 0.5, lambda share, at: (share == 0) & (np.floor(at) % 2 == 1)
    ),
    "lower": lambda n, q: np.floor((n - 1) * q).astype(np.intp),
    "higher": lambda n, q: np.ceil((n - 1) * q).astype(np.intp),
    "nearest": lambda n, q: np.rint((n - 1) * q).astype(np.intp),
    "averaged_inverted_cdf": lambda n, q: n * q - 1,
    "midpoint": lambda n, q: 0.5 * (np.floor((n - 1) * q) + np.ceil((n - 1) * q)),
    "linear": lambda n, q: (n - 1) * q,
    "interpolated_inverted_cdf": lambda n, q: _spaced(n, q, 0, 1),
    "hazen": lambda n, q: _spaced(n, q, 0.5, 0.5),
    "weibull": lambda n, q: _spaced(n, q, 0, 0),
    "median_unbiased": lambda n, q: _spaced(n, q, 1 / 3.0, 1 / 3.0),
    "normal_unbiased": lambda n, q: _spaced(n, q, 3 / 8.0, 3 / 8.0),
}
_SHARES: dict[str, Callable[[Any, Any], Any]] = {
    "averaged_inverted_cdf": lambda share, at: np.where(share == 0, 0.5, 1.0),
    "midpoint": lambda share, at: np.where(at % 1 == 0, 0.0, 0.5),
}


def _spaced(n: int, q: Any, alpha: float, beta: float) -> Any:
    return n * q + (alpha + q * (1 - alpha - beta)) - 1


def _nearer(at: Any, is_below: Callable[[Any, Any], Any]) -> Any:
    """The integer position below `at` where `is_below` chooses it, else the one above."""
    below = np.floor(at)
    place = np.where(is_below(at - below, at), below, below + 1)
    return np.maximum(place.astype(np.intp), 0)


@stands_for(np)
def quantile(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    """np.quantile; the derivative with respect to q is the slope between two elements."""
    return _quantile("Quantiles must be in the range [0, 1]", is_weak(q), a, q, *args, **kwargs)


@stands_for(np)
def percentile(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    """np.percentile."""
    message, share = "Percentiles must be in the range [0, 100]", np.true_divide(_listed(q, a), 100)
    return _quantile(message, is_weak(q), a, share, *args, **kwargs)


def _listed(q: Any, a: Any) -> Any:
    """Quantile levels as an array, or a tracer."""
    return as_tracer(q, a) if has_tracer(q) else np.asarray(q)


@stands_for(np)
def nanmedian(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False
) -> Any:
    """np.nanmedian: the median of the elements other than NaN."""
    a = as_tracer(a, out)
    if a.dtype.kind != "f":
        result = median(a, axis, None, overwrite_input, keepdims)
        return result if out is None else store(out, result, casting="unsafe")
    x, axes = _merged(a, axis)
    if x.shape[-1] == 0:  # NaN, and a warning
        return np.nanmean(a, axis, out=out, keepdims=keepdims)
    count = np.sum(~np.isnan(x), axis=-1, keepdims=True)
    half = np.concatenate([np.maximum(count - 1, 0) // 2, count // 2], -1)
    both = take_along_axis(sort(x), np.minimum(half, x.shape[-1] - 1), -1)
    middle = np.mean(both, axis=-1)
    if x.ndim == 1 or x.shape[-1] >= 600:  # otherwise NumPy averages it with itself
        middle = np.where(count[..., 0] % 2 == 1, both[..., 0], middle)
    result = np.expand_dims(middle, axes) if keepdims else middle
    _note_memory(a, overwrite_input)
    return scalar(result) if out is None else store(out, result, casting="unsafe")


@stands_for(np)
def nanquantile(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    """np.nanquantile."""
    message = "Quantiles must be in the range [0, 1]"
    return _quantile(message, is_weak(q), a, q, *args, nans=True, **kwargs)


@stands_for(np)
def nanpercentile(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    """np.nanpercentile."""
    message, share = "Percentiles must be in the range [0, 100]", np.true_divide(_listed(q, a), 100)
    return _quantile(message, is_weak(q), a, share, *args, nans=True, **kwargs)


def _quantile(
    message: str,
    weak: bool,
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = False,
    *,
    weights: Any = None,
    nans: bool = False,
) -> Any:
    if method not in _PLACES:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {list(_PLACES)}")
    a, q = as_tracer(a, q, out, weights), _listed(q, a)
    if not np.all((q >= 0) & (q <= 1)):
        raise ValueError(message)
    if nans and not a.size:  # NaN, and a warning
        return np.nanmean(a, axis, out=out, keepdims=keepdims)
    x, axes = _merged(a, axis)
    if weights is not None:
        found = _weighted(x, q, _weights_of(a, weights, axis, method), nans)
    elif nans:
        found = _of_those_there(x, q, method, weak)
    else:
        found = _of_all(x, q, method, weak)
    if keepdims:
        found = np.expand_dims(found, tuple(k + np.ndim(q) for k in axes))
    _note_memory(a, overwrite_input)
    if out is not None:
        return store(out, found)
    return found if weights is not None else scalar(found)


def _of_all(x: Any, q: Any, method: str, weak: bool) -> Any:
    """Quantiles along the last axis; NaN where an element is NaN."""
    ordered = np.moveaxis(sort(x), -1, 0)
    place = _PLACES[method](x.shape[-1], q)
    whole = place.dtype.kind == "i"
    found = ordered[place] if whole else _between(ordered, place, method, weak)
    if x.dtype.kind == "f":
        last = ordered[-1]  # NaN is sorted last
        found = np.where(np.isnan(last), last, found)
    return found


def _of_those_there(x: Any, q: Any, method: str, weak: bool) -> Any:
    """Quantiles along the last axis of the elements other than NaN, whose number differs by row."""
    shape, several = x.shape[:-1], np.ndim(q)
    rows = np.moveaxis(sort(x), -1, 0).reshape(x.shape[-1], -1)
    count = np.sum(~np.isnan(rows), axis=0)
    n = count.astype(q.dtype) if q.dtype.kind == "f" else count
    each = np.arange(rows.shape[1])
    place = _PLACES[method](n, np.reshape(q, (*np.shape(q), 1)))
    if place.dtype.kind == "i":
        found = rows[np.clip(place, 0, rows.shape[0] - 1), each]
    else:
        found = _between(rows, place, method, weak, (np.maximum(count - 1, 0), each))
    found = found.reshape(np.shape(q) + shape)
    if found.dtype.kind == "f":
        found = np.where(count.reshape(shape) == 0, found.dtype.type(np.nan), found)
    else:
        found = copy_of(found)
    if not (several and shape):
        return found
    first, last = range(several), range(-several, 0)  # NumPy computes row by row
    return np.moveaxis(np.copy(np.moveaxis(found, first, last), "C"), last, first)


def _weights_of(a: Any, weights: Any, axis: Any, method: str) -> Any:
    """Weights in the shape of the array, with the reduced axes moved last and merged into one."""
    if method != "inverted_cdf":
        raise ValueError(f"Only method 'inverted_cdf' supports weights. Got: {method}.")
    weights = as_tracer(weights, a)
    if np.any(weights < 0):
        raise ValueError("Weights must be non-negative.")
    if weights.shape != a.shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of array and weights differ.")
        axes = normalize_axis_tuple(axis, a.ndim)
        if weights.shape != tuple(a.shape[k] for k in axes):
            raise ValueError(
                "Shape of weights must be consistent with shape of a along specified axis."
            )
        weights = np.transpose(weights, np.argsort(axes))
        weights = np.expand_dims(weights, tuple(k for k in range(a.ndim) if k not in axes))
        weights = np.broadcast_to(weights, a.shape)
    return _merged(weights, axis)[0]


def _weighted(x: Any, q: Any, weights: Any, nans: bool) -> Any:
    """The first of the sorted elements at which the cumulated weight reaches the share `q`."""
    gone = np.isnan(x) if x.dtype.kind == "f" else np.zeros_like(x, dtype=bool)
    if nans:
        weights = np.where(gone, weights.dtype.type(0), weights)
    order = argsort(x)
    sums = np.cumsum(take_along_axis(weights, order, -1), axis=-1, dtype=np.float64)
    share = sums / sums[..., -1:]
    if np.any(np.isnan(share[..., -1]) & ~(np.all(gone, -1) & nans)):
        raise ValueError("Weights included NaN, inf or were all zero.")
    if q.dtype.kind == "f":
        share = share.astype(q.dtype)
    share = np.where(share == 0, share.dtype.type(-1), share)  # those without weight aren't chosen
    at: Any = np.reshape(q, (*np.shape(q), *(1,) * x.ndim))
    place = np.minimum(np.sum(share < at, axis=-1), x.shape[-1] - 1)
    rows = np.broadcast_to(take_along_axis(x, order, -1), (*place.shape, x.shape[-1]))
    found = take_along_axis(rows, place[..., None], -1)[..., 0]
    lost = np.all(gone, -1) if nans else np.any(gone, -1)
    found = np.where(lost, x.dtype.type(np.nan), found) if x.dtype.kind == "f" else copy_of(found)
    return lay_out_as(found, x, "K") if nans else found


def _between(ordered: Any, place: Any, method: str, weak: bool, of_rows: Any = None) -> Any:
    """Interpolations between neighbours of the sorted elements, at fractional positions.

    As in NumPy, they start from the nearer neighbour, so that rounding doesn't leave the interval.
    If rows have different positions, `of_rows` holds each row's last position and its number."""
    top = ordered.shape[0] - 1 if of_rows is None else of_rows[0]
    floor = np.floor(place)
    share = place - floor
    share = _SHARES[method](share, place) if method in _SHARES else share
    low = np.clip(floor, 0, top).astype(np.intp)
    high = np.where(place < 0, 0, np.minimum(low + 1, top))
    if weak and ordered.dtype.kind == "f":
        share = as_tracer(share, ordered).astype(ordered.dtype)
    if of_rows is None:
        share = np.reshape(share, np.shape(place) + (1,) * (ordered.ndim - 1))
        below, above = ordered[low], ordered[high]
    else:
        below, above = ordered[low, of_rows[1]], ordered[high, of_rows[1]]
    step = above - below
    return np.where(share < 0.5, below + step * share, above - step * (1 - share))
