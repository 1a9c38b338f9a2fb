"""Functions of leaves, as other libraries' programs call them, without these libraries."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tapegrad import ShapeDtype
from tapegrad.errors import ArgumentError
from tapegrad.flat import Flat, Flattened, _here

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


def weighed(tree, x):
    return tree["w"] * np.sum(x**2)


def test_functions_are_pickled_by_what_made_them():
    """A function of a module is passed to another library -> what that keeps of it is pickled by
    pickle itself, with its derivatives, and made anew in another process."""
    flat, leaves = Flattened(weighed, "never").of(({"w": 2.0}, np.arange(3.0)), {})
    kinds = [flat, flat.with_gradients([1]), flat.pulled(2, [1]), flat.rows([None, 0])]
    held = pickle.dumps(kinds)
    assert all(a is b for a, b in zip(pickle.loads(held), kinds, strict=True))
    for each in kinds:
        del _here[each.name]  # as in another process
    plain, both, pulled, rows = pickle.loads(held)
    assert plain is not flat and plain.plain(*leaves) == 10.0
    value, slope = both.plain(*leaves)
    assert value == 10.0
    np.testing.assert_array_equal(slope, 4 * leaves[1])
    np.testing.assert_array_equal(pulled.plain(*leaves, np.float64(1.0))[0], 4 * leaves[1])
    np.testing.assert_array_equal(rows.plain(2.0, np.stack([leaves[1]] * 2)), [10.0, 10.0])
