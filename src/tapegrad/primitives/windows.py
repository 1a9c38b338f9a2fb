"""Windows: parts of arrays whose start moves with integers called steps.

Only the start of the index isn't static: `x[3 + t, 1:4]` is a `window` at the index `(3, 1:4)` that
moves by (1, 0) for each unit of t. Loops read and write entries of arrays in this way. A window
lies inside the array for all steps of the loop.

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
    """The index and the moves of the window on entry k + step along the first axis. `shape` is the
    entry's."""
    return (k, *[Slice(0, n) for n in shape]), ((1, *[0] * len(shape)),)


@parametric
class Window(Moving, Takes):
    """`x[index]`, moved by the steps. The operands are `x, *steps`."""

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
    """An array of this shape and dtype. The rounds of a loop fill its parts before they are
    read."""

    shape: tuple[int, ...]
    dtype: np.dtype

    name = "empty"

    def aval(self, *xs: Aval) -> Aval:
        return Aval(self.shape, self.dtype)

    def evaluate(self, *xs: Any) -> Any:
        return np.zeros(self.shape, self.dtype)  # the same in every run

    def for_types(self, *avals: Aval) -> Any:
        """A large array isn't set to zeros: it would take time to write elements, few of which may
        be used."""
        is_large = Aval(self.shape, self.dtype).nbytes > LARGE
        return partial(np.empty if is_large else np.zeros, self.shape, self.dtype)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = np.empty({shape_text(self.shape)}{dtype_text(self.dtype)})"]


class Placed:
    """A cotangent that is `ct` in a window and 0 elsewhere. It is added in place to a sum of
    cotangents, so that a loop over windows takes no time for the rest of the array."""

    def __init__(self, ct: Any, place: Any, steps: tuple[Any, ...]) -> None:
        self.ct, self.place, self.steps = ct, place, steps

    def alone(self) -> Any:
        """The cotangent as an array of its own."""
        return self.place(self.ct, *self.steps)

    def onto(self, total: Any) -> Any:
        """The total with this cotangent added."""
        return self.place.onto_total()(total, self.ct, *self.steps)


class Total:
    """A sum of cotangents that is updated in place by the rounds of a loop."""

    def __init__(self, start: Any) -> None:
        self.start = start

    def plus(self, parts: Sequence[Any]) -> Any:
        """The total with the cotangents `parts` added."""
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
        """The primitive that adds the window to an array, instead of placing it among zeros."""
        return AddWindow(self.index, self.moves)


@parametric
class SetWindow(_OfWindow, Update):
    """`x` with `x[index] = y`, moved by the steps, as a new value. The operands are `x, y,
    *steps`."""

    index: StaticIndex
    moves: Moves

    name = "set_window"


@parametric
class AddWindow(_OfWindow, Update):
    """`x` with `x[index] += y`, moved by the steps, as a new value. The operands are `x, y,
    *steps`."""

    index: StaticIndex
    moves: Moves

    name = "add_window"
    adds = True

    def placing(self, shape: tuple[int, ...]) -> PlaceWindow:
        return PlaceWindow(shape, self.index, self.moves)
