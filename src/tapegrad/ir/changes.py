"""Substitutions of cells and indices, by which passes copy steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import At, Cell, Indirect, Read, in_pieces
from tapegrad.ir.panels import Panel


@dataclass(frozen=True)
class Changes:
    """A substitution of cells and indices for copying a step. `place` maps a cell at an index to
    another one; `indices` maps loop indices to affine numbers."""

    place: Callable[[Cell, At], tuple[Cell, At]] | None = None
    indices: Mapping[Index, Affine] = field(default_factory=dict)

    @staticmethod
    def at_places(places: Mapping[Cell, tuple[Cell, At]]) -> Changes:
        """A substitution of registers by elements of arrays."""
        return Changes(lambda cell, at: places.get(cell, (cell, at)))

    def at(self, at: At) -> At:
        if not self.indices and not any(isinstance(k, Indirect) for k in at):
            return at
        return tuple(
            [
                replace(k, read=self.read(k.read)) if isinstance(k, Indirect) else self.affine(k)
                for k in at
            ]
        )

    def affine(self, k: Affine) -> Affine:
        return k.substitute(self.indices)

    def index(self, index: Index) -> Index:
        """The index that replaces this one, which must be a single index without factor or
        offset."""
        found: Index | None = self.indices[index].index if index in self.indices else index
        assert found is not None
        return found

    def element(self, cell: Cell, at: At) -> tuple[Cell, At]:
        at = self.at(at)
        return (cell, at) if self.place is None else self.place(cell, at)

    def cell(self, cell: Cell) -> Cell:
        """The replacement of a cell that a step uses without an index."""
        return cell if self.place is None else self.place(cell, ())[0]

    def cells(self, cells: Sequence[Cell]) -> tuple[Cell, ...]:
        return tuple(map(self.cell, cells))

    def panel(self, panel: Panel) -> Panel:
        panel = replace(panel, at=self.at(panel.at))
        return panel if self.place is None else panel.moved(self.place)

    def read(self, read: Read) -> Read:
        if read.pieces:
            return in_pieces([(p.where, p.read) for p in (p.changed(self) for p in read.pieces)])
        if read.cell is None:
            at = self.at(read.at)
            return read if at is read.at else Read(None, at, read.literal)
        cell, at = self.element(read.cell, read.at)
        return read if cell is read.cell and at is read.at else Read(cell, at, read.literal)
