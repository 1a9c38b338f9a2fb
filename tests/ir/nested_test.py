"""Tapes that hold tapes that hold tapes: all that is done with a tape reaches the innermost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.tapes import Kept, around, assert_same_values, tape

from tapegrad.backends.numpy.play import run
from tapegrad.checking.tape_verify import verify
from tapegrad.errors import InternalError, TapeError
from tapegrad.ir.tape import Builder, Guard, Tape, everywhere, literal, with_inner
from tapegrad.ir.text import parse
from tapegrad.optimize.composites import expand_composites
from tapegrad.optimize.cse import eliminate_common
from tapegrad.optimize.dce import prune, remove_dead
from tapegrad.optimize.inline import inline_calls, inline_custom
from tapegrad.optimize.simplify import simplify
from tapegrad.optimize.stops import drop_stops
from tapegrad.primitives.base import Primitive, Writer
from tapegrad.primitives.control import CallTape, Custom
from tapegrad.primitives.kinks import Composite, turned

Pass = Callable[[Tape], Tape]
KB = 1000  # an f8[125]


def rule(cts, outs, xs):
    return cts


def custom(inner: Tape) -> Primitive:
    return Custom("mine", inner, rule)


def deep(inner: Tape) -> Tape:
    """The tape in a tape in a tape."""
    return verify(around(around(inner, Kept), Kept, name="h"))


def innermost(outer: Tape) -> Tape:
    """The tape that no other one is in."""
    held = [inner for call in outer.calls for inner in call.primitive.tapes]
    return innermost(held[0]) if held else outer


def longest(outer: Tape) -> int:
    """Of how many calls the innermost tape is."""
    return len(innermost(outer))


TWICE = tape(
    "f8[3]", "%2 = exp(%1) : f8[3]\n%3 = exp(%1) : f8[3]\n%4 = add(%2, %3) : f8[3]\nout %4"
)
UNUSED = tape("f8[3]", "%2 = exp(%1) : f8[3]\n%3 = sin(%1) : f8[3]\nout %3")
DOUBLE = tape("f8[3]", "%2 = neg(%1) : f8[3]\n%3 = neg(%2) : f8[3]\n%4 = exp(%3) : f8[3]\nout %4")
STOPPED = tape("f8[3]", "%2 = stop_gradient(%1) : f8[3]\n%3 = exp(%2) : f8[3]\nout %3")


@pytest.mark.parametrize(
    "step, inner, left",
    [
        pytest.param(eliminate_common, TWICE, 2, id="cse"),
        pytest.param(simplify, TWICE, 2, id="simplify, equal calls"),
        pytest.param(simplify, DOUBLE, 2, id="simplify"),
        pytest.param(remove_dead, UNUSED, 1, id="dce"),
        pytest.param(prune, UNUSED, 1, id="prune"),
        pytest.param(drop_stops, STOPPED, 1, id="stops"),
    ],
)
def test_a_pass_goes_through_all_tapes(step, inner, left):
    before = deep(inner)
    after = verify(step(before))
    assert longest(after) == left
    assert innermost(after).outputs[0].aval == inner.outputs[0].aval
    assert_same_values(before, after)


def test_composites_are_expanded_everywhere():
    builder = Builder("kinked")
    writer = Writer(builder)
    xs = [writer.node(builder.input(TWICE.inputs[0].aval)) for _ in range(3)]
    before = deep(builder.finish([turned(xs[:1], *xs[1:]).operand]))
    after = expand_composites(before)
    assert isinstance(innermost(before).calls[0].primitive, Composite)
    assert not any(isinstance(c.primitive, Composite) for c in innermost(after).calls)
    assert_same_values(before, after)


@pytest.mark.parametrize("step", [simplify, eliminate_common, remove_dead, inline_calls])
def test_users_rules_stay_until_the_tape_is_settled(step):
    """And with them what their operands and results are, whether the body needs them or not."""
    body = tape("f8[3] f8[3]", "%3 = exp(%1) : f8[3]\n%4 = sin(%1) : f8[3]\nout %3, %4")
    builder = Builder("f")
    x, y = (builder.input(var.aval) for var in body.inputs)
    first, _ = builder.call(custom(around(body, custom)), [x, y])
    after = step(builder.finish([first]))
    (call,) = after.calls
    assert isinstance(call.primitive, Custom) and call.primitive.backward is rule
    assert len(call.operands) == len(call.outs) == 2
    (inner,) = call.primitive.tape.calls
    assert isinstance(inner.primitive, Custom) and inner.primitive.backward is rule
    assert len(inner.primitive.tape.inputs) == len(inner.primitive.tape.outputs) == 2


def test_calls_are_inlined_in_what_stays():
    """A call in a user's primitive goes, and the primitive stays."""
    after = inline_calls(around(around(around(TWICE)), custom))
    (call,) = after.calls
    assert isinstance(call.primitive, Custom)
    assert call.primitive.tape.calls == TWICE.calls
    assert inline_custom(around(around(around(TWICE)), custom)).calls == TWICE.calls


