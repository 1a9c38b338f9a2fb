"""Sums of products of three or more operands.

NumPy multiplies all operands from left to right and adds up whole products:

    out[i, l] = sum over j, k of (x[i, j] * y[j, k]) * z[k, l]

A sequence of contractions of two operands is less work. It adds up parts of the products:

    out[i, l] = sum over k of (sum over j of x[i, j] * y[j, k]) * z[k, l]

A part may overflow or underflow where no whole product does. So the second way is taken only if
that is impossible. Let there be `d` operands, and sums of `n` products. If no magnitude is above
`2^e`, with `n 2^(de)` a finite number, no part is infinite. If no magnitude but 0 is below `2^-e`,
no part loses a bit by underflow. If some are, the loss is less than the last bit of each result
above `n 2^(de)` times the smallest normal number.

Names: a *term* is an operand and the labels of its axes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives import kinked
from tapegrad.primitives.base import parametric, total
from tapegrad.primitives.complexes import imag, real
from tapegrad.primitives.contractions import LETTERS, contract, ordered, spread, times
from tapegrad.primitives.kinds import Composite
from tapegrad.primitives.reductions import All, Any_, Sum
from tapegrad.primitives.views import BroadcastTo, ExpandDims

CHEAP_PRODUCTS = 20_000  # products that take less time to add up than the operands to check
BOUNDS = 330, 240, 120, *range(60, 0, -1)  # few, so one check often serves twice


class Term(NamedTuple):
    """An operand with the labels of its axes."""

    x: Any
    labels: Sequence[str]


@parametric
class Products(Composite):
    """The einsum of three or more operands. Each operand has each of its letters once, and nothing
    broadcasts."""

    subscripts: str

    name = "products"
    of_complex = True
    ordered = True

    @property
    def terms(self) -> tuple[list[str], str]:
        """The letters of the operands, and those of the result."""
        left, _, out = self.subscripts.partition("->")
        return left.split(","), out

    def _extents(self, xs: Sequence[Any]) -> dict[str, int]:
        extents: dict[str, int] = {}
        for x, letters in zip(xs, self.terms[0], strict=True):
            for letter, n in zip(letters, x.shape, strict=True):
                if extents.setdefault(letter, n) != n:
                    raise ValueError(f"products: the extents of {letter!r} differ in {self}")
        return extents

    def aval(self, *xs: Aval) -> Aval:
        extents = self._extents(xs)
        return xs[0].with_shape(tuple([extents[k] for k in self.terms[1]]))

    def evaluate(self, *xs: Any) -> Any:
        if math.prod(self._extents(xs).values()) > CHEAP_PRODUCTS:
            arrays = list(map(np.asarray, xs))
            with np.errstate(all="ignore"):
                found = self.expand(*arrays)
                if self.fits(found, *arrays):
                    return found
        return np.einsum(self.subscripts, *xs)

    def expand(self, *xs: Any) -> Any:
        """The sum of products by contractions of two operands, in the order of least work."""
        path = _short(self.subscripts, tuple([x.shape for x in xs]))
        letters, out = self.terms
        found, summed = stepwise(list(map(Term, xs, letters)), path, out)
        return found if summed else from_zero(found)

    def fits(self, found: Any, *xs: Any) -> Any:
        """Whether `found`, the result of `expand`, is right up to its rounding."""
        limits = np.finfo(found.dtype)
        count = math.prod(n for k, n in self._extents(xs).items() if k not in self.terms[1])
        if found.dtype.kind == "c":
            count *= 2 ** len(xs)  # the products of real and imaginary parts
        spare = (float(limits.maxexp) - 24 - math.log2(count)) / len(xs)
        bound = next((e for e in BOUNDS if e <= spare), 0)
        number = limits.dtype.type
        parts = [part for x in xs for part in _magnitudes(x)]
        small = [ew.less_equal(part, number(2.0**bound)) for part in parts]
        normal = [
            ew.logical_or(ew.equal(part, number(0)), ew.greater_equal(part, number(2.0**-bound)))
            for part in parts
        ]
        least = number(float(limits.tiny) * count * 2.0 ** (bound * len(xs)))
        clear = [ew.greater_equal(part, least) for part in _magnitudes(found)]
        return ew.logical_and(_all(small), ew.logical_or(_all(normal), _all(clear)))

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        letters, out = self.terms
        row = next(k for k in LETTERS if k not in self.subscripts)
        given = ",".join([row * m + each for each, m in zip(letters, mapped, strict=True)])
        return Products(f"{given}->{row}{out}")(*xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        letters, to = self.terms
        terms = list(map(Term, xs, letters))
        found = []
        for k, x in enumerate(xs):
            others = [Term(ct, to), *terms[:k], *terms[k + 1 :]]
            missing = [not any(letter in labels for _, labels in others) for letter in letters[k]]
            kept = [letter for letter, lacks in zip(letters[k], missing, strict=True) if not lacks]
            part, _ = products(others, kept)
            found.append(repeated(part, missing, x.shape))
        return found

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return total(
            None if t is None else self(*xs[:k], t, *xs[k + 1 :]) for k, t in enumerate(ts)
        )

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = np.einsum({self.subscripts!r}, {', '.join(xs)})"]


def _magnitudes(x: Any) -> list[Any]:
    """The absolute values of the elements; for complex ones those of their parts."""
    return list(map(kinked.absolute, [real(x), imag(x)] if x.dtype.kind == "c" else [x]))


def _all(each: Sequence[Any]) -> Any:
    return reduce(ew.logical_and, [All(tuple(range(x.ndim)))(x) if x.ndim else x for x in each])


# ---- building sums of products


def products(terms: Sequence[Term], out: Sequence[str]) -> tuple[Any, bool]:
    """The sum of whole products, and whether the sum started with 0.0 (it must if anything is
    summed)."""
    every = {k for _, labels in terms for k in labels}
    summed = not every <= set(out)
    if terms[0].x.dtype.kind in "iub":  # they wrap around, so the order doesn't matter
        return _by_least_work(terms, out)
    if len(terms) == 2 or not _grows(terms, out):
        return in_order(list(terms), out), summed
    letters: dict[str, str] = {}
    for _, labels in terms:
        for k in labels:
            letters.setdefault(k, LETTERS[len(letters)])
    given = ",".join(["".join(map(letters.__getitem__, labels)) for _, labels in terms])
    to = "".join(map(letters.__getitem__, out))
    return Products(f"{given}->{to}")(*[x for x, _ in terms]), True


def by_least_work(terms: Sequence[Term], out: Sequence[str]) -> Any:
    """The sum of products in the order of least work. Parts may overflow or underflow."""
    return _by_least_work(terms, out)[0]


def _by_least_work(terms: Sequence[Term], out: Sequence[str]) -> tuple[Any, bool]:
    text = ",".join(["".join(labels) for _, labels in terms]) + "->" + "".join(out)
    return stepwise(list(terms), _short(text, tuple([x.shape for x, _ in terms])), out)


def _grows(terms: Sequence[Term], out: Sequence[str]) -> bool:
    """Whether the products of all operands but the last, or the operand of a last sum, are larger
    than the result and every operand."""
    extents = {k: n for x, labels in terms for k, n in zip(labels, x.shape, strict=True)}
    *first, (_, last) = terms
    most = max(math.prod(extents[k] for k in labels) for labels in (out, *[k for _, k in terms]))
    ahead = {k for _, labels in first for k in labels}
    left = {*out} | (ahead ^ set(last))
    return max(math.prod(extents[k] for k in labels) for labels in (ahead, left)) > most


def in_order(terms: list[Term], out: Sequence[str]) -> Any:
    """The sum of products, multiplied from left to right, then added up."""
    every = {k for _, labels in terms for k in labels}
    while len(terms) > 2:
        terms[:2] = [join(terms[0], terms[1], every)]
    first, last = terms
    kept = {*out} | (set(first.labels) ^ set(last.labels))
    x, labels = summed_out(join(first, last, kept), set(out))
    return ordered(x, labels, out)


@lru_cache(maxsize=1024)
def _short(subscripts: str, shapes: tuple[tuple[int, ...], ...]) -> Sequence[Sequence[int]]:
    """The contraction path of least work: for each step the positions of its terms."""
    import opt_einsum

    path, _ = opt_einsum.contract_path(subscripts, *shapes, shapes=True)
    return tuple(path)


def stepwise(
    terms: list[Term], path: Sequence[Sequence[int]], out: Sequence[str], *, whole: int = 0
) -> tuple[Any, bool]:
    """The sum of products by the steps of a path, and whether the last sum started with 0.0.

    A step names positions of terms. Its result is appended to the remaining terms. A step of
    `whole` or more terms adds up whole products, if `whole` isn't 0.
    """
    summed = False
    for step in path:
        chosen = [terms[k] for k in step]
        terms = [term for k, term in enumerate(terms) if k not in step]
        needed = set(out).union(*[labels for _, labels in terms])
        if whole and len(chosen) >= max(2, whole):
            own = [*dict.fromkeys([k for _, labels in chosen for k in labels if k in needed])]
            if not terms:  # the last step
                own.sort(key=out.index)
            x, summed = products(chosen, own)
            chosen = [Term(x, own)]
        while len(chosen) > 1:
            later = needed.union(*[labels for _, labels in chosen[2:]])
            summed = bool((set(chosen[0].labels) & set(chosen[1].labels)) - later)
            chosen[:2] = [join(chosen[0], chosen[1], later)]
        terms.append(chosen[0])
    ((x, labels),) = [summed_out(term, set(out)) for term in terms]
    return ordered(x, labels, out), summed


def from_zero(x: Any) -> Any:
    """Products as sums of one product each, which start with 0.0."""
    return ew.add(x, np.zeros((), x.dtype)[()]) if x.dtype.kind in "fc" else x


def repeated(x: Any, missing: Sequence[bool], shape: tuple[int, ...]) -> Any:
    """`x` repeated along the axes of `shape` that are `missing`."""
    axes = tuple(a for a, lacks in enumerate(missing) if lacks)
    return BroadcastTo(shape)(ExpandDims(axes)(x) if x.ndim else x) if axes else x


def join(left: Term, right: Term, needed: Collection[str]) -> Term:
    """The contraction of two terms that keeps the `needed` labels: shared ones first."""
    x, lx = summed_out(left, {*needed, *right.labels})
    y, ly = summed_out(right, {*needed, *lx})
    labels = [k for k in lx if k in ly and k in needed]
    labels += [k for k in lx if k not in ly] + [k for k in ly if k not in lx]
    return Term(contract(x, y, lx, ly, labels), labels)


def summed_out(term: Term, needed: Collection[str]) -> Term:
    """A term summed over the labels that aren't needed."""
    x, labels = term
    axes = tuple(a for a, k in enumerate(labels) if k not in needed)
    over = Any_ if x.dtype.kind == "b" else Sum
    return Term(over(axes)(x) if axes else x, [k for k in labels if k in needed])


def empty_product(terms: Sequence[Term]) -> Term:
    """The product of all terms, one of which is empty. That one comes first, so that each product
    is empty. The sum of an empty term would be 0, and multiplied by an infinite one, or in a
    derivative, NaN."""
    labels = list(dict.fromkeys(k for _, mine in terms for k in mine))
    each = [spread(x, mine, labels) for x, mine in sorted(terms, key=lambda term: term.x.size)]
    return Term(reduce(times(each[0].dtype), each), labels)
