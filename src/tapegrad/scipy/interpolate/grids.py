"""Interpolation from neighbouring values: scipy.interpolate's interp1d, and grids of several
axes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import scipy.interpolate as theirs
from scipy.sparse import linalg

from tapegrad.extending import Carrier, is_traced, seen
from tapegrad.extending.arrays import as_operand
from tapegrad.extending.runs import row_of
from tapegrad.scipy.interpolate.bsplines import Basis, interpolating, tensor
from tapegrad.scipy.interpolate.fitpack import bivariate
from tapegrad.scipy.interpolate.piecewise import (
    Interpolant,
    after,
    floats,
    hermite,
    interval,
    pchip,
)
from tapegrad.scipy.solver_calls import stopped
from tapegrad.scipy.sparse import linalg as _declared  # noqa: F401 # what answers gcrotmk

ORDERS = {"zero": 0, "slinear": 1, "quadratic": 2, "cubic": 3}


def _kept(x: Any) -> Any:
    """The dtype in which SciPy computes: narrow floats are kept."""
    dtype = (as_operand(x) if is_traced(x) else np.asarray(x)).dtype
    return dtype if dtype.kind in "fc" else np.dtype(float)


class Between(Interpolant):
    """An interp1d. `kind` says how the values around a point determine its value."""

    def __init__(
        self, x: Any, y: Any, kind: Any, axis: int, bounds_error: Any, fill_value: Any
    ) -> None:
        """`y` has the axis of the sorted `x` first."""
        self.dtype = y.dtype  # the dtype of a result that is one value or lies between two
        if kind == "linear":
            self.dtype = np.result_type(_kept(x), _kept(y))
        x, y = floats(x), floats(y)
        self.x, self.y, self.axis = x, y, axis
        kind = ORDERS.get(kind, kind)
        self.spline = None
        if isinstance(kind, (int, np.integer)):
            knots, c = interpolating(x, y, int(kind), None, None)
            self.spline = Basis(knots, c, int(kind))
        self.kind, self.fill = kind, fill_value
        self.extrapolates = isinstance(fill_value, str)
        self.refuses = not self.extrapolates and bounds_error in (None, True)

    def __call__(self, x: Any) -> Any:
        t = floats(x)
        flat, points = np.reshape(t, (-1,)), self.x
        below, above = flat < points[0], flat > points[-1]
        if self.refuses and np.any(np.logical_or(below, above)):
            raise ValueError(
                "A value in x_new is outside the interpolation range: "
                f"{stopped(flat)!r} beside {stopped(points)!r}."
            )
        y = self._inside(flat)
        if not self.extrapolates and not self.refuses:
            pair = self.fill if isinstance(self.fill, tuple) else (self.fill, self.fill)
            y = np.where(after(below, np.ndim(y)), floats(pair[0]), y)
            y = np.where(after(above, np.ndim(y)), floats(pair[1]), y)
        elif self.extrapolates and self.kind == "previous":
            y = np.where(after(below, np.ndim(y)), np.nan, y)
        elif self.extrapolates and self.kind == "next":
            y = np.where(after(above, np.ndim(y)), np.nan, y)
        dtype = np.result_type(self.dtype, _kept(x)) if self.kind == "linear" else self.dtype
        narrow = dtype == np.float32 and self.spline is None
        return self.placed(y.astype(np.float32) if narrow else y, t)

    def _inside(self, t: Any) -> Any:
        if self.spline is not None:
            return self.spline(t)
        x, y, last = self.x, self.y, np.size(self.x) - 1
        known, at = stopped(x), stopped(t)
        if self.kind == "linear":
            k = np.clip(np.searchsorted(known, at), 1, last)
            low, high = x[k - 1], x[k]
            ndim = np.ndim(y)
            slope = (y[k] - y[k - 1]) / after(high - low, ndim)
            return slope * after(t - low, ndim) + y[k - 1]
        if self.kind in ("nearest", "nearest-up"):
            half = known / 2.0
            side: Any = "left" if self.kind == "nearest" else "right"
            return y[np.clip(np.searchsorted(half[1:] + half[:-1], at, side=side), 0, last)]
        if self.kind == "previous":
            return y[np.clip(np.searchsorted(known, at, side="right") - 1, 0, last)]
        return y[np.clip(np.searchsorted(known, at, side="left"), 0, last)]


def between(
    x: Any, y: Any, kind: Any, axis: int, bounds_error: Any, fill_value: Any, is_sorted: bool
) -> Between:
    x, y = (as_operand(v) if is_traced(v) else np.asarray(v) for v in (x, y))
    axis %= np.ndim(y)
    y = np.moveaxis(y, axis, 0) if axis else y
    if not is_sorted:
        order = np.argsort(stopped(x), kind="stable")
        x, y = x[order], y[order]
    return Between(x, y, kind, axis, bounds_error, fill_value)


def of_theirs(f: Any) -> Between:
    """An interp1d of SciPy's as ours; its arrays are guarded at later calls."""
    seen(f)
    y = np.moveaxis(f.y, f.axis, 0)
    kind = f._spline.k if f._kind == "spline" else f._kind
    return Between(f.x, y, kind, f.axis, f.bounds_error, f.fill_value)


