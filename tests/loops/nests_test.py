"""Nests whose inner loops have another number of rounds each time are loops in loops."""

from __future__ import annotations

import numpy as np
import pytest
from tests.loops import nests
from tests.loops.programs_test import drawn

from tapegrad import grad, pipeline, trace, value_and_grad
from tapegrad.ir.plan import walk
from tapegrad.ir.steps import PythonCall
from tapegrad.observe.program.joins import sides_of
from tapegrad.primitives.kinds import Repeated


def pairs(x):
    total = 0.0
    for i in range(len(x)):
        for j in range(i):
            total = total + np.cos(x[i] - x[j])
    return total


def ramp(n):
    return np.linspace(0.1, 0.9, n) ** 2


def depth(tape):
    """How many loops stand in each other at the most."""
    loops = [call.primitive for call in tape.calls if isinstance(call.primitive, Repeated)]
    return max([1 + depth(loop.body) for loop in loops], default=0)


def biggest(tape):
    """The bytes of the largest array, in loops too."""
    sizes = [out.aval.nbytes for call in tape.calls for out in call.outs]
    inner = [biggest(t) for call in tape.calls for t in call.primitive.tapes]
    return max([*sizes, *inner], default=0)


def test_the_inner_loop_runs_as_often_as_the_step_says():
    _, tape = trace(pairs, ramp(20))
    assert depth(tape) == 2
    assert "in range(i):" in tape.source


@pytest.mark.every(2)
@pytest.mark.parametrize("program", nests.PROGRAMS, ids=lambda program: program.name)
def test_a_round_is_traced_for_all(program, monkeypatch):
    """Inner loops make no round at first, two steps at once, or start where loops around say."""
    recorded = []
    rolled = pipeline.rolled

    def noted(tape, *args, **kwargs):
        recorded.append(len(tape.calls))
        return rolled(tape, *args, **kwargs)

    monkeypatch.setattr(pipeline, "rolled", noted)
    trace(program.function, *drawn(program, 0, 30))
    assert recorded[0] < 40


def test_three_loops_stand_in_each_other():
    program = next(p for p in nests.PROGRAMS if p.name == "gauss_elimination")
    _, tape = trace(program.function, *drawn(program, 0, 30))
    assert depth(tape) == 3


def test_few_rounds_stay_unrolled():
    sides_of.cache_clear()  # other tests have other lengths, for which loops of few are loops
    _, tape = trace(pairs, ramp(5))
    assert depth(tape) == 0


def test_an_inner_loop_keeps_what_it_reads_of_a_table_and_not_the_table():
    """The table changes from round to round: keeping it for each would take n**4 numbers."""
    program = next(p for p in nests.PROGRAMS if p.name == "gauss_elimination")
    args = drawn(program, 0, 60)
    n = len(args[1])
    tape = pipeline.gradient(trace(program.function, *args)[1], [0])
    assert biggest(tape) <= 8 * n**3


def test_nested_loops_write_in_place():
    """No loop over a whole array stands in a loop over rounds."""
    args = (ramp(20), np.array(0.3))
    tape = pipeline.gradient(trace(nests.shifted_polynomial, *args)[1], [0, 1])
    inside = [line for line in pipeline.source_of(tape).splitlines() if line.startswith(" " * 8)]
    assert not [line for line in inside if "in range(20)" in line]


def test_conditions_that_turn_are_traced_again():
    def kinked(x):
        total = 0.0
        for i in range(len(x)):
            for j in range(i):
                if x[i] > x[j]:
                    total = total + x[i] * x[j]
                else:
                    total = total - x[j] ** 2
        return total

    derivative = value_and_grad(kinked, compile="never")
    for x in (ramp(14), -ramp(14), np.sin(7.0 * ramp(14))):
        value, gradient = derivative(x)
        assert value == pytest.approx(kinked(x))
        h = 1e-6 * np.cos(np.arange(14.0))
        slope = (kinked(x + h) - kinked(x - h)) / 2
        assert gradient @ h == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("mode", ["never", "always"])
def test_second_derivatives(mode):
    direction = np.cos(np.arange(14.0))

    def along(x):
        return np.sum(grad(pairs)(x) * direction)

    x, h = ramp(14), 1e-5 * direction
    expected = (np.asarray(grad(pairs)(x + h)) - grad(pairs)(x - h)) / 2e-5
    np.testing.assert_allclose(grad(along, compile=mode)(x), expected, rtol=1e-6, atol=1e-8)


def mixed(x):
    total = x[0]
    weights = [0.1 * k for k in range(14)]
    for i in range(14):
        for j in range(i):
            total = total * 0.9 + np.sin(weights[j] * x[j])
        if i == 7:
            weights = [np.cos(v) for v in list(x)]
    return total


