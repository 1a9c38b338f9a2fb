"""Lists that grow in the rounds of a loop of which one is traced for all.

    for t in range(n):               loop(n, %h, %ys, %xs, body)
        h = f(h, xs[t])       -->        ...
        out.append(h)                    out %h, set_window(%ys, %h, step)

A list grows if only one variable of the frame refers to it, and rounds do nothing with it but call
`append`: so no round can depend on its contents. Appended values are further results of a round,
which are stacked; behind the loop the list holds the rows.

Each entry is an object of its own, as in Python's loop, with two exceptions. A round may append a
variable's old value before it sets the variable: then the first entry is the variable's value
before the loop. A round may append the value that it leaves in a variable: then the last entry is
the variable's value behind the loop. If another array would be in two places, all rounds are made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from tapegrad.ir.tape import Literal
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects.purity import PLAIN_TYPES
from tapegrad.observe.observer import following
from tapegrad.observe.program.joins import sides_of
from tapegrad.observe.program.liveness import flow_of
from tapegrad.observe.queries import effects_in
from tapegrad.observe.sides.appended_items import Perhaps
from tapegrad.primitives.views import BroadcastTo
from tapegrad.tracing.loops.stacking import Rows, as_rows, known_as_row, rows_of, strong
from tapegrad.tracing.memory.created import is_created
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.statements.variables import (
    Arrays,
    Variables,
    filled,
    held_by,
    is_apart,
    is_private,
    own,
    put_in,
    putting,
    revive,
)
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, record
from tapegrad.tracing.tracers.union_numbers import check_elements

_DEEP = 6


class Refused(Exception):
    """A round has appended a value that can't be a row."""


class Row(NamedTuple):
    """A traced value that each round computes: the number of the round's result."""

    number: int


class Same(NamedTuple):
    """An object that is the same in all rounds: a variable's value, by its path, or a constant."""

    path: str
    value: Any = None
    text: str = ""


class Put(NamedTuple):
    """A tuple or list of such entries."""

    kind: Any
    parts: tuple[Any, ...]


class Listed(NamedTuple):
    """A list of the rows of an array that each round computes."""

    row: Any
    weak: bool
    are_arrays: bool


@dataclass(eq=False)
class Grown:
    """The entries that one round has appended to each list. For its results that are rows: the
    tracers, and the paths of the variables that hold them before and after the round, if any."""

    entries: list[list[Any]] = field(default_factory=list)
    rows: list[Tracer] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    fits: bool = True  # whether all rounds may be like this one, with no array in two places

    @property
    def may_vary(self) -> bool:
        """Whether the number of entries may vary: at most one number for each list."""
        fits = all(len(entries) < 2 for entries in self.entries)
        return fits and not any(isinstance(x, ArrayTracer) for x in self.rows)

    @property
    def shape(self) -> Any:
        """A description that is equal for rounds that do the same."""
        told = [[_told(x) for x in entries] for entries in self.entries]
        return told, self.fits, self.before, self.after, [type(x) for x in self.rows]


def _told(x: Any) -> Any:
    if isinstance(x, Put):
        return x.kind, tuple(map(_told, x.parts))
    if isinstance(x, Perhaps):
        return Perhaps, tuple(map(_told, x))
    return (x.path, x.text) if isinstance(x, Same) else x


