"""Chains of operations on small vectors, whose temporaries move in where others have just been
read: in the memory that they share, run as written and compiled, they compute what NumPy does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.schedule.stages_test import PROGRAMS

from tapegrad import grad, jit, trace
from tapegrad.checking.plan_run import run_plan
from tapegrad.pipeline import gradient, optimized, schedule

Vector = Callable[[Any, Any, Any, Any], Any]

OPERATIONS: list[Vector] = [
    lambda v, m, n, x: m @ v,
    lambda v, m, n, x: v @ n,
    lambda v, m, n, x: np.cross(v, x),
    lambda v, m, n, x: np.cross(n @ v, m @ x),
    lambda v, m, n, x: np.cumprod(v),
    lambda v, m, n, x: np.cumsum(v[::-1]),
    lambda v, m, n, x: np.roll(v, 1),
    lambda v, m, n, x: np.sort(v),
    lambda v, m, n, x: v * np.prod(v),
    lambda v, m, n, x: v[::-1] * x,
    lambda v, m, n, x: np.outer(v, x) @ v,
    lambda v, m, n, x: np.concatenate([v[1:], v[:1]]) * v,
    lambda v, m, n, x: np.diff(np.append(v, v[0])) + v,
    lambda v, m, n, x: np.linalg.solve(m, v),
    lambda v, m, n, x: np.where(v > 0, v, x),
    lambda v, m, n, x: np.stack([v[2], v[0], v[1]]) - v,
]

R = np.random.default_rng(4)
M, N = R.normal(size=(2, 3, 3))
X = R.normal(size=3)


def chain(number: int) -> Callable[..., Any]:
    """Three operations, drawn at random."""
    drawn = np.random.default_rng(number).integers(0, len(OPERATIONS), 3)

    def f(m, n, x):
        v = x
        for k in drawn:
            v = OPERATIONS[k](v, m, n, x)
        return v

    return f


@pytest.mark.every(8)
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_as_written_in_shared_memory(first):
    for number in range(first, first + 20):
        f = chain(number)
        program = schedule(optimized(trace(f, M, N, X)[1]))
        values = [{"m": M, "n": N, "x": X}[cell.hint] for cell in program.plan.inputs]
        (found,) = run_plan(program.plan, values, program.allocation, program.nested).results
        np.testing.assert_allclose(found, f(M, N, X), rtol=1e-9, atol=1e-12)


@pytest.mark.every(2)
@pytest.mark.parametrize("first", range(200, 240, 20))
def test_their_gradients_are_held_against_the_tape(first):
    """By TAPEGRAD_DEBUG, which the tests run under."""
    for number in range(first, first + 20):
        f = chain(number)
        schedule(gradient(trace(lambda m, n, x, f=f: np.sum(f(m, n, x) ** 2), M, N, X)[1], [0, 2]))


def test_compiled():
    def chains(m, n, x):
        return tuple(chain(number)(m, n, x) for number in range(300, 316))

    for found, expected in zip(
        jit(chains, compile="always")(M, N, X), chains(M, N, X), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_product_of_a_cross_product():
    """The cross product was written over what its last component had yet to be computed of."""

    def f(m, n, x):
        return m @ np.cross(m @ x, n @ x)

    np.testing.assert_allclose(jit(f, compile="always")(M, N, X), f(M, N, X), rtol=1e-12)


def test_squares_of_products():
    """The tree of a product's derivative, whose levels were written over each other."""
    vectors = [np.random.default_rng(n).normal(size=n) for n in (6, 11, 21, 22)]

    def f(vectors):
        return sum(np.prod(x) ** 2 for x in vectors)

    compiled, played = (grad(f, compile=how)(vectors) for how in ("always", "never"))
    for a, b in zip(compiled, played, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


# ---- extremes

EXTREMES: dict[str, dict[str, Any]] = {
    "small things apart": {"buffers.MAX_SHARED_SLOT": 0},
    "all loops in chunks": {"parallelise.GRAIN": 2, "buffers.MAX_SHARED_SLOT": 0},
    "all products in chunks": {
        **{"parallelise.GRAIN": 2, "products.SMALL_PRODUCT": 1, "products.SMALL_OF_BATCH": 1},
        **{"parallelise.LEAST_SIDE": 1, "parallelise.LEAST_TERMS": 2, "parallelise.BLOCK": 1},
    },
    "tiny kernels": {"cut.LONGEST": 3},
    "tiny tiles": {"tile.ROWS": 2, "tile.WORTH": 1 << 20},
    "everything computed again": {"cost.CACHES": ((np.inf, 1e6),)},
    "every product as a whole": {"products.SMALL_PRODUCT": 1, "buffers.MAX_SHARED_SLOT": 0},
    "little fused": {"fuse.MAX_WEIGHT": 6, "buffers.MAX_SHARED_SLOT": 0},
}
EXTREMES["all at once"] = {k: v for extreme in EXTREMES.values() for k, v in extreme.items()}


@pytest.mark.every(8)
@pytest.mark.parametrize("extreme", EXTREMES)
def test_at_every_threshold(monkeypatch, extreme):
    for place, value in EXTREMES[extreme].items():
        monkeypatch.setattr(f"tapegrad.schedule.{place}", value)
    for f, args in PROGRAMS.values():
        schedule(gradient(trace(f, *args)[1], [0]))
    for number in range(400, 408):
        schedule(optimized(trace(chain(number), M, N, X)[1]))
