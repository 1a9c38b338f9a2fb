"""Fusing: loop nests that run over the same range become one, from the outside in.

    for i: a[i] = exp(x[i])                for i:
    for i: b[i] = a[i] * y[i]      -->         a[i] = exp(x[i])
                                               b[i] = a[i] * y[i]

Two loops may become one if every cell that both touch, and one of them writes, is indexed by both
with their own loop index along some common axis, from the same entry on: then iteration i of the
second needs nothing from the first but its iteration i. What a loop reduces over its own index is
therefore never read inside it. Bodies are fused in the same way, so a row-wise softmax becomes
several inner loops under one outer loop.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

from tapegrad.ir.affine import Affine
from tapegrad.ir.cells import Cell
from tapegrad.ir.plan import Plan, is_fill, leaves
from tapegrad.ir.steps import Compute, Loop, PythonCall, Step
from tapegrad.schedule.cost import code_size
from tapegrad.schedule.fronts import same
from tapegrad.schedule.independent import is_direct
from tapegrad.schedule.split import all_borders, in_parts, regions

# Entries along each axis. Larger arrays are filled one after another, which is fastest for memory.
# A loop on the tape whose length isn't part of its kernels is longer than this.
SMALL_EXTENT = 16
MAX_WEIGHT = 400  # statements; larger loops take long to compile and need many registers
MAX_SPLIT = 1000  # statements in all parts of a loop that is split; most parts are short


@dataclass
class Use:
    """How a step accesses a cell: whether it writes, and the axes along which all accesses are
    indexed by the step's own loop alone. Such an axis is (axis, factor of the index, offset)."""

    writes: bool
    aligned: set[tuple[int, int, int]]
    # The axes along which all accesses are at constant positions, and these positions.
    known: dict[int, set[int]]

    def is_apart(self, other: Use) -> bool:
        """Whether the two never touch the same element, whatever the iterations."""
        axes = self.known.keys() & other.known.keys()
        return any(not self.known[axis] & other.known[axis] for axis in axes)

    def with_access(self, other: Use) -> Use:
        """The union of this and another use of the same cell."""
        known = {
            axis: self.known[axis] | k for axis, k in other.known.items() if axis in self.known
        }
        return Use(self.writes or other.writes, self.aligned & other.aligned, known)


def touched(step: Step) -> dict[Cell, Use]:
    """The cells that a step accesses, and how."""
    index = step.index if isinstance(step, Loop) else None
    found: dict[Cell, Use] = {}
    for cell, at, writes in step.touches():
        aligned, known = set(), {}
        if at is not None and cell.alias is None:
            known = {
                axis: {k.const}
                for axis, k in enumerate(at)
                if isinstance(k, Affine) and not k.terms
            }
        if at is not None and index is not None and cell.alias is None:
            aligned = {
                (axis, k.terms[0][1], k.const)
                for axis, k in enumerate(at)
                if isinstance(k, Affine) and len(k.terms) == 1 and k.terms[0][0] is index
            }
        use, before = Use(writes, aligned, known), found.get(cell.root)
        found[cell.root] = use if before is None else before.with_access(use)
    return found


def are_aligned(uses: dict[Cell, Use], others: dict[Cell, Use]) -> bool:
    """Whether iteration i of one loop depends on the other loop's iteration i only."""
    for cell in others.keys() & uses.keys():
        mine, theirs = uses[cell], others[cell]
        aligned = mine.aligned & theirs.aligned
        if (mine.writes or theirs.writes) and not aligned and not mine.is_apart(theirs):
            return False
    return True


def are_in_step(loop: Loop, other: Loop) -> bool:
    """Whether two adjacent loops could be a single one."""
    return are_aligned(touched(loop), touched(other))


def _moves(step: Step) -> bool:
    """Whether a step may be moved up, if its cells allow it: it fills an array with a literal, or
    computes one number."""
    one = isinstance(step, Compute)
    return is_direct(step) and (one or all(map(is_fill, leaves(step))))