class Growing:
    """The lists that grow in rounds of a frame's loop, and that nothing else refers to."""

    def __init__(self, frame: FrameType, place: int) -> None:
        effects = effects_in(frame)
        self.frame, self.place = frame, place
        wanted = () if effects is None else flow_of(frame.f_code).appended(place)
        self.lists: list[list[Any]] = []
        # Setters of proxies in the place of lists that nothing else refers to
        self._put: list[Callable[[Any], None]] = []
        self.filled: list[
            Any
        ] = []  # the proxies of lists that rounds also read: see `filled_lists.py`
        self.refused = False  # whether a round has appended a value that can't be a row
        for variable in list(own(frame, place)) if wanted else ():
            is_list = variable.number in wanted and type(variable.value) is list
            if is_list and is_private(frame, variable):
                self.lists.append(variable.value)
                self._put.append(partial(put_in, frame, variable))
        count = len(self.lists)
        if effects is not None:
            self.lists += filled(frame, place)
            self._put += putting(frame, place)
        self.fills = len(self.lists) > count  # whether a comprehension does
        # With those of outer loops, which aren't read here either
        self.all: list[Any] = [] if effects is None else effects.growing
        self.all += self.lists
        self._rounds: list[Any] = [] if effects is None else effects.rounds
        self.take_in()

    def take_in(self) -> None:
        """Begin to make rounds for the loop."""
        self._rounds.append((self.frame, self.place))

    def leave_out(self) -> None:
        """Make the next rounds by themselves: their changes are final."""
        self._rounds.remove((self.frame, self.place))

    def end(self) -> None:
        """End the rounds."""
        if (self.frame, self.place) in self._rounds:
            self.leave_out()
        for x in self.lists:
            del self.all[next(k for k, y in enumerate(self.all) if y is x)]
            is_done = sys.exc_info()[0] is None and not any(x is y for y in self.all)
            if is_done and any(map(_is_perhaps, x)):
                x[:] = [y for each in x for y in _there(each)]

    def lengths(self) -> list[int]:
        return [len(x) for x in self.lists]

    @property
    def may_vary(self) -> bool:
        """Whether the lengths of the lists may vary between calls."""
        return self.place not in sides_of(self.frame.f_code).counted

    def grown(
        self,
        lengths: Sequence[int],
        trace: Trace,
        before: Variables,
        after: Variables,
        lent: Arrays,
    ) -> Grown:
        """The entries that a round has appended to lists of these lengths. It has found and left
        the variables `before` and `after`."""
        seen = _Seen(trace, before, after, lent, self.frame)
        try:
            for x, length in zip(self.lists, lengths, strict=True):
                entries = [seen.entry(x, k) for k in range(length, len(x))]
                if len(entries) > 1 and not seen.are_alike(entries):
                    raise Refused
                seen.found.entries.append(entries)
            seen.check()
        except Refused:
            self.refused = True
            return Grown()
        return seen.found

    def leave(
        self, lengths: Sequence[int], found: Grown, ends: Sequence[Any], known: Sequence[Tracer]
    ) -> None:
        """Record the last round by itself, behind lists of these lengths. The appended tracers get
        the results `ends`, except those that are `known` to have them."""
        for x, length, entries in zip(self.lists, lengths, found.entries, strict=True):
            del x[length : len(x) - len(entries)]
        for row, end in zip(found.rows, ends, strict=True):
            if not any(row is x for x in known):
                revive(row, end)
        for x, entries in zip(self.lists, found.entries, strict=True):
            if _may_be_missing(entries):  # guarded, if only one round appends it
                first = len(x) - len(entries)
                x[first:] = [y for each in x[first:] for y in _there(each)]

    def fill(
        self,
        lengths: Sequence[int],
        found: Grown,
        loop: Any,
        start: Variables,
        end: Variables,
    ) -> None:
        """Set the lists, behind these lengths, to the stacked results of a loop's rounds; if the
        number of rounds varies between calls, to those that are made. `start` and `end` are the
        variables before and after."""
        first, last = _by_path(start), _by_path(end)
        rounds, rows = loop.rounds, []
        for k, (y, stack) in enumerate(loop.stacks):
            row = rows_of(stack, *_kind_of(y, found.rows[k]))
            if found.before[k]:
                row[0] = first[found.before[k]]
                known_as_row(row[0], stack, 0)
            if found.after[k]:
                row[-1] = last[found.after[k]]
                known_as_row(row[-1], stack, rounds - 1)
            rows.append(row)
        for k, length in enumerate(lengths):
            x, entries = self.lists[k], found.entries[k]
            del x[length:]
            if entries and (loop.made is not None or _may_be_missing(entries)):
                self._select(k, _Choice.of(entries, found, loop), last)
                continue
            if following.observer is not None and entries:
                following.observer.adds(x, rounds * len(entries))
            if len(entries) == 1 and isinstance(entries[0], Row):
                x += rows[entries[0].number]
                continue
            for k in range(rounds):
                x += [_made(entry, rows, k, last) for entry in entries]

    def _select(self, at: int, choice: _Choice, last: dict[str, Tracer]) -> None:
        """Extend list number `at` by the entries that are present: as many as are guarded, or a
        number that varies between calls."""
        x, note = self.lists[at], (sides_of(self.frame.f_code).counted, self.place)
        effects = effects_in(self.frame)
        series = choice.series_behind(x) if effects and self.place not in note[0] else None
        stands = None
        if series is not None:
            stands = dispatch.varying(*series, note)
        if effects is not None and stands is not None:
            effects.varying = True
            self._put[at](stands)
            return
        rows: Any = {k: rows_of(s[choice.mask], *kind) for k, (s, *kind) in choice.columns.items()}
        count = int(np.sum(choice.mask))
        if following.observer is not None:
            following.observer.adds(x, count)
        x += [_made(choice.entry, rows, k, last) for k in range(count)]


