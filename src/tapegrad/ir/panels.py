"""Panels: matrices inside of arrays, the operands of matrix products.

    x[b, i + 1, 2:14, :]            at (b, i + 1, 2, 0), rows along axis 2, columns along axis 3
    the same of all b and i         rows along the axes 0, 1 and 2, one behind the other in memory
    q[:, h, :].T                    at (0, h, 0), rows along axis 2, columns along axis 0
    the windows of an image         rows along axes 0, 1 and 2, columns along axes 1 and 2 again

So a slice, one head of several, or overlapping windows are multiplied without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tapegrad.ir.affine import Affine
from tapegrad.ir.cells import Along, At, Cell, Indirect, Share


@dataclass(frozen=True)
class Panel:
    """A matrix of the given `shape` in a cell, starting at `at`.

    `rows` and `columns` are axes of the cell. Several axes count as one, since they are adjacent in
    memory and the later ones are taken whole. Windows may use an axis twice, for rows and for
    columns: then `ways` holds (extent, step) for each axis of the rows and of the columns.
    """

    cell: Cell
    at: At
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    shape: tuple[int, int]
    ways: tuple[tuple[tuple[int, int], ...], ...] | None = None

    @staticmethod
    def of(cell: Cell, at: At = (), swapped: bool = False) -> Panel:
        """The matrix in the last two axes of a cell, at an index of the others; transposed if
        `swapped`."""
        first, last = range(len(cell.shape))[-2:]
        shape = cell.shape[first], cell.shape[last]
        panel = Panel(cell, (*at, Affine(), Affine()), (first,), (last,), shape)
        return panel.T if swapped else panel

    @property
    def T(self) -> Panel:
        ways = self.ways and self.ways[::-1]
        return replace(
            self, rows=self.columns, columns=self.rows, shape=self.shape[::-1], ways=ways
        )

    def ways_of(self, k: int) -> tuple[tuple[int, int], ...]:
        """The (extent, step) pairs of the rows' axes (if `k` is 0) or of the columns' (if it is
        1)."""
        axes = (self.rows, self.columns)[k]
        return self.ways[k] if self.ways else tuple([(self.cell.shape[a], 1) for a in axes])

    def in_rows(self, start: int, count: int) -> Panel:
        """The panel of `count` rows from row `start` on. Its rows must go along one axis."""
        (axis,) = self.rows
        at = list(self.at)
        entry = at[axis]
        assert isinstance(entry, Affine)
        at[axis] = entry + start
        return replace(self, at=tuple(at), shape=(count, self.shape[1]))

    @property
    def left(self) -> tuple[At, tuple[int, ...], tuple[int, ...]]:
        """The start, the row axes and the column axes, among the axes that shrinking left."""
        kept = self.cell.axes
        if kept is None or self.cell.alias is not None:
            return self.at, self.rows, self.columns
        at = tuple([self.at[a] for a in kept])
        rows, columns = (
            tuple([kept.index(a) for a in axes if a in kept]) for axes in (self.rows, self.columns)
        )
        return at, rows, columns

    @property
    def first(self) -> At | None:
        """The index of a matrix that fills the last two axes of its cell as they are; None for any
        other."""
        at, rows, columns = self.left
        shape = self.cell.shape if self.cell.alias is not None else self.cell.left
        last = (rows, columns) == ((len(at) - 2,), (len(at) - 1,))
        whole = at[-2:] == (Affine(), Affine()) and shape[-2:] == self.shape
        return at[:-2] if last and whole and self.ways is None else None

    @property
    def outside(self) -> tuple[Affine | Indirect | None, ...]:
        """The position along the axes that are neither rows nor columns; None for rows and
        columns."""
        own = {*self.rows, *self.columns}
        return tuple([None if a in own else k for a, k in enumerate(self.at)])

    def along(self, axes: Sequence[int], share: Share | None) -> Along:
        """For each axis of the cell, the only thing that the position along it depends on.

        `axes` are the dimensions of the product (ROWS, COLUMNS, TERMS) that this panel's rows and
        columns stand for, and `share` is the part of the product that a chunk computes.
        """
        found: list[Affine | Share | None] = [
            k.alone if isinstance(k, Affine) else None for k in self.at
        ]
        for mine, axis in zip((self.rows, self.columns), axes, strict=True):
            for a in mine:
                found[a] = None
            start = self.at[mine[0]]
            if share is None or share.axis != axis:
                continue
            if isinstance(start, Affine) and not start.terms:  # else chunks may overlap in a loop
                found[mine[0]] = replace(share, joined=len(mine), start=start)
        return tuple(found)

    def place(self, row: int, column: int) -> At:
        """The index of the element at a row and a column."""
        at = list(self.at)
        for k, (axes, number) in enumerate(((self.rows, row), (self.columns, column))):
            ways = zip(axes, self.ways_of(k), strict=True)
            for n, (a, (extent, step)) in enumerate(reversed([*ways])):
                digit = number if n == len(axes) - 1 else number % extent
                number //= extent
                entry = at[a]
                assert isinstance(entry, Affine)
                at[a] = entry + digit * step
        return tuple(at)

    def entry(self, place: At) -> At:
        """The index of the element at a row and a column that are loop indices. Rows and columns
        must go along one axis each."""
        at = list(self.at)
        for (axis,), number in zip((self.rows, self.columns), place, strict=True):
            entry = at[axis]
            assert isinstance(entry, Affine) and isinstance(number, Affine)
            at[axis] = entry + number
        return tuple(at)

    def moved(self, place: Callable[[Cell, At], tuple[Cell, At]]) -> Panel:
        """The same matrix in another cell. `place` maps a cell and index to the new ones."""
        marked = [Affine(k.terms, k.const) if isinstance(k, Affine) else k for k in self.at]
        cell, at = place(self.cell, tuple(marked))
        axes = {id(k): a for a, k in enumerate(at)}
        rows, columns = (
            tuple([axes[id(marked[a])] for a in mine if id(marked[a]) in axes])
            for mine in (self.rows, self.columns)
        )
        return Panel(cell, at, rows, columns, self.shape, self.ways)

    def fault(self) -> str:
        """A message that says what is malformed, or ""."""
        if len(self.at) != len(self.cell.shape):
            return "a matrix isn't at an index of its cell"
        if self.ways is not None:
            return self._fault_of_windows()
        if set(self.rows) & set(self.columns):
            return "a matrix isn't at an index of its cell"
        for axes, extent in zip((self.rows, self.columns), self.shape, strict=True):
            if any(not isinstance(self.at[a], Affine) for a in axes):
                return "an index array says where a matrix is along its own axes"
            if not axes or list(axes) != list(range(axes[0], axes[-1] + 1)):
                return "the axes of a matrix don't follow each other"
            start, *inner = (self.at[a] for a in axes)
            size = math.prod(self.cell.shape[a] for a in axes[1:])
            if any(k != Affine() for k in inner) or extent % max(1, size):
                return "the inner axes of a matrix aren't taken whole"
            assert isinstance(start, Affine)
            least, most = start.range
            if least < 0 or most + extent // max(1, size) > self.cell.shape[axes[0]]:
                return "a matrix isn't inside its cell"
        return ""

    def _fault_of_windows(self) -> str:
        ends: dict[int, int] = {}
        for k, axes in enumerate((self.rows, self.columns)):
            ways = self.ways_of(k)
            if len(ways) != len(axes) or math.prod(n for n, _ in ways) != self.shape[k]:
                return "windows have other rows and columns than their matrix"
            for a, (extent, step) in zip(axes, ways, strict=True):
                ends[a] = ends.get(a, 0) + (extent - 1) * step
                if step < 1:
                    return "windows go backwards"
        for a, end in ends.items():
            start = self.at[a]
            if not isinstance(start, Affine):
                return "an index array says where a matrix is along its own axes"
            if start.range[0] < 0 or start.range[1] + end >= self.cell.shape[a]:
                return "a matrix isn't inside its cell"
        return ""
