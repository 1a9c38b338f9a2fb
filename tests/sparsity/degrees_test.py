"""Whether outputs depend on inputs linearly, quadratically or in another way: never too little."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import depends, trace
from tapegrad.sparsity.degrees import GENERAL, LINEAR, NOT, QUADRATIC, degrees

X, Y = np.linspace(0.5, 1.5, 6), np.linspace(1.5, 0.2, 6)
W = np.arange(36.0).reshape(6, 6)


def found(f, groups=((0,), (1,))):
    return degrees(trace(f, X, Y)[1], groups).tolist()


def moved(x, y):
    return np.roll(np.cumsum(W @ x)[::-1], 1) - 3 * np.sum(y) + 2


def loop(x, y):
    total = 0.0
    for k in range(5):
        total = total + x[k] * y[k] + x[k + 1]
    return total


def growing(x, y):
    h = 1.0
    for k in range(6):
        h = h * x[k] + y[k]
    return h


def branching(x, y):
    return x if y[0] > 0 else y


KNOWN = [
    (moved, LINEAR, LINEAR),
    (lambda x, y: x * y, LINEAR, LINEAR),
    (lambda x, y: x / y, LINEAR, GENERAL),
    (lambda x, y: x**2 + y[0], QUADRATIC, LINEAR),
    (lambda x, y: x @ W @ x + np.sum((W @ y - 1) ** 2), QUADRATIC, QUADRATIC),
    (lambda x, y: x**2 * x + np.exp(y), GENERAL, GENERAL),
    (lambda x, y: np.sin(x), GENERAL, NOT),
    (lambda x, y: np.maximum(x, 1.0), GENERAL, NOT),
    (lambda x, y: np.sign(x) * y, GENERAL, LINEAR),
    (lambda x, y: np.where(x > 1, y, 2 * y), GENERAL, LINEAR),
    (lambda x, y: np.where(W[0] > 2, y, x * x), QUADRATIC, LINEAR),
    (lambda x, y: np.sort(x), GENERAL, NOT),
    (lambda x, y: np.linalg.norm(x), GENERAL, NOT),
    (lambda x, y: W[:2, :3], NOT, NOT),
    (loop, LINEAR, LINEAR),
    (growing, GENERAL, LINEAR),
    (branching, LINEAR, GENERAL),
]


@pytest.mark.parametrize("k", range(len(KNOWN)))
def test_of_functions_that_are_known(k):
    f, in_x, in_y = KNOWN[k]
    assert found(f) == [[in_x, in_y]]


def test_inputs_together():
    """A product of inputs is quadratic in both, and outputs are told apart."""
    assert found(lambda x, y: (x * y, x + y), [[0, 1]]) == [[QUADRATIC], [LINEAR]]
    assert found(loop, [[0, 1]]) == [[QUADRATIC]]


def test_loops_that_stay_loops():
    """Degrees grow from round to round until they don't any more."""

    def f(x, y):
        h, s = 0.0, 0.0
        for k in range(len(x) - 1):
            h, s = h + x[k] * y[k], s + h * x[k + 1]
        return h, s

    long = np.linspace(0.1, 1, 60)
    tape = trace(f, long, long)[1]
    assert any(call.primitive.repeats for call in tape.calls)
    assert degrees(tape, [[0], [1]]).tolist() == [[LINEAR, LINEAR], [QUADRATIC, LINEAR]]


def test_a_number_of_rounds_that_depends_on_values():
    def f(x, y):
        while np.max(x) > 0.1:
            x = x * 0.5
        return x, y

    assert found(f) == [[GENERAL, NOT], [GENERAL, LINEAR]]


@pytest.mark.parametrize("f", [np.mod, np.fmod], ids=lambda f: f.__name__)
def test_lines_between_jumps_are_no_polynomial(f):
    assert depends(lambda x: f(x, 5.0), 1.0) == ("general",)
    assert depends(lambda x: f(5.0, x), 1.0) == ("general",)
