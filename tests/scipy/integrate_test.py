"""What the table of calls doesn't hold of scipy.integrate: later calls, edges, compiled code."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import integrate, optimize
from scipy.special import k1

from tapegrad import grad, hessian, jit, value_and_grad, vjp, vmap
from tapegrad.core.request import Request
from tapegrad.errors import GradientError, UnsupportedError
from tapegrad.ir.tape import METHODS
from tapegrad.pipeline import trace
from tapegrad.scipy import callbacks
from tapegrad.scipy.callbacks import Runner
from tapegrad.scipy.integrate import trajectories

TIMES = np.linspace(0.0, 2.0, 7)
P = np.array([1.0, 0.45, 1.1, 0.33])


def slope(f, x, along=1.0, h=1e-5):
    return (f(x + h * along) - f(x - h * along)) / (2 * h)


def hunted(p, **how):
    """Lotka and Volterra's equations."""

    def f(t, y):
        return [y[0] * (p[0] - p[1] * y[1]), -y[1] * (p[2] - p[3] * y[0])]

    how = {"t_eval": TIMES, "rtol": 1e-8, "atol": 1e-10, **how}
    return integrate.solve_ivp(f, (0.0, 2.0), [1.0, 2.0], **how)


def grown(p, **how):
    how = {"t_eval": None, "rtol": 1e-9, **how}
    return hunted(p, **how)


ENDS = {
    "an element": lambda r: r.y[0, -1] * r.y[1, 0] + r.t[0],
    "a column": lambda r: np.sum(r.y[:, -1] ** 2) + r.t[-1],
    "rows": lambda r: r.y[0][-1] * r.y[-1][-1],
    "unpacked": lambda r: (lambda x, y: x[-1] * y[-1])(*r.y),
    "transposed": lambda r: r.y.T[-1][1] * r.y.T[-1, 0],
    "an ellipsis": lambda r: r["y"][..., -1] @ np.array([1.0, 2.0]) + len(r.y),
    "some rows": lambda r: np.sum(r.y[:1, -1]),
}
MORE = {
    "an end that is written to": lambda r: _doubled(r.y[:, -1])[0] + r.y[0, -1] * r.y[1, -1],
    "all that is written to": lambda r: _filled(r.y, r.y[:, -1]),
    "times that are written to": lambda r: (
        _filled(np.stack([r.t, r.y[0]]), r.y[:, -1]) + _moved(r.t)[0] * r.y[0, -1]
    ),
}
W = np.array([[0.3], [-0.7]])
# What one loop over the steps gives
WHOLE = {
    "their length": lambda r: r.y[0, len(r.t) // 2] * len(r.t) + len(r.y) + np.sqrt(len(r.y.T)),
    "how many there are": lambda r: r.y[0, -1] * r.t.size + r.y.shape[1] / r.y.size + r.y.shape[0],
    "single rows": lambda r: r.y[0, -2] - r.y[0, 3] + r.t[-3] + np.sum(r.y[:, 2]),
    "sums": lambda r: np.sum(r.y[0] ** 2) + r.y.sum(axis=1)[1] + np.mean(r.y) + (2 - r.t).mean(),
    "extremes": lambda r: np.max(r.y[0]) * r.y[1].min() + np.amax(np.abs(r.y - 1), axis=1)[0],
    "products with others": lambda r: np.sum(W * np.sin(r.y) / (1 + W.T @ r.y)) + np.sum(W.T @ r.y),
    "products with each other": lambda r: r.y[0] @ r.y[1] + np.dot(r.t, r.y[0]),
    "rows of columns": lambda r: np.sum(np.linalg.norm(r.y, axis=0)) + np.sum(r.y.T @ W),
    "a norm": lambda r: np.linalg.norm(r.y) + np.linalg.norm(r.y[1] - r.t),
    "spread": lambda r: np.std(r.y[0]) + r.y.var() + np.prod(1 + 0.01 * r.y[0]),
    "an integral": lambda r: np.trapezoid(r.y[0] ** 2, r.t) + np.trapezoid(r.y, dx=0.1)[1],
    "differences": lambda r: np.sum(np.diff(r.y[0]) * r.y[1, 1:]) + np.max(r.t[1:] - r.t[:-1]),
    "rows of differences": lambda r: np.diff(r.t)[-1] + np.diff(r.y)[1, 2] + np.diff(r.t)[0],
    "between steps": lambda r: np.sum(np.interp(TIMES, r.t, r.y[0])) + np.interp(0.3, r.t, r.y[1]),
    "outside": lambda r: np.sum(np.interp([-1.0, 0.0, 2.0, 3.0], r.t, r.y[0], left=3.0)),
    "where it is largest": lambda r: r.t[np.argmax(r.y[1])] + r.y[0, np.argmin(r.y[1])],
    "conditions": lambda r: np.sum(np.where(r.y[0] > 1.2, r.y[0], r.t)) + np.sum(r.y[1] > 1),
    "any and all": lambda r: (
        1.0 * np.any(r.y[0] > 1.05) + np.all(r.y > 0) + np.clip(r.t, 0, 1).sum()
    ),
    "powers": lambda r: np.sum(2.0 ** r.y[0]) + np.sum(r.y[0] ** r.y[1]) + np.sum(-r.y % 0.7),
    "the columns": lambda r: sum(np.sum(x * r.t) for x in r.y) + np.sum(r.y.T[:, 1]),
}


def _whole(read):
    """The same of the arrays themselves."""
    return lambda r: read(SimpleNamespace(t=np.concatenate([r.t]), y=np.concatenate([r.y], axis=1)))


def _doubled(y):
    y *= 2
    return y


def _moved(t):
    t[0] = 3.0
    return t


def _filled(y, end):
    y[0] = y[1] + 1
    return np.sum(end) + y[0, -1]


@pytest.mark.every(24)
@pytest.mark.parametrize("method", ["RK45", "DOP853", "LSODA"])
@pytest.mark.parametrize("read", [*ENDS, *MORE])
def test_a_solution_of_any_number_of_steps_of_which_the_ends_are_read(read, method):
    reading = {**ENDS, **MORE}[read]

    def f(p):
        return reading(grown(p, method=method))

    df = value_and_grad(f, compile="never")
    for scale in (1.0, 1.6, 0.7):
        value, gradient = df(scale * P)
        inner = "one" in read  # where a step ends: errors that are compared are rounded
        np.testing.assert_allclose(value, f(scale * P), rtol=1e-5 if inner else 1e-9)
        if not inner:  # steps are constants to the derivative
            expected = slope(f, scale * P, P)
            np.testing.assert_allclose(gradient @ P, expected, rtol=2e-5, atol=1e-7)
    assert (df.cache_info().traces == 1) == (read in ENDS)


@pytest.mark.every(24)
@pytest.mark.parametrize("read", WHOLE)
def test_a_solution_of_any_number_of_steps_is_read_whole(read, method="RK45"):
    """The derivative is that of the arrays of as many steps: these are constants to it."""

    def solved(reading):
        return value_and_grad(lambda p: reading(grown(p, method=method)), compile="never")

    df = solved(WHOLE[read])
    df(P)
    value, gradient = df(1.6 * P)
    np.testing.assert_allclose(value, WHOLE[read](grown(1.6 * P, method=method)), rtol=1e-5)
    same, expected = solved(_whole(WHOLE[read]))(1.6 * P)
    np.testing.assert_allclose(value, same, rtol=1e-11)
    np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-9)
    assert df.cache_info().traces == 1


