"""Windows of an array that products read where they lie."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tapegrad import grad, jit, nn, value_and_grad
from tapegrad.ir.plan import Plan
from tapegrad.ir.steps import Gemm, Loop

sliding = np.lib.stride_tricks.sliding_window_view


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape) for shape in shapes]


def steps(plan: Plan) -> list[Any]:
    found, waiting = [], [*plan.steps]
    while waiting:
        step = waiting.pop()
        found.append(step)
        waiting += step.body if isinstance(step, Loop) else ()
    return found


def with_windows(plan: Plan) -> list[Gemm]:
    return [s for s in steps(plan) if isinstance(s, Gemm) and s.y.ways is not None]


def largest(plan: Plan) -> int:
    """The largest array that the plan writes."""
    cells = {c for s in steps(plan) for c, _, writes in s.accesses() if writes}
    return max(math.prod(cell.left) for cell in cells)


CASES: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "a convolution": (lambda x, w: nn.conv2d(x, w, padding=1), [(2, 5, 9, 8), (6, 5, 3, 3)]),
    "of one channel": (lambda x, w: nn.conv2d(x, w), [(3, 1, 9, 8), (6, 1, 3, 2)]),
    "with steps": (
        lambda x, w: nn.conv2d(x, w, stride=(2, 3), dilation=(3, 2)),
        [(2, 3, 15, 16), (4, 3, 2, 3)],
    ),
    "along one axis": (lambda x, w: nn.conv1d(x, w, padding=2), [(2, 5, 30), (6, 5, 7)]),
    "along three": (lambda x, w: nn.conv3d(x, w), [(1, 3, 5, 6, 7), (4, 3, 2, 3, 2)]),
    "in groups": (lambda x, w: nn.conv2d(x, w, groups=2), [(2, 6, 8, 9), (4, 3, 3, 3)]),
    "an einsum": (
        lambda x, w: np.einsum("nik,ko->nio", sliding(x, 5, axis=1), w),
        [(3, 40), (5, 4)],
    ),
    "a product": (lambda x, w: sliding(x, 12) @ w, [(70,), (12, 9)]),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", CASES)
def test_windows_are_not_copied(name):
    """Neither for the result nor for the slope along what they are multiplied by: no array is as
    large as all windows."""
    f, shapes = CASES[name]
    x, w = drawn(*shapes)
    ct = np.random.default_rng(1).normal(size=np.shape(f(x, w)))
    derived = grad(lambda w, x: np.sum(f(x, w) * ct), compile="always")
    played = grad(lambda w, x: np.sum(f(x, w) * ct), compile="never")
    plan = derived.lower(w, x).plan
    assert with_windows(plan)
    assert largest(plan) < 2 * max(x.size, ct.size) + 9 * w.size + 400
    np.testing.assert_allclose(derived(w, x), played(w, x), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(jit(f, compile="always")(x, w), f(x, w), rtol=1e-11, atol=1e-11)
    both = [
        value_and_grad(lambda x, w: np.sum(f(x, w) ** 2), argnums=(0, 1), compile=mode)(x, w)[1]
        for mode in ("always", "never")
    ]
    for found, wanted in zip(*both, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


def test_the_windows_of_one_image_are_shared_out_by_rows_of_the_result():
    """Of which each chunk has all windows."""
    x, w = drawn((1, 16, 64, 64), (64, 16, 3, 3))
    f = jit(nn.conv2d, compile="always")
    (step,) = with_windows(f.lower(x, w).plan)
    assert step.share is not None and step.share.axis == 0
    np.testing.assert_allclose(f(x, w), nn.conv2d(x, w), rtol=1e-11, atol=1e-11)


def test_what_else_reads_windows_has_them_copied():
    x, w = drawn((70,), (12, 9))

    def f(x, w):
        y = sliding(x, 12)
        return np.sum((y @ w) ** 2) + np.sum(np.tanh(y) ** 2)

    df = grad(f, compile="always")
    assert not with_windows(df.lower(x, w).plan)
    np.testing.assert_allclose(df(x, w), grad(f, compile="never")(x, w), rtol=1e-11)


def test_windows_of_what_is_written_to_later_are_those_of_before():
    """In the rounds of a loop an array is written in place."""
    (x, w) = drawn((40,), (12, 9))

    def f(x, w):
        total, y = 0.0, np.array(x)
        for i in range(24):
            before = sliding(y, 12) @ w
            y[i] = y[i + 1] * 0.5
            total = total + np.sum(before * (sliding(y, 12) @ w))
        return total

    for made in (jit, grad):
        found, wanted = (made(f, compile=mode)(x, w) for mode in ("always", "never"))
        np.testing.assert_allclose(found, wanted, rtol=1e-11)
    np.testing.assert_allclose(jit(f, compile="always")(x, w), f(x, w), rtol=1e-11)


@pytest.mark.every(2)
@pytest.mark.parametrize("rounds", [20, 33])
def test_windows_in_rounds_of_any_number(rounds):
    """For which one machine code is made: windows have the lengths that they have."""
    x, w = drawn((rounds, 40), (9, 12))

    def f(x, w):
        h = np.zeros(32)
        for t in range(len(x)):
            h = np.tanh(0.5 * h + np.sum(w @ sliding(x[t], 9).T, axis=0))
        return np.sum(h**2)

    square = w[:, :9].T @ w[:, :9]
    df, played = (grad(f, argnums=(0, 1), compile=mode) for mode in ("always", "never"))
    for found, wanted in zip(df(x, square), played(x, square), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
