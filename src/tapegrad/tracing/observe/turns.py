"""Which loops of a run go on until a traced condition no longer holds.

Whenever the program asks a traced value for its truth, in a frame that is followed and in a
conditional jump of its code, the frame's variables are looked at. Where the same jump is reached
again, and

- nothing was changed in between that was there before (`effects.py`),
- each variable that may be read later holds what is alike (`snapshots.py`),

then the program does from here on what it did from there on, on other traced values: a round of a
loop has been made. However many rounds a call makes, each is this one, and after the last the
program goes on as it has gone on here. What a range has left, and a number that counts rounds, may
change too, if they only say when the loop ends at the latest (`counters.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tapegrad.ir.tape import Guard
from tapegrad.ir.turns import Turn, Turning
from tapegrad.tracing.observe.activation import Activation
from tapegrad.tracing.observe.branches import begin, choose, goes_both_ways
from tapegrad.tracing.observe.counters import most_rounds
from tapegrad.tracing.observe.effects import Effects
from tapegrad.tracing.observe.frames import MISSING, local
from tapegrad.tracing.observe.joins import sides_of
from tapegrad.tracing.observe.liveness import Flow
from tapegrad.tracing.observe.snapshots import Described, Pairing, are_alike, described

FEWEST = 2  # turns, with a round between them


@dataclass
class Reached:
    """A test was reached: what was known then, and what has changed since the last time."""

    turn: Turn
    truth: bool
    jump: int
    state: dict[int, Described]  # by the numbers of variables, and of entries of the stack
    count: int  # of effects
    time: int
    written: int  # how many writes to traced arrays there had been
    first: int  # the number of the next variable of the tape
    varied: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    rebound: bool = False  # whether a variable holds another traced array now
    apart: bool = True  # whether arrays that were two then are two now
    fresh: set[int] = field(default_factory=set)  # containers that were made since


@dataclass
class _History:
    """What is known of the turns of one loop: rounds that are linked, and those before."""

    flow: Flow
    activation: Activation
    jump: int
    row: list[Reached] = field(default_factory=list)
    done: list[tuple[list[Reached], int | None]] = field(default_factory=list)

    def end(self, now: Reached) -> None:
        """A loop has ended, now. While the frame runs it can be told for how long numbers that
        count its rounds make no difference."""
        row, self.row = self.row, [now]
        varied = {k for each in row[1:] for k in each.varied}
        most = None
        for k in sorted(varied) if len(row) >= FEWEST else ():
            numbers = [each.varied.get(k) for each in row[1:]]
            first = row[0]
            bound = most_rounds(self.flow, self.activation, first.jump, first.truth, k, numbers)
            if bound is None:
                return
            most = bound if most is None else min(most, bound)
        if len(row) >= FEWEST:
            self.done.append((row, most))


def reached(o: Any, x: Any, trace: Any, guard: Guard) -> None:
    """The truth of a traced value was asked for, by code that this is called for."""
    frame = sys._getframe(4)
    a = getattr(frame.f_trace, "__self__", None)
    if not isinstance(a, Activation) or a.o is not o or a.frame is not frame:
        return
    sides = sides_of(frame.f_code) if a.sides is None else a.sides
    flow = sides.flow
    jump = flow.test_at(frame.f_lasti)
    if not trace.is_innermost:
        return
    if jump is None:
        choose(x, a, sides, trace, guard)
        return
    if not _asks_directly(flow, frame.f_lasti, a, x):
        return
    if a.turning is not None and a.turning.may_leave(jump):
        return  # a guard
    both = goes_both_ways(x, trace, sides, jump, guard)
    if not both and not flow.loops:
        return
    if o.effects is None:
        o.effects = Effects()
    effects = o.effects
    if (both and begin(a, sides, jump, trace, guard, effects)) or a.sides is not None:
        return
    history = _history(trace, flow, a, jump)
    effects.time += 1
    now = _look(a, flow, jump, trace, guard, effects)
    row = history.row
    if row and not _linked(row[-1], now, flow.variables, effects):
        row.clear()
    if row:
        row[-1].state = {}  # what it holds isn't needed any more
    row.append(now)
    if row[0].truth != now.truth:
        history.end(now)


def _asks_directly(flow: Flow, offset: int, a: Activation, x: Any) -> bool:
    """Whether it is the jump's own operand whose truth is asked for."""
    if flow.at[offset].opname == "COMPARE_OP":  # of what it gives; its operands may be gone by now
        return bool(a.numbers)
    return a.top() is x


