"""Sets of columns, one for each element of an array: the rows of a Boolean matrix.

Elements share sets. A view, a broadcast array, or a sum that many elements read only takes a number
for each element, which says which set is its own. So intermediate values may be dense without
taking memory, if the result isn't.

Names: `sets` a CSR matrix, whose last row is empty; `which` the row of each element in it, -1 for
an element without columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from tapegrad.sparsity.bits import Bits, together

# Beyond this number of entries without shared sets all elements get one set, the union: nothing is
# missing from it, and the pattern would be nearly dense.
MAX_ENTRIES = 2 * 10**8

FEW_COLUMNS = 128  # numbers of columns up to which sets are bits

# entries up to which unions are computed without a check whether one set contains the other
FEW_PAIRS = 10**5


class Rows:
    """The columns of each element of a flattened array."""

    __slots__ = ("_single", "sets", "which")

    def __init__(self, sets: Any, which: Any, single: bool | None = None) -> None:
        self.sets = sets
        self.which = which
        self._single = single

    @classmethod
    def numbered(cls, start: int, size: int, columns: int) -> Rows:
        """Element k depends on the column `start + k` alone."""
        starts = np.minimum(np.arange(size + 2), size)
        sets = boolean(starts, np.arange(start, start + size), (size + 1, columns))
        return cls(sets, np.arange(size), True)

    @classmethod
    def whole(cls, matrix: Any) -> Rows:
        """One set for each element: the rows of a matrix."""
        starts = np.append(matrix.indptr, matrix.indptr[-1])
        rows, columns = matrix.shape
        return cls(boolean(starts, matrix.indices, (rows + 1, columns)), np.arange(rows), True)

    @property
    def size(self) -> int:
        return len(self.which)

    def repeated(self, times: int) -> Rows:
        """The elements, repeated."""
        return Rows(self.sets, np.tile(self.which, times))

    @property
    def single(self) -> bool:
        """Whether no two elements share a set."""
        if self._single is None:
            own = self.which[self.which >= 0]
            counts = np.bincount(own, minlength=1) if len(own) <= self.sets.shape[0] else [2]
            self._single = bool(np.max(counts) <= 1)
        return self._single

    @property
    def empty(self) -> bool:
        """Whether no element has a column, as far as a quick check tells."""
        return self.sets.nnz == 0 or int(self.which.max(initial=-1)) < 0

    def lengths(self) -> Any:
        """The number of columns of each element."""
        return np.diff(self.sets.indptr)[self.which]

    def matrix(self) -> Any:
        """A Boolean matrix with a row for each element."""
        count = self.sets.shape[0] - 1
        if self.size == count and np.array_equal(self.which, np.arange(count)):
            return boolean(self.sets.indptr[:-1], self.sets.indices, (count, self.sets.shape[1]))
        return rows_of(self.sets, self.which)

    def take(self, source: Any) -> Rows:
        """The elements numbered `source`; an empty set for -1."""
        missing = source < 0
        which = self.which[source] if self.size else np.full(len(source), -1)
        return Rows(self.sets, np.where(missing, -1, which) if missing.any() else which)

    def gathered(self, targets: Any, sources: Any, count: int) -> Rows:
        """For each of `count` targets, the union of the columns of its sources. The pairs are
        (targets[n], sources[n])."""
        which = self.which[sources]
        kept = (which >= 0) & (targets >= 0)
        pairs = sparse.csr_array(
            (np.ones(np.count_nonzero(kept), bool), (targets[kept], which[kept])),
            (count, self.sets.shape[0]),
        )
        lengths = np.diff(self.sets.indptr)
        if lengths[pairs.indices].sum() > 2 * MAX_ENTRIES:
            return self.lump(count)
        return Rows.whole(settled(pairs @ self.sets))

    def cost(self, sources: Any) -> int:
        """The number of entries to go through for `gathered`."""
        return int(self.lengths()[sources].sum())

    def lump(self, count: int) -> Rows:
        """`count` elements that all have the union of all columns."""
        used = np.unique(self.which)
        columns = np.unique(rows_of(self.sets, used).indices)
        starts = np.array([0, len(columns), len(columns)])
        return Rows(boolean(starts, columns, (2, self.sets.shape[1])), np.zeros(count, np.intp))


def boolean(starts: Any, columns: Any, shape: tuple[int, int]) -> Any:
    """A Boolean CSR matrix. The columns of each row must be sorted."""
    made = sparse.csr_array((np.ones(len(columns), bool), columns, starts), shape)
    made.has_canonical_format = True
    return made


def settled(matrix: Any) -> Any:
    """The same matrix with sorted columns."""
    matrix.sort_indices()
    matrix.has_canonical_format = True
    return matrix


def rows_of(sets: Any, which: Any) -> Any:
    """The rows numbered `which`."""
    taken = sets[which]
    taken.has_canonical_format = True
    return taken


def numbered(start: int, size: int, columns: int) -> Any:
    """Rows or bits for `size` elements. Element k depends on the column `start + k` alone."""
    kind = Bits if columns <= FEW_COLUMNS else Rows
    return kind.numbered(start, size, columns)


def union(parts: Sequence[Any]) -> Any:
    """The union of the parts, element by element."""
    if isinstance(parts[0], Bits):
        return together(parts)
    found: list[Rows] = []
    for part in parts:
        if not part.empty and not any(_same(part, other) for other in found):
            found.append(part)
    if not found:
        return parts[0]
    total = found[0]
    for part in found[1:]:
        total = _both(total, part)
    return total


def apart(parts: Sequence[Any]) -> Any:
    """The same, if each element has columns in at most one part."""
    if isinstance(parts[0], Bits):
        return together(parts)
    found = [part for part in parts if not part.empty]
    if not found:
        return parts[0]
    sets, which = found[0].sets, found[0].which
    for part in found[1:]:
        own = part.which
        if part.sets is not sets:
            own = np.where(own < 0, -1, own + sets.shape[0])
            sets = sparse.vstack([sets, part.sets], format="csr")
            sets.has_canonical_format = True
        which = np.where(own < 0, which, own)
    return Rows(sets, which)


def _same(x: Rows, y: Rows) -> bool:
    return x.sets is y.sets and (x.which is y.which or np.array_equal(x.which, y.which))


def _both(x: Rows, y: Rows) -> Rows:
    """The union of two."""
    if x.single or y.single:
        return _paired(x, y)
    # Equal pairs of sets are combined once.
    codes = (x.which + 1) * (y.sets.shape[0] + 1) + (y.which + 1)
    codes, inverse = np.unique(codes, return_inverse=True)
    left, right = np.divmod(codes, y.sets.shape[0] + 1)
    found = _paired(Rows(x.sets, left - 1), Rows(y.sets, right - 1))
    return Rows(found.sets, found.which[inverse])


def _paired(x: Rows, y: Rows) -> Rows:
    few, many = x.lengths(), y.lengths()
    total = int(few.sum()) + int(many.sum())
    if total <= 4 * (x.sets.nnz + y.sets.nnz) + FEW_PAIRS:
        return Rows.whole(x.matrix() + y.matrix())
    # Sets that many elements share are long. If one contains the other, it is the union.
    in_y = (few <= many) & _held(x, y, few <= many)
    in_x = (few > many) & _held(y, x, few > many)
    rest = np.flatnonzero(~(in_x | in_y))
    if int(few[rest].sum() + many[rest].sum()) > MAX_ENTRIES:
        return apart_lumps(x, y)
    new = rows_of(x.sets, x.which[rest]) + rows_of(y.sets, y.which[rest])
    sets = sparse.vstack([x.sets, y.sets, Rows.whole(new).sets], format="csr")
    sets.has_canonical_format = True
    which = np.where(in_y, y.which + x.sets.shape[0], x.which)
    which[rest] = x.sets.shape[0] + y.sets.shape[0] + np.arange(len(rest))
    return Rows(sets, which)


def apart_lumps(x: Rows, y: Rows) -> Rows:
    """One set for all elements, the union of both."""
    lumps = [x.lump(1).matrix(), y.lump(1).matrix()]
    return Rows.whole(lumps[0] + lumps[1]).take(np.zeros(x.size, np.intp))


def _held(small: Rows, large: Rows, asked: Any) -> Any:
    """Whether the large set contains the small one, for the elements in the mask `asked`."""
    held = np.zeros(small.size, bool)
    places = np.flatnonzero(asked)
    columns = small.sets.shape[1]
    rows = np.repeat(np.arange(large.sets.shape[0]), np.diff(large.sets.indptr))
    keys = rows * columns + large.sets.indices
    taken = rows_of(small.sets, small.which[places])
    lengths = np.diff(taken.indptr)
    mine = np.where(large.which[places] < 0, large.sets.shape[0] - 1, large.which[places])
    wanted = np.repeat(mine, lengths) * columns + taken.indices
    at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    there = keys[at] == wanted if len(keys) else np.zeros(len(wanted), bool)
    counts = np.bincount(np.repeat(np.arange(len(places)), lengths), there, len(places))
    held[places] = counts == lengths
    return held
