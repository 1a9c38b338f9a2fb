"""Arrays that a function makes: filled with traced values, or constants that plain code takes."""

from __future__ import annotations

import copy
import functools
import math
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.interpolate
import scipy.linalg

from tapegrad import errors, grad, jit, trace, value_and_grad

X = np.array([0.5, 1.5, 2.0])
COMPILE = pytest.mark.parametrize("compile", ["never", "always"])


def check(f, *points, compile="never", traces=None):
    derived = value_and_grad(f, compile=compile)
    for x in points:
        value, slope = derived(x)
        assert value == pytest.approx(f(x), rel=1e-13)
        h = 1e-6 * np.eye(len(x))
        np.testing.assert_allclose(
            slope, [(f(x + e) - f(x - e)) / 2e-6 for e in h], rtol=1e-6, atol=1e-7
        )
    if traces is not None:
        assert derived.cache_info().traces == traces


MAKERS: list[Any] = [
    lambda: np.zeros(3),
    lambda: np.zeros((2, 3), np.float32, order="F"),
    lambda: np.ones((2, 3), int),
    lambda: np.full((2, 2), -0.0),
    lambda: np.full(3, 7),
    lambda: np.eye(3, k=1),
    lambda: np.identity(2),
    lambda: np.arange(4.0),
    lambda: np.arange(4),
    lambda: np.linspace(0, 1, 4),
    lambda: np.array([[1.0, 2.0], [3.0, 4.0]], order="F"),
    lambda: np.array([1, 2]),
    lambda: np.array([True, False]),
    lambda: np.array(2.5),
    lambda: np.array([1.0, 2.0], ndmin=2),
    lambda: np.asarray([1.0, 2.0], np.float32),
    lambda: np.ascontiguousarray(np.arange(6.0).reshape(2, 3).T),
    lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    lambda: np.fromiter((k / 2 for k in range(3)), float),
    lambda: np.r_[1.0, np.zeros(2), 0:1:3j],
    lambda: np.c_[np.zeros(2), np.ones(2)],
    lambda: np.zeros_like(np.arange(3)),
    lambda: np.full_like(np.arange(3.0), 2),
    lambda: np.zeros((2, 3)).T,
    lambda: np.zeros((4, 3))[1::2, ::-1],
    lambda: (np.ones(3) * 2 - 1)[:, None] + np.arange(2),
    lambda: np.zeros(3, complex),
    lambda: np.zeros(2, "U3"),
    lambda: np.zeros((0, 2)),
]


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_made_is_numpys(make):
    found = []

    def f(x):
        made = make()
        found.append((made.shape, made.dtype, made.strides, made.flags.c_contiguous))
        found.append((isinstance(made, np.ndarray), len(made.shape), made.tolist(), str(made)))
        found.append((np.asarray(made) is made, made.T.strides, made.copy().strides))
        return np.sum(x)

    trace(f, X)
    traced = list(found)
    found.clear()
    f(X)
    assert traced == found


@COMPILE
def test_filled_in_every_way(compile):
    def f(x):
        n = len(x)
        y, z, a = np.zeros(n), np.empty((n, 2)), np.ones((2, n))
        row, turned, flat = a[0], a.T, a.reshape(-1)
        for k in range(n):
            y[k] = x[k] ** 2 + (y[k - 1] if k else 0.0)
            z[k] = x[k], 1.0
        row += x
        turned[0, 1] = y[0]
        flat[-1] *= y[1]
        np.fill_diagonal(a[:, :2], y[1])
        np.add.at(y, [0, 0], x[:2])
        np.multiply(z, y[:, None], out=z)
        np.copyto(a[1, 1:], x[1:], where=np.array([True, False]))
        y[y > 2.0] = 0.5
        return np.sum(y) + np.sum(z**2) + np.sum(a * np.arange(n)) + row @ flat[:n]

    check(f, X, X * 1.1, X[::-1].copy(), compile=compile)


