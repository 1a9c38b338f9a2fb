"""Rewrites of products with diagonal matrices, and of diagonals of products.

    einsum(place_diagonal(w), x)   -->  w[:, None] * x + sum(0 * x, axis=0)
    diagonal(einsum(x, y))         -->  einsum(x, y, 'ij,ji->i'): so does the trace of x @ y
    diagonal(f(einsum(x, y), z))   -->  f(diagonal(einsum(x, y)), diagonal(z))

The zeros beside a diagonal turn nonfinite elements into NaN, in all rows of the product. So do the
products 0 * x that are added here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tapegrad.ir.tape import Call, Operand, literal
from tapegrad.optimize.rewrites.contractions import (
    Maker,
    Term,
    bare,
    contracted,
    keeps_order,
    made_of,
    repeated,
)
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.contractions import LETTERS, Einsum
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.views import BroadcastTo, Diagonal, PlaceDiagonal


def einsum(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """A product with a diagonal matrix, as the other operand's rows or columns times the
    diagonal."""
    if 0 in shape or xs[0].dtype.kind not in "iufc":
        return None
    lx, ly, out = p.terms
    for diagonal, letters, other in ((xs[0], lx, Term(xs[1], ly)), (xs[1], ly, Term(xs[0], lx))):
        call = s.made_by(diagonal, PlaceDiagonal)
        if call is None or not _is_main(call.primitive.offset, diagonal):
            continue
        *batch, row, column = letters
        for kept, gone in ((row, column), (column, row)):
            if gone in other.letters and gone not in out and kept not in other.letters:
                weights = Term(call.operands[0], "".join([*batch, kept]))
                scaled = Term(other.x, other.letters.replace(gone, kept))
                if not keeps_order(s, weights, scaled, out):
                    return None
                result = contracted(s, weights, scaled, out, shape, from_zero=False)
                if other.x.dtype.kind in "iu":
                    return result
                return s.make(ew.add, result, _zeros_times(s, other, out, shape))
    return None


def diagonal(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """The diagonal of a product, or of an elementwise function of products."""
    (x,) = xs
    if not _is_main(p.offset, x):
        return None
    if s.made_by(x, Einsum):
        return _of_product(s, x, shape)
    calls = _around_products(s, x)
    return _of_elements(s, x, x.shape, calls) if calls else None


# ----


def _is_main(offset: int, x: Operand) -> bool:
    """Whether the offset is that of the main diagonal of a square matrix."""
    return offset == 0 and x.shape[-1] == x.shape[-2]


def _zeros_times(s: Any, x: Term, out: str, shape: tuple[int, ...]) -> Operand:
    """The contribution of a diagonal matrix' zeros to each element of the product: 0, or NaN."""
    nothing = s.make(ew.mul, x.x, literal(0, x.x.dtype))
    nothing = s.make(Sum(tuple(a for a, k in enumerate(x.letters) if k not in out)), nothing)
    return repeated(Maker(s).node(nothing), [k for k in x.letters if k in out], out, shape)


def _is_apart(s: Any, x: Operand) -> bool:
    """Whether `x` is a product, read once, with rows from one operand and columns from the
    other."""
    call = s.made_by(x, Einsum)
    if call is None or not s.alone(x):
        return False
    lx, ly, out = call.primitive.terms
    homes = {(k in lx, k in ly) for k in out[-2:]}
    return homes == {(True, False), (False, True)}


def _of_product(s: Any, x: Operand, shape: Any) -> Operand | None:
    if not _is_apart(s, x):
        return None
    call = s.made_by(x, Einsum)
    lx, ly, out = call.primitive.terms
    *_, row, column = out
    left, right = (
        Term(y, letters.replace(column, row))
        for y, letters in zip(call.operands, (lx, ly), strict=True)
    )
    if not keeps_order(s, left, right, out[:-1]):
        return None
    return contracted(s, left, right, out[:-1], shape)


def _around_products(s: Any, x: Operand) -> dict[Operand, Call]:
    """The elementwise calls that make `x` of products, at least one of which needn't be formed for
    its diagonal. Nothing else reads their results."""

    def function(y: Operand) -> Call | None:
        call: Call | None = s.made.get(y) if s.alone(y) else None
        return call if call is not None and call.primitive.pointwise else None

    return made_of(x, function, partial(_is_apart, s))


def _of_elements(
    s: Any, x: Operand, shape: tuple[int, ...], calls: Mapping[Operand, Call]
) -> Operand:
    """The diagonal of `x`, broadcast to `shape`, computed by the same elementwise calls."""
    if call := calls.get(x):
        return _made(s, call.primitive, *[_of_elements(s, y, shape, calls) for y in call.operands])
    if not x.shape:
        return x
    full = x if x.shape == shape else s.make(BroadcastTo(shape), x)
    letters = LETTERS[: len(shape)]
    row, column = letters[-2], letters[-1]
    own, known = bare(s, Term(full, letters))
    if row in known and column in known:
        return _made(s, Diagonal(0), full)
    kept = known.replace(column, row)
    return repeated(Maker(s).node(own), kept, letters[:-1], shape[:-1])


def _made(s: Any, p: Any, *xs: Operand) -> Operand:
    made: Operand = s.make(p, *xs)
    return made


REWRITES: dict[type, Any] = {Einsum: einsum, Diagonal: diagonal}
