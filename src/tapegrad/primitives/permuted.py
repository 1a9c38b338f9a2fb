"""Factors of matrices with permuted rows or columns: L and U, and the permutation.

Permutations are integers, without derivatives: a factor jumps where another row comes first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import parametric
from tapegrad.primitives.contractions import matmul, swapped
from tapegrad.primitives.kinds import Library, Underived
from tapegrad.primitives.solving import Factored
from tapegrad.primitives.triangles import (
    Triangle,
    TriangularSolve,
    below,
    fortran,
    over_batch,
)
from tapegrad.primitives.views import BroadcastTo, PlaceDiagonal

PLACES = np.dtype(np.int64)


@parametric
class LUParts(Factored, Library):
    """L below the diagonal, and U on it and above, for A = L U. The operands are A and its LU
    factors. No rows were swapped for them.

    With F = L^-1 dA U^-1, L changes by L times the part of F below the diagonal, and U by the rest
    of F times U (S. Walter and L. Lehmann, "Algorithmic differentiation of linear algebra functions
    with application in optimum experimental design", arXiv:1001.1654, section 4).
    """

    name = "lu_parts"
    cores = (2, 2, 1)
    of_complex = True

    def aval(self, *xs: Aval) -> Aval:
        return self.checked(*xs)

    def evaluate(self, *xs: Any) -> Any:
        return np.swapaxes(xs[1], -1, -2).copy()

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        upper = Triangle(False)
        products = below(matmul(swapped(_left(out)), below(ct)))
        inner = products + upper(matmul(upper(ct), swapped(upper(out))))
        # L^-T inner U^-T
        half = TriangularSolve(False, True)(swapped(out), inner)
        return swapped(TriangularSolve(False)(out, swapped(half))), None, None

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        if ts[0] is None:
            return None
        upper = Triangle(False)
        half = TriangularSolve(True, True)(out, ts[0])
        whole = swapped(TriangularSolve(True)(swapped(out), swapped(half)))
        return matmul(_left(out), below(whole)) + matmul(upper(whole), upper(out))


def _left(parts: Any) -> Any:
    """L, with its diagonal of ones."""
    n = parts.shape[-1]
    ones = BroadcastTo(parts.shape[:-1])(parts.constant(1))
    return below(parts) + PlaceDiagonal((n, n), 0)(ones)


@parametric
class RowsInOrder(Underived, Library):
    """The order of `count` rows after successive swaps. Row k is swapped with row `pivots[k]`,
    counted from 1, as returned by LAPACK."""

    count: int

    name = "rows_in_order"
    cores = 1

    def aval(self, *xs: Aval) -> Aval:
        return Aval((*xs[0].shape[:-1], self.count), PLACES)

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(self._ordered, (1,), xs[0])

    def _ordered(self, pivots: Any) -> Any:
        order = list(range(self.count))
        for k, row in enumerate(pivots.tolist()):
            order[k], order[row - 1] = order[row - 1], order[k]
        return np.array(order, PLACES)


@parametric
class Ranked(Underived, Library):
    """The order of A's rows in P A = L U (`of` is "lu"), or of its columns in A P = Q R ("qr")."""

    of: str

    name = "ranked"
    cores = 2
    of_complex = True

    def aval(self, *xs: Aval) -> Aval:
        *batch, m, n = xs[0].shape
        return Aval((*batch, n if self.of == "qr" else m), PLACES)

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(self._ranked, (2,), xs[0])

    def _ranked(self, a: Any) -> Any:
        if self.of == "qr":
            columns = range(a.shape[1]) if a.size == 0 else None
            found = columns or fortran("lapack", "geqp3", a.dtype)(a)[1] - 1
            return np.asarray(found, PLACES)
        if a.size == 0:
            return np.arange(len(a), dtype=PLACES)
        pivots = fortran("lapack", "getrf", a.dtype)(a)[1]
        return RowsInOrder(len(a)).evaluate(pivots + 1)
