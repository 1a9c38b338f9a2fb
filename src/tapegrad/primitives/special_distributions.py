"""Distribution functions of `scipy.special`, their complements and their inverses.

A row of a table is a function and its slopes, which are functions of the same arguments. A row of
an inverse names the function. Its slopes follow from the implicit function theorem: for F(x, y) = p

    dx/dp = 1 / F_x,    dx/dy = -F_y / F_x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from tapegrad.ir.tape import DECLARED
from tapegrad.primitives import odds, ratios
from tapegrad.primitives.base import Missing
from tapegrad.primitives.elementwise import (
    exp,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    sign,
    where,
)
from tapegrad.primitives.odds import OddsCumulant, OddsDensity, OddsSlope
from tapegrad.primitives.scipys import SciPys, as_real, whole
from tapegrad.primitives.special import SQRT_2PI, _log_ndtr_partials, ndtri
from tapegrad.primitives.special_gamma import (
    BetaDensity,
    GammaDensity,
    ParameterSlope,
    beta_density,
    betainc_slopes,
    betaln,
    gamma_density,
    gammainc_slopes,
)
from tapegrad.primitives.stated import stated

Slopes = Callable[..., Any]
WHOLE = Missing("a whole number")


def _named(name: str) -> Any:
    return DECLARED[name]


def _negative(slope: Any) -> Any:
    return slope if slope is None or isinstance(slope, Missing) else -slope


# Stand-ins where shapes are small; 2 for other arguments
LARGE_ARGUMENTS = {"p": 0.5, "x": 0.5, "n": 4}
SEARCHED = 1e100  # SciPy's limit in a search for parameters


def _function(name: str, slopes: Slopes, complement: bool = False) -> SciPys:
    def partials(out: Any, *xs: Any) -> Any:
        xs = tuple(as_real(x, xs[-1]) for x in xs)
        found = slopes(*xs)
        return [_negative(slope) for slope in found] if complement else found

    return SciPys(name, partials)


def _inverse_slopes(
    x: Any, steep: Callable[[Any], Any], rate: Callable[[Any], Any]
) -> tuple[Any, Any]:
    """1 / F_x, computed as x / (F_x x), and the factor of F_y, which is 0 for x = 0. Each is used
    only where it is finite."""
    end, zero, half = x.equals(0), x.constant(0), x.constant(0.5)
    inverse = where(end, zero, x / rate(where(end, half, x)))
    known = logical_and(end, logical_not(steep(x).equals(math.inf)))
    return where(known, 1 / steep(where(known, x, half)), inverse), inverse


def _inverse(
    name: str,
    slopes: Slopes,
    arguments: str,
    given: str,
    complement: bool = False,
    searched: float | None = None,
    least: float = 1e-100,
    rate: Callable[..., Any] | None = None,
) -> SciPys:
    """The inverse of a function.

    `arguments` are those of the function, `given` those of the inverse. One of `given` is the
    probability: "p", unless the function has an argument of that name. If SciPy's search from 0, or
    from `least`, to `searched` ends at one of these, the slopes are 0. `rate` is F_x x, for x so
    small that F_x overflows when squared.
    """
    names, own = arguments.split(), given.split()
    (solved,) = set(names) - set(own)
    (p,) = set(own) - set(names)
    many = ratios.LINEAR.get(name) or odds.LINEAR.get(name)

    def partials(out: Any, *xs: Any) -> Any:
        known = {name: as_real(x, xs[-1]) for name, x in zip(own, xs, strict=True)}
        known[solved] = out
        aside = at_bound = None
        inside = {name: out.constant(3 if name == "n" else 0.5) for name in known}
        if searched is not None:
            kind = np.finfo(out.dtype)
            low, high = max(least, float(kind.tiny)), min(searched, float(kind.max))
            aside = at_bound = logical_or(out <= low, out >= high)
        linear: Any = {}
        if many is not None:
            wide = [shape >= limit for shape, limit in many[0](**known)]
            there = reduce(logical_and, wide if aside is None else [*wide, logical_not(aside)])
            large = {name: out.constant(LARGE_ARGUMENTS.get(name, 2)) for name in known}
            linear = many[1](**{name: where(there, x, large[name]) for name, x in known.items()})
            aside = there if aside is None else logical_or(aside, there)
        if aside is not None:
            known = {name: where(aside, inside[name], x) for name, x in known.items()}

        def at(x: Any) -> list[Any]:
            return [{**known, solved: x}[name] for name in names]

        x, place = known[solved], names.index(solved)
        if rate is not None:
            at_p, others = _inverse_slopes(
                x, lambda x: slopes(*at(x))[place], lambda x: rate(*at(x))
            )
            x = where(x.equals(0), x.constant(0.5), x)
        found = dict(zip(names, slopes(*at(x)), strict=True))
        if rate is None:
            at_p = others = 1 / found[solved]
        results = []
        for name in own:
            slope = _negative(found.get(name))
            if name == p:
                slope = -at_p if complement else at_p
            elif slope is not None and not isinstance(slope, Missing):
                slope = slope * others
            known_one = slope is not None and not isinstance(slope, Missing)
            if name in linear:
                slope = where(there, linear[name], slope)
            if at_bound is not None and known_one:
                slope = where(at_bound, out.constant(0), slope)
            results.append(slope)
        return results

    return SciPys(name, partials)


# ---- made of the incomplete gamma function


def gdtr_slopes(a: Any, b: Any, x: Any) -> tuple[Any, Any, Any]:
    """P(b, u), where u = a x."""
    u, rate, one = a * x, gdtr_rate(a, b, x), x.constant(1)
    along_b, _ = gammainc_slopes(b, u)

    def along(v: Any, other: Any) -> Any:
        end = v.equals(0)
        return where(end, other * gamma_density(b, where(end, u, one)), rate / where(end, one, v))

    return along(a, x), along_b, along(x, a)


def gdtr_rate(a: Any, b: Any, x: Any) -> Any:
    """u times the density."""
    return GammaDensity(-1)(b, a * x)


def chdtr_slopes(v: Any, x: Any) -> tuple[Any, Any]:
    """P(v / 2, x / 2)."""
    along_v, density = gammainc_slopes(v * 0.5, x * 0.5)
    return along_v * 0.5, density * 0.5


def chdtr_rate(v: Any, x: Any) -> Any:
    return GammaDensity(-1)(v * 0.5, x * 0.5)


def pdtr_slopes(k: Any, m: Any) -> tuple[Any, Any]:
    """1 - P(k + 1, m), for real k."""
    along_k, density = gammainc_slopes(k + 1, m)
    return -along_k, -density


def pdtr_steps(k: Any, m: Any) -> tuple[Any, Any]:
    return None, -gamma_density(_floor(k) + 1, m)


def _floor(k: Any) -> Any:
    return _named("floor")(k)


gamma_rate, OF_X = GammaDensity(-1), ("a x", "a p")
gammaincinv = _inverse("gammaincinv", gammainc_slopes, *OF_X, rate=gamma_rate)
gammainccinv = _inverse("gammainccinv", gammainc_slopes, *OF_X, complement=True, rate=gamma_rate)
gdtr, gdtrc = _function("gdtr", gdtr_slopes), _function("gdtrc", gdtr_slopes, complement=True)
gdtria = _inverse("gdtria", gdtr_slopes, "a b x", "p b x", rate=gdtr_rate)
gdtrib = _inverse("gdtrib", gdtr_slopes, "a b x", "a p x", searched=SEARCHED)
gdtrix = _inverse("gdtrix", gdtr_slopes, "a b x", "a b p", rate=gdtr_rate)
chdtr, chdtrc = _function("chdtr", chdtr_slopes), _function("chdtrc", chdtr_slopes, complement=True)
chdtri = _inverse("chdtri", chdtr_slopes, "v x", "v p", complement=True, rate=chdtr_rate)
chdtriv = _inverse("chdtriv", chdtr_slopes, "v x", "p x", searched=SEARCHED)
pdtr, pdtrc = _function("pdtr", pdtr_steps), _function("pdtrc", pdtr_steps, complement=True)
pdtri = _inverse("pdtri", pdtr_steps, "k m", "k p")
pdtrik = _inverse("pdtrik", pdtr_slopes, "k m", "p m", searched=SEARCHED)

# ---- made of the incomplete beta function


def bdtr_slopes(k: Any, n: Any, p: Any) -> tuple[Any, Any, Any]:
    """1 - I_p(k + 1, n - k), for real k and n."""
    along_a, along_b, density = betainc_slopes(k + 1, n - k, p)
    return along_b - along_a, -along_b, -density


def bdtr_steps(k: Any, n: Any, p: Any) -> tuple[Any, Any, Any]:
    k, n = _floor(k), whole(n, p)
    return None, WHOLE, -beta_density(k + 1, n - k, p)


def nbdtr_slopes(k: Any, n: Any, p: Any) -> tuple[Any, Any, Any]:
    """I_p(n, k + 1), for real k and n."""
    along_n, along_k, density = betainc_slopes(n, k + 1, p)
    return along_k, along_n, density


def nbdtr_steps(k: Any, n: Any, p: Any) -> tuple[Any, Any, Any]:
    return WHOLE, WHOLE, beta_density(whole(n, p), whole(k, p) + 1, p)


def _of_odds(a: Any, b: Any, d: Any) -> tuple[Any, Any, Any]:
    """The slopes of I_u(a, b), where u / (1 - u) = a / b exp(d), in a, b and d. For a or b near 0,
    where the density has a zero, by the slopes of I_u(a, b) at fixed u or at fixed 1 - u, whichever
    is smaller."""
    rise, one = d + _named("log")(a / b), a.constant(1)
    few = logical_and(logical_or(a < 1e-2, b < 1e-2), logical_and(rise > -690, rise < 690))
    many = where(few, one, a), where(few, one, b), d
    density = OddsDensity(())(a, b, d)
    small = rise < 0
    odds = exp(where(small, rise, -rise))
    half = a.constant(0.5)
    p, q = where(few, where(small, a, b), half), where(few, where(small, b, a), half)
    share = odds / (1 + odds)
    along_p, along_q = (
        ParameterSlope("betainc", orders)(p, q, where(few, share, half))
        for orders in ((1, 0), (0, 1))
    )
    found = []
    for orders, one_way, other, moved in (
        ((1, 0), along_p, along_q, density / a),
        ((0, 1), along_q, along_p, -(density / b)),
    ):
        at_share = where(small, one_way, -other) + moved
        found.append(where(few, at_share, OddsSlope(orders)(*many)))
    return found[0], found[1], density


def fdtr_slopes(n: Any, d: Any, x: Any) -> tuple[Any, Any, Any]:
    """I_u(n / 2, d / 2), where u = n x / (d + n x)."""
    along_n, along_d, rate = _of_odds(n * 0.5, d * 0.5, _named("log")(x))
    return along_n * 0.5, along_d * 0.5, rate / x


def fdtr_rate(n: Any, d: Any, x: Any) -> Any:
    return OddsDensity(())(n * 0.5, d * 0.5, _named("log")(x))


def stdtr_slopes(v: Any, t: Any) -> tuple[Any, Any]:
    """1/2 + sign(t)/2 I_y(1/2, v/2), where y = t^2 / (v + t^2). Where t^2 underflows, the slope in
    v is t times that of the density at 0."""
    tiny = logical_and(t < 1e-100, t > -1e-100)
    seen, half, b = where(tiny, t.constant(1e-100), t), t.constant(0.5), v * 0.5
    d = _named("log")(sign(seen) * seen) * 2
    _, along_b, rate = _of_odds(half, b, d)
    along = OddsCumulant((0, 1, 0))(half, b, d) * 0.5
    inner = logical_and(t < 1, t > -1)
    near = where(inner, t, t.constant(0))
    square = near * near
    level = exp(-(betaln(half, b) + _named("log")(v) * 0.5 + (b + 0.5) * log1p(square / v)))
    level = stated(level, (v, level * along), (near, -(level * (v + 1) * near / (v + square))))
    density = where(inner, level, sign(seen) * rate / seen)
    return where(tiny, t * (level * along), sign(seen) * along_b * 0.25), density


def _inverse_beta(name: str, other: str) -> SciPys:
    """The x of p = I_x(a, b), or of p = 1 - I_x(a, b). Near 1, where x has too few digits, the
    slopes are computed from 1 - x, the inverse of the other function."""

    sign = 1.0 if name == "betaincinv" else -1.0

    def partials(out: Any, a: Any, b: Any, p: Any) -> Any:
        a, b = as_real(a, p), as_real(b, p)
        turned, one = out > 0.5, p.constant(1)
        x = where(turned, _named(other)(b, a, p), out)
        left, right = where(turned, b, a), where(turned, a, b)
        there = logical_and(left >= odds.MIN_SHAPE, logical_and(right >= odds.MIN_SHAPE, x > 0))
        side = where(turned, -one, one) * sign
        p_many, q_many = (where(there, v, one) for v in (left, right))
        x_many, y_many, at = (where(there, v, one * 0.5) for v in (x, 1 - x, p))
        many = odds.point_slopes(p_many, q_many, x_many, y_many, at, side)
        left, right = (where(there, one, v) for v in (left, right))
        inside = where(logical_or(there, x.equals(0)), one * 0.5, x)
        along_left, along_right, _ = betainc_slopes(left, right, inside)
        at_p, others = _inverse_slopes(
            where(there, inside, x),
            lambda x: beta_density(left, right, x),
            lambda x: BetaDensity(-1, 0)(left, right, x),
        )
        few = -others * along_left, -others * along_right, at_p * side
        found = [where(there, u, v) for u, v in zip(many, few, strict=True)]
        along_left, along_right, rate = (where(turned, -v, v) for v in found)
        return where(turned, along_right, along_left), where(turned, along_left, along_right), rate

    return SciPys(name, partials)


betaincinv = _inverse_beta("betaincinv", "betainccinv")
betainccinv = _inverse_beta("betainccinv", "betaincinv")
btdtria = _inverse("btdtria", betainc_slopes, "a b x", "p b x", searched=SEARCHED)
btdtrib = _inverse("btdtrib", betainc_slopes, "a b x", "a p x", searched=SEARCHED)
bdtr, bdtrc = _function("bdtr", bdtr_steps), _function("bdtrc", bdtr_steps, complement=True)
bdtri = _inverse("bdtri", bdtr_steps, "k n x", "k n p")
bdtrik = _inverse("bdtrik", bdtr_slopes, "k n x", "p n x", searched=SEARCHED)
bdtrin = _inverse("bdtrin", bdtr_slopes, "k n x", "k p x", searched=SEARCHED)
nbdtr, nbdtrc = _function("nbdtr", nbdtr_steps), _function("nbdtrc", nbdtr_steps, complement=True)
nbdtri = _inverse("nbdtri", nbdtr_steps, "k n x", "k n p")
nbdtrik = _inverse("nbdtrik", nbdtr_slopes, "k n x", "p n x", searched=SEARCHED)
nbdtrin = _inverse("nbdtrin", nbdtr_slopes, "k n x", "k p x", searched=SEARCHED)
fdtr, fdtrc = _function("fdtr", fdtr_slopes), _function("fdtrc", fdtr_slopes, complement=True)
fdtri = _inverse("fdtri", fdtr_slopes, "n d x", "n d p", rate=fdtr_rate)
fdtridfd = _inverse("fdtridfd", fdtr_slopes, "n d x", "n p x", searched=SEARCHED)
stdtr = _function("stdtr", stdtr_slopes)
stdtridf = _inverse("stdtridf", stdtr_slopes, "v t", "p t", searched=1e10)
stdtrit = _inverse("stdtrit", stdtr_slopes, "v t", "v p")

# ---- the noncentral chi-squared distribution: along x and along the noncentrality


def _chi_density(x: Any, v: Any, c: Any) -> Any:
    """The density of the noncentral chi-squared distribution. With z = sqrt(c x) and f = 0F1 it is

        exp(-(x + c)/2) (x/c)^(v/4 - 1/2) I_(v/2-1)(z) / 2
            = exp(-x/2) (x/2)^(v/2-1) / Gamma(v/2) exp(-c/2) f(v/2, z^2/4) / 2.

    The second form, with the density of the central distribution as a factor, is used for small z.
    For large z I_v(z) is its series (DLMF 10.40.1).
    """
    sqrt, one = _named("sqrt"), x.constant(1)
    a = v * 0.5
    small = sqrt(x) * sqrt(c) < 1
    u, w = where(small, x, one), where(small, c, one * 0.5)
    near = gamma_density(a, u * 0.5) * exp(w * -0.5) * _named("hyp0f1")(a, u * w * 0.25)
    u, w = where(small, one, x), where(small, one, c)
    z, gap, order = sqrt(u) * sqrt(w), (u - w) / (sqrt(u) + sqrt(w)), a - 1
    scale = exp(gap * gap * -0.5 + order * 0.5 * (_named("log")(u) - _named("log")(w)))
    large, square, rest = z > 1e7, order * order * 4, 1 / (z * 8)
    series = 1 - (square - 1) * rest * (1 - (square - 9) * rest * 0.5)
    bessel = _named("ive")(order, where(large, one, z))
    far = scale * where(large, series / sqrt(z * (2 * math.pi)), bessel)
    return where(small, near, far) * 0.5


def chndtr_slopes(x: Any, v: Any, c: Any) -> tuple[Any, Any, Any]:
    """The slopes of the noncentral chi-squared distribution. Along c it is minus the density for
    v + 2."""
    freedom = Missing("the degrees of freedom")
    return _chi_density(x, v, c), freedom, -_chi_density(x, v + 2, c)


chndtr = _function("chndtr", chndtr_slopes)
chndtrix = _inverse("chndtrix", chndtr_slopes, "x v c", "p v c", searched=SEARCHED, least=0.0)
chndtrinc = _inverse("chndtrinc", chndtr_slopes, "x v c", "x v p", searched=SEARCHED)

# ---- the normal distribution, by its mean or its deviation


def _slope_of_quantile(z: Any) -> Any:
    return exp(z * z * 0.5) * SQRT_2PI


def _mean_partials(out: Any, p: Any, deviation: Any, x: Any) -> tuple[Any, Any, int]:
    """x - deviation ndtri(p)."""
    z = ndtri(p)
    return -(deviation * _slope_of_quantile(z)), -z, 1


def _deviation_partials(out: Any, mean: Any, p: Any, x: Any) -> tuple[Any, Any, Any]:
    """(x - mean) / ndtri(p)."""
    z = ndtri(p)
    return -(1 / z), -(out / z * _slope_of_quantile(z)), 1 / z


nrdtrimn, nrdtrisd = SciPys("nrdtrimn", _mean_partials), SciPys("nrdtrisd", _deviation_partials)
ndtri_exp = SciPys("ndtri_exp", lambda out, y: (1 / _log_ndtr_partials(y, out)[0],))

# ---- Tukey's lambda distribution: the quantile is (p^l - (1 - p)^l) / l


def _tukey_partials(out: Any, x: Any, shape: Any) -> tuple[Any, Any]:
    """The slopes by the implicit function theorem; 0 outside of the support."""
    boxcox, zero = _named("boxcox"), out.constant(0)
    outside = logical_or(out <= 0, out >= 1)
    out, shape = where(outside, out.constant(0.5), out), where(outside, out.constant(1), shape)
    upper, lower = (boxcox.partials(None, q, shape) for q in (out, 1 - out))
    steep = upper[0] + lower[0]
    slopes = 1 / steep, -((upper[1] - lower[1]) / steep)
    return where(outside, zero, slopes[0]), where(outside, zero, slopes[1])


tklmbda = SciPys("tklmbda", _tukey_partials)

# ---- Kolmogorov's and Smirnov's


def _kolmogorov_slope(x: Any) -> Any:
    """-8 x (sum of (-1)^(k-1) k^2 exp(-2 k^2 x^2)). For small x by the theta function's other
    series (DLMF 20.7.32)."""
    small = x < 1
    far, close = where(small, x.constant(1), x), where(small, x, x.constant(1))
    square = far * far
    terms = [exp(square * (-2.0 * k * k)) * (-8.0 * (-1) ** (k - 1) * k * k) for k in range(1, 7)]
    above = far * sum(terms[1:], terms[0])
    square = 1 / (close * close)
    rates = [(2 * k - 1) ** 2 * math.pi**2 / 8 for k in range(1, 5)]
    terms = [exp(square * -c) * (square * square * (2 * c) - square) for c in rates]
    below = sum(terms[1:], terms[0]) * -math.sqrt(2 * math.pi)
    return where(small, where(x > 0.02, below, x.constant(0)), above)


kolmogorov = SciPys("kolmogorov", lambda out, x: (_kolmogorov_slope(x),))
kolmogi = SciPys("kolmogi", lambda out, p: (1 / _kolmogorov_slope(out),))
COUNT = Missing("n")
smirnovp = SciPys(
    "smirnovp",
    lambda out, n, d: (COUNT, Missing("d, to second order")),
    "_ufuncs._smirnovp({0}, {1})",
)
smirnov = SciPys("smirnov", lambda out, n, d: (COUNT, smirnovp(n, d)))
smirnovi = SciPys("smirnovi", lambda out, n, p: (COUNT, 1 / smirnovp(n, out)))
