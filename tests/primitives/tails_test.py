"""First and second derivatives of functions of two operands, of what is made of several functions
and of kernels keep their digits over the whole range: far out, near 0, near poles. mpmath works out
the formulas to sixty digits. `ranges_test` has functions by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

from tapegrad import grad

SIZES = [1e-290, 1e-150, 1e-80, 1e-30, 1e-16, 1e-8, 1e-4, 0.01, 0.3, 0.4999999999, 0.5, 0.9]
SIZES += [0.99999, 1 - 1e-12, 1, 1 + 1e-12, 1.00001, 1.5, 2, 5, 9, 12.5, 20, 26, 30, 37.4, 40, 100]
SIZES += [300, 700, 1e4, 1e8, 1e16, 1e60, 1e100, 1e145, 1e200, 1e290]
POINTS = np.array(sorted({*SIZES, *(-x for x in SIZES)}))
ONE = mp.mpf(1)
with mp.workdps(340):
    STEEP = 2 / mp.sqrt(mp.pi)
    LN2, LN3, LN10 = map(mp.log, (2, 3, 10))


def expit(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def bump(x: Any) -> Any:
    return expit(x) * expit(-x)


def sinc_slope(x: Any) -> Any:
    return (mp.cospi(x) - mp.sinpi(x) / (mp.pi * x)) / x if abs(x) > 1e-12 else -(mp.pi**2) * x / 3


def sinc_bend(x: Any) -> Any:
    if abs(x) < 1e-12:
        return -(mp.pi**2) / 3
    return (-mp.pi * mp.sinpi(x) - 2 * sinc_slope(x)) / x


def power(p: float) -> Any:
    return lambda x: x**p, lambda x: p * x ** (p - 1), lambda x: p * (mp.mpf(p) - 1) * x ** (p - 2)


def of_positive(f: Callable[..., Any]) -> Callable[[Any], Any]:
    """Left of 0 SciPy itself has few digits near poles."""
    return lambda x: f(np.where(x > 0, x, np.nan))


def psi(n: int) -> Callable[[Any], Any]:
    def exact(x: Any) -> Any:
        if x < 1e17:
            return mp.psi(n, x)
        return mp.log(x) - 1 / (2 * x) if n == 0 else -((-ONE / x) ** n) * mp.fac(n - 1)

    return exact


def of_beta(y: float) -> Any:
    """log(B(x, y)) along x, whose slopes are differences of nearly equal numbers."""

    def fall(n: int) -> Callable[[Any], Any]:
        def exact(x: Any) -> Any:
            if x > 1e17:
                return y / x / (x + y) if n else -mp.log1p(y / x)
            return mp.psi(n, x) - mp.psi(n, x + y)

        return exact

    return of_positive(lambda x: sp.betaln(x, y)), fall(0), fall(1)


def of_angle(a: float) -> list[Any]:
    """Both operands of hypot and of arctan2; the other one is a."""
    b, r = mp.mpf(a), lambda x: mp.sqrt(x * x + mp.mpf(a) ** 2)
    length, bend = lambda x: x / r(x), lambda x: b * b / r(x) ** 3
    turn, turn_bend = lambda x: b / r(x) ** 2, lambda x: -2 * b * x / r(x) ** 4
    return [
        (lambda x: np.hypot(x, a), length, bend),
        (lambda x: np.hypot(a, x), length, bend),
        (lambda x: np.arctan2(x, a), turn, turn_bend),
        (lambda x: np.arctan2(a, x), lambda x: -turn(x), lambda x: -turn_bend(x)),
    ]


ANGLES = [row for a in (1.0, 1e-150, 1e-100, 1e100, 1e307) for row in of_angle(a)]
SOFTPLUS = expit, bump
OF_SQUARE = lambda y: (1 - y / 2) ** -3, lambda y: 1.5 * (1 - y / 2) ** -4
# By the primitive's name: NumPy's or SciPy's function, and its two derivatives.
TABLE: dict[str, list[Any]] = {
    "power": [
        *[power(p) for p in (3.0, 4.0, 2.5, 0.5, 0.3, -1.0, -1.5)],
        (lambda x: 3.0**x, lambda x: LN3 * mp.mpf(3) ** x, lambda x: LN3**2 * mp.mpf(3) ** x),
    ],
    "expm1": [(np.expm1, mp.exp, mp.exp)],
    "arctan": [(np.arctan, lambda x: 1 / (1 + x * x), lambda x: -2 * x / (1 + x * x) ** 2)],
    "tanh": [(np.tanh, lambda x: mp.sech(x) ** 2, lambda x: -2 * mp.tanh(x) * mp.sech(x) ** 2)],
    "hypot": [row for k, row in enumerate(ANGLES) if k % 4 < 2],
    "arctan2": [row for k, row in enumerate(ANGLES) if k % 4 > 1],
    "expit": [(sp.expit, bump, lambda x: -bump(x) * mp.tanh(x / 2))],
    "log_expit": [(sp.log_expit, lambda x: expit(-x), lambda x: -bump(x))],
    "logaddexp": [
        (lambda x: np.logaddexp(0, x), *SOFTPLUS),
        (lambda x: np.logaddexp(x, 0), *SOFTPLUS),
        (
            lambda x: np.logaddexp2(0, x),
            lambda x: 1 / (1 + mp.mpf(2) ** -x),
            lambda x: LN2 / (1 + mp.mpf(2) ** -x) / (1 + mp.mpf(2) ** x),
        ),
    ],
    "rel_entr": [(lambda y: sp.rel_entr(1.0, y), lambda y: -1 / y, lambda y: 1 / y**2)],
    "kl_div": [
        (lambda x: sp.kl_div(x, 1.0), mp.log, lambda x: 1 / x),
        (lambda y: sp.kl_div(1.0, y), lambda y: 1 - 1 / y, lambda y: 1 / y**2),
    ],
    "xlogy": [(lambda y: sp.xlogy(2.0, y), lambda y: 2 / y, lambda y: -2 / y**2)],
    "xlog1py": [(lambda y: sp.xlog1py(2.0, y), lambda y: 2 / (1 + y), lambda y: -2 / (1 + y) ** 2)],
    "boxcox": [(lambda x: sp.boxcox(x, 0.5), lambda x: x**-0.5, lambda x: -0.5 * x**-1.5)],
    "betaln": [of_beta(y) for y in (1e-30, 1e-5, 1.0, 40.0)],
    "inv_boxcox": [(lambda y: sp.inv_boxcox(y, -0.5), *OF_SQUARE)],
    "inv_boxcox1p": [(lambda y: sp.inv_boxcox1p(y, -0.5), *OF_SQUARE)],
    "boxcox1p": [
        (
            lambda x: sp.boxcox1p(x, 0.5),
            lambda x: (1 + x) ** -0.5,
            lambda x: -0.5 * (1 + x) ** -1.5,
        )
    ],
}
COMPOSED: dict[str, list[Any]] = {
    "log1p(exp(x))": [(lambda x: np.log1p(np.exp(x)), *SOFTPLUS)],
    "log(1 + exp(x))": [(lambda x: np.log(1 + np.exp(x)), *SOFTPLUS)],
    "-log_expit(-x)": [(lambda x: -sp.log_expit(-x), *SOFTPLUS)],
    "sinc": [(np.sinc, sinc_slope, sinc_bend)],
    "pseudo_huber": [
        (
            lambda r: sp.pseudo_huber(1.0, r),
            lambda x: x / mp.sqrt(1 + x * x),
            lambda x: (1 + x * x) ** -1.5,
        )
    ],
}
# Of these the numbers are from where on the formula, or NumPy's own argument, has fewer digits.
MOST = {"sinc": 1.5, "arctan": 1e80}


def check(points: Any, found: Any, exact: Callable[[Any], Any], label: Any) -> None:
    with mp.workdps(60):
        for x, y in zip(points, found, strict=True):
            try:
                number = exact(mp.mpf(float(x)))
            except ZeroDivisionError:  # at the end of a domain
                continue
            if isinstance(number, mp.mpc):
                continue
            right = float(number)
            near = abs(y - right) <= 1e-11 * abs(right) + 1e-300
            assert near or y == right, (label, x, y, right)


@pytest.mark.every(8)
@pytest.mark.parametrize("name", [*TABLE, *COMPOSED])
def test_every_digit_counts(name: str) -> None:
    for f, *derivatives in {**TABLE, **COMPOSED}[name]:
        points = POINTS[np.abs(POINTS) <= MOST.get(name, np.inf)]
        with np.errstate(all="ignore"):
            points = points[np.isfinite(f(points))]
            g = f
            for order, exact in enumerate(derivatives, 1):
                g = grad(lambda x, g=g: np.sum(g(x)), compile="never")
                found = np.broadcast_to(g(points), points.shape)
                check(points, found, exact, (name, order))


def test_compiled_tails() -> None:
    """The same of kernels, all on one tape."""
    names = ["tanh", "expit", "log_expit", "expm1", "logaddexp", "log1p(exp(x))", "arctan"]
    rows = [{**TABLE, **COMPOSED}[name][0] for name in names]
    x = np.array([-300.0, -37.4, -20.0, -1.0, 1e-9, 1.0, 20.0, 37.4, 40.0, 300.0])
    xs = [x] * len(rows)

    def first(*xs: Any) -> Any:
        each = zip(rows, xs, strict=True)
        return [grad(lambda x, f=row[0]: np.sum(f(x)))(x) for row, x in each]

    def total(*xs: Any) -> Any:
        return sum(np.sum(g) for g in first(*xs))

    found = grad(total, argnums=tuple(range(len(xs))), compile="always")(*xs)
    for name, row, g in zip(names, rows, found, strict=True):
        check(x, g, row[2], name)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_hypot_of_two_numbers_that_have_no_squares(compile: str) -> None:
    """First and second derivatives of w r at (4s, 3s), where r is 5s, whatever the sizes of s and
    w; and where both y and what is across is 0."""
    s, w = (a.ravel() for a in np.meshgrid(2.0 ** np.array([-1018, -600, 0, 600, 1018]), [1e-9, 1]))

    def weighted(x: Any, y: Any, w: Any) -> Any:
        return np.sum(w * np.hypot(x, y))

    def slopes(x: Any, y: Any, w: Any) -> Any:
        by_x, by_y = grad(weighted, (0, 1), compile="never")(x, y, w)
        return np.sum(2 * by_x + 3 * by_y)

    first = grad(weighted, (0, 1), compile=compile)(4 * s, 3 * s, w)
    np.testing.assert_allclose(first, [0.8 * w, 0.6 * w], rtol=1e-14)
    second = grad(slopes, (0, 1, 2), compile=compile)(4 * s, 3 * s, w)
    exact = [-18 / 125 * w / s, 24 / 125 * w / s, np.full_like(s, 3.4)]
    np.testing.assert_allclose(second, exact, rtol=1e-13)
    along = grad(grad(np.hypot, compile="never"), compile=compile)(1e-310, 0.0)
    assert (float(along), float(grad(np.hypot, compile=compile)(1e-310, 0.0))) == (0.0, 1.0)


ENDS: dict[str, tuple[Any, Any, tuple[float, ...]]] = {
    "spence": (sp.spence, lambda x: mp.polylog(2, 1 - x), (1e-100, 1e-17, 0.3, 0.9, 1.1, 1e8)),
    "ellipkm1": (sp.ellipkm1, lambda p: mp.ellipk(1 - p), (1e-100, 1e-17, 0.3, 0.9, 5.0, 1e8)),
    "ellipk": (sp.ellipk, mp.ellipk, (-1e12, -5.0, -1.5, 1e-10, 0.9)),
    "ellipe": (sp.ellipe, mp.ellipe, (-1e12, -5.0, -1.5, 1e-10, 0.9)),
}


@pytest.mark.parametrize("name", ENDS)
def test_slopes_at_the_ends(name: str) -> None:
    """beside a logarithm's pole, and far out"""
    f, exact, points = ENDS[name]
    slope = grad(f, compile="never")
    bend = grad(slope, compile="never")
    for x in points:
        with mp.workdps(60):
            at, h = mp.mpf(x), mp.mpf(x) * mp.mpf(10) ** -15
            right = [float(mp.re(mp.diff(exact, at, order, h=h))) for order in (1, 2)]
        np.testing.assert_allclose([slope(x), bend(x)], right, rtol=1e-9, err_msg=f"{name} {x}")


