"""Small matrices: products, factors and systems as straight-line code.

For a matrix of three rows, a call of a library takes ten times as long as its arithmetic. Here the
loops run while the code is written: `Elements` is a proxy of an array, its elements are values of
the code under construction, and each operation on them becomes an instruction. So LLVM has no loops
to unroll, and numbers stay in registers. All calls in a module with arrays of the same types share
one function.

Factors are rounded like those of OpenBLAS, which factors the smallest matrices where a tape is
played: elements less sums of products, each added before it is rounded, in order; columns times the
reciprocal of their pivot. So both find the same matrices singular, or not positive definite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from tapegrad.backends.cpu.support.arrays import INT, WORD, FixedArray

SMALL_MATRIX = 8  # rows: up to this size LAPACK isn't called
# Limits of straight-line products: multiplications, and terms of a sum. Rows are computed by a loop
# if they take more multiplications by a vector than `STRAIGHT`.
SMALL_PRODUCT, SMALL_DEPTH, STRAIGHT = 1024, 16, 32
MAX_INLINED = 64  # instructions: longer functions aren't inlined, as there are many calls
VECTOR = 64  # bytes of the widest vector
LEAST_RECIPROCAL = {
    4: 2.0**-126,
    8: 2.0**-1022,
}  # by size in bytes, the least number with a finite reciprocal
SINGLE, FLAG, VOID = ir.FloatType(), ir.IntType(1), ir.VoidType()


def multiplied_and_added(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z, with one rounding where the processor has an instruction for it. To LLVM it is one
    operation: two that it may fuse it doesn't fuse everywhere, and then it rounds twice."""
    lanes = f"v{z.type.count}" if isinstance(z.type, ir.VectorType) else ""
    real = z.type.element if lanes else z.type
    name = f"llvm.fmuladd.{lanes}{real.intrinsic_name}"
    kind = ir.FunctionType(z.type, [z.type] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [x, y, z])


class Number:
    """A value of the code under construction, a number or a vector, with Python's operators. Beside
    a vector, a number is broadcast."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def __add__(self, other: Number) -> Number:
        return self._with("fadd", other)

    def __sub__(self, other: Number) -> Number:
        return self._with("fsub", other)

    def __mul__(self, other: Number) -> Number:
        return self._with("fmul", other)

    def __truediv__(self, other: Number) -> Number:
        return self._with("fdiv", other)

    def __neg__(self) -> Number:
        return Number(self.builder, self.builder.fneg(self.value))

    def plus_product(self, x: Number, y: Number) -> Number:
        """x * y + self, with one rounding where the processor has an instruction for it."""
        several = max((x, y, self), key=lambda number: getattr(number.value.type, "count", 1))
        values = [number._spread(several) for number in (x, y, self)]
        return Number(self.builder, multiplied_and_added(self.builder, *values))

    def _with(self, operation: str, other: Number) -> Number:
        x, y = self._spread(other), other._spread(self)
        return Number(self.builder, getattr(self.builder, operation)(x, y))

    def _spread(self, like: Number) -> Any:
        """The value, broadcast if `like` is a vector."""
        kind, value = like.value.type, self.value
        if value.type == kind or isinstance(value.type, ir.VectorType):
            return value
        several = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(several, value, INT(0))
        lanes = ir.Constant(ir.VectorType(INT, kind.count), [0] * kind.count)
        return self.builder.shuffle_vector(first, several, lanes)

    def call(self, name: str) -> Number:
        """One of LLVM's functions of a number: `sqrt`, `fabs`."""
        kind = self.value.type
        known = self.builder.module.declare_intrinsic(
            f"llvm.{name}", [kind], ir.FunctionType(kind, [kind])
        )
        return Number(self.builder, self.builder.call(known, [self.value]))

    def compared(self, how: str, other: Number) -> Any:
        """A condition, which is false where either number is NaN."""
        return self.builder.fcmp_ordered(how, self.value, other.value)

    def chosen(self, condition: Any, other: Number) -> Number:
        """This number where a condition holds, else another one."""
        return Number(self.builder, self.builder.select(condition, self.value, other.value))


