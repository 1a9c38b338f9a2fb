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
