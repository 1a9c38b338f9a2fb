"""Matrix decompositions of scipy.linalg: triangular and orthogonal factors, eigenvalues, singular
values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import matrix_transpose

from tapegrad.extending import at_line, refusal
from tapegrad.extending.arrays import adjoint, cast, check_square, raise_if
from tapegrad.extending.arrays import linalg as numpys
from tapegrad.extending.primitives import (
    LU,
    EigH,
    HermitianEigH,
    LUParts,
    Polar,
    Ranked,
    RowsInOrder,
    TriangularSolve,
    stop_gradient,
)
from tapegrad.scipy.borrowing import borrow
from tapegrad.scipy.linalg.common import HOME, answers, checked, shown
from tapegrad.scipy.linalg.systems import both_sides, by_triangles, turning

# ---- Cholesky


@answers()
def cholesky(a: Any, lower: bool = False, check_finite: bool = True) -> Any:
    """The lower factor L with L L^H = a, or the upper factor U with U^H U = a. Only that triangle
    of `a` is read, and the whole derivative belongs to it."""
    (a,) = checked(check_finite, np.atleast_2d(a))
    return numpys.cholesky(a, upper=not lower)


@answers()
def cho_factor(a: Any, lower: bool = False, check_finite: bool = True) -> Any:
    """Cholesky's factor, for `cho_solve`. The other triangle is zero; SciPy leaves arbitrary
    numbers there."""
    return cholesky(a, lower, check_finite), lower


@answers(lists="c_and_lower")
def cho_solve(c_and_lower: Any, b: Any, check_finite: bool = True) -> Any:
    """The x with a x = b, from Cholesky's factor of `a`."""
    factor, lower = c_and_lower
    factor, b = checked(check_finite, factor, b)
    check_square(factor)
    factor = factor if lower else adjoint(factor)
    return by_triangles(b, [(True, factor), (False, adjoint(factor))])


@answers()
def cholesky_banded(ab: Any, lower: bool = False, check_finite: bool = True) -> Any:
    """Cholesky's factor of a banded matrix, computed from the full matrix."""
    (ab,) = checked(check_finite, ab)
    count, n = ab.shape[-2:]
    if ab.size == 0:
        return ab
    whole = in_full(ab, lower)
    factor = numpys.cholesky(whole, upper=not lower)
    rows = []
    for k in range(count):
        d = np.diagonal(factor, -k if lower else k, -2, -1)
        given = ab[..., k if lower else count - 1 - k, :]  # the ends of rows aren't read
        unread = given[..., n - k :] if lower else given[..., :k]
        rows.append(np.concatenate([d, unread] if lower else [unread, d], -1))
    return np.stack(rows if lower else rows[::-1], -2)


def in_full(ab: Any, lower: Any) -> Any:
    """The full symmetric matrix, from the diagonals on one side."""
    count, n = ab.shape[-2:]
    if ab.dtype.kind == "c":
        raise refusal(
            f"Cholesky's factor of complex diagonals isn't supported on traced arrays{at_line()}. "
            "Use cholesky, of the matrix in full"
        )
    bands = both_sides(ab, lower)
    room = np.zeros((*bands.shape[:-2], 1, n), bands.dtype)
    filled = np.concatenate([bands, room], -2)
    i, j = np.indices((n, n))
    rows = np.where(abs(i - j) < count, count - 1 + i - j, 2 * count - 1)
    return filled[..., rows, j]


@answers(lists="cb_and_lower")
def cho_solve_banded(cb_and_lower: Any, b: Any, check_finite: bool = True) -> Any:
    """The x with a x = b, from Cholesky's factor of a banded matrix."""
    from tapegrad.scipy.linalg.systems import banded_triangle

    cb, lower = cb_and_lower
    cb, b = checked(check_finite, cb, b)
    return banded_triangle(cb, lower, b)


# ---- L and U


@answers()
def lu_factor(a: Any, check_finite: bool = True) -> Any:
    """L and U in one matrix, and the pivots: the successive row swaps."""
    (a,) = checked(check_finite, a)
    if a.shape[-2] > a.shape[-1]:
        raise refusal(
            f"lu_factor of a matrix that is taller than wide isn't supported on traced arrays"
            f"{at_line()}. Use lu"
        )
    parts, pivots, _ = _in_parts(a)
    return parts, cast(pivots, np.int32) - np.int32(1)