@pytest.mark.every(4)
@pytest.mark.parametrize("read", ["sums", "an integral", "between steps", "where it is largest"])
def test_steps_of_fortrans_solvers_are_read_whole(read):
    test_a_solution_of_any_number_of_steps_is_read_whole(read, "LSODA")


def test_what_is_read_of_all_steps_is_what_they_were():
    """Arrays that are written to in between."""

    def read(r, p):
        w = np.array([2.0, 3.0])
        v = p[:2].copy()
        z = r.y * w[:, None] * v[:, None]
        w[0] = v[1] = 100.0
        total = np.sum(z)
        later = r.t[1:]
        total += np.sum(later + 1)
        later *= 3.0
        r.y[0] = 7.0
        total += np.sum(later) + np.sum(r.t)
        return total + np.sum(z) + np.sum(r.y) + np.sum(z[0] * r.t)

    def gradient_of(change):
        return grad(lambda p: read(change(grown(p)), p), compile="never")(P)

    value = jit(lambda p: read(grown(p), p), compile="never")(P)
    np.testing.assert_allclose(value, read(grown(P), P), rtol=1e-9)
    expected = gradient_of(_whole(lambda r: r))
    np.testing.assert_allclose(gradient_of(lambda r: r), expected, rtol=1e-9)


def test_all_steps_are_read_in_machine_code_and_backwards():
    def solved(p):
        return integrate.solve_ivp(lambda t, y: -p * y * t, (2.0, p[0]), [1.0, 2.0], rtol=1e-9)

    def read(r):
        return np.trapezoid(r.y[0], r.t) + np.max(r.y[0] * r.t) + r.t[np.argmin(r.y[1])]

    df = value_and_grad(lambda p: read(solved(p)), compile="always")
    for p in np.array([[0.5, 0.7], [0.3, 0.9]]):
        value, gradient = df(p)
        np.testing.assert_allclose(value, read(solved(p)), rtol=1e-9)
        expected = grad(lambda p: _whole(read)(solved(p)), compile="never")(p)
        np.testing.assert_allclose(gradient, expected, rtol=1e-8)
    assert df.cache_info().traces == 1


@pytest.mark.every(2)
@pytest.mark.parametrize("mode", ["never", "always"])
def test_a_solution_between_its_steps_is_read_for_any_number_of_them(mode):
    def f(p):
        r = grown(p, dense_output=True)
        return np.sum(r.sol(TIMES[1:-1])[0] * TIMES[1:-1]) + r.y[1, -1], r.nfev

    df = value_and_grad(f, has_aux=True, compile=mode)
    for scale in (1.0, 1.6):
        (value, calls), gradient = df(scale * P)
        np.testing.assert_allclose(value, f(scale * P)[0], rtol=1e-10)
        assert calls == f(scale * P)[1]
        expected = slope(lambda p: f(p)[0], scale * P, P)
        np.testing.assert_allclose(gradient @ P, expected, rtol=1e-6)
    assert df.cache_info().traces == 1


@pytest.mark.every(2)
@pytest.mark.parametrize("mode", ["never", "always"])
def test_an_equation_is_solved_with_scipys_own_steps(mode):
    def f(p):
        r = hunted(p)
        return np.sum(r.y * np.cos(np.arange(14.0)).reshape(2, 7)) + r.nfev

    g = value_and_grad(f, compile=mode)
    d = np.array([1.0, -0.5, 0.3, 0.7])
    for p in (P, 1.2 * P, 0.7 * P):
        value, gradient = g(p)
        np.testing.assert_allclose(value, f(p), rtol=1e-11)
        exact = slope(lambda p: f(p) - hunted(p).nfev, p, d)
        np.testing.assert_allclose(gradient @ d, exact, rtol=1e-6)
    assert g.cache_info().traces <= 2


