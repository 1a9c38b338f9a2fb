"""Whether sums of products may be reordered: no product may overflow or underflow in one order
only.

    sum(A @ B @ x)  -->  sum(A) @ (B @ x), if the elements of A, B and x are moderate

A number is moderate if it is 0, or its magnitude is between 2**-e and 2**e. Then products of d such
numbers are normal numbers, and so are sums of these except for cancellation, in any order: another
order only changes rounding. Whether numbers are moderate is known at a call only. So a tape with a
changed order gets guards, and if one fails the sums are taken in NumPy's order.

The numbers in question are the *leaves*: the values of which products, sums and views are made.
Products and sums needn't be formed after the rewrite, so the guards don't ask about these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tapegrad.ir.ranges import RANGE
from tapegrad.ir.tape import Builder, Guard, Literal, Operand, Tape, Var, literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.complexes import imag, real
from tapegrad.primitives.kinds import Contraction, View
from tapegrad.primitives.reductions import All, Sum
from tapegrad.primitives.solving import LUSolve

DEPTH = 32  # the longest chain of calls that is followed
# float64 has few bounds, so that one check of an array serves most rewrites.
DOUBLE = (240, 120)
SINGLE = range(60, 11, -1)


class Span(NamedTuple):
    """A value as a sum of products: its `leaves`, the most factors of a product (`degree`), the
    most products (`terms`), and whether products or sums were `formed` that a rewrite may avoid."""

    leaves: tuple[Operand, ...]
    degree: int
    terms: int
    formed: bool


def may_reorder(s: Any, *factors: Operand) -> bool:
    """Whether sums of products of these factors may be reordered. The simplifier notes the values
    that have to be moderate for it."""
    if all(x.dtype.kind in "iub" for x in factors):  # integers wrap
        return True
    if s.moderate is None:
        return False
    spans = [_span(s, x, DEPTH) for x in factors]
    leaves = _union(spans)
    degree = max(1, sum(span.degree for span in spans))
    single = any(x.dtype.itemsize == (8 if x.dtype.kind == "c" else 4) for x in leaves)
    terms = max(1, math.prod(span.terms for span in spans))  # 0 for empty arrays
    widest = (120 if single else 1000) - math.log2(terms)
    bound = next((e for e in (SINGLE if single else DOUBLE) if e * degree <= widest), None)
    if bound is None or any(x.dtype.kind not in "fc" for x in leaves):
        return False
    known = [x for x in leaves if isinstance(x, Literal)]
    if not all(2.0**-bound <= abs(x.value) <= 2.0**bound for x in known):  # type: ignore[arg-type]
        return False
    asked = [x for x in leaves if not isinstance(x, Literal)]
    if not all(may_ask(s, x) for x in asked):
        return False
    for x in asked:
        note(s, x, bound)
    return True


def may_ask(s: Any, x: Operand) -> bool:
    """Whether a guard may ask about a value. In a loop it may ask about invariants only."""
    return isinstance(x, Var) and (s.outside is None or x in s.outside)


def note(s: Any, x: Var, bound: int) -> None:
    """Note that the value `x` has to be moderate, with exponent `bound`."""
    s.moderate[x] = min(bound, s.moderate.get(x, bound))


def is_one(x: Operand) -> bool:
    """Whether `x` is the literal 1 or -1, so that multiplying by it changes the sign at most."""
    return isinstance(x, Literal) and not x.open and abs(x.value) == 1  # type: ignore[arg-type]


def guards(builder: Builder, moderate: Mapping[Var, int]) -> list[Guard]:
    """Guards that these values are moderate. The calls that they need are appended to the
    builder."""
    found = []
    for x, bound in moderate.items():
        parts = (
            [builder.call(part, [x])[0] for part in (real, imag)] if x.dtype.kind == "c" else [x]
        )
        for part in parts:
            (fits,) = builder.call(ew.moderate, [part, literal(2.0**bound, part.dtype)])
            if fits.shape:
                (fits,) = builder.call(All(tuple(range(len(fits.shape)))), [fits])
            found.append(Guard(fits, Literal(np.bool_(True)), RANGE))
    return found


def narrowest(tape: Tape) -> Tape:
    """The tape with the strictest guard alone for each value that is checked for being moderate."""
    made = {call.outs[0]: call for call in tape.calls}
    kept: dict[Any, tuple[Any, Guard]] = {}
    for guard in tape.guards:
        call = made.get(guard.operand)  # type: ignore[arg-type]
        if call is not None and isinstance(call.primitive, All):
            call = made.get(call.operands[0])  # type: ignore[arg-type]
        if call is not None and call.primitive is ew.moderate:
            x, bound = call.operands
            asked: tuple[Any, Guard] = bound.value, guard  # type: ignore[union-attr]
            kept[x] = min(asked, kept.get(x, asked), key=lambda found: found[0])
        else:
            kept[guard] = math.inf, guard
    return replace(tape, guards=tuple([guard for _, guard in kept.values()]))


def _span(s: Any, x: Operand, depth: int) -> Span:
    if is_one(x) or (isinstance(x, Literal) and x.value == 0):
        return Span((), 0, 1, False)
    if x in s.spans:
        found: Span = s.spans[x]
        return found
    found = s.spans[x] = _span_of(s, x, depth) or Span((x,), 1, 1, False)
    return found


def _span_of(s: Any, x: Operand, depth: int) -> Span | None:
    """The span of `x`, or None if it is a leaf."""
    call = s.made.get(x)
    if call is None or not depth:
        return None
    p, ys = call.primitive, call.operands
    if isinstance(p, ew.AsType) and ys[0].dtype.kind == "b":  # 0 or 1
        return Span((), 0, 1, False)

    def spans() -> list[Span]:
        return [_span(s, y, depth - 1) for y in ys]

    if isinstance(p, View):  # if it shows every element
        return _span(s, ys[0], depth - 1) if ys[0].aval.size <= x.aval.size else None
    if isinstance(p, Sum):
        (one,) = spans()
        return one._replace(terms=one.terms * (ys[0].aval.size // max(1, x.aval.size)), formed=True)
    if isinstance(p, Contraction):
        extents = dict(zip(p.terms.x, ys[0].shape, strict=True))
        return _product(spans(), math.prod(extents[k] for k in p.terms.depth), True)
    if isinstance(p, LUSolve):
        _, factors, _, rows = ys
        parts = [_span(s, y, depth - 1) for y in (factors, rows)]
        return _product(parts, rows.shape[-1], True)
    if p is ew.div and ys[1].shape == ():
        inverse = s.make(ew.div, literal(1.0, x.dtype), ys[1])
        parts = [_span(s, y, depth - 1) for y in (ys[0], inverse)]
        return _product(parts, 1, True) if parts[0].formed else None
    if p not in (ew.add, ew.sub, ew.neg, ew.mul):
        return None
    parts = spans()
    formed = any(part.formed for part in parts) or all(y.aval.size < x.aval.size for y in ys)
    if not formed and s.outside is None:  # values that a round computes can't be guarded
        return None
    if p is ew.mul:
        return _product(parts, 1, True)
    leaves = _union(parts)
    degree, terms = max(part.degree for part in parts), sum(part.terms for part in parts)
    return Span(leaves, degree, terms, True)


def _product(parts: list[Span], count: int, formed: bool) -> Span:
    leaves = _union(parts)
    terms = count * math.prod(part.terms for part in parts)
    return Span(leaves, sum(part.degree for part in parts), terms, formed)


def _union(parts: list[Span]) -> tuple[Operand, ...]:
    """The leaves of all parts, in a fixed order: the emitted code mustn't depend on hashes."""
    return tuple(dict.fromkeys([leaf for part in parts for leaf in part.leaves]))
