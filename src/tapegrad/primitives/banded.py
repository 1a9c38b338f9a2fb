"""Banded systems: the LU factors of a matrix with a few diagonals, and solutions by them.

A matrix is stored by columns, as in LAPACK: A[i, j] is element lower + upper + i - j of row j of an
array of shape (n, 2 lower + upper + 1). The first `lower` elements of each row aren't read. They
are space for the factors, whose rows are swapped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import Slice, broadcast_shapes, parametric, total
from tapegrad.primitives.kinds import Library, Routine, StaticIndex, Underived
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.scatter import Concatenate
from tapegrad.primitives.triangles import fortran, over_batch
from tapegrad.primitives.views import ExpandDims, GetItem, Place, zeros


@parametric
class BandedLU(Routine):
    """The factors of a banded matrix, and for rows 1, 2, ... the row that each was swapped with, as
    returned by LAPACK's gbtrf."""

    lower: int

    name = "banded_lu"
    cores = (2,)
    kernel = "banded_lu"
    factors = True
    overwrites = (0, None)
    results = 2

    @property
    def settings(self) -> tuple[int, ...]:
        return (self.lower,)

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        (bands,) = xs
        if bands.ndim < 2 or bands.shape[-1] <= 2 * self.lower:
            raise ValueError(f"{self.name}: {bands} has no {self.lower} diagonals below")
        return bands, Aval(bands.shape[:-1], np.dtype(np.int32))

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(self._factored, (2,), xs[0])

    def _factored(self, bands: Any) -> Any:
        gbtrf = fortran("lapack", "gbtrf", bands.dtype)
        upper = bands.shape[1] - 1 - 2 * self.lower
        factors, pivots, _ = gbtrf(bands.T, self.lower, upper)
        return factors.T, pivots.astype(np.int32) + 1

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None, None  # the readers of the factors have rules with respect to the matrix


@parametric
class BandedSolve(Routine):
    """The rows x with A x = b for each row b, or A^T x = b if `transposed`. The operands are A, its
    factors, the pivots and b.

    The cotangents are those of a full matrix (`solving.LUSolve`), on the diagonals of A.
    """

    lower: int
    transposed: bool = False

    name = "banded_solve"
    cores = (2, 2, 1, 2)
    overwrites = (3,)
    reads = (1, 2)

    @property
    def kernel(self) -> str:
        return "banded_solve_transposed" if self.transposed else "banded_solve"

    @property
    def settings(self) -> tuple[int, ...]:
        return (self.lower,)

    def aval(self, *xs: Aval) -> Aval:
        bands, factors, pivots, b = xs
        if not bands.shape == factors.shape == (*pivots.shape, bands.shape[-1]):
            raise ValueError(f"{self.name}: {factors} and {pivots} aren't factors of {bands}")
        if bands.shape[-2] != b.shape[-1]:
            raise ValueError(f"{self.name}: {bands} doesn't fit the rows of {b}")
        return b.with_shape((*broadcast_shapes(bands.shape[:-2], b.shape[:-2]), *b.shape[-2:]))

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(self._solve, (2, 1, 2), *xs[1:])

    def _solve(self, factors: Any, pivots: Any, b: Any) -> Any:
        if b.size == 0:
            return np.array(b)
        gbtrs = fortran("lapack", "gbtrs", b.dtype)
        upper = factors.shape[1] - 1 - 2 * self.lower
        if np.any((pivots < 1) | (pivots > len(pivots))):  # LAPACK would write to other memory
            return np.full_like(b, np.nan)
        found = gbtrs(factors.T, self.lower, upper, b.T, pivots - 1, trans=self.transposed)[0]
        return found.T

    def _diagonals(self, bands: Any) -> list[tuple[int, int, int, int]]:
        """For each diagonal of the matrix: its position in a row, its first row, its first column
        and its length."""
        n, upper = bands.shape[-2], bands.shape[-1] - 1 - 2 * self.lower
        found = [
            (self.lower + upper + d, max(0, d), max(0, -d), n - abs(d))
            for d in range(-upper, self.lower + 1)
        ]
        return [diagonal for diagonal in found if diagonal[3] > 0]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        ct_b = BandedSolve(self.lower, not self.transposed)(*xs[:3], ct)
        left, right = (out, ct_b) if self.transposed else (ct_b, out)
        bands, axis = xs[0], ct.ndim - 2
        shape = (*ct.shape[:-2], ct.shape[-1])
        found = {}
        for place, row, column, count in self._diagonals(bands):
            products = _part(left, row, count) * _part(right, column, count)
            found[place] = _placed(-Sum((axis,))(products), shape, column, count)
        columns = [found.get(k, zeros(ct, shape)) for k in range(bands.shape[-1])]
        last = len(shape)
        return Concatenate(last)(*map(ExpandDims((last,)), columns)), None, None, ct_b

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        t, right = ts[0], ts[3]
        terms = [] if right is None else [right]
        for place, row, column, count in [] if t is None else self._diagonals(xs[0]):
            index: StaticIndex = (*_all(t.shape[:-2]), Slice(column, count), place)
            diagonal = GetItem(index)(t)
            diagonal = ExpandDims((diagonal.ndim - 1,))(diagonal)
            read, written = (row, column) if self.transposed else (column, row)
            product = -(diagonal * _part(out, read, count))
            terms.append(_placed(product, out.shape, written, count))
        return self(*xs[:3], total(terms)) if terms else None


@parametric
class BandedDefinite(Underived, Library):
    """Whether a symmetric banded matrix is positive definite. The operand has the main diagonal and
    those below it, if `lower`, or those above it, in LAPACK's layout."""

    lower: bool

    name = "banded_definite"
    cores = 2

    def aval(self, *xs: Aval) -> Aval:
        return Aval(xs[0].shape[:-2], np.dtype(bool))

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(self._is_definite, (2,), xs[0])

    def _is_definite(self, bands: Any) -> Any:
        if bands.size == 0:
            return np.True_
        pbtrf = fortran("lapack", "pbtrf", bands.dtype)
        return np.bool_(pbtrf(bands, lower=self.lower)[1] == 0)


def _all(shape: tuple[int, ...]) -> list[Slice]:
    return [Slice(0, n) for n in shape]


def _part(x: Any, start: int, count: int) -> Any:
    """The elements of each row from `start`, `count` of them."""
    return GetItem((*_all(x.shape[:-1]), Slice(start, count)))(x)


def _placed(x: Any, shape: tuple[int, ...], start: int, count: int) -> Any:
    """The rows placed from `start` on in rows of zeros."""
    return Place(shape, (*_all(shape[:-1]), Slice(start, count)))(x)
