"""Garbage that is collected while a function is observed: what finalises it is none of its code."""

import gc
import os
import threading
import weakref

import numpy as np
import pytest

from tapegrad import grad, value_and_grad
from tapegrad.tracing.observe import garbage

X = np.array([0.5, -1.0, 2.0])


class _World:
    """What code that finalises garbage reads and changes."""

    def __init__(self):
        self.freed, self.log = 0, []

    def finalise(self, *_):
        self.freed += 1
        self.log.append(self.freed)
        del self.log[:-3]


class _Cyclic:
    """Only the collector frees it."""

    def __init__(self, world):
        self.itself, self.world = self, world


class _WithMethod(_Cyclic):
    def __del__(self):
        self.world.finalise()


def _by_method(world):
    _WithMethod(world)


def _by_callback(world, kept=[]):  # noqa: B006
    kept.append(weakref.ref(_Cyclic(world), lambda _: world.finalise()))
    del kept[:-300]


def _by_finalizer(world):
    x = _Cyclic(None)
    weakref.finalize(x, world.finalise).atexit = False


def _by_generator(world):
    def drawn():
        itself = yield
        try:
            yield itself
        finally:
            world.finalise()

    generator = drawn()
    next(generator)
    generator.send(generator)


@pytest.fixture
def collecting():
    """Each collection, of which there are many, leaves garbage for the next one."""
    threshold, hooks = gc.get_threshold(), []

    def begin(leave):
        hooks.append(lambda phase, _: leave() if phase == "stop" else None)
        gc.callbacks.append(hooks[0])
        gc.set_threshold(50)

    yield begin
    gc.set_threshold(*threshold)
    gc.callbacks.remove(hooks[0])


@pytest.mark.parametrize("leave", [_by_method, _by_callback, _by_finalizer, _by_generator])
def test_what_finalises_garbage_is_not_observed(leave, collecting):
    world = _World()

    def f(x):
        y = x
        for k in range(40):
            y = np.sin(y) + len(list(map(list, [()] * 50))) * x[k % 3]
        return np.sum(y)

    df = value_and_grad(f, compile="never")
    collecting(lambda: leave(world))
    for k in range(3):
        df(X + k)
    gc.collect()
    assert world.freed
    assert all(type(n) is int for n in world.log)
    assert df.cache_info().traces == 1


def test_a_long_run_collects_its_garbage(monkeypatch):
    monkeypatch.setattr(garbage, "MUCH", 50)
    world = _World()

    def f(x):
        for _ in range(100):
            _WithMethod(world)
        world.log.append(len(world.log))
        return np.sum(x)

    assert grad(f, compile="never")(X) == pytest.approx(np.ones(3))
    assert world.freed > 0


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_left_as_it_was(on):
    seen = []

    def inner(x):
        return x**2

    def f(x):
        grad(inner, compile="never")(2.0)
        seen.append(1)
        return np.sum(x)

    def failing(x):
        raise KeyError("a")

    (gc.enable if on else gc.disable)()
    try:
        grad(f, compile="never")(X)
        assert gc.isenabled() is on
        with pytest.raises(KeyError):
            grad(failing, compile="never")(X)
        assert gc.isenabled() is on
    finally:
        gc.enable()


def test_the_last_of_several_threads_switches_it_on():
    inside, go_on, states = threading.Event(), threading.Event(), []

    def slow(x):
        inside.set()
        go_on.wait(10)
        return np.sum(x)

    thread = threading.Thread(target=grad(slow, compile="never"), args=(X,))
    thread.start()
    inside.wait(10)
    grad(lambda x: np.sum(x**3), compile="never")(X)
    states.append(gc.isenabled())
    go_on.set()
    thread.join()
    states.append(gc.isenabled())
    assert states == [False, True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_fork_in_the_middle_collects_garbage():
    inside, go_on = threading.Event(), threading.Event()

    def slow(x):
        inside.set()
        go_on.wait(10)
        return np.sum(x)

    thread = threading.Thread(target=grad(slow, compile="never"), args=(X,))
    thread.start()
    inside.wait(10)
    child = os.fork()
    if not child:
        os._exit(0 if gc.isenabled() else 1)
    go_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
