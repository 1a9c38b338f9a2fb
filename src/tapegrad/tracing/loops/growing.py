"""Lists that grow in the rounds of a loop of which one is traced for all.

    for t in range(n):                          loop(n, %h, %ys, %xs, body)
        h = f(h, xs[t])              -->            ...
        out.append(h)                               out %h, set_window(%ys, %h, step)

A list grows where it is held by one variable of the frame alone, and rounds do nothing with that
but call `append`: so nothing that a round does can depend on what is in it. What a round appends
are further results of it, which are stacked; behind the loop the list holds their rows.

Each entry is an object of its own, as in Python's loop, but for two cases. What a variable holds
before the round may be appended before the round sets the variable: then the first entry is what it
has held before the loop. What a round appends may be what it leaves in a variable: then the last
entry is what that holds behind the loop. Where other arrays than these would be in two places, each
round is made.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from tapegrad.tracing.either import check_elements
from tapegrad.tracing.loops.rounds import Leaf
from tapegrad.tracing.loops.stacking import Rows, as_rows, known_as_row, rows_of
from tapegrad.tracing.loops.variables import (
    Lent,
    Variables,
    filled,
    held_by,
    is_apart,
    is_private,
    own,
    revive,
)
from tapegrad.tracing.made import is_made
from tapegrad.tracing.observe.harmless import PLAIN_TYPES
from tapegrad.tracing.observe.liveness import flow_of
from tapegrad.tracing.observe.observer import following
from tapegrad.tracing.observe.seen import effects_in
from tapegrad.tracing.trace import Trace
from tapegrad.tracing.tracer import ArrayTracer, Tracer

_DEEP = 6


class Refused(Exception):
    """What a round has appended can't be a row."""


class Row(NamedTuple):
    """One traced value that each round makes: the number of the result that it is."""

    number: int


class Same(NamedTuple):
    """What is the same object in all rounds: what a variable of this path holds, or a constant."""

    path: str
    value: Any = None
    text: str = ""


class Put(NamedTuple):
    """A tuple or list of such."""

    kind: Any
    parts: tuple[Any, ...]


class Listed(NamedTuple):
    """A list of the rows of one array that each round makes."""

    row: Any
    weak: bool
    are_arrays: bool


@dataclass(eq=False)
class Grown:
    """What one round has appended, to each list. Of its results that are rows: the tracers; and the
    paths of the variables that hold them before the round, and after it, if any do."""

    entries: list[list[Any]] = field(default_factory=list)
    rows: list[Tracer] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    fits: bool = True  # whether all rounds may be like this one: no array is in two places then

    @property
    def shape(self) -> Any:
        """What another round that does the same has, too."""
        told = [[_told(x) for x in entries] for entries in self.entries]
        return told, self.fits, self.before, self.after, [type(x) for x in self.rows]


def _told(x: Any) -> Any:
    if isinstance(x, Put):
        return x.kind, tuple(map(_told, x.parts))
    return (x.path, x.text) if isinstance(x, Same) else x


class Growing:
    """The lists that grow in rounds of a frame's loop, and that nothing else holds."""

    def __init__(self, frame: FrameType, place: int, fills: list[Any] | None = None) -> None:
        effects = effects_in(frame)
        self.frame, self.place = frame, place
        wanted = () if effects is None else flow_of(frame.f_code).appended(place)
        self.lists: list[list[Any]] = []
        self.refused = False  # whether a round has appended what can't be a row
        for variable in list(own(frame, place)) if wanted else ():
            is_list = variable.number in wanted and type(variable.value) is list
            if is_list and is_private(frame, variable):
                self.lists.append(variable.value)
        count = len(self.lists)
        if effects is not None:
            self.lists += filled(frame, place) if fills is None else [fills]
        self.fills = len(self.lists) > count  # a comprehension does
        # With those of the loops around, which aren't read here either
        self.all: list[Any] = [] if effects is None else effects.growing
        self.all += self.lists
        self._rounds: list[Any] = [] if effects is None else effects.rounds
        self._rounds.append((frame, place))

    def end(self) -> None:
        """The rounds have been made."""
        self._rounds.remove((self.frame, self.place))
        for x in self.lists:
            del self.all[next(k for k, y in enumerate(self.all) if y is x)]

    def lengths(self) -> list[int]:
        return [len(x) for x in self.lists]

    def grown(
        self,
        lengths: Sequence[int],
        trace: Trace,
        before: Variables,
        after: Variables,
        lent: Lent,
    ) -> Grown:
        """What a round has appended to lists of these lengths, which has found and left these
        variables."""
        seen = _Seen(trace, before, after, lent, self.frame)
        try:
            for x, length in zip(self.lists, lengths, strict=True):
                seen.found.entries.append([seen.entry(x, k) for k in range(length, len(x))])
            seen.check()
        except Refused:
            self.refused = True
            return Grown()
        return seen.found

    def leave(
        self, lengths: Sequence[int], found: Grown, ends: Sequence[Any], known: Sequence[Tracer]
    ) -> None:
        """The round that was made last stands by itself, behind lists of these lengths: what it has
        appended stands for these results, but for the tracers that are `known` to do so."""
        for x, length, entries in zip(self.lists, lengths, found.entries, strict=True):
            del x[length : len(x) - len(entries)]
        for row, end in zip(found.rows, ends, strict=True):
            if not any(row is x for x in known):
                revive(row, end)

    def fill(
        self,
        lengths: Sequence[int],
        found: Grown,
        rounds: int,
        stacks: Sequence[tuple[Leaf, Any]],
        start: Variables,
        end: Variables,
    ) -> None:
        """Behind these lengths the lists hold what so many rounds have appended, whose results were
        stacked. At the `start` and at the `end` the variables have held these."""
        first, last = _by_path(start), _by_path(end)
        rows = []
        for k, (y, stack) in enumerate(stacks):
            row = rows_of(stack, y.aval.weak, isinstance(found.rows[k], ArrayTracer))
            if found.before[k]:
                row[0] = first[found.before[k]]
                known_as_row(row[0], stack, 0)
            if found.after[k]:
                row[-1] = last[found.after[k]]
                known_as_row(row[-1], stack, rounds - 1)
            rows.append(row)
        for x, length, entries in zip(self.lists, lengths, found.entries, strict=True):
            del x[length:]
            if following.observer is not None and entries:
                following.observer.adds(x, rounds * len(entries))
            if len(entries) == 1 and isinstance(entries[0], Row):
                x += rows[entries[0].number]
                continue
            for k in range(rounds):
                x += [_made(entry, rows, k, last) for entry in entries]