@pytest.mark.every(4)
@pytest.mark.parametrize("method", ["RK23", "DOP853"])
@pytest.mark.parametrize(
    ("times", "checkpoint"), [(np.array([1.99, 1.2, 1.19, 0.0]), "auto"), (TIMES[-1:], 4)]
)
def test_one_tape_serves_any_number_of_steps(method, times, checkpoint):
    """also backwards, with steps in which there is no time, and where only some states are kept"""

    def f(w):
        span = (2.0, 0.0) if len(times) > 1 else (0.0, 2.0)
        slope = lambda t, y: [y[0] * (1 - w * y[1]), -w * y[1] * (1.1 - y[0])]  # noqa: E731
        how = {"t_eval": times, "rtol": 1e-7, "atol": 1e-9}
        r = integrate.solve_ivp(slope, span, [1.0, 0.5], method, **how)
        return np.sum(r.y * [[1.0], [-2.0]]), r.nfev

    g = value_and_grad(f, has_aux=True, compile="never", checkpoint=checkpoint)
    for w in (0.5, 9.0, 0.1):
        (value, count), gradient = g(w)
        assert count == f(w)[1]
        np.testing.assert_allclose(value, f(w)[0], rtol=1e-9)
        np.testing.assert_allclose(gradient, slope(lambda w: f(w)[0], w), rtol=1e-5)
    assert g.cache_info().traces == 1


def test_more_steps_than_there_is_room_for(monkeypatch):
    """A call that needs more room is traced anew."""
    monkeypatch.setattr(trajectories, "MIN_ROOM", 16)
    monkeypatch.setattr(trajectories, "MAX_ROOM", 16)
    g = value_and_grad(lambda w: hunted(P * w).y[0, -1], compile="never")
    for w in (1.0, 9.0):
        np.testing.assert_allclose(g(w)[0], hunted(P * w).y[0, -1], rtol=1e-9)
    assert g.cache_info().traces == 2


def test_times_out_of_order():
    """They are SciPy's error, at later calls too."""

    def f(times):
        return np.sum(hunted(P, t_eval=times).y)

    g = value_and_grad(f, compile="never")
    np.testing.assert_allclose(g(TIMES)[0], f(TIMES), rtol=1e-11)
    with pytest.raises(ValueError, match="sorted"):
        g(TIMES[[0, 2, 1, 3, 4, 5, 6]])
    with pytest.raises(ValueError, match="t_span"):
        g(TIMES + 0.5)
    with pytest.raises(UnsupportedError, match="don't rise"):
        grad(lambda a: integrate.odeint(lambda y, t: a * y, [1.0], [0.0, 2.0, 1.0])[-1, 0])(1.0)


def test_all_steps_where_no_times_are_given():
    def f(p):
        r = hunted(p, t_eval=None, rtol=1e-5)
        assert r.y.shape == (2, len(r.t))
        return np.sum(r.y**2) + np.sum(r.t)

    g = value_and_grad(f)
    for p in (P, 2.0 * P):
        np.testing.assert_allclose(g(p)[0], f(p), rtol=1e-8)  # sizes of steps are of small errors


@pytest.mark.every(4)
@pytest.mark.parametrize("method", ["RK23", "DOP853"])
@pytest.mark.parametrize(
    "how", [{"max_step": 0.1}, {"first_step": 0.01}, {"atol": np.array([1e-9, 1e-7])}]
)
def test_options_of_steps(method, how):
    def f(p):
        return np.sum(hunted(p, method=method, rtol=1e-4, **how).y ** 2)

    np.testing.assert_allclose(value_and_grad(f)(P)[0], f(P), rtol=1e-10)


