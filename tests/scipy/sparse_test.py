"""scipy.sparse beyond what the table of names holds: matrices that change between calls, unobserved
runs, values as arguments, factors from outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import linalg

from tapegrad import grad, jit, jvp, value_and_grad, vjp
from tapegrad.errors import ArgumentError, ConversionError, TapegradError, UnsupportedError

D = np.array([[1.0, 0, 2], [0, 3, 0], [4, 0, 5]])
X = np.array([1.0, 2, 3])
_ARRAYS = ["csr_array", "csc_array", "coo_array", "dia_array", "lil_array", "bsr_array"]
KINDS = [*_ARRAYS, "csr_matrix", "csc_matrix"]
PRODUCTS = {
    "S @ x": lambda S, x: S @ x,
    "x @ S": lambda S, x: x @ S,
    "S.T @ x": lambda S, x: S.T @ x,
    "S.dot(x)": lambda S, x: S.dot(x),
}


def is_right(df: Any, f: Any, x: Any) -> bool:
    value, found = df(x)
    e = 1e-6 * np.cos(np.arange(x.size)).reshape(x.shape)
    slope = np.sum(found * e) * 2
    return bool(np.isclose(value, f(x)) and np.isclose(slope, f(x + e) - f(x - e), rtol=1e-4))


@pytest.mark.every(8)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", PRODUCTS)
def test_a_matrix_that_changes_is_followed(kind: str, how: str) -> None:
    S = getattr(sparse, kind)(D)
    f = lambda x: np.sum(np.sin(PRODUCTS[how](S, x)))  # noqa: E731
    df = value_and_grad(f, compile="never")
    assert is_right(df, f, X)
    if kind.startswith(("coo", "dia", "bsr")):
        S.data[S.data == 5] = 7.0
    else:
        S[2, 2] = 7.0
    assert is_right(df, f, X)
    S = getattr(sparse, kind)(np.flip(D, 0))  # another pattern, of as many
    assert is_right(df, f, X)
    S = getattr(sparse, kind)(D + 1)
    assert is_right(df, f, X)
    value, pullback = vjp(f, X)
    np.testing.assert_allclose(value, f(X))
    np.testing.assert_allclose(pullback(1.0)[0], df(X)[1])


def test_elements_that_change_in_place_are_operands() -> None:
    S = sparse.csr_array(D)
    df = value_and_grad(lambda x: np.sum(np.sin(S @ x)), compile="never")
    for _ in range(3):
        assert is_right(df, lambda x: np.sum(np.sin(S @ x)), X)
        S.data *= 1.5
        S.indices[:2] = S.indices[:2][::-1]
    assert len(df.tapes) == 1


def test_values_as_arguments_compiled_and_played() -> None:
    places = np.array([0, 1, 1, 2, 0]), np.array([1, 0, 2, 2, 1])

    def f(values, x):
        S = sparse.coo_array((values, places), shape=(3, 3)).tocsr()
        A = S + S.T + sparse.diags_array(np.full(3, 5.0))
        return np.sum(linalg.spsolve(A.tocsc(), x) ** 2) + np.sum(S @ x)

    values = np.array([0.3, 0.1, 0.4, 0.2, 0.5])
    played = value_and_grad(f, (0, 1), compile="never")
    value, (dv, dx) = played(values, X)
    assert value == pytest.approx(f(values, X), rel=1e-12)
    e = 1e-6 * np.cos(np.arange(5.0))
    assert 2 * dv @ e == pytest.approx(f(values + e, X) - f(values - e, X), rel=1e-6)
    compiled = value_and_grad(f, (0, 1), compile="always")(values, X)
    np.testing.assert_allclose(compiled[1][0], dv, rtol=1e-10)
    np.testing.assert_allclose(compiled[1][1], dx, rtol=1e-10)
    places[0][:] = places[0][::-1]  # it is read at each call
    assert played(values, X)[0] == pytest.approx(f(values, X), rel=1e-12)
    places[1][0] = 9
    with pytest.raises(ValueError, match="exceeds matrix dimension"):
        played(values, X)


def test_a_factor_from_outside() -> None:
    lu = linalg.splu(sparse.csc_array(D))
    solve = linalg.factorized(sparse.csc_array(D))
    for f in (lambda x: np.sum(lu.solve(x) ** 2), lambda x: np.sum(solve(x) ** 2)):
        df = value_and_grad(f, compile="never")
        assert is_right(df, f, X)
        assert is_right(df, f, 2 * X)
    lu = linalg.splu(sparse.csc_array(D + np.eye(3)))
    f = lambda x: np.sum(lu.solve(x, "T") ** 2)  # noqa: E731
    assert is_right(value_and_grad(f, compile="never"), f, X)


def test_dtypes_and_integers() -> None:
    for dtype in (np.float32, np.int64, np.complex64):
        S, x = sparse.csr_array(D.astype(np.int64)), X.astype(dtype)
        for f in (lambda x, S=S: S @ x, lambda x, S=S: x @ S, lambda x, S=S: (S * x) @ x):
            found, expected = jit(f, compile="never")(x), f(x)
            np.testing.assert_allclose(found, expected)
            assert found.dtype == expected.dtype


def test_a_singular_system_and_one_that_doesnt_converge() -> None:
    S = sparse.csc_array(np.ones((2, 2)))
    with pytest.warns(linalg.MatrixRankWarning):
        expected = linalg.spsolve(S, X[:2])
    assert np.all(np.isnan(expected))
    assert np.all(np.isnan(jit(lambda b: linalg.spsolve(S, b), compile="never")(X[:2])))
    f = jit(lambda b: linalg.cg(D, b, maxiter=1)[1], compile="never")
    assert f(X) == linalg.cg(D, X, maxiter=1)[1] == 1


@pytest.mark.every(4)
@pytest.mark.parametrize("method", [linalg.cg, linalg.gmres, linalg.bicgstab, linalg.lgmres])
def test_preconditioners_change_how_a_solution_is_found_alone(method: Any) -> None:
    definite, inverse = D @ D.T + np.eye(len(D)), np.diag(1 / np.diag(D @ D.T))
    for A in (lambda x: definite, lambda x: sparse.csr_array(definite) + sparse.diags_array(x**2)):
        for M in (
            lambda x: inverse,
            lambda x: sparse.csr_array(inverse),
            lambda x: linalg.aslinearoperator(inverse),
            lambda x: np.diag(1 / (np.diag(definite) + x**2)),
            lambda x: sparse.diags_array(1 / (np.diag(definite) + x**2)),
            lambda x: linalg.LinearOperator((3, 3), lambda v: v / (10 + x**2), dtype=float),
        ):

            def f(x: Any, A: Any = A, M: Any = M) -> Any:
                return np.sum(np.cos(method(A(x), x, M=M(x), rtol=1e-12, atol=0)[0]))

            steps = 1e-5 * np.eye(len(X))
            expected = [(f(X + h) - f(X - h)) / 2e-5 for h in steps]
            np.testing.assert_allclose(grad(f, compile="never")(X), expected, rtol=1e-5, atol=1e-8)


def test_an_end_that_is_far_from_a_solution_has_no_derivative() -> None:
    definite, inverse = D @ D.T + np.eye(len(D)), np.diag(1 / np.diag(D @ D.T))
    with pytest.raises(TapegradError, match="hasn't converged"):
        grad(lambda x: np.sum(linalg.tfqmr(definite, x, M=inverse)[0]))(X)


def test_what_is_refused_says_what_to_use() -> None:
    S, M = sparse.csr_array(D), sparse.csr_matrix(D)
    for f, words in (
        (lambda x: np.sum(M + np.diag(x)), "csr_array"),
        (lambda x: sparse.csr_array(np.diag(x))[0].sum(), r"S\[\[i\]\]"),
        (lambda x: np.sum(linalg.qmr(S, x, M1=np.diag(x))[0]), "only without M1"),
        (lambda x: np.sum(linalg.eigsh(np.diag(x), k=1, sigma=0)[0]), "only without sigma"),
        (lambda x: np.sum(linalg.eigs(np.diag(x), k=1)[0].real), "eigsh"),
        (lambda x: np.sum(linalg.expm_multiply(sparse.csr_array(np.diag(x)), x)), "in B alone"),
        (lambda x: sparse.csr_array(np.diag(x)).power(x[0]).sum(), "can't be traced"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            grad(f)(X)


def test_errors() -> None:
    S = sparse.csr_array(D)
    for f in (lambda x: S @ x[:2], lambda x: x[:2] @ S, lambda x: linalg.spsolve(S, x[:2])):
        with pytest.raises(ValueError):
            f(X)
        with pytest.raises(ValueError):
            grad(lambda x, f=f: np.sum(f(x)))(X)


def test_matrices_in_other_formats_are_no_new_trace() -> None:
    df = grad(lambda x: (sparse.diags(x).tocsc().T.tocsr() @ x).sum())
    for _ in range(4):
        np.testing.assert_allclose(df(np.array([1.0, 2.0])), [2.0, 4.0])
    assert df.cache_info().traces == 1


ROWS, COLUMNS = np.array([0, 1, 2, 2, 0]), np.array([0, 2, 1, 0, 0])
OTHER = sparse.csr_array(np.array([[1.0, 0, 2], [0, 3, 0], [4, 0, 5]]))
PARTS = {
    "element": lambda S: S[0, 0] * S[2, -2],
    "rows": lambda S: S[[2, 0, 2]].toarray(),
    "slices": lambda S: S[1:, ::2].toarray(),
    "mask": lambda S: S[np.array([True, False, True])].toarray(),
    "columns": lambda S: S[:, [0, 0]].toarray(),
    "block": lambda S: S[np.ix_([2, 0], [0, 1])].toarray(),
    "product": lambda S: (S @ S + OTHER @ S).toarray(),
    "times": lambda S: S.multiply(S).toarray() + S.multiply(OTHER).toarray(),
    "power": lambda S: S.power(3).toarray(),
    "functions": lambda S: abs(S).toarray() + S.sqrt().toarray(),
    "extrema": lambda S: S.max() + S.maximum(OTHER).toarray(),
    "reshape": lambda S: S.reshape(1, 9).toarray(),
    "blocks": lambda S: sparse.bmat([[S, None], [OTHER, S]]).toarray(),
    "format": lambda S: sparse.lil_array(S).toarray(),
}


@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix"])
@pytest.mark.parametrize("name", PARTS)
def test_parts_and_functions_of_elements(name: str, kind: str) -> None:
    """elements that are listed twice are one, their sum"""

    def f(x: Any) -> Any:
        S = getattr(sparse, kind)((x, (ROWS, COLUMNS)), shape=(3, 3))
        found = PARTS[name](S)
        return np.sum(np.cos(np.arange(np.size(found))).reshape(np.shape(found)) * found)

    x = np.array([1.2, 2.0, 3.0, 4.0, 0.5])
    value, g = value_and_grad(f, compile="never")(x)
    assert value == pytest.approx(f(x), rel=1e-13)
    along, h = np.cos(1 + np.arange(5.0)), 1e-6
    exact = (f(x + h * along) - f(x - h * along)) / (2 * h)
    np.testing.assert_allclose(g @ along, exact, rtol=1e-7)


BESIDE_ZEROS = {
    "toarray": lambda S: S.toarray(),
    "todense": lambda S: S.T.todense(),
    "extrema": lambda S: np.stack([S.max(), S.min()]),
    "total": lambda S: np.stack([S.sum(), S.mean(), S.trace()]),
    "sums": lambda S: S.sum(axis=0) + S.sum(axis=1) + S.mean(axis=0) + S.mean(axis=1),
    "diagonal": lambda S: S.diagonal(1),
    "product": lambda S: S @ np.arange(3.0) + np.arange(3.0) @ S,
    "sparse product": lambda S: (S @ OTHER).toarray() + (OTHER @ S.T).toarray(),
    "power of a matrix": lambda S: (sparse.csr_matrix(S[1:, 1:]) ** 3).toarray(),
    "functions": lambda S: (abs(S) + S.power(2) + S.sqrt()).toarray(),
    "joined": lambda S: sparse.hstack([S, OTHER]).toarray().max(),
    "norm": lambda S: linalg.norm(S) + linalg.norm(S, 1),
    "sum": lambda S: (S + OTHER).toarray() + (S + np.ones((3, 3))),
    "kron": lambda S: sparse.kron(S, sparse.eye_array(3)).toarray(),
}


@pytest.mark.every(3)
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", BESIDE_ZEROS)
def test_what_is_not_finite_stays_where_it_is(name: str, number: float) -> None:
    def f(x: Any) -> Any:
        return BESIDE_ZEROS[name](sparse.csr_array((x, (ROWS, COLUMNS)), shape=(3, 3)))

    x = np.array([1.2, 2.0, number, 4.0, 0.5])
    np.testing.assert_array_equal(jit(f)(x), f(x))


@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_zeros_that_scipy_leaves_out_are_in_no_product(number: float) -> None:
    b = np.array([1.0, number, 2.0])

    def f(x: Any) -> Any:
        S = sparse.csr_array(np.reshape(x, (3, 3)))
        parts = [S, S[[2, 1]], sparse.tril(S.T), sparse.vstack([S, OTHER]), sparse.kron(S, [[1.0]])]
        products = [np.sum(part @ b) if part.shape[0] == 1 else part @ b for part in parts]
        products += [np.reshape(S.multiply(b).toarray(), -1)]
        return np.concatenate([*products, np.reshape((S @ (S * b[1])).toarray(), -1)])

    x = np.array([1.0, 0, 2, 0, 0, 3, 4, 5, 0])
    np.testing.assert_array_equal(jit(f)(x), f(x))


@pytest.mark.parametrize("turned", [False, True])
def test_zeros_that_scipy_leaves_out_have_derivatives(turned: bool) -> None:
    def f(x: Any) -> Any:
        S = sparse.csr_array(np.reshape(x, (3, 3)))
        S = S.T if turned else S
        return np.sum(np.arange(9.0).reshape(3, 3) * (S @ S @ OTHER).toarray()) + np.sum(S @ x[:3])

    def dense(x: Any) -> Any:
        S = np.reshape(x, (3, 3)).T if turned else np.reshape(x, (3, 3))
        return np.sum(np.arange(9.0).reshape(3, 3) * (S @ S @ OTHER.toarray())) + np.sum(S @ x[:3])

    x = np.array([1.0, 0, 2, 0, 0, 3, 4, 5, 0])
    np.testing.assert_allclose(grad(f)(x), grad(dense)(x), rtol=1e-12)
    along = np.cos(np.arange(9.0))
    second, expected = (grad(lambda x, f=f: grad(f)(x) @ along)(x) for f in (f, dense))
    np.testing.assert_allclose(second, expected, rtol=1e-12)
    np.testing.assert_allclose(jvp(f, (x,), (along,))[1], grad(f)(x) @ along, rtol=1e-12)


UFUNCS = """sqrt sin tan arcsin arctan sinh tanh arcsinh arctanh expm1 log1p deg2rad rad2deg
absolute negative conjugate square rint"""


@pytest.mark.every(8)
@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "coo_array", "dia_array", "bsr_array"])
@pytest.mark.parametrize("name", UFUNCS.split())
def test_numpys_functions_of_matrices_call_their_methods(name: str, kind: str) -> None:
    def f(x: Any) -> Any:
        S = sparse.csr_array((x, ([0, 0, 1], [0, 2, 1])), shape=(3, 3)).asformat(kind[:3])
        return np.sum((getattr(np, name)(S).toarray() - 0.3) ** 2)

    x = np.array([0.3, 0.2, 0.6])
    for compile in ("never", "always"):
        value, slope = value_and_grad(f, compile=compile)(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-12)
        steps = 1e-6 * np.eye(3)
        expected = [(f(x + step) - f(x - step)) / 2e-6 for step in steps]
        np.testing.assert_allclose(slope, expected, atol=1e-6)


def test_functions_that_scipys_matrices_lack_are_errors_by_name() -> None:
    def at(function: Any) -> Any:
        matrix = sparse.csr_array((np.ones(2), ([0, 1], [1, 0])))
        with pytest.raises(Exception, match=function.__name__) as plain:
            function(matrix)
        with pytest.raises(type(plain.value), match=function.__name__):
            grad(lambda x: function(sparse.csr_array((x, ([0, 1], [1, 0])))).sum())(np.ones(2))

    for function in (np.exp, np.cos, np.cbrt):
        at(function)


MADE = {
    "vector": lambda x: sparse.csc_matrix(x),
    "vector, turned": lambda x: sparse.coo_matrix(x).T,
    "of elements": lambda x: sparse.bsr_array((x, ([0, 1, 1], [0, 1, 2])), shape=(4, 4)),
    "to": lambda x: sparse.csr_array((x, ([0, 1, 1], [0, 1, 2])), shape=(4, 4)).tobsr((2, 2)),
    "blocks": lambda x: sparse.bsr_matrix((x[None, :, None] * [1.0, 2.0], [1], [0, 0, 1])),
    "unordered": lambda x: sparse.bsr_array(
        (x[:2, None, None] * np.ones((2, 2, 2)), [1, 0], [0, 2, 2]), shape=(4, 4)
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_vectors_and_blocks(name: str) -> None:
    def f(x: Any) -> Any:
        S = MADE[name](x)
        return np.sum((S @ np.arange(1.0, S.shape[1] + 1)) ** 2) + np.sum(S.toarray() ** 3)

    x = np.array([1.2, 0.7, -0.4])
    value, slope = value_and_grad(f)(x)
    np.testing.assert_allclose(value, f(x), rtol=1e-12)
    expected = [(f(x + step) - f(x - step)) / 2e-6 for step in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-6)


def test_later_writes_to_blocks_count_and_their_pattern_is_scipys() -> None:
    def f(x: Any) -> Any:
        blocks = np.reshape(np.concatenate([x, x]), (2, 2, 2)).copy()
        S = sparse.bsr_array((blocks, [1, 0], [0, 1, 2]), shape=(4, 4))
        blocks[0] *= 3.0
        return np.sum((S @ np.arange(4.0)) ** 2) + np.sum(S.data)

    x = np.array([1.0, -2.0, 0.5, 3.0])
    np.testing.assert_allclose(value_and_grad(f)(x)[0], f(x), rtol=1e-14)

    def indices(x: Any) -> Any:
        S = sparse.csr_array((x, ([0, 0, 1, 1], [2, 3, 2, 3])), shape=(4, 4))
        return np.sum(sparse.bsr_array(S, blocksize=(2, 2)).indices) * np.sum(x)

    with pytest.raises(UnsupportedError, match="indices of a sparse array"):
        grad(indices)(x)  # those of blocks


def test_the_mean_of_no_elements_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        jit(lambda x: sparse.csr_array(np.diag(x)).mean())(np.zeros(0))


@pytest.mark.every(8)
@pytest.mark.parametrize("name", ["cg", "gmres", "bicgstab", "lsqr", "eigsh"])
@pytest.mark.parametrize("operator", [False, True])
def test_derivatives_of_iterations_whatever_their_weight(name, operator):
    """The system for them has a right side of another size than the user's: absolute tolerances
    say nothing of it, and its squares may be no numbers."""
    matrix = sparse.csr_array(np.diag([2.0, 3.0, 5.0, 4.0]) + 0.3)
    b, how = np.array([1.0, -2.0, 0.5, 1.5]), {"rtol": 1e-12, "atol": 1e-4}

    def f(x):
        a = matrix * x[0]
        a = linalg.LinearOperator((4, 4), lambda v: x[0] * (matrix @ v)) if operator else a
        if name == "lsqr":
            return linalg.lsqr(matrix * x[0], b, atol=1e-14, btol=1e-14)[0]
        if name == "eigsh":
            return linalg.eigsh(a, k=2, return_eigenvectors=False)
        return getattr(linalg, name)(a, x[1] * b, **how)[0]

    slope = grad(lambda x, weight=1.0: weight * np.sum(f(x)), compile="never")
    x = np.array([1.3, 0.7])
    total = np.sum(f(x))
    along = [-total / x[0], total / x[1]] if name not in ("lsqr", "eigsh") else None
    right = slope(x)
    if along is not None:
        np.testing.assert_allclose(right, along, rtol=1e-4)
    for size in (-700, -40, 40, 700):
        np.testing.assert_allclose(np.ldexp(slope(x, 2.0**size), -size), right, rtol=1e-6)


_INFINITE = np.array([[0, np.inf, 2], [np.nan, 0, 3], [4, -np.inf, 0]])
_OF_TWO: dict[str, Any] = {
    "S.multiply(T)": lambda S, T: S.multiply(T),
    "T.multiply(S)": lambda S, T: T.multiply(S),
    "S * T": lambda S, T: S * T,
    "S.multiply of a dense one": lambda S, T: S.multiply(T.toarray()),
    "S.multiply of one row": lambda S, T: S.multiply(T[[0]]),
    "S.maximum(T)": lambda S, T: S.maximum(T),
    "T.maximum(S)": lambda S, T: T.maximum(S),
    "S.minimum(T)": lambda S, T: S.minimum(T),
    "T.minimum(S)": lambda S, T: T.minimum(S),
    "S.maximum of a dense one": lambda S, T: sparse.csr_array(S.maximum(T.toarray())),
    "S / D": lambda S, T: S / T.toarray(),
    "S / number": lambda S, T: S / (T[0, 2] + 1),
    "S / np.float64(0)": lambda S, T: S / np.float64(0),
    "S + T": lambda S, T: S + T,
    "S @ T": lambda S, T: S @ T,
}


@pytest.mark.every(8)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("of", _OF_TWO.values(), ids=list(_OF_TWO))
def test_infinities_where_one_of_two_matrices_stores_nothing(of: Any) -> None:
    """NaN of 0 times infinity, and no NaN of T in a maximum, as in SciPy."""
    S, T = sparse.csr_array(D), sparse.csr_array(_INFINITE)
    make = lambda like, x: sparse.csr_array((x, like.indices, like.indptr), (3, 3))  # noqa: E731
    expected = of(S, T).toarray()
    of_first = jit(lambda x: of(make(S, x), T).toarray(), compile="never")(S.data)
    np.testing.assert_array_equal(of_first, expected)
    of_second = jit(lambda x: of(S, make(T, x)).toarray(), compile="never")(T.data)
    np.testing.assert_array_equal(of_second, expected)
    finite = sparse.csr_array(np.array([[0, 7.0, 2.5], [6.5, 0, 3], [4.5, 1.5, 0]]))
    for f, x in (
        (lambda x: np.sum(np.sin(of(make(S, x), finite).toarray())), S.data),
        (lambda x: np.sum(np.sin(of(S, make(finite, x)).toarray())), finite.data),
    ):
        if not np.isfinite(f(x)):
            continue
        assert is_right(value_and_grad(f, compile="never"), f, x)


def test_what_two_matrices_make_has_no_elements_in_an_order() -> None:
    """SciPy stores those that aren't 0; a dense operand makes a dense maximum."""
    S, T = sparse.csr_array(D), sparse.csr_array(D.T)
    make = lambda x: sparse.csr_array((x, S.indices, S.indptr), (3, 3))  # noqa: E731
    for count in (lambda x: x @ make(x).multiply(T).data, lambda x: x * make(x).multiply(T).nnz):
        with pytest.raises(UnsupportedError, match="once SciPy would"):
            jit(count, compile="never")(S.data)
    f = lambda x: np.exp(make(x).maximum(T.toarray()))  # noqa: E731
    np.testing.assert_allclose(jit(f, compile="never")(S.data), f(S.data))
    with pytest.raises(ZeroDivisionError):
        jit(lambda x: (make(x) / 0.0).toarray(), compile="never")(S.data)


@pytest.mark.parametrize("kind", [sparse.dok_array, sparse.dok_matrix])
def test_dicts_of_keys_as_arguments_are_refused(kind: Any) -> None:
    """They are dicts, too, but their truth is an array's."""
    with pytest.raises(ArgumentError, match="'S' is a dok_"):
        grad(lambda p, S: np.sum((S @ p) ** 2))(np.ones(2), kind(np.eye(2)))


@pytest.mark.parametrize("kind", [sparse.lil_matrix, sparse.dok_array, sparse.csr_array])
def test_a_traced_element_that_is_set_says_how_the_matrix_is_made(kind):
    def f(x):
        matrix = kind((3, 3))
        matrix[0, 1] = x[0]
        return np.sum(matrix @ x)

    with pytest.raises(ConversionError, match=r"matrix\[0, 1\] = x\[0\].*csr_array\(\(values"):
        grad(f)(np.ones(3))
