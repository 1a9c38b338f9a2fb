"""Writes to arrays that the function did not make."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from tests.honesty.check import refused

from tapegrad import grad, jit, scan, simplegrad, value_and_grad, vjp
from tapegrad import range as rounds
from tapegrad.errors import ArgumentError, UnsupportedError

X = np.array([1.0, 2.0, 3.0])


class Filter:
    """Work arrays, made once, that each call writes to."""

    def __init__(self):
        self.buffer = np.arange(4.0)
        self.rows = [np.zeros(3), np.ones(3)]
        self.named = {"a": np.zeros(3), "b": np.ones(3)}
        self.weights = np.arange(6.0).reshape(2, 3)
        self.count = np.zeros(2, int)
        self.total = np.array(0.5)
        self.state = np.arange(6.0)
        self.position, self.velocity = self.state[:3], self.state[3:]
        self.first, self.last = self.now, self.before = np.ones(3), np.zeros(3)

    def copied(self):
        """Another one that holds the same."""
        made = Filter()
        if self.now is self.last:
            made.now, made.before = made.before, made.now
        for mine, its in zip(made.arrays(), self.arrays(), strict=True):
            mine[...] = its
        return made

    def arrays(self):
        return [
            *[x for x in vars(self).values() if isinstance(x, np.ndarray)],
            *self.rows,
            *self.named.values(),
        ]

    def element(self, x):
        self.buffer[0] = x[0] * x[1]
        return np.sum(self.buffer**2)

    def cleared(self, x):
        self.buffer[:] = 0.0
        self.buffer[1:] += x
        return np.sum(self.buffer**3)

    def in_place(self, x):
        self.weights *= 0.5
        self.weights += x
        self.total += np.sum(x)
        return np.sum(self.weights**2) * self.total

    def into(self, x):
        np.add(x, self.weights[0], out=self.weights[1])
        np.copyto(self.buffer[:3], x**2)
        np.put(self.velocity, [0, 2], x[1])
        np.multiply(*[x, x], **{"out": self.position})
        self.now.fill(x[0])
        return sum(np.sum(a) for a in (self.weights, self.buffer, self.state, self.now))

    def views(self, x):
        self.position += self.velocity * x
        self.velocity[:] = -self.position
        row = self.weights[0]
        row[:] = x
        self.weights.T[2] = x[0]
        return np.sum(self.state**2) + np.sum(self.weights**2)

    def lists(self, x):
        for k, (row, other) in enumerate(zip(self.rows, reversed(self.rows), strict=True)):
            row += x * (k + 1)
            other -= 0.5 * row
        for key, array in self.named.items():
            array *= 0.9 if key == "a" else x[0]
        self.named["b"][1] = x[2]
        stacked = np.stack(self.rows)
        return np.sum(stacked**2) + sum(self.named.values()).sum() + np.dot(*self.rows)

    def swapped(self, x):
        self.now[:] = self.before * 0.5 + x
        self.before, self.now = self.now, self.before
        return np.sum(self.before**2)

    def elements(self, x):
        for k, value in enumerate(self.position):
            self.position[k] = value * x[k] + (self.position[k - 1] if k else 0.0)
        return np.sum(self.state**2)

    def counted(self, x):
        self.count[0] += 1
        return np.sum(x) * self.count[0]

    def read_first(self, x):
        before = float(np.sum(self.now))
        self.now[:] = 0.5 * self.now + x
        return np.sum(self.now) * (1.0 + before)

    def branching(self, x):
        if self.total > 2.0:
            self.total[...] = 0.0
            self.buffer[1] = x[1]
        self.total += x[0]
        return self.total * np.sum(self.buffer * x[2])


METHODS = [n for n, f in vars(Filter).items() if n not in ("__init__", "arrays", "copied")]
METHODS = [n for n in METHODS if callable(getattr(Filter, n)) and n[0] != "_"]


def differences(f, x):
    return np.array([(f(x + h) - f(x - h)) / 2e-6 for h in 1e-6 * np.eye(len(x))])


@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("name", METHODS)
def test_methods_that_write_to_work_arrays(name, compile):
    """arrays of an object are written to -> values, derivatives and what the arrays hold after each
    call are plain NumPy's, in the same array objects; it is traced once for each of its ways"""
    mine, plain = Filter(), Filter()
    arrays, df = mine.arrays(), value_and_grad(getattr(mine, name), compile=compile)
    for k in (1, 2, 3) if compile == "never" else (1, 2):
        start, x = plain.copied(), X / k
        slope = differences(lambda x, s=start: getattr(s.copied(), name)(x), x)
        value, found = df(x)
        np.testing.assert_allclose(value, getattr(plain, name)(x))
        np.testing.assert_allclose(found, slope, rtol=1e-5, atol=1e-5)
        for a, b in zip(mine.arrays(), plain.arrays(), strict=True):
            np.testing.assert_allclose(a, b)
        assert {id(a) for a in mine.arrays()} == {id(a) for a in arrays}
        assert (mine.now is mine.first) == (plain.now is plain.first)
    assert df.cache_info().traces <= 2


