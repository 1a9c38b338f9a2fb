"""Loops: the derivative of a loop is a loop over the same rounds in reverse.

    for t in range(n):                      for t in reversed(range(n)):
        h = tanh(h @ W + x[t])                  ct = ct_h * (1 - kept_h[t + 1] ** 2)
        kept_h[t + 1] = h                       ct_W += outer(kept_h[t], ct)
                                                ct_h = ct @ W.T

The derivative of a round is that of its body, a tape. The part that depends on cotangents goes into
the backward loop. That carries the cotangents of carried values; the cotangents of invariants
accumulate in place. Other values that it reads are residuals. A residual is kept in an array with
an entry for each round, or recomputed if that takes cheap elementwise arithmetic only: a linear
body keeps nothing, and the arithmetic of an integrator's step keeps its state."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tapegrad.differentiate.activity import depends_on, moving, stacked
from tapegrad.differentiate.masks import Masks, masked_in
from tapegrad.differentiate.partial_eval import halves
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Aval, Builder, Call, Literal, Operand, Tape, Var
from tapegrad.primitives.base import Elementwise, Node, Writer
from tapegrad.primitives.control import quietly
from tapegrad.primitives.kinds import ReadPart, Repeated, Unset, View
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.views import BroadcastTo
from tapegrad.primitives.windows import Empty, SetWindow, Window, entry_at

# Differentiates a round: (body, wrt, masked, onto, carried) -> tape. Its further inputs are
# cotangents of outputs, with strong zeros for `masked` (see `masks`), and sums to which those of
# `wrt[k]`, k in `onto`, are added. Inputs in `carried` change between rounds.
Derive = Callable[[Tape, Sequence[int], Collection[int], Sequence[int], Sequence[int]], Tape]

FREE = 8  # additions: cheaper calls are recomputed, and their results aren't kept


def zeros_of(writer: Writer, aval: Aval) -> Node:
    zero = writer.node(Literal(aval.dtype.type(0)))
    return zero if aval.shape == () else BroadcastTo(aval.shape)(zero)


# ---- the residuals


@dataclass(frozen=True)
class Kept:
    """An array that keeps a residual, with an entry for each round, and one for the start of a
    carried value. A `single` one is the same in all rounds, and is kept as it is."""

    value: Var  # of the body
    of: int | None  # the number of the carried value, or None
    single: bool = False

    @property
    def is_result(self) -> bool:
        """Whether the residual is a result of the loop anyway."""
        return self.single and self.of is not None

    def shape(self, most: int) -> tuple[int, ...]:
        if self.single:
            return self.value.shape
        return (most + (self.of is not None), *self.value.shape)

    def window(self, start: int) -> tuple[Any, Any]:
        """The index and the moves of a round's entry."""
        return entry_at(start, self.value.shape)


