"""Traceable versions of scipy.spatial.distance.

A metric is declared once, along the last axis of arrays that broadcast: it serves two vectors, all
rows of two matrices, and all pairs of rows of one matrix. So differences are computed inside of
the loop that sums them. Where a distance is 0, its gradient is 0, like that of a norm at the
origin.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.extending import answers_of, any_traced, at_line, observed, refusal, stands_for
from tapegrad.extending.arrays import as_tracer, cast, raise_if, scales
from tapegrad.extending.primitives import Known
from tapegrad.extending.runs import accepted, original_of
from tapegrad.scipy.borrowing import borrow

HOME = "scipy.spatial.distance"
answers = answers_of(HOME)

REFUSED = {
    "directed_hausdorff": "cdist(u, v).min(axis=1).max()",
    "dice jaccard rogerstanimoto russellrao sokalsneath yule": (
        "it on tapegrad.stop_gradient(u): a count of booleans has no derivative"
    ),
}


# ---- metrics


def _checked(w: Any) -> Any:
    """The weights. Raises ValueError if one is negative, as SciPy does."""
    raise_if(np.any(w < 0), "Input weights should be all non-negative", ValueError)
    return w


def _times(w: Any, x: Any) -> Any:
    return x if w is None else w * x


def _root(x: Any) -> Any:
    """The square root of a nonnegative number, with derivative 0 at 0."""
    nothing = x == 0
    return np.where(nothing, x, np.sqrt(np.where(nothing, 1, x)))


def minkowski_between(x: Any, y: Any, p: Any = 2, w: Any = None) -> Any:
    """The norm of x - y along the last axis."""
    raise_if(np.any(p <= 0), "p must be greater than 0", ValueError)
    d = x - y
    w = None if w is None else _checked(w)
    if np.ndim(p) == 0 and not any_traced([p]) and p in (1, 2, np.inf):
        if p == 2 and d.ndim == 1 and d.size:  # for two vectors SciPy calls BLAS
            down, up = scales(d)
            if w is None:
                return np.linalg.norm(d * down) * up
            return _root(np.sum(w * np.abs(d * down) ** 2)) * up
        if p == 2 and w is not None:
            return _root(np.sum(w * np.abs(d) ** 2, axis=-1))
        if p == np.inf:
            return np.linalg.norm(_times(None if w is None else w != 0, d), np.inf, axis=-1)
        return np.linalg.norm(_times(w, d), p, axis=-1)
    size = np.abs(d)
    none = size == 0
    powers = np.where(none, 0.0, np.power(np.where(none, 1.0, size), p))
    total = np.sum(_times(w, powers), axis=-1)
    nothing = total == 0
    return np.where(nothing, 0.0, np.power(np.where(nothing, 1.0, total), 1.0 / p))


def _euclidean(x: Any, y: Any, w: Any = None) -> Any:
    return minkowski_between(x, y, 2, w)


def _sqeuclidean(x: Any, y: Any, w: Any = None) -> Any:
    d = x - y
    return np.sum(d * _times(None if w is None else _checked(w), d), axis=-1)


def _seuclidean(x: Any, y: Any, V: Any) -> Any:
    if np.ndim(V) != 1 or np.shape(V)[0] != x.shape[-1] or x.shape[-1] != y.shape[-1]:
        raise TypeError("V must be a 1-D array of the same dimension as u and v.")
    return minkowski_between(x, y, 2, 1 / V)


def _cityblock(x: Any, y: Any, w: Any = None) -> Any:
    return np.sum(_times(None if w is None else _checked(w), np.abs(x - y)), axis=-1)


def _chebyshev(x: Any, y: Any, w: Any = None) -> Any:
    size = np.abs(x - y)
    return np.max(_times(None if w is None else _checked(w) > 0, size), axis=-1)


def _canberra(x: Any, y: Any, w: Any = None) -> Any:
    both = np.abs(x) + np.abs(y)
    nothing = both == 0
    parts = np.where(nothing, 0.0, np.abs(x - y) / np.where(nothing, 1.0, both))
    return np.sum(_times(None if w is None else _checked(w), parts), axis=-1)


def _braycurtis(x: Any, y: Any, w: Any = None) -> Any:
    w = None if w is None else _checked(w)
    apart = np.sum(_times(w, np.abs(x - y)), axis=-1)
    return apart / np.sum(_times(w, np.abs(x + y)), axis=-1)


def _correlation(x: Any, y: Any, w: Any = None, centered: Any = True) -> Any:
    if "c" in (x.dtype.kind, y.dtype.kind):
        raise TypeError("`u` and `v` must be real.")
    if w is not None:
        w = _checked(w)
        w = w / np.sum(w)
    if centered:
        x, y = (
            z - (np.mean(z, -1, keepdims=True) if w is None else np.sum(z * w, -1, keepdims=True))
            for z in (x, y)
        )
    of = [np.sum(a * _times(w, b), axis=-1) for a, b in ((x, y), (x, x), (y, y))]
    found = 1.0 - of[0] / np.sqrt(of[1] * of[2])
    # A result that rounding moves out of the range is clipped; the derivative ignores the
    # clipping.
    return Known()(np.clip(found, 0.0, 2.0), found)


def _cosine(x: Any, y: Any, w: Any = None) -> Any:
    return _correlation(x, y, w, False)


def _mahalanobis(x: Any, y: Any, VI: Any) -> Any:
    d = x - y
    return _root(np.sum((d @ VI) * d, axis=-1))


def _hamming(x: Any, y: Any, w: Any = None) -> Any:
    if x.shape[-1] != y.shape[-1]:
        raise ValueError("The 1d arrays must have equal lengths.")
    if w is None:
        return np.mean(x != y, axis=-1)
    w = _checked(w)
    return np.sum((x != y) * (w / np.sum(w)), axis=-1)


def _jensenshannon(x: Any, y: Any, base: Any = None) -> Any:
    return _divergence(x, y, base, -1, False)


def _divergence(x: Any, y: Any, base: Any, axis: Any, keepdims: Any) -> Any:
    """The root of half of sum(x log(x / m) + y log(y / m)), for the normalized x and y and their
    mean m."""
    x, y = (z / np.sum(z, axis, keepdims=True) for z in (x, y))
    m = (x + y) / 2.0
    sums = [np.sum(_relative_entropy(z, m), axis, keepdims=keepdims) for z in (x, y)]
    found = sums[0] + sums[1]
    return _root((found if base is None else found / np.log(base)) / 2.0)


def _relative_entropy(x: Any, m: Any) -> Any:
    from scipy.special import rel_entr

    return rel_entr(x, m)


_METRICS: dict[str, Callable[..., Any]] = {
    "euclidean euclid eu e": _euclidean,
    "sqeuclidean sqe sqeuclid": _sqeuclidean,
    "seuclidean se s": _seuclidean,
    "cityblock cblock cb c": _cityblock,
    "minkowski mi m pnorm": minkowski_between,
    "chebyshev chebychev cheby cheb ch": _chebyshev,
    "cosine cos": _cosine,
    "correlation co": _correlation,
    "canberra": _canberra,
    "braycurtis": _braycurtis,
    "mahalanobis mahal mah": _mahalanobis,
    "hamming matching hamm ha h": _hamming,
    "jensenshannon js": _jensenshannon,
}
_BY_NAME = {name: metric for names, metric in _METRICS.items() for name in names.split()}


# ---- between two vectors


def _on_tape(x: Any, *others: Any) -> Any:
    """An array on the tape of `others`, so that values computed from it alone are recorded, too. A
    number stays as it is."""
    x = np.asarray(x) if isinstance(x, (list, tuple)) else x
    return as_tracer(x, *others) if np.ndim(x) else x


def _declare(name: str, metric: Callable[..., Any]) -> None:
    parameters = [*inspect.signature(metric).parameters.values()][2:]

    def between(u: Any, v: Any, *rest: Any, **named: Any) -> Any:
        others = (u, v, *rest, *named.values())
        u, v, *more = (_on_tape(x, *others) for x in (u, v, *rest))
        named = {key: _on_tape(x, *others) for key, x in named.items()}
        if np.ndim(u) != 1 or np.ndim(v) != 1:
            raise ValueError("Input vector should be 1-D.")
        w = named.get("w")
        if np.size(u) != np.size(v) and 1 in (np.size(u), np.size(v)):
            u, v = np.broadcast_arrays(u, v)
        if w is not None and np.shape(w) != np.shape(u):
            raise ValueError(f"shapes {np.shape(w)} and {np.shape(u)}")
        return metric(u, v, *more, **named)

    given = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in "uv"]
    between.__signature__ = inspect.Signature([*given, *parameters])  # type: ignore[attr-defined]
    between.__name__ = name
    answers(name)(between)


for _names, _metric in _METRICS.items():
    if _metric is not _jensenshannon:
        _declare(_names.split()[0], _metric)


@answers()
def jensenshannon(p: Any, q: Any, base: Any = None, axis: Any = 0, keepdims: bool = False) -> Any:
    """The Jensen-Shannon distance of distributions along an axis."""
    p, q = _on_tape(p, q, base), _on_tape(q, p, base)
    return _divergence(p, q, base, axis, keepdims)


# ---- between rows


def _between(x: Any, y: Any, metric: Any, whole: Any, given: dict[str, Any]) -> Any:
    """The distances of the rows of x and y, which broadcast. `whole` contains all rows, for
    metrics that use their variances."""
    found = _BY_NAME.get(metric.lower())
    if found is None:
        raise refusal(
            f"distances by the metric {metric!r} can't be traced{at_line()}. Those that can are "
            f"{', '.join(sorted(names.split()[0] for names in _METRICS))}"
        )
    known = inspect.signature(found).parameters
    if not {*given} <= {*known}:
        raise TypeError(f"{metric}: {given}")
    if found is _seuclidean and given.get("V") is None:
        given = {**given, "V": np.var(whole, axis=0, ddof=1)}
    if found is _mahalanobis and given.get("VI") is None:
        if whole.shape[0] <= whole.shape[1]:
            raise ValueError("The number of observations is too small")
        covariance = np.atleast_2d(np.cov(np.transpose(whole)))
        given = {**given, "VI": np.transpose(np.linalg.inv(covariance))}
    return found(x, y, **given)


def _rows(x: Any, *others: Any) -> Any:
    x = _on_tape(x, *others)
    if x.dtype.kind == "c":
        raise refusal(
            f"distances of complex numbers can't be traced{at_line()}: SciPy leaves out imaginary "
            "parts. Use z.real"
        )
    if np.ndim(x) != 2:
        raise ValueError("A 2-dimensional array must be passed.")
    return cast(x, np.float64)


def _callable(metric: Any, pairs: Any, x: Any, y: Any, given: dict[str, Any]) -> Any:
    """The distances by a user's function, pair by pair."""
    with observed():
        found = [metric(x[i], y[j], **given) for i, j in pairs]
    return (
        cast(as_tracer(found, *found), np.float64) if any_traced(found) else np.array(found, float)
    )


