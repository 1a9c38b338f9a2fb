"""How solvers of SciPy's end: what they tell of it, and results that haven't come to their end."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, optimize

from tapegrad import grad, jit, value_and_grad
from tapegrad.errors import GradientError, UnsupportedError

TIMES = np.linspace(0.0, 2.0, 9)
LINE = np.linspace(0.0, 1.0, 9)


def rises(t, y, a):
    """The solution 1 / (1 - a t), which has no end where a t = 1."""
    return [a * y[0] ** 2]


def success(p):
    r = integrate.solve_ivp(rises, (0, 2), [1.0], args=(p[0],), rtol=1e-9)
    return r.y[0, -1] if r.success else 50 * p[0]


def status(p):
    r = integrate.solve_ivp(rises, (0, 2), [1.0], "BDF", args=(p[0],), t_eval=TIMES, rtol=1e-9)
    return 50 * p[0] if r.status < 0 else np.sum(r.y)


def count(p):
    r = integrate.solve_ivp(rises, (0, 2), [1.0], args=(p[0],), t_eval=TIMES, rtol=1e-9)
    return 50 * p[0] if r.y.shape[1] < len(TIMES) else np.sum(r.y)


def message(p):
    slope = lambda y, t: [p[0] * y[0] ** 2]  # noqa: E731
    y, info = integrate.odeint(slope, [1.0], TIMES, full_output=True, rtol=1e-10)
    ended = info["message"] == "Integration successful."
    return y[-1, 0] if ended and np.max(info["nst"]) > 1 else 50 * p[0]


def root_told(p):
    x, info, ier, _ = optimize.fsolve(lambda x: x**2 + p[0] - 0.3, [1.0], full_output=True)
    return x[0] + np.sum(info["fvec"]) if ier == 1 and info["nfev"] > 1 else 5 * p[0]


def roots_told(p):
    many = lambda x: x**2 + np.array([0.0, 1.0]) * p[0] - 0.3  # noqa: E731
    r = optimize.newton(many, np.ones(2), full_output=True, maxiter=30, disp=False)
    return np.sum(r.root) if np.all(r.converged) else 5 * p[0]


def least_told(p):
    wrong = lambda x: np.array([x[0] - p[0], x[1] * x[0] - 1, x[1] - 0.5])  # noqa: E731
    by = lambda x: np.array([[1.0, 0.0], [x[1], x[0]], [0.0, 1.0]])  # noqa: E731
    how = {"ftol": 1e-15, "xtol": 1e-15, "full_output": True}
    x, cov, info, _, ier = optimize.leastsq(wrong, [1.0, 1.0], Dfun=by, **how)
    return np.sum(x) + cov[0, 1] + np.sum(info["fvec"] ** 2) if 1 <= ier <= 4 else 5 * p[0]


def fit_told(p):
    curve = lambda t, a, b: a * np.exp(-b * t)  # noqa: E731
    data = p[0] * np.exp(-LINE) + 0.1 * LINE**2
    by = lambda t, a, b: np.stack([np.exp(-b * t), -a * t * np.exp(-b * t)], 1)  # noqa: E731
    how = {"ftol": 1e-15, "xtol": 1e-15, "full_output": True}
    x, _, info, _, ier = optimize.curve_fit(curve, LINE, data, jac=by, **how)
    return np.sum(x) if ier in (1, 2, 3, 4) and info["nfev"] > 1 else 5 * p[0]


def fmin_told(p):
    bowl = lambda x: np.sum((x - p[0]) ** 2) + np.sum(x**4)  # noqa: E731
    by = lambda x: 2 * (x - p[0]) + 4 * x**3  # noqa: E731
    found = optimize.fmin_bfgs(bowl, np.full(2, 0.9), by, gtol=1e-7, full_output=True, disp=False)
    x, least, *_, calls, _, flag = found
    return np.sum(x) + least if flag in (0, 2) and calls > 1 else 5 * p[0]


def linear_told(p):
    r = optimize.linprog([1.0, 1.0], A_ub=[[-1.0, -2.0]], b_ub=[-p[0]], bounds=(0, 0.6))
    return r.fun + r.x[1] + r.ineqlin.marginals[0] if r.success else 5 * p[0]


def unbroken(p):
    """two blocks, or one"""
    y = np.array([1.0, 2.0, 0.5, 0.1]) * p[0] + p[0] ** 2
    return np.sum(optimize.isotonic_regression(y).x ** 2 * np.arange(4))


ENDINGS = [success, status, count, message, root_told, roots_told, least_told, fit_told]
ENDINGS += [fmin_told, linear_told, unbroken]


@pytest.mark.every(24)
@pytest.mark.filterwarnings("ignore::scipy.integrate.ODEintWarning")
@pytest.mark.filterwarnings("ignore:some failed to converge:RuntimeWarning")
@pytest.mark.parametrize("f", ENDINGS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", ["never", "always"])
def test_later_calls_end_as_plain_ones(f, mode):
    g = value_and_grad(f, compile=mode)
    for p in (0.2, 0.25, 3.0, 0.15, 2.5, 0.2):
        value, (slope,) = g(np.array([p]))
        np.testing.assert_allclose(value, f(np.array([p])), rtol=1e-9)
        h = 1e-5
        expected = (f(np.array([p + h])) - f(np.array([p - h]))) / (2 * h)
        np.testing.assert_allclose(slope, expected, rtol=2e-4, atol=1e-6)
    assert g.cache_info().traces <= 3


def test_values_of_a_solution_without_an_end_have_no_derivative():
    def f(a):
        return integrate.solve_ivp(rises, (0, 2), [1.0], args=(a,)).y[0, -1]

    with pytest.raises(GradientError, match="last of the times"):
        grad(f)(3.0)


def test_a_solution_that_an_event_may_end_before_it_fails():
    """Whether it does is another thing at each call."""

    def f(p):
        reached = lambda t, y, a: y[0] - p[1]  # noqa: E731
        reached.terminal = True
        r = integrate.solve_ivp(rises, (0, 2), [1.0], args=(p[0],), events=reached)
        return r.t[-1] if r.success else 50 * p[0]

    g = value_and_grad(f)
    with pytest.raises(UnsupportedError, match="before an event"):
        g(np.array([3.0, 1e300]))
    np.testing.assert_allclose(g(np.array([3.0, 50.0]))[0], f(np.array([3.0, 50.0])))


def test_where_more_rows_meet_than_there_are_numbers_there_is_no_derivative():
    def corner(a):
        return optimize.linprog([-1.0, -1.5], A_ub=[[1.0, 2], [2, 1], [1, 1]], b_ub=[3, 3, a]).fun

    np.testing.assert_allclose(grad(corner)(1.8), -0.5)
    with pytest.raises(GradientError, match="next to a bound"):
        grad(corner)(2.0)


def test_bounds_of_least_squares_hold_or_not():
    a = np.random.default_rng(3).normal(size=(6, 3))

    def least(x):
        return np.sum(optimize.nnls(a * x[0], x[1] + x[2] * a[:, 0])[0] ** 2)

    def bounded(x):
        r = optimize.lsq_linear(a * x[0], x[1] + x[2] * a[:, 0], bounds=(-0.3, x[2]))
        return np.sum(r.x**2) + r.cost + r.fun[0]

    rng = np.random.default_rng(5)
    for f in (least, bounded):
        g = value_and_grad(f)
        for _ in range(8):
            x = np.abs(rng.normal(size=3)) + 0.5
            h = 1e-6 * np.eye(3)
            value, slope = g(x)
            np.testing.assert_allclose(value, f(x), rtol=1e-9)
            expected = [(f(x + e) - f(x - e)) / 2e-6 for e in h]
            np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-5)
        assert g.cache_info().traces == 1


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("BFGS", {"jac": lambda z: [-z[0], z[1]]}),  # a slope that is wrong
        ("L-BFGS-B", {"jac": lambda z: [-z[0], z[1]]}),
        ("CG", {"jac": lambda z: [-z[0], z[1]]}),
        ("Nelder-Mead", {"options": {"maxiter": 5}}),
    ],
)
def test_a_search_that_gives_up_has_found_no_minimum(method, more):
    def f(a):
        r = optimize.minimize(
            lambda z: (z[0] - a) ** 2 + (z[1] - 1.0) ** 2, [3.0, -2.0], method=method, **more
        )
        return r.x[0] if r.status == 2 else np.nan

    np.testing.assert_allclose(jit(f)(0.7), f(0.7))
    with pytest.raises(GradientError, match="hasn't converged"):
        grad(f)(0.7)


def test_a_search_that_ends_for_rounding_has_found_its_minimum():
    def f(a, method):
        r = optimize.minimize(
            lambda z: np.sum(np.exp(z) - a * z) + 50,
            np.ones(2),
            method=method,
            jac=lambda z: np.exp(z) - a,
            tol=1e-30,
        )
        return r.x[0] if r.status == 2 else np.nan

    for method in ("BFGS", "CG"):
        np.testing.assert_allclose(grad(f)(0.7, method), 1 / 0.7, rtol=1e-6)


def test_a_root_where_scipy_meets_nan():
    def f(a):
        r = optimize.root_scalar(lambda z: z**3 - a, bracket=(0.0, 3.0))
        return r.root if r.converged else -1.0

    g = jit(f)
    for a in (np.nan, 1.0, 2.0, np.nan):
        np.testing.assert_allclose(g(a), f(a))
    with pytest.raises(ValueError, match="different signs"):
        g(-1e9)
