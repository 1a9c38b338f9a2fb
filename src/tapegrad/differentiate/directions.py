"""Passes in all directions: a batch in which each row starts from a unit vector.

A derivative in such a batch is mostly zeros at first. It is kept as a sum of `terms`, each of which
gives the row of an element by a formula; in all other rows the element is 0:

    (x[:, None] - x)[j, k]        derivative 1 in row j, and -1 in row k

Linear maps act on terms. If an axis that determines the row is summed up, it is kept as a free
axis, which counts rows only. So derivatives of sums over pairs cost as much as the sums:

    sum(f(x[:, None] - x))        n^2 elements in each step, not n^3

An element that is 0 by its position stays 0, whatever multiplies it. Calls that aren't known to be
linear, and loops, get all rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tapegrad.differentiate.batching import Batcher
from tapegrad.differentiate.outer import Outer, along_last, formed, linear, outer
from tapegrad.differentiate.reverse import with_reached
from tapegrad.differentiate.terms import (
    Parts,
    Rows,
    Shape,
    apart_last,
    boxed,
    comparable,
    effective,
    filled_of,
    freed,
    gathered,
    is_zero,
    meet,
    number_of,
    put,
    row_major,
    rows_last,
    summed_over,
    taken,
    transposed,
    viewed,
    widened,
    with_last,
)
from tapegrad.ir.fold import SUM
from tapegrad.ir.tape import Aval, Call, Literal, Operand, Tape, Var
from tapegrad.primitives.base import Node, Slice
from tapegrad.primitives.batches import repeated, row_numbers
from tapegrad.primitives.contractions import contract
from tapegrad.primitives.elementwise import AsType, equal, not_equal, where
from tapegrad.primitives.kinds import Contraction, Reduction, Scatter, View
from tapegrad.primitives.views import BroadcastTo, Place, Reshape

TERMS = 3  # a value of more terms than this, and than its axes + 1, gets all rows


def in_all_directions(
    tape: Tape, seeds: Mapping[int, int], size: int, kept: int, last: bool
) -> Tape:
    """The tape without the inputs numbered in `seeds`, whose outputs after the first `kept` have
    `size` rows, as their first axis or, if `last`, as their last.

    Each element of a seed is 1 in its own row and 0 in all others. `seeds` maps an input to the row
    of its first element.
    """
    batcher = _Directions(tape, seeds, size, kept, last)
    for call in tape.calls:
        batcher.add(call)
    return with_reached(batcher.finish(masks=False)[0], batcher.writer)


class _Directions(Batcher):
    def __init__(
        self, tape: Tape, seeds: Mapping[int, int], size: int, kept: int, last: bool
    ) -> None:
        self.seeds, self.kept, self.last = seeds, kept, last
        self.parts: dict[Operand, Parts] = {}
        super().__init__(tape, seeds, size)

    def enter(self, k: int, var: Var, name: str) -> None:
        if k not in self.seeds:
            super().enter(k, var, name)
            return
        self.mapped.add(var)
        one = self.writer.node(Literal(var.dtype.type(1)))
        rows = Rows(self.seeds[k], (), (), effective(row_major(var.shape), var.shape))
        self.parts[var] = Parts({rows: BroadcastTo(var.shape)(one) if var.shape else one})

    def operand(self, x: Operand) -> Operand:
        if x in self.parts and x not in self.env:
            self.env[x] = self._whole(self.parts[x], x.shape).operand  # type: ignore[index]
        return super().operand(x)

    def output(self, k: int, x: Operand) -> Operand:
        if k < self.kept:
            return self.operand(x)
        if self.last and x in self.parts and x not in self.env:
            return self._whole(self.parts[x], x.shape, last=True).operand
        node = self.writer.node(self.operand(x))
        if x not in self.mapped:
            node = repeated(node, self.size)
        return (rows_last(node) if self.last else node).operand

    def add(self, call: Call) -> None:
        apart = any(x in self.parts for x in call.operands)
        if len(call.outs) == 1 and (apart or isinstance(call.primitive, Contraction)):
            self.writer.src, self.writer.reason = call.src, call.reason
            found = self._apart(call)
            unformed = found is not None and any(isinstance(x, Outer) for x in found.terms.values())
            if found is not None and (apart or unformed):
                self.mapped.add(call.out)
                whole = [self._has_all(rows) for rows in found.terms]
                most = max(TERMS, 1 + len(call.out.shape))
                if len(whole) > most or (not unformed and (sum(whole) > 1 or whole == [True])):
                    self.env[call.out] = self._whole(found, call.out.shape).operand
                else:
                    self.parts[call.out] = found
                return
        super().add(call)

    def _has_all(self, rows: Rows) -> bool:
        """Whether each element of a term has all rows."""
        return not any(rows.strides) and math.prod(rows.extents) == self.size

    def _apart(self, call: Call) -> Parts | None:
        """The result of a call, term by term; None if it needs all rows."""
        p: Any = call.primitive
        xs = [self._operand_of(x) for x in call.operands]
        if p.pointwise:
            return self._pointwise(p, xs, call.out.aval)
        if isinstance(p, Scatter):
            return self._boxed(p, xs, call)
        if p.algebra.by_rows:
            return self._by_rows(p, xs)
        summed: list[Any] = [self._summed(x) if isinstance(x, Parts) else x for x in xs]
        if None in summed:
            return None
        if isinstance(p, Contraction):
            return self._contracted(p, summed)
        if isinstance(p, Reduction) and p.fold is SUM:
            return gathered(summed_over(p, rows, x) for rows, x in summed[0].terms.items())
        if isinstance(p, View) and len(xs) == 1:
            shape = call.operands[0].shape
            return gathered(viewed(p, rows, x, shape) for rows, x in summed[0].terms.items())
        return None

    def _operand_of(self, x: Operand) -> Any:
        if x in self.parts:
            return self.parts[x]
        node = self.writer.node(self.operand(x))
        if x not in self.mapped:
            return node
        return Parts({Rows(0, (self.size,), (1,), (0,) * len(x.shape)): node})

    # ---- functions of elements

    def _pointwise(self, p: Any, xs: Sequence[Any], out: Aval) -> Parts | None:
        """An elementwise call. A linear one acts on each term; others act on terms that agree where
        they overlap."""
        shape = out.shape
        mapped = [isinstance(x, Parts) for x in xs]
        xs = [widened(x, shape) if m else x for x, m in zip(xs, mapped, strict=True)]
        linear = out.dtype.kind in "fc" and _is_linear(p, xs, mapped)
        xs = xs if linear else [x.formed if m else x for x, m in zip(xs, mapped, strict=True)]
        parts = [x for x, m in zip(xs, mapped, strict=True) if m]
        agree = all(x.beside is not None for x in parts)
        if linear and not agree:
            summed = [self._summed(x) if m else x for x, m in zip(xs, mapped, strict=True)]
            return None if None in summed else _by_terms(p, summed, mapped, shape)
        keys = list(dict.fromkeys(rows for x in parts for rows in x.terms))
        plain = all(m or isinstance(x.operand, Literal) for x, m in zip(xs, mapped, strict=True))
        zero = linear and all(x.beside == 0 for x in parts)
        if not (plain or zero) or not comparable(keys):
            return None
        xs = [self._agreeing(x, keys, shape) if m else x for x, m in zip(xs, mapped, strict=True)]
        terms = {}
        for rows in keys:
            own = [x.terms[rows] if m else x for x, m in zip(xs, mapped, strict=True)]
            terms[rows] = filled_of(rows, p(*own), shape)
        beside = terms[keys[0]].dtype.type(0)
        if not zero:
            besides = [x.beside if m else x.operand.value for x, m in zip(xs, mapped, strict=True)]
            with np.errstate(all="ignore"):
                beside = p.evaluate(*besides)
        may_be_free = beside == 0 or beside.dtype.kind == "b"  # see `_whole`
        return Parts(terms, beside) if may_be_free or not keys[0].extents else None

    def _agreeing(self, x: Parts, keys: Sequence[Rows], shape: Shape) -> Parts:
        """The value at the positions of these terms, each of which holds the whole value there."""
        if x.beside is not None:
            return Parts({rows: _at(x, rows, shape) for rows in keys}, x.beside)
        zero = x.constant(0)
        terms = {}
        for rows in keys:
            found: Any = None
            for other, node in x.terms.items():
                here = meet(rows, other, shape, node)
                if here is not False:
                    part = node if here is True else where(here, node, zero)
                    found = part if found is None else found + part
            terms[rows] = zero if found is None else found
        return Parts(terms, zero.dtype.type(0))

    def _summed(self, x: Parts) -> Parts | None:
        """The value as a sum of terms."""
        if x.beside is None:
            return x
        if x.beside != 0 or x.dtype.kind == "b":
            return None
        terms: dict[Rows, Node] = {}
        for rows, node in x.terms.items():
            for other in terms:  # leave out the elements of earlier terms
                here = meet(rows, other, node.shape[len(rows.extents) :], node)
                node = node if here is False else where(here, node.constant(0), node)
            terms[rows] = node
        return Parts(terms)

    # ---- products, and calls that join arrays

    def _contracted(self, p: Any, xs: Sequence[Any]) -> Parts | None:
        """A product with an array that has no rows. Summed axes that determine the row are kept."""
        if isinstance(xs[0], Parts) == isinstance(xs[1], Parts):
            return None
        x, y = xs if isinstance(xs[0], Parts) else xs[::-1]
        left, right = p.terms[:2] if x is xs[0] else p.terms[1::-1]
        out = p.terms.out

        def of(rows: Rows, node: Any) -> tuple[Rows, Any]:
            free = [("free", k) for k in range(len(rows.extents))]
            at = dict(zip(left, rows.strides, strict=True))
            if isinstance(node, Outer):
                return replace(rows, strides=(0,) * len(out)), node.contracted(y, left, right, out)
            kept = [k for k in left if at[k] and k not in out]
            extents = dict(zip(left, node.shape[len(free) :], strict=True))
            ours, both = [*free, *left], [*free, *kept, *out]
            found = None
            if not any(at.get(k, 0) for k in out):
                found = outer(node, y, ours, right, both, len(free) + len(kept))
            found = contract(node, y, ours, list(right), both) if found is None else found
            return Rows(
                rows.first,
                (*rows.extents, *[extents[k] for k in kept]),
                (*rows.free, *[at[k] for k in kept]),
                tuple([at.get(k, 0) for k in out]),
            ), found

        return gathered(of(rows, node) for rows, node in x.terms.items())

    def _by_rows(self, p: Any, xs: Sequence[Any]) -> Parts | None:
        """A call that is linear in each row of its last operand, if that operand alone has
        directions."""
        *given, b = xs
        cores = zip(given, p.cores, strict=False)
        if any(isinstance(x, Parts) or x.ndim > n for x, n in cores) or not isinstance(b, Parts):
            return None
        parts = self._summed(b)
        parts = parts and gathered(apart_last(*term) for term in parts.terms.items())
        if parts is None:
            return None
        return Parts({rows: along_last(p, given, x) for rows, x in parts.terms.items()})

    def _boxed(self, p: Any, xs: Sequence[Any], call: Call) -> Parts | None:
        """Operands placed among the zeros of a result."""
        boxes = p.boxes(*call.operands) if p.onto != "first" and not p.indexed else ()
        if not boxes:
            return None
        found = []
        for x, box in zip(xs, boxes, strict=True):
            if not isinstance(x, Parts):
                if not is_zero(x):
                    return None
                continue
            parts = self._summed(x.formed)
            if parts is None:
                return None
            found += [boxed(rows, node, box, call.out.shape) for rows, node in parts.terms.items()]
        return gathered(found)

    # ---- all rows

    def _whole(self, x: Parts, shape: Shape, last: bool = False) -> Node:
        """The value with all rows, as its first axis or, if `last`, as its last."""
        x = x.formed
        if x.beside is not None and not any(rows.extents for rows in x.terms):
            found: Any = BroadcastTo(self._shape(shape, last))(x.constant(x.beside))
            for rows, node in x.terms.items():
                here = self._match(rows, node, shape, last)
                found = where(here, with_last(node) if last else node, found)
            return found
        if x.dtype.kind == "b":  # the elements that differ from `beside`
            other = {
                rows: AsType(np.dtype(float))(not_equal(node, x.constant(x.beside)))
                for rows, node in x.terms.items()
            }
            moved = self._whole(Parts(other, np.float64(0)), shape, last)
            return not_equal(moved, moved.constant(0)) if not x.beside else moved.equals(0)
        x = self._summed(x) or x
        apart: dict[Rows, Node] = {}  # terms whose rows come from free axes only
        for rows, node in x.terms.items():
            if rows.extents:
                rows, node = freed(rows, filled_of(rows, node, shape))
                apart[rows] = apart[rows] + node if rows in apart else node
        # Until all terms are added, rows are counted by the axes of one term that covers the rows
        # of the others.
        box = self._box([*apart, *[rows for rows in x.terms if not rows.extents]], shape)
        total: Any = None
        for rows, node in x.terms.items():
            if not rows.extents:
                here = self._match(rows, node, shape, last, box)
                own = with_last(node, len(box.split)) if last else node
                part = where(here, own, node.constant(0))
                total = part if total is None else total + part
        for rows, node in apart.items():
            part = _scattered(rows, node, last, box)
            total = part if total is None else total + part
        if len(box.split) > 1:
            total = Reshape((*shape, box.size) if last else (box.size, *shape))(total)
        return total if box.size == self.size else _placed(total, box.start, self.size, last)

    def _box(self, terms: Sequence[Rows], shape: Shape) -> _Box:
        """Consecutive rows that one term has in order and that include those of all others;
        otherwise all rows. A term may have zeros in rows that don't exist, after it was placed in a
        larger value."""
        spans = [_span(rows, shape) for rows in terms]
        start, end = min(low for low, _ in spans), max(high for _, high in spans)
        for rows in terms if start >= 0 and end <= self.size else ():
            numbers = rows.numbers().ravel()
            if rows.extents and np.array_equal(numbers, np.arange(start, end)):
                return _Box(start, len(numbers), rows.extents)
        return _Box(0, self.size, (self.size,))

    def _shape(self, shape: Shape, last: bool) -> Shape:
        return (*shape, self.size) if last else (self.size, *shape)

    def _match(
        self, rows: Rows, node: Node, shape: Shape, last: bool, box: _Box | None = None
    ) -> Node:
        """Whether an element is in a row. `box` gives the axes that count the rows."""
        start, size, split = box or _Box(0, self.size, (self.size,))
        own = row_numbers(size, node, 1)
        behind = split if last else (*split, *(1,) * len(shape))
        own = own if own.shape == behind else Reshape(behind)(own)
        number = number_of(rows.first - start, rows.strides, shape, node)
        return equal(own, with_last(number, len(split)) if last else number)


class _Box(NamedTuple):
    """`size` rows from row `start` on, and the extents of the axes that count them."""

    start: int
    size: int
    split: Shape


def _span(rows: Rows, shape: Shape) -> tuple[int, int]:
    """The first row of a term, and the one after its last."""
    axes = zip((*rows.free, *rows.strides), (*rows.extents, *shape), strict=True)
    ends = [stride * (n - 1) for stride, n in axes]
    return rows.first + sum(min(x, 0) for x in ends), rows.first + sum(max(x, 0) for x in ends) + 1


def _scattered(rows: Rows, node: Node, last: bool, box: _Box) -> Node:
    """A term with all rows of a box. Its own rows are those of its free axes."""
    count = len(rows.extents)
    shape = node.shape[count:]
    whole = (*shape, *box.split) if last else (*box.split, *shape)
    at = rows.numbers().ravel() - box.start
    if np.array_equal(at, np.arange(box.size)):
        if last:
            node = transposed(node, (*range(count, node.ndim), *range(count)))
        return node if node.shape == whole else Reshape(whole)(node)
    if count > 1:
        node = Reshape((at.size, *shape))(node)
    inside = np.flatnonzero((at >= 0) & (at < box.size))
    if len(inside) < len(at):
        node = taken(node, inside)
    found = put(node, at[inside], box.size)
    found = rows_last(found) if last else found
    return found if found.shape == whole else Reshape(whole)(found)


def _placed(node: Node, start: int, size: int, last: bool) -> Node:
    """Rows from `start` on, among `size` rows that are zero otherwise. Rows are the first axis or,
    if `last`, the last."""
    axis = node.ndim - 1 if last else 0
    shape, index = [*node.shape], [Slice(0, n) for n in node.shape]
    shape[axis], index[axis] = size, Slice(start, node.shape[axis])
    return Place(tuple(shape), tuple(index))(node)


def _at(x: Parts, rows: Rows, shape: Shape) -> Node:
    """The value at the positions of a term, from terms that agree where they overlap."""
    found = x.constant(x.beside)
    for other, node in x.terms.items():
        here = meet(rows, other, shape, node)
        if here is True:
            return node
        found = found if here is False else where(here, node, found)
    return found


def _is_linear(p: Any, xs: Sequence[Any], mapped: Sequence[bool]) -> bool:
    """Whether an elementwise function is jointly linear in all operands that have rows."""
    if sum(mapped) == 1 and mapped.index(True) in p.algebra.linear:
        return True
    other = [k for k, m in enumerate(mapped) if not m]
    moved = [k for k, m in enumerate(mapped) if m]
    together = set(p.algebra.additive)
    return together.issuperset(moved) and all(is_zero(xs[k]) for k in other if k in together)


def _by_terms(p: Any, xs: Sequence[Any], mapped: Sequence[bool], shape: Shape) -> Parts:
    """A linear elementwise function, applied to each term."""
    pairs = [*zip(xs, mapped, strict=True)]
    terms = {}
    for rows in dict.fromkeys(rows for x, m in pairs if m for rows in x.terms):
        ts = [x.terms.get(rows) if m else None for x, m in pairs]
        if any(isinstance(t, Outer) for t in ts):
            found = linear(p, ts, [x for x, _ in pairs], (*rows.extents, *shape))
            if found is not None:
                terms[rows] = found
                continue
            ts = [None if t is None else formed(t) for t in ts]
        if p.algebra.additive:
            found = p.jvp(
                ts, None, *[x if t is None else t for (x, _), t in zip(pairs, ts, strict=True)]
            )
        else:
            found = p(*[x if t is None else t for (x, _), t in zip(pairs, ts, strict=True)])
        terms[rows] = filled_of(rows, found, shape)
    return Parts(terms)
