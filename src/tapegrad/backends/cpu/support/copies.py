"""Copies of panels of the second factor of a product, in the layout that blocks read: see `packed`.

Rows and columns may be windows of an array, without a constant stride. Then their offsets from the
first one are computed first, and elements next to each other are copied as vectors.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from tapegrad.backends.cpu.support.arrays import WORD
from tapegrad.backends.cpu.support.blocks import Registers
from tapegrad.backends.cpu.support.shared import REALS, shared_function
from tapegrad.backends.cpu.support.unrolled import FLAG, VOID

DEPTH = 256  # of a panel: 32 KB where vectors have 64 bytes
MOST_AXES = 16  # that windows go along


def write_places(builder: Any, ways: Any, first: Any, count: Any, found: Any) -> None:
    """Write the offsets of `count` rows (or columns) of windows, from number `first` on, to
    `found`. Each is the one before it plus one step, with digits that carry."""
    one, zero = WORD(1), WORD(0)
    ways = builder.inttoptr(ways, WORD.as_pointer())
    axes = builder.load(ways)
    digits = builder.alloca(WORD, WORD(MOST_AXES))

    def way(axis: Any) -> list[Any]:
        at = builder.shl(axis, one)
        return [builder.load(builder.gep(ways, [builder.add(at, WORD(k))])) for k in (1, 2)]

    rest, far = (cgutils.alloca_once_value(builder, x) for x in (first, zero))
    with cgutils.for_range(builder, axes) as k:
        axis = builder.sub(builder.sub(axes, one), k.index)
        extent, apart = way(axis)
        number = builder.load(rest)
        is_first = builder.icmp_signed("==", axis, zero)
        digit = builder.select(is_first, number, builder.urem(number, extent))
        builder.store(builder.udiv(number, extent), rest)
        builder.store(digit, builder.gep(digits, [axis]))
        builder.store(builder.add(builder.load(far), builder.mul(digit, apart)), far)
    last = builder.sub(axes, one)
    with cgutils.for_range(builder, count) as k:
        builder.store(builder.load(far), builder.gep(found, [k.index]))
        with cgutils.for_range(builder, axes) as back:
            axis = builder.sub(last, back.index)
            extent, apart = way(axis)
            place = builder.gep(digits, [axis])
            digit = builder.add(builder.load(place), one)
            over = builder.and_(
                builder.icmp_signed("==", digit, extent), builder.icmp_signed(">", axis, zero)
            )
            builder.store(builder.select(over, zero, digit), place)
            step = builder.select(over, builder.mul(apart, builder.sub(one, extent)), apart)
            builder.store(builder.add(builder.load(far), step), far)
            with builder.if_then(builder.not_(over)):
                back.do_break()


def copying(letter: str, *_: Any) -> Any:
    """The type of functions that copy panels.

    void copied(real *y, long apart, long between, long depth, long width, real *panel)
    """
    pointer = REALS[letter].as_pointer()
    return ir.FunctionType(VOID, [pointer, WORD, WORD, WORD, WORD, pointer])


@shared_function("copied", copying)
def copy_of_panel(
    builder: Any, args: Sequence[Any], letter: str, how: str, always: int, fills: int
) -> None:
    """A copy of a panel: of vectors along its `rows`, or along its `columns`, which are transposed,
    or of single `elements`. Where vectors don't fit, elements are copied, unless they `always` fit.
    With `fills`, all columns of the panel get numbers, even if y has fewer."""
    _Copy(builder, args, bool(fills)).write(how, bool(always))


class _Copy(Registers):
    """Writes the function that copies a panel. If y has fewer columns than the panel, its last
    column is repeated; results computed from the repeats aren't used."""

    def __init__(self, builder: Any, args: Sequence[Any], fills: bool) -> None:
        self.y, self.apart, self.between, self.depth, self.width, self.panel = args
        super().__init__(builder, self.y.type.pointee)
        self.wide = 2 * self.lanes
        self.last = builder.sub(self.width, WORD(1))
        self.filled = WORD(self.wide) if fills else self.width

    def write(self, how: str, always: bool) -> None:
        vectors = getattr(self, how)
        if always:
            vectors()
            return
        most = self.width if how == "rows" else self.depth
        least = self.wide if how == "rows" else self.lanes
        fits = self.builder.icmp_signed(">=", most, WORD(least))
        with self.builder.if_else(fits) as (then, otherwise):
            with then:
                vectors()
            with otherwise:
                self.elements()

    def rows(self) -> None:
        with cgutils.for_range(self.builder, self.depth) as p:
            row, target = (
                self.after(self.y, (p.index, self.apart)),
                self.after(self.panel, (p.index, self.wide)),
            )
            for c in (0, self.lanes):
                self.store(
                    self.load(self.after(row, (c, 1)), self.lanes), self.after(target, (c, 1))
                )

    def columns(self) -> None:
        """Copy and transpose squares of as many columns and rows as a vector has lanes. The last
        square overlaps the one before it, so that it is whole."""
        builder, lanes = self.builder, range(self.lanes)
        step, most = WORD(self.lanes), builder.sub(self.depth, WORD(self.lanes))
        slices = cgutils.for_range_slice
        with slices(builder, WORD(0), self.filled, step, WORD) as (c, _):
            columns = [self._column(builder.add(c, WORD(k))) for k in lanes]
            target = self.after(self.panel, (c, 1))
            with slices(builder, WORD(0), self.depth, step, WORD) as (p, _):
                first = self.smaller(p, most)
                found = [self.load(self.after(x, (first, 1)), self.lanes) for x in columns]
                for k, row in enumerate(self.transposed(found)):
                    at = builder.add(first, WORD(k))
                    self.store(row, self.after(target, (at, self.wide)))

    def windows(self) -> None:
        """Copy row by row, in vectors of columns that are next to each other: those of one row of
        an image. `apart` and `between` are the addresses of the rows' and the columns' offsets. A
        vector mostly covers at most two rows of an image: then it is loaded by two masks."""
        builder = self.builder
        rows, columns = self._places()
        vectors = [self._two_pieces(columns, first) for first in (0, self.lanes)]
        fit = functools.reduce(builder.and_, [fits for _, fits in vectors])
        with builder.if_else(fit) as (then, otherwise):
            with then, cgutils.for_range(builder, self.depth) as p:
                row = self.after(self.y, (self._at(rows, p.index), 1))
                into = self.after(self.panel, (p.index, self.wide))
                for k, (pieces, _) in enumerate(vectors):
                    found = None
                    for start, mask in pieces:
                        found = self.load(self.after(row, (start, 1)), self.lanes, mask, found)
                    self.store(found, self.after(into, (k * self.lanes, 1)))
            with otherwise:
                self._in_pieces(rows, columns)

    def _two_pieces(self, columns: Any, first: int) -> tuple[list[tuple[Any, Any]], Any]:
        """The two masked loads of the vector that starts at column `first`: the start and mask of
        each, and whether they cover all its columns."""
        builder, kind = self.builder, ir.VectorType(WORD, self.lanes)
        ahead = ir.Constant(kind, [WORD(k) for k in range(self.lanes)])
        here = builder.gep(columns, [WORD(first)])
        places = builder.load(builder.bitcast(here, kind.as_pointer()), align=8)
        left = self.mask(WORD(first), self.width, self.lanes)
        least, pieces = self.smaller(WORD(first), self.last), []
        for _ in range(2):
            start = builder.sub(self._at(columns, least), builder.sub(least, WORD(first)))
            along = builder.add(self.spread(start, kind), ahead)
            mask = builder.and_(left, builder.icmp_signed("==", places, along))
            pieces.append((start, mask))
            left = builder.and_(left, builder.not_(mask))
            bits = builder.bitcast(left, ir.IntType(self.lanes))
            rest = builder.zext(bits, WORD) if self.lanes < WORD.width else bits
            next_ = builder.add(builder.cttz(rest, FLAG(0)), WORD(first))
            least = self.smaller(next_, self.last)
        return pieces, builder.icmp_unsigned("==", rest, WORD(0))

    def _in_pieces(self, rows: Any, columns: Any) -> None:
        starts, firsts, masks, count = self._side_by_side(columns, self.filled, self.last)
        with cgutils.for_range(self.builder, self.depth) as p:
            row = self.after(self.y, (self._at(rows, p.index), 1))
            into = self.after(self.panel, (p.index, self.wide))
            with cgutils.for_range(self.builder, count) as k:
                start, first = (self._at(x, k.index) for x in (starts, firsts))
                found = self._some(self.after(row, (start, 1)), masks, k.index)
                # Later pieces overwrite what is stored beyond this one.
                self.store(found, self.after(into, (first, 1)))

    def turned(self) -> None:
        """The same for rows that are next to each other, for as many columns at once as vectors
        have lanes."""
        rows, columns = self._places()
        end = self.builder.sub(self.depth, WORD(1))
        starts, firsts, masks, count = self._side_by_side(rows, self.depth, end)
        step = WORD(self.lanes)
        with cgutils.for_range_slice(self.builder, WORD(0), self.filled, step, WORD) as (c, _):
            several = [
                self.smaller(self.builder.add(c, WORD(k)), self.last) for k in range(self.lanes)
            ]
            those = [self.after(self.y, (self._at(columns, k), 1)) for k in several]
            target = self.after(self.panel, (c, 1))
            with cgutils.for_range(self.builder, count) as k:
                start, first = (self._at(x, k.index) for x in (starts, firsts))
                found = [self._some(self.after(x, (start, 1)), masks, k.index) for x in those]
                into = self.after(target, (first, self.wide))
                for n, row in enumerate(self.transposed(found)):
                    self.store(row, self.after(into, (n, self.wide)))

    def _places(self) -> list[Any]:
        pointer = WORD.as_pointer()
        return [self.builder.inttoptr(x, pointer) for x in (self.apart, self.between)]

    def _at(self, places: Any, k: Any) -> Any:
        return self.builder.load(self.builder.gep(places, [k]))

    def _some(self, place: Any, masks: Any, k: Any) -> Any:
        """A vector, loaded by the k-th mask."""
        mask = self.builder.bitcast(self._at(masks, k), ir.VectorType(FLAG, self.lanes))
        return self.load(place, self.lanes, mask)

    def _side_by_side(self, places: Any, many: Any, last: Any) -> tuple[Any, ...]:
        """The runs of consecutive offsets among `many`, each of at most a vector: where they start,
        the number of their first element, a mask of their length; and the number of runs."""
        builder, one, bits = self.builder, WORD(1), ir.IntType(self.lanes)
        starts, firsts = (builder.alloca(WORD, WORD(DEPTH)) for _ in range(2))
        masks = builder.alloca(bits, WORD(DEPTH))
        count = cgutils.alloca_once_value(builder, WORD(-1))
        mask = cgutils.alloca_once_value(builder, bits(-1))
        before = cgutils.alloca_once_value(builder, WORD(-1))
        with cgutils.for_range(builder, many) as k:
            here = self._at(places, self.smaller(k.index, last))
            next_ = builder.icmp_signed("==", here, builder.add(builder.load(before), one))
            full = builder.icmp_signed("==", builder.load(mask), bits(-1))
            builder.store(here, before)
            with builder.if_then(builder.or_(full, builder.not_(next_))):
                builder.store(builder.add(builder.load(count), one), count)
                builder.store(here, builder.gep(starts, [builder.load(count)]))
                builder.store(k.index, builder.gep(firsts, [builder.load(count)]))
                builder.store(bits(0), mask)
            more = builder.or_(builder.shl(builder.load(mask), bits(1)), bits(1))
            builder.store(more, mask)
            builder.store(more, builder.gep(masks, [builder.load(count)]))
        return starts, firsts, masks, builder.add(builder.load(count), one)

    def elements(self) -> None:
        builder = self.builder
        with (
            cgutils.for_range(builder, self.depth) as p,
            cgutils.for_range(builder, self.filled) as c,
        ):
            x = builder.load(self.after(self._column(c.index), (p.index, self.apart)))
            row = self.after(self.panel, (p.index, self.wide))
            builder.store(x, self.after(row, (c.index, 1)))

    def _column(self, c: Any) -> Any:
        return self.after(self.y, (self.smaller(c, self.last), self.between))
