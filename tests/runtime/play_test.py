"""Playing: large arrays are written over when nobody reads them any more."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest

from tapegrad import grad, jit, jvp, trace, value_and_grad
from tapegrad.backends.numpy import lives, play
from tapegrad.backends.numpy.lives import written_over
from tapegrad.backends.numpy.play import run
from tapegrad.ir.memory import last_uses

X = np.random.default_rng(0).normal(size=(40, 5))


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch):
    monkeypatch.setattr(lives, "LARGE_BYTES", 0)


def overwritten(tape):
    return len(written_over(tape, last_uses(tape)))


def test_a_chain_runs_in_one_array():
    _, tape = trace(lambda x: np.exp(np.sin(np.cos(x) + 1.0) * 2.0), X)
    assert overwritten(tape) == 4  # all but the first, which must not write to x
    before = X.copy()
    np.testing.assert_array_equal(run(tape, [X])[0][0], np.exp(np.sin(np.cos(X) + 1.0) * 2.0))
    np.testing.assert_array_equal(X, before)


def through_views(x):
    y = np.sin(x)
    z = y[::-1].T
    w = np.cos(y) * 2.0 + np.exp(y)
    return z @ w, np.tanh(w)


def read_again(x):
    y = np.sin(x)
    z = np.cos(y) + 1.0
    return y * z, z, np.where(z > 1.0, y, z)


def of_other_types(x):
    y = np.sin(x)
    z = (np.cos(y) > 0.0) & (y < 0.5)
    return np.floor(y) * z + np.float32(2) * np.exp(y.astype(np.float32))


def of_other_shapes(x):
    y = np.sin(x)
    s = np.exp(np.sum(y, axis=0))
    return (y * 2.0) * (s + 1.0), np.maximum(np.sum(y, axis=1), 0.0)


def of_powers(x):
    y = np.sin(x) + 2.0
    return (np.cos(y) + 2.0) ** 3, (y * 2.0) ** np.sum(x[0])


@pytest.mark.parametrize(
    "f", [through_views, read_again, of_other_types, of_other_shapes, of_powers]
)
def test_values_are_those_of_numpy(f):
    _, tape = trace(f, X)
    expected = f(X)
    found = run(tape, [X])[0]
    if not isinstance(expected, tuple):
        expected = (expected,)
    assert overwritten(tape) > 0
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_results_are_not_written_over_by_later_calls():
    def f(x):
        return np.sum(np.exp(np.sin(x) * 2.0) ** 2)

    gradient = value_and_grad(f, compile="never")
    first = gradient(X)[1]
    kept = first.copy()
    gradient(2.0 * X)
    np.testing.assert_array_equal(first, kept)


def turning(x):
    y = x.copy()
    for k in range(12):
        if k % 3 == 0:
            y[k % 5] = np.sin(y[k * k % 5]) * x[k % 4]
        elif k % 3 == 1:
            y[k * 2 % 5] += y[k % 5] * x[k * k % 5]
        else:
            y = y * 0.9 + x if y[0] < 3.0 else y[::-1] * k
    return np.sum(y * y)


def test_a_tape_that_is_played_often_is_one_function():
    """It has the same results then, to the last bit; and a guard that doesn't hold is told."""
    x = X[0].copy()
    g = value_and_grad(turning, compile="never")
    first = g(x)
    for _ in range(2 * play.RUNS_BEFORE_COMPILING):
        value, gradient = g(x)
        assert value == first[0]
        np.testing.assert_array_equal(gradient, first[1])
    (tape,) = g.tapes
    for _ in range(2 * play.RUNS_BEFORE_COMPILING):
        run(tape, [x])
    files = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: files.append(frame.f_code.co_filename))
    try:
        values, broken = run(tape, [x])
    finally:
        sys.setprofile(before)
    assert broken is None and any(file.endswith(f": {tape.name}") for file in files)
    np.testing.assert_array_equal(values[0], first[0])
    assert run(tape, [x + 10.0])[1] is not None
    for there in (x + 3.0, x, x - 1.0):
        value, gradient = g(there)
        np.testing.assert_allclose(value, turning(there), rtol=1e-14)
        near = 1e-6 * np.max(np.abs(gradient))
        np.testing.assert_allclose(gradient, differences(turning, there), rtol=1e-5, atol=near)


def differences(f, x, step=1e-6):
    return [(f(x + d) - f(x - d)) / (2 * step) for d in step * np.eye(len(x))]


def written(x):
    """Rounds that aren't alike, and write to an array."""
    y = np.zeros(7)
    for k in range(60):
        if k % 3 == 0:
            y[k % 7] = y[k % 7] + np.sin(x[k % 5])
        elif k % 7 == 1:
            y[k % 6 : k % 6 + 2] += x[0] * x[k % 4]
        else:
            y[3 * k % 7] *= np.cos(x[k % 5])
    return np.sum(y)


def halved(x):
    """Arrays that become shorter."""
    v = x
    for _ in range(39):
        v = x[1] * v[:-1] + x[2] * v[1:]
    return v[0]


@pytest.mark.parametrize(("f", "most"), [(written, 1.0), (halved, 45.0)])
def test_an_index_is_worked_out_once(f, most):
    """Not whenever it is played: of a call Python enters one function at the most, and in rounds of
    arrays that become shorter two or three for each part that they take or place."""
    x = np.linspace(0.1, 0.5, 40)
    g = value_and_grad(f, compile="never")
    _, expected = g(x)
    (tape,) = g.tapes
    values = [x]
    run(tape, values)  # which makes what is played
    entered = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: event == "call" and entered.append(frame.f_code))
    try:
        (_, found), _ = run(tape, values)
    finally:
        sys.setprofile(before)
    np.testing.assert_array_equal(found, expected)
    rounds = 39 if f is halved else len(tape.calls)
    assert len(entered) <= most * rounds


def test_the_trace_of_a_derivative_holds_few_of_its_values():
    """Of a hundred arrays that it computes few are live at a time."""

    def chain(x):
        x = np.tanh(np.sin(x) * np.cos(x)) * x
        x = np.exp(x / (1 + x * x)) - np.log(3 + x) * x
        x = np.sin(np.exp(x) * np.tanh(x)) / (2 + x)
        x = np.cos(x / (4 + x)) * np.sin(x) - np.exp(np.sin(x))
        return np.sum(x)

    def pushed():
        return jit(lambda x, t: jvp(chain, (x,), (t,)), compile="never")

    x = np.ones(50_000)
    pushed()(x[:3], x[:3])  # what is loaded and kept once
    tracemalloc.start()
    found = pushed()
    found(x, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * x.nbytes < len(found.tapes[0].calls) * x.nbytes / 3


def test_a_number_in_a_large_array_of_zeros_is_added_in_place():
    """The array isn't made, so there is none to let go of."""

    def f(x):
        z = 1.0
        for _ in range(100):
            dz = (z * z - x[3] - 1) / (2 * z)
            z = z - dz
            if abs(dz) < 1e-10:
                return z
        return z * 0

    x = np.linspace(0, 1, 200)
    expected = np.where(np.arange(200) == 3, 0.5 / np.sqrt(1 + x[3]), 0.0)
    np.testing.assert_allclose(grad(f, compile="never")(x), expected, rtol=1e-12)
