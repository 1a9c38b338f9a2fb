"""Sharing: values that cross a call of NumPy are kept in memory.

A kernel's registers end with it. Temporaries that are used by two kernels, or by a kernel and a
call of NumPy, are stored whole. A number that a loop folds into stays in a register until the fold
is done, since LLVM doesn't vectorise a sum in memory:

    for i: t += x[i]                        for i: t += x[i]
    ---------------- another kernel   -->   kept[()] = t
    y[()] = t * t                           ----------------
                                            y[()] = kept[()] * kept[()]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tapegrad.ir.cells import At, Cell, Read
from tapegrad.ir.changes import Changes
from tapegrad.ir.plan import Plan, is_parallel, segments, walk, with_cells
from tapegrad.ir.steps import CheckGuard, Compute, Cut, Step
from tapegrad.primitives.elementwise import copy


@dataclass
class _Life:
    """The uses of a cell: the kernels that use it, those that write it, and the last step that
    writes it. `whole`: its memory is passed as it is. `folds`: a loop folds into it. `register`: it
    is a register that one core writes."""

    kernels: set[int] = field(default_factory=set)
    writers: set[int] = field(default_factory=set)
    last: int = 0
    whole: bool = False
    folds: bool = False
    register: bool = True

    @property
    def crosses(self) -> bool:
        return len(self.kernels) > 1

    @property
    def is_sum(self) -> bool:
        """Whether it stays a register, and a copy of it crosses."""
        return self.crosses and self.folds and self.register and len(self.writers) == 1


def store_shared(plan: Plan) -> Plan:
    """Keep values in memory that several kernels, or a call of NumPy, use."""
    lives = _lives(plan)
    sums = {cell: life for cell, life in lives.items() if life.is_sum}
    stored = {
        cell: replace(cell, stored=True, axes=None)
        for cell, life in lives.items()
        if cell not in sums and (life.crosses or life.whole)
    }
    if sums:
        plan = replace(plan, steps=tuple(_with_copies(plan, sums)))
    return with_cells(plan, stored)


def _with_copies(plan: Plan, sums: Mapping[Cell, _Life]) -> Iterator[Step]:
    """The steps of a plan, in which other kernels read copies of the registers in `sums`."""
    kept = {c: Cell((), c.dtype, hint=c.hint, src=c.src, stored=True) for c in sums}
    for position, (number, step) in enumerate(_numbered(plan.steps)):
        places: dict[Cell, tuple[Cell, At]] = {
            cell: (kept[cell], ()) for cell, life in sums.items() if number not in life.writers
        }
        yield step.changed(Changes.at_places(places))
        for cell, life in sums.items():
            if life.last == position:
                yield Compute(kept[cell], (), copy, (Read(cell, ()),))


def _numbered(steps: Sequence[Step]) -> Iterator[tuple[int, Step]]:
    """Each step with the number of its kernel, or of its call of NumPy; -1 for a cut."""
    parts = enumerate(segments(steps))
    within = ((k, s) for k, part in parts for s in (part if isinstance(part, list) else [part]))
    for step in steps:
        yield (-1, step) if isinstance(step, Cut) else next(within)


def _lives(plan: Plan) -> dict[Cell, _Life]:
    lives: dict[Cell, _Life] = {}
    for position, (number, step) in enumerate(_numbered(plan.steps)):
        for inner in walk([step]):
            plain = isinstance(inner, (Compute, CheckGuard))
            for cell, at, writes in inner.own():
                life = lives.setdefault(cell.root, _Life())
                life.kernels.add(number)
                life.whole |= at is None and cell.shape == ()
                life.register &= plain and cell.in_register and cell.shape == ()
                if writes:
                    life.writers.add(number)
                    life.last = position
                    life.register &= not is_parallel(step)
                    life.folds |= inner is not step and getattr(inner, "combine", None) is not None
    return lives
