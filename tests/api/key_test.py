"""`key=`: a function of the arguments tells calls apart, beside guards."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import ArgumentError
from tapegrad.runtime import cache

X = np.array([0.5, -1.5])


def branches(x, k):
    """Another path for each k."""
    return sum(np.sum(x**2) for _ in range(int(k)))


def tens(x, k):
    return int(k) // 10


def sign(x, k=1):
    return bool(k > 0)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_two_values_dont_push_out_each_others_variants(compile, monkeypatch):
    monkeypatch.setattr(cache, "MAX_VARIANTS", 2)
    df = tg.grad(lambda x, k: branches(x, k), compile=compile, key=tens)
    for _ in range(3):
        for k in (10, 11, 20, 21):
            np.testing.assert_allclose(df(X, k), 2 * k * X)
    info = df.cache_info()
    assert (info.traces, info.variants, info.hits) == (4, 4, 8)


def test_guards_hold_under_one_value():
    df = tg.grad(lambda x, k: branches(x, k), key=lambda x, k: "all")
    for k in (1, 2, 1, 3, 2) * 10:
        np.testing.assert_allclose(df(X, k), 2 * k * X)
    assert df.cache_info().traces == 3


def test_a_value_has_a_variant_of_its_own_where_guards_would_take_anothers():
    df = tg.jit(lambda x: np.sin(x), compile="always", key=lambda x: x[0] > 0)
    for _ in range(3):
        for x in (X, -X):
            np.testing.assert_allclose(df(x), np.sin(x))
    info = df.cache_info()
    assert (info.traces, info.variants, info.hits) == (2, 2, 4)


def test_values_go_as_signatures_do_the_least_recently_used_first(monkeypatch):
    monkeypatch.setattr(cache, "MAX_SIGNATURES", 3)
    df = tg.jit(lambda x, k: x + k, compile="never", key=lambda x, k: int(k))
    for k in (1, 2, 3, 1):
        df(X, k)
    with pytest.warns(RuntimeWarning, match="more than 3 kinds of arguments.*values of key="):
        df(X, 4)
    assert df.cache_info().variants == 3
    df(X, 1)
    assert df.cache_info().traces == 4
    np.testing.assert_array_equal(df(X, 2), X + 2)
    assert df.cache_info().traces == 5


def test_arguments_by_name_and_all_three_functions():
    def f(x, k=1):
        return np.sum(x**2) * k

    for made, result in [
        (tg.grad(f, key=sign), (3 * 2 * X,)),
        (tg.value_and_grad(f, key=sign), (7.5, 6 * X)),
        (tg.jit(f, key=sign), (7.5,)),
    ]:
        for _ in range(40):
            for found in (made(X, 3), made(X, k=3)):
                each = found if isinstance(found, tuple) else (found,)
                for a, b in zip(each, result, strict=True):
                    np.testing.assert_allclose(a, b)
        made(X, k=-3)
        assert (made.cache_info().traces, made.cache_info().hits) == (2, 79)


def test_a_key_that_is_made_anew_finds_what_is_kept():
    def f(x):
        return np.sum(x**2)

    for _ in range(3):
        tg.grad(f, key=lambda x: x.shape)(X)
    assert tg.grad(f, key=lambda x: x.shape).cache_info().traces == 1
    assert tg.cache_info(f).traces == 1
    assert tg.grad(f).cache_info().traces == 0


def test_with_out_in_derivatives_as_a_decorator_and_pickled():
    places = np.empty(2)
    df = tg.grad(branches, out=places, key=tens)
    for k in (10, 20, 10, 20):
        assert df(X, k) is places
        np.testing.assert_allclose(places, 2 * k * X)
    asked = []

    def told(x):
        asked.append(type(x))
        return x.shape

    @tg.grad(key=told)
    def cubes(x):
        return np.sum(x**3)

    np.testing.assert_allclose(cubes(X), 3 * X**2)
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(cubes(x)))(X), 6 * X)
    assert set(asked) == {np.ndarray}
    again = pickle.loads(pickle.dumps(tg.grad(branches, key=tens)))
    np.testing.assert_allclose(again(X, 10), 20 * X)
    assert again.by is tens


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (lambda x: [1], r"key returned \[1\], which can't be hashed"),
        (lambda x: {}["a"], "key raised KeyError for these arguments"),
        (lambda: 1, "key raised TypeError for these arguments"),
        ("shape", "key is a function of the arguments, not 'shape'"),
    ],
)
def test_what_is_no_key_is_an_error(key, message):
    with pytest.raises(ArgumentError, match=message):
        tg.grad(lambda x: np.sum(x), key=key)(X)


def test_a_key_that_keeps_changing_is_named(monkeypatch):
    monkeypatch.setattr(cache, "MANY_SIGNATURES", 3)
    df = tg.jit(lambda x, k: x + k, compile="never", key=lambda x, k: k)
    df(X, 1.0)
    df(X, 2.0)
    with pytest.warns(RuntimeWarning, match="What keeps changing is what key returns"):
        df(X, 3.0)
