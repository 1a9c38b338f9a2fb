"""Terms that are products of arrays with fewer axes, and aren't formed.

If a matrix changes in each direction by the product of a column and a row, as `A[:, k] * B[k, :]`,
all directions together would be n^3 elements. Linear maps act on the factors:

    einsum(C, u[:, None] * v)        -->    einsum(C, u)[:, None] * v
    sum(c * u[:, None] * v, axis 1)  -->    u * einsum(c, v)

so each step takes n^2 elements, or a product of matrices. The same slopes are multiplied in another
order, as they are between forward and reverse mode.

Names: a *factor* is an array with rows, and the axes of the whole that it has; `c` is the
coefficient of all rows, an array without rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from tapegrad.ir.tape import Aval, Literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Node
from tapegrad.primitives.contractions import LETTERS, ordered, spread
from tapegrad.primitives.multilinear import Term, by_least_work
from tapegrad.primitives.views import BroadcastTo, ExpandDims, Squeeze

MIN_UNFORMED = 1 << 20  # elements: smaller products are formed
MAX_PRODUCTS = 8  # sums of more products are formed

Shape = tuple[int, ...]


class Factor(NamedTuple):
    """An array, and its axes as axes of the whole."""

    node: Node
    axes: Shape

    @staticmethod
    def of(node: Node, axes: Sequence[int]) -> Factor:
        """The factor without axes of extent 1."""
        unit = tuple([a for a, n in enumerate(node.shape) if n == 1])
        kept = tuple([k for k, n in zip(axes, node.shape, strict=True) if n != 1])
        return Factor(Squeeze(unit)(node) if unit else node, kept)

    @property
    def term(self) -> Term:
        return Term(self.node, [LETTERS[k] for k in self.axes])


class _Product(NamedTuple):
    factors: tuple[Factor, ...]
    c: Node
    scale: float = 1.0

    def plus(self, other: _Product) -> _Product:
        """The sum of two products with the same factors."""
        ratio = other.scale / self.scale
        return self._replace(c=_sum([(self.c, 1.0), (other.c, ratio)]))

    def terms(self, ndim: int) -> list[Term]:
        """All arrays of the product, with the coefficient."""
        found = [factor.term for factor in self.factors]
        if self.c.ndim:
            found.append(Factor.of(self.c, range(ndim - self.c.ndim, ndim)).term)
        return found


@dataclass(frozen=True)
class Outer:
    """A sum of products. Its axes are `count` free ones, followed by those of the value."""

    shape: Shape
    count: int
    products: Mapping[Any, _Product]

    @staticmethod
    def of(shape: Shape, count: int, products: Sequence[_Product]) -> Outer | Node:
        """The sum of these products. It is formed if that needs no more memory than the factors."""
        size = math.prod(shape)
        factors = [f.node for product in products for f in product.factors]
        if size < MIN_UNFORMED or any(2 * math.prod(x.shape) > size for x in factors):
            return Outer(shape, count, dict(enumerate(products))).formed()
        found: dict[Any, _Product] = {}
        for product in products:
            key = tuple([(factor.node.operand, factor.axes) for factor in product.factors])
            same = found.get(key)
            found[key] = same.plus(product) if same else product
        made = Outer(shape, count, found)
        return made.formed() if len(found) > MAX_PRODUCTS else made

    @property
    def dtype(self) -> np.dtype:
        return self.first.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def first(self) -> Node:
        return next(iter(self.products.values())).c

    def constant(self, value: Any) -> Node:
        return self.first.constant(value)

    def formed(self) -> Node:
        parts = []
        for factors, c, scale in self.products.values():
            each: list[Any] = [spread(x, axes, range(self.ndim)) for x, axes in factors]
            parts.append((reduce(ew.mul, each if _is_one(c) else [*each, c]), scale))
        return _filled(_sum(parts), self.shape)

    def times(self, shape: Shape, of: Callable[[Node], Any], scale: float = 1.0) -> Any:
        """The value in another shape, with coefficients mapped by `of`."""
        products = [p._replace(c=of(p.c), scale=scale * p.scale) for p in self.products.values()]
        return Outer.of(shape, self.count, products)

    def filled(self, shape: Shape) -> Outer:
        return replace(self, shape=shape)

    def _moved(self, shape: Shape, axes: Mapping[int, int], of: Any) -> Outer | Node:
        """The value with renumbered axes, and coefficients mapped by `of`."""
        products = [
            p._replace(
                factors=tuple([Factor(x, tuple([axes[k] for k in at])) for x, at in p.factors]),
                c=of(p.c),
            )
            for p in self.products.values()
        ]
        return Outer.of(shape, self.count, products)

    def widened(self, further: int) -> Outer | Node:
        """The value with further axes of extent 1 in front."""
        n = self.count
        axes = {k: k + further * (k >= n) for k in range(self.ndim)}
        shape = (*self.shape[:n], *(1,) * further, *self.shape[n:])
        return self._moved(shape, axes, lambda c: c)

    def viewed(self, p: Any, axes: Mapping[int, int], out: Shape) -> Outer | Node:
        """A view `p` of the value. `axes` maps its axes to those of the new shape `out`."""
        n, value = self.count, self.shape[self.count :]
        at = {n + a: n + k for a, k in axes.items()} | {k: k for k in range(n)}

        def of(c: Any) -> Any:
            return p(_filled(c, value)) if c.ndim else c

        return self._moved((*self.shape[:n], *out), at, of)

    def summed(self, axes: Sequence[int]) -> Node:
        """The sum over axes of the value."""
        over = {self.count + a for a in axes}
        out = [k for k in range(self.ndim) if k not in over]
        return self._multiplied([], [LETTERS[k] for k in out], over)

    def contracted(
        self, y: Node, left: Sequence[Any], right: Sequence[Any], out: Sequence[Any]
    ) -> Outer | Node:
        """The contraction with an array without rows, given labels of the value's axes (`left`), of
        the array's (`right`) and of the result's."""
        n = self.count
        names = [*left, *[k for k in right if k not in left]]
        at = {k: n + a for a, k in enumerate(names)}
        sizes = dict(zip(right, y.shape, strict=True)) | dict(
            zip(left, self.shape[n:], strict=True)
        )
        other = Factor.of(y, [at[k] for k in right])
        over = {at[k] for k in left if k not in out and sizes[k] > 1}
        shape = (*self.shape[:n], *[sizes[k] for k in out])
        ends = {at[k]: n + a for a, k in enumerate(out)} | {k: k for k in range(n)}
        lazy = all(
            not c.ndim and sum(not over.isdisjoint(f.axes) for f in factors) == 1
            for factors, c, _ in self.products.values()
        )
        if not lazy or not over:
            letters = [LETTERS[k] for k in [*range(n), *[at[k] for k in out]]]
            return self._multiplied([other], letters, over)
        products = []
        for product in self.products.values():
            found = []
            for factor in product.factors:
                if not over.isdisjoint(factor.axes):
                    kept = [k for k in dict.fromkeys((*factor.axes, *other.axes)) if k not in over]
                    x = by_least_work([factor.term, other.term], [LETTERS[k] for k in kept])
                    factor = Factor(x, tuple(kept))
                found.append(Factor(factor.node, tuple([ends[k] for k in factor.axes])))
            products.append(product._replace(factors=tuple(found)))
        return Outer.of(shape, n, products)

    def along_last(self, of: Callable[[Node], Node]) -> Outer | Node:
        """A linear map of the last axis. `of` applies it to an array with rows in the axis
        before."""
        last, products = self.ndim - 1, []
        for product in self.products.values():
            found = []
            for x, axes in product.factors:
                if last in axes:
                    kept = [*[k for k in axes if k != last], last]
                    rows = ordered(x, axes, kept)
                    y = of(rows if rows.ndim > 1 else ExpandDims((0,))(rows))
                    x, axes = (y if rows.ndim > 1 else Squeeze((0,))(y)), tuple(kept)
                found.append(Factor(x, axes))
            if product.c.ndim or sum(last in x.axes for x in found) != 1:
                return of(self.formed())
            products.append(product._replace(factors=tuple(found)))
        return Outer.of(self.shape, self.count, products)

    def _multiplied(self, others: Sequence[Factor], out: Sequence[str], over: set[int]) -> Node:
        """The product of everything, summed over the axes `over`, with the axes `out`."""
        sizes = {LETTERS[k]: n for k, n in enumerate(self.shape)}
        parts = []
        for product in self.products.values():
            terms = [*product.terms(self.ndim), *[x.term for x in others]]
            for x, letters in terms:
                sizes.update(zip(letters, x.shape, strict=True))
            have = {k for _, letters in terms for k in letters}
            kept = [k for k in out if k in have]
            part = by_least_work(terms, kept)
            if not product.c.ndim and not _is_one(product.c):
                part = part * product.c
            times = math.prod(self.shape[k] for k in over if LETTERS[k] not in have)
            part = spread(part * float(times) if times != 1 else part, kept, out)
            parts.append((part, product.scale))
        return _filled(_sum(parts), tuple([sizes.get(k, 1) for k in out]))


def formed(x: Any) -> Any:
    """A term as an array."""
    return x.formed() if isinstance(x, Outer) else x


def plus(x: Any, y: Any) -> Any:
    """The sum of two terms with the same rows."""
    if isinstance(x, Outer) and isinstance(y, Outer) and x.shape == y.shape:
        return Outer.of(x.shape, x.count, [*x.products.values(), *y.products.values()])
    return formed(x) + formed(y)


def along_last(p: Any, given: Sequence[Any], x: Any) -> Any:
    """Apply `p`, which is linear in its last operand, to the last axis, row by row."""
    return x.along_last(lambda y: p(*given, y)) if isinstance(x, Outer) else p(*given, x)


def outer(
    x: Node, y: Node, left: Sequence[Any], right: Sequence[Any], out: Sequence[Any], count: int
) -> Any:
    """The unformed product of an array with rows and another one, or None if it would be no larger
    than these.

    `left`, `right` and `out` label the axes. The first `count` axes of the result are free.
    """
    sizes = dict(zip(left, x.shape, strict=True)) | dict(zip(right, y.shape, strict=True))
    shape = tuple([sizes[k] for k in out])
    lost = [k for k, size in sizes.items() if size != 1 and k not in out]
    if lost or x.dtype != y.dtype or x.dtype != np.float64:
        return None
    at = {k: a for a, k in enumerate(out)}

    def factor(node: Node, labels: Sequence[Any]) -> Factor:
        unit = [a for a, k in enumerate(labels) if sizes[k] == 1]
        node = Squeeze(tuple(unit))(node) if unit else node
        return Factor(node, tuple([at[k] for k in labels if sizes[k] != 1]))

    factors = (factor(x, left), factor(y, right))
    found = Outer.of(shape, count, [_Product(factors, x.constant(1))])
    return found if isinstance(found, Outer) else None


def linear(p: Any, ts: Sequence[Any], xs: Sequence[Any], shape: Shape) -> Any:
    """A linear elementwise function of unformed products, in the shape of the result; None if they
    have to be formed. `ts` holds the products, and None for the other operands in `xs`."""
    at = [k for k, t in enumerate(ts) if t is not None]
    additive = p.algebra.additive
    if additive and len(additive) < len(xs):  # such as `where`
        return None
    if not all(isinstance(ts[k], Outer) for k in at):
        return None
    dtype = ts[at[0]].dtype
    given = [x.aval if isinstance(x, Node) else Aval((), dtype) for x in xs]
    if p.aval(*given).dtype != dtype:  # it changes the dtype
        return None

    def of(k: int) -> Any:
        if additive:
            one = np.float64(1)
            ones = [one if i == k else None for i in range(len(xs))]
            return ts[k].times(shape, lambda c: c, float(p.jvp(ones, None, *[one] * len(xs))))
        scale = _scale(p, k, xs)
        if scale:
            return ts[k].times(shape, lambda c: c, scale)
        return ts[k].times(shape, lambda c: p(*[c if i == k else x for i, x in enumerate(xs)]))

    return reduce(plus, [of(k) for k in at])


def _scale(p: Any, k: int, xs: Sequence[Any]) -> float | None:
    """The constant by which the function multiplies operand `k`, if all others are literals and it
    is of moderate size."""
    others = [x.operand for i, x in enumerate(xs) if i != k]
    if not all(isinstance(x, Literal) for x in others):
        return None
    given = [np.float64(1) if i == k else x.operand.value for i, x in enumerate(xs)]
    with np.errstate(all="ignore"):
        value = float(p.evaluate(*given))
    return value if 1e-3 < abs(value) < 1e3 else None


def _sum(parts: Sequence[tuple[Any, float]]) -> Any:
    """The sum of (value, scale) pairs."""
    total: Any = None
    for x, scale in sorted(parts, key=lambda part: -part[1]):
        part = x if abs(scale) == 1 else x * abs(scale)
        if total is None:
            total = part if scale > 0 else -part
        else:
            total = total + part if scale > 0 else total - part
    return total


def _filled(x: Any, shape: Shape) -> Any:
    return x if x.shape == shape else BroadcastTo(shape)(x)


def _is_one(x: Node) -> bool:
    return isinstance(x.operand, Literal) and bool(x.operand.value == 1)
