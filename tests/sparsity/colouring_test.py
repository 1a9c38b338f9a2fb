"""Colours are valid, nearly as few as networkx finds, and matrices are put together from them."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from tapegrad.sparsity import colouring, greedy
from tapegrad.sparsity.colouring import (
    acyclic_colours,
    both_colours,
    column_colours,
    row_colours,
    star_colours,
)
from tapegrad.sparsity.recovery import by_both, by_columns, by_forests, by_rows, by_star, choose

ORDERS = ["natural", "largest_first", "smallest_last"]


def matrices(count, symmetric=False):
    rng = np.random.default_rng(3)
    for _ in range(count):
        m, n = rng.integers(1, 20, 2)
        a = sparse.random_array((m, m if symmetric else n), density=rng.uniform(0, 0.3), rng=rng)
        yield csr(a + a.T if symmetric else a)


def csr(a):
    found = sparse.csr_array(a)
    found.sum_duplicates()
    return found, sparse.csr_array((found.data != 0, found.indices, found.indptr), found.shape)


def entries(colouring, a):
    """The entries from products with sums of unit vectors, one for each colour."""
    products = []
    for colours, lines in ((colouring.columns, a.T), (colouring.rows, a)):
        if colours is not None:
            seeds = np.arange(colours.max(initial=-1) + 1)[:, None] == colours
            products.append(np.ravel(seeds.astype(float) @ lines))
    found = np.concatenate(products)[colouring.index]
    for known, owner in colouring.levels:
        np.subtract.at(found, owner, found[known])
    return found if colouring.spread is None else found[colouring.spread]


def rebuilt(colouring, a):
    """The matrix from its products with the seeds."""
    return colouring.matrix(entries(colouring, a)).toarray()


@pytest.mark.parametrize("order", ORDERS)
def test_columns_and_rows_of_one_colour_meet_nowhere(order):
    for a, p in matrices(30):
        columns, rows = column_colours(p, order), row_colours(p, order)
        for colours, lines in ((columns, p.toarray().T), (rows, p.toarray())):
            for c in range(colours.max() + 1):
                assert lines[colours == c].sum(0).max() <= 1
        np.testing.assert_allclose(rebuilt(by_columns(p, columns), a), a.toarray())
        np.testing.assert_allclose(rebuilt(by_rows(p, rows), a), a.toarray())


@pytest.mark.parametrize("order", ["largest_first", "smallest_first", "smallest_last"])
def test_both_sides_together_give_each_entry(order):
    for a, p in matrices(30):
        np.testing.assert_allclose(rebuilt(by_both(p, *both_colours(p, order)), a), a.toarray())


@pytest.mark.parametrize("order", ORDERS)
def test_two_colours_make_stars_and_forests(order):
    """Of star colours each component of two is a star, of acyclic ones a tree."""
    for a, p in matrices(25, symmetric=True):
        graph = nx.from_scipy_sparse_array(p)
        graph.remove_edges_from(list(nx.selfloop_edges(graph)))
        star, forest = star_colours(p, order), acyclic_colours(p, order)
        for colours, is_star in ((star, True), (forest, False)):
            assert all(colours[u] != colours[v] for u, v in graph.edges)
            for pair in itertools.combinations(range(colours.max() + 1), 2):
                two = graph.subgraph([v for v in graph if colours[v] in pair])
                assert len(two) == 0 or nx.is_forest(two)
                for part in nx.connected_components(two) if is_star else ():
                    degrees = sorted(dict(two.subgraph(part).degree).values())
                    assert degrees[:-2] == [1] * (len(part) - 2)
        np.testing.assert_allclose(rebuilt(by_star(p, star), a), a.toarray())
        np.testing.assert_allclose(rebuilt(by_forests(p, forest), a), a.toarray(), atol=1e-12)


def test_compiled_loops_find_what_python_finds(monkeypatch):
    """The same functions, as Python runs them and as numba compiles them."""
    for kind in (column_colours, star_colours, acyclic_colours):
        for _, p in matrices(4, symmetric=True):
            found = []
            for small in (greedy.UNCOMPILED_ENTRIES, -1):
                monkeypatch.setattr(greedy, "UNCOMPILED_ENTRIES", small)
                monkeypatch.setattr(colouring, "NARROW", 0)
                found.append(kind(p, "smallest_last"))
            np.testing.assert_array_equal(*found)


def test_large_matrices_are_coloured_by_scipy_in_the_same_way(monkeypatch):
    for _, p in matrices(10):
        found = []
        for small in (greedy.UNCOMPILED_ENTRIES, -1):
            monkeypatch.setattr(greedy, "UNCOMPILED_ENTRIES", small)
            found.append(column_colours(p, "largest_first"))
        np.testing.assert_array_equal(*found)


def test_there_are_about_as_many_colours_as_networkx_finds():
    """Of the graph of columns that meet, in the same orders."""
    ours = theirs = 0
    for _, p in matrices(30):
        beside = nx.from_numpy_array((p.toarray().astype(int).T @ p.toarray()) > 0)
        beside.remove_edges_from(list(nx.selfloop_edges(beside)))
        for order in ORDERS:
            ours += column_colours(p, order).max() + 1
            strategy = order if order != "natural" else lambda graph, colours: list(graph)
            theirs += 1 + max(nx.greedy_color(beside, strategy).values(), default=-1)
    assert ours <= 1.03 * theirs


def banded(n, width):
    diagonals = [np.ones(n - abs(k)) for k in range(-width, width + 1)]
    return csr(sparse.diags_array(diagonals, offsets=range(-width, width + 1)))


def grid(k):
    line, one = banded(k, 1)[0], sparse.eye_array(k)
    return csr(sparse.kron(line, one) + sparse.kron(one, line))


@pytest.mark.parametrize("size", [60, 9000])
def test_matrices_with_a_known_number(size):
    """A band takes as many as it is wide, also as a symmetric one; arrows take products from both
    sides, and as symmetric ones two."""
    for width in (1, 2):
        a, p = banded(size, width)
        assert choose(p).count == 2 * width + 1
        found = choose(p, is_symmetric=True)
        assert found.count <= 2 * width + 1
        np.testing.assert_allclose(entries(found, a), a.data)
        assert acyclic_colours(p).max() + 1 == width + 1


def test_arrows_take_products_from_both_sides():
    a = np.diag(np.arange(1.0, 41))
    a[0], a[:, 0] = 2.0, 3.0
    a, p = csr(a)
    found = choose(p)
    assert (found.kind, found.count) == ("both", 3)
    np.testing.assert_allclose(rebuilt(found, a), a.toarray())
    h, p = csr(a + a.T)
    found = choose(p, is_symmetric=True)
    assert (found.kind, found.count) == ("star", 2)
    np.testing.assert_allclose(rebuilt(found, h), h.toarray())


def test_dense_matrices_are_left_as_they_are():
    """A column each, without a search for better."""
    _, p = csr(np.ones((2000, 2000)))
    assert choose(p, is_symmetric=True).count == choose(p).count == 2000


def test_a_stencil_of_five_points_takes_few():
    a, p = grid(30)
    assert choose(p).count == 5 and choose(p, is_symmetric=True).count <= 5
    np.testing.assert_allclose(rebuilt(choose(p, is_symmetric=True), a), a.toarray())


def test_a_mode_that_there_isnt_is_not_used():
    """A row that is full takes one product in reverse mode, and one for each column without it."""
    _, p = csr(np.ones((1, 7)))
    assert (choose(p).kind, choose(p).count) == ("rows", 1)
    assert (choose(p, reverse=False).kind, choose(p, reverse=False).count) == ("columns", 7)
    assert choose(csr(np.zeros((3, 4)))[1]).count <= 1
