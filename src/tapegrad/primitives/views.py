"""Views: index maps, never copies. Each is linear. Its transpose is a view or a scatter."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter, methodcaller
from typing import Any

import numpy as np

from tapegrad.core.values import PICKED
from tapegrad.ir.affine import MovingIndex
from tapegrad.ir.tape import Aval, Call
from tapegrad.ir.traits import Algebra
from tapegrad.primitives.base import Slice, broadcast_shapes, parametric
from tapegrad.primitives.batches import expanded
from tapegrad.primitives.kinds import At, Fixed, Indexed, Linear, Scatter, StaticIndex, View
from tapegrad.primitives.texts import box_text, index_text, shape_text, zeros_text

FILLED = 1 << 12  # bytes up to which an array is filled instead of broadcast


@parametric
class Transpose(Linear, View):
    """Axis `axes[k]` of the operand becomes axis k."""

    axes: tuple[int, ...]

    name = "transpose"

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_shape([xs[0].shape[a] for a in self.axes])

    def evaluate(self, *xs: Any) -> Any:
        return np.transpose(xs[0], self.axes)

    def for_types(self, *avals: Aval) -> Any:
        return methodcaller("transpose", self.axes)

    @property
    def permutation(self) -> tuple[int, ...]:
        return self.axes

    def read(self, at: At, shape: tuple[int, ...]) -> At:
        entries: list[Any] = [None] * len(at)
        for k, axis in enumerate(self.axes):
            entries[axis] = at[k]
        return entries

    def of_rows(self, size: int) -> Transpose:
        return Transpose((0, *[a + 1 for a in self.axes]))

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        if self.axes == tuple(reversed(range(len(self.axes)))):
            return [f"{outs[0]} = {xs[0]}.T"]
        return [f"{outs[0]} = np.transpose({xs[0]}, {self.axes})"]

    def transpose(self, ct: Any, x: Aval) -> Any:
        return Transpose(tuple(int(a) for a in np.argsort(self.axes)))(ct)


@parametric
class BroadcastTo(Linear, View):
    """The operand repeated along new and unit axes, up to `shape`."""

    shape: tuple[int, ...]

    name = "broadcast_to"

    def aval(self, *xs: Aval) -> Aval:
        if broadcast_shapes(xs[0].shape, self.shape) != self.shape:
            raise ValueError(f"cannot broadcast {xs[0]} to shape {self.shape}")
        return xs[0].with_shape(self.shape)

    def evaluate(self, *xs: Any) -> Any:
        return np.broadcast_to(xs[0], self.shape)

    def for_types(self, *avals: Aval) -> Any:
        """For a small result a filled array: this takes NumPy less time than a broadcast view."""
        shape, dtype = self.shape, avals[0].dtype
        if avals[0].shape == shape:
            return _as_it_is
        if self.aval(*avals).nbytes > FILLED:
            return self.evaluate

        def filled(x: Any) -> Any:
            out = np.empty(shape, dtype)
            out[...] = x
            return out

        return filled

    def scalar_text(self, xs: Sequence[str]) -> str:
        return xs[0]

    def read(self, at: At, shape: tuple[int, ...]) -> At:
        mine = at[len(at) - len(shape) :]
        return [0 if n == 1 else k for k, n in zip(mine, shape, strict=True)]

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        x = expanded(xs[0], len(self.shape) - (xs[0].ndim - 1))
        return BroadcastTo((size, *self.shape))(x)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = np.broadcast_to({xs[0]}, {shape_text(self.shape)})"]

    def transpose(self, ct: Any, x: Aval) -> Any:
        return ct  # `differentiate.reverse` sums it to the operand's shape


def _as_it_is(x: Any) -> Any:
    return x


def zeros(like: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of this shape and of the dtype of the node `like`."""
    return BroadcastTo(shape)(like.constant(0))


@parametric
class Reshape(Linear, View):
    """The same elements in row-major order, in another shape."""

    shape: tuple[int, ...]

    name = "reshape"
    relabels = True

    def aval(self, *xs: Aval) -> Aval:
        if xs[0].size != xs[0].with_shape(self.shape).size:
            raise ValueError(f"cannot reshape array of size {xs[0].size} into shape {self.shape}")
        return xs[0].with_shape(self.shape)

    def evaluate(self, *xs: Any) -> Any:
        return np.reshape(xs[0], self.shape)

    def for_types(self, *avals: Aval) -> Any:
        return methodcaller("reshape", self.shape)

    def read(self, at: At, shape: tuple[int, ...]) -> At | None:
        """See `View.read`. A reshape is a map of single entries only if it inserts and removes axes
        of extent 1."""
        long = [k for k, n in zip(at, self.shape, strict=True) if n != 1]
        if [n for n in self.shape if n != 1] != [n for n in shape if n != 1]:
            return None
        rest = iter(long)
        return [0 if n == 1 else next(rest) for n in shape]

    def of_rows(self, size: int) -> Reshape:
        return Reshape((size, *self.shape))

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = {xs[0]}.reshape({shape_text(self.shape)})"]

    def transpose(self, ct: Any, x: Aval) -> Any:
        return Reshape(x.shape)(ct)


