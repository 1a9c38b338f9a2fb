"""Bessel functions and their relatives: of Airy, Kelvin, Struve and Mathieu, and parabolic cylinder
functions.

Slopes are sums of the functions of neighbouring orders, which don't divide by x (DLMF 10.6.1,
10.29.1), or follow from the differential equation. SciPy has no derivative with respect to the
order, so that is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tapegrad.ir.tape import DECLARED
from tapegrad.primitives.base import Elementwise, Missing
from tapegrad.primitives.elementwise import (
    FUNCTION,
    cos,
    cosh,
    logical_and,
    logical_or,
    not_equal,
    power,
    sign,
    sqrt,
    where,
)
from tapegrad.primitives.kinked import hypot
from tapegrad.primitives.scipys import InDouble, SciPys, as_real, near, ratio, tail, whole
from tapegrad.primitives.slopes import airy_log_slopes, bessel_log_slopes, debye_polynomials
from tapegrad.primitives.special import _scipy

ORDER = Missing("the order")
PARAMETER = Missing("its parameter")


def _named(name: str) -> Any:
    return DECLARED[name]


# ---- cylinder functions


def _cylinder(
    name: str, below: int, above: int, scaled: Callable[[Any, Any], Any] | None = None
) -> SciPys:
    """C_v' = (below C_(v-1) + above C_(v+1)) / 2 = v / x C_v + above C_(v+1), plus the slope of the
    scale."""

    def partials(out: Any, v: Any, x: Any) -> Any:
        if x.dtype.kind != "c":  # orders are real
            v = whole(v, x) if name in ("yn", "kn") else as_real(v, x)
        of = _named({"yn": "yv", "kn": "kv"}.get(name, name))
        if x.dtype.kind != "c":
            of = {"iv": _near_0, "ive": _at_0}.get(name, of)
        upper = of(v + 1, x) * above
        slope = (of(v - 1, x) * below + upper) * 0.5
        if x.dtype.kind != "c":  # where v - 1 loses the digits of v
            small = logical_and(logical_and(v < 0.5, v > -0.5), not_equal(x, x.constant(0)))
            slope = where(small, v / where(small, x, x.constant(1)) * out + upper, slope)
        if scaled is None:
            return ORDER, slope
        slope = slope + scaled(out, x)
        turn = {"ive": -1, "kve": 1}[name]
        return ORDER, slope if x.dtype.kind == "c" else _far_out(turn, out, v, x, slope)

    # A function that SciPy scales by the real or the imaginary part has no complex derivative.
    return SciPys(name, partials, of_complex=name in ("jv", "yv", "iv", "kv", "kve"))


def _near_0(v: Any, x: Any) -> Any:
    """I_v(x). For tiny x, where SciPy may return 0, it is (x / 2)^v / Gamma(v + 1)."""
    small = logical_and(logical_and(x > 0, x < 1e-20), v > 0)
    low, high = where(small, x, x.constant(1)), where(small, x.constant(1), x)
    leading = power(low * 0.5, v) * _named("rgamma")(v + 1)
    return where(small, leading, _named("iv")(v, high))


def _at_0(v: Any, x: Any) -> Any:
    """exp(-|x|) I_v(x). At 0 it is I_v(0): SciPy's ive is NaN where that is infinite."""
    zero, one = x.equals(0), x.constant(1)
    return where(zero, _named("iv")(v, where(zero, x, one)), _named("ive")(v, where(zero, one, x)))


# The number of powers of 1 / sqrt(v^2 + x^2) in the expansions of exp(x) K_v(x) and exp(-x) I_v(x).
# Their coefficients are polynomials in v^2 / (v^2 + x^2) (DLMF 10.41.9).
_DEBYE = 13


