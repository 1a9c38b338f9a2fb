"""Lowering of contractions as loops, and the choice between loops and products of matrices."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from tapegrad.ir.affine import Affine
from tapegrad.ir.cells import At, Cell, Read
from tapegrad.ir.fold import ANY, SUM
from tapegrad.ir.steps import Compute
from tapegrad.ir.tape import Call, Operand, Var
from tapegrad.primitives.contractions import times
from tapegrad.primitives.kinds import Contraction, View
from tapegrad.schedule.access import at_indices, fastest, indices_for, nest
from tapegrad.schedule.dense import fold
from tapegrad.schedule.lowering import Lowering

# A product of matrices doesn't fuse. So a product of at most SMALL_PRODUCT multiplications becomes
# loops if each number sums up more than DEEP terms, along memory. So do the products of a batch of
# at most SMALL_OF_BATCH: all of them would have to be in memory before any is used.
SMALL_PRODUCT, DEEP, SMALL_OF_BATCH = 512, 16, 64
ASSUMED_LENGTH = SMALL_PRODUCT + 1  # elements assumed along an axis of any length


def extents(call: Call) -> dict[str, int]:
    """The extents of a contraction's axes, by their letters."""
    primitive: Any = call.primitive
    terms = zip(call.operands, primitive.terms, strict=False)
    return {k: n for x, term in terms for k, n in zip(term, x.shape, strict=True)}


def is_large(call: Call) -> bool:
    """Whether a call is a contraction of more than a few multiplications."""
    return isinstance(call.primitive, Contraction) and math.prod(extents(call).values()) > (
        SMALL_PRODUCT
    )


def is_gemm(call: Call, open_: Collection[int] = ()) -> bool:
    """Whether a call is computed as a product of matrices of floats. Axes of a length in `open_`
    may have any number of elements."""
    if not isinstance(call.primitive, Contraction) or call.out.dtype.kind != "f":
        return False
    terms = call.primitive.terms
    size = {k: ASSUMED_LENGTH if n in open_ and n != 1 else n for k, n in extents(call).items()}
    batch, *sides = (
        math.prod(size[k] for k in letters)
        for letters in (terms.batch, terms.rows, terms.columns, terms.depth)
    )
    work = math.prod(sides)
    if min(sides) < 2 or work > SMALL_PRODUCT:
        return min(sides) > 1
    return sides[-1] <= DEEP and (work > SMALL_OF_BATCH or batch == 1)


def product_loops(low: Lowering, call: Call) -> None:
    """The contraction as loops, in the order that reads memory along rows."""
    (x, y), terms = call.operands, call.primitive.terms  # type: ignore[attr-defined]
    size = extents(call)
    letters = terms.out + terms.depth
    shape = [size[k] for k in letters]

    def reads(at: At) -> tuple[Read, ...]:
        entry = dict(zip(letters, at, strict=True))
        left = low.read(x, tuple([entry[k] for k in terms.x]))
        return left, low.read(y, tuple([entry[k] for k in terms.y]))

    if all(size[k] == 1 for k in terms.depth):  # an outer product sums nothing
        cell = low.result(call)
        indices = low.indices_of(call.out)
        at = at_indices(indices)
        ends = (Affine(),) * len(terms.depth)
        step = Compute(cell, at, times(cell.dtype), reads((*at, *ends)), src=call.src)
        low.steps += nest(indices, [step])
        return
    probe = indices_for(shape)
    left, right = (_letter(letters, probe, r) for r in reads(at_indices(probe)))
    # The rows of the result, of x and of y are read and written along memory if possible.
    if right in terms.columns and right:
        inner = "kij" if left in terms.rows and left else "ikj"
    else:
        inner = "kji" if left in terms.rows and left else "ijk"
    of = {"i": terms.rows, "j": terms.columns, "k": terms.depth}
    order = [letters.index(k) for k in terms.batch + "".join(of[role] for role in inner)]
    depth = [low.fronts.of_depth(call)] if len(terms.depth) == 1 else [None] * len(terms.depth)
    indices = indices_for(shape, (*low.fronts.of(call.out), *depth))
    summed = tuple(range(len(terms.out), len(letters)))
    dtype = call.out.dtype
    combine = ANY if dtype.kind == "b" else SUM
    fold(low, call, indices, summed, combine, times(dtype), reads, order)


def _letter(letters: str, indices: Any, read: Read) -> str:
    """The letter along which elements are adjacent in memory; "" if there is none."""
    index = fastest(read)
    return letters[indices.index(index)] if index in indices else ""


def matrix(low: Lowering, x: Operand) -> tuple[Cell, At, bool]:
    """A cell of which a matrix is a part, the index of the part, and whether its last two axes are
    swapped there."""
    if isinstance(x, Var) and x not in low.cells:
        call = low.made[x]
        if swaps(call):
            cell, first, swapped = matrix(low, call.operands[0])
            return cell, first, not swapped
    return *low.part(x), False


def batch_at(at: At, own: tuple[int, ...]) -> At:
    """The index in an operand's batch, for an index in the batch to which it broadcasts."""
    mine = at[len(at) - len(own) :]
    return tuple(Affine() if n == 1 else k for k, n in zip(mine, own, strict=True))


def swaps(call: Call) -> bool:
    """Whether a call swaps the last two axes and no others."""
    n, primitive = len(call.outs[0].shape), call.primitive
    swapped = (*range(n - 2), n - 1, n - 2)
    return isinstance(primitive, View) and primitive.permutation == swapped
