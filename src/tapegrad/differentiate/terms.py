"""Terms: arrays with rows that are mostly zeros, stored as their nonzero elements and a formula.

    row = first + sum of strides * indices

A term holds the elements that aren't zeros. Its axes are *free* ones, which only count rows,
followed by those of a value. For a matrix x[i, j] with n columns the unit vectors are ones with the
strides (n, 1); their sums over i are ones with a free axis of stride n, and the stride 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.differentiate.outer import Outer, formed, outer, plus
from tapegrad.ir.affine import Affine
from tapegrad.ir.tape import Aval, Literal
from tapegrad.primitives.base import Node, Slice
from tapegrad.primitives.batches import batched, expanded, row_numbers
from tapegrad.primitives.elementwise import AsType, equal, where
from tapegrad.primitives.scatter import Gather, ScatterAdd
from tapegrad.primitives.views import BroadcastTo, GetItem, Place, Reshape, Transpose

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """The row of each element of a term, whose axes are the free ones and then the value's."""

    first: int
    extents: Shape  # of the free axes
    free: Shape  # their strides
    strides: Shape  # of the value's axes: 0 if the row doesn't depend on the index

    def numbers(self) -> Any:
        """The rows of a term, if only free axes determine them."""
        found = np.array(self.first)
        for n, stride in zip(self.extents, self.free, strict=True):
            found = found[..., None] + stride * np.arange(n)
        return found


@dataclass(frozen=True)
class Parts:
    """A value as a sum of terms.

    If `beside` is given, the value is `beside` wherever no term is. Then each term is the whole
    value at its positions, and terms agree where they overlap.
    """

    terms: Mapping[Rows, Any]  # nodes, or unformed products (`Outer`)
    beside: Any = None

    @property
    def dtype(self) -> np.dtype:
        return next(iter(self.terms.values())).dtype

    def constant(self, value: Any) -> Node:
        """A scalar constant of this dtype."""
        return next(iter(self.terms.values())).constant(value)

    @property
    def formed(self) -> Parts:
        """The value with all products formed."""
        return replace(self, terms={rows: formed(x) for rows, x in self.terms.items()})


def gathered(pairs: Iterable[tuple[Rows, Node] | None]) -> Parts | None:
    """The sum of these terms; None if one of them is None."""
    terms: dict[Rows, Node] = {}
    for pair in pairs:
        if pair is None:
            return None
        rows, node = pair
        terms[rows] = plus(terms[rows], node) if rows in terms else node
    return Parts(terms) if terms else None


def freed(rows: Rows, node: Node) -> tuple[Rows, Node]:
    """The term with rows from free axes only, slowest first and none reversed. Each axis with a
    stride gets a free axis, and the elements are on the diagonal of the two."""
    shape = node.shape[len(rows.extents) :]
    for a, stride in enumerate(rows.strides):
        if not stride:
            continue
        n, count = shape[a], len(rows.extents)
        here = expanded(row_numbers(n, node, 1), len(shape))
        there = row_numbers(n, node, len(shape) - a)
        inner = Reshape((*rows.extents, 1, *shape))(node)
        node = where(equal(here, there), inner, node.constant(0))
        rows = replace(rows, extents=(*rows.extents, n), free=(*rows.free, stride))
    for k, (n, stride) in enumerate(zip(rows.extents, rows.free, strict=True)):
        if stride < 0:
            back = [Slice(0, m) for m in node.shape]
            back[k] = Slice(n - 1, n, -1)
            node = GetItem(tuple(back))(node)
            ahead = (*rows.free[:k], -stride, *rows.free[k + 1 :])
            rows = replace(rows, first=rows.first + stride * (n - 1), free=ahead)
    count = len(rows.extents)
    order = sorted(range(count), key=lambda k: -rows.free[k])
    extents, free = ([x[k] for k in order] for x in (rows.extents, rows.free))
    node = transposed(node, (*order, *range(count, node.ndim)))
    return Rows(rows.first, tuple(extents), tuple(free), (0,) * len(shape)), node


def apart_last(rows: Rows, node: Any) -> tuple[Rows, Any] | None:
    """The term with rows that don't depend on its last axis. If they did, it is multiplied by a
    unit matrix. None if that would have to be formed."""
    *others, stride = rows.strides
    if not stride:
        return rows, node
    if any(others) or isinstance(node, Outer):
        return None
    n, count = node.shape[-1], len(rows.extents)
    one = AsType(node.dtype)(equal(row_numbers(n, node, 2), row_numbers(n, node, 1)))
    left = [*range(count), *range(count + 1, node.ndim), count]
    both = [*range(node.ndim + 1)]
    found = outer(node, one, left, [count, node.ndim], both, count + 1)
    freed = Rows(rows.first, (*rows.extents, n), (*rows.free, stride), (0,) * len(rows.strides))
    return None if found is None else (freed, found)


