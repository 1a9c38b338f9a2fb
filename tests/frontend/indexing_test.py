"""Reading by index, in all of NumPy's forms, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontend.check import assert_same, check, check_value, normal, source_line

from tapegrad import grad, jit, trace

X = normal(4, 5, 6)
I = np.array([2, 0, -1, 2, 1, 3, 0])
J = np.array([[0, 1], [-1, 3]])
ROWS = np.array([True, False, True, True])
MASK = normal(4, 5, 6, seed=1) > 0
MASK2 = normal(4, 5, seed=1) > 0

CASES = [
    lambda x: x[0],
    lambda x: x[-1],
    lambda x: x[1, 2],
    lambda x: x[1, 2, 3],
    lambda x: x[np.int64(1), np.int32(-1)],
    lambda x: x[:],
    lambda x: x[...],
    lambda x: x[()],
    lambda x: x[1:3],
    lambda x: x[::2],
    lambda x: x[::-1],
    lambda x: x[3:0:-2],
    lambda x: x[-3:-1],
    lambda x: x[10:],
    lambda x: x[2:1],
    lambda x: x[:, 1],
    lambda x: x[:, :, -1],
    lambda x: x[1:, ::-2, 2],
    lambda x: x[..., 0],
    lambda x: x[0, ...],
    lambda x: x[0, ..., 1:3],
    lambda x: x[1, 2, 3, ...],
    lambda x: x[None],
    lambda x: x[:, None],
    lambda x: x[..., None],
    lambda x: x[None, 1, None, ::2, None],
    lambda x: x[np.newaxis, ..., 0, np.newaxis],
    lambda x: x[slice(1, 3), slice(None)],
    lambda x: x[np.int64(1) : np.int64(3)],
    lambda x: x[1][2][3],
    lambda x: x[1:][::2][:, ::-1],
    lambda x: x[I],
    lambda x: x[[0, 2]],
    lambda x: x[[0, -1], ...],
    lambda x: x[(0, 2),],
    lambda x: x[[]],
    lambda x: x[[[], []]],
    lambda x: x[([[]], 0)],
    lambda x: x[np.array([], int)],
    lambda x: x[J],
    lambda x: x[:, I],
    lambda x: x[:, J],
    lambda x: x[..., I],
    lambda x: x[I, I],
    lambda x: x[I, :, I],
    lambda x: x[:, I, I],
    lambda x: x[I, I, I],
    lambda x: x[I, 1],
    lambda x: x[1, I],
    lambda x: x[1, :, I],
    lambda x: x[I, :, 1],
    lambda x: x[I, None],
    lambda x: x[None, I],
    lambda x: x[:, None, I],
    lambda x: x[I, None, I],
    lambda x: x[I, ..., I],
    lambda x: x[:, I, ..., I],
    lambda x: x[J, [0, 1]],
    lambda x: x[J, :, [0, 1]],
    lambda x: x[J[:, :, None], I],
    lambda x: x[1:3, I],
    lambda x: x[1:3, I, ::2],
    lambda x: x[::-1, [1, 1, 1]],
    lambda x: x[np.ix_([0, 2], [1, 3])],
    lambda x: x[np.ix_([0, 2], [1, 3], [0, -1])],
    lambda x: x[np.array(1)],
    lambda x: x[:, np.array(1), I],
    lambda x: x[I.astype(np.int8)],
    lambda x: x[np.array([1, 3], np.uint16)],
    lambda x: x[np.arange(4), [0, 1, 2, 3]],
    lambda x: x[ROWS],
    lambda x: x[:, [True, False, True, True, False]],
    lambda x: x[MASK2],
    lambda x: x[MASK],
    lambda x: x[:, MASK[0]],
    lambda x: x[ROWS, 1],
    lambda x: x[ROWS, :, 1],
    lambda x: x[ROWS, [0, 1, 2]],
    lambda x: x[MASK2, 0],
    lambda x: x[MASK2, ::2],
    lambda x: x[~ROWS],
    lambda x: x[np.zeros(4, bool)],
    lambda x: x[x > 0],
    lambda x: x[x[:, 0, 0] > 0],
    lambda x: x[:, x[0, :, 0] > 0],
    lambda x: x[x[..., 0] > 0],
    lambda x: x[(x > 0) & MASK],
    lambda x: x[np.argmax(x, axis=0)[0]],
    lambda x: x[np.argmax(x[:, 0, 0])],
    lambda x: x[np.arange(4), np.argmax(x[..., 0], axis=1)],
    lambda x: x[: int(np.argmax(x[0, 0]))],
    lambda x: x[np.nonzero(x > 0.5)],
    lambda x: x[np.where(x > 0.5)],
    lambda x: x[x.argmax(axis=0), np.arange(5)[:, None], np.arange(6)],
    lambda x: x.T[I],
    lambda x: x.reshape(-1)[J],
    lambda x: np.nonzero(x > 0.5),
    lambda x: np.flatnonzero(x > 0.5),
    lambda x: np.argwhere(x > 0.5),
    lambda x: np.where(x > 0.5),
    lambda x: np.take(x, 3),
    lambda x: np.take(x, [1, 99, -1]),
    lambda x: np.take(x, I, axis=0),
    lambda x: np.take(x, J, axis=-1),
    lambda x: np.take(x, 2, axis=1),
    lambda x: np.take(x, [7, -9], axis=1, mode="wrap"),
    lambda x: np.take(x, [7, -9], axis=1, mode="clip"),
    lambda x: np.take(x, np.argmax(x, axis=0)[0], axis=1),
    lambda x: np.take_along_axis(x, np.argmax(x, axis=1, keepdims=True), axis=1),
    lambda x: np.take_along_axis(x, MASK.astype(int)[:, :3], axis=1),
    lambda x: np.take_along_axis(x, np.array([3, 1]), axis=None),
    lambda x: np.take_along_axis(x, np.array([[[1], [0]]]), axis=1),
    lambda x: np.compress([True, False, True], x, axis=1),
    lambda x: np.compress(MASK[0, 0], x[0, 0]),
    lambda x: np.extract(x > 0, x),
    lambda x: np.choose([0, 1, 1, 0, 1], [x[0, :, 0], x[1, :, 0]]),
    lambda x: x.take([0, 1]),
    lambda x: x.compress([True, False, True, False], axis=0),
    lambda x: np.tril_indices_from(x[0])[0],
    lambda x: x[0][np.triu_indices(5, m=6)],
    lambda x: x[0][np.tril_indices_from(x[0])],
    lambda x: np.sort(x),
    lambda x: np.sort(x, axis=0),
    lambda x: np.sort(x, axis=None),
    lambda x: np.argsort(x, axis=1),
    lambda x: np.sort(x, kind="stable")[..., ::-1],
    lambda x: x[np.argsort(x[:, 0, 0])],
    lambda x: np.median(x),
    lambda x: np.median(x, axis=0),
    lambda x: np.median(x, axis=(1, 2), keepdims=True),
    lambda x: np.quantile(x, 0.3),
    lambda x: np.quantile(x, [0.1, 0.5, 0.99], axis=1),
    lambda x: np.percentile(x, 25, axis=-1, keepdims=True),
    lambda x: np.searchsorted(np.arange(-2.0, 2.0), x),
    lambda x: np.digitize(x, [-1.0, 0.0, 1.0]),
    lambda x: np.bincount([0, 1, 1, 2, 0], weights=x[0, :, 0]),
]


if np.lib.NumpyVersion(np.__version__) >= "2.5.0":
    CASES += [
        lambda x: np.sort(x, descending=True),
        lambda x: np.sort(x, axis=None, stable=True, descending=True),
        lambda x: np.argsort(x, axis=1, stable=True, descending=True),
    ]


@pytest.mark.every(2)
@pytest.mark.parametrize("f", CASES, ids=source_line)
def test_reading(f: Any) -> None:
    check(f, X)


@pytest.mark.every(8)
@pytest.mark.parametrize("f", CASES, ids=source_line)
def test_layouts(f: Any) -> None:
    check_value(f, X.astype(np.float32))
    check_value(f, normal(6, 5, 4).T)
    check_value(f, X[::-1, ::-1])


TWO = [
    lambda x, i: x[i],
    lambda x, i: x[i[0] : i[1]],
    lambda x, i: x[i[0]],
    lambda x, i: x[:, i],
    lambda x, i: x[i, i],
    lambda x, i: x[i[:, None], i],
    lambda x, i: x[[i[0], i[1]]],
    lambda x, i: x[i == 1],
    lambda x, i: x[i, ::2],
    lambda x, i: np.take(x, i, axis=1),
    lambda x, i: np.repeat(x, i, axis=0),
    lambda x, i: np.roll(x, i[0]),
    lambda x, i: np.reshape(x[: i[3]], (i[3], -1)),
    lambda x, i: sum(x[k].sum() for k in range(i[3])),
    lambda x, i: sum(x[k].sum() for k in i),
]


@pytest.mark.every(2)
@pytest.mark.parametrize("f", TWO, ids=source_line)
def test_traced_indices(f: Any) -> None:
    check(f, X, np.array([0, 1, 1, 3]))
    check(f, X, np.array([0, 1, 1, 3], np.int32))


def test_an_index_array_is_data() -> None:
    """Another index, the same tape: the gradient follows."""
    g = grad(lambda x, i: np.sum(x[i] ** 2), compile="never")
    for i in (np.array([0, 0, 1]), np.array([2, 2, 2])):
        expected = np.zeros(3)
        np.add.at(expected, i, 2 * np.arange(3.0)[i])
        np.testing.assert_allclose(g(np.arange(3.0), i), expected)
    assert g.cache_info().traces == 1


def test_a_mask_with_another_count_is_traced_again() -> None:
    g = grad(lambda x: np.sum(x[x > 0] ** 2), compile="never")
    for x in (np.array([1.0, -1.0, 2.0]), np.array([1.0, 1.0, 2.0]), np.array([-1.0, 3.0, 2.0])):
        np.testing.assert_allclose(g(x), np.where(x > 0, 2 * x, 0))
    assert g.cache_info().traces == 2


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, bool])
def test_captured_index_arrays_are_read_again(dtype: Any) -> None:
    index = np.array([0, 1, 1], dtype)

    def f(x: Any) -> Any:
        return x[index] * 1.0

    j = jit(f, compile="never")
    x = np.array([5.0, 6.0, 7.0])
    assert_same(j(x), f(x))
    index[:] = [1, 0, 1]
    assert_same(j(x), f(x))


def test_booleans_that_are_scalars() -> None:
    for f in (lambda x: x[True], lambda x: x[np.False_], lambda x: x[x[0] > 0], lambda x: x[0][()]):
        check(f, np.array([1.0, 2.0, 3.0]))


def test_out_of_range_is_numpys_error() -> None:
    for f in (lambda x: x[[0, 9]], lambda x: x[9], lambda x: np.take(x, 9)):
        with pytest.raises(IndexError):
            trace(f, np.arange(3.0))
