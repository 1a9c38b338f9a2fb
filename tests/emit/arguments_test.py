"""Trees in generated code, against trees as tracing takes them."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import pytest

from tapegrad.backends.source.arguments import is_plain_tree, is_tree, put_together, take_apart
from tapegrad.core.trees import flatten


@dataclass
class Layer:
    w: Any
    b: Any


@dataclass
class Counting:
    w: Any
    calls: int = field(default=0, init=False)


Pair = namedtuple("Pair", "a b")

TREES = {
    "a number": 1.0,
    "nothing": (),
    "one": (1.0,),
    "keys out of order": {"b": 1.0, "a": [2.0, 3.0], "c": {}},
    "numbered": {10: 1.0, 9: (2.0, [])},
    "keys of two types": {"b": 1.0, 2: 2.0, "a": 3.0},
    "named": [Pair(1.0, (2.0,)), Pair([3.0], 4.0)],
    "classes": {"layers": [Layer(1.0, {"x": 2.0}), Layer(Pair(3.0, 4.0), 5.0)]},
}


@pytest.mark.parametrize("name", TREES)
def test_trees_are_taken_apart_as_tracing_does_and_put_together_again(name):
    tree = TREES[name]
    said = []

    def enter(place, x):
        if is_tree(x):
            return place
        said.append(place)
        return None

    take_apart("tree", tree, enter)
    assert [eval(text, {"tree": tree}) for text in said] == flatten(tree)[0]
    leaves = iter(said)
    text = put_together(
        tree, lambda x: None if is_tree(x) else next(leaves), lambda kind: kind.__name__
    )
    made = eval(text, {"tree": tree, "Pair": Pair, "Layer": Layer})
    assert made == tree and repr(made) == repr(tree)  # the order of keys, too
    assert next(leaves, None) is None


def test_a_tree_goes_on_under_another_name():
    said = []

    def enter(place, x):
        said.append(place)
        return f"a{len(said)}" if is_plain_tree(x) else None

    take_apart("args[0]", {"w": [1.0, (2.0,)]}, enter)
    assert said == ["args[0]", "a1['w']", "a2[0]", "a2[1]", "a4[0]"]


def test_what_holds_more_than_its_parts_is_no_tree():
    assert not any(
        map(is_tree, (Counting(1.0), OrderedDict(a=1.0), {(1, 2): 1.0}, Layer, 1.0, None))
    )
    assert not any(map(is_plain_tree, (Layer(1.0, 2.0), Pair(1.0, 2.0), {True: 1.0})))
