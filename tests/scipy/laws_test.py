"""First and second derivatives of distributions keep their digits to both ends of the support.

Laws are formulas of an exponential number: h(X) rises, or falls, and is one. mpmath works out their
probabilities to some hundred digits, and derivatives by differences. Points are the worst that a
sweep over all sizes of arguments and parameters has found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from tests.primitives.ranges_test import differences, of_inverse
from tests.primitives.references import Inverse

from tapegrad import grad, value_and_grad

Point = tuple[float, ...]


def softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x))


# By the law's name: log(h), whether h rises, and points.
EXPONENTIAL: dict[str, tuple[Callable[..., Any], bool, list[Point]]] = {
    "weibull_min": (
        lambda x, c: c * mp.log(x),
        True,
        [(4.1e-69, 0.43), (8e-89, 0.121), (3.0, 2.0)],
    ),
    "weibull_max": (lambda x, c: c * mp.log(-x), False, [(-4e-69, 0.43), (-41.9, 1e-3)]),
    "invweibull": (lambda x, c: -c * mp.log(x), False, [(1e10, 0.43), (188.6, 1e-3)]),
    "rayleigh": (lambda x: 2 * mp.log(x) - mp.log(2), True, [(1.5e-9,), (1e-70,), (5.0,)]),
    "gompertz": (lambda x, c: mp.log(c) + mp.log(mp.expm1(x)), True, [(2e-45, 0.48), (9.0, 1e-6)]),
    "fisk": (
        lambda x, c: mp.log(softplus(-c * mp.log(x))),
        False,
        [(0.6, 727.3), (0.998, 259299.0), (2e-44, 4.27), (3.3e22, 0.54), (0.247, 1e-3)],
    ),
    "burr12": (
        lambda x, c, d: mp.log(d) + mp.log(softplus(c * mp.log(x))),
        True,
        [(1e-21, 2.67, 0.09), (8e-10, 9e-5, 1e-5), (1e40, 2.0, 3.0)],
    ),
    "genlogistic": (lambda x, c: mp.log(c) + mp.log(softplus(-x)), False, [(71.2, 1.7), (-9.0, 3)]),
    "exponweib": (
        lambda x, a, c: mp.log(a) + mp.log(-mp.log1p(-mp.exp(-(x**c)))),
        False,
        [(2.96, 0.056, 2.36), (1e-9, 2.0, 1.5), (8.0, 3.0, 1.2)],
    ),
    "lomax": (lambda x, c: mp.log(c) + mp.log(mp.log1p(x)), True, [(5.7e-11, 20.7), (1e30, 2.0)]),
    "powerlaw": (
        lambda x, a: mp.log(a) + mp.log(-mp.log(x)),
        False,
        [(0.99999994, 0.21), (1e-9, 3)],
    ),
}


def probability(log_h: Callable[..., Any], rises: bool, name: str) -> Callable[..., Any]:
    def exact(*xs: Any) -> Any:
        small = mp.exp(-mp.exp(log_h(*xs)))
        if (name[-2:] == "df") == rises:
            found = 1 - small
        else:
            found = small
        return mp.log(found) if name.startswith("log") else found

    return exact


def density(log_h: Callable[..., Any]) -> Callable[..., Any]:
    """|h'| exp(-h)."""

    def exact(x: Any, *shapes: Any) -> Any:
        level = log_h(x, *shapes)
        slope = mp.diff(lambda x: log_h(x, *shapes), x, h=abs(x) * mp.mpf(10) ** -90)
        return abs(slope) * mp.exp(level - mp.exp(level))

    return exact


def check(f: Any, point: Point, right: dict[Any, Any], label: Any) -> None:
    live = tuple(range(len(point)))
    slopes = grad(f, live, compile="never")
    found = slopes(*point)
    for i in live:
        np.testing.assert_allclose(found[i], float(right[i]), rtol=1e-10, err_msg=f"{label} {i}")
        bends = grad(lambda *xs, i=i: slopes(*xs)[i], live, compile="never")(*point)
        for j in live:
            exact = float(right[min(i, j), max(i, j)])
            if abs(exact) > 1e-300:
                err = f"{label} {i} {j}"
                np.testing.assert_allclose(bends[j], exact, rtol=1e-10, err_msg=err)


@pytest.mark.every(4)
@pytest.mark.parametrize("method", ["pdf", "cdf", "sf", "logcdf", "logsf"])
@pytest.mark.parametrize("name", EXPONENTIAL)
def test_laws_of_exponential_numbers(name: str, method: str) -> None:
    log_h, rises, points = EXPONENTIAL[name]
    f = getattr(stats, name)
    exact = density(log_h) if method == "pdf" else probability(log_h, rises, method)
    for point in map(tuple, np.array(points, float).tolist()):
        with mp.workdps(400):
            xs = [mp.mpf(x) for x in point]
            if abs(exact(*xs)) < 1e-300:
                continue
            right = differences(exact, xs, [*range(len(xs))], 30, 0)
        check(getattr(f, method), point, right, (name, method, point))


