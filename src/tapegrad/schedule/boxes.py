"""Sums of arrays that are placed in boxes of a larger one, as in a stencil's derivative.

    y = 0                                  y[2:n - 2] = a[2:] + b[1:-1] + c[:-2]
    y[:-2] += a                            y[:2] = y[n - 2:] = 0
    y[1:-1] += b           -->             y[:2] += a[:2]
    y[2:] += c                             y[1:2] += b[:1]
                                           ...

In the *core*, the intersection of all boxes, the arrays are added up in a register, and each
element is written once. Their elements outside of the core are added to zeros, part by part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import Cell, Read
from tapegrad.ir.fold import ADD
from tapegrad.ir.steps import Compute, Step
from tapegrad.ir.tape import Call, Operand
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Slice
from tapegrad.schedule.access import at_indices, indices_for, nest, store
from tapegrad.schedule.lengths import is_length
from tapegrad.schedule.lowering import Lowering

Region = tuple[range, ...]

# The least number of boxes and of elements for which a core is worth the additional code, the least
# part of each box that it covers, and the most axes along which boxes extend beyond it. Of two
# boxes, the first is better written by the loop that computes it.
BOXES, ELEMENTS, PART, AXES = 3, 512, 0.75, 2


class Boxed(NamedTuple):
    """An array in a box. `axes` are the box's axes that the array has too; along the others the box
    has one entry."""

    region: Region
    axes: Sequence[int]
    x: Operand

    def read(self, low: Lowering, at: Sequence[Affine]) -> Read:
        """The element to be added at an index of the whole array."""
        return low.read(self.x, tuple([at[k] - self.region[k].start for k in self.axes]))


def add_boxes(low: Lowering, cell: Cell, calls: Sequence[Call]) -> bool:
    """Add up the arrays that `calls` place among zeros, if they have a core. Returns whether they
    have."""
    boxes = boxes_of(calls)
    if len(boxes) < BOXES:
        return False
    regions = [box.region for box in boxes]
    core = tuple([common(*ranges) for ranges in zip(*regions, strict=True)])
    size = size_of(core)
    larger = [k for k, r in enumerate(core) if any(len(region[k]) > len(r) for region in regions)]
    if size < max(ELEMENTS, PART * max(map(size_of, regions))) or len(larger) > AXES:
        return False
    if any(is_length(cell.shape[k], low.lengths) for k in larger):  # the core would differ
        return False
    src = calls[-1].src
    for _, part in around(tuple([range(n) for n in cell.shape]), core):
        indices, at = _elements(part)
        low.steps += nest(indices, [store(cell, at, cell.dtype.type(0), src)])
    _add_up(low, cell, core, boxes, src)
    parts = [(axis, part, box) for box in boxes for axis, part in around(box.region, core)]
    for _, part, box in sorted(parts, key=lambda found: -found[0]):  # rows of the core first
        indices, at = _elements(part)
        step = Compute(cell, at, ew.copy, (box.read(low, at),), ADD, src)
        low.steps += nest(indices, [step])
    return True


def _add_up(low: Lowering, cell: Cell, core: Region, boxes: Sequence[Boxed], src: Any) -> None:
    """Write the sums of all boxes in the core."""
    indices, at = _elements(core)
    total, *reads = (box.read(low, at) for box in boxes)
    body: list[Step] = []
    for read in reads:
        last = read is reads[-1]
        kept = cell if last else Cell(tuple(map(len, core)), cell.dtype, src=src)
        place = at if last else at_indices(indices)
        body.append(Compute(kept, place, ew.add, (total, read), src=src))
        total = Read(kept, place)
    low.steps += nest(indices, body)


def boxes_of(calls: Sequence[Call]) -> list[Boxed]:
    """The placed arrays; empty if one of them isn't in a box without gaps."""
    found = []
    for call in calls:
        primitive: Any = call.primitive
        indices = primitive.boxes(*call.operands)
        if not indices or any(isinstance(k, Slice) and k.step != 1 for i in indices for k in i):
            return []
        for index, x in zip(indices, call.operands, strict=True):
            slices = [k if isinstance(k, Slice) else Slice(k, 1) for k in index]
            region = tuple([range(k.start, k.start + k.count) for k in slices])
            axes = [axis for axis, k in enumerate(index) if isinstance(k, Slice)]
            found.append(Boxed(region, axes, x))
    return found


def common(*ranges: range) -> range:
    return range(max(r.start for r in ranges), min(r.stop for r in ranges))


def size_of(region: Region) -> int:
    return math.prod(map(len, region))


def around(region: Region, core: Region) -> Iterator[tuple[int, Region]]:
    """The parts of a region outside of the core, each with the axis along which it is outside."""
    for axis, (whole, inner) in enumerate(zip(region, core, strict=True)):
        for part in (range(whole.start, inner.start), range(inner.stop, whole.stop)):
            if part:
                yield axis, (*core[:axis], part, *region[axis + 1 :])


def _elements(region: Region) -> tuple[list[Index], tuple[Affine, ...]]:
    """Loop indices over a region, and the index of their element."""
    indices = indices_for([len(r) for r in region])
    starts = zip(indices, region, strict=True)
    return indices, tuple([Affine.of(index) + r.start for index, r in starts])
