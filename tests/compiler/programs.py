"""Programs that run in another process, with a limit on their time: a hang is a failure."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import textwrap

LIMIT = 600  # seconds: machines may be busy

HEAD = """
import atexit, asyncio, gc, multiprocessing, os, random, signal, sys, threading, time
import numpy as np
import numpy.testing
from tapegrad import grad
from tapegrad.compiler import client as office
from tapegrad.compiler.client import client

X = np.array([0.5, 1.0, 2.0])

def made(k, mode="always"):
    "A new function, the k-th, whose gradient at X is known."
    return grad(lambda x: np.sum(np.sin(x) * k), compile=mode)

def right(df, k):
    np.testing.assert_allclose(df(X), np.cos(X) * k, rtol=1e-12)

def work(k):
    "What a process or a thread of a pool is given to do."
    df = made(k, ["always", "auto"][k % 2])
    right(df, k), right(df, k)
    return k

def compiled(df):
    return df.cache_info().compiles == 1

def until(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.005)
"""


def run(program, tmp_path, *options, head=HEAD, **environment):
    """Run a program after its head; what it printed."""
    path = tmp_path / "program.py"
    path.write_text(head + textwrap.dedent(program))
    found = subprocess.run(
        [sys.executable, *options, str(path)],
        env={**os.environ, "TAPEGRAD_DEBUG": "", **environment},  # which takes time
        timeout=LIMIT,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


# Runs one program after the other. Names and environment are those of the head again for each, and
# the compiler's parts; the worker stays. A fork that comes to a program's end ends, as it would.
SERVER = """
import traceback
from tapegrad.runtime import reuse

def serve():
    parts = [(owner, dict(vars(owner))) for owner in (office, office.Client, office.Worker)]
    names, environment, server = dict(globals()), dict(os.environ), os.getpid()
    for line in iter(sys.stdin.readline, ""):
        status = "done"
        try:
            exec(compile(open(line[:-1]).read(), line[:-1], "exec"), globals())
        except BaseException:
            status = traceback.format_exc()
        if os.getpid() != server:
            sys.exit(status if status != "done" else 0)
        for owner, before in parts:
            for name, value in before.items():
                if vars(owner)[name] is not value:
                    setattr(owner, name, value)
        globals().clear(), globals().update(names)
        os.environ.clear(), os.environ.update(environment)
        reuse.forget()
        client.inside, client.failed = None, 0
        sys.stdout.write(status + chr(0))
        sys.stdout.flush()

serve()
"""


class Shared:
    """A process for programs that do without one of their own: starting it, and its worker, takes
    more than all that they do."""

    def __init__(self, folder):
        self.folder, self.process, self.count = folder, None, 0

    def run(self, program):
        """Run it after its head. An error of it is one here, and the next gets a new process."""
        self.count += 1
        path = self.folder / f"program{self.count}.py"
        path.write_text(textwrap.dedent(program))
        if self.process is None:
            self._start()
        self.process.stdin.write(f"{path}\n".encode())
        self.process.stdin.flush()
        found = b""
        while not found.endswith(b"\0"):
            ready, _, _ = select.select([self.process.stdout], [], [], LIMIT)
            part = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
            if not part:
                self.end()
                raise AssertionError("it hangs" if not ready else f"it has ended: {found!r}")
            found += part
        if found != b"done\0":
            self.end()
            raise AssertionError(found.decode())

    def _start(self):
        path = self.folder / "server.py"
        path.write_text(HEAD + SERVER)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(path)],
            env={**os.environ, "TAPEGRAD_DEBUG": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None
