"""Eigenvalues and singular values that are almost equal: what is made of their vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapegrad import grad


def of_logarithm(a: Any) -> Any:
    w, v = np.linalg.eigh((a + np.conj(a.T)) / 2)
    return np.sum(np.real((v * np.log(w)) @ np.conj(v.T)) * np.arange(16.0).reshape(4, 4))


def of_projection(a: Any) -> Any:
    v = np.linalg.eigh((a + np.conj(a.T)) / 2)[1][:, :2]
    return np.sum(np.sin(np.real(v @ np.conj(v.T))) * np.arange(16.0).reshape(4, 4))


def of_range(a: Any) -> Any:
    u = np.linalg.svd(a[:, :2], full_matrices=False)[0]
    return np.sum(np.sin(np.real(u @ np.conj(u.T))) * np.arange(16.0).reshape(4, 4))


def of_vector(a: Any) -> Any:
    return np.linalg.eigh((a + a.T) / 2)[1][0, 0] ** 2


@pytest.mark.parametrize("is_complex", [False, True])
def test_values_that_are_almost_equal(is_complex: bool) -> None:
    """Second derivatives of what doesn't depend on the rotation of vectors are as right as further
    away if the values aren't read, and NaN if they are: never the rounding over a gap's square."""
    rng = np.random.default_rng(3)
    turn = rng.normal(size=(4, 4)) + 1j * is_complex * rng.normal(size=(4, 4))
    turn = np.linalg.qr(turn if is_complex else turn.real)[0]
    t = rng.normal(size=(4, 4))

    def second(f: Any, gap: float, compile: Any = "never") -> Any:
        a = (turn * np.array([1.5, 1.5 + gap, 2.0, 3.0])) @ np.conj(turn.T)
        slope = grad(lambda s: f(a + s * t), compile=compile)
        return grad(slope, compile=compile)(0.0)

    def of_columns(gap: float) -> Any:
        a = np.eye(4) + gap * turn
        return grad(grad(lambda s: of_range(a + s * t), compile="never"), compile="never")(0.0)

    for gap in (1e-7, 1e-9, 1e-11):
        assert np.isnan(second(of_logarithm, gap))
        for f in (lambda gap: second(of_projection, gap), of_columns):
            np.testing.assert_allclose(f(gap), f(1e-5), rtol=1e-3)
    assert np.isnan(second(of_logarithm, 1e-9, "always"))
    if not is_complex:  # of one of the vectors it is as large as it is
        close = second(of_vector, 1e-8) * 1e-16
        np.testing.assert_allclose(close, second(of_vector, 1e-4) * 1e-8, rtol=1e-2)
