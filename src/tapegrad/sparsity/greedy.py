"""Greedy colourings, vertex by vertex: each vertex takes the first colour that is allowed.

These are plain functions of lists or arrays of integers. On small graphs Python runs them; on large
ones numba compiles them first, which takes about a second.

A graph is the pattern of a symmetric matrix without its diagonal: the neighbours of v are
`others[starts[v]:starts[v + 1]]`, and `edges` has the number of each edge there, twice.

Star and acyclic colourings: A. Gebremedhin, A. Tarafdar, F. Manne, A. Pothen, "New acyclic and star
coloring algorithms with application to computing Hessians", SIAM J. Sci. Comput. 29 (2007).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

UNCOMPILED_ENTRIES = 20_000  # entries up to which compiling takes longer than it saves


def first_fit(
    starts: Any, rows: Any, row_starts: Any, columns: Any, order: Any, colours: Any, marks: Any
) -> None:
    """Colours of columns, for a pattern given by columns and by rows. No two columns of one colour
    have a row in common."""
    for v in order:
        for p in range(starts[v], starts[v + 1]):
            row = rows[p]
            for q in range(row_starts[row], row_starts[row + 1]):
                c = colours[columns[q]]
                if c >= 0:
                    marks[c] = v
        c = 0
        while marks[c] == v:
            c += 1
        colours[v] = c


def star(
    starts: Any,
    others: Any,
    edges: Any,
    order: Any,
    colours: Any,
    marks: Any,
    first_by: Any,
    first_at: Any,
    first_edge: Any,
    treated: Any,
    stars: Any,
    hubs: Any,
) -> None:
    """A star colouring: neighbours differ, and each path of four vertices has at least three
    colours.

    For each colour, `first_by`, `first_at` and `first_edge` have the vertex that saw it last, at
    which neighbour, and over which edge. `stars` has the star of each edge, `hubs` the centre of
    each star, -1 for a single edge.
    """
    count = 0
    for v in order:
        begin, end = starts[v], starts[v + 1]
        for p in range(begin, end):
            w = others[p]
            c = colours[w]
            if c < 0:
                continue
            marks[c] = v
            if first_by[c] == v:  # two neighbours of one colour: their neighbours' are forbidden
                for u in (first_at[c], w):
                    if treated[u] != v:
                        for q in range(starts[u], starts[u + 1]):
                            d = colours[others[q]]
                            if d >= 0:
                                marks[d] = v
                        treated[u] = v
            else:
                first_by[c], first_at[c], first_edge[c] = v, w, edges[p]
                for q in range(starts[w], starts[w + 1]):
                    x = others[q]
                    d = colours[x]
                    # w is a leaf of a star with hub x: v in x's colour would make a path of four
                    if d >= 0 and x != v and hubs[stars[edges[q]]] == x:
                        marks[d] = v
        c = 0
        while marks[c] == v:
            c += 1
        colours[v] = c
        for p in range(begin, end):  # the stars of v's edges
            w = others[p]
            d = colours[w]
            if d < 0:
                continue
            joined = False
            for q in range(starts[w], starts[w + 1]):
                x = others[q]
                if x != v and colours[x] == c:
                    stars[edges[p]] = stars[edges[q]]
                    hubs[stars[edges[q]]] = w
                    joined = True
                    break
            if not joined:
                if first_by[d] == v and first_at[d] != w:
                    stars[edges[p]] = stars[first_edge[d]]
                    hubs[stars[edges[p]]] = v
                else:
                    stars[edges[p]] = count
                    hubs[count] = -1
                    count += 1


def acyclic(
    starts: Any,
    others: Any,
    edges: Any,
    order: Any,
    colours: Any,
    marks: Any,
    first_by: Any,
    first_edge: Any,
    visit_by: Any,
    visit_at: Any,
    parents: Any,
) -> None:
    """An acyclic colouring: neighbours differ, and each cycle has at least three colours.

    `parents` are the trees of edges as disjoint sets. For each tree, `visit_by` and `visit_at` have
    the vertex that reached it last, and from which neighbour.
    """
    for v in order:
        begin, end = starts[v], starts[v + 1]
        for p in range(begin, end):
            c = colours[others[p]]
            if c >= 0:
                marks[c] = v
        for p in range(begin, end):
            w = others[p]
            if colours[w] < 0:
                continue
            for q in range(starts[w], starts[w + 1]):
                d = colours[others[q]]
                if d < 0 or marks[d] == v:
                    continue
                e = edges[q]
                while parents[e] != e:
                    parents[e] = parents[parents[e]]
                    e = parents[e]
                if visit_by[e] != v:
                    visit_by[e], visit_at[e] = v, w
                elif visit_at[e] != w:  # the tree is reached twice: v would close a cycle
                    marks[d] = v
        c = 0
        while marks[c] == v:
            c += 1
        colours[v] = c
        for p in range(begin, end):
            w = others[p]
            d = colours[w]
            if d < 0:
                continue
            a = edges[p]
            while parents[a] != a:
                parents[a] = parents[parents[a]]
                a = parents[a]
            if first_by[d] != v:
                first_by[d], first_edge[d] = v, edges[p]
            else:
                e = first_edge[d]
                while parents[e] != e:
                    parents[e] = parents[parents[e]]
                    e = parents[e]
                parents[e] = a
            for q in range(starts[w], starts[w + 1]):
                x = others[q]
                if x != v and colours[x] == c:
                    e = edges[q]
                    while parents[e] != e:
                        parents[e] = parents[parents[e]]
                        e = parents[e]
                    parents[e] = a


def smallest_last(
    starts: Any, others: Any, degrees: Any, heads: Any, after: Any, before: Any, order: Any
) -> None:
    """An order in which each vertex has few neighbours before it. The last vertex has the fewest
    neighbours, and so on for the graph without it. `heads` are lists of vertices by degree, linked
    by `after` and `before`."""
    n = len(order)
    for v in range(n):
        d = degrees[v]
        after[v] = heads[d]
        before[v] = -1
        if heads[d] >= 0:
            before[heads[d]] = v
        heads[d] = v
    least = 0
    for place in range(n - 1, -1, -1):
        least = max(least - 1, 0)
        while heads[least] < 0:
            least += 1
        v = heads[least]
        heads[least] = after[v]
        if after[v] >= 0:
            before[after[v]] = -1
        degrees[v] = -1
        order[place] = v
        for p in range(starts[v], starts[v + 1]):
            w = others[p]
            d = degrees[w]
            if d < 0:
                continue
            if before[w] >= 0:
                after[before[w]] = after[w]
            else:
                heads[d] = after[w]
            if after[w] >= 0:
                before[after[w]] = before[w]
            degrees[w] = d - 1
            after[w] = heads[d - 1]
            before[w] = -1
            if heads[d - 1] >= 0:
                before[heads[d - 1]] = w
            heads[d - 1] = w


@cache
def _compiled(function: Any, count: int) -> Any:
    import numba

    kind = numba.int64[::1]
    return numba.njit([numba.void(*[kind] * count)], nogil=True)(function)


def run(function: Any, size: int, given: Sequence[Any], kept: Sequence[Any]) -> None:
    """Run one of the functions above for a graph of `size` entries. It reads the arrays `given` and
    writes to the int64 arrays `kept`."""
    if size > UNCOMPILED_ENTRIES:
        wide = [np.ascontiguousarray(x, np.int64) for x in given]
        _compiled(function, len(given) + len(kept))(*wide, *kept)
        return
    lists = [np.asarray(x).tolist() for x in kept]
    function(*[np.asarray(x).tolist() for x in given], *lists)
    for x, found in zip(kept, lists, strict=True):
        x[...] = found
