"""Folding: runs of any number of rounds become one call each, so that nests are runs of these.

    for i in range(n):                 i = 1:  a b
        for j in range(i):             i = 2:  a b a b      -->    loop(1), loop(2), loop(3), ...
            a; b                       i = 3:  a b a b a b

Rounds that differ in how often something is repeated in them aren't equal calls. But the longest of
the inner runs tells what its rounds are, and then shorter ones are recognised, down to a single
round. Each is folded into the call of one and the same `Loop`: what differs is among its operands.
These are the number of rounds; the values that are carried in, and those that are the same in each
round; tables of numbers; and where indices start. So the rounds of the outer loop are equal calls,
in which some integers grow by the same amount each round; and so on, for nests of any depth. What
is folded and isn't part of a run in the end is left as it was.

This is the recognition of nested loops of Ketterlin and Clauss (see `reroll`), where bounds of
inner loops are affine functions of the steps around them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Call, Guard, Literal, Var
from tapegrad.optimize.folded import Fold, Folded, Fresh, LoopOf
from tapegrad.optimize.patterns import Match, Pattern, count_carried, kinds_of
from tapegrad.optimize.repetition import ROUNDS, Repetition, Run, Way

DEPTH = 6  # of nests
PERIOD = 256  # calls of a round that is folded, at the most
NEAR = 4  # places at which a round may end


@dataclass(frozen=True)
class Nest:
    """A run of folded calls, and the tape that it is a run of. It stands for the user's calls from
    `start` to `stop`."""

    run: Run
    folded: Folded
    start: int
    stop: int


def with_nests(found: Repetition, runs: Sequence[Run]) -> tuple[Repetition, list[Run]]:
    """The runs of a tape with those of folded calls; of two that meet, the longer one. If there are
    any the tape is another one, in which such calls stand for the user's."""
    everything: list[Nest | Run] = [*runs, *_nests(found)]
    everything.sort(key=lambda run: run.start - run.stop)
    taken: list[Nest | Run] = []
    for run in everything:
        if all(run.stop <= other.start or other.stop <= run.start for other in taken):
            taken.append(run)
    if not any(isinstance(run, Nest) for run in taken):
        return found, [*runs]
    taken.sort(key=lambda run: run.start)
    calls: list[Call] = []
    spans: list[int] = []
    left: list[Run] = []
    tables: dict[Var, np.ndarray] = {}
    folds: dict[int, Fold] = {}
    absorbed: set[int] = set()
    at = 0
    for run in taken:
        calls += found.calls[at : run.start]
        spans += [1] * (run.start - at)
        if isinstance(run, Nest):
            left.append(replace(run.run, start=len(calls)))
            part = slice(run.run.start, run.run.stop)
            calls += run.folded.tape.calls[part]
            spans += run.folded.spans[part]
            tables.update(run.folded.tables)
            folds.update(run.folded.folds)
            for call in found.calls[run.start : run.stop]:
                absorbed.update(out.id for out in call.outs)
            for call in run.folded.tape.calls[part]:
                if id(call.primitive) not in folds:
                    absorbed.difference_update(out.id for out in call.outs)
        else:
            left.append(replace(run, start=len(calls)))
            calls += found.calls[run.start : run.stop]
            spans += [1] * (run.stop - run.start)
        at = run.stop
    calls += found.calls[at:]
    spans += [1] * (len(found.calls) - at)
    tape = replace(found.tape, calls=tuple(calls), guards=_others(found.tape.guards, absorbed))
    known = {**found.constants, **tables}
    return Repetition(tape, known, spans, folds, found.effort), left


def _others(guards: Sequence[Guard], absorbed: Collection[int]) -> tuple[Guard, ...]:
    """The guards that aren't of folded calls."""
    return tuple([g for g in guards if type(g.operand) is not Var or g.operand.id not in absorbed])


def _nests(found: Repetition) -> Iterator[Nest]:
    """Runs in which inner loops have another number of rounds each time."""
    tape = found.tape
    count = len(tape.calls)
    folded = Folded(tape, [1] * count, list(range(count + 1)))
    fresh = Fresh(tape.last)
    for _ in range(DEPTH):
        deeper = _Folding(folded, found, fresh).result()
        if deeper is None:
            return
        folded = deeper
        known = {**found.constants, **folded.tables}
        found = Repetition(folded.tape, known, folded.spans, folded.folds, found.effort)
        for run in found.runs():
            if _varies(run, found):
                yield Nest(run, folded, folded.origins[run.start], folded.origins[run.stop])


