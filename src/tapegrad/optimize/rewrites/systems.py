"""Rewrites of linear systems, which are linear in their right-hand sides, row by row.

    lu_solve(A, u[:, None] * v)           -->   u[:, None] * lu_solve(A, v)
    lu_solve(A, c * x + z)                -->   c * lu_solve(A, x) + lu_solve(A, z), if that is less
    einsum(u, lu_solve(A, B), 'i,ij->j')  -->   lu_solve(A, einsum(u, B))

So multiplying by an inverse takes a system with one row. So does a direction along which the matrix
changes by an outer product. The rounding differs, so they need permission like other reordered sums
of products (`ranges`).

Names: `lb` the letters of the right-hand sides' axes.
"""

from __future__ import annotations

import math
from typing import Any

from tapegrad.ir.tape import Operand, literal
from tapegrad.optimize.rewrites.contractions import (
    Maker,
    Term,
    bare,
    by_addends,
    contracted,
    factors_apart,
)
from tapegrad.optimize.rewrites.ranges import may_reorder
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.contractions import LETTERS, Einsum, spread
from tapegrad.primitives.solving import LUSolve
from tapegrad.primitives.views import BroadcastTo, Reshape


def solved(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """A system whose right-hand sides are repeated, or multiples of fewer rows."""
    *given, b = xs
    if not s.matrices or b.shape != shape or math.prod(shape[:-1]) < 2 or not shape[-1]:
        return None
    letters = LETTERS[: len(shape)]

    def parts(y: Operand) -> tuple[Term | None, Term] | None:
        """A factor for each row, or None, and fewer rows; None if that isn't possible."""
        term = bare(s, Term(y if y.shape == shape else s.make(BroadcastTo(shape), y), letters))
        if letters[-1] not in term.letters:
            ones = s.make(BroadcastTo(shape[-1:]), literal(1, b.dtype))
            return term, Term(ones, letters[-1])
        return (None, term) if len(term.letters) < len(letters) else _factors(s, term, letters)

    def of(y: Operand) -> Operand:
        found = parts(y)
        assert found is not None
        u, v = found
        writer = Maker(s)
        rows: Any = spread(writer.node(v.x), v.letters, letters)
        rows = rows if rows.ndim > 1 else Reshape((1, *rows.shape))(rows)
        result: Any = writer.node(s.make(p, *given, rows.operand))
        if u is not None:
            result = ew.mul(spread(writer.node(u.x), u.letters, letters), result)
        made: Operand = result.operand
        return made if made.shape == shape else s.make(BroadcastTo(shape), made)

    if parts(b) is not None:
        return of(b) if may_reorder(s, b, given[1]) else None
    return by_addends(s, b, lambda y: parts(y) is not None, of, given[1])


def _factors(s: Any, term: Term, letters: str) -> tuple[Term, Term] | None:
    found = factors_apart(s, term, letters[:-1])
    return found if found and len(found[1].letters) < len(letters) else None


def einsum(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """A sum over rows of systems: sum the right-hand sides first, if fewer rows are left."""
    if not s.matrices:
        return None
    out = p.terms.out
    for k, (x, letters) in enumerate(zip(xs, p.terms, strict=False)):
        call = s.made_by(x, LUSolve)
        other = Term(xs[1 - k], p.terms[1 - k])
        last = letters[-1] if letters else ""
        if call is None or out[-1:] != last or last in other.letters:
            continue
        *given, b = call.operands
        count = math.prod(shape[:-1])
        if b.shape != x.shape or len(given[0].shape) != 2 or count >= math.prod(x.shape[:-1]):
            continue
        if not may_reorder(s, b, other.x, given[1]):
            return None
        rows = contracted(s, Term(b, letters), other, out, shape, from_zero=False)
        if len(shape) > 1:
            return s.make(call.primitive, *given, rows)
        result = s.make(call.primitive, *given, s.make(Reshape((1, *shape)), rows))
        made: Operand = s.make(Reshape(shape), result)
        return made
    return None


REWRITES: dict[type, Any] = {Einsum: einsum, LUSolve: solved}
