"""Matrix equations whose solution is a matrix: Sylvester's, Stein's and Riccati's. SciPy solves
them.

Matrices are the last two axes. The derivative of a solution solves a linear equation of the same
kind, which contains the solution. So the rules work to any order.

Names: `x` the solution; `s` the solution of the adjoint equation for its cotangent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import broadcast_shapes, parametric, total
from tapegrad.primitives.complexes import conj
from tapegrad.primitives.contractions import adjoint, matmul, swapped
from tapegrad.primitives.kinds import Library
from tapegrad.primitives.solving import LU, LUSolve, inverse_t
from tapegrad.primitives.triangles import over_batch, square


def _solver(name: str) -> Any:
    import scipy.linalg

    return getattr(scipy.linalg, name)


@parametric
class Sylvester(Library):
    """The X with A X + X B = Q.

    With A^T S + S B^T = X' the cotangents are Q' = S, A' = -S X^T and B' = -X^T S.
    """

    name = "sylvester"
    cores = (2, 2, 2)
    of_complex = True

    def aval(self, *xs: Aval) -> Aval:
        a, b, q = xs
        if (square(self.name, a).shape[-1], square(self.name, b).shape[-1]) != q.shape[-2:]:
            raise ValueError(f"sylvester: {a} and {b} don't fit {q}")
        lead = broadcast_shapes(*[x.shape[:-2] for x in xs])
        return q.with_shape((*lead, *q.shape[-2:]))

    def evaluate(self, *xs: Any) -> Any:
        solve = _solver("solve_sylvester")
        return over_batch(lambda a, b, q: np.asarray(solve(a, b, q), q.dtype), (2, 2, 2), *xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        s = self(swapped(xs[0]), swapped(xs[1]), ct)
        return -matmul(s, swapped(out)), -matmul(swapped(out), s), s

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        ta, tb, tq = ts
        terms = [
            tq,
            None if ta is None else -matmul(ta, out),
            None if tb is None else -matmul(out, tb),
        ]
        right = total(terms)
        return None if right is None else self(xs[0], xs[1], right)


sylvester = Sylvester()


@parametric
class Polar(Library):
    """The polar decomposition A = U P of a matrix with independent columns. The operands are A, U
    and P, which are known: U^H U = 1, and P is Hermitian and positive definite.

    With M = U^H dA the rotation Omega = U^H dU solves Omega P + P Omega = M - M^H. Nothing is
    divided by differences of singular values. dP = M - Omega P, and dU is
    U Omega + (dA - U M) P^-1.
    """

    name = "polar"
    cores = (2, 2, 2)
    results = 2
    of_complex = True

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        a, u, p = xs
        if u.shape[-2:] != a.shape[-2:] or square(self.name, p).shape[-1] != a.shape[-1]:
            raise ValueError(f"polar: {u} and {p} don't fit {a}")
        lead = broadcast_shapes(*[x.shape[:-2] for x in xs])
        return u.with_shape((*lead, *u.shape[-2:])), p.with_shape((*lead, *p.shape[-2:]))

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(lambda a, u, p: (u.copy(), p.copy()), (2, 2, 2), *xs)

    def _over(self, x: Any, p: Any) -> Any:
        """X P^-1."""
        return matmul(x, conj(inverse_t(p, *LU()(p))))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        (u, p), (g_u, g_p) = out, (None if x is None else conj(x) for x in ct)
        turned = None if g_u is None else matmul(adjoint(u), g_u)
        s = sylvester(p, p, total([turned, None if g_p is None else -matmul(g_p, p)]))
        found = matmul(u, total([s - adjoint(s), g_p]))
        if g_u is not None and u.shape[-2] > u.shape[-1]:
            rest = self._over(g_u - matmul(u, turned), p)
            found = found + rest
        return conj(found), None, None

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        t, (u, p) = ts[0], out
        if t is None:
            return None, None
        moved = matmul(adjoint(u), t)
        turned = sylvester(p, p, moved - adjoint(moved))
        t_u = matmul(u, turned)
        if u.shape[-2] > u.shape[-1]:
            t_u = t_u + self._over(t - matmul(u, moved), p)
        return t_u, moved - matmul(turned, p)


@parametric
class Stein(Library):
    """The X with X = A X A^T + Q, of real matrices.

    With S = A^T S A + X' the cotangents are Q' = S and A' = S A X^T + S^T A X.
    """

    name = "stein"
    cores = (2, 2)

    def aval(self, *xs: Aval) -> Aval:
        a, q = xs
        if square(self.name, a).shape[-2:] != q.shape[-2:]:
            raise ValueError(f"stein: {a} doesn't fit {q}")
        return q.with_shape((*broadcast_shapes(a.shape[:-2], q.shape[:-2]), *q.shape[-2:]))

    def evaluate(self, *xs: Any) -> Any:
        solve = _solver("solve_discrete_lyapunov")
        return over_batch(lambda a, q: np.asarray(solve(a, q), q.dtype), (2, 2), *xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        a, _ = xs
        s = self(swapped(a), ct)
        by_left = matmul(s, matmul(a, swapped(out)))
        return by_left + matmul(swapped(s), matmul(a, out)), s

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        (ta, tq), (a, _) = ts, xs
        terms = [tq]
        if ta is not None:
            half = matmul(out, swapped(a))
            terms += [matmul(ta, half), matmul(matmul(a, out), swapped(ta))]
        right = total(terms)
        return None if right is None else self(a, right)


@parametric
class Riccati(Library):
    """The stabilising X with A^T X + X A - X B R^-1 B^T X + Q = 0, for real matrices.

    The operands are A, G = B R^-1 B^T, Q, B and R. B and R only save computing them from G:
    derivatives are with respect to the first three. With Ac = A - G X the derivative dX solves
    Ac^T dX + dX Ac + dA^T X + X dA - X dG X + dQ = 0 (G. Hewer and C. Kenney, "The sensitivity of
    the stable Lyapunov equation", 1988; J. Sun, "Perturbation theory for algebraic Riccati
    equations", 1998). So with Ac S + S Ac^T = -X' the cotangents are Q' = S, A' = X (S + S^T) and
    G' = -X S X.
    """

    name = "riccati"
    cores = (2, 2, 2, 2, 2)

    def aval(self, *xs: Aval) -> Aval:
        a, g, q, b, r = xs
        n, m = b.shape[-2:]
        if not (square(self.name, a).shape[-2:] == g.shape[-2:] == q.shape[-2:] == (n, n)):
            raise ValueError(f"riccati: {a}, {g} and {q} don't fit each other")
        if r.shape[-2:] != (m, m):
            raise ValueError(f"riccati: {r} doesn't fit {b}")
        return q

    def evaluate(self, *xs: Any) -> Any:
        solve = _solver("solve_continuous_are")

        def one(a: Any, g: Any, q: Any, b: Any, r: Any) -> Any:
            return np.asarray(solve(a, b, q, r), q.dtype)

        return over_batch(one, (2, 2, 2, 2, 2), *xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        closed = xs[0] - matmul(xs[1], out)
        s = sylvester(closed, swapped(closed), -ct)
        return matmul(out, s + swapped(s)), -matmul(matmul(out, s), out), s, None, None

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        ta, tg, tq = ts[:3]
        terms = [None if tq is None else -tq]
        if ta is not None:
            terms.append(-(matmul(swapped(ta), out) + matmul(out, ta)))
        if tg is not None:
            terms.append(matmul(matmul(out, tg), out))
        right = total(terms)
        if right is None:
            return None
        closed = xs[0] - matmul(xs[1], out)
        return sylvester(swapped(closed), closed, right)


@parametric
class DiscreteRiccati(Library):
    """The stabilising X with X = A^T X A - A^T X B (R + B^T X B)^-1 B^T X A + Q, for real matrices.

    The operands are A, B, Q and R. With the gain K = (R + B^T X B)^-1 B^T X A and Ac = A - B K, the
    derivative dX solves dX = Ac^T dX Ac + dQ + K^T dR K + M + M^T, where M = Ac^T X (dA - dB K).
    """

    name = "discrete_riccati"
    cores = (2, 2, 2, 2)

    def aval(self, *xs: Aval) -> Aval:
        a, b, q, r = xs
        n, m = b.shape[-2:]
        if not (square(self.name, a).shape[-2:] == q.shape[-2:] == (n, n)):
            raise ValueError(f"discrete_riccati: {a} and {q} don't fit {b}")
        if r.shape[-2:] != (m, m):
            raise ValueError(f"discrete_riccati: {r} doesn't fit {b}")
        return q

    def evaluate(self, *xs: Any) -> Any:
        solve = _solver("solve_discrete_are")
        return over_batch(lambda *of: np.asarray(solve(*of), of[2].dtype), (2, 2, 2, 2), *xs)

    def _closed(self, x: Any, a: Any, b: Any, r: Any) -> tuple[Any, Any]:
        forward = matmul(swapped(b), x)
        inner = r + matmul(forward, b)
        gain = swapped(LUSolve()(inner, *LU()(inner), swapped(matmul(forward, a))))
        return gain, a - matmul(b, gain)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        a, b, _, r = xs
        gain, closed = self._closed(out, a, b, r)
        s = Stein()(closed, ct)
        ct_a = matmul(out, matmul(closed, s + swapped(s)))
        ct_r = matmul(matmul(gain, s), swapped(gain))
        return ct_a, -matmul(ct_a, swapped(gain)), s, ct_r

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        ta, tb, tq, tr = ts
        a, b, _, r = xs
        gain, closed = self._closed(out, a, b, r)
        moved = total([ta, None if tb is None else -matmul(tb, gain)])
        terms = [tq, None if tr is None else matmul(swapped(gain), matmul(tr, gain))]
        if moved is not None:
            half = matmul(matmul(swapped(closed), out), moved)
            terms += [half, swapped(half)]
        right = total(terms)
        return None if right is None else Stein()(swapped(closed), right)