QUANTILES: list[tuple[str, str, Point]] = [
    ("genlogistic", "isf", (2.8e-8, 0.48)),
    ("gompertz", "isf", (1.8e-4, 2.7e-6)),
    ("gompertz", "ppf", (1.66e-91, 10.57)),
    ("fisk", "ppf", (1.6e-100, 29.0)),
    ("lomax", "isf", (1e-90, 20.0)),
    ("powerlaw", "isf", (1.7e-7, 1.3e-8)),
    ("powerlaw", "isf", (2e-10, 0.088)),
]


@pytest.mark.parametrize(("name", "method", "point"), QUANTILES)
def test_quantiles_of_exponential_numbers(name: str, method: str, point: Point) -> None:
    log_h, rises, _ = EXPONENTIAL[name]
    side = probability(log_h, rises, "cdf" if method == "ppf" else "sf")
    out = float(getattr(getattr(stats, name), method)(*point))
    with mp.workdps(400):
        xs = [mp.mpf(x) for x in point]
        right = of_inverse(Inverse(side, 0, 0), xs, [*range(len(xs))], out, 30, 0)
    check(getattr(getattr(stats, name), method), point, right, (name, method, point))


# By the law's name: its distribution function, and points of methods.
BETWEEN: dict[str, tuple[Callable[..., Any], dict[str, list[Point]]]] = {
    "reciprocal": (
        lambda x, a, b: mp.log(x / a) / mp.log(b / a),
        {
            "cdf": [(0.31966627, 0.28687, 0.319666271), (5.0, 5.0 - 1e-9, 70.0)],
            "sf": [(3919.7243, 0.38, 3919.7245), (4138.2, 4138.2 - 1e-9, 9e9)],
            "ppf": [(8.5e-26, 5.6, 19.1)],
            "isf": [(8.3e-9, 24.9, 25.54)],
        },
    ),
    "truncexpon": (
        lambda x, b: mp.expm1(-x) / mp.expm1(-b),
        {"cdf": [(5.8e-124, 15.6), (2.0, 40.0)], "sf": [(5.8e-124, 15.6), (14.7467, 77.6)]},
    ),
    "triang": (
        lambda x, c: x * x / c if x < c else 1 - (1 - x) ** 2 / (1 - c),
        {
            "sf": [(1 - 6e-12, 0.109), (1e-9, 0.5)],
            "cdf": [(6e-8, 1.2e-8)],
            "isf": [(2.3e-7, 1.9e-5)],
        },
    ),
    "skewcauchy": (
        lambda x, a: (
            (1 - a) / 2 + (1 - a * mp.sign(-x)) * mp.atan(x / (1 - a * mp.sign(-x))) / mp.pi
        ),
        {
            "cdf": [(-178761.1, 0.645), (-1e30, 0.2)],
            "sf": [(2.6e16, 0.588)],
            "ppf": [(7.4e-8, -0.805)],
            "isf": [(3.3e-12, -0.085)],
        },
    ),
    "wrapcauchy": (
        lambda x, c: mp.atan((1 + c) / (1 - c) * mp.tan(x / 2)) / mp.pi + int(x > mp.pi),
        {"sf": [(6.2831, 0.3)], "isf": [(2.6e-8, 0.219)]},
    ),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_laws_between_two_ends(name: str) -> None:
    below, rows = BETWEEN[name]
    for method, points in rows.items():
        f = getattr(getattr(stats, name), method)
        for point in points:
            with mp.workdps(400):
                upper = method in ("sf", "isf")
                side = (lambda *xs: 1 - below(*xs)) if upper else below
                xs, live = [mp.mpf(x) for x in point], [*range(len(point))]
                if method in ("ppf", "isf"):
                    right = of_inverse(Inverse(side, 0, 0), xs, live, float(f(*point)), 30, 0)
                else:
                    right = differences(side, xs, live, 30, 0)
            check(f, point, right, (name, method, point))


def test_both_sides_of_even_densities() -> None:
    """-X has the same law: an upper quantile is minus a lower one, and 1 - q isn't formed."""
    slope = grad(stats.anglit.isf, compile="never")
    for q in (1e-6, 1e-40, 1e-200):
        np.testing.assert_allclose(slope(q), -0.5 / np.sqrt(q) / np.sqrt(1 - q), rtol=1e-12)
    bend = grad(grad(stats.semicircular.isf, compile="never"), compile="never")
    low = grad(grad(stats.semicircular.ppf, compile="never"), compile="never")
    assert bend(1e-7) == -low(1e-7)


@pytest.mark.parametrize("law", [stats.f, stats.betaprime], ids=["f", "betaprime"])
@pytest.mark.parametrize("point", [(1e290, 5.0, 0.02), (1e-30, 3.0, 2.0)])
def test_probabilities_of_odds(law: Any, point: Point) -> None:
    """x / (1 + x) is 1 far out, and its complement next to 0."""
    for method, sign in (("cdf", 1), ("sf", -1)):
        value, slope = value_and_grad(getattr(law, method), compile="never")(*point)
        np.testing.assert_allclose(value, getattr(law, method)(*point), rtol=1e-13)
        np.testing.assert_allclose(slope, sign * law.pdf(*point), rtol=1e-9)
