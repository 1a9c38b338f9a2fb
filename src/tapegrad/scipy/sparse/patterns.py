"""Patterns of sparse matrices: the positions of the elements, where these are known. That is so
for arguments and what is computed from them.

If an operation only moves elements, SciPy applies it to a matrix of element numbers:

  S has the elements a, b; S[[1, 0]] of the numbers 1, 2 is 2, 1  -->  its elements are b, a
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

FORMATS = ("csr", "csc", "coo")
MOST_PRODUCTS = 20_000_000  # terms of a matrix product


class Pattern:
    """The positions of the elements of a SciPy matrix, its class and its shape. It never changes.

    `sifted`: zeros among the elements are left out in the end, as SciPy leaves them out of sums.
    """

    def __init__(self, like: Any, cheap: Any, sifted: bool) -> None:
        self.like = like  # a matrix whose elements aren't set
        self.arrays = arrays_of(like)
        self.format, self.shape, self.nnz = like.format, like.shape, len(self.arrays[0])
        self.sifted = sifted
        self._cheap = cheap

    def __hash__(self) -> int:
        return hash(self._cheap)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Pattern)
            and self._cheap == other._cheap
            and all(map(np.array_equal, self.arrays, other.arrays))
        )

    def __repr__(self) -> str:
        return f"{type(self.like).__name__} of {self.shape} with {self.nnz} elements"

    def filled(self, elements: Any) -> Any:
        """SciPy's matrix with these elements and its own copy of the pattern."""
        found = _with(self.like, elements)
        if self.sifted:
            found.eliminate_zeros()
        return found

    # ---- row by row

    @cached_property
    def order(self) -> Any:
        """The permutation to the order row by row, or column by column; None if SciPy's order is
        that."""
        if self.format != "coo" or bool(np.all(self.arrays[0][1:] >= self.arrays[0][:-1])):
            return None
        return np.argsort(self.arrays[0], kind="stable")

    @cached_property
    def place(self) -> Any:
        """The inverse of `order`."""
        return None if self.order is None else np.argsort(self.order)

    @cached_property
    def held(self) -> tuple[Any, Any]:
        """In that order: the columns of elements, and where rows start; or, for csc, rows and
        columns."""
        if self.format != "coo":
            return self.arrays
        rows, columns = self.arrays
        starts = np.zeros(self.shape[0] + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=self.shape[0]), out=starts[1:])
        return (columns if self.order is None else columns[self.order]), starts

    @cached_property
    def listed(self) -> tuple[Any, Any]:
        """The rows and columns of elements, in SciPy's order."""
        if self.format == "coo":
            return self.arrays
        along, starts = self.arrays
        major = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        return (along, major) if self.format == "csc" else (major, along)

    # ---- derived patterns

    @cached_property
    def numbered(self) -> Any:
        """SciPy's matrix whose elements are their own numbers, from 1 on."""
        return self.filled(np.arange(1, self.nnz + 1, dtype=float))

    @cached_property
    def has_repeats(self) -> bool:
        """Whether the pattern has duplicate entries."""
        return len(np.unique(self.places)) < self.nnz

    @cached_property
    def summed(self) -> tuple[Pattern, Any]:
        """The pattern after SciPy has summed duplicates, and for each element the number of the
        element to which it is added."""
        found = self.filled(np.ones(self.nnz))
        found.sum_duplicates()
        pattern = pattern_of(found, self.sifted)
        order = np.argsort(pattern.places)
        return pattern, order[np.searchsorted(pattern.places[order], self.places)]

    @cached_property
    def places(self) -> Any:
        """For each element its position as one number."""
        rows, columns = self.listed
        return rows.astype(np.int64) * self.shape[1] + columns

    def moved(self, function: Callable[[Any], Any]) -> tuple[Pattern, Any] | None:
        """The pattern of the result of a SciPy function that moves elements, and the numbers of
        the elements in it: an array; a slice if the result shares memory with the matrix; None if
        it is the matrix. Returns None if SciPy sums elements or the result isn't known."""
        numbered = self.numbered
        found = function(numbered)
        if not sparse.issparse(found) or found.ndim != 2 or found.format not in FORMATS:
            return None
        if found is numbered:
            return self, None
        if self.has_repeats and np.any(function(self.filled(np.ones(self.nnz))).data != 1):
            return None
        numbers = found.data.astype(np.int64) - 1
        pattern = pattern_of(found, self.sifted)
        if not np.shares_memory(found.data, numbered.data):
            return pattern, numbers
        if np.any(np.diff(numbers) != 1):  # no SciPy function is known to do this
            return None
        return pattern, slice(int(numbers[0]), int(numbers[-1]) + 1)

    def times(self, other: Pattern) -> tuple[Pattern, Any, Any, Any] | None:
        """The pattern of the matrix product, and its terms: for each product of two elements the
        numbers of the factors and of the sum. None if there are too many terms."""
        rows, inner = self.listed
        right = other.filled(np.arange(other.nnz, dtype=float)).tocsr()
        if other.has_repeats or other.sifted or self.sifted:
            return None
        counts = np.diff(right.indptr)[inner]
        if counts.sum() > MOST_PRODUCTS:
            return None
        one = np.repeat(np.arange(self.nnz), counts)
        first = np.cumsum(counts) - counts
        at = np.arange(len(one)) - np.repeat(first - right.indptr[inner], counts)
        columns = right.indices[at]
        made = self.filled(np.ones(self.nnz)) @ other.filled(np.ones(other.nnz))
        pattern = pattern_of(made, sifted=True)
        order = np.argsort(pattern.places)
        wanted = rows[one].astype(np.int64) * pattern.shape[1] + columns
        target = order[np.searchsorted(pattern.places[order], wanted)]
        return pattern, one, right.data[at].astype(np.int64), target


