"""Short vectors that loops carry are divided into their parts, each a value of its own.

    loop(n, %u, ...)                      loop(n, %u0, %u1, ...)
        %3 = getitem(%u, 0)                   %5 = ... %u0 ... %u1
        %4 = getitem(%u, 1)      -->          %6 = ... %u0 ... %u1
        %5 = ... %3 ... %4                    %8 = add(%u0, mul(h, %5))
        %6 = ... %3 ... %4                    %9 = add(%u1, mul(h, %6))
        %7 = stack(%5, %6)                    out %8, %9
        out add(%u, mul(h, %7))

So the state of a differential equation is in registers. Its tangents are rows of directions, along
which loops are vectorised, and not vectors in memory that are written part by part and read whole.
The results are the same, bit for bit.

Arrays that rounds fill are carried with their axes in the order in which they are read afterwards:

    transpose(loop(n, x, ...: set_window(x, v)))   -->   loop(n, transpose(x), ...)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tapegrad.ir.readers import readers_of
from tapegrad.ir.tape import Builder, Call, Operand, Rewriter, Tape, Var, everywhere
from tapegrad.optimize.dce import remove_dead
from tapegrad.primitives.base import Slice
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.scatter import Stack
from tapegrad.primitives.views import GetItem, Transpose
from tapegrad.primitives.windows import SetWindow

MAX_PARTS = 8  # parts of a vector at most: an operation on the vector becomes one for each part
LONGER = 2  # the bound on the factor by which the number of calls of a round grows


@everywhere
def part_rounds(tape: Tape) -> Tape:
    """The tape whose loops carry parts of short vectors, and filled arrays in the order of their
    readers."""
    if not any(isinstance(call.primitive, Loop) for call in tape.calls):
        return tape
    return remove_dead(_in_parts(_turned(tape)))


@dataclass(frozen=True)
class _Parts:
    """A value as its entries along one axis."""

    axis: int
    entries: tuple[Operand, ...]

    @property
    def place(self) -> tuple[int, int]:
        """(axis, number of entries)."""
        return self.axis, len(self.entries)


# ---- parts


def _in_parts(tape: Tape) -> Tape:
    rewriter = Rewriter(tape)
    for call in tape.calls:
        found = (
            _split(call) if isinstance(call.primitive, Loop) and call.primitive.most > 1 else None
        )
        if found is None:
            rewriter.copy(call)
            continue
        body, places = found
        loop: Any = call.primitive
        operands = rewriter.operands(call)
        given = list(loop.given(operands))
        starts: list[Operand] = []
        for k, x in enumerate(given[: loop.carried]):
            starts += _entries(rewriter.builder, x, places[k]) if k in places else [x]
        carried = len(starts)
        outs = rewriter.builder.call(
            loop.changed(body=body, carried=carried),
            [*loop.heads(operands), *starts, *given[loop.carried :]],
            call.src,
            call.reason,
        )
        left = iter(outs)
        for k, out in enumerate(call.outs):
            if k not in places:
                rewriter.env[out] = next(left)
                continue
            axis, count = places[k]
            entries = [next(left) for _ in range(count)]
            (rewriter.env[out],) = rewriter.builder.call(
                Stack(axis), entries, call.src, call.reason
            )
    return rewriter.finish()


def _entries(builder: Builder, x: Operand, place: tuple[int, int]) -> list[Operand]:
    """The entries of a value along an axis."""
    axis, count = place
    whole: list[Any] = [Slice(0, n) for n in x.aval.shape]
    found: list[Operand] = []
    for k in range(count):
        found += builder.call(GetItem((*whole[:axis], k, *whole[axis + 1 :])), [x])
    return found


def _split(call: Call) -> tuple[Tape, dict[int, tuple[int, int]]] | None:
    """The loop's body on parts, and the (axis, count) of each carried value that is divided. None
    if the body would get too many calls, or nothing is divided."""
    loop: Any = call.primitive
    body: Tape = loop.body
    if not any(isinstance(inner.primitive, Stack) for inner in body.calls):
        return None
    places = _Round(body, loop.carried, {}).left()
    while places:
        round_ = _Round(body, loop.carried, places)
        left = round_.left()
        stay = {
            k: place for k, place in places.items()
            if left.get(k) == place and body.inputs[1 + k] not in round_.together
        }  # fmt: skip
        if stay == places:
            found = round_.finish()
            return (found, places) if len(found.calls) <= LONGER * len(body.calls) else None
        places = stay
    return None


class _Round:
    """A loop's body whose values are kept in parts, where that takes no further memory."""

    def __init__(self, body: Tape, carried: int, places: Mapping[int, tuple[int, int]]) -> None:
        self.body, self.carried, self.places = body, carried, places
        self.builder = Builder(body.name)
        self.env: dict[Operand, Operand | _Parts] = {}
        self.together: dict[Operand, Operand] = {}  # values in parts that had to be stacked
        names = body.names or ("",) * len(body.inputs)
        for k, (x, name) in enumerate(zip(body.inputs, names, strict=True), start=-1):
            if k not in places:
                self.env[x] = self.builder.input(x.aval, name)
                continue
            axis, count = places[k]
            shape = (*x.shape[:axis], *x.shape[axis + 1 :])
            entry = x.aval.with_shape(shape)
            self.env[x] = _Parts(axis, tuple([self.builder.input(entry) for _ in range(count)]))
        for call in body.calls:
            self.src = call.src, call.reason
            self._add(call)

    def left(self) -> dict[int, tuple[int, int]]:
        """The carried values that a round leaves in parts, with their (axis, count)."""
        ends = [self.env.get(x) for x in self.body.outputs[: self.carried]]
        return {k: x.place for k, x in enumerate(ends) if isinstance(x, _Parts)}

    def finish(self) -> Tape:
        outputs: list[Operand] = []
        for k, x in enumerate(self.body.outputs):
            found = self.env.get(x, x)
            if k in self.places:
                assert isinstance(found, _Parts)
                outputs += found.entries
            else:
                outputs.append(self._whole(x))
        for guard in self.body.guards:
            self.builder.guards.append(replace(guard, operand=self._whole(guard.operand)))
        return self.builder.finish(outputs, self.body.captured)

    def _whole(self, x: Operand) -> Operand:
        found = self.env.get(x, x)
        if not isinstance(found, _Parts):
            return found
        if x not in self.together:
            (self.together[x],) = self._call(Stack(found.axis), found.entries)
        return self.together[x]

    def _call(self, primitive: Any, operands: Sequence[Operand]) -> tuple[Var, ...]:
        return self.builder.call(primitive, operands, *self.src)

    def _add(self, call: Call) -> None:
        primitive: Any = call.primitive
        found: Operand | _Parts | None = None
        if isinstance(primitive, Stack):
            found = self._stacked(call)
        elif any(isinstance(self.env.get(x), _Parts) for x in call.operands):
            if primitive.pointwise:
                found = self._pointwise(call)
            elif isinstance(primitive, GetItem):
                found = self._picked(call)
            elif isinstance(primitive, Transpose):
                found = self._transposed(call)
            elif isinstance(primitive, SetWindow):
                found = self._written(call)
        if found is not None:
            self.env[call.out] = found
            return
        outs = self.builder.again(call, [self._whole(x) for x in call.operands])
        self.env.update(zip(call.outs, outs, strict=True))

    def _stacked(self, call: Call) -> _Parts | None:
        primitive: Any = call.primitive
        alike = all(x.aval.dtype == call.out.dtype for x in call.operands)
        if not alike or not 2 <= len(call.operands) <= MAX_PARTS:
            return None
        return _Parts(primitive.axis, tuple([self._whole(x) for x in call.operands]))

    def _pointwise(self, call: Call) -> _Parts | None:
        """An elementwise call, part by part, if all operands in parts are divided along the same
        axis, counted from the last."""
        ndim = len(call.out.shape)
        given = [self.env.get(x, x) for x in call.operands]
        places = {
            (ndim - len(x.aval.shape) + found.axis, len(found.entries))
            for x, found in zip(call.operands, given, strict=True)
            if isinstance(found, _Parts)
        }
        (axis, count), *others = places
        if others or call.out.shape[axis] != count or len(call.outs) != 1:
            return None
        columns = []
        for x, found in zip(call.operands, given, strict=True):
            at = axis - (ndim - len(x.aval.shape))
            if isinstance(found, _Parts):
                columns.append(list(found.entries))
            elif at < 0:  # it has only later axes
                columns.append([found] * count)
            elif x.aval.shape[at] == 1:
                columns.append(_entries(self.builder, found, (at, 1)) * count)
            else:
                columns.append(_entries(self.builder, found, (at, count)))
        each = [self._call(call.primitive, operands)[0] for operands in zip(*columns, strict=True)]
        return _Parts(axis, tuple(each))

    def _picked(self, call: Call) -> Operand | _Parts | None:
        """The result of indexing a value in parts."""
        primitive: Any = call.primitive
        index = primitive.index
        found: Any = self.env[call.operands[0]]
        here = index[found.axis]
        rest = (*index[: found.axis], *index[found.axis + 1 :])

        def of(x: Operand) -> Operand:
            whole = all(k == Slice(0, n) for k, n in zip(rest, x.aval.shape, strict=True))
            return x if whole else self._call(GetItem(rest), [x])[0]

        if isinstance(here, int):
            return of(found.entries[here])
        if here.count < 2:
            return None
        before = sum(isinstance(k, int) for k in index[: found.axis])
        chosen = [found.entries[here.start + k * here.step] for k in range(here.count)]
        return _Parts(found.axis - before, tuple(map(of, chosen)))

    def _transposed(self, call: Call) -> _Parts:
        axes = call.primitive.axes  # type: ignore[attr-defined]
        found: Any = self.env[call.operands[0]]
        rest = [a - (a > found.axis) for a in axes if a != found.axis]
        is_same = rest == sorted(rest)
        entries = [
            x if is_same else self._call(Transpose(tuple(rest)), [x])[0] for x in found.entries
        ]
        return _Parts(axes.index(found.axis), tuple(entries))

    def _written(self, call: Call) -> Operand | None:
        """A write to a window, part by part."""
        primitive: Any = call.primitive
        x, y, *steps = call.operands
        found = self.env.get(y)
        if not isinstance(found, _Parts) or isinstance(self.env.get(x), _Parts):
            return None
        index = primitive.index
        at = [k for k, entry in enumerate(index) if not isinstance(entry, int)][found.axis]
        whole = self._whole(x)
        further = [self._whole(step) for step in steps]
        for k, entry in enumerate(found.entries):
            place = index[at].start + k * index[at].step
            own = primitive.changed(index=(*index[:at], place, *index[at + 1 :]))
            (whole,) = self._call(own, [whole, entry, *further])
        return whole


