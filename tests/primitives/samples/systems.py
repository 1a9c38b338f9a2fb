"""Of linear systems, their factors, and determinants."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import scipy.integrate
import scipy.linalg
from tests.primitives.samples.drawn import (
    Sample,
    definite,
    each_matrix,
    normal,
    regular,
    triangular,
)

from tapegrad.primitives.banded import BandedLU, BandedSolve
from tapegrad.primitives.base import Primitive
from tapegrad.primitives.determinants import Cofactors, Det
from tapegrad.primitives.filters import LinearFilter
from tapegrad.primitives.solving import (
    LU,
    Cholesky,
    CholeskyPullback,
    InverseT,
    LUSolve,
    SLogDet,
)
from tapegrad.primitives.triangles import Triangle, TriangularSolve


def symmetric(a: Any) -> Any:
    return np.tril(a) + np.tril(a, -1).T


def _cholesky(a: Any) -> Any:
    n = len(a)
    out = np.zeros((n, n))
    for j in range(n):
        for i in range(j, n):
            rest = a[i, j] - sum(out[i, k] * out[j, k] for k in range(j))
            out[i, j] = math.sqrt(rest) if i == j else rest / out[j, j]
    return out, False


def _cholesky_pullback(factor: Any, ct: Any) -> Any:
    """The Jacobian of A = L L^T in the lower triangles, solved with."""
    places = list(zip(*np.tril_indices(len(factor)), strict=True))
    jacobian = np.zeros((len(places), len(places)))
    factor = np.tril(factor)
    for column, (k, m) in enumerate(places):
        step = np.zeros_like(factor)
        step[k, m] = 1
        change = step @ factor.T + factor @ step.T
        jacobian[:, column] = [change[at] for at in places]
    out = np.zeros_like(factor)
    found = np.linalg.solve(jacobian.T, [ct[at] for at in places])
    for at, value in zip(places, found, strict=True):
        out[at] = value
    return out


def _eliminated(a: Any) -> Any:
    """Gaussian elimination with partial pivoting: packed factors, transposed, and pivots."""
    a, pivots = np.array(a), []
    for k in range(len(a)):
        best = k + int(np.argmax(np.abs(a[k:, k])))
        pivots.append(best + 1)
        a[[k, best]] = a[[best, k]]
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a.T, np.array(pivots, np.int32)


def _aligned(v: Any, like: Any) -> Any:
    """Columns with the signs of others."""
    return v * np.sign(np.sum(v * like, axis=0))


def eigenvectors(a: Any, lower: bool) -> Any:
    """From the null space of A - w I; LAPACK's signs."""
    a = symmetric(a if lower else a.T)
    w = np.sort(np.linalg.eigvals(a))
    v = np.stack([np.linalg.svd(a - k * np.eye(len(a)))[2][-1] for k in w], axis=1)
    return w, _aligned(v, np.linalg.eigh(a, "L" if lower else "U")[1]), False


REAL_SPECTRUM = np.array([[3.0, 0.5, -0.2], [0.3, 1.0, 0.4], [0.1, -0.3, -2.0]])


def real_eigenvectors(a: Any) -> Any:
    """From the null space of A - w I; LAPACK's order and signs."""
    w, like = np.linalg.eig(a)
    v = np.stack([np.linalg.svd(a - k * np.eye(len(a)))[2][-1] for k in w], axis=1)
    return w, _aligned(v, like), False, False


def further_columns(a: Any, of: str) -> Any:
    """The null space of the transpose, in LAPACK's basis."""
    a = a.T if of == "right" else a
    further = np.linalg.qr(a, "complete")[0] if of == "qr" else np.linalg.svd(a)[0]
    further = np.linalg.svd(a.T)[2].T if of == "right" else further
    null = scipy.linalg.null_space(a.T)
    return null @ (null.T @ further[:, a.shape[1] :])


def singular_vectors(a: Any) -> Any:
    """From the eigenvectors of A^T A, or A A^T; LAPACK's signs."""
    like_u, _, like_vt = np.linalg.svd(a, full_matrices=False)
    k = min(a.shape)
    if a.shape[0] < a.shape[1]:
        u = _aligned(np.linalg.eigh(a @ a.T)[1][:, ::-1][:, :k], like_u)
        s = np.sqrt(np.diag(u.T @ a @ a.T @ u))
        return u, s, (u / s).T @ a, False
    v = _aligned(np.linalg.eigh(a.T @ a)[1][:, ::-1][:, :k], like_vt.T)
    s = np.sqrt(np.diag(v.T @ a.T @ a @ v))
    return a @ v / s, s, v.T, False


