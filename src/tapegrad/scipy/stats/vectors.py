"""Formulas of distributions of vectors.

Only the lower triangle of a matrix is read, as in SciPy, and it is factored by Cholesky. SciPy
also refuses a matrix whose least eigenvalue is less than 2e-10 of the largest; here only a failing
factorization is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special as sc
from scipy import stats

from tapegrad.extending import at_line, refusal
from tapegrad.extending.arrays import Tracer
from tapegrad.extending.primitives import stop_gradient
from tapegrad.scipy.linalg.factors import cholesky
from tapegrad.scipy.linalg.systems import solve_triangular
from tapegrad.scipy.stats.formulas import LOG_2PI


def as_float(x: Any) -> Any:
    if not isinstance(x, Tracer):
        return np.asarray(x, float)
    return x if x.dtype == np.float64 else x.astype(np.float64)


def squeezed(x: Any) -> Any:
    """A result without axes of length 1, as SciPy returns it."""
    return np.squeeze(x)


def whole_matrix(x: Any, dim: int) -> Any:
    """A matrix from one number, its diagonal, or itself."""
    if x.ndim == 0:
        return x * np.eye(dim)
    return np.diag(x) if x.ndim == 1 else x


# ---- the normal distribution, and Student's t


def _location(mean: Any, cov: Any, what: str, called: str) -> tuple[int, Any, Any]:
    """The dimension, the location, and the matrix, which may be one number or the diagonal."""
    if isinstance(cov, stats.Covariance):
        raise refusal(
            f"{what} with a Covariance object can't be traced{at_line()}. Pass the matrix"
        )
    cov = as_float(1.0 if cov is None else cov)
    mean = None if mean is None else as_float(mean)
    dim = int(mean.size if mean is not None else cov.shape[0] if cov.ndim == 2 else 1)
    mean = np.zeros(dim) if mean is None else mean
    if dim == 1:
        mean, cov = np.reshape(mean, (1,)), np.reshape(cov, (1,))
    if mean.ndim != 1 or mean.shape[0] != dim:
        raise ValueError(f"Array '{called}' must be a vector of length {dim}.")
    if cov.ndim > 2:
        raise ValueError(f"Array 'cov' must be at most two-dimensional, but cov.ndim = {cov.ndim}")
    if cov.ndim and cov.shape != (dim,) * cov.ndim:
        raise ValueError(
            f"Dimension mismatch: array 'cov' is of shape {cov.shape}, but '{called}' is a vector "
            f"of length {dim}."
        )
    return dim, mean, cov


def points(x: Any, dim: int) -> Any:
    x = as_float(x)
    if x.ndim == 0:
        return np.reshape(x, (1,))
    if x.ndim == 1:
        return x[:, np.newaxis] if dim == 1 else x[np.newaxis, :]
    return x


def _positive(x: Any) -> None:
    if not np.all(x > 0):
        raise np.linalg.LinAlgError(
            "When `allow_singular is False`, the input matrix must be symmetric positive definite."
        )


def _log_det(cov: Any, dim: int) -> Any:
    if cov.ndim < 2:
        _positive(cov)
        return np.sum(np.log(cov * np.ones(dim)))
    return 2 * np.sum(np.log(np.diagonal(cholesky(cov, lower=True))))


def _distance(dev: Any, cov: Any, dim: int) -> tuple[Any, Any]:
    """dev' cov^-1 dev for vectors along the last axis, and log(det(cov))."""
    if cov.ndim < 2:
        _positive(cov)
        return np.sum(dev * dev / cov, axis=-1), np.sum(np.log(cov * np.ones(dim)))
    factor = cholesky(cov, lower=True)
    columns = np.reshape(dev, (-1, dim)).T
    whitened = solve_triangular(factor, columns, lower=True, check_finite=False)
    found = np.reshape(np.sum(whitened * whitened, axis=0), np.shape(dev)[:-1])
    return found, 2 * np.sum(np.log(np.diagonal(factor)))


def _full_rank(cov: Any, allowed: Any, what: str) -> None:
    if not allowed:
        return
    if cov.ndim == 2:
        values = np.linalg.eigvalsh(cov)
        singular = np.min(values) <= np.max(np.abs(values)) * 1e6 * np.finfo(float).eps
    else:
        singular = np.min(cov) <= np.max(np.abs(cov)) * 1e6 * np.finfo(float).eps
    if singular:
        raise refusal(
            f"{what} with a singular matrix can't be traced{at_line()}. Add a small multiple of "
            "the identity to it"
        )


def normal_logpdf(x: Any, mean: Any = None, cov: Any = 1, allow_singular: Any = False) -> Any:
    dim, mean, cov = _location(mean, cov, "multivariate_normal", "mean")
    _full_rank(cov, allow_singular, "multivariate_normal")
    distance, log_det = _distance(points(x, dim) - mean, cov, dim)
    return squeezed(-0.5 * (dim * LOG_2PI + log_det + distance))


def normal_entropy(mean: Any = None, cov: Any = 1, allow_singular: Any = False) -> Any:
    dim, _, cov = _location(mean, cov, "multivariate_normal", "mean")
    return 0.5 * (dim * (LOG_2PI + 1) + _log_det(cov, dim))


