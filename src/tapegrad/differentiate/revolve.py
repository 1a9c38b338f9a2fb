"""Checkpoints at the best places: a loop keeps a fixed number of its states.

    states 0 . . . . 5 . . 8 . 10        the forward loop, with three checkpoints
                               10  9     a round backwards needs the state before it:
                           8 . 9   8     it is kept, or computed again from the last one before,
                    5 . 7  .             and on the way checkpoints are set that are free again

Say `l` rounds are left after a kept state, and `s` checkpoints are free, including that one. The
next checkpoint is set where Griewank and Walther's "Algorithm 799: revolve" (ACM TOMS 26, 2000)
sets it. Among C(s + r, s) rounds none runs more than `r` times before it is linearised, and no
schedule needs fewer rounds in all: l r - C(s + r, s + 1), for the least such r. The schedule is
computed on the tape while it is followed. So a loop that runs until a condition fails has an
equally good one: its forward loop keeps the start only.

The kept states are a stack: arrays with one entry for each state, the steps of the states, and
their number, the `depth`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.differentiate.loops import Backward, Derive, zeros_of
from tapegrad.differentiate.masks import Masks
from tapegrad.differentiate.partial_eval import halves
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Aval, Builder, Call, Literal, Operand, Tape, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Node, Writer
from tapegrad.primitives.control import quietly
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.windows import Empty, SetWindow, Window, entry_at

INTEGER = Aval((), np.dtype(np.int64))
MANY = 1 << 62


def _number(writer: Writer, value: int) -> Node:
    return writer.node(Literal(np.int64(value)))


class Revolved(Backward):
    """The derivative of a loop that keeps the states of at most `slots` rounds."""

    def __init__(self, call: Call, active: Collection[Operand], derive: Derive, slots: int) -> None:
        super().__init__(call, active, derive)
        self.slots = slots
        self.state = self._state()

    def _state(self) -> list[int]:
        """The numbers of the carried values that backward rounds need, and the rounds that
        recompute them."""
        body, count = self.loop.body, self.loop.carried
        left = len(body.outputs)
        _, read = _live(self.round, self.round.outputs[left:])
        found = {k for k, x in enumerate(self.round.inputs[1 : 1 + count]) if x in read}
        while True:
            _, read = _live(body, [body.outputs[k] for k in found])
            reached = found | {k for k, x in enumerate(body.inputs[1 : 1 + count]) if x in read}
            if reached == found:
                return sorted(found)
            found = reached

    # ---- forward

    def forward(self, builder: Builder, call: Call) -> tuple[Var, ...]:
        """Record the loop that keeps the first checkpoints. Returns its results, followed by the
        checkpoints."""
        loop = self.loop
        if loop.until or not self.state:
            return builder.call(loop, call.operands, call.src, call.reason)
        writer = Writer(builder)
        writer.src, writer.reason = call.src, f"kept for the derivative of {call.primitive}"
        xs = [writer.node(x) for x in call.operands]
        rounds, given = xs[0], loop.given(xs)
        start, invariants = list(given[: loop.carried]), given[loop.carried :]
        zero, one = _number(writer, 0), _number(writer, 1)
        carried, stack, depth = self._swept(
            writer,
            range(loop.carried),
            start,
            self._begun(writer, [start[k] for k in self.state]),
            (zero, zero),
            (rounds, rounds - 1),
            invariants,
        )
        kept = [*(carried[k] for k in self.state), *stack, depth]
        last = ew.where(rounds > 0, one, zero)
        ends = (last, zero) if loop.backwards else (rounds, rounds - last)
        writer.reason = call.reason
        primitive = loop.changed(later=True)
        outs = primitive(*ends, *carried, *invariants)
        found = outs if isinstance(outs, tuple) else (outs,)
        return tuple([x.operand for x in (*found, *kept)])

    def _begun(self, writer: Writer, state: Sequence[Node]) -> list[Node]:
        """The stack with the start state at its bottom."""
        stack = []
        for x in (*state, _number(writer, 0)):
            array = writer.apply(Empty((self.slots, *x.shape), x.dtype), ())
            stack.append(SetItem(entry_at(0, x.shape)[0])(array, x))
        return stack

    # ---- from a checkpoint to a later state

    def _swept(
        self,
        writer: Writer,
        numbers: Sequence[int],
        values: Sequence[Node],
        stack: Sequence[Node],
        place: tuple[Node, Node],
        ends: tuple[Node, Node],
        invariants: Sequence[Node],
    ) -> tuple[list[Node], list[Node], Node]:
        """Run carried values on to a position, and set checkpoints on the way.

        `numbers` are the numbers of the carried values, `place` is (depth, position) now, `ends` is
        (number of rounds, target position). Returns the carried values, the stack and its depth.
        """
        depth, at = place
        rounds, target = ends
        body = self._sweep(numbers, [x.aval for x in invariants])
        count = len(numbers)
        primitive = Loop(body, count + len(stack) + 2, self.slots, until=True, recomputed=True)
        found = primitive(
            _number(writer, self.slots),
            at < target,
            *values,
            *stack,
            depth,
            at,
            rounds,
            target,
            *invariants,
        )
        return list(found[:count]), list(found[count : count + len(stack)]), found[-4]

    def _sweep(self, numbers: Sequence[int], invariants: Sequence[Aval]) -> Tape:
        """The round that sets a checkpoint and runs on to the next one."""
        loop = self.loop
        builder = Builder(f"sweep_{loop.body.name}")
        writer = Writer(builder)

        def given(avals: Iterable[Aval]) -> list[Node]:
            return [writer.node(builder.input(aval)) for aval in avals]

        given([INTEGER])
        values = given([loop.body.inputs[1 + k].aval for k in numbers])
        kept = [loop.body.inputs[1 + k].aval for k in self.state]
        stack = given([Aval((self.slots, *aval.shape), aval.dtype) for aval in (*kept, INTEGER)])
        depth, at, rounds, target = given([INTEGER] * 4)
        rest = given(invariants)
        state = [values[numbers.index(k)] for k in self.state]
        new = []
        for array, x in zip(stack, (*state, at), strict=True):
            new.append(SetWindow(*entry_at(0, x.shape))(array, x, depth))
        far = _advance(target + 1 - at, depth.constant(self.slots) - depth)
        after = at + far
        ends = (rounds - at, rounds - after) if loop.backwards else (after, at)
        advance = Loop(self._body(numbers), len(numbers), loop.most, loop.backwards, later=True)
        found = advance(*ends, *values, *rest)
        values = list(found) if isinstance(found, tuple) else [found]
        left = [*values, *new, depth + 1, after, after < target]
        return builder.finish([x.operand for x in left])

    def _body(self, numbers: Sequence[int]) -> Tape:
        """The body of the loop that carries these values only. Rounds that run again don't check
        the guards, which held in the first run, nor do they tell what was told."""
        body, count = self.loop.body, self.loop.carried
        outputs = [body.outputs[k] for k in numbers]
        whole = numbers is not self.state
        inputs = [body.inputs[0], *(body.inputs[1 + k] for k in numbers), *body.inputs[1 + count :]]
        return renumbered(
            replace(
                body,
                inputs=tuple(inputs),
                names=(),
                calls=body.calls if whole else tuple(map(quietly, _live(body, outputs)[0])),
                outputs=tuple(outputs),
                output_names=(),
                guards=body.guards if whole else (),
            )
        )

    # ---- backward

    def pull(
        self,
        writer: Writer,
        cts: Sequence[Node],
        outs: Sequence[Node],
        xs: Sequence[Node],
        masks: Masks,
        totals: Mapping[int, Node],
    ) -> list[Any]:
        loop = self.loop
        given = loop.given(xs)
        invariants = given[loop.carried :]
        rounds = outs[loop.carried] if loop.until else xs[0]
        left: list[Node] = list(outs[loop.carried :])  # the state, the stack and the depth
        if loop.until and self.state:
            zero = _number(writer, 0)
            state = [given[k] for k in self.state]
            state, stack, depth = self._swept(
                writer,
                self.state,
                state,
                self._begun(writer, state),
                (zero, zero),
                (rounds, rounds - 1),
                invariants,
            )
            left = [*state, *stack, depth]
        round_ = self._masked([cts[k - 1] for k in (*self.carried, *self.filled)], masks)
        reached = [self._reached(writer, x) for x in round_.captured]
        start = [cts[k - 1] for k in self.carried]
        start += [
            totals[k] if k in totals else zeros_of(writer, given[k - 1].aval) for k in self.summed
        ]
        start += left if self.state else []
        filled = [cts[k - 1] for k in self.filled]
        body = self._revolving(round_)
        primitive = Loop(body, len(start), loop.most, not loop.backwards)
        found = primitive(rounds, *start, *filled, rounds, *invariants, *reached)
        return self._contributions(found, xs, cts)

    def _revolving(self, round_: Tape) -> Tape:
        """A backward round: the derivative, then the state that the next round needs, if any."""
        loop = self.loop
        count, left = len(loop.body.inputs), len(loop.body.outputs)
        builder = Builder(f"ct_{loop.body.name}")
        writer = Writer(builder)
        env: dict[Var, Operand] = {}

        def define(variables: Iterable[Var]) -> list[Node]:
            for var in variables:
                env[var] = builder.input(var.aval)
            return [writer.node(env[var]) for var in variables]

        (step,) = define([round_.inputs[0]])
        seeds = round_.inputs[count : count + left]
        ends = count + len(self._late())
        define([seeds[k - 1] for k in self.carried])
        define(round_.inputs[count + left : ends])
        state = define([round_.inputs[1 + k] for k in self.state])
        stack = [
            writer.node(builder.input(Aval((self.slots, *aval.shape), aval.dtype)))
            for aval in (*(x.aval for x in state), INTEGER)
            if state
        ]
        depth = writer.node(builder.input(INTEGER) if state else Literal(np.int64(0)))
        define([seeds[k - 1] for k in self.filled])
        rounds = writer.node(builder.input(INTEGER))
        rest = define(round_.inputs[1 + loop.carried : count])
        define(round_.inputs[ends:])
        for seed in seeds:  # outputs without derivative: nothing reads their cotangents
            if seed not in env:
                env[seed] = zeros_of(writer, seed.aval).operand
        results = dict(zip(self.wrt, round_.outputs[left:], strict=True))
        wanted = [results[k] for k in (*self.carried, *self.summed)]
        early, late, _ = halves(round_, self._late(), left)
        acts = [out for call in late if call.primitive.checks for out in call.outs]
        for call in _live(round_, [*wanted, *acts])[0]:
            call = quietly(call) if call in early else call
            operands = [x if isinstance(x, Literal) else env[x] for x in call.operands]
            env.update(zip(call.outs, builder.again(call, operands), strict=True))
        outputs = [x if isinstance(x, Literal) else env[x] for x in wanted]

        if not state:
            return renumbered(builder.finish(outputs))
        at = rounds - 1 - step if loop.backwards else step
        top = ew.where(depth > 0, depth - 1, depth)
        *state, place = [Window(*entry_at(0, x.shape[1:]))(x, top) for x in stack]
        state, stack, depth = self._swept(
            writer, self.state, state, stack, (top, place), (rounds, at - 1), rest
        )
        outputs += [x.operand for x in (*state, *stack, depth)]
        return renumbered(builder.finish(outputs))


def _live(tape: Tape, wanted: Sequence[Operand]) -> tuple[list[Call], set[Operand]]:
    """The calls that the `wanted` values depend on, and all that these read."""
    read: set[Operand] = set(wanted)
    calls = []
    for call in reversed(tape.calls):
        if not read.isdisjoint(call.outs):
            calls.append(call)
            read.update(call.operands)
    return calls[::-1], read


def _advance(left: Node, free: Node) -> Node:
    """The number of rounds from a checkpoint to the next one. `left` is 1 more than the number of
    rounds to the first state that is needed. With the last free checkpoint, the run goes to that
    state itself.

    Let b(s, r) = C(s + r, s), and r the least with b(s, r) >= left. A number of rounds is optimal
    if b(s - 1, r - 1) to b(s - 1, r) rounds remain behind it, and b(s, r - 2) to b(s, r - 1) are
    before it.
    """
    writer = left.writer
    one = _number(writer, 1)
    more = ew.logical_and(free > 1, free + 1 < left)
    search = Loop(_SEARCH, 2, MANY, until=True)
    r, b, *_ = search(_number(writer, MANY), more, one, free + 1, free, left)
    before = ew.floor_divide(b * r, free + r)  # b(s, r - 1)
    behind = ew.floor_divide(before * free, free + r - 1)  # b(s - 1, r - 1)
    far = ew.where(before < left - behind, before, left - behind)
    return ew.where(free > 1, far, left - 1)


def _searched() -> Tape:
    """The round of the search for r: it computes b(s, r + 1) from b(s, r), and goes on while that
    is less than `left`."""
    builder = Builder("search")
    writer = Writer(builder)
    _, r, b, free, left = [writer.node(builder.input(INTEGER)) for _ in range(5)]
    r = r + 1
    b = ew.floor_divide(b * (free + r), r)
    return builder.finish([x.operand for x in (r, b, b < left)])


_SEARCH = _searched()
