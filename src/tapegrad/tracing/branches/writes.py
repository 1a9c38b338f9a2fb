"""Writes of the sides of a branch to arrays, merged to one write of either value.

    if x[t] > 0:
        y[t] = x[t]              v = conditional(x[t] > 0, x[t], 0.1 * x[t])
    else:                 -->    y[t] = v
        y[t] = 0.1 * x[t]

A side without a write keeps the present elements. So the array itself is no result of the
conditional, and isn't copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from tapegrad.ir.tape import Call, Literal, Operand, Source, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.kinds import StaticIndex
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.views import GetItem
from tapegrad.primitives.windows import Moves, SetWindow, Window
from tapegrad.tracing.branches.bodies import Leaf, Side
from tapegrad.tracing.memory.created import is_created
from tapegrad.tracing.operators.integer_bounds import span_of
from tapegrad.tracing.tracers.tracer import ArrayTracer


class Place(NamedTuple):
    """The place of a read or write: an index, which moves with integer steps."""

    at: StaticIndex
    moves: Moves = ()
    steps: tuple[Operand, ...] = ()

    def settled(self, lift: Lift, condition: Operand) -> Place:
        """The place with its steps computed outside of the sides."""
        return self._replace(steps=tuple(map(lift.operand, self.steps)))

    def read(self, lift: Lift, array: Operand) -> Operand:
        primitive = Window(self.at, self.moves) if self.moves else GetItem(self.at)
        return lift.call(primitive, array, *self.steps)

    def write(self, lift: Lift, array: Operand, value: Operand) -> Operand:
        primitive = SetWindow(self.at, self.moves) if self.moves else SetItem(self.at)
        return lift.call(primitive, array, value, *self.steps)

    def is_one(self, axes: int) -> bool:
        """Whether it is one element. Two such places with the same steps are equal or disjoint,
        since a moving index doesn't count from the end."""
        indices = len(self.at) == axes and all(type(n) is int for n in self.at)
        return indices and (bool(self.moves) or all(n >= 0 for n in self.at))  # type: ignore

    def moves_as(self, other: Place) -> bool:
        return self[1:] == other[1:]

    def is_inside(self, shape: Sequence[int], lift: Lift) -> bool:
        """Whether the place is within the array, whichever side is taken."""
        for axis, (n, extent) in enumerate(zip(self.at, shape, strict=True)):
            first = n if isinstance(n, int) else n.start
            last = n if isinstance(n, int) else n.start + n.step * (n.count - 1)
            low, high = min(first, last), max(first, last)
            for step, move in zip(self.steps, self.moves, strict=True):
                if move[axis]:
                    ends = [move[axis] * end for end in lift.span(step)]
                    low, high = low + min(ends), high + max(ends)  # type: ignore[assignment]
            if not 0 <= low <= high < extent:
                return False
        return True

    def along(self, axis: int, lift: Lift) -> Operand:
        """The index of an element along an axis."""
        found: Operand = Literal(np.int64(self.at[axis]))  # type: ignore[arg-type]
        for step, move in zip(self.steps, self.moves, strict=True):
            if move[axis]:
                far = step
                if move[axis] != 1:
                    far = lift.call(ew.mul, far, Literal(np.int64(move[axis])))
                found = lift.call(ew.add, far, found) if found != _ZERO else far
        return found


class Chosen(NamedTuple):
    """One of two elements, by the side that is taken."""

    first: Place
    second: Place

    def settled(self, lift: Lift, condition: Operand) -> Place:
        places = [place.settled(lift, condition) for place in self]
        axes = range(len(self.first.at))
        pairs = [[place.along(axis, lift) for place in places] for axis in axes]
        steps = [x if x == y else lift.call(ew.where, condition, x, y) for x, y in pairs]
        moves = tuple([tuple([int(k == axis) for k in axes]) for axis in axes])
        return Place((0,) * len(axes), moves, tuple(steps))


_ZERO = Literal(np.int64(0))


@dataclass
class Lift:
    """Computes integers of the sides outside of them."""

    trace: Any
    made: Mapping[Operand, Call]  # the calls of the sides
    src: Source | None
    known: dict[Operand, Operand] = field(default_factory=dict)

    def call(self, primitive: Any, *operands: Operand) -> Operand:
        (out,) = self.trace.builder.call(primitive, operands, self.src, self.trace.reason)
        return out

    def may(self, x: Operand) -> bool:
        """Whether an integer can be computed outside of the sides."""
        call = self.made.get(x)
        return call is None or (
            call.primitive.name in _INTEGERS
            and x.dtype.kind == "i"
            and all(map(self.may, call.operands))
        )

    def operand(self, x: Operand) -> Operand:
        if x not in self.known and (call := self.made.get(x)) is not None:
            self.known[x] = self.call(call.primitive, *map(self.operand, call.operands))
        return self.known.get(x, x)

    def span(self, x: Operand) -> tuple[float, float]:
        return span_of(x, self.trace.bounds, lambda y: self.made.get(y) or self.trace.made_by(y))


_INTEGERS = ("add", "sub", "mul", "neg", "astype")


