"""Control flow: each path is traced once, and each call gets the path it should take."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.runtime import cache


def grad(f, **options):
    return tg.grad(f, compile="never", **options)


def test_a_branch_that_flips():
    df = grad(lambda x: x**2 if x > 0 else -x)
    assert [df(x) for x in (3.0, -1.0, 4.0, -2.0, 0.0)] == [6.0, -1.0, 8.0, -1.0, -1.0]
    # hits, misses, traces, compiles, guard failures (at each change of side), variants
    assert df.cache_info() == (3, 2, 2, 0, 3, 2, 0, 0, 0)


def test_a_branch_that_flips_late():
    df = grad(lambda x: x if x < 9.5 else 10 * x)
    assert [df(float(x)) for x in range(12)] == [1.0] * 10 + [10.0] * 2
    assert df.cache_info().traces == 2


def test_several_branches_have_as_many_variants_as_paths_taken():
    def f(x, y):
        total = x if x > 0 else -x
        return total + (y if y > 0 else -y)

    df = grad(f, argnums=(0, 1))
    for signs in [(1, 1), (1, -1), (-1, 1), (-1, -1)] * 3:
        assert df(*map(float, signs)) == signs
    assert df.cache_info().traces == 4


def iterative(x, n):
    for _ in range(n):
        x = 2 * x
    return x


def test_the_number_of_iterations_may_change():
    df = grad(iterative)
    assert [df(1.0, n) for n in (1, 2, 3, 2, 1, 0)] == [2.0, 4.0, 8.0, 4.0, 2.0, 1.0]
    assert df.cache_info().traces == 4


def test_a_loop_that_runs_until_it_converges():
    def root(a):
        x = a
        while abs(x * x - a) > 1e-12:
            x = (x + a / x) / 2
        return x

    df = grad(root)
    for a in (2.0, 9.0, 2.0, 1e4, 9.0):
        assert df(a) == pytest.approx(0.5 / np.sqrt(a))
    assert df.cache_info().traces == 1


def test_a_loop_over_the_elements_of_an_array():
    def longest_run(x):
        best = run = x[0] * 0
        for element in x:
            run = run + element if element > 0 else run * 0
            best = run if run > best else best
        return best

    df = grad(longest_run)
    np.testing.assert_array_equal(df(np.array([1.0, 2.0, -1.0, 1.0])), [1, 1, 0, 0])
    np.testing.assert_array_equal(df(np.array([1.0, -2.0, 2.0, 1.0])), [0, 0, 1, 1])
    np.testing.assert_array_equal(df(np.array([3.0, 4.0, -5.0, 6.0])), [1, 1, 0, 0])
    assert df.cache_info().traces == 2


def test_an_early_return_and_an_exception():
    def f(x):
        if x.sum() < 0:
            raise ValueError("negative")
        if (x > 10).any():
            return x.sum()
        return (x**2).sum()

    df = grad(f)
    np.testing.assert_array_equal(df(np.array([1.0, 2.0])), [2.0, 4.0])
    np.testing.assert_array_equal(df(np.array([1.0, 20.0])), [1.0, 1.0])
    with pytest.raises(ValueError, match="negative"):
        df(np.array([-1.0, 0.0]))
    np.testing.assert_array_equal(df(np.array([3.0, 2.0])), [6.0, 4.0])
    assert df.cache_info().variants == 2


def test_a_mask_may_have_another_number_of_true_elements():
    df = grad(lambda x: (x[x > 0] ** 2).sum())
    for x in ([1.0, -1.0, 2.0], [1.0, 1.0, 2.0], [-1.0, 1.0, 2.0]):
        x = np.array(x)
        np.testing.assert_array_equal(df(x), np.where(x > 0, 2 * x, 0))
    assert df.cache_info().traces == 2


def test_an_integer_that_is_an_index_or_a_shape():
    df = grad(lambda x, k: x[k] * np.ones(k).sum() if k else x[0])
    x = np.array([1.0, 2.0, 3.0])
    for k, expected in ((1, [0, 1, 0]), (2, [0, 0, 2]), (0, [1, 0, 0]), (2, [0, 0, 2])):
        np.testing.assert_array_equal(df(x, k), expected)
    assert df.cache_info().traces == 3


def test_nan_takes_the_path_that_numpy_takes():
    df = grad(lambda x: x**2 if x > 0 else x)
    assert df(2.0) == 4.0
    assert df(np.nan) == 1.0
    assert df(np.nan) == 1.0
    assert df.cache_info().traces == 2


def test_the_variant_that_answered_last_is_tried_first():
    df = grad(lambda x: x**2 if x > 0 else -x)
    df(1.0), df(-1.0)
    failures = df.cache_info().guard_failures
    for _ in range(5):
        df(1.0)
    assert df.cache_info().guard_failures == failures + 1


@pytest.mark.filterwarnings("ignore:.* calls in a row")
def test_the_number_of_variants_is_bounded(monkeypatch):
    monkeypatch.setattr(cache, "MAX_VARIANTS", 4)
    df = grad(iterative)
    with pytest.warns(RuntimeWarning, match=r"more than 4 paths.*range \(guards_test.py"):
        for n in range(10):
            assert df(1.0, n) == 2.0**n
    assert df.cache_info().variants == 4
