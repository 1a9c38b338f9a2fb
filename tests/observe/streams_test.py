"""What is shown while the function has put a stream in the place of Python's."""

from __future__ import annotations

import contextlib
import io
import os
import sys

import numpy as np
import pytest

from tapegrad import grad
from tapegrad.observe.program import syntax

X = np.array([1.0, 2.0])
OUTER = io.StringIO()


def silent(x):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        print("a", x, f"{x[0]:.3f}")
        sys.stderr.write("b")
    return np.sum(x**2)


def into_nothing(x):
    with open(os.devnull, "w") as file, contextlib.redirect_stdout(file):
        print("a", x)
    return np.sum(x**2)


def by_hand(x):
    before, sys.stdout = sys.stdout, io.StringIO()
    try:
        print("a", x)
    finally:
        sys.stdout = before
    return np.sum(x**2)


@pytest.mark.parametrize("f", [silent, into_nothing, by_hand], ids=lambda f: f.__name__)
def test_a_stream_that_nobody_reads(f):
    g, before = grad(f, compile="never"), (sys.stdout, sys.stderr)
    for k in (1.0, 2.0, 3.0):
        np.testing.assert_array_equal(g(k * X), 2 * k * X)
        assert before == (sys.stdout, sys.stderr)
    assert g.cache_info().traces == 1


def read(x):
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        print("ab")
    return len(stream.getvalue()) * np.sum(x)


def gone_through(x):
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        print("ab")
    stream.seek(0)
    return len(list(stream)) * 3 * np.sum(x)


@pytest.mark.parametrize("f", [read, gone_through], ids=lambda f: f.__name__)
def test_a_stream_that_is_read(f):
    """What is shown is shown by traces, so each call is one."""
    g = grad(f, compile="never")
    with pytest.warns(RuntimeWarning, match=r"streams_test.py:\d+: .*of what it returns"):
        for k in (1.0, 2.0, 3.0, 4.0):
            np.testing.assert_array_equal(g(k * X), [3.0, 3.0])


def test_a_file_or_a_stream_of_the_outside_gets_what_each_call_shows(tmp_path):
    path = tmp_path / "log.txt"

    def to_file(x):
        with open(path, "a") as file, contextlib.redirect_stdout(file):
            print("a")
        return np.sum(x**2)

    def to_outer(x):
        with contextlib.redirect_stdout(OUTER):
            print("a")
        return np.sum(x**2)

    for f in (to_file, to_outer):
        g = grad(f, compile="never")
        with pytest.warns(RuntimeWarning, match="three calls in a row"):
            for k in (1.0, 2.0, 3.0, 4.0):
                np.testing.assert_array_equal(g(k * X), 2 * k * X)
    assert path.read_text().split() == OUTER.getvalue().split() == ["a"] * 4


def test_what_stands_around_a_print_is_looked_for_once(monkeypatch):
    """A round's texts go to the screen as those of the one before: the file isn't gone through."""
    looked = []
    around = syntax._around

    def counted(code, at, lines):
        looked.append(at)
        return around(code, at, lines)

    def f(x):
        for k in range(40):
            x = 0.5 * np.sin(x)
            print(k, x, file=io.StringIO())
        return np.sum(x)

    monkeypatch.setattr(syntax, "_around", counted)
    grad(f)(X)
    assert 0 < len(looked) < 40
