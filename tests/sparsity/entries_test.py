"""Entries of matrices that are mostly zeros: known ones are not computed, others by themselves."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

import tapegrad
from tapegrad import (
    grad,
    hessian,
    jacobian,
    sparse_hessian,
    sparse_jacobian,
    value_and_jacobian,
    value_grad_and_hessian,
    vmap,
)
from tapegrad.runtime import coloured_products

RNG = np.random.default_rng(0)
ORDER = RNG.permutation(30)
TABLE = RNG.integers(0, 30, (40, 2))
DENSE = RNG.normal(size=(3, 30))
WEIGHTS = np.where(RNG.random(30) < 0.5, 0.0, RNG.normal(size=30))


def bratu(u):
    wide = np.zeros((u.shape[0] + 2, u.shape[1] + 2))
    wide[1:-1, 1:-1] = u
    around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    return around - 4 * u + 1e-4 * np.exp(u)


def rosenbrock(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def biharmonic(x):
    inner = x[2:] - 2 * x[1:-1] + x[:-2]
    return inner[2:] - 2 * inner[1:-1] * inner[1:-1] + inner[:-2]


def filled(x):
    out = np.ones(40)
    out[5:35] = x * x
    out[::4] = x[:10]
    return out


def spread(x):
    out = np.zeros(30)
    np.add.at(out, TABLE[:, 0], x[TABLE[:, 1]] ** 2)
    return out


def arrow(x):
    return np.concatenate([x[0] * x[1:], [np.sum(x**2)]])


def steps(x):
    for _ in range(3):
        x = x + 0.1 * (np.roll(x, 1) - x) * x
    return x


PROGRAMS = {
    "elementwise": np.sin,
    "linear": lambda x: 2 * x - np.flip(x),
    "differences": lambda x: np.diff(x, 2),
    "products of neighbours": lambda x: x[1:] * x[:-1],
    "chained stencils": biharmonic,
    "a permutation": lambda x: np.exp(x[ORDER]) - x,
    "edges of a graph": lambda x: np.sin(x[TABLE[:, 0]] - x[TABLE[:, 1]]),
    "writes": filled,
    "sums where it is written": spread,
    "rows and columns": arrow,
    "a branch each": lambda x: np.where(x > 0, x**2, x),
    "weights that may be zero": lambda x: WEIGHTS * x**2,
    "a running sum": lambda x: np.cumsum(x[:5] ** 2),
    "a dense part": lambda x: np.concatenate([DENSE @ x**2, x]),
    "sums of blocks": lambda x: np.sum(np.reshape(x, (6, 5)) ** 2, axis=1),
    "a transposed grid": lambda x: np.reshape(x, (6, 5)).T.ravel() * x,
    "a triangle": lambda x: np.tril(np.outer(x[:4], x[4:8])),
    "steps": steps,
}


@pytest.mark.every(3)
@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_entries_are_those_of_the_dense_jacobian(name, mode):
    f, x = PROGRAMS[name], RNG.normal(size=30)
    df = sparse_jacobian(f, mode=mode, compile="never")
    for _ in range(2):
        dense = jacobian(f, compile="never")(x).reshape(-1, 30)
        np.testing.assert_allclose(df(x).toarray(), dense, rtol=1e-12, atol=1e-14)
        x = x + RNG.normal(size=30)


@pytest.mark.parametrize("f", [bratu, rosenbrock], ids=lambda f: f.__name__)
def test_compiled_entries(f):
    shape = (7, 9) if f is bratu else (63,)
    sparse = sparse_jacobian if f is bratu else sparse_hessian
    for _ in range(2):
        x = RNG.normal(size=shape)
        played, compiled = (sparse(f, compile=how)(x) for how in ("never", "always"))
        np.testing.assert_allclose(compiled.toarray(), played.toarray(), rtol=1e-12)


def test_only_the_diagonal_of_a_nonlinear_stencil_is_computed():
    df = sparse_jacobian(lambda u: bratu(u), compile="never")
    entries = df(np.ones((20, 30)))
    (tape,) = df.tapes
    sizes = {str(call.primitive.name): call.out.aval.size for call in tape.calls}
    assert max(sizes.values()) == entries.nnz
    assert sizes["exp"] == 600


def test_a_tridiagonal_hessian_has_a_formula_for_each_diagonal():
    ddf = sparse_hessian(lambda x: rosenbrock(x), compile="never")
    ddf(np.ones(1000))
    (tape,) = ddf.tapes
    assert max(call.out.aval.size for call in tape.calls if call.primitive.pointwise) == 999
    # three diagonals, and the last element of the main one, a number
    assert sum(call.primitive.name == "setitem" for call in tape.calls) == 4


def test_a_linear_function_has_known_entries_alone():
    df = sparse_jacobian(lambda x: 3 * np.diff(x), compile="never")
    np.testing.assert_array_equal(df(np.ones(4)).toarray(), 3 * (np.eye(3, 4, 1) - np.eye(3, 4)))
    assert df.tapes[0].calls == ()


def test_an_infinite_entry_leaves_its_neighbours_alone():
    """A column's seed is zero elsewhere, and 0 times infinity is NaN."""
    x = np.array([[0.0, 1000.0, 0.0]])
    with np.errstate(over="ignore"):
        found = sparse_jacobian(bratu, compile="never")(x).toarray()
    np.testing.assert_array_equal(found[[0, 1, 1, 2], [1, 0, 2, 1]], 1.0)
    assert np.isinf(found[1, 1])


def test_results_are_the_callers():
    df = sparse_jacobian(lambda x: np.diff(x), compile="never")
    first = df(np.ones(5))
    first.data[:] = 7.0
    np.testing.assert_array_equal(df(np.ones(5)).data, [-1, 1] * 4)


