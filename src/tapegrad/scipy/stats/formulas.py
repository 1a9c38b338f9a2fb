"""Parts of formulas that several laws share: constants, functions, logarithms whose derivatives
keep their digits, and laws defined by a relation to other laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sc

from tapegrad.extending.arrays import Tracer, recorded
from tapegrad.extending.primitives import ParameterSlope, Stated, gammaln_of_positive, riemann_zeta
from tapegrad.scipy.stats.laws import Formula, both, choose, varies

LOG_2 = float(np.log(2.0))
LOG_PI = float(np.log(np.pi))
LOG_2PI = float(np.log(2 * np.pi))
EULER = float(np.euler_gamma)


def norm_logpdf(x: Any) -> Any:
    return x * x * -0.5 - LOG_2PI / 2


def norm_pdf(x: Any) -> Any:
    return np.exp(x * x * -0.5) / np.sqrt(2 * np.pi)


def gammaln(x: Any) -> Any:
    """log(Gamma(x)) for positive x: the domains of shapes and the support exclude other values."""
    return recorded(x, gammaln_of_positive, x) if isinstance(x, Tracer) else sc.gammaln(x)


def zeta(s: Any) -> Any:
    return recorded(s, riemann_zeta, s) if isinstance(s, Tracer) else sc.zeta(s, 1.0)


def with_slopes(value: Any, *slopes: tuple[Any, Any]) -> Any:
    """`value` with a stated slope along each variable: the slope by the chain rule would lose
    digits."""
    traced = [(x, slope) for x, slope in slopes if isinstance(x, Tracer)]
    if not traced:
        return value
    xs, along = zip(*traced, strict=True)
    return recorded(xs[0], Stated(len(xs)), value, *xs, *along)


where = choose  # the name in formulas


def integral(f: Formula, x: Any, count: int) -> Any:
    """The integral of `f` from 0 to x, by Gauss-Legendre quadrature with `count` points. With a
    positive f nothing cancels."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    shape = (-1,) + (1,) * np.ndim(x)
    at = (0.5 + 0.5 * nodes).reshape(shape) * x
    return x * np.sum((0.5 * weights).reshape(shape) * f(at), axis=0)


def split(condition: Any, x: Any, safe: float, one: Formula, other: Formula) -> Any:
    """`one(x)` where the condition holds, else `other(x)`. Each formula is computed at `safe`
    where the other one is chosen."""
    if not varies(condition):
        return one(x) if condition else other(x)
    return np.where(
        condition, one(np.where(condition, x, safe)), other(np.where(condition, safe, x))
    )


def share_of_power(x: Any, b: Any, u: Any, upper: bool) -> Any:
    """P(1 / b, u), u = x^b, or 1 - P if `upper`. The slope along x is stated as the density, which
    is finite at 0: the second derivative by the chain rule would cancel there."""
    value = (sc.gammaincc if upper else sc.gammainc)(1.0 / b, u)
    if not (isinstance(x, Tracer) or isinstance(b, Tracer)):
        return value
    density = np.exp(np.log(b) - gammaln(1.0 / b) - u)
    a, sign = 1.0 / b + 0.0 * u, -1.0 if upper else 1.0
    along_a = recorded(u, ParameterSlope("gammainc", (1,)), a, u)
    straight = u < 1e-17  # the density equals that at 0
    curved = x * density * np.log(where(straight, 1.0, x)) / b - along_a / (b * b)
    line = x * density * (1.0 + sc.digamma(1.0 / b) / b) / b
    along_b = where(straight, line, curved)
    return with_slopes(value, (x, sign * density), (b, sign * along_b))


# ---- logarithms that keep their digits, also in second derivatives


def log_complement(h: Any, log_h: Any) -> Any:
    """log(1 - exp(-h)), h > 0 (Maechler, 2012, Accurately computing log(1 - exp(-|a|)))."""
    small = h < 1.0
    near = log_h + np.log(sc.exprel(-where(small, h, 0.5)))
    return where(small, near, np.log1p(-np.exp(-where(small, 1.0, h))))


def log_expm1(y: Any, log_y: Any) -> Any:
    """log(exp(y) - 1), y > 0."""
    return y + log_complement(y, log_y)


def log_size(x: Any) -> Any:
    """log(x) for x >= 0, without a warning at 0."""
    nothing = x == 0
    return where(nothing, -np.inf, np.log(where(nothing, 1.0, x)))


def log_ratio(x: Any, a: Any) -> Any:
    """log(x / a), x >= a > 0."""
    close = x < 2 * a
    near = np.log1p(where(close, x - a, 0.0) / a)
    return where(close, near, np.log(x) - np.log(a))


