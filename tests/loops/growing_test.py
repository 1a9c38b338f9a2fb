"""Arrays that grow or shrink with the rounds: loops over their fronts."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tests.loops import growing
from tests.loops.nests_test import biggest, depth
from tests.loops.programs_test import drawn

from tapegrad import grad, pipeline, trace, value_and_grad
from tapegrad.optimize import reroll
from tapegrad.primitives.kinds import Repeated

MODES = pytest.mark.parametrize("mode", ["never", "always"])


def ramp(n):
    return np.linspace(0.1, 0.9, n) ** 2


def of(name, size=30):
    """A program of the suite, and arguments."""
    program = next(p for p in growing.PROGRAMS if p.name == name)
    return program.function, drawn(program, 3, size)


def sums(x):
    total = 0.0
    for t in range(len(x)):
        total = total + np.tanh(np.sum(x[:t] * x[t]))
    return total


def unrolled(monkeypatch):
    monkeypatch.setattr(reroll, "with_parts", lambda tape, constants: None)


def test_loops_run_as_far_as_arrays_go():
    """Over the numbers of each, as if the program had been written number by number."""
    f, args = of("cholesky_by_slices")
    tape = trace(f, *args)[1]
    assert depth(tape) == 2
    inner = [line.strip() for line in tape.source.splitlines() if line.startswith(" " * 12)]
    assert "for k in range(j):" in inner
    assert not [line for line in inner if "rolled(" in line]


def test_rounds_of_nothing_are_part_of_the_loop():
    (loop,) = [c for c in trace(sums, ramp(30))[1].calls if isinstance(c.primitive, Repeated)]
    assert loop.primitive.most == 30


def test_results_are_in_place_and_nothing_is_filled():
    f, args = of("back_substitution_by_slices")
    lines = trace(f, *args)[1].source.splitlines()
    assert (
        sum(line.strip().startswith("for ") for line in lines) == 3
    )  # rows, their sums, and the sum of squares; a call makes the zeros


@pytest.mark.parametrize("name", ["elimination_by_slices", "projections"])
def test_a_round_keeps_no_more_than_it_reads(name):
    f, args = of(name, 60)
    n = max(args[0].shape)
    tape = pipeline.gradient(trace(f, *args)[1], [0])
    assert biggest(tape) <= 8 * n**3
    if name == "elimination_by_slices":  # of an outer product the vectors
        assert biggest(tape) <= 8 * n**2


@MODES
def test_nan_and_infinities_stand_where_numpy_has_them(mode, monkeypatch):
    def f(x):
        y = np.zeros_like(x)
        for t in range(len(x)):
            y[t] = np.sum(x[:t] / (1.0 + x[t])) + np.sum(np.sqrt(x[:t]))
        return y

    x = ramp(30)
    for k, value in ((20, np.nan), (21, np.inf), (22, -1.0), (23, 0.0)):
        x = x.copy()
        x[k] = value

        def loss(x):
            y = f(x)
            return np.sum(y[:19] ** 2) + y[24]

        with np.errstate(all="ignore"):
            found, slope = value_and_grad(loss, compile=mode)(x)
            np.testing.assert_allclose(found, loss(x), rtol=1e-12)
            with monkeypatch.context() as patch:
                unrolled(patch)
                expected = grad(lambda x: loss(x), compile="never")(x)
        np.testing.assert_allclose(slope, expected, rtol=1e-10)


def test_what_is_behind_the_front_warns_of_nothing():
    f, args = of("log_weights_so_far")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace(f, *args)
        value, slope = value_and_grad(f, compile="never")(*args)
    assert value == pytest.approx(f(*args), rel=1e-12)
    assert np.all(np.isfinite(slope))


@MODES
def test_a_slope_that_is_infinite_behind_the_front_stays_there(mode):
    """The square root of 0 has an infinite slope, and what is repeated has a sum as cotangent."""

    def f(x, s):
        total = s
        for t in range(1, len(x)):
            total = total + np.sum(np.sqrt(x[:t]) * s) + np.sum(s / x[:t])
        return total

    x, s = ramp(30), np.array(0.7)
    slope = value_and_grad(f, (0, 1), compile=mode)(x, s)[1]
    counts = np.arange(29, -1, -1.0)
    np.testing.assert_allclose(slope[0], counts * s * (0.5 / np.sqrt(x) - 1 / x**2), rtol=1e-10)
    np.testing.assert_allclose(slope[1], 1 + counts @ (np.sqrt(x) + 1 / x), rtol=1e-10)


@MODES
def test_second_derivatives(mode):
    direction = np.cos(np.arange(20.0))

    def along(x):
        return np.sum(grad(sums)(x) * direction)

    x, h = ramp(20), 1e-5 * direction
    expected = (np.asarray(grad(sums)(x + h)) - grad(sums)(x - h)) / 2e-5
    np.testing.assert_allclose(grad(along, compile=mode)(x), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.every(4)
@MODES
@pytest.mark.parametrize("checkpoint", ["sqrt", 3])
def test_rounds_that_are_run_again(mode, checkpoint):
    f, args = of("projections")
    expected = grad(f, compile="never", checkpoint="never")(*args)
    found = grad(f, compile=mode, checkpoint=checkpoint)(*args)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_other_dtypes(dtype):
    def f(x, k):
        total = 0.0 * x[0]
        for t in range(1, len(k)):
            weights = np.where(k[:t] == np.max(k[:t]), 2, 1)
            total = total + np.sum(x[:t] * weights) * np.argmin(k[:t])
        return total

    rng = np.random.default_rng(0)
    x, k = rng.standard_normal(25).astype(np.float32), rng.integers(-5, 5, 25).astype(dtype)
    assert depth(trace(f, x, k)[1]) == 1
    for mode in ("never", "always"):
        value, slope = value_and_grad(f, compile=mode)(x, k)
        assert value == pytest.approx(f(x, k), rel=1e-4)
        assert slope.dtype == np.float32


def test_lists_that_are_stacked_again_and_again():
    def f(A):
        rows = [A[0]]
        for a in A[1:]:
            past = np.stack(rows, axis=1)
            rows.append(a - 0.1 * past @ (past.T @ a))
        return np.sum(np.stack(rows) ** 2)

    A = np.random.default_rng(0).standard_normal((24, 3))
    tape = trace(f, A)[1]
    assert depth(tape) == 1
    assert len(tape) < 40
    assert tape.play(A) == pytest.approx(f(A), rel=1e-12)


def squares(x):
    """Slices that grow by more and more."""
    total = 0.0
    for t in range(1, 20):
        total = total + np.sum(x[: t * t]) ** 2
    return total


def halves(x):
    while len(x) > 1:
        x = x[::2] * x[1::2] + np.sin(x[::2])
    return x[0]


@pytest.mark.parametrize("f", [squares, halves])
def test_what_grows_in_another_way_stays_as_it_is(f):
    x = 1.0 + 0.1 * np.cos(np.arange(512.0))
    tape = trace(f, x)[1]
    assert "part" not in str(tape)
    assert tape.play(x) == f(x)


@MODES
def test_products_are_of_the_fronts(mode):
    def f(A, B):
        total = 0.0
        for t in range(1, len(A)):
            C = A[:t, :t] @ B[: 2 * t, :t].T
            total = total + np.sum(np.sin(C) * B[:t, : 2 * t])
        return total

    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((16, 16)), rng.standard_normal((32, 32))
    tape = pipeline.gradient(trace(f, A, B)[1], [0, 1])
    assert pipeline.source_of(tape).count("front_matmul(") == 3
    value, slopes = value_and_grad(f, (0, 1), compile=mode)(A, B)
    assert value == pytest.approx(f(A, B), rel=1e-12)
    for k, x in enumerate((A, B)):
        h = np.cos(np.arange(x.size)).reshape(x.shape)
        ends = [
            f(*[y + s * h if k == m else y for m, y in enumerate((A, B))]) for s in (1e-6, -1e-6)
        ]
        assert np.sum(slopes[k] * h) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


@MODES
def test_arrays_that_are_repeated_in_some_rounds_and_not_in_others(mode):
    """An axis of one element meets one of none, and of as many as it has."""

    def f(x):
        total = x[0]
        for t in range(len(x)):
            tail = np.concatenate([x[len(x) - t :][1:], x[:1]])
            total = total + np.sum(x[:t] * np.tanh(tail))
        return total

    x = ramp(20)
    value, slope = value_and_grad(f, compile=mode)(x)
    assert value == pytest.approx(f(x), rel=1e-12)
    h = 1e-6 * np.cos(np.arange(20.0))
    assert slope @ h == pytest.approx((f(x + h) - f(x - h)) / 2, rel=1e-6)