def t_logpdf(x: Any, loc: Any = None, shape: Any = 1, df: Any = 1) -> Any:
    df = 1 if df is None else df
    if not np.all(df > 0):
        raise ValueError("'df' must be greater than zero.")
    if np.all(df == np.inf):
        return normal_logpdf(x, loc, shape)
    dim, loc, shape = _location(loc, shape, "multivariate_t", "loc")
    distance, log_det = _distance(points(x, dim) - loc, shape, dim)
    t = 0.5 * (df + dim)
    found = sc.gammaln(t) - sc.gammaln(0.5 * df) - dim / 2.0 * np.log(df * np.pi)
    return squeezed(found - 0.5 * log_det - t * np.log1p(distance / df))


# ---- proportions and counts


def positive_vector(alpha: Any) -> Any:
    alpha = as_float(alpha)
    if np.min(alpha) <= 0:
        raise ValueError("All parameters must be greater than 0")
    if alpha.ndim != 1:
        raise ValueError(
            f"Parameter vector 'a' must be one dimensional, but a.shape = {alpha.shape}."
        )
    return alpha


def _proportions(alpha: Any, x: Any) -> Any:
    """The entries x of a point on the simplex; the last one may be left out, and is 1 minus the
    sum."""
    x, count = as_float(x), alpha.shape[0]
    if x.shape[0] not in (count, count - 1):
        raise ValueError(
            "Vector 'x' must have either the same number of entries as, or one entry fewer than, "
            f"parameter vector 'a', but alpha.shape = {alpha.shape} and x.shape = {x.shape}."
        )
    if x.shape[0] != count:
        x = np.concatenate([x, (1 - np.sum(x, 0))[np.newaxis]])
    if np.min(x) < 0:
        raise ValueError("Each entry in 'x' must be greater than or equal to zero.")
    if np.max(x) > 1:
        raise ValueError("Each entry in 'x' must be smaller or equal one.")
    along = np.reshape(alpha, (count,) + (1,) * (x.ndim - 1))
    if np.any(np.logical_and(x == 0, along < 1)):
        raise ValueError(
            "Each entry in 'x' must be greater than zero if its alpha is less than one."
        )
    if np.any(np.abs(np.sum(x, 0) - 1.0) > 10e-10):
        raise ValueError("The input vector 'x' must lie within the normal simplex.")
    return x


def _log_beta(alpha: Any) -> Any:
    return np.sum(sc.gammaln(alpha)) - sc.gammaln(np.sum(alpha))


def dirichlet_logpdf(x: Any, alpha: Any) -> Any:
    alpha = positive_vector(alpha)
    x = _proportions(alpha, x)
    powers = np.reshape(alpha - 1, (-1,) + (1,) * (x.ndim - 1))
    return squeezed(np.sum(sc.xlogy(powers, x), 0) - _log_beta(alpha))


def dirichlet_cov(alpha: Any) -> Any:
    alpha = positive_vector(alpha)
    total = np.sum(alpha)
    a = alpha / total
    return squeezed((np.diag(a) - np.outer(a, a)) / (total + 1))


def dirichlet_entropy(alpha: Any) -> Any:
    alpha = positive_vector(alpha)
    total = np.sum(alpha)
    found = _log_beta(alpha) + (total - alpha.shape[0]) * sc.digamma(total)
    return found - np.sum((alpha - 1) * sc.digamma(alpha))


def _probabilities(n: Any, p: Any) -> tuple[Any, Any, Any]:
    """`(n, p, bad)`: counts, probabilities, and where one of them is out of its domain. The last
    probability is 1 minus the sum of the others."""
    n, p = as_float(n), as_float(p)
    last = 1.0 - np.sum(p[..., :-1], axis=-1)
    off = np.abs(1 - np.sum(p, axis=-1)) > 10 * np.finfo(float).eps
    rounded = np.where(off, last, p[..., -1])  # with the derivative of `last`
    ends = last + stop_gradient(rounded - last)
    p = np.concatenate([p[..., :-1], ends[..., np.newaxis]], axis=-1)
    bad = np.logical_or(np.any(p < 0, axis=-1), np.any(p > 1, axis=-1))
    return n, p, np.logical_or(bad, n < 0)


def multinomial_logpmf(x: Any, n: Any, p: Any) -> Any:
    n, p, bad = _probabilities(n, p)
    x = as_float(x)
    if x.ndim == 0:
        raise ValueError("x must be an array.")
    if x.shape[-1] != p.shape[-1]:
        raise ValueError(
            f"Size of each quantile should be size of p: received {x.shape[-1]}, but expected "
            f"{p.shape[-1]}."
        )
    whole = np.floor(x)
    outside = np.logical_or(np.any(whole != x, axis=-1), np.any(whole < 0, axis=-1))
    outside = np.logical_or(outside, np.sum(whole, axis=-1) != n)
    safe = np.maximum(whole, 0.0)
    found = sc.gammaln(n + 1) + np.sum(sc.xlogy(safe, p) - sc.gammaln(safe + 1), axis=-1)
    return np.where(bad, np.nan, np.where(outside, -np.inf, found))


def multinomial_mean(n: Any, p: Any) -> Any:
    n, p, bad = _probabilities(n, p)
    return np.where(bad[..., np.newaxis], np.nan, n[..., np.newaxis] * p)


def multinomial_cov(n: Any, p: Any) -> Any:
    n, p, bad = _probabilities(n, p)
    spread = (
        np.eye(p.shape[-1]) * p[..., np.newaxis] - p[..., :, np.newaxis] * p[..., np.newaxis, :]
    )
    found = n[..., np.newaxis, np.newaxis] * spread
    return np.where(bad[..., np.newaxis, np.newaxis], np.nan, found)
