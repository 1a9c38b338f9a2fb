"""What answers the functions of a library, declared from outside by `tapegrad.extending`."""

import math
import sys
import types

import numpy as np
import pytest

from tapegrad import grad, gradcheck, jit
from tapegrad.errors import UnsupportedError
from tapegrad.extending import Carrier, seen, stands_for


def library():
    """A library in C, as it were: its functions take plain numbers and arrays alone."""

    def mean_power(x, exponent=2.0, weights=None):
        total = sum(float(y) ** exponent for y in x)
        return total / len(x)

    def line(slope):
        return np.poly1d([float(slope), 1.0])

    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def applied(self, x):
            return self.factor * float(x)

    made = types.ModuleType("some_library")
    made.mean_power, made.line, made.Scale = mean_power, line, Scale
    return made


@pytest.fixture
def lib(monkeypatch, own_answers):
    made = library()
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_an_answer_is_traced_as_the_program_is(lib):
    """`math` and lists are followed in it, and it needn't have all parameters."""

    @stands_for("some_library")
    def mean_power(x, exponent=2.0):
        return np.sum(np.array([math.pow(y, exponent) for y in x])) / len(x)

    x = np.array([1.0, 2.0, 4.0])
    assert lib.mean_power(x) == 7.0
    assert np.allclose(grad(lambda x: lib.mean_power(x, 3))(x), x**2)
    assert grad(lambda x: lib.mean_power(x, 2))(x).shape == (3,)  # 2 is the default, 2.0
    with pytest.raises(
        UnsupportedError, match=r"some_library.mean_power\(\.\.\., weights=\.\.\.\)"
    ):
        grad(lambda x: lib.mean_power(x, weights=x))(x)


def test_a_default_may_be_written_as_an_integer(lib):
    @stands_for("some_library")
    def mean_power(x):
        return np.mean(np.square(x))

    x = np.array([1.0, 2.0, 4.0])
    assert np.allclose(grad(lambda x: lib.mean_power(x, 2))(x), 2 * x / 3)
    with pytest.raises(UnsupportedError, match="exponent"):
        grad(lambda x: lib.mean_power(x, 3))(x)


def test_an_object_of_ones_own_stands_for_the_librarys(lib):
    class Line(Carrier):
        def __init__(self, slope):
            self.slope = slope

        def __call__(self, x):
            return self.slope * x + 1.0

    @stands_for("some_library")
    def line(slope):
        return Line(slope)

    def f(slope, x):
        return lib.line(slope)(x)

    assert f(3.0, 2.0) == jit(f)(3.0, 2.0) == 7.0
    assert gradcheck(f, (3.0, 2.0))


def test_what_an_answer_reads_of_an_object_is_compared(lib):
    @stands_for(lib.Scale)
    def applied(self, x):
        return seen(self).factor * x

    scale = lib.Scale(2.0)
    df = grad(lambda x: scale.applied(x) ** 2)
    assert df(3.0) == 24.0
    scale.factor = 10.0
    assert df(3.0) == 600.0


def test_an_answer_for_a_function_in_c_is_traced_once(own_answers):
    """Nothing is known of such a function, so one without an answer is called anew by each call."""
    arrayfuncs = pytest.importorskip("sklearn.utils.arrayfuncs")

    @stands_for("sklearn.utils.arrayfuncs")
    def min_pos(X):
        return np.min(np.where(X > 0, X, np.inf))

    g = grad(lambda x: arrayfuncs.min_pos(x**3), compile="never")
    for k in (1.0, 2.0, 3.0):
        assert np.allclose(g(k * np.array([-1.0, 2.0, 3.0])), [0.0, 12 * k**2, 0.0])
    assert g.cache_info().traces == 1
