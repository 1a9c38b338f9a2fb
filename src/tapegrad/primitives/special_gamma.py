"""Gamma functions, complete and incomplete, and zeta functions."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from tapegrad.ir.tape import DECLARED
from tapegrad.primitives.base import parametric, total
from tapegrad.primitives.beta import BetaDerivative
from tapegrad.primitives.elementwise import (
    cos,
    exp,
    isinf,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    rint,
    sin,
    where,
)
from tapegrad.primitives.kinds import ByPartials
from tapegrad.primitives.kinked import absolute
from tapegrad.primitives.polygamma_differences import digamma_rise
from tapegrad.primitives.scipys import SciPys
from tapegrad.primitives.special import (
    digamma,
    gamma,
    gammaln,
    polygamma,
)
from tapegrad.primitives.stated import stated


def _named(name: str) -> Any:
    return DECLARED[name]


# ---- complete ones


def _rgamma_slope(x: Any) -> Any:
    """-digamma(x) / Gamma(x). On the left, where Gamma has poles, it is the slope of
    1 / Gamma(x) = Gamma(1-x) sin(pi x) / pi, by reflection (DLMF 5.5.3)."""
    left = x < 0.5
    right, other = where(left, x.constant(1), x), 1 - where(left, x, x.constant(0))
    angle = (1 - other - rint((1 - other) * 0.5) * 2) * math.pi
    turned = cos(angle) - digamma(other) * sin(angle) * (1 / math.pi)
    return where(left, gamma(other) * turned, -(digamma(right) * rgamma(right)))


rgamma: SciPys = SciPys("rgamma", lambda out, x: (_rgamma_slope(x),))
gammasgn = SciPys("gammasgn")
round_ = SciPys("round")


def _inside(x: Any) -> Any:
    """Where Gamma(x) neither underflows nor overflows, apart from its poles."""
    return logical_and(x > -150.0, x < 150.0)


def _sine_and_cosine(x: Any) -> tuple[Any, Any]:
    """sin(pi x) and cos(pi x), by the distance from the nearest integer: right to the last digit
    near it."""
    whole = rint(x)
    half = whole * 0.5
    sign = where(half.equals(rint(half)), x.constant(1), x.constant(-1))
    angle = (x - whole) * math.pi
    return sign * sin(angle), sign * cos(angle)


def _nearer(x: Any, y: Any) -> Any:
    """Whether x is much nearer to a pole of Gamma than y is."""
    near, far = absolute(x - rint(x)), absolute(y - rint(y))
    return logical_and(x < 0.5, logical_or(near * 2 < far, y > 0.5))


def _poch_partials(out: Any, z: Any, m: Any) -> tuple[Any, Any]:
    """The slopes of Gamma(z + m) / Gamma(z). Near a pole of Gamma(z) by the slope of
    1 / Gamma(z)."""
    s = z + m
    apart = logical_and(_nearer(z, s), logical_and(_inside(z), _inside(s)))
    low, high = where(apart, z, z.constant(1)), where(apart, s, z.constant(1))
    near = gamma(high) * (digamma(high) * rgamma(low) + _rgamma_slope(low))
    other = where(apart, z.constant(1), z)
    return where(apart, near, out * digamma_rise(other, m)), out * digamma(s)


poch = SciPys("poch", _poch_partials)


def _betaln_partials(out: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """digamma(x) - digamma(x + y), and the same for y. For betaln(x, x) the derivative along both
    operands is computed by duplication (DLMF 5.5.8), since their second derivatives nearly
    cancel."""
    if x.operand is y.operand:
        return -(digamma_rise(x, x.constant(0.5)) + 2 * math.log(2)), None
    return -digamma_rise(x, y), -digamma_rise(y, x)


betaln = SciPys("betaln", _betaln_partials)
beta = SciPys("beta", lambda out, *xs: BetaDerivative((0, 0)).partials(out, *xs))


def _accurate_binom(out: Any, n: Any, k: Any) -> Any:
    """binom(n, k) for 0 <= k <= n, right to the last digits for large n too."""
    least = where(k < n - k, k, n - k)
    known = logical_and(logical_and(least >= 0, least < 100.0), n > 1000.0)
    small, large = where(known, least, n.constant(1)), where(known, n, n.constant(2))
    return where(known, poch(large - small + 1, small) / gamma(small + 1), out)


def _binom_partials(out: Any, n: Any, k: Any) -> tuple[Any, Any]:
    """The slopes of binom(n, k) = 1 / ((n+1) B(n-k+1, k+1)). Outside of 0 <= k <= n gamma functions
    are reflected (DLMF 5.5.3): it is sines times a binomial coefficient or a beta function of
    operands inside."""
    rest, one, zero = n - k + 1, n.constant(1), n.constant(0)
    left, low, short = n < -0.5, k < -0.5, rest < 0.5
    beyond = logical_and(short, logical_not(left))  # sin(pi (k-n)) / pi times B(n+1, k-n)
    before = logical_and(low, logical_not(logical_or(left, short)))  # the same for n-k, -k
    inside = logical_not(logical_or(left, logical_or(beyond, before)))
    swapped = where(before, n - k, k)

    m, j = where(left, n, -one), where(left, k, one)
    reflected_n, reflected_k = _reflected(m, j, low, logical_and(low, short))

    out_of = logical_or(beyond, before)
    p, q = where(out_of, n, one), where(out_of, swapped, n.constant(2))
    d = where(before, -k, q - p)  # n - k loses small numbers
    (wave, turn), size = _sine_and_cosine(d), BetaDerivative((0, 0))(p + 1, d)
    wave = wave * (1 / math.pi)
    outside_n = size * (wave * digamma_rise(d, p + 1 - d) - turn)
    outside_k = size * (turn - wave * digamma_rise(d, p + 1))

    p, q = where(inside, n, one), where(inside, k, zero)
    known = _accurate_binom(where(inside, out, one), p, q)
    inside_n, inside_k = known * digamma_rise(p - q + 1, q), known * digamma_rise(q + 1, p - q - q)

    # binom(n, k) = binom(n, n-k): there the slope along n has a part that goes by n-k
    outer_n = where(before, -(size * wave * digamma_rise(n + 1, d)), outside_n)
    outer_k = where(before, -outside_k, outside_k)
    return (
        where(left, reflected_n, where(out_of, outer_n, inside_n)),
        where(left, reflected_k, where(out_of, outer_k, inside_k)),
    )


def _reflected(n: Any, k: Any, low: Any, both: Any) -> tuple[Any, Any]:
    """The slopes of binom(n, k) for n < 0. With S, C the sine and cosine of pi times an operand,

    binom(n, k) = S(n-k) / S(n) binom(k-n-1, k)               for k >= 0
                = S(k) / S(n) binom(-k-1, -n-1)               for k < 0, where n-k >= 0 (`low`)
                = S(k) S(k-n) / (pi S(n)) B(-k, k-n)          for k < 0, where n-k < 0 (`both`)
    """
    (bottom, side), (by, turn) = _sine_and_cosine(n), _sine_and_cosine(k)
    scale, cotangent = 1 / bottom, side / bottom
    one, ratio, quotient = n.constant(1), turn - cotangent * by, by / bottom

    j, m = where(low, one, k), where(low, -one, n)
    value = binom(j - m - 1, j)
    rise, fall = digamma_rise(-m, j), digamma_rise(j + 1, -m - 1)
    upper_n = value * (by * scale * scale * math.pi - ratio * rise)
    upper_k = value * (ratio * fall - (cotangent * turn + by) * math.pi)

    one_side = logical_and(low, logical_not(both))
    p, q = where(one_side, -k - 1, one), where(one_side, -n - 1, one)
    value = binom(p, q)
    lower_n = value * (-quotient * cotangent * math.pi - quotient * digamma_rise(q + 1, p - q - q))
    lower_k = value * (turn * scale * math.pi - quotient * digamma_rise(p - q + 1, q))

    p, q = where(both, -k, one), where(both, k - n, one)
    value, waves = BetaDerivative((0, 0))(p, q), by * ratio * (1 / math.pi)
    both_n = -value * (quotient * quotient + waves * digamma_rise(q, p))
    slope = turn * turn - by * by - 2 * cotangent * by * turn
    both_k = -value * (slope + waves * digamma_rise(p, q - p))
    return (
        where(both, both_n, where(low, lower_n, upper_n)),
        where(both, both_k, where(low, lower_k, upper_k)),
    )


binom = SciPys("binom", _binom_partials)

# ---- derivatives in parameters, by quadrature and by series


@parametric
class ParameterSlope(ByPartials):
    """A derivative of the function `of` in its first parameters, of these `orders`. The functions
    are P(a, x), I_x(a, b) and zeta(s, q) (see `incomplete`)."""

    of: str
    orders: tuple[int, ...]

    name = "parameter_slope"

    def evaluate(self, *xs: Any) -> Any:
        from tapegrad.primitives import incomplete

        return incomplete.SLOPES[self.of](*self.orders, *xs)

    def _next(self, k: int) -> tuple[int, ...]:
        return tuple(n + (i == k) for i, n in enumerate(self.orders))

    def partials(self, out: Any, *xs: Any) -> list[Any]:
        along = [ParameterSlope(self.of, self._next(k))(*xs) for k in range(len(self.orders))]
        return [*along, LAST[self.of](self.orders, *xs)]


def slope_in_parameters(of: str, orders: tuple[int, ...], *xs: Any) -> Any:
    """`ParameterSlope` for these orders; the function itself if they are all 0."""
    return ParameterSlope(of, orders)(*xs) if any(orders) else _named(of)(*xs)


def _bell(first: Any, others: Any, order: int) -> Any:
    """The Bell polynomial of a density's logarithm: first, -others(1), -others(2), ... ."""
    known = [first.constant(1)]
    for n in range(order):
        terms = [known[n] * first]
        terms += [known[n - k] * others(k) * -float(math.comb(n, k)) for k in range(1, n + 1)]
        known.append(total(terms))
    return known[order]


