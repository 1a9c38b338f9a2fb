"""What the table of calls doesn't hold of scipy.optimize: later calls, branches, errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from tapegrad import grad, jacobian, jit, jvp, map, scan, value_and_grad, vjp
from tapegrad.core.request import Request
from tapegrad.errors import GradientError, UnsupportedError
from tapegrad.ir.tape import METHODS
from tapegrad.pipeline import trace

MODES = ["never", "always"]


def slope(f, x, along=1.0, h=1e-5):
    return (f(x + h * along) - f(x - h * along)) / (2 * h)


def agree(f, x, along=1.0, mode="never", rtol=1e-6):
    value, gradient = value_and_grad(f, compile=mode)(x)
    np.testing.assert_allclose(value, f(x), rtol=1e-11)
    np.testing.assert_allclose(np.sum(gradient * along), slope(f, x, along), rtol=rtol, atol=1e-8)


@pytest.mark.parametrize("made", [grad, jit])
def test_what_a_solver_prints_comes_once_a_call(made, capsys):
    def f(p):
        found = optimize.minimize(lambda z: np.sum((z - p) ** 2), p * 0, options={"disp": True})
        return np.sum(found.x**2)

    g = made(f, compile="never")
    for p in (np.ones(2), np.ones(2), np.arange(2.0)):
        g(p)
        assert capsys.readouterr().out.count("Current function value") == 1


def branching(a):
    def equation(t):
        if t > 1.5:
            return t**2 - a
        return t**3 - a - 1.5**3 + 1.5**2

    return optimize.brentq(equation, 0.0, 10.0)


@pytest.mark.parametrize("mode", MODES)
def test_branches_of_a_callback_are_right_at_later_calls(mode):
    g = value_and_grad(branching, compile=mode)
    for a in (2.0, 4.0, 2.5, 1.0, 4.5):
        value, gradient = g(a)
        np.testing.assert_allclose(value, branching(a), rtol=1e-12)
        np.testing.assert_allclose(gradient, slope(branching, a), rtol=1e-6)
    assert g.cache_info().traces == 1


def test_a_solver_that_raises_an_error_does_so_in_the_users_line():
    def f(a):
        try:
            return optimize.brentq(lambda t: t**2 - a, 0.0, 2.0)
        except ValueError:
            return 7.0 * a

    g = value_and_grad(f)
    for a in (9.0, 3.0, 10.0, 2.0):
        np.testing.assert_allclose(g(a), (f(a), slope(f, a)), rtol=1e-6)
    with pytest.raises(ValueError, match="different signs"):
        grad(lambda a: optimize.brentq(lambda t: t**2 - a, 0.0, 1.0))(4.0)


def test_what_a_callback_reaches_is_read_anew():
    c = np.array([1.0, 2.0])

    def f(a):
        return optimize.newton(lambda t: c[0] * t - a * c[1], 1.0, fprime=lambda t: c[0] + 0 * t)

    g = value_and_grad(f)
    assert g(3.0) == (6.0, 2.0)
    c[1] = 5.0
    assert g(3.0) == (15.0, 5.0)


def test_further_arguments_in_a_list():
    """Those that SciPy unpacks, whatever they are in."""

    def roots(a):
        return optimize.newton(lambda t, b, c: t**3 - b - c, np.ones(2), args=[a, np.array([1, 2])])

    def fixed(a):
        return optimize.fixed_point(lambda t, b, c: np.cos(t) * b * c, 0.5, args=[a, 0.1])

    for f in (lambda a: np.sum(roots(a)), fixed):
        value, found = value_and_grad(f)(0.7)
        np.testing.assert_allclose((value, found), (f(0.7), slope(f, 0.7)), rtol=1e-6)


def test_two_modes_agree():
    """J t of the forward rule, held against c J t of the reverse rule."""
    b = np.arange(5.0)

    def f(x):
        return optimize.fsolve(lambda v: x @ v + 0.1 * v**3 - b, np.zeros(5), xtol=1e-12)

    x = np.eye(5) * 4 + np.cos(np.arange(25.0)).reshape(5, 5)
    t, c = np.sin(np.arange(25.0)).reshape(5, 5), np.array([1.0, -2.0, 0.5, 3.0, 1.5])
    _, pull = vjp(f, x)
    traced = trace(Request(f, (x,)))
    pushed = METHODS["pushed"](traced.bound_tape(), [0])
    (moved,) = METHODS["run"](pushed, [x, t, *pushed.captured])
    np.testing.assert_allclose(np.sum(pull(c)[0] * t), c @ moved, rtol=1e-10)
    np.testing.assert_allclose(moved, slope(f, x, t), rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_larger_systems_and_their_second_derivative(mode):
    a = np.random.default_rng(0).normal(size=(6, 6)) + 4 * np.eye(6)

    def f(b):
        return np.sum(optimize.root(lambda v: a @ v + 0.1 * v**3 - b, b, tol=1e-12).x ** 2)

    b, d = np.ones(6), np.arange(6.0)
    first = grad(f, compile=mode)
    np.testing.assert_allclose(first(b) @ d, slope(f, b, d), rtol=1e-7)
    second = grad(lambda b: np.sum(first(b) * d), compile=mode)
    np.testing.assert_allclose(second(b) @ d, slope(lambda b: first(b) @ d, b, d), rtol=1e-6)


def test_bounds_that_become_active_and_free_again():
    def f(a):
        r = optimize.minimize(
            lambda v: np.sum((v - a) ** 2) + 0.1 * v[0] * v[1],
            np.zeros(2),
            jac=lambda v: 2 * (v - a) + 0.1 * v[::-1],
            bounds=[(-1.0, 1.0), (None, 2.0)],
            options={"ftol": 1e-16, "gtol": 1e-12},
        )
        return r.x[0] + 2 * r.x[1] + r.fun

    g = value_and_grad(f)
    for a in ([0.3, 0.5], [3.0, 0.5], [3.0, 5.0], [0.1, 0.2]):
        a = np.array(a)
        value, gradient = g(a)
        np.testing.assert_allclose(value, f(a), rtol=1e-10)
        d = np.array([1.0, -0.7])
        np.testing.assert_allclose(gradient @ d, slope(f, a, d), rtol=1e-5)


def test_bounds_have_a_derivative():
    agree(
        lambda u: optimize.minimize(
            lambda v: np.sum((v - 3.0) ** 2), np.zeros(2), bounds=[(0.0, u), (0.0, 9.0)]
        ).x[0],
        1.5,
    )


def test_a_result_has_scipys_fields():
    def f(a):
        r = optimize.minimize(lambda v: np.sum((v - a) ** 2), np.zeros(2), method="BFGS")
        assert r.success
        assert "terminated" in r.message
        return np.sum(r.x) + r.nfev + r["nit"]

    plain = optimize.minimize(lambda v: np.sum((v - 2.0) ** 2), np.zeros(2), method="BFGS")
    np.testing.assert_allclose(jit(f)(2.0), np.sum(plain.x) + plain.nfev + plain.nit)


def test_curve_fit_follows_data_and_closure():
    t = np.linspace(0.0, 1.0, 8)

    def fitted(y, scale):
        popt, _ = optimize.curve_fit(
            lambda t, a, b: scale * a * np.exp(-b * t), t, y, p0=[1.0, 1.0], ftol=1e-14, xtol=1e-14
        )
        return popt

    y = 2 * np.exp(-1.3 * t) + 0.01 * np.cos(7 * t)
    agree(lambda y: fitted(y, 1.0)[1], y, np.sin(np.arange(8.0)), rtol=1e-4)
    agree(lambda s: fitted(y, s)[0], 1.5, rtol=1e-4)


@pytest.mark.every(4)
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("method", ["lm", "trf"])
def test_standard_errors_of_curve_fit(method, absolute):
    t = np.linspace(0.0, 1.0, 8)

    def errors(y, sigma=None, scale=1.0):
        tight = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15}
        _, pcov = optimize.curve_fit(
            lambda t, a, b: scale * a * np.exp(-b * t),
            t,
            y,
            p0=[1.0, 1.0],
            sigma=sigma,
            absolute_sigma=absolute,
            method=method,
            jac=lambda t, a, b: scale * np.stack([np.exp(-b * t), -a * t * np.exp(-b * t)], 1),
            **tight,
        )
        return np.dot(np.sqrt(np.diag(pcov)), [1.0, -0.3]) + pcov[0, 1]

    y = 2 * np.exp(-1.3 * t) + 0.05 * np.cos(7 * t)
    sigma, direction = 1 + 0.3 * np.sin(5 * t), np.sin(np.arange(8.0))
    agree(errors, y, direction, rtol=1e-4)
    agree(lambda y: errors(y, sigma), y, direction, rtol=1e-4)
    agree(lambda sigma: errors(y, sigma), sigma, direction, rtol=1e-4)
    agree(lambda sigma: errors(y, np.full(8, sigma)), 0.7, rtol=1e-4)
    agree(lambda scale: errors(y, None, scale), 1.5, rtol=1e-4)
    gradient = grad(errors)
    agree(lambda y: np.dot(gradient(y), np.cos(t)), y, direction, rtol=1e-4)
    other = y + 0.03 * np.sin(9 * t)  # a later call
    tangent = jvp(errors, (other,), (direction,))[1]
    np.testing.assert_allclose(gradient(other) @ direction, tangent, rtol=1e-9)
    np.testing.assert_allclose(tangent, slope(errors, other, direction), rtol=1e-4)


@pytest.mark.filterwarnings("ignore::scipy.optimize.OptimizeWarning")
def test_a_covariance_that_scipy_lacks_has_no_derivative():
    def f(y):
        return optimize.curve_fit(lambda t, a, b: a * t + b, np.arange(2.0), y)[1][0, 0]

    y = np.array([2.0, 3.0])
    value, gradient = value_and_grad(f)(y)
    assert value == f(y) == np.inf
    assert np.all(np.isnan(gradient))


def test_curve_fit_with_one_sigma_for_all():
    t = np.linspace(0.0, 1.0, 8)

    def variance(sigma):
        line = lambda t, a, b: a * t + b  # noqa: E731
        return optimize.curve_fit(line, t, np.sin(3 * t), sigma=sigma, absolute_sigma=True)[1][0, 0]

    for sigma in (0.7, np.array([0.7])):
        value, gradient = value_and_grad(variance)(sigma)
        assert value == variance(sigma)
        np.testing.assert_allclose(gradient, 2 * value / sigma, rtol=1e-7)


def test_in_loops():
    def f(a):
        return optimize.brentq(lambda t: t**3 + t - a, 0.0, 10.0)

    a = np.array([1.0, 2.0, 5.0])
    expected = [1 / (3 * f(x) ** 2 + 1) for x in a]
    for mode in MODES:
        g = grad(lambda a: np.sum(map(f, a)), compile=mode)
        np.testing.assert_allclose(g(a), expected, rtol=1e-9)
    total = grad(lambda a: scan(lambda c, x: (f(c + x), None), 0.0, a)[0])
    np.testing.assert_allclose(np.sum(total(a)), slope(lambda a: _chain(f, a), a), rtol=1e-6)


def _chain(f, a):
    c = 0.0
    for x in a:
        c = f(c + x)
    return c


def test_a_solver_in_a_callback():
    def f(a):
        inner = lambda t: optimize.brentq(lambda u: u**3 + u - t * a, 0.0, 5.0)  # noqa: E731
        return optimize.brentq(lambda t: inner(t) - 0.5, 0.0, 5.0)

    agree(f, 1.3)


def test_what_isnt_traced_runs_as_it_is():
    def f(a):
        root = optimize.brentq(lambda t: t**2 - 2.0, 0.0, 2.0)
        low = optimize.fmin(lambda v: np.sum((v - 1.0) ** 2), np.zeros(2), disp=False)
        return a * root + np.sum(low) + optimize.minimize_scalar(lambda t: (t - 1) ** 2).x

    np.testing.assert_allclose(value_and_grad(f)(2.0), (f(2.0), np.sqrt(2.0)))


def test_what_isnt_known_is_refused():
    with pytest.raises(UnsupportedError, match="minimize"):
        grad(lambda a: optimize.bracket(lambda v: (v - a) ** 2)[0])(1.0)
    with pytest.raises(GradientError, match="converged"):
        grad(lambda a: optimize.newton(lambda t: t**2 - a, 9.0, maxiter=1, disp=False))(2.0)


@pytest.mark.filterwarnings("ignore:.*xtol")
@pytest.mark.parametrize("name", ["fsolve", "hybr", "lm", "leastsq"])
def test_tolerances_smaller_than_rounding(name):
    """SciPy ends at the root and says that it can't come nearer: of some of these numbers."""

    def cubic(z, p):
        return z**3 + p * z - 1

    fine = {"xtol": 1e-20}
    solvers = {
        "fsolve": lambda p: optimize.fsolve(cubic, np.ones(2), (p,), **fine),
        "hybr": lambda p: optimize.root(cubic, np.ones(2), (p,), options=fine).x,
        "lm": lambda p: (
            optimize.root(cubic, np.ones(2), (p,), method="lm", options={**fine, "ftol": 1e-20}).x
        ),
        "leastsq": lambda p: optimize.leastsq(cubic, np.ones(2), (p,), ftol=1e-20, **fine)[0],
    }
    derivative = value_and_grad(lambda p: np.sum(solvers[name](p) ** 2), compile="never")
    for p in np.random.default_rng(0).uniform(0.3, 3, (12, 2)):
        _, gradient = derivative(p)
        z = solvers[name](p)
        np.testing.assert_allclose(gradient, -2 * z**2 / (3 * z**2 + p), rtol=1e-12)


