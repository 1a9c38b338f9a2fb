"""Garbage collection while a function is observed.

Python collects garbage at any allocation, and then runs finalisers of objects in cycles: `__del__`,
callbacks of weak references, the `finally` of generators. These are no part of the function that
happens to run, and must not be recorded as its reads. So no garbage is collected while a function
is observed, except where a frame begins: code that runs there isn't observed.
"""

from __future__ import annotations

import gc
import os
from threading import get_ident

from tapegrad.core.locks import new_lock
from tapegrad.observe.answers.answers import declare

MUCH = 20_000  # collect when so many objects were created and not freed since the last collection
NEVER = 2**31 - 1  # never reached; a program can see and undo `gc.disable`

_lock = new_lock()
_running: set[int] = set()  # the ids of threads in which a function is observed
_threshold = NEVER  # the threshold that the program has set


def postpone() -> None:
    """Switch collection off: a function is observed in this thread from now on."""
    global _threshold
    with _lock:
        _running.add(get_ident())
        young, *others = gc.get_threshold()
        if young != NEVER:
            _threshold = young
            gc.set_threshold(NEVER, *others)


def go_on() -> None:
    """Switch collection on again if no thread observes a function. If an interrupt keeps a run from
    calling this, the next run of its thread does."""
    with _lock:
        _running.discard(get_ident())
        if not _running:
            _put_back()


def collect_much() -> None:
    """Collect garbage if there is much, in the generation that Python would have chosen."""
    young, middle, old = gc.get_count()
    if young > MUCH and _threshold and gc.isenabled():
        _, at_middle, at_old = gc.get_threshold()
        gc.collect(2 if old > at_old else 1 if middle > at_middle else 0)


def _programs() -> tuple[int, int, int]:
    """The answer to `gc.get_threshold`: the values that the program has set."""
    young, middle, old = gc.get_threshold()
    return _threshold if young == NEVER else young, middle, old


declare(gc, "get_threshold", _programs)


def _put_back() -> None:
    young, *others = gc.get_threshold()
    if young == NEVER:
        gc.set_threshold(_threshold, *others)


def _forked() -> None:
    _running.clear()
    _put_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
