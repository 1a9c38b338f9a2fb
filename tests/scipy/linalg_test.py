"""scipy.linalg beyond what the table of names holds: batches, errors, later calls, unobserved runs,
structure in the pass back, and equal or negative eigenvalues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from scipy import linalg
from tests.frontend.check import check_gradient, normal

from tapegrad import grad, jit, value_and_grad, vjp
from tapegrad.errors import UnsupportedError

A = normal(3, 3) + 3 * np.eye(3)
PD = A @ A.T
B = normal(3, 2)
BATCH = np.stack([PD, 2 * PD + 1])


BATCHED: list[Callable[..., Any]] = [
    lambda a: linalg.solve(a, B),
    lambda a: linalg.solve(a, np.stack([B, B]), assume_a="pos"),
    lambda a: linalg.solve(a, B, assume_a="tridiagonal"),
    lambda a: linalg.solve(a, B[:, 0], assume_a="diagonal"),
    lambda a: linalg.solve_triangular(a, B, lower=True),
    lambda a: linalg.cho_solve((a, True), B),
    lambda a: linalg.inv(a),
    lambda a: linalg.det(a),
    lambda a: linalg.cholesky(a),
    lambda a: linalg.lu(a, p_indices=True)[2],
    lambda a: linalg.lu(a[..., :2])[1],
    lambda a: linalg.lu_factor(a)[0],
    lambda a: linalg.qr(a)[1],
    lambda a: linalg.svdvals(a),
    lambda a: linalg.eigvalsh(a),
    lambda a: linalg.expm(a / 30),
    lambda a: linalg.sqrtm(a),
    lambda a: linalg.logm(a),
    lambda a: linalg.cosm(a / 30),
    lambda a: linalg.polar(a)[0],
    lambda a: linalg.orth(a[..., :2]) ** 2,
    lambda a: linalg.pinv(a),
    lambda a: linalg.solve_sylvester(a, PD, a),
    lambda a: linalg.solve_continuous_lyapunov(a, a),
    lambda a: linalg.toeplitz(a[..., 0]),
    lambda a: linalg.solve_toeplitz(a[0, 0], B),
    lambda a: linalg.block_diag(a[0], a[1]),
    lambda a: linalg.norm(a, axis=(1, 2)),
]


@pytest.mark.parametrize("f", BATCHED, ids=map(str, range(len(BATCHED))))
def test_batches_of_matrices(f: Any) -> None:
    expected = np.asarray(f(BATCH))
    found = jit(f, compile="never")(BATCH)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert np.asarray(found).dtype == expected.dtype


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.complex64])
def test_dtypes_are_scipys(dtype: Any) -> None:
    a = np.round(PD * 2).astype(dtype)
    for f in (
        *(linalg.cholesky, linalg.inv, linalg.det, linalg.expm, linalg.sqrtm, linalg.eigvals),
        lambda a: linalg.solve(a, B),
        lambda a: linalg.lu(a)[2],
        lambda a: linalg.solve_toeplitz(a[0], B),
        lambda a: linalg.block_diag(a, a),
    ):
        expected, found = f(a), jit(lambda a, f=f: f(a), compile="never")(a)
        assert np.asarray(found).dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_nothing_at_all() -> None:
    empty, none = np.zeros((0, 0)), np.zeros(0)
    for f, x in (
        (linalg.cholesky, empty),
        (linalg.inv, empty),
        (linalg.det, empty),
        (linalg.expm, empty),
        (linalg.lu, empty),
        (lambda a: linalg.solve(a, none), empty),
        (lambda a: linalg.lstsq(a, none)[0], empty),
        (lambda a: linalg.qr(a)[1], np.zeros((0, 2))),
        (linalg.svdvals, np.zeros((0, 2))),
    ):
        found, expected = jit(lambda x, f=f: f(x), compile="never")(x), f(x)
        for one, other in zip([*np.atleast_1d(found)], [*np.atleast_1d(expected)], strict=True):
            assert np.shape(one) == np.shape(other)


WRONG: list[tuple[Callable[..., Any], Any]] = [
    (lambda a: linalg.cholesky(a), -PD),
    (lambda a: linalg.cholesky(a), np.full((3, 3), np.nan)),
    (lambda a: linalg.solve(a, B), np.ones((3, 3))),
    (lambda a: linalg.solve(a, B, assume_a="diagonal"), np.ones((3, 3)) - np.eye(3)),
    (lambda a: linalg.solve_triangular(a, B), np.ones((3, 3)) - np.eye(3)),
    (lambda a: linalg.solve_banded((1, 1), a, B), np.zeros((3, 3))),
    (lambda a: linalg.solveh_banded(np.diagonal(a)[None], B), -PD),
    (lambda a: linalg.inv(a), np.zeros((3, 3))),
    (lambda a: linalg.solve_toeplitz(a[0], B), np.zeros((3, 3))),
    (lambda a: linalg.solve_circulant(a[0], B), np.ones((3, 3))),
    (lambda a: linalg.eigh(a, a)[0], -PD),
    (lambda a: linalg.solve_continuous_are(A, B, a, np.eye(2)), A),
    (lambda a: linalg.norm(a), np.full((3, 3), np.inf)),
]


@pytest.mark.parametrize(("f", "bad"), WRONG, ids=map(str, range(len(WRONG))))
def test_failures_are_scipys_at_any_call(f: Any, bad: Any) -> None:
    with pytest.raises((ValueError, np.linalg.LinAlgError)) as scipys:
        f(bad)
    df = grad(lambda a: np.sum(f(a)), compile="never")
    assert np.all(np.isfinite(df(PD)))
    with pytest.raises(scipys.type) as found:
        df(bad)
    assert str(found.value) == str(scipys.value)
    assert np.all(np.isfinite(df(PD)))


def test_wrong_arguments() -> None:
    for f in (
        lambda a: linalg.cholesky(a[:2]),
        lambda a: linalg.solve(a, np.ones(2)),
        lambda a: linalg.solve(a, B, assume_a="round"),
        lambda a: linalg.solve_triangular(a, np.ones(2)),
        lambda a: linalg.solve_banded((1, 2), a, B),
        lambda a: linalg.eigh(a, subset_by_index=[2, 3]),
        lambda a: linalg.qr(a, mode="half"),
        lambda a: linalg.lstsq(a, np.ones(2)),
    ):
        with pytest.raises((ValueError, TypeError)) as scipys:
            f(PD)
        with pytest.raises(scipys.type) as found:
            grad(lambda a, f=f: np.sum(f(a)), compile="never")(PD)
        assert str(found.value) == str(scipys.value)


def test_what_is_refused_says_what_to_use() -> None:
    for f, words in (
        (lambda a: linalg.schur(a)[0], "eig"),
        (lambda a: linalg.qr(a, mode="raw")[1], "economic"),
        (lambda a: linalg.eig(a, a)[0], "only without b"),
        (lambda a: linalg.solve_continuous_are(a, B, PD, np.eye(2), e=A), "only without e"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            grad(lambda a, f=f: np.sum(f(a)).real)(PD)


def loss(length: Any, noise: Any) -> Any:
    x = np.linspace(0, 4, 40)
    K = np.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + noise * np.eye(40)
    factor = linalg.cho_factor(K, lower=True)
    y = np.sin(3 * x)
    return 0.5 * y @ linalg.cho_solve(factor, y) + np.sum(np.log(np.diagonal(factor[0])))


def test_a_gaussian_process_is_compiled_and_solved_by_triangles() -> None:
    compiled = grad(loss, (0, 1), compile="always")
    found = compiled(0.8, 0.3)
    np.testing.assert_allclose(found, grad(loss, (0, 1), compile="never")(0.8, 0.3), rtol=1e-9)
    up, down = loss(0.8, 0.3 + 1e-6), loss(0.8, 0.3 - 1e-6)
    assert found[1] == pytest.approx((up - down) / 2e-6, rel=1e-6)
    assert "solve_lower" in compiled.tapes[0].source
    assert "lu(" not in compiled.tapes[0].numpy_source


def test_later_calls_with_other_shapes_and_values() -> None:
    def f(a, b):
        p, left, upper = linalg.lu(a)
        return np.sum((p @ left) ** 2) + np.sum(np.cos(upper)) + np.sum(linalg.solve(a, b))

    df = value_and_grad(f, (0, 1), compile="never")
    for n in (3, 2, 4):
        a, b = normal(n, n, seed=n) + np.eye(n), normal(n, seed=n)
        for order in (np.arange(n), np.arange(n)[::-1]):  # rows are swapped otherwise
            value, (da, _) = df(a[order], b)
            assert value == pytest.approx(f(a[order], b), rel=1e-12)
            e = 1e-6 * normal(n, n)
            slope = f(a[order] + e, b) - f(a[order] - e, b)
            assert 2 * np.sum(da * e) == pytest.approx(slope, rel=1e-5)


def test_where_a_run_isnt_observed() -> None:
    value, pullback = vjp(lambda a: linalg.solve(a, B, assume_a="pos"), PD)
    np.testing.assert_allclose(value, linalg.solve(PD, B), rtol=1e-12)
    expected = -np.linalg.solve(PD.T, np.ones((3, 2))) @ value.T
    (found,) = pullback(np.ones((3, 2)))
    np.testing.assert_allclose(
        found + np.triu(found, 1).T,
        np.triu(expected + expected.T) - np.diag(np.diagonal(expected)) + np.triu(found, 1).T,
        rtol=1e-9,
    )


def test_the_matrix_functions_where_eigenvalues_are_negative_or_equal() -> None:
    turned = np.array([[0.0, -1.0], [1.0, 0.0]])
    negative = np.array([[-2.0, 0.3, 0.1], [0.2, -1.0, 0.4], [0.1, 0.5, 3.0]])
    for f, a in (
        (linalg.sqrtm, np.eye(3) * 2),
        (linalg.logm, np.eye(3) * 2),
        (linalg.sqrtm, negative),
        (linalg.logm, negative),
        (lambda a: linalg.fractional_matrix_power(a, 0.3), negative),
        (linalg.logm, turned),
        (linalg.expm, turned),
        (linalg.cosm, np.zeros((2, 2))),
    ):
        check_gradient(lambda a, f=f: np.sum(np.real(f(a)) * (1 + a) + np.imag(f(a))), a)


def test_a_captured_matrix_that_changes_is_followed() -> None:
    held = PD.copy()
    df = value_and_grad(lambda b: np.sum(linalg.solve(held, b)), compile="never")
    b = B[:, 0]
    for _ in range(3):
        value, found = df(b)
        assert value == pytest.approx(np.sum(scipy.linalg.solve(held, b)))
        np.testing.assert_allclose(found, np.linalg.solve(held.T, np.ones(3)))
        held *= 2
    held[:] = 0
    with pytest.raises(np.linalg.LinAlgError):
        df(b)


def test_of_arrays_that_the_function_makes() -> None:
    """They are known as the program runs, and so is whether a matrix is singular."""

    def f(x, k):
        try:
            return linalg.solve_triangular(np.tri(3, k=k), np.ones(3), lower=True) * x
        except np.linalg.LinAlgError:
            return x

    x = np.array([0.3, 0.5, 0.8])
    for k in (0, -1, 0):
        np.testing.assert_array_equal(jit(f, compile="never")(x, k), f(x, k))


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1.0, 1e200, 1e300])
def test_norms_of_vectors_whose_squares_are_no_numbers(size: float) -> None:
    """scipy.linalg.norm is BLAS's, which scales. The slopes are x / |x|; theirs are finite."""
    x = np.array([3.0, 4.0]) * size
    value, slope = value_and_grad(lambda x: scipy.linalg.norm(x))(x)
    np.testing.assert_allclose(value, scipy.linalg.norm(x), rtol=1e-15)
    np.testing.assert_allclose(slope, [0.6, 0.8], rtol=1e-14)
    bend = grad(lambda x: grad(lambda x: scipy.linalg.norm(x))(x)[0])(x)
    np.testing.assert_allclose(bend, np.array([0.128, -0.096]) / size, rtol=1e-13)