NEAR_POLES: dict[str, tuple[Any, Any, tuple[float, ...]]] = {
    "beta(x, 2.3)": (
        lambda x: sp.beta(x, 2.3),
        lambda x: mp.beta(x, mp.mpf(2.3)),
        (1e6, 1e8, -0.5, -1.99999999, -19.999999999),
    ),
    "beta(x, 3)": (lambda x: sp.beta(x, 3.0), lambda x: mp.beta(x, 3), (-3.00001, -20 + 1e-9)),
    "beta(x, x)": (lambda x: sp.beta(x, x), lambda x: mp.beta(x, x), (-0.5, -1.3, 50.0)),
    "gamma": (sp.gamma, mp.gamma, (-1.99999999, -20 + 1e-9, -50.2)),
    "gammaln": (sp.gammaln, lambda x: mp.log(abs(mp.gamma(x))), (-1.99999999, -20 + 1e-9)),
    "poch(x, 0.3)": (
        lambda x: sp.poch(x, 0.3),
        lambda x: mp.rf(x, mp.mpf(0.3)),
        (1e-10, -2 + 1e-8, -10.7, 1e6),
    ),
    "binom(x, 40)": (
        lambda x: sp.binom(x, 40.0),
        lambda x: mp.binomial(x, 40),
        (1e6, 200.7, 10.3, -0.5, -1.99999999),
    ),
    "binom(40, x)": (
        lambda x: sp.binom(40.0, x),
        lambda x: mp.binomial(40, x),
        (10.3, 50.0, 300.3, -0.7, -10.7),
    ),
    "binom(x, -1.99999999)": (
        lambda x: sp.binom(x, -1.99999999),
        lambda x: mp.binomial(x, mp.mpf(-1.99999999)),
        (-0.99999999, -7.2, -2.9999999, -2.5, 3.3),
    ),
    "binom(-1.999999999, x)": (
        lambda x: sp.binom(-1.999999999, x),
        lambda x: mp.binomial(mp.mpf(-1.999999999), x),
        (-4.999999999, -0.7, -30.4, 2.3),
    ),
    "binom(x, -0.999999999)": (
        lambda x: sp.binom(x, -0.999999999),
        lambda x: mp.binomial(x, mp.mpf(-0.999999999)),
        (5.0, 3.000000001),
    ),
    "beta(x, 30.2)": (lambda x: sp.beta(x, 30.2), lambda x: mp.beta(x, mp.mpf(30.2)), (1e5, 1e8)),
    "betaln(x, 3)": (
        lambda x: sp.betaln(x, 3.0),
        lambda x: mp.log(mp.beta(x, 3)),
        (1e-150, 0.99, 1.0, 11.9, 12.1, 1e5, 1e8, 1e15),
    ),
    "binom(1e8, x)": (
        lambda x: sp.binom(1e8, x),
        lambda x: mp.binomial(10**8, x),
        (-1.3,),
    ),
    "kl_div(x, 1e-300)": (
        lambda x: sp.kl_div(x, 1e-300),
        lambda x: x * mp.log(x / mp.mpf(1e-300)) - x,
        (1e-20, 1e10, 1e100),
    ),
}


