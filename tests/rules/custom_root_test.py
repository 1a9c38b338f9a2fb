"""Users' solvers with the derivative of what they solve: `custom_root`, `custom_fixed_point`."""

import numpy as np
import pytest

from tapegrad import custom_fixed_point, custom_root, grad, gradcheck, hessian, jvp, vmap
from tapegrad.errors import ArgumentError, GradientError

A = np.array([[3.0, 1.0], [1.0, 2.0]])
B = np.array([1.0, 2.0])


def equations(x, a, b):
    return a @ x + 0.1 * x**3 - b


class Counted:
    """Newton's method, which goes on until it is done, on plain values."""

    calls = 0  # which is state of the solver's alone

    def __call__(self, start, a, b):
        self.calls += 1
        assert type(a) is np.ndarray and type(b) is np.ndarray
        x = np.array(start, float)
        while np.max(np.abs(r := equations(x, a, b))) > 1e-14:
            x = x - np.linalg.solve(a + np.diag(0.3 * x**2), r)
        return x


@pytest.fixture(params=["never", "always"])
def mode(request):
    """Played with NumPy, and compiled."""
    return request.param


def test_the_solver_runs_at_each_call_on_plain_values(mode):
    """It isn't traced: one tape serves later values, each of which is solved for."""
    newton = Counted()
    solve = custom_root(equations)(newton)
    dloss = grad(lambda a, b: np.sum(np.sin(solve(np.zeros(2), a, b))), (0, 1), compile=mode)
    for k in range(3):
        a = A + 0.2 * k
        da, db = dloss(a, B)
        x = Counted()(np.zeros(2), a, B)
        y = np.linalg.solve((a + np.diag(0.3 * x**2)).T, np.cos(x))
        np.testing.assert_allclose(db, y, rtol=1e-12)
        np.testing.assert_allclose(da, -np.outer(y, x), rtol=1e-12)
    assert dloss.cache_info().traces == 1


def test_both_modes_and_second_derivatives():
    """dx = (dF/dx)^-1 db here; the Hessian is that of differences."""
    solve = custom_root(equations)(Counted())
    x, t = jvp(lambda b: solve(np.zeros(2), A, b), (B,), (np.ones(2),))
    np.testing.assert_allclose(t, np.linalg.solve(A + np.diag(0.3 * x**2), np.ones(2)))
    first = grad(lambda a, b: np.sum(solve(np.ones(2), a, b) ** 2), (0, 1))
    assert gradcheck(lambda a, b: np.sum(np.cos(first(a, b)[0])) + np.sum(first(a, b)[1]), (A, B))


def _dense(matvec, b):
    """A solver of linear systems for x = {"u": [., .], "v": .}."""
    trees = [{"u": e[:2], "v": e[2]} for e in np.eye(3)]
    columns = [np.append(y["u"], y["v"]) for y in map(matvec, trees)]
    y = np.linalg.solve(np.array(columns).T, np.append(b["u"], b["v"]))
    return {"u": y[:2], "v": y[2]}


@pytest.mark.parametrize("solve", [None, _dense])
def test_nested_solutions_with_more_beside(solve, mode):
    """x may be nested; with has_aux the solver returns what has no derivative, too. The systems of
    the derivative are solved by `solve`."""

    def equation(x, t):
        return {"u": x["u"] ** 2 - t[:2], "v": x["v"] * x["u"][0] - t[2]}

    @custom_root(equation, has_aux=True, solve=solve)
    def solver(start, t):
        u = np.sqrt(t[:2])
        return {"u": u, "v": float(t[2] / u[0])}, {"steps": 3, "how": "directly"}

    def loss(t):
        x, aux = solver(None, t)
        assert aux["how"] == "directly"
        return np.sum(x["u"] ** 3) + aux["steps"] * x["v"] ** 2

    t = np.array([2.0, 3.0, 4.0])
    expected = [1.5 * 2**0.5 - 3 * 16 / 4, 1.5 * 3**0.5, 3 * 2 * 4 / 2]
    np.testing.assert_allclose(grad(loss, compile=mode)(t), expected)
    np.testing.assert_allclose(hessian(loss)(t)[0, 2], -6.0)


def test_fixed_points_of_numbers(mode):
    """x = (x + a/x) / 2 has dx/da = 1 / (2 sqrt(a)); rows of `vmap` are solved one by one. Where
    the solver starts has no derivative."""

    @custom_fixed_point(lambda x, a: (x + a / x) / 2)
    def root(x, a):
        assert isinstance(a, float)
        for _ in range(60):
            x = (x + a / x) / 2
        return x

    first = grad(lambda a: root(1.0, a), compile=mode)
    assert first(2.0) == pytest.approx(0.5 / 2**0.5)
    assert grad(first)(2.0) == pytest.approx(-0.25 / 2**1.5)
    assert grad(root)(1.0, 2.0) == 0.0
    rows = vmap(grad(lambda a: root(1.0, a)))(np.array([1.0, 4.0]))
    np.testing.assert_allclose(rows, [0.5, 0.25])
    assert root(1.0, 4.0) == 2.0


def test_what_the_equation_reaches_counts():
    """F reads `self` and closures; a method is passed its instance."""

    class Model:
        k = 2.0

        @custom_root(lambda self, x, a: x**3 - a * self.k)
        def cube_root(self, start, a):
            return (a * self.k) ** (1 / 3)

    model = Model()
    dcube = grad(lambda a: model.cube_root(1.0, a))
    assert dcube(4.0) == pytest.approx(2 / 3 * 8 ** (-2 / 3))
    model.k = 16.0
    assert dcube(4.0) == pytest.approx(16 / 3 * 64 ** (-2 / 3))

    def scaled(c):
        solver = custom_root(lambda x: x - 3 * c)(lambda start: 6.0)
        return solver(0.0)

    assert grad(scaled)(2.0) == 3.0


def test_single_precision_stays():
    """The solution has the solver's dtype, and the gradient that of the argument."""
    solver = custom_root(lambda x, a: x**2 - a)(lambda start, a: np.sqrt(a))
    found = grad(lambda a: np.sum(solver(None, a)))(np.array([4.0], np.float32))
    assert found.dtype == np.float32 and found[0] == 0.25


def test_what_is_refused():
    """The message says what to do."""
    with pytest.raises(GradientError, match="Pass it as an argument"):
        grad(lambda a: custom_root(lambda x: x**2 - a)(lambda start: np.sqrt(a))(1.0))(4.0)
    with pytest.raises(GradientError, match="has 2 numbers"):
        grad(lambda a: custom_root(lambda x, a: np.array([x, a]))(lambda x, a: a)(1.0, a))(4.0)
    with pytest.raises(ArgumentError, match="Return a pair"):
        grad(lambda a: custom_root(lambda x, a: x - a, has_aux=True)(lambda x, a: a)(1.0, a))(4.0)
    with pytest.raises(ArgumentError, match="needs a function, not 3"):
        custom_root(3)
    with pytest.raises(ArgumentError, match="decorates a function"):
        custom_fixed_point(lambda x: x)(None)
