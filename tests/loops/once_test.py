"""Plain loops of which one round is traced for all: in `try` and `with`, with powers, entries of
lists and tests that NumPy makes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from tests.loops.once import Programs, arguments, by_program, calls_of, held, noted

from tapegrad import trace, value_and_grad

once, each = Programs(), Programs()
TABLE = [[1.0, 2.0, 3.0], [4.0, 5.0, -6.0]]
ORDER = [3, 1, 0, 2]
PLACES = np.array([4, 0, 2, 2, 1, 7, 3], np.int16)


@once
def in_try(x: Any, a: Any) -> Any:
    total = 0.0
    try:
        for v in x:
            total = total + noted(v) * a
    except ValueError:
        total = 1.0 * a
    return total


@once
def with_settings(x: Any, a: Any) -> Any:
    total = 0.0
    with np.errstate(all="ignore"):
        for v in x:
            total = 0.9 * total + noted(v) * a
    return total


@once
def until_with_settings(x: Any, a: Any) -> Any:
    y, n = np.abs(x[0]) + 100.0 + a, 0
    with np.errstate(all="ignore"):
        while abs(y * y - a) > 1e-9:
            y = 0.5 * (y + a / noted(y))
            n += 1
    return y * n


@each
def fails_in_a_round(x: Any, a: Any) -> Any:
    total = 0.0 * a
    try:
        for v in x:
            total = total + math.sqrt(v + 1.9)
    except ValueError:
        total = total + 2.0 * a
    return total + x[0]


@each
def fails_at_first(x: Any, a: Any) -> Any:
    total, entries = 0.5 * a, [1.0, 2.0]
    try:
        for v in x:
            total = total + v
            total = total * entries[int(total) + 50]
    except IndexError:
        total = total + 2.0 * a
    return total + x[0]


@each
def again_and_again(x: Any, a: Any) -> Any:
    scale = 1.0
    while True:
        try:
            total = 0.0 * a
            for v in x:
                total = total + math.log(scale * v + 2.0)
            return total * scale + a
        except ValueError:
            scale = 0.5 * scale


@each
def in_the_end(x: Any, a: Any) -> Any:
    total = 0.0 * a
    try:
        for v in x:
            total = total + noted(v)
            if v > 1.5:
                raise ValueError("large")
    except ValueError:
        return total * a
    finally:
        total = 0.0
    return a + total


@once
def power(x: Any, a: Any) -> Any:
    total = 0.0 * a
    for k in range(len(x)):
        total = total + (0.5 * np.tanh(x[0])) ** k * noted(x[k])
    return total


@once
def power_of_a_number(x: Any, a: Any) -> Any:
    total = 0.0 * a
    for k in range(len(x)):
        total = total + (0.5 * a) ** k / (k + 1) + noted(a) * 0.9**k
    return total


@once
def power_that_stays(x: Any, a: Any) -> Any:
    total, n = 0.0 * a, len(x) % 3 + 1
    for v in x:
        total = total + noted(v) ** n * a
    return total


@once
def power_of_zero(x: Any, a: Any) -> Any:
    total, zero = 0.0 * a, a - a
    for k in range(len(x)):
        total = total + zero**k * noted(x[k])
    return total + a


@once
def alternating(x: Any, a: Any) -> Any:
    total = 0.0 * a
    for k in range(len(x)):
        total = total + (-1) ** k * noted(x[k]) * a + (k % 3) * x[k]
    return total


@once
def from_tables(x: Any, a: Any) -> Any:
    total, own = 0.0 * a, [a, 2.0 * a, 0.5 * a]
    for k in range(len(x)):
        total = total + TABLE[k % 2][k % 3] * noted(x[k]) + own[k % 3] * x[ORDER[k % 4]]
    return total


@once
def from_the_end(x: Any, a: Any) -> Any:
    weights, total = [1.0, 0.5, 0.25], 0.0 * a
    for k in range(len(x)):
        total = total + weights[-1 - k % 3] * noted(x[k])
    return total


@each
def beyond_the_end(x: Any, a: Any) -> Any:
    weights, total = [0.1] * 75, 0.0 * a
    try:
        for k in range(len(x)):
            total = total + weights[k] * x[k] * a
    except IndexError:
        total = total + 3.0 * a
    return total


@each
def table_that_changes(x: Any, a: Any) -> Any:
    table, total = [[1.0, 2.0], [3.0, 4.0]], 0.0 * a
    for k in range(len(x)):
        row = table[k % 2]
        row[k % 2] = row[k % 2] * 0.5
        total = total + table[k % 2][0] * x[k] * a
    return total


@each
def list_that_changes(x: Any, a: Any) -> Any:
    table, total = [1.0, 2.0, 3.0], 0.0 * a
    for k in range(len(x)):
        total = total + table[k % 3] * x[k] * a
        table[(k + 1) % 3] = 0.5
    return total


@once
def until_close(x: Any, a: Any) -> Any:
    y = np.ones(2) * (100.0 + a)
    while not np.allclose(y * y, a, rtol=1e-12):
        y = 0.5 * (y + a / noted(y))
    return np.sum(y) + x[0]


@once
def history(x: Any, a: Any) -> Any:
    y, found = 100.0 + a, []
    while abs(y * y - a) > 1e-9:
        found.append((y, y * a))
        y = 0.5 * (y + a / noted(y))
    return y + sum(v for v, _ in found) + len(found) * x[0] + found[-1][1]


@once
def left_after_steps(x: Any, a: Any) -> Any:
    y, steps = 100.0 + a, []
    for _ in range(60):
        new = 0.5 * (y + a / noted(y))
        steps.append(new - y)
        if abs(new - y) < 1e-10:
            break
        y = new
    return y + np.sum(np.array(steps) ** 2) + x[0]


@once
def left_when_close(x: Any, a: Any) -> Any:
    y = np.ones(2) * (100.0 + a)
    for _ in range(60):
        new = 0.5 * (y + a / noted(y))
        if np.allclose(new, y, rtol=1e-12):
            break
        y = new
    return np.sum(y) + x[0]


@once
def integers_of_rounds(x: Any, a: Any) -> Any:
    total = 0.0 * a
    for k in range(len(x)):
        total = 0.9 * total + x[int(k % 2)] * noted(x[int(k // 2)]) * a ** int(k % 3) + float(k) * a
    return total


@once
def integers_of_entries(x: Any, a: Any) -> Any:
    total, places = 0.0 * a, np.argsort(x).astype(np.int32)
    for t in range(len(x)):
        total = 0.5 * total + noted(x[int(PLACES[t % 5])]) * int(PLACES[t % 7]) / float(1 + t)
    for k, v in zip(places, x, strict=True):
        total = total + v * noted(int(k)) * 0.01
    return total * a


@once
def pairs_of_numbers(x: Any, a: Any) -> Any:
    total = 0.0
    for i, j in itertools.combinations(range(len(x)), 2):
        r = abs(noted(x[i]) - x[j])
        if r < a:
            total = total + (a - r) ** 2
    return total


@once
def pairs_of_entries(x: Any, a: Any) -> Any:
    total = 0.0
    for k, (v, w) in enumerate(itertools.permutations(x[:30], 2)):
        total = total + np.sin(noted(v) - a * w) * (k % 5)
    return total


@once
def products_of_entries(x: Any, a: Any) -> Any:
    found = sum(noted(v) * w * u for v, w, u in itertools.product(x[:9], [a, 2.0 * a], (1.0, 2.0)))
    return found + sum([noted(v) for v, _ in itertools.product(x, repeat=2)])


@once
def pairs_with_themselves(x: Any, a: Any) -> Any:
    pairs = list(itertools.combinations_with_replacement(range(len(x)), 2))
    total = 0.0
    for i, j in pairs:
        total = total + noted(x[i]) * x[j] * a
    return total


@each
def pairs_that_have_begun(x: Any, a: Any) -> Any:
    pairs = itertools.combinations(x[:20], 2)
    total = next(pairs)[1] * a
    for v, w in pairs:
        total = total + v * w
    return total


@each
def pairs_of_rows_that_are_written(x: Any, a: Any) -> Any:
    rows = np.outer(x[:12], np.array([1.0, a]))
    for v, w in itertools.combinations(rows, 2):
        v[0] = v[0] + 0.01 * w[1]
    return np.sum(rows)


@pytest.mark.every(2)
@by_program(*once)
def test_a_round_is_traced_once(f):
    x, a = arguments(0)
    assert calls_of(noted, lambda: trace(f, x, a)) <= 5


@pytest.mark.every(8)
@by_program(*once, *each)
def test_values_and_derivatives(f):
    held(f)


@pytest.mark.parametrize("f", [np.allclose, np.array_equal, np.array_equiv])
def test_truths_of_numpy(f):
    def tested(x: Any, y: Any) -> Any:
        found = f(x, y), f(x, x), f(x, y[:1]), f(x, 1.0), f([x[0], 1.0], [y[0], 1.0])
        return np.sum(x) if found[0] else np.sum(y), *found

    for x, y in [
        ([1.0, 2.0], [1.0, 2.0]),
        ([1.0, np.nan], [1.0, np.nan]),
        ([1.0, 1.0], [1.0, 1.0]),
    ]:
        given = np.array(x), np.array(y)
        found, expected = trace(tested, *given)[0], tested(*given)
        assert [bool(v) for v in found[1:]] == [bool(v) for v in expected[1:]]
        assert np.array_equal(found[0], expected[0], equal_nan=True)


def test_tables_that_change_between_calls():
    def f(x: Any) -> Any:
        total = 0.0 * x[0]
        for k in range(len(x)):
            total = total + TABLE[k % 2][k % 3] * x[k] + ORDER[k % 4] * x[k]
        return total

    derivative, x = value_and_grad(f, compile="never"), arguments(0)[0]
    assert derivative(x)[0] == pytest.approx(f(x), rel=1e-13)
    before = TABLE[1][2], ORDER[1]
    try:
        TABLE[1][2] = 70.0
        assert derivative(x)[0] == pytest.approx(f(x), rel=1e-13)
        ORDER[1] = 9
        assert derivative(x)[0] == pytest.approx(f(x), rel=1e-13)
    finally:
        TABLE[1][2], ORDER[1] = before


def test_sums_of_integers_of_any_size():
    def f(x: Any, k: Any) -> Any:
        return sum([i * k for i in range(len(x))]) * x[0] + sum(v > 0 for v in x) * x[1]

    derivative, x = value_and_grad(f, compile="never"), arguments(0)[0]
    for k in (3, 2**30, 2**40):
        assert derivative(x, k)[0] == pytest.approx(f(x, k), rel=1e-13)
