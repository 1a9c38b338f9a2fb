"""Calls that may be taken from the tape again.

What a trace records is held as rounds where it repeats itself (`ir.recorded`), for good. So while
the sides of a branch are under way their calls stand beside that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tapegrad.ir.tape import Call


class Aside(Sequence[Call]):
    """Calls that were recorded before, and `own` ones, which can be changed."""

    def __init__(self, before: Any) -> None:
        self.before, self.start = before, len(before)
        self.own: list[Call] = []
        self.append = self.own.append

    def __len__(self) -> int:
        return self.start + len(self.own)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[k] for k in range(*at.indices(len(self)))]
        at = at + len(self) if at < 0 else at
        return self.own[at - self.start] if at >= self.start else self.before[at]

    def _own(self, at: slice) -> slice:
        first, last, _ = at.indices(len(self))
        assert first >= self.start
        return slice(first - self.start, last - self.start)

    def __setitem__(self, at: slice, calls: Iterable[Call]) -> None:
        self.own[self._own(at)] = calls

    def __delitem__(self, at: slice) -> None:
        del self.own[self._own(at)]
