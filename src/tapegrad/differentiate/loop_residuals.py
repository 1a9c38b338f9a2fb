"""The values that loops keep for their derivatives: all that are needed, or the states of some
rounds.

    checkpoint      kept                                     run again
    "never"         what each round's derivative needs       nothing
    "sqrt"          about twice the root of n states         each round once (`checkpoints`)
    k               k states                                 as few rounds as can be (`revolve`)
    "auto"          all, if that takes no more than `MEMORY`, and else as "sqrt"

This applies to each loop, and again to the loops in its rounds. `checkpoint(f)` recomputes `f` and
keeps the values named in `keep`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tapegrad.differentiate.activity import depends_on, without_unread
from tapegrad.differentiate.checkpoints import FEWEST, segmented
from tapegrad.differentiate.loops import Backward, Derive
from tapegrad.differentiate.revolve import Revolved
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Aval, Builder, Call, Literal, Operand, Tape, Var
from tapegrad.primitives.kinds import Repeated
from tapegrad.primitives.named import kept, named_in
from tapegrad.primitives.windows import Empty

Checkpoint = str | int

MEMORY = 1 << 28  # bytes: loops that would keep more keep some rounds only


@dataclass(frozen=True)
class Differentiable:
    """A loop that keeps what its derivative needs: the derivative, the original call, and the
    results, with the kept arrays last."""

    backward: Backward
    call: Call
    outs: tuple[Var, ...]


def with_residuals(
    tape: Tape,
    wrt: Sequence[int],
    derive: Derive,
    checkpoint: Checkpoint,
    carried: Sequence[int] = (),
) -> tuple[Tape, dict[Var, Differentiable], dict[Var, Call]]:
    """The tape with loops that keep what their derivatives need.

    Returns (tape, loops, recomputed calls). Both maps are keyed by the first variable that a loop
    defines; the second has the loops that are recomputed by a different call. Variables keep their
    numbers; further results get new ones. If the tape is a round of a loop, the inputs numbered in
    `carried` change from round to round.
    """
    if not any(isinstance(call.primitive, Repeated) for call in tape.calls):
        return tape, {}, {}
    active = depends_on(tape, wrt)
    changing = depends_on(tape, carried)
    found: dict[Var, Differentiable] = {}
    again: dict[Var, Call] = {}
    builder = Builder.after(tape, tape.name)
    builder.calls = []
    read = {*tape.outputs}
    read.update(x for call in tape.calls if not call.primitive.flat for x in call.operands)
    for call in tape.calls:
        loop = call.primitive
        if isinstance(loop, Repeated):
            call = without_unread(builder, call, read)
            loop = call.primitive
        moves = isinstance(loop, Repeated) and not loop.recomputed
        if not moves or active.isdisjoint(call.outs):
            if isinstance(loop, Repeated) and (named := named_in(loop.body, loop.keep)):
                call, again[call.outs[0]] = _with_named(builder, call, named)
            builder.calls.append(call)
            continue
        for part, backward in _parts(builder, call, active, derive, checkpoint, changing):
            if backward.wrt or backward.loop.instead:
                _keep(builder, part, backward, found)
            else:
                builder.calls.append(part)
            active.update(out for out in part.outs if out.dtype.kind in "fc")
    return replace(tape, calls=tuple(builder.calls)), found, again


def _with_named(builder: Builder, call: Call, named: Sequence[Call]) -> tuple[Call, Call]:
    """Two calls for a part of a program that is recomputed: the first returns its named values as
    further results; the second, which is run again, takes these values and reads them instead of
    computing them."""
    loop: Any = call.primitive
    body, count = loop.body, loop.carried
    avals = [c.out.aval for c in named]
    heads, given = loop.heads(call.operands), loop.given(call.operands)
    start, invariants = given[:count], given[count:]

    wider = Builder(body.name)
    step, *inputs = [wider.input(x.aval) for x in body.inputs[: 1 + count]]
    for aval in avals:
        wider.input(aval)
    inputs += [wider.input(x.aval) for x in body.inputs[1 + count :]]
    env = _appended(wider, body, [step, *inputs], {})
    ends = [*[env.get(x, x) for x in body.outputs], *[env[c.out] for c in named]]
    further = [_empty(builder, aval) for aval in avals]
    results = tuple([builder.fresh(aval) for aval in avals])
    first = replace(
        call,
        primitive=loop.changed(
            body=renumbered(wider.finish(ends)), carried=count + len(avals), keep=()
        ),
        operands=(*heads, *start, *further, *invariants),
        outs=(*call.outs, *results),
    )

    passed = Builder(body.name)
    inputs = [passed.input(x.aval) for x in body.inputs]
    there = {c.out: passed.input(c.out.aval) for c in named}
    env = _appended(passed, body, inputs, there)
    found = renumbered(passed.finish([env.get(x, x) for x in body.outputs]))
    second = replace(
        call,
        primitive=loop.changed(body=found, keep=()),
        operands=(*heads, *start, *invariants, *results),
    )
    return first, second


def _empty(builder: Builder, aval: Aval) -> Operand:
    """A value that is never read."""
    if not aval.shape:
        return Literal(aval.dtype.type(0))
    (found,) = builder.call(Empty(aval.shape, aval.dtype), [])
    return found


def _appended(
    builder: Builder, body: Tape, inputs: Sequence[Operand], there: dict[Var, Var]
) -> dict[Operand, Operand]:
    """Append the calls of a body to `builder`, and return its variables' new operands. Named values
    are replaced by those in `there`."""
    env: dict[Operand, Operand] = dict(zip(body.inputs, inputs, strict=True))
    for call in body.calls:
        outs = builder.again(call, [env.get(x, x) for x in call.operands])
        env.update(zip(call.outs, outs, strict=True))
        if call.outs[0] in there:
            (env[call.out],) = builder.call(kept, [outs[0], there[call.out]], call.src)
    builder.guards += [replace(g, operand=env.get(g.operand, g.operand)) for g in body.guards]
    return env


def _parts(
    builder: Builder,
    call: Call,
    active: set[Operand],
    derive: Derive,
    checkpoint: Checkpoint,
    changing: set[Operand],
) -> list[tuple[Call, Backward]]:
    """The loop, or the segments that replace it, in order, each with its derivative."""
    loop: Any = call.primitive
    backward = Backward(call, active, derive, changing)
    # A loop with a `later` start is part of such a schedule already.
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
    slots = 2 * math.isqrt(loop.most)  # the trip count is unknown, so it can't be divided
    return [(call, Revolved(call, active, derive, slots))]


def _keep(
    builder: Builder, call: Call, backward: Backward, found: dict[Var, Differentiable]
) -> None:
    """Record the loop that keeps values. Its last call defines the results of the original call."""
    outs = backward.forward(builder, call)
    given = dict(zip(outs, call.outs, strict=False))
    last = builder.calls.pop()
    mine = tuple([given.get(out, out) for out in last.outs])
    builder.calls.append(replace(last, outs=mine))
    found[mine[0]] = Differentiable(backward, call, (*call.outs, *outs[len(call.outs) :]))
