"""A gradient within a budget of memory, in bytes.

    %2 = sin(%1)                               %2 = sin(%1)
    %3 = exp(%2)          keeps %2, %3         %3 = exp(%2)           keeps %2
    ...                                        ...
    %9 = mul(%8, %3)                -->        %7 = exp(again(%8, %2))
                                               %9 = mul(%8, %7)

Values of the forward half that the backward half reads are kept, or recomputed from kept values:
once, just before their first use, and held until their last. Two kinds of choices are tried. With a
price for each byte, the cheapest choice is a minimum cut (as in `schedule.recompute`, which chooses
among values in registers); several prices are tried. Or the forward half is divided into parts, and
the values that pass between parts are kept. The peak of memory is computed for the choices that
look best, and the fastest one that fits is taken. Remaining room is filled with the values that are
most expensive to recompute.

`again(after, x)` is the value x, available only after another value is. So the recomputed call
isn't merged with the first one.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.core.mincut import sink_side
from tapegrad.ir.tape import Builder, Call, Literal, Operand, Tape, Var
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.control import quietly
from tapegrad.primitives.kinds import Contraction, Repeated
from tapegrad.primitives.named import recompute_after
from tapegrad.primitives.views import GetItem

STEPS = 8  # prices that are tried
NEAR_LEAST = 1.25  # choices within this factor of the least rough measure are measured exactly
AGAIN = "cotangent: "  # the start of the reasons of recomputed calls


Measure = Callable[[Tape], int]  # the peak of memory of a tape, in bytes


class MemoryNeeded(Exception):
    """No choice fits: `nbytes` is the least memory that was found."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def within(tape: Tape, most: int, rough: Measure, taken: Measure) -> Tape:
    """The tape of a gradient that takes at most `most` bytes, as measured by `taken`. Raises
    `MemoryNeeded` if none is found. `rough` is a faster measure that selects the choices to measure
    exactly."""
    least = taken(tape)
    if least <= most:
        return tape
    halves = _Halves(tape)
    choices = {frozenset(kept): halves.keeping(kept) for kept in halves.choices(most)}
    size = {kept: rough(found) for kept, found in choices.items()}
    near = max(most, NEAR_LEAST * min(size.values()))
    for kept in sorted([kept for kept in choices if size[kept] <= near], key=halves.time):
        found = choices[kept]
        nbytes = taken(found)
        if nbytes <= most:
            fuller = halves.keeping(halves.filled(kept, most - nbytes))
            return fuller if taken(fuller) <= most else found
        least = min(least, nbytes)
    raise MemoryNeeded(least)


def _nbytes(kept: Collection[Var]) -> int:
    return sum(v.aval.nbytes for v in kept)


