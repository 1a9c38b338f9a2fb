"""Splitting: loops over arrays in pieces become loops in which each read has one index.

                                                          u[0] = x[9] + x[0]
    for i < 10:                                           for i < 9:
        u[i] = (x[i + 9] if i < 1 | x[i - 1]) + x[i]  -->     u[i + 1] = x[i] + x[i + 1]

A loop is split where pieces begin and end, from the outside in, so a loop over rows becomes the
border rows and the loop over the others, in each of which the loop over columns is split. A value
that one iteration computes for itself is another cell in each part.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import LEFT_OUT, At, Cell, Read, in_pieces
from tapegrad.ir.changes import Changes
from tapegrad.ir.plan import Plan, walk
from tapegrad.ir.steps import Compute, Loop, Step
from tapegrad.ir.tape import Literal
from tapegrad.primitives import elementwise as ew
from tapegrad.schedule.recompute import drop_unread


def in_parts(steps: Sequence[Step]) -> Iterator[Read]:
    """All reads of pieces."""
    for step in walk(steps):
        for read in step.reads if isinstance(step, Compute) else ():
            if read.pieces or read == LEFT_OUT:
                yield read


def borders(loop: Loop) -> set[int]:
    """The iterations of a loop at which pieces begin or end."""
    found: set[int] = set()
    for read in in_parts(loop.body):
        for index, inside in (x for piece in read.pieces for x in piece.where):
            if index is loop.index and inside:
                found |= {inside.start, inside.stop}
    return found - {0, loop.index.extent}


def all_borders(step: Step, depth: int = 0) -> set[tuple[int, int]]:
    """The borders of a loop and of those inside it, each with the depth of its loop."""
    if not isinstance(step, Loop) or next(in_parts(step.body), None) is None:
        return set()
    inside = (all_borders(inner, depth + 1) for inner in step.body)
    return {(depth, border) for border in borders(step)}.union(*inside)


def regions(found: Iterable[tuple[int, int]]) -> int:
    """The number of regions into which borders divide loops."""
    return math.prod(1 + n for n in Counter(depth for depth, _ in found).values())


def split(plan: Plan) -> Plan:
    """The plan without arrays in pieces."""
    if next(in_parts(plan.steps), None) is None:
        return plan
    return drop_unread(replace(plan, steps=tuple(_Split(plan).steps(plan.steps))))


class _Split:
    def __init__(self, plan: Plan) -> None:
        # How often the plan accesses each cell, and the cells that share their memory.
        self.count = Counter(cell for step in plan.steps for cell, _, _ in step.accesses())
        self.shared = {cell.root for cell in self.count if cell.alias is not None}

    def steps(self, steps: Sequence[Step]) -> Iterator[Step]:
        for step in steps:
            yield from self.loop(step) if isinstance(step, Loop) else (_settled(step),)

    def loop(self, loop: Loop) -> Iterator[Step]:
        """The loop, or the loops over its parts."""
        if next(in_parts(loop.body), None) is None:
            yield loop
            return
        ends = [0, *sorted(borders(loop)), loop.index.extent]
        own = self.own(loop)
        for start, stop in itertools.pairwise(ends):
            index = loop.index if len(ends) == 2 else Index(stop - start)
            body = [_in_range(step, loop.index, range(start, stop)) for step in loop.body]
            if index is not loop.index:
                body = self.moved(body, loop.index, index, start, own)
            inner = tuple(self.steps(body))
            if index.extent == 1:
                yield from inner
            else:
                part = loop.part if index is loop.index else range(start, stop)
                yield replace(loop, index=index, body=inner, part=part)

    def own(self, loop: Loop) -> dict[Cell, int | None]:
        """The cells of which each iteration has an entry for itself, with the axis of this, and the
        registers that each iteration computes anew."""
        count: Counter[Cell] = Counter()
        axes: dict[Cell, set[int]] = {}
        anew: set[Cell] = set()
        mine = Affine.of(loop.index)
        for step in walk(loop.body):
            for cell, at, writes in step.own():
                count[cell] += 1
                alone = {axis for axis, k in enumerate(at or ()) if k == mine}
                if count[cell] == 1 and writes and not step.folds and cell.shape == ():
                    anew.add(cell)
                axes[cell] = axes.get(cell, alone) & alone
        return {
            cell: min(axes[cell], default=None)
            for cell, n in count.items()
            if n == self.count[cell]
            and (axes[cell] or cell in anew)
            and cell.role == "temporary"
            and not cell.stored
            and cell.alias is None
            and cell not in self.shared
        }

    def moved(
        self, body: Sequence[Step], index: Index, to: Index, start: int, own: dict[Cell, int | None]
    ) -> list[Step]:
        """The iterations from `start` on, with another index and cells of their own."""
        new: dict[Cell, Cell] = {}
        for cell, axis in own.items():
            shape = [to.extent if k == axis else n for k, n in enumerate(cell.shape)]
            new[cell] = Cell(tuple(shape), cell.dtype, hint=cell.hint, src=cell.src, axes=cell.axes)

        def place(cell: Cell, at: At) -> tuple[Cell, At]:
            if cell not in new:
                return cell, at
            axis = own[cell]
            return new[cell], tuple([Affine.of(to) if k == axis else x for k, x in enumerate(at)])

        changes = Changes(place, {index: Affine.of(to) + start})
        moved = [step.changed(changes) for step in body]
        for step in moved:
            self.count.update(cell for cell, _, _ in step.accesses() if cell in new.values())
        return moved


def _in_range(step: Step, index: Index, inside: range) -> Step:
    """A step with the pieces that hold where a loop's index is in a range."""
    if isinstance(step, Loop):
        return replace(step, body=tuple([_in_range(s, index, inside) for s in step.body]))
    if not isinstance(step, Compute) or not any(read.pieces for read in step.reads):
        return step
    return replace(step, reads=tuple([_piece(read, index, inside) for read in step.reads]))


def _settled(step: Step) -> Step:
    """A sum without the terms that are left out. Nothing reads the results of other steps with an
    operand that is nowhere, but pieces that don't hold."""
    if not isinstance(step, Compute) or LEFT_OUT not in step.reads:
        return step
    zero = Read(None, (), Literal(step.cell.dtype.type(0)))
    left = [read for read in step.reads if read != LEFT_OUT]
    return replace(step, primitive=ew.copy, reads=(left[0] if left else zero,))


def _piece(read: Read, index: Index, inside: range) -> Read:
    """What is read where an index is in a range."""
    if not read.pieces:
        return read
    return in_pieces(
        (tuple([(i, r) for i, r in piece.where if i is not index]), piece.read)
        for piece in read.pieces
        if all(inside.start in r for i, r in piece.where if i is index)
    )
