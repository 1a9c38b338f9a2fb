"""Functions that are integrals: exponential, sine, cosine, Gaussian and elliptic integrals."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tapegrad.ir.tape import DECLARED
from tapegrad.primitives.base import Elementwise, Missing, parametric
from tapegrad.primitives.complexes import cartesian, imag, real
from tapegrad.primitives.elementwise import (
    FUNCTION,
    cos,
    cosh,
    exp,
    log,
    log1p,
    logical_and,
    logical_or,
    rint,
    sin,
    sinh,
    sqrt,
    stop_gradient,
    where,
)
from tapegrad.primitives.kinds import ByPartials
from tapegrad.primitives.kinked import hypot, maximum
from tapegrad.primitives.scipys import SciPys, near, ratio, tail, whole
from tapegrad.primitives.special import TWO_OVER_SQRT_PI, _scipy, erf
from tapegrad.primitives.stated import stated


def _named(name: str) -> Any:
    return DECLARED[name]


# ---- exponential integrals, and those of sines (DLMF 6.2, 8.19)

expi = SciPys("expi", lambda out, x: (exp(x) / x,), of_complex=True)
exp1 = Elementwise(
    _scipy("exp1"),
    lambda out, x: (-(exp(-x) / x),),
    cost=2 * FUNCTION,
    of_complex=True,
    numpys=True,
)


def _expn_partials(out: Any, n: Any, x: Any) -> tuple[Any, Any]:
    """E_n' = -E_(n-1); E_0 is exp(-x) / x."""
    n = whole(n, x)
    lower = expn(where(n > 0, n - 1, n), x)
    return Missing("n"), -where(n > 0, lower, out * (1 + 1 / x))


expn: SciPys = SciPys("expn", _expn_partials)


def _over_x(function: Any, x: Any, sign: int) -> tuple[Any]:
    """sin(x) / x or sinh(x) / x. Around 0 by its series, whose slope keeps its digits."""
    if x.dtype.kind == "c":
        return (ratio(function(x), x, 1),)
    terms = [sign**k / math.factorial(2 * k + 1) for k in range(10)]
    series = [c for term in terms for c in (term, 0.0)]
    return (near(x, 1.0, series, lambda x: function(x) / x),)


sici_0 = SciPys("sici_0", lambda out, x: _over_x(sin, x, -1), "sici({0})[0]", of_complex=True)
sici_1 = SciPys("sici_1", lambda out, x: (cos(x) / x,), "sici({0})[1]", of_complex=True)
shichi_0 = SciPys("shichi_0", lambda out, x: _over_x(sinh, x, 1), "shichi({0})[0]", of_complex=True)
shichi_1 = SciPys("shichi_1", lambda out, x: (cosh(x) / x,), "shichi({0})[1]", of_complex=True)
fresnel_0 = SciPys(
    "fresnel_0", lambda out, x: (sin(x * x * (math.pi / 2)),), "fresnel({0})[0]", of_complex=True
)
fresnel_1 = SciPys(
    "fresnel_1", lambda out, x: (cos(x * x * (math.pi / 2)),), "fresnel({0})[1]", of_complex=True
)

_LOG1P = [(-1.0) ** k / (k + 1) for k in range(24)]


def log1p_over(u: Any) -> Any:
    """log(1 + u) / u."""
    return near(u, 0.2, _LOG1P, lambda u: log1p(u) / u)


def _spence_partials(out: Any, x: Any) -> tuple[Any]:
    """log(x) / (1 - x). Near 1 by log1p."""
    small = x < 0.5
    near_0, near_1 = where(small, x, x.constant(0.25)), where(small, x.constant(1), x)
    return (where(small, log(near_0) / (1 - near_0), -log1p_over(near_1 - 1)),)


spence = SciPys("spence", _spence_partials)

# ---- of exp(-t^2)

# Far from 0, 1 - 2 x F(x) cancels: it is -u - 3 u^2 - 15 u^3 - ... with u = 1 / (2 x^2) (DLMF
# 7.12.1).
_DAWSON = [0.0, *itertools.accumulate(range(3, 25, 2), lambda x, k: x * k, initial=-1.0)]