@pytest.mark.every(8)
@pytest.mark.parametrize("name", NEAR_POLES)
def test_slopes_near_poles_of_gamma_and_far_from_them(name: str) -> None:
    """where formulas would be infinity less infinity, or 0 times infinity"""
    f, exact, points = NEAR_POLES[name]
    slope = grad(f, compile="never")
    bend = grad(slope, compile="never")
    for x in points:
        with mp.workdps(200):
            at, h = mp.mpf(x), abs(mp.mpf(x)) * mp.mpf(10) ** -60
            right = [float(mp.diff(exact, at, order, h=h)) for order in (1, 2)]
        np.testing.assert_allclose([slope(x), bend(x)], right, rtol=1e-9, err_msg=f"{name} {x}")


def test_the_far_end_of_zeta() -> None:
    """the rest of the sum is nothing, and nothing times infinity isn't asked for"""
    for f in (sp.zeta, sp.zetac, lambda s: sp.zeta(s, 2.5)):
        slope = grad(f, compile="never")
        assert (slope(1e20), slope(1e300), grad(slope, compile="never")(1e20)) == (0.0, 0.0, 0.0)
    assert slope(30.0) == pytest.approx(float(mp.zeta(30.0, 2.5, 1)), rel=1e-12)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_slopes_that_are_no_numbers_times_small_weights(compile: Any) -> None:
    """The slope of 1 / x at 1e-200 is -1e400, and that of 1e-100 / x is a number."""

    def f(x: Any, y: Any) -> Any:
        return np.sum(y * np.reciprocal(x)) + np.sum(y * x**-1)

    x, y = np.array([1e-200, -1e-160, 1e200]), np.array([1e-100, 1e-300, 1e300])
    found = grad(f, compile=compile)(x, y)
    np.testing.assert_allclose(found, -2 * (y / x) / x, rtol=1e-14)
    for p in (-0.5, -1.5, -2.0):
        found = grad(lambda x, p=p: 1e-300 * x**p, compile=compile)(1e-150)
        np.testing.assert_allclose(found, p * 1e-300 * 1e-150**p / 1e-150, rtol=1e-13)
    for log, scale in ((np.log2, np.log(2.0)), (np.log10, np.log(10.0)), (np.log, 1.0)):
        found = grad(lambda x, log=log: 1e-10 * log(x), compile="never")(1e-310)
        np.testing.assert_allclose(found, 1e-10 / 1e-310 / scale, rtol=1e-14)
