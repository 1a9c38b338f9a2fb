"""Of writes, index arrays and joining."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.primitives.samples.drawn import BACK, A, B, I, J, Sample, normal

from tapegrad.primitives.base import Slice
from tapegrad.primitives.scatter import (
    Concatenate,
    Gather,
    Nonzero,
    ScatterAdd,
    ScatterSet,
    SetItem,
    Stack,
    Winners,
)
from tapegrad.primitives.views import (
    Place,
    PlaceDiagonal,
)


def of_placed(x: Any, shape: Sequence[int], places: Callable[..., Any], add: bool = False) -> Any:
    out = np.zeros(shape, x.dtype)
    for at in np.ndindex(x.shape):
        out[places(*at)] = x[at] + (out[places(*at)] if add else 0)
    return out


def of_written(x: Any, y: Any, places: Callable[..., Any]) -> Any:
    out = np.array(x)
    for at in np.ndindex(y.shape):
        out[places(*at)] = y[at]
    return out


def of_scatters() -> dict[type, list[Sample]]:
    y2 = normal(2, 4, seed=2)
    return {
        Place: [
            Sample(
                Place((3, 4), BACK),
                (y2,),
                lambda x: of_placed(x, (3, 4), lambda i, j: (2 - 2 * i, j)),
            ),
            Sample(
                Place((3, 4), (1, 2)),
                (normal(),),
                lambda x: of_placed(np.asarray(x), (3, 4), lambda: (1, 2)),
            ),
            Sample(Place((3, 4), (Slice(0, 0), 1)), (normal(0),), lambda x: np.zeros((3, 4))),
        ],
        PlaceDiagonal: [
            Sample(
                PlaceDiagonal((3, 3), 0),
                (normal(3),),
                lambda x: of_placed(x, (3, 3), lambda i: (i, i)),
            ),
            Sample(
                PlaceDiagonal((3, 4), 2),
                (normal(2, 2),),
                lambda x: of_placed(x, (2, 3, 4), lambda b, i: (b, i, i + 2)),
            ),
            Sample(
                PlaceDiagonal((3, 4), -1),
                (normal(2),),
                lambda x: of_placed(x, (3, 4), lambda i: (i + 1, i)),
            ),
        ],
        SetItem: [
            Sample(
                SetItem(BACK), (A, y2), lambda x, y: of_written(x, y, lambda i, j: (2 - 2 * i, j))
            ),
            Sample(
                SetItem((1, 2)),
                (A, normal(seed=3)),
                lambda x, y: of_written(x, np.asarray(y), lambda: (1, 2)),
            ),
            Sample(SetItem((Slice(0, 0), 1)), (A, normal(0)), lambda x, y: x),
            Sample(SetItem((Slice(0, 3), Slice(0, 4))), (A, normal(3, 4, seed=4)), lambda x, y: y),
        ],
        Concatenate: [
            Sample(Concatenate(0), (A, y2), lambda x, y: np.array([*x, *y])),
            Sample(
                Concatenate(1),
                (A, normal(3, 1), A),
                lambda x, y, z: np.array([[*a, *b, *c] for a, b, c in zip(x, y, z, strict=True)]),
            ),
            Sample(Concatenate(0), (normal(0, 4), A), lambda x, y: y),
            Sample(Concatenate(0), (A,), lambda x: x),
        ],
        Stack: [
            Sample(Stack(0), (A, normal(3, 4, seed=1)), lambda x, y: np.array([x, y])),
            Sample(
                Stack(2),
                (A, normal(3, 4, seed=1), A),
                lambda x, y, z: np.moveaxis(np.array([x, y, z]), 0, 2),
            ),
            Sample(Stack(1), (B, B), lambda x, y: np.array([[a, a] for a in x])),
            Sample(
                Stack(0),
                (normal(), normal(seed=1), normal(seed=2)),
                lambda *xs: np.array(xs),
            ),
            Sample(Stack(1), (normal(2, 0), normal(2, 0)), lambda x, y: np.zeros((2, 2, 0))),
            Sample(Stack(0), (A,), lambda x: x[None]),
        ],
        Gather: [
            Sample(
                Gather(), (A, I), lambda x, i: np.array([x[k] for k in i]), label="rows, repeated"
            ),
            Sample(
                Gather(),
                (A, I, J),
                lambda x, i, j: np.array([x[a, b] for a, b in zip(i, j, strict=True)]),
                label="elements, repeated",
            ),
            Sample(
                Gather(),
                (B, np.array([[0, 1], [1, 1]])),
                lambda x, i: np.array([[x[b] for b in a] for a in i]),
                label="matrix of indices",
            ),
            Sample(Gather(), (A, I[:0]), lambda x, i: np.empty((0, 4)), label="none"),
            Sample(Gather(), (A, np.intp(1)), lambda x, i: x[1], label="scalar"),
            Sample(
                Gather(sure=True),
                (A, np.int32([2, 0, 2])),
                lambda x, i: np.array([x[k] for k in i]),
                label="known to be in range",
            ),
        ],
        ScatterAdd: [
            Sample(
                ScatterAdd((3, 4)),
                (normal(4, 4), I),
                lambda y, i: of_placed(y, (3, 4), lambda a, b: (i[a], b), True),
                label="rows, repeated",
            ),
            Sample(
                ScatterAdd((3, 4)),
                (normal(4), I, J),
                lambda y, i, j: of_placed(y, (3, 4), lambda a: (i[a], j[a]), True),
                label="elements, repeated",
            ),
            Sample(
                ScatterAdd((3, 4)),
                (normal(0, 4), I[:0]),
                lambda y, i: np.zeros((3, 4)),
                label="none",
            ),
        ],
        ScatterSet: [
            Sample(
                ScatterSet(sure=True),
                (A, normal(2, 4), np.int32([2, 0])),
                lambda x, y, i: of_written(x, y, lambda a, b: (i[a], b)),
                label="known to be in range",
            ),
            Sample(
                ScatterSet(),
                (A, normal(4, 4), I),
                lambda x, y, i: of_written(x, y, lambda a, b: (i[a], b)),
                label="rows, repeated",
            ),
            Sample(
                ScatterSet(),
                (A, normal(4), I, J),
                lambda x, y, i, j: of_written(x, y, lambda a: (i[a], j[a])),
                label="elements, repeated",
            ),
            Sample(ScatterSet(), (A, normal(0, 4), I[:0]), lambda x, y, i: x, label="none"),
        ],
        Winners: [
            Sample(
                Winners((3, 4)),
                (I,),
                lambda i: _winners(i % 3),
            ),
            Sample(Winners((3, 4)), (I, J), lambda i, j: _winners(i % 3, j % 4)),
        ],
        Nonzero: [
            Sample(Nonzero(2, 1), (np.array([True, False, True]),), lambda m: np.array([0, 2])),
            Sample(
                Nonzero(3, 2),
                (np.array([[True, False], [True, True]]),),
                lambda m: (np.array([0, 1, 1]), np.array([0, 0, 1])),
            ),
            Sample(Nonzero(0, 1), (np.array([False]),), lambda m: np.empty(0, int)),
        ],
    }


def _winners(*indices: Any) -> Any:
    """Which write is the last one at its place."""
    places = list(zip(*[i.tolist() for i in indices], strict=True))
    return np.array([place not in places[k + 1 :] for k, place in enumerate(places)])