def _dawson(out: Any, x: Any) -> tuple[Any]:
    slope = 1 - x * out * 2
    if x.dtype.kind == "c":
        return (slope,)
    return (tail(x, 12.0, lambda x: 1 / x * (0.5 / x), _DAWSON, 1, slope),)


dawsn = SciPys("dawsn", _dawson, of_complex=True)
erfi = SciPys("erfi", lambda out, x: (exp(x * x) * TWO_OVER_SQRT_PI,), of_complex=True)
wofz = SciPys(
    "wofz",
    lambda out, z: (z.constant(1j * TWO_OVER_SQRT_PI) - z * out * 2,),
    of_complex=True,
)


# w(z) sqrt(pi) / i is 1 / z + 1 / (2 z^3) + 3 / (4 z^5) + ... (DLMF 7.12.1)
_FADDEEVA = [math.prod(range(1, 2 * k, 2)) / 2.0**k for k in range(26)]


def _faddeeva_slopes(x: Any, y: Any) -> list[Any]:
    """The first three derivatives of w at z = x + i y. Far from 0 they are those of its series,
    since w' = 2 i / sqrt(pi) - 2 z w cancels; near the real line those of exp(-z^2) are added."""
    z = cartesian(x, y)
    far = logical_or(x * x > 64, y * y > 64)
    close, away = where(far, z.constant(0.5), z), where(far, z, z.constant(10))
    value = wofz(close)
    near = [z.constant(1j * TWO_OVER_SQRT_PI) - close * value * 2]
    near.append((value + close * near[0]) * -2)
    near.append((near[0] * 2 + close * near[1]) * -2)
    inverse = 1 / away
    u, sums = inverse * inverse, [z.constant(0)] * 3
    for k in range(len(_FADDEEVA) - 1, -1, -1):
        factors = itertools.accumulate((-2 * k - j for j in (1, 2, 3)), lambda a, b: a * b)
        terms = [_FADDEEVA[k] * factor for factor in factors]
        sums = [total * u + term for total, term in zip(sums, terms, strict=True)]
    unit = z.constant(1j / math.sqrt(math.pi))
    beside = logical_and(y < 1e-9, logical_and(far, x * x < 800))
    t = where(beside, x, x.constant(0))
    bell, none, square = where(beside, exp(-(t * t)), x.constant(0)), x.constant(0), t * t
    turns = t * bell * -2, (square * 4 - 2) * bell, t * bell * (12 - square * 8)
    scales = unit * u, unit * u * inverse, unit * u * u
    series = [scale * total for scale, total in zip(scales, sums, strict=True)]
    far_out = [part + cartesian(turn, none) for part, turn in zip(series, turns, strict=True)]
    return [where(far, a, b) for a, b in zip(far_out, near, strict=True)]


def _voigt_partials(out: Any, x: Any, sigma: Any, gamma: Any) -> tuple[Any, Any, Any]:
    """Re(w(z)) / (sigma sqrt(2 pi)), where z = (x + i gamma) / (sigma sqrt(2)). The slope along
    sigma is sigma times the second derivative along x, as in the heat equation. For small sigma the
    slopes along x and gamma hardly depend on it: this dependence is stated, since their formulas
    would lose it. A sigma too small to change any digit, or 0, isn't divided by."""
    least = hypot(x, gamma) * 1e-9
    wide = where(sigma < least, least, sigma)
    width = wide * math.sqrt(2)
    slope, bend, third = _faddeeva_slopes(x / width, gamma / width)
    scale = 1 / (width * width * math.sqrt(math.pi))
    along_x, along_gamma = real(slope) * scale, -(imag(slope) * scale)
    xx, x_gamma = real(bend) * scale / width, -(imag(bend) * scale / width)
    spread = scale / (width * width) * sigma
    along_x = stated(along_x, (x, xx), (sigma, real(third) * spread), (gamma, x_gamma))
    steep = -(imag(third) * spread)
    along_gamma = stated(along_gamma, (x, x_gamma), (sigma, steep), (gamma, -xx))
    return along_x, real(bend) * scale * math.sqrt(0.5) * (sigma / wide), along_gamma


voigt_profile = SciPys("voigt_profile", _voigt_partials, cost=200)


