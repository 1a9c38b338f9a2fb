"""Merging of the items that both sides of a branch append to lists growing with a loop's rounds.

    if v > 0:                         c = v > 0
        out.append(f(v))      -->     out.append(Perhaps(c, f(v) if c else 0))

    if v > 0:
        out.append(f(v))      -->     out.append(f(v) if c else g(v))
    else:
        out.append(g(v))

Such a list isn't read until its loop is over (`tracing/statements/growing_lists.py`). So it may
have items that exist in some rounds only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tapegrad.observe.objects.purity import PLAIN_TYPES


class Absent:
    """The type of `ABSENT`: an item of a list, or a part of one, that a side doesn't append."""


ABSENT = Absent()


class Perhaps(NamedTuple):
    """An item that is in a list if `there` is true. It is a type of its own since items may be
    tuples."""

    there: Any
    value: Any


class Lengths:
    """The lengths of the growing lists when a side began."""

    def __init__(self, lists: Sequence[list[Any]]) -> None:
        self._known = [(x, len(x)) for x in lists]

    def appended(self) -> list[list[Any]]:
        """The items that have been appended to each list since then."""
        return [x[length:] for x, length in self._known]

    def take_back(self) -> list[list[Any]]:
        """Remove the items appended since then, and return them."""
        found = self.appended()
        self.put([[] for _ in found])
        return found

    def put(self, entries: Sequence[list[Any]]) -> None:
        """Replace the items that have been appended."""
        for (x, length), found in zip(self._known, entries, strict=True):
            x[length:] = found


@dataclass
class Merging:
    """The appended items of both sides, taken apart into `pairs` of values to be merged. For each
    list and item, a function in `made` rebuilds the item from the merged values."""

    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    made: list[list[Callable[[Sequence[Any]], Any]]] = field(default_factory=list)

    @classmethod
    def of(cls, own: Sequence[list[Any]], other: Sequence[list[Any]]) -> Merging:
        found = cls()
        mine: list[Any]
        its: list[Any]
        for mine, its in itertools.zip_longest(own, other, fillvalue=[]):
            both = itertools.zip_longest(mine, its, fillvalue=ABSENT)
            found.made.append([found._entry(x, y) for x, y in both])
        return found

    def entries(self, values: Sequence[Any]) -> list[list[Any]]:
        return [[make(values) for make in makes] for makes in self.made]

    def _entry(self, x: Any, y: Any) -> Callable[[Sequence[Any]], Any]:
        if not any(v is ABSENT or type(v) is Perhaps for v in (x, y)):
            return self._value(x, y)
        (there, value), (its, other) = _perhaps(x), _perhaps(y)
        both = self._value(there, its), self._value(value, other)
        return lambda values: Perhaps(*[make(values) for make in both])

    def _value(self, x: Any, y: Any) -> Callable[[Sequence[Any]], Any]:
        one = known(x, y)
        if type(one) is tuple and _is_like(x, one) and _is_like(y, one):
            pairs = zip(_parts(x, len(one)), _parts(y, len(one)), strict=True)
            parts = [self._value(*pair) for pair in pairs]
            return lambda values: tuple([make(values) for make in parts])
        if (x is ABSENT or y is ABSENT) and type(one) in PLAIN_TYPES:
            return lambda values: one  # the same in each round that has the item
        k = len(self.pairs)
        self.pairs.append((x, y))
        return lambda values: values[k]


def known(x: Any, y: Any) -> Any:
    """The value that isn't `ABSENT`."""
    return y if x is ABSENT else x


def _is_like(x: Any, known: tuple[Any, ...]) -> bool:
    """Whether this is a tuple of the same length, unless it is `ABSENT`."""
    return x is ABSENT or (type(x) is tuple and len(x) == len(known))


def _perhaps(x: Any) -> Perhaps:
    if x is ABSENT:
        return Perhaps(False, ABSENT)
    return x if type(x) is Perhaps else Perhaps(True, x)


def _parts(x: Any, count: int) -> Sequence[Any]:
    return [ABSENT] * count if x is ABSENT else x
