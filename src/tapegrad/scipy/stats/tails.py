"""Distributions with power-law tails, and those of extreme values.

Formulas are those of Johnson, Kotz and Balakrishnan, Continuous Univariate Distributions (1994,
1995), in SciPy's parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special as sc

from tapegrad.scipy.stats.formulas import (
    EULER,
    LOG_2,
    LOG_PI,
    expm1_over,
    falling,
    log1p_over,
    log_expm1,
    log_softplus,
    product,
    rising,
    split,
    where,
    with_slopes,
)
from tapegrad.scipy.stats.laws import both, law


def _exists(condition: Any, x: Any, otherwise: float) -> Any:
    """A moment where it exists, else `otherwise`."""
    return where(condition, x, otherwise)


def _power_mean(b: Any) -> Any:
    safe = where(b > 1, b, 2.0)
    return _exists(b > 1, safe / (safe - 1.0), np.inf)


def _power_var(b: Any) -> Any:
    safe = where(b > 2, b, 3.0)
    return _exists(b > 2, safe / (safe - 2.0) / (safe - 1.0) ** 2, np.inf)


law(
    "pareto",
    logpdf=lambda x, b: np.log(b) - (b + 1) * np.log(x),
    pdf=lambda x, b: b * x ** (-b - 1),
    **rising(
        lambda x, b: b * np.log(x),
        lambda x, b: np.log(b) + np.log(np.log(x)),
        lambda h, y, b: np.exp(h / b),
    ),
)


def _foldcauchy_logpdf(x: Any, c: Any) -> Any:
    """log(1 / (1 + (x - c)^2) + 1 / (1 + (x + c)^2)) - log(pi) near the peak. Elsewhere it is
    log(2 / (s (1 - q^2))) - log(pi), s = 1 + x^2 + c^2, q = 2 x c / s, since the derivatives of
    the first form cancel: along c for large x, along x near 0."""
    beyond = x > 1e100
    y = where(beyond, 1.0, x)
    s = 1.0 + y * y + c * c
    q = 2 * y * c / s
    peak = q > 0.8
    one, other = (y - c) ** 2 + 1.0, (y + c) ** 2 + 1.0
    near = np.log(1 / one + 1 / other)
    q = where(peak, 0.5, q)
    away = LOG_2 - np.log(s) - np.log1p(-q * q)
    tail = LOG_2 - 2 * np.log(where(beyond, x, 1.0))
    return where(beyond, tail, where(peak, near, away)) - LOG_PI


def _foldcauchy_side(sign: float) -> Any:
    """The sum of two angles, as the angle of the product (x - c + i) (x + c + i)."""

    def probability(x: Any, c: Any) -> Any:
        beyond = x > 1e100
        y = where(beyond, 1.0, x)
        gap = with_slopes((y - c) * (y + c), (y, 2 * y), (c, -2 * c))
        found = np.arctan2(2 * y, sign * (1.0 - gap))
        tail = np.arctan2(2.0, -sign * x)
        return where(beyond, tail, found) / np.pi

    return probability


law(
    "foldcauchy",
    logpdf=_foldcauchy_logpdf,
    cdf=_foldcauchy_side(1.0),
    sf=_foldcauchy_side(-1.0),
    finite=True,
    inside=True,
)
law(
    "lomax",
    **product(lambda x, c: -(c + 1) * np.log1p(x), lambda x, c: c),
    **rising(
        lambda x, c: c * np.log1p(x),
        lambda x, c: np.log(c) + np.log(np.log1p(x)),
        lambda h, y, c: np.expm1(h / c),
    ),
    mean=lambda c: _power_mean(c) - 1.0,
    var=_power_var,
)
law(
    "halfcauchy",
    logpdf=lambda x: LOG_2 - LOG_PI - np.log1p(x * x),
    cdf=lambda x: 2.0 / np.pi * np.arctan(x),
    sf=lambda x: 2.0 / np.pi * np.arctan2(1.0, x),
    ppf=lambda q: np.tan(np.pi / 2 * q),
    isf=lambda q: split(
        q < 0.5,
        q,
        0.25,
        lambda q: 1.0 / np.tan(np.pi * q / 2),
        lambda q: np.tan(np.pi / 2 * (1 - q)),
    ),
)

# ---- Burr's distributions


def _burr_exponent(x: Any, c: Any, d: Any) -> Any:
    """The exponent of the density, with a case of its own at x = 0, where 1 / x doesn't exist."""
    zero = x == 0
    safe = where(zero, 1.0, x)
    found = -(c + 1) * np.log(safe) - (d + 1) * -sc.log_expit(c * np.log(safe))
    at_zero = sc.xlogy(c * d - 1, where(zero, x, 1.0))
    return where(zero, at_zero, found)


