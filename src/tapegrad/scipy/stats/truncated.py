"""Truncated distributions.

Formulas are those of Johnson, Kotz and Balakrishnan, Continuous Univariate Distributions (1994,
1995), in SciPy's parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.special as sc

from tapegrad.scipy.stats.formulas import (
    LOG_2PI,
    log_complement,
    log_ratio,
    log_size,
    norm_logpdf,
    norm_pdf,
    product,
    where,
    with_slopes,
)
from tapegrad.scipy.stats.laws import Formula, both, law

Sides = Callable[..., tuple[Any, Any, Callable[[Any, Any], tuple[Any, ...]]]]


def sides(parts: Sides) -> dict[str, Any]:
    """The formulas of F and 1 - F, from their logarithms. The slopes are stated, for second
    derivatives too: the quotient rule would cancel at an end.

    Parameters
    ----------
    parts : a function of z and the shapes that returns log(F), log(1 - F) and a function; that
        function returns the slopes of F along z and all shapes, from F and 1 - F.
    """

    def shares(below: Any, above: Any, slopes: Any, *xs: Any) -> tuple[Any, Any]:
        found = values = _share(below, above), _share(above, below)
        for _ in range(2):
            along = slopes(*found)
            found = (
                with_slopes(values[0], *zip(xs, along, strict=True)),
                with_slopes(values[1], *zip(xs, [-slope for slope in along], strict=True)),
            )
        return found

    def share(number: int, *xs: Any) -> Any:
        return shares(*parts(*xs), *xs)[number]

    def log_share(number: int, *xs: Any) -> Any:
        """log(F) or log(1 - F). Near 0 it is log1p(-other), which keeps its digits."""
        found = parts(*xs)
        log: Any = found[number]
        most = log > _NEARLY_0
        rest = np.log1p(-where(most, shares(*found, *xs)[1 - number], 0.0))
        return where(most, rest, where(most, -1.0, log))

    return {
        "cdf": partial(share, 0),
        "sf": partial(share, 1),
        "logcdf": partial(log_share, 0),
        "logsf": partial(log_share, 1),
    }


_NEARLY_0 = -0.1


def _share(log: Any, other: Any) -> Any:
    """exp(log), or 1 - exp(other) where `log` is near 0, as in SciPy."""
    return where(log > _NEARLY_0, 1.0 - np.exp(other), np.exp(log))


def between(log_mass: Formula, log_density: Formula) -> dict[str, Any]:
    """The law on [a, b] without further shapes: F(z) = M(a, z) / M(a, b), for a mass M with the
    density m. Its slopes along a and b use the probability of the other side,

      F_a = -m(a) (1 - F) / M(a, b), F_b = -m(b) F / M(a, b).
    """

    def parts(*xs: Any) -> Any:
        z, a, b = xs
        whole = log_mass(a, b)
        at_z, at_a, at_b = [np.exp(log_density(x) - whole) for x in xs]

        def slopes(below: Any, above: Any) -> tuple[Any, ...]:
            return at_z, -(at_a * above), -(at_b * below)

        return log_mass(a, z) - whole, log_mass(z, b) - whole, slopes

    return sides(parts)


# ---- truncated 1 / x and exponential densities

for _name in ("loguniform", "reciprocal"):
    law(
        _name,
        logpdf=lambda x, a, b: -np.log(x) - np.log(log_ratio(b, a)),
        **between(lambda low, high: log_size(log_ratio(high, low)), lambda x: -np.log(x)),
        ppf=lambda q, a, b: a * np.exp(q * log_ratio(b, a)),
        isf=lambda q, a, b: b * np.exp(-q * log_ratio(b, a)),
        mean=lambda a, b: (b - a) / (np.log(b) - np.log(a)),
    )


def _from_0(formula: Any) -> Any:
    return lambda x, b: formula(x, 0.0, b)


_CUT = between(lambda low, high: log_size(-np.expm1(low - high)) - low, lambda x: -x)
law(
    "truncexpon",
    logpdf=lambda x, b: -x - np.log(-np.expm1(-b)),
    **{name: _from_0(formula) for name, formula in _CUT.items()},
    ppf=lambda q, b: -np.log1p(q * np.expm1(-b)),
    isf=lambda q, b: -np.log(np.exp(-b) - q * np.expm1(-b)),
)

# ---- the truncated normal distribution


def log_normal_mass(a: Any, b: Any) -> Any:
    """log(Phi(b) - Phi(a)). If a and b are on one side of 0, it is computed from the logarithms of
    the tails there, which lose no digits; else from 1 minus the two tails."""
    right = both(a > 0)
    low, high = where(right, -b, a), where(right, -a, b)
    left = high <= 0
    one = sc.log_ndtr(where(left, high, 0.0))
    other = sc.log_ndtr(where(left, low, -1.0))
    within = one + np.log1p(-np.exp(other - one))
    across = np.log1p(-(sc.ndtr(where(left, -1.0, low)) + sc.ndtr(where(left, -1.0, -high))))
    return where(left, within, across)


def _inner_logpdf(x: Any) -> Any:
    finite = np.isfinite(x)
    return where(finite, norm_logpdf(where(finite, x, 0.0)), -np.inf)


def _finite_pdf(x: Any, whole: Any) -> tuple[Any, Any]:
    """The density at an end divided by the total mass, and that times the end: both are 0 if the
    end is infinite."""
    finite = np.isfinite(x)
    safe = where(finite, x, 0.0)
    density = where(finite, np.exp(norm_logpdf(safe) - whole), 0.0)
    return density, density * safe


def _truncnorm_mean(a: Any, b: Any) -> Any:
    whole = log_normal_mass(a, b)
    return _finite_pdf(a, whole)[0] - _finite_pdf(b, whole)[0]


def _truncnorm_var(a: Any, b: Any) -> Any:
    whole = log_normal_mass(a, b)
    (first, moved), (last, moved_last) = _finite_pdf(a, whole), _finite_pdf(b, whole)
    mean = first - last
    return 1 + (moved - first * mean) - (moved_last - last * mean)


def _truncnorm_ppf(q: Any, a: Any, b: Any) -> Any:
    """The x with Phi(x) = Phi(a) + q (Phi(b) - Phi(a)). If a isn't negative, the reflected
    interval is used."""
    left = a < 0
    low = sc.log_ndtr(where(left, a, -b))
    whole = log_normal_mass(a, b)
    part = where(left, np.log(q), np.log1p(-q)) + whole
    found = sc.ndtri_exp(np.logaddexp(low, part))
    return where(left, found, -found)


law(
    "truncnorm",
    logpdf=lambda x, a, b: norm_logpdf(x) - log_normal_mass(a, b),
    **between(log_normal_mass, _inner_logpdf),
    ppf=_truncnorm_ppf,
    within=lambda a, b: np.minimum(np.maximum(a, 0.0), b),
    mean=_truncnorm_mean,
    var=_truncnorm_var,
    entropy=lambda a, b: (
        0.5 * (LOG_2PI + 1)
        + np.log(sc.ndtr(b) - sc.ndtr(a))
        + (_times(a) - _times(b)) / (2 * (sc.ndtr(b) - sc.ndtr(a)))
    ),
    inside=True,
)


def _times(x: Any) -> Any:
    finite = np.isfinite(x)
    return where(finite, x, 0.0) * norm_pdf(where(finite, x, 0.0))


# ---- truncated power laws, and Weibull's distribution


def _log_exprel(t: Any) -> Any:
    """log((exp(t) - 1) / t)."""
    large = t > 1.0
    far = where(large, t, 1.0)
    near = np.log(sc.exprel(where(large, 0.0, t)))
    return where(large, far + np.log1p(-np.exp(-far)) - np.log(far), near)


def _log_exprel_slope(t: Any) -> Any:
    """The slope of `_log_exprel` for t from -1 to 1, by a series."""
    value, slope = 0.0, 0.0
    for n in range(18, -1, -1):
        value, slope = 1.0 + value * t / (n + 2), 1.0 + (n + 2) / (n + 1) * slope * t / (n + 3)
    return 0.5 * slope / value


def _log_power_mass(y: Any, b: Any) -> Any:
    """log((1 - exp(-b y)) / b): the integral of exp(-b t) over 0 < t < y."""
    far = b * y > 1.0
    rate, t = where(far, b, 1.0), where(far, b * y, 1.0)
    near = np.log(y) + _log_exprel(-where(far, 1.0, b) * y)
    return where(far, np.log1p(-np.exp(-t)) - np.log(rate), near)


def _truncpareto_logpdf(x: Any, b: Any, c: Any) -> Any:
    return -(b + 1) * np.log(x) - _log_power_mass(np.log(c), b)


def _truncpareto_parts(x: Any, b: Any, c: Any) -> Any:
    """The parts of `sides`. The slope along b is F times (the mean of log(x) minus its mean up to
    x), or the same of the other side where F is the larger one."""
    y, rest, reach = np.log(x), log_ratio(c, x), np.log(c)
    whole = _log_power_mass(reach, b)
    wide = np.abs(b) * reach > 1.0
    rate, small = where(wide, b, 1.0), where(wide, 0.0, b)

    def mean(y: Any) -> Any:  # minus 1 / b where `wide`
        grown = where(wide, b * y, 1.0)
        steep = -1.0 / sc.exprel(where(grown > 700.0, 700.0, grown)) / rate
        return where(wide, steep, y * _log_exprel_slope(-small * y))

    at_x, at_c = [np.exp(-(b + 1) * z - whole) for z in (y, reach)]
    up_to = mean(reach) - mean(y)
    beyond = mean(rest) + y - mean(reach)

    def slopes(below: Any, above: Any) -> tuple[Any, ...]:
        return at_x, where(below < above, below * up_to, above * beyond), -(at_c * below)

    return _log_power_mass(y, b) - whole, _log_power_mass(rest, b) - b * y - whole, slopes


law(
    "truncpareto",
    "ppf",
    "isf",
    logpdf=_truncpareto_logpdf,
    **sides(_truncpareto_parts),
    finite=True,
    inside=True,
)


def _powers_apart(low: Any, high: Any, c: Any) -> tuple[Any, Any]:
    """d = high^c - low^c, computed so that close powers don't cancel, and its slope along c. If
    high^c overflows, they are infinity and 0."""
    large, starts = c * np.log(high) > 700.0, low > 0
    top = where(large, 1.0, high)
    bottom = where(starts, where(large, 1.0, low), top)
    ratio = log_ratio(top, bottom)
    power, above = bottom**c, top**c
    start = where(starts, power, 0.0)
    close = both(starts, c * ratio < 0.5)
    value = where(close, power * np.expm1(where(close, c * ratio, 0.0)), above - start)
    slopes = (high, c * top ** (c - 1.0)), (low, -c * np.power(low, c - 1.0))
    apart, far = value, above * np.log(top) - start * np.log(bottom)
    for _ in range(2):
        along = where(close, np.log(bottom) * apart + above * ratio, far)
        apart = with_slopes(value, *slopes, (c, along))
    return where(large, np.inf, apart), where(large, 0.0, along)


def _log_mass(apart: Any) -> Any:
    """log(1 - exp(-d))."""
    return log_complement(apart, np.log(apart))


def _truncweibull_exponent(x: Any, c: Any, a: Any, b: Any) -> Any:
    apart, whole = _powers_apart(a, x, c)[0], _powers_apart(a, b, c)[0]
    return sc.xlogy(c - 1.0, x) - apart - _log_mass(whole)


def _truncweibull_parts(x: Any, c: Any, a: Any, b: Any) -> Any:
    below, along = _powers_apart(a, x, c)
    above, along_above = _powers_apart(x, b, c)
    whole, along_whole = _powers_apart(a, b, c)
    log_whole = _log_mass(whole)
    end = where(b < np.inf, b, 1e300)
    before = (x, below), (a, 0.0), (end, whole)
    at_x, at_a, at_b = [c * np.exp(sc.xlogy(c - 1.0, z) - d - log_whole) for z, d in before]

    def slope(apart: Any, along: Any) -> Any:  # the slope of log(1 - exp(-d))
        return along * np.exp(-apart) / -np.expm1(-apart)

    steep = slope(whole, along_whole)
    up_to, beyond = slope(below, along) - steep, along + steep - slope(above, along_above)

    def slopes(share: Any, rest: Any) -> tuple[Any, ...]:
        along_c = where(share < rest, share * up_to, rest * beyond)
        return at_x, along_c, -(at_a * rest), -(at_b * share)

    return _log_mass(below) - log_whole, _log_mass(above) - below - log_whole, slopes


law(
    "truncweibull_min",
    "ppf",
    "isf",
    **product(_truncweibull_exponent, lambda x, c, a, b: c),
    **sides(_truncweibull_parts),
    finite=True,
    inside=True,
)
