"""A pool of threads for long loops: their chunks are independent, and each thread takes the next.

Who calls a loop works through its chunks, and helpers that have time join in; how they share it is
machine code (`support/regions.py`), which nobody enters by way of Python. A helper that has
nothing to do looks for work for a while, since what comes next comes soon, and then sleeps until
somebody who has work finds it asleep and wakes it. Nothing depends on that: a helper that can't
start, or comes late, is never waited for. And a loop can't be interrupted, so an interrupt leaves
nothing half done.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import signal
import sys
import time
from _thread import stack_size, start_new_thread
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from tapegrad.backends.cpu.loading import memory_of

# The memory that all threads see, in words, and lines of so many: how many helpers there may be;
# which crew they are; how many of them look for work or do some; where the machine code is by which
# they do; then the slots for loops, of four lines each.
LINE = 16
HELPERS, CREW, AWAKE, HELP = 0, 1, LINE, LINE + 1
FIRST_SLOT, SLOTS = 2, 16
WORDS = (FIRST_SLOT + 4 * SLOTS) * LINE

MOST = 4096  # threads
AWHILE = 1e-3  # seconds for which a helper looks for work
PROBE = 2000  # looks to find out how long one takes
LEAST_LOOK = 2e-8  # seconds
REST = 60.0  # seconds after which a helper that sleeps sees whether it is still wanted
STACK = 1 << 20  # bytes
_WIPE_ON_FORK = 18  # of Linux's mman.h
_FAULTS = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"}


def available_cores() -> int:
    """The cores that this process may use, or as many as TAPEGRAD_NUM_THREADS says."""
    given = os.environ.get("TAPEGRAD_NUM_THREADS", "")
    if given.isascii() and given.isdigit() and int(given[:9]) > 0:
        return min(int(given[:9]), MOST)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Crew:
    """The helpers of a pool of some size. Another size is another crew, and this one ends."""

    numbers = itertools.count(1)

    def __init__(self, size: int) -> None:
        self.size = size
        self.number = next(self.numbers)
        self.bell: SimpleQueue[bool] = SimpleQueue()  # what it brings is whether they are wanted
        self.places = deque(range(size - 1))  # of those that haven't started

    @property
    def started(self) -> int:
        return self.size - 1 - len(self.places)

    def start(self, wanted: int, run: Callable[[Crew], None]) -> None:
        """Have so many helpers, as far as they can be had. Nobody waits for one to run: at the end
        of the interpreter none does any more."""
        while self.started < wanted:
            try:
                place = self.places.pop()
            except IndexError:  # somebody else starts the last
                return
            has_started = False
            before = stack_size()
            try:
                if 0 < before < STACK:  # enough for others, and too little for products
                    stack_size(STACK)
                start_new_thread(run, (self,))
                has_started = True
            except RuntimeError:  # no thread can be had, or the interpreter is about to end
                return
            finally:
                if 0 < before < STACK:
                    stack_size(before)
                if not has_started:
                    self.places.append(place)

    def end(self) -> None:
        self.bell.put(False)  # which whoever hears it passes on


class Pool:
    """The calling threads' helpers, which start when they are first needed."""

    def __init__(self) -> None:
        memory = memory_of(8 * WORDS)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))  # helpers may look at it to the last
        if sys.platform == "linux":
            with contextlib.suppress(OSError, ValueError):  # an old one
                memory.madvise(_WIPE_ON_FORK)  # for what a child does about it may be cut short
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.words = memoryview(memory).cast("q")
        self.patience = 0  # how often a helper looks for work before it sleeps
        self.crew = Crew(available_cores())
        self._announce(self.crew)

    def _announce(self, crew: Crew) -> None:
        self.words[CREW], self.words[HELPERS] = crew.number, crew.size - 1

    def resize(self, size: int) -> None:
        """Work with `size` threads from now on, the calling one among them."""
        new = Crew(size)
        old, self.crew = self.crew, new
        self._announce(new)
        old.end()

    def forget(self) -> None:
        """After a fork, in the child: its parent's threads aren't here, nor what they worked on."""
        ctypes.memset(self.address, 0, 8 * WORDS)
        self.crew = Crew(self.crew.size)
        self._announce(self.crew)

    def wake(self, most: int) -> None:
        """See to it that up to `most` helpers look for work, as far as they can be had."""
        crew, words = self.crew, self.words
        wanted = min(crew.size - 1, most)
        missing = wanted - words[AWAKE] - crew.bell.qsize()
        if missing > 0 and words[HELP]:
            self._announce(crew)  # should an interrupt have cut that short
            crew.start(wanted, self._help)
            for _ in range(min(missing, crew.started)):
                crew.bell.put(True)

    def _help(self, crew: Crew) -> None:
        """What a helper does all its life."""
        _leave_signals_to_others()
        help_ = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(self.words[HELP])
        if not self.patience:  # the least of three: sometimes there is work in between
            looking = min(_seconds(help_, crew.number, PROBE) for _ in range(3)) / PROBE
            if self.words[CREW] == crew.number:  # else it didn't look so often
                self.patience = max(PROBE, int(AWHILE / max(looking, LEAST_LOOK)))
        while crew is self.crew:
            try:
                if not crew.bell.get(timeout=REST):
                    break
            except Empty:
                continue
            help_(crew.number, self.patience or PROBE)
        crew.end()


def _leave_signals_to_others() -> None:
    """Those of the process, for which one of its own threads may be waiting."""
    if sys.platform != "win32":
        faults = {getattr(signal, name) for name in _FAULTS}
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)


def _seconds(run: Callable[..., None], *args: int) -> float:
    start = time.perf_counter()
    run(*args)
    return time.perf_counter() - start


pool = Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.forget)


def parallel(kernel: Callable[..., int], chunks: int, *args: Any) -> int:
    """Run all chunks of a kernel; the highest status."""
    pool.wake(chunks - 1)
    return kernel(*args, chunks)
