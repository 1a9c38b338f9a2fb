"""Random small tapes, for hypothesis: any calls, with shapes and dtypes that fit."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from tapegrad.ir.tape import Aval, Builder, Guard, Operand, Tape, Var, literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives import kinked
from tapegrad.primitives.base import Slice
from tapegrad.primitives.contractions import Einsum
from tapegrad.primitives.extrema import Max, Min
from tapegrad.primitives.reductions import All, Any_, Prod, Sum
from tapegrad.primitives.scatter import Concatenate, SetItem
from tapegrad.primitives.views import (
    BroadcastTo,
    ExpandDims,
    GetItem,
    Place,
    Reshape,
    Squeeze,
    StaticIndex,
    Transpose,
    indexed_shape,
)

SHAPES = [(), (1,), (3,), (1, 3), (3, 1), (2, 3), (1, 1), (3, 3), (2, 1, 3), (0, 3)]
DTYPES = ["f8", "f8", "f8", "f4", "i4", "b1"]
NUMBERS = {
    "f": [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 0.1, math.inf, math.nan],
    "i": [0, 1, -1, 2, 7],
    "b": [0, 1],
}
UNARY = {
    "f": [ew.neg, ew.exp, ew.sin, ew.sqrt, ew.square, kinked.absolute, ew.copy, ew.stop_gradient],
    "i": [ew.neg, ew.square, kinked.absolute, ew.copy],
    "b": [ew.logical_not],
}
BINARY = {
    "f": [ew.add, ew.sub, ew.mul, ew.div, ew.power, kinked.maximum, ew.less, ew.equal],
    "i": [ew.add, ew.sub, ew.mul, kinked.maximum, ew.less],
    "b": [ew.logical_and, ew.logical_or],
}
REDUCTIONS = {"f": [Sum, Max, Min, Prod], "i": [Sum, Max, Min, Prod], "b": [Any_, All]}

Draw = Callable[..., object]


class Maker:
    """Adds random calls to a builder; `pool` holds the values made so far."""

    def __init__(self, draw: Draw, builder: Builder) -> None:
        self.draw = draw
        self.builder = builder
        self.pool: list[Var] = []

    def one_of(self, choices):
        return self.draw(st.sampled_from(list(choices)))

    def number(self, dtype: np.dtype) -> Operand:
        return literal(self.one_of(NUMBERS[dtype.kind]), dtype)

    def operand(
        self, dtype: np.dtype, fits: Callable[[tuple], bool] = lambda shape: True
    ) -> Operand:
        """A value of this dtype whose shape fits, or a number."""
        found = [x for x in self.pool if x.dtype == dtype and fits(x.shape)]
        if found and self.draw(st.booleans()):
            return self.one_of(found)
        return self.number(dtype)

    def call(self, primitive, *operands: Operand) -> None:
        self.pool += self.builder.call(primitive, operands)

    # ---- one method for each form of call; `x` is a value made before

    def unary(self, x: Var) -> None:
        self.call(self.one_of(UNARY[x.dtype.kind]), x)

    def binary(self, x: Var) -> None:
        pair = [x, self.operand(x.dtype, lambda shape: broadcasts(shape, x.shape))]
        self.call(self.one_of(BINARY[x.dtype.kind]), *self.draw(st.permutations(pair)))

    def where(self, x: Var) -> None:
        condition = self.operand(np.dtype(bool), lambda shape: broadcasts(shape, x.shape))
        shape = np.broadcast_shapes(condition.shape, x.shape)
        pair = [x, self.operand(x.dtype, lambda s: broadcasts(s, shape))]
        self.call(ew.where, condition, *self.draw(st.permutations(pair)))

    def astype(self, x: Var) -> None:
        if x.dtype.kind != "f":  # what becomes of NaN as an integer depends on the machine
            self.call(ew.AsType(np.dtype(self.one_of(DTYPES))), x)
        else:
            self.call(ew.AsType(np.dtype(self.one_of(["f4", "f8"]))), x)

    def axes(self, x: Var) -> None:
        ndim = len(x.shape)
        unit = tuple(a for a in range(ndim) if x.shape[a] == 1 and self.draw(st.booleans()))
        new = tuple(a for a in range(ndim + 1) if self.draw(st.booleans()))
        self.call(
            self.one_of(
                [
                    Transpose(tuple(self.draw(st.permutations(range(ndim))))),
                    ExpandDims(new or (0,)),
                    *([Squeeze(unit)] if unit else []),
                ]
            ),
            x,
        )

    def reshape(self, x: Var) -> None:
        size = x.aval.size
        same = [shape for shape in SHAPES if math.prod(shape) == size]
        self.call(Reshape(self.one_of([*same, (size, 1), (1, size, 1)])), x)

    def broadcast(self, x: Var) -> None:
        operand = self.one_of([x, self.number(x.dtype)])
        wider = [s for s in (*SHAPES, x.shape) if broadcasts(operand.shape, s, s)]
        self.call(BroadcastTo(self.one_of(wider)), operand)

    def index(self, shape: tuple[int, ...]) -> StaticIndex:
        entries: list[int | Slice] = []
        for extent in shape:
            if extent and self.draw(st.booleans()):
                entries.append(self.draw(st.integers(0, extent - 1)))
                continue
            bound = st.integers(-4, 4) | st.none()
            step = self.one_of([1, 1, 2, -1])
            start, stop, step = slice(self.draw(bound), self.draw(bound), step).indices(extent)
            entries.append(Slice(start, len(range(start, stop, step)), step))
        return tuple(entries)

    def getitem(self, x: Var) -> None:
        self.call(GetItem(self.index(x.shape)), x)

    def setitem(self, x: Var) -> None:
        index = self.index(x.shape)
        shape = indexed_shape(index)
        found = [y for y in self.pool if (y.shape, y.dtype) == (shape, x.dtype)]
        if shape == ():
            self.call(SetItem(index), x, self.operand(x.dtype, lambda s: s == ()))
        elif found:
            self.call(SetItem(index), x, self.one_of(found))
        self.getitem(self.pool[-1])

    def place(self, x: Var) -> None:
        shape = self.one_of([*[s for s in SHAPES if len(s) >= len(x.shape)], x.shape])
        index: list[int | Slice] = []
        rest = list(x.shape)
        for axis, extent in enumerate(shape):
            if len(shape) - axis > len(rest) and extent:
                index.append(self.draw(st.integers(0, extent - 1)))
            elif rest and rest[0] <= extent:
                index.append(Slice(self.draw(st.integers(0, extent - rest[0])), rest.pop(0)))
            else:
                return
        self.call(Place(shape, tuple(index)), x)

    def concatenate(self, x: Var) -> None:
        if x.shape:
            axis = self.draw(st.integers(0, len(x.shape) - 1))
            self.call(Concatenate(axis), x, x)
            self.getitem(self.pool[-1])

    def reduction(self, x: Var) -> None:
        axes = tuple(a for a in range(len(x.shape)) if self.draw(st.booleans()))
        kinds = REDUCTIONS[x.dtype.kind]
        self.call((kinds[0] if x.aval.size == 0 else self.one_of(kinds))(axes), x)

    def matmul(self, x: Var) -> None:
        if x.shape == (3, 3) and x.dtype.kind == "f":
            self.call(Einsum(self.draw(st.sampled_from(PRODUCTS))), x, x)


# Of two square matrices: products, with transposes, traces, by rows, all of one with all of another
PRODUCTS = (
    "ij,jk->ik", "ij,kj->ik", "ji,jk->ki", "ij,ij->", "ij,ji->", "ij,ij->i", "ij,ij->j",
)  # fmt: skip


FORMS = [
    Maker.unary,
    Maker.binary,
    Maker.binary,
    Maker.where,
    Maker.astype,
    Maker.axes,
    Maker.reshape,
    Maker.broadcast,
    Maker.broadcast,
    Maker.getitem,
    Maker.setitem,
    Maker.place,
    Maker.concatenate,
    Maker.reduction,
    Maker.matmul,
]


def broadcasts(one: tuple[int, ...], other: tuple[int, ...], to: object = None) -> bool:
    """Whether two shapes broadcast, to the shape `to` if one is given."""
    try:
        found = np.broadcast_shapes(one, other)
    except ValueError:
        return False
    return to is None or found == to


@st.composite
def tapes(draw: Draw, inputs: int = 3, calls: int = 12) -> Tape:
    """A tape of up to so many inputs and forms of calls; its last few values are the outputs."""
    builder = Builder("f")
    maker = Maker(draw, builder)
    for _ in range(draw(st.integers(1, inputs))):
        aval = Aval(maker.one_of(SHAPES), np.dtype(maker.one_of(DTYPES)))
        maker.pool.append(builder.input(aval))
    for _ in range(draw(st.integers(1, calls))):
        maker.one_of(FORMS)(maker, maker.one_of(maker.pool[-5:]))
    scalars = [x for x in maker.pool if x.shape == () and x.dtype == bool]
    if scalars and draw(st.booleans()):
        builder.guards.append(Guard(maker.one_of(scalars), literal(True, bool)))
    return builder.finish(maker.pool[-draw(st.integers(1, 8)) :])
