"""Arrays that a function reaches without being passed them."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import TraceError

X = np.array([1.0, 2.0])


def grad(f, **options):
    return tg.grad(f, compile="never", **options)


def test_a_captured_array_is_read_anew_at_each_call():
    weights = np.array([3.0, 4.0])
    df = grad(lambda x: (x * weights).sum())
    np.testing.assert_array_equal(df(X), [3.0, 4.0])
    weights[0] = 7.0
    np.testing.assert_array_equal(df(X), [7.0, 4.0])
    weights *= 2
    np.testing.assert_array_equal(df(X), [14.0, 8.0])
    assert df.cache_info().traces == 1


def test_a_captured_array_that_is_cast_or_indexed_is_read_anew_too():
    steps = np.array([1, 2])
    df = grad(lambda x: (x * steps).sum() + x[steps - 1].sum() * 0)
    np.testing.assert_array_equal(df(X), [1.0, 2.0])
    steps[:] = [2, 2]
    assert df(X)[0] == 2.0


def test_a_captured_array_decides_a_branch():
    flag = np.array([1.0])
    df = grad(lambda x: x * 2 if (x * flag)[0] > 0 else x)
    assert df(1.0) == 2.0
    flag[0] = -1.0
    assert df(1.0) == 1.0
    assert df.cache_info().traces == 2


def test_a_captured_array_is_captured_once():
    c = np.array([1.0, 2.0])
    _, made = tg.trace(lambda x: (x * c + c - c / x).sum(), X)
    assert len(made.captured) == 1
    assert made.captured[0] is c


def test_captured_arrays_of_integers_and_of_booleans():
    index, mask = np.array([1, 0, 1]), np.array([True, False])
    df = grad(lambda x: x[index].sum() + np.where(mask, x, 0.0).sum())
    np.testing.assert_array_equal(df(X), [2.0, 2.0])
    mask[:] = [False, True]
    index[:] = 0
    np.testing.assert_array_equal(df(X), [3.0, 1.0])


def test_globals_and_attributes_are_captured():
    class Model:
        scale = np.array([2.0, 3.0])

        def loss(self, x):
            return (x * self.scale * SHIFT).sum()

    model = Model()
    df = grad(model.loss)
    np.testing.assert_array_equal(df(X), [20.0, 30.0])
    model.scale[0] = 5.0
    np.testing.assert_array_equal(df(X), [50.0, 30.0])


SHIFT = np.array([10.0])


def test_a_captured_array_is_not_written_to():
    c = np.array([1.0, 2.0])
    tg.jit(lambda x: x + c, compile="never")(X)[0] = 100.0
    np.testing.assert_array_equal(c, [1.0, 2.0])


def test_an_array_made_inside_is_made_anew_only_by_a_new_trace():
    df = grad(lambda x: (x * np.arange(2.0)).sum())
    np.testing.assert_array_equal(df(X), [0.0, 1.0])
    np.testing.assert_array_equal(df(X), [0.0, 1.0])
    assert df.cache_info().traces == 1


def test_an_array_that_the_function_fills_while_it_is_in_use():
    """Each use sees what it holds then, at later calls too."""
    outside = np.zeros(2)

    def f(x, buffer=outside):
        total = 0.0
        for k in range(2):
            buffer[0] = k
            total = total + (x * buffer).sum()
        return total

    df = grad(f)
    for _ in range(2):
        np.testing.assert_array_equal(df(X), [1.0, 0.0])
        np.testing.assert_array_equal(outside, [1.0, 0.0])
        outside[0] = 7.0
    np.testing.assert_array_equal(grad(lambda x: f(x, np.zeros(2)))(X), [1.0, 0.0])


@pytest.mark.parametrize("again", [False, True])
def test_an_array_whose_shape_is_set_while_it_is_in_use(again):
    """One from outside is refused, since what it was would be lost; the function's own is not."""

    def used(x, rows):
        y = x[rows].sum()
        rows.shape = 4
        return y + ((x[rows] * np.arange(4.0)).sum() if again else 0.0)

    outside = np.array([[0, 1], [1, 0]])
    with pytest.raises(TraceError, match="was set in place while"):
        grad(lambda x: used(x, outside))(X)
    own = grad(lambda x: used(x, np.loadtxt(["0 1", "1 0"]).astype(int)))(X)
    np.testing.assert_array_equal(own[:2], [5.0, 5.0] if again else [2.0, 2.0])


def test_an_array_that_was_filled_before_its_use_is_fine():
    def f(x):
        buffer = np.zeros(2)
        for k in range(2):
            buffer[k] = k + 1
        return (x * buffer).sum()

    np.testing.assert_array_equal(grad(f)(X), [1.0, 2.0])
