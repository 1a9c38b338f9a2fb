"""Objects that hold their parameters, as functions of these."""

from __future__ import annotations

import functools
import types

import numpy as np
import pytest

from tapegrad import gradcheck, value_and_grad
from tapegrad.errors import ArgumentError
from tapegrad.nn import functionalize

MODES = pytest.mark.parametrize("mode", ["never", "always"])


class Affine:
    def __init__(self, n, m):
        rng = np.random.default_rng(n)
        self.W, self.b = rng.normal(size=(m, n)), np.zeros(m)
        self.scale, self.act, self.last = 2.0, np.tanh, None

    def forward(self, x):
        self.last = x
        return self.act(self.W @ x + self.b) * self.scale


class Slotted:
    __slots__ = ("k", "w")

    def __init__(self):
        self.w, self.k = np.ones(2), 3

    def __call__(self, x):
        return self.k * self.w * x


class Net:
    def __init__(self):
        self.layers = [Affine(3, 4), Affine(4, 2)]
        self.tied = self.layers[0]
        self.options = {"a": np.ones(2), "mode": "x"}
        self.counts, self.calls = np.arange(2), 0
        self.mean, self.training = np.zeros(2), True
        self.bound = self.twice
        self.part = functools.partial(self.shifted, shift=1.0)
        self.pair = (np.ones(1), 3)
        self.slotted = Slotted()

    def twice(self, x):
        return 2 * x * self.options["a"]

    def shifted(self, x, shift):
        return x + shift * self.mean

    def __call__(self, x):
        for layer in self.layers:
            x = layer.forward(x)
        self.calls += 1
        self.counts += 1
        self.options["a"] *= 2.0
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x
        return self.slotted(self.part(self.bound(x) * self.pair[0]))


PATHS = ["layers.0.W", "layers.0.b", "layers.1.W", "layers.1.b", "options.a", "pair.0", "slotted.w"]
X = np.ones(3)


def loss(f):
    def of(params, state, x):
        out, state = f(params, state, x)
        return np.sum(out**2), state

    return of


@MODES
def test_a_function_of_the_parameters(mode):
    f, params, state = functionalize(Net(), state=["mean", "calls"])
    assert [*params] == PATHS
    df = value_and_grad(loss(f), has_aux=True, compile=mode)
    (value, after), _ = df(params, state, X)
    net = Net()
    np.testing.assert_allclose(value, np.sum(net(X) ** 2), rtol=1e-13)
    np.testing.assert_allclose(after["mean"], net.mean)
    assert after["calls"] == 1 and state["calls"] == 0
    assert gradcheck(lambda p: loss(f)(p, state, X)[0], params)


@MODES
def test_neither_the_object_nor_the_parameters_change(mode):
    net = Net()
    f, params = functionalize(net)
    kept = {path: x.copy() for path, x in params.items()}
    f(params, X)
    for _ in range(2):
        value_and_grad(lambda p: np.sum(f(p, X)), compile=mode)(params)
    with pytest.raises(ValueError, match="matmul"):
        f(params, np.ones(7))
    with pytest.raises(ValueError, match="matmul"):
        value_and_grad(lambda p: np.sum(f(p, np.ones(7))), compile=mode)(params)
    assert (net.calls, net.layers[0].last, net.counts.tolist()) == (0, None, [0, 1])
    assert net.bound.__self__ is net and net.tied is net.layers[0]
    for path, x in params.items():
        np.testing.assert_array_equal(x, kept[path])
    params["options.a"][:] = 7
    assert net.options["a"].tolist() == [1, 1]


