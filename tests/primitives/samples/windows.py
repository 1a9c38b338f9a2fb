"""Of parts of arrays that move with the rounds of loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.primitives.samples.drawn import A, Sample, normal
from tests.primitives.samples.scatters import of_placed, of_written

from tapegrad.core.values import Span
from tapegrad.primitives.base import Slice
from tapegrad.primitives.parts import AddPart, Part, PlacePart, SetPart
from tapegrad.primitives.windows import AddWindow, Empty, PlaceWindow, SetWindow, Window


def of_windows() -> dict[type, list[Sample]]:
    one, two = np.int64(1), np.int64(2)
    back = (Slice(0, 2, 1), Slice(3, 2, -2))  # x[t:t + 2, 3 - u::-2], of two elements
    moves = ((1, 0), (0, -1))
    y = normal(2, 2, seed=2)
    rows = ((2, Slice(0, 4)), ((-1, 0),))  # x[2 - t]

    def at(i: int, j: int, t: int = 1, u: int = 1) -> Any:
        return i + t, 3 - u - 2 * j

    def taken(x: Any, t: Any, u: Any) -> Any:
        return np.array([[x[at(i, j, t, u)] for j in range(2)] for i in range(2)])

    def placed(y: Any, t: Any, u: Any) -> Any:
        return of_placed(y, (3, 4), lambda i, j: at(i, j, t, u))

    def written(x: Any, y: Any, t: Any, u: Any) -> Any:
        return of_written(x, y, lambda i, j: at(i, j, t, u))

    def added(x: Any, y: Any, t: Any, u: Any) -> Any:
        return x + placed(y, t, u)

    element = ((0, 1), ((1, 1),))  # x[t, 1 + t]
    whole = ((Slice(0, 3), Slice(0, 4)), ())
    row, number = normal(4, seed=3), normal(seed=4)
    f4 = np.dtype(np.float32)
    return {
        Empty: [  # whose elements are nobody's business
            Sample(Empty((2, 3), np.dtype(float)), (), lambda: np.zeros((2, 3))),
            Sample(Empty((), f4), (), lambda: np.zeros((), f4), label="a number"),
        ],
        Window: [
            Sample(Window(back, moves), (A, one, one), taken),
            Sample(Window(back, moves), (A, np.int64(0), np.int64(0)), taken, label="at first"),
            Sample(Window(*rows), (A, two), lambda x, t: x[0], label="a row"),
            Sample(Window(*element), (A, two), lambda x, t: x[2, 3], label="an element"),
            Sample(Window(*whole), (A,), lambda x: x, label="everything"),
        ],
        PlaceWindow: [
            Sample(PlaceWindow((3, 4), back, moves), (y, one, one), placed),
            Sample(
                PlaceWindow((3, 4), *rows),
                (row, two),
                lambda y, t: np.array([y, 0 * y, 0 * y]),
                label="a row",
            ),
            Sample(
                PlaceWindow((3, 4), *element),
                (number, two),
                lambda y, t: of_placed(np.asarray(y), (3, 4), lambda: (2, 3)),
                label="an element",
            ),
        ],
        SetWindow: [
            Sample(SetWindow(back, moves), (A, y, one, one), written),
            Sample(
                SetWindow(*rows),
                (A, row, two),
                lambda x, y, t: np.array([y, x[1], x[2]]),
                label="a row",
            ),
            Sample(
                SetWindow(*element),
                (A, number, two),
                lambda x, y, t: of_written(x, np.asarray(y), lambda: (2, 3)),
                label="an element",
            ),
            Sample(SetWindow(*whole), (A, 2 * A), lambda x, y: y, label="everything"),
        ],
        AddWindow: [
            Sample(AddWindow(back, moves), (A, y, one, one), added),
            Sample(
                AddWindow(*rows),
                (A, row, two),
                lambda x, y, t: np.array([x[0] + y, x[1], x[2]]),
                label="a row",
            ),
            Sample(
                AddWindow(*element),
                (A, number, two),
                lambda x, y, t: x + of_placed(np.asarray(y), (3, 4), lambda: (2, 3)),
                label="an element",
            ),
            Sample(AddWindow(*whole), (A, 2 * A), lambda x, y: 3 * x, label="everything"),
        ],
    }


def of_parts() -> dict[type, list[Sample]]:
    one, two = np.int64(1), np.int64(2)
    lower = ((Slice(0, 3), Span(0, 1, 1, 4)), ((0, 0, 1),))  # x[:, :t + 1]
    row = ((0, Span(3, 3, -1, 5)), ((1, 0, -1),))  # x[t, 3:t:-1], of at most five elements
    corner = ((Span(1, 1, 1, 3), Span(0, 4, 2, 4)), ((0, 0, 1, -2),))  # x[1:t + 2, :4 - 2 * t:2]
    nothing = ((0, Span(1, 2, 1, 5)), ((1, 0, -1),))
    y, z, w = normal(3, 4, seed=2), normal(5, seed=3), normal(3, 4, seed=5)

    def front(x: Any, shape: tuple[int, ...], fill: float = 0.0) -> Any:
        out = np.full(shape, fill, x.dtype)
        out[tuple([slice(n) for n in x.shape])] = x
        return out

    def changed(x: Any, at: Any, y: Any, adds: bool) -> Any:
        out = x.copy()
        out[at] = out[at] * adds + y[tuple([slice(n) for n in out[at].shape])]
        return out

    down = np.s_[1, 3:1:-1]  # after one step
    found: dict[type, list[Sample]] = {
        Part: [
            Sample(Part(*lower, 0), (A, one), lambda x, t: front(x[:, :2], (3, 4))),
            Sample(Part(*row, -2.0), (A, one), lambda x, t: front(x[down], (5,), -2.0)),
            Sample(Part(*corner, 1), (A, one), lambda x, t: front(x[1:3, :4:2], (3, 4), 1.0)),
            Sample(Part(*nothing, 0), (A, two), lambda x, t: np.zeros(5), label="nothing"),
        ],
        PlacePart: [
            Sample(
                PlacePart((3, 4), *lower),
                (y, one),
                lambda y, t: changed(0 * A, np.s_[:, :2], y, False),
            ),
            Sample(PlacePart((3, 4), *row), (z, one), lambda z, t: changed(0 * A, down, z, False)),
        ],
    }
    for kind in (SetPart, AddPart):
        adds = kind is AddPart
        found[kind] = [
            Sample(
                kind(*lower),
                (A, y, one),
                lambda x, y, t, adds=adds: changed(x, np.s_[:, :2], y, adds),
            ),
            Sample(
                kind(*row),
                (A, z, one),
                lambda x, z, t, adds=adds: changed(x, down, z, adds),
                label="a row",
            ),
            Sample(
                kind(*corner),
                (A, w, one),
                lambda x, w, t, adds=adds: changed(x, np.s_[1:3, :4:2], w, adds),
                label="a corner",
            ),
            Sample(kind(*nothing), (A, z, two), lambda x, z, t: x, label="nothing"),
        ]
    return found
