"""Python's functions that order, choose and fold: `sorted`, `max`, `min`, `functools.reduce`."""

from __future__ import annotations

import functools
import itertools
import operator
import statistics

import numpy as np
import pytest

from tapegrad import value_and_grad

WEIGHTS = np.cos(np.arange(6.0))


def _weighted(xs):
    return sum(w * x for w, x in zip(WEIGHTS, xs, strict=False))


def _sorted_in_place(x, **options):
    xs = list(x)
    xs.sort(**options)
    return _weighted(xs)


def _dynamic_programme(x):
    n = len(x)
    cost = np.full((n + 1, n + 1), np.inf)
    cost[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            step = abs(x[i - 1] - x[n - j])
            cost[i, j] = step + min(cost[i - 1, j], cost[i, j - 1], cost[i - 1, j - 1])
    return cost[n, n] + cost[n, n - 1]


# Each with how many traces it may take
PROGRAMS = {
    "sorted": (lambda x: _weighted(sorted(x)), 1),
    "sorted a list": (lambda x: _weighted(sorted([v * 2 for v in x])), 1),
    "sorted floats": (lambda x: _weighted(sorted([float(v) for v in x])), 1),
    "in reverse": (lambda x: _weighted(sorted(x, reverse=True)), 1),
    "by a key": (lambda x: _weighted(sorted(x, key=lambda v: (v - 1) ** 2)), 1),
    "by a key in C": (lambda x: _weighted(sorted([*x], key=abs, reverse=True)), 1),
    "by float": (lambda x: max(x, key=float) * sorted(x.tolist(), key=float)[0], 1),
    "places": (lambda x: _weighted(x[k] for k in sorted(range(6), key=lambda k: -x[k])), 1),
    "places by a method": (lambda x: _weighted(x[sorted([0, 2, 4], key=x.__getitem__)]), 1),
    "in place": (_sorted_in_place, 1),
    "in place by a key": (lambda x: _sorted_in_place(x, key=lambda v: -v, reverse=True), 1),
    "the median": (lambda x: statistics.median(x) * x[0], 1),
    "the nearest": (lambda x: min(x, key=lambda v: abs(v - 1)) ** 2, 1),
    "its place": (lambda x: x[min(range(len(x)), key=lambda k: abs(x[k] - 1))] ** 2, 1),
    "the largest by a key": (lambda x: max(list(x), key=lambda v: -v * v) ** 2, 1),
    "one of three": (lambda x: max(x[0], x[1], x[2]) * min(x[3], 0.5, x[4], x[5]), 16),
    "in a loop": (lambda x: sum(min(x[k], x[k - 1], x[k - 2]) for k in range(2, 6)), 2),
    "of a list in a loop": (lambda x: sum(max([x[k], x[k - 1], 0.1]) for k in range(6)), 2),
    "a dynamic programme": (_dynamic_programme, 1),
    "reduce": (lambda x: functools.reduce(operator.mul, x), 1),
    "reduce from": (lambda x: functools.reduce(lambda a, b: 0.5 * a + b, list(x), 1.0), 1),
    "reduce chooses": (lambda x: functools.reduce(lambda a, b: a if a > b else b, x) ** 2, 2),
    "accumulate": (lambda x: _weighted(itertools.accumulate(x)), 1),
    "accumulate from": (lambda x: _weighted(itertools.accumulate(x, operator.mul, initial=2.0)), 1),
    "accumulate chooses": (lambda x: _weighted(itertools.accumulate(list(x), max)), 2),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_order_is_no_path(name):
    f, most = PROGRAMS[name]
    df = value_and_grad(f, compile="never")
    rng = np.random.default_rng(0)
    for _ in range(24):
        x, v = rng.normal(size=(2, 6))
        value, slope = df(x)
        assert value == f(x)
        difference = (f(x + 1e-6 * v) - f(x - 1e-6 * v)) / 2e-6
        np.testing.assert_allclose(slope @ v, difference, rtol=1e-6, atol=1e-7)
    assert df.cache_info().traces <= most


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"key": abs}, {"key": np.floor}])
@pytest.mark.parametrize("number", [float, np.float64, np.float32])
def test_orders_are_pythons(options, number):
    """Equal numbers stay where they are, as do those that NaN is between."""

    def f(x):
        xs = sorted([number(v) for v in x], **options)
        return _weighted(xs), [type(v) is number or type(v) is float for v in xs]

    df = value_and_grad(f, has_aux=True, compile="never")
    for x in (
        [0.5, -0.5, 0.5, -0.0, 0.0, 1.25],
        [3.0, 2.0, 2.5, 1.0, -3.0, -2.0],
        [1.0, np.nan, 0.5, np.inf, -np.inf, 0.25],
        [0.0, -0.0, 0.0, -0.0, 1.0, 1.0],
    ):
        (value, types), slope = df(np.array(x))
        expected, expected_types = f(np.array(x))
        np.testing.assert_equal(value, expected)
        assert types == expected_types
        if np.isfinite(value):
            places = sorted(
                range(6),
                key=lambda k: options.get("key", float)(x[k]),
                **{k: v for k, v in options.items() if k != "key"},
            )
            np.testing.assert_allclose(slope[places], WEIGHTS, rtol=1e-6)


def test_what_is_no_number_is_ordered_by_python():
    def f(x):
        names = sorted({"b": x[0], "a": x[1]}.items(), key=lambda item: item[0])
        longest = max(["a", "ccc", "bb"], key=len)
        return names[0][1] * len(longest) + sorted([3, 1, 2])[0] * x[0]

    df = value_and_grad(f, compile="never")
    value, slope = df(np.array([2.0, 5.0]))
    assert value == f(np.array([2.0, 5.0]))
    np.testing.assert_array_equal(slope, [1.0, 3.0])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: max(x[0], x[1], x[2], default=3),
        lambda x: max([]),
        lambda x: sorted(x, 3),
        lambda x: sorted(x, key=3),
        lambda x: functools.reduce(operator.add, x[:0]),
        lambda x: functools.reduce(operator.add, x, 1, 2),
        lambda x: sorted([x[0], "a"]),
        lambda x: max(x[0], "a", x[1]),
    ],
)
def test_errors_are_pythons(wrong):
    x = np.arange(3.0)
    with pytest.raises(Exception) as expected:
        wrong(x)
    with pytest.raises(type(expected.value)):
        value_and_grad(wrong)(x)


def test_keys_are_asked_once_each():
    def f(x):
        asked = []
        found = sorted(x, key=lambda v: asked.append(v) or -v)
        return found[0] * len(asked)

    df = value_and_grad(f, compile="never")
    for x in ([1.0, 3.0, 2.0], [4.0, 1.0, 0.5]):
        assert df(np.array(x))[0] == f(np.array(x))