def _answers(own: Any) -> Any:
    """The answer to a function whose `metric` may be a function that reads traced values."""
    original = getattr(importlib.import_module(HOME), own.__name__)

    @functools.wraps(own)
    def answered(*args: Any, **kwargs: Any) -> Any:
        metric = kwargs.get("metric", args[-1])
        if any_traced((*args, *kwargs.values())):
            return accepted(
                original, args, kwargs, lambda: own(*args, **kwargs), f"{HOME}.{own.__name__}"
            )
        return (own if callable(metric) else original)(*args, **kwargs)

    stands_for(HOME, callbacks=True)(answered)
    return own


def _named(metric: Any) -> Any:
    """The name of a metric that is one of SciPy's own functions; else the metric itself."""
    metric = original_of(metric)
    name = getattr(metric, "__name__", "")
    own = callable(metric) and getattr(metric, "__module__", "") == HOME and name in _BY_NAME
    return name if own else metric


@_answers
def cdist(XA: Any, XB: Any, metric: Any = "euclidean", **kwargs: Any) -> Any:
    """The distances of all rows of XA from all rows of XB."""
    others, metric = (XA, XB, *kwargs.values()), _named(metric)
    if not any_traced(others):
        pairs = [*np.ndindex(len(XA), len(XB))]
        return np.reshape(_callable(metric, pairs, XA, XB, kwargs), (len(XA), len(XB)))
    kwargs = {key: _on_tape(value, *others) for key, value in kwargs.items()}
    x, y = _rows(XA, *others), _rows(XB, *others)
    if x.shape[1] != y.shape[1]:
        raise ValueError("XA and XB must have the same number of columns")
    if not callable(metric):
        whole = np.concatenate([x, y])
        return _between(x[:, None], y[None], metric, whole, kwargs)
    pairs = [*np.ndindex(x.shape[0], y.shape[0])]
    return np.reshape(_callable(metric, pairs, x, y, kwargs), (x.shape[0], y.shape[0]))


