"""The incomplete gamma function P(s, u) at a fixed ratio of u to s, and its inverses:

    G(s, d) = P(s, u),    u = s exp(d).

For large s the inverses of P(s, u) are nearly linear in s and u, so second derivatives made of
those of P(s, u) cancel. With the density over d, g = exp(s (d - expm1(d)) + stirling(s)), and

    R = G_s / g,

the slopes of d are small where those of u are 1, and nothing cancels. Nothing underflows either,
since the logarithm of g is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tapegrad.primitives import incomplete
from tapegrad.primitives.base import parametric
from tapegrad.primitives.elementwise import exp, expm1, log, where
from tapegrad.primitives.incomplete import weights_of
from tapegrad.primitives.kinds import ByPartials
from tapegrad.primitives.odds import fall
from tapegrad.primitives.polygamma_differences import Rise, rest
from tapegrad.primitives.scipys import log_ratio, near
from tapegrad.primitives.special import gammaln
from tapegrad.primitives.stated import stated

MIN_SHAPE = 1.0  # the least shape for which this is used: 1 / Gamma(s) has a zero at 0


def _slope(order: int, s: Any, d: Any) -> Any:
    """R's derivative by quadrature over d, on the side with less of the density (see
    `incomplete`)."""
    inside = (s > 0) & np.isfinite(s) & np.isfinite(d)
    s, d = np.where(inside, s, 1.0), np.where(inside, d, 0.0)
    below = d <= 0

    u = s * np.exp(d)

    def integrand(reach: Any, s: Any, d: Any, u: Any, below: Any) -> Any:
        at = d - np.where(below, reach, -reach)
        cumulants = [fall(at) - rest(0, s), *[-rest(k, s) for k in range(1, order)]]
        height = np.where(below, -s * reach - u * np.expm1(-reach), s * reach - u * np.expm1(reach))
        return np.exp(height) * weights_of(lambda k, _: cumulants[k - 1], order, 0)

    panels = incomplete.gamma_panels(s, u, s * np.expm1(d), below)
    found = incomplete.over(panels, integrand, [s, d, u, below])
    return np.where(inside, np.where(below, found, -found), np.nan)


@parametric
class RatioSlope(ByPartials):
    """A derivative of G along s, over g, for s >= LEAST."""

    order: int

    name = "ratio_slope"

    def evaluate(self, *xs: Any) -> Any:
        return incomplete.elementwise(lambda s, d: _slope(self.order, s, d))(*xs)

    def partials(self, out: Any, s: Any, d: Any) -> tuple[Any, Any]:
        def cumulant(k: int, _: int) -> Any:
            rise = Rise(k - 1)(s, s.constant(math.inf))
            return rise + _fall(d) if k == 1 else rise

        following = RatioSlope(self.order + 1)(s, d) - out * cumulant(1, 0)
        return following, weights_of(cumulant, self.order, 0) + out * s * expm1(d)


def _fall(d: Any) -> Any:
    """d - expm1(d)."""
    series = [0.0, 0.0, *[-1 / math.factorial(n) for n in range(2, 18)]]
    return near(d, 0.5, series, lambda d: d - expm1(d))


def _log_density(s: Any, d: Any) -> Any:
    large = s >= 10.0
    far, close = where(large, s, s.constant(10)), where(large, s.constant(10), s)
    inverse, series = 1 / far, s.constant(0)
    for c in reversed(incomplete.STIRLING):
        series = series * (inverse * inverse) + c
    stirling = 0.5 * log(far * (0.5 / math.pi)) - series * inverse
    return s * _fall(d) + where(large, stirling, close * log(close) - close - gammaln(close))


def point_slopes(s: Any, u: Any, p: Any, sign: float = 1.0) -> tuple[Any, Any]:
    """The slopes of u along s and p, where p = P(s, u), or p = 1 - P(s, u) for `sign` -1."""
    d = log_ratio(u, s)
    d = stated(d, (s, -RatioSlope(1)(s, d)), (p, sign * exp(-_log_density(s, d))))
    return exp(d) * (1 - s * RatioSlope(1)(s, d)), s * (sign * exp(d - _log_density(s, d)))


def shape_slopes(s: Any, u: Any, p: Any, sign: float = 1.0) -> tuple[Any, Any]:
    """The slopes of s along u and p, likewise."""

    def slopes(d: Any) -> tuple[Any, Any]:
        rest = 1 - s * RatioSlope(1)(s, d)
        return rest, exp(-_log_density(s, d)) / rest

    d = log_ratio(u, s)
    rest, along_p = slopes(d)
    d = stated(d, (u, (rest - 1) / (rest * u)), (p, sign * along_p))
    rest, along_p = slopes(d)
    return exp(-d) / rest, s * (-sign * along_p)


# ---- inverses by name: a function that returns the shapes, each with the least value for which the
# slopes are computed in this way, and a function that returns the slopes. Both take all arguments
# by name.

Slopes = dict[str, Any]
Shapes = list[tuple[Any, float]]


def _gamma_point(a: Any, x: Any, p: Any, sign: float = 1.0) -> Slopes:
    along_a, along_p = point_slopes(a, x, p, sign)
    return {"a": along_a, "p": along_p}


def _gdtria(a: Any, b: Any, x: Any, p: Any) -> Slopes:
    along_b, along_p = point_slopes(b, a * x, p)
    return {"b": along_b / x, "p": along_p / x, "x": -a / x}


def _gdtrix(a: Any, b: Any, x: Any, p: Any) -> Slopes:
    found = _gdtria(x, b, a, p)
    return {"b": found["b"], "p": found["p"], "a": found["x"]}


def _gdtrib(a: Any, b: Any, x: Any, p: Any) -> Slopes:
    along_u, along_p = shape_slopes(b, a * x, p)
    return {"a": along_u * x, "x": along_u * a, "p": along_p}


def _chdtri(v: Any, x: Any, p: Any) -> Slopes:
    along_s, along_p = point_slopes(v * 0.5, x * 0.5, p, -1.0)
    return {"v": along_s, "p": along_p * 2}


def _chdtriv(v: Any, x: Any, p: Any) -> Slopes:
    along_u, along_p = shape_slopes(v * 0.5, x * 0.5, p)
    return {"x": along_u, "p": along_p * 2}


def _pdtrik(k: Any, m: Any, p: Any) -> Slopes:
    along_m, along_p = shape_slopes(k + 1, m, p, -1.0)
    return {"m": along_m, "p": along_p}


def _shape(shape: Callable[[Any], Any], name: str) -> Callable[..., Shapes]:
    return lambda **known: [(shape(known[name]), MIN_SHAPE)]


_A, _B = (_shape(lambda s: s, name) for name in "ab")
_V, _K = _shape(lambda v: v * 0.5, "v"), _shape(lambda k: k + 1, "k")
LINEAR: dict[str, tuple[Callable[..., Shapes], Callable[..., Slopes]]] = {
    "gammaincinv": (_A, _gamma_point),
    "gammainccinv": (_A, partial(_gamma_point, sign=-1.0)),
    "gdtria": (_B, _gdtria),
    "gdtrib": (_B, _gdtrib),
    "gdtrix": (_B, _gdtrix),
    "chdtri": (_V, _chdtri),
    "chdtriv": (_V, _chdtriv),
    "pdtrik": (_K, _pdtrik),
}
