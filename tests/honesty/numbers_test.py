"""Numbers"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import scipy.special as sp
from scipy import ndimage, signal

from tapegrad import grad, jit, value_and_grad

NAN, INF = np.nan, np.inf
TINY = 5e-324
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, INF, -INF, NAN, TINY, -TINY, 1e-310]
    + [2.3e-308, 1e-300, -1e300, 1e-20, 1e-8, -1e-8, 20.0, 37.0, -37.0, 709.9, -708.0, -745.0]
)
with np.errstate(over="ignore"):
    SPECIAL_OF = {"f8": SPECIAL, "f4": SPECIAL.astype("f4")}
# What NumPy answers where it warns is compared here.
quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def assert_same(found, expected, ulps=0, signs=True):
    """Equal up to so many units in the last place: NaN to NaN, infinity to infinity."""
    for a, b in zip(as_tuple(found), as_tuple(expected), strict=True):
        a, b = np.atleast_1d(a, b)
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if b.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite])
        a, b = a[finite], b[finite]
        assert np.all((a == b) | (np.abs(a - b) <= ulps * np.spacing(np.abs(b)))), (a, b)
        if signs:
            np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


def as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def assert_as_numpy(f, *args, ulps=0, signs=True):
    """`f` played and compiled, against itself in NumPy."""
    with np.errstate(all="ignore"):
        expected = f(*args)
        for how in ("never", "always"):
            assert_same(jit(f, compile=how)(*args), expected, ulps, signs)


def all_pairs(x):
    return tuple(a.ravel().copy() for a in np.meshgrid(x, x))


def dtypes(kinds):
    return pytest.mark.parametrize("dtype", kinds.split())


# ---- NaN, infinities, zeros


EXACT = "abs square sqrt floor ceil trunc rint sign negative reciprocal isnan isfinite signbit"
NEAR = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh "
    "arccosh arctanh cbrt sinc deg2rad"
)


@dtypes("f8 f4")
def test_functions_of_special_numbers(dtype):
    """functions of NaN, infinities, signed zeros, subnormals, huge and tiny numbers -> as NumPy's,
    bit by bit or within 4 units in the last place"""
    x = SPECIAL_OF[dtype]
    assert_as_numpy(lambda x: tuple(getattr(np, n)(x) for n in EXACT.split()), x)
    assert_as_numpy(lambda x: tuple(getattr(np, n)(x) for n in NEAR.split()), x, ulps=4)
    names = ("expit", "log_expit", "erf", "erfc", "log1p", "expm1", "entr")
    assert_as_numpy(lambda x: tuple(getattr(sp, n)(x) for n in names), x, ulps=4)
    assert_as_numpy(lambda x: (np.modf(x)[0], np.modf(x)[1], np.nan_to_num(x)), x)


@dtypes("f8 f4")
def test_operations_on_special_numbers(dtype):
    """operations on pairs of them -> as NumPy's; which zero is max(0.0, -0.0) is left open"""
    x, y = all_pairs(SPECIAL_OF[dtype])
    exact = "add subtract multiply divide floor_divide mod fmod copysign heaviside less equal"
    near = "power arctan2 hypot logaddexp"
    assert_as_numpy(lambda x, y: tuple(getattr(np, n)(x, y) for n in exact.split()), x, y)
    assert_as_numpy(lambda x, y: tuple(getattr(np, n)(x, y) for n in near.split()), x, y, ulps=4)
    zeros = "maximum minimum fmax fmin"
    assert_as_numpy(
        lambda x, y: (*[getattr(np, n)(x, y) for n in zeros.split()], np.clip(x, y, 1)),
        *(x, y),
        signs=False,
    )
    assert_as_numpy(lambda x, y: (sp.xlogy(x, y), sp.xlog1py(x, y)), x, y, ulps=4)


def test_powers_of_special_numbers():
    """constant exponents, and constant bases -> as NumPy's power"""
    exponents = (0, 1, 2, 3, 4, 7, -1, -2, 0.0, 0.5, -0.5, 1.5, 1 / 3, NAN, INF)
    assert_as_numpy(lambda x: tuple(x**p for p in exponents), SPECIAL, ulps=2)
    assert_as_numpy(
        lambda x: tuple(b**x for b in (0.0, -0.0, 2.0, -2.0, 1.0, INF)), SPECIAL, ulps=2
    )


