"""Small matrices are computed without BLAS and LAPACK, and as with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.emit.check import assert_agree, compiled

from tapegrad.backends.cpu import support
from tapegrad.backends.cpu.linking import FORTRAN
from tapegrad.backends.cpu.machine_code import kernel_function
from tapegrad.backends.cpu.support.unrolled import SMALL_MATRIX
from tapegrad.ir.tape import Aval, Builder, Tape, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Slice
from tapegrad.primitives.contractions import Einsum
from tapegrad.primitives.solving import (
    LU,
    Cholesky,
    CholeskyPullback,
    LUSolve,
    inverse_t,
    slogdet,
)
from tapegrad.primitives.triangles import TriangularSolve
from tapegrad.primitives.views import GetItem, Transpose

SIZES = range(1, SMALL_MATRIX + 2)  # the last one is LAPACK's
COLUMNS = (1, 3, 9, 19)  # of right sides: one, some, more than a vector has, and several vectors


def turned(builder: Builder, x: Var) -> Var:
    *batch, rows, columns = range(len(x.shape))
    return builder.call(Transpose((*batch, columns, rows)), [x])[0]


def systems(batch: tuple[int, ...], dtype: Any, factors_too: bool = True) -> Tape:
    """What is done with a matrix, a positive definite one and right sides, for each size."""
    builder = Builder("systems")
    outs: list[Var] = []
    for n in SIZES:
        k = COLUMNS[n % len(COLUMNS)]
        shapes = (*batch, n, n), (*batch, n, n), (*batch, n, k)
        a, definite, right = (builder.input(Aval(s, np.dtype(dtype))) for s in shapes)
        rows = turned(builder, right)
        factors, pivots = builder.call(LU(), [a])
        lower, failed = builder.call(Cholesky(), [definite])
        sign, logarithm = builder.call(slogdet, [a, factors, pivots])
        outs += [factors, pivots, lower, failed, sign] if factors_too else []
        outs += builder.call(LUSolve(), [a, factors, pivots, rows])
        outs += builder.call(LUSolve(True), [a, factors, pivots, rows])
        outs += builder.call(inverse_t, [a, factors, pivots])
        outs.append(logarithm)
        for low in (True, False):
            triangle = lower if low else turned(builder, lower)
            outs += builder.call(TriangularSolve(low), [triangle, right])
            outs += builder.call(TriangularSolve(low, True), [definite, right])
    return builder.finish(outs)


def numbers(tape: Tape, seed: int, spoilt: str = "") -> list[np.ndarray]:
    """Values for the inputs: matrices whose rows have to be swapped, positive definite ones, right
    sides; or matrices of which some are singular, and not positive definite, or not finite."""
    rng = np.random.default_rng(seed)
    values = []
    for number, x in enumerate(tape.inputs):
        value = rng.normal(size=x.shape)
        if number % 3 == 1:
            n = x.shape[-1]
            value = value @ np.swapaxes(value, -1, -2) / n + np.eye(n)
        if number % 3 == 0 and spoilt == "singular":  # whatever is rounded
            at = (rng.integers(x.shape[-1]), slice(None))
            value[(..., *(at if rng.random() < 0.5 else at[::-1]))] = 0
        elif number % 3 == 1 and spoilt == "singular":
            value -= 3 * np.eye(x.shape[-1])
        elif number % 3 < 2 and spoilt:
            at = rng.integers(x.shape[-1], size=2)
            value[..., at[0], at[1]] = float(spoilt)
        values.append(value.astype(x.dtype))
    return values


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("batch", "dtype"),
    [*((batch, np.float64) for batch in [(), (0,), (3,)]), ((2, 3), np.float32)],
    ids=str,
)
def test_they_are_what_lapack_makes_of_them(batch, dtype):
    """In single precision OpenBLAS multiplies by reciprocals on some processors: what it makes of
    infinity, and of a division by 0, is NaN there and a number elsewhere."""
    tape = systems(batch, dtype)
    kinds = ("", "singular", "inf") if dtype is np.float64 else ("",)
    assert_agree(tape, *[numbers(tape, seed, spoilt) for seed in range(3) for spoilt in kinds])


def test_they_may_lie_in_memory_in_any_way():
    tape = systems((3,), np.float64)
    values = numbers(tape, 0)
    expected = compiled(tape)(*values)
    for layout in (np.asfortranarray, lambda x: np.repeat(x, 2, axis=-1)[..., ::2]):
        for x, y in zip(compiled(tape)(*map(layout, values)), expected, strict=True):
            np.testing.assert_array_equal(x, y)


def test_nan_spoils_what_it_spoils_in_lapack():
    """In the factors it may be in other places, and the determinant's sign may be another: where
    OpenBLAS finds a pivot among NaN depends on the processor."""
    tape = systems((3,), np.float64, False)
    assert_agree(tape, *[numbers(tape, seed, "nan") for seed in range(5)])


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_cotangents_of_factors(dtype):
    builder = Builder("pullbacks")
    outs: list[Var] = []
    for n in SIZES:
        a, definite, ct = (builder.input(Aval((3, n, n), np.dtype(dtype))) for _ in range(3))
        lower, _ = builder.call(Cholesky(), [definite])
        outs += builder.call(CholeskyPullback(), [lower, ct])
        outs += builder.call(CholeskyPullback(), [lower, turned(builder, a)])
    tape = builder.finish(outs)
    assert_agree(tape, *[numbers(tape, seed) for seed in range(3)])


def test_pivots_whose_reciprocals_are_infinite():
    """LAPACK gives something else, since OpenBLAS doesn't divide by them."""
    text = "def kernel(a, p, b):\n    lu(a, p)\n    lu_solve(b, a, p)\n    return 0\n"
    function = kernel_function(text, "kernel", support.namespace())
    shapes = (3, 3), (3,), (1, 3)
    types = [("array", s, np.int32 if len(s) == 1 else np.float64) for s in shapes]
    tiny = 2.0**-1060
    matrix = np.array([[1.0, 2.0, 0.0], [4.0, 4.0, 8.0], [2.0, 8.0, 4.0]])
    x = np.array([1.0, 2.0, 4.0])
    pivots, b = np.zeros(3, np.int32), (matrix @ x)[None] * tiny
    support.compiled(function, types)(np.ascontiguousarray(matrix.T) * tiny, pivots, b)
    np.testing.assert_array_equal(pivots, [2, 3, 3])
    np.testing.assert_array_equal(b, [x])


