"""Derivatives of functions of `scipy.special` at the ends of their ranges, where their formulas
cancel, overflow, or ask SciPy for numbers that it hasn't. mpmath works out the right ones."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

from tapegrad import grad, vjp
from tapegrad.errors import GradientError


def ratio(x: Any) -> Any:
    """The density over the distribution function of the normal distribution."""
    if x < -1e5:
        return -x - 1 / x + 2 / x**3
    return mp.npdf(x) / mp.ncdf(x)


def ratio_slope(x: Any) -> Any:
    return -1 + 1 / x**2 - 6 / x**4 if x < -1e5 else -ratio(x) * (x + ratio(x))


def sinch(x: Any) -> Any:
    return mp.sinh(x) / x


FAR: dict[str, tuple[Any, Any, tuple[float, ...]]] = {
    "powm1(x, 0.5)": (lambda x: sp.powm1(x, 0.5), lambda x: mp.sqrt(x) - 1, (1e-100, 1e-20)),
    "powm1(1e5, y)": (lambda y: sp.powm1(1e5, y), lambda y: mp.mpf(10) ** (5 * y) - 1, (-3.0, 1.0)),
    "spherical_in(1, x)": (
        lambda x: sp.spherical_in(1, x),
        lambda x: mp.sqrt(mp.pi / 2 / x) * mp.besseli(1.5, x),
        (1e-3, 0.5),
    ),
    "spherical_in(0, x)": (lambda x: sp.spherical_in(0, x), sinch, (1e-160, 1e-110, 0.5)),
    "spherical_in(2, x)": (
        lambda x: sp.spherical_in(2, x),
        lambda x: (1 + 3 / x**2) * sinch(x) - 3 * mp.cosh(x) / x**2,
        (-1e-160, 1e-110, 0.5),
    ),
    "elliprg(1, 3, z)": (
        lambda z: sp.elliprg(1.0, 3.0, z),
        lambda z: mp.elliprg(1, 3, z),
        (1e-3, 1e200, 1e300),
    ),
    "eval_sh_chebyt(2.8, x)": (
        lambda x: sp.eval_sh_chebyt(2.8, x),
        lambda x: mp.cos(mp.mpf(2.8) * mp.acos(2 * x - 1)),
        (1.4e-27, 2e-13, 1e-8, 0.3),
    ),
    "eval_sh_chebyu(160.6, x)": (
        lambda x: sp.eval_sh_chebyu(160.6, x),
        lambda x: mp.sin(mp.mpf(160.6 + 1) * mp.acos(2 * x - 1)) / mp.sin(mp.acos(2 * x - 1)),
        (1e-16, 2e-13, 1e-8),
    ),
    "poch(z, 3)": (lambda z: sp.poch(z, 3.0), lambda z: z * (z + 1) * (z + 2), (-5.0, -4.0)),
    "spherical_jn(2, x)": (
        lambda x: sp.spherical_jn(2, x),
        lambda x: mp.sqrt(mp.pi / 2 / x) * mp.besselj(2.5, x),
        (1e-150, 1e-3, 2.0),
    ),
}


@pytest.mark.parametrize("name", FAR)
def test_far_out(name: str) -> None:
    """Where SciPy's own numbers, or sums of slopes, have lost what counts."""
    f, exact, points = FAR[name]
    slope = grad(f, compile="never")
    bend = grad(slope, compile="never")
    for x in points:
        with mp.workdps(1200 if abs(x) < 1e-50 else 90):
            at, h = mp.mpf(x), abs(mp.mpf(x)) * mp.mpf(10) ** -20
            right = [float(mp.diff(exact, at, order, h=h)) for order in (1, 2)]
        np.testing.assert_allclose([slope(x), bend(x)], right, rtol=1e-9, err_msg=f"{name} {x}")


