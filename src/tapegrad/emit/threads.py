"""Several cores for one kernel: its chunks are independent, and each thread takes the next."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any


def available_cores() -> int:
    """The cores that this process may use, or as many as TAPEGRAD_NUM_THREADS says."""
    given = os.environ.get("TAPEGRAD_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Crew:
    """The calling thread and its helpers, which start when they are first needed."""

    def __init__(self) -> None:
        self.size = available_cores()
        self.lock = threading.Lock()
        self.helpers: ThreadPoolExecutor | None = None

    def resize(self, size: int) -> None:
        """Work with `size` threads from now on, the calling one among them."""
        with self.lock:
            old, self.helpers, self.size = self.helpers, None, size
        if old is not None:
            old.shutdown(wait=False)

    def forget(self) -> None:
        """After a fork, in the child: its parent's threads aren't here."""
        self.lock, self.helpers = threading.Lock(), None

    def submitted(self, work: Callable[[], int], most: int) -> list[Any]:
        """`work()` as promised by up to `most` helpers."""
        if self.size < 2:
            return []
        with self.lock:
            try:
                if self.helpers is None:
                    self.helpers = ThreadPoolExecutor(self.size - 1, "tapegrad")
                return [self.helpers.submit(work) for _ in range(min(self.size - 1, most))]
            except RuntimeError:  # the interpreter is about to end, or no thread can be had
                return []


crew = Crew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=crew.forget)


def spread(kernel: Callable[..., int], chunks: int, *args: Any) -> int:
    """Call `kernel(*args, chunk)` for every chunk; the highest status."""
    waiting = deque(range(chunks))

    def work(take: Callable[[], int] = waiting.pop) -> int:
        status = 0
        while True:
            try:
                chunk = take()
            except IndexError:
                return status
            status = max(status, kernel(*args, chunk))

    helpers = crew.submitted(work, chunks - 1)
    try:
        # From the other end: rows of neighbouring chunks lie in one line of the cache.
        status = work(waiting.popleft)
    finally:  # nobody may still write when this returns, or is interrupted
        waiting.clear()
        begun = [helper for helper in helpers if not helper.cancel()]
        while any(not helper.done() for helper in begun):
            wait(begun)
    return max([status, *(helper.result() for helper in begun)])
