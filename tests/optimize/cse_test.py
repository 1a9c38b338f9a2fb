"""Common subexpressions: equal calls become one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.tapes import assert_same_values, tape

from tapegrad.ir.tape import Aval, Builder, Guard, literal
from tapegrad.optimize.cse import eliminate_common
from tapegrad.primitives.control import ForeignCall

MERGED = {
    "equal calls": (
        """
        %3 = exp(%1) : f8[3]
        %4 = exp(%1) : f8[3]
        %5 = add(%3, %4) : f8[3]
        out %5
        """,
        """
        %3 = exp(%1) : f8[3]
        %4 = add(%3, %3) : f8[3]
        out %4
        """,
    ),
    "calls that merging makes equal": (
        """
        %3 = exp(%1) : f8[3]
        %4 = exp(%1) : f8[3]
        %5 = sin(%3) : f8[3]
        %6 = sin(%4) : f8[3]
        out %5, %6
        """,
        """
        %3 = exp(%1) : f8[3]
        %4 = sin(%3) : f8[3]
        out %4, %4
        """,
    ),
    "products and sums either way round": (
        """
        %3 = mul(%1, %2) : f8[3]
        %4 = mul(%2, %1) : f8[3]
        %5 = add(%3, 1.0) : f8[3]
        %6 = add(1.0, %4) : f8[3]
        out %5, %6
        """,
        """
        %3 = mul(%1, %2) : f8[3]
        %4 = add(%3, 1.0) : f8[3]
        out %4, %4
        """,
    ),
    "a square is no product": (
        """
        %3 = mul(%1, %1) : f8[3]
        %4 = mul(%1, %2) : f8[3]
        out %3, %4
        """,
        """
        %3 = mul(%1, %1) : f8[3]
        %4 = mul(%1, %2) : f8[3]
        out %3, %4
        """,
    ),
    "differences and extrema are not turned round": (
        """
        %3 = sub(%1, %2) : f8[3]
        %4 = sub(%2, %1) : f8[3]
        %5 = maximum(%1, %2) : f8[3]
        %6 = maximum(%2, %1) : f8[3]
        out %3, %4, %5, %6
        """,
        """
        %3 = sub(%1, %2) : f8[3]
        %4 = sub(%2, %1) : f8[3]
        %5 = maximum(%1, %2) : f8[3]
        %6 = maximum(%2, %1) : f8[3]
        out %3, %4, %5, %6
        """,
    ),
    "other parameters are another call": (
        """
        %3 = expand_dims(%1, axes=(0,)) : f8[1,3]
        %4 = expand_dims(%1, axes=(1,)) : f8[3,1]
        %5 = expand_dims(%1, axes=(0,)) : f8[1,3]
        out %3, %4, %5
        """,
        """
        %3 = expand_dims(%1, axes=(0,)) : f8[1,3]
        %4 = expand_dims(%1, axes=(1,)) : f8[3,1]
        out %3, %4, %3
        """,
    ),
    "the sign of a zero counts": (
        """
        %3 = add(%1, 0.0) : f8[3]
        %4 = add(%1, -0.0) : f8[3]
        out %3, %4
        """,
        """
        %3 = add(%1, 0.0) : f8[3]
        %4 = add(%1, -0.0) : f8[3]
        out %3, %4
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), MERGED.values(), ids=MERGED)
def test_merging(before, after):
    merged = eliminate_common(tape("f8[3] f8[3]", before))
    assert str(merged) == str(tape("f8[3] f8[3]", after))
    assert_same_values(tape("f8[3] f8[3]", before), merged)
    assert eliminate_common(merged) == merged


def test_calls_of_several_results_are_merged_as_a_whole():
    twice = tape(
        "b1[2,2]",
        """
        %2, %3 = nonzero(%1, count=2, ndim=2) : i8[2], i8[2]
        %4, %5 = nonzero(%1, count=2, ndim=2) : i8[2], i8[2]
        out %2, %3, %4, %5
        """,
    )
    merged = eliminate_common(twice)
    assert len(merged) == 1
    assert merged.outputs == (*merged.calls[0].outs, *merged.calls[0].outs)


def test_equal_guards_are_merged():
    made = tape("f8[]", "%2 = less(%1, 0.0) : b1[]\n%3 = less(%1, 0.0) : b1[]\nout %1")
    guards = tuple(Guard(call.out, literal(True, bool)) for call in made.calls)
    assert len(eliminate_common(replace(made, guards=guards)).guards) == 1


def test_a_users_opaque_function_is_called_as_often_as_the_user_did():
    """It may have a state, as a random generator has."""
    builder = Builder("f")
    x = builder.input(Aval((), np.dtype(float)))
    draw = ForeignCall("draw", lambda x: np.random.default_rng().normal() * x, (x.aval,), 1)
    outs = [builder.call(draw, [x])[0] for _ in range(2)]
    assert len(eliminate_common(builder.finish(outs))) == 2


def test_arrays_that_loops_fill_stay_apart():
    """Of one array for two loops one would be a copy."""
    lines = [f"%{k} = empty(shape=(3,), dtype=float64) : f8[3]" for k in (1, 2)]
    assert len(eliminate_common(tape("", "\n".join([*lines, "out %1, %2"])))) == 2
