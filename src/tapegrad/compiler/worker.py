"""The worker process: it compiles the programs that its parent sends, while the parent goes on.

`client` starts it. It communicates over one socket, and ends when its parent ends, or after a while
without work. It loads numba, and then waits. Each program is compiled in a fork, which starts with
numba loaded and frees its memory when it ends. So programs are compiled side by side, one that
kills its compiler affects no other, and this process always answers.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tapegrad.backends.host import HOST
from tapegrad.backends.target import Build, one_by_one
from tapegrad.compiler import code_store, disk
from tapegrad.compiler.executable import encoded
from tapegrad.compiler.key import sources_have_changed
from tapegrad.compiler.packed import opaque_of
from tapegrad.compiler.protocol import (
    BEAT,
    FORGET,
    Answer,
    Request,
    available_cores,
    message,
    messages,
    settings,
)
from tapegrad.compiler.similar import Kind
from tapegrad.compiler.templates import with_templates
from tapegrad.compiler.warm_up import compile_first
from tapegrad.pipeline import compile

assert sys.platform != "win32"  # Windows can't fork: `client` compiles inside there
REST = 20.0  # seconds without work after which the process ends
TICK = 1.0  # seconds between beats
NICE = 2  # added to the parent's niceness
_PR_SET_PDEATHSIG = 1  # from Linux's prctl.h
SIDE_BY_SIDE = 1_500  # characters of kernels from which on several cores compile them


# ---- compiling


def answer(request: Request, build: Build) -> Answer:
    """Compile a program, unless its code is on disk or another process is just putting it there."""
    times: dict[str, float] = {}
    compiled = HOST.objects.compiles
    try:
        opaque = opaque_of(request.packed.primitives)
        start = time.perf_counter()
        name = code_store.named(request.kept_as)
        with disk.claim(name):
            content = None if request.anew else code_store.find(name)
            found = content is not None
            times["disk"] = time.perf_counter() - start
            if content is None:
                build = with_templates(build, request.anew)
                tape = request.packed.unpack()
                made = compile(tape, build, times, Kind(request.packed, tape))
                content = encoded(made, opaque)
                code_store.keep(name, content)
        compiled = HOST.objects.compiles - compiled
        return Answer(content, times=times, kernels=compiled, found=found)
    except Exception:
        return Answer(error=traceback.format_exc(), times=times)


def side_by_side(work: Callable[[Any], bytes], sizes: Mapping[Any, int]) -> dict[Any, bytes]:
    """The results of work divided among forks of this process, if that pays. The largest pieces are
    assigned first, each to the fork with the least work."""
    cores = min(available_cores(), len(sizes))
    if cores < 2 or sum(sizes.values()) < SIDE_BY_SIDE:
        return one_by_one(work, sizes)
    shares: list[list[Any]] = [[] for _ in range(cores)]
    loads = [0] * cores
    for key in sorted(sizes, key=lambda key: -sizes[key]):
        k = loads.index(min(loads))
        shares[k].append(key)
        loads[k] += sizes[key]
    others = [Fork(lambda share=share: list(map(work, share))) for share in shares[1:]]  # type: ignore[misc]
    done = [list(map(work, shares[0])), *[fork.result() for fork in others]]
    pairs = zip(shares, done, strict=True)
    return {key: code for share, codes in pairs for key, code in zip(share, codes, strict=True)}


class Fork:
    """A fork of this process that runs a function and sends the result through a pipe."""

    def __init__(self, run: Callable[[], Any], closed: tuple[int, ...] = ()) -> None:
        self.pipe, into = os.pipe()
        self.buffer = bytearray()
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid:
            os.close(into)
            return
        try:
            for descriptor in (self.pipe, *closed):
                os.close(descriptor)
            _end_with_parent()
            with open(into, "wb") as file:
                pickle.dump(run(), file, pickle.HIGHEST_PROTOCOL)
        except BaseException:
            os._exit(1)
        os._exit(0)

    def read(self) -> bool:
        """Read from the pipe. True at its end."""
        found = os.read(self.pipe, 1 << 20)
        self.buffer += found
        return not found

    def end_if_stopped(self) -> None:
        """Kill the fork if somebody has stopped it: it would never answer."""
        if self.status is not None:  # it has ended, but its pipe isn't read yet
            return
        number, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if number and os.WIFSTOPPED(status):
            os.kill(self.pid, signal.SIGKILL)
        elif number:
            self.status = status

    def close(self) -> int:
        """Wait for the fork, and return its exit status."""
        os.close(self.pipe)
        if self.status is None:
            self.status = os.waitpid(self.pid, 0)[1]
        return os.waitstatus_to_exitcode(self.status)

    def result(self) -> Any:
        while not self.read():
            pass
        if status := self.close():
            raise RuntimeError(f"a compiler's process ended with status {status}")
        return pickle.loads(self.buffer)


def _end_with_parent() -> None:
    """On Linux, have this process killed when its parent ends in any way."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


