"""Of loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.primitives.samples.drawn import Reference, Sample, normal

from tapegrad.ir.tape import Aval, Builder, Literal, Tape
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Slice, Writer
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.reductions import (
    Sum,
)
from tapegrad.primitives.views import (
    GetItem,
)
from tapegrad.primitives.windows import AddWindow, SetWindow, Window


def _body(function: Callable[..., Any], *avals: Aval) -> Tape:
    """The tape of a function of a step and of values of these types."""
    builder = Builder("body")
    writer = Writer(builder)
    step = builder.input(Aval((), np.dtype(np.int64)), "t")
    found = function(*[writer.node(x) for x in (step, *map(builder.input, avals))])
    return builder.finish([x.operand for x in found])


def _narrow(aval: Aval) -> Aval:
    return Aval(aval.shape, np.dtype(np.float32)) if aval.dtype.kind == "f" else aval


def _loop(
    function: Callable[..., Any],
    reference: Reference,
    rounds: int,
    operands: Sequence[Any],
    carried: int = 1,
    most: int | None = None,
    backwards: bool = False,
    until: bool = False,
    recomputed: bool = False,
    label: str = "",
) -> Sample:
    """A loop of so many rounds of a function; the operands are what is carried, and invariants."""
    avals = [Aval(np.shape(x), np.asarray(x).dtype) for x in operands]
    fields = (carried, rounds if most is None else most, backwards, until, recomputed)
    return Sample(
        Loop(_body(function, *avals), *fields),
        (np.int64(rounds), *([np.bool_(True)] * until), *operands),
        reference,
        narrow=Loop(_body(function, *map(_narrow, avals)), *fields),
        label=label,
    )


ROW = Window((0, Slice(0, 3)), ((1, 0),))  # x[t]


LAST = Window((4, Slice(0, 3)), ((-1, 0),))  # x[4 - t]


PUT = SetWindow((0, Slice(0, 3)), ((1, 0),))  # x[t] = ...


PUT_NEXT = SetWindow((1, Slice(0, 3)), ((1, 0),))  # x[t + 1] = ...


ADD = AddWindow((Slice(0, 2),), ((1,),))  # x[t:t + 2] += ...


def of_loops() -> dict[type, list[Sample]]:
    s, h, w = normal(seed=5), normal(3, seed=6), normal(3, seed=7)
    x, y = normal(5, 3, seed=8), normal(5, 3, seed=9)

    def chain(t: Any, s: Any, h: Any, w: Any, x: Any) -> Any:
        h = ew.sin(h * w) + ROW(x, t)
        return s + Sum((0,))(h * h), h

    def chained(order: Any) -> Reference:
        def run(n: Any, s: Any, h: Any, w: Any, x: Any) -> Any:
            for t in order(int(n)):
                h = np.array([math.sin(a * b) + c for a, b, c in zip(h, w, x[t], strict=True)])
                s = s + sum(a * a for a in h)
            return s, h

        return run

    def turning(t: Any, a: Any, b: Any, w: Any) -> Any:
        return b, a * b + w

    def turned(n: Any, a: Any, b: Any, w: Any) -> Any:
        for _ in range(n):
            a, b = b, a * b + w
        return a, b

    def filling(t: Any, x: Any, w: Any) -> Any:
        return (PUT_NEXT(x, ew.sin(ROW(x, t) * w), t),)

    def filled(n: Any, x: Any, w: Any) -> Any:
        rows = [x[0]]
        for _ in range(n):
            rows.append(np.sin(rows[-1] * w))
        return np.array([*rows, *x[n + 1 :]])

    def recording(t: Any, h: Any, out: Any, w: Any) -> Any:
        h = ew.tanh(h * w)
        return h, PUT(out, h * h, t)

    def recorded(n: Any, h: Any, out: Any, w: Any) -> Any:
        states = []
        for _ in range(n):
            h = np.tanh(h * w)
            states.append(h * h)
        return h, np.array([*(states[::-1] if n == 5 else states), *out[n:]])

    def collecting(t: Any, total: Any, w: Any, x: Any) -> Any:
        total = ADD(total, GetItem((Slice(0, 2),))(LAST(x, t) * w), t)
        return (AddWindow((0,), ())(total, Sum((0,))(w * w)),)

    def collected(n: Any, total: Any, w: Any, x: Any) -> Any:
        total = list(total)
        for t in range(n):
            total[t] += x[4 - t, 0] * w[0]
            total[t + 1] += x[4 - t, 1] * w[1]
            total[0] += sum(a * a for a in w)
        return np.array(total)

    def inner(t: Any, s: Any, rows: Any, outer: Any) -> Any:
        """s = sin(s * rows[outer, 2 - t])"""
        at = Window((0, 2), ((0, -1), (1, 0)))
        return (ew.sin(s * at(rows, t, outer)),)

    def nested(t: Any, s: Any, h: Any, rows: Any) -> Any:
        dtype = rows.aval.dtype
        step = Aval((), np.dtype(np.int64))
        body = _body(inner, Aval((), dtype), rows.aval, step)
        s = Loop(body, 1, 3)(Literal(np.int64(3)), s, rows, t)
        return s, h * s

    def nests(n: Any, s: Any, h: Any, rows: Any) -> Any:
        for t in range(n):
            for j in range(3):
                s = math.sin(s * rows[t, 2 - j])
            h = h * s
        return s, h

    def counting(t: Any, n: Any, h: Any, start: Any) -> Any:
        return n + start, ew.where(ew.greater(n, t), ew.sin(h), h * 0.5)

    def counted(rounds: Any, n: Any, h: Any, start: Any) -> Any:
        for t in reversed(range(rounds)):
            n, h = n + start, np.sin(h) if n > t else h * 0.5
        return n, h

    def growing(t: Any, s: Any, w: Any, end: Any) -> Any:
        s = s + ew.sin(w) * w
        return s, ew.less(s, end)

    def grown(most: Any, more: Any, s: Any, w: Any, end: Any) -> Any:
        made = 0
        while more and made < most:
            s, made = s + math.sin(w) * w, made + 1
            more = s < end
        return s, np.int64(made), more

    zeros, start, end = np.zeros((5, 3)), np.float64(0.3), np.float64(2.0)
    size = np.float64(0.7)
    return {
        Loop: [
            _loop(
                chain,
                chained(range),
                5,
                (s, h, w, x),
                2,
                recomputed=True,
                label="run again",
            ),
            _loop(growing, grown, 9, (start, size, end), until=True, label="until"),
            _loop(growing, grown, 2, (start, size, end), until=True, label="until it has to stop"),
            _loop(chain, chained(range), 5, (s, h, w, x), 2, label="forwards"),
            _loop(
                chain,
                chained(lambda n: reversed(range(n))),
                5,
                (s, h, w, x),
                2,
                backwards=True,
                label="backwards",
            ),
            _loop(chain, chained(range), 2, (s, h, w, x), 2, most=5, label="fewer than most"),
            _loop(chain, lambda n, *xs: xs[:2], 0, (s, h, w, x), 2, most=5, label="no rounds"),
            _loop(turning, turned, 5, (h, w, 0.5 * h), 2, label="places that turn"),
            _loop(filling, filled, 4, (x, w), label="read where it was written"),
            _loop(filling, filled, 2, (x, w), most=4, label="written in part"),
            _loop(recording, recorded, 3, (h, x, w), 2, most=5, label="states kept"),
            _loop(
                recording,
                recorded,
                5,
                (h, zeros, w),
                2,
                backwards=True,
                label="states kept backwards",
            ),
            _loop(collecting, collected, 5, (normal(6), w, y), label="added to in place"),
            _loop(nested, nests, 4, (s, h, y), 2, label="nested"),
            _loop(
                counting,
                counted,
                4,
                (np.int64(0), h, np.int64(1)),
                2,
                backwards=True,
                label="integers",
            ),
        ]
    }
