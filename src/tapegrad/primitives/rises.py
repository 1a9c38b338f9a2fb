"""How much functions of gamma rise: psi_n(x + h) - psi_n(x), of the derivatives of log(Gamma).

Subtracted, nothing is left of large x and small h. There each term of a series rises by itself, and
all terms have one sign: recurrence (DLMF 5.15.5) leads to a large argument, and the asymptotic
series (DLMF 5.15.8, 5.11.2) is that of its powers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import broadcast_shapes, parametric, total
from tapegrad.primitives.kinds import Library
from tapegrad.primitives.special import Polygamma, digamma_at, polygamma

STEPS = 12
BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510]


def rise(order: int, x: Any, h: Any) -> Any:
    """psi_n(x + h) - psi_n(x); exact to the last digits for positive x and h."""
    x, h = np.broadcast_arrays(np.asarray(x, float), np.asarray(h, float))
    known: Any = digamma_at if order == 0 else Polygamma(order).evaluate
    below = known(x)
    pole = np.isinf(below) & np.isfinite(x)
    with np.errstate(invalid="ignore"):  # of NaN at other poles
        found = np.where(pole, -below, known(x + h) - np.where(pole, 0.0, below))
    close = (h > 0) & (h < x)
    if np.any(close):
        found[close] = _by_series(order, x[close], h[close])
    back = (h < 0) & (-h < x + h)
    if np.any(back):
        found[back] = -_by_series(order, (x + h)[back], -h[back])
    left = (x < 0.5) & (x + h < 0.5) & ~pole & (order < 2)
    if np.any(left):
        found[left] = _by_reflection(order, x[left], h[left])
    return found


def _by_reflection(n: int, x: Any, h: Any) -> Any:
    """Left of 1/2, what DLMF 5.5.4 says, and its derivative: with the difference of cotangents as a
    product of sines, which is exactly 0 where h is an integer."""

    def sine(t: Any) -> Any:
        return np.sin(np.pi * (t - np.rint(t))) * np.where(np.rint(t) % 2 == 0, 1.0, -1.0)

    right = (-1.0) ** n * rise(n, 1 - x, -h)
    with np.errstate(all="ignore"):  # at poles
        share, across = sine(h) / sine(x), sine(x + h)
        if n == 0:
            return right + np.pi * share / across
        return right - np.pi**2 * share / across * (sine(2 * x + h) / across / sine(x))


def _by_series(n: int, x: Any, h: Any) -> Any:
    def power(m: int, z: Any) -> Any:
        """How much z^-m rises, m > 0."""
        return np.expm1(-m * np.log1p(h / z)) * z ** float(-m)

    sign, fac = (-1.0) ** n, math.factorial
    found = np.zeros(np.shape(x))
    with np.errstate(all="ignore"):  # powers of large numbers vanish, small ones' are infinite
        z = x + STEPS
        for j in range(len(BERNOULLI), 0, -1):
            factor = BERNOULLI[j - 1] * fac(2 * j + n - 1) / fac(2 * j)
            found = found - sign * factor * power(2 * j + n, z)
        found = found - sign * fac(n) / 2 * power(n + 1, z)
        leading = np.log1p(h / z) if n == 0 else -sign * fac(n - 1) * power(n, z)
        for k in range(STEPS - 1, -1, -1):
            found = found - sign * fac(n) * power(n + 1, x + k)
        return found + leading


@parametric
class Rise(Library):
    """polygamma(order, x + h) - polygamma(order, x)."""

    order: int

    name = "polygamma_rise"
    cores = 0

    def aval(self, *xs: Aval) -> Aval:
        return Aval(broadcast_shapes(*[x.shape for x in xs]), xs[-1].dtype)

    def evaluate(self, *xs: Any) -> Any:
        return rise(self.order, *xs).astype(xs[-1].dtype)[()]

    def _partials(self, x: Any, h: Any) -> tuple[Any, Any]:
        return Rise(self.order + 1)(x, h), polygamma(self.order + 1, x + h)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return [ct * partial for partial in self._partials(*xs)]

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        pairs = zip(ts, self._partials(*xs), strict=True)
        return total(None if t is None else t * partial for t, partial in pairs)
