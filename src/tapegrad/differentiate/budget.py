"""A gradient that keeps no more than so many bytes between its passes.

    %2 = sin(%1)                               %2 = sin(%1)
    %3 = exp(%2)          keeps %2, %3         %3 = exp(%2)           keeps %2
    ...                                        ...
    %9 = mul(%8, %3)                -->        %7 = exp(again(%8, %2))
                                               %9 = mul(%8, %7)

What the backward half reads of the forward half is kept, or computed again of what is kept: once,
just before it is read first. With a price on each byte, the cheapest choice is a minimum cut (as in
`schedule.recompute`, which chooses among what is in registers anyway). The price is raised until
what is kept fits; what room is left is filled with what takes longest to compute again.

`again` is a value as it is, after another one is there. So equal calls don't become one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from tapegrad.ir.tape import Builder, Call, Literal, Operand, Tape, Var
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.kinds import Contraction, Repeated
from tapegrad.primitives.named import again
from tapegrad.primitives.views import GetItem

STEPS = 24  # prices that are tried


class Least(Exception):
    """So many bytes are the least that can be kept."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def within(tape: Tape, most: int) -> Tape:
    """The tape of a gradient whose backward half reads at most so many bytes of the forward half;
    `Least` if that can't be."""
    halves = _Halves(tape)
    if _nbytes(halves.wanted) <= most:
        return tape
    return _Rewrite(halves, halves.chosen(most)).tape()


def _nbytes(kept: Collection[Var]) -> int:
    return sum(v.aval.nbytes for v in kept)


class _Halves:
    """The forward and the backward half of a tape, and what the second reads of the first."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.late: set[Operand] = set()
        self.made: dict[Operand, Call] = {}  # by calls of the forward half
        self.shown: dict[Operand, Operand] = {}  # whose memory a view of the forward half shows
        wanted: dict[Var, None] = {}
        for call in tape.calls:
            if call.is_cotangent or not self.late.isdisjoint(call.operands):
                self.late.update(call.outs)
                wanted.update({b: None for x in call.operands for b in self.bases(x)})
                continue
            if call.primitive.unset:  # an array to be filled keeps nothing
                continue
            for out in call.outs:
                self.made[out] = call
                if call.primitive.is_view:
                    base = call.operands[0]
                    self.shown[out] = self.shown.get(base, base)
        self.wanted = list(wanted)

    def bases(self, x: Operand) -> Iterator[Var]:
        """What of the forward half is in memory where an operand is read."""
        x = self.shown.get(x, x)
        if x in self.made and isinstance(x, Var):
            yield x

    def needs(self, call: Call) -> list[Var]:
        return [b for x in call.operands for b in self.bases(x)]

    # ---- the choice

    def chosen(self, most: int) -> set[Var]:
        """What is kept."""
        calls = self._reached(())
        total = sum(map(_work, calls)) + 1.0
        best = self._cut(calls, total)
        if (least := _nbytes(best)) > most:
            raise Least(least)
        low, high = 0.0, total  # at the first price too much is kept, at the second it fits
        for _ in range(STEPS):
            price = math.sqrt(low * high) if low else high / 1e3
            kept = self._cut(calls, price)
            if _nbytes(kept) <= most:
                high, best = price, kept
            else:
                low = price
            if low and high < 1.01 * low:
                break
        return self._filled(best, most)

    def _cut(self, calls: Collection[Call], price: float) -> set[Var]:
        """What is kept, if each byte has this price."""
        import networkx as nx

        graph = nx.DiGraph()
        for number, call in enumerate(calls):
            capacity = {} if _runs_once(call) else {"capacity": _work(call)}
            graph.add_edge("source", number, **capacity)
            for out in call.outs:
                graph.add_edge(number, out, capacity=price * out.aval.nbytes)
            for x in self.needs(call):
                graph.add_edge(x, number)  # without a capacity it is never cut
        for x in self.wanted:
            graph.add_edge(x, "sink")
        _, (there, needed) = nx.minimum_cut(graph, "source", "sink")
        return {
            out for number, call in enumerate(calls) if number in there
            for out in call.outs if out in needed
        }  # fmt: skip

    def _reached(self, kept: Collection[Var]) -> list[Call]:
        """The calls that are made again, in order, for these are kept."""
        found: dict[Call, None] = {}
        stack = [x for x in self.wanted if x not in kept]
        while stack:
            call = self.made[stack.pop()]
            if call not in found:
                found[call] = None
                stack += [x for x in self.needs(call) if x not in kept]
        return [call for call in self.tape.calls if call in found]

    def _filled(self, kept: set[Var], most: int) -> set[Var]:
        """What is kept, and more of it where there is room."""
        left = most - _nbytes(kept)
        again = self._reached(kept)
        each = [(_work(call) / (v.aval.nbytes + 1), v) for call in again for v in call.outs]
        for _, v in sorted(each, key=lambda pair: -pair[0]):
            if v.aval.nbytes <= left:
                kept.add(v)
                left -= v.aval.nbytes
        calls = self._reached(kept)
        read = {x for call in calls for x in self.needs(call)}
        return kept & read.union(self.wanted)


def _runs_once(call: Call) -> bool:
    """Whether a call can't be made again, or made of nothing would be the same call."""
    return call.primitive.foreign or not call.operands


