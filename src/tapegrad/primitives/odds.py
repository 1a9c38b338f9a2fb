"""The incomplete beta function I_u(a, b) at fixed odds, and its derivatives in its parameters:

    G(a, b, d) = I_u(a, b),    u / (1 - u) = (a / b) exp(d).

exp(d) has Fisher's distribution with 2a and 2b degrees of freedom; for a = 1/2 it is the square of
a variable with Student's distribution of 2b. G hardly depends on many degrees of freedom, so its
derivatives would cancel if they were made of those of I_u(a, b). Here none cancels. With

    M = log((b + a exp(d)) / (a + b)),    w = d - M,    r(z) = digamma(z) - log(z),

the logarithm of the density over d has the derivative w - expm1(w) + r(a + b) - r(a) along a. Along
b it has -M instead of w, and b instead of a. Along d it is -a expm1(w). Higher derivatives are
polynomials of

    H = exp(w) - exp(-M),    K = 1 - exp(w),    a,    b,    A = 1 / (a + b).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tapegrad.primitives import incomplete
from tapegrad.primitives.base import parametric
from tapegrad.primitives.elementwise import exp
from tapegrad.primitives.incomplete import weights_of
from tapegrad.primitives.kinds import ByPartials
from tapegrad.primitives.polygamma_differences import rest, rest_rise
from tapegrad.primitives.scipys import log_ratio
from tapegrad.primitives.stated import stated

MIN_SHAPE = 0.1  # the least parameters for which inverses are found at fixed odds

Orders = tuple[int, int, int]
Polynomial = dict[tuple[int, ...], float]  # coefficients by the powers of H, K, a, b, A

# Derivatives of H, K, a, b, A along a, b and d.
_A: tuple[Polynomial, ...] = (
    {(2, 0, 0, 1, 2): -1.0},
    {(1, 0, 0, 1, 2): 1.0, (1, 1, 0, 1, 2): -1.0},
)
_B: tuple[Polynomial, ...] = ({(2, 0, 1, 0, 2): 1.0}, {(1, 0, 1, 0, 2): -1.0, (1, 1, 1, 0, 2): 1.0})
_EG = {(0, 0): 1.0, (0, 1): -2.0, (0, 2): 1.0, (1, 0): -1.0, (1, 1): 1.0}  # exp(w - M)
_RISES: tuple[tuple[Polynomial, ...], ...] = (
    (*_A, {(0,) * 5: 1.0}, {}, {(0, 0, 0, 0, 2): -1.0}),
    (*_B, {}, {(0,) * 5: 1.0}, {(0, 0, 0, 0, 2): -1.0}),
    (
        {(*hk, 0, 0, 0): c for hk, c in _EG.items()},
        {(*hk, 0, 1, 1): -c for hk, c in _EG.items()},
        {},
        {},
        {},
    ),
)


def _along(polynomial: Polynomial, wrt: int) -> Polynomial:
    found: Polynomial = {}
    for powers, c in polynomial.items():
        for k, rise in enumerate(_RISES[wrt]):
            for more, by in rise.items() if powers[k] else ():
                new = tuple(
                    p + q - (n == k) for n, (p, q) in enumerate(zip(powers, more, strict=True))
                )
                found[new] = found.get(new, 0.0) + c * by * powers[k]
    return found


@cache
def _polynomial(orders: Orders) -> Polynomial:
    """A derivative of the logarithm of the density, without r, from a first derivative along d or a
    second one."""
    i, j, k = orders
    found: Polynomial
    if k:
        found, left = {(0, 1, 1, 0, 0): 1.0}, (i, j, k - 1)
    else:
        found, left = {(1, 1, 0, 1, 2): -1.0}, (i - 2, j, 0)
        if i == 1:
            found, left = {(1, 1, 1, 0, 2): 1.0}, (0, j - 1, 0)
    for wrt, count in enumerate(left):
        for _ in range(count):
            found = _along(found, wrt)
    return found


def fall(w: Any) -> Any:
    """w - expm1(w)."""
    small = np.where(np.abs(w) < 0.5, w, 0.0)
    series = np.zeros_like(small)
    for n in range(16, 1, -1):
        series = (series + 1) * small / n
    return np.where(np.abs(w) < 0.5, -series * small, w - np.expm1(w))


def _cumulant(orders: Orders, a: Any, b: Any, d: Any) -> Any:
    """The derivative of the logarithm of the density, of these orders along a, b and d."""
    i, j, k = orders
    if i == k == 0 and j:  # the same with a and b exchanged, and -d
        return _cumulant((j, 0, 0), b, a, -d)
    both = a + b
    w = -incomplete.log_mixture(-d, b / both, a / both)
    found: Any = 0.0
    if orders == (1, 0, 0):
        found = fall(w)
    else:
        steep = -np.exp(w) * np.expm1(-np.maximum(d, 0.0)) * (d > 0)
        other = np.exp(-incomplete.log_mixture(np.minimum(d, 0.0), a / both, b / both))
        h = np.where(d > 0, steep, other * np.expm1(np.minimum(d, 0.0)))
        values = (h, -np.expm1(w), a, b, 1 / both)
        for powers, c in _polynomial(orders).items():
            term = np.full(np.shape(h), c)
            for value, power in zip(values, powers, strict=True):
                term = term * value**power if power else term
            found = found + term
    if k:
        return found
    n = i + j - 1
    return found + (rest(n, both) if j else rest_rise(n, a, b))


def _log_density(a: Any, b: Any, d: Any) -> Any:
    height = incomplete.stirling(a) + incomplete.stirling(b) - incomplete.stirling(a + b)
    return height + incomplete.over_odds(a, b, d)


def _slope(i: int, j: int, a: Any, b: Any, d: Any, over: bool) -> Any:
    """A derivative of G by quadrature over d, on the side with less of the density (see
    `incomplete`). If `over`, it is divided by the density at d."""
    import scipy.special

    inside = (a > 0) & (b > 0) & np.isfinite(a) & np.isfinite(b) & np.isfinite(d)
    a, b, d = (np.where(inside, x, 1.0) for x in (a, b, d))
    share = a / (a + b) * np.exp(-incomplete.log_mixture(-d, b / (a + b), a / (a + b)))
    below = scipy.special.betainc(a, b, share) <= 0.5
    p, q, end = np.where(below, a, b), np.where(below, b, a), np.where(below, d, -d)
    panels = incomplete.beta_panels(p, q, end)
    orders = [(k, m, 0) for k in range(i + 1) for m in range(j + 1) if k + m]

    def integrand(s: Any, a: Any, b: Any, below: Any, d: Any, level: Any) -> Any:
        at = d - np.where(below, s, -s)
        known = {order: _cumulant(order, a, b, at) for order in orders}
        height = np.exp(_log_density(a, b, at) - level)
        return height * weights_of(lambda k, m: known[k, m, 0], i, j)

    level = _log_density(a, b, d) * over
    found = incomplete.over(panels, integrand, [a, b, below, d, level])
    return np.where(inside, np.where(below, found, -found), np.nan)


@parametric
class _Odds(ByPartials):
    """A function of a, b and d."""

    orders: tuple[int, ...]

    def _next(self, k: int) -> tuple[int, ...]:
        return tuple(n + (m == k) for m, n in enumerate(self.orders))


@parametric
class OddsCumulant(_Odds):
    """A derivative of the logarithm of the density over d."""

    name = "odds_cumulant"

    def evaluate(self, *xs: Any) -> Any:
        i, j, k = self.orders
        return incomplete.elementwise(lambda a, b, d: _cumulant((i, j, k), a, b, d))(*xs)

    def partials(self, out: Any, *xs: Any) -> list[Any]:
        return [OddsCumulant(self._next(k))(*xs) for k in range(3)]


@parametric
class OddsDensity(_Odds):
    """The density over d, u^a (1-u)^b / B(a, b)."""

    name = "odds_density"

    def evaluate(self, *xs: Any) -> Any:
        return incomplete.elementwise(lambda *xs: np.exp(_log_density(*xs)))(*xs)

    def partials(self, out: Any, *xs: Any) -> list[Any]:
        return [out * along for along in _along_each(xs)]


def _along_each(xs: Any) -> list[Any]:
    """The slopes of the logarithm of the density."""
    return [OddsCumulant(tuple(int(m == k) for m in range(3)))(*xs) for k in range(3)]


@parametric
class OddsHeight(_Odds):
    """The logarithm of the density over d."""

    name = "odds_height"

    def evaluate(self, *xs: Any) -> Any:
        return incomplete.elementwise(_log_density)(*xs)

    def partials(self, out: Any, *xs: Any) -> list[Any]:
        return _along_each(xs)


@parametric
class OddsSlope(_Odds):
    """A derivative of G along a and b, of the orders given. If `over`, it is divided by the
    density."""

    over: bool = False

    name = "odds_slope"

    def evaluate(self, *xs: Any) -> Any:
        i, j = self.orders
        return incomplete.elementwise(lambda a, b, d: _slope(i, j, a, b, d, self.over))(*xs)

    def partials(self, out: Any, *xs: Any) -> list[Any]:
        weight = weights_of(lambda i, j: OddsCumulant((i, j, 0))(*xs), *self.orders)
        found = [OddsSlope(self._next(k), self.over)(*xs) for k in range(2)]
        if self.over:
            levels = [out * along for along in _along_each(xs)]
            return [slope - level for slope, level in zip([*found, weight], levels, strict=True)]
        return [*found, OddsDensity(())(*xs) * weight]


# ---- inverses of p = I_x(a, b), for which d has small slopes; `sign` -1 means p = 1 - I_x(a, b)


def _odds_slopes(a: Any, b: Any, d: Any) -> tuple[Any, Any, Any]:
    """G_a and G_b over the density, and one over the density."""
    along = [OddsSlope(orders, True)(a, b, d) for orders in ((1, 0), (0, 1))]
    return along[0], along[1], exp(-OddsHeight(())(a, b, d))


def point_slopes(a: Any, b: Any, x: Any, y: Any, p: Any, sign: Any) -> tuple[Any, Any, Any]:
    """The slopes of x along a, b and p; y is 1 - x."""
    d = log_ratio(x * b, y * a)
    along_a, along_b, inverse = _odds_slopes(a, b, d)
    d = stated(d, (a, -along_a), (b, -along_b), (p, sign * inverse))
    along_a, along_b, inverse = _odds_slopes(a, b, d)
    both = x * y
    return both * (1 / a - along_a), -both * (1 / b + along_b), both * (sign * inverse)


def left_slopes(a: Any, b: Any, x: Any, y: Any, p: Any, sign: float) -> tuple[Any, Any, Any]:
    """The slopes of a along b, the logarithm of the odds x / y, and p; y is 1 - x."""

    def slopes(d: Any) -> tuple[Any, Any, Any]:
        along_a, along_b, inverse = _odds_slopes(a, b, d)
        return a * along_a, b * along_b, inverse * sign / (1 - a * along_a)

    d = log_ratio(x * b, y * a)
    own, other, at_p = slopes(d)
    moved = own / (own - 1)
    d = stated(d, (b, (own + other) / (b * (own - 1))), (x, moved / (x * y)), (p, at_p))
    own, other, at_p = slopes(d)
    rate = a / (1 - own)
    return rate * (1 + other) / b, rate, -a * at_p


def count_slopes(k: Any, n: Any, x: Any, y: Any, p: Any, sign: float) -> tuple[Any, Any, Any]:
    """The slopes of k along n, the logarithm of the odds and p, where a = k + 1 and b = n - k."""
    a, b = k + 1, n - k

    def slopes(d: Any) -> tuple[Any, ...]:
        along_a, along_b, inverse = _odds_slopes(a, b, d)
        rate = 1 / (1 / a + 1 / b - along_a + along_b)
        return along_a, along_b, rate, sign * inverse * rate

    d = log_ratio(x * b, y * a)
    along_a, along_b, rate, at_p = slopes(d)
    d = stated(
        d,
        (n, -(along_a / b + along_b / a) * rate),
        (x, (along_b - along_a) * rate / (x * y)),
        (p, (1 / a + 1 / b) * at_p),
    )
    along_a, along_b, rate, at_p = slopes(d)
    return (along_b + 1 / b) * rate, rate, -at_p


# ---- inverses by name, as in `ratios`


def _btdtria(a: Any, b: Any, x: Any, p: Any, sign: float = 1.0) -> dict[str, Any]:
    y = 1 - x
    along_b, along_x, along_p = left_slopes(a, b, x, y, p, sign)
    return {"b": along_b, "x": along_x / (x * y), "p": along_p}


def _btdtrib(a: Any, b: Any, x: Any, p: Any, sign: float = 1.0) -> dict[str, Any]:
    y = 1 - x
    along_a, along_y, along_p = left_slopes(b, a, y, x, p, -sign)
    return {"a": along_a, "x": -along_y / (x * y), "p": along_p}


def _bdtrik(k: Any, n: Any, x: Any, p: Any) -> dict[str, Any]:
    y = 1 - x
    along_n, along_x, along_p = count_slopes(k, n, x, y, p, -1.0)
    return {"n": along_n, "x": along_x / (x * y), "p": along_p}


def _bdtrin(k: Any, n: Any, x: Any, p: Any) -> dict[str, Any]:
    found = _btdtrib(k + 1, n - k, x, p, -1.0)
    return {"k": found["a"] + 1, "x": found["x"], "p": found["p"]}


def _nbdtrik(k: Any, n: Any, x: Any, p: Any) -> dict[str, Any]:
    found = _btdtrib(n, k + 1, x, p)
    return {"n": found["a"], "x": found["x"], "p": found["p"]}


def _nbdtrin(k: Any, n: Any, x: Any, p: Any) -> dict[str, Any]:
    found = _btdtria(n, k + 1, x, p)
    return {"k": found["b"], "x": found["x"], "p": found["p"]}


def _both(a: Any, b: Any, **_: Any) -> list[tuple[Any, float]]:
    return [(a, MIN_SHAPE), (b, MIN_SHAPE)]


def _trials(k: Any, n: Any, **_: Any) -> list[tuple[Any, float]]:
    return _both(k + 1, n - k)


def _failures(k: Any, n: Any, **_: Any) -> list[tuple[Any, float]]:
    return _both(n, k + 1)


LINEAR: dict[str, tuple[Any, Any]] = {
    "btdtria": (_both, _btdtria),
    "btdtrib": (_both, _btdtrib),
    "bdtrik": (_trials, _bdtrik),
    "bdtrin": (_trials, _bdtrin),
    "nbdtrik": (_failures, _nbdtrik),
    "nbdtrin": (_failures, _nbdtrin),
}
