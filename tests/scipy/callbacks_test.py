"""Functions that SciPy's solvers are passed: of the user's, of libraries, and what they are of."""

from __future__ import annotations

import functools
import io
import itertools
import math
import sys

import numba
import numpy as np
import pytest
from scipy import LowLevelCallable, integrate, interpolate, optimize, stats

from tapegrad import grad, value_and_grad
from tapegrad.errors import TraceError, UnsupportedError

MODES = ["never", "always"]
SPLINE = interpolate.CubicSpline(np.arange(6.0), [1.0, 2.0, 0.0, 3.0, 1.0, 2.0])


@numba.njit
def decay(x, a):
    return np.exp(-a * x)


@numba.njit
def pendulum(t, y, a):
    return np.array([y[1], -a * np.sin(y[0])])


@numba.cfunc("float64(float64)")
def in_c(x):
    return x * x


@pytest.mark.every(8)
@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.exp(-x),  # reaches nothing that is traced
        np.sin,
        math.exp,
        stats.norm.pdf,
        stats.gamma(2.3).cdf,
        SPLINE,
        np.poly1d([1.0, 2.0, 3.0]),
        np.vectorize(lambda x: x if x > 0.5 else x**2),
        functools.partial(stats.norm.pdf, loc=0.3),
        functools.partial(decay, a=2.0),
        numba.njit(lambda x: x**3 + x),
    ],
)
def test_an_integral_up_to_a_traced_limit_is_of_any_function(f):
    value, slope = value_and_grad(lambda a: integrate.quad(f, 0.0, a)[0])(1.3)
    np.testing.assert_allclose(value, integrate.quad(f, 0.0, 1.3)[0], rtol=1e-12)
    np.testing.assert_allclose(slope, f(1.3), rtol=1e-9)


@pytest.mark.parametrize("mode", MODES)
def test_functions_that_numba_compiled_are_followed_by_solvers(mode):
    def end(a):
        return integrate.solve_ivp(pendulum, (0, 1), [1.0, 0.0], args=(a,), rtol=1e-9).y[0, -1]

    def root(a):
        return optimize.brentq(decay, -5.0, 5.0, args=(a,)) if a < 0 else 0.5 * a

    def area(a):
        return integrate.quad(decay, 0, 1, args=(a,))[0]

    def fit(a):
        line = numba.njit(lambda x, p, q: p * x + q)
        return np.sum(optimize.curve_fit(line, np.arange(4.0), np.arange(4.0) ** 2 * a)[0])

    for f in (end, root, area, fit):
        value, slope = value_and_grad(f, compile=mode)(1.3)
        np.testing.assert_allclose(value, f(1.3), rtol=1e-9)
        np.testing.assert_allclose(slope, (f(1.301) - f(1.299)) / 0.002, rtol=1e-4)


def test_numba_compiles_beside_the_trace(monkeypatch):
    """Else Python would call back for each of the hundred thousand functions that it calls."""
    line, seen = numba.njit(lambda x, p, q: p * x + q), []
    inside = type(line._compiler)
    of = inside.compile

    def compile(self, *args):
        seen.append(sys.gettrace())
        return of(self, *args)

    monkeypatch.setattr(inside, "compile", compile)
    x = np.arange(4.0)
    slope = grad(lambda a: np.sum(optimize.curve_fit(line, x, x**2 * a)[0]), compile="never")(1.3)
    np.testing.assert_allclose(slope, 2.0)
    made = numba.experimental.jitclass([("x", numba.float64)])(Held)
    assert grad(lambda a: a * made(2.0).x, compile="never")(1.3) == 2.0
    assert len(seen) > 2 and not any(seen)


class Held:
    def __init__(self, x):
        self.x = x


def test_what_is_c_is_refused_or_left_to_scipy():
    plain = LowLevelCallable(in_c.ctypes)
    assert grad(lambda a: a * integrate.quad(plain, 0, 3)[0])(1.0) == integrate.quad(plain, 0, 3)[0]
    with pytest.raises(UnsupportedError, match="LowLevelCallable"):
        grad(lambda a: integrate.quad(plain, 0, a)[0])(1.0)


