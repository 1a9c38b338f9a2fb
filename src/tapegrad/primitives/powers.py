"""Functions of square matrices that are defined by power series: exponentials, logarithms, roots.

Matrices are the last two axes. The derivative of f at A along E is the upper right block of
f([[A, E], [0, A]]), and the cotangent of A is the derivative at A^T along the cotangent of f(A) (R.
Mathias, "A chain rule for matrix functions and applications", 1996, theorem 2.1; N. Higham,
"Functions of matrices", 2008, equation 3.16). So a derivative is a value for a matrix of twice the
size.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import Slice, parametric
from tapegrad.primitives.binary import shifted, size_of
from tapegrad.primitives.complexes import PARTS
from tapegrad.primitives.contractions import swapped
from tapegrad.primitives.kinds import Library
from tapegrad.primitives.scatter import Concatenate
from tapegrad.primitives.triangles import over_batch, square
from tapegrad.primitives.views import GetItem, zeros


class _OfMatrix(Library):
    """A function of a real or complex square matrix."""

    of_complex = True

    def aval(self, *xs: Aval) -> Any:
        return square(str(self.name), xs[0])

    def result(self, out: Any) -> Any:
        """The result that is a matrix."""
        return out

    def along(self, a: Any, direction: Any) -> Any:
        """The derivative at `a` along `direction`, which is scaled to the size of `a`: a block
        beside a much larger one would lose its digits."""
        axis, n = a.ndim - 1, a.shape[-1]
        if not n:
            return direction
        axes = (axis - 1, axis)
        larger = size_of(a, axes) - size_of(direction, axes)
        top = Concatenate(axis)(a, shifted(larger, direction))
        bottom = Concatenate(axis)(zeros(a, a.shape), a)
        whole = self.result(self(Concatenate(axis - 1)(top, bottom)))
        batch = tuple(Slice(0, m) for m in a.shape[:-2])
        return shifted(-larger, GetItem((*batch, Slice(0, n), Slice(n, n)))(whole))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        ct = self.result(ct)
        return (None if ct is None else self.along(swapped(xs[0]), ct),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else self.along(xs[0], ts[0])


@parametric
class Expm(_OfMatrix):
    """The exponential of a matrix: the sum of A^k / k!."""

    name = "expm"
    cores = (2,)

    def evaluate(self, *xs: Any) -> Any:
        from scipy.linalg import expm

        return over_batch(lambda x: np.asarray(expm(x), x.dtype), (2,), xs[0])


class _Rooted(_OfMatrix):
    """A function that may be complex for a real matrix. Then the result is NaN, and a second result
    is true."""

    results = 2

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        return square(str(self.name), xs[0]), Aval(xs[0].shape[:-2], np.dtype(bool))

    def result(self, out: Any) -> Any:
        return out[0]

    def of(self, x: Any) -> Any:
        """SciPy's function of one matrix."""
        raise NotImplementedError

    def evaluate(self, *xs: Any) -> Any:
        return over_batch(self._one, (2,), xs[0])

    def _one(self, x: Any) -> Any:
        if x.size == 0:
            return x.copy(), np.False_
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                found = np.asarray(self.of(x))
            except (ValueError, np.linalg.LinAlgError):  # for a matrix with NaN
                return np.full_like(x, np.nan), np.False_
        if x.dtype in PARTS.values() and found.dtype.kind == "c":
            return np.full_like(x, np.nan), np.True_
        return found.astype(x.dtype, copy=False), np.False_

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else (self.along(xs[0], ts[0]), None)


@parametric
class Logm(_Rooted):
    """The principal logarithm of a matrix: the X with exp(X) = A whose eigenvalues have imaginary
    parts between -pi and pi."""

    name = "logm"
    cores = (2,)

    def of(self, x: Any) -> Any:
        from scipy.linalg import logm

        return logm(x)


@parametric
class Sqrtm(_Rooted):
    """The principal square root of a matrix: the X with X X = A whose eigenvalues have real parts
    that aren't negative."""

    name = "sqrtm"
    cores = (2,)

    def of(self, x: Any) -> Any:
        from scipy.linalg import sqrtm

        return sqrtm(x)
