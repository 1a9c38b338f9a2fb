"""Products of matrices of any size and strides.

Where the layout of y isn't the one that blocks read, or its rows are too far apart for the caches,
a panel of it is copied first: as wide as a block, and at most DEPTH deep. A column of blocks reads
the panel.

    for i in range(0, m, high):  # these rows of x, as deep as panels, stay in the second cache
        for p in range(0, k, DEPTH):
            for j in range(0, n, wide):
                panel = y[p : p + DEPTH, j : j + wide]
                out[i : i + high, j : j + wide] += x[i : i + high, p : p + DEPTH] @ panel

The rows and columns of y may be windows of an array, which are copied panel by panel.

One function serves all products: shapes and strides are its arguments, and so are the functions
that copy and compute. Only the functions that are needed are compiled.

The terms of each number are added up in registers, in order, DEPTH at a time, and these sums are
then added to the number. That holds for all ways of computing a product, here and in `unrolled`. So
a row has the same bits however many rows are computed with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from tapegrad.backends.cpu.support.arrays import WORD, FixedArray, are_windows, is_open, word
from tapegrad.backends.cpu.support.blocks import (
    Registers,
    block_columns,
    block_rows,
    block_type,
    block_vectors,
    column_of_blocks,
)
from tapegrad.backends.cpu.support.copies import DEPTH, copy_of_panel, copying, write_places
from tapegrad.backends.cpu.support.shared import REALS, letter_of, shared_function
from tapegrad.backends.cpu.support.unrolled import FLAG, VOID

# Bytes of x that each panel reads again, from the second cache.
PART = 2**19
# Copying y doesn't pay for at most this many rows of x, nor where a panel of y spans at most this
# many bytes.
FEW_ROWS, NEAR = 32, 2**18


def packed_product(
    builder: Any, kinds: Sequence[FixedArray], arrays: Any, adds: bool, sizes: Any = None
) -> None:
    """out = x @ y, or out += x @ y, for three matrices; with `sizes`, for this many rows, columns
    and terms at the front. Products of matrices of the same types share a function."""
    given = [*arrays, *(sizes or ())]
    known = [getattr(size, "constant", None) for size in sizes or ()]
    name = f"product {kinds} {adds} {known}"
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(VOID, [x.type for x in given])
        function = ir.Function(builder.module, kind, name)
        function.linkage = "internal"
        inside = ir.IRBuilder(function.append_basic_block())
        _write(inside, kinds, function.args[:3], adds, function.args[3:], known)
        inside.ret_void()
    else:
        function.attributes.add("noinline")  # a single call is inlined
    builder.call(function, given)


def _write(
    builder: Any,
    kinds: Sequence[FixedArray],
    arrays: Any,
    adds: bool,
    sizes: Sequence[Any],
    known: Sequence[int | None],
) -> None:
    x, y, out = kinds
    left, right, found = arrays
    if not sizes:
        extents = [*out.shape, x.shape[1]]
        known = [None if is_open(extent) else extent for extent in extents]
        sizes = [word(builder, extent) for extent in extents]
    rows = None if is_open(out.shape[0]) else out.shape[0]
    strides = *x.strides, *y.strides, *out.strides
    if out.strides[1] != 1 == out.strides[0] and not are_windows(y):  # out.T = y.T @ x.T
        left, right = right, left
        (m, n, k), (height, width, depth) = known, sizes
        known, sizes = [n, m, k], [width, height, depth]
        rows = None if is_open(out.shape[1]) else out.shape[1]
        strides = *y.strides[::-1], *x.strides[::-1], *out.strides[::-1]
    _Product(builder, (left, right, found), known, strides, rows).call(sizes, adds)


class _Product:
    """A product, with what is known while code is written: its extents m, n and k, or None; the
    strides of x, y and out; and the largest number of rows, or None."""

    def __init__(
        self,
        builder: Any,
        arrays: Sequence[Any],
        known: Sequence[int | None],
        strides: Sequence[Any],
        rows: int | None,
    ) -> None:
        self.builder, self.arrays, self.strides = builder, arrays, strides
        self.m, self.n, self.k = known
        real = arrays[0].type.pointee
        registers = Registers(builder, real)
        self.letter = letter_of(real)
        self.lanes, self.size = registers.lanes, registers.size
        self.rows = block_rows(rows)
        self.deep = DEPTH if self.k is None else max(1, min(self.k, DEPTH))
        self.windows = any(isinstance(step, tuple) for step in strides[2:4])
        self.in_place = not self.windows and self._in_place()
        self.wide = self.lanes * (block_vectors(self.rows) if self.in_place else 2)

    def _in_place(self) -> bool:
        """Whether y is read without a copy."""
        _, _, apart, between, _, _ = self.strides
        if self.n is None or between != 1 or is_open(apart):
            return False
        few = self.m is not None and self.m <= FEW_ROWS
        return few or self.deep * apart * self.size <= NEAR

    def call(self, sizes: Sequence[Any], adds: bool) -> None:
        """Emit the product, with these sizes."""
        high = max(1, PART // (self.deep * self.size * self.rows)) * self.rows
        beside = self.strides[5]
        at_once = len(self._parts()) == 1 if self.m is None else self.m <= high
        if self.in_place and at_once and beside == 1:
            self._panels(sizes, adds)
            return
        builder, n, wide = self.builder, self.n, self.wide
        edge = 0 if n is None else n % wide
        last = self._blocks(edge) if edge else self._blocks(wide)
        full = last if n is not None and n < wide else self._blocks(wide)
        copy = copy_last = ir.Constant(copying(self.letter).as_pointer(), None)
        if not self.in_place:
            copy = copy_last = self._copy()
        if self.strides[3] == 1 and edge:  # blocks of the edge read no further than its columns
            copy_last = ir.Constant(copy.type, None)
        aside = int(n is None or beside != 1)
        function = product_of_panels(builder.module, self.letter, aside, int(self.windows))
        strides = [word(builder, n) for n in self.strides if not isinstance(n, tuple)]
        if self.windows:
            strides[2:-2] = [self._ways(n) for n in self.strides[2:4]]
        numbers = [*strides, *[word(builder, n) for n in (self.rows, high, wide, edge)]]
        given = [*self.arrays, *sizes, *numbers, full, last, copy, copy_last, FLAG(adds)]
        builder.call(function, given)

    def _windows(self) -> str:
        """The method that copies windows: vectors along the columns that are next to each other, or
        along the rows, if more of them are."""
        rows, columns = (
            stride[-1] if isinstance(stride, tuple) else (DEPTH, stride)
            for stride in self.strides[2:4]
        )
        if rows[1] == 1 and (columns[1] != 1 or rows[0] > columns[0]):
            return "turned"
        return "windows"

    def _ways(self, stride: Any) -> Any:
        """The address of the description of windows along an axis: the number of axes of their
        array, and the extent and stride of each."""
        ways = stride if isinstance(stride, tuple) else ((1, stride),)
        words = [len(ways), *itertools.chain.from_iterable(ways)]
        place = cgutils.alloca_once(self.builder, WORD, len(words))
        for k, n in enumerate(words):
            self.builder.store(word(self.builder, n), self.builder.gep(place, [WORD(k)]))
        return self.builder.ptrtoint(place, WORD)

    def _panels(self, sizes: Sequence[Any], adds: bool) -> None:
        """A product without copies, that reads x only once from the second cache."""
        builder = self.builder
        down, along, apart, _, below, _ = [word(builder, n) for n in self.strides]
        rows, _, depth = sizes
        left, right, target = self.arrays
        registers = Registers(builder, left.type.pointee)

        def add(p: Any, deep: Any, adds: Any) -> None:
            x, y = registers.after(left, (p, along)), registers.after(right, (p, apart))
            for first, times, width in self._parts():
                numbers = [down, along, apart, below, deep, rows, WORD(width), adds]
                with cgutils.for_range(builder, WORD(times)) as loop:
                    j = builder.add(builder.mul(loop.index, WORD(width)), WORD(first))
                    places = [builder.gep(z, [j], inbounds=True) for z in (y, target)]
                    builder.call(self._blocks(width), [x, *places, *numbers])

        if self.k is not None and self.k <= DEPTH:
            add(WORD(0), depth, FLAG(adds))
            return
        # The product is also written if there are no terms.
        terms = registers.larger(depth, WORD(1))
        with cgutils.for_range_slice(builder, WORD(0), terms, WORD(DEPTH), WORD) as (p, _):
            deep = registers.smaller(builder.sub(depth, p), WORD(DEPTH))
            add(p, deep, builder.or_(FLAG(adds), builder.icmp_signed(">", p, WORD(0))))

    def _parts(self) -> list[tuple[int, int, int]]:
        """The columns of whole blocks, and the remaining ones: the first column, the number of
        blocks, and their width."""
        if self.n is None:
            return []
        whole, left = divmod(self.n, self.wide)
        parts = [(0, whole, self.wide), (whole * self.wide, 1, left)]
        return [(first, times, width) for first, times, width in parts if times and width]

    def _blocks(self, width: int) -> Any:
        columns = block_columns(width, self.lanes)
        return column_of_blocks(self.builder.module, self.letter, self.rows, columns)

    def _copy(self) -> Any:
        """The function that copies panels."""
        apart, between = self.strides[2:4]
        if self.windows:
            how, always = self._windows(), True
        elif between == 1:
            how, always = "rows", self.n is not None
        elif apart == 1:
            how, always = "columns", self.k is not None and not 0 < self.k % DEPTH < self.lanes
        else:
            how, always = "elements", True
        fills = self.n is None
        return copy_of_panel(self.builder.module, self.letter, how, int(always), int(fills))


# ---- the loops over panels


def _product_type(letter: str, *_: Any) -> Any:
    """The type of functions of products.

    void product(real *x, real *y, real *out, long m, long n, long k, long down, long along,
                 long apart, long between, long below, long beside, long rows, long high, long wide,
                 long edge, blocks *full, blocks *last, copied *copy, copied *copy_last, bool adds)
    """
    pointer = REALS[letter].as_pointer()
    block, copy = block_type(letter).as_pointer(), copying(letter).as_pointer()
    return ir.FunctionType(VOID, [pointer] * 3 + [WORD] * 13 + [block] * 2 + [copy] * 2 + [FLAG])


@shared_function("product", _product_type)
def product_of_panels(
    builder: Any, args: Sequence[Any], letter: str, aside: int, windows: int
) -> None:
    """A product, in panels.

    `aside` tells whether the function can compute blocks in scratch memory. With `windows`, `apart`
    and `between` are the addresses of the descriptions of windows.

    `full` and `last` compute blocks of width `wide`, and the last ones of a row, of width `edge`.
    If the edge isn't known it is 0, and the last blocks are `wide`, too. `copy` and `copy_last`
    copy their panels; they are null where y is read in place.
    """
    _Panels(builder, args, bool(aside), bool(windows)).write()


class _Panels(Registers):
    """Writes the function of products."""

    def __init__(self, builder: Any, args: Sequence[Any], aside: bool, windows: bool) -> None:
        self.x, self.y, self.out, self.m, self.n, self.k = args[:6]
        self.down, self.along, self.apart, self.between, self.below, self.beside = args[6:12]
        self.rows, self.high, self.wide, self.edge = args[12:16]
        self.full, self.last, self.copy, self.copy_last, self.adds = args[16:]
        super().__init__(builder, self.x.type.pointee)
        self.aside, self.windows = aside, windows

    def write(self) -> None:
        builder = self.builder
        # Windows are copied in whole vectors, beyond the end of the panel.
        self.panel = self._memory(2 * (DEPTH + self.lanes * self.windows))
        if self.aside:
            self.block = self._memory(16)
        if self.windows:
            self.places = [builder.alloca(WORD, WORD(n)) for n in (DEPTH, 2 * self.lanes)]
        for_slices = cgutils.for_range_slice
        with for_slices(builder, WORD(0), self.m, self.high, WORD) as (i, _):
            height = self.smaller(builder.sub(self.m, i), self.high)
            # The product is also written if there are no terms.
            terms = self.larger(self.k, WORD(1))
            with for_slices(builder, WORD(0), terms, WORD(DEPTH), WORD) as (p, _):
                depth = self.smaller(builder.sub(self.k, p), WORD(DEPTH))
                left = self.after(self.after(self.x, (i, self.down)), (p, self.along))
                right = self.y if self.windows else self.after(self.y, (p, self.apart))
                if self.windows:
                    self._find(0, self.apart, p, depth)
                target = self.after(self.out, (i, self.below))
                adds = builder.or_(self.adds, builder.icmp_signed(">", p, WORD(0)))
                with for_slices(builder, WORD(0), self.n, self.wide, WORD) as (j, _):
                    places = (
                        left,
                        right if self.windows else self.after(right, (j, self.between)),
                        self.after(target, (j, self.beside)),
                    )
                    self._panel(places, j, height, depth, adds)

    def _memory(self, vectors: int) -> Any:
        place = self.builder.alloca(self.real, WORD(vectors * self.lanes))
        place.align = 64
        return place

    def _find(self, k: int, ways: Any, first: Any, count: Any) -> None:
        """Compute the offsets of `count` rows of windows, or of columns."""
        builder = self.builder
        function = builder.module.globals.get("places")
        if function is None:
            kind = ir.FunctionType(VOID, [WORD] * 3 + [WORD.as_pointer()])
            function = ir.Function(builder.module, kind, "places")
            function.linkage = "internal"
            inside = ir.IRBuilder(function.append_basic_block())
            write_places(inside, *function.args)
            inside.ret_void()
        builder.call(function, [ways, first, count, self.places[k]])

    def _panel(self, places: Sequence[Any], j: Any, height: Any, depth: Any, adds: Any) -> None:
        """Add one panel's part to a column of blocks."""
        builder, (left, right, target) = self.builder, places
        rest = builder.sub(self.n, j)
        width = self.smaller(rest, self.wide)
        is_edge = builder.icmp_signed("==", rest, self.edge)
        copy = builder.select(is_edge, self.copy_last, self.copy)
        copies = builder.icmp_unsigned("!=", copy, ir.Constant(copy.type, None))
        apart, between = self.apart, self.between
        if self.windows:
            self._find(1, between, j, width)
            apart, between = (builder.ptrtoint(place, WORD) for place in self.places)
        with builder.if_then(copies):
            builder.call(copy, [right, apart, between, depth, width, self.panel])
        right = builder.select(copies, self.panel, right)
        apart = builder.select(copies, WORD(2 * self.lanes), self.apart)
        function = builder.select(is_edge, self.last, self.full)

        def compute(left: Any, out: Any, below: Any, count: Any, width: Any, adds: Any) -> None:
            steps = self.down, self.along, apart, below
            builder.call(function, [left, right, out, *steps, depth, count, width, adds])

        if not self.aside:
            compute(left, target, self.below, height, width, adds)
            return
        whole = builder.or_(is_edge, builder.icmp_signed("==", width, self.wide))
        fits = builder.and_(whole, builder.icmp_signed("==", self.beside, WORD(1)))
        with builder.if_else(fits) as (in_place, aside):
            with in_place:
                compute(left, target, self.below, height, width, adds)
            with (
                aside,
                cgutils.for_range_slice(builder, WORD(0), height, self.rows, WORD) as (first, _),
            ):
                count = self.smaller(builder.sub(height, first), self.rows)
                left = self.after(left, (first, self.down))
                compute(left, self.block, self.wide, count, self.wide, FLAG(0))
                self._store(self.after(target, (first, self.below)), count, width, adds)

    def _store(self, target: Any, count: Any, width: Any, adds: Any) -> None:
        """Write a block that was computed aside to its place, as far as it is inside out."""
        builder = self.builder
        with (
            cgutils.for_range(builder, count) as row,
            cgutils.for_range(builder, width) as column,
        ):
            place = self.after(target, (row.index, self.below))
            place = self.after(place, (column.index, self.beside))
            found = self.after(self.after(self.block, (row.index, self.wide)), (column.index, 1))
            old = builder.select(adds, builder.load(place), self.zero(1))
            builder.store(builder.fadd(old, builder.load(found)), place)
