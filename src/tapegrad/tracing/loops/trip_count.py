"""Loops with a condition: the maximal number of rounds.

The tape has a maximal number of rounds, so that the derivative knows how much memory to reserve. If
the user doesn't give it, it is estimated from the traced call, and guarded: a call that needs more
rounds is retraced with a larger one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.ir.tape import Tape
from tapegrad.primitives.loops import Loop
from tapegrad.tracing.loops.failed_guards import evaluated
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.tracers.tracer import Tracer, stand_in, to_operand

FEWEST = 16  # the least maximal number of rounds,
MANY, INSIDE = 1024, 64  # and more, if they take less memory than this
MEMORY = 1 << 20
UNBOUNDED = 1 << 62


class NoValues(Exception):
    """Neither the user nor a call determines the number of rounds."""


def recorded_until(
    trace: Trace, body: Tape, given: Sequence[Any], most: int | None, room: int = FEWEST
) -> list[Tracer]:
    """Record the loop. Returns the carried values after the last round, the number of rounds, and
    whether there would be another one.

    `given` holds whether there is a first round, the carried values, and the values that all rounds
    read. The body's last output says whether there is another round."""
    found = _found(trace, body, given, UNBOUNDED if most is None else most)
    if found is None and most is None:
        raise NoValues
    if most is None:
        most = max(room, 1 << int(found[-2]).bit_length())
    loop = Loop(body, len(body.outputs) - 1, most, until=True)
    outs = trace.record(loop, [to_operand(trace, x)[0] for x in (np.int64(most), *given)])
    values = (None,) * len(outs) if found is None else found
    return [stand_in(trace, x, value) for x, value in zip(outs, values, strict=True)]


def rounds_until(
    trace: Trace, body: Tape, given: Sequence[Any], most: int | None
) -> tuple[int, np.bool_]:
    """The number of rounds at this call, and whether there would be another one."""
    found = _found(trace, body, given, UNBOUNDED if most is None else most)
    if found is None:
        raise NoValues
    return int(found[-2]), np.bool_(found[-1])


def _found(trace: Trace, body: Tape, given: Sequence[Any], most: int) -> Any:
    """The results of a loop at this call; None if values are unknown."""
    values = [to_operand(trace, x)[1] for x in given]
    if trace.idle or any(value is None for value in values):
        return None
    loop = Loop(body, len(body.outputs) - 1, most, until=True)
    return evaluated(loop, np.int64(most), *values)


def room_of(body: Tape, is_inside: bool) -> int:
    """The default maximal number of rounds: larger for rounds that keep little, and smaller within
    another loop, all of whose rounds reserve the memory."""
    nbytes = sum(out.aval.nbytes for call in body.calls for out in call.outs)
    return max(FEWEST, min(INSIDE if is_inside else MANY, MEMORY // max(1, nbytes)))