def test_parameters_without_a_derivative() -> None:
    """The error says of which function, and what to do."""
    asked: list[tuple[Any, str]] = [
        (lambda a: sp.hyp2f1(a, 1.0, 2.0, 0.3), "scipy.special.hyp2f1 has no derivative"),
        (grad(lambda x, a: sp.hyperu(a, 1.0, x), compile="never"), "scipy.special.hyperu has no"),
    ]
    for f, message in asked:
        along = grad(f if "hyp2f1" in message else lambda a, f=f: f(0.4, a), compile="never")
        with pytest.raises(GradientError, match=f"{message}.*parameter here.*defvjp"):
            along(1.5)


def test_the_logarithm_of_beta_of_equal_numbers() -> None:
    """The derivative along both comes by itself: of the sum of the partial ones nothing is left for
    large numbers."""
    slope = grad(lambda x: sp.betaln(x, x), compile="never")
    bend = grad(slope, compile="never")
    for x in (1e-100, 0.3, 1.0, 30.0, 1e6, 1e15, 1e100):
        with mp.workdps(250):
            low, high = ([mp.psi(n, k * x) for n in (0, 1)] for k in (1, 2))
            right = [float(2 * (low[0] - high[0])), float(2 * low[1] - 4 * high[1])]
        np.testing.assert_allclose([slope(x), bend(x)], right, rtol=1e-9, err_msg=str(x))


def test_the_inverse_of_the_logarithm_of_the_normal_distribution() -> None:
    """ndtri_exp(log_ndtr(x)) is x: so its slopes are known of the ratio of density and area."""
    slope = grad(sp.ndtri_exp, compile="never")
    bend = grad(slope, compile="never")
    for x in (-1e15, -1e8, -1e4, -100.0, -3.0, -0.5, 1.0, 5.0):
        with mp.workdps(60):
            at = mp.mpf(x)
            along, across = ratio(at), ratio_slope(at)
            right = [float(1 / along), float(-across / along**3)]
            y = float(sp.log_ndtr(x))
        np.testing.assert_allclose([slope(y), bend(y)], right, rtol=1e-9, err_msg=str(x))


def test_incomplete_functions_of_parameters_near_0() -> None:
    """There 1 / Gamma(a) is 0, and derivatives of its logarithm are infinite."""
    p = [grad(lambda a, x: sp.gammainc(a, x), compile="never")]
    p.append(grad(p[0], compile="never"))
    for a in (1e-300, 1e-20):
        for x in (1e-300, 0.5, 30.2):
            with mp.workdps(60):
                # Q(a, x) is a E_1(x) + a^2 (the integral of (log(t) + Euler's) e^-t / t) + ...
                e1, moment = mp.e1(x), mp.mpf(0)
                if x > 0.1:
                    parts = [mp.mpf(x), 1, 40, 200]
                    moment = mp.quad(lambda t: (mp.log(t) + mp.euler) * mp.exp(-t) / t, parts)
            np.testing.assert_allclose(p[0](a, x), float(-e1), rtol=1e-9, err_msg=f"{a} {x}")
            if x > 0.1:
                right = float(-2 * moment)
                np.testing.assert_allclose(p[1](a, x), right, rtol=1e-9, err_msg=f"{a} {x}")
    # I_x(a, 1) = x^a, and I_x(1, b) = 1 - (1 - x)^b
    slopes = grad(lambda a, b, x: sp.betainc(a, b, x), (0, 1), compile="never")
    for a in (1e-300, 1e-100, 1e-20, 1e-8, 0.3):
        for x in (1e-300, 1e-8, 0.3, 0.9):
            along = np.log(x) * np.exp(a * np.log(x))
            np.testing.assert_allclose(slopes(a, 1.0, x)[0], along, rtol=1e-9, err_msg=f"{a} {x}")
            if x < 1e-200:  # the density isn't a number any more
                continue
            along = -np.log1p(-x) * np.exp(a * np.log1p(-x))
            np.testing.assert_allclose(slopes(1.0, a, x)[1], along, rtol=1e-9, err_msg=f"{a} {x}")


