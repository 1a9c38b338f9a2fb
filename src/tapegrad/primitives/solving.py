"""Linear systems: triangles, Cholesky's and LU factors, and what is solved with them.

Matrices are the last two axes; the axes before them are a batch. A factorisation that fails gives
NaN and says so in a last result, `failed`, which the front end turns into NumPy's LinAlgError.

A factor is computed once. `lu_solve`, `inverse_t` and `slogdet` take the matrix A, which their
derivatives are with respect to, and its LU factors, which only spare work: they have no
derivatives of their own, and `lu` no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.handlers import quiet
from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import Library, Linear, broadcast_shapes, parametric
from tapegrad.primitives.contractions import matmul, swapped
from tapegrad.primitives.views import ExpandDims

BLOCK = 32  # matrices up to this size are pulled back at once
# So many multiplications are done before OpenBLAS's threads have been woken; where something else
# runs, too, waiting for them takes a hundred times as long. Its `trsm` calls them for so many
# elements of right sides, its `getrs` for two right sides and more, however small the matrix.
ALONE, CALLED = 2**15, 1024


def over_batch(f: Callable[..., Any], cores: Sequence[int], *xs: Any) -> Any:
    """`f` of the last `cores[k]` axes of each operand, for all indices of the axes before them,
    which broadcast."""
    if all(x.ndim == n for x, n in zip(xs, cores, strict=True)):
        return f(*xs)
    lead = broadcast_shapes(*[x.shape[: x.ndim - n] for x, n in zip(xs, cores, strict=True)])
    size = int(np.prod(lead))
    flat = [
        np.broadcast_to(x, lead + x.shape[x.ndim - n :]).reshape(size, *x.shape[x.ndim - n :])
        for x, n in zip(xs, cores, strict=True)
    ]
    # An empty batch has the shapes and dtypes of a batch of one.
    found = [f(*each) for each in zip(*flat, strict=True)] or [
        f(*[_identity_like(x) for x in flat])
    ]
    if not isinstance(found[0], tuple):
        return np.stack(found)[:size].reshape(lead + found[0].shape)
    parts = [np.stack(part)[:size] for part in zip(*found, strict=True)]
    return tuple(part.reshape(lead + part.shape[1:]) for part in parts)


def _identity_like(x: Any) -> Any:
    """Some element of an empty batch; ones on its diagonal, so that it can be solved with."""
    return np.eye(*x.shape[1:], dtype=x.dtype) if x.ndim == 3 else np.ones(x.shape[1:], x.dtype)


def square(name: str, x: Aval) -> Aval:
    """The type itself, of square matrices; a ValueError of another."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"{name}: {x} isn't square")
    return x


# ---- triangles


@parametric
class Triangle(Linear):
    """The elements of a matrix on the diagonal `offset` and below (or above) it; zeros elsewhere.

    Linear, and its own transpose.
    """

    lower: bool
    offset: int = 0

    name = "triangle"

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_shape(xs[0].shape)

    def evaluate(self, *xs: Any) -> Any:
        return (np.tril if self.lower else np.triu)(xs[0], self.offset)

    def transpose(self, ct: Any, x: Aval) -> Any:
        return self(ct)


lower = Triangle(True)
below = Triangle(True, -1)


def halved(x: Any) -> Any:
    """Murray's Phi: the lower triangle, with half of the diagonal."""
    return (lower(x) + below(x)) * 0.5


def mirrored(x: Any) -> Any:
    """The symmetric matrix with this lower triangle."""
    return lower(x) + swapped(below(x))


def folded(s: Any) -> Any:
    """The transpose of `mirrored`: each pair of a matrix added up, in the lower triangle."""
    return lower(s) + below(swapped(s))


