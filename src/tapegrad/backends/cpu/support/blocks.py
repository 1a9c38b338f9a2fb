"""Products of matrices that lie in the caches, in blocks of registers.

BLAS first copies its operands into an order of its own, which for some ten thousand multiplications
takes as long as these do. Here nothing is copied. A block of the product, of a few rows by two
vectors, stays in registers while the depth is gone through:

    for p in range(depth):
        block[i, j:j + lanes] += x[i, p] * y[p, j:j + lanes]

Where y is the transpose of a row-major matrix, its columns are what can be read as vectors, and so
must be the rows of x. Then each number of a block is the sum of a vector, in the end:

    for p in range(0, depth, lanes):
        block[i, j] += x[i, p:p + lanes] * y[p:p + lanes, j]

A block is a function, which all products of a module share: where it is, how far elements lie apart
and how deep it is are arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, config
from numba.core.codegen import get_host_cpu_features

from tapegrad.backends.cpu.support.arrays import INT, WORD, FixedArray
from tapegrad.backends.cpu.support.unrolled import FLAG, VOID

# Up to so many multiplications, and so many bytes of a matrix, products are computed in blocks.
BLOCKED_PRODUCT, BLOCKED_BYTES = 2**19, 2**18


@functools.cache
def registers() -> tuple[int, int]:
    """How many bytes a vector has on this processor, and how many vectors it holds."""
    chosen = config.CPU_FEATURES  # type: ignore[attr-defined]
    known = set((get_host_cpu_features() if chosen is None else chosen).split(","))
    if "+avx512f" in known:
        return 64, 32
    if "+avx" in known:
        return 32, 16
    return 16, 32 if "+neon" in known else 16


def fits_blocks(x: FixedArray, y: FixedArray, out: FixedArray) -> bool:
    """Whether a product is computed in blocks."""
    (m, k), n = x.shape, y.shape[1]
    size = int(x.dtype.bitwidth) // 8
    lanes = registers()[0] // size
    small = m * k * n <= BLOCKED_PRODUCT and max(m * k, k * n, m * n) * size <= BLOCKED_BYTES
    dots = x.strides[1] == 1 == y.strides[0] and k >= lanes >= 4
    return small and m * k > 0 and n > 1 and out.strides[1] == 1 and (y.strides[1] == 1 or dots)


def blocked_product(builder: Any, kinds: Sequence[FixedArray], arrays: Any, adds: bool) -> None:
    """out = x @ y, or out += x @ y, for three matrices."""
    x, y, out = kinds
    (m, k), n = x.shape, y.shape[1]
    dots = y.strides[1] != 1
    # The numbers of a block take half of the registers and more; few are read for each step.
    size, count = registers()
    lanes = size * 8 // int(x.dtype.bitwidth)
    most = 2 if dots else count // 4
    high = -(-m // -(-m // most))  # so that blocks are of about one height
    wide = min(count // 4, lanes) if dots else min(8, count // 2 // high) * lanes
    steps = [x.strides[0], x.strides[1], y.strides[1 if dots else 0], out.strides[0], k]

    def moved(which: int, axis: int, at: Any, array: Any) -> Any:
        step = builder.mul(at, WORD(kinds[which].strides[axis]))
        return builder.gep(array, [step], inbounds=True)

    def below_each_other(j: Any, width: int) -> None:
        right, target = moved(1, 1, j, arrays[1]), moved(2, 1, j, arrays[2])
        for i, times, height in _parts(m, high):
            block = _block(builder.module, arrays[0].type, dots, height, width)
            places = moved(0, 0, WORD(i), arrays[0]), right, moved(2, 0, WORD(i), target)
            builder.call(block, [*places, *map(WORD, [*steps, times]), FLAG(adds)])

    for first, times, width in _parts(n, wide):
        with cgutils.for_range(builder, WORD(times)) as loop:
            at = builder.add(builder.mul(loop.index, WORD(width)), WORD(first))
            below_each_other(at, width)


def _parts(extent: int, size: int) -> list[tuple[int, int, int]]:
    """An extent in parts of this size, and one of what is left: where they begin, how many there
    are, and how large they are."""
    whole, left = divmod(extent, size)
    parts = [(0, whole, size), (whole * size, 1, left)]
    return [(first, times, size) for first, times, size in parts if times and size]


def _block(module: Any, pointer: Any, dots: bool, rows: int, columns: int) -> Any:
    """The function that computes blocks of so many rows and columns, which lie below each other."""
    name = f"block {pointer} {dots} {rows} {columns}"
    if name not in module.globals:
        kind = ir.FunctionType(VOID, [pointer] * 3 + [WORD] * 6 + [FLAG])
        function = ir.Function(module, kind, name)
        function.linkage = "internal"
        function.attributes.add("nounwind")
        function.attributes.add("noinline")
        for argument in function.args[:3]:
            argument.add_attribute("noalias")
        builder = ir.IRBuilder(function.append_basic_block())
        times = function.args[-2]
        with cgutils.for_range(builder, times) as loop:
            block = _Block(builder, function.args, loop.index, rows, columns)
            (block.dots if dots else block.of_rows)()
        builder.ret_void()
    return module.globals[name]


class Registers:
    """Writes what keeps numbers, and vectors of them, in registers."""

    def __init__(self, builder: Any, real: Any) -> None:
        self.builder, self.real = builder, real
        self.size = 4 if real == ir.FloatType() else 8
        self.lanes = registers()[0] // self.size

    def repeated(
        self, start: Any, stop: Any, step: int, values: Sequence[Any], write: Callable[..., Any]
    ) -> list[Any]:
        """What `write(p, values)` makes of values, in turn for each p."""
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
        """A pointer moved on by a product of two integers."""
        x, y = (k if isinstance(k, ir.Value) else WORD(k) for k in step)
        far = x if getattr(y, "constant", 0) == 1 else self.builder.mul(x, y)
        return self.builder.gep(pointer, [far], inbounds=True)

    def load(self, place: Any, lanes: int) -> Any:
        if lanes == 1:
            return self.builder.load(place)
        kind = ir.VectorType(self.real, lanes).as_pointer()
        return self.builder.load(self.builder.bitcast(place, kind), align=self.size)

    def store(self, value: Any, place: Any) -> None:
        place = self.builder.bitcast(place, value.type.as_pointer())
        self.builder.store(value, place, align=self.size)

    # ---- numbers, and vectors of them

    def zero(self, lanes: int) -> Any:
        if lanes == 1:
            return ir.Constant(self.real, 0.0)
        return ir.Constant(ir.VectorType(self.real, lanes), [0.0] * lanes)

    def plus(self, total: Any, factors: tuple[Any, Any]) -> Any:
        product = self.builder.fmul(*factors, flags=("contract",))
        return self.builder.fadd(total, product, flags=("contract",))

    def spread(self, number: Any, kind: Any) -> Any:
        """A number in all lanes of a vector, if it is to become one."""
        if not isinstance(kind, ir.VectorType):
            return number
        several = self.joined([number], kind)
        return self.shuffled(several, several, [0] * kind.count)

    def joined(self, numbers: Sequence[Any], kind: Any = None) -> Any:
        """A vector of numbers; a single one is itself."""
        if kind is None and len(numbers) == 1:
            return numbers[0]
        value = ir.Constant(kind or ir.VectorType(self.real, len(numbers)), ir.Undefined)
        for k, x in enumerate(numbers):
            value = self.builder.insert_element(value, x, INT(k))
        return value

    def shuffled(self, x: Any, y: Any, places: Sequence[int]) -> Any:
        mask = ir.Constant(ir.VectorType(INT, len(places)), list(places))
        return self.builder.shuffle_vector(x, y, mask)


class _Block(Registers):
    """Writes the function of a block."""

    def __init__(
        self, builder: Any, args: Sequence[Any], number: Any, rows: int, columns: int
    ) -> None:
        x, self.y, out, self.down, self.along, self.apart, self.below, self.depth, _, self.adds = (
            args
        )
        self.rows, self.columns = range(rows), range(columns)
        super().__init__(builder, x.type.pointee)
        first = builder.mul(number, WORD(rows))
        self.x, self.out = self.after(x, (first, self.down)), self.after(out, (first, self.below))

    def of_rows(self) -> None:
        """A block of sums of the rows of y."""
        count = len(self.columns)
        vectors = [(c, min(self.lanes, count - c)) for c in range(0, count, self.lanes)]
        lefts = [self.after(self.x, (self.down, r)) for r in self.rows]
        outs = [self.after(self.out, (self.below, r)) for r in self.rows]
        totals = [self._old(out, c, lanes) for out in outs for c, lanes in vectors]

        def step(p: Any, totals: Sequence[Any]) -> list[Any]:
            row = self.after(self.y, (self.apart, p))
            right = [self.load(self.after(row, (c, 1)), lanes) for c, lanes in vectors]
            factors = [self.load(self.after(x, (self.along, p)), 1) for x in lefts]
            pairs = [(self.spread(x, y.type), y) for x in factors for y in right]
            return [self.plus(*term) for term in zip(totals, pairs, strict=True)]

        found = iter(self.repeated(WORD(0), self.depth, 1, totals, step))
        for out in outs:
            for c, _ in vectors:
                self.store(next(found), self.after(out, (c, 1)))

    def dots(self) -> None:
        """A block of products of rows of x and columns of y."""
        count = len(self.columns)
        lefts = [self.after(self.x, (self.down, r)) for r in self.rows]
        rights = [self.after(self.y, (self.apart, c)) for c in self.columns]
        whole = self.builder.and_(self.depth, WORD(-self.lanes))

        def step(p: Any, totals: Sequence[Any]) -> list[Any]:
            xs, ys = (
                [self.load(self.after(x, (p, 1)), self.lanes) for x in parts]
                for parts in (lefts, rights)
            )
            pairs = [(x, y) for x in xs for y in ys]
            return [self.plus(*term) for term in zip(totals, pairs, strict=True)]

        zeros = [self.zero(self.lanes)] * (len(lefts) * count)
        vectors = self.repeated(WORD(0), whole, self.lanes, zeros, step)

        def rest(p: Any, totals: Sequence[Any]) -> list[Any]:
            xs, ys = (
                [self.load(self.after(x, (p, 1)), 1) for x in parts] for parts in (lefts, rights)
            )
            y = self.joined(ys)
            pairs = [(self.spread(x, y.type), y) for x in xs]
            return [self.plus(*term) for term in zip(totals, pairs, strict=True)]

        sums = [self._sums(vectors[r * count : (r + 1) * count]) for r in self.rows]
        sums = self.repeated(whole, self.depth, 1, sums, rest)
        for r, total in enumerate(sums):
            out = self.after(self.out, (self.below, r))
            self.store(self.builder.fadd(self._old(out, 0, count), total), out)

    def _old(self, row: Any, column: int, lanes: int) -> Any:
        """What the block starts from: what is there, or 0, though that is read too."""
        found = self.load(self.after(row, (column, 1)), lanes)
        return self.builder.select(self.adds, found, self.zero(lanes))

    def _sums(self, vectors: Sequence[Any]) -> Any:
        """The sums of vectors, as a vector: halves are added, of two vectors at a time.

        a0 a1 a2 a3, b0 b1 b2 b3  -->  a0 + a2, a1 + a3, b0 + b2, b1 + b3
        """
        count, width = len(vectors), self.lanes
        missing = -count % (1 << (count - 1).bit_length())
        vectors = [*vectors, *[vectors[0]] * missing]
        while width > 1:
            half, n = width // 2, vectors[0].type.count
            several = len(vectors) > 1
            places = [k for k in range(2 * n if several else n) if k % width < half]
            pairs = zip(vectors[::2], vectors[1::2] if several else vectors, strict=True)
            vectors = [
                self.builder.fadd(
                    self.shuffled(x, y, places), self.shuffled(x, y, [k + half for k in places])
                )
                for x, y in pairs
            ]
            width = half
        if count == 1:
            return self.builder.extract_element(vectors[0], INT(0))
        return self.shuffled(vectors[0], vectors[0], range(count))
