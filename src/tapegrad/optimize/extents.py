"""Extents: axes that are longer in some calls of a program's line than in others.

The axes are found for all calls of a line at once. Axes that values pass through, from line to
line, form one *class*. If the extent differs within a class, all its axes are made as long as the
longest one. `growing` rewrites the calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tapegrad.ir.tape import Call, Tape, Var
from tapegrad.optimize.repetition import MIN_ROUNDS
from tapegrad.primitives.base import Primitive
from tapegrad.primitives.contractions import Einsum
from tapegrad.primitives.extrema import Max, Min
from tapegrad.primitives.kinds import Reduction
from tapegrad.primitives.reductions import All, Any_, ArgMax, ArgMin, CumProd, CumSum, Prod, Sum
from tapegrad.primitives.scatter import Concatenate, SetItem
from tapegrad.primitives.views import (
    BroadcastTo,
    ExpandDims,
    GetItem,
    Reshape,
    Squeeze,
    Transpose,
)

# An axis of an operand or of the result, for all calls of one line.
Node = tuple[int, int, int]  # (line, operand's number or OUT, axis)
OUT = -1

DEPTH = 2  # the number of calls through which operands are compared, to tell lines apart
Extents = tuple[int | None, ...]  # new extents of axes that are made longer; None for other axes


@dataclass
class Line:
    """The calls of one primitive, from one line of the program, on operands with the same numbers
    of axes."""

    number: int
    first: Call
    shapes: dict[tuple[tuple[int, ...], ...], Call] = field(
        default_factory=dict
    )  # shapes of operands and results -> a call that has them

    def extents(self, operand: int, axis: int) -> list[int]:
        return [shapes[operand][axis] for shapes in self.shapes]


def may_differ(tape: Tape) -> bool:
    """Whether some line may have several shapes.

    A quick test: it tells lines apart more coarsely than `Lines`, which can only find more shapes.
    """
    shapes: dict[Any, set[Any]] = {}
    for call in tape.calls:
        at = call.primitive.name, call.src and call.src.line
        shapes.setdefault(at, set()).add(tuple([x.shape for x in (*call.operands, *call.outs)]))
    return any(len(found) >= MIN_ROUNDS for found in shapes.values())


class Lines:
    """The lines of a tape, and the classes of their axes."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.line_of: list[Line] = []
        self.made: dict[int, Line] = {}  # a variable's number -> the line that defines it
        self.grown: dict[Node, int] = {}  # class -> the new extent of its axes
        self.open: set[Node] = set()  # axes that may be made longer
        self._rewrites: dict[int, bool] = {}
        self._above: dict[Node, Node] = {}
        self._extents: dict[tuple[int, int], Extents] = {}
        self._same: dict[
            tuple[int, int], list[bool]
        ] = {}  # which axes have the new extent in every call already
        known: dict[Any, Line] = {}
        kinds: dict[Any, Any] = {}
        labels: dict[Any, int] = {}
        seen: dict[int, list[int]] = {}
        for call in tape.calls:
            p: Any = call.primitive
            kind = kinds.get(id(p))
            if kind is None:
                kind = kinds[id(p)] = _kind(p)
            types = tuple([(x.dtype.num, len(x.shape)) for x in (*call.operands, *call.outs)])
            key: Any = labels.setdefault((kind, call.src, types), len(labels))
            # Several calls on one line of the program are one `Line` if they read results of equal
            # lines.
            mine = [key]
            for depth in range(DEPTH):
                read = [
                    seen[x.id][depth] if type(x) is Var and x.id in seen else -1
                    for x in call.operands
                ]
                mine.append(key := labels.setdefault((mine[0], *read), len(labels)))
            for out in call.outs:
                seen[out.id] = mine
            if isinstance(p, Einsum):  # it does the work of a product and a sum: one level less
                key = mine[-2]
            line = known.get(key)
            if line is None:
                line = known[key] = Line(len(known), call)
            line.shapes.setdefault(tuple([x.shape for x in (*call.operands, *call.outs)]), call)
            self.line_of.append(line)
            for out in call.outs:
                self.made[out.id] = line
        self.lines = list(known.values())

    def differ(self) -> bool:
        """Whether some line has several shapes."""
        return any(len(line.shapes) >= MIN_ROUNDS for line in self.lines)

    def find(self, node: Node) -> Node:
        """The representative of an axis' class (union-find)."""
        path = []
        while (above := self._above.get(node)) is not None:
            path.append(node)
            node = above
        for x in path:
            self._above[x] = node
        return node

    def unite(self, x: Node, y: Node) -> None:
        x, y = self.find(x), self.find(y)
        if x != y:
            self._above[x] = y

    def join(self) -> None:
        """Find the classes of axes, and the new extents of those that are made longer."""
        for line in self.lines:
            if not self.rewrites(line):
                continue
            for (m, a), (out, b) in _kept_axes(line):
                one, other = (line.number, m, a), (line.number, out, b)
                self.unite(one, other)
                self.open |= {one, other}
            self.open.update((line.number, m, a) for m, a in _free_axes(line))
        for line, call in zip(self.line_of, self.tape.calls, strict=True):
            for m, x in enumerate(call.operands):
                if type(x) is Var and x.id in self.made:
                    by = self.made[x.id]
                    for axis in range(len(x.shape)):
                        made, read = (by.number, OUT, axis), (line.number, m, axis)
                        if made in self.open and read in self.open:
                            self.unite(made, read)
        extents: dict[Node, set[int]] = {}
        for number, m, axis in self.open:
            line = self.lines[number]
            found = extents.setdefault(self.find((number, m, axis)), set())
            found.update(line.extents(m if m != OUT else len(line.first.operands), axis))
        self.grown = {c: max(found) for c, found in extents.items() if len(found) >= MIN_ROUNDS}

    def rewrites(self, line: Line) -> bool:
        """Whether `growing` can rewrite the calls of a line for longer arrays."""
        if line.number not in self._rewrites:
            self._rewrites[line.number] = is_rewritten(line.first.primitive) and not _is_mixed(line)
        return self._rewrites[line.number]

    def counts(self, line: Line, m: int, shape: tuple[int, ...], extents: Extents) -> Extents:
        """The numbers of elements at the front of the axes that are made longer. None for axes that
        every call of the line fills."""
        if (line.number, m) not in self._same:
            at = m if m != OUT else len(line.first.operands)
            self._same[line.number, m] = [
                set(line.extents(at, a)) == {far} for a, far in enumerate(extents)
            ]
        sides = zip(shape, extents, self._same[line.number, m], strict=True)
        return tuple([None if far is None or same else n for n, far, same in sides])

    def extents(self, line: Line, m: int, ndim: int) -> Extents:
        """The new extents of the axes of an operand or a result."""
        found = self._extents.get((line.number, m))
        if found is None:
            nodes = [(line.number, m, a) for a in range(ndim)]
            grown = [self.grown.get(self.find(x)) if x in self.open else None for x in nodes]
            found = tuple(grown)
            self._extents[line.number, m] = found
        return found


