"""Rounds that a run has recorded, held against each other: the loop that they are rounds of.

What is carried is told by two rounds: an operand is in each what the same variable of the program
held at its start. What can be told in two ways, or in none, isn't a loop. A single round is one of
a loop that is known already, if the program went the same way in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.ir.tape import Builder, Call, Guard, Literal, Operand, Tape, Var
from tapegrad.ir.turns import Turn
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.loops import Loop

FEWEST = 16  # rounds that there is room for at the least

Item = Call | Guard


@dataclass
class Room:
    """A loop's call, the rounds that it has room for, and those that it may have at the most."""

    call: Call
    most: int
    bound: int | None


@dataclass
class Found:
    """A loop in the place of what was recorded, the variable that says whether it would go on, what
    negates its first test if it goes on where that is false, and guards that are no part of it."""

    room: Room
    more: Var
    negated: Call | None
    kept: list[Guard]


@dataclass
class Pattern:
    """A loop's body, and which of the program's variables it carries: for each of its inputs, the
    places among a turn's values."""

    body: Tape
    carried: list[list[int]]


def is_of(item: Item, turn: Turn) -> bool:
    """Whether this is the guard of a turn's own."""
    return isinstance(item, Guard) and item == turn.guard and item.src == turn.guard.src


class Rounds:
    """Rounds between turns: what was recorded in each."""

    def __init__(
        self,
        name: str,
        turns: Sequence[Turn],
        rounds: Sequence[Sequence[Item]],
        fresh: Callable[[Var], Var],
    ) -> None:
        self.turns, self.rounds, self.fresh = turns, rounds, fresh
        self.calls = [[x for x in items if isinstance(x, Call)] for items in rounds]
        self.made: dict[Var, tuple[int, int, int]] = {}  # its round, its call there, its place
        for r, calls in enumerate(self.calls):
            for n, call in enumerate(calls):
                for place, out in enumerate(call.outs):
                    self.made[out] = r, n, place
        self.carried: dict[tuple[Operand, ...], Var] = {}  # at each turn -> the body's input
        self.invariants: dict[Var, Var] = {}
        self.local: dict[Var, Operand] = {}  # of the first round
        self.builder = Builder(name if name.startswith("round_") else f"round_{name}")

    def loop(self, most: int | None) -> Found | None:
        """The loop of these rounds; None if they are none, or it can't be told."""
        if not self._are_equal() or not self._carry():
            return None
        self.builder.input(_STEP.aval, "t")
        for values in self.carried:
            self.carried[values] = self.builder.input(values[0].aval)
        invariants = self._invariants()
        if invariants is None:
            return None
        for x in invariants:
            self.invariants[x] = self.builder.input(x.aval)
        for n, call in enumerate(self.calls[0]):
            operands = [self._known(xs) for xs in self._across(n)]
            if None in operands:
                return None
            outs = self.builder.again(call, operands)  # type: ignore[arg-type]
            if [out.aval for out in outs] != [out.aval for out in call.outs]:
                return None
            self.local.update(zip(call.outs, outs, strict=True))
        kept = self._guards()
        outputs = [self._known(values[1:]) for values in self.carried]
        going = self._known(tuple([turn.guard.operand for turn in self.turns[1:]]))
        if kept is None or going is None or None in outputs:
            return None
        first = self.turns[0].guard
        if not first.expected.value:
            (going,) = self.builder.call(ew.logical_not, [going], first.src)
        body = self.builder.finish([*outputs, going])  # type: ignore[list-item]
        ends: list[Any] = [values[-1] for values in self.carried]
        starts = [values[0] for values in self.carried]
        return self._found(body, starts, list(self.invariants), ends, kept, most)

    def _found(
        self,
        body: Tape,
        starts: Sequence[Operand],
        invariants: Sequence[Operand],
        ends: Sequence[Var],
        kept: list[Guard],
        most: int | None,
    ) -> Found:
        first = self.turns[0].guard
        going, negated = first.operand, None
        if not first.expected.value:
            assert isinstance(going, Var)
            negated = Call(ew.logical_not, (going,), (self.fresh(going),), first.src)
            going = negated.out
        room = max(FEWEST, 1 << len(self.rounds).bit_length())
        room = room if most is None else min(room, most)
        primitive = Loop(body, len(starts), room, until=True)
        operands = (Literal(np.int64(room)), going, *starts, *invariants)
        made, more = self.fresh(_STEP), self.fresh(_FLAG)
        call = Call(primitive, operands, (*ends, made, more), self.calls[0][0].src)
        return Found(Room(call, room, most), more, negated, kept)

    def pattern(self, body: Tape) -> Pattern:
        """What these rounds, which are those of a loop with this body, tell of others."""
        values = list(zip(*[turn.values for turn in self.turns], strict=True))
        return Pattern(body, [[k for k, v in enumerate(values) if v == c] for c in self.carried])

    # ---- are they rounds of a loop?

    def _are_equal(self) -> bool:
        """Whether the rounds make the same calls."""
        first = self.calls[0]
        if not first or any(len(calls) != len(first) for calls in self.calls):
            return False
        return all(
            call.primitive == like.primitive
            and call.src == like.src
            and len(call.operands) == len(like.operands)
            and [out.aval for out in call.outs] == [out.aval for out in like.outs]
            for calls in self.calls[1:]
            for call, like in zip(calls, first, strict=True)
        )

    def _carry(self) -> bool:
        """Find what is carried: the variables that don't hold the same at each turn. Each ends as
        the result of a round, and no two end as the same one, else it couldn't be told which of
        them the program reads later."""
        ends = set()
        for values in dict.fromkeys(zip(*[turn.values for turn in self.turns], strict=True)):
            if all(x == values[0] for x in values):
                continue
            end = values[-1]
            if any(x.aval != end.aval for x in values) or not isinstance(end, Var):
                return False
            if end not in self.made or end in ends:
                return False
            ends.add(end)
            self.carried[values] = end
        return bool(self.carried)

    def _across(self, n: int) -> list[tuple[Operand, ...]]:
        """The operands of the call number `n`, each in all rounds."""
        return list(zip(*[calls[n].operands for calls in self.calls], strict=True))

    def _invariants(self) -> list[Var] | None:
        """What comes from before the loop and is the same in each round; None where it can't be
        told from what is carried."""
        found: dict[Var, None] = {}
        told = [xs for n in range(len(self.calls[0])) for xs in self._across(n)]
        for xs in (*told, *(values[1:] for values in self.carried)):
            x = xs[0]
            if isinstance(x, Var) and x not in self.made and all(y == x for y in xs):
                if any(values[: len(xs)] == xs for values in self.carried):
                    return None
                found[x] = None
        return list(found)

    def _known(self, xs: tuple[Operand, ...]) -> Operand | None:
        """In the body, what this is in the rounds; None where that can't be told."""
        x = xs[0]
        found = [var for values, var in self.carried.items() if values[: len(xs)] == xs]
        if isinstance(x, Literal):
            if all(isinstance(y, Literal) and y == x and y.aval == x.aval for y in xs):
                return x if not found else None
        elif x in self.local:
            _, n, place = self.made[x]
            if all(self._place(y) == (r, n, place) for r, y in enumerate(xs)):
                return self.local[x]
        elif x in self.invariants and all(y == x for y in xs):
            return self.invariants[x]
        return found[0] if len(found) == 1 else None

    def _place(self, x: Operand) -> tuple[int, int, int] | None:
        return self.made.get(x) if isinstance(x, Var) else None

    def _guards(self) -> list[Guard] | None:
        """Note the guards of a round; gives those about what isn't of a round. None where rounds
        differ in them."""
        inside, kept = self._asked()
        if len({len(guards) for guards in inside}) > 1:
            return None
        for guards in zip(*inside, strict=True):
            x = self._known(tuple([guard.operand for guard in guards]))
            if x is None or len({(g.expected, g.what, g.src) for g in guards}) > 1:
                return None
            self.builder.guards.append(replace(guards[0], operand=x))
        return kept

    def _asked(self) -> tuple[list[list[Guard]], list[Guard]]:
        """The guards of each round, but for the turns' own; and those about what is from before."""
        kept: list[Guard] = []
        inside: list[list[Guard]] = []
        for items, turn in zip(self.rounds, self.turns[1:], strict=True):
            inside.append([])
            for x in items:
                if isinstance(x, Guard) and not is_of(x, turn):
                    (inside[-1] if x.operand in self.made else kept).append(x)
        return inside, kept

    # ---- or is it a round of a loop that is known?

    def loop_like(self, pattern: Pattern, most: int | None) -> Found | None:
        """The loop with this body that this round is one of; None if it isn't."""
        body, (round_,), (first, last) = pattern.body, self.calls, self.turns
        inputs = body.inputs[1 : 1 + len(pattern.carried)]
        if any(max(places) >= len(first.values) for places in pattern.carried):
            return None
        before = [{first.values[k] for k in places} for places in pattern.carried]
        after = [{last.values[k] for k in places} for places in pattern.carried]
        if any(len(xs) != 1 for xs in (*before, *after)):
            return None
        known: dict[Operand, Operand] = {
            v: xs.copy().pop() for v, xs in zip(inputs, before, strict=True)
        }
        free = set(body.inputs[1 + len(inputs) :])

        def fits(inside: Operand, outside: Operand) -> bool:
            """Whether an operand of the body may be this one of the round."""
            if isinstance(inside, Literal) or inside.aval != outside.aval:
                return inside == outside and inside.aval == outside.aval
            if inside in free and inside not in known and outside not in self.made:
                known[inside] = outside
            return known.get(inside) == outside

        negated = not first.guard.expected.value
        calls = body.calls[:-1] if negated else body.calls
        if len(calls) != len(round_):
            return None
        for call, here in zip(calls, round_, strict=True):
            if (call.primitive, call.src) != (here.primitive, here.src):
                return None
            if len(call.operands) != len(here.operands) or len(call.outs) != len(here.outs):
                return None
            if not all(map(fits, call.operands, here.operands)):
                return None
            known.update(zip(call.outs, here.outs, strict=True))
        carried = {k for places in pattern.carried for k in places}
        rest = [k for k in range(len(first.values)) if k not in carried]
        ends: list[Any] = [xs.pop() for xs in after]
        *outputs, going = body.outputs
        test = body.calls[-1].operands[0] if negated else going
        same = (
            len(first.values) == len(last.values)
            and all(first.values[k] == last.values[k] for k in rest)
            and all(end in self.made for end in ends)
            and len(set(ends)) == len(ends)
            and all(map(fits, outputs, ends))
            and fits(test, last.guard.operand)
        )
        (inside,), kept = self._asked()
        if not same or len(inside) != len(body.guards):
            return None
        for guard, here_ in zip(body.guards, inside, strict=True):
            if (guard.expected, guard.what, guard.src) != (here_.expected, here_.what, here_.src):
                return None
            if not fits(guard.operand, here_.operand):
                return None
        order = body.inputs[1 + len(inputs) :]
        if any(x not in known for x in order):
            return None
        starts = [xs.pop() for xs in before]
        return self._found(body, starts, [known[x] for x in order], ends, kept, most)


_STEP = Var(0, Literal(np.int64(0)).aval)
_FLAG = Var(0, Literal(np.bool_(False)).aval)