def taken(node: Node, numbers: Any) -> Node:
    """Elements of the first axis by number."""
    rest = [Slice(0, n) for n in node.shape[1:]]
    if (part := _as_slice(numbers)) is not None:
        return GetItem((part, *rest))(node)
    return Gather(sure=True)(node, node.writer.capture(numbers))


def put(node: Node, numbers: Any, size: int) -> Node:
    """The elements of the first axis at these positions among `size` zeros."""
    shape = (size, *node.shape[1:])
    if (part := _as_slice(numbers)) is not None:
        return Place(shape, (part, *[Slice(0, n) for n in shape[1:]]))(node)
    return ScatterAdd(shape)(node, node.writer.capture(numbers))


def _as_slice(numbers: Any) -> Slice | None:
    """The slice that takes these numbers, if they increase by equal steps."""
    steps = np.diff(numbers)
    step = int(steps[0]) if len(steps) else 1
    if not len(numbers) or step <= 0 or (steps != step).any():
        return None
    return Slice(int(numbers[0]), len(numbers), step)


def transposed(node: Node, axes: Sequence[int]) -> Node:
    return node if list(axes) == sorted(axes) else Transpose(tuple(axes))(node)


def rows_last(node: Node) -> Node:
    return transposed(node, (*range(1, node.ndim), 0))


def with_last(node: Node, count: int = 1) -> Node:
    """The value with `count` further axes of extent 1 at the end."""
    return Reshape((*node.shape, *(1,) * count))(node) if node.shape else node


def row_major(shape: Shape) -> Shape:
    return tuple([math.prod(shape[axis + 1 :]) for axis in range(len(shape))])


def effective(strides: Shape, shape: Shape) -> Shape:
    """The strides, with 0 for axes of extent 1."""
    return tuple([0 if n == 1 else stride for stride, n in zip(strides, shape, strict=True)])


def is_zero(x: Node) -> bool:
    return isinstance(x.operand, Literal) and bool(x.operand.value == 0)


def widened(x: Parts, shape: Shape) -> Parts:
    """The value with leading axes, as broadcasting to `shape` adds them."""
    terms = {}
    for rows, node in x.terms.items():
        further = len(shape) - len(rows.strides)
        if further:
            count = len(rows.extents)
            if isinstance(node, Outer):
                node = node.widened(further)
            else:
                wide = (*node.shape[:count], *(1,) * further, *node.shape[count:])
                node = Reshape(wide)(node)
            rows = Rows(rows.first, rows.extents, rows.free, (*(0,) * further, *rows.strides))
        terms[rows] = node
    return Parts(terms, x.beside)


def filled(node: Node, shape: Shape) -> Node:
    return node if node.shape == shape else BroadcastTo(shape)(node)


def filled_of(rows: Rows, node: Any, shape: Shape) -> Any:
    whole = (*rows.extents, *shape)
    return node.filled(whole) if isinstance(node, Outer) else filled(node, whole)


def number_of(first: int, strides: Shape, shape: Shape, like: Node) -> Node:
    """first + sum of strides * indices, as an array that broadcasts to a shape."""
    total: Any = like.writer.node(Literal(np.int64(first)))
    for axis, stride in enumerate(strides):
        if stride:
            along = row_numbers(shape[axis], like, len(shape) - axis)
            along = along if stride == 1 else along * stride
            total = (
                along
                if isinstance(total.operand, Literal) and total.operand.value == 0
                else total + along
            )
    return total


def comparable(terms: Sequence[Rows]) -> bool:
    """Whether all terms have the same free axes, and two elements are in one row only if their free
    indices are equal. That holds if free axes span fewer rows than the strides of the others."""
    if len({(rows.extents, rows.free) for rows in terms}) > 1:
        return False
    first = terms[0]
    span = sum(abs(s) * (n - 1) for n, s in zip(first.extents, first.free, strict=True))
    apart = [rows.first - first.first for rows in terms]
    unit = math.gcd(*apart, *[stride for rows in terms for stride in rows.strides])
    return len(terms) == 1 or not span or span < unit


def meet(one: Rows, other: Rows, shape: Shape, like: Node) -> Any:
    """Whether an element of two comparable terms is in the same row: True, False, or a node that
    says so for each element."""
    if one == other:
        return True
    ahead = [a - b for a, b in zip(one.strides, other.strides, strict=True)]
    most = [d * (n - 1) for d, n in zip(ahead, shape, strict=True)]
    far = one.first - other.first
    if not far + sum(min(m, 0) for m in most) <= 0 <= far + sum(max(m, 0) for m in most):
        return False
    above = tuple([max(d, 0) for d in ahead])
    below = tuple([max(-d, 0) for d in ahead])
    return equal(
        number_of(max(far, 0), above, shape, like), number_of(max(-far, 0), below, shape, like)
    )


