"""Expectations, moments, entropies and quantiles of distributions with traced parameters, and
bootstraps, held against SciPy and differences."""

import warnings

import numpy as np
import pytest
from scipy import stats

from tapegrad import hessian, value_and_grad

# Laws of two numbers
LAWS = {
    "norm": lambda a, b: stats.norm(a, b),
    "gamma": lambda a, b: stats.gamma(a, scale=b),
    "beta": lambda a, b: stats.beta(a + 1, b + 1),
    "t": lambda a, b: stats.t(a + 5, scale=b),
    "poisson": lambda a, b: stats.poisson(a * b),
    "binom": lambda a, b: stats.binom(7, a / (a + b)),
    "boltzmann": lambda a, b: stats.boltzmann(a, 5, loc=b),
    "geom": lambda a, b: stats.geom(a / (a + b)),
    "betabinom": lambda a, b: stats.betabinom(6, a, b),
}
DISCRETE = {"poisson", "binom", "boltzmann", "geom", "betabinom"}
ASKED = {
    "expect": lambda law: law.expect(lambda x: np.exp(-(x**2)), epsabs=1e-10, epsrel=1e-10),
    "third": lambda law: law.moment(3),
    "fourth": lambda law: law.moment(4),
    "entropy": lambda law: law.entropy(),
    "quantiles": lambda law: law.ppf(0.3) + law.isf(0.2) + law.median() + law.interval(0.9)[1],
}
ASKED_OF_SUMS = ASKED | {"expect": lambda law: law.expect(lambda x: np.exp(-(x**2)))}
POINTS = [np.array([1.3, 0.8]), np.array([1.1, 1.25])]


def held_against_differences(f, points, compile, rtol=1e-6):
    df = value_and_grad(f, compile=compile)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for p in points:
            value, slopes = df(p)
            np.testing.assert_allclose(value, f(p), rtol=1e-9, atol=1e-12)
            steps = 1e-5 * np.eye(len(p))
            expected = [(f(p + e) - f(p - e)) / 2e-5 for e in steps]
            np.testing.assert_allclose(slopes, expected, rtol=rtol, atol=1e-6)
    return df


@pytest.mark.every(6)
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("compile", ["never", "always"])
def test_what_frozen_laws_are_asked(name, asked, compile):
    ask = (ASKED_OF_SUMS if name in DISCRETE else ASKED)[asked]
    df = held_against_differences(lambda p: ask(LAWS[name](*p)), POINTS, compile)
    assert df.cache_info().traces == 1


def test_functions_of_laws_that_are_not_frozen():
    def f(p):
        a, b = p
        inner = stats.norm.expect(lambda x: a * x**2, lb=0.1, ub=2.0 * b, conditional=True)
        whole = stats.norm.expect(loc=a, scale=b) + stats.norm(0.3, 2.0).expect(lambda x: b * x**2)
        some = stats.gamma.expect(lambda x: np.log1p(x), args=(a,), scale=b)
        counts = stats.poisson.expect(
            lambda k: k**2, args=(a,), loc=2, lb=3, ub=6, conditional=True
        )
        return inner + whole + some + counts + stats.norm.expect(lambda x: x**2)

    held_against_differences(f, POINTS, "never", rtol=1e-5)


