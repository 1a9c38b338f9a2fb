"""What kind of number the sides of a branch leave: an integer on one, a float on the other."""

from __future__ import annotations

import itertools
import warnings
from types import FunctionType, SimpleNamespace

import numpy as np
import pytest

from tapegrad import jit, value_and_grad

KEPT = SimpleNamespace()


def halves(x):
    n = 0
    for v in x:
        if v > 0:
            n += 1
        elif v == 0:
            n += 0.5
    return x[n - 1] ** 2 if isinstance(n, int) else np.sum(x)


def last_one(x):
    for v in x:
        k = 1 if v < 0 else 0.5
    return x[0] * (2.0 if isinstance(k, int) else 3.0)


def places(x):
    total = 0.0
    for v in x:
        k = 1 if v < 0 else 0.5
        try:
            total += x[k]
        except (TypeError, IndexError):
            total -= x[0]
    return total


def places_of_list(x):
    for v in x:
        k = 1 if v < 0 else 0.5
    try:
        return [x[0], 2 * x[0], 3 * x[0]][k]
    except TypeError:
        return -x[0]


def chosen(x):
    for i in range(6):
        k = 2 if x[i] > 0 else x[i] * x[0]
    try:
        return x[k]
    except (TypeError, IndexError):
        return x[0]


def arrays(x):
    found = []
    for v in x:
        found.append(1 if v > 0 else 0.5)
    a = np.array(found)
    return x[0] * (2.0 if a.dtype == int else 3.0) * a[0]


def comprehended(x):
    weights = [1 if v > 0 else 0.5 for v in x]
    return sum(x[k] if isinstance(k, int) else k for k in weights) * 1.0


def larger(x):
    for v in x:
        KEPT.value = max(0.0, v)
    return np.sum(x)


def zeros(x):
    for v in x:
        KEPT.value = 0 if v < 0 else v
    return np.sum(x)


def drawdown(x):
    KEPT.value = 0.0
    for v in x:
        KEPT.value = max(KEPT.value, v)
    return np.sum(x)


def counts(x):
    KEPT.value = {0: 0}
    for v in x:
        if v > 0:
            KEPT.value[0] += 1
    return np.sum(x) * KEPT.value[0]


def without_axes(x):
    KEPT.value = [np.array(x[0]), np.asarray(x.sum()), x[0, ...], np.array(x[0] > 0), x[0]]
    KEPT.more = [np.array(np.argmax(x)), x[:1].squeeze(), np.float64(x[1])]
    return x[0]


def accumulated(x):
    if not hasattr(KEPT, "value"):
        KEPT.value = np.zeros(())
    KEPT.value[...] = KEPT.value + np.sum(x)
    return np.sum(x**2) + KEPT.value


def bounds(x):
    try:
        return np.sum(x[: x[0]])
    except TypeError:
        return x[1]


def one_object(x):
    s = 0
    for v in x:
        s = 0 if x[0] > v else s + v
    return x[0] * (3.0 if s is small() else 4.0)


def two_zeros(x):
    s = t = 0
    for v in x:
        s = 0 if x[0] > v else v
        t = 0 if x[1] > v else v
    return x[0] * (3.0 if s is t else 4.0)


def numbered(x):
    s = 0
    for v in x:
        s = 0 if x[0] > v else s + v
    return x[0] * (3.0 if id(s) == id(0) else 4.0)


def attributes(x):
    k = 0
    for v in x:
        k = v if v > 0 else k
    return x[0] * (3.0 if hasattr(k, "hex") else 4.0)


def common_types(x):
    k = 0.1
    for v in x:
        k = v if v > 0 else k
    narrow = np.result_type(k, np.float32) == np.float32
    narrow += np.result_type("f4", k) == np.float32
    return x[0] * (2.0 + narrow) + np.sum(np.where([True, False], np.float32(1) / 3, k))


def common_types_of_entries(x):
    found = [v if v > 0 else 1.0 for v in x]
    return x[0] * sum(np.result_type(v, np.float32) == np.float32 for v in found)


def small():
    return 0


FUNCTIONS = [
    *(one_object, two_zeros, numbered, attributes, common_types, common_types_of_entries),
    *(halves, last_one, places, places_of_list, chosen, arrays, comprehended, larger, zeros),
    *(drawdown, counts, without_axes, accumulated, bounds),
]


def kinds(x):
    if isinstance(x, dict):
        return {key: kinds(value) for key, value in x.items()}
    return [*map(kinds, x)] if isinstance(x, list) else (type(x), repr(x))


def points():
    rng = np.random.default_rng(0)
    for call in range(14):
        x = rng.normal(size=6) * (-1) ** call
        if call % 2:
            x[rng.integers(6)] = 0.0
        yield -np.abs(x) if call % 5 == 0 else np.abs(x) + 0.1 if call % 7 == 0 else x


@pytest.mark.every(8)
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_kinds_of_numbers(f):
    """Values, and what is kept with its kinds, are those of plain Python."""
    derivative = value_and_grad(f, compile="never")
    plain: dict[str, object] = {}
    own: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in points():
            vars(KEPT).clear()
            vars(KEPT).update(plain)
            expected, left = f(x.copy()), kinds(KEPT.__dict__)
            plain = dict(vars(KEPT))
            vars(KEPT).clear()
            vars(KEPT).update(own)
            value, _ = derivative(x.copy())
            assert value == pytest.approx(expected)
            assert kinds(KEPT.__dict__) == left
            own = dict(vars(KEPT))