@parametric
class TriangularSolve(Library):
    """The X with T X = B, for a triangle of T; `unit` means ones on its diagonal.

    The rest of T isn't read. With B' = T^-T X', the cotangent of T is the triangle of -B' X^T
    (M. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
    differentiation", 2008, 2.3.1).
    """

    lower: bool
    unit: bool = False

    name = "triangular_solve"

    def aval(self, *xs: Aval) -> Aval:
        t, b = xs
        if square(self.name, t).shape[-1] != b.shape[-2]:
            raise ValueError(f"triangular_solve: {t} doesn't fit {b}")
        return b.with_shape((*broadcast_shapes(t.shape[:-2], b.shape[:-2]), *b.shape[-2:]))

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(self._solve, (2, 2), *xs)

    def _solve(self, t: Any, b: Any) -> Any:
        if b.size == 0:
            return np.array(b)
        # BLAS counts columns first, so it is asked for X.T T.T = B.T.
        return _trsm(t.T, b.T, 0, lower=not self.lower, diag=self.unit).T

    def triangle(self, x: Any) -> Any:
        """The part of a matrix that is read."""
        return Triangle(self.lower, (-1 if self.lower else 1) if self.unit else 0)(x)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        t, _ = xs
        ct_b = TriangularSolve(not self.lower, self.unit)(swapped(t), ct)
        return self.triangle(-matmul(ct_b, swapped(out))), ct_b

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        dt, db = ts
        right = None if dt is None else -matmul(self.triangle(dt), out)
        if db is not None:
            right = db if right is None else db + right
        return None if right is None else self(xs[0], right)