def _burr_moments(c: Any, d: Any, order: int) -> Any:
    safe = where(c > order, c, order + 1.0)
    first = sc.beta(d + 1.0 / safe, 1.0 - 1.0 / safe) * d
    if order == 1:
        return _exists(c > 1, first, np.nan)
    return _exists(c > 2, sc.beta(d + 2.0 / safe, 1.0 - 2.0 / safe) * d - first**2, np.nan)


_BURR: dict[str, Any] = {
    **product(_burr_exponent, lambda x, c, d: c, lambda x, c, d: d),
    **falling(
        lambda x, c, d: d * -sc.log_expit(c * np.log(x)),
        lambda x, c, d: np.log(d) + log_softplus(-c * np.log(x)),
        lambda h, y, c, d: np.exp(-log_expm1(h / d, y - np.log(d)) / c),
    ),
    "mean": lambda c, d: _burr_moments(c, d, 1),
    "var": lambda c, d: _burr_moments(c, d, 2),
}


def _at_one(formula: Any) -> Any:
    return lambda *xs: formula(*xs, 1.0)


def _mielke_tail(x: Any, s: Any) -> tuple[Any, Any, Any, Any]:
    """log(1 + u) / s for the smaller one of u = x^s and 1 / u, with log(u), log(x) and whether x <
    1."""
    low, t = x < 1, np.log(x)
    log_u = s * where(low, t, -t)
    return np.log1p(np.exp(log_u)) / s, log_u, t, low


def _mielke_exponent(x: Any, k: Any, s: Any) -> Any:
    tail, _, t, low = _mielke_tail(x, s)
    return where(low, k - 1.0, -(s + 1.0)) * t - (k + s) * tail


def _mielke_h(x: Any, k: Any, s: Any) -> Any:
    tail, _, t, low = _mielke_tail(x, s)
    return k * where(low, tail - t, tail)


def _mielke_log_h(x: Any, k: Any, s: Any) -> Any:
    tail, log_u, t, low = _mielke_tail(x, s)
    return np.log(k) + where(
        low, np.log(where(low, tail - t, 1.0)), log_softplus(log_u) - np.log(s)
    )


def _kappa3_side(lower: bool) -> Any:
    """F(x) = x (a + x^a)^(-1/a) = (1 + a x^-a)^(-1/a). The second form keeps its digits for large
    x."""

    def probability(x: Any, a: Any) -> Any:
        def near(x: Any) -> Any:
            found = x * (a + x**a) ** (-1 / a)
            return found if lower else 1 - found

        def far(x: Any) -> Any:
            log = -np.log1p(a * x**-a) / a
            return np.exp(log) if lower else -np.expm1(log)

        return split(x < 1, x, 0.5, near, far)

    return probability


law("burr", **_BURR, inside=True)
law(
    "mielke",  # Burr's law with s and k / s, without cancellation along s
    **product(_mielke_exponent, lambda x, k, s: k),
    **falling(
        _mielke_h,
        _mielke_log_h,
        lambda h, y, k, s: np.exp(-log_expm1(h * s / k, y + np.log(s) - np.log(k)) / s),
    ),
    inside=True,
)
law(
    "kappa3",
    logpdf=lambda x, a: np.log(a) - (1 / a + 1) * np.log(a + x**a),
    cdf=_kappa3_side(True),
    sf=_kappa3_side(False),
    ppf=lambda q, a: (a / np.expm1(-a * np.log(q))) ** (1 / a),
    isf=lambda q, a: (a / np.expm1(-a * np.log1p(-q))) ** (1 / a),
)
law(
    "fisk",
    **{name: _at_one(formula) for name, formula in _BURR.items()},
    inside=True,
)
law(
    "burr12",
    **product(
        lambda x, c, d: sc.xlogy(c - 1, x) + (d + 1) * sc.log_expit(-c * np.log(x)),
        lambda x, c, d: c,
        lambda x, c, d: d,
    ),
    **rising(
        lambda x, c, d: d * -sc.log_expit(-c * np.log(x)),
        lambda x, c, d: np.log(d) + log_softplus(c * np.log(x)),
        lambda h, y, c, d: np.exp(log_expm1(h / d, y - np.log(d)) / c),
    ),
    inside=True,
)
law(
    "loglaplace",
    **product(lambda x, c: -np.log(x) - c * np.abs(np.log(x)), lambda x, c: 0.5, lambda x, c: c),
    cdf=lambda x, c: _loglaplace(x, c, 1.0),
    sf=lambda x, c: _loglaplace(x, c, -1.0),
    open=True,
)


def _loglaplace(x: Any, c: Any, side: float) -> Any:
    t = np.log(x)
    tail = 0.5 * np.exp(c * where(x < 1, t, -t))
    return where(x < 1, tail if side > 0 else 1 - tail, 1 - tail if side > 0 else tail)


# ---- ratios of chi-squared variables


