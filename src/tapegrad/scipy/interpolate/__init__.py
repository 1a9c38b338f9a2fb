"""What answers the functions and classes of scipy.interpolate.

A spline with traced values is an object of ours, which has SciPy's names for what it does
(`piecewise.py`, `bsplines.py`, `grids.py`). One of SciPy's that is called at traced points becomes
such an object for this call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.interpolate as theirs

from tapegrad.scipy.declaring import any_traced, is_traced, refusal, stands_for
from tapegrad.scipy.interpolate import bsplines, grids, piecewise
from tapegrad.scipy.interpolate.bsplines import Basis, interpolating
from tapegrad.scipy.interpolate.grids import Grid, between
from tapegrad.scipy.interpolate.piecewise import Piecewise, floats, hermite, prepared
from tapegrad.scipy.optimize.roots import example
from tapegrad.tracing.answers import declare_calls
from tapegrad.tracing.observe.observer import observed, unobserved
from tapegrad.tracing.source import at_line

HOME = "scipy.interpolate"

REFUSED = {
    "UnivariateSpline InterpolatedUnivariateSpline LSQUnivariateSpline splrep make_lsq_spline": (
        "scipy.interpolate.make_interp_spline, or BSpline.design_matrix with numpy.linalg.lstsq"
    ),
    "griddata interp2d RectBivariateSpline": "scipy.interpolate.RegularGridInterpolator",
}


def _checked(name: str, *args: Any, **kwargs: Any) -> Any:
    """SciPy's own object of the values: its own errors, too."""
    return getattr(theirs, name)(*[_value(x) for x in args], **kwargs)


def _value(x: Any) -> Any:
    return example(floats(x)) if is_traced(x) else x


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
        bool(np.allclose(y[0], y[-1], rtol=1e-15, atol=1e-15))  # a guard
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


@stands_for(HOME, parameters="check_finite")
def make_interp_spline(
    x: Any, y: Any, k: Any = 3, t: Any = None, bc_type: Any = None, axis: int = 0
) -> Any:
    y = floats(y)
    axis %= np.ndim(y)
    if is_traced(x):
        raise refusal(
            f"scipy.interpolate.make_interp_spline of traced points x can't be traced{at_line()}. "
            "Use CubicSpline, which follows its points, too"
        )
    _checked("make_interp_spline", x, y, k, t, bc_type, axis)
    y = np.moveaxis(y, axis, 0) if axis else y
    knots, c = interpolating(np.asarray(x, float), y, int(k), t, bc_type)
    return Basis(knots, c, int(k), True, axis)


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
    found = spline(x, int(der))
    if ext == 0:
        return found
    t, u = spline.t, floats(x)
    first, last = t[spline.k], t[-spline.k - 1]
    out = np.logical_or(u < first, u > last)
    if ext == 1:
        return np.where(out, 0.0, found)
    if ext == 3:
        return spline(np.clip(u, first, last), int(der))
    if np.any(out):
        raise ValueError("Error code returned by spalde")
    return found


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
    return Grid(points, values, method, bounds_error, fill_value)(xi)


# ---- objects of SciPy's, at traced points


def _calls(kind: Any, made: Any) -> None:
    @unobserved
    def by(f: Any, *args: Any, **kwargs: Any) -> Any:
        if not any_traced((*args, *kwargs.values())):
            with observed():
                return f(*args, **kwargs)
        return made(f)(*args, **kwargs)

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


@stands_for(theirs.PPoly, "integrate")
def _integral_of_polynomials(self: Any, a: Any, b: Any, extrapolate: Any = None) -> Any:
    return piecewise.of_theirs(self).integrate(a, b, extrapolate)


@stands_for(theirs.BSpline, "integrate")
def _integral_of_splines(self: Any, a: Any, b: Any, extrapolate: Any = None) -> Any:
    return bsplines.of_theirs(self).integrate(a, b, extrapolate)
