"""Linear systems: Cholesky's and LU factors, and what is computed with them.

Matrices are the last two axes; the axes before them are a batch. A factorisation that fails returns
NaN and a last result, `failed`, for which the front end raises NumPy's LinAlgError.

A factor is computed once. `lu_solve`, `inverse_t` and `slogdet` take the matrix A and its LU
factors. Their derivatives are with respect to A. The factors only save work: they have no
derivatives of their own, so `lu` has no rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.core.handlers import quiet
from tapegrad.ir.tape import Aval
from tapegrad.ir.traits import Algebra
from tapegrad.primitives.base import Parametric, broadcast_shapes, parametric
from tapegrad.primitives.contractions import matmul, swapped
from tapegrad.primitives.kinds import Routine
from tapegrad.primitives.triangles import (
    ALONE,
    between,
    fortran,
    halved,
    lower,
    mirrored,
    over_batch,
    solve_lower,
    solve_upper,
    square,
    trsm,
)
from tapegrad.primitives.views import ExpandDims

BLOCK = 32  # matrices up to this size are pulled back in one step
WORK = 64  # columns of the work space of getri: its block size


# ---- Cholesky's factor


@parametric
class Cholesky(Routine):
    """The lower triangle L with L L^T = A, of which only the lower triangle is read, and whether it
    failed because A isn't positive definite."""

    name = "cholesky"
    cores = (2,)
    kernel = "cholesky"
    overwrites = (0,)
    numbers = ("failed",)
    results = 2

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
        """dL = L Phi(L^-1 dA L^-T), from Murray, equation 8."""
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
class CholeskyPullback(Routine):
    """The cotangent of A for that of Cholesky's factor L, in the lower triangle that is read.

    It is Phi(S + S^T), where S = L^-T Phi(L^T L') L^-1 (I. Murray, "Differentiation of the Cholesky
    decomposition", arXiv:1602.07527, equations 9 and 10). That takes 4 n^3 operations. By blocks,
    as in section 4 there, it takes less than n^3, since no triangle is multiplied in full.
    """

    name = "cholesky_pullback"
    cores = (2, 2)
    kernel = "cholesky_pullback"
    overwrites = (1,)
    reads = (0,)

    def aval(self, *xs: Aval) -> Aval:
        factor, ct = xs
        if factor != square(self.name, ct):
            raise ValueError(f"cholesky_pullback: {ct} isn't a cotangent of {factor}")
        return factor

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(_pulled_back, (2, 2), *xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        """The transpose of each factor of S in turn. For the cotangent Z let W = Phi(Z) + Phi(Z)^T
        and Q = Phi(L^-1 W L^-T). Then L Q is the cotangent of L', which is also the tangent of L
        along W."""
        factor, inner = lower(xs[0]), xs[1]
        w = halved(ct)
        w = w + swapped(w)
        right = swapped(solve_lower(factor, w))  # W L^-T, as W is symmetric
        q = halved(solve_lower(factor, right))
        whole = out + swapped(out)
        ct_factor = matmul(lower(inner), swapped(q)) - matmul(whole, right)
        return lower(ct_factor), lower(matmul(factor, q))

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        """The derivative of Phi(S + S^T), from that of L^T S L = Phi(L^T L')."""
        t_factor, t_inner = ts
        factor, inner = xs  # only the lower triangle of `factor` is read
        tangent = None if t_inner is None else self(factor, t_inner)
        if t_factor is not None:
            t_factor, whole = lower(t_factor), out + swapped(out)
            p = halved(matmul(swapped(t_factor), lower(inner)))
            # dS + dS^T, where dS = L^-T (dP - dL^T S L - L^T S dL) L^-1 and S + S^T is `whole`.
            turned = matmul(swapped(t_factor), matmul(whole, lower(factor)))
            s = between(factor, p + swapped(p) - turned - swapped(turned))
            moved = halved(s)
            tangent = moved if tangent is None else tangent + moved
        return tangent


def _pulled_back(factor: Any, ct: Any) -> Any:
    """The pullback by blocks: the lower right block, the block left of it, then the upper left
    one."""
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
    """The product by SciPy's BLAS, which also does the triangular solves. NumPy's BLAS has its own
    threads, and the two would wait for each other."""
    if x.size == 0:
        return np.zeros((len(x), y.shape[1]), y.dtype)
    return fortran("blas", "gemm", y.dtype)(1.0, y.T, x.T).T


cholesky = Cholesky()
cholesky_pullback = CholeskyPullback()


# ---- LU factors


@parametric
class LU(Routine):
    """The factors of P A = L U, transposed, and for rows 1, 2, ... the row that each was swapped
    with.

    They are stored as by LAPACK: by columns, which are the rows of the transpose, without L's
    diagonal of ones. Rows are counted from 1.
    """

    name = "lu"
    cores = (2,)
    of_complex = True
    kernel = "lu"
    factors = True
    overwrites = (0, None)
    turned = True
    results = 2

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        (a,) = xs
        return square(self.name, a), Aval(a.shape[:-1], np.dtype(np.int32))

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(_factored, (2,), xs[0])

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None, None  # the readers of the factors have rules with respect to A


def _factored(a: Any) -> Any:
    if a.size == 0:
        return np.array(a), np.zeros(0, np.int32)
    factors, pivots, _ = fortran("lapack", "getrf", a.dtype)(a)
    return factors.T, pivots.astype(np.int32) + 1


class Factored(Parametric):
    """A function of A that is given A's LU factors too: `x(A, lu, pivots, ...)`."""

    def checked(self, a: Aval, factors: Aval, pivots: Aval) -> Aval:
        if not (square(str(self.name), a).shape == factors.shape == (*pivots.shape, a.shape[-1])):
            raise ValueError(f"{self.name}: {factors} and {pivots} aren't factors of {a}")
        return a


@parametric
class LUSolve(Factored, Routine):
    """The rows x with A x = b for each row b of B: X = B A^-T. Or, `transposed`, with A^T x = b.

    The cotangents are B' = X' A^-1 and A' = -B'^T X (Giles, 2.3.1).
    """

    transposed: bool = False

    name = "lu_solve"
    cores = (2, 2, 1, 2)
    algebra = Algebra(by_rows=True)
    of_complex = True
    overwrites = (3,)
    reads = (1, 2)

    @property
    def kernel(self) -> str:
        return "lu_solve_transposed" if self.transposed else "lu_solve"

    def aval(self, *xs: Aval) -> Aval:
        b = xs[3]
        a = self.checked(*xs[:3])
        if a.shape[-1] != b.shape[-1]:
            raise ValueError(f"lu_solve: {a} doesn't fit the rows of {b}")
        return b.with_shape((*broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]))

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(self._solve, (2, 1, 2), *xs[1:])

    def _solve(self, factors: Any, pivots: Any, b: Any) -> Any:
        if b.size == 0:
            return np.array(b)
        if len(b) > 1 and len(factors) * b.size <= ALONE:
            return self._solve_alone(factors, pivots, b)
        if np.any((pivots < 1) | (pivots > len(factors))):  # LAPACK would write to other memory
            return np.full_like(b, np.nan)
        getrs = fortran("lapack", "getrs", b.dtype)
        return getrs(factors.T, pivots - 1, b.T, trans=self.transposed)[0].T

    def _solve_alone(self, factors: Any, pivots: Any, b: Any) -> Any:
        """The steps of LAPACK's `getrs` on one thread."""
        order = list(range(len(factors)))
        for k, row in enumerate(pivots.tolist()):
            order[k], order[row - 1] = order[row - 1], order[k]
        if not self.transposed:
            half = trsm(factors.T, np.take(b, order, 1).T, 1, lower=True, diag=True)
            return trsm(factors.T, half, 1).T
        half = trsm(factors.T, b.T, 1, trans_a=True)
        found = np.empty_like(b)
        found[:, order] = trsm(factors.T, half, 1, lower=True, diag=True, trans_a=True).T
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
class InverseT(Factored, Routine):
    """A^-T, which derivatives of determinants contain. Its transpose is the inverse.

    The cotangent of A is -X X'^T X (Giles, 2.2.3, transposed).
    """

    name = "inverse_t"
    cores = (2, 2, 1)
    of_complex = True
    kernel = "inverse_t"
    overwrites = (1,)
    reads = (2,)

    def aval(self, *xs: Aval) -> Aval:
        return self.checked(*xs)

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(_inverted, (2, 1), *xs[1:])

    def work(self, *xs: Aval) -> int:
        return WORK * max(1, xs[0].shape[-1])  # the kernel needs some even without rows

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return -matmul(matmul(out, swapped(ct)), out), None, None

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else -matmul(matmul(out, swapped(ts[0])), out)


def _inverted(factors: Any, pivots: Any) -> Any:
    if factors.size == 0:
        return np.array(factors)
    if np.any(np.diagonal(factors) == 0):  # LAPACK would return the factors
        return np.full_like(factors, np.nan)
    return fortran("lapack", "getri", factors.dtype)(factors.T, pivots - 1)[0].T


inverse_t = InverseT()


@parametric
class SLogDet(Factored, Routine):
    """The sign of A's determinant, and the logarithm of its absolute value.

    The cotangent of A is l' A^-T, for the cotangent l' of the logarithm (Giles, 2.2.4).
    """

    name = "slogdet"
    cores = (2, 2, 1)
    kernel = "slogdet"
    reads = (1, 2)
    numbers = ("", "")
    results = 2

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
    """One number for each matrix, with two further axes of extent 1."""
    return ExpandDims((x.ndim, x.ndim + 1))(x)
