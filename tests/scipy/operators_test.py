"""Traced `LinearOperator`s, and matrices, in SciPy's iterations."""

import numpy as np
import pytest
from scipy.sparse import csr_array, linalg

from tapegrad import as_linear_operator, grad, hessian, jit, jvp, linearize, vjp
from tapegrad.errors import GradientError, UnsupportedError

N = 5
C = np.cos(np.arange(N * N) ** 1.5).reshape(N, N)
GENERAL, SYMMETRIC = 3 * np.eye(N) + 0.3 * C, C @ C.T / N + 2 * np.eye(N)
TALL = np.sin(np.arange(7 * N) ** 1.3).reshape(7, N)
B, LONG = np.arange(1.0, N + 1), np.cos(np.arange(7.0))
EXACT = {"rtol": 1e-12}


@pytest.fixture(params=["never", "always"])
def mode(request):
    """Played with NumPy, and compiled."""
    return request.param


def is_right(f, *args, mode):
    """Along a direction, at two points of one tape."""
    df = grad(f, tuple(range(len(args))), compile=mode)
    for scale in (1.0, 1.05):
        xs = [scale * x for x in args]
        steps = [1e-6 * np.cos(np.arange(x.size)).reshape(x.shape) for x in xs]
        found = sum(np.sum(d * e) for d, e in zip(df(*xs), steps, strict=True))
        there, back = [f(*[x + s * e for x, e in zip(xs, steps, strict=True)]) for s in (1, -1)]
        np.testing.assert_allclose(2 * found, there - back, rtol=1e-4)
    assert df.cache_info().traces == 1


def symmetric(A):
    return (A + A.T) / 2


@pytest.mark.every(8)
@pytest.mark.parametrize("name", ["cg", "minres", "gmres", "bicgstab"])
def test_systems_of_operators(name, mode):
    """x = A^-1 b, of a function, a matrix as an operator, and combinations of them."""
    of = symmetric if name in ("cg", "minres") else lambda A: A
    solve, A0 = getattr(linalg, name), SYMMETRIC if of is symmetric else GENERAL

    def loss(A, b):
        M = of(A)
        operator = linalg.LinearOperator((N, N), matvec=lambda v: M @ v)
        x, info = solve(operator, b, **EXACT)
        y, _ = solve(2.0 * linalg.aslinearoperator(M) + operator, b, x0=b, **EXACT)
        assert info == 0
        return np.sum(x**2) + np.sum(y)

    is_right(loss, A0, B, mode=mode)


def test_operators_of_other_kinds(mode):
    """A subclass of the user's, and one that was made outside, beside traced values."""

    class Mine(linalg.LinearOperator):
        def __init__(self, A):
            self.A = A
            super().__init__(np.dtype(float), A.shape)

        def _matvec(self, v):
            return self.A @ v

    outside = linalg.LinearOperator((N, N), matvec=lambda v: GENERAL @ v)
    matrix = linalg.aslinearoperator(csr_array(GENERAL))

    def loss(A, b):
        x, _ = linalg.gmres(Mine(A), b, **EXACT)
        y, _ = linalg.bicgstab(outside + matrix, b, **EXACT)
        return np.sum(x**2) + np.sum(y * (outside @ b)) + np.sum(outside.matvec(y))

    is_right(loss, GENERAL, B, mode=mode)


def test_bicg_takes_the_transpose(mode):
    """It needs rmatvec."""

    def loss(A, b):
        operator = linalg.LinearOperator((N, N), lambda v: A @ v, rmatvec=lambda v: A.T @ v)
        return np.sum(linalg.bicg(operator, b, **EXACT)[0] ** 2)

    is_right(loss, GENERAL, B, mode=mode)


def test_second_derivatives_and_forward_mode():
    """The systems of the derivative are differentiated in turn."""

    def loss(b):
        operator = linalg.LinearOperator((N, N), matvec=lambda v: SYMMETRIC @ v)
        return np.sum(linalg.cg(operator, b**2, **EXACT)[0] ** 2)

    expected = hessian(lambda b: np.sum(np.linalg.solve(SYMMETRIC, b**2) ** 2))(B)
    np.testing.assert_allclose(hessian(loss)(B), expected, rtol=1e-7)
    operator = lambda A: linalg.LinearOperator((N, N), matvec=lambda v: A @ v)  # noqa: E731
    _, t = jvp(lambda A: linalg.gmres(operator(A), B, **EXACT)[0], (GENERAL,), (C,))
    x = np.linalg.solve(GENERAL, B)
    np.testing.assert_allclose(t, -np.linalg.solve(GENERAL, C @ x), rtol=1e-8)


