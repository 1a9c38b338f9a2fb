"""Distributions on the whole real line.

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
    log_expm1,
    log_softplus,
    mirrored,
    norm_logpdf,
    norm_pdf,
    product,
    share_of_power,
    split,
    where,
    with_slopes,
)
from tapegrad.scipy.stats.laws import both, law

SQRT_2 = float(np.sqrt(2.0))


law(
    "norm",
    even=True,
    logpdf=norm_logpdf,
    pdf=norm_pdf,
    cdf=sc.ndtr,
    logcdf=sc.log_ndtr,
    ppf=sc.ndtri,
)

# ---- Student's t


def _t_logpdf(x: Any, df: Any) -> Any:
    """The log density. The ratio of gamma functions is Pochhammer's symbol, which is exact for
    large df."""
    finite = _finite(df)
    density = np.log(sc.poch(0.5 * finite, 0.5)) - 0.5 * (np.log(finite) + LOG_PI)
    density = density - (finite + 1) / 2 * np.log1p(x * x / finite)
    return where(df == np.inf, norm_logpdf(x), density)


def _finite(df: Any) -> Any:
    return where(df == np.inf, 1.0, df)


def _t_cdf(x: Any, df: Any) -> Any:
    return where(df == np.inf, sc.ndtr(x), sc.stdtr(_finite(df), x))


def _t_ppf(q: Any, df: Any) -> Any:
    return where(df == np.inf, sc.ndtri(q), sc.stdtrit(_finite(df), q))


def _t_entropy(df: Any) -> Any:
    small, large = where(df >= 100, 1.0, df), where(df >= 100, df, 100.0)
    half, half1 = small / 2, (small + 1) / 2
    regular = half1 * (sc.digamma(half1) - sc.digamma(half)) + 0.5 * np.log(small)
    regular = regular + sc.betaln(half, 0.5)
    r = 1 / large
    series = r * (1 + r * (1 / 4 + r * (-1 / 6 + r * (-1 / 8 + r * (3 / 10 + r / 4)))))
    return where(df >= 100, 0.5 * (LOG_2PI + 1) + series, regular)


law(
    "t",
    even=True,
    logpdf=_t_logpdf,
    cdf=lambda x, df: _t_cdf(x, df),
    ppf=lambda q, df: _t_ppf(q, df),
    entropy=_t_entropy,
)


def _jf_skew_t_at(x: Any, a: Any, b: Any) -> Any:
    """The log odds of a beta variable. The slopes are stated: for large x the slope along x
    approaches 2 / x, that along the shapes a constant."""
    s = a + b
    r = np.hypot(x, np.sqrt(s))
    share = with_slopes(x / r, (x, s / r / r / r), (s, x / r / r / r * -0.5))
    return with_slopes(2 * np.arcsinh(x / np.sqrt(s)), (x, 2 / r), (s, -share / s))


def _jf_skew_t_logpdf(x: Any, a: Any, b: Any) -> Any:
    y = _jf_skew_t_at(x, a, b)
    found = (a + 0.5) * sc.log_expit(y) + (b + 0.5) * sc.log_expit(-y)
    return found + 2 * LOG_2 - sc.betaln(a, b) - 0.5 * np.log(a + b)


def _jf_skew_t_side(below: Any, above: Any) -> Any:
    """A probability by the smaller one of the beta variable and 1 minus it, so that nothing
    cancels."""

    def probability(x: Any, a: Any, b: Any) -> Any:
        y = _jf_skew_t_at(x, a, b)
        right = y > 0
        near, far = below(a, b, sc.expit(where(right, 0.0, y))), sc.expit(where(right, -y, 0.0))
        return where(right, above(b, a, far), near)

    return probability


law(
    "jf_skew_t",
    "ppf",
    logpdf=_jf_skew_t_logpdf,
    cdf=_jf_skew_t_side(sc.betainc, sc.betaincc),
    sf=_jf_skew_t_side(sc.betaincc, sc.betainc),
    finite=True,
)

# ---- without a shape parameter


def _cauchy_logpdf(x: Any) -> Any:
    """-log(1 + x^2) - log(pi), written so that x^2 doesn't overflow."""
    return split(
        np.abs(x) < 1e100,
        x,
        1.0,
        lambda x: -np.log1p(x * x) - LOG_PI,
        lambda x: -2 * np.log(np.abs(x)) - LOG_PI,
    )


