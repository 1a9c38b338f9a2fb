"""What the table of names doesn't hold of scipy.special: edges, refused arguments, accuracy."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

from tapegrad import grad, jit, stop_gradient, value_and_grad, vjp
from tapegrad.errors import GradientError
from tapegrad.primitives.incomplete import beta_slope, gamma_slope

INF, NAN = np.inf, np.nan
EDGES = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0.5, 2.5, -2.5, 3.0])
ROWS = np.array([[1, 2, 3], [-INF] * 3, [INF, 1, 2], [NAN, 1, 2], [1e3, -1e3, 1e3], [0, -50, -90]])
WEIGHTS = np.array([[1, -2, 0.5], [1, 1, 1], [1, -1, 0], [0, 1, 1], [1, 1, -1], [1, 1, 1]])

FUNCTIONS: dict[str, Any] = {
    "softmax": lambda x: special.softmax(x),
    "log_softmax": lambda x: special.log_softmax(x),
    "softplus": lambda x: special.softplus(x),
    "factorial": lambda x: special.factorial(x),
    "zeta": lambda x: special.zeta(x),
    "hurwitz": lambda x: special.zeta(x + 2, 3),
    "lambertw": lambda x: special.lambertw(x, -1),
    "polygamma": lambda x: special.polygamma(2, x),
    "comb": lambda x: special.comb(x, 2) + special.comb(4, x),
    "repeated": lambda x: special.comb(x, 2, repetition=True),
    "perm": lambda x: special.perm(5, x),
    "jvp": lambda x: special.jvp(1, x, 2),
    "sph_harm_y": lambda x: special.sph_harm_y(2, 1, x, 0.3),
    "spherical": lambda x: special.spherical_kn(2, x, derivative=True),
    "diric": lambda x: special.diric(2 * np.pi * x, 4),
    "airy": lambda x: special.airy(x)[3],
    "kelvin": lambda x: special.kelvin(x)[0],
    "boxcox": lambda x: special.boxcox(x, EDGES[:, None]),
    "inv_boxcox1p": lambda x: special.inv_boxcox1p(x, EDGES[:, None]),
}


def same(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    digits = 1e-6 if np.finfo(expected.dtype).bits == 32 else 3e-14
    np.testing.assert_allclose(found, expected, rtol=digits, atol=digits / 10)


@pytest.mark.every(8)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_scipys(name: str) -> None:
    f = FUNCTIONS[name]
    for x in (EDGES, EDGES.astype("f4"), EDGES.reshape(1, -1)[:, ::2], np.float64(0.5)):
        same(vjp(lambda x: f(x), x)[0], f(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)])
def test_logsumexp_is_scipys(axis: Any) -> None:
    """Values at infinities, of weights of either sign, in single precision."""

    def compared(x: Any, **options: Any) -> None:
        found = vjp(lambda x: special.logsumexp(x, axis, **options), x)[0]
        expected = special.logsumexp(x, axis, **options)
        signed = isinstance(expected, tuple)
        for a, b in zip(found, expected, strict=True) if signed else [(found, expected)]:
            same(a, b)

    for x in (ROWS, ROWS.astype("f4"), ROWS[:, :0] if axis in (0, -1) else ROWS):
        compared(x)
        compared(x, keepdims=True)
    for signed in (False, True):
        compared(ROWS, b=WEIGHTS, return_sign=signed)
        compared(ROWS, b=WEIGHTS[:1], return_sign=signed, keepdims=True)


def test_what_is_left_of_a_sum_is_exact() -> None:
    """log(1 + 1e-40) is 1e-40."""
    x = np.array([0.0, np.log(1e-40)])
    ways: Any = ((lambda x: special.logsumexp(x), "always"),)
    ways += ((lambda x: special.logsumexp(x, b=np.ones(2)), "never"),)
    for f, how in ways:
        value, slope = value_and_grad(f, compile=how)(x)
        np.testing.assert_allclose(value, 1e-40)
        np.testing.assert_allclose(slope, [1, 1e-40])


# ---- arguments without a derivative


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda v: special.jv(v, 0.5), "special.jv .* the order"),
        (lambda a: special.hyp1f1(a, 1.5, 0.5), "special.hyp1f1 .* a parameter"),
        (lambda n: special.eval_legendre(n, 0.5), "special.eval_legendre .* the degree"),
        (lambda v: special.chndtr(2.0, v, 1.0), "special.chndtr .* degrees of freedom"),
    ],
)
def test_an_argument_without_a_derivative_is_refused_alone(f: Any, words: str) -> None:
    with pytest.raises(GradientError, match=words):
        grad(f)(1.5)
    assert grad(lambda v: f(stop_gradient(v)) * v)(1.5) == f(1.5)
    assert grad(lambda v: f(np.floor(v)) * v)(1.5) == f(1.0)


def test_an_order_may_be_traced_where_nothing_is_asked_of_it() -> None:
    f = value_and_grad(lambda v, x: special.jv(v, x) + special.yn(3, x), argnums=1)
    for v in (1.5, 2.5):
        value, slope = f(v, 0.7)
        assert value == special.jv(v, 0.7) + special.yn(3, 0.7)
        np.testing.assert_allclose(slope, special.jvp(v, 0.7) + special.yvp(3, 0.7))
    slope = grad(lambda n, x: special.eval_chebyt(n, x), argnums=1)(3, 0.3)
    np.testing.assert_allclose(slope, 3 * special.eval_chebyu(2, 0.3))


def test_an_array_of_orders_is_read_at_each_call() -> None:
    orders = np.array([0.3, 1.2])
    slope = grad(lambda x: np.sum(special.jvp(orders, x, 2)))
    for _ in range(2):
        orders += 1
        np.testing.assert_allclose(slope(0.7), np.sum(special.jvp(orders, 0.7, 3)), rtol=1e-12)


def test_a_ufunc_of_the_same_name_is_another_function() -> None:
    zeta = np.frompyfunc(lambda x: x * 0 + 7.0, 1, 1)
    own = type("Own", (), {"zeta": zeta})
    assert np.all(vjp(lambda x: own.zeta(x).astype(float), np.ones(2))[0] == 7)


# ---- accuracy of what SciPy doesn't have


@pytest.mark.parametrize("a", [1e-2, 0.5, 3.3, 47.0, 5e3])
def test_the_slope_of_gammainc_in_its_shape(a: float) -> None:
    """Against differences of fifty digits, on both sides of the mean and far out."""
    for ratio in (1e-6, 0.3, 0.97, 1.0, 1.3):
        x = a * ratio
        with mpmath.workdps(50):
            p = lambda a, x=x: mpmath.gammainc(a, 0, x, regularized=True)  # noqa: E731
            expected = float(mpmath.diff(p, a, h=mpmath.mpf(10) ** -12 * a))
        tolerance = 1e-10 if ratio == 1.3 and a == 5e3 else 2e-12
        if abs(expected) > 1e-30:
            np.testing.assert_allclose(gamma_slope(1, a, x), expected, rtol=tolerance)


@pytest.mark.parametrize("a", [1e-2, 0.5, 2.7, 300.0])
@pytest.mark.parametrize("b", [0.1, 5.0, 1000.0])
def test_the_slopes_of_betainc_in_its_shapes(a: float, b: float) -> None:
    for x in (a / (a + b) * 0.5, a / (a + b), (2 * a + b) / (2 * a + 2 * b)):
        with mpmath.workdps(40):
            p = lambda a, b, x=x: mpmath.betainc(a, b, 0, x, regularized=True)  # noqa: E731
            h = mpmath.mpf(10) ** -12 * min(a, b)
            for orders in ((1, 0), (0, 1)):
                expected = float(mpmath.diff(p, (a, b), orders, h=h))
                if abs(expected) > 1e-20:
                    found = beta_slope(*orders, a, b, x)
                    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_slopes_at_the_ends() -> None:
    assert gamma_slope(1, 2.0, 0.0) == 0
    assert gamma_slope(1, 2.0, INF) == 0
    assert np.isnan(gamma_slope(1, -1.0, 2.0))
    assert beta_slope(1, 0, 2.0, 3.0, 0.0) == beta_slope(0, 1, 2.0, 3.0, 1.0) == 0
    assert np.isnan(beta_slope(1, 0, 2.0, 3.0, 1.5))
    slopes = grad(lambda a: np.sum(special.gammainc(a, np.array([0.0, 2.0]))))(np.float32(2))
    assert slopes.dtype == np.float32


def test_binomials_have_slopes_where_they_are_zero() -> None:
    """1 / Gamma is smooth at the poles of Gamma."""
    found = grad(lambda n: special.binom(n, 4))(2.0)
    expected = (special.binom(2 + 1e-6, 4) - special.binom(2 - 1e-6, 4)) / 2e-6
    np.testing.assert_allclose(found, expected, rtol=1e-8)


SPECIAL_POINTS: dict[str, tuple[Any, float, float, float]] = {  # with the first two derivatives
    "1 / Gamma at a pole": (lambda x: special.rgamma(x), 0.0, 1.0, 2 * np.euler_gamma),
    "J_0": (lambda x: special.jv(0, x), 0.0, 0.0, -0.5),
    "j_1": (lambda x: special.spherical_jn(1, x), 0.0, 1 / 3, 0.0),
    "bei'": (lambda x: special.beip(x), 0.0, 0.5, 0.0),
    "Si": (lambda x: special.sici(x)[0], 0.0, 1.0, 0.0),
    "dilogarithm": (lambda x: special.spence(x), 1.0, -1.0, 0.5),
    "Dirichlet's kernel": (lambda x: special.diric(x, 3), 0.0, 0.0, -2 / 3),
    "P(2, x)": (lambda x: special.gammainc(2.0, x), 0.0, 0.0, 1.0),
    "I_x(3, 2)": (lambda x: special.betainc(3.0, 2.0, x), 1.0, 0.0, -12.0),
    "Student's t": (lambda x: special.stdtr(1.0, x), 0.0, 1 / np.pi, 0.0),
    "Box and Cox": (lambda p: special.boxcox(np.e, p), 0.0, 0.5, 1 / 3),
    "K": (lambda m: special.ellipk(m), 0.0, np.pi / 8, 9 * np.pi / 64),
    "F(pi / 2, m)": (lambda m: special.ellipkinc(np.pi / 2, m), 0.0, np.pi / 8, 9 * np.pi / 64),
    "mean of a and 1": (lambda a: special.agm(a, 1.0), 1.0, 0.5, -0.125),
    "T_3 at the end": (lambda x: special.eval_chebyt(3, x), 1.0, 9.0, 24.0),
    "W": (lambda x: special.lambertw(x).real, 0.0, 1.0, -2.0),
}


@pytest.mark.parametrize("name", SPECIAL_POINTS)
def test_derivatives_at_special_points(name: str) -> None:
    """Where formulas would divide by 0, and nothing is wrong with the function."""
    f, x, first, second = SPECIAL_POINTS[name]
    np.testing.assert_allclose(grad(f)(x), first, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(grad(lambda x: grad(f)(x))(x), second, rtol=1e-12, atol=1e-15)


def test_spherical_harmonics_are_those_of_the_angles_size() -> None:
    """SciPy takes the absolute value of sin(theta)."""
    f = lambda t: special.sph_harm_y(3, 1, t, 0.4).real  # noqa: E731
    np.testing.assert_allclose(grad(f)(-0.3), -grad(f)(0.3))


def test_riemanns_zeta_on_both_sides() -> None:
    for s in (-5.5, -2.0, -0.5, 0.5, 1.5, 30.0):
        expected = float(mpmath.zeta(s, derivative=1))
        np.testing.assert_allclose(grad(lambda s: special.zeta(s))(s), expected, rtol=1e-11)


# ---- compiled


def test_kernels_call_scipy_in_between() -> None:
    """What SciPy evaluates, among loops; of later calls with other shapes, too."""

    def f(x: Any, a: Any) -> Any:
        y = special.gammainc(a, np.exp(x)) * special.jv(1.5, x * x + 1)
        z = special.boxcox(y + 1, a) + special.stdtr(a + 1, x) + special.expi(x)
        return np.sum(z * special.airy(x)[0]) + special.logsumexp(x * y, b=np.sin(a))

    compiled = grad(f, argnums=(0, 1), compile="always")
    played = grad(f, argnums=(0, 1), compile="never")
    rng = np.random.default_rng(0)
    for n in (3, 3, 7):
        x, a = rng.uniform(0.2, 1, (2, n))
        for found, expected in zip(compiled(x, a), played(x, a), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("x", [-2.0, 0.5, 11.9, 12.1, 60.0])
def test_slopes_of_erfcx_where_little_is_left_of_a_difference(x):
    with mpmath.workdps(60):
        at = mpmath.mpf(x)
        value = mpmath.erfc(at) * mpmath.exp(at * at)
        first = 2 * at * value - 2 / mpmath.sqrt(mpmath.pi)
        second = 2 * value + 2 * at * first
    slope = grad(lambda x: special.erfcx(x), compile="never")
    assert slope(x) == pytest.approx(float(first), rel=1e-13)
    assert grad(lambda x: slope(x), compile="never")(x) == pytest.approx(float(second), rel=1e-11)


COMPLEX = {
    "hyp0f1": (1.3,),
    "hyp1f1": (1.3, 0.6),
    "hyp2f1": (1.3, 0.6, 2.2),
    "eval_jacobi": (1.3, 0.6, 2.2),
    "eval_legendre": (2.3,),
    "eval_laguerre": (2.3,),
    "jv": (1.3,),
    "kv": (1.3,),
    "kve": (1.3,),
    **dict.fromkeys(["spherical_jn", "spherical_yn", "spherical_in", "spherical_kn"], (2,)),
    **dict.fromkeys(["erf", "erfc", "erfi", "dawsn", "exp1", "expi", "wrightomega"], ()),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_arguments(name: str) -> None:
    """Where the derivative's formula holds for complex numbers: first and second derivatives."""
    f, before = getattr(special, name), COMPLEX[name]
    z, h = np.array([0.4 + 0.3j, 0.7 - 0.2j]), 1e-3

    def value(z: Any) -> Any:
        return np.sum(np.real(f(*before, z)))

    def differences(g: Any) -> Any:
        return (8 * (g(z + h) - g(z - h)) - g(z + 2 * h) + g(z - 2 * h)) / (12 * h)

    first = grad(value, compile="never")
    np.testing.assert_allclose(first(z), differences(lambda z: f(*before, z)), rtol=1e-7)
    second = grad(lambda z: np.sum(np.real(first(z))), compile="never")
    np.testing.assert_allclose(second(z), differences(first), rtol=1e-7)