# ---- products

matmul = Einsum("ij,jk->ik")
SHAPES = [(m, k, n) for m in (2, 3, 8) for k in (2, 5, 16) for n in (2, 3, 8)]
SHAPES += [(2, 2, 9), (3, 4, 17), (2, 3, 33), (12, 7, 12), (40, 3, 3), (2, 17, 2), (2, 40, 13)]


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products(dtype):
    """Of matrices, their transposes and parts of others; some are added to others."""
    builder = Builder("products")
    outs: list[Var] = []
    for m, k, n in SHAPES:
        wide = (m, k), (k, n), (n, k), (k, m), (m, k + 1)
        x, y, yt, xt, more = (builder.input(Aval(s, np.dtype(dtype))) for s in wide)
        (part,) = builder.call(GetItem((Slice(0, m, 1), Slice(1, k, 1))), [more])
        yt, xt = turned(builder, yt), turned(builder, xt)
        outs += builder.call(matmul, [x, y])
        outs += builder.call(matmul, [part, yt])
        (first,), (second,) = builder.call(matmul, [xt, y]), builder.call(matmul, [xt, yt])
        outs += builder.call(ew.add, [first, second])
    tape = builder.finish(outs)
    rng = np.random.default_rng(0)
    values = [rng.normal(size=x.shape).astype(dtype) for x in tape.inputs]
    spoilt = [np.where(rng.random(x.shape) < 0.05, np.inf, x).astype(dtype) for x in values]
    assert_agree(tape, values, spoilt)


def test_batches_of_products():
    builder = Builder("batches")
    outs: list[Var] = []
    for n in (2, 4, 5, 8, 9):
        for text, x, y in (
            ("hij,jk->hik", (3, n, n), (n, n)),
            ("ghij,hjk->ghik", (2, 3, n, n), (3, n, n)),
            ("hij,hjk->hik", (0, n, n), (0, n, n)),
        ):
            operands = [builder.input(Aval(s, np.dtype(float))) for s in (x, y)]
            outs += builder.call(Einsum(text), operands)
    tape = builder.finish(outs)
    rng = np.random.default_rng(0)
    assert_agree(tape, [rng.normal(size=x.shape) for x in tape.inputs])


# ---- who is called


def machine_code(text: str, *shapes: Any) -> bytes:
    """The object file of a kernel that makes one call."""
    names = ", ".join("abc"[: len(shapes)])
    text = f"def kernel({names}):\n    {text}\n    return 0\n"
    parameters = [("array", s, np.int32 if len(s) == 1 else np.float64) for s in shapes]
    function = kernel_function(text, "kernel", support.namespace())
    return support.object_code(function, parameters)


@pytest.mark.every(2)
@pytest.mark.parametrize("n", [SMALL_MATRIX, SMALL_MATRIX + 3])
def test_who_is_called(n):
    square, row = (n, n), (n,)
    calls = {
        "cholesky(a)": [square],
        "cholesky_pullback(a, b)": [square, square],
        "lu(a, b)": [square, row],
        "lu_solve(a, b, c)": [square, square, row],
        "lu_solve_transposed(a, b, c)": [square, square, row],
        "solve_lower(a, b.T)": [square, square],
        "solve_unit_upper(a, b)": [square, square],
        "matmul(a, b.T, c)": [square, square, square],
        "add_matmul(a, b, c)": [square, square, square],
    }
    if n > SMALL_MATRIX:
        del calls["cholesky_pullback(a, b)"]  # LAPACK has none, and BLAS works on blocks
    for text, shapes in calls.items():
        found = FORTRAN.encode() in machine_code(text, *shapes)
        assert found == (n > SMALL_MATRIX and "matmul" not in text), text
