"""The determinant and its derivatives of every order, at singular matrices too.

The determinant is a polynomial, so it has all derivatives everywhere. But det(A) A^-T and its
derivatives divide by 0, or nearly 0, at matrices without full rank. Here nothing is divided: with
A = U diag(s) V^T all of it is sums of products of singular values between orthogonal factors.

Names: `s` singular values; `tau` the sign of det(U) det(V).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import parametric, total
from tapegrad.primitives.kinds import Library
from tapegrad.primitives.triangles import square
from tapegrad.primitives.views import ExpandDims


@parametric
class Det(Library):
    """The determinant of A. Its derivative is the matrix of cofactors."""

    name = "det"
    cores = (2,)

    def aval(self, *xs: Aval) -> Aval:
        a = square(self.name, xs[0])
        return a.with_shape(a.shape[:-2])

    def evaluate(self, *xs: Any) -> Any:
        return np.linalg.det(xs[0])

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return (ExpandDims((ct.ndim, ct.ndim + 1))(ct) * Cofactors(0)(xs[0]),)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        from tapegrad.primitives.reductions import Sum

        if ts[0] is None:
            return None
        products = Cofactors(0)(xs[0]) * ts[0]
        return Sum((products.ndim - 2, products.ndim - 1))(products)


@parametric
class Cofactors(Library):
    """G(A; E1, ..., Em): the gradient with respect to A of D^m det(A)[E1, ..., Em].

    Without a direction it is the matrix of cofactors. <G(A; E1, ..., Em), X> is the derivative of
    order m + 1, which doesn't depend on the order of E1, ..., Em and X. So for the cotangent X of
    G, the cotangent of A is G(A; E1, ..., Em, X), and that of Ek is G with Ek replaced by X.
    """

    directions: int

    name = "cofactors"
    cores = 2

    def aval(self, *xs: Aval) -> Aval:
        a = square(self.name, xs[0])
        if len(xs) != 1 + self.directions or any(x.shape != a.shape for x in xs):
            raise ValueError(f"cofactors: {xs} aren't a matrix and {self.directions} directions")
        return a

    def evaluate(self, *xs: Any) -> Any:
        a, *along = [x.astype(np.float64) for x in xs]
        known = np.all(np.isfinite(a), (-2, -1), keepdims=True)
        a = np.where(known, a, 0.0)
        # A power of two is factored out, so that A is near 1: products of singular values may
        # overflow or underflow where their sums don't.
        # G(2^e A; E1, ...) = 2^(e (n - 1 - m)) G(A; ...).
        exponent = np.frexp(np.max(np.abs(a), (-2, -1), initial=0.0, keepdims=True))[1]
        u, s, vt = np.linalg.svd(np.ldexp(a, -exponent))
        tau = np.linalg.det(u) * np.linalg.det(vt)
        ut, v = np.swapaxes(u, -1, -2), np.swapaxes(vt, -1, -2)
        inner = _at_diagonal(s, [ut @ e @ v for e in along])
        result = tau[..., None, None] * (u @ inner @ vt)
        result = np.ldexp(result, exponent * (a.shape[-1] - 1 - self.directions))
        return np.where(known, result, np.nan).astype(xs[0].dtype)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return [Cofactors(self.directions + 1)(*xs, ct)] + [
            self(*xs[: k + 1], ct, *xs[k + 2 :]) for k in range(self.directions)
        ]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        t, *moved = ts
        terms = [] if t is None else [Cofactors(self.directions + 1)(*xs, t)]
        terms += [self(*xs[: k + 1], e, *xs[k + 2 :]) for k, e in enumerate(moved) if e is not None]
        return total(terms)


def _at_diagonal(s: Any, along: Sequence[Any]) -> Any:
    """G(diag(s); E1, ..., Em)."""
    every = np.eye(s.shape[-1], dtype=bool)
    if not along:
        return np.where(every, _without_each(s)[..., None, :], 0.0)
    if len(along) > 1:
        return _polynomial(s, along)
    (e,) = along
    # The product of all s but s_i and s_j. Among det's terms of second order m_ii m_jj has this
    # factor, and m_ij m_ji has minus it.
    pairs = np.where(every, 0.0, _without_each(np.where(every, 1.0, s[..., None, :])))
    diagonal = (pairs @ np.diagonal(e, 0, -2, -1)[..., None])[..., 0]
    return np.where(every, diagonal[..., None, :], -pairs * np.swapaxes(e, -1, -2))


def _without_each(x: Any) -> Any:
    """For each number along the last axis, the product of all others."""
    ones = np.ones((*x.shape[:-1], 1))
    before = np.concatenate([ones, np.cumprod(x[..., :-1], -1)], -1)
    after = np.concatenate([ones, np.cumprod(x[..., :0:-1], -1)], -1)[..., ::-1]
    return before * after


def _polynomial(s: Any, along: Sequence[Any]) -> Any:
    """The coefficient of x1 ... xm in the cofactors of M = diag(s) + x1 E1 + ... + xm Em.

    It is computed by an algorithm without divisions, and its reverse (R. Bird, "A simple
    division-free algorithm for computing determinants", 2011): F_1 = M, F_(k+1) = mu(F_k) M, and
    the determinant is (-1)^(n-1) times the first element of F_n. mu(F) is the part of F above the
    diagonal; its diagonal is minus the sum of F's diagonal elements further down. A number is a
    polynomial in which xk^2 = 0: an array over the subsets of x1, ..., xm, as bits.
    """
    n, full = s.shape[-1], 1 << len(along)
    m = np.zeros((full, *s.shape, n))
    m[0] = np.where(np.eye(n, dtype=bool), s[..., None, :], 0.0)
    for k, e in enumerate(along):
        m[1 << k] = e

    def times(x: Any, y: Any) -> Any:
        found = np.zeros_like(x)
        for whole in range(full):
            part = whole
            while True:
                found[whole] += x[part] @ y[whole ^ part]
                if not part:
                    break
                part = (part - 1) & whole
        return found

    def placed(diagonal: Any) -> Any:
        return np.where(np.eye(n, dtype=bool), diagonal[..., None, :], 0.0)

    def mu(f: Any) -> Any:
        d = np.diagonal(f, 0, -2, -1)
        below = np.flip(np.cumsum(np.flip(d, -1), -1), -1) - d
        return np.triu(f, 1) - placed(below)

    def mu_transposed(ct: Any) -> Any:
        d = np.diagonal(ct, 0, -2, -1)
        return np.triu(ct, 1) - placed(np.cumsum(d, -1) - d)

    turned = np.swapaxes(m, -1, -2)
    factors, f = [], m
    for _ in range(n - 1):
        factors.append(mu(f))
        f = times(factors[-1], m)
    ct_m, ct = np.zeros_like(m), np.zeros_like(m)
    if n:
        ct[0, ..., 0, 0] = (-1.0) ** (n - 1)
    for factor in reversed(factors):
        ct_m += times(np.swapaxes(factor, -1, -2), ct)
        ct = mu_transposed(times(ct, turned))
    return (ct_m + ct)[-1]
