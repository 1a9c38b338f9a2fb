"""What the table of calls doesn't hold of scipy.ndimage."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy import ndimage

from tapegrad import grad, jit, value_and_grad
from tapegrad.errors import ConversionError

IMAGE = np.random.default_rng(0).normal(size=(5, 6))
FILTERS = {
    "convolve": lambda x, o: ndimage.convolve(x, np.ones((2, 2)), output=o),
    "by place": lambda x, o: ndimage.gaussian_filter(x, 1.0, 0, o),
    "maximum": lambda x, o: ndimage.maximum_filter(x, 3, output=o),
    "map_coordinates": lambda x, o: ndimage.map_coordinates(x, 0.9 * np.indices((5, 6)), o),
    "vectorized": lambda x, o: ndimage.vectorized_filter(x, np.sum, size=2, output=o),
}


@pytest.mark.parametrize("name", FILTERS)
def test_an_output_is_filled_where_the_function_made_it_and_else_refused(name):
    outside = np.zeros((5, 6))

    def into(out, x):
        FILTERS[name](x, out)
        return np.sum(out**2)

    ours = grad(lambda x: into(np.zeros((5, 6)), x))(IMAGE)
    h = 1e-6 * np.cos(np.arange(30.0)).reshape(5, 6)
    plain = into(np.zeros((5, 6)), IMAGE + h) - into(np.zeros((5, 6)), IMAGE - h)
    np.testing.assert_allclose(np.sum(ours * h), plain / 2, rtol=1e-6)
    with pytest.raises(ConversionError, match="written into a plain"):
        grad(lambda x: into(outside, x) + np.sum(x))(IMAGE)


def test_weights_of_0_meet_nan_as_scipys_do():
    x = np.where(np.arange(6) == 2, np.nan, IMAGE)
    for f in (ndimage.sobel, ndimage.prewitt, lambda x: ndimage.correlate1d(x, [1.0, 0.0, 0.0])):
        seen = jit(lambda x, f=f: f(x))(x)
        np.testing.assert_array_equal(np.isnan(seen), np.isnan(f(x)))


def test_points_on_an_edge_are_inside_or_outside_as_they_are_for_scipy():
    """They are added up in the same order."""
    matrix = np.array([[0.9, 0.2], [-0.1, 1.1]])
    for mode in ("constant", "wrap"):
        f = functools.partial(ndimage.affine_transform, matrix=matrix, offset=0.4, mode=mode)
        x = np.random.default_rng(0).normal(size=(6, 7))
        np.testing.assert_allclose(jit(lambda x, f=f: f(x))(x), f(x), rtol=1e-12, atol=1e-14)


def test_images_without_elements():
    for f in (ndimage.sobel, ndimage.gaussian_laplace, ndimage.maximum_filter):
        assert jit(lambda x, f=f: f(x, 1))(IMAGE[:0]).shape == (0, 6)


SPECIAL = {
    "nan": {1: np.nan},
    "two nans": {0: np.nan, 4: np.nan},
    "inf": {1: np.inf},
    "opposite": {1: np.inf, 2: -np.inf},
    "zeros": {0: 0.0, 1: -0.0, 2: 0.0, 3: -0.0},
    "numbers": {},
}
OF_ANY = {
    "median": lambda x: ndimage.median_filter(x, 3),
    "of four": lambda x: ndimage.median_filter(x, 4, mode="constant"),
    "in a footprint": lambda x: ndimage.rank_filter(x, 2, footprint=[1, 0, 1, 1]),
    "percentile": lambda x: ndimage.percentile_filter(x, 30, 5, mode="wrap"),
    "maximum": lambda x: ndimage.maximum_filter(x, 4, mode="nearest"),
    "minimum": lambda x: ndimage.minimum_filter(x, footprint=[1, 1, 0]),
    "dilation": lambda x: ndimage.grey_dilation(x, structure=[0.0, 2.0, 1.0]),
    "opening": lambda x: ndimage.grey_opening(x, 3),
    "mean": lambda x: ndimage.uniform_filter1d(x, 3),
    "mean of many": lambda x: ndimage.uniform_filter1d(x, 70),
    "spline": ndimage.spline_filter1d,
    "sparse weights": lambda x: ndimage.correlate(x, np.arange(70) % 9 == 0.0, mode="constant"),
    "at an edge": lambda x: ndimage.map_coordinates(x, [[-2, 0.3, 9]], order=1, mode="nearest"),
}


@pytest.mark.every(4)
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", OF_ANY)
def test_filters_of_nan_infinity_and_zeros_are_scipys(name, kind):
    f, x = OF_ANY[name], np.sin(1.7 * np.arange(9.0))
    for place, value in SPECIAL[kind].items():
        x[place] = value
    seen, wanted = jit(lambda x: f(x), compile="never")(x), f(x)
    np.testing.assert_allclose(seen, wanted, rtol=1e-12, atol=1e-14)
    chosen = name not in ("mean", "mean of many", "spline", "sparse weights", "at an edge")
    if chosen:
        np.testing.assert_array_equal(
            np.signbit(seen)[wanted == 0], np.signbit(wanted[wanted == 0])
        )


def test_what_a_median_beside_nan_takes_has_the_slope():
    x = np.array([1.0, np.nan, 2.0, 5.0, 3.0])
    taken = ndimage.median_filter(x, 3, mode="constant")
    slopes = grad(lambda x: np.nansum(ndimage.median_filter(x, 3, mode="constant")))(x)
    for k in (0, 2, 3, 4):
        assert slopes[k] == np.sum(taken == x[k])


@pytest.mark.parametrize("name", [*OF_ANY, "shift"])
def test_filters_of_integers_round_as_scipys(name):
    f = {**OF_ANY, "shift": lambda x: ndimage.shift(x, 0.3)}[name]
    x = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5])
    np.testing.assert_array_equal(jit(lambda x: f(x))(x), f(x))


@pytest.mark.parametrize("compile", ["always", "never"])
def test_functions_of_windows_are_the_programs_own(compile):
    def f(x, a):
        def spread(window):
            return a * (window.max() - window.min())

        def summed(line, out):
            for i in range(len(out)):
                out[i] = line[i] + line[i + 1] * line[i + 2]

        wide = ndimage.generic_filter(x, spread, size=(2, 3), mode="nearest")
        return np.sum(wide**2) + np.sum(ndimage.generic_filter1d(x, summed, 3))

    g = value_and_grad(f, argnums=(0, 1), compile=compile)
    for a in (0.7, 1.3):
        value, (dx, da) = g(IMAGE, a)
        assert value == pytest.approx(f(IMAGE, a))
        h = 1e-6 * np.cos(np.arange(30.0)).reshape(5, 6)
        plain = (f(IMAGE + h, a) - f(IMAGE - h, a)) / 2
        np.testing.assert_allclose(np.sum(dx * h), plain, rtol=1e-6)
        assert da == pytest.approx((f(IMAGE, a + 1e-6) - f(IMAGE, a - 1e-6)) / 2e-6)
    assert g.cache_info().traces == 1
    counts = np.arange(12).reshape(3, 4)
    windows = jit(lambda k: ndimage.generic_filter(k, np.mean, 2))(counts)
    np.testing.assert_array_equal(windows, ndimage.generic_filter(counts, np.mean, 2))
    assert windows.dtype == counts.dtype
