"""Views: index maps, never copies. Each is linear, and its transpose a view or a scatter."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import Linear, Slice, View, broadcast_shapes, parametric


@parametric
class Transpose(Linear, View):
    """Axis `axes[k]` of the operand becomes axis k."""

    axes: tuple[int, ...]

    name = "transpose"

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_shape([xs[0].shape[a] for a in self.axes])

    def evaluate(self, *xs: Any) -> Any:
        return np.transpose(xs[0], self.axes)

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

    def aval(self, *xs: Aval) -> Aval:
        if xs[0].size != xs[0].with_shape(self.shape).size:
            raise ValueError(f"cannot reshape array of size {xs[0].size} into shape {self.shape}")
        return xs[0].with_shape(self.shape)

    def evaluate(self, *xs: Any) -> Any:
        return np.reshape(xs[0], self.shape)

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
        return np.expand_dims(xs[0], self.axes)

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
        return np.squeeze(xs[0], self.axes)

    def transpose(self, ct: Any, x: Aval) -> Any:
        return ExpandDims(self.axes)(ct)


Index = tuple[int | Slice, ...]


def as_numpy(index: Index) -> tuple[int | slice, ...]:
    """The index as NumPy takes it."""
    return tuple(k if isinstance(k, int) else k.as_slice() for k in index)


def indexed_shape(index: Index) -> tuple[int, ...]:
    """The shape of `x[index]`: an integer drops its axis."""
    return tuple(k.count for k in index if isinstance(k, Slice))


@parametric
class GetItem(Linear, View):
    """`x[index]`: an integer or an explicit slice for each axis, all in range."""

    index: Index

    name = "getitem"

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_shape(indexed_shape(self.index))

    def evaluate(self, *xs: Any) -> Any:
        return xs[0][as_numpy(self.index)]

    def transpose(self, ct: Any, x: Aval) -> Any:
        from tapegrad.primitives.scatter import Place

        return Place(x.shape, self.index)(ct)


@parametric
class Diagonal(Linear, View):
    """The diagonal of the last two axes, `offset` above the main one, as the last axis."""

    offset: int

    name = "diagonal"

    def aval(self, *xs: Aval) -> Aval:
        *batch, rows, columns = xs[0].shape
        return xs[0].with_shape([*batch, diagonal_length(rows, columns, self.offset)])

    def evaluate(self, *xs: Any) -> Any:
        return np.diagonal(xs[0], self.offset, -2, -1)

    def transpose(self, ct: Any, x: Aval) -> Any:
        from tapegrad.primitives.scatter import PlaceDiagonal

        return PlaceDiagonal((x.shape[-2], x.shape[-1]), self.offset)(ct)


def diagonal_length(rows: int, columns: int, offset: int) -> int:
    """How many elements the diagonal `offset` above the main one has."""
    return max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
