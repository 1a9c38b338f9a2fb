"""Functions of libraries: with rules of the user's, and what numba has compiled."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import math

import numba
import numpy as np
import pytest
from scipy import special, stats

from tapegrad import defvjp, grad, jit, primitive, scan, value_and_grad, vjp
from tapegrad.errors import ArgumentError, ConversionError, GradientError

X = np.array([0.3, 0.5, 0.8])


def slopes(f, x):
    h = 1e-6
    return np.array([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))])


# ---- rules for SciPy's functions


def along_q(ct, out, m, q):
    return ct * (special.mathieu_b(m, q + 1e-5) - special.mathieu_b(m, q - 1e-5)) / 2e-5


def test_a_rule_for_a_function_of_scipys(own_answers):
    """By whichever name the program calls it."""

    def f(x):
        return np.sum(special.mathieu_b(1, x) * x)

    with pytest.raises(Exception, match="mathieu_b"):
        grad(f)(X)
    defvjp(special.mathieu_b, None, along_q)
    defvjp(special.mathieu_b, None, along_q)  # a second time
    own = special.mathieu_b
    for mode in ("never", "always"):
        df = grad(f, compile=mode)
        np.testing.assert_allclose(df(X), slopes(f, X), rtol=1e-6)
        np.testing.assert_allclose(df(2 * X), slopes(f, 2 * X), rtol=1e-6)
    np.testing.assert_allclose(grad(lambda x: np.sum(own(1, x) * x))(X), slopes(f, X), rtol=1e-6)
    assert own is special.mathieu_b and isinstance(own(1, 0.5), float)


FUNCTIONS = [
    special.logsumexp,
    stats.gmean,
    functools.partial(special.logsumexp, b=np.array([1.0, 2.0, 0.5])),
    functools.partial(functools.partial(stats.tmean), axis=None),
    numba.njit(lambda x: x[0] * math.sin(x[1]) + x[2]),
]


@pytest.mark.every(4)
@pytest.mark.parametrize("f", FUNCTIONS)
def test_a_librarys_function_itself(f):
    """Nobody's code makes the call."""
    for how in ("never", "always"):
        df = grad(f, compile=how)
        np.testing.assert_allclose(df(X), slopes(f, X), rtol=1e-6)
        np.testing.assert_allclose(df(2 * X), slopes(f, 2 * X), rtol=1e-6)
    assert jit(f)(X) == pytest.approx(f(X), rel=1e-14)
    if not isinstance(f, numba.core.dispatcher.Dispatcher):
        np.testing.assert_allclose(vjp(f, X)[1](1.0)[0], slopes(f, X), rtol=1e-6)


def test_a_librarys_method_itself():
    law = stats.norm(0.5, 2.0)
    assert grad(law.logpdf)(1.3) == pytest.approx(-0.2)
    assert grad(stats.norm.logpdf)(1.3) == pytest.approx(-1.3)


def test_what_is_the_users_needs_a_decorator():
    def mine(x):
        return x

    for f in (mine, lambda x: x, 3):
        with pytest.raises(ArgumentError, match="@primitive"):
            defvjp(f, lambda ct, out, x: ct)


def test_a_function_of_a_shared_library():
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    library.cbrt.restype, library.cbrt.argtypes = ctypes.c_double, [ctypes.c_double]
    root = primitive(library.cbrt)
    defvjp(root, lambda ct, out, x: ct / (3 * out * out))
    assert grad(lambda x: 2 * root(x))(8.0) == pytest.approx(1 / 6)


# ---- functions that numba compiled


def test_numba_compiles_while_names_are_swapped():
    """As `vjp` does, whose runs aren't observed."""

    @primitive
    def running(x):
        return compiled(x)

    @numba.njit
    def compiled(x):
        out = np.zeros_like(x) + np.zeros(len(x)) * math.exp(0.0)
        for k in range(len(x)):
            out[k] = x[k] + (out[k - 1] if k else 0.0)
        return out

    defvjp(running, lambda ct, out, x: np.cumsum(ct[::-1])[::-1])
    value, pullback = vjp(running, X)
    np.testing.assert_allclose(value, np.cumsum(X))
    np.testing.assert_allclose(pullback(np.ones(3))[0], [3.0, 2.0, 1.0])