def _starts(found: Repetition) -> dict[int, list[int]]:
    """Where runs may start, by their periods."""
    marks, end = found.marks, len(found.calls)
    starts: dict[int, list[int]] = {}
    for at in range(end):
        for place in found.next_places(at, NEAR):
            if (period := place - at) > PERIOD:
                break
            last = at + (ROUNDS - 1) * period  # where the last of the least number of rounds starts
            if last >= end or marks[last] != marks[at]:
                continue
            if place + 1 == end or marks[at + 1] == marks[place + 1]:
                starts.setdefault(period, []).append(at)
    return starts


def inner_runs(found: Repetition) -> list[Run]:
    """The runs of a tape that have no run in them, in order."""
    starts = _starts(found)
    taken = bytearray(len(found.calls))
    runs = []
    for period in sorted(starts):
        for at in starts[period]:
            if taken.find(1, at, at + ROUNDS * period) < 0:
                run = found.run(at, period, found.repeated(at, period))
                if run is not None and taken.find(1, at, run.stop) < 0:
                    runs.append(run)
                    taken[at : run.stop] = b"\1" * (run.stop - at)
    return sorted(runs, key=lambda run: run.start)


def _varies(run: Run, found: Repetition) -> bool:
    """Whether inner loops have another number of rounds in each round."""
    for call, ways in zip(found.calls[run.start :], run.ways, strict=False):
        fold = found.folds.get(id(call.primitive))
        if fold is not None and any(way.far for m, way in enumerate(ways) if m in fold.counts):
            return True
    return False


# ---- a tape, folded once