# ---- dense matrices that are mostly zeros


def work(of):
    """How many elements a call computes, of what isn't moved or written alone."""
    return sum(c.out.aval.size for t in of.tapes for c in t.calls if c.primitive.pointwise)


@pytest.mark.every(8)
@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_dense_jacobian_is_the_same_by_few_passes(name, mode, monkeypatch):
    f, x = PROGRAMS[name], RNG.normal(size=30)
    monkeypatch.setattr(coloured_products, "SMALL_MATRIX", 10**9)
    wanted = jacobian(f, mode=mode, compile="never")(x)
    monkeypatch.setattr(coloured_products, "SMALL_MATRIX", 0)
    monkeypatch.setattr(coloured_products, "FEWER", 1)
    for compile in ("never", "always"):
        found = jacobian(f, mode=mode, compile=compile)(x)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


def test_a_dense_hessian_of_few_colours_takes_few_passes():
    x = RNG.normal(size=200)
    found = hessian(lambda x: rosenbrock(x), compile="never")
    np.testing.assert_allclose(found(x), scipy.optimize.rosen_hess(x), atol=1e-9)
    assert work(found) < 20 * len(x)  # n^2 in n passes


def coupled(a, b):
    """A chain whose first link is coupled with `a`; and what stands for itself."""
    return np.sum(np.diff(b) ** 4) + a * np.sin(b[0]) + a**3


@pytest.mark.parametrize("compile", ["never", "always"])
def test_blocks_of_a_dense_hessian_of_few_colours(compile):
    a, b = np.float64(0.5), RNG.normal(size=60)
    found = hessian(lambda a, b: coupled(a, b), (0, 1), compile=compile)
    (aa, ab), (ba, bb) = found(a, b)
    step = np.diff(b)
    chain = np.zeros((60, 60))
    for k, d in enumerate(step):
        chain[k : k + 2, k : k + 2] += 12 * d**2 * np.array([[1, -1], [-1, 1]])
    np.testing.assert_allclose(aa, 6 * a)
    first = np.eye(60)[0]
    np.testing.assert_allclose(ab, np.cos(b) * first)
    np.testing.assert_allclose(ba, np.cos(b) * first)
    np.testing.assert_allclose(bb, chain - a * np.diag(np.sin(b) * first), atol=1e-12)
    assert work(found) < 3 * 60 * 20


@pytest.mark.parametrize("compile", ["never", "always"])
def test_a_value_comes_along_with_a_matrix_of_few_colours(compile):
    x = RNG.normal(size=50)
    value, slope, matrix = value_grad_and_hessian(rosenbrock, compile=compile)(x)
    np.testing.assert_allclose(value, rosenbrock(x))
    np.testing.assert_allclose(slope, scipy.optimize.rosen_der(x))
    np.testing.assert_allclose(matrix, scipy.optimize.rosen_hess(x), atol=1e-10)
    for mode in ("forward", "reverse"):
        value, both = value_and_jacobian(lambda x: (np.sin(x), x[:40] * x[10:]), mode=mode)(x)
        np.testing.assert_allclose(value[0], np.sin(x))
        np.testing.assert_allclose(both[0], np.diag(np.cos(x)))
        wanted = x[10:, None] * np.eye(40, 50) + x[:40, None] * np.eye(40, 50, 10)
        np.testing.assert_allclose(both[1], wanted)


def test_a_matrix_of_few_colours_is_differentiated_and_mapped():
    x = RNG.normal(size=40)
    third = grad(lambda x: np.sum(hessian(lambda x: np.sum(x**4))(x)))(x)
    np.testing.assert_allclose(third, 24 * x)
    rows = RNG.normal(size=(3, 40))
    found = vmap(jacobian(lambda x: x[1:] * x[:-1]))(rows)
    for one, row in zip(found, rows, strict=True):
        wanted = row[1:, None] * np.eye(39, 40) + row[:-1, None] * np.eye(39, 40, 1)
        np.testing.assert_allclose(one, wanted)


def test_which_elements_an_index_says_may_change():
    table, x = np.arange(40), RNG.normal(size=40)
    df = jacobian(lambda x, table: x[table] ** 2)
    for at in (table, table[::-1], np.zeros(40, int)):
        wanted = np.zeros((40, 40))
        wanted[np.arange(40), at] = 2 * x[at]
        np.testing.assert_allclose(df(x, at), wanted)
    bound = jacobian(lambda x: x[table] ** 2)
    for _ in range(2):
        np.testing.assert_allclose(bound(x), np.eye(40)[table] * 2 * x[table][:, None])
        table[:] = table[::-1].copy()


def test_a_rule_of_one_mode_has_its_jacobian_by_that():
    @tapegrad.primitive
    def cube(x):
        return np.array([float(v) ** 3 for v in x])

    tapegrad.defvjp(cube, lambda ct, out, x: ct * 3 * x**2)
    x = RNG.normal(size=40)
    np.testing.assert_allclose(
        jacobian(lambda x: cube(np.sin(x)))(x), np.diag(3 * np.sin(x) ** 2 * np.cos(x))
    )


def test_a_hessian_by_a_rule_of_the_users_need_not_be_symmetric():
    @tapegrad.primitive
    def chained(x):
        return np.sum(x[1:] * x[:-1])

    tapegrad.defvjp(chained, lambda ct, out, x: ct * np.concatenate([x[1:], np.zeros(1)]))
    wanted = np.eye(40, 40, 1)
    for f in (chained, lambda x: chained(1 * x)):
        np.testing.assert_allclose(jacobian(grad(f))(np.ones(40)), wanted)
        np.testing.assert_allclose(hessian(f)(np.ones(40)), wanted)
