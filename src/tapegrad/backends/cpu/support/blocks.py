"""Products of matrices in blocks of registers.

A block of the product, of a few rows by two vectors, stays in registers during the loop over the
terms:

    for p in range(depth):
        block[i, j:j + lanes] += x[i, p] * y[p, j:j + lanes]

One function computes a column of blocks. Addresses, strides and depth are its arguments, so that
all products share it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from tapegrad.backends.cpu.support.arrays import INT, WORD
from tapegrad.backends.cpu.support.scalars import features
from tapegrad.backends.cpu.support.shared import REALS, shared_function
from tapegrad.backends.cpu.support.unrolled import FLAG, VOID, multiplied_and_added


@functools.cache
def registers() -> tuple[int, int]:
    """The size of a vector in bytes on this processor, and the number of vector registers."""
    if "+avx512f" in features():
        return 64, 32
    if "+avx" in features():
        return 32, 16
    return 16, 32 if "+neon" in features() else 16


class Registers:
    """Writes code that keeps numbers and vectors in registers."""

    def __init__(self, builder: Any, real: Any) -> None:
        self.builder, self.real = builder, real
        self.size = 4 if real == ir.FloatType() else 8
        self.lanes = registers()[0] // self.size

    def repeated(
        self, start: Any, stop: Any, step: int, values: Sequence[Any], write: Callable[..., Any]
    ) -> list[Any]:
        """A loop over p from `start` to `stop`: `write(p, values)` returns the loop-carried values
        of the next round. Returns the last ones."""
        builder = self.builder
        before = builder.block
        head, body, after = (builder.append_basic_block() for _ in range(3))
        builder.branch(head)
        builder.position_at_end(head)
        p = builder.phi(WORD)
        phis = [builder.phi(value.type) for value in values]
        builder.cbranch(builder.icmp_signed("<", p, stop), body, after)
        builder.position_at_end(body)
        made = [builder.add(p, WORD(step)), *write(p, phis)]
        builder.branch(head)
        for phi, first, later in zip([p, *phis], [start, *values], made, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(later, body)
        builder.position_at_end(after)
        return phis

    # ---- memory

    def after(self, pointer: Any, step: tuple[Any, Any]) -> Any:
        """A pointer, advanced by the product of two integers."""
        x, y = (k if isinstance(k, ir.Value) else WORD(k) for k in step)
        far = x if getattr(y, "constant", 0) == 1 else self.builder.mul(x, y)
        return self.builder.gep(pointer, [far], inbounds=True)

    def load(self, place: Any, lanes: int, mask: Any = None, others: Any = None) -> Any:
        """A number, or a vector. Lanes that `mask` excludes are those of `others`, or 0."""
        if lanes == 1 and mask is None:
            return self.builder.load(place)
        kind = ir.VectorType(self.real, lanes)
        place = self.builder.bitcast(place, kind.as_pointer())
        if mask is None:
            return self.builder.load(place, align=self.size)
        others = others or ir.Constant(kind, [0.0] * lanes)
        return self._masked("load", kind, [place, INT(self.size), mask, others])

    def store(self, value: Any, place: Any, mask: Any = None) -> None:
        place = self.builder.bitcast(place, value.type.as_pointer())
        if mask is None:
            self.builder.store(value, place, align=self.size)
        else:
            self._masked("store", VOID, [value, place, INT(self.size), mask])

    def _masked(self, name: str, result: Any, given: list[Any]) -> Any:
        kind = ir.FunctionType(result, [x.type for x in given])
        name = f"llvm.masked.{name}.v{given[-1].type.count}f{8 * self.size}.p0"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, given)

    def mask(self, first: Any, stop: Any, lanes: int) -> Any:
        """A mask of the lanes k with first + k < stop."""
        kind = ir.VectorType(WORD, lanes)
        ahead = ir.Constant(kind, [WORD(k) for k in range(lanes)])
        places = self.builder.add(self.spread(first, kind), ahead)
        return self.builder.icmp_unsigned("<", places, self.spread(stop, kind))

    # ---- numbers, and vectors of them

    def zero(self, lanes: int) -> Any:
        if lanes == 1:
            return ir.Constant(self.real, 0.0)
        return ir.Constant(ir.VectorType(self.real, lanes), [0.0] * lanes)

    def plus(self, total: Any, factors: tuple[Any, Any]) -> Any:
        return multiplied_and_added(self.builder, *factors, total)

    def spread(self, number: Any, kind: Any) -> Any:
        """A number in all lanes of a vector, if `kind` is a vector."""
        if not isinstance(kind, ir.VectorType):
            return number
        several = self.joined([number], kind)
        return self.shuffled(several, several, [0] * kind.count)

    def joined(self, numbers: Sequence[Any], kind: Any = None) -> Any:
        """A vector of numbers; a single number stays one."""
        if kind is None and len(numbers) == 1:
            return numbers[0]
        value = ir.Constant(kind or ir.VectorType(self.real, len(numbers)), ir.Undefined)
        for k, x in enumerate(numbers):
            value = self.builder.insert_element(value, x, INT(k))
        return value

    def smaller(self, x: Any, y: Any) -> Any:
        return self.builder.select(self.builder.icmp_signed("<", x, y), x, y)

    def larger(self, x: Any, y: Any) -> Any:
        return self.builder.select(self.builder.icmp_signed(">", x, y), x, y)

    def transposed(self, vectors: Sequence[Any]) -> list[Any]:
        """The columns of a square matrix, given its rows as vectors. One after the other, each bit
        of the row number is swapped with that of the column number."""
        rows, lanes, bit = list(vectors), len(vectors), 1
        while bit < lanes:
            low = [j if not j & bit else lanes + j - bit for j in range(lanes)]
            high = [j + bit if not j & bit else lanes + j for j in range(lanes)]
            for i in range(lanes):
                if not i & bit:
                    x, y = rows[i], rows[i + bit]
                    rows[i], rows[i + bit] = self.shuffled(x, y, low), self.shuffled(x, y, high)
            bit *= 2
        return rows

    def shuffled(self, x: Any, y: Any, places: Sequence[int]) -> Any:
        mask = ir.Constant(ir.VectorType(INT, len(places)), list(places))
        return self.builder.shuffle_vector(x, y, mask)


def block_rows(m: int | None) -> int:
    """The number of rows of a block, for a product of m rows (None: any number): at most as many as
    fit into the registers with two vectors each, and fewer if that makes blocks equally high."""
    most = 8 if registers()[1] == 32 else 6
    return -(-m // -(-m // most)) if m else most


def block_vectors(rows: int) -> int:
    """The largest number of vectors in a row of a block with this many rows."""
    return max(2, min(8, registers()[1] // 2 // rows))


def block_columns(width: int, lanes: int) -> int:
    """The number of columns of the function of blocks for `width` columns. Where vectors have masks
    it is a multiple of the lanes, so that few functions serve all widths."""
    return -(-width // lanes) * lanes if registers()[0] == 64 else width


def block_type(letter: str, *_: Any) -> Any:
    """The type of the functions of blocks.

    void blocks(real *x, real *y, real *out, long down, long along, long apart, long below,
                long depth, long count, long width, bool adds)
    """
    return ir.FunctionType(VOID, [REALS[letter].as_pointer()] * 3 + [WORD] * 7 + [FLAG])


@shared_function("blocks", block_type)
def column_of_blocks(
    builder: Any, args: Sequence[Any], letter: str, rows: int, columns: int
) -> None:
    """A column of blocks with this many rows and columns: out = x @ y, or out += x @ y. The last
    block may have fewer rows.

    `down`, `apart` and `below` are the strides between rows of x, y and out, `along` is that
    between elements of a row of x. There are `count` rows, and `width` columns, which end in the
    last vector.
    """
    _Blocks(builder, args, rows, columns).write()


class _Blocks(Registers):
    """Writes the function of blocks."""

    def __init__(self, builder: Any, args: Sequence[Any], rows: int, columns: int) -> None:
        x, self.y, out, self.down, self.along, self.apart, self.below = args[:7]
        self.depth, self.count, self.width, self.adds = args[7:]
        super().__init__(builder, x.type.pointee)
        self.x, self.out, self.rows = x, out, rows
        starts = range(0, columns, self.lanes)
        self.vectors: list[tuple[int, int, Any]]
        self.vectors = [(c, min(self.lanes, columns - c), None) for c in starts]

    def write(self) -> None:
        c, lanes, _ = self.vectors[-1]
        if registers()[0] == 64:
            self.vectors[-1] = c, lanes, self.mask(WORD(c), self.width, lanes)
        step = WORD(self.rows)
        with cgutils.for_range_slice(self.builder, WORD(0), self.count, step, WORD) as (first, _):
            self._block(first)

    def _block(self, first: Any) -> None:
        builder = self.builder
        x, out = self.after(self.x, (first, self.down)), self.after(self.out, (first, self.below))
        # If there are fewer rows, the last one is read again, and its repeats aren't written.
        last = builder.sub(builder.sub(self.count, first), WORD(1))
        last = self.smaller(last, WORD(self.rows - 1))
        lowest = self.after(x, (last, self.down))
        lefts = [
            builder.select(
                builder.icmp_signed("<", WORD(r), last), self.after(x, (r, self.down)), lowest
            )
            for r in range(self.rows)
        ]

        def step(p: Any, totals: Sequence[Any]) -> list[Any]:
            row = self.after(self.y, (self.apart, p))
            right = [self.load(self.after(row, (c, 1)), lanes, m) for c, lanes, m in self.vectors]
            factors = [self.load(self.after(x, (self.along, p)), 1) for x in lefts]
            pairs = [(self.spread(x, y.type), y) for x in factors for y in right]
            return [self.plus(*term) for term in zip(totals, pairs, strict=True)]

        zeros = [self.zero(lanes) for _ in lefts for _, lanes, _ in self.vectors]
        totals = iter(self.repeated(WORD(0), self.depth, 1, zeros, step))
        done = builder.append_basic_block()
        for r in range(self.rows):
            row = self.after(out, (self.below, r))
            for c, lanes, mask in self.vectors:
                place = self.after(row, (c, 1))
                old = builder.select(self.adds, self.load(place, lanes, mask), self.zero(lanes))
                self.store(builder.fadd(old, next(totals)), place, mask)
            if r + 1 < self.rows:
                more = builder.append_basic_block()
                builder.cbranch(builder.icmp_signed("==", last, WORD(r)), done, more)
                builder.position_at_end(more)
        builder.branch(done)
        builder.position_at_end(done)