class _Series(NamedTuple):
    """Numbers in a list (weak or strong, of varying type if `either`), and their mask."""

    column: Any
    mask: Any
    weak: bool
    either: int


class _Choice(NamedTuple):
    """Entries that are present in some rounds only: their description; the stacked arrays, each
    with its kind; and the mask of those present."""

    entry: Any
    columns: dict[int, tuple[Any, ...]]  # arrays of entries, and their kinds
    mask: Any

    def series_behind(self, first: Sequence[Any]) -> _Series | None:
        """These entries behind the `first` ones of a list, if all are numbers of one type."""
        value, mask = getattr(self.entry, "value", None), self.mask
        if isinstance(self.entry, Row):
            column, weak, are_arrays, either = self.columns[self.entry.number]
        elif type(value) in (float, int, bool) and isinstance(mask, Tracer):
            number = Literal(np.asarray(value).dtype.type(value))
            column = record(mask._trace, BroadcastTo(mask.shape), [number])
            weak, are_arrays, either = True, False, 0
        else:
            return None
        if are_arrays or not all(is_one_of(x, column.dtype, weak, either) for x in first):
            return None
        if first:
            column = np.concatenate([dispatch.stack(list(map(strong, first))), column])
            mask = np.concatenate([np.ones(len(first), bool), mask])
        return _Series(column, mask, weak, either)

    @classmethod
    def of(cls, entries: Sequence[Any], found: Grown, loop: Any) -> _Choice:
        """The choice of these entries of each round, if the round is made."""
        stacks = [stack for _, stack in loop.stacks]
        kinds = [_kind_of(y, x) for (y, _), x in zip(loop.stacks, found.rows, strict=True)]
        made = loop.made
        masks = [_both(stacks[x.there.number], made) if _is_perhaps(x) else made for x in entries]
        every = np.ones(loop.rounds, bool)
        masks = [every if mask is None else mask for mask in masks]
        values = [x.value if _is_perhaps(x) else x for x in entries]
        if len(entries) == 1:
            columns = {k: (stacks[k], *kinds[k]) for k in _rows_in(values[0])}
            return cls(values[0], columns, masks[0])
        k = values[0].number
        column = _in_turn([stacks[value.number] for value in values])
        return cls(values[0], {k: (column, *kinds[k])}, _in_turn(masks))


def _kind_of(y: Any, x: Tracer) -> tuple[bool, bool, int]:
    """(weak, is an array, either) of a result of rounds."""
    return y.aval.weak, isinstance(x, ArrayTracer), x._either


def _both(mask: Any, other: Any) -> Any:
    return mask if other is None else mask & other


def _in_turn(columns: Sequence[Any]) -> Any:
    """The entries of rounds that append several: stacked, round by round."""
    found = np.stack(columns, axis=1)
    return found.reshape(-1, *found.shape[2:])


def is_one_of(x: Any, dtype: Any, weak: bool, either: int) -> bool:
    """Whether `x` is a number of this type: Python's if `weak`, of varying type if `either`."""
    if isinstance(x, Tracer):
        known = x.dtype, x._weak, x._either
        return not isinstance(x, ArrayTracer) and known == (dtype, weak, either)
    if either:
        return False
    return type(x) is _PYTHONS.get(dtype) if weak else type(x) is dtype.type


_PYTHONS = {np.dtype(np.float64): float, np.dtype(np.int64): int, np.dtype(np.bool_): bool}


def _is_perhaps(entry: Any) -> bool:
    return type(entry) is Perhaps