@parametric
class _Density(ByPartials):
    """A density at the last operand, divided by powers of it. So its slopes along that operand are
    finite where the product with 1 / x is 0 * inf."""


def _term(count: Any, density: _Density, *xs: Any) -> Any:
    """A product that is 0 where its first factor is, for each order along the last operand,
    although the density is infinite there. Along the parameter the slope is the density."""
    *parameters, x = xs
    nothing, one = count.equals(0), x.constant(1)
    inner = logical_or(x.equals(0), x.equals(1)).equals(False)
    slope = density(*parameters, where(logical_and(nothing, inner), x, one * 0.5))
    slope = where(logical_and(nothing, inner), slope, one * 0)
    product = count * density(*parameters, where(nothing, one * 0.5, x))
    along = stated(where(nothing, one * 0, product), (count, slope))
    return where(nothing, along, product)


@parametric
class GammaDensity(_Density):
    """The slope of P(a, x) along x, divided by x^fall: x^(a-1-fall) exp(-x) / Gamma(a)."""

    fall: int

    name = "gamma_density"

    def evaluate(self, *xs: Any) -> Any:
        from tapegrad.primitives import incomplete

        return incomplete.gamma_density(self.fall, *xs)

    def partials(self, out: Any, *xs: Any) -> tuple[Any, ...]:
        a, x = xs
        end, power = x.equals(0), a - (1.0 + self.fall)
        weight = log(where(end, x.constant(1), x)) - digamma(a)
        return (
            where(end, x.constant(0), out * weight),
            _term(power, GammaDensity(self.fall + 1), a, x) - out,
        )


