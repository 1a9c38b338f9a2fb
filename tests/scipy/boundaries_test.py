"""Boundary value problems: values are SciPy's, derivatives those of its collocation equations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

from tapegrad import grad, hessian, jit, jvp, value_and_grad
from tapegrad.errors import GradientError, UnsupportedError

Q = np.array([1.3, 0.7])


def bratu(q, length=1.0, tol=1e-4, **how):
    """y'' + q[0] exp(y) = 0, from 0 to q[1]."""

    def fun(x, y):
        return np.vstack((y[1], -q[0] * np.exp(y[0])))

    def bc(ya, yb):
        return np.array([ya[0], yb[0] - q[1]])

    mesh = np.linspace(0.0, 1.0, 5) * length
    return integrate.solve_bvp(fun, bc, mesh, np.zeros((2, 5)), tol=tol, **how)


def told(r):
    return np.sum(r.sol(np.array([0.2, 0.55]))[0]) + r.yp[1, 2] * r.y[1, 1] + np.mean(r.x * r.y[0])


def slopes(f, q, h=1e-5):
    return np.array([(f(q + e) - f(q - e)) / (2 * h) for e in h * np.eye(len(q))])


@pytest.mark.parametrize("mode", ["never", "always"])
def test_a_problem_is_solved_as_scipy_does_and_differentiated(mode):
    """Also at later calls, whose meshes have other sizes."""
    g = value_and_grad(lambda q: told(bratu(q)), compile=mode)
    sizes = set()
    for q in (Q, 1.01 * Q, 0.5 * Q):
        value, gradient = g(q)
        np.testing.assert_allclose(value, told(bratu(q)), rtol=1e-14)
        np.testing.assert_allclose(gradient, slopes(lambda q: told(bratu(q)), q), atol=2e-6)
        sizes.add(bratu(q).x.size)
    assert len(sizes) > 1
    assert g.cache_info().traces <= len(sizes)


def test_second_order_and_forward_mode():
    def f(q):
        return told(bratu(q))

    d = np.array([0.3, -1.0])
    value, moved = jvp(f, (Q,), (d,))
    np.testing.assert_allclose([value, moved], [f(Q), grad(f)(Q) @ d], rtol=1e-12)
    exact = (grad(f)(Q + 1e-5 * d) - grad(f)(Q - 1e-5 * d)) / 2e-5
    np.testing.assert_allclose(hessian(f)(Q) @ d, exact, rtol=1e-5)


def test_what_is_told_of_a_problem():
    """All that SciPy's result has, under its names."""
    found, r = jit(lambda q: dict(bratu(q) | {"sol": None}))(Q), bratu(Q)
    assert found.keys() == r.keys()
    for name in ("x", "y", "yp", "rms_residuals", "niter", "status", "success"):
        np.testing.assert_array_equal(found[name], r[name])
    assert (found["p"], found["message"]) == (None, r.message)
    t = np.array([-0.1, 0.3, 1.0])
    for at in (t, 0.3):
        y, f = jit(lambda q, at=at: (bratu(q).sol(at), bratu(q).sol(at, 1)))(Q)
        np.testing.assert_allclose(y, r.sol(at), rtol=1e-14)
        np.testing.assert_allclose(f, r.sol(at, 1), rtol=1e-13)
    with pytest.raises(GradientError, match="rms_residuals are told of its work"):
        grad(lambda q: np.max(bratu(q).rms_residuals))(Q)


def test_the_length_of_the_interval():
    """Nodes move with those of the first mesh."""

    def f(length):
        r = bratu(Q, length)
        return r.x[3] * r.y[0, 3] + r.y[1, -1] + r.sol(0.4)[0]

    exact = (f(1 + 1e-5) - f(1 - 1e-5)) / 2e-5
    np.testing.assert_allclose(grad(f)(1.0), exact, rtol=1e-5)


