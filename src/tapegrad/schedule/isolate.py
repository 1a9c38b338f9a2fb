"""Costly functions get a loop of their own, where they can't be vectorised in place.

    for j:                                     for j:
        t = 0                                      t = 0
        for k: t += x[j, k] * w[k]                 for k: t += x[j, k] * w[k]
        r = exp(t)                    -->          z[j] = t
        for k: y[j, k] = r * v[k]              for i: e[i] = exp(z[i])
                                               for j:
                                                   r = e[j]
                                                   for k: y[j, k] = r * v[k]

There are two such places. Between inner loops a function has one number at a time. In a loop over
short rows the remainder of a vector is large: a row of twelve has four left over for a vector of
eight lanes. So the nest is cut in two. The operands of its functions are stored for all of its
iterations, and the functions run over these arrays in one loop. The nest is short, so the arrays
stay in the cache; long nests are tiled (`tile`).

A nest can be cut if its two parts could be fused again.
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

# Bounds on the iterations of a nest; at least MIN_OUTSIDE of them outside of rounds of loops, where
# shorter code is worth more.
MIN_NEST, MIN_OUTSIDE, MAX_NEST = 16, 256, 16384
LANES = 8  # of a vector; in rows shorter than ROW the remainder matters
ROW = 64

Cut = tuple[
    Loop, Sequence[Step], Loop
]  # the steps before the functions, the functions, and the steps after them


def set_apart(plan: Plan, lengths: Collection[int] = ()) -> Plan:
    """The plan with costly functions in loops of their own. Nests whose extents are lengths of the
    user's loops (`lengths`) stay whole: otherwise their number of iterations would be part of the
    code."""
    apart = _Apart(MIN_NEST if plan.among else MIN_OUTSIDE, lengths)
    return replace(plan, steps=tuple(apart.steps(plan.steps)))


class _Apart:
    """Cuts nests of at least `least` iterations."""

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
        if not path or not self.least <= math.prod(extents) <= MAX_NEST:
            return None
        return None if any(is_length(n, self.lengths) for n in extents) else _cut(path)


def _cut(path: Sequence[Loop]) -> Cut | None:
    """The nest cut at the first functions inside the innermost loop of `path`."""
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
    """The loops around the first functions of a nest that are better set apart; empty if there are
    none."""
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
    """Whether a loop over a short row leaves a large remainder of a vector, and rows write the same
    memory. If they don't, LLVM processes several rows at once."""
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
    """Whether a step computes an expensive function of floats."""
    return (
        isinstance(step, Compute)
        and step.combine is None
        and step.primitive.cost >= FUNCTION
        and step.cell.dtype.kind == "f"
        and any(read.cell is not None for read in step.reads)
        and all(read.literal is not None or read.cell is not None for read in step.reads)
    )


def _parts(body: Sequence[Step]) -> tuple[list[Step], list[Compute], list[Step]]:
    """The steps that don't need the functions, the functions, and the other steps. A function of
    another function's result is one of the others."""
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
    """The nest cut in two, each half with loops of its own; None if it can't be cut."""
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
    """The loop with a new index."""
    index = Index(loop.index.extent)
    renewed = loop.substituted({loop.index: Affine.of(index)})
    return replace(renewed, index=index)
