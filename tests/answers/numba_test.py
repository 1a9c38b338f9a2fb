"""Functions that numba compiled, with its own types and rules for numbers."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

from tapegrad import grad, value_and_grad
from tapegrad.errors import ConversionError

X = np.array([1.5, 2.0, 3.0])


@numba.njit
def fractional(x):
    return x**1.5 + math.log(x)


@numba.njit
def picked(x, places):
    total = 0.0
    for k in range(len(places)):
        total += x[places[k]] if places[k] > 0 else 2.0 * x[0]
    return total


@numba.njit
def halves(x):
    return np.sum(x) * 0.5


@numba.njit
def first(x):
    if x[0] > 100.0:
        return 1
    return x[0] * 2.0


@numba.njit
def drawn(x):
    return x * np.random.rand()


@numba.njit
def inverse(x):
    return 1.0 / x[0]


@numba.vectorize
def ratio(x, y):
    return x / y + math.sqrt(x)


def test_small_integers_may_be_indices():
    places = np.array([0, 1, 1], np.int32)
    np.testing.assert_array_equal(grad(lambda x: picked(x, places))(X), [2.0, 2.0, 0.0])


def test_numbers_of_32_bits_are_refused_where_numba_widens_them():
    with pytest.raises(ConversionError, match=r"float32.*halves\.py_func"):
        grad(lambda x: halves(x))(X.astype(np.float32))
    np.testing.assert_array_equal(grad(lambda x: halves(x))(X), 0.5)


def test_what_python_and_numba_make_differently_is_refused():
    """numba has NaN where Python has a complex number or an error."""
    f = value_and_grad(lambda x: fractional(x), compile="never")
    assert f(4.0)[0] == pytest.approx(fractional(4.0))
    assert np.isnan(fractional(-4.0))
    with pytest.raises(ConversionError, match="math domain error, numba makes nan"):
        f(-4.0)
    with pytest.raises(ZeroDivisionError):
        grad(lambda x: inverse(x))(np.zeros(1))


def test_scalars_are_pythons_when_they_are_returned():
    """Of NumPy's, (-3.0)**1.5 is NaN; 1 and x[0] * 2.0 are of one type."""
    kinds = []

    def f(x):
        y = first(x)
        kinds.append(type(y))
        return y * (1.0 if isinstance(y, float) and not isinstance(y, np.float64) else 7.0)

    df = value_and_grad(f, compile="never")
    for x in (X, 100.0 * X, -X):
        assert df(x)[0] == first(x)
    assert set(kinds) == {float}


def test_numbers_of_numbas_own_generator_are_refused():
    with pytest.raises(ConversionError, match="numba's own generator"):
        grad(lambda x: drawn(x))(1.0)


def test_elements_are_numpys():
    """A division by 0 is infinite, and integers are made the type that numba takes."""
    with np.errstate(all="ignore"):
        wanted = ratio(X, np.array([0.0, 1.0, 2.0]))
        value, slope = value_and_grad(lambda x: np.sum(ratio(x, np.array([0, 1, 2]))))(X)
        assert value == np.sum(wanted) == np.inf
    np.testing.assert_allclose(slope[1:], 1 / np.array([1.0, 2.0]) + 0.5 / np.sqrt(X[1:]))


def scaled(x, n):
    return x * 2**n


def rounded(x, n):
    return x * round(0.35 * n, 1)


def moved(x, n):
    return x * (1 << n)


@pytest.mark.parametrize("python", [scaled, rounded, moved])
@pytest.mark.parametrize("types", [(), (numba.float64(numba.float64, numba.int64),)])
def test_what_later_integers_may_make_something_else_of_is_refused_by_type(python, types):
    """numba's 2**-1 is 0, which the numbers of the first call don't show."""
    f = numba.njit(*types)(python)
    df = value_and_grad(lambda x, n: f(x, n), compile="never")
    assert f(1.0, 2) == python(1.0, 2)
    with pytest.raises(ConversionError, match=r"numba (makes an integer|rounds|shifts)"):
        df(1.0, 2)


def test_powers_of_elements_are_refused_where_exponents_may_be_negative():
    f = numba.vectorize(lambda x, n: x * 2**n)
    with pytest.raises(ConversionError, match="exponent may be negative"):
        grad(lambda x: np.sum(f(x, np.array([1, 2, 3]))))(X)


def counted(x, n):
    total = x * n**2 + x * (n >> 1) + x * (-1) ** n + x * 0.5**n
    for k in range(n):
        total += x * 2**k * (1 << (k + 1)) * ((n >> k) & 1)
    for k in range(n, -1, -1):
        total += x * 3**k
    for k, _ in enumerate((1, 2)):
        total += x * 3 ** (k * 2 + 1) / 5 ** len((1, 2))
    k = 0
    while k < n:
        total += x * 5**k
        k += 1
    return total


def in_parallel(x, n):
    total = 0.0
    for k in numba.prange(n):
        total += x * 2**k
    return total


@pytest.mark.parametrize(("python", "options"), [(counted, {}), (in_parallel, {"parallel": True})])
def test_powers_by_counts_of_rounds_are_followed(python, options):
    f = numba.njit(**options)(python)
    value, slope = value_and_grad(lambda x: f(x, 4), compile="never")(1.5)
    assert value == pytest.approx(f(1.5, 4), rel=1e-14)
    assert slope == pytest.approx(f(1.0, 4), rel=1e-14)


def falling(x, n):
    total = 0.0
    while n > -2:
        total += x * 2**n
        n -= 1
    for k, _ in enumerate((1, 2), -1):
        total += x * 2**k
    return total


def test_counts_that_fall_below_zero_are_refused():
    f = numba.njit(falling)
    with pytest.raises(ConversionError, match="exponent may be negative"):
        grad(lambda x: f(x, -3))(1.0)


def test_results_of_later_traces_are_held_against_numbas():
    """A guard asks for another trace, whose numbers numba makes NaN of: of one that prints, too,
    which isn't called a second time, the kind tells."""

    @numba.njit
    def power(x):
        return x**1.5

    @numba.njit
    def printing(x):
        print(x)
        return x**1.5

    for f in (power, printing):
        df = value_and_grad(lambda x, f=f: f(x), compile="never")
        assert df(4.0) == (8.0, 3.0)
        assert df(9.0) == (27.0, 4.5)
        assert np.isnan(f(-4.0))
        with pytest.raises(ConversionError, match="Python makes a complex number"):
            df(-4.0)


def test_functions_of_given_types_are_held_against_numba():
    """It counts in 64 bits."""
    f = numba.njit(numba.float64(numba.float64, numba.int64))(lambda x, n: x * (n * n))
    assert value_and_grad(lambda x: f(x, 3), compile="never")(2.0) == (18.0, 9.0)
    with pytest.raises(ConversionError, match=r"numba 0\.0"):
        grad(lambda x: f(x, 2**40))(1.0)
