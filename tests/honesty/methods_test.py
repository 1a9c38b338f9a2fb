"""Attributes and methods of numbers"""

from __future__ import annotations

import collections.abc
import copy
import functools
import io
import math
import numbers
import operator
import pickle
import typing
import zlib
from array import array
from fractions import Fraction

import numba
import numba.experimental
import numpy as np
import pytest
import scipy.integrate
import scipy.ndimage
import scipy.optimize
import scipy.signal
from scipy import stats
from tests.debugged import unobserved
from tests.honesty.check import refused
from tests.honesty.kinds import KINDS, PYTHONS, differences, outcome

from tapegrad import grad, hessian, jit, vjp
from tapegrad.errors import ConversionError, GradientError, TapegradError, UnsupportedError

# Where `hasattr` says otherwise: what NumPy and `copy` look for on whatever they are handed;
SOUGHT = {"__array__", "__array_ufunc__", "__array_function__", "__copy__", "__deepcopy__"}
# what belongs to memory, classes and pickling, which a tracer has none of;
ABSENT = {"__array_interface__", "__array_struct__", "__array_wrap__", "__array_finalize__"}
ABSENT |= {"__dlpack__", "__dlpack_device__", "__class_getitem__"}
ABSENT |= {"__getnewargs__", "__getformat__", "__setstate__"}
# and what math.floor and its like would take a plain float without.
WHOLE = {"__floor__", "__ceil__"}

ABCS = [getattr(collections.abc, n) for n in collections.abc.__all__]
ABCS += [getattr(numbers, n) for n in numbers.__all__]
ABCS += [getattr(typing, n) for n in dir(typing) if n.startswith("Supports")]
ABCS += [int, float, bool, complex, str, np.ndarray, np.generic, np.number, np.integer]
ABCS += [np.floating, np.float64, np.float32, np.int64, np.bool, object]


@functools.singledispatch
def dispatched(x):
    return "anything"


for cls in (int, float, bool, np.ndarray, np.floating, np.integer, numbers.Number):
    dispatched.register(cls, lambda x, name=cls.__name__: name)


def matched(x):
    match x:
        case [_, _]:
            return "sequence"
        case {}:
            return "mapping"
        case bool():
            return "bool"
        case int(n):
            return "int", n
        case float():
            return "float"
        case np.float32() | np.ndarray():
            return "numpy"
    return "nothing"


QUESTIONS = {
    "ABCs": lambda x: [isinstance(x, a) for a in ABCS],
    "dir": dir,
    "name": lambda x: type(x).__name__,
    "class": lambda x: x.__class__.__name__,
    "callable": callable,
    "isscalar": np.isscalar,
    "ndim": np.ndim,
    "shape": np.shape,
    "iterable": np.iterable,
    "length_hint": lambda x: operator.length_hint(x, 7),
    "hash": lambda x: hash(x) == 0 and None,
    "len": len,
    "iter": lambda x: len(list(x)),
    "in": lambda x: 2.5 in x,
    "[0]": lambda x: x[0] * 1,
    "[None]": lambda x: x[None] * 1,
    "[0] =": lambda x: operator.setitem(x, 0, 1.0),
    "del [0]": lambda x: operator.delitem(x, 0),
    "call": lambda x: x(),
    "dispatched": dispatched,
    "matched": matched,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "reversed": lambda x: len(list(reversed(x))),
    "next": next,
    "index": operator.index,
    "int": int,
    "round": round,
    "round to 1": lambda x: round(x, 1),
    "floor": math.floor,
    "isqrt": math.isqrt,
    "sqrt": math.sqrt,
    "bool": lambda x: bool(x),
    "complex": complex,
    "range": lambda x: len(range(x)),
    "in table": lambda x: x in {3: 1, 0: 2},
    "== text": lambda x: [x == "auto", x != "auto", x == None, x != None],  # noqa: E711
    "in choices": lambda x: x in ("fro", None, 3),
    "raised": lambda x: [1.0] + [x, 2.0][:1],
    "sum": lambda x: sum([x, x]),
    "max": lambda x: max(x, 1),
    "abs": abs,
    "negated": operator.neg,
    "positive": operator.pos,
    "inverted": operator.invert,
    "pow of three": lambda x: pow(x, 2, 5),
    "range of itself": lambda x: (2,) * x,
    "shape of itself": lambda x: np.ones((2,) * x).ndim,
}
# What is refused: a plain float would lose its derivative, and a key would outlive the trace.
REFUSED = {"hash", "sqrt"}