def test_the_branch_of_lambertw_is_a_whole_number_as_scipy_makes_it():
    x = np.array([0.9, 0.3])
    for k in (1.7, -1.7, 0.9, True):
        found = jit(lambda x, k=k: special.lambertw(x, k), compile="never")(x)
        np.testing.assert_allclose(found, special.lambertw(x, k), rtol=1e-14)


SIZES = [0.0, 5e-324, 1e-160, 0.5, 1.0, 2.5, 100.3, 171.6, 709.9, 1e160, 1.7e308, INF, NAN]


@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize(
    "name", ["huber", "pseudo_huber", "boxcox", "boxcox1p", "gamma", "i0", "i1"]
)
def test_values_are_scipys_at_all_sizes(name: str, compile: Any) -> None:
    """Finite and infinite, 0 and not 0, with SciPy's signs, also where that isn't the function."""
    f, x = getattr(special, name), np.array([*SIZES, *[-x for x in SIZES]])
    given = np.meshgrid(x, x) if f.nin == 2 else [x]
    with np.errstate(all="ignore"):
        found, right = jit(lambda *xs: f(*xs) * 1.0, compile=compile)(*given), f(*given)
    np.testing.assert_array_equal(found == 0, right == 0)
    np.testing.assert_array_equal(np.signbit(found[right == 0]), np.signbit(right[right == 0]))
    np.testing.assert_allclose(found, right, rtol=1e-12)


