"""The compiler inside this process: a thread, used where there can't be a worker process.

The thread is stopped when the interpreter exits. The child of a fork doesn't have it, and its locks
and half-done work are lost: a child forked during a compilation never compiles inside.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING

from tapegrad.backends.host import HOST
from tapegrad.backends.target import one_by_one
from tapegrad.compiler import code_store
from tapegrad.compiler.executable import encoded
from tapegrad.compiler.packed import opaque_of
from tapegrad.compiler.protocol import Answer
from tapegrad.compiler.similar import Kind
from tapegrad.compiler.templates import with_templates
from tapegrad.compiler.warm_up import compile_first
from tapegrad.core.handlers import let_through
from tapegrad.core.late import no_forks
from tapegrad.core.locks import new_lock
from tapegrad.pipeline import compile

if TYPE_CHECKING:
    from tapegrad.compiler.job import Job

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_ready = False  # whether everything that compiling needs is loaded
_at_work = 0  # number of threads that are compiling
_spoilt = False  # whether this is a child forked during a compilation


class InProcess:
    """Compiles programs in this process, one after the other."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.waiting: deque[tuple[int, Job]] = deque()
        self.finished: deque[tuple[int, Answer]] = deque()
        self.thread: threading.Thread | None = None
        self.lock = new_lock()
        self.looks_again = False  # whether the thread will check for programs again before it ends

    def begin(self, number: int, job: Job) -> None:
        """Queue a program. It is compiled by a thread, if one can be started, or by whoever waits
        for it."""
        with self.lock:
            self.waiting.append((number, job))
            if self.looks_again and self.thread is not None and self.thread.is_alive():
                return
            self.looks_again = True
            self.thread = threading.Thread(target=self.work, name="tapegrad-compiler", daemon=True)
            try:
                self.thread.start()
                atexit.register(_stop, self.thread)
            except RuntimeError:  # no thread can be started, or the interpreter is about to end
                self.thread = None

    def _next(self) -> tuple[int, Job] | None:
        """The next program, or None, after which the thread won't check again."""
        with self.lock:
            if self.waiting and not _spoilt:
                return self.waiting.popleft()
            self.looks_again = False
            return None

    def work(self) -> None:
        """Compile the queued programs."""
        global _at_work

        _prepare(threads=self.thread is not None)
        while (waiting := self._next()) is not None:
            number, job = waiting
            try:
                _at_work += 1
                found = _answer(job)
            finally:
                _at_work -= 1
            self.finished.append((number, found))

    def help(self) -> bool:
        """Compile in the waiting thread, if there is no other. False if this process can't
        compile."""
        if self.thread is None and not _at_work and not _spoilt:
            self.work()
        return not _spoilt

    def answers(self) -> list[tuple[int, Answer]]:
        """The answers since the last call."""
        found = []
        while self.finished:
            found.append(self.finished.popleft())
        return found


def _prepare(threads: bool) -> None:
    """Load what compiling needs, which takes half a second. Forks wait for it.

    SciPy's BLAS, which code may call, starts its threads when it is loaded. If no threads can be
    started it would interrupt the process, as Ctrl-C does. So in that case it is loaded here, for
    one thread.
    """
    global _ready
    with no_forks():
        if _ready:
            return
        alone = not threads and _BLAS_THREADS not in os.environ
        if alone:
            os.environ[_BLAS_THREADS] = "1"
        try:
            compile_first()
            if alone:
                HOST.prepare()
        except Exception as error:  # the first program will raise it too
            let_through(error)
        finally:
            if alone:
                del os.environ[_BLAS_THREADS]
        _ready = True


def _answer(job: Job) -> Answer:
    """Compile a program. It isn't sent anywhere, so it may refer to objects of this process
    only."""
    times: dict[str, float] = {}
    start, compiled = time.perf_counter(), HOST.objects.compiles
    try:
        build = with_templates(one_by_one, job.anew)
        tape = job.packed.unpack()
        executable = compile(tape, build, times, Kind(job.packed, tape))
    except Exception as error:
        let_through(error)
        return Answer(error=traceback.format_exc(), times=times)
    with contextlib.suppress(Exception):  # if it can't be encoded, it isn't kept
        name = code_store.named(job.kept_as)
        code_store.keep(name, encoded(executable, opaque_of(job.packed.primitives)))
    times["all"] = time.perf_counter() - start
    return Answer(executable, times=times, kernels=HOST.objects.compiles - compiled)


def _forked() -> None:
    global _spoilt
    _spoilt = _spoilt or _at_work > 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _stop(thread: threading.Thread) -> None:
    """End a thread at its next line of Python, so that nothing runs while the interpreter is torn
    down."""
    if thread.is_alive() and thread.ident is not None:
        ident = ctypes.c_ulong(thread.ident)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))
        thread.join(5.0)