@COMPILE
def test_constants_are_plain_where_that_is_needed(compile):
    """No guard, no trace anew, and nothing on the tape."""

    def f(x):
        counts, weights = np.zeros(3, int), np.linspace(0.0, 1.0, 5)
        counts[1:] = 2, 3
        weights[0] += 0.25
        total, table = 0.0, {}
        for k in range(counts[2]):
            if weights[k] > 0.1 and float(weights[k]) != 0.7:
                total = total + x[counts[1]] * weights[k]
        table[int(counts[1])] = weights.max()
        order = np.argsort(np.array([3.0, 1.0, 2.0]))
        parts = np.partition(weights, 2)[:3] + np.array(weights.tolist()[:3])
        inside = np.unique(counts).size + sum(1 for w in weights if w > 0.3)
        return total + np.sum(x[order] * parts) * table[2] * inside

    check(f, X, X + 1.0, compile=compile, traces=1)
    _, tape = trace(f, X)
    assert not tape.guards


def test_scipy_takes_constants():
    def f(x):
        t = np.linspace(0.0, 1.0, 5)
        t[0] -= 0.5
        spline = scipy.interpolate.CubicSpline(t[1:], t[1:] ** 2)
        return np.sum(scipy.linalg.inv(np.diag(np.array([1.0, 2.0, 4.0]))) @ x) * spline(0.5)

    check(f, X)


def test_a_constant_leaves_nothing_on_the_tape():
    def f(x):
        table = np.zeros((3, 3))
        for i in range(3):
            for j in range(3):
                table[i, j] = i * j
        return np.sum(x * table.sum(0))

    _, tape = trace(f, X)
    assert len(tape.calls) == 2


def test_views_follow_what_is_written_first():
    def f(x):
        a = np.zeros((3, 4))
        column, corner = a[:, 1], a[1:, 1:][0]
        column[:] = 2.0
        b = a * 1.0
        corner[0] = x[0]
        a[2] = x[1]
        column[0] = 5.0
        return np.sum(a * np.arange(4)) + np.sum(column**2) + np.sum(corner) + np.sum(b)

    check(f, X, -X)


def test_constants_after_they_met_traced_values():
    def f(x):
        w = np.ones(3)
        first = np.sum(w * x)
        w[0] = 5.0
        second = np.sum(w * x)
        if w[0] > 4:
            second = second * w[0]
        w[1:] = x[1:]
        return first + second + np.sum(w * x)

    check(f, X, X + 1, traces=1)


@pytest.mark.filterwarnings("ignore:.*three calls in a row:RuntimeWarning")
def test_arrays_from_outside_that_are_copied():
    outside = np.array([1.0, 2.0, 3.0])

    def f(x):
        y = np.array(outside)
        y[0] = x[0]
        z = np.zeros(3)
        z[:] = outside
        return np.sum(y * x) + float(z[2]) * x[1]

    derived = value_and_grad(f, compile="never")
    for k in range(3):
        outside[1:] = k
        assert derived(X)[0] == f(X)


@pytest.mark.parametrize("keep", [lambda a: a.__array__(), lambda a: memoryview(a.__array__())])
def test_who_has_the_plain_array(keep):
    def f(x):
        a = np.zeros(3)
        kept = keep(a)
        a[0] = 2.0
        assert kept[0] == 2.0
        kept[1] = 3.0
        first = np.sum(a * x)
        kept[2] = 4.0
        first = first + np.sum(a * x)
        del kept
        a[0] = x[0]
        return first + np.sum(a)

    def g(x):
        a = np.zeros(3)
        kept = keep(a)
        a[0] = x[0]
        return np.sum(a) + kept[0]

    value, slope = value_and_grad(f, compile="never")(X)
    assert value == 2 * (2 * X[0] + 3 * X[1]) + 4 * X[2] + X[0] + 7
    np.testing.assert_array_equal(slope, [5.0, 6.0, 4.0])
    with pytest.raises(errors.ConversionError, match="or that code has which isn't traced"):
        grad(g)(X)


