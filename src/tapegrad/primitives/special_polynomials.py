"""Hypergeometric functions, orthogonal polynomials and Legendre functions.

Their slopes are the same functions with other parameters. SciPy has no derivative with respect to
the parameters themselves, so that is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.errors import GradientError
from tapegrad.ir.tape import Aval
from tapegrad.primitives import incomplete
from tapegrad.primitives.base import Elementwise, Missing, broadcast_shapes, parametric
from tapegrad.primitives.complexes import real
from tapegrad.primitives.elementwise import (
    exp,
    logical_and,
    logical_or,
    not_equal,
    rint,
    sin,
    sqrt,
    where,
)
from tapegrad.primitives.kinds import Library
from tapegrad.primitives.kinked import maximum
from tapegrad.primitives.scipys import SciPys, as_real, named

DEGREE = Missing("the degree")
PARAMETER = Missing("a parameter")

# ---- hypergeometric functions (DLMF 13.3.15, 13.3.22, 15.5.1, 10.46)

hyp0f1: SciPys = SciPys(
    "hyp0f1", lambda out, b, x: (PARAMETER, hyp0f1(b + 1, x) / as_real(b, x)), of_complex=True
)


def _hyp1f1_partials(out: Any, a: Any, b: Any, x: Any) -> tuple[Any, Any, Any]:
    """a / b 1F1(a + 1, b + 1, x). At an infinity SciPy's code may not return. For a > 0 the slope
    there is the value at inf, where both grow as exp(x), and 0 at -inf; for other a it is NaN."""
    nothing, factor = x.constant(0), as_real(a / b, x)
    if x.dtype.kind == "c":
        return PARAMETER, PARAMETER, factor * hyp1f1(a + 1, b + 1, x)
    above, below = x.equals(np.inf), x.equals(-np.inf)
    slope = factor * hyp1f1(a + 1, b + 1, where(logical_or(above, below), nothing, x))
    limit = where(as_real(a, x) > 0, where(above, out, nothing), x.constant(np.nan))
    return PARAMETER, PARAMETER, where(logical_or(above, below), limit, slope)


hyp1f1: SciPys = SciPys("hyp1f1", _hyp1f1_partials, of_complex=True)


def _hyperu_partials(out: Any, a: Any, b: Any, x: Any) -> Any:
    return PARAMETER, PARAMETER, -(as_real(a, x) * accurate_hyperu(a + 1, b + 1, x))


hyperu = SciPys("hyperu", _hyperu_partials)
accurate_hyperu = Elementwise(
    incomplete.hyperu,
    lambda *xs: named("scipy.special.hyperu", _hyperu_partials(*xs)),
    name="accurate_hyperu",
    scalar="",
    cost=200,
)
hyp2f1: SciPys = SciPys(
    "hyp2f1",
    lambda out, a, b, c, x: (
        *[PARAMETER] * 3,
        as_real(a * b / c, x) * hyp2f1(a + 1, b + 1, c + 1, x),
    ),
    of_complex=True,
)
wright_bessel: SciPys = SciPys(
    "wright_bessel", lambda out, a, b, x: (PARAMETER, PARAMETER, wright_bessel(a, a + b, x))
)
log_wright_bessel: SciPys = SciPys(
    "log_wright_bessel",
    lambda out, a, b, x: (PARAMETER, PARAMETER, exp(log_wright_bessel(a, a + b, x) - out)),
)

# ---- orthogonal polynomials (DLMF 18.9.19 on)


def _polynomial(name: str, slope: Callable[..., Any]) -> SciPys:
    """An orthogonal polynomial. `slope(below, n, *parameters, x)` is its slope, 0 for degree 0;
    `below` is the polynomial of degree n - 1."""

    def partials(out: Any, n: Any, *rest: Any) -> Any:
        constant = n.equals(0)
        below = where(constant, n, n - 1)
        found = slope(below, as_real(n, rest[-1]), *rest)
        nothing = rest[-1].constant(0)
        return DEGREE, *[PARAMETER] * (len(rest) - 1), where(constant, nothing, found)

    # SciPy has Hermite polynomials of real numbers only.
    return SciPys(name, partials, of_complex="hermite" not in name)


def _real(x: Any, value: float) -> Any:
    """A parameter, which is real even if `x` isn't."""
    number = x.constant(value)
    return real(number) if x.dtype.kind == "c" else number


