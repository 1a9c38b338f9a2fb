"""The cache: what makes a call a new one, and who shares."""

from __future__ import annotations

import enum
import gc
import weakref
from collections import OrderedDict, namedtuple
from functools import wraps

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import ArgumentError
from tapegrad.runtime import cache
from tapegrad.runtime.tier import Tier


def grad(f, **options):
    return tg.grad(f, compile="never", **options)


def fresh(f):
    """Another function that does the same, with a cache of its own."""

    @wraps(f)
    def again(*args, **kwargs):
        return f(*args, **kwargs)

    return again


def total(x, *rest, **options):
    """A function of anything: the sum of the arrays and numbers in x."""
    if isinstance(x, dict):
        x = list(x.values())
    return sum(map(total, x)) if isinstance(x, (list, tuple)) else np.sum(x * 1.0)


X = np.ones((2, 3))
Pair = namedtuple("Pair", "a b")


class Mode(enum.IntEnum):
    FAST = 1
    EXACT = 2


# Pairs of calls that need tapes of their own.
DIFFERENT = {
    "shape": ((X,), (np.ones((3, 2)),)),
    "rank": ((X,), (np.ones(6),)),
    "dtype": ((X,), (X.astype(np.float32),)),
    "dtype of another argument": ((X, np.arange(2)), (X, np.arange(2.0))),
    "array and 0-d array": ((np.ones(1),), (np.array(1.0),)),
    "0-d array and NumPy scalar": ((np.array(1.0),), (np.float64(1.0),)),
    "NumPy scalar and Python number": ((np.float64(1.0),), (1.0,)),
    "0-d array and Python number": ((np.array(1.0),), (1.0,)),
    "integer and float": ((X, 2), (X, 2.0)),
    "integer and boolean": ((X, 1), (X, True)),
    "number and array": ((X, 2.0), (X, X)),
    "list and tuple": (([X, X],), ((X, X),)),
    "tuple and named tuple": (((X, X),), (Pair(X, X),)),
    "dict and ordered dict": (({"a": X},), (OrderedDict(a=X),)),
    "length": (([X],), ([X, X],)),
    "nesting": (([X, X],), ([[X, X]],)),
    "dict keys": (({"a": X},), ({"b": X},)),
    "kinds of dict keys": (({1: X},), ({"1": X},)),
    "strings": ((X, "mean"), (X, "sum")),
    "booleans": ((X, True), (X, False)),
    "None and False": ((X, None), (X, False)),
    "None and a number": ((X, None), (X, 1.0)),
    "enumerations": ((X, Mode.FAST), (X, Mode.EXACT)),
    "enumeration and integer": ((X, Mode.FAST), (X, 1)),
    "NumPy strings": ((X, np.str_("ab")), (X, np.str_("cd"))),
    "functions": ((X, np.sin), (X, np.cos)),
    "number of arguments": ((X,), (X, 1.0)),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_calls_that_differ_are_traced_apart(one, other):
    df = grad(fresh(total))
    for _ in range(3):
        df(*one)
        df(*other)
    assert df.cache_info() == (4, 2, 2, 0, 0, 2, 0, 0, 0)


def test_keyword_and_positional_arguments_are_traced_apart():
    df = grad(fresh(total))
    df(X, 1.0)
    df(X, y=1.0)
    df(X, z=1.0)
    assert df.cache_info().traces == 3


# Pairs of calls that one tape answers.
ALIKE = {
    "values": ((X,), (2 * X,)),
    "Python floats": ((1.0,), (2.0,)),
    "read-only": ((np.ones(3),), (np.frombuffer(np.ones(3).tobytes()),)),
    "equal strings": ((X, "a b"), (X, " ".join("ab"))),
}


@pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=ALIKE)
def test_calls_that_differ_in_values_alone_share_a_tape(one, other):
    df = grad(fresh(total))
    df(*one)
    df(*other)
    assert df.cache_info() == (1, 1, 1, 0, 0, 1, 0, 0, 0)


def test_an_unused_integer_may_change():
    df = grad(lambda x, n: x * n)
    assert [df(2.0, n) for n in (3, 4, 5)] == [3.0, 4.0, 5.0]
    assert df.cache_info().traces == 1


