"""Lists that grow in the rounds of a loop, and that rounds read.

    for t in range(2, n):                loop(n - 2, %ys, %x, body)
        ys.append(a * ys[-1] + x[t]) -->     %y = window(%ys, step + 1)
                                             set_window(%ys, ..., step + 2)

If a round appends one entry, the list is an array that rounds fill; its length follows from the
step. The variable holds a proxy, which is no list and supports the operations below. Before any
other operation the trace is repeated, and all rounds are made. Appended entries must not change
while the loop runs, and no round may read entries that aren't there yet.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from tapegrad.ir.tape import Literal
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import following, unobserved
from tapegrad.observe.program.liveness import flow_of
from tapegrad.observe.queries import effects_in
from tapegrad.primitives.views import BroadcastTo
from tapegrad.tracing.loops.entries import Entries
from tapegrad.tracing.loops.stacking import known_as_row, rows_of, strong
from tapegrad.tracing.operators.integer_bounds import least_ahead, span
from tapegrad.tracing.recording.trace import Trace, current_trace
from tapegrad.tracing.statements.frame_rounds import Count, retrace_with
from tapegrad.tracing.statements.variables import (
    ListProxy,
    Variables,
    held_by,
    is_apart,
    is_private,
    own,
    put_in,
)
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, record, stand_in
from tapegrad.tracing.tracers.union_numbers import as_union


def read_while_they_grow(frame: FrameType, place: int) -> list[Any]:
    """The variables of lists that the rounds of a `for` statement append to and read, and that
    nothing else refers to."""
    flow = flow_of(frame.f_code)
    wanted = () if effects_in(frame) is None else flow.grown(place) - flow.appended(place)
    return [
        variable
        for variable in (list(own(frame, place)) if wanted else ())
        if variable.number in wanted
        and type(variable.value) is list
        and is_private(frame, variable)
    ]


def may_show(x: list[Any]) -> bool:
    """Whether the entries of a list determine the type of appended ones: at least one isn't a
    Python number."""
    return any(type(y) is not float and not getattr(y, "_weak", False) for y in x)


class FilledList(ListProxy):
    """The proxy of a list: the first `length` rows of an array. Entries are floats, Python's if
    `weak`, of varying type if `either`; or arrays."""

    def __init__(
        self, frame: FrameType, variable: Any, begun: int, rounds: int, trace: Trace, notes: Any
    ) -> None:
        x = self._list = variable.value
        self._put = partial(put_in, frame, variable)
        self._frame, self.front, self._notes = frame, len(x), notes
        self._rounds, self._begun, first = rounds, begun, strong(x[0])
        weak = {type(y) is float or getattr(y, "_weak", False) for y in x}
        self._are_arrays = type(first) is ArrayTracer
        self._weak = weak == {True}
        self._either = max(len(weak) > 1, *(getattr(y, "_either", 0) for y in x))
        self._given = [(y._owner, y._owner._version) for y in x if self._are_arrays]
        rows = dispatch.stack([*map(strong, x)])
        self.dtype, self._shape = rows.dtype, rows.shape[1:]
        zeros = BroadcastTo((len(x) + rounds, *self._shape))
        self.array = record(trace, zeros, [Literal(self.dtype.type(0))])
        self.array[: len(x)] = rows
        # In a round: its trace, the number of entries, and those that were appended
        self._trace: Trace | None = None
        self._length_now: Any = None
        self._appended: list[Any] = []
        self._kinds = set[tuple[bool, int]]()  # (weak, either) of the appended numbers
        self._version = 0
        self._last = ""  # the path of the variable that also holds the entry behind the round

    @classmethod
    def made(
        cls, frame: FrameType, variable: Any, begun: int, rounds: int, trace: Trace, notes: Any
    ) -> FilledList | None:
        """The proxy of a variable's list, which the variable then holds; None if its entries aren't
        known to be of one type."""
        if not _are_alike(variable.value):
            return None
        found = cls(frame, variable, begun, rounds, trace, notes)
        found._put(found)
        effects_in(frame).varying = True  # type: ignore[union-attr]
        return found

    def give_up(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise retrace_with(self._notes)

    @property
    def in_round(self) -> bool:
        """Whether a round is under way."""
        return self._trace is not None and self._trace.alive

    # ---- rounds

    def begins(self, step: Tracer, done: int) -> None:
        """Begin a round, whose number is `step` plus `done`."""
        self._least = self.front + done - self._begun
        number: Any = step + np.int64(self._least)  # type: ignore[operator]
        operand, value = number._read()
        self._trace = step._trace
        self._trace.bounds[operand] = self._least, self.front + self._rounds - 1
        self._length_now = stand_in(self._trace, operand, value, weak=True)
        self._appended.clear()
        self._version = self.array._version

    def ends(self, before: Variables) -> None:
        """End a round that began with the variables `before`. The trace is repeated unless it has
        appended one entry, and only variables refer to that."""
        fits = len(self._appended) == 1 and self.array._version == self._version + 1
        fits = fits and all(y._version == version for y, version in self._given)
        if fits and self._are_arrays:
            x, version = self._appended[0]
            is_old = any(x is y for y in before.tracers)
            within = held_by(self._frame, x)
            others = _holders(self._appended, 0) - within
            fits = x._version == version and not is_old and others <= _ALONE
        if not fits:
            self.give_up()

    def stays(self, after: Variables) -> None:
        """Repeat the trace if a round writes to an entry that another one has appended."""
        x = self._appended[0][0]
        held = [k for k, y in enumerate(after.tracers) if y is x] if self._are_arrays else []
        self._last = after.paths[held[0]] if held else ""
        if not after.written.isdisjoint(held):
            self.give_up()

    def leave(self, after: Variables) -> None:
        """Put the list back into its variable, with the appended entries of all rounds."""
        stack, x = stand_in(self.array._trace, *self.array._read()), self._list
        weak, either = self._weak, self._either
        if len(self._kinds) == 1:
            ((weak, either),) = self._kinds
        rows = rows_of(stack, weak, self._are_arrays, either)
        for k, y in enumerate(x):
            if isinstance(y, Tracer) and (not self._are_arrays or is_apart(y)):
                known_as_row(y, stack, k)
        if self._last:
            rows[-1] = after.tracers[after.paths.index(self._last)]
            known_as_row(rows[-1], stack, len(rows) - 1)
        if following.observer is not None:
            following.observer.adds(x, self._rounds)
        x += rows[len(x) :]
        self._put(x)

    # ---- operations

    def _length(self) -> Any:
        return self._length_now

    __iter__ = give_up

    def items(self) -> tuple[Entries, Count]:
        """The entries for a loop over the list, and the number of its rounds."""
        entries = Entries(self.array, is_weak=self._weak, either=self._either)
        return entries, Count(self._length_now, self.front + self._rounds)

    @unobserved
    def varying(self) -> Any:
        """The proxy of a list with the same numbers, whose length varies with the rounds."""
        if self._are_arrays or current_trace() is not self._trace:
            return None
        mask = np.arange(self.front + self._rounds) < self._length_now
        (note,) = self._notes
        return dispatch.varying(self.array.copy(), mask, self._weak, self._either, note)

    @unobserved
    def append(self, x: Any) -> None:
        if current_trace() is not self._trace or not self._is_entry(x):
            self.give_up()
        self.array[self._length_now] = strong(x)
        self._length_now = self._length_now + 1
        self._least += 1
        self._appended.append((x, getattr(x, "_version", 0)))

    def _is_entry(self, x: Any) -> bool:
        if self._are_arrays:
            is_one = type(x) is ArrayTracer and x.shape == self._shape and x.dtype == self.dtype
            return is_one and is_apart(x) and x._trace.alive
        if type(x) is float or type(x) is np.float64:
            weak, either, dtype = type(x) is float, 0, np.dtype(float)
        elif isinstance(x, Tracer) and not isinstance(x, ArrayTracer):
            weak, either, dtype = x._weak, x._either, x.dtype
        else:
            return False
        self._kinds.add((weak, either))
        return dtype == self.dtype and (
            self._either > either or (either, weak) == (self._either, self._weak)
        )

    @unobserved
    def __getitem__(self, k: Any) -> Any:
        found = self.array[self._place(k)]
        if self._weak:
            operand, value = found._read()
            return stand_in(found._trace, operand, value, weak=True)
        return as_union(found, self._either)

    def _place(self, k: Any) -> Any:
        """The row of an entry, which is guarded to exist."""
        if type(k) is int and -self._least <= k < self._least:
            return k if k >= 0 else self._length_now + k
        if not isinstance(k, Tracer) or not k._weak or k.dtype.kind != "i" or k.shape:
            self.give_up()
        low, high = span(k)
        number: Any = k
        if high < 0 or (low < 0 and k._read()[1] < 0):
            self._check(0 - number, 1)
            number = self._length_now + number
            self._check(number, 0)
            return number
        self._check(number, 0)
        below = k._trace.below.get(k._read()[0])
        if below is None or least_ahead(self._length_now, below) < 0:
            self._check(self._length_now - number, 1)
        return k

    def _check(self, x: Any, least: int) -> None:
        """Guard that an integer is at least `least`, in each round."""
        if span(x)[0] < least:
            is_so = x >= least
            if not is_so._read()[1]:
                self.give_up()
            is_so._trace.guard(is_so, True, "an entry of a list")


def _are_alike(x: list[Any]) -> bool:
    """Whether the entries are floats of one dtype, or float arrays of one type."""
    values: list[Any] = [np.float64(y) if type(y) is float else y for y in x]
    known = all(type(y) is np.float64 or _is_steady(y) for y in values)
    if not known or not may_show(x) or values[0].dtype.kind != "f":
        return False
    return len({(isinstance(y, ArrayTracer), y.shape, y.dtype) for y in values}) == 1


def _is_steady(x: Any) -> bool:
    """Whether `x` is a traced value without doubts about its memory."""
    return isinstance(x, Tracer) and x._trace.alive and not x._doubt and not x._may_alias


def _holders(held: Sequence[Any], k: int) -> int:
    """The number of references to an appended entry, including those of the count."""
    return sys.getrefcount(held[k][0])


_ALONE = _holders([([], 0)], 0) + 1  # and the name by which it is tested
