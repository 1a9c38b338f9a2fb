"""`tapegrad.trees`: nested containers, taken apart and put together."""

import dataclasses
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import tapegrad
from tapegrad import grad, trees
from tapegrad.errors import ArgumentError

Pair = namedtuple("Pair", "x y")


@dataclasses.dataclass
class Layer:
    w: object
    b: object = 2.0


class Own:
    def __init__(self, a):
        self.a = a


tapegrad.register_tree(Own, fields=("a",))


def tree():
    return {
        "z": Layer(np.ones((2, 2)), 3.0),
        "a": [1.0, np.ones(2)],
        "n": Pair(1.0, (2.0, None)),
        "o": Own(4.0),
    }


def test_leaves_paths_and_back():
    paths, leaves, structure = trees.tree_flatten(tree(), paths=True)
    assert paths == trees.tree_paths(tree()) == [
        ("a", 0), ("a", 1), ("n", 0), ("n", 1, 0), ("o", "a"), ("z", "w"), ("z", "b"),
    ]  # fmt: skip
    assert len(leaves) == len(trees.tree_leaves(tree())) == 7
    again = trees.tree_unflatten(structure, range(7))
    assert again["z"] == Layer(5, 6) and again["n"] == Pair(2, (3, None)) and again["o"].a == 4
    for path, leaf in zip(paths, leaves, strict=True):
        assert np.array_equal(trees.nested_get(tree(), path), leaf)
    with pytest.raises(ValueError):
        trees.tree_unflatten(structure, range(6))


def test_maps_over_several_trees():
    shapes = tapegrad.tree_map(np.shape, tree())
    assert shapes["z"] == Layer((2, 2), ()) and shapes["n"].y == ((), None)
    assert trees.tree_map(lambda a, b: (a, b), [1, 2], [{"q": 1}, None]) == [
        (1, {"q": 1}),
        (2, None),
    ]
    with pytest.raises(ArgumentError, match=r"nothing is at \('b',\)"):
        trees.tree_map(lambda a, b: a, {"a": 1, "b": 2}, {"a": 1})
    with pytest.raises(ArgumentError, match="another structure"):
        trees.tree_map(lambda a, b: a, {"a": 1}, [1])


def test_one_vector_and_back():
    vector, back = trees.flatten({"b": np.float32(3.0), "a": np.arange(4.0).reshape(2, 2), "n": 2})
    np.testing.assert_array_equal(vector, [0.0, 1.0, 2.0, 3.0, 3.0, 2.0])
    made = back(10 * vector)
    np.testing.assert_array_equal(made["a"], [[0.0, 10.0], [20.0, 30.0]])
    assert made["b"].dtype == np.float32 and made["n"] == 20
    assert trees.flatten({})[0].shape == (0,) and trees.flatten({})[1](np.zeros(0)) == {}
    with pytest.raises(ArgumentError, match="6 numbers"):
        back(np.zeros(5))
    with pytest.raises(ArgumentError, match="'text'"):
        trees.flatten([1.0, "text"])


def test_a_traced_vector_is_differentiated_through():
    vector, back = trees.flatten({"w": np.ones((2, 2)), "b": 3.0})

    def loss(v):
        params = back(v)
        return np.sum(params["w"] ** 2) * params["b"]

    np.testing.assert_allclose(grad(loss)(vector), [4.0, 6.0, 6.0, 6.0, 6.0])
    flat = grad(lambda p: np.sum(trees.flatten(p)[0] ** 2))
    np.testing.assert_allclose(flat({"w": np.ones(2), "b": 3.0})["b"], 6.0)


def test_parts_are_read_and_replaced():
    whole = tree()
    changed = trees.nested_set(whole, ("n", "y", 0), 7.0)
    assert changed["n"] == Pair(1.0, (7.0, None)) and whole["n"].y[0] == 2.0
    assert trees.nested_set(whole, ("z", "b"), 5.0)["z"].b == 5.0 and whole["z"].b == 3.0
    assert trees.nested_set(whole, ("o", "a"), 5.0)["o"].a == 5.0 and whole["o"].a == 4.0
    assert trees.nested_set(whole, (), 1) == 1 and trees.nested_get(whole, ()) is whole
    ordered = trees.nested_set(OrderedDict(b=1, a=2), ("a",), 3)
    assert list(ordered.items()) == [("b", 1), ("a", 3)] and type(ordered) is OrderedDict


@pytest.mark.parametrize("path", [("q",), ("a", 5), ("z", "q"), ("a", 0, 1), ("n", 1, 1, 0)])
def test_paths_that_lead_nowhere(path):
    for call in (trees.nested_get, lambda whole, at: trees.nested_set(whole, at, 1)):
        with pytest.raises(ArgumentError, match="has no part"):
            call(tree(), path)


def test_deep_copies_share_no_array():
    whole = tree()
    copied = trees.deep_copy(whole)
    copied["z"].w[...] = 0.0
    copied["a"][1][...] = 0.0
    assert whole["z"].w.all() and whole["a"][1].all()
