"""Arrays of objects that are traced numbers: made, computed with, and made arrays of numbers."""

from __future__ import annotations

import numpy as np
import pytest
from tests.fuzz.differences import slope

import tapegrad
from tapegrad.errors import LeakedTracerError

X = np.array([1.0, 2.0, 3.0])


def made(x):
    a = np.array([[x[0], 2.0], [x[1], x[2]]], dtype=object)
    b = np.array(a.ravel(), dtype=float)
    return np.sum(b * b) + a[0, 1] // 3


def of_unequal_lists(x):
    a = np.array([[x[0]], [x[1], x[2]]], dtype=object)
    return a[0][0] * a[1][1] + len(a[1])


def of_arrays(x):
    return sum(v * v for row in np.array([x, x * 2], dtype=object) for v in row)


def of_arrays_of_several_shapes(x):
    a = np.array([x[:1] * 2, x[0].reshape(()), 3.0, x[1:]], dtype=object)
    return np.sum(a[0] * a[1]) + a[2] * np.sum(a[3]) + np.array([1.0, x.sum()], object)[1]


def beside_arrays(x):
    a = np.array([x[0], x[1], 2], dtype=object)
    return (a * x - x / a[::-1]).sum() + np.dot(a, a) + np.add.outer(x, a)[1, 1]


def written(x):
    a = np.array([x[0], x[1]], object)
    a += x[:2]
    a[0] *= 3
    return np.asarray(a, np.float64).sum()


def converted(x):
    a = x.astype(object).reshape(3, 1) * x
    return np.sum(np.sin(a.astype(float))) + np.array(a.tolist(), dtype=float)[1, 2]


def in_rounds(x):
    a = np.array([x[0], x[1]], dtype=object)
    for _ in range(20):
        a = a * x[:2] * 0.3 + np.array([x[1], 1.0], dtype=object)
    return np.array(a, dtype=float).sum()


def scanned(x):
    def step(c, y):
        a = np.array([c, y], dtype=object)
        return (a * a).sum() * 0.1, a[0] * a[1]

    c, ys = tapegrad.scan(step, x[0], x)
    return c + np.sum(ys)


FUNCTIONS = [
    *(
        made,
        of_unequal_lists,
        of_arrays,
        of_arrays_of_several_shapes,
        beside_arrays,
        written,
        converted,
        in_rounds,
        scanned,
    )
]


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_numbers_in_arrays_of_objects_are_followed(f):
    derived = tapegrad.value_and_grad(f, compile="never")
    for k in range(3):
        x, v = X + 0.1 * k, np.array([0.5, -1.0, 0.25])
        value, gradient = derived(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-14)
        wanted = slope(lambda h, x=x, v=v: float(f(x + h * v)), 1e-15)
        np.testing.assert_allclose(gradient @ v, wanted.value, rtol=1e-8)
    assert tapegrad.cache_info(f).traces == 1


def test_objects_have_the_types_that_numpy_gives_them():
    """Numbers in a list stay what they are; those of an array become Python's."""
    for f in (
        lambda x: np.array([x[0], x[1]], dtype=object).sum() / 3,
        lambda x: x.astype(object)[0] / 3 * np.float32(1.1),
        lambda x: np.array([x, x], dtype=object)[0, 1] / 3,
    ):
        x = np.array([1.1, 2.3], np.float32)
        found, plain = tapegrad.jit(f, compile="never")(x), f(x)
        assert found == plain and np.result_type(found) == np.result_type(plain)


def left_outside(x):
    kept["a"] = a = np.array([x[0], 2.0], dtype=object)
    return a[0] * a[1]


def filled_outside(x):
    kept["a"] = [a := np.empty(2, dtype=object)]
    a[0] = x[0]
    return a[0] * 2


def returned(x):
    return np.sum(x), np.array([x[0], 2.0], dtype=object)


kept: dict = {}


@pytest.mark.parametrize("f", [left_outside, filled_outside, returned])
def test_they_are_searched_for_traced_values_that_are_left(f):
    with pytest.raises(LeakedTracerError):
        tapegrad.jit(f, compile="never")(X)


table = np.array([1.0, 2.0, 3.0], dtype=object)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x * table).sum(),
        lambda x: (np.array([x[0], x[1], 2.0], dtype=object) * table).sum(),
        lambda x: np.sum(x * table.astype(float)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*was traced for three calls")
def test_those_of_the_outside_are_read_at_each_call(f):
    derived = tapegrad.jit(f, compile="never")
    for k in range(5):
        table[0], table[2] = 1.0 + k, 3.0 - k
        np.testing.assert_allclose(derived(X), f(X))


class Pose:
    """A matrix that code in C finds, and of which NumPy's arrays leave operators to it."""

    __array_ufunc__ = None

    def __init__(self, matrix):
        self.data = [matrix]

    @property
    def __array_interface__(self):
        return self.data[0].__array_interface__

    def __mul__(self, x):
        return self.data[0] @ x

    def __rmul__(self, x):
        return x @ self.data[0]


pose = Pose(np.diag([1.0, 2.0, 3.0]))


def test_a_property_that_says_where_an_objects_memory_is():
    """What it holds is compared, so the function isn't traced at each call."""
    derived = tapegrad.jit(lambda x: (pose * x) @ (x * pose) + np.sum(np.asarray(pose)))
    for k in range(6):
        pose.data[0][0, 0] = 1.0 + k // 3
        assert derived(X) == (pose * X) @ (X * pose) + np.sum(np.asarray(pose))
    assert derived.cache_info().traces <= 2


def test_what_the_interpreter_says_of_itself_never_changes():
    def f(x, y=2.0):
        import sys

        names = f.__code__.co_varnames  # another tuple at each look-up
        rest = f.__defaults__
        rest += names[:1]
        assert rest == (2.0, "x")
        return x * (2.0 if sys.version_info >= (3, 0) and sys.float_info.max > 1e300 else 1.0)

    derived = tapegrad.jit(f, compile="never")
    assert [derived(1.0 * k) for k in range(5)] == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert derived.cache_info().traces == 1
