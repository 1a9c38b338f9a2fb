"""Repetition of traces, using notes that they have made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tapegrad.errors import InternalError

_T = TypeVar("_T")


class Retrace(BaseException):
    """Raised to repeat a trace with new notes. The trace has merged values that can't be merged, or
    has failed, possibly because of a merge: then `error` is its error."""

    def __init__(self, notes: Sequence[tuple[Any, int]], error: Exception | None) -> None:
        self.notes = [(held, jump) for held, jump in notes if jump not in held]
        self.error = error
        for held, jump in self.notes:
            held.add(jump)


def settled(run: Callable[[], _T]) -> _T:
    """The result of `run`, which traces. It is repeated as long as it raises `Retrace`."""
    failed: list[Retrace] = []
    while len(failed) < MAX_REPETITIONS and (not failed or failed[-1].notes or len(failed) < TRIES):
        try:
            return run()
        except Retrace as found:
            failed.append(found)
        except Exception:
            _take_back(failed)
            raise
    _take_back(failed)
    raise failed[-1].error or InternalError("a trace can't be settled")


def _take_back(failed: Sequence[Retrace]) -> None:
    """Remove the notes of failed traces: the error occurs without merges, too."""
    for found in failed:
        for held, jump in found.notes if found.error is not None else ():
            held.discard(jump)


TRIES = 3  # another thread may note the same
MAX_REPETITIONS = 500  # repetitions that keep finding something new are given up
