"""Lists of which each call says how long they are: those that a branch has appended to.

    for v in x:                        loop(n, %there, %ys, %x, body)
        if v > 0:                      selected = ys[there]
            out.append(f(v))    -->
    np.mean(out), len(out)             np.mean(selected), len(selected)

Such a list has the elements of an array that a mask selects. In its place a variable holds an
object that is none, and does what is proven; `frontend/varying.py` sees to it that nobody else gets
it.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from tapegrad.tracing.loops.framed import Count, again_with
from tapegrad.tracing.loops.items import Entries
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.sizes import bound
from tapegrad.tracing.tracer import stand_in

MOST = 100_000  # rounds of a loop whose number is traced

Note = tuple[set[int], int]


class VaryingList:
    """Stands for a list of numbers, one at the least: Python's, if these are weak. Its `entries`
    are those of an array that a mask selects. Where it is asked for anything else, the trace is
    made again with a note."""

    def __init__(self, entries: Any, weak: bool, note: Note) -> None:
        self.entries, self.weak, self._note = entries, weak, note

    def give_up(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise again_with([self._note])

    @property
    def kind(self) -> str:
        if not self.entries._serves:
            self.give_up()
        kind: str = self.entries.dtype.kind
        return kind

    @property
    def whole(self) -> Any:
        """The entries of all rounds, with the first one for those that aren't there."""
        return self.entries._whole

    @property
    def bound(self) -> int:
        """What the size of an integer among them doesn't exceed, at later calls either."""
        return bound(np.max(np.abs(self.whole)))

    def items(self) -> tuple[Entries, Count] | None:
        """What a loop goes through, for as many rounds as a call says; None where that isn't
        known."""
        most = len(self.whole)
        if most > MOST or not self.kind:
            return None
        before = np.cumsum(self.entries._selection.mask)
        places = np.minimum(np.searchsorted(before, np.arange(1, most + 1)), most - 1)
        return Entries(self.whole[places], is_weak=self.weak), Count(self._length(), most)

    def __iter__(self) -> VaryingIterator:
        return VaryingIterator(self)

    def __getattr__(self, name: str) -> Any:
        self.give_up()

    def __bool__(self) -> bool:
        return True

    @unobserved
    def __getitem__(self, k: int) -> Any:
        mask, found = self.entries._selection.mask, self.whole
        place = np.argmax(mask) if k == 0 else len(found) - 1 - np.argmax(mask[::-1])
        return self.entry(found[place])

    @property
    def array(self) -> Any:
        """A new array of the entries."""
        return self.entries.copy()

    def _length(self) -> Any:
        return self.entries._selection.count

    def entry(self, x: Any) -> Any:
        if not self.weak:
            return x
        operand, value = x._read()
        return stand_in(x._trace, operand, value, weak=True)

    def rows(self, fill: Any) -> Any:
        """The entries of all rounds, with `fill` for those that aren't there."""
        return np.where(self.entries._selection.mask, self.whole, fill)


for _name in {*dir(list)} - {*dir(object), "__getitem__", "__iter__", "__class_getitem__"} | {
    "__eq__"
}:
    setattr(VaryingList, _name, VaryingList.give_up)
for _name in ("__repr__", "__lt__", "__le__", "__gt__", "__ge__", "__ne__", "__reduce_ex__"):
    setattr(VaryingList, _name, VaryingList.give_up)


class VaryingIterator:
    """What a loop is about to go through."""

    def __init__(self, x: VaryingList) -> None:
        self.given = x

    def __iter__(self) -> VaryingIterator:
        return self

    def __next__(self) -> NoReturn:
        self.given.give_up()
