"""Memory that arrays share: what NumPy shows in two of them, a trace shows, or refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from tapegrad import errors, value_and_grad

X = np.linspace(0.5, 2.0, 9)
WEIGHTS = np.arange(1.0, 19.0)

# Views of the array, copies of it, or one of the two as it lies in memory
FOLLOWED: list[Any] = [
    lambda a: np.array(a, copy=None, ndmin=3),
    lambda a: np.array(a, ndmin=3),
    lambda a: np.asarray(a.flat),
    lambda a: np.array(a.flat),
    lambda a: a.conj(),
    lambda a: a.T.conjugate(),
    lambda a: np.conj(a),
    lambda a: np.asarray(a, order="F"),
    lambda a: np.asarray(a.T, order="F"),
    lambda a: np.array(a.T, order="C", copy=None),
    lambda a: np.asarray(a, copy=True),
    lambda a: np.ascontiguousarray(a[:, 1]),
    lambda a: np.ascontiguousarray(a[1]),
    lambda a: np.asfortranarray(a[::2]),
    lambda a: np.reshape(a, 9, copy=True),
    lambda a: np.require(a),
    lambda a: np.require(a, float, "F"),
    lambda a: np.asarray_chkfinite(a),
    lambda a: a.T.reshape(9, order="F", copy=None),
]


@pytest.mark.every(2)
@pytest.mark.parametrize("share", FOLLOWED)
@pytest.mark.parametrize("order", ["C", "F"])
def test_views_and_copies(share, order):
    def first(x):  # before the array holds traced values
        a = np.zeros((3, 3), order=order)
        b = share(a)
        a[...] = x.reshape(3, 3)
        return np.sum(b * b * WEIGHTS[: b.size].reshape(b.shape)) + np.sum(a)

    def then(x):
        a = np.zeros((3, 3), order=order)
        a[...] = x.reshape(3, 3)
        b = share(a)
        a *= x[1]
        return np.sum(b * b * WEIGHTS[: b.size].reshape(b.shape)) + np.sum(a)

    def back(x):
        a = np.zeros((3, 3), order=order)
        b = share(a)
        if b.flags.writeable:
            b[...] = np.resize(x, b.shape)
        return np.sum(a * a * WEIGHTS[:9].reshape(3, 3)) + np.sum(b)

    for f in (
        (first, then)
        if order == "F" and "flat" in str(share.__code__.co_names)
        else (
            first,
            then,
            back,
        )
    ):
        value, slope = value_and_grad(f, compile="never")(X)
        assert value == pytest.approx(f(X), rel=1e-13)
        steps = [(f(X + e) - f(X - e)) / 2e-6 for e in 1e-6 * np.eye(9)]
        np.testing.assert_allclose(slope, steps, rtol=1e-6, atol=1e-6)


KEPT: list[Any] = [
    lambda a: sliding_window_view(a, 2, 0),
    lambda a: sliding_window_view(a[0], 2)[1:],
    lambda a: as_strided(a, (2, 2), (24, 8)),
    lambda a: np.asarray(a.data),
    lambda a: a.view(np.int64),
    lambda a: np.asarray(memoryview(a)),
]


@pytest.mark.parametrize("share", KEPT)
def test_views_that_are_no_tapes(share):
    """They are plain, and show what is written to the array. Traced values are refused it."""

    def f(x, fill=False):
        a = np.ones((3, 3))
        b = share(a)
        a[0] = 2.0
        found = np.sum(b[0] * x[0]) + np.sum(a * x[1])
        if fill:
            a[0] = x[:3]
        return found + np.sum(b[0] * 1.0)

    value, slope = value_and_grad(f)(X)
    assert value == f(X)
    assert slope[1] == 12.0 and not slope[2:].any()
    with pytest.raises(errors.ConversionError, match="or that code has which isn't traced"):
        value_and_grad(f)(X, True)


def test_what_cannot_be_a_view():
    def f(x):
        a = np.zeros((3, 3), order="F")
        a[...] = x.reshape(3, 3)
        return np.sum(np.reshape(a, 9, copy=False))

    with pytest.raises(ValueError, match="avoid creating a copy"):
        value_and_grad(f)(X)

    def imaginary(x):
        x.imag[...] = 1.0
        return np.sum(x)

    with pytest.raises(ValueError, match="read-only"):
        value_and_grad(imaginary)(X)


def test_what_lies_elsewhere_is_plain():
    """Where an object hands out its own array, writes reach that one."""
    held = np.ones(3)

    class Table:
        def __array__(self, dtype=None, copy=None):
            return held

    def f(x, fill=False):
        table = np.asarray(Table())
        if fill:
            table[0] = x[0]
        return np.sum(table * x[:3])

    assert value_and_grad(f)(X)[0] == f(X)
    value, slope = value_and_grad(f)(X, True)
    assert value == f(X, True) and held[0] == X[0]
    np.testing.assert_allclose(slope[:3], [2 * X[0], 1.0, 1.0])


def test_what_is_made_read_only():
    def f(x):
        a = np.zeros(3)
        a.setflags(write=False)
        a[0] = x[0]
        return np.sum(a)

    with pytest.raises(ValueError, match="read-only"):
        value_and_grad(f)(X)


def _written_all_the_same(a, x):
    try:
        a[0] = x[1]
    except ValueError:
        return np.sum(a * x)
    return np.sum(x)


LOCKED: list[Any] = [
    lambda a, x: a * x,
    lambda a, x: a.__setitem__(0, 1.0),
    lambda a, x: a[1:].__setitem__(0, x[0]),
    lambda a, x: a.__iadd__(x),
    lambda a, x: np.add(a, x, out=a),
    lambda a, x: a.sort(),
    lambda a, x: a.fill(2.0),
    lambda a, x: np.copyto(a, x),
    lambda a, x: a.__setitem__([0, 1], x[:2]),
    lambda a, x: a.__setitem__(a > 1, 0.0),
    lambda a, x: (a.setflags(write=True), a.__setitem__(0, x[1]), a * x)[2],
    lambda a, x: a[0] * x if not (a.flags.writeable or a[1:].flags["CARRAY"]) else x,
    lambda a, x: (a + 1j).real * x,
    lambda a, x: np.sum([np.sin(a) * x[i] for i in range(3)]),
    _written_all_the_same,
]


@pytest.mark.every(3)
@pytest.mark.parametrize("made", [lambda x: x * 2, lambda x: np.ones(9)])
@pytest.mark.parametrize("use", LOCKED)
def test_arrays_that_the_function_locks(use, made):
    def f(x):
        a = made(x)
        a.flags.writeable = False
        found = use(a, x)
        return np.sum(a if found is None else found)

    try:
        expected = f(X)
    except ValueError as error:
        with pytest.raises(ValueError, match=str(error)):
            value_and_grad(f)(X)
        return
    np.testing.assert_allclose(value_and_grad(f)(X)[0], expected)


def test_the_bytes_of_an_array():
    def f(x):
        return np.sum(x) * len(bytes(np.arange(3)))

    assert value_and_grad(f)(X)[0] == f(X)
    with pytest.raises(errors.UnsupportedError, match="tobytes"):
        value_and_grad(lambda x, n: np.sum(x) * len(bytes(n)))(X, np.arange(3))


def test_methods_of_a_view_of_what_has_been_filled():
    def f(x):
        a = np.linspace(0.0, 1.0, 9)
        views = [a.view() for _ in range(4)]
        a[...] = x
        found = [views[0].copy(), views[1].astype(float), views[2].cumsum(), views[3].repeat(1)]
        return sum(np.sum(y * WEIGHTS[:9]) for y in found)

    value, slope = value_and_grad(f)(X)
    assert value == pytest.approx(f(X), rel=1e-13)
    np.testing.assert_allclose(slope, 3 * WEIGHTS[:9] + np.cumsum(WEIGHTS[8::-1])[::-1])