def test_composed_functions_of_floats() -> None:
    """Python's division of floats has an error for 0, NumPy's doesn't."""
    assert value_and_grad(special.pseudo_huber, (0, 1))(0.0, 0.5) == (0.0, (0.5, 0.0))
    assert value_and_grad(special.huber, (0, 1))(-1.0, 0.5) == (np.inf, (0.0, 0.0))


@pytest.mark.filterwarnings("ignore")
def test_the_slope_of_kummers_function_at_infinity_ends():
    """SciPy's hyp1f1(2, 3, inf) doesn't. In a process of its own, which can be stopped."""
    program = """
import numpy as np
from scipy import special
from tapegrad import grad

def f(x):
    return np.sum(special.hyp1f1(1.0, 2.0, x))

print(grad(f, compile="never")(np.array([np.inf, -np.inf, 0.0])).tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True
    )
    assert [float(x) for x in done.stdout.strip("[]\n").split(",")] == [INF, 0.0, 0.5]


def test_multigammaln_has_scipys_precision():
    a = np.array([4.2, 5.3], np.float32)
    found = jit(lambda a: special.multigammaln(a, 3))(a)
    expected = special.multigammaln(a, 3)
    assert found.dtype == expected.dtype == np.float64
    np.testing.assert_array_equal(found, expected)  # a sum of float32, then of float64
