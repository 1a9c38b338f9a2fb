"""Numbers that Python's own functions make of traced ones: objects that say what they are as a
float, sums that are rounded once, and averages by `statistics`."""

from __future__ import annotations

import cmath
import functools
import math
import statistics

import numpy as np
import pytest

from tapegrad import grad, jit, value_and_grad, vjp
from tapegrad.errors import GradientError

X = np.array([1.3, -0.7, 2.1, 0.4])


def check(f, *points):
    """The value is plain Python's, and the slope that of differences, played and compiled."""
    for how in ("never", "always"):
        both = value_and_grad(f, compile=how)
        for x in points:
            value, slope = both(x)
            assert np.isclose(value, f(x), rtol=1e-14)
            steps = 1e-6 * np.eye(np.size(x)) if np.ndim(x) else [1e-6]
            expected = [(f(x + d) - f(x - d)) / 2e-6 for d in steps]
            assert np.allclose(np.ravel(slope), expected, rtol=1e-6, atol=1e-7)


class Length:
    def __init__(self, metres):
        self.metres = metres

    def __float__(self):
        return self.metres * 2

    def __complex__(self):
        return complex(self.metres, 1.0)


@pytest.mark.every(8)
@pytest.mark.parametrize(
    "f",
    [
        lambda x: float(Length(x)) ** 2,
        lambda x: math.exp(Length(x)) + math.modf(Length(x))[0] * math.pow(2.0, Length(x)),
        lambda x: math.dist([Length(x), 1.0], [0.0, 2.0]),
        lambda x: abs(complex(Length(x))) + cmath.exp(Length(x)).real,
        lambda x: sum(map(float, [Length(x), Length(x * x)])),
        lambda x: np.float64(Length(x)) * np.complex128(Length(x)).real,
        lambda x: np.array([float(Length(x)), x]) @ np.array([Length(x), 1.0], float),
        lambda x: np.sum(np.asarray([[Length(x)], [x]], dtype=np.float64) ** 2),
        lambda x: (
            math.fsum([Length(x), 1.0]) * (2.0 if math.isclose(Length(x), 2.6, rel_tol=0.1) else x)
        ),
    ],
)
def test_an_object_says_which_number_it_is(f):
    check(f, 0.7, 1.1, 1.3)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: float.__mul__(x, 2.0) + float.__mul__(2.0, x),
        lambda x: float.__add__(*[x, x * x]) * float.__neg__(x),
        lambda x: float.__rsub__(x, 3.0) * float.__rtruediv__(2.0, x),
        lambda x: float.__pow__(x, 2.5) if float.__lt__(x, 1.2) else float.__floordiv__(x, 0.3) * x,
        lambda x: sum(map(float.__mul__, [x, 2.0], [3.0, x])),
        lambda x: functools.reduce(float.__mul__, [x, x, 2.0]),
        lambda x: (2.0).__mul__(x) * float.conjugate(x) + float.is_integer(x),
        lambda x: complex.__mul__(complex(x, 1.0), 2j).imag,
        lambda x: np.float64.__mul__(np.float64(x), 2.0),
    ],
)
def test_methods_of_pythons_numbers_by_their_class(f):
    check(f, 0.7, 1.1, 1.3)


def test_of_what_an_object_says_it_is_pythons_error_is_raised():
    class Wrong(Length):
        def __float__(self):
            return np.float32(1.0) * self.metres

    for f in (lambda x: float(Wrong(x)), lambda x: math.sin(Wrong(x))):
        with pytest.raises(TypeError, match="returned non-float"):
            grad(f)(np.float32(1.0))


@pytest.mark.every(8)
@pytest.mark.parametrize(
    "f",
    [
        math.fsum,
        lambda x: math.fsum(v * v for v in x) ** 2,
        lambda x: math.fsum([x[0] * x[1], 1, 2.5, x[2]]),
        lambda x: statistics.mean(x) * statistics.fmean(list(x)),
        lambda x: statistics.stdev(x) + statistics.pstdev([v * v for v in x]),
        lambda x: statistics.variance(x, x[0]) + statistics.pvariance(x, mu=0.3),
        lambda x: statistics.geometric_mean(x * x),
        lambda x: statistics.harmonic_mean(x * x, weights=[1.0, 2, x[0], 0.5]),
        lambda x: statistics.harmonic_mean(v * v for v in x),
        lambda x: statistics.covariance(x, x**2) * statistics.correlation(x, x**3),
        lambda x: statistics.linear_regression(x, x**2).slope,
        lambda x: statistics.NormalDist(x[0], x[2]).inv_cdf(0.3),
        lambda x: statistics.NormalDist.from_samples(x).overlap(statistics.NormalDist(0.0, 1.0)),
    ],
)
def test_sums_that_are_rounded_once(f):
    check(f, X, X[::-1] + 0.9)