KEPT: dict[str, Any] = {}


@functools.lru_cache
def remembered(n):
    return np.linspace(0.0, 1.0, n)


def test_what_outlives_the_trace_is_plain():
    def f(x):
        if "table" not in KEPT:
            KEPT["table"], KEPT["list"] = np.ones(3), [np.eye(2)]
        return np.sum(x * KEPT["table"] * remembered(3))

    remembered.cache_clear()
    KEPT.clear()
    derived = value_and_grad(f, compile="never")
    assert derived(X)[0] == f(X)
    assert type(KEPT["table"]) is np.ndarray and type(KEPT["list"][0]) is np.ndarray
    KEPT["table"][1] = 5.0
    assert derived(X)[0] == f(X)
    again = value_and_grad(lambda x: np.sum(remembered(3) * x) + remembered(3)[1], compile="never")
    assert again(X)[0] == np.sum(remembered(3) * X) + 0.5
    held = remembered(3)
    held[1] = 7.0
    assert again(X)[0] == np.sum(np.asarray(held) * X) + 7.0
    for other in (pickle.loads(pickle.dumps(held)), copy.deepcopy(held), held + 0, held[:2]):
        assert type(other) is np.ndarray
    with pytest.raises(errors.TapegradError):
        grad(lambda x: held.__setitem__(0, x[0]) or np.sum(held))(X)


LISTS: list[Any] = [
    lambda a, b: np.sum([a, b]) * np.mean([a, 2.0]),
    lambda a, b: np.dot([a, 1.0], [2.0, b]),
    lambda a, b: np.linalg.norm([a, b]),
    lambda a, b: np.max([a, b]) - np.min((a, b, 3.0)),
    lambda a, b: np.sum(np.stack([a, b]) * np.exp([b, a])),
    lambda a, b: np.sum(np.outer([a, b], (1.0, a))),
    lambda a, b: np.linalg.det([[a, b], [1.0, a]]),
    lambda a, b: np.sum(np.linalg.solve([[a, 1.0], [b, 3.0]], [a, b])),
    lambda a, b: np.prod([[a, b], [b, a]], axis=0)[0],
    lambda a, b: np.sum(np.maximum([a, b], 1.0)) + np.var([a, b, 1.0]),
    lambda a, b: np.array([[a, 0.0], [0.0, b]])[0, 0] * np.asarray((a, b))[1],
    lambda a, b: np.sum(np.concatenate([[a, b], np.zeros(2)]) * np.arange(4)),
    lambda a, b: np.sum(np.r_[a, 1.0, [b, a]] * np.arange(4)),
    lambda a, b: np.sum(np.r_[(a, b), (1, a)] * np.arange(4)),
    lambda a, b: np.sum(np.c_[(a, b), (1, a)] * np.arange(2)),
    lambda a, b: np.sum(np.c_[[a, b], [b, 1.0]] * np.array([[1.0, 2.0], [3.0, 4.0]])),
    lambda a, b: np.interp(1.0, [0.0, 3.0], [a, b]) + np.sort([a, b])[0],
    lambda a, b: np.sum(np.full(2, a) * np.append([a], b)),
    lambda a, b: np.where(np.array([True, False]), [a, b], 0.0).sum(),
    lambda a, b: np.sum(np.stack([[a, b], [1.0, a]]) * np.vstack([[b, 1.0], [a, 2.0]])),
    lambda a, b: np.sum(np.hstack([[a], [b, 1.0]]) * np.concatenate([[1.0, 2.0], [b]])),
    lambda a, b: np.einsum("i,i", [a, b], [b, 2.0]) + np.diag([a, b]).sum() + np.copy([a, b])[1],
    lambda a, b: np.meshgrid([a, b], [b, 1.0])[0][1, 1] * np.column_stack([[a, b], [1, 2]])[0, 0],
    lambda a, b: np.choose([1, 0], [[a, b], [b, a]])[0] + np.select([[True, False]], [[a, b]])[0],
    lambda a, b: np.array_split([a, b, 1.0], 2)[0][1] * np.full((2,), [a, b])[1],
]