def test_objects_are_told_apart_even_if_they_cant_be_hashed():
    class Settings:
        __hash__ = None

        def __init__(self, factor):
            self.factor = factor

    df = grad(lambda x, s: x * s.factor)
    assert [df(1.0, Settings(k)) for k in (2.0, 3.0, 4.0)] == [2.0, 3.0, 4.0]


@pytest.mark.parametrize("changeable", [{1, 2}, bytearray(b"ab"), iter("ab")], ids=type)
def test_values_that_change_unnoticed_are_refused(changeable):
    with pytest.raises(ArgumentError, match="which can change without notice"):
        grad(total)(X, changeable)


def test_masked_arrays_are_refused_even_after_an_array_of_the_same_shape():
    df = grad(fresh(total))
    df(X)
    with pytest.raises(ArgumentError, match="MaskedArray"):
        df(np.ma.masked_array(X))


# ---- who shares a cache


def test_grad_of_one_function_is_one_derivative():
    f = fresh(total)
    for _ in range(3):
        grad(f)(X)
    assert tg.cache_info(f).traces == 1
    assert grad(f).cache_info() == tg.cache_info(f)


def test_other_options_are_another_derivative():
    f = fresh(total)
    grad(f)(X)
    grad(f, argnums=(0,))(X)
    tg.value_and_grad(f, compile="never")(X)
    tg.jit(f, compile="never")(X)
    assert tg.cache_info(f).traces == 4


def test_a_wrapper_doesnt_share_with_what_it_wraps():
    """`functools.wraps` copies a function's attributes."""
    f = fresh(total)

    @wraps(f)
    def doubled(x):
        return 2 * f(x)

    assert grad(f)(1.0) == 1.0
    assert grad(doubled)(1.0) == 2.0


def test_a_method_shares_with_itself_and_not_with_those_of_equal_objects():
    class Scale:
        def __init__(self, factor):
            self.factor = np.array(factor)

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

        def times(self, x):
            return x * self.factor

    two, three = Scale(2.0), Scale(3.0)
    for _ in range(2):
        assert grad(two.times)(1.0) == 2.0
        assert grad(three.times)(1.0) == 3.0
    assert grad(two.times).cache_info() == (1, 1, 1, 0, 0, 1, 0, 0, 0)


def test_a_cache_is_freed_with_its_function():
    def once():
        captured = np.ones(1000)

        def f(x):
            return (x * captured).sum()

        assert grad(f)(np.ones(1000)).sum() == 1000
        assert grad(lambda x: grad(f)(x).sum())(np.ones(1000)).sum() == 0
        return weakref.ref(f)

    gc.collect()
    before = len(cache.caches_of())
    functions = [once() for _ in range(3)]
    gc.collect()
    assert [f() for f in functions] == [None, None, None]
    assert len(cache.caches_of()) == before


def test_the_arrays_of_the_first_call_are_not_kept():
    def f(x):
        return x.sum(), {"aux": x * 2}

    x = np.ones(3)
    alive = weakref.ref(x)
    df = grad(f, has_aux=True)
    df(x)
    del x
    gc.collect()
    assert alive() is None
    assert all(leaf is None for v in df.cache.all_variants() for leaf in v.traced.leaves)


# ---- its size, its counts, and clearing it


def test_only_the_most_recent_signatures_are_kept(monkeypatch):
    monkeypatch.setattr(cache, "MAX_SIGNATURES", 3)
    df = grad(fresh(total))
    for n in range(1, 4):
        df(np.ones(n))
    with pytest.warns(RuntimeWarning, match="more than 3 kinds of arguments"):
        df(np.ones(4))
    df(np.ones(5))
    assert df.cache_info().variants == 3
    df(np.ones(5))
    df(np.ones(1))
    assert df.cache_info()[:3] == (1, 6, 6)


def test_clearing_forgets_everything():
    f, g = fresh(total), fresh(total)
    for h in (f, g):
        grad(h)(X)
    tg.clear_cache(f)
    assert tg.cache_info(f) == (0, 0, 0, 0, 0, 0, 0, 0, 0)
    assert tg.cache_info(g).traces == 1
    df = grad(g)
    df.clear_cache()
    assert df.cache_info().variants == 0
    np.testing.assert_array_equal(df(X), X)
    assert df.cache_info().traces == 1


def test_all_caches_together():
    tg.clear_cache()
    f, g = fresh(total), fresh(total)
    for h in (f, g, f):
        grad(h)(X)
    assert tg.cache_info() == (1, 2, 2, 0, 0, 2, 0, 0, 0)
    tg.clear_cache()
    assert tg.cache_info() == (0, 0, 0, 0, 0, 0, 0, 0, 0)


