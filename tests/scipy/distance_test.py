"""scipy.spatial.distance beyond what the table of names holds: distances of 0, what is captured,
callables, errors, compiled loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.spatial
import scipy.stats
from scipy.spatial import distance

from tapegrad import grad, jit, value_and_grad, vjp
from tapegrad.errors import UnsupportedError

X = np.cos(1.3 * np.arange(12.0)).reshape(4, 3)
Y = np.sin(1.7 * np.arange(6.0)).reshape(2, 3)


@pytest.mark.parametrize(
    "metric",
    [
        "euclidean",
        "sqeuclidean",
        "cityblock",
        "minkowski",
        "chebyshev",
        "cosine",
        "correlation",
        "canberra",
    ],
)
def test_a_distance_of_zero_has_no_slope(metric: str) -> None:
    df = grad(lambda x: np.sum(distance.cdist(x, x, metric)), compile="never")
    same = df(np.stack([X[0], X[0]]))
    np.testing.assert_allclose(same, 0, atol=1e-12)
    assert np.all(np.isfinite(df(X)))


def test_a_minkowski_distance_of_zero_by_any_order() -> None:
    for p in (1.5, 2, 3):
        df = grad(lambda x, p=p: distance.minkowski(x, X[0], p, w=np.ones(3)), compile="never")
        np.testing.assert_array_equal(df(X[0]), 0)


def test_compiled_to_one_loop_as_it_is_played() -> None:
    def f(x, y, scale):
        return np.sum(np.exp(-distance.cdist(x, y, "sqeuclidean") / scale))

    args = X, Y, 0.7
    compiled = value_and_grad(f, (0, 1, 2), compile="always")
    played = value_and_grad(f, (0, 1, 2), compile="never")(*args)
    value, found = compiled(*args)
    assert value == pytest.approx(f(*args))
    for one, other in zip(found, played[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_weights_that_change_are_followed() -> None:
    w = np.array([1.0, 2.0, 3.0])
    df = value_and_grad(lambda x: distance.cosine(x, Y[0], w), compile="never")
    for _ in range(3):
        value, found = df(X[0])
        assert value == pytest.approx(distance.cosine(X[0], Y[0], w), rel=1e-12)
        e = 1e-6 * Y[1]
        slope = distance.cosine(X[0] + e, Y[0], w) - distance.cosine(X[0] - e, Y[0], w)
        assert 2 * found @ e == pytest.approx(slope, rel=1e-6)
        w *= [1.0, 0.5, 2.0]


def test_a_metric_that_has_traced_values_at_hand() -> None:
    def f(s):
        return np.sum(distance.pdist(X, lambda u, v: s * np.sum(abs(u - v) ** s)))

    value, found = value_and_grad(f, compile="never")(1.5)
    assert value == pytest.approx(f(1.5))
    assert found == pytest.approx((f(1.5 + 1e-6) - f(1.5 - 1e-6)) / 2e-6, rel=1e-6)


def test_values_and_dtypes_are_scipys() -> None:
    ties = np.array([[0, 1, 2], [0, 0, 0], [3, 1, 2]])
    with np.errstate(all="ignore"):
        for f in (
            lambda x: distance.cdist(x, x, "braycurtis"),
            lambda x: distance.cdist(x, x, "hamming"),
            lambda x: distance.cdist(x.astype(np.float32), x, "canberra"),
            lambda x: distance.pdist(x[:1]),
            lambda x: distance.cdist(x[:0], x),
            lambda x: distance.squareform(distance.pdist(x, "cb")),
            lambda x: distance.cosine(x[0], x[1]),
        ):
            expected, found = f(ties), jit(f, compile="never")(ties)
            np.testing.assert_allclose(found, expected, rtol=1e-6)
            assert np.asarray(found).dtype == np.asarray(expected).dtype


def test_errors() -> None:
    for f in (
        lambda x: distance.cdist(x, x[0]),
        lambda x: distance.cdist(x, x[:, :2]),
        lambda x: distance.cdist(x, x, "euclidean", p=3),
        lambda x: distance.minkowski(x[0], x[1], -1),
        lambda x: distance.euclidean(x[0], x[1], -np.ones(3)),
        lambda x: distance.euclidean(x, x),
        lambda x: distance.squareform(x),
        lambda x: distance.squareform(x[0, :2]),
        lambda x: distance.pdist(x, "mahalanobis")[:0] + distance.pdist(x[:2], "mahalanobis"),
    ):
        with pytest.raises(Exception) as scipys:
            f(X)
        with pytest.raises(scipys.type) as found:
            grad(lambda x, f=f: np.sum(f(x)), compile="never")(X)
        assert str(found.value) == str(scipys.value)
    with pytest.raises(UnsupportedError, match="jaccard"):
        grad(lambda x: np.sum(distance.cdist(x, x, "jaccard")))(X)


def test_where_a_run_isnt_observed() -> None:
    value, pullback = vjp(lambda x: distance.pdist(x, distance.cityblock), X)
    np.testing.assert_allclose(value, distance.pdist(X, "cityblock"))
    assert pullback(np.ones(6))[0].shape == X.shape


def test_jensenshannon_broadcasts_as_scipy_does():
    """each operand is a distribution along its own axis, whatever the other one's shape"""
    rng = np.random.default_rng(0)
    for shape, other in (((3, 3), (3,)), ((3,), (3, 3)), ((2, 3), (3,)), ((3, 1), (1, 3))):
        p, q = rng.random(shape), rng.random(other)
        for axis in (0, -1):
            found = jit(lambda p, q, axis=axis: distance.jensenshannon(p, q, axis=axis))(p, q)
            right = distance.jensenshannon(p, q, axis=axis)
            np.testing.assert_allclose(found, right, rtol=1e-13)


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1.0, 1e200, 1e307])
def test_distances_of_numbers_of_any_size(size):
    """squares that overflow or vanish are SciPy's own business, and slopes don't depend on them"""
    x, w = np.array([1.0, -2.0, 3.0]) * size, np.array([0.3, 0.4, 0.5])
    metrics = [
        lambda x: distance.euclidean(x, w),
        lambda x: distance.euclidean(x, w, w),
        lambda x: distance.minkowski(x, w, p=2),
        lambda x: distance.seuclidean(x, w, w),
        lambda x: distance.cosine(x, w),
        lambda x: distance.correlation(x, w),
        lambda x: scipy.stats.pearsonr(x, w)[0],
    ]
    with np.errstate(all="ignore"):
        for f in metrics:
            found, right = jit(f, compile="never")(x), f(x)
            np.testing.assert_allclose(found, right, rtol=1e-12)
        slopes = grad(metrics[0], compile="never")(x)
    apart = (x - w) / np.max(np.abs(x - w))
    np.testing.assert_allclose(slopes, apart / np.linalg.norm(apart))