@pytest.mark.every(4)
@pytest.mark.parametrize("name", ["lsqr", "lsmr"])
def test_least_squares(name, mode):
    """min |A x - b|^2 + damp^2 |x|^2, of a matrix, a sparse one, and an operator."""
    solve, exact = getattr(linalg, name), {"atol": 1e-14, "btol": 1e-14}

    def loss(A, b):
        operator = linalg.LinearOperator(A.shape, lambda v: A @ v, rmatvec=lambda v: A.T @ v)
        S = csr_array((A[0], (np.arange(N), np.arange(N))), shape=(7, N))
        x, y = solve(A, b, **exact)[0], solve(operator, b, damp=A[0, 1], **exact)[0]
        return np.sum(x**2) + np.sum(y) + np.sum(solve(S + csr_array(TALL), b, **exact)[0])

    is_right(loss, TALL, LONG, mode=mode)


def test_what_an_iteration_tells_of_itself_has_no_derivative():
    """It isn't taken for a constant; and fewer equations than unknowns are refused."""
    with pytest.raises(GradientError, match="compute it from x"):
        grad(lambda A: linalg.lsqr(A, LONG)[3])(TALL)
    with pytest.raises(UnsupportedError, match="fewer equations than unknowns"):
        grad(lambda A: np.sum(linalg.lsmr(A, B)[0]))(TALL.T)


def test_eigenvalues_and_vectors(mode):
    """Of symmetric matrices and operators, in SciPy's order."""

    def loss(A):
        M, weights = symmetric(A), np.array([1.0, 2.0])
        operator = linalg.LinearOperator((N, N), matvec=lambda v: M @ v)
        w, v = linalg.eigsh(operator, 2, which="SA")
        last = linalg.eigsh(M, 2, return_eigenvectors=False)
        return weights @ w + weights @ last + np.sum(v**2 * B[:, None])

    is_right(loss, SYMMETRIC + np.diag(B), mode=mode)


def test_singular_values_and_vectors(mode):
    """The product of what is found has no sign to choose."""

    def loss(A):
        u, s, vh = linalg.svds(A, 2)
        values = linalg.svds(A, 2, return_singular_vectors=False)
        return np.sum(((u * s) @ vh) ** 2 * TALL) + np.sum(values * np.array([1.0, 2.0]))

    is_right(loss, TALL, mode=mode)


def test_equal_eigenvalues():
    """Their sum has a derivative, and a vector of one of them has none."""
    A = np.diag([1.0, 2.0, 3.0, 5.0, 5.0])
    total = grad(lambda A: np.sum(linalg.eigsh(symmetric(A), 2)[0]))(A)
    np.testing.assert_allclose(total, np.diag([0, 0, 0, 1.0, 1.0]), atol=1e-8)
    assert np.isnan(grad(lambda A: linalg.eigsh(symmetric(A), 2)[1][4, 0])(A)).any()


def test_eigenvalues_of_a_matrix_of_single_precision_are_single():
    A = (np.diag(np.arange(1.0, 8.0)) + 0.1).astype(np.float32)
    for f in (
        lambda A: linalg.eigsh(A, 3, return_eigenvectors=False),
        lambda A: linalg.svds(A, 3, return_singular_vectors=False),
    ):
        found = vjp(f, A)[0]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, f(A), rtol=1e-5)


POINT, V = np.array([1.0, 2.0, -0.5]), np.array([1.0, -1.0, 2.0])
Z = np.array([1.0 + 2.0j, 0.5, -1.0j])
COMPLEX = np.array([[1.0, 2.0j, 0.0], [1.0 + 1.0j, 3.0, 1.0], [0.0, 2.0, 1.0j]])


def moved(x):
    return x**2 * x[::-1] + x[0]


class ByMatrices(linalg.LinearOperator):
    """A class that has no products with vectors."""

    def __init__(self, A):
        self.A = A
        super().__init__(np.dtype(A.dtype), A.shape)

    def _matmat(self, X):
        return self.A @ X

    def _adjoint(self):
        return ByMatrices(np.conj(self.A.T))


