"""Stopped gradients: what was stopped is read itself."""

from __future__ import annotations

from tests.tapes import assert_same_values, tape

from tapegrad.optimize.stops import drop_stops


def test_stops_are_dropped():
    before = tape(
        "f8[3]",
        """
        %2 = stop_gradient(%1) : f8[3]
        %3 = exp(%2) : f8[3]
        %4 = stop_gradient(%3) : f8[3]
        %5 = stop_gradient(2.0) : f8[]
        out %3, %4, %5
        """,
    )
    after = drop_stops(before)
    assert str(after) == str(tape("f8[3]", "%2 = exp(%1) : f8[3]\nout %2, %2, 2.0"))
    assert_same_values(before, after)
    assert drop_stops(after) == after


def test_a_matrix_goes_where_its_factors_are_there():
    before = tape(
        "f8[3,3] f8[2,3]",
        """
        %3, %4 = lu(%1) : f8[3,3], i4[3]
        %5 = lu_solve(%1, %3, %4, %2, transposed=False) : f8[2,3]
        out %5
        """,
    )
    after = drop_stops(before)
    assert "lu_solve(%3, %3, %4, %2" in str(after)
    assert_same_values(before, after)