LOW = np.tril(np.arange(9.0).reshape(3, 3)) + 2 * np.eye(3)
ROUTINES = {
    "dgemm": lambda a: scipy.linalg.blas.dgemm(2.0, a, LOW, beta=0.5, c=a, trans_a=True),
    "ddot": lambda a: scipy.linalg.blas.ddot(a[0], a[1]),
    "dtrsm": lambda a: scipy.linalg.blas.dtrsm(1.0, a, LOW, side=1, lower=1, trans_a=1),
    "dsymm": lambda a: scipy.linalg.blas.dsymm(1.0, a, LOW, side=1),
    "dpotrf": lambda a: scipy.linalg.lapack.dpotrf(a, lower=1, clean=0, overwrite_a=True)[0],
    "dpotrs": lambda a: scipy.linalg.lapack.dpotrs(scipy.linalg.lapack.dpotrf(a)[0], LOW)[0],
    "dposv": lambda a: scipy.linalg.lapack.dposv(a, LOW[1])[1],
    "dgesv": lambda a: scipy.linalg.lapack.dgesv(a, LOW)[2],
    "dgtsv": lambda a: scipy.linalg.lapack.dgtsv(a[0, 1:], a[1] + 9, a[2, 1:], a[0])[3],
    "dptsv": lambda a: scipy.linalg.lapack.dptsv(a[1] + 9, a[2, 1:], a[0])[2],
    "dtrtrs": lambda a: scipy.linalg.lapack.dtrtrs(a, a[0], trans=1)[0],
    "dsyev": lambda a: scipy.linalg.lapack.dsyev(a)[0],
    "by name": lambda a: scipy.linalg.get_lapack_funcs("gesv", (a, LOW))(a, LOW)[2],
}


