"""Lowering of contractions: as products of matrices, or as loops.

A product of matrices takes any number of axes for its rows, its columns and its depth, as long as
they lie one behind the other in memory: then they are one axis of an array of another shape.

    einsum(x, w, 'nijc,cd->nijd')  -->  matmul(x as (n i j) by c, w, out as (n i j) by d)
"""

from __future__ import annotations

import math
from typing import Any

from tapegrad.ir.fold import SUM
from tapegrad.ir.plan import Affine, At, Cell, Compute, Gemm, Read
from tapegrad.ir.tape import Call, Operand, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.kinds import Contraction, View
from tapegrad.schedule.access import at_indices, fastest, indices_for, nest
from tapegrad.schedule.dense import fold
from tapegrad.schedule.lowering import Lowering

# What is computed as a whole doesn't fuse. So products of at most so many multiplications are loops
# if each number sums up many, along memory, and so are the smallest of a batch: all of them would
# have to be in memory before anything is computed with one.
SMALL_PRODUCT, DEEP, SMALL_OF_BATCH = 512, 16, 64


def product(low: Lowering, call: Call) -> None:
    if is_gemm(call):
        gemm(low, call)
    else:
        loops(low, call)


def extents(call: Call) -> dict[str, int]:
    """How long the axes of a contraction are, by their letters."""
    primitive: Any = call.primitive
    terms = zip(call.operands, primitive.terms, strict=False)
    return {k: n for x, term in terms for k, n in zip(term, x.shape, strict=True)}


def is_large(call: Call) -> bool:
    """Whether this is a contraction of more than a few multiplications."""
    return isinstance(call.primitive, Contraction) and math.prod(extents(call).values()) > (
        SMALL_PRODUCT
    )


def is_gemm(call: Call) -> bool:
    """Whether this call is a product of matrices of floats that is worth to be computed whole."""
    if not isinstance(call.primitive, Contraction) or call.out.dtype.kind != "f":
        return False
    size, terms = extents(call), call.primitive.terms
    batch, *sides = (
        math.prod(size[k] for k in letters)
        for letters in (terms.batch, terms.rows, terms.columns, terms.depth)
    )
    work = math.prod(sides)
    if min(sides) < 2 or work > SMALL_PRODUCT:
        return min(sides) > 1
    return sides[-1] <= DEEP and (work > SMALL_OF_BATCH or batch == 1)


def is_in_order(call: Call) -> bool:
    """Whether a product of matrices leaves its result as it is, or transposed."""
    terms = call.primitive.terms  # type: ignore[attr-defined]
    rows, columns = terms.rows, terms.columns
    return str(terms.out) in (terms.batch + rows + columns, terms.batch + columns + rows)


# ---- loops


def loops(low: Lowering, call: Call) -> None:
    """The contraction as a sum, in the order of loops that reads memory along rows."""
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
        step = Compute(cell, at, ew.mul, reads((*at, *ends)), src=call.src)
        low.steps += nest(indices, [step])
        return
    probe = indices_for(shape)
    left, right = (_letter(letters, probe, r) for r in reads(at_indices(probe)))
    # The result's rows, and those of x and y, are read and written along memory if possible.
    if right in terms.columns and right:
        inner = "kij" if left in terms.rows and left else "ikj"
    else:
        inner = "kji" if left in terms.rows and left else "ijk"
    of = {"i": terms.rows, "j": terms.columns, "k": terms.depth}
    order = [letters.index(k) for k in terms.batch + "".join(of[role] for role in inner)]
    depth = [low.fronts.of_depth(call)] if len(terms.depth) == 1 else [None] * len(terms.depth)
    indices = indices_for(shape, (*low.fronts.of(call.out), *depth))
    summed = tuple(range(len(terms.out), len(letters)))
    fold(low, call, indices, summed, SUM, ew.mul, reads, order)


def _letter(letters: str, indices: Any, read: Read) -> str:
    """The letter along which elements lie next to each other, or nothing."""
    index = fastest(read)
    return letters[indices.index(index)] if index in indices else ""


# ---- products of matrices