def _work(call: Call) -> float:
    """What it takes to make a call, in additions."""
    primitive: Any = call.primitive
    size = float(sum(math.prod(out.shape) for out in call.outs))
    if isinstance(primitive, Repeated):
        return primitive.most * (1 + sum(map(_work, primitive.body.calls)))
    if isinstance(primitive, Elementwise):
        return size * max(1, int(primitive.cost))
    if isinstance(primitive, Contraction):
        extents: dict[str, int] = {}
        for letters, x in zip(primitive.terms, call.operands, strict=False):
            extents.update(zip(letters, x.aval.shape, strict=True))
        return float(math.prod(extents.values()))
    read = sum(math.prod(x.aval.shape) for x in call.operands)
    if primitive.is_view:
        return 0.0
    return size + read if not primitive.tapes else size + read + 1e3


# ---- the tape


class _Rewrite:
    """The tape with what isn't kept computed again."""

    def __init__(self, halves: _Halves, kept: Collection[Var]) -> None:
        self.halves = halves
        self.kept = kept
        self.builder = Builder.after(halves.tape, halves.tape.name)
        self.builder.calls = []
        self.there: dict[Operand, Operand] = {}  # what is computed again, by what it is
        self.barred: dict[tuple[Operand, Operand], Operand] = {}

    def tape(self) -> Tape:
        tape, halves = self.halves.tape, self.halves
        for call in tape.calls:
            if halves.late.isdisjoint(call.outs):
                self.builder.calls.append(call)
                continue
            after = self._after(call)
            operands = tuple([self._read(x, after) for x in call.operands])
            same = operands == call.operands
            self.builder.calls.append(call if same else _of(call, operands))
        self.builder.guards += tape.guards
        return self.builder.finish(tape.outputs, tape.captured, tape.output_names)

    def _after(self, call: Call) -> Operand:
        """What is there when a call of the backward half is about to be made."""
        for x in reversed(call.operands):
            if isinstance(x, Var) and x in self.halves.late and x.aval.size:
                return x
        return Literal(np.float64(0))

    def _read(self, x: Operand, after: Operand) -> Operand:
        """What is read in the place of a value."""
        halves = self.halves
        if x in self.there:
            return self.there[x]
        call = halves.made.get(x)
        if call is None or halves.shown.get(x, x) in self.kept:
            return x
        if call.primitive.is_view and not any(halves.bases(x)):
            return x  # of an input, or of a number
        operands = [self._read(y, after) for y in call.operands]
        if operands == [*call.operands] and not call.primitive.is_view:
            operands = self._barred(operands, after)
        why = f"cotangent: {x} again"
        outs = self.builder.call(call.primitive, operands, call.src, why)
        self.there.update(zip(call.outs, outs, strict=True))
        return self.there[x]

    def _barred(self, operands: list[Operand], after: Operand) -> list[Operand]:
        """The operands of a call that is made again, as they are when `after` is there."""
        k = min(
            range(len(operands)), key=lambda k: (_is_number(operands[k]), operands[k].aval.size)
        )
        x = operands[k]
        key = (x, after)
        if key not in self.barred:
            why = f"cotangent: {x} again"
            if isinstance(after, Var) and after.shape not in ((), x.aval.shape):
                (after,) = self.builder.call(GetItem((0,) * len(after.shape)), [after], None, why)
            (self.barred[key],) = self.builder.call(again, [after, x], None, why)
        return [*operands[:k], self.barred[key], *operands[k + 1 :]]


def _is_number(x: Operand) -> bool:
    return isinstance(x, Literal)


def _of(call: Call, operands: tuple[Operand, ...]) -> Call:
    return Call(call.primitive, operands, call.outs, call.src, call.reason)
