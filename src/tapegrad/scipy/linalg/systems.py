"""Linear systems and matrix equations of scipy.linalg.

The structure of a matrix is used for its derivatives too: the backward pass solves with a
triangular, banded or Cholesky-factored matrix as such.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy import matrix_transpose

from tapegrad.extending import at_line, refusal
from tapegrad.extending.arrays import (
    adjoint,
    cast,
    check_square,
    cut_of,
    factored,
    is_singular,
    least_squares,
    one_cut,
    pseudoinverse,
    raise_if,
    solved,
)
from tapegrad.extending.arrays import linalg as numpys
from tapegrad.extending.primitives import (
    BandedDefinite,
    BandedLU,
    BandedSolve,
    DiscreteRiccati,
    Riccati,
    Sylvester,
    ToeplitzSolve,
    TriangularSolve,
    from_triangle,
    inverse_t,
    mirrored,
    stop_gradient,
)
from tapegrad.scipy.linalg.common import answers, checked, column_and_row

SINGULAR = "A singular matrix detected."

# SciPy's names for structures
_STRUCTURES = {
    None: "general",
    "gen": "general",
    "sym": "symmetric",
    "her": "hermitian",
    "pos": "positive definite",
    "banded": "general",
}
_KNOWN = """general symmetric hermitian positive_definite diagonal tridiagonal lower_triangular
upper_triangular"""


@answers()
def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    check_finite: bool = True,
    assume_a: Any = None,
    transposed: bool = False,
) -> Any:
    """The x with a x = b, or a^T x = b. Elements of `a` that `assume_a` excludes aren't read and
    have derivative 0."""
    kind = _STRUCTURES.get(assume_a, assume_a)
    if str(kind).replace(" ", "_") not in _KNOWN.split():
        raise ValueError(f"{assume_a} is not a recognized matrix structure")
    a, b = checked(check_finite, np.atleast_2d(a), np.atleast_1d(b))
    check_square(a)
    if a.dtype.kind == "c" and transposed:
        raise NotImplementedError("complex matrices, transposed")
    if a.size == 1:
        raise_if(np.any(a == 0), SINGULAR)
        whole = (b[:, None] if b.ndim == 1 else b) / a
        return whole[..., 0] if b.ndim == 1 else whole
    if kind == "diagonal":
        d = np.diagonal(a, 0, -2, -1)
        raise_if(np.any(d == 0), SINGULAR)
        _check_rows(a, b)
        return b / (d if b.ndim == 1 else d[..., None])
    if kind == "tridiagonal":
        return _banded(1, bands_of(matrix_transpose(a) if transposed else a, 1, 1), b)
    if kind in ("upper triangular", "lower triangular"):
        low = kind == "lower triangular"
        return _triangular(a, b, low, transposed)
    if kind == "positive definite":
        factor = _cholesky(a, lower)
        return by_triangles(b, [(True, factor), (False, adjoint(factor))])
    if kind in ("symmetric", "hermitian"):
        a = whole_of(a, lower, kind == "hermitian")
    _check_rows(a, b)
    system = factored(a)
    raise_if(is_singular(system[1]), SINGULAR)
    return solved(system, b, transposed)


def whole_of(a: Any, lower: Any, is_hermitian: bool = True) -> Any:
    """The symmetric or Hermitian matrix from one triangle."""
    if is_hermitian:
        return from_triangle(a if lower else adjoint(a))
    return mirrored(a if lower else matrix_transpose(a))


def _cholesky(a: Any, lower: Any) -> Any:
    """The lower Cholesky factor, from one triangle of a positive definite matrix."""
    return numpys.cholesky(a if lower else adjoint(a))


def _check_rows(a: Any, b: Any) -> None:
    if b.shape[-2 if b.ndim > 1 else 0] != a.shape[-1]:
        raise ValueError(f"shapes of a {a.shape} and b {b.shape} are incompatible")


# ---- triangular matrices


@answers(parameters="trans lower unit_diagonal")
def solve_triangular(
    a: Any,
    b: Any,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    check_finite: bool = True,
) -> Any:
    """The x with a x = b for a triangle of `a`, its transpose (1, "T") or its adjoint (2, "C")."""
    trans = {"N": 0, "T": 1, "C": 2}.get(trans, trans)
    a, b = checked(check_finite, a, b)
    check_square(a)
    if trans not in (0, 1, 2) and a.flags.f_contiguous:  # else LAPACK is passed the transpose
        trans = turning(trans)
    if trans == 2:
        return _triangular(np.conjugate(a), b, lower, True, unit_diagonal)
    return _triangular(a, b, lower, bool(trans), unit_diagonal)


def turning(trans: Any) -> int:
    """The 0, 1 or 2 that LAPACK is passed for `trans`, a number."""
    number = trans if isinstance(trans, (str, bytes)) else int(np.real(trans or 0))
    if number not in (0, 1, 2):
        raise ValueError(f"trans={trans!r} is none of 0, 1 and 2")
    return int(number)


def _triangular(a: Any, b: Any, lower: Any, transposed: Any, unit: Any = False) -> Any:
    if not unit:
        singular = np.any(np.diagonal(a, 0, -2, -1) == 0)
        raise_if(singular, "singular matrix: a diagonal element is 0")
    if transposed:
        a, lower = matrix_transpose(a), not lower
    return by_triangles(b, [(lower, a)], unit)


def by_triangles(b: Any, triangles: list[tuple[Any, Any]], unit: Any = False) -> Any:
    """Solve with one triangle after the other; `b` is a vector if it has one axis."""
    _check_rows(triangles[0][1], b)
    x = b[:, None] if b.ndim == 1 else b
    for lower, triangle in triangles:
        x = TriangularSolve(bool(lower), bool(unit))(triangle, x)
    return x[..., 0] if b.ndim == 1 else x


# ---- banded matrices


def bands_of(a: Any, lower: int, upper: int) -> Any:
    """The diagonals as rows in LAPACK's layout: [upper + i - j, j] is a[i, j]."""
    n = a.shape[-1]
    rows = []
    for offset in range(upper, -lower - 1, -1):
        d = np.diagonal(a, offset, -2, -1)
        room = np.zeros((*d.shape[:-1], n - d.shape[-1]), d.dtype)
        rows.append(np.concatenate([room, d] if offset > 0 else [d, room], -1))
    return np.stack(rows, -2)