def _in_parts(a: Any) -> tuple[Any, Any, Any]:
    """L and U in one matrix, for one that isn't taller than wide; its pivots, counted from 1; and
    the permutation of its rows."""
    m = a.shape[-2]
    pivots = LU()(a[..., :m])[1]
    order = RowsInOrder(m)(pivots)
    a = in_order(a, order)
    square = a[..., :m]
    parts = LUParts()(square, *LU()(square))
    if a.shape[-1] > m:
        rest = TriangularSolve(True, True)(parts, a[..., m:])
        parts = np.concatenate([parts, rest], -1)
    return parts, pivots, order


def in_order(a: Any, order: Any) -> Any:
    """The rows of matrices in the given order."""
    return a[order] if a.ndim == 2 else np.take_along_axis(a, order[..., None], -2)


@answers(parameters="permute_l p_indices")
def lu(a: Any, permute_l: bool = False, check_finite: bool = True, p_indices: bool = False) -> Any:
    """P, L and U with P L U = a; or P L and U if `permute_l`."""
    (a,) = checked(check_finite, a)
    numpys.check_stacked(a)
    m, n = a.shape[-2:]
    if m <= n:
        parts, _, order = _in_parts(a)
        left, upper = parts[..., :m], np.triu(parts)
    else:
        tall = Ranked("lu")(a)
        parts, _, inner = _in_parts(in_order(a, tall)[..., :n, :])
        rest = np.broadcast_to(np.arange(n, m), (*a.shape[:-2], m - n))
        order = np.take_along_axis(tall, np.concatenate([inner, rest], -1), -1)
        upper = np.triu(parts)
        below = in_order(a, order)[..., n:, :]
        below = matrix_transpose(
            TriangularSolve(True)(matrix_transpose(parts), matrix_transpose(below))
        )
        left = np.concatenate([parts, below], -2)
    left = np.tril(left, -1) + np.eye(*left.shape[-2:], dtype=a.dtype)
    back = np.argsort(order, -1)
    if permute_l:
        return in_order(left, back), upper
    if p_indices:
        return cast(back, np.int32), left, upper
    kind = np.float32 if a.dtype in (np.float32, np.complex64) else np.float64
    return cast(back[..., None] == np.arange(m), kind), left, upper


@answers(parameters="trans", lists="lu_and_piv")
def lu_solve(lu_and_piv: Any, b: Any, trans: Any = 0, check_finite: bool = True) -> Any:
    """The x with a x = b from the result of `lu_factor(a)`; with the transpose for `trans` 1, the
    adjoint for 2."""
    parts, pivots = lu_and_piv
    parts, b = checked(check_finite, parts, b)
    check_square(parts)
    trans = turning(trans)
    n = parts.shape[-1]
    if b.shape[-2 if b.ndim > 1 else 0] != n:
        raise ValueError(f"Shapes of lu {parts.shape} and b {b.shape} are incompatible")
    x = b[:, None] if b.ndim == 1 else b
    order = RowsInOrder(n)(cast(shown(pivots, x), np.int64) + np.int64(1))
    lead = np.broadcast_shapes(x.shape[:-2], order.shape[:-1])
    order = np.broadcast_to(order, (*lead, n))
    x = np.broadcast_to(x, (*lead, *x.shape[-2:]))
    if trans:
        turned = matrix_transpose(parts) if trans == 1 else adjoint(parts)
        x = TriangularSolve(False, True)(turned, TriangularSolve(True)(turned, x))
        x = in_order(x, np.argsort(order, -1))
    else:
        x = TriangularSolve(True, True)(parts, in_order(x, order))
        x = TriangularSolve(False)(parts, x)
    return x[..., 0] if b.ndim == 1 else x


# ---- orthogonal factors


