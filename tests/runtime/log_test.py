"""What tapegrad says of its own work: nothing, unless it is asked to, or something takes long."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from tapegrad import grad
from tapegrad.compiler.client import client
from tapegrad.runtime import tier

X = np.array([1.0, 2.0, 3.0])


def branching(x):
    return np.sum(x**3) if x[0] > 0 else np.sum(x)


def said(caplog, *kinds):
    """What was said of these kinds, each behind its kind; or of none in particular."""
    names = {f"tapegrad.{kind}": f"{kind}: " for kind in kinds} or {"tapegrad": ""}
    return [names[r.name] + r.getMessage() for r in caplog.records if r.name in names]


def run(compile="always"):
    df = grad(branching, compile=compile)
    df(X), df(X), df(-X), df(X[:2])


@pytest.fixture
def fresh():
    """A function whose tapes nobody knows."""
    grad(branching, compile="always").clear_cache()
    grad(branching, compile="never").clear_cache()


def test_it_is_silent(caplog, fresh, monkeypatch):
    monkeypatch.delenv("TAPEGRAD_LOG", raising=False)
    monkeypatch.setattr(tier, "SLOW", np.inf)
    with caplog.at_level(logging.WARNING):
        run()
    assert said(caplog, "trace", "compile", "guards", "cache") == said(caplog) == []


def test_loggers_obey_their_levels(caplog, fresh, monkeypatch):
    """As any other: one says what its level allows, and its records have fields."""
    monkeypatch.delenv("TAPEGRAD_LOG", raising=False)
    with caplog.at_level(logging.INFO, "tapegrad.trace"):
        run("never")
    records = [record for record in caplog.records if record.name.startswith("tapegrad")]
    assert {record.name for record in records} == {"tapegrad.trace"}
    first, second, third = records
    assert (first.function, first.event) == ("grad_branching", "trace")
    assert first.calls > 0 and first.seconds > 0 and first.before == first.now == ""
    assert (second.what, second.before, second.now) == ("a condition", "True", "False")
    assert second.line == "log_test.py:22"
    assert (third.what, third.before, third.now) == ("argument 'x'", "f8[3]", "f8[2]")
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "tapegrad"):
        run("never")  # which is all known
    assert {record.name for record in caplog.records} <= {"tapegrad.guards"}


def test_traces_and_guards(caplog, fresh, monkeypatch):
    """Each with its reason, and the user's line."""
    monkeypatch.setenv("TAPEGRAD_LOG", " Trace,guards ")
    with caplog.at_level(logging.DEBUG, "tapegrad"):
        run("never")
    first, failed, second, third = said(caplog, "trace", "guards")
    assert first.startswith("trace: grad_branching, ")
    assert "these are the first arguments of their kind" in first
    assert failed.startswith("guards: grad_branching: What keeps failing is a condition")
    assert "log_test.py:22: `return np.sum(x**3) if x[0] > 0 else np.sum(x)`" in failed
    assert second.startswith("trace: ") and "What keeps failing is a condition" in second
    assert third.startswith("trace: ") and "What has changed is argument 'x'" in third


def test_compilations(caplog, fresh, monkeypatch):
    """With the time of each part."""
    monkeypatch.setenv("TAPEGRAD_LOG", "compile")
    with caplog.at_level(logging.INFO, "tapegrad"):
        grad(branching, compile="always")(X)
    (line,) = said(caplog, "compile")
    assert line.startswith("compile: grad_branching, a tape of ") and "log_test.py" in line
    for part in ("passes", "schedule", "kernels"):
        assert f"{part} " in line


