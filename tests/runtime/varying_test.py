"""Integers that differ from call to call: traced again once, where the tape can compute with them;
and warnings about what is traced at each call."""

from __future__ import annotations

import linecache
import math
import operator
from typing import Any

import numpy as np
import pytest

from tapegrad import jit, trace, value_and_grad

X = np.array([0.5, -1.5, 0.0, 2.0])
V = np.arange(4)
MANY = (2, 3, 0, 1, -1, -2, 5, -7, 10, 63, 64, 100, -100, 1000, 2**31, 2**62, -(2**62), 4)
FEW = (2, 3, 0, 1, 5, 7, 12, 4)
TINY = (2, 3, 0, 1, -1, -5, 9, 4)


def made(text: str) -> Any:
    """The function of x, s and n with this result."""
    name, source = f"<{text}>", f"def f(x, s, n):\n    return np.sum({text})\n"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    names = {"np": np, "math": math, "operator": operator, "V": V}
    exec(compile(source, name, "exec"), names)
    return names["f"]


def outcome(f: Any, *args: Any) -> Any:
    with np.errstate(all="ignore"):
        try:
            return f(*args)
        except (ArithmeticError, ValueError) as error:
            return type(error)


@pytest.mark.parametrize(
    ("text", "calls", "most"),
    [
        ("x * 0.9 ** n", MANY, 1),
        ("x * 2.0 ** n", MANY, 1),
        ("x * (-1) ** n", MANY, 3),  # an integer, or a float for negative exponents
        ("x * 2 ** n", (*FEW, 70), 2),
        ("x * n ** n", FEW, 2),
        ("x ** n", MANY, 2),
        ("x[0] ** n", MANY, 2),
        ("s ** n", MANY, 3),  # it may overflow
        ("x ** (n // 2)", MANY, 2),
        ("((x + 1j) ** n).real", TINY, 2),
        ("x * math.exp(n)", TINY, 2),
        ("x * float(n)", MANY, 2),
        ("x * math.floor(n)", MANY, 1),
        ("x * operator.index(n)", MANY, 1),
        ("x * math.factorial(n)", (*FEW, -1, 30), 4),
        ("x * math.comb(n, 3)", FEW, 2),
        ("x * math.gcd(n, 12)", MANY, 2),
        ("x * n.bit_length()", MANY, 2),
        ("x * round(n, -1)", MANY, 3),
        ("np.roll(x, n) * V", MANY, 2),
        ("np.roll(x.reshape(2, 2), n, axis=1).ravel() * V", MANY, 2),
        ("np.round(x * 123.456, n) + x", TINY, 3),
        ("np.arange(n, n + 4) * x", MANY, 3),
    ],
)
def test_the_tape_computes_with_an_integer(text, calls, most):
    """The second trace is for any integer: values, errors and slopes are those of a function of
    that integer alone."""
    f = made(text)
    df = value_and_grad(f, (0, 1), compile="never")
    for n in calls:
        expected, found = outcome(f, X, 1.25, n), outcome(df, X, 1.25, n)
        if isinstance(expected, type):
            assert found is expected, n
            continue
        assert found[0] == pytest.approx(expected, rel=1e-14, abs=0, nan_ok=True), n
        of_one = outcome(value_and_grad(lambda x, s, n=n: f(x, s, n), (0, 1)), X, 1.25)
        for slope, own in zip(found[1], of_one[1], strict=True):
            np.testing.assert_allclose(slope, own, rtol=1e-12)
    assert df.cache_info().traces <= most


def test_powers_of_integers_wrap_around():
    """Compiled powers of integers are NumPy's for exponents of any size."""
    power = jit(lambda x, n: x**n, compile="always")
    for n in (0, 1, 2, 5, 70, 70_000, 2**31 + 1, 2**62 + 1):
        assert np.array_equal(power(V - 2, np.int64(n)), (V - 2) ** np.int64(n))


def cut(x, n):
    return np.sum(x[:n])


def labelled(x, name):
    return np.sum(x)


def looked_up(x, n):
    return np.sum(x) * {1: 2.0, 2: 3.0, 3: 4.0, 4: 5.0}[n]


@pytest.mark.parametrize(
    ("f", "calls", "words"),
    [
        (cut, (1, 2, 3, 4), ("an integer used as an index", "x[:n]", "mask")),
        (looked_up, (1, 2, 3, 4), ("looked up", "varying_test.py", "np.array")),
        (labelled, ("a", "b", "c", "d"), ("argument 'name'", "each str", "leave it out")),
    ],
)
def test_what_changes_at_each_call_is_told(f, calls, words):
    """The fourth trace in a row for one reason warns: what, where, and what to do."""
    df = value_and_grad(f, compile="never")
    for x in calls[:-1]:
        df(X, x)
    with pytest.warns(RuntimeWarning, match="traced for four calls in a row") as told:
        df(X, calls[-1])
    assert all(word in str(told[0].message) for word in words)


def test_few_values_are_not_told():
    """Arguments that come again are no reason for a warning, and neither are two flags."""
    df = value_and_grad(labelled, compile="never")
    for name in ("a", "b", True, False, None, "a", "b") * 3:
        df(X, name)


def test_an_exponent_needs_no_advice():
    """`explain` says of a trace after which the tape computes with the exponent what has changed,
    and advises nothing."""
    df = value_and_grad(lambda x, n: np.sum(x**n), compile="never")
    df(X, 2)
    told = df.explain(X, 3).traces[-1]
    assert "What has changed is an integer exponent" in told and told.endswith(") (2 --> 3)")


WEIGHTS = np.linspace(0, 1, 4)


class Model:
    def __init__(self):
        self.bias = np.linspace(1, 2, 4)


def test_the_line_that_makes_an_array_is_shown():
    """A tape, a profile and `explain` show where the program makes an array, not where it reads it
    first: globals, variables around the function, attributes, and what the function makes."""
    around, model = np.linspace(2, 3, 4), Model()

    def f(x):
        own = np.cos(np.arange(4.0))
        own = own * own
        return np.sum(own * (WEIGHTS * x + model.bias + around))

    df = value_and_grad(f, compile="never")
    df(X)
    lines = linecache.getlines(__file__)
    wanted = ["own = own * own", "WEIGHTS = ", "self.bias =", "around, model ="]
    places = [next(k for k, x in enumerate(lines, 1) if w in x) for w in wanted]
    for tape in (df.tape, trace(f, X)[1]):
        assert all(f"made at varying_test.py:{place}\n" in str(tape) for place in places)
    found = {x.line for x in df.profile(X, calls=1).buffers if x.name.startswith("constant")}
    assert {f"varying_test.py:{place}" for place in places} <= found
