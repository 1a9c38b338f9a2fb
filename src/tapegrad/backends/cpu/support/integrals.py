"""The normal distribution's functions, an exponential integral and entropies, for vectorised loops.

Coefficients without a source interpolate at Chebyshev nodes, computed with 60 digits; the errors
are those of the roundings.
"""

# mypy: disable-error-code="call-arg,var-annotated,unreachable"
from __future__ import annotations

from typing import Any

from tapegrad.backends.cpu.support.composed import INFINITY, NAN, composed
from tapegrad.backends.cpu.support.scalars import (
    copysign,
    exp,
    expm1,
    log,
    log1p,
    minimum,
    rint,
    sqrt,
    where,
)

SQRT_HALF = 0.7071067811865476
SQRT_EIGHTH = 0.3535533905932738
EULER = 0.5772156649015329

# ---- the error function's relatives


@composed
def _erfcx_of_positive(a: Any) -> Any:
    """exp(a^2) erfc(a): 1 / (a + 1/2) times a polynomial of (a - 4) / (a + 4), which is between -1
    and 1 (M. M. Shepherd and J. G. Laframboise, Math. Comp. 36 (1981))."""
    r = where(a > 1e17, 1.0, (a - 4.0) / (a + 4.0))
    v = r * r
    even = (-1.382060116867289e-10 * v + 1.6161986722541016e-09) * v - 1.0362901244090981e-08
    odd = 4.6488126318548296e-10 * v - 6.169365701899222e-09
    even = (even * v + 3.885971620543456e-08) * v + 1.4586712786544866e-07
    odd = (odd * v + 5.3159087969090743e-08) * v - 4.1053239666486683e-07
    even = (even * v - 5.610567832982953e-06) * v + 7.531071304325973e-05
    odd = (odd * v + 2.85328914962037e-06) * v - 1.2198865571511646e-05
    even = (even * v - 0.0003788866217971288) * v - 0.008098867031467385
    odd = (odd * v - 9.96285762363259e-05) * v + 0.002515985034551128
    even = (even * v - 0.03316518290593029) * v - 0.050519533018159056
    odd = (odd * v + 0.018583757763169003) * v + 0.04686641749955632
    even = (even * v + 0.007689826051309987) * v + 0.6164975593127763
    odd = (odd * v + 0.034048527127334194) * v - 0.06981055842028114
    scaled = odd * r + even
    return scaled / (a + 0.5)


@composed
def _exp_of_square(a: Any, factor: Any) -> Any:
    """exp(factor a^2), for |factor| <= 1 and a < 64: the square of the upper 26 bits is exact, and
    the rest, which is small, is a second factor."""
    upper = rint(a * 1048576.0) * 9.5367431640625e-07
    d = factor * (a - upper) * (a + upper)
    return exp(factor * upper * upper) * (1.0 + d * (1.0 + d * (0.5 + d * 0.16666666666666666)))


@composed
def erfcx(x: Any) -> Any:
    """exp(x^2) erfc(x); for negative numbers by erfc(x) + erfc(-x) = 2."""
    a = abs(x)
    found = _erfcx_of_positive(a)
    return where(x < 0.0, 2.0 * _exp_of_square(minimum(a, 40.0), 1.0) - found, found)


@composed
def log_ndtr(x: Any) -> Any:
    """The logarithm of the normal distribution function, erfc(-x / sqrt(2)) / 2."""
    half = 0.5 * _erfcx_of_positive(abs(x) * SQRT_HALF)
    above = log1p(-half * _exp_of_square(minimum(abs(x), 40.0), -0.5))
    return where(x < 0.0, log(half) - 0.5 * x * x, above)


