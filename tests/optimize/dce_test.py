"""Dead code: what no output and no guard needs is dropped."""

from __future__ import annotations

from dataclasses import replace

from tests.tapes import assert_same_values, tape

from tapegrad.ir.tape import Guard, literal
from tapegrad.optimize.dce import remove_dead


def test_calls_that_nobody_reads_are_dropped():
    before = tape(
        "f8[3] f8[3]",
        """
        %3 = exp(%1) : f8[3]
        %4 = sin(%3) : f8[3]
        %5 = cos(%1) : f8[3]
        %6 = mul(%3, %2) : f8[3]
        out %5
        """,
    )
    after = remove_dead(before)
    assert str(after) == str(tape("f8[3] f8[3]", "%3 = cos(%1) : f8[3]\nout %3"))
    assert_same_values(before, after)
    assert remove_dead(after) == after


def test_inputs_stay():
    unread = tape("f8[3] f8[]", "out 1.0")
    assert remove_dead(unread) == unread


def test_a_call_of_which_one_result_is_read_stays():
    made = tape("b1[2,2]", "%2, %3 = nonzero(%1, count=2, ndim=2) : i8[2], i8[2]\nout %3")
    assert remove_dead(made) == made


def test_what_a_guard_needs_stays():
    made = tape("f8[]", "%2 = exp(%1) : f8[]\n%3 = less(%2, 1.0) : b1[]\nout %1")
    guarded = replace(made, guards=(Guard(made.calls[1].out, literal(True, bool)),))
    assert remove_dead(guarded) == guarded
    assert len(remove_dead(made)) == 0
