"""QR factors, eigenvalues, singular values and the pseudoinverse, computed by NumPy.

Matrices are the last two axes. A decomposition that may not converge has a last result, `failed`.

Eigenvectors and singular vectors are determined up to their sign, and those of equal values up to a
rotation: see `degenerate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.ir.traits import Ties
from tapegrad.primitives.base import parametric, total
from tapegrad.primitives.complexes import cartesian, conjugated, imag
from tapegrad.primitives.contractions import adjoint, matmul, swapped
from tapegrad.primitives.degenerate import (
    ONCE,
    TIE,
    EigenvaluePullback,
    SingularValuePullback,
    antisymmetric,
    beside,
    chosen_eigenvectors,
    chosen_singular_vectors,
    column,
    greatest,
    inverted,
    over_gaps,
    placed,
    precision,
    read_triangle,
    row,
    sizes,
    symmetric,
    triangle_of,
    turns,
    whole_like,
)
from tapegrad.primitives.elementwise import logical_and, where
from tapegrad.primitives.kinds import Library, Underived
from tapegrad.primitives.triangles import (
    below,
    from_triangle,
    over_batch,
    solve_lower,
    solve_upper,
    square,
)
from tapegrad.primitives.views import Diagonal

FLAG = np.dtype(bool)


def attempted(
    f: Callable[..., tuple[Any, ...]], shapes: Callable[[Any], Any], a: Any
) -> tuple[Any, ...]:
    """`(*f(a), failed)` for a batch of matrices. A matrix for which f doesn't converge has the
    results NaN. `shapes` returns the shapes of the results for one matrix."""

    def one(x: Any) -> tuple[Any, ...]:
        try:
            return *f(x), np.False_
        except np.linalg.LinAlgError:
            return *[np.full(s, np.nan, x.dtype) for s in shapes(x)], np.True_

    try:
        return *f(a), np.zeros(a.shape[:-2], bool)[()]
    except np.linalg.LinAlgError:
        return over_batch(one, (2,), a)


# ---- eigenvalues


class Decomposition(Library):
    """A decomposition whose vectors are determined up to a rotation where values are equal."""

    ties = Ties(balanced=False)

    def tangents(self, read: Any, directions: Any, ts: Any, out: Any, *xs: Any) -> Any:
        """`jvp` along directions. `read` says for each result whether it is read."""
        raise NotImplementedError

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return self.tangents((True,) * self.results, (), ts, out, *xs)


OF_TRIDIAGONAL = "stemr", "stebz", "stev", "stevd"

Subset = tuple[Any, ...]  # ("index", first, last) or ("value", low, high)


def by_driver(x: Any, lower: bool, driver: str, subset: Subset) -> tuple[Any, Any]:
    """Eigenvalues and eigenvectors by SciPy. Those of `subset` are the ones that SciPy returns for
    it."""
    from scipy.linalg import eigh, eigh_tridiagonal

    how: dict[str, Any] = {"check_finite": False}
    if driver in OF_TRIDIAGONAL:
        how["lapack_driver"], bands = driver, (np.diagonal(x), np.diagonal(x, -1))
    else:
        how.update(driver=driver, lower=lower)

    def called(*subset: Any) -> tuple[Any, Any]:
        kind, *between = subset or ("",)
        if driver in OF_TRIDIAGONAL:
            chosen = {"select": kind[0], "select_range": between} if subset else {}
            found = eigh_tridiagonal(*bands, **chosen, **how)
        else:
            found = eigh(x, **({f"subset_by_{kind}": between} if subset else {}), **how)
        return np.asarray(found[0], x.real.dtype), np.asarray(found[1], x.dtype)

    w, v = called()
    if subset:
        values, vectors = called(*subset)
        kind, low, _ = subset
        first = low if kind == "index" else np.count_nonzero(w <= low)
        at = slice(first, first + len(values))
        w[at], v[:, at] = values, vectors
    return w, v


@parametric
class EigH(Decomposition):
    """The eigenvalues w of a symmetric A, in ascending order, and its eigenvectors as columns of V.

    One triangle of A is read. With F_ij = 1 / (w_j - w_i), and 0 on the diagonal, the cotangent of
    the symmetric matrix is V (diag(w') + F * (V^T V')) V^T (Giles, "Collected matrix derivative
    results", 2008, 3.1); the cotangent of the triangle adds up its pairs. NumPy computes the values
    and vectors, or SciPy by a `driver` of LAPACK, which may choose other signs.
    """

    lower: bool = True
    driver: str = ""
    subset: Subset = ()

    name = "eigh"
    cores = (2,)
    results = 3

    def aval(self, *xs: Aval) -> tuple[Aval, Aval, Aval]:
        a = square(self.name, xs[0])
        return a.with_shape(a.shape[:-1]), a, Aval(a.shape[:-2], FLAG)

    def evaluate(self, *xs: Any) -> Any:
        shapes: Any = lambda x: (x.shape[:1], x.shape)  # noqa: E731
        uplo: Any = "L" if self.lower else "U"
        if not self.driver:
            return attempted(lambda x: tuple(np.linalg.eigh(x, uplo)), shapes, xs[0])
        one: Any = lambda x: by_driver(x, self.lower, self.driver, self.subset)  # noqa: E731
        return attempted(lambda x: over_batch(one, (2,), x), shapes, xs[0])

    def kink(self, operands: Any) -> Any:
        return operands[0], self.lower

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return self.vjp_along((), ct, out, *xs)

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Any:
        (ct_w, ct_v, _), (w, v, _) = ct, out
        if ct_v is None and not directions:
            whole = None if ct_w is None else EigenvaluePullback(self.lower)(xs[0], w, v, ct_w)
        else:
            of_values = None
            if ct_w is not None:
                chosen = chosen_eigenvectors(w, v, symmetric(directions[0])) if directions else v
                of_values = matmul(chosen * row(ct_w), swapped(chosen))
            of_vectors = None
            if ct_v is not None:
                turned = turns(matmul(swapped(v), ct_v), w, ct_w)
                of_vectors = matmul(matmul(v, turned), swapped(v))
            whole = total([of_values, of_vectors])
        return (None if whole is None else triangle_of(whole, self.lower),)

    def tangents(self, read: Any, directions: Any, ts: Any, out: Any, *xs: Any) -> Any:
        (w, v, _), t = out, read_triangle(ts[0], self.lower)
        chosen = chosen_eigenvectors(w, v, symmetric(directions[0])) if directions else v
        t_w = Diagonal(0)(matmul(swapped(chosen), matmul(t, chosen)))
        turned = matmul(swapped(v), matmul(t, v))
        return t_w, matmul(v, apart(turned, w, read[0])), None


def apart(turned: Any, values: Any, read: bool) -> Any:
    """X_ij / (w_j - w_i) for values w; 0 on the diagonal, and for equal values.

    For equal values X_ij is 0 unless their vectors jump. A function of the vectors alone that
    doesn't depend on their rotation misses nothing. If the values are `read` too, the result is
    NaN.
    """
    turning = sizes(turned) > greatest(turned) * precision(values, 0.5)
    found = over_gaps(turned, values, TIE, turning)
    if not read:
        return found
    wrong = logical_and(beside(values, ONCE), turning)
    return where(wrong, turned.constant(np.nan), found)


# ---- singular values


def decomposed(x: Any, full: bool, driver: str) -> tuple[Any, ...]:
    """U, s and V^H, with the signs of NumPy, or of SciPy's `driver` of LAPACK."""
    if not driver:
        return tuple(np.linalg.svd(x, full_matrices=full))
    from scipy.linalg import svd

    def one(x: Any) -> Any:
        return svd(x, full, lapack_driver=driver, check_finite=False)

    return over_batch(one, (2,), x)


@parametric
class SVD(Decomposition):
    """The reduced decomposition A = U diag(s) V^T. The results are U, s, V^T and `failed`.

    With F_ij = 1 / (s_j^2 - s_i^2), and 0 on the diagonal, the cotangent of A is
    U (diag(s') + (F * (U^T U' - U'^T U)) S + S (F * (V^T V' - V'^T V))) V^T. For matrices that
    aren't square (I - U U^T) U' S^-1 V^T and U S^-1 V'^T (I - V V^T) are added (J. Townsend,
    "Differentiating the singular value decomposition", 2016).
    """

    driver: str = ""

    name = "svd"
    ties = Ties(origin=1, balanced=False)
    cores = (2,)
    results = 4

    def aval(self, *xs: Aval) -> tuple[Aval, ...]:
        (a,) = xs
        *batch, m, n = a.shape
        k = min(m, n)
        shapes = ((*batch, m, k), (*batch, k), (*batch, k, n))
        return *[a.with_shape(s) for s in shapes], Aval(tuple(batch), FLAG)

    def evaluate(self, *xs: Any) -> Any:
        def shapes(x: Any) -> Any:
            k = min(x.shape)
            return (len(x), k), (k,), (k, x.shape[1])

        return attempted(lambda x: decomposed(x, False, self.driver), shapes, xs[0])

    def kink(self, operands: Any) -> Any:
        return False, *operands

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return self.vjp_along((), ct, out, *xs)

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Any:
        (ct_u, ct_s, ct_vt, _), (u, s, vt, _) = ct, out
        terms = []
        if ct_s is not None and not directions:
            terms.append(SingularValuePullback()(xs[0], u, s, vt, ct_s))
        elif ct_s is not None:
            chosen, chosen_t = chosen_singular_vectors(u, s, vt, directions[0])
            terms.append(matmul(chosen * row(ct_s), chosen_t))
        left = right = None
        if ct_u is not None:
            left = matmul(swapped(u), ct_u)
            if u.shape[-2] > u.shape[-1]:
                terms.append(matmul((ct_u - matmul(u, left)) * row(inverted(s)), vt))
        if ct_vt is not None:
            right = matmul(vt, swapped(ct_vt))
            if vt.shape[-1] > vt.shape[-2]:
                rest = column(inverted(s)) * (ct_vt - matmul(swapped(right), vt))
                terms.append(matmul(u, rest))
        if left is not None or right is not None:
            terms.append(matmul(u, matmul(turned_singular(s, ct_s, left, right), vt)))
        return (total(terms),)

    def tangents(self, read: Any, directions: Any, ts: Any, out: Any, *xs: Any) -> Any:
        (t,), (u, s, vt, _) = ts, out
        t_u, t_vt = moved_vectors(u, s, vt, t, read[1])
        chosen, chosen_t = u, vt
        if directions:
            chosen, chosen_t = chosen_singular_vectors(u, s, vt, directions[0])
        t_s = Diagonal(0)(matmul(matmul(swapped(chosen), t), swapped(chosen_t)))
        if not directions:
            t_s = where(s.equals(0), s.constant(0), t_s)
        return t_u, t_s, t_vt, None


def moved_vectors(u: Any, s: Any, vh: Any, t: Any, values: bool) -> tuple[Any, Any]:
    """The tangents of U and V^H. With E = U^H dA V they are U (P + Q) + (I - U U^H) dA V S^-1 and V
    (P - Q) + (I - V V^H) dA^H U S^-1, where P_ij = (E + E^H)_ij / 2 (s_j - s_i), but 0 on the
    diagonal, and Q_ij = (E - E^H)_ij / 2 (s_j + s_i). `values` says whether the values are read."""
    v, right = adjoint(vh), matmul(t, adjoint(vh))
    e = matmul(adjoint(u), right)
    even = apart((e + adjoint(e)) * 0.5, s, values)
    odd = (e - adjoint(e)) * 0.5 * whole_like(inverted(row(s) + column(s)), e)
    slopes = whole_like(row(inverted(s)), e)
    t_u, t_v = matmul(u, even + odd), matmul(v, even - odd)
    if u.shape[-2] > u.shape[-1]:
        t_u = t_u + (right - matmul(u, e)) * slopes
    if vh.shape[-1] > vh.shape[-2]:
        t_v = t_v + (matmul(adjoint(t), u) - matmul(v, adjoint(e))) * slopes
    return t_u, adjoint(t_v)


def turned_singular(s: Any, ct_s: Any, left: Any, right: Any) -> Any:
    """F * (L S + S R), for the antisymmetric parts L of U^T U' and R of V^T V'. It is computed as
    (L + R) / (s_j - s_i) + (L - R) / (s_j + s_i), whose second term isn't affected by equal
    values."""
    both = total([left, right])
    apart = left if right is None else -right if left is None else left - right
    nothing = whole_like(inverted(row(s) + column(s)), apart)
    return turns(both, s, ct_s) + nothing * antisymmetric(apart)


# ---- orthogonal factors


@parametric
class QR(Library):
    """A = Q R, for an A with at least as many rows as columns. Q has its shape, R is upper
    triangular.

    With M = R R'^T - Q'^T Q and C the symmetric matrix with its lower triangle, the cotangent of A
    is (Q' + Q C) R^-T (M. Seeger et al., "Auto-differentiating linear algebra", arXiv:1710.08717).
    For complex matrices these are the conjugates of cotangents, transposes are adjoints, and the
    diagonals of R and C are real.
    """

    name = "qr"
    cores = (2,)
    of_complex = True
    results = 2

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        (a,) = xs
        *batch, m, n = a.shape
        if m < n:
            raise ValueError(f"qr: {a} is wider than tall")
        return a, a.with_shape((*batch, n, n))

    def evaluate(self, *xs: Any) -> Any:
        return tuple(np.linalg.qr(xs[0]))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        (q, r), (ct_q, ct_r) = out, [None if c is None else conjugated(c) for c in ct]
        m = total(
            [
                None if ct_r is None else matmul(r, adjoint(ct_r)),
                None if ct_q is None else -matmul(adjoint(ct_q), q),
            ]
        )
        whole = total([ct_q, matmul(q, from_triangle(m))])
        return (conjugated(adjoint(solve_upper(r, adjoint(whole)))),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        (t,), (q, r) = ts, out
        scaled = swapped(solve_lower(swapped(r), swapped(t)))
        along = matmul(adjoint(q), scaled)
        turn = below(along) - adjoint(below(along))
        if along.dtype.kind == "c":
            diagonal = imag(Diagonal(0)(along))
            turn = turn + placed(cartesian(diagonal.constant(0), diagonal))
        return scaled + matmul(q, turn - along), matmul(along - turn, r)


@parametric
class Complement(Underived, Library):
    """The further columns that complete Q in A = Q R, or the `left` or `right` singular vectors, to
    a square matrix, as NumPy chooses them. They have no derivative here: the front end rotates them
    with the other columns."""

    of: str
    driver: str = ""

    name = "complement"
    cores = (2,)

    def aval(self, *xs: Aval) -> Aval:
        *batch, m, n = xs[0].shape
        m, n = (n, m) if self.of == "right" else (m, n)
        if m < n:
            raise ValueError(f"complement: {xs[0]} has no further columns")
        return xs[0].with_shape((*batch, m, m - n))

    def evaluate(self, *xs: Any) -> Any:
        (a,) = xs
        if self.of == "qr":
            return np.linalg.qr(a, mode="complete")[0][..., a.shape[-1] :]

        def shapes(x: Any) -> Any:
            m, n = sorted(x.shape, reverse=True)
            return ((m, m - n),)

        def further(x: Any) -> Any:
            u, _, vt = decomposed(x, True, self.driver)
            whole = u if self.of == "left" else np.swapaxes(vt, -1, -2)
            return (whole[..., min(x.shape[-2:]) :],)

        return attempted(further, shapes, a)[0]


# ---- functions of a matrix


@parametric
class PInv(Library):
    """The pseudoinverse P of A. Singular values up to `rcond` times the largest one count as 0.

    At constant rank (G. Golub and V. Pereyra, "The differentiation of pseudo-inverses and nonlinear
    least squares problems whose variables separate", 1973, 4.12) dP = -P dA P + P P^T dA^T (I - A
    P) + (I - P A) dA^T P^T P. For a complex A transposes are adjoints.
    """

    rcond: float

    name = "pinv"
    cores = (2,)
    of_complex = True
    results = 2

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        (a,) = xs
        *batch, m, n = a.shape
        return a.with_shape((*batch, n, m)), Aval(tuple(batch), FLAG)

    def evaluate(self, *xs: Any) -> Any:
        return attempted(
            lambda x: (np.linalg.pinv(x, rcond=self.rcond),), lambda x: (x.shape[::-1],), xs[0]
        )

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        if ct[0] is None:
            return (None,)
        (a,), g, p = xs, conjugated(ct[0]), out[0]
        pt, turned = adjoint(p), adjoint(g)
        result = -matmul(matmul(pt, g), pt)
        right = matmul(turned, matmul(p, pt))
        result = result + right - matmul(a, matmul(p, right))
        left = matmul(matmul(pt, p), turned)
        return (conjugated(result + left - matmul(matmul(left, p), a)),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        (t,), (a,), p = ts, xs, out[0]
        pt, turned = adjoint(p), adjoint(t)
        result = -matmul(matmul(p, t), p)
        left = matmul(matmul(p, pt), turned)
        result = result + left - matmul(matmul(left, a), p)
        right = matmul(turned, matmul(pt, p))
        return result + right - matmul(p, matmul(a, right)), None
