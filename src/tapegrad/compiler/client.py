"""The parent's side of the worker process: starting it, sending programs, receiving machine code.

No thread waits for answers: each call checks whether one has arrived, which takes a microsecond. So
none of this code is running when the process forks, ends or is interrupted. A call in the middle of
this code, from a signal handler or a finalizer, finds it `busy` and goes on without machine code.
If an exchange is cut short by an error, the state of the conversation is unknown, so the worker is
replaced.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tapegrad.backends.host import HOST
from tapegrad.backends.source.driver import Executable
from tapegrad.compiler import key
from tapegrad.compiler.job import Job
from tapegrad.compiler.packed import Packed, dumped, opaque_of, pack
from tapegrad.compiler.protocol import (
    BEAT,
    FORGET,
    WORKER,
    Answer,
    Request,
    message,
    messages,
    settings,
)
from tapegrad.core.handlers import let_through
from tapegrad.core.late import COMPILER, load
from tapegrad.errors import InternalError
from tapegrad.ir.tape import Tape

if TYPE_CHECKING:
    import _socket

    from tapegrad.compiler.in_process import InProcess

STARTING = 300.0  # seconds until a new worker must send something: disks may be slow
SILENCE = 30.0  # seconds without a beat after which a busy worker counts as hung
ATTEMPTS = 2  # tries to compile a program that kills its compiler, and to start a worker


class Worker:
    """The worker process, as its parent sees it."""

    def __init__(self) -> None:
        ours, theirs = _connected()
        with contextlib.ExitStack() as unless_started:
            unless_started.callback(ours.close)
            with contextlib.closing(theirs):
                self.pid = _spawn(theirs.fileno())
            unless_started.pop_all()
        ours.setblocking(False)
        self.socket: _socket.socket = ours
        self.identity = _identity(ours.fileno())
        self.outgoing = bytearray()
        self.incoming = bytearray()
        self.jobs: dict[int, Job] = {}
        self.heard = time.monotonic()
        self.patience = STARTING

    def send(self, number: int, job: Job) -> bool:
        """Have a program compiled. False if it refers to objects of this process only."""
        request = Request(job.packed, job.kept_as, settings(), job.anew)
        try:
            content = dumped(request, opaque_of(job.packed.primitives))
        except Exception as error:  # pickling a user's object may raise anything
            let_through(error)
            return False
        if not self.jobs:
            self.heard = time.monotonic()
        self.jobs[number] = job
        self.outgoing += message(number, content)
        return True

    def exchange(self) -> list[tuple[int, Answer]]:
        """Send pending bytes and return the answers that have arrived. Raises an OSError if the
        worker is gone or hangs."""
        if _identity(self.socket.fileno()) != self.identity:
            self.socket.detach()  # the program closed it, and the descriptor is another file's
            raise OSError("the socket was closed")
        with contextlib.suppress(BlockingIOError):
            while self.outgoing:
                del self.outgoing[: self.socket.send(self.outgoing, _NO_SIGNAL)]
        with contextlib.suppress(BlockingIOError):
            while True:
                found = self.socket.recv(1 << 20)
                if not found:
                    raise OSError("the worker has ended")
                self.incoming += found
                self._hear()
        if self.jobs and time.monotonic() - self.heard > self.patience:
            raise OSError("the worker hangs")
        if not self.incoming:
            return []
        arrived = messages(self.incoming)
        return [(n, pickle.loads(content)) for n, content in arrived if n != BEAT]

    def _hear(self) -> None:
        """Note that the worker has sent something. The first time this means that it is ready."""
        self.heard = time.monotonic()
        if self.patience == STARTING:
            self.patience = SILENCE
            for job in self.jobs.values():
                job.started = self.heard

    def end(self) -> None:
        """Kill the worker, if it still exists. If the program has waited for it, it doesn't, and
        its process id may be another process's."""
        self.leave()
        if sys.platform == "win32":
            return  # no worker can have started
        with contextlib.suppress(OSError):
            if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)

    def leave(self) -> None:
        """Close the connection in the child of a fork: the worker belongs to the parent."""
        try:
            own = _identity(self.socket.fileno()) == self.identity
        except OSError:
            own = False
        if own:
            self.socket.close()
        else:
            self.socket.detach()  # the program closed it


