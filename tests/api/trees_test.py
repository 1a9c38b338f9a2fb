"""Arguments are trees: gradients have their structure."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core.trees import flatten, path_name, unflatten
from tapegrad.errors import ArgumentError

A, B = np.array([1.0, 2.0]), np.array([[3.0], [4.0]])

Layer = namedtuple("Layer", "weights bias")


@dataclass
class Model:
    first: Any
    second: Any


@dataclass(frozen=True)
class Frozen:
    scale: np.ndarray
    name: str = "frozen"
    extra: list = field(default_factory=list)


def leaves_of(x: Any) -> list[np.ndarray]:
    """The arrays of the containers of this file, in an order of their own."""
    if isinstance(x, dict):
        return [leaf for key in sorted(x) for leaf in leaves_of(x[key])]
    if isinstance(x, (list, tuple)):
        return [leaf for element in x for leaf in leaves_of(element)]
    if isinstance(x, Model):
        return leaves_of([x.first, x.second])
    return [x]


def loss(tree: Any) -> Any:
    """Each array has a gradient of its own: k * x for the k-th."""
    return sum(k * (x * x).sum() / 2 for k, x in enumerate(leaves_of(tree), start=1))


TREES = {
    "array": A,
    "list": [A, B],
    "tuple": (A, B),
    "tuple of one": (A,),
    "dict": {"w": A, "b": B},
    "dict of integers": {2: A, 1: B},
    "named tuple": Layer(A, B),
    "dataclass": Model(A, B),
    "nested": {"layers": [Layer(A, (B, A)), Model({"x": B}, [A])], "out": (A, {"b": B})},
    "ordered dict": OrderedDict(b=A, a=B),
    "default dict": defaultdict(list, b=A, a=B),
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_a_gradient_has_the_structure_of_its_argument(tree):
    gradient = tg.grad(loss, compile="never")(tree)
    assert type(gradient) is type(tree)
    assert flatten(gradient)[1] == flatten(tree)[1]
    for k, (g, x) in enumerate(zip(leaves_of(gradient), leaves_of(tree), strict=True), start=1):
        np.testing.assert_array_equal(g, k * x)


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_a_tree_is_put_together_as_it_was(tree):
    leaves, structure = flatten(tree)
    again = unflatten(structure, leaves)
    assert type(again) is type(tree)
    assert [id(x) for x in leaves_of(again)] == [id(x) for x in leaves_of(tree)]


def test_empty_containers_stay_where_they_are():
    tree = {"a": A, "none": [], "nothing": None, "more": {}}
    gradient = tg.grad(lambda t: (t["a"] ** 2).sum(), compile="never")(tree)
    assert gradient.keys() == tree.keys()
    assert (gradient["none"], gradient["nothing"], gradient["more"]) == ([], None, {})
    np.testing.assert_array_equal(gradient["a"], 2 * A)


def test_the_function_gets_the_containers_it_was_given():
    def f(model, layer):
        assert isinstance(model, Model)
        assert isinstance(layer, Layer)
        return (model.first * layer.weights).sum()

    gradient = tg.grad(f, compile="never")(Model(A, [B]), Layer(A, None))
    np.testing.assert_array_equal(gradient.first, A)
    np.testing.assert_array_equal(gradient.second[0], np.zeros((2, 1)))


def test_a_dataclass_may_be_frozen_and_hold_settings():
    def f(x, settings):
        assert settings.name == "frozen"
        return (x * settings.scale).sum()

    gradient = tg.grad(f, compile="never")(A, Frozen(np.array([3.0, 5.0])))
    np.testing.assert_array_equal(gradient, [3.0, 5.0])


@dataclass
class Table:
    """Notes its length, and doubles what it is given: once."""

    entries: Any
    count: int = field(init=False)

    def __post_init__(self):
        self.entries = np.asarray(self.entries) * 2.0
        self.count = len(self.entries)


def test_a_dataclass_is_put_together_without_its_post_init():
    table = Table(A)
    value, gradient = tg.value_and_grad(lambda t: (t.entries**2).sum() / t.count, compile="never")(
        table
    )
    assert value == ((2 * A) ** 2).sum() / 2
    np.testing.assert_array_equal(gradient.entries, 2 * A)
    assert gradient.count == 2


def network(p, x):
    y = p["W"] @ x * p["n"]
    y = np.tanh(y) if p["act"] == "tanh" else y
    return np.sum(y[p["rows"]]) if p["sum"] else np.max(y)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_leaves_without_a_derivative(compile):
    """Integers, booleans, strings and objects in an argument with floats are read as they are at
    each call, and None stands in their place in the gradient."""
    W, x = np.array([[0.1, 0.2], [0.3, -0.1]]), np.array([1.0, 2.0])
    rest = {"n": 2, "act": "tanh", "rows": np.array([0, 1, 1]), "sum": True, "f": np.sin}
    df = tg.value_and_grad(network, compile=compile)
    changes = [{}, {"n": 3}, {"rows": np.array([1, 1, 1])}, {"act": "none"}, {"sum": False}, {}]
    for change in changes:
        p = {"W": W, **rest, **change}
        value, gradient = df(p, x)
        assert value == pytest.approx(network(p, x), rel=1e-14)
        assert {k: v for k, v in gradient.items() if k != "W"} == dict.fromkeys(rest)
        for at in np.ndindex(2, 2):
            step = np.zeros((2, 2))
            step[at] = 1e-6
            above, below = (network({**p, "W": W + h}, x) for h in (step, -step))
            assert gradient["W"][at] == pytest.approx((above - below) / 2e-6, abs=1e-8)
    assert tg.gradcheck(network, ({"W": W, **rest}, x))
    outer = tg.grad(lambda x: np.sum(tg.grad(network)({"W": W, **rest}, x)["W"]), compile=compile)
    assert tg.gradcheck(lambda x: tg.grad(network)({"W": W, **rest}, x)["W"], x)
    assert outer(x).shape == (2,)
    pulled = tg.vjp(network, {"W": W, **rest}, x)[1](1.0)[0]
    assert {k for k, v in pulled.items() if v is None} == {*rest}


@pytest.mark.parametrize("tree", [{"n": 2, "name": "net"}, {"rows": np.array([1])}, [True]])
def test_an_argument_without_any_derivative(tree):
    with pytest.raises(ArgumentError, match=r"tree\[.*\] is .*, (which has|and there is) no deriv"):
        tg.grad(lambda tree: 1.0, compile="never")(tree)


def test_results_may_be_trees_too():
    def f(x):
        return {"double": 2 * x, "pair": (x.sum(), "text"), "none": None}

    result = tg.jit(f, compile="never")(A)
    np.testing.assert_array_equal(result["double"], 2 * A)
    assert result["pair"] == (3.0, "text")
    assert result["none"] is None


def test_inputs_are_named_after_their_place():
    _, made = tg.trace(
        lambda params, y: params["W"] * params["layers"][0]["W"] + y,
        {"W": 1.0, "layers": [{"W": 2.0}]},
        3.0,
    )
    assert made.names == ("params_W", "params_layers_0_W", "y")
    assert path_name(("größe", 1)) == "größe_1"
    assert path_name((0, "a b")) == "x0_a_b"
