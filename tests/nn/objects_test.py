"""Objects that hold their parameters become functions of these."""

from __future__ import annotations

import functools
import types
from typing import NamedTuple

import numpy as np
import pytest

from tapegrad import grad, gradcheck, hvp, jit, jvp, nn, value_and_grad, vmap
from tapegrad.errors import ArgumentError
from tapegrad.nn import functionalize
from tapegrad.trees import tree_map

MODES = pytest.mark.parametrize("mode", ["never", "always"])


class Affine:
    def __init__(self, n, m, rng):
        self.W, self.b = rng.normal(size=(n, m)), np.zeros(m)

    def forward(self, x):
        return x @ self.W + self.b


class Network:
    def __init__(self, rng):
        self.layers = [Affine(3, 4, rng), Affine(4, 2, rng)]
        self.scales = {"last": np.array([1.0, 2.0])}
        self.pair = (np.ones(2), "text")
        self.power = 2
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        h = np.tanh(self.layers[0].forward(x))
        return self.layers[1].forward(h) ** self.power * self.scales["last"] + self.pair[0]


class Distance:
    def forward(self, out, target):
        return np.mean((out - target) ** 2)


@pytest.fixture
def network():
    return Network(np.random.default_rng(0))


def plain(params, x):
    h = np.tanh(x @ params["layers.0.W"] + params["layers.0.b"])
    out = (h @ params["layers.1.W"] + params["layers.1.b"]) ** 2
    return out * params["scales.last"] + params["pair.0"]


X = np.linspace(-1, 1, 15).reshape(5, 3)


@MODES
def test_a_nested_object_is_a_function_of_its_arrays(network, mode):
    f, params = functionalize(network)
    layers = [f"layers.{k}.{name}" for k in (0, 1) for name in "Wb"]
    assert sorted(params) == sorted([*layers, "scales.last", "pair.0"])
    np.testing.assert_array_equal(f(params, X), network.forward(X))
    other = tree_map(lambda w: w + 0.1, params)
    np.testing.assert_allclose(f(other, X), plain(other, X), rtol=1e-15)
    found, wanted = (
        value_and_grad(lambda p, x, f=f: np.sum(f(p, x)), compile=mode)(other, X)
        for f in (f, plain)
    )
    assert found[0] == pytest.approx(wanted[0], rel=1e-14)
    for name, slope in wanted[1].items():
        np.testing.assert_allclose(found[1][name], slope, rtol=1e-12, atol=1e-13)


def test_other_transformations(network):
    f, params = functionalize(network)
    ts = tree_map(np.ones_like, params)

    def total(g):
        return lambda p: np.sum(g(p, X))

    found, wanted = (hvp(total(g))(params, ts) for g in (f, plain))
    for name in params:
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-11)
    pushed = [jvp(lambda p, g=g: g(p, X), (params,), (ts,))[1] for g in (f, plain)]
    np.testing.assert_allclose(*pushed, rtol=1e-12)
    rows = vmap(lambda x: f(params, x))(X)
    np.testing.assert_allclose(rows, f(params, X), rtol=1e-13)


def test_the_object_and_the_parameters_stay_as_they_are(network):
    f, params = functionalize(network)
    before = tree_map(np.copy, params)
    f(params, X)
    params["scales.last"][0] = 5
    assert network.scales["last"][0] == 1 and network.calls == 0
    with pytest.raises(ValueError, match="matmul"):
        f(params, np.ones((5, 7)))
    with pytest.raises(ValueError, match="matmul"):
        grad(lambda p: np.sum(f(p, np.ones((5, 7)))))(params)
    assert network.calls == 0 and type(network.layers[0].W) is np.ndarray
    params["scales.last"][0] = 1
    np.testing.assert_array_equal(f(params, X), network.forward(X))
    for name, was in before.items():
        np.testing.assert_array_equal(params[name], was)


@MODES
def test_what_is_no_parameter_is_read_at_each_call(network, mode):
    f, params = functionalize(network)
    step = grad(lambda p: np.sum(f(p, X)), compile=mode)
    first = step(params)["layers.1.b"]
    network.power = 3
    g = plain_of_power(3)
    np.testing.assert_allclose(step(params)["layers.1.b"], grad(g)(params)["layers.1.b"])
    assert not np.allclose(first, step(params)["layers.1.b"])


def plain_of_power(power):
    def g(p):
        h = np.tanh(X @ p["layers.0.W"] + p["layers.0.b"])
        out = (h @ p["layers.1.W"] + p["layers.1.b"]) ** power
        return np.sum(out * p["scales.last"] + p["pair.0"])

    return g