def scaled_slopes(f: Any, name: str, x: Any, v: Any) -> tuple[Any, Any]:
    """The first and second derivatives of exp(g(x)) w(x), by the equation that w solves."""
    if f is sp.airye:
        turn, of = (1, mp.airyai) if name == "Ai" else (-1, mp.airybi)
        w, w1 = of(x), of(x, derivative=1)
        rate, bend, w2, scale = turn * mp.sqrt(x), turn / mp.sqrt(x) / 2, x * w, 2 * x / 3
    else:
        turn, of = (1, mp.besselk) if f is sp.kve else (-1, mp.besseli)
        w, scale, rate, bend = of(v, x), x, turn, 0
        w1 = -(of(v - 1, x) + of(v + 1, x)) / 2 * turn
        w2 = w * (1 + (v / x) ** 2) - w1 / x
    g = mp.exp(scale * rate)
    return g * (w1 + rate * w), g * (w2 + 2 * rate * w1 + (bend + rate**2) * w)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["Ai", "Bi", "kve", "ive"])
def test_scaled_functions_far_out(name: str) -> None:
    """Their slopes are differences of numbers that are nearly equal."""
    f = sp.airye if name in ("Ai", "Bi") else getattr(sp, name)
    part = {"Ai": 0, "Bi": 2}.get(name)
    for v in (0.0,) if f is sp.airye else (7.0,):
        slope = grad(lambda x, v=v: f(x)[part] if f is sp.airye else f(v, x), compile="never")
        bend = grad(slope, compile="never")
        for x in (12.0, 300.0, 1e4):
            with mp.workdps(40):
                right = [float(d) for d in scaled_slopes(f, name, mp.mpf(x), mp.mpf(v))]
            np.testing.assert_allclose([slope(x), bend(x)], right, rtol=1e-9, err_msg=f"{v} {x}")


def test_slopes_of_struve_functions_near_0_and_far_out() -> None:
    """The recurrence that doesn't cancel is taken, of those two for each order."""
    for f, turn in ((sp.struve, -1), (sp.modstruve, 1)):
        bend = grad(grad(lambda x, f=f: f(0.0, x), compile="never"), compile="never")
        np.testing.assert_allclose(bend(1e-30), turn * 4e-30 / (3 * np.pi), rtol=1e-12)
        for v, c in ((1.0, 4 / 3), (1.5, 0.0), (2.0, 0.0)):  # c of x, x^2.5 and x^2
            bend = grad(grad(lambda x, f=f, v=v: f(v, x), compile="never"), compile="never")
            np.testing.assert_allclose(bend(0.0), c / np.pi, rtol=1e-12)
    slope = grad(lambda x: sp.struve(2.0, x), compile="never")
    with mp.workdps(60):
        right = float(mp.diff(lambda x: mp.struveh(2, x), mp.mpf(1e4)))
    np.testing.assert_allclose(slope(1e4), right, rtol=1e-9)


def test_a_profile_without_a_normal_part_is_lorentz() -> None:
    """gamma / pi / (x^2 + gamma^2); along sigma its slope is sigma times the second one along x."""
    x, gamma = 0.7, 0.8
    square = x * x + gamma * gamma
    found = grad(sp.voigt_profile, (0, 1, 2), compile="never")(x, 0.0, gamma)
    along_x, along_gamma = -2 * x * gamma / square**2, (x * x - gamma * gamma) / square**2
    np.testing.assert_allclose(found, [along_x / np.pi, 0.0, along_gamma / np.pi], rtol=1e-13)
    second = gamma * (6 * x * x - 2 * gamma * gamma) / square**3 / np.pi
    for k in (0, 1):
        bend = grad(grad(sp.voigt_profile, k, compile="never"), k, compile="never")
        np.testing.assert_allclose(bend(x, 0.0, gamma), second, rtol=1e-13)