def log_softplus(y: Any) -> Any:
    """log(log(1 + exp(y))), which approaches y for y < 0."""
    small = y < 0
    near = where(small, y, 0.0) + np.log(log1p_over(1.0, np.exp(where(small, y, 0.0))))
    return where(small, near, np.log(-sc.log_expit(-where(small, 0.0, y))))


def log1p_over(x: Any, c: Any) -> Any:
    """log(1 + c x) / c, which is x for c = 0. For small t = c x it is the series x (1 - t / 2 +
    t^2 / 3 - ...), since the derivatives of the quotient would lose all digits."""
    t = c * where(both(c == 0, np.isinf(x)), 0.0, x)
    small = np.abs(t) < 0.1
    near, series = where(small, t, 0.0), 0.0
    for n in range(18, 0, -1):
        series = series * -near + 1 / n
    return where(small, x * series, np.log1p(where(small, 1.0, t)) / where(small, 1.0, c))


def expm1_over(x: Any, c: Any) -> Any:
    """(exp(c x) - 1) / c, which is x for c = 0."""
    return x * sc.exprel(c * x)


# ---- densities as products, laws of exponential variables, and reflections
#
# Nothing cancels in these formulas, at either end of the support. h is passed with log(h): near
# h = 0 the second derivatives of the quotient h' / h would cancel.

SIDES = {"cdf": "sf", "logcdf": "logsf", "ppf": "isf"}
OTHER = SIDES | {other: side for side, other in SIDES.items()}


def product(exponent: Formula, *factors: Formula) -> dict[str, Any]:
    """The density exp(exponent) times the factors. As exp(log(factor) + exponent) its second
    derivative would cancel where the density is nearly a straight line."""

    def pdf(*xs: Any) -> Any:
        found = np.exp(exponent(*xs))
        for factor in factors:
            found = factor(*xs) * found
        return found

    def logpdf(*xs: Any) -> Any:
        found = exponent(*xs)
        for factor in factors:
            found = np.log(factor(*xs)) + found
        return found

    return {"pdf": pdf, "logpdf": logpdf}


def rising(h: Formula, log_h: Formula, at: Formula | None = None) -> dict[str, Any]:
    """The law for which h(X) is a standard exponential variable and h rises: 1 - F(z) =
    exp(-h(z)).

    Parameters
    ----------
    h, log_h : functions of z and the shapes.
    at : the inverse of h: z from the value of h, its logarithm and the shapes.
    """

    def found(h: Any, *shapes: Any) -> Any:
        return at(h, np.log(h), *shapes)  # type: ignore[misc]

    formulas: dict[str, Any] = {
        "sf": lambda z, *shapes: np.exp(-h(z, *shapes)),
        "logsf": lambda z, *shapes: -h(z, *shapes),
        "cdf": lambda z, *shapes: -np.expm1(-h(z, *shapes)),
        "logcdf": lambda z, *shapes: log_complement(h(z, *shapes), log_h(z, *shapes)),
    }
    if at is not None:
        formulas["ppf"] = lambda q, *shapes: found(-np.log1p(-q), *shapes)
        formulas["isf"] = lambda q, *shapes: found(-np.log(q), *shapes)
    return formulas


def falling(h: Formula, log_h: Formula, at: Formula | None = None) -> dict[str, Any]:
    """The law for which h(X) is a standard exponential variable and h falls: F(z) = exp(-h(z))."""
    return {OTHER[name]: formula for name, formula in rising(h, log_h, at).items()}


def of_sides(sides: Callable[..., tuple[Any, Any]]) -> dict[str, Any]:
    """The law whose `sides` compute F and 1 - F. Each keeps its digits where it is the smaller
    one; the larger one, with its slopes, is 1 minus the smaller one."""

    def side(number: int) -> Formula:
        def probability(*xs: Any) -> Any:
            found = sides(*xs)
            one, other = found[number], found[1 - number]
            return where(one < other, one, 1.0 - other)

        return probability

    return {"cdf": side(0), "sf": side(1)}


def mirrored(formulas: dict[str, Any]) -> dict[str, Any]:
    """The law of -X, from the law of X."""
    turned = dict(formulas)
    for name in OTHER.keys() & formulas.keys():
        formula = formulas[name]
        turned[OTHER[name]] = _minus(formula) if name in ("ppf", "isf") else _at_minus(formula)
    for name in {"pdf", "logpdf"} & formulas.keys():
        turned[name] = _at_minus(formulas[name])
    if "within" in formulas:
        turned["within"] = _minus(formulas["within"])
    return turned


def _minus(formula: Formula) -> Formula:
    return lambda *xs: -formula(*xs)


def _at_minus(formula: Formula) -> Formula:
    return lambda z, *shapes: formula(-z, *shapes)
