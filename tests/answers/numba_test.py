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
