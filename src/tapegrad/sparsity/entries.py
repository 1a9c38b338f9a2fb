"""Entries of a sparse matrix, each computed by itself, and only those that change.

A product of the matrix with a sum of unit vectors has a number for each of its rows, and a pass
along all colours is an array of `colours x rows`. Behind what only moves and combines elements, an
entry can be computed from the few elements that it is made of:

    %1 : f8[5,300,300] = mul(t, a)                 %1 : f8[90000] = a[...]
    %2 : f8[448800] = gather(%1, places)    -->    %2 : f8[448800] = scatter_set(known, %1, ...)

The seeds `t` are known, ones and zeros, so much else is. Where all seeds that an element is made of
are zero, so is the element, since a derivative is linear in its seeds; and an entry of a linear
part is a number. Entries that are made of the same seeds have one formula. Of a tridiagonal matrix

    0 of the diagonal, 1 above it, 2 below it      -->     out[0::3] = 2 + 1200 x**2 ...
                                                           out[1::3] = -400 x[:-1]
                                                           out[2::3] = -400 x[:-1]

A discretised equation is mostly linear: of five diagonals of a nonlinear diffusion problem four are
numbers.
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

FORMULAS = 16  # at most so many are told apart

# An element is computed as often as it is asked for, at most so many times as there are elements.
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
    """The elements of `whole`, a value of one axis, at `places`; or `among` so many zeros, where
    that has a place for each. With a `share`, None unless each by itself takes so little of the
    work of all of `whole`.

    `known` has the values of inputs of the tape that don't change, `seeds` which of these the
    values are linear in.
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
    """So many zeros, and these values at their places."""
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
    """Elements put in their places among others; one stands for all, where they are made of one."""
    if node.shape != places.shape:
        node = BroadcastTo(places.shape)(node)
    if (row := _row(places)) is not None:
        return SetItem((row,))(out, node)
    return ScatterSet(sure=True)(out, node, _index(out.writer, places, out.size))


def _row(places: Any) -> Slice | None:
    """Places that are equally far apart."""
    if not len(places):
        return Slice(0, 0)
    step = int(places[1] - places[0]) if len(places) > 1 else 1
    if step <= 0 or not np.array_equal(places, places[0] + step * np.arange(len(places))):
        return None
    return Slice(int(places[0]), len(places), step)


def _index(writer: Writer, places: Any, size: int) -> Node:
    """Places among so many elements."""
    return writer.capture(places.astype(np.int32 if size < 2**31 else np.int64))


class Values:
    """A tape's values: which are known, and which the seeds are in."""

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
        """The value of what is known, or None."""
        return x.value if isinstance(x, Literal) else self._known.get(x)

    def sources(self, call: Call) -> list[tuple[int, Any]] | None:
        """Of what moves elements: for each operand that some come from, which of its elements each
        one is, -1 where it comes from another one. None of what does more."""
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
        """How many elements are computed for all of a value, of those that the seeds are in."""
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
    """Elements of a value: those with the numbers `places`."""

    operand: Operand
    places: Any
    call: Call | None = None  # None, if they are taken out of the whole value
    parts: list[Piece] = field(default_factory=list)  # what they are made of
    inside: list[Any] = field(default_factory=list)  # for each part, which elements come from it


class Pieces:
    """The elements of `root` at some places, and those of other values that they are made of.

    These go down to what is taken out of whole values: what is known; what the seeds aren't in;
    what isn't made element by element; and what would be computed again and again. `known` says of
    each piece which elements are known, and their values.
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
        for piece in reversed(order):  # those that others are made of first
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
        """A number for each of the chosen elements of the root: those that are made of the same
        seeds have one number."""
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
        """Of a sum with zeros that a seed makes, the other operand."""
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
        """How many elements are computed, of values that the seeds are in."""
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
        """The calls that compute the elements of the root."""
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
    """Kinds of elements, which are others where a column has other values, if these are few."""
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
    """Whether a result is zero where the operands are that it is linear in, as it has to be. It is
    tried, with a number for the others."""
    xs = [x.dtype.type(0 if x in linear else 1) for x in call.operands]
    with np.errstate(all="ignore"):
        return bool(call.primitive.evaluate(*xs) == 0)


def _is_neutral(call: Call, k: int) -> bool:
    """Whether a result is the other operand where the k-th one is zero. It is tried."""
    xs = np.zeros((2, 2), call.out.dtype)
    xs[1 - k] = 1.5, -2.5
    return bool(np.array_equal(call.primitive.evaluate(*xs), xs[1 - k]))


def _constant(writer: Writer, values: Any) -> Node:
    """Known elements; those that are small integers take a byte each."""
    first = values[0]
    if values.tobytes() == np.full_like(values, first).tobytes():
        return writer.node(Literal(first))
    with np.errstate(invalid="ignore"):
        small = values.astype(np.int8) if values.dtype.kind == "f" else values
    same = small.astype(values.dtype).tobytes() == values.tobytes()  # zeros have signs
    return AsType(values.dtype)(writer.capture(small)) if same else writer.capture(values)


def _taken(whole: Node, places: Any) -> Node:
    """Elements of a value, by their numbers."""
    if whole.size == 1 and len(places) == 1 and not whole.shape:
        return whole
    flat = whole if len(whole.shape) == 1 else Reshape((whole.size,))(whole)
    if (row := _row(places)) is not None:
        return flat if row == Slice(0, flat.size, 1) else GetItem((row,))(flat)
    return Gather(sure=True)(flat, _index(whole.writer, places, whole.size))


def _chosen(writer: Writer, piece: Piece, parts: Sequence[Node]) -> Node:
    """Each element of the part that it comes from; zero where of none."""
    inside = np.zeros(len(piece.places), bool)
    for one in piece.inside:
        inside |= one
    found: Any = None if inside.all() else writer.node(Literal(piece.operand.dtype.type(0)))
    for node, one in zip(parts, piece.inside, strict=True):
        found = node if found is None or one.all() else where(writer.capture(one), node, found)
    return found
