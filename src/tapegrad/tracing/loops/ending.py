"""A loop with a condition on the tape: how many rounds it has room for.

The tape has a number of rounds that a loop makes at the most, so that its derivative knows how much
there is to keep. Where nobody gives it, it follows from the call that is traced, and a guard says
that it was enough: a call that needs more rounds is traced anew, with more room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.ir.tape import Tape
from tapegrad.primitives.loops import Loop
from tapegrad.tracing.loops.failing import evaluated
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.tracers.tracer import Tracer, stand_in, to_operand

FEWEST = 16  # rounds that there is room for at the least,
MANY, INSIDE = 1024, 64  # and where they leave less memory than this
MEMORY = 1 << 20
UNBOUNDED = 1 << 62


class NoValues(Exception):
    """Nobody has said how many rounds there may be, and no call does."""


def recorded_until(
    trace: Trace, body: Tape, given: Sequence[Any], most: int | None, room: int = FEWEST
) -> list[Tracer]:
    """What is carried after the last round, how many there were, and whether there would be another
    one. `given` is whether there is a first round, what is carried into it, and what all read; the
    body's last output says whether there is another."""
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
    """How many rounds there are, at this call, and whether there would be another one."""
    found = _found(trace, body, given, UNBOUNDED if most is None else most)
    if found is None:
        raise NoValues
    return int(found[-2]), np.bool_(found[-1])


def _found(trace: Trace, body: Tape, given: Sequence[Any], most: int) -> Any:
    """What a loop comes to at this call; None where there are no values."""
    values = [to_operand(trace, x)[1] for x in given]
    if trace.idle or any(value is None for value in values):
        return None
    loop = Loop(body, len(body.outputs) - 1, most, until=True)
    return evaluated(loop, np.int64(most), *values)


def room_of(body: Tape, is_inside: bool) -> int:
    """For how many rounds there is room anyway: for more where they leave little, and where the
    loop isn't in another one, all of whose rounds would have it."""
    nbytes = sum(out.aval.nbytes for call in body.calls for out in call.outs)
    return max(FEWEST, min(INSIDE if is_inside else MANY, MEMORY // max(1, nbytes)))
