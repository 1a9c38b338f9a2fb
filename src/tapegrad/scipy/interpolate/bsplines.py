"""B-splines of scipy.interpolate with traced values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.interpolate as theirs
from scipy.linalg import solve_banded as plain_solve

from tapegrad.scipy.declaring import is_traced, refusal, seen
from tapegrad.scipy.interpolate.piecewise import Interpolant, after, floats
from tapegrad.scipy.linalg.systems import solve_banded
from tapegrad.scipy.outside import stopped
from tapegrad.tracing.source import at_line


@dataclass(eq=False)
class Basis(Interpolant):
    """The sum of c[j] times the j-th B-spline of degree k with knots t: a BSpline."""

    t: Any
    c: Any
    k: int
    extrapolate: Any = True
    axis: int = 0

    @property
    def tck(self) -> Any:
        return self.t, self.c, self.k

    def __call__(self, x: Any, nu: Any = 0, extrapolate: Any = None) -> Any:
        """By de Boor's recursion ("A practical guide to splines", chapter X)."""
        u = floats(x)
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if nu:
            return self.derivative(nu)(u, 0, extrapolate)
        t, k = self.t, self.k
        n = np.size(t) - k - 1
        flat = np.reshape(u, (-1,))
        first, last = t[k], t[n]
        if extrapolate == "periodic":
            flat = first + (flat - first) % (last - first)
        place = np.searchsorted(stopped(t), stopped(flat), side="right") - 1
        place = np.clip(place, k, n - 1)
        ndim = np.ndim(self.c)
        d = [self.c[place - k + j] for j in range(k + 1)]
        for r in range(1, k + 1):
            for j in range(k, r - 1, -1):
                left, right = t[place - k + j], t[place + 1 + j - r]
                alpha = after((flat - left) / (right - left), ndim)
                d[j] = (1 - alpha) * d[j - 1] + alpha * d[j]
        y = d[k] if k else np.where(after(np.isnan(flat), ndim), np.nan, d[k])
        if not extrapolate:
            out = np.logical_or(flat < first, flat > last)
            y = np.where(after(out, ndim), np.nan, y)
        return self.placed(y, u)

    def derivative(self, nu: Any = 1) -> Basis:
        t, c, k = self.t, self.c, self.k
        for _ in range(nu):
            if k == 0:
                c = 0.0 * c
                continue
            n = np.size(t) - k - 1
            gaps = t[k + 1 : n + k] - t[1:n]
            safe = np.where(gaps > 0, gaps, 1.0)
            c = np.diff(c[:n], axis=0) * after(np.where(gaps > 0, k / safe, 0.0), np.ndim(c))
            t, k = t[1:-1], k - 1
        return Basis(t, c, k, self.extrapolate, self.axis)

    def antiderivative(self, nu: Any = 1) -> Basis:
        t, c, k = self.t, self.c, self.k
        for _ in range(nu):
            n = np.size(t) - k - 1
            steps = c[:n] * after((t[k + 1 :] - t[:n]) / (k + 1), np.ndim(c))
            c = np.concatenate([0.0 * steps[:1], np.cumsum(steps, axis=0)])
            t = np.concatenate([t[:1], t, t[-1:]])
            k = k + 1
        extrapolate = False if self.extrapolate == "periodic" else self.extrapolate
        return Basis(t, c, k, extrapolate, self.axis)

    def integrate(self, a: Any, b: Any, extrapolate: Any = None) -> Any:
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if extrapolate == "periodic":
            raise refusal(f"integrate of a periodic spline can't be traced{at_line()}")
        whole = self.antiderivative()
        if not extrapolate:  # SciPy takes the spline for 0 there
            first, last = self.t[self.k], self.t[-self.k - 1]
            a, b = [np.clip(floats(x), first, last) for x in (a, b)]
        return whole(b, 0, True) - whole(a, 0, True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise refusal(
            f"{name} of a spline with traced values can't be traced{at_line()}. It has t, c, k, "
            "__call__, derivative, antiderivative and integrate"
        )


def of_theirs(spline: Any) -> Basis:
    """A BSpline of SciPy's, which a later call compares."""
    seen(spline)
    return Basis(spline.t, spline.c, spline.k, spline.extrapolate, spline.axis)


def interpolating(x: np.ndarray, y: Any, k: int, t: Any, bc_type: Any) -> tuple[Any, Any]:
    """Knots, and coefficients with which a spline has these values, which are traced."""
    held = bc_type in (None, "not-a-knot")
    if bc_type not in (None, "not-a-knot", "natural", "clamped"):
        raise refusal(
            f"scipy.interpolate.make_interp_spline(..., bc_type=...) can't be traced{at_line()} "
            'but for "natural", "clamped" and "not-a-knot". CubicSpline has other ones'
        )
    shape = np.shape(y)
    flat = np.reshape(y, (shape[0], -1))
    if not held:
        unit = theirs.make_interp_spline(x, np.eye(len(x)), k, t, bc_type)
        c = unit.c @ flat
        return unit.t, np.reshape(c, (np.shape(c)[0], *shape[1:]))
    unit = theirs.make_interp_spline(x, np.zeros(len(x)), k, t)
    knots = unit.t
    if k < 2:
        return knots, y
    rows = theirs.BSpline.design_matrix(x, knots, k).toarray() if len(x) < 2 else None
    bands = _bands(x, knots, k) if rows is None else rows
    solve = solve_banded if is_traced(flat) else plain_solve
    return knots, np.reshape(solve((k, k), bands, flat), shape)


def _bands(x: np.ndarray, t: np.ndarray, k: int) -> np.ndarray:
    """The B-splines' values at x, diagonal by diagonal."""
    matrix = theirs.BSpline.design_matrix(x, t, k).tocoo()
    bands = np.zeros((2 * k + 1, len(x)))
    bands[k + matrix.row - matrix.col, matrix.col] = matrix.data
    return bands