@quiet
@pytest.mark.parametrize("x", [-0.0, -INF])
def test_a_root_by_an_operator_of_a_number(x):
    """`x ** 0.5` of a number that is -0.0 or -inf -> 0.0 and inf, as of NumPy's and Python's;
    those of an array are -0.0 and nan"""
    assert_as_numpy(lambda x: np.float_power(x, 0.5), SPECIAL)
    functions = [
        lambda x: x**0.5,
        lambda x: x ** np.float64(0.5),
        lambda x: np.power(x, 0.5),
        lambda x: np.float_power(x, 0.5),
        lambda x: (x * np.ones(2))[0] ** 0.5,
        lambda x: np.asarray(x) ** 0.5,
        lambda x: (x * np.ones(2)) ** 0.5,
        lambda x: math.pow(x, 0.5),
        lambda x: sum([v**0.5 for v in [x, x, x]]),
    ]
    for f in functions:
        for number in (float(x), np.float64(x), np.float32(x)):
            assert_as_numpy(f, number)
    for number in (np.float64(x), np.float32(x)):
        assert_as_numpy(lambda x, p: x**p, number, type(number)(0.5))


@quiet
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_a_traced_exponent(dtype):
    """`x ** p`, `np.power` and `np.float_power` with an exponent that is an argument, a number or
    an array -> as NumPy's; one number for all elements takes the root for 0.5, which is -0.0 at
    -0.0 and nan at -inf, and an array of exponents doesn't"""

    def in_place(x, p):
        y = x.copy()
        y **= p
        return y

    functions = [lambda x, p: x**p, np.power, np.float_power, in_place]
    x = SPECIAL_OF[dtype]
    half = (0.5, np.float64(0.5), np.float32(0.5), np.array(0.5), np.full(1, 0.5))
    with np.errstate(all="ignore"):
        for p in (*half, np.full(len(x), 0.5), 2.0, -1.0, 1.0, 0.0, -0.5, 2, -1):
            for f in functions:
                assert_as_numpy(f, x, p, ulps=2)
        assert_as_numpy(lambda x: x ** np.full(x.shape, 0.5), x, ulps=2)
        assert_as_numpy(lambda x: x ** np.array(0.5), x, ulps=2)
        assert_as_numpy(lambda x: x[0] ** np.array(0.5), x[1:2])
        assert_as_numpy(lambda x, p: x[0] ** p, x[1:2], np.array(0.5))


@quiet
@pytest.mark.parametrize("dtype", ["c16", "c8"])
def test_powers_of_complex_numbers(dtype):
    """`z ** p` and `np.power(z, p)` of complex zeros, infinities and NaN -> as NumPy's, which takes
    `square`, `reciprocal` and `sqrt` for the exponents 2, -1 and 0.5 of an operator alone, where
    these are Python's int and float"""
    parts = (0.0, -0.0, INF, -INF, NAN, 1.0, -2.5)
    z = np.array([complex(a, b) for a in parts for b in parts]).astype(dtype)
    inexact = (2.0, -1.0, 1.0, 0.0, 0.5, -0.5, 1.5, np.float64(0.5), 1 + 2j, 2 + 0j, 0j, INF, NAN)

    def assert_parts_as_numpy(f, *args):
        assert_as_numpy(lambda *xs: (f(*xs).real, f(*xs).imag), *args, ulps=16)

    for p in (0, 1, 2, 3, 7, -1, -2, -3, *inexact):
        assert_parts_as_numpy(lambda z, p=p: z**p, z)
        assert_parts_as_numpy(lambda z, p=p: np.power(z, p), z)
        if not isinstance(p, complex):
            assert_parts_as_numpy(lambda z, p: z**p, z, p)


@quiet
def test_reductions_with_nan():
    """sums, largest and smallest elements, sorting and searching among NaN and infinities -> as
    NumPy's"""
    names = "sum prod max min mean cumsum cumprod argmax argmin sort argsort any all nansum nanmax"
    for x in (SPECIAL[:10], SPECIAL[10:13], SPECIAL, np.array([NAN, NAN]), np.array([-INF, INF])):
        assert_as_numpy(
            lambda x: tuple(getattr(np, n)(x) for n in names.split()), x, ulps=4, signs=False
        )
        assert_as_numpy(lambda x: np.searchsorted(np.array([0.0, 1.0, INF, NAN]), x), x)


