"""Parts: windows whose extents change from round to round, in arrays whose extents don't.

    for i in range(n):
        y = x[:i] * w[:i]          y has i elements

An array of `extent` elements along an axis holds those, at its front. What stands behind them is
never looked at by what the program computes: who would look takes a `Part` first, which has `fill`
there, zeros for a sum. So arrays have one shape in all rounds, and rounds are equal.

As for windows (see `primitives.windows`) an index is static, but for where it starts and how many
elements it takes along axes of which it takes a `Span`. These numbers are its *places*: first the
starts along all axes, then the counts of spans. They move by `moves[k]` for each unit of the k-th
of the last operands, the steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.core.values import Span
from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives.base import Slice, parametric
from tapegrad.primitives.kinds import Growing, Scatter, Taking
from tapegrad.primitives.texts import dtype_text, shape_text, zeros_text
from tapegrad.primitives.views import zeros
from tapegrad.primitives.windows import Placed, Update, tangent_of_set

INFINITE = (math.inf, -math.inf)

PartIndex = tuple[Any, ...]  # an integer, a Slice or a Span for each axis
Moves = tuple[tuple[int, ...], ...]


def places_of(index: PartIndex) -> tuple[int, ...]:
    """Where an index starts along each axis, and how many elements its spans have."""
    starts = [k if isinstance(k, int) else k.start for k in index]
    return (*starts, *[k.count for k in index if isinstance(k, Span)])


def shape_of(index: PartIndex) -> tuple[Any, ...]:
    """An index but for where it starts."""
    return tuple(
        [
            None
            if isinstance(k, int)
            else (k.extent, k.step, None)
            if isinstance(k, Span)
            else (k.count, k.step)
            for k in index
        ]
    )


def index_at(index: PartIndex, places: Sequence[int]) -> PartIndex:
    """The index with other places."""
    counts = iter(places[len(index) :])
    found: list[Any] = []
    for k, start in zip(index, places, strict=False):
        if isinstance(k, int):
            found.append(start)
        elif isinstance(k, Slice):
            found.append(Slice(start, k.count, k.step))
        else:
            found.append(Span(start, next(counts), k.step, k.extent))
    return tuple(found)


def extents_of(index: PartIndex) -> tuple[int, ...]:
    """The shape of what an index takes: an integer drops its axis."""
    found = [k for k in index if not isinstance(k, int)]
    return tuple([k.count if isinstance(k, Slice) else k.extent for k in found])


def _moved(index: PartIndex, moves: Moves, steps: Sequence[Any]) -> tuple[Any, Any]:
    """After so many steps, as NumPy takes them: the index into the larger array, and that into the
    front of the smaller one."""
    places = list(places_of(index))
    for step, move in zip(steps, moves, strict=True):
        places = [place + int(step) * far for place, far in zip(places, move, strict=True)]
    outer: list[Any] = []
    inner: list[Any] = []
    for k in index_at(index, places):
        if isinstance(k, int):
            outer.append(k)
        elif isinstance(k, Slice):
            outer.append(k.as_slice())
            inner.append(slice(None))
        else:
            count = max(0, k.count)
            outer.append(Slice(k.start, count, k.step).as_slice())
            inner.append(slice(0, count))
    return tuple(outer), tuple(inner)


def _texts(index: PartIndex, moves: Moves, steps: Sequence[str]) -> tuple[str, str]:
    """The same as NumPy's users write it."""
    texts = []
    for place, first in enumerate(places_of(index)):
        text = str(first)
        for step, move in zip(steps, moves, strict=True):
            if far := move[place]:
                size = f"{abs(far)} * " if abs(far) != 1 else ""
                text += f"{' - ' if far < 0 else ' + '}{size}{step}"
        texts.append(text.removeprefix("0 + "))
    counts = iter(texts[len(index) :])
    outer: list[str] = []
    inner: list[str] = []
    for k, start in zip(index, texts, strict=False):
        if isinstance(k, int):
            outer.append(start)
            continue
        count = str(k.count) if isinstance(k, Slice) else next(counts)
        inner.append(":" if isinstance(k, Slice) else f":{count}")
        stride = "" if abs(k.step) == 1 else f":{abs(k.step)}"
        if k.step > 0:
            times = "" if k.step == 1 else f" * {k.step}"
            stop = f"({count}){times}" if times else count
            outer.append(f"{start}:{start} + {stop}{stride}")
        else:  # along memory, and then the other way round
            times = "" if k.step == -1 else f" * {-k.step}"
            outer.append(f"{start} - ({count} - 1){times}:{start} + 1{stride}")
    turned = ["::-1" if k.step < 0 else ":" for k in index if not isinstance(k, int)]
    back = f"[{', '.join(turned)}]" if "::-1" in turned else ""
    return f"[{', '.join(outer)}]{back}", f"[{', '.join(inner)}]"


