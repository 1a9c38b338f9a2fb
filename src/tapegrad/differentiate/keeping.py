"""What loops keep for their derivatives: all that these need, or the states of some rounds.

    checkpoint      kept                                     run again
    "never"         what each round's derivative needs       nothing
    "sqrt"          about twice the root of n states         each round once (`checkpoints`)
    k               k states                                 as few rounds as can be (`revolve`)
    "auto"          all, if that takes no more than `MEMORY`, and else as "sqrt"

That is so for each loop by itself, and for those in its rounds again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tapegrad.differentiate.activity import depends_on
from tapegrad.differentiate.checkpoints import FEWEST, segmented
from tapegrad.differentiate.loops import Backward, Derive
from tapegrad.differentiate.revolve import Revolved
from tapegrad.ir.tape import Builder, Call, Operand, Tape, Var
from tapegrad.primitives.kinds import Repeated

Checkpoint = str | int

MEMORY = 1 << 28  # bytes: what would take more isn't kept, but for some rounds


@dataclass(frozen=True)
class Differentiable:
    """A loop that keeps what its derivative needs: that, the call that it was, and what it gives,
    the arrays last."""

    backward: Backward
    call: Call
    outs: tuple[Var, ...]


def with_residuals(
    tape: Tape,
    wrt: Sequence[int],
    derive: Derive,
    checkpoint: Checkpoint,
    carried: Sequence[int] = (),
) -> tuple[Tape, dict[Var, Differentiable]]:
    """The tape with loops that keep what their derivatives need, and these, by the first variable
    that such a loop defines. Variables keep their numbers; those of further results are new. Of a
    round of a loop: the inputs numbered in `carried` are other ones in each round."""
    if not any(isinstance(call.primitive, Repeated) for call in tape.calls):
        return tape, {}
    active = depends_on(tape, wrt)
    changing = depends_on(tape, carried)
    found: dict[Var, Differentiable] = {}
    builder = Builder.after(tape, tape.name)
    builder.calls = []
    for call in tape.calls:
        loop = call.primitive
        moves = isinstance(loop, Repeated) and not loop.recomputed
        if not moves or active.isdisjoint(call.outs):
            builder.calls.append(call)
            continue
        for part, backward in _parts(builder, call, active, derive, checkpoint, changing):
            if backward.wrt or backward.loop.instead:
                _keep(builder, part, backward, found)
            else:
                builder.calls.append(part)
            active.update(out for out in part.outs if out.dtype.kind in "fc")
    return replace(tape, calls=tuple(builder.calls)), found


def _parts(
    builder: Builder,
    call: Call,
    active: set[Operand],
    derive: Derive,
    checkpoint: Checkpoint,
    changing: set[Operand],
) -> list[tuple[Call, Backward]]:
    """A loop, or those which it is cut into, in order, and how each is differentiated."""
    loop: Any = call.primitive
    backward = Backward(call, active, derive, changing)
    # One that starts later is part of such a schedule already.
    if checkpoint == "never" or loop.later or not backward.wrt or not backward.nbytes:
        return [(call, backward)]
    if isinstance(checkpoint, int):
        revolves = loop.most > checkpoint
        return [(call, Revolved(call, active, derive, checkpoint) if revolves else backward)]
    if checkpoint == "auto" and backward.nbytes <= MEMORY:
        return [(call, backward)]
    if parts := segmented(builder, call):
        found = []
        for part in parts:
            found.append((part, Backward(part, active, derive, changing)))
            active.update(out for out in part.outs if out.dtype.kind in "fc")
        return found
    if loop.most < FEWEST:
        return [(call, backward)]
    slots = 2 * math.isqrt(loop.most)  # nobody knows how many rounds there are to be cut
    return [(call, Revolved(call, active, derive, slots))]


def _keep(
    builder: Builder, call: Call, backward: Backward, found: dict[Var, Differentiable]
) -> None:
    """Record a loop that keeps: the last call that does so gives what the loop gave."""
    outs = backward.forward(builder, call)
    given = dict(zip(outs, call.outs, strict=False))
    last = builder.calls.pop()
    mine = tuple([given.get(out, out) for out in last.outs])
    builder.calls.append(replace(last, outs=mine))
    found[mine[0]] = Differentiable(backward, call, (*call.outs, *outs[len(call.outs) :]))
