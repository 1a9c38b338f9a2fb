"""Interpolation of scattered points: LinearNDInterpolator, NearestNDInterpolator,
CloughTocher2DInterpolator and griddata.

SciPy finds the triangle that contains a point x at each call; that triangle has no derivative.
With the numbers i of its corners, whose weights c at x have the sum 1,

  nearest f(x) = v[i]
  linear  f(x) = sum c v[i],   sum c points[i] = x
  cubic   f(x) = sum L(c') s

In the cubic case f is one cubic polynomial in each third of the triangle. s are SciPy's values at
ten points of the third that contains x, and each polynomial L is 1 at one of these points and 0 at
the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.interpolate as theirs
from scipy.spatial import Delaunay, cKDTree

from tapegrad.extending import Carrier, at_line, held, is_traced, refusal, seen, unobserved
from tapegrad.extending.primitives import Known
from tapegrad.scipy.interpolate.piecewise import floats
from tapegrad.scipy.recomputed import constant, remembering, rows
from tapegrad.scipy.solver_calls import stopped


@dataclass(eq=False)
class Scattered(Carrier):
    """An interpolator of `values` at `points`. The points and x are moved by `offset` and divided
    by `scale`. `joined(points)` makes SciPy's triangulation or k-d tree."""

    points: Any
    values: Any
    fill_value: Any
    joined: Callable[[Any], Any]
    offset: Any = 0.0
    scale: Any = 1.0

    @unobserved
    def __call__(self, *args: Any, **query: Any) -> Any:
        x = coordinates(args, self.points.shape[1])
        if x.shape[-1] != self.points.shape[1]:
            raise ValueError(
                f"number of dimensions in xi {x.shape[-1]} does not match x {self.points.shape[1]}"
            )
        flat = (np.reshape(x, (-1, x.shape[-1])) - self.offset) / self.scale
        y, known = self._at(flat, **query)
        known = np.reshape(known, np.shape(known) + (1,) * (np.ndim(y) - 1))
        y = np.where(known, y, self.fill_value)
        return np.reshape(y, x.shape[:-1] + np.shape(self.values)[1:])

    def _at(self, x: Any) -> tuple[Any, Any]:
        """The values at the points x, and where they are defined."""
        raise NotImplementedError

    def _corners(self, x: Any) -> Any:
        """The numbers of the corners of the simplex that contains each x; -1 if there is none."""

        def found(points: Any, x: Any) -> Any:
            triangles = self.joined(points)
            k = triangles.find_simplex(x)
            return np.where(k[:, None] < 0, -1, triangles.simplices[k])

        return constant("find_simplex", found, self.points, x)


class Nearest(Scattered):
    """Interpolation by the value of the nearest point."""

    def _at(self, x: Any, **query: Any) -> tuple[Any, Any]:
        def found(points: Any, x: Any) -> Any:
            return self.joined(points).query(x, **query)[1]

        near = constant("cKDTree.query", found, self.points, x)
        count = self.points.shape[0]
        return rows(self.values, np.minimum(near, count - 1)), near < count


class Linear(Scattered):
    """Linear interpolation within each triangle."""

    def _at(self, x: Any) -> tuple[Any, Any]:
        corners = self._corners(x)
        known = corners[:, 0] >= 0
        c = weights(rows(self.points, corners), x, known)
        return np.einsum("ij,ij...->i...", c, rows(self.values, corners)), known


@dataclass(eq=False)
class Cubic(Scattered):
    """The Clough-Tocher interpolant, which has continuous slopes. `surface(values, exact)` makes
    SciPy's interpolator of plain values; with `exact` its slopes at the points are exact up to
    rounding."""

    surface: Any = None

    def _at(self, x: Any) -> tuple[Any, Any]:
        corners = self._corners(x)
        known = corners[:, 0] >= 0
        value = constant("CloughTocher2DInterpolator", self._values, self.values, x)
        value = np.where(np.reshape(known, (-1,) + (1,) * (np.ndim(value) - 1)), value, 0.0)
        if not is_traced(x):
            return Known()(value, self._linear(x)), known
        third = self._third(corners, x, known)
        c = weights(third, x, known)
        places = np.einsum("kj,ijd->ikd", _LATTICE, stopped(third))
        found = self._linear(np.reshape(places, (-1, 2)))
        found = np.reshape(found, (np.shape(x)[0], len(_LATTICE), *np.shape(found)[1:]))
        shares = np.stack([np.prod(c**power, axis=1) for power in _POWERS], axis=1) @ _LAGRANGE
        return Known()(value, np.einsum("ik,ik...->i...", shares, found)), known

    def _third(self, corners: Any, x: Any, known: Any) -> Any:
        """The corners of the third of the triangle that contains x: the corner with the least
        weight is replaced by the centroid."""
        whole = rows(self.points, corners)
        least = np.argmin(stopped(weights(whole, x, known)), axis=1)
        at_least = np.arange(3) == least[:, None]
        return np.where(at_least[..., None], np.mean(whole, axis=1, keepdims=True), whole)

    def _values(self, values: Any, x: Any) -> Any:
        return self.surface(values, False)(x)

    def _linear(self, x: Any) -> Any:
        """SciPy's values at x, which are linear in the values at the points."""
        if not is_traced(self.values):
            return self._clean(constant("CloughTocher2DInterpolator", self._values, self.values, x))
        columns = lambda x: self.surface(np.eye(self.points.shape[0]), True)(x)  # noqa: E731
        return np.tensordot(
            self._clean(constant("CloughTocher2DInterpolator", columns, x)), self.values, 1
        )

    def _clean(self, y: Any) -> Any:
        return np.where(np.isnan(y), 0.0, y)


