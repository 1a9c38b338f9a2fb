"""Sparse matrices: products with them, systems of them, and their elements; SciPy's kernels.

A matrix of m rows has its elements row by row in `data`, their columns in `indices`, and the start
of each row in `starts`, m + 1 integers. Elements at the same position are added up. If
`transposed`, these are the columns of the matrix.

SciPy leaves out elements of a `sifted` matrix that are 0: they have derivatives, but 0 * inf isn't
added.

The primitives here are closed under differentiation. For Y = A X the cotangents are X' = A^T Y',
and for A the elements of Y' X^T in its pattern, which is `Sampled`. The cotangents of `Sampled` are
products with the sparse matrix of its own cotangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from tapegrad.core.values import OWN
from tapegrad.errors import GradientError
from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import parametric, total
from tapegrad.primitives.control import NOT_CONVERGED
from tapegrad.primitives.kinds import Library, Underived
from tapegrad.primitives.scatter import ScatterAdd, gather
from tapegrad.primitives.views import Reshape, Transpose

Shape = tuple[int, int]
FACTORS = 8  # the number of recent LU factors that are kept


def held(shape: Shape, transposed: bool, sifted: bool, data: Any, indices: Any, starts: Any) -> Any:
    """The matrix as SciPy's. Without its zeros, if it is `sifted`."""
    from scipy import sparse

    if transposed:
        found = sparse.csc_array((data, indices, starts), shape[::-1], copy=sifted)
    else:
        found = sparse.csr_array((data, indices, starts), shape, copy=sifted)
    if sifted:
        found.eliminate_zeros()
    return found


def _checked(name: str, shape: Shape, indices: Aval, starts: Aval) -> None:
    if starts.shape != (shape[0] + 1,) or indices.ndim != 1:
        raise ValueError(f"{name}: {indices} and {starts} aren't a pattern of {shape}")


class _Patterned(Library):
    """A primitive with a sparse pattern among its operands. SciPy doesn't check the pattern: it
    reads where the pattern says. If `by_columns`, each column of the result depends on the same
    column of the last operand."""

    trusts = True
    by_columns: ClassVar[bool] = False

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        """The result for a batch of rows, which become further columns."""
        if any(mapped[:-1]) or not self.by_columns:
            return None
        x, turned = xs[-1], Transpose((1, 0, 2))
        count, columns = x.shape[1:]
        found = self(*xs[:-1], Reshape((count, size * columns))(turned(x)))
        return turned(Reshape((found.shape[0], size, columns))(found))


@parametric
class Product(_Patterned):
    """A X, or A^T X."""

    shape: Shape
    transposed: bool
    sifted: bool = False

    name = "sparse_product"
    by_columns = True
    of_complex = True
    memory = OWN

    def aval(self, *xs: Aval) -> Aval:
        data, indices, starts, x = xs
        _checked(self.name, self.shape, indices, starts)
        rows, columns = self.shape[::-1] if self.transposed else self.shape
        if data.shape != indices.shape or x.ndim != 2 or x.shape[0] != columns:
            raise ValueError(f"{self.name}: {data} of {self.shape} doesn't fit {x}")
        return x.with_shape((rows, x.shape[1]))

    def evaluate(self, *xs: Any) -> Any:
        matrix = held(self.shape, self.transposed, self.sifted, *xs[:3])
        return np.asarray(matrix @ xs[3], xs[3].dtype)

    def parts(self, known: Any, *xs: Aval) -> Any:
        """Row i of the result depends on the elements of row i, and on the rows of X that are their
        columns."""
        indices, starts = known[1:3]
        if indices is None or starts is None:
            return None
        rows, columns = rows_of(starts), indices
        if self.transposed:
            rows, columns = columns, rows
        width = xs[3].shape[1]
        along = np.arange(width)
        targets = (rows[:, None] * width + along).ravel()
        sources = (columns[:, None] * width + along).ravel()
        return (targets, np.repeat(np.arange(len(rows)), width)), None, None, (targets, sources)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        pattern, x = xs[1:3], xs[3]
        left, right = (x, ct) if self.transposed else (ct, x)
        ct_data = Sampled(self.shape)(*pattern, left, right)
        turned = Product(self.shape, not self.transposed, self.sifted)
        return ct_data, None, None, turned(xs[0], *pattern, ct)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        t_data, t_x = ts[0], ts[3]
        return total(
            [
                None if t_data is None else self(t_data, *xs[1:]),
                None if t_x is None else self(*xs[:3], t_x),
            ]
        )


