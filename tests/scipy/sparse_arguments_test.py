"""Sparse matrices as arguments: derivatives with respect to the elements that they store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from tapegrad import grad, hvp, jacobian, jit, jvp, simplegrad, value_and_grad, vjp, vmap
from tapegrad.errors import ArgumentError, UnsupportedError
from tapegrad.optim import adam
from tapegrad.trees import flatten, tree_map

X = np.array([1.0, -2.0, 0.5])
KINDS = [f"{f}_{kind}" for f in ("csr", "csc", "coo") for kind in ("array", "matrix")]


def made(
    kind: str, m: int = 4, n: int = 3, count: int = 9, seed: int = 0, dtype: Any = float
) -> Any:
    """One with empty rows, a zero that is stored, and for COO with repeats, out of order."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(0, m, count), rng.integers(0, n, count)
    values = rng.standard_normal(count).astype(dtype)
    values[:1] = 0
    found = sparse.coo_array((values, (rows, columns)), (m, n))
    return getattr(sparse, kind)(found if kind[:3] == "coo" else found.asformat(kind[:3]))


def repeated(kind: str) -> Any:
    """One with an element that is stored in two parts, and columns out of order."""
    parts = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2, 0, 2, 1]), np.array([0, 3, 3, 4])
    return getattr(sparse, kind)(parts, (3, 3))


def dense(x: Any) -> Any:
    return x.toarray() if hasattr(x, "toarray") else np.asarray(x)


PROGRAMS: dict[str, Any] = {
    "S @ x": lambda S, T, x: S @ x,
    "x @ S.T": lambda S, T, x: x @ S.T,
    "S @ X": lambda S, T, x: S @ np.outer(x, x),
    "S.T @ T": lambda S, T, x: S.T @ T,
    "S + T": lambda S, T, x: S + T,
    "S - 2 T / 3": lambda S, T, x: S - 2 * T / 3,
    "-S": lambda S, T, x: -S,
    "multiply": lambda S, T, x: S.multiply(T),
    "multiply a row": lambda S, T, x: S.multiply(x),
    "power": lambda S, T, x: S.power(2),
    "tanh": lambda S, T, x: S.tanh(),
    "sum": lambda S, T, x: S.sum(),
    "mean": lambda S, T, x: S.mean(),
    "toarray": lambda S, T, x: S.toarray(),
    "tocsr": lambda S, T, x: S.tocsr(),
    "tocsc": lambda S, T, x: S.tocsc(),
    "diagonal": lambda S, T, x: S.diagonal(),
    "trace": lambda S, T, x: S.trace(),
    "data": lambda S, T, x: S.data**2,
    "vstack": lambda S, T, x: sparse.vstack([S, T]),
    "hstack": lambda S, T, x: sparse.hstack([S, T]),
    "block_diag": lambda S, T, x: sparse.block_diag([S, T]),
    "tril": lambda S, T, x: sparse.tril(S),
    "rows": lambda S, T, x: S.tocsr()[[0, -1]],
    "columns": lambda S, T, x: S.tocsr()[:, ::2],
    "conj": lambda S, T, x: S.conj().T,
}


