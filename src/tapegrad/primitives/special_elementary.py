"""Functions of `scipy.special`: powers, logarithms, angles in degrees, Lambert's and Wright's
functions."""

from __future__ import annotations

import math
from typing import Any

from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.elementwise import (
    DIVISION,
    FUNCTION,
    _power_partials,
    exp,
    isinf,
    log,
    log1p,
    logical_and,
    power,
    sin,
    where,
)
from tapegrad.primitives.kinked import absolute
from tapegrad.primitives.scipys import SciPys
from tapegrad.primitives.special import (
    _scipy,
    exprel,
    exprel_bend,
    exprel_slope,
    xlog1py,
    xlogy,
)
from tapegrad.primitives.stated import stated

# ---- Box and Cox: (x^p - 1) / p, which is log(x) for p = 0


def _along_power(y: Any, p: Any) -> tuple[Any, Any]:
    """The slope and the second derivative of y exprel(p y) along p, where y = log(x). For y = -inf
    they are those of -1 / p."""
    at_0 = y.equals(y.constant(-math.inf))
    inner = where(at_0, y.constant(0), y)
    u, square = inner * p, inner * inner
    value = exprel(u)
    slope = exprel_slope(value, u)
    bend = exprel_bend(value, slope, u)
    over = 1 / p
    return (
        where(at_0, over * over, square * slope),
        where(at_0, over * over * over * -2, square * inner * bend),
    )


def _box_and_cox(x: Any, p: Any, logarithm: Any, times: Any) -> tuple[Any, Any]:
    """Box and Cox's transform along x and along p. The mixed derivative is the product of the first
    one and the logarithm."""
    along_x = exp(times(p - 1, x))
    slope, bend = _along_power(logarithm(x), p)
    return along_x, stated(slope, (x, times(along_x, x)), (p, bend))


boxcox = Elementwise(
    _scipy("boxcox"), lambda out, x, p: _box_and_cox(x, p, log, xlogy), cost=2 * FUNCTION + DIVISION
)
boxcox1p = Elementwise(
    _scipy("boxcox1p"),
    lambda out, x, p: _box_and_cox(x, p, log1p, xlog1py),
    cost=2 * FUNCTION + DIVISION,
)

_SLOPE = [(-1.0) ** k * k / (k + 1) for k in range(1, 25)]  # of log(1 + u) / u


def _inverse_partials(power: Any, y: Any, p: Any) -> tuple[Any, Any]:
    """The partials of f = (1 + u)^(1/p), where u = p y. Its logarithm is y g(u) with
    g(u) = log(1 + u) / u. Around u = 0 the slope of g is a series; elsewhere the slope along p is
    f (y / (1 + u) - log(1 + u) / p) / p."""
    u, one, zero = p * y, y.constant(1), y.constant(0)
    rest, moved, _ = _of_one_more(y, p)
    small = logical_and(u < 0.2, u > -0.2)
    inner, near_y, series = where(small, u, zero), where(small, y, zero), zero
    for coefficient in reversed(_SLOPE):
        series = series * inner + coefficient
    far_p = where(small, one, p)
    _, share, logarithm = _of_one_more(where(small, one, y), far_p)
    apart = power * ((share - logarithm / far_p) / far_p)
    along_p, slope = where(small, power * near_y * near_y * series, apart), power * rest
    bend = slope * (rest * (1 - p))  # the product rule would lose all digits for p near 1
    return stated(slope, (y, bend), (p, along_p * rest - slope * moved)), along_p


def _of_one_more(y: Any, p: Any) -> tuple[Any, Any, Any]:
    """1 / (1 + u), y / (1 + u) and log(1 + u), where u = p y may overflow. Their slopes are
    products of these, none of which overflows."""
    u, one = p * y, y.constant(1)
    lost = isinf(u)
    rest, share, logarithm = 1 / (1 + u), y / (1 + u), log1p(where(lost, one, u))
    large_y, large_p = (where(lost, absolute(x), one) for x in (y, p))
    logarithm = where(lost, log(large_y) + log(large_p), logarithm)
    share = where(lost, 1 / where(lost, p, one), share)
    rate = where(lost, 1 / where(lost, y, one), p / (1 + u))
    return (
        stated(rest, (y, -(rate * rest)), (p, -(share * rest))),
        stated(share, (y, rest * rest), (p, -(share * share))),
        stated(logarithm, (y, rate), (p, share)),
    )


inv_boxcox: Elementwise = Elementwise(
    _scipy("inv_boxcox"),
    lambda out, y, p: _inverse_partials(out, y, p),
    cost=2 * FUNCTION + DIVISION,
)
inv_boxcox1p = Elementwise(
    _scipy("inv_boxcox1p"),
    lambda out, y, p: _inverse_partials(inv_boxcox(y, p), y, p),
    cost=2 * FUNCTION + DIVISION,
)
powm1 = SciPys("powm1", lambda out, x, y: _power_partials(power(x, y), x, y))

# ---- angles

DEGREE = math.pi / 180
cosm1 = SciPys("cosm1", lambda out, x: (-sin(x),))
sindg: SciPys = SciPys("sindg", lambda out, x: (cosdg(x) * DEGREE,))
cosdg: SciPys = SciPys("cosdg", lambda out, x: (sindg(x) * -DEGREE,))
tandg = SciPys("tandg", lambda out, x: ((1 + out * out) * DEGREE,))
cotdg = SciPys("cotdg", lambda out, x: (-(DEGREE / sindg(x) / sindg(x)),))
radian = SciPys(
    "radian", lambda out, d, m, s: [s.constant(DEGREE / unit) for unit in (1, 60, 3600)]
)

# ---- the inverses of w exp(w) and of w + log(w)

lambertw = SciPys(
    "lambertw",
    lambda out, k, z: (None, exp(-out) / (1 + out)),
    "lambertw({1}, {0})",
    of_complex=True,
)


def _omega_partials(out: Any, x: Any) -> tuple[Any]:
    """w / (1 + w). For large w it is 1 / (1 + 1 / w), whose slope keeps its digits."""
    if x.dtype.kind == "c":
        return (out / (1 + out),)
    large, one = out > 1, x.constant(1)
    small = where(large, one, out)
    return (where(large, 1 / (1 + 1 / where(large, out, one)), small / (1 + small)),)


wrightomega = SciPys("wrightomega", _omega_partials, of_complex=True)
