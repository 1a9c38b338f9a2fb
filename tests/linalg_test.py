"""tapegrad.linalg: SciPy's functions of matrices, traced and for plain arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from tests.frontend.check import check_gradient, name_of, normal

from tapegrad import grad, jit, linalg
from tapegrad.errors import ConversionError, UnsupportedError

A = normal(3, 3) + 3 * np.eye(3)
PD = A @ A.T
B = normal(3, 2)

CASES: list[tuple[Callable[..., Any], Any, Any]] = [
    (lambda m, a, b: m.cholesky(a), PD, None),
    (lambda m, a, b: m.cholesky(a, lower=True), PD, None),
    (lambda m, a, b: m.cho_solve(m.cho_factor(a), b), PD, B),
    (lambda m, a, b: m.cho_solve(m.cho_factor(a, True), b[:, 0]), PD, B),
    (lambda m, a, b: m.cho_solve((np.tril(a), True), b), A, B),
    (lambda m, a, b: m.solve_triangular(a, b), A, B),
    (lambda m, a, b: m.solve_triangular(a, b, lower=True), A, B[:, 0]),
    (lambda m, a, b: m.solve_triangular(a, b, 1), A, B),
    (lambda m, a, b: m.solve_triangular(a, b, "T", True, True), A, B),
    (lambda m, a, b: m.solve_triangular(a, b, "N", unit_diagonal=True), A, B[:, 0]),
    (lambda m, a, b: m.solve(a, b), A, B),
    (lambda m, a, b: m.solve(a, b, transposed=True), A, B[:, 0]),
    (lambda m, a, b: m.solve(a, b, assume_a="sym"), A, B),
    (lambda m, a, b: m.solve(a, b, assume_a="her", lower=True), A, B),
    (lambda m, a, b: m.solve(a, b, assume_a="pos"), PD, B),
    (lambda m, a, b: m.solve(a, b, assume_a="lower triangular"), np.tril(A), B),
    (lambda m, a, b: m.expm(a / 3), A, None),
    *[
        (lambda m, a, b, lower=lower, upper=upper: m.solve_banded((lower, upper), a, b), bands, b)
        for lower, upper in ((1, 1), (2, 1), (0, 2), (2, 0))
        for bands in [
            normal(lower + upper + 1, 5) + 3 * (np.arange(lower + upper + 1) == upper)[:, None]
        ]
        for b in (normal(5, 2), normal(5))
    ],
]


@pytest.mark.parametrize(("f", "a", "b"), CASES, ids=[name_of(f) for f, *_ in CASES])
def test_traced_it_is_scipys(f: Any, a: Any, b: Any) -> None:
    expected = f(scipy.linalg, a, b)
    np.testing.assert_array_equal(f(linalg, a, b), expected)
    args = (a,) if b is None else (a, b)

    def traced(a, b=None):
        return f(linalg, a, b)

    np.testing.assert_allclose(jit(traced, compile="never")(*args), expected, rtol=1e-12)
    check_gradient(traced, *args)


def test_batches_of_matrices() -> None:
    a, b = np.stack([PD, 2 * PD]), np.stack([B, B])
    for f in (linalg.solve, linalg.solve_triangular):
        found = jit(f, compile="never")(a, b)
        np.testing.assert_allclose(found, [f(x, y) for x, y in zip(a, b, strict=True)], rtol=1e-12)
    np.testing.assert_allclose(
        jit(linalg.expm, compile="never")(a / 9), [linalg.expm(x / 9) for x in a], rtol=1e-12
    )


def test_a_gaussian_process_by_triangles_is_compiled() -> None:
    x, y = np.linspace(0, 4, 50), normal(50)

    def loss(length, noise):
        K = np.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + noise * np.eye(50)
        factor, lower = linalg.cho_factor(K, lower=True)
        alpha = linalg.cho_solve((factor, lower), y)
        return 0.5 * y @ alpha + np.sum(np.log(np.diagonal(factor)))

    compiled = grad(loss, (0, 1), compile="always")
    found = compiled(0.8, 0.3)
    for k in (0, 1):
        up, down = (loss(*(np.array([0.8, 0.3]) + s * np.eye(2)[k])) for s in (1e-6, -1e-6))
        assert found[k] == pytest.approx((up - down) / 2e-6, rel=1e-6)
    np.testing.assert_allclose(found, grad(loss, (0, 1), compile="never")(0.8, 0.3), rtol=1e-9)
    assert "solve_lower" in compiled.tapes[0].source


@pytest.mark.parametrize("how", ["never", "always"])
def test_failures_at_any_call(how: Any) -> None:
    for f, bad in (
        (lambda a: linalg.cholesky(a), -np.eye(3)),
        (lambda a: linalg.solve_triangular(a, np.ones(3)), np.diag([1.0, 0.0, 1.0])),
        (lambda a: linalg.solve(a, np.ones(3)), np.ones((3, 3))),
        (lambda a: linalg.solve_banded((1, 1), a, np.ones(3)), np.zeros((3, 3))),
    ):
        df = grad(lambda a, f=f: np.sum(f(a)), compile=how)
        assert np.all(np.isfinite(df(PD)))
        with pytest.raises(np.linalg.LinAlgError):
            f(bad)
        with pytest.raises(np.linalg.LinAlgError):
            df(bad)


def test_of_arrays_that_the_function_makes() -> None:
    """They are known as the program runs, and so is whether a matrix is singular."""

    def f(x: Any, k: int) -> Any:
        try:
            return linalg.solve_triangular(np.tri(3, k=k), np.ones(3), lower=True) * x
        except np.linalg.LinAlgError:
            return x

    for k in (0, -1, 0):
        np.testing.assert_array_equal(jit(f, compile="never")(B[:3, 0], k), f(B[:3, 0], k))


def test_what_is_refused() -> None:
    with pytest.raises(ConversionError, match=r"(?s)linalg_test\.py.*tapegrad\.linalg"):
        grad(lambda a: np.sum(scipy.linalg.cholesky(a)))(PD)
    with pytest.raises(ConversionError, match=r"tapegrad\.linalg"):
        grad(lambda a: np.sum(scipy.linalg.expm(a)))(PD)
    with pytest.raises(UnsupportedError, match=r"linalg_test\.py"):
        grad(lambda a: np.sum(linalg.solve(a, B, assume_a="banded")))(PD)
    with pytest.raises(ValueError, match="incompatible"):
        grad(lambda a: np.sum(linalg.solve_triangular(a, np.ones(2))))(PD)
    with pytest.raises(ValueError, match="trans="):
        grad(lambda a: np.sum(linalg.solve_triangular(a, B, trans=3)))(PD)
    with pytest.raises(ValueError, match="same number of rows"):
        grad(lambda a: np.sum(linalg.solve(a, np.ones(2))))(PD)


def test_names_and_parameters_are_scipys() -> None:
    for name in linalg.__all__:
        ours = list(inspect.signature(getattr(linalg, name)).parameters)
        assert ours == list(inspect.signature(getattr(scipy.linalg, name)).parameters), name
