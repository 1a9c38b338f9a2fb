"""Random small tapes as in tests/optimize/random_tapes.py, with the calls that need care from the
emitters too: indices that are data, running sums, positions of extrema, diagonals, and calls that
only NumPy can make."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from tests.optimize.random_tapes import DTYPES, FORMS, SHAPES, Draw, Maker

from tapegrad.ir.tape import Aval, Builder, Guard, Operand, Tape, Var, literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.contractions import Einsum
from tapegrad.primitives.control import ForeignCall
from tapegrad.primitives.reductions import ArgMax, ArgMin, CumProd, CumSum
from tapegrad.primitives.scatter import ScatterAdd, ScatterSet, gather
from tapegrad.primitives.sorting import ArgSort
from tapegrad.primitives.views import Diagonal, GetItem, PlaceDiagonal, Transpose


def _rolled(x: np.ndarray) -> tuple[np.ndarray]:
    return (np.roll(x, 1) if x.ndim else x,)


class Wider(Maker):
    """Knows more forms of calls."""

    def axis(self, x: Var) -> int:
        return self.draw(st.integers(0, len(x.shape) - 1))

    def indices(self, extents: tuple[int, ...], shape: tuple[int, ...]) -> list[Operand]:
        """Integer arrays of one shape, in range for these extents; negative ones too."""
        found = []
        for extent in extents:
            pool = [x for x in self.pool if x.dtype.kind == "i" and x.shape == shape]
            if pool and self.draw(st.booleans()):
                x: Operand = self.one_of(pool)
            else:
                x = literal(self.draw(st.integers(0, 9)), np.int64)
            if not isinstance(x, Var):
                (x,) = self.builder.call(ew.add, [x, literal(0, np.int64)])
            (x,) = self.builder.call(ew.AsType(np.dtype(np.int64)), [x])
            (x,) = self.builder.call(ew.mod, [x, literal(extent, np.int64)])
            if self.draw(st.booleans()):
                (x,) = self.builder.call(ew.sub, [x, literal(extent, np.int64)])
            found.append(x)
        shapes = {x.shape for x in found}
        return found if len(shapes) == 1 else found[:1] * len(found)

    def leading(self, x: Var) -> tuple[int, ...]:
        return x.shape[: self.draw(st.integers(1, len(x.shape)))]

    def gather(self, x: Var) -> None:
        if x.shape and 0 not in x.shape:
            extents = self.leading(x)
            same = self.one_of([s for s in SHAPES if len(s) < 3])
            indices = self.indices((min(extents),) * len(extents), same)
            self.call(gather, x, *indices)

    def scatter_add(self, x: Var) -> None:
        if x.shape and x.dtype.kind != "b":
            count = self.draw(st.integers(1, len(x.shape)))
            indices = self.indices((2,), x.shape[:count])
            if indices[0].shape == x.shape[:count]:
                self.call(ScatterAdd((3, *x.shape[count:])), x, *indices)
                if self.draw(st.booleans()):
                    self.call(ew.add, self.pool[-1], self.pool[-1])

    def scatter_set(self, x: Var) -> None:
        if x.shape and x.shape[0]:
            (index,) = self.indices(x.shape[:1], x.shape[:1])
            y = self.one_of([v for v in self.pool if (v.shape, v.dtype) == (x.shape, x.dtype)])
            if index.shape == x.shape[:1]:
                self.call(ScatterSet(), x, y, index)

    def running(self, x: Var) -> None:
        if x.shape and x.dtype.kind != "b":
            axis = self.axis(x)
            kinds = [CumSum(axis), CumSum(axis, reverse=True), CumProd(axis)]
            self.call(self.one_of(kinds), x)

    def position(self, x: Var) -> None:
        if x.shape and x.dtype.kind != "b":
            axis = self.axis(x)
            if x.shape[axis]:
                self.call(self.one_of([ArgMax(axis), ArgMin(axis)]), x)

    def diagonal(self, x: Var) -> None:
        if len(x.shape) >= 2:
            self.call(Diagonal(self.draw(st.integers(-1, 1))), x)

    def place_diagonal(self, x: Var) -> None:
        if x.shape:
            n = x.shape[-1]
            shape, offset = self.one_of([((n, n), 0), ((n, n + 1), 1), ((n + 2, n), -1)])
            self.call(PlaceDiagonal(shape, offset), x)
            if self.draw(st.booleans()):
                self.call(ew.add, self.pool[-1], self.one_of([self.number(x.dtype), self.pool[-1]]))

    def product(self, x: Var) -> None:
        if len(x.shape) >= 2 and x.dtype.kind == "f":
            n = len(x.shape)
            self.call(Transpose((*range(n - 2), n - 1, n - 2)), x)
            batch, flipped = "hgfe"[: n - 2], self.draw(st.booleans())
            text = f"{batch}ij,{batch}jk->{batch}{'ki' if flipped else 'ik'}"
            self.call(Einsum(text), *self.draw(st.permutations([x, self.pool[-1]])))

    def foreign(self, x: Var) -> None:
        """A function that only NumPy can run."""
        types = (Aval(x.shape, x.dtype),)
        self.call(ForeignCall("rolled", _rolled, types, 1), x)

    def order(self, x: Var) -> None:
        if x.shape:
            self.call(ArgSort(self.axis(x), stable=True), x)

    def reversed(self, x: Var) -> None:
        """A view against the order of memory, which in-place writes must not see."""
        if x.shape:
            from tapegrad.primitives.base import Slice

            flipped = tuple(Slice(max(n - 1, 0), n, -1) for n in x.shape)
            self.call(GetItem(flipped), x)
            self.setitem(x)


MORE = [
    Wider.gather,
    Wider.scatter_add,
    Wider.scatter_set,
    Wider.running,
    Wider.position,
    Wider.diagonal,
    Wider.place_diagonal,
    Wider.product,
    Wider.foreign,
    Wider.order,
    Wider.reversed,
]


@st.composite
def wide_tapes(draw: Draw, inputs: int = 3, calls: int = 12) -> Tape:
    """A tape as `random_tapes.tapes` draws it, of more forms of calls."""
    builder = Builder("f")
    maker = Wider(draw, builder)
    for _ in range(draw(st.integers(1, inputs))):
        aval = Aval(maker.one_of(SHAPES), np.dtype(maker.one_of(DTYPES)))
        maker.pool.append(builder.input(aval))
    for _ in range(draw(st.integers(1, calls))):
        maker.one_of([*FORMS, *MORE])(maker, maker.one_of(maker.pool[-5:]))
    scalars = [x for x in maker.pool if x.shape == () and x.dtype == bool]
    if scalars and draw(st.booleans()):
        builder.guards.append(Guard(maker.one_of(scalars), literal(True, bool)))
    return builder.finish(maker.pool[-draw(st.integers(1, 8)) :])
