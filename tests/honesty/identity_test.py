"""Which object it is"""

from __future__ import annotations

import copy
import enum
import functools
import math
import operator
import sys

import numpy as np
import pytest
from tests.honesty.check import refused

from tapegrad import grad, primitive, scan, vjp
from tapegrad.errors import ConversionError, UnsupportedError

# What is compiled is the same for all ways to ask.
UNCOMPILED = pytest.mark.parametrize("derivative", ["played", "nested"], indirect=True)
POINTS = (2.3, 0.4, 7.5, 2.4)
IS_TRUE = functools.partial(operator.is_, True)
ONE, THREE, LARGE = 1, 3, 1000


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Held:
    __match_args__ = ("flag",)

    def __init__(self, flag):
        self.flag = flag


# ---- patterns


def by_value(x):
    match x > 1:
        case True:
            return x**3
        case False:
            return x**2
    return x * 100


def by_tuple(x):
    match x > 1, x < 5:
        case (True, True):
            return x**3
        case (True, False):
            return x**2
        case (False, _):
            return 5 * x
    return x * 100


def by_mapping(x):
    match {"large": x > 1, "number": x}:
        case {"large": True, "number": float(y)}:
            return y**3
        case {"large": False, **others}:
            return others["number"] ** 2
    return x * 100


def by_class(x):
    match Held(x > 1):
        case Held(True):
            return x**3
        case Held(flag=False):
            return x**2
    return x * 100


def by_alternatives(x):
    match x > 1:
        case None | True:
            return x**3
        case bool(flag) if flag is False:
            return x**2
    return x * 100


@pytest.mark.parametrize("f", [by_value, by_tuple, by_mapping, by_class, by_alternatives])
def test_patterns_of_booleans(f, derivative):
    """`match x > 0: case True: ... case False: ...`, in tuples, mappings and classes too -> the
    case that plain Python takes; traced anew where it takes another one"""
    df = derivative(f)
    for x in POINTS:
        df.at(x)


def by_number(x, n):
    match n:
        case 1:
            return x**2
        case Level.HIGH:
            return x**3
        case int(k) if k is THREE:
            return x**4
    return 5 * x


@UNCOMPILED
def test_patterns_of_numbers(derivative):
    """`match n: case 1: ...`, an enum's member or a class -> the case that plain Python takes"""
    df = derivative(by_number)
    for n in (1, 2, 5, 1, 3):
        df.at(1.5, n)


# ---- is


def until_converged(x):
    converged = x > 100
    while converged is False:
        x = x * 2
        converged = x > 100
    return x


def flags_in_a_loop(x):
    total = 0.0
    for k in range(12):
        v = x * k - 3.1
        total = total + v if (v > 0) is True else total - v * v
    return total


def after_a_default(x, flag=None):
    flag = x > 1 if flag is None else flag
    return x**3 if flag is not None and flag is True else x**2


BOOLEANS = {
    "is True": lambda x: x**3 if (x > 1) is True else x**2,
    "is not False": lambda x: x**3 if (x > 1) is not False else x**2,
    "of two": lambda x: x**3 if (x > 1) is (x > 1.5) else x**2,
    "is None": after_a_default,
    "&": lambda x: x**3 if ((x > 1) & (x < 5)) is True else x**2,
    "or": lambda x: x**3 if (x > 1 or x < 0) is True else x**2,
    "bool, not": lambda x: x**3 if (not bool(x > 1)) is False else x**2,
    "max": lambda x: x**3 if max(x > 1, x > 2) is True else x**2,
    "an attribute": lambda x: x**3 if Held(x > 1).flag is True else x**2,
    "handed on": lambda x: (lambda p, q: x**3 if p is q else x**2)(x > 1, True),
    "a generator": lambda x: x**3 if any(v is True for v in [x > 1, x > 2]) else x**2,
    "filter": lambda x: x**3 if next(filter(None, [x > 1]), False) is True else x**2,
    "NumPy's": lambda x: x**3 if np.greater(x, 1) is np.True_ else x**2,
    "NumPy's of Python's": lambda x: x**3 if np.greater(x, 1) is True else x**2,
    "an element": lambda x: x**3 if (np.array([x, 1.5]) > 1)[0] is np.True_ else x**2,
    "any": lambda x: x**3 if (np.array([x, 0.5]) > 1).any() is np.False_ else x**2,
    "isfinite": lambda x: x**3 if np.isfinite(x) is np.True_ else x**2,
    "operator.is_": lambda x: x**3 if operator.is_(x > 1, True) else x**2,
    "operator.is_not": lambda x: x**3 if operator.is_not(x > 1, False) else x**2,
    "map": lambda x: x ** sum(map(operator.is_, [x > 1, x > 3], [True, True])),
    "partial": lambda x: x ** len([*filter(IS_TRUE, [x > 1, x > 3])]),
    "id": lambda x: x**3 if id(x > 1) == id(True) else x**2,
    "a loop": until_converged,
    "flags in a loop": flags_in_a_loop,
}


