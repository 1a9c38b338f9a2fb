"""Rewrites of contractions, and of calls that become contractions.

    einsum(transpose(x), y)           -->  einsum(x, y), by other subscripts
    transpose(einsum(x, y))           -->  the same
    einsum(f(transpose(x), y), z)     -->  einsum(f(x, y), z), by other subscripts
    einsum(broadcast_to(x), y)        -->  of x and a sum of y, or broadcast later; n times, where
                                           both repeat themselves along a contracted axis of n
    sum(einsum(x, y))                 -->  einsum(sum(x), y): the sum of W @ x takes no product
    sum(c * einsum(x, y) + z)         -->  c * sum(einsum(x, y)) + sum(z): nor does sum(W @ x + b)
    sum(x[:, None, :] * y, axis=-1)   -->  einsum(x, y)
    einsum(u[:, None] * v, y)         -->  u * einsum(v, y): an outer product isn't formed
    einsum(c * x + z, y)              -->  c * einsum(x, y) + einsum(z, y): nor is a sum of these

They change the order of additions, within the rounding error of a sum of these magnitudes. Taking a
factor out of a sum may overflow or underflow in one order only, so it needs permission (`ranges`).
Sums of zeros are 0.0, never -0.0, and so are their replacements.

Names: `lx`, `ly`, `out` the letters of the axes of operands and result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from tapegrad.ir.tape import Call, Literal, Operand, Var
from tapegrad.optimize.rewrites.ranges import is_one, may_reorder
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Node, Writer
from tapegrad.primitives.contractions import LETTERS, Einsum, contract
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.views import BroadcastTo, ExpandDims, Squeeze, Transpose

DEEP = 8  # sums of fewer products stay loops, which fuse with their readers
MAX_SEARCH = 16  # the most calls that a search passes through


class Maker(Writer):
    """Makes calls in their simplest form, for functions that are written like rules."""

    def __init__(self, simplifier: Any) -> None:
        super().__init__(simplifier.builder)
        self.simplifier = simplifier

    def apply(self, primitive: Any, operands: Sequence[Any]) -> Any:
        plain = [x.operand if isinstance(x, Node) else self._literal(x) for x in operands]
        return Node(self, self.simplifier.make(primitive, *plain))


class Term(NamedTuple):
    """An operand and the letters of its axes."""

    x: Operand
    letters: str


def einsum(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """A contraction whose operand is a view, is broadcast, is an outer product or is a sum."""
    size = {
        k: n
        for x, term in zip(xs, p.terms, strict=False)
        for k, n in zip(term, x.shape, strict=True)
    }
    if 0 in size.values():  # an empty sum is 0, even if a factor taken out of it weren't finite
        return None
    terms = [bare(s, Term(x, letters)) for x, letters in zip(xs, p.terms, strict=False)]
    if [term.x for term in terms] != list(xs):
        left, right = terms
        times = _times(size, terms, p.terms.out)
        if not keeps_order(s, left, right, p.terms.out):
            return None
        return contracted(s, left, right, p.terms.out, shape, times)
    turned = [_turned(s, Term(x, letters)) for x, letters in zip(xs, p.terms, strict=False)]
    if any(turned):
        left, right = [a or Term(x, k) for a, x, k in zip(turned, xs, p.terms, strict=False)]
        return contracted(s, left, right, p.terms.out, shape)
    for k, (x, letters) in enumerate(zip(xs, p.terms, strict=False)):
        other = Term(xs[1 - k], p.terms[1 - k])
        if factors := _apart(s, Term(x, letters), other, p.terms.out):
            u, v = factors
            if not may_reorder(s, u.x, v.x, other.x):
                return None
            kept = "".join(c for c in p.terms.out if c in v.letters + other.letters)
            inner = contracted(s, v, other, kept, [size[c] for c in kept], from_zero=False)
            return contracted(s, u, Term(inner, kept), p.terms.out, shape)
    for k, (x, letters) in enumerate(zip(xs, p.terms, strict=False)):
        place = _Place(s, p, xs, k, Term(x, letters))
        if (found := by_addends(s, x, place.gains, place.filled, xs[1 - k])) is not None:
            return found
    return None


class _Place(NamedTuple):
    """One operand's position in a contraction, to be filled with a value that broadcasts to the
    operand."""

    s: Any
    p: Any
    xs: Sequence[Operand]
    k: int
    whole: Term

    def gains(self, y: Operand) -> bool:
        """Whether the contraction takes less work with `y` in this position."""
        full = Term(_full(self.s, y, self.whole.x), self.whole.letters)
        other = Term(self.xs[1 - self.k], self.p.terms[1 - self.k])
        fewer = len(bare(self.s, full).letters) < len(full.letters)
        return fewer or _apart(self.s, full, other, self.p.terms.out) is not None

    def filled(self, y: Operand) -> Operand:
        xs = [*self.xs]
        xs[self.k] = _full(self.s, y, self.whole.x)
        made: Operand = self.s.make(self.p, *xs)
        return made


def _apart(s: Any, x: Term, other: Term, out: str) -> tuple[Term, Term] | None:
    """Two factors (u, v) of term `x`, if it pays to take u out of the sum; otherwise None.

    u has axes of the result only. Either v has fewer axes than x, or v and `other` are invariant in
    the loop, so that the sum is too.
    """
    factors = factors_apart(s, x, out)
    if factors is None:
        return None
    same = s.outside or ()
    _, v = factors
    return factors if len(v.letters) < len(x.letters) or (v.x in same and other.x in same) else None


def by_addends(
    s: Any,
    x: Operand,
    gains: Callable[[Operand], bool],
    of: Callable[[Operand], Operand],
    *others: Operand,
) -> Operand | None:
    """The sum of `of(y)` over the addends y of `x`, if every one `gains`; otherwise None."""
    calls = made_of(x, partial(_linear, s, alone=False), lambda y: True)
    addends = [y for call in calls.values() for y in _addends(call) if y not in calls]
    left = [y for y in dict.fromkeys(addends) if not _is_zero(y)]
    if not calls or not all(map(gains, left)) or not may_reorder(s, x, *others):
        return None
    return _sum_of(s, x, calls, lambda y: y if _is_zero(y) else of(y))


def _is_zero(x: Operand) -> bool:
    return isinstance(x, Literal) and bool(x.value == 0)


def _full(s: Any, y: Operand, whole: Operand) -> Operand:
    return y if y.shape == whole.shape else s.make(BroadcastTo(whole.shape), y)


def transposed(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """transpose(einsum(x, y)), if nothing else reads the product."""
    call = s.made_by(xs[0], Einsum)
    if call is None or not s.alone(xs[0]):
        return None
    terms = call.primitive.terms
    left, right = map(Term, call.operands, terms[:2])
    return contracted(s, left, right, "".join(terms.out[a] for a in p.axes), shape)


def summed(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """sum(einsum(x, y)), also among addends; and sum(x * y) over axes that both factors have, if
    neither has all axes of the product."""
    (x,) = xs
    if x.dtype.kind not in "fc" or p.aval(x.aval).dtype != x.dtype or 0 in x.shape:
        return None
    if call := s.made_by(x, Einsum):
        if not _goes_away(s, x, p.axes):
            return None
        terms = call.primitive.terms
        out = "".join(k for a, k in enumerate(terms.out) if a not in p.axes)
        x_term, y_term = map(Term, call.operands, terms[:2])
        if not keeps_order(s, x_term, y_term, out):
            return None
        return contracted(s, x_term, y_term, out, shape)
    if (calls := _sums_of_products(s, x, p.axes)) and may_reorder(s, x):
        return _from_zero(s, Maker(s).node(_sum_by_sum(s, p, x, calls))).operand
    letters = LETTERS[: len(x.shape)]
    factors = _outer(s, Term(x, letters)) if s.alone(x) else None
    if factors is None:
        return None
    left, right = (set(factor.letters) for factor in factors)
    out = "".join(k for a, k in enumerate(letters) if a not in p.axes)
    depth = math.prod(x.shape[a] for a in p.axes if letters[a] in left & right)
    if depth < DEEP or not (left - right and right - left):
        return None
    if not keeps_order(s, *factors, out):
        return None
    times = _times(dict(zip(letters, x.shape, strict=True)), factors, out)
    return contracted(s, *factors, out, shape, times)


# ----


def keeps_order(s: Any, x: Term, y: Term, out: str) -> bool:
    """Whether contracting two terms keeps the order of the sum of products, or may change it. The
    order changes if a term is summed up alone first."""
    alone = set(x.letters) - set(y.letters + out), set(y.letters) - set(x.letters + out)
    unlike = [other.x for letters, other in zip(alone, (y, x), strict=True) if letters]
    return all(map(is_one, unlike)) or may_reorder(s, x.x, y.x)


def _from_zero(s: Any, x: Any) -> Any:
    """The value `x` as a sum returns it: -0.0 becomes 0.0."""
    if x.dtype.kind not in "fc" or _is_from_zero(s, x.operand):
        return x
    return ew.add(x, np.zeros((), x.dtype)[()])


def _is_from_zero(s: Any, x: Operand) -> bool:
    """Whether `x` is known not to be -0.0: a sum, or the result of adding to or subtracting from
    one."""
    while call := s.made_by(x, ew.sub):
        x = call.operands[0]
    if call := s.made_by(x, ew.add):
        return any(_is_from_zero(s, y) for y in call.operands)
    return s.made_by(x, (Einsum, Sum)) is not None


def _times(size: Mapping[str, int], terms: Sequence[Term], out: str) -> int:
    """How often each product is counted: the product of the extents of the axes that no term has
    any more."""
    kept = {*out}.union(*[term.letters for term in terms])
    return math.prod(n for k, n in size.items() if k not in kept)


def _goes_away(s: Any, x: Operand, axes: Sequence[int]) -> bool:
    """Whether a contraction needn't be formed if its sum is taken of its operands, or that is cheap
    anyway."""
    call = s.made_by(x, Einsum)
    terms = call.primitive.terms
    free = all((terms.out[a] in terms.x) != (terms.out[a] in terms.y) for a in axes)
    cheap = sum(math.prod(y.shape) for y in call.operands) <= math.prod(x.shape)
    return s.alone(x) or (free and cheap)


def _sums_of_products(s: Any, x: Operand, axes: Sequence[int]) -> dict[Operand, Call]:
    """The calls that add up `x` from products, at least one of which needn't be formed for the
    sum."""

    def gains(y: Operand) -> bool:
        call = s.made_by(y, Einsum)
        if call is None or not _goes_away(s, y, axes):
            return False
        terms = call.primitive.terms
        return any((terms.out[a] in terms.x) != (terms.out[a] in terms.y) for a in axes)

    return made_of(x, partial(_linear, s), gains)


def made_of(
    x: Operand, through: Callable[[Operand], Call | None], gains: Callable[[Operand], bool]
) -> dict[Operand, Call]:
    """The calls that compute `x` elementwise from its sources: values for which `through` gives no
    call.

    Empty if no source `gains`, or if there are too many calls.
    """
    calls: dict[Operand, Call] = {}
    gained, left = False, [x]
    while left and len(calls) < MAX_SEARCH:
        y = left.pop()
        if call := through(y):
            calls[y] = call
            left += [z for z in call.operands if z.shape == x.shape and z not in calls]
        else:
            gained = gained or gains(y)
    return calls if gained and not left else {}


def _linear(s: Any, x: Operand, alone: bool = True) -> Call | None:
    """The call that defines `x`, if sum(call) is the call of sums: an addition, subtraction,
    negation or scaling. If `alone`, nothing else may read `x`."""
    if alone and not s.alone(x):
        return None
    for kind in (ew.add, ew.sub, ew.neg):
        if call := s.made_by(x, kind):
            return call if all(y.dtype == x.dtype for y in call.operands) else None
    for kind, places in ((ew.mul, (0, 1)), (ew.div, (1,))):
        if (call := s.made_by(x, kind)) and any(call.operands[k].shape == () for k in places):
            return call if all(y.dtype == x.dtype for y in call.operands) else None
    return None


def _sum_by_sum(s: Any, p: Any, x: Operand, calls: Mapping[Operand, Call]) -> Operand:
    """The sum of `x` as a sum of sums, one for each addend of which `calls` make it."""
    letters = LETTERS[: len(x.shape)]
    size = dict(zip(letters, x.shape, strict=True))
    out = "".join(k for a, k in enumerate(letters) if a not in p.axes)

    def summed(y: Operand) -> Operand:
        own = bare(s, Term(_full(s, y, x), letters))
        axes = tuple(a for a, k in enumerate(own.letters) if k not in out)
        total: Any = Maker(s).node(s.make(Sum(axes), own.x) if axes else own.x)
        kept = [k for k in own.letters if k in out]
        return repeated(total, kept, out, [size[k] for k in out], _times(size, [own], out))

    return _sum_of(s, x, calls, summed)


def _sum_of(
    s: Any, x: Operand, calls: Mapping[Operand, Call], of: Callable[[Operand], Operand]
) -> Operand:
    """`x` computed again by `calls`, with `of(y)` in place of each addend y."""
    if call := calls.get(x):
        parts = {y: _sum_of(s, y, calls, of) for y in _addends(call)}
        made: Operand = s.make(call.primitive, *[parts.get(y, y) for y in call.operands])
        return made
    return of(x)


def _addends(call: Call) -> list[Operand]:
    """The operands of a linear call, without a scalar factor."""
    scales = call.primitive in (ew.mul, ew.div)
    return [y for y in call.operands if not (scales and y.shape == ())]


def contracted(
    s: Any,
    x: Term,
    y: Term,
    out: str,
    shape: Sequence[int],
    times: int = 1,
    *,
    from_zero: bool = True,
) -> Operand:
    """The contraction of two terms.

    A term may lack letters of the result. Letters that a term has alone, and the result lacks, are
    summed up first. Each product is counted `times` times. The sum begins with 0.0 if `from_zero`;
    otherwise the value that it is added to does.
    """
    writer = Maker(s)
    terms = []
    for (operand, letters), others in ((x, y.letters + out), (y, x.letters + out)):
        node: Any = writer.node(operand)
        axes = tuple(a for a, k in enumerate(letters) if k not in others)
        terms.append((Sum(axes)(node) if axes else node, [k for k in letters if k in others]))
    (left, lx), (right, ly) = terms
    kept = [k for k in out if k in lx or k in ly]
    result = contract(left, right, lx, ly, kept) if lx or ly else ew.mul(left, right)
    if times > 1:
        result = ew.mul(result, np.array(times).astype(result.dtype)[()])  # as integers wrap
    result = _from_zero(s, result) if from_zero else result
    return repeated(result, kept, out, shape)


def repeated(
    x: Any, letters: Sequence[str], out: str, shape: Sequence[int], times: int = 1
) -> Operand:
    """`times * x`, transposed to the order of the result's axes and broadcast along the axes that
    `x` lacks."""
    kept = [k for k in out if k in letters]
    order = tuple(letters.index(k) for k in kept)
    if order != tuple(range(len(order))):
        x = Transpose(order)(x)
    if times > 1:
        x = ew.mul(x, np.array(times).astype(x.dtype)[()])  # as integers wrap
    missing = tuple(a for a, k in enumerate(out) if k not in kept)
    if missing:
        x = BroadcastTo(tuple(shape))(ExpandDims(missing)(x) if kept else x)
    found: Operand = x.operand
    return found


def bare(s: Any, term: Term) -> Term:
    """The term without transposes, and without broadcast axes."""
    x, letters = term
    while True:
        if call := s.made_by(x, Transpose):
            x = call.operands[0]
            order = call.primitive.axes
            letters = "".join(letters[order.index(a)] for a in range(len(order)))
        elif call := s.made_by(x, BroadcastTo):
            (base,) = call.operands
            letters = letters[len(x.shape) - len(base.shape) :]
            unit = tuple(
                a for a, (n, m) in enumerate(zip(base.shape, _last(x, base), strict=True)) if n != m
            )
            x = s.make(Squeeze(unit), base) if unit else base
            letters = "".join(k for a, k in enumerate(letters) if a not in unit)
        else:
            return Term(x, letters)


def _turned(s: Any, term: Term) -> Term | None:
    """The term in memory order, if it is computed elementwise from operands that are all transposed
    in the same way, and from operands with fewer axes; otherwise None."""
    shape, left = term.x.shape, [term.x]
    calls: dict[Operand, Call] = {}
    axes: set[tuple[int, ...]] = set()
    while left:
        x = left.pop()
        if call := s.made_by(x, Transpose):
            axes.add(call.primitive.axes)
            continue
        made = s.made.get(x) if isinstance(x, Var) and s.alone(x) else None
        if (
            made is None
            or not made.primitive.pointwise
            or len(calls) == MAX_SEARCH
            or len(axes) > 1
        ):
            return None
        calls[x] = made
        left += [y for y in made.operands if y.shape == shape and y not in calls]
    if len(axes) != 1 or not calls:
        return None
    (order,) = axes
    lying = "".join(term.letters[order.index(a)] for a in range(len(order)))

    def made_lying(x: Operand) -> Operand:
        if call := calls.get(x):
            return s.make(call.primitive, *map(made_lying, call.operands))
        return s.made_by(x, Transpose).operands[0] if x.shape == shape else fewer(x)

    def fewer(x: Operand) -> Operand:
        """An operand with fewer axes, which is broadcast."""
        letters = term.letters[len(shape) - len(x.shape) :]
        unit = tuple(a for a, n in enumerate(x.shape) if n != shape[a - len(x.shape)])
        letters = "".join(k for a, k in enumerate(letters) if a not in unit)
        kept = [k for k in lying if k in letters]
        own: Any = s.make(Squeeze(unit), x) if unit else x
        axes = tuple(letters.index(k) for k in kept)
        if axes != tuple(range(len(axes))):
            own = s.make(Transpose(axes), own)
        after = lying[lying.index(kept[0]) :] if kept else ""
        new = tuple(a for a, k in enumerate(after) if k not in kept)
        return s.make(ExpandDims(new), own) if new else own

    return Term(made_lying(term.x), lying)


def _last(x: Operand, base: Operand) -> tuple[int, ...]:
    return x.shape[len(x.shape) - len(base.shape) :]


def _outer(s: Any, term: Term) -> tuple[Term, Term] | None:
    """The two factors of a term, if neither has all of its axes; otherwise None."""
    factors = _factors(s, term)
    if len(factors) != 2 or any(len(x.letters) == len(term.letters) for x in factors):
        return None
    return factors[0], factors[1]


def factors_apart(s: Any, term: Term, within: str) -> tuple[Term, Term] | None:
    """The term as a product of two: the factors that have axes of `within` only, and the others."""
    factors = _factors(s, term)
    inner = [x for x in factors if set(x.letters) <= set(within)]
    rest = [x for x in factors if x not in inner]
    if not inner or not rest or len(factors) > MAX_SEARCH:
        return None
    size = dict(zip(term.letters, term.x.shape, strict=True))

    def product(one: Term, other: Term) -> Term:
        letters = "".join(k for k in term.letters if k in one.letters + other.letters)
        shape = [size[k] for k in letters]
        return Term(contracted(s, one, other, letters, shape, from_zero=False), letters)

    return reduce(product, inner), reduce(product, rest)


def _factors(s: Any, term: Term) -> list[Term]:
    """The factors of a term, each without broadcast axes."""
    size = dict(zip(term.letters, term.x.shape, strict=True))
    found: list[Term] = []
    left = [term]
    while left:
        x, letters = left.pop(0)
        unit = tuple(a for a, k in enumerate(letters) if x.shape[a] != size[k])
        call = s.made_by(x, ew.mul) if not unit and len(found) < MAX_SEARCH else None
        if call:
            left = [
                *[Term(y, letters[len(letters) - len(y.shape) :]) for y in call.operands],
                *left,
            ]
            continue
        kept = "".join(k for a, k in enumerate(letters) if a not in unit)
        found.append(bare(s, Term(s.make(Squeeze(unit), x) if unit else x, kept)))
    return found


REWRITES: dict[type, Any] = {Einsum: einsum, Transpose: transposed, Sum: summed}