@pytest.mark.every(6)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_questions(kind):
    """what a number or an array is: `isinstance` of every ABC and protocol, `dir`, `len`, `iter`,
    `in`, `callable`, `copy`, `match`, `singledispatch`, `range`, `round`, `x == "auto"` -> as
    untraced, errors included; `hash` and plain floats are refused"""
    make, values = KINDS[kind]
    wrong, refused = differences(
        lambda x: {n: outcome(lambda f=f: f(make(x))) for n, f in QUESTIONS.items()}, values
    )
    assert not wrong
    assert refused <= REFUSED | ({"in table"} if "complex" in kind else set())


NAMES = {n for k in (int, float, bool, np.float64, np.int64, np.ndarray) for n in dir(k)}
NAMES |= {"unknown", "value", "aval", "read", "root", "write", "bind", "tape", "trace"}


@pytest.mark.every(3)
@pytest.mark.parametrize("kind", KINDS)
def test_attributes(kind):
    """`hasattr(x, name)` for every attribute of Python's numbers and of NumPy's -> as untraced, but
    for NumPy's protocols; what belongs to memory (`x.flags`) is refused"""
    make, values = KINDS[kind]
    asked = NAMES - SOUGHT - ABSENT - WHOLE
    wrong, refused = differences(
        lambda x: {n: outcome(lambda n=n: hasattr(make(x), n)) for n in sorted(asked)}, values[:1]
    )
    assert not wrong
    assert refused <= {"flags", "data", "strides", "base", "device", "ctypes"}


def test_arrays_are_asked_for(derivative):
    """`hasattr(x, "__array__")` and `getattr(x, "__array__", None)` -> no of a Python number"""

    def f(x):
        return x**2 if hasattr(x, "__array__") or getattr(x, "__array__", None) else x**3

    df = derivative(f)
    df.at(2.0, gradient=12.0)
    df.at(np.float64(2.0))
    df.at(3.0, gradient=27.0)


def called(make):
    """A program that calls every method of a number."""
    arguments = {"to_bytes": (2, "big"), "from_bytes": (b"1", "big"), "fromhex": ("0x1p0",)}

    def use(x, name):
        found = getattr(x, name)
        return found(*arguments.get(name, ())) if callable(found) else found

    def program(x):
        names = [n for n in dir(make(x)) if not n.startswith("_")]
        return {n: outcome(use, make(x), n) for n in names}

    return program


@pytest.mark.parametrize("kind", PYTHONS)
def test_methods(kind):
    """every attribute and method of int, float and bool: `n.bit_length()`, `x.is_integer()`,
    `x.hex()`, `n.to_bytes(2)`, `x.real` -> as untraced, at each call; `x.as_integer_ratio()` of a
    float is refused"""
    make, values = KINDS[kind]
    wrong, refused = differences(called(make), values)
    assert not wrong
    assert refused <= ({"as_integer_ratio"} if kind == "float" else set())


