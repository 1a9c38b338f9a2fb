"""Distributions on the positive numbers, and on other half lines.

Formulas are those of Johnson, Kotz and Balakrishnan, Continuous Univariate Distributions (1994,
1995), in SciPy's parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special as sc

from tapegrad.extending.arrays import Tracer, recorded
from tapegrad.extending.primitives import RatioSlope
from tapegrad.scipy.stats.formulas import (
    LOG_2,
    LOG_2PI,
    LOG_PI,
    falling,
    integral,
    log1p_over,
    log_complement,
    log_expm1,
    mirrored,
    norm_logpdf,
    norm_pdf,
    of_sides,
    product,
    rising,
    share_of_power,
    split,
    where,
    with_slopes,
)
from tapegrad.scipy.stats.laws import both, law

SQRT_2 = float(np.sqrt(2.0))


# ---- gamma, and distributions derived from it


_GAMMA: dict[str, Any] = {
    "logpdf": lambda x, a: sc.xlogy(a - 1.0, x) - x - sc.gammaln(a),
    "cdf": lambda x, a: sc.gammainc(a, x),
    "sf": lambda x, a: sc.gammaincc(a, x),
    "ppf": lambda q, a: sc.gammaincinv(a, q),
    "isf": lambda q, a: sc.gammainccinv(a, q),
}
law("gamma", **_GAMMA)
law("erlang", **_GAMMA, valid=lambda a: a > 0)  # SciPy warns if `a` isn't whole


law(
    "chi2",
    logpdf=lambda x, df: (
        sc.xlogy(df / 2.0 - 1, x) - x / 2.0 - sc.gammaln(df / 2.0) - LOG_2 * df / 2.0
    ),
    cdf=lambda x, df: sc.gammainc(df / 2.0, x / 2.0),
    sf=lambda x, df: sc.gammaincc(df / 2.0, x / 2.0),
    ppf=lambda q, df: 2 * sc.gammaincinv(df / 2.0, q),
    isf=lambda q, df: 2 * sc.gammainccinv(df / 2.0, q),
)


law(
    "chi",
    logpdf=lambda x, df: (
        LOG_2 * (1 - 0.5 * df) - sc.gammaln(0.5 * df) + sc.xlogy(df - 1.0, x) - 0.5 * (x * x)
    ),
    cdf=lambda x, df: sc.gammainc(0.5 * df, 0.5 * (x * x)),
    sf=lambda x, df: sc.gammaincc(0.5 * df, 0.5 * (x * x)),
    ppf=lambda q, df: np.sqrt(2 * sc.gammaincinv(0.5 * df, q)),
    isf=lambda q, df: np.sqrt(2 * sc.gammainccinv(0.5 * df, q)),
)


law(
    "invgamma",
    logpdf=lambda x, a: -(a + 1) * np.log(x) - sc.gammaln(a) - 1.0 / x,
    cdf=lambda x, a: sc.gammaincc(a, 1.0 / x),
    sf=lambda x, a: sc.gammainc(a, 1.0 / x),
    ppf=lambda q, a: 1.0 / sc.gammainccinv(a, q),
    isf=lambda q, a: 1.0 / sc.gammaincinv(a, q),
    open=True,
)


def _gengamma_side(lower: bool) -> Any:
    def probability(x: Any, a: Any, c: Any) -> Any:
        powered = x**c
        below, above = sc.gammainc(a, powered), sc.gammaincc(a, powered)
        return where(c > 0, below, above) if lower else where(c > 0, above, below)

    return probability


law(
    "gengamma",
    logpdf=lambda x, a, c: np.log(np.abs(c)) + sc.xlogy(c * a - 1, x) - x**c - sc.gammaln(a),
    cdf=_gengamma_side(True),
    sf=_gengamma_side(False),
    support=lambda a, c: (where(c > 0, 0.0, np.nextafter(0.0, 1.0)), np.inf),
    within=lambda a, c: 1.0,
)


def _nakagami_share(upper: bool) -> Any:
    """P(nu, nu x^2), or 1 - P if `upper`. The slopes along the two operands nearly cancel in the
    slope along nu, so that slope is computed at a fixed ratio of the operands."""

    def share(x: Any, nu: Any) -> Any:
        u = nu * (x * x)
        if not (isinstance(x, Tracer) or isinstance(nu, Tracer)):
            return (sc.gammaincc if upper else sc.gammainc)(nu, u)
        sign, many = -1.0 if upper else 1.0, both(nu >= 1.0, x > 0)
        s, y = where(many, nu, 1.0) + 0.0 * x, where(many, x, 1.0) + 0.0 * nu
        density = np.exp(_nakagami_logpdf(y, s))
        along = recorded(s, RatioSlope(1), s, 2 * np.log(y)) * (0.5 * y * density)
        value = (sc.gammaincc if upper else sc.gammainc)(s, s * (y * y))
        other = where(many, 0.5, nu)
        few = (sc.gammaincc if upper else sc.gammainc)(other, where(many, 0.5, u))
        return where(many, with_slopes(value, (y, sign * density), (s, sign * along)), few)

    return share


def _nakagami_logpdf(x: Any, nu: Any) -> Any:
    return LOG_2 + sc.xlogy(nu, nu) - sc.gammaln(nu) + sc.xlogy(2 * nu - 1, x) - nu * (x * x)


law(
    "nakagami",
    logpdf=_nakagami_logpdf,
    cdf=_nakagami_share(upper=False),
    sf=_nakagami_share(upper=True),
    ppf=lambda q, nu: np.sqrt(1.0 / nu * sc.gammaincinv(nu, q)),
    isf=lambda q, nu: np.sqrt(1.0 / nu * sc.gammainccinv(nu, q)),
    finite=True,
)
law(
    "maxwell",
    logpdf=lambda x: 0.5 * (LOG_2 - LOG_PI) + 2 * np.log(x) - 0.5 * (x * x),
    pdf=lambda x: np.sqrt(2 / np.pi) * (x * x) * np.exp(-0.5 * (x * x)),
    cdf=lambda x: sc.gammainc(1.5, x * x / 2.0),
    sf=lambda x: sc.gammaincc(1.5, x * x / 2.0),
    ppf=lambda q: np.sqrt(2 * sc.gammaincinv(1.5, q)),
    isf=lambda q: np.sqrt(2 * sc.gammainccinv(1.5, q)),
)
law(
    "rayleigh",
    **product(lambda x: -0.5 * (x * x), lambda x: x),
    **rising(lambda x: 0.5 * (x * x), lambda x: 2 * np.log(x) - LOG_2, lambda h, y: np.sqrt(2 * h)),
    open=True,
    finite=True,
)


def _rice_factor(x: Any, b: Any) -> tuple[Any, Any]:
    """The exponent and the other factor of I_0(t) exp(-(x^2 + b^2) / 2), t = x b. For large t I_0
    is scaled, so nothing overflows; for small t it isn't, since terms odd in x would cancel."""
    small, d = x * b < 1.0, x - b
    near = sc.i0(where(small, x * b, 0.0))
    far = sc.i0e(where(small, 1.0, x * b))
    return where(small, x * x + b * b, d * d) * -0.5, where(small, near, far)


