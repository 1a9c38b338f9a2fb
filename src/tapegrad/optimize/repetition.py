"""Repetition: where a tape's calls repeat themselves, and how operands stand to each other then.

A run is rounds of equal calls: of one primitive, from one line, on operands of equal types. From
round to round an operand is in one of the `Way`s below, and where an index starts changes by the
same amount. The longest stretch of rounds is taken, so of a nest the outer loop first.

Equal calls have equal marks, and stretches of marks are compared by sums that are known for each
start: whether two rounds are alike takes two subtractions.
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
from tapegrad.primitives.kinds import Library, Routine, Taking
from tapegrad.primitives.loops import CALLS as CALLS
from tapegrad.primitives.loops import NUMPYS as NUMPYS
from tapegrad.primitives.loops import ROUNDS as ROUNDS
from tapegrad.primitives.scatter import Update
from tapegrad.primitives.views import GetItem, Takes

BACK = 4  # rounds: what is older isn't carried
FEW = 8  # calls that are compared one by one
TRIED = 64  # periods, from the shortest on,
OUTER = 8  # and behind a run, whose loop may be an inner one
# Operands that are looked at before no more runs are sought, and how many more for each call: some
# 50 us a call.
EFFORT = 30_000, 60
SMALL = 1024  # bytes of values that are put in an array, if they aren't parts of one already
INDEXED = (Takes, Update, Taking)  # may move

MODULUS = (1 << 61) - 1
BASE = 1_000_003


class _Numbers:
    """Numbers for values that are equal. Most are the same objects again."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._by_id: dict[int, int] = {}

    def of(self, value: Any, key: Any = None) -> int:
        """The number of an object that lives as long as this does."""
        known = self._by_id.get(id(value))
        if known is None:
            known = self._numbers.setdefault(value if key is None else key, len(self._numbers))
            self._by_id[id(value)] = known
        return known

    def of_key(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


@dataclass(frozen=True)
class Way:
    """How an operand of a call in a round is come by.

    `kind` is "same" (`x`, from before), "here" (the call numbered `call` in the same round, its
    result `out`), "before" (the same, `back` rounds earlier; at first, `xs`), "entries" (of `xs`,
    one each round).
    """

    kind: str
    x: Any = None
    call: int = 0
    out: int = 0
    back: int = 0
    xs: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Run:
    """Rounds of `period` calls each, from `start` on: how operands are come by, and by how much the
    indices of calls move a round."""

    start: int
    period: int
    rounds: int
    ways: tuple[tuple[Way, ...], ...]
    moves: tuple[tuple[int, ...] | None, ...]

    @property
    def stop(self) -> int:
        return self.start + self.period * self.rounds


class Effort:
    """How many operands may still be looked at. Those who look for runs of one tape share it."""

    def __init__(self, calls: int) -> None:
        some, each = EFFORT
        self.left = some + each * calls


class Repetition:
    """Finds runs."""

    def __init__(
        self,
        tape: Tape,
        constants: Mapping[Var, np.ndarray],
        effort: Effort | None = None,
    ) -> None:
        self.tape = tape
        self.constants = constants
        self.calls: Sequence[Call] = tape.calls
        self.effort = effort or Effort(len(tape.calls))
        self.guards: dict[int, list[Guard]] = {}
        for guard in tape.guards:
            if isinstance(guard.operand, Var):
                self.guards.setdefault(guard.operand.id, []).append(guard)
        self._numbers = _Numbers(), _Numbers(), _Numbers(), _Numbers()
        # By periods: the operand that was in the way of a run, the first and the last of calls, a
        # period apart, that are in that of all runs around them, and a stretch of equal marks
        self._in_the_way: dict[int, tuple[int, int]] = {}
        self._stuck: dict[int, tuple[int, int]] = {}
        self._stretches: dict[int, tuple[int, int]] = {}
        self._look()

    def _look(self) -> None:
        """Mark the calls, and note where they are."""
        self.made: Any = {}  # a variable's number -> its call and place
        self.marks: list[int] = []
        quick: dict[tuple[int, ...], int] = {}
        for position, call in enumerate(self.calls):
            guarded = False
            for place, out in enumerate(call.outs):
                self.made[out.id] = position, place
                guarded = guarded or out.id in self.guards
            # Most calls have the same objects as another one in the place of all that marks them.
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
        """A number that calls have which are of one primitive, from one line, of the same types,
        and guarded alike."""
        primitives, sources, avals, marks = self._numbers
        primitive = call.primitive
        if isinstance(primitive, INDEXED):
            key: Any = (type(primitive), primitive.where.form, primitive.moves)
            if isinstance(primitive, Taking):
                key += (primitive.fill,)
        elif isinstance(primitive, Library) and primitive.foreign:
            key = (id(primitive),)
        else:
            key = primitive
        mark = [primitives.of(primitive, key), -1 if call.src is None else sources.of(call.src)]
        for x in call.operands:
            if type(x) is Var:
                mark.append(avals.of(x.aval, (x.aval.shape, x.aval.dtype.num)))
            else:  # a number may stand where there is a variable in the next round
                mark.append(avals.of_key(((), x.dtype.num)))
        for place, out in enumerate(call.outs):
            mark.append(avals.of(out.aval, (out.aval.shape, out.aval.dtype.num)))
            for guard in self.guards.get(out.id, ()):
                mark.append(marks.of_key((place, guard.expected, guard.what, guard.src)))
        return marks.of_key(tuple(mark))

    def places(self, mark: int) -> list[int]:
        """The calls with a mark."""
        return self._places.get(mark, [])

    def next_places(self, at: int, count: int, behind: int | None = None) -> list[int]:
        """The next calls with the mark of this one, or so many of them from `behind` on."""
        places = self._places[self.marks[at]]
        first = bisect_left(places, at + 1 if behind is None else behind)
        return places[first : first + count]

    def _digest(self, start: int, stop: int) -> int:
        return (self._sums[stop] - self._sums[start] * self._powers[stop - start]) % MODULUS

    def is_done(self, runs: Sequence[Run]) -> bool:
        """Whether these leave few calls, and aren't many, that may be rounds of a loop around."""
        left = len(self.calls) - sum(run.stop - run.start for run in runs)
        return left < CALLS and len(runs) < ROUNDS

    def runs(self) -> Iterator[Run]:
        """The runs, in order; they don't overlap."""
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
        """The run from here on that has the most calls."""
        places = self.next_places(at, TRIED)
        if len(places) < ROUNDS - 1:
            return None
        best: Run | None = None
        known: list[int] = []  # periods of runs
        waiting = self._periods(at, places)
        waiting.reverse()
        while waiting:
            period = waiting.pop()
            rounds = self.repeated(at, period)
            size = rounds * period
            if (
                rounds < ROUNDS
                or size < CALLS
                or (best and rounds * period <= best.stop - best.start)
            ):
                continue
            run = self.run(at, period, rounds)
            if run is None:
                continue
            if best is None or run.stop > best.stop:
                best = run
            # These may be the rounds of an inner loop, and all of them one of an outer loop, which
            # begins again behind them.
            known.append(period)
            waiting = [k for k in waiting if all(k % p for p in known)]
            outer = [place - at for place in self.next_places(at, OUTER, run.stop)]
            waiting += [k for k in reversed(outer) if k not in known and k not in waiting]
        if best is None or best.stop - best.start < self._least(best):
            return None
        return best

    def _periods(self, at: int, places: Sequence[int]) -> list[int]:
        """The periods after which the call at `at` comes again at one of these places, of those in
        which a few calls of the least number of rounds are alike. Most aren't, and are many."""
        marks, mark = self.marks, self.marks[at]
        fitting = places[: bisect_right(places, at + (len(marks) - at) // ROUNDS)]
        return [
            period
            for place in fitting
            if marks[last := at + (ROUNDS - 1) * (period := place - at)] == mark
            and marks[last + period - 1] == marks[place - 1]
            and marks[last + 1 - period] == marks[at + 1]
            and not self._is_stuck(at, period)
        ]

    def _least(self, run: Run) -> int:
        """The calls that a loop has at least."""
        calls = self.calls[run.start : run.start + run.period]
        kinds = [c.primitive for c in calls]
        by_numpy = any(isinstance(p, Library) and not isinstance(p, Routine) for p in kinds)
        return NUMPYS if by_numpy else CALLS

    def repeated(self, at: int, period: int) -> int:
        """How many rounds of equal marks there are."""
        first, end = self._stretches.get(period, (0, -1))
        if not first <= at <= end:  # else the same stretch, from here on
            end = at + self._stretch(at, period)
            self._stretches[period] = at, end
        return (end - at) // period + 1

    def _stretch(self, at: int, period: int) -> int:
        """How many calls from here on have the marks of those a period later."""
        mine, theirs = self.marks[at : at + FEW], self.marks[at + period : at + period + FEW]
        if mine == theirs:
            return self._by_sums(at, period, FEW)
        pairs = enumerate(zip(mine, theirs, strict=False))
        return next((k for k, (a, b) in pairs if a != b), len(theirs))

    def _by_sums(self, at: int, period: int, equal: int) -> int:
        """The same where so many are known."""
        later = at + period

        def differ(last: int) -> bool:
            return self._digest(at, at + last + 1) != self._digest(later, later + last + 1)

        return bisect_left(range(len(self.calls) - later), True, equal, key=differ)

    def reads(self, runs: Sequence[Run]) -> Iterator[tuple[int, Operand]]:
        """Where operands are read. What calls of a run read that the same run makes may be left
        out."""
        return ((k, x) for k, call in enumerate(self.calls) for x in call.operands)

    # ---- operands

    def run(self, start: int, period: int, rounds: int) -> Run | None:
        """The run from here on, of so many rounds of equal marks. Where operands stand in one way
        for a few rounds only, those behind aren't looked at."""
        tried = ROUNDS
        while rounds >= tried and self.effort.left > 0:
            run = self._checked(start, period, tried)
            if run is None or run.rounds < tried or tried == rounds:
                return run
            tried = min(4 * tried, rounds)
        return None

    def _checked(self, start: int, period: int, rounds: int) -> Run | None:
        """The run as far as operands stand in one way to each other. The one for which a run that
        began before is none mostly is in the way of this one, too: it is looked at first."""
        if self._is_stuck(start, period):
            return None
        at, m = self._in_the_way.get(period, (-1, 0))
        is_near = start <= at < start + period
        if is_near and self._way(at, m, start, period, rounds)[1] < ROUNDS:
            self._bar(at, m, period)
            return None
        moves: list[tuple[int, ...] | None] = []
        for k in range(period):
            move = None
            if isinstance(self.calls[start + k].primitive, INDEXED):
                move, rounds = self._move(start + k, period, rounds)
            if rounds < ROUNDS:
                self._stuck[period] = start + k, start + k
                return None
            moves.append(move)
        ways: list[list[Way]] = []
        for k in range(period):
            here = []
            for m in range(len(self.calls[start + k].operands)):
                way, rounds = self._way(start + k, m, start, period, rounds)
                if rounds < ROUNDS:
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
        """An operand stands in no way for long enough, here and in so many rounds behind. Where it
        is an array from before the tape, and another one each time, no run can be there."""
        xs = self.operands(at, m, period, self.repeated(at, period))
        pairs = enumerate(pairwise(xs))
        count = next((k for k, (x, y) in pairs if x == y or self._fits(x)), len(xs) - 1)
        if count:
            self._stuck[period] = at, at + (count - 1) * period

    def _fits(self, x: Operand) -> bool:
        """Whether a value may be among those of which there is another one in each round."""
        is_made = type(x) is Var and x.id in self.made
        return is_made or x.aval.nbytes <= SMALL or x in self.constants

    def operands(self, at: int, m: int, period: int, rounds: int) -> list[Operand]:
        """The operands number `m` of a call in so many rounds."""
        calls = self.calls[at : at + (rounds - 1) * period + 1 : period]
        self.effort.left -= len(calls)
        return [call.operands[m] for call in calls]

    def _way(self, at: int, m: int, start: int, period: int, rounds: int) -> tuple[Way, int]:
        """How the operand number `m` of a call is come by, and for how many rounds that holds."""
        xs = self.operands(at, m, period, min(rounds, BACK + 1))
        for r, x in enumerate(xs):
            made = self._inside(x, start)
            if made is None:
                continue
            round_, k = divmod(made[0] - start, period)
            back = r - round_
            if back != r:  # made in the first rounds, and read later
                return self._outside(xs[:r], start)
            kind = "before" if back else "here"
            here = at + back * period, m
            rounds = back + self._following(here, (start + k, made[1]), period, rounds - back)
            return Way(kind, None, k, made[1], back, tuple(xs[:back])), rounds
        return self._outside(self.operands(at, m, period, rounds), start)

    def _following(
        self, reading: tuple[int, int], made: tuple[int, int], period: int, rounds: int
    ) -> int:
        """For how many of these rounds an operand, a call's one of this number, is what a call
        makes."""
        out = made[1]
        xs = self.operands(*reading, period, rounds)
        calls = self.calls[made[0] : made[0] + (rounds - 1) * period + 1 : period]
        for r, (x, call) in enumerate(zip(xs, calls, strict=True)):
            if type(x) is not Var or x.id != call.outs[out].id:
                return r
        return rounds

    def _inside(self, x: Operand, start: int) -> tuple[int, int] | None:
        """Where a variable is made, if that isn't before the run."""
        made = self.made.get(x.id) if type(x) is Var else None
        return made if made is not None and made[0] >= start else None

    def _outside(self, xs: Sequence[Operand], start: int) -> tuple[Way, int]:
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
            return Way("same", first), rounds
        count = next((k for k, x in enumerate(xs) if x is not first and x != first), len(xs))
        small = all(
            x.aval.nbytes <= SMALL or x in self.constants or self._is_entry(x) for x in xs[:rounds]
        )
        if small:
            return Way("entries", xs=tuple(xs[:rounds])), rounds
        return Way("same", first), count

    def _is_entry(self, x: Operand) -> bool:
        """Whether this is a part of an array, that a window may be."""
        made = self.made.get(x.id) if type(x) is Var else None
        return made is not None and isinstance(self.calls[made[0]].primitive, GetItem)

    def _move(self, first: int, period: int, rounds: int) -> tuple[tuple[int, ...], int]:
        """By how much an index moves a round, and for how many rounds it does."""
        calls: Any = self.calls[first : first + rounds * period : period]
        start, second = (call.primitive.where.start for call in calls[:2])
        move = tuple(b - a for a, b in zip(start, second, strict=True))
        self.effort.left -= len(calls)
        for r, call in enumerate(calls):
            index = call.primitive.index
            if index is calls[0].primitive.index and not any(move):
                continue
            expected = tuple(a + r * far for a, far in zip(start, move, strict=True))
            if call.primitive.where.start != expected:
                return move, r
        return move, rounds


def _cut(way: Way, rounds: int) -> Way:
    return replace(way, xs=way.xs[:rounds]) if way.kind == "entries" else way
