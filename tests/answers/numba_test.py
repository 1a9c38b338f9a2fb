"""Functions that numba compiled, with its own types and rules for numbers."""

from __future__ import annotations

import math

import numba
import numba.typed
import numpy as np
import pytest

from tapegrad import grad, value_and_grad
from tapegrad.errors import ConversionError

X = np.array([1.5, 2.0, 3.0])


@numba.njit
def fractional(x):
    return x**1.5 + math.log(x)


@numba.njit
def picked(x, places):
    total = 0.0
    for k in range(len(places)):
        total += x[places[k]] if places[k] > 0 else 2.0 * x[0]
    return total


@numba.njit
def halves(x):
    return np.sum(x) * 0.5


@numba.njit
def summed(x):
    total = 0
    for k in range(len(x)):
        total += x[k]
    return total


@numba.njit
def cosine(x):
    product, norm = 0.0, np.float32(0)
    for v in x:
        product += v * 0.3
        norm += v * v
    return product / math.sqrt(norm) if norm > 0 else 1.0


@numba.njit
def blurred(x):
    out = np.zeros_like(x)
    for k in range(1, len(x) - 1):
        mean = 0.0
        for m in range(-1, 2):
            mean += x[k + m]
        out[k] = mean / 3
        out[k] *= 0.5
    return out.sum()


@numba.njit
def powers(x):
    return (
        max(x[0] ** 2, 0.5) + 1 / (1 + math.exp(-x[1])) + np.mean(x * 0.1) + [v * v for v in x][2]
    )


@numba.njit
def first(x):
    if x[0] > 100.0:
        return 1
    return x[0] * 2.0


@numba.njit
def drawn(x):
    return x * np.random.rand()


@numba.njit
def inverse(x):
    return 1.0 / x[0]


@numba.njit
def remainder(x):
    return (1.7 * x[1] % x[0]) * x[0]


@numba.njit
def of_elements(x):
    total = 0.0
    for k in range(len(x)):
        total += 1.0 / x[k]
    return total


def in_rounds(x):
    total = 0.0
    for k in numba.prange(len(x)):
        total += 1.0 / x[k]
    return total


@numba.vectorize
def ratio(x, y):
    return x / y + math.sqrt(x)