def _rice_logpdf(x: Any, b: Any) -> Any:
    exponent, factor = _rice_factor(x, b)
    return np.log(x) + exponent + np.log(factor)


def _rice_pdf(x: Any, b: Any) -> Any:
    exponent, factor = _rice_factor(x, b)
    return x * np.exp(exponent) * factor


law(
    "rice",
    logpdf=_rice_logpdf,
    pdf=_rice_pdf,
    cdf=lambda x, b: sc.chndtr(x * x, 2.0, b * b),
    ppf=lambda q, b: np.sqrt(sc.chndtrix(q, 2.0, b * b)),
)

# ---- the folded normal and the lognormal distribution

law(
    "halfnorm",
    logpdf=lambda x: 0.5 * (LOG_2 - LOG_PI) - x * x / 2.0,
    cdf=lambda x: sc.erf(x / SQRT_2),
    sf=lambda x: 2 * sc.ndtr(-x),
    ppf=lambda q: SQRT_2 * sc.erfinv(q),
    isf=lambda q: -sc.ndtri(q / 2),
)


def _both_sides(x: Any, c: Any, sign: float) -> Any:
    """The normal density at x + c plus or minus that at x - c. For small x c it is computed by 2
    cosh(x c) or 2 sinh(x c), since terms odd in x would cancel."""
    small = x * c < 1.0
    t = where(small, x * c, 0.0)
    level = np.sqrt(2 / np.pi) * np.exp(-0.5 * (x * x + c * c))
    near = level * np.cosh(t) if sign > 0 else -level * np.sinh(t)
    return where(small, near, norm_pdf(x + c) + sign * norm_pdf(x - c))


