"""Arrays that are made of single numbers: of lists, one by one and by operators; of iterators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapegrad import jit, value_and_grad
from tapegrad.errors import ConversionError, UnsupportedError


def outcome(f, *args):
    """What a function gives, or the class of its error."""
    try:
        return np.asarray(f(*args))
    except Exception as error:
        return type(error)


def check(f, *calls):
    played = jit(f, compile="never")
    for args in calls:
        found, wanted = outcome(played, *args), outcome(f, *args)
        if isinstance(wanted, type):
            assert found is wanted
        else:
            np.testing.assert_array_equal(found, wanted)
            assert found.dtype == wanted.dtype


def caught(x, p):
    try:
        return np.array([x[0], p], dtype=int) * 1.0
    except (ValueError, OverflowError):
        return x * 2


def looped(x, p):
    total = 0.0
    for k in range(30):
        places = np.array([x[k % 2] * k / 10, k], dtype=int)
        total += places[0] * p + places[1]
    return total


INTEGERS: list[Any] = [
    *(caught, looped),
    lambda x, p: np.array([x[0], 2], dtype=int) * p,
    lambda x, p: np.asarray([p, 2], np.int32) * x,
    lambda x, p: np.array([x[0], 1.5], dtype=np.uint8) * p,
    lambda x, p: np.array([[x[0], 1.5], [p, 3]], dtype=np.int8) * p,
    lambda x, p: np.array(p, dtype=np.int16) * x,
    lambda x, p: np.array([x, x], dtype=int) * p,
    lambda x, p: np.int32(p) * x,
]


@pytest.mark.parametrize("f", INTEGERS)
def test_floats_become_integers_one_by_one(f):
    """NaN and what the type doesn't hold are errors, at each call; in an array they aren't."""
    first = np.array([0.3, -1.2]), 0.7
    others = (
        (np.array([np.nan, 1.0]), np.nan),
        (np.array([np.inf, 1.0]), -np.inf),
        (np.array([1e30, 1.0]), 1e300),
        (np.array([-(2.0**63), 1e10]), 70000.5),
        (np.array([-5.5, 300.0]), -200.5),
    )
    with np.errstate(all="ignore"):
        check(f, first, *others, first)


def left_over(x):
    rest = (2 * v for v in x)
    return np.fromiter(rest, float, 1), next(rest)


ITERATORS: list[Any] = [
    lambda x: np.fromiter((2 * v for v in x), float, 2),
    lambda x: np.fromiter((2 * v for v in x), dtype=float, count=len(x)),
    lambda x: np.fromiter([2 * v for v in x], "f8", -1),
    lambda x: np.fromiter([2 * v for v in x], "f8", 9),
    lambda x: np.fromiter([2 * v for v in x], "f8", 0).sum() + x,
    lambda x: np.fromiter([1.0, 2.0], float, 2) * x[0],
    lambda x: np.fromiter([1.0, 2.0], float, 9) * x[0],
    lambda x: left_over(x)[0] * left_over(x)[1],
]


@pytest.mark.parametrize("f", ITERATORS)
def test_so_many_numbers_of_an_iterator(f):
    check(f, (np.array([0.5, 1.5]),), (np.array([2.5, -1.5, 3.0]),))


def test_the_slope_of_numbers_of_an_iterator():
    f = value_and_grad(lambda x: np.sum(np.fromiter((v**2 for v in x), float, 2)))
    np.testing.assert_allclose(f(np.array([1.0, 2.0, 3.0]))[1], [2.0, 4.0, 0.0])


PLAIN = np.array([[2.0, 3.0], [0.5, -1.0]])


def rotated(x):
    total = 0.0
    for k in range(20):
        total += np.sum(PLAIN @ [np.sin(k * x[0]), x[1]])
    return total


OPERATORS: list[Any] = [
    rotated,
    lambda x: np.sum(PLAIN @ [x[0], x[1]]) + np.sum([x[0], 1.0] @ PLAIN),
    lambda x: np.sum((PLAIN - (np.sin(x[0]), x[1])) ** 2),
    lambda x: np.sum(PLAIN / [[x[0], x[1]], [1.0, x[0]]]),
    lambda x: np.sum(([x[0], 1.5] > PLAIN) * x),
]


@pytest.mark.parametrize("f", OPERATORS)
def test_a_list_beside_a_plain_array_is_an_array(f):
    """An operator makes one of it, whatever the array holds at a call."""
    derivative, step = value_and_grad(f, compile="never"), np.eye(2) * 1e-6
    for k in range(4):
        PLAIN[0] = 2.0 + k, 3.0
        x = np.array([1.3 + k, 2.2])
        value, slope = derivative(x)
        assert value == pytest.approx(f(x), rel=1e-13)
        slopes = [(f(x + e) - f(x - e)) / 2e-6 for e in step]
        np.testing.assert_allclose(slope, slopes, rtol=1e-6, atol=1e-6)
    assert derivative.cache_info().traces == 1


def test_numpys_own_error_of_a_list_beside_a_plain_array():
    with pytest.raises(ValueError, match="could not be broadcast"):
        jit(lambda x: PLAIN * [x[0], x[1], 1.0])(np.ones(2))


ROWS = np.arange(12.0).reshape(3, 4) + 1.0


@pytest.mark.parametrize(
    "split",
    [
        lambda rows: np.split(rows, [1, 3], axis=1),
        lambda rows: np.array_split(rows, 3, axis=1),
        lambda rows: np.split(rows, 2, axis=1),
        lambda rows: np.split(rows, 3),
        lambda rows: np.hsplit(rows, 2),
        lambda rows: np.unstack(rows),
        lambda rows: np.take_along_axis(rows, np.array([[0], [1], [0]]), 1),
    ],
)
def test_lists_that_numpy_asks_for_what_arrays_have(split):
    """It takes a list's length for that of any axis, or refuses it: no other parts are returned."""
    rows = [list(row) for row in ROWS]
    plain: Any = None
    try:
        split(rows)
    except AttributeError as error:
        plain = type(error)
    with pytest.raises((plain or UnsupportedError, ConversionError)):
        jit(lambda x: split([list(row) for row in x]), compile="never")(ROWS)


