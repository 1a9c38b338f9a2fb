"""Loops in the rounds of a loop that tests leave, wherever the program goes on then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.loops.once import Programs, by_program

from tapegrad import value_and_grad

leaving = Programs()
LEVELS = (0.1, 0.4, 0.8, 1.2)
INTERVALS = [(0.0, 0.1), (0.5, 0.2), (1.0, 0.3)]
GRID = np.linspace(-2.5, 2.5, 9)


@leaving
def before_the_rest_of_a_round(x: Any, a: Any) -> Any:
    total = 0.0
    for v in x:
        n = 0.0
        for c in LEVELS:
            if v * a > c:
                n = n + v
            else:
                break
            n = 0.9 * n + 0.01
        total = total + n * v
    return total


@leaving
def with_an_else(x: Any, a: Any) -> Any:
    total = 0.0
    for v in x:
        for c in LEVELS:
            if abs(v - c) < 0.2:
                break
        else:
            total = np.tanh(total + v * a)
    return total


@leaving
def for_nothing_but_whether(x: Any, a: Any) -> Any:
    def is_free(v: Any) -> bool:
        for c, r in INTERVALS:  # noqa: SIM110
            if abs(v - c) < r:
                return False
        return True

    total = 0.0
    for v in x:
        if is_free(v):
            total = np.tanh(total + v * a)
    return total


@leaving
def by_a_flag(x: Any, a: Any) -> Any:
    total = 0.0
    for v in x:
        is_near = False
        for c in LEVELS:
            if abs(v - c) < 0.2:
                is_near = True
                break
        if not is_near:
            total = np.tanh(total + v * a)
    return total


@leaving
def any_of_a_few(x: Any, a: Any) -> Any:
    total = 0.0
    for v in x:
        if any(abs(v - c) < 0.2 for c in LEVELS):
            total = 0.9 * total
        elif all(v < c for c in LEVELS):
            total = np.tanh(total + v * a)
    return total


@leaving
def any_of_a_list(x: Any, a: Any) -> Any:
    total = 0.0
    for v in x:
        near = [abs(v - c) < 0.2 for c in LEVELS]
        if any(near) or any((v > 1.5, False, 0.0)):
            total = 0.9 * total
        elif all([v < a, v < 2.0]):
            total = np.tanh(total + v * a)
    return total


@leaving
def by_a_result(x: Any, a: Any) -> Any:
    def read(v: Any) -> Any:
        for i in range(len(GRID) - 1):
            if v < GRID[i + 1]:
                t = (v - GRID[i]) / (GRID[i + 1] - GRID[i])
                return np.sin(a * GRID[i]) * (1 - t) + np.sin(a * GRID[i + 1]) * t
        return a * v

    total = 0.0
    for v in x:
        total = total + read(v)
    return total


@leaving
def by_its_number(x: Any, a: Any) -> Any:
    def first(v: Any) -> int:
        for k in range(len(x)):
            if x[k] > v:
                return k
        return len(x)

    total = 0.0
    for v in x:
        total = total + a * v * first(v)
    return total


@leaving
def by_the_end_of_an_array(x: Any, a: Any) -> Any:
    total = 0.0
    for v in x:
        k = 0
        while k < len(x) and x[k] <= v:
            k += 1
        total = total + a * v * k
    return total


@leaving
def with_lists(x: Any, a: Any) -> Any:
    found = []
    for v in x:
        for c in LEVELS:
            if v < c:
                found.append(v * c)
                break
        else:
            found.append(a * v)
    return sum(found)


@pytest.mark.every(6)
@by_program(*leaving)
@pytest.mark.parametrize("mode", ["never", "always"])
def test_wherever_it_is_left_is_one_trace(f, mode):
    derivative = value_and_grad(f, (0, 1), compile=mode)
    for k in range(5):
        rng = np.random.default_rng(k)
        x, a = rng.standard_normal(50), rng.uniform(0.4, 1.4)
        value, (dx, da) = derivative(x, a)
        assert value == pytest.approx(f(x.copy(), a), rel=1e-12)
        along = rng.standard_normal(len(x))
        ends = [f(x + h * along, a + h) for h in (1e-6, -1e-6)]
        assert dx @ along + da == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-6)
    assert derivative.cache_info().traces <= 2


def test_an_index_that_is_out_of_bounds_is_an_error_where_it_is_read():
    def scanned(x: Any, n: Any) -> Any:
        k = 0
        while k < n and x[k] < 2.0:
            k += 1
        return x[0] * k

    derivative, x = value_and_grad(scanned, compile="never"), np.linspace(0.0, 1.0, 6)
    assert derivative(x, 4)[0] == scanned(x, 4)
    assert derivative(x, 6)[0] == scanned(x, 6)
    with pytest.raises(IndexError):
        derivative(x, 7)
    assert derivative(x, 5)[0] == scanned(x, 5)


def asked_behind_a_value(x, a):
    n = j = 0

    def read(k):
        nonlocal n
        n += 1
        return x[k % 7] + 0.01 * k

    total = 0.0
    while total < 3.0 and read(j) < 1.9:
        total = total + x[j % 7] ** 2 * a
        j += 1
    return total + n


def asked_behind_a_value_in_rounds(x, a):
    count, total = [0], 0.0

    def read(k):
        count[0] += 1
        return x[k % 7]

    for v in x[:12]:
        j = 0
        while j * v < 2.0 and read(j) < 0.9 and j < 5:
            total = total + x[j % 7] ** 2 * a
            j += 1
    return total + count[0]


def kept_entries(x, a):
    pairs, kept, total = [(0.1 * k, 1.0 * k) for k in range(20)], [], 0.0
    for pair in pairs:
        kept.append(pair)
        total = total + pair[0] * a * x[0]
    for pair, backwards in zip(pairs, reversed(pairs), strict=True):
        total = total + (pair is kept[3]) * x[1] + (backwards is kept[4]) * x[2]
    return total


@pytest.mark.every(2)
@by_program(asked_behind_a_value, asked_behind_a_value_in_rounds, kept_entries)
def test_what_only_python_may_tell(f):
    derivative = value_and_grad(f, compile="never")
    for k in range(3):
        rng = np.random.default_rng(k)
        x, a = rng.standard_normal(30), rng.uniform(0.4, 1.4)
        assert derivative(x, a)[0] == pytest.approx(f(x.copy(), a), rel=1e-12)


def test_entries_end_before_a_round_is_traced_for_all():
    def largest(x, n):
        s = 0
        for i in range(n, len(x)):
            v = x[i]
            if not v > 0:
                break
            s = 1 if x[0] > v else s
        return x[0] + s

    derivative = value_and_grad(largest, compile="never")
    for x in (np.arange(1.0, 10), np.arange(5.0, 0, -1), np.arange(1.0, 5), np.arange(5.0, 2, -1)):
        assert derivative(x, 2)[0] == largest(x, 2)