def _cauchy_ppf(q: Any) -> Any:
    """tan(pi (q - 1/2)); in the tails it is computed from q, or from 1 - q."""
    upper, middle = q > 0.5, np.abs(q - 0.5) < 0.25
    tail = 1 / np.tan(np.pi * where(middle, 0.25, where(upper, 1 - q, q)))
    near = np.tan(np.pi * where(middle, q - 0.5, 0.0))
    return where(middle, near, where(upper, tail, -tail))


law(
    "cauchy",
    even=True,
    logpdf=_cauchy_logpdf,
    pdf=lambda x: 1.0 / np.pi / (1.0 + x * x),
    cdf=lambda x: with_slopes(
        np.arctan2(1.0, -x) / np.pi, (x, 1.0 / np.pi / (1.0 + np.clip(x, -1e100, 1e100) ** 2))
    ),
    ppf=lambda q: _cauchy_ppf(q),
)
law(
    "laplace",
    even=True,
    logpdf=lambda x: -np.abs(x) - LOG_2,
    pdf=lambda x: 0.5 * np.exp(-np.abs(x)),
    cdf=lambda x: _laplace_cdf(x),
    ppf=lambda q: _laplace_ppf(q),
)


def _laplace_cdf(x: Any) -> Any:
    tail = 0.5 * np.exp(where(x > 0, -x, x))  # has a slope at 0, unlike -abs(x)
    return where(x > 0, 1.0 - tail, tail)


def _laplace_ppf(q: Any) -> Any:
    upper = q > 0.5
    tail = np.log(2 * where(upper, 1 - q, q))
    return where(upper, -tail, tail)


def _logistic_logpdf(x: Any) -> Any:
    y = where(x > 0, -x, x)
    return with_slopes(y - 2.0 * np.log1p(np.exp(y)), (x, -np.tanh(x / 2)))


law(
    "logistic",
    even=True,
    logpdf=_logistic_logpdf,
    cdf=sc.expit,
    logcdf=sc.log_expit,
    ppf=sc.logit,
)


def _capped_exp(x: Any) -> Any:
    """exp(x), capped at exp(700), for functions that have reached their limit long before. There
    the slope is 0, and not a product of 0 and infinity."""
    return np.exp(where(both(x > 700.0, x < np.inf), 700.0, x))


def _gumbel_pdf(x: Any) -> Any:
    """The density, with a stated slope: the logarithm's slope is 0 at the mode. Left of -8 it is
    0."""
    y = where(both(x < -8.0, x > -np.inf), -8.0, x)
    found = np.exp(-y - np.exp(-y))
    return with_slopes(found, (y, found * np.expm1(-y)))


_GUMBEL: dict[str, Any] = {
    "logpdf": lambda x: with_slopes(-x - np.exp(-x), (x, np.expm1(-x))),
    "pdf": lambda x: _gumbel_pdf(x),
    **falling(lambda x: np.exp(-x), lambda x: -x, lambda h, y: -y),
    "cdf": lambda x: with_slopes(np.exp(-_capped_exp(-x)), (x, _gumbel_pdf(np.maximum(x, -8.0)))),
    "sf": lambda x: with_slopes(
        -np.expm1(-_capped_exp(-x)), (x, -_gumbel_pdf(np.maximum(x, -8.0)))
    ),
}
law("gumbel_r", **_GUMBEL)
law("gumbel_l", **mirrored(_GUMBEL))


