"""Lists that grow in plain loops of which one round is traced for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapegrad
from tapegrad import trace, value_and_grad

N = 80
RNG = np.random.default_rng(5)
X = RNG.standard_normal(N)
P = np.array([0.4, 0.7])

PROGRAMS: dict[str, Any] = {}
ROUND_BY_ROUND: dict[str, Any] = {}


def once(f: Any) -> Any:
    PROGRAMS[f.__name__] = f
    return f


def each(f: Any) -> Any:
    ROUND_BY_ROUND[f.__name__] = f
    return f


@once
def numbers(p: Any) -> Any:
    found, h = [], p[0]
    for v in X:
        h = np.tanh(h + v * p[1])
        found.append(h)
    return np.sum(np.array(found) ** 2) + found[-1] * found[3] + len(found)


@once
def behind_a_first_entry(p: Any) -> Any:
    found, times, h, t = [p[0]], [0.0], p[0], 0.0
    for v in X:
        h, t = h + 0.01 * np.sin(v * h) * p[1], t + 0.01
        found.append(h)
        times.append(t)
    return np.trapezoid(np.array(found) ** 2, np.array(times)) + found[0] * found[1]


@once
def before_the_step(p: Any) -> Any:
    found, h = [], p
    for v in X:
        found.append(h)
        h = np.tanh(h + v * p)
    return np.sum(np.stack(found, axis=1) ** 2) + np.sum(np.vstack(found)[3] * h)


@once
def in_turns(p: Any) -> Any:
    found, others, h = [], [], p[0]
    for t in range(N):
        h = np.tanh(h + X[t] * p[1])
        found.append(h)
        found.append(t * h)
        others.append((t, "word", (h,)))
    a = np.array(found)
    return np.sum(a[1:] * a[:-1]) + sum(t * h for t, _, (h,) in others)


@once
def constants(p: Any) -> Any:
    ones, numbers, h = [], [], p[0]
    for t in range(N):
        h = h * 0.9 + p[1]
        ones.append(1.0)
        numbers.append(2 * t)
    return np.sum(np.array(ones)) * h + X[numbers[3]] * p[1] * sum(numbers[:5])


@once
def array_that_is_the_same(p: Any) -> Any:
    found, c = [], 2 * p
    for v in X:
        c += v * p
        found.append(c)
    found[0][1] = 3.0
    return np.sum(np.array(found) ** 2) + c[1]


@once
def copies(p: Any) -> Any:
    found, c = [], 2 * p
    for v in X:
        c += v * p
        found.append(c.copy())
    found[0][1] = 3.0
    found[-1][1] = 4.0
    return np.sum(np.array(found) ** 2) + c[1]


@once
def last_entry_is_the_variable(p: Any) -> Any:
    found, h = [], 2 * p
    for v in X:
        h = np.tanh(h + v * p)
        found.append(h)
    h[0] = 7.0
    found[-1][1] *= 3.0
    return np.sum(np.array(found) ** 2) + np.sum(h)


@once
def first_entry_is_the_variable(p: Any) -> Any:
    h = first = 2 * p
    found = []
    for v in X:
        found.append(h)
        h = np.tanh(h + v * p)
    first[0] = 7.0
    h[1] = 3.0
    return np.sum(np.array(found) ** 2) + np.sum(h) * found[0][0]


@once
def made_arrays(p: Any) -> Any:
    found = []
    for t in range(N):
        row = np.zeros(3)
        row[0], row[1] = p[0] * t, p[1]
        found.append(row)
    found[3][2] = 9.0
    return np.sum(np.concatenate(found) ** 2) + np.sum(np.array(found[5:]) ** 3)


@once
def both_sides_of_a_branch(p: Any) -> Any:
    found, h = [], p[0]
    for v in X:
        if v > 0.2:
            h = np.tanh(h + v * p[1])
        found.append(h)
    return np.sum(np.array(found) ** 2)


@once
def within_loops(p: Any) -> Any:
    total, every = 0.0, []
    for k in range(6):
        found, h = [], p[0] * k
        for v in X:
            h = np.tanh(h + v * p[1])
            found.append(h)
        total = total + np.mean(np.array(found) ** 2)
        every.append(total)
    return np.sum(np.array(every))


@once
def gone_through_again(p: Any) -> Any:
    found, h = [p[1]], p[0]
    for v in X:
        h = np.tanh(h + v * p[1])
        found.append(h)
    s = 0.0
    for v in found:
        s = 0.9 * s + v * p[0]
    for k, (v, w) in enumerate(zip(reversed(found), [float(x) for x in X], strict=False)):
        s = s + np.sin(v * w) * k
    return s


@once
def over_tapegrads_range(p: Any) -> Any:
    found, h = [], p[0]
    for t in tapegrad.range(N):
        h = np.tanh(h + X[t] * p[1])
        found.append(h)
    return np.sum(np.array(found) ** 2) + found[-1]


@each
def with_another_name(p: Any) -> Any:
    found: list[Any] = []
    h, other = p[0], found
    for v in X:
        h = np.tanh(h + v * p[1])
        found.append(h)
        if len(other) > 40:
            h = 2 * h
    return np.sum(np.array(found) ** 2)


@each
def that_the_loop_goes_through(p: Any) -> Any:
    found, s = [0.1 * k for k in range(10)], 0.0
    for v, _ in zip(found, range(60), strict=False):
        s = s + np.sin(v * p[0]) * p[1]
        found.append(0.5 * v)
    return s * len(found)


@each
def that_is_read(p: Any) -> Any:
    found, h = [p[0]], p[0]
    for v in X:
        h = np.tanh(found[len(found) // 2] + h + v * p[1])
        found.append(h)
    return np.sum(np.array(found) ** 2)


@each
def passed_in(p: Any) -> Any:
    def fill(found: list[Any]) -> None:
        h = p[0]
        for v in X:
            h = np.tanh(h + v * p[1])
            found.append(h)

    mine: list[Any] = []
    fill(mine)
    fill(mine)
    return np.sum(np.array(mine) ** 2) * len(mine)


@each
def in_some_rounds(p: Any) -> Any:
    found, h = [], p[0]
    for v in X:
        h = np.tanh(h + v * p[1])
        if h > 0.1:
            found.append(h)
    return np.sum(np.array(found) ** 2)


@each
def in_every_fifth_round(p: Any) -> Any:
    found, h = [], p[0]
    for t in range(N):
        h = np.tanh(h + X[t] * p[1])
        if t % 5 == 0:
            found.append(h)
    return np.sum(np.array(found) ** 2)


@each
def parts_of_arrays(p: Any) -> Any:
    found, h = [], 2 * p
    for v in X:
        h = np.tanh(h + v * p)
        found.append(h[:1])
    h[0] = 3.0
    return np.sum(np.array(found) ** 2)


@each
def array_of_the_round_before(p: Any) -> Any:
    found, h, old = [], 2 * p, 3 * p
    for v in X:
        old = h
        h = np.tanh(h + v * p)
        found.append(h)
    old[0], h[1] = 9.0, 2.0
    return np.sum(np.array(found) ** 2) + np.sum(old)


@each
def array_in_two_places(p: Any) -> Any:
    found, h = [], 2 * p
    for v in X:
        found.append(h)
        h = np.tanh(h + v * p)
        found.append(h)
    found[2][1] = 3.0
    return np.sum(np.array(found) ** 2)


def check(f: Any, mode: str = "never") -> None:
    derived = value_and_grad(f, compile=mode)
    for p in (P, 1.1 * P - 0.05):
        value, slope = derived(p)
        np.testing.assert_allclose(value, f(p), rtol=1e-12)
        steps = 1e-6 * np.eye(2)
        expected = [(f(p + step) - f(p - step)) / 2e-6 for step in steps]
        np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.every(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_round_is_traced(name: str) -> None:
    """What a round appends is a result of it; the arrays of lists are those of all rounds."""
    f = PROGRAMS[name]
    tape = trace(f, P)[1]
    assert "_round(step" in str(tape)
    assert len(tape.calls) < 32
    check(f)


@pytest.mark.every(8)
@pytest.mark.parametrize("name", ROUND_BY_ROUND)
def test_each_round_is_made(name: str) -> None:
    """A list that others hold or rounds read, that doesn't grow in each round, or whose entries
    would be arrays in two places."""
    check(ROUND_BY_ROUND[name])


@pytest.mark.parametrize("name", ["behind_a_first_entry", "last_entry_is_the_variable"])
def test_compiled(name: str) -> None:
    check(PROGRAMS[name], "always")


def test_lists_are_as_long_as_the_arguments_say() -> None:
    """Each length is a tape of its own, with the values that plain Python has."""

    def f(xs: Any) -> Any:
        found, h = [], 0.5
        for x in xs:
            h = h * 0.9 + x
            found.append(h)
        return np.sum(np.array(found) ** 2), found

    derived = value_and_grad(f, has_aux=True, compile="never")
    for n in (30, 1, 40, 0, 30):
        xs = X[:n]
        (value, found), _ = derived(xs)
        expected, entries = f(xs)
        np.testing.assert_allclose([value, *found], [expected, *entries], rtol=1e-12)
        assert [type(x) for x in found] == [type(x) for x in entries]


def test_errors_come_where_python_raises_them() -> None:
    def f(p: Any) -> Any:
        found = []
        for v in X:
            found.append(v * p)
            found.append(v * p, v)  # type: ignore[call-arg]
        return np.sum(np.array(found))

    with pytest.raises(TypeError, match="exactly one argument"):
        tapegrad.grad(f, compile="never")(P)


def test_each_entry_is_an_array_of_its_own() -> None:
    """Writing to one leaves the others, and the array that was made of all."""

    def f(p: Any) -> Any:
        found = []
        for v in X:
            found.append(v * p)
        whole = np.array(found)
        found[1][0] = 5.0
        whole[2, 1] = 7.0
        return np.sum(whole**2) + np.sum(np.array(found) ** 3) + found[2][1] * found[1][0]

    check(f)
