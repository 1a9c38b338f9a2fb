"""numpy.linalg: systems, determinants and decompositions, alone and in batches, what they refuse,
and what happens when they fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from tests.frontend.check import check, check_value, name_of, normal

from tapegrad import grad, hessian, jit, primitive, simplegrad, trace, value_and_grad
from tapegrad.errors import TapeError, UnsupportedError


def regular(*shape: int) -> np.ndarray:
    """Square matrices whose rows LU has to swap."""
    return np.roll(normal(*shape) + 3 * np.eye(shape[-1]), 1, -2)


def definite(*shape: int) -> np.ndarray:
    """Positive definite matrices; symmetric, as users' are."""
    x = normal(*shape)
    return x @ np.swapaxes(x, -1, -2) + 2 * np.eye(shape[-1])


def projection(q: Any) -> Any:
    """On the columns of Q, whose basis is open."""
    return q @ np.swapaxes(q, -1, -2)


SQUARE: list[Callable[[Any], Any]] = [
    lambda a: np.linalg.inv(a),
    lambda a: np.linalg.det(a),
    lambda a: np.linalg.slogdet(a),
    lambda a: np.linalg.slogdet(a)[1],
    lambda a: np.linalg.slogdet(-a).sign,
    lambda a: np.linalg.solve(a, a + 1.0),
    lambda a: np.linalg.solve(a, np.arange(3.0)),
    lambda a: np.linalg.solve(np.eye(3) + 0.1, a),
    lambda a: np.linalg.matrix_power(a, -3),
    lambda a: np.linalg.cond(a),
    lambda a: np.linalg.cond(a, -2),
    lambda a: np.linalg.cond(a, 1),
    lambda a: np.linalg.cond(a, "fro"),
    lambda a: np.linalg.eigh(a),
    lambda a: np.linalg.eigh(a, "U").eigenvectors,
    lambda a: np.linalg.eigvalsh(a),
    lambda a: np.linalg.eigvalsh(a, UPLO="u"),
    lambda a: np.linalg.svd(a),
    lambda a: np.linalg.svd(a + np.swapaxes(a, -1, -2), hermitian=True).S,
    lambda a: np.linalg.svd(a + np.swapaxes(a, -1, -2), hermitian=True, compute_uv=False),
    lambda a: np.linalg.pinv(a, hermitian=True),
    lambda a: np.linalg.eig(a @ np.swapaxes(a, -1, -2) + 0.01 * a),
    lambda a: np.linalg.eigvals(a @ np.swapaxes(a, -1, -2) + 0.01 * a),
    lambda a: np.linalg.qr(a, "complete").Q,
    lambda a: np.linalg.cholesky(a @ np.swapaxes(a, -1, -2)),
    lambda a: np.linalg.cholesky(a @ np.swapaxes(a, -1, -2) + np.triu(a, 1)),
    lambda a: np.linalg.cholesky(a @ np.swapaxes(a, -1, -2) + np.tril(a, -1), upper=True),
    lambda a: np.trace(np.linalg.inv(a), axis1=-2, axis2=-1),
]

ANY: list[Callable[[Any], Any]] = [
    lambda a: np.linalg.svd(a, full_matrices=False),
    lambda a: np.linalg.svd(a, compute_uv=False),
    lambda a: np.linalg.svd(a, False).S,
    lambda a: projection(np.linalg.svd(a).U[..., min(a.shape[-2:]) :]),
    lambda a: projection(np.swapaxes(np.linalg.svd(a).Vh[..., min(a.shape[-2:]) :, :], -1, -2)),
    lambda a: projection(np.linalg.qr(a, "complete").Q[..., a.shape[-1] :]),
    lambda a: np.linalg.qr(a, "complete").R,
    lambda a: np.linalg.svdvals(a),
    lambda a: np.linalg.qr(a),
    lambda a: np.linalg.qr(a).R,
    lambda a: np.linalg.qr(a, mode="r"),
    lambda a: np.linalg.pinv(a),
    lambda a: np.linalg.pinv(a, rtol=None),
    lambda a: np.linalg.pinv(a, 1e-9),
    lambda a: np.linalg.norm(a, 2, axis=(-2, -1)),
    lambda a: np.linalg.norm(a, -2, axis=(-1, -2), keepdims=True),
    lambda a: np.linalg.norm(a, "nuc", axis=(-2, -1)),
    lambda a: np.linalg.matrix_norm(a, ord=2, keepdims=True),
    lambda a: np.linalg.matrix_rank(a),
    lambda a: np.linalg.matrix_rank(a, tol=1.5) + np.linalg.matrix_rank(a, rtol=0.5),
]


