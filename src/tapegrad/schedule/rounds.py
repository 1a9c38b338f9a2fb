"""Long loops inside the rounds of a user's loop: several cores process them, too.

    for t in range(100):                    for t in range(100):
        for i in range(512): ...    -->         for chunk in range(shared(16)):
                                                    for i in range(chunk * 32, chunk * 32 + 32): ...

The kernel goes on with the round when all chunks are done. That takes 1 or 2 us where other cores
look for work already, and no call of Python. So chunks are shorter here than kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tapegrad.ir.allocation import extent
from tapegrad.ir.cells import Cell
from tapegrad.ir.plan import Plan, Recurrence, is_parallel
from tapegrad.schedule.buffers import assign, hands_over, planned_peak_bytes
from tapegrad.schedule.parallelise import TOGETHER, parallelise

FINER = 4  # how many times as short as a kernel's chunks: some 5 to 12 us
# Chunks may need this part of the memory of a loop's arrays for themselves.
OWN = 1 / 16


def share_rounds(plan: Plan, room: float = math.inf) -> Plan:
    """Cut the long loops in rounds of the plan's recurrences into chunks, which may need `room`
    bytes for themselves at most."""
    steps = tuple([_shared(s, room) if isinstance(s, Recurrence) else s for s in plan.steps])
    return (
        plan
        if all(x is y for x, y in zip(steps, plan.steps, strict=True))
        else replace(plan, steps=steps)
    )


def _shared(step: Recurrence, most_room: float) -> Recurrence:
    inner = share_rounds(step.plan, most_room)
    arrays = {cell.root: None for cell in (*step.places, *(r.cell for r in step.reads if r.cell))}
    room = min(most_room, OWN * sum(extent(x) * x.dtype.itemsize for x in arrays))
    homes = step.allocation.homes
    handed = {cell: home.memory for cell, home in homes.items() if home.memory in inner.inputs}
    most = planned_peak_bytes(step.allocation.slots) + room
    # A result is written over an input that is read for the last time. Where steps that were one
    # after the other are one loop, it may come too early.
    for together in (TOGETHER, 1):
        cut = parallelise(inner, room, FINER, together)
        if any(map(is_parallel, cut.steps)) and _may_hand_over(cut, handed):
            found = _with(step, cut, handed)
            if planned_peak_bytes(found.allocation.slots) <= most:
                return found
    return step if inner is step.plan else _with(step, inner, handed)


def _may_hand_over(plan: Plan, handed: Mapping[Cell, Cell]) -> bool:
    return all(hands_over(plan, old, new) for new, old in handed.items())


def _with(step: Recurrence, plan: Plan, handed: Mapping[Cell, Cell]) -> Recurrence:
    """The recurrence with another plan of its rounds, which takes and leaves the same."""
    allocation = assign(plan, handed)
    scratch = tuple([Cell((slot.size,), slot.dtype) for slot in allocation.slots])
    return replace(step, plan=plan, allocation=allocation, scratch=scratch)