BUFFER = np.zeros(3)


def halved(x):
    BUFFER[:] = 0.5 * BUFFER + x**2
    return np.sum(BUFFER**2)


@pytest.fixture
def buffer():
    BUFFER[:] = 1.0
    return BUFFER


def test_what_a_call_reads_of_the_last_one_is_a_constant(buffer):
    """a call reads what the last one has left in the array -> a number, without a derivative"""
    for df in (grad(halved), grad(halved, compile="always")):
        for _ in range(3):
            before = buffer.copy()
            np.testing.assert_allclose(df(X), 2 * (0.5 * before + X**2) * 2 * X)
    buffer[:] = 7.0  # by the user, in between
    np.testing.assert_allclose(df(X), 2 * (3.5 + X**2) * 2 * X)
    assert df.cache_info().traces == 1


def test_second_derivatives_inner_gradients_and_pullbacks(buffer):
    """an inner derivative writes to the array -> the outer function reads what it has left, with
    derivatives; once a call"""
    second = grad(lambda x: np.sum(grad(halved)(x)))
    np.testing.assert_allclose(second(X), 2 + 12 * X**2)
    np.testing.assert_allclose(buffer, 0.5 + X**2)
    buffer[:] = 0.0

    def outer(x):
        first = BUFFER[:2]  # a view from before
        slope = grad(halved)(x)
        return np.sum(slope * BUFFER) + np.sum(first)

    value, found = value_and_grad(outer)(X)
    np.testing.assert_allclose(value, np.sum(4 * X**5) + np.sum(X[:2] ** 2))
    np.testing.assert_allclose(found, 20 * X**4 + [2, 4, 0])
    buffer[:] = 1.0
    value, pullback = vjp(halved, X)
    np.testing.assert_allclose(buffer, 0.5 + X**2)
    buffer[:] = 9.0
    np.testing.assert_allclose(pullback(1.0)[0], 4 * X * (0.5 + X**2))
    buffer[:] = 0.0
    doubled = jit(halved)
    assert [float(doubled(np.ones(3))) for _ in range(2)] == [3.0, 6.75]


def test_an_error_in_the_middle(buffer):
    """the function raises -> the array holds what plain NumPy leaves there"""

    def f(x):
        BUFFER[0] = x[0]
        if x[1] < 0:
            raise KeyError("negative")
        BUFFER[1] = x[1]
        return np.sum(BUFFER * x)

    df = grad(f)
    np.testing.assert_allclose(df(X), [2.0, 4.0, 1.0])
    with pytest.raises(KeyError):
        df(np.array([5.0, -1.0, 1.0]))
    np.testing.assert_array_equal(buffer, [5.0, 2.0, 1.0])


