"""Forward mode keeps the assumptions of a tape: its guards, and the arrays that it captured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import tapegrad as tg
from tapegrad.backends.numpy.play import run
from tapegrad.checking.tape_verify import verify
from tapegrad.differentiate.forward import forward

X, T = np.array([0.5, 2.0]), np.array([1.0, -3.0])
WEIGHTS = np.array([3.0, 4.0])


def f(x, k):
    if x[0] > 0:
        return np.sin(x) * WEIGHTS * k
    return x


def pushed():
    _, tape = tg.trace(f, X, 2.0)
    return tape, verify(forward(replace(tape, output_names=("y",)), [0]))


def test_captured_arrays_are_still_the_last_inputs():
    tape, done = pushed()
    assert len(done.captured) == 1 and done.captured[0] is WEIGHTS
    assert [v.aval for v in done.free_inputs] == [tape.inputs[k].aval for k in (0, 1, 0)]
    assert done.names == ("x", "k", "t_x", tape.names[2])
    value, tangent = done.play(X, 2.0, T)
    np.testing.assert_allclose(value, f(X, 2.0))
    np.testing.assert_allclose(tangent, np.cos(X) * T * WEIGHTS * 2.0)
    assert done.output_names == ("y", "t_y")


def test_guards_still_hold_for_the_value():
    tape, done = pushed()
    assert [(g.expected, g.what) for g in done.guards] == [
        (g.expected, g.what) for g in tape.guards
    ]
    for x in (X, -X):
        kept, broken = (run(t, [*args, *t.captured])[1] for t, args in both(tape, done, x))
        assert (kept is None) == (broken is None) == (x is X)


def both(tape, done, x):
    return (tape, [x, 2.0]), (done, [x, 2.0, T])


def test_forward_mode_can_be_repeated():
    _, done = pushed()
    twice = verify(forward(done, [0, 1, 2]))
    assert twice.captured == done.captured and len(twice.guards) == len(done.guards)
    results = twice.play(X, 2.0, T, T, 0.0, 0 * T)
    np.testing.assert_allclose(results[-1], -np.sin(X) * T * T * WEIGHTS * 2.0)


def test_each_tangent_is_computed_once():
    """Where no kink has sides, a rule runs once a call: nothing that it makes is left unread."""
    _, tape = tg.trace(lambda x: np.sum(np.sin(x) * np.exp(x)), X)
    made = forward(tape, [0]).calls
    assert [call.primitive.name for call in made].count("cos") == 1
    read = {x for call in made for x in call.operands}
    assert not [call for call in made[:-1] if read.isdisjoint(call.outs) and call.reason]