@pytest.mark.parametrize("name", ROUTINES)
def test_routines_by_their_own_names(name):
    """those that a function which is followed comes to"""
    a = np.array([[5.0, 1.0, 0.5], [1.0, 6.0, 0.3], [0.5, 0.3, 7.0]])

    def f(t):
        found = ROUTINES[name](a * np.cos(t) + np.eye(3) * t)
        return np.sum(np.cos(np.arange(np.size(found))) * np.ravel(found))

    value, g = value_and_grad(f, compile="never")(0.3)
    assert value == pytest.approx(f(0.3), rel=1e-12)
    assert g == pytest.approx((f(0.3 + 1e-6) - f(0.3 - 1e-6)) / 2e-6, rel=1e-7)


def test_other_routines_say_what_to_use():
    a = np.eye(3)
    for f, use in (
        (lambda t: scipy.linalg.lapack.dgeev(t * a)[0][0], "scipy.linalg.eig"),
        (lambda t: scipy.linalg.lapack.dpotri(t * a)[0][0, 0], "scipy.linalg.inv"),
        (lambda t: scipy.linalg.lapack.dgtsv(t * a[0, 1:], a[0] + 9, a[0, 1:], a[0])[1][0], "gtsv"),
    ):
        with pytest.raises(UnsupportedError, match=use):
            grad(f, compile="never")(1.0)