def test_products_with_nan():
    """matrix products of matrices with NaN, infinities and zeros -> as NumPy's, small and large"""
    for n in (2, 20):
        x = np.ones((n, n))
        x[0, 1], x[1, 0] = NAN, INF
        assert_as_numpy(lambda x, y: (x @ y, y @ x, x @ y[0], x[1] @ y[0]), x, np.zeros((n, n)))


@quiet
def test_sums_of_products_with_infinities():
    """sums of products, and products of products, in which infinities of both signs meet -> not
    finite, as NumPy's; whether NaN or an infinity is left open, as the order is"""
    x = np.array([[1.0, 2.0], [INF, -1.0]])
    y, z = np.array([[1.5, -1.0], [2.0, 2.0]]), np.array([1.0, -INF])
    for f in (
        lambda x, y, z: np.sum(x @ y, axis=1),
        lambda x, y, z: np.sum(x @ y + 1.0, axis=1),
        lambda x, y, z: y @ np.outer(z, z),
        lambda x, y, z: np.diag(z) @ x,
        lambda x, y, z: np.trace(x @ y),
    ):
        found, expected = jit(f, compile="always")(x, y, z), f(x, y, z)
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))


@quiet
def test_sums_of_products_that_are_zero():
    """the sign of a sum of products that are all -0.0 -> left open: NumPy's `dot` and `matmul` of
    one element each differ in it"""
    x, y = np.array([[-0.0]]), np.array([[1.0]])
    for f in (lambda x, y: x @ y, np.dot, lambda x, y: np.tensordot(x, y, 1)):
        np.testing.assert_array_equal(jit(f, compile="always")(x, y), f(x, y))


@quiet
def test_sums_of_zeros():
    """sums of -0.0 alone, over no axis, from `initial=-0.0`, of runs -> NumPy's zero"""
    for f in (
        np.sum,
        lambda x: np.sum(x, axis=()),
        lambda x: np.sum(x, initial=-0.0),
        lambda x: np.add.reduceat(x, [0, 2]),
        np.cumsum,
    ):
        for how in ("never", "always"):
            found, expected = jit(f, compile=how)(np.full(3, -0.0)), f(np.full(3, -0.0))
            np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_comparisons_with_nan(derivative):
    """NaN in a condition -> compares as in NumPy, and takes the branch that NumPy takes"""
    df = derivative(lambda x: x * x if x > 1 else 3 * x)
    df.at(2.0)
    df.at(NAN, gradient=3.0)
    df.at(0.5)
    assert_as_numpy(lambda x: (x == x, x != x, x < x, ~(x > 0), x[::-1] <= x), SPECIAL)


# ---- optimisations keep values


ALGEBRA = {
    "x * 0": lambda x: x * 0,
    "x - x": lambda x: x - x,
    "x / x": lambda x: x / x,
    "0 / x": lambda x: 0 / x,
    "x + 0": lambda x: x + 0.0,
    "0 - x": lambda x: 0 - x,
    "x * 1": lambda x: x * 1,
    "x == x": lambda x: x == x,
    "(x + a) - a": lambda x: (x + 1e16) - 1e16,
    "(x * 3) / 3": lambda x: x * 3 / 3,
    "x / 3": lambda x: x / 3,
    "x * 0.1 * 10": lambda x: x * 0.1 * 10,
    "sqrt(x ** 2)": lambda x: np.sqrt(x**2),
    "log(exp(x))": lambda x: np.log(np.exp(x)),
    "1 / (1 / x)": lambda x: 1 / (1 / x),
    "x + y - y": lambda x: x + x[::-1] - x[::-1],
    "-(x - y)": lambda x: -(x - x[::-1]),
    "x * 1e308 * 10 / 10": lambda x: x * 1e308 * 10 / 10,
}


@dtypes("f8 f4")
def test_algebra(dtype):
    """`x * 0`, `x - x`, `x / x`, `x + 0`, `(x + a) - a`, `x * 10 / 10` -> computed as written"""
    x = np.array([INF, -INF, NAN, 0.0, -0.0, 1.0, 1e16, 3.3], dtype)
    logarithm = ALGEBRA["log(exp(x))"]  # of NumPy's, in float32 right to four units by processor
    exact = [f for f in ALGEBRA.values() if f is not logarithm or dtype == "f8"]
    assert_as_numpy(lambda x: tuple(f(x) for f in exact), x, ulps=1)
    assert_as_numpy(logarithm, x, ulps=4)


