"""Sets of a few columns as bits: one row of words for each element of an array.

`Bits` has the methods of `rows.Rows`. On small arrays they take a tenth of the time; loops that are
walked round by round make many such calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from scipy import sparse

WORD = 64


class Bits:
    """The columns of each element of a flattened array. `words` has a row of bits for each
    element."""

    __slots__ = ("columns", "words")

    def __init__(self, words: Any, columns: int) -> None:
        self.words, self.columns = words, columns

    @classmethod
    def numbered(cls, start: int, size: int, columns: int) -> Bits:
        """Element k depends on the column `start + k` alone."""
        words = np.zeros((size, -(-columns // WORD)), np.uint64)
        column = np.arange(start, start + size)
        words[np.arange(size), column // WORD] = np.uint64(1) << (column % WORD).astype(np.uint64)
        return cls(words, columns)

    @property
    def empty(self) -> bool:
        return not self.words.any()

    def lengths(self) -> Any:
        """The number of columns of each element."""
        return np.bitwise_count(self.words).sum(1, int)

    def cost(self, sources: Any) -> int:
        """The number of entries to go through for `gathered`: always cheap."""
        return 0

    def matrix(self) -> Any:
        """A Boolean matrix with a row for each element."""
        wide = np.ascontiguousarray(self.words).astype("<u8").view(np.uint8)
        bits = np.unpackbits(wide, axis=1, count=self.columns, bitorder="little")
        return sparse.csr_array(bits.view(bool))

    def take(self, source: Any) -> Bits:
        """The elements numbered `source`; an empty set for -1."""
        if not len(self.words):
            return Bits(np.zeros((len(source), self.words.shape[1]), np.uint64), self.columns)
        words = self.words[source]
        words[source < 0] = 0
        return Bits(words, self.columns)

    def repeated(self, times: int) -> Bits:
        """The elements, repeated."""
        return Bits(np.tile(self.words, (times, 1)), self.columns)

    def gathered(self, targets: Any, sources: Any, count: int) -> Bits:
        """For each of `count` targets, the union of the columns of its sources. The pairs are
        (targets[n], sources[n])."""
        found = np.zeros((count, self.words.shape[1]), np.uint64)
        if targets.size and targets.min() < 0:
            kept = targets >= 0
            targets, sources = targets[kept], sources[kept]
        if targets.size:
            order = np.argsort(targets, kind="stable")
            ordered = targets[order]
            begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
            words = self.words[sources[order]]
            found[ordered[begins]] = np.bitwise_or.reduceat(words, begins, axis=0)
        return Bits(found, self.columns)


def together(parts: Sequence[Bits]) -> Bits:
    """The union of all parts, element by element."""
    if len(parts) == 1:
        return parts[0]
    return Bits(reduce(np.bitwise_or, [part.words for part in parts]), parts[0].columns)
