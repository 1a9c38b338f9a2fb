"""Classes with a `__getattribute__` in Python look attributes up as it says. It is followed, and
later calls compare what it has read without calling it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tapegrad import grad

X = np.array([1.0, 2.0])
SCALES = {"metre": 1.0}


class Shown:
    """Answers from what it wraps, in another unit, and says so."""

    def __init__(self, inner, unit):
        self.inner, self.unit = inner, unit

    def __getattribute__(self, name):
        get = object.__getattribute__
        if name in ("inner", "unit", "__dict__", "__class__"):
            return get(self, name)
        print(name)
        return getattr(get(self, "inner"), name) * SCALES[get(self, "unit")]


class Inner:
    length = 3.0


class Kept:
    def __getattribute__(self, name):
        return super().__getattribute__("_" + name if name == "rate" else name)

    def __getattr__(self, name):
        return len(name)

    def total(self, x):
        return np.sum(x**2) * self.rate * self.four


class Local(threading.local):
    def __getattribute__(self, name):
        return super().__getattribute__(name)


@pytest.mark.parametrize("compile", ["always", "never"])
def test_what_it_reads_is_compared(compile, monkeypatch):
    """what the method reads changes (an attribute of another object, an entry of a global) ->
    traced anew; else one trace"""
    monkeypatch.setitem(SCALES, "metre", 1.0)
    shown = Shown(Inner(), "metre")
    df = grad(lambda x: np.sum(x**2) * shown.length, compile=compile)
    for k in range(3):
        np.testing.assert_allclose(df(X + k), 6 * (X + k))
    assert df.cache_info().traces == 1
    SCALES["metre"] = 2.0
    np.testing.assert_allclose(df(X), 12 * X)
    shown.inner.length = 5.0
    np.testing.assert_allclose(df(X), 20 * X)
    shown.unit = "foot"
    SCALES["foot"] = 3.0
    np.testing.assert_allclose(df(X), 30 * X)
    assert 3 <= df.cache_info().traces <= 4  # a number that has changed once is an input
    del SCALES["foot"]


def test_later_calls_do_not_ask_it(capsys):
    """a call that isn't traced doesn't call the method, which may print"""
    shown = Shown(Inner(), "metre")
    df = grad(lambda x: np.sum(x**2) * shown.length, compile="never")
    df(X)
    assert capsys.readouterr().out == "length\n"
    df(X + 1)
    assert capsys.readouterr().out == ""


def test_names_that_it_changes():
    """attributes under other names than it is asked for, a `__getattr__` that answers for what
    isn't there, and methods -> as untraced at each call"""
    kept = Kept()
    kept._rate = 2.0
    df = grad(kept.total, compile="never")
    for rate in (2.0, 2.0, 5.0):
        kept._rate = rate
        np.testing.assert_allclose(df(X), 8 * rate * X)
    assert df.cache_info().traces == 2
    kept.__dict__["four"] = 1.0
    np.testing.assert_allclose(df(X), 10 * X)


def test_one_that_goes_on_to_c():
    """what isn't looked up as `object` does it, of a thread's own variables -> right"""
    local = Local()
    df = grad(lambda x: np.sum(x**2) * local.rate, compile="never")
    for rate in (2.0, 5.0):
        local.rate = rate
        np.testing.assert_allclose(df(X), 2 * rate * X)