@pytest.mark.every(6)
@pytest.mark.parametrize("f", ALGEBRA.values(), ids=ALGEBRA)
def test_algebra_in_sums(f):
    """the same as the terms of a sum -> each term as written, only their order is free"""
    x = np.array([INF, -INF, NAN, 0.0, -0.0, 1.0, 1e16, 3.3])
    for n in (4, 9):
        rows = np.repeat(x[:, None], n, axis=1)
        assert_as_numpy(lambda x: (np.sum(f(x), axis=1), np.sum(f(x.T), axis=0)), rows, ulps=4)


@dtypes("f8 f4")
def test_powers_of_two_are_multiplied_first(dtype):
    """`x * a * b` where a or b is a power of two -> may be `x * (a * b)`, which is the same number,
    and finite where the product on the way isn't"""
    huge = np.finfo(dtype).max
    f = jit(lambda x: (x * 2) * 0.75, compile="always")
    assert f(np.array([1.1], dtype))[0] == (lambda x: (x * 2) * 0.75)(np.array([1.1], dtype))[0]
    assert f(np.array([0.5 * huge], dtype))[0] == np.array([0.5 * huge], dtype)[0] * dtype_of(1.5)
    assert np.isposinf(f(np.array([huge], dtype)))


def dtype_of(x):
    return x


def test_subnormal_numbers():
    """numbers below 2.2e-308 -> computed with, not taken for 0"""
    x = np.array([1e-310, -TINY, 3e-308, 2e-320])
    assert_as_numpy(lambda x: (x + x, x * 0.5, x / 3, np.sqrt(x), x - 2.5e-308, np.sum(x)), x)
    np.testing.assert_array_equal(grad(lambda x: np.sum(x * x), compile="always")(x), 2 * x)


def kahan(x):
    """A compensated sum, element by element."""
    total = carried = 0.0
    for term in x:
        y = term - carried
        t = total + y
        carried = (t - total) - y
        total = t
    return total


def lost(x, y):
    """What rounding takes off each x + y (Knuth's two-sum)."""
    s = x + y
    part = s - x
    return (x - (s - part)) + (y - part)


def test_compensated_sums():
    """a Kahan sum, in a loop or over arrays, and two-sum -> keep what they are written for"""
    x = np.array([1.0, 1e16, 1.0, -1e16] * 5 + [1e-3] * 7)
    assert kahan(x) != np.sum(x)
    for how in ("never", "always"):
        assert jit(kahan, compile=how)(x) == kahan(x)
        rows = np.stack([x, x[::-1], -x])
        f = jit(lambda rows: kahan(rows.T), compile=how)
        np.testing.assert_array_equal(f(rows), kahan(rows.T))
        a, b = np.full(100, 1e16), np.full(100, 1.25)
        f = jit(lambda a, b: (lost(a, b), np.sum(lost(a, b)), np.sum(lost(a, 1.25))), compile=how)
        errors, total, other = f(a, b)
        np.testing.assert_array_equal(errors, lost(a, b))
        assert total == other == np.sum(lost(a, b)) != 0
    np.testing.assert_array_equal(grad(kahan, compile="always")(x), np.ones_like(x))


# ---- sums


MANY = 10**7


@pytest.fixture(scope="module")
def singles():
    return np.random.default_rng(0).random(MANY, np.float32)


LONG_SUMS = {
    "all": lambda x: np.sum(x),
    "rows": lambda x: np.sum(x.reshape(2, -1), axis=1),
    "columns": lambda x: np.sum(x.reshape(-1, 2), axis=0),
    "one column": lambda x: np.sum(x[:, None], axis=0),
    "in the middle": lambda x: np.sum(x.reshape(-1, 5, 4), axis=(0, 2)),
    "mean": lambda x: np.mean(x.reshape(-1, 4), axis=0),
    "variance": lambda x: np.var(x.reshape(-1, 4), axis=0),
    "dot": lambda x: x @ x,
    "norm": lambda x: np.linalg.norm(x),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("f", LONG_SUMS.values(), ids=LONG_SUMS)
def test_long_sums_of_float32(singles, f):
    """sums of ten million float32 numbers, of rows and columns, means, variances, dot products ->
    as accurate as NumPy's pairwise sum of a row, played and compiled"""
    exact = f(singles.astype(float))
    for how in ("never", "always"):
        found = jit(f, compile=how)(singles)
        assert found.dtype == np.float32
        # NumPy's own dot product is played, by its BLAS.
        tolerance = 1e-4 if f in (LONG_SUMS["dot"], LONG_SUMS["norm"]) and how == "never" else 3e-7
        np.testing.assert_allclose(found, exact, tolerance)


def test_long_sums_in_gradients(singles):
    """a gradient that is a sum over ten million float32 numbers -> as accurate"""
    x = singles.reshape(-1, 2)
    for how in ("never", "always"):
        found = grad(lambda w, x: np.sum(np.sum(x * w, axis=1) * 0.5), compile=how)(
            np.ones(2, np.float32), x
        )
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, 0.5 * np.sum(x, axis=0, dtype=float), 3e-7)


