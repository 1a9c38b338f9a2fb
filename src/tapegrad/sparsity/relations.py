"""Dependences of a call's result on its operands, element by element, by the call's kind.

For a primitive that moves elements its forward rule is evaluated: the rule is linear, so applied to
the numbers of elements it returns the source of each element. So views, slices, gathers, joins and
writes need no rules of their own here. For a primitive that adds where it writes, the reverse rule
is evaluated, which reads there. Reductions, running sums and products of arrays follow from what
their kinds declare. For all other calls every element of the result depends on all elements of the
operands.

A relation is with one operand:

    Map(source)                       element k depends on the operand's element source[k], if any
    Fold(targets, sources, count)     element targets[n] of `count` depends, among others, on the
                                      operand's element sources[n]

Arrays in a relation have a leading axis if they differ from round to round of a loop. If scalars or
indices aren't known, the result is `lumped`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tapegrad.errors import InternalError
from tapegrad.ir.tape import METHODS, Aval, Builder, Call
from tapegrad.primitives.base import Writer, broadcast_shapes
from tapegrad.primitives.batches import cores_of
from tapegrad.primitives.kinds import (
    Contraction,
    Library,
    Lookup,
    Moving,
    Reduction,
    Region,
    Running,
    Scatter,
    Spanning,
    View,
)

MAX_PAIRS = (
    2 * 10**7
)  # pairs of a running sum that are distinguished; beyond, all steps depend on all


@dataclass(frozen=True, eq=False)
class Map:
    """Each element depends on at most one element of the operand."""

    operand: int
    source: Any  # None if it is the element at the same position


@dataclass(frozen=True, eq=False)
class Fold:
    """Each of `count` elements depends on several elements."""

    operand: int
    targets: Any
    sources: Any
    count: int
    spread: Any = None  # each result's number among these; None if it is the same
    otherwise: Fold | None = None  # less exact, but cheaper if there are many columns


@dataclass(frozen=True, eq=False)
class Relations:
    """The relations with all operands. If `disjoint`, no element depends on two operands."""

    terms: tuple[Map | Fold, ...]
    disjoint: bool = False


Known = Sequence[Any]  # for each operand its value, or None


def is_active(aval: Aval) -> bool:
    """Whether values of this type have derivatives."""
    return aval.dtype.kind in "fc"


def relations(call: Call, known: Known, rounds: int) -> Relations | None:
    """The relations of a call's result; None if they aren't known. A known integer that differs
    between rounds is a `Rounds`."""
    p = call.primitive
    if p.pointwise or p.ties.leans:
        return _pointwise(call, known)
    if isinstance(p, Moving) and not isinstance(p, Spanning):
        return _window(call, known, rounds)
    if isinstance(p, (View, Lookup, Scatter, Region, Spanning)):
        return _mover(call, known, rounds)
    if isinstance(p, Reduction):
        return _reduction(call)
    if isinstance(p, Running):
        return _running(call)
    if isinstance(p, Contraction):
        return _contraction(call)
    return _declared(call, known) if isinstance(p, Library) else None


class Rounds:
    """A known integer, or an array of integers, with a value for each round."""

    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values = values


class Among:
    """An integer that is one of these values; which one isn't known."""

    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values = values


def numbers(shape: Sequence[int]) -> Any:
    """The numbers of the elements of an array of this shape."""
    return np.arange(math.prod(shape)).reshape(tuple(shape))


# ---- elementwise


def _pointwise(call: Call, known: Known) -> Relations:
    shape = call.out.shape
    reads = _selected(call, known) if call.primitive.algebra.selects else {}
    terms = []
    for k, x in enumerate(call.operands):
        if not is_active(x.aval):
            continue
        if x.shape == shape and k not in reads:
            terms.append(Map(k, None))
            continue
        source = np.broadcast_to(numbers(x.shape), shape).ravel()
        if k in reads:
            source = np.where(np.broadcast_to(reads[k], shape).ravel() != 0, source, -1)
        terms.append(Map(k, source))
    return Relations(tuple(terms))


def _selected(call: Call, known: Known) -> dict[int, Any]:
    """For a primitive that selects by known conditions, the positions where each operand is
    selected."""
    plain = [k for k, x in enumerate(call.operands) if x.aval.dtype.kind == "b"]
    if not plain or any(known[k] is None or isinstance(known[k], (Rounds, Among)) for k in plain):
        return {}
    tape = _reverse_rule(call.primitive, tuple([x.aval for x in call.operands]), call.out.aval)
    zeros = [
        np.zeros(x.shape, x.dtype) if k not in plain else np.asarray(known[k])
        for k, x in enumerate(call.operands)
    ]
    found = METHODS["run"](tape[0], [np.ones(call.out.shape, call.out.dtype), *zeros])
    return dict(zip(tape[1], found, strict=True))


