"""Short rows along which loops shall be vectorised: see `support.rolled`."""

from __future__ import annotations

from collections.abc import Sequence

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.fold import Fold
from tapegrad.ir.steps import Compute, Loop
from tapegrad.primitives.elementwise import FUNCTION

ROLLED = range(8, 65)  # extents that LLVM must not know: of longer rows it makes vectors anyway
LANES = 4  # of a vector; what is left over of a row is computed one by one


def is_short_row(loop: Loop, loops: Sequence[Index]) -> bool:
    """Whether a loop, the last one of `loops` that are around its body, is an innermost one that
    shall be vectorised along the row. It sums into a register, or each row writes to its own
    memory, so that LLVM would prefer to take several rows at once; or it consists of a function,
    of which there would be as many calls."""
    extent = loop.index.extent
    if extent not in ROLLED or loop.index.limit is not None:
        return False
    folds: set[Fold | None] = set()
    stores, cost = set(), 0
    row = loops[-2] if len(loops) > 1 else None
    for step in loop.body:
        if not isinstance(step, Compute):
            return False
        cost = max(cost, step.primitive.cost)
        if step.cell.in_register:
            folds.add(step.combine)
        else:
            stores.add(any(isinstance(k, Affine) and row in dict(k.terms) for k in step.at))
    if cost >= FUNCTION and len(loop.body) == 1 and len(loop.body[0].at) == 1:  # type: ignore[attr-defined]
        return True
    folds.discard(None)
    if folds or row is None:
        return row is not None and any(fold is not None and fold.loose for fold in folds)
    left_over = extent % LANES / extent
    return all(stores) and not (cost >= FUNCTION and left_over > 0.1)
