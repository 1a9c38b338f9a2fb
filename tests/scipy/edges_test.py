"""SciPy's names at the edges: samples of no or of one number, far tails, values of a parameter at
which SciPy takes another branch, whole orders, calls of which only an unusual argument is traced.
Values are SciPy's own, slopes those of the function around, and what has none says so.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as solvers
from scipy import integrate, linalg, sparse, special, stats

from tapegrad import grad, trace, value_and_grad
from tapegrad.errors import GradientError, UnsupportedError

X = np.array([0.3, 1.7, 0.9, 2.4])


def slope(f: Any, x: Any, h: float = 1e-5) -> Any:
    """By central differences, of fourth order."""
    x, found = np.asarray(x, float), np.zeros(np.shape(x))
    for i in np.ndindex(x.shape):
        e = np.zeros(x.shape)
        e[i] = h
        near, far = f(x + e) - f(x - e), f(x + 2 * e) - f(x - 2 * e)
        found[i] = (8 * near - far) / (12 * h)
    return found


def is_right(f: Any, x: Any, tol: float = 1e-7) -> None:
    """Value, slope and second slope, played."""
    value, first = value_and_grad(f, compile="never")(x)
    np.testing.assert_allclose(value, f(x), rtol=1e-10)
    np.testing.assert_allclose(first, slope(f, x), rtol=tol, atol=tol)

    def length(x: Any) -> Any:
        return np.sum(grad(f, compile="never")(x) ** 2)

    second = grad(length, compile="never")(x)
    np.testing.assert_allclose(second, slope(length, x), rtol=1e3 * tol, atol=1e3 * tol)


def test_the_second_slope_of_welchs_test() -> None:
    y = np.array([1.0, 2.0, 0.4])
    for k in (0, 1):
        is_right(lambda x, k=k: stats.ttest_ind(x, y, equal_var=False)[k], X, 1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["zscore", "gzscore", "gmean", "hmean", "gstd", "tvar", "tstd", "skew", "moment"]
)
def test_samples_of_nothing_and_of_a_number(name: str) -> None:
    f = getattr(stats, name)
    for x in (np.zeros((3, 0)), np.zeros((0, 3)), np.zeros(0), np.array(1.3)):
        try:
            wanted = f(copy.copy(x))
        except Exception as error:  # SciPy's own, in some versions
            with pytest.raises(type(error)):
                trace(lambda x: f(x), x)
            continue
        found, _ = trace(lambda x: f(x), x)
        assert np.shape(found) == np.shape(wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_a_test_of_too_few_has_scipys_result() -> None:
    for f in (stats.ttest_rel, stats.linregress):
        found = trace(lambda x, y, f=f: tuple(f(x, y)), X[:0], X[:0])[0]
        assert len(found) == len(f(X[:0], X[:0])) and np.isnan(found[0])


def test_nans_among_numbers_of_which_quantiles_are_asked() -> None:
    x = np.array([[1.0, np.nan, 2.0], [1.0, 4.0, 2.0]])
    np.testing.assert_equal(trace(lambda x: stats.iqr(x, axis=1), x)[0], stats.iqr(x, axis=1))
    assert np.isnan(x).sum() == 1  # nothing was written to it


def test_the_interval_of_a_correlation() -> None:
    y = np.array([0.1, 1.0, 1.1, 1.4])
    for side in ("two-sided", "less", "greater"):

        def f(x: Any, side: str = side) -> Any:
            found = stats.pearsonr(x, y, alternative=side).confidence_interval(0.9)
            return found[0] + 2 * found[1]

        is_right(f, X, 1e-6)


@pytest.mark.parametrize("lmb", [0.0, 2.0, 1.0, 0.3])
def test_yeo_and_johnsons_power_where_it_is_a_logarithm(lmb: float) -> None:
    data = np.array([-1.2, 0.4, 2.0, -0.3, 1.1])
    f = lambda lmb: stats.yeojohnson_llf(lmb, data)  # noqa: E731
    is_right(f, lmb, 1e-5)


def test_the_last_probability_is_what_the_others_leave() -> None:
    """Whether or not their sum is 1 to the last bit."""
    f = lambda p: stats.multinomial.logpmf([2, 3, 1], 6, p)  # noqa: E731
    for p in (np.array([0.2, 0.3, 0.5]), np.array([0.2, 0.3, 0.6])):
        d = grad(f, compile="never")(p)
        np.testing.assert_allclose(d, [2 / 0.2 - 1 / 0.5, 3 / 0.3 - 1 / 0.5, 0.0], rtol=1e-12)


@pytest.mark.parametrize(
    ("law", "x"),
    [
        (stats.skewnorm(4.0), [-8.0, -3.0, -1.7, -1.01, -0.99, 0.4]),
        (stats.skewnorm(-4.0), [8.0, 3.0, 1.01, 0.99, -0.4]),
        (stats.exponweib(2.9, 1.95), [20.0, 8.8, 3.0, 0.2]),
        (stats.cosine(), [-3.1415, 3.1415, -2.7, -2.6, 1.0]),
        (stats.loggamma(0.41), [-1000.0, -701.0, -699.0, 0.3]),
        (stats.t(np.inf), [-3.0, 0.2]),
    ],
)
def test_tails(law: Any, x: list[float]) -> None:
    """The slope of a probability is the density, and its logarithm is SciPy's."""
    for name, sign in (("logcdf", 1), ("logsf", -1)):
        for z in x:
            f = getattr(law, name)
            if not -np.inf < f(z) < -1e-2:
                continue
            value, d = value_and_grad(lambda z, f=f: f(z), compile="never")(z)
            assert value == pytest.approx(f(z), rel=1e-6)
            assert d == pytest.approx(sign * np.exp(law.logpdf(z) - value), rel=1e-8)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", ["gumbel_r", "gumbel_l", "hypsecant", "moyal", "loggamma"])