class _Folding:
    """Folds the inner runs of a tape."""

    def __init__(self, folded: Folded, found: Repetition, fresh: Fresh) -> None:
        self.folded = folded
        self.found = found
        self.fresh = fresh
        self.tables = dict(folded.tables)
        self.known: dict[Any, Var] = {}  # tables, by what is in them
        self.read_last: dict[int, int] = {}  # where variables are read for the last time
        for position, call in enumerate(found.calls):
            for x in call.operands:
                if type(x) is Var:
                    self.read_last[x.id] = position
        for x in found.tape.outputs:
            if type(x) is Var:
                self.read_last[x.id] = len(found.calls)

    def result(self) -> Folded | None:
        """The tape with its inner runs as calls; None if it has none."""
        patterns = self._patterns()
        if not patterns:
            return None
        matches: list[tuple[Pattern, Match]] = []
        at, end = 0, len(self.found.calls)
        while at < end:
            best = self._best(patterns, at)
            if best is None:
                at += 1
            else:
                best[0].matches.append(best[1])
                matches.append(best)
                at += best[1].rounds * best[0].period
        name = self.folded.tape.name
        name = name if name.startswith("round") else f"round_{name}"
        used = {id(pattern): pattern for pattern, _ in matches}
        written = {
            key: LoopOf(pattern, name, self.folded.folds, self.fresh, self.table)
            for key, pattern in used.items()
        }
        return self._with_calls(matches, written)

    def _patterns(self) -> dict[int, list[Pattern]]:
        """What the longest run of each kind repeats, by the mark that it starts with. The shortest
        rounds come first, and those in which one of these is found, be it once, have to wait."""
        starts = _starts(self.found)
        found: dict[int, list[Pattern]] = {}
        taken = bytearray(len(self.found.calls))
        for period in sorted(starts):
            for run in self._longest(starts[period], period, taken):
                pattern = Pattern(self.found, self._turned(run), self.read_last)
                found.setdefault(pattern.marks[0], []).append(pattern)
                for match in pattern.everywhere():
                    stop = match.start + match.rounds * period
                    taken[match.start : stop] = b"\1" * (stop - match.start)
        return found

    def _longest(self, starts: Sequence[int], period: int, taken: bytearray) -> list[Run]:
        """The longest run of each kind with this period, that starts at one of these calls."""
        longest: dict[Any, Run] = {}
        stop = 0
        for at in starts:
            if at < stop or taken.find(1, at, at + ROUNDS * period) >= 0:
                continue
            rounds = self.found.repeated(at, period)
            run = self.found.run(at, period, rounds, self._is_folded)
            if run is None or not self._can_be_folded(run):
                continue
            if taken.find(1, at, run.stop) < 0:
                key = tuple(self.found.marks[at : at + period]), kinds_of(run), run.moves
                if key not in longest or longest[key].rounds < run.rounds:
                    longest[key] = run
                stop = run.stop
        return list(longest.values())

    def _run(self, at: int, period: int) -> Run | None:
        """The run from here on, if it can be folded."""
        run = self.found.run(at, period, self.found.repeated(at, period), self._is_folded)
        return run if run is not None and self._can_be_folded(run) else None

    def _turned(self, run: Run) -> Run:
        """The run, begun where a round carries least: a loop's end and its next start look the
        same wherever a round is cut. Those are looked at that promise to carry less."""
        promised = []
        for k in range(1, run.period):
            rounds = self.found.repeated(run.start + k, run.period)
            promised.append(((-rounds, count_carried(run, k)), run.start + k))
        best, least = run, (-run.rounds, count_carried(run))
        for promise, start in sorted(promised):
            if promise >= least:
                break
            other = self._run(start, run.period)
            if other is not None and (-other.rounds, count_carried(other)) < least:
                best, least = other, (-other.rounds, count_carried(other))
        return best

    def _can_be_folded(self, run: Run) -> bool:
        return all(self._is_folded(way) for here in run.ways for way in here)

    def _is_folded(self, way: Way) -> bool:
        """Whether entries are numbers, or constants."""
        return way.kind != "entries" or all(
            isinstance(x, Literal) or x in self.found.constants for x in way.xs
        )

    def _best(
        self, patterns: Mapping[int, Sequence[Pattern]], at: int
    ) -> tuple[Pattern, Match] | None:
        """The pattern that most calls from here on follow."""
        best: tuple[Pattern, Match] | None = None
        most = 0
        for pattern in patterns.get(self.found.marks[at], ()):
            match = pattern.match(at)
            if match is not None and match.rounds * pattern.period > most:
                best, most = (pattern, match), match.rounds * pattern.period
        return best

    def _with_calls(
        self, matches: Sequence[tuple[Pattern, Match]], written: Mapping[int, LoopOf]
    ) -> Folded:
        calls: list[Call] = []
        spans: list[int] = []
        origins: list[int] = []
        absorbed: set[int] = set()
        at = 0

        def copy(stop: int) -> None:
            calls.extend(self.found.calls[at:stop])
            spans.extend(self.folded.spans[at:stop])
            origins.extend(self.folded.origins[at:stop])

        for pattern, match in matches:
            copy(match.start)
            stop = match.start + match.rounds * pattern.period
            for call in self.found.calls[match.start : stop]:
                absorbed.update(out.id for out in call.outs)
            new = list(written[id(pattern)].calls(match))
            calls += new
            spans += [0] * (len(new) - 1) + [self.found.size(match.start, stop)]
            origins += [self.folded.origins[match.start]] * len(new)
            at = stop
        copy(len(self.found.calls))
        origins.append(self.folded.origins[-1])
        tape = self.folded.tape
        guards = _others(tape.guards, absorbed)
        tape = replace(tape, calls=tuple(calls), guards=guards)
        folds = {**self.folded.folds, **{id(w.loop): w.fold for w in written.values()}}
        return Folded(tape, spans, origins, self.tables, folds)

    def table(self, xs: Sequence[Any], most: int) -> Var:
        """A variable for values, one each round; behind the last one stands what is never read."""
        values = [x.value if isinstance(x, Literal) else self._value(x) for x in xs]
        array = np.stack([*values, *[values[-1]] * (most - len(values))])
        key = array.shape, array.dtype, array.tobytes()
        if key not in self.known:
            aval = xs[0].aval
            self.known[key] = var = self.fresh.var(Aval(array.shape, aval.dtype))
            self.tables[var] = array
        return self.known[key]

    def _value(self, x: Var) -> np.ndarray:
        return self.found.constants[x]