def test_numbers_that_become_traced_values_end_the_nest():
    x = ramp(14)
    value, slope = value_and_grad(mixed, compile="never")(x)
    assert value == pytest.approx(mixed(x), rel=1e-12)
    for k in (0, 5, 13):
        step = 1e-6 * (np.arange(14) == k)
        assert slope[k] == pytest.approx(
            (mixed(x + step) - mixed(x - step)) / 2e-6, rel=1e-6, abs=1e-8
        )


def factor(A):
    """Cholesky's, whose innermost loop makes no round in the first ones of both around it."""
    L = np.zeros_like(A)
    for i in range(len(A)):
        for j in range(i + 1):
            s = A[i, j]
            for k in range(j):
                s = s - L[i, k] * L[j, k]
            if i == j:
                L[i, i] = np.sqrt(s)
            else:
                L[i, j] = s / L[j, j]
    return np.sum(L**3)


def two_behind(A):
    """Two first rounds are empty, and what they leave in `total` is a number of Python's."""
    total = 0.0
    for i in range(len(A)):
        for j in range(i - 1):
            total = total + np.sin(A[i, j]) * A[j, i]
    return total


def from_the_end(A):
    """The first rounds are those of the largest numbers."""
    y = A.copy()
    for i in range(len(A) - 1, -1, -1):
        for j in range(i + 1, len(A)):
            for k in range(i + 1, j):
                y[i, j] = y[i, j] - 0.2 * y[i, k] * y[k, j]
    return np.sum(y**2)


def carried_on(A):
    """What the first rounds leave is read by those behind them."""
    v = 1.0 * A[0]
    for i in range(len(A)):
        v[i] = 0.5 * v[i - 1] + A[i, i]
        for j in range(i):
            v[j] = v[j] + 0.1 * v[i] * A[i, j]
    return np.sum(v**2)


def set_within(A):
    """What an inner loop sets isn't there in the first round: this one stands in front."""
    total = 0.0 * A[0, 0]
    for i in range(len(A)):
        for j in range(i):
            last = A[i, j] ** 2
        if i > 0:
            total = total + last
    return total


EMPTY = (factor, two_behind, from_the_end, carried_on)


def definite(rng, n):
    B = rng.standard_normal((n, n))
    return B @ B.T / max(n, 1) + 2 * np.eye(n)


@pytest.mark.parametrize("f", EMPTY)
def test_the_loop_begins_with_rounds_in_which_loops_are_empty(f):
    """No other code of them stands in front: each statement is one loop, without guards."""
    _, tape = trace(f, definite(np.random.default_rng(0), 30))
    tapes, lines = [tape], []
    for each in tapes:
        assert not each.guards
        loops = [call for call in each.calls if isinstance(call.primitive, Repeated)]
        lines += [call.src.line for call in loops if not call.primitive.instead]
        tapes += [call.primitive.body for call in loops]
    assert len(lines) == len(set(lines)) == depth(tape)


@pytest.mark.every(2)
@pytest.mark.parametrize("f", [*EMPTY, set_within])
def test_other_lengths_are_what_plain_numpy_computes(f):
    """0, 1 and 2 among them, in which no inner loop makes a round."""
    rng, derived = np.random.default_rng(1), value_and_grad(f)
    for n in (9, 12, 2, 1, 0, 7, 12):
        if n == 0 and f in (carried_on, set_within):
            continue  # an IndexError in plain Python
        A, direction = definite(rng, n), 1e-6 * rng.standard_normal((n, n))
        value, slope = derived(A)
        assert value == pytest.approx(f(A), rel=1e-12, abs=1e-12)
        change = f(A + direction) - f(A - direction)
        assert 2 * np.sum(slope * direction) == pytest.approx(change, rel=1e-5, abs=1e-9)


def factor(a):
    """Cholesky's, by rows behind the first one."""
    a = a.copy()
    a[0, 0] = np.sqrt(a[0, 0])
    for i in range(1, len(a)):
        for j in range(i):
            a[i, j] = (a[i, j] - a[i, :j] @ a[j, :j]) / a[j, j]
        a[i, i] = np.sqrt(a[i, i] - a[i, :i] @ a[i, :i])
    return np.sum(np.cos(np.tril(a)))


def test_a_number_of_the_outer_round_says_where_the_inner_one_is():
    """`i` is a sum of a step and a number: all of the nest is in kernels."""
    a = 0.1 * np.cos(np.arange(400.0)).reshape(20, 20)
    a = a @ a.T + np.eye(20)
    value, slopes = value_and_grad(factor, compile="always")(a)
    assert value == pytest.approx(factor(a))
    along = np.sin(np.arange(400.0)).reshape(20, 20)
    ends = factor(a + 1e-6 * along), factor(a - 1e-6 * along)
    assert np.sum(slopes * along) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)
    plan = pipeline.schedule(trace(factor, a)[1]).plan
    assert not any(isinstance(step, PythonCall) for step in walk(plan.steps))
