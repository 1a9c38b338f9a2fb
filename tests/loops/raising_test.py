"""Branches in loops whose sides raise for values that don't take them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tapegrad import value_and_grad


def of_some(x):
    total = 0.0
    for v in x:
        if v != 0.0:
            total += 1.0 / v
        else:
            total += 2.0
    for v in x:
        if v > 0.5:
            total += math.log(v - 0.4)
        else:
            total -= v
    return total


def test_a_side_is_recorded_for_values_by_which_it_would_raise():
    """And raises where it is taken with such: a loop is one trace, whichever its rounds take."""
    df = value_and_grad(of_some, compile="never")
    for seed in range(6):
        x = np.random.default_rng(seed).uniform(0.0, 2.0, 40)
        x[:6] = x[x < 0.45] = 0.0
        logarithms = np.where(x > 0.5, 1 / (x - 0.4), -1.0)
        expected = logarithms - np.divide(1.0, x**2, where=x > 0, out=np.zeros(40))
        value, slopes = df(x.tolist())
        assert value == pytest.approx(of_some(x.tolist()), rel=1e-12)
        np.testing.assert_allclose(slopes, expected, rtol=1e-10)
    assert df.cache_info().traces == 1


def test_a_side_raises_where_it_is_taken():
    def f(x):
        return sum(math.log(v - 0.8) if v > 0.5 else v for v in x)

    df = value_and_grad(f, compile="never")
    for low, high in ((0.3, 1.0), (0.4, 2.0), (0.3, 0.7), (0.2, 1.5)):
        x = np.array([low] * 10 + [high] * 10)
        if high < 0.8:
            with pytest.raises(ValueError, match="math domain error"):
                df(x)
        else:
            assert df(x)[0] == pytest.approx(f(x), rel=1e-12)
