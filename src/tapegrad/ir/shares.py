"""Rows that belong to one chunk alone, for chunks of loops and products that run at the same
time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import Share
from tapegrad.ir.plan import walk
from tapegrad.ir.steps import Loop, Step


def rows_of(steps: Sequence[Step]) -> dict[Index, int]:
    """The loop indices that run over the rows of a chunk, or of a tile in a chunk, with the number
    of rows in a chunk."""
    rows: dict[Index, int] = {}
    for step in walk(steps):
        if isinstance(step, Loop) and step.chunk is not None:
            rows[step.index] = step.chunk[1]
        elif isinstance(step, Loop) and step.start in rows:
            rows[step.index] = rows[step.start]
    return rows


def is_one_share(along: Iterable[Affine | Share | None], rows: Mapping[Index, int]) -> bool:
    """Whether all these accesses along an axis stay within one part of it for each chunk:
    y[i + 5], y[i + 5], but not y[i + 5], y[i]."""
    parts: set[tuple[int, int, int, Affine] | None] = set()
    for x in along:
        if isinstance(x, Share):
            parts.add((x.size, x.joined, 1, x.start))
        elif x is not None and (term := x.terms[0])[0] in rows:
            parts.add((rows[term[0]], 1, term[1], Affine((), x.const)))
        else:
            parts.add(None)
    return len(parts) == 1 and None not in parts
