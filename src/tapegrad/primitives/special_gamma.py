"""Gamma functions, complete and incomplete, and zeta functions."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from tapegrad.ir.tape import DECLARED, Aval
from tapegrad.primitives.base import broadcast_shapes, parametric, total
from tapegrad.primitives.elementwise import (
    cos,
    exp,
    log,
    log1p,
    logical_and,
    logical_or,
    power,
    rint,
    sin,
    where,
)
from tapegrad.primitives.kinds import Library
from tapegrad.primitives.rises import Rise
from tapegrad.primitives.scipys import SciPys
from tapegrad.primitives.special import (
    betaln,
    digamma,
    gamma,
    gammaln,
    polygamma,
    xlog1py,
    xlogy,
)


def _named(name: str) -> Any:
    return DECLARED[name]


# ---- complete ones


def _rgamma_slope(x: Any) -> Any:
    """-digamma(x) / Gamma(x). On the left, where Gamma has poles, the slope of what 1 / Gamma(x) is
    by reflection (DLMF 5.5.3): Gamma(1-x) sin(pi x) / pi."""
    left = x < 0.5
    right, other = where(left, x.constant(1), x), 1 - where(left, x, x.constant(0))
    angle = (1 - other - rint((1 - other) * 0.5) * 2) * math.pi
    turned = cos(angle) - digamma(other) * sin(angle) * (1 / math.pi)
    return where(left, gamma(other) * turned, -(digamma(right) * rgamma(right)))


rgamma: SciPys = SciPys("rgamma", lambda out, x: (_rgamma_slope(x),))
gammasgn = SciPys("gammasgn")
round_ = SciPys("round")


def _poch_partials(out: Any, z: Any, m: Any) -> tuple[Any, Any]:
    return out * Rise(0)(z, m), out * digamma(z + m)


poch = SciPys("poch", _poch_partials)


def _binom_partials(out: Any, n: Any, k: Any) -> tuple[Any, Any]:
    """Gamma(n+1) / (Gamma(k+1) Gamma(n-k+1)); the slopes of 1 / Gamma are finite at its zeros."""
    rest = n - k + 1
    whole = gamma(n + 1)
    across = whole * rgamma(k + 1) * _rgamma_slope(rest)
    along_k = whole * rgamma(rest) * _rgamma_slope(k + 1) - across
    return out * digamma(n + 1) + across, along_k


binom = SciPys("binom", _binom_partials)

# ---- derivatives in parameters, by quadrature and by series


@parametric
class ParameterSlope(Library):
    """A derivative of the function `of` in its first parameters, of these `orders`:
    of P(a, x), I_x(a, b) or zeta(s, q) (see `incomplete`)."""

    of: str
    orders: tuple[int, ...]

    name = "parameter_slope"

    def aval(self, *xs: Aval) -> Aval:
        return Aval(broadcast_shapes(*[x.shape for x in xs]), xs[-1].dtype)

    def evaluate(self, *xs: Any) -> Any:
        from tapegrad.primitives import incomplete

        return incomplete.SLOPES[self.of](*self.orders, *xs)

    def _next(self, k: int) -> tuple[int, ...]:
        return tuple(n + (i == k) for i, n in enumerate(self.orders))

    def partials(self, xs: Any) -> list[Any]:
        along = [ParameterSlope(self.of, self._next(k))(*xs) for k in range(len(self.orders))]
        return [*along, LAST[self.of](self.orders, *xs)]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return [ct * partial for partial in self.partials(xs)]

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        pairs = zip(ts, self.partials(xs), strict=True)
        return total(None if t is None else t * partial for t, partial in pairs)


def slope_in_parameters(of: str, orders: tuple[int, ...], *xs: Any) -> Any:
    """That, where none is asked for too: the function."""
    return ParameterSlope(of, orders)(*xs) if any(orders) else _named(of)(*xs)


def _bell(first: Any, others: Any, order: int) -> Any:
    """The Bell polynomial of a density's logarithm: first, -others(1), -others(2), ... ."""
    known = [first.constant(1)]
    for n in range(order):
        terms = [known[n] * first]
        terms += [known[n - k] * others(k) * -float(math.comb(n, k)) for k in range(1, n + 1)]
        known.append(total(terms))
    return known[order]


def gamma_density(a: Any, x: Any) -> Any:
    """The slope of P(a, x) along x; at x = 0 as a power, which has slopes there."""
    nothing, zero = x.equals(0), x.constant(0)
    plain, end = where(nothing, x.constant(1), x), where(nothing, x, zero)
    at_0 = power(end, a - 1) * exp(-gammaln(a) - end)
    return where(nothing, at_0, exp(xlogy(a - 1, plain) - plain - gammaln(a)))


def beta_density(a: Any, b: Any, x: Any) -> Any:
    """The slope of I_x(a, b) along x; at the ends as powers, which have slopes there."""
    ends = logical_or(x.equals(0), x.equals(1))
    plain, end = where(ends, x.constant(0.5), x), where(ends, x, x.constant(0))
    scale = betaln(a, b)
    at_ends = power(end, a - 1) * power(1 - end, b - 1) * exp(-scale)
    return where(ends, at_ends, exp(xlogy(a - 1, plain) + xlog1py(b - 1, -plain) - scale))


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
        own = both - of(a if i else b)
        return own if n else own + (log(x) if i else log1p(-x))

    inside = logical_and(x > 0, x < 1)
    weight = weights_of(cumulant, *orders)
    return where(inside, beta_density(a, b, x) * (one * weight), x.constant(0))


def _of_zeta(orders: tuple[int, ...], s: Any, q: Any) -> Any:
    """d/dq d^k/ds^k zeta(s, q), of d/dq zeta(s, q) = -s zeta(s+1, q) (DLMF 25.11.17)."""
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
    """By the series; left of 0 that of 1 - s, by the reflection formula (DLMF 25.4.1):
    zeta(s) = 2 (2 pi)^(s-1) sin(pi s / 2) Gamma(1-s) zeta(1-s)."""
    one = s.constant(1)
    left = s < 0
    right, other = where(left, s.constant(2), s), 1 - where(left, s, s.constant(-1))
    turned = (1 - other) * (math.pi / 2)
    scale = exp((1 - other) * math.log(2 * math.pi)) * gamma(other) * (1 / math.pi)
    slopes = scale * riemann_zeta(other)
    inner = digamma(other) * riemann_zeta(other) + ParameterSlope("zeta", (1,))(other, one)
    reflected = sin(turned) * (slopes * math.log(2 * math.pi) - scale * inner)
    reflected = reflected + cos(turned) * slopes * (math.pi / 2)
    return (where(left, reflected, ParameterSlope("zeta", (1,))(right, one)),)


riemann_zeta: SciPys = SciPys("riemann_zeta", _riemann_partials, "zeta({0})")
zetac = SciPys("zetac", _riemann_partials)
