"""Bars for what takes long: where they are wanted, and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

PROGRAM = """
import sys
{before}
import numpy as np
import tapegrad.core.progress
from tapegrad import grad
from tapegrad.compiler.client import client

tapegrad.core.progress.DELAY = {long}
wait, waits = client.wait, iter([True] * 3)  # the first waits end before the compiler does
client.wait = lambda *given: next(waits, None) or wait(*given)
x = np.arange(1.0, 4.0)


def f(x):
    y = np.sin(x) * np.exp(-x)
    return np.sum(y * y / (1.0 + x * x))


df = grad(f, compile={mode!r})
for _ in range(3):
    found = df(x)
assert df.cache_info().traces == 1
assert np.array_equal(grad(f, compile="never")(x), found)
print("tqdm" in sys.modules)
"""


def run(mode="never", before="", long=0.0, screen=subprocess.PIPE, **environment):
    program = PROGRAM.format(mode=mode, before=before, long=long)
    clean = {k: v for k, v in os.environ.items() if k != "TAPEGRAD_PROGRESS"}
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**clean, **environment},
        stdout=subprocess.PIPE,
        stderr=screen,
        text=True,
        check=True,
    )
    return found.stdout.strip(), found.stderr


def test_it_is_silent_without_a_terminal():
    assert run() == ("False", "")
    assert run("always")[0] == "False"


def test_a_bar_where_it_is_asked_for():
    pytest.importorskip("tqdm")
    loaded, said = run(TAPEGRAD_PROGRESS="1")
    assert loaded == "True" and "tracing f: " in said and " calls [" in said
    loaded, said = run("always", TAPEGRAD_PROGRESS="1")
    assert "compiling grad_f: " in said and " of about " in said


def test_work_that_is_short_has_none():
    assert run(long=1000.0, TAPEGRAD_PROGRESS="1") == ("False", "")


@pytest.mark.parametrize("wanted", ["", "0"])
def test_terminals(wanted):
    pytest.importorskip("tqdm")
    ours, theirs = pty.openpty()
    loaded, _ = run(screen=theirs, TAPEGRAD_PROGRESS=wanted)
    os.close(theirs)
    os.close(ours)
    assert loaded == str(not wanted)


def test_without_tqdm():
    assert run(before="sys.modules['tqdm'] = None", TAPEGRAD_PROGRESS="1")[1] == ""


def test_a_bar_that_fails():
    """The work goes on."""
    pytest.importorskip("tqdm")
    broken = "import tqdm; tqdm.tqdm.refresh = lambda *_: 1 / 0"
    assert run(before=broken, TAPEGRAD_PROGRESS="1")[0] == "True"