def _beside_the_pole(n: Any, x: Any, raised: Callable[[Any], Any], same: Any) -> Any:
    """A slope. If the degree isn't an integer, left of 0 by functions of the `same` parameters.
    They have a pole at -1, where SciPy loses the digits of the functions with `raised`
    parameters."""
    if x.dtype.kind == "c":
        return raised(x)
    left = logical_and(logical_and(x < 0, x > -1), not_equal(n, rint(n)))
    inner = where(left, x, x.constant(-0.5))
    return where(left, same(inner), raised(where(left, x.constant(0.5), x)))


def _jacobi_slope(below: Any, n: Any, a: Any, b: Any, x: Any) -> Any:
    """DLMF 18.9.15, or 18.9.17."""
    both = as_real(a + b, x)

    def same(x: Any) -> Any:
        twice = n * 2 + both
        own = eval_jacobi(n, a, b, x) * n * (a - b - twice * x)
        return (own + eval_jacobi(below, a, b, x) * (n + a) * (n + b) * 2) / (twice * (1 - x * x))

    def raised(x: Any) -> Any:
        return eval_jacobi(below, a + 1, b + 1, x) * (n + both + 1) * 0.5

    return _beside_the_pole(n, x, raised, same)


def _gegenbauer_slope(below: Any, n: Any, a: Any, x: Any) -> Any:
    """DLMF 18.9.19, or (1 - x^2) C_n' = (n + 2 a - 1) C_(n-1) - n x C_n."""

    def same(x: Any) -> Any:
        own = eval_gegenbauer(n, a, x) * n * x
        return (eval_gegenbauer(below, a, x) * (n + a * 2 - 1) - own) / (1 - x * x)

    def raised(x: Any) -> Any:
        return eval_gegenbauer(below, a + 1, x) * as_real(a, x) * 2

    return _beside_the_pole(n, x, raised, same)


def _legendre_slope(n: Any, x: Any) -> Any:
    """The slope of P_n = P_(-n-1). Jacobi polynomials keep the digits for large degrees. Around 0
    Legendre polynomials keep them for integer degrees: (1 - x^2) P_n' = n (P_(n-1) - x P_n)."""
    n = where(n < 0, -1 - n, n)
    one, constant, count = _real(x, 1.0), n.equals(0), as_real(n, x)
    degree = where(constant, n, n - 1)
    if x.dtype.kind == "c":
        slope = eval_jacobi(degree, one, one, x) * (count + 1) * 0.5
    else:
        close = logical_and(logical_and(x < 0.5, x > -0.5), count.equals(rint(count)))
        near, far = where(close, x, x.constant(0)), where(close, one, x)
        slope = eval_legendre(degree, near) - near * eval_legendre(n, near)
        slope = slope * count / (1 - near * near)
        slope = where(close, slope, eval_jacobi(degree, one, one, far) * (count + 1) * 0.5)
    return where(constant, x.constant(0), slope)


# ---- Chebyshev's

(OF_DEGREE,) = named("A Chebyshev polynomial", [DEGREE])