def _hypsecant_logpdf(x: Any) -> Any:
    return with_slopes(LOG_2 - LOG_PI - np.logaddexp(x, -x), (x, -np.tanh(x)))


law(
    "hypsecant",
    even=True,
    logpdf=_hypsecant_logpdf,
    cdf=lambda x: with_slopes(
        2.0 / np.pi * np.arctan(_capped_exp(x)), (x, np.exp(_hypsecant_logpdf(x)))
    ),
    ppf=lambda q: np.log(np.tan(np.pi * q / 2.0)),
)
law(
    "moyal",
    logpdf=lambda x: -0.5 * (x + np.exp(-x)) - LOG_2PI / 2,
    pdf=lambda x: np.exp(-0.5 * (x + _capped_exp(-x)) - LOG_2PI / 2),
    cdf=lambda x: sc.erfc(np.exp(-0.5 * x) / SQRT_2),
    sf=lambda x: sc.erf(np.exp(-0.5 * x) / SQRT_2),
    ppf=lambda q: -np.log(2 * sc.erfcinv(q) ** 2),
)

# ---- with shape parameters


def _genlogistic_exponent(x: Any, c: Any) -> Any:
    """-x - (c + 1) log(1 + exp(-x)), written so that exp doesn't overflow."""
    size = where(x < 0, -x, x)
    return -where(x < 0, c, 1.0) * size - (c + 1) * np.log1p(np.exp(-size))


law(
    "genlogistic",
    **product(_genlogistic_exponent, lambda x, c: c),
    **falling(
        lambda x, c: -c * sc.log_expit(x),
        lambda x, c: np.log(c) + log_softplus(-x),
        lambda h, y, c: -log_expm1(h / c, y - np.log(c)),
    ),
)
law(
    "gennorm",
    even=True,
    logpdf=lambda x, b: np.log(0.5 * b) - sc.gammaln(1.0 / b) - np.abs(x) ** b,
    cdf=lambda x, b: _gennorm_cdf(x, b),
    ppf=lambda q, b: _gennorm_ppf(q, b),
    mean=lambda b: 0.0,
    var=lambda b: np.exp(sc.gammaln(3.0 / b) - sc.gammaln(1.0 / b)),
    skew=lambda b: 0.0,
)


def _gennorm_cdf(x: Any, b: Any) -> Any:
    size = np.abs(x)
    middle = size**b < 1e-17  # nearly a straight line there
    power = where(middle, 1.0, size) ** b
    tail = 0.5 * share_of_power(where(middle, 1.0, size), b, power, upper=True)
    line = 0.5 + 0.5 * b * x / sc.gamma(1.0 / b)
    return where(middle, line, where(x > 0, 1.0 - tail, tail))


def _gennorm_ppf(q: Any, b: Any) -> Any:
    middle = q == 0.5  # nearly a straight line there
    c = where(q < 0.5, -1.0, 1.0)
    p = where(middle, 0.5, 1.0 + c - 2.0 * c * q)
    line = (q - 0.5) * 2.0 * sc.gamma(1.0 / b) / b
    return where(middle, line, c * sc.gammainccinv(1.0 / b, p) ** (1.0 / b))


# For h > 0, 2 T(h, a) of Owen's T rises with a from 0 to the normal tail Q(h). Their
# difference is 1 / pi times the integral of exp(-h^2 (1 + s^2) / 2) / (1 + s^2) over s > a. With
# s = a + v / (a h^2) the integrand is exp(-v) times a smooth function.
_NODES, _WEIGHTS = np.polynomial.laguerre.laggauss(48)