@pytest.mark.every(8)
@pytest.mark.parametrize("f", SQUARE, ids=name_of)
def test_functions_of_square_matrices(f: Callable[[Any], Any]) -> None:
    check(f, regular(3, 3))
    check(f, regular(2, 3, 3))


@pytest.mark.every(16)
@pytest.mark.parametrize("f", ANY, ids=name_of)
def test_functions_of_matrices(f: Callable[[Any], Any]) -> None:
    for shape in ((3, 3), (4, 2), (2, 4), (2, 4, 3)):
        check(f, normal(*shape))


def test_norms_of_axes_in_any_place() -> None:
    check(lambda a: np.linalg.norm(a, 2, axis=(0, 2)), normal(3, 2, 4))
    check(lambda a: np.linalg.norm(a, "nuc", axis=(2, 0), keepdims=True), normal(3, 2, 4))


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 3), (3,)),
        ((3, 3), (3, 1)),
        ((3, 3), (3, 2)),
        ((3, 3), (3, 0)),
        ((0, 0), (0,)),
        ((0, 0), (0, 2)),
        ((2, 3, 3), (3,)),
        ((2, 3, 3), (2, 3, 1)),
        ((2, 1, 3, 3), (4, 3, 2)),
        ((3, 3), (2, 3, 2)),
        ((0, 3, 3), (3, 2)),
    ],
)
def test_solve_has_vectors_and_matrices_as_numpy_2_has_them(a: Any, b: Any) -> None:
    check(lambda a, b: np.linalg.solve(a, b), regular(*a), normal(*b))
    check(lambda b: np.linalg.solve(regular(*a), b), normal(*b))


def test_batches_and_matrices_without_elements() -> None:
    for shape in ((0, 0), (0, 3, 3), (2, 0, 0)):
        empty = np.zeros(shape)
        check(lambda a: np.linalg.inv(a), empty)
        check(lambda a: np.linalg.det(a), empty)
        check(lambda a: np.linalg.cholesky(a), empty)
        check(lambda a: np.linalg.eigh(a), empty)


def test_types() -> None:
    for f in (np.linalg.inv, np.linalg.cholesky, np.linalg.det, np.linalg.eigvalsh):
        check_value(lambda a, f=f: f(a), definite(3, 3).astype(np.float32))
        check_value(lambda a, f=f: f(a), np.diag([1, 2, 3]))
    for b in (np.arange(3), np.arange(3, dtype=np.float32), normal(3)):
        check_value(lambda a, b: np.linalg.solve(a, b), definite(3, 3).astype(np.float32), b)


def test_least_squares() -> None:
    for a, b in (((5, 3), (5,)), ((5, 3), (5, 2)), ((3, 5), (3,)), ((4, 4), (4, 1))):
        check(lambda a, b: np.linalg.lstsq(a, b)[0], normal(*a), normal(*b))
        check(lambda a, b: np.linalg.lstsq(a, b, rcond=-1)[3], normal(*a), normal(*b))
        check_value(lambda a, b: np.linalg.lstsq(a, b, 1e-3)[2], normal(*a), normal(*b))


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "a", [normal(4, 3), normal(2, 3, 4), np.eye(4, 3) * [1, 1, 0.1]], ids=["tall", "wide", "equal"]
)
def test_what_is_left_of_a_matrix_turns_when_the_rest_counts_as_0(a: Any) -> None:
    cut = np.mean(np.linalg.svd(a)[1][..., -2:])
    check(lambda a: np.linalg.pinv(a, rcond=cut / np.max(np.linalg.svd(a)[1])), a)
    check(lambda a: np.linalg.pinv(a + 0.1j * np.sin(a), rtol=0.6).real, a)
    if a.ndim == 2:
        check(lambda a: np.linalg.lstsq(a, a[:, :2] ** 2, rcond=0.6)[0], a)
        check(lambda a: scipy.linalg.pinv(a, rtol=0.6), a)
        check(lambda a: scipy.linalg.lstsq(a, a[:, 0] ** 2, cond=0.6)[0], a)