class Residuals:
    """The values of the forward round that a backward round reads: given, kept or recomputed."""

    def __init__(
        self,
        body: Tape,
        carried: int,
        backwards: bool,
        wanted: Sequence[Var],
        most: int,
        lost: Collection[Var] = (),
    ) -> None:
        """Invariants in `lost` won't be available: values read from them are kept instead."""
        self.body = body
        self.once = most == 1
        self.carried = carried
        self.backwards = backwards
        self.made = {out: call for call in body.calls for out in call.outs}
        self.given = {body.inputs[0], *body.inputs[1 + carried :]}.difference(lost)
        self.entering = {v: k for k, v in enumerate(body.inputs[1 : 1 + carried])}
        self.leaving: dict[Var, int] = {}
        for k, x in enumerate(body.outputs[:carried]):
            if isinstance(x, Var) and x in self.made:
                self.leaving.setdefault(x, k)
        moving: set[Operand] = set(body.inputs[: 1 + carried])  # values that change between rounds
        for call in body.calls:
            if not moving.isdisjoint(call.operands):
                moving.update(call.outs)
        self.steady = {out for out in self.made if self.once or out not in moving}
        self.kept: dict[Any, Kept] = {}
        self.again: set[Var] = set()
        for x in wanted:
            if not self._at_hand(x):
                self._have(x)

    def _at_hand(self, x: Operand) -> bool:
        return (
            isinstance(x, Literal)
            or x in self.given
            or x in self.again
            or self._key(x) in self.kept
        )

    def _key(self, x: Any) -> Any:
        """The key of a value's array. A carried value has one, although two rounds read it."""
        if self.once or x in self.steady:
            return x
        carried = self.entering.get(x, self.leaving.get(x))
        return x if carried is None else carried

    def _have(self, x: Var) -> None:
        """Keep a value, or keep what it is recomputed from, whichever takes less memory."""
        leaves: dict[Any, Var] = {}
        calls: set[Var] = set()
        if x not in self.entering and self._traced_back(x, leaves, calls):
            new = sum(v.aval.nbytes for v in leaves.values())
            if new <= x.aval.nbytes or not leaves:
                self.again |= calls
                for leaf in leaves.values():
                    self._keep(leaf)
                return
        y, views, best = x, {x}, x  # keep the operand of a view or a lookup, if it is smaller
        while isinstance((call := self.made.get(y)) and call.primitive, (View, ReadPart)):
            y, *steps = call.operands  # type: ignore[union-attr,assignment]
            if not isinstance(y, Var) or not all(map(self._at_hand, steps)):
                break
            if y.aval.nbytes <= best.aval.nbytes:
                best, self.again = y, self.again | views
            views.add(y)
        if not self._at_hand(best):
            self._keep(best)

    def _traced_back(self, x: Var, leaves: dict[Any, Var], calls: set[Var]) -> bool:
        """Find what a value is recomputed from. False if it can't be, or that is expensive."""
        stack = [x]
        while stack:
            v = stack.pop()
            if v in calls or self._at_hand(v):
                continue
            call = self.made.get(v)
            known = v is not x and v in self.leaving and self.leaving[v] in self.kept
            if call is None or known or not self._is_cheap(call):
                if v is x and call is not None:
                    return False
                leaves[self._key(v)] = v
                continue
            calls.update(call.outs)
            stack += [y for y in call.operands if isinstance(y, Var)]
        return True

    def _is_cheap(self, call: Call) -> bool:
        """Whether a call is recomputed instead of keeping its result. So is a loop marked to be
        recomputed, and an array that holds no more than its first entry."""
        primitive: Any = call.primitive
        if primitive.repeats:
            return bool(primitive.recomputed)
        if primitive.memory.updates:
            array = self.made.get(call.operands[0])  # type: ignore[arg-type]
            return array is not None and isinstance(array.primitive, Unset)
        return isinstance(primitive, (View, Unset, ReadPart)) or (
            isinstance(primitive, Elementwise) and int(primitive.cost) <= FREE
        )

    def _keep(self, x: Var) -> None:
        key = self._key(x)
        if isinstance(key, int):
            kept = Kept(x, key)
        else:
            of = self.leaving.get(x) if self.once else None
            kept = Kept(x, of, self.once or x in self.steady)
        self.kept.setdefault(key, kept)

    def arrays(self) -> list[Kept]:
        """The kept arrays, in order."""
        return list(self.kept.values())

    def read(self, x: Var) -> tuple[Kept, int]:
        """The array that holds a value, and its entry for round 0."""
        kept = self.kept[self._key(x)]
        if kept.of is None or kept.single:
            return kept, 0
        return kept, int((x in self.entering) == self.backwards)

    def written(self, kept: Kept) -> tuple[Operand, int]:
        """The value that a round writes to an array, and the entry that round 0 writes."""
        if kept.of is None:
            return kept.value, 0
        return self.body.outputs[kept.of], int(not self.backwards)


# ---- the forward loop, which keeps, and the backward loop


