"""A tape of one row is marked where a tape of more rows has other numbers."""

from __future__ import annotations

import numpy as np

from tapegrad import pipeline, trace
from tapegrad.core.values import Length
from tapegrad.ir.opened import closed, opened
from tapegrad.ir.tape import Literal


def mean(w, x):
    return np.mean((x @ w) ** 2)


def traced(f, rows):
    return trace(f, np.ones(3), np.ones((rows, 3)))[1]


def test_what_differs_is_marked():
    one = opened(traced(mean, 1), traced(mean, 64))
    assert one is not None
    assert [tuple(map(type, v.shape)) for v in one.inputs] == [(int,), (Length, int)]
    literals = [x for call in one.calls for x in call.operands if isinstance(x, Literal)]
    assert [(x.value, x.open) for x in literals] == [(1.0, True)]


def test_it_is_the_same_tape():
    tape = traced(mean, 1)
    one = opened(tape, traced(mean, 64))
    assert one is not None
    assert one != tape
    assert closed(one) == tape


def test_what_is_made_of_it_is_made_for_any_number():
    """A sum stays a sum, and a mean divides."""
    tape = traced(mean, 1)
    one = opened(tape, traced(mean, 64))
    assert one is not None
    names = [
        [call.primitive.name for call in pipeline.optimized(pipeline.derive(t, [0])).calls]
        for t in (tape, one, traced(mean, 64))
    ]
    assert names[0] != names[1] == names[2]


def test_tapes_that_differ_in_more_than_numbers():
    assert opened(traced(mean, 1), traced(lambda w, x: np.mean(x @ w), 64)) is None
    assert opened(traced(mean, 1), traced(lambda w, x: np.mean((x @ w) ** 3), 64)) is None


def test_a_length_is_no_number_of_the_code():
    one = Length(1)
    assert (one == 1, one != 1, one == Length(1), one in (0, 1)) == (False, True, True, False)
    assert (one + 1, one < 2, one > 0, f"{one}") == (2, True, True, "1")
