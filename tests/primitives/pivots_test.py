"""Pivots that are no rows: LAPACK would swap other memory."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad.primitives.solving import LU, LUSolve

A = np.eye(3) + 0.1


@pytest.mark.parametrize("pivots", [[-1, 0, 1], [1, 2, 400_000]])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_solution_by_pivots_that_are_no_rows_is_nan(pivots, transposed):
    factors, _ = LU().evaluate(A)
    b = np.ones((1, 3))
    found = LUSolve(transposed).evaluate(A, factors, np.array(pivots, np.int32), b)
    np.testing.assert_array_equal(found, np.full((1, 3), np.nan))
