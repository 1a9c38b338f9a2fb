"""What packages do with functions of the program's and with objects of their own, and is called
anew by each call, or is the same again: right values, few traces."""

from __future__ import annotations

import collections
import contextvars
import sys

import numpy as np
import pytest

from tapegrad import grad

X = np.array([1.0, 2.0])
RATE = 2.0
SETTING = contextvars.ContextVar("SETTING", default=1.0)
pytestmark = pytest.mark.filterwarnings("ignore:grad_.* was traced for three calls")
PACKAGE = """
import contextvars
import threading
from collections import ChainMap

depth = contextvars.ContextVar("depth", default=0)

class Remembered:
    def __init__(self, function):
        self.function, self.known = function, {}

    def __call__(self, *args):
        vars(threading.local())
        if args not in self.known:
            self.known[args] = self.function(*args)
        return self.known[args]

def applied(function, *args):
    vars(threading.local())
    return function(*args)

class Holder:
    __slots__ = ("held",)

    def __init__(self, held):
        vars(threading.local())
        self.held = held

    def total(self):
        vars(threading.local())
        return self.held.sum()

class Unit:
    def __init__(self, name, factor):
        self.name, self.factor, self.factors = name, factor, {"metre": factor}

class Registry:
    def __init__(self):
        self.units = ChainMap({}, {"metre": Unit("metre", 1.0)})

    def factor(self, name):
        if "centi" + "metre" == name:
            self.units[name] = Unit(name, self.units["metre"].factor / 100)
        return self.units[name].factor if name in self.units else 0.0

def nested(x):
    token = depth.set(depth.get() + 1)
    try:
        return x * depth.get()
    finally:
        depth.reset(token)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages" / "package_that_calls"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(folder.parent))
    import package_that_calls  # type: ignore[import-not-found]

    yield package_that_calls
    del sys.modules["package_that_calls"]


def factors(g, changes):
    """What the derivative of `c * sum(x**2)` says that `c` is, after each change."""
    found = []
    for change in changes:
        change()
        found.append(float(g(X)[0]) / 2)
    return found


def nothing():
    pass


@pytest.mark.parametrize("compile", ["always", "never"])
def test_a_function_that_a_package_remembers_results_of(package, compile):
    def table(n):
        return n * 3.0

    remembered = package.Remembered(table)
    g = grad(lambda x: remembered(2) * np.sum(x**2), compile=compile)
    assert factors(g, [nothing] * 5) == [6.0] * 5
    assert g.cache_info().traces <= 3
    assert factors(g, [lambda: remembered.known.__setitem__((2,), 7.0), nothing]) == [7.0, 7.0]


@pytest.mark.parametrize("compile", ["always", "never"])
def test_what_the_programs_function_reads(package, compile, monkeypatch):
    """It isn't compared by itself: the function is called anew."""
    monkeypatch.setitem(globals(), "RATE", 2.0)
    held = [1.0]

    def scaled(n):
        return n * RATE * held[0]

    g = grad(lambda x: package.applied(scaled, 3) * np.sum(x**2), compile=compile)
    changes = [nothing] * 4
    changes += [
        lambda: monkeypatch.setitem(globals(), "RATE", 5.0),
        lambda: held.append(0),
        nothing,
    ]
    changes += [lambda: held.__setitem__(0, 2.0)]
    assert factors(g, changes) == [6.0] * 4 + [15.0] * 3 + [30.0]
    assert g.cache_info().traces <= 4


def test_functions_of_the_programs_that_change_something(package):
    """as often as plain Python: a list, an attribute, a variable"""
    told, counts = [], collections.Counter()
    count = 0

    def appending(n):
        told.append(n)
        return float(len(told))

    def counting(n):
        counts[n] += 1
        return float(counts[n])

    def nonlocally(n):
        nonlocal count
        count += 1
        return float(count)

    for f in (appending, counting, nonlocally):
        g = grad(lambda x, f=f: package.applied(f, 3) * np.sum(x**2), compile="never")
        assert factors(g, [nothing] * 5) == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_functions_that_reach_traced_values(package):
    """by a closure, a list, a default, or an object with slots"""

    def f(x):
        kept = [x[0]]
        holder = package.Holder(x)
        default = package.applied(lambda y=x: y[1])
        return package.applied(lambda: kept[0] * 2) * default + holder.total()

    g = grad(f, compile="never")
    for k in range(4):
        x = X + k
        np.testing.assert_allclose(g(x), [2 * x[1] + 1, 2 * x[0] + 1])


@pytest.mark.parametrize("compile", ["always", "never"])
def test_a_registry_that_defines_its_units_anew(package, compile):
    """an object that holds the same in the place of another, and look-ups in a ChainMap -> one
    trace; a unit that changes is seen"""
    registry = package.Registry()
    registry.factor("centimetre")
    g = grad(lambda x: registry.factor("centimetre") * np.sum(x**2), compile=compile)
    assert factors(g, [nothing] * 4) == [0.01] * 4
    assert g.cache_info().traces == 1
    registry.units["metre"].factor = 2.0
    assert factors(g, [nothing] * 3) == [0.02] * 3
    assert g.cache_info().traces <= 3


def test_a_variable_of_the_context(package):
    """that is set and put back -> one trace; what it was before counts; one that stays set is
    traced each time"""
    g = grad(lambda x: np.sum(package.nested(x) ** 2), compile="never")
    assert factors(g, [nothing] * 4) == [1.0] * 4
    assert g.cache_info().traces == 1
    token = package.depth.set(1)
    assert factors(g, [nothing, nothing]) == [4.0] * 2
    package.depth.reset(token)
    assert factors(g, [nothing]) == [1.0]

    def setting(x):
        SETTING.set(SETTING.get() + 1.0)
        return SETTING.get() * np.sum(x**2)

    g = grad(setting, compile="never")
    assert contextvars.copy_context().run(factors, g, [nothing] * 3) == [2.0, 3.0, 4.0]
