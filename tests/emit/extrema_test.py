"""The largest and the smallest elements of rows, many of which LLVM compares at once."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import jit


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("length", [3, 17, 70])
def test_extrema_of_rows_are_numpys(length, dtype):
    """With NaN and infinities at each place."""
    rng = np.random.default_rng(length)
    rows = [rng.normal(size=(length, length)) for _ in range(4)]
    for row, special in zip(rows, (np.nan, np.inf, -np.inf), strict=False):
        np.fill_diagonal(row, special)
    x = np.concatenate([*rows, np.full((1, length), -np.inf), np.zeros((1, length))]).astype(dtype)
    f = jit(lambda x: (np.max(x, axis=1), np.min(x, axis=1)), compile="always")
    for found, wanted in zip(f(x), (x.max(axis=1), x.min(axis=1)), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    assert "largest(" in f.lower(x).source and "smallest(" in f.lower(x).source
