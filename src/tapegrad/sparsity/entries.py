"""Entries of a sparse matrix that are computed one by one, and only those that aren't constant.

A product of the matrix with a sum of unit vectors has a number for each row, and a pass over all
colours is an array of `colours x rows`. If the last calls only move and combine elements, an entry
can be computed from the few elements that it depends on:

    %1 : f8[5,300,300] = mul(t, a)                 %1 : f8[90000] = a[...]
    %2 : f8[448800] = gather(%1, places)    -->    %2 : f8[448800] = scatter_set(known, %1, ...)

The seeds `t` are known, ones and zeros, and so are many other elements. If all seeds of an element
are zero, so is the element, since a derivative is linear in its seeds; and an entry of a linear
part is a number. Entries that depend on the same seeds have one formula. For a tridiagonal matrix

    0 of the diagonal, 1 above it, 2 below it      -->     out[0::3] = 2 + 1200 x**2 ...
                                                           out[1::3] = -400 x[:-1]
                                                           out[2::3] = -400 x[:-1]

A discretised equation is mostly linear: four of the five diagonals of a nonlinear diffusion problem
are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tapegrad.core.values import Slice
from tapegrad.ir.tape import Call, Literal, Operand, Tape, Var
from tapegrad.primitives.base import Node, Writer
from tapegrad.primitives.elementwise import AsType, where
from tapegrad.primitives.kinds import Lookup, Moving, Region, Scatter, View
from tapegrad.primitives.scatter import Gather, ScatterSet, SetItem
from tapegrad.primitives.views import BroadcastTo, GetItem, Reshape
from tapegrad.sparsity.pattern import needed
from tapegrad.sparsity.relations import Map, adds, numbers, relations

FORMULAS = 16  # the most formulas that are distinguished

# An element is computed for each use, at most this many times on average.
AGAIN = 8


def entries(
    writer: Writer,
    tape: Tape,
    whole: Node,
    places: Any,
    known: Mapping[Var, Any],
    seeds: set[Var],
    among: tuple[int, Any] | None = None,
    share: float = 0.0,
) -> Node | None:
    """The elements of the vector `whole` at `places`.

    `among` is (size, positions): the elements are then placed at these positions of a vector of
    zeros. With a `share`, the result is None unless computing the elements one by one takes at most
    this share of the work for all of `whole`. `known` has the values of constant inputs of the
    tape; the values of the tape are linear in those in `seeds`.
    """
    root, count = whole.operand, len(places)
    size, at = (count, np.arange(count)) if among is None else among
    if isinstance(root, Var) and count:
        values = Values(tape, known, seeds)
        all_of_them = Pieces(values, root, places)
        sure, numbers = all_of_them.known[all_of_them.root]
        rest = np.flatnonzero(~sure)
        kinds = all_of_them.kinds(rest)
        common = np.flatnonzero(np.bincount(kinds) * FORMULAS >= count)
        groups = [rest[kinds == kind] for kind in common]
        groups.append(rest[~np.isin(kinds, common)])
        groups = [group for group in groups if len(group)]
        found = [Pieces(values, root, places[group]) for group in groups]
        work = count + sum(pieces.work() for pieces in found)
        if work <= (share or 1.0) * values.passes(root):
            out = _known(writer, size, whole.dtype, at[sure], numbers[sure])
            for pieces, group in zip(found, groups, strict=True):
                out = _put(out, pieces.written(writer), at[group])
            return out
    if share:
        return None
    taken = _taken(whole, places)
    return taken if among is None else _put(_zeros(writer, size, taken.dtype), taken, at)


def _zeros(writer: Writer, size: int, dtype: Any) -> Node:
    return BroadcastTo((size,))(writer.node(Literal(dtype.type(0))))


def _known(writer: Writer, size: int, dtype: Any, at: Any, values: Any) -> Node:
    """A vector of zeros with `values` at the positions `at`."""
    if 2 * len(at) > size:
        array = np.zeros(size, dtype)
        array[at] = values
        return writer.capture(array)
    out, levels = _zeros(writer, size, dtype), np.unique(values)
    groups = [values == x for x in levels] if len(levels) <= FORMULAS else []
    if sum(np.count_nonzero(group) for group in groups) < len(at):  # NaN equals nothing
        groups = [np.ones(len(at), bool)]
    for group in groups:
        out = _put(out, _constant(writer, values[group]), at[group])
    return out


def _put(out: Node, node: Node, places: Any) -> Node:
    """`out` with an element, or a vector, at `places`."""
    if node.shape != places.shape:
        node = BroadcastTo(places.shape)(node)
    if (row := _row(places)) is not None:
        return SetItem((row,))(out, node)
    return ScatterSet(sure=True)(out, node, _index(out.writer, places, out.size))


def _row(places: Any) -> Slice | None:
    """Equally spaced places as a slice; None for others."""
    if not len(places):
        return Slice(0, 0)
    step = int(places[1] - places[0]) if len(places) > 1 else 1
    if step <= 0 or not np.array_equal(places, places[0] + step * np.arange(len(places))):
        return None
    return Slice(int(places[0]), len(places), step)


def _index(writer: Writer, places: Any, size: int) -> Node:
    """The places as an index array of the tape."""
    return writer.capture(places.astype(np.int32 if size < 2**31 else np.int64))


class Values:
    """The values of a tape: which are known, and which depend on the seeds."""

    def __init__(self, tape: Tape, known: Mapping[Var, Any], seeds: set[Var]) -> None:
        self.calls = needed(tape)
        self.linear: set[Operand] = set(seeds)  # those that are linear in the seeds
        self._known: dict[Operand, Any] = dict(known.items())
        self._sources: dict[Var, list[tuple[int, Any]] | None] = {}
        for call in self.calls:
            if any(x in self.linear for x in call.operands):
                self.linear.update(call.outs)
            self._compute(call)

    def _compute(self, call: Call) -> None:
        p = call.primitive
        if p.foreign or p.checks or p.tapes:
            return
        xs = [self.known(x) for x in call.operands]
        if all(x is not None for x in xs):
            with np.errstate(all="ignore"):
                found = p.evaluate(*xs)
            self._known.update(zip(call.outs, found if p.results > 1 else (found,), strict=True))

    def known(self, x: Operand) -> Any:
        """The value of an operand, if it is known; else None."""
        return x.value if isinstance(x, Literal) else self._known.get(x)

    def sources(self, call: Call) -> list[tuple[int, Any]] | None:
        """For a call that moves elements, pairs of an operand and the number of the operand's
        element that each result's element is, or -1 if it is another operand's. None for other
        calls."""
        if call.out not in self._sources:
            self._sources[call.out] = self._moved(call)
        return self._sources[call.out]

    def _moved(self, call: Call) -> list[tuple[int, Any]] | None:
        p = call.primitive
        if not isinstance(p, (View, Lookup, Scatter, Region, Moving)) or adds(p):
            return None
        how = relations(call, [self.known(x) for x in call.operands], 1)
        terms = () if how is None else [term for term in how.terms if isinstance(term, Map)]
        if how is None or len(terms) < len(how.terms) or not (how.disjoint or len(terms) == 1):
            return None
        return [
            (term.operand, None if term.source is None else term.source.ravel()) for term in terms
        ]

    def passes(self, root: Operand) -> int:
        """The number of elements computed for all of `root`, counting values that depend on the
        seeds."""
        wanted: set[Operand] = {root}
        total = root.aval.size
        for call in reversed(self.calls):
            if not wanted.isdisjoint(call.outs) and not self.linear.isdisjoint(call.outs):
                wanted.update(call.operands)
                if self.known(call.outs[0]) is None and not isinstance(call.primitive, View):
                    total += sum(x.aval.size for x in call.outs)
        return total


@dataclass(eq=False)
class Piece:
    """The elements of a value numbered `places`."""

    operand: Operand
    places: Any
    call: Call | None = None  # None if they are taken from the whole value
    parts: list[Piece] = field(default_factory=list)  # the pieces that they depend on
    inside: list[Any] = field(default_factory=list)  # for each part, the mask of its elements


class Pieces:
    """The elements of `root` at some places, and the elements of other values that they depend on.

    The last ones are taken from whole values. Those are known, don't depend on the seeds, aren't
    computed element by element, or would be computed too often. `known` has for each piece the mask
    of its known elements, and their values.
    """

    def __init__(self, values: Values, root: Var, places: Any) -> None:
        self.values = values
        self._asked: dict[Operand, list[Piece]] = {}
        self.root = self._ask(root, places)
        order: list[Piece] = []
        for call in reversed(values.calls):
            if len(call.outs) > 1 or call.out not in values.linear:
                continue
            asked = self._asked.pop(call.out, [])
            order += asked
            again = sum(len(one.places) for one in asked) > AGAIN * call.out.aval.size
            if values.known(call.out) is None and not again:
                for one in asked:
                    self._split(one, call)
        order += [one for asked in self._asked.values() for one in asked]
        self.known: dict[Piece, tuple[Any, Any]] = {}
        for piece in reversed(order):  # parts first
            self.known[piece] = self._told(piece)

    def _ask(self, x: Operand, places: Any) -> Piece:
        asked = self._asked.setdefault(x, [])
        for piece in asked:
            if piece.places is places or np.array_equal(piece.places, places):
                return piece
        asked.append(Piece(x, places))
        return asked[-1]

    def _split(self, piece: Piece, call: Call) -> None:
        p: Any = call.primitive
        if p.pointwise and not p.tapes:
            piece.call = call
            for x in call.operands:
                there = piece.places
                if x.aval.size == 1:
                    there = np.zeros(1, int)
                elif x.shape != call.out.shape:
                    there = np.broadcast_to(numbers(x.shape), call.out.shape).ravel()[there]
                piece.parts.append(self._ask(x, there))
            return
        sources = self.values.sources(call)
        if sources is None:
            return
        piece.call = call
        for k, source in sources:
            there = piece.places if source is None else source[piece.places]
            inside = there >= 0
            if inside.any():
                piece.parts.append(self._ask(call.operands[k], np.maximum(there, 0)))
                piece.inside.append(inside)

    # ---- what is known

    def _told(self, piece: Piece) -> tuple[Any, Any]:
        count, value = len(piece.places), self.values.known(piece.operand)
        if value is not None:
            return np.ones(count, bool), np.ravel(value)[piece.places]
        values = np.zeros(count, piece.operand.dtype)
        if piece.call is None:
            return np.zeros(count, bool), values
        parts = [self.known[part] for part in piece.parts]
        if piece.call.primitive.pointwise:
            return self._pointwise(piece.call, parts, values)
        sure = np.ones(count, bool)
        for (part_sure, part_values), inside in zip(parts, piece.inside, strict=True):
            sure = np.where(inside, part_sure, sure)
            values = np.where(inside, part_values, values)
        return sure, values

    def _pointwise(
        self, call: Call, parts: Sequence[tuple[Any, Any]], values: Any
    ) -> tuple[Any, Any]:
        sure = np.ones(values.shape, bool)
        for part_sure, _ in parts:
            sure = sure & part_sure
        if sure.any():
            xs = [np.broadcast_to(x, values.shape)[sure] for _, x in parts]
            with np.errstate(all="ignore"):
                values[sure] = call.primitive.evaluate(*xs)
        linear = self.values.linear
        if not sure.all() and _keeps_zero(call, linear):
            zero = np.ones(values.shape, bool)
            for x, (part_sure, part_values) in zip(call.operands, parts, strict=True):
                if x in linear:
                    zero = zero & part_sure & (part_values == 0)
            values[zero & ~sure] = 0
            sure = sure | zero
        return sure, values

    def kinds(self, chosen: Any) -> Any:
        """A number for each chosen element of the root. Elements that depend on the same seeds have
        one number."""
        count = len(self.root.places)
        kinds = np.zeros(len(chosen), int)
        for piece in self.known:
            if piece.operand not in self.values.linear or len(piece.places) != count:
                continue
            value = self.values.known(piece.operand)
            columns = piece.inside if value is None else [np.ravel(value)[piece.places]]
            for column in columns:
                kinds = _told_apart(kinds, column[chosen])
        return kinds

    def _other(self, piece: Piece) -> Piece | None:
        """The other operand of a sum with zeros that come from a seed; else None."""
        if piece.call is None or len(piece.parts) != 2 or not piece.call.primitive.pointwise:
            return None
        for k, zero in enumerate(piece.parts):
            sure, values = self.known[zero]
            if zero.operand not in self.values.linear or not sure.all() or values.any():
                continue
            if _is_neutral(piece.call, k):
                return piece.parts[1 - k]
        return None

    # ---- as calls

    def work(self) -> int:
        """The number of elements computed, of values that depend on the seeds."""
        total, whole = len(self.root.places), set()
        for piece, (sure, _) in self.known.items():
            if sure.all() or piece.operand not in self.values.linear:
                continue
            if piece.call is None:
                whole.add(piece.operand)
            elif piece.call.primitive.pointwise and self._other(piece) is None:
                total += len(piece.places)
        return total + sum(map(self.values.passes, whole))

    def written(self, writer: Writer) -> Node:
        """The node of the root's elements. Its calls are appended to the tape."""
        nodes: dict[Piece, Node] = {}
        for piece, (sure, values) in self.known.items():
            parts = [nodes[part] for part in piece.parts]
            if sure.all():
                nodes[piece] = _constant(writer, values)
            elif (other := self._other(piece)) is not None:
                nodes[piece] = nodes[other]
            elif piece.call is None:
                nodes[piece] = _taken(writer.node(piece.operand), piece.places)
            elif piece.call.primitive.pointwise:
                writer.src, writer.reason = piece.call.src, piece.call.reason
                nodes[piece] = writer.apply(piece.call.primitive, parts)
            else:
                nodes[piece] = _chosen(writer, piece, parts)
        found = nodes[self.root]
        return found if found.shape else BroadcastTo(self.root.places.shape)(found)


