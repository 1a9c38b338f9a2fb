"""Turns: where a run asked whether its loop goes round once more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tapegrad.ir.tape import Guard, Operand

MODULUS = (1 << 61) - 1
BASE = 1_000_003


class Path(NamedTuple):
    """Instructions that were run, one after the other: a number that tells them from others, and
    how many there were."""

    digest: int = 0
    length: int = 0

    def then(self, number: int) -> Path:
        """One more was run, for which this number stands."""
        return Path((self.digest * BASE + number) % MODULUS, self.length + 1)

    def since(self, earlier: Path) -> Path:
        """What was run since then."""
        length = self.length - earlier.length
        before = earlier.digest * pow(BASE, length, MODULUS)
        return Path((self.digest - before) % MODULUS, length)


@dataclass(frozen=True)
class Turn:
    """A loop's test was reached when there were so many calls and guards, the last of which is its
    own; `values` are those of the program's variables that are traced. `path` stands for the
    instructions that the program has run up to here."""

    calls: int
    guards: int
    guard: Guard
    values: tuple[Operand, ...]
    path: Path


@dataclass(frozen=True)
class Turning:
    """Turns of one loop, one after the other: all of them but the last went on. What the program's
    variables hold beside `values` is the same at each, or makes no difference to what it does, so
    for other values there may be another number of rounds: at most `most` after the first turn, or
    any number if that is None."""

    turns: tuple[Turn, ...]
    most: int | None = None
