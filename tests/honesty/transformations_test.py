"""Every transformation: `jit`, `jvp`, `vjp`, Jacobians, Hessians, `jet`, `vmap` and the rest

Each row holds for all entries of `ALL`.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.fuzz.properties import weights
from tests.fuzz.transformed import FIRST, SECOND

from tapegrad import grad, jvp
from tapegrad.core.trees import flatten

ALL = {**FIRST, **SECOND}
X = np.array([0.5, -1.25, 2.0])
V = np.array([1.0, 0.5, -0.25])
STEP, WIDE = 1e-6, 1e-4


class Function:
    """A function of a vector to a vector, with a weighted sum of its value; Jacobian and Hessian by
    differences. Before each run of it `again` is called."""

    def __init__(self, f, again=lambda: None):
        self.f, self.again = f, again

    def __call__(self, x):
        return self.f(x)

    def loss(self, x):
        y = self.f(x)
        return np.sum(weights(y) * y)

    def gradient(self, x):
        return weights(self(x)) @ self.jacobian(x)

    def jacobian(self, x):
        return np.stack([self._slope(self, x, e) for e in np.eye(len(x))], -1)

    def hessian(self, x):
        rows = [
            [self._corners(x, WIDE * a, WIDE * b) for b in np.eye(len(x))] for a in np.eye(len(x))
        ]
        return np.array(rows)

    def _slope(self, f, x, e):
        return (self._at(f, x + STEP * e) - self._at(f, x - STEP * e)) / (2 * STEP)

    def _corners(self, x, a, b):
        signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
        found = [s * t * self._at(self.loss, x + s * a + t * b) for s, t in signs]
        return sum(found) / (4 * WIDE**2)

    def _at(self, f, x):
        self.again()
        return f(x)


def besides(*names):
    """All of them but these."""
    return pytest.mark.parametrize("held", [n for n in ALL if n not in names], indirect=True)


@pytest.fixture(params=ALL)
def held(request):
    """Holds a transformation of a function against plain NumPy and differences, at a point."""
    found_by, wanted_by = ALL[request.param]

    def at(f, x, v=None, compile="never"):
        v = V[: len(x)] if v is None else v
        f.again()
        wanted = wanted_by(f, x, v)
        f.again()
        found = found_by(f, x, v, compile)
        for a, b in zip(flatten(found)[0], flatten(wanted)[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

    at.name = request.param
    return at


@pytest.mark.every(4)
def test_branches(held):
    """a branch on a value goes the other way, and back -> traced anew"""
    f = Function(lambda x: x**2 * x[::-1] if x[0] > 0 else np.sin(x) * x[1])
    for x in (X, -X, X + 0.5):
        held(f, x)


@pytest.mark.every(2)
def test_shapes_and_dtypes(held):
    """an argument has another shape -> traced anew"""
    f = Function(lambda x: np.cumsum(x) * x[0])
    for x in (X, X[:2], X[::-1], X[:1]):
        held(f, x)


@pytest.mark.every(4)
def test_closures_and_state(held):
    """a captured array, a captured number or an attribute of an object changes -> read anew"""

    class Model:
        rate = 2.0

    model, w, n = Model(), np.array([1.0, 2.0, 3.0]), 2
    f = Function(lambda x: np.sin(x * w) ** n * model.rate)
    held(f, X)
    w[1] = -1.0
    held(f, X)
    n, model.rate = 3, 0.5
    held(f, X)


@pytest.mark.every(2)
@besides("as_linear_operator", "jacobian_sparsity", "checkpoint")  # twice, without, or refused
def test_what_is_left_outside(held):
    """a counter goes up, and a list has what the function has left -> as after plain calls"""

    class Model:
        calls = 0

        def __init__(self):
            self.seen = []

        def __call__(self, x):
            self.calls += 1
            self.seen.append(x[0])
            return x * x[::-1]

    models = Model(), Model()
    found_by, _ = ALL[held.name]
    f, plain = map(Function, models)
    for _ in range(2):
        found_by(f, X, V, "never")
        rows = 3 if "vmap" in held.name else 1
        for _ in range(rows):
            plain(X)
        assert models[0].calls == models[1].calls
        assert len(models[0].seen) == len(models[1].seen)
        assert all(type(x) is np.float64 for x in models[0].seen)


@besides("as_linear_operator", "jacobian_sparsity", *[n for n in ALL if n.startswith("vmap of")])
def test_random_numbers(held):
    """it draws random numbers -> anew at each call, as often as plain NumPy does"""
    rng = np.random.default_rng(0)
    states = [rng.bit_generator.state]

    def again():
        rng.bit_generator.state = states[-1]

    f = Function(lambda x: np.sin(x * rng.normal(size=len(x))) * rng.uniform() * x[::-1], again)
    for _ in range(3):
        held(f, X)
        end = rng.bit_generator.state
        again()
        for _ in range(3 if held.name == "vmap" else 1):
            f(X)
        assert rng.bit_generator.state == end
        states.append(end)


@pytest.mark.every(4)
@besides("jacobian_sparsity", "sparse_jacobian", "sparse_hessian")  # of plain numbers
def test_derivatives_of_it(held):
    """a variable of an outer derivative is in the closure, and is the point, too -> tangents and
    cotangents of the two don't mix"""
    found_by, _ = ALL[held.name]

    def total(x):
        f = Function(lambda y: np.sin(y) * x * y[::-1] + x[0] * y**3)
        found = flatten(found_by(f, x * 1.0, V * x[1], "never"))[0]
        return sum(np.sum(weights(z) * z) for z in found)

    slopes = [(total(X + STEP * e) - total(X - STEP * e)) / (2 * STEP) for e in np.eye(3)]
    np.testing.assert_allclose(grad(total, compile="never")(X), slopes, rtol=1e-5, atol=1e-5)
    along = jvp(total, (X,), (V,), compile="never")[1]
    np.testing.assert_allclose(along, slopes @ V, rtol=1e-5, atol=1e-5)
