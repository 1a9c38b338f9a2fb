"""Contractions: sums of products of two arrays, over axes that they share.

There is one primitive. Its parameter is the subscripts of an einsum of two operands:

    ij,jk->ik       the product of two matrices
    hij,hjk->hik    the products of a batch of pairs
    i,i->           the product of two vectors
    nijc,cd->nijd   the product of each pixel's channels and one matrix

A letter in both operands and in the result is a *batch* axis. A letter in both operands alone is
*contracted*. A letter in a single operand is *free*, and is in the result too. So each letter is in
two or three of the three terms, and a derivative exchanges terms:

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

MATMUL = np.matmul  # NumPy's own, also during a trace
LETTERS = string.ascii_lowercase[8:] + string.ascii_lowercase[:8] + string.ascii_uppercase


class Terms(NamedTuple):
    """The subscripts of both operands and of the result."""

    x: str
    y: str
    out: str

    @property
    def batch(self) -> str:
        """The letters in both operands and in the result, in the result's order."""
        return "".join(k for k in self.out if k in self.x and k in self.y)

    @property
    def rows(self) -> str:
        """The letters of the result that aren't in y, in the result's order."""
        return "".join(k for k in self.out if k not in self.y)

    @property
    def columns(self) -> str:
        """The letters of the result that aren't in x, in the result's order."""
        return "".join(k for k in self.out if k not in self.x)

    @property
    def depth(self) -> str:
        """The letters that are summed over, in the order of x."""
        return "".join(k for k in self.x if k not in self.out)


@lru_cache(maxsize=4096)
def terms_of(subscripts: str) -> Terms:
    """The terms of `subscripts`. Raises a ValueError if they aren't a contraction of two
    operands."""
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
    """`out[...] = sum over the contracted axes of x[...] * y[...]`."""

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
        """Whether NumPy's matmul of the operands, in their order, computes this."""
        return _recipe(self.subscripts) is MATMUL

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        product = _matrix_text(self.terms, xs)
        if product is None:
            product = f"np.einsum({self.subscripts!r}, {', '.join(xs)}, optimize=True)"
        return [f"{outs[0]} = {product}"]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        (x, y), (left, right, to) = xs, self.terms
        return contract(ct, y, to, right, left), contract(x, ct, left, to, right)


# ---- building contractions


def contract(x: Any, y: Any, left: Sequence[Any], right: Sequence[Any], out: Sequence[Any]) -> Any:
    """The contraction of axes with these labels; a product if nothing is summed.

    Equal contractions get equal subscripts: the result's first free axis is one of the first
    operand, and letters are assigned in order.
    """
    first = next((k for k in out if k not in left or k not in right), None)
    if first is not None and first not in left:
        x, y, left, right = y, x, right, left
    if all(k in out for k in left) and all(k in out for k in right):
        return times(x.dtype)(spread(x, left, out), spread(y, right, out))
    return Einsum(named(left, right, out))(x, y)


def times(dtype: np.dtype) -> Any:
    """The primitive that multiplies. For booleans it is `logical_and`, as their sum is `any`."""
    return ew.logical_and if dtype.kind == "b" else ew.mul


def named(left: Sequence[Any], right: Sequence[Any], out: Sequence[Any]) -> str:
    """The subscripts, with letters assigned in the order in which labels occur."""
    letters: dict[Any, str] = {}
    for k in (*left, *right):
        letters.setdefault(k, LETTERS[len(letters)])
    x, y, to = ("".join(letters[k] for k in labels) for labels in (left, right, out))
    return f"{x},{y}->{to}"


def spread(x: Any, labels: Sequence[Any], out: Sequence[Any]) -> Any:
    """A view of `x` with its axes in the order of `out`, and axes of extent 1 for the labels that
    it lacks. Leading ones are left out: broadcasting adds them."""
    kept = [k for k in out if k in labels]
    x = ordered(x, labels, kept)
    first = out.index(kept[0]) if kept else len(out)
    missing = tuple(a for a, k in enumerate(out[first:]) if k not in labels)
    return ExpandDims(missing)(x) if missing else x


