"""Derivatives of the beta function, with its poles separated.

    B(x, y) = Gamma(x) Gamma(y) / Gamma(s),    s = x + y

Let u, v, w be the distances of x, y and s from the nearest integers, where w = u + v. Let r be
digamma without its pole at that integer, if there is one. Then

    d(log B)/dx = 1/w - 1/u + p,    p = r(x) - r(s)
    d(log B)/dy = 1/w - 1/v + q,    q = r(y) - r(s).

In the second derivatives the squares of these poles cancel:

    B_xx / B = 2v / (u^2 w) - 2 p v / (u w) + p^2 + r'(x) - r'(s)
    B_xy / B = p/w - p/v + q/w - q/u + p q - r'(s).

Beside the pole at x = 0, r is the same function at y and at s, and q is -u times the mean of r'
between them. So terms of that size in the second line cancel too, and leave J,

    J(y, x) = integral of t r''(y + t x) over 0 < t < 1.

If the pole at 0 is taken out of both x and y, all terms of a derivative have the same sign for
positive operands:

    B_xy / B = p q - (x y / s) (J(x, y) + J(y, x)),    r(z) = digamma(1 + z).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from tapegrad.primitives.base import parametric
from tapegrad.primitives.incomplete import rule, weights_of
from tapegrad.primitives.kinds import ByPartials
from tapegrad.primitives.polygamma_differences import whole_rise
from tapegrad.primitives.special import polygamma_at as psi

ROUNDED = 1e-150  # replaces s = 0, where x and y are beside poles


@cache
def _cotangent() -> Any:
    """1/d - pi cot(pi d) without its poles at 1 and -1, as a polynomial in d."""
    import scipy.special

    series = np.zeros(56)
    series[1::2] = 2 * scipy.special.zetac(np.arange(2.0, 58.0, 2.0))
    return np.polynomial.Polynomial(series)


def _rest(n: int, d: Any) -> Any:
    """The n-th derivative of 1/d - pi cot(pi d), |d| < 1."""
    powers = (1 - d) ** -(n + 1.0) - (-1.0) ** n * (1 + d) ** -(n + 1.0)
    return _cotangent().deriv(n)(d) + math.factorial(n) * powers


def _without_pole(n: int, k: Any, d: Any) -> Any:
    """r_n(k + d), |d| < 1: psi_n without its pole at k, if k <= 0, by reflection (DLMF 5.5.4)."""
    left = k <= 0
    known = psi(n, np.where(left, 1 - k - d, k + d))
    return np.where(left, (-1.0) ** n * known + _rest(n, np.where(left, d, 0.0)), known)


def _difference(n: int, x: Any, s: Any, h: Any) -> Any:
    """r_n(x) - r_n(s), where s = x + h, n < 2. Both are psi_n of numbers above 1/2, up to
    reflection, so it is computed as a rise of psi_n."""
    (k, u), (m, w) = x, s
    from_left, to_left = k <= 0, m <= 0
    low = np.where(from_left, 1 - k - u, k + u)
    high = np.where(to_left, 1 - m - w, m + w)
    across = np.where(from_left, 1 - k - m - (u + w), k + m - 1 + (u + w))
    turned = from_left != to_left
    step = np.where(turned, across, np.where(from_left, h, -h))  # low - high
    sign = np.where(from_left, (-1.0) ** n, 1.0)
    found = whole_rise(n, high, step)
    found = sign * (np.where(turned, psi(1, low) + psi(1, high), found) if n else found)
    nodes, weights = rule(20)
    v = _split(h)[1]
    gap = np.where(np.abs(w - u - v) < 0.5, v, w - u)
    both = -gap * (_rest(n + 1, u[:, None] + gap[:, None] * nodes) @ weights)
    none = np.zeros_like(u)
    alone = np.where(from_left, _rest(n, u), none) - np.where(to_left, _rest(n, w), none)
    return found + np.where(from_left & to_left, both, alone)


def _gamma(k: Any, d: Any) -> tuple[Any, Any, Any]:
    """(factor, size, log): Gamma(k + d) is factor * size, or factor * exp(log) where size is 0 or
    infinite. Right to the last digits beside a pole (DLMF 5.5.3)."""
    import scipy.special

    left = k <= 0
    sine = np.where(k % 2 == 0, 1.0, -1.0) * np.sin(np.pi * np.where(left, d, 0.5))
    z, factor = np.where(left, 1 - k - d, k + d), np.where(left, np.pi / sine, 1.0)
    size, sign = scipy.special.gamma(z), np.where(left, -1.0, 1.0)
    return factor, size**sign, sign * scipy.special.gammaln(z)


def _bend(y: Any, x: Any) -> Any:
    """J(y, x) for r(z) = digamma(1 + z)."""
    close = np.abs(x) < 2 * (1 + y)
    near, far = np.where(close, x, 0.0), np.where(close, 3 * (1 + np.abs(y)), x)
    nodes, weights = rule(16)
    inside = psi(2, 1 + y[:, None] + near[:, None] * nodes) @ (weights * nodes)
    return np.where(close, inside, (psi(1, 1 + y + far) - whole_rise(0, 1 + y, far) / far) / far)


def _of_right(i: int, j: int, x: Any, y: Any) -> Any:
    """B_ij / B for operands above -1/2."""
    s = np.where(x == -y, ROUNDED, x + y)
    p, q = -whole_rise(0, 1 + x, y), -whole_rise(0, 1 + y, x)
    if i + j == 1:
        return p - y / x / s if i else q - x / y / s
    if i == j:
        return p * q - x / s * y * (_bend(x, y) + _bend(y, x))
    if j:
        x, y, p = y, x, q
    return 2 * y / x / s * (1 / x - p) + p * p - whole_rise(1, 1 + x, y)


def _split(x: Any) -> tuple[Any, Any]:
    k = np.rint(x)
    return k, x - k


def _sum_of(x: Any, y: Any) -> tuple[Any, Any, Any]:
    """The integer nearest to s, the distance from it, and whether that is u + v."""
    k, w = x[0] + y[0], x[1] + y[1]
    moved = np.rint(w)
    return k + moved, np.where(w == moved, ROUNDED, w - moved), moved == 0


def _of_left(i: int, j: int, x: Any, y: Any) -> Any:
    """B_ij / B, where at least one operand is below -1/2."""
    if j > i:
        i, j, x, y = j, i, y, x
    first, second = _split(x), _split(y)
    k, w, exact = _sum_of(first, second)
    (m, u), (n, v), ends = first, second, (k, w)
    a, b, c = (np.where(z <= 0, 1 / d, 0.0) for z, d in ((m, u), (n, v), (k, w)))
    near = exact & (k <= 0)  # s is near a pole if x or y is, and w = u + v
    p = _difference(0, first, ends, y)
    pole = np.where(near & (m <= 0), -v * a * c, c - a)
    if i + j == 1:
        return pole + p
    if j == 0:
        poles = 2 * a * np.where(near, v * a * c, a - c)
        poles = np.where(near & (m > 0), 0.0, poles)
        return poles + 2 * pole * p + p * p + _difference(1, first, ends, y)
    q = _difference(0, second, ends, x)
    other = np.where(near & (n <= 0), -u * b * c, c - b)
    both = np.where(near, np.where((m <= 0) & (n <= 0), 0.0, -(a + b) * c), a * b - a * c - b * c)
    found = both + other * p + pole * q + p * q - _without_pole(1, k, w)
    for zero, rest, large, slope in ((first, second, ends, p), (second, first, ends, q)):
        beside = (zero[0] == 0) & exact
        if np.any(beside):
            found = np.where(beside, _beside_0(zero, rest, large, slope), found)
    return found


def _beside_0(x: Any, y: Any, s: Any, p: Any) -> Any:
    """B_xy / B, where x is near the pole at 0 and y is another number on the left."""
    nodes, weights = rule(20)
    (_, u), (n, v), (_, w) = x, y, s
    path = np.clip(v[:, None] + u[:, None] * nodes, -0.8, 0.8)
    ks = np.broadcast_to(n[:, None], path.shape)
    mean = _without_pole(1, ks, path) @ weights
    bend = _without_pole(2, ks, path) @ (weights * nodes)
    return -u * (bend + (mean + p / v) / w + p * mean)


def _value(x: Any, y: Any) -> Any:
    """B(x, y). Left of 0 it is computed from the distances from poles. For large numbers, where
    SciPy's exponential of a logarithm loses digits, it is a quotient."""
    import scipy.special

    least, most = np.minimum(x, y), np.maximum(x, y)
    pole = (least <= 0) & (least == np.rint(least))
    apart = (np.abs(least) < 100) & (most > 1000) & np.isfinite(most) & ~pole
    small = np.where(apart, least, 1.0)
    known = scipy.special.gamma(small) / scipy.special.poch(np.where(apart, most, 1.0), small)
    found = np.where(apart, known, scipy.special.beta(x, y))
    left = ~(least > 0) & np.isfinite(x + y) & ~pole
    if np.any(left):
        one, other = _split(x[left]), _split(y[left])
        (f, g, logs), (p, q, more) = _gamma(*one), _gamma(*other)
        below, size, rest = _gamma(*_sum_of(one, other)[:2])
        small = (np.abs(x[left]) < 150) & (np.abs(y[left]) < 150)
        sizes = np.where(small, g * q / size, np.exp(logs + more - rest))
        found[left] = f * p / below * sizes
    return found