def _made(entry: Any, rows: Sequence[Sequence[Any]], k: int, last: dict[str, Tracer]) -> Any:
    if isinstance(entry, Row):
        return rows[entry.number][k]
    if isinstance(entry, Put):
        return entry.kind([_made(x, rows, k, last) for x in entry.parts])
    if isinstance(entry, Listed):
        return rows_of(_made(entry.row, rows, k, last), entry.weak, entry.are_arrays)
    return last[entry.path] if entry.path else entry.value


class _Seen:
    """What becomes of the values that one round has appended."""

    def __init__(
        self, trace: Trace, before: Variables, after: Variables, lent: Lent, frame: FrameType
    ) -> None:
        self.trace, self.lent, self.frame, self.found = trace, lent, frame, Grown()
        self.seen = {*before.seen, *after.seen}
        self.before, self.after = _by_path(before), _by_path(after)
        self.old, self.new = _by_id(before), _by_id(after)
        self.rows: dict[int, int] = {}

    def entry(self, held: Any, k: int, depth: int = 0, may_be_new: bool = True) -> Any:
        """What becomes of an entry of a list or tuple."""
        x = held[k]
        kind: Any = type(x)
        if isinstance(x, Tracer):
            return self._traced(x)
        if kind in (list, tuple) and depth < _DEEP:
            is_new = may_be_new and self._is_new(held, k)
            if is_new or kind is tuple:
                found = None if kind is tuple else self._listed(x)
                parts = [] if found else range(len(x))
                entries = [self.entry(x, j, depth + 1, is_new) for j in parts]
                return found or Put(kind, tuple(entries))
        if kind in PLAIN_TYPES or (isinstance(x, np.generic) and not isinstance(x, np.void)):
            return Same("", x, f"{kind.__name__} {x!r}")
        raise Refused

    def _is_new(self, held: Any, k: int) -> bool:
        """Whether an entry is the round's own: nothing else has it but variables that aren't read
        any more."""
        if id(held[k]) in self.seen:
            return False
        return holders(held, k) - held_by(self.frame, held[k]) <= _ALONE

    def _listed(self, x: list[Any]) -> Listed | None:
        rows = as_rows(x)
        first = rows[0] if rows is not None and len(rows) == 1 else None
        stack = first.whole if isinstance(first, Rows) else None
        if stack is None or stack._trace is not self.trace:
            return None
        are_arrays = isinstance(x[0], ArrayTracer)
        if are_arrays and any(holders(x, k) >= _ALONE for k in range(len(x))):
            return None
        row = self._traced(stack)
        return Listed(row, x[0]._weak, are_arrays) if isinstance(row, Row) else None

    def _traced(self, x: Tracer) -> Any:
        check_elements([x])
        if is_made(x) and x._trace.alive:
            x._owner._let_be_written()
            is_made(x)
        is_array = isinstance(x, ArrayTracer)
        if self.lent.has(x) or x._trace is not self.trace or (is_array and not is_apart(x)):
            raise Refused
        if id(x) in self.rows:
            return Row(self.rows[id(x)])
        before, after = self.old.get(id(x), []), self.new.get(id(x), [])
        if is_array and before and after:
            self.found.fits = self.found.fits and before == after
            return Same(after[0])
        number = self.rows[id(x)] = len(self.found.rows)
        self.found.rows.append(x)
        self.found.before.append(before[0] if is_array and before else "")
        self.found.after.append(after[0] if is_array and after else "")
        return Row(number)

    def check(self) -> None:
        """Whether an array that a round appends is in no variable after the next one, and isn't
        appended there, too."""
        for x in self.found.rows:
            if not isinstance(x, ArrayTracer):
                continue
            # Where the next round finds it, and where the one before has left it
            gone = [self.before.get(path) for path in self.new.get(id(x), [])]
            made = [self.after.get(path) for path in self.old.get(id(x), [])]
            stays = any(y is not None and id(y) in self.new for y in gone)
            again = any(y is not None and id(y) in self.rows for y in (*gone, *made))
            is_old = any(y is None or id(y) in self.old for y in made)
            if stays or again or is_old:
                self.found.fits = False


def holders(held: Any, k: int) -> int:
    """How many references there are to an entry, with the one that counting takes."""
    return sys.getrefcount(held[k])


_ALONE = holders([[]], 0) + 1  # and the name that it has where it is looked at


def _by_path(found: Variables) -> dict[str, Tracer]:
    return dict(zip(found.paths, found.tracers, strict=True))


def _by_id(found: Variables) -> dict[int, list[str]]:
    paths: dict[int, list[str]] = {}
    for x, path in zip(found.tracers, found.paths, strict=True):
        paths.setdefault(id(x), []).append(path)
    return paths
