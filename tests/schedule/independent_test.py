"""Rounds that need nothing of each other become a nest; others stay rounds."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import pipeline, trace
from tapegrad.ir.plan import Recurrence


def listed(x):
    return np.stack([np.sin(x[t]) * x[t] for t in range(len(x))])


def of_rows(x):
    """Each round has arrays of its own, and a sum of its own."""
    rows = []
    for t in range(len(x)):
        row = np.exp(np.outer(x[t] * np.ones(3), x[t] * np.ones(3)))
        rows.append(row / np.sum(row))
    return np.stack(rows)


def written(x):
    y = np.zeros_like(x)
    for t in range(len(x)):
        y[t] = np.cos(x[t]) + x[-1]
    return y


def backwards(x):
    y = np.zeros_like(x)
    for t in range(len(x) - 1, -1, -1):
        y[len(x) - 1 - t] = np.cos(x[t])
    return y


def summed(x):
    total = 0.0
    for t in range(len(x)):
        total = total + np.sin(x[t])
    return total


def read_where_written(x):
    y = x.copy()
    for t in range(1, len(x)):
        y[t] = np.sin(y[t - 1]) + x[t]
    return y


def written_twice(x):
    y = x.copy()
    for t in range(len(x) - 1):
        y[t] = np.sin(x[t])
        y[t + 1] = np.cos(x[t])
    return y


def by_two(x):
    y = np.zeros_like(x)
    for t in range(len(x) - 1):
        y[t : t + 2] += np.sin(x[t : t + 2])
    return y


@pytest.mark.parametrize(
    "f, rounds",
    [
        (listed, 0),
        (of_rows, 0),
        (written, 0),
        (backwards, 0),
        (summed, 1),
        (read_where_written, 1),
        (written_twice, 1),
        (by_two, 1),
    ],
)
def test_which_rounds_are_independent(f, rounds):
    """And both compute what the tape says: the plans are run as they are scheduled."""
    x = np.random.default_rng(0).random(25)
    tape = pipeline.optimized(trace(f, x)[1])
    plan = pipeline.schedule(tape).plan
    assert sum(isinstance(step, Recurrence) for step in plan.steps) == rounds
    np.testing.assert_allclose(tape.play(x), f(x), rtol=1e-14)


def test_what_they_leave_is_read_in_the_same_loop():
    tape = pipeline.gradient(trace(lambda x: np.sum(listed(x) ** 2), np.ones(40))[1], [0])
    (kernel,) = pipeline.schedule(tape).kernels
    assert kernel.text.count("for ") <= 3