@parametric
class Chebyshev(Library):
    """(1/n) d^k/dx^k T_n(x), k > 0, for any degree n. For k = 1 it is U_(n-1)(x).

        T_n(cos t) = cos(n t),    (1 - x^2) y^(k+2) = (2k + 1) x y^(k+1) - (n^2 - k^2) y^(k)

    Near 1, where the recurrence cancels, it is hypergeometric (DLMF 18.5.7). Near -1 it is

        T_n(-cos t) = cos(n pi) cos(n t) + sin(n pi) sin(n t).

    If it is `shifted`, the operand is (1 + x) / 2, which has digits near 0 where x hasn't.
    """

    order: int
    shifted: bool = False

    name = "chebyshev"
    cores = 0
    of_complex = True

    def aval(self, *xs: Aval) -> Aval:
        return Aval(broadcast_shapes(*[x.shape for x in xs]), xs[-1].dtype)

    def evaluate(self, n: Any, x: Any) -> Any:
        import scipy.special

        k, dtype = self.order, np.asarray(x).dtype
        wide = np.asarray(x, complex if dtype.kind == "c" else float)
        n, x = np.broadcast_arrays(np.asarray(n, float), wide)
        rise, x = (2 * x, 2 * x - 1) if self.shifted else (1 + x, x)
        with np.errstate(all="ignore"):
            found, whole = np.empty(x.shape, x.dtype), (n == np.rint(n)) & (np.abs(n) < 1000)
            if not np.all(whole):
                found[~whole] = _of_any_degree(k, n[~whole], x[~whole], rise[~whole])
            if np.any(whole):
                m, scale = np.abs(n[whole]), 2.0 ** (k - 1) * math.factorial(k - 1)
                below = np.asarray(m - k, np.int64)
                known = scipy.special.eval_gegenbauer(below, float(k), x[whole])
                found[whole] = np.where(below < 0, 0.0, known) * scale * np.sign(n[whole])
        return found.astype(dtype)[()]

    def vjp(self, ct: Any, out: Any, n: Any, x: Any) -> Any:
        return OF_DEGREE, ct * self._slope(n, x)

    def jvp(self, ts: Any, out: Any, n: Any, x: Any) -> Any:
        if ts[0] is not None:
            raise GradientError(OF_DEGREE.message)
        return ts[1] * self._slope(n, x)

    def _slope(self, n: Any, x: Any) -> Any:
        slope = Chebyshev(self.order + 1, self.shifted)(n, x)
        return slope * 2 if self.shifted else slope


def _of_any_degree(k: int, n: Any, x: Any, rise: Any) -> Any:
    """The value for any degree; `rise` is 1 + x."""
    left = np.real(x) < 0
    y, gap = np.where(left, -x, x), np.where(left, rise, 1 - x)
    near = _beside_1(k, n, y, gap)
    if not np.any(left):
        return near
    half = n - 2 * np.rint(n / 2)  # n pi without whole turns
    turned = np.cos(np.pi * half) * near + np.sin(np.pi * half) * _odd_part(k, n, y, gap)
    return np.where(left, (-1.0) ** k * turned, near)


def _angle(y: Any, gap: Any) -> Any:
    """arccos(y), its sine, and the functions sine and cosine, with `gap` = 1 - y. For y > 1 they
    are hyperbolic, without the factor i."""
    if np.iscomplexobj(y):
        t = np.arccos(y)
        return t, np.sin(t), np.sin, np.cos
    beyond = gap < 0
    half = np.sqrt(np.abs(gap) / 2)
    t = 2 * np.where(beyond, np.arcsinh(half), np.arcsin(np.minimum(half, 1)))

    def either(outer: Any, inner: Any) -> Any:
        return lambda t: np.where(beyond, outer(t), inner(t))

    root = np.sqrt(np.abs(gap)) * np.sqrt(1 + y)
    return t, root, either(np.sinh, np.sin), either(np.cosh, np.cos)


def _raised(k: int, n: Any, y: Any, gap: Any, value: Any, slope: Any) -> Any:
    """The k-th derivative by the recurrence, from n times the value and from the slope."""
    below, found = value, slope
    for j in range(k - 1):
        factor = n if j == 0 else n * n - j * j
        below, found = found, ((2 * j + 1) * y * found - factor * below) / gap / (1 + y)
    return found


def _beside_1(k: int, n: Any, y: Any, gap: Any) -> Any:
    t, root, sine, cosine = _angle(y, gap)
    far = _raised(k, n, y, gap, cosine(n * t), sine(n * t) / root)
    close = (np.abs(gap) < 0.1) & (np.abs(gap) * n * n < 4)
    u = np.where(close, gap / 2, 0)
    total = term = n * math.prod((n * n - j * j) / (2 * j + 1) for j in range(1, k))
    for j in range(30):
        term = term * u * (j + k - n) * (j + k + n) / ((j + k + 0.5) * (j + 1))
        total = total + term
    return np.where(close, total, far)