_NO_SIGNAL = 0x4000 if sys.platform == "linux" else 0  # MSG_NOSIGNAL: an error if it is gone


def _identity(descriptor: int) -> tuple[int, int]:
    """The identity of the file behind a descriptor."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _connected() -> tuple[_socket.socket, _socket.socket]:
    """A pair of connected sockets. Raises an OSError where there is none."""
    if sys.platform != "win32":
        from _socket import socketpair  # importing `socket` takes longer than starting the worker

        return socketpair()
    raise OSError("Windows has no such pairs")


def _spawn(socket: int) -> int:
    """Start the worker's process and return its id. Raises an OSError if that fails."""
    if sys.platform == "win32":
        raise OSError("Windows starts processes otherwise")
    program = _interpreter()
    if WORKER in os.environ:
        raise OSError("this is a worker, or something that one has started")
    # Python's folders come first, since files of the program may have the names of modules. Then
    # come the tapegrad and NumPy that run here.
    first = [os.path.dirname(key.PACKAGE), os.path.dirname(os.path.dirname(np.__file__))]
    last = [os.path.abspath(path) for path in sys.path if isinstance(path, str)]
    code = (
        f"import sys; own = [k for k, p in enumerate(sys.path) if '-packages' in p]; "
        f"at = min(own, default=len(sys.path)); sys.path[at:at] = {first!r}; "
        f"sys.path += {last!r}; "
        f"from tapegrad.compiler.worker import main; main({os.getpid()}, float('{key.LOADED}'))"
    )
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "NUMEXPR")}
    actions = [
        (os.POSIX_SPAWN_DUP2, socket, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    return os.posix_spawn(
        program,
        [program, "-I", "-c", code],
        {**os.environ, **threads, WORKER: "1"},
        file_actions=actions,
        setpgroup=0,  # Ctrl-C in a terminal isn't meant for it
        setsigmask=(),
    )


def _interpreter() -> str:
    """The Python interpreter's executable. Where Python is embedded, starting the program would
    start something unknown."""
    if not getattr(sys, "frozen", False) and hasattr(os, "posix_spawn"):
        for path in (sys.executable, getattr(sys, "_base_executable", "")):
            if path and re.fullmatch(r"python[\d.]*[a-z]?", os.path.basename(path)):
                return path
    raise OSError("there is no interpreter of Python to start")


class Client:
    """This process's compiler: the worker process, or a thread in this process where there can't be
    a worker."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.busy = False
        self.worker: Worker | None = None
        self.inside: InProcess | None = None
        self.failed = 0  # successive workers that ended without an answer
        self.numbers = 0
        self.unsent: deque[Job] = deque()
        self.by_name: dict[str | None, Job] = {}

    # ---- for callers

    def start(self) -> None:
        """Start the worker, unless it is running."""
        if self.worker is None and self.inside is None:
            self._alone(self._start)

    def submit(self, packed: Packed, kept_as: str | None, anew: bool = False) -> Job:
        """Have a program compiled. With `anew`, code on disk is ignored. A program that is already
        being compiled isn't started again."""
        shared = kept_as is not None and not opaque_of(packed.primitives)  # no users' functions
        if shared and kept_as in self.by_name:
            return self.by_name[kept_as]
        job = Job(packed, kept_as, anew)
        if shared:
            self.by_name[kept_as] = job
        self.unsent.append(job)
        self.look()
        return job

    @property
    def pending(self) -> int:
        """The number of programs that are being compiled."""
        held = [where.jobs for where in (self.inside, self.worker) if where is not None]
        return len(self.unsent) + sum(map(len, held))

    def look(self) -> None:
        """Send pending programs, and take the code that has arrived."""
        self._alone(self._exchange)

    def wait(self, job: Job, seconds: float = float("inf")) -> bool:
        """Return when a program is compiled, or after `seconds`. May be interrupted.

        False if waiting is pointless: this call came in the middle of the code that takes answers,
        or in the child of a fork that happened meanwhile.
        """
        until = time.monotonic() + seconds
        while not job.done and not job.lost and time.monotonic() < until:
            self.look()
            if self._is_interrupted() or (self.inside and not self.inside.help()):
                return job.done
            if not job.done:
                self._sleep()
        return not job.lost

    def clear(self) -> None:
        """Forget compiled kernels, so that every kernel is compiled again."""
        HOST.objects.clear()
        self._alone(self._clear)

    # ---- one at a time

    def _alone(self, act: Callable[[], None]) -> None:
        """Run `act` in one thread at a time; not at all if this thread is in the middle of it."""
        with self.lock:
            if self.busy:
                return
            try:
                self.busy = True
                act()
                self.busy = False
            except BaseException:
                self.busy = False
                self._dismiss()
                raise

    def _is_interrupted(self) -> bool:
        with self.lock:
            return self.busy

    def _sleep(self) -> None:
        """Wait until something arrives, but only briefly: another thread may take it."""
        import select

        worker = self.worker
        if worker is None or sys.platform == "win32":
            time.sleep(0.005)
            return
        with contextlib.suppress(OSError, ValueError):
            poll = select.poll()
            poll.register(worker.socket.fileno(), select.POLLIN)
            poll.poll(20)

    # ---- with the worker

    def _start(self) -> None:
        if self.worker is not None or self.inside is not None:
            return
        if self.failed < ATTEMPTS:
            try:
                self.worker = Worker()
                return
            except Exception as error:  # no process can be started, no interpreter was found, ...
                let_through(error)
                self.failed = ATTEMPTS
        self._inside()

    def _inside(self) -> InProcess:
        if self.inside is None:
            load(COMPILER)
            from tapegrad.compiler.in_process import InProcess

            self.inside = InProcess()
        return self.inside

    def _exchange(self) -> None:
        while self.unsent:
            self._start()
            job = self.unsent[0]
            self.numbers += 1
            if self.worker is None or job.foreign or not self.worker.send(self.numbers, job):
                inside = self._inside()
                inside.jobs[self.numbers] = job
                inside.begin(self.numbers, job)
            self.unsent.popleft()
        if self.inside is not None:
            self._take(self.inside.jobs, self.inside.answers())
        if self.worker is not None:
            try:
                found = self.worker.exchange()
            except OSError:
                self._dismiss(failed=True)
                return
            self._take(self.worker.jobs, found)

    def _take(self, jobs: dict[int, Job], answers: Sequence[tuple[int, Answer]]) -> None:
        for number, answer in answers:
            job = jobs.pop(number, None)
            if job is None:
                continue
            self.failed = 0
            job.attempts += 1
            job.foreign = answer.foreign
            if job.foreign or (answer.died and job.attempts < ATTEMPTS):
                self.unsent.append(job)
                continue
            job.finish(answer)
            if self.by_name.get(job.kept_as) is job:
                del self.by_name[job.kept_as]

    def _clear(self) -> None:
        if self.worker is not None:
            self.worker.outgoing += message(FORGET, b"")

    def _dismiss(self, failed: bool = False) -> None:
        """Kill the worker. Another one gets the programs that it hasn't answered."""
        old, self.worker = self.worker, None
        if old is not None:
            self.failed += failed
            self.unsent.extend(old.jobs.values())
            old.end()

    # ---- the process's fork and end

    def forget(self) -> None:
        """Reset in the child of a fork: the worker and its programs belong to the parent."""
        old = self.worker
        held = [where.jobs for where in (self.inside, old) if where is not None]
        for job in [*self.unsent, *(job for jobs in held for job in list(jobs.values()))]:
            job.lost = True
        self.__init__()  # type: ignore[misc]
        if old is not None:
            old.leave()

    def end(self) -> None:
        """Kill the worker when the interpreter exits."""
        old, self.worker = self.worker, None
        if old is not None:
            old.end()


client = Client()
atexit.register(client.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=client.forget)


def compiled(tape: Tape) -> Executable:
    """The executable of a settled tape, compiled now. Raises an InternalError if that fails."""
    packed = pack(tape)
    job = client.submit(packed, None)
    if not client.wait(job):
        from tapegrad.pipeline import compile

        return compile(tape)
    if job.error:
        raise InternalError(f"{tape.name} couldn't be compiled. {job.error}")
    return job.executable()
