"""Plans with other cells in the place of some, or at other places of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace

from tapegrad.ir.plan import (
    ArgUpdate,
    At,
    Cell,
    CheckGuard,
    CheckRange,
    Compute,
    Gemm,
    Indirect,
    Loop,
    Plan,
    PythonCall,
    Read,
    Recurrence,
    Routine,
    Step,
)


def relocated(step: Step, place: Callable[[Cell, At], tuple[Cell, At]]) -> Step:
    """The step with each cell at an index replaced by what `place` makes of them; of a product,
    at the index of a matrix. Where a step names no index of its own for a cell, only the cell is.
    """

    def index(at: At) -> At:
        if not any(isinstance(k, Indirect) for k in at):
            return at
        return tuple(replace(k, read=read(k.read)) if isinstance(k, Indirect) else k for k in at)

    def read(r: Read) -> Read:
        if r.cell is None:
            return r
        cell, at = place(r.cell, index(r.at))
        return r if cell is r.cell and at is r.at else Read(cell, at, r.literal)

    def whole(cell: Cell) -> Cell:
        return place(cell, ())[0]

    if isinstance(step, Loop):
        return replace(step, body=tuple([relocated(s, place) for s in step.body]))
    if isinstance(step, Compute):
        cell, at = place(step.cell, index(step.at))
        reads = tuple(map(read, step.reads))
        if cell is step.cell and at is step.at and all(map(operator.is_, reads, step.reads)):
            return step
        return Compute(cell, at, step.primitive, reads, step.combine, step.src)
    if isinstance(step, ArgUpdate):
        read_, at = read(step.read), index(step.at)
        return replace(step, cell=whole(step.cell), best=whole(step.best), at=at, read=read_)
    if isinstance(step, Gemm):
        out, x, y = (panel.moved(lambda c, at: place(c, index(at))) for panel, _ in step.matrices)
        return replace(step, out=out, x=x, y=y)
    if isinstance(step, Routine):
        arrays = tuple((whole(c), at, swapped) for c, at, swapped in step.arrays)
        return replace(step, arrays=arrays, results=tuple(map(whole, step.results)))
    if isinstance(step, PythonCall):
        reads_ = tuple(whole(x) if isinstance(x, Cell) else x for x in step.reads)
        return replace(step, outs=tuple(map(whole, step.outs)), reads=reads_)
    if isinstance(step, Recurrence):
        until, begin = [None if x is None else read(x) for x in (step.until, step.begin)]
        reads = tuple(map(read, step.reads))
        return replace(
            step,
            rounds=read(step.rounds),
            reads=reads,
            outs=tuple(map(whole, step.outs)),
            places=tuple(map(whole, step.places)),
            scratch=tuple(map(whole, step.scratch)),
            until=until,
            begin=begin,
        )
    if isinstance(step, CheckGuard):
        return replace(step, read=read(step.read))
    if isinstance(step, CheckRange):
        return replace(step, flag=whole(step.flag))
    return step


def kept_at(places: Mapping[Cell, tuple[Cell, At]], step: Step) -> Step:
    """The step with registers replaced by elements of arrays in which they are kept."""
    return relocated(step, lambda cell, at: places.get(cell, (cell, at)))


def with_cells(plan: Plan, changed: Mapping[Cell, Cell]) -> Plan:
    """The plan with other cells in the place of some, whose aliases follow them."""
    if not changed:
        return plan
    found = dict(changed)

    def new(cell: Cell) -> Cell:
        if cell not in found:
            base = None if cell.alias is None else new(cell.alias)
            found[cell] = cell if base is cell.alias else replace(cell, alias=base)
        return found[cell]

    return replace(
        plan,
        inputs=tuple(map(new, plan.inputs)),
        outputs=tuple(map(new, plan.outputs)),
        steps=tuple([relocated(step, lambda cell, at: (new(cell), at)) for step in plan.steps]),
    )