def test_second_derivatives_of_expectations():
    def f(p):
        return stats.gamma(p[0], scale=p[1]).expect(lambda x: np.log1p(x * x))

    def slopes(p):
        return value_and_grad(f, compile="never")(p)[1]

    p = POINTS[0]
    expected = [(slopes(p + e) - slopes(p - e)) / 2e-4 for e in 1e-4 * np.eye(2)]
    np.testing.assert_allclose(hessian(f, compile="never")(p), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.* calls in a row")
def test_sums_go_as_far_as_their_laws_do():
    df = value_and_grad(lambda mu: stats.poisson(mu).expect(lambda k: k**2), compile="never")
    for mu in (0.5, 3.0, 40.0, 200.0, 41.0):
        value, slope = df(mu)
        np.testing.assert_allclose([value, slope], [mu + mu**2, 1 + 2 * mu], rtol=1e-12)


def test_quantiles_of_counts_are_constant_in_steps():
    df = value_and_grad(
        lambda q, mu, loc: stats.poisson.ppf(q, mu, loc), (0, 1, 2), compile="never"
    )
    for q, mu in ((0.3, 2.5), (0.9, 2.5), (0.9, 7.0)):
        value, slopes = df(q, mu, 1.5)
        assert value == stats.poisson.ppf(q, mu, 1.5)
        assert [float(s) for s in slopes] == [0.0, 0.0, 1.0]


X = np.array([0.3, 1.7, -0.4, 2.2, 0.9, 1.1, -1.3, 0.5])


def _difference(a, b, axis=-1):
    return np.mean(a, axis=axis) - np.std(b, axis=axis)


@pytest.mark.every(3)
@pytest.mark.parametrize("method", ["percentile", "basic", "BCa"])
def test_bootstraps_of_a_seed(method):
    def f(x):
        found = stats.bootstrap(
            (x, np.exp(x)), _difference, n_resamples=40, rng=0, method=method, paired=True
        )
        return found.confidence_interval.high + found.standard_error

    df = value_and_grad(f, compile="never")
    for x in (X, 1.1 * X + 0.05):
        value, slopes = df(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-10)
        if method != "BCa":  # whose level jumps where resamples become equal
            expected = [(f(x + e) - f(x - e)) / 2e-6 for e in 1e-6 * np.eye(8)]
            np.testing.assert_allclose(slopes, expected, rtol=1e-5, atol=1e-7)


def test_permutations():
    def f(x):
        given = (x, np.exp(x[:5])), lambda a, b, axis: np.mean(a, axis) - np.mean(b, axis)
        found = stats.permutation_test(*given, n_resamples=30, rng=0, vectorized=True)
        return found.statistic + found.null_distribution.max() + 0.1 * found.pvalue

    held_against_differences(f, [X, 1.1 * X + 0.05], "never")


@pytest.mark.filterwarnings("ignore")
def test_bootstraps_draw_as_in_plain_numpy():
    def run(traced):
        state, rng = np.random.RandomState(3), np.random.default_rng(3)

        def f(x):
            first = stats.bootstrap((x,), np.mean, n_resamples=9, rng=rng).standard_error
            again = stats.bootstrap((x,), np.mean, n_resamples=9, random_state=state)
            return first + again.standard_error

        f = value_and_grad(f, compile="never") if traced else f
        return [
            float(np.ravel(f(X + 0.1 * k)[0] if traced else f(X + 0.1 * k))[0]) for k in range(3)
        ]

    np.testing.assert_allclose(run(True), run(False), rtol=1e-12)


def test_bootstraps_without_a_seed_draw_anew():
    df = value_and_grad(
        lambda x: stats.bootstrap((x,), np.mean, n_resamples=9).standard_error, compile="never"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len({float(df(X)[0]) for _ in range(3)}) == 3


SCALE = 2.0


@pytest.mark.parametrize("law", [stats.norm, stats.poisson])
@pytest.mark.parametrize("frozen", ["traced", "plain", ""])
def test_what_the_function_reads_is_read_at_each_call(law, frozen, monkeypatch):
    def f(a):
        def g(x):
            return (x * SCALE + a) ** 2

        if frozen:
            return law(a if frozen == "traced" else 1.7).expect(g)
        return law.expect(g, loc=a) if law is stats.norm else law.expect(g, args=(a,))

    df = value_and_grad(f, compile="never")
    for scale in (2.0, 2.0, 3.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        value, slope = df(1.3)
        np.testing.assert_allclose(value, f(1.3), rtol=1e-9)
        np.testing.assert_allclose(slope, (f(1.3 + 1e-4) - f(1.3 - 1e-4)) / 2e-4, rtol=1e-5)
    assert df.cache_info().traces <= 2
