"""Kernel density estimates: scipy.stats.gaussian_kde.

The density at x is the sum over the points x_i, with weights w_i that add up to 1, of the normal
density of x - x_i. The covariance of that normal density is the covariance of the points times the
square of a factor (Scott, "Multivariate Density Estimation", 1992; Silverman, "Density
Estimation", 1986). With traced points or weights the estimate is an object of ours. SciPy's own
object can be evaluated at traced points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sc
from scipy import stats as theirs
from scipy.linalg import solve_triangular as plain_solve

from tapegrad.extending import (
    Carrier,
    any_traced,
    at_line,
    declare_calls,
    is_traced,
    observed,
    refusal,
    seen,
    stands_for,
    unobserved,
)
from tapegrad.scipy.linalg.systems import solve_triangular
from tapegrad.scipy.solver_calls import stopped

HOME = "scipy.stats"


class Kernels(Carrier):
    """A gaussian_kde with a known `factor` and Cholesky factor of the covariance. The columns of
    `dataset` are points."""

    def __init__(self, dataset: Any, weights: Any) -> None:
        self.dataset, self.weights = dataset, weights
        self.d, self.n = np.shape(dataset)
        self.neff = 1 / np.sum(weights**2)

    def set_bandwidth(self, bw_method: Any = None) -> None:
        self.factor = self._factor(bw_method)
        spread = np.atleast_2d(np.cov(self.dataset, aweights=self.weights, bias=False))
        self.covariance = spread * self.factor**2
        self.cho_cov = np.linalg.cholesky(spread) * self.factor

    def _factor(self, how: Any) -> Any:
        if how is None or (isinstance(how, str) and how == "scott"):
            return self.scotts_factor()
        if isinstance(how, str) and how == "silverman":
            return self.silverman_factor()
        if callable(how):
            return how(self)
        if np.ndim(how) or isinstance(how, str):
            raise ValueError("`bw_method` should be 'scott', 'silverman', a scalar or a callable.")
        return how

    def scotts_factor(self) -> Any:
        return self.neff ** (-1 / (self.d + 4))

    def silverman_factor(self) -> Any:
        return (self.neff * (self.d + 2) / 4) ** (-1 / (self.d + 4))

    def _energies(self, points: Any) -> tuple[Any, Any]:
        """Half the squared distances between `points`, along the first axis, and the kernels'
        centres, and log(sqrt(det(2 pi covariance)))."""
        points = np.atleast_2d(points)
        if np.shape(points)[0] != self.d:
            if np.shape(points) != (1, self.d):
                raise ValueError(
                    f"points have dimension {np.shape(points)[0]}, dataset has dimension {self.d}"
                )
            points = np.transpose(points)
        own, at = _solved(self.cho_cov, self.dataset), _solved(self.cho_cov, points * 1.0)
        squares = [(at[k][:, None] - own[k][None, :]) ** 2 for k in range(self.d)]
        size = np.sum(np.log(np.sqrt(2 * np.pi) * np.diagonal(self.cho_cov)))
        return 0.5 * sum(squares[1:], squares[0]), size

    def evaluate(self, points: Any) -> Any:
        energies, size = self._energies(points)
        return np.sum(self.weights * np.exp(-energies - size), axis=1)

    __call__ = pdf = evaluate

    def logpdf(self, x: Any) -> Any:
        energies, size = self._energies(x)
        least = stopped(np.min(energies, axis=1))
        total = np.sum(self.weights * np.exp(least[:, None] - energies), axis=1)
        return np.log(total) - least - size

    def integrate_box_1d(self, low: Any, high: Any) -> Any:
        if self.d != 1:
            raise ValueError("integrate_box_1d() only handles 1D pdfs")
        width, x = self.cho_cov[0, 0], self.dataset[0]
        return np.sum(self.weights * (sc.ndtr((high - x) / width) - sc.ndtr((low - x) / width)))


def _solved(a: Any, b: Any) -> Any:
    solve = solve_triangular if any_traced((a, b)) else plain_solve
    return solve(a, b, lower=True)


@stands_for(HOME)
def gaussian_kde(dataset: Any, bw_method: Any = None, weights: Any = None) -> Any:
    dataset = np.atleast_2d(dataset) * 1.0
    d, n = np.shape(dataset)
    if d * n < 2:
        raise ValueError("`dataset` input should have multiple elements.")
    if weights is None:
        weights = np.full(n, 1.0 / n)
    else:
        weights = np.atleast_1d(weights)
        weights = weights / np.sum(weights)
        if np.ndim(weights) != 1:
            raise ValueError("`weights` input should be one-dimensional.")
        if len(weights) != n:
            raise ValueError("`weights` input should be of length n")
    if d > n:
        raise ValueError("Number of dimensions is greater than number of samples.")
    made = Kernels(dataset, weights)
    made.set_bandwidth(bw_method)
    return made


# ---- SciPy's own objects, evaluated at traced points


def _of_theirs(kde: Any) -> Kernels:
    kde = seen(kde)
    made = Kernels(kde.dataset * 1.0, kde.weights)
    made.factor, made.covariance, made.cho_cov = kde.factor, kde.covariance, kde.cho_cov
    return made


@unobserved
def _called(kde: Any, points: Any) -> Any:
    if not is_traced(points):
        with observed():
            return kde(points)
    return _of_theirs(kde).evaluate(points)


declare_calls(theirs.gaussian_kde, _called, when=any_traced)


def _method(name: str, parameters: Callable[..., Any]) -> None:
    parameters.__name__ = name
    stands_for(theirs.gaussian_kde, name)(parameters)


_method("evaluate", lambda self, points: _of_theirs(self).evaluate(points))
_method("pdf", lambda self, x: _of_theirs(self).evaluate(x))
_method("logpdf", lambda self, x: _of_theirs(self).logpdf(x))
_method("integrate_box_1d", lambda self, low, high: _of_theirs(self).integrate_box_1d(low, high))


@stands_for(theirs.gaussian_kde)
def set_bandwidth(self: Any, bw_method: Any = None) -> None:
    raise refusal(
        f"gaussian_kde.set_bandwidth of a traced factor can't be traced{at_line()}, since the "
        "object was made outside. Make it in the function: gaussian_kde(dataset, factor)"
    )
