"""Comprehensions and generator expressions, of which one round is traced for all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.loops.once import Programs, arguments, by_program, calls_of, held, noted

from tapegrad import trace, value_and_grad

once = Programs()  # a round is made so often that all of them can't have been
each = Programs()  # they can't be: what they give is NumPy's


@once
def listed(x: Any, a: Any) -> Any:
    return np.sum(np.array([noted(v) * a for v in x]))


@once
def by_number(x: Any, a: Any) -> Any:
    return np.sum([x[i] * x[i - 1] + noted(a) for i in range(1, len(x))])


@once
def nested(x: Any, a: Any) -> Any:
    return np.sum(np.array([[np.sin(x[i] * noted(x[j])) for j in range(9)] for i in range(len(x))]))


@once
def in_one(x: Any, a: Any) -> Any:
    return np.sum(np.array([noted(u) * v + a for u in x for v in x[:8]]))


@once
def rows(x: Any, a: Any) -> Any:
    found = [noted(v) * np.array([1.0, 2.0]) for v in x]
    found[0][1] += a
    return np.sum(np.stack(found))


@once
def pairs(x: Any, a: Any) -> Any:
    found = [(noted(u), v * a) for u, v in zip(x, 2.0 * x, strict=False)]
    return found[3][0] + found[-1][1] + sum(u * v for u, v in found[:4])


@once
def lists_in_a_list(x: Any, a: Any) -> Any:
    found = [[noted(v), v * a] for v in x]
    found[0].append(a)
    found[1][0] = a
    return sum(found[0]) + sum(found[1]) + found[-1][1]


@once
def lists_by_a_statement(x: Any, a: Any) -> Any:
    found = []
    for v in x:
        row = []
        for k in range(6):
            row.append(noted(v) * k * a)
        found.append(row)
    found[2].append(1.0)
    return np.sum(np.array([found[0], found[-1]])) + len(found[2])


@once
def summed(x: Any, a: Any) -> Any:
    return sum(noted(v) * v for v in x) + sum((noted(v) * v for v in x), a)


@once
def furthest(x: Any, a: Any) -> Any:
    return max(abs(noted(v) - a) for v in x) - min(noted(v) * a for v in x)


@once
def summed_list(x: Any, a: Any) -> Any:
    return sum([math.exp(noted(v) * a) for v in x])


@once
def decided(x: Any, a: Any) -> Any:
    found = 1.0 if any(noted(v) > 2 * a for v in x) else 2.0
    return found * a + (3.0 * x[0] if all(noted(v) < a for v in x) else x[1])


@once
def made_tuple(x: Any, a: Any) -> Any:
    found = tuple(noted(v) * a for v in x)
    return found[0] * found[-1] + len(found)


@once
def chosen(x: Any, a: Any) -> Any:
    return sum([noted(v) if v > 0 else a * v for v in x])


@once
def in_rounds(x: Any, a: Any) -> Any:
    total = 0.0 * a
    for v in x:
        total = 0.5 * total + sum(noted(v) * x[k] for k in range(5))
    return total


@once
def in_a_function(x: Any, a: Any) -> Any:
    def weighted(y: Any) -> Any:
        return [noted(v) * a for v in y]

    return sum(weighted(x)) + sum(weighted(x[1:]))


@each
def filtered(x: Any, a: Any) -> Any:
    return a + sum(noted(v) * a for v in x if v > 0)


@once
def of_a_part(x: Any, a: Any) -> Any:
    y = x * a
    total = 0.0
    for u, v in zip(y[:-1], y[2:], strict=False):
        total = total + noted(u) * v
    return total


@each
def of_a_part_that_changes(x: Any, a: Any) -> Any:
    y = x * a
    total = 0.0 * a
    for k, v in enumerate(y[1:-2]):
        total = total + v * a
        y[k + 2] += total
    return total + y[-1]


@each
def part_of_what_a_function_changes(x: Any, a: Any) -> Any:
    y = x * a

    def changed(k: Any, v: Any) -> Any:
        y[k + 2] = v * a
        return v

    return sum([changed(k, v) for k, v in enumerate(y[1:-2])])


@each
def same_array(x: Any, a: Any) -> Any:
    y = x * a
    found = [y for _ in range(len(x))]
    found[0][0] = 3.0 * a
    return np.sum(found[1]) + np.sum(found[-1])


@each
def views(x: Any, a: Any) -> Any:
    y = x * a
    found = [y[k : k + 2] for k in range(len(y) - 1)]
    found[0][1] = 5.0 * a
    return np.sum(found[1])


@once
def lists_by_a_function(x: Any, a: Any) -> Any:
    def powers(v: Any) -> Any:
        row = []
        for k in range(4):
            row.append(v * a * k)
        return row

    found = [powers(noted(v)) for v in x]
    found[1][1] = a
    return np.sum(np.array(found))


@each
def two_names(x: Any, a: Any) -> Any:
    found, held = [], {}
    for v in x:
        row: list[Any] = []
        held["last"] = row
        for k in range(3):
            row.append(v * k * a)
        found.append(row)
    held["last"].append(a)
    return sum(found[-1]) + len(found[0]) * a


@each
def longer_each_round(x: Any, a: Any) -> Any:
    row: list[Any] = []
    total = 0.0 * a
    for v in x:
        other = row
        for k in range(3):
            other.append(v * k)
        total = total + len(other) * a
    return total + x[0]


@each
def read_afterwards(x: Any, a: Any) -> Any:
    for v in x:
        row = []
        for k in range(3):
            row.append(v * k)
    row.append(a)
    return sum(row)


@each
def given_as_default(x: Any, a: Any) -> Any:
    def collected(v: Any, row: list[Any] = []) -> Any:  # noqa: B006
        for _ in range(2):
            row.append(v)
        return len(row)

    total = 0.0 * a
    for v in x:
        total = total + collected(v) * v * a
    return total


@each
def kept_by_a_generator(x: Any, a: Any) -> Any:
    def lengths() -> Any:
        row: list[Any] = []
        for v in x:
            row.append(v)
            yield len(row) * v

    total = 0.0 * a
    for v in lengths():
        total = total + v * a
    return total


@each
def shared_list(x: Any, a: Any) -> Any:
    shared = [a]
    found = [shared for _ in range(len(x))]
    found[0].append(x[0])
    return sum(found[-1]) * a


@each
def kept_rows(x: Any, a: Any) -> Any:
    last: list[Any] = []
    found = []
    for v in x:
        found.append(last)
        last = [v * a]
    last.append(a)
    found[-1].append(x[0])
    return sum(last) + sum(found[1]) + len(found[0])


@each
def with_a_change(x: Any, a: Any) -> Any:
    found: list[Any] = []
    [found.append(v * a) for v in x]
    return sum(found)


@each
def running(x: Any, a: Any) -> Any:
    s = 0.0 * a
    return sum([s := s + v * a for v in x])


@each
def left_over(x: Any, a: Any) -> Any:
    entries = (v * a for v in x)
    found = any(v > 0 for v in entries)
    return sum(entries) + found * a


@each
def held_on_to(x: Any, a: Any) -> Any:
    entries = (v > 0.1 for v in x)
    return 2.0 * any(entries) * a + sum(1 for _ in entries) * x[0]


@each
def asked_by_hand(x: Any, a: Any) -> Any:
    entries = (v * a for v in x)
    return next(entries) + 2.0 * next(entries) + sum(entries)


@each
def fails(x: Any, a: Any) -> Any:
    try:
        return sum([math.sqrt(v + 1.5) * a for v in x])
    except ValueError:
        return 2.0 * a * x[0]


@each
def plain(x: Any, a: Any) -> Any:
    weights = [1.0 / (k + 1) for k in range(len(x))]
    return x[3] * weights[3] + len(f"{weights[1]:.3f}") * a


@pytest.mark.every(8)
@by_program(*once)
def test_a_round_is_traced_once(f):
    x, a = arguments(0)
    trace(f, x, a)  # branches of which both sides are seen are known from then on
    assert calls_of(noted, lambda: trace(f, x, a)) <= 40


@pytest.mark.every(12)
@by_program(*once, *each)
def test_values_and_derivatives(f):
    held(f)


def test_arrays_are_no_entries_of_fromiter():
    def f(x: Any) -> Any:
        return np.sum(np.fromiter((x * k for k in range(3)), float))

    for g in (f, value_and_grad(f)):
        with pytest.raises(ValueError, match="setting an array element"):
            g(np.ones(2))
