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


@pytest.mark.every(2)
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


def of_whole_range(a: Any) -> Any:
    u = np.linalg.svd(a, full_matrices=False)[0]
    return np.sum((u @ u.T) * np.arange(25.0).reshape(5, 5))


def of_values(a: Any) -> Any:
    return np.sum(np.linalg.eigvalsh(a.T @ a) ** 5)


@pytest.mark.every(8)
@pytest.mark.parametrize("gap", [1e-5, 1e-6, 1e-9, 1e-13, 1e-14])
@pytest.mark.parametrize("f", [of_whole_range, of_values], ids=["range", "values"])
def test_derivatives_that_rounding_leaves(f: Any, gap: float) -> None:
    """Derivatives to the third order are right, or NaN: what is rounded is divided by the gap once
    more by each."""
    rng = np.random.default_rng(0)
    u, v = np.linalg.qr(rng.normal(size=(5, 3)))[0], np.linalg.qr(rng.normal(size=(3, 3)))[0]
    t = rng.normal(size=(5, 3))

    def derivatives(gap: float) -> list[float]:
        a = (u * np.array([1.0 + gap, 1.0, 0.5])) @ v

        def along(s: Any) -> Any:
            return f(a + s * t)

        slope: Any = along
        found = []
        for _ in range(3):
            slope = grad(slope, compile="never")
            found.append(float(slope(0.0)))
        return found

    for k, (found, far) in enumerate(zip(derivatives(gap), derivatives(1e-3), strict=True)):
        assert (np.isnan(found) and k > 0) or abs(found - far) <= 0.05 * abs(far)


@pytest.mark.parametrize("gap", [0.9e-8, 1.2e-8, 1.6e-8])
@pytest.mark.parametrize("compile", ["never", "always"])
def test_values_that_are_close_in_a_row(gap: float, compile: Any) -> None:
    """Of three values each may be close to the next, and the outer ones further apart: the second
    derivative of a sum over all is right there, too."""
    rng = np.random.default_rng(3)
    turn, t = np.linalg.qr(rng.normal(size=(4, 4)))[0], rng.normal(size=(4, 4))
    t = t + t.T
    a = (turn * np.array([1.0, 1.0 + gap, 1.0 + 2 * gap, 0.5])) @ turn.T
    sums = [np.linalg.eigvalsh, lambda x: np.linalg.svd(x, compute_uv=False)]
    for values in sums:
        slope = grad(lambda s, of=values: np.sum(of(a + s * t) ** 2), compile=compile)
        np.testing.assert_allclose(grad(slope, compile=compile)(0.0), 2 * np.sum(t * t), rtol=1e-7)


@pytest.mark.every(2)
@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-8, 1e-10, 1e-12, 1e-14, 1e-16, 0.0])
def test_eigenvectors_of_any_matrix_that_are_almost_equal(gap):
    """A^3 by eig is right, or not a number, in first and second order; it is known at wide gaps."""
    rng = np.random.default_rng(3)
    q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    weights, z = rng.normal(size=(2, 3, 3))
    a = q @ np.diag([1.0, 1.0 + gap, 2.0]) @ q.T

    def by_vectors(a):
        w, v = np.linalg.eig(a)
        return np.sum(weights * np.real((v * w**3) @ np.linalg.inv(v)))

    def along(f):
        return lambda a: np.sum(grad(f)(a) * z)

    def cube(a):
        return np.sum(weights * (a @ a @ a))

    for order, (f, plain) in enumerate(((by_vectors, cube), (along(by_vectors), along(cube)))):
        found, expected = along(f)(a), along(plain)(a)
        assert np.isfinite(found) or gap < (1e-11, 1e-5)[order]
        if np.isfinite(found):
            np.testing.assert_allclose(found, expected, rtol=1e-4)
