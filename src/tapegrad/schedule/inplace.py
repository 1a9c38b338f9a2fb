"""Results that are written where an argument lies, as the caller wants it.

    for i: m1[i] = 0.9 * m[i] + 0.1 * g[i]      -->      for i: m[i] = 0.9 * m[i] + 0.1 * g[i]

That is done where each element of the argument is read for the last time when the result's is
written, and where nothing can stop the program any more: else an attempt that failed would have
spoilt the argument. A result that stays apart is the caller's to copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import At, Cell
from tapegrad.ir.plan import Plan, with_cells
from tapegrad.ir.steps import Compute, Loop, PythonCall, Step


def written_over(plan: Plan, into: Sequence[tuple[int, int]]) -> Plan:
    """The plan with outputs in the place of inputs, both by number, as far as that may be."""
    if not into or plan.failures or any(isinstance(step, PythonCall) for step in plan.steps):
        return plan
    touches = list(_touches(plan))
    changed: dict[Cell, Cell] = {}
    for k, m in into:
        out, place = plan.outputs[k], plan.inputs[m]
        if not changed.keys() & {out, place} and _may_share(plan, out, place, touches):
            changed[out] = changed[place] = replace(place, role="state")
    return with_cells(plan, changed)


class _Touch(NamedTuple):
    """An access: the number of the outermost step that it is in, the loops around it, the step."""

    position: int
    loops: tuple[Loop, ...]
    step: Step
    cell: Cell
    at: At | None
    writes: bool


def _touches(plan: Plan) -> Iterator[_Touch]:
    """All accesses, in the order of the steps."""

    def inside(position: int, loops: tuple[Loop, ...], step: Step) -> Iterator[_Touch]:
        if isinstance(step, Loop):
            for part in step.body:
                yield from inside(position, (*loops, step), part)
        else:
            for cell, at, writes in step.accesses():
                yield _Touch(position, loops, step, cell, at, writes)

    for position, step in enumerate(plan.steps):
        yield from inside(position, (), step)


def _may_share(plan: Plan, out: Cell, place: Cell, touches: Sequence[_Touch]) -> bool:
    """Whether an output may be written where an input lies."""
    alike = (out.shape, out.dtype) == (place.shape, place.dtype)
    is_own = out.role == "output" and place.role == "input" and plan.outputs.count(out) == 1
    if not (alike and is_own) or place.scalar or out.leaving is not None:
        return False
    writes = [touch for touch in touches if touch.cell.root is out and touch.writes]
    if len(writes) != 1:
        return False
    (write,) = writes
    step = write.step
    if not isinstance(step, Compute) or step.combine is not None or write.cell is not out:
        return False
    if not _once_each(write):
        return False
    is_past = False
    for touch in touches:
        is_past = is_past or touch.step is step
        if touch.cell.root is not place or touch.position < write.position:
            continue
        inside = list(map(id, touch.loops)) == list(map(id, write.loops))
        with_it = touch.cell is place and inside and touch.at == write.at
        if not with_it or (is_past and touch.step is not step):
            return False
    return True


def _once_each(write: _Touch) -> bool:
    """Whether each element is written once: its index is one of the loops' in each axis, each loop
    around counts along an axis, or says which part of one an inner loop goes along."""
    at = write.at or ()
    alone = [k.index for k in at if isinstance(k, Affine) and k.index is not None]
    known: set[Index] = set(alone)
    if len(known) < len(at) or any(k != Affine.of(i) for k, i in zip(at, alone, strict=True)):
        return False
    for loop in reversed(write.loops):
        if loop.index not in known:
            return False
        if loop.start is not None:
            known.add(loop.start)
        if loop.chunk is not None:
            known.add(loop.chunk[0])
    return True