def test_cotangents_out_of_range():
    """a gradient whose step in between is beyond 1.8e308 or below 2.2e-308, as that of
    1/(1/x + 1/x) at 1e242, where the slope along 1/x + 1/x is -2.5e483 -> infinite, NaN or 0,
    though it is a number itself: cotangents are float64. Give the function x/1e242"""
    with np.errstate(all="ignore"):
        assert grad(lambda x: 1 / (1 / x + 1 / x), compile="never")(1e242) == INF
    assert grad(lambda x: 1 / (1 / x + 1 / x), compile="never")(1.0) == 0.5


def test_rows_that_are_not_taken():
    """matrix products and solutions whose rows aren't all taken, where one that isn't is NaN -> the
    gradient along the matrix, which all rows share, is NaN. Make those rows 0 beforehand"""
    rows = np.array([[1.0, 2.0], [NAN, 1.0], [0.5, 0.7]])
    found = grad(lambda a: np.sum((rows @ a)[[0, 2]]), compile="never")(np.eye(2))
    assert np.isnan(found[0]).all()
    beside = grad(lambda x: np.sum((x @ np.eye(2))[[0, 2]]), compile="never")(rows)
    np.testing.assert_array_equal(beside, [[1, 1], [0, 0], [1, 1]])


def test_sums_of_float64():
    """sums of float64 numbers -> within a few roundings of the exact sum"""
    x = np.random.default_rng(1).normal(size=10**6)
    exact = math.fsum(x)
    for how in ("never", "always"):
        for f in (np.sum, lambda x: np.sum(x.reshape(-1, 4)), lambda x: np.ones_like(x) @ x):
            assert abs(jit(f, compile=how)(x) - exact) < 1e-15 * np.sum(np.abs(x))


def test_accumulation_dtypes():
    """sum, mean, cumsum, prod, var of narrow dtypes -> accumulate in the dtype that NumPy has"""
    names = ["sum", "mean", "cumsum", "prod", "cumprod", "var"]
    for dtype in ("i1", "u1", "i2", "i4", "u4", "b1", "f4"):
        x = np.array([1, 1, 0, 1] * 40, dtype)
        assert_as_numpy(lambda x: tuple(getattr(np, n)(x) for n in names), x, ulps=8)
    x = np.full(300, 100, "i1")
    assert_as_numpy(lambda x: (np.sum(x), np.sum(x, dtype=np.int8), np.cumsum(x, dtype="i1")), x)


# ---- integers


INTEGERS = dtypes("i1 i2 i4 i8 u1 u2 u4 u8")


def corners(dtype):
    info = np.iinfo(dtype)
    numbers = [0, 1, 2, 3, 7, 8, 31, 63, 64, 100, info.max, info.max - 1, info.min, info.min + 1]
    return np.array(numbers + ([-1, -2, -3, -7] if info.min else []), dtype)


