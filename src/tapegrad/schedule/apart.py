"""Costly functions get a loop of their own, where they can't be vectorised at their place.

    for j:                                     for j:
        t = 0                                      t = 0
        for k: t += x[j, k] * w[k]                 for k: t += x[j, k] * w[k]
        r = exp(t)                    -->          z[j] = t
        for k: y[j, k] = r * v[k]              for i: e[i] = exp(z[i])
                                               for j:
                                                   r = e[j]
                                                   for k: y[j, k] = r * v[k]

Between inner loops there is one number at a time; and of rows of twelve that are summed up a third
is left over, where a vector has eight lanes. So a nest is cut in two, what its functions are
computed of is kept for all of its iterations, and they run over that from one end to the other. The
nest is short, so this stays in the cache; long ones are cut into tiles (`tile`).

It can be cut if its two parts could be fused again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import Cell, Read
from tapegrad.ir.plan import Plan
from tapegrad.ir.steps import Compute, Loop, Step
from tapegrad.primitives.elementwise import FUNCTION, copy
from tapegrad.schedule.fuse import are_in_step, touched
from tapegrad.schedule.lengths import is_length

# The iterations of a nest, in the rounds of a loop and elsewhere, where less code is worth more.
LEAST, ONCE, MOST = 16, 256, 16384
LANES = 8  # of a vector; in rows of less than ROW elements it counts what is left over
ROW = 64

Cut = tuple[
    Loop, Sequence[Step], Loop
]  # what stands before functions, these, and what follows them


def set_apart(plan: Plan, lengths: Collection[int] = ()) -> Plan:
    """The plan with costly functions in loops of their own. Nests stay whole that are as long as
    the user's loops, of these lengths: how many iterations they have would be part of the code."""
    apart = _Apart(LEAST if plan.among else ONCE, lengths)
    return replace(plan, steps=tuple(apart.steps(plan.steps)))


class _Apart:
    """What cuts nests of so many iterations at the least."""

    def __init__(self, least: int, lengths: Collection[int]) -> None:
        self.least, self.lengths = least, lengths

    def steps(self, steps: Sequence[Step]) -> Iterator[Step]:
        for step in steps:
            if not isinstance(step, Loop):
                yield step
            elif (cut := self._cut(step)) is not None:
                before, functions, after = cut
                yield from (before, *functions)
                yield from self.steps([after])
            else:
                yield replace(step, body=tuple(self.steps(step.body)))

    def _cut(self, nest: Loop) -> Cut | None:
        path = _path(nest)
        extents = [loop.index.extent for loop in path]
        if not path or not self.least <= math.prod(extents) <= MOST:
            return None
        return None if any(is_length(n, self.lengths) for n in extents) else _cut(path)


def _cut(path: Sequence[Loop]) -> Cut | None:
    """A nest cut at the first functions inside these loops of it."""
    count = math.prod([loop.index.extent for loop in path])
    number = Affine()
    for loop in path:
        number = number * loop.index.extent + Affine.of(loop.index)
    first, functions, rest = _parts(path[-1].body)
    before, after = [*first], list[Step]()
    alone: list[Step] = []
    given: dict[Read, Cell] = {}
    for step in functions:
        at = Affine.of(Index(count))
        reads = []
        for read in step.reads:
            if read.cell is not None:
                if read not in given:
                    kept = Cell((count,), read.cell.dtype, hint=read.cell.hint, src=step.src)
                    before.append(Compute(kept, (number,), copy, (read,), src=step.src))
                    given[read] = kept
                read = Read(given[read], (at,))
            reads.append(read)
        found = Cell((count,), step.cell.dtype, hint=step.cell.hint, src=step.src)
        ((index, _),) = at.terms
        computed = replace(step, cell=found, at=(at,), reads=tuple(reads))
        alone.append(Loop(index, (computed,)))
        after.append(replace(step, primitive=copy, reads=(Read(found, (number,)),)))
    after += rest
    return _halves(path, before, alone, after)


def _path(loop: Loop, around: Loop | None = None) -> list[Loop]:
    """The loops around the first functions of a nest that are better set apart."""
    if loop.start is not None or loop.step != 1 or loop.parallel or loop.chunk is not None:
        return []
    for step in loop.body:
        if isinstance(step, Loop) and (inside := _path(step, loop)):
            return [loop, *inside]
    if not any(map(_is_costly, loop.body)):
        return []
    mixed = any(isinstance(step, Loop) for step in loop.body)
    return [loop] if mixed or (around is not None and _is_awkward(loop, around)) else []


def _is_awkward(loop: Loop, around: Loop) -> bool:
    """Whether a loop over a short row leaves much over, and rows meet in what they write: LLVM
    takes several of them at once where they don't."""
    extent = loop.index.extent
    if extent >= ROW or extent % LANES == 0:
        return False
    return any(
        isinstance(step, Compute)
        and not step.cell.in_register
        and not any(isinstance(k, Affine) and around.index in dict(k.terms) for k in step.at)
        for step in loop.body
    )


def _is_costly(step: Step) -> bool:
    """Whether a step computes a function of numbers."""
    return (
        isinstance(step, Compute)
        and step.combine is None
        and step.primitive.cost >= FUNCTION
        and step.cell.dtype.kind == "f"
        and any(read.cell is not None for read in step.reads)
        and all(read.literal is not None or read.cell is not None for read in step.reads)
    )


def _parts(body: Sequence[Step]) -> tuple[list[Step], list[Compute], list[Step]]:
    """The steps that need none of the functions, these, and the others: a function of such a one
    is among those."""
    before: list[Step] = []
    functions: list[Compute] = []
    after: list[Step] = []
    for step in body:
        is_late = any(_conflict(step, other) for other in (*functions, *after))
        if is_late:
            after.append(step)
        elif _is_costly(step):
            assert isinstance(step, Compute)
            functions.append(step)
        else:
            before.append(step)
    return before, functions, after


def _conflict(step: Step, other: Step) -> bool:
    """Whether the order of two steps matters."""
    mine, theirs = touched(step), touched(other)
    return any(use.writes or theirs[c].writes for c, use in mine.items() if c in theirs)


def _halves(
    path: Sequence[Loop], before: list[Step], functions: Sequence[Step], after: list[Step]
) -> Cut | None:
    """The nest cut in two, if it can be: each half has loops of its own."""
    for loop, inner in zip(reversed(path), [None, *reversed(path)], strict=False):
        if inner is not None:
            at = next(k for k, step in enumerate(loop.body) if step is inner)
            before, after = [*loop.body[:at], *before], [*after, *loop.body[at + 1 :]]
        first, second = (replace(loop, body=tuple(half)) for half in (before, after))
        if not are_in_step(first, second):
            return None
        second = _renewed(second)
        before, after = [first], [second]
    return first, functions, second


def _renewed(loop: Loop) -> Loop:
    """The loop with an index of its own."""
    index = Index(loop.index.extent)
    renewed = loop.substituted({loop.index: Affine.of(index)})
    return replace(renewed, index=index)
