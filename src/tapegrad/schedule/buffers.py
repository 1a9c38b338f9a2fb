"""Buffers: which temporaries share memory, by when they live.

A stored temporary needs memory from the first to the last top-level step that touches it. Slots
are handed out in that order; a slot that is free again, of the same dtype, is taken before a new
one is opened.
"""

from __future__ import annotations

from tapegrad.ir.plan import Cell, Plan, Slot


def extent(cell: Cell) -> int:
    """How many elements a stored temporary needs."""
    size = 1
    for n in cell.left:
        size *= n
    return size


def assign(plan: Plan) -> list[Slot]:
    """Slots for all stored temporaries of a plan."""
    first: dict[Cell, int] = {}
    last: dict[Cell, int] = {}
    for position, step in enumerate(plan.steps):
        for cell, _, _ in step.accesses():
            root = cell.root
            if root.role == "temporary" and not root.in_register:
                first.setdefault(root, position)
                last[root] = position
    slots: list[Slot] = []
    for cell in sorted(first, key=lambda c: first[c]):
        size = extent(cell)
        fitting = [s for s in slots if s.dtype == cell.dtype and s.free_from <= first[cell]]
        # The smallest that is large enough; else the largest, grown.
        fitting.sort(key=lambda s: (s.size < size, s.size if s.size >= size else -s.size))
        slot = fitting[0] if fitting else Slot(cell.dtype, size, 0)
        if not fitting:
            slots.append(slot)
        slot.size = max(slot.size, size)
        slot.free_from = last[cell] + 1
        slot.cells.append(cell)
    return slots


def planned_peak_bytes(slots: list[Slot]) -> int:
    """The scratch memory of a plan, in bytes."""
    return sum(s.size * s.dtype.itemsize for s in slots)