@answers(parameters="mode pivoting")
def qr(
    a: Any, lwork: Any = None, mode: str = "full", pivoting: bool = False, check_finite: bool = True
) -> Any:
    """Q and R with Q R = a; with `pivoting` also the permutation of the columns."""
    (a,) = checked(check_finite, a)
    numpys.check_stacked(a)
    if mode == "raw":
        raise refusal(
            f'qr with mode="raw" isn\'t supported on traced arrays{at_line()}. Use "full", "r" or '
            '"economic"'
        )
    if mode not in ("full", "qr", "r", "economic"):
        raise ValueError("Mode argument should be one of ['full', 'r', 'economic', 'raw']")
    order = []
    if pivoting:
        columns = Ranked("qr")(a)
        a = matrix_transpose(in_order(matrix_transpose(a), columns))
        order = [cast(columns, np.int32)]
    if mode == "r":
        r = numpys.qr(a, "r")
        below = np.zeros((*a.shape[:-2], a.shape[-2] - r.shape[-2], a.shape[-1]), r.dtype)
        return (np.concatenate([r, below], -2) if below.size else r, *order)
    return (*numpys.qr(a, "reduced" if mode == "economic" else "complete"), *order)


@answers(parameters="mode")
def rq(a: Any, lwork: Any = None, mode: str = "full", check_finite: bool = True) -> Any:
    """R and Q with R Q = a, from the QR factors of the adjoint with rows and columns reversed. The
    signs of R's diagonal are LAPACK's."""
    (a,) = checked(check_finite, a)
    numpys.check_stacked(a)
    if mode not in ("full", "r", "economic"):
        raise ValueError("Mode argument should be one of ['full', 'r', 'economic']")
    turned = adjoint(np.flip(a, (-2, -1)))
    q, r = numpys.qr(turned, "reduced" if mode == "economic" else "complete")
    r = np.flip(adjoint(r), (-2, -1))
    return r if mode == "r" else (r, np.flip(adjoint(q), (-2, -1)))


# ---- singular values


@answers(parameters="compute_uv full_matrices")
def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """u, s and vh with u diag(s) vh = a."""
    (a,) = checked(check_finite, a)
    if lapack_driver not in ("gesdd", "gesvd"):
        raise ValueError(f'lapack_driver must be "gesdd" or "gesvd", not "{lapack_driver}"')
    driver = "" if lapack_driver == "gesdd" else lapack_driver
    found = numpys.decomposition(a, bool(full_matrices), bool(compute_uv), driver)
    return tuple(found) if compute_uv else found


# ---- eigenvalues


@answers(parameters="lower type eigvals_only subset_by_index")
def eigh(
    a: Any,
    b: Any = None,
    lower: bool = True,
    eigvals_only: bool = False,
    type: int = 1,
    check_finite: bool = True,
    subset_by_index: Any = None,
    subset_by_value: Any = None,
    driver: Any = None,
) -> Any:
    """The eigenvalues w of a symmetric or Hermitian matrix, ascending, and its eigenvectors v.

    With `b`, those of a v = w b v (type 1), a b v = w v (2) or b a v = w v (3). They are computed
    as in LAPACK, by the Cholesky factor L of b: C y = w y with C = L^-1 a L^-H, or L^H a L; v is
    L^-H y, or L y for type 3. Only one triangle of each matrix is read, and the whole derivative
    belongs to it.
    """
    if driver not in (None, "ev", "evd", "evr", "evx", "gv", "gvd", "gvx") or type not in (1, 2, 3):
        raise ValueError(f"driver={driver!r}, type={type!r}")
    given = checked(check_finite, a, *([] if b is None else [b]))
    for x in given:
        check_square(x)
    a = given[0]
    subset = _subset(subset_by_index, subset_by_value)
    if b is None:
        w, v = _spectrum(a, bool(lower), driver or "evr", subset)
    else:
        factor = numpys.cholesky(given[1] if lower else adjoint(given[1]))
        how = (driver or ("gvx" if subset else "gvd")).replace("g", "e", 1)
        w, v = _generalised(a if lower else adjoint(a), factor, type, (bool(lower), how, subset))
    w, v = _chosen(a, w, v, subset_by_index, subset_by_value)
    return w if eigvals_only else (w, v)


def _chosen(a: Any, w: Any, v: Any, subset_by_index: Any, subset_by_value: Any) -> Any:
    """The eigenvalues in the requested subset, and their eigenvectors."""
    if subset_by_index is not None:
        first, last = map(int, subset_by_index)
        if not 0 <= first <= last < a.shape[-1]:
            raise ValueError(f"Requested eigenvalue indices are not valid: {subset_by_index}")
        chosen = slice(first, last + 1)
        w, v = w[..., chosen], v[..., chosen]
    if subset_by_value is not None:
        low, high = subset_by_value
        if not low < high or a.ndim > 2:
            raise ValueError(f"Requested eigenvalue bounds are not valid: {subset_by_value}")
        chosen = slice(int(np.sum(w <= low)), int(np.sum(w <= high)))
        w, v = w[chosen], v[:, chosen]
    return w, v


