"""A pool of threads for long loops: their chunks are independent, and each thread takes the next.

Who calls a loop works through its chunks, and helpers that have time join in. Nothing depends on
how many do: a helper counts from the moment when it says so, which it does before it takes a chunk.
So one that can't start, or starts late, is never waited for. There are no locks around a job, only
operations that are atomic in CPython, so an interrupt at any line leaves nothing half done.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


def available_cores() -> int:
    """The cores that this process may use, or as many as TAPEGRAD_NUM_THREADS says."""
    given = os.environ.get("TAPEGRAD_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Job:
    """The chunks of one loop: those that wait, and who has worked on the others.

    Who takes chunks has entered before, and once none wait nobody takes any. So when the chunks
    that wait are cleared, those who have entered by then are all who may still be at work.
    """

    def __init__(self, kernel: Callable[..., int], chunks: int, args: tuple[Any, ...]) -> None:
        self.kernel = kernel
        self.args = args
        self.waiting = deque(range(chunks))
        self.entered: list[None] = []
        self.ended: list[tuple[int, int, BaseException | None]] = []
        self.bell: SimpleQueue[None] = SimpleQueue()  # rings when a helper has ended
        self.is_orphan = False  # in the child of a fork, where the helpers aren't

    def work(self, take: Callable[[], int]) -> tuple[int, int]:
        """Run chunks until none wait: the highest status, and how many there were."""
        kernel, args = self.kernel, self.args
        status = count = 0
        while True:
            try:
                chunk = take()
            except IndexError:
                return status, count
            status = max(status, kernel(*args, chunk))
            count += 1

    def help(self) -> None:
        """Work as a helper."""
        self.entered.append(None)
        try:
            status, count = self.work(self.waiting.pop)
            self.ended.append((status, count, None))
        except BaseException as error:
            self.waiting.clear()
            self.ended.append((0, 0, error))
        self.bell.put(None)

    def close(self) -> None:
        """Return when no helper works on this any more, even if an interrupt comes first, which is
        raised then. Should a second one cut this short: who is interrupted uses no memory again
        that a helper may write to."""
        self.waiting.clear()
        interrupt = None
        while True:
            try:
                while len(self.ended) < len(self.entered) and not self.is_orphan:
                    self.bell.get()
                break
            except BaseException as error:
                interrupt = error
        self.args = ()  # helpers that come too late hold none of them
        if interrupt is not None:
            raise interrupt


class Pool:
    """The calling threads' helpers, which start when they are first needed."""

    def __init__(self) -> None:
        self.size = available_cores()
        self.running: dict[int, Job] = {}
        self._renew()

    def _renew(self) -> None:
        self.jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.helpers: list[threading.Thread] = []
        self.starting = threading.RLock()  # a signal's handler may call while its thread starts one

    def resize(self, size: int) -> None:
        """Work with `size` threads from now on, the calling one among them."""
        with self.starting:
            old, count = self.jobs, len(self.helpers)
            self.size = size
            self._renew()
        for _ in range(count):
            old.put(None)

    def forget(self) -> None:
        """After a fork, in the child: its parent's threads aren't here."""
        self._renew()
        for job in [*self.running.values()]:
            job.is_orphan = True
            job.bell.put(None)

    def offer(self, job: Job, most: int) -> None:
        """Let up to `most` helpers join in a job."""
        wanted = min(self.size - 1, most)
        if wanted > len(self.helpers):
            self._start(wanted)
        jobs = self.jobs
        for _ in range(min(wanted, len(self.helpers))):
            jobs.put(job)

    def _start(self, wanted: int) -> None:
        with self.starting:
            while len(self.helpers) < wanted:
                thread = threading.Thread(target=_help, args=(self.jobs,), name="tapegrad")
                thread.daemon = True
                try:
                    thread.start()
                except RuntimeError:  # no thread can be had, or the interpreter is about to end
                    return
                self.helpers.append(thread)


def _help(jobs: SimpleQueue[Job | None]) -> None:
    """What a helper does all its life."""
    while True:
        job = jobs.get()
        if job is None:
            return
        job.help()
        del job  # and with it the caller's arrays


pool = Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.forget)


def parallel(kernel: Callable[..., int], chunks: int, *args: Any) -> int:
    """Call `kernel(*args, chunk)` for every chunk; the highest status."""
    job = Job(kernel, chunks, args)
    try:
        pool.running[id(job)] = job
        pool.offer(job, chunks - 1)
        # From the other end: rows of neighbouring chunks lie in one line of the cache.
        status, count = job.work(job.waiting.popleft)
    finally:
        try:
            job.close()
        finally:
            pool.running.pop(id(job), None)
    for other, more, error in job.ended:
        if error is not None:
            raise error
        status, count = max(status, other), count + more
    if count != chunks:
        raise RuntimeError("the process was forked in the middle of a loop, which ended there")
    return status