SIGNED = {
    "every driver of eigh": lambda a, b: [
        linalg.eigh(a, lower=low, driver=d)
        for low in (True, False)
        for d in ("ev", "evd", "evr", "evx")
    ],
    "eigh of a subset": lambda a, b: [
        linalg.eigh(a, subset_by_index=[0, 2]),
        linalg.eigh(a, subset_by_value=[-1.0, 1.0]),
    ],
    "eigh of two matrices": lambda a, b: [
        linalg.eigh(a, b, lower=low, type=t) for low in (True, False) for t in (1, 2, 3)
    ],
    "every driver of eigh of two": lambda a, b: [
        linalg.eigh(a, b, driver="gv"),
        linalg.eigh(a, b, driver="gvx", subset_by_index=[1, 2]),
        linalg.eigh(a, b, subset_by_index=[1, 2]),
    ],
    "eigh of complex numbers": lambda a, b: linalg.eigh(a + 1j * (np.triu(b, 1) - np.tril(b, -1))),
    "tridiagonal": lambda a, b: [
        linalg.eigh_tridiagonal(a[0], b[0, 1:], lapack_driver=d)
        for d in ("auto", "stemr", "stebz", "stev", "stevd")
    ],
    "a subset of tridiagonal": lambda a, b: [
        linalg.eigh_tridiagonal(a[0], b[0, 1:], select="i", select_range=(1, 2)),
        linalg.eigh_tridiagonal(a[0], b[0, 1:], select="v", select_range=(-1.0, 1.0)),
    ],
    "svd": lambda a, b: [
        linalg.svd(x, full, lapack_driver=d)
        for x in (a @ b, a[:3] @ b, a @ b[:, :3])
        for full in (True, False)
        for d in ("gesdd", "gesvd")
    ],
}