def test_lists_that_are_split():
    for split in (
        lambda rows: np.array_split(rows, 2),
        lambda rows: np.split(rows, [1, 2]),
        lambda rows: np.split(ary=rows, indices_or_sections=[2]),
    ):
        found = jit(lambda x, split=split: split([list(row) for row in x]), compile="never")(ROWS)
        for x, y in zip(found, split([list(row) for row in ROWS]), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: np.nan_to_num([a, b], copy=False),
        lambda a, b: np.exp([a, b], [a, b]),
        lambda a, b: np.add([a, b], [b, a], [0.0, 0.0]),
        lambda a, b: np.common_type([a, b]),
        lambda a, b: np.tril_indices_from([[a, b], [b, a]]),
        lambda a, b: np.diag_indices_from([[a, b], [b, a]]),
        lambda a, b: np.rollaxis([[a, b], [b, a]], 1),
    ],
)
def test_what_numpy_refuses_of_lists(f):
    assert outcome(jit(f, compile="never"), 1.5, 2.5) == outcome(f, 1.5, 2.5)


def test_a_list_that_comes_back_as_one():
    with pytest.raises(UnsupportedError, match="trim_zeros of a list, where"):
        jit(lambda a, b: np.trim_zeros([0.0, a, b]), compile="never")(1.5, 2.5)


@pytest.mark.parametrize("rows", [np.ones((2, 2)), np.arange(6.0).reshape(3, 2)])
def test_the_histogram_of_a_list_is_that_of_its_columns(rows):
    def counts(rows):
        return np.histogramdd([rows[0], rows[1] * 2.0], bins=2)[0]

    np.testing.assert_array_equal(jit(counts, compile="never")(rows), counts(rows))


@pytest.mark.parametrize("f", [np.signbit, np.isposinf, np.isneginf])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64"])
def test_signs_of_booleans_and_small_integers(f, dtype):
    x = np.array([1, 0, -3 if dtype.startswith("int") else 3]).astype(dtype)
    for how in ("never", "always"):
        np.testing.assert_array_equal(jit(f, compile=how)(x), f(x), strict=True)
