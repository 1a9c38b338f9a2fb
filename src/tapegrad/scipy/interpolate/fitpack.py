"""Interpolating FITPACK splines with traced values: splrep, UnivariateSpline and
RectBivariateSpline with s=0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.interpolate as theirs

from tapegrad.extending import Carrier, at_line, is_traced, refusal, seen
from tapegrad.extending.arrays import as_pythons
from tapegrad.scipy.interpolate.bsplines import Basis, interpolating, tensor
from tapegrad.scipy.interpolate.piecewise import floats, prepared

_EXTENSIONS = {"extrapolate": 0, "zeros": 1, "raise": 2, "const": 3}


def extended(spline: Basis, x: Any, nu: int, ext: Any) -> Any:
    """A spline, or a derivative of it, at x. `ext` says how it continues outside of its knots."""
    ext = _EXTENSIONS.get(ext, ext)
    if ext == 0:
        return spline(x, nu)
    t, u = spline.t, floats(x)
    first, last = t[spline.k], t[-spline.k - 1]
    out = np.logical_or(u < first, u > last)
    if ext == 3:
        return spline(np.clip(u, first, last), nu)
    if ext == 2 and np.any(out):
        raise ValueError("Error code returned by spalde: 1")
    found = spline(x, nu)
    return np.where(out, 0.0, found) if ext == 1 else found


def ends_of(x: Any, bbox: Any) -> Any:
    """The first and the last knot."""
    first, last = bbox
    return (
        x[:1] if first is None else np.reshape(floats(first), (1,)),
        x[-1:] if last is None else np.reshape(floats(last), (1,)),
    )


@dataclass(eq=False)
class Univariate(Carrier):
    """A UnivariateSpline that interpolates all of its points."""

    spline: Basis
    ext: Any = 0

    def __call__(self, x: Any, nu: Any = 0, ext: Any = None) -> Any:
        return extended(self.spline, x, int(nu), self.ext if ext is None else ext)

    def derivative(self, n: Any = 1) -> Univariate:
        ext = 1 if _EXTENSIONS.get(self.ext, self.ext) == 3 else self.ext
        return Univariate(self.spline.derivative(int(n)), ext)

    def antiderivative(self, n: Any = 1) -> Univariate:
        return Univariate(self.spline.antiderivative(int(n)), self.ext)

    def integral(self, a: Any, b: Any) -> Any:
        return as_pythons(self.spline.integrate(a, b, False))

    def derivatives(self, x: Any) -> Any:
        return np.stack([self.spline(x, nu) for nu in range(self.spline.k + 1)])

    def get_coeffs(self) -> Any:
        return self.spline.c

    def get_knots(self) -> Any:
        return self.spline.t[self.spline.k : np.size(self.spline.t) - self.spline.k]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise refusal(
            f"{name} of a spline with traced values can't be traced{at_line()}. It has __call__, "
            "derivative, derivatives, antiderivative, integral, get_coeffs and get_knots"
        )


def univariate(x: Any, y: Any, k: Any, bbox: Any, ext: Any) -> Univariate:
    x, y, _ = prepared(x, y, 0)
    ends = None if tuple(bbox) == (None, None) else ends_of(x, bbox)
    t, c = interpolating(x, y, int(k), None, None, ends)
    return Univariate(Basis(t, c, int(k)), ext)


def univariate_of_theirs(f: Any) -> Univariate:
    """A UnivariateSpline of SciPy's as ours; its arrays are guarded at later calls."""
    seen(f)
    t, c, k = f._eval_args
    return Univariate(Basis(t, c[: len(t) - k - 1], k), f.ext)


@dataclass(eq=False)
class Bivariate(Carrier):
    """A RectBivariateSpline that interpolates all of its points."""

    knots: tuple[Any, Any]
    c: Any
    degrees: tuple[int, int]

    def __call__(self, x: Any, y: Any, dx: Any = 0, dy: Any = 0, grid: Any = True) -> Any:
        x, y = floats(x), floats(y)
        if grid:
            x, y = np.reshape(x, (-1, 1)), np.reshape(y, (1, -1))
        x, y = np.broadcast_arrays(x, y)
        shape = np.shape(x)
        c, splines, at = self.c, [], []
        each = zip((x, y), self.knots, self.degrees, (dx, dy), strict=True)
        for axis, (u, t, k, order) in enumerate(each):
            if not 0 <= order < k + (not order):
                raise ValueError("Error code returned by pardeu: 10")
            flat = np.clip(np.reshape(u, (-1,)), t[k], t[-k - 1])  # constant beyond the ends
            along = Basis(t, np.moveaxis(c, axis, 0), k).derivative(int(order))
            c = np.moveaxis(along.c, 0, axis)
            splines.append((along.t, along.k))
            at.append(flat)
        return np.reshape(tensor(c, splines, at), shape)

    def ev(self, xi: Any, yi: Any, dx: Any = 0, dy: Any = 0) -> Any:
        return self(xi, yi, dx, dy, grid=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise refusal(
            f"{name} of a spline with traced values can't be traced{at_line()}. It has __call__ "
            "and ev"
        )


def bivariate(x: Any, y: Any, z: Any, bbox: Any, kx: Any, ky: Any) -> Bivariate:
    x, y, c = floats(x), floats(y), floats(z)
    knots = []
    for axis, (points, k) in enumerate(((x, int(kx)), (y, int(ky)))):
        if is_traced(points):
            bool(np.all(np.diff(points) > 0))  # guarded: otherwise SciPy raises an error
        pair = tuple(bbox[2 * axis : 2 * axis + 2])
        ends = ends_of(points, (None, None) if pair == (None, None) else pair)
        t, moved = interpolating(points, np.moveaxis(c, axis, 0), k, None, None, ends)
        c = np.moveaxis(moved, 0, axis)
        knots.append(t)
    return Bivariate((knots[0], knots[1]), c, (int(kx), int(ky)))


def bivariate_of_theirs(f: Any) -> Bivariate:
    """A RectBivariateSpline of SciPy's as ours; its arrays are guarded at later calls."""
    seen(f)
    (tx, ty, c), (kx, ky) = f.tck[:3], f.degrees
    shape = len(tx) - kx - 1, len(ty) - ky - 1
    return Bivariate((tx, ty), np.reshape(c, shape), (kx, ky))


def check_interpolates(name: str, s: Any) -> None:
    """Refuse smoothing splines, whose knots are found by a search."""
    if s != 0:
        raise refusal(
            f"scipy.interpolate.{name} of traced values can't be traced{at_line()} but with s=0, "
            "where the spline goes through all points: else its knots are found by a search. Use "
            "s=0, or make_smoothing_spline's penalty written out with BSpline.design_matrix"
        )


KINDS = (
    theirs.UnivariateSpline,
    theirs.InterpolatedUnivariateSpline,
    theirs.LSQUnivariateSpline,
)
