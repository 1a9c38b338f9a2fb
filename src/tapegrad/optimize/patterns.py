"""Patterns: what the rounds of a run are, and where else on a tape rounds follow them.

The longest run of its kind tells the pattern. What follows it may have any number of rounds, one at
the least, and other values at the pattern's *ports*: those that a loop over the rounds is passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tapegrad.ir.tape import Operand, Var
from tapegrad.optimize.repetition import Repetition, Run
from tapegrad.primitives.parts import places_of


@dataclass
class Match:
    """Rounds that follow a pattern: where they start, how many there are, and the values of the
    pattern's ports."""

    start: int
    rounds: int
    values: dict[Any, Any]


class Pattern:
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
        self.matches: list[Match] = []
        self.wanted: dict[tuple[int, int], None] = {}  # results that are read after their loop
        self.back = max((way.back for here in run.ways for way in here), default=0)

    def match(self, at: int) -> Match | None:
        """The rounds from here on that follow the pattern."""
        found, period = self.found, self.period
        match = Match(at, 0, {})
        while (
            at + period <= len(found.calls)
            and found.effort.left > 0
            and found.marks[at : at + period] == self.marks
            and self._follows(match, at)
        ):
            match.rounds += 1
            at += period
        if match.rounds < max(1, self.back):
            return None
        return match if self._leaves(match) else None

    def everywhere(self) -> Iterator[Match]:
        """The matches, in order; they don't overlap."""
        stop = 0
        for at in self.found.places(self.marks[0]):
            match = self.match(at) if at >= stop else None
            if match is not None:
                yield match
                stop = at + match.rounds * self.period

    def _follows(self, match: Match, at: int) -> bool:
        """Whether another round starts here; if it does, the match knows its values."""
        new: dict[Any, Any] = {}
        tables: list[tuple[Any, Any]] = []
        r = match.rounds
        self.found.effort.left -= self.period
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
                    if type(x) is Var and x not in self.found.constants:
                        return False  # it has no value yet
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
                index = places_of(call.primitive.index)  # type: ignore[attr-defined]
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

    def _leaves(self, match: Match) -> bool:
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


def kinds_of(run: Run) -> tuple[Any, ...]:
    """How operands are come by, but for what they are."""
    return tuple([(w.kind, w.call, w.out, w.back, w.far) for ways in run.ways for w in ways])


def count_carried(run: Run, first: int = 0) -> int:
    """How many values go from round to round, if the round begins with its call number `first`:
    those before it are the end of the round before, then."""
    carried = set()
    for k, ways in enumerate(run.ways):
        for w in ways:
            if w.kind in ("here", "before"):
                back = w.back + (w.call < first) - (k < first)
                if back:
                    carried.add((w.call, w.out, back))
    return len(carried)