def test_a_linear_system_whose_residual_is_rounding():
    """SciPy says that it makes no progress there."""
    matrix = 2 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1)
    b = np.cos(np.arange(1.0, 5.0))

    def solved(b):
        return optimize.root(lambda u: matrix @ u - b, np.zeros(4)).x

    assert not optimize.root(lambda u: matrix @ u - b, np.zeros(4)).success
    inverse = jacobian(solved, compile="never")(b)
    np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=1e-12)


def test_no_root_is_no_rounding():
    """Where there is none, progress ends at a minimum of the distance to one."""
    with pytest.raises(GradientError, match="converged"):
        grad(lambda p: optimize.root(lambda z: z**2 + p, np.ones(1)).x[0])(1.0)


def held(method):
    """a minimum on one constraint, on one and an end of v[1], or there alone, as x is"""
    top = (lambda u: 9.0) if method is None else (lambda u: 0.9 - u)

    def f(x):
        ball = {"type": "ineq", "fun": lambda v: x[2] - v @ v, "jac": lambda v: -2 * v}
        apart = {"type": "ineq", "fun": lambda v, d: [v[0] - v[1] + d, top(v[1])], "args": (0.5,)}
        r = optimize.minimize(
            lambda v: v[0] ** 2 / 9 - v @ x[:2],
            np.full(2, 0.1),
            constraints=[ball, apart],
            bounds=[(None, None), (None, 0.9)] if method is None else None,
            method=method,
            tol=1e-12,
        )
        return r.x[0] * x[0] + 2 * r.x[1] + r.fun

    return f


