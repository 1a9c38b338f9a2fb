r"""Sums of the parts' results, in an order that depends only on the number of parts.

parts    0   1   2   3   4
          \ /     \ /    |
          0+1     2+3    |        each sum rounds, so the order is fixed by the tree,
             \   /       |        whatever the schedule
             0+..+3      |
                  \     /
                  0+..+4
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapegrad.core.arrays import read
from tapegrad.tracing.runs.traced import kept_as
from tapegrad.trees import tree_leaves, tree_map

PARTS_NAMED = 3  # most parts that a warning names


class Share(NamedTuple):
    """The partial result of some parts.

    The tree (weighted by rows for a mean), the number of rows, the first parts with a value or
    derivative that isn't finite, and the half-precision dtypes of the leaves, which are summed in
    float32.
    """

    total: Any
    rows: int
    not_finite: tuple[int, ...]
    halves: Sequence[Any] = ()


def share_of(result: Any, rows: int, number: int, is_mean: bool) -> Share:
    """The partial result of one part; for a mean, a part without rows counts as 0, not NaN."""
    is_nothing = is_mean and rows == 0
    total = tree_map(lambda x: read(x) * rows if is_mean else read(x), result)
    total = tree_map(np.zeros_like, total) if is_nothing else total
    leaves = tree_leaves(result)
    is_finite = is_nothing or all(np.all(np.isfinite(x)) for x in leaves)
    return Share(total, rows, () if is_finite else (number,), [kept_as(x) for x in leaves])


def together(a: Share, b: Share) -> Share:
    """The partial result of two groups of parts, in order."""
    total = tree_map(np.add, a.total, b.total)
    return Share(total, a.rows + b.rows, (*a.not_finite, *b.not_finite)[:PARTS_NAMED], a.halves)


class Pairs:
    """The tree of sums above, built as its leaves arrive: at most one sum of each level waits."""

    def __init__(self, add: Callable[[Any, Any], Any]) -> None:
        self._add = add
        self._waiting: list[tuple[int, Any]] = []

    def put(self, x: Any) -> None:
        level = 0
        while self._waiting and self._waiting[-1][0] == level:
            x = self._add(self._waiting.pop()[1], x)
            level += 1
        self._waiting.append((level, x))

    @property
    def waiting(self) -> list[Any]:
        """The sums that wait for a partner; they may be replaced by their values."""
        return [x for _, x in self._waiting]

    @waiting.setter
    def waiting(self, values: list[Any]) -> None:
        levels = [level for level, _ in self._waiting]
        self._waiting = list(zip(levels, values, strict=True))

    def total(self) -> Any:
        *others, (_, x) = self._waiting
        for _, other in reversed(others):
            x = self._add(other, x)
        return x
