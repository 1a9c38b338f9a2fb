"""Decompositions of complex matrices: Hermitian ones, eigenvalues, singular values, determinants.

Rules are stated, as in the literature, for gradients with respect to the inner product
Re tr(X^H Y). Those are the conjugates of cotangents: a rule begins and ends with `conj`.

Eigenvectors and singular vectors are determined up to a factor of modulus 1, and those of equal
values up to a unitary matrix. A loss that doesn't depend on these factors has the right derivative.
For equal values the derivative is NaN if it isn't known, as for real matrices (see `degenerate`).

Names: `g` a gradient; X^H the adjoint of X; `w`, `v` eigenvalues and eigenvectors; `u`, `s`, `vh`
singular values and vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.ir.traits import Ties
from tapegrad.primitives.base import parametric, total
from tapegrad.primitives.complexes import PARTS, WHOLES, cartesian, conj, imag, real
from tapegrad.primitives.contractions import adjoint, matmul
from tapegrad.primitives.degenerate import (
    column,
    inverted,
    over_any_gaps,
    placed,
    row,
    turns,
)
from tapegrad.primitives.elementwise import AsType
from tapegrad.primitives.kinds import Library
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.solving import LU, Factored, inverse_t
from tapegrad.primitives.spectral import (
    FLAG,
    Decomposition,
    Subset,
    apart,
    attempted,
    by_driver,
    decomposed,
    moved_vectors,
    turned_singular,
)
from tapegrad.primitives.triangles import (
    below,
    from_triangle,
    halved,
    lower,
    over_batch,
    solve_lower,
    solve_upper,
    square,
)
from tapegrad.primitives.views import Diagonal, ExpandDims


def parts_of(x: Aval, shape: Any) -> Aval:
    """The real type of this shape that belongs to the complex type `x`."""
    return Aval(tuple(shape), PARTS.get(x.dtype, x.dtype))


def hermitian(x: Any) -> Any:
    """(X + X^H) / 2."""
    return (x + adjoint(x)) * 0.5


def to_triangle(g: Any) -> Any:
    """The transpose of `from_triangle`, for a Hermitian gradient."""
    return lower(g) + below(g)


def _complex(x: Any) -> Any:
    """Real numbers as complex ones."""
    return AsType(WHOLES[x.dtype])(x)


# ---- Cholesky's factor


@parametric
class HermitianCholesky(Library):
    """The lower triangle L with L L^H = A, of which only the lower triangle is read, and whether
    the factorisation failed.

    With Phi the lower triangle and half of the diagonal, the gradient of A is the Hermitian part of
    L^-H Phi(L^H L') L^-1 (I. Murray, "Differentiation of the Cholesky decomposition",
    arXiv:1602.07527, with adjoints instead of transposes).
    """

    name = "hermitian_cholesky"
    cores = (2,)
    results = 2
    of_complex = True

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        return square(self.name, xs[0]), Aval(xs[0].shape[:-2], FLAG)

    def evaluate(self, *xs: Any) -> Any:
        return attempted(lambda x: (np.linalg.cholesky(x),), lambda x: (x.shape,), xs[0])

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        if ct[0] is None:
            return (None,)
        turned = adjoint(out[0])
        half = solve_upper(turned, halved(matmul(turned, conj(ct[0]))))  # L^-H Phi
        whole = adjoint(solve_upper(turned, adjoint(half)))
        return (conj(to_triangle(hermitian(whole))),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        factor = out[0]
        half = solve_lower(factor, from_triangle(ts[0]))
        return matmul(factor, halved(from_triangle(solve_lower(factor, adjoint(half))))), None


# ---- eigenvalues


@parametric
class HermitianEigH(Decomposition):
    """The eigenvalues w of a Hermitian A, in ascending order, and its eigenvectors as columns of V.

    With F_ij = 1 / (w_j - w_i), and 0 on the diagonal, the gradient of A is the Hermitian part of
    V (diag(w') + F * (V^H V')) V^H (C. Boeddeker et al., "On the computation of complex-valued
    gradients with application to statistically optimum beamforming", arXiv:1701.00392, 4.60).
    """

    lower: bool = True
    driver: str = ""
    subset: Subset = ()

    name = "hermitian_eigh"
    cores = (2,)
    results = 3
    of_complex = True

    def aval(self, *xs: Aval) -> tuple[Aval, Aval, Aval]:
        a = square(self.name, xs[0])
        return parts_of(a, a.shape[:-1]), a, Aval(a.shape[:-2], FLAG)

    def evaluate(self, *xs: Any) -> Any:
        uplo: Any = "L" if self.lower else "U"

        def one(x: Any) -> Any:
            if not self.driver:
                return tuple(np.linalg.eigh(x, uplo))
            each: Any = lambda x: by_driver(x, self.lower, self.driver, self.subset)  # noqa: E731
            return over_batch(each, (2,), x)

        w, v, failed = attempted(one, lambda x: (x.shape[:1], x.shape), xs[0])
        return np.real(w), v, failed

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        (ct_w, ct_v, _), (w, v, _) = ct, out
        terms = []
        if ct_w is not None:
            terms.append(matmul(v * row(_complex(ct_w)), adjoint(v)))
        if ct_v is not None:
            turned = turns(matmul(adjoint(v), conj(ct_v)), w, ct_w)
            terms.append(matmul(matmul(v, turned), adjoint(v)))
        if not terms:
            return (None,)
        g = hermitian(total(terms))
        found = to_triangle(g) if self.lower else adjoint(to_triangle(g))
        return (conj(found),)

    def tangents(self, read: Any, directions: Any, ts: Any, out: Any, *xs: Any) -> Any:
        (t,), (w, v, _) = ts, out
        t = from_triangle(t if self.lower else adjoint(t))
        turned = matmul(adjoint(v), matmul(t, v))
        return real(Diagonal(0)(turned)), matmul(v, apart(turned, w, read[0])), None


@parametric
class ComplexEig(Library):
    """The eigenvalues w of any square matrix, eigenvectors of length 1 as columns of V, and whether
    the algorithm didn't converge. They are complex for real matrices too.

    With F_ij = 1 / (w_j - w_i)^*, and 0 on the diagonal, the gradient of A is
    V^-H (diag(w') + F * (V^H V' - V^H V diag(Re(V^H V')))) V^H (Boeddeker et al., 4.77). The
    subtracted term is the derivative of the length.
    """

    name = "complex_eig"
    cores = (2,)
    results = 3
    of_complex = True

    def aval(self, *xs: Aval) -> tuple[Aval, ...]:
        a = square(self.name, xs[0])
        whole = a.with_dtype(WHOLES.get(a.dtype, a.dtype))
        return whole.with_shape(a.shape[:-1]), whole, Aval(a.shape[:-2], FLAG)

    def evaluate(self, *xs: Any) -> Any:
        kind = WHOLES.get(xs[0].dtype, xs[0].dtype)

        def found(x: Any) -> tuple[Any, ...]:
            w, v = np.linalg.eig(x)
            return w.astype(kind), v.astype(kind)

        return attempted(found, lambda x: (x.shape[:1], x.shape), xs[0])

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        (ct_w, ct_v, _), (w, v, _) = ct, out
        terms = []
        if ct_w is not None:
            terms.append(placed(conj(ct_w)))
        if ct_v is not None:
            turned = matmul(adjoint(v), conj(ct_v))
            length = matmul(adjoint(v), v) * row(_complex(real(Diagonal(0)(turned))))
            terms.append(over_any_gaps(turned - length, conj(w), ct_w is not None))
        if not terms:
            return (None,)
        inverse = conj(inverse_t(v, *LU()(v)))  # V^-H
        return (conj(matmul(matmul(inverse, total(terms)), adjoint(v))),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        (t,), (w, v, _) = ts, out
        t = t if t.dtype.kind == "c" else _complex(t)
        turned = matmul(adjoint(conj(inverse_t(v, *LU()(v)))), matmul(t, v))
        t_v = matmul(v, over_any_gaps(turned, w))
        along = _complex(real(Diagonal(0)(matmul(adjoint(v), t_v))))
        return Diagonal(0)(turned), t_v - v * row(along), None


# ---- singular values


@parametric
class ComplexSVD(Decomposition):
    """The reduced decomposition A = U diag(s) V^H; the results are U, s and V^H.

    With F_ij = 1 / (s_j^2 - s_i^2), and 0 on the diagonal, J = F * (U^H U') and K = F * (V^H V'),
    the gradient of A is U (diag(s') + (J + J^H) S + S (K + K^H) + D) V^H, plus
    (I - U U^H) U' S^-1 V^H and U S^-1 V'^H (I - V V^H). D = i Im(diag(U^H U')) S^-1, on the
    diagonal, is due to the factors of modulus 1. It is computed as (L - R) / 2 s, since Im(diag(V^H
    V')) is its opposite if the loss doesn't depend on these factors (Z.-Q. Wan and S.-X. Zhang,
    "Automatic differentiation for complex valued SVD", arXiv:1909.02659).
    """

    driver: str = ""

    name = "complex_svd"
    ties = Ties(origin=1, balanced=False)
    cores = (2,)
    results = 4
    of_complex = True

    def aval(self, *xs: Aval) -> tuple[Aval, ...]:
        (a,) = xs
        *batch, m, n = a.shape
        k = min(m, n)
        left, right = a.with_shape((*batch, m, k)), a.with_shape((*batch, k, n))
        return left, parts_of(a, (*batch, k)), right, Aval(tuple(batch), FLAG)

    def evaluate(self, *xs: Any) -> Any:
        def shapes(x: Any) -> Any:
            k = min(x.shape)
            return (len(x), k), (k,), (k, x.shape[1])

        u, s, vh, failed = attempted(lambda x: decomposed(x, False, self.driver), shapes, xs[0])
        return u, np.real(s), vh, failed

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        (ct_u, ct_s, ct_vh, _), (u, s, vh, _) = ct, out
        uh, v = adjoint(u), adjoint(vh)
        whole = _complex(inverted(s))
        terms = []
        inner = [None if ct_s is None else placed(_complex(ct_s))]
        left = right = None
        if ct_u is not None:
            g = conj(ct_u)
            left = matmul(uh, g)
            if u.shape[-2] > u.shape[-1]:
                terms.append(matmul((g - matmul(u, left)) * row(whole), vh))
        if ct_vh is not None:
            g = adjoint(conj(ct_vh))
            right = matmul(vh, g)
            if vh.shape[-1] > vh.shape[-2]:
                rest = g - matmul(v, right)
                terms.append(matmul(u, column(whole) * adjoint(rest)))
        if left is not None or right is not None:
            inner.append(turned_singular(s, ct_s, left, right))
        terms.append(matmul(u, matmul(total(inner), vh)))
        return (conj(total(terms)),)

    def tangents(self, read: Any, directions: Any, ts: Any, out: Any, *xs: Any) -> Any:
        (t,), (u, s, vh, _) = ts, out
        t_u, t_vh = moved_vectors(u, s, vh, t, read[1])
        t_s = real(Diagonal(0)(matmul(matmul(adjoint(u), t), adjoint(vh))))
        return t_u, t_s, t_vh, None


# ---- determinants


@parametric
class ComplexSLogDet(Factored, Library):
    """det(A) / |det(A)| and the logarithm of |det(A)|. The operands are A and its LU factors.

    With t = tr(A^-1 dA) the logarithm changes by Re(t), and the sign p by i p Im(t). The cotangent
    of A is (l' + i Im(p' p)) A^-T.
    """

    name = "complex_slogdet"
    cores = (2, 2, 1)
    results = 2
    of_complex = True

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        a = self.checked(*xs)
        return a.with_shape(a.shape[:-2]), parts_of(a, a.shape[:-2])

    def evaluate(self, *xs: Any) -> Any:
        return tuple(np.linalg.slogdet(xs[0]))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        (ct_sign, ct_log), sign = ct, out[0]
        if ct_sign is None and ct_log is None:
            return None, None, None
        nothing = out[1].constant(0)
        turned = nothing if ct_sign is None else imag(ct_sign * sign)
        factor = cartesian(nothing if ct_log is None else ct_log, turned)
        return ExpandDims((factor.ndim, factor.ndim + 1))(factor) * inverse_t(*xs), None, None

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        if ts[0] is None:
            return None
        products, sign = inverse_t(*xs) * ts[0], out[0]
        t = Sum((products.ndim - 2, products.ndim - 1))(products)
        return cartesian(out[1].constant(0), imag(t)) * sign, real(t)
