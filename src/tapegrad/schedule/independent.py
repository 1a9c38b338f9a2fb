"""Independent rounds: a loop over them becomes an ordinary loop nest.

    for t in range(n):                  for i:
        y[t] = f(x[t])         -->          y[i] = f(x[i])

Rounds are independent if each only writes entries of its own, in arrays that no round reads. Their
plan becomes the body of a nest, which may be fused with its neighbours and shared by several cores.
A temporary of a round gets an entry for each round, which `shrink` removes again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import At, Cell, Read
from tapegrad.ir.changes import Changes
from tapegrad.ir.plan import Plan, walk
from tapegrad.ir.steps import Compute, Loop, Step
from tapegrad.ir.tape import Literal


def is_independent(plan: Plan, count: int) -> bool:
    """Whether the rounds of a loop are independent. `plan` is that of a round; its first `count`
    inputs are loop-carried."""
    carried = plan.inputs[:count]
    if plan.failures or any(cell.role != "state" for cell in carried):
        return False
    index = plan.among[-1]
    for step in walk(plan.steps):
        if isinstance(step, Loop):
            if step.index.limit is not None:  # a triangle, which passes don't support
                return False
            continue
        if not isinstance(step, Compute) or any(c.alias is not None for c, _, _ in step.accesses()):
            return False
        if any(read.cell in carried for read in step.reads) or not is_direct(step):
            return False
        if step.cell in carried and not _has_own_entry(step.at, index):
            return False
    # All writes to one array are at the same offset from the round's index.
    return all(len(_written(plan, cell)) == 1 for cell in carried)


def is_direct(step: Step) -> bool:
    """Whether a step's indices don't depend on values in memory."""
    return all(isinstance(k, Affine) for _, at, _ in step.accesses() for k in at or ())


def _has_own_entry(at: At, index: Index) -> bool:
    """Whether an axis is indexed by the number of the round alone."""
    return any(isinstance(k, Affine) and len(k.terms) == 1 and k.terms[0][0] is index for k in at)


def _written(plan: Plan, cell: Cell) -> set[Any]:
    """The indices at which rounds write to an array, along the axes that are indexed by the round
    alone."""
    index = plan.among[-1]
    return {
        tuple(
            (axis, k)
            for axis, k in enumerate(step.at)
            if isinstance(k, Affine) and [i for i, _ in k.terms] == [index]
        )
        for step in walk(plan.steps)
        if isinstance(step, Compute) and step.cell is cell
    }


def as_nest(
    plan: Plan,
    index: Index,
    outs: Sequence[Cell],
    reads: Sequence[Read],
    materialized: Callable[[Literal], Cell],
) -> Loop:
    """The rounds as a nest. The cells of the loop's operands and results replace the inputs of the
    round's plan."""
    places: dict[Cell, tuple[Cell, At]] = {}
    for k, (cell, read) in enumerate(zip(plan.inputs, reads, strict=True)):
        if k < len(outs):
            places[cell] = outs[k], ()
        elif read.cell is None:
            assert read.literal is not None
            places[cell] = materialized(read.literal), ()
        else:
            places[cell] = read.cell, read.at
    of_round = Affine.of(index)

    def place(cell: Cell, at: At) -> tuple[Cell, At]:
        if cell not in places:
            axes = range(len(cell.shape)) if cell.axes is None else cell.axes
            shape, kept = (index.extent, *cell.shape), tuple([1 + axis for axis in axes])
            places[cell] = replace(cell, shape=shape, axes=kept, id=_fresh()), (of_round,)
        known, first = places[cell]
        return known, (*first, *at)

    return Loop(index, tuple([step.changed(Changes(place)) for step in plan.steps]))


def _fresh() -> int:
    """The id of a new cell."""
    return Cell((), bool).id  # type: ignore[arg-type]
