"""The compiler's thread in this process: no program is left to a thread that is about to end."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from tapegrad.backends.cpu import kernel_cache, support
from tapegrad.compiler import in_process
from tapegrad.compiler.warm_up import compile_first


@pytest.fixture
def echo(monkeypatch):
    """Compiling gives the program itself, at once."""
    monkeypatch.setattr(in_process, "_answer", lambda job: job)
    monkeypatch.setattr(in_process, "_prepare", lambda threads: None)


def answers(compiler, count):
    """The first so many answers, if they come."""
    found, end = [], time.monotonic() + 300
    while len(found) < count and time.monotonic() < end:
        found += compiler.answers()
        time.sleep(0.001)
    return sorted(found)


def test_a_thread_that_has_found_no_more_is_still_alive(echo, monkeypatch):
    """It has looked for the last time, and hasn't ended: the next program needs another."""
    left, may_end = threading.Event(), threading.Event()

    class Lingering(threading.Thread):
        def run(self):
            super().run()
            left.set()
            may_end.wait(30)

    kinds = SimpleNamespace(Thread=Lingering)
    monkeypatch.setattr(in_process, "threading", kinds)
    compiler = in_process.InProcess()
    compiler.begin(1, "one")
    assert left.wait(20)
    compiler.begin(2, "two")
    try:
        assert answers(compiler, 2) == [(1, "one"), (2, "two")]
    finally:
        may_end.set()


def test_programs_one_after_the_other(echo):
    """Each comes while the thread may be about to end."""
    compiler = in_process.InProcess()
    for number in range(300):
        compiler.begin(number, "program")
        if number % 3 == 0:
            time.sleep(number % 7 * 1e-5)
    assert answers(compiler, 300) == [(number, "program") for number in range(300)]


def test_a_compiler_that_starts_finds_what_kernels_share(tmp_path, monkeypatch):
    """Each process has one, and a product's functions are the same for all."""
    made = []

    def shared_code(symbol, of=support.shared_code):
        made.append(symbol)
        return of(symbol)

    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(support, "shared_code", shared_code)
    counts = []
    for _ in range(2):
        monkeypatch.setattr(kernel_cache, "kernels", kernel_cache.Memo())
        compile_first()
        counts.append(len(made))
    assert 2 < counts[0] == counts[1]
