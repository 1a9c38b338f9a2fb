"""Parts: windows whose extents change from round to round, in arrays of fixed shape.

    for i in range(n):
        y = x[:i] * w[:i]          y has i elements

The i elements are the first ones of an array of `extent` elements. The elements behind them are
never read: a `Part` replaces them by `fill` before an operation that would read them, by zeros for
a sum. So arrays have one shape in all rounds, and the rounds are equal.

As for windows (see `primitives.windows`) an index is static, except for its starts and for the
lengths of its `Span`s. These numbers are its *places*: first the starts along all axes, then the
lengths of the spans. They move by `moves[k]` for each unit of step k. The steps are the last
operands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.core.values import VIEW
from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives.base import parametric
from tapegrad.primitives.kinds import ReadPart, Spanning
from tapegrad.primitives.scatter import Update
from tapegrad.primitives.texts import dtype_text, shape_text
from tapegrad.primitives.views import Places
from tapegrad.primitives.windows import Moves, Placed

INFINITE = (math.inf, -math.inf)

PartIndex = tuple[Any, ...]  # an integer, a Slice or a Span for each axis


@parametric
class Part(ReadPart):
    """The elements of `x[index]`, followed by `fill`. The operands are `x, *steps`."""

    index: PartIndex
    moves: Moves
    fill: float | int | bool

    name = "part"
    memory = VIEW  # if only the elements before the fill are read

    def aval(self, *xs: Aval) -> Aval:
        self.check(xs[0].shape, xs[1:])
        return xs[0].with_shape(self.where.extents)

    def evaluate(self, *xs: Any) -> Any:
        return self.for_types(xs[0])(*xs)

    def for_types(self, *avals: Aval) -> Any:
        where, dtype, fill = self.where.numpy(), avals[0].dtype, self.fill
        shape = self.where.extents
        before = [(slice(None),) * axis for axis in range(len(shape))]

        def part(x: Any, *steps: Any) -> Any:
            outer, inner = where(*steps)
            out = np.empty(shape, dtype)
            out[inner] = x[outer]
            for whole, k, extent in zip(before, inner, shape, strict=True):
                if k.stop < extent:
                    out[(*whole, slice(k.stop, None))] = fill
            return out

        return part

    def filling_text(self, out: str, xs: Sequence[str]) -> str:
        outer, inner = self.where.text(xs[1:])
        return f"{out}{inner} = {xs[0]}{outer}"

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        shape, dtype = shape_text(call.out.shape), dtype_text(call.out.dtype)
        fill = f"np.{self.fill}".replace("np.-", "-np.") if self.fill in INFINITE else self.fill
        full = f"np.full({shape}, {fill}{dtype or ', float'})"
        return [f"{outs[0]} = {full}", self.filling_text(outs[0], xs)]

    def keeps_zeros(self, xs: Any, kept: Sequence[bool]) -> bool:
        return any(kept)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        x, *steps = xs
        placed = Placed(ct, PlacePart(x.shape, self.index, self.moves), tuple(steps))
        return placed, *[None] * len(steps)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else Part(self.index, self.moves, 0)(ts[0], *xs[1:])


class _OfPart(Spanning):
    def taking(self) -> Part:
        return Part(self.index, self.moves, 0)


@parametric
class PlacePart(_OfPart, Places):
    """Zeros of `shape` with the first operand's leading elements at `index`: the transpose of
    `Part`."""

    shape: tuple[int, ...]
    index: PartIndex
    moves: Moves

    name = "place_part"

    def onto_total(self) -> AddPart:
        """The primitive that adds the part to an array, instead of placing it among zeros."""
        return AddPart(self.index, self.moves)


@parametric
class SetPart(_OfPart, Update):
    """`x` with the leading elements of `y` at `index`, as a new value. The operands are
    `x, y, *steps`."""

    index: PartIndex
    moves: Moves

    name = "set_part"


@parametric
class AddPart(_OfPart, Update):
    """`x` with the leading elements of `y` added at `index`, as a new value. The operands are
    `x, y, *steps`."""

    index: PartIndex
    moves: Moves

    name = "add_part"
    adds = True

    def placing(self, shape: tuple[int, ...]) -> PlacePart:
        return PlacePart(shape, self.index, self.moves)
