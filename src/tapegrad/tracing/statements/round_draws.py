"""Random numbers that the rounds of a loop draw.

    for t in range(n):           d = [rng.normal() for t in range(n)]
        z = rng.normal()    -->  loop over t:
        ...                          %z = window(%d, step)

The first round draws, and each draw in it gets an array with a row for each round. Once the rounds
are known to be equal, the others draw, in order: so the generator is left in the state of plain
Python. A repeated trace of a round reuses its numbers. The draws of an inner loop are rows of those
of the outer loop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tapegrad.observe.objects import randomness
from tapegrad.observe.program.joins import Sides
from tapegrad.tracing.draws.recorded import Draw, Drawer, LoopRounds, as_input, in_turns
from tapegrad.tracing.loops.entries import Entries
from tapegrad.tracing.recording.trace import current_trace
from tapegrad.tracing.tracers.tracer import Tracer, stand_in


class _Place(NamedTuple):
    """A draw in a round: the call, the traced numbers of all rounds of all loops, and whether a
    draw is a Python number, or an array."""

    call: Draw
    rows: Tracer
    is_weak: bool
    is_array: bool


class DrawRecord(NamedTuple):
    """Notes of earlier traces on the draws of the loop at `place`: the words "streams", "never" and
    "words", and how often the numbers for this number of `rounds` ran out."""

    held: set[Any]
    place: int
    rounds: int | None

    def has(self, word: str) -> bool:
        return (self.place, word) in self.held

    def so(self, word: str) -> list[tuple[Any, Any]]:
        """The note with this word."""
        return [(self.held, (self.place, word))]

    @property
    def attempts(self) -> int:
        return sum(x[:2] == (self.place, self.rounds) for x in self.held.copy())

    def more(self) -> list[tuple[Any, Any]]:
        """The note that the numbers were exhausted once more."""
        return [(self.held, (self.place, self.rounds, self.attempts))]


class Drawing:
    """The draws of a loop's rounds. `count` is the number of rounds, if it is known."""

    def __init__(self, count: int | None, sides: Sides, place: int) -> None:
        trace = current_trace()
        self._around: Drawing | None = None if trace is None else trace.drawing
        self.notes = DrawRecord(sides.streams, place, count)
        self._counted, self._turns = count is not None, LoopRounds(count or 0)
        self._places: list[_Place] = []
        self._calls: list[Draw] = []  # of the first round and of its inner loops, in order
        self._was_made = self._around is not None and self._around.is_again
        self._rounds, self._at = 0, 0
        self._step: Any = None
        self._states: list[tuple[Any, Any]] = []

    @property
    def outermost(self) -> Drawing:
        return self if self._around is None else self._around.outermost

    @property
    def is_counted(self) -> bool:
        """Whether the numbers of rounds of all nested loops are known."""
        return self._counted and (self._around is None or self._around.is_counted)

    def others(self) -> list[tuple[Any, Any]]:
        """The notes for another way to draw, if rounds don't draw alike; empty if there is none."""
        notes = self.outermost.notes
        return [] if notes.has("streams") or not self._places else notes.so("streams")

    @property
    def all_turns(self) -> tuple[LoopRounds, ...]:
        """The turns of the outer loops and of this one."""
        return (*(() if self._around is None else self._around.all_turns), self._turns)

    @property
    def is_again(self) -> bool:
        """Whether the present round is a repetition, which has drawn before."""
        return self._was_made or self._rounds > 1

    @property
    def is_whole(self) -> bool:
        """Whether the round has made all of its draws."""
        return self._at == len(self._places)

    def begins(self, step: Tracer) -> None:
        """Begin a round with this step."""
        self._rounds, self._at, self._step = self._rounds + 1, 0, step

    def first(self, call: Draw, is_weak: bool, is_array: bool, holder: Any) -> Tracer:
        """The traced numbers of a call that has drawn its first value. `holder` has the trace whose
        input the rows are, and records them."""
        turns, value = self.all_turns, call.value
        assert value is not None
        rows = np.zeros((*[each.count for each in turns], *value.shape), value.dtype)
        rows[(0,) * len(turns)] = value
        call = replace(call, value=rows, turns=turns)
        holder.note(call)
        place = _Place(call, as_input(holder.trace, rows), is_weak, is_array)
        self._add(place)
        return self._entry(place)

    def _add(self, place: _Place) -> None:
        """Add a draw to the round, and to those of the outer loops."""
        self._places.append(place)
        self._calls.append(place.call)
        self._at += 1
        if self._around is not None:
            self._around._add(place)

    def _row(self, x: Any) -> Any:
        """The rows of the present round among those of all loops."""
        x = x if self._around is None else self._around._row(x)
        return Entries(x).item(self._step._trace, self._step, 0, lambda array, k: array)

    def again(self, call: Draw) -> Tracer | None:
        """The traced number of a repeated draw; None if the round does something else now."""
        place = self._next(call)
        return None if place is None else self._entry(place)

    def _next(self, call: Draw) -> _Place | None:
        at, self._at = self._at, self._at + 1
        if at == len(self._places) and self._was_made and self._rounds == 1:
            assert self._around is not None
            outer = self._around._next(call)
            self._places += [] if outer is None else [outer]
        known = at < len(self._places) and self._places[at].call.is_like(call)
        return self._places[at] if known else None

    def _entry(self, place: _Place) -> Tracer:
        row = self._row(place.rows)
        value = np.array(place.rows._read()[1][(0,) * len(self.all_turns)])
        # The array is new
        value = value if place.is_array else value[()]
        return stand_in(row._trace, row._read()[0], value, place.is_weak)

    def go_on(self) -> None:
        """Make the draws of the remaining rounds."""
        if self._was_made or not self._calls:
            return
        generators = {id(x.generator): x.generator for x in self._calls}
        self._states = [(x, randomness.state_of(x)) for x in generators.values()]
        calls = dict(enumerate(self._calls))
        around = len(self.all_turns) - 1

        def put(k: int, row: tuple[Any, ...], value: Any) -> None:
            rows: Any = calls[k].value
            rows[row] = value

        drawer = Drawer(calls, {k: x.generator for k, x in calls.items()}, put)
        steps = in_turns([*calls.items()], around + 1)
        drawer.rounds(self._turns, steps, (0,) * around, first=1)

    def ends(self, rounds: int) -> None:
        """End with `rounds` rounds. If it is one, the draws of the others are undone."""
        self._turns.count = rounds
        for generator, state in self._states if rounds == 1 else ():
            randomness.put_back(generator, state)
        self._states = []
