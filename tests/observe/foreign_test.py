"""Functions in C of installed packages, of which nothing is known: each call calls them anew."""

from __future__ import annotations

import ctypes
import sys
import types

import gmpy2
import kiwisolver
import numpy as np
import pytest

from tapegrad import grad

X = np.array([1.0, 2.0])
MODES = ("never", "always")
NAME = "package_in_c"


class _Definition(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


_CALL = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object)
_held = []


def in_c(f):
    """A function that Python takes for one written in C, which calls `f`."""
    called = _CALL(lambda _, args: f(*args))
    address = ctypes.cast(called, ctypes.c_void_p)
    definition = _Definition(f.__name__.encode(), address, 1, None)
    _held.append((called, definition))
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object],
    )
    return new(ctypes.addressof(definition), None, NAME)


@pytest.fixture
def package(monkeypatch, tmp_path):
    """An installed module in C; `calls` are those that were made of its functions."""
    made = types.ModuleType(NAME)
    made.__file__ = str(tmp_path / "site-packages" / f"{NAME}.so")
    made.calls, made.total, made.rate = [], 0, 1.0

    def norm(a):
        made.calls.append("norm")
        return float(np.sqrt(np.sum(a * a)))

    def length(n):
        assert type(n) is int
        return abs(n)

    def counted(*args):
        made.calls.append("counted")
        made.total += 1
        return made.total

    def scale(a, out):
        made.calls.append("scale")
        out[:] = made.rate * a

    def table(a):
        made.calls.append("table")
        return {"a": made.rate * a, "b": [1, 2]}

    def strange():
        made.calls.append("strange")
        return object()

    for f in (norm, length, counted, scale, table, strange):
        setattr(made, f.__name__, in_c(f))
    monkeypatch.setitem(sys.modules, NAME, made)
    return made


@pytest.mark.parametrize("compile", MODES)
def test_one_that_depends_on_its_arguments_is_traced_once(package, compile):
    """It is called once at each call, and traced anew when a captured array is another."""
    a = np.array([3.0, 4.0])
    g = grad(lambda x: np.sum(x) * package.norm(2 * a), compile=compile)
    for _ in range(5):
        np.testing.assert_allclose(g(X), 10.0)
    assert g.cache_info().traces == 1 and len(package.calls) == 5
    a[:] = [6.0, 8.0]
    np.testing.assert_allclose(g(X), 20.0)


@pytest.mark.parametrize("compile", MODES)
def test_one_that_counts_counts_as_in_plain_python(package, compile):
    """Another number at each call, with and without arguments; no call is made in vain."""
    for args in ((), (1.5,), (np.ones(2),)):
        package.total = 0
        g = grad(lambda x, args=args: np.sum(x) * package.counted(*args), compile=compile)
        with pytest.warns(RuntimeWarning, match="three calls in a row"):
            found = [g(X)[0] for _ in range(6)]
        assert found == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


@pytest.mark.filterwarnings("ignore:.*three calls in a row")
def test_several_calls_in_one_run(package):
    """One that stays the same before one that counts, and a branch behind both."""

    def f(x):
        r = package.norm(np.array([3.0, 4.0])) * package.counted()
        return np.sum(x) * r if x[0] > 0 else -np.sum(x) * r

    g = grad(f)
    found = [g(sign * X)[0] for sign in (1, 1, -1, -1, 1)]
    assert found == [5.0, 10.0, -15.0, -20.0, 25.0]
    assert package.calls == ["norm", "counted"] * 5


@pytest.mark.parametrize("compile", MODES)
def test_what_it_writes_to_its_arguments(package, compile):
    """The contents of an array that it fills are compared, and those of what it returns."""

    def filled(x):
        out = np.empty(2)
        package.scale(np.ones(2), out)
        return np.sum(out * x)

    for f in (filled, lambda x: np.sum(x * package.table(np.ones(2))["a"])):
        package.rate = 1.0
        g = grad(f, compile=compile)
        for rate in (1.0, 1.0, 3.0, 3.0, 1.0):
            package.rate = rate
            np.testing.assert_allclose(g(X), rate)
        assert g.cache_info().traces == 2


def test_what_cant_be_compared_is_traced_each_time(package):
    """An object, and a method of one that it has made."""
    g = grad(lambda x: np.sum(x) * (package.strange() is not None))
    for _ in range(2):
        np.testing.assert_allclose(g(X), 1.0)
    with pytest.warns(RuntimeWarning, match=r"foreign_test.py:\d+: .*Call it outside"):
        g(X)
    assert g.cache_info().traces == 3 and len(package.calls) == 3


def test_its_error_is_the_programs():
    """The program catches it, at each call."""
    from optree import _C

    def f(x):
        try:
            return np.sum(x) * _C.flatten(1, 2, 3, 4, 5)
        except Exception:
            return np.sum(x) * 7

    g = grad(f)
    for _ in range(2):
        np.testing.assert_allclose(g(X), 7.0)


def test_an_integer_argument_of_the_derivative_goes_in(package):
    """It is guarded, as everywhere."""
    g = grad(lambda x, n: np.sum(x) * package.length(n))
    for n in (1, 1, 2):
        np.testing.assert_allclose(g(X, n), n)
    assert g.cache_info().traces == 2


@pytest.mark.filterwarnings("ignore:.*three calls in a row")
def test_where_c_code_calls_it(package):
    """`map` and the like call it unseen, so that is traced each time."""
    g = grad(lambda x: np.sum(x) * sum(map(package.counted, [1.0])))
    assert [g(X)[0] for _ in range(3)] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("compile", MODES)
def test_methods_of_objects_in_c(compile):
    """Of one from outside, or one that the call makes; kiwisolver's say that they are of the
    package's own module, which is written in Python."""
    held = [kiwisolver.Variable("ab"), kiwisolver.Variable("abc")]
    name = held[1].name
    asked = {
        "looked up": lambda x: np.sum(x**2) * len(held[0].name()),
        "bound": lambda x: np.sum(x**2) * len(name()),
        "made": lambda x: np.sum(x**2) * len(kiwisolver.Variable("abcd").name()),
        "of a number": lambda x: np.sum(x**2) * gmpy2.mpz(9).bit_length(),
    }
    for f in asked.values():
        g = grad(f, compile=compile)
        for k in range(6):
            held[k % 2].setName("x" * (1 + k // 3))
            np.testing.assert_allclose(g(X), 2 * X * f(X) / np.sum(X**2))
        assert g.cache_info().traces <= 3


def test_lists_of_its_objects_that_are_repeated_or_joined():
    """`[x] * n` doesn't look into `x`."""
    losses = pytest.importorskip("sklearn._loss._loss")
    x, inner = losses.CyHalfSquaredError(), [2.0]

    def f(y):
        return (len([x] * 2) + len([x] + [x])) * ([inner] * 2)[1][0] * np.sum(y)

    g = grad(f, compile="never")
    assert [g(np.ones(1) * k)[0] for k in (1, 2, 3)] == [8.0, 8.0, 8.0]
    assert g.cache_info().traces == 1
    inner[0] = 3.0
    assert g(np.ones(1))[0] == 12.0
