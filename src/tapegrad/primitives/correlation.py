"""Correlation: sums of products of one vector with a window that moves along another vector."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import Slice, parametric
from tapegrad.primitives.kinds import Bilinear, Routine
from tapegrad.primitives.views import GetItem


@parametric
class Correlate(Bilinear, Routine):
    """`out[k] = sum over j of v[j] x[k + j - before]`, for k < count, over the j for which x has an
    element.

    Both cotangents are such sums too. That of x[i] goes through v backwards, since x[i] meets v[j]
    at k = i + before - j. That of v[j] is the sum over k of ct[k] x[j + k - before].
    """

    before: int
    count: int

    name = "correlate"
    of_complex = True
    kernel = "correlate"
    overwrites = (None,)
    reads = (0, 1)
    strided = True

    @property
    def settings(self) -> tuple[int, ...]:
        return (self.before,)

    def aval(self, *xs: Aval) -> Aval:
        x, v = xs
        if x.ndim != 1 or v.ndim != 1:
            raise ValueError(f"correlate: {x} and {v} aren't vectors")
        return x.with_shape((self.count,))

    def evaluate(self, *xs: Any) -> Any:
        x, v = xs
        n, m = len(x), len(v)
        if n >= m > 0 and (self.before, self.count) == (0, n - m + 1):
            return np.convolve(x, v[::-1], "valid")
        if m and n and n + m - 1 <= 2 * self.count:  # NumPy computes few sums that aren't needed
            first = m - 1 - self.before
            if first >= 0 and first + self.count <= n + m - 1:
                return np.convolve(x, v[::-1], "full")[first : first + self.count]
        out = np.empty(self.count, x.dtype)
        for k in range(self.count):
            start, stop = max(0, self.before - k), max(0, min(m, n + self.before - k))
            at = k - self.before
            out[k] = np.dot(v[start:stop], x[start + at : stop + at]) if start < stop else 0
        return out

    def parts(self, known: Any, *xs: Aval) -> Any:
        """Element k depends on v[j] and x[k + j - before], for the j for which both exist."""
        (n,), (m,) = (x.shape for x in xs)
        k, j = (a.ravel() for a in np.indices((self.count, m)))
        at = k + j - self.before
        there = (at >= 0) & (at < n)
        return (k[there], at[there]), (k[there], j[there])

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        x, v = xs
        (n,), (m,) = x.shape, v.shape
        backwards = GetItem((Slice(m - 1, m, -1),))(v)
        return (
            Correlate(m - 1 - self.before, n)(ct, backwards),
            Correlate(self.before, m)(x, ct),
        )
