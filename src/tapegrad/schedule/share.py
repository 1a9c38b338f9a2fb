"""Sharing: what crosses a call of NumPy is kept in memory.

A kernel's registers end with it. Temporaries that two kernels use, or a kernel and a call of NumPy
between them, are stored whole.
"""

from __future__ import annotations

from tapegrad.ir.plan import Cell, Plan, PythonCall, segments


def store_shared(plan: Plan) -> Plan:
    """Mark the cells that several kernels, or a call of NumPy, use: they must be in memory."""
    seen: dict[Cell, int] = {}
    for number, segment in enumerate(segments(plan.steps)):
        steps = [segment] if isinstance(segment, PythonCall) else segment
        for step in steps:
            for cell, at, _ in step.accesses():
                root = cell.root
                if seen.setdefault(root, number) != number or (at is None and cell.shape == ()):
                    root.stored = True
                    root.axes = None
    return plan