def _told_apart(kinds: Any, column: Any) -> Any:
    """The kinds refined: elements with different values in `column` get different kinds, unless
    there are too many values."""
    if not len(column):
        return kinds
    levels = np.unique(column[:: max(1, len(column) // 1000)])
    at = np.minimum(np.searchsorted(levels, column), len(levels) - 1)
    if not np.array_equal(levels[at], column):
        levels, at = np.unique(column, return_inverse=True)
    if len(levels) > FORMULAS:
        return kinds
    kinds = kinds * len(levels) + at
    return (np.cumsum(np.bincount(kinds) > 0) - 1)[kinds]


def _keeps_zero(call: Call, linear: set[Operand]) -> bool:
    """Whether the result is zero if the operands are in which it is linear. Tried with ones for the
    other operands."""
    xs = [x.dtype.type(0 if x in linear else 1) for x in call.operands]
    with np.errstate(all="ignore"):
        return bool(call.primitive.evaluate(*xs) == 0)


def _is_neutral(call: Call, k: int) -> bool:
    """Whether the result is the other operand if the k-th one is zero. Tried with two numbers."""
    xs = np.zeros((2, 2), call.out.dtype)
    xs[1 - k] = 1.5, -2.5
    return bool(np.array_equal(call.primitive.evaluate(*xs), xs[1 - k]))


def _constant(writer: Writer, values: Any) -> Node:
    """Known elements as a constant. Small integers take one byte each."""
    first = values[0]
    if values.tobytes() == np.full_like(values, first).tobytes():
        return writer.node(Literal(first))
    with np.errstate(invalid="ignore"):
        small = values.astype(np.int8) if values.dtype.kind == "f" else values
    same = small.astype(values.dtype).tobytes() == values.tobytes()  # zeros have signs
    return AsType(values.dtype)(writer.capture(small)) if same else writer.capture(values)


def _taken(whole: Node, places: Any) -> Node:
    """The elements of a value numbered `places`."""
    if whole.size == 1 and len(places) == 1 and not whole.shape:
        return whole
    flat = whole if len(whole.shape) == 1 else Reshape((whole.size,))(whole)
    if (row := _row(places)) is not None:
        return flat if row == Slice(0, flat.size, 1) else GetItem((row,))(flat)
    return Gather(sure=True)(flat, _index(whole.writer, places, whole.size))


def _chosen(writer: Writer, piece: Piece, parts: Sequence[Node]) -> Node:
    """Each element from the part that it depends on; zero if there is none."""
    inside = np.zeros(len(piece.places), bool)
    for one in piece.inside:
        inside |= one
    found: Any = None if inside.all() else writer.node(Literal(piece.operand.dtype.type(0)))
    for node, one in zip(parts, piece.inside, strict=True):
        found = node if found is None or one.all() else where(writer.capture(one), node, found)
    return found
