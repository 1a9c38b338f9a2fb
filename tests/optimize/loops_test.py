"""Loops at their least: each rule, and that it changes no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.tapes import assert_same_bits, tape

from tapegrad.backends.numpy.play import run
from tapegrad.checking.tape_verify import verify
from tapegrad.ir.tape import Builder, Literal, Tape
from tapegrad.optimize.dce import remove_dead
from tapegrad.optimize.loops import hoist, slim_loops
from tapegrad.primitives.loops import Loop

VALUES = [2.0, 0.5, -0.25]


def around(body: Tape, carried: int, wanted: list[int]) -> Tape:
    """A tape that runs a body five times; its outputs are some of the loop's results."""
    builder = Builder("f")
    operands = [builder.input(var.aval) for var in body.inputs[1:]]
    loop = Loop(body, carried, 5)
    outs = builder.call(loop, [Literal(np.int64(5)), *operands])
    return builder.finish([outs[k] for k in wanted])


def slimmed(inputs: str, body: str, carried: int, wanted: list[int]) -> tuple[Tape, Any]:
    """The tape, slim and without calls in vain; and the loop on it, if one is left."""
    before = around(tape(f"i8[] {inputs}", body), carried, wanted)
    after = verify(remove_dead(slim_loops(before)))
    assert remove_dead(slim_loops(after)) == after
    given = [np.full(v.shape, x, v.dtype) for v, x in zip(before.inputs, VALUES, strict=False)]
    (expected, broken), (found, other) = run(before, given), run(after, given)
    assert (broken is None) == (other is None)
    if broken is None:
        assert_same_bits(found, expected)
    return after, next((c.primitive for c in after.calls if c.primitive.name == "loop"), None)


def names(tape: Tape) -> list[str]:
    return [str(call.primitive.name) for call in tape.calls]


def test_what_is_slim_stays():
    after, loop = slimmed("f8[] f8[]", "%4 = mul(%2, %3) : f8[]\nout %4", 1, [0])
    assert names(after) == ["loop"]
    assert (loop.carried, names(loop.body)) == (1, ["mul"])


def test_what_is_the_same_in_each_round_is_computed_once():
    body = "%4 = exp(%3) : f8[]\n%5 = mul(%2, %4) : f8[]\nout %5"
    after, loop = slimmed("f8[] f8[]", body, 1, [0])
    assert names(after) == ["exp", "loop"]
    assert names(loop.body) == ["mul"]


def test_what_is_carried_on_as_it_is_is_no_carried_value():
    body = "%4 = mul(%2, %3) : f8[]\nout %4, %3"
    after, loop = slimmed("f8[] f8[]", body, 2, [0, 1])
    assert loop.carried == 1
    assert after.outputs[1] == after.inputs[1]


def test_so_what_is_computed_of_it_is_the_same_in_each_round():
    body = "%4 = exp(%3) : f8[]\n%5 = mul(%2, %4) : f8[]\nout %5, %3"
    after, loop = slimmed("f8[] f8[]", body, 2, [0])
    assert names(after) == ["exp", "loop"]
    assert loop.carried == 1


def test_what_nobody_reads_is_not_carried():
    body = "%4 = sin(%2) : f8[]\n%5 = add(%3, %4) : f8[]\nout %4, %5"
    _, loop = slimmed("f8[] f8[]", body, 2, [0])
    assert (loop.carried, names(loop.body)) == (1, ["sin"])
    _, loop = slimmed("f8[] f8[]", body, 2, [1])  # which reads the other
    assert loop.carried == 2


def test_an_invariant_that_nobody_reads_goes():
    after, loop = slimmed("f8[] f8[]", "%4 = sin(%2) : f8[]\nout %4", 1, [0])
    assert len(loop.body.inputs) == 2
    assert len(after.calls[0].operands) == 2


def test_a_loop_that_leaves_nothing_goes():
    after, loop = slimmed("f8[] f8[]", "%4 = sin(%2) : f8[]\nout %4, %3", 2, [1])
    assert loop is None and names(after) == []


GUARDED = """
    %4 = sin(%2) : f8[]
    %5 = {compare}(%4, 5.0) : b1[]
    guard %5 = True
    out %4, %3
    """


@pytest.mark.parametrize("compare", ["less", "greater"])
def test_but_not_if_its_rounds_have_guards(compare):
    _, loop = slimmed("f8[] f8[]", GUARDED.format(compare=compare), 2, [1])
    assert loop.carried == 1
    assert len(loop.body.guards) == 1


def test_views_stay_with_who_reads_them():
    """They cost nothing there."""
    body = """
        %4 = getitem(%3, index=(1,)) : f8[]
        %5 = mul(%2, %4) : f8[]
        out %5
        """
    after, loop = slimmed("f8[] f8[3]", body, 1, [0])
    assert names(after) == ["loop"]
    assert names(loop.body) == ["getitem", "mul"]


CHOLESKY = "%4, %5 = cholesky(%3) : f8[2,2], b1[]\n%6 = mul(%2, %4) : f8[2,2]\nout %6"


def test_numpys_calls_are_made_before_where_there_are_rounds():
    after, loop = slimmed("f8[2,2] f8[2,2]", CHOLESKY, 1, [0])
    assert names(after) == ["cholesky", "loop"]
    assert names(loop.body) == ["mul"]


@pytest.mark.parametrize("step", [slim_loops, hoist])
def test_but_not_where_there_may_be_none(step):
    body = tape("i8[] f8[2,2] f8[2,2]", CHOLESKY)
    builder = Builder("f")
    rounds, *operands = [builder.input(var.aval) for var in body.inputs]
    outs = builder.call(Loop(body, 1, 5), [rounds, *operands])
    after = verify(step(builder.finish(outs)))
    assert names(after) == ["loop"]


def test_loops_inside_are_slim_first():
    inner = tape("i8[] f8[] f8[]", "%4 = exp(%3) : f8[]\n%5 = mul(%2, %4) : f8[]\nout %5")
    builder = Builder("outer")
    _, s, w = [builder.input(v.aval) for v in inner.inputs]
    outer = builder.finish(builder.call(Loop(inner, 1, 3), [Literal(np.int64(3)), s, w]))
    before = around(outer, 1, [0])
    after = verify(slim_loops(before))
    assert names(after) == ["exp", "loop"]  # out of both
    given = [np.float64(2.0), np.float64(0.5)]
    assert_same_bits(run(after, given)[0], run(before, given)[0])