def _far_out(turn: int, out: Any, v: Any, x: Any, slope: Any) -> Any:
    """The slope of exp(x) K_v(x), or with `turn=-1` of exp(-x) I_v(x). Far from 0, where the sum
    cancels, it is the value times the slope of its logarithm, by Debye's expansions (DLMF 10.41.3,
    10.41.4). For v < 0 the other part of I_v(x) is negligible there if x exceeds v^2."""
    far = logical_and(x > 50.0, logical_or(v >= 0, x > v * v))
    x = where(far, x, x.constant(100))
    v = where(far, v, x.constant(0))
    r = 1 / hypot(v, x)
    q = v * r * (v * r)
    whole, moved, power_of_r = x.constant(1), x.constant(0), x.constant(1)
    for k, polynomial in enumerate(debye_polynomials(_DEBYE)[1:], 1):
        power_of_r = power_of_r * r * -float(turn)
        value, rise = x.constant(0), x.constant(0)  # and q times its slope
        for j in range(k, -1, -1):
            value, rise = value * q + polynomial[j], rise * q + polynomial[j] * j
        whole = whole + power_of_r * value
        moved = moved + power_of_r * (value * float(k) + rise * 2)
    logs = v * r * v / (x * (x * r + 1)) * -float(turn) - x * r * r * (moved / whole + 0.5)
    return where(far, out * logs, slope)


jv, jve = _cylinder("jv", 1, -1), _cylinder("jve", 1, -1)
yn, yv, yve = _cylinder("yn", 1, -1), _cylinder("yv", 1, -1), _cylinder("yve", 1, -1)
iv, kn, kv = _cylinder("iv", 1, 1), _cylinder("kn", -1, -1), _cylinder("kv", -1, -1)
ive = _cylinder("ive", 1, 1, lambda out, x: -(sign(x) * out))
kve = _cylinder("kve", -1, -1, lambda out, x: out)


def _at(function: Any, order: int, x: Any) -> Any:
    return function(x.constant(order), x)


j0 = SciPys("j0", lambda out, x: (-j1(x),))
j1: SciPys = SciPys("j1", lambda out, x: ((j0(x) - _at(jv, 2, x)) * 0.5,))
y0 = SciPys("y0", lambda out, x: (-y1(x),))
y1: SciPys = SciPys("y1", lambda out, x: ((y0(x) - _at(yv, 2, x)) * 0.5,))


def _second(name: str, slope: Callable[[Any, Any], Any]) -> Elementwise:
    """K_0 or K_1, which have kernels; K_1' = -K_0 - K_1 / x (DLMF 10.29.2), where nothing
    cancels."""
    return InDouble(
        _scipy(name),
        lambda out, x: (slope(out, x),),
        name=name,
        scalar=f"bessel_{name}({{0}})",
        cost=2 * FUNCTION,
    )


k0 = _second("k0", lambda out, x: -k1(x))
k1: Elementwise = _second("k1", lambda out, x: -(k0(x) + out / x))


def _scaled(name: str, order: int, slope: Callable[[Any, Any], Any]) -> Elementwise:
    """exp(x) K_n(x). Far from 0 its slope is a difference of nearly equal numbers."""

    def far(out: Any, x: Any) -> Any:
        series = bessel_log_slopes(order)
        return tail(x, 50.0, lambda x: 1 / x, series, out, slope(out, x))

    return _second(name, far)


k0e = _scaled("k0e", 0, lambda out, x: out - k1e(x))
k1e: Elementwise = _scaled("k1e", 1, lambda out, x: out - (k0e(x) + out / x))


def _hankel(name: str, turn: complex) -> SciPys:
    """J + i Y or J - i Y, for complex numbers; if scaled, times exp(turn z)."""

    def partials(out: Any, v: Any, z: Any) -> Any:
        of = _named(name)
        slope = (of(v - 1, z) - of(v + 1, z)) * 0.5
        return ORDER, slope + out * turn if turn else slope

    return SciPys(name, partials, of_complex=True)


hankel1, hankel2 = _hankel("hankel1", 0), _hankel("hankel2", 0)
hankel1e, hankel2e = _hankel("hankel1e", -1j), _hankel("hankel2e", 1j)

# ---- spherical ones: (2n + 1) f_n' = n f_(n-1) - (n+1) f_(n+1) (DLMF 10.51.2, 10.51.5)