@lru_cache(maxsize=512)
def _reverse_rule(primitive: Any, avals: tuple[Aval, ...], out: Aval) -> Any:
    """The tape of a reverse rule that doesn't read the result, and the operands that have
    cotangents."""
    builder = Builder(str(primitive.name))
    writer = Writer(builder)
    ct = writer.node(builder.input(Aval(out.shape, out.dtype)))
    xs = [writer.node(builder.input(aval)) for aval in avals]
    found = primitive.vjp(ct, None, *xs)
    there = [k for k, x in enumerate(found) if x is not None]
    return builder.finish([found[k].operand for k in there]), there


# ---- calls that move elements


def _mover(call: Call, known: Known, rounds: int) -> Relations | None:
    """The source of each element of the result, by the forward rule applied to numbers. If the
    primitive adds, the target of each operand's element, by the reverse rule."""
    plain = [k for k, x in enumerate(call.operands) if not is_active(x.aval)]
    if any(known[k] is None or isinstance(known[k], Among) for k in plain):
        return _unknown(call)
    moving = any(isinstance(known[k], Rounds) for k in plain)
    each = []
    for r in range(rounds if moving else 1):
        xs = [_value(known[k], r) if k in plain else None for k in range(len(call.operands))]
        each.append(_moved_once(call, xs))
    if not moving:
        return each[0]
    terms: list[Map | Fold] = []
    for same in zip(*[one.terms for one in each], strict=True):
        first = same[0]
        if isinstance(first, Map):
            terms.append(Map(first.operand, np.stack([t.source for t in same])))
        else:
            terms.append(_stacked(same))
    return Relations(tuple(terms), each[0].disjoint)


def _stacked(folds: Sequence[Any]) -> Fold:
    """The folds of all rounds as one with a leading axis. Shorter folds are filled with targets of
    -1."""
    most = max(len(fold.targets) for fold in folds)
    targets = np.full((len(folds), most), -1)
    sources = np.zeros((len(folds), most), int)
    for r, fold in enumerate(folds):
        targets[r, : len(fold.targets)] = fold.targets
        sources[r, : len(fold.sources)] = fold.sources
    return Fold(folds[0].operand, targets, sources, folds[0].count)


def _value(known: Any, r: int) -> Any:
    return known.values[r] if isinstance(known, Rounds) else known


def _moved_once(call: Call, xs: Sequence[Any]) -> Relations:
    p: Any = call.primitive
    active = [k for k, x in enumerate(call.operands) if is_active(x.aval)]
    if adds(p):
        to = p.vjp(1 + numbers(call.out.shape), None, *_shaped(call, xs))
        terms: list[Map | Fold] = []
        for k in active:
            place = to[k].alone() if hasattr(to[k], "alone") else to[k]
            place = np.broadcast_to(place, call.operands[k].shape).ravel() - 1
            terms.append(Fold(k, place, numbers(place.shape), call.out.aval.size))
        return Relations(tuple(terms))
    ts: list[Any] = [None] * len(xs)
    start = 1
    for k in active:
        shape = call.operands[k].shape
        ts[k] = start + numbers(shape)
        start += math.prod(shape)
    found = np.asarray(p.jvp(ts, None, *_shaped(call, xs))).ravel()
    terms, start = [], 1
    for k in active:
        size = call.operands[k].aval.size
        own = (found >= start) & (found < start + size)
        terms.append(Map(k, np.where(own, found - start, -1)))
        start += size
    return Relations(tuple(terms), disjoint=True)


def _shaped(call: Call, xs: Sequence[Any]) -> list[Any]:
    """The operands for a rule. Operands whose shape alone is read are zeros."""
    pairs = zip(call.operands, xs, strict=True)
    return [np.broadcast_to(0, v.shape) if x is None else np.asarray(x) for v, x in pairs]


def adds(primitive: Any) -> bool:
    """Whether several elements may have one target, or a target that has a value."""
    if isinstance(primitive, Moving):
        return primitive.adds
    return isinstance(primitive, Scatter) and primitive.indexed and primitive.onto == "zeros"


