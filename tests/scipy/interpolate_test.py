"""What the table of calls doesn't hold of scipy.interpolate: objects of SciPy's, edges, axes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import interpolate

from tapegrad import grad, jit, value_and_grad, vjp
from tapegrad.errors import TapegradError, UnsupportedError

X = np.array([0.0, 0.7, 1.1, 2.0, 3.2, 3.9])
Y = np.sin(1.3 * X)
AT = np.array([-0.4, 0.0, 0.7, 1.05, 2.0, 3.9, 4.4])


def slope(f, x, along=1.0, h=1e-6):
    return (f(x + h * along) - f(x - h * along)) / (2 * h)


MADE = {
    "CubicSpline": (lambda y: interpolate.CubicSpline(X, y), "c"),
    "PchipInterpolator": (lambda y: interpolate.PchipInterpolator(X, y), "c"),
    "make_interp_spline": (lambda y: interpolate.make_interp_spline(X, y), "c"),
    "interp1d": (lambda y: interpolate.interp1d(X, y, fill_value="extrapolate"), "y"),
}


@pytest.mark.filterwarnings("ignore:.*traced for three calls in a row")
@pytest.mark.parametrize("name", MADE)
def test_an_object_of_scipys_is_read_anew_at_each_call(name):
    make, held = MADE[name]
    spline = make(Y)
    g = value_and_grad(lambda t: spline(t) ** 2)
    for _ in range(2):
        value, gradient = g(2.3)
        np.testing.assert_allclose(value, spline(2.3) ** 2, rtol=1e-13)
        np.testing.assert_allclose(gradient, slope(lambda t: spline(t) ** 2, 2.3), rtol=1e-6)
        getattr(spline, held)[:] *= 2
    spline = make(Y**2)
    np.testing.assert_allclose(g(2.3)[0], spline(2.3) ** 2, rtol=1e-13)


CLASSES = {
    "natural": lambda x, y, **how: interpolate.CubicSpline(x, y, bc_type="natural", **how),
    "clamped": lambda x, y, **how: interpolate.CubicSpline(x, y, bc_type="clamped", **how),
    "not-a-knot": interpolate.CubicSpline,
    "pchip": interpolate.PchipInterpolator,
    "akima": interpolate.Akima1DInterpolator,
}


@pytest.mark.every(12)
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_values_are_scipys_along_any_axis(kind, count):
    make, x = CLASSES[kind], X[:count]
    y = np.cos(np.arange(count * 4.0)).reshape(2, count, 2)
    for how in ({}, {"extrapolate": False}, {"extrapolate": True}):
        for nu in (0, 1):
            f = lambda y: make(x, y, axis=1, **how)(AT, nu)  # noqa: B023, E731
            np.testing.assert_allclose(jit(f)(y), f(y), rtol=1e-10, atol=1e-12)
    f = lambda y: make(x, y, axis=1).integrate(x[0], x[-1])  # noqa: E731
    np.testing.assert_allclose(jit(f)(y), f(y), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["linear", "nearest", "previous", "next", "zero", "quadratic"])
def test_points_between_and_outside_of_others(kind):
    how = {"kind": kind, "bounds_error": False, "fill_value": (-5.0, 7.0)}
    f = lambda y: interpolate.interp1d(X[::-1], y, **how)(AT)  # noqa: E731
    np.testing.assert_allclose(jit(f)(Y), f(Y), rtol=1e-12, atol=1e-13)


def test_a_point_that_leaves_the_range_is_scipys_error():
    spline = interpolate.interp1d(X, Y)
    g = jit(lambda t: spline(t))
    assert g(2.3) == spline(2.3)
    with pytest.raises(ValueError, match="above the interpolation range"):
        g(7.0)
    with pytest.raises(ValueError, match="increasing"):
        jit(lambda x: interpolate.CubicSpline(x, Y)(1.0))(X[::-1].copy())


def test_points_that_change_their_order_are_found_at_a_later_call():
    g = jit(lambda x: interpolate.CubicSpline(x, Y)(1.0))
    assert np.isfinite(g(X))
    with pytest.raises(ValueError, match="increasing"):
        g(X[[1, 0, 2, 3, 4, 5]])


@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_grids_of_three_axes(method):
    axes = (np.array([0.0, 1.0, 2.5]), np.array([0.0, 2.0]), np.array([1.0, 2.0, 4.0, 5.0]))
    values = np.cos(np.arange(48.0)).reshape(3, 2, 4, 2)
    xi = np.array([[0.3, 1.1, 2.2], [2.5, 2.0, 5.0], [9.0, 1.0, 1.0], [0.1, np.nan, 1.0]])
    for fill in (np.nan, -1.0, None):
        f = lambda v: interpolate.interpn(axes, v, xi, method, False, fill)  # noqa: B023, E731
        np.testing.assert_allclose(jit(f)(values), f(values), rtol=1e-12)


def test_a_spline_may_be_returned():
    spline = jit(lambda y: interpolate.CubicSpline(X, y))(Y)
    np.testing.assert_allclose(spline(AT), interpolate.CubicSpline(X, Y)(AT), rtol=1e-12)


def test_compiled_and_where_nothing_is_observed():
    f = lambda y: np.sum(interpolate.CubicSpline(X, y)(AT) ** 2)  # noqa: E731
    d = np.cos(np.arange(6.0))
    g = value_and_grad(f, compile="always")(Y)[1]
    np.testing.assert_allclose(g @ d, slope(f, Y, d), rtol=1e-7)
    np.testing.assert_allclose(vjp(f, Y)[1](1.0)[0], g, rtol=1e-12)


def test_what_isnt_known_is_refused():
    with pytest.raises(UnsupportedError, match="roots"):
        grad(lambda y: interpolate.CubicSpline(X, y).roots()[0])(Y)
    with pytest.raises(UnsupportedError, match="get_residual"):
        grad(lambda y: interpolate.UnivariateSpline(X, y, s=0).get_residual())(Y)
    with pytest.raises(TapegradError, match="UnivariateSpline"):
        grad(lambda y: interpolate.UnivariateSpline(X, y)(1.0))(Y)


@pytest.mark.parametrize("kind", ["nearest", "previous", "next", "zero", "linear"])
def test_interp1d_keeps_narrow_floats_and_nan_where_scipy_does(kind):
    y = np.array([1.0, 3.0, 2.0, 5.0], np.float32)
    points, at = np.arange(4.0), np.array([0.4, np.nan, 2.2])

    def f(x, y, at):
        return interpolate.interp1d(x, y, kind=kind)(at)

    for x, there in ((points, at), (points.astype(y.dtype), at)):
        for narrow in (there, there.astype(y.dtype)):
            found, plain = jit(f)(x, y, narrow), f(x, y, narrow)
            assert found.dtype == plain.dtype
            np.testing.assert_allclose(found, plain, rtol=1e-6)


def _grids(x, y, at):
    other, both = np.array([0.0, 1.0, 2.5]), np.stack([at, 0.5 * at], axis=1)
    grid = y[:, None] * np.cos(other)
    return {
        "interp": lambda: np.interp(at, x, y),
        "interp, left, right": lambda: np.interp(at, x, y, left=-1.0, right=2.0),
        "interp1d": lambda: interpolate.interp1d(x, y)(at),
        "linear": lambda: interpolate.RegularGridInterpolator((x, other), grid)(both),
        "nearest": lambda: interpolate.interpn((x, other), grid, both, "nearest"),
        "CubicSpline": lambda: interpolate.CubicSpline(x, y)(at),
    }


@pytest.mark.parametrize("name", _grids(X, Y, X))
def test_points_that_decrease(name):
    """Taken as SciPy and NumPy take them, or refused with their exception; the derivative follows a
    later call that turns the axis around."""
    at = np.array([0.3, 0.9, 1.05, 2.0, 3.5])
    f = lambda y, x: np.sum(_grids(x, y, at)[name]() ** 2)  # noqa: E731
    df = value_and_grad(f, compile="never")
    for x in (X[::-1], X, X[::-1]):
        try:
            expected = f(Y, x)
        except ValueError as error:
            with pytest.raises(ValueError, match="increasing"):
                df(Y, x)
            assert "increasing" in str(error)
            continue
        value, gradient = df(Y, x)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        steps = [slope(lambda y: f(y, x), Y, e) for e in np.eye(6)]  # noqa: B023
        np.testing.assert_allclose(gradient, steps, rtol=1e-5, atol=1e-8)


def test_points_in_no_order_are_refused():
    for x in (X[[0, 2, 1, 3, 4, 5]], X[[0, 1, 1, 3, 4, 5]]):
        with pytest.raises(ValueError, match="strictly ascending or descending"):
            jit(lambda y, x=x: interpolate.interpn((x,), y, AT[1:5]))(Y)
    with pytest.raises(UnsupportedError, match="neither increase nor decrease"):
        jit(lambda y: np.interp(AT, X[[0, 2, 1, 3, 4, 5]], y))(Y)
    with pytest.raises(UnsupportedError, match="breakpoints that decrease"):
        jit(lambda c: interpolate.PPoly(c, X[::-1])(AT))(Y[None, :5])
    later = jit(lambda x: np.interp([0.3, 1.2], x, [1.0, 3.0, 0.0]), compile="never")
    for x in ([0.0, 1.0, 2.0], [2.0, 1.0, 0.0], [0.0, 0.0, 2.0]):
        expected = np.interp([0.3, 1.2], x, [1.0, 3.0, 0.0])
        np.testing.assert_allclose(later(np.array(x)), expected)
    with pytest.raises(UnsupportedError, match="neither increase nor decrease"):
        later(np.array([0.0, 2.0, 1.0]))


OF_KNOTS = {
    **{
        f"make_interp_spline {k}": lambda x, y, k=k: interpolate.make_interp_spline(x, y, k)
        for k in (0, 2, 3, 5)
    },
    **{
        f"interp1d {kind}": lambda x, y, kind=kind: interpolate.interp1d(x, y, kind)
        for kind in ("zero", "slinear", "quadratic", "cubic", "previous")
    },
    "both ends": lambda x, y: interpolate.make_interp_spline(
        x, y, bc_type=([(1, y[0])], [(2, x[0])])
    ),
    "periodic": lambda x, y: interpolate.make_interp_spline(
        x, np.append(y[:-1], y[0]), bc_type="periodic"
    ),
    "UnivariateSpline": lambda x, y: interpolate.UnivariateSpline(x, y, s=0),
    "splrep": lambda x, y: lambda at: interpolate.splev(at, interpolate.splrep(x, y, k=2)),
    "RectBivariateSpline": lambda x, y: (
        lambda at: interpolate.RectBivariateSpline(
            x, y.cumsum() + 9.0 * np.arange(6), np.outer(y, y)
        ).ev(at, at * 5)
    ),
    "grid": lambda x, y: interpolate.RegularGridInterpolator((x,), y, method="pchip"),
}


@pytest.mark.every(8)
@pytest.mark.parametrize("name", OF_KNOTS)
def test_splines_follow_their_points(name):
    """the values, the points, and where they are evaluated"""
    at = np.array([0.1, 1.0, 2.5, 3.5])

    def f(x, y, at):
        return np.sum(np.cos(at) * OF_KNOTS[name](x, y)(at))

    value, slopes = value_and_grad(f, (0, 1, 2), compile="never")(X, Y, at)
    np.testing.assert_allclose(value, f(X, Y, at), rtol=1e-12)
    along = [np.cos(1 + np.arange(x.size)) for x in (X, Y, at)]
    exact = slope(lambda t: f(X + t * along[0], Y + t * along[1], at + t * along[2]), 0.0)
    found = sum(np.sum(d * g) for d, g in zip(along, slopes, strict=True))
    np.testing.assert_allclose(found, exact, rtol=1e-7)


def test_grids_of_splines():
    """SciPy solves for these by iterations, to some six digits: the value is SciPy's, and the
    derivative that of the spline"""
    at = np.array([[0.3, 1.2], [2.2, 3.0]])

    def f(v, at):
        return np.sum(interpolate.RegularGridInterpolator((X, X), v, method="cubic")(at))

    f_at, grid = value_and_grad(f, (0, 1), compile="never"), np.outer(Y, np.arange(6.0) ** 1.5)
    for v in (grid, grid**2):
        value, (by_v, by_at) = f_at(v, at)
        np.testing.assert_allclose(value, f(v, at), rtol=1e-12)
        spline = interpolate.RectBivariateSpline(X, X, v)
        np.testing.assert_allclose(np.sum(by_v * v), np.sum(spline.ev(*at.T)), rtol=1e-10)
        found = slope(lambda t: f(v, at + t * np.cos(at)), 0.0)  # noqa: B023
        np.testing.assert_allclose(np.sum(by_at * np.cos(at)), found, rtol=1e-7)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: interpolate.lagrange(X[:3], np.array([x[0], x[1], 1.0]))(0.4),
        lambda x: interpolate.lagrange(np.array([x[0], x[1], 5.0]), Y[:3])(x[0] * x[1]),
        lambda x: np.sum(interpolate.lagrange(x, x**2 + 1.0)(X)),
    ],
)
def test_the_polynomial_through_some_points(f):
    """values and points, of which some are plain"""
    x, d = np.array([1.5, 2.0]), np.array([0.6, -0.8])
    value, along = value_and_grad(f, compile="never")(x)
    np.testing.assert_allclose(value, f(x), rtol=1e-12)
    np.testing.assert_allclose(along @ d, slope(lambda t: f(x + t * d), 0.0), rtol=1e-6)
