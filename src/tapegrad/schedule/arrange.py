"""Arranging: steps are put in another order, in which they make fewer kernels.

Each loop over chunks is a kernel, and so is what one core does between two of them. A kernel takes
some milliseconds to compile, however short it is, and a start to run. So what one core does waits,
as far as nothing needs it, and what the cores share runs in one:

    parallel loop: parts of s          parallel loop: parts of s, parts of t
    s = sum of parts                   s = sum of parts
    parallel loop: parts of t    -->   t = sum of parts
    t = sum of parts

This is list scheduling: of the steps whose operands are there, the first of the kind that was last,
until there is none. The order stays as it was where what waits would no longer fit into a cache.
Nothing moves across what isn't known to only read and write cells: a call of NumPy, a check.
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
from tapegrad.schedule.cost import LARGE, code_size
from tapegrad.schedule.parallelise import MOST

SHORT = 60  # statements of loops that become one: longer ones rather compile side by side


def arrange(plan: Plan) -> Plan:
    """The plan with fewer kernels, if another order or joined loops make some superfluous."""
    if sum(map(is_parallel, plan.steps)) < 2:
        return plan
    return replace(plan, steps=tuple([s for run in _runs(plan.steps) for s in _arranged(run)]))


def _runs(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Steps in a row that do nothing but read and write cells; the others each alone."""
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
    room = max(LARGE, _most_memory(steps))
    return _joined(min((c for c in choices if _most_memory(c) <= room), key=_kernels))


def _kernels(steps: Sequence[Step]) -> int:
    """How many kernels steps in this order make: the fewer, the more loops become one."""
    return sum(1 if not kind else len(_joined([*run])) for kind, run in groupby(steps, is_parallel))


def _most_memory(steps: Sequence[Step]) -> int:
    """Bytes of the temporaries that live at the same time, when these are most."""
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
    """For each step the later ones that have to wait for it."""
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
    """The steps in an order that begins with those that are shared, or not, and goes on with their
    like: over as many chunks, then over others."""
    waits_for = [0] * len(steps)
    for later in after:
        for k in later:
            waits_for[k] += 1
    kinds = [_chunks(step) for step in steps]
    ready: dict[int, list[int]] = {kind: [] for kind in kinds}  # heaps: the first comes first
    for position, count in enumerate(waits_for):
        if not count:
            heapq.heappush(ready[kinds[position]], position)
    last = MOST if shared else 0
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
    """How many chunks a step is shared out in; 0 if one core does it."""
    return step.index.extent if isinstance(step, Loop) and step.parallel else 0


def _with_late_fills(steps: Sequence[Step]) -> list[Step]:
    """The steps, of which those that one core fills arrays by stand just before what it does with
    them: so what a sum starts from is in the sum's kernel."""
    user: dict[Cell, int] = {}  # of each cell, who uses it next
    late: dict[int, list[Step]] = {}  # before which steps what is filled
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
    """The steps, of which short loops over as many chunks that need nothing of each other are
    one."""
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
    if code_size(loop) + code_size(other) > SHORT:
        return False
    mine, others = _uses(loop), _uses(other)
    return not any(mine[c] or others[c] for c in mine.keys() & others.keys())
