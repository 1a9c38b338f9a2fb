"""Sharing: what crosses a call of NumPy is kept in memory.

A kernel's registers end with it. Temporaries that two kernels use, or a kernel and a call of NumPy
between them, are stored whole.
"""

from __future__ import annotations

from dataclasses import replace

from tapegrad.ir.plan import Cell, Plan, PythonCall, segments
from tapegrad.ir.relocate import with_cells


def store_shared(plan: Plan) -> Plan:
    """Mark the cells that several kernels, or a call of NumPy, use: they must be in memory."""
    seen: dict[Cell, int] = {}
    shared: dict[Cell, Cell] = {}
    for number, segment in enumerate(segments(plan.steps)):
        steps = [segment] if isinstance(segment, PythonCall) else segment
        for step in steps:
            for cell, at, _ in step.accesses():
                root = cell.root
                crosses = seen.setdefault(root, number) != number
                if root not in shared and (crosses or (at is None and cell.shape == ())):
                    shared[root] = replace(root, stored=True, axes=None)
    return with_cells(plan, shared)