@pytest.mark.every(2)
@pytest.mark.parametrize("given", [False, True])
def test_unknown_parameters(given):
    """y'' + w p^2 y = 0 with y = 0 at 0 and 1: sqrt(w) p is 2 pi. Jacobians of the user's, too."""

    def f(w):
        def fun(x, y, p):
            return np.vstack((y[1], -w * p[0] ** 2 * y[0]))

        def bc(ya, yb, p):
            return np.array([ya[0], yb[0], ya[1] - p[0]])

        def fun_jac(x, y, p):
            one, zero = np.ones_like(x), np.zeros_like(x)
            by_y = np.array([[zero, one], [-w * p[0] ** 2 * one, zero]])
            return by_y, np.array([[zero], [-2 * w * p[0] * y[0]]])

        def bc_jac(ya, yb, p):
            by_p = np.array([[0.0], [0.0], [-1.0]])
            return np.array([[1.0, 0], [0, 0], [0, 1]]), np.array([[0.0, 0], [1, 0], [0, 0]]), by_p

        how = {"fun_jac": fun_jac, "bc_jac": bc_jac} if given else {}
        guess = np.array([[0.0, 1, 0, -1, 0], [0.0] * 5])
        r = integrate.solve_bvp(fun, bc, np.linspace(0, 1, 5), guess, p=[6], tol=1e-4, **how)
        return r.p[0]

    value, slope = value_and_grad(f)(1.0)
    np.testing.assert_allclose(value, f(1.0), rtol=1e-14)
    np.testing.assert_allclose(slope, -np.pi, rtol=1e-4)
    np.testing.assert_allclose(grad(grad(f))(1.0), 1.5 * np.pi, rtol=1e-4)


def test_a_singular_term():
    """y'' + 2 y' / x + y^q = 0, of a star: SciPy's S, which has the limit at 0."""

    def f(q):
        def fun(x, y):
            return np.vstack((y[1], -q[1] * np.abs(y[0]) ** q[0]))

        def bc(ya, yb):
            return np.array([ya[1], yb[0] - np.sqrt(3 / 4)])

        S, guess = np.array([[0.0, 0], [0, -2]]), np.ones((2, 5)) * [[1.0], [0.0]]
        r = integrate.solve_bvp(fun, bc, np.linspace(0, 1, 5), guess, S=S, tol=1e-5)
        return r.y[0, 0] + r.yp[1, 0] + r.sol(0.4)[1]

    q = np.array([5.0, 1.0])
    value, gradient = value_and_grad(f)(q)
    np.testing.assert_allclose(value, f(q), rtol=1e-14)
    np.testing.assert_allclose(gradient, slopes(f, q, 1e-4), rtol=1e-5)
    with pytest.raises(UnsupportedError, match="with a traced S"):
        grad(lambda s: integrate.solve_bvp(None, None, [0, 1], [[0, 0]], S=s).y[0, 0])(np.eye(1))


def test_functions_that_look_at_all_nodes():
    """The Jacobian is dense then, which SciPy's steps don't know."""

    def f(q):
        def fun(x, y):
            return np.vstack((y[1], -q * y[0] + 0.01 * np.sum(y[0, :1] * y[0, -1:])))

        def bc(ya, yb):
            return np.array([ya[0] - 1, yb[0] - 0.5])

        r = integrate.solve_bvp(fun, bc, np.linspace(0, 1, 9), np.ones((2, 9)), tol=1e-5)
        assert r.success
        return r.y[1, 0]

    np.testing.assert_allclose(grad(f)(1.0), (f(1 + 1e-5) - f(1 - 1e-5)) / 2e-5, rtol=1e-5)


def test_a_problem_that_is_not_solved_has_values_alone():
    """As SciPy tells it; a later call may be solved, and has a derivative then."""

    def f(q):
        r = bratu(q, tol=1e-5, max_nodes=8)
        return r.y[1, 0] if r.success else 7.0

    easy = np.array([0.001, 0.7])
    assert f(Q) == 7.0 != f(easy)
    g = grad(f, compile="never")
    np.testing.assert_array_equal(g(Q), [0, 0])
    np.testing.assert_allclose(g(easy), slopes(f, easy), rtol=1e-4)
    with pytest.raises(GradientError, match="hasn't converged"):
        grad(lambda q: bratu(q, tol=1e-5, max_nodes=8).y[1, 0])(Q)