CALLS = {
    "powers": (
        lambda k: k**2,
        [1e200, 2.0, -1e200, math.inf, math.nan, 1e200],
    ),
    "powers of two": (lambda x, y: x**y, [(-2.0, math.inf), (1e9, 40.0), (2.0, 3.0), (0.0, -1.0)]),
    "comparisons with 2**53": (
        lambda n: [op(n, 2.0**53) for op in COMPARED] + [op(2.0**53, n) for op in COMPARED],
        [2**53 + 1, 2**53, 3, 2**53 - 1, -(2**53) - 1],
    ),
    "comparisons": (
        lambda n, x: [op(n, x) for op in COMPARED] + [op(x, n) for op in COMPARED],
        [(2**53 + 1, 2.0**53), (2**53, 2.0**53), (3, 3.0), (2**53 - 1, 2.0**53 - 0.5), (5, 1e300)]
        + [(2**60 + 1, 2.0**60), (2**60, math.inf), (2**60, math.nan), (-(2**60) - 1, -(2.0**60))],
    ),
    "comparisons with integers": (
        lambda x: [op(x, n) for op in COMPARED for n in (2**53 + 1, 2**80, 2**80 + 1, 10**400)],
        [2.0**53, 2.0**53 + 2, 2.0**80, math.inf, -math.inf, math.nan],
    ),
    "quotients of integers": (
        lambda n, m: [n / m, n // m, n % m, *divmod(n, m)],
        [(2**60 + 1, 3), (-7, 2), (7, -2), (0, -3), (1, 0), (2**62 - 1, 2**61 + 1)],
    ),
    "quotients of floats": (
        lambda x, y: [x / y, x // y, x % y, *divmod(x, y)],
        [(-7.5, 2.0), (7.5, -2.0), (-0.0, 3.0), (0.0, -3.0), (5.0, math.inf), (1.0, 0.0)],
    ),
    "large integers": (
        lambda n: [n & 2**70, n // 2**70, n % 2**70, n < 2**70, n == 2**70, pow(n, 3, 5)],
        [5, 77, -3],
    ),
    "integers of floats": (
        lambda x: [int(x), round(x), math.floor(x), math.ceil(x), math.trunc(x)],
        [2.5, -2.5, 1e300, math.nan, math.inf, 2.5],
    ),
    "round(n, digits)": (lambda n: [round(n, -2), round(n), round(n, 1)], [1250, 1350, -1250]),
    "math": (
        lambda n: [math.sqrt(n), math.gcd(n, 6), math.factorial(n), math.comb(n, 2), math.log(n)],
        [4, 6, 0],
    ),
    "tables": (lambda n: [{1: 2.0}.get(n), n in {1: 2}, {1: 2, 3: 4}[n]], [1, 3, 2]),
}
COMPILED = {"powers", "comparisons", "quotients of floats"}
COMPARED = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["never", "always"])
def test_arithmetic(how):
    """powers that overflow, comparisons beyond 2**53, quotients, remainders and their signs, large
    integers, `math` of integers, lookups -> as in Python, errors included, at each call"""
    for name, (f, calls) in CALLS.items():
        if how == "always" and name not in COMPILED:
            continue
        calls = [c if isinstance(c, tuple) else (c,) for c in calls]
        wrong, refused = differences(lambda args, f=f: {"": outcome(f, *args)}, calls, how)
        assert not wrong, name
        assert not refused, name


def test_errors_that_are_caught(derivative):
    """the program catches the OverflowError of a power -> its path at later calls, too"""

    def f(x):
        try:
            return x**2 * 1.0
        except OverflowError:
            return 7 * x

    df = derivative(f)
    df.at(2.0, gradient=4.0)
    df.at(1e200, gradient=7.0)
    df.at(3.0, gradient=6.0)


@pytest.mark.parametrize("digits", [0, 1, 2, 5, -1, -2])
def test_rounding_to_digits(digits):
    """`round(x, digits)` -> Python's, to the last bit, at ties and next to them; beyond the digits
    of a float it is refused"""
    rng = np.random.default_rng(0)
    ties = [*(np.arange(-20, 20) + 0.5) / 10.0**digits, *(np.arange(40) * 2 + 1) / 200]
    x = [*(rng.normal(size=40) * 10 ** rng.uniform(-3, 5, 40)), *ties, 2.675, 1.005]
    x += [0.0, -0.0, 1e-310, 1e300 if digits >= 0 else 1e15, math.inf, -math.inf]
    f = jit(lambda x: round(x, digits), compile="never")
    for value in map(float, x):
        found, expected = f(value), round(value, digits)
        assert (found, np.signbit(found)) == (expected, np.signbit(expected))
    with refused(ConversionError, "more digits"):
        jit(lambda x: round(x, 15 if digits >= 0 else digits))(12345.678 if digits >= 0 else 1e17)


def test_refusals_that_are_caught():
    """the program or a library catches the error that refuses a plain float or array, or another
    call -> the error all the same: what comes then isn't what plain Python computes"""

    def guessed(x):
        try:
            return array("d", [x])[0] * x
        except TypeError:
            return 3.0 * x

    with refused(ConversionError, "plain Python float"):
        grad(guessed)(2.0)
    with refused(ConversionError, "as_integer_ratio"):
        grad(lambda x: float(Fraction(x)))(2.0)
    calls = [
        ("float16", lambda x: np.exp(x > 0)),
        ("pickled", lambda x: len(pickle.dumps([x]))),
        ("memoryview", lambda x: memoryview(x)[0]),
        ("frombuffer", np.frombuffer),
        ("crc32", zlib.crc32),
        ("BytesIO", lambda x: len(io.BytesIO(x).getvalue())),
    ]
    for word, call in calls:

        def attempted(x, call=call):
            try:
                return np.sum(x * call(x))
            except (TypeError, NotImplementedError):
                return np.sum(x)

        with refused((ConversionError, UnsupportedError), word):
            jit(attempted, compile="never")(np.array([1.0, 2.0]))


def test_refusals_of_inner_derivatives_that_are_caught():
    """the program catches the error that refuses an inner derivative -> its path, as untraced"""

    def inner(x):
        try:
            return np.sum(grad(lambda y: float(Fraction(y[0])))(x))
        except ConversionError:
            return np.sum(x**2)

    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert inner(x) == 30.0
    np.testing.assert_allclose(grad(inner, compile="never")(x), 2 * x)


ROOTS = {
    "brentq": lambda a: scipy.optimize.brentq(lambda x: x * x - a, 0.0, 2.0),
    "its bracket": lambda a: scipy.optimize.brentq(lambda x: x * x - 2.0, 0.0, a),
    "root_scalar": lambda a: scipy.optimize.root_scalar(lambda x: x - a, bracket=(0.0, 3.0)).root,
    "newton": lambda a: scipy.optimize.newton(lambda x: x * x - 2.0, a),
    "toms748": lambda a: scipy.optimize.toms748(lambda x: x * x - a, 0.0, 2.0),
    "quad": lambda a: scipy.integrate.quad(lambda x: a * x, 0.0, 1.0)[0],
}


@pytest.mark.parametrize("f", ROOTS.values(), ids=ROOTS)
def test_root_finders(f):
    """SciPy's root finders and integrators on traced functions -> followed: what they find is a
    function of what the traced function reads"""
    df = grad(f)
    for a in (2.0, 1.7):
        slope = (f(a + 1e-6) - f(a - 1e-6)) / 2e-6
        assert df(a) == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.every(2)
@pytest.mark.parametrize("f", [np.sin, math.exp, stats.norm.pdf, numba.njit(lambda x: x * x)])
def test_functions_of_libraries_that_scipy_is_passed(f):
    """these on functions of NumPy's, SciPy's and `math`, and on such as numba compiled -> followed,
    too"""
    df = grad(lambda a: scipy.integrate.quad(f, 0.0, a)[0])
    assert df(1.3) == pytest.approx(f(1.3), rel=1e-9)


def test_integrands_that_jump():
    """SciPy's integral of what jumps where a traced value says -> an error if it is differentiated:
    its slope isn't the integral of slopes; of what has a kink there, if it is twice"""
    with refused(GradientError, "jumps", "scipy.integrate.quad"):
        grad(lambda a: scipy.integrate.quad(lambda x: np.where(x > a, x, 0.0), 0.0, 3.0)[0])(1.3)
    with refused(GradientError, "jumps", "scipy.integrate.quad"):
        hessian(lambda a: scipy.integrate.quad(lambda x: np.abs(x - a), 0.0, 3.0)[0])(1.3)


def test_equations_without_a_slope():
    """a root or minimum that SciPy finds at a jump, at a kink, or along a flat valley -> NaN, not
    0"""
    with np.errstate(all="ignore"):
        df = grad(lambda a: scipy.optimize.minimize_scalar(lambda x: abs(x - a)).x)
        assert np.isnan(df(1.3))


def test_outputs_of_filters():
    """`ndimage.convolve(x, w, output=y)` and the like -> fills an array that the function made,
    and one from outside is refused"""
    y = np.zeros(3)
    with refused(ConversionError, "plain NumPy array", "output="):
        grad(lambda x: np.sum(scipy.ndimage.gaussian_filter(x, 1.0, output=y)))(np.ones(3))


OTHERS = {
    "anderson": lambda x: scipy.stats.anderson(x).statistic,
    "differential_evolution": lambda x: (
        scipy.optimize.differential_evolution(
            lambda v: np.sum((v - x) ** 2), [(0.0, 1.0)], maxiter=1
        ).x
    ),
}


@pytest.mark.parametrize("f", OTHERS.values(), ids=OTHERS)
def test_functions_of_scipys_that_arent_followed(f):
    """SciPy's other functions, of traced values or of functions that read some -> error with the
    name and the way round"""

    def caught(x):
        try:
            return f(x)
        except Exception:
            return x

    for g in (f, caught):
        with refused(TapegradError, "scipy"):
            grad(lambda x, g=g: np.sum(g(x)))(np.ones(3))


def test_functions_that_numba_compiled():
    """a function that numba compiled, called on traced values -> its Python is followed"""
    factor = 2.0
    scaled = numba.njit(lambda x: x * factor)
    df = grad(lambda x: np.sum(scaled(x)))
    np.testing.assert_array_equal(df(np.ones(3)), 2.0)
    factor = 3.0  # numba holds what it was
    for x in (np.ones(3), np.ones(4)):
        np.testing.assert_array_equal(df(x), scaled(1.0 * x) / x)
    np.testing.assert_array_equal(vjp(lambda x: np.sum(scaled(x)), np.ones(3))[1](1.0)[0], 2.0)
    with refused(ConversionError, "numba", "tapegrad.primitive", "np.sum(scaled(x))"):
        unobserved(grad(lambda x: np.sum(scaled(x))))(np.ones(3))


def test_functions_that_numba_compiled_for_given_types():
    """the same where numba was given types, and would make its arguments or results other ones ->
    refused"""
    whole = numba.njit("int64(float64)")(lambda x: x)
    with refused(ConversionError, "numba", "tapegrad.primitive", "whole(x)"):
        grad(lambda x: x * whole(x))(1.5)


@numba.njit
def _by_own_rules(x, n, y):
    total = 0.0
    for v in y:  # of float32
        total += v * n[0] * n[0]  # of int32
    power = 2 ** -n[1] + (n[1] + 3037000500) ** 2 + round(0.35 * n[1], 1)
    return total * x[0] + power * x[0] + (x[0] - 2.0) ** 1.5 + math.log(x[0] - 2.0) + 1.0 / n[2]


def test_functions_that_numba_compiled_by_its_own_types():
    """the same where numba has types of its own: sums of float32 in 64 bits, `int32 + int32`,
    integers that wrap around, `2**-1`, `round(x, digits)`, `math.log` and powers below 0, a
    division by 0 -> as numba computes it, errors included, at each call"""
    y = np.array([1e8, 0.1, -1e8], np.float32)
    f = jit(lambda x, n: _by_own_rules(x, n, y))
    for x, n in ((3.0, [70_000, 3, 1]), (4.0, [70_000, -1, 2]), (1.0, [1, 30, 1])):
        x, n = np.array([x]), np.array(n, np.int32)
        np.testing.assert_allclose(f(x, n), _by_own_rules(x, n, y), rtol=1e-14)
    with pytest.raises(ZeroDivisionError):
        _by_own_rules(x, 0 * n, y)
    with pytest.raises(ZeroDivisionError):
        f(x, 0 * n)


def test_functions_that_numba_compiled_where_its_results_are_any():
    """the same where numba's result isn't defined (a shift by 64 and more), or it draws from a
    generator of its own -> refused"""
    moved = numba.njit(lambda x, n: x * (1 << n))
    assert grad(lambda x: moved(x, 3))(1.0) == 8.0
    with refused(ConversionError, "a shift by what is negative", "tapegrad.primitive"):
        grad(lambda x: moved(x, 64))(1.0)
    drawn = numba.njit(lambda x: x * np.random.rand())
    with refused(ConversionError, "numba's own generator", "py_func", "tapegrad.primitive"):
        grad(lambda x: drawn(x))(1.0)


def test_functions_that_numba_compiled_whose_source_is_unknown():
    """the same where numba has types of its own, and the source of the function isn't found, or one
    expression is compiled for several types -> refused"""
    made: dict = {}
    exec("def half(x): return x[0] * 0.5", made)
    half = numba.njit(made["half"])
    assert grad(lambda x: half(x))(np.ones(1)) == 0.5
    with refused(ConversionError, "source", "half.py_func", "tapegrad.primitive"):
        grad(lambda x: half(x))(np.ones(1, np.float32))


@numba.guvectorize([(numba.float64[:], numba.float64[:])], "(n)->()")
def _last_of_row(row, out):
    out[0] = row[-1] ** 2


@numba.stencil
def _steps(a):
    return a[1] - a[0]


@numba.stencil
def _ratios(a):
    return a[1] / a[0]


def test_functions_that_numba_compiled_of_rows_and_neighbours():
    """functions of `numba.guvectorize` and `numba.stencil`; `f.reduce` and the like of those of
    `numba.vectorize` -> followed; a stencil that divides by an element is refused"""
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(grad(lambda x: np.sum(_last_of_row(x)))(x), [[0, 4], [0, 8]])
    np.testing.assert_array_equal(grad(lambda x: np.sum(_steps(x)))(x[0]), [-1.0, 1.0])
    with refused(ConversionError, "stencil", "tapegrad.primitive"):
        grad(lambda x: np.sum(_ratios(x)))(x[0])


def test_functions_that_numba_compiled_without_their_python():
    """instances of numba's `jitclass` that are given traced values, and functions of
    `vectorize(target="parallel")` -> refused"""

    class Scale:
        def __init__(self, x):
            self.x = x

    made = numba.experimental.jitclass([("x", numba.float64)])(Scale)
    with refused(ConversionError, "made(x)", "tapegrad.primitive"):
        grad(lambda x: made(x).x * x)(1.0)
    squares = numba.vectorize(["float64(float64)"], target="parallel")(lambda x: x * x)
    with refused(UnsupportedError, "no derivative rule", "tapegrad.primitive"):
        grad(lambda x: np.sum(squares(x)))(np.ones(2))


@pytest.mark.parametrize("x", [2.0, 2, np.float64(2.0), np.float32(2.0), np.array(2.0), np.ones(2)])
def test_the_type_of_a_traced_value(x):
    """`type(x) is np.ndarray`, `type(x) in (int, float)` -> of what is traced, as untraced"""
    kind = type(x)

    def f(x):
        same = type(x) is kind and type(x) in {kind: 1} and type(x) in (kind, str)
        return (2.0 if same and isinstance(type(x)(3), kind) else 3.0) * np.sum(x)

    assert f(x) == jit(f)(x) == 2.0 * np.sum(x)
    assert jit(lambda x: type(x + x) is type(x))(x) is (type(x + x) is type(x))


def test_powers_modulo_a_number():
    """`pow(2, n, 5)`, `pow(n, 2, 5)` -> as untraced, of each call's own `n`"""
    for f in (lambda n: pow(2, n, 5), lambda n: pow(n, 2, 5)):
        assert [jit(f)(n) for n in (3, 4, 3)] == [f(n) for n in (3, 4, 3)]


def test_functions_of_numbers_that_index():
    """`np.flip(x)` and `np.piecewise(x, ...)` of a Python number -> as of an array of it"""
    for x in (4.0, 0.5):
        f = jit(lambda x: np.piecewise(x, [x > 1], [lambda v: v * 2, 0.25]) + np.flip(x))
        assert f(x) == (12.0 if x > 1 else 0.75)


def test_methods_of_plain_arrays(derivative):
    """`X.dot(w)`, `X.clip(a, b)`, `X.searchsorted(w)` of a plain `X` and traced values -> right"""
    table = np.arange(6.0).reshape(3, 2)

    def f(x):
        total = np.sum(table.dot(x) ** 2) + np.sum(table.clip(x[0], 3 * x[1]))
        return total + x[0] * table[:, 0].searchsorted(x[1]) + np.ndarray.sum(x)

    df = derivative(f)
    df.at(np.array([0.5, 1.3]))
    table *= 2
    df.at(np.array([0.5, 1.3]))