TIED = [
    (1 + 1j, 1 + 1j, 1 + 1j),
    (1 + 1j, 2.0, 1 + 1j),
    (-2 + 1e-2j, -2 + 1e-2j, 0.5 - 3j),
    (3j, 0.1 + 0j, 3j),
]


@pytest.mark.every(4)
@pytest.mark.parametrize("name", ["elliprf", "elliprd", "elliprg", "elliprc"])
def test_equal_complex_arguments_of_carlsons_integrals(name: str) -> None:
    """Differences of R_D over those of the arguments are 0 / 0 there."""
    f, exact, count = getattr(sp, name), getattr(mp, name), 2 if name == "elliprc" else 3
    for zs in (row[:count] for row in TIED):
        for k in range(count):

            def along(z: Any, g: Any, zs: Any = zs, k: int = k) -> Any:
                return g(*[z if j == k else other for j, other in enumerate(zs)])

            def slope(z: Any) -> Any:
                return vjp(lambda z: along(z, f), z)[1](1 + 0j)[0]

            at = complex(zs[k])
            found = [slope(at), vjp(slope, at)[1](1 + 0j)[0]]
            with mp.workdps(45):
                right = [
                    complex(mp.diff(lambda z: along(z, exact), mp.mpc(at), n, h=mp.mpf(10) ** -10))
                    for n in (1, 2)
                ]
            np.testing.assert_allclose(found, right, rtol=1e-10, err_msg=f"{zs} {k}")


def test_slopes_of_tricomis_function_of_large_parameters() -> None:
    """SciPy's numbers of such have four digits, or are NaN."""
    for a, b, x in ((30.0, 1.0, 2.0), (30.0, 30.0, 1.5), (120.5, 5.9, 13.3), (0.5, -20.0, 0.1)):
        g = lambda x, a=a, b=b: sp.hyperu(a, b, x)  # noqa: E731
        with mp.workdps(40):
            right = [float(mp.diff(lambda x: mp.hyperu(a, b, x), x, n)) for n in (1, 2, 3)]  # noqa: B023
        for exact in right:
            g = grad(g, compile="never")
            np.testing.assert_allclose(g(x), exact, rtol=1e-10)


def test_tricomis_function_at_the_ends_of_the_range() -> None:
    """U(5/2, 3/2, x) is Gamma(1/2) / Gamma(5/2) x^(-1/2) next to 0, and x^(-5/2) far out."""
    slope = grad(lambda x: np.sum(sp.hyperu(2.5, 1.5, x)), compile="never")
    found = slope(np.array([1e-100, 1.0, 1e300, 5e-324]))[:3]
    np.testing.assert_allclose(found, [-2 / 3 * 1e150, slope(np.ones(1))[0], 0.0], rtol=1e-10)


def test_inverses_that_have_underflowed() -> None:
    """The density at 0 is infinite there, and their slopes are as small as they are."""
    for f, xs in (
        (sp.gdtria, (0.3, 0.001, 2.0)),
        (sp.gdtrix, (2.0, 0.001, 0.3)),
        (sp.gammaincinv, (0.001, 0.3)),
        (sp.chdtri, (0.002, 0.7)),
        (sp.chndtrix, (0.5, 0.001, 0.1)),
    ):
        live = (0, 2) if f is sp.chndtrix else tuple(range(len(xs)))
        slopes = grad(f, live, compile="never")
        bends = [
            grad(lambda *a, k=k, g=slopes: g(*a)[k], live, compile="never")
            for k in range(len(live))
        ]
        np.testing.assert_array_equal([slopes(*xs), *[bend(*xs) for bend in bends]], 0)