@pytest.mark.every(2)
@INTEGERS
def test_integer_arithmetic(dtype):
    """integers that overflow, and are divided by zero and by -1, shifted too far -> as in NumPy"""
    x, y = all_pairs(corners(dtype))
    names = (
        "add subtract multiply floor_divide mod fmod maximum minimum left_shift right_shift "
        "bitwise_and bitwise_or bitwise_xor less"
    )
    assert_as_numpy(lambda x, y: tuple(getattr(np, n)(x, y) for n in names.split()), x, y)
    assert_as_numpy(lambda x, y: (*np.divmod(x, y), np.divide(x, y)), x, y)
    assert_as_numpy(np.power, x, np.minimum(y % 9, 9))
    names = "abs negative invert sign square reciprocal floor"
    assert_as_numpy(lambda x: tuple(getattr(np, n)(x) for n in names.split()), corners(dtype))
    assert_as_numpy(lambda x: (x + 1, x * 3, x // 3, x % 3, x << 1, x >> 1, 1 - x, x**3), x)
    assert_as_numpy(lambda x: (np.sum(x), np.prod(x), np.cumsum(x), np.max(x)), corners(dtype))


def test_negative_integer_powers():
    """integers to negative integer powers -> NumPy's ValueError, when compiled too"""
    f = jit(np.power, compile="always")
    assert np.all(f(np.array([2, 3]), np.array([2, 3])) == [4, 27])
    for g in (f, jit(lambda x, y: x**-2)):
        with pytest.raises(ValueError, match="Integers to negative integer powers"):
            g(np.array([2, 3]), np.array([2, -3]))


def test_boolean_arithmetic():
    """sums, products and logic of booleans -> as in NumPy"""
    x, y = all_pairs(np.array([True, False]))
    names = ["add", "multiply", "logical_xor", "bitwise_and", "maximum", "divide", "less", "power"]
    assert_as_numpy(lambda x, y: tuple(getattr(np, n)(x, y) for n in names), x, y)
    assert_as_numpy(lambda x: (~x, np.sum(x), np.mean(x), np.cumsum(x), x * 2.5), x)


@dtypes("f8 f4")
def test_casts_of_floats(dtype):
    """floats as integers -> as in NumPy, out of range too, where C leaves it open what comes out"""
    x = np.array([0.0, -0.0, 0.5, 1.5, -1.5, 127, 128, -129, 255, 256, 32768, 65536, 2147483647])
    x = np.array([*x, 2147483648, 4294967296, 9.2e18, INF], dtype)
    wild = np.array([-INF, NAN, *x], dtype)  # of which NumPy makes this or that uint32
    for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1", "f4", "f8"):
        assert_as_numpy(lambda x, kind=kind: x.astype(kind), x if kind == "u4" else wild)


@pytest.mark.every(2)
@INTEGERS
def test_casts_of_integers(dtype):
    """integers as other dtypes -> as in NumPy, wrapping around"""
    kinds = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1", "f4", "f8")
    assert_as_numpy(lambda x: tuple(x.astype(kind) for kind in kinds), corners(dtype))


@pytest.mark.filterwarnings("ignore:numpy.fix:DeprecationWarning")  # from NumPy 2.5 on
def test_rounding():
    """rint, round and their like -> halves go to the even neighbour"""
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999999999999994, 4503599627370497.5, 1e300, 2.675])
    assert_as_numpy(lambda x: (np.rint(x), np.round(x), np.round(x, 2), np.trunc(x), np.fix(x)), x)