def _window(call: Call, known: Known, rounds: int) -> Relations | None:
    """The relations of a window. They follow from the places of the windows, which move with the
    steps."""
    p: Any = call.primitive
    writes = isinstance(p, Scatter)
    large = call.out.shape if writes else call.operands[0].shape
    at = _window_at(p, large, known, rounds)
    if at is None:
        return None
    written = 1 if writes and p.onto == "first" else 0
    count, small = math.prod(large), numbers((at.shape[-1],))
    if any(isinstance(step, Among) for step in known):  # wherever it may be
        here = np.broadcast_to(small, at.shape)[at >= 0]
        if not writes:
            return Relations((Fold(0, here, at[at >= 0], len(small)),))
        terms: list[Map | Fold] = [Fold(written, at[at >= 0], here, count)]
        return Relations((*terms, *[Map(0, numbers((count,)))] * written))
    if not writes:
        return Relations((Map(0, at),))
    if p.adds:
        sources = np.broadcast_to(small, at.shape)
        return Relations((Map(0, numbers((count,))), Fold(written, at, sources, count)))
    source = np.full((*at.shape[:-1], count + 1), -1)  # the last place is for elements outside
    np.put_along_axis(source, at, np.broadcast_to(small, at.shape), -1)
    source = source[..., :count]
    terms = [Map(written, source)]
    if written:
        terms.append(Map(0, np.where(source < 0, numbers((count,)), -1)))
    return Relations(tuple(terms), disjoint=True)


def _window_at(p: Any, large: Sequence[int], known: Known, rounds: int) -> Any:
    """The numbers of a window's elements in the larger array.

    The array has one axis, or two if the numbers differ between rounds or possible steps. None if
    they aren't known. An element outside of the larger array is -1: a condition prevents its round
    from reading it.
    """
    steps = known[len(known) - len(p.moves) :] if p.moves else ()
    among = [step for step in steps if isinstance(step, Among)]
    if any(step is None for step in steps) or len(among) > 1:
        return None
    if among and any(isinstance(step, Rounds) for step in steps):
        return None
    values = [_steps(step, len(among[0].values) if among else rounds) for step in steps]
    if any(v.size == 0 for v in values):
        return np.zeros((0, math.prod(_extents(p.index))), int)
    moving = any(isinstance(step, (Rounds, Among)) for step in steps)
    at: Any = np.zeros((1, 1), int)
    for axis, (k, n) in enumerate(zip(p.index, large, strict=True)):
        own = np.array([k]) if isinstance(k, int) else k.start + k.step * np.arange(k.count)
        far = sum(v * move[axis] for v, move in zip(values, p.moves, strict=True))
        there = own + np.reshape(far if moving else np.ravel(far)[:1], (-1, 1))
        if isinstance(k, int):
            there = np.where(there < 0, there + n, there)  # from the end
        elif (there < 0).any():
            return None
        there = np.where((there >= 0) & (there < n), there, -1)[:, None]
        at = np.where((at[..., None] < 0) | (there < 0), -1, at[..., None] * n + there)
        at = at.reshape(len(at), -1)
    return at if moving else at[0]


def _extents(index: Any) -> list[int]:
    return [k.count for k in index if not isinstance(k, int)]


def written_at(call: Call, known: Known, rounds: int) -> Any:
    """The place in the first operand to which each element of the second one is written, -1 for
    none.

    The array has one axis, or two if the places differ between rounds. None if they aren't known,
    or would take too long to compute.
    """
    p: Any = call.primitive
    shape = call.operands[0].shape
    if isinstance(p, Moving) and not isinstance(p, Spanning):
        return (
            None
            if any(isinstance(x, Among) for x in known)
            else _window_at(p, shape, known, rounds)
        )
    if rounds * call.out.aval.size > MAX_PAIRS:
        return None
    how = _mover(call, known, rounds)
    term = None if how is None else next((t for t in how.terms if t.operand == 1), None)
    if term is None:
        return None
    if isinstance(term, Fold):
        return term.targets
    sources = np.atleast_2d(term.source)
    at = np.full((len(sources), call.operands[1].aval.size), -1)
    row, place = np.nonzero(sources >= 0)
    at[row, sources[row, place]] = place
    return at


def _steps(step: Any, rounds: int) -> Any:
    """The values of a step in all rounds."""
    if isinstance(step, (Rounds, Among)):
        return np.asarray(step.values, int)
    return np.full(rounds, int(step))


def _unknown(call: Call) -> Relations | None:
    """The relation of a lookup at unknown indices: each element depends on all indices of the
    indexed axes. None for other calls."""
    if not isinstance(call.primitive, Lookup):
        return None
    x, *indices = call.operands
    lead, rest = x.shape[: len(indices)], x.shape[len(indices) :]
    count = math.prod(rest)
    group = np.tile(np.arange(count), math.prod(lead))
    spread = np.tile(np.arange(count), math.prod(indices[0].shape))
    return Relations((Fold(0, group, numbers(group.shape), count, spread),))


# ---- calls that fold elements


