"""Arrays that grow or shrink from round to round become arrays of one shape, used in parts.

    for i in range(n):                      for i in range(n):
        y = x[:i] * w[:i]          -->          y = part(x, 0:i) * part(w, 0:i)      n elements each
        s[i] = sum(y)                           s[i] = sum(part(y, 0:i))             zeros behind i

Rounds with different shapes aren't equal calls. So axes whose extents differ among the calls of one
line are all made as long as the longest. The elements stand at the front (see `primitives.parts`).
What stands behind the front is never read: reductions and products get the neutral element there,
and writes write only the front. Derivatives don't read it either, because whatever enters such an
array (a slice, or a number that is broadcast) enters through a part. So a 0 times infinity behind
the front never spreads.

`extents` finds the axes. A call that can't be rewritten for longer arrays gets the front alone.

The new tape computes the same up to rounding, since sums include zeros. It is used only if rounds
are found in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.core.values import Span, one_type
from tapegrad.ir.tape import Aval, Call, Literal, Operand, Tape, Var
from tapegrad.optimize.extents import OUT, Extents, Line, Lines, is_elementwise, may_differ
from tapegrad.optimize.lists import with_stacks
from tapegrad.primitives.base import Primitive, Slice
from tapegrad.primitives.contractions import Einsum
from tapegrad.primitives.extrema import Max, Min
from tapegrad.primitives.kinds import Reduction
from tapegrad.primitives.parts import Part, SetPart
from tapegrad.primitives.reductions import All, ArgMax, ArgMin, CumProd, CumSum, Prod
from tapegrad.primitives.scatter import Concatenate, SetItem
from tapegrad.primitives.views import (
    BroadcastTo,
    GetItem,
    Reshape,
)


def with_parts(
    tape: Tape, constants: Mapping[Var, np.ndarray]
) -> tuple[Tape, Mapping[Var, np.ndarray]] | None:
    """The tape with arrays of one shape, and the values of its constant variables. None if no shape
    changes from round to round."""
    tape = with_stacks(tape)
    if not may_differ(tape):
        return None
    lines = Lines(tape)
    if not lines.differ():
        return None
    lines.join()
    if not lines.grown:
        return None
    rewritten = _Rewritten(tape, lines, constants)
    return rewritten.result(), {**constants, **rewritten.longer}


# ---- the calls


class _Rewritten:
    """The tape with its calls rewritten for longer arrays."""

    def __init__(self, tape: Tape, lines: Lines, constants: Mapping[Var, np.ndarray]) -> None:
        self.tape = tape
        self.constants = constants
        self.longer: dict[Var, np.ndarray] = {}  # constants that were made longer
        self.lines = lines
        self.last = tape.last
        self.calls: list[Call] = []
        # Variable -> its new operand, and the new extents of its longer axes.
        self.env: dict[Var, tuple[Operand, Extents]] = {}
        self.cut: dict[Any, Operand] = {}  # parts made of a variable, for reuse
        self.fronts: dict[Operand, tuple[Extents, Any]] = {}  # part -> (front, fill behind it)
        self.taken: dict[Operand, Any] = {}  # part -> (array, index)
        self.alike: dict[Any, Any] = {}
        self.src: Any = None

    def result(self) -> Tape:
        for line, call in zip(self.lines.line_of, self.tape.calls, strict=True):
            self.src = call.src
            shapes = [
                self.lines.extents(line, m, len(x.shape)) for m, x in enumerate(call.operands)
            ]
            out = self.lines.extents(line, OUT, len(call.outs[0].shape)) if call.outs else ()
            if not self.lines.rewrites(line) or not any(
                n is not None for extents in (*shapes, out) for n in extents
            ):
                self._copy(call)
            else:
                operands = [self._as(x, n) for x, n in zip(call.operands, shapes, strict=True)]
                found = self._rewritten(line, call, operands, shapes, out)
                self.env[call.out] = found, out
        guards = [replace(g, operand=self._plain(g.operand)) for g in self.tape.guards]
        outputs = [self._plain(x) for x in self.tape.outputs]
        return replace(
            self.tape, calls=tuple(self.calls), guards=tuple(guards), outputs=tuple(outputs)
        )

    def _copy(self, call: Call) -> None:
        operands = tuple([self._plain(x) for x in call.operands])
        same = all(x is y for x, y in zip(operands, call.operands, strict=True))
        self.calls.append(call if same else replace(call, operands=operands))
        for out in call.outs:
            self.env[out] = out, (None,) * len(out.shape)

    def _one(self, primitive: Primitive) -> Primitive:
        """One shared object for equal primitives, so that comparing rounds is quick."""
        found: Primitive = self.alike.setdefault(primitive, primitive)
        return found

    def _call(self, primitive: Primitive, *operands: Operand) -> Var:
        primitive = self._one(primitive)
        (aval,) = primitive.avals(*[x.aval for x in operands])
        self.last += 1
        out = Var(self.last, one_type(aval))
        self.calls.append(Call(primitive, operands, (out,), self.src))
        return out

    # ---- operands

    def _known(self, x: Operand) -> tuple[Operand, Extents]:
        if isinstance(x, Var) and x in self.env:
            return self.env[x]
        return x, (None,) * len(x.shape)

    def _plain(self, x: Operand) -> Operand:
        """The front of a variable alone: its value on the old tape."""
        return self._as(x, (None,) * len(x.shape))

    def _as(self, x: Operand, extents: Extents) -> Operand:
        """The new operand for a variable, with axes of these extents."""
        now, mine = self._known(x)
        sides = list(zip(x.shape, mine, extents, strict=True))
        if all(far == to or {far, to} == {None, n} for n, far, to in sides):
            return now
        if (x, extents) not in self.cut:
            if all(n is None for n in extents):
                found = self._call(GetItem(tuple([Slice(0, n) for n in x.shape])), now)
            elif isinstance(x, Var) and x in self.constants:
                ends = [n if far is None else far for n, _, far in sides]
                array = np.zeros(ends, x.dtype)
                array[tuple([slice(n) for n in x.shape])] = self.constants[x]
                self.last += 1
                found = Var(self.last, one_type(Aval(tuple(ends), x.dtype)))
                self.longer[found] = array
            else:
                index = [Slice(0, n) if far is None else Span(0, n, 1, far) for n, _, far in sides]
                found = self._call(Part(tuple(index), (), 0), now)
            self.cut[x, extents] = found
        return self.cut[x, extents]

    def _front(self, x: Operand, counts: Extents, fill: Any = 0) -> Operand:
        """The array with `fill` behind the first `counts` elements of each axis. None leaves an
        axis as it is."""
        if all(n is None for n in counts):
            return x
        known, mine = self.fronts.get(x, ((), None))
        if mine == fill and all(n is None or n == k for n, k in zip(counts, known, strict=True)):
            return x
        sides = zip(counts, x.shape, strict=True)
        index = tuple([Slice(0, far) if n is None else Span(0, n, 1, far) for n, far in sides])
        key = x, index, fill
        if key not in self.cut:
            self.cut[key] = found = self._call(Part(index, (), fill), x)
            self.fronts[found] = counts, fill
        return self.cut[key]

    # ---- what calls become

    def _rewritten(
        self,
        line: Line,
        call: Call,
        xs: list[Operand],
        extents: list[Extents],
        out: Extents,
    ) -> Operand:
        p: Any = call.primitive
        shape = tuple(
            [n if far is None else far for n, far in zip(call.out.shape, out, strict=True)]
        )
        counts = self.lines.counts(line, OUT, call.out.shape, out)
        given = [
            self.lines.counts(line, m, x.shape, e)
            for m, (x, e) in enumerate(zip(call.operands, extents, strict=True))
        ]
        if is_elementwise(p):
            over = [self._over(x, shape, counts, e) for x, e in zip(xs, extents, strict=True)]
            return self._call(p, *over)
        if isinstance(p, BroadcastTo):
            return self._over(xs[0], shape, counts, extents[0], always=True)
        if isinstance(p, (Reduction, ArgMax, ArgMin)):
            axes = p.axes if isinstance(p, Reduction) else (p.axis,)
            inside = tuple([n if a in axes else None for a, n in enumerate(given[0])])
            return self._call(p, self._front(xs[0], inside, _neutral(p, xs[0].dtype)))
        if isinstance(p, (CumSum, CumProd)):
            along = tuple([n if a == p.axis else None for a, n in enumerate(counts)])
            neutral = int(isinstance(p, CumProd))
            return self._front(self._call(p, self._front(xs[0], along, neutral)), along)
        if isinstance(p, Einsum):
            fronts = [self._front(x, n) for x, n in zip(xs, given, strict=True)]
            return self._front(self._call(p, *fronts), counts)
        if isinstance(p, Reshape):
            return self._call(Reshape(shape), xs[0])
        if isinstance(p, GetItem):
            index = self._index(p.index, out, counts)
            if not any(isinstance(k, Span) for k in index):
                return self._call(GetItem(index), xs[0])
            found = self._call(Part(index, (), 0), xs[0])
            self.taken[found] = xs[0], index
            self.fronts[found] = counts, 0
            return found
        if isinstance(p, SetItem):
            index = self._index(p.index, extents[1], given[1])
            if self.taken.get(xs[1]) == (xs[0], index):
                return xs[0]  # the part was changed in place and is written back
            whole = tuple([Slice(0, n) for n in call.out.shape])
            if p.index == whole and extents[0] == extents[1] and xs[0].aval == xs[1].aval:
                return xs[1]
            kind = SetPart(index, ()) if any(isinstance(k, Span) for k in index) else SetItem(index)
            return self._call(kind, *xs)
        if isinstance(p, Concatenate):
            return self._joined(p, xs, call, extents, shape)
        found = self._call(p, *xs)
        if xs[0] in self.fronts:  # axes are only reordered, or have extent 1 and come or go
            self.fronts[found] = counts, self.fronts[xs[0]][1]
        return found

    @staticmethod
    def _index(index: Sequence[Any], extents: Extents, counts: Extents) -> tuple[Any, ...]:
        """The index with longer axes, or with the fronts of these."""
        found: list[Any] = []
        sides = iter(zip(extents, counts, strict=True))
        for k in index:
            if isinstance(k, int):
                found.append(k)
                continue
            far, n = next(sides)
            if n is not None:
                assert far is not None
                k = Span(k.start, k.count, k.step, far)
            found.append(k)
        return tuple(found)

    def _over(
        self,
        x: Operand,
        shape: tuple[int, ...],
        counts: Extents,
        mine: Extents,
        always: bool = False,
    ) -> Operand:
        """An operand of an elementwise call. If it is broadcast along longer axes, only the front
        is filled with it: its cotangent is the sum over these elements."""
        lead = len(shape) - len(mine)
        new = tuple([None if b >= lead and mine[b - lead] else n for b, n in enumerate(counts)])
        repeated = any(n is not None for n in new)
        if not always and (not repeated or isinstance(x, Literal) or x.dtype.kind not in "fc"):
            return x
        key = x, shape, new
        if key not in self.cut:
            self.cut[key] = self._front(self._call(BroadcastTo(shape), x), new)
        return self.cut[key]

    def _joined(
        self,
        p: Concatenate,
        xs: list[Operand],
        call: Call,
        extents: list[Extents],
        shape: tuple[int, ...],
    ) -> Operand:
        """A concatenation: the arrays are written one after the other into an array of zeros."""
        total: Operand = self._call(BroadcastTo(shape), Literal(call.out.dtype.type(0)))
        at = 0
        for x, y, mine in zip(xs, call.operands, extents, strict=True):
            index: list[Any] = []
            for axis, (n, far) in enumerate(zip(y.shape, mine, strict=True)):
                start = at if axis == p.axis else 0
                index.append(Slice(start, n) if far is None else Span(start, n, 1, far))
            grown = any(isinstance(k, Span) for k in index)
            write: Any = SetPart(tuple(index), ()) if grown else SetItem(tuple(index))
            total = self._call(write, total, x)
            at += y.shape[p.axis]
        return total


def _neutral(p: Any, dtype: np.dtype) -> Any:
    """The neutral element of a reduction."""
    if isinstance(p, Prod):
        return 1
    if isinstance(p, All):
        return True
    if isinstance(p, (Max, Min, ArgMax, ArgMin)):
        least = isinstance(p, (Max, ArgMax))
        if dtype.kind == "f":
            return -math.inf if least else math.inf
        if dtype.kind == "b":
            return not least
        info = np.iinfo(dtype)
        return int(info.min if least else info.max)
    return 0