def test_python_integers(derivative):
    """a Python integer as an argument -> `2**n`, `n // 2` and `x**n` as with a plain one"""
    df = derivative(lambda x, n: x**n * 2**n + n // 2 + x / n)
    for n in (3, 2, 5, 1):
        df.at(1.5, n)


@pytest.mark.filterwarnings("ignore:Bitwise inversion:DeprecationWarning")  # from Python 3.12 on
def test_python_booleans(derivative):
    """arithmetic of Python's booleans, such as `(x > 0) + (y > 0)` of floats -> True is 1"""
    df = derivative(lambda x, y: x * ((y > 0) + (y > -3)) + x**2 * -(y > 1) + x * ~(y > 2))
    for x, y in [(1.5, 2.0), (1.5, -2.0), (-1.0, -2.0), (3.0, 1.0)]:
        df.at(x, y)
        assert jit(lambda x, y: [x > y, (x > 0) ** 2, (x > 0) / 4, sum([x > 0, y > 0])])(x, y) == [
            *(x > y, (x > 0) ** 2, (x > 0) / 4, sum([x > 0, y > 0]))
        ]


def test_python_floats_and_float32(derivative):
    """a Python float meets float32 -> float32; what `np.exp` makes of it -> float64"""
    a = np.array([0.1, 0.7], np.float32)
    for f in [
        lambda x: (-x + 1) ** 2 / 3 * a,
        lambda x: (x > 0) * x * a,
        lambda x: np.add(x, 1) * a,
        lambda x: np.negative(x) * a,
        lambda x: np.square(x) * a,
        lambda x: np.exp(x) * a,
    ]:
        found = jit(f)(1.3)
        assert found.dtype == f(1.3).dtype
        np.testing.assert_array_equal(found, f(1.3))


def test_python_integers_that_grow(derivative):
    """Python integers that get large -> right; those that 64 bits don't hold are guarded"""
    df = derivative(lambda x, n: x**2 * (n * n - 3) / 2**40 + x**3 * n**3 / 2**60)
    for n in (7, 2**20, 3, -(2**20), 2**20 + 1):  # n**3 grows up to 2**60
        df.at(1.5, n)
    df.at(1.5, 10**10)
    df.at(1.5, 11)
    for f, n in [(lambda n: n + n, 2**62), (lambda n: n << 60, 8), (lambda n: 2**62 - n, -(2**62))]:
        g = jit(f)
        for m in (1, n, 2, n):
            assert g(m) == f(m)


# ---- choices, kinks and singular points


@quiet
def test_the_branch_not_taken(derivative):
    """`np.where` with a logarithm, root or quotient that is NaN or infinite where it isn't taken ->
    0 from there, to second order too"""
    x = np.array([-1.0, 0.5, 2.0])
    derivative(lambda x: np.sum(np.where(x > 0, np.log(x), 0))).at(x)
    derivative(lambda x: np.sum(np.where(x > 0, np.sqrt(x) * x, x**2))).at(x)
    derivative(lambda x: np.sum(np.where(x < 0, x**3, x**1.5))).at(x)
    derivative(lambda x: np.sum(np.where(x > 0, np.where(x > 1, np.log(x - 1), x**3), x))).at(x)
    derivative(lambda x: np.sum(np.where(x > 0, x * np.log(x), 0) ** 2)).at(x)


@quiet
def test_the_branch_not_taken_at_its_edge(derivative):
    """the same where the slope is infinite at the very point -> that of the branch taken"""
    for f, slopes in (
        (lambda x: np.where(x > 0, np.log(x), 0), [0, 0.25]),
        (lambda x: np.where(x > 0, np.sqrt(x), x), [1, 0.25]),
        (lambda x: np.where(x != 0, 1 / x, 2 * x), [2, -0.0625]),
        (lambda x: np.where(x == 0, 1.0, (x - 1) / x), [0, 0.0625]),
    ):
        derivative(lambda x, f=f: np.sum(f(x))).at(np.array([0.0, 4.0]), gradient=np.array(slopes))


@quiet
def test_kinks(derivative):
    """kinks: powers of and at 0, roots and norms of 0, ties, constants, infinities -> as
    docs/conventions.md says"""
    z, ones = np.zeros(2), np.ones(2)
    low = np.full(2, -INF)
    for f, x, slopes in (
        (lambda x: np.sum(x**0), z, z),
        (lambda x: np.sum(x**0.5), z, z),
        (lambda x: np.sum(0.0**x), z, z),
        (lambda x: np.sum(x**x), z, z),
        (lambda x: np.sum((-2.0 * x) ** 3), ones, -24 * ones),
        (lambda x: np.sum((-x) ** 2.5), ones, np.full(2, NAN)),
        (lambda x: np.sum(np.sqrt(x)), z, z),
        (np.linalg.norm, z, z),
        (np.max, ones, ones / 2),
        (lambda x: np.sum(np.abs(x)), z, z),
        (lambda x: np.sum(np.maximum(x, 0)), z, ones / 2),
        (np.std, ones, z),
        (np.var, ones, z),
        (np.logaddexp.reduce, low, ones / 2),
        (lambda x: np.sum(np.logaddexp(x, x)), low, ones),
        (lambda x: np.sum(sp.xlogy(0 * ones, x)), z, z),
        (lambda x: np.sum(np.sinc(x)), z, z),
        (lambda x: np.sum(np.hypot(x, x)), z, z),
        (lambda x: np.sum(1 / x), z, -INF * ones),
        (lambda x: np.sum(np.clip(x, 0, 1)), np.array([NAN, 0.0]), np.array([0, 0.5])),
        (np.max, np.array([NAN, 1.0]), z),
    ):
        derivative(f).at(x, gradient=slopes)


def test_logsumexp(derivative):
    """log-sum-exp written by hand, of numbers of any size -> right; of -inf among them, too"""

    def logsumexp(x):
        m = np.max(x)
        return m + np.log(np.sum(np.exp(x - m)))

    df = derivative(logsumexp)
    df.at(np.array([1.0, 2.0, 3.0]))
    df.at(np.array([1000.0, 999.0, -1000.0]), gradient=sp.softmax([1000.0, 999.0, -1000.0]))
    df.at(np.array([-INF, 1.0, 2.0]), gradient=sp.softmax([-INF, 1.0, 2.0]))
    with np.errstate(invalid="ignore"):
        df.at(np.array([-INF, -INF]), gradient=np.full(2, NAN))  # -inf - -inf, as in NumPy


def test_logsumexp_of_scipy(derivative):
    """scipy.special.logsumexp and softmax of huge numbers, and of -inf among them -> right"""
    df, first = derivative(lambda x: sp.logsumexp(x)), derivative(lambda x: sp.softmax(x)[0])
    for x in ([1.0, 2.0, 3.0], [1000.0, 999.0, -1000.0], [-INF, 1.0, 2.0]):
        p = sp.softmax(x)
        df.at(np.array(x), gradient=p)
        first.at(np.array(x), gradient=p[0] * (np.eye(3)[0] - p))


def test_huge_arguments(derivative):
    """softmax, softplus, sigmoid and hypot of huge numbers -> finite, as their formulas are"""
    x = np.array([800.0, -800.0, 0.5])
    e = sp.expit(x)
    derivative(lambda x: np.sum(np.logaddexp(0, x))).at(x, gradient=e)
    derivative(lambda x: np.sum(sp.expit(x))).at(x, gradient=e * (1 - e))
    derivative(lambda x: np.sum(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0))).at(x, gradient=e)
    derivative(lambda x: np.sum(np.hypot(x, 1.0))).at(1e200 * x, gradient=np.sign(x))
    derivative(lambda x: np.sum(np.tanh(x))).at(x, gradient=(1 - np.tanh(x)) * (1 + np.tanh(x)))


