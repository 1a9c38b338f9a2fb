"""In-place updates: the calls that may write into the memory of their first operand.

A call that `updates` returns its first operand with a part changed. If the operand isn't read
afterwards, no copy is needed:

    %3 = set_window(%1, %2, ...)        %1 is not read again: written in place

The memory must come from an earlier update, or be an input that the caller gives to the tape. A
view of the operand that is read later is copied when it is made, if it shows only a part. A loop
updates a loop-carried value if its rounds do nothing else with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.locks import remembered
from tapegrad.ir.tape import Call, Operand, Tape, Var


@dataclass(frozen=True)
class InPlace:
    """The in-place updates of a tape.

    `updates` are the positions of the calls that may write over their first operand. `loops` maps
    the position of a loop to the loop-carried values that it may update. `results` are the results
    of both. `copies` are the positions of the views that have to be copied for that.
    """

    updates: frozenset[int]
    loops: Mapping[int, frozenset[int]]
    results: frozenset[Var]
    copies: frozenset[int]


def in_place(tape: Tape, own: Collection[int] = ()) -> InPlace:
    """The in-place updates of a tape. It may write to its inputs numbered in `own`."""
    updates: set[int] = set()
    loops: dict[int, frozenset[int]] = {}
    results: set[Var] = set()
    copies: set[int] = set()
    free: set[Var] = {tape.inputs[k] for k in own}
    if not free and not any(call.primitive.memory.updates or _loops(call) for call in tape.calls):
        return InPlace(frozenset(), {}, frozenset(), frozenset())
    uses = _Uses(tape)
    for position, call in enumerate(tape.calls):
        for number, x, out in updated(call):
            if x in free and call.operands.count(x) == 1:
                assert isinstance(x, Var)
                views = uses.views_to_copy(x, position, copies)
                if views is not None:
                    results.add(out)
                    copies |= views
                    if _loops(call):
                        loops[position] = loops.get(position, frozenset()) | {number}
                    else:
                        updates.add(position)
            free.add(out)  # in place or a copy: nothing else refers to this memory
        if call.primitive.memory.owns and not call.operands:  # a new array, made to be filled
            free.update(call.outs)
    return InPlace(frozenset(updates), loops, frozenset(results), frozenset(copies))


def updated(call: Call) -> list[tuple[int, Operand, Var]]:
    """The updates of a call as (number among the loop-carried values, value before, value
    after)."""
    if call.primitive.memory.updates:
        return [(0, call.operands[0], call.outs[0])]
    if not _loops(call):
        return []
    loop: Any = call.primitive
    given = loop.given(call.operands)
    return [(k, given[k], call.outs[k]) for k in kept_in_place(loop.body, 1, loop.carried)]


def _loops(call: Call) -> bool:
    return bool(call.primitive.repeats)


@remembered
def kept_in_place(body: Tape, first: int, count: int) -> tuple[int, ...]:
    """The numbers of the loop-carried values that stay in one piece of memory: those that are only
    updated in place.

    `count` values are carried. They are the body's inputs from `first` on, and its first outputs.
    """
    outputs = list(body.outputs)
    before: dict[Operand, Operand] = {}
    for call in body.calls:
        before.update((out, x) for _, x, out in updated(call))
    candidates = []
    for k in range(count):
        start, end = body.inputs[first + k], outputs[k]
        x = end
        while x in before:
            x = before[x]
        if x is start and end is not start and outputs.count(end) == 1:
            candidates.append(k)
    while True:
        places = in_place(body, [first + k for k in candidates]).results
        kept = [k for k in candidates if _chain(before, outputs[k]) <= places]
        if kept == candidates:
            return tuple(kept)
        candidates = kept


@remembered
def sharing(body: Tape, carried: int) -> tuple[Sequence[int], Sequence[int]]:
    """The results of a loop that may share memory with loop-carried values, and with invariants."""
    changed = set(kept_in_place(body, 1, carried))
    others = [k for k in range(carried) if k not in changed]
    made = {out for call in body.calls if makes_new_memory(call) for out in call.outs}
    return others, [k for k in others if body.outputs[k] not in made]


def _chain(before: Mapping[Operand, Operand], x: Operand) -> set[Operand]:
    """The values on the chain of updates that leads to `x`."""
    found = set()
    while x in before:
        found.add(x)
        x = before[x]
    return found


class _Uses:
    """The last use of each variable, and the results that may share its memory."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.last: dict[Var, int] = {}
        # Variable -> (position of a call, its results that may share the variable's memory).
        self.sharing: dict[Var, list[tuple[int, list[Var]]]] = {}
        for position, call in enumerate(tape.calls):
            shares = not makes_new_memory(call)
            for m, x in enumerate(call.operands):
                if isinstance(x, Var):
                    self.last[x] = position
                    if shares and (outs := [call.outs[k] for k in call.primitive.showing(m)]):
                        self.sharing.setdefault(x, []).append((position, outs))
        for y in (*tape.outputs, *(guard.operand for guard in tape.guards)):
            if isinstance(y, Var):
                self.last[y] = len(tape.calls)

    def views_to_copy(self, x: Var, position: int, copied: Collection[int]) -> set[int] | None:
        """The views of `x` that are read after the write at `position`; None if `x` is read there
        itself, or shared in another way. The inputs of a loop count as read after each of its
        writes."""
        if self.last[x] > position:
            return None
        before = position - _loops(self.tape.calls[position])
        found: set[int] = set()
        waiting = [(k, outs) for k, outs in self.sharing.get(x, ()) if k not in copied]
        while waiting:
            k, outs = waiting.pop()
            if k >= position:  # the update itself, or another operand of the same call
                continue
            call = self.tape.calls[k]
            for out in outs:
                if self.last.get(out, -1) > before:
                    part = call.primitive.memory.is_view and out.aval.nbytes < x.aval.nbytes
                    if not part:
                        return None
                    found.add(k)
                else:
                    waiting += [(j, o) for j, o in self.sharing.get(out, ()) if j not in copied]
        return found


def makes_new_memory(call: Call) -> bool:
    """Whether a call's results share no memory with its operands, or take it over."""
    primitive = call.primitive
    ufunc = getattr(primitive, "ufunc", None)
    return primitive.memory.owns or primitive.memory.updates or isinstance(ufunc, np.ufunc)