class Elements:
    """An array in memory by its elements. Each is loaded when it is first read; assignments are
    written to memory by `store`. With `lanes`, an element is a vector of that many numbers of a
    row, from its place on."""

    def __init__(self, builder: Any, kind: FixedArray, array: Any, lanes: int = 1) -> None:
        self.builder, self.kind, self.array, self.lanes = builder, kind, array, lanes
        self.real = array.type.pointee
        self.known: dict[tuple[int, ...], Number] = {}
        self.changed: dict[tuple[int, ...], None] = {}

    def __getitem__(self, at: tuple[int, ...]) -> Number:
        if at not in self.known:
            self.known[at] = Number(self.builder, self._read(*at))
        return self.known[at]

    def __setitem__(self, at: tuple[int, ...], x: Number) -> None:
        self.known[at] = x
        self.changed[at] = None

    def place(self, *at: int) -> Any:
        """The address of an element."""
        offset = sum(k * stride for k, stride in zip(at, self.kind.strides, strict=True))
        return self.builder.gep(self.array, [WORD(offset)], inbounds=True)

    def _read(self, i: int, j: int) -> Any:
        builder = self.builder
        if self.lanes == 1:
            return builder.load(self.place(i, j))
        kind = ir.VectorType(self.real, self.lanes)
        if self.kind.strides[-1] == 1:
            several = builder.bitcast(self.place(i, j), kind.as_pointer())
            return builder.load(several, align=_bytes(self.real))
        value = ir.Constant(kind, ir.Undefined)
        for k in range(self.lanes):
            value = builder.insert_element(value, builder.load(self.place(i, j + k)), INT(k))
        return value

    def store(self) -> None:
        """Write the assigned elements to memory. Rows must be contiguous."""
        for at in self.changed:
            value, place = self.known[at].value, self.place(*at)
            if self.lanes > 1:
                place = self.builder.bitcast(place, value.type.as_pointer())
            self.builder.store(value, place, align=_bytes(self.real))

    def literal(self, x: float) -> Number:
        """A constant of the array's type."""
        return Number(self.builder, ir.Constant(self.real, x))


def _bytes(real: Any) -> int:
    return 4 if real == SINGLE else 8


def dot_product(xs: Sequence[Number], ys: Sequence[Number], *start: Number) -> Number:
    """The sum of at least one product, in order, added to `start` if it is passed."""
    total: Number | None = start[0] if start else None
    for x, y in zip(xs, ys, strict=True):
        total = x * y if total is None else total.plus_product(x, y)
    assert total is not None
    return total


def less_products(x: Number, xs: Sequence[Number], ys: Sequence[Number]) -> Number:
    """A number less a sum of products, if there are any."""
    return x - dot_product(xs, ys) if xs else x


def call_unrolled(
    builder: Any,
    name: str,
    write: Callable[..., Any],
    arrays: Sequence[tuple[Any, Any]],
    result: Any = VOID,
) -> Any:
    """Call a function of arrays that don't overlap. `write(builder, *pointers)` emits its body. A
    module has it once, by its name and the arrays' types."""
    module, name = builder.module, f"unrolled {name} {[kind for kind, _ in arrays]}"
    if name not in module.globals:
        kind = ir.FunctionType(result, [x.type for _, x in arrays])
        function = ir.Function(module, kind, name)
        function.linkage = "internal"
        function.attributes.add("nounwind")
        for argument in function.args:
            argument.add_attribute("noalias")
        inner = ir.IRBuilder(function.append_basic_block())
        found = write(inner, *function.args)
        if sum(len(block.instructions) for block in function.blocks) > MAX_INLINED:
            function.attributes.add("noinline")
        if found is None:
            inner.ret_void()
        else:
            inner.ret(found)
    return builder.call(module.globals[name], [x for _, x in arrays])


# ---- products