def gram_schmidt(a: Any) -> Any:
    """LAPACK's signs."""
    like, q = np.linalg.qr(a)[0], np.zeros_like(a)
    for j in range(a.shape[1]):
        rest = a[:, j] - q[:, :j] @ (q[:, :j].T @ a[:, j])
        rest -= q[:, :j] @ (q[:, :j].T @ rest)
        q[:, j] = rest / np.linalg.norm(rest)
    q = _aligned(q, like)
    return q, np.triu(q.T @ a)


def _factored(
    primitive: Primitive,
    a: Any,
    b: Any,
    f: Any,
    by: Primitive = LU(),  # noqa: B008
) -> Sample:
    rest = () if b is None else (b,)
    operands = (a, *by.evaluate(a), *rest)

    def reference(a: Any, factors: Any, pivots: Any, *rest: Any) -> Any:
        return each_matrix(f)(a, *rest)

    return Sample(primitive, operands, reference, factored=by)


def of_systems() -> dict[type, list[Sample]]:
    inverse = np.linalg.inv
    batches = [(3, 3), (1, 1), (2, 3, 3)]
    pairs = [((3, 3), (3, 2)), ((1, 1), (1, 1)), ((2, 3, 3), (3, 1)), ((3, 3), (2, 3, 2))]
    rows = [((3, 3), (2, 3)), ((1, 1), (1, 1)), ((2, 3, 3), (1, 3)), ((3, 3), (2, 4, 3))]
    large = np.tril(triangular(40, 40)) / 2  # pulled back by blocks
    tri = {(True, 0): np.tril, (True, -1): lambda x: np.tril(x, -1), (False, 1): _strictly_above}

    def triangle(low: bool, unit: bool) -> Any:
        def solved(t: Any, b: Any) -> Any:
            t = (np.tril if low else np.triu)(t)
            if unit:
                np.fill_diagonal(t, 1)
            return inverse(t) @ b

        return solved

    return {
        Triangle: [
            Sample(Triangle(*key), (normal(*shape),), f)
            for key, f in tri.items()
            for shape in ((3, 3), (2, 4), (4, 2), (2, 3, 3))
        ],
        TriangularSolve: [
            Sample(
                TriangularSolve(low, unit),
                (triangular(*t), normal(*b, seed=1)),
                each_matrix(triangle(low, unit)),
                label=f"{low=}, {unit=}, {t}, {b}",
            )
            for low in (True, False)
            for unit in (True, False)
            for t, b in pairs
        ],
        Cholesky: [
            *[Sample(Cholesky(), (definite(*s),), each_matrix(_cholesky)) for s in batches],
            Sample(
                Cholesky(),
                (np.stack([-np.eye(2), np.eye(2)]),),
                lambda x: (np.stack([np.full((2, 2), np.nan), np.eye(2)]), [True, False]),
                smooth=False,
                label="failed",
            ),
        ],
        CholeskyPullback: [
            *[
                Sample(
                    CholeskyPullback(),
                    (triangular(*s), normal(*s, seed=1)),
                    each_matrix(_cholesky_pullback),
                )
                for s in batches
            ],
            Sample(CholeskyPullback(), (large, normal(40, 40)), _cholesky_pullback),
        ],
        LU: [
            Sample(LU(), (regular(*s),), each_matrix(_eliminated), reverse=False) for s in batches
        ],
        LUSolve: [
            _factored(
                LUSolve(turned),
                regular(*a),
                normal(*b, seed=1),
                lambda a, b, turned=turned: b @ inverse(a if turned else a.T),
            )
            for turned in (False, True)
            for a, b in rows
        ],
        InverseT: [
            _factored(InverseT(), regular(*s), None, lambda a: inverse(a.T)) for s in batches
        ],
        SLogDet: [
            _factored(SLogDet(), a, None, lambda a: tuple(np.linalg.slogdet(a)))
            for a in (*[regular(*s) for s in batches], regular(3, 3)[::-1])
        ],
        **_banded(),
        LinearFilter: [
            Sample(
                LinearFilter(), (normal(b), normal(a, seed=1) + 3.0, normal(*x, seed=2)), _filtered
            )
            for b, a, x in ((3, 2, (5,)), (1, 3, (2, 4)), (4, 1, (2, 2)), (2, 3, (1,)))
        ],
    }


def _filtered(b: Any, a: Any, x: Any) -> Any:
    y = np.zeros(x.shape)
    for t in range(x.shape[-1]):
        lags = range(t + 1)
        terms = [b[k] * x[..., t - k] for k in lags if k < len(b)]
        terms += [-a[k] * y[..., t - k] for k in lags[1:] if k < len(a)]
        y[..., t] = sum(terms) / a[0]
    return y


