"""What a call tells functions of the user's while it runs: each value once.

A call may try several tapes: one until a guard fails, and then the next one, or a trace. All of
them come past the same values in the program's order, so it is enough to count: what an attempt
before has told isn't told again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tapegrad.core.handlers import users

MAX_TOLD = 1000  # what a trace has come past, of which it tells where it fails


class CallbackLog:
    """How much one call has told, how far this attempt has come, and what a trace has recorded."""

    def __init__(self) -> None:
        self.count = 0
        self.at = 0
        self.recorded: deque[Callable[[], Any]] = deque(maxlen=MAX_TOLD)

    def again(self) -> None:
        """Another attempt begins."""
        self.at = 0

    def tell(self, what: Callable[[], Any]) -> None:
        self.at += 1
        if self.at > self.count:
            self.count = self.at  # before it raises: then it was told, too
            users(what)


class _Calls(threading.local):
    def __init__(self) -> None:
        self.stack: list[CallbackLog] = []


_calls = _Calls()


def current() -> CallbackLog:
    """That of the call that is under way in this thread; where there is none, a new one."""
    return _calls.stack[-1] if _calls.stack else CallbackLog()


@contextmanager
def each_once() -> Iterator[None]:
    """One call of the user's, which may take several attempts."""
    _calls.stack.append(CallbackLog())
    try:
        yield
    finally:
        _calls.stack.pop()
