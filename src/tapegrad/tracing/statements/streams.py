"""Streams: random numbers drawn ahead, where the number of draws depends on values.

    while abs(s) < b:                d = [rng.normal() for _ in range(room)]
        s = s + x * rng.normal() -->     loop:  %z = window(%d, %at)
                                                %at = add(%at, 1)

The position in the stream is a loop-carried number, which the sides of a branch may merge, as if
the program kept it in a list. At the end of a call, its generator is reset, and draws the numbers
that were used: so it is left in the state of plain Python. A guard says that there were enough
numbers; otherwise the function is retraced with more. If there are draws of several kinds,
positions are words of the generator's bits: see `tracing.draws.words`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tapegrad.ir.tape import Literal
from tapegrad.observe.objects import randomness
from tapegrad.observe.sides.effects import Stopped
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.windows import Window, entry_at
from tapegrad.tracing.draws.recorded import Draw, DrawnAhead, as_input, valued_as
from tapegrad.tracing.recording.trace import Trace, current_trace
from tapegrad.tracing.statements.frame_rounds import retrace_with
from tapegrad.tracing.statements.round_draws import Drawing, DrawRecord
from tapegrad.tracing.tracers.tracer import Tracer, stand_in

FEWEST = 256  # least number of positions drawn ahead
GROWTH = (
    8,
    2,
)  # growth if there aren't enough; the second for words, which take longer
USED = 0.75  # at most this part in the traced call, so that others have enough, too


class _Kind(NamedTuple):
    """A kind of draw: its call, its result at each position, the next positions if there are
    several kinds, and whether a draw is a Python number, or an array."""

    call: Draw
    rows: Tracer
    ends: Tracer | None
    is_weak: bool
    is_array: bool


class Stream:
    """The numbers that a generator draws from now on in a trace. `notes` are those of the loop in
    which it begins."""

    def __init__(self, observer: Any, trace: Trace, generator: Any, notes: DrawRecord) -> None:
        self._observer, self.trace, self.generator = observer, trace, generator
        self._notes, self.is_own = notes, not observer.is_outside(generator)
        self.cell: list[Any] = [stand_in(trace, Literal(np.int64(0)), np.int64(0))]
        by_words = notes.has("words")
        room = FEWEST * GROWTH[by_words] ** notes.attempts
        self.ahead = DrawnAhead(generator, room, by_words)
        self._kinds: list[_Kind] = []
        self._start = randomness.state_of(generator)
        self.number = 0  # of its first entry among the draws
        self._used = 0  # position of the generator's state
        observer.before_draw(generator)
        for known in observer.effects.owned.carried.values() if observer.effects else ():
            known.add(id(self.cell))  # it is new in the rounds under way

    @property
    def at(self) -> Tracer:
        """The position in the stream."""
        found: Tracer = self.cell[0]
        return found

    def give_up(self) -> NoReturn:
        """Repeat the trace without the stream."""
        raise retrace_with(self._notes.so("never"))

    def draw(self, call: Draw) -> Any:
        """The traced result of a draw."""
        self._check(self.ahead.room)
        kind = self._kind(call)
        last = np.int64(self.ahead.room - 1)  # a loop without numbers ends: see `enough`
        at: Any = np.minimum(self.at, last)
        row: Any = Window(*entry_at(0, kind.rows.shape[1:]))(kind.rows, at)
        if kind.ends is None:
            self._goes_on(ew.add(self.at, np.int64(1)))
        else:
            self._goes_on(Window(*entry_at(0, ()))(kind.ends, at))
        operand, value = row._read()
        value = value if kind.is_array or value is None else np.asarray(value)[()]
        if current_trace() is self.trace:
            self.settle()
        return stand_in(row._trace, operand, value, kind.is_weak)

    def _kind(self, call: Draw) -> _Kind:
        for kind in self._kinds:
            if kind.call.is_like(call):
                return kind
        if self._kinds and not self.ahead.by_words:
            raise retrace_with(self._notes.so("words"))
        now = randomness.state_of(self.generator)
        randomness.put_back(self.generator, self._start)
        found = call.again(self.generator)
        value, weak = valued_as(found)
        randomness.put_back(self.generator, self._start)
        parts = None if value is None else self.ahead.numbers(self.generator, call)
        randomness.put_back(self.generator, now)
        if parts is None:
            self.give_up()
        tracers = [as_input(self.trace, part) for part in parts]
        if not self._kinds:
            self.number, self.ahead = len(self._observer.drawn), replace(self.ahead, call=call)
        for k, part in enumerate(parts) if not self.is_own else ():
            self._observer.drawn.append(replace(self.ahead, call=call, value=part, part=k))
        rows, ends = (*tracers, None)[:2]
        assert rows is not None
        self._kinds.append(_Kind(call, rows, ends, weak, isinstance(found, np.ndarray)))
        return self._kinds[-1]

    def _goes_on(self, at: Any) -> None:
        """Move to another position, which rounds carry and sides of branches merge."""
        o, cell = self._observer, self.cell
        if o.effects is not None:
            o.effects.to_own = o.effects.owned.is_carried(o, cell)
            if o.effects.owned.replaces(o, cell, 0):
                o.effects.lasting += not o.effects.to_own
                o.effects.to_own = False
            elif o.apart is not None:
                raise Stopped
            else:
                o.effects.changed()
        cell[0] = at

    def _check(self, most: float) -> None:
        """Repeat the trace with more numbers, if more than `most` were used."""
        at = self.at._read()[1]
        if at is not None and at > most:
            raise retrace_with(self._notes.more())

    def settle(self) -> None:
        """Bring the generator to the program's state, when no round is under way."""
        at = self.at._read()[1]
        self._check(self.ahead.room)
        if at is None or at == self._used:
            return
        if at < self._used:
            randomness.put_back(self.generator, self._start)
            self._used = 0
        self.ahead.advance(self.generator, int(at) - self._used)
        self._used = int(at)

    def close(self) -> None:
        """End the stream before an untraced draw from the generator, which each call makes anew,
        without a tape."""
        if current_trace() is not self.trace or self._observer.apart is not None:
            self.give_up()
        self.settle()
        self._observer.reads.use_once(type(self.generator).__name__)
        del self._observer.ahead[id(randomness.bits_of(self.generator))]

    def end(self) -> bool:
        """End the stream with the run. Returns whether later calls draw in this way."""
        self.settle()
        if self.at._trace is not self.trace:
            self._observer.reads.use_once(type(self.generator).__name__)
        self._check(self.ahead.room * USED)
        enough = ew.less_equal(self.at, np.int64(self.ahead.room))
        self.trace.guard(enough, True, "whether there are random numbers enough", fixed=True)
        return self.at._trace is self.trace and not self.is_own and bool(self._kinds)


def stream_of(
    observer: Any, trace: Trace, generator: Any, traces: Sequence[Trace], rounds: Drawing | None
) -> Stream | None:
    """The stream of a draw, in a trace or in rounds of its loops; None if the draw is an input by
    itself, or one with a row for each round."""
    known: Stream | None = observer.stream_of(generator)
    if known is not None:
        if known.generator is not generator or (rounds is None and traces[-1] is not trace):
            known.give_up()
        return known
    if rounds is None or (notes := rounds.outermost.notes).has("never"):
        return None
    if not notes.has("streams"):
        sides = observer.effects is not None and observer.effects.owned.sides
        if observer.apart is None and not sides and rounds.is_counted:
            return None
        raise retrace_with(notes.so("streams"))
    observer.ahead[id(randomness.bits_of(generator))] = found = Stream(
        observer, trace, generator, notes
    )
    return found
