"""Smaller loops: values that needn't be carried aren't, and invariant calls move out of the loop.

    loop(n, %a, %b, %c, ...)
        %4 = mul(%c, 0.5)          %c is invariant: so is %4, and it is computed once, before
        %5 = add(%a, %4)           %b is carried unchanged: it becomes an invariant
        out %5, %b

Carried values and invariants that nothing reads are dropped.

While a derivative may still be taken, nothing moves out of a loop that may make no rounds: there 0,
the cotangent of an unused value, times an infinite slope would be NaN. `hoist` moves it later. A
loop of at most one round is a conditional, and keeps everything.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Call, Guard, Literal, Operand, Rewriter, Tape, Var, everywhere
from tapegrad.optimize.dce import remove_dead
from tapegrad.primitives.kinds import (
    Contraction,
    Library,
    Region,
    Repeated,
    Routine,
    Scatter,
    Unset,
    View,
)

FREE_SHARE = 16  # an operand with a 16th of the elements of a result is free to pass


@everywhere
def slim_loops(tape: Tape) -> Tape:
    """Move invariant calls out of loops and drop what isn't needed, before differentiating."""
    return _slimmed(tape, final=False)


@everywhere
def hoist(tape: Tape) -> Tape:
    """`slim_loops` for a tape that won't be differentiated."""
    return _slimmed(tape, final=True)


def sink(tape: Tape) -> Tape:
    """The opposite of `hoist`, where memory is scarcer than time.

    Loops whose rounds multiply matrices or solve systems recompute their cheap invariants in each
    round, from operands that they have anyway or from much smaller ones.
    """
    if not any(isinstance(call.primitive, Repeated) for call in tape.calls):
        return tape
    rewriter = Rewriter(tape)
    for k, call in enumerate(tape.calls):
        if isinstance(call.primitive, Repeated) and _is_slow(call.primitive.body):
            call = _sunk(call, tape.calls[:k], {*tape.inputs})
        rewriter.copy(call)
    return remove_dead(rewriter.finish())


def _is_slow(body: Tape) -> bool:
    return any(isinstance(call.primitive, (Contraction, Routine)) for call in body.calls)


def _is_plain(call: Call) -> bool:
    """Whether a call takes about one operation per element."""
    p: Any = call.primitive
    if p.checks or p.foreign or len(call.outs) > 1:
        return False
    if isinstance(p, Contraction):
        term, x = p.terms[0], call.operands[0]
        return all(n == 1 or k not in p.terms.depth for k, n in zip(term, x.shape, strict=True))
    if isinstance(p, Scatter):
        return p.onto != "first" and not p.indexed
    return p.pointwise or isinstance(p, (View, Region))


def _sunk(call: Call, before: Sequence[Call], there: set[Operand]) -> Call:
    """The loop with cheap invariants computed in its rounds. Their operands are in `there`,
    invariants of the loop, much smaller, or cheap themselves."""
    loop: Any = call.primitive
    heads, given = loop.heads(call.operands), list(loop.given(call.operands))
    first, body = loop.carried, loop.body
    there = {*there, *given[first:]}
    quick: set[Operand] = set()
    for by in before:
        x = by.outs[0]
        ready = (
            FREE_SHARE * y.aval.size <= x.aval.size or y in there or y in quick for y in by.operands
        )
        if x.shape and _is_plain(by) and all(ready):
            quick.add(x)
    wanted = quick.intersection(given[first:])
    for by in reversed(before):
        if by.outs[0] in wanted:
            wanted.update(quick.intersection(by.operands))
    inner: dict[Operand, Var] = {}
    stays: dict[Operand, Var] = {}
    number = itertools.count(body.last + 1)
    calls: list[Call] = []

    def inside(x: Operand) -> Operand:
        """The variable for a value in a round: computed there, or a new invariant."""
        if isinstance(x, Literal):
            return x
        if x not in inner:
            inner[x] = stays[x] = Var(next(number), x.aval)
        return inner[x]

    for by in before:
        x = by.outs[0]
        if x in wanted:
            operands = tuple(map(inside, by.operands))
            inner[x] = Var(next(number), x.aval)
            calls.append(Call(by.primitive, operands, (inner[x],), by.src, by.reason))
    named: dict[Operand, Operand] = {
        var: inside(x) for var, x in zip(body.inputs[1 + first :], given[first:], strict=True)
    }

    def renamed(x: Operand) -> Operand:
        return named.get(x, x)

    for own in body.calls:
        operands = tuple([renamed(x) for x in own.operands])
        calls.append(Call(own.primitive, operands, own.outs, own.src, own.reason))
    guards = tuple([replace(guard, operand=renamed(guard.operand)) for guard in body.guards])
    changed = replace(
        body,
        inputs=(*body.inputs[: 1 + first], *stays.values()),
        names=(),
        calls=tuple(calls),
        outputs=tuple([renamed(x) for x in body.outputs]),
        guards=guards,
        form=None,
    )
    primitive = loop.changed(body=renumbered(changed))
    return replace(call, primitive=primitive, operands=(*heads, *given[:first], *stays))


