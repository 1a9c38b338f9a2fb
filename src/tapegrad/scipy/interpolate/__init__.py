"""Traceable versions of the functions and classes of scipy.interpolate.

A spline with traced values is an object of ours with the attributes of SciPy's class
(`piecewise.py`, `bsplines.py`, `grids.py`). One of SciPy's that is called at traced points is
converted to such an object for that call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.interpolate as theirs

from tapegrad.extending import (
    any_traced,
    as_called,
    at_line,
    declare_calls,
    is_traced,
    observed,
    refusal,
    stands_for,
    unobserved,
)
from tapegrad.extending.runs import accepted
from tapegrad.scipy.borrowing import borrow, borrow_objects
from tapegrad.scipy.interpolate import bsplines, fitpack, grids, piecewise, radial, scattered
from tapegrad.scipy.interpolate.bsplines import Basis, interpolating
from tapegrad.scipy.interpolate.fitpack import extended
from tapegrad.scipy.interpolate.grids import Grid, between
from tapegrad.scipy.interpolate.piecewise import Piecewise, floats, hermite, prepared
from tapegrad.scipy.optimize.roots import example

HOME = "scipy.interpolate"
borrow(HOME, "pade barycentric_interpolate krogh_interpolate make_splrep")
borrow_objects(HOME, "KroghInterpolator BarycentricInterpolator", "__call__ derivative derivatives")
borrow_objects(HOME, "Rbf FloaterHormannInterpolator")

REFUSED = {
    "LSQUnivariateSpline make_lsq_spline": (
        "scipy.interpolate.make_interp_spline, or BSpline.design_matrix with numpy.linalg.lstsq"
    ),
    "interp2d": "scipy.interpolate.RegularGridInterpolator",
}


def _checked(name: str, *args: Any, **kwargs: Any) -> Any:
    """SciPy's own object for the present values, which also raises SciPy's own errors."""
    return getattr(theirs, name)(*[_value(x) for x in args], **kwargs)


def _value(x: Any) -> Any:
    return example(floats(x)) if is_traced(x) else x


@stands_for(HOME)
def lagrange(x: Any, w: Any) -> Any:
    """sum_j w_j prod_{k != j} (t - x_k) / (x_j - x_k), as a polynomial in t."""
    polynomial = as_called(np.poly1d)
    total = polynomial(0.0)
    for j in range(len(x)):
        term = polynomial([w[j]])
        for k in range(len(x)):
            if k != j:
                term = term * polynomial([1.0, -x[k]]) / (x[j] - x[k])
        total = total + term
    return total


@stands_for(HOME)
def CubicSpline(
    x: Any, y: Any, axis: int = 0, bc_type: Any = "not-a-knot", extrapolate: Any = None
) -> Any:
    plain = not is_traced(bc_type)
    if plain:
        _checked("CubicSpline", x, y, axis, bc_type, extrapolate)
    x, y, axis = prepared(x, y, axis)
    bc = piecewise.conditions(bc_type, np.shape(y)[1:])
    if extrapolate is None:
        extrapolate = "periodic" if bc[0] == "periodic" else True
    if bc[0] == "periodic" and is_traced(y):
        bool(np.allclose(y[0], y[-1], rtol=1e-15, atol=1e-15))  # guarded
    return hermite(x, y, piecewise.natural(x, y, bc), extrapolate, axis)


@stands_for(HOME)
def CubicHermiteSpline(x: Any, y: Any, dydx: Any, axis: int = 0, extrapolate: Any = None) -> Any:
    _checked("CubicHermiteSpline", x, y, dydx, axis, extrapolate)
    x, y, axis = prepared(x, y, axis)
    slopes = np.moveaxis(floats(dydx), axis, 0)
    return hermite(x, y, slopes, True if extrapolate is None else extrapolate, axis)


@stands_for(HOME)
def PchipInterpolator(x: Any, y: Any, axis: int = 0, extrapolate: Any = None) -> Any:
    _checked("PchipInterpolator", x, y, axis, extrapolate)
    x, y, axis = prepared(x, y, axis)
    return hermite(x, y, piecewise.pchip(x, y), True if extrapolate is None else extrapolate, axis)


@stands_for(HOME)
def Akima1DInterpolator(
    x: Any, y: Any, axis: int = 0, *, method: str = "akima", extrapolate: Any = None
) -> Any:
    _checked("Akima1DInterpolator", x, y, axis, method=method, extrapolate=extrapolate)
    x, y, axis = prepared(x, y, axis)
    slopes = piecewise.akima(x, y, method)
    return hermite(x, y, slopes, False if extrapolate is None else extrapolate, axis)


@stands_for(HOME)
def pchip_interpolate(xi: Any, yi: Any, x: Any, der: Any = 0, axis: int = 0) -> Any:
    found = PchipInterpolator(xi, yi, axis) if is_traced((xi, yi)) else None
    if found is None:
        found = piecewise.of_theirs(theirs.PchipInterpolator(xi, yi, axis))
    return found(x, der) if np.ndim(der) == 0 else [found(x, nu) for nu in der]


@stands_for(HOME)
def PPoly(c: Any, x: Any, extrapolate: Any = None, axis: int = 0) -> Any:
    _checked("PPoly", c, x, extrapolate, axis)
    piecewise.check_increasing(x)
    c = np.moveaxis(np.moveaxis(floats(c), axis + 1, 0), axis + 1, 0) if axis else floats(c)
    return Piecewise(c, floats(x), True if extrapolate is None else extrapolate, axis)


@stands_for(HOME)
def BSpline(t: Any, c: Any, k: Any, extrapolate: Any = True, axis: int = 0) -> Any:
    _checked("BSpline", t, c, k, extrapolate, axis)
    c = floats(c)
    axis %= np.ndim(c)
    return Basis(floats(t), np.moveaxis(c, axis, 0) if axis else c, int(k), extrapolate, axis)


@stands_for(HOME, parameters="check_finite", lists="bc_type")
def make_interp_spline(
    x: Any, y: Any, k: Any = 3, t: Any = None, bc_type: Any = None, axis: int = 0
) -> Any:
    if not is_traced(bc_type):
        _checked("make_interp_spline", x, y, k, t, bc_type, axis)
    x, y, axis = prepared(x, y, axis)
    t = None if t is None else floats(t)
    knots, c = interpolating(x, y, int(k), t, bc_type)
    circle = isinstance(bc_type, str) and bc_type == "periodic" and int(k) > 0
    return Basis(knots, c, int(k), "periodic" if circle else True, axis)


@stands_for(HOME, lists="tck")
def splev(x: Any, tck: Any, der: Any = 0, ext: Any = 0) -> Any:
    if isinstance(tck, theirs.BSpline):
        spline = bsplines.of_theirs(tck)
    elif isinstance(tck, Basis):
        spline = tck
    else:
        t, c, k = tck
        spline = Basis(floats(t), floats(c), int(k))
    if der and ext == 3:
        raise refusal(f"scipy.interpolate.splev(..., der=1, ext=3) can't be traced{at_line()}")
    return extended(spline, x, int(der), ext)


@stands_for(HOME, parameters="full_output")
def splrep(x: Any, y: Any, w: Any = None, k: Any = 3, s: Any = None) -> Any:
    fitpack.check_interpolates("splrep", 0 if s is None and w is None else s)
    _checked("splrep", x, y, k=k, s=0)
    spline = fitpack.univariate(x, y, k, (None, None), 0).spline
    return spline.t, np.concatenate([spline.c, np.zeros(int(k) + 1)]), int(k)


@stands_for(HOME, parameters="check_finite", lists="bbox")
def UnivariateSpline(
    x: Any, y: Any, w: Any = None, bbox: Any = (None, None), k: Any = 3, s: Any = None, ext: Any = 0
) -> Any:
    fitpack.check_interpolates("UnivariateSpline", s)
    _checked("UnivariateSpline", x, y, None, list(map(_value, bbox)), k, 0, ext)
    return fitpack.univariate(x, y, k, bbox, ext)


@stands_for(HOME, parameters="check_finite", lists="bbox")
def InterpolatedUnivariateSpline(
    x: Any, y: Any, w: Any = None, bbox: Any = (None, None), k: Any = 3, ext: Any = 0
) -> Any:
    _checked("InterpolatedUnivariateSpline", x, y, None, list(map(_value, bbox)), k, ext)
    return fitpack.univariate(x, y, k, bbox, ext)


@stands_for(HOME, lists="bbox")
def RectBivariateSpline(
    x: Any, y: Any, z: Any, bbox: Any = (None,) * 4, kx: Any = 3, ky: Any = 3, s: Any = 0
) -> Any:
    fitpack.check_interpolates("RectBivariateSpline", s)
    _checked("RectBivariateSpline", x, y, z, list(map(_value, bbox)), kx, ky)
    return fitpack.bivariate(x, y, z, bbox, kx, ky)


@stands_for(HOME, parameters="assume_sorted copy", lists="fill_value")
def interp1d(
    x: Any,
    y: Any,
    kind: Any = "linear",
    axis: int = -1,
    copy: Any = True,
    bounds_error: Any = None,
    fill_value: Any = np.nan,
    assume_sorted: Any = False,
) -> Any:
    if not is_traced(fill_value):
        _checked("interp1d", x, y, kind, axis, copy, bounds_error, fill_value, assume_sorted)
    if bounds_error is None:
        plain_nan = isinstance(fill_value, float) and np.isnan(fill_value)
        bounds_error = plain_nan and fill_value is np.nan
    return between(x, y, kind, axis, bounds_error, fill_value, bool(assume_sorted))


@stands_for(HOME, lists="points")
def RegularGridInterpolator(
    points: Any,
    values: Any,
    method: Any = "linear",
    bounds_error: Any = True,
    fill_value: Any = np.nan,
) -> Any:
    _checked(
        "RegularGridInterpolator",
        [_value(p) for p in points],
        values,
        method,
        bounds_error,
        fill_value,
    )
    return Grid(points, values, method, bounds_error, fill_value)


@stands_for(HOME, lists="points xi")
def interpn(
    points: Any,
    values: Any,
    xi: Any,
    method: Any = "linear",
    bounds_error: Any = True,
    fill_value: Any = np.nan,
) -> Any:
    if type(xi) is tuple:  # a single point has one axis, and so has the result
        xi = np.stack(np.broadcast_arrays(*xi), axis=-1)
    if method in grids.OF_SPLINES and not is_traced((points, values)):
        made = theirs.RegularGridInterpolator(points, values, method, bounds_error, fill_value)
        return grids.grid_of_theirs(made)(xi)
    return Grid(points, values, method, bounds_error, fill_value)(xi)


@stands_for(HOME)
def LinearNDInterpolator(
    points: Any, values: Any, fill_value: Any = np.nan, rescale: Any = False
) -> Any:
    return scattered.linear(points, values, fill_value, rescale)


@stands_for(HOME)
def NearestNDInterpolator(x: Any, y: Any, rescale: Any = False, tree_options: Any = None) -> Any:
    return scattered.nearest(x, y, rescale, tree_options)


@stands_for(HOME)
def CloughTocher2DInterpolator(
    points: Any,
    values: Any,
    fill_value: Any = np.nan,
    tol: Any = 1e-6,
    maxiter: Any = 400,
    rescale: Any = False,
) -> Any:
    return scattered.cubic(points, values, fill_value, tol, maxiter, rescale)


@stands_for(HOME)
def griddata(
    points: Any,
    values: Any,
    xi: Any,
    method: Any = "linear",
    fill_value: Any = np.nan,
    rescale: Any = False,
) -> Any:
    points, values = scattered.coordinates((points,)), floats(values)
    count = points.shape[-1] if points.ndim > 1 else points.ndim
    if count == 1 and method in ("nearest", "linear", "cubic"):
        points = np.ravel(points)
        x = xi[0] if isinstance(xi, tuple) and len(xi) == 1 else xi
        fill_value = "extrapolate" if method == "nearest" else fill_value
        return between(points, values, method, 0, False, fill_value, False)(x)
    if method == "nearest":
        return scattered.nearest(points, values, rescale, None)(xi)
    if method == "linear":
        return scattered.linear(points, values, fill_value, rescale)(xi)
    if method == "cubic" and count == 2:
        return scattered.cubic(points, values, fill_value, 1e-6, 400, rescale)(xi)
    raise ValueError(f"Unknown interpolation method {method!r} for {count} dimensional data")


# ---- SciPy's own objects, evaluated at traced points


@stands_for(HOME, parameters="degree neighbors")
def RBFInterpolator(
    y: Any,
    d: Any,
    neighbors: Any = None,
    smoothing: Any = 0.0,
    kernel: str = "thin_plate_spline",
    epsilon: Any = None,
    degree: Any = None,
) -> Any:
    like = _checked("RBFInterpolator", y, d, neighbors, smoothing, kernel, epsilon, degree)
    return radial.interpolator(
        floats(y), floats(d), smoothing, 1.0 if epsilon is None else epsilon, like
    )


def _calls(kind: Any, made: Any) -> None:
    @unobserved
    def by(f: Any, *args: Any, **kwargs: Any) -> Any:
        if not any_traced((*args, *kwargs.values())):
            with observed():
                return f(*args, **kwargs)
        shown = f"{kind.__name__}.__call__"
        return accepted(f, args, kwargs, lambda: made(f)(*args, **kwargs), shown, False)

    declare_calls(kind, by, when=any_traced)


for _kind in (
    theirs.PPoly,
    theirs.CubicSpline,
    theirs.CubicHermiteSpline,
    theirs.PchipInterpolator,
    theirs.Akima1DInterpolator,
):
    _calls(_kind, piecewise.of_theirs)
_calls(theirs.BSpline, bsplines.of_theirs)
_calls(theirs.interp1d, grids.of_theirs)
_calls(theirs.RegularGridInterpolator, grids.grid_of_theirs)
for _kind in fitpack.KINDS:
    _calls(_kind, fitpack.univariate_of_theirs)
_calls(theirs.RBFInterpolator, radial.of_theirs)
for _kind in scattered.KINDS:
    _calls(_kind, scattered.of_theirs)
_calls(theirs.RectBivariateSpline, fitpack.bivariate_of_theirs)


@stands_for(theirs.PPoly, "integrate")
def _integral_of_polynomials(self: Any, a: Any, b: Any, extrapolate: Any = None) -> Any:
    return piecewise.of_theirs(self).integrate(a, b, extrapolate)


@stands_for(theirs.BSpline, "integrate")
def _integral_of_splines(self: Any, a: Any, b: Any, extrapolate: Any = None) -> Any:
    return bsplines.of_theirs(self).integrate(a, b, extrapolate)


@stands_for(theirs.UnivariateSpline, "integral")
def _integral_of_univariate(self: Any, a: Any, b: Any) -> Any:
    return fitpack.univariate_of_theirs(self).integral(a, b)


@stands_for(theirs.UnivariateSpline, "derivatives")
def _derivatives_of_univariate(self: Any, x: Any) -> Any:
    return fitpack.univariate_of_theirs(self).derivatives(x)


@stands_for(theirs.RectBivariateSpline, "ev")
def _ev(self: Any, xi: Any, yi: Any, dx: Any = 0, dy: Any = 0) -> Any:
    return fitpack.bivariate_of_theirs(self).ev(xi, yi, dx, dy)
