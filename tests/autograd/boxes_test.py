"""Boxes that programs make by hand, with a tape that is walked back or forwards."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import tapegrad
import tapegrad.autograd.numpy as anp
from tapegrad.autograd.core import JVPNode, VJPNode, backward_pass
from tapegrad.autograd.extend import defvjp, primitive
from tapegrad.autograd.tracer import isbox, new_box, trace, trace_stack
from tapegrad.errors import ArgumentError, TraceError, UnsupportedError
from tapegrad.testing import gradcheck
from tapegrad.tracing.recording.trace import running

X = np.array([[0.5, 1.0], [2.0, -1.0], [0.3, 0.7]])


def columns(x):
    """Of each row three numbers, with a branch and an array that is joined of traced numbers."""
    first = anp.sin(x[:, 0]) * x[:, 1]
    second = x[:, 1] ** 2 if x[0, 0] > 0 else x[:, 1]
    return anp.column_stack([first, second, anp.sum(x) * anp.array([1.0, x[0, 0], 2.0])])


def boxed(x, node=None):
    return new_box(x, 0, VJPNode.new_root() if node is None else node)


def test_back_from_any_value():
    start = boxed(X)
    end = columns(start)
    np.testing.assert_array_equal(end._value, columns(X))
    assert isbox(end) and not isbox(end._value)
    for ct in np.random.default_rng(0).normal(size=(3, 3, 3)):
        expected = tapegrad.vjp(columns, X)[1](ct)[0]
        np.testing.assert_allclose(backward_pass(ct, end._node), expected, rtol=1e-13)
    np.testing.assert_array_equal(backward_pass(X, start._node), X)
    assert gradcheck(lambda x: np.sum(columns(x)), X)


def test_forwards():
    t = np.cos(X)
    start = boxed(X, JVPNode.new_root(t))
    expected = tapegrad.jvp(columns, (X,), (t,))[1]
    np.testing.assert_allclose(columns(start)._node.g, expected, rtol=1e-13)
    assert start._node.g is t


def test_cotangents_in_boxes_give_values_in_boxes():
    """Those of several tapes meet, as they do where all are of level 0."""
    end = columns(boxed(X))
    rows = []
    for j in range(3):
        ct = np.zeros((3, 3))
        ct[:, j] = 1
        rows.append(backward_pass(boxed(ct), end._node))
    found = anp.stack(rows, axis=1)._value
    pull = tapegrad.vjp(columns, X)[1]
    for j in range(3):
        ct = np.zeros((3, 3))
        ct[:, j] = 1
        np.testing.assert_allclose(found[:, j], pull(ct)[0], rtol=1e-13)


def test_traces_of_functions():
    value, node = trace(VJPNode.new_root(), lambda x: x**3, 2.0)
    assert value == 8 and backward_pass(1.0, node) == 12
    with pytest.warns(UserWarning, match="independent"):
        assert trace(VJPNode.new_root(), lambda x: 5.0, 2.0) == (5.0, None)
    with trace_stack.new_trace() as level:
        assert new_box(2.0, level, VJPNode.new_root()) == 2


def test_rules_of_users_count():
    @primitive
    def double(x):
        return 2 * x

    defvjp(double, lambda ans, x: lambda g: 7 * g)
    assert backward_pass(1.0, double(boxed(3.0))._node) == 7


def test_derivatives_of_functions_that_reach_a_box():
    slope = tapegrad.grad(lambda x: x**2 * b**3)
    for x, value in ((3.0, 2.0), (4.0, 2.0), (4.0, 5.0), (3.0, 2.0)):
        b = boxed(value)
        found = slope(x)
        assert found._value == 2 * x * value**3
        assert backward_pass(1.0, found._node) == 6 * x * value**2


def test_it_ends_with_the_last_value():
    """Until then calls look for its values among their arguments."""
    gc.collect()
    before = len(running)
    end = columns(boxed(X))
    backward_pass(np.ones((3, 3)), end._node)
    assert len(running) == before + 1
    del end
    gc.collect()
    assert len(running) == before


def test_writes_in_place_leave_the_places_before():
    """As programs write `f *= x`, to arrays that they have made."""
    start = boxed(X)
    y = start * 2.0
    before = y._node, y._value
    y *= start
    y[:, 0] += 3.0 * start[:, 1]
    np.testing.assert_array_equal(before[1], 2 * X)
    np.testing.assert_allclose(y._value, 2 * X**2 + 3 * X[:, 1:] * [1, 0])
    ct = np.cos(X)
    np.testing.assert_allclose(backward_pass(ct, before[0]), 2 * ct)
    expected = 4 * X * ct + 3 * ct[:, :1] * [0, 1]
    np.testing.assert_allclose(backward_pass(ct, y._node), expected)
    tangent = boxed(X, JVPNode.new_root(ct))
    z = tangent + 1.0
    z *= tangent
    np.testing.assert_allclose(z._node.g, (2 * X + 1) * ct)


def test_what_a_box_does_not_follow_is_an_error():
    """What a function that is traced does with such values isn't known, nor are writes: the program
    may have taken what was there before. An array that is used is read when it is walked."""
    with pytest.raises(UnsupportedError, match="inside of a function"):
        tapegrad.grad(lambda x: np.sum(boxed(x)))(X)
    with pytest.raises(UnsupportedError, match="make_vjp"):
        boxed(boxed(X))
    y = boxed(X)
    with pytest.raises(UnsupportedError, match="written to in place"):
        y[0, 0] = 1.0
    node = VJPNode.new_root()
    boxed(X, node)
    for wrong in (node, None):
        with pytest.raises(ArgumentError, match="new root"):
            new_box(X, 0, wrong)
    with pytest.raises(ArgumentError, match="a str can't be boxed"):
        boxed("text")
    a = np.array([1.0, 2.0])
    end = boxed(X) * a
    a[0] = 5.0
    with pytest.raises(TraceError, match="was written to"):
        backward_pass(X, end._node)
    with pytest.raises(AttributeError, match="_node"):
        tapegrad.grad(lambda x: x._node)(2.0)