def test_limits_and_times_of_an_equation():
    """dy/dt = a y, so that y = y0 exp(a (t - t0))."""

    def f(x):
        start, end, time, a = x
        r = integrate.solve_ivp(
            lambda t, y: a * y, (start, end), [1.5], t_eval=np.stack([time, end]), rtol=1e-9
        )
        return 2 * r.y[0, 0] + r.y[0, 1]

    x = np.array([0.3, 1.7, 0.9, 0.6])
    first, last = 1.5 * np.exp(0.6 * 0.6), 1.5 * np.exp(0.6 * 1.4)
    expected = [
        -0.6 * (2 * first + last),
        0.6 * last,
        2 * 0.6 * first,
        2 * 0.6 * first + 1.4 * last,
    ]
    value, gradient = value_and_grad(f)(x)
    np.testing.assert_allclose(value, f(x), rtol=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_second_order_and_forward_mode():
    """y = exp(a), y'' = exp(a)."""

    def f(a):
        return integrate.solve_ivp(lambda t, y: a * y, (0.0, 1.0), [1.0], rtol=1e-9, atol=1e-11).y[
            0, -1
        ]

    np.testing.assert_allclose(grad(grad(f))(0.5), np.exp(0.5), rtol=1e-6)
    traced = trace(Request(f, (0.5,)))
    pushed = METHODS["pushed"](traced.bound_tape(), [0])
    (moved,) = METHODS["run"](pushed, [0.5, np.float64(1.0), *pushed.captured])
    np.testing.assert_allclose(moved, np.exp(0.5), rtol=1e-6)


def test_branches_in_an_equation():
    def f(a):
        def slope(t, y):
            return a * y if t < 0.5 else 2 * a * y

        r = integrate.solve_ivp(slope, (0.0, 1.0), [1.0], rtol=1e-7, max_step=0.05)
        return r.y[0, -1]

    g = value_and_grad(f)
    for a in (0.5, 1.0):
        np.testing.assert_allclose(g(a), (f(a), 1.5 * np.exp(1.5 * a)), rtol=1e-3)
        np.testing.assert_allclose(g(a)[0], f(a), rtol=1e-9)


def test_stiff_equations():
    def f(k, method):
        return integrate.solve_ivp(
            lambda t, y: np.stack([-k * (y[0] - np.cos(t)), y[0] - y[1]]),
            (0.0, 0.1),
            [0.0, 1.0],
            method=method,
            rtol=1e-8,
            atol=1e-10,
        ).y[1, -1]

    value, gradient = value_and_grad(lambda k: f(k, "Radau"))(30.0)
    np.testing.assert_allclose(value, f(30.0, "Radau"), rtol=1e-14)
    np.testing.assert_allclose(gradient, slope(lambda k: f(k, "Radau"), 30.0, h=1e-2), rtol=1e-4)


def bounced(p, back=False, **how):
    """What is thrown upwards at a speed, and comes down through air to a height."""

    def f(t, y):
        return np.array([y[1], -9.81 - 0.1 * y[1] + 3 * np.sin(2 * y[0])])

    def down(t, y):
        return y[0] - p[1]

    def top(t, y):
        return y[1]

    down.terminal, down.direction = True, 1 if back else -1
    how = {"rtol": 1e-8, "atol": 1e-8, "events": (down, top), **how}
    return integrate.solve_ivp(f, (3.0, -5.0) if back else (0.0, 2.0), [1.0, p[0]], **how)


def of_events(p, back=False, counted=True, **how):
    r = bounced(p, back, **how)
    passed = sum(np.sum(np.sin(t)) for t in r.t_events) + sum(np.sum(y**2) for y in r.y_events)
    return passed + np.sum(r.y[:, -1]) + r.t[-1] + r.status + (r.nfev if counted else 0)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("method", "back", "mode"),
    [("RK45", False, "always"), ("RK45", True, "never"), ("DOP853", False, "never")],
)
def test_events(method, back, mode):
    """They come sooner or later, more or fewer times, and end the solution or don't."""
    f = partial(of_events, back=back, method=method)
    g, d = value_and_grad(f, compile=mode), np.array([1.0, -0.7])
    for p in ([8.0, 0.5], [8.4, 0.5], [-8.0, -50.0]):
        value, gradient = g(np.array(p))
        np.testing.assert_allclose(value, f(p), rtol=1e-9)
        exact = slope(partial(f, counted=False), np.array(p), d)
        np.testing.assert_allclose(gradient @ d, exact, rtol=1e-5)


@pytest.mark.every(2)
@pytest.mark.parametrize("method", ["RK45", "DOP853"])
def test_events_in_any_number_of_steps(method):
    """One trace, as long as each event happens as often."""

    def f(p):
        r = bounced(p, method=method, dense_output=True, max_step=0.03)
        passed = np.sum(r.t_events[1]) * np.sum(r.y_events[0]) + np.trapezoid(r.y[0], r.t)
        inside = bounced(p, t_eval=[0.0, 0.3, 0.9, 1.99], method="RK45").y[0]
        return passed + r.sol(0.7)[0] + np.sum(inside) + r.y[0, -1] * r.t[-1], (r.nfev, r.t.size)

    g, d = value_and_grad(f, has_aux=True, compile="never"), np.array([1.0, -0.7])
    sizes = set()
    for p in ([8.0, 0.5], [8.9, 0.4]):
        (value, told), gradient = g(np.array(p))
        np.testing.assert_allclose(value, f(p)[0], rtol=1e-9)
        assert told == f(p)[1]
        exact = slope(lambda p: f(p)[0], np.array(p), d)
        np.testing.assert_allclose(gradient @ d, exact, rtol=1e-3)  # the integral's steps move
        sizes.add(told)
    assert (len(sizes), g.cache_info().traces) == (2, 1)


def test_events_to_second_order():
    """The polynomials of steps are what is differentiated: those of DOP853 are of degree seven."""
    p, d = np.array([8.0, 0.5]), np.array([1.0, -0.7])
    g = grad(lambda p: of_events(p, method="DOP853", rtol=1e-11), compile="never")
    second = grad(lambda p: g(p) @ d, compile="never")(p)
    np.testing.assert_allclose(second, slope(g, p, d), rtol=1e-4)


@pytest.mark.every(3)
@pytest.mark.parametrize("method", ["RK45", "RK23", "DOP853"])
def test_the_solution_between_its_steps(method):
    times = np.array([1.3, 0.0, 0.4, 2.0])

    def f(p, t):
        r = bounced(p, method=method, dense_output=True, events=None)
        assert r.sol(0.3).shape == (2,) and r.sol(times).shape == (2, 4)
        return np.sum(np.sin(r.sol(t)) * [[1.0], [0.3]]) + r.sol(p[1])[0] + r.sol.t_max + r.nfev

    p = np.array([8.0, 0.5])
    value, (along_p, along_t) = value_and_grad(f, (0, 1), compile="never")(p, times)
    np.testing.assert_allclose(value, f(p, times), rtol=1e-9)
    for d in np.eye(2):
        np.testing.assert_allclose(along_p @ d, slope(lambda p: f(p, times), p, d), rtol=1e-5)
    for d in np.eye(4):
        np.testing.assert_allclose(along_t @ d, slope(lambda t: f(p, t), times, d), rtol=1e-5)


