"""A conditional on the tape: two loops of one round or none, of which the second starts from what
the first one left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Literal, Operand, Tape
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.elementwise import AsType
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.windows import Empty


def record_conditional(
    record: Any, condition: Operand, sides: Sequence[tuple[Tape, Sequence[Operand]]]
) -> tuple[Operand, ...]:
    """The results of the conditional. `record` puts a call on a tape; of each side there is the
    tape, whose outputs are all of the same types, and what it reads."""
    slots = [x.aval for x in sides[0][0].outputs]
    integer = AsType(np.dtype(np.int64))
    (negated,) = record(ew.logical_not, [condition])
    counts = [record(integer, [x])[0] for x in (condition, negated)]
    ends: tuple[Operand, ...] = tuple([_empty(record, aval) for aval in slots])
    for (body, operands), count in zip(sides, counts, strict=True):
        loop = Loop(body, len(slots), 1, instead=True)
        ends = record(loop, [count, *ends, *operands])
    return ends


def _empty(record: Any, aval: Aval) -> Operand:
    if not aval.shape:
        return Literal(aval.dtype.type(0))
    found: Operand
    (found,) = record(Empty(aval.shape, aval.dtype), [])
    return found
