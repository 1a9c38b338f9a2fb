"""The memory of a plan's stored temporaries: scratch memory, or results that aren't written yet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tapegrad.ir.affine import Affine
from tapegrad.ir.cells import At, Cell


@dataclass(frozen=True, eq=False)
class Slot:
    """A piece of scratch memory that several temporaries use one after another."""

    dtype: np.dtype
    size: int


@dataclass(frozen=True)
class Home:
    """The memory of a temporary, from element `start` on: a slot, or a result that isn't written
    yet."""

    memory: Slot | Cell
    start: int


@dataclass(frozen=True)
class Allocation:
    """The scratch memory of a plan, and the home of each stored temporary."""

    slots: tuple[Slot, ...]
    homes: Mapping[Cell, Home]

    def home(self, cell: Cell) -> Home:
        """The memory of a cell, and its start there. Other cells may use the memory before and
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
    """The number of elements that a cell takes in memory."""
    return int(math.prod(cell.left))


def span(cell: Cell, at: At | None, allocation: Allocation) -> Span:
    """The elements of memory that an access may touch. If the index is constant, it is one
    element."""
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
    """The entries of an index for the axes that shrinking left."""
    return at if cell.axes is None else tuple(at[a] for a in cell.axes)


def strides(shape: tuple[int, ...]) -> list[int]:
    """The strides, in elements, of an array in row-major order."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