def small_product(builder: Any, kinds: Sequence[FixedArray], arrays: Any, adds: bool) -> None:
    """out = x @ y, or out += x @ y, for three matrices."""
    x, y, out = kinds
    (rows, depth), columns, most = x.shape, y.shape[1], _most_lanes(out)
    rolled = rows * depth * -(-columns // most) > STRAIGHT

    def write(builder: Any, left: Any, right: Any, found: Any) -> None:
        for j in range(0, columns, most):
            lanes = min(most, columns - j)
            factors = Elements(builder, y, right, lanes)
            column = [factors[k, j] for k in range(depth)]

            def compute(i: Any, j: int = j, lanes: int = lanes, column: Any = column) -> None:
                """Compute the row i of out, `lanes` columns from j on."""
                here = [
                    builder.gep(array, [builder.mul(i, WORD(kind.strides[0]))], inbounds=True)
                    for kind, array in ((x, left), (out, found))
                ]
                row, total = Elements(builder, x, here[0]), Elements(builder, out, here[1], lanes)
                factor = [row[0, k] for k in range(depth)]
                # In the order of blocks of registers, so that rows have the same bits here and
                # there.
                terms = dot_product(factor, column, row.literal(0.0))
                total[0, j] = total[0, j] + terms if adds else terms
                total.store()

            if rolled:
                with cgutils.for_range(builder, WORD(rows)) as loop:
                    compute(loop.index)
            else:
                for i in range(rows):
                    compute(WORD(i))

    call_unrolled(builder, f"product {adds}", write, list(zip(kinds, arrays, strict=True)))


def _most_lanes(kind: FixedArray) -> int:
    """The largest number of lanes of a vector."""
    return VECTOR * 8 // int(kind.dtype.bitwidth)


# ---- Cholesky's factor


def small_cholesky(builder: Any, x: FixedArray, array: Any) -> Any:
    """Replace a matrix by the factor of its lower triangle. Returns whether that failed."""

    def write(builder: Any, array: Any) -> Any:
        a, n = Elements(builder, x, array), x.shape[0]
        zero, one = a.literal(0.0), a.literal(1.0)
        failed = ir.Constant(FLAG, False)
        for j in range(n):
            before = [a[j, k] for k in range(j)]
            d = less_products(a[j, j], before, before)
            failed = builder.or_(failed, d.compared("<=", zero))
            a[j, j] = d.call("sqrt")
            inverse = one / a[j, j]
            vanishes = inverse.compared("==", zero)  # in OpenBLAS 0 * inf is 0 here
            for i in range(j + 1, n):
                rest = less_products(a[i, j], [a[i, k] for k in range(j)], before)
                a[i, j] = zero.chosen(vanishes, rest * inverse)
                a[j, i] = zero
        a.store()
        return failed

    return call_unrolled(builder, "cholesky", write, [(x, array)], FLAG)


def small_pullback(
    builder: Any, x: FixedArray, ct: Any, factor: Any, pull_back: Callable[..., None]
) -> None:
    """Replace the cotangent of a factor by that of its matrix. `pull_back` computes it, but with
    twice the diagonal."""

    def write(builder: Any, *arrays: Any) -> None:
        n = x.shape[0]
        cts, factors = (Elements(builder, x, array) for array in arrays)
        pull_back(factors, cts, n)
        for i in range(n):
            cts[i, i] = cts[i, i] * cts.literal(0.5)
            for j in range(i + 1, n):
                cts[i, j] = cts.literal(0.0)
        cts.store()

    call_unrolled(builder, "cholesky pullback", write, [(x, ct), (x, factor)])


# ---- triangles


def small_triangular(
    builder: Any, kinds: Sequence[FixedArray], arrays: Any, lower: bool, unit: bool
) -> None:
    """Replace B by the X with T X = B, for a triangle of T."""
    (x, t), (right, triangle) = kinds, arrays
    most, columns = _most_lanes(x), x.shape[1]

    def solve(first: Any, lanes: int) -> None:
        def write(builder: Any, right: Any, triangle: Any) -> None:
            found = Elements(builder, x, right, lanes)
            _substitute(Elements(builder, t, triangle), found, lower, unit)
            found.store()

        part = builder.gep(right, [first], inbounds=True)
        name = f"triangle {lower} {unit} {lanes}"
        call_unrolled(builder, name, write, [(x, part), (t, triangle)])

    if columns >= most:
        with cgutils.for_range(builder, WORD(columns // most)) as loop:
            solve(builder.mul(loop.index, WORD(most)), most)
    if columns % most:
        solve(WORD(columns - columns % most), columns % most)


def _substitute(t: Elements, x: Elements, lower: bool, unit: bool) -> None:
    n = t.kind.shape[0]
    for i in range(n) if lower else reversed(range(n)):
        k = range(i) if lower else range(i + 1, n)
        rest = less_products(x[i, 0], [t[i, p] for p in k], [x[p, 0] for p in k])
        x[i, 0] = rest if unit else rest / t[i, i]


# ---- LU factors


def small_lu(builder: Any, x: FixedArray, array: Any, pivots: Any) -> None:
    """Replace x by the transposed factors of x.T, and write the swapped rows, counted from 1, to an
    array."""

    def write(builder: Any, array: Any, pivots: Any) -> None:
        a, n = Elements(builder, _turned(x), array), x.shape[0]
        for j in range(n):
            for i in range(1, n):
                k = range(min(i, j))
                a[i, j] = less_products(a[i, j], [a[i, p] for p in k], [a[p, j] for p in k])
            row = _largest(a, j)
            number = builder.trunc(builder.add(row, WORD(1)), INT)
            builder.store(number, builder.gep(pivots, [WORD(j)], inbounds=True))
            if j + 1 < n:
                _swap_rows(a, j, row)
                _divide_by_pivot(a, j)
        a.store()

    call_unrolled(builder, "lu", write, [(x, array), (INT, pivots)])


def _turned(x: FixedArray) -> FixedArray:
    """The type of a matrix's transpose."""
    return FixedArray(x.dtype, x.shape[::-1], x.strides[::-1])


def _largest(a: Elements, j: int) -> Any:
    """The row of the first of the largest numbers of a column, on or below the diagonal. NaN isn't
    larger than anything."""
    builder, row, most = a.builder, WORD(j), a[j, j].call("fabs")
    for i in range(j + 1, a.kind.shape[0]):
        size = a[i, j].call("fabs")
        larger = size.compared(">", most)
        most = size.chosen(larger, most)
        row = builder.select(larger, WORD(i), row)
    return row


def _swap_rows(a: Elements, j: int, row: Any) -> None:
    """Swap row `j` with row `row`, which is the same or below it. Registers have no indices, so
    there is a branch for each row; the processor mostly predicts it."""
    n, builder = a.kind.shape[0], a.builder
    old = {(i, k): a[i, k] for i in range(j, n) for k in range(n)}
    after = builder.append_basic_block()
    ways = {j: builder.block}
    switch = builder.switch(row, after)
    for i in range(j + 1, n):
        ways[i] = builder.append_basic_block()
        switch.add_case(WORD(i), ways[i])
        builder.position_at_end(ways[i])
        builder.branch(after)
    builder.position_at_end(after)
    for i, k in old:
        value = builder.phi(a.real)
        for chosen, block in ways.items():
            source = chosen if i == j else j if i == chosen else i
            value.add_incoming(old[source, k].value, block)
        a[i, k] = Number(builder, value)


def _divide_by_pivot(a: Elements, j: int) -> None:
    """Divide the numbers below the pivot by it, as OpenBLAS does: not if the pivot is 0 or NaN; if
    it is infinite they become 0."""
    n, builder = a.kind.shape[0], a.builder
    pivot, below = a[j, j], [a[i, j] for i in range(j + 1, n)]
    size, zero = pivot.call("fabs"), a.literal(0.0)
    inverse = a.literal(1.0) / pivot
    plain = [x * inverse for x in below]
    start = builder.block
    least, most = (a.literal(x) for x in (LEAST_RECIPROCAL[_bytes(a.real)], math.inf))
    usual = builder.and_(size.compared(">=", least), size.compared("<", most))
    with builder.if_then(builder.not_(usual), likely=False):
        divides, vanishes = size.compared(">", zero), size.compared("==", most)
        rare = [zero.chosen(vanishes, (x / pivot).chosen(divides, x)) for x in below]
        end = builder.block
    for i, (x, y) in enumerate(zip(plain, rare, strict=True), start=j + 1):
        value = builder.phi(a.real)
        value.add_incoming(x.value, start)
        value.add_incoming(y.value, end)
        a[i, j] = Number(builder, value)


def small_lu_solve(
    builder: Any, kinds: Sequence[FixedArray], arrays: Any, transposed: bool
) -> None:
    """Replace the rows of x by the solutions, given the factors and their pivots."""
    (x, factors), (rights, given, pivots) = kinds, arrays
    count, n = x.shape
    column = FixedArray(x.dtype, (n, 1), (1, 1))

    def write(builder: Any, right: Any, given: Any, pivots: Any) -> None:
        if not transposed:
            _swap_by(builder, pivots, range(n - 1), right, 1)
        a = Elements(builder, factors if transposed else _turned(factors), given)
        found = Elements(builder, column, right)
        _substitute(a, found, True, not transposed)
        _substitute(a, found, False, transposed)
        found.store()
        if transposed:
            _swap_by(builder, pivots, reversed(range(n - 1)), right, 1)

    with cgutils.for_range(builder, WORD(count)) as loop:
        right = builder.gep(rights, [builder.mul(loop.index, WORD(n))], inbounds=True)
        arguments = [(column, right), (factors, given), (INT, pivots)]
        call_unrolled(builder, f"lu solve {transposed}", write, arguments)


def _swap_by(builder: Any, pivots: Any, order: Iterable[int], array: Any, width: int) -> None:
    """Swap rows of `width` numbers in memory by the pivots."""
    for k in order:
        pivot = builder.load(builder.gep(pivots, [WORD(k)], inbounds=True))
        with builder.if_then(builder.icmp_signed("!=", pivot, INT(k + 1))):
            row = builder.sub(builder.sext(pivot, WORD), WORD(1))
            start = builder.mul(row, WORD(width))
            for j in range(width):
                one = builder.gep(array, [WORD(k * width + j)], inbounds=True)
                other = builder.gep(array, [builder.add(start, WORD(j))], inbounds=True)
                x, y = builder.load(one), builder.load(other)
                builder.store(y, one)
                builder.store(x, other)


def small_inverse(builder: Any, x: FixedArray, array: Any, pivots: Any) -> Any:
    """Replace the factors by the transposed inverse. Returns whether the matrix is singular."""

    def write(builder: Any, array: Any, pivots: Any) -> Any:
        a, n = Elements(builder, _turned(x), array), x.shape[0]
        zero, singular = a.literal(0.0), ir.Constant(FLAG, False)
        for j in range(n):
            singular = builder.or_(singular, a[j, j].compared("==", zero))
        _invert_factors(a)
        a.store()
        _swap_by(builder, pivots, reversed(range(n - 1)), array, n)
        return singular

    return call_unrolled(builder, "inverse", write, [(x, array), (INT, pivots)], FLAG)


def _invert_factors(a: Elements) -> None:
    """LAPACK's method: the inverse of U first, then solve X L = U^-1. Columns stay in the places of
    the swapped rows."""
    n, zero, one = a.kind.shape[0], a.literal(0.0), a.literal(1.0)
    for j in range(n):
        a[j, j] = one / a[j, j]
        vanishes = a[j, j].compared("==", zero)
        for i in range(j):
            k = range(i, j)
            found = -dot_product([a[i, p] for p in k], [a[p, j] for p in k]) * a[j, j]
            a[i, j] = zero.chosen(vanishes, found)
    for j in reversed(range(n - 1)):
        right = range(j + 1, n)
        factor = [a[k, j] for k in right]
        for i in range(n):
            start = a[i, j] if i <= j else zero
            a[i, j] = less_products(start, [a[i, k] for k in right], factor)
