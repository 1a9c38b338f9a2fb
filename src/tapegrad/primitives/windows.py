"""Windows: parts of arrays that move, by a distance for each unit of integers called steps.

The index is static but for where it starts: `x[3 + t, 1:4]` is `window` at the index `(3, 1:4)`,
which moves by (1, 0) for each unit of t. Loops over arrays read and write so. What a window takes
lies inside the array, for all steps that there are.

Names: `steps` the operands that are integers, one for each entry of `moves`; `at` an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives.base import Slice, parametric
from tapegrad.primitives.kinds import Moving, StaticIndex, Underived, Unset
from tapegrad.primitives.scatter import Update
from tapegrad.primitives.texts import dtype_text, shape_text
from tapegrad.primitives.views import BroadcastTo, Places, Takes

LARGE = 1 << 16  # bytes

Moves = tuple[tuple[int, ...], ...]


def entry_at(k: int, shape: tuple[int, ...]) -> tuple[StaticIndex, Moves]:
    """The index of the entry of this shape that is number k along the first axis, for step 0, and
    how it moves."""
    return (k, *[Slice(0, n) for n in shape]), ((1, *[0] * len(shape)),)


@parametric
class Window(Moving, Takes):
    """`x[index]`, moved: operands `x, *steps`."""

    index: StaticIndex
    moves: Moves

    name = "window"

    def quick_text(self, xs: Sequence[str]) -> str:
        return f"{xs[0]}{self.where.text(xs[1:])[0]}"

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = {self.quick_text(xs)}"]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        x, *steps = xs
        placed = Placed(ct, PlaceWindow(x.shape, self.index, self.moves), tuple(steps))
        return placed, *[None] * len(steps)


@parametric
class Empty(Underived, Unset):
    """An array of this shape and dtype that rounds of a loop fill, each its own part, before any
    part is read."""

    shape: tuple[int, ...]
    dtype: np.dtype

    name = "empty"

    def aval(self, *xs: Aval) -> Aval:
        return Aval(self.shape, self.dtype)

    def evaluate(self, *xs: Any) -> Any:
        return np.zeros(self.shape, self.dtype)  # is the same in every run

    def for_types(self, *avals: Aval) -> Any:
        """Zeros of what is large would take the time to write them, where few of them are set."""
        is_large = Aval(self.shape, self.dtype).nbytes > LARGE
        return partial(np.empty if is_large else np.zeros, self.shape, self.dtype)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = np.empty({shape_text(self.shape)}{dtype_text(self.dtype)})"]


class Placed:
    """A cotangent that is `ct` in a window and 0 elsewhere: whoever sums up cotangents adds it in
    place, so that a loop over windows takes no time for the rest of the array."""

    def __init__(self, ct: Any, place: Any, steps: tuple[Any, ...]) -> None:
        self.ct, self.place, self.steps = ct, place, steps

    def alone(self) -> Any:
        """It by itself."""
        return self.place(self.ct, *self.steps)

    def onto(self, total: Any) -> Any:
        """The total with this added."""
        return self.place.onto_total()(total, self.ct, *self.steps)


class Total:
    """What cotangents are added to, in place: what the rounds of a loop add up."""

    def __init__(self, start: Any) -> None:
        self.start = start

    def plus(self, parts: Sequence[Any]) -> Any:
        """The total with cotangents added."""
        total = self.start
        whole = AddWindow(tuple([Slice(0, n) for n in total.shape]), ())
        for part in parts:
            if isinstance(part, Placed):
                total = part.onto(total)
            elif total.shape == ():
                total = total + part
            else:
                if part.shape != total.shape:
                    part = BroadcastTo(total.shape)(part)
                total = whole(total, part)
        return total


class _OfWindow(Moving):
    def taking(self) -> Window:
        return Window(self.index, self.moves)


@parametric
class PlaceWindow(_OfWindow, Places):
    """Zeros of `shape` with the first operand in a window: the transpose of `Window`."""

    shape: tuple[int, ...]
    index: StaticIndex
    moves: Moves

    name = "place_window"

    def onto_total(self) -> AddWindow:
        """What adds to an array what this places among zeros."""
        return AddWindow(self.index, self.moves)


@parametric
class SetWindow(_OfWindow, Update):
    """`x` with `x[index] = y`, moved, as a new value: operands `x, y, *steps`."""

    index: StaticIndex
    moves: Moves

    name = "set_window"


@parametric
class AddWindow(_OfWindow, Update):
    """`x` with `x[index] += y`, moved, as a new value: operands `x, y, *steps`."""

    index: StaticIndex
    moves: Moves

    name = "add_window"
    adds = True

    def placing(self, shape: tuple[int, ...]) -> PlaceWindow:
        return PlaceWindow(shape, self.index, self.moves)