def _subset(by_index: Any, by_value: Any) -> tuple[Any, ...]:
    """The requested subset of eigenvalues as a static parameter."""
    if by_index is not None:
        return "index", *map(int, by_index)
    return () if by_value is None else ("value", *map(float, by_value))


def _spectrum(a: Any, lower: bool, driver: str, subset: tuple[Any, ...]) -> Any:
    """Eigenvalues and eigenvectors, with the signs or phases that this LAPACK driver returns."""
    if a.size == 0:
        driver, subset = "", ()
    kind: Any = HermitianEigH if a.dtype.kind == "c" else EigH
    w, v, failed = kind(lower, driver, subset)(a)
    raise_if(failed, "Eigenvalues did not converge")
    return w, v


def _generalised(a: Any, factor: Any, type: int, how: Any) -> Any:
    """The generalised problem for the lower triangle of `a`, with the Cholesky factor L of b;
    `how` are the parameters of the inner `_spectrum`."""
    from tapegrad.extending.primitives import from_triangle

    whole, turned = from_triangle(a), adjoint(factor)
    if type == 1:
        half = TriangularSolve(True)(factor, whole)
        inner = TriangularSolve(True)(factor, adjoint(half))
    else:
        inner = turned @ whole @ factor
    w, y = _spectrum(inner, *how)
    return w, factor @ y if type == 3 else TriangularSolve(False)(turned, y)


def _tridiagonal(d: Any, e: Any, check_finite: Any) -> Any:
    d, e = checked(check_finite, d, e)
    if d.ndim != 1 or e.ndim != 1 or d.shape[0] != e.shape[0] + 1:
        raise ValueError(f"expected {d.shape[0]} and {d.shape[0] - 1} elements, not {e.shape[0]}")
    return np.diag(d) + np.diag(e, -1) + np.diag(e, 1)


@answers(parameters="eigvals_only select")
def eigh_tridiagonal(
    d: Any,
    e: Any,
    eigvals_only: Any = False,
    select: str = "a",
    select_range: Any = None,
    check_finite: bool = True,
    lapack_driver: str = "auto",
) -> Any:
    """`eigh` of a tridiagonal matrix, computed from the full matrix; the eigenvectors have the
    signs of LAPACK's tridiagonal routine."""
    by = {"a": (None, None), "i": (select_range, None), "v": (None, select_range)}
    if select not in by:
        raise ValueError(f"invalid argument for select: {select}")
    whole = _tridiagonal(d, e, check_finite)
    every = "stevd" if select == "a" else "stebz"
    driver = {"auto": every, "sterf": "stevd"}.get(lapack_driver, lapack_driver)
    w, v = _spectrum(whole, True, driver, _subset(*by[select]))
    w, v = _chosen(whole, w, v, *by[select])
    return w if eigvals_only else (w, v)


borrow(HOME, "eigvalsh eigvalsh_tridiagonal svdvals subspace_angles")


@answers(parameters="side")
def polar(a: Any, side: str = "right") -> tuple[Any, Any]:
    """The polar factors: U with orthonormal columns or rows, and P positive semidefinite, with a =
    U P (right) or a = P U (left). At full rank their derivative is a rule of its own, without
    singular vectors."""
    if side not in ("right", "left"):
        raise ValueError("`side` must be either 'right' or 'left'")
    (a,) = checked(True, a)
    m, n = a.shape[-2:]
    turned = m < n or (m == n and side == "left")
    x = adjoint(a) if turned else a
    w, s, vh = np.linalg.svd(x, full_matrices=False)
    u, p = w @ vh, (adjoint(vh) * s[..., None, :]) @ vh
    least = np.finfo(s.dtype).eps * max(m, n) * np.max(s, -1, keepdims=True, initial=0)
    if not np.any(s <= least):
        u, p = Polar()(x, stop_gradient(u), stop_gradient(p))
    u = adjoint(u) if turned else u
    if turned != (side == "left"):
        p = adjoint(u) @ a if turned else a @ adjoint(u)
    return u, p


borrow(HOME, "orth null_space orthogonal_procrustes diagsvd", decorated=True)
