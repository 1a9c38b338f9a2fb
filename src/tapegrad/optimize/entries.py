"""Entries: consecutive parts of an array, one for each round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.ir.tape import Call, Literal, Var
from tapegrad.optimize import repetition
from tapegrad.primitives.views import GetItem
from tapegrad.primitives.windows import Window


@dataclass(frozen=True)
class Entry:
    """Entry `number` of a stacked array, which has one entry for each round."""

    array: Var
    number: int


@dataclass(frozen=True)
class Row:
    """Consecutive entries of one array: `count` of them from `start` on, `step` apart."""

    array: Var
    start: int
    step: int
    count: int


def pieces(entries: Sequence[Any]) -> list[Row | range]:
    """The operands divided into rows, as long as possible, and ranges of operands that are in no
    row."""
    found: list[Row | range] = []
    at = 0
    while at < len(entries):
        stop, first = at + 1, entries[at]
        step = 0
        while stop < len(entries) and isinstance(first, Entry):
            x = entries[stop]
            if not isinstance(x, Entry) or x.array is not first.array:
                break
            step = step or x.number - first.number
            if not step or x.number != first.number + step * (stop - at):
                break
            stop += 1
        if stop - at >= repetition.MIN_ROUNDS:
            found.append(Row(first.array, first.number, step, stop - at))
        elif found and isinstance(found[-1], range):
            found[-1] = range(found[-1].start, at + 1)
            stop = at + 1
        else:
            stop = at + 1
            found.append(range(at, stop))
        at = stop
    return found


def window_of(made: Sequence[Call | None]) -> Any:
    """(array, window, steps) if the calls take equally spaced parts of one array; otherwise
    None."""
    first = made[0]
    if first is None or not isinstance(first.primitive, (GetItem, Window)):
        return None
    p: Any = first.primitive
    indices = []
    for call in made:
        if call is None or call.operands != first.operands:
            return None
        other: Any = call.primitive
        if type(other) is not type(p):
            return None
        if other.where.form != p.where.form or other.moves != p.moves:
            return None
        indices.append(other.where.start)
    move = tuple(b - a for a, b in zip(indices[0], indices[1], strict=True))
    for r, at in enumerate(indices):
        if at != tuple(a + r * far for a, far in zip(indices[0], move, strict=True)):
            return None
    x, *steps = first.operands
    return x, Window(p.index, (*p.moves, move)), tuple(steps)


class Values:
    """Literals that differ from round to round, collected in one array for each dtype, with a row
    for each round."""

    def __init__(self) -> None:
        self.columns: dict[np.dtype, dict[tuple[Literal, ...], int]] = {}

    def column(self, xs: tuple[Any, ...]) -> tuple[np.dtype, int]:
        columns = self.columns.setdefault(xs[0].dtype, {})
        return xs[0].dtype, columns.setdefault(tuple(xs), len(columns))

    def arrays(self) -> dict[np.dtype, np.ndarray]:
        return {
            dtype: np.array([[x.value for x in xs] for xs in columns], dtype).T.copy()
            for dtype, columns in self.columns.items()
        }
