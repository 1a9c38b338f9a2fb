"""Numbers that decide what SciPy does, passed as arguments: each call has them as they are then.

An integer or a real number that goes to code in C is taken as a plain one, and a later call with
another takes another path. A derivative with respect to such a real number is an error; with
respect to a tolerance it is 0, since what is approximated doesn't depend on that.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from scipy import fft, integrate, linalg, ndimage, optimize, signal, special, stats
from scipy.sparse import csc_array, diags_array, vstack
from scipy.sparse.linalg import cg, gcrotmk, lgmres, splu

from tapegrad import grad, jit, stop_gradient, value_and_grad, vjp
from tapegrad.errors import ConversionError, UnsupportedError

V = np.array([0.3, 1.1, 0.7, 0.2, 0.9, 1.6])
A = np.abs(np.sin(np.arange(36.0).reshape(6, 6))) + 0.1


def decay(x, **how):
    return integrate.solve_ivp(lambda t, y: -x[0] * y, (0.0, 1.0), [1.0], **how).y[0, -1]


INTEGERS = [
    (lambda x, n: np.sum(fft.dct(x, n=n) ** 3), 4, 8),
    (lambda x, n: np.sum(fft.dct(V, n=n)) * x[0], 4, 8),
    (lambda x, n: np.sum(ndimage.shift(V, n) * x), 1, 2),
    (lambda x, n: np.sum(signal.resample(V, n)) * x[0], 4, 8),
    (lambda x, n: np.sum(signal.windows.hann(n)) * x[0], 4, 8),
    (lambda x, n: np.sum(signal.get_window("hann", n)) * x[0], 4, 8),
    (lambda x, n: np.sum(signal.firwin(n, 0.3) ** 2) * x[0], 5, 7),
    (lambda x, n: np.sum(linalg.hilbert(n)) * x[0], 2, 3),
    (lambda x, n: np.sum(special.roots_legendre(n)[0] ** 2) * x[0], 4, 5),
    (lambda x, n: integrate.simpson(x[:n] ** 2, dx=0.1), 4, 5),
    (lambda x, n: integrate.simpson(x[:n] ** 2, x=np.arange(n) * 1.0), 4, 5),
    (lambda x, n: integrate.simpson(x[:n] ** 2, x=np.linspace(0.0, x[0], n)), 6, 5),
]
REALS = [
    (lambda x, s: np.sum(ndimage.gaussian_filter(A * x[0], s) ** 2), 1.0, 2.0),
    (lambda x, s: np.sum(ndimage.gaussian_filter1d(x, s) ** 2), 1.0, 2.5),
]
TOLERANCES = [
    (lambda x, s: decay(x, rtol=s), 1e-6, 1e-9),
    (lambda x, s: decay(x, max_step=s), 0.1, 0.2),
    (lambda x, s: integrate.quad(lambda t: np.exp(-x[0] * t), 0, 1, epsabs=s)[0], 1e-8, 1e-9),
    (lambda x, s: np.sum(np.linalg.pinv(np.outer(x, x) + np.diag(x[::-1]), rcond=s)), 0.1, 0.01),
    (lambda x, s: np.sum(linalg.lstsq(np.outer(x, x) + np.diag(V), x, np.exp(-s))[0]), 1.5, 4.0),
    (lambda x, s: optimize.brentq(lambda t: t * t - x[0], 0.0, 2.0, xtol=s), 1e-12, 1e-10),
]


@pytest.mark.every(12)
@pytest.mark.filterwarnings("ignore:.*was traced for:RuntimeWarning")
@pytest.mark.parametrize("f, first, second", [*INTEGERS, *REALS, *TOLERANCES])
def test_each_call_has_its_own_option(f, first, second):
    played, slope = jit(f, compile="never"), grad(f, compile="never")
    for option in (first, second, first):
        assert np.allclose(played(V, option), f(V, option), rtol=1e-12)
        for k in range(2):
            step = 1e-6 * np.eye(6)[k]
            expected = (f(V + step, option) - f(V - step, option)) / 2e-6
            assert np.isclose(slope(V, option)[k], expected, rtol=1e-4, atol=1e-6)


def test_a_derivative_that_would_be_lost_is_an_error():
    def f(x, s):
        return x[0] * float(Decimal(s))

    first = 1.5
    for wrt in (1, (0, 1)):
        with pytest.raises(ConversionError, match="carries no derivative"):
            grad(f, wrt)(V, first)
    with pytest.raises(ConversionError, match="carries no derivative"):
        vjp(f, V, first)
    inner = grad(lambda s: grad(lambda x: f(x, s))(V)[0])
    with pytest.raises(ConversionError, match="carries no derivative"):
        inner(first)
    assert grad(lambda s: f(V * s, stop_gradient(s)))(first) != 0


@pytest.mark.parametrize("f, first, second", TOLERANCES)
def test_the_derivative_with_respect_to_a_tolerance_is_0(f, first, second):
    assert grad(f, 1, compile="never")(V, first) == 0


def test_an_element_of_an_argument_is_an_option():
    f = grad(lambda x, p: np.sum(ndimage.gaussian_filter(A * x, p[1]) ** 2))
    for p in (np.array([1.0, 1.5]), np.array([1.0, 2.5])):
        assert np.isclose(f(1.0, p), 2 * np.sum(ndimage.gaussian_filter(A, p[1]) ** 2))


def test_bounds_are_options():
    def f(x, b):
        residual = lambda p: p - x  # noqa: E731
        return np.sum(optimize.least_squares(residual, np.full(6, 0.1), bounds=(-b, b)).x)

    slope = grad(f)
    for b in (3.0, 1.0, 5.0):
        assert np.allclose(slope(V, b), np.abs(V) < b)


def test_a_tolerance_may_be_an_array_of_one_number():
    tolerance, most = np.array(1e-12), np.array(50)

    def f(x):
        return optimize.brentq(lambda t: t * t - x[0], 0.0, 2.0, xtol=tolerance, maxiter=most)

    slope = grad(f, compile="never")
    for tolerance[...] in (1e-12, 1e-10, 1e-12):
        assert np.isclose(slope(V)[0], 0.5 / np.sqrt(V[0]), rtol=1e-8)
    assert slope.cache_info().traces == 2
    b = grad(lambda x: np.sum(cg(np.diag(V), x, rtol=np.array(1e-9), maxiter=most)[0]))(V)
    assert np.allclose(b, 1 / V)


S = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 0.5]])
WAYS = [
    lambda x: np.sum(integrate.odeint(lambda y, t: -x[0] * y, x[2], [0.0, 0.5, 1.0], mxordn=5)),
    lambda x: integrate.quad(lambda t: np.exp(-x[0] * t), 0, 1, limlst=20, maxp1=30)[0],
    lambda x: np.sum(optimize.least_squares(lambda p: p * p - x, np.ones(6), verbose=0).x),
    lambda x: np.sum(optimize.fsolve(lambda p: p * p - x, np.ones(6), epsfcn=x[0] * 1e-8)),
    lambda x: np.sum(splu(csc_array(S * x[0]), permc_spec="NATURAL", relax=1).solve(x[:3])),
    lambda x: np.sum(gcrotmk(S * x[0], x[:3], m=10, k=3, rtol=1e-13)[0]),
    lambda x: np.sum(lgmres(S * x[0], x[:3], inner_m=10, rtol=1e-13)[0]),
    lambda x: np.sum(vstack([csc_array(S * x[0]), S], dtype=float).toarray() ** 2),
    lambda x: np.sum(linalg.pinv(S * x[0] + x[1] * 0.1, atol=0.5) ** 2),
    lambda x: np.sum(linalg.pinvh(S * x[0], rtol=0.01, atol=0.2) ** 2),
    lambda x: linalg.pinv(S * x[1], atol=x[0], return_rank=True)[1] * x[2],
    lambda x: np.sum(np.linalg.pinv(np.stack([S, S * x[0]]) + x[1], np.array([0.4, 0.01])) ** 2),
]


@pytest.mark.every(12)
@pytest.mark.parametrize("f", WAYS)
@pytest.mark.parametrize("mode", ["never", "always"])
def test_ways_to_a_result_are_taken(f, mode):
    both = value_and_grad(f, compile=mode)
    for x in (V, V[::-1].copy()):
        value, slope = both(x)
        assert np.isclose(value, f(x), rtol=1e-7)
        for k in range(3):
            step = 1e-6 * np.eye(6)[k]
            expected = (f(x + step) - f(x - step)) / 2e-6
            assert np.isclose(slope[k], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: diags_array(x, format="bogus").toarray()[0, 0],
        lambda x: np.sum(splu(csc_array(S * x[0]), permc_spec="bogus").solve(x[:3])),
        lambda x: linalg.pinv(S * x[0], atol=-1.0)[0, 0],
        lambda x: stats.anderson_ksamp([x, x], axis=0)[0],
    ],
)
def test_options_that_scipy_refuses_are_refused(f):
    with pytest.raises((ValueError, TypeError)) as theirs:
        f(V)
    with pytest.raises(type(theirs.value)) as ours:
        grad(f)(V)
    assert str(ours.value) == str(theirs.value)


REUSED = {
    "det": lambda a: linalg.det(a, overwrite_a=True),
    "by position": lambda a: np.sum(linalg.inv(a, True)),
    "solve": lambda a: np.sum(linalg.solve(np.eye(6) + V, a, overwrite_b=True)),
    "a view": lambda a: linalg.det(a[:3, :3], overwrite_a=True),
    "fft": lambda a: np.sum(np.abs(fft.fft(a, overwrite_x=True))),
    "LAPACK": lambda a: np.sum(linalg.lapack.dgetrf(a, overwrite_a=1)[0]),
    "median": lambda a: np.median(a, overwrite_input=True),
    "nanpercentile": lambda a: np.nanpercentile(a, 30, overwrite_input=True),
}


@pytest.mark.parametrize("name", REUSED)
def test_what_scipy_may_have_written_to_is_not_read(name):
    f = REUSED[name]

    def read_afterwards(x):
        a = x * 2.0
        return f(a) + a[0, 0]

    with pytest.raises(UnsupportedError, match=r"overwrite_\w+=True.*Pass a copy"):
        grad(read_afterwards)(A)
    plain = A @ A.T + np.eye(6)
    value, _ = value_and_grad(lambda x: f(x.copy()) + f(x * 2.0) + x[0, 0])(plain)
    np.testing.assert_allclose(value, f(plain.copy()) + f(plain * 2.0) + plain[0, 0])


def test_what_is_written_in_place_and_returned_is_read():
    def f(x):
        a = x * 2.0
        return np.sum(signal.detrend(a, overwrite_data=True) ** 2) + np.sum(a**3)

    np.testing.assert_allclose(jit(f)(A), f(A))