def test_criteria_and_objects_without_parameters():
    f, params = functionalize(Distance())
    assert params == {}
    out, target = np.array([1.0, 2.0]), np.array([3.0, 2.5])
    assert f({}, out, target) == np.mean((out - target) ** 2)
    np.testing.assert_allclose(grad(f, argnums=1)({}, out, target), out - target)


def test_an_object_that_is_called():
    class Scaled:
        def __init__(self):
            self.w = np.array([1.0, 2.0])

        def __call__(self, x, *, shift=0.0):
            return self.w * x + shift

    f, params = functionalize(Scaled())
    np.testing.assert_array_equal(f(params, 3.0, shift=1.0), [4.0, 7.0])


def test_a_package_makes_functions_of_its_classes():
    layers = types.ModuleType("layers")
    layers.Affine, layers.Distance, layers.size = Affine, Distance, 3
    space = functionalize(layers)
    f, params = space.Affine(3, 2, np.random.default_rng(0))
    loss, _ = space.Distance()
    assert sorted(params) == ["W", "b"] and space.size == 3
    slopes = grad(lambda p: loss({}, f(p, X), 0.0))(params)
    np.testing.assert_allclose(slopes["W"], X.T @ f(params, X) / 5)
    with pytest.raises(AttributeError):
        _ = space.nothing


def test_an_array_in_two_places_is_one_parameter():
    class Tied:
        def __init__(self):
            self.W = np.eye(2) + 0.5
            self.again = [self.W]

        def forward(self, x):
            return x @ self.W @ self.again[0].T

    f, params = functionalize(Tied())
    assert [*params] == ["W"]
    assert gradcheck(lambda w: f({"W": w}, X[:, :2]), (params["W"],))


def test_slots_tuples_methods_and_partials():
    class Pair(NamedTuple):
        a: np.ndarray
        n: int

    class Slotted:
        __slots__ = ("act", "pair", "part")

        def __init__(self):
            self.pair = Pair(np.array([2.0]), 3)
            self.act = Affine(1, 1, np.random.default_rng(0)).forward
            self.part = functools.partial(np.multiply, np.array([3.0]))

        def forward(self, x):
            return self.part(self.act(self.pair.a * self.pair.n * x))

    module = Slotted()
    f, params = functionalize(module)
    x = np.array([[0.5]])
    np.testing.assert_array_equal(f(params, x), module.forward(x))
    assert len(params) == 4
    assert gradcheck(lambda p: f(p, x), (params,))


class Running:
    def __init__(self):
        self.mean, self.w = np.zeros(2), np.ones(2)

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * np.mean(x, axis=0)
        return (x - self.mean) * self.w


@MODES
def test_state_comes_back_where_it_is_named(mode):
    module, x = Running(), np.array([[1.0, 2.0], [3.0, 6.0]])
    f, params, state = functionalize(module, state="mean")
    assert [*params] == ["w"] and [*state] == ["mean"]
    step = jit(f, compile=mode)
    for k in (1, 2, 3):
        out, state = step(params, state, x)
        np.testing.assert_allclose(state["mean"], (1 - 0.9**k) * np.array([2.0, 4.0]))
    np.testing.assert_allclose(out, x - state["mean"])
    assert not module.mean.any()
    slopes = grad(lambda p: np.sum(f(p, state, x)[0]), compile=mode)(params)
    np.testing.assert_allclose(slopes["w"], np.sum(x - (0.9 * state["mean"] + [0.2, 0.4]), axis=0))


def test_what_cannot_be_is_refused(network):
    f, params = functionalize(network)
    less = {name: w for name, w in params.items() if name != "pair.0"}
    with pytest.raises(ArgumentError, match=r"Network has 'pair\.0', and the parameters passed"):
        f(less, X)
    with pytest.raises(ArgumentError, match="Network has no 'more'"):
        f({**params, "more": X}, X)
    for what in (3, Network, np.ones(3), lambda x: x):
        with pytest.raises(ArgumentError, match="needs an object"):
            functionalize(what)
    with pytest.raises(ArgumentError, match="has no attribute nothing"):
        functionalize(network, state=["nothing"])
    with pytest.raises(ArgumentError, match="buffers of a PyTorch module"):
        functionalize(network, state=True)


def test_a_function_that_reaches_the_object_by_itself_is_refused():
    class Closed:
        def __init__(self):
            self.inner = Affine(3, 2, np.random.default_rng(0))
            inner = self.inner
            self.forward = lambda x: inner.forward(x)

    with pytest.raises(ArgumentError, match="Write a method"):
        functionalize(Closed())


def test_it_is_among_the_names():
    assert nn.functionalize is functionalize
