"""Inlining: the calls of a sub-tape in place of the call that holds it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.tapes import assert_same_bits, assert_same_values, played, tape

from tapegrad.ir.tape import Aval, Builder, Guard, Source, Tape, literal
from tapegrad.optimize.inline import inline_calls, inline_custom
from tapegrad.primitives.control import CallTape, Custom
from tapegrad.primitives.elementwise import neg

F8 = np.dtype(float)
INNER = tape("f8[3] f8[3]", "%3 = exp(%1) : f8[3]\n%4 = mul(%3, %2) : f8[3]\nout %4, %1")


def outer(primitive, src: Source | None = None, reason: str = "") -> Tape:
    """A tape that calls a primitive of two operands and two results, the first operand negated."""
    builder = Builder("f")
    x = builder.input(Aval((3,), F8))
    (negated,) = builder.call(neg, [x])
    outs = builder.call(primitive, [negated, x], src, reason)
    return builder.finish(outs)


def test_a_call_is_replaced_by_the_calls_it_holds():
    before = outer(CallTape(INNER))
    after = inline_calls(before)
    body = "%2 = neg(%1) : f8[3]\n%3 = exp(%2) : f8[3]\n%4 = mul(%3, %1) : f8[3]\nout %4, %2"
    assert str(after) == str(tape("f8[3]", body))
    assert_same_values(before, after)
    assert inline_calls(after) is after


def test_calls_within_calls_are_inlined_too():
    builder = Builder("g")
    operands = [builder.input(Aval((3,), F8)) for _ in range(2)]
    middle = builder.finish(builder.call(CallTape(INNER), operands))
    after = inline_calls(outer(CallTape(middle)))
    assert after == inline_calls(outer(CallTape(INNER)))


def test_inlined_calls_take_the_line_and_the_reason_of_the_call():
    line = Source("model.py", 12)
    after = inline_calls(outer(CallTape(INNER), line, "cotangent via f"))
    assert [str(call.src) for call in after.calls] == ["None", "model.py:12", "model.py:12"]
    assert [call.is_cotangent for call in after.calls] == [False, True, True]


def test_guards_of_a_sub_tape_are_the_outer_tapes_own():
    inner = tape("f8[3] f8[3]", "%3 = exp(2.0) : f8[]\n%4 = less(%3, 9.0) : b1[]\nout %1, %2")
    inner = replace(inner, guards=(Guard(inner.calls[1].out, literal(True, bool)),))
    after = inline_calls(outer(CallTape(inner)))
    assert after.guards == (Guard(after.calls[2].out, literal(True, bool)),)


def test_a_users_primitive_stays_until_its_rule_has_been_applied():
    custom = outer(Custom("logistic", INNER, lambda cts, outs, xs: cts))
    assert inline_calls(custom) == custom
    after = inline_custom(custom)
    assert after == inline_calls(outer(CallTape(INNER)))
    assert_same_bits(played(after), played(custom))
