"""Which calls may write into the memory of their first operand.

A call that `updates` gives its first operand with a part changed. Where nobody reads the operand
after it, through a view neither, and its memory is the tape's own, no copy has to be made:

    %3 = set_window(%1, %2, ...)        %1 is not read again: written in place

That is so in memory that an earlier update has made, and in inputs that a caller says are `own`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import numpy as np

from tapegrad.ir.tape import Call, Tape, Var


def in_place(tape: Tape, own: Collection[int] = ()) -> set[int]:
    """The positions of the calls that may write over their first operand; the inputs numbered in
    `own` are the tape's to write to."""
    last = _last_uses(tape)
    free: set[Var] = {tape.inputs[k] for k in own}
    found: set[int] = set()
    for position, call in enumerate(tape.calls):
        if not call.primitive.updates:
            continue
        x, *others = call.operands
        if x in free and last.get(x, -1) <= position and x not in others:
            found.add(position)
        free.add(call.out)  # in place or a copy: nobody else knows this memory
    return found


@lru_cache(maxsize=256)
def kept_in_place(body: Tape, first: int, count: int) -> tuple[int, ...]:
    """Which of `count` values that are carried from round to round stay in one piece of memory, if
    the body's inputs from `first` on are what is carried and its outputs what they become: those
    that are only updated in place."""
    outputs = list(body.outputs)
    made = {call.outs[0]: k for k, call in enumerate(body.calls) if call.primitive.updates}
    candidates = []
    for k in range(count):
        start, end = body.inputs[first + k], outputs[k]
        x: object = end
        while isinstance(x, Var) and x in made:
            x = body.calls[made[x]].operands[0]
        if x is start and end is not start and outputs.count(end) == 1:
            candidates.append(k)
    while True:
        places = in_place(body, [first + k for k in candidates])
        kept = [k for k in candidates if _chain(body, made, outputs[k]) <= places]
        if kept == candidates:
            return tuple(kept)
        candidates = kept


def _chain(body: Tape, made: dict[Var, int], x: object) -> set[int]:
    """The positions of the updates that lead to a value."""
    found = set()
    while isinstance(x, Var) and x in made:
        found.add(made[x])
        x = body.calls[made[x]].operands[0]
    return found


def _last_uses(tape: Tape) -> dict[Var, int]:
    """Where each variable is read last, itself or through what may share its memory."""
    last: dict[Var, int] = {}
    end = len(tape.calls)
    for x in (*tape.outputs, *(guard.operand for guard in tape.guards)):
        if isinstance(x, Var):
            last[x] = end
    for position in range(end - 1, -1, -1):
        call = tape.calls[position]
        shared = max((last.get(out, -1) for out in call.outs), default=-1)
        until = position if _makes_new_memory(call) else max(position, shared)
        for x in call.operands:
            if isinstance(x, Var):
                last[x] = max(last.get(x, -1), until)
    return last


def _makes_new_memory(call: Call) -> bool:
    """Whether a call's results share no memory with its operands, or take it over."""
    primitive = call.primitive
    ufunc = getattr(primitive, "ufunc", None)
    return primitive.owns or primitive.updates or isinstance(ufunc, np.ufunc)
