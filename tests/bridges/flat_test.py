"""Functions of leaves, as other libraries' programs call them, without these libraries."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import ShapeDtype
from tapegrad.errors import ArgumentError
from tapegrad.flat import Flat

FOUR = ShapeDtype((4,), np.dtype(float))


def test_results_whose_length_values_decide_are_refused_where_none_is_asked_for():
    """A library that knows a result to be empty calls nothing -> what the call would have given is
    lost, so it is an error before."""
    with pytest.raises(ArgumentError, match=r"empty arrays for arrays of ones.*np\.where"):
        Flat(lambda x: x[x > 2], "never").result([FOUR])
    (longer,) = Flat(lambda x: x[x > 0], "never").result([FOUR]).types
    assert longer.shape == (4,)  # a call that gives another shape says so
    (empty,) = Flat(lambda x: x[:0], "never").result([FOUR]).types
    assert empty.shape == (0,)  # whatever the values are