def _odds_logpdf(x: Any, a: Any, b: Any, rate: Any) -> Any:
    """The log density x^(a-1) r^a (1 + r x)^-(a+b) / B(a, b), r = `rate`. For large r x it is
    computed from 1 / (r x), since x / (1 + r x) would lose its digits."""
    far = rate * x > 1
    near, x = where(far, 0.5 / rate, x), where(far, x, 2.0 / rate)
    inner = sc.xlogy(a - 1.0, near) + a * np.log(rate) - (a + b) * np.log1p(rate * near)
    outer = -(b + 1.0) * np.log(x) - b * np.log(rate) - (a + b) * np.log1p(1 / (rate * x))
    return where(far, outer, inner) - sc.betaln(a, b)


law(
    "f",
    logpdf=lambda x, n, m: _odds_logpdf(x, n / 2, m / 2, n / m),
    cdf=lambda x, n, m: sc.fdtr(n, m, x),
    sf=lambda x, n, m: sc.fdtrc(n, m, x),
    ppf=lambda q, n, m: sc.fdtri(n, m, q),
    finite=True,
)


def _beta_of_odds(below: Any, above: Any) -> Any:
    """A beta probability of x / (1 + x). For x > 1 it is computed from 1 / (1 + x), since x / (1 +
    x) rounds to 1."""

    def found(x: Any, a: Any, b: Any) -> Any:
        far = above(b, a, 1 / (1 + where(x > 1, x, 1.0)))
        near = where(x > 1, 1.0, x)
        return where(x > 1, far, below(a, b, near / (1 + near)))

    return found


law(
    "betaprime",
    logpdf=lambda x, a, b: _odds_logpdf(x, a, b, 1.0),
    cdf=_beta_of_odds(sc.betainc, sc.betaincc),
    sf=_beta_of_odds(sc.betaincc, sc.betainc),
    mean=lambda a, b: where(b > 1, a / (where(b > 1, b, 2.0) - 1), np.inf),
    open=True,
    finite=True,
)

# ---- extreme values


def _genextreme_logpdf(x: Any, c: Any) -> Any:
    """y - c y - exp(y) with y = log(1 - c x) / c. At the end of the support the density is finite,
    and not 0, only for c = 1."""
    at_end = both(c * x == 1)
    y = log1p_over(-where(at_end, 0.0, x), c)
    return where(at_end, where(c == 1, 0.0, -np.inf), y - c * y - np.exp(y))


def _series(c: Any, coefficients: list[float]) -> Any:
    value = 0.0 * c
    for a in reversed(coefficients):
        value = value * c + a
    return value


# log(gamma(1 + c)) = -EULER c + zeta(2) c^2 / 2 - zeta(3) c^3 / 3 + .... For small c the quotients
# by c and c^2 would cancel.
_LOG_GAMMA = [float((-1) ** k * sc.zeta(k, 1) / k) for k in range(2, 20)]
_FIRST = [-EULER, *_LOG_GAMMA]
_SECOND = [(2**k - 2) * a for k, a in enumerate(_LOG_GAMMA, 2)]


def _gamma_difference(c: Any) -> Any:
    """(1 - gamma(1 + c)) / c."""
    small = np.abs(c) < 0.05
    near, far = where(small, c, 0.0), where(small, 1.0, c)
    slope = where(small, _series(near, _FIRST), sc.gammaln(far + 1) / far)
    return -slope * sc.exprel(c * slope)


def _genextreme_var(c: Any) -> Any:
    """(gamma(1 + 2 c) - gamma(1 + c)^2) / c^2."""
    small = np.abs(c) < 0.05
    near, far = where(small, c, 0.0), where(small | (c < -0.5), 1.0, c)
    first = sc.gammaln(where(c < -0.5, 1.0, c) + 1.0)
    apart = (sc.gammaln(2.0 * far + 1.0) - 2 * sc.gammaln(far + 1.0)) / (far * far)
    bend = where(small, _series(near, _SECOND), apart)
    value = np.exp(2 * first) * bend * sc.exprel(c * c * bend)
    return where(c < -0.5, np.nan, value)


law(
    "genextreme",
    logpdf=_genextreme_logpdf,
    **falling(
        lambda x, c: np.exp(log1p_over(-x, c)),
        lambda x, c: log1p_over(-x, c),
        lambda h, y, c: -expm1_over(y, c),
    ),
    finite=True,
    within=lambda c: 0.0,
    mean=lambda c: where(c < -1.0, np.nan, _gamma_difference(c)),
    var=_genextreme_var,
    inside=True,
)


def _genpareto_ends(c: Any) -> Any:
    return 0.0, where(c < 0, -1.0 / where(c < 0, c, -1.0), np.inf)


law(
    "genpareto",
    support=_genpareto_ends,
    logpdf=lambda x, c: -(c + 1) * log1p_over(x, c),
    **rising(
        log1p_over,
        lambda x, c: np.log(log1p_over(x, c)),
        lambda h, y, c: expm1_over(h, c),
    ),
    within=lambda c: 0.0,
)