class _Item:
    """A step with its uses of cells, which are updated as loops grow. `key` orders items."""

    key = 0

    def __init__(self, step: Step, split: bool) -> None:
        self.step = step
        self.uses = touched(step)
        self.weight = code_size(step)
        self.borders = all_borders(step) if split else set()
        self.moves = _moves(step)

    def conflicts(self, uses: Mapping[Cell, Use]) -> bool:
        """Whether a step with these uses can't be exchanged with this one."""
        small, large = (uses, self.uses) if len(uses) < len(self.uses) else (self.uses, uses)
        return any(c in large and (u.writes or large[c].writes) for c, u in small.items())

    def can_take(self, other: _Item) -> bool:
        """Whether the loop `other` may be merged into this loop."""
        if not (isinstance(self.step, Loop) and isinstance(other.step, Loop)):
            return False
        index, others = self.step.index, other.step.index
        if index.extent != others.extent or not same(index.limit, others.limit):
            return False
        weight, parts = self.weight + other.weight, regions(self.borders | other.borders)
        if weight > MAX_WEIGHT or (parts > 1 and weight * parts > MAX_SPLIT):
            return False
        return bool(self.uses.keys() & other.uses.keys()) and are_aligned(self.uses, other.uses)

    def take(self, other: _Item) -> None:
        assert isinstance(self.step, Loop) and isinstance(other.step, Loop)
        renamed = other.step.substituted({other.step.index: Affine.of(self.step.index)})
        assert isinstance(renamed, Loop)
        self.step = Loop(self.step.index, self.step.body + renamed.body)
        self.weight += other.weight
        self.borders |= other.borders
        add_uses(self.uses, other.uses)


def add_uses(uses: dict[Cell, Use], others: Mapping[Cell, Use]) -> None:
    for cell, use in others.items():
        mine = uses.get(cell)
        uses[cell] = use if mine is None else mine.with_access(use)


def fuse(plan: Plan) -> Plan:
    """The plan with its loops merged, level by level."""
    split = next(in_parts(plan.steps), None) is not None
    return replace(plan, steps=_fused(plan.steps, split))


def _fused(steps: tuple[Step, ...], split: bool) -> tuple[Step, ...]:
    """Steps of a plan that will be `split`, or not, with the loops merged."""
    if not any(isinstance(step, Loop) for step in steps):
        return steps
    items = _Sequence()
    for step in steps:
        item = _Item(step, split)
        if not (isinstance(step, Loop) and items.join(item)):
            items.append(item)
    for item in items.order:
        if isinstance(item.step, Loop):
            item.step = replace(item.step, body=_fused(item.step.body, split))
    return tuple([item.step for item in items.order])


_key = attrgetter("key")
GAP = 1 << 32  # between the keys of neighbours, so that items can be moved between them