@parametric
class ExpandDims(Linear, View):
    """New axes of extent 1, at the positions `axes` of the result."""

    axes: tuple[int, ...]

    name = "expand_dims"

    def aval(self, *xs: Aval) -> Aval:
        shape = list(xs[0].shape)
        for axis in self.axes:
            shape.insert(axis, 1)
        return xs[0].with_shape(shape)

    def evaluate(self, *xs: Any) -> Any:
        shape = list(np.shape(xs[0]))
        for axis in self.axes:
            shape.insert(axis, 1)
        return xs[0].reshape(shape)

    def for_types(self, *avals: Aval) -> Any:
        return methodcaller("reshape", self.aval(*avals).shape)

    def read(self, at: At, shape: tuple[int, ...]) -> At:
        return [k for a, k in enumerate(at) if a not in self.axes]

    def of_rows(self, size: int) -> ExpandDims:
        return ExpandDims(tuple([a + 1 for a in self.axes]))

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        entries = ["None" if a in self.axes else ":" for a in range(len(call.out.shape))]
        while entries[-1] == ":":
            entries.pop()
        return [f"{outs[0]} = {xs[0]}[{', '.join(entries)}]"]

    def transpose(self, ct: Any, x: Aval) -> Any:
        return Squeeze(self.axes)(ct)


@parametric
class Squeeze(Linear, View):
    """Axes of extent 1, at the positions `axes` of the operand, removed."""

    axes: tuple[int, ...]

    name = "squeeze"

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_shape([n for a, n in enumerate(xs[0].shape) if a not in self.axes])

    def evaluate(self, *xs: Any) -> Any:
        return xs[0].squeeze(self.axes)

    def read(self, at: At, shape: tuple[int, ...]) -> At:
        rest = iter(at)
        return [0 if a in self.axes else next(rest) for a in range(len(shape))]

    def of_rows(self, size: int) -> Squeeze:
        return Squeeze(tuple([a + 1 for a in self.axes]))

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = np.squeeze({xs[0]}, {self.axes})"]

    def transpose(self, ct: Any, x: Aval) -> Any:
        return ExpandDims(self.axes)(ct)


def index_map(index: Sequence[int | Slice], at: At) -> At:
    """The index into `array` of the element `at` of `array[index]`."""
    where = MovingIndex(tuple(index))
    return where.inside(where.start, at)


def diagonal_map(offset: int, at: At) -> At:
    """The index into a matrix of the element `at` of its diagonal `offset`."""
    *batch, k = at
    return [*batch, k + max(0, -offset), k + max(0, offset)]


def as_numpy(index: StaticIndex) -> tuple[int | slice, ...]:
    """The index as NumPy's tuple of integers and slices."""
    return tuple([k if isinstance(k, int) else k.as_slice() for k in index])


def indexed_shape(index: StaticIndex) -> tuple[int, ...]:
    """The shape of `x[index]`: an integer drops its axis."""
    return tuple(k.count for k in index if isinstance(k, Slice))


class Takes(Indexed, View):
    """A view `x[index]`. The operands are `x, *steps`."""

    memory = PICKED

    def aval(self, *xs: Aval) -> Aval:
        self.check(xs[0].shape, xs[1:])
        return xs[0].with_shape(self.where.extents)

    def evaluate(self, *xs: Any) -> Any:
        return self.for_types(xs[0])(*xs)

    def for_types(self, *avals: Aval) -> Any:
        where = self.where.numpy()
        return lambda x, *steps: x[where(*steps)[0]]

    def read(self, at: At, shape: tuple[int, ...]) -> At:
        return index_map(self.index, at)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else self(ts[0], *xs[1:])


class Places(Indexed, Scatter):
    """Zeros of `shape` with `y` at the index. The operands are `y, *steps`."""

    shape: tuple[int, ...]

    def aval(self, *xs: Aval) -> Aval:
        self.check(self.shape, xs[1:], xs[0])
        return xs[0].with_shape(self.shape)

    def evaluate(self, *xs: Any) -> Any:
        return self.for_types(xs[0])(*xs)

    def for_types(self, *avals: Aval) -> Any:
        shape, dtype, front = self.shape, avals[0].dtype, self.front()

        def place(*xs: Any) -> Any:
            out = np.zeros(shape, dtype)
            at, y = front(*xs)
            out[at] = y
            return out

        return place

    def filling_text(self, out: str, xs: Sequence[str]) -> str:
        at, y = self.texts(xs[0], xs[1:])
        return f"{out}{at} = {y}"

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        zeros = zeros_text(self.shape, call.out.dtype)
        return [f"{outs[0]} = {zeros}", self.filling_text(outs[0], xs)]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        steps = xs[1:]
        return self.taking()(ct, *steps), *[None] * len(steps)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else self(ts[0], *xs[1:])


