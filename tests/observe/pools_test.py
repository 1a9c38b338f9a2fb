"""Threads that the traced function starts and waits for: their functions run in turn, followed."""

from __future__ import annotations

import concurrent.futures
import math
import multiprocessing.pool
import queue
import threading
import time

import numpy as np
import pytest

from tapegrad import grad, value_and_grad

X = np.array([0.7, 1.3, 2.1])
POOL = concurrent.futures.ThreadPoolExecutor(2)


def work(v):
    return np.sin(v) * v


def submitted(x):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(work, v) for v in x]
        return sum(future.result() for future in futures)


def mapped(x):
    return sum(POOL.map(work, x))


def completed(x):
    done = [0.0] * 3
    futures = {POOL.submit(work, v): k for k, v in enumerate(x)}
    for future in concurrent.futures.as_completed(futures):
        done[futures[future]] = future.result()
    return sum(done)


def in_c(x):
    sines = POOL.map(math.sin, x)
    return sum(s * v for s, v in zip(sines, x, strict=True))


def pool_of_threads(x):
    with multiprocessing.pool.ThreadPool(2) as pool:
        first = pool.apply(work, (x[0],))
        second = pool.starmap(np.multiply, [(np.sin(x[1]), x[1])])
        return first + second[0] + sum(pool.imap(work, [x[2]]))


class Worker(threading.Thread):
    def __init__(self, v):
        super().__init__()
        self.v = v

    def run(self):
        self.out = work(self.v)


def of_a_class(x):
    threads = [Worker(v) for v in x]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(thread.is_alive() for thread in threads)
    return sum(thread.out for thread in threads)


def locked(x):
    total, lock = [0.0], threading.Lock()

    def add(v):
        with lock:
            total[0] += work(v)

    threads = [threading.Thread(target=add, args=(v,)) for v in x]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return total[0]


def fed(x):
    jobs, out = queue.Queue(), []

    def consume():
        while (v := jobs.get()) is not None:
            out.append(work(v))

    thread = threading.Thread(target=consume)
    thread.start()  # before there is anything
    for v in x:
        jobs.put(v)
    jobs.put(None)
    thread.join()
    return sum(out)


def told_to_stop(x):
    stop, rounds = threading.Event(), []

    def count():
        while not stop.wait(0.001):
            rounds.append(1)

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    found = np.sum(work(x))
    stop.set()
    thread.join()
    return found


def asks_for_itself(x):
    out = {}

    def keep():
        out[threading.current_thread().name] = np.sum(work(x))

    thread = threading.Thread(target=keep, name="a")
    thread.start()
    thread.join()
    return out["a"]


PROGRAMS = [submitted, mapped, completed, in_c, pool_of_threads, of_a_class, locked, fed]
PROGRAMS += [told_to_stop, asks_for_itself]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_threads_that_are_waited_for_are_traced_once(f):
    g = value_and_grad(f, compile="never")
    for k in range(1, 4):
        x = k * X
        value, slope = g(x)
        np.testing.assert_allclose(value, np.sum(work(x)), rtol=1e-14)
        np.testing.assert_allclose(slope, np.cos(x) * x + np.sin(x), rtol=1e-13)
    assert g.cache_info().traces == 1


RATE = 2.0


def test_what_a_threads_function_reads_and_decides_is_guarded(monkeypatch):
    def f(x):
        return sum(POOL.map(lambda v: v * RATE if v > 1 else v**2, x))

    g = grad(f, compile="never")
    np.testing.assert_array_equal(g(X), [1.4, 2.0, 2.0])
    np.testing.assert_array_equal(g(2 * X), [2.0, 2.0, 2.0])
    monkeypatch.setitem(globals(), "RATE", 5.0)
    np.testing.assert_array_equal(g(X), [1.4, 5.0, 5.0])


def test_an_error_in_a_thread_is_that_of_its_future():
    def f(x):
        def refuse(v):
            raise ValueError(f"no {v > 1}")

        future = POOL.submit(refuse, x[0])
        with pytest.raises(ValueError, match="no False"):
            future.result()
        return np.sum(x**2)

    np.testing.assert_array_equal(grad(f, compile="never")(X), 2 * X)


def test_a_pools_threads_have_values_of_their_own():
    own = threading.local()
    own.v = 3.0

    def f(x):
        def seen(v):
            own.count = getattr(own, "count", 0) + 1
            return v * getattr(own, "v", 1.0) * own.count

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return sum(pool.map(seen, x)) * own.v

    np.testing.assert_allclose(grad(f, compile="never")(X), [3.0, 6.0, 9.0])
    assert vars(own) == {"v": 3.0}


def talks_back(x):
    asked, told = threading.Event(), threading.Event()
    out = []

    def answer():
        asked.set()
        told.wait()
        out.append(np.sum(work(x)))

    thread = threading.Thread(target=answer)
    thread.start()
    asked.wait()
    told.set()
    thread.join()
    return out[0]


def is_left_behind(x):
    threading.Thread(target=time.sleep, args=(0,), daemon=True).start()
    return np.sum(work(x))


@pytest.mark.every(2)
@pytest.mark.parametrize("f", [talks_back, is_left_behind], ids=lambda f: f.__name__)
def test_threads_that_take_turns_are_real(f):
    """Where there is no order of whole functions each call is traced, with real threads, and the
    warning names the line, and says what to do instead."""
    g = grad(f, compile="never")
    with pytest.warns(RuntimeWarning, match=r"pools_test.py:\d+: `.*Thread\(.*one after another"):
        for k in range(1, 5):
            x = k * X
            np.testing.assert_allclose(g(x), np.cos(x) * x + np.sin(x), rtol=1e-13)
