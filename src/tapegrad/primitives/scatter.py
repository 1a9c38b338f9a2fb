"""Scatters write or add operands into a larger result. Gathers read at index arrays.

Index arrays are integer operands, one for each leading axis of the array that they index. Their
shape gives the leading axes of a gather's result. Negative indices count from the end, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.core.values import OWN, UPDATED
from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives.base import Slice, parametric
from tapegrad.primitives.batches import all_mapped, put_first, put_last, row_numbers
from tapegrad.primitives.elementwise import where
from tapegrad.primitives.kinds import (
    AlongAxis,
    Fixed,
    Indexed,
    Library,
    Lookup,
    Scatter,
    StaticIndex,
    Underived,
)
from tapegrad.primitives.texts import box_text, index_text, shape_text, zeros_text
from tapegrad.primitives.views import (
    BroadcastTo,
    ExpandDims,
    GetItem,
    as_numpy,
    zeros,
)


class Update(Indexed, Scatter):
    """`x` with `y` written or added at the index, as a new value. The operands are `x, y,
    *steps`."""

    onto = "first"
    memory = UPDATED

    def aval(self, *xs: Aval) -> Aval:
        x, y, *steps = xs
        self.check(x.shape, steps, y)
        return x.with_shape(x.shape)

    def evaluate(self, *xs: Any) -> Any:
        return self.for_types()(*xs)

    def for_types(self, *avals: Aval) -> Any:
        update = self.updating()
        return lambda x, *xs: update(np.array(x), *xs)

    def updating(self) -> Any:
        front = self.front()

        def add(out: Any, *xs: Any) -> Any:
            at, y = front(*xs)
            out[at] += y
            return out

        def put(out: Any, *xs: Any) -> Any:
            at, y = front(*xs)
            out[at] = y
            return out

        return add if self.adds else put

    def quick_text(self, xs: Sequence[str]) -> str:
        at, y = self.texts(xs[1], xs[2:])
        return f"{xs[0]}{at} {'+' * self.adds}= {y}"

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = np.array({xs[0]})", self.quick_text([*outs, *xs[1:]])]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        _, y, *steps = xs
        ct_y = self.taking()(ct, *steps)  # before `ct` is updated in place: see `ir.updates`
        ct_x = ct if self.adds else self(ct, zeros(ct, y.shape), *steps)
        return ct_x, ct_y, *[None] * len(steps)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        (tx, ty, *_), (x, y, *steps) = ts, xs
        if ty is None and (tx is None or self.adds):
            return tx
        if tx is None and self.adds:
            return self.placing(x.shape)(ty, *steps)
        tx = zeros(out, x.shape) if tx is None else tx
        ty = zeros(out, y.shape) if ty is None else ty
        return self(tx, ty, *steps)


@parametric
class SetItem(Fixed, Update):
    """`x` with `x[index] = y`, as a new value; `y` has the shape of `x[index]`."""

    index: StaticIndex

    name = "setitem"

    def updating(self) -> Any:
        at = as_numpy(self.index)

        def put(out: Any, y: Any) -> Any:
            out[at] = y
            return out

        return put

    def quick_text(self, xs: Sequence[str]) -> str:
        return f"{xs[0]}{box_text(self.index)} = {xs[1]}"

    def scalar_text(self, xs: Sequence[str]) -> str:
        return xs[1]

    def boxes(self, *xs: Any) -> list[StaticIndex]:
        return [self.index]

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        (out,), index = outs, index_text(self.index, call.out.shape)
        return [f"{out} = np.array({xs[0]})", f"{out}{index} = {xs[1]}"]

    def taking(self) -> GetItem:
        return GetItem(self.index)


class _Joined(AlongAxis, Scatter):
    """The operands, placed next to each other along `axis`."""

    onto = "nothing"
    memory = OWN

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return [GetItem(index)(ct) for index in self.boxes(*xs)]

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        if all(t is None for t in ts):
            return None
        return self(*[zeros(out, x.shape) if t is None else t for t, x in zip(ts, xs, strict=True)])


@parametric
class Concatenate(_Joined):
    """The operands one after the other along `axis`."""

    axis: int

    name = "concatenate"

    def aval(self, *xs: Aval) -> Aval:
        rest = {(*x.shape[: self.axis], *x.shape[self.axis + 1 :]) for x in xs}
        if len(rest) != 1:
            raise ValueError(f"concatenate: shapes {[x.shape for x in xs]} differ off the axis")
        shape = list(xs[0].shape)
        shape[self.axis] = sum(x.shape[self.axis] for x in xs)
        return xs[0].with_shape(shape)

    def evaluate(self, *xs: Any) -> Any:
        return np.concatenate(xs, self.axis)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = np.concatenate([{', '.join(xs)}], {self.axis})"]

    def boxes(self, *xs: Any) -> list[StaticIndex]:
        """The index of each operand in the result."""
        indices: list[StaticIndex] = []
        start = 0
        for x in xs:
            full = [Slice(0, n) for n in x.shape]
            full[self.axis] = Slice(start, x.shape[self.axis])
            start += x.shape[self.axis]
            indices.append(tuple(full))
        return indices


@parametric
class Stack(_Joined):
    """The operands, of one shape, next to each other along a new axis `axis` of the result."""

    axis: int

    name = "stack"

    def aval(self, *xs: Aval) -> Aval:
        if len({x.shape for x in xs}) != 1:
            raise ValueError(f"stack: shapes {[x.shape for x in xs]} differ")
        shape = list(xs[0].shape)
        shape.insert(self.axis, len(xs))
        return xs[0].with_shape(shape)

    def evaluate(self, *xs: Any) -> Any:
        return np.stack(xs, self.axis)

    def for_types(self, *avals: Aval) -> Any:
        out = self.aval(*avals)
        if not avals[0].shape and all(x.dtype == out.dtype for x in avals):
            return lambda *xs: np.array(xs, out.dtype)
        return self.evaluate

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        axis = f", {self.axis}" if self.axis else ""
        return [f"{outs[0]} = np.stack([{', '.join(xs)}]{axis})"]

    def boxes(self, *xs: Any) -> list[StaticIndex]:
        """The index of each operand in the result."""
        rest: list[Any] = [Slice(0, n) for n in xs[0].shape]
        return [(*rest[: self.axis], k, *rest[self.axis :]) for k in range(len(xs))]


# ---- indices that are data


def _with_rows(size: int, indices: Sequence[Any]) -> list[Any]:
    """The index arrays of all rows: the numbers of the rows, then `indices`."""
    shape = indices[0].shape
    return [BroadcastTo(shape)(row_numbers(size, indices[0], len(shape))), *indices]


@parametric
class Gather(Lookup):
    """`x[i, j, ...]` for index arrays of one shape, one for each leading axis of `x`."""

    sure: bool = False

    name = "gather"

    def parameters(self) -> tuple[tuple[str, Any], ...]:
        return super().parameters() if self.sure else ()

    def aval(self, *xs: Aval) -> Aval:
        x, *indices = xs
        return x.with_shape((*indices[0].shape, *x.shape[len(indices) :]))

    def evaluate(self, *xs: Any) -> Any:
        return xs[0][tuple(xs[1:])]

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        x, *indices = xs
        if not any(mapped[1:]):
            return put_first(self(put_last(x), *indices))
        indices = all_mapped(indices, mapped[1:], size)
        return self(x, *_with_rows(size, indices)) if mapped[0] else self(x, *indices)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = {xs[0]}[{', '.join(xs[1:])}]"]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        x, *indices = xs
        return ScatterAdd(x.shape)(ct, *indices), *[None] * len(indices)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else self(ts[0], *xs[1:])


gather = Gather()


@parametric
class ScatterAdd(Scatter):
    """Zeros of `shape` to which `y` is added at the index arrays; repeated indices accumulate."""

    shape: tuple[int, ...]

    name = "scatter_add"
    indexed = True

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_shape(self.shape)

    def evaluate(self, *xs: Any) -> Any:
        out = np.zeros(self.shape, xs[0].dtype)
        np.add.at(out, tuple(xs[1:]), xs[0])
        return out

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        y, *indices = xs
        if not any(mapped[1:]):
            return put_first(ScatterAdd((*self.shape, size))(put_last(y), *indices))
        y, *indices = all_mapped(xs, mapped, size)
        return ScatterAdd((size, *self.shape))(y, *_with_rows(size, indices))

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        (out,), zeros = outs, zeros_text(self.shape, call.out.dtype)
        index = f"({', '.join(xs[1:])}{',' * (len(xs) == 2)})"
        return [f"{out} = {zeros}", f"np.add.at({out}, {index}, {xs[0]})"]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return gather(ct, *xs[1:]), *[None] * (len(xs) - 1)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else self(ts[0], *xs[1:])


@parametric
class ScatterSet(Scatter):
    """`x` with `x[i, j, ...] = y` for index arrays; the last write to a place wins."""

    sure: bool = False

    name = "scatter_set"

    def parameters(self) -> tuple[tuple[str, Any], ...]:
        return super().parameters() if self.sure else ()

    onto = "first"
    indexed = True

    def evaluate(self, *xs: Any) -> Any:
        # NumPy walks through memory, backwards where strides are negative. In row-major order the
        # last write is the one that `Winners` finds.
        x, y, *indices = (np.asarray(v, order="C") for v in xs)
        out = np.array(x)
        out[tuple(indices)] = y
        return out

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        x, y, *indices = xs
        if not any(mapped[2:]):
            x, y = all_mapped((x, y), mapped[:2], size)
            return put_first(self(put_last(x), put_last(y), *indices))
        x, y, *indices = all_mapped(xs, mapped, size)
        return self(x, y, *_with_rows(size, indices))

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        (out,) = outs
        return [f"{out} = np.array({xs[0]})", f"{out}[{', '.join(xs[2:])}] = {xs[1]}"]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        x, y, *indices = xs
        wins = Winners(x.shape)(*indices)
        if y.ndim > wins.ndim:
            wins = ExpandDims(tuple(range(wins.ndim, y.ndim)))(wins)
        ct_y = where(wins, gather(ct, *indices), ct.constant(0))
        return self(ct, zeros(ct, y.shape), *indices), ct_y, *[None] * len(indices)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        x, y, *indices = xs
        tx, ty = ts[:2]
        if tx is None and ty is None:
            return None
        tx = zeros(out, x.shape) if tx is None else tx
        ty = zeros(out, y.shape) if ty is None else ty
        return self(tx, ty, *indices)


scatter_set = ScatterSet()


@parametric
class Winners(Underived, Library):
    """For index arrays into an array of `shape`: which writes aren't overwritten by a later one."""

    shape: tuple[int, ...]

    name = "winners"

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_dtype(bool)

    def evaluate(self, *xs: Any) -> Any:
        indices = tuple(np.asarray(k, order="C") for k in xs)
        order = np.arange(indices[0].size).reshape(indices[0].shape)
        last = np.full(self.shape[: len(indices)], -1)
        last[indices] = order
        return last[indices] == order

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        return Winners((size, *self.shape))(*_with_rows(size, all_mapped(xs, mapped, size)))

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        """Write the number of each write to its place. A write whose number is still there wasn't
        overwritten."""
        (out,), index, shape = outs, ", ".join(xs), call.out.shape
        numbers = f"np.arange({call.out.aval.size})"
        if len(shape) != 1:
            numbers += f".reshape({shape_text(shape)})"
        return [
            f"{out} = np.full({shape_text(self.shape[: len(xs)])}, -1)",
            f"{out}[{index}] = {numbers}",
            f"{out} = {out}[{index}] == {numbers}",
        ]


@parametric
class Nonzero(Underived, Library):
    """The index arrays of the `count` true elements of a mask."""

    count: int
    ndim: int

    name = "nonzero"

    @property
    def results(self) -> int:  # type: ignore[override]
        return self.ndim

    def aval(self, *xs: Aval) -> tuple[Aval, ...]:
        return (Aval((self.count,), np.dtype(np.intp)),) * self.ndim

    def evaluate(self, *xs: Any) -> Any:
        indices = np.nonzero(xs[0])
        if len(indices[0]) != self.count:  # the shapes must fit until a guard fails
            indices = tuple(np.resize(k, self.count) for k in indices)
        return indices[0] if self.ndim == 1 else indices

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"({', '.join(outs)},) = np.nonzero({xs[0]})"]
