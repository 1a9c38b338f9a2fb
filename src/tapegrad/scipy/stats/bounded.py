"""Distributions on an interval.

Formulas are those of Johnson, Kotz and Balakrishnan, Continuous Univariate Distributions (1994,
1995), in SciPy's parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special as sc

from tapegrad.scipy.stats.formulas import (
    LOG_2,
    LOG_2PI,
    LOG_PI,
    falling,
    integral,
    norm_logpdf,
    of_sides,
    product,
    split,
    where,
    with_slopes,
)
from tapegrad.scipy.stats.laws import both, law

law(
    "uniform",
    logpdf=lambda x: x * 0.0,
    pdf=lambda x: x * 0.0 + 1.0,
    cdf=lambda x: x,
    ppf=lambda q: q,
)

# ---- beta, and distributions derived from it


def _beta_entropy(a: Any, b: Any) -> Any:
    found = sc.betaln(a, b) - (a - 1) * sc.digamma(a) - (b - 1) * sc.digamma(b)
    return found + (a + b - 2) * sc.digamma(a + b)


def _beta_logpdf(x: Any, a: Any, b: Any) -> Any:
    return sc.xlog1py(b - 1.0, -x) + sc.xlogy(a - 1.0, x) - sc.betaln(a, b)


law(
    "beta",
    logpdf=_beta_logpdf,
    cdf=lambda x, a, b: sc.betainc(a, b, x),
    sf=lambda x, a, b: sc.betaincc(a, b, x),
    ppf=lambda q, a, b: sc.betaincinv(a, b, q),
    isf=lambda q, a, b: sc.betainccinv(a, b, q),
    entropy=_beta_entropy,
)
law(
    "rdist",
    even=True,
    logpdf=lambda x, c: _beta_logpdf((x + 1) / 2, c / 2, c / 2) - LOG_2,
    cdf=lambda x, c: sc.betainc(c / 2, c / 2, (x + 1) / 2),
    ppf=lambda q, c: 2 * sc.betaincinv(c / 2, c / 2, q) - 1,
)
law(
    "arcsine",
    logpdf=lambda x: -LOG_PI - 0.5 * (np.log(x) + np.log1p(-x)),
    cdf=lambda x: 2.0 / np.pi * np.arctan2(np.sqrt(x), np.sqrt(1 - x)),
    sf=lambda x: 2.0 / np.pi * np.arctan2(np.sqrt(1 - x), np.sqrt(x)),
    ppf=lambda q: np.sin(np.pi / 2.0 * q) ** 2.0,
    isf=lambda q: np.cos(np.pi / 2.0 * q) ** 2.0,
)
law(
    "bradford",
    logpdf=lambda x, c: np.log(c) - np.log1p(c * x) - np.log(np.log1p(c)),
    cdf=lambda x, c: np.log1p(c * x) / np.log1p(c),
    sf=lambda x, c: split(
        x < 0.5,
        x,
        0.25,
        lambda x: 1 - np.log1p(c * x) / np.log1p(c),
        lambda x: np.log1p(c * (1 - x) / (1 + c * x)) / np.log1p(c),
    ),
    ppf=lambda q, c: np.expm1(q * np.log1p(c)) / c,
)
law(
    "powerlaw",
    logpdf=lambda x, a: np.log(a) + sc.xlogy(a - 1, x),
    pdf=lambda x, a: a * x ** (a - 1.0),
    **falling(
        lambda x, a: -a * np.log(x),
        lambda x, a: np.log(a) + np.log(-np.log(x)),
        lambda h, y, a: np.exp(-h / a),
    ),
    support=lambda a: (where(a >= 1, 0.0, np.nextafter(0.0, 1.0)), 1.0),
    within=lambda a: 0.5,
    inside=True,
)


def _less_its_sine(t: Any) -> Any:
    """t - sin(t), for small t by its series, since the difference would lose all digits. The slope
    1 - cos(t) is written as a square for the same reason."""
    small = np.abs(t) < 0.5
    near, series = where(small, t, 0.0), 1.0
    for k in (15, 13, 11, 9, 7, 5):
        series = 1.0 - near * near / (k * (k - 1)) * series
    half = np.sin(t / 2)
    return with_slopes(where(small, near**3 / 6 * series, t - np.sin(t)), (t, 2 * (half * half)))


law(
    "semicircular",
    even=True,
    logpdf=lambda x: LOG_2 - LOG_PI + 0.5 * np.log1p(-x * x),
    pdf=lambda x: 2.0 / np.pi * np.sqrt(1 - x * x),
    cdf=lambda x: _less_its_sine(2 * np.arccos(-x)) / (2 * np.pi),
)
law(
    "cosine",
    even=True,
    logpdf=lambda x: 2 * np.log(np.cos(x / 2)) - LOG_PI,
    pdf=lambda x: np.cos(x / 2) ** 2 / np.pi,
    cdf=lambda x: _less_its_sine(np.pi + x) / (2 * np.pi),
)
law(
    "anglit",
    even=True,
    logpdf=lambda x: np.log(np.cos(2 * x)),
    pdf=lambda x: np.cos(2 * x),
    cdf=lambda x: np.sin(x + np.pi / 4) ** 2.0,
    sf=lambda x: np.cos(x + np.pi / 4) ** 2.0,
    ppf=lambda q: np.arcsin(np.sqrt(q)) - np.pi / 4,
)
law(
    "johnsonsb",
    **product(
        lambda x, a, b: norm_logpdf(a + b * sc.logit(x)) - np.log(x) - np.log1p(-x),
        lambda x, a, b: b,
    ),
    cdf=lambda x, a, b: sc.ndtr(a + b * sc.logit(x)),
    sf=lambda x, a, b: sc.ndtr(-(a + b * sc.logit(x))),
    ppf=lambda q, a, b: sc.expit((sc.ndtri(q) - a) / b),
    isf=lambda q, a, b: sc.expit((-sc.ndtri(q) - a) / b),
    open=True,
)

# ---- a triangle


def _triang(x: Any, c: Any, rising: Any, falling: Any) -> Any:
    """A formula of x / c below c, and one of (1 - x) / (1 - c) from c on: both are 1 at the top."""
    up = both(x < c) if not isinstance(c, float) or c > 0 else False
    left = where(c > 0, c, 1.0)
    right = where(c < 1, 1 - c, 1.0)
    rises = np.logical_or(x < c, c == 1) if up is not False else False
    return where(rises, rising(x, left), falling(1 - x, right))


def _triang_cdf(x: Any, c: Any) -> Any:
    def falling(y: Any, d: Any) -> Any:
        return where(x < 0.5, (x * (2 - x) - c) / d, 1 - y * y / d)

    return _triang(x, c, lambda x, c: x * x / c, falling)


law(
    "triang",
    logpdf=lambda x, c: _triang(
        x, c, lambda x, c: np.log(2 * x / c), lambda y, d: np.log(2 * y / d)
    ),
    pdf=lambda x, c: _triang(x, c, lambda x, c: 2 * x / c, lambda y, d: 2 * y / d),
    cdf=_triang_cdf,
    sf=lambda x, c: _triang(x, c, lambda x, c: 1 - x * x / c, lambda y, d: y * y / d),
    ppf=lambda q, c: where(q < c, np.sqrt(c * q), 1 - np.sqrt((1 - c) * (1 - q))),
    isf=lambda q, c: where(q < 1 - c, 1 - np.sqrt((1 - c) * q), np.sqrt(c * (1 - q))),
    within=lambda c: 0.5,
)


# ---- on the circle


def _wrapcauchy_half(x: Any, c: Any) -> Any:
    return np.arctan((1 + c) / (1 - c) * np.tan(x / 2)) / np.pi


def _wrapcauchy_side(x: Any, c: Any, lower: bool) -> Any:
    first = x < np.pi
    left = _wrapcauchy_half(where(first, x, 0.0), c)
    right = _wrapcauchy_half(2 * np.pi - where(first, 2 * np.pi, x), c)
    return where(first, left, 1 - right) if lower else where(first, 1 - left, right)


def _wrapcauchy_ppf(q: Any, c: Any) -> Any:
    return split(
        q < 0.5,
        q,
        0.5,
        lambda q: 2 * np.arctan((1.0 - c) / (1.0 + c) * np.tan(np.pi * q)),
        lambda q: 2 * np.pi - 2 * np.arctan((1.0 - c) / (1.0 + c) * np.tan(np.pi * (1 - q))),
    )


law(
    "wrapcauchy",
    logpdf=lambda x, c: np.log1p(-c * c) - LOG_2PI - np.log(1 + c * c - 2 * c * np.cos(x)),
    pdf=lambda x, c: (1.0 - c * c) / (2 * np.pi * (1 + c * c - 2 * c * np.cos(x))),
    cdf=lambda x, c: _wrapcauchy_side(x, c, lower=True),
    sf=lambda x, c: _wrapcauchy_side(x, c, lower=False),
    ppf=_wrapcauchy_ppf,
    isf=lambda q, c: 2 * np.pi - _wrapcauchy_ppf(q, c),
)


def _vonmises_logpdf(x: Any, kappa: Any) -> Any:
    """kappa (cos(x) - 1) as -2 kappa sin(x / 2)^2, with the scaled Bessel function: neither
    overflows."""
    half = np.sin(x * 0.5)
    return -2 * kappa * (half * half) - LOG_2PI - np.log(sc.i0e(kappa))


_TERMS = np.arange(1, 61)
MIN_APPROXIMATED = 50.0  # concentrations from which SciPy's approximation is used


def _vonmises_cdf(x: Any, kappa: Any) -> Any:
    """The integral of the density's Fourier series: 1/2 + x / 2 pi plus the sum of I_n(k) / I_0(k)
    sin(n x) / (n pi) (Mardia and Jupp, Directional Statistics, 2000, 3.5.37). Whole turns are
    added back. Towards the ends, where the series would cancel, it is a quadrature. For
    concentrations from `MIN_APPROXIMATED` on it is SciPy's approximation: b sin(x / 2) is a normal
    variable."""
    turns = np.round(x / (2 * np.pi))
    x = x - turns * (2 * np.pi)
    few = kappa < MIN_APPROXIMATED
    k = where(few, kappa, 1.0)
    n = _TERMS.reshape((-1,) + (1,) * max(np.ndim(x), np.ndim(k)))
    waves = np.sum(sc.ive(n, k) * np.sin(n * x) / n, axis=0) / sc.i0e(k)
    series = np.clip(0.5 + x / (2 * np.pi) + waves / np.pi, 0.0, 1.0)
    size = where(x < 0, -x, x)
    outer = size > 0.7
    gap = where(outer, np.pi - size, 1.0) + 1.2246467991473532e-16  # pi minus its float
    tail = integral(lambda s: np.exp(-2 * k * np.cos(s / 2) ** 2), gap, 48) / sc.i0e(k)
    tail = tail / (2 * np.pi)
    series = where(outer, where(x < 0, tail, 1.0 - tail), series)
    near = sc.ndtr(np.sqrt(2 / np.pi) / sc.i0e(where(few, MIN_APPROXIMATED, kappa)) * np.sin(x / 2))
    return where(few, series, near) + turns


for _name in ("vonmises", "vonmises_line"):
    law(
        _name,
        logpdf=_vonmises_logpdf,
        cdf=_vonmises_cdf,
        even=True,
        finite=True,
        within=lambda kappa: 0.0,
    )

# ---- particles in a detector


def _argus_log_m(t: Any) -> Any:
    """The logarithm of Kummer's M(1, 5/2, t), by P(3/2, t) = t^(3/2) exp(-t) M(1, 5/2, t) /
    Gamma(5/2)."""
    small = t < 1.0
    near = np.log(sc.hyp1f1(1.0, 2.5, where(small, t, 0.0)))
    t = where(small, 1.0, t)
    far = np.log(sc.gammainc(1.5, t)) - 1.5 * np.log(t) + t + float(sc.gammaln(2.5))
    return where(small, near, far)


def _argus_exponent(x: Any, chi: Any) -> Any:
    t = 0.5 * chi * chi
    return np.log(3.0) + 0.5 * np.log1p(-x * x) + t * (x * x) - _argus_log_m(t)


def _argus_sides(x: Any, chi: Any) -> tuple[Any, Any]:
    """F(x) and 1 - F(x), where 1 - F(x) = P(3/2, t (1 - x^2)) / P(3/2, t). Where t x^2 and x are
    small, F is a quadrature. Each keeps its digits where it is the smaller one."""
    t = 0.5 * chi * chi
    inner = both(x < 0.8, t * (x * x) < 1.0)
    y, s = where(inner, x, 0.5), where(inner, t, 1.0)
    level = _argus_log_m(s)
    near = integral(lambda z: 3 * z * np.sqrt(1 - z * z) * np.exp(s * (z * z) - level), y, 20)
    few = t < 1.0
    s, r = where(few, t, 1.0), (1 - x) * (1 + x)
    ratio = np.exp(s * (x * x) + _argus_log_m(s * r) - _argus_log_m(s))
    t = where(few, 1.0, t)
    above = where(few, r * np.sqrt(r) * ratio, sc.gammainc(1.5, t * r) / sc.gammainc(1.5, t))
    beyond = (sc.gammaincc(1.5, t * r) - sc.gammaincc(1.5, t)) / sc.gammainc(1.5, t)
    return where(inner, near, where(few, 1.0 - above, beyond)), above


law(
    "argus",
    **product(_argus_exponent, lambda x, chi: x),
    **of_sides(_argus_sides),
    finite=True,
    inside=True,
)
