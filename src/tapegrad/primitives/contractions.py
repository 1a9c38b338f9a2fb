"""Contractions: sums of products of two arrays, over axes that they share.

There is one primitive, and its parameter is the subscripts of an einsum of two operands:

    ij,jk->ik       the product of matrices
    hij,hjk->hik    that of each pair of a batch
    i,i->           of vectors
    nijc,cd->nijd   of each pixel's channels with one matrix

A letter in both operands and in the result is a *batch* axis, one in both operands alone is
*contracted*, and one in a single operand is *free*; a free axis is in the result. So each letter
stands in two or in three of the three terms, and exchanging them is what derivatives do:

    d/dx  x, y -> out   is   ct, y -> x         d/dy   is   x, ct -> y
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import broadcast_shapes, parametric
from tapegrad.primitives.complexes import conjugated
from tapegrad.primitives.kinds import Bilinear, Contraction
from tapegrad.primitives.reductions import LONG_SUM
from tapegrad.primitives.views import ExpandDims, Squeeze, Transpose

MATMUL = np.matmul  # as it is outside of a trace
LETTERS = string.ascii_lowercase[8:] + string.ascii_lowercase[:8] + string.ascii_uppercase


class Terms(NamedTuple):
    """The subscripts of both operands and of the result."""

    x: str
    y: str
    out: str

    @property
    def batch(self) -> str:
        """The letters of both operands that are kept, in the result's order."""
        return "".join(k for k in self.out if k in self.x and k in self.y)

    @property
    def rows(self) -> str:
        """The letters that x has alone, in the result's order."""
        return "".join(k for k in self.out if k not in self.y)

    @property
    def columns(self) -> str:
        """The letters that y has alone, in the result's order."""
        return "".join(k for k in self.out if k not in self.x)

    @property
    def depth(self) -> str:
        """The letters that are summed over, in the order of x."""
        return "".join(k for k in self.x if k not in self.out)


@lru_cache(maxsize=4096)
def terms_of(subscripts: str) -> Terms:
    """The terms of subscripts in this form; a ValueError if they are of another."""
    left, arrow, out = subscripts.partition("->")
    x, comma, y = left.partition(",")
    terms = Terms(x, y, out)
    each = [set(term) for term in terms]
    twice = any(len(letters) != len(term) for letters, term in zip(each, terms, strict=True))
    shared = all(sum(k in letters for letters in each) > 1 for k in set().union(*each))
    if not (arrow and comma) or twice or not shared:
        raise ValueError(f"einsum: {subscripts!r} isn't a contraction of two operands")
    return terms


@parametric
class Einsum(Bilinear, Contraction):
    """`out[...] = sum over the contracted axes of x[...] * y[...]`, as the subscripts say."""

    subscripts: str

    name = "einsum"

    @property
    def terms(self) -> Terms:
        return terms_of(self.subscripts)

    def aval(self, *xs: Aval) -> Aval:
        extents: dict[str, int] = {}
        terms = self.terms
        for x, term in zip(xs, terms, strict=False):
            if len(x.shape) != len(term):
                raise ValueError(f"einsum: {term!r} doesn't fit {x}, in {self.subscripts!r}")
            for letter, n in zip(term, x.shape, strict=True):
                if extents.setdefault(letter, n) != n:
                    raise ValueError(
                        f"einsum: {letter!r} has the extents {extents[letter]} and {n}, in "
                        f"{self.subscripts!r} of {xs[0]} and {xs[1]}"
                    )
        return xs[0].with_shape(tuple([extents[k] for k in terms.out]))

    def evaluate(self, *xs: Any) -> Any:
        return _recipe(self.subscripts)(*xs)

    def for_types(self, *avals: Aval) -> Any:
        recipe = _recipe(self.subscripts)
        if recipe is _dot:
            return _dot if _in_pairs(avals[0]) else MATMUL
        return recipe.arranged(*avals) if isinstance(recipe, _Arranging) else recipe

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        x, y, out = self.terms
        row = next(k for k in LETTERS if k not in self.subscripts)
        x, y = (row + term if m else term for term, m in zip((x, y), mapped, strict=True))
        return Einsum(f"{x},{y}->{row}{out}")(*xs)

    @property
    def is_matmul(self) -> bool:
        """Whether NumPy's matmul of the same operands is this, element by element in its memory."""
        return _recipe(self.subscripts) is MATMUL

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        product = _matrix_text(self.terms, xs)
        if product is None:
            product = f"np.einsum({self.subscripts!r}, {', '.join(xs)}, optimize=True)"
        return [f"{outs[0]} = {product}"]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        (x, y), (left, right, to) = xs, self.terms
        return contract(ct, y, to, right, left), contract(x, ct, left, to, right)


