"""Plans run as they are written, and what a run finds wrong with them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ir.plans_by_hand import AT, I, N, add_up, alone, along, cell, plan, step, store, total
from tests.tapes import tape

from tapegrad.checking.plan_run import run_plan
from tapegrad.errors import InternalError
from tapegrad.ir.allocation import Allocation, Home, Slot
from tapegrad.ir.plan import count_accesses
from tapegrad.ir.steps import Loop
from tapegrad.pipeline import lowered, schedule

X, OUT = cell(role="input"), cell(role="output")
VALUES = [np.arange(N) + 1.0]


def test_elements_in_order():
    (found,) = run_plan(plan(along(OUT, X, X)), VALUES).results
    np.testing.assert_array_equal(found, 2 * VALUES[0])


def test_a_status_is_that_of_the_first_check_that_fails():
    guarded = tape(
        "f8[2] i8[2]",
        """
        %3 = getitem(%1, index=(0,)) : f8[]
        %4 = greater(%3, 0.0) : b1[]
        %5 = gather(%1, %2) : f8[2]
        guard %4 = True
        out %5
        """,
    )
    scheduled = schedule(guarded)
    for one in (
        lambda *xs: run_plan(lowered(guarded), xs),
        lambda *xs: run_plan(scheduled.plan, xs, scheduled.allocation, scheduled.nested),
    ):
        right, wrong = np.array([1.0, 2.0]), np.array([-1.0, 2.0])
        assert one(right, np.array([1, -2])).status == 0
        assert {one(wrong, np.array([0, 0])).status, one(right, np.array([0, 2])).status} == {1, 2}
        np.testing.assert_array_equal(one(right, np.array([1, -2])).results[0], [2.0, 1.0])


def test_work_counts_accesses():
    small, large = (
        count_accesses(lowered(tape(f"f8[{n}]", f"%2 = exp(%1) : f8[{n}]\nout %2"))) for n in (3, 6)
    )
    assert large == 2 * small


# ---- what is found


def wrong(given, message, allocation=None):
    with pytest.raises(InternalError, match=message):
        run_plan(given, VALUES, allocation)


def test_what_is_not_written_is_not_read():
    t = cell()
    wrong(plan(step(t, X), along(OUT, t)), "t: it is read before it is written")


def test_results_are_written_whole():
    wrong(plan(step(OUT, X)), "out: a result isn't written whole")


def test_a_sum_is_not_read_while_it_is_added_up():
    t = total()
    inside = Loop(I, (add_up(t, X), store(OUT, (AT,), t)))
    wrong(plan(alone(t, 0.0), inside), "t: it was read before all its terms were in it")


def test_what_was_read_is_not_written_again():
    t = cell()
    wrong(plan(along(t, X), along(OUT, t), along(t, OUT), along(OUT, t)), "written again after")


def test_a_register_holds_one_iteration():
    """What it holds in another isn't there any more, though it stands in the same place."""
    t = cell(axes=())
    other = -AT + (N - 1)
    body = (store(t, (AT,), X, (AT,)), store(OUT, (AT,), t, (other,)))
    wrong(plan(Loop(I, body)), "t: it is read where another has been written over it")


def test_memory_holds_what_was_written_there_last():
    a, b = cell(), cell()
    slot = Slot(X.dtype, N)
    given = plan(along(a, X), along(b, X), along(OUT, a, b))
    apart = Allocation((slot, Slot(X.dtype, N)), {a: Home(slot, 0), b: Home(Slot(X.dtype, N), 0)})
    np.testing.assert_array_equal(run_plan(given, VALUES, apart).results[0], 2 * VALUES[0])
    shared = Allocation((slot,), {a: Home(slot, 0), b: Home(slot, 0)})
    wrong(given, "t: it is read where another has been written over it", shared)
