"""Writing in place: the values are NumPy's, through all views, and no argument is written to."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from tests.frontend.check import builtin_kind, check, normal, source_line

from tapegrad import grad, trace, value_and_grad
from tapegrad.errors import UnsupportedError

X = normal(4, 5)
Y = normal(4, 5, seed=1)
I = np.array([2, 0, 2])


def written(x: Any, *steps: Any) -> Any:
    """`x` after each step was done to it: the tables' lambdas can't hold statements."""
    for step in steps:
        step(x)
    return x


def put(index: Any, value: Any) -> Any:
    """The statement `x[index] = value`."""
    return lambda x: operator.setitem(x, index, value)


def add(index: Any, value: Any) -> Any:
    """The statement `x[index] += value`."""

    def step(x: Any) -> None:
        x[index] += value

    return step


ALL = slice(None)

CASES = [
    lambda x, y: written(x * 1, put(0, 1.0)),
    lambda x, y: written(x * 1, put(0, y[1])),
    lambda x, y: written(x * 1, put((1, 2), y[0, 0])),
    lambda x, y: written(x * 1, put(ALL, y)),
    lambda x, y: written(x * 1, put(Ellipsis, y[0])),
    lambda x, y: written(x * 1, put(Ellipsis, 2)),
    lambda x, y: written(x * 1, put((ALL, 1), y[:, 0])),
    lambda x, y: written(x * 1, put(slice(1, 3), y[:2])),
    lambda x, y: written(x * 1, put(slice(None, None, 2), y[:2])),
    lambda x, y: written(x * 1, put(slice(None, None, -1), y)),
    lambda x, y: written(x * 1, put((slice(1, None), slice(0, 2)), y[0, :2])),
    lambda x, y: written(x * 1, put((ALL, None, 0), y[:, :1])),
    lambda x, y: written(x * 1, put((0, None), y[:1])),
    lambda x, y: written(x * 1, put(0, y[:1])),
    lambda x, y: written(x * 1, put(slice(0, 0), 3.0)),
    lambda x, y: written(x * 1, put(0, [1.0, 2.0, 3.0, 4.0, 5.0])),
    lambda x, y: written(x * 1, put((0, slice(0, 2)), [y[0, 0], 2.0])),
    lambda x, y: written(x * 1, put(0, np.arange(5))),
    lambda x, y: written(x * 1, put(0, np.arange(5, dtype=np.float32))),
    lambda x, y: written(x * 1, put(I, 1.0)),
    lambda x, y: written(x * 1, put(I, y[0])),
    lambda x, y: written(x * 1, put(I, y[:3])),
    lambda x, y: written(x * 1, put((I, I), y[0, :3])),
    lambda x, y: written(x * 1, put((ALL, I), y[:, :3])),
    lambda x, y: written(x * 1, put((I, ALL), y[:3])),
    lambda x, y: written(x * 1, put(([0, 1], [1, 0]), y[0, :2])),
    lambda x, y: written(x * 1, put((1, I), y[0, :3])),
    lambda x, y: written(x * 1, put((slice(0, 2), I), y[:2, :3])),
    lambda x, y: written(x * 1, put(np.ix_([0, 2], [1, 3]), y[:2, :2])),
    lambda x, y: written(x * 1, put(np.array([True, False, True, False]), y[0])),
    lambda x, y: written(x * 1, put(np.array([True, False, True, False]), y[:2])),
    lambda x, y: written(x * 1, put(x > 0, 0.0)),
    lambda x, y: written(x * 1, put(x > 0, y[0, 0])),
    lambda x, y: written(x * 1, put(x > 0, y[x > 0])),
    lambda x, y: written(x * 1, put(X > 0, y[X > 0] * 2)),
    lambda x, y: written(x * 1, put((ALL, X[0] > 0), 3.0)),
    lambda x, y: written(x * 1, put((X[:, 0] > 0, 1), y[0, 0])),
    lambda x, y: written(x * 1, add(0, y[1])),
    lambda x, y: written(x * 1, add((ALL, 1), 3.0)),
    lambda x, y: written(x * 1, add(I, y[:3])),
    lambda x, y: written(x * 1, add(x > 0, 1.0)),
    lambda x, y: written(x * 1, add(Ellipsis, y)),
    lambda x, y: written(x * 1, put(0, y[0]), put(1, y[1]), add(0, x[1])),
    lambda x, y: written(x, put(0, y[0])),
    lambda x, y: written(x, lambda t: t.fill(2.0)) + y,
    lambda x, y: written(x * 1, lambda t: t.fill(y[0, 0])),
    lambda x, y: written(x * 1, lambda t: t[1].fill(y[0, 0])),
    lambda x, y: written(x * 1, lambda t: t.put([0, 7, -1], [1.0, 2.0, 3.0])),
    lambda x, y: written(x * 1, lambda t: np.put(t, [0, 7], y[0, :2])),
    lambda x, y: written((x * 1).T, lambda t: np.put(t, [0, 7], y[0, :2])),
    lambda x, y: written(x * 1, lambda t: np.copyto(t, y)),
    lambda x, y: written(x * 1, lambda t: np.copyto(t, y[0], where=t > 0)),
    lambda x, y: written(x * 1, lambda t: np.copyto(t, 1.5)),
    lambda x, y: written(x * 1, lambda t: np.copyto(t[0], y[1])),
    lambda x, y: written(x * 1, lambda t: np.putmask(t, t > 0, y)),
    lambda x, y: written(x * 1, lambda t: np.putmask(t, t > 0, 0.5)),
    lambda x, y: written(x * 1, lambda t: np.place(t, X > 0, [1.0, 2.0])),
    lambda x, y: written(x * 1, lambda t: np.fill_diagonal(t, y[0, 0])),
    lambda x, y: written(x * 1, lambda t: np.fill_diagonal(t, [1.0, 2.0, 3.0, 4.0])),
    lambda x, y: written(x * 1, lambda t: np.put_along_axis(t, np.argmax(t, 1)[:, None], 0.0, 1)),
    lambda x, y: written(x * 1, lambda t: np.add.at(t, I, y[:3])),
    lambda x, y: written(x * 1, lambda t: np.add.at(t, I, 1.0)),
    lambda x, y: written(x * 1, lambda t: np.add.at(t, (I, I), y[0, :3])),
    lambda x, y: written(x * 1, lambda t: np.add.at(t, (ALL, I), y[:, :3])),
    lambda x, y: written(x * 1, lambda t: np.add.at(t, 0, y[1])),
    lambda x, y: written(x * 1, lambda t: np.add.at(t, (slice(0, 2), 1), y[0, 0])),
    lambda x, y: written(x * 1, lambda t: np.add.at(t, [0, 0], [[1.0], [2.0]])),
    lambda x, y: written(x * 1, lambda t: np.add.at(t[1:], I, y[:3])),
    lambda x, y: written(x * 1, lambda t: np.subtract.at(t, I, y[:3])),
    lambda x, y: written(x * 1, lambda t: np.add(t, y, out=t)),
    lambda x, y: written(x * 1, lambda t: np.multiply(t[2:], y[0], out=t[:2])),
    lambda x, y: written(x * 1, lambda t: np.exp(y[0], out=t[0])),
    lambda x, y: written(x * 1, lambda t: np.multiply(t, y, out=t, where=t > 0)),
    lambda x, y: written(x * 1, lambda t: np.sum(y, axis=0, out=t[1])),
    lambda x, y: written(x * 1, lambda t: np.matmul(y, y.T, out=t[:, :4])),
    lambda x, y: written(x * 1, lambda t: np.cumsum(t, axis=0, out=t)),
    lambda x, y: written(x * 1, lambda t: np.clip(t, 0, 1, out=t)),
    lambda x, y: written(x * 1, lambda t: np.nan_to_num(t, copy=False)),
    lambda x, y: written(x * 1, lambda t: t.sort()),
    lambda x, y: written(x * 1, lambda t: t.sort(axis=0)),
    lambda x, y: written(x * 1, lambda t: t.T.__setitem__(0, y[:, 1])),
    lambda x, y: written(x * 1, lambda t: t[1:].__setitem__(0, y[0])),
    lambda x, y: written(x * 1, lambda t: t[1:][:, ::-1][0].__setitem__(slice(0, 2), y[0, :2])),
    lambda x, y: written(x * 1, lambda t: t.reshape(-1).__setitem__(slice(3, 9), y[0, 0])),
    lambda x, y: written(x * 1, lambda t: t.reshape(2, 10).__setitem__((1, I), y[0, :3])),
    lambda x, y: written(x * 1, lambda t: t.ravel().__setitem__(I, y[0, :3])),
    lambda x, y: written(x * 1, lambda t: t.flatten().__setitem__(I, y[0, :3])),
    lambda x, y: written(x * 1, lambda t: t.flat.__setitem__(slice(3, 5), y[0, :2])),
    lambda x, y: written(x * 1, lambda t: t.T.flat.__setitem__(1, y[0, 0])),
    lambda x, y: written(x * 1, lambda t: t[:, None].__setitem__((0, 0), y[0])),
    lambda x, y: written(x * 1, lambda t: np.expand_dims(t, 0).__setitem__((0, 1), y[0])),
    lambda x, y: written(x * 1, lambda t: np.squeeze(t[:1]).__setitem__(1, y[0, 0])),
    lambda x, y: written(x * 1, lambda t: t.swapaxes(0, 1).__setitem__(1, y[:, 0])),
    lambda x, y: written(x * 1, lambda t: np.flip(t).__setitem__(0, y[0])),
    lambda x, y: written(x * 1, lambda t: t[0, ...].__setitem__(Ellipsis, y[0])),
    lambda x, y: written(x * 1, lambda t: t[0, 0, ...].__setitem__(Ellipsis, y[0, 0])),
    lambda x, y: written(x * 1, lambda t: t.view().__setitem__(0, y[0])),
    lambda x, y: written(x * 1, lambda t: t[[0, 1]].__setitem__(0, y[0])),
    lambda x, y: written(x * 1, lambda t: t.T[1:].__iadd__(y.T[1:])),
    lambda x, y: written(x * 1, lambda t: t.__setitem__([0, 1], t[[1, 0]])),
    lambda x, y: written(x * 1, lambda t: t.__setitem__(slice(1, None), t[:-1])),
    lambda x, y: written(x * 1, lambda t: t.__setitem__(slice(None, -1), t[1:])),
    lambda x, y: written(np.zeros_like(x), put(0, y[0]), add(1, y[1] ** 2)),
    lambda x, y: written(np.zeros_like(x, shape=7), put(slice(0, 5), y[0])),
    lambda x, y: written(np.zeros_like(x[0, 0]), lambda t: t.__setitem__((), y[0, 0])),
    lambda x, y: written(np.zeros_like(x[0, 0]), lambda t: t.__iadd__(y[0, 0])),
    lambda x, y: written(np.copy(x), put(0, y[0])),
    lambda x, y: written(x.astype(np.float32), put(0, y[0])),
    lambda x, y: written(x.astype(float), put(0, y[0])) + x,
    lambda x, y: written(abs(x), put(0, y[0])) + x,
    lambda x, y: written(+x, put(0, y[0])) + x,
]


@pytest.mark.every(6)
@pytest.mark.parametrize("f", CASES, ids=source_line)
def test_writing(f: Any) -> None:
    check(f, X, Y)


@pytest.mark.every(16)
@pytest.mark.parametrize("f", CASES, ids=source_line)
def test_layouts(f: Any) -> None:
    check(f, normal(5, 4).T, Y[:, ::-1])
    check(f, X.astype(np.float32), Y.astype(np.float32))


def swap(x: Any) -> Any:
    """The well-known trap: the right-hand sides are views, so both rows become the second."""
    y = x * 1
    y[0], y[1] = y[1], y[0]
    return y


def swap_with_copies(x: Any) -> Any:
    y = x * 1
    y[0], y[1] = y[1].copy(), y[0].copy()
    return y


def elements_swapped(x: Any) -> Any:
    y = x * 1
    y[0, 0], y[1, 1] = y[1, 1], y[0, 0]
    return y


def view_read_after_write(x: Any) -> Any:
    y = x * 1
    row, column = y[1], y[:, 2]
    y[1, 2] = 7.0
    y *= 2
    return row * 3, column**2, y


def base_read_after_write_through_views(x: Any) -> Any:
    y = x * 1
    inner = y[1:, ::2].T[::-1]
    inner[0] = x[0, :3]
    inner += 1
    inner[inner > 1] = 0
    return y, inner, y[2]


def a_copy_does_not_follow(x: Any) -> Any:
    y = x * 1
    z = y.copy()
    picked = y[[0, 1]]
    y[0] = 0
    return y, z, picked


def old_values_are_kept(x: Any) -> Any:
    y = x * 1
    squared = y * y
    scalar = y[0, 0]
    y[0, 0] = 100.0
    return squared, scalar, y


def filled_in_a_loop(x: Any) -> Any:
    out = np.zeros_like(x)
    out[0] = x[0]
    for k in range(1, len(x)):
        out[k] = 0.5 * out[k - 1] + x[k]
    return out


def accumulated_in_place(x: Any) -> Any:
    total = np.zeros_like(x[0])
    for row in x:
        total += row**2
    total /= len(x)
    return total


def gauss_seidel(x: Any) -> Any:
    u = x * 1
    for _ in range(2):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def bubble_sort(x: Any) -> Any:
    y = x[0].copy()
    for i in range(len(y)):
        for j in range(len(y) - 1 - i):
            if y[j] > y[j + 1]:
                y[j], y[j + 1] = y[j + 1], y[j]
    return y


def written_in_another_function(x: Any) -> Any:
    def write(a: Any) -> None:
        a[0] *= 2
        a[1] = a[0] + 1

    y = x + 0
    write(y)
    write(y[1:])
    return y


def argument_written(x: Any) -> Any:
    x[0] = 0
    x *= 2
    return x


def aliased_names(x: Any) -> Any:
    y = x
    y += 1
    return x * y


def in_place_on_a_scalar(x: Any) -> Any:
    s = x[0, 0]
    t = s
    s += 1
    s *= 3
    return s, t


def out_twice(x: Any) -> Any:
    buffer = np.empty_like(x)
    np.exp(x, out=buffer)
    first = buffer * 1
    np.sin(buffer, out=buffer)
    return first, buffer


PROGRAMS = [
    swap,
    swap_with_copies,
    elements_swapped,
    view_read_after_write,
    base_read_after_write_through_views,
    a_copy_does_not_follow,
    old_values_are_kept,
    filled_in_a_loop,
    accumulated_in_place,
    gauss_seidel,
    bubble_sort,
    written_in_another_function,
    argument_written,
    aliased_names,
    in_place_on_a_scalar,
    out_twice,
]


@pytest.mark.every(8)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_program(f: Any) -> None:
    check(f, X)
    check(f, normal(5, 4).T)
    check(f, X.astype(np.float32))


def test_integers_and_booleans_are_written_too() -> None:
    def f(x: Any) -> Any:
        n = np.zeros_like(x, dtype=int)
        n[x > 0] = 3
        n[0] += 2
        flags = x > 0
        flags[1] = True
        flags |= x < -1
        return n, flags, n * x

    check(f, X)


READ_ONLY = [
    lambda x: np.broadcast_to(x[0], (3, 5)).__setitem__(0, 1.0),
    lambda x: np.diagonal(x).__setitem__(0, 1.0),
    lambda x: np.broadcast_to(x[0], (3, 5)).__iadd__(1.0),
    lambda x: written(x[0, 0], put(0, 1.0)),
    lambda x: x.__setitem__(0, np.ones(4)),
    lambda x: x.__setitem__(ALL, np.ones((2, 4, 5))),
    lambda x: x.__setitem__(9, 1.0),
    lambda x: x.__setitem__([0, 9], 1.0),
    lambda x: (x > 0).__iadd__(0.5),
    lambda x: np.ones_like(x, dtype=int).__itruediv__(2),
    lambda x: np.maximum.at(x[0, 0], 0, 1.0),
    lambda x: np.add.at(x[0, 0], 0, 1.0),
    lambda x: np.add.at([*x[0, 0]], 0, x[0, 0]),
]


@pytest.mark.parametrize("f", READ_ONLY, ids=source_line)
def test_refused_as_in_numpy(f: Any) -> None:
    with pytest.raises(Exception) as numpys:
        f(X.copy())
    with pytest.raises(builtin_kind(numpys.type)):
        trace(f, X)


def test_the_callers_array_is_never_written() -> None:
    for x in (X.copy(), np.asfortranarray(X), X[:, ::-1]):
        before = x.copy()
        x.setflags(write=False)

        def f(a: Any) -> Any:
            a[0] = a[1] * 2
            a.T[1] += 3
            a *= a
            return np.sum(a)

        g = grad(f, compile="never")
        first = g(x)
        np.testing.assert_array_equal(first, g(x))
        np.testing.assert_array_equal(x, before)
        trace(f, x)
        np.testing.assert_array_equal(x, before)


def test_results_alias_neither_arguments_nor_each_other() -> None:
    g = grad(lambda x, y: np.sum(x + y), argnums=(0, 1), compile="never")
    a, b = g(X, Y)
    assert not np.shares_memory(a, b)
    a[...] = 9
    np.testing.assert_array_equal(g(X, Y)[1], np.ones((4, 5)))


W = np.arange(6.0).reshape(2, 3)


def filled_before_and_after(x):
    y = np.zeros(6)
    y[:2] = x
    y.shape = (2, 3)
    y[1, 1] = x[0] ** 2
    return np.sum(y * W)


def with_views(x):
    y = np.zeros(6)
    v = y[1:4]
    y.shape = (2, 3)
    v[:] = x[0]
    y[0, 0] = x[1]
    return np.sum(y**2 * W) + np.sum(v**3)


def a_view_of_another(x):
    y = np.concatenate([x, x * 2, x**2])
    v = y[:4]
    v.shape = (2, 2)
    v[0] *= 3
    return np.sum(y * W.ravel()) + v[1, 1]


def again_and_again(x):
    y = np.concatenate([x, x * 2, x**2])
    for i in range(6):
        y.shape = (2, 3) if i % 2 else (3, -1)
        y[0, 0] += x[0]
    z = y.T
    z[0] = x[0]
    y.shape = 6
    return np.sum(y * W.ravel()) + np.sum(z[1])


def resized(x):
    y = np.zeros(0)
    z = np.zeros(1, complex)
    for k in range(4):
        y.resize(y.size + 1, refcheck=False)
        y[k] = x[0] * k
        z.resize(z.size + 1, refcheck=False)
        z[k + 1] = z[k] + 1j * x[1] ** k
    w = np.outer(x, x)
    w.resize(3)
    return np.sum(y**2) + np.sum(np.abs(z) ** 2) + w[2]


SHAPED = [filled_before_and_after, with_views, a_view_of_another, again_and_again, resized]


@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("f", SHAPED)
def test_a_shape_that_is_set(f, compile):
    """in place, of arrays that the function has made"""
    g = value_and_grad(f, compile=compile)
    for x in (np.array([1.3, 0.7]), np.array([-0.4, 2.1])):
        value, found = g(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-13)
        moved = [(f(x + e) - f(x - e)) / 2e-6 for e in 1e-6 * np.eye(2)]
        np.testing.assert_allclose(found, moved, rtol=1e-6)
    assert g.cache_info().traces == 1


def test_shapes_that_are_not_set():
    def of_an_argument(x):
        x.shape = (2, 1)
        return np.sum(x)

    def with_a_copy(x):
        y = np.outer(x, x).T
        y.shape = 4
        return np.sum(y)

    with pytest.raises(UnsupportedError, match=r"set in place .*arrays alone that the function"):
        grad(of_an_argument)(np.ones(2))

    def resized_with_views(x):
        y = 2 * x
        view = y[:1]
        y.resize(3)
        return np.sum(y) + view

    with pytest.raises(ValueError, match="does not own its data"):
        grad(resized_with_views)(np.ones(2))
    with pytest.raises(AttributeError, match="Incompatible shape for in-place modification"):
        grad(with_a_copy)(np.ones(2))
