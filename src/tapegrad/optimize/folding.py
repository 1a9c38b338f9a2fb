"""Folding: runs of any number of rounds become one call each, so that nests are runs of these.

    for i in range(n):                 i = 1:  a b
        for j in range(i):             i = 2:  a b a b           -->    loop(1), loop(2), loop(3), ...
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
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Builder, Call, Guard, Literal, Operand, Tape, Var
from tapegrad.optimize.repetition import INDEXED, Repetition, Run, Way, starts
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Primitive, Slice
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.views import GetItem
from tapegrad.primitives.windows import Empty, SetWindow, Window

DEPTH = 6  # of nests
PERIOD = 256  # calls of a round that is folded, at the most
NEAR = 4  # places at which a round may end
INT = np.dtype(np.int64)


@dataclass(frozen=True)
class Fold:
    """What is known of a folded loop: which of its operands are integers, and which of these say
    how many rounds there are, of it or of loops in it."""

    loop: Loop
    integers: frozenset[int]
    counts: frozenset[int]

    def is_integer(self, m: int) -> bool:
        return m in self.integers


@dataclass
class Folded:
    """A tape with folded calls. Of each, `spans` says for how many of the user's it stands, and
    `origins` where these begin; `tables` are the values of further variables."""

    tape: Tape
    spans: list[int]
    origins: list[int]
    tables: dict[Var, np.ndarray] = field(default_factory=dict)
    folds: dict[int, Fold] = field(default_factory=dict)  # by the identity of the loop


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
    return Repetition(tape, {**found.constants, **tables}, spans, folds), left


def _others(guards: Sequence[Guard], absorbed: Collection[int]) -> tuple[Guard, ...]:
    """The guards that aren't of folded calls."""
    return tuple(
        [g for g in guards if type(g.operand) is not Var or g.operand.id not in absorbed]
    )


def _nests(found: Repetition) -> Iterator[Nest]:
    """Runs in which inner loops have another number of rounds each time."""
    tape = found.tape
    count = len(tape.calls)
    folded = Folded(tape, [1] * count, list(range(count + 1)))
    fresh = _Fresh(tape.last)
    for _ in range(DEPTH):
        deeper = _Folding(folded, found, fresh).result()
        if deeper is None:
            return
        folded = deeper
        known = {**found.constants, **folded.tables}
        found = Repetition(folded.tape, known, folded.spans, folded.folds)
        for run in found.runs():
            if _varies(run, found):
                yield Nest(run, folded, folded.origins[run.start], folded.origins[run.stop])


def _starts(found: Repetition) -> dict[int, list[int]]:
    """Where runs may start, by their periods."""
    marks, end = found.marks, len(found.calls)
    starts: dict[int, list[int]] = {}
    for at in range(end):
        for place in found.next_places(at, NEAR):
            if place - at > PERIOD:
                break
            if place + 1 == end or marks[at + 1] == marks[place + 1]:
                starts.setdefault(place - at, []).append(at)
    return starts


def inner_runs(found: Repetition) -> list[Run]:
    """The runs of a tape that have no run in them, in order."""
    starts = _starts(found)
    free = [True] * len(found.calls)
    runs = []
    for period in sorted(starts):
        for at in starts[period]:
            if all(free[at : at + 2 * period]):
                run = found.run(at, period, found.repeated(at, period))
                if run is not None and all(free[at : run.stop]):
                    runs.append(run)
                    free[at : run.stop] = [False] * (run.stop - at)
    return sorted(runs, key=lambda run: run.start)


def _varies(run: Run, found: Repetition) -> bool:
    """Whether inner loops have another number of rounds in each round."""
    for call, ways in zip(found.calls[run.start :], run.ways, strict=False):
        fold = found.folds.get(id(call.primitive))
        if fold is not None and any(way.far for m, way in enumerate(ways) if m in fold.counts):
            return True
    return False