class _Sequence:
    """Items in order, and the items that touch each cell. An item only depends on items that share
    a cell with it. To look through all items for each would take quadratic time."""

    def __init__(self) -> None:
        self.order: list[_Item] = []
        self.touching: dict[Cell, list[_Item]] = {}  # in order as well
        self.barrier = -1  # the key of the last call of NumPy, which nothing moves across

    def append(self, item: _Item) -> None:
        item.key = self.order[-1].key + GAP if self.order else GAP
        self._add(item)
        if isinstance(item.step, PythonCall):
            self.barrier = item.key

    def _add(self, item: _Item) -> None:
        self.order.insert(bisect_left(self.order, item.key, key=_key), item)
        self._note(item, item.uses)

    def _note(self, item: _Item, cells: Iterable[Cell]) -> None:
        for cell in cells:
            items = self.touching.setdefault(cell, [])
            items.insert(bisect_left(items, item.key, key=_key), item)

    def _remove(self, item: _Item) -> None:
        for items in (self.order, *(self.touching[cell] for cell in item.uses)):
            del items[bisect_left(items, item.key, key=_key)]

    def _move_before(self, item: _Item, other: _Item) -> None:
        self._remove(item)
        position = bisect_left(self.order, other.key, key=_key)
        before = self.order[position - 1].key if position else 0
        if other.key - before < 2:
            for number, x in enumerate(self.order, start=1):
                x.key = number * GAP
            self.barrier = max(
                (x.key for x in self.order if isinstance(x.step, PythonCall)), default=-1
            )
            before = other.key - GAP
        item.key = (before + other.key) // 2
        self._add(item)

    def join(self, item: _Item, below: int | None = None) -> bool:
        """Merge `item` into the latest loop that can take it without reordering dependent steps.
        With `below`, only loops with smaller keys count. Fills that the item needs (zeros to add
        to) and single numbers are moved before that loop."""
        carried: list[_Item] = []
        uses: dict[Cell, Use] = {}  # of all carried items
        for other in self._sharing(item, carried, below):
            blocked = other.conflicts(uses)
            if not blocked and other.can_take(item):
                further = [cell for cell in item.uses if cell not in other.uses]
                self._note(other, further)
                other.take(item)
                for c in reversed(carried):
                    self._move_before(c, other)
                # The grown loop may now share cells with a loop before it.
                shares = any(self.touching[cell][0] is not other for cell in further)
                if shares and self.join(other, other.key):
                    self._remove(other)
                return True
            if blocked or other.conflicts(item.uses):
                if not other.moves:
                    return False
                carried.append(other)
                add_uses(uses, other.uses)
        return False

    def _sharing(self, item: _Item, carried: list[_Item], below: int | None) -> Iterator[_Item]:
        """The items that share a cell with `item` or with a carried item, latest first. `carried`
        may grow meanwhile."""
        waiting: list[tuple[int, int, list[_Item], int]] = []  # for each cell, its next item
        seen: set[Cell] = set()

        def look_at(cells: Iterable[Cell], key: int | None) -> None:
            for cell in cells:
                if cell in seen or cell not in self.touching:
                    continue
                seen.add(cell)
                items = self.touching[cell]
                push(items, len(items) if key is None else bisect_left(items, key, key=_key))

        def push(items: list[_Item], end: int) -> None:
            if end:
                heapq.heappush(waiting, (-items[end - 1].key, id(items), items, end - 1))

        look_at(item.uses, below)
        last, count = None, 0
        while waiting:
            _, _, items, position = heapq.heappop(waiting)
            other = items[position]
            push(items, position)
            if other is last:
                continue
            if other.key <= self.barrier:
                return
            yield other
            last = other
            if len(carried) > count:
                count = len(carried)
                look_at(other.uses, other.key)


def gather_fills(plan: Plan) -> Plan:
    """The plan with adjacent fills of small arrays in one loop."""
    return replace(plan, steps=_gathered(plan.steps))


def _gathered(steps: Iterable[Step]) -> tuple[Step, ...]:
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            step = replace(step, body=_gathered(step.body))
        last = found[-1] if found else None
        if isinstance(last, Loop) and isinstance(step, Loop) and _fill_alike(last, step):
            rest = step.substituted({step.index: Affine.of(last.index)}).body
            found[-1] = replace(last, body=_gathered((*last.body, *rest)))
        else:
            found.append(step)
    return tuple(found)


def _fill_alike(loop: Loop, other: Loop) -> bool:
    """Whether two loops over the same range only fill small arrays, none of them in both."""
    plain = replace(loop, index=other.index, body=other.body) == other
    cells = [{cell.root for cell, _, _ in x.accesses()} for x in (loop, other)]
    return (
        plain
        and (loop.index.extent, loop.index.limit) == (other.index.extent, None)
        and all(is_fill(s) for x in (loop, other) for s in leaves(x))
        and not cells[0] & cells[1]
        and all(max(cell.shape) <= SMALL_EXTENT for cell in cells[0] | cells[1])
    )
