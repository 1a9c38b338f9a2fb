"""Fronts: the leading elements of each array that the rounds of a loop read.

An array that grows from round to round has a fixed shape, and its elements are the first ones (see
`primitives.parts`). Its readers read a part: a number of elements that depends on the step.
Followed backwards, this number says how far each operand is read, and loops run no further:

    for j in range(20): y[j] = x[j] * w[j]          for j in range(i):
    for j in range(20): s += part(y, 0:i)[j]   -->      s += x[j] * w[j]

If nothing reads a part behind its elements, it is a view: nothing is filled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tapegrad.core.values import Span
from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import At
from tapegrad.ir.tape import Call, Operand, Tape, Var
from tapegrad.primitives.kinds import (
    Composite,
    Contraction,
    ReadPart,
    Reduction,
    Spanning,
    Unset,
    View,
)
from tapegrad.schedule.access import entries

Front = tuple[Affine | None, ...]  # the number of elements along each axis; None for all


def same(x: Affine | None, y: Affine | None) -> bool:
    """Whether two numbers are equal for all steps."""
    if x is None or y is None:
        return x is y
    return x == y or x - y == Affine()


def places(call: Call, affine: Callable[[Operand], Affine | None]) -> At | None:
    """The places of a call on a part, as affine numbers of the steps; None if they aren't
    affine."""
    primitive: Any = call.primitive
    steps = [affine(step) for step in primitive.steps(call.operands)]
    return None if None in steps else entries(primitive.where.places(steps))


def front_of(call: Call, found: Sequence[Any]) -> Front:
    """The number of elements along each axis of a part with these places."""
    index = call.primitive.index  # type: ignore[attr-defined]
    counts = iter(found[len(index) :])
    return tuple(
        [next(counts) if isinstance(k, Span) else None for k in index if type(k) is not int]
    )


def _shown(call: Call, indices: Sequence[Index]) -> list[Index | None]:
    """For each axis of the operand, the index with which a view goes along it from its start; None
    if it goes along it in another way."""
    p: Any = call.primitive
    shape = call.operands[0].shape
    at = p.read([Affine(((index, 1),)) for index in indices], shape)
    found: list[Index | None] = [None] * len(shape)
    for axis, k in enumerate(at or ()):
        still = not any(move[axis] for move in getattr(p, "moves", ()))
        found[axis] = k.index if isinstance(k, Affine) and still else None
    return found


class Fronts:
    """How far each variable of a tape is read."""

    def __init__(self, tape: Tape, affine: Callable[[Operand], Affine | None]) -> None:
        """`affine` returns the affine number that a scalar is; None if it isn't one."""
        self.read: dict[Var, list[Affine | None]] = {}
        self.counts: dict[Var, Front] = {}  # for each part: its elements before the fill
        self.fills: dict[Var, Any] = {}
        self.views: set[Var] = set()
        self.made: dict[Var, Call] = {}
        if not any(isinstance(call.primitive, Spanning) for call in tape.calls):
            return
        self.affine = affine
        self.made.update((out, call) for call in tape.calls for out in call.outs)
        for call in tape.calls:
            if isinstance(call.primitive, ReadPart):
                found = places(call, self.affine)
                if found is not None:
                    self.counts[call.out] = front_of(call, found)
                    self.fills[call.out] = call.primitive.fill
        for x in (*tape.outputs, *(guard.operand for guard in tape.guards)):
            self._whole(x)
        for call in reversed(tape.calls):
            self._follow(call)
        for out, front in self.counts.items():
            wanted = self.read.get(out, front)
            if all(a is None or same(a, b) for a, b in zip(front, wanted, strict=True)):
                self.views.add(out)

    def of(self, x: Operand) -> Front:
        """How far a variable is read."""
        front = self.read.get(x) if isinstance(x, Var) else None
        return (None,) * len(x.shape) if front is None else tuple(front)

    def neutral(self, x: Operand, axis: int, fill: Any) -> Affine | None:
        """The number of elements along an axis before those that are `fill`; None if it isn't
        known."""
        while isinstance(x, Var) and x not in self.counts and x in self.made:
            call = self.made[x]
            if not isinstance(call.primitive, View):
                return None
            indices = [Index(n) for n in x.shape]
            entries = _shown(call, indices)
            if indices[axis] not in entries:
                return None
            x, axis = call.operands[0], entries.index(indices[axis])
        if not isinstance(x, Var) or x not in self.counts or self.fills[x] != fill:
            return None
        return self.counts[x][axis]

    def of_depth(self, call: Call) -> Affine | None:
        """The number of terms in each sum of a product, over one axis. Behind the elements of an
        operand with zeros there is nothing to multiply. None if it isn't known."""
        (x, y), terms = call.operands, call.primitive.terms  # type: ignore[attr-defined]
        if len(terms.depth) != 1 or x.shape[terms.x.index(terms.depth)] < 2:
            return None
        left = self.neutral(x, terms.x.index(terms.depth), 0)
        return self.neutral(y, terms.y.index(terms.depth), 0) if left is None else left

    # ----

    def _whole(self, x: Operand) -> None:
        self._needs(x, (None,) * len(x.shape))

    def _needs(self, x: Operand, front: Sequence[Affine | None]) -> None:
        if not isinstance(x, Var):
            return
        known = self.read.get(x)
        if known is None:
            self.read[x] = list(front)
        else:
            self.read[x] = [a if same(a, b) else None for a, b in zip(known, front, strict=True)]

    def _follow(self, call: Call) -> None:
        """Note how far a call reads its operands, given how far its result is read."""
        p: Any = call.primitive
        if len(call.outs) != 1 or isinstance(p, Unset):
            for x in call.operands:
                self._whole(x)
            return
        xs = call.operands
        out = self.of(call.outs[0]) if call.outs[0] in self.read else (None,) * len(call.out.shape)
        if p.scalar:
            for x in xs:
                lead = len(out) - len(x.shape)
                ends = zip(x.shape, call.out.shape[lead:], out[lead:], strict=True)
                self._needs(x, [None if n == 1 != end else far for n, end, far in ends])
        elif isinstance(p, View):
            self._of_view(call, out)
        elif isinstance(p, Reduction) and not isinstance(p, Composite):
            rest = iter(out)
            identity = p.fold.identity(call.out.dtype)
            self._needs(
                xs[0],
                [
                    self.neutral(xs[0], a, identity) if a in p.axes else next(rest)
                    for a in range(len(xs[0].shape))
                ],
            )
        elif isinstance(p, Contraction):
            terms = p.terms
            far = dict(zip(terms.out, out, strict=True)) | dict.fromkeys(terms.batch)
            far |= dict.fromkeys(terms.depth, self.of_depth(call))
            if max(map(len, (terms.rows, terms.columns))) > 1:  # these become one axis
                far |= dict.fromkeys(terms.out)
            for x, term in zip(xs, terms, strict=False):
                self._needs(x, [far[k] for k in term])
        elif isinstance(p, Spanning):
            self._of_part(call, out)
        else:
            for x in xs:
                self._whole(x)

    def _of_view(self, call: Call, out: Front) -> None:
        """Note how far a view reads its operand. An axis that it shows from its start is read as
        far as the view's own."""
        x = call.operands[0]
        indices = [Index(n) for n in call.out.shape]
        fronts = dict(zip(indices, out, strict=True))
        front = [None if k is None else fronts[k] for k in _shown(call, indices)]
        self._needs(x, front)
        for step in call.operands[1:]:
            self._whole(step)

    def _of_part(self, call: Call, out: Front) -> None:
        p: Any = call.primitive
        x = call.operands[0]
        found = places(call, self.affine)
        if found is None:
            for y in call.operands:
                self._whole(y)
            return
        inner = front_of(call, found)  # of the smaller array
        counts = iter(inner)
        outer: list[Affine | None] = []  # of the larger one
        for k, start in zip(p.index, found, strict=False):
            count = None if isinstance(k, int) else next(counts)
            outer.append(count if start == Affine() and count and k.step == 1 else None)
        if isinstance(p, ReadPart):
            self._needs(x, outer)
        elif p.memory.updates:
            self._needs(x, out)
            self._needs(call.operands[1], inner)
        else:
            self._needs(x, inner)