def _odd_part(k: int, n: Any, y: Any, gap: Any) -> Any:
    """The k-th derivative of the part with sin(n arccos(y)). NaN for y > 1, unless n is an
    integer."""
    t, root, sine, cosine = _angle(y, gap)
    found = _raised(k, n, y, gap, sine(n * t), -cosine(n * t) / root)
    return found if np.iscomplexobj(y) else np.where((y > 1) & (n != np.rint(n)), np.nan, found)


def _chebyshev(
    name: str, kind: int, scale: float = 1.0, shifted: bool = False, weight: int = 1
) -> Any:
    """`weight` times T_n or U_n of scale x or of 2 x - 1; U_n is T_(n+1)' / (n + 1)."""

    def partials(out: Any, n: Any, x: Any) -> Any:
        inner, factor = x * scale, 2 if shifted else scale * weight
        if kind == 1:
            return DEGREE, Chebyshev(1, shifted)(n, inner) * as_real(n, x) * factor
        return DEGREE, Chebyshev(2, shifted)(n + 1, inner) * factor

    return SciPys(name, partials, of_complex=True)


eval_chebyt = _chebyshev("eval_chebyt", 1)
eval_chebyu = _chebyshev("eval_chebyu", 2)
eval_chebyc = _chebyshev("eval_chebyc", 1, 0.5, weight=2)
eval_chebys = _chebyshev("eval_chebys", 2, 0.5)
eval_sh_chebyt = _chebyshev("eval_sh_chebyt", 1, shifted=True)
eval_sh_chebyu = _chebyshev("eval_sh_chebyu", 2, shifted=True)

# ---- the others

eval_gegenbauer: SciPys = _polynomial("eval_gegenbauer", _gegenbauer_slope)
eval_jacobi: SciPys = _polynomial("eval_jacobi", _jacobi_slope)
eval_sh_jacobi: SciPys = _polynomial(
    "eval_sh_jacobi", lambda below, n, p, q, x: eval_sh_jacobi(below, p + 2, q + 1, x) * n
)
eval_legendre: SciPys = SciPys(
    "eval_legendre", lambda out, n, x: (DEGREE, _legendre_slope(n, x)), of_complex=True
)
eval_sh_legendre = SciPys(
    "eval_sh_legendre",
    lambda out, n, x: (DEGREE, _legendre_slope(n, x * 2 - 1) * 2),
    of_complex=True,
)
eval_genlaguerre: SciPys = _polynomial(
    "eval_genlaguerre", lambda below, n, a, x: -eval_genlaguerre(below, a + 1, x)
)
eval_laguerre = _polynomial(
    "eval_laguerre", lambda below, n, x: -eval_genlaguerre(below, _real(x, 1.0), x)
)
eval_hermite: SciPys = _polynomial(
    "eval_hermite", lambda below, n, x: eval_hermite(below, x) * n * 2
)
eval_hermitenorm: SciPys = _polynomial(
    "eval_hermitenorm", lambda below, n, x: eval_hermitenorm(below, x) * n
)

# ---- Legendre functions


def _lpmv_partials(out: Any, m: Any, v: Any, x: Any) -> Any:
    """(1 - x^2) P' = (m - v - 1) P_(v+1) + (v + 1) x P_v (DLMF 14.10.5)."""
    above = lpmv(m, v + 1, x) * (m - v - 1)
    return Missing("the order"), DEGREE, (above + (v + 1) * x * out) / (1 - x * x)


lpmv: SciPys = SciPys("lpmv", _lpmv_partials)


def _harmonic_partials(out: Any, n: Any, m: Any, theta: Any) -> Any:
    """Half the difference of the neighbours in m, by the ladder operators of spherical harmonics:
    nothing is divided by sin(theta), of which SciPy takes the absolute value."""
    a, b, nothing = as_real(n, theta), as_real(m, theta), theta.constant(0)
    up = sqrt(maximum((a - b) * (a + b + 1), nothing)) * sph_legendre_p(n, m + 1, theta)
    down = sqrt(maximum((a + b) * (a - b + 1), nothing)) * sph_legendre_p(n, m - 1, theta)
    slope = (up - down) * 0.5
    return DEGREE, Missing("the order"), where(sin(theta) < 0, -slope, slope)


sph_legendre_p: SciPys = SciPys(
    "sph_legendre_p", _harmonic_partials, "sph_legendre_p({0}, {1}, {2})[0]"
)