@pytest.mark.every(8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_results_are_scipys_and_gradients_those_of_each_element(kind: str, name: str) -> None:
    f = PROGRAMS[name]
    cases = [(made(kind), made(kind, seed=1)), (made(kind, count=0), made(kind))]
    if kind[:3] != "coo":
        cases.append((repeated(kind), made(kind, 3, 3)))
    for S, T in cases:
        wanted = f(S.copy(), T.copy(), X)
        found = jit(f, compile="never")(S, T, X)
        assert type(found) is type(wanted)
        np.testing.assert_allclose(dense(found), dense(wanted), rtol=1e-12, atol=1e-14)
        assert dense(found).dtype == dense(wanted).dtype
        weights = np.cos(np.arange(dense(wanted).size)).reshape(dense(wanted).shape)

        def loss(S: Any, T: Any = T, weights: Any = weights) -> Any:
            found = f(S, T, X)
            return np.sum((found.toarray() if hasattr(found, "toarray") else found) * weights)

        g = grad(loss, compile="never")(S)
        assert type(g) is type(S)
        assert g.shape == S.shape
        for k in range(S.data.size):
            up, down = S.copy(), S.copy()
            up.data[k] += 1e-6
            down.data[k] -= 1e-6
            assert g.data[k] == pytest.approx((loss(up) - loss(down)) / 2e-6, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("compile", ["always", "never"])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_keep_the_pattern(kind: str, compile: str) -> None:
    S = made(kind)
    g = grad(lambda S, x: np.sum((S @ x) ** 2), compile=compile)(S, X)
    assert type(g) is type(S)
    rows, columns = S.tocoo().row, S.tocoo().col
    np.testing.assert_array_equal(g.tocoo().row, rows)
    np.testing.assert_array_equal(g.tocoo().col, columns)
    np.testing.assert_allclose(g.tocoo().data, 2 * (S @ X)[rows] * X[columns])
    for dtype in (np.float32, np.complex128):
        T = S.astype(dtype)
        g = grad(lambda S: np.sum(np.abs(S @ X) ** 2), compile=compile)(T)
        assert g.dtype == dtype


def test_one_trace_serves_all_elements_of_a_pattern() -> None:
    df = grad(lambda S, x: np.sum((S @ x) ** 2), compile="never")
    S = made("csr_array")
    for _ in range(3):
        np.testing.assert_allclose(df(S, X).data, grad(lambda S: np.sum((S @ X) ** 2))(S).data)
        S = S * 1.5
    assert len(df.tapes) == 1
    g = df(S, X)
    g.indices[:] = 0  # the caller's own
    S.data[:] = 1.0
    assert df(S, X).indices.tolist() == S.indices.tolist()
    other = S.copy()
    other.indices[:2] = 2 - other.indices[:2]
    want = 2 * (other @ X)[other.tocoo().row] * X[other.indices]
    np.testing.assert_allclose(df(other, X).data, want)
    other.indices[:2] = 2 - other.indices[:2]  # in place: a pattern is read at each call
    np.testing.assert_allclose(df(other, X).data, df(S, X).data)


def test_each_derivative_takes_them() -> None:
    S = made("csr_array")
    f = lambda S: np.sum((S @ X) ** 2)  # noqa: E731
    _, pullback = vjp(f, S)
    g = grad(f)(S)
    np.testing.assert_allclose(pullback(1.0)[0].data, g.data)
    assert jvp(f, (S,), (S,))[1] == pytest.approx(np.sum(g.data * S.data))
    np.testing.assert_allclose(hvp(f)(S, S).data, g.data)  # it is quadratic
    np.testing.assert_allclose(value_and_grad(f)(S)[1].data, g.data)
    with pytest.raises(ArgumentError, match="stands alone"):
        simplegrad(f, S)
    np.testing.assert_allclose(grad(lambda p: f(p["W"]))({"W": S})["W"].data, g.data)
    seed = S * 2
    np.testing.assert_allclose(vjp(lambda S: S * 3.0, S)[1](seed)[0].data, 3 * seed.data)
    for many in (jacobian(lambda S: S @ X), vmap(lambda S: S @ X)):
        with pytest.raises(ArgumentError, match=r"pass S\.data"):
            many(S)


def test_trees_hold_the_elements_alone() -> None:
    S = made("csr_array")
    g = grad(lambda S: np.sum((S @ X) ** 2))(S)
    stepped = tree_map(lambda p, g: p - 0.1 * g, {"W": S, "b": X}, {"W": g, "b": X})
    np.testing.assert_allclose(stepped["W"].toarray(), (S - 0.1 * g).toarray())
    vector, back = flatten({"W": S})
    assert vector.shape == S.data.shape
    np.testing.assert_array_equal(back(vector)["W"].toarray(), S.toarray())
    optimiser = adam(0.1)
    after, _ = optimiser.update(g, optimiser.init(S), S)
    assert type(after) is sparse.csr_array
    assert np.all(after.indices == S.indices)


def test_what_is_no_number_of_a_pattern_is_refused() -> None:
    S = made("csr_array")
    with pytest.raises(ArgumentError, match="integers or booleans"):
        grad(lambda S: S.sum())(S.astype(int))
    with pytest.raises(ArgumentError, match="no derivative"):
        grad(lambda S: S.sum())(S.tolil())
    with pytest.raises(UnsupportedError, match="can't be a result"):
        at = np.array([0, 1])
        jit(lambda v: sparse.csr_array((v, (at, at)), (2, 2)))(np.ones(2))
    one = sparse.coo_array(X)
    np.testing.assert_array_equal(jit(lambda S, x: 2 * x)(one, X), 2 * X)


def test_isinstance_and_format_are_those_of_the_matrix() -> None:
    def f(S: Any) -> Any:
        right = isinstance(S, sparse.csr_array) and sparse.issparse(S) and S.format == "csr"
        return S.sum() * (2.0 if right else 0.0), S.nnz, S.indptr

    S = made("csr_array")
    total, count, starts = jit(f, compile="never")(S)
    assert total == pytest.approx(2 * S.sum())
    assert count == S.nnz
    np.testing.assert_array_equal(starts, S.indptr)


def test_calls_after_the_first_walk_no_tree() -> None:
    df = value_and_grad(lambda p, x: np.sum((p["W"] @ x) ** 2), compile="always")
    S = made("coo_array")
    for k in range(8):
        value, g = df({"W": S * (k + 1.0)}, X)
        assert value == pytest.approx(np.sum((S @ X * (k + 1)) ** 2))
        assert type(g["W"]) is sparse.coo_array
    assert df.front.fast_hits > 2
    T = sparse.coo_array((S.data, S.coords[::-1]), (4, 4))
    other = np.append(X, 0.5)
    for S, x in ((T, other), (made("coo_array"), X), (made("csr_array"), X)):
        value, g = df({"W": S}, x)
        assert value == pytest.approx(np.sum((S @ x) ** 2))
        assert type(g["W"]) is type(S)
        np.testing.assert_array_equal(g["W"].tocoo().row, S.tocoo().row)


def _written(B: Any, A: Any) -> Any:
    """A sum over A after B's elements are written to: it shows what both share."""
    B.data[0] = 7 * B.data[0]
    B.data *= 2
    return A.sum() + 3 * B.sum()


def _set(B: Any, A: Any) -> Any:
    B.data = B.data**2
    return A.sum() + 3 * B.sum()


def _scaled(B: Any, A: Any) -> Any:
    B *= 2
    B /= 3
    return A.sum() + 3 * B.sum()


WAYS: dict[str, Any] = {
    "itself": lambda S: S,
    "copy": lambda S: S.copy(),
    "T": lambda S: S.T,
    "transpose, copied": lambda S: S.transpose(copy=True),
    "tocsr": lambda S: S.tocsr(),
    "tocsc": lambda S: S.tocsc(),
    "tocoo": lambda S: S.tocoo(),
    "tocsr, copied": lambda S: S.tocsr(copy=True),
    "tocoo, shared": lambda S: S.tocoo(copy=False),
    "astype": lambda S: S.astype(float),
    "astype, shared": lambda S: S.astype(float, copy=False),
    "conj": lambda S: S.conj(),
    "conj, shared": lambda S: S.conj(copy=False),
    "the class": lambda S: getattr(sparse, f"{S.format}_array")(S),
    "the class, copied": lambda S: getattr(sparse, f"{S.format}_array")(S, copy=True),
    "reshape": lambda S: S.reshape((3, 4)),
    "reshape to the same": lambda S: S.reshape((4, 3)),
    "plus 0": lambda S: S + 0,
    "rows": lambda S: S.tocsr()[1:],
}


@pytest.mark.every(8)
@pytest.mark.parametrize("write", [_written, _set, _scaled])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_written_is_seen_where_scipy_shares_elements(
    way: str, kind: str, write: Any
) -> None:
    S = made(kind)

    def f(S: Any) -> Any:
        return write(WAYS[way](S), S)

    kept, S.data = S.data.copy(), S.data + 0.5
    expected = f(S.copy())
    S.data = kept + 0.5
    value, slope = value_and_grad(f, compile="never")(S)
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    np.testing.assert_array_equal(S.data, kept + 0.5)
    along, step = np.random.default_rng(1).standard_normal(S.nnz), 1e-5
    above, below = S.copy(), S.copy()
    above.data, below.data = S.data + step * along, S.data - step * along
    np.testing.assert_allclose(slope.data @ along, (f(above) - f(below)) / (2 * step), rtol=1e-6)


ROWS, COLUMNS = np.array([2, 0, 1, 0]), np.array([1, 2, 0, 0])
OF_GIVEN: dict[str, Any] = {
    "itself": lambda C: C,
    "T": lambda C: C.T,
    "copy": lambda C: C.copy(),
    "the class": lambda C: sparse.coo_array(C),
    "tocsr": lambda C: C.tocsr(),
}


@pytest.mark.parametrize("first", ["given", "made"])
@pytest.mark.parametrize("way", OF_GIVEN)
def test_elements_in_a_coo_matrix_of_captured_places_are_those_given(way: str, first: str) -> None:
    """SciPy's COO shares them in both directions, whatever is written to when."""

    def f(x: Any) -> Any:
        d = 2 * x
        C = sparse.coo_array((d, (ROWS, COLUMNS)), (3, 3))
        D, written = OF_GIVEN[way](C), d if first == "given" else C.data
        written[1] = x[0] ** 2
        total = C.sum() + 3 * D.sum() + 5 * np.sum(d) + C.nnz
        return total + np.arange(3.0) @ (D @ np.arange(1.0, 4))

    x = np.array([3.0, 0.5, 0.25, 2])
    value, slope = value_and_grad(f, compile="never")(x)
    np.testing.assert_allclose(value, f(x), rtol=1e-14)
    steps = 1e-6 * np.eye(4)
    np.testing.assert_allclose(slope, [(f(x + s) - f(x - s)) / 2e-6 for s in steps], rtol=1e-7)


def _assigned(d: Any, made: Any) -> Any:
    S = made(d)
    d[0] = 3 * d[1]
    return S.sum() + 2 * np.sum(d)


def _scaled_in_place(d: Any, made: Any) -> Any:
    S = made(d)
    T, C = S.T, S.tocoo()
    S *= 2
    S /= d[1] + 4
    return S.sum() + 3 * T.sum() + 5 * C.sum() + 7 * np.sum(d)


def _set_in_coo(d: Any, made: Any) -> Any:
    S = made(d)
    C = S.tocoo()
    C.data[0] = 5 * d[1]
    return S.sum() + 3 * C.sum() + 7 * np.sum(d)


def _made_again(d: Any, made: Any) -> Any:
    S = made(d)
    M = getattr(sparse, f"{S.format}_matrix")(S)
    S *= 2
    return S.sum() + 3 * M.sum()


OF_ARRAYS: dict[str, Any] = {
    "coo": lambda d: sparse.coo_array((d, (ROWS, COLUMNS)), (3, 3)),
    "coo, copied": lambda d: sparse.coo_matrix((d, (ROWS, COLUMNS)), (3, 3), copy=True),
    "csr": lambda d: sparse.csr_array((d, (ROWS, COLUMNS)), (3, 3)),
    "csc": lambda d: sparse.csc_array((d, (ROWS, COLUMNS)), (3, 3)),
    "diags": lambda d: sparse.diags_array(d),
    "dense": lambda d: sparse.coo_array(d.reshape(2, 2)),
}


WRITTEN = [(way, f) for way in OF_ARRAYS for f in (_assigned, _scaled_in_place, _made_again)]
WRITTEN += [(way, _set_in_coo) for way in ("coo", "coo, copied", "diags")]


@pytest.mark.parametrize(("way", "write"), WRITTEN)
def test_matrices_share_the_elements_that_they_are_made_of_as_scipys_do(
    way: str, write: Any
) -> None:
    x = np.array([3.0, 0.5, 0.25, 2])

    def f(x: Any) -> Any:
        return write(x * 1.0, OF_ARRAYS[way])

    value, slope = value_and_grad(f, compile="never")(x)
    np.testing.assert_allclose(value, f(x), rtol=1e-14)
    steps = 1e-6 * np.eye(4)
    np.testing.assert_allclose(slope, [(f(x + s) - f(x - s)) / 2e-6 for s in steps], rtol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_elements_stored_twice_stay_apart_where_scipy_keeps_them(kind: str) -> None:
    S = repeated(kind) if kind[:3] != "coo" else made(kind)
    programs = {
        "tocsr": lambda S: S.tocsr(),
        "tocsc": lambda S: S.tocsc(),
        "tocoo": lambda S: S.tocoo(),
        "rows": lambda S: S.tocsr()[[2, 0, 0]],
        "a slice": lambda S: S.tocsr()[:2],
        "columns": lambda S: S.tocsc()[:, 1:],
    }
    for name, f in programs.items():
        found, expected = jit(f)(S), f(S)
        np.testing.assert_array_equal(found.data, expected.data, name)
        np.testing.assert_array_equal(found.toarray(), expected.toarray(), name)


def test_numpys_sums_are_scipys() -> None:
    S = made("csr_array")
    for f in (np.sum, np.mean, lambda S: np.sum(S, axis=0), lambda S: np.mean(S, axis=1)):
        np.testing.assert_allclose(jit(f)(S), f(S), rtol=1e-14)
    with pytest.raises(UnsupportedError, match="dtype="):
        jit(lambda S: S.sum(dtype=np.float32))(S)
    with pytest.raises(UnsupportedError, match="as many elements"):
        jit(lambda S: setattr(S, "data", S.data[1:]))(S)


def _of_diagonals_written(x: Any) -> Any:
    d = x.reshape(2, 6) * 1
    A = sparse.dia_array((d, [1, -2]), shape=(6, 5))
    d[0, 1], A.data[1, 0] = 5 * x[2], x[3] ** 2
    return A.toarray() * np.arange(30.0).reshape(6, 5) + np.sum(d) + A.nnz


def _of_spdiags(x: Any) -> Any:
    d = x.reshape(2, 6) * 1
    A = sparse.spdiags(d, [1, -2], 6, 6)
    d[0, 3] = x[0]
    return A.toarray() + A.T.toarray() + A @ np.arange(6.0)


def _of_diagonals_scaled(x: Any) -> Any:
    d = x.reshape(2, 6) * 1
    A = sparse.dia_matrix((d, [2, -3]), shape=(7, 5))
    B = A.copy()
    A *= 2
    d[0, 3] = x[1] * x[2]
    return A.toarray() + 3 * B.toarray() + np.sum(d)


@pytest.mark.parametrize("f", [_of_diagonals_written, _of_spdiags, _of_diagonals_scaled])
def test_matrices_of_diagonals_share_them(f: Any) -> None:
    x = np.random.default_rng(0).normal(size=12)
    np.testing.assert_allclose(jit(f, compile="never")(x), f(x), rtol=1e-13)
    slope = grad(lambda x: np.sum(f(x)), compile="never")(x)
    steps = 1e-6 * np.eye(12)
    wanted = [(np.sum(f(x + s)) - np.sum(f(x - s))) / 2e-6 for s in steps]
    np.testing.assert_allclose(slope, wanted, atol=1e-6)
