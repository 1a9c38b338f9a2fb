"""What numba has compiled, called with plain arguments: each call calls it anew."""

from __future__ import annotations

import cProfile

import numba
import numpy as np
import pytest

from tapegrad import grad, value_and_grad

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


@numba.njit
def _utility(c, s):
    return (c ** (1 - s) - 1) / (1 - s) if c > 0 else -1e7


@numba.njit
def _updated(u, c, wages, values, out):
    for k, w in enumerate(wages):
        out[k] = _utility(w, 2.0) + 0.9 * (0.8 * values[k] + 0.2 * u)
    return _utility(c, 2.0) + 0.5 * u + 0.4 * np.sum(np.maximum(u, values)) / len(wages)


def test_a_loop_that_calls_a_function_of_plain_numbers_is_one():
    """The Python of that is part of the other function's: it isn't asked in each round."""
    wages = np.linspace(1.0, 2.0, 30)

    def f(c):
        u, values, out, change, k = 1.0, np.ones(30), np.empty(30), 1.0, 0
        while change > 1e-9 and k < 20:
            before, u = u, _updated(u, c, wages, values, out)
            change = max(np.max(np.abs(out - values)), np.abs(u - before))
            values[:] = out
            k += 1
        return u + np.sum(values)

    f(1.5)  # numba compiles
    g = value_and_grad(f, compile="always")
    for c in (1.5, 1.2, 1.5, 1.4):
        value, slope = g(c)
        np.testing.assert_allclose(value, f(c))
        np.testing.assert_allclose(slope, (f(c + 1e-6) - f(c - 1e-6)) / 2e-6, rtol=1e-6)
    assert g.cache_info().traces == 1
    profile = cProfile.Profile()
    profile.runcall(g, 1.4)
    # It is also played here, for 20 rounds. The questions of all rounds were 136,000 calls.
    assert sum(entry.callcount for entry in profile.getstats()) < 10_000
