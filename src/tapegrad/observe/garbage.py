"""When Python collects garbage while a function is observed.

It does so at any allocation, and then runs what the objects in cycles are finalised by: `__del__`,
callbacks of weak references, the `finally` of generators. That is no part of the function which
happens to run, and what it reads is none of that function's. So no garbage is collected while a
function is observed, except where a frame begins: nothing that runs there is observed.
"""

from __future__ import annotations

import gc
import os
from threading import get_ident

from tapegrad.core.locks import new_lock
from tapegrad.observe.answers.answers import declare

MUCH = 20_000  # objects that have been made and not freed since garbage was collected
NEVER = 2**31 - 1  # so many; a program can see whether the collector is on, and switch it

_lock = new_lock()
_running: set[int] = set()  # the threads in which a function is observed
_threshold = NEVER  # what the program has set


def postpone() -> None:
    """A function is observed in this thread from now on."""
    global _threshold
    with _lock:
        _running.add(get_ident())
        young, *others = gc.get_threshold()
        if young != NEVER:
            _threshold = young
            gc.set_threshold(NEVER, *others)


def go_on() -> None:
    """No function is observed in this thread any more. Where an interrupt keeps a run from saying
    so, the next one of its thread does."""
    with _lock:
        _running.discard(get_ident())
        if not _running:
            _put_back()


def collect_much() -> None:
    """Collect what there is, if it is much: the generation that Python would have chosen."""
    young, middle, old = gc.get_count()
    if young > MUCH and _threshold and gc.isenabled():
        _, at_middle, at_old = gc.get_threshold()
        gc.collect(2 if old > at_old else 1 if middle > at_middle else 0)


def _programs() -> tuple[int, int, int]:
    """What `gc.get_threshold` answers: what the program has set."""
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
