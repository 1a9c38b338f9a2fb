"""Arranging: steps are reordered into fewer kernels.

Each loop over chunks is a kernel, and so are the steps of one core between two of them. A kernel
takes some milliseconds to compile, however short it is, and a start to run. So steps of one core
wait until something needs them, and loops over chunks that become adjacent run as one:

    parallel loop: parts of s          parallel loop: parts of s, parts of t
    s = sum of parts                   s = sum of parts
    parallel loop: parts of t    -->   t = sum of parts
    t = sum of parts

This is list scheduling: among the steps whose operands are ready, it takes the first of the same
kind as the last one, as long as there is one. The order is kept if the waiting values would no
longer fit into a cache. Nothing moves across a step that may do more than read and write cells: a
call of NumPy, or a check.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby

from tapegrad.ir.affine import Affine
from tapegrad.ir.cells import Cell
from tapegrad.ir.plan import Plan, is_fill, is_parallel, leaves
from tapegrad.ir.steps import ArgUpdate, Compute, Gemm, Loop, Step
from tapegrad.schedule.cost import CACHE_BYTES, code_size
from tapegrad.schedule.parallelise import MAX_CHUNKS

MAX_JOINED = 60  # statements of joined loops: longer ones are better compiled in parallel


def arrange(plan: Plan) -> Plan:
    """The plan with fewer kernels, if another order or joined loops save some."""
    if sum(map(is_parallel, plan.steps)) < 2:
        return plan
    return replace(plan, steps=tuple([s for run in _runs(plan.steps) for s in _arranged(run)]))


def _runs(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Runs of adjacent steps that only read and write cells. Each other step is a run of its
    own."""
    for plain, run in groupby(steps, _is_plain):
        if plain:
            yield list(run)
        else:
            yield from ([step] for step in run)


def _is_plain(step: Step) -> bool:
    return all(isinstance(s, (Compute, Gemm, ArgUpdate)) for s in leaves(step))


def _arranged(steps: list[Step]) -> list[Step]:
    if sum(map(is_parallel, steps)) < 2:
        return steps
    after = _dependent(steps)
    first = is_parallel(steps[0])
    orders = [_order(steps, after, shared) for shared in (first, not first)]
    choices = [steps, *(_with_late_fills([steps[k] for k in order]) for order in orders)]
    room = max(CACHE_BYTES, _most_memory(steps))
    return _joined(min((c for c in choices if _most_memory(c) <= room), key=_kernels))


def _kernels(steps: Sequence[Step]) -> int:
    """The number of kernels of steps in this order. More joined loops make it smaller."""
    return sum(1 if not kind else len(_joined([*run])) for kind, run in groupby(steps, is_parallel))


def _most_memory(steps: Sequence[Step]) -> int:
    """The most bytes of temporaries that are live at the same time."""
    first: dict[Cell, int] = {}
    last: dict[Cell, int] = {}
    for position, step in enumerate(steps):
        for cell in _uses(step):
            if cell.role == "temporary":
                first.setdefault(cell, position)
                last[cell] = position
    change = [0] * (len(steps) + 1)
    for cell, position in first.items():
        size = math.prod(cell.left) * cell.dtype.itemsize
        change[position] += size
        change[last[cell] + 1] -= size
    return max(accumulate(change))


def _dependent(steps: Sequence[Step]) -> list[set[int]]:
    """For each step, the later steps that must wait for it."""
    after: list[set[int]] = [set() for _ in steps]
    writer: dict[Cell, int] = {}
    readers: dict[Cell, list[int]] = {}
    for position, step in enumerate(steps):
        for cell, writes in _uses(step).items():
            before = [writer[cell]] if cell in writer else []
            if writes:
                before += readers.pop(cell, [])
                writer[cell] = position
            else:
                readers.setdefault(cell, []).append(position)
            for k in before:
                after[k].add(position)
    return after


def _uses(step: Step) -> dict[Cell, bool]:
    """The memory that a step uses, and whether it writes there."""
    found: dict[Cell, bool] = {}
    for cell, _, writes in step.accesses():
        found[cell.root] = writes or found.get(cell.root, False)
    return found


def _order(steps: Sequence[Step], after: Sequence[set[int]], shared: bool) -> list[int]:
    """The positions of the steps in an order that begins with parallel steps, or without `shared`
    with others. It continues with steps of as many chunks as the last one, then with those of other
    numbers."""
    waits_for = [0] * len(steps)
    for later in after:
        for k in later:
            waits_for[k] += 1
    kinds = [_chunks(step) for step in steps]
    ready: dict[int, list[int]] = {kind: [] for kind in kinds}  # heaps: the first step comes first
    for position, count in enumerate(waits_for):
        if not count:
            heapq.heappush(ready[kinds[position]], position)
    last = MAX_CHUNKS if shared else 0
    order: list[int] = []
    while len(order) < len(steps):
        waiting = [kind for kind, positions in ready.items() if positions]
        last = min(waiting, key=lambda k: (k != last, (k > 0) != (last > 0), ready[k][0]))
        position = heapq.heappop(ready[last])
        order.append(position)
        for k in after[position]:
            waits_for[k] -= 1
            if not waits_for[k]:
                heapq.heappush(ready[kinds[k]], k)
    return order


def _chunks(step: Step) -> int:
    """The number of chunks of a parallel step; 0 for a step of one core."""
    return step.index.extent if isinstance(step, Loop) and step.parallel else 0


def _with_late_fills(steps: Sequence[Step]) -> list[Step]:
    """The steps, with fills by one core moved to just before the step that uses the array, if one
    core runs that too. So the initial value of a sum is in the sum's kernel."""
    user: dict[Cell, int] = {}  # for each cell, its next user
    late: dict[int, list[Step]] = {}  # the fills before each step
    for position, step in reversed([*enumerate(steps)]):
        cells = _uses(step)
        first = min((user[c] for c in cells if c in user), default=None)
        fills = not is_parallel(step) and all(map(is_fill, leaves(step)))
        if fills and first is not None and not is_parallel(steps[first]):
            late.setdefault(first, []).insert(0, step)
        else:
            user.update(dict.fromkeys(cells, position))
    moved = {id(step) for fills in late.values() for step in fills}
    order = [[*late.get(k, ()), step] for k, step in enumerate(steps) if id(step) not in moved]
    return [step for few in order for step in few]


def _joined(steps: Sequence[Step]) -> list[Step]:
    """The steps with short parallel loops over equally many chunks joined, if they are adjacent and
    independent."""
    found: list[Step] = []
    for step in steps:
        last = found[-1] if found else None
        if isinstance(last, Loop) and isinstance(step, Loop) and _may_join(last, step):
            rest = step.substituted({step.index: Affine.of(last.index)})
            assert isinstance(rest, Loop)
            found[-1] = replace(last, body=(*last.body, *rest.body))
        else:
            found.append(step)
    return found


def _may_join(loop: Loop, other: Loop) -> bool:
    if not (loop.parallel and other.parallel and loop.index.extent == other.index.extent):
        return False
    if code_size(loop) + code_size(other) > MAX_JOINED:
        return False
    mine, others = _uses(loop), _uses(other)
    return not any(mine[c] or others[c] for c in mine.keys() & others.keys())
