"""What a function reads from outside at several places and in several ways changes in all."""

from __future__ import annotations

import itertools
import operator  # noqa: F401  # as the texts below name it
import sys
import types

import numpy as np
import pytest

from tapegrad import grad, jit

# Some ways are traced for each value, which is said; here the values count.
pytestmark = pytest.mark.filterwarnings("ignore:.*was traced for three calls:RuntimeWarning")
config = types.ModuleType("config_of_ways_test")
config.__file__ = __file__.replace("ways_test", "config")  # a module of the user's
X = np.array([1.0, 2.0])


class Box:
    of_class = 0.0

    def found(self):
        return self.c

    @property
    def asked(self):
        return self.c

    def __getitem__(self, k):
        return self.c


class Slots:
    __slots__ = ("c",)


def look():
    return config.c


box, slots, items, row, c = Box(), Slots(), {}, [0.0], 0.0
NAMES = dict(globals())
# Ways to read one thing.
WAYS = {
    "a module's": (
        "config.c",
        "getattr(config, 'c')",
        "getattr(config, 'c', None)",
        "vars(config)['c']",
        "config.__dict__['c']",
        "operator.attrgetter('c')(config)",
        "sys.modules[config.__name__].c",
        "look()",
        "[config.c for _ in range(2)][1]",
    ),
    "an object's": ("box.c", "getattr(box, 'c')", "box.found()", "box.asked", "box[0]"),
    "an object's names": ("vars(box)['c']", "box.__dict__['c']"),
    "a class's": ("Box.of_class", "box.of_class", "type(box).of_class"),
    "a dict's": ("items['c']", "items.get('c')", "list(items.values())[0]"),
    "a list's": ("row[0]", "[v for v in row][0]", "(lambda v: v)(*row)"),
    "a global's": ("c", "globals()['c']"),
    "slots'": ("slots.c",),
}
PAIRS = [pair for ways in WAYS.values() for pair in itertools.product(ways, ways)]
KINDS = {
    "floats": [0.3, 0.7, 1.5, 2.5, 0.2],
    "integers": [1, 2, 3, 0, 5],
    "arrays": [np.array([0.1, 0.2]) * k for k in (1, 2, 13, 17)],
    "mixed": [0.3, 0.7, 2, np.float64(0.7), 1.5],
}


def put(names, value):
    config.c = box.c = Box.of_class = items["c"] = row[0] = slots.c = names["c"] = value


@pytest.mark.every(12)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_both_are_those_of_now(pair, kind, monkeypatch):
    monkeypatch.setitem(sys.modules, config.__name__, config)
    first, second = pair
    names = dict(NAMES, NAMES=None)
    text = f"def f(x):\n    return np.sum(np.sum({first}) * x[0] + np.exp(0.1 * {second}) * x[1])"
    exec(compile(text, __file__, "exec"), names)
    f = names["f"]
    value, slope = jit(f, compile="never"), grad(f, compile="never")
    for held in KINDS[kind]:
        put(names, held)
        np.testing.assert_allclose(value(X), f(X), rtol=1e-12)
        np.testing.assert_allclose(slope(X), [f(x) for x in np.eye(2)], rtol=1e-12)


def test_modules_of_the_tests_are_the_users(monkeypatch):
    """Else the test above would hold nothing of what it says."""
    monkeypatch.setattr(config, "c", 2.0, raising=False)
    value = jit(lambda x: config.c * x, compile="never")
    value(1.0)
    config.c = 3.0
    assert value(1.0) == 3.0