def test_distributions_at_the_end_of_their_support() -> None:
    """gdtr(a, 1, x) is 1 - exp(-a x), gdtr(a, 2, x) is 1 - (1 + a x) exp(-a x)."""
    for a, b, x, first, second in ((0.0, 1.0, 2.0, 2.0, -4.0), (0.0, 2.0, 3.0, 0.0, 9.0)):
        along_a = grad(lambda a, b=b, x=x: sp.gdtr(a, b, x), compile="never")
        assert (along_a(a), grad(along_a, compile="never")(a)) == (first, second)
        along_x = grad(lambda a, b=b, x=x: sp.gdtr(x, b, a), compile="never")
        assert (along_x(a), grad(along_x, compile="never")(a)) == (first, second)


def test_second_derivatives_of_beta_beside_two_poles() -> None:
    """Squares of their distances come together there, and cancel."""
    x, y = -3.0 + 2.0**-20, 1e-9
    slopes = grad(sp.beta, (0, 1), compile="never")
    found = [grad(lambda *a, k=k: slopes(*a)[k], (0, 1), compile="never")(x, y) for k in (0, 1)]
    with mp.workdps(90):
        at = mp.mpf(x), mp.mpf(y)
        h = mp.mpf(10) ** -25
        right = [
            [float(mp.diff(mp.beta, at, (2 - k - j, k + j), h=h)) for j in (0, 1)] for k in (0, 1)
        ]
    np.testing.assert_allclose(found, right, rtol=1e-12)


SINGLE: dict[str, tuple[tuple[float, ...], ...]] = {
    "gammaincinv": ((4e-4, 0.96), (3.5e10, 0.39)),
    "gdtrib": ((1.46, 0.0125, 5e13),),
    "betainccinv": ((3.3e16, 9.3e-38, 4.3e-18),),
    "bdtrin": ((2e14, 3.4e-38, 0.062), (4e16, 0.034, 0.1)),
    "fdtr": ((1.3e26, 0.013, 408.0),),
    "poch": ((-11.0, 1.0), (0.3, 2.5)),
    "zetac": ((-42.0,), (-35.2,)),
    "erfcx": ((11.0,),),
    "i1e": ((39.0,), (-39.1,)),
    "k0e": ((44.0,),),
}


@pytest.mark.every(8)
@pytest.mark.parametrize("name", SINGLE)
def test_single_precision(name: str) -> None:
    """Formulas that overflow or cancel in single precision: the derivatives are those of double
    precision at the same numbers, rounded."""
    f = getattr(sp, name)
    for point in SINGLE[name]:
        xs = [np.array([x], np.float32) for x in point]
        live = tuple(range(len(xs)))
        found, right = [], []
        for into, at in ((found, xs), (right, [x.astype(float) for x in xs])):
            slopes = grad(lambda *xs: np.sum(f(*xs)), live, compile="never")
            into += slopes(*at)
            for k in live:
                into += grad(lambda *xs, k=k: np.sum(slopes(*xs)[k]), live, compile="never")(*at)  # noqa: B023
        for y, exact in zip(found, right, strict=True):
            assert y.dtype == np.float32
            if np.isfinite(exact) and abs(exact) < 3e38:
                np.testing.assert_allclose(y, exact, rtol=1e-6, atol=1e-37, err_msg=str(point))


def derivative_of_digamma(n: int, x: float) -> Any:
    slope = sp.digamma
    for _ in range(n):
        slope = grad(slope, compile="never")
    return slope(x)


def test_derivatives_of_digamma_far_left() -> None:
    """SciPy would count from there up to 0, one by one: for hours."""
    x = -1e12 - 0.25
    for n, right in ((1, 2 * np.pi**2), (2, 4 * np.pi**3)):
        np.testing.assert_allclose(derivative_of_digamma(n, x), right, rtol=1e-12)
    bend = grad(grad(sp.gammaln, compile="never"), compile="never")
    np.testing.assert_allclose(bend(x), 2 * np.pi**2, rtol=1e-12)