def test_what_isnt_known_of_equations_is_refused():
    for how in ({"events": lambda t, y: y[0] - 1.5}, {"dense_output": True}):
        with pytest.raises(UnsupportedError, match=next(iter(how))):
            grad(lambda a: np.sum(hunted(P * a, method="Radau", **how).y))(1.0)  # noqa: B023
    assert hunted(P, dense_output=True).sol is not None
    with pytest.raises(UnsupportedError, match="leggauss"):
        grad(lambda a: integrate.tplquad(lambda z, y, x: a * x, 0, 1, 0, 1, 0, 1)[0])(1.0)


def test_integrals_at_kinks():
    for f, at, expected in (
        (lambda a: integrate.quad(lambda t: abs(t - a), 0, 1, epsabs=1e-4)[0], 0.7, 0.4),
        (lambda a: integrate.quad(lambda t: a * t if t < a else a**2, 0, a)[0], 0.7, 1.5 * 0.49),
    ):
        value, gradient = value_and_grad(f)(at)
        np.testing.assert_allclose(value, f(at), rtol=1e-14)
        np.testing.assert_allclose(gradient, expected, rtol=1e-3)


def test_the_nodes_of_an_integral_are_found_by_one_evaluation(monkeypatch):
    """of the integrand and its slopes, at all that is looked at"""
    asked = []
    many = Runner.many

    def counted(self, xs, count, p):
        asked.append(len(xs))
        return many(self, xs, count, p)

    monkeypatch.setattr(Runner, "many", counted)
    monkeypatch.setattr(Runner, "slopes", None)  # one by one

    def f(p):
        return integrate.quad(lambda t: np.exp(-p * t) * np.cos(t), 0.0, 2.0)[0]

    g = grad(f)
    for p in (0.5, 0.75, 1.0):
        assert g(p) == pytest.approx(slope(f, p), rel=1e-8)
    assert asked == [3 * 21 + 2] * 2  # the first call has a trace


def test_what_is_made_of_integrands_that_are_alike_is_made_once(monkeypatch):
    made = []
    start = callbacks.BatchedCallback.__init__

    def counted(self, *given):
        made.append(given)
        start(self, *given)

    monkeypatch.setattr(callbacks.BatchedCallback, "__init__", counted)

    def f(p):
        ends = (0.5, 1.0, 1.5, 2.0)
        upper = [integrate.quad(lambda t: np.exp(-p[0] * t) * p[1], 0.0, b)[0] for b in ends]
        return sum(upper) + integrate.quad(lambda t: np.exp(-p[0] * t) * p[2], 0.0, 1.0)[0]

    g = value_and_grad(f)
    for p in (np.array([0.5, 1.0, 3.0]), np.array([0.75, 2.0, -1.0])):
        value, found = g(p)
        assert value == pytest.approx(f(p), rel=1e-12)
        np.testing.assert_allclose(found, [slope(f, p, e) for e in np.eye(3)], rtol=1e-8)
    assert len(made) == 2  # that of the comprehension, and the one behind it


def test_integrals_at_later_calls():
    """More intervals than before, and a limit that becomes infinite."""
    f = lambda w, b: integrate.quad(lambda t: np.exp(-t) * np.sin(w * t), 0, b)[0]  # noqa: E731
    g = value_and_grad(f, argnums=(0, 1))
    for w, b in ((1.0, 2.0), (25.0, 5.0), (2.0, np.inf), (1.5, 1.0)):
        value, (by_w, by_b) = g(w, b)
        np.testing.assert_allclose(value, f(w, b), rtol=1e-13)
        np.testing.assert_allclose(by_w, slope(partial(f, b=b), w), rtol=1e-5, atol=1e-8)
        if np.isfinite(b):
            np.testing.assert_allclose(by_b, np.exp(-b) * np.sin(w * b), rtol=1e-9)


def test_where_nothing_is_observed():
    out, pull = vjp(lambda a: integrate.quad(lambda t: np.exp(a * t), 0, 1)[0], 0.5)
    np.testing.assert_allclose(out, 2 * (np.exp(0.5) - 1))
    np.testing.assert_allclose(pull(1.0)[0], 4 - 2 * np.exp(0.5), rtol=1e-10)


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "f",
    [
        lambda a: integrate.quad(lambda x: np.where(x > a, x, 0.0), 0, 3)[0],
        lambda a: integrate.quad(lambda x: x if x > 1.5 * a else 0.0, 0, 3)[0],
        lambda a: integrate.quad(lambda x: np.exp(-(x**2)) * (x > a / 3), -np.inf, np.inf)[0],
        lambda a: integrate.quad_vec(lambda x: np.where(x > np.array([a, 2.0]), x, 0.0), 0, 3)[0][
            0
        ],
    ],
)
def test_a_jump_that_moves_with_a_traced_value_is_refused(f):
    """Its derivative isn't an integral of derivatives, which are 0."""
    np.testing.assert_allclose(jit(f)(1.0), f(1.0), rtol=1e-12)
    with pytest.raises(GradientError, match="jumps"):
        grad(f)(1.0)


