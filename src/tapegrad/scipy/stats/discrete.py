"""Distributions of integers.

Formulas are those of Johnson, Kemp and Kotz, Univariate Discrete Distributions (2005), in SciPy's
parameters. A mass function has no slope along k: k is floored, and the derivative of floor is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special as sc

from tapegrad.scipy.stats.formulas import gammaln, rising, split, where, zeta
from tapegrad.scipy.stats.laws import law

# ---- binomial, and distributions derived from it


def _binom_logpmf(k: Any, n: Any, p: Any) -> Any:
    combinations = gammaln(n + 1) - (gammaln(k + 1) + gammaln(n - k + 1))
    return combinations + sc.xlogy(k, p) + sc.xlog1py(n - k, -p)


law(
    "binom",
    logpdf=_binom_logpmf,
    cdf=lambda k, n, p: sc.betainc(n - k, k + 1, 1 - p),
    sf=lambda k, n, p: sc.betainc(k + 1, n - k, p),
    within=lambda n, p: 0.0,
    entropy=None,
)
law(
    "bernoulli",
    logpdf=lambda k, p: sc.xlogy(k, p) + sc.xlog1py(1 - k, -p),
    cdf=lambda k, p: 1 - p + k * 0.0,
    sf=lambda k, p: p + k * 0.0,
    within=lambda p: 0.0,
)


def _betabinom_logpmf(k: Any, n: Any, a: Any, b: Any) -> Any:
    combinations = -np.log(n + 1) - sc.betaln(n - k + 1, k + 1)
    return combinations + sc.betaln(k + a, n - k + b) - sc.betaln(a, b)


law(
    "betabinom",
    logpdf=_betabinom_logpmf,
    within=lambda n, a, b: 0.0,
)


law(
    "betanbinom",
    logpdf=lambda k, n, a, b: (
        -np.log(n + k) - sc.betaln(n, k + 1) + sc.betaln(a + n, b + k) - sc.betaln(a, b)
    ),
    within=lambda n, a, b: 0.0,
)
law(
    "nbinom",
    logpdf=lambda k, n, p: (
        gammaln(n + k) - gammaln(k + 1) - gammaln(n) + n * np.log(p) + sc.xlog1py(k, -p)
    ),
    cdf=lambda k, n, p: sc.betainc(n, k + 1, p),
    sf=lambda k, n, p: sc.betainc(k + 1, n, 1 - p),
    within=lambda n, p: 0.0,
    mean=lambda n, p: n * (1 - p) / p,
    var=lambda n, p: n * (1 - p) / (p * p),
)
law(
    "hypergeom",
    logpdf=lambda k, tot, good, n: (
        sc.betaln(good + 1, 1.0)
        + sc.betaln(tot - good + 1, 1.0)
        + sc.betaln(tot - n + 1, n + 1)
        - sc.betaln(k + 1, good - k + 1)
        - sc.betaln(n - k + 1, tot - good - n + k + 1)
        - sc.betaln(tot + 1, 1.0)
    ),
    within=lambda tot, good, n: np.minimum(good, n),
    mean=lambda tot, good, n: n * good / tot,
    var=lambda tot, good, n: n * good / tot * ((tot - good) / tot) * ((tot - n) / (tot - 1)),
)

# ---- counts


law(
    "poisson",
    logpdf=lambda k, mu: sc.xlogy(k, mu) - gammaln(k + 1) - mu,
    cdf=lambda k, mu: sc.gammaincc(k + 1, mu),
    sf=lambda k, mu: sc.gammainc(k + 1, mu),
    within=lambda mu: 0.0,
)
law(
    "geom",
    logpdf=lambda k, p: sc.xlog1py(k - 1, -p) + np.log(p),
    **rising(lambda k, p: -np.log1p(-p) * k, lambda k, p: np.log(k) + np.log(-np.log1p(-p))),
    within=lambda p: 1.0,
)
law(
    "logser",
    logpdf=lambda k, p: k * np.log(p) - np.log(k) - np.log(-np.log1p(-p)),
    within=lambda p: 1.0,
)
law(
    "planck",
    logpdf=lambda k, rate: np.log(-np.expm1(-rate)) - rate * k,
    **rising(lambda k, rate: rate * (k + 1), lambda k, rate: np.log(rate) + np.log(k + 1)),
    within=lambda rate: 0.0,
)


def _log_boltzmann(rate: Any, n: Any) -> Any:
    """log((1 - exp(-rate)) / (1 - exp(-rate n)))."""
    return split(
        rate < 1.0,
        rate,
        0.5,
        lambda rate: np.log(sc.exprel(-rate)) - np.log(sc.exprel(-rate * n)) - np.log(n),
        lambda rate: np.log(-np.expm1(-rate)) - np.log(-np.expm1(-rate * n)),
    )


law(
    "boltzmann",
    logpdf=lambda k, rate, n: _log_boltzmann(rate, n) - rate * k,
    cdf=lambda k, rate, n: np.expm1(-rate * (k + 1)) / np.expm1(-rate * n),
    sf=lambda k, rate, n: (
        (n - k - 1)
        / n
        * np.exp(-rate * (k + 1))
        * sc.exprel(-rate * (n - k - 1))
        / sc.exprel(-rate * n)
    ),
    within=lambda rate, n: 0.0,
)
law(
    "dlaplace",
    logpdf=lambda k, a: np.log(np.tanh(a / 2.0)) - a * np.abs(k),
    cdf=lambda k, a: where(
        k >= 0,
        1.0 - np.exp(-a * (where(k >= 0, k, 0.0) + 1)) / (np.exp(-a) + 1),
        np.exp(a * (where(k >= 0, 0.0, k) + 1)) / (np.exp(a) + 1),
    ),
    within=lambda a: 0.0,
)
law(
    "randint",
    logpdf=lambda k, low, high: k * 0.0 - np.log(high - low),
    cdf=lambda k, low, high: (k - low + 1.0) / (high - low),
    within=lambda low, high: low,
)


law(
    "zipf",
    logpdf=lambda k, a: -a * np.log(k) - np.log(zeta(a)),
    within=lambda a: 1.0,
)
law(
    "yulesimon",
    logpdf=lambda k, alpha: np.log(alpha) + sc.betaln(k, alpha + 1),
    within=lambda alpha: 1.0,
)