# ---- the process


@dataclass
class Server:
    """The worker's state: waiting requests, running forks, and bytes to send."""

    socket: int
    parent: int
    received: bytearray = field(default_factory=bytearray)
    to_send: bytearray = field(default_factory=bytearray)
    waiting: list[tuple[int, bytes]] = field(default_factory=list)
    running: dict[int, tuple[int, Fork]] = field(default_factory=dict)  # pipe -> (number, fork)
    active: float = field(default_factory=time.monotonic)
    beaten: float = 0.0

    def serve(self) -> None:
        """Work until the parent is gone, or nothing was requested for a while."""
        while True:
            poll = select.poll()
            poll.register(self.socket, select.POLLIN | (select.POLLOUT if self.to_send else 0))
            for pipe in self.running:
                poll.register(pipe, select.POLLIN)
            for descriptor, event in poll.poll(TICK * 1000):
                if descriptor != self.socket:
                    self._collect(descriptor)
                elif event & ~select.POLLOUT and not self._receive():
                    return
            if os.getppid() != self.parent:
                return
            for _, fork in self.running.values():
                fork.end_if_stopped()
            self._start()
            self._beat()
            if not self._send():
                return
            if self.running or self.waiting or self.to_send:
                self.active = time.monotonic()
            elif time.monotonic() - self.active > REST:
                return

    def _receive(self) -> bool:
        try:
            found = os.read(self.socket, 1 << 20)
        except BlockingIOError:
            return True
        self.received += found
        for number, content in messages(self.received):
            if number == FORGET:
                HOST.objects.clear()
            else:
                self.waiting.append((number, content))
        return bool(found)

    def _send(self) -> bool:
        try:
            while self.to_send:
                del self.to_send[: os.write(self.socket, self.to_send)]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def _beat(self) -> None:
        now = time.monotonic()
        if (self.running or self.waiting) and now - self.beaten > TICK and not self.to_send:
            self.to_send += message(BEAT, b"")
            self.beaten = now

    def _start(self) -> None:
        while self.waiting and len(self.running) < max(2, available_cores()):
            number, content = min(self.waiting, key=lambda request: len(request[1]))
            self.waiting.remove((number, content))  # shortest first
            inherited = (self.socket, *self.running)
            fork = Fork(lambda content=content: _job(content), inherited)  # type: ignore[misc]
            self.running[fork.pipe] = number, fork

    def _collect(self, pipe: int) -> None:
        number, fork = self.running[pipe]
        if not fork.read():
            return
        del self.running[pipe]
        status = fork.close()
        if status:
            content = pickle.dumps(Answer(error=f"its process ended with {status}", died=True))
        else:
            content, added = pickle.loads(fork.buffer)
            HOST.objects.add(added)
            HOST.objects.added.clear()
        self.to_send += message(number, content)

    def end(self) -> None:
        """Kill the forks."""
        for _, fork in self.running.values():
            with contextlib.suppress(OSError):
                os.kill(fork.pid, signal.SIGKILL)


def _job(content: bytes) -> tuple[bytes, dict[Any, bytes]]:
    """The work of a fork: returns the answer as bytes, and the new kernels."""
    start = time.perf_counter()
    try:
        request: Request = pickle.loads(content)
    except Exception:
        return pickle.dumps(Answer(error=traceback.format_exc(), foreign=True)), {}
    _adopt(request.settings)
    found = answer(request, side_by_side)
    found.times["all"] = time.perf_counter() - start
    return pickle.dumps(found, pickle.HIGHEST_PROTOCOL), HOST.objects.added


def _adopt(wanted: dict[str, str]) -> None:
    """Take over the settings of the requesting process."""
    before = settings()
    if wanted == before:
        return
    for name in before.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)
    if any(x.startswith("NUMBA_") for x in before.keys() ^ wanted.keys() | wanted.keys()):
        from numba.core import config

        config.reload_config()


def prepare() -> None:
    """Load everything that compiling needs, so that forks don't have to."""
    compile_first()
    HOST.objects.added.clear()
    gc.collect()
    gc.freeze()  # a garbage collection in a fork would copy all of this, and take 70 ms


def _close_all() -> None:
    """Close the files inherited from the parent: otherwise they would stay open with this
    process."""
    try:
        found = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        found = list(range(3, 4096))
    for descriptor in found:
        if descriptor > 2:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def main(parent: int, loaded: float) -> None:
    """Serve the process `parent` over file descriptor 0. Ends at once if tapegrad's sources changed
    after the time `loaded`, since other sources would run here."""
    if sources_have_changed(loaded):
        return
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    os.chdir("/")
    _close_all()
    socket = os.dup(0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.set_blocking(socket, False)
    server = Server(socket, parent)
    prepare()
    server.to_send += message(BEAT, b"")
    server.active = time.monotonic()
    try:
        server.serve()
    finally:
        server.end()
        os._exit(0)