@pytest.mark.every(8)
@pytest.mark.parametrize(
    "f",
    [
        lambda c: integrate.quad(lambda t: np.abs(t - c), 0, 2)[0],
        lambda c: integrate.quad(lambda t: np.maximum(t, c**2), 0, 2)[0],
        lambda c: integrate.quad(lambda t: np.clip(t * c, 0.2, 0.9), 0, 2)[0],
        lambda c: integrate.quad(lambda t: t - c if t > c else 0.0, 0, 2)[0],
        lambda c: integrate.quad(lambda t: np.where(t > c, t - c, 0.0), 0, 2)[0],
        lambda c: integrate.quad(lambda t: np.exp(-np.abs(t - c)), -np.inf, 3)[0],
        lambda c: integrate.quad_vec(lambda t: np.abs(t - np.array([c, 2.0 * c])), 0, 2)[0][1],
        lambda c: integrate.quad(lambda t: np.abs(t - c), 0, c)[0],
    ],
)
def test_a_kink_that_moves_has_a_first_derivative_alone(f):
    """The slope of the integrand jumps there, so the second one isn't an integral of derivatives;
    in both modes, and along a limit that is the kink."""
    with pytest.raises(GradientError, match=r"order 2.*jumps at a place that moves"):
        hessian(f, compile="never")(0.7)
    with pytest.raises(GradientError, match=r"integrate_test.py:\d+"):
        grad(grad(f, compile="never"), compile="never")(0.7)
    ours = grad(f, compile="never")(0.7)
    np.testing.assert_allclose(ours, slope(f, 0.7, h=1e-3), rtol=1e-4)


def test_second_derivatives_of_many_integrals():
    """In each order of vmap and the two derivatives."""
    h = lambda c: integrate.quad(lambda t: np.exp(-c * t) * np.abs(t), -1, c)[0]  # noqa: E731
    x = np.array([0.5, 1.2])
    wanted = [slope(grad(h), v) for v in x]
    np.testing.assert_allclose(grad(lambda x: np.sum(vmap(grad(h))(x)))(x), wanted, rtol=1e-6)
    np.testing.assert_allclose(vmap(hessian(h))(x), wanted, rtol=1e-6)
    whole = hessian(lambda x: np.sum(vmap(h)(x)))(x)
    np.testing.assert_allclose(whole, np.diag(wanted), rtol=1e-6)


def test_a_limit_at_a_jump_that_moves_with_it():
    """The integrand there is that of one of the sides."""
    f = lambda a: integrate.quad(lambda t: np.where(t < a, 1.0, 0.0), 0, a)[0]  # noqa: E731
    assert jit(f)(1.0) == 1.0
    with pytest.raises(GradientError, match="jumps"):
        grad(f)(1.0)


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("second", "f"),
    [
        (5.0, lambda c: integrate.quad(lambda t: np.abs(t) * c**2, -1, 2)[0]),
        (6.54, lambda c: integrate.quad(lambda t: np.abs(t - c) ** 3, 0, 2)[0]),
        (7.9, lambda c: integrate.quad(lambda t: np.abs(t + 2) * c, 0, c)[0]),
        (
            2.0,
            lambda c: (
                integrate.quad(lambda t: c - t, 0, c)[0] + integrate.quad(lambda t: t - c, c, 2)[0]
            ),
        ),
    ],
)
def test_second_derivatives_with_kinks_that_stay_or_are_smooth(second, f):
    np.testing.assert_allclose(hessian(f, compile="never")(1.3), second, rtol=1e-6)
    np.testing.assert_allclose(grad(grad(f))(1.3), second, rtol=1e-6)


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("slope", "f"),
    [
        (-3.71875, lambda x, a: np.where(x > a, x - a, 0.0) * x),
        (-1.75e6, lambda x, a: 1e6 * (x - a) if x > a else 0.0),
        (3.655, lambda x, a: np.where(x > 1.3, a * x, 0.0)),
        (3**0.7 / 0.7, lambda x, a: np.where(x < a, 1.0, 1.0) * a * x**-0.3),
        (4.5, lambda x, a: np.floor(a) * x * a),
    ],
)
def test_kinks_and_jumps_that_stay_have_derivatives(f, slope):
    ours = grad(lambda a: integrate.quad(f, 0, 3, args=(a,))[0])(1.25)
    np.testing.assert_allclose(ours, slope, rtol=1e-6)


def relay(p, method="RK45"):
    """A state that moves faster below p."""
    return integrate.solve_ivp(
        lambda t, y: np.where(y < p, 1.0, 0.5), (0, 3), [0.0], method, max_step=0.05
    ).y[0, -1]


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "f",
    [
        relay,
        partial(relay, method="LSODA"),
        lambda p: integrate.solve_ivp(lambda t, y: y if t < p else -y, (0, 1), [1.0]).y[0, -1],
        lambda p: integrate.odeint(lambda y, t: [y[1], -y[0] - p * np.sign(y[1])], [0, 1], [0, 2])[
            -1, 0
        ],
    ],
)
def test_a_right_hand_side_that_jumps_on_the_way_is_refused(f):
    np.testing.assert_allclose(jit(f)(0.51), f(0.51), rtol=1e-6)
    with pytest.raises(GradientError, match="jumps"):
        grad(f)(0.51)


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "slope",
    [
        lambda t, y, p: -np.maximum(y - p, 0.0),
        lambda t, y, p: np.where(y > p, p - y, 0.0),
        lambda t, y, p: -p * y + (1.0 if t < 0.5 else 0.0),  # the same time, whatever p is
        lambda t, y, p: -p * y if y[0] > -1.0 else y,
    ],
)
def test_right_hand_sides_with_kinks_and_with_jumps_that_stay(slope):
    def end(p):
        how = {"rtol": 1e-9, "atol": 1e-9, "max_step": 0.02}
        return integrate.solve_ivp(slope, (0, 1), [1.0], args=(p,), **how).y[0, -1]

    np.testing.assert_allclose(grad(end)(0.51), (end(0.511) - end(0.509)) / 0.002, rtol=1e-3)