def test_the_tapes_are_there_to_be_looked_at():
    df = grad(lambda x: np.sin(x).sum())
    df(np.ones(2))
    df(np.ones(3))
    assert [str(tape.inputs[0].aval) for tape in df.tapes] == ["f8[3]", "f8[2]"]


@pytest.mark.parametrize("compile", ["never", "always"])
def test_a_write_through_a_reshape_depends_on_the_layout(compile):
    """A reshape of a Fortran-ordered array is a copy, so NumPy's write doesn't reach the array."""

    def f(x):
        y = x * 1.0
        y.reshape(-1)[0] = 0.0
        return np.sum(y**2)

    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    columns = np.asfortranarray(rows)
    df = tg.value_and_grad(f, compile=compile)
    for x in (rows, columns, rows):
        value, gradient = df(x)
        assert value == f(x)
        assert gradient[0, 0] == (0.0 if x is rows else 2.0)
    assert df.cache_info().traces == 2


def in_a_loop(a):
    def f(x):
        for k in range(40):
            x = x * 0.9 + a[k]
        return x

    return f


def with_a_made_array(a):
    def f(x):
        y = np.zeros(3)
        y[0] = x * a[0]
        return np.sum(y)

    return f


class Model:
    def __init__(self, a):
        self.a, self.calls, self.history = a, 0, []

    def loss(self, x):
        self.calls += 1
        self.history.append(np.sum(self.a * x))
        self.last = x * self.a
        return np.sum(self.last)


CLOSURES = {
    "values kept on an object": lambda a: Model(a).loss,
    "operators": lambda a: lambda x: np.sum(a * x),
    "a loop": in_a_loop,
    "an array that is made": with_a_made_array,
    "a derivative inside": lambda a: lambda x: tg.grad(lambda y: np.sum(a * y * x))(x),
}


@pytest.mark.every(8)
@pytest.mark.parametrize("name", CLOSURES)
@pytest.mark.parametrize("compile", ["never", "always"])
def test_a_derivative_is_freed_with_its_last_reference(name, compile):
    """The function, what it closes over and its tapes: by counting, without a collector."""
    a = np.linspace(1.0, 2.0, 50)
    f = CLOSURES[name](a)
    df = tg.grad(tg.grad(f, compile=compile), compile=compile)
    gc.collect()
    gc.disable()
    try:
        for x in (1.0, 2.0):
            df(x)
            tg.vjp(f, x)[1](1.0)
            tg.trace(f, x)
        held = [weakref.ref(x) for x in (a, getattr(f, "__self__", f), df, df.cache)]
        del a, f, df
        assert [x() for x in held] == [None] * 4
    finally:
        gc.enable()


def test_a_class_of_a_function_is_freed():
    """A class that a function has defined goes with the derivatives of its methods."""

    def made():
        class Local:
            scale = 2.0

            def f(self, x):
                return np.sum(self.scale * x**2)

        tg.grad(Local().f, compile="never")(np.ones(2))
        return weakref.ref(Local)

    held = made()
    gc.collect()  # a class is in a cycle with itself
    assert held() is None


@pytest.mark.filterwarnings("ignore:.* calls in a row")
def test_the_code_of_a_path_that_is_taken_once_is_not_looked_for(monkeypatch):
    """Where each of nine calls took another path, that of the next one waits for its third call."""
    sought = []
    monkeypatch.setattr(Tier, "_kept", lambda tier: sought.append(tier))

    def f(x):
        s = np.sin(x[0]) if x[0] > 0 else x[0]
        s = s * np.sin(x[1]) if x[1] > 0 else s + x[1]
        s = s * np.sin(x[2]) if x[2] > 0 else s + x[2]
        return s * np.sin(x[3]) if x[3] > 0 else s + x[3]

    g = tg.grad(f)
    points = [np.array([1.0 if n >> k & 1 else -1.0 for k in range(4)]) for n in range(16)]
    for x in points:
        g(x)
    assert g.cache_info().traces == 16
    assert len(sought) == 9
    expected = [g(points[-1]) for _ in range(3)]
    assert len(sought) == 10
    assert all(np.array_equal(found, tg.grad(f, compile="never")(points[-1])) for found in expected)
