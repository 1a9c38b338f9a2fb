"""Colourings: which columns, or rows, of a sparse matrix can share a product with a vector.

Columns that have no row in common can be read from one product of the matrix and the sum of their
unit vectors. So columns get colours, and there is one product for each colour. An entry of a
symmetric matrix may be read at either of its two positions. Then any two colours have to form
stars, if each entry is read directly (`star`), or forests, if entries are computed one after
another by subtraction (`acyclic`). A matrix with a few dense rows and a few dense columns takes
products from both sides (`both`).

Columns and rows have colours 0, 1, ..., and -1 if they are in no product.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from tapegrad.sparsity import greedy

# "natural", "largest_first", "smallest_first" or "smallest_last"
Order = str

NARROW = 64  # SciPy goes through the matrix once for each colour


class Graph(NamedTuple):
    """The neighbours of each vertex, and the number of the edge to each neighbour."""

    starts: Any
    others: Any
    edges: Any

    @property
    def size(self) -> int:
        return len(self.starts) - 1


def graph_of(pattern: Any) -> Graph:
    """The graph of a symmetric matrix: one edge for each pair of entries off the diagonal."""
    n = pattern.shape[0]
    rows = np.repeat(np.arange(n), np.diff(pattern.indptr))
    off = rows != pattern.indices
    rows, others = rows[off], pattern.indices[off].astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    upper = rows < others
    edges = np.empty(len(rows), np.int64)
    edges[upper] = np.arange(np.count_nonzero(upper))
    # Row by row below the diagonal: the same edges in the order of their columns.
    again = np.argsort(others[upper], kind="stable")
    edges[~upper] = edges[upper][again]
    return Graph(starts, others, edges)


def order_of(graph: Graph, order: Order) -> Any:
    """The vertices in the order in which they are coloured."""
    degrees = np.diff(graph.starts)
    if order == "natural":
        return np.arange(graph.size)
    if order == "largest_first":
        return np.argsort(-degrees, kind="stable")
    if order == "smallest_first":
        return np.argsort(degrees, kind="stable")
    n = graph.size
    found = np.zeros(n, np.int64)
    heads = np.full(int(degrees.max(initial=0)) + 1, -1)
    links = np.full(n, -1), np.full(n, -1)
    size = len(graph.others)
    kept = (degrees.astype(np.int64), heads, *links, found)
    greedy.run(greedy.smallest_last, size, graph[:2], kept)
    return found


# ---- colours of columns, of rows, and of both


def column_colours(pattern: Any, order: Order = "natural") -> Any:
    """Colours of the columns of a CSR matrix. No two columns of one colour have a row in common."""
    n = pattern.shape[1]
    lengths = np.diff(pattern.indptr)
    if n and lengths.max(initial=0) == n:
        return np.arange(n)
    by_columns = pattern.tocsc()
    if order == "smallest_last":
        beside = sparse.csr_array(by_columns.T @ pattern, dtype=bool)
        beside.sort_indices()
        chosen = order_of(graph_of(beside), order)
    elif order == "largest_first":
        chosen = np.argsort(-np.diff(by_columns.indptr), kind="stable")
    else:
        chosen = np.arange(n)
    if pattern.nnz > greedy.UNCOMPILED_ENTRIES and lengths.max() <= NARROW:
        return _grouped(by_columns, chosen)
    colours = np.full(n, -1)
    given = (by_columns.indptr, by_columns.indices, pattern.indptr, pattern.indices, chosen)
    greedy.run(greedy.first_fit, pattern.nnz, given, (colours, np.full(n + 1, -1)))
    return colours


def _grouped(by_columns: Any, order: Any) -> Any:
    """The colours of `greedy.first_fit`, by SciPy, colour by colour. Nothing has to be compiled."""
    from scipy.optimize._numdiff import group_columns

    return np.asarray(group_columns(by_columns, order), np.int64)


def row_colours(pattern: Any, order: Order = "natural") -> Any:
    """Colours of the rows of a CSR matrix. No two rows of one colour have a column in common."""
    return column_colours(pattern.T.tocsr(), order)


def star_colours(pattern: Any, order: Order = "natural") -> Any:
    """Colours of the rows and columns of a symmetric CSR matrix. Neighbours differ, and each path
    of four vertices has at least three colours."""
    return _star(graph_of(pattern), order)


def _star(graph: Graph, order: Order) -> Any:
    n, size = graph.size, len(graph.others)
    colours = np.full(n, -1)
    kept = [np.full(n + 1, -1) for _ in range(5)]
    of_edges = np.full(size // 2 + 1, -1), np.full(size // 2 + 1, -1)
    given = (*graph, order_of(graph, order))
    greedy.run(greedy.star, size, given, (colours, *kept, *of_edges))
    return colours


def acyclic_colours(pattern: Any, order: Order = "natural") -> Any:
    """Colours of the rows and columns of a symmetric CSR matrix. Neighbours differ, and each cycle
    has at least three colours."""
    graph = graph_of(pattern)
    n, size = graph.size, len(graph.others)
    colours = np.full(n, -1)
    kept = [np.full(n + 1, -1) for _ in range(3)]
    trees = [np.full(size // 2 + 1, -1), np.full(size // 2 + 1, -1), np.arange(size // 2 + 1)]
    given = (*graph, order_of(graph, order))
    greedy.run(greedy.acyclic, size, given, (colours, *kept, *trees))
    return colours


def both_colours(pattern: Any, order: Order = "smallest_first") -> tuple[Any, Any]:
    """Colours of the rows and of the columns of a CSR matrix. Each entry can be read from the
    product with the columns of its column's colour, or from that with the rows of its row's
    colour."""
    m, n = pattern.shape
    whole = sparse.block_array([[None, pattern.T], [pattern, None]], format="csr")
    whole.sort_indices()
    if order == "natural":
        order = "smallest_first"
    colours = _star(graph_of(whole), order)
    rows, columns = colours[n:].copy(), colours[:n].copy()
    row_of = np.repeat(np.arange(m), np.diff(pattern.indptr))
    by_column = alone(row_of, columns[pattern.indices])
    by_row = alone(pattern.indices, rows[row_of])
    used_columns = np.zeros(m + n, bool)
    used_rows = np.zeros(m + n, bool)
    used_columns[columns[pattern.indices[~by_row]]] = True
    used_rows[rows[row_of[~by_column]]] = True
    left = ~(by_column & used_columns[columns[pattern.indices]])
    left &= ~(by_row & used_rows[rows[row_of]])
    used_columns[columns[pattern.indices[left]]] = True
    return _renumbered(rows, used_rows), _renumbered(columns, used_columns)


def _renumbered(colours: Any, used: Any) -> Any:
    """The used colours renumbered 0, 1, ...; -1 for the others."""
    new = np.where(used, np.cumsum(used) - 1, -1)
    return new[colours]


def alone(lines: Any, colours: Any) -> Any:
    """For each entry, whether it is the only one of its colour in its row or column, `lines`."""
    width = int(colours.max(initial=0)) + 1
    keys = lines.astype(np.int64) * width + colours
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return counts[inverse] == 1