@pytest.mark.parametrize("f", LISTS)
def test_lists_of_traced_values(f):
    check(lambda x: f(x[0], x[1]), np.array([0.7, 1.9]), np.array([2.5, -0.3]))


def test_integers_and_booleans_leave_the_trace():
    data = np.array([10.0, 20.0, 30.0, 40.0])

    def f(x, i, flags):
        picked = data[i] + np.take(data, i) + data[np.asarray(flags, dtype=bool)][:2]
        chosen = [data[k] for k in i.tolist()] + [data[k] for k in list(i)] + [data[int(i[0])]]
        small = data[:3][np.greater(x, 1.0)]
        return np.sum(picked) * x[0] + sum(chosen) * x[1] + np.sum(small)

    derived = value_and_grad(f, compile="never")
    for i in (np.array([0, 2]), np.array([3, 1]), np.array([0, 2])):
        for flags in (np.array([1, 1, 0, 0]), np.array([True, False, False, True])):
            for x in (X, X[::-1].copy()):
                value, slope = derived(x, i, flags)
                assert value == pytest.approx(f(x, i, flags))
                np.testing.assert_allclose(slope[2:], 0)


MATH: list[Any] = [
    lambda a, b: math.exp(a) + math.expm1(b) + math.log1p(a),
    lambda a, b: math.log(a) + math.log(a, 3) + math.log2(b) * math.log10(a),
    lambda a, b: math.sqrt(a) * math.pow(b, a) + math.hypot(a, b, 2.0) + math.atan2(a, b),
    lambda a, b: math.sin(a) + math.cos(b) * math.tan(a) + math.tanh(b) + math.sinh(a),
    lambda a, b: math.asin(a / 9) + math.acos(b / 9) + math.atan(a) + math.atanh(b / 9),
    lambda a, b: math.erf(a) + math.erfc(b) + math.gamma(a) + math.lgamma(b),
    lambda a, b: math.fabs(-a) + math.copysign(a, -1.0) + math.fmod(a, 0.4) + math.degrees(b),
    lambda a, b: a if math.isclose(a, b) or math.isnan(a) else math.modf(b)[0],
    lambda a, b: math.radians(a) * math.floor(b) + math.ceil(a),
    lambda a, b: math.remainder(b, 0.7) * math.remainder(-a, a + b) + math.frexp(b)[0] * b,
    lambda a, b: math.nextafter(a, b) * (1 + math.ulp(b)) + math.frexp(a)[1] * b,
    lambda a, b: math.hypot(*np.stack([a, b])) + math.atan2(*map(math.exp, (a, b))),
    lambda a, b: math.pow(*(x * x for x in (a, b))) + math.comb(*{int(3 * b): 0, 1: 0}) * a,
]


@pytest.mark.parametrize("f", MATH)
def test_functions_of_the_math_module(f):
    check(lambda x: f(x[0], x[1]), np.array([0.7, 1.9]), np.array([1.3, 2.2]))
    kinds = []

    def g(a):
        found = f(a, 1.9)
        kinds.append((type(found) is float) or found.__class__ is float)
        return found

    assert grad(g, compile="never")(0.7) is not None and kinds == [True]


def test_the_errors_of_the_math_module():
    def f(x):
        try:
            return math.log(x) + math.sqrt(4.0 - x)
        except ValueError as error:
            assert "math domain error" in str(error)
            return x**2
        finally:
            x = x

    def g(x):
        try:
            return math.exp(x)
        except OverflowError:
            return 3.0 * x

    for h, points in ((f, (2.0, -1.0, 3.0, 5.0, 1.0, 0.0)), (g, (1.0, 800.0, 2.0, math.inf))):
        derived = value_and_grad(h, compile="never")
        for x in points:
            assert derived(x)[0] == pytest.approx(h(x))