@dataclass
class Write:
    """The writes of the sides to an array: the values of both sides by place. None for a side that
    doesn't write there."""

    array: Any
    before: Operand
    values: dict[Any, list[Operand | None]]
    calls: list[Call]

    def leaves(self, lift: Lift, condition: Operand) -> Iterator[tuple[Leaf, Leaf]]:
        """The values of both sides; for a side that doesn't write, the present elements."""
        values = self.values.items()
        self.values = {place.settled(lift, condition): pair for place, pair in values}
        for place, pair in self.values.items():
            if None in pair:
                there = place.read(lift, self.before)
                pair = [there if x is None else x for x in pair]
            first, second = (Leaf(ArrayTracer, x.aval, x, None) for x in pair if x is not None)
            yield first, second

    def put(self, lift: Lift, results: Iterator[Operand]) -> None:
        """Write the merged values."""
        if is_created(self.array):
            self.array._let_be_written()
        now = self.before
        for place in self.values:
            now = place.write(lift, now, next(results))
        if self.array._operand == self.before:  # the taken side doesn't write
            lift.trace.note_write(self.array)
        self.array._operand = now
        self.array._version += 1


def _written_at(call: Call) -> Place | None:
    p = call.primitive
    if isinstance(p, SetWindow):
        return Place(p.index, p.moves, call.operands[2:])
    return Place(p.index) if isinstance(p, SetItem) else None


def _read_at(call: Call) -> Place | None:
    p = call.primitive
    if isinstance(p, Window):
        return Place(p.index, p.moves, call.operands[1:])
    return Place(p.index) if isinstance(p, GetItem) else None


def read_through(side: Side) -> tuple[Side, dict[Operand, Operand]]:
    """A side in which reads of elements that it has written are replaced by the written values; and
    the mapping from the reads to these."""
    written: dict[Operand, tuple[Call, Place]] = {}
    known: dict[Operand, Operand] = {}
    parts, calls = list(side.parts), []
    for call in side.calls:
        if not known.keys().isdisjoint(call.operands):
            call = replace(call, operands=tuple([known.get(x, x) for x in call.operands]))
        if (place := _written_at(call)) is not None:
            written[call.out] = call, place
        elif (place := _read_at(call)) is not None and call.operands[0] in written:
            x = call.operands[0]
            while x in written and _is_elsewhere(*written[x], place):
                x = written[x][0].operands[0]
            if x in written and written[x][1] == place:
                known[call.out] = written[x][0].operands[1]
                continue
            if x not in written:
                call = replace(call, operands=(x, *call.operands[1:]))
                if not place.moves:
                    parts.append(call)
                    continue
        calls.append(call)
    guards = [replace(g, operand=known.get(g.operand, g.operand)) for g in side.guards]
    return Side(parts, calls, guards), known


def _is_elsewhere(write: Call, its: Place, place: Place) -> bool:
    """Whether a write and a read are at different elements."""
    axes = len(write.out.shape)
    return its != place and its.moves_as(place) and its.is_one(axes) and place.is_one(axes)


def writes_of(branch: Any, sides: Sequence[Side], taken: int, lift: Lift) -> list[Write] | None:
    """The writes of the sides to earlier arrays. None if they are more than values at places, or
    the places may overlap. `taken` is the index of the side that was taken."""
    found = []
    for at, (array, before) in branch.arrays.items():
        ends = [branch.other.written.get(at, before)] * 2
        ends[taken] = array._operand
        if ends == [before, before]:
            continue
        if is_created(array) and (array._is_handed() or not array._value.flags.writeable):
            return None
        values: dict[Any, list[Operand | None]] = {}
        calls: list[Call] = []
        for k, (side, end) in enumerate(zip(sides, ends, strict=True)):
            written = _written(side, before, end)
            if written is None:
                return None
            for call, place in written:
                values.setdefault(place, [None, None])[k] = call.operands[1]
                calls.append(call)
        values = _apart(values, array.shape, lift)
        if not values:
            return None
        found.append(Write(array, before, values, calls))
    made = {out for write in found for call in write.calls for out in call.outs}
    for side in sides:
        rest = [call for call in side.calls if not any(call is w for x in found for w in x.calls)]
        read = [*[x for call in rest for x in call.operands], *[g.operand for g in side.guards]]
        if not made.isdisjoint(read):
            return None  # a written element is read
    return found


def _apart(
    values: dict[Any, list[Operand | None]], shape: tuple[int, ...], lift: Lift
) -> dict[Any, list[Operand | None]]:
    """The values by disjoint places, which may be read whichever side is taken; empty if that isn't
    certain. If each side writes one element, the two places become one chosen place."""
    places: list[Place] = [*values]
    if not all(lift.may(step) for place in places for step in place.steps):
        return {}
    is_one = all(place.is_one(len(shape)) for place in places)
    sides = {tuple(x is None for x in pair) for pair in values.values()}
    moves = any(place.moves for place in places)
    if moves and is_one and len(places) == 2 and sides == {(True, False), (False, True)}:
        first, second = sorted(places, key=lambda place: values[place][0] is None)
        return {Chosen(first, second): [values[first][0], values[second][1]]}
    alike = all(place.moves_as(places[0]) for place in places)
    if len(places) > 1 and not (is_one and alike):
        return {}
    reads = [place for place, pair in values.items() if None in pair and place.moves]
    return values if all(place.is_inside(shape, lift) for place in reads) else {}


def _written(side: Side, before: Operand, end: Operand) -> list[tuple[Call, Place]] | None:
    """The writes, in order, that lead from an array's former operand to its final one."""
    made = {out: call for call in side.calls for out in call.outs}
    found: list[tuple[Call, Place]] = []
    while end != before:
        call = made.get(end) if isinstance(end, Var) else None
        place = _written_at(call) if call is not None else None
        if call is None or place is None:
            return None
        found.insert(0, (call, place))
        end = call.operands[0]
    return found
