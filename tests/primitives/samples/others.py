"""Of what is like no other."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import mpmath
import numpy as np
import scipy.integrate
import scipy.linalg
import scipy.special as sp
from tests.primitives.samples.drawn import A, Reference, Sample, each, normal, positive, within
from tests.primitives.samples.elementwise import KINKED
from tests.primitives.samples.halves import of_halves
from tests.primitives.samples.products import of_products
from tests.primitives.samples.reductions import (
    arg,
    correlations,
    exact_sum,
    extremum,
    log_sum_exp,
    of_flags,
    of_prod,
    of_sum,
    recurrences,
    running,
    shares,
)

from tapegrad.primitives import elementwise as ew
from tapegrad.primitives import special
from tapegrad.primitives.beta import BetaDerivative
from tapegrad.primitives.contractions import Einsum
from tapegrad.primitives.correlation import Correlate
from tapegrad.primitives.extrema import Max, Min
from tapegrad.primitives.multilinear import Products
from tapegrad.primitives.named import Named
from tapegrad.primitives.odds import OddsCumulant, OddsDensity, OddsHeight, OddsSlope
from tapegrad.primitives.polygamma_differences import Rise
from tapegrad.primitives.ratios import RatioSlope
from tapegrad.primitives.reductions import (
    All,
    Any_,
    ArgMax,
    ArgMin,
    CumLinear,
    CumProd,
    CumSum,
    ExactSum,
    Prod,
    Sum,
)
from tapegrad.primitives.softmax import LogSoftmax, LogSumExp, Softmax
from tapegrad.primitives.sorting import ArgPartition, ArgSort, SearchSorted
from tapegrad.primitives.special_gamma import BetaDensity, GammaDensity, ParameterSlope
from tapegrad.primitives.special_integrals import Carlson
from tapegrad.primitives.special_polynomials import Chebyshev


def carlson(s: Any, m: Any, q: int) -> Any:
    """Moments of sin(t)^2 (DLMF 19.25.14)."""
    ends = (1.0, 1 - m * s * s) if q == 3 else (1 - m * s * s, 1.0)
    return s**3 / 3 * sp.elliprd(1 - s * s, *ends)


@np.vectorize(excluded={0, 1})
def carlson_by_quadrature(power: int, twice: tuple[int, ...], *xs: complex) -> Any:
    def integrand(t: float) -> Any:
        powers = [(t + x) ** (-b / 2) for b, x in zip(twice, xs, strict=True)]
        return t**power * math.prod(powers)

    real = not any(isinstance(x, complex) for x in xs)
    options = {"epsabs": 0, "epsrel": 1e-11, "complex_func": not real}
    return scipy.integrate.quad(integrand, 0, np.inf, **options)[0]


def chebyshev_slope(order: int, n: Any, x: Any) -> Any:
    t = np.arccos(x)
    if order == 1:
        return np.sin(n * t) / np.sin(t)
    return (np.sin(n * t) / np.tan(t) - n * np.cos(n * t)) / np.sin(t) ** 2


def rise(n: int, x: float, h: float) -> float:
    """What psi_n rises by; from 1 on, less what its leading term does."""
    y, z = mpmath.mpf(x), mpmath.mpf(x) + h
    whole = mpmath.psi(n, z) - mpmath.psi(n, y)
    if min(y, z) < 1:
        return float(whole)
    if n == 0:
        return float(whole - mpmath.log(z / y))
    return float(whole + (-1) ** n * math.factorial(n - 1) * (z**-n - y**-n))


def of_other() -> dict[Any, list[Sample]]:
    flags = np.array([True, False])
    f4 = np.dtype(np.float32)
    ordered = np.array([0.5, 1.0, 1.0, 3.0])
    ties = np.array([[1.0, 0.0, 1.0], [np.nan, 2.0, -1.0]])
    return {
        Sum: list(of_sum()),
        ExactSum: list(exact_sum()),
        Prod: list(of_prod()),
        Max: list(extremum(Max, max, -np.inf)),
        Min: list(extremum(Min, min, np.inf)),
        LogSumExp: list(log_sum_exp()),
        Softmax: list(shares(Softmax, sp.softmax)),
        LogSoftmax: list(shares(LogSoftmax, sp.log_softmax)),
        Any_: list(of_flags(Any_, any)),
        All: list(of_flags(All, all)),
        ArgMax: list(arg(ArgMax, 1)),
        ArgMin: list(arg(ArgMin, -1)),
        CumSum: list(running(CumSum, lambda a, x: a + x)),
        CumProd: list(running(CumProd, lambda a, x: a * x)),
        CumLinear: list(recurrences()),
        Correlate: list(correlations()),
        Einsum: of_products(Einsum),
        Products: of_products(Products),
        ArgSort: [
            Sample(
                ArgSort(1),
                (A,),
                lambda x: np.array([sorted(range(4), key=row.__getitem__) for row in x]),
            ),
            Sample(
                ArgSort(0),
                (A,),
                lambda x: np.array([sorted(range(3), key=c.__getitem__) for c in x.T]).T,
            ),
            Sample(
                ArgSort(1, True),
                (ties,),
                lambda x: np.array([[1, 0, 2], [2, 1, 0]]),
                smooth=False,
                label="ties, nan",
            ),
        ],
        ArgPartition: [
            Sample(ArgPartition(axis, kth), (x,), lambda x, a=axis, k=kth: np.argpartition(x, k, a))
            for axis, kth, x in ((1, (1,), A), (0, (0, 2), A), (0, (0,), A[:0]))
        ],
        SearchSorted: [
            Sample(
                SearchSorted(r),
                (ordered, np.array([[0.0, 1.0], [2.0, 9.0]])),
                lambda a, v, r=r: np.array([[0, 3 if r else 1], [3, 4]]),
                smooth=False,
                label=f"right={r}",
            )
            for r in (False, True)
        ],
        Named: [
            Sample(Named("h"), (normal(2, 3),), lambda x: x),
            Sample(Named("h"), (normal(),), lambda x: x, label="scalar"),
        ],
        ew.AsType: [
            # Differences can't see a slope through the steps of float32.
            Sample(ew.AsType(f4), (normal(2, 3),), lambda x: x.astype("f4"), smooth=False),
            Sample(
                ew.AsType(np.dtype(float)),
                (normal(2, 3).astype("f4"),),
                lambda x: x.astype("f8"),
                smooth=False,
            ),
            Sample(ew.AsType(np.dtype(float)), (flags,), lambda x: np.array([1.0, 0.0])),
            Sample(ew.AsType(np.dtype(np.int64)), (normal(3),), each(int, np.int64)),
            Sample(ew.AsType(np.dtype(bool)), (KINKED,), each(bool, bool), smooth=False),
            Sample(ew.AsType(f4), (normal(),), lambda x: np.float32(x), smooth=False),
        ],
        **of_halves(),
        special.BesselI: [
            Sample(
                special.BesselI(n, scaled),
                (normal(2, 3),),
                lambda x, n=n, scaled=scaled: _bessel_series(n, x) * np.exp(-abs(x) * scaled),
            )
            for n in (0, 1, 2)
            for scaled in (False, True)
        ],
        ParameterSlope: [
            Sample(
                ParameterSlope(of, orders),
                (within(*bounds)(3), *[positive(2, 3, seed=k) for k in range(more)], x),
                _slope_by_differences(of, orders),
                label=f"{of} {orders}",
            )
            for of, orders, bounds, more, x in (
                ("gammainc", (1,), (0.5, 2), 0, positive(2, 3)),
                ("gammainc", (2,), (0.5, 2), 0, positive(2, 3)),
                ("betainc", (1, 0), (0.5, 2), 1, within(0.1, 0.9)(2, 3)),
                ("betainc", (1, 1), (0.5, 2), 1, within(0.1, 0.9)(2, 3)),
                ("zeta", (1,), (1.5, 3), 0, positive(2, 3)),
            )
        ],
        BetaDerivative: [
            Sample(
                BetaDerivative(orders),
                (positive(3), positive(2, 3, seed=1)),
                _by_differences(mpmath.beta, orders),
                label=str(orders),
            )
            for orders in ((0, 0), (1, 0), (1, 1), (2, 1))
        ],
        Carlson: [
            Sample(
                Carlson(power, twice),
                (positive(3), positive(2, 3, seed=1), positive(2, 3, seed=2)),
                lambda *xs, power=power, twice=twice: carlson_by_quadrature(power, twice, *xs),
                label=f"{power} {twice}",
            )
            for power, twice in ((0, (3, 1, 3)), (0, (1, 1, 5)), (1, (3, 1, 1)))
        ],
        Chebyshev: [
            Sample(
                Chebyshev(order),
                (np.array([3, 5, -2]), within(-0.9, 0.9)(2, 3)),
                lambda n, x, order=order: chebyshev_slope(order, n, x),
                label=str(order),
                fixed=(0,),
            )
            for order in (1, 2)
        ],
        GammaDensity: [
            Sample(
                GammaDensity(fall),
                (positive(3), positive(2, 3, seed=1)),
                lambda a, x, fall=fall: x ** (a - 1 - fall) * np.exp(-x) / sp.gamma(a),
            )
            for fall in (-1, 0, 1)
        ],
        BetaDensity: [
            Sample(
                BetaDensity(i, j),
                (positive(3), positive(2, 3, seed=1), within(0.1, 0.9)(2, 3)),
                lambda a, b, x, i=i, j=j: x ** (a - 1 - i) * (1 - x) ** (b - 1 - j) / sp.beta(a, b),
            )
            for i, j in ((-1, -1), (0, 0), (1, 2))
        ],
        **{
            kind: [
                Sample(
                    kind(orders),
                    (positive(3), positive(2, 3, seed=1), normal(2, 3, seed=2)),
                    _by_differences(function, (*orders, 0, 0, 0)[:3]),
                    label=str(orders),
                )
                for orders in rows
            ]
            for kind, function, rows in (
                (OddsDensity, _odds_density, [()]),
                (OddsHeight, lambda *xs: mpmath.log(_odds_density(*xs)), [()]),
                (
                    OddsCumulant,
                    lambda *xs: mpmath.log(_odds_density(*xs)),
                    [(1, 0, 0), (0, 1, 0), (1, 1, 0), (2, 0, 1), (0, 0, 2)],
                ),
            )
        },
        OddsSlope: [
            Sample(
                OddsSlope(orders, over),
                (positive(3), positive(2, 3, seed=1), normal(2, 3, seed=2)),
                _by_differences(_odds_share, (*orders, 0), _odds_density if over else None),
                label=f"{orders} {over}",
            )
            for orders, over in (((1, 0), False), ((1, 1), False), ((0, 1), False), ((1, 0), True))
        ],
        RatioSlope: [
            Sample(
                RatioSlope(order),
                (np.array([1.5, 12.0, 3.0]), normal(2, 3, seed=2)),
                each(partial(_share_over_density, order)),
                label=str(order),
            )
            for order in (1, 2)
        ],
        Rise: [
            Sample(
                Rise(n),
                (positive(3), positive(2, 3, seed=1) * scale),
                each(partial(rise, n)),
                label=f"{n} {scale}",
            )
            for n in (0, 1, 2)
            for scale in (0.1, 1.0)
        ],
        special.Polygamma: [
            Sample(
                special.Polygamma(n),
                (positive(2, 3),),
                lambda x, n=n: (-1.0) ** (n + 1) * math.factorial(n) * sp.zeta(n + 1, x),
            )
            for n in (1, 2)
        ],
    }


def _by_differences(
    function: Callable[..., Any], orders: tuple[int, ...], over: Callable[..., Any] | None = None
) -> Reference:
    def slope(*xs: float) -> float:
        with mpmath.workdps(50):
            return float(mpmath.diff(function, xs, orders) / (over(*xs) if over else 1))

    return each(slope)


def _odds_share(a: Any, b: Any, d: Any) -> Any:
    odds = a / b * mpmath.exp(d)
    return mpmath.betainc(a, b, 0, odds / (1 + odds), regularized=True)


def _odds_density(a: Any, b: Any, d: Any) -> Any:
    odds = a / b * mpmath.exp(d)
    return odds**a * (1 + odds) ** -(a + b) / mpmath.beta(a, b)


def _share_over_density(order: int, s: float, d: float) -> float:
    with mpmath.workdps(50):

        def share(s: Any, d: Any) -> Any:
            return mpmath.gammainc(s, 0, s * mpmath.exp(d), regularized=True)

        return float(mpmath.diff(share, (s, d), (order, 0)) / mpmath.diff(share, (s, d), (0, 1)))


def _slope_by_differences(of: str, orders: tuple[int, ...]) -> Reference:
    """The derivative in the first parameters, by differences of fifty digits."""
    functions: dict[str, Callable[..., Any]] = {
        "gammainc": lambda a, x: mpmath.gammainc(a, 0, x, regularized=True),
        "betainc": lambda a, b, x: mpmath.betainc(a, b, 0, x, regularized=True),
        "zeta": mpmath.zeta,
    }

    def slope(*xs: float) -> float:
        with mpmath.workdps(50):
            first, last = xs[: len(orders)], xs[len(orders)]
            along = lambda *p: functions[of](*p, last)  # noqa: E731
            one = len(orders) == 1
            found = mpmath.diff(along, first[0] if one else first, orders[0] if one else orders)
            return float(found)

    return each(slope)


def _bessel_series(n: int, x: Any) -> Any:
    terms = [(x / 2) ** (2 * k + n) / math.factorial(k) / math.factorial(k + n) for k in range(30)]
    return np.sum(terms, 0)
