"""Contracting: a temporary that is only live inside a loop loses the axis of that loop.

    for i:                              for i:
        a[i] = exp(x[i])       -->          a = exp(x[i])
        b[i] = a[i] * y[i]                  b[i] = a * y[i]

A temporary that loses all its axes is a register.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import Cell
from tapegrad.ir.plan import Plan, with_cells
from tapegrad.ir.steps import Loop, Places, Step

Around = TypeVar("Around", Index, Loop)


def shrink(plan: Plan) -> Plan:
    """Shrink each temporary to the axes that aren't indices of loops around all of its uses."""
    seen: dict[Cell, list[tuple[tuple[Index, ...], Places | None]]] = {}
    for around, step in with_loops(plan.steps, ()):
        for cell, at, _ in step.touches():
            seen.setdefault(cell, []).append((around, at))
    shrunk: dict[Cell, Cell] = {}
    aliased = {cell.root for cell in seen if cell.alias is not None}
    for cell, uses in seen.items():
        if cell.role != "temporary" or cell.alias is not None or cell in aliased:
            continue
        if any(at is None for _, at in uses):
            continue
        common = in_common([around for around, _ in uses])
        lost = set()
        for axis in range(len(cell.shape)):
            entries = [at[axis] for _, at in uses if at is not None]
            first = entries[0]
            if cell.shape[axis] == 1 or (
                isinstance(first, Affine)
                and first.index in common
                and all(isinstance(k, Affine) and k.index is first.index for k in entries)
            ):
                lost.add(axis)
        axes = tuple(a for a in range(len(cell.shape)) if a not in lost)
        if axes != cell.axes:
            shrunk[cell] = replace(cell, axes=axes)
    return with_cells(plan, shrunk)


def in_common(paths: Sequence[tuple[Around, ...]]) -> tuple[Around, ...]:
    """The common outer loops of several steps. `paths` are the loops around each step, or their
    indices."""
    first = min(paths, key=len)
    for depth, loop in enumerate(first):
        if any(path[depth] is not loop for path in paths):
            return first[:depth]
    return first


def with_loops(
    steps: Sequence[Step], around: tuple[Index, ...]
) -> Iterator[tuple[tuple[Index, ...], Step]]:
    """All steps that aren't loops, each with the indices of the loops around it."""
    for step in steps:
        if isinstance(step, Loop):
            yield from with_loops(step.body, (*around, step.index))
        else:
            yield around, step
