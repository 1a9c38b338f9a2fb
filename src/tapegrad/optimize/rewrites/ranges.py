"""Whether sums of products may be taken in another order, without a product that overflows or
vanishes in one order alone.

    sum(A @ B @ x)  -->  sum(A) @ (B @ x), if the elements of A, B and x are moderate

A number is moderate if it is 0, or its magnitude is between 2**-e and 2**e. Products of d of them
are normal numbers then, and so are sums of those but for what cancels, in whatever order: another
order changes roundings alone. What isn't moderate isn't known before a call. So a tape on which
such an order was changed gets guards, and where one doesn't hold NumPy's order is taken.

The numbers in question are the *leaves*: what products, sums and views are made of. Those needn't
be formed after the rewrite, and so aren't asked about.
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

DEPTH = 32  # how many calls after each other are looked through
# For float64 there are few bounds, so that one look at an array serves most rewrites.
DOUBLE = (240, 120)
SINGLE = range(60, 11, -1)


class Span(NamedTuple):
    """A value as a sum of products: of what, of how many factors, and of how many products at most.
    `formed`: a product or a sum was formed for it, that a rewrite may do without."""

    leaves: tuple[Operand, ...]
    degree: int
    terms: int
    formed: bool


def may_reorder(s: Any, *factors: Operand) -> bool:
    """Whether sums of products of these may be added up in another order. The simplifier notes
    which numbers have to be moderate for that."""
    if all(x.dtype.kind in "iub" for x in factors):  # integers wrap
        return True
    if s.moderate is None:
        return False
    spans = [_span(s, x, DEPTH) for x in factors]
    leaves = _union(spans)
    degree = max(1, sum(span.degree for span in spans))
    single = any(x.dtype.itemsize == (8 if x.dtype.kind == "c" else 4) for x in leaves)
    terms = max(1, math.prod(span.terms for span in spans))  # none of what is empty
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
    """Whether a guard may ask about a value: in a loop only about what stands before it."""
    return isinstance(x, Var) and (s.outside is None or x in s.outside)


def note(s: Any, x: Var, bound: int) -> None:
    """Note that a number has to be moderate."""
    s.moderate[x] = min(bound, s.moderate.get(x, bound))


def is_one(x: Operand) -> bool:
    """Whether products with `x` are the other factor, but for its sign."""
    return isinstance(x, Literal) and abs(x.value) == 1  # type: ignore[arg-type]


def guards(builder: Builder, moderate: Mapping[Var, int]) -> list[Guard]:
    """Guards that these are moderate, and the calls that ask."""
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
    """Of guards that ask about the same numbers the one that lets the fewest pass."""
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
    """What `x` is made of; None if it is a leaf."""
    call = s.made.get(x)
    if call is None or not depth:
        return None
    p, ys = call.primitive, call.operands
    if isinstance(p, ew.AsType) and ys[0].dtype.kind == "b":  # 0 or 1
        return Span((), 0, 1, False)

    def spans() -> list[Span]:
        return [_span(s, y, depth - 1) for y in ys]

    if isinstance(p, View):  # of all that it shows
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
    if not formed and s.outside is None:  # of what a round computes nothing can be asked
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
    """The leaves of all, in their order: what is emitted may not depend on hashes."""
    return tuple(dict.fromkeys([leaf for part in parts for leaf in part.leaves]))