def _spherical(name: str, below: int, above: int) -> tuple[SciPys, SciPys]:
    """A spherical Bessel function or its derivative, for which the same formula holds."""

    def of_neighbours(of: Callable[[Any, Any], Any], n: Any, x: Any) -> Any:
        m = as_real(n, x)
        lower = of(where(n > 0, n - 1, n), x) * (m * below)
        return (lower + of(n + 1, x) * ((m + 1) * above)) / (m * 2 + 1)

    def value(n: Any, x: Any) -> Any:
        return (_tiny if name == "spherical_in" and x.dtype.kind != "c" else function)(n, x)

    def slope_of(n: Any, x: Any) -> Any:
        return of_neighbours(value, n, x)

    function = SciPys(name, lambda out, n, x: (ORDER, slope_of(n, x)), of_complex=True)
    slope = SciPys(
        f"{name}_d",
        lambda out, n, x: (ORDER, of_neighbours(slope_of, n, x)),
        f"{name}({{0}}, {{1}}, derivative=True)",
        of_complex=True,
    )
    return function, slope


def _tiny(n: Any, x: Any) -> Any:
    """i_n(x). For the smallest x, where SciPy fails, by its series (DLMF 10.53.3), x^n / (2n+1)!!
    (1 + x^2 / (4n+6))."""
    small = logical_and(logical_and(x < 1e-100, x > -1e-100), x.equals(0).equals(False))
    low, high = where(small, x, x.constant(1)), where(small, x.constant(1), x)
    m = as_real(n, x)
    leading = power(low, m) * power(x.constant(2), -m - 1) * math.sqrt(math.pi)
    found = leading * _named("rgamma")(m + 1.5) * (1 + low * low / (4 * m + 6))
    return where(small, found, _named("spherical_in")(n, high))


spherical_jn, spherical_jn_d = _spherical("spherical_jn", 1, -1)
spherical_yn, spherical_yn_d = _spherical("spherical_yn", 1, -1)
spherical_in, spherical_in_d = _spherical("spherical_in", 1, 1)
spherical_kn, spherical_kn_d = _spherical("spherical_kn", -1, -1)

# ---- Kelvin functions: w = ber + i bei has w'' = i w - w' / x (DLMF 10.61)

ber = SciPys("ber", lambda out, x: (berp(x),))
bei = SciPys("bei", lambda out, x: (beip(x),))
ker = SciPys("ker", lambda out, x: (kerp(x),))
kei = SciPys("kei", lambda out, x: (keip(x),))


