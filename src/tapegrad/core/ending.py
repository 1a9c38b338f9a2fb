"""The end of the program, which must not cut a thread off inside of C++ code.

Before Python 3.14, a daemon thread ends where it next asks for the interpreter's lock once the
program has ended. Inside of C++ code, such as optree's, that aborts the whole process. So the end
waits for the threads that are there, and daemon threads don't go there any more.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

LONGEST = 5.0  # seconds that the end waits at most

_inside: dict[int, int] = {}  # threads, and how many such calls each is in
_ending: list[bool] = []  # not empty when the program ends


def uncut(function: F) -> F:
    """Decorate a function that goes to C++ code: the end of the program waits for its calls."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        me = get_ident()
        depth = _inside.get(me, 0)
        _inside[me] = depth + 1  # before the question, so that the end sees it or is seen
        try:
            if _ending and not depth and threading.current_thread().daemon:
                del _inside[me]
                threading.Event().wait()  # until Python ends this thread
            return function(*args, **kwargs)
        finally:
            if depth:
                _inside[me] = depth
            else:
                _inside.pop(me, None)

    return called  # type: ignore[return-value]


def _wait() -> None:
    _ending.append(True)
    until = time.monotonic() + LONGEST
    while set(_inside) - {get_ident()} and time.monotonic() < until:
        time.sleep(0.001)


def _keep_this_thread() -> None:
    """In the child of a fork there are no others."""
    for other in set(_inside) - {get_ident()}:
        del _inside[other]


atexit.register(_wait)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_this_thread)
