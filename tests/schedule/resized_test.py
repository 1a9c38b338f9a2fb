"""What a tape says it would be for other lengths, held against what it is."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import pipeline, trace
from tapegrad.compiler.key import exact
from tapegrad.compiler.packed import pack
from tapegrad.observe.program.joins import sides_of
from tapegrad.schedule.resized import resized


def normal(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def mean(w, x):
    return np.mean(np.tanh(x @ w) ** 2)


def softmax(w, x):
    z = x @ w
    p = np.exp(z - np.max(z, axis=1, keepdims=True))
    return np.sum(np.log(np.sum(p / 3.0, axis=1)))


def differences(x):
    return np.sum((x[1:] - x[:-1]) ** 2) + np.sum(x[::-1] * x)


def pairs(x):
    return np.sum(np.exp(-np.sum((x[:, None] - x) ** 2, axis=-1)))


def decayed(x):
    h = 0.0
    for t in range(1, len(x)):
        h = 0.5 * h + x[t] * x[t - 1]
    return h * h / len(x)


PROGRAMS = {
    "a mean": (mean, lambda n: (normal(4), normal(n, 4)), [(1, 0)]),
    "rows": (softmax, lambda n: (normal(4, 3), normal(n, 4)), [(1, 0)]),
    "parts": (differences, lambda n: (normal(n),), [(0, 0)]),
    "pairs": (pairs, lambda n: (normal(n, 3),), [(0, 0)]),
    "rounds": (decayed, lambda n: (normal(n),), [(0, 0)]),
}


def derivative(f, args):
    return pipeline.settled(pipeline.derive(trace(f, *args)[1], [0]))


@pytest.mark.every(2)
@pytest.mark.parametrize("far", [True, False])
@pytest.mark.parametrize("n", [5, 8, 30])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_the_tape_for_these_lengths(name, n, far):
    f, make, axes = PROGRAMS[name]
    sides_of.cache_clear()
    for rounds in (6, 7):  # from here on a loop of few is one, too
        trace(f, *make(rounds))
    found = resized(derivative(f, make(n)), axes, far)
    k, axis = axes[0]
    assert found.inputs[k].shape[axis] > n
    assert exact(pack(found)) == exact(pack(derivative(f, make(found.inputs[k].shape[axis]))))


def test_one_row_does_not_tell():
    """Whether it would be broadcast: nothing is made up."""
    assert resized(derivative(mean, (normal(4), normal(1, 4))), [(1, 0)]) is None


def test_what_does_not_fit_together():
    """Two axes are as long as each other, and one of them is to be longer."""
    tape = derivative(lambda x, y: np.sum(x * y), (normal(5), normal(5)))
    assert resized(tape, [(0, 0)]) is None
