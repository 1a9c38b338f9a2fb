"""Functions of `scipy.special` of powers and logarithms, of angles in degrees, and Lambert's."""

from __future__ import annotations

import math
from typing import Any

from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.elementwise import (
    DIVISION,
    FUNCTION,
    _power_partials,
    exp,
    log,
    log1p,
    power,
    sin,
    where,
)
from tapegrad.primitives.scipys import SciPys, near
from tapegrad.primitives.special import _exprel_partials, _scipy, exprel, xlog1py, xlogy

# ---- Box and Cox: (x^p - 1) / p, which is log(x) for p = 0


def _along_power(logarithm: Any, p: Any) -> Any:
    """The slope of L exprel(p L) along p, L = log(x); for x = 0 it is 1 / p^2."""
    at_0 = logarithm.equals(logarithm.constant(-math.inf))
    inner = where(at_0, logarithm.constant(0), logarithm)
    (slope,) = _exprel_partials(exprel(inner * p), inner * p)
    return where(at_0, 1 / (p * p), inner * inner * slope)


boxcox = Elementwise(
    "boxcox",
    _scipy("boxcox"),
    "boxcox({0}, {1})",
    lambda out, x, p: (exp(xlogy(p - 1, x)), _along_power(log(x), p)),
    cost=2 * FUNCTION + DIVISION,
)
boxcox1p = Elementwise(
    "boxcox1p",
    _scipy("boxcox1p"),
    "boxcox1p({0}, {1})",
    lambda out, x, p: (exp(xlog1py(p - 1, x)), _along_power(log1p(x), p)),
    cost=2 * FUNCTION + DIVISION,
)

_SLOPE = [(-1.0) ** k * k / (k + 1) for k in range(1, 25)]  # of log(1 + u) / u


def _inverse_partials(power: Any, y: Any, p: Any) -> tuple[Any, Any]:
    """Of (1 + p y)^(1/p), whose logarithm is y g(p y), g(u) = log(1 + u) / u."""
    u = p * y
    slope = near(u, 0.2, _SLOPE, lambda u: (1 / (1 + u) - log1p(u) / u) / u)
    return power / (1 + u), power * (y * y) * slope


inv_boxcox: Elementwise = Elementwise(
    "inv_boxcox",
    _scipy("inv_boxcox"),
    "inv_boxcox({0}, {1})",
    lambda out, y, p: _inverse_partials(out, y, p),
    cost=2 * FUNCTION + DIVISION,
)
inv_boxcox1p = Elementwise(
    "inv_boxcox1p",
    _scipy("inv_boxcox1p"),
    "inv_boxcox1p({0}, {1})",
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
cotdg = SciPys("cotdg", lambda out, x: ((1 + out * out) * -DEGREE,))
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
wrightomega = SciPys("wrightomega", lambda out, x: (out / (1 + out),), of_complex=True)
