"""How much functions of gamma rise: psi_n(x + h) - psi_n(x), of the derivatives of log(Gamma).

Subtracted, nothing is left of large x and small h. There each term of a series rises by itself, and
all terms have one sign: recurrence (DLMF 5.15.5) leads to a large argument, and the asymptotic
series (DLMF 5.15.8, 5.11.2) is that of its powers.

From 1 on psi_n is split into its leading term and the rest, l_n(z) + r_n(z): l_0 is the logarithm,
and the next ones are its derivatives. What the leading term rises by, log(1 + h / x), is written
as that: it depends on h / x alone, so nothing is left to round of its slope along that direction,
in which both x and h grow, and there the rest says how log(Gamma) bends.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from tapegrad.primitives.base import parametric
from tapegrad.primitives.elementwise import log1p, logical_and, where
from tapegrad.primitives.kinds import ByPartials
from tapegrad.primitives.special import polygamma, polygamma_at

STEPS = 12
BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510]


def digamma_rise(x: Any, h: Any) -> Any:
    """digamma(x + h) - digamma(x)."""
    split = _split(x, h)
    low, step = where(split, x, x.constant(1)), where(split, h, h.constant(0))
    return log1p(step / low) + Rise(0)(x, h)


def _split(x: Any, h: Any) -> Any:
    """Where the leading term is taken out."""
    return logical_and(x >= 1, x + h >= 1)


def rest_rise(n: int, x: Any, h: Any) -> Any:
    """r_n(x + h) - r_n(x), for h > 0."""
    inner = np.maximum(x, 1.0)
    return np.where(x >= 1, _rest_rise(n, inner, h), rest(n, x + h) - rest(n, x))


def _rise(n: int, x: Any, h: Any) -> Any:
    """What `Rise` is."""
    x, h = np.broadcast_arrays(np.asarray(x, float), np.asarray(h, float))
    split, found = (x >= 1) & (x + h >= 1), np.empty(x.shape)
    found[split] = _rest_rise(n, x[split], h[split])
    found[~split] = whole_rise(n, x[~split], h[~split])
    return found


def _rest_rise(n: int, x: Any, h: Any) -> Any:
    """r_n(x + h) - r_n(x)."""
    found = rest(n, x + h) - rest(n, x)
    low, step = np.minimum(x, x + h), np.abs(h)
    for near, steps in ((low < STEPS, STEPS), (low >= STEPS, 0)):
        close = near & (step < low)
        if np.any(close):
            u, v = low[close], step[close]
            leading = _leading_rise(n, u + steps, v) - _leading_rise(n, u, v) if steps else 0.0
            found[close] = np.sign(h[close]) * (leading + _by_series(n, u, v, steps))
    return found


def rest(n: int, z: Any) -> Any:
    """r_n(z): its series, or what is left of psi_n, of which it is no small part."""
    known = partial(polygamma_at, n)
    near, far, sign = np.minimum(z, 10.0), np.maximum(z, 10.0), (-1.0) ** n
    series: Any = 0.0
    for j in range(len(BERNOULLI), 0, -1):
        factor = BERNOULLI[j - 1] * math.factorial(2 * j + n - 1) / math.factorial(2 * j)
        series = series - sign * factor * far ** -(2.0 * j + n)
    series = series - sign * math.factorial(n) / 2 * far ** -(n + 1.0)
    leading = np.log(near) if n == 0 else -sign * math.factorial(n - 1) * near ** -float(n)
    return np.where(z >= 10, series, known(near) - leading)


def whole_rise(n: int, x: Any, h: Any) -> Any:
    """psi_n(x + h) - psi_n(x)."""
    known = partial(polygamma_at, n)
    below = known(x)
    pole = np.isinf(below) & np.isfinite(x)
    with np.errstate(invalid="ignore"):  # of NaN at other poles
        found = np.where(pole, -below, known(x + h) - np.where(pole, 0.0, below))
    for close, low, sign in (
        ((h > 0) & (h < x), x, 1.0),
        ((h < 0) & (-h < x + h), x + h, -1.0),
    ):
        if np.any(close):
            u, v = low[close], sign * h[close]
            leading = _leading_rise(n, u + STEPS, v)
            found[close] = sign * (leading + _by_series(n, u, v, STEPS))
    left = (x < 0.5) & (x + h < 0.5) & ~pole & (n < 2)
    if np.any(left):
        found[left] = _by_reflection(n, x[left], h[left])
    # From pole to pole, h apart, both move with x: what is infinite cancels in DLMF 5.5.4.
    poles = (x <= 0) & (x + h <= 0) & (x == np.rint(x)) & (x + h == np.rint(x + h)) & np.isfinite(h)
    if np.any(poles):
        found[poles] = (-1.0) ** n * whole_rise(n, 1 - x[poles], -h[poles])
    return found


def _by_reflection(n: int, x: Any, h: Any) -> Any:
    """Left of 1/2, what DLMF 5.5.4 says, and its derivative: with the difference of cotangents as a
    product of sines, which is exactly 0 where h is an integer."""

    def sine(t: Any) -> Any:
        return np.sin(np.pi * (t - np.rint(t))) * np.where(np.rint(t) % 2 == 0, 1.0, -1.0)

    right = (-1.0) ** n * whole_rise(n, 1 - x, -h)
    with np.errstate(all="ignore"):  # at poles
        share, across = sine(h) / sine(x), sine(x + h)
        if n == 0:
            return right + np.pi * share / across
        return right - np.pi**2 * share / across * (sine(2 * x + h) / across / sine(x))


def _fallen(m: int, z: Any, h: Any) -> Any:
    """How much z^-m rises, m > 0."""
    return np.expm1(-m * np.log1p(h / z)) * z ** float(-m)


def _leading_rise(n: int, z: Any, h: Any) -> Any:
    """How much l_n does."""
    if n == 0:
        return np.log1p(h / z)
    with np.errstate(all="ignore"):
        return (-1.0) ** (n + 1) * math.factorial(n - 1) * _fallen(n, z, h)


def _by_series(n: int, x: Any, h: Any, steps: int) -> Any:
    """How much psi_n does, but for l_n at the end of so many steps of recurrence."""
    sign, fac = (-1.0) ** n, math.factorial
    found = np.zeros(np.shape(x))
    with np.errstate(all="ignore"):  # powers of large numbers vanish, small ones' are infinite
        z = x + steps
        for j in range(len(BERNOULLI), 0, -1):
            factor = BERNOULLI[j - 1] * fac(2 * j + n - 1) / fac(2 * j)
            found = found - sign * factor * _fallen(2 * j + n, z, h)
        found = found - sign * fac(n) / 2 * _fallen(n + 1, z, h)
        for k in range(steps - 1, -1, -1):
            found = found - sign * fac(n) * _fallen(n + 1, x + k, h)
    return found


@parametric
class Rise(ByPartials):
    """psi_n(x + h) - psi_n(x), less what the leading term rises by where that is taken out; exact
    to the last digits for positive x and h."""

    order: int

    name = "polygamma_rise"

    def evaluate(self, *xs: Any) -> Any:
        return _rise(self.order, *xs).astype(np.asarray(xs[-1]).dtype)[()]

    def partials(self, out: Any, x: Any, h: Any) -> tuple[Any, Any]:
        n, end, one = self.order + 1, x + h, x.constant(1)
        split = _split(x, h)
        rest = -Rise(n)(where(split, end, one), x.constant(math.inf))  # r_n vanishes far out
        whole = polygamma(n, where(split, one, end))
        return Rise(n)(x, h), where(split, rest, whole)
