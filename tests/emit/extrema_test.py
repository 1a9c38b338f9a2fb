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


ZEROS = {
    "x + 0.0": lambda x: x + 0.0,
    "2.0 * x + 0.0": lambda x: 2.0 * x + 0.0,
    "-(x - x)": lambda x: -(x - x),
    "where": lambda x: np.where(x == 0, 0.0, x),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ZEROS)
@pytest.mark.parametrize("axis", [0, 1, None])
def test_zeros_of_one_sign_keep_it(name, axis):
    """Only of zeros of both signs is it open which one is found: the order of elements is free,
    and not how each of them is computed."""
    x = np.zeros((6, 8))
    x[::2, ::2] = x[1] = -0.0
    for extremum in (np.max, np.min):

        def f(x, extremum=extremum):
            return extremum(ZEROS[name](x), axis=axis)

        found = jit(f, compile="always")(x)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(f(x)))