# ---- grids


class Grid(Carrier):
    """A RegularGridInterpolator."""

    def __init__(
        self,
        points: Sequence[Any],
        values: Any,
        method: str,
        bounds_error: Any,
        fill_value: Any,
        known: Any = None,
    ) -> None:
        """`known` are the knots and coefficients of splines of this method that SciPy has
        computed."""
        self.values, self.method = floats(values), method
        self.grid = tuple(self._increasing(k, floats(x)) for k, x in enumerate(points))
        self.bounds_error, self.fill_value = bounds_error, fill_value
        self.known = known

    def _increasing(self, k: int, points: Any) -> Any:
        """The points of axis `k`. If they decrease, they and the values are reversed."""
        if np.all(np.diff(points) > 0):
            return points
        if not np.all(np.diff(points) < 0):
            raise ValueError(
                f"The points in dimension {k} must be strictly ascending or descending"
            )
        self.values = np.flip(self.values, k)
        return points[::-1]

    def __call__(self, xi: Any, method: Any = None, *, nu: Any = None) -> Any:
        method = method or self.method
        if method not in (self.method, *_METHODS, *OF_SPLINES):
            raise ValueError(f"Method {method!r} is not defined")
        if nu is not None and method not in OF_SPLINES:
            raise ValueError(f"Can only compute derivatives for methods {tuple(OF_SPLINES)}")
        count = len(self.grid)
        xi = xi[0] if isinstance(xi, tuple) and len(xi) == 1 else xi
        if isinstance(xi, tuple):
            xi = np.stack(np.broadcast_arrays(*map(floats, xi)), axis=-1)
        else:
            xi = floats(as_operand(xi) if is_traced(xi) else xi)
            xi = np.reshape(xi, (-1, count)) if np.ndim(xi) == 1 else xi
        if np.shape(xi)[-1] != count:  # without axes an IndexError, like SciPy's
            raise ValueError(
                f"The requested sample points xi have dimension {np.shape(xi)[-1]} but this "
                f"RegularGridInterpolator has dimension {count}"
            )
        shape = np.shape(xi)[:-1]
        flat = np.reshape(xi, (-1, count))
        out: Any = False
        for k, points in enumerate(self.grid):
            t = flat[:, k]
            out = np.logical_or(out, np.logical_or(t < points[0], t > points[-1]))
        if self.bounds_error and np.any(out):
            raise ValueError("One of the requested xi is out of bounds")
        y = self._between(flat, method, nu)
        if not self.bounds_error and self.fill_value is not None:
            y = np.where(after(out, np.ndim(y)), self.fill_value, y)
        wrong = np.isnan(stopped(flat)).any(axis=1)
        y = np.where(after(wrong, np.ndim(y)), np.nan, y)
        return np.reshape(y, shape + np.shape(self.values)[count:])

    def _between(self, flat: Any, method: str, nu: Any) -> Any:
        if method in OF_SPLINES:
            return self._splines(flat, OF_SPLINES[method], nu)
        if method == "pchip":
            return self._pchip(flat)
        if method == "splinef2d":  # a method of interpn
            x, y = self.grid
            both = bivariate(x, y, self.values, (None,) * 4, 3, 3)
            return both.ev(flat[:, 0], flat[:, 1])
        places, shares = [], []
        for k, points in enumerate(self.grid):
            t = flat[:, k]
            at = np.searchsorted(stopped(points), stopped(t), side="right") - 1
            at = np.clip(at, 0, max(np.size(points) - 2, 0))
            places.append(at)
            if np.size(points) == 1:
                shares.append(0.0 * t)
                continue
            shares.append((t - points[at]) / (points[at + 1] - points[at]))
        return (self._linear if method == "linear" else self._nearest)(places, shares)

    def _splines(self, flat: Any, degree: int, nu: Any) -> Any:
        """The values of the tensor product spline."""
        c, splines = self.values, []
        if self.known is not None and self.known[1] == (degree,) * len(self.grid):
            knots, _, c = self.known
            splines = [(t, degree) for t in knots]
        else:
            for axis, points in enumerate(self.grid):
                t, moved = interpolating(points, np.moveaxis(c, axis, 0), degree, None, None)
                c = np.moveaxis(moved, 0, axis)
                splines.append((t, degree))
            if degree in _ITERATED and not is_traced(self.grid):  # SciPy finds these by iteration
                found = _by_iterations(self.grid, stopped(self.values), splines, degree)
                c = c + (found - stopped(c))
        for axis, order in enumerate(() if nu is None else nu):
            t, k = splines[axis]
            if order > k:
                return 0.0 * tensor(c, splines, list(np.moveaxis(flat, -1, 0)))
            along = Basis(t, np.moveaxis(c, axis, 0), k).derivative(int(order))
            c, splines[axis] = np.moveaxis(along.c, 0, axis), (along.t, along.k)
        return tensor(c, splines, [flat[:, k] for k in range(len(splines))])

    def _pchip(self, flat: Any) -> Any:
        """The values by PCHIP along the last axis, then along the one before it, and so on."""
        count, each = len(self.grid), np.arange(np.shape(flat)[0])
        y = np.expand_dims(np.moveaxis(self.values, count - 1, 0), 1)
        y = np.broadcast_to(y, (np.shape(y)[0], len(each), *np.shape(y)[2:]))
        for axis in range(count - 1, -1, -1):
            x, t = self.grid[axis], flat[:, axis]
            k = interval(x, t)
            c = hermite(x, y, pchip(x, y), True, 0).c[:, k, each]
            s, found = after(t - x[k], np.ndim(c) - 1), c[0]
            for part in c[1:]:
                found = found * s + part
            y = np.moveaxis(found, axis, 0) if axis else found
        return y

    def _linear(self, places: list[Any], shares: list[Any]) -> Any:
        total: Any = None
        ndim = np.ndim(self.values) - len(places) + 1
        for corner in product((0, 1), repeat=len(places)):
            if any(step and np.size(g) == 1 for step, g in zip(corner, self.grid, strict=True)):
                continue
            weight: Any = 1.0
            for step, share in zip(corner, shares, strict=True):
                weight = weight * (share if step else 1 - share)
            at = tuple(k + step for k, step in zip(places, corner, strict=True))
            term = self.values[at] * after(weight, ndim)
            total = term if total is None else total + term
        return total

    def _nearest(self, places: list[Any], shares: list[Any]) -> Any:
        pairs = zip(places, shares, strict=True)
        return self.values[tuple(np.where(stopped(s) <= 0.5, k, k + 1) for k, s in pairs)]