# ---- warnings


@quiet
def test_means_of_nothing():
    """mean, variance and median of no elements -> NaN, and NumPy's warning when it is traced"""
    for f, words in ((np.mean, "Mean of empty"), (np.median, "Mean of empty"), (np.var, "Degrees")):
        with pytest.warns(RuntimeWarning, match=words):
            assert np.isnan(f(np.zeros(0)))
        for how in ("never", "always"):
            with pytest.warns(RuntimeWarning, match=words):
                assert np.isnan(jit(f, compile=how)(np.zeros(0)))


def test_warnings():
    """a division by zero or a logarithm of it -> NumPy's warning when the function is traced; later
    calls return NaN and infinities without one"""
    for how in ("never", "always"):
        df = value_and_grad(lambda x: np.sum(np.log(x)), compile=how)
        with pytest.warns(RuntimeWarning, match="divide by zero encountered in log"):
            first, _ = df(np.zeros(2))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            later, slopes = df(np.zeros(2))
        assert first == later == -INF
        assert np.all(slopes == INF)


def test_errstate():
    """np.errstate(all="raise") around a call -> raises at the line, where the function is traced
    or was traced so; other calls, and the derivative's own arithmetic, don't raise"""

    def f(x):
        return np.sum(np.sqrt(x) + np.log(x))

    df, before = grad(f), grad(lambda x: f(x))
    before(np.ones(2))
    with np.errstate(all="raise"):
        for _ in range(2):
            with pytest.raises(FloatingPointError, match="divide by zero encountered in log"):
                df(np.zeros(2))
            df(np.ones(2))
        assert np.all(np.isinf(before(np.zeros(2))))


def test_filters_among_nans():
    """medians, rank filters and running means of `scipy.ndimage` and `scipy.signal` among NaN and
    infinities -> as SciPy's, whose code in C compares and adds in an order of its own; the slope is
    that of the element it takes"""
    x = np.array([1.0, NAN, 2.0, 5.0, 3.0])
    for f in (
        lambda x: ndimage.median_filter(x, 3),
        lambda x: ndimage.maximum_filter(x, 4),
        lambda x: ndimage.uniform_filter1d(x, 3),
        lambda x: signal.medfilt(x, 3),
    ):
        np.testing.assert_array_equal(jit(f)(x), f(x))