class Backward:
    """The derivative of one loop."""

    def __init__(
        self,
        call: Call,
        active: Collection[Operand],
        derive: Derive,
        changing: Collection[Operand] = (),
    ) -> None:
        """If the loop is in the body of another one, the operands in `changing` change between
        rounds of that."""
        loop: Any = call.primitive
        self.loop: Repeated = loop
        self.derive = derive
        # Arrays filled by rounds, with nothing active before: their cotangent is only read.
        given = loop.given(call.operands)
        apart = [k for k in stacked(loop) if given[k - 1] not in active]
        if loop.instead:  # its rounds don't read the carried values' starts
            apart = [*range(1, 1 + loop.carried)]
        self.wrt = moving(loop, call.operands, active, apart)
        if loop.instead:
            self.wrt = [k for k in self.wrt if k > loop.carried]
        inside = depends_on(loop.body, self.wrt)
        self.filled = [k for k in apart if loop.body.outputs[k - 1] in inside]
        self.carried = [k for k in self.wrt if k <= loop.carried]
        self.summed = [k for k in self.wrt if k > loop.carried]
        self.round = self._round(())
        left = len(loop.body.outputs)
        # Some invariants, such as the factors of a matrix, get no cotangents.
        added = dict(zip(self.wrt, self.round.outputs[left:], strict=True))
        idle = {k for k in self.summed if added[k] in self.round.inputs}
        if idle:
            self.wrt = [k for k in self.wrt if k not in idle]
            self.summed = [k for k in self.summed if k not in idle]
            self.round = self._round(())
        early, _, wanted = halves(self.round, self._late(), left)
        # The part without cotangents: the body, with inner loops that keep residuals.
        count = len(loop.body.inputs)
        self.early = replace(
            self.round,
            inputs=self.round.inputs[:count],
            names=(),
            calls=tuple(early),
            outputs=self.round.outputs[:left],
            output_names=(),
            captured=(),
        )
        reached = set(self.round.inputs[count:])  # arrays that users' rules captured
        wanted = [x for x in wanted if x not in reached]
        lost = self._lost(call, changing) - set(wanted)
        self.residuals = Residuals(
            self.early, loop.carried, loop.backwards, wanted, loop.most, lost
        )

    def _lost(self, call: Call, changing: Collection[Operand]) -> set[Var]:
        """The invariants of which all rounds read less than their size. If they change between
        rounds of the outer loop, that would have to keep them whole, for each round."""
        count = 1 + self.loop.carried
        passed = self.loop.given(call.operands)[count - 1 :]
        inputs = self.early.inputs[count:]
        read = dict.fromkeys([v for v, x in zip(inputs, passed, strict=True) if x in changing], 0)
        for inner in self.early.calls:
            for x in {x for x in inner.operands if x in read}:
                read[x] += self.loop.most * sum(out.aval.nbytes for out in inner.outs)  # type: ignore[index]
        return {x for x, nbytes in read.items() if nbytes < x.aval.nbytes}

    def _round(self, masked: Collection[int]) -> Tape:
        onto = [self.wrt.index(k) for k in self.summed]
        carried = range(1, 1 + self.loop.carried)
        return self.derive(self.loop.body, self.wrt, masked, onto, carried)

    def _late(self) -> range:
        """The numbers of the inputs that are cotangents or sums of them."""
        first = len(self.loop.body.inputs)
        return range(first, first + len(self.loop.body.outputs) + len(self.summed))

    @property
    def nbytes(self) -> int:
        """The bytes of all kept arrays."""
        return sum(
            math.prod(kept.shape(self.loop.most)) * kept.value.dtype.itemsize
            for kept in self.residuals.arrays()
            if not kept.is_result
        )

    def forward(self, builder: Builder, call: Call) -> tuple[Var, ...]:
        """Record the loop that keeps residuals. Returns its results, then the kept arrays."""
        loop = self.loop
        operands = call.operands
        heads, given, rounds = loop.heads(operands), loop.given(operands), operands[0]
        start, invariants = [*given[: loop.carried]], given[loop.carried :]
        arrays = [kept for kept in self.residuals.arrays() if not kept.is_result]
        writer = Writer(builder)
        why = f"kept for the derivative of {call.primitive}"
        writer.src, writer.reason = call.src, call.reason if call.is_cotangent else why
        for kept in arrays:
            shape = kept.shape(loop.most)
            if shape == ():
                start.append(Literal(kept.value.dtype.type(0)))
                continue
            array = writer.apply(Empty(shape, kept.value.dtype), ())
            if kept.of is not None and not kept.single:
                # A loop that counts down starts at the entry after the last round's.
                at = rounds if loop.backwards else loop.first(operands)
                index, moves = kept.window(0)
                first = writer.node(start[kept.of])
                if at is None:
                    array = SetItem(index)(array, first)
                else:
                    array = SetWindow(index, moves)(array, first, writer.node(at))
            start.append(array.operand)
        primitive = loop.changed(body=self._keeping(arrays), carried=len(start))
        outs = builder.call(primitive, [*heads, *start, *invariants], call.src, call.reason)
        count = len(start)
        return (*outs[: loop.carried], *outs[count:], *outs[loop.carried : count])

    def _keeping(self, arrays: Sequence[Kept]) -> Tape:
        """The body of the forward loop, which writes the kept arrays."""
        body = self.early
        builder = Builder.after(replace(body, names=()), self.loop.body.name)
        builder.calls = list(body.calls)
        writer = Writer(builder)
        outputs = list(body.outputs[: self.loop.carried])
        stacks = []
        for kept in arrays:
            stack = builder.fresh(Aval(kept.shape(self.loop.most), kept.value.dtype))
            stacks.append(stack)
            if kept.single:
                outputs.append(kept.value)
                continue
            value, start = self.residuals.written(kept)
            index, moves = kept.window(start)
            written = SetWindow(index, moves)(
                writer.node(stack), writer.node(value), writer.node(body.inputs[0])
            )
            outputs.append(written.operand)
        outputs += body.outputs[self.loop.carried :]
        count = 1 + self.loop.carried
        inputs = (*body.inputs[:count], *stacks, *body.inputs[count:])
        guards = self.loop.body.guards
        return renumbered(
            replace(
                body,
                name=self.loop.body.name,
                inputs=inputs,
                names=(),
                calls=tuple(builder.calls),
                outputs=tuple(outputs),
                guards=guards,
            )
        )

    def pull(
        self,
        writer: Writer,
        cts: Sequence[Node],
        outs: Sequence[Node],
        xs: Sequence[Node],
        masks: Masks,
        totals: Mapping[int, Node],
    ) -> list[Any]:
        """The cotangents of the forward loop's operands, given those of its results. For the body's
        inputs numbered in `totals` they are added to the totals."""
        loop = self.loop
        if not self.wrt:
            return self._contributions((), xs, cts)
        arrays = self.residuals.arrays()
        round_ = self._masked([cts[k - 1] for k in (*self.carried, *self.filled)], masks)
        rounds, given = xs[0], loop.given(xs)
        own = iter(outs[len(outs) - sum(not kept.is_result for kept in arrays) :])
        stacks = [outs[kept.of or 0] if kept.is_result else next(own) for kept in arrays]
        if loop.until:
            rounds = outs[loop.carried]
        invariants = given[loop.carried :]
        count = len(loop.body.inputs)
        held = round_.inputs[count + len(self._late()) :]
        reached = [self._reached(writer, x) for x in round_.captured]
        body = self._backward_body(round_, arrays, held)
        start = [cts[k - 1] for k in self.carried]
        start += [
            totals[k] if k in totals else zeros_of(writer, given[k - 1].aval) for k in self.summed
        ]
        first = [xs[1]] if loop.later else []
        filled = [cts[k - 1] for k in self.filled]
        body, passed = _with_read(body, len(start), [*filled, *stacks, *invariants, *reached])
        primitive = Loop(body, len(start), loop.most, not loop.backwards, later=loop.later)
        found = primitive(rounds, *first, *start, *passed)
        return self._contributions(found, xs, cts)

    def _contributions(self, found: Any, xs: Sequence[Node], cts: Sequence[Node]) -> list[Any]:
        """The operands' cotangents, in order, taken from the first results of the backward loop."""
        results = iter(found if isinstance(found, tuple) else (found,))
        contributions: list[Any] = [None] * len(xs)
        place = len(xs) - len(self.loop.given(xs)) - 1
        if self.loop.instead:
            contributions[place + 1 : place + 1 + self.loop.carried] = cts[: self.loop.carried]
        for k in self.carried:
            contributions[place + k] = next(results)
        for k in self.summed:
            contributions[place + k] = next(results)
        return contributions

    def _masked(self, cts: Sequence[Node], masks: Masks) -> Tape:
        """The derivative of a round that keeps strong zeros (see `masks`): those of `cts`, and
        those that follow from them in other rounds."""
        taken = [*self.carried, *self.filled]
        masked = {k for k, ct in zip(taken, cts, strict=True) if masks.is_masked(ct)}
        while True:
            numbers = [k - 1 for k in sorted(masked)]
            round_ = self._round(numbers) if numbers else self.round
            first = self._late().start
            known = masked_in(round_, [round_.inputs[first + k] for k in numbers])
            left = len(self.loop.body.outputs)
            results = dict(zip(self.wrt, round_.outputs[left:], strict=True))
            reached = {k for k in self.carried if results[k] in known}
            if reached <= masked:
                return round_
            masked |= reached

    @staticmethod
    def _reached(writer: Writer, array: Any) -> Node:
        """The outer tape's variable for an array that a user's rule captured."""
        known = writer.captured.get(id(array))
        if known is None:
            var = writer.builder.fresh(Aval(array.shape, array.dtype))
            known = writer.captured[id(array)] = (var, array)
        return writer.node(known[0])

    def _backward_body(self, round_: Tape, arrays: Sequence[Kept], held: Sequence[Var]) -> Tape:
        loop, residuals = self.loop, self.residuals
        count, left = len(loop.body.inputs), len(loop.body.outputs)
        early, late, _ = halves(round_, self._late(), left)
        builder = Builder(f"ct_{loop.body.name}")
        writer = Writer(builder)
        env: dict[Var, Operand] = {}
        # `self.early` determined what is kept; a derivative with other masks has other variables.
        pairs = zip(self.early.calls, early, strict=True)
        known = {b: a for old, new in pairs for a, b in zip(old.outs, new.outs, strict=True)}

        def define(var: Var, name: str = "") -> None:
            env[var] = builder.input(var.aval, name)

        step = round_.inputs[0]
        define(step)
        seeds = round_.inputs[count : count + left]
        for k in self.carried:
            define(seeds[k - 1])
        for var in round_.inputs[count + left : count + len(self._late())]:
            define(var)
        for k in self.filled:
            define(seeds[k - 1])
        stacks = {
            id(kept): builder.input(Aval(kept.shape(loop.most), kept.value.dtype))
            for kept in arrays
        }
        for var in (*round_.inputs[1 + loop.carried : count], *held):
            define(var)
        for seed in seeds:  # outputs without derivative: nothing reads their cotangents
            if seed not in env:
                env[seed] = zeros_of(writer, seed.aval).operand

        def value(x: Operand) -> Operand:
            if isinstance(x, Literal):
                return x
            if x not in env:
                kept, start = residuals.read(known.get(x, x))
                if kept.single:
                    env[x] = stacks[id(kept)]
                    return env[x]
                index, moves = kept.window(start)
                array = writer.node(stacks[id(kept)])
                env[x] = Window(index, moves)(array, writer.node(env[step])).operand
            return env[x]

        again = [quietly(c) for c in early if any(known[out] in residuals.again for out in c.outs)]
        for call in (*again, *late):
            writer.src = call.src
            operands = [value(x) for x in call.operands]
            env.update(zip(call.outs, builder.again(call, operands), strict=True))
        results = dict(zip(self.wrt, round_.outputs[left:], strict=True))
        outputs = [value(results[k]) for k in (*self.carried, *self.summed)]
        return renumbered(builder.finish(outputs))


def _with_read(body: Tape, carried: int, passed: Sequence[Node]) -> tuple[Tape, list[Node]]:
    """A body without the invariants that it doesn't read, and the operands for the others."""
    read = {x for call in body.calls for x in call.operands} | {*body.outputs}
    count = 1 + carried
    kept = [k for k, var in enumerate(body.inputs[count:]) if var in read]
    inputs = (*body.inputs[:count], *(body.inputs[count + k] for k in kept))
    return renumbered(replace(body, inputs=inputs, names=())), [passed[k] for k in kept]
