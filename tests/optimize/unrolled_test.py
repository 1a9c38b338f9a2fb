"""Long tapes say what keeps a loop from being one."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest

from tapegrad import trace
from tapegrad.optimize import unrolled

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
    monkeypatch.setattr(unrolled, "LONG", 60)
    x = np.random.default_rng(0).random(101)
    with pytest.warns(RuntimeWarning, match=f"unrolled_test.py.*{words}"):
        trace(CASES[words], x)


def test_a_loop_that_is_found_is_not_long(monkeypatch):
    monkeypatch.setattr(unrolled, "LONG", 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace(lambda x: sum(np.sin(x[t]) for t in range(len(x))), np.ones(101))
