"""A conditional on the tape: two loops of one round or none. The second starts from the result of
the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Aval, Builder, Literal, Operand, Tape
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.elementwise import AsType
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.windows import Empty


def record_conditional(
    record: Any, condition: Operand, sides: Sequence[tuple[Tape, Sequence[Operand]]]
) -> tuple[Operand, ...]:
    """Record a conditional and return its results. `record` puts a call on a tape. Each side is a
    tape, all with outputs of the same types, and its operands."""
    slots = [x.aval for x in sides[0][0].outputs]
    integer = AsType(np.dtype(np.int64))
    (negated,) = record(ew.logical_not, [condition])
    counts = [record(integer, [x])[0] for x in (condition, negated)]
    ends: tuple[Operand, ...] = tuple([empty(record, aval) for aval in slots])
    for (body, operands), count in zip(sides, counts, strict=True):
        loop = Loop(body, len(slots), 1, instead=True)
        ends = record(loop, [count, *ends, *operands])
    return ends


def sides(
    record: Any, conditions: Sequence[Operand], ways: Sequence[tuple[Tape, Sequence[Operand]]]
) -> tuple[Operand, ...]:
    """Record a choice among several tapes, each with its operands, and return the results of the
    first whose condition holds."""
    slots = [Aval(x.shape, x.dtype) for x in ways[0][0].outputs]
    ends: tuple[Operand, ...] = tuple([empty(record, aval) for aval in slots])
    open_: Operand = Literal(np.True_)
    for (tape, operands), condition in zip(ways, conditions, strict=True):
        (mine,) = record(ew.logical_and, [open_, condition])
        (count,) = record(AsType(np.dtype(np.int64)), [mine])
        loop = Loop(_round(tape, slots), len(slots), 1, instead=True)
        ends = record(loop, [count, *ends, *operands])
        (others,) = record(ew.logical_not, [mine])
        (open_,) = record(ew.logical_and, [open_, others])
    return ends


def _round(tape: Tape, slots: Sequence[Aval]) -> Tape:
    """A tape as the body of a loop, which ignores the carried values."""
    builder = Builder.after(tape, tape.name)
    step = builder.fresh(Aval((), np.dtype(np.int64)))
    before = [builder.fresh(aval) for aval in slots]
    return renumbered(
        replace(tape, inputs=(step, *before, *tape.inputs), names=(), output_names=())
    )


def empty(record: Any, aval: Aval) -> Operand:
    if not aval.shape:
        return Literal(aval.dtype.type(0))
    found: Operand
    (found,) = record(Empty(aval.shape, aval.dtype), [])
    return found
