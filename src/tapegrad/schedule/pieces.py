"""Arrays in pieces: concatenations, rolls, pads and stacks that only loops over elements read.

    %2 = getitem(%1, 9:10)
    %3 = getitem(%1, 0:9)                   %4[i] is %1[i + 9] if i < 1, else %1[i - 1]
    %4 = concatenate(%2, %3, axis=0)

They are nowhere in memory. A read of one has an index in each of its parts (`ir.cells.Piece`), and
after fusing, loops are split where these begin and end (`split.py`). So are the terms of a sum that
are placed in boxes: for each element those are added whose boxes have it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tapegrad.ir.affine import Affine
from tapegrad.ir.cells import At, Cell, Read, Where, both, in_pieces, where_in
from tapegrad.ir.readers import Readers
from tapegrad.ir.steps import Compute, Step
from tapegrad.ir.tape import Call, Literal, Operand, Var
from tapegrad.ir.updates import updated
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.kinds import Reduction, Scatter
from tapegrad.schedule.access import at_indices, indices_for, nest
from tapegrad.schedule.boxes import (
    BOXES,
    ELEMENTS,
    Boxed,
    Region,
    around,
    boxes_of,
    common,
    size_of,
)
from tapegrad.schedule.lengths import is_length
from tapegrad.schedule.lowering import Lowering, Reader
from tapegrad.schedule.windows import is_view

# The most parts of such an array, and the most regions into which their borders divide a loop nest.
# Smaller arrays are copied, which is as quick and less to compile, but for those of open lengths.
MAX_PARTS, MAX_REGIONS, SMALL_EXTENT = 4, 32, 16


@dataclass(frozen=True)
class Pieces:
    """Parts in boxes of an array that don't overlap."""

    shape: tuple[int, ...]
    parts: tuple[Boxed, ...]

    def read(self, low: Lowering, at: At) -> Read | None:
        """The element at an index. None if it isn't known where each part begins and ends."""
        parts: list[tuple[Where, Read]] = []
        for part in self.parts:
            where = self._where(low, part, at)
            if where is None:
                return None
            if all(inside for _, inside in where):
                parts.append((where, part.read(low, at)))  # type: ignore[arg-type]
        return in_pieces(parts)

    def _where(self, low: Lowering, part: Boxed, at: At) -> Where | None:
        """Where an index is in the box of a part."""
        where: Where = ()
        for k, inside, n in zip(at, part.region, self.shape, strict=True):
            if len(inside) == n:
                continue
            if not isinstance(k, Affine) or len(k.terms) > 1:
                return None
            if any(i.limit is not None or i in low.among for i, _ in k.terms):
                return None
            where = both(where, where_in(k, inside))
        return where


def find_pieces(low: Lowering) -> None:
    """Find the arrays that needn't be computed."""
    candidates = [call for call in low.tape.calls if _is_in_parts(low, call)]
    if not candidates:
        return
    readers = Readers(low.tape)
    written = {x for call in low.tape.calls for _, x, _ in updated(call)} | low.state | low.updates

    borders: dict[tuple[int, ...], list[set[int]]] = {}  # of arrays of each shape, along each axis
    for call in candidates:
        shape, parts = call.out.shape, boxes_of([call])
        if not 0 < len(parts) <= MAX_PARTS or not readers.only(call.out, _goes_through, is_view):
            continue
        bases = [_base(low, part.x) for part in parts]
        copied = 0
        for part, base in zip(parts, bases, strict=True):
            alone = base is part.x and base in low.made and low.uses[base] == 1  # type: ignore[index]
            copied += 0 if alone else size_of(part.region)
        # What is computed for the array alone is written where it belongs, unless its readers read
        # parts of the array.
        moved = 2 * copied >= call.out.aval.size or all(map(is_view, readers.of(call.out)))
        if not moved or any(base in written for base in bases):
            continue
        known = borders.setdefault(shape, [set() for _ in shape])
        further = borders_of(shape, [part.region for part in parts])
        both = [mine | more for mine, more in zip(known, further, strict=True)]
        if _may_split(low, shape, both):
            borders[shape] = both
            if call.primitive.onto == "zeros":  # type: ignore[attr-defined]
                zero = Literal(call.out.dtype.type(0))
                rest = around(tuple(map(range, shape)), parts[0].region)
                parts += [Boxed(region, (), zero) for _, region in rest]
            low.pieces[call.out] = Pieces(shape, tuple(parts))