@answers(parameters="l_and_u")
def solve_banded(l_and_u: Any, ab: Any, b: Any, check_finite: bool = True) -> Any:
    """The x with a x = b, for a banded matrix: ab[u + i - j, j] is a[i, j]."""
    lower, upper = map(operator.index, l_and_u)
    ab, b = checked(check_finite, ab, b)
    if lower + upper + 1 != ab.shape[-2] or min(lower, upper) < 0:
        raise ValueError(f"({lower}, {upper}) aren't numbers of diagonals of {ab.shape[-2]} rows")
    return _banded(lower, ab, b)


def _banded(lower: int, ab: Any, b: Any) -> Any:
    _refuse_complex(ab, "A matrix of a few diagonals", "Use solve, of the matrix in full")
    if ab.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ValueError("shapes of ab and b are not compatible.")
    upper = ab.shape[-2] - lower - 1
    room = np.zeros((*ab.shape[:-2], ab.shape[-1], lower), ab.dtype)
    columns = np.concatenate([room, matrix_transpose(ab)], -1)
    factors, pivots = BandedLU(lower)(columns)
    raise_if(np.any(factors[..., lower + upper] == 0), "singular matrix")
    rows = b[None] if b.ndim == 1 else matrix_transpose(b)
    x = BandedSolve(lower)(columns, factors, pivots, rows)
    return x[..., 0, :] if b.ndim == 1 else matrix_transpose(x)


def _refuse_complex(x: Any, what: str, instead: str) -> None:
    if x.dtype.kind == "c":
        raise refusal(
            f"{what} with complex numbers isn't supported on traced arrays{at_line()}. {instead}"
        )


def both_sides(ab: Any, lower: Any) -> Any:
    """All diagonals of a symmetric matrix, from those on one side."""
    rows = [ab[..., k, :] for k in range(ab.shape[-2])]
    below = rows if lower else rows[::-1]
    if not lower:  # row k above the diagonal is shifted right by k
        below = [below[0], *[_moved(row, k) for k, row in enumerate(below[1:], 1)]]
    above = [_moved(row, -k) for k, row in enumerate(below[1:], 1)]
    return np.stack([*above[::-1], *below], -2)


def _moved(row: Any, by: int) -> Any:
    """Rows shifted by `by` elements to the left, or to the right if `by` is negative."""
    n, count = row.shape[-1], min(abs(by), row.shape[-1])
    room = np.zeros((*row.shape[:-1], count), row.dtype)
    left = [row[..., count:], room]
    return np.concatenate(left if by > 0 else [room, row[..., : n - count]], -1)


@answers()
def solveh_banded(ab: Any, b: Any, lower: bool = False, check_finite: bool = True) -> Any:
    """The x with a x = b, for a positive definite banded matrix, from its diagonals on one side."""
    ab, b = checked(check_finite, ab, b)
    _refuse_complex(ab, "A matrix of a few diagonals", "Use solve, of the matrix in full")
    raise_if(~BandedDefinite(bool(lower))(ab), "a leading minor isn't positive definite")
    return _banded(ab.shape[-2] - 1, both_sides(ab, lower), b)


