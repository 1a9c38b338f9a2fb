"""Linear systems by SciPy's LAPACK, in place, for matrices of fixed shape; small ones without it.

LAPACK is column-major: a row-major matrix here is its transpose there, so the lower triangle is
called the upper one. The factors of LU are kept as LAPACK leaves them. Routines that can fail
return whether they did.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import signature

from tapegrad.backends.cpu.support.arrays import INT, WORD, FixedArray, Intrinsic
from tapegrad.backends.cpu.support.blas import Fortran
from tapegrad.backends.cpu.support.operators import TARGET
from tapegrad.backends.cpu.support.outline import procedure
from tapegrad.backends.cpu.support.syntax import tree_of
from tapegrad.backends.cpu.support.translation import Translator
from tapegrad.backends.cpu.support.unrolled import (
    SMALL_MATRIX,
    small_cholesky,
    small_inverse,
    small_lu,
    small_lu_solve,
    small_pullback,
    small_triangular,
)

ALONE = 16  # up to this size right sides are solved one by one: several start BLAS's threads
BLOCK, BLOCKS = 32, 32  # rows of a block that is pulled back at once; the most blocks


def _no_number_if(builder: Any, failed: Any, kind: FixedArray, array: Any) -> None:
    """Set all elements of a matrix to NaN, if a flag is set."""
    nan = ir.Constant(array.type.pointee, float("nan"))
    size = WORD(kind.shape[0] * kind.shape[1])
    with builder.if_then(failed, likely=False), cgutils.for_range(builder, size) as loop:
        builder.store(nan, builder.gep(array, [loop.index], inbounds=True))


def _clear_above(builder: Any, kind: FixedArray, array: Any) -> None:
    """Set the elements above the diagonal to 0."""
    n, zero = kind.shape[0], ir.Constant(array.type.pointee, 0.0)
    with cgutils.for_range(builder, WORD(n)) as loop:
        row, after = builder.mul(loop.index, WORD(n)), builder.add(loop.index, WORD(1))
        with cgutils.for_range_slice(builder, after, WORD(n), WORD(1)) as (column, _):
            place = builder.add(row, column)
            builder.store(zero, builder.gep(array, [place], inbounds=True))


# ---- Cholesky's factor


@Intrinsic
def cholesky(typingctx: Any, x: Any) -> Any:
    """Replace x by the factor of its lower triangle; by NaN, if that fails."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        n = x.shape[0]
        if n <= SMALL_MATRIX:
            failed = small_cholesky(builder, x, args[0])
        else:
            info = Fortran(context, builder, x.dtype).checked("potrf", "U", n, args[0], n)
            failed = builder.icmp_signed("!=", info, INT(0))
            _clear_above(builder, x, args[0])
        _no_number_if(builder, failed, x, args[0])
        return failed

    return signature(types.boolean, x), codegen


def _pull_back_block(factor: Any, ct: Any, n: int) -> None:
    """Murray's unblocked algorithm; leaves twice the cotangent on the diagonal."""
    for j in range(n - 1, -1, -1):
        d = factor[j, j]
        own = ct[j, j]
        for i in range(j + 1, n):
            ct[i, j] = ct[i, j] / d
            own -= factor[i, j] * ct[i, j]
        own /= d
        ct[j, j] = own
        for k in range(j):
            ct[j, k] -= own * factor[j, k]
        for i in range(j + 1, n):
            c = ct[i, j]
            for k in range(j):
                ct[j, k] -= c * factor[i, k]
                ct[i, k] -= c * factor[j, k]


