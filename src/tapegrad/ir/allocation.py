"""Where the stored temporaries of a plan live: in scratch memory, or in results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tapegrad.ir.affine import Affine
from tapegrad.ir.cells import At, Cell


@dataclass(frozen=True, eq=False)
class Slot:
    """A piece of scratch memory, in which temporaries live one after another."""

    dtype: np.dtype
    size: int


@dataclass(frozen=True)
class Home:
    """Where a temporary lives: in a slot, or in a result that isn't written yet, from element
    `start` on."""

    memory: Slot | Cell
    start: int


@dataclass(frozen=True)
class Allocation:
    """The scratch memory of a plan, and the home of each stored temporary."""

    slots: tuple[Slot, ...]
    homes: Mapping[Cell, Home]

    def home(self, cell: Cell) -> Home:
        """The memory of a cell, and where in it the cell starts; others may live there before and
        after. Arguments, results and registers have memory of their own."""
        return self.homes.get(cell.root) or Home(cell.root, 0)


@dataclass(frozen=True)
class Span:
    """The elements of a memory from `start` to `stop` - 1."""

    memory: Slot | Cell
    start: int
    stop: int

    def meets(self, other: Span) -> bool:
        same = self.memory is other.memory
        return same and self.start < other.stop and other.start < self.stop


def extent(cell: Cell) -> int:
    """How many elements a cell takes in memory."""
    return math.prod(cell.left)


def span(cell: Cell, at: At | None, allocation: Allocation) -> Span:
    """Where an access may touch memory: a single element, if its index is constant."""
    home = allocation.home(cell)
    if at is None or len(at) < len(cell.shape):
        return Span(home.memory, home.start, home.start + extent(cell.root))
    low = high = home.start
    for k, size, stride in zip(left_of(cell, at), cell.left, strides(cell.left), strict=True):
        least, most = k.range if isinstance(k, Affine) else (0, size - 1)
        low += max(least, 0) * stride
        high += min(most, size - 1) * stride
    return Span(home.memory, low, high + 1)


def left_of(cell: Cell, at: At) -> At:
    """The entries of an index that shrinking left."""
    return at if cell.axes is None else tuple(at[a] for a in cell.axes)


def strides(shape: tuple[int, ...]) -> list[int]:
    """In elements, of an array in row-major order."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
