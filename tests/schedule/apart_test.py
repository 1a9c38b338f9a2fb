"""Functions that can't be vectorised at their place get a loop of their own."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from tests.emit.check import assert_agree

from tapegrad import loops, trace, value_and_grad
from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import Cell, Read
from tapegrad.ir.fold import ADD
from tapegrad.ir.plan import Plan
from tapegrad.ir.steps import Compute, Loop
from tapegrad.ir.tape import Literal, Tape
from tapegrad.pipeline import gradient, optimized, schedule
from tapegrad.primitives import elementwise as ew
from tapegrad.schedule import isolate
from tapegrad.schedule.isolate import set_apart


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(isolate, "MIN_OUTSIDE", isolate.MIN_NEST)


def text(tape: Tape) -> str:
    return "\n".join(k.text for k in schedule(tape).kernels)


def ones_alone(tape: Tape, function: str) -> list[str]:
    """The heads of loops over a function of the elements of an array without further axes."""
    lines = [line.strip() for line in text(tape).splitlines()]
    return [
        head for head, line in pairwise(lines) if re.match(rf"\w+\[\w+\] = {function}\(\w+\[", line)
    ]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape)


def between_loops(x, w):
    """A number a row, of the row, for the row."""
    return np.sum(np.exp(-(x @ w))[:, None] * x, axis=0)


def summed_over_rows(x, w):
    return np.sum(np.exp(x - w[0]), axis=0)


def of_sums(x, w):
    """Two functions of what is summed up, and one of them."""
    far = np.sum((x[None] - x[:, None]) ** 2, axis=2) + 1.0
    return np.sum((far**-1.5 + np.sin(far**-2.5))[:, :, None] * x, axis=1)


def of_two(x, w):
    return np.sum(np.arctan2(x @ w, x @ (w * w))[:, None] * x, axis=0)


@pytest.mark.every(6)
@pytest.mark.parametrize(
    ("function", "name", "heads"),
    [
        (between_loops, "exp", ["for i in range(rolled(30)):"]),
        (summed_over_rows, "exp", ["for i in range(360):"]),
        (of_two, "atan2", ["for i in range(rolled(30)):"]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_functions_are_set_apart(function, name, heads, dtype):
    values = normal(30, 12).astype(dtype), normal(12).astype(dtype)
    _, tape = trace(function, *values)
    assert ones_alone(tape, name) == heads
    assert_agree(tape, values, [-x for x in values])
    assert_agree(gradient(trace(lambda *xs: np.sum(function(*xs)), *values)[1], [0, 1]), values)


def test_functions_of_functions_are_set_apart_after_them():
    values = normal(5, 3), normal(3)
    _, tape = trace(of_sums, *values)
    assert ones_alone(tape, "power") == ["for i in range(rolled(25)):"] * 2
    assert ones_alone(tape, "sin") == ["for i in range(rolled(25)):"]
    assert_agree(tape, values)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (between_loops, (15, 12)),  # not worth it
        (summed_over_rows, (30, 16)),  # nothing is left over
        (lambda x, w: np.exp(x), (30, 12)),  # rows that don't meet are taken several at once
        (lambda x, w: np.cumsum(np.exp(x), axis=0), (30, 12)),  # is sought by whom it is read
    ],
)
def test_others_stay_where_they_are(function, shape):
    values = normal(*shape), normal(shape[1])
    _, tape = trace(function, *values)
    assert ones_alone(tape, "exp") == []
    assert_agree(tape, values)


def test_what_runs_once_is_set_apart_if_it_is_long(monkeypatch):
    monkeypatch.undo()
    for rows in (21, 22):
        values = normal(rows, 12), normal(12)
        heads = ones_alone(trace(summed_over_rows, *values)[1], "exp")
        assert len(heads) == (rows == 22)


def test_what_is_as_long_as_a_loop_is_left_alone():
    """Another length is served by the same code, which would have to know how long the nest is."""

    def decayed(x, w):
        def step(h, v):
            return 0.5 * h + v, None

        h, _ = loops.scan(step, 0.0, np.exp(-(x @ w)))
        return h

    for rows in (30, 40):
        values = normal(rows, 12), normal(12)
        tape = optimized(trace(lambda x, w: decayed(x, w) * between_loops(x, w), *values)[1])
        assert ones_alone(tape, "exp") == []
        assert_agree(tape, values)


def test_a_nest_that_could_not_be_fused_is_not_cut():
    """What is summed up so far is another number after the loop."""
    kind = np.dtype(float)
    x, y = Cell((30,), kind, "input"), Cell((30,), kind, "output")
    total, found, rows = Cell((), kind), Cell((30,), kind, axes=()), Cell((30, 3), kind)
    i, k = Index(30), Index(3)
    at, entry = (Affine.of(i),), (Affine.of(i), Affine.of(k))

    def plan(last: Cell) -> Plan:
        zero = Compute(total, (), ew.copy, (Read(None, (), Literal(np.float64(0.0))),))
        inner = Loop(k, (Compute(rows, entry, ew.copy, (Read(x, at),)),))
        steps = (
            Compute(total, (), ew.copy, (Read(x, at),), ADD),
            inner,
            Compute(found, at, ew.exp, (Read(total),)),
            Compute(y, at, ew.add, (Read(found, at), Read(last, () if last is total else at))),
        )
        return Plan("running", (x,), (y,), (zero, Loop(i, steps)))

    assert len(set_apart(plan(x)).steps) == 4
    assert set_apart(plan(total)).steps == plan(total).steps


def test_in_the_rounds_of_a_loop():
    """The forward algorithm, in log space."""

    def forward(log_a, alpha, log_b):
        def step(alpha, b):
            x = alpha[:, None] + log_a
            top = np.max(x, axis=0)
            return top + np.log(np.sum(np.exp(x - top), axis=0)) + b, None

        alpha, _ = loops.scan(step, alpha, log_b)
        return np.sum(alpha)

    values = normal(12, 12), normal(12), normal(20, 12)
    _, tape = trace(forward, *values)
    assert "for j in range(144):" in ones_alone(optimized(tape), "exp")
    assert_agree(tape, values)
    found, expected = (
        value_and_grad(forward, argnums=(0, 1, 2), compile=tier)(*values)
        for tier in ("always", "never")
    )
    for x, y in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        np.testing.assert_allclose(x, y)