@pytest.mark.every(6)
@UNCOMPILED
@pytest.mark.parametrize("f", BOOLEANS.values(), ids=list(BOOLEANS))
def test_identity_of_booleans(f, derivative):
    """`(x > 0) is True`, `is not False`, `is np.True_`, `operator.is_`, `id(x > 0)` -> what plain
    Python answers; traced anew where it answers something else"""
    df = derivative(f)
    for x in POINTS:
        df.at(x)


def test_compiled_identity(derivative):
    """`while converged is False: ...` -> as played, also in compiled code"""
    df = derivative(until_converged)
    df.at(2.3)
    df.at(60.0)


NUMBERS = {
    "is 1": lambda x, n: x**2 if n is ONE else x**3,
    "a sum": lambda x, n: x**2 if n + 1 is ONE + 1 else x**3,
    "itself": lambda x, n: x**2 if n + 0 is n else x**3,
    "a copy": lambda x, n: x**2 if copy.copy(+n) is round(n) and n.real is n.numerator else x**3,
    "two arguments": lambda x, n: x**2 if n is (n > 1) or n is n * 1 else x**3,
    "True": lambda x, n: x**2 if n is True or n is Level.LOW else x**3,
    "a large one": lambda x, n: x**2 if n is LARGE else x**3,
    "divmod": lambda x, n: x**2 if divmod(n, 2)[1] is ONE else x**3,
    "id": lambda x, n: x**2 if id(n) in (id(1), id(2)) else x**3,
    "a real one": lambda x, n: x**2 if x is +x and x is float(x) and x is not x + 0 else x**3,
    "the larger": lambda x, n: x**2 if x is max(x, 0.5) and sum([x]) is not x else x**3,
    "in": lambda x, n: x**2 if n in [ONE, 300] and (n > 2) in (None, True) else x**3,
    "its conjugate": lambda x, n: x**2 if (y := np.float64(x)).conj() is y else x**3,
    "NaN": lambda x, n: x**2 if x in [math.nan, n * 0.5] or x in [x] else x**3,
}


@pytest.mark.filterwarnings("ignore:.*traced for three calls in a row")
@UNCOMPILED
@pytest.mark.parametrize("f", NUMBERS.values(), ids=list(NUMBERS))
def test_identity_of_numbers(f, derivative):
    """`n is 1`, `+n is n`, `x is float(x)`, `x in [nan]` -> what CPython answers: small integers
    are one object each, others new ones"""
    df = derivative(f)
    for n in (1, 2, 300, LARGE, 1):
        df.at(1.5, n)


def test_shapes_are_new_each_time(derivative):
    """`x.shape is x.shape` -> no, as of an array"""

    def f(x):
        first = x.shape
        same = (first is x.shape, first is first, x.T.shape is first)
        return np.sum(x**2) if same == (False, True, False) else np.sum(x)

    derivative(f).at(np.array([1.5, 2.5]))


