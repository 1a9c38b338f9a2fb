"""Medians and quantiles: elements of the sorted array, or between two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tapegrad.errors import UnsupportedError
from tapegrad.tracing.frontend.memory import scalar
from tapegrad.tracing.frontend.operands import as_tracer, has_tracer, is_weak, store
from tapegrad.tracing.frontend.parameters import called_as
from tapegrad.tracing.frontend.sorting import sort
from tapegrad.tracing.source import at_line


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
    a = as_tracer(a, out)
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


# The place of a quantile among n sorted elements, by the names of Hyndman and Fan: a whole number,
# or one between two; then `_SHARES` may say how much of the upper one is taken.
_PLACES: dict[str, Callable[[int, Any], Any]] = {
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
    """The whole place below, where that is chosen, or else above."""
    below = np.floor(at)
    place = np.where(is_below(at - below, at), below, below + 1)
    return np.maximum(place.astype(np.intp), 0)


@called_as(np.quantile)
def quantile(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    """np.quantile; the derivative with respect to q is the slope between two elements."""
    return _quantile("Quantiles must be in the range [0, 1]", is_weak(q), a, q, *args, **kwargs)


@called_as(np.percentile)
def percentile(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    """np.percentile."""
    message, share = "Percentiles must be in the range [0, 100]", np.true_divide(_listed(q, a), 100)
    return _quantile(message, is_weak(q), a, share, *args, **kwargs)


def _listed(q: Any, a: Any) -> Any:
    """Quantiles as an array, or traced."""
    return as_tracer(q, a) if has_tracer(q) else np.asarray(q)


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
) -> Any:
    if weights is not None:
        raise UnsupportedError(
            f"np.quantile and np.percentile with weights= aren't supported{at_line()}. Use "
            "np.sort, np.cumsum and np.searchsorted"
        )
    if method not in _PLACES:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {list(_PLACES)}")
    a, q = as_tracer(a, q, out), _listed(q, a)
    if not np.all((q >= 0) & (q <= 1)):
        raise ValueError(message)
    x, axes = _merged(a, axis)
    n = x.shape[-1]
    ordered = np.moveaxis(sort(x), -1, 0)
    place = _PLACES[method](n, q)
    if place.dtype.kind == "i":
        found = ordered[place]
    else:
        found = _between(ordered, place, method, weak)
    if x.dtype.kind == "f":
        last = ordered[-1]  # NaN comes last
        found = np.where(np.isnan(last), last, found)
    if keepdims:
        found = np.expand_dims(found, tuple(k + np.ndim(q) for k in axes))
    return scalar(found) if out is None else store(out, found)


def _between(ordered: Any, place: Any, method: str, weak: bool) -> Any:
    """What lies at places between elements, as NumPy interpolates: from the nearer end, so that
    rounding doesn't leave the interval."""
    top = ordered.shape[0] - 1
    floor = np.floor(place)
    share = place - floor
    share = _SHARES[method](share, place) if method in _SHARES else share
    low = np.clip(floor, 0, top).astype(np.intp)
    high = np.where(place < 0, 0, np.minimum(low + 1, top))
    if weak and ordered.dtype.kind == "f":
        share = as_tracer(share, ordered).astype(ordered.dtype)
    share = np.reshape(share, np.shape(place) + (1,) * (ordered.ndim - 1))
    below, above = ordered[low], ordered[high]
    step = above - below
    return np.where(share < 0.5, below + step * share, above - step * (1 - share))