def ordered(x: Any, labels: Sequence[Any], wanted: Sequence[Any]) -> Any:
    """`x` with its axes in the order of the labels `wanted`."""
    order = tuple([list(labels).index(k) for k in wanted])
    return x if order == tuple(range(len(order))) else Transpose(order)(x)


def matmul(x: Any, y: Any) -> Any:
    """The product of the matrices in the last two axes of x and y. An operand with one axis is a
    vector. The axes before them broadcast. Raises a ValueError if extents don't fit."""
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
    """Labels of axes. Batch axes have negative numbers, counted from the last batch axis."""
    return ["k"] if ndim == 1 else [*range(2 - ndim, 0), *last]


def _unstretched(x: Any, labels: Sequence[Any], extents: Any) -> tuple[Any, list[Any]]:
    """`x` and its labels without the axes of extent 1 that broadcast to another extent."""
    unit = tuple([a for a, k in enumerate(labels) if extents.get(k, x.shape[a]) != x.shape[a]])
    kept = [k for a, k in enumerate(labels) if a not in unit]
    return (Squeeze(unit)(x) if unit else x), kept


def adjoint(x: Any) -> Any:
    """The conjugate transpose of the last two axes; the transpose for real matrices."""
    return conjugated(swapped(x))


def swapped(x: Any) -> Any:
    """The transpose of the last two axes."""
    *batch, rows, columns = range(x.ndim)
    return Transpose((*batch, columns, rows))(x)


# ---- evaluation by NumPy


@lru_cache(maxsize=4096)
def _recipe(subscripts: str) -> Any:
    """The function that evaluates a contraction: `matmul` itself, or `matmul` of rearranged
    operands."""
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
    """A contraction as a product of matrices, after axes are put in the order batch, rows, summed
    axes, columns. `batch`, `rows` and `depth` are the numbers of these axes."""

    order_x: tuple[int, ...]
    order_y: tuple[int, ...]
    order_out: tuple[int, ...]
    batch: int
    rows: int
    depth: int

    def __call__(self, x: Any, y: Any) -> Any:
        return self.arranged(x, y)(x, y)

    def arranged(self, x: Any, y: Any) -> Callable[[Any, Any], Any]:
        """The function for operands of these shapes."""
        nb, nr, nd = self.batch, self.rows, self.depth
        shape_x = tuple([x.shape[k] for k in self.order_x])
        shape_y = tuple([y.shape[k] for k in self.order_y])
        ahead, inner = shape_x[:nb], math.prod(shape_x[nb + nr :])
        own, others = shape_x[nb : nb + nr], shape_y[nb + nd :]
        left, right = (*ahead, math.prod(own), inner), (*ahead, inner, math.prod(others))
        wanted = (*ahead, *own, *others)
        # The order of each operand's and the result's axes: None if it needn't change.
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
            if nb > 1 or order_out is not None:  # a batch has the operands' memory order
                return found if found.flags.c_contiguous else found.copy()
            return found if wanted else found[()]

        return product


def _unless_same(order: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if order == tuple(range(len(order))) else order


def _dot(x: Any, y: Any) -> Any:
    """The product of two vectors. Long ones of single precision are summed in pairs, since BLAS
    adds their products one after another."""
    return np.sum(x * y) if _in_pairs(x) else np.matmul(x, y)


def _in_pairs(x: Any) -> bool:
    return bool(x.dtype == np.float32 and x.size > LONG_SUM)


def _in_rows(x: Any) -> Any:
    """`x` in memory that BLAS accepts: contiguous along one of the last two axes."""
    if x.flags.c_contiguous:
        return x
    near = x.itemsize in x.strides[-2:] or min(x.shape[-2:]) < 2
    return x if near else np.ascontiguousarray(x)


def _matrix_text(terms: Terms, xs: Sequence[str]) -> str | None:
    """The product as an expression of `@` and transposes; None if there isn't one."""
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
