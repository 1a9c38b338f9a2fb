"""Loops in loops: what inner rounds update stays where it is, in outer rounds too."""

from __future__ import annotations

import numpy as np
import pytest
from tests.loops.derivatives_test import STEP, f8, first, loss, tape_of, whole

from tapegrad import grad, jit, scan, trace
from tapegrad.ir.tape import Literal
from tapegrad.ir.updates import kept_in_place
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.windows import AddWindow

N = 24


def grid(x):
    """Each element of a table is made of two others."""
    a = x * 1.0
    for i in range(1, N):
        for j in range(1, N):
            a[i, j] = 0.3 * a[i - 1, j] + np.tanh(a[i, j - 1])
    return np.sum(a * a)


def two_loops(x):
    """Two loops in a round, and a statement between them."""
    a = x * 1.0
    for i in range(1, N):
        for j in range(N):
            a[i, j] = a[i, j] + 0.5 * a[i - 1, j]
        a[i, 0] = np.sin(a[i, 0])
        for j in range(1, N):
            a[i, j] = a[i, j] * np.cos(a[i, j - 1])
    return np.sum(a)


def row_before(x):
    """Inner rounds read a row as it was before them, a view of what they write to."""
    a = x * 1.0

    def outer(a, _):
        row = a[0]

        def inner(c, v):
            b, s = c
            b[0] = b[0] * 0.5 + b[1]
            return (b, s + np.sum(row) * v), None

        (a, s), _ = scan(inner, (a, 0.0), np.linspace(0.1, 0.2, N))
        a[1] = a[1] + 0.01 * s
        return a, s

    a, path = scan(outer, a, length=5)
    return np.sum(a) + np.sum(path)


def table_before(x):
    """What inner rounds write to is read again after them, as it was."""

    def outer(a, _):
        b, _ = scan(lambda b, v: (_with(b, 0.9 * b[0] + v), None), a, np.linspace(0.1, 0.2, N))
        return a + 0.1 * np.sin(b), None

    def _with(b, v):
        b[0] = v
        return b

    return np.sum(scan(outer, x, length=5)[0] ** 2)


X = np.random.default_rng(0).uniform(-0.9, 0.9, (N, N))
FUNCTIONS = [grid, two_loops, row_before, table_before]


@pytest.mark.every(4)
@pytest.mark.parametrize("f", FUNCTIONS)
def test_values_and_gradients(f):
    before = X.copy()
    value = f(X)
    assert jit(f, compile="never")(X) == pytest.approx(value, rel=1e-12)
    assert jit(f, compile="always")(X) == pytest.approx(value, rel=1e-12)
    expected = grad(f, compile="never")(X)
    np.testing.assert_allclose(grad(f, compile="always")(X), expected, rtol=1e-10, atol=1e-12)
    direction = np.random.default_rng(1).standard_normal(X.shape)
    ends = [f(X + s * direction) for s in (1e-5, -1e-5)]
    assert np.sum(expected * direction) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("f, kept", [(grid, 1), (two_loops, 1), (table_before, 0)])
def test_what_stays_in_place(f, kept):
    """A table isn't copied by each outer round, unless it has to be."""
    _, tape = trace(f, X)
    (loop,) = [call.primitive for call in tape.calls if call.primitive.repeats]
    assert len(kept_in_place(loop.body, 1, loop.carried)) == kept
    copied = f"for k in range(rolled({N}))" in tape.source or "for k in range(24)" in tape.source
    assert copied == (not kept)


def test_what_shares_memory_with_invariants_is_found_once():
    """Not for each of them: a loop may carry thousands of values, and have as many invariants."""
    _, tape = trace(grid, X)
    (loop,) = [call.primitive for call in tape.calls if call.primitive.repeats]
    assert loop.showing(1 + loop.carried) is loop.showing(2 + loop.carried)


def test_what_inner_rounds_also_read_as_it_was_is_copied():
    """What they update is passed to them twice: to be updated, and as it is all the time."""
    rounds = np.int64(5)

    def inner(t, b, a):
        return (AddWindow((1,), ((1,),))(b, first(a, t) * 0.5, t),)

    def outer(t, a):
        count = a.writer.node(Literal(rounds))
        return (Loop(tape_of(inner, STEP, f8(6), f8(6)), 1, 5)(count, a, a),)

    tape = loss(outer, [f8(6)], 1, lambda a: whole(a * a), rounds=3)
    x = np.linspace(0.5, 1.0, 6)
    expected = x
    for _ in range(3):
        expected = expected + 0.5 * np.concatenate([[0.0], expected[:-1]])
    expected = np.sum(expected**2)
    assert tape.play(x) == pytest.approx(expected, rel=1e-14)
    assert tape.compile()(x) == pytest.approx(expected, rel=1e-14)