class _OfPart(Growing):
    """What works on a part of an array."""

    index: PartIndex
    moves: Moves

    def chosen(self, number: int) -> int | None:
        return None  # places are numbers of loops' steps

    def check(self, shape: tuple[int, ...], steps: Sequence[Aval], y: Aval | None = None) -> None:
        """A ValueError if it doesn't fit an array of this shape, or what is put in it."""
        count = len(places_of(self.index))
        fits = len(self.index) == len(shape) and all(len(move) == count for move in self.moves)
        if not fits or len(steps) != len(self.moves):
            raise ValueError(f"{self.name}: {self.index} doesn't fit the shape {shape}")
        if any(step.shape != () or step.dtype.kind != "i" for step in steps):
            raise ValueError(f"{self.name}: its steps aren't integers: {list(steps)}")
        if y is not None and y.shape != extents_of(self.index):
            raise ValueError(f"{self.name}: {y} doesn't fit {self.index}")


@parametric
class Part(_OfPart, Taking):
    """`x[index]` at the front, and `fill` behind it: operands `x, *steps`."""

    index: PartIndex
    moves: Moves
    fill: float | int | bool

    name = "part"
    is_view = True  # where its front alone is read

    def aval(self, *xs: Aval) -> Aval:
        self.check(xs[0].shape, xs[1:])
        return xs[0].with_shape(extents_of(self.index))

    def evaluate(self, *xs: Any) -> Any:
        x, *steps = xs
        outer, inner = _moved(self.index, self.moves, steps)
        out = np.empty(extents_of(self.index), x.dtype)
        out[inner] = x[outer]
        for axis, k in enumerate(inner):
            if k.stop is not None:
                out[(slice(None),) * axis + (slice(k.stop, None),)] = self.fill
        return out

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        (out,), (outer, inner) = outs, _texts(self.index, self.moves, xs[1:])
        shape, dtype = shape_text(call.out.shape), dtype_text(call.out.dtype)
        fill = f"np.{self.fill}".replace("np.-", "-np.") if self.fill in INFINITE else self.fill
        dtype = dtype or ", float"
        return [f"{out} = np.full({shape}, {fill}{dtype})", f"{out}{inner} = {xs[0]}{outer}"]

    def keeps_zeros(self, xs: Any, kept: Sequence[bool]) -> bool:
        return any(kept)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        x, *steps = xs
        placed = Placed(ct, PlacePart(x.shape, self.index, self.moves), tuple(steps))
        return placed, *[None] * len(steps)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else Part(self.index, self.moves, 0)(ts[0], *xs[1:])


@parametric
class PlacePart(_OfPart, Scatter):
    """Zeros of `shape` with the front of the first operand at `index`: the transpose of `Part`."""

    shape: tuple[int, ...]
    index: PartIndex
    moves: Moves

    name = "place_part"

    def aval(self, *xs: Aval) -> Aval:
        self.check(self.shape, xs[1:], xs[0])
        return xs[0].with_shape(self.shape)

    def evaluate(self, *xs: Any) -> Any:
        y, *steps = xs
        outer, inner = _moved(self.index, self.moves, steps)
        out = np.zeros(self.shape, y.dtype)
        out[outer] = y[inner]
        return out

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        (out,), (outer, inner) = outs, _texts(self.index, self.moves, xs[1:])
        return [
            f"{out} = {zeros_text(self.shape, call.out.dtype)}",
            f"{out}{outer} = {xs[0]}{inner}",
        ]

    def onto_total(self) -> AddPart:
        """What adds to an array what this places among zeros."""
        return AddPart(self.index, self.moves)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        steps = xs[1:]
        return Part(self.index, self.moves, 0)(ct, *steps), *[None] * len(steps)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else self(ts[0], *xs[1:])


class _UpdatePart(_OfPart, Update):
    """Another value in the place of a part."""

    index: PartIndex
    moves: Moves

    def aval(self, *xs: Aval) -> Aval:
        x, y, *steps = xs
        self.check(x.shape, steps, y)
        return x.with_shape(x.shape)

    def quick_text(self, xs: Sequence[str]) -> str:
        outer, inner = _texts(self.index, self.moves, xs[2:])
        return f"{xs[0]}{outer} {'+' * self.adds}= {xs[1]}{inner}"


@parametric
class SetPart(_UpdatePart):
    """`x` with the front of `y` at `index`, as a new value: operands `x, y, *steps`."""

    index: PartIndex
    moves: Moves

    name = "set_part"

    def update(self, *xs: Any) -> Any:
        out, y, *steps = xs
        outer, inner = _moved(self.index, self.moves, steps)
        out[outer] = y[inner]
        return out

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        _, y, *steps = xs
        ct_y = Part(self.index, self.moves, 0)(ct, *steps)
        return self(ct, zeros(ct, y.shape), *steps), ct_y, *[None] * len(steps)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return tangent_of_set(self, ts, out, xs)


@parametric
class AddPart(_UpdatePart):
    """`x` with the front of `y` added at `index`, as a new value: operands `x, y, *steps`."""

    index: PartIndex
    moves: Moves

    name = "add_part"
    adds = True

    def update(self, *xs: Any) -> Any:
        out, y, *steps = xs
        outer, inner = _moved(self.index, self.moves, steps)
        out[outer] += y[inner]
        return out

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        steps = xs[2:]
        return ct, Part(self.index, self.moves, 0)(ct, *steps), *[None] * len(steps)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        (tx, ty, *_), (x, _, *steps) = ts, xs
        if ty is None:
            return tx
        if tx is None:
            return PlacePart(x.shape, self.index, self.moves)(ty, *steps)
        return self(tx, ty, *steps)
