"""What the entry of a compiled variant takes apart and puts together besides containers."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import ArgumentError
from tapegrad.runtime.derived import derived
from tapegrad.runtime.transformations import Into
from tapegrad.tracing.memory.aliasing import lie_apart


def test_named_tuples_are_taken_apart_by_generated_code():
    """As the states of optimisers are; one of another class, or with another part, is a miss."""
    Pair = namedtuple("Pair", "a b")
    Other = namedtuple("Other", "a b")
    g = tg.jit(lambda p, x: Pair(p.a * x, {"c": p.b["c"] - x}), compile="always")
    x = np.ones(3)
    for k in range(4):
        found = g(Pair(2.0 * x, {"c": k * x}), x)
        assert type(found) is Pair
        np.testing.assert_array_equal(found.b["c"], (k - 1) * x)
    assert g.front.fast_hits == 3
    np.testing.assert_array_equal(g(Other(3 * x, {"c": x}), x).a, 3 * x)
    np.testing.assert_array_equal(g(Pair(x[:2], {"c": x[:2]}), x[:2]).a, x[:2])
    assert g.cache_info().traces == 3


@dataclass
class Layer:
    w: np.ndarray
    b: np.ndarray
    scale: int = field(default=2, init=False)


class Point(NamedTuple):
    x: np.ndarray
    y: np.ndarray


class Marked(Point):
    """Instances may hold more than the fields."""


def test_dataclasses_are_taken_apart_by_generated_code():
    """What an instance holds besides its branches has to be as it was, and goes where it goes."""

    def f(layer, x):
        return dataclasses.replace(layer, w=layer.w * x, b=layer.b + layer.scale), layer

    g = tg.jit(f, compile="always")
    x = np.ones(3)
    for k in range(4):
        made, same = g(Layer(k * x, x), x)
        assert type(made) is type(same) is Layer and made.scale == 2
        np.testing.assert_array_equal(made.w, k * x)
        np.testing.assert_array_equal(made.b, 3 * x)
    assert g.front.fast_hits == 3
    other = Layer(x, x)
    other.scale = 5
    assert g(other, x)[0].b[0] == 6 and g(other, x)[1].scale == 5
    noted = Layer(x, x)
    noted.name = "first"
    assert g(noted, x)[1].name == "first" and not hasattr(g(Layer(x, x), x)[1], "name")


def test_named_tuples_with_more_to_them_are_taken_apart_by_generated_code():
    g = tg.jit(lambda p: Marked(p.x * getattr(p, "by", 1.0), p.y), compile="always")
    x = np.ones(3)
    for _ in range(3):
        assert type(g(Marked(x, x))) is Marked
    assert g.front.fast_hits == 2
    p = Marked(x, x)
    p.by = 3.0
    np.testing.assert_array_equal(g(p).x, 3 * x)
    np.testing.assert_array_equal(g(Marked(x, x)).x, x)


@pytest.mark.parametrize("compile", ["always", "never"])
def test_no_result_is_written_over_an_array_from_outside(compile):
    """Nor by the calls that generated code answers."""
    c = np.arange(4.0)
    g = derived(lambda out, x: (x * c,), Into(into=((0, 0),)), compile)
    for _ in range(40):
        g(np.empty(4), np.ones(4))
    assert g.front.fast_hits
    with pytest.raises(ArgumentError, match="shares memory with one that the function reads"):
        g(c, np.ones(4))
    np.testing.assert_array_equal(c, np.arange(4.0))


def test_where_arrays_lie_is_looked_at_only_if_two_may_be_of_one_memory():
    whole, other = np.zeros((4, 3)), np.zeros(3)
    buffer = np.frombuffer(bytearray(24))
    assert lie_apart([whole, other]) and lie_apart([whole[1:, ::2], other[:2]])
    assert lie_apart([np.zeros(6).reshape(2, 3).T, whole])
    assert not lie_apart([whole, whole]) and not lie_apart([whole[:2], whole[2:]])
    assert not lie_apart([whole, np.broadcast_to(whole[0], (2, 3))])
    assert not lie_apart([buffer, np.frombuffer(buffer)])  # whose owners NumPy doesn't know
    assert not lie_apart([np.lib.stride_tricks.as_strided(other, (2, 2), (8, 8)), whole])