# ---- the order of axes


def _turned(tape: Tape) -> Tape:
    """The tape in which arrays that rounds only write to have the axis order of their readers."""
    turns = _turns(tape)
    if not turns:
        return tape
    rewriter = Rewriter(tape)
    for call in tape.calls:
        loop: Any = call.primitive
        if isinstance(loop, Transpose) and call.operands[0] in turns:
            rewriter.env[call.out] = rewriter.operand(call.operands[0])
            continue
        here = {k: turns[out] for k, out in enumerate(call.outs) if out in turns}
        if not here:
            rewriter.copy(call)
            continue
        operands = rewriter.operands(call)
        given = list(loop.given(operands))
        for k, turn in here.items():
            (given[k],) = rewriter.builder.call(turn, [given[k]], call.src, call.reason)
        turned = loop.changed(body=_turned_body(loop.body, here))
        given = [*loop.heads(operands), *given]
        outs = rewriter.builder.call(turned, given, call.src, call.reason)
        rewriter.env.update(zip(call.outs, outs, strict=True))
    return rewriter.finish()


def _turns(tape: Tape) -> dict[Operand, Transpose]:
    """Results of loops whose rounds only write to them -> the transpose that is their only
    reader."""
    readers = readers_of(tape)
    kept = {*tape.outputs, *(guard.operand for guard in tape.guards)}
    found: dict[Operand, Transpose] = {}
    for call in tape.calls:
        if isinstance(call.primitive, Loop):
            for k, out in enumerate(call.outs[: call.primitive.carried]):
                read = [tape.calls[position].primitive for position in readers.get(out, ())]
                if len(read) != 1 or not isinstance(read[0], Transpose) or out in kept:
                    continue
                if _writes(call.primitive.body, k):
                    found[out] = read[0]
    return found


