"""A trace that has to be made again does nothing twice: what C code has done to streams, buffers
and lists is taken back, and what can't be is an error."""

from __future__ import annotations

import heapq
import io
import itertools
from collections import Counter

import numpy as np
import pytest

from tapegrad import value_and_grad
from tapegrad.errors import TapegradError

X = np.array([0.2515, -0.2642, 1.2808])


def written(stream, _, x):
    w = x[0]
    for _ in range(50):
        w = w * 0.8 + 0.1 * x[1]
        stream.write("a")
    return w * len(stream.getvalue())


def appended(_, buffer, x):
    w = x[0]
    for _ in range(50):
        w = w * 0.8 + 0.1 * x[1]
        buffer.append(1)
    return w * len(buffer)


def before_a_loop(stream, buffer, x):
    buffer.append(2)
    stream.writelines(["b"])
    w, m = x[0], 0
    while True:
        m += 1
        new = w * 0.8 + 0.1 * x[1]
        if abs(new - w) < 1e-3:
            break
        w = new
        if m >= 7:
            break
    return w * len(buffer) + len(stream.getvalue())


@pytest.mark.parametrize("f", [written, appended, before_a_loop])
def test_streams_and_buffers(f):
    """right, at each call"""
    ours, plain = (io.StringIO(), bytearray()), (io.StringIO(), bytearray())
    g = value_and_grad(lambda x: f(*ours, x), compile="never")
    for k in range(2):
        x = X * (1 + k / 10)
        np.testing.assert_allclose(g(x)[0], f(*plain, x), rtol=1e-12)
        assert ours[0].getvalue() == plain[0].getvalue()
        assert ours[1] == plain[1]


def test_files(tmp_path):
    """what stood there, and what somebody else writes, stays"""
    with open(tmp_path / "log", "w") as log:
        log.write("begun\n")

        def f(x):
            w = x[0]
            for _ in range(50):
                w = w * 0.8 + 0.1 * x[1]
                log.write("a")
            return w

        value_and_grad(f, compile="never")(X)
    assert (tmp_path / "log").read_text() == "begun\n" + 50 * "a"


def test_lists_that_numpy_shuffles():
    def made():
        rng, given = np.random.default_rng(0), [1.0, 2.0, 3.0]

        def f(x):
            w = x[0]
            for _ in range(50):
                w = w * 0.8 + 0.1 * x[1]
                rng.shuffle(given)
            return w * given[0]

        return f, given

    (f, plain), (g, ours) = made(), made()
    assert value_and_grad(g, compile="never")(X)[0] == pytest.approx(f(X), rel=1e-12)
    assert ours == plain


def test_an_iterator_that_has_gone_on_is_an_error():
    """where it can't be an input; at the next call it is known how the function is traced"""
    numbers, kept = itertools.count(1), [1.0]

    def f(x):
        kept.append(x[0])
        number = next(numbers)
        w, m = x[0], 0
        while True:  # of its own: how other loops are traced is known by now
            m += 1
            new = w * 0.8 + 0.1 * x[1]
            if abs(new - w) < 1e-3:
                break
            w = new
            if m >= 7:
                break
        return w * number

    g = value_and_grad(f, compile="never")
    with pytest.raises(TapegradError, match=r"values were taken from an iterator from outside"):
        g(X)
    assert kept == [1.0]
    value = g(X)[0]  # of the second number
    numbers = itertools.count(3)
    assert g(X)[0] == pytest.approx(1.5 * value, rel=1e-12)


@pytest.mark.parametrize("size", [3, 10, 12, 20])
def test_the_smallest_of_a_heap(size):
    """a side of a branch in Python's library that isn't taken isn't run"""
    x = np.random.default_rng(size).normal(size=size)
    for f in (
        lambda x: heapq.nsmallest(2, list(x))[-1],
        lambda x: heapq.nlargest(3, list(x), key=abs)[-1],
        lambda x: Counter(dict(enumerate(x))).most_common(2)[1][1],
    ):
        value, gradient = value_and_grad(f, compile="never")(x)
        assert value == f(x)
        assert x[np.argmax(gradient)] == f(x)
        assert np.sum(gradient) == 1.0