@pytest.mark.parametrize("method", [None, "COBYLA"])
def test_a_minimum_that_constraints_hold(method):
    f = held(method)
    g = value_and_grad(f, compile="never")
    for x in ([1.0, 0.5, 2.0], [-0.2, 2.0, 1.1], [0.3, 2.0, 9.0]):
        x = np.array(x)
        value, gradient = g(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-6)
        steps = [slope(held(None), x, e, 1e-3) for e in np.eye(3)]  # of the nearest results
        np.testing.assert_allclose(gradient, steps, atol=1e-3)
    assert g.cache_info().traces == 1


def test_objects_that_are_constraints():
    line = optimize.LinearConstraint([[1.0, -1.0]], -0.2, 0.2)

    def f(x):
        curve = optimize.NonlinearConstraint(lambda v: v[0] * v[1] * x[1], 1.0, 1.0)
        r = optimize.minimize(lambda v: (v - x) @ (v - x), np.ones(2), constraints=[line, curve])
        return r.x[0] + r.x[1] ** 2

    g = grad(f)
    for end in (0.2, 0.3):
        line.ub = np.array([end])
        x = np.array([2.0, 0.5])
        np.testing.assert_allclose(g(x), [slope(f, x, e) for e in np.eye(2)], atol=1e-4)