@pytest.mark.every(35)
@pytest.mark.parametrize("x", [0.0, 5e-324, 1e-310, 1e-300, 1e-160, 1e-8, 0.3])
@pytest.mark.parametrize("which", range(5))
def test_incomplete_functions_next_to_0_to_the_fifth_order(which: int, x: float) -> None:
    """P(n, x) and I_x(1, b) are elementary. There powers of 1 / x are infinite that are multiplied
    with 0."""

    def falling(b: float, order: int) -> float:
        """The derivative of 1 - (1 - x)^b."""
        factor = -((-1.0) ** order) * np.prod([b - k for k in range(order)])
        return float(factor * (1 - x) ** (b - order))

    e = np.exp(-x)
    known: list[tuple[Any, list[float]]] = [
        (lambda x: sp.gammainc(1.0, x), [e, -e, e, -e, e]),
        (lambda x: sp.gammaincc(1.0, x), [-e, e, -e, e, -e]),
        (
            lambda x: sp.gammainc(2.0, x),
            [x * e, *[(k - x) * (-1) ** (k + 1) * e for k in range(1, 5)]],
        ),
        (lambda x: sp.betainc(1.0, 2.5, x), [falling(2.5, k) for k in range(1, 6)]),
        (lambda x: sp.betainc(1.0, 1.0, x), [1.0, 0.0, 0.0, 0.0, 0.0]),
    ]
    f, right = known[which]
    found = []
    for _ in right:
        f = grad(f, compile="never")
        found.append(f(x))
    np.testing.assert_allclose(found, right, rtol=1e-10, atol=1e-300)


def test_incomplete_functions_of_subnormal_numbers() -> None:
    """Of parameters P(a, x) is x^a / Gamma(a + 1), and I_x(a, 1) is x^a."""
    for x in (5e-324, 1e-310, 1e-300):
        for a in (1e-310, 1e-5, 0.3):
            power, rate = np.exp(a * np.log(x)), np.log(x)
            along = [power * rate, power * rate**2]
            first = grad(lambda a, x: sp.betainc(a, 1.0, x), compile="never")
            second = grad(first, compile="never")
            np.testing.assert_allclose([first(a, x), second(a, x)], along, rtol=1e-10)
            with mp.workdps(40):
                z = mp.mpf(a) + 1
                p = mp.mpf(x) ** a / mp.gamma(z)
                right = float(p * (mp.log(mp.mpf(x)) - mp.psi(0, z)))
            slope = grad(lambda a, x: sp.gammainc(a, x), compile="never")(a, x)
            np.testing.assert_allclose(slope, right, rtol=1e-10, err_msg=f"{a} {x}")


def test_scaled_bessel_functions_of_any_order_at_0() -> None:
    """x^v is all that counts of I_v there, and SciPy has NaN where it is infinite."""
    for v, right in {
        0.5: [np.inf],
        1.5: [0.0, np.inf],
        2.5: [0.0, 0.0, np.inf],
        2.0: [0.0, 0.25],
    }.items():
        f = lambda x, v=v: sp.ive(v, x)  # noqa: E731
        found = []
        for _ in right:
            f = grad(f, compile="never")
            found.append(f(0.0))
        np.testing.assert_array_equal(found, right, err_msg=str(v))


@pytest.mark.parametrize("n", [1.5, 2.8])
def test_what_is_lost_next_to_0_is_lost_in_the_value(n: float) -> None:
    """Of small x, 2 x - 1 is rounded: SciPy's value is that of another x, and so is the slope."""
    slope = grad(lambda x: sp.eval_sh_legendre(n, x), compile="never")
    rate = np.sin(n * np.pi) / np.pi  # of the logarithm of x, which is all that counts there
    rest = 2 * np.euler_gamma + 2 * sp.digamma(n + 1) + np.pi / np.tan(n * np.pi)
    xs = np.logspace(-13, -11, 20)
    by_value = np.abs(sp.eval_sh_legendre(n, xs) - rate * (np.log(xs) + rest))
    by_slope = np.abs([slope(x) * x - rate for x in xs])
    assert 1e-6 < np.max(by_slope) <= 2 * np.max(by_value)
