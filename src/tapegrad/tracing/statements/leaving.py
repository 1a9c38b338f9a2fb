"""What a `for` statement goes through that may be left before it has come to its end.

    for k in range(100):                    k = 0, then step + 1
        step = f(x) / slope(x)
        x = x - step
        if abs(step) < 1e-9:                the round goes from here to here
            break

Its rounds are those of `turning.py`, from one time that the test is asked to the next. So the first
entry is of no round: it is a traced one, too, of a number that is known. Where the first rounds
don't come by the test there are a few such.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from tapegrad.ir.tape import Guard, Literal
from tapegrad.observe.observer import unobserved
from tapegrad.observe.program.joins import Sides, begins_loop
from tapegrad.tracing.loops.items import Items, found_among
from tapegrad.tracing.loops.rounds import FIRST, Given
from tapegrad.tracing.recording.trace import current_trace
from tapegrad.tracing.statements.framed import again_with, each_round
from tapegrad.tracing.tracers.tracer import stand_in


class Leaving:
    """What stands for such a statement's entries."""

    def __init__(self, items: Items, sides: Sides, place: int) -> None:
        self._given = items, sides, place

    def __iter__(self) -> Iterator[Any]:
        return Entries(*self._given)


class Entries:
    """Hands them out. `given` is what a round is passed that is under way, behind so many that are
    `done`, and which arrays are `lent` to it; it is `over` where the last round was made."""

    def __init__(self, items: Items, sides: Sides, place: int) -> None:
        self.items, self._sides, self.place = items, sides, place
        self.given: Given | None = None
        self._passed: Given | None = None  # the last that has had its entry
        self.done, self.over = 0, False
        self.guard: Guard | None = None  # on the latter
        self.lent: Any = _NoneLent()
        self.is_shared = False
        self._first = 0  # entries that were handed out before the test was asked

    @property
    def may_be_rounds(self) -> bool:
        return not self.is_shared and not self.over

    @property
    def left(self) -> int:
        """How many there are behind those."""
        return len(self.items) - self._first

    def __iter__(self) -> Entries:
        self.is_shared = self.is_shared or not begins_loop(sys._getframe(1))
        return self

    @unobserved
    def __next__(self) -> Any:
        if self.over:
            raise StopIteration
        trace = current_trace()
        is_round = self.given is not None and self.given is not self._passed
        if len(self.items) == self._first + (self.done if is_round else 0):  # there is none
            if is_round:
                raise again_with(each_round(self._sides, self.place))
            if self.given is None:
                raise StopIteration
        if self.given is not None and is_round:
            self._passed, step = self.given, self.given.step
            found = found_among(self.lent)
            return self.items.item(step._trace, step, self._first + self.done, found)
        if trace is None or self._first == FIRST or self.given is not None:  # no test was asked
            raise again_with(self._traced_tests() or each_round(self._sides, self.place))
        step = stand_in(trace, Literal(np.int64(0)), np.int64(0))
        self._first += 1
        return self.items.item(trace, step, self._first - 1, found_among(self.lent))

    def _traced_tests(self) -> list[tuple[Any, int]]:
        """The tests that leave the loop, as those whose plain truth is to be traced, if they
        weren't: it may be another one later."""
        flow, noted = self._sides.flow, self._sides.turning
        own = [o for o, e in flow.exits.items() if flow.iterator_of(e) == self.place]
        return [] if noted.issuperset(own) else [(noted, o) for o in own]


class _NoneLent:
    def tracer_of(self, x: np.ndarray) -> Any:
        return None