@parametric
class Sampled(_Patterned):
    """The elements of U V^T at the positions of a pattern."""

    shape: Shape

    name = "sampled"
    of_complex = True
    memory = OWN

    def aval(self, *xs: Aval) -> Aval:
        indices, starts, u, v = xs
        _checked(self.name, self.shape, indices, starts)
        if (u.shape[0], v.shape[0]) != self.shape or u.shape[1] != v.shape[1]:
            raise ValueError(f"{self.name}: {u} and {v} don't fit {self.shape}")
        return u.with_shape(indices.shape)

    def evaluate(self, *xs: Any) -> Any:
        indices, starts, u, v = xs
        if u.shape[1] == 1:
            return np.repeat(u[:, 0], np.diff(starts)) * np.take(v[:, 0], indices)
        return np.einsum("ij,ij->i", u[rows_of(starts)], v[indices])

    def parts(self, known: Any, *xs: Aval) -> Any:
        """An element depends on its row of U and on its row of V."""
        indices, starts = known[:2]
        if indices is None or starts is None:
            return None
        width = xs[2].shape[1]
        targets = np.repeat(np.arange(len(indices)), width)
        u, v = (
            (rows[:, None] * width + np.arange(width)).ravel()
            for rows in (rows_of(starts), indices)
        )
        return None, None, (targets, u), (targets, v)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        *pattern, u, v = xs
        by_rows, by_columns = Product(self.shape, False), Product(self.shape, True)
        return None, None, by_rows(ct, *pattern, v), by_columns(ct, *pattern, u)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        *pattern, u, v = xs
        return total(
            [
                None if ts[2] is None else self(*pattern, ts[2], v),
                None if ts[3] is None else self(*pattern, u, ts[3]),
            ]
        )


Kind = tuple[Shape, bool, bool]  # the parameters of a Product


@parametric
class SparseProduct(_Patterned):
    """A B of two sparse matrices, as an array. Only products of their elements are added."""

    left: Kind
    right: Kind

    name = "sparse_by_sparse"
    of_complex = True
    memory = OWN

    def aval(self, *xs: Aval) -> Aval:
        for (shape, _, _), given in ((self.left, xs[:3]), (self.right, xs[3:])):
            _checked(self.name, shape, *given[1:])
        return xs[0].with_shape((_rows(self.left), _columns(self.right)))

    def evaluate(self, *xs: Any) -> Any:
        return (held(*self.left, *xs[:3]) @ held(*self.right, *xs[3:])).toarray(order="C")

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        shape, transposed, sifted = self.left
        places = _places(self.right, *xs[4:])
        b = ScatterAdd((_rows(self.right), _columns(self.right)))(xs[3], *places)
        ct_a = Sampled(shape)(*xs[1:3], *((b, ct) if transposed else (ct, b)))
        ct_b = gather(Product(shape, not transposed, sifted)(*xs[:3], ct), *places)
        return ct_a, None, None, ct_b, None, None

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return total(
            [
                None if ts[0] is None else self(ts[0], *xs[1:]),
                None if ts[3] is None else self(*xs[:3], ts[3], *xs[4:]),
            ]
        )


def _rows(kind: Kind) -> int:
    return kind[0][kind[1]]


def _columns(kind: Kind) -> int:
    return kind[0][not kind[1]]