@composed
def _quantile(doubled: Any, beyond: Any) -> Any:
    """Twice the normal quantile of doubled / 2 + 1/2. `beyond` is the probability beyond it, at
    most 1/2.

    M. J. Wichura, "Algorithm AS 241", Applied Statistics 37 (1988), PPND16: three quotients of
    polynomials, one around 0, two of the root of a logarithm.
    """
    q = doubled * 0.5
    r = 0.180625 - q * q
    a = ((2.5090809287301226727e3 * r + 3.3430575583588128105e4) * r + 6.7265770927008700853e4) * r
    a = ((a + 4.5921953931549871457e4) * r + 1.3731693765509461125e4) * r + 1.9715909503065514427e3
    a = doubled * ((a * r + 1.3314166789178437745e2) * r + 3.3871328727963666080)
    b = ((5.2264952788528545610e3 * r + 2.8729085735721942674e4) * r + 3.9307895800092710610e4) * r
    b = ((b + 2.1213794301586595867e4) * r + 5.3941960214247511077e3) * r + 6.8718700749205790830e2
    b = (b * r + 4.2313330701600911252e1) * r + 1.0
    tail = sqrt(-log(beyond))
    r = tail - 1.6
    c = (
        (7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r + 0.241780725177450611770
    ) * r
    c = ((c + 1.27045825245236838258) * r + 3.64784832476320460504) * r + 5.76949722146069140550
    c = (c * r + 4.63033784615654529590) * r + 1.42343711074968357734
    d = (
        (1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r + 1.51986665636164571966e-2
    ) * r
    d = ((d + 0.148103976427480074590) * r + 0.689767334985100004550) * r + 1.67638483018380384940
    d = (d * r + 2.05319162663775882187) * r + 1.0
    r = tail - 5.0
    e = (
        (2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 1.24266094738807843860e-3
    ) * r
    e = ((e + 2.65321895265761230930e-2) * r + 0.296560571828504891230) * r + 1.78482653991729133580
    e = (e * r + 5.46378491116411436990) * r + 6.65790464350110377720
    f = (
        (2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r + 1.84631831751005468180e-5
    ) * r
    f = (
        (f + 7.86869131145613259100e-4) * r + 1.48753612908506148525e-2
    ) * r + 0.136929880922735805310
    f = (f * r + 0.599832206555887937690) * r + 1.0
    top = where(tail > 5.0, e, c)
    below = where(tail > 5.0, f, d)
    near = abs(q) <= 0.425
    quotient = where(near, a, copysign(top + top, doubled)) / where(near, b, below)
    return where(tail == INFINITY, copysign(INFINITY, doubled), quotient + 0.0)


@composed
def ndtri(p: Any) -> Any:
    """The quantile of the normal distribution."""
    q = p - 0.5
    return 0.5 * _quantile(q + q, where(q < 0.0, p, 1.0 - p))


@composed
def erfinv(y: Any) -> Any:
    """The inverse of the error function. 1 - |y| is exact where its precision matters."""
    return SQRT_EIGHTH * _quantile(y, (1.0 - abs(y)) * 0.5)


@composed
def erfcinv(p: Any) -> Any:
    """The inverse of the complementary error function."""
    found = SQRT_EIGHTH * _quantile(1.0 - p, 0.5 * where(p < 1.0, p, 2.0 - p))
    return where(p < 0.0, NAN, where(p == 1.0, -0.0, found))


# ---- an exponential integral


@composed
def exp1(x: Any) -> Any:
    """E_1(x): up to 1 its power series (DLMF 6.6.2), as a polynomial; beyond, exp(-x) / x times a
    polynomial of (x - 4) / (x + 2). NaN for negative numbers."""
    v = x * x
    even = 2.1319070629865464e-09 * v + 3.059948236214403e-07
    odd = -1.141441703114265e-10 * v - 2.734600022984368e-08
    even = (even * v + 2.834461988152292e-05) * v + 0.0016666666641944308
    odd = (odd * v - 3.100075392102485e-06) * v - 0.00023148146734802626
    even = (even * v + 0.0555555555555419) * v + 1.0
    odd = (odd * v - 0.010416666666411159) * v - 0.24999999999999972
    low = odd * x + even
    low = low * x - (log(x) + EULER)
    r = where(x > 1e17, 1.0, (x - 4.0) / (x + 2.0))
    v = r * r
    even = (1.4079193334203316e-09 * v - 7.09307701954862e-09) * v + 1.75195154268916e-08
    odd = 2.2315632435045145e-09 * v - 1.0894893510378763e-08
    even = (even * v - 2.545841428877462e-08) * v + 2.383344081297018e-08
    odd = (odd * v + 2.7493755488737437e-08) * v - 3.6860607269546456e-08
    even = (even * v - 2.404994471313753e-08) * v - 3.962018765497969e-08
    odd = (odd * v + 4.722336195310866e-08) * v + 1.5141673340608428e-08
    even = (even * v - 2.7347394536822215e-07) * v - 1.5237682336570375e-06
    odd = (odd * v + 1.9798819196183624e-07) * v + 9.096796580102571e-07
    even = (even * v - 8.721726182061759e-06) * v - 5.219397363732407e-05
    odd = (odd * v + 4.7593393284206804e-06) * v + 2.65361188366733e-05
    even = (even * v - 0.0003379858136890557) * v - 0.002507852571895628
    odd = (odd * v + 0.00016176761619542975) * v + 0.0011289560038446323
    even = (even * v - 0.0243003136542951) * v + 0.8253825996042233
    odd = (odd * v + 0.010133650725819695) * v + 0.19036949703167488
    high = odd * r + even
    return where(x <= 1.0, low, exp(-x) / x * high)


# ---- entropies


@composed
def entr(x: Any) -> Any:
    """-x log(x), 0 for x = 0 and -inf for negative numbers."""
    return where(x < 0.0, -INFINITY, where(x == 0.0, 0.0, -x * log(x)))


@composed
def rel_entr(x: Any, y: Any) -> Any:
    """x log(x / y), 0 for x = 0 and infinite for negative numbers. Near x = y the logarithm is that
    of 1 plus a small difference; where the quotient isn't a normal number it is a difference of
    two."""
    ratio = x / y
    near = abs(ratio - 1.25) < 0.75
    apart = abs(log(x) - log(y))
    beside = log1p((x - y) / y)
    far = where(apart > 708.0, log(x) - log(y), log(ratio))
    inner = x * where(near, beside, far)
    outer = where(x == 0.0, where(y >= 0.0, 0.0, INFINITY), INFINITY)
    inside = where(x > 0.0, y > 0.0, x > 0.0)
    return where(x == x, where(y == y, where(inside, inner, outer), y), x)


# ---- powers less 1, which are logarithms where the exponent is next to nothing, as SciPy has them


@composed
def _of_logarithm(y: Any, p: Any) -> Any:
    """(exp(p y) - 1) / p, where exp(p y) may overflow."""
    u = p * y
    large = copysign(exp(u - log(abs(p))), p) - 1.0 / p
    return where(u >= 709.78, large, expm1(u) / p)


@composed
def boxcox(x: Any, p: Any) -> Any:
    """(x^p - 1) / p."""
    y = log(x)
    return where(abs(p) < 1e-19, y, _of_logarithm(y, p))


@composed
def boxcox1p(x: Any, p: Any) -> Any:
    """((1 + x)^p - 1) / p."""
    y = log1p(x)
    least = where(abs(y) < 1e-289, 1e273, 1e-19)
    return where(abs(p) < least, y, _of_logarithm(y, p))


@composed
def _root_logarithm(y: Any, p: Any) -> Any:
    """log(1 + p y) / p, where p y may overflow."""
    u = p * y
    large = log(copysign(1.0, p) * (y + 1.0 / p)) + log(abs(p))
    return where(u < INFINITY, log1p(u), large) / p


@composed
def inv_boxcox(y: Any, p: Any) -> Any:
    """(1 + p y)^(1/p)."""
    return where(p == 0.0, exp(y), exp(_root_logarithm(y, p)))


@composed
def inv_boxcox1p(y: Any, p: Any) -> Any:
    """(1 + p y)^(1/p) - 1."""
    found = where(abs(p * y) < 1e-154, y, expm1(_root_logarithm(y, p)))
    return where(p == 0.0, expm1(y), found)