class _Halves:
    """The forward and backward halves of a tape, and the values of the first that the second
    reads."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.late: set[Operand] = set()
        self.made: dict[Operand, Call] = {}  # results of the forward half -> the call
        self.shown: dict[Operand, Operand] = {}  # view -> the value whose memory it shows
        wanted: dict[Var, None] = {}
        for call in tape.calls:
            if call.is_cotangent or not self.late.isdisjoint(call.operands):
                self.late.update(call.outs)
                wanted.update({b: None for x in call.operands for b in self.bases(x)})
                continue
            if call.primitive.memory.unset:  # an array to be filled holds no values yet
                continue
            for out in call.outs:
                self.made[out] = call
                if call.primitive.memory.is_view:
                    base = call.operands[0]
                    self.shown[out] = self.shown.get(base, base)
        self.wanted = list(wanted)

    def bases(self, x: Operand) -> Iterator[Var]:
        """The value of the forward half whose memory an operand occupies, if any."""
        x = self.shown.get(x, x)
        if x in self.made and isinstance(x, Var):
            yield x

    def needs(self, call: Call) -> list[Var]:
        return [b for x in call.operands for b in self.bases(x)]

    # ---- the kept values

    def keeping(self, kept: Collection[Var]) -> Tape:
        """The tape that keeps these values, and recomputes all others that it reads."""
        return _Rewrite(self, kept).tape()

    def choices(self, most: int) -> Iterator[set[Var]]:
        """Sets of values to keep, of about `most` bytes and less."""
        calls = self._reached(())
        low, high = 0.0, sum(map(_work, calls)) + 1.0  # at the high price the least is kept
        price = high
        for _ in range(1 + STEPS):
            kept = self._cut(calls, price)
            yield kept
            if _nbytes(kept) <= most:
                high = price
            else:
                low = price
            price = math.sqrt(low * high) if low else high / 1e3
        parts = _Parts(self, calls)
        count = 2
        while count < len(calls):
            kept = parts.between(count)
            yield kept.union(*[c.outs for c in self._reached(kept) if _runs_once(c)])
            count += max(1, count // 3)

    def time(self, kept: Collection[Var]) -> float:
        return sum(map(_work, self._reached(kept)))

    def _cut(self, calls: Collection[Call], price: float) -> set[Var]:
        """The values to keep if each byte has this price."""
        edges: list[tuple[object, object, float]] = []
        for number, call in enumerate(calls):
            edges.append(("source", number, math.inf if _runs_once(call) else _work(call)))
            edges += [(number, out, price * out.aval.nbytes) for out in call.outs]
            edges += [(x, number, math.inf) for x in self.needs(call)]
        edges += [(x, "sink", math.inf) for x in self.wanted]
        needed = sink_side(edges, "source", "sink")
        there = [call for number, call in enumerate(calls) if number not in needed]
        return {out for call in there for out in call.outs if out in needed}

    def _reached(self, kept: Collection[Var]) -> list[Call]:
        """The calls to recompute, in order, if these values are kept."""
        found: dict[Call, None] = {}
        stack = [x for x in self.wanted if x not in kept]
        while stack:
            call = self.made[stack.pop()]
            if call not in found:
                found[call] = None
                stack += [x for x in self.needs(call) if x not in kept]
        return [call for call in self.tape.calls if call in found]

    def filled(self, kept: Collection[Var], room: int) -> set[Var]:
        """The values to keep, with more of them as long as there is room, most expensive first."""
        more = set(kept)
        again = self._reached(kept)
        each = [(_work(call) / (v.aval.nbytes + 1), v) for call in again for v in call.outs]
        for _, v in sorted(each, key=lambda pair: -pair[0]):
            if v.aval.nbytes <= room and v not in self.shown:
                more.add(v)
                room -= v.aval.nbytes
        read = {x for call in self._reached(more) for x in self.needs(call)}
        return more & read.union(self.wanted)


class _Parts:
    """The forward half divided into parts of equal memory, and the values that pass between them.

    If those are kept, recomputing a value needs nothing from before its part (T. Chen et al.,
    "Training deep nets with sublinear memory cost", 2016).
    """

    def __init__(self, halves: _Halves, calls: Sequence[Call]) -> None:
        self.made: dict[Var, int] = {}
        self.until: dict[Var, int] = {}
        self.ends = [0]  # total bytes before each call
        for k, call in enumerate(calls):
            self.until.update(dict.fromkeys(halves.needs(call), k))
            own = [x for x in call.outs if x not in halves.shown]
            self.made.update(dict.fromkeys(own, k))
            self.ends.append(self.ends[-1] + _nbytes(own))
        change = [0] * (len(calls) + 1)
        for x, k in self.made.items():
            if self.until.get(x, k) > k:
                change[k] += x.aval.nbytes
                change[self.until[x]] -= x.aval.nbytes
        self.going = list(itertools.accumulate(change))  # bytes still needed after each call

    def between(self, count: int) -> set[Var]:
        """The values that pass between `count` parts, which are cut where these take least."""
        step = self.ends[-1] / count
        cuts = []
        for part in range(1, count):
            first = bisect.bisect_left(self.ends, (part - 0.5) * step) - 1
            last = bisect.bisect_right(self.ends, (part + 0.5) * step) - 1
            near = range(max(first, 0), min(last, len(self.ends) - 1))
            if near:
                cuts.append(min(near, key=self.going.__getitem__))
        return {
            x for x, k in self.made.items()
            if (at := bisect.bisect_left(cuts, k)) < len(cuts) and cuts[at] < self.until.get(x, k)
        }  # fmt: skip


def _runs_once(call: Call) -> bool:
    """Whether a call can't be recomputed: it is foreign, or has no operands that could delay it."""
    return call.primitive.foreign or not call.operands


def _work(call: Call) -> float:
    """The cost of a call, in additions."""
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
    if primitive.memory.is_view:
        return 0.0
    return size + read if not primitive.tapes else size + read + 1e3


# ---- the tape


class _Rewrite:
    """Rewrites the tape to recompute values that aren't kept."""

    def __init__(self, halves: _Halves, kept: Collection[Var]) -> None:
        self.halves = halves
        self.kept = kept
        self.builder = Builder.after(halves.tape, halves.tape.name)
        self.builder.calls = []
        self.there: dict[Operand, Operand] = {}  # value -> its recomputed variable
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
        """A value that exists just before a call of the backward half runs."""
        for x in reversed(call.operands):
            if isinstance(x, Var) and x in self.halves.late and x.aval.size:
                return x
        return Literal(np.float64(0))

    def _read(self, x: Operand, after: Operand) -> Operand:
        """The operand to read in place of a value."""
        halves = self.halves
        if x in self.there:
            return self.there[x]
        call = halves.made.get(x)
        if call is None or halves.shown.get(x, x) in self.kept:
            return x
        if call.primitive.memory.is_view and not any(halves.bases(x)):
            return x  # a view of an input or a literal
        operands = [self._read(y, after) for y in call.operands]
        if operands == [*call.operands] and not call.primitive.memory.is_view:
            operands = self._barred(operands, after)
        why = f"{AGAIN}{x} again"
        outs = self.builder.call(quietly(call).primitive, operands, call.src, why)
        self.there.update(zip(call.outs, outs, strict=True))
        return self.there[x]

    def _barred(self, operands: list[Operand], after: Operand) -> list[Operand]:
        """The operands of a recomputed call, one of which waits for `after`."""
        k = min(
            range(len(operands)), key=lambda k: (_is_number(operands[k]), operands[k].aval.size)
        )
        x = operands[k]
        key = (x, after)
        if key not in self.barred:
            why = f"{AGAIN}{x} again"
            if isinstance(after, Var) and after.shape not in ((), x.aval.shape):
                (after,) = self.builder.call(GetItem((0,) * len(after.shape)), [after], None, why)
            (self.barred[key],) = self.builder.call(recompute_after, [after, x], None, why)
        return [*operands[:k], self.barred[key], *operands[k + 1 :]]


def _is_number(x: Operand) -> bool:
    return isinstance(x, Literal)


def _of(call: Call, operands: tuple[Operand, ...]) -> Call:
    return Call(call.primitive, operands, call.outs, call.src, call.reason)