def _there(entry: Any) -> list[Any]:
    """An optional entry, if it is present, which is guarded; otherwise an empty list."""
    if not _is_perhaps(entry):
        return [entry]
    there = entry.there
    if isinstance(there, Tracer):
        there = bool(entry.there._read()[1])
        entry.there._trace.guard(entry.there, there, "whether a list has an entry")
    return [entry.value] if there else []


def _may_be_missing(entries: Sequence[Any]) -> bool:
    return any(map(_is_perhaps, entries))


def _rows_in(entry: Any) -> list[int]:
    """The numbers of the results in an entry, in order."""
    if isinstance(entry, Row):
        return [entry.number]
    if isinstance(entry, Listed):
        return _rows_in(entry.row)
    return [k for part in getattr(entry, "parts", ()) for k in _rows_in(part)]


def _made(entry: Any, rows: Sequence[Sequence[Any]], k: int, last: dict[str, Tracer]) -> Any:
    if isinstance(entry, Row):
        return rows[entry.number][k]
    if isinstance(entry, Put):
        return entry.kind([_made(x, rows, k, last) for x in entry.parts])
    if isinstance(entry, Listed):
        return rows_of(_made(entry.row, rows, k, last), entry.weak, entry.are_arrays)
    return last[entry.path] if entry.path else entry.value


class _Seen:
    """The description of the values that one round has appended."""

    def __init__(
        self, trace: Trace, before: Variables, after: Variables, lent: Arrays, frame: FrameType
    ) -> None:
        self.trace, self.lent, self.frame, self.found = trace, lent, frame, Grown()
        self.seen = {*before.seen, *after.seen}
        self.before, self.after = _by_path(before), _by_path(after)
        self.old, self.new = _by_id(before), _by_id(after)
        self.rows: dict[int, int] = {}

    def entry(self, held: Any, k: int, depth: int = 0, may_be_new: bool = True) -> Any:
        """The description of an entry of a list or tuple."""
        x = held[k]
        kind: Any = type(x)
        if isinstance(x, Tracer):
            return self._traced(x)
        if kind is Perhaps:
            return Perhaps(self._traced(x.there), self.entry(x, 1, depth + 1))
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

    def are_alike(self, entries: Sequence[Any]) -> bool:
        """Whether the values that a round appends are numbers of one type, if some are optional."""
        values = [x.value if _is_perhaps(x) else x for x in entries]
        rows = [self.found.rows[x.number] for x in values if isinstance(x, Row)]
        kinds = {(type(x), x.dtype, x.shape) for x in rows}
        return not _may_be_missing(entries) or (len(rows) == len(values) and len(kinds) == 1)

    def _is_new(self, held: Any, k: int) -> bool:
        """Whether an entry is new in the round: no variable that is read later refers to it."""
        if id(held[k]) in self.seen:
            return False
        within = held_by(self.frame, held[k])
        return holders(held, k) - within <= _ALONE

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
        if is_created(x) and x._trace.alive:
            x._become_traced()
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
        """Check that an array that a round appends is in no variable after the next round, and
        isn't appended there."""
        for x in self.found.rows:
            if not isinstance(x, ArrayTracer):
                continue
            # What the next round finds in its place, and what the previous one has left in it
            gone = [self.before.get(path) for path in self.new.get(id(x), [])]
            made = [self.after.get(path) for path in self.old.get(id(x), [])]
            stays = any(y is not None and id(y) in self.new for y in gone)
            again = any(y is not None and id(y) in self.rows for y in (*gone, *made))
            is_old = any(y is None or id(y) in self.old for y in made)
            if stays or again or is_old:
                self.found.fits = False


def holders(held: Any, k: int) -> int:
    """The number of references to an entry, including that of the count."""
    return sys.getrefcount(held[k])


_ALONE = holders([[]], 0) + 1  # and the name by which it is tested


def _by_path(found: Variables) -> dict[str, Tracer]:
    return dict(zip(found.paths, found.tracers, strict=True))


def _by_id(found: Variables) -> dict[int, list[str]]:
    paths: dict[int, list[str]] = {}
    for x, path in zip(found.tracers, found.paths, strict=True):
        paths.setdefault(id(x), []).append(path)
    return paths
