"""Fusing: loop nests that run over the same range become one, from the outside in.

    for i: a[i] = exp(x[i])                for i:
    for i: b[i] = a[i] * y[i]      -->         a[i] = exp(x[i])
                                               b[i] = a[i] * y[i]

Two loops may become one if every cell that both touch, and one of them writes, is indexed by both
with their own loop index along some common axis: then iteration i of the second needs nothing from
the first but its iteration i. What a loop reduces over its own index is therefore never read
inside it. Bodies are fused in the same way, so a row-wise softmax becomes several inner loops
under one outer loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from tapegrad.ir.plan import Affine, Cell, Compute, Loop, Plan, PythonCall, Step, weight

MAX_WEIGHT = 400  # loops are not grown beyond this: compile time and registers


@dataclass
class _Use:
    """How a step touches a cell: whether it writes, and the axes indexed by the step's own loop."""

    writes: bool
    aligned: set[int] | None  # None until an access is seen; whole-cell accesses align nowhere


def _uses(step: Step) -> dict[Cell, _Use]:
    index = step.index if isinstance(step, Loop) else None
    found: dict[Cell, _Use] = {}
    for cell, at, writes in step.accesses():
        aligned = set()
        if at is not None and index is not None and cell.alias is None:
            aligned = {
                axis for axis, k in enumerate(at) if isinstance(k, Affine) and k.index is index
            }
        use = found.get(cell.root)
        if use is None:
            found[cell.root] = _Use(writes, aligned)
        else:
            use.writes = use.writes or writes
            use.aligned = aligned if use.aligned is None else use.aligned & aligned
    return found


class _Item:
    """A step with what it touches, kept up to date as loops grow."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.uses = _uses(step)
        self.weight = weight(step)
        self.fills = all(_is_fill(leaf) for leaf in _leaves(step))

    def conflicts(self, other: _Item) -> bool:
        """Whether the order of the two matters."""
        small, large = sorted((self.uses, other.uses), key=len)
        return any(c in large and (u.writes or large[c].writes) for c, u in small.items())

    def can_take(self, other: _Item) -> bool:
        """Whether `other`, a loop, may become part of this loop."""
        if not (isinstance(self.step, Loop) and isinstance(other.step, Loop)):
            return False
        if self.step.index.extent != other.step.index.extent:
            return False
        if self.weight + other.weight > MAX_WEIGHT:
            return False
        shared = [c for c in other.uses if c in self.uses]
        for cell in shared:
            mine, theirs = self.uses[cell], other.uses[cell]
            if (mine.writes or theirs.writes) and not (
                (mine.aligned or set()) & (theirs.aligned or set())
            ):
                return False
        return bool(shared)

    def take(self, other: _Item) -> None:
        assert isinstance(self.step, Loop) and isinstance(other.step, Loop)
        renamed = other.step.substituted({other.step.index: Affine.of(self.step.index)})
        assert isinstance(renamed, Loop)
        self.step = Loop(self.step.index, self.step.body + renamed.body)
        self.weight += other.weight
        for cell, use in other.uses.items():
            mine = self.uses.get(cell)
            if mine is None:
                self.uses[cell] = use
            else:
                aligned = (mine.aligned or set()) & (use.aligned or set())
                self.uses[cell] = _Use(mine.writes or use.writes, aligned)


def _leaves(step: Step) -> list[Step]:
    return [s for b in step.body for s in _leaves(b)] if isinstance(step, Loop) else [step]


def fuse(plan: Plan) -> Plan:
    """The plan with its loops merged, level by level."""
    plan.steps = _fused(plan.steps)
    return plan


def _is_fill(step: Step) -> bool:
    return (
        isinstance(step, Compute)
        and not step.combine
        and all(read.literal is not None for read in step.reads)
        and all(isinstance(k, Affine) for k in step.at)
    )


def _fused(steps: list[Step]) -> list[Step]:
    items: list[_Item] = []
    for step in steps:
        item = _Item(step)
        if not (isinstance(step, Loop) and _join(items, item)):
            items.append(item)
    for item in items:
        if isinstance(item.step, Loop):
            item.step.body = _fused(item.step.body)
    return [item.step for item in items]


def _join(items: list[_Item], item: _Item) -> bool:
    """Merge `item` into the latest loop that can take it without reordering what depends on each
    other. Fills that it needs (the zeros that it adds to) are moved in front of that loop."""
    carried: list[_Item] = []
    for position in range(len(items) - 1, -1, -1):
        other = items[position]
        blocked = any(other.conflicts(c) for c in carried)
        if not blocked and other.can_take(item):
            other.take(item)
            for c in carried:
                items.remove(c)
            items[position:position] = reversed(carried)
            # What was grown may now share cells with a loop further up.
            before = items[: items.index(other)]
            if _join(before, other):
                after = items[items.index(other) + 1 :]
                items[:] = before + after
            return True
        if blocked or isinstance(other.step, PythonCall):
            return False
        if other.conflicts(item):
            if not other.fills:
                return False
            carried.append(other)
    return False