ROUNDS = {
    "what is carried twice": lambda x, ab, v: (ab[1] * (2.0 if ab[0] is ab[1] else 3.0), ab[0]),
    "what it starts from": lambda x, ab, v: (ab[0] * (2.0 if ab[0] is x else 3.0), ab[1]),
    "a function": lambda x, ab, v: (ab[0] * (3.0 if operator.is_not(ab[0], ab[1]) else 2.0), ab[1]),
}


@pytest.mark.parametrize("body", ROUNDS.values(), ids=list(ROUNDS))
def test_what_a_loop_carries(body):
    """in the body of `scan`, which object it is that is carried -> refused; a new one is another"""
    steps = np.array([0.5, 1.5])
    with refused(UnsupportedError, "carried", "flag"):
        grad(lambda x: scan(lambda c, v: (body(x, c, v), None), (x, x), steps)[0][0])(1.5)

    def new(c, v):
        same = (c is c, c is v, c is None, c * 1.0 is c)
        return (c * v if same == (True, False, False, False) else c), None

    assert grad(lambda x: scan(new, x, steps)[0])(2.0) == 0.75


def test_arguments_that_are_known_outside():
    """`n is N` of a large integer, `id(W)` of an array that was passed -> that of the caller's
    object; traced at each call"""
    w, n = np.ones(2), int("1000")
    known = {id(w): 2.0}
    f = grad(lambda w, n: np.sum(w) * known.get(id(w), 3.0) * (5.0 if n is one else 7.0))
    for one in (n, 2000, n):
        factor = 5.0 if one is n else 7.0
        np.testing.assert_array_equal(f(w, n), np.full(2, 2.0 * factor))
        np.testing.assert_array_equal(f(w.copy(), n), np.full(2, 3.0 * factor))


def test_arguments_of_an_inner_derivative():
    """an inner derivative's argument `is` a value of the function around it, or a captured array ->
    it is, as without a trace"""
    w = np.array([1.0, 2.0])

    def f(x):
        inner = grad(lambda y, v: np.sum(v) * (y**3 if y is x and v is w else y**2))
        return inner(x, w) + inner(x * 1, w) + inner(x, w + 0)

    assert grad(f)(1.5) == 3 * (6 * 1.5 + 2 + 2)


def test_identity_that_cannot_be_answered():
    """whether a large integer is one that was computed from it by `abs(n)`, `n % m` or
    `n ** 1`, whether a list holds the very NaN that is looked for -> UnsupportedError"""
    for of in (abs, lambda n: n % 2**40, lambda n: n**1):
        for f in (
            lambda x, n, of=of: x * 2 if of(n) is n else x,
            lambda x, n, of=of: x * 2 if n is of(n) else x,
        ):
            df = grad(f, 0)
            df(1.5, 7)
            with refused(UnsupportedError, "two equal integers are one object", "x == y"):
                df(1.5, LARGE)
    with refused(UnsupportedError, "the same NaN", "isnan"):
        grad(lambda x, y: x * 2 if math.nan in [y] else x)(1.5, math.nan)


@pytest.mark.every(4)
@pytest.mark.parametrize("f", [by_value, by_tuple, by_class, until_converged, *BOOLEANS.values()])
def test_identity_where_nobody_watches(f):
    """the same where a debugger has `sys.settrace` -> what plain Python answers: there booleans are
    Python's own, and guarded"""
    df, before = grad(f, compile="never"), sys.gettrace()
    wanted = [df(x) for x in POINTS]
    sys.settrace(lambda *event: None)
    try:
        found = [grad(f, compile="never")(x) for x in POINTS]
        pulled = [vjp(f, x)[1](1.0) for x in POINTS]
    finally:
        sys.settrace(before)
    assert found == wanted == pulled


def test_identity_in_a_rule():
    """`(x > 0) is True` in a rule of `defvjp`, where types alone are known -> ConversionError"""
    from tapegrad import defvjp

    @primitive
    def cubed(x):
        return x**3

    defvjp(cubed, lambda ct, out, x: ct * 3 * x**2 if (x > 0) is np.True_ else ct)
    with refused(ConversionError, "where only shapes and dtypes are known"):
        grad(lambda x: cubed(np.float64(x)))(2.0)