def test_a_right_hand_side_that_jumps_at_a_later_call():
    df = grad(lambda p: relay(p))
    assert df(-1.0) == 0.0
    with pytest.raises(GradientError, match="jumps"):
        df(0.5)


@pytest.mark.parametrize("a", [-np.inf, 0.0])
def test_slopes_that_overflow_far_out_are_their_limit(a):
    """Where the integrand has underflowed, its derivatives are inf / inf on their way to 0."""
    area = np.pi if a else np.pi / 2

    def f(v):
        return integrate.quad(lambda z: 1 / np.cosh(v * z), a, np.inf)[0]

    with np.errstate(all="ignore"):
        np.testing.assert_allclose(grad(f)(1.3), -area / 1.3**2, rtol=1e-7)
        np.testing.assert_allclose(grad(grad(f))(1.3), 2 * area / 1.3**3, rtol=1e-7)
        found = grad(lambda v: integrate.quad(lambda z: np.exp(-v * np.cosh(z)), a, np.inf)[0])(1.0)
    np.testing.assert_allclose(found, -k1(1.0) * (2 if a else 1), rtol=1e-7)


def test_what_quad_tells_of_its_work_is_not_looked_into():
    """the integral and its error are followed with `full_output` too; the rest is of one call"""

    def f(p):
        return integrate.quad(lambda t: np.exp(-p * t), 0, 1, full_output=1)

    g = grad(lambda p: f(p)[0])
    for p in (0.5, 0.7):
        steps = [f(p + h)[0] for h in (1e-6, -1e-6)]
        np.testing.assert_allclose(g(p), (steps[0] - steps[1]) / 2e-6, rtol=1e-6)
    for use in (lambda told: told["neval"], len, str, lambda told: told.keys(), bool):
        with pytest.raises(UnsupportedError, match=r"what scipy\.integrate\.quad tells"):
            grad(lambda p, use=use: (use(f(p)[2]), p)[1])(0.5)
    with pytest.raises(UnsupportedError, match="returns a message where it fails"):
        grad(lambda p: integrate.quad(lambda t: p / t, 0, 1, full_output=1)[0])(0.5)


def test_an_integral_in_an_integrand():
    def f(p):
        inner = lambda x: integrate.quad(lambda y: np.exp(-p[0] * x * y) * p[1], 0, 1)[0]  # noqa: E731
        return integrate.quad(inner, 0, p[1])[0]

    same_as_differences(f, np.array([0.5, 1.2]))


def test_an_integral_over_two_variables():
    def f(p):
        found = integrate.dblquad(lambda y, x: np.exp(-p[0] * x * y), 0, p[1], lambda x: x, 2.0)
        return found[0] * integrate.dblquad(lambda y, x: x * y, 0, 1, 0, 1)[0]

    same_as_differences(f, np.array([0.5, 1.2]))
    with pytest.raises(UnsupportedError, match="over 3 variables"):
        grad(lambda p: integrate.nquad(lambda x, y, z: p * x, [[0, 1]] * 3)[0])(0.5)
    with pytest.raises(UnsupportedError, match=r"what scipy\.integrate\.nquad tells"):
        grad(lambda p: p * integrate.nquad(lambda x: p * x, [[0, 1]])[1])(0.5)


def same_as_differences(f, p):
    value, slope = value_and_grad(f, compile="never")(p)
    assert value == pytest.approx(f(p), rel=1e-12)
    steps = 1e-6 * np.eye(2)
    expected = [(f(p + d) - f(p - d)) / 2e-6 for d in steps]
    np.testing.assert_allclose(slope, expected, rtol=1e-6)


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "f",
    [
        lambda a, n: integrate.odeint(lambda y, t: -a * y, [n], [0, n])[-1, 0],
        lambda a, n: integrate.odeint(lambda y, t: -a * y, n, [0, 1, n])[-1, 0],
        lambda a, n: optimize.least_squares(lambda t: t - 9 * a, [0.0], bounds=(-n, n)).cost,
        lambda a, n: optimize.minimize(lambda t: (t[0] - 9 * a) ** 2, [0.0], bounds=[(0, n)]).fun,
    ],
)
def test_whole_numbers_as_times_and_bounds(f):
    """an integer that is traced is taken for the float that SciPy makes of it"""
    g = value_and_grad(f, compile="never")
    for n in (2, 3):
        value, slope = g(0.8, n)
        assert value == pytest.approx(f(0.8, n), rel=1e-12)
        found = (f(0.8 + 1e-4, n) - f(0.8 - 1e-4, n)) / 2e-4
        np.testing.assert_allclose(slope, found, rtol=1e-4)


@pytest.mark.every(4)
@pytest.mark.parametrize("how", [integrate.quad, integrate.quad_vec])
@pytest.mark.parametrize("place", [1.0, 0.5])
def test_a_kink_beside_an_end_of_an_interval(how, place):
    """no node lies between them: the integral is right to 1e-7, and its derivative was to 1e-3"""
    f = lambda c: how(lambda t: np.abs(np.sin(3 * (t - c))), 0, 2)[0]  # noqa: E731
    df = grad(f, compile="never")
    for c in (place + 3e-4, place - 1e-6):
        slope = abs(np.sin(3 * c)) - abs(np.sin(3 * (2 - c)))
        assert abs(df(c) - slope) < 1e-7


def test_a_kink_beside_a_place_on_the_way_to_infinity():
    f = lambda c: integrate.quad(lambda t: np.exp(-np.abs(t - c)), 0, np.inf)[0]  # noqa: E731
    df = grad(f, compile="never")
    for c in (
        1.0,
        1.0 + 1e-3,
        1.0 - 1e-4,
        1 / 3,
        3.0 + 1e-4,
    ):  # where intervals of 1 / (1 + t) meet
        assert abs(df(c) - np.exp(-c)) < 1e-6