@pytest.mark.every(8)
@pytest.mark.parametrize("name", SIGNED)
def test_vectors_have_the_signs_that_scipy_gives_them(name):
    """whichever routine of LAPACK's it takes; and their squares, which have no sign to jump, have
    the slopes of differences"""
    f, rng = SIGNED[name], np.random.default_rng(3)

    def total(a, b):
        return sum(
            np.sum(np.cos(np.arange(np.size(x))) * np.ravel(np.real(x)) ** 2) for x in parts(a, b)
        )

    def parts(a, b):
        found = f(a, b)
        return [x for each in (found if isinstance(found, list) else [found]) for x in each]

    for _ in range(6):
        a, b = rng.normal(size=(2, 4, 4))
        a, b = a + a.T, b @ b.T + np.eye(4)
        for x, y in zip(jit(parts, compile="never")(a, b), parts(a, b), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
    if "complex" not in name:
        da, db, h = a, np.diag(np.arange(4.0)), 1e-6
        pulled = grad(total, (0, 1), compile="never")(a, b)
        moved = (total(a + h * da, b + h * db) - total(a - h * da, b - h * db)) / (2 * h)
        np.testing.assert_allclose(
            np.sum(pulled[0] * da) + np.sum(pulled[1] * db), moved, rtol=1e-5
        )


@pytest.mark.parametrize("name", ["expm", "logm", "sqrtm", "cosm", "expm_frechet"])
def test_derivatives_of_functions_of_matrices_whatever_their_weight(name: str) -> None:
    """They are blocks of a larger matrix, in which large ones would make small ones lost."""
    x, weights = normal(3, 3), np.cos(np.arange(9.0)).reshape(3, 3)
    x = x @ x.T + np.eye(3)
    f: Any = getattr(linalg, name)
    if name == "expm_frechet":
        f = lambda x: linalg.expm_frechet(x, x, compute_expm=False)  # noqa: E731
    first = grad(lambda x, c=1.0: np.sum(weights * f(x)) * c, compile="never")
    second = grad(lambda x, c=1.0: np.sum(weights * first(x)) * c, compile="never")
    for slope in (first, second) if name != "expm_frechet" else (first,):
        for size in (-900, 70, 300, 900):
            found = np.ldexp(slope(x, 2.0**size), -size)
            np.testing.assert_allclose(found, slope(x), rtol=1e-10)
    for size in (-1000, -600, 600, 1000) if name == "sqrtm" else ():
        found = np.ldexp(first(np.ldexp(x, size)), size // 2)
        np.testing.assert_allclose(found, first(x), rtol=1e-10)


def test_directions_of_any_size() -> None:
    x, e = normal(3, 3), normal(3, 3)
    along = jit(lambda x, e: linalg.expm_frechet(x, e, compute_expm=False), compile="never")
    right = linalg.expm_frechet(x, e, compute_expm=False)
    for size in (-1000, -300, 100, 1000):
        found = np.ldexp(along(x, np.ldexp(e, size)), -size)
        np.testing.assert_allclose(found, right, rtol=1e-12)


def test_a_power_is_complex_where_eigenvalues_are() -> None:
    """as SciPy's, with imaginary parts of 0"""
    turned = np.array([[1.0, 2.0, 0.1], [-2.0, 1.0, 0.0], [0.0, 0.1, 1.0]])
    for a in (turned, np.eye(3) + 0.1 * np.ones((3, 3)), np.triu(turned)):
        power = lambda a: linalg.fractional_matrix_power(a, 0.3)  # noqa: E731
        assert jit(power, compile="never")(a).dtype == power(a).dtype
        check_gradient(lambda a, power=power: np.sum(power(a).real * (1 + a)), a)


@pytest.mark.every(4)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("call", [jit, value_and_grad])
def test_functions_that_look_for_what_isnt_finite_do_at_later_calls(call, bad) -> None:
    spoilt = A.copy()
    spoilt[0, 1] = bad
    functions = (linalg.logm, lambda a: linalg.fractional_matrix_power(a, 0.5))
    for f in functions:
        made = call(lambda a, f=f: np.sum(f(a).real))
        right = made(A)
        for _ in range(2):
            with pytest.raises(ValueError, match="must not contain infs or NaNs"):
                made(spoilt)
        again = made(A)
        pairs = zip(again, right, strict=True) if isinstance(right, tuple) else [(again, right)]
        for x, y in pairs:
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    "a",
    [np.eye(3), np.diag([1.0, 1.0, 2.0]), np.eye(3) + 1e-9 * A, A, 2 * np.eye(3)[:, :2], A[:2]],
    ids=["identity", "two equal", "nearly equal", "any", "tall", "wide"],
)
def test_polar_factors_where_singular_values_are_equal(a, side) -> None:
    """Their rule has no differences of singular values: it is a root's, to the third order."""
    tall, by_root = a.shape[0] >= a.shape[1], side == "right"

    def root(x):
        turned = not tall or (a.shape[0] == a.shape[1] and side == "left")
        x = x.T if turned else x
        p = linalg.sqrtm(x.T @ x)
        u = x @ np.linalg.inv(p)
        other = u @ p @ u.T
        u, p, other = (u.T, p, other) if turned else (u, p, other)
        return u, p if turned != by_root else other

    def third(f, k):
        along = np.cos(np.arange(a.size)).reshape(a.shape)
        weights = np.sin(np.arange(9.0)).reshape(3, 3)

        def loss(x):
            y = f(x)[k]
            return np.sum(weights[: y.shape[0], : y.shape[1]] * y)

        def once(x):
            return np.sum(grad(loss, compile="never")(x) * along)

        twice = lambda x: np.sum(grad(once, compile="never")(x) * along)  # noqa: E731
        return [grad(g, compile="never")(a) for g in (loss, once, twice)]

    for k in (0, 1):
        ours, right = third(lambda x: linalg.polar(x, side=side), k), third(root, k)
        for x, y in zip(ours, right, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7 * np.abs(y).max())


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("a", [np.eye(3), np.diag([1.0, 1.0, 2.0])], ids=["all", "two"])
def test_equal_eigenvalues_of_any_matrix(a, kind) -> None:
    """What isn't known of how vectors turn is NaN: it was taken for 0."""

    def rebuilt(x):
        w, v = np.linalg.eig(x.astype(kind))
        return np.sum(B3 * ((v * np.tanh(w)) @ np.linalg.inv(v))).real

    def squares(x):
        return np.sum(np.linalg.eigvals(x.astype(kind)) ** 2).real

    assert np.isnan(grad(rebuilt, compile="never")(a)).any()
    np.testing.assert_allclose(grad(squares, compile="never")(a), 2 * a.T)
    second = grad(lambda x: grad(squares, compile="never")(x)[0, 1], compile="never")(a)
    assert np.isnan(second[1, 0])  # 2
    apart = np.diag([1.0, 2.0, 3.0])
    second = grad(lambda x: grad(squares, compile="never")(x)[0, 1], compile="never")(apart)
    np.testing.assert_allclose(second, [[0, 0, 0], [2, 0, 0], [0, 0, 0]])


B3 = np.sin(np.arange(9.0)).reshape(3, 3)


@pytest.mark.parametrize("order", "CF")
def test_systems_that_scipy_transposes(order: str) -> None:
    """`trans` is what SciPy makes of it, which depends on how the matrix lies in memory."""
    a = np.array(np.triu(normal(3, 3) + 1j * normal(3, 3)) + 4 * np.eye(3), order=order)
    b = normal(3)

    def solved(f: Any) -> Any:
        try:
            return f(a, b)
        except (ValueError, OverflowError, linalg.LinAlgError):
            return None
        except Exception as error:  # LAPACK's wrappers have a class of their own
            return None if type(error).__name__ == "error" else repr(error)

    for trans in (0, 1, 2, "N", "T", "C", 5, -1, True, 1.0, 1.5, 2.0, "X", "", None, 2 + 0j):
        for f in (
            lambda a, b, t=trans: linalg.solve_triangular(a, b, trans=t),
            lambda a, b, t=trans: linalg.lu_solve(linalg.lu_factor(a), b, trans=t),
        ):
            found, wanted = solved(jit(f, compile="never")), solved(f)
            assert (found is None) == (wanted is None), (trans, found, wanted)
            if wanted is not None:
                np.testing.assert_allclose(found, wanted, rtol=1e-12)
