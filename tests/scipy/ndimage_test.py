"""What the table of calls doesn't hold of scipy.ndimage."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy import ndimage

from tapegrad import grad, jit
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