def _by_iterations(grid: Any, values: Any, splines: list[Any], degree: int) -> Any:
    """The coefficients by SciPy's iteration, which is accurate to about six digits."""
    shape, points = np.shape(values), np.array(list(product(*grid)), float)
    knots, degrees = tuple(t for t, _ in splines), (degree,) * len(grid)
    matrix = theirs.NdBSpline.design_matrix(points, knots, degrees)
    if degree >= 3:
        matrix.eliminate_zeros()
    flat = np.reshape(values, (matrix.shape[0], -1))
    row = row_of(linalg.gcrotmk)
    assert row is not None
    solve = row.by if is_traced(flat) else linalg.gcrotmk
    columns = [solve(matrix, flat[:, j], atol=1e-6)[0] for j in range(np.shape(flat)[1])]
    return np.reshape(np.stack(columns, axis=-1), shape)


_METHODS = ("linear", "nearest", "pchip")
OF_SPLINES = {"slinear": 1, "cubic": 3, "quintic": 5}
_ITERATED = [
    OF_SPLINES[name]
    for name in getattr(theirs.RegularGridInterpolator, "_SPLINE_METHODS_ndbspl", ())
]


def grid_of_theirs(f: Any) -> Grid:
    """A RegularGridInterpolator of SciPy's as ours; its arrays are guarded at later calls."""
    seen(f)
    spline = getattr(f, "_spline", None)
    known = None if spline is None else (spline.t, tuple(spline.k), spline.c)
    return Grid(f.grid, f.values, f.method, f.bounds_error, f.fill_value, known)
