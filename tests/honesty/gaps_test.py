"""Known gaps

Each of these tests shows a way round the promise that is known. One that fails has been closed.
"""

from __future__ import annotations

import statistics
import sys
import warnings

import numpy as np
from scipy.optimize import brentq
from scipy.stats import laplace

from tapegrad import grad, jit

X = np.array([1.0, 2.0])


def test_types_that_c_code_asks_for():
    """`map(type, xs)` of traced values -> tapegrad's own classes; `type(x)` gives the plain one"""
    kinds = grad(lambda x: 2 * x if list(map(type, [x])) == [float] else 3 * x, compile="never")
    assert kinds(1.0) == 3.0


def test_functions_that_are_replaced_inside_packages(monkeypatch):
    """a function is replaced inside NumPy, another package or Python's library, where only these
    call it -> not noticed"""
    df = grad(lambda x: x * statistics.fmean([2.0, 4.0]), compile="never")
    assert df(1.0) == 3.0
    monkeypatch.setattr(statistics, "fsum", lambda xs: 100.0)
    assert df(1.0) == 3.0


def test_a_callers_errstate():
    """`np.errstate(all="raise")` around a call, where the function catches the error -> not
    noticed, if it was traced without"""

    def f(x):
        try:
            return x * min(np.float64(1.0) / np.float64(0.0), 2.0)
        except FloatingPointError:
            return 3.0 * x

    df = grad(f, compile="never")
    with np.errstate(divide="ignore"):
        assert df(1.0) == 2.0
    with np.errstate(all="raise"):
        assert df(1.0) == 2.0


def test_a_callers_filter_of_warnings():
    """a filter around a call that makes errors of warnings, where the function enters
    `warnings.catch_warnings()` and catches one -> what it was traced with stays"""

    def f(x):
        with warnings.catch_warnings():
            try:
                return np.sum(np.log(x))
            except RuntimeWarning:
                return 3.0 * np.sum(x)

    played = jit(f, compile="never")
    for action in ("error", "ignore"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            # From Python 3.14 on, `catch_warnings` reads the filters in Python: they are guarded.
            is_guarded = action == "ignore" and sys.version_info >= (3, 14)
            assert played(np.array([0.0, 2.0])) == (-np.inf if is_guarded else 6.0)


def test_the_byte_order_of_an_argument():
    """`x.dtype == np.dtype(">f8")` of a big-endian argument -> no: a trace computes in the
    processor's order"""
    swapped = X.astype(">f8")
    f = jit(lambda x: x * 2 if x.dtype == np.dtype(">f8") else x, compile="never")
    np.testing.assert_array_equal(f(swapped), X)


def test_sums_of_pythons_floats():
    """`sum` of Python's floats, to which Python 3.12 adds what is lost on the way -> as Python 3.11
    adds them up"""

    def f(x):
        return sum([x, 1e100, 1.0, -1e100])

    assert jit(f, compile="never")(1.0) == 0.0
    assert f(1.0) == (0.0 if sys.version_info < (3, 12) else 2.0)


def test_real_and_complex_numbers_of_pythons():
    """`x * complex(inf, 0.0)` or `x / z` of Python's numbers, of which Python 3.14 takes the real
    one as it is -> as Python 3.13 computes, for which it has an imaginary part 0: where the other
    is infinite, a part may be NaN, and a part that is zero may have another sign"""

    def f(x):
        return (x * complex(np.inf, 0.0)).imag

    assert np.isnan(jit(f, compile="never")(1.0))
    assert np.isnan(f(1.0)) == (sys.version_info < (3, 14))


def test_logarithms_of_densities_that_have_vanished():
    """`laplace.logpdf(1000.0)` and the like of scipy.stats, where SciPy takes the logarithm of a
    density that is 0 by then -> finite, where SciPy has -inf"""
    assert jit(lambda x: laplace.logpdf(x), compile="never")(1000.0) == -1000 - np.log(2)
    with np.errstate(divide="ignore"):
        assert laplace.logpdf(1000.0) == -np.inf


def test_roots_by_halves():
    """a loop of the program's own halves an interval until it has a root -> the slope is that of
    the interval's ends, as comparisons have none: `brentq`, or `custom_root`, has the root's"""

    def root(a):
        low, high = 0.0, 2.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if middle**3 < a else (low, middle)
        return low

    assert grad(root, compile="never")(2.0) == 0.0
    found = grad(lambda a: brentq(lambda x: x**3 - a, 0.0, 2.0), compile="never")(2.0)
    np.testing.assert_allclose(found, 2 ** (-2 / 3) / 3)
