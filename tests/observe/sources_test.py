"""Iterators and queues from outside: each call takes the next value once, whatever is tried."""

from __future__ import annotations

import gc
import itertools
import queue
from typing import Any

import numpy as np
import pytest

from tapegrad import value_and_grad

MODES = pytest.mark.parametrize("compile", ["always", "never"])
POINTS = [np.array([s, s + 0.5, 2 * s]) for s in (1.3, 0.7, 2.1, 1.9, 0.4)]


@pytest.fixture(autouse=True)
def closed():
    """Generators are closed here, not by the collector in the middle of another test's trace."""
    yield
    gc.collect(1)


def numbers():
    k = 1.0
    while True:
        yield k
        k += 1


def batches():
    rng = np.random.default_rng(0)
    while True:
        yield rng.normal(size=(2, 3)), rng.normal(size=2)


def rows():
    return ({"w": np.ones(3) * k, "n": k} for k in itertools.count(1))


def jobs():
    waiting: Any = queue.Queue()
    for k in range(10):
        waiting.put(np.arange(3.0) + k)
    return waiting


def squares(x):
    return np.sum(x**2)


def by_batch(it, x):
    inputs, targets = next(it)
    return np.sum((inputs @ x - targets) ** 2)


def caught(it, x):
    try:
        factor = next(it)
    except StopIteration:
        factor = 3.0
    return factor * squares(x)


def decided_after(it, x):
    factor = next(it)
    return factor * (np.sum(x) if np.sum(x) > 6 else squares(x))


def decided_before(it, x):
    return np.sum(x) if np.sum(x) > 6 else next(it) * squares(x)


def decided_between(it, x):
    first = next(it)
    return np.sum(x) * first if np.sum(x) > 6 else next(it) * squares(x)


def passed_on(it, x):
    factor = it.get()
    it.put(np.sum(factor * x))
    it.task_done()
    return np.sum(factor * x**2)


def written(it, x):
    batch = next(it)
    batch["w"] += 1
    return np.sum(batch["w"] * x**2) * batch["n"]


def shared(it, x):
    held = next(it)
    held[0] = held[0] + np.sum(x)
    return held[0] * squares(x)


# What it takes from, the function, and how often it is traced at most
TAKING: dict[str, tuple[Any, Any, int]] = {
    "a count": (lambda: itertools.count(1), lambda it, x: next(it) * squares(x), 1),
    "a list": (lambda: iter([2.0, 3.0] * 8), lambda it, x: next(it) * squares(x), 1),
    "a generator": (numbers, lambda it, x: next(it) * squares(x) + next(it), 1),
    "a default": (lambda: iter([2.0]), lambda it, x: next(it, 7.0) * squares(x), 1),
    "pairs": (
        lambda: zip(numbers(), numbers(), strict=False),
        lambda it, x: sum(next(it)) * squares(x),
        1,
    ),
    "an index": (lambda: itertools.cycle([0, 1, 2]), lambda it, x: x[next(it)] * squares(x), 1),
    "batches": (batches, by_batch, 1),
    "texts": (
        lambda: itertools.cycle("ab"),
        lambda it, x: {"a": 1.0, "b": 2.0}[next(it)] * x[0],
        2,
    ),
    "its end": (lambda: iter([1.0, 2.0]), caught, 2),
    "a branch after it": (numbers, decided_after, 2),
    "a branch before it": (numbers, decided_before, 5),
    "a branch between two": (numbers, decided_between, 5),
    "a queue": (jobs, passed_on, 2),
    "what is written to": (rows, written, 5),
    "a list that others hold": (lambda: itertools.repeat([1.0, 2.0]), shared, 5),
}


@MODES
@pytest.mark.parametrize("name", TAKING)
@pytest.mark.filterwarnings("ignore:.* was traced for three calls")
def test_each_call_takes_the_next(name, compile):
    make, f, traces = TAKING[name]
    own, plain = make(), make()
    g = value_and_grad(lambda x: f(own, x), compile=compile)
    for x in POINTS:
        np.testing.assert_allclose(g(x)[0], f(plain, x.copy()), rtol=1e-13)
    if name not in ("its end", "a default", "a queue"):
        assert str(next(own)) == str(next(plain))
    if name == "a queue":
        assert [str(x) for x in own.queue] == [str(x) for x in plain.queue]
        assert own.unfinished_tasks == plain.unfinished_tasks
    assert g.cache_info().traces <= traces


def test_slopes():
    it = iter([2.0, 3.0, 4.0, 5.0])
    g = value_and_grad(lambda x: next(it) * squares(x), compile="never")
    for k, x in enumerate(POINTS[:4]):
        np.testing.assert_allclose(g(x)[1], (2.0 + k) * 2 * x, rtol=1e-13)


@pytest.mark.filterwarnings("ignore:.* was traced for three calls")
def test_a_generator_that_reads_what_the_function_has_written():
    def read(held):
        return (sum(held) + k for k in itertools.count())

    own: list[Any] = []
    plain: list[Any] = []

    def f(held, it, x):
        held.append(np.sum(x))
        return next(it) * squares(x)

    its = read(own), read(plain)
    g = value_and_grad(lambda x: f(own, its[0], x), compile="never")
    for x in POINTS:
        np.testing.assert_allclose(g(x)[0], f(plain, its[1], x.copy()), rtol=1e-13)


def test_a_generator_that_draws():
    def draws(rng):
        while True:
            yield rng.normal(size=3)

    def f(it, rng, x):
        return np.sum(next(it) * x**2) + rng.normal() * np.sum(x)

    own, plain = np.random.RandomState(1), np.random.RandomState(1)
    its = draws(own), draws(plain)
    g = value_and_grad(lambda x: f(its[0], own, x), compile="never")
    for x in POINTS:
        np.testing.assert_allclose(g(x)[0], f(its[1], plain, x.copy()), rtol=1e-13)
    assert g.cache_info().traces <= 2
