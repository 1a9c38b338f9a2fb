"""Contracting: a temporary that only lives inside a loop loses the axis of that loop.

    for i:                              for i:
        a[i] = exp(x[i])       -->          a = exp(x[i])
        b[i] = a[i] * y[i]                  b[i] = a * y[i]

A temporary that loses all its axes is a register. And recomputing: a cheap temporary that would
have to be stored is computed again where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tapegrad.ir.plan import (
    Affine,
    ArgUpdate,
    At,
    Cell,
    CheckGuard,
    Compute,
    Gemm,
    Index,
    Indirect,
    Loop,
    Plan,
    PythonCall,
    Read,
    Step,
)

# What may be computed twice rather than stored: in additions, and in cells read.
CHEAP = 4
MAX_READS = 3


def contract(plan: Plan) -> Plan:
    """Shrink each temporary to the axes that outlive the loops around all its uses."""
    seen: dict[Cell, list[tuple[tuple[Index, ...], At | None]]] = {}
    for around, step in _with_loops(plan.steps, ()):
        for cell, at, _ in step.accesses():
            seen.setdefault(cell, []).append((around, at))
    aliased = {cell.root for cell in seen if cell.alias is not None}
    for cell, uses in seen.items():
        if cell.role != "temporary" or cell.alias is not None or cell in aliased:
            continue
        if any(at is None for _, at in uses):
            continue
        common = _common_prefix([around for around, _ in uses])
        lost = set()
        for axis in range(len(cell.shape)):
            entries = [at[axis] for _, at in uses if at is not None]
            first = entries[0]
            if cell.shape[axis] == 1 or (
                isinstance(first, Affine)
                and first.index in common
                and all(isinstance(k, Affine) and k.index is first.index for k in entries)
            ):
                lost.add(axis)
        cell.axes = tuple(a for a in range(len(cell.shape)) if a not in lost)
    return plan


def _common_prefix(paths: list[tuple[Index, ...]]) -> tuple[Index, ...]:
    first = min(paths, key=len)
    for depth, index in enumerate(first):
        if any(path[depth] is not index for path in paths):
            return first[:depth]
    return first


def _with_loops(
    steps: list[Step], around: tuple[Index, ...]
) -> Iterator[tuple[tuple[Index, ...], Step]]:
    for step in steps:
        if isinstance(step, Loop):
            yield from _with_loops(step.body, (*around, step.index))
        else:
            yield around, step


# ---- computing again


def recompute(plan: Plan) -> Plan:
    """Compute cheap stored temporaries again where they are read, instead of storing them.

    for i: t[i] = x[i + 1] - x[i]          for i: u[i] = (x[i + 1] - x[i]) * 2
    for i: u[i] = t[i] * 2           -->
    for i: v[i] = t[i + 1]                 for i: v[i] = x[i + 2] - x[i + 1]

    Needs `contract` before, which tells what would be stored, and again after.
    """
    writers: dict[Cell, list[Step]] = {}
    whole: set[Cell] = set()
    for _, step in _with_loops(plan.steps, ()):
        for cell, at, writes in step.accesses():
            if at is None or cell.alias is not None or any(isinstance(k, Indirect) for k in at):
                whole.add(cell.root)
            # A sum of products is read when they are all in it, and never changes after that.
            if writes and not (isinstance(step, Gemm) and step.adds):
                writers.setdefault(cell.root, []).append(step)
    rule = _Recompute(writers, whole)
    plan.steps = rule.rewritten(plan.steps)
    return drop_unread(plan)


def drop_unread(plan: Plan) -> Plan:
    """Drop what is computed into temporaries that nothing reads."""
    while True:
        read = {
            cell.root
            for _, step in _with_loops(plan.steps, ())
            for cell, _, writes in step.accesses()
            if not writes or not isinstance(step, Compute)
        }
        steps, dropped = _without_unread(plan.steps, read)
        plan.steps = steps
        if not dropped:
            return plan


def _without_unread(steps: list[Step], read: set[Cell]) -> tuple[list[Step], bool]:
    kept: list[Step] = []
    dropped = False
    for step in steps:
        if isinstance(step, Loop):
            body, inner = _without_unread(step.body, read)
            dropped |= inner
            if body:
                kept.append(Loop(step.index, body))
        elif (
            isinstance(step, Compute)
            and step.cell.role == "temporary"
            and step.cell.root not in read
        ):
            dropped = True
        else:
            kept.append(step)
    return kept, dropped


class _Recompute:
    def __init__(self, writers: dict[Cell, list[Step]], whole: set[Cell]) -> None:
        self.writers = writers
        self.whole = whole
        self.chosen = {
            cell: step
            for cell in writers
            if not cell.in_register and (step := self._definition(cell)) and self._is_cheap(step)
        }

    def _definition(self, cell: Cell) -> Compute | None:
        """The one plain elementwise step that defines a temporary, if there is such a step."""
        steps = self.writers.get(cell, [])
        if cell.role != "temporary" or cell in self.whole or len(steps) != 1:
            return None
        (step,) = steps
        plain = isinstance(step, Compute) and not step.combine
        if not plain or any(isinstance(k, Indirect) for r in step.reads for k in r.at):  # type: ignore[attr-defined]
            return None
        mapped = all(
            isinstance(k, Affine) and (k.index is not None or k == Affine())
            for k in step.at  # type: ignore[attr-defined]
        )
        return step if mapped else None  # type: ignore[return-value]

    def _is_cheap(self, step: Compute) -> bool:
        cost, leaves = self._price(step, CHEAP)
        return cost <= CHEAP and len(leaves) <= MAX_READS

    def _price(self, step: Compute, budget: int) -> tuple[int, set[Cell]]:
        """The cost of a value, and the stored cells it needs; operands in registers count too."""
        cost = getattr(step.primitive, "cost", 1)
        leaves: set[Cell] = set()
        for read in step.reads:
            cell = read.cell
            if cell is None:
                continue
            if not cell.in_register:
                if cell.role == "temporary" and len(self.writers.get(cell.root, ())) > 1:
                    return budget + 1, leaves  # filled step by step: not the same everywhere
                leaves.add(cell)
                continue
            inner = self._definition(cell)
            if inner is None or cost > budget:
                return budget + 1, leaves
            more, found = self._price(inner, budget - cost)
            cost += more
            leaves |= found
        return cost, leaves

    def rewritten(self, steps: list[Step]) -> list[Step]:
        done: list[Step] = []
        here: dict[tuple[Cell, At], Read] = {}
        for step in steps:
            if isinstance(step, Loop):
                body = self.rewritten(step.body)
                if body:
                    done.append(Loop(step.index, body))
            elif isinstance(step, Compute) and step.cell in self.chosen:
                continue
            elif isinstance(step, Compute):
                reads = tuple(self._again(r, done, here) for r in step.reads)
                done.append(replace(step, at=self._index(step.at, done, here), reads=reads))
            elif isinstance(step, (ArgUpdate, CheckGuard)):
                done.append(replace(step, read=self._again(step.read, done, here)))
            else:
                if isinstance(step, PythonCall):
                    here.clear()  # registers end with the kernel
                done.append(step)
        return done

    def _index(self, at: At, done: list[Step], here: dict[tuple[Cell, At], Read]) -> At:
        """The index, with the values of index arrays computed again too."""
        return tuple(
            replace(k, read=self._again(k.read, done, here)) if isinstance(k, Indirect) else k
            for k in at
        )

    def _again(
        self, read: Read, done: list[Step], here: dict[tuple[Cell, At], Read], inner: bool = False
    ) -> Read:
        """The read itself, or a register that holds the value, computed just before."""
        cell = read.cell
        if any(isinstance(k, Indirect) for k in read.at):
            read = replace(read, at=self._index(read.at, done, here))
        if cell is None or not (cell in self.chosen or (inner and cell.in_register)):
            return read
        key = (cell, read.at)
        if key in here:
            return here[key]
        step = self.chosen.get(cell) or self._definition(cell)
        assert step is not None
        mapping = {
            k.index: to
            for k, to in zip(step.at, read.at, strict=True)
            if isinstance(k, Affine) and k.index is not None and isinstance(to, Affine)
        }
        reads = tuple(self._again(r.substitute(mapping), done, here, True) for r in step.reads)
        clone = Cell((), cell.dtype, hint=cell.hint, src=cell.src)
        done.append(Compute(clone, (), step.primitive, reads, src=step.src))
        here[key] = Read(clone, ())
        return here[key]
