"""Folded loops in the rounds that they are part of: what operands tell them is written out.

Of a folded loop (see `folded`) integers among the operands say how many rounds there are, and where
indices start. In the body of the outer loop each is a sum of steps and a number. So windows move
with the steps of the loops around, and only the number of rounds is computed:

    %5 = mul(%1, 2)                            body(t, s, A, ...):
    %6 = add(%5, 3)                 -->            window(A, s, t, index=(3,), moves=((1,), (2,)))
    loop(%6, A, %6, body(s, A, at):
        window(A, s, at, index=(0,), moves=((1,), (1,)))

Operands that are the same become one, numbers stand where they are read, and a loop of few rounds,
always equally many, is written out round by round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Aval, Builder, Call, Literal, Operand, Tape, Var
from tapegrad.optimize import repetition
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.kinds import Moving, Unset
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.parts import index_at, places_of
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.views import GetItem
from tapegrad.primitives.windows import SetWindow, Window

INT = Aval((), np.dtype(np.int64))
STATIC: dict[type, Any] = {Window: GetItem, SetWindow: SetItem}  # what doesn't move


@dataclass(frozen=True, eq=False)
class Integer:
    """A step of a loop: from 0 on, and below `end`."""

    end: int


@dataclass(frozen=True)
class Sum:
    """`const + sum of coefficient * integer`."""

    terms: tuple[tuple[Integer, int], ...] = ()
    const: int = 0

    def plus(self, other: Sum) -> Sum:
        total = dict(self.terms)
        for x, c in other.terms:
            total[x] = total.get(x, 0) + c
        return Sum(tuple([(x, c) for x, c in total.items() if c]), self.const + other.const)

    def scaled(self, factor: int) -> Sum:
        terms = tuple([(x, c * factor) for x, c in self.terms]) if factor else ()
        return Sum(terms, self.const * factor)

    @property
    def most(self) -> int:
        """No value is larger."""
        return self.const + sum(c * (x.end - 1) for x, c in self.terms if c > 0)


def settled(tape: Tape, folds: Mapping[int, Any], rounds: int) -> Tape:
    """The body of a loop of so many rounds, with its folded loops written out."""
    if not any(id(call.primitive) in folds for call in tape.calls):
        return tape
    builder = Builder(tape.name)
    names = tape.names or ("",) * len(tape.inputs)
    inputs = [builder.input(v.aval, name) for v, name in zip(tape.inputs, names, strict=True)]
    scope = _Scope(builder, folds)
    scope.env.update(zip(tape.inputs, inputs, strict=True))
    scope.count(tape.inputs[0], inputs[0], rounds)
    scope.run(tape)
    outputs = [scope.operand(x) for x in tape.outputs]
    done = builder.finish(outputs, tape.captured, tape.output_names)
    return renumbered(_without_idle(replace(done, form=tape.form)))


@dataclass
class _Scope:
    """A body while it is written."""

    builder: Builder
    folds: Mapping[int, Any]
    env: dict[Var, Operand] = field(default_factory=dict)
    sums: dict[Var, Sum] = field(default_factory=dict)  # what integers are, of the old body
    known: dict[Integer, Var] = field(default_factory=dict)  # steps, in this body
    further: dict[Integer, Var] = field(default_factory=dict)  # those that it has to be passed

    def count(self, before: Var, after: Var, rounds: int) -> None:
        """The step of this body."""
        step = Integer(rounds)
        self.sums[before] = Sum(((step, 1),))
        self.env[before] = self.known[step] = after

    def operand(self, x: Operand) -> Operand:
        if isinstance(x, Literal):
            return x
        if x not in self.env:
            self.env[x] = self.written(self.sums[x])
        return self.env[x]

    def integer(self, x: Integer) -> Var:
        """A step of this loop, or of one around it."""
        if x not in self.known:
            self.known[x] = self.further[x] = self.builder.fresh(INT)
        return self.known[x]

    def written(self, total: Sum) -> Operand:
        """The value of a sum."""
        value: Operand | None = None
        for x, c in total.terms:
            term = self.integer(x)
            if c != 1:
                (term,) = self.builder.call(ew.mul, [term, Literal(np.int64(c))])
            value = term if value is None else self.builder.call(ew.add, [value, term])[0]
        if value is None:
            return Literal(np.int64(total.const))
        if total.const:
            (value,) = self.builder.call(ew.add, [value, Literal(np.int64(total.const))])
        return value

    def sum_of(self, x: Operand) -> Sum | None:
        if isinstance(x, Literal):
            return Sum((), int(x.value)) if x.dtype.kind == "i" else None
        return self.sums.get(x)

    def run(self, tape: Tape) -> None:
        """Write the calls of the old body, and its guards."""
        for call in tape.calls:
            total = self._total(call)
            if total is not None:
                self.sums[call.out] = total
            elif id(call.primitive) in self.folds:
                self._loop(call)
            elif isinstance(call.primitive, Moving):
                self._moving(call)
            else:
                outs = self.builder.again(call, [self.operand(x) for x in call.operands])
                self.env.update(zip(call.outs, outs, strict=True))
        for guard in tape.guards:
            self.builder.guards.append(replace(guard, operand=self.operand(guard.operand)))

    def _total(self, call: Call) -> Sum | None:
        """What a call adds up, if that is integers that are known."""
        if call.primitive not in (ew.add, ew.mul) or self.sums.keys().isdisjoint(call.operands):
            return None
        x, y = map(self.sum_of, call.operands)
        if x is None or y is None:
            return None
        if call.primitive is ew.add:
            return x.plus(y)
        if x.terms and y.terms:
            return None
        return x.scaled(y.const) if x.terms else y.scaled(x.const)

    def _moving(self, call: Call) -> None:
        """A window, which moves with the integers that its steps are sums of."""
        primitive: Any = call.primitive
        steps = primitive.steps(call.operands)
        others = [self.operand(x) for x in call.operands[: len(call.operands) - len(steps)]]
        start = list(places_of(primitive.index))
        found: dict[Operand, list[int]] = {}
        for step, move in zip(steps, primitive.moves, strict=True):
            total = self.sum_of(step)
            terms = [(self.operand(step), 1)] if total is None else []
            if total is not None:
                terms = [(self.integer(x), c) for x, c in total.terms]
                start = [a + total.const * far for a, far in zip(start, move, strict=True)]
            for x, c in terms:
                row = found.setdefault(x, [0] * len(start))
                row[:] = [a + c * far for a, far in zip(row, move, strict=True)]
        moves = {x: tuple(row) for x, row in found.items() if any(row)}
        index = index_at(primitive.index, start)
        kind = type(primitive)
        if not moves and kind in STATIC:
            new: Any = STATIC[kind](index)
        else:
            new = kind(**{**vars(primitive), "index": index, "moves": tuple(moves.values())})
        outs = self.builder.call(new, [*others, *moves], call.src, call.reason)
        self.env.update(zip(call.outs, outs, strict=True))

    # ---- loops

    def _loop(self, call: Call) -> None:
        loop: Any = call.primitive
        total: Any = self.sum_of(call.operands[0])
        fixed = total is not None and not total.terms
        if fixed and total.const * len(loop.body.calls) < repetition.CALLS:
            self._round_by_round(call, total.const)
            return
        most = loop.most if total is None else min(total.most, loop.most)
        rounds = self.operand(call.operands[0])
        start, outer = call.operands[1 : 1 + loop.carried], call.operands[1 + loop.carried :]
        body: Tape = loop.body
        builder = Builder(body.name)
        step = builder.input(body.inputs[0].aval, "t")
        inner = _Scope(builder, self.folds)
        inner.count(body.inputs[0], step, most)
        alike: dict[Any, int] = {}  # which carried value is which
        kept: list[int] = []
        begun = []
        entering = body.inputs[1 : 1 + loop.carried]
        for k, (x, after) in enumerate(zip(start, body.outputs, strict=True)):
            first = self.operand(x)
            same = alike.setdefault((first, after), k)
            if same == k:
                kept.append(k)
                begun.append(first)
                inner.env[entering[k]] = builder.input(entering[k].aval)
            else:
                inner.env[entering[k]] = inner.env[entering[same]]
        passed: dict[Operand, Var] = {}
        for var, x in zip(body.inputs[1 + loop.carried :], outer, strict=True):
            known = self.sum_of(x) if var.dtype == np.int64 and not var.shape else None
            if known is not None:
                inner.sums[var] = known
                continue
            value = self.operand(x)
            if isinstance(value, Literal):
                inner.env[var] = value
                continue
            if value not in passed:
                passed[value] = builder.input(var.aval)
            inner.env[var] = passed[value]
        inner.run(body)
        outputs = [inner.operand(body.outputs[k]) for k in kept]
        for var in inner.further.values():
            builder.inputs.append(var)
            builder.names.append("")
        integers = [self.integer(x) for x in inner.further]
        tape = renumbered(_without_idle(builder.finish(outputs)))
        primitive = Loop(tape, len(kept), most)
        outs = self.builder.call(
            primitive, [rounds, *begun, *passed, *integers], call.src, call.reason
        )
        found = dict(zip(kept, outs, strict=True))
        for k, (x, after) in enumerate(zip(start, body.outputs, strict=True)):
            self.env[call.outs[k]] = found[alike[self.operand(x), after]]

    def _round_by_round(self, call: Call, rounds: int) -> None:
        """A loop without a loop."""
        loop: Any = call.primitive
        body: Tape = loop.body
        given = call.operands[1:]
        carried = [self.operand(x) for x in given[: loop.carried]]
        inner = _Scope(self.builder, self.folds, known=self.known, further=self.further)
        for number in range(rounds):
            inner.env, inner.sums = {}, {body.inputs[0]: Sum((), number)}
            inner.env.update(zip(body.inputs[1:], carried, strict=False))
            for var, x in zip(body.inputs[1 + loop.carried :], given[loop.carried :], strict=True):
                known = self.sum_of(x) if var.dtype == np.int64 and not var.shape else None
                if known is not None:
                    inner.sums[var] = known
                else:
                    inner.env[var] = self.operand(x)
            inner.run(body)
            carried = [inner.operand(x) for x in body.outputs]
        self.env.update(zip(call.outs, carried, strict=True))


def _without_idle(tape: Tape) -> Tape:
    """The tape without sums and memory that nobody reads."""
    read: set[Operand] = {*tape.outputs, *(guard.operand for guard in tape.guards)}
    kept: list[Call] = []
    for call in reversed(tape.calls):
        idle = isinstance(call.primitive, Unset) or call.primitive in (ew.add, ew.mul)
        if not idle or not read.isdisjoint(call.outs):
            kept.append(call)
            read.update(call.operands)
    return replace(tape, calls=tuple(reversed(kept)))
