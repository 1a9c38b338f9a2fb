"""Views: index maps, never copies. Each is linear, and its transpose a view or a scatter."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives.base import Slice, broadcast_shapes, parametric
from tapegrad.primitives.batches import expanded
from tapegrad.primitives.kinds import At, Linear, Scatter, StaticIndex, View, indexed_rows
from tapegrad.primitives.texts import index_text, shape_text, zeros_text

FILLED = 1 << 12  # bytes


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
        """A small array is filled in less time than NumPy takes to show it as a larger one."""
        shape, dtype = self.shape, avals[0].dtype
        if not shape or self.aval(*avals).nbytes > FILLED:
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
        return ct  # the differentiator sums it to the operand's shape


def zeros(like: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of the dtype of the node `like`."""
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
        """Only axes of extent 1 come and go entry by entry."""
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
    """The index into an array, for an index into `array[index]`."""
    rest = iter(at)
    return [k if isinstance(k, int) else next(rest).scaled(k.step, k.start) for k in index]


def diagonal_map(offset: int, at: At) -> At:
    """The index into a matrix, for an index into one of its diagonals."""
    *batch, k = at
    return [*batch, k.scaled(1, max(0, -offset)), k.scaled(1, max(0, offset))]


def as_numpy(index: StaticIndex) -> tuple[int | slice, ...]:
    """The index as NumPy takes it."""
    return tuple([k if isinstance(k, int) else k.as_slice() for k in index])


def indexed_shape(index: StaticIndex) -> tuple[int, ...]:
    """The shape of `x[index]`: an integer drops its axis."""
    return tuple(k.count for k in index if isinstance(k, Slice))


def check_within(index: StaticIndex, shape: tuple[int, ...]) -> None:
    """An error if an index leaves an array: machine code would read or write other memory."""
    for k, n in zip(index, shape, strict=True):
        start, step, count = (k.start, k.step, k.count) if isinstance(k, Slice) else (k, 1, 1)
        if count and not (0 <= start < n and 0 <= start + step * (count - 1) < n):
            raise ValueError(f"the index {index} isn't within the shape {shape}")


@parametric
class GetItem(Linear, View):
    """`x[index]`: an integer or an explicit slice for each axis, all in range."""

    index: StaticIndex

    name = "getitem"
    picks = True

    def aval(self, *xs: Aval) -> Aval:
        check_within(self.index, xs[0].shape)
        return xs[0].with_shape(indexed_shape(self.index))

    def evaluate(self, *xs: Any) -> Any:
        return xs[0][as_numpy(self.index)]

    def read(self, at: At, shape: tuple[int, ...]) -> At:
        return index_map(self.index, at)

    def quick_text(self, xs: Sequence[str]) -> str:
        return f"{xs[0]}[{', '.join(map(str, as_numpy(self.index))) or '()'}]"

    def scalar_text(self, xs: Sequence[str]) -> str:
        return xs[0]

    def of_rows(self, size: int) -> Any:
        return indexed_rows(self, size)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = {xs[0]}{index_text(self.index, call.operands[0].shape)}"]

    def transpose(self, ct: Any, x: Aval) -> Any:
        return Place(x.shape, self.index)(ct)


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
    """How many elements the diagonal `offset` above the main one has."""
    return max(0, min(rows + min(offset, 0), columns - max(offset, 0)))


# ---- their transposes: the elements of a view in their places among zeros


@parametric
class Place(Linear, Scatter):
    """Zeros of `shape` with the operand at `index`: the transpose of `GetItem`."""

    shape: tuple[int, ...]
    index: StaticIndex

    name = "place"

    def aval(self, *xs: Aval) -> Aval:
        if xs[0].shape != indexed_shape(self.index):
            raise ValueError(f"place: {xs[0]} doesn't fit the index {self.index}")
        check_within(self.index, self.shape)
        return xs[0].with_shape(self.shape)

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

    def of_rows(self, size: int) -> Any:
        return indexed_rows(self, size)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        (out,) = outs
        zeros = zeros_text(self.shape, call.out.dtype)
        return [f"{out} = {zeros}", f"{out}{index_text(self.index, self.shape)} = {xs[0]}"]

    def transpose(self, ct: Any, x: Aval) -> Any:
        return GetItem(self.index)(ct)


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