@Intrinsic
def cholesky_pullback(typingctx: Any, ct: Any, factor: Any) -> Any:
    """Replace the cotangent of a factor by that of its matrix A, by blocks (arXiv:1602.07527, 4.2).

    With A' symmetric and its diagonal doubled, the blocks below and left of a diagonal block
    follow: S' - A' S for the side S, times the inverse of the triangle above it; then the
    triangle's own.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        n = ct.shape[0]
        if n <= SMALL_MATRIX:
            small_pullback(builder, ct, args[0], args[1], _pull_back_block)
            return context.get_dummy_value()
        block = max(BLOCK, -(-n // BLOCKS))
        fortran = Fortran(context, builder, ct.dtype)
        cts, lower = args
        corner = FixedArray(ct.dtype, (block, block), (n, 1))  # its size is an argument
        inner = (corner, corner, types.int64)

        def at(array: Any, row: int, column: int) -> Any:
            return builder.gep(array, [WORD(row * n + column)], inbounds=True)

        def pull_back(first: int, last: int) -> None:
            if last - first <= block:
                corners = [at(x, first, first) for x in (lower, cts)]
                _call_helper(builder, _pull_back_block, inner, [*corners, WORD(last - first)])
                return
            half = ((last - first) // block + 1) // 2 * block
            middle, rows = first + half, last - first - half
            pull_back(middle, last)
            side, ct_side = at(lower, middle, first), at(cts, middle, first)
            fortran.call("symm", "R", "U", half, rows, -1.0, at(cts, middle, middle), n,
                         side, n, 1.0, ct_side, n)  # fmt: skip
            fortran.call("trsm", "L", "U", "N", "N", half, rows, 1.0, at(lower, first, first), n,
                         ct_side, n)  # fmt: skip
            fortran.call("gemm", "N", "T", half, half, rows, -1.0, side, n, ct_side, n,
                         1.0, at(cts, first, first), n)  # fmt: skip
            pull_back(first, middle)

        pull_back(0, n)
        with cgutils.for_range(builder, WORD(n)) as loop:
            place = builder.gep(cts, [builder.mul(loop.index, WORD(n + 1))], inbounds=True)
            half = ir.Constant(fortran.real, 0.5)
            builder.store(builder.fmul(builder.load(place), half), place)
        _clear_above(builder, ct, cts)
        return context.get_dummy_value()

    return signature(types.none, ct, factor), codegen


# ---- triangles


def _triangular(lower: bool, unit: bool) -> Any:
    @Intrinsic
    def solve(typingctx: Any, x: Any, t: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            (n, columns), (down, along) = x.shape, t.strides
            if n <= SMALL_MATRIX:
                small_triangular(builder, (x, t), args, lower, unit)
                return context.get_dummy_value()
            stored = along == 1  # row-major; else a transpose, column-major
            uplo = "U" if lower == stored else "L"
            diagonal = "U" if unit else "N"
            lead = max(down if stored else along, n)
            fortran = Fortran(context, builder, x.dtype)
            if columns == 1:
                flag = "T" if stored else "N"
                fortran.call("trsv", uplo, flag, diagonal, n, args[1], lead, args[0], 1)
            elif columns:  # asked for x.T: x.T @ t.T is given
                flag = "N" if stored else "T"
                fortran.call("trsm", "R", uplo, flag, diagonal, columns, n, 1.0, args[1], lead,
                             args[0], columns)  # fmt: skip
            return context.get_dummy_value()

        return signature(types.none, x, t), codegen

    return solve


solve_lower, solve_upper = _triangular(True, False), _triangular(False, False)
solve_unit_lower, solve_unit_upper = _triangular(True, True), _triangular(False, True)


# ---- LU factors


@Intrinsic
def lu(typingctx: Any, x: Any, pivots: Any) -> Any:
    """Replace x by the transposed factors of x.T."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        n = x.shape[0]
        if n <= SMALL_MATRIX:
            small_lu(builder, x, *args)
        else:
            Fortran(context, builder, x.dtype).checked("getrf", n, n, args[0], n, args[1])
        return context.get_dummy_value()

    return signature(types.none, x, pivots), codegen