law(
    "foldnorm",
    logpdf=lambda x, c: norm_logpdf(x - c) + np.log1p(np.exp(-2 * (x * c))),
    pdf=lambda x, c: _both_sides(x, c, 1.0),
    cdf=lambda x, c: with_slopes(
        0.5 * (sc.erf((x - c) / SQRT_2) + sc.erf((x + c) / SQRT_2)),
        (x, _both_sides(x, c, 1.0)),
        (c, _both_sides(x, c, -1.0)),
    ),
    sf=lambda x, c: with_slopes(
        sc.ndtr(c - x) + sc.ndtr(-x - c),
        (x, -_both_sides(x, c, 1.0)),
        (c, -_both_sides(x, c, -1.0)),
    ),
)


def _lognorm(s_of: Any) -> dict[str, Any]:
    def over(x: Any, *s: Any) -> Any:
        return np.log(x) / s[0] if s else np.log(x)

    def logpdf(x: Any, *s: Any) -> Any:
        y = over(x, *s)
        found = y * y * -0.5 - np.log(x) - LOG_2PI / 2
        return found - np.log(s[0]) if s else found

    return {
        "logpdf": logpdf,
        "cdf": lambda x, *s: sc.ndtr(over(x, *s)),
        "sf": lambda x, *s: sc.ndtr(-over(x, *s)),
        "logcdf": lambda x, *s: sc.log_ndtr(over(x, *s)),
        "logsf": lambda x, *s: sc.log_ndtr(-over(x, *s)),
        "ppf": lambda q, *s: np.exp(s_of(*s) * sc.ndtri(q)),
        "isf": lambda q, *s: np.exp(-s_of(*s) * sc.ndtri(q)),
        "open": True,
    }


law("lognorm", **_lognorm(lambda s: s))
law("gibrat", **_lognorm(lambda: 1.0))


def _invgauss_logs(sign: float) -> Any:
    """The logarithm of F or 1 - F as a sum of two terms, of which one is small (Giner and Smyth,
    2016, statmod)."""

    def formula(x: Any, mu: Any) -> Any:
        root = 1 / np.sqrt(x)
        first = sc.log_ndtr(sign * root * (x / mu - 1))
        second = 2 / mu + sc.log_ndtr(-root * (x / mu + 1))
        return first + np.log1p(sign * np.exp(second - first))

    return formula


_INVGAUSS: dict[str, Any] = {
    "logpdf": lambda x, mu: -0.5 * LOG_2PI - 1.5 * np.log(x) - (x / mu - 1) ** 2 / (2 * x),
    "logcdf": _invgauss_logs(1.0),
    "logsf": _invgauss_logs(-1.0),
    "cdf": lambda x, mu: np.exp(_invgauss_logs(1.0)(x, mu)),
    "sf": lambda x, mu: np.exp(_invgauss_logs(-1.0)(x, mu)),
}


def _at_one(formula: Any) -> Any:
    return lambda *xs: formula(*xs, 1.0)


law("invgauss", **_INVGAUSS, open=True, finite=True)
law(
    "wald",
    **{name: _at_one(formula) for name, formula in _INVGAUSS.items()},
    open=True,
    finite=True,
)
_LEVY: dict[str, Any] = {
    "logpdf": lambda x: -0.5 * LOG_2PI - 1.5 * np.log(x) - 1 / (2 * x),
    "cdf": lambda x: sc.erfc(np.sqrt(0.5 / x)),
    "sf": lambda x: sc.erf(np.sqrt(0.5 / x)),
    "ppf": lambda q: 1.0 / sc.ndtri(q / 2) ** 2,
    "isf": lambda q: 1 / (2 * sc.erfinv(q) ** 2),
    "open": True,
}
law("levy", **_LEVY)
law("levy_l", **mirrored(_LEVY))


