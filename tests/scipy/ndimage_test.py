"""What the table of calls doesn't hold of scipy.ndimage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from tapegrad import grad
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