def _history(trace: Any, flow: Flow, a: Activation, jump: int) -> _History:
    """The one of this test, or of the same one at another place in the code."""
    key = id(a), jump
    known = trace.tests.get(key)
    if known is None:
        others = (h for h in trace.tests.values() if h.activation is a)
        known = next((h for h in others if flow.is_same_test(h.jump, jump)), None)
        if known is None:
            known = _History(flow, a, jump)
        trace.tests[key] = known
    return known


def _look(
    a: Activation, flow: Flow, jump: int, trace: Any, guard: Guard, effects: Effects
) -> Reached:
    state: dict[int, Described] = {}
    code = flow.code
    wanted = flow.live(jump)
    variables = flow.variables
    for k in range(flow.height(jump) - 1):
        if k < code.co_nlocals and code.co_varnames[k] not in code.co_cellvars:
            if k in wanted:
                state[k] = described(local(a.address, k), trace)
        elif k < variables:
            if k < variables - len(code.co_freevars):  # the frame's own: functions may read it
                state[k] = described(_content(local(a.address, k)), trace)
        else:
            state[k] = described(local(a.address, k), trace)
    values = tuple([x for d in state.values() for x in d.operands])
    builder = trace.builder
    turn = Turn(len(builder.calls), len(builder.guards), guard, values, effects.path)
    truth = bool(guard.expected.value)
    written = len(effects.written)
    return Reached(
        turn, truth, jump, state, effects.count, effects.time, written, builder.following
    )


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except (ValueError, AttributeError):
        return MISSING


def _linked(last: Reached, now: Reached, variables: int, effects: Effects) -> bool:
    """Whether the program does from `now` on what it did from `last` on."""
    if last.count != now.count or last.state.keys() != now.state.keys():
        return False
    arrays, containers = Pairing(), Pairing()
    for k, before in last.state.items():
        after = now.state[k]
        arrays_alike = len(before.arrays) == len(after.arrays)
        if arrays_alike:
            arrays.add(before.arrays, after.arrays)
        same = len(before.containers) == len(after.containers)
        if same:
            containers.add(before.containers, after.containers)
        if not are_alike(before, after):
            numbers = _numbers(before, after, k >= variables)
            if numbers is None:
                return False
            now.varied[k] = numbers
        if any(effects.advanced.get(id(x), 0) >= last.time for x in before.objects):
            return False  # an iterator that has gone on isn't what it was
    now.fresh = containers.new
    if not containers.holds or not containers.old <= last.fresh:
        return False
    now.apart, now.rebound = arrays.holds, bool(arrays.new)
    return all(
        number >= last.first or at in arrays.after
        for at, number in effects.written[last.written : now.written]
    )


def _numbers(before: Described, after: Described, in_stack: bool) -> tuple[Any, Any] | None:
    """What two variables hold that differ in a number alone, or in what a range has left."""
    if in_stack:
        found = before.left, after.left
    else:
        found = before.number, after.number
    return None if None in found or type(found[0]) is not type(found[1]) else found


def held(trace: Any) -> Iterator[Any]:
    """The objects that are kept to be compared with those of later turns."""
    for history in {id(history): history for history in trace.tests.values()}.values():
        for row in (history.row, *[row for row, _ in history.done]):
            for now in {id(now): now for now in row}.values():
                for each in now.state.values():
                    yield from each.objects


def found(o: Any, trace: Any) -> list[Turning]:
    """The loops of a trace that go on until a condition no longer holds."""
    turnings = []
    histories = {id(history): history for history in trace.tests.values()}
    trace.tests.clear()
    if o is not None and o.effects is not None and not o.effects.compared:
        for history in histories.values():
            for row, most in history.done:
                turning = _turning(row, most, len(o.effects.written))
                if turning is not None:
                    turnings.append(turning)
    return turnings


def _turning(row: list[Reached], most: int | None, written: int) -> Turning | None:
    if written > row[0].written:  # in which variables a write is seen makes a difference
        if not all(now.apart for now in row[1:]):
            return None
        if row[1].rebound:
            row, most = row[1:], most and most - 1
    if len(row) < FEWEST:
        return None
    turns = tuple([now.turn for now in row])
    if len({len(turn.values) for turn in turns}) > 1:
        return None
    return Turning(turns, most)
