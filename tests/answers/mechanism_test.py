"""Calls of what doesn't ask its arguments are answered where the user's code makes them."""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys
import threading
import time
import types
from math import exp
from typing import Any

import numpy as np
import pytest
from numpy import array, zeros
from scipy import special
from tests.debugged import unobserved

import tapegrad
from tapegrad import grad, value_and_grad, vjp
from tapegrad.observe.answers import answers
from tapegrad.observe.answers.swapping import Names
from tapegrad.observe.observer import Observer

X = np.array([0.5, 1.5, 2.0])
ORIGINALS = {
    **{f"np.{name}": getattr(np, name) for name in ("zeros", "array", "sum", "exp", "r_")},
    "math.exp": math.exp,
    "exp": exp,
    "zeros": zeros,
    "array": array,
}


def assert_put_back():
    for name, original in ORIGINALS.items():
        assert eval(name) is original


def each_way(f):
    """The value and the gradient of `f`, observed and not."""
    derived = value_and_grad(f, compile="never")
    return [derived, unobserved(derived)]


def check(f, x=X):
    h = 1e-6
    slopes = [(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))]
    for derived in each_way(f):
        for _ in range(2):
            value, slope = derived(x)
            assert value == pytest.approx(f(x), rel=1e-14)
            np.testing.assert_allclose(slope, slopes, rtol=1e-6, atol=1e-8)
    assert_put_back()


def test_an_observer_that_is_over_follows_nobody():
    """As where an interrupt has kept it from being taken away."""
    before = sys.gettrace()
    with Observer(np.sin, (), {}) as observer:
        follower = observer.follower
    sys.settrace(follower)
    try:
        assert math.prod([2, 3]) == (lambda: 6)()
        assert sys.gettrace() is None
    finally:
        sys.settrace(before)


def test_names_of_every_kind():
    """By the module, from the module, under another name, in a closure, a default, an attribute."""

    class Namespace:
        zeros = staticmethod(np.zeros)

    def through(ones=np.ones, log=math.log):
        empty = np.empty

        def f(x):
            y = np.zeros(3)
            z = zeros(3)
            e, o, n = empty(2), ones(2), Namespace.zeros(1)
            y[0], z[1:], e[:], o[1], n[0] = x[0], x[1:], x[0], log(x[1]), exp(x[2])
            return y.sum() + z @ x + e.sum() + o.sum() + n[0] ** 2 + array([x[0], 1.0]) @ [1, x[1]]

        return f

    f = through()
    derived = value_and_grad(f, compile="never")
    np.testing.assert_allclose(derived(X)[0], f(X), rtol=1e-14)
    np.testing.assert_allclose(
        derived(X)[1], grad(lambda x: vjp(np.sum, x)[0] * 0 + f(x))(X), rtol=1e-12
    )


def test_through_c_code():
    def f(x):
        parts = list(map(math.exp, x)) + [functools.partial(math.pow, x[0])(2.0)]
        filled = functools.partial(np.zeros, dtype=float)(2)
        filled[0] = functools.reduce(math.hypot, [x[0], x[1], x[2]])
        return sum(parts) + filled.sum()

    found = value_and_grad(f, compile="never")(X)
    assert found[0] == pytest.approx(f(X), rel=1e-14)
    assert found[1][2] == pytest.approx(math.exp(2.0) + 2.0 / math.hypot(*X))


def test_seen_or_not():
    def f(x):
        y = zeros(4)
        for k in range(3):
            y[k + 1] = y[k] * 0.5 + exp(x[k]) * math.sin(x[k])
        stacked = np.r_[y, x[0], 1.0] + np.sum([x[0], x[1]]) + np.dot([x[0], 1.0], [1.0, x[1]])
        return np.sum(stacked * np.linalg.norm([x[0], x[1]])) + np.max([x[2], 1.0])

    check(f)


def test_what_is_not_the_users_gets_the_original():
    with Names():
        assert type(np.zeros) is answers.Swapped
        assert np.zeros == ORIGINALS["np.zeros"] and hash(np.zeros) == hash(ORIGINALS["np.zeros"])
        assert type(np.zeros(3)) is np.ndarray and np.zeros.__name__ == "zeros"
        assert np.add.reduce([1, 2]) == 3 and np.r_[1, 2].tolist() == [1, 2]
        assert special.expit(np.zeros(2)).tolist() == [0.5, 0.5]
    assert_put_back()
    seen = []

    def f(x):
        seen.append(type(np.diag_indices(3)[0]))  # np.arange, called by NumPy
        return np.sum(x)

    for derived in each_way(f):
        derived(X)
    assert set(seen) == {np.ndarray}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_in_the_middle(error):
    def f(x):
        np.zeros(3)[0] = x[0]
        raise error

    for derived in each_way(f):
        with pytest.raises(error):
            derived(X)
        assert_put_back()


def test_a_run_that_was_kept_from_its_end():
    names: Any = Names()
    names.__enter__()
    del names
    assert_put_back()


def test_nested():
    def f(x):
        inner = vjp(lambda z: np.sum(np.array([z[0], 1.0]) * z[1]), x)[1](1.0)[0]
        y = zeros(3)
        y[:] = inner
        return y @ x + grad(lambda z: exp(z[0]))(x)[0]

    check(f)