def _writes(body: Tape, k: int) -> list[Call]:
    """The writes to windows of carried value `k`, if a round does nothing else with it; otherwise
    []."""
    made: dict[Operand, Call] = {out: call for call in body.calls for out in call.outs}
    found = []
    x: Operand = body.outputs[k]
    while x in made and isinstance(made[x].primitive, SetWindow):
        found.append(made[x])
        x = made[x].operands[0]
    chain = [body.inputs[1 + k], *[call.out for call in found]]
    read = [*body.outputs, *(guard.operand for guard in body.guards)]
    for call in body.calls:
        read += call.operands
    return found if x is chain[0] and all(read.count(y) == 1 for y in chain) else []


def _turned_body(body: Tape, turns: Mapping[int, Transpose]) -> Tape:
    """The body that writes to carried arrays with reordered axes."""
    turned = {call.out: turn.axes for k, turn in turns.items() for call in _writes(body, k)}
    rewriter = Rewriter(body)
    for k, turn in turns.items():
        before, inputs = body.inputs[1 + k], rewriter.builder.inputs
        inputs[1 + k] = replace(inputs[1 + k], aval=turn.aval(before.aval))
        rewriter.env[before] = inputs[1 + k]
    for call in body.calls:
        axes = turned.get(call.out) if len(call.outs) == 1 else None
        if axes is None:
            rewriter.copy(call)
            continue
        primitive: Any = call.primitive
        x, y, *steps = rewriter.operands(call)
        index = tuple([primitive.index[a] for a in axes])
        moves = tuple([tuple([move[a] for a in axes]) for move in primitive.moves])
        slices = [a for a, k in enumerate(primitive.index) if not isinstance(k, int)]
        order = tuple([slices.index(a) for a in axes if a in slices])
        if order != tuple(range(len(order))):
            (y,) = rewriter.builder.call(Transpose(order), [y], call.src, call.reason)
        own = primitive.changed(index=index, moves=moves)
        given = [x, y, *steps]
        (rewriter.env[call.out],) = rewriter.builder.call(own, given, call.src, call.reason)
    return rewriter.finish()