def test_tensors() -> None:
    check(lambda a, b: np.linalg.tensorsolve(a, b), normal(2, 3, 6), normal(2, 3))
    check(lambda a, b: np.linalg.tensorsolve(a, b, axes=(1,)), normal(3, 3, 1), normal(3, 1))
    check(lambda a: np.linalg.tensorinv(a), normal(2, 3, 6))
    check(lambda a: np.linalg.tensorinv(a, ind=1), normal(6, 2, 3))


def test_products_and_shapes() -> None:
    x, y = normal(2, 3), normal(3, 2)
    check(lambda x, y: np.kron(x, y), x, y)
    check(lambda x, y: np.linalg.outer(x[0], y[0]), x, y)
    check(lambda x, y: np.linalg.vecdot(x, y.T), x, y)
    check(lambda x, y: np.linalg.matrix_transpose(x) + y, x, y)
    check(lambda x, y: np.linalg.trace(x @ y) + np.linalg.vector_norm(x), x, y)


# ---- derivatives that only a whole function has


def gaussian_process(params: Any, x: Any, y: Any) -> Any:
    """Negative log marginal likelihood, by Cholesky's factor and a solution."""
    length, noise = params
    squares = (x[:, None] - x[None]) ** 2
    K = np.exp(-0.5 * squares / length**2) + noise**2 * np.eye(len(x))
    L = np.linalg.cholesky(K)
    return 0.5 * y @ np.linalg.solve(K, y) + np.sum(np.log(np.diagonal(L)))


def test_the_likelihood_of_a_gaussian_process_is_compiled() -> None:
    """100 rows are more than one block of the factor's cotangent."""
    x, y = np.linspace(0, 5, 100), normal(100)
    params = np.array([0.7, 0.5])
    played = value_and_grad(gaussian_process, compile="never")(params, x, y)
    compiled = value_and_grad(gaussian_process, compile="always")
    value, gradient = compiled(params, x, y)
    assert value == pytest.approx(gaussian_process(params, x, y), rel=1e-12)
    np.testing.assert_allclose(gradient, played[1], rtol=1e-9)
    for k in range(2):
        step = 1e-6 * np.eye(2)[k]
        up, down = (gaussian_process(params + s, x, y) for s in (step, -step))
        assert gradient[k] == pytest.approx((up - down) / 2e-6, rel=1e-6)
    source = compiled.tapes[0].source
    assert "cholesky(" in source
    assert "cholesky_pullback(" in source
    assert source.count("lu(") == 1, "the system is factored once, for both halves"


def test_one_factorisation_for_all_that_is_solved_with_a_matrix() -> None:
    def loss(a, b):
        x = np.linalg.solve(a, b)
        return np.sum(np.linalg.solve(a, x) ** 2) + np.linalg.slogdet(a)[1] + np.linalg.det(a)

    df = grad(loss, (0, 1), compile="never")
    df(regular(4, 4), normal(4))
    assert [str(c.primitive) for c in df.tapes[0].calls].count("lu") == 1


def test_only_one_triangle_of_a_symmetric_matrix_counts() -> None:
    a = definite(3, 3)
    for f in (np.linalg.cholesky, np.linalg.eigvalsh):
        g = grad(lambda a, f=f: np.sum(f(a)))(a)
        assert np.all(g[np.triu_indices(3, 1)] == 0)
        assert np.all(g[np.tril_indices(3)] != 0)


def test_vectors_that_are_arbitrary_where_values_are_equal() -> None:
    """What reads none of them has its derivative. A power of the matrix has one, too, but within
    the equal pair its values and vectors tell nothing of b's off-diagonal part: NaN, no number."""
    a = np.diag([1.0, 1.0, 2.0])
    b = normal(3, 3)

    def power(a, first=0):
        w, v = np.linalg.eigh(a)
        w, v = w[first:], v[:, first:]
        return np.sum(b * ((v * w**3) @ v.T))

    assert np.isnan(grad(power)(a)[np.tril_indices(3)]).all()
    g = grad(power)(a, 2)
    for at in zip(*np.tril_indices(3), strict=True):
        step = np.zeros((3, 3))
        step[at] = 1e-6
        change = (power(a + step, 2) - power(a - step, 2)) / 2e-6
        np.testing.assert_allclose(g[at], change, rtol=1e-8, atol=1e-8)