@parametric
class BetaDensity(_Density):
    """The slope of I_x(a, b) along x, divided by x^i (1-x)^j."""

    i: int
    j: int

    name = "beta_density"

    def evaluate(self, *xs: Any) -> Any:
        from tapegrad.primitives import incomplete

        return incomplete.beta_density(self.i, self.j, *xs)

    def partials(self, out: Any, *xs: Any) -> tuple[Any, ...]:
        a, b, x = xs
        ends = logical_or(x.equals(0), x.equals(1))
        inner, nothing = where(ends, x.constant(0.5), x), x.constant(0)
        left, right = a - (1.0 + self.i), b - (1.0 + self.j)
        high = isinf(out)  # then only the slope on its side counts
        far, close = (logical_and(high, x.equals(end)) for end in (1, 0))
        half = x.constant(0.5)
        on_left = _term(left, BetaDensity(self.i + 1, self.j), a, b, where(far, half, x))
        on_right = _term(right, BetaDensity(self.i, self.j + 1), a, b, where(close, half, x))
        along_a, along_b = log(inner) + digamma_rise(a, b), log1p(-inner) + digamma_rise(b, a)
        return (
            where(ends, nothing, out * along_a),
            where(ends, nothing, out * along_b),
            where(far, nothing, on_left) - where(close, nothing, on_right),
        )