def _kelvin_series(part: int) -> list[float]:
    """The series of the second derivative of sum of (i x^2 / 4)^k / k!^2, its real or imaginary
    part."""
    series = [0.0] * 30
    for k in range(1, 15):
        if k % 2 == part:
            sign = (-1) ** (k // 2)
            series[2 * k - 2] = sign * 2 * k * (2 * k - 1) / (4.0**k * math.factorial(k) ** 2)
    return series


def _kelvin_slope(part: int, x: Any, formula: Callable[[Any], Any]) -> tuple[Any]:
    """The slope of a Kelvin function. Around 0 by its series, in which nothing cancels."""
    return (near(x, 2.0, _kelvin_series(part), formula),)


berp: SciPys = SciPys("berp", lambda out, x: _kelvin_slope(0, x, lambda x: -bei(x) - berp(x) / x))
beip: SciPys = SciPys("beip", lambda out, x: _kelvin_slope(1, x, lambda x: ber(x) - beip(x) / x))
kerp: SciPys = SciPys("kerp", lambda out, x: (-kei(x) - out / x,))
keip: SciPys = SciPys("keip", lambda out, x: (ker(x) - out / x,))

# ---- Airy functions: w'' = x w; scaled, Ai by exp(2/3 x^(3/2)), Bi by the inverse where x > 0


def _root(x: Any) -> Any:
    return sqrt(where(x > 0, x, x.constant(0)))


airy_0 = SciPys("airy_0", lambda out, x: (airy_1(x),), "airy({0})[0]", of_complex=True)
airy_1: SciPys = SciPys("airy_1", lambda out, x: (x * airy_0(x),), "airy({0})[1]", of_complex=True)
airy_2 = SciPys("airy_2", lambda out, x: (airy_3(x),), "airy({0})[2]", of_complex=True)
airy_3: SciPys = SciPys("airy_3", lambda out, x: (x * airy_2(x),), "airy({0})[3]", of_complex=True)


def _scaled_airy(number: int, turn: int, slope: Callable[[Any, Any], Any]) -> SciPys:
    """A scaled Airy function, or its derivative. Far from 0 its slope is a difference of nearly
    equal numbers, so there it is the value times the slope of its logarithm."""

    def partials(out: Any, x: Any) -> tuple[Any]:
        series = airy_log_slopes(number % 2 == 1, turn)
        right = where(x > 0, x, x.constant(1))
        over_z = lambda x: 1.5 / (x * sqrt(x))  # noqa: E731
        return (tail(right, 20.0, over_z, series, out / right, slope(out, x)),)

    return SciPys(f"airye_{number}", partials, f"airye({{0}})[{number}]")


airye_0 = _scaled_airy(0, -1, lambda out, x: airye_1(x) + sqrt(x) * out)
airye_1: SciPys = _scaled_airy(1, -1, lambda out, x: x * airye_0(x) + sqrt(x) * out)
airye_2 = _scaled_airy(2, 1, lambda out, x: airye_3(x) - _root(x) * out)
airye_3: SciPys = _scaled_airy(3, 1, lambda out, x: x * airye_2(x) - _root(x) * out)

# ---- integrals


def _itairy_partials(out: Any, x: Any) -> tuple[Any]:
    """Ai(x), which is 0 for large x, where SciPy returns NaN: it underflows long before."""
    far = x > 1e5
    return (where(far, x.constant(0), airy_0(where(far, x.constant(0), x))),)


itairy_0 = SciPys("itairy_0", _itairy_partials, "itairy({0})[0]")
itairy_1 = SciPys("itairy_1", lambda out, x: (airy_2(x),), "itairy({0})[1]")
itairy_2 = SciPys("itairy_2", lambda out, x: (airy_0(-x),), "itairy({0})[2]")
itairy_3 = SciPys("itairy_3", lambda out, x: (airy_2(-x),), "itairy({0})[3]")
itj0y0_0 = SciPys("itj0y0_0", lambda out, x: (j0(x),), "itj0y0({0})[0]")
itj0y0_1 = SciPys("itj0y0_1", lambda out, x: (y0(x),), "itj0y0({0})[1]")
iti0k0_0 = SciPys("iti0k0_0", lambda out, x: (_named("i0")(x),), "iti0k0({0})[0]")
iti0k0_1 = SciPys("iti0k0_1", lambda out, x: (k0(x),), "iti0k0({0})[1]")


def _less_one(sign: int) -> list[float]:
    """The series of (I_0(x) - 1) / x, or of (1 - J_0(x)) / x."""
    terms = [sign ** (k + 1) / (4.0**k * math.factorial(k) ** 2) for k in range(1, 9)]
    return [c for term in terms for c in (0.0, term)]


it2j0y0_0 = SciPys(
    "it2j0y0_0",
    lambda out, x: (near(x, 1, _less_one(-1), lambda x: (1 - j0(x)) / x),),
    "it2j0y0({0})[0]",
)
it2j0y0_1 = SciPys("it2j0y0_1", lambda out, x: (-(y0(x) / x),), "it2j0y0({0})[1]")
it2i0k0_0 = SciPys(
    "it2i0k0_0",
    lambda out, x: (near(x, 1, _less_one(1), lambda x: (_named("i0")(x) - 1) / x),),
    "it2i0k0({0})[0]",
)
it2i0k0_1 = SciPys("it2i0k0_1", lambda out, x: (-(k0(x) / x),), "it2i0k0({0})[1]")
besselpoly: SciPys = SciPys(
    "besselpoly",
    lambda out, a, p, v: (
        besselpoly(a, p + 1, v - 1) - besselpoly(a, p + 1, v + 1),
        Missing("the power"),
        ORDER,
    ),
)

# ---- Struve functions (DLMF 11.4.27, 11.4.28)


def _struve(name: str, above: int) -> SciPys:
    """H_v' = H_(v-1) - v / x H_v, or by H_(v+1) for small v. Around 0 it is the mean of both, which
    doesn't contain v / x (DLMF 11.4.23, 11.4.25, 11.4.27)."""

    def partials(out: Any, v: Any, x: Any) -> Any:
        of, rgamma = _named(name), _named("rgamma")
        upper, half = v >= 0.5, v.constant(0.5)
        around = logical_and(v > 0, logical_and(x <= 1, x >= -1))
        high = where(logical_or(upper, around), v, half)
        low = where(logical_or(v < 0.5, around), v, half)
        more = power(x * 0.5, low) * rgamma(low + 1.5) * (1 / math.sqrt(math.pi))
        fallen, risen = of(high - 1, x), of(low + 1, x) * above + more
        rate = out * ratio(v, x, 0)
        far = where(upper, fallen - rate, risen + rate)
        return ORDER, where(around, (fallen + risen) * 0.5, far)

    return SciPys(name, partials)


struve, modstruve = _struve("struve", -1), _struve("modstruve", 1)
itstruve0 = SciPys("itstruve0", lambda out, x: (_at(struve, 0, x),))
itmodstruve0 = SciPys("itmodstruve0", lambda out, x: (_at(modstruve, 0, x),))
# H_0(x) / x is 2 / pi times 1 - x^2 / 9 + x^4 / 225 - ... (DLMF 11.2.1)
_STRUVE = [
    c
    for k in range(9)
    for c in ((-1) ** k * 2 / math.pi / math.prod(range(1, 2 * k + 2, 2)) ** 2, 0.0)
]
it2struve0 = SciPys(
    "it2struve0",
    lambda out, x: (-near(x, 1.0, _STRUVE, lambda x: _at(struve, 0, x) / x),),
)

# ---- Mathieu functions, of degrees: y'' = (2q cos(2x) - a) y; modified: y'' = (a - 2q cosh(2x)) y

DEGREE = math.pi / 180
characteristic_a = SciPys(
    "characteristic_a", lambda out, m, q: (ORDER, PARAMETER), "mathieu_a({0}, {1})"
)
characteristic_b = SciPys(
    "characteristic_b", lambda out, m, q: (ORDER, PARAMETER), "mathieu_b({0}, {1})"
)


def _mathieu(name: str, characteristic: SciPys) -> tuple[SciPys, SciPys]:
    degrees = name in ("mathieu_cem", "mathieu_sem")
    unit = DEGREE if degrees else 1.0

    def along_value(out: Any, m: Any, q: Any, x: Any) -> Any:
        return ORDER, PARAMETER, _named(f"{name}_1")(m, q, x) * unit

    def along_slope(out: Any, m: Any, q: Any, x: Any) -> Any:
        turned = cos(x * (2 * DEGREE)) if degrees else cosh(x * 2)
        rate = characteristic(m, q) - q * 2 * turned
        value = _named(f"{name}_0")(m, q, x)
        return ORDER, PARAMETER, rate * value * (-unit if degrees else unit)

    text = name + "({0}, {1}, {2})"
    return SciPys(f"{name}_0", along_value, f"{text}[0]"), SciPys(
        f"{name}_1", along_slope, f"{text}[1]"
    )


mathieu_cem_0, mathieu_cem_1 = _mathieu("mathieu_cem", characteristic_a)
mathieu_sem_0, mathieu_sem_1 = _mathieu("mathieu_sem", characteristic_b)
mathieu_modcem1_0, mathieu_modcem1_1 = _mathieu("mathieu_modcem1", characteristic_a)
mathieu_modcem2_0, mathieu_modcem2_1 = _mathieu("mathieu_modcem2", characteristic_a)
mathieu_modsem1_0, mathieu_modsem1_1 = _mathieu("mathieu_modsem1", characteristic_b)
mathieu_modsem2_0, mathieu_modsem2_1 = _mathieu("mathieu_modsem2", characteristic_b)

# ---- parabolic cylinder functions: w'' = (x^2/4 - v - 1/2) w, and W'' = (a - x^2/4) W (DLMF 12.2)


def _parabolic(name: str, bend: Callable[[Any, Any, Any], Any]) -> tuple[SciPys, SciPys]:
    text = name + "({0}, {1})"
    value = SciPys(f"{name}_0", lambda out, v, x: (ORDER, _named(f"{name}_1")(v, x)), f"{text}[0]")
    slope = SciPys(f"{name}_1", lambda out, v, x: (ORDER, bend(v, x, value(v, x))), f"{text}[1]")
    return value, slope


pbdv_0, pbdv_1 = _parabolic("pbdv", lambda v, x, w: x * (x * w) * 0.25 - (v + 0.5) * w)
pbvv_0, pbvv_1 = _parabolic("pbvv", lambda v, x, w: x * (x * w) * 0.25 - (v + 0.5) * w)
pbwa_0, pbwa_1 = _parabolic("pbwa", lambda a, x, w: a * w - x * (x * w) * 0.25)
