"""Results that are written over an argument, at the caller's request.

    for i: m1[i] = 0.9 * m[i] + 0.1 * g[i]      -->      for i: m[i] = 0.9 * m[i] + 0.1 * g[i]

That is done if each element of the argument is read for the last time when the result's element is
written, and if nothing can stop the program afterwards: a failed attempt would have destroyed the
argument. Other results are copied by the caller.
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
    """The plan with outputs written over inputs, where that is possible. `into` has the pairs
    (output, input)."""
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
    """An access: the position of its top-level step, the loops around it, its step."""

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
    """Whether an output may be written over an input."""
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
    """Whether each element is written once. Along each axis its index must be a loop's index alone.
    Each loop around must run along an axis, or over the tiles or chunks of such a loop."""
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
