"""A pool of threads for long loops: their chunks are independent, and each thread takes the next.

The thread that calls a loop works through its chunks, and idle helpers join in. Sharing the chunks
is machine code (`support/regions.py`), which needs no Python. A helper without work polls for it
for a while, since the next loop usually comes soon. Then it sleeps until a thread with work wakes
it. No result depends on helpers: one that can't start, or comes late, is never waited for. A loop
can't be interrupted, so an interrupt leaves nothing half done.
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

# The memory that all threads see, in words, and in cache lines of `LINE` words: the number of
# helpers; the number of their crew; how many of them poll or work; the address of the machine code
# that they run; then the slots for loops, of four lines each.
LINE = 16
HELPERS, CREW, AWAKE, HELP = 0, 1, LINE, LINE + 1
FIRST_SLOT, SLOTS = 2, 16
WORDS = (FIRST_SLOT + 4 * SLOTS) * LINE

MAX_THREADS = 4096  # threads
AWHILE = 1e-3  # seconds for which a helper polls for work
PROBE = 2000  # polls that measure how long one takes
LEAST_LOOK = 2e-8  # seconds
REST = 60.0  # seconds after which a sleeping helper checks if it is still wanted
STACK = 1 << 20  # bytes
_WIPE_ON_FORK = 18  # of Linux's mman.h
_FAULTS = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"}


def available_cores() -> int:
    """The number of cores that this process may use; TAPEGRAD_NUM_THREADS overrides it."""
    given = os.environ.get("TAPEGRAD_NUM_THREADS", "")
    if given.isascii() and given.isdigit() and int(given[:9]) > 0:
        return min(int(given[:9]), MAX_THREADS)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Crew:
    """The helpers of a pool of one size. When the pool is resized, a new crew starts, and this one
    ends."""

    numbers = itertools.count(1)

    def __init__(self, size: int) -> None:
        self.size = size
        self.number = next(self.numbers)
        self.bell: SimpleQueue[bool] = SimpleQueue()  # items: are helpers wanted?
        self.places = deque(range(size - 1))  # of helpers that haven't started

    @property
    def started(self) -> int:
        return self.size - 1 - len(self.places)

    def start(self, wanted: int, run: Callable[[Crew], None]) -> None:
        """Start helpers until there are `wanted`, as far as the system allows. Nothing waits for
        one to run: while the interpreter shuts down, none does."""
        while self.started < wanted:
            try:
                place = self.places.pop()
            except IndexError:  # another thread starts the last
                return
            has_started = False
            before = stack_size()
            try:
                if 0 < before < STACK:  # enough for other threads, but too small for products
                    stack_size(STACK)
                start_new_thread(run, (self,))
                has_started = True
            except RuntimeError:  # the system has no thread, or the interpreter shuts down
                return
            finally:
                if 0 < before < STACK:
                    stack_size(before)
                if not has_started:
                    self.places.append(place)

    def end(self) -> None:
        self.bell.put(False)  # each helper that hears it passes it on


class Pool:
    """The helpers of the calling threads, which start when they are first needed."""

    def __init__(self) -> None:
        memory = memory_of(8 * WORDS)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))  # helpers read it to the end
        if sys.platform == "linux":
            with contextlib.suppress(OSError, ValueError):  # an old kernel
                memory.madvise(_WIPE_ON_FORK)  # as a child's own clean-up may be cut short
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.words = memoryview(memory).cast("q")
        self.patience = 0  # how often a helper polls before it sleeps
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
        """Reset the pool in the child of a fork, which has none of its parent's threads."""
        ctypes.memset(self.address, 0, 8 * WORDS)
        self.crew = Crew(self.crew.size)
        self._announce(self.crew)

    def wake(self, most: int) -> None:
        """Wake or start helpers until up to `most` look for work, as far as the system allows."""
        crew, words = self.crew, self.words
        wanted = min(crew.size - 1, most)
        missing = wanted - words[AWAKE] - crew.bell.qsize()
        if missing > 0 and words[HELP]:
            self._announce(crew)  # in case an interrupt cut it short
            crew.start(wanted, self._help)
            for _ in range(min(missing, crew.started)):
                crew.bell.put(True)

    def _help(self, crew: Crew) -> None:
        """The main loop of a helper thread."""
        _leave_signals_to_others()
        help_ = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(self.words[HELP])
        if not self.patience:  # the least of three: some find work
            looking = min(_seconds(help_, crew.number, PROBE) for _ in range(3)) / PROBE
            if self.words[CREW] == crew.number:  # else it stopped early
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
    """Block signals in this thread: the program's own threads may wait for them."""
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


def with_helpers(kernel: Callable[..., int], chunks: int, *args: Any) -> int:
    """Run a kernel that shares loops of up to so many chunks. Returns its status."""
    pool.wake(chunks - 1)
    return kernel(*args)


def parallel(kernel: Callable[..., int], chunks: int, *args: Any) -> int:
    """Run all chunks of a kernel. Returns the highest status."""
    pool.wake(chunks - 1)
    return kernel(*args, chunks)