@numba.njit
def inner(a):
    return a * math.sin(a) if a > 0.4 else a * a


@numba.njit
def filled(x, n=3):
    out = np.empty_like(x)
    for i in range(len(x)):
        out[i] = inner(x[i]) * n
    return out


@numba.njit
def total(x):
    s = 0.0
    for i in numba.prange(len(x)):
        s += x[i] ** 3
    return s


@numba.vectorize
def elementwise(x, y):
    return x**3 + math.exp(y) if x > 0.4 else x * y


PROGRAMS = {
    "arrays": lambda x: np.sum(filled(x) ** 2),
    "named": lambda x: np.sum(filled(x, n=5)),
    "itself": total,
    "mapped": lambda x: sum(map(inner, x)),
    "elements": lambda x: np.sum(elementwise(x, x[::-1])),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_that_numba_compiled(name):
    """Their Python is traced, with its branches."""
    f = PROGRAMS[name]
    df = value_and_grad(f, compile="never")
    for x in (X, X[::-1] * 1.3, np.linspace(0.1, 1.0, 5)):
        value, slope = df(x)
        assert value == pytest.approx(f(x), rel=1e-14)
        np.testing.assert_allclose(slope, slopes(f, x), rtol=1e-6, atol=1e-9)


RATE, LEVELS = 2.0, np.array([1.0, 2.0])


def frozen_programs():
    factor = 2.0

    @numba.njit
    def scaled(x, power=1.0):
        return x * RATE + x**power * factor + LEVELS[0] * x

    @numba.njit
    def outer(x):
        return scaled(x, 2.0) * RATE

    @numba.vectorize
    def each(x):
        return x**2 * RATE

    @numba.vectorize(["float64(float64)"])
    def declared(x):
        return x**2 * RATE

    typed = numba.njit("float64(float64)")(lambda x: x**2 * RATE)
    parallel = numba.njit(parallel=True)(total_of)
    programs = {
        "named": lambda x: scaled(x[0], power=2.0) + x[1],
        "another": lambda x: outer(x[0]) + x[1],
        "elements": lambda x: np.sum(each(x)),
        "declared elements": lambda x: np.sum(declared(x)),
        "typed": lambda x: typed(x[0]) + x[1],
        "parallel": lambda x: parallel(x),
        "itself": parallel,
    }

    def change(value):
        nonlocal factor
        factor = value

    return programs, change, scaled


def total_of(x):
    s = 0.0
    for i in numba.prange(len(x)):
        s += x[i] ** 2 * RATE
    return s


@pytest.mark.every(2)
@pytest.mark.parametrize("first", ["numba", "tapegrad"])
def test_globals_that_numba_has_frozen(first, monkeypatch):
    """Machine code goes on using the globals, arrays and closures that it was compiled with, until
    it is compiled again; so does its derivative, whichever of the two is called first."""
    programs, change, scaled = frozen_programs()
    derivatives = {name: grad(f, compile="never") for name, f in programs.items()}

    def check():
        for name, f in programs.items():
            if first == "tapegrad":
                derivatives[name](X)
            wanted = slopes(f, X)  # which has numba compile it
            np.testing.assert_allclose(derivatives[name](X), wanted, rtol=1e-6, err_msg=name)

    check()
    monkeypatch.setitem(globals(), "RATE", 5.0)
    check()
    LEVELS[0] = 7.0
    change(3.0)
    check()
    del programs["another"]  # it goes on calling what it was compiled with
    scaled.recompile()
    check()
    LEVELS[0] = 1.0


def test_compiled_in_both_ways():
    df = grad(PROGRAMS["arrays"], compile="always")
    np.testing.assert_allclose(df(X), slopes(PROGRAMS["arrays"], X), rtol=1e-6)


def test_numba_functions_as_bodies():
    step = numba.njit(lambda c, v: (c * v, c + v))
    f = jit(lambda x: scan(step, x[0], x))
    carry, ys = f(X)
    assert carry == pytest.approx(X[0] * np.prod(X))
    np.testing.assert_allclose(ys, [0.6, 0.59, 0.845], rtol=1e-12)


CAST = {
    "result": numba.njit("int64(float64)")(lambda x: x * 1.5),
    "part": numba.njit("Tuple((float64, int64))(float64)")(lambda x: (x, x)),
    "element": numba.vectorize(["int64(float64)"])(lambda x: x * 1.5),
}


@pytest.mark.parametrize("name", CAST)
def test_what_numba_makes_another_type_is_refused(name):
    with pytest.raises(ConversionError, match="alone"):
        grad(lambda x: x * np.max(CAST[name](x)))(1.3)


def test_types_that_numba_is_given_and_that_fit_are_followed():
    scaled = numba.njit("float64[:](float64[:], float64)")(lambda x, a: x * a)
    pair = numba.njit("UniTuple(float64, 2)(float64)")(lambda x: (x, 2.0 * x))
    product = numba.vectorize(["float64(float64, float64)"])(lambda x, y: x * y)
    np.testing.assert_allclose(grad(lambda x: np.sum(scaled(x, 3)))(X), [3.0, 3.0, 3.0])
    np.testing.assert_allclose(grad(lambda x: np.sum(scaled(x[::-1], x[0])))(X)[1:], [X[0]] * 2)
    assert grad(lambda x: pair(x)[0] * pair(x)[1])(1.5) == 6.0
    narrow = numba.njit("float32(float32)")(lambda x: x * x)
    value, slope = value_and_grad(lambda x: x * narrow(x))(1.3)
    assert value == 1.3 * narrow(1.3)
    np.testing.assert_allclose(slope, 3 * 1.3**2, rtol=1e-6)
    np.testing.assert_allclose(grad(lambda x: np.sum(product(x, 2)))(X), [2.0, 2.0, 2.0])


def test_whole_numbers_are_those_that_numba_is_given():
    first = numba.njit("float64(float64[:], int32)")(lambda x, n: x[:n].sum() * n)
    np.testing.assert_array_equal(grad(lambda x: first(x, 2))(X), [2.0, 2.0, 0.0])
    with pytest.raises(ConversionError, match="alone"):
        grad(lambda x: first(x, 2**40))(X)


SQUARE = numba.vectorize(["float64(float64)"])(lambda x: x * x)
FOURTH = numba.vectorize(["float64(float64)"])(lambda x: SQUARE(SQUARE(x)) / SQUARE(2.0))
EIGHTH = numba.vectorize(["float64(float64)"])(lambda x: SQUARE(FOURTH(x)))


def test_elementwise_functions_of_elementwise_ones():
    """Each is called once of each number, of plain ones, too."""
    f = value_and_grad(lambda x: EIGHTH(x))
    assert f(1.5) == (1.5**8 / 16, 0.5 * 1.5**7)
    assert type(f(1.5)[0]) is np.float64
    assert str(f.tapes[0]).count(" square(") <= 3
    assert f.cache_info().traces == 1
    np.testing.assert_allclose(grad(lambda x: np.sum(EIGHTH(x)))(X), X**7 / 2, rtol=1e-12)


def test_untraced_calls_stay_compiled():
    """Python wouldn't overflow."""
    squared = numba.njit(lambda n: n * n)
    held = np.array([2**40])
    assert jit(lambda x: x * float(squared(held)[0]))(2.0) == 2.0 * float(squared(held)[0])


def test_a_primitive_of_what_numba_compiled():
    compiled = numba.njit(lambda x: x**3)
    fixed = X.copy()
    fixed.flags.writeable = False  # as an operand of a primitive is
    compiled(fixed)  # a trace follows what numba runs, which takes ten times as long
    cube, bare = primitive(compiled), primitive(compiled)
    defvjp(cube, lambda ct, out, x: ct * 3 * x * x)
    np.testing.assert_allclose(grad(lambda x: np.sum(cube(x)))(X), 3 * X**2)
    with pytest.raises(GradientError):
        grad(lambda x: np.sum(bare(x)))(X)