def test_words_that_mean_nothing(caplog, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_LOG", "trace,compiles")
    for _ in range(2):
        grad(lambda x: np.sum(x), compile="never")(X)
    found = [line for line in said(caplog) if line.startswith("TAPEGRAD_LOG")]
    assert found == [
        "TAPEGRAD_LOG is 'trace,compiles': compiles isn't among trace, compile, guards, cache, all"
    ]


def test_what_takes_long(caplog, fresh, monkeypatch):
    """One word on each program, with its size and line."""
    monkeypatch.delenv("TAPEGRAD_LOG", raising=False)
    monkeypatch.setattr(tier, "SLOW", 0.0)
    wait, waits = client.wait, iter([True])  # the first wait ends before the compiler does
    monkeypatch.setattr(client, "wait", lambda *given: next(waits, None) or wait(*given))
    with caplog.at_level(logging.INFO, "tapegrad"):
        grad(branching, compile="always")(X)
    (line,) = said(caplog)
    assert line.startswith("grad_branching, a tape of ")
    assert "log_test.py:22" in line and line.endswith(" has been compiling for 0 s")


def test_it_prints_where_nothing_is_set_up():
    program = (
        "import numpy as np, tapegrad\n"
        "tapegrad.grad(lambda x: np.sum(x * x), compile='never')(np.ones(3))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", "import os; os.environ['TAPEGRAD_LOG'] = 'trace'\n" + program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == ""
    assert found.stderr.startswith("tapegrad.trace: grad_<lambda>, ")


def test_where_there_is_nowhere_to_say_it(monkeypatch):
    """A program may have closed its standard error -> its calls go on."""
    program = (
        "import os, sys, numpy as np, tapegrad\n"
        "from tapegrad.runtime import tier\n"
        "tier.SLOW, os.environ['TAPEGRAD_LOG'] = 0.0, 'trace,compile,nonsense'\n"
        "sys.stderr.close()\n"
        "print(*tapegrad.grad(lambda x: np.sum(x * x), compile='always')(np.ones(3)))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "2.0 2.0 2.0\n")


def test_many_kinds_of_arguments():
    """The warning names what keeps changing, once."""
    df = grad(lambda p, x, y: np.sum(p["w"] * x) * y, compile="never")
    for n in range(1, 46):
        df({"w": 1.0}, np.ones(n), 2.0)
    with pytest.warns(RuntimeWarning, match="46 kinds of arguments") as caught:
        df({"w": 1.0}, np.ones(46), 2.0)
    text = str(caught[0].message)
    assert "What keeps changing is argument 'x' (f8[1], f8[2], f8[3], ...). Pad arrays" in text
    for n in range(47, 60):
        df({"w": 1.0}, np.ones(n), 2.0)


@pytest.mark.parametrize(("by", "place"), [("list", "kept"), ("dict", "kept['all']")])
def test_an_argument_that_grows(by, place):
    """The sixth trace in six calls warns, and says which argument holds more and what to pass."""

    def f(x, kept):
        return np.sum(x) * len(kept if by == "list" else kept["all"])

    df, kept = grad(f, compile="never"), []
    given = kept if by == "list" else {"all": kept, "no": 1.0}
    for _ in range(5):
        df(X, given)
        kept.append(np.zeros(2))
    held = rf"What has changed is how many values {re.escape(place)} holds\. Where only "
    held += rf"len\({re.escape(place)}\) is used, pass that number \(4 --> 5\)"
    with pytest.warns(RuntimeWarning, match=f"traced for six calls in a row.*{held}"):
        df(X, given)
    assert df.cache_info().traces == 6
    kept.append(np.zeros(2))
    df(X, given)


def test_a_length_that_changes_is_passed_as_a_number():
    class Chain:
        def __init__(self):
            self.kept = []

        def loss(self, x):
            return np.sum(x) * len(self.kept)

    chain = Chain()
    df = grad(chain.loss, compile="never")
    with pytest.warns(RuntimeWarning, match=r"where only len\(self\.kept\) is used, pass that num"):
        for _ in range(3):
            df(X)
            chain.kept.append(1.0)


def test_arguments_that_have_come_before_are_no_growth():
    df = grad(lambda x, kept: np.sum(x) * len(kept), compile="never")
    for n in range(1, 12):
        df(X, [1.0] * n)
        df(X, [1.0] * n)


def test_many_kinds_of_other_arguments():
    df = grad(lambda x, how: np.sum(x) * len(how), compile="never")
    with pytest.warns(RuntimeWarning) as told:
        for n in range(46):
            df(X, f"a{n}")
    first, second = (str(warning.message) for warning in told)
    assert "four calls in a row" in first and "argument 'how', and each str is traced" in first
    assert "changing is argument 'how' ('a0', 'a1', 'a2', ...)" in second


def test_an_interrupt_while_it_is_said(monkeypatch, fresh):
    """What a signal's handler raises then reaches the program: it was taken for an error of
    logging."""

    class Late(Exception):
        pass

    def late(number, frame):
        raise Late

    class Slow(logging.Handler):
        def emit(self, record):
            signal.setitimer(signal.ITIMER_REAL, 1e-4)
            while True:
                pass

    logger, slow = logging.getLogger("tapegrad.trace"), Slow()
    before = signal.signal(signal.SIGALRM, late)
    monkeypatch.setenv("TAPEGRAD_LOG", "trace")
    logger.addHandler(slow)
    try:
        with pytest.raises(Late):
            grad(branching, compile="never")(X)
    finally:
        logger.removeHandler(slow)
        signal.signal(signal.SIGALRM, before)
