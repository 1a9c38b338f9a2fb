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
from tapegrad.primitives.kinds import At, Moving, Scatter, StaticIndex, Unset, View
from tapegrad.primitives.texts import dtype_text, shape_text, zeros_text
from tapegrad.primitives.views import BroadcastTo, index_map, indexed_shape, zeros

Moves = tuple[tuple[int, ...], ...]


def entry_at(k: int, shape: tuple[int, ...]) -> tuple[StaticIndex, Moves]:
    """The index of the entry of this shape that is number k along the first axis, for step 0, and
    how it moves."""
    return (k, *[Slice(0, n) for n in shape]), ((1, *[0] * len(shape)),)


def moved_index(index: StaticIndex, moves: Moves, steps: Sequence[Any]) -> tuple[Any, ...]:
    """The index as NumPy takes it, after so many steps."""
    distances = [
        sum(int(step) * move[axis] for step, move in zip(steps, moves, strict=True))
        for axis in range(len(index))
    ]
    found: list[Any] = []
    for k, far in zip(index, distances, strict=True):
        if isinstance(k, int):
            found.append(k + far)
        else:
            found.append(Slice(k.start + far, k.count, k.step).as_slice())
    return tuple(found)


def _text(index: StaticIndex, moves: Moves, steps: Sequence[str]) -> str:
    """The index as NumPy's users write it."""
    entries = []
    for axis, k in enumerate(index):
        far = ""
        for step, move in zip(steps, moves, strict=True):
            if move[axis]:
                size = f"{abs(move[axis])} * " if abs(move[axis]) != 1 else ""
                far += f"{' - ' if move[axis] < 0 else ' + '}{size}{step}"

        def place(n: int, far: str = far) -> str:
            return far[3:] if far.startswith(" + ") and n == 0 else f"{n}{far}"

        if isinstance(k, int):
            entries.append(place(k))
            continue
        start, stop = place(k.start), place(k.start + k.count * k.step)
        if k.step > 0:
            stride = f":{k.step}" if k.step != 1 else ""
            entries.append(f"{start}:{stop}{stride}")
        else:  # before the first element there is None
            entries.append(f"slice({start}, {stop} if {stop} >= 0 else None, {k.step})")
    return f"[{', '.join(entries)}]"


@parametric
class Window(Moving, View):
    """`x[index]`, moved: operands `x, *steps`."""

    index: StaticIndex
    moves: Moves

    name = "window"
    picks = True

    def aval(self, *xs: Aval) -> Aval:
        _check(self, xs[0].shape, xs[1:])
        return xs[0].with_shape(indexed_shape(self.index))

    def evaluate(self, *xs: Any) -> Any:
        return xs[0][moved_index(self.index, self.moves, xs[1:])]

    def read(self, at: At, shape: tuple[int, ...]) -> At:
        return index_map(self.index, at)

    def quick_text(self, xs: Sequence[str]) -> str:
        return f"{xs[0]}{_text(self.index, self.moves, xs[1:])}"

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = {self.quick_text(xs)}"]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        x, *steps = xs
        placed = Placed(ct, PlaceWindow(x.shape, self.index, self.moves), tuple(steps))
        return placed, *[None] * len(steps)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else self(ts[0], *xs[1:])


@parametric
class Empty(Unset):
    """An array of this shape and dtype that rounds of a loop fill, each its own part, before any
    part is read."""

    shape: tuple[int, ...]
    dtype: np.dtype

    name = "empty"
    owns = True

    def aval(self, *xs: Aval) -> Aval:
        return Aval(self.shape, self.dtype)

    def evaluate(self, *xs: Any) -> Any:
        return np.zeros(self.shape, self.dtype)  # costs no more, and is the same in every run

    def for_types(self, *avals: Aval) -> Any:
        return partial(np.zeros, self.shape, self.dtype)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = np.empty({shape_text(self.shape)}{dtype_text(self.dtype)})"]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return ()

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None


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


