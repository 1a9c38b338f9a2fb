"""Which calls may write over their first operand, and each reason why others may not."""

from __future__ import annotations

import pytest
from tests.tapes import tape

from tapegrad.ir.updates import in_place, kept_in_place

ROW = "index=(0, Slice(0, 3, 1)), moves=((1, 0),)"
INPUTS = "i8[] f8[4,3] f8[3]"  # a step, an array, a row


def of(body, own=(1,)):
    """The calls that are made in place, and the views that are copied, by their positions."""
    found = in_place(tape(INPUTS, body), own)
    return sorted(found.updates), sorted(found.copies)


PUT = f"%4 = set_window(%2, %3, %1, {ROW}) : f8[4,3]"


def test_what_is_not_read_again_is_written_over():
    assert of(f"{PUT}\nout %4") == ([0], [])


def test_what_an_update_made_is_the_tapes_own():
    """The first one copies what isn't."""
    second = f"%5 = add_window(%4, %3, %1, {ROW}) : f8[4,3]"
    assert of(f"{PUT}\n{second}\nout %5", own=()) == ([1], [])
    assert of(f"{PUT}\n{second}\nout %5") == ([0, 1], [])


READ = "%5 = sum(%2, axes=(0, 1)) : f8[]"
NOT = {
    "an input that isn't the tape's own": (f"{PUT}\nout %4", ()),
    "it is read later": (f"{PUT}\n{READ}\nout %4, %5", (1,)),
    "it is a result": (f"{PUT}\nout %4, %2", (1,)),
    "a guard reads it": (
        f"""
        %6 = getitem(%2, index=(0, 0)) : f8[]
        %7 = greater(%6, 0.0) : b1[]
        %8 = add(%2, 1.0) : f8[4,3]
        %4 = set_window(%8, %3, %1, {ROW}) : f8[4,3]
        guard %7 = True
        out %4
        """,
        (1,),
    ),
    "it is written to it itself": (
        "%4 = set_window(%2, %2, index=(Slice(0, 4, 1), Slice(0, 3, 1)), moves=()) : f8[4,3]\n"
        "out %4",
        (1,),
    ),
    "all of it is seen by a view that is read later": (
        f"""
        %5 = transpose(%2, axes=(1, 0)) : f8[3,4]
        %4 = set_window(%2, %3, %1, {ROW}) : f8[4,3]
        %6 = sum(%5, axes=(0, 1)) : f8[]
        out %4, %6
        """,
        (1,),
    ),
    "a view of a view is": (
        f"""
        %5 = transpose(%2, axes=(1, 0)) : f8[3,4]
        %6 = reshape(%5, shape=(12,)) : f8[12]
        %4 = set_window(%2, %3, %1, {ROW}) : f8[4,3]
        out %4, %6
        """,
        (1,),
    ),
}


@pytest.mark.parametrize("body, own", NOT.values(), ids=NOT)
def test_others_are_not(body, own):
    assert of(body, own) == ([], [])


def test_a_part_that_is_read_later_is_copied():
    body = f"""
        %5 = window(%2, %1, {ROW}) : f8[3]
        %4 = set_window(%2, %3, %1, {ROW}) : f8[4,3]
        %6 = add(%5, 1.0) : f8[3]
        out %4, %6
        """
    assert of(body) == ([1], [0])


def test_a_part_that_is_not_is_left():
    body = f"""
        %5 = window(%2, %1, {ROW}) : f8[3]
        %6 = add(%5, 1.0) : f8[3]
        %4 = set_window(%2, %6, %1, {ROW}) : f8[4,3]
        out %4, %6
        """
    assert of(body) == ([2], [])


# ---- what rounds carry


def kept(body, count=2, inputs="i8[] f8[4,3] f8[4,3] f8[3]"):
    return kept_in_place(tape(inputs, body), 1, count)


PUT_FIRST = f"%5 = set_window(%2, %4, %1, {ROW}) : f8[4,3]"
PUT_SECOND = f"%6 = set_window(%3, %4, %1, {ROW}) : f8[4,3]"


def test_arrays_that_are_only_updated_stay():
    assert kept(f"{PUT_FIRST}\n{PUT_SECOND}\nout %5, %6") == (0, 1)


def test_by_several_updates_too():
    again = f"%6 = add_window(%5, %4, %1, {ROW}) : f8[4,3]"
    assert kept(f"{PUT_FIRST}\n{again}\nout %6, %3") == (0,)


MOVES = {
    "made anew": "%5 = add(%2, 1.0) : f8[4,3]\nout %5, %3",
    "left as it is": "out %2, %3",
    "turning with another": f"{PUT_FIRST}\n{PUT_SECOND}\nout %6, %5",
    "two of one": f"{PUT_FIRST}\nout %5, %5",
    "read after it is updated": f"{PUT_FIRST}\n%6 = add(%2, 1.0) : f8[4,3]\nout %5, %6",
    "updated after another result was made of it": (
        f"%7 = add(%2, 1.0) : f8[4,3]\n%5 = set_window(%7, %4, %1, {ROW}) : f8[4,3]\nout %5, %3"
    ),
}


@pytest.mark.parametrize("body", MOVES.values(), ids=MOVES)
def test_others_move(body):
    assert kept(body) == ()


def test_one_stays_though_another_moves():
    assert kept(f"{PUT_FIRST}\n%6 = add(%3, 1.0) : f8[4,3]\nout %5, %6") == (0,)


def test_an_array_that_is_there_to_be_filled_is_written_over():
    """Nobody has looked at it, so it is the tape's own."""
    empty = "%4 = empty(shape=(4, 3), dtype=float64) : f8[4,3]"
    put = f"%5 = set_window(%4, %3, %1, {ROW}) : f8[4,3]"
    assert of(f"{empty}\n{put}\nout %5", own=()) == ([1], [])
    assert of(f"{empty}\n{put}\nout %5, %4", own=()) == ([], [])