def summed_over(p: Any, rows: Rows, node: Any) -> tuple[Rows, Any]:
    """The term summed over the axes of `p`. Axes with strides become free."""
    count = len(rows.extents)
    if isinstance(node, Outer):
        left = [stride for a, stride in enumerate(rows.strides) if a not in p.axes]
        return replace(rows, strides=tuple(left)), node.summed(p.axes)
    kept = [a for a in p.axes if rows.strides[a]]
    rest = [a for a in p.axes if not rows.strides[a]]
    if rest:
        node = p.changed(axes=tuple([count + a for a in rest]))(node)
    left = [a for a in range(len(rows.strides)) if a not in rest]
    out = [a for a in left if a not in kept]
    if kept:
        moved = [count + left.index(a) for a in (*kept, *out)]
        order = (*range(count), *moved)
        node = transposed(node, order)
    found = Rows(
        rows.first,
        (*rows.extents, *node.shape[count : count + len(kept)]),
        (*rows.free, *[rows.strides[a] for a in kept]),
        tuple([rows.strides[a] for a in out]),
    )
    return found, node


def _in_batch(p: Any, rows: Rows, node: Node) -> Any:
    """The primitive applied to a term, with the free axes as a batch."""
    count = len(rows.extents)
    if not count:
        return p(node)
    size = math.prod(rows.extents)
    flat = node if count == 1 else Reshape((size, *node.shape[count:]))(node)
    found = batched(p, size, [True], [flat])
    return found if count == 1 else Reshape((*rows.extents, *found.shape[1:]))(found)


def viewed(p: Any, rows: Rows, node: Any, shape: Shape) -> tuple[Rows, Any] | None:
    """A view of a term, or None."""
    if isinstance(node, Outer) and (moved := _moved(p, node, shape)) is not None:
        return replace(rows, strides=(0,) * (moved.ndim - len(rows.extents))), moved
    found = _in_batch(p, rows, formed(node))
    if found is None:
        return None
    out = found.shape[len(rows.extents) :]
    at = p.read(list(map(Affine.part, range(len(out)))), shape)
    if at is None:
        strides = _reshaped(rows.strides, shape, out)
        return (
            None if strides is None else (Rows(rows.first, rows.extents, rows.free, strides), found)
        )
    first, moved = rows.first, [0] * len(out)
    for k, stride in zip(at, rows.strides, strict=True):
        first += stride * (k.const if isinstance(k, Affine) else int(k))
        for axis, step in k.terms if isinstance(k, Affine) else ():
            moved[axis] += stride * step
    return Rows(first, rows.extents, rows.free, effective(tuple(moved), out)), found


def _moved(p: Any, node: Outer, shape: Shape) -> Any:
    """A view of a product that keeps each axis whole, or None for any other view."""
    out = p.aval(Aval(shape, node.dtype)).shape
    at = p.read(list(map(Affine.part, range(len(out)))), shape)
    alone = [k.index if isinstance(k, Affine) else None for k in at or ()]
    whole = {a: b for a, b in enumerate(alone) if b is not None and out[b] == shape[a]}
    lost = [a for a, n in enumerate(shape) if n != 1 and a not in whole]
    joined = len({*whole.values()}) < len(whole)
    return None if lost or joined else node.viewed(p, whole, out)


def _reshaped(strides: Shape, shape: Shape, out: Shape) -> Shape | None:
    """The strides in another shape, if axes with strides are joined or split in memory order;
    otherwise None."""
    found: list[int] = []
    for ours, theirs in _groups(shape, out):
        part = [strides[a] for a in ours]
        inner = row_major(tuple([shape[a] for a in ours]))
        units = {s / r for s, r, a in zip(part, inner, ours, strict=True) if shape[a] != 1}
        if len(units) > 1 or any(unit != int(unit) for unit in units):
            return None
        unit = int(units.pop()) if units else 0
        found += [unit * r for r in row_major(tuple([out[b] for b in theirs]))]
    return effective(tuple(found), out)


def _groups(shape: Shape, out: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """The smallest groups of adjacent axes of the two shapes with equal numbers of elements."""
    a = b = 0
    while a < len(shape) or b < len(out):
        ours, theirs = ([a] if a < len(shape) else []), ([b] if b < len(out) else [])
        while (have := math.prod(shape[k] for k in ours)) != (
            want := math.prod(out[k] for k in theirs)
        ):
            if have < want:
                ours.append(a + len(ours))
            else:
                theirs.append(b + len(theirs))
        yield ours, theirs
        a, b = a + len(ours), b + len(theirs)


def boxed(rows: Rows, node: Node, box: Any, shape: Shape) -> tuple[Rows, Node] | None:
    """A term placed in a box among zeros. Each element stays in its row."""
    first, strides = rows.first, iter(rows.strides)
    moved = []
    for k in box:
        stride = next(strides) if isinstance(k, Slice) else 0
        if stride:
            if stride % k.step:
                return None
            stride //= k.step
            first -= stride * k.start
        moved.append(stride)
    found = _in_batch(Place(shape, tuple(box)), rows, node)
    return Rows(first, rows.extents, rows.free, tuple(moved)), found
