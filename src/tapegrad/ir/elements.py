"""Memory whose elements know whose they are: what running a plan as it is written looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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


def product_of_fronts(machine: Any, step: Gemm, sizes: Sequence[int]) -> None:
    """The product of the fronts of matrices, number by number: of what is behind nobody knows."""
    rows, columns, depth = sizes

    def element(cell: Cell, at: At, swapped: bool, i: int, j: int) -> Any:
        last = (j, i) if swapped else (i, j)
        return machine.reading(cell, (*at, *[Affine((), k) for k in last]), step)()

    for i, j in np.ndindex(rows, columns):
        terms = [
            element(step.x, step.x_at, step.x_transposed, i, k)
            * element(step.y, step.y_at, step.y_transposed, k, j)
            for k in range(depth)
        ]
        at = (*step.at, Affine((), i), Affine((), j))
        machine.storing(step.out, at, step, ADD if step.adds else None)(sum(terms, 0.0))