def test_a_constraint_that_may_hold_a_minimum_or_not():
    def f(a):
        edge = {"type": "ineq", "fun": lambda v: v[0] - a}
        return optimize.minimize(lambda v: (v[0] - 1.0) ** 2, np.full(1, 1.0), constraints=edge).x[
            0
        ]

    assert jit(f)(1.0) == f(1.0)
    with pytest.raises(GradientError, match="next to a bound or a constraint"):
        grad(f)(1.0)


def ineq(f):
    return {"type": "ineq", "fun": f}


SUM = {"type": "eq", "fun": lambda v: np.sum(v) - 1}
UNIT = [(0, 1)] * 3
REDUNDANT = {
    "twice": ([ineq(lambda v: 1 - v[0]), ineq(lambda v: 2 - 2 * v[0])], None, 3 * np.eye(2)),
    "a circle twice": (
        [ineq(lambda v: 1 - v @ v), ineq(lambda v: 3 - 3 * v @ v)],
        None,
        2 * np.eye(2),
    ),
    "a corner": (
        [ineq(lambda v: 1 - v[0]), ineq(lambda v: 1 - v[1]), ineq(lambda v: 2 - v[0] - v[1])],
        None,
        3 * np.eye(2),
    ),
    "a corner of the simplex": (SUM, UNIT, np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 0.1]])),
    "an edge of it": (SUM, UNIT, np.array([[1.0, 0.0], [0.0, 1.0], [-3.0, 0.0]])),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("name", REDUNDANT)