def added(x, rounds, limit):
    s, h = 0, x
    for _ in range(rounds):
        h = np.sin(h)
        s += h if h > limit else 0
    return s


def added_while(x, rounds, limit):
    s, h, i = 0, x, 0
    while i < rounds:
        h = np.sin(h)
        s = s + (h if h > limit else 0)
        i += 1
    return s


def last_or_none(x, rounds, limit):
    s, h = 0, x
    for _ in range(rounds):
        h = np.sin(h)
        if h > limit:
            s = s + h
        s = s if h > 0.1 else 0
    return s


def of_attribute(x, rounds, limit):
    kept, h = SimpleNamespace(s=0), x
    for _ in range(rounds):
        h = np.sin(h)
        if h > limit:
            kept.s += h
    return kept.s


def numpys_or_pythons(x, rounds, limit):
    s, h, a = 0.0, x, np.ones(3) * x
    for _ in range(rounds):
        h = np.sin(h)
        if h > limit:
            s = s + a[0]
    return s


def in_rounds_of_an_inner_loop(x, rounds, limit):
    s, k = 0, 0
    for v in x * np.arange(12.0):
        while v > limit and k < 3:
            s += v
            k += 1
    return s


def matched(s):
    match s:
        case int():
            return True
    return False


QUESTIONS = [
    *(matched, lambda s: isinstance(s, int), lambda s: type(s) is float),
    *(lambda s: isinstance(s, np.generic), lambda s: np.issubdtype(np.result_type(s), int)),
    *(lambda s: np.add(s, 1).dtype == int, lambda s: np.full(3, s).dtype == int),
    *(lambda s: np.sum(s).dtype == int, lambda s: np.maximum(s, np.arange(3)).dtype == int),
    *(lambda s: isinstance(np.abs(s), np.integer), lambda s: np.array([s]).dtype == int),
    *(lambda s: np.where([True], s, 1).dtype == int, lambda s: type(sum([2 * s])) is int),
    *(lambda s: np.signbit(-s), lambda s: np.signbit(s * -1), lambda s: np.signbit(s // -2)),
]


def unknown(f):
    """The function, with code of its own: nothing is known of it from other cases."""
    code = f.__code__.replace(co_name=f"{f.__name__}_{next(_numbers)}")
    return FunctionType(code, f.__globals__)


_numbers = itertools.count()


@pytest.mark.every(16)
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    "f",
    [added, added_while, last_or_none, of_attribute, numpys_or_pythons, in_rounds_of_an_inner_loop],
    ids=lambda f: f.__name__,
)
def test_what_rounds_leave_that_add_nothing(f, question):
    """The program goes the way that it goes with what plain Python leaves."""

    f = unknown(f)

    def asking(x, rounds, limit):
        s = f(x, rounds, limit)
        return 3.0 * x if question(s) else s + x

    for limits in [(0.4, 100.0), (100.0, 0.4)]:
        derivative = jit(asking, compile="never")
        for limit in limits * 2:
            for x, rounds in [(1.5, 20), (1.5, 31), (np.float64(1.5), 31)]:
                wanted = asking(x, rounds, limit)
                assert derivative(x, rounds, limit) == pytest.approx(wanted, rel=1e-12)


def test_numbers_in_a_list_whose_length_each_call_says():
    """Each is Python's 0.3 or NumPy's: where it is kept, and where a division by it raises."""
    kept = {}

    def keeping(x):
        kept["list"] = ys = [max(v, 0.3) for v in x if v > 0]
        kept["first"], kept["sum"] = ys[0], sum(ys)
        return sum(ys)

    def dividing(x):
        return sum([1 / w for w in [max(v, 0.0) for v in x if v > -1]])

    points = [[0.1, 2.0, -0.5, 1.0], [0.5, 2.0, 0.7, 1.0], [0.1, -2.0, 0.2, 1.0]]
    df = jit(keeping, compile="never")
    for x in map(np.array, points + points):
        keeping(x)
        wanted = repr(kept)
        df(x)
        assert repr(kept) == wanted
    df = jit(dividing, compile="never")
    for x in points[1:]:
        assert df(np.array(x)) == pytest.approx(dividing(np.array(x)))
    with pytest.raises(ZeroDivisionError):
        df(np.array(points[0]))


@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("test", [lambda t: t > 0, np.isfinite, lambda t: (t > 0) ^ (t > 1)])
def test_a_float_made_of_a_test_is_a_float(test, mode):
    """In each round, and so in a list of them: the sum of two isn't that of booleans."""

    def floats(x):
        hits, t, last = [], 0.0, None
        for v in x:
            t = t * 0.5 + v
            last = float(test(t))
            hits.append(last)
        hits = np.array(hits)
        return hits, hits + hits, np.diff(hits), last

    derivative = jit(floats, compile=mode)
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=30)
        for found, wanted in zip(derivative(x), floats(x), strict=True):
            np.testing.assert_array_equal(found, wanted)
            assert np.asarray(found).dtype == np.asarray(wanted).dtype
