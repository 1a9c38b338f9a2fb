"""Systems of Toeplitz matrices, T[i, j] = t[n - 1 + i - j], solved by SciPy's Levinson recursion.

A matrix is given by its diagonals t, 2 n - 1 numbers from the upper right corner to the lower left
one. The transpose has them in reverse order. Products with T are convolutions with t.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import Slice, broadcast_shapes, parametric
from tapegrad.primitives.fourier import IRFFT, RFFT
from tapegrad.primitives.kinds import Library
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.triangles import over_batch
from tapegrad.primitives.views import ExpandDims, GetItem, Place


@parametric
class ToeplitzSolve(Library):
    """The rows x with T x = b for each row b, and whether the recursion failed because a leading
    block of T is singular. The operands are t and b.

    With T^T s = x' the cotangents are b' = s and T' = -s x^T, whose diagonals are summed.
    """

    name = "toeplitz_solve"
    cores = (1, 2)
    results = 2

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        t, b = xs
        if t.shape[-1] != 2 * b.shape[-1] - 1:
            raise ValueError(f"{self.name}: {t} isn't a matrix for the rows of {b}")
        lead = broadcast_shapes(t.shape[:-1], b.shape[:-2])
        return b.with_shape((*lead, *b.shape[-2:])), Aval(lead, np.dtype(bool))

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(_solved, (1, 2), *xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        if ct[0] is None:
            return None, None
        s, _ = self(backwards(xs[0]), ct[0])
        products = _convolved(s, backwards(out[0]))
        return -Sum((products.ndim - 2,))(products), s

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        t, right = ts
        n = xs[1].shape[-1]
        if t is not None:
            rows = ExpandDims((t.ndim - 1,))(t)
            whole = _convolved(rows, out[0])
            index = [Slice(0, k) for k in whole.shape]
            moved = GetItem((*index[:-1], Slice(n - 1, n)))(whole)
            right = -moved if right is None else right - moved
        return None if right is None else (self(xs[0], right)[0], None)


def _solved(t: Any, b: Any) -> Any:
    from scipy.linalg import solve_toeplitz

    n = b.shape[-1]
    if b.size == 0:
        return b.copy(), np.False_
    try:
        found = solve_toeplitz((t[n - 1 :], t[n - 1 :: -1]), b.T, check_finite=False).T
    except np.linalg.LinAlgError:
        return np.full_like(b, np.nan), np.True_
    return found.astype(b.dtype), np.False_


def backwards(x: Any) -> Any:
    """The elements along the last axis in reverse order."""
    index = [Slice(0, n) for n in x.shape[:-1]]
    return GetItem((*index, Slice(x.shape[-1] - 1, x.shape[-1], -1)))(x)


def _convolved(x: Any, y: Any) -> Any:
    """The convolutions along the last axis."""
    n = x.shape[-1] + y.shape[-1] - 1

    def spectrum(z: Any) -> Any:
        filled = (*z.shape[:-1], n)
        z = Place(filled, tuple(Slice(0, k) for k in z.shape))(z) if z.shape[-1] < n else z
        return RFFT(z.ndim - 1, "backward")(z)

    product = spectrum(x) * spectrum(y)
    return IRFFT(product.ndim - 1, n, "backward")(product)
