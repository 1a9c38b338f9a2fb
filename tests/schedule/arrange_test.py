"""What one core does waits for what several share, and short loops over chunks become one."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emit.check import assert_agree

from tapegrad import jit, set_num_threads, trace
from tapegrad.ir.plan import Plan, is_fill, is_parallel, leaves, segments
from tapegrad.ir.steps import CheckRange, Compute
from tapegrad.pipeline import looped, schedule
from tapegrad.schedule.arrange import arrange

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr("tapegrad.schedule.parallelise.GRAIN", 64)
    yield
    set_num_threads()


def normal(*shape):
    return RNG.normal(size=shape)


def few(x):
    """Some work, no function: those of short rows run in loops of their own."""
    return x * x * 0.5 + x


def two_sums(x, y):
    """The chunks' parts of the one are added up before the other's are found, as it is written."""
    s = np.sum(few(x), axis=0)
    t = np.sum(few(y), axis=0)
    return s * t


def sums_of_sums(x, y):
    """Each loop needs what the one before has found: no order is better."""
    s = np.sum(few(x), axis=0)
    t = np.sum(few(y * s), axis=0)
    return np.sum(few(y * t), axis=0)


def checked(x, y, i):
    """What is read by index waits for the check of it."""
    s = np.sum(few(x), axis=0)
    t = np.sum(few(y[i]), axis=0)
    return s * t


def other_chunks(x, y):
    """Loops over more chunks and fewer stay apart."""
    return np.sum(few(x), axis=0) * np.sum(few(y[:6]), axis=0)


def a_number_between(x, y):
    """It is added up in a register by one kernel, and read by a later one."""
    total = np.sum(y[0])
    s = np.sum(few(x), axis=0)
    return few(y * s) * total


INDEX = np.arange(39) % 7
CASES = {
    # name: function, arguments, the kernels: whether several cores share each
    "two sums": (two_sums, (normal(40, 9), normal(40, 9)), [True, False]),
    "sums of sums": (
        *(sums_of_sums, (normal(40, 9), normal(40, 9))),
        [True, False, True, False, True, False],
    ),
    "other chunks": (other_chunks, (normal(200, 9), normal(40, 9)), [True, True, False]),
    "checked": (checked, (normal(40, 9), normal(7, 9), INDEX), None),
    "a number between": (a_number_between, (normal(40, 9), normal(40, 9)), None),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("name", CASES)
def test_results_are_the_same(name):
    f, args, _ = CASES[name]
    _, tape = trace(f, *args)
    assert_agree(tape, [np.asarray(x) for x in args])
    compiled = jit(f, compile="always")
    for threads in (1, 3):
        set_num_threads(threads)
        np.testing.assert_allclose(compiled(*args), f(*args), 1e-12)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2]])
def test_the_kernels(name):
    f, args, kinds = CASES[name]
    _, tape = trace(f, *args)
    program = schedule(tape)
    assert [kernel.chunks > 0 for kernel in program.kernels] == kinds


def before(f, *args) -> Plan:
    """A function's plan as it is handed to `arrange`."""
    _, tape = trace(f, *args)
    stages = looped(tape)
    plan = stages.first
    for step in stages.passes:
        if step is arrange:
            return plan
        plan = step(plan)
    raise AssertionError


def test_fewer_kernels():
    plan = before(two_sums, *CASES["two sums"][1])
    assert len(segments(plan.steps)) == 4
    assert len(segments(arrange(plan).steps)) == 2


def test_an_order_that_gains_nothing_stays():
    plan = before(sums_of_sums, *CASES["sums of sums"][1])
    assert arrange(plan).steps == plan.steps


def test_nothing_moves_across_a_check():
    """An index that is out of range stops the program before it is used."""
    plan = before(checked, *CASES["checked"][1])

    def halves(plan):
        (at,) = [k for k, step in enumerate(plan.steps) if isinstance(step, CheckRange)]
        return [
            {c.hint or c.role for s in part for c, _, writes in s.accesses() if writes}
            for part in (plan.steps[:at], plan.steps[at:])
        ]

    assert halves(arrange(plan)) == halves(plan)
    compiled = jit(checked, compile="always")
    x, y, _ = CASES["checked"][1]
    with pytest.raises(IndexError):
        compiled(x, y, INDEX + 1)


def test_what_a_sum_starts_from_stands_in_its_kernel():
    plan = arrange(before(two_sums, *CASES["two sums"][1]))
    last = segments(plan.steps)[-1]
    fills = [s for step in last for s in leaves(step) if is_fill(s)]
    assert len(fills) == 2


def test_numbers_are_added_up_in_registers():
    """In memory, LLVM would add up one after the other."""
    f, args, _ = CASES["a number between"]
    _, tape = trace(f, *args)
    plan = schedule(tape).plan
    sums = [
        s.cell
        for step in plan.steps
        if not is_parallel(step)
        for s in leaves(step)
        if isinstance(s, Compute) and s.combine and s.cell.shape == ()
    ]
    assert sums
    assert all(cell.in_register for cell in sums)
    copies = [
        s for s in plan.steps if isinstance(s, Compute) and s.cell.stored and not s.cell.shape
    ]
    assert [s.reads[0].cell for s in copies] == sums