def banded_triangle(cb: Any, lower: Any, b: Any) -> Any:
    """The x with a x = b, from the diagonals of Cholesky's factor of `a`."""
    _refuse_complex(cb, "A matrix of a few diagonals", "Use cho_solve, of the matrix in full")
    count = cb.shape[-2] - 1
    rows = [cb[..., k, :] for k in range(count + 1)]
    if lower:
        below, above = rows, [_moved(row, -k) for k, row in enumerate(rows)]
    else:
        above = rows[::-1]
        below = [_moved(row, k) for k, row in enumerate(above)]
    half = _banded(count, np.stack(below, -2), b)
    return _banded(0, np.stack(above[::-1], -2), half)


# ---- Toeplitz and circulant matrices


@answers(lists="c_or_cr")
def solve_toeplitz(c_or_cr: Any, b: Any, check_finite: bool = True) -> Any:
    """The x with T x = b, for the Toeplitz matrix T of this first column and first row."""
    c, r = column_and_row(c_or_cr, b)
    c, r, b = checked(check_finite, c, r, b)
    if c.shape[-1] != r.shape[-1] or b.shape[-2 if b.ndim > 1 else 0] != c.shape[-1]:
        raise ValueError("Incompatible dimensions.")
    kind = np.complex128 if b.dtype.kind == "c" else np.float64
    c, r, b = (cast(x, kind) for x in (c, r, b))
    if b.size == 0:
        return b
    if b.dtype.kind == "c":  # our rule for Levinson's recursion is for real numbers
        from tapegrad.scipy.linalg.matrices import toeplitz_of

        system = factored(toeplitz_of(c, r))
        raise_if(is_singular(system[1]), "Singular principal minor")
        return solved(system, b)
    diagonals = np.concatenate([r[..., :0:-1], c], -1)
    rows = b[None] if b.ndim == 1 else matrix_transpose(b)
    x, failed = ToeplitzSolve()(diagonals, rows)
    raise_if(failed, "Singular principal minor")
    return x[..., 0, :] if b.ndim == 1 else matrix_transpose(x)


# ---- inverses


@answers()
def inv(a: Any, check_finite: bool = True, assume_a: Any = None, lower: bool = False) -> Any:
    """The inverse. Elements of `a` that `assume_a` excludes aren't read and have derivative 0."""
    kind = _STRUCTURES.get(assume_a, assume_a)
    (a,) = checked(check_finite, a)
    check_square(a)
    if kind == "positive definite":
        eye = np.zeros_like(a) + np.eye(a.shape[-1], dtype=a.dtype)
        factor = _cholesky(a, lower)
        return by_triangles(eye, [(True, factor), (False, adjoint(factor))])
    if kind in ("symmetric", "hermitian"):
        a = whole_of(a, lower, kind == "hermitian")
    elif kind == "upper triangular":
        a = np.triu(a)
    elif kind == "lower triangular":
        a = np.tril(a)
    elif kind == "diagonal":
        a = np.eye(a.shape[-1], dtype=a.dtype) * a
    elif kind != "general":
        raise KeyError(assume_a)
    system = factored(a)
    raise_if(is_singular(system[1]), SINGULAR)
    return matrix_transpose(inverse_t(*system))


@answers()
def det(a: Any, check_finite: bool = True) -> Any:
    """The determinant in double precision."""
    (a,) = checked(check_finite, a)
    if a.ndim < 2:
        raise ValueError("The input array must be at least two-dimensional.")
    return cast(numpys.det(a), np.complex128 if a.dtype.kind == "c" else np.float64)


def _cutoff(a: Any, atol: Any, rtol: Any) -> Any:
    """The relative cutoff: singular values up to this part of the largest one count as 0. Like
    SciPy, it combines `atol` and `rtol`."""
    if (rtol or 0) < 0 or (atol or 0) < 0:
        raise ValueError("atol and rtol values must be positive.")
    least = max(a.shape[-2:]) * float(np.finfo(a.dtype).eps)
    part = least if rtol is None else float(rtol)
    if not atol or not a.size:
        return part
    largest = np.max(numpys.svd(stop_gradient(a), compute_uv=False), axis=-1)
    return part + atol / np.where(largest > 0, largest, 1.0)


def _pseudoinverse(a: Any, rtol: Any, return_rank: Any) -> Any:
    result = pseudoinverse(a, rtol)
    if not return_rank:
        return result
    s = numpys.svd(a, compute_uv=False)
    part = np.reshape(rtol, (*np.shape(rtol), 1))
    least = part * np.max(s, axis=-1, keepdims=True, initial=0.0)
    return result, np.sum(s > least, axis=-1)


