"""Splitting: a kernel that would be too long is cut into several, between its nests.

numba takes more than twice as long for twice the code, so long programs, which are unrolled loops,
would take minutes. Cut into kernels of at most `LONGEST` statements they take seconds, and the
repeats of a loop become equal kernels, of which one is compiled.

A cut is placed where few values cross it. Arrays that cross are in memory anyway. Registers that
cross become elements of an array. There is one array for each dtype and each kernel that computes
such registers, with the elements in the order of computation, so that repeats have them in the same
places:

    t1 = x * 2.0                     kept[0] = x * 2.0
    t2 = t1 + 1.0          -->       kept[1] = kept[0] + 1.0
    y = t1 * t2                      ---------------------- another kernel
                                     y = kept[0] * kept[1]
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from tapegrad.ir.affine import Affine
from tapegrad.ir.cells import At, Cell
from tapegrad.ir.changes import Changes
from tapegrad.ir.plan import Plan, is_parallel, segments, walk
from tapegrad.ir.steps import CheckGuard, Compute, Cut, PythonCall, Step
from tapegrad.schedule.cost import code_size

LONGEST = 400  # statements of a kernel


def cut(plan: Plan) -> Plan:
    """Cut the kernels that are too long."""
    cuts = _cuts(plan.steps)
    if not cuts:
        return plan
    steps: list[Step] = []
    for position, step in enumerate(plan.steps):
        if position in cuts:
            steps.append(Cut())
        steps.append(step)
    places = _places(steps)
    return replace(plan, steps=tuple([s.changed(Changes.at_places(places)) for s in steps]))


# ---- where to cut


def _cuts(steps: Sequence[Step]) -> set[int]:
    """The positions of the steps before which a kernel ends."""
    length = [0, *accumulate(map(code_size, steps))]  # of all steps before each one
    if length[-1] <= LONGEST:
        return set()
    lives = Lives(steps, length)
    cuts = set()
    start = 0
    for position, step in enumerate(steps):
        if isinstance(step, PythonCall) or is_parallel(step):  # it ends the kernel in any case
            lives.end(position + 1)
            start = position + 1
        while position > start and length[position + 1] - length[start] > LONGEST:
            half = length[start] + LONGEST // 3
            first = min(bisect_left(length, half), position)
            start = lives.best(max(first, start + 1), position)
            lives.end(start)
            cuts.add(start)
    return cuts


class Lives:
    """The live ranges of temporaries in steps, and the kernels so far in which they start."""

    def __init__(self, steps: Sequence[Step], length: list[int]) -> None:
        first: dict[Cell, int] = {}
        final: dict[Cell, int] = {}
        self.origins: list[set[int]] = []  # for each step, the first uses of the cells it uses
        self.last = list(range(len(steps)))  # for each step, the last use of cells it uses first
        for position, step in enumerate(steps):
            roots = {c.root for c, _, _ in step.accesses() if c.root.role == "temporary"}
            self.origins.append({first.setdefault(root, position) for root in roots})
            final |= dict.fromkeys(roots, position)
        change = [0] * (len(steps) + 1)
        for cell, position in first.items():
            self.last[position] = max(self.last[position], final[cell])
            if length[final[cell]] - length[position] <= LONGEST:  # others cross a cut anyway
                change[position + 1] += 1
                change[final[cell] + 1] -= 1
        self.crossing = list(accumulate(change))  # live before a step and from it on
        self.starts = [0]  # of the kernels so far, the last of which is open
        self.ends: list[int] = []  # the last uses of their results

    def end(self, position: int) -> None:
        """End the open kernel before the step at `position`."""
        self.ends.append(max(self.last[self.starts[-1] : position]))
        self.starts.append(position)

    def best(self, first: int, last: int) -> int:
        """The step from `first` to `last` before which the open kernel should end.

        First choice: where the kernel needs no more values of the earlier kernels that it has used.
        So the backward half of a program is cut as the forward half is. Second: where few values
        cross. Third: as soon as possible, since the backward half of a kernel's computation is
        longer.
        """
        start = self.starts[-1]
        used: set[int] = set()
        prices = {}
        for position in range(start + 1, last + 1):
            before = (p for p in self.origins[position - 1] if p < start)
            used |= {bisect_right(self.starts, p) - 1 for p in before}
            if position >= first:
                half_used = sum(self.ends[kernel] >= position for kernel in used)
                prices[position] = half_used, self.crossing[position], position
        return min(prices, key=prices.__getitem__)


# ---- what crosses


def _places(steps: Sequence[Step]) -> dict[Cell, tuple[Cell, At]]:
    """The array elements that hold the registers used by several kernels."""
    homes: dict[Cell, int] = {}  # the kernel that uses a cell first
    crosses: set[Cell] = set()
    fixed: set[Cell] = set()  # cells that other kinds of steps refer to
    for number, segment in enumerate(segments(steps)):
        for step in walk([segment] if isinstance(segment, PythonCall) else segment):
            for cell, _, _ in step.own():
                if not isinstance(step, (Compute, CheckGuard)) or cell.alias is not None:
                    fixed.add(cell.root)
                if cell.in_register and homes.setdefault(cell, number) != number:
                    crosses.add(cell)
    rows: dict[tuple[int, np.dtype], list[Cell]] = {}
    for cell, home in homes.items():
        if cell in crosses and cell not in fixed:
            rows.setdefault((home, cell.dtype), []).append(cell)
    places: dict[Cell, tuple[Cell, At]] = {}
    for (_, dtype), cells in rows.items():
        # All of one size, so that equal kernels have equal arguments.
        kept = Cell((max(len(cells), LONGEST),), dtype, hint="kept", stored=True)
        places |= {cell: (kept, (Affine((), k),)) for k, cell in enumerate(cells)}
    return places
