"""The guards of a loop's body that fail in some round.

The first guard that fails ends the loop. Each failing guard is a branch that goes another way in
some round. To find all of them at once, instead of one in each trace, the rounds are played to the
end:

    guard %a          %ok' = and(%ok, %a == True)
    guard %b    -->   ...

Behind a branch that goes the other way, the values aren't those of the program. So the failing
guards only tell which branches may go both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.errors import TapeError, TraceError
from tapegrad.ir.inputs import known_from
from tapegrad.ir.tape import Aval, Builder, Guard, Literal, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.loops import Loop
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.tracers.tracer import record, to_operand

LONGEST = 1000  # maximal number of rounds of a loop with a condition that are played for this


def recorded(trace: Trace, loop: Loop, operands: Sequence[Any]) -> Any:
    """Record a loop and return its results. If some values are unknown, the guards that follow from
    the known ones, such as the step, are checked first. If one fails, the error names no guard,
    since the other failing guards are unknown."""
    values = [to_operand(trace, x)[1] for x in operands]
    if any(x is None for x in values) and (part := _known_part(loop, values)) is not None:
        try:
            part[0].evaluate(*part[1:])
        except TapeError as error:
            raise TraceError("rounds take other paths, and their values aren't known") from error
    return record(trace, loop, operands, partial(evaluated, loop))


def evaluated(loop: Loop, *values: Any) -> Any:
    """The results of a loop. The error for a failing guard lists all failing guards."""
    try:
        return loop.evaluate(*values)
    except TapeError as error:
        if isinstance(error.guard, Guard):
            error.failing = (error.guard, *_failing(loop, values))
        raise


def _known_part(loop: Loop, values: Sequence[Any]) -> list[Any] | None:
    """The part of a loop that follows from its known values, and these values; None if it has no
    guard.

        inp   step, a, b : b is unknown    inp   step, a
              %1 = less(step, 3)                 %1 = less(step, 3)
              %2 = mul(b, 2.0)       -->         %2 = add(a, 1.0)
              %3 = add(a, 1.0)             guard %1 = True
        guard %1 = True                    out   %2
        out   %3, %2
    """
    if values[0] is None or loop.until or loop.later or loop.instead:
        return None
    body, n = loop.body, loop.carried
    step, *inputs = body.inputs
    start = dict(zip(inputs, values[len(values) - len(inputs) :], strict=True))
    given = [x for x in inputs if start[x] is not None]
    after = dict(zip(inputs, body.outputs, strict=False))
    while True:
        known = known_from(body, [step, *given])
        fewer = [x for x in given if isinstance(y := after.get(x, x), Literal) or y in known]
        if fewer == given:
            break
        given = fewer
    guards = tuple([guard for guard in body.guards if guard.operand in known])
    if not guards:
        return None
    carried = [x for x in inputs[:n] if x in given]
    tape = replace(
        body,
        inputs=(step, *given),
        names=("",) * (1 + len(given)),
        calls=tuple([call for call in body.calls if call.outs[0] in known]),
        guards=guards,
        outputs=tuple([after[x] for x in carried]),
    )
    part = replace(loop, body=tape, carried=len(carried))
    return [part, values[0], *[start[x] for x in given]]


def _failing(loop: Loop, values: Sequence[Any]) -> list[Guard]:
    body, n = loop.body, loop.carried
    guards = [guard for guard in body.guards if isinstance(guard.operand, Var) and not guard.error]
    builder = Builder.after(body, body.name)
    held = [builder.input(Aval((), np.dtype(bool))) for _ in guards]
    ends: list[Var] = []
    for guard, before in zip(guards, held, strict=True):
        (same,) = builder.call(ew.equal, [guard.operand, guard.expected])
        ends += builder.call(ew.logical_and, [before, same])
    tape = builder.finish([*body.outputs[:n], *ends, *body.outputs[n:]])
    step, *inputs = body.inputs
    names = ("",) * (1 + len(inputs) + len(held))
    tape = replace(tape, inputs=(step, *inputs[:n], *held, *inputs[n:]), names=names)
    first = len(values) - len(inputs) + n
    if loop.until:  # it might not end
        values = [min(values[0], np.int64(LONGEST)), *values[1:]]
    given = [*values[:first], *[np.bool_(True)] * len(held), *values[first:]]
    try:
        with np.errstate(all="ignore"):
            found = replace(loop, body=tape, carried=n + len(held)).evaluate(*given)
    except Exception as error:
        let_through(error)
        return []
    left = found if isinstance(found, tuple) else (found,)
    return [guard for guard, holds in zip(guards, left[n:], strict=False) if not holds]
