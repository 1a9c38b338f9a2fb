"""Derivatives of equal eigenvalues, of equal singular values, and of singular values that are 0.

There the vectors are arbitrary up to a rotation. A function of the values alone may still be
smooth, for example sum(eigvalsh(A)**2) = |A|^2. Its first derivative, V diag(c) V^T, doesn't depend
on the rotation. But the derivative of V diag(c) V^T along Z has the terms
Z_ij (c_j - c_i) / (w_j - w_i), which are 0 / 0. These terms are the rotation of the vectors. They
vanish for vectors that don't rotate: those between which Z is diagonal, as in perturbation theory.
So a second derivative along Z starts from vectors that Z has chosen, as `kinks` does for other
ties.

Values count as equal up to the root of the precision: at a smaller distance a quotient of
differences is less accurate than its limit. The limit isn't known for derivatives of higher order,
so these are NaN. For vectors the tolerance is smaller: see `turns`.

Names: `w`, `v` eigenvalues and eigenvectors; `u`, `s`, `vt` singular values and vectors; `c` the
cotangent of values; `z` a direction; k the number of singular values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.ir.traits import Ties
from tapegrad.primitives.base import Elementwise, Slice, parametric, total
from tapegrad.primitives.complexes import cartesian, imag, real
from tapegrad.primitives.contractions import adjoint, matmul, swapped
from tapegrad.primitives.elementwise import (
    AsType,
    logical_and,
    logical_or,
    not_equal,
    reciprocal,
    stop_gradient,
    where,
)
from tapegrad.primitives.extrema import Max
from tapegrad.primitives.kinds import Library
from tapegrad.primitives.kinked import absolute, hypot
from tapegrad.primitives.kinks import Sided, unless
from tapegrad.primitives.reductions import Any_, CumSum
from tapegrad.primitives.scatter import Concatenate
from tapegrad.primitives.triangles import folded, mirrored, over_batch
from tapegrad.primitives.views import Diagonal, ExpandDims, GetItem, PlaceDiagonal

# Powers of the precision. Two values closer than eps^TIE count as equal for their vectors; closer
# than eps^ONCE, a quotient by their difference is too inaccurate. For its derivative of order n - 1
# that limit is eps^(MANY / n). Sums of products are rounded by eps^ROUNDED. Up to eps^SMOOTH a
# difference is that of almost equal numbers.
TIE, ONCE, MANY, ROUNDED, SMOOTH = 0.9, 0.75, 0.8, 0.9, 0.2


def row(x: Any) -> Any:
    """Vectors as matrices with one row."""
    return ExpandDims((x.ndim - 1,))(x)


def column(x: Any) -> Any:
    """Vectors as matrices with one column."""
    return ExpandDims((x.ndim,))(x)


def placed(x: Any) -> Any:
    """Square matrices with these vectors as diagonals."""
    return PlaceDiagonal((x.shape[-1], x.shape[-1]), 0)(x)


def inverted(x: Any, zero: Any = None) -> Any:
    """1 / x, but 0 where x is 0, or where the mask `zero` is true."""
    zero = x.equals(0) if zero is None else zero
    return where(zero, x.constant(0), reciprocal(where(zero, x.constant(1), x)))


def precision(x: Any, power: float) -> float:
    """The machine precision of the dtype of `x`, raised to a power."""
    return float(np.finfo(x.dtype).eps ** power)


def largest(x: Any) -> Any:
    """The largest absolute value of each vector, as a vector of one element."""
    axis = x.ndim - 1
    return ExpandDims((axis,))(Max((axis,))(absolute(stop_gradient(x)))) if x.shape[-1] else x


def equal(x: Any, power: float = 0.5) -> Any:
    """The pairs of sorted values that are equal, up to a power of the precision: no gap between
    them is larger, as in `_groups`. The outer ones of three close values are equal too."""
    x, axis, n = stop_gradient(x), x.ndim - 1, x.shape[-1]
    if n:
        rest = [Slice(0, size) for size in x.shape[:-1]]
        first, others = GetItem((*rest, Slice(0, 1)))(x), GetItem((*rest, Slice(0, n - 1)))(x)
        close = absolute(x - Concatenate(axis)(first, others)) <= largest(x) * precision(x, power)
        x = CumSum(axis)(where(close, x.constant(0), x.constant(1)))
    return (row(x) - column(x)).equals(0)


def vanishing(s: Any) -> Any:
    """Which singular values count as 0."""
    return stop_gradient(s) <= largest(s) * precision(s, 0.5)


def triangle_of(whole: Any, lower: bool) -> Any:
    """The cotangent of the triangle that is read, for the cotangent of the symmetric matrix."""
    return folded(whole) if lower else swapped(folded(swapped(whole)))


def read_triangle(t: Any, lower: bool) -> Any:
    """The symmetric matrix whose lower or upper triangle is that of `t`."""
    return mirrored(t if lower else swapped(t))


def symmetric(z: Any) -> Any:
    """(Z + Z^T) / 2."""
    return (z + swapped(z)) * 0.5


# ---- eigenvalues


@parametric
class EigenvaluePullback(Sided):
    """V diag(c) V^T: the cotangent of a symmetric A, for the cotangent c of its eigenvalues. The
    operands are A, of which one triangle is read, w, V and c; w and V are functions of A."""

    lower: bool

    name = "eigenvalue_pullback"
    cores = (2, 1, 2, 1)
    points = 1
    directions = 0
    pulls = True
    ties = Ties(balanced=False)

    def kink(self, operands: Sequence[Any]) -> Any:
        return operands[0], self.lower

    def aval(self, *xs: Aval) -> Aval:
        return xs[2].with_shape(xs[2].shape)

    def expand(self, *xs: Any) -> Any:
        _, _, v, c = xs
        return matmul(v * row(c), swapped(v))

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        _, w, v, c = xs
        z, chosen = symmetric(ct), _chosen(directions, w, v)
        ct_c = Diagonal(0)(matmul(swapped(chosen), matmul(z, chosen)))
        return triangle_of(_turned(z, w, v, c), self.lower), None, None, ct_c

    def moved(self, ts: Sequence[Any]) -> Any:
        return read_triangle(ts[0], self.lower)

    def jvp_along(self, directions: Any, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        (t, _, _, t_c), (_, w, v, c), chosen = ts, xs, _chosen(directions, xs[1], xs[2])
        return total(
            [
                None if t is None else _turned(read_triangle(t, self.lower), w, v, c),
                None if t_c is None else matmul(chosen * row(t_c), swapped(chosen)),
            ]
        )


def _chosen(directions: Any, w: Any, v: Any) -> Any:
    return chosen_eigenvectors(w, v, symmetric(directions[0])) if directions else v


def _turned(z: Any, w: Any, v: Any, c: Any) -> Any:
    """The derivative of V diag(c) V^T along a symmetric Z. It is V (C * (V^T Z V)) V^T with
    C_ij = (c_j - c_i) / (w_j - w_i). As a linear map of Z it is symmetric."""
    quotients = over_gaps(row(c) - column(c), w, 0.5)
    inner = quotients * matmul(swapped(v), matmul(z, v))
    return matmul(v, matmul(inner, swapped(v)))


@parametric
class ChosenEigenvectors(Library):
    """Eigenvectors between which Z is diagonal, if their eigenvalues are equal. The derivative is
    that of V, but NaN for the vectors of equal eigenvalues."""

    name = "chosen_eigenvectors"
    cores = (1, 2, 2)

    def aval(self, *xs: Aval) -> Aval:
        return xs[1].with_shape(xs[1].shape)

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(_chosen_eigenvectors, (1, 2, 2), *xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return None, unknown(ct, row(is_repeated(xs[0]))), None

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return None if ts[1] is None else unknown(ts[1], row(is_repeated(xs[0])))


chosen_eigenvectors = ChosenEigenvectors()


def is_repeated(x: Any) -> Any:
    """Which values are equal to another one."""
    pairs = equal(x)
    others = logical_and(pairs, not_equal(*places(x)))
    return Any_((others.ndim - 1,))(others)


def places(x: Any) -> tuple[Any, Any]:
    """The number of each value, as a row and as a column."""
    from tapegrad.primitives.base import Node
    from tapegrad.primitives.views import BroadcastTo

    one = x.constant(1)
    assert isinstance(one, Node)
    count = CumSum(0)(BroadcastTo(x.shape[-1:])(one))
    return row(count), column(count)


def unknown(ct: Any, where_: Any) -> Any:
    """The cotangent, but NaN where the mask is true and the cotangent isn't 0: the derivative isn't
    known there."""
    asked = not_equal(ct, ct.constant(0))
    return unless(logical_and(asked, where_), ct)


def _known(n: int) -> Elementwise:
    """An identity of x, a quotient by a gap between two values; c is the gap in units of the
    largest value. Each derivative, of which there were n - 1, divides the rounding error by the gap
    once more. Where few digits are left, the derivative is NaN."""

    def times(t: Any, out: Any, c: Any, x: Any) -> tuple[Any, Any]:
        t = unknown(t, c <= c.constant(precision(c, MANY / (n + 1))))
        return None, KNOWN[n](c, t) if n < len(KNOWN) else t

    return Elementwise(
        lambda c, x: np.where(c == c, x, x),
        times=times,
        name=f"known_{n}",
        scalar="{1}",
        numpy="np.where({0} == {0}, {1}, {1})",
        cost=0,
    )


KNOWN = [_known(n) for n in (1, 2, 3, 4)]


def over_gaps(x: Any, values: Any, power: float, counts: Any = None) -> Any:
    """X_ij / (w_j - w_i), but 0 for values that are equal up to a power of the precision.
    Derivatives that aren't known are NaN, for the gaps in the mask `counts`, or for all."""
    gaps = row(values) - column(values)
    close = absolute(stop_gradient(gaps)) * inverted(row(largest(values)))
    unequal = not_equal(*places(values))
    unequal = unequal if counts is None else logical_and(unequal, counts)
    close = where(unequal, close, close.constant(np.inf))
    found = x * whole_like(inverted(gaps, equal(values, power)), x)
    if found.dtype.kind == "c":
        return cartesian(KNOWN[0](close, real(found)), KNOWN[0](close, imag(found)))
    return KNOWN[0](close, found)


