"""The changes that a run has made outside the function, to tell whether a part of it made any.

A part that has changed nothing, and has read nothing that can't be compared, does the same whenever
it is run again. So calls for many rows can be merged into one (`runtime/rows.py`). Draws from
random generators are counted separately.
"""

from __future__ import annotations

from typing import Any

from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.guards.locations import values_of
from tapegrad.observe.objects.inspection import checksum, values
from tapegrad.observe.objects.purity import INERT
from tapegrad.observe.program.source import at_line, at_source


class OutsideChanges:
    """The changes outside that the observed run, if any, has made until now."""

    def __init__(self, o: RunRecord | None) -> None:
        self._o = o
        self._counts = _counts(o)
        self._held = _held(o)
        self._arrays = _arrays(o)
        self._steps = _steps(o)
        self._states = {} if o is None else o.undoing.states(now=True)

    def is_all(self) -> bool:
        """Whether no change was made since."""
        if _counts(self._o) != self._counts:
            return False
        held = _held(self._o)
        return held.keys() == self._held.keys() and all(
            len(now) == len(before) and all(x is y for x, y in zip(now, before, strict=True))
            for now, before in zip(held.values(), self._held.values(), strict=True)
        )

    def changed(self) -> str | None:
        """A place or array that has changed since, with its line; None if there is none."""
        if self._o is None:
            return None
        for key, write in self._o.reads.written.items():
            first = values(write.before) if write.has_many else [write.before]
            before, now = self._held.get(key, first), values_of(write)
            if len(before) != len(now) or not all(map(_is_same, before, now)):
                return f"{write.word}{at_source(write.src)}"
        for k, (x, was) in self._o.reads.mutated.items():
            if was is None or self._arrays.get(k, checksum(was)) != checksum(x):
                return f"{self._o.reads.places[k].word}{at_line()}"
        if self._steps != _steps(self._o):
            return f"an iterator{at_line()}"
        undoing = self._o.undoing
        olds, ends = undoing.states(now=False) | self._states, undoing.states(now=True)
        for k in olds:
            known = k in self._states or k in self._o.reads.places
            if known and ends.get(k) != olds[k]:
                return f"a stream or a buffer{at_line()}"
        return None

    def can_be_undone(self) -> bool:
        """Whether all changes since are writes to places."""
        return _counts(self._o) == self._counts


def _counts(o: RunRecord | None) -> Any:
    """The counts of lost reads, of prints, of calls of installed packages, and of postponed and
    other changes; and checksums of arrays that were written to."""
    if o is None:
        return ()
    counts = o.reads.losses, o.told, o.questions.count, len(o.reads.postponed)
    return *counts, len(o.reads.mutated), _arrays(o)


def _arrays(o: RunRecord | None) -> dict[int, Any]:
    """Checksums of the arrays that were written to."""
    written = () if o is None else o.reads.mutated.items()
    return {key: checksum(x) for key, (x, was) in written if was is not None}


def _steps(o: RunRecord | None) -> int:
    """How often an iterator has advanced."""
    return 0 if o is None else o.undoing.steps + o.questions.takes


def _is_same(x: Any, y: Any) -> bool:
    return x is y or (INERT[type(x)] and type(x) is type(y) and bool(x == y or x != x))


def _held(o: RunRecord | None) -> dict[Any, list[Any]]:
    """The values of the places that were written to."""
    if o is None:
        return {}
    return {key: values_of(write) for key, write in o.reads.written.items()}