def _lu_solve(flag: str) -> Any:
    @Intrinsic
    def solve(typingctx: Any, x: Any, factors: Any, pivots: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows, n = x.shape
            fortran = Fortran(context, builder, x.dtype)
            if n <= SMALL_MATRIX:
                small_lu_solve(builder, (x, factors), args, flag == "T")
            elif rows > 1 and n <= ALONE:
                with cgutils.for_range(builder, WORD(rows)) as loop:
                    row = builder.gep(args[0], [builder.mul(loop.index, WORD(n))], inbounds=True)
                    fortran.checked("getrs", flag, n, 1, args[1], n, args[2], row, n)
            elif rows:
                fortran.checked("getrs", flag, n, rows, args[1], n, args[2], args[0], n)
            return context.get_dummy_value()

        return signature(types.none, x, factors, pivots), codegen

    return solve


lu_solve, lu_solve_transposed = _lu_solve("N"), _lu_solve("T")


@Intrinsic
def inverse_t(typingctx: Any, x: Any, work: Any, pivots: Any) -> Any:
    """Replace the factors x by the transposed inverse; by NaN, if the matrix is singular."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        n = x.shape[0]
        if n <= SMALL_MATRIX:
            singular = small_inverse(builder, x, args[0], args[2])
        else:
            fortran = Fortran(context, builder, x.dtype)
            info = fortran.checked("getri", n, args[0], n, args[2], args[1], work.shape[0])
            singular = builder.icmp_signed("!=", info, INT(0))
        _no_number_if(builder, singular, x, args[0])
        return context.get_dummy_value()

    return signature(types.none, x, work, pivots), codegen


@Intrinsic
def slogdet(typingctx: Any, factors: Any, pivots: Any) -> Any:
    """The sign and the logarithm of a determinant, from the factors of its matrix."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        n = factors.shape[0]
        real = context.get_data_type(factors.dtype)
        zero, one, minus_one = (ir.Constant(real, v) for v in (0.0, 1.0, -1.0))
        sign = cgutils.alloca_once_value(builder, one)
        total = cgutils.alloca_once_value(builder, zero)
        log = builder.module.declare_intrinsic("llvm.log", [real])
        fabs = builder.module.declare_intrinsic("llvm.fabs", [real])
        with cgutils.for_range(builder, WORD(n)) as loop:
            place = builder.mul(loop.index, WORD(n + 1))
            d = builder.load(builder.gep(args[0], [place], inbounds=True))
            pivot = builder.load(builder.gep(args[1], [loop.index], inbounds=True))
            number = builder.trunc(builder.add(loop.index, WORD(1)), INT)
            swapped = builder.icmp_signed("!=", pivot, number)
            negative = builder.fcmp_ordered("<", d, zero)
            factor = builder.select(builder.xor(swapped, negative), minus_one, one)
            factor = builder.select(builder.fcmp_ordered("==", d, zero), zero, factor)
            builder.store(builder.fmul(builder.load(sign), factor), sign)
            logarithm = builder.call(log, [builder.call(fabs, [d])])
            builder.store(builder.fadd(builder.load(total), logarithm), total)
        pair = [builder.load(sign), builder.load(total)]
        return context.make_tuple(builder, sig.return_type, pair)

    return signature(types.UniTuple(factors.dtype, 2), factors, pivots), codegen


# ---- banded systems


def _diagonals(builder: Any, x: FixedArray, lower: Any) -> list[Any]:
    """The numbers of diagonals of a banded matrix below and above, as Fortran takes them."""
    below = builder.trunc(lower, INT)
    above = builder.sub(INT(x.shape[1] - 1), builder.mul(below, INT(2)))
    return [cgutils.alloca_once_value(builder, value) for value in (below, above)]


@Intrinsic
def banded_lu(typingctx: Any, x: Any, pivots: Any, lower: Any) -> Any:
    """Replace a banded matrix by its factors."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        n, width = x.shape
        fortran = Fortran(context, builder, x.dtype)
        if n:
            bands = _diagonals(builder, x, args[2])
            fortran.checked("gbtrf", n, n, *bands, args[0], width, args[1])
        return context.get_dummy_value()

    return signature(types.none, x, pivots, types.int64), codegen


def _banded_solve(flag: str) -> Any:
    @Intrinsic
    def solve(typingctx: Any, x: Any, factors: Any, pivots: Any, lower: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            (rows, n), width = x.shape, factors.shape[1]
            fortran = Fortran(context, builder, x.dtype)
            if rows and n:
                bands = _diagonals(builder, factors, args[3])
                fortran.checked("gbtrs", flag, n, *bands, rows, args[1], width, args[2], args[0], n)
            return context.get_dummy_value()

        return signature(types.none, x, factors, pivots, types.int64), codegen

    return solve


banded_solve, banded_solve_transposed = _banded_solve("N"), _banded_solve("T")


def _call_helper(builder: Any, helper: Any, kinds: tuple[Any, ...], given: list[Any]) -> None:
    """Call a Python function of arrays that don't overlap, and of numbers. It returns nothing."""
    name = f"{helper.__name__} {kinds}"
    if name not in builder.module.globals:
        tree = tree_of(helper)
        taken = [TARGET.get_value_type(kind) for kind in kinds]
        function = procedure(builder.module, name, taken)
        translator = Translator(helper.__globals__, function)
        for parameter, argument, kind in zip(tree.args.args, function.args, kinds, strict=True):
            translator.take(parameter.arg, argument, kind)
            if isinstance(kind, FixedArray):
                argument.add_attribute("noalias")
        translator.body(tree.body[1:])  # after the docstring
        translator.builder.ret_void()
        translator.finish()
    builder.call(builder.module.globals[name], given)