def gemm(low: Lowering, call: Call) -> None:
    """A product of matrices: into a cell of its own, or into the sum that it is a term of."""
    (x, y), terms = call.operands, call.primitive.terms  # type: ignore[attr-defined]
    size = extents(call)
    batch, rows, columns, depth = terms.batch, terms.rows, terms.columns, terms.depth
    sides = tuple([math.prod(size[k] for k in letters) for letters in (rows, columns, depth)])
    indices = indices_for([size[k] for k in batch])
    at = at_indices(indices)
    left, x_at, x_turned = _panel(low, x, terms.x, batch, rows, depth, at)
    right, y_at, y_turned = _panel(low, y, terms.y, batch, depth, columns, at)
    turned = terms.out == batch + columns + rows != batch + rows + columns
    whole = is_in_order(call)
    total = low.totals.get(call.out) if whole else None
    if total:
        cell, adds, turned = total.cell, total.adds, total.swapped != turned
    elif whole:
        cell, adds = low.result(call), False
    else:
        natural = tuple([size[k] for k in batch + rows + columns])
        cell, adds = low.new_cell(call.out, call, natural), False
    far = dict(zip(terms.out, low.fronts.of(call.out), strict=True))
    fronts = [far[k] if len(k) == 1 else None for k in (rows, columns)]
    fronts.append(low.fronts.of_depth(call))
    sizes: Any = None
    if any(far is not None for far in fronts):
        ends = zip(sides, fronts, strict=True)
        sizes = tuple([Affine((), n) if far is None else far for n, far in ends])
    m, n, _ = sides
    shape = tuple([size[k] for k in batch])
    out = _reshaped(cell, (*shape, n, m) if turned else (*shape, m, n))
    step = Gemm(out, left, right, at, x_at, y_at, x_turned, y_turned, adds, call.src, sizes)
    if turned:  # (x @ y).T = y.T @ x.T
        sizes = sizes and (sizes[1], sizes[0], sizes[2])
        step = Gemm(
            out, right, left, at, y_at, x_at, not y_turned, not x_turned, adds, call.src, sizes
        )
    low.steps += nest(indices, [step])
    if not whole:
        letters = batch + rows + columns
        result = low.result(call)

        def read(at: At) -> Read:
            entry = dict(zip(terms.out, at, strict=True))
            return Read(cell, tuple([entry[k] for k in letters]))

        low.copy_into(result, read, call.src, low.indices_of(call.out))


def _panel(
    low: Lowering, x: Operand, term: str, batch: str, rows: str, columns: str, at: At
) -> tuple[Cell, At, bool]:
    """An operand as a cell whose last two axes are these, which matrix of that, and whether it
    stands transposed there."""
    size = dict(zip(term, x.shape, strict=True))
    shape = [size[k] for k in batch]
    while isinstance(x, Var) and x not in low.cells:  # views that only put axes in order
        call = low.made[x]
        order = call.primitive.permutation if isinstance(call.primitive, View) else None
        if order is None:
            break
        x, term = call.operands[0], "".join(term[order.index(a)] for a in range(len(order)))
    turned = term != batch + rows + columns
    if term not in (batch + rows + columns, batch + columns + rows):
        letters, source, turned = batch + rows + columns, x, False
        cell = Cell(tuple([size[k] for k in letters]), x.dtype, src=low._src(x))

        def read(at: At) -> Read:
            entry = dict(zip(letters, at, strict=True))
            return low.read(source, tuple([entry[k] for k in term]))

        low.copy_into(cell, read, cell.src)
        first: At = ()
    else:
        cell, first = low.part(x)
    sides = [math.prod(size[k] for k in side) for side in (rows, columns)]
    ahead = cell.shape[: len(first)]
    return (
        _reshaped(cell, (*ahead, *shape, *(sides[::-1] if turned else sides))),
        (*first, *at),
        turned,
    )


def _reshaped(cell: Cell, shape: tuple[int, ...]) -> Cell:
    """The same memory under another shape."""
    if cell.shape == shape:
        return cell
    return Cell(shape, cell.dtype, "temporary", cell.hint, cell.src, alias=cell)


def matrix(low: Lowering, x: Operand) -> tuple[Cell, At, bool]:
    """A cell of which a BLAS operand is a part, which part, and whether its last two axes stand
    swapped in it."""
    if isinstance(x, Var) and x not in low.cells:
        call = low.made[x]
        if swaps(call):
            cell, first, swapped = matrix(low, call.operands[0])
            return cell, first, not swapped
    return *low.part(x), False


def batch_at(at: At, own: tuple[int, ...]) -> At:
    """The index of an operand's batch, at an index of the batch that it is broadcast to."""
    mine = at[len(at) - len(own) :]
    return tuple(Affine() if n == 1 else k for k, n in zip(mine, own, strict=True))


def swaps(call: Call) -> bool:
    """Whether a call swaps the last two axes, and no others."""
    n, primitive = len(call.outs[0].shape), call.primitive
    swapped = (*range(n - 2), n - 1, n - 2)
    return isinstance(primitive, View) and primitive.permutation == swapped