def _banded() -> dict[type, list[Sample]]:
    def bands(*shape: int, lower: int) -> Any:
        """Columns whose main diagonal is large; what isn't in the matrix isn't 0, either."""
        upper = shape[-1] - 1 - 2 * lower
        return normal(*shape) + 3 * (np.arange(shape[-1]) == lower + upper)

    def matrix(columns: Any, lower: int) -> Any:
        n, middle = len(columns), columns.shape[1] - 1 - lower
        inside = [(i, j) for i in range(n) for j in range(n) if lower - middle <= i - j <= lower]
        found = np.zeros((n, n))
        for i, j in inside:
            found[i, j] = columns[j, middle + i - j]
        return found

    def stored(columns: Any, lower: int) -> Any:
        """With zeros for what isn't in the matrix."""
        n, middle = columns.shape[-2], columns.shape[-1] - 1 - lower
        row = np.arange(n)[:, None] + np.arange(columns.shape[-1]) - middle
        inside = (row >= 0) & (row < n) & (np.arange(columns.shape[-1]) >= lower)
        return np.where(inside, columns, 0.0)

    def eliminated(lower: int) -> Any:
        def by_columns(columns: Any) -> Any:
            x, n, middle = columns.copy(), len(columns), columns.shape[1] - 1 - lower
            pivots = np.zeros(n, np.int32)
            for k in range(n):
                below = range(k, min(n, k + lower + 1))
                pivot = max(below, key=lambda i: abs(x[k, middle + i - k]))
                pivots[k] = pivot + 1
                later = range(k, min(n, k + middle + 1))
                for j in later:
                    one, other = middle + k - j, middle + pivot - j
                    x[j, one], x[j, other] = x[j, other], x[j, one]
                for i in below[1:]:
                    x[k, middle + i - k] /= x[k, middle]
                    for j in later[1:]:
                        x[j, middle + i - j] -= x[k, middle + i - k] * x[j, middle + k - j]
            return x, pivots

        return by_columns

    def solution(lower: int, turned: bool) -> Any:
        def solved(columns: Any, b: Any) -> Any:
            a = matrix(columns, lower)
            return b @ np.linalg.inv(a if turned else a.T)

        return solved

    cases = [  # the columns' shape, how many diagonals there are below, and the shape of b
        ((4, 4), 1, (2, 4)),
        ((5, 6), 2, (1, 5)),
        ((3, 3), 0, (2, 3)),
        ((3, 3), 1, (2, 3)),
        ((2, 8), 2, (1, 2)),
        ((2, 4, 4), 1, (2, 3, 4)),
    ]
    return {
        BandedLU: [
            Sample(
                BandedLU(lower),
                (stored(bands(*shape, lower=lower), lower),),
                each_matrix(eliminated(lower)),
                reverse=False,
            )
            for shape, lower, _ in cases
        ],
        BandedSolve: [
            _factored(
                BandedSolve(lower, turned),
                bands(*shape, lower=lower),
                normal(*b, seed=1),
                solution(lower, turned),
                BandedLU(lower),
            )
            for turned in (False, True)
            for shape, lower, b in cases
        ],
    }


def _by_rows(a: Any, *along: Any) -> Any:
    """D^m det(a)[along]: rows of each direction in the place of rows of the matrix, as it is linear
    in each row."""
    if not along:
        return _leibniz(a)
    total = 0.0
    for rows in permutations(range(len(a)), len(along)):
        moved = np.array(a)
        for row, e in zip(rows, along, strict=True):
            moved[row] = e[row]
        total += _leibniz(moved)
    return total


def _leibniz(a: Any) -> Any:
    n = len(a)
    total = 0.0
    for p in permutations(range(n)):
        odd = sum(p[i] > p[j] for j in range(n) for i in range(j)) % 2
        total += (-1) ** odd * math.prod(a[i, p[i]] for i in range(n))
    return np.float64(total)


def _cofactors(a: Any, *along: Any) -> Any:
    """The derivative along each element."""
    found = np.zeros_like(a)
    for at in np.ndindex(a.shape):
        unit = np.zeros_like(a)
        unit[at] = 1
        found[at] = _by_rows(a, *along, unit)
    return found


def of_determinants() -> dict[type, list[Sample]]:
    rank = {r: normal(3, r) @ normal(r, 3, seed=1) for r in range(3)}
    every = [regular(3, 3), regular(1, 1), regular(2, 3, 3), *rank.values(), np.zeros((1, 1))]
    every.append(np.stack([*rank.values(), regular(3, 3)]))
    return {
        Det: [
            Sample(Det(), (a,), each_matrix(_by_rows), label=f"{k}, {a.shape}")
            for k, a in enumerate(every)
        ],
        Cofactors: [
            Sample(
                Cofactors(m),
                (a, *[normal(*a.shape, seed=2 + e) for e in range(m)]),
                each_matrix(_cofactors),
                label=f"{k}, {a.shape}, {m}",
            )
            for m in range(4)
            for k, a in enumerate(every)
        ],
    }


def _strictly_above(x: Any) -> Any:
    return x - np.tril(x)
