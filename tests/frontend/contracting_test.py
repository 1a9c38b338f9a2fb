"""Products that sum: dot and matmul of all ranks, tensordot, einsum and their relatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontend.check import check, check_value, normal, source_line

from tapegrad import grad, jit, trace
from tapegrad.typing import Compile

SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (1, 3, 4)),
    ((1, 2, 3), (5, 3, 1)),
    ((6, 1, 2, 3), (5, 3, 4)),
    ((2, 0), (0, 3)),
    ((0, 3), (3, 2)),
    ((1, 1), (1, 1)),
]


@pytest.mark.every(2)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_matmul_of_all_ranks(shapes: Any) -> None:
    x, y = normal(*shapes[0]), normal(*shapes[1], seed=1)
    check(lambda a, b: a @ b, x, y)
    check(lambda a, b: np.matmul(a, b), x, y)
    check(lambda a: a @ y, x)
    check(lambda b: x @ b, y)
    check(lambda a, b: a @ b, x.astype(np.float32), y)
    check_value(lambda a, b: a @ b, x.astype(np.float32), y.astype(np.float32))
    check_value(lambda a, b: a @ b, (9 * x).astype(int), (9 * y).astype(np.int32))


@pytest.mark.every(2)
@pytest.mark.parametrize("shapes", SHAPES + [((), (3,)), ((3, 2), ()), ((), ())], ids=str)
def test_dot_of_all_ranks(shapes: Any) -> None:
    x, y = normal(*shapes[0]), normal(*shapes[1], seed=1)
    if not (x.ndim and y.ndim) or x.shape[-1] == y.shape[-2 if y.ndim > 1 else 0]:
        check(lambda a, b: np.dot(a, b), x, y)
        check(lambda a: np.dot(a, y), x)
        check(lambda b: np.dot(x, b), y)


@pytest.mark.parametrize("axes", [0, 1, ((2,), (0,)), (-1, 0), ([1, 2], [1, 0]), ((1, 2), (1, 0))])
def test_tensordot(axes: Any) -> None:
    check(lambda a, b: np.tensordot(a, b, axes), normal(2, 3, 4), normal(4, 3, 5))


def test_tensordot_over_two_axes_by_default() -> None:
    check(lambda a, b: np.tensordot(a, b), normal(2, 3, 4), normal(3, 4, 5))
    check(lambda a, b: np.tensordot(a, b), normal(3, 4), normal(3, 4, seed=1))


A, B, C = normal(3, 4), normal(4, 5), normal(5, 3)
S, T = normal(3, 3), normal(2, 3, 4)

EINSUM = [
    lambda: ("ij,jk->ik", A, B),
    lambda: ("ij,jk", A, B),
    lambda: ("ij,jk->ki", A, B),
    lambda: ("ij,jk->", A, B),
    lambda: ("ij,jk->j", A, B),
    lambda: ("ij,jk->ijk", A, B),
    lambda: (" i j , j k -> i k ", A, B),
    lambda: ("ij,jk,ki->", A, B, C),
    lambda: ("ij,jk,kl->il", A, B, C),
    lambda: ("ij,jk,ki", A, B, C),
    lambda: ("ij,jk,kl,lm->im", A, B, C, A),
    lambda: ("i,j,k->ijk", A[0], B[0], C[0]),
    lambda: ("i,i,i->i", A[:, 0], C[0], S[0]),
    lambda: ("ii", S),
    lambda: ("ii->i", S),
    lambda: ("ii->", S),
    lambda: ("ij->ji", A),
    lambda: ("ij->j", A),
    lambda: ("ij->", A),
    lambda: ("ba", A),
    lambda: ("ij->ij", A),
    lambda: ("ijj->i", normal(2, 3, 3)),
    lambda: ("iii->i", normal(3, 3, 3)),
    lambda: ("iij,jk->ik", normal(3, 3, 4), B),
    lambda: ("ii,jj->ij", S, normal(4, 4)),
    lambda: ("i,i", A[0], B[:, 0]),
    lambda: ("i,j->ij", A[0], B[0]),
    lambda: ("ij,ij->ij", A, A * 2),
    lambda: ("ij,ij->i", A, A * 2),
    lambda: ("ij,ij", A, A * 2),
    lambda: ("ij,j->i", A, B[:, 0]),
    lambda: ("bij,jk->bik", T, B),
    lambda: ("bij,bkj->bik", T, normal(2, 5, 4)),
    lambda: ("bij,bij->b", T, T + 1),
    lambda: ("...ij,...jk->...ik", T, B),
    lambda: ("...ij,jk->...ik", normal(6, 2, 3, 4), B),
    lambda: ("...j,...j->...", T, normal(3, 4)),
    lambda: ("...i->...", T),
    lambda: ("...->...", T),
    lambda: ("...,...", T, T[0]),
    lambda: (",ij->ij", 2.0, A),
    lambda: ("...a,...b->...ab", T, T[..., :2]),
    lambda: ("bhid,bhjd->bhij", normal(2, 2, 3, 4), normal(2, 2, 5, 4)),
    lambda: ("ij,jk->ik", A[:, :1], B),
    lambda: ("ij,ij->ij", A[:, :1], A),
    lambda: ("ij,ij->j", A[:1], A),
    lambda: ("ij,jk->ik", A[:0], B),
    lambda: ("ij,jk->ik", A[:, :0], B[:0]),
]


@pytest.mark.every(8)
@pytest.mark.parametrize("case", EINSUM, ids=source_line)
def test_einsum(case: Any) -> None:
    text, *arrays = case()
    check(lambda *xs: np.einsum(text, *xs), *arrays)
    if len(arrays) > 1:  # the others captured, plain
        check(lambda x: np.einsum(text, x, *arrays[1:]), arrays[0])
        check(lambda x: np.einsum(text, *arrays[:-1], x), arrays[-1])


OTHERS = [
    lambda x, y: np.einsum(x, [0, 1], y, [1, 2], [2, 0]),
    lambda x, y: np.einsum(x, [0, 1], y, [1, 2]),
    lambda x, y: np.einsum(x, [Ellipsis, 1], y, [1, 2], [Ellipsis, 2]),
    lambda x, y: np.einsum("ij,jk->ik", x, y, optimize=True),
    lambda x, y: np.einsum("ij,jk->ik", x, y, optimize="greedy"),
    lambda x, y: np.einsum("ij,jk->ik", x, y, out=np.zeros_like(x @ y)),
    lambda x, y: np.einsum("ij,jk->ik", x, y, dtype=np.float64),
    lambda x, y: np.einsum("ij,jk->ik", x, np.ones((4, 5), int)),
    lambda x, y: np.outer(x, y),
    lambda x, y: np.outer(x[0], y[0]),
    lambda x, y: np.outer(x[0], np.arange(3)),
    lambda x, y: np.outer(x[0], y[0], out=np.zeros_like(x, shape=(4, 5))),
    lambda x, y: np.inner(x, y.T),
    lambda x, y: np.inner(x[0], y[:, 0]),
    lambda x, y: np.inner(x, 2.0),
    lambda x, y: np.inner(x[0, 0], y),
    lambda x, y: np.vdot(x, y.T[:3]),
    lambda x, y: np.vecdot(x, y.T[:3]),
    lambda x, y: np.vecdot(x, y[:3, :4], axis=0),
    lambda x, y: np.linalg.vecdot(x, y.T[:3]),
    lambda x, y: np.matvec(x, y[:, 0]) if hasattr(np, "matvec") else x @ y[:, 0],
    lambda x, y: np.vecmat(x[0], y) if hasattr(np, "vecmat") else x[0] @ y,
    lambda x, y: np.kron(x, y),
    lambda x, y: np.kron(x[0], y),
    lambda x, y: np.kron(x, 2.0),
    lambda x, y: np.cross(x[:, :3], y[:3, :3]),
    lambda x, y: np.cross(x[:, :3], y[0, :3]),
    lambda x, y: np.cross(x[:, :3].T, y[:3, :3], axisa=0, axisb=1, axisc=0),
    lambda x, y: np.cross(x[:3].T, y[:4, :3], axis=1),
    lambda x, y: np.linalg.cross(x[:, :3], y[:3, :3]),
    lambda x, y: np.linalg.outer(x[0], y[0]),
    lambda x, y: np.linalg.matmul(x, y),
    lambda x, y: np.linalg.tensordot(x, y, axes=1),
    lambda x, y: np.linalg.matrix_transpose(x) + y[:, :3],
    lambda x, y: np.linalg.multi_dot([x, y, y.T]),
    lambda x, y: np.linalg.multi_dot([x[0], y, y[0]]),
    lambda x, y: np.linalg.matrix_power(x[:, :3], 3),
    lambda x, y: np.linalg.matrix_power(x[:, :3], 0),
    lambda x, y: np.linalg.matrix_power(x[:, :3], 6),
    lambda x, y: np.matmul(x, y, out=np.zeros_like(x @ y)),
    lambda x, y: np.dot(x, y, out=np.zeros_like(x @ y)),
    lambda x, y: np.dot(x, 3.0),
    lambda x, y: np.dot(2, y),
    lambda x, y: np.dot(x, np.ones((4, 2), np.float32)),
    lambda x, y: x.dot(y),
    lambda x, y: x.T @ x,
    lambda x, y: x[:, ::-1] @ y[::-2][::-1].repeat(2, axis=0),
    lambda x, y: x[:, 1:3] @ y[1:3],
    lambda x, y: [[1.0, 2.0, 3.0]] @ x,
    lambda x, y: x @ [1.0, 2.0, 3.0, 4.0],
]


@pytest.mark.every(2)
@pytest.mark.parametrize("f", OTHERS, ids=source_line)
def test_relatives(f: Any) -> None:
    check(f, normal(3, 4), normal(4, 5))
    check_value(f, normal(3, 4).astype(np.float32), normal(4, 5).astype(np.float32))
    check_value(f, normal(3, 4).astype(np.float32), normal(4, 5))


def test_gradients_have_the_operands_dtypes() -> None:
    x, y = normal(3, 4).astype(np.float32), normal(4, 5)
    gx, gy = grad(lambda a, b: np.sum((a @ b) ** 2), argnums=(0, 1), compile="never")(x, y)
    assert gx.dtype == np.float32
    assert gy.dtype == np.float64


def test_einsum_contracts_with_matmul() -> None:
    """A contraction is no product over all subscripts: the largest value stays small."""
    x = normal(30, 40)
    _, tape = trace(lambda a: np.einsum("ij,jk,kl->il", a, a.T, a), x)
    assert max(out.aval.size for call in tape.calls for out in call.outs) <= 40 * 40


@pytest.mark.parametrize("compile", ["never", "always"])
def test_signs_of_zeros(compile: Compile) -> None:
    """np.clip keeps -0.0, which multiples by np.dot lose; np.maximum gives the latter of two."""

    def f(x: Any, y: Any) -> Any:
        outs = np.dot(x, 2.0), np.inner(1.0, x), np.tensordot(x, 1.0, 0), np.dot(x[:1], 2.0)
        kept = np.clip(x, 0.0, 1.0), x.clip(-1.0, -0.0), x.clip(0.0), x.clip(max=-0.0)
        ties = np.maximum(x, y), np.maximum(y, x), np.minimum(x, y), np.minimum(y, x)
        return [1 / z for z in (*outs, *kept, *ties)]

    x, y = np.array([-0.0, 0.0, np.nan, 1.0]), np.array([0.0, -0.0, 1.0, np.nan])
    with np.errstate(all="ignore"):
        for found, right in zip(jit(f, compile=compile)(x, y), f(x, y), strict=True):
            np.testing.assert_array_equal(found, right)
