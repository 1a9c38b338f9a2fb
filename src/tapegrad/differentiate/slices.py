"""All rows of a tape, some at a time: a loop computes part of the rows in each round.

    A = inverse(K)                           A = inverse(K)
    P = A @ S              -->               for k in range(size // count):
    H = P * transpose(A @ transpose(P))          here = slice(k * count, (k + 1) * count)
                                                 P = A[here] @ S
                                                 H[here] = P * ...

The axes of rows are followed backwards, from results to operands. A value of which a round needs
all is computed before the loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tapegrad.ir.affine import Affine
from tapegrad.ir.tape import Aval, Builder, Call, Literal, Operand, Tape, Var
from tapegrad.primitives.base import Slice
from tapegrad.primitives.kinds import Contraction, Reduction, View
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.windows import Empty, SetWindow, Window

DEEP = 4  # sums of so few products are quick

Ways = dict[int, Sequence[int | None]]  # axis of the result -> that of each operand, or None


def in_slices(tape: Tape, size: int, kept: int, last: bool, count: int) -> Tape | None:
    """The same tape, computed in slices, whose outputs after the first `kept` have `size` rows, as
    their first axis or, if `last`, as their last. None if nothing can be computed in slices."""
    ends = tape.outputs[kept:]
    if not all(isinstance(y, Var) for y in ends):
        return None
    rows = [len(y.shape) - 1 if last else 0 for y in ends]
    needs = _Needs(tape, tape.outputs[:kept], dict(zip(ends, rows, strict=True)))
    if not needs.ways:
        return None
    builder = Builder.after(tape, tape.name)
    builder.calls = [c for c in tape.calls if not needs.whole.isdisjoint(c.outs)]
    builder.guards += tape.guards
    arrays: list[Operand] = []
    for y in ends:
        arrays += builder.call(Empty(y.shape, y.dtype), [])
    done = 0
    while done < size:  # the whole slices, then the rest
        rounds, width = max(1, (size - done) // count), min(count, size - done)
        body, given = _Round(needs, width, done).tape(tape, ends, rows)
        operands = [Literal(np.int64(rounds)), *arrays, *given]
        arrays = [*builder.call(Loop(body, len(arrays), rounds), operands)]
        done += rounds * width
    return builder.finish([*tape.outputs[:kept], *arrays], tape.captured)


class _Needs:
    """The values that are needed whole, and for values needed in slices, the axes of their
    operands."""

    def __init__(self, tape: Tape, kept: Sequence[Operand], ends: Mapping[Any, int]) -> None:
        self.whole: set[Operand] = {*kept, *[guard.operand for guard in tape.guards]}
        self.ways: dict[Var, Ways] = {}
        axes: dict[Operand, dict[int, None]] = {y: {axis: None} for y, axis in ends.items()}
        for call in reversed(tape.calls):
            out = call.outs[0]
            ways = {axis: _operands(call, axis) for x in call.outs for axis in axes.get(x, {})}
            p, again = call.primitive, _is_quick(call)  # quick calls may be computed twice
            once = out not in self.whole and len(ways) == 1
            if ways and (again or once) and None not in ways.values():
                self.ways[out] = ways  # type: ignore[assignment]
                for way in ways.values():
                    for x, axis in zip(call.operands, way or (), strict=True):
                        if axis is None:
                            self.whole.add(x)
                        else:
                            axes.setdefault(x, {})[axis] = None
            elif ways or p.checks or p.foreign:
                self.whole.update(call.outs)
            if not self.whole.isdisjoint(call.outs):
                self.whole.update(call.operands)


class _Round:
    """Builds the calls of a round."""

    def __init__(self, needs: _Needs, width: int, start: int) -> None:
        self.needs, self.width, self.start = needs, width, start
        self.builder = Builder("rows")
        self.step = self.builder.input(Aval((), np.dtype(np.int64)), "part")
        self.given: dict[Var, Var] = {}
        self.parts: dict[tuple[Operand, int], Operand] = {}

    def tape(
        self, tape: Tape, ends: Sequence[Operand], rows: Sequence[int]
    ) -> tuple[Tape, list[Var]]:
        ins = [self.builder.input(y.aval) for y in ends]
        for call in tape.calls:
            for axis, way in self.needs.ways.get(call.outs[0], {}).items():
                self.parts[call.outs[0], axis] = self._part(call, axis, way)
        done: list[Operand] = []
        for array, y, axis in zip(ins, ends, rows, strict=True):
            at, moves = self._at(y.shape, axis)
            done += self.builder.call(
                SetWindow(at, (moves,)), [array, self._read(y, axis), self.step]
            )
        body = self.builder.finish(done)
        return body, [*self.given]

    def _part(self, call: Call, axis: int, way: Sequence[int | None]) -> Operand:
        operands = [
            self._whole(x) if k is None else self._read(x, k)
            for x, k in zip(call.operands, way, strict=True)
        ]
        p = _resized(call.primitive, axis, self.width)
        (found,) = self.builder.call(p, operands, call.src, call.reason)
        return found

    def _read(self, x: Operand, axis: int) -> Operand:
        """A slice of a value along an axis."""
        if (x, axis) not in self.parts:
            at, moves = self._at(x.shape, axis)
            operands = [self._whole(x), self.step]
            (self.parts[x, axis],) = self.builder.call(Window(at, (moves,)), operands)
        return self.parts[x, axis]

    def _whole(self, x: Operand) -> Operand:
        if isinstance(x, Literal):
            return x
        if x not in self.given:
            self.given[x] = self.builder.input(x.aval)
        return self.given[x]

    def _at(self, shape: Sequence[int], axis: int) -> tuple[Any, tuple[int, ...]]:
        at = [Slice(0, n) for n in shape]
        at[axis] = Slice(self.start, self.width)
        return tuple(at), tuple([self.width * (a == axis) for a in range(len(shape))])


def _operands(call: Call, axis: int) -> Sequence[int | None] | None:
    """For each operand the axis along which a slice gives a slice of the result along `axis`; None
    for an operand that is needed whole. None if the result can't be computed in slices."""
    p: Any = call.primitive
    if len(call.outs) > 1:
        return None
    xs, ndim = call.operands, len(call.out.shape)
    if p.pointwise:
        own = [axis - ndim + len(x.shape) for x in xs]
        return [k if k >= 0 and x.shape[k] != 1 else None for k, x in zip(own, xs, strict=True)]
    if isinstance(p, Contraction):
        letter = p.terms.out[axis]
        return [term.index(letter) if letter in term else None for term in p.terms[:2]]
    if isinstance(p, Reduction) and len(xs) == 1:
        return [[a for a in range(len(xs[0].shape)) if a not in p.axes][axis]]
    if p.algebra.by_rows and axis < ndim - 1:
        return [*[None] * (len(xs) - 1), axis]
    if not isinstance(p, View) or len(xs) > 1:
        return None
    n, at = call.out.shape[axis], p.read([*map(Affine.part, range(ndim))], xs[0].shape)
    if at is None:
        return None
    own = [
        k for k, found in enumerate(at) if isinstance(found, Affine) and axis in dict(found.terms)
    ]
    if not own:
        return [None]
    whole = len(own) == 1 and at[own[0]].index == axis and xs[0].shape[own[0]] == n
    return own if whole else None


def _is_quick(call: Call) -> bool:
    """Whether a call takes a few operations for each element."""
    p: Any = call.primitive
    if isinstance(p, Contraction):
        pairs = zip(p.terms[:2], call.operands, strict=True)
        sizes = {k: n for term, x in pairs for k, n in zip(term, x.shape, strict=True)}
        return math.prod(sizes.values()) <= DEEP * max(1, call.out.aval.size)
    return p.pointwise or isinstance(p, View)


def _resized(p: Any, axis: int, width: int) -> Any:
    """The primitive for a slice of the result."""
    if not isinstance(p, View):
        return p
    for name, entry in (("shape", width), ("index", Slice(0, width))):
        if (given := getattr(p, name, None)) is not None:
            at = axis if name == "shape" else _place(given, axis)
            return p.changed(**{name: (*given[:at], entry, *given[at + 1 :])})
    return p


def _place(index: Sequence[Any], axis: int) -> int:
    """The position in an index of the entry for an axis of its result."""
    return [k for k, entry in enumerate(index) if isinstance(entry, Slice)][axis]
