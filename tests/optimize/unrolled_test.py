"""Long tapes say what keeps a loop from being one."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest

from tapegrad import jit, jvp, trace
from tapegrad.ir.tape import Tape
from tapegrad.optimize import unrolled
from tapegrad.optimize.repetition import Repetition

CASES = {
    "another shape": lambda x: sum(np.sum(np.sort(x[:t])) for t in range(1, len(x))),
    "goes one way": lambda x: both_ways(x),
    "changes from round to round": lambda x: sum(map(partial(sine_at, x), squares(len(x)))),
}


def sine_at(x, t):
    return np.sin(x[t])


def squares(n):
    return [t * t % n for t in range(n)]


def both_ways(x):
    total, large = 0.0, []
    for value in x:
        if value > 0.3:
            total = total + np.sin(value)
            large.insert(0, value)
        else:
            total = total - value
    return total


@pytest.mark.parametrize("words", CASES)
def test_what_differs_is_told_with_the_line(monkeypatch, words):
    monkeypatch.setattr(unrolled, "LONG_TAPE", 60)
    x = np.random.default_rng(0).random(101)
    with pytest.warns(RuntimeWarning, match=f"unrolled_test.py.*{words}"):
        trace(CASES[words], x)


def test_a_loop_that_is_found_is_not_long(monkeypatch):
    monkeypatch.setattr(unrolled, "LONG_TAPE", 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace(lambda x: sum(np.sin(x[t]) for t in range(len(x))), np.ones(101))


def slopes(x):
    """Few calls are from one line, and a line that is run four times has few."""
    for _ in range(20):
        k = slope(x)
        l = slope(x + 0.1 * k)
        m = slope(x + 0.1 * l)
        n = slope(x + 0.2 * m)
        x = x + 0.1 * (k + 2 * l + 2 * m + n) / 6
    return np.sum(x)


def slope(x):
    return np.sin(x) * x - np.cos(x)


def test_loops_are_sought_where_calls_come_again_and_not_twice_in_one_tape(monkeypatch):
    sought: list[Tape] = []
    real = Repetition._look
    monkeypatch.setattr(Repetition, "_look", lambda self: (sought.append(self.tape), real(self)))
    x = np.linspace(0.1, 1.0, 3)
    pushed = jit(lambda p, t: jvp(slopes, (p,), (t,)), compile="never")
    value, tangent = pushed(x, np.ones(3))
    np.testing.assert_allclose(value, slopes(x))
    step = 1e-6
    np.testing.assert_allclose(tangent, (slopes(x + step) - slopes(x - step)) / (2 * step), 1e-6)
    assert not sought
    unrolled = jit(lambda x: sum(map(partial(sine_at, x), squares(40))), compile="never")
    unrolled(np.ones(40))
    assert sought
