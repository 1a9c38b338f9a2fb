"""Formulas of distributions of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special as sc

from tapegrad.scipy.linalg.factors import cholesky
from tapegrad.scipy.linalg.systems import solve_triangular
from tapegrad.scipy.stats.formulas import LOG_2, LOG_PI
from tapegrad.scipy.stats.vectors import as_float, squeezed, whole_matrix


def _multigammaln(a: Any, dim: int) -> Any:
    """log Gamma_d(a): the sum of log Gamma(a - j / 2), plus a power of pi."""
    terms = sc.gammaln(np.expand_dims(a, -1) - 0.5 * np.arange(float(dim)))
    return dim * (dim - 1) * 0.25 * LOG_PI + np.sum(terms, axis=-1)


def _degrees(df: Any, scale: Any) -> tuple[int, Any, Any, Any]:
    """The dimension, the degrees of freedom, the Cholesky factor of the scale, and
    log(det(scale))."""
    scale = as_float(1.0 if scale is None else scale)
    if scale.ndim > 2:
        raise ValueError(
            f"Array 'scale' must be at most two-dimensional, but scale.ndim = {scale.ndim}"
        )
    if scale.ndim == 2 and scale.shape[0] != scale.shape[1]:
        raise ValueError(
            "Array 'scale' must be square if it is two dimensional, but scale.scale = "
            f"{scale.shape}."
        )
    dim = scale.shape[0] if scale.ndim else 1
    factor = cholesky(whole_matrix(scale, dim), lower=True)
    df = dim if df is None else df
    if np.ndim(df):
        raise ValueError("Degrees of freedom must be a scalar.")
    if df <= dim - 1:
        raise ValueError(
            "Degrees of freedom must be greater than the dimension of scale matrix minus 1."
        )
    return dim, df, factor, 2 * np.sum(np.log(np.diagonal(factor)))


def _matrices(x: Any, dim: int) -> Any:
    """Matrices along the first axis; SciPy has them along the last."""
    x = as_float(x)
    if x.ndim == 0:
        x = (x * np.eye(dim))[np.newaxis]
    elif x.ndim == 1:
        x = x[:, np.newaxis, np.newaxis] if dim == 1 else np.diag(x)[np.newaxis]
    elif x.ndim == 2:
        x = x[np.newaxis]
    elif x.ndim == 3:
        x = np.moveaxis(x, 2, 0)
    if x.ndim != 3 or x.shape[1:] != (dim, dim):
        raise ValueError(
            f"Quantiles have incompatible dimensions: should be {(dim, dim)}, got {x.shape[1:]}."
        )
    return x


def wishart_logpdf(x: Any, df: Any, scale: Any) -> Any:
    dim, df, factor, log_det = _degrees(df, scale)
    roots = cholesky(_matrices(x, dim), lower=True)
    log_det_x = 2 * np.sum(np.log(np.diagonal(roots, axis1=1, axis2=2)), axis=-1)
    columns = np.reshape(np.moveaxis(roots, 0, 1), (dim, -1))
    halves = np.reshape(solve_triangular(factor, columns, lower=True), (dim, -1, dim))
    trace = np.sum(halves * halves, axis=(0, 2))
    found = 0.5 * (df - dim - 1) * log_det_x - 0.5 * trace
    constant = 0.5 * df * (dim * LOG_2 + log_det) + _multigammaln(0.5 * df, dim)
    return squeezed(found - constant)


def invwishart_logpdf(x: Any, df: Any, scale: Any) -> Any:
    dim, df, factor, log_det = _degrees(df, scale)
    roots = cholesky(_matrices(x, dim), lower=True)
    halves = solve_triangular(roots, np.broadcast_to(factor, roots.shape), lower=True)
    log_det_x = 2 * np.sum(np.log(np.diagonal(roots, axis1=1, axis2=2)), axis=-1)
    found = 0.5 * df * (log_det - dim * LOG_2) - 0.5 * np.sum(halves * halves, axis=(1, 2))
    return squeezed(found - 0.5 * (df + dim + 1) * log_det_x - _multigammaln(0.5 * df, dim))


def wishart_entropy(df: Any, scale: Any) -> Any:
    dim, df, _, log_det = _degrees(df, scale)
    slopes = np.sum(sc.digamma(0.5 * (df - np.arange(float(dim)))))
    found = 0.5 * (dim + 1) * (log_det + dim * LOG_2) + _multigammaln(0.5 * df, dim)
    return found - 0.5 * (df - dim - 1) * slopes + 0.5 * df * dim


def wishart_mean_of(scale: Any, factor: Any) -> Any:
    scale = as_float(1.0 if scale is None else scale)
    return squeezed(whole_matrix(scale, scale.shape[0] if scale.ndim else 1) * factor)
