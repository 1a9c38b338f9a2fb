"""Folded loops: the loop of a pattern, and its calls, one for all rounds that follow each other.

The body of all of them is the same. What differs is among the operands: how many rounds there are;
what is carried in, and what is the same in each round; tables of numbers, one each round; integers,
which say where indices start, and how many rounds the loops in the body have.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Builder, Call, Literal, Operand, Tape, Var
from tapegrad.optimize.patterns import Match, Pattern
from tapegrad.optimize.repetition import Way
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Primitive, Slice
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.parts import index_at
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.views import GetItem
from tapegrad.primitives.windows import Empty, SetWindow, Window

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


def guarded(calls: Sequence[Call], guards: Container[int]) -> Iterator[tuple[int, int]]:
    """The results of calls, told as in `Pattern.wanted`, that guards are about, here or inside."""
    for k, call in enumerate(calls):
        for number, out in enumerate(call.outs):
            if call.primitive.checks or out.id in guards:
                yield k, number


class Fresh:
    """Variables that no tape knows."""

    def __init__(self, last: int) -> None:
        self.last = last

    def var(self, aval: Aval) -> Var:
        self.last += 1
        return Var(self.last, aval)


class LoopOf:
    """The loop of a pattern, and the operands of its calls, one for each match."""

    def __init__(
        self,
        pattern: Pattern,
        name: str,
        folds: Mapping[int, Fold],
        fresh: Fresh,
        table: Callable[[Sequence[Any], int], Var],
    ) -> None:
        """`table` gives a variable for values, one each round, of at most so many."""
        self.pattern = pattern
        self.folds, self.fresh, self.table = folds, fresh, table
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
        if not self.slots:  # it is there for its guards alone, and carries what one is about
            looked_at = [*guarded(pattern.calls, pattern.found.guards)][:1]
            self.slots += [(k, out, 1, None) for k, out in looked_at]
        self.loop = Loop(self._body(name), len(self.slots), self.most)
        first = 1 + len(self.slots) + len(self.given)
        numbers = {port: first + n for n, port in enumerate(self.integers)}
        counts = {numbers[port] for port in self.integers if self._counts(port)}
        self.fold = Fold(self.loop, frozenset({0, *numbers.values()}), frozenset({0, *counts}))

    def _ports(self) -> list[Any]:
        """In order, that of the calls and of their operands; those of one slot from the last round
        on."""
        return list(self.pattern.matches[0].values)

    def _counts(self, port: Any) -> bool:
        """Whether an integer says how many rounds an inner loop has."""
        if port[0] != "first":
            return False
        inner = self.folds[id(self.pattern.calls[port[1]].primitive)]
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
            for var in call.outs:
                for guard in pattern.found.guards.get(var.id, ()):
                    builder.guards.append(replace(guard, operand=local[var.id]))
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
        places: list[int] = []
        moves: list[tuple[int, ...]] = []
        steps: list[Operand] = []
        for place in range(len(move)):
            start = self.at["index", k, place]
            places.append(int(start.value) if isinstance(start, Literal) else 0)
            if not isinstance(start, Literal):
                moves.append(tuple([int(other == place) for other in range(len(move))]))
                steps.append(start)
        index = index_at(primitive.index, places)
        if any(move):
            moves.append(move)
            steps.append(self.step)
        kinds: dict[type, Any] = {GetItem: Window, SetItem: SetWindow}
        kind = kinds.get(type(primitive), type(primitive))
        if not moves:
            return type(primitive)(**{**vars(primitive), "index": index}), []
        moves = [*getattr(primitive, "moves", ()), *moves]
        return kind(**{**vars(primitive), "index": index, "moves": tuple(moves)}), steps

    def _leaving(self, slot: tuple[int, int, int, Any], local: dict[int, Operand]) -> Operand:
        """What a round leaves in a slot."""
        k, out, back, port = slot
        if back == 1:
            return local[self.pattern.calls[k].outs[out].id]
        return self.at[(*port[:3], back - 1)]

    def calls(self, match: Match) -> Iterator[Call]:
        """The calls that stand for a match; the last is that of the loop."""
        operands: list[Operand] = [Literal(np.int64(match.rounds))]
        outs: list[Var] = []
        for k, out, back, port in self.slots:
            aval = self.pattern.calls[k].outs[out].aval
            if port is not None:
                operands.append(match.values[port])
            elif aval.shape == ():
                operands.append(Literal(aval.dtype.type(0)))
            else:
                empty = self.fresh.var(aval)
                yield Call(Empty(aval.shape, aval.dtype), (), (empty,))
                operands.append(empty)
            outs.append(self._left(match, k, out, back, outs))
        for port in self.given:
            x = match.values[port]
            operands.append(self.table(x, self.most) if port[0] == "table" else x)
        operands += [Literal(np.int64(match.values[port])) for port in self.integers]
        src = self.pattern.calls[0].src
        yield Call(self.loop, tuple(operands), tuple(outs), src)

    def _left(self, match: Match, k: int, out: int, back: int, taken: Sequence[Var]) -> Var:
        """The variable that a slot leaves: that of the user's program."""
        if back <= match.rounds:
            position = match.start + (match.rounds - back) * self.pattern.period + k
            var = self.pattern.found.calls[position].outs[out]
            if all(var is not x for x in taken):
                return var
        return self.fresh.var(self.pattern.calls[k].outs[out].aval)