def _owens_partials(out: Any, h: Any, a: Any) -> tuple[Any, Any]:
    along_h = exp(h * h * -0.5) * erf(a * h * math.sqrt(0.5)) * (-0.5 / math.sqrt(2 * math.pi))
    spread = 1 + a * a
    return along_h, exp(h * h * spread * -0.5) / (spread * (2 * math.pi))


owens_t = SciPys("owens_t", _owens_partials)

# ---- complete elliptic integrals: hypergeometric functions of m (DLMF 19.5.1, 19.5.2)


def _hypergeometric(a: float, b: float, c: float, m: Any) -> Any:
    return _named("hyp2f1")(*[m.constant(v) for v in (a, b, c)], m)


def _ellipk_slope(m: Any) -> Any:
    """(E / (1 - m) - K) / (2 m) far below 0, where the hypergeometric function loses digits."""
    far = m < -2
    near, there = where(far, m.constant(0), m), where(far, m, m.constant(-2))
    slope = (ellipe(there) / (1 - there) - ellipk(there)) / (there * 2)
    return where(far, slope, _hypergeometric(1.5, 1.5, 2, near) * (math.pi / 8))


def _ellipe_slope(m: Any) -> Any:
    """(E - K) / (2 m), except near 0."""
    far = logical_or(m < -2, m > 0.5)
    near, there = where(far, m.constant(0), m), where(far, m, m.constant(-2))
    slope = (ellipe(there) - ellipk(there)) / (there * 2)
    return where(far, slope, _hypergeometric(0.5, 1.5, 2, near) * (-math.pi / 8))


def _ellipkm1_partials(out: Any, p: Any) -> tuple[Any]:
    """-(E - p K) / (2 p (1 - p)), which is exact for small p."""
    small = p < 0.5
    near_0, near_1 = where(small, p, p.constant(0.25)), where(small, p.constant(1), p)
    slope = (ellipe_of_rest(near_0) - near_0 * ellipkm1(near_0)) / (near_0 * (1 - near_0) * 2)
    return (-where(small, slope, _ellipk_slope(1 - near_1)),)


ellipk: SciPys = SciPys("ellipk", lambda out, m: (_ellipk_slope(m),))
ellipe: SciPys = SciPys("ellipe", lambda out, m: (_ellipe_slope(m),))
ellipkm1: SciPys = SciPys("ellipkm1", _ellipkm1_partials)


def _rest_partials(out: Any, p: Any) -> tuple[Any]:
    """(K - E) / (2 (1 - p)), for small p."""
    small = p < 0.5
    near_0, near_1 = where(small, p, p.constant(0.25)), where(small, p.constant(1), p)
    slope = (ellipkm1(near_0) - where(small, out, p.constant(1))) / ((1 - near_0) * 2)
    return (where(small, slope, -_ellipe_slope(1 - near_1)),)


ellipe_of_rest = SciPys("ellipe_of_rest", _rest_partials, "ellipe(1 - {0})")

# ---- incomplete ones (DLMF 19.4.6, 19.4.7)


def _moment(steep: bool, phi: Any, m: Any, sine: Any, cosine: Any, delta: Any) -> Any:
    """The integral of sin(t)^2 / Delta from 0 to phi, or if `steep` of sin(t)^2 / Delta^3, where
    Delta^2 = 1 - m sin(t)^2. For |phi| < pi/2 by Carlson's integrals (DLMF 19.25.10)

        s^3/3 R_D(c^2, Delta^2, 1),    s^3/3 R_D(c^2, 1, Delta^2),

    in which nothing cancels. Each further pi adds twice the integral up to pi/2.
    """
    turns, one, zero = rint(phi * (1 / math.pi)), m.constant(1), m.constant(0)
    half = turns * 0.5
    s = where(half.equals(rint(half)), sine, -sine)
    c, d = cosine * cosine, delta * delta
    part = s * s * s * (elliprd(c, one, d) if steep else elliprd(c, d, one)) * (1 / 3)
    short = turns.equals(0)
    rest = where(short, one, 1 - m)
    complete = _rest_partials(ellipe_of_rest(rest), rest)
    if steep:
        complete = tuple(-x for x in _ellipkm1_partials(None, rest))
    return part + where(short, zero, complete[0] * turns * 4)


