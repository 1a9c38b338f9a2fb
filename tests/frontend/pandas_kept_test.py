"""Tables with traced numbers that a function keeps: each call leaves its own."""

import types

import numpy as np
import pandas as pd
import pytest

import tapegrad as tg

N = 5
DAYS = pd.date_range("2020-01-01", periods=N, freq="D")


class Fit:
    def __init__(self, series, frame):
        self.series, self.frame = series, frame


def keep_series(k, y, d):
    k.last = y.rolling(2).mean()


def keep_frame(k, y, d):
    k.table = d.shift(1)
    k.corr = d.corr()["a"]


def keep_in_containers(k, y, d):
    k.all = {"one": (d, [y.cumsum()]), "two": d["b"]}


def keep_beside_texts(k, y, d):
    d = d.copy()
    d["t"] = list("uvuvu")
    d["n"] = np.arange(N)
    k.d = d


def keep_in_an_object(k, y, d):
    k.fit = Fit(y, d)


def keep_twice(k, y, d):
    k.one = k.two = y
    y *= 2


def keep_inner(k, y, d):
    def inner(z):
        k.inner = pd.Series(z, index=DAYS).cumsum()
        return (k.inner**2).sum()

    k.slope = tg.grad(inner)(y.to_numpy())


def check_same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, pd.Series):
        pd.testing.assert_series_equal(found, expected)
    elif isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        check_same(list(found.values()), list(expected.values()))
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for x, y in zip(found, expected, strict=True):
            check_same(x, y)
    elif isinstance(expected, (Fit, types.SimpleNamespace)):
        check_same(vars(found), vars(expected))
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-12)


KEEPING = [keep_series, keep_frame, keep_in_containers, keep_beside_texts, keep_in_an_object]
KEEPING += [keep_twice, keep_inner]


@pytest.mark.every(4)
@pytest.mark.parametrize("keep", KEEPING)
@pytest.mark.parametrize("derive", [tg.jit, tg.grad, tg.hessian])
def test_each_call_leaves_its_own(keep, derive):
    kept = types.SimpleNamespace()

    def f(x):
        y = pd.Series(x, index=DAYS, name="y")
        keep(kept, y, pd.DataFrame({"a": y, "b": y**2}))
        return (y**3).sum()

    df = derive(f)
    before = None
    for seed in range(4):
        x = np.random.default_rng(seed).uniform(0.5, 2.0, N)
        df(x)
        found = types.SimpleNamespace(**vars(kept))
        f(x)
        check_same(found, kept)
        if before is not None and keep is keep_twice:
            assert found.one is found.two and found.one is not before.one
        before = found
    assert df.cache_info().traces == 1


@pytest.mark.filterwarnings("ignore:.*traced for three calls")
def test_what_was_kept_is_read_again():
    kept = types.SimpleNamespace(last=None)

    def f(x):
        y = pd.Series(x, index=DAYS)
        if kept.last is not None:
            y = y + 0.5 * kept.last
        kept.last = y.rolling(2, min_periods=1).mean()
        return (y**2).sum()

    df = tg.value_and_grad(f)
    for seed in range(4):
        x, last = np.random.default_rng(seed).uniform(0.5, 2.0, N), kept.last
        value, slopes = df(x)
        found, kept.last = kept.last, last
        np.testing.assert_allclose(value, f(x), rtol=1e-12)
        pd.testing.assert_series_equal(found, kept.last)
        expected = x if last is None else x + 0.5 * last.to_numpy()
        np.testing.assert_allclose(slopes, 2 * expected, rtol=1e-12)
