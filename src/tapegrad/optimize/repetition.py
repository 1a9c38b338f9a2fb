"""Repetition: runs of equal rounds among a tape's calls, and the sources of the operands in them.

A run is a series of rounds of equal calls: the same primitive, from the same line, on operands of
equal types. Over the rounds each operand follows one `OperandSource`, and the start of an index
changes by the same amount. The longest run is taken, so the outer loop of a nest first.

Equal calls have equal marks. Stretches of marks are compared by prefix hashes, so comparing two
rounds takes two subtractions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from tapegrad.ir.tape import Call, Guard, Operand, Tape, Var
from tapegrad.optimize.unrolled import may_begin
from tapegrad.primitives.kinds import Library, ReadPart, Routine
from tapegrad.primitives.loops import MIN_CALLS as MIN_CALLS
from tapegrad.primitives.loops import MIN_NUMPY_CALLS as MIN_NUMPY_CALLS
from tapegrad.primitives.loops import MIN_ROUNDS as MIN_ROUNDS
from tapegrad.primitives.scatter import Update
from tapegrad.primitives.views import GetItem, Takes

MAX_DISTANCE = 4  # rounds: older values aren't carried
FIRST_MARKS = 8  # calls that are compared separately
MAX_PERIODS = 64  # periods that are tried, from the shortest on,
MAX_OUTER_PERIODS = 8  # and behind a run, which may be an inner loop
# The search stops after examining so many operands, and so many more for each call: about 50 us a
# call.
OPERANDS_EXAMINED = 30_000, 60
# Bytes: larger values aren't collected in an array, unless they are parts of one.
MAX_COLLECTED = 1024
INDEXED = (Takes, Update, ReadPart)  # primitives whose index may move

MODULUS = (1 << 61) - 1
BASE = 1_000_003


class _Numbers:
    """Numbers for values: equal values get equal numbers. Most lookups are by identity."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._by_id: dict[int, int] = {}

    def of(self, value: Any, key: Any = None) -> int:
        """The number of an object that lives as long as this table."""
        known = self._by_id.get(id(value))
        if known is None:
            known = self._numbers.setdefault(value if key is None else key, len(self._numbers))
            self._by_id[id(value)] = known
        return known

    def of_key(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


@dataclass(frozen=True)
class OperandSource:
    """The source of an operand over the rounds of a run.

    `kind` is one of:

    - "same": the operand is `x`, from before the run.
    - "here": result `out` of call number `call` of the same round.
    - "before": the same, from `back` rounds earlier. The first rounds read `xs`.
    - "entries": a different value each round, from `xs`.
    """

    kind: str
    x: Any = None
    call: int = 0
    out: int = 0
    back: int = 0
    xs: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Run:
    """Rounds of `period` calls each, from call `start` on, with the sources of their operands
    (`ways`) and the change of each call's index per round (`moves`)."""

    start: int
    period: int
    rounds: int
    sources: tuple[tuple[OperandSource, ...], ...]
    moves: tuple[tuple[int, ...] | None, ...]

    @property
    def stop(self) -> int:
        return self.start + self.period * self.rounds


class SearchBudget:
    """The number of operands that may still be examined. All searches in one tape share it."""

    def __init__(self, calls: int) -> None:
        some, each = OPERANDS_EXAMINED
        self.left = some + each * calls


class Repetition:
    """The search for runs in a tape."""

    def __init__(
        self,
        tape: Tape,
        constants: Mapping[Var, np.ndarray],
        budget: SearchBudget | None = None,
    ) -> None:
        self.tape = tape
        self.constants = constants
        self.calls: Sequence[Call] = tape.calls
        self.budget = budget or SearchBudget(len(tape.calls))
        self.guards: dict[int, list[Guard]] = {}
        for guard in tape.guards:
            if isinstance(guard.operand, Var):
                self.guards.setdefault(guard.operand.id, []).append(guard)
        self._numbers = _Numbers(), _Numbers(), _Numbers(), _Numbers()
        # By period: the operand that last prevented a run; the first and last of the calls, a
        # period apart, that prevent every run containing them; and a stretch of equal marks.
        self._in_the_way: dict[int, tuple[int, int]] = {}
        self._stuck: dict[int, tuple[int, int]] = {}
        self._stretches: dict[int, tuple[int, int]] = {}
        self._look()

    def _look(self) -> None:
        """Mark the calls, and index them by mark."""
        self.made: Any = {}  # a variable's number -> (its call, its number among the results)
        self.marks: list[int] = []
        quick: dict[tuple[int, ...], int] = {}
        for position, call in enumerate(self.calls):
            guarded = False
            for place, out in enumerate(call.outs):
                self.made[out.id] = position, place
                guarded = guarded or out.id in self.guards
            # Most calls share all the objects that determine a mark with another call.
            like = (id(call.primitive), id(call.src), *[id(out.aval) for out in call.outs])
            like += tuple(
                [id(x.aval) if type(x) is Var else id(type(x.value)) for x in call.operands]  # type: ignore[union-attr]
            )
            mark = None if guarded else quick.get(like)
            if mark is None:
                mark = self._mark(call)
                if not guarded:
                    quick[like] = mark
            self.marks.append(mark)
        self._sums = [0]
        powers = [1]
        for number in self.marks:
            self._sums.append((self._sums[-1] * BASE + number + 1) % MODULUS)
            powers.append(powers[-1] * BASE % MODULUS)
        self._powers = powers
        self._places: dict[int, list[int]] = {}
        for position, number in enumerate(self.marks):
            self._places.setdefault(number, []).append(position)

    def _mark(self, call: Call) -> int:
        """The mark of a call. Equal marks mean the same primitive, line, types and guards."""
        primitives, sources, avals, marks = self._numbers
        primitive = call.primitive
        if isinstance(primitive, INDEXED):
            key: Any = (type(primitive), primitive.where.form, primitive.moves)
            if isinstance(primitive, ReadPart):
                key += (primitive.fill,)
        elif isinstance(primitive, Library) and primitive.foreign:
            key = (id(primitive),)
        else:
            key = primitive
        mark = [primitives.of(primitive, key), -1 if call.src is None else sources.of(call.src)]
        for x in call.operands:
            if type(x) is Var:
                mark.append(avals.of(x.aval, (x.aval.shape, x.aval.dtype.num)))
            else:  # a literal in this round may be a variable in the next
                mark.append(avals.of_key(((), x.dtype.num)))
        for place, out in enumerate(call.outs):
            mark.append(avals.of(out.aval, (out.aval.shape, out.aval.dtype.num)))
            for guard in self.guards.get(out.id, ()):
                mark.append(marks.of_key((place, guard.expected, guard.what, guard.src)))
        return marks.of_key(tuple(mark))

    def places(self, mark: int) -> list[int]:
        """The positions of the calls with this mark."""
        return self._places.get(mark, [])

    def next_places(self, at: int, count: int, behind: int | None = None) -> list[int]:
        """The next `count` calls with the mark of the call at `at`, from position `behind` on if
        given."""
        places = self._places[self.marks[at]]
        first = bisect_left(places, at + 1 if behind is None else behind)
        return places[first : first + count]

    def _digest(self, start: int, stop: int) -> int:
        return (self._sums[stop] - self._sums[start] * self._powers[stop - start]) % MODULUS

    def is_done(self, runs: Sequence[Run]) -> bool:
        """Whether these runs leave too few calls, and are too few, to be the rounds of an outer
        loop."""
        left = len(self.calls) - sum(run.stop - run.start for run in runs)
        return left < MIN_CALLS and len(runs) < MIN_ROUNDS

    def runs(self) -> Iterator[Run]:
        """The runs, in order. They don't overlap."""
        at, end = 0, len(self.calls)
        begins = may_begin(end, self._digest)
        while at < end:
            run = self._longest(at) if begins[at] else None
            if run is None:
                at += 1
            else:
                yield run
                at = run.stop

    def _longest(self, at: int) -> Run | None:
        """The run from `at` on that covers the most calls."""
        places = self.next_places(at, MAX_PERIODS)
        if len(places) < MIN_ROUNDS - 1:
            return None
        best: Run | None = None
        known: list[int] = []  # periods for which there is a run
        waiting = self._periods(at, places)
        waiting.reverse()
        while waiting:
            period = waiting.pop()
            rounds = self.repeated(at, period)
            size = rounds * period
            if (
                rounds < MIN_ROUNDS
                or size < MIN_CALLS
                or (best and rounds * period <= best.stop - best.start)
            ):
                continue
            run = self.run(at, period, rounds)
            if run is None:
                continue
            if best is None or run.stop > best.stop:
                best = run
            # These may be all rounds of an inner loop, in one round of an outer loop, whose next
            # round begins behind them.
            known.append(period)
            waiting = [k for k in waiting if all(k % p for p in known)]
            outer = [place - at for place in self.next_places(at, MAX_OUTER_PERIODS, run.stop)]
            waiting += [k for k in reversed(outer) if k not in known and k not in waiting]
        if best is None or best.stop - best.start < self._least(best):
            return None
        return best

    def _periods(self, at: int, places: Sequence[int]) -> list[int]:
        """The periods that pass a quick test.

        The call at `at` must recur at one of `places`, and a few calls of the least number of
        rounds must be alike. Most periods fail, and there are many.
        """
        marks, mark = self.marks, self.marks[at]
        fitting = places[: bisect_right(places, at + (len(marks) - at) // MIN_ROUNDS)]
        return [
            period
            for place in fitting
            if marks[last := at + (MIN_ROUNDS - 1) * (period := place - at)] == mark
            and marks[last + period - 1] == marks[place - 1]
            and marks[last + 1 - period] == marks[at + 1]
            and not self._is_stuck(at, period)
        ]

    def _least(self, run: Run) -> int:
        """The least number of calls that is worth a loop."""
        calls = self.calls[run.start : run.start + run.period]
        kinds = [c.primitive for c in calls]
        by_numpy = any(isinstance(p, Library) and not isinstance(p, Routine) for p in kinds)
        return MIN_NUMPY_CALLS if by_numpy else MIN_CALLS

    def repeated(self, at: int, period: int) -> int:
        """The number of rounds with equal marks."""
        first, end = self._stretches.get(period, (0, -1))
        if not first <= at <= end:  # otherwise a later part of the stretch that is known
            end = at + self._stretch(at, period)
            self._stretches[period] = at, end
        return (end - at) // period + 1

    def _stretch(self, at: int, period: int) -> int:
        """The number of calls from `at` on that have the marks of the calls one period later."""
        mine, theirs = (self.marks[k : k + FIRST_MARKS] for k in (at, at + period))
        if mine == theirs:
            return self._by_sums(at, period, FIRST_MARKS)
        pairs = enumerate(zip(mine, theirs, strict=False))
        return next((k for k, (a, b) in pairs if a != b), len(theirs))

    def _by_sums(self, at: int, period: int, equal: int) -> int:
        """`_stretch`, given that the first `equal` marks agree, by bisecting prefix hashes."""
        later = at + period

        def differ(last: int) -> bool:
            return self._digest(at, at + last + 1) != self._digest(later, later + last + 1)

        return bisect_left(range(len(self.calls) - later), True, equal, key=differ)

    def reads(self, runs: Sequence[Run]) -> Iterator[tuple[int, Operand]]:
        """(position, operand) of each operand that is read. Reads within one run may be left
        out."""
        return ((k, x) for k, call in enumerate(self.calls) for x in call.operands)

    # ---- operands

    def run(self, start: int, period: int, rounds: int) -> Run | None:
        """The run from `start` on, with up to `rounds` rounds of equal marks.

        It is tried with few rounds first. So if operands follow one way for a few rounds only, the
        calls behind aren't examined.
        """
        tried = MIN_ROUNDS
        while rounds >= tried and self.budget.left > 0:
            run = self._checked(start, period, tried)
            if run is None or run.rounds < tried or tried == rounds:
                return run
            tried = min(4 * tried, rounds)
        return None

    def _checked(self, start: int, period: int, rounds: int) -> Run | None:
        """The run as far as each operand follows one way, or None.

        The operand that prevented an earlier run of this period mostly prevents this one too, so it
        is examined first.
        """
        if self._is_stuck(start, period):
            return None
        at, m = self._in_the_way.get(period, (-1, 0))
        is_near = start <= at < start + period
        if is_near and self.source_of(at, m, start, period, rounds)[1] < MIN_ROUNDS:
            self._bar(at, m, period)
            return None
        moves: list[tuple[int, ...] | None] = []
        for k in range(period):
            move = None
            if isinstance(self.calls[start + k].primitive, INDEXED):
                move, rounds = self.move(start + k, period, rounds)
            if rounds < MIN_ROUNDS:
                self._stuck[period] = start + k, start + k
                return None
            moves.append(move)
        ways: list[list[OperandSource]] = []
        for k in range(period):
            here = []
            for m in range(len(self.calls[start + k].operands)):
                way, rounds = self.source_of(start + k, m, start, period, rounds)
                if rounds < MIN_ROUNDS:
                    self._in_the_way[period] = start + k, m
                    self._bar(start + k, m, period)
                    return None
                here.append(way)
            ways.append(here)
        cut = [tuple([_cut(way, rounds) for way in here]) for here in ways]
        return Run(start, period, rounds, tuple(cut), tuple(moves))

    def _is_stuck(self, start: int, period: int) -> bool:
        first, last = self._stuck.get(period, (start, -1))
        return first - period < start <= last

    def _bar(self, at: int, m: int, period: int) -> None:
        """Note that no run of this period may contain call `at`, because of its operand `m`.

        If the operand is a different array from outside of the tape each time, the same holds for
        that call of the following rounds.
        """
        xs = self.operands(at, m, period, self.repeated(at, period))
        pairs = enumerate(pairwise(xs))
        count = next((k for k, (x, y) in pairs if x == y or self.fits(x)), len(xs) - 1)
        if count:
            self._stuck[period] = at, at + (count - 1) * period

    def fits(self, x: Operand) -> bool:
        """Whether a value may be one of the "entries" of a way."""
        is_made = type(x) is Var and x.id in self.made
        return is_made or x.aval.nbytes <= MAX_COLLECTED or x in self.constants

    def operands(self, at: int, m: int, period: int, rounds: int) -> list[Operand]:
        """Operand `m` of a call in each of `rounds` rounds."""
        calls = self.calls[at : at + (rounds - 1) * period + 1 : period]
        self.budget.left -= len(calls)
        return [call.operands[m] for call in calls]

    def source_of(
        self, at: int, m: int, start: int, period: int, rounds: int
    ) -> tuple[OperandSource, int]:
        """The way of operand `m` of a call, and the number of rounds for which it holds."""
        xs = self.operands(at, m, period, min(rounds, MAX_DISTANCE + 1))
        for r, x in enumerate(xs):
            made = self._inside(x, start)
            if made is None:
                continue
            round_, k = divmod(made[0] - start, period)
            back = r - round_
            if back != r:  # defined in one of the first rounds and read in later ones
                return self._outside(xs[:r], start)
            kind = "before" if back else "here"
            here = at + back * period, m
            rounds = back + self._following(here, (start + k, made[1]), period, rounds - back)
            return OperandSource(kind, None, k, made[1], back, tuple(xs[:back])), rounds
        return self._outside(self.operands(at, m, period, rounds), start)

    def _following(
        self, reading: tuple[int, int], made: tuple[int, int], period: int, rounds: int
    ) -> int:
        """The number of rounds in which the operand `reading` (call, operand) is the result `made`
        (call, result)."""
        out = made[1]
        xs = self.operands(*reading, period, rounds)
        calls = self.calls[made[0] : made[0] + (rounds - 1) * period + 1 : period]
        for r, (x, call) in enumerate(zip(xs, calls, strict=True)):
            if type(x) is not Var or x.id != call.outs[out].id:
                return r
        return rounds

    def _inside(self, x: Operand, start: int) -> tuple[int, int] | None:
        """(call, result) that defines a variable, or None if it is defined before the run."""
        made = self.made.get(x.id) if type(x) is Var else None
        return made if made is not None and made[0] >= start else None

    def _outside(self, xs: Sequence[Operand], start: int) -> tuple[OperandSource, int]:
        first = last = xs[0]
        rounds = 0
        same = True
        for x in xs:
            if x is not last and x is not first:
                last = x
                same = same and x == first
            if not same and self._inside(x, start) is not None:
                break
            rounds += 1
        if same:
            return OperandSource("same", first), rounds
        count = next((k for k, x in enumerate(xs) if x is not first and x != first), len(xs))
        small = all(
            x.aval.nbytes <= MAX_COLLECTED or x in self.constants or self._is_entry(x)
            for x in xs[:rounds]
        )
        if small:
            return OperandSource("entries", xs=tuple(xs[:rounds])), rounds
        return OperandSource("same", first), count

    def _is_entry(self, x: Operand) -> bool:
        """Whether the value is a part of an array, which a window could take."""
        made = self.made.get(x.id) if type(x) is Var else None
        return made is not None and isinstance(self.calls[made[0]].primitive, GetItem)

    def move(self, first: int, period: int, rounds: int) -> tuple[tuple[int, ...], int]:
        """The change of an index per round, and the number of rounds for which it holds."""
        calls: Any = self.calls[first : first + rounds * period : period]
        start, second = (call.primitive.where.start for call in calls[:2])
        move = tuple(b - a for a, b in zip(start, second, strict=True))
        self.budget.left -= len(calls)
        for r, call in enumerate(calls):
            index = call.primitive.index
            if index is calls[0].primitive.index and not any(move):
                continue
            expected = tuple(a + r * far for a, far in zip(start, move, strict=True))
            if call.primitive.where.start != expected:
                return move, r
        return move, rounds


def _cut(way: OperandSource, rounds: int) -> OperandSource:
    return replace(way, xs=way.xs[:rounds]) if way.kind == "entries" else way
