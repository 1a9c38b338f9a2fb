"""Gradients that are written into given arrays."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import ArgumentError, TraceError

X = np.linspace(-1.0, 2.0, 7)
MODES = ["never", "auto", "always"]


def loss(x, k):
    return np.sum(np.sin(x) * k) if x[0] < 5 else np.sum(x)


@pytest.mark.parametrize("compile", MODES)
def test_the_gradient_is_in_the_same_arrays_at_each_call(compile):
    place = np.empty(7)
    slope = tg.grad(loss, compile=compile, out=place)
    for k in (1.0, 2.0, 3.0) * 10:
        assert slope(X, k) is place
        np.testing.assert_allclose(place, k * np.cos(X), rtol=1e-14)
    assert slope(X + 9, 1.0) is place  # on another path
    np.testing.assert_array_equal(place, np.ones(7))


@pytest.mark.parametrize("compile", MODES)
def test_trees_values_and_what_the_function_returns_besides(compile):
    def model(p, x):
        return np.sum((x @ p["w"] + p["b"]) ** 2) * p["k"], x[0, 0]

    p = {"w": np.ones((3, 2), np.float32), "b": np.ones(2, np.float32), "k": np.float64(2.0)}
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = tg.value_and_grad(model, has_aux=True)(p, x)
    out = {"w": np.empty((3, 2), np.float32), "b": np.empty(2, np.float32), "k": np.empty(())}
    for _ in range(3):
        found = tg.value_and_grad(model, has_aux=True, compile=compile, out=out)(p, x)
        assert found[1] is out
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
        for a, b in zip(tg.tree_leaves(out), tg.tree_leaves(expected[1]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    gradient, aux = tg.grad(model, has_aux=True, compile=compile, out=out)(p, x)
    assert gradient is out
    assert aux == 0
    both = (np.empty(7), np.empty(()))
    assert tg.grad(loss, (0, 1), compile=compile, out=both)(X, 2.0) is both
    np.testing.assert_allclose(both[1], np.sum(np.sin(X)))


def test_compiled_code_writes_there_at_once():
    place = np.empty(1 << 16)
    slope = tg.grad(lambda x: np.sum(np.sin(x)), compile="always", out=place)
    slope(np.ones(1 << 16))
    (entry,) = [v.entry for v in slope.cache.all_variants()]
    assert slope.tape.into == ((0, 0),)
    assert not any("empty" in line for line in entry.driver.lines)


def test_parts_of_arrays_and_other_layouts_are_written_to():
    whole = np.zeros((7, 3))
    for compile in MODES:
        whole[...] = 0
        tg.grad(loss, compile=compile, out=whole[:, 1])(X, 1.0)
        np.testing.assert_allclose(whole[:, 1], np.cos(X))
        assert not whole[:, ::2].any()


@pytest.mark.parametrize("compile", ["never", "always"])
def test_arrays_that_are_read_are_not_written_over(compile):
    x, c = X.copy(), X.copy()
    with pytest.raises(ArgumentError, match="out shares memory with an argument"):
        tg.grad(loss, compile=compile, out=x)(x, 1.0)
    with pytest.raises(ArgumentError, match="out shares memory with an argument"):
        tg.grad(loss, compile=compile, out=x[1:])(x[:-1], 1.0)
    with pytest.raises(ArgumentError, match="shares memory with one that the function reads"):
        tg.grad(lambda x: np.sum(np.sin(x * c[::-1])), compile=compile, out=c)(x)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(c, X)


@pytest.mark.parametrize("compile", MODES)
def test_an_array_that_the_function_writes_to_is_no_place(compile):
    place = np.empty(7)

    def doubled(x):
        place[:] = 2.0 * x
        return np.sum(place**2)

    with pytest.raises(ArgumentError, match=r"writes to 'place'.*an argument, or with `out=`"):
        tg.grad(doubled, compile=compile, out=place)(X)


FROZEN = np.ones(7)
FROZEN.flags.writeable = False
MISTAKES = {
    "shape": (np.empty(3), r"out has the shape \(3,\) .*, and the gradient has \(7,\)"),
    "dtype": (np.empty(7, np.float32), "out has .* float32, and the gradient has .* float64"),
    "structure": ((np.empty(7),), "out is put together otherwise than the gradient"),
    "read-only": (FROZEN, "out is ndarray, and has to be an array that can be written to"),
    "list": ([1.0], r"out\[0\] is float, and has to be an array"),
    "broadcast": (np.lib.stride_tricks.as_strided(np.empty(1), (7,), (0,)), "share memory"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_does_not_fit_is_an_error(name):
    place, message = MISTAKES[name]
    with pytest.raises(ArgumentError, match=message):
        tg.grad(loss, out=place)(X, 1.0)


def test_places_share_no_memory_with_each_other():
    x = np.empty(7)
    with pytest.raises(ArgumentError, match=r"out\[1\] shares memory with out\[0\]"):
        tg.grad(loss, (0, 1), out=(x, x[:1]))


def test_in_a_traced_function_it_is_refused():
    place = np.empty(7)
    slope = tg.grad(loss, out=place)
    with pytest.raises(TraceError, match=r"writes into arrays .out=., and is called in a function"):
        tg.jit(lambda x: slope(x, 1.0) * 2)(X)


def test_threads_have_arrays_of_their_own():
    wrong = []

    def work(k):
        place = np.empty(7)
        slope = tg.grad(loss, out=place)
        for n in range(100):
            slope(X * n, float(k))
            if not np.allclose(place, k * np.cos(X * n)):
                wrong.append((k, n))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_it_is_a_decorator_shows_its_tape_and_is_pickled():
    place = np.empty(7)

    @tg.grad(out=place)
    def slope(x):
        return np.sum(x**2)

    assert slope(X) is place
    assert "mul" in str(slope.tape)
    again = pickle.loads(pickle.dumps(tg.grad(loss, out=np.empty(7))))
    np.testing.assert_allclose(again(X, 1.0), np.cos(X))


def test_a_place_that_a_traced_function_makes_is_refused_as_such():
    def f(x):
        return np.sum(tg.grad(np.sum, out=np.zeros(3))(x))

    with pytest.raises(TraceError, match="is called in a function that is traced"):
        tg.grad(f)(np.ones(3))