@_answers
def pdist(X: Any, metric: Any = "euclidean", **kwargs: Any) -> Any:
    """The distances of all pairs of rows of X, in the order (0, 1), (0, 2), ..., (1, 2), ..."""
    others, metric = (X, *kwargs.values()), _named(metric)
    i, j = np.triu_indices(len(X), 1)
    if not any_traced(others):
        return _callable(metric, zip(i, j, strict=True), X, X, kwargs)
    kwargs = {key: _on_tape(value, *others) for key, value in kwargs.items()}
    x = _rows(X, *others)
    if not callable(metric):
        return _between(x[i], x[j], metric, x, kwargs)
    return _callable(metric, zip(i, j, strict=True), x, x, kwargs)


@answers(parameters="force checks")
def squareform(X: Any, force: str = "no", checks: bool = True) -> Any:
    """The symmetric matrix from the distances of pairs, or the distances above a matrix's
    diagonal."""
    s = X.shape
    if (force.lower(), len(s)) in (("tomatrix", 2), ("tovector", 1)) or len(s) not in (1, 2):
        raise ValueError(f"Forcing {force!r} but input X has {len(s)} axes")
    if len(s) == 2:
        if s[0] != s[1]:
            raise ValueError("The matrix argument must be square.")
        if checks:
            raise_if(~np.all(np.transpose(X) == X), "it must be symmetric", ValueError)
            raise_if(~np.all(np.diagonal(X) == 0), "its diagonal must be zero", ValueError)
        return X[np.triu_indices(s[0], 1)]
    n = int(np.ceil(np.sqrt(s[0] * 2)))
    if s[0] == 0:
        return np.zeros((1, 1), X.dtype)
    if n * (n - 1) != s[0] * 2:
        raise ValueError("Incompatible vector size.")
    places = np.zeros((n, n), int)
    i, j = np.triu_indices(n, 1)
    places[i, j] = places[j, i] = 1 + np.arange(s[0])
    return np.concatenate([np.zeros(1, X.dtype), X])[places]


borrow(HOME, "num_obs_dm num_obs_y is_valid_dm is_valid_y")