def test_constraints_of_which_some_follow_from_others(name):
    """hold where these do"""
    constraints, bounds, target = REDUNDANT[name]

    def f(x):
        start = np.full(len(target), 1 / len(target))
        how = {"method": "SLSQP", "bounds": bounds, "options": {"ftol": 1e-12}}
        v = optimize.minimize(
            lambda v: np.sum((v - target @ x) ** 2), start, constraints=constraints, **how
        ).x
        return v @ np.arange(1.0, len(target) + 1) + v @ v

    g = value_and_grad(f, compile="never")
    for x in (np.array([1.3, 0.7]), np.array([1.2, 0.75])):
        value, found = g(x)
        assert value == f(x)
        np.testing.assert_allclose(found, [slope(f, x, e, 1e-4) for e in np.eye(2)], atol=2e-3)


def test_constraints_that_move_apart():
    """or that touch where one holds alone: which of them holds, isn't known"""

    def apart(x):
        edges = [ineq(lambda v: x - v[0]), ineq(lambda v: 2 * x - 2 * v[0])]
        r = optimize.minimize(lambda v: (v[0] - 9) ** 2, np.zeros(1), constraints=edges)
        return r.x[0]

    def touching(x):
        edges = [ineq(lambda v: 1 - v @ v), ineq(lambda v: 1 - v[0])]
        r = optimize.minimize(
            lambda v: (v[0] - 2) ** 2 + (v[1] - x + 0.7) ** 2, np.zeros(2), constraints=edges
        )
        return r.x[1]

    for f in (apart, touching):
        with pytest.raises(GradientError, match="next to a bound or a constraint"):
            grad(f)(0.7)