def test_what_will_be_inlined_is_left_alone_until_it_is():
    before = around(around(around(TWICE, custom), Kept))
    assert eliminate_common(before) is not before
    assert innermost(eliminate_common(before)) == TWICE
    after = eliminate_common(inline_custom(before))
    (call,) = after.calls
    assert isinstance(call.primitive, Kept)
    assert len(call.primitive.tape) == 2  # of calls in the place of those of the user's primitive
    assert_same_values(before, after)


def test_a_tape_without_tapes_is_left_alone():
    assert with_inner(TWICE, lambda inner: UNUSED) is TWICE
    nothing = everywhere(lambda one: one)
    before = deep(TWICE)
    assert nothing(before) is before
    assert nothing.__name__ == "<lambda>"


# ---- checking, printing, drawing


def test_the_innermost_tape_is_checked():
    broken = replace(TWICE, outputs=(replace(TWICE.outputs[0], id=99),))
    outer = around(around(TWICE))
    wrong = with_inner(outer, lambda middle: with_inner(middle, lambda _: broken))
    with pytest.raises(InternalError, match="%99 is used but not defined"):
        verify(wrong)


@pytest.mark.parametrize("primitive", [CallTape, custom], ids=["call", "custom"])
def test_operands_are_those_of_the_tape(primitive):
    outer = around(TWICE, primitive)
    longer = tape("f8[4]", "%2 = exp(%1) : f8[4]\nout %2")
    (call,) = outer.calls
    held = replace(call, primitive=call.primitive.with_tapes([longer]))
    with pytest.raises(InternalError, match="doesn't take its operands"):
        verify(replace(outer, calls=(held,)))


def test_four_levels_print_and_parse_back():
    made = TWICE
    for name in "abcd":
        made = around(made, name=name)
    assert parse(str(made)) == made
    assert str(made).count("= tape") == 4
    assert made.to_networkx().nodes["call 0"]["label"] == "call(%1, tape=@1)"


def test_a_drawing_numbers_tapes_as_the_text_does():
    builder = Builder("f")
    x = builder.input(TWICE.inputs[0].aval)
    (y,) = builder.call(CallTape(TWICE), [x])
    made = builder.finish(builder.call(CallTape(UNUSED), [y]))
    labels = [data["label"] for _, data in made.to_networkx().nodes(data=True)]
    assert "call(%1, tape=@1)" in labels and "call(%2, tape=@2)" in labels


# ---- playing


def guarded(primitive: Callable[[Tape], Primitive]) -> Tape:
    """A guard, three tapes deep: the first element is positive."""
    inner = tape(
        "f8[3]",
        """
        %2 = getitem(%1, index=(0,)) : f8[]
        %3 = greater(%2, 0.0) : b1[]
        %4 = exp(%1) : f8[3]
        out %4
        """,
    )
    guard = Guard(inner.calls[1].out, literal(True, bool), "the sign")
    return around(around(replace(inner, guards=(guard,)), primitive), primitive)


@pytest.mark.parametrize("primitive", [CallTape, custom], ids=["call", "custom"])
def test_a_guard_inside_is_the_whole_tapes(primitive):
    made = guarded(primitive)
    right, wrong = np.ones(3), -np.ones(3)
    results, broken = run(made, [right])
    assert broken is None
    np.testing.assert_array_equal(results[0], np.exp(right))
    results, broken = run(made, [wrong])
    assert broken is not None and broken.what == "the sign" and not results
    with pytest.raises(TapeError, match="the sign"):
        made.play(wrong)
    with pytest.raises(TapeError, match="the sign"):
        made.calls[0].primitive.evaluate(wrong)


# ---- memory


def test_what_is_inside_counts_and_results_count_once():
    body = tape(
        "f8[125]",
        """
        %2 = exp(%1) : f8[125]
        %3 = sin(%2) : f8[125]
        %4 = cos(%3) : f8[125]
        out %4
        """,
    )
    flat, outer = body.memory_report(), around(around(body)).memory_report()
    assert outer.intermediate_count == flat.intermediate_count == 3
    assert outer.intermediate_bytes == flat.intermediate_bytes == 3 * KB
    assert flat.peak_live_bytes == 2 * KB
    assert outer.peak_live_bytes == 3 * KB  # the result has its memory from the start
    assert (outer.parameter_count, outer.parameter_bytes) == (1, KB)


# ---- one primitive


def test_a_primitive_says_which_tapes_it_holds():
    first, second = CallTape(TWICE), custom(TWICE)
    assert first.tapes == second.tapes == (TWICE,)
    assert first.with_tapes([UNUSED]) == CallTape(UNUSED)
    assert second.with_tapes([UNUSED]) == Custom("mine", UNUSED, rule)
    plain = TWICE.calls[0].primitive
    assert plain.tapes == () and plain.with_tapes([]) is plain
