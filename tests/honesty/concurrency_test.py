"""Concurrency"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests import fuzzing

from tapegrad import grad, trace, value_and_grad, vjp
from tapegrad.differentiate.reverse import reverse
from tapegrad.observe.observer import observer
from tapegrad.pipeline import optimized

THREADS = 8


def together(work):
    """The results of `work(k)` in several threads that start at the same time."""
    barrier = threading.Barrier(THREADS)

    def run(k):
        barrier.wait()
        return work(k)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def branching(x):
    y = np.zeros_like(x)
    y[1:] = x[:-1] ** 2
    return np.sum(y * x) if np.sum(x) > 0 else np.sum(np.sin(x))


def slope(x):
    """The gradient of `branching`, by hand."""
    if np.sum(x) <= 0:
        return np.cos(x)
    found = np.zeros_like(x)
    found[1:] += x[:-1] ** 2
    found[:-1] += 2 * x[:-1] * x[1:]
    return found


def test_threads_that_the_function_waits_for():
    """the function starts threads, and waits for them -> their functions are followed, in turn;
    where one waits for another in the middle, traced at each call"""
    with ThreadPoolExecutor(2) as pool:

        def f(x):
            return sum(pool.map(lambda v: v**2 if v > 0 else 3 * v, x))

        df = grad(f, compile="never")
        for x in ([1.0, 2.0], [3.0, -1.0], [-4.0, 2.0]):
            expected = [2 * v if v > 0 else 3.0 for v in x]
            np.testing.assert_array_equal(df(np.array(x)), expected)


@pytest.mark.parametrize("mode", ["never", "always", "auto"])
def test_one_derivative_in_many_threads(mode):
    """one derivative is called from many threads, with branches that flip -> right"""
    df = grad(branching, compile=mode)

    def work(k):
        rng = np.random.default_rng(k)
        for _ in range(50):
            x = rng.normal(size=2 + k % 2)
            np.testing.assert_allclose(df(x), slope(x), rtol=1e-12)
        return True

    assert all(together(work))
    assert df.cache_info().variants == 4  # if two threads traced the same, one tape is kept


def test_traces_in_many_threads():
    """many functions are traced and nested in many threads at once -> each its own tape"""

    def work(k):
        def f(x):
            return np.sum(grad(lambda y: np.sum(y**3) * k, compile="never")(x) * x)

        return grad(f, compile="never")(np.array([1.0, 2.0]))

    for k, found in enumerate(together(work)):
        np.testing.assert_allclose(found, 9 * k * np.array([1.0, 4.0]))


def test_results_of_threads_are_their_own():
    """threads keep the results of calls at the same time -> nobody writes into them"""
    df = value_and_grad(lambda x: np.sum(np.sin(x) ** 2), compile="always")
    df(np.zeros(1000))

    def work(k):
        x = np.full(1000, float(k))
        kept = [df(x)[1] for _ in range(20)]
        return all(np.allclose(g, np.sin(2.0 * k)) for g in kept)

    assert all(together(work))


def test_after_fork():
    """the process forks, before and after compiling -> parent and child go on"""
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    program = """
        import os, sys
        import numpy as np
        from tapegrad import grad

        x = np.array([1.0, 2.0])
        played = grad(lambda x: np.sum(x**2))
        compiled = grad(lambda x: np.sum(x**3), compile="always")
        played(x), compiled(x)
        child = os.fork()
        assert np.allclose(played(x), 2 * x)
        assert np.allclose(compiled(x), 3 * x**2)
        fresh = grad(lambda x: np.sum(x**4), compile="always")
        assert np.allclose(fresh(x), 4 * x**3)
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """
    run = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    subprocess.run(run, check=True, timeout=600)


def work_in_a_process(x):
    return grad(branching, compile="always")(x)


def test_multiprocessing():
    """derivatives in a pool of spawned processes; a derivative is pickled -> right"""
    points = [np.array([1.0, k]) for k in (1.0, 2.0, -5.0)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for x, found in zip(points, pool.map(work_in_a_process, points), strict=True):
            np.testing.assert_allclose(found, slope(x))
        for x, found in zip(points, pool.map(grad(branching), points), strict=True):
            np.testing.assert_allclose(found, slope(x))


# Where Ctrl-C strikes: a file, and a function in it, in the order of their turns.
PLACES = [
    ("observe/observer.py", "observed.__enter__"),
    ("tracing/runs/run.py", "trace_function"),
    ("tracing/operators/inline_cache.py", "universal.<locals>.apply"),
    ("observe/observer.py", "observed.__exit__"),
    ("observe/observer.py", "Observer.__exit__"),
    ("observe/guards/one_time.py", "hold_now"),
    ("differentiate/reverse.py", "reverse"),
    ("optimize/simplify.py", "simplify"),
    ("runtime/cache.py", "Cache.add"),
    ("compiler/packed.py", "pack"),
    ("compiler/disk.py", "has_any"),
    ("compiler/client.py", "Client.submit"),
    ("compiler/client.py", "Client._alone"),
    ("compiler/client.py", "Client._exchange"),
    ("compiler/client.py", "Worker.send"),
    ("compiler/client.py", "Worker.exchange"),
    ("compiler/client.py", "Client._take"),
    ("compiler/client.py", "Client._sleep"),
    ("compiler/executable.py", "decoded"),
    ("runtime/entry.py", "Entry.__init__"),
    ("backends/cpu/linking.py", "linked"),
    ("runtime/variant.py", "Variant._use"),
    ("runtime/tier.py", "Tier.executable"),
    ("runtime/tier.py", "Tier.settle"),
    ("runtime/entry.py", "Entry.call_flat"),
]


@contextlib.contextmanager
def interrupt(file, function, event):
    """Raise KeyboardInterrupt when a function is called or returns, for the first time."""

    def strike(frame, what, _):
        code = frame.f_code
        if what == event and code.co_qualname == function and code.co_filename.endswith(file):
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(strike)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.mark.every(6)
@pytest.mark.parametrize("event", ["call", "return"])
@pytest.mark.parametrize(("file", "function"), PLACES)
def test_an_interrupt(file, function, event, request, monkeypatch, tmp_path):
    """Ctrl-C while a derivative is traced, differentiated, optimised, looked for on disk, sent to
    the compiler, waited for, linked or run -> the next calls are right, and followed by nobody"""
    if file.startswith("compiler/"):
        request.getfixturevalue("next_door")
    before = sys.gettrace()
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path))
    x, scale = np.array([1.0, 2.0]), 3.0
    df = grad(lambda x: np.sum(np.sin(x) * scale), compile="always")
    rare = function == "Client._sleep"  # where the answer is there at once, nobody sleeps
    with contextlib.suppress(KeyboardInterrupt), interrupt(file, function, event):
        df(x)
        assert rare
    assert sys.gettrace() is before
    assert observer() is None
    assert vjp(lambda x: float(x) ** 2, np.float64(2.0))[1](1.0) == (4.0,)
    for at in (x, 2 * x):
        np.testing.assert_allclose(df(at), scale * np.cos(at), rtol=1e-14)
    np.testing.assert_array_equal(grad(lambda x: np.sum(x**2))(x), 2 * x)


def test_an_interrupt_in_a_trace():
    """Ctrl-C in the traced function -> no trace stays open"""
    x = np.array([1.0, 2.0])

    def f(x):
        if x[0] > 100:
            raise KeyboardInterrupt
        return np.sum(x**2)

    df = grad(f, compile="never")
    with pytest.raises(KeyboardInterrupt):
        df(100 * x + 1)
    np.testing.assert_array_equal(df(x), 2 * x)
    assert df.cache_info().traces == 1


def test_long_tapes():
    """a loop makes a tape of many calls -> nothing is recursive: traced, derived, played"""
    count = 500_000 if fuzzing.ENVIRONMENT in os.environ else 8_000  # loops of two calls each

    def f(x):
        for k in range(count):
            if k.bit_count() % 2:  # no rounds come three times in a row, so they don't roll up
                x = (x + 0.5) * 1.0001
            else:
                x = x * 1.0001 + 0.5
        return x

    with pytest.warns(RuntimeWarning, match=f"f recorded {2 * count:,} operations"):
        _, tape = trace(f, 1.0)
    assert len(tape.calls) == 2 * count
    slopes = optimized(reverse(tape, [0], keep=()))
    np.testing.assert_allclose(slopes.play(1.0), 1.0001**count, rtol=1e-9)
    assert len(str(tape).splitlines()) > count