# ---- compiled code, views, gathers


def test_compiled_code_gets_plain_arrays():
    """numba's functions read memory, and don't ask for an array."""
    import numba

    @numba.njit
    def squares(a, n):
        for i in range(n):
            a[i] = i * i
        return a.sum()

    def f(x):
        a, kept = np.zeros(4), [np.zeros(3), 3]
        total = squares(a, 4) * x[0] + squares(*kept) * x[1]
        b = np.array([1.0, 2.0, 3.0, 4.0])
        b[0] = x[2]
        return total + np.sum(a * x[0]) + np.sum(b)

    check(f, X, 2 * X)

    def refused(x):
        kept, a = [], np.zeros(3)
        kept.append(squares(a, 3))
        view = np.asarray(memoryview(a))
        a[0] = x[0]
        return np.sum(a) + view[0]

    with pytest.raises(errors.ConversionError, match="assigned"):
        grad(refused)(X)


@COMPILE
def test_views_that_calls_give(compile):
    """What shows a made array together with a traced one is a view of it, on both sides."""

    def f(x):
        a = np.zeros(3)
        b, c = np.broadcast_arrays(a, np.ones((2, 3)) * x)
        a[0] = x[0]
        v = a.reshape(3, 1)
        a[1:] = x[1:] ** 2
        d, _ = np.atleast_2d(a, x)
        d[0, 0] = 3 * x[0]
        return 2 * np.sum(b) + np.sum(c) + np.sum(v * v) + np.sum(np.squeeze(d) * x)

    check(f, X, -X, compile=compile)

    def filled(x):
        edges = np.linspace(0.0, 1.0, 3)
        counts, same = np.histogram(x, edges)
        same[...] = x
        return np.sum(edges**2) + counts[0]

    check(filled, X + 0.2, X + 0.1, compile=compile)


TABLE = np.arange(12.0).reshape(4, 3)


@COMPILE
def test_what_traced_integers_index_is_gathered(compile):
    """Other integers are no new trace."""

    def f(x):
        i = np.argsort(x)
        return np.sum(TABLE[i] * x) + np.sum(TABLE[i, 1:] * x[0]) + np.sum(np.take(TABLE[0], i) * x)

    check(f, X, X[::-1].copy(), X[[1, 0, 2]], compile=compile, traces=1)

    def counted(x):
        return np.sum(TABLE[np.count_nonzero(x > 1.0)] * x)

    check(counted, X, -X, X, compile=compile, traces=1)
    with pytest.raises(IndexError):
        grad(lambda x, i: np.sum(TABLE[i]) * x)(1.0, np.array([7]))


def test_numbers_that_may_be_pythons_meet_single_floats():
    """The dtype alone is read of what a function of NumPy's makes of them."""
    small = np.float32(0.1) * np.asarray([1, 2, 3], np.float32)

    def f(x):
        s, total = 0.0, 0.0
        for t in range(40):
            s = s + x[t % 3]
            if s < 0:
                s = 0.0
            chosen = np.where(np.array([True, False, True]), s, small)
            total = total + chosen.dtype.itemsize * x[t % 3] * s
        return total

    check(f, X * [1, -2, 0.3], X * [-3, 1, 1], X)


def test_writes_at_indices_in_loops():
    at = [np.array([k, (k + 1) % 5]) for k in range(5)]

    def f(x):
        y = np.zeros(5)
        for k in range(60):
            y[at[k % 5]] = y[at[k % 5]] * 0.5 + x[k % 3]
        return np.sum(y * y)

    check(f, X, -X)