@pytest.mark.parametrize("transform", [grad, jit])
@pytest.mark.parametrize("kept_by", ["a variable", "an attribute"])
def test_an_error_before_another_array_takes_its_place(kept_by, transform):
    """it raises before it sets the name to another array -> the array holds what NumPy leaves"""
    work, holder = np.zeros(3), SimpleNamespace(work=np.zeros(3))

    def variable(x):
        nonlocal work
        work[1] = x[0]
        if x[1] < 0:
            raise KeyError("negative")
        work = 2 * x
        return np.sum(x**2)

    def attribute(x):
        holder.work[1] = x[0]
        if x[1] < 0:
            raise KeyError("negative")
        holder.work = 2 * x
        return np.sum(x**2)

    df = transform(variable if kept_by == "a variable" else attribute)
    left = [0.0, 5.0, 0.0]
    for _ in range(2):
        with pytest.raises(KeyError):
            df(np.array([5.0, -1.0, 1.0]))
        np.testing.assert_array_equal(work if kept_by == "a variable" else holder.work, left)
        df(X)
        np.testing.assert_array_equal(work if kept_by == "a variable" else holder.work, 2 * X)
        left = [2 * X[0], 5.0, 2 * X[2]]


def test_an_argument_in_the_same_memory(buffer):
    """an argument shares memory with the array that is written to -> refused, at later calls too"""
    for df in (grad(halved), grad(halved, compile="always")):
        df(X)
        df(X)
        before = buffer.copy()
        with refused(ArgumentError, "BUFFER[:] = 0.5 * BUFFER", "Pass a copy"):
            df(buffer[::-1])
        np.testing.assert_array_equal(buffer, before)


def test_read_only_arrays(buffer):
    """the array is read-only, a view of it is, or it was made so between calls -> NumPy's error"""
    shown = buffer[:]
    shown.flags.writeable = False

    def f(x):
        BUFFER[0] = x[0]
        shown[1] = x[1]
        return np.sum(BUFFER)

    with pytest.raises(ValueError, match="read-only"):
        grad(f)(X)
    df = grad(halved)
    df(X)
    buffer.flags.writeable = False
    try:
        with pytest.raises(ValueError, match="read-only"):
            df(X)
    finally:
        buffer.flags.writeable = True


def test_arrays_that_are_replaced_or_changed_in_place_between_calls():
    """the attribute gets another array, of another shape or dtype, or the array is reshaped in
    place -> as in plain NumPy"""
    mine, plain = Filter(), Filter()

    def f(m, x):
        m.buffer[: len(x)] *= 0.5
        m.buffer[:1] += x[0] ** 2
        return np.sum(m.buffer**2)

    df = value_and_grad(lambda x: f(mine, x))
    changes = [
        lambda m: None,
        lambda m: setattr(m, "buffer", np.arange(6.0)),
        lambda m: setattr(m, "buffer", np.arange(6.0)[::-2]),
        lambda m: setattr(m, "buffer", np.arange(6.0, dtype=np.float32)),
        lambda m: setattr(m, "buffer", np.ones((3, 2), order="F")),
        lambda m: m.buffer.resize((6,), refcheck=False) or m.buffer.fill(2.0),
    ]
    for change in changes:
        change(mine)
        change(plain)
        for _ in range(2):
            assert df(X)[0] == pytest.approx(float(f(plain, X)), rel=1e-6)
            np.testing.assert_allclose(mine.buffer, plain.buffer, rtol=1e-6)
            assert (mine.buffer.dtype, mine.buffer.shape) == (
                plain.buffer.dtype,
                plain.buffer.shape,
            )