@MODES
def test_what_else_the_object_has_is_as_it_is_now(mode):
    net = Net()
    f, params, state = functionalize(net, state="mean")
    df = value_and_grad(loss(f), has_aux=True, compile=mode)
    changes = [
        lambda: setattr(net.layers[0], "scale", 5.0),
        lambda: setattr(net.tied, "act", np.sin),
        lambda: setattr(net, "training", False),
        lambda: setattr(net.slotted, "k", 4),
        lambda: net.layers.append(net.layers.pop()),
        lambda: setattr(net, "pair", (net.pair[0], 4)),
    ]
    for change in changes:
        df(params, state, X)
        change()
        value = df(params, state, X)[0][0]
        np.testing.assert_allclose(value, loss(f)(params, state, X)[0], rtol=1e-13)


def test_a_part_in_two_places_is_one_parameter():
    class Tied:
        def __init__(self):
            self.first = self.second = Affine(2, 2)
            self.w = self.first.W

        def forward(self, x):
            assert self.first is self.second and self.w is self.first.W
            return self.second.forward(self.first.forward(x))

    f, params = functionalize(Tied())
    assert [*params] == ["first.W", "first.b"]
    assert gradcheck(lambda p: f(p, np.ones(2)), params)


def test_a_criterion_and_an_object_that_points_to_itself():
    class Loss:
        def __init__(self):
            self.itself, self.unset = self, None

        def forward(self, input, target):
            return np.mean((input - target) ** 2)

    f, params = functionalize(Loss())
    assert params == {} and f(params, np.ones(2), target=np.zeros(2)) == 1.0

    class Child:
        def __init__(self, parent):
            self.parent = parent

        def forward(self, x):
            return self.parent.w * x

    class Parent:
        def __init__(self):
            self.w, self.child = np.ones(2), Child(self)

        def forward(self, x):
            return self.child.forward(x)

    f, params = functionalize(Parent())
    assert f({"w": np.full(2, 3.0)}, 2.0).tolist() == [6, 6]


def test_draws_come_from_the_objects_own_generator():
    class Noisy:
        def __init__(self):
            self.w, self.rng = np.ones(2), np.random.default_rng(0)

        def forward(self, x):
            return self.w * x + self.rng.normal(size=2)

    noisy, same = Noisy(), np.random.default_rng(0)
    f, params = functionalize(noisy)
    for _ in range(3):
        value, _ = value_and_grad(lambda p: np.sum(f(p, 1.0)))(params)
        assert value == pytest.approx(np.sum(1 + same.normal(size=2)))


def test_a_package_makes_functions():
    layers, inner = types.ModuleType("layers"), types.ModuleType("layers.inner")
    layers.Affine, layers.inner, layers.pi, layers.np, inner.Slotted = Affine, inner, 3, np, Slotted
    functions = functionalize(layers)
    f, params = functions.Affine(3, 2)
    assert [*params] == ["W", "b"] and f(params, X).shape == (2,)
    assert [*functions.inner.Slotted()[1]] == ["w"]
    assert functions.pi == 3 and functions.np is np and "Affine" in dir(functions)
    assert repr(functions) == "<functions of layers>"
    with pytest.raises(AttributeError):
        functions.nothing  # noqa: B018


def test_what_cannot_be_is_refused():
    with pytest.raises(ArgumentError, match="forward or __call__"):
        functionalize(3)
    for what in (Affine, loss):
        with pytest.raises(ArgumentError, match="Pass an instance"):
            functionalize(what)
    with pytest.raises(ArgumentError, match="no attribute nothing"):
        functionalize(Net(), state="nothing")
    with pytest.raises(ArgumentError, match="buffers of a PyTorch module"):
        functionalize(Net(), state=True)
    f, params = functionalize(Affine(3, 2))
    with pytest.raises(ArgumentError, match="Affine has 'b', and the parameters passed for it"):
        f({"W": params["W"]}, X)
    with pytest.raises(ArgumentError, match="Affine has no 'c'"):
        f({**params, "c": 1.0}, X)

    class Reaching(Affine):
        def __init__(self):
            super().__init__(3, 2)
            self.again = lambda x: self.W @ x

    with pytest.raises(ArgumentError, match="again is a function whose closure holds an object"):
        functionalize(Reaching())
