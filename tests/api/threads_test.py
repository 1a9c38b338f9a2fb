"""One derivative, called and traced from many threads at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import tapegrad as tg

THREADS = 8


def together(work) -> list:
    """`work(k)` in several threads that start at the same time."""
    barrier = threading.Barrier(THREADS)

    def run(k):
        barrier.wait()
        return work(k)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def test_a_known_derivative_called_from_many_threads():
    df = tg.grad(lambda x: np.sin(x * x).sum(), compile="never")
    df(np.ones(50))

    def work(k):
        x = np.full(50, float(k))
        return all(np.array_equal(df(x), 2 * x * np.cos(x * x)) for _ in range(20))

    assert all(together(work))
    assert df.cache_info() == (THREADS * 20, 1, 1, 0, 0, 1, 0, 0, 0)


def test_values_kept_on_an_object_by_many_threads():
    """While one thread traces, the object holds traced values, which no other one is to find."""

    class Model:
        last = 0.0

        def loss(self, x):
            before, self.last = self.last, np.sum(x)
            for k in range(40):
                x = np.sin(x) + 0.1 * before * k
            return np.sum(x**2)

    model = Model()
    value_and_slope = tg.value_and_grad(model.loss, compile="never")
    slope = tg.grad(model.loss, compile="never")

    def work(k):
        for j in range(2):
            (value_and_slope, slope)[(j + k) % 2](np.ones(3 + j) * k)

    together(work)
    assert type(model.last) is np.float64


def test_a_derivative_first_called_by_many_threads():
    """Several may trace it; one variant is kept."""
    df = tg.grad(lambda x: np.sin(x).sum() + (x**2).sum(), compile="never")
    x = np.linspace(0, 1, 20)
    expected = np.cos(x) + 2 * x
    for found in together(lambda k: df(x)):
        np.testing.assert_allclose(found, expected, rtol=1e-15)
    info = df.cache_info()
    assert info.variants == info.misses == 1
    assert info.hits + info.misses == THREADS
    assert 1 <= info.traces <= THREADS


def test_threads_that_take_different_paths_and_shapes():
    def f(x):
        return (x**2).sum() if x[0] > 0 else -x.sum()

    df = tg.grad(f, compile="never")

    def work(k):
        x = np.full(k % 3 + 1, 1.0 if k % 2 else -1.0)
        expected = 2 * x if k % 2 else x
        return all(np.array_equal(df(x), expected) for _ in range(10))

    assert all(together(work))
    assert df.cache_info().variants == 6


def test_traces_of_other_threads_dont_meet():
    """Each thread's tracers belong to its own trace, nested ones too."""

    def work(k):
        def f(x):
            return tg.grad(lambda y: x * y**2, compile="never")(x) * k

        return tg.grad(f, compile="never")(3.0)

    assert together(work) == [12.0 * k for k in range(THREADS)]


def test_dataclasses_first_seen_by_many_threads():
    from dataclasses import make_dataclass

    Point = make_dataclass("Point", ["x", "y"])
    df = tg.grad(lambda p: (p.x * p.y).sum(), compile="never")
    found = together(lambda k: df(Point(np.full(2, 1.0 + k), np.full(2, 2.0))))
    assert [list(p.y) for p in found] == [[1.0 + k] * 2 for k in range(THREADS)]


def test_clearing_while_others_call():
    df = tg.grad(lambda x: (x**2).sum(), compile="never")

    def work(k):
        for _ in range(20):
            if k == 0:
                df.clear_cache()
            np.testing.assert_array_equal(df(np.ones(3)), [2.0, 2.0, 2.0])
        return True

    assert all(together(work))


def test_a_traced_function_may_use_threads_itself():
    """A derivative taken in one of them belongs to the trace of the values it reaches."""

    def f(x):
        with ThreadPoolExecutor(2) as pool:
            inner = tg.grad(lambda y: x * y**2, compile="never")
            return sum(pool.map(inner, [1.0, 2.0, 3.0]))  # 12 x

    df = tg.grad(f, compile="never")
    assert [df(x) for x in (1.0, 2.0)] == [12.0, 12.0]
    assert tg.grad(lambda x: x * f(x), compile="never")(3.0) == 72.0