def test_an_array_that_an_attribute_comes_to_share():
    """what an attribute held was another array in the first call, and is the one that is written to
    in the second -> as in plain NumPy"""

    class Shared:
        def __init__(self):
            self.buffer, self.last = np.zeros(3), np.ones(3)

        def step(self, x):
            self.buffer[0] = x[0]
            found = np.sum(self.last * x)
            self.last = self.buffer
            return found

    mine, plain = Shared(), Shared()
    df = value_and_grad(mine.step)
    for k in (1.0, 2.0, 3.0):
        assert df(k * X)[0] == pytest.approx(plain.step(k * X))
        assert mine.last is mine.buffer


def test_what_is_kept_of_such_an_array():
    """the array itself, or a view of it, is left in an attribute or a list -> it is that array"""
    kept, buffer = [], np.zeros(3)
    holder = Filter()

    def f(x):
        buffer[:] = x
        kept.append(buffer)
        holder.now = buffer[1:]
        return np.sum(buffer)

    df = grad(f)
    for k in (1, 2):
        df(k * X)
        assert len(kept) == k and kept[-1] is buffer
        assert np.shares_memory(holder.now, buffer) and holder.now[0] == 2.0 * k


def test_code_that_reads_the_memory_otherwise(buffer):
    """C code, pandas, or a view that isn't followed reads the array after it was written to ->
    refused, with the lines"""
    table = pd.DataFrame(np.ones((3, 2)), columns=["a", "b"])
    columns = table.to_numpy()
    windows = sliding_window_view(buffer, 2)
    pointer = buffer.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    memory = memoryview(buffer)
    if not np.shares_memory(columns, table["a"].to_numpy()) or not columns.flags.writeable:
        columns = buffer  # this pandas copies

    def f(x, read):
        columns[0] = x[0]
        BUFFER[0] = x[0]
        return np.sum(x) * read()

    for read in (lambda: np.sum(windows), lambda: pointer[0], lambda: memory[0]):
        with refused(UnsupportedError, "x[0]"):
            grad(f)(X, read)
    np.testing.assert_array_equal(buffer, 1.0)


def test_what_is_traced_once_for_all_rounds(buffer):
    """a body of `scan` writes to the array -> refused, with the line; one that reads what was
    written before doesn't"""

    def scanned(x):
        def body(carried, t):
            BUFFER[0] = carried
            return carried * t, carried

        return scan(body, x[0], X)[0]

    def looped(x):
        y = x[0]
        for k in rounds(5):
            BUFFER[k % 3] = y
            y = y * 2.0
        return y

    def reading(x):
        BUFFER[:] = x
        return scan(lambda c, t: (c * t + BUFFER[1], c), x[0], X)[0]

    with refused(UnsupportedError, "BUFFER[0] = carried"):
        grad(scanned)(X)
    np.testing.assert_array_equal(buffer, 1.0)
    grad(looped)(X)
    np.testing.assert_array_equal(buffer, X[0] * np.array([8.0, 16.0, 4.0]))
    buffer[:] = 1.0
    np.testing.assert_allclose(grad(reading)(X), [6.0, 10.0, 0.0])


def test_a_function_that_stands_alone(buffer):
    """`simplegrad` of a function that writes to such an array -> refused with the line"""
    with refused(UnsupportedError, "BUFFER[:] = 0.5 * BUFFER", "stands alone"):
        simplegrad(halved, X)
    np.testing.assert_array_equal(buffer, 1.0)


def test_threads():
    """two threads call one derivative, each with arrays of its own -> each has its own results"""
    found = {}

    def run(k):
        filters[k].cleared(X)
        found[k] = [df[k](X * k) for _ in range(5)]

    filters = {k: Filter() for k in (1, 2)}
    df = {k: grad(filters[k].in_place) for k in filters}
    threads = [threading.Thread(target=run, args=(k,)) for k in filters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, slopes in found.items():
        plain = Filter()
        for slope in slopes:
            start = plain.copied()
            near = differences(lambda x, s=start: s.copied().in_place(x), X * k)
            np.testing.assert_allclose(slope, near, rtol=1e-5)
            plain.in_place(X * k)
