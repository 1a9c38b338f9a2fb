"""Rerolling inside of calls: in the rounds of explicit loops, and in conditionals.

A plain loop in a round of `scan` was recorded round by round. It becomes a loop in the body. Arrays
of the values that differ from round to round become further inputs of the body, and are passed on
from the outer tape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tapegrad.ir.inputs import unused, with_inputs
from tapegrad.ir.tape import Aval, Call, Tape
from tapegrad.optimize.reroll import reroll
from tapegrad.optimize.unrolled import searched

Arrays = tuple[np.ndarray, ...]


def reroll_bodies(tape: Tape) -> tuple[Tape, Arrays]:
    """The tape with loops in its calls' sub-tapes, and the values of new last inputs that these
    loops read."""
    known: dict[int, tuple[Tape, Arrays]] = {}
    calls: list[Call] = []
    further: list[np.ndarray] = []
    for call in tape.calls:
        for body in searched(call):
            if id(body) not in known:
                known[id(body)] = _rerolled(body)
            found, arrays = known[id(body)]
            if found is not body:
                inputs = unused(tape, _avals([*further, *arrays]))[len(further) :]
                primitive = call.primitive.with_tapes([found])
                call = replace(call, primitive=primitive, operands=(*call.operands, *inputs))
                further += arrays
        calls.append(call)
    if all(new is old for new, old in zip(calls, tape.calls, strict=True)):
        return tape, ()
    inputs = unused(tape, _avals(further))
    names = [f"w{k}" for k in range(len(further))]
    return with_inputs(replace(tape, calls=tuple(calls)), inputs, names), tuple(further)


def _rerolled(body: Tape) -> tuple[Tape, Arrays]:
    """A tape with loops, in its sub-tapes too, and the values of its new last inputs."""
    found = reroll(body)
    tape = found.tape if len(found.tape) < len(body) else body
    tape, arrays = reroll_bodies(tape)
    return tape, (*found.further, *arrays) if len(found.tape) < len(body) else arrays


def _avals(arrays: Sequence[np.ndarray]) -> list[Aval]:
    return [Aval(x.shape, x.dtype) for x in arrays]