def test_the_derivative_of_a_determinant_that_is_0() -> None:
    """The matrix of cofactors, of which the inverse knows nothing."""
    a = np.array([[1.0, 2.0], [2.0, 4.0]])
    cofactors = [[4.0, -2.0], [-2.0, 1.0]]
    for how in ("never", "always"):
        np.testing.assert_allclose(grad(np.linalg.det, compile=how)(a), cofactors, atol=1e-12)
    assert np.all(grad(lambda a: np.linalg.det(a))(np.zeros((3, 3))) == 0)
    both = np.stack([a, np.diag([2.0, 3.0])])
    g = grad(lambda a: np.sum(np.linalg.det(a)))(both)
    np.testing.assert_allclose(g, [cofactors, np.diag([3.0, 2.0])], atol=1e-12)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("dtype", "n", "scale"),
    [(np.float64, 2, s) for s in (1e-300, 1e-160, 1e-110, 1e160, 1e300)]
    + [(np.float64, 3, 1e-150), (np.float64, 3, 1e150), (np.float64, 4, 1e150)]
    + [(np.float32, 2, 1e-25), (np.float32, 3, 1e-17), (np.float32, 3, 1e17)],
)
def test_the_derivatives_of_a_determinant_beyond_the_range_of_numbers(
    dtype: Any, n: int, scale: float
) -> None:
    """D^k det(c A) = c^(n - k) D^k det(A), though det(c A) and its inverse may be 0 or infinite."""
    # No minor of a matrix of Hilbert's plus 1 is 0: rounding decides what such a one is far out.
    a = (1.0 / (1.0 + np.add.outer(np.arange(n), np.arange(n))) + np.eye(n)).astype(dtype)
    e = np.exp2(np.round(np.log2(scale)))
    played, second = grad(np.linalg.det, compile="never"), hessian(np.linalg.det, compile="never")
    tolerance = 50 * np.finfo(dtype).eps
    with np.errstate(all="ignore"):
        for derivative, order in ((played, 1), (second, 2)):
            near, far = derivative(a).astype(np.float64), derivative((a * e).astype(dtype))
            expected = (near * e ** (n - order) if n > order else near).astype(dtype)
            within = tolerance * np.max(np.abs(expected[np.isfinite(expected)]), initial=0)
            np.testing.assert_allclose(far, expected, rtol=tolerance, atol=within)


# ---- what fails


SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])
FAILING: list[tuple[Callable[[Any], Any], Any, str]] = [
    (np.linalg.cholesky, -np.eye(2), "Matrix is not positive definite"),
    (np.linalg.inv, SINGULAR, "Singular matrix"),
    (lambda a: np.linalg.solve(a, np.ones(2)), SINGULAR, "Singular matrix"),
    (lambda a: np.linalg.matrix_power(a, -1), SINGULAR, "Singular matrix"),
    (np.linalg.svdvals, np.full((2, 2), np.nan), "SVD did not converge"),
    (np.linalg.pinv, np.full((2, 2), np.nan), "SVD did not converge"),
]


@pytest.mark.parametrize("how", ["never", "always"])
@pytest.mark.parametrize(("f", "bad", "message"), FAILING, ids=[name_of(f) for f, *_ in FAILING])
def test_failures_are_numpys_at_any_call(f: Any, bad: Any, message: str, how: Any) -> None:
    """At the first call, and at a later one, when the function was compiled for others."""
    with pytest.raises(np.linalg.LinAlgError, match=message):
        f(bad)
    df = grad(lambda a: np.sum(f(a)), compile=how)
    good = 2 * np.eye(2)
    for a in (bad, good, bad, good):
        if a is bad:
            with pytest.raises(np.linalg.LinAlgError, match=message):
                df(a)
        else:
            assert np.all(np.isfinite(df(a)))
    with pytest.raises(np.linalg.LinAlgError, match=message):
        df(np.array(bad))
    both = grad(lambda a: np.sum(f(a)) if f is not FAILING[2][0] else 0.0 * np.sum(a), compile=how)
    if f is not FAILING[2][0]:
        with pytest.raises(np.linalg.LinAlgError, match=message):
            both(np.stack([good, bad]))


