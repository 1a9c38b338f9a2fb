"""Cells, and the indices at which they are read and written.

Indices are affine in the loops' indices, so views cost nothing: they are composed into the index
with which the operand is read. Short names: `at` an index, one entry for each axis.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass, field

import numpy as np

from tapegrad.core.values import Aval, Literal, Source
from tapegrad.ir.affine import Affine as Affine
from tapegrad.ir.affine import Index as Index

UNBOUNDED = sys.maxsize  # the extent of an index by which no array is read

_ids = itertools.count()


@dataclass(frozen=True, eq=False)
class Cell:
    """A place for values of one dtype. `role` is "input", "output", "temporary", or "state": of a
    round, what is carried in place, which is an input and an output at once.

    `alias` is the cell whose memory this one shares under another shape. `axes` are the axes that
    shrinking leaves; None means all of them. A result may leave under another shape, `leaving`.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    role: str = "temporary"
    hint: str = ""
    src: Source | None = None
    alias: Cell | None = None
    axes: tuple[int, ...] | None = None
    scalar: bool = False  # an input passed by value
    stored: bool = False  # in memory though it has no axes: two kernels use it
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
        """The shape under which it is passed to kernels, and leaves."""
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
    """An index that an array of integers holds; negative ones count from the end."""

    read: Read
    extent: int


At = tuple[Affine | Indirect, ...]


@dataclass(frozen=True)
class Read:
    """A cell at an index, or a literal; or, of neither, the index itself, as a number."""

    cell: Cell | None
    at: At = ()
    literal: Literal | None = None


# ---- of products, and what is shared out

ROWS, COLUMNS, TERMS = range(3)  # what a product counts: m, n and k of (m, k) @ (k, n)


@dataclass(frozen=True)
class Share:
    """What one chunk computes of a product: of its rows, columns or terms up to `size`, from that
    many times `chunk` on. In an array, these are counted along so many of its axes as one, from an
    entry of the first of them on."""

    axis: int
    chunk: Index
    size: int
    joined: int = 1
    start: Affine = field(default_factory=Affine)


# What alone says where along each axis an access is: an index, or the share of a chunk.
Along = tuple[Index | Share | None, ...]