# Asked of an operator M and a vector v, and the same of a matrix.
ASKED = {
    "M v": (lambda M, v: M @ v, lambda M, v: M @ v),
    "M V": (lambda M, v: M @ np.outer(v, v[:2]), lambda M, v: M @ np.outer(v, v[:2])),
    "M [..]": (lambda M, v: M @ [1.0, v[0], v[1]], lambda M, v: M @ np.array([1.0, v[0], v[1]])),
    "M * v": (lambda M, v: M * v, lambda M, v: M @ v),
    "M(v)": (lambda M, v: M(v), lambda M, v: M @ v),
    "v M": (lambda M, v: v @ M, lambda M, v: v @ M),
    "dot": (lambda M, v: M.dot(v), lambda M, v: M @ v),
    "matvec": (lambda M, v: M.matvec(v), lambda M, v: M @ v),
    "rmatvec": (lambda M, v: M.rmatvec(v), lambda M, v: np.conj(M.T) @ v),
    "matmat": (lambda M, v: M.matmat(np.outer(v, v)), lambda M, v: M @ np.outer(v, v)),
    "rmatmat": (lambda M, v: M.rmatmat(np.outer(v, v)), lambda M, v: np.conj(M.T) @ np.outer(v, v)),
    "M^T": (lambda M, v: M.T @ v, lambda M, v: M.T @ v),
    "M^H": (lambda M, v: M.H @ v, lambda M, v: np.conj(M.T) @ v),
    "sum": (lambda M, v: (M - M.T) @ v, lambda M, v: (M - M.T) @ v),
    "product": (lambda M, v: (M.T @ M).T @ v, lambda M, v: M.T @ M @ v),
    "power": (lambda M, v: (M**2).H @ v, lambda M, v: np.conj(M.T) @ np.conj(M.T) @ v),
    "scaled": (lambda M, v: (2.0 * -M).H @ v, lambda M, v: -2.0 * np.conj(M.T) @ v),
    "times v[0]": (lambda M, v: (v[0] * M / v[1]).T @ v, lambda M, v: v[0] / v[1] * M.T @ v),
    "again": (lambda M, v: linalg.aslinearoperator(M) @ v, lambda M, v: M @ v),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("asked", ASKED)
def test_products_with_operators(asked):
    """With a traced vector of operators from outside, and with a plain one of those made inside."""
    of_operator, of_matrix = ASKED[asked]
    J = lambda x: np.diag(2 * x * x[::-1]) + np.diag(x**2)[:, ::-1] + [[1.0, 0, 0]] * 3  # noqa: E731
    outside = as_linear_operator(moved, POINT)

    def plain(x, v):
        return np.sum(np.abs(of_matrix(J(x), v)) ** 2)

    def inside(x):
        return np.sum(np.abs(of_operator(as_linear_operator(moved, x), V)) ** 2)

    makes = (
        lambda: outside,
        lambda: linalg.aslinearoperator(J(POINT)),
        lambda: ByMatrices(J(POINT)),
    )
    slopes = [jvp(lambda v: plain(POINT, v), (V,), (e,))[1] for e in np.eye(3)]
    for make in makes:
        found = grad(lambda v, make=make: np.sum(np.abs(of_operator(make(), v)) ** 2))(V)
        np.testing.assert_allclose(found, slopes, rtol=1e-12)
    steps = [(plain(POINT + 1e-6 * e, V) - plain(POINT - 1e-6 * e, V)) / 2e-6 for e in np.eye(3)]
    np.testing.assert_allclose(grad(inside)(POINT), steps, rtol=1e-7)


@pytest.mark.every(2)
@pytest.mark.parametrize("asked", ASKED)
def test_products_with_complex_operators(asked):
    """The adjoint is conjugate, and the transpose isn't."""
    of_operator, of_matrix = ASKED[asked]
    found = jit(lambda z: of_operator(linalg.aslinearoperator(COMPLEX * z[0]), z))(Z)
    np.testing.assert_allclose(found, of_matrix(COMPLEX * Z[0], Z), rtol=1e-12)


def test_operators_have_the_same_errors():
    """As SciPy raises them."""
    operator = as_linear_operator(moved, POINT)
    for f, v in ((operator.matvec, np.ones((3, 2))), (lambda v: operator @ v, np.ones(4))):
        with pytest.raises(ValueError, match="dimension mismatch"):
            grad(lambda v, f=f: np.sum(f(v)))(v)


def test_operators_within_are_traced_once():
    """Whoever asks for products, what the operator holds of the derivatives isn't read."""
    scale = {"by": 2.0}

    def f(y):
        return moved(scale["by"] * y)

    outside = as_linear_operator(moved, POINT)
    uses = (
        lambda x: as_linear_operator(f, x) @ V + outside @ x,
        lambda x: as_linear_operator(f, x).T.matvec(x),
        lambda x: linalg.gmres(as_linear_operator(f, x), V, rtol=1e-13)[0],
        lambda x: sum(map(linearize(f, x)[1], [V, x])),
    )
    for use in uses:
        scale["by"], loss = 2.0, lambda x, use=use: np.sum(use(x) ** 2)
        g = grad(loss, compile="never")
        for k in range(3):
            g(POINT + k)
        assert g.cache_info().traces == 1
        scale["by"] = 3.0  # which the operator's function reads
        steps = [(loss(POINT + 1e-6 * e) - loss(POINT - 1e-6 * e)) / 2e-6 for e in np.eye(3)]
        np.testing.assert_allclose(g(POINT), steps, rtol=1e-6, atol=1e-9)


def test_iterations_of_which_nothing_is_traced():
    """SciPy itself answers."""
    of_jit = linalg.LinearOperator((3, 3), matvec=jit(lambda v: 4.0 * v))
    helped = {"M": linalg.LinearOperator((3, 3), matvec=lambda v: v / 4)}
    for operator, options in ((of_jit, {}), (4.0 * np.eye(3), helped)):
        found = grad(lambda x, A=operator, o=options: linalg.cg(A, V, **o)[0] @ x)(POINT)
        np.testing.assert_allclose(found, V / 4, rtol=1e-12)
