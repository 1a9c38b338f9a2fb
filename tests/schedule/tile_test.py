"""A loop over rows with a costly scalar between its inner loops is cut into tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from tests.emit.check import assert_agree

from tapegrad import trace
from tapegrad.ir.tape import Tape
from tapegrad.pipeline import gradient, schedule


def logistic(w, x, y):
    """Its gradient is `(expit(x @ w) - y) @ x`."""
    z = x @ w
    return np.sum(np.logaddexp(0.0, z) - y * z)


def problem(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows)
    return rng.normal(size=5), rng.normal(size=(rows, 5)), rng.integers(0, 2, rows) * 1.0


def text(tape: Tape) -> str:
    return "\n".join(k.text for k in schedule(tape).kernels)


@pytest.mark.parametrize("rows", [255, 256, 300])
def test_logistic_regression(rows):
    w, x, y = problem(rows)
    tape = gradient(trace(logistic, w, x, y)[1], [0])
    tiled = f"min(first + 64, {rows})" in text(tape)
    assert tiled == (rows >= 256)  # four tiles at least
    assert_agree(tape, (w, x, y))
    np.testing.assert_allclose(tape.play(w, x, y)[1], (expit(x @ w) - y) @ x)


def test_cheap_scalars_are_no_reason_to_tile():
    def squares(w, x, y):
        return np.sum((x @ w - y) ** 2)

    args = problem(300)
    tape = gradient(trace(squares, *args)[1], [0])
    assert "first" not in text(tape)
    assert_agree(tape, args)


def test_many_cheap_scalars_are_as_costly_as_a_function():
    def robust(w, x, y):
        r = x @ w - y
        return np.sum(r * r / (1.0 + r * r))

    args = problem(300)
    tape = gradient(trace(robust, *args)[1], [0])
    assert "first" in text(tape)
    assert_agree(tape, args)


def pairs(x):
    return np.sum(np.exp(-np.sum((x[:, None] - x) ** 2, axis=-1)))


def of_any_length(points: int) -> Tape:
    """The gradient of the above, for any number of points."""
    tape = gradient(trace(pairs, np.ones((points, 3)))[1], [0])
    return replace(tape, axes=((0, 0),))


@pytest.mark.every(3)
@pytest.mark.parametrize("points", [2, 20, 63, 64, 65, 100])
def test_pairs_of_any_number_of_points(points):
    """The inner loop is cut: the outer one computes nothing between its own."""
    x = np.random.default_rng(points).normal(size=(points, 3))
    tape = of_any_length(points)
    assert f"min(first + 64, {points})" in text(tape)
    assert_agree(tape, (x,))


def test_pairs_are_shared_out_as_they_would_be_in_one_piece():
    """The tiles of an inner loop count once: 100 points aren't worth two cores, 600 are."""
    assert "chunk" not in text(of_any_length(100))
    assert "chunk" in text(of_any_length(600))
