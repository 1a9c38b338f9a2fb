"""Python's `for` statement, of which one round is traced for all.

    for t in range(n):               loop(n, %h, %ys, %xs, body)
        h = f(h, xs[t])       -->        %x = window(%xs, step)
        ys[t] = h                        ...
                                         out %h, set_window(%ys, %h, step)

When the statement requests its next number, the traced values of the frame's variables are the
carried values: `variables.py` finds them. Their tracers become inputs of the trace of one round,
and the frame continues; at the next request, the variables hold what the round carries on. A second
round is compared with that. Then the loop is recorded, the tracers get its results, and the
statement is told that there are no more numbers. All references to such a tracer see the result. A
plain number that the first round changes becomes a traced one.

This requires that a round changes nothing but variables and traced arrays
(`observe/sides/effects.py`). Otherwise the trace is repeated with a note on the statement, and all
rounds are made. `tapegrad.range` makes a loop of any statement, however short it is.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from types import FrameType
from typing import Any

from tapegrad.core.handlers import let_through
from tapegrad.errors import InternalError
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.observer import unobserved
from tapegrad.observe.program.joins import LEFT, Sides, begins_loop, sides_of
from tapegrad.observe.program.source import user_source
from tapegrad.primitives.loops import MIN_ROUNDS
from tapegrad.tracing.loops.entries import Items, Numbers
from tapegrad.tracing.loops.rounds import FIRST
from tapegrad.tracing.recording.trace import (
    Trace,
    current_trace,
)
from tapegrad.tracing.statements.filled_lists import FilledList, may_show, read_while_they_grow
from tapegrad.tracing.statements.first_rounds import Earlier
from tapegrad.tracing.statements.frame_rounds import (
    ENTRIES,
    Count,
    FrameRounds,
    each_round,
    is_long,
    renounce,
    retrace_with,
)
from tapegrad.tracing.statements.growing_lists import Growing
from tapegrad.tracing.statements.round_draws import Drawing
from tapegrad.tracing.statements.variables import (
    Arrays,
    place_of,
    trace_numbers,
    trace_stored,
)


class LoopRange(Sequence[Any]):
    """A range whose `for` statement becomes a loop however short it is."""

    def __init__(self, numbers: range) -> None:
        self.numbers = numbers

    def __iter__(self) -> Iterator[Any]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, k: Any) -> Any:
        found = self.numbers[k]
        return LoopRange(found) if isinstance(found, range) else found

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self.numbers)

    def __repr__(self) -> str:
        return f"tapegrad.{self.numbers!r}"


class _Numbers:
    """The iterator that a `for` statement gets in the place of its own."""

    def __init__(self, items: Items, count: Any, short: bool) -> None:
        self._items, self._count, self._short = items, count, short
        self._rounds: Iterator[Any] | None = None
        self.is_shared = False  # whether anything but a statement may refer to it

    def __iter__(self) -> Iterator[Any]:
        self.is_shared = self.is_shared or not begins_loop(sys._getframe(1))
        return self

    def __next__(self) -> Any:
        return self._next(sys._getframe(1))

    @unobserved
    def _next(self, frame: FrameType) -> Any:
        if self._rounds is None:
            trace, place = current_trace(), place_of(frame, self)
            if trace is None or place is None:
                raise InternalError("a loop's entries were asked for by something else")
            growing = Growing(frame, place)
            self._rounds = _loop(growing, self._items, trace, self._count, self._short)
        return next(self._rounds)


def _loop(
    growing: Growing, items: Items, trace: Trace, count: Count | None, short: bool
) -> Generator[Any, None, None]:
    """Yield the entry of each round that the frame makes; record the remaining ones as a loop."""
    frame, place = growing.frame, growing.place
    name, src = frame.f_code.co_name, user_source()
    sides, front = sides_of(frame.f_code), 0
    handled: list[Any] = []
    try:
        if count is None and place not in sides.listed:
            growing.leave_out()
            while any(not may_show(x.value) for x in read_while_they_grow(frame, place)):
                if front == min(FIRST, len(items) - 1):
                    break
                yield items.at(front)
                front += 1
            growing.take_in()
            for x in read_while_they_grow(frame, place):
                given = frame, x, front, len(items) - front, trace, [(sides.listed, place)]
                growing.filled += filter(None, [FilledList.made(*given)])
        lent = Arrays(frame, place, trace)
        handled = _note_handler(frame, place, sides)
        trace_stored(frame, place, trace)
        earlier: Earlier | None = None
        for done in range(front, len(items)):
            left = len(items) - done if count is None else None
            drawing = Drawing(left, sides, place)
            leaves, rounds = FrameRounds.begun(
                f"a loop of {name}",
                src,
                lent,
                growing,
                done,
                items=items,
                inner=count,
                drawing=drawing,
                earlier=earlier,
            )
            before = rounds.found[0]
            round_ = yield from rounds.made(rounds.round(leaves, done))
            raised, loop, is_empty = trace.raised, None, False
            left = len(items) - done
            long = is_long(round_.tape, left) and rounds.computes(round_)
            long = long or (left >= MIN_ROUNDS and sides.flow.chooses(place))
            long = long or (left > MIN_ROUNDS and rounds.is_another(round_))
            long = long or short or count is not None
            certain = (done < FIRST or before.fills) and rounds.changes_nothing()
            if not (certain and rounds.is_meant(round_)):
                raise retrace_with(each_round(sides, place))
            more = done + 1 < len(items) or count is not None or short
            stays = before.shape == rounds.found[-1].shape and rounds.grown[-1].fits
            if not long and (stays or not more):
                raise retrace_with(each_round(sides, place, len(items)))
            if stays and more:
                try:
                    loop = yield from rounds.rest(leaves, round_)
                except Exception as error:
                    let_through(error)
                    trace.raised = raised
                    notes = rounds.branches(error, done)
                    if notes != []:
                        notes = notes or drawing.others()
                        raise retrace_with(notes or each_round(sides, place, why=error)) from error
                    guard = getattr(error, "guard", None)
                    is_empty = guard is not None and guard.what == ENTRIES
                if not rounds.changes_nothing():
                    raise retrace_with(each_round(sides, place))
            if loop is not None:
                if count is not None and not rounds.grown[-1].may_vary:
                    raise retrace_with(each_round(sides, place))
                rounds.leave(loop, trace)
                lent.give_back()
                return
            # There may be no first round, in other rounds of an outer loop
            if count is not None and (type(items) is not Numbers or any(rounds.grown[-1].entries)):
                raise retrace_with(each_round(sides, place))
            if not is_empty or earlier is None:
                earlier = Earlier(done, leaves, before, trace, [], [])
            with earlier.recording():
                if count is not None:
                    trace.guard(count.rounds > done, True, ENTRIES)
                rounds.alone(leaves, round_, trace)
            earlier = earlier if is_empty else None
            trace_numbers(frame, place, before, rounds.found[-1], trace)
        if count is not None:
            trace.guard(count.rounds > len(items), False, ENTRIES)
        for x in growing.filled:
            x.leave(rounds.found[-1])
        lent.give_back()
    except GeneratorExit:
        if trace.alive and trace.renounced is None and trace.unfinished is None:
            renounce(each_round(sides, place, why=LEFT))
        raise
    finally:
        growing.end()
        if handled:
            handled.pop()


def _note_handler(frame: FrameType, place: int, sides: Sides) -> list[Any]:
    """Repeat the trace if a round raises an error that is handled behind the loop, by the frame or
    a caller. Returns the list in which this is noted."""
    a = getattr(frame.f_trace, "__self__", None)
    if not isinstance(a, Activation):
        return []

    def left() -> None:
        raise retrace_with(each_round(sides, place, why=LEFT))

    a.leaving.append((sides.flow.handlers.get(place, (-1,))[0], left))
    return a.leaving


class TracedIterable:
    """The iterable that replaces that of a loop whose rounds may be traced once; however `short` it
    is, or only if it is long."""

    def __init__(self, items: Items, count: Count | None = None, short: bool = False) -> None:
        self._given = items, count, short

    def __iter__(self) -> Iterator[Any]:
        return _Numbers(*self._given)


class EntryIterator:
    """An iterator that only a generator expression refers to; each entry is requested by itself."""

    is_shared = False

    def __init__(self, entries: Iterator[Any]) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        return self

    @unobserved
    def __next__(self) -> Any:
        return next(self._entries)