@pytest.mark.parametrize("how", ["never", "always"])
def test_a_failure_that_the_user_catches_is_a_path(how: Any) -> None:
    """Even if nothing else of the factorisation is used."""

    def energy(a):
        try:
            np.linalg.cholesky(a)
        except np.linalg.LinAlgError:
            return np.sum(a**2)
        return np.sum(3.0 * a)

    df = grad(energy, compile=how)
    good, bad = np.eye(2), np.array([[1.0, 2.0], [2.0, 1.0]])
    for _ in range(2):
        np.testing.assert_array_equal(df(good), np.full((2, 2), 3.0))
        np.testing.assert_array_equal(df(bad), 2 * bad)
    assert df.cache_info().traces == 2


def test_a_tape_for_what_did_not_fail_refuses_what_does() -> None:
    _, tape = trace(np.linalg.inv, np.eye(2))
    with pytest.raises(TapeError, match=r"LinAlgError\('Singular matrix'\) was False"):
        tape.play(SINGULAR)
    with pytest.raises(TapeError, match=r"LinAlgError\('Singular matrix'\) was False"):
        tape.compile()(SINGULAR)


def test_a_gradient_that_stands_alone_raises_too() -> None:
    gradient = simplegrad(lambda a: np.sum(np.linalg.inv(a)), np.eye(2))
    value, g = gradient(2 * np.eye(2))
    assert value == 1.0
    np.testing.assert_allclose(g, np.full((2, 2), -0.25))
    for bad in (SINGULAR, np.zeros((2, 2))):
        with pytest.raises(np.linalg.LinAlgError, match=r"^Singular matrix$"):
            gradient(bad)


def test_in_a_derivative_of_the_users_own() -> None:
    """Where only types are known: what fails there is infinite or NaN."""

    @primitive
    def root(a, b):
        return np.linalg.solve(np.asarray(a), np.asarray(b))

    from tapegrad import defvjp

    @defvjp(root)
    def _(ct, x, a, b):
        d_b = np.linalg.solve(a.T, ct)
        return -np.outer(d_b, x), d_b

    a, b = regular(3, 3), normal(3)
    found = grad(lambda a, b: np.sum(root(a, b) ** 2), (0, 1))(a, b)
    wanted = grad(lambda a, b: np.sum(np.linalg.solve(a, b) ** 2), (0, 1))(a, b)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10)


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (lambda a: np.linalg.inv(a), [(2, 3)]),
        (lambda a: np.linalg.inv(a), [(3,)]),
        (lambda a: np.linalg.cholesky(a), [(2, 3)]),
        (lambda a: np.linalg.det(a), [(3,)]),
        (lambda a: np.linalg.svd(a), [(3,)]),
        (lambda a: np.linalg.eigh(a), [(2, 3)]),
        (lambda a: np.linalg.eigh(a, "X"), [(3, 3)]),
        (lambda a, b: np.linalg.solve(a, b), [(3, 3), (2,)]),
        (lambda a, b: np.linalg.solve(a, b), [(3, 3), (3, 3, 2, 2)]),
        (lambda a, b: np.linalg.solve(a, b), [(3, 3), ()]),
        (lambda a, b: np.linalg.lstsq(a, b), [(3, 2), (2,)]),
        (lambda a, b: np.linalg.lstsq(a, b), [(3, 2, 2), (2,)]),
        (lambda a, b: np.linalg.tensorsolve(a, b), [(2, 3, 5), (2, 3)]),
        (lambda a: np.linalg.tensorinv(a, 0), [(2, 2)]),
        (lambda a: np.linalg.cond(a), [(0, 0)]),
        (lambda a: np.linalg.pinv(a, 1e-3, rtol=1e-3), [(2, 2)]),
    ],
    ids=name_of,
)
def test_what_numpy_refuses_is_refused_in_its_words(f: Any, shapes: Any) -> None:
    args = [normal(*s) for s in shapes]
    with pytest.raises(Exception) as numpys:
        f(*args)
    with pytest.raises(type(numpys.value)) as ours:
        jit(f)(*args)
    assert str(ours.value) == str(numpys.value)


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda a: np.linalg.qr(a, "raw"), "mode='raw'"),
    ],
    ids=name_of,
)
def test_what_has_no_derivative_is_refused(f: Any, words: str) -> None:
    with pytest.raises(UnsupportedError, match=r"linalg_test\.py") as error:
        jit(f)(normal(3, 2))
    assert words in str(error.value)