class _Fresh:
    """Variables that no tape knows."""

    def __init__(self, last: int) -> None:
        self.last = last

    def var(self, aval: Aval) -> Var:
        self.last += 1
        return Var(self.last, aval)


# ---- patterns


@dataclass
class _Match:
    """Rounds that follow a pattern: where they start, how many there are, and the values of the
    pattern's ports."""

    start: int
    rounds: int
    values: dict[Any, Any]


class _Pattern:
    """What the rounds of a run are. Its ports, in which matches may differ:

    ("start", k, m, b)   what operand m of call k is at first, b rounds before
    ("same", k, m)       what it is in each round
    ("table", k, m)      what it is in each of the rounds, one after the other
    ("first", k, m)      an integer, at first
    ("index", k, axis)   where an index starts, at first
    """

    def __init__(self, found: Repetition, run: Run, read_last: Mapping[int, int]) -> None:
        self.found = found
        self.run = run
        self.read_last = read_last
        self.period = run.period
        self.calls = found.calls[run.start : run.start + run.period]
        self.marks = found.marks[run.start : run.start + run.period]
        self.matches: list[_Match] = []
        self.wanted: dict[tuple[int, int], None] = {}  # results that are read after their loop
        self.back = max((way.back for here in run.ways for way in here), default=0)

    def match(self, at: int) -> _Match | None:
        """The rounds from here on that follow the pattern."""
        found, period = self.found, self.period
        match = _Match(at, 0, {})
        while (
            at + period <= len(found.calls)
            and found.marks[at : at + period] == self.marks
            and self._follows(match, at)
        ):
            match.rounds += 1
            at += period
        if match.rounds < max(1, self.back):
            return None
        return match if self._leaves(match) else None

    def everywhere(self) -> Iterator[_Match]:
        """The matches, in order; they don't overlap."""
        stop = 0
        for at in self.found.places(self.marks[0]):
            match = self.match(at) if at >= stop else None
            if match is not None:
                yield match
                stop = at + match.rounds * self.period

    def _follows(self, match: _Match, at: int) -> bool:
        """Whether another round starts here; if it does, the match knows its values."""
        new: dict[Any, Any] = {}
        tables: list[tuple[Any, Any]] = []
        r = match.rounds
        for k, call in enumerate(self.found.calls[at : at + self.period]):
            for m, x in enumerate(call.operands):
                way = self.run.ways[k][m]
                if way.kind == "here" or (way.kind == "before" and r >= way.back):
                    made = self.found.calls[at - way.back * self.period + way.call].outs[way.out]
                    if type(x) is not Var or x.id != made.id:
                        return False
                elif not self._is_outside(x, match.start):
                    return False
                elif way.kind == "before":
                    new["start", k, m, way.back - r] = x
                elif way.kind == "entries":
                    tables.append((("table", k, m), x))
                elif way.kind == "linear":
                    first = int(x.value) - r * way.far  # type: ignore[union-attr]
                    if match.values.get(("first", k, m), first) != first:
                        return False
                    new["first", k, m] = first
                else:
                    if match.values.get(("same", k, m), x) != x:
                        return False
                    new["same", k, m] = x
            move = self.run.moves[k]
            if move is not None:
                index = starts(call.primitive.index)  # type: ignore[attr-defined]
                for axis, (place, far) in enumerate(zip(index, move, strict=True)):
                    first = place - r * far
                    if match.values.get(("index", k, axis), first) != first:
                        return False
                    new["index", k, axis] = first
        match.values.update(new)
        for port, x in tables:
            match.values.setdefault(port, []).append(x)
        return True

    def _is_outside(self, x: Operand, start: int) -> bool:
        made = self.found.made.get(x.id) if type(x) is Var else None
        return made is None or made[0] < start

    def _leaves(self, match: _Match) -> bool:
        """Whether what is read after the rounds is of the last ones."""
        wanted = []
        stop = match.start + match.rounds * self.period
        for position in range(match.start, stop):
            round_, k = divmod(position - match.start, self.period)
            for place, out in enumerate(self.found.calls[position].outs):
                if self.read_last.get(out.id, -1) >= stop:
                    back = match.rounds - round_
                    if back > 1 and not self._is_carried(k, place, back):
                        return False
                    wanted.append((k, place))
        self.wanted.update(dict.fromkeys(wanted))
        return True

    def _is_carried(self, k: int, out: int, back: int) -> bool:
        return any(
            way.kind == "before" and (way.call, way.out) == (k, out) and way.back >= back
            for here in self.run.ways
            for way in here
        )


