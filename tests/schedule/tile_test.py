"""A loop over rows with a costly scalar between its inner loops is cut into tiles."""

from __future__ import annotations

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