@pytest.mark.parametrize("of", [lambda x: x, list], ids=["array", "list"])
def test_exact_sums_are_pythons(of):
    f = jit(lambda x: math.fsum(of(x)), compile="never")
    f(np.ones(3))
    for x in ([1e100, 1.0, -1e100], [np.inf, 1.0, 2.0], [np.nan, np.inf, 1.0], [0.1, 0.2, 0.3]):
        np.testing.assert_equal(f(np.array(x)), math.fsum(x))
    for x in ([1e308, 1e308, 1.0], [np.inf, -np.inf, 1.0]):
        for _ in range(2):
            with pytest.raises((OverflowError, ValueError), match="in fsum"):
                f(np.array(x))


@pytest.mark.parametrize("name", ["mean", "stdev", "pstdev", "variance"])
def test_averages_of_numbers_of_any_size(name):
    plain = getattr(statistics, name)
    f = jit(lambda x: plain(x), compile="never")
    for size in (1.0, 1e-200, 1e-310, 1e150, 1e200, 1.7e308, np.inf):
        x = np.array([1.0, 0.5, 0.25, 1.0]) * size
        try:
            expected = plain(x)
        except (OverflowError, AttributeError) as error:
            with pytest.raises(type(error)):
                f(x)
        else:
            np.testing.assert_allclose(f(x), expected, rtol=1e-15)


@pytest.mark.parametrize("name", ["mean", "stdev", "pvariance", "variance", "harmonic_mean"])
def test_averages_of_integers(name):
    plain = getattr(statistics, name)
    f, of_array = jit(lambda n: plain([n, 1, 2]), compile="never"), jit(plain, compile="never")
    for n in (3, 4, True, 2**40, 2.5, 3):
        assert f(n) == plain([n, 1, 2])
    for n in (3, 4) if name != "stdev" else ():  # where Python refuses NumPy's integers
        assert of_array(np.array([n, 1, 2])) == plain(np.array([n, 1, 2]))


def test_a_normal_distribution_of_samples_that_are_not_finite():
    f = jit(lambda x: statistics.NormalDist.from_samples([x, 1.0, 2.0]).stdev, compile="never")
    for x in (3.0, np.nan, np.inf, 4.0):
        expected = statistics.NormalDist.from_samples([x, 1.0, 2.0]).stdev
        np.testing.assert_allclose(f(x), expected, rtol=1e-14)


def test_errors_of_averages_are_pythons():
    mean = grad(statistics.harmonic_mean, compile="never")
    assert np.allclose(mean(X * X), grad(lambda x: 4 / np.sum(1 / x))(X * X))
    with pytest.raises(statistics.StatisticsError, match="negative values"):
        mean(X)
    with pytest.raises(statistics.StatisticsError, match="at least two"):
        grad(lambda x: statistics.stdev(x[:1]))(X)


def test_a_sum_of_no_terms():
    f = grad(lambda x: sum(v * v for v in x if v > 1.5))
    for x in (X, X - 2, X + 1, X - 2):
        assert np.array_equal(f(x), np.where(x > 1.5, 2 * x, 0.0))
    value, slope = value_and_grad(lambda x: sum(v for v in x if v > 10))(X)
    assert type(value) is int and value == 0
    assert np.array_equal(slope, np.zeros(4))
    assert np.array_equal(vjp(lambda x: sum(v for v in x if v > 10), X)[1](1.0)[0], np.zeros(4))
    with pytest.raises(GradientError, match="Return a float"):
        grad(np.argmax)(X)
    with pytest.raises(GradientError, match="Is a return missing"):
        grad(lambda x: True)(X)