gamma_density, beta_density = GammaDensity(0), BetaDensity(0, 0)


def _of_gamma_density(orders: tuple[int, ...], a: Any, x: Any) -> Any:
    density = gamma_density(a, x)
    weight = _bell(log(x) - digamma(a), lambda k: polygamma(k, a), orders[0])
    return where(x > 0, density * weight, x.constant(0))


def _of_beta_density(orders: tuple[int, ...], a: Any, b: Any, x: Any) -> Any:
    from tapegrad.primitives.incomplete import weights_of

    one = x.constant(1)

    def cumulant(i: int, j: int) -> Any:
        n = i + j - 1
        of = partial(polygamma, n)
        both = of(a + b)
        if i and j:
            return both
        if n:
            return both - of(a if i else b)
        return digamma_rise(a, b) + log(x) if i else digamma_rise(b, a) + log1p(-x)

    inside = logical_and(x > 0, x < 1)
    weight = weights_of(cumulant, *orders)
    return where(inside, beta_density(a, b, x) * (one * weight), x.constant(0))


def _of_zeta(orders: tuple[int, ...], s: Any, q: Any) -> Any:
    """d/dq d^k/ds^k zeta(s, q), from d/dq zeta(s, q) = -s zeta(s+1, q) (DLMF 25.11.17)."""
    (k,) = orders
    found = -(s * slope_in_parameters("zeta", (k,), s + 1, q))
    return found - slope_in_parameters("zeta", (k - 1,), s + 1, q) * k if k else found


LAST: dict[str, Any] = {
    "gammainc": _of_gamma_density,
    "betainc": _of_beta_density,
    "zeta": _of_zeta,
}

# ---- incomplete ones


def gammainc_slopes(a: Any, x: Any) -> tuple[Any, Any]:
    return ParameterSlope("gammainc", (1,))(a, x), gamma_density(a, x)


def betainc_slopes(a: Any, b: Any, x: Any) -> tuple[Any, Any, Any]:
    along_a = ParameterSlope("betainc", (1, 0))(a, b, x)
    return along_a, ParameterSlope("betainc", (0, 1))(a, b, x), beta_density(a, b, x)


def negated(slopes: Any) -> Any:
    """The slopes of the complement."""
    return lambda out, *xs: [-slope for slope in slopes(*xs)]


gammainc = SciPys("gammainc", lambda out, a, x: gammainc_slopes(a, x))
gammaincc = SciPys("gammaincc", negated(gammainc_slopes))
betainc = SciPys("betainc", lambda out, a, b, x: betainc_slopes(a, b, x))
betaincc = SciPys("betaincc", negated(betainc_slopes))

# ---- zeta functions

zeta = SciPys("zeta", lambda out, s, q: (ParameterSlope("zeta", (1,))(s, q), _of_zeta((0,), s, q)))


def _riemann_partials(out: Any, s: Any) -> tuple[Any]:
    """The slope by the series. Far left of 0 it is computed from 1 - s, by the reflection formula
    (DLMF 25.4.1): zeta(s) = 2 (2 pi)^(s-1) sin(pi s / 2) Gamma(1-s) zeta(1-s). The factor without
    the sine is, by duplication (DLMF 5.5.5), pi^(-z/2) Gamma(z/2) for z = 1 - s times that for
    z + 1."""
    one = s.constant(1)
    left = s < -1
    right, other = where(left, s.constant(2), s), 1 - where(left, s, s.constant(-2))
    turned = (1 - other) * (math.pi / 2)
    halves = [other * 0.5, (other + 1) * 0.5]
    scale, upper = (exp(gammaln(z) - z * math.log(math.pi)) for z in halves)
    scale = scale * upper
    slopes = scale * riemann_zeta(other)
    inner = digamma(other) * riemann_zeta(other) + ParameterSlope("zeta", (1,))(other, one)
    reflected = sin(turned) * (slopes * math.log(2 * math.pi) - scale * inner)
    reflected = reflected + cos(turned) * slopes * (math.pi / 2)
    return (where(left, reflected, ParameterSlope("zeta", (1,))(right, one)),)


riemann_zeta: SciPys = SciPys("riemann_zeta", _riemann_partials, "zeta({0})")
zetac = SciPys("zetac", _riemann_partials)
