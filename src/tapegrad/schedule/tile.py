"""Tiling: a loop over rows that computes costly scalars between inner loops is cut into tiles.

    for i in range(n):                        for i0 in range(0, n, 64):
        t = 0                                     for i in range(i0, min(i0 + 64, n)):
        for j: t += x[i, j] * w[j]                    t = 0
        r = expit(t) - y[i]           -->             for j: t += x[i, j] * w[j]
        for j: g[j] += x[i, j] * r                    z[i - i0] = t
                                                  for i in range(i0, min(i0 + 64, n)):
                                                      r[i - i0] = expit(z[i - i0]) - y[i]
                                                  for i in range(i0, min(i0 + 64, n)):
                                                      for j: g[j] += x[i, j] * r[i - i0]

Row by row the scalars can't be vectorised. In a tile they are computed for all rows in one loop,
which LLVM vectorises, while the tile's rows stay in the cache. It is allowed if the parts could be
fused again, and sums keep their order.

Inner loops are tiled if their lengths may be different in other calls, as for pairs of points.
Inner loops of fixed lengths are cut by `apart`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import Cell, Read
from tapegrad.ir.changes import Changes
from tapegrad.ir.plan import Plan, is_fill
from tapegrad.ir.steps import Compute, Loop, Step
from tapegrad.primitives.elementwise import FUNCTION, copy
from tapegrad.schedule.cost import work, work_once
from tapegrad.schedule.fuse import Use, add_uses, are_aligned, touched

ROWS = 64  # of a tile
MIN_TILES = 4  # tiles: the least length of a loop
WORTH = 4  # a tile pays when its scalars cost at least 1/WORTH of the inner loops


def tile(plan: Plan, lengths: Collection[int] = ()) -> Plan:
    """Tile the outermost loops that compute costly scalars between inner loops, if they are long or
    their length is in `lengths`, so that it may be long in other calls. In the other loops, tile
    the inner ones."""
    steps = [_tiled(s, lengths, MIN_TILES * ROWS) if isinstance(s, Loop) else s for s in plan.steps]
    return replace(plan, steps=tuple(steps))


def _tiled(loop: Loop, lengths: Collection[int], long: float) -> Loop:
    is_long = loop.index.extent >= long or loop.index.extent in lengths
    if is_long and (tiles := _in_tiles(loop)) is not None:
        return tiles
    if not lengths:
        return loop
    body = [_tiled(s, lengths, math.inf) if isinstance(s, Loop) else s for s in loop.body]
    return replace(loop, body=tuple(body))


def _in_tiles(loop: Loop) -> Loop | None:
    if loop.index.limit is not None or loop.start is not None or not _pays(loop.body):
        return None
    segments = _segments(loop.body)
    if len(segments) < 2:
        return None
    crossing = _crossing(segments)
    if crossing is None or not _are_in_step(loop, segments, crossing):
        return None
    start = Index(loop.index.extent)
    offset = Affine(((loop.index, 1), (start, -1)))
    rows = {
        cell: Cell((ROWS,), cell.dtype, hint=cell.hint, src=cell.src, stored=True)
        for cell in crossing
    }
    body: list[Step] = []
    for segment in segments:
        starts = {c: _start(c, [segment]) for c in crossing}
        made = {c: start for c, start in starts.items() if start is not None}
        later = {c: (row, (offset,)) for c, row in rows.items() if c not in made}
        steps = [s.changed(Changes.at_places(later)) for s in segment]
        steps += [
            Compute(rows[c], (offset,), copy, (Read(c, s.at),), src=c.src) for c, s in made.items()
        ]
        body.append(Loop(loop.index, tuple(steps), start=start, step=ROWS))
    return Loop(start, tuple(body), step=ROWS)


def _are_in_step(
    loop: Loop, segments: Sequence[Sequence[Step]], crossing: Collection[Cell]
) -> bool:
    """Whether segments could as well be separate loops, apart from the registers in `crossing`."""
    before: dict[Cell, Use] = {}
    for segment in segments:
        found = touched(replace(loop, body=tuple(segment)))
        uses = {cell: use for cell, use in found.items() if cell not in crossing}
        if not are_aligned(before, uses):
            return False
        add_uses(before, uses)
    return True


def _pays(body: Sequence[Step]) -> bool:
    if not any(isinstance(s, Loop) for s in body):
        return False
    scalars = [s for s in body if isinstance(s, Compute)]
    costly = sum(map(work_once, scalars))
    inner = sum(work(s) for s in body if isinstance(s, Loop))
    return costly >= FUNCTION and WORTH * costly >= inner


def _segments(body: Sequence[Step]) -> list[list[Step]]:
    """Segments of scalar steps, and of inner loops with the fills before them."""
    segments: list[list[Step]] = []
    kind = ""
    fills: list[Step] = []
    for step in body:
        if is_fill(step):
            fills.append(step)
            continue
        here = "loops" if isinstance(step, Loop) else "scalars"
        if here != kind:
            segments.append([])
            kind = here
        segments[-1] += [*fills, step]
        fills = []
    if fills:
        segments[-1] += fills
    return segments


def _crossing(segments: list[list[Step]]) -> list[Cell] | None:
    """The registers that several segments use. None if anything else would have to be tiled."""
    homes: dict[Cell, set[int]] = {}
    written: dict[Cell, set[int]] = {}
    for number, segment in enumerate(segments):
        for step in segment:
            for cell, at, writes in step.accesses():
                if at is None:
                    return None
                homes.setdefault(cell, set()).add(number)
                if writes:
                    written.setdefault(cell, set()).add(number)
    inside = [cell for cell in written if _start(cell, segments) is not None]
    crossing = [cell for cell in inside if len(homes[cell]) > 1]
    if any(not cell.in_register for cell in crossing):
        return None
    return crossing


def _start(cell: Cell, segments: list[list[Step]]) -> Compute | None:
    """The step that sets the initial value of a temporary, if it is in these segments; else
    None."""
    if cell.role != "temporary":
        return None
    found = (_first_write(cell, step) for segment in segments for step in segment)
    first = next((f for f in found if f is not None), None)
    return None if first is None or first.combine else first


def _first_write(cell: Cell, step: Step) -> Compute | None:
    if isinstance(step, Loop):
        found = (_first_write(cell, s) for s in step.body)
        return next((f for f in found if f is not None), None)
    return step if isinstance(step, Compute) and step.cell is cell else None