def test_slopes_so_far_out_that_exponentials_overflow(name: str) -> None:
    law = getattr(stats, name)
    more = (0.4,) if name == "loggamma" else ()
    x = np.array([-800.0, 800.0])
    for method in ("pdf", "cdf", "sf"):
        f = lambda x, method=method: getattr(law, method)(x, *more)  # noqa: E731
        found = trace(f, x)[0]
        np.testing.assert_allclose(found, f(x), rtol=1e-10)
        d = grad(lambda x, f=f: np.sum(f(x)), compile="never")(x)
        assert np.all(np.abs(d) < 1e-100)


def test_what_is_skewed_little_and_much_by_its_integral() -> None:
    for a, x in ((4.0, -1.3), (50.0, -0.2), (0.5, -9.0)):
        area, _ = integrate.quad(lambda t, a=a: stats.skewnorm.pdf(t, a), x - 6, x, epsabs=0)
        found = trace(lambda x, a=a: stats.skewnorm.cdf(x, a), x)[0]
        assert found == pytest.approx(area, rel=1e-9)


def test_moments_of_extremes_at_the_gumbel_distribution() -> None:
    mean = lambda c: stats.genextreme.mean(c)  # noqa: E731
    var = lambda c: stats.genextreme.var(c)  # noqa: E731
    e, z2, z3 = np.euler_gamma, np.pi**2 / 6, special.zeta(3.0)
    assert grad(mean, compile="never")(0.0) == pytest.approx(-(e * e + z2) / 2)
    assert grad(var, compile="never")(0.0) == pytest.approx(-2 * e * z2 - 2 * z3)
    for c in (0.2, -0.2, 0.049, 0.051):
        is_right(lambda c: stats.genextreme.std(c, scale=2.0) + mean(c), c, 1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n", [2, 2.9])
def test_orders_of_which_scipy_takes_the_whole_part(n: float) -> None:
    for f in (special.kn, special.yn, special.expn):
        is_right(lambda x, f=f: f(n, x), 0.62)
    is_right(lambda p: special.bdtr(1.4, n + 2, p) + special.nbdtr(1.4, n, p), 0.62)


def test_factorials_of_plain_numbers_beside_traced_ones() -> None:
    f = lambda x, k: np.sum(x**k / special.factorial(k))  # noqa: E731
    assert grad(f, compile="never")(2.0, 3) == pytest.approx(2.0)
    assert grad(f, compile="never")(2.0, np.array([1, 2])) == pytest.approx(3.0)


def test_a_normal_density_of_numbers() -> None:
    f = lambda x: stats.multivariate_normal.logpdf(x, 0.5 * x, 1 + x * x)  # noqa: E731
    is_right(f, 0.3)


def test_a_function_of_scipys_is_the_program_itself() -> None:
    law = stats.norm(0.1, 2.0)
    for f, x in (
        (special.logsumexp, X),
        (linalg.det, X.reshape(2, 2)),
        (stats.norm.logpdf, np.array(0.3)),
        (law.logcdf, np.array(0.3)),
    ):
        df = grad(f, compile="never")
        np.testing.assert_allclose(df(x), slope(f, x), rtol=1e-7)
    assert grad(law.logpdf)(1.1) == pytest.approx(-0.25)
    law.kwds["scale"] = 1.0
    law = stats.norm(0.0, 1.0)
    assert grad(law.logpdf)(1.1) == pytest.approx(-1.1)


MATRIX = sparse.csc_array(np.array([[3.0, 1.0], [1.0, 4.0]]))
B = np.array([1.0, 2.0])


def test_an_iteration_of_which_only_the_start_is_traced() -> None:
    f = lambda x: np.sum(solvers.cg(MATRIX, B, x)[0])  # noqa: E731
    assert np.all(grad(f, compile="never")(B) == 0)


def test_an_iteration_that_gives_up_has_a_value_and_no_derivative() -> None:
    f = lambda b: np.sum(solvers.cg(MATRIX, b, maxiter=1)[0])  # noqa: E731
    assert trace(f, B)[0] == pytest.approx(f(B), rel=1e-14)
    df = grad(f, compile="always")
    with pytest.raises(GradientError, match=r"rule: it hasn't converged.* more steps"):
        df(B)
    np.testing.assert_allclose(df(np.zeros(2)), solvers.spsolve(MATRIX, np.ones(2)), rtol=1e-6)
    with pytest.raises(GradientError, match=r"rule: it hasn't converged.* more steps"):
        df(B)


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: solvers.splu(MATRIX * x[0]).L.sum(), "L of the factors"),
        (lambda x: solvers.norm(MATRIX * x[0], -1, axis=0).sum(), "ord=-1"),
        (lambda x: linalg.lstsq(x * np.ones((2, 2, 2)), B)[0].sum(), "stacks"),
    ],
)
def test_what_is_refused(f: Any, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        grad(f, compile="never")(B)


@pytest.mark.parametrize("made", [linalg.toeplitz, linalg.hankel])
def test_matrices_with_constant_diagonals_of_no_numbers(made):
    for c, r in ((X, []), (X[:0], X), (X[:0], None), (X, X[:1])):
        found = np.asarray(trace(lambda c, r=r: made(c, r), c)[0])
        assert found.shape == made(c, r).shape and np.array_equal(found, made(c, r))


GAPS = [
    lambda x, **how: np.sum(stats.gmean(x, **how)),
    lambda x, **how: stats.skew(x, axis=None, **how),
    lambda x, **how: np.sum(stats.median_abs_deviation(x, axis=1, **how) ** 2),
    lambda x, **how: np.sum(stats.circstd(x, keepdims=True, **how)),
    lambda x, **how: stats.ttest_ind(x[0], x[1], **how)[0],
    lambda x, **how: stats.linregress(x[0], x[1], **how).slope,
]


@pytest.mark.every(4)
@pytest.mark.parametrize("f", GAPS)
def test_nans_of_samples_are_left_out_or_an_error(f):
    x = np.abs(np.sin(np.arange(1.0, 13.0))).reshape(3, 4) + 0.1
    gaps = np.where(np.arange(12).reshape(3, 4) % 7 == 2, np.nan, x)
    for how in ({"nan_policy": "omit"}, {"nan_policy": "raise"}, {}):
        derived = value_and_grad(lambda x, how=how: f(x, **how), compile="never")
        value, first = derived(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-12)
        np.testing.assert_allclose(first, slope(f, x), rtol=1e-6, atol=1e-7)
        if how == {"nan_policy": "raise"}:
            with pytest.raises(ValueError, match="nan"):
                derived(gaps)
        elif how:
            value, first = derived(gaps)
            there = ~np.isnan(gaps)
            np.testing.assert_allclose(value, f(gaps, **how), rtol=1e-12)
            expected = slope(lambda x, how=how: f(x, **how), gaps)
            np.testing.assert_allclose(first[there], expected[there], rtol=1e-6, atol=1e-7)


SAMPLES = {
    "constant": np.full(5, 0.1),
    "nearly": 1 + 1e-9 * np.arange(5.0) ** 2,
    "tiny": 1e-200 * np.arange(5.0) ** 2,
    "large": 1e200 * np.arange(5.0) ** 2,
    "nan": np.array([1.0, np.nan, 2.0, 0.5, 3.0]),
    "inf": np.array([1.0, np.inf, 2.0, 0.5, 3.0]),
    "one": np.array([0.4]),
    "two": np.array([0.4, 0.1]),
    "none": np.zeros(0),
}
STATISTICS = {
    "pearsonr": lambda x: stats.pearsonr(x, np.cos(np.arange(len(x)))),
    "of a constant": lambda x: stats.pearsonr(np.arange(len(x)) ** 2.0, np.full(len(x), 0.3)),
    "linregress": lambda x: stats.linregress(np.arange(len(x)) ** 2.0, x),
    "differential_entropy": lambda x: stats.differential_entropy(x, method="vasicek"),
    "alexandergovern": lambda x: stats.alexandergovern(x, [1.0, 2.0, 4.0]).statistic,
    "chisquare": lambda x: stats.chisquare(x),
    "kstat": lambda x: stats.kstat(x, 4),
    "sem": lambda x: stats.sem(x),
    "skewtest": lambda x: stats.skewtest(x).statistic,
    "boxcox_llf": lambda x: stats.boxcox_llf(0.3, x),
}


@pytest.mark.every(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_that_samples_do_not_have_are_scipys(name: str, kind: str) -> None:
    """Constant, nearly constant, too few, infinite."""
    x = SAMPLES[kind]

    def f(x: Any) -> Any:
        found = STATISTICS[name](x)
        return tuple(found) if isinstance(found, tuple) else getattr(found, "statistic", found)

    try:
        wanted = f(x)
    except Exception as error:
        with pytest.raises(type(error)):
            trace(f, x)
        return
    np.testing.assert_allclose(trace(f, x)[0], wanted, rtol=1e-7)


def test_yeo_and_johnsons_likelihood_at_zero_is_smooth() -> None:
    def f(x: Any) -> Any:
        return stats.yeojohnson_llf(0.3, x)

    x = np.array([0.0, 0.4, -1.2, 3.0])  # the second slope jumps at 0
    np.testing.assert_allclose(grad(f, compile="never")(x), slope(f, x, 1e-6), rtol=1e-5)