# ---- what isn't determined, and what is computed late


def test_further_vectors_turn_with_the_others() -> None:
    """What doesn't depend on their basis has right derivatives, of second order too."""
    a, weights, direction = normal(5, 3), normal(5, 5), normal(5, 3, seed=1)

    def of_null_space(a: Any) -> Any:
        return np.sum(np.sin(projection(np.linalg.svd(a).U[:, 3:]) * weights))

    def size(a: Any) -> Any:
        return np.sum(grad(of_null_space, compile="never")(a) ** 2)

    found = np.sum(grad(size, compile="never")(a) * direction)
    h = 1e-5
    expected = (size(a + h * direction) - size(a - h * direction)) / (2 * h)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def residuals_or_solution(a: Any, b: Any) -> Any:
    x, residuals, _, _ = np.linalg.lstsq(a, b)
    a[0] = 7.0  # which comes too late
    return np.sum(residuals) ** 2 + len(residuals) if residuals.size else np.sum(x)


def test_residuals_of_least_squares() -> None:
    a, b = normal(6, 3), normal(6, 2)
    flat = a.copy()
    flat[:, 1] = 2 * flat[:, 0]
    f = jit(residuals_or_solution, compile="never")
    for x, y in ((a, b), (flat, b), (2 * a, b), (a[:3], b[:3]), (a, b[:, 0])):
        np.testing.assert_allclose(f(x.copy(), y), residuals_or_solution(x.copy(), y))
    check(lambda a, b: np.linalg.lstsq(a, b)[1] * 2.0, a, b)
    check(lambda a, b: np.concatenate([np.linalg.lstsq(a, b)[1], b[0]]), a, b)


def test_least_squares_in_single_precision() -> None:
    for kind in (np.float32, np.complex64):
        a, b = normal(6, 3).astype(kind), normal(6).astype(kind)
        found = jit(lambda a, b: np.linalg.lstsq(a, b, rcond=None))(a, b)
        for x, expected in zip(found, np.linalg.lstsq(a, b, rcond=None), strict=True):
            assert x.dtype == expected.dtype
            np.testing.assert_allclose(x, expected, rtol=1e-4)


@pytest.mark.every(4)
@pytest.mark.filterwarnings("ignore:overflow")  # of SciPy's residuals
@pytest.mark.parametrize("name", ["lstsq", "scipy's lstsq", "pinv", "polyfit"])
def test_least_squares_of_numbers_of_any_size(name: str) -> None:
    """Of numbers 2^n times as large all is the same but for powers of two."""
    tall, b = normal(6, 3), normal(6)
    f: Callable[[Any, Any], Any] = {
        "lstsq": lambda a, b: np.linalg.lstsq(a, b)[0],
        "scipy's lstsq": lambda a, b: scipy.linalg.lstsq(a, b)[0],
        "pinv": lambda a, b: np.linalg.pinv(a)[:, 0] * b[0],
        "polyfit": lambda a, b: np.polyfit(a[:, 0], b, 1)[:1],
    }[name]
    played = jit(f, compile="never")
    slopes = grad(lambda a, b: np.sum(f(a, b) * np.cos(np.arange(f(a, b).size))), (0, 1))
    along_a, along_b = slopes(tall, b)
    sizes = [(-100, 100), (100, 100)] if name == "polyfit" else [(-900, -900), (600, 600)]
    sizes += [] if name in ("pinv", "polyfit") else [(-1030, -900), (-600, -900), (900, 1000)]
    for n, m in sizes:
        given = np.ldexp(tall, n), np.ldexp(b, m)
        np.testing.assert_allclose(played(*given), f(*given), rtol=1e-9)
        for found, right, size in zip(
            slopes(*given), (along_a, along_b), (m - 2 * n, -n), strict=True
        ):
            if abs(size) < 1000:
                np.testing.assert_allclose(found, np.ldexp(right, size), rtol=1e-8)
    if name != "pinv":
        large = np.ldexp(b, 1020 - np.frexp(np.max(np.abs(b)))[1])
        np.testing.assert_allclose(played(tall * 4, large), f(tall * 4, large), rtol=1e-9)