def _skewnorm_cdf(x: Any, a: Any) -> Any:
    """ndtr(x) - 2 T(x, a). Far out in the thin tail the difference would cancel; there it is a
    Gauss-Laguerre quadrature."""
    thin = both(x < 0, a > 0, -x * a > 4.0)
    h, slope = where(thin, -x, 1.0), where(thin, a, 5.0)
    rate = slope * h * h
    v = _NODES.reshape((-1,) + (1,) * np.ndim(rate))
    s = slope + v / rate
    weights = _WEIGHTS.reshape(v.shape)
    rest = np.sum(weights * np.exp(-0.5 * v * v / (rate * slope)) / (1 + s * s), axis=0)
    tail = np.exp(-0.5 * h * h * (1 + slope * slope)) * rest / (np.pi * rate)
    return where(thin, tail, sc.ndtr(x) - 2 * sc.owens_t(x, a))


law(
    "skewnorm",
    logpdf=lambda x, a: LOG_2 + norm_logpdf(x) + sc.log_ndtr(a * x),
    pdf=lambda x, a: 2.0 * norm_pdf(x) * sc.ndtr(a * x),
    cdf=_skewnorm_cdf,
    sf=lambda x, a: _skewnorm_cdf(-x, -a),
    finite=True,
)


def _exponnorm_term(x: Any, k: Any) -> Any:
    """log(exp(1 / (2 k^2) - x / k) Phi(x - 1 / k)). Left of 1 / k, where the two factors differ
    greatly in size, it is computed by exp(y^2) erfc(y)."""
    rate = 1.0 / k
    left = x < rate
    at = where(left, x, 0.0)
    scaled = sc.erfcx((rate - at) / SQRT_2)
    right = where(left, rate, x)
    tail = rate * (0.5 * rate - right) + sc.log_ndtr(right - rate)
    return where(left, np.log(scaled) - 0.5 * at * at - LOG_2, tail)


law(
    "exponnorm",
    logpdf=lambda x, k: _exponnorm_term(x, k) - np.log(k),
    cdf=lambda x, k: sc.ndtr(x) - np.exp(_exponnorm_term(x, k)),
    sf=lambda x, k: sc.ndtr(-x) + np.exp(_exponnorm_term(x, k)),
    finite=True,
)


def _loggamma_tail(x: Any, c: Any, upper: bool) -> Any:
    """An incomplete gamma function at exp(x), by its leading term where exp(x) would underflow."""
    low = x < -700
    leading = np.exp(c * where(low, x, -700.0) - sc.gammaln(c + 1))
    y = _capped_exp(where(low, 0.0, x))
    if upper:
        return where(low, 1.0 - leading, sc.gammaincc(c, y))
    return where(low, leading, sc.gammainc(c, y))


def _loggamma_ppf(q: Any, c: Any) -> Any:
    """The logarithm of a quantile of the gamma distribution, by the leading term in q where the
    quantile would underflow."""
    found = sc.gammaincinv(c, q)
    low = found < 1e-290
    leading = (np.log(q) + sc.gammaln(c + 1)) / c
    return where(low, leading, np.log(where(low, 1.0, found)))


law(
    "loggamma",
    logpdf=lambda x, c: c * x - np.exp(x) - sc.gammaln(c),
    pdf=lambda x, c: np.exp(c * x - _capped_exp(x) - sc.gammaln(c)),
    cdf=lambda x, c: _loggamma_tail(x, c, upper=False),
    sf=lambda x, c: _loggamma_tail(x, c, upper=True),
    ppf=lambda q, c: _loggamma_ppf(q, c),
    isf=lambda q, c: np.log(sc.gammainccinv(c, q)),
)
law(
    "skewcauchy",
    logpdf=lambda x, a: _skewcauchy_log(x, a * np.sign(x) + 1) - LOG_PI,
    pdf=lambda x, a: 1 / (np.pi * ((x / (a * np.sign(x) + 1)) ** 2 + 1)),
    cdf=lambda x, a: _skewcauchy_cdf(x, a),
    sf=lambda x, a: _skewcauchy_cdf(-x, -a),
    ppf=lambda q, a: _skewcauchy_ppf(q, a),
    isf=lambda q, a: -_skewcauchy_ppf(q, -a),
)


