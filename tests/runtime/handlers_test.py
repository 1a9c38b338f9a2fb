"""What a signal's handler raises reaches the program, wherever it comes."""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import os
import re
import signal
import sys
import threading
import warnings
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

import tapegrad
from tapegrad import grad
from tapegrad.core import frames
from tapegrad.core.handlers import let_through
from tapegrad.core.late import REPETITION, load

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
X = np.linspace(0.1, 1.0, 20)


class Late(Exception):
    pass


def late(number, frame):
    raise Late


class Alarm:
    """A handler that raises, and says afterwards that it did.

    The timer is at 0 a moment before the handler runs: only the handler knows that it ran.
    """

    struck = False

    def __call__(self, number, frame):
        self.struck = True
        raise Late


class Handlers:
    def late(self, number, frame):
        raise Late

    def __call__(self, number, frame):
        raise Late


def state():
    """What the whole process shares."""
    return np.geterr(), list(warnings.filters), sys.gettrace(), threading.gettrace()


@pytest.fixture
def alarm():
    """A handler that raises leaves the process as it was."""
    before, shared = signal.getsignal(signal.SIGALRM), state()
    yield functools.partial(signal.signal, signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    assert state() == shared


HANDLERS = {
    "a function": late,
    "a method": Handlers().late,
    "an object": Handlers(),
    "a partial": functools.partial(late),
}


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_what_a_handler_raises_is_told_from_other_errors(handler, alarm):
    alarm(handler)
    with pytest.raises(Late):
        try:
            os.kill(os.getpid(), signal.SIGALRM)
            for _ in range(1000):  # it comes before the next lines
                pass
        except Exception as error:
            let_through(error)
    try:
        raise Late
    except Exception as error:
        let_through(error)


# Where there is no user's program: other processes, threads, and what hands the error on.
ELSEWHERE = {"threads.py", "disk.py", "worker.py", "activation.py", "observer.py", "rounds.py"}


def test_who_goes_on_after_any_error_lets_those_of_handlers_through():
    forgotten = []
    for path in Path(tapegrad.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not re.search(rf"\bexcept\s*(:|{'|'.join(ANY)})", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ExceptHandler) and path.name not in ELSEWHERE:
                any_error = node.type is None or ast.unparse(node.type) in ANY
                raises = any(isinstance(x, ast.Raise) for x in ast.walk(node))
                if any_error and not raises and "let_through(" not in ast.unparse(node):
                    forgotten.append(f"{path.name}:{node.lineno}")
    assert not forgotten


ANY = ("Exception", "BaseException")


class AtEvent:
    """A profiler that sends the signal at event number `at` of the files in a folder: where Python
    looks for signals, which is where a function begins, but for generators that are closed, and
    where a call has returned."""

    def __init__(self, at, folder):
        self.at, self.folder, self.count = at, folder, 0

    def __call__(self, frame, event, arg):
        code = frame.f_code
        resumed = code.co_flags & inspect.CO_GENERATOR and event == "call"
        if event in ("call", "c_return") and not resumed and self.folder in code.co_filename:
            self.count += 1
            if self.count == self.at:
                signal.raise_signal(signal.SIGALRM)


def raises_at(event, folder, f, x):
    """Whether the handler's error reaches the caller of a new derivative; None if the trace ended
    before the event."""
    sent = AtEvent(event, folder)
    try:
        sys.setprofile(sent)
        grad(f, compile="never")(x)
        return None if sent.count < event else False
    except Late:
        return True
    finally:
        sys.setprofile(None)


@pytest.fixture
def no_garbage():
    """What a finalizer raises is lost, and others have written some of them."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    ("folder", "least", "step"),
    [("tapegrad", 10_000, 331), (os.path.join("tracing", "statements"), 300, 7)],
    ids=["anywhere", "in a loop that is traced once"],
)
def test_a_time_limit_holds_in_every_trace(folder, least, step, alarm, no_garbage):
    """Most of a trace is tapegrad's own work, which goes on after errors of its own."""

    def made(k):
        def f(x):
            for j in range(30):
                x = np.tanh(x * k - j)
            return np.sum(x)

        return f

    # Modules are imported before: of what a handler raises in the middle, Python keeps nothing.
    for k in range(2):
        grad(made(-k), compile="never")(X)
    load(REPETITION)
    alarm(late)
    errors, event, lost = np.geterr(), 1, []
    while (raises := raises_at(event, folder, made(event), X)) is not None:
        if not raises:
            lost.append(event)
        assert np.geterr() == errors
        event += step
    assert event > least
    assert not lost


class Settings:
    def __init__(self):
        self.scales = {k: 1.0 + k for k in range(300)}


def test_a_time_limit_in_the_facts_of_a_later_call(alarm, no_garbage):
    """They are looked at again at each call; one that can't be is no reason to go on."""
    settings, lost = Settings(), 0
    df = grad(lambda x: np.sum(sum(settings.scales.values()) * x), compile="never")
    df(X), df(X)
    for k in range(400):
        alarm(rings := Alarm())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + 1e-6 * k)
            while not rings.struck:
                df(X)
            lost += 1
        except Late:
            pass
    assert lost == 0


def test_an_interrupt_between_two_lines_is_told_as_it_is(monkeypatch):
    """Where an instruction has no line, a frame of a traceback has none -> the error comes all the
    same, and not one about the frame."""

    def late():
        raise Late

    monkeypatch.setattr(frames, "FULL", False)
    without_lines = FunctionType(late.__code__.replace(co_linetable=b""), globals())
    with pytest.raises(Late) as caught:
        without_lines()
    frame = caught.value.__traceback__.tb_next
    assert frame.tb_lineno is None
    frames.shorten(caught.value)
    assert caught.value.__traceback__.tb_next.tb_frame is frame.tb_frame
