"""Sparse Jacobians and Hessians, their structure, linear operators."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from scipy import sparse
from scipy.sparse.linalg import eigsh, gmres, lsqr

from tapegrad import (
    as_linear_operator,
    depends,
    grad,
    hessian,
    jacobian,
    jacobian_sparsity,
    jit,
    jvp,
    sparse_hessian,
    sparse_jacobian,
)
from tapegrad.errors import ArgumentError, GradientError, RandomnessError, UnsupportedError
from tapegrad.sparsity import greedy

MODES = ["never", "always"]
RNG = np.random.default_rng(0)


def rosenbrock(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def bratu(u):
    n = int(np.sqrt(u.size))
    v = np.zeros((n + 2, n + 2))
    v[1:-1, 1:-1] = u.reshape(n, n)
    inner = v[1:-1, 1:-1]
    near = v[2:, 1:-1] + v[:-2, 1:-1] + v[1:-1, 2:] + v[1:-1, :-2]
    return ((near - 4 * inner) * (n + 1) ** 2 + np.exp(inner)).ravel()


@pytest.mark.parametrize("compile", MODES)
def test_hessian_of_chained_rosenbrock_is_tridiagonal(compile):
    found = sparse_hessian(rosenbrock, compile=compile)
    for x in (np.linspace(-1, 1, 7), RNG.normal(size=7)):
        matrix = found(x)
        assert isinstance(matrix, sparse.csr_array) and matrix.nnz == 19
        np.testing.assert_allclose(matrix.toarray(), scipy.optimize.rosen_hess(x), atol=1e-12)


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
@pytest.mark.parametrize("compile", MODES)
def test_jacobian_of_a_stencil(mode, compile):
    u = RNG.normal(size=25)
    matrix = sparse_jacobian(bratu, mode=mode, compile=compile, format="csc")(u)
    assert isinstance(matrix, sparse.csc_array) and matrix.nnz == 105
    np.testing.assert_allclose(matrix.toarray(), jacobian(bratu)(u))


def test_a_dense_row_and_a_dense_column_take_products_of_both_sides():
    def arrow(x):
        return np.concatenate([x[:1] * np.sum(x)[None], x[1:] ** 2 + x[0]])

    x = RNG.normal(size=40)
    found = sparse_jacobian(arrow)
    np.testing.assert_allclose(found(x).toarray(), jacobian(arrow)(x))
    colouring = found.cache.all_variants()[0].derivation.colouring
    assert colouring.kind == "both" and colouring.count < 10


def test_trees_of_arguments_are_flattened_one_after_the_other():
    def gathered(p, places):
        return {"y": p["a"][places] * p["b"], "z": p["a"] ** 2}

    found = sparse_jacobian(gathered)
    places = np.array([0, 1, 2, 2, 1])
    for k in range(3):
        p, now = {"a": np.arange(3.0) + k, "b": np.arange(5.0)}, np.roll(places, k)
        dense = jacobian(gathered)(p, now)
        wanted = np.vstack([np.hstack([dense[y]["a"], dense[y]["b"]]) for y in ("y", "z")])
        np.testing.assert_allclose(found(p, now).toarray(), wanted)


def test_the_structure_follows_captured_indices():
    places = np.array([0, 1, 1])
    found = sparse_jacobian(lambda x: x[places] ** 2)
    x = np.arange(1.0, 4.0)
    for now in ([0, 1, 1], [2, 2, 0], [0, 1, 1]):
        places[:] = now
        np.testing.assert_allclose(found(x).toarray(), jacobian(lambda x: x[places] ** 2)(x))


def test_branches_and_aux():
    def either(x):
        return (x[1:] * x[:-1] if x[0] > 0 else x[::-1] ** 2), "aux"

    found = sparse_jacobian(either, has_aux=True)
    for x in (np.arange(1.0, 5.0), -np.arange(1.0, 5.0)):
        matrix, aux = found(x)
        np.testing.assert_allclose(matrix.toarray(), jacobian(lambda x: either(x)[0])(x))
        assert aux == "aux"


def test_hessian_of_residuals_that_meet_by_indices():
    a, b = RNG.integers(0, 6, 20), RNG.integers(0, 6, 20)

    def energy(p):
        return np.sum(np.sin(p["u"][a] * p["v"][b]) ** 2)

    p = {"u": RNG.normal(size=6), "v": RNG.normal(size=6)}
    dense = hessian(energy)(p)
    wanted = np.block([[dense[y][x] for x in ("u", "v")] for y in ("u", "v")])
    np.testing.assert_allclose(sparse_hessian(energy)(p).toarray(), wanted, atol=1e-12)


def test_a_matrix_without_entries():
    assert sparse_jacobian(lambda x: np.floor(x))(np.ones(3)).nnz == 0
    assert sparse_hessian(lambda x: np.sum(x))(np.ones(3)).nnz == 0


def test_what_is_not_there_is_an_error():
    with pytest.raises(ArgumentError, match="format is one of"):
        sparse_jacobian(bratu, format="dense")
    with pytest.raises(GradientError, match="aren't one complex matrix"):
        sparse_hessian(lambda z: np.sum(np.abs(z) ** 2))(np.ones(2) + 1j)


def test_complex_numbers():
    """By the rules of `jacobian`: of real arguments or values; else of holomorphic functions."""

    def products(x):
        return x[1:] * x[:-1]

    x = np.array([0.3, 0.7, 1.1])
    z = x * np.exp(1j * x)
    for f, at, is_holomorphic in (
        (lambda x: np.exp(1j * products(x)), x, False),
        (lambda z: np.abs(products(z)) ** 2, z, False),
        (lambda z: np.exp(products(z)), z, True),
    ):
        dense = jacobian(f, holomorphic=is_holomorphic)(at)
        found = sparse_jacobian(f, holomorphic=is_holomorphic)(at)
        assert found.nnz == 4
        np.testing.assert_allclose(found.toarray(), dense, rtol=1e-14)
    with pytest.raises(GradientError, match="Say holomorphic=True"):
        sparse_jacobian(products)(z)
    with pytest.raises(GradientError, match="mode='forward'"):
        sparse_jacobian(lambda x: 1j * x, mode="reverse")(x)


def test_solvers_take_them():
    u = scipy.optimize.least_squares(
        bratu, np.zeros(16), jac=sparse_jacobian(bratu), tr_solver="lsmr"
    ).x
    np.testing.assert_allclose(bratu(u), 0, atol=1e-6)
    x = scipy.optimize.minimize(
        rosenbrock,
        np.zeros(5),
        method="trust-constr",
        jac=grad(rosenbrock),
        hess=sparse_hessian(rosenbrock),
    ).x
    np.testing.assert_allclose(x, 1, atol=1e-4)


def test_sparsity_is_that_of_the_program():
    found = jacobian_sparsity(lambda x, k: (x[1:] * x[:-1], x[k]), np.zeros(3), np.array([2, 0]))
    wanted = [[1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 0]]
    np.testing.assert_array_equal(found.toarray(), np.array(wanted, bool))


def test_depends_tells_polynomials_apart():
    found = depends(
        lambda x, y, n: {"a": x @ x * y, "b": np.sin(y) * n, "c": 3.0}, np.ones(2), 2.0, 3
    )
    assert found["a"] == ("quadratic", "linear", "not")
    assert found["b"][:2] == ("not", "general")
    assert found["c"] == ("not", "not", "not")


def test_a_linear_operator_multiplies_from_both_sides():
    def residuals(p, n):
        return np.tanh(p["a"] * n), np.outer(p["b"], p["a"])

    p = {"a": RNG.normal(size=3), "b": RNG.normal(size=2)}
    operator = as_linear_operator(residuals, p, 2)
    dense = jacobian(residuals)(p, 2)
    rows = [np.hstack([d[k].reshape(-1, d[k].shape[-1]) for k in ("a", "b")]) for d in dense]
    wanted = np.vstack(rows)
    assert operator.shape == (9, 5)
    np.testing.assert_allclose(operator @ np.eye(5), wanted)
    np.testing.assert_allclose(operator.T @ np.eye(9), wanted.T)
    step = lsqr(operator, np.ones(9))[0]
    np.testing.assert_allclose(step, np.linalg.lstsq(wanted, np.ones(9))[0], atol=1e-5)


def test_operators_of_complex_numbers():
    """Matrices of real and complex rows and columns, with complex vectors."""
    rng = np.random.default_rng(1)

    def draw(*shape):
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    squares, slopes, real = draw(4, 3), draw(4, 2), rng.normal(size=(3, 2))

    def f(p):
        return squares @ p["z"] ** 2 + slopes @ p["x"], real @ p["x"]

    p = {"x": rng.normal(size=2), "z": draw(3)}
    matrix = np.block([[slopes, 2 * squares * p["z"]], [real, np.zeros((3, 3))]])
    operator = as_linear_operator(f, p, compile="never")
    v, w = draw(5), draw(7)
    np.testing.assert_allclose(operator @ v, matrix @ v)
    np.testing.assert_allclose(operator @ v.real, matrix @ v.real)
    np.testing.assert_allclose(operator.H @ w, matrix.conj().T @ w)
    np.testing.assert_allclose(operator.T @ w, matrix.T @ w)
    np.testing.assert_allclose(operator.T @ w.real, matrix.T @ w.real)
    square = as_linear_operator(lambda z: squares[:3] @ z, p["z"], compile="never")
    found = lsqr(square, v[:3], atol=1e-14, btol=1e-14)[0]
    np.testing.assert_allclose(found, np.linalg.solve(squares[:3], v[:3]))


@pytest.mark.parametrize("f", [np.conj, np.real, lambda z: np.abs(z) ** 2])
def test_an_operator_of_a_function_that_isnt_holomorphic_is_refused(f):
    with pytest.raises(GradientError, match=r"isn't holomorphic there.*real and imaginary parts"):
        as_linear_operator(f, np.array([1.0 + 2.0j, 3.0]))


def test_an_operator_of_a_function_that_draws_is_refused():
    """Its two products would be with two matrices."""
    rng = np.random.default_rng(0)
    with pytest.raises(RandomnessError, match="Draw them outside"):
        as_linear_operator(lambda x: x * rng.normal(), np.ones(2))


@pytest.mark.parametrize("derive, words", [(sparse_jacobian, "jvp"), (sparse_hessian, "hvp")])
def test_matrices_inside_a_traced_function_are_refused_by_name(derive, words):
    f = (lambda x: np.sum(x**3)) if derive is sparse_hessian else (lambda x: x**3)
    with pytest.raises(UnsupportedError, match=f"holds plain numbers. Use .*{words}"):
        grad(lambda x: derive(f)(x).toarray().sum())(np.ones(2))


@pytest.mark.parametrize("how", [sparse_jacobian, jacobian_sparsity])
def test_a_matrix_is_the_callers(how):
    """What it drops or writes stays in later ones, and in earlier ones."""

    def f(x):
        return np.array([x[0] * x[1], x[1] ** 2, x[0] + x[2] ** 2])

    make = how(f) if how is sparse_jacobian else lambda x: how(f, x)
    first = make(np.array([1.0, 3.0, 2.0]))
    known = first.toarray()
    second = make(np.array([1.0, 0.0, 2.0]))
    second.eliminate_zeros()
    second.indices[:] = 0
    second.indptr[:] = 0
    np.testing.assert_array_equal(make(np.array([1.0, 3.0, 2.0])).toarray(), known)
    np.testing.assert_array_equal(first.toarray(), known)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_an_operator_in_a_trace_goes_to_solvers(compile):
    """Its Jacobian is that of the traced argument: of one run, so that what it draws is the same
    in products of both modes."""
    weights, b = np.array([[4.0, 1, 0], [1, 5, 2], [0, 2, 6]]), np.array([1.0, -2.0, 0.5])

    def solved(x):
        rng = np.random.default_rng(3)

        def f(y):
            return weights @ y + rng.normal(size=3) * np.sin(y) * y[0]

        operator = as_linear_operator(f, x)
        found = b @ gmres(operator, x, rtol=1e-13)[0]
        return found + b @ lsqr(operator, b, atol=1e-14, btol=1e-14)[0] + rng.normal()

    def plain(x):
        rng = np.random.default_rng(3)
        drawn = rng.normal(size=3)
        slopes = weights + np.diag(drawn * np.cos(x) * x[0])
        slopes = slopes + np.outer(drawn * np.sin(x), [1, 0, 0])
        return b @ np.linalg.solve(slopes, x) + b @ np.linalg.solve(slopes, b) + rng.normal()

    def largest(x):
        hessian = as_linear_operator(grad(lambda y: np.sum(y**4) + y @ weights @ y), x)
        return np.sum(eigsh(hessian, 1, tol=1e-13)[0])

    def plainly(x):
        return np.linalg.eigvalsh(np.diag(12 * x**2) + 2 * weights)[-1]

    x, h = np.array([0.3, 0.7, -0.4]), 1e-5
    for f, wanted in ((solved, plain), (largest, plainly)):
        np.testing.assert_allclose(jit(f, compile=compile)(x), wanted(x), rtol=1e-8)
        steps = [(wanted(x + h * e) - wanted(x - h * e)) / (2 * h) for e in np.eye(3)]
        np.testing.assert_allclose(grad(f, compile=compile)(x), steps, rtol=1e-6)


def test_entries_that_are_computed_by_themselves_need_no_search_for_few_colours(monkeypatch):
    """Of a large matrix it would be compiled."""

    def searched(*args):
        raise AssertionError("few colours were searched for")

    monkeypatch.setattr(greedy, "run", searched)
    u, v = np.cos(np.arange(4900.0)), np.sin(np.arange(4900.0))
    J = sparse_jacobian(bratu, compile="never")(u)
    assert J.nnz > greedy.UNCOMPILED_ENTRIES
    linear = bratu(v) - np.exp(v)
    np.testing.assert_allclose(J @ v, linear + np.exp(u) * v, rtol=1e-10)
    H = sparse_hessian(lambda u: u @ (bratu(u) - np.exp(u)) / 2 + np.sum(u**4), compile="never")(u)
    np.testing.assert_allclose(H @ v, linear + 12 * u**2 * v, rtol=1e-10)


@pytest.mark.every(2)
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_large_matrices_whose_entries_are_found_by_products(mode):
    """Three layers of neighbours, in which entries are made of many paths."""

    def f(x):
        for _ in range(3):
            x = np.sin(x[2:] * x[1:-1] + x[:-2])
        return x

    x, v = np.sin(np.arange(3000.0)), np.cos(np.arange(3000.0))
    J = sparse_jacobian(f, mode=mode, compile="never")(x)
    assert J.nnz > greedy.UNCOMPILED_ENTRIES
    np.testing.assert_allclose(J @ v, jvp(f, (x,), (v,))[1], rtol=1e-10)


@pytest.mark.every(2)
@pytest.mark.parametrize("n", [3, 4, 9])
def test_an_index_that_a_condition_keeps_within_bounds(n):
    """The other side of the condition isn't run where the index would be outside."""

    def f(x):
        return np.array([x[i + 1] ** 2 if i < n - 1 else 0.0 * x[0] for i in range(n)])

    def written(x):
        y = np.zeros(n)
        for i in range(n):
            y[i] = x[i] ** 3
            if i < n - 2:
                y[i + 2] = x[i + 1] * x[i]
        return y

    def before(x):  # of the first, the last
        return np.array([x[i] ** 2 if i % 2 else x[i - 1] * x[i] for i in range(n)])

    x = np.arange(1.0, n + 1)
    for g in (f, written, before):
        np.testing.assert_array_equal(sparse_jacobian(g)(x).toarray(), jacobian(g)(x))


def test_one_element_that_meets_all_others():
    """As an array of one: what is made of it alone is one number for many entries."""
    x = np.arange(1.0, 6.0)
    for f in (lambda x: x * x[-1:], lambda x: (x[None] * x[None, :1])[0], lambda x: x[:1] - x):
        for mode in ("forward", "reverse"):
            found = sparse_jacobian(f, mode=mode, compile="never")(x)
            np.testing.assert_array_equal(found.toarray(), jacobian(f)(x))
