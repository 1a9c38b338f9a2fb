"""Hypergeometric functions, orthogonal polynomials and Legendre functions.

Their slopes are the same functions with other parameters; in the parameters themselves none is
known to SciPy, and that is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapegrad.primitives.base import Missing
from tapegrad.primitives.complexes import real
from tapegrad.primitives.elementwise import exp, sin, sqrt, where
from tapegrad.primitives.kinked import maximum
from tapegrad.primitives.scipys import SciPys, as_real

DEGREE = Missing("the degree")
PARAMETER = Missing("a parameter")

# ---- hypergeometric functions (DLMF 13.3.15, 13.3.22, 15.5.1, 10.46)

hyp0f1: SciPys = SciPys(
    "hyp0f1", lambda out, b, x: (PARAMETER, hyp0f1(b + 1, x) / as_real(b, x)), of_complex=True
)
hyp1f1: SciPys = SciPys(
    "hyp1f1",
    lambda out, a, b, x: (PARAMETER, PARAMETER, as_real(a / b, x) * hyp1f1(a + 1, b + 1, x)),
    of_complex=True,
)
hyperu: SciPys = SciPys(
    "hyperu", lambda out, a, b, x: (PARAMETER, PARAMETER, -(a * hyperu(a + 1, b + 1, x)))
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
    """`slope(below, n, *parameters, x)`: of degree 0 it is 0; `below` is the degree less 1."""

    def partials(out: Any, n: Any, *rest: Any) -> Any:
        constant = n.equals(0)
        below = where(constant, n, n - 1)
        found = slope(below, as_real(n, rest[-1]), *rest)
        nothing = rest[-1].constant(0)
        return DEGREE, *[PARAMETER] * (len(rest) - 1), where(constant, nothing, found)

    # SciPy has Hermite's of real numbers alone.
    return SciPys(name, partials, of_complex="hermite" not in name)


def _real(x: Any, value: float) -> Any:
    """A parameter, which is real where `x` isn't, too."""
    number = x.constant(value)
    return real(number) if x.dtype.kind == "c" else number


def _gegenbauer(below: Any, order: float, x: Any) -> Any:
    return eval_gegenbauer(below, _real(x, order), x)


def _jacobi_slope(below: Any, n: Any, a: Any, b: Any, x: Any) -> Any:
    return eval_jacobi(below, a + 1, b + 1, x) * (n + as_real(a + b, x) + 1) * 0.5


eval_gegenbauer: SciPys = _polynomial(
    "eval_gegenbauer", lambda below, n, a, x: eval_gegenbauer(below, a + 1, x) * as_real(a, x) * 2
)
eval_jacobi: SciPys = _polynomial("eval_jacobi", _jacobi_slope)
eval_sh_jacobi: SciPys = _polynomial(
    "eval_sh_jacobi", lambda below, n, p, q, x: eval_sh_jacobi(below, p + 2, q + 1, x) * n
)
eval_legendre = _polynomial("eval_legendre", lambda below, n, x: _gegenbauer(below, 1.5, x))
eval_sh_legendre = _polynomial(
    "eval_sh_legendre", lambda below, n, x: _gegenbauer(below, 1.5, x * 2 - 1) * 2
)
eval_chebyt = _polynomial("eval_chebyt", lambda below, n, x: _gegenbauer(below, 1, x) * n)
eval_chebyu = _polynomial("eval_chebyu", lambda below, n, x: _gegenbauer(below, 2, x) * 2)
eval_chebyc = _polynomial("eval_chebyc", lambda below, n, x: _gegenbauer(below, 1, x * 0.5) * n)
eval_chebys = _polynomial("eval_chebys", lambda below, n, x: _gegenbauer(below, 2, x * 0.5))
eval_sh_chebyt = _polynomial(
    "eval_sh_chebyt", lambda below, n, x: _gegenbauer(below, 1, x * 2 - 1) * n * 2
)
eval_sh_chebyu = _polynomial(
    "eval_sh_chebyu", lambda below, n, x: _gegenbauer(below, 2, x * 2 - 1) * 4
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
    nothing is divided by sin(theta). Of that SciPy takes the absolute value."""
    a, b, nothing = as_real(n, theta), as_real(m, theta), theta.constant(0)
    up = sqrt(maximum((a - b) * (a + b + 1), nothing)) * sph_legendre_p(n, m + 1, theta)
    down = sqrt(maximum((a + b) * (a - b + 1), nothing)) * sph_legendre_p(n, m - 1, theta)
    slope = (up - down) * 0.5
    return DEGREE, Missing("the order"), where(sin(theta) < 0, -slope, slope)


sph_legendre_p: SciPys = SciPys(
    "sph_legendre_p", _harmonic_partials, "sph_legendre_p({0}, {1}, {2})[0]"
)