def _skewcauchy_log(x: Any, side: Any) -> Any:
    """-log(1 + (x / side)^2). Its slopes are those of 2 log(side) - log(r^2), r^2 = x^2 + side^2,
    since for large x the slope along `side` would cancel."""
    r = np.hypot(x, side)
    along, across = x / r, side / r
    share = with_slopes(along, (x, across * across / r), (side, -(along * across / r)))
    slopes = (x, -2 * (x / r / r)), (side, 2 * (share * share) / side)
    return with_slopes(-np.log1p((x / side) ** 2), *slopes)


def _skewcauchy_cdf(x: Any, a: Any) -> Any:
    """Cauchy's distribution function, scaled to the probabilities (1 - a) / 2 left of 0 and (1 +
    a) / 2 right of it."""
    left = x <= 0
    side = where(left, 1 - a, 1 + a)
    beyond = side / np.pi * np.arctan2(side, where(left, -x, x))
    return where(left, beyond, 1 - beyond)


def _skewcauchy_ppf(q: Any, a: Any) -> Any:
    left = q < (1 - a) / 2
    side = where(left, 1 - a, 1 + a)
    found = side * _cauchy_ppf(where(left, q, 1 - q) / side)
    return where(left, found, -found)


law(
    "laplace_asymmetric",
    logpdf=lambda x, k: x * where(x >= 0, -k, 1 / k) - np.log(k + 1 / k),
    cdf=lambda x, k: where(x >= 0, 1 - _above(x, k), _below(x, k)),
    sf=lambda x, k: where(x >= 0, _above(x, k), 1 - _below(x, k)),
    logcdf=lambda x, k: _laplace_log(x, 1 / k),
    logsf=lambda x, k: _laplace_log(-x, k),
)


def _laplace_log(x: Any, k: Any) -> Any:
    """The logarithm of P(X < x), which falls as exp(k x) left of 0."""
    right = x >= 0
    left = k * where(right, 0.0, x) - np.log1p(k * k)
    above = k * k / (k * k + 1) * np.exp(-where(right, x, 0.0) / k)
    return where(right, np.log1p(-above), left)


def _above(x: Any, k: Any) -> Any:
    return np.exp(-where(x >= 0, x, 0.0) * k) / (k * k + 1)


def _below(x: Any, k: Any) -> Any:
    return np.exp(where(x >= 0, 0.0, x) / k) * (k * k / (k * k + 1))


def _half(tail: Any) -> Any:
    """The distribution function of an even density with P(|X| > x) = tail(x)."""

    def below(x: Any, shape: Any) -> Any:
        half = 0.5 * tail(where(x > 0, x, -x), shape)  # slope -1 at 0, where |x| has a kink
        return where(x > 0, 1.0 - half, half)

    return below


law(
    "dgamma",
    even=True,
    cdf=_half(lambda x, a: sc.gammaincc(a, x)),
    logpdf=lambda x, a: sc.xlogy(a - 1.0, np.abs(x)) - np.abs(x) - LOG_2 - sc.gammaln(a),
)
law(
    "dweibull",
    even=True,
    cdf=_half(lambda x, c: np.exp(-(x**c))),
    **product(
        lambda x, c: sc.xlogy(c - 1.0, np.abs(x)) - np.abs(x) ** c, lambda x, c: 0.5, lambda x, c: c
    ),
)
law(
    "johnsonsu",
    **product(
        lambda x, a, b: norm_logpdf(a + b * np.arcsinh(x)) - 0.5 * np.log1p(x * x),
        lambda x, a, b: b,
    ),
    cdf=lambda x, a, b: sc.ndtr(a + b * np.arcsinh(x)),
    sf=lambda x, a, b: sc.ndtr(-(a + b * np.arcsinh(x))),
    ppf=lambda q, a, b: np.sinh((sc.ndtri(q) - a) / b),
    isf=lambda q, a, b: np.sinh((-sc.ndtri(q) - a) / b),
)
