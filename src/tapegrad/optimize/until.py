"""Loops with a condition: rounds that were made until it no longer held become as many as it takes.

    %3 = greater(%1, 1.0)                  body(t, x):
    guard %3 = True                            %3 = mul(x, 0.5)
    %4 = mul(%1, 0.5)              -->         %4 = greater(%3, 1.0)
    %5 = greater(%4, 1.0)                      out %3, %4
    guard %5 = True                        %9, %10, %11 = loop(16, %3, %1, body, until=True)
    ...                                    guard %11 = False
    guard %11 = False

Tracing has proven that each round does the same, on other values of the same variables
(`ir.turns`). So which of these an operand is, is told by two rounds: in each it is what the
variable held then. What can be told in two ways, or in none, stays as it was recorded. The rounds
become room for as many as a loop makes at the most, since its derivative has to know how much there
is to keep; a guard says that it was enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from tapegrad.ir.tape import Call, Guard, Literal, Operand, Tape, Var
from tapegrad.ir.turns import Path, Turn, Turning
from tapegrad.optimize.rounds import Found, Item, Pattern, Room, Rounds, is_of

ROUNDS = 2  # that tell what is carried
PEELED = 8  # first rounds that may differ


def until(tape: Tape, turnings: Sequence[Turning]) -> Tape:
    """The tape with loops for the rounds that were made until a condition no longer held."""
    if not turnings:
        return tape
    recorded = _Recorded(tape, turnings)
    for level in _levels(turnings):
        recorded.roll(level)
    return recorded.result()


def _levels(turnings: Sequence[Turning]) -> list[list[Turning]]:
    """Loops in the order of their beginnings: first those that hold no others, then those that hold
    these, and so on."""
    found: list[list[Turning]] = []
    around: list[tuple[Turning, list[int]]] = []

    def close() -> None:
        turning, inner = around.pop()
        level = 1 + max(inner, default=-1)
        while len(found) <= level:
            found.append([])
        found[level].append(turning)
        if around:
            around[-1][1].append(level)

    for turning in sorted(turnings, key=lambda t: (_mark(t.turns[0]), -t.turns[-1].calls)):
        while around and _mark(around[-1][0].turns[-1]) <= _mark(turning.turns[0]):
            close()
        around.append((turning, []))
    while around:
        close()
    for level in found:
        level.sort(key=lambda t: _mark(t.turns[0]))
    return found


def _mark(turn: Turn) -> tuple[int, int]:
    return turn.calls, turn.guards


# Where it is among the items, its first turn, and the loop.
_Row = tuple[int, int, Turn, Found]


def _path_of(turns: Sequence[Turn]) -> Path:
    """The way that the program went in the first round."""
    return turns[1].path.since(turns[0].path)


class _Recorded:
    """What a run has recorded, in order: calls, and the guards among them."""

    def __init__(self, tape: Tape, turnings: Sequence[Turning]) -> None:
        self.tape = tape
        self.next = tape.last + 1
        self.items: list[Item] = []
        self.at: dict[tuple[int, int], int | None] = {}  # items up to a turn; None inside of loops
        self.loops: dict[Var, Room] = {}  # by the variable that says whether it would go on
        self.gone: set[Var] = set()  # variables of rounds
        marks = sorted({_mark(turn) for t in turnings for turn in t.turns})
        calls = guards = 0
        for mark in (*marks, (len(tape.calls), len(tape.guards))):
            self.items += tape.calls[calls : mark[0]]
            self.items += tape.guards[guards : mark[1]]
            calls, guards = mark
            self.at[mark] = len(self.items)
        self.read: dict[Var, int] = {}  # where a variable is last read
        self.asked: dict[Operand, list[int]] = {}  # where guards on it are
        self.patterns: dict[Path, Pattern] = {}  # of loops, by the way of their first rounds

    def fresh(self, like: Var) -> Var:
        self.next += 1
        return Var(self.next - 1, like.aval)

    def roll(self, turnings: Sequence[Turning]) -> None:
        """Make loops of those of these rounds that are equal. They don't overlap."""
        self._look()
        new: list[tuple[int, int, list[Item]]] = []
        dropped: set[int] = set()
        rows = [self._longest(turning) for turning in turnings]
        for k, turning in enumerate(turnings):
            rows[k] = rows[k] or self._like_others(turning)
        end = 0
        for found in rows:
            if found is None or found[0] < end:
                continue
            start, end, first, loop = found
            call = loop.room.call
            self.loops[loop.more] = loop.room
            asked = self.asked.get(first.guard.operand, ())
            dropped.update(k for k in asked if is_of(self.items[k], first))
            for item in self.items[start:end]:
                if isinstance(item, Call):
                    self.gone.update(item.outs)
            self.gone.difference_update(call.outs)
            before = [loop.negated] if loop.negated is not None else []
            new.append((start, end, [*before, call, _room(loop.more, loop.room), *loop.kept]))
        if new:
            self._put(new, dropped)

    def _look(self) -> None:
        """Note where variables are read."""
        self.read.clear()
        self.asked.clear()
        for k, item in enumerate(self.items):
            if isinstance(item, Guard):
                self.asked.setdefault(item.operand, []).append(k)
            for x in item.operands if isinstance(item, Call) else (item.operand,):
                if isinstance(x, Var):
                    self.read[x] = k
        for x in self.tape.outputs:
            if isinstance(x, Var):
                self.read[x] = len(self.items)

    def _longest(self, turning: Turning) -> _Row | None:
        """The longest row of these rounds that are equal, up to the last: where it is, its first
        turn, and its loop."""
        turns, most = turning.turns, turning.most
        for _ in range(PEELED):
            places = self._places(turns)
            if len(turns) <= ROUNDS or places is None:
                return None
            rounds = self._rounds(turns, places)
            found = rounds.loop(most)
            if found is not None and self._stands_alone(rounds, found, places[-1]):
                body = found.room.call.primitive.tapes[0]
                self.patterns.setdefault(_path_of(turns), rounds.pattern(body))
                return places[0], places[-1], turns[0], found
            turns, most = turns[1:], most and most - 1
        return None

    def _like_others(self, turning: Turning) -> _Row | None:
        """The loop of a single round, the last one, in which the program has gone the way that it
        went in another loop: that has told what is carried."""
        turns = turning.turns[-2:]
        places, pattern = self._places(turns), self.patterns.get(_path_of(turns))
        if places is None or pattern is None:
            return None
        most = turning.most and turning.most - (len(turning.turns) - 2)
        rounds = self._rounds(turns, places)
        found = rounds.loop_like(pattern, most)
        if found is None or not self._stands_alone(rounds, found, places[-1]):
            return None
        return places[0], places[1], turns[0], found

    def _rounds(self, turns: Sequence[Turn], places: Sequence[int]) -> Rounds:
        items = [self.items[a:b] for a, b in pairwise(places)]
        return Rounds(self.tape.name, turns, items, self.fresh)

    def _stands_alone(self, rounds: Rounds, found: Found, stop: int) -> bool:
        """Whether nothing of the rounds is read after them but what is carried to the end, nor they
        read what is in another loop by now."""
        ends = set(found.room.call.outs)
        if any(self.read.get(x, 0) >= stop for x in rounds.made if x not in ends):
            return False
        read = (*found.room.call.operands, rounds.turns[0].guard.operand)
        return self.gone.isdisjoint(x for x in read if isinstance(x, Var))

    def _places(self, turns: Sequence[Turn]) -> list[int] | None:
        """Where turns are among the items; None where one is in a loop by now."""
        places = [self.at[_mark(turn)] for turn in turns]
        return None if None in places else places  # type: ignore[return-value]

    def _put(self, new: Sequence[tuple[int, int, list[Item]]], dropped: set[int]) -> None:
        """Put loops in the place of rounds."""
        items: list[Item] = []
        moved: list[int | None] = []  # of each place, where it is now
        at = 0
        for start, stop, inside in (*new, (len(self.items), len(self.items), [])):
            for k in range(at, start):
                moved.append(len(items))
                if k not in dropped:
                    items.append(self.items[k])
            if start < stop:
                moved += [len(items), *[None] * (stop - start - 1)]
                items += inside
            at = stop
        moved.append(len(items))
        self.at = {mark: None if place is None else moved[place] for mark, place in self.at.items()}
        self.items = items
        self._level()

    def _level(self) -> None:
        """Loops of one body have room for as many rounds: then the rounds of one around them are
        equal."""
        known: dict[Tape, list[Room]] = {}
        for loop in self.loops.values():
            known.setdefault(loop.call.primitive.tapes[0], []).append(loop)
        for loops in known.values():
            most = max(loop.most for loop in loops)
            for loop in loops:
                loop.most = most if loop.bound is None else min(most, loop.bound)
        for k, item in enumerate(self.items):
            if isinstance(item, Call) and item.outs[-1] in self.loops:
                self.items[k] = _roomy(self.loops[item.outs[-1]])
            elif isinstance(item, Guard) and item.operand in self.loops:
                self.items[k] = _room(item.operand, self.loops[item.operand])  # type: ignore[index]

    def result(self) -> Tape:
        calls = [x for x in self.items if isinstance(x, Call)]
        guards = [x for x in self.items if isinstance(x, Guard)]
        return replace(self.tape, calls=tuple(calls), guards=tuple(guards))


def _roomy(loop: Room) -> Call:
    """The call of a loop, with all the room that it has."""
    _, *operands = loop.call.operands
    primitive = replace(loop.call.primitive, most=loop.most)  # type: ignore[type-var]
    return replace(
        loop.call, primitive=primitive, operands=(Literal(np.int64(loop.most)), *operands)
    )


def _room(more: Operand, loop: Room) -> Guard:
    what = f"whether there are more than {loop.most} rounds"
    return Guard(more, Literal(np.bool_(False)), what, loop.call.src)
