"""Special methods whose results Python's code in C takes: `__bool__`, `__index__`, `__float__`."""

from __future__ import annotations

import importlib
import operator

import numpy as np
import pytest

from tapegrad import value_and_grad

SOURCE = '''
import numpy as np


class Level:
    """A number, which is an array without dimensions inside."""

    def __init__(self, value):
        self.value = value

    @property
    def array(self):
        return np.asarray(self.value)

    def __bool__(self):
        return self.value > 3.0

    def __index__(self):
        return int(self.value)

    def __hash__(self):
        return int(self.array)

    def __eq__(self, other):
        return self.value == other.value

    def __int__(self):
        return int(self.array)

    def __float__(self):
        return float(self.array)

    def __complex__(self):
        return complex(self.array)
'''


@pytest.fixture(params=["site-packages", "mine"])
def level(request, tmp_path, monkeypatch):
    """The class in a module of an installed package, and in one of the user's."""
    folder = tmp_path / request.param
    folder.mkdir()
    name = f"levels_of_{request.param.partition('-')[0]}"
    (folder / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module(name).Level


USES = {
    "if": lambda x, of: x * x if of(x) else x * 3.0,
    "not": lambda x, of: x * x if not of(x) else x * 3.0,
    "while": lambda x, of: repeated(x, of),
    "bool": lambda x, of: x * (2.0 + bool(of(x))),
    "any": lambda x, of: x * (2.0 + any([of(x), of(1.0)])),
    "filter": lambda x, of: x * (2.0 + len([*filter(None, [of(x)])])),
    "truth": lambda x, of: x * (2.0 + operator.truth(of(x))),
    "range": lambda x, of: x * (2.0 + sum(range(of(x)))),
    "item": lambda x, of: x * [1.0, 2.0, 3.0, 4.0, 5.0][of(x)],
    "operator.index": lambda x, of: x * operator.index(of(x)),
    "hash": lambda x, of: x * hash(of(x)),
    "key": lambda x, of: {of(x): x * x}[of(x)],
    "set": lambda x, of: x * len({of(x), of(x), of(1.0)}),
    "int": lambda x, of: x * int(of(x)),
    "float": lambda x, of: x * float(of(x)),
    "complex": lambda x, of: abs(x * complex(of(x))),
}


def repeated(x, of):
    level = of(x)
    while level:
        level.value, x = level.value - 1.0, x * x
    return x * 1.5


@pytest.mark.parametrize("name", USES)
def test_what_a_special_method_returns_is_a_number_for_code_in_c(level, name):
    """Of each value that takes another path, and again."""
    f = value_and_grad(lambda x: USES[name](x, level))
    for x in (2.25, 4.5, 2.25):
        value, slope = f(x)
        below, above = (USES[name](x + h, level) for h in (-1e-6, 1e-6))
        assert value == USES[name](x, level)
        np.testing.assert_allclose(slope, (above - below) / 2e-6, rtol=1e-6)


def test_a_lambda_is_a_special_method_too():
    """Of the class itself and of one above it; another lambda's boolean stays traced."""

    class Level:
        __bool__ = lambda self: self.value > 3.0  # noqa: E731

        def __init__(self, value):
            self.value = value

    class Other(Level):
        pass

    def f(x):
        high = (lambda level: level.value > 3.0)(Level(x))
        return (x if Level(x) else -x) + (x * x if any([Other(x)]) else 0.0) + high * x

    g = value_and_grad(f)
    for x in (2.25, 4.5, 2.25):
        assert g(x) == (f(x), 2.0 + 2.0 * x if x > 3.0 else -1.0)


def test_what_isnt_a_boolean_of_pythons_is_refused_as_by_python():
    class Wrong:
        def __init__(self, value):
            self.value = value

        def __bool__(self):
            return np.float64(self.value) > 3.0

    def f(x):
        return x if Wrong(x) else -x

    for call in (f, value_and_grad(f)):
        with pytest.raises(TypeError, match="should return bool"):
            call(2.0)
