"""Checkpoints: a long loop is divided into segments, and only the starts of segments are kept.

    for t in range(n):            for s in range(n // m):
        h = body(t, h)      -->       for j in range(m):
                                          h = body(s * m + j, h)
                                  for j in range(n % m):
                                      h = body(n // m * m + j, h)

The derivative keeps the values carried into each segment. When it reaches a segment, it runs that
once more and keeps its rounds, which takes the memory of one segment. If m is about the square root
of n, starts and rounds take equal memory. A segment that is still too long is divided in turn: k
levels keep k times the k-th root of n rounds, and run each round up to k more times. Compare
Griewank and Walther, "Algorithm 799: revolve" (ACM TOMS 26, 2000), whose schedule is optimal. This
one is a nest of loops.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Builder, Call, Literal, Operand, Tape, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.kinds import Moving, Repeated
from tapegrad.primitives.loops import Loop

FEWEST = 16  # rounds: shorter loops aren't divided


def segmented(builder: Builder, call: Call) -> list[Call]:
    """The calls that replace a loop: segments, and the rest. There are about as many segments as
    rounds in one. The last call has the results. Empty if the loop can't be divided."""
    loop: Any = call.primitive
    rounds, *given = call.operands
    if loop.until or loop.later or not isinstance(rounds, Literal):
        return []
    most = min(int(rounds.value), loop.most)
    length = math.isqrt(max(0, most - 1)) + 1
    if most < FEWEST or length >= most:
        return []
    start, invariants = tuple(given[: loop.carried]), tuple(given[loop.carried :])
    count = most // length
    parts = [(_segments(loop, length, count), count)]
    if rest := most % length:
        body = _shifted(loop.body, Literal(np.int64(1)), count * length)
        parts.append((Loop(body, loop.carried, rest, loop.backwards), rest))
    if loop.backwards:
        parts.reverse()
    calls = []
    for number, (part, size) in enumerate(parts, start=1):
        outs = call.outs
        if number < len(parts):
            outs = tuple([builder.fresh(out.aval) for out in outs])
        operands = (Literal(np.int64(size)), *start, *invariants)
        calls.append(Call(part, operands, outs, call.src, call.reason))
        start = outs
    return calls


def _segments(loop: Repeated, length: int, count: int) -> Loop:
    """The loop over segments, whose round is the loop over one segment."""
    builder = Builder(f"segment_{loop.body.name}")
    segment, *inputs = [builder.input(v.aval) for v in loop.body.inputs]
    body = _shifted(loop.body, None, length)
    inner = Loop(body, loop.carried, length, loop.backwards, recomputed=True)
    rounds = Literal(np.int64(length))
    tape = builder.finish(builder.call(inner, [rounds, *inputs, segment]))
    return Loop(tape, loop.carried, count, loop.backwards)


def _shifted(body: Tape, segment: Literal | None, length: int) -> Tape:
    """The body for a step counted from the segment's start: the step of the whole loop is `length *
    segment + step`. If `segment` is None, it is a new last input."""
    builder = Builder(body.name)
    step, *inputs = [builder.input(v.aval) for v in body.inputs]
    which: Operand = builder.input(step.aval) if segment is None else segment
    env: dict[Var, Operand] = dict(zip(body.inputs[1:], inputs, strict=True))
    whole = body.inputs[0]

    def known(x: Operand) -> Operand:
        return x if isinstance(x, Literal) else env[x]

    for call in body.calls:
        primitive: Any = call.primitive
        moved = isinstance(primitive, Moving) and whole in primitive.steps(call.operands)
        if moved:
            steps = primitive.steps(call.operands)
            far = [
                tuple(length * n for n in move)
                for x, move in zip(steps, primitive.moves, strict=True)
                if x == whole
            ]
            fields = {**vars(primitive), "moves": (*primitive.moves, *far)}
            primitive = type(primitive)(**fields)
            operands = [step if x == whole else known(x) for x in call.operands]
            operands += [which] * len(far)
        else:
            if whole in call.operands and whole not in env:
                start = builder.call(ew.mul, [which, Literal(np.int64(length))])[0]
                env[whole] = builder.call(ew.add, [start, step])[0]
            operands = [known(x) for x in call.operands]
        outs = builder.call(primitive, operands, call.src, call.reason)
        env.update(zip(call.outs, outs, strict=True))
    builder.guards += [replace(guard, operand=known(guard.operand)) for guard in body.guards]
    return renumbered(builder.finish([known(x) for x in body.outputs]))
