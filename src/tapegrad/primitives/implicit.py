"""Derivatives by the implicit function theorem, of the results of solvers.

If F(x, p) = 0 defines x, dx = -F_x^-1 F_p dp. So the cotangent of p is F_p^T y, where
F_x^T y = -x'. The rules call derivatives of F's tape at x, which is a result of the solver's call.
So they can be differentiated again.

Names: `n` the size of x; `p` the other operands of F.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tapegrad.ir.tape import METHODS, Aval, Builder, Literal, Tape
from tapegrad.primitives.base import Slice
from tapegrad.primitives.control import CallTape, ForeignCall
from tapegrad.primitives.elementwise import AsType, equal, sub
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.scatter import gather
from tapegrad.primitives.solving import LU, LUSolve
from tapegrad.primitives.sparse import Solve as SparseSolve
from tapegrad.primitives.triangles import Triangle
from tapegrad.primitives.views import BroadcastTo, Reshape, zeros
from tapegrad.primitives.windows import SetWindow, Window

# Finds y with M y = b, for plain arrays. The arguments are the function v -> M v, and b.
Solve = Callable[[Callable[[Any], Any], Any], Any]
UNROLLED = 3  # a Jacobian with at most this many rows is written without a loop


def real(tape: Tape, start: int = 0) -> list[int]:
    """The positions of the inputs from `start` on that may have a derivative."""
    return [k for k, v in enumerate(tape.inputs) if k >= start and v.dtype.kind == "f"]


def called(tape: Tape, xs: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a call of `tape`."""
    if not tape.outputs:
        return ()
    found = CallTape(tape)(*xs)
    return found if isinstance(found, tuple) else (found,)