CACHED_PATTERNS = 32  # patterns
_last: dict[Any, Pattern] = {}


def pattern_of(x: Any, sifted: bool = False) -> Pattern:
    """The pattern of a matrix. An equal pattern that was made before is returned as the same
    object."""
    arrays = arrays_of(x)
    cheap = type(x), x.shape, sifted, *[(a.dtype, a.shape) for a in arrays]
    known = _last.get(cheap)
    if known is None or not all(map(np.array_equal, known.arrays, arrays)):
        if len(_last) >= CACHED_PATTERNS:
            _last.clear()
        known = _last[cheap] = Pattern(_with(x, None), cheap, sifted)
    return known


def pattern_at(
    rows: Any, columns: Any, shape: Any, format: str, older: bool, sifted: bool
) -> tuple[Pattern, Any]:
    """SciPy's pattern for elements with these rows and columns, and for each element the number of
    the element to which it is added; None if the elements stay as they are."""
    kind = getattr(sparse, f"{format}_{'matrix' if older else 'array'}")
    listed = sparse.coo_array((np.ones(len(rows)), (rows, columns)), tuple(map(int, shape)))
    if format == "coo":
        return pattern_of(kind(listed), sifted), None
    found = kind(listed)  # sums duplicates
    found.sort_indices()
    pattern = pattern_of(found, sifted)
    order = np.argsort(pattern.places)
    places = rows.astype(np.int64) * int(shape[1]) + columns
    return pattern, order[np.searchsorted(pattern.places[order], places)]


def arrays_of(x: Any) -> tuple[Any, ...]:
    """The arrays of one of SciPy's matrices that hold the positions of its elements."""
    return tuple(x.coords) if x.format == "coo" else (x.indices, x.indptr)


def _with(x: Any, elements: Any) -> Any:
    """A matrix of SciPy's with a copy of another one's pattern, and other elements. The
    constructor isn't called, since it would check the pattern again."""
    made = copy.copy(x)
    if x.format == "coo":
        made.coords = tuple(a.copy() for a in x.coords)
    else:
        made.indices, made.indptr = x.indices.copy(), x.indptr.copy()
    made.data = elements
    return made
