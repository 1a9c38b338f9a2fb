"""Memory whose elements know whose they are: what running a plan as it is written looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tapegrad.ir.plan import Step

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