def weights(corners: Any, x: Any, known: Any) -> Any:
    """The weights of the corners of simplices by which their weighted sums are x."""
    last = corners[:, -1]
    sides = np.swapaxes(corners[:, :-1] - last[:, None], 1, 2)
    sides = np.where(known[:, None, None], sides, np.eye(np.shape(x)[1]))
    c = np.linalg.solve(sides, (x - last)[..., None])[..., 0]
    return np.concatenate([c, 1.0 - np.sum(c, axis=1, keepdims=True)], axis=1)


# Ten points in a triangle, and the cubic polynomials that are 1 at one of them and 0 at the others
_POWERS = np.array([(i, j, 3 - i - j) for i in range(4) for j in range(4 - i)])
_LATTICE = 0.8 * _POWERS / 3 + 0.2 / 3
_LAGRANGE = np.linalg.inv(np.prod(_LATTICE[:, None] ** _POWERS, axis=2))


def coordinates(given: Any, ndim: int | None = None) -> Any:
    """Points along the last axis, from SciPy's forms: an array for each coordinate, or one
    array."""
    if len(given) == 1 and isinstance(given[0], tuple):
        given = given[0]
    if len(given) > 1:
        return np.stack(np.broadcast_arrays(*map(floats, given)), axis=-1)
    x = floats(given[0])
    if x.ndim == 1:
        return np.reshape(x, (-1, 1 if ndim is None else ndim))
    return x


def _made(kind: Any, points: Any, values: Any, fill_value: Any, rescale: Any, joined: Any) -> Any:
    values = floats(values)
    if isinstance(points, Delaunay):
        if rescale:
            raise ValueError("Rescaling is not supported when passing a Delaunay triangulation")
        triangles = seen(points)
        return kind(triangles.points, values, fill_value, lambda points: triangles)
    points = coordinates((points,))
    if points.ndim != 2 or points.shape[1] < 2:
        raise ValueError("input data must be at least 2-D")
    if values.ndim < 1 or values.shape[0] != points.shape[0]:
        raise ValueError("different number of values and points")
    offset: Any = 0.0
    scale: Any = 1.0
    if rescale:
        offset, size = np.mean(stopped(points), axis=0), np.ptp(stopped(points), axis=0)
        scale = np.where(size > 0, size, 1.0)
        points = (points - offset) / scale
    return kind(points, values, fill_value, remembering(joined), offset, scale)


def linear(points: Any, values: Any, fill_value: Any, rescale: Any) -> Linear:
    found: Linear = _made(Linear, points, values, fill_value, rescale, Delaunay)
    return found


def nearest(points: Any, values: Any, rescale: Any, options: Any) -> Nearest:
    joined = lambda points: cKDTree(points, **(options or {}))  # noqa: E731
    found: Nearest = _made(Nearest, points, values, np.nan, rescale, joined)
    return found


def cubic(points: Any, values: Any, fill_value: Any, tol: Any, maxiter: Any, rescale: Any) -> Cubic:
    found: Cubic = _made(Cubic, points, values, fill_value, rescale, Delaunay)
    if is_traced(found.points):
        raise refusal(
            "scipy.interpolate.CloughTocher2DInterpolator of traced points can't be "
            f"traced{at_line()}, only of traced values, and at traced points. Use "
            "LinearNDInterpolator or RBFInterpolator"
        )
    triangles = found.joined(found.points)

    def surface(values: Any, exact: bool) -> Any:
        how = (1e-12, 10 * maxiter) if exact else (tol, maxiter)
        return theirs.CloughTocher2DInterpolator(triangles, values, np.nan, *how)

    return replace(found, surface=surface)


KINDS = {
    theirs.LinearNDInterpolator: Linear,
    theirs.NearestNDInterpolator: Nearest,
    theirs.CloughTocher2DInterpolator: Cubic,
}


_NUMBERS = ("points", "values", "fill_value", "offset", "scale")


def of_theirs(f: Any) -> Scattered:
    """SciPy's own interpolator of plain values, as ours."""
    names = [name for name in _NUMBERS if hasattr(f, name)]
    held(f, *names)()
    kind = KINDS[type(f)]
    joined = f.tree if kind is Nearest else f.tri
    fill = np.nan if kind is Nearest else f.fill_value
    values = np.asarray(f.values).reshape(-1, *f.values_shape)
    offset, scale = (0.0, 1.0) if f.scale is None else (f.offset, f.scale)
    found = kind(np.asarray(f.points), floats(values), fill, lambda points: joined, offset, scale)
    if isinstance(found, Cubic):
        found = replace(found, surface=lambda values, exact: lambda x: f(x * scale + offset))
    return found