# ---- the loop of a pattern


class _Written:
    """The loop of a pattern, and the operands of its calls, one for each match."""

    def __init__(self, pattern: _Pattern, name: str, folding: _Folding) -> None:
        self.pattern = pattern
        self.folding = folding
        self.most = max(match.rounds for match in pattern.matches)
        self.slots: list[tuple[int, int, int, Any]] = []  # call, result, rounds ago; its port
        self.given: list[Any] = []  # the ports that are operands, after what is carried
        self.integers: list[Any] = []  # those of them that are integers, the last
        self.fixed: dict[Any, Any] = {}  # the values of ports that are equal in all matches
        for port in self._ports():
            values = [match.values[port] for match in pattern.matches]
            if port[0] == "start":
                k, m, back = port[1:]
                way = pattern.run.ways[k][m]
                self.slots.append((way.call, way.out, back, port))
            elif port[0] == "table":
                self.given.append(port)
            elif all(x == values[0] for x in values) and type(values[0]) is not Var:
                self.fixed[port] = values[0]
            else:
                (self.given if port[0] == "same" else self.integers).append(port)
        known = {slot[:3] for slot in self.slots}
        for k, out in pattern.wanted:
            if (k, out, 1) not in known:
                self.slots.append((k, out, 1, None))
        self.loop = Loop(self._body(name), len(self.slots), self.most)
        first = 1 + len(self.slots) + len(self.given)
        numbers = {port: first + n for n, port in enumerate(self.integers)}
        counts = {numbers[port] for port in self.integers if self._counts(port)}
        self.fold = Fold(
            self.loop, frozenset({0, *numbers.values()}), frozenset({0, *counts})
        )

    def _ports(self) -> list[Any]:
        """In order, that of the calls and of their operands; those of one slot from the last round
        on."""
        return list(self.pattern.matches[0].values)

    def _counts(self, port: Any) -> bool:
        """Whether an integer says how many rounds an inner loop has."""
        if port[0] != "first":
            return False
        inner = self.folding.folded.folds[id(self.pattern.calls[port[1]].primitive)]
        return port[2] in inner.counts

    def _body(self, name: str) -> Tape:
        pattern = self.pattern
        builder = Builder(name)
        self.step = builder.input(Aval((), INT), "t")
        self.at: dict[Any, Operand] = {}
        entering = []
        for k, out, back, port in self.slots:
            var = builder.input(pattern.calls[k].outs[out].aval)
            self.at[port if port is not None else (k, out, back)] = var
            entering.append(var)
        for port in self.given:
            aval = pattern.calls[port[1]].operands[port[2]].aval
            if port[0] == "table":
                aval = aval.with_shape((self.most, *aval.shape))
            self.at[port] = builder.input(aval)
        for port in self.integers:
            self.at[port] = builder.input(Aval((), INT))
        for port, value in self.fixed.items():
            self.at[port] = value if isinstance(value, Literal) else Literal(np.int64(value))
        local: dict[int, Operand] = {}
        for k, call in enumerate(pattern.calls):
            operands = [
                self._operand(builder, k, m, way, x, local)
                for m, (way, x) in enumerate(zip(pattern.run.ways[k], call.operands, strict=True))
            ]
            primitive: Primitive = call.primitive
            move = pattern.run.moves[k]
            if move is not None:
                primitive, steps = self._moving(call.primitive, k, move)
                operands += steps
            outs = builder.call(primitive, operands, call.src, call.reason)
            local.update(zip([out.id for out in call.outs], outs, strict=True))
            for out in call.outs:
                for guard in pattern.found.guards.get(out.id, ()):
                    builder.guards.append(replace(guard, operand=local[out.id]))
        outputs = [self._leaving(slot, local) for slot in self.slots]
        return builder.finish(outputs)

    def _operand(
        self, builder: Builder, k: int, m: int, way: Way, x: Operand, local: dict[int, Operand]
    ) -> Operand:
        if way.kind == "here":
            assert isinstance(x, Var)
            return local[x.id]
        if way.kind == "before":
            return self.at["start", k, m, way.back]
        if way.kind == "same":
            return self.at["same", k, m]
        if way.kind == "linear":
            value = self.at["first", k, m]
            if way.far:
                (far,) = builder.call(ew.mul, [self.step, Literal(np.int64(way.far))])
                (value,) = builder.call(ew.add, [far, value])
            return value
        table = self.at["table", k, m]
        rest = [Slice(0, n) for n in table.aval.shape[1:]]
        window = Window((0, *rest), ((1, *[0] * len(rest)),))
        return builder.call(window, [table, self.step])[0]

    def _moving(
        self, primitive: Any, k: int, move: tuple[int, ...]
    ) -> tuple[Primitive, list[Operand]]:
        """A primitive whose index starts where operands say, and moves with the step."""
        index: list[int | Slice] = []
        moves, steps = [], []
        for axis, entry in enumerate(primitive.index):
            start = self.at["index", k, axis]
            first = int(start.value) if isinstance(start, Literal) else 0
            index.append(first if isinstance(entry, int) else replace(entry, start=first))
            if not isinstance(start, Literal):
                moves.append(tuple([int(other == axis) for other in range(len(move))]))
                steps.append(start)
        if any(move):
            moves.append(move)
            steps.append(self.step)
        kinds: dict[type, Any] = {GetItem: Window, SetItem: SetWindow}
        kind = kinds.get(type(primitive), type(primitive))
        if not moves:
            return type(primitive)(**{**vars(primitive), "index": tuple(index)}), []
        return kind(tuple(index), (*getattr(primitive, "moves", ()), *moves)), steps

    def _leaving(self, slot: tuple[int, int, int, Any], local: dict[int, Operand]) -> Operand:
        """What a round leaves in a slot."""
        k, out, back, port = slot
        if back == 1:
            return local[self.pattern.calls[k].outs[out].id]
        return self.at[(*port[:3], back - 1)]

    def calls(self, match: _Match) -> Iterator[Call]:
        """The calls that stand for a match; the last is that of the loop."""
        operands: list[Operand] = [Literal(np.int64(match.rounds))]
        outs = []
        for k, out, back, port in self.slots:
            aval = self.pattern.calls[k].outs[out].aval
            if port is not None:
                operands.append(match.values[port])
            elif aval.shape == ():
                operands.append(Literal(aval.dtype.type(0)))
            else:
                empty = self.folding.fresh.var(aval)
                yield Call(Empty(aval.shape, aval.dtype), (), (empty,))
                operands.append(empty)
            outs.append(self._left(match, k, out, back, outs))
        for port in self.given:
            x = match.values[port]
            operands.append(self.folding.table(x, self.most) if port[0] == "table" else x)
        operands += [Literal(np.int64(match.values[port])) for port in self.integers]
        src = self.pattern.calls[0].src
        yield Call(self.loop, tuple(operands), tuple(outs), src)

    def _left(self, match: _Match, k: int, out: int, back: int, taken: Sequence[Var]) -> Var:
        """The variable that a slot leaves: that of the user's program."""
        if back <= match.rounds:
            position = match.start + (match.rounds - back) * self.pattern.period + k
            var = self.pattern.found.calls[position].outs[out]
            if all(var is not x for x in taken):
                return var
        return self.folding.fresh.var(self.pattern.calls[k].outs[out].aval)