@answers()
def pinv(
    a: Any,
    atol: Any = None,
    rtol: Any = None,
    return_rank: bool = False,
    check_finite: bool = True,
) -> Any:
    """The pseudoinverse. Its derivative is that at constant rank."""
    (a,) = checked(check_finite, a)
    numpys.check_stacked(a)
    return _pseudoinverse(a, _cutoff(a, atol, rtol), return_rank)


@answers()
def pinvh(
    a: Any,
    atol: Any = None,
    rtol: Any = None,
    lower: bool = True,
    return_rank: bool = False,
    check_finite: bool = True,
) -> Any:
    """The pseudoinverse of a symmetric or Hermitian matrix, from one triangle."""
    (a,) = checked(check_finite, a)
    check_square(a)
    whole = whole_of(a, lower)
    return _pseudoinverse(whole, _cutoff(whole, atol, rtol), return_rank)


@answers()
def lstsq(
    a: Any, b: Any, cond: Any = None, check_finite: bool = True, lapack_driver: Any = None
) -> Any:
    """The shortest x that minimises |b - a x|; the residual |b - a x|^2 if a has full rank and is
    taller than wide; the rank; and the singular values."""
    a, b = checked(check_finite, a, b)
    if a.ndim > 2 or b.ndim > 2:
        raise refusal(
            f"scipy.linalg.lstsq of stacks can't be traced{at_line()}. Use it in a loop over them, "
            "or scipy.linalg.pinv(a) @ b"
        )
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        raise ValueError(f"shapes of a {a.shape} and b {b.shape} are incompatible")
    if lapack_driver not in (None, "gelsd", "gelsy", "gelss"):
        raise ValueError(f'LAPACK driver "{lapack_driver}" is not found')
    eps = float(np.finfo(a.dtype).eps)
    cut = eps if cond is None else one_cut(cond, "lstsq")
    if lapack_driver in (None, "gelsd"):
        cut = cut_of(cut, eps)
    elif cut < 0:
        cut = eps
    x = least_squares(a, b, cut)
    s = numpys.svd(a, compute_uv=False)
    rank = np.sum(s > cut * s[:1])
    none = np.array([], a.dtype)
    if lapack_driver == "gelsy":
        return x, none, rank, None
    if a.shape[0] <= a.shape[1] or int(rank) != a.shape[1]:
        return x, none, rank, s
    return x, np.sum(np.abs(b - a @ x) ** 2, axis=0), rank, s


# ---- matrix equations


@answers()
def solve_sylvester(a: Any, b: Any, q: Any) -> Any:
    """The x with a x + x b = q."""
    return Sylvester()(*checked(False, a, b, q))


def _lyapunov(a: Any, q: Any) -> Any:
    """The x with a x + x a^H = q."""
    a, q = checked(True, np.atleast_2d(a), np.atleast_2d(q))
    if a.shape[-2:] != q.shape[-2:]:
        raise ValueError("Matrix a and q should have the same shape.")
    return Sylvester()(a, adjoint(a), q)


answers("solve_continuous_lyapunov")(_lyapunov)


def _riccati(a: Any, b: Any, q: Any, r: Any) -> list[Any]:
    a, b, q, r = checked(True, *map(np.atleast_2d, (a, b, q, r)))
    _refuse_complex(a, "Riccati's equation", "Write it with real matrices")
    for x in (q, r):
        near = np.sum(np.abs(x - matrix_transpose(x)), -2) <= 1e-12 * np.max(np.abs(x))
        raise_if(~np.all(near), "q and r should be symmetric", ValueError)
    return [a, b, (q + matrix_transpose(q)) / 2, (r + matrix_transpose(r)) / 2]


@answers()
def solve_continuous_are(a: Any, b: Any, q: Any, r: Any) -> Any:
    """The stabilising x with a^T x + x a - x b r^-1 b^T x + q = 0, of symmetric q and r."""
    a, b, q, r = _riccati(a, b, q, r)
    system = factored(r)
    raise_if(is_singular(system[1]), "Matrix r is numerically singular.", ValueError)
    g = b @ solved(system, matrix_transpose(b))
    return Riccati()(a, g, q, b, r)


@answers()
def solve_discrete_are(a: Any, b: Any, q: Any, r: Any) -> Any:
    """The stabilising x with x = a^T x a - a^T x b (r + b^T x b)^-1 b^T x a + q."""
    return DiscreteRiccati()(*_riccati(a, b, q, r))