@parametric
class PlaceWindow(Moving, Scatter):
    """Zeros of `shape` with the first operand in a window: the transpose of `Window`."""

    shape: tuple[int, ...]
    index: StaticIndex
    moves: Moves

    name = "place_window"

    def aval(self, *xs: Aval) -> Aval:
        _check(self, self.shape, xs[1:], xs[0])
        return xs[0].with_shape(self.shape)

    def evaluate(self, *xs: Any) -> Any:
        out = np.zeros(self.shape, xs[0].dtype)
        out[moved_index(self.index, self.moves, xs[1:])] = xs[0]
        return out

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        (out,), at = outs, _text(self.index, self.moves, xs[1:])
        return [f"{out} = {zeros_text(self.shape, call.out.dtype)}", f"{out}{at} = {xs[0]}"]

    def onto_total(self) -> AddWindow:
        """What adds to an array what this places among zeros."""
        return AddWindow(self.index, self.moves)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        steps = xs[1:]
        return Window(self.index, self.moves)(ct, *steps), *[None] * len(steps)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else self(ts[0], *xs[1:])


class Update(Scatter):
    """Another value in the place of some elements of the first operand."""

    onto = "first"
    updates = True

    def evaluate(self, *xs: Any) -> Any:
        return self.update(np.array(xs[0]), *xs[1:])

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = np.array({xs[0]})", self.quick_text([*outs, *xs[1:]])]


def tangent_of_set(primitive: Update, ts: Any, out: Any, xs: Any) -> Any:
    """The tangent of what writes its second operand into its first one: it is linear in both."""
    (tx, ty, *_), (x, y, *steps) = ts, xs
    if tx is None and ty is None:
        return None
    tx = zeros(out, x.shape) if tx is None else tx
    ty = zeros(out, y.shape) if ty is None else ty
    return primitive(tx, ty, *steps)


class _UpdateWindow(Moving, Update):
    """Another value in the place of a window."""

    index: StaticIndex
    moves: Moves

    def aval(self, *xs: Aval) -> Aval:
        x, y, *steps = xs
        _check(self, x.shape, steps, y)
        return x.with_shape(x.shape)

    def quick_text(self, xs: Sequence[str]) -> str:
        at = _text(self.index, self.moves, xs[2:])
        return f"{xs[0]}{at} {'+' * self.adds}= {xs[1]}"


@parametric
class SetWindow(_UpdateWindow):
    """`x` with `x[index] = y`, moved, as a new value: operands `x, y, *steps`."""

    index: StaticIndex
    moves: Moves

    name = "set_window"

    def update(self, *xs: Any) -> Any:
        out, y, *steps = xs
        out[moved_index(self.index, self.moves, steps)] = y
        return out

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        steps = xs[2:]
        ct_y = Window(self.index, self.moves)(ct, *steps)
        rest = self(ct, zeros(ct, indexed_shape(self.index)), *steps)
        return rest, ct_y, *[None] * len(steps)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return tangent_of_set(self, ts, out, xs)


@parametric
class AddWindow(_UpdateWindow):
    """`x` with `x[index] += y`, moved, as a new value: operands `x, y, *steps`."""

    index: StaticIndex
    moves: Moves

    name = "add_window"
    adds = True

    def update(self, *xs: Any) -> Any:
        out, y, *steps = xs
        out[moved_index(self.index, self.moves, steps)] += y
        return out

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        steps = xs[2:]
        return ct, Window(self.index, self.moves)(ct, *steps), *[None] * len(steps)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        (tx, ty, *_), (x, _, *steps) = ts, xs
        if ty is None:
            return tx
        return (
            PlaceWindow(x.shape, self.index, self.moves)(ty, *steps)
            if tx is None
            else self(tx, ty, *steps)
        )


def _check(
    primitive: Any, shape: tuple[int, ...], steps: Sequence[Aval], y: Aval | None = None
) -> None:
    """A ValueError if a window doesn't fit an array of this shape, or what is put in it."""
    index, moves = primitive.index, primitive.moves
    if len(index) != len(shape) or len(steps) != len(moves):
        raise ValueError(f"{primitive.name}: the index {index} doesn't fit the shape {shape}")
    if any(step.shape != () or step.dtype.kind != "i" for step in steps):
        raise ValueError(f"{primitive.name}: its steps aren't integers: {list(steps)}")
    if y is not None and y.shape != indexed_shape(index):
        raise ValueError(f"{primitive.name}: {y} doesn't fit the index {index}")
