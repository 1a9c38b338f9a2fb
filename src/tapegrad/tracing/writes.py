"""Arrays to which the sides of a branch write: one write of either value.

    if x[t] > 0:
        y[t] = x[t]                     v = conditional(x[t] > 0, x[t], 0.1 * x[t])
    else:                    -->        y[t] = v
        y[t] = 0.1 * x[t]

Where one side doesn't write there, it leaves what is there already. So the array itself is no
result of the conditional, and nothing of it is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tapegrad.ir.tape import Call, Operand, Source, Var
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.views import GetItem
from tapegrad.tracing.made import is_made
from tapegrad.tracing.sides import Leaf, Side
from tapegrad.tracing.tracer import ArrayTracer


@dataclass
class Write:
    """What the sides write to an array: the values of both, by the index; None where one of them
    doesn't write."""

    array: Any
    before: Operand
    values: dict[Any, list[Operand | None]]
    calls: list[Call]

    def leaves(self, trace: Any, src: Source | None) -> Iterator[tuple[Leaf, Leaf]]:
        """The values of both, where what is there already is one, too."""
        for index, values in self.values.items():
            if None in values:
                (there,) = trace.builder.call(GetItem(index), [self.before], src, trace.reason)
                values = [there if x is None else x for x in values]
            first, second = (Leaf(ArrayTracer, x.aval, x, None) for x in values if x is not None)
            yield first, second

    def put(self, trace: Any, results: Iterator[Operand], src: Source | None) -> None:
        """Write the results."""
        if is_made(self.array):
            self.array._let_be_written()
        now = self.before
        for index in self.values:
            operands = [now, next(results)]
            (now,) = trace.builder.call(SetItem(index), operands, src, trace.reason)
        if self.array._operand == self.before:  # the side that was taken doesn't write
            trace.note_write(self.array)
        self.array._operand = now
        self.array._version += 1


def read_through(side: Side) -> tuple[Side, dict[Operand, Operand]]:
    """A side in which what was written at a place isn't read there again, and what it has read
    there, by what it reads now."""
    written: dict[Operand, Call] = {}
    known: dict[Operand, Operand] = {}
    parts, calls = list(side.parts), []
    for call in side.calls:
        if not known.keys().isdisjoint(call.operands):
            call = replace(call, operands=tuple([known.get(x, x) for x in call.operands]))
        if isinstance(call.primitive, SetItem):
            written[call.out] = call
        elif isinstance(call.primitive, GetItem) and call.operands[0] in written:
            x, index = call.operands[0], call.primitive.index
            while x in written and _is_elsewhere(written[x], index):
                x = written[x].operands[0]
            if x not in written:
                parts.append(replace(call, operands=(x,)))
                continue
            if written[x].primitive.index == index:  # type: ignore[attr-defined]
                known[call.out] = written[x].operands[1]
                continue
        calls.append(call)
    guards = [replace(g, operand=known.get(g.operand, g.operand)) for g in side.guards]
    return Side(parts, calls, guards), known


def _is_elsewhere(write: Call, index: Any) -> bool:
    """Whether a write is to another element than the one that is read."""
    its, axes = write.primitive.index, len(write.out.shape)  # type: ignore[attr-defined]
    return its != index and _is_one(its, axes) and _is_one(index, axes)


def writes_of(branch: Any, sides: Sequence[Side], taken: int) -> list[Write] | None:
    """What the sides write to arrays that were there before; None where that is more than a value
    at a place, or places that may overlap. The number `taken` is that of the side which was."""
    found = []
    for at, (array, before) in branch.arrays.items():
        ends = [branch.other.written.get(at, before)] * 2
        ends[taken] = array._operand
        if ends == [before, before]:
            continue
        if is_made(array) and (array._is_handed() or not array._value.flags.writeable):
            return None
        values: dict[Any, list[Operand | None]] = {}
        calls: list[Call] = []
        for k, (side, end) in enumerate(zip(sides, ends, strict=True)):
            written = _written(side, before, end)
            if written is None:
                return None
            for call in written:
                index = call.primitive.index  # type: ignore[attr-defined]
                values.setdefault(index, [None, None])[k] = call.operands[1]
            calls += written
        if len(values) > 1 and not all(_is_one(index, array.ndim) for index in values):
            return None
        found.append(Write(array, before, values, calls))
    made = {out for write in found for call in write.calls for out in call.outs}
    for side in sides:
        rest = [call for call in side.calls if not any(call is w for x in found for w in x.calls)]
        read = [*[x for call in rest for x in call.operands], *[g.operand for g in side.guards]]
        if not made.isdisjoint(read):
            return None  # what was written is read
    return found


def _is_one(index: Sequence[Any], axes: int) -> bool:
    """Whether an index is that of one element: two of these are of one, or don't overlap."""
    return len(index) == axes and all(type(n) is int and n >= 0 for n in index)


def _written(side: Side, before: Operand, end: Operand) -> list[Call] | None:
    """The writes that make an array of what it held before, in order."""
    made = {out: call for call in side.calls for out in call.outs}
    found: list[Call] = []
    while end != before:
        call = made.get(end) if isinstance(end, Var) else None
        if call is None or not isinstance(call.primitive, SetItem):
            return None
        found.insert(0, call)
        end = call.operands[0]
    return found