def _chosen_eigenvectors(w: Any, v: Any, z: Any) -> Any:
    if not (np.all(np.isfinite(v)) and np.all(np.isfinite(z))):
        return v
    chosen = np.array(v)
    for group in _groups(w, precision(w, 0.5) * np.max(np.abs(w), initial=0)):
        vectors = v[:, group]
        chosen[:, group] = vectors @ np.linalg.eigh(vectors.T @ z @ vectors)[1]
    return chosen


def _groups(x: Any, tolerance: float) -> list[Any]:
    """The groups of equal numbers among sorted ones, as arrays of positions."""
    parts = np.split(np.arange(len(x)), np.flatnonzero(np.abs(np.diff(x)) > tolerance) + 1)
    return [part for part in parts if len(part) > 1]


# ---- singular values


@parametric
class SingularValuePullback(Sided):
    """U diag(c) V^T: the cotangent of A, for the cotangent c of its singular values. A singular
    value that is 0 doesn't count: it has a kink, as |x| does. The operands are A, U, s, V^T and
    c."""

    name = "singular_value_pullback"
    cores = (2, 2, 1, 2, 1)
    points = 1
    directions = 0
    pulls = True
    ties = Ties(balanced=False)

    def aval(self, *xs: Aval) -> Aval:
        u, _, vt = xs[1:4]
        return u.with_shape((*u.shape[:-1], vt.shape[-1]))

    def expand(self, *xs: Any) -> Any:
        _, u, s, vt, c = xs
        return matmul(u * row(where(s.equals(0), c.constant(0), c)), vt)

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        """The derivative of U diag(c) V^T along Z. Let E = U^T Z V, with symmetric part P and
        antisymmetric part Q. It is the sum of

            U (P_ij (c_j - c_i) / (s_j - s_i) + Q_ij (c_j + c_i) / (s_j + s_i)) V^T,

        (I - U U^T) Z V diag(c / s) V^T and the corresponding term on the right.
        """
        _, u, s, vt, c = xs
        ut, v, none = swapped(u), swapped(vt), vanishing(s)
        if directions:
            chosen, chosen_t = chosen_singular_vectors(u, s, vt, directions[0])
        else:
            chosen, chosen_t = u * row(where(s.equals(0), s.constant(0), s.constant(1))), vt
        ct_c = Diagonal(0)(matmul(swapped(chosen), matmul(ct, swapped(chosen_t))))
        left, right = matmul(ut, ct), matmul(ct, v)
        e = matmul(left, v)
        even = symmetric(e) * over_gaps(row(c) - column(c), s, 0.5)
        both = logical_and(row(none), column(none))
        odd = (e - symmetric(e)) * (row(c) + column(c)) * inverted(row(s) + column(s), both)
        result = matmul(u, matmul(even + odd, vt))
        slopes = c * inverted(s, none)
        if u.shape[-2] > u.shape[-1]:
            result = result + matmul((right - matmul(u, e)) * row(slopes), vt)
        if vt.shape[-1] > vt.shape[-2]:
            result = result + matmul(u, column(slopes) * (left - matmul(e, vt)))
        return result, None, None, None, ct_c

    def jvp_along(self, directions: Any, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        linear = super().jvp_along(directions, ts, out, *xs)
        if ts[0] is None:
            return linear
        turned = self.vjp_along(directions, ts[0], out, *xs)  # symmetric, as for any gradient
        return total([linear, turned[0]])


@parametric
class ChosenSingularVectors(Library):
    """U and V^T of A such that Z is diagonal between the vectors of equal singular values. The
    vectors of singular values that are 0 are Z's singular vectors in the complement of the others.
    The derivative is NaN for all vectors that were chosen."""

    name = "chosen_singular_vectors"
    cores = (2, 1, 2, 2)
    results = 2

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        return xs[0].with_shape(xs[0].shape), xs[2].with_shape(xs[2].shape)

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(_chosen_singular_vectors, (2, 1, 2, 2), *xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        turned = logical_or(is_repeated(xs[1]), vanishing(xs[1]))
        ct_u, ct_vt = ct
        return (
            None if ct_u is None else unknown(ct_u, row(turned)),
            None,
            None if ct_vt is None else unknown(ct_vt, column(turned)),
            None,
        )

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        turned = logical_or(is_repeated(xs[1]), vanishing(xs[1]))
        t_u, t_vt = ts[0], ts[2]
        return (
            None if t_u is None else unknown(t_u, row(turned)),
            None if t_vt is None else unknown(t_vt, column(turned)),
        )


chosen_singular_vectors = ChosenSingularVectors()


def _chosen_singular_vectors(u: Any, s: Any, vt: Any, z: Any) -> tuple[Any, Any]:
    if not (np.all(np.isfinite(s)) and np.all(np.isfinite(z))):
        return u, vt
    chosen, chosen_t = np.array(u), np.array(vt)
    tolerance = precision(s, 0.5) * np.max(s, initial=0)
    for group in _groups(s, tolerance):
        e = u[:, group].T @ z @ vt[group].T
        turn = np.linalg.eigh(e + e.T)[1][:, ::-1]  # in descending order, as singular values are
        chosen[:, group] = u[:, group] @ turn
        chosen_t[group] = turn.T @ vt[group]
    rank = np.count_nonzero(s > tolerance)
    if rank < len(s):
        rows = np.linalg.qr(u[:, :rank], mode="complete")[0][:, rank:]
        columns = np.linalg.qr(vt[:rank].T, mode="complete")[0][:, rank:]
        left, _, right = np.linalg.svd(rows.T @ z @ columns, full_matrices=False)
        chosen[:, rank:], chosen_t[rank:] = rows @ left, right @ columns.T
    return chosen, chosen_t


# ---- vectors that are arbitrary


def turns(m: Any, values: Any, ct_values: Any) -> Any:
    """(M - M^H) / 2 (w_j - w_i), where M = V^H V' for the cotangent V' of vectors; w are the
    values.

    If a function doesn't depend on how the vectors of equal values are rotated, M is Hermitian
    there. If it depends on the vectors alone, these pairs contribute 0. If it reads the values too,
    as V diag(f(w)) V^H does, they contribute f'(w), which can't be computed here. That also holds
    for almost equal values: the rounding error of M is divided by the gap, and once more by each
    derivative. A quotient with few right digits is NaN, and so is a derivative with few.
    """
    odd = antisymmetric(m)
    left, both = sizes(odd), sizes(m) + sizes(adjoint(m))
    rounding = greatest(m) * precision(values, ROUNDED)
    small = left <= both * precision(values, SMOOTH)
    nothing = logical_and(left <= rounding, both * precision(values, SMOOTH) > rounding)
    seen, found = left > rounding, over_gaps(odd, values, TIE, small)
    if ct_values is None:
        nothing = logical_and(nothing, beside(values, MANY / 2))
        found = where(nothing, found.constant(0), found)
        wrong = left > both * precision(values, 0.5) * 0.5
    else:
        asked = not_equal(ct_values, ct_values.constant(0))
        read = logical_or(row(asked), column(asked))
        wrong, seen = logical_or(read, both > 0), logical_or(read, seen)
    wrong = logical_and(wrong, beside(values, TIE))
    lost = logical_and(logical_and(small, seen), beside(values, ONCE))
    return where(logical_or(wrong, lost), odd.constant(np.nan), found)


def beside(values: Any, power: float) -> Any:
    """Which pairs of values are equal, up to a power of the precision."""
    return logical_and(equal(values, power), not_equal(*places(values)))


def antisymmetric(x: Any) -> Any:
    """(X - X^H) / 2."""
    return (x - adjoint(x)) * 0.5


def greatest(x: Any) -> Any:
    """The largest absolute value of each matrix, as a matrix of one element."""
    size, axes = stop_gradient(sizes(x)), (x.ndim - 2, x.ndim - 1)
    return ExpandDims(axes)(Max(axes)(size)) if 0 not in x.shape[-2:] else size


def whole_like(x: Any, z: Any) -> Any:
    """Real numbers in the dtype of `z`, which may be complex."""
    return x if x.dtype == z.dtype else AsType(z.dtype)(x)


def sizes(z: Any) -> Any:
    """The absolute values of real or complex numbers."""
    return hypot(real(z), imag(z)) if z.dtype.kind == "c" else absolute(z)


def over_any_gaps(turned: Any, w: Any, read: bool = False) -> Any:
    """The rotation of the eigenvectors of any square matrix: `turned` over the gaps w_j - w_i.

    For eigenvalues that are equal up to rounding, it isn't known if the vectors rotate. If the
    values are `read` too, it isn't known at all: in V diag(f(w)) V^-1 the pair contributes f'(w).
    Further derivatives are NaN where rounding leaves few digits.
    """
    gaps, others = row(w) - column(w), not_equal(*places(w))
    apart = _moduli(gaps) * inverted(row(largest(_moduli(w))))
    same = logical_and(apart <= precision(w, ONCE), others)
    nan, zero = turned.constant(np.nan), turned.constant(0)
    unknown = nan if read else where(turned.equals(0), zero, nan)
    apart = where(others, apart, apart.constant(np.inf))
    found = inverted(gaps, logical_or(same, gaps.equals(0))) * turned
    if found.dtype.kind == "c":
        found = cartesian(KNOWN[0](apart, real(found)), KNOWN[0](apart, imag(found)))
    else:
        found = KNOWN[0](apart, found)
    return where(same, unknown, found)


def _moduli(x: Any) -> Any:
    """The absolute values, without derivative."""
    x = stop_gradient(x)
    return hypot(real(x), imag(x)) if x.dtype.kind == "c" else absolute(x)
