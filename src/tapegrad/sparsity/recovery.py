"""Recovery: a sparse matrix from a few products with vectors, by a colouring of its pattern.

The position of each entry among the products is computed once. New values are then one gather. Only
`acyclic` colourings need a few subtractions too, level by level in the trees of `colouring`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from tapegrad.sparsity import greedy
from tapegrad.sparsity.colouring import (
    acyclic_colours,
    alone,
    both_colours,
    column_colours,
    graph_of,
    row_colours,
    star_colours,
)

ENOUGH_PRODUCTS = 3  # products for which a search for fewer isn't worthwhile
MAX_ADJACENT_PAIRS = 10**7  # pairs of adjacent columns beyond which expensive orders aren't tried
DEEP = 64  # entries that result from more subtractions have lost digits


@dataclass(frozen=True, eq=False)
class Colouring:
    """How a matrix is recovered from a few products.

    `kind` is "columns", "rows", "both", "star" or "acyclic". `columns` has the colour of each
    column: product c is the matrix times the sum of the unit vectors of colour c. `rows` has the
    colours of the rows, for products with the transpose. Colours are 0, 1, ..., and -1 for those in
    no product.
    """

    kind: str
    pattern: Any  # CSR; symmetric for a symmetric matrix
    columns: Any  # None if there are no such products
    rows: Any
    index: Any  # the position of each entry among all numbers of all products
    levels: tuple[tuple[Any, Any], ...] = ()  # entries, and those they are subtracted from
    spread: Any = None  # for each entry of the pattern its number, if two are equal

    @property
    def of_columns(self) -> int:
        """The number of products with the matrix."""
        return 0 if self.columns is None else int(self.columns.max(initial=-1)) + 1

    @property
    def of_rows(self) -> int:
        """The number of products with its transpose."""
        return 0 if self.rows is None else int(self.rows.max(initial=-1)) + 1

    @property
    def count(self) -> int:
        return self.of_columns + self.of_rows

    def matrix(self, entries: Any) -> Any:
        """The matrix with these entries. It has its own index arrays, since the caller may drop
        entries."""
        p = self.pattern
        made = sparse.csr_array((entries, p.indices.copy(), p.indptr.copy()), p.shape)
        made.has_canonical_format = True
        return made


def _rows(pattern: Any) -> Any:
    """The row of each entry."""
    return np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))


def by_columns(pattern: Any, colours: Any) -> Colouring:
    """The colouring in which each entry is read from the product of its column's colour, in its
    row."""
    index = colours[pattern.indices] * pattern.shape[0] + _rows(pattern)
    return Colouring("columns", pattern, colours, None, index)


def by_rows(pattern: Any, colours: Any) -> Colouring:
    """The colouring in which each entry is read from the product of its row's colour, in its
    column."""
    index = colours[_rows(pattern)] * pattern.shape[1] + pattern.indices
    return Colouring("rows", pattern, None, colours, index)


def by_both(pattern: Any, rows: Any, columns: Any) -> Colouring:
    """The colouring in which an entry is read from the product of its column's colour, if it is the
    only one of that colour in its row, or else from that of its row's colour."""
    (m, n), row_of, column_of = pattern.shape, _rows(pattern), pattern.indices
    there = columns[column_of] >= 0
    there[there] = alone(row_of[there], columns[column_of[there]])
    first = (int(columns.max(initial=-1)) + 1) * m
    index = np.where(there, columns[column_of] * m + row_of, first + rows[row_of] * n + column_of)
    return Colouring("both", pattern, columns, rows, index)


def by_star(pattern: Any, colours: Any) -> Colouring:
    """The colouring of a symmetric matrix in which an entry is read from the product of its
    column's colour, if it is the only one of that colour in its row. Otherwise its transposed entry
    is read, from the product of its row's colour."""
    n, row_of, column_of = pattern.shape[0], _rows(pattern), pattern.indices
    here = alone(row_of, colours[column_of])
    index = np.where(here, colours[column_of] * n + row_of, colours[row_of] * n + column_of)
    return Colouring("star", pattern, colours, None, index)


def by_forests(pattern: Any, colours: Any, most: int | None = None) -> Colouring | None:
    """The colouring in which the edges of a tree of two colours are computed from its leaves
    inwards, level by level: a product has the sum of the edges at each vertex. None if a tree has
    more levels than `most`."""
    n, graph = pattern.shape[0], graph_of(pattern)
    row_of = np.repeat(np.arange(n), np.diff(graph.starts))
    count = len(row_of) // 2
    ends = np.empty((2, count), np.int64)
    upper = row_of < graph.others
    ends[0, graph.edges[upper]], ends[1, graph.edges[upper]] = row_of[upper], graph.others[upper]
    width = int(colours.max(initial=0)) + 1
    # A place is a vertex and a colour. There a product has the sum of the vertex's edges to that
    # colour.
    keys = ends * width + colours[ends[::-1]]
    names, places = np.unique(keys, return_inverse=True)
    places = places.reshape(2, count)
    left = np.bincount(places.ravel(), minlength=len(names))
    mixed = np.zeros(len(names), np.int64)  # the remaining edge there, once there is only one
    for side in (0, 1):
        np.bitwise_xor.at(mixed, places[side], np.arange(count))
    found_at, owners = np.full(count, -1), np.full(len(names), -1)
    found: list[Any] = []
    leaves = np.flatnonzero(left == 1)
    while len(leaves):
        edges, first = np.unique(mixed[leaves], return_index=True)
        mine = leaves[first]
        found_at[edges], owners[mine] = mine, edges
        other = places[0, edges] + places[1, edges] - mine
        left[mine] = 0
        np.subtract.at(left, other, 1)
        np.bitwise_xor.at(mixed, other, edges)
        found.append((edges, other))
        if most is not None and len(found) > most:
            return None
        met = np.unique(other)
        leaves = met[left[met] == 1]
    levels = [
        (edges[owners[other] >= 0], owners[other[owners[other] >= 0]]) for edges, other in found
    ]
    vertex, colour = np.divmod(names[found_at], width)
    diagonal = np.arange(n)
    index = np.concatenate([colours * n + diagonal, colour * n + vertex])
    levels = [(known + n, owner + n) for known, owner in levels if len(known)]
    spread = _rows(pattern).copy()
    spread[spread != pattern.indices] = graph.edges + n
    return Colouring("acyclic", pattern, colours, None, index, tuple(levels), spread)