def _kinds(run: Run) -> tuple[Any, ...]:
    """How operands are come by, but for what they are."""
    return tuple([(w.kind, w.call, w.out, w.back, w.far) for ways in run.ways for w in ways])


def _carried(run: Run) -> int:
    """How many values go from round to round."""
    return len({(w.call, w.out, w.back) for ways in run.ways for w in ways if w.kind == "before"})


# ---- a tape, folded once


class _Folding:
    """Folds the inner runs of a tape."""

    def __init__(self, folded: Folded, found: Repetition, fresh: _Fresh) -> None:
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
        matches: list[tuple[_Pattern, _Match]] = []
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
        written = {key: _Written(pattern, name, self) for key, pattern in used.items()}
        return self._with_calls(matches, written)

    def _patterns(self) -> dict[int, list[_Pattern]]:
        """What the longest run of each kind repeats, by the mark that it starts with. The shortest
        rounds come first, and those in which one of these is found, be it once, have to wait."""
        starts = _starts(self.found)
        found: dict[int, list[_Pattern]] = {}
        free = [True] * len(self.found.calls)
        for period in sorted(starts):
            for run in self._longest(starts[period], period, free):
                pattern = _Pattern(self.found, self._turned(run), self.read_last)
                found.setdefault(pattern.marks[0], []).append(pattern)
                for match in pattern.everywhere():
                    stop = match.start + match.rounds * period
                    free[match.start : stop] = [False] * (stop - match.start)
        return found

    def _longest(self, starts: Sequence[int], period: int, free: Sequence[bool]) -> list[Run]:
        """The longest run of each kind with this period, that starts at one of these calls."""
        longest: dict[Any, Run] = {}
        stop = 0
        for at in starts:
            if at < stop or not all(free[at : at + period]):
                continue
            run = self._run(at, period)
            if run is not None and all(free[at : run.stop]):
                key = tuple(self.found.marks[at : at + period]), _kinds(run), run.moves
                if key not in longest or longest[key].rounds < run.rounds:
                    longest[key] = run
                stop = run.stop
        return list(longest.values())

    def _run(self, at: int, period: int) -> Run | None:
        """The run from here on, if it can be folded."""
        run = self.found.run(at, period, self.found.repeated(at, period))
        return run if run is not None and self._can_be_folded(run) else None

    def _turned(self, run: Run) -> Run:
        """The run, begun where a round carries least: a loop's end and its next start look the
        same wherever a round is cut."""
        best = run
        for start in range(run.start + 1, run.start + run.period):
            other = self._run(start, run.period)
            if other is not None and (
                (-other.rounds, _carried(other)) < (-best.rounds, _carried(best))
            ):
                best = other
        return best

    def _can_be_folded(self, run: Run) -> bool:
        """Whether entries are numbers, or constants."""
        return all(
            way.kind != "entries"
            or all(isinstance(x, Literal) or x in self.found.constants for x in way.xs)
            for here in run.ways
            for way in here
        )

    def _best(
        self, patterns: Mapping[int, Sequence[_Pattern]], at: int
    ) -> tuple[_Pattern, _Match] | None:
        """The pattern that most calls from here on follow."""
        best: tuple[_Pattern, _Match] | None = None
        most = 0
        for pattern in patterns.get(self.found.marks[at], ()):
            match = pattern.match(at)
            if match is not None and match.rounds * pattern.period > most:
                best, most = (pattern, match), match.rounds * pattern.period
        return best

    def _with_calls(
        self, matches: Sequence[tuple[_Pattern, _Match]], written: Mapping[int, _Written]
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
