"""Methods of plain arrays that are passed traced values, and of NumPy's classes in Python."""

from __future__ import annotations

import collections
import functools
from typing import Any

import numpy as np
import pytest
import scipy.stats

from tapegrad import errors, grad, value_and_grad

STATE = np.array([0.3, 0.7, 1.1, 0.2, 0.9])
TIMES = np.linspace(0, 1, 5)
TABLE = np.arange(15.0).reshape(5, 3) / 7
ONES = np.ones(3)
DOT = TABLE.dot
POLYNOMIAL = np.polynomial.Polynomial([1.0, 2.0, 3.0])
COMPILE = pytest.mark.parametrize("compile", ["never", "always"])


def check(f, compile="never", points=(0.8, 0.9)):
    derived = value_and_grad(f, compile=compile)
    for c in points:
        value, slope = derived(c)
        assert value == pytest.approx(f(c), rel=1e-13)
        assert slope == pytest.approx((f(c + 1e-6) - f(c - 1e-6)) / 2e-6, rel=1e-6, abs=1e-8)
    assert derived.cache_info().traces == 1


def summed(c):
    out = c * np.ones(5)
    TABLE.sum(axis=1, out=out)
    return np.sum(out * c)


METHODS: dict[str, Any] = {
    "dot": lambda c: np.sum(TABLE.dot(c * ONES) ** 2),
    "dot of vectors": lambda c: STATE.dot(c * TIMES),
    "of the class": lambda c: np.sum(np.ndarray.dot(TABLE, c * ONES)),
    "of the class, traced": lambda c: np.ndarray.sum(c * STATE) + np.ndarray.max(c * STATE),
    "kept": lambda c: next(np.sum(d(c * ONES)) for d in [TABLE.dot]),
    "kept outside": lambda c: np.sum(DOT(c * ONES)),
    "mapped": lambda c: sum(np.sum(v) for v in map(TABLE.dot, [c * ONES, ONES])),
    "partial": lambda c: np.sum(functools.partial(TABLE.dot, c * ONES)()),
    "operator": lambda c: np.sum(TABLE.__matmul__(c * ONES)) + np.sum(STATE.__mul__(c)),
    "searchsorted": lambda c: c * TIMES.searchsorted(c * 0.3),
    "clip": lambda c: np.sum(STATE.clip(c * 0.1, c * 0.4) ** 2),
    "clip by name": lambda c: np.sum(STATE.clip(min=c * 0.4) ** 2),
    "take": lambda c: c * np.sum(STATE.take((c * TIMES * 3).astype(int))),
    "choose": lambda c: np.sum(np.array([0, 1, 0]).choose([c * ONES, c * c * ONES])),
    "compress": lambda c: c * np.sum(STATE.compress(c * STATE > 0.5)),
    "initial": lambda c: TABLE.sum(initial=c) + STATE.max(initial=c * 2),
    "where": lambda c: c * TABLE.sum(where=c * TABLE > 0.5),
    "out": summed,
    "reduce": lambda c: np.add.reduce(STATE * c),
    "outer": lambda c: np.sum(np.multiply.outer(STATE, c * TIMES)),
}


@pytest.mark.every(8)
@COMPILE
@pytest.mark.parametrize("name", METHODS)
def test_methods_of_plain_arrays(name, compile):
    """They are traced as NumPy's functions of the same arrays are."""
    check(METHODS[name], compile)


def test_the_array_is_read_at_each_call():
    table = TABLE.copy()
    df = grad(lambda w: np.sum(table.dot(w)))
    np.testing.assert_allclose(df(ONES), TABLE.sum(0))
    table *= 3
    np.testing.assert_allclose(df(ONES), 3 * TABLE.sum(0))
    assert df.cache_info().traces == 1


def test_plain_calls_stay_numpys():
    """Without a traced value the method is NumPy's own, and gives a plain array."""
    kinds = []

    def f(c):
        kinds.append(type(TABLE.dot(ONES)))
        kinds.append(type(STATE.reshape(int(c) + 4, 1)))
        return c * np.sum(TABLE.dot(ONES))

    grad(f)(1.0)
    assert kinds == [np.ndarray, np.ndarray]


def test_numpys_errors_are_numpys():
    with pytest.raises(ValueError, match="not aligned"):
        grad(lambda c: np.sum(TABLE.dot(c * np.ones(4))))(1.0)
    shown = np.frombuffer(bytearray(8))
    with pytest.raises(errors.ConversionError, match=r"by x\.fill"):
        grad(lambda c: shown.fill(c))(1.0)