def _kind(p: Any) -> Any:
    """The primitive without its extents: equal for calls that differ in extents only."""
    if isinstance(p, (GetItem, SetItem)):
        return type(p), tuple([isinstance(k, int) or k.step for k in p.index])
    if isinstance(p, (BroadcastTo, Reshape)):
        return type(p), len(p.shape)
    return p


REWRITTEN = (
    Sum, Prod, Max, Min, Any_, All, ArgMax, ArgMin, CumSum, CumProd, Transpose,
    ExpandDims, Squeeze, BroadcastTo, Reshape, GetItem, SetItem, Einsum, Concatenate,
)  # fmt: skip


def is_rewritten(p: Primitive) -> bool:
    return (is_elementwise(p) or isinstance(p, REWRITTEN)) and p.results == 1


def is_elementwise(p: Primitive) -> bool:
    return bool(p.scalar)  # emitted as an expression of one element


def _kept_axes(line: Line) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Pairs of axes, of operands and results, that have the same extent in every call of the
    line."""
    p: Any = line.first.primitive
    xs = line.first.operands
    ndim = len(line.first.outs[0].shape) if line.first.outs else 0
    if is_elementwise(p) or isinstance(p, BroadcastTo):
        for m, x in enumerate(xs):
            for a in range(len(x.shape)):
                b = ndim - len(x.shape) + a
                if line.extents(m, a) == line.extents(len(xs), b):
                    yield (m, a), (OUT, b)
    elif isinstance(p, (Reduction, ArgMax, ArgMin)):
        axes = p.axes if isinstance(p, Reduction) else (p.axis,)
        kept = [a for a in range(len(xs[0].shape)) if a not in axes]
        yield from (((0, a), (OUT, b)) for b, a in enumerate(kept))
    elif isinstance(p, (CumSum, CumProd)):
        yield from (((0, a), (OUT, a)) for a in range(ndim))
    elif isinstance(p, Transpose):
        yield from (((0, a), (OUT, b)) for b, a in enumerate(p.axes))
    elif isinstance(p, ExpandDims):
        kept = [b for b in range(ndim) if b not in p.axes]
        yield from (((0, a), (OUT, b)) for a, b in enumerate(kept))
    elif isinstance(p, Squeeze):
        kept = [a for a in range(len(xs[0].shape)) if a not in p.axes]
        yield from (((0, a), (OUT, b)) for b, a in enumerate(kept))
    elif isinstance(p, Reshape):
        pairs = _same_axes(line)
        yield from (((0, a), (OUT, b)) for a, b in pairs or ())
    elif isinstance(p, SetItem):
        yield from (((0, a), (OUT, a)) for a in range(ndim))
    elif isinstance(p, Einsum):
        for letter in dict.fromkeys(p.terms.x + p.terms.y):
            places = zip((0, 1, OUT), p.terms, strict=True)
            first, *others = ((m, term.index(letter)) for m, term in places if letter in term)
            yield from ((first, other) for other in others)
    elif isinstance(p, Concatenate):
        for m in range(len(xs)):
            yield from (((m, a), (OUT, a)) for a in range(ndim) if a != p.axis)


def _free_axes(line: Line) -> Iterator[tuple[int, int]]:
    """The axes whose extents may vary freely: axes that are indexed, joined or reduced."""
    p: Any = line.first.primitive
    shapes = [len(x.shape) for x in line.first.operands]
    ndim = len(line.first.outs[0].shape)
    if isinstance(p, GetItem):
        yield from ((0, a) for a in range(shapes[0]))
        yield from ((OUT, a) for a in range(ndim))
    elif isinstance(p, SetItem):
        yield from ((1, a) for a in range(shapes[1]))
    elif isinstance(p, BroadcastTo):
        yield from ((OUT, a) for a in range(ndim))
    elif isinstance(p, Concatenate):
        yield from ((m, p.axis) for m in range(len(shapes)))
        yield OUT, p.axis
    elif isinstance(p, Reduction):
        yield from ((0, a) for a in p.axes)
    elif isinstance(p, (ArgMax, ArgMin)):
        yield 0, p.axis


def _is_mixed(line: Line) -> bool:
    """Whether some calls of a line broadcast an axis and others don't; or a reshape mixes axes."""
    p: Any = line.first.primitive
    if isinstance(p, Reshape):
        return _same_axes(line) is None
    if not is_elementwise(p) and not isinstance(p, BroadcastTo):
        return False
    xs, out = line.first.operands, len(line.first.operands)
    ndim = len(line.first.outs[0].shape)
    for m, x in enumerate(xs):
        for a in range(len(x.shape)):
            mine, whole = line.extents(m, a), line.extents(out, ndim - len(x.shape) + a)
            if mine != whole and set(mine) != {1}:
                return True
    return False


def _same_axes(line: Line) -> list[tuple[int, int]] | None:
    """Pairs of axes that a reshape keeps, if all its other axes have extent 1; otherwise None."""
    (n,), m = [len(x.shape) for x in line.first.operands], len(line.first.outs[0].shape)
    before = [a for a in range(n) if set(line.extents(0, a)) != {1}]
    after = [b for b in range(m) if set(line.extents(1, b)) != {1}]
    if len(before) != len(after):
        return None
    pairs = list(zip(before, after, strict=True))
    return pairs if all(line.extents(0, a) == line.extents(1, b) for a, b in pairs) else None