def _alpha_sides(x: Any, a: Any) -> tuple[Any, Any]:
    """Phi(a - 1 / x) / Phi(a), and 1 minus it, for large x by quadrature."""
    log_all = sc.log_ndtr(a)
    below = np.exp(sc.log_ndtr(a - 1.0 / x) - log_all)
    far = where(a > 1, a, 1.0) < 2.0 * x
    u, b = where(far, 1.0 / x, 1.0), where(far, a, 1.0)
    tail = integral(lambda s: np.exp(s * (b - 0.5 * s) + norm_logpdf(b) - log_all), u, 20)
    within = np.exp(sc.log_ndtr(1.0 / x - a) - log_all) - np.exp(sc.log_ndtr(-a) - log_all)
    return below, where(far, tail, within)


law(
    "alpha",  # 1 / X is a normal variable with mean a, given it is positive
    "ppf",
    logpdf=lambda x, a: -2 * np.log(x) + norm_logpdf(a - 1.0 / x) - sc.log_ndtr(a),
    **of_sides(_alpha_sides),
    open=True,
    finite=True,
    inside=True,
)

# ---- exponential tails

law(
    "expon",
    logpdf=lambda x: -x,
    **rising(lambda x: x, np.log, lambda h, y: h),
)


_WEIBULL: dict[str, Any] = {
    **product(lambda x, c: sc.xlogy(c - 1, x) - x**c, lambda x, c: c),
    **rising(lambda x, c: x**c, lambda x, c: c * np.log(x), lambda h, y, c: h ** (1.0 / c)),
}
law("weibull_min", **_WEIBULL)
law("weibull_max", **mirrored(_WEIBULL))


def _exponweib_log(x: Any, a: Any, c: Any) -> Any:
    return log_complement(x**c, c * np.log(x))


def _exponweib_power(u: Any, a: Any) -> Any:
    """(a - 1) log(1 - exp(-u))."""
    far = u > 1.0
    tail = (a - 1.0) * np.log1p(-np.exp(-where(far, u, 1.0)))
    return where(far, tail, sc.xlogy(a - 1.0, -np.expm1(-where(far, 1.0, u))))


def _exponweib_loglog(x: Any, a: Any, c: Any) -> Any:
    """log(-a log(1 - exp(-u))), which approaches log(a) - u for large u."""
    u = x**c
    large = u > 1.0
    near = np.log(-_exponweib_log(where(large, 1.0, x), a, c))
    far = where(large, u, 1.0)
    return np.log(a) + where(large, np.log(log1p_over(1.0, -np.exp(-far))) - far, near)


def _exponweib_at(h: Any, log_h: Any, a: Any, c: Any) -> Any:
    return (-log_complement(h / a, log_h - np.log(a))) ** (1.0 / c)


law(
    "exponweib",
    **product(
        lambda x, a, c: _exponweib_power(x**c, a) - x**c + sc.xlogy(c - 1.0, x),
        lambda x, a, c: a,
        lambda x, a, c: c,
    ),
    **falling(lambda x, a, c: -a * _exponweib_log(x, a, c), _exponweib_loglog, _exponweib_at),
    inside=True,
)
law(
    "invweibull",
    **product(lambda x, c: -(c + 1.0) * np.log(x) - x ** (-c), lambda x, c: c),
    **falling(lambda x, c: x ** (-c), lambda x, c: -c * np.log(x), lambda h, y, c: h ** (-1.0 / c)),
    open=True,
)


def _gompertz_at(h: Any, log_h: Any, c: Any) -> Any:
    """log(1 + h / c)."""
    small = h < c
    near = np.log1p(where(small, h, 0.0) / c)
    return where(small, near, -sc.log_expit(where(small, 0.0, np.log(c) - log_h)))