@parametric
class GetItem(Fixed, Takes):
    """`x[index]`: an integer or an explicit slice for each axis, all in range."""

    index: StaticIndex

    name = "getitem"
    algebra = Algebra(additive=(0,))

    def for_types(self, *avals: Aval) -> Any:
        return itemgetter(as_numpy(self.index))

    def quick_text(self, xs: Sequence[str]) -> str:
        return f"{xs[0]}{box_text(self.index)}"

    def scalar_text(self, xs: Sequence[str]) -> str:
        return xs[0]

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = {xs[0]}{index_text(self.index, call.operands[0].shape)}"]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return (Place(xs[0].shape, self.index)(ct),)


@parametric
class Diagonal(Linear, View):
    """The diagonal of the last two axes, `offset` above the main one, as the last axis."""

    offset: int

    name = "diagonal"
    cores = 2

    def aval(self, *xs: Aval) -> Aval:
        *batch, rows, columns = xs[0].shape
        return xs[0].with_shape([*batch, diagonal_length(rows, columns, self.offset)])

    def evaluate(self, *xs: Any) -> Any:
        return np.diagonal(xs[0], self.offset, -2, -1)

    def read(self, at: At, shape: tuple[int, ...]) -> At:
        return diagonal_map(self.offset, at)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        if len(call.operands[0].shape) > 2:
            return [f"{outs[0]} = np.diagonal({xs[0]}, {self.offset}, -2, -1)"]
        return [f"{outs[0]} = np.diagonal({xs[0]}{f', {self.offset}' if self.offset else ''})"]

    def transpose(self, ct: Any, x: Aval) -> Any:
        return PlaceDiagonal((x.shape[-2], x.shape[-1]), self.offset)(ct)


def diagonal_length(rows: int, columns: int, offset: int) -> int:
    """The number of elements of the diagonal `offset` above the main one."""
    return max(0, min(rows + min(offset, 0), columns - max(offset, 0)))


# ---- transposes of views: their elements placed among zeros


@parametric
class Place(Fixed, Places):
    """Zeros of `shape` with the operand at `index`: the transpose of `GetItem`."""

    shape: tuple[int, ...]
    index: StaticIndex

    name = "place"
    algebra = Algebra(additive=(0,))

    def evaluate(self, *xs: Any) -> Any:
        return self.for_types(xs[0])(*xs)

    def for_types(self, *avals: Aval) -> Any:
        shape, dtype, index = self.shape, avals[0].dtype, as_numpy(self.index)

        def place(x: Any) -> Any:
            out = np.zeros(shape, dtype)
            out[index] = x
            return out

        return place

    def boxes(self, *xs: Any) -> list[StaticIndex]:
        return [self.index]

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        (out,) = outs
        zeros = zeros_text(self.shape, call.out.dtype)
        return [f"{out} = {zeros}", f"{out}{index_text(self.index, self.shape)} = {xs[0]}"]

    def taking(self) -> GetItem:
        return GetItem(self.index)


@parametric
class PlaceDiagonal(Linear, Scatter):
    """Zeros of shape (..., *shape) with the operand's last axis on a diagonal."""

    shape: tuple[int, int]
    offset: int

    name = "place_diagonal"
    cores = 1

    def aval(self, *xs: Aval) -> Aval:
        if xs[0].shape[-1] != diagonal_length(*self.shape, self.offset):
            raise ValueError(f"place_diagonal: {xs[0]} doesn't fit a matrix of shape {self.shape}")
        return xs[0].with_shape((*xs[0].shape[:-1], *self.shape))

    def evaluate(self, *xs: Any) -> Any:
        (x,) = xs
        out = np.zeros((*x.shape[:-1], *self.shape), x.dtype)
        k = np.arange(x.shape[-1])
        out[..., k - min(self.offset, 0), k + max(self.offset, 0)] = x
        return out

    def write(self, at: At) -> At:
        return diagonal_map(self.offset, at)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        (out,), n = outs, call.operands[0].shape[-1]
        starts = -min(self.offset, 0), max(self.offset, 0)
        along = [f"np.arange({f'{k}, {k + n}' if k else n})" for k in starts]
        batch = "..., " if len(call.out.shape) > 2 else ""
        zeros = zeros_text(call.out.shape, call.out.dtype)
        return [f"{out} = {zeros}", f"{out}[{batch}{', '.join(along)}] = {xs[0]}"]

    def transpose(self, ct: Any, x: Aval) -> Any:
        return Diagonal(self.offset)(ct)