BOUNDED = {
    "at the upper bound": lambda x: (lambda t: (t - x[0]) ** 2, (0, x[1])),
    "at the lower bound": lambda x: (lambda t: x[0] * t**2 + x[1] * t, (x[1], 2)),
    "of a concave function": lambda x: (lambda t: -x[0] * t**2 - x[1] * t, (0, 2 * x[1])),
    "between": lambda x: (lambda t: (t - 0.3 * x[0]) ** 2 + np.exp(0.1 * t * x[1]), (0, 1)),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_bounded_minimum_of_one_number(name):
    """SciPy ends beside a bound, where the slope tells of it."""

    def f(x):
        fun, bounds = BOUNDED[name](x)
        how = {"method": "bounded", "options": {"xatol": 1e-8}}
        r = optimize.minimize_scalar(fun, bounds=bounds, **how)
        return r.x * x[1] + r.fun

    g = value_and_grad(f, compile="never")
    for x in (np.array([1.3, 0.7]), np.array([1.6, 0.9])):
        value, found = g(x)
        assert value == f(x)
        np.testing.assert_allclose(found, [slope(f, x, e, 1e-4) for e in np.eye(2)], atol=1e-3)


def test_a_bounded_minimum_that_is_about_to_leave_its_bound():
    def f(x):
        return optimize.minimize_scalar(lambda t: (t - x) ** 2, bounds=(0, 1), method="bounded").x

    with pytest.raises(GradientError, match="next to a bound or a constraint"):
        grad(f)(1.0)


def test_assignments_are_found_anew():
    def f(c):
        rows, columns = optimize.linear_sum_assignment(c)
        return np.sum(c[rows, columns] ** 2)

    g = grad(f)
    for k in range(3):
        c = np.random.default_rng(k).normal(size=(4, 3))
        rows, columns = optimize.linear_sum_assignment(c)
        expected = np.zeros((4, 3))
        expected[rows, columns] = 2 * c[rows, columns]
        np.testing.assert_allclose(g(c), expected)
    assert g.cache_info().traces == 1


def test_which_test_a_solver_has_passed_last_decides_nothing_unless_it_is_asked():
    """Second derivatives run it again, with other roundings."""
    t = np.linspace(0.0, 3.0, 12)
    y = 2.0 * np.exp(-1.1 * t) + 0.1 * np.cos(7.0 * t)

    def rate(y):
        found = optimize.least_squares(
            lambda p: p[0] * np.exp(-p[1] * t) - y, [1.0, 1.0], xtol=1e-14, ftol=1e-14, gtol=1e-14
        )
        return found.x[1]

    along = np.cos(t)
    bend = grad(lambda y: np.sum(along * grad(rate)(y)))(y)
    h = 1e-3
    plain = (rate(y + h * along) - 2 * rate(y) + rate(y - h * along)) / h**2
    np.testing.assert_allclose(np.sum(bend * along), plain, rtol=1e-2)

    def told(a):
        found = optimize.least_squares(lambda x: np.exp(x) - a, [0.0])
        return found.x[0] * (2.0 if found.status == 1 else 3.0 if "gtol" in found.message else 4.0)

    df = value_and_grad(told)
    for a in (0.01, 1.0, 2.0, 100.0, 1.0):
        np.testing.assert_allclose(df(a)[0], told(a), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("ask", [lambda r: r.hess_inv, lambda r: r["jac"], lambda r: "jac" in r])
def test_what_a_result_leaves_out_is_refused(ask):
    def f(a):
        return ask(optimize.minimize(lambda x: (x[0] - a) ** 2, [0.0]))

    with pytest.raises(UnsupportedError, match=r"jac|hess_inv"):
        grad(f)(1.0)


@pytest.mark.parametrize(
    "f",
    [
        lambda a: optimize.minimize_scalar(lambda x: abs(x - a)).x,
        lambda a: optimize.brentq(lambda x: 1.0 if x > a else -1.0, -5.0, 5.0),
        lambda a: np.sum(
            optimize.minimize(lambda x: np.sum(np.abs(x - a)), [0.0, 0.0], method="Nelder-Mead").x
        ),
    ],
)
def test_where_an_equation_has_no_slope_the_derivative_is_nan_and_not_0(f):
    with np.errstate(all="ignore"):
        assert np.isnan(grad(f)(1.25))


def hilly(v, s):
    return (v[0] - s) ** 2 * (1 + 0.1 * s) + 0.3 * np.sin(3 * v[0]) + (v[1] - s**2) ** 2


WIDE = [(-2.0, 2.0), (-2.0, 2.0)]
WIDELY = {
    "basinhopping": lambda s: optimize.basinhopping(hilly, [0.3, 0.2], 5, rng=1, minimizer_kwargs={
        "args": (s,), "bounds": WIDE}),
    "differential_evolution": lambda s: optimize.differential_evolution(hilly, WIDE, (s,), rng=1),
    "dual_annealing": lambda s: optimize.dual_annealing(lambda v: hilly(v, s), WIDE, rng=1,
        maxiter=50),
    "shgo": lambda s: optimize.shgo(lambda v: hilly(v, s), WIDE, constraints={
        "type": "ineq", "fun": lambda v: s + 1.0 - v[0]}),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WIDELY)
def test_a_minimum_that_is_looked_for_widely_has_a_derivative(name, mode):
    find = WIDELY[name]
    fast = value_and_grad(lambda s: np.sum(find(s).x * np.array([1.0, 2.0])), compile=mode)
    for s in (0.4, -0.7, 0.5, 0.45):
        value, slope = fast(s)
        assert value == pytest.approx(find(s).x @ [1.0, 2.0], rel=1e-9)
        at = find(s).x
        flat = np.array([2 * (1 + 0.1 * s) - 2.7 * np.sin(3 * at[0]), 2.0])
        moved = np.array([2 * (1 + 0.1 * s) - 0.2 * (at[0] - s), 4 * s])
        assert slope == pytest.approx(np.sum(moved / flat * [1.0, 2.0]), rel=1e-6)


def test_draws_of_a_search_are_those_of_plain_calls():
    def seeded(s):
        np.random.seed(5)
        return optimize.differential_evolution(lambda v: hilly(v, s), WIDE).x[0]

    assert [value_and_grad(seeded)(s)[0] for s in (0.4, 0.5)] == [seeded(0.4), seeded(0.5)]
    with pytest.raises(UnsupportedError, match="whole number"):
        grad(lambda s: optimize.differential_evolution(
            hilly, WIDE, (s,), rng=np.random.default_rng(0)).fun)(0.4)  # fmt: skip


def test_a_search_for_something_else_says_so():
    with pytest.raises(UnsupportedError, match="integrality"):
        grad(lambda s: optimize.differential_evolution(hilly, WIDE, (s,), integrality=[1, 0]).fun)(
            0.4
        )
    with pytest.raises(UnsupportedError, match="finish"):
        grad(lambda s: np.sum(optimize.brute(hilly, WIDE, (s,), finish=None)))(0.4)