INTEGRALS = {
    "sum": lambda x: integrate.quad(lambda t: t * x[0] + x[1], 0, 1)[0],
    "exp": lambda x: integrate.quad(lambda t: np.exp(t * x[0]) + x[1], 0, 1)[0],
    "kink": lambda x: integrate.quad(lambda t: abs(t - 0.3) * x[0] + x[1], 0, 1, points=[0.3])[0],
    "vector": lambda x: integrate.quad_vec(lambda t: t * x[0] + x[1], 0, 1)[0],
    "limit": lambda x: integrate.quad(lambda t: t * x[0] + x[1], 0, x[0])[0],
    "infinite": lambda x: integrate.quad(lambda t: np.exp(-t) * x[1], x[0], np.inf)[0],
    "limits": lambda x: integrate.quad_vec(lambda t: np.exp(-t) * x[1], x[0], x[1])[0],
    "two": lambda x: integrate.dblquad(lambda b, a: a * b * x[0] + x[1], 0, x[1], 0, x[0])[0],
}


@pytest.mark.every(8)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, float) for name in INTEGRALS]  # SciPy warns of an inner integral in single precision
    + [(name, np.float32) for name in INTEGRALS if name != "two"],
)
def test_integrands_of_elements_of_an_array(name, dtype):
    """of which one stands beside what the node is multiplied with; limits that are single"""
    f, x = INTEGRALS[name], np.array([1.0, 2.0])
    right = [slope(f, x, along) for along in np.eye(2)]
    value, found = value_and_grad(f)(x.astype(dtype))
    np.testing.assert_allclose(value, f(x), rtol=1e-6)
    np.testing.assert_allclose(found, right, rtol=1e-6)


@pytest.mark.every(4)
@pytest.mark.parametrize("second", [hessian, lambda f: grad(grad(f))], ids=["forward", "reverse"])
@pytest.mark.parametrize("place", [0.3, 0.3137, 0.9])
def test_a_second_slope_that_jumps_in_an_integrand(second, place):
    """The first intervals needn't end where it does: that had 1e-3 of the result."""
    one_side = lambda c: integrate.quad(lambda t: np.maximum(t - c, 0) ** 2 * np.exp(c), 0, 1)[0]  # noqa: E731
    expected = np.exp(place) * ((1 - place) ** 3 / 3 - 2 * (1 - place) ** 2 + 2 * (1 - place))
    np.testing.assert_allclose(second(one_side)(place), expected, rtol=1e-10)
    far = lambda c: integrate.quad(lambda t: np.maximum(t - c, 0) ** 2 * np.exp(-t), 0, np.inf)[0]  # noqa: E731
    np.testing.assert_allclose(second(far)(place), 2 * np.exp(-place), rtol=1e-7)


RATE = 1.0


@pytest.mark.parametrize("weight", ["cos", "sin"])
@pytest.mark.parametrize("compile", ["never", "always"])
def test_integrals_with_waves_as_weights(weight, compile, monkeypatch):
    def f(p):
        given = {"weight": weight, "wvar": p[2], "epsabs": 1e-12, "epsrel": 1e-12}
        return integrate.quad(lambda t, k: np.exp(-RATE * k * t), 0.0, p[1], args=(p[0],), **given)[
            0
        ]

    df = value_and_grad(f, compile=compile)
    for p, rate in (([1.3, 2.0, 3.0], 1.0), ([0.7, 1.5, 20.0], 1.0), ([0.7, 1.5, 20.0], 2.0)):
        monkeypatch.setitem(globals(), "RATE", rate)
        p = np.array(p)
        value, slopes = df(p)
        np.testing.assert_allclose(value, f(p), rtol=1e-9, atol=1e-11)
        expected = [(f(p + e) - f(p - e)) / 2e-4 for e in 1e-4 * np.eye(3)]
        np.testing.assert_allclose(slopes, expected, rtol=1e-6, atol=1e-7)
    plain = value_and_grad(
        lambda x: x * integrate.quad(np.exp, 0, 1, weight="alg", wvar=(0.5, 0.5))[0]
    )
    assert plain(2.0)[1] == integrate.quad(np.exp, 0, 1, weight="alg", wvar=(0.5, 0.5))[0]
    with pytest.raises(UnsupportedError, match=r"weight='cos'.*Write the weight into"):
        value_and_grad(
            lambda a: integrate.quad(lambda t: np.exp(-a * t), 0, np.inf, weight="cos", wvar=1.0)[0]
        )(1.0)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("mode", ["never", "always"])
def test_integrals_of_single_precision_and_of_nan(mode):
    """Rounding of single precision isn't what has no intervals, and neither is NaN."""
    f = {
        "wave": lambda p: integrate.quad(
            lambda t: np.exp(-p[0] * t), 0, 3, weight="cos", wvar=p[1] * 2
        )[0],
        "infinite": lambda p: integrate.quad(lambda t: np.exp(-p[0] * t**2) * p[1], 0, np.inf)[0],
    }
    for g in f.values():
        d, x = value_and_grad(g, compile=mode), np.array([0.7, 1.3])
        right = d(x)[1]
        single = d(x.astype(np.float32))[1]
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, right, rtol=1e-5)
        value, slope = d(np.array([np.nan, 1.3]))
        assert np.isnan(value)
        assert np.isnan(slope).any()
