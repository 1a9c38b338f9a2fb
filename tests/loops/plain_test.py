"""Plain `for` statements, of which one round is traced for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tapegrad import trace, value_and_grad

N = 300
RNG = np.random.default_rng(3)
X, W = RNG.standard_normal(N), RNG.standard_normal((N, 2))
LIST, WORDS = [float(v) for v in X], RNG.integers(0, 2, N)
PLACES = list(RNG.permutation(N))
FLAGS = [bool(v > 0) for v in X]
P = np.array([0.4, 0.7])

Program = Callable[[Any], Any]
PROGRAMS: dict[str, Program] = {}
ROUND_BY_ROUND: dict[str, Program] = {}


def once(f: Program) -> Program:
    PROGRAMS[f.__name__] = f
    return f


def each(f: Program) -> Program:
    ROUND_BY_ROUND[f.__name__] = f
    return f


@once
def recurrence(p: Any) -> Any:
    h = p[0]
    for t in range(N):
        h = 0.9 * h + p[1] * X[t]
    return h


@once
def a_list_of_numpys_integers(p: Any) -> Any:
    h = p[0]
    for t in PLACES:
        h = 0.9 * h + p[1] * X[t]
    return h


@once
def a_list_of_booleans(p: Any) -> Any:
    h = p[0]
    for v, up in zip(X, FLAGS, strict=True):
        h = 0.9 * h + p[1] * v * up
    return h


@once
def downwards(p: Any) -> Any:
    h = p[0]
    for t in range(N - 1, 2, -3):
        h = 0.9 * h + p[1] * X[t - 2]
    return h


@once
def branches_of_data_and_of_state(p: Any) -> Any:
    h = p[0]
    for v in X:
        if v > 0.3:
            h = 0.8 * h + v * p[1]
        elif h > 0:
            h = h - 0.1 * p[0]
    return h


@once
def zipped_and_enumerated(p: Any) -> Any:
    h = p[0]
    for k, (v, w) in enumerate(zip(LIST, W, strict=True), 2):
        h = 0.9 * h + v * (w @ p) / k
    return h


@once
def backwards(p: Any) -> Any:
    h = p[0]
    for v in reversed(LIST):
        h = 0.9 * h + v * p[1]
    return h


@once
def rows_written(p: Any) -> Any:
    a = np.zeros((N, 2))
    for t in range(1, N):
        a[t, 0] = 0.9 * a[t - 1, 0] + p[0] * X[t]
        a[t, 1:] = a[t, :1] * p[1]
    return np.sum(a**2)


@once
def slices(p: Any) -> Any:
    total, u = 0.0, np.sin(p[0] * X)
    for k in range(N // 4):
        total = 0.9 * total + np.sum(np.sin(u[4 * k : 4 * (k + 1)]))
    return total


@once
def entries_by_entries(p: Any) -> Any:
    h = 0.0
    for word in WORDS:
        h = 0.9 * h + np.tanh(p[word] + h)
    return h


@once
def triangle(p: Any) -> Any:
    h = p[0]
    for i in range(30):
        for j in range(i + 1):
            h = 0.95 * h + 0.1 * p[1] * X[i - j]
    return h


@each
def twice_from_one_iterator(p: Any) -> Any:
    pairs, h = zip(X, X, strict=True), p[0]
    for a, b in pairs:
        h = 0.9 * h + a * b * p[1]
    for _ in pairs:
        h = 100.0 * h
    return h


@each
def pairs_of_one_iterator(p: Any) -> Any:
    h = p[0]
    for a, b in zip(*[iter(LIST)] * 2, strict=True):
        h = 0.9 * h + a * b * p[1] - b
    return h


@each
def begun(p: Any) -> Any:
    it: Iterator[float] = iter(LIST)
    next(it)
    h = p[0]
    for a, b in zip(it, X, strict=False):
        h = 0.9 * h + a * b * p[1]
    return h


@each
def left_early(p: Any) -> Any:
    h = p[0]
    for t in range(N):
        h = 0.9 * h + p[1] * X[t]
        if t > 200:
            break
    return h


def check(f: Program) -> None:
    derived = value_and_grad(f, compile="never")
    for p in (P, 1.1 * P - 0.05):
        value, slope = derived(p)
        np.testing.assert_allclose(value, f(p), rtol=1e-12)
        steps = 1e-6 * np.eye(2)
        expected = [(f(p + step) - f(p - step)) / 2e-6 for step in steps]
        np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_round_is_traced(name: str) -> None:
    """The tape is a loop, and as long as one round; the program runs a few rounds of it."""
    f = PROGRAMS[name]
    check(f)
    tape = trace(f, P)[1]
    assert str(tape).count("_round(step") >= 1
    assert len(tape.calls) < 12


@pytest.mark.parametrize("name", ROUND_BY_ROUND)
def test_what_does_more_is_run_round_by_round(name: str) -> None:
    check(ROUND_BY_ROUND[name])
