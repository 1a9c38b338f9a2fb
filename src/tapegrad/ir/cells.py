"""Cells, and the indices at which they are read and written.

Indices are affine in the loop indices, so views cost nothing: they are composed into the index of
the operand. Short names: `at` an index, one entry for each axis.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tapegrad.core.values import Aval, Literal, Source
from tapegrad.ir.affine import Affine as Affine
from tapegrad.ir.affine import Index as Index

UNBOUNDED = sys.maxsize  # the extent of an index by which no array is read

_ids = itertools.count()


@dataclass(frozen=True, eq=False)
class Cell:
    """A place for values of one dtype.

    `role` is "input", "output", "temporary" or "state". A state is carried in place by the rounds
    of a loop: it is an input and an output of the round's plan at once. `alias` is the cell whose
    memory this one shares under another shape. `axes` are the axes that shrinking left; None means
    all of them. `leaving` is the shape in which a result is returned, if it differs from `shape`.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    role: str = "temporary"
    hint: str = ""
    src: Source | None = None
    alias: Cell | None = None
    axes: tuple[int, ...] | None = None
    scalar: bool = False  # an input passed by value
    stored: bool = False  # in memory although it has no axes: two kernels use it
    leaving: tuple[int, ...] | None = None
    id: int = field(default_factory=lambda: next(_ids))

    @property
    def root(self) -> Cell:
        return self if self.alias is None else self.alias.root

    @property
    def left(self) -> tuple[int, ...]:
        """The extents of the axes that shrinking left."""
        return self.shape if self.axes is None else tuple(self.shape[a] for a in self.axes)

    @property
    def outer(self) -> tuple[int, ...]:
        """The shape in which kernels take the cell, and in which it is returned."""
        return self.shape if self.leaving is None else self.leaving

    @property
    def in_register(self) -> bool:
        return (
            self.role == "temporary" and self.alias is None and self.left == () and not self.stored
        )

    @property
    def aval(self) -> Aval:
        return Aval(self.shape, self.dtype)


@dataclass(frozen=True)
class Indirect:
    """An index that is read from an array of integers. Negative ones count from the end."""

    read: Read
    extent: int


At = tuple[Affine | Indirect, ...]


@dataclass(frozen=True)
class Read:
    """An operand of a step: a cell at an index, or a literal. With neither cell nor literal it is
    the value of the index itself, or with `pieces` what the one has that holds (see
    `schedule/split.py`)."""

    cell: Cell | None
    at: At = ()
    literal: Literal | None = None
    pieces: tuple[Piece, ...] = ()


Where = tuple[tuple[Index, range], ...]  # loop indices and the ranges in which they are


@dataclass(frozen=True)
class Piece:
    """What is read where these loop indices are in their ranges. Of the pieces of a read at most
    one holds; where none does, a term of a sum is left out."""

    where: Where
    read: Read

    def changed(self, to: Any) -> Piece:
        """A copy with cells and indices replaced."""
        where: Where = ()
        for index, inside in self.where:
            where = both(where, where_in(to.affine(Affine.of(index)), inside))
        return Piece(where, to.read(self.read))

    def holds(self, values: Mapping[Index, int]) -> bool:
        return all(values[index] in r for index, r in self.where)


NOWHERE: Where = ((Index(1), range(0)),)
LEFT_OUT = Read(None)  # a term of a sum that is left out everywhere


def where_in(k: Affine, inside: range) -> Where:
    """Where a number with at most one loop index, which has no limit, is in a range."""
    if not k.terms:
        return () if k.const in inside else NOWHERE
    ((index, factor),) = k.terms
    first, last = inside.start - k.const, inside.stop - 1 - k.const
    if factor < 0:
        first, last, factor = -last, -first, -factor
    return ((index, range(max(0, -(-first // factor)), min(index.extent, last // factor + 1))),)


def both(one: Where, other: Where) -> Where:
    """Where both hold."""
    found = dict(one)
    for index, inside in other:
        mine = found.get(index, inside)
        found[index] = range(max(mine.start, inside.start), min(mine.stop, inside.stop))
    return tuple(found.items())


def in_pieces(parts: Iterable[tuple[Where, Read]]) -> Read:
    """A read of what is in each part, which may be in pieces itself."""
    found: list[Piece] = []
    for where, read in parts:
        for piece in read.pieces or (Piece((), read),):
            mine = both(where, piece.where)
            if all(inside for _, inside in mine):
                found.append(Piece(mine, piece.read))
    return found[0].read if found and not found[0].where else Read(None, pieces=tuple(found))


def read_accesses(read: Read) -> Iterator[tuple[Cell, At | None, bool]]:
    """The accesses of a read, of all its pieces, and of the index arrays in its index."""
    if read.cell is not None:
        yield read.cell, read.at, False
        for k in read.at:
            if isinstance(k, Indirect):
                yield from read_accesses(k.read)
    for piece in read.pieces:
        yield from read_accesses(piece.read)


# ---- matrix products, and their division among chunks

ROWS, COLUMNS, TERMS = range(3)  # the dimensions of a product: m, n and k of (m, k) @ (k, n)


@dataclass(frozen=True)
class Share:
    """The part of a matrix product that one chunk computes: up to `size` of its rows, columns or
    terms (`axis`), from `chunk * size` on.

    In an array, `joined` axes count as one for this, and the count begins at entry `start` of the
    first of them.
    """

    axis: int
    chunk: Index
    size: int
    joined: int = 1
    start: Affine = field(default_factory=Affine)


# For each axis the position of an access along it, if that depends on one loop index only; or the
# share of a chunk. None if it depends on more, or on nothing.
Along = tuple[Affine | Share | None, ...]