def _slimmed(tape: Tape, final: bool) -> Tape:
    if not any(isinstance(call.primitive, Repeated) for call in tape.calls):
        return tape
    read: set[Operand] = {*tape.outputs, *(guard.operand for guard in tape.guards)}
    for call in tape.calls:
        read.update(call.operands)
    rewriter = Rewriter(tape)
    for call in tape.calls:
        if isinstance(call.primitive, Repeated):
            _Loop(rewriter, call, read, final).record()
        else:
            rewriter.copy(call)
    return rewriter.finish()


class _Loop:
    """One loop: the inputs of its body that stay carried, and the outer values of its
    invariants."""

    def __init__(self, rewriter: Rewriter, call: Call, read: set[Operand], final: bool) -> None:
        self.rewriter = rewriter
        self.call = call
        loop: Any = call.primitive
        self.loop = loop
        self.body: Tape = loop.body
        operands = rewriter.operands(call)
        self.heads, self.given = loop.heads(operands), list(loop.given(operands))
        self.step = self.body.inputs[0]
        self.carried = self.body.inputs[1 : 1 + loop.carried]
        # Invariant variable of the body -> its value on the outer tape.
        self.outside: dict[Var, Operand] = dict(
            zip(self.body.inputs[1 + loop.carried :], self.given[loop.carried :], strict=True)
        )
        self.wanted = [out in read for out in call.outs[: loop.carried]]
        self.counted = any(out in read for out in call.outs[loop.carried :])
        self.live: set[Operand] = set()
        (rounds, *_) = self.heads
        self.runs = isinstance(rounds, Literal) and int(rounds.value) > 0 and not loop.until
        # A round that is recomputed for the derivative gets no shorter by moving its calls before
        # it.
        kept = loop.recomputed and loop.most == 1
        self.hoists = not kept and (self.runs or (final and loop.most > 1))

    def record(self) -> None:
        kept = self._kept()
        calls = self._hoisted()
        entering = [self.carried[k] for k in kept]
        leaving = [*(self.body.outputs[k] for k in kept), *self.body.outputs[len(self.carried) :]]
        guards = tuple([guard for guard in self.body.guards if not self._is_known(guard)])
        used: dict[Operand, None] = {}
        for call in calls:
            used.update(dict.fromkeys(call.operands))
        used.update(dict.fromkeys([*leaving, *(g.operand for g in guards)]))
        invariants = [x for x in self.outside if x in used]
        body = replace(
            self.body,
            inputs=(self.step, *entering, *invariants),
            names=self._names([self.step, *entering, *invariants]),
            calls=tuple(calls),
            outputs=tuple(leaving),
            output_names=(),
            guards=guards,
        )
        for k, out in enumerate(self.call.outs[: len(self.carried)]):
            if k not in kept:
                self.rewriter.env[out] = self.given[k]
        if not kept and not self.counted:
            return
        primitive = self.loop.changed(body=renumbered(body), carried=len(kept))
        operands = [*self.heads, *(self.given[k] for k in kept)]
        operands += [self.outside[x] for x in invariants]
        outs = self.rewriter.builder.call(primitive, operands, self.call.src, self.call.reason)
        left = [*(self.call.outs[k] for k in kept), *self.call.outs[len(self.carried) :]]
        self.rewriter.env.update(zip(left, outs, strict=True))

    def _is_known(self, guard: Guard) -> bool:
        """Whether a guard is on an invariant. Then it is moved out of the loop and checked once."""
        x = guard.operand
        if self.runs and isinstance(x, Var) and x in self.outside:
            outside = replace(guard, operand=self.outside[x])
            if isinstance(self.outside[x], Var):
                self.rewriter.builder.guards.append(outside)
                return True
        return False

    def _names(self, inputs: Sequence[Var]) -> tuple[str, ...]:
        if not self.body.names:
            return ()
        names = dict(zip(self.body.inputs, self.body.names, strict=True))
        return tuple([names.get(x, "") for x in inputs])

    def _kept(self) -> list[int]:
        """The numbers of the values that stay carried: those that are read and change."""
        outputs, first = self.body.outputs, self.given[:1]
        for k, (x, after) in enumerate(zip(self.carried, outputs, strict=False)):
            once = self.loop.most == 1 and not self.wanted[k]  # one round, whose result isn't read
            if x is after or x == after or once:
                self.outside[x] = self.given[k]
        used = {x for call in self.body.calls for x in call.operands}
        used |= {*outputs, *(guard.operand for guard in self.body.guards)}
        for k, (x, after) in enumerate(zip(self.carried, outputs, strict=False)):
            known = after if isinstance(after, Literal) else self.outside.get(after)
            if self.runs and known is not None and x not in used and x not in self.outside:
                self.given[k] = known  # each round sets it to the same value, and no round reads it
                self.wanted[k] = False
        made = {out: call for call in self.body.calls for out in call.outs}
        numbers = {x: k for k, x in enumerate(self.carried)}
        waiting: list[Operand] = [guard.operand for guard in self.body.guards]
        acts = [c for c in self.body.calls if c.primitive.foreign or c.primitive.checks]
        waiting += [x for call in acts for x in call.outs]
        waiting += [x for x, wanted in zip(outputs, self.wanted, strict=False) if wanted]
        waiting += outputs[len(self.carried) :]
        needed = {k for k, wanted in enumerate(self.wanted) if wanted}

        def reach() -> list[int]:
            while waiting:
                x = waiting.pop()
                if x in self.live or isinstance(x, Literal):
                    continue
                self.live.add(x)
                if x in numbers and numbers[x] not in needed:
                    needed.add(numbers[x])
                    waiting.append(outputs[numbers[x]])
                elif x in made:
                    waiting.extend(made[x].operands)
            return [k for k in sorted(needed) if self.carried[k] not in self.outside]

        kept = reach()
        if not kept and self.loop.checks and self.carried:  # it stays for its guards, with a value
            self.outside.pop(self.carried[0], None)
            self.given[:1] = first  # from its own start: another value's would get two cotangents
            needed.add(0)
            waiting.append(outputs[0])
            kept = reach()
        return kept

    def _hoisted(self) -> list[Call]:
        """The calls that stay in the loop. Invariant calls are added before it."""
        stay = []
        for call in self.body.calls:
            if self.live.isdisjoint(call.outs):
                continue
            if self._moves_out(call):
                operands = [x if isinstance(x, Literal) else self.outside[x] for x in call.operands]
                outs = self.rewriter.builder.again(call, operands)
                self.outside.update(zip(call.outs, outs, strict=True))
            else:
                stay.append(call)
        # Views stay with their readers: they cost nothing there.
        made = {out: call for call in self.body.calls for out in call.outs}
        return _with_views(stay, made, self.outside)

    def _moves_out(self, call: Call) -> bool:
        primitive = call.primitive
        if not self.hoists or primitive.foreign or isinstance(primitive, (Repeated, Unset)):
            return False
        if isinstance(primitive, Library) and not self.runs:
            return False  # a call of NumPy may be slow, and there may be no round
        return all(isinstance(x, Literal) or x in self.outside for x in call.operands)


def _with_views(stay: list[Call], made: dict[Var, Call], outside: dict[Var, Operand]) -> list[Call]:
    """The calls, preceded by the views of invariants that they read."""
    back: dict[Var, Call] = {}

    def put(x: Operand) -> None:
        call = made.get(x) if isinstance(x, Var) and x in outside else None
        if call is not None and isinstance(call.primitive, View) and x not in back:
            for y in call.operands:
                put(y)
            back[x] = call  # type: ignore[index]

    for call in stay:
        for x in call.operands:
            put(x)
    for x in back:
        del outside[x]
    return [*dict.fromkeys(back.values()), *stay]
