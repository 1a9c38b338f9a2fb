"""Garbage that is collected while a function is observed: what finalises it is none of its code."""

import gc
import os
import threading
import weakref

import numpy as np
import pytest

from tapegrad import grad, value_and_grad
from tapegrad.observe import garbage

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

    def f(x):
        grad(lambda x: x**2, compile="never")(2.0)
        seen.append(gc.isenabled())
        return np.sum(x)

    def failing(x):
        raise KeyError("a")

    threshold = gc.get_threshold()
    (gc.enable if on else gc.disable)()
    try:
        grad(f, compile="never")(X)
        with pytest.raises(KeyError):
            grad(failing, compile="never")(X)
        assert (gc.isenabled(), gc.get_threshold()) == (on, threshold)
        assert seen == [on]
    finally:
        gc.enable()


def test_a_function_switches_it(collecting):
    def f(x):
        gc.disable()
        gc.set_threshold(123)
        return np.sum(x)

    collecting(lambda: None)
    try:
        grad(f, compile="never")(X)
        assert (gc.isenabled(), gc.get_threshold()[0]) == (False, 123)
    finally:
        gc.enable()


def _in_a_thread():
    """A trace in another thread that is on its way, and what lets it end."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(x):
        inside.set()
        go_on.wait(60)
        return np.sum(x)

    thread = threading.Thread(target=grad(slow, compile="never"), args=(X,))
    thread.start()
    inside.wait(60)
    return lambda: (go_on.set(), thread.join())


def test_the_last_of_several_threads_lets_it_go_on():
    threshold = gc.get_threshold()
    finish = _in_a_thread()
    grad(lambda x: np.sum(x**3), compile="never")(X)
    during = gc.get_threshold()
    finish()
    assert during[0] == garbage.NEVER
    assert gc.get_threshold() == threshold


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_fork_in_the_middle_collects_garbage():
    threshold = gc.get_threshold()
    finish = _in_a_thread()
    child = os.fork()
    if not child:
        os._exit(0 if gc.get_threshold() == threshold else 1)
    finish()
    assert os.waitpid(child, 0)[1] == 0


def test_what_the_collector_is_set_to():
    """The program reads what it has set; meanwhile the collector waits."""

    def f(x):
        return np.sum(x**2) * sum(gc.get_threshold()) * gc.isenabled()

    df, before = value_and_grad(f), gc.get_threshold()
    try:
        for young in (700, 800, 800):
            gc.set_threshold(young)
            assert df(X)[0] == f(X)
            assert gc.get_threshold()[0] == young
    finally:
        gc.set_threshold(*before)
    assert df.cache_info().traces == 2
