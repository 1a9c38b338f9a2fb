"""Programs that run in a process of their own, with a limit on their time: a hang is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

LIMIT = 120  # seconds

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

def until(condition, seconds=60):
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
