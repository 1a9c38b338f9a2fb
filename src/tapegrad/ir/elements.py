"""Memory whose elements know whose they are: what running a plan as it is written looks at."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from tapegrad.ir.fold import ADD
from tapegrad.ir.plan import Affine, At, Cell, Gemm, Step

NOBODY = -1


@dataclass
class Memory:
    """Elements, and for each whose it is, by which step it was stored, and whether it was read."""

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
    """A product of whole matrices, or of what is counted of them."""
    if step.sizes is None and step.share is None:
        x = machine.array(step.x, step.x_at, step, step.x_transposed)
        y = machine.array(step.y, step.y_at, step, step.y_transposed)
        total = machine.array(step.out, step.at, step, kept=False) if step.adds else 0.0
        machine.fill(step.out, step.at, total + x @ y if step.adds else x @ y, step)
        return
    ends = step.extents
    if step.sizes is not None:
        ends = tuple([machine.number(size)() for size in step.sizes])
    ranges = [range(end) for end in ends]
    if (own := step.share) is not None:
        first = machine.env[own.chunk] * own.size
        ranges[own.axis] = ranges[own.axis][first : first + own.size]
    _product_of_parts(machine, step, *ranges)


def _product_of_parts(machine: Any, step: Gemm, rows: range, columns: range, terms: range) -> None:
    """The product of parts of matrices, number by number: of what is around nobody knows."""

    def element(cell: Cell, at: At, swapped: bool, i: int, j: int) -> Any:
        last = (j, i) if swapped else (i, j)
        return machine.reading(cell, (*at, *[Affine((), k) for k in last]), step)()

    for i, j in itertools.product(rows, columns):
        found = [
            element(step.x, step.x_at, step.x_transposed, i, k)
            * element(step.y, step.y_at, step.y_transposed, k, j)
            for k in terms
        ]
        at = (*step.at, Affine((), i), Affine((), j))
        machine.storing(step.out, at, step, ADD if step.adds else None)(sum(found, 0.0))