@pytest.mark.parametrize(
    "f",
    [
        lambda a: optimize.minimize(lambda x: (x[0] - a) ** 2, [0.0], jac="cs").x[0],
        lambda a: integrate.quad_vec(lambda x: np.exp(1j * a * x), 0, 1)[0].real,
        lambda a: optimize.root(lambda x: x**2 - a, [1.0 + 1.0j]).x[0].real,
        lambda a: interpolate.CubicSpline(np.arange(4.0), np.arange(4) * (a + 1j))(0.5).imag,
        lambda a: interpolate.CubicSpline([0, a, 2.0, 3.0], np.arange(4) * 1j)(0.5).imag,
        lambda a: interpolate.interp1d(np.arange(4.0), np.arange(4) * (1 + 1j * a))(0.5).imag,
    ],
)
def test_imaginary_parts_are_never_left_out(f):
    with pytest.raises(UnsupportedError, match="complex numbers"):
        grad(f)(np.float64(1.3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "f",
    [
        lambda a: optimize.brentq(
            lambda x: np.piecewise(x, [x < 0.5, x >= 0.5], [lambda u: u - a, lambda u: a * u - 1]),
            *(0, 2),
        ),
        lambda a: optimize.brentq(lambda x: np.reshape(float(x), (1,))[0] ** 2 - a, 0, 2),
        lambda a: integrate.quad(lambda x: abs(complex(a * x, float(x))), 0, 1)[0],
    ],
)
def test_numbers_that_are_passed_may_become_arrays(f, mode):
    """SciPy passes Python's floats, of which NumPy's functions make arrays."""
    slope = grad(f, compile=mode)
    for a in (1.3, 1.1):
        assert slope(a) == pytest.approx((f(a + 1e-6) - f(a - 1e-6)) / 2e-6, rel=1e-5)


def counts_in_a_list(p):
    n = [0]

    def g(x):
        n[0] += 1
        return x**3 - p

    return optimize.brentq(g, 0, 3) * n[0]


def counts_in_a_variable(p):
    n = 0

    def rhs(t, y):
        nonlocal n
        n += 1
        return -p * y

    return integrate.solve_ivp(rhs, (0, 1.0), [1.0]).y[0, -1] * n


def appends(p):
    seen = []

    def h(t):
        seen.append(t)
        return np.exp(-p * t)

    return integrate.quad(h, 0, 1)[0] * len(seen)


@pytest.mark.parametrize("f", [counts_in_a_list, counts_in_a_variable, appends])
def test_callbacks_that_change_what_was_there_before(f):
    """they would be counted as often as they are traced"""
    with pytest.raises(TraceError, match=r"changes what was there before, .*callbacks_test\.py"):
        grad(f)(1.5)


class Model:
    total = 0

    def __init__(self):
        self.calls, self.log, self.seen = 0, [], np.zeros(1)

    def __call__(self, t, p):
        self.calls += 1
        return np.exp(-p * t)


MODEL, STREAM, NUMBERS, COUNT = Model(), io.StringIO(), itertools.count(), 0


def of_an_object():
    MODEL.calls += 1


def of_a_class():
    Model.total += 1


def of_a_global():
    global COUNT
    COUNT += 1


def of_a_function():
    of_a_function.calls += 1


of_a_function.calls = 0


@pytest.mark.parametrize(
    "change",
    [
        of_an_object,
        of_a_class,
        of_a_global,
        of_a_function,
        lambda: MODEL.log.append(1),
        lambda: MODEL.seen.__setitem__(0, MODEL.seen[0] + 1),
        lambda: np.add(MODEL.seen, 1, out=MODEL.seen),
        lambda: setattr(MODEL, "calls", MODEL.calls + 1),
        lambda: STREAM.write("x"),
        lambda: next(NUMBERS),
    ],
)
def test_callbacks_that_change_the_outside(change):
    """whatever holds it: plain SciPy would have counted each of its calls"""

    def integrand(t, p):
        change()
        return np.exp(-p * t)

    with pytest.raises(TraceError, match=r"changes what was there before, .*\.py"):
        grad(lambda p: integrate.quad(integrand, 0, 1, args=(p,))[0])(1.5)


def test_callbacks_that_are_objects_that_count():
    """from outside, and made in the function"""
    for f in (
        lambda p: integrate.quad(MODEL, 0, 1, args=(p,))[0],
        lambda p: integrate.quad(Model(), 0, 1, args=(p,))[0],
        lambda p: (lambda m: integrate.quad(lambda t: m(t, p), 0, 1)[0] * m.calls)(Model()),
    ):
        with pytest.raises(TraceError, match="changes what was there before"):
            grad(f)(1.5)


def test_callbacks_with_lists_of_their_own():
    def rhs(t, y, p):
        found = []
        for v in y:
            found.append(-p * v)
        return found

    def f(p):
        return integrate.solve_ivp(rhs, (0, 1.0), [1.0, 2.0], args=(p,)).y[0, -1]

    assert grad(f)(1.5) == pytest.approx(-np.exp(-1.5), abs=1e-3)


def test_callbacks_that_remember():
    """a table that is filled once is the same at each further call"""

    def f(p):
        table = {}

        def h(t):
            if "k" not in table:
                table["k"] = 2.0
            return p * t * table["k"]

        return integrate.quad(h, 0, 1)[0]

    assert grad(f)(1.5) == pytest.approx(1.0)


def test_a_callback_that_writes_to_its_arrays_may_write_to_a_copy():
    def balance(t, a, weights, copies):
        if copies:
            weights = weights.copy()
        weights[0] += 1.0
        found = np.sum(weights * a) * t - 6.0
        weights[0] -= 1.0
        return found

    def root(a, copies, weights):
        return optimize.brentq(balance, 0.1, 9.0, args=(a, weights, copies))

    a, weights = np.array([1.0, 2.0]), np.array([1.0, 2.0])
    with pytest.raises((TraceError, UnsupportedError), match=r"Write to a copy .*y.copy\(\)"):
        grad(root)(a, False, weights)
    np.testing.assert_allclose(grad(root)(a, True, weights), [-1 / 3, -1 / 3])
