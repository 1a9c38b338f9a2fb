"""Differences of polygamma functions: psi_n(x + h) - psi_n(x), where psi_n are derivatives of
digamma.

For large x and small h a subtraction loses all digits. Then the difference is taken in each term of
a series, and all terms have one sign: recurrence (DLMF 5.15.5) leads to a large argument, where the
asymptotic series (DLMF 5.15.8, 5.11.2) is one of powers.

From 1 on psi_n is split into its leading term and the rest, l_n(z) + r_n(z): l_0 is the logarithm,
and l_n are its derivatives. The difference of the leading term is log(1 + h / x). It depends on
h / x alone, so its slope along the direction in which both x and h grow is exactly 0. There the
rest determines how log(Gamma) bends.
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
    """Where the leading term is separated."""
    return logical_and(x >= 1, x + h >= 1)


def rest_rise(n: int, x: Any, h: Any) -> Any:
    """r_n(x + h) - r_n(x), for h > 0."""
    inner = np.maximum(x, 1.0)
    return np.where(x >= 1, _rest_rise(n, inner, h), rest(n, x + h) - rest(n, x))


def _rise(n: int, x: Any, h: Any) -> Any:
    """The value of `Rise`."""
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
    """r_n(z): its series, or psi_n without the leading term where the rest isn't a small part of
    it."""
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
    with np.errstate(invalid="ignore"):  # NaN at other poles
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
    # From pole to pole, h apart, both move with x: the infinite terms of DLMF 5.5.4 cancel.
    poles = (x <= 0) & (x + h <= 0) & (x == np.rint(x)) & (x + h == np.rint(x + h)) & np.isfinite(h)
    if np.any(poles):
        found[poles] = (-1.0) ** n * whole_rise(n, 1 - x[poles], -h[poles])
    return found


def _by_reflection(n: int, x: Any, h: Any) -> Any:
    """psi_n(x + h) - psi_n(x) left of 1/2, by DLMF 5.5.4 and its derivative. The difference of
    cotangents is a product of sines, which is exactly 0 if h is an integer."""

    def sine(t: Any) -> Any:
        return np.sin(np.pi * (t - np.rint(t))) * np.where(np.rint(t) % 2 == 0, 1.0, -1.0)

    right = (-1.0) ** n * whole_rise(n, 1 - x, -h)
    with np.errstate(all="ignore"):  # at poles
        share, across = sine(h) / sine(x), sine(x + h)
        if n == 0:
            return right + np.pi * share / across
        return right - np.pi**2 * share / across * (sine(2 * x + h) / across / sine(x))


def _fallen(m: int, z: Any, h: Any) -> Any:
    """(z + h)^-m - z^-m, m > 0."""
    return np.expm1(-m * np.log1p(h / z)) * z ** float(-m)


def _leading_rise(n: int, z: Any, h: Any) -> Any:
    """l_n(z + h) - l_n(z)."""
    if n == 0:
        return np.log1p(h / z)
    with np.errstate(all="ignore"):
        return (-1.0) ** (n + 1) * math.factorial(n - 1) * _fallen(n, z, h)


def _by_series(n: int, x: Any, h: Any, steps: int) -> Any:
    """psi_n(x + h) - psi_n(x) by `steps` of recurrence and the series, but without the difference
    of l_n at the end of the recurrence."""
    sign, fac = (-1.0) ** n, math.factorial
    found = np.zeros(np.shape(x))
    with np.errstate(all="ignore"):  # powers of large numbers underflow, of small ones overflow
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
    """psi_n(x + h) - psi_n(x), without the leading term's difference where that is separated. Right
    to the last digits for positive x and h."""

    order: int

    name = "polygamma_rise"

    def evaluate(self, *xs: Any) -> Any:
        return _rise(self.order, *xs).astype(np.asarray(xs[-1]).dtype)[()]

    def partials(self, out: Any, x: Any, h: Any) -> tuple[Any, Any]:
        n, end, one = self.order + 1, x + h, x.constant(1)
        split = _split(x, h)
        rest = -Rise(n)(where(split, end, one), x.constant(math.inf))  # r_n is 0 at infinity
        whole = polygamma(n, where(split, one, end))
        return Rise(n)(x, h), where(split, rest, whole)
