"""What numba has compiled, called with plain arguments: each call calls it anew."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from tapegrad import grad

X = np.array([1.0, 2.0])
RATE = 2.0


@numba.njit
def total(a):
    return a[0] * RATE


@pytest.mark.parametrize("compile", ["never", "always"])
def test_a_compiled_function_of_plain_arguments(compile):
    """It is traced once, and again when an array has other contents."""
    a = np.array([4.0])
    dloss = grad(lambda x: np.sum(x**2) * total(a), compile=compile)
    for _ in range(4):
        np.testing.assert_allclose(dloss(X), 2 * X * total(a))
    assert dloss.cache_info().traces == 1
    a[0] = 5.0
    np.testing.assert_allclose(dloss(X), 2 * X * total(a))


def test_a_function_that_is_compiled_inside(monkeypatch):
    """What its names mean is noticed, as if the function were compiled at each call."""
    scale = [3.0]

    def loss(x):
        c = scale[0]

        @numba.njit
        def plain(k):
            return k * c + RATE

        @numba.njit
        def traced(v):
            return v * v

        return traced(x[0]) * plain(2.0) + x[1]

    dloss = grad(loss, compile="never")
    for _ in range(3):
        np.testing.assert_allclose(dloss(X), [2 * X[0] * (2 * scale[0] + RATE), 1.0])
    assert dloss.cache_info().traces == 1
    scale[0] = 4.0
    np.testing.assert_allclose(dloss(X), [2 * X[0] * (2 * scale[0] + RATE), 1.0])
    monkeypatch.setitem(globals(), "RATE", 7.0)
    np.testing.assert_allclose(dloss(X), [2 * X[0] * (2 * scale[0] + RATE), 1.0])
