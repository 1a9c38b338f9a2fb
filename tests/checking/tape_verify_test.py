"""Malformed tapes are found, whatever is wrong with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.tapes import tape

from tapegrad.checking.tape_verify import verify
from tapegrad.errors import InternalError
from tapegrad.ir.tape import Aval, Call, Guard, Tape, Var, literal
from tapegrad.ir.text import parse
from tapegrad.primitives.control import CallTape
from tapegrad.primitives.elementwise import add, exp

F8 = np.dtype(np.float64)
GOOD = tape("f8[3]", "%2 = exp(%1) : f8[3]\nout %2")
X, Y = GOOD.inputs[0], GOOD.outputs[0]


def test_a_good_tape_is_returned():
    assert verify(GOOD) is GOOD


MALFORMED = {
    "used before defined": (
        replace(GOOD, calls=(Call(exp, (Var(7, X.aval),), (Y,)),)),
        "%7 is used but not defined before",
    ),
    "used with another type": (
        replace(GOOD, calls=(Call(exp, (Var(1, Aval((4,), F8)),), (Y,)),)),
        "%1 is used but not defined before, or with another type",
    ),
    "defined twice": (
        replace(GOOD, calls=(*GOOD.calls, *GOOD.calls)),
        "%2 is defined twice",
    ),
    "an input defined again": (
        replace(GOOD, calls=(Call(exp, (X,), (X,)),)),
        "%1 is defined twice",
    ),
    "wrong shape": (
        replace(GOOD, calls=(Call(exp, (X,), (Var(2, Aval((4,), F8)),)),)),
        r"exp should give f8\[3\]",
    ),
    "operands that don't fit": (
        replace(
            GOOD,
            inputs=(X, Var(3, Aval((4,), F8))),
            calls=(Call(add, (X, Var(3, Aval((4,), F8))), (Y,)),),
        ),
        "add doesn't take its operands",
    ),
    "an undefined output": (
        replace(GOOD, outputs=(Var(9, X.aval),)),
        "%9 is used but not defined",
    ),
    "a guard on an array": (
        replace(GOOD, guards=(Guard(Y, literal(1.0, F8)),)),
        "the guard on %2 doesn't expect a scalar of its type",
    ),
    "a captured array of another type": (
        replace(GOOD, captured=(np.ones(4),)),
        "captured arrays don't have the types of their inputs",
    ),
    "more captured arrays than inputs": (
        replace(GOOD, captured=(np.ones(3), np.ones(3))),
        "captured arrays don't have the types of their inputs",
    ),
    "too few names": (
        replace(GOOD, inputs=(X, Var(3, X.aval)), names=("x",)),
        "2 inputs or outputs have 1 names",
    ),
}


@pytest.mark.parametrize(("malformed", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_tape_is_an_internal_error(malformed: Tape, message: str):
    with pytest.raises(InternalError, match=message):
        verify(malformed)


def test_the_message_names_the_pass_and_shows_the_calls_around():
    lines = [f"%{k + 1} = exp(%{k}) : f8[]" for k in range(1, 40)]
    long = tape("f8[]", "\n".join([*lines, "out %40"]))
    broken = list(long.calls)
    broken[20] = replace(broken[20], operands=(Var(99, Aval((), F8)),))
    with pytest.raises(InternalError) as caught:
        verify(replace(long, calls=tuple(broken)), after="simplify")
    message = str(caught.value)
    assert message.startswith("malformed tape after simplify: %99 is used")
    assert "%22 = exp(%99) : f8[]" in message
    assert "%11 = exp" not in message
    assert "%33 = exp" not in message


def test_sub_tapes_are_checked_too():
    inner = replace(GOOD, outputs=(Var(9, X.aval),))
    outer = replace(GOOD, calls=(Call(CallTape(inner), (X,), (Y,)),))
    with pytest.raises(InternalError, match="%9 is used but not defined"):
        verify(outer)


def test_a_parsed_text_may_be_malformed():
    """`parse` reads what is there; whether the types are right is for `verify` to say."""
    text = str(GOOD).replace("exp(%1) : f8[3]", "exp(%1) : f8[4]")
    with pytest.raises(InternalError, match="exp should give"):
        verify(parse(text))