# ---- the choice of a colouring


def symmetric(pattern: Any) -> Any:
    """The pattern with its transposed entries added."""
    whole = sparse.csr_array(pattern + pattern.T, dtype=bool)
    whole.sort_indices()
    return whole


def colourings(
    pattern: Any, *, is_symmetric: bool = False, forward: bool = True, **how: Any
) -> Iterator[tuple[Colouring, float]]:
    """Colourings, each with a share of work. The last one is that of `choose`.

    The search for few colours takes long for a large matrix, and is in vain if the entries are
    computed one by one. So the first colouring is one that is found quickly, with the least share
    of its products to which the others may come down.
    """
    if pattern.nnz > greedy.UNCOMPILED_ENTRIES:
        whole = symmetric(pattern) if is_symmetric else pattern
        if forward:
            quick = by_columns(whole, column_colours(whole))
        else:
            quick = by_rows(whole, row_colours(whole))
        if quick.count > ENOUGH_PRODUCTS:
            yield quick, ENOUGH_PRODUCTS / quick.count
    yield choose(pattern, is_symmetric=is_symmetric, forward=forward, **how), 0.0


def choose(
    pattern: Any,
    *,
    is_symmetric: bool = False,
    forward: bool = True,
    reverse: bool = True,
    price: float = 1.0,
) -> Colouring:
    """The cheapest colouring of the kinds that the modes allow. A product in reverse mode costs
    `price`. For a symmetric matrix either mode yields both products."""
    if is_symmetric:
        return _of_symmetric(symmetric(pattern))
    widest = np.diff(pattern.indptr).max(initial=0)  # the least number of colours
    tallest = np.bincount(pattern.indices, minlength=1).max()
    sides: list[tuple[float, Any, Any, float]] = []
    if forward or not reverse:
        sides.append((float(widest), column_colours, by_columns, 1.0))
    if reverse:
        sides.append((price * float(tallest), row_colours, by_rows, price))
    cost = np.inf
    for least, colours_of, by, each in sorted(sides, key=lambda side: side[0]):
        if least < cost:
            found = _fewest(pattern, colours_of, int(least / each))
            if each * (found.max(initial=-1) + 1) < cost:
                cost, make, colours = each * (found.max(initial=-1) + 1), by, found
    if forward and reverse and cost > 2 * ENOUGH_PRODUCTS and _may_gain(pattern, cost):
        rows, columns = both_colours(pattern)
        if price * (rows.max(initial=-1) + 1) + columns.max(initial=-1) + 1 < cost:
            return by_both(pattern, rows, columns)
    return make(pattern, colours)


def _may_gain(pattern: Any, cost: float) -> bool:
    """Whether products from both sides may be fewer, because a few dense rows or columns determine
    the number of colours."""
    lengths = np.diff(pattern.indptr), np.bincount(pattern.indices, minlength=pattern.shape[1])
    return all(float(np.mean(x)) < cost / 4 for x in lengths if len(x))


def _fewest(pattern: Any, colours_of: Any, least: int) -> Any:
    """Colours from the best of several orders. It stops when the number is known to be the
    least."""
    found = colours_of(pattern, "natural")
    for order in ("largest_first", "smallest_last"):
        if found.max(initial=-1) + 1 <= max(least, ENOUGH_PRODUCTS):
            break
        if order == "largest_first" or pattern.nnz * least <= MAX_ADJACENT_PAIRS:
            other = colours_of(pattern, order)
            found = min(found, other, key=lambda colours: int(colours.max(initial=-1)))
    return found


def _of_symmetric(pattern: Any) -> Colouring:
    lengths = np.diff(pattern.indptr).astype(float)
    colours = _fewest(pattern, column_colours, int(lengths.max(initial=0)))
    chosen = by_columns(pattern, colours)
    work = float(lengths @ lengths)  # of a search for stars
    if (
        chosen.count <= ENOUGH_PRODUCTS
        or work > 200 * MAX_ADJACENT_PAIRS
        or 2 * pattern.nnz > len(lengths) ** 2
    ):
        return chosen
    large = work > 10 * MAX_ADJACENT_PAIRS
    for order in ("smallest_last",) if large else ("natural", "smallest_last"):
        colours = star_colours(pattern, order)
        if colours.max() + 1 < chosen.count:
            chosen = by_star(pattern, colours)
    if chosen.count > 2 * ENOUGH_PRODUCTS and not large:
        colours = acyclic_colours(pattern, "smallest_last")
        if 3 * (colours.max() + 1) <= 2 * chosen.count:  # else it isn't worth the lost digits
            chosen = by_forests(pattern, colours, DEEP) or chosen
    return chosen