def _is_in_parts(low: Lowering, call: Call) -> bool:
    """Whether a call fills boxes of a large array, and nothing else has been found for it."""
    primitive = call.primitive
    if not isinstance(primitive, Scatter) or primitive.onto == "first":
        return False
    x = call.out
    elsewhere = (low.sums, low.inside, low.absorbed, low.windows, low.added, low.indices)
    known = any(x in others for others in elsewhere)
    return not known and is_large(low, x.shape) and not any(low.fronts.of(x))


def is_large(low: Lowering, shape: tuple[int, ...]) -> bool:
    """Whether an array is large, or may be in another call."""
    may_be = any(n > SMALL_EXTENT and is_length(n, low.lengths) for n in shape)
    return math.prod(shape) >= ELEMENTS or (may_be and 0 not in shape)


def borders_of(shape: tuple[int, ...], regions: Iterable[Region]) -> list[set[int]]:
    """The entries along each axis at which boxes begin or end, without the ends of the axis."""
    found: list[set[int]] = [set() for _ in shape]
    for region in regions:
        for ends, inside, n in zip(found, region, shape, strict=True):
            ends |= {inside.start, inside.stop} - {0, n}
    return found


def _may_split(low: Lowering, shape: tuple[int, ...], borders: Sequence[set[int]]) -> bool:
    """Whether loops may be split at these borders: into few regions, and into parts whose lengths
    are as near to a loop's length as those of the whole, so that the code serves others."""
    for n, ends in zip(shape, borders, strict=True):
        if ends and n not in low.open and is_length(n, low.lengths):
            far = (b - a for a, b in itertools.pairwise((0, *sorted(ends), n)))
            if not all(m <= SMALL_EXTENT or is_length(m, low.lengths) for m in far):
                return False
    return math.prod(1 + len(ends) for ends in borders) <= MAX_REGIONS


def _goes_through(call: Call) -> bool:
    """Whether a call is a loop over the elements of its operands."""
    primitive = call.primitive
    boxed = isinstance(primitive, Scatter) and primitive.boxes(*call.operands)
    return bool(primitive.scalar or isinstance(primitive, Reduction) or boxed)


def _base(low: Lowering, x: Operand) -> Operand:
    """The array of which a value is a view."""
    while isinstance(x, Var) and x in low.made and is_view(low.made[x]):
        (x,) = low.made[x].operands
    return x


# ---- terms of sums


def gathered(low: Lowering, shape: tuple[int, ...], calls: Sequence[Call]) -> list[Pieces]:
    """The terms that `calls` place in boxes among zeros, those next to each other that don't
    overlap as one. Empty if they are better added one by one: if they are few, or take many
    loops."""
    if not is_large(low, shape):
        return []
    parts = [part for part in boxes_of(calls) if size_of(part.region)]
    if not _may_split(low, shape, borders_of(shape, [part.region for part in parts])):
        return []
    groups: list[list[Boxed]] = []
    for part in parts:
        if groups and all(apart(part.region, other.region) for other in groups[-1]):
            groups[-1].append(part)
        else:
            groups.append([part])
    whole = math.prod(shape)
    covered = any(sum(size_of(part.region) for part in group) == whole for group in groups)
    if len(parts) < BOXES and not covered:
        return []
    return [Pieces(shape, tuple(group)) for group in groups]


def apart(one: Region, other: Region) -> bool:
    """Whether two boxes have no element in common."""
    return not all(common(a, b) for a, b in zip(one, other, strict=True))


def add_gathered(
    low: Lowering, cell: Cell, terms: Sequence[Pieces], rest: Reader | None, src: Any
) -> bool:
    """Write the sum of such terms and of the `rest`, element by element. Returns whether the index
    of each is known."""
    indices = indices_for(cell.shape)
    at = at_indices(indices)
    reads = [] if rest is None else [rest(at)]
    for term in terms:
        if (found := term.read(low, at)) is None:
            return False
        reads.append(found)
    total, *others = reads
    body: list[Step] = []
    for read in others:
        last = read is others[-1]
        kept = cell if last else Cell(cell.shape, cell.dtype, src=src)
        body.append(Compute(kept, at, ew.add, (total, read), src=src))
        total = Read(kept, at)
    if not others:
        body.append(Compute(cell, at, ew.copy, (total,), src=src))
    low.steps += nest(indices, body)
    return True
