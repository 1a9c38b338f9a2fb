"""Trees of points, and interpolation between points that lie anywhere, beyond what the table of
names holds: later calls with other neighbours, points that are changed, lists that are guarded."""

import numpy as np
import pytest
import scipy.spatial
from scipy import interpolate

from tapegrad import grad, value_and_grad
from tapegrad.errors import UnsupportedError

RNG = np.random.default_rng(3)
POINTS, VALUES = RNG.random((30, 2)), RNG.random(30)
X = 0.3 + 0.4 * RNG.random((5, 2))


def differences(f, x, h=1e-6):
    out = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[at] = h
        out[at] = (f(x + e) - f(x - e)) / (2 * h)
    return out


def held(f, *calls, traces=1, compile="never"):
    g = value_and_grad(f, compile=compile)
    for x in calls:
        value, slope = g(x)
        assert value == pytest.approx(f(x), rel=1e-12)
        np.testing.assert_allclose(slope, differences(f, x), rtol=1e-5, atol=1e-7)
    assert g.cache_info().traces == traces


@pytest.mark.parametrize("kind", [scipy.spatial.KDTree, scipy.spatial.cKDTree])
@pytest.mark.parametrize("compile", ["never", "always"])
def test_numbers_of_near_points_are_found_anew(kind, compile):
    """other neighbours in later calls aren't another trace"""
    tree = kind(POINTS)
    held(
        lambda x: np.sum(tree.query(x, k=3)[0]), X, X[[4, 3, 2, 1, 0]] * 1.3, 1 - X, compile=compile
    )
    held(lambda p: np.sum(kind(p).query(X, 2)[0] ** 3), POINTS, POINTS**2, compile=compile)


def test_no_point_is_near_enough():
    tree = scipy.spatial.KDTree(POINTS)
    value = lambda x: tree.query(x, k=4, distance_upper_bound=0.15)[0]  # noqa: E731
    assert np.any(np.isinf(value(X)))
    held(lambda x: np.sum(np.minimum(value(x), 1.0)), X, X[[4, 3, 2, 1, 0]] * 1.1)


def test_pairs_and_lists_of_near_points_are_guarded():
    """another list is another trace, and one that was there before isn't"""

    def energy(x):
        pairs = scipy.spatial.cKDTree(x).query_pairs(0.2)
        balls = scipy.spatial.KDTree(x).query_ball_point(x[0], 0.3)
        return sum(np.sum((x[i] - x[j]) ** 2) for i, j in sorted(pairs)) + np.sum(x[balls] ** 3)

    held(energy, POINTS, 0.9 * POINTS, POINTS, 0.9 * POINTS, traces=2)


def test_points_that_are_changed():
    points = POINTS.copy()
    f = lambda x: np.sum(scipy.spatial.KDTree(points).query(x)[0] ** 2)  # noqa: E731
    h = lambda v: np.sum(interpolate.griddata(points, v, X) ** 2)  # noqa: E731
    first, second = value_and_grad(f, compile="never"), value_and_grad(h, compile="never")
    for shift in (0.0, 0.03):
        points += shift * np.cos(np.arange(60.0)).reshape(30, 2)
        assert first(X)[0] == pytest.approx(f(X), rel=1e-12)
        assert second(VALUES)[0] == pytest.approx(h(VALUES), rel=1e-12)
        np.testing.assert_allclose(second(VALUES)[1], differences(h, VALUES), atol=1e-8)


@pytest.mark.every(4)
@pytest.mark.parametrize("method", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("compile", ["never", "always"])
def test_scattered_points(method, compile):
    held(lambda v: np.sum(interpolate.griddata(POINTS, v, X, method) ** 2), VALUES, compile=compile)
    f = {
        "nearest": lambda: interpolate.NearestNDInterpolator(POINTS, VALUES),
        "linear": lambda: interpolate.LinearNDInterpolator(POINTS, VALUES, 0.5, rescale=True),
        "cubic": lambda: interpolate.CloughTocher2DInterpolator(POINTS, VALUES, 0.5),
    }[method]()
    outside = np.concatenate([X, [[3.0, 3.0]]])
    held(lambda x: np.sum(f(x) * x[:, 0]), outside, 0.98 * outside, compile=compile)


def test_a_second_derivative_of_a_smooth_surface():
    f = interpolate.CloughTocher2DInterpolator(POINTS, VALUES)
    slope = grad(lambda x: np.sum(f(x) ** 2))
    held(lambda x: np.sum(slope(x) ** 2), X)


def test_what_is_refused_says_what_to_use():
    tree = scipy.spatial.KDTree(POINTS)
    for f, match in (
        (lambda x: scipy.spatial.ConvexHull(x).volume, "ConvexHull.*numbers of the points"),
        (lambda x: tree.sparse_distance_matrix(scipy.spatial.KDTree(x), 0.1).sum(), "query_pairs"),
        (
            lambda x: interpolate.CloughTocher2DInterpolator(x, VALUES)(X).sum(),
            "Use LinearNDInterpolator",
        ),
    ):
        with pytest.raises(UnsupportedError, match=match):
            grad(f)(POINTS)
