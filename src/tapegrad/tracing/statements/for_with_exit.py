"""The iterable of a `for` statement that may be left before its end.

    for k in range(100):              k = 0, then step + 1
        step = f(x) / slope(x)
        x = x - step
        if abs(step) < 1e-9:          a round goes from one evaluation of this test to the next
            break

Its rounds are those of `while_statement.py`, between two evaluations of the test. So the first
entry belongs to no round: it is a traced number with a known value. There are a few such entries if
the first iterations don't reach the test.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from tapegrad.ir.tape import Guard, Literal
from tapegrad.observe.observer import unobserved
from tapegrad.observe.program.joins import Sides, begins_loop
from tapegrad.tracing.loops.entries import Items, found_among
from tapegrad.tracing.loops.rounds import FIRST, Inputs
from tapegrad.tracing.recording.trace import current_trace
from tapegrad.tracing.statements.frame_rounds import each_round, retrace_with
from tapegrad.tracing.tracers.tracer import stand_in


class IterableWithExit:
    """The replacement of such a statement's iterable."""

    def __init__(self, items: Items, sides: Sides, place: int) -> None:
        self._given = items, sides, place

    def __iter__(self) -> Iterator[Any]:
        return EntriesWithExit(*self._given)


class EntriesWithExit:
    """The iterator of the entries. `given` holds the arguments of the round under way, behind
    `done` rounds; `lent` are the arrays lent to it; it is `over` when the last round was made."""

    def __init__(self, items: Items, sides: Sides, place: int) -> None:
        self.items, self._sides, self.place = items, sides, place
        self.given: Inputs | None = None
        self._passed: Inputs | None = None  # the last one that has had its entry
        self.done, self.over = 0, False
        self.guard: Guard | None = None  # on `over`
        self.lent: Any = _NoneLent()
        self.is_shared = False
        self._first = 0  # entries returned before the first test

    @property
    def may_be_rounds(self) -> bool:
        return not self.is_shared and not self.over

    @property
    def left(self) -> int:
        """The number of entries behind those."""
        return len(self.items) - self._first

    def __iter__(self) -> EntriesWithExit:
        self.is_shared = self.is_shared or not begins_loop(sys._getframe(1))
        return self

    @unobserved
    def __next__(self) -> Any:
        if self.over:
            raise StopIteration
        trace = current_trace()
        is_round = self.given is not None and self.given is not self._passed
        if len(self.items) == self._first + (self.done if is_round else 0):  # no entry is left
            if is_round:
                raise retrace_with(each_round(self._sides, self.place))
            if self.given is None:
                raise StopIteration
        if self.given is not None and is_round:
            self._passed, step = self.given, self.given.step
            found = found_among(self.lent)
            return self.items.item(step._trace, step, self._first + self.done, found)
        if trace is None or self._first == FIRST or self.given is not None:  # no test was reached
            raise retrace_with(self._traced_tests() or each_round(self._sides, self.place))
        step = stand_in(trace, Literal(np.int64(0)), np.int64(0))
        self._first += 1
        return self.items.item(trace, step, self._first - 1, found_among(self.lent))

    def _traced_tests(self) -> list[tuple[Any, int]]:
        """The notes that tests of plain values which leave the loop are traced, unless they are
        already: they may have other values later."""
        flow, noted = self._sides.flow, self._sides.turning
        own = [o for o, e in flow.exits.items() if flow.iterator_of(e) == self.place]
        return [] if noted.issuperset(own) else [(noted, o) for o in own]


class _NoneLent:
    def tracer_of(self, x: np.ndarray) -> Any:
        return None
