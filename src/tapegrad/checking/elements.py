"""Memory that records the owner of each element, for running plans."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.ir.fold import ADD
from tapegrad.ir.panels import Panel
from tapegrad.ir.steps import Gemm, Step

NOBODY = -1


@dataclass
class Memory:
    """Elements of memory, each with its owner, the step that stored it, and whether it was read."""

    values: list[Any]
    owners: list[int]
    writers: list[Step | None]
    was_read: list[bool]

    @staticmethod
    def of(size: int) -> Memory:
        return Memory([None] * size, [NOBODY] * size, [None] * size, [False] * size)

    def forget(self, start: int = 0, size: int | None = None) -> None:
        size = len(self.owners) if size is None else size
        self.owners[start : start + size] = [NOBODY] * size


def missing(owner: int) -> str:
    if owner == NOBODY:
        return "it is read before it is written"
    return "it is read where another has been written over it"


def product(machine: Any, step: Gemm) -> None:
    """Run a matrix product, or the part of it given by its sizes or share."""
    ends = step.extents
    if step.sizes is not None:
        ends = tuple([machine.number(size)() for size in step.sizes])
    ranges = [range(end) for end in ends]
    if (own := step.share) is not None:
        first = machine.env[own.chunk] * own.size
        ranges[own.axis] = ranges[own.axis][first : first + own.size]
    rows, columns, terms = ranges
    x, y = (
        _matrix(machine, step, step.x, rows, terms),
        _matrix(machine, step, step.y, terms, columns),
    )
    found = x @ y
    for (a, i), (b, j) in itertools.product(enumerate(rows), enumerate(columns)):
        store = machine.storing(
            step.out.cell, step.out.place(i, j), step, ADD if step.adds else None
        )
        store(found[a, b])


def _matrix(machine: Any, step: Gemm, panel: Panel, rows: range, columns: range) -> Any:
    """The rows and columns of a matrix, read element by element. Elements around it may be
    unwritten."""
    found = np.zeros((len(rows), len(columns)), panel.cell.dtype)
    for (a, i), (b, j) in itertools.product(enumerate(rows), enumerate(columns)):
        found[a, b] = machine.reading(panel.cell, panel.place(i, j), step)()
    return found
