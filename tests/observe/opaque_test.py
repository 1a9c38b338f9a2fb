"""Calls of libraries' functions with plain arguments are one step: what they do isn't followed."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.optimize
import scipy.signal
import scipy.sparse
import scipy.spatial
import scipy.stats
from scipy.stats import qmc

from tapegrad import grad, value_and_grad

X = np.array([1.0, 2.0])
MODES = ("never", "always")

CONSTANTS = {
    "cholesky": lambda a: scipy.linalg.cholesky(a),
    "inv": lambda a: scipy.linalg.inv(a),
    "solve": lambda a: scipy.linalg.solve(a, np.ones(2)),
    "eigh": lambda a: scipy.linalg.eigh(a)[0],
    "svd": lambda a: scipy.linalg.svd(a)[1],
    "expm": lambda a: scipy.linalg.expm(a),
    "fft2": lambda a: np.abs(scipy.fft.fft2(a)),
    "by name": lambda a: np.abs(getattr(scipy.fft, "fft2")(a)),  # noqa: B009
    "lapack": lambda a: scipy.linalg.lapack.dpotrf(a)[0],
    "sosfilt": lambda a: scipy.signal.sosfilt(scipy.signal.butter(2, 0.3, output="sos"), a),
    "spline": lambda a: scipy.interpolate.CubicSpline([0.0, 1.0], a)(0.3),
    "frozen": lambda a: scipy.stats.gamma(a[0, 0]).pdf(1.5),
    "kde": lambda a: scipy.stats.gaussian_kde([1.0, 2.0, a[0, 0]])(1.5),
    "kd tree": lambda a: scipy.spatial.cKDTree(a).query([0.0, 0.0])[0],
    "linprog": lambda a: scipy.optimize.linprog([1.0, 1.0], A_ub=-a, b_ub=[-1.0, -1.0]).x,
}


@pytest.mark.every(8)
@pytest.mark.parametrize("compile", MODES)
@pytest.mark.parametrize("name", CONSTANTS)
def test_a_function_of_scipys_depends_on_its_arguments(name, compile):
    """It is computed once while they are the same, and again when an array is another or has other
    contents."""
    constant, a = CONSTANTS[name], np.array([[3.0, 1.0], [1.0, 2.0]])

    def f(x):
        return np.sum(constant(a) * np.sum(x))

    g = grad(f, compile=compile)
    for _ in range(5):
        np.testing.assert_allclose(g(X), np.sum(constant(a)), rtol=1e-14)
    assert g.cache_info().traces == 1
    a[0, 0] = 5.0
    np.testing.assert_allclose(g(X), np.sum(constant(a)), rtol=1e-14)
    assert g.cache_info().traces == 2


def test_an_object_of_the_outside_is_read_by_all_that_it_holds():
    """A spline, a frozen distribution, nested lists: a change in place is noticed."""
    spline, law = scipy.interpolate.CubicSpline([0.0, 1.0, 2.0], [1.0, 3.0, 2.0]), [[2.0, 1.0]] * 2
    for held, f in (
        (spline.c, lambda x: np.sum(x) * spline(1.5)),
        (law, lambda x: np.sum(x) * np.sum(scipy.linalg.pinv(law))),
    ):
        g = grad(f)
        g(X)
        np.testing.assert_allclose(g(X), f(X) / np.sum(X))
        assert g.cache_info().traces == 1
        held[0] = [5.0, 3.0]
        np.testing.assert_allclose(g(X), f(X) / np.sum(X))


def test_what_scipy_overwrites_is_seen():
    """`overwrite_a` changes a copy in each call, and one from outside as often as plain NumPy."""
    a = np.array([[3.0, 1.0], [1.0, 2.0]], order="F")

    def f(x):
        b = a.copy(order="F")
        scipy.linalg.lu_factor(b, overwrite_a=True)
        return np.sum(b @ x)

    g = grad(f)
    for _ in range(3):
        b = a.copy(order="F")
        scipy.linalg.lu_factor(b, overwrite_a=True)
        np.testing.assert_allclose(g(X), b.sum(axis=0))

    def h(x):
        scipy.linalg.lu_factor(a, overwrite_a=True)
        return np.sum(a @ x)

    b, g = a.copy(order="F"), grad(h)
    for _ in range(2):
        scipy.linalg.lu_factor(b, overwrite_a=True)
        np.testing.assert_allclose(g(X), b.sum(axis=0))


def test_random_numbers_that_scipy_draws_are_drawn_at_each_call():
    """From the global generator, one that is passed, and one without a seed."""
    rng = np.random.default_rng(0)
    for seed, f in (
        (lambda: np.random.seed(0), lambda x: np.sum(x) * scipy.stats.norm.rvs()),
        (
            lambda: setattr(
                rng.bit_generator, "state", np.random.default_rng(0).bit_generator.state
            ),
            lambda x: np.sum(x) * scipy.stats.norm.rvs(random_state=rng),
        ),
    ):
        seed()
        g = grad(f)
        found = [g(X)[0] for _ in range(2)]
        seed()
        np.testing.assert_allclose(found, [f(X) / np.sum(X) for _ in range(2)])
    g = grad(lambda x: np.sum(x) * qmc.Sobol(2).random(4).sum())
    assert g(X)[0] != g(X)[0]


def test_numbers_that_scipy_draws_of_a_seed_are_traced_once():
    """Until the seed is another one; without one each call draws."""
    seed = [0]
    normal = scipy.stats.multivariate_normal
    for f in (
        lambda x: normal.rvs(np.zeros(2), np.eye(2), random_state=seed[0]) @ x,
        lambda x: np.sum((scipy.sparse.random(2, 2, 0.5, random_state=seed[0]) @ x) ** 2),
    ):
        g, seed[0] = value_and_grad(f), 0
        for _ in range(4):
            assert g(X)[0] == f(X)
        assert g.cache_info().traces == 1
        seed[0] = 3
        assert g(X)[0] == f(X)
    g = grad(lambda x: normal.rvs(np.zeros(2), np.eye(2)) @ x)
    assert g(X)[0] != g(X)[0]


def test_an_object_that_goes_on_goes_on():
    """A sequence that remembers how far it is, and a solver that steps in a loop."""
    halton = qmc.Halton(2, scramble=False)
    g = grad(lambda x: np.sum(x) * halton.random(1).sum())
    found = [g(X)[0] for _ in range(2)]
    halton = qmc.Halton(2, scramble=False)
    np.testing.assert_allclose(found, [halton.random(1).sum() for _ in range(2)])

    def f(x):
        total = 0.0
        solver = scipy.integrate.RK45(lambda t, y: -y, 0.0, [1.0], 1.0)
        while solver.status == "running":
            solver.step()
            total = total + x[0] * solver.y[0]
        return total

    np.testing.assert_allclose(grad(f)(X), [f(np.array([1.0, 0.0])), 0.0])


RATE = 2.0


def test_a_function_of_the_users_that_scipy_calls_is_followed(monkeypatch):
    """What a callback reads is noticed."""

    def cost(t):
        return (t - RATE) ** 2

    def f(x):
        return np.sum(x) * scipy.optimize.minimize_scalar(cost).x

    g = grad(f)
    np.testing.assert_allclose(g(X), 2.0)
    monkeypatch.setitem(globals(), "RATE", 4.0)
    np.testing.assert_allclose(g(X), 4.0)