def _moment_of_angle(steep: bool, phi: Any, m: Any) -> Any:
    return _moment(steep, phi, m, sin(phi), cos(phi), _delta(phi, m))


def _delta(phi: Any, m: Any) -> Any:
    s = sin(phi)
    return sqrt(1 - m * s * s)


ellipkinc: SciPys = SciPys(
    "ellipkinc",
    lambda out, phi, m: (1 / _delta(phi, m), _moment_of_angle(True, phi, m) * 0.5),
)
ellipeinc: SciPys = SciPys(
    "ellipeinc",
    lambda out, phi, m: (_delta(phi, m), _moment_of_angle(False, phi, m) * -0.5),
)

# ---- Jacobi's elliptic functions (DLMF 22.13): of phi, whose F(phi, m) is u


def _jacobi_partials(u: Any, m: Any) -> tuple[Any, ...]:
    sn, cn, dn, phi = (part(u, m) for part in (ellipj_0, ellipj_1, ellipj_2, ellipj_3))
    along_m = dn * _moment(True, phi, m, sn, cn, dn) * -0.5
    return sn, cn, dn, along_m


def _sn_partials(out: Any, u: Any, m: Any) -> tuple[Any, Any]:
    _, cn, dn, along_m = _jacobi_partials(u, m)
    return cn * dn, cn * along_m


def _cn_partials(out: Any, u: Any, m: Any) -> tuple[Any, Any]:
    sn, _, dn, along_m = _jacobi_partials(u, m)
    return -(sn * dn), -(sn * along_m)


def _dn_partials(out: Any, u: Any, m: Any) -> tuple[Any, Any]:
    sn, cn, _, along_m = _jacobi_partials(u, m)
    return -(m * sn * cn), -(sn * (sn + m * cn * along_m * 2) / (out * 2))


def _am_partials(out: Any, u: Any, m: Any) -> tuple[Any, Any]:
    _, _, dn, along_m = _jacobi_partials(u, m)
    return dn, along_m


ellipj_0: SciPys = SciPys("ellipj_0", _sn_partials, "ellipj({0}, {1})[0]")
ellipj_1: SciPys = SciPys("ellipj_1", _cn_partials, "ellipj({0}, {1})[1]")
ellipj_2: SciPys = SciPys("ellipj_2", _dn_partials, "ellipj({0}, {1})[2]")
ellipj_3: SciPys = SciPys("ellipj_3", _am_partials, "ellipj({0}, {1})[3]")

# ---- Carlson's symmetric integrals (DLMF 19.16, 19.18)


@parametric
class Carlson(ByPartials):
    """J_b(x, y, z): the integral over t > 0 of

        t^power (t + x)^(-b_0/2) (t + y)^(-b_1/2) (t + z)^(-b_2/2).

    Its slope along x is -b_0/2 times that with b_0 + 2: nothing cancels, whichever arguments are
    equal. R_F is J_111 / 2, R_D is 3/2 J_113, and the slope of R_G along x is J_311 / 8 of power 1.
    """

    power: int
    twice: tuple[int, ...]

    name = "carlson"
    of_complex = True

    def evaluate(self, *xs: Any) -> Any:
        import scipy.special

        from tapegrad.primitives import incomplete

        wide = np.result_type(*xs, float)
        shaped = np.broadcast_arrays(*[np.asarray(x, wide) for x in xs])
        x, y, z = (v.ravel() for v in shaped)
        found, rd = np.empty(x.shape, wide), scipy.special.elliprd
        apart = (np.abs(x - z) > 0.2 * np.maximum(np.abs(x), np.abs(z))) & (
            (self.power, *self.twice) == (0, 3, 1, 3)
        )
        with np.errstate(all="ignore"):
            # 1 / (t + z) - 1 / (t + x) = (x - z) / ((t + x) (t + z))
            u, v, w = x[apart], y[apart], z[apart]
            found[apart] = (rd(u, v, w) - rd(v, w, u)) / (u - w) / 1.5
            rest = np.flatnonzero(~apart)
            for k in range(0, rest.size, 256):
                part = rest[k : k + 256]
                zs = np.stack([x[part], y[part], z[part]])
                found[part] = incomplete.carlson(self.power, self.twice, zs)
        return found.reshape(shaped[0].shape).astype(np.asarray(xs[-1]).dtype)[()]

    def partials(self, out: Any, *xs: Any) -> list[Any]:
        return [
            Carlson(self.power, (*self.twice[:k], b + 2, *self.twice[k + 1 :]))(*xs) * (-0.5 * b)
            for k, b in enumerate(self.twice)
        ]


