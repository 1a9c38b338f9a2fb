"""Constant folding: elementwise calls on literals are literals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.tapes import assert_same_values, tape

from tapegrad.ir.tape import Guard, literal
from tapegrad.optimize.simplify import simplify

FOLDED = {
    "arithmetic": (
        """
        %2 = mul(2.0, 3.0) : f8[]
        %3 = add(%1, %2) : f8[3]
        out %3
        """,
        """
        %2 = add(%1, 6.0) : f8[3]
        out %2
        """,
    ),
    "a chain": (
        """
        %2 = exp(0.0) : f8[]
        %3 = add(%2, 2.0) : f8[]
        %4 = neg(%3) : f8[]
        out %4
        """,
        "out -3.0",
    ),
    "in the operands' own precision": (
        """
        %2 = div(f4(1.0), f4(3.0)) : f4[]
        out %2
        """,
        "out f4(0.33333334)",
    ),
    "integers wrap": (
        """
        %2 = add(i1(127), i1(1)) : i1[]
        out %2
        """,
        "out i1(-128)",
    ),
    "infinities, NaN and signed zeros": (
        """
        %2 = div(1.0, -0.0) : f8[]
        %3 = sub(%2, %2) : f8[]
        %4 = mul(-0.0, 2.0) : f8[]
        out %2, %3, %4
        """,
        "out f8(-inf), f8(nan), -0.0",
    ),
    "comparisons and choices": (
        """
        %2 = less(1.0, 2.0) : b1[]
        %3 = where(%2, 5.0, 7.0) : f8[]
        out %2, %3
        """,
        "out True, 5.0",
    ),
    "casts": (
        """
        %2 = astype(0.1, dtype=f4) : f4[]
        %3 = astype(%2, dtype=f8) : f8[]
        out %3
        """,
        "out 0.10000000149011612",
    ),
}


@pytest.mark.parametrize(("before", "after"), FOLDED.values(), ids=FOLDED)
def test_folding(before, after):
    folded = simplify(tape("f8[3]", before))
    assert str(folded) == str(tape("f8[3]", after))
    assert_same_values(tape("f8[3]", before), folded)
    assert simplify(folded) == folded


def test_a_guard_that_holds_is_dropped_and_one_that_fails_is_not():
    made = tape("f8[]", "%2 = less(1.0, 2.0) : b1[]\nout %1")
    condition = made.calls[0].out
    holds, fails = (Guard(condition, literal(value, bool)) for value in (True, False))
    folded = simplify(replace(made, guards=(holds, fails)))
    assert folded.guards == (Guard(literal(True, bool), literal(False, bool)),)


def test_folding_doesnt_warn():
    with np.errstate(all="raise"):
        folded = simplify(tape("f8[]", "%2 = log(-1.0) : f8[]\nout %2"))
    assert str(folded.outputs[0]) == "f8(nan)"
