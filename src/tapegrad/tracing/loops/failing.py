"""The guards of a loop's rounds that don't hold in all of them.

The first one that fails ends the loop. Each of them is a branch that another round takes otherwise;
so that the trace isn't made again for one after the other, the rounds are played to the end:

    guard %a          %ok' = and(%ok, %a == True)
    guard %b   -->    ...

Behind a branch that goes the other way they compute something else than the program does. So this
tells which branches may go both ways, which is looked at no further than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.errors import TapeError
from tapegrad.ir.tape import Aval, Builder, Guard, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.loops import Loop

LONGEST = 1000  # rounds of a loop with a condition that are played for this


def evaluated(loop: Loop, *values: Any) -> Any:
    """What a loop comes to; an error for a guard that fails holds all that do."""
    try:
        return loop.evaluate(*values)
    except TapeError as error:
        if isinstance(error.guard, Guard):
            error.failing = (error.guard, *_failing(loop, values))
        raise


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
    if loop.until:  # it may go on for ever
        values = [min(values[0], np.int64(LONGEST)), *values[1:]]
    given = [*values[:first], *[np.bool_(True)] * len(held), *values[first:]]
    try:
        with np.errstate(all="ignore"):
            found = replace(loop, body=tape, carried=n + len(held)).evaluate(*given)
    except Exception as error:
        let_through(error)
        return []
    return [guard for guard, holds in zip(guards, found[n:], strict=False) if not holds]