def test_views_that_no_trace_follows():
    """The bits of a constant, as another type: a plain array, written to from both sides."""

    def f(x):
        a = np.array([1, 2], np.uint64)
        bits = a.view(np.float64)
        a[0] = 0x3FF8000000000000
        bits[1] = 2.5
        return np.sum(bits * x[:2]) + np.sum(a[1:] / 2**62 * x[0]) + np.array([3]).view("i4")[0]

    check(f, X)

    def filled(x):
        a = np.zeros(2)
        bits = a.view(np.int64)
        a[0] = x[0]
        return np.sum(a) + bits[0]

    with pytest.raises(errors.ConversionError, match="assigned"):
        grad(filled)(X)


OF_NUMBERS = [lambda x: math.exp(x), lambda x: math.hypot(1.0, x), lambda x: math.isfinite(x)]


@pytest.mark.parametrize("f", OF_NUMBERS)
def test_the_math_module_takes_no_array_that_numpy_makes_no_number_of(f):
    def g(x):
        try:
            return f(x) * 1.0
        except TypeError:
            return 0.0

    for x in (np.ones(1), np.ones((1, 1)), np.ones(3), np.array(1.0)):
        assert jit(g, compile="never")(x) == g(x)


class Cell:
    """An object that makes an array of itself, of whatever it holds."""

    def __init__(self, sides):
        self.sides = sides

    def __array__(self, dtype=None, copy=None):
        return np.array(np.diag(self.sides), dtype=dtype)


class Summed(Cell):
    def sum(self, axis=None, dtype=None, out=None):
        return 7.0 * self.sides[0]


PLAIN = Cell(np.arange(1.0, 4.0))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.linalg.det(Cell(x)),
        lambda x: np.sum(np.asarray(Cell(x), float) ** 2),
        lambda x: np.sum(np.array(Cell(x)) @ x),
        lambda x: np.sum(np.linalg.solve(Cell(x), x * x)),
        lambda x: np.sum(np.exp(Cell(x)) * x),
        lambda x: np.sum(np.dot(x, Cell(x))),
        lambda x: np.sum(Summed(x)),
        lambda x: np.linalg.det(PLAIN) * np.sum(x),
    ],
)
def test_objects_that_make_arrays_of_themselves(f):
    derived = value_and_grad(f, compile="never")
    for k in range(3):
        PLAIN.sides = np.arange(1.0, 4.0) + k
        x = X + k
        value, slopes = derived(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-14)
        steps = [1e-6 * row for row in np.eye(3)]
        wanted = [(f(x + step) - f(x - step)) / 2e-6 for step in steps]
        np.testing.assert_allclose(slopes, wanted, rtol=1e-7, atol=1e-7)
    assert derived.cache_info().traces <= 3


def test_partials_of_numpys_functions_and_methods_outlive_the_trace():
    """What they hold are the plain arrays, and they can be called."""

    @functools.lru_cache
    def kept(n):
        w = np.linspace(0.0, 1.0, n)
        return functools.partial(np.dot, w), functools.partial(w.dot, w), functools.partial(np.exp)

    def f(x):
        dot, square, exp = kept(3)
        return x * (dot(np.ones(3)) + square()) + exp(x)

    for x in (2.0, 3.0):
        assert grad(f)(x) == pytest.approx(1.5 + 1.25 + np.exp(x))
        assert f(x) == pytest.approx(2.75 * x + np.exp(x))
    assert kept(3)[0].args[0].tolist() == [0.0, 0.5, 1.0]


class Held:
    """An object of a library's that says what array it is, as an index of dates does."""

    def __init__(self, x):
        self.x = x

    def __array__(self, dtype=None, copy=None):
        return self.x


def test_dates_that_an_object_says_are_plain_and_watched():
    def f(w, make, dates):
        held = make(dates)
        return w * (held[..., 1] - held[..., 0]).astype(float).sum()

    for make in (np.asarray, np.array, lambda x: np.broadcast_to(x, (1, 2))):
        dates = Held(np.array(["2020-01-01", "2020-02-01"], dtype="datetime64[D]"))
        df = grad(functools.partial(f, make=make, dates=dates))
        assert df(1.0) == 31.0
        dates.x[1] += 1
        assert df(1.0) == 32.0