def test_a_user_who_patches_numpy():
    """What is there is used, and left there."""
    called = []

    def mine(*args, **kwargs):
        called.append(args)
        return ORIGINALS["np.zeros"](*args, **kwargs)

    def f(x):
        return np.sum(x * np.zeros(3))

    np.zeros = mine
    try:
        for derived in each_way(f):
            derived(X)
            assert np.zeros is mine
    finally:
        np.zeros = ORIGINALS["np.zeros"]
    assert len(called) >= 2

    def patching(x):
        before, np.zeros = np.zeros, mine
        try:
            return np.sum(x * np.zeros(3))
        finally:
            np.zeros = before

    unobserved(grad(patching))(X)
    assert_put_back()


@pytest.mark.filterwarnings("ignore:.*was traced for:RuntimeWarning")
def test_other_threads():
    """They get the originals, again and again, and nothing is traced again."""
    wrong, stop = [], threading.Event()

    def loss(x):
        return np.sum(x * (np.zeros(3) + math.exp(1.0)))

    plain = value_and_grad(loss, compile="never")
    plain(X)

    def other():
        while not stop.is_set():
            for x in (np.zeros(2), np.array([1.0]), np.ones(2) * math.exp(0.0)):
                if type(x) is not np.ndarray:
                    wrong.append(x)
            if plain(X)[0] != loss(X):
                wrong.append("value")
            time.sleep(0)  # who traces needn't wait for this thread's turn to end

    threads = [threading.Thread(target=other) for _ in range(2)]
    for thread in threads:
        thread.start()

    def f(x):
        y = np.zeros(3)
        y[0] = math.exp(x[0])
        return np.sum(y * x)

    for _ in range(6):
        unobserved(grad(f))(X)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert plain.cache_info().traces == 1
    assert_put_back()


def test_threads_that_trace_at_the_same_time():
    found = []

    def f(x, k):
        y = np.zeros(3)
        for i in range(3):
            y[i] = math.exp(x[i]) * k
        return np.sum(y)

    def work(k):
        value = unobserved(lambda x: value_and_grad(lambda x: f(x, k))(x)[0])
        found.extend(abs(value(X) - f(X, k)) < 1e-9 for _ in range(10))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 40
    assert_put_back()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_in_the_middle():
    """The child has the originals, if it is another thread's trace that it was made in."""
    inside, done = threading.Event(), threading.Event()

    def f(x):
        inside.set()
        done.wait(300)
        return np.sum(x)

    thread = threading.Thread(target=unobserved(grad(f)), args=(X,))
    thread.start()
    inside.wait(300)
    assert np.zeros is not ORIGINALS["np.zeros"]
    child = os.fork()
    if child == 0:
        os._exit(0 if np.zeros is ORIGINALS["np.zeros"] and exp is ORIGINALS["exp"] else 1)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert_put_back()


def test_a_module_that_is_imported_in_the_middle():
    """It may keep what it finds, which calls NumPy's."""
    with Names():
        module = types.ModuleType("imported_now")
        exec("from numpy import zeros, exp\nmade = zeros(2)", vars(module))
    assert type(module.made) is np.ndarray
    assert type(module.zeros(3)) is np.ndarray and module.exp(0.0) == 1.0


def test_an_answer_of_the_users(own_answers):
    @tapegrad.while_traced(special, "mathieu_a")
    def characteristic(m, q):
        if not isinstance(q, np.ndarray):
            return special.mathieu_a(m, q)  # itself, in the answer
        return q**2 * 2 + m

    def f(x):
        return np.sum(special.mathieu_a(1.0, x))

    for derived in each_way(f):
        value, slope = derived(X)
        assert value == np.sum(X**2 * 2 + 1)
        np.testing.assert_allclose(slope, 4 * X)
    assert special.mathieu_a(0, 0.0) == 0.0
    assert_put_back()
    with pytest.raises(TypeError, match="is not a module"):
        tapegrad.while_traced("numpy", "zeros")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tapegrad.while_traced(np, "nothing")


def test_later_calls():
    """The originals are what is compared: nothing is traced again."""

    def f(x):
        y = np.zeros(len(x))
        y[0] = exp(x[0])
        return np.sum(y) + math.sqrt(x[1])

    derived = grad(f, compile="never")
    for k in range(4):
        derived(X + k)
    assert derived.cache_info().traces == 1
    held, globals()["exp"] = exp, math.cos
    try:
        np.testing.assert_allclose(derived(X)[0], -math.sin(0.5))
    finally:
        globals()["exp"] = held
    assert derived.cache_info().traces == 2


def test_modules_that_are_imported_meanwhile():
    """NumPy's own and Cython's look at NumPy's names when they are first imported."""
    program = (
        "import sys, numpy as np, tapegrad\n"
        "def f(x):\n"
        "    import numpy.ma, scipy.linalg, scipy.interpolate, scipy.ndimage\n"
        "    return np.sum(np.zeros(3) + x * numpy.ma.arange(3).data)\n"
        "assert 'numpy.ma' not in sys.modules\n"
        "sys.settrace(lambda *event: None)\n"
        "print(tapegrad.grad(f)(2.0))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout == "3.0\n", found.stderr
