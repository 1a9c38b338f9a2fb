"""A pool of threads for long loops: their chunks are independent, and each thread takes the next.

Who calls a loop works through its chunks, and helpers that have time join in; how they share it is
machine code (`support/regions.py`), which nobody enters by way of Python. A helper that has
nothing to do looks for work for a while, since what comes next comes soon, and then sleeps until
somebody who has work finds it asleep and wakes it. Nothing depends on that: a helper that can't
start, or comes late, is never waited for. And a loop can't be interrupted, so an interrupt leaves
nothing half done.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

# The memory that all threads see, in words, and lines of so many: how many helpers there may be;
# which generation of them; how often one looks for work before it sleeps; how many look or work;
# where the machine code is that does so; then the slots for loops, of four lines each.
LINE = 16
HELPERS, GENERATION, PATIENCE, AWAKE, HELP = 0, 1, 2, LINE, LINE + 1
FIRST_SLOT, SLOTS = 2, 16
WORDS = (FIRST_SLOT + 4 * SLOTS) * LINE

AWHILE = 1e-3  # seconds for which a helper looks for work
PROBE = 2000  # looks to find out how long one takes


def available_cores() -> int:
    """The cores that this process may use, or as many as TAPEGRAD_NUM_THREADS says."""
    given = os.environ.get("TAPEGRAD_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Pool:
    """The calling threads' helpers, which start when they are first needed."""

    def __init__(self) -> None:
        memory = (ctypes.c_int64 * (WORDS + LINE))()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))  # helpers may look at it to the last
        skipped = -ctypes.addressof(memory) % (8 * LINE) // 8
        self.address = ctypes.addressof(memory) + 8 * skipped
        self.words = memoryview(memory).cast("B").cast("q")[skipped : skipped + WORDS]
        self.words[PATIENCE] = PROBE
        self.size = available_cores()
        self._renew()

    def _renew(self) -> None:
        """Have other helpers from now on: those who are there end when they see that."""
        self.bell: SimpleQueue[bool] = SimpleQueue()
        self.helpers: list[threading.Thread] = []
        self.starting = threading.RLock()  # a signal's handler may call while its thread starts one
        self.words[GENERATION] += 1
        self.words[HELPERS] = self.size - 1

    def resize(self, size: int) -> None:
        """Work with `size` threads from now on, the calling one among them."""
        with self.starting:
            old, count = self.bell, len(self.helpers)
            self.size = size
            self._renew()
        for _ in range(count):
            old.put(False)

    def forget(self) -> None:
        """After a fork, in the child: its parent's threads aren't here, nor what they worked on."""
        for k in (AWAKE, *range(FIRST_SLOT * LINE, WORDS)):
            self.words[k] = 0
        self._renew()

    def wake(self, most: int) -> None:
        """See to it that up to `most` helpers look for work, as far as they can be had."""
        wanted = min(self.size - 1, most)
        missing = wanted - self.words[AWAKE] - self.bell.qsize()
        if missing > 0 and self.words[HELP]:
            if wanted > len(self.helpers):
                self._start(wanted)
            for _ in range(min(missing, len(self.helpers))):
                self.bell.put(True)

    def _start(self, wanted: int) -> None:
        with self.starting:
            generation = self.words[GENERATION]
            while len(self.helpers) < wanted:
                thread = threading.Thread(
                    target=self._help, args=(self.bell, generation), name="tapegrad"
                )
                thread.daemon = True
                try:
                    thread.start()
                except RuntimeError:  # no thread can be had, or the interpreter is about to end
                    return
                self.helpers.append(thread)

    def _help(self, bell: SimpleQueue[bool], generation: int) -> None:
        """What a helper does all its life."""
        help_ = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self.words[HELP])
        if self.words[PATIENCE] == PROBE:
            took = min(_seconds(help_, generation) for _ in range(3))  # some is work, now and then
            if self.words[GENERATION] == generation:  # else it didn't look so often
                self.words[PATIENCE] = max(PROBE + 1, int(AWHILE * PROBE / took))
        while bell.get():
            help_(generation)


def _seconds(run: Callable[[int], None], generation: int) -> float:
    start = time.perf_counter()
    run(generation)
    return time.perf_counter() - start


pool = Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.forget)


def parallel(kernel: Callable[..., int], chunks: int, *args: Any) -> int:
    """Run all chunks of a kernel; the highest status."""
    pool.wake(chunks - 1)
    return kernel(*args, chunks)