# ---- making them


def contract(x: Any, y: Any, left: Sequence[Any], right: Sequence[Any], out: Sequence[Any]) -> Any:
    """The contraction of axes with these labels; where nothing is summed, a product.

    The first free axis of the result is made one of the first operand, and letters are given in
    order, so that one contraction has one text.
    """
    first = next((k for k in out if k not in left or k not in right), None)
    if first is not None and first not in left:
        x, y, left, right = y, x, right, left
    if all(k in out for k in left) and all(k in out for k in right):
        return times(x.dtype)(spread(x, left, out), spread(y, right, out))
    return Einsum(named(left, right, out))(x, y)


def times(dtype: np.dtype) -> Any:
    """What multiplies; of truth values, whether both are true, as their sum is whether any is."""
    return ew.logical_and if dtype.kind == "b" else ew.mul


def named(left: Sequence[Any], right: Sequence[Any], out: Sequence[Any]) -> str:
    """The subscripts, with letters in the order in which labels occur."""
    letters: dict[Any, str] = {}
    for k in (*left, *right):
        letters.setdefault(k, LETTERS[len(letters)])
    x, y, to = ("".join(letters[k] for k in labels) for labels in (left, right, out))
    return f"{x},{y}->{to}"


def spread(x: Any, labels: Sequence[Any], out: Sequence[Any]) -> Any:
    """A view whose axes are in the order of `out`, with axes of extent 1 for those it lacks; none
    of these in front, where broadcasting adds them."""
    kept = [k for k in out if k in labels]
    x = ordered(x, labels, kept)
    first = out.index(kept[0]) if kept else len(out)
    missing = tuple(a for a, k in enumerate(out[first:]) if k not in labels)
    return ExpandDims(missing)(x) if missing else x


def ordered(x: Any, labels: Sequence[Any], wanted: Sequence[Any]) -> Any:
    """`x` with its axes in another order."""
    order = tuple([list(labels).index(k) for k in wanted])
    return x if order == tuple(range(len(order))) else Transpose(order)(x)


def matmul(x: Any, y: Any) -> Any:
    """The product of the matrices in the last two axes of x and y, of vectors where an operand has
    one axis; the axes before them broadcast. A ValueError if extents don't fit."""
    labels_x, labels_y = _matmul_labels(x.ndim, "ik"), _matmul_labels(y.ndim, "kj")
    if x.shape[labels_x.index("k")] != y.shape[labels_y.index("k")]:
        raise ValueError(f"matmul: inner dimensions differ: {x.aval} @ {y.aval}")
    ahead = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    extents = dict(zip(range(-len(ahead), 0), ahead, strict=True))
    x, labels_x = _unstretched(x, labels_x, extents)
    y, labels_y = _unstretched(y, labels_y, extents)
    out = [*extents, *(k for k in "ij" if k in labels_x or k in labels_y)]
    return contract(x, y, labels_x, labels_y, out)


def _matmul_labels(ndim: int, last: str) -> list[Any]:
    """Labels of axes: negative numbers for those of a batch, as they are counted from its end."""
    return ["k"] if ndim == 1 else [*range(2 - ndim, 0), *last]


def _unstretched(x: Any, labels: Sequence[Any], extents: Any) -> tuple[Any, list[Any]]:
    """Without the axes of extent 1 that broadcast to another extent."""
    unit = tuple([a for a, k in enumerate(labels) if extents.get(k, x.shape[a]) != x.shape[a]])
    kept = [k for a, k in enumerate(labels) if a not in unit]
    return (Squeeze(unit)(x) if unit else x), kept


def adjoint(x: Any) -> Any:
    """The conjugate transpose of the last two axes; of real matrices the transpose."""
    return conjugated(swapped(x))


def swapped(x: Any) -> Any:
    """The transpose of the last two axes."""
    *batch, rows, columns = range(x.ndim)
    return Transpose((*batch, columns, rows))(x)


# ---- NumPy's answer