def test_small_integers_may_be_indices():
    places = np.array([0, 1, 1], np.int32)
    np.testing.assert_array_equal(grad(lambda x: picked(x, places))(X), [2.0, 2.0, 0.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_of_32_bits_are_widened_where_numba_widens_them(dtype):
    x = np.array([0.1, 0.7, 1.3], dtype)
    for f in (halves, summed, cosine, blurred, powers):
        value, slope = value_and_grad(lambda x, f=f: f(x), compile="never")(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-14 if dtype == np.float64 else 1e-7)
        wide = grad(lambda x, f=f: f(x), compile="never")(x.astype(float))
        np.testing.assert_allclose(slope, wide, rtol=1e-5, atol=1e-6)


def test_sums_of_32_bits_are_numbas_and_not_numpys():
    """It adds them up in 64 bits: 1e8 + 1 - 1e8 is 1."""
    x = np.array([1e8, 1.0, -1e8], np.float32)
    assert summed(x) == value_and_grad(lambda x: summed(x), compile="never")(x)[0] == 1.0
    assert np.sum(x) == 0.0


def test_errors_of_python_that_numba_has_none_of():
    """numba has NaN where Python has a complex number or an error."""
    f = value_and_grad(lambda x: fractional(x), compile="never")
    for x in (4.0, -4.0, 2.0, 0.0):
        np.testing.assert_allclose(f(x)[0], fractional(x))


@pytest.mark.parametrize("f", [inverse, remainder, of_elements])
@pytest.mark.parametrize("compile", ["never", "always"])
def test_a_division_by_an_element_that_becomes_zero_is_an_error(f, compile):
    """At the first call, and at a later one."""
    x, zero = np.array([1.0, 2.0]), np.zeros(2)
    df = grad(lambda x: f(x), compile=compile)
    for given in (x, 2.0 * x):
        difference = (f(given + [1e-6, 0.0]) - f(given - [1e-6, 0.0])) / 2e-6
        np.testing.assert_allclose(df(given)[0], difference, rtol=1e-6)
    for raising in (df, grad(lambda x: f(x), compile=compile)):
        with pytest.raises(ZeroDivisionError):
            f(zero)
        with pytest.raises(ZeroDivisionError):
            raising(zero)


def test_a_division_by_zero_where_numba_has_none_of_pythons_errors():
    quiet = numba.njit(error_model="numpy")(inverse.py_func)
    parallel = numba.njit(parallel=True)(in_rounds)
    for f in (quiet, parallel):
        df = value_and_grad(lambda x, f=f: f(x), compile="never")
        for x in (X, np.zeros(3), -X):
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(df(x)[0], f(x))


def test_scalars_are_pythons_when_they_are_returned():
    """Of NumPy's, (-3.0)**1.5 is NaN; 1 and x[0] * 2.0 are of one type."""
    kinds = []

    def f(x):
        y = first(x)
        kinds.append(type(y))
        return y * (1.0 if isinstance(y, float) and not isinstance(y, np.float64) else 7.0)

    df = value_and_grad(f, compile="never")
    for x in (X, 100.0 * X, -X):
        assert df(x)[0] == first(x)
    assert set(kinds) == {float}


def test_numbers_of_numbas_own_generator_are_refused():
    with pytest.raises(ConversionError, match="numba's own generator"):
        grad(lambda x: drawn(x))(1.0)


def test_elements_are_numpys():
    """A division by 0 is infinite, and integers are made the type that numba takes."""
    with np.errstate(all="ignore"):
        wanted = ratio(X, np.array([0.0, 1.0, 2.0]))
        value, slope = value_and_grad(lambda x: np.sum(ratio(x, np.array([0, 1, 2]))))(X)
        assert value == np.sum(wanted) == np.inf
    np.testing.assert_allclose(slope[1:], 1 / np.array([1.0, 2.0]) + 0.5 / np.sqrt(X[1:]))


def scaled(x, n):
    return x * 2**n


def rounded(x, n):
    return x * round(0.35 * n, 1)


def moved(x, n):
    return x * (1 << n)


def grown(x, n):
    total = n
    for k in range(20):
        total = total * 31 + k
    return x * total + x * (n * n) * (n << 3)


@pytest.mark.filterwarnings("ignore:.* calls in a row")
@pytest.mark.parametrize("python", [scaled, rounded, grown])
@pytest.mark.parametrize("types", [(), (numba.float64(numba.float64, numba.int64),)])
def test_integers_are_numbas(python, types):
    """numba's 2**-1 is 0, and 2**64 too, which the numbers of the first call don't show."""
    f = numba.njit(*types)(python)
    df = value_and_grad(lambda x, n: f(x, n), compile="never")
    for n in (2, -1, 5, 0, 63, 64, -3, 65536, 7):
        assert df(1.0, n) == (f(1.0, n), f(1.0, n))


def test_shifts_are_refused_where_numbas_result_is_not_defined():
    f = numba.njit(moved)
    df = value_and_grad(lambda x, n: f(x, n), compile="never")
    for n in (2, 62, 63, 0):
        assert df(1.0, n) == (f(1.0, n), f(1.0, n))
    for n in (-1, 64):
        with pytest.raises(ConversionError, match="a shift by"):
            df(1.0, n)
    assert df(1.0, 5) == (32.0, 32.0)


def test_powers_of_elements():
    f = numba.vectorize(lambda x, n: x * 2**n)
    n = np.array([1, -2, 3])
    value, slope = value_and_grad(lambda x: np.sum(f(x, n)), compile="never")(X)
    assert value == np.sum(f(X, n))
    np.testing.assert_array_equal(slope, [2.0, 0.0, 8.0])


def counted(x, n):
    total = x * n**2 + x * (n >> 1) + x * (-1) ** n + x * 0.5**n
    for k in range(n):
        total += x * 2**k * (1 << (k + 1)) * ((n >> k) & 1)
    for k in range(n, -1, -1):
        total += x * 3**k
    for k, _ in enumerate((1, 2)):
        total += x * 3 ** (k * 2 + 1) / 5 ** len((1, 2))
    k = 0
    while k < n:
        total += x * 5**k
        k += 1
    return total


def in_parallel(x, n):
    total = 0.0
    for k in numba.prange(n):
        total += x * 2**k
    return total


@pytest.mark.parametrize(("python", "options"), [(counted, {}), (in_parallel, {"parallel": True})])
def test_powers_by_counts_of_rounds_are_followed(python, options):
    f = numba.njit(**options)(python)
    value, slope = value_and_grad(lambda x: f(x, 4), compile="never")(1.5)
    assert value == pytest.approx(f(1.5, 4), rel=1e-14)
    assert slope == pytest.approx(f(1.0, 4), rel=1e-14)


def falling(x, n):
    total = 0.0
    while n > -2:
        total += x * 2**n
        n -= 1
    for k, _ in enumerate((1, 2), -1):
        total += x * 2**k
    return total


def test_counts_that_fall_below_zero():
    f = numba.njit(falling)
    df = value_and_grad(lambda x, n: f(x, n), compile="never")
    for n in (3, -3, 1):
        assert df(1.0, n) == (f(1.0, n), f(1.0, n))


def test_results_of_later_traces_are_held_against_numbas():
    """Of one that prints, too, which isn't called a second time."""

    @numba.njit
    def power(x):
        return x**1.5

    @numba.njit
    def printing(x):
        print(x)
        return x**1.5

    for f in (power, printing):
        df = value_and_grad(lambda x, f=f: f(x), compile="never")
        assert df(4.0) == (8.0, 3.0)
        assert df(9.0) == (27.0, 4.5)
        assert np.isnan(f(-4.0))
        assert np.isnan(df(-4.0)[0])


def test_functions_of_given_types_are_held_against_numba():
    """It counts in 64 bits."""
    f = numba.njit(numba.float64(numba.float64, numba.int64))(lambda x, n: x * (n * n))
    assert value_and_grad(lambda x: f(x, 3), compile="never")(2.0) == (18.0, 9.0)
    assert value_and_grad(lambda x: f(x, 2**40), compile="never")(1.0) == (0.0, 0.0)


def test_floats_are_made_those_of_the_given_types():
    f = numba.njit("float32(float32)")(lambda x: x * x)
    assert f(0.1) == np.float32(0.1) * np.float32(0.1)
    value, slope = value_and_grad(lambda x: f(x), compile="never")(0.1)
    assert value == f(0.1)
    assert slope == pytest.approx(0.2, rel=1e-6)


@numba.guvectorize([(numba.float64[:], numba.float64[:], numba.float64[:])], "(n),(n)->()")
def dots(a, b, out):
    total = 0.0
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    out[0] = total


@numba.guvectorize("(n),()->(n)")
def averages(a, weight, out):
    mean = 0.0
    for k in range(len(a)):
        mean = weight * mean + a[k]
        out[k] = mean


@numba.njit
def sums_of_rows(x):
    out = np.empty(x.shape[0])
    dots(x, x, out)
    return np.sum(out**2)


def averaged(x):
    out = np.zeros_like(x)
    averages(x, 0.5, out)
    return np.sum(out**2)


@numba.guvectorize([(numba.float32[:], numba.float32[:])], "(n)->()")
def tenths(a, out):
    total = 0.0
    for v in a:
        total += v * 0.1
    out[0] = total


@numba.vectorize([numba.float64(numba.float64, numba.float64)])
def mixed(x, y):
    return x * y + 0.5 * x


BY_ROWS = [
    lambda x: np.sum(dots(x, 2.0 * x) ** 2),
    averaged,
    sums_of_rows,
    lambda x: mixed.reduce(x[0]),
    lambda x: np.sum(mixed.reduce(x, axis=1) ** 2),
    lambda x: np.sum(mixed.accumulate(x) ** 2),
    lambda x: np.sum(mixed.outer(x[0], x[1]) ** 2),
]


@pytest.mark.parametrize("f", BY_ROWS)
def test_functions_of_rows_and_methods_of_ufuncs(f):
    df = value_and_grad(f, compile="never")
    x, direction = np.arange(1.0, 7.0).reshape(2, 3) / 4, np.array([[1.0, -2.0, 0.5], [0.3, 1, -1]])
    for scale in (1.0, 2.0, -1.0):
        x = scale * x
        value, slope = df(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-14)
        step = 1e-6 * direction
        np.testing.assert_allclose(np.sum(slope * step), (f(x + step) - f(x - step)) / 2, rtol=1e-6)
    assert df.cache_info().traces == 1


def test_functions_of_rows_with_types_of_their_own():
    x = np.array([[0.1, 1e8, -1e8]], np.float32)
    value, slope = value_and_grad(lambda x: np.sum(tenths(x)), compile="never")(x)
    assert value == tenths(x)[0]
    np.testing.assert_allclose(slope, 0.1, rtol=1e-6)


@numba.stencil
def laplacian(a):
    return a[0, 1] + a[1, 0] + a[0, -1] + a[-1, 0] - 4 * a[0, 0]


@numba.stencil(standard_indexing=("w",), neighborhood=((-1, 1),), cval=0.5)
def weighted(a, w):
    total = 0.0
    for k in range(-1, 2):
        total += w[k + 1] * np.exp(a[k])
    return total


@numba.njit
def of_neighbours(x, w):
    return np.sum(laplacian(x) ** 2) + np.sum(weighted(x[0], w) ** 2)


@numba.stencil
def ratios(a):
    return a[0] / a[1]


@numba.njit
def of_ratios(x):
    return np.sum(ratios(x))


def test_stencils():
    def f(x, w):
        return of_neighbours(x, w)

    df = value_and_grad(f, argnums=(0, 1), compile="never")
    x, w = np.arange(1.0, 21.0).reshape(4, 5) ** 1.5 / 40, np.array([0.5, 2.0, -1.0])
    for scale in (1.0, -1.0):
        x = scale * x
        value, (dx, dw) = df(x, w)
        np.testing.assert_allclose(value, f(x, w), rtol=1e-13)
        step = 1e-6 * np.cos(np.arange(20.0)).reshape(4, 5)
        difference = (f(x + step, w) - f(x - step, w)) / 2
        np.testing.assert_allclose(np.sum(dx * step), difference, rtol=1e-6)
        step = 1e-6 * np.array([1.0, -0.5, 0.25])
        difference = (f(x, w + step) - f(x, w - step)) / 2
        np.testing.assert_allclose(np.sum(dw * step), difference, rtol=1e-6)
    assert df.cache_info().traces == 1
    with pytest.raises(ConversionError, match="divides by what may be 0"):
        grad(lambda x: of_ratios(x))(X)


@numba.njit
def held_in_containers(x):
    rising, empty = numba.typed.List(), numba.typed.List.empty_list(numba.float64)
    found = numba.typed.Dict.empty(numba.int64, numba.float64)
    for k in range(len(x)):
        rising.append(x[k] * x[0])
        empty.append(2.0 * rising[-1])
        found[k % 2] = found.get(k % 2, 0.0) + empty[k]
    return found[0] ** 2 + found[1] + len(empty) * rising.pop()


def test_typed_lists_and_dicts():
    df = value_and_grad(lambda x: held_in_containers(x), compile="never")
    for scale in (1.0, -2.0):
        x = scale * X
        value, slope = df(x)
        np.testing.assert_allclose(value, held_in_containers(x), rtol=1e-14)
        step = np.array([1e-6, -2e-6, 0.5e-6])
        difference = (held_in_containers(x + step) - held_in_containers(x - step)) / 2
        np.testing.assert_allclose(slope @ step, difference, rtol=1e-6)
    assert df.cache_info().traces == 1
    assert type(numba.typed.List([1.0])).__module__.startswith("numba.")
