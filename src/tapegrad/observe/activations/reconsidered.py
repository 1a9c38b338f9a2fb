"""Traces that are made again, with what has been noted in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tapegrad.errors import InternalError

_T = TypeVar("_T")


class Reconsidered(BaseException):
    """A trace is to be made again, without what has just been noted of branches: it has taken for
    one value what can't be, or failed, maybe by that. `error` is how it failed."""

    def __init__(self, notes: Sequence[tuple[Any, int]], error: Exception | None) -> None:
        self.notes = [(held, jump) for held, jump in notes if jump not in held]
        self.error = error
        for held, jump in self.notes:
            held.add(jump)


def settled(run: Callable[[], _T]) -> _T:
    """What a run gives that makes a trace; that is made again where it has to be."""
    failed: list[Reconsidered] = []
    while len(failed) < MOST and (not failed or failed[-1].notes or len(failed) < TRIES):
        try:
            return run()
        except Reconsidered as found:
            failed.append(found)
        except Exception:
            _take_back(failed)
            raise
    _take_back(failed)
    raise failed[-1].error or InternalError("a trace can't be settled")


def _take_back(failed: Sequence[Reconsidered]) -> None:
    """It has failed again: that wasn't by what was noted."""
    for found in failed:
        for held, jump in found.notes if found.error is not None else ():
            held.discard(jump)


TRIES = 3  # another thread may note the same
MOST = 500  # what is new in each attempt is never settled