def _trsm(t: Any, b: Any, axis: int, **how: Any) -> Any:
    """BLAS's triangular solve, along this axis of the right sides: in parts that it keeps to one
    thread, where others wouldn't be of use."""
    from scipy.linalg import blas

    def solve(part: Any) -> Any:
        return trsm(1.0, t, part, side=1 - axis, **how)

    trsm = blas.strsm if b.dtype == np.float32 else blas.dtrsm
    if b.size < CALLED or len(t) * b.size > ALONE:
        return solve(b)
    parts = -(-b.shape[axis] // ((CALLED - 1) // len(t)))
    return np.concatenate([solve(part) for part in np.array_split(b, parts, axis)], axis)


solve_lower = TriangularSolve(True)
solve_upper = TriangularSolve(False)


def between(factor: Any, x: Any) -> Any:
    """L^-T X L^-1, for a lower triangle L."""
    half = solve_upper(swapped(factor), x)
    return swapped(solve_upper(swapped(factor), swapped(half)))


# ---- Cholesky's factor


@parametric
class Cholesky(Library):
    """The lower triangle L with L L^T = A, of which only the lower triangle is read; and whether
    it failed, since A isn't positive definite."""

    name = "cholesky"
    results = 2
    absent = True

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        (a,) = xs
        return square(self.name, a), Aval(a.shape[:-2], np.dtype(bool))

    def evaluate(self, *xs: Any) -> Any:
        (a,) = xs
        try:
            return np.linalg.cholesky(a), np.zeros(a.shape[:-2], bool)[()]
        except np.linalg.LinAlgError:
            return over_batch(_attempted, (2,), a)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return (None if ct[0] is None else cholesky_pullback(out[0], ct[0]),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        """dL = L Phi(L^-1 dA L^-T), of Murray, equation 8."""
        (t,) = ts
        factor = out[0]
        half = solve_lower(factor, mirrored(t))
        whole = solve_lower(factor, swapped(half))  # symmetric
        return matmul(factor, halved(whole)), None


def _attempted(a: Any) -> Any:
    try:
        return np.linalg.cholesky(a), np.False_
    except np.linalg.LinAlgError:
        return np.full_like(a, np.nan), np.True_


@parametric
class CholeskyPullback(Library):
    """The cotangent of A, in the lower triangle that Cholesky's factor L reads, for that of L.

    It is Phi(S + S^T), where S = L^-T Phi(L^T L') L^-1 (I. Murray, "Differentiation of the Cholesky
    decomposition", arXiv:1602.07527, equations 9 and 10). That takes 4 n^3 operations; by blocks,
    as in section 4 there, it takes less than n^3, since no triangle is multiplied in full.
    """

    name = "cholesky_pullback"

    def aval(self, *xs: Aval) -> Aval:
        factor, ct = xs
        if factor != square(self.name, ct):
            raise ValueError(f"cholesky_pullback: {ct} isn't a cotangent of {factor}")
        return factor

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(_pulled_back, (2, 2), *xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        """Of S: W = Phi(Z) + Phi(Z)^T for the cotangent Z, and Q = Phi(L^-1 W L^-T), each factor
        of S in turn. L Q is the tangent of L along W, as a transpose of the pullback must be."""
        factor, inner = lower(xs[0]), xs[1]
        w = halved(ct)
        w = w + swapped(w)
        right = swapped(solve_lower(factor, w))  # W L^-T, of a symmetric W
        q = halved(solve_lower(factor, right))
        whole = out + swapped(out)
        ct_factor = matmul(lower(inner), swapped(q)) - matmul(whole, right)
        return lower(ct_factor), lower(matmul(factor, q))

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        """The derivative of Phi(S + S^T), by that of L^T S L = Phi(L^T L')."""
        t_factor, t_inner = ts
        factor, inner = lower(xs[0]), xs[1]
        tangent = None if t_inner is None else self(factor, t_inner)
        if t_factor is not None:
            t_factor, whole = lower(t_factor), out + swapped(out)
            p = halved(matmul(swapped(t_factor), lower(inner)))
            # dS + dS^T, where dS = L^-T (dP - dL^T S L - L^T S dL) L^-1 and S + S^T is `whole`.
            turned = matmul(swapped(t_factor), matmul(whole, factor))
            s = between(factor, p + swapped(p) - turned - swapped(turned))
            moved = halved(s)
            tangent = moved if tangent is None else tangent + moved
        return tangent


def _pulled_back(factor: Any, ct: Any) -> Any:
    """By halves: the lower right block, the block left of it, then the upper left one."""
    n = len(factor)
    if n <= BLOCK:
        s = between(factor, halved(_product(lower(factor).T, lower(ct))))
        return halved(s + s.T)
    k = (n // BLOCK + 1) // 2 * BLOCK
    done = np.zeros_like(ct)
    done[k:, k:] = corner = _pulled_back(factor[k:, k:], ct[k:, k:])
    side = ct[k:, :k] - _product(corner + corner.T, factor[k:, :k])
    done[k:, :k] = side = solve_upper(factor[:k, :k].T, side.T).T
    top = ct[:k, :k] - _product(side.T, factor[k:, :k])
    done[:k, :k] = _pulled_back(factor[:k, :k], top)
    return done


def _product(x: Any, y: Any) -> Any:
    """By SciPy's BLAS, as triangular solves are: NumPy's has threads of its own, and the two would
    wait for each other."""
    from scipy.linalg import blas

    if x.size == 0:
        return np.zeros((len(x), y.shape[1]), y.dtype)
    return (blas.sgemm if y.dtype == np.float32 else blas.dgemm)(1.0, y.T, x.T).T


cholesky = Cholesky()
cholesky_pullback = CholeskyPullback()


# ---- LU factors


@parametric
class LU(Library):
    """The factors of P A = L U, transposed, and the rows that were swapped with rows 1, 2, ...

    As LAPACK leaves them: column by column, which is row by row of the transpose, L's diagonal of
    ones left out, rows counted from 1.
    """

    name = "lu"
    results = 2

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        (a,) = xs
        return square(self.name, a), Aval(a.shape[:-1], np.dtype(np.int32))

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(_factored, (2,), xs[0])

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None, None  # who reads the factors differentiates with respect to A


def _factored(a: Any) -> Any:
    from scipy.linalg import lapack

    if a.size == 0:
        return np.array(a), np.zeros(0, np.int32)
    factors, pivots, _ = (lapack.sgetrf if a.dtype == np.float32 else lapack.dgetrf)(a)
    return factors.T, pivots.astype(np.int32) + 1


class Factored(Library):
    """A function of A, given with A's LU factors: `x(A, lu, pivots, ...)`."""

    def checked(self, a: Aval, factors: Aval, pivots: Aval) -> Aval:
        if not (square(str(self.name), a).shape == factors.shape == (*pivots.shape, a.shape[-1])):
            raise ValueError(f"{self.name}: {factors} and {pivots} aren't factors of {a}")
        return a


@parametric
class LUSolve(Factored):
    """The rows x with A x = b for each row b of B: X = B A^-T. Or, `transposed`, with A^T x = b.

    The cotangents are B' = X' A^-1 and A' = -B'^T X (Giles, 2.3.1).
    """

    transposed: bool = False

    name = "lu_solve"

    def aval(self, *xs: Aval) -> Aval:
        b = xs[3]
        a = self.checked(*xs[:3])
        if a.shape[-1] != b.shape[-1]:
            raise ValueError(f"lu_solve: {a} doesn't fit the rows of {b}")
        return b.with_shape((*broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]))

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(self._solve, (2, 1, 2), *xs[1:])

    def _solve(self, factors: Any, pivots: Any, b: Any) -> Any:
        from scipy.linalg import lapack

        if b.size == 0:
            return np.array(b)
        if len(b) > 1 and len(factors) * b.size <= ALONE:
            return self._solve_alone(factors, pivots, b)
        getrs = lapack.sgetrs if b.dtype == np.float32 else lapack.dgetrs
        return getrs(factors.T, pivots - 1, b.T, trans=self.transposed)[0].T

    def _solve_alone(self, factors: Any, pivots: Any, b: Any) -> Any:
        """What LAPACK's routine does, step by step, and on one thread."""
        order = list(range(len(factors)))
        for k, row in enumerate(pivots.tolist()):
            order[k], order[row - 1] = order[row - 1], order[k]
        if not self.transposed:
            half = _trsm(factors.T, np.take(b, order, 1).T, 1, lower=True, diag=True)
            return _trsm(factors.T, half, 1).T
        half = _trsm(factors.T, b.T, 1, trans_a=True)
        found = np.empty_like(b)
        found[:, order] = _trsm(factors.T, half, 1, lower=True, diag=True, trans_a=True).T
        return found

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        ct_b = LUSolve(not self.transposed)(*xs[:3], ct)
        left, right = (out, ct_b) if self.transposed else (ct_b, out)
        return -matmul(swapped(left), right), None, None, ct_b

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        da, db = ts[0], ts[3]
        right = None
        if da is not None:
            right = -matmul(out, da if self.transposed else swapped(da))
        if db is not None:
            right = db if right is None else db + right
        return None if right is None else self(*xs[:3], right)


@parametric
class InverseT(Factored):
    """A^-T, which the derivatives of determinants need as it is; its transpose is the inverse.

    The cotangent of A is -X X'^T X (Giles, 2.2.3, transposed).
    """

    name = "inverse_t"

    def aval(self, *xs: Aval) -> Aval:
        return self.checked(*xs)

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(_inverted, (2, 1), *xs[1:])

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return -matmul(matmul(out, swapped(ct)), out), None, None

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else -matmul(matmul(out, swapped(ts[0])), out)


def _inverted(factors: Any, pivots: Any) -> Any:
    from scipy.linalg import lapack

    if factors.size == 0:
        return np.array(factors)
    if np.any(np.diagonal(factors) == 0):  # LAPACK would return the factors
        return np.full_like(factors, np.nan)
    getri = lapack.sgetri if factors.dtype == np.float32 else lapack.dgetri
    return getri(factors.T, pivots - 1)[0].T


inverse_t = InverseT()


@parametric
class SLogDet(Factored):
    """The sign of the determinant of A, and the logarithm of its absolute value.

    The cotangent of A is l' A^-T, for that of the logarithm (Giles, 2.2.4).
    """

    name = "slogdet"
    results = 2
    absent = True

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        a = self.checked(*xs)
        return a.with_shape(a.shape[:-2]), a.with_shape(a.shape[:-2])

    @quiet
    def evaluate(self, *xs: Any) -> Any:
        _, factors, pivots = xs
        diagonal = np.diagonal(factors, 0, -2, -1)
        swaps = pivots != np.arange(1, pivots.shape[-1] + 1, dtype=np.int32)
        sign = np.prod(np.where((diagonal < 0) != swaps, -1, 1), -1)
        logarithm = np.sum(np.log(np.abs(diagonal)), -1)
        sign = np.where(np.any(diagonal == 0, -1), 0, sign).astype(factors.dtype)
        return sign[()], logarithm

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        if ct[1] is None:
            return None, None, None
        return _spread(ct[1]) * inverse_t(*xs), None, None

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        from tapegrad.primitives.reductions import Sum

        if ts[0] is None:
            return None
        products = inverse_t(*xs) * ts[0]
        return None, Sum((products.ndim - 2, products.ndim - 1))(products)


slogdet = SLogDet()


def _spread(x: Any) -> Any:
    """A number a matrix, as a matrix."""
    return ExpandDims((x.ndim, x.ndim + 1))(x)