def _elliprd_partials(out: Any, x: Any, y: Any, z: Any) -> tuple[Any, Any, Any]:
    steep = Carlson(0, (3, 1, 3))
    return steep(x, y, z) * -0.75, steep(y, x, z) * -0.75, Carlson(0, (1, 1, 5))(x, y, z) * -2.25


def _elliprf_partials(out: Any, x: Any, y: Any, z: Any) -> tuple[Any, Any, Any]:
    sixth = -1 / 6
    return elliprd(y, z, x) * sixth, elliprd(x, z, y) * sixth, elliprd(x, y, z) * sixth


def _elliprg_partials(out: Any, x: Any, y: Any, z: Any) -> Any:
    """(R_F(x, y, z) - x R_D(y, z, x) / 3) / 4. R_D is computed in units of s, since it would
    underflow or overflow in others. The second derivatives are stated: differences lose their
    digits."""
    f, s = elliprf(x, y, z), x.constant(1)
    if x.dtype.kind != "c":
        large = stop_gradient(maximum(maximum(x, y), z))
        most = float(np.finfo(x.dtype).max) ** (1 / 3)
        tiny = logical_and(large > 0, large < 1 / most)
        s = where(large > most, large / most, where(tiny, large, s))
    root = sqrt(s)

    def share(v: Any, u: Any, w: Any) -> Any:
        return v / s * elliprd(u / s, w / s, v / s) / root * (1 / 3)

    def slope(u: Any, v: Any, w: Any) -> Any:
        found = (f - share(u, v, w)) * 0.25
        bends = Carlson(1, (3, 1, 1)).partials(None, u, v, w)
        return stated(found, *[(t, bend * 0.125) for t, bend in zip((u, v, w), bends, strict=True)])

    return slope(x, y, z), slope(y, x, z), slope(z, x, y)


elliprd: SciPys = SciPys("elliprd", _elliprd_partials, of_complex=True)
elliprf = SciPys("elliprf", _elliprf_partials, of_complex=True)
elliprg = SciPys("elliprg", _elliprg_partials, of_complex=True)


def _elliprc_partials(out: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The slopes of R_F(x, y, y). For negative y, where it is a principal value, by the equations
    of its closed forms (DLMF 19.2.18 on): 2 (y - x) dR/dx = R - x^(-1/2),
    2 (y - x) dR/dy = x^(1/2) / y - R."""
    if x.dtype.kind == "c":
        along_x = elliprd(y, y, x) * (-1 / 6)
        return along_x, -((out * 0.5 + x * along_x) / y)
    left, one = y < 0, x.constant(1)
    u, v = where(left, one, x), where(left, one, y)
    x, y, out = where(left, x, one), where(left, y, -one), where(left, out, one)
    root, gap = sqrt(x), (y - x) * 2
    return (
        where(left, (out - 1 / root) / gap, elliprd(v, v, u) * (-1 / 6)),
        where(left, (root / y - out) / gap, elliprd(u, v, v) * (-1 / 3)),
    )


elliprc = SciPys("elliprc", _elliprc_partials, of_complex=True)


def _agm_partials(out: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """The slopes of pi (a + b) / (4 K), K at 1 - q, where q = 4 a b / (a + b)^2 (DLMF 19.8.6)."""
    both = a + b
    left, right = a / both, b / both
    q = left * right * 4
    k = ellipkm1(q)
    steep = _ellipkm1_partials(k, q)[0] / k * ((a - b) / both) * 4
    share = out / both
    return share * (1 + steep * right), share * (1 - steep * left)


agm = SciPys("agm", _agm_partials)