@lru_cache(maxsize=4096)
def _recipe(subscripts: str) -> Any:
    """What evaluates a contraction: matmul itself, or matmul of what is put in order for it."""
    terms = terms_of(subscripts)
    batch, rows, columns, depth = terms.batch, terms.rows, terms.columns, terms.depth
    direct = (batch + rows + depth, batch + depth + columns, batch + rows + columns)
    if direct == terms and max(map(len, (rows, columns))) < 2 and len(depth) == 1:
        if not rows + columns + batch:
            return _dot
        if not batch or len(rows) == len(columns) == 1:
            return MATMUL
    order_x, order_y = (
        tuple(map(term.index, wanted)) for term, wanted in zip(terms, direct[:2], strict=False)
    )
    order_out = tuple(map(direct[2].index, terms.out))
    return _Arranging(order_x, order_y, order_out, len(batch), len(rows), len(depth))


@dataclass(frozen=True)
class _Arranging:
    """The product of matrices that axes are put in order for: so many of a batch, then rows, those
    that are summed over, and columns."""

    order_x: tuple[int, ...]
    order_y: tuple[int, ...]
    order_out: tuple[int, ...]
    batch: int
    rows: int
    depth: int

    def __call__(self, x: Any, y: Any) -> Any:
        return self.arranged(x, y)(x, y)

    def arranged(self, x: Any, y: Any) -> Callable[[Any, Any], Any]:
        """The function of operands of these shapes."""
        nb, nr, nd = self.batch, self.rows, self.depth
        shape_x = tuple([x.shape[k] for k in self.order_x])
        shape_y = tuple([y.shape[k] for k in self.order_y])
        ahead, inner = shape_x[:nb], math.prod(shape_x[nb + nr :])
        own, others = shape_x[nb : nb + nr], shape_y[nb + nd :]
        left, right = (*ahead, math.prod(own), inner), (*ahead, inner, math.prod(others))
        wanted = (*ahead, *own, *others)
        # What puts an operand in order, and the result: None where it is so already.
        order_x, order_y, order_out = map(
            _unless_same, (self.order_x, self.order_y, self.order_out)
        )
        as_left = left if left != shape_x else None
        as_right = right if right != shape_y else None
        as_wanted = wanted if wanted != (*left[:-1], right[-1]) else None

        def product(x: Any, y: Any) -> Any:
            x = x if order_x is None else x.transpose(order_x)
            y = y if order_y is None else y.transpose(order_y)
            x = x if as_left is None else x.reshape(as_left)
            y = y if as_right is None else y.reshape(as_right)
            found = np.matmul(_in_rows(x), _in_rows(y))
            found = found if as_wanted is None else found.reshape(as_wanted)
            found = found if order_out is None else found.transpose(order_out)
            if nb > 1 or order_out is not None:  # NumPy puts a batch as it lies in the operands
                return found if found.flags.c_contiguous else found.copy()
            return found if wanted else found[()]

        return product


def _unless_same(order: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if order == tuple(range(len(order))) else order


def _dot(x: Any, y: Any) -> Any:
    """The product of vectors; in single precision, where BLAS adds up one after another, long ones
    in pairs."""
    return np.sum(x * y) if _in_pairs(x) else np.matmul(x, y)


def _in_pairs(x: Any) -> bool:
    return bool(x.dtype == np.float32 and x.size > LONG_SUM)


def _in_rows(x: Any) -> Any:
    """The same, as BLAS takes matrices: contiguous along one of the last two axes."""
    if x.flags.c_contiguous:
        return x
    near = x.itemsize in x.strides[-2:] or min(x.shape[-2:]) < 2
    return x if near else np.ascontiguousarray(x)


def _matrix_text(terms: Terms, xs: Sequence[str]) -> str | None:
    """The product in terms of `@` and transposes, where that says it; None where it doesn't."""
    batch, rows, columns, depth = terms.batch, terms.rows, terms.columns, terms.depth
    if max(map(len, (rows, columns, depth))) > 1 or terms.out != batch + rows + columns:
        return None
    if batch and not (rows and columns):
        return None
    texts = []
    for x, term, wanted in zip(xs, terms, (rows + depth, depth + columns), strict=False):
        if term == batch + wanted:
            texts.append(x)
        elif term == batch + wanted[::-1]:
            texts.append(f"np.swapaxes({x}, -1, -2)" if batch else f"{x}.T")
        else:
            return None
    return " @ ".join(texts)