@dataclass(eq=False)
class Implicit:
    """The rules of a call whose first result is x with F(x, further results, p) = 0.

    `tape` is F. The first `lead` operands aren't read by F, the others are p. Linear systems are
    solved by `solve`, or if it is None, by the LU factors of F_x.

    If F_x is sparse, it is computed from `products` products with vectors. The last four operands
    of p are the number of each column's product, the position of each entry among all products, and
    the pattern as in SciPy: the columns of entries, and the starts of rows.
    """

    tape: Tape
    further: int = 0
    lead: int = 0
    solve: Solve | None = None
    products: int = 0

    def __post_init__(self) -> None:
        self.tape = replace(self.tape, guards=())  # they held at x, when it was found
        self.first = 1 + self.further

    @cached_property
    def of_x(self) -> Tape:
        return METHODS["pulled"](self.tape, (0,))

    @cached_property
    def of_p(self) -> Tape:
        return METHODS["pulled"](self.tape, self.active)

    @cached_property
    def active(self) -> list[int]:
        return real(self.tape, self.first)

    def _given(self, outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        return [*outs[: self.first], *xs[self.lead :]]

    def backward(self, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        given = self._given(outs, xs)
        found: list[Any] = [None] * len(xs)
        if cts[0] is None:
            return found
        seed = -self.solved(given, cts[0], transposed=True)
        pulled = called(self.of_p, [*given, seed])
        for k, ct in zip(self.active, pulled, strict=True):
            found[self.lead + k - self.first] = ct + self.known(seed, ct)
        return found

    def known(self, seed: Any, ct: Any) -> Any:
        """A zero for a cotangent, which becomes NaN if F_x is singular: F_p may be 0 there too."""
        size = Sum(tuple(range(seed.ndim)))(seed) if seed.ndim else seed
        return BroadcastTo(ct.shape)(size * size.constant(0))

    def forward(self, ts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        given = self._given(outs, xs)
        moving = [k for k in self.active if ts[self.lead + k - self.first] is not None]
        rest: list[Any] = [None] * (len(outs) - 1)
        if not moving:
            return [None, *rest]
        pushed = METHODS["pushed"](self.tape, moving)
        tangents = [ts[self.lead + k - self.first] for k in moving]
        tangents = [
            t if t.shape == given[k].shape else BroadcastTo(given[k].shape)(t)
            for t, k in zip(tangents, moving, strict=True)
        ]
        (moved,) = called(pushed, [*given, *tangents])
        return [-self.solved(given, moved, transposed=False), *rest]

    def solved(self, given: Sequence[Any], b: Any, transposed: bool) -> Any:
        """F_x^-1 b, with the shape of x, or if `transposed` F_x^-T b, with the shape of F."""
        x, r = given[0], self.tape.outputs[0]
        shape = r.shape if transposed else x.shape
        n = int(np.prod(x.shape))
        if n == 0:
            return Reshape(shape)(b)
        if self.solve is not None:
            return self._solved_by(self.solve, given, b, shape, transposed)
        if self.products:
            entries, column = self.entries(given), Reshape((n, 1))(b)
            return Reshape(shape)(SparseSolve((n, n), transposed)(entries, *given[-2:], column))
        if n == 1:
            one = BroadcastTo(r.shape)(x.constant(1))
            (slope,) = called(self.of_x, [*given, one])
            return Reshape(shape)(Reshape(())(b) / Reshape(())(slope))
        jacobian = self.jacobian(given, n)
        factors, pivots = LU()(jacobian)
        row = Reshape((1, n))(b)
        return Reshape(shape)(LUSolve(transposed)(jacobian, factors, pivots, row))

    def _solved_by(
        self, solve: Solve, given: Sequence[Any], b: Any, shape: Any, transposed: bool
    ) -> Any:
        """The solution from products with F_x or its transpose. It is the root of an equation
        itself, so it has implicit rules too."""
        product = self.of_x if transposed else METHODS["pushed"](self.tape, (0,))
        known = Aval(shape, given[0].dtype)
        builder = Builder("linear system")
        y, right = builder.input(known), builder.input(Aval(b.shape, b.dtype))
        inside = [builder.input(v.aval) for v in self.tape.inputs]
        (found,) = builder.call(CallTape(product), [*inside, y])
        rest = builder.call(sub, [found, right])
        rules = Implicit(builder.finish(rest), solve=solve)

        def function(b: Any, *given: Any) -> list[Any]:
            def matvec(v: Any) -> Any:
                v = np.asarray(v, known.dtype)
                (found,) = METHODS["run"](product, [*given, np.reshape(v, shape)[()]])
                return np.array(found)

            return [np.reshape(solve(matvec, np.array(b)), shape)]

        function.__name__ = "solve"
        call = ForeignCall("solve", function, (known,), 1, rules.backward, "", rules.forward)
        return call(b, *given)

    def entries(self, given: Sequence[Any]) -> Any:
        """The entries of a sparse F_x."""
        x, index = given[0], given[-3]
        rows = self.tape.outputs[0].aval.size
        pushed = METHODS["pushed"](self.tape, (0,))
        builder = Builder("product")
        step = builder.input(Aval((), np.dtype(np.int64)))
        start = zeros(x, (self.products, rows))
        before, *inside = [builder.input(v.aval) for v in (start, *given)]
        (own,) = builder.call(equal, [inside[-4], step])
        (own,) = builder.call(AsType(x.dtype), [own])
        (seed,) = builder.call(Reshape(x.shape), [own])
        (row,) = builder.call(CallTape(pushed), [*inside, seed])
        (row,) = builder.call(Reshape((rows,)), [row])
        place = ((0, Slice(0, rows)), ((1, 0),))
        after = builder.call(SetWindow(*place), [before, row, step])
        loop = Loop(builder.finish(after), 1, self.products)
        found = loop(Literal(np.int64(self.products)), start, *given)
        return gather(Reshape((self.products * rows,))(found), index)

    def jacobian(self, given: Sequence[Any], n: int) -> Any:
        """F_x, computed row by row."""
        x, shape, tape = given[0], self.tape.outputs[0].shape, self.of_x
        ones = BroadcastTo((n, n))(x.constant(1))
        eye = Triangle(True)(Triangle(False)(ones))
        if n <= UNROLLED:
            rows = zeros(x, (n, n))
            for k in range(n):
                seed = Reshape(shape)(Window((k, Slice(0, n)), ())(eye))
                (row,) = called(tape, [*given, seed])
                rows = SetWindow((k, Slice(0, n)), ())(rows, Reshape((n,))(row))
            return rows
        builder = Builder("row")
        step = builder.input(Aval((), np.dtype(np.int64)))
        before, eyes, *inside = [builder.input(v.aval) for v in (eye, eye, *given)]
        place = ((0, Slice(0, n)), ((1, 0),))
        (seed,) = builder.call(Window(*place), [eyes, step])
        (seed,) = builder.call(Reshape(shape), [seed])
        (row,) = builder.call(CallTape(tape), [*inside, seed])
        (row,) = builder.call(Reshape((n,)), [row])
        after = builder.call(SetWindow(*place), [before, row, step])
        loop = Loop(builder.finish(after), 1, n)
        return loop(Literal(np.int64(n)), zeros(x, (n, n)), eye, *given)
