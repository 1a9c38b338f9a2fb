"""What a run has done outside so far: whether a part of it has done more.

A part that has changed nothing, and has met nothing whose state can't be seen, does the same
whenever it is run again, and however often: the calls for many rows are made one by the help of
that (`runtime/rows.py`). What it draws from generators of random numbers is counted apart.
"""

from __future__ import annotations

from typing import Any

from tapegrad.tracing.observe.notes import Notes
from tapegrad.tracing.observe.places import values_of
from tapegrad.tracing.observe.plainly import checksum


class Done:
    """What a run that is observed, if it is, has done outside until now."""

    def __init__(self, o: Notes | None) -> None:
        self._o = o
        self._counts = _counts(o)
        self._held = _held(o)

    def is_all(self) -> bool:
        """Whether it has done nothing since."""
        if _counts(self._o) != self._counts:
            return False
        held = _held(self._o)
        return held.keys() == self._held.keys() and all(
            len(now) == len(before) and all(x is y for x, y in zip(now, before, strict=True))
            for now, before in zip(held.values(), self._held.values(), strict=True)
        )

    def can_be_undone(self) -> bool:
        """Whether it has only written to places since, and nothing else."""
        return _counts(self._o) == self._counts


def _counts(o: Notes | None) -> Any:
    """What was noted that can't be compared, that was printed, and asked of installed packages;
    and what is in arrays that were written to."""
    if o is None:
        return ()
    arrays = [(key, checksum(x)) for key, (x, was) in o.reads.mutated.items() if was is not None]
    counts = o.reads.losses, o.told, o.questions.count, len(o.reads.postponed)
    return *counts, len(o.reads.mutated), arrays


def _held(o: Notes | None) -> dict[Any, list[Any]]:
    """What the places hold that were written to."""
    if o is None:
        return {}
    return {key: values_of(write) for key, write in o.reads.written.items()}