def _places(kind: Kind, indices: Any, starts: Any) -> Any:
    """The row and the column of each element."""
    rows = Rows(indices.shape[0])(starts)
    return (indices, rows) if kind[1] else (rows, indices)


def rows_of(starts: Any) -> Any:
    """The row of each element."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


class _Solved(_Patterned):
    """The X with A X = B, or A^T X = B. With A^T S = X' the cotangents are B' = S and A' = -S X^T
    in the pattern."""

    shape: Shape
    transposed: bool

    of_complex = True
    memory = OWN

    def aval(self, *xs: Aval) -> Any:
        _, indices, starts, b = xs[:4]
        _checked(str(self.name), self.shape, indices, starts)
        if self.shape[0] != self.shape[1] or b.ndim != 2 or b.shape[0] != self.shape[0]:
            raise ValueError(f"{self.name}: {self.shape} doesn't fit {b}")
        return b

    def result(self, out: Any) -> Any:
        return out

    def again(self, transposed: bool, xs: Any, b: Any) -> Any:
        """The solution of the same system, or of its transpose, with other right sides."""
        raise NotImplementedError

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        ct, x = self.result(ct), self.result(out)
        if ct is None:
            return (None,) * len(xs)
        s = self.again(not self.transposed, xs, ct)
        left, right = (x, s) if self.transposed else (s, x)
        ct_data = -Sampled(self.shape)(*xs[1:3], left, right)
        return ct_data, None, None, s, *[None] * (len(xs) - 4)

    def moved(self, ts: Any, out: Any, *xs: Any) -> Any:
        """The tangent of the solution."""
        right = ts[3]
        if ts[0] is not None:
            product = Product(self.shape, self.transposed)
            moved = -product(ts[0], *xs[1:3], self.result(out))
            right = moved if right is None else right + moved
        return None if right is None else self.again(self.transposed, xs, right)


@parametric
class Solve(_Solved):
    """The solution by an LU factor; NaN if the matrix is singular. A factor is kept for the reverse
    pass."""

    shape: Shape
    transposed: bool

    name = "sparse_solve"
    by_columns = True

    def evaluate(self, *xs: Any) -> Any:
        data, b = xs[0], xs[3]
        if b.size == 0:
            return b.copy()
        factor = _factor(self.shape, data.dtype, *[x.tobytes() for x in (data, *_wide(xs[1:3]))])
        if factor is None:
            return np.full_like(b, np.nan)
        # The factored matrix is the transpose.
        return factor.solve(np.asfortranarray(b, data.dtype), "N" if self.transposed else "T")

    def again(self, transposed: bool, xs: Any, b: Any) -> Any:
        return Solve(self.shape, transposed)(*xs[:3], b)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return self.moved(ts, out, *xs)


def _wide(integers: Any) -> list[Any]:
    return [np.ascontiguousarray(x, np.int64) for x in integers]


@lru_cache(maxsize=FACTORS)
def _factor(shape: Shape, dtype: Any, data: bytes, indices: bytes, starts: bytes) -> Any:
    import warnings

    from scipy.sparse.linalg import splu

    pattern = [np.frombuffer(x, np.int64) for x in (indices, starts)]
    whole = held(shape, True, False, np.frombuffer(data, dtype), *pattern).copy()  # writable
    whole.sum_duplicates()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return splu(whole)
        except RuntimeError:
            return None


@parametric
class Iterated(_Solved):
    """The solution by one of SciPy's iterations, starting from the last operand, and SciPy's `info`
    for each right side.

    The derivative is that of the solution, by the implicit function theorem. It is computed by the
    same method, to its relative tolerance and without a limit of steps, with right sides scaled to
    about 1. Where it doesn't converge it is NaN.
    """

    shape: Shape
    transposed: bool
    method: str
    settings: tuple[tuple[str, Any], ...]

    name = "iterated_solve"
    of_complex = False
    results = 2

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        b = super().aval(*xs)
        return b, Aval(b.shape[1:], np.dtype(np.int64))

    def result(self, out: Any) -> Any:
        return out[0]

    def evaluate(self, *xs: Any) -> Any:
        import scipy.sparse.linalg as solvers

        data, indices, starts, b, first = xs
        a = held(self.shape, self.transposed, False, data, indices, starts)
        found = [
            getattr(solvers, self.method)(a, right, x0=start.copy(), **dict(self.settings))
            for right, start in zip(b.T, first.T, strict=True)
        ]
        x = np.stack([x for x, _ in found], 1) if found else b
        return np.asarray(x, b.dtype), np.array([info for _, info in found], np.int64)

    def again(self, transposed: bool, xs: Any, b: Any) -> Any:
        from tapegrad.primitives.binary import shifted, size_of
        from tapegrad.primitives.elementwise import where
        from tapegrad.primitives.views import zeros

        if not b.shape[0]:
            return b
        kept = {key: v for key, v in self.settings if key not in ("maxiter", "atol")}
        if kept.get("rtol") == 0:
            kept["rtol"] = 1e-10
        other = Iterated(self.shape, transposed, self.method, tuple(kept.items()))
        size = size_of(b, (0,))
        x, info = other(*xs[:3], shifted(-size, b), zeros(b, b.shape))
        return where(info.equals(0), shifted(size, x), b.constant(np.nan))

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        moved = self.moved(ts, out, *xs)
        return None if moved is None else (moved, None)


@parametric
class Unfinished(_Patterned):
    """The last iterate of an iteration that gave up, or another result about it. It has no
    derivative."""

    method: str
    why: str = NOT_CONVERGED

    name = "unfinished"

    def aval(self, *xs: Aval) -> Aval:
        return xs[0]

    def evaluate(self, *xs: Any) -> Any:
        return np.array(xs[0])

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        raise GradientError(self._why())

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        raise GradientError(self._why())

    def _why(self) -> str:
        return f"scipy.{self.method} has no derivative rule: {self.why}"


@parametric
class ExpmProduct(_Patterned):
    """exp(A) X, or exp(A^T) X, differentiable with respect to X alone."""

    shape: Shape
    transposed: bool

    name = "expm_product"
    by_columns = True
    of_complex = True
    memory = OWN

    def aval(self, *xs: Aval) -> Aval:
        _checked(self.name, self.shape, *xs[1:3])
        if self.shape[0] != self.shape[1] or xs[3].shape[0] != self.shape[0]:
            raise ValueError(f"{self.name}: {self.shape} doesn't fit {xs[3]}")
        return xs[3]

    def evaluate(self, *xs: Any) -> Any:
        from scipy.sparse.linalg import expm_multiply

        a = held(self.shape, self.transposed, False, *xs[:3])
        return np.asarray(expm_multiply(a, xs[3]), xs[3].dtype)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return None, None, None, ExpmProduct(self.shape, not self.transposed)(*xs[:3], ct)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[3] is None else self(*xs[:3], ts[3])


# ---- patterns


@parametric
class Rows(Underived, _Patterned):
    """The row of each of `count` elements, from the starts of rows."""

    count: int

    name = "sparse_rows"

    def aval(self, *xs: Aval) -> Aval:
        return Aval((self.count,), np.dtype(np.int64))

    def evaluate(self, *xs: Any) -> Any:
        return rows_of(xs[0])


@parametric
class RowByRow(Underived, _Patterned):
    """The order that sorts elements by their rows, and the start of each of `count` rows."""

    count: int

    name = "row_by_row"
    results = 2

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        return Aval(xs[0].shape, np.dtype(np.int64)), Aval((self.count + 1,), np.dtype(np.int64))

    def evaluate(self, *xs: Any) -> Any:
        starts = np.zeros(self.count + 1, np.int64)
        np.cumsum(np.bincount(xs[0], minlength=self.count), out=starts[1:])
        return np.argsort(xs[0], kind="stable"), starts