def beta_derivative(i: int, j: int, x: Any, y: Any) -> Any:
    """d^(i+j) B / dx^i dy^j."""
    dtype = np.result_type(x, y)
    x, y = np.broadcast_arrays(np.asarray(x, float), np.asarray(y, float))
    shape, x, y = x.shape, x.ravel(), y.ravel()
    least = np.minimum(x, y)
    general = (least <= 0) & (least == np.rint(least)) | (i + j > 2)
    right = (least > -0.5) & (x + y > -0.5) & ~general
    ways = (right, _of_right), (~right & ~general, _of_left), (general, _by_logarithms)
    with np.errstate(all="ignore"):
        found = _value(x, y)
        for rows, way in ways if i + j else ():
            if np.any(rows):
                found[rows] *= way(i, j, x[rows], y[rows])
    return found.reshape(shape).astype(dtype)[()]


def _by_logarithms(i: int, j: int, x: Any, y: Any) -> Any:
    """B_ij / B of any order. At poles too, where those of Gamma(y) and Gamma(s) cancel."""
    return weights_of(lambda n, m: _cumulant(n, m, x, y), i, j)


def _cumulant(i: int, j: int, x: Any, y: Any) -> Any:
    """d^(i+j) log B / dx^i dy^j."""
    n = i + j - 1
    if i and j:
        return -psi(n, x + y)
    return -whole_rise(n, x, y) if i else -whole_rise(n, y, x)


@parametric
class BetaDerivative(ByPartials):
    """The derivative of B(x, y) of the orders (i, j)."""

    orders: tuple[int, int]

    name = "beta_derivative"

    def evaluate(self, *xs: Any) -> Any:
        return beta_derivative(*self.orders, *xs)

    def partials(self, out: Any, *xs: Any) -> list[Any]:
        i, j = self.orders
        return [BetaDerivative(orders)(*xs) for orders in ((i + 1, j), (i, j + 1))]