law(
    "gompertz",
    **product(lambda x, c: x - c * np.expm1(x), lambda x, c: c),
    **rising(
        lambda x, c: c * np.expm1(x),
        lambda x, c: np.log(c) + log_expm1(x, np.log(x)),
        _gompertz_at,
    ),
)


def _less_than_1(t: Any) -> Any:
    """1 - (1 - exp(-t)) / t, for small t by its series, since the difference would cancel."""
    small = t < 0.5
    near, series = where(small, t, 0.0), 0.0
    for n in range(15, 1, -1):
        series = (1.0 - series) * near / n
    return where(small, series, 1.0 - sc.exprel(-where(small, 1.0, t)))


def _genexpon_rate(x: Any, a: Any, b: Any, c: Any) -> Any:
    return a - b * np.expm1(-c * x)


def _genexpon_h(x: Any, a: Any, b: Any, c: Any) -> Any:
    """The integral of the rate from 0 to x: a x + b (x - (1 - exp(-c x)) / c). For large x it is
    nearly linear."""
    t = c * x
    square = -2 * sc.gammainc(3.0, t) / c**3
    along = with_slopes(sc.gammainc(2.0, t) / (c * c), (x, x * np.exp(-t)), (c, square))
    return a * x + b * with_slopes(x * _less_than_1(t), (x, -np.expm1(-t)), (c, along))


law(
    "genexpon",
    "ppf",
    "isf",
    **product(lambda *xs: -_genexpon_h(*xs), _genexpon_rate),
    **rising(_genexpon_h, lambda x, a, b, c: np.log(x) + np.log(a + b * _less_than_1(c * x))),
    finite=True,
    inside=True,
)


def _halflogistic_logpdf(x: Any) -> Any:
    return with_slopes(LOG_2 - x - 2.0 * np.log1p(np.exp(-x)), (x, -np.tanh(x / 2)))


def _halflogistic_logsf(x: Any) -> Any:
    return split(
        x < 1,
        x,
        0.5,
        lambda x: np.log1p(-np.tanh(x / 2)),
        lambda x: LOG_2 + sc.log_expit(-x),
    )


law(
    "halflogistic",
    logpdf=_halflogistic_logpdf,
    cdf=lambda x: np.tanh(x / 2.0),
    sf=lambda x: 2 * sc.expit(-x),
    logsf=_halflogistic_logsf,
    ppf=lambda q: 2 * np.arctanh(q),
    isf=lambda q: split(
        q < 0.5, q, 0.25, lambda q: -sc.logit(0.5 * q), lambda q: 2 * np.arctanh(1 - q)
    ),
    mean=lambda: 2 * LOG_2,
    var=lambda: np.pi**2 / 3 - (2 * LOG_2) ** 2,
)


def _genhalflogistic_at(x: Any, c: Any) -> Any:
    """-log(1 - c x) / c, a half-logistic number."""
    return -log1p_over(-x, c)


def _genhalflogistic_logpdf(x: Any, c: Any) -> Any:
    """The log density. At the end of the support it is finite only for c = 1."""
    at_end = c * x == 1
    y = _genhalflogistic_at(where(at_end, 0.0, x), c)
    end = where(c == 1, LOG_2, where(c > 1, np.inf, -np.inf))
    return where(at_end, end, _halflogistic_logpdf(y) + c * y)


law(
    "genhalflogistic",
    "ppf",
    logpdf=_genhalflogistic_logpdf,
    cdf=lambda x, c: np.tanh(_genhalflogistic_at(x, c) / 2),
    sf=lambda x, c: 2 * sc.expit(-_genhalflogistic_at(x, c)),
    logsf=lambda x, c: _halflogistic_logsf(_genhalflogistic_at(x, c)),
    finite=True,
    inside=True,
)
law(
    "halfgennorm",
    logpdf=lambda x, b: np.log(b) - sc.gammaln(1.0 / b) - x**b,
    cdf=lambda x, b: share_of_power(x, b, x**b, upper=False),
    sf=lambda x, b: share_of_power(x, b, x**b, upper=True),
    ppf=lambda q, b: sc.gammaincinv(1.0 / b, q) ** (1.0 / b),
    isf=lambda q, b: sc.gammainccinv(1.0 / b, q) ** (1.0 / b),
)