def _axes_apart(shape: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], Any]:
    """The shape with extent 1 along these axes, and for each element the number of its target."""
    kept = tuple([1 if a in axes else n for a, n in enumerate(shape)])
    return kept, np.broadcast_to(numbers(kept), tuple(shape)).ravel()


def _reduction(call: Call) -> Relations:
    p: Any = call.primitive
    (x,) = call.operands
    _, targets = _axes_apart(x.shape, p.axes)
    return Relations((Fold(0, targets, numbers(targets.shape), call.out.aval.size),))


def _running(call: Call) -> Relations:
    """An element depends on those before it along the axis, or behind it if `reverse`. A factor
    counts from the element behind it on."""
    p: Any = call.primitive
    shape, axis = call.out.shape, p.axis
    length = shape[axis]
    terms: list[Map | Fold] = []
    for k, x in enumerate(call.operands):
        factor = k < len(call.operands) - 1
        kept, spread = _axes_apart(shape, (axis,))
        _, targets = _axes_apart(x.shape, (axis,))
        alike = Fold(k, targets, numbers(targets.shape), math.prod(kept), spread)
        if math.prod(shape) * (length + 1) // 2 > MAX_PAIRS:
            terms.append(alike)
            continue
        later, earlier = np.tril_indices(length, -1 if factor else 0)
        if p.reverse:  # factor j is between the elements j and j + 1
            earlier = length - 1 - factor - earlier
            later = length - 1 - later
        targets = np.moveaxis(numbers(shape), axis, 0)[later].ravel()
        sources = np.moveaxis(numbers(x.shape), axis, 0)[earlier].ravel()
        terms.append(Fold(k, targets, sources, math.prod(shape), None, alike))
    return Relations(tuple(terms))


def _contraction(call: Call) -> Relations:
    """An element depends on all of the row and the column that are multiplied."""
    p: Any = call.primitive
    out = p.terms.out
    terms = []
    for k, (x, letters) in enumerate(zip(call.operands, p.terms, strict=False)):
        summed = [axis for axis, letter in enumerate(letters) if letter not in out]
        _, targets = _axes_apart(x.shape, summed)
        kept = [letter for letter in letters if letter in out]
        extents = [n for n, letter in zip(x.shape, letters, strict=True) if letter in out]
        order = [kept.index(letter) for letter in out if letter in kept]
        own = np.transpose(numbers(extents), order)
        spread = own.reshape(
            [n if k in kept else 1 for n, k in zip(call.out.shape, out, strict=True)]
        )
        spread = np.broadcast_to(spread, call.out.shape).ravel()
        terms.append(Fold(k, targets, numbers(targets.shape), math.prod(extents), spread))
    return Relations(tuple(terms))


# ---- all other calls


def _declared(call: Call, known: Known) -> Relations | None:
    """The relations that a primitive declares by `parts`; None if it declares none."""
    p: Any = call.primitive
    plain = [None if isinstance(x, (Rounds, Among)) else x for x in known]
    parts = p.parts(plain, *[x.aval for x in call.operands])
    if parts is None:
        return None
    terms = []
    for k, (part, x) in enumerate(zip(parts, call.operands, strict=True)):
        if part is None:
            terms.append(_lump(k, x.shape, call.out.shape))
        else:
            terms.append(Fold(k, part[0], part[1], call.out.aval.size))
    return Relations(tuple(terms))


def lumped(call: Call, result: int) -> Relations:
    """Relations by which each element of a result depends on all elements of the operands. With
    batch axes it depends on the elements with its own batch index."""
    p, out = call.primitive, call.outs[result].shape
    cores = cores_of(p, len(call.operands)) or ()
    shapes = [x.shape for x in call.operands]
    batches = [shape[: len(shape) - n] for shape, n in zip(shapes, cores, strict=False)]
    batch = broadcast_shapes(*batches) if cores else ()
    if out[: len(batch)] != batch:
        raise InternalError(f"{p}: its results have no batch {batch}")
    terms = []
    for k, shape in enumerate(shapes):
        own = len(shape) - len(batches[k]) if cores else len(shape)
        terms.append(_lump(k, shape, out, own, len(batch)))
    return Relations(tuple(terms))


def _lump(
    k: int, shape: Sequence[int], out: Sequence[int], own: int | None = None, batch: int = 0
) -> Fold:
    """A relation with all of the last `own` axes of an operand. The axes before are the result's
    first ones."""
    ahead = shape[: len(shape) - (len(shape) if own is None else own)]
    _, targets = _axes_apart(shape, range(len(ahead), len(shape)))
    spread = numbers(ahead).reshape((*ahead, *[1] * (len(out) - batch)))
    count = math.prod(ahead)
    return Fold(k, targets, numbers(targets.shape), count, np.broadcast_to(spread, out).ravel())