# ---- NumPy's polynomials


POLYNOMIALS: dict[str, Any] = {
    "captured": lambda c: POLYNOMIAL(c) + np.sum(POLYNOMIAL(c * STATE)),
    "made": lambda c: np.polynomial.Polynomial([1.0, 2.0])(c),
    "of traced coefficients": lambda c: np.polynomial.Polynomial([c, 2 * c, 1.0])(1.3),
    "derivative": lambda c: np.polynomial.Polynomial([1.0, 2.0, c]).deriv()(1.3),
    "integral": lambda c: np.polynomial.Polynomial([1.0, 2.0, c]).integ()(c),
    "sum": lambda c: (POLYNOMIAL + np.polynomial.Polynomial([c, c]) - c)(0.5),
    "product": lambda c: (POLYNOMIAL * np.polynomial.Polynomial([c, c]) * c)(0.5),
    "composed": lambda c: POLYNOMIAL(np.polynomial.Polynomial([c, 1.0]))(0.5),
    "domain": lambda c: np.polynomial.Polynomial([1.0, 2.0, 3.0], domain=[0, 4])(c),
    "Chebyshev": lambda c: np.polynomial.Chebyshev([1.0, 2.0, 4.0])(c * 0.1),
    "Legendre": lambda c: np.polynomial.Legendre([1.0, 2.0, 4.0])(c * 0.1),
    "Hermite": lambda c: np.polynomial.Hermite([1.0, 2.0, 4.0])(c * 0.1),
    "HermiteE": lambda c: np.polynomial.HermiteE([1.0, 2.0, c])(c * 0.1),
    "Laguerre": lambda c: np.polynomial.Laguerre([1.0, 2.0, c])(c * 0.1),
    "polyval": lambda c: np.polynomial.polynomial.polyval(c, [1.0, 2.0, 4.0]),
    "legval": lambda c: np.polynomial.legendre.legval(c * STATE, [c, 2.0, 4.0])[1],
    "vander": lambda c: np.sum(np.polynomial.polynomial.polyvander(c * STATE, 3)),
    "quadrature": lambda c: np.sum(np.polynomial.legendre.leggauss(5)[1] * np.exp(c * STATE)),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_numpys_polynomials(name):
    """Their code is followed as a library's is."""
    check(POLYNOMIALS[name])


def test_polynomials_are_compiled():
    check(POLYNOMIALS["captured"], "always")


def test_coefficients_are_read_at_each_call():
    p = np.polynomial.Polynomial([1.0, 2.0])
    dp = grad(lambda c: p(c))
    assert dp(0.5) == 2.0
    p.coef[1] = 5.0
    assert dp(0.5) == 5.0


def test_polynomials_of_one_dimension():
    """np.poly1d, of lists with traced values, too."""
    p = np.poly1d([1.0, 2.0, 3.0])
    check(lambda c: p(c) + np.sum(p(c * STATE)) + (p * np.poly1d([c, 1.0]))(2.0))
    check(lambda c: np.poly1d([c, 1.0, 2.0]).deriv()(c) + np.poly1d(c * STATE)(0.5))


def test_functions_of_coefficients_take_polynomials():
    """np.polyder(p) of p = np.poly1d([a, b]), whose coefficients are traced, is one, too."""

    def f(c):
        p, q = np.poly1d([c, 1.0, 2.0]), np.poly1d([1.0, c])
        quotient, rest = np.polydiv(p, q)
        parts = [np.polyder(p), np.polyint(q), np.polymul(p, [1.0, c]), np.polyadd(p, q)]
        parts += [np.polysub(p, q), quotient, rest, np.polyval(p, q)]
        assert all(type(part) is np.poly1d for part in parts)
        roots = np.roots(np.poly1d([1.0, c + 5.0, c]))
        lists = np.polymul([c, 1.0], [1.0, c]).sum() + np.polydiv([c, 1.0, 3.0], [1.0, c])[1].sum()
        return sum(part(1.5) for part in parts) + roots.max() + np.polyval(p, 0.3) + lists

    check(f)


# ---- objects that make arrays of themselves


class Stacked:
    def __init__(self, *parts):
        self.parts = list(parts)

    def __array__(self, dtype=None, copy=None):
        return np.stack(self.parts)


def test_objects_that_make_arrays_of_themselves():
    """What their code reads is compared at later calls."""
    first = STATE.copy()
    stacked = Stacked(first, TIMES)

    def f(c):
        return np.sum(np.multiply(c, stacked)) + np.sum((c * TIMES) * stacked)

    check(f)
    df = grad(f, compile="never")
    assert df(1.0) == pytest.approx(f(1.0))
    first[:] = 2.0
    assert df(1.0) == pytest.approx(f(1.0))
    df = grad(f, compile="never")
    assert df(1.0) == pytest.approx(f(1.0))
    stacked.parts[0] = TIMES
    assert df(1.0) == pytest.approx(f(1.0))


# ---- objects beside scalars


class Reflected:
    def __init__(self, value):
        self.value = value

    def __radd__(self, other):
        return other + self.value

    def __rsub__(self, other):
        return other - self.value

    def __rmul__(self, other):
        return other * self.value

    def __rtruediv__(self, other):
        return other / self.value

    def __rpow__(self, other):
        return other**self.value

    def __gt__(self, other):
        return self.value > other


TWO = Reflected(2.0)


@COMPILE
def test_a_scalar_meets_an_object_as_pythons_number_does(compile):
    def f(c):
        x = c * STATE
        y = x[0] * TWO + (x[1] + TWO) - (x[2] - TWO) + x[3] / TWO + np.multiply(x[4], TWO)
        return y + x[1] ** TWO + (x[0] if x[1] < TWO else 3 * x[0])

    check(f, compile)


def test_what_an_object_holds_is_read_at_each_call():
    held = Reflected(2.0)
    df = grad(lambda c: (c * STATE)[0] * held)
    assert df(1.0) == pytest.approx(0.6)
    held.value = 5.0
    assert df(1.0) == pytest.approx(1.5)


def test_an_array_that_meets_an_object_is_refused():
    """Of it NumPy makes an array of objects. The message names the class, and what asks it once."""
    with pytest.raises(errors.UnsupportedError, match="object of type Reflected"):
        grad(lambda c: np.sum((c * STATE) * TWO))(1.0)

    class Whole(Reflected):
        __array_ufunc__ = None

    check(lambda c: np.sum((c * STATE) * Whole(2.0)))


class Scaled:
    """No array, with universal functions of its own."""

    def __init__(self, x):
        self.x = x

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        given = [v.x if isinstance(v, Scaled) else v for v in inputs]
        return Scaled(getattr(ufunc, method)(*given, **kwargs))


@COMPILE
def test_an_object_with_universal_functions_of_its_own_is_asked(compile):
    def f(c):
        x = c * STATE
        y = (x * Scaled(2.0)).x + np.hypot(x, Scaled(x)).x + (x[0] / Scaled(x)).x
        return np.sum(y + np.add(x, Scaled(c), out=None).x)

    check(f, compile)


@COMPILE
def test_arrays_of_objects_hold_traced_values(compile):
    """one that the function makes, at one place each, as a list does"""

    def f(c):
        rows, whole, single = np.empty((1, 2), object), np.full(2, None), np.empty((), object)
        rows[0, 0], rows[0, 1] = c * STATE, np.array([1.0, c])
        whole[0], whole[1], single[()] = c**2, 3 * c, c * TIMES
        loose = sum(np.sum(row**2) for row in rows.ravel())
        return loose + np.sum(whole) + (2 * whole)[0] + np.sum(single.item())

    check(f, compile)
    multiplied = grad(lambda c: np.sum(np.frompyfunc(lambda v: c * v, 1, 1)(STATE).astype(float)))
    assert multiplied(1.0) == multiplied(2.0) == pytest.approx(np.sum(STATE))


def test_named_tuples_and_subclasses_of_lists_are_arrays_of_their_elements() -> None:
    """as NumPy makes them: two numbers that a test of SciPy's returns, too"""
    other = np.array([0.3, 0.8, -0.4, 1.1])
    point = collections.namedtuple("point", "x y")
    own = type("own", (list,), {})
    x = np.array([0.5, 1.5, -0.7, 0.2])
    for f in (
        lambda x: np.sum(scipy.stats.ttest_ind(x, other)),
        lambda x: np.mean(scipy.stats.linregress(x, other)),
        lambda x: np.linalg.norm(point(x[0], x[1] * x[2])),
        lambda x: np.dot(point(x[0], x[1]), own(x[2:])),
        lambda x: np.sum([point(x[0], x[1]), own(x[2:])], axis=0)[1] ** 2,
    ):
        value, slope = value_and_grad(f, compile="never")(x)
        assert value == pytest.approx(f(x), rel=1e-12)
        steps = 1e-6 * np.eye(4)
        np.testing.assert_allclose(
            slope, [(f(x + d) - f(x - d)) / 2e-6 for d in steps], rtol=1e-5, atol=1e-8
        )
