"""Numbers that a function finds outside, and that change between its calls: from the second one on
they are inputs, looked up by each call."""

from __future__ import annotations

import collections
import copy

import numpy as np
import pytest

from tapegrad import grad

X = np.array([1.0, 2.0])
MODES = pytest.mark.parametrize("compile", ["always", "never"])
Pair = collections.namedtuple("Pair", "first second")


class Model:
    total = 1

    def __init__(self):
        self.rate, self.steps = 1.0, 1
        self.options = {"rate": 1.0}
        self.pair = (1.0, "a")
        self.rates = [1.0, 2.0]

    def set(self, k):
        """Numbers of the call number `k`."""
        self.rate, self.steps = 1.0 + 0.5 * k, 1 + k
        self.options["rate"] = 1.0 + 0.3 * k
        self.pair = (1.0 + 0.2 * k, "a")
        self.rates[0] = 1.0 + 0.1 * k
        type(self).total = 1 + k


CHANGING = {
    "an attribute": lambda m, x: m.rate * np.sum(x**2),
    "a whole number": lambda m, x: np.sum(x**2) / m.steps,
    "by its name": lambda m, x: getattr(m, "rate") * np.sum(x**2),  # noqa: B009
    "of a class": lambda m, x: Model.total * np.sum(x**2),
    "of a dict": lambda m, x: m.options["rate"] * np.sum(x**2),
    "of a dict, by a method": lambda m, x: m.options.get("rate", 0.0) * np.sum(x**2),
    "of a tuple": lambda m, x: m.pair[0] * np.sum(x**2),
    "of a list": lambda m, x: m.rates[0] * np.sum(x**2),
    "in two places": lambda m, x: m.rate * np.sum(x**2) + np.sum(x) * m.rate,
    "and another one": lambda m, x: m.rate * np.sum(x**2) / m.steps,
}
# There they have to be what they are: each call that finds another one is traced.
USED = {
    "a power": lambda m, x: np.sum(x**m.steps),
    "a shape": lambda m, x: np.sum(np.ones(m.steps)) * np.sum(x**2),
    "a text": lambda m, x: len(str(m.rate)) * m.rate * np.sum(x**2),
    "with all that an object holds": lambda m, x: m.rate * copy.copy(m).rate * np.sum(x**2),
}


def slope(f, x):
    return np.array([(f(x + s) - f(x - s)) / 2e-6 for s in 1e-6 * np.eye(2)])


@pytest.mark.filterwarnings("ignore:.* calls in a row")
@pytest.mark.every(8)
@MODES
@pytest.mark.parametrize("name", [*CHANGING, *USED])
@pytest.mark.filterwarnings("ignore:grad_f was traced for three calls")
def test_a_number_that_changes_is_an_input(name, compile):
    m = Model()
    m.set(0)

    def f(x):
        return {**CHANGING, **USED}[name](m, x)

    g = grad(f, compile=compile)
    for k in range(6):
        m.set(k)
        x = X * (1 + 0.1 * k)
        np.testing.assert_allclose(g(x), slope(f, x), rtol=1e-6)
    assert g.cache_info().traces <= 2 or name in USED


class Counting:
    """An object whose method finds a number that it sets, and calls another that reads it."""

    def __init__(self):
        self.calls = 1

    def read(self):
        return self.calls

    def __call__(self, x):
        n = self.calls
        y = self.read() * np.sum(x**2)
        self.calls = n + 1
        return y


class Copying(Counting):
    def read(self):
        return copy.copy(self).calls


@MODES
@pytest.mark.parametrize("kind", [Counting, Copying])
@pytest.mark.filterwarnings("ignore:grad_<lambda> was traced for three calls")
def test_what_is_set_is_read_elsewhere_too(kind, compile):
    """by code that doesn't set it: before, that kept the number of the first call"""
    m = kind()
    g = grad(lambda x: m(x), compile=compile)
    for k in range(5):
        np.testing.assert_allclose(g(X), 2 * X * (1 + k), rtol=1e-14)
    assert m.calls == 6
    assert g.cache_info().traces == 1 or kind is Copying


def deleted(o, x):
    o.held = 2 * x
    y = np.sum(o.held**2)
    del o.held
    return y


def taken_out(o, x):
    o.__dict__["held"] = 2 * x
    y = np.sum(o.held**2)
    del o.__dict__["held"]
    return y


@MODES
@pytest.mark.parametrize("f", [deleted, taken_out])
def test_what_a_run_sets_and_deletes_again(f, compile):
    class Held:
        pass

    o = Held()
    g = grad(lambda x: f(o, x), compile=compile)
    for k in range(4):
        if k == 2:
            o.held = 3.0  # from outside: plain Python deletes it
        np.testing.assert_allclose(g(X), 8 * X, rtol=1e-14)
        assert vars(o) == {}
    assert g.cache_info().traces == 2
