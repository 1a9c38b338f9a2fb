"""Plain loops that are left by a test, of which one round is traced for all."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapegrad import trace, value_and_grad

X = np.random.default_rng(3).standard_normal(60)
Program = Callable[[Any], Any]
PROGRAMS: dict[str, tuple[Program, int]] = {}
CALLS = (2.0, 50.0, 1.25, 900.0)


def once(loops: int = 1) -> Callable[[Program], Program]:
    def noted(f: Program) -> Program:
        PROGRAMS[f.__name__] = f, loops
        return f

    return noted


@once()
def newton_counted(a: Any) -> Any:
    x, k = a * 1.0, 0
    while abs(x * x - a) > 1e-12 * a and k < 100:
        x = 0.5 * (x + a / x)
        k += 1
    return x + k * a


@once()
def capped_first(a: Any) -> Any:
    x, k = a * 1.0, 0
    while k < 7 and abs(x * x - a) > 1e-12 * a:
        x = 0.5 * (x + a / x)
        k += 1
    return x * k


@once()
def bisection(a: Any) -> Any:
    low, high = 0.0 * a, a + 1.0
    while high - low > 1e-10:
        middle = 0.5 * (low + high)
        if middle * middle > a:
            high = middle
        else:
            low = middle
    x = 0.5 * (low + high)
    return x - (x * x - a) / (low + high)


@once()
def left_in_the_middle(a: Any) -> Any:
    x, count = a * 1.0, 0
    while True:
        step = (x * x - a) / (2 * x)
        if abs(step) < 1e-11:
            break
        x = x - step
        count += 1
    return x + count


@once()
def flag(a: Any) -> Any:
    x, done = np.ones(2) * a, False
    while not done:
        new = 0.5 * np.cos(x) + 0.01 * a
        done = np.max(np.abs(new - x)) < 1e-10
        x = new
    return np.sum(x)


@once()
def read_to_the_end(a: Any) -> Any:
    """The second condition can't be asked for where the first one doesn't hold."""
    k, total = 0, 0.0 * a
    while k < len(X) and X[k] < 100.0:
        total = total + np.sin(a * X[k])
        k += 1
    return total * k


@once()
def times(a: Any) -> Any:
    t, y, path = 0.0, 1.0 * a, []
    while t < 1.0:
        y = y - 0.01 * np.sin(y)
        t += 0.01
        path.append(y)
    return np.sum(np.array(path)) + t


@once(7)
def accepted_or_not(a: Any) -> Any:
    """An array takes the place of another one where a step is accepted: two conditionals of two
    sides are in the loop, and one in the round before it, in which numbers get their types."""
    t, h, y = 0.0 * a, 0.1 + 0.0 * a, np.array([1.0, 0.2]) + 0.0 * a
    while t < 1.0:
        if t + h > 1.0:
            h = 1.0 - t
        k = y * np.array([0.5, 0.9])
        new = y - h * k
        if np.sum((h * k) ** 2) < 0.001:
            y = new
            t = t + h
        else:
            h = 0.5 * h
    return np.sum(y) * np.sqrt(a)


@once(2)
def inner(a: Any) -> Any:
    total = 0.0 * a
    for i in range(20):
        x = a + i
        while abs(x * x - (a + i)) > 1e-10:
            x = 0.5 * (x + (a + i) / x)
        total = total + x
    return total


def solve(f: Program, slope: Program, x: Any) -> tuple[Any, int]:
    count, value = 0, f(x)
    while abs(value) > 1e-11:
        x = x - value / slope(x)
        value = f(x)
        count += 1
        if count > 60:
            raise RuntimeError("no convergence")
    return x, count


@once()
def called(a: Any) -> Any:
    x, count = solve(lambda x: x * x - a, lambda x: 2 * x, a * 1.0)
    return x * count


@once()
def in_place(a: Any) -> Any:
    x = np.array([1.0, 2.0, 3.0]) * a
    while np.sum(x**2) > 1.0:
        x *= 0.9
    return np.sum(x * a)


@once()
def shifted_by_a_function(a: Any) -> Any:
    """What the caller holds isn't what the function's variables hold in the end."""
    start = np.ones(3) * a
    return np.sum(start) + np.sum(shift(start, a))


def shift(z: Any, a: Any) -> Any:
    x, y, n = z * 2, z * 3, 0.0
    while n < 40.0 + 0 * a:
        x, y, z = y, z, 0.3 * np.sin(x + a) + 0.1 * z
        n = n + 1.0
    x[0] = 5.0
    return x + y - z


# ---- `for` and `break`


@once()
def broken_off(a: Any) -> Any:
    x = a * 1.0
    for _ in range(60):
        step = (x * x - a) / (2 * x)
        x = x - step
        if abs(step) < 1e-11:
            break
    return x


@once()
def left_before_the_update(a: Any) -> Any:
    x = a * 1.0
    for k in range(60):
        step = (x * x - a) / (2 * x)
        if abs(step) < 1e-11:
            return x + k
        x = x - step
    raise RuntimeError("no convergence")


@once()
def a_test_that_counts(a: Any) -> Any:
    h = a * 1.0
    for t in range(60):
        h = 0.9 * h + a * X[t]
        if t > 40:
            break
    return h


@once()
def data(a: Any) -> Any:
    h = 0.0 * a
    for t, v in enumerate(X):  # noqa: B007
        h = 0.9 * h + np.sin(a * v)
        if h > 1.5:
            break
    return h + t


@once()
def two_exits(a: Any) -> Any:
    low, high = 0.0 * a, a + 1.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        value = middle * middle - a
        if value == 0 or (high - low) / 2 < 1e-11:
            return middle - value / (2 * middle)
        if value > 0:
            high = middle
        else:
            low = middle
    raise RuntimeError("no convergence")


@once()
def raises_where_flat(a: Any) -> Any:
    x = a * 1.0
    for _ in range(100):
        flat = 2 * x
        if abs(flat) < 1e-14:
            raise ZeroDivisionError
        new = x - (x * x - a) / flat
        if abs(new - x) < 1e-11:
            return new
        x = new
    return x


@once()
def rows_written(a: Any) -> Any:
    y = np.zeros(90)
    y[0] = a
    for t in range(1, 90):
        y[t] = 0.8 * y[t - 1]
        if y[t] < 0.1:
            break
    return np.sum(y**2) + t


@once(2)
def in_a_loop(a: Any) -> Any:
    total = 0.0 * a
    for i in range(20):
        x = a + i
        for _ in range(50):
            step = (x * x - a - i) / (2 * x)
            x = x - step
            if abs(step) < 1e-12:
                break
        total = total + x
    return total


@pytest.fixture(autouse=True)
def quietly() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def slope(f: Program, a: float) -> Any:
    h = 1e-6 * a
    return (f(a + h) - f(a - h)) / (2 * h)


@once()
def along_directions(a: Any) -> Any:
    """A round makes an array of its own, and a comprehension goes through that."""
    x = np.array([1.0, 2.0]) * np.log(1 + a)
    while np.sum(x * x) > 1e-4:
        x = x - np.array([0.3 * (x @ unit) for unit in np.eye(len(x))])
    return x[0] * a + x[1]


def either_way(a: Any) -> Any:
    """Left by the first test where `a` is small, and by the second one where it is large."""
    x, total = a * 1.0, 0.0
    while True:
        total = total + x
        if total > 20.0:
            break
        x = 0.7 * x + 0.01
        if x < 0.5:
            total = total * x
            break
    return total * x


def either_way_inside(a: Any) -> Any:
    """The same in the rounds of another loop, each of which may go another way."""
    total = 0.0
    for k in range(30):
        total = 0.5 * total + either_way(a * (1.0 + k % 3))
    return total


def to_the_end_or_left_twice(a: Any) -> Any:
    x, k = a * 1.0, -1
    for k in range(40):
        x = 0.8 * x + 0.1
        if x < 0.51:
            break
        if x > 50.0:
            return x * k
        x = x + 0.001 * a
    return x + k


@pytest.mark.parametrize("f", [either_way, either_way_inside, to_the_end_or_left_twice])
def test_tests_that_leave_in_turns(f: Program) -> None:
    derived = value_and_grad(f, compile="never")
    for a in (1.5, 30.0, 2.1, 0.73, 90.0, 1.5, 30.0, 5.0, 300.0, 2.1):
        value, gradient = derived(a)
        np.testing.assert_allclose(value, f(a), rtol=1e-11)
        np.testing.assert_allclose(gradient, slope(f, a), rtol=2e-4, atol=1e-6)
    before = derived.cache_info().traces
    for a in (1.5001, 30.001, 2.1001):
        np.testing.assert_allclose(derived(a)[0], f(a), rtol=1e-11)
    assert derived.cache_info().traces == before


@pytest.mark.every(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_round_is_traced(name: str) -> None:
    """One tape serves calls of any number of rounds, and is as long as one round."""
    f, loops = PROGRAMS[name]
    derived = value_and_grad(f, compile="never")
    for a in (*CALLS, CALLS[0]):
        value, gradient = derived(a)
        np.testing.assert_allclose(value, f(a), rtol=1e-11)
        np.testing.assert_allclose(gradient, slope(f, a), rtol=2e-4, atol=1e-6)
    assert derived.cache_info().traces == 1
    tape = trace(f, CALLS[0])[1]
    assert str(tape).count(" = loop(") == loops
    assert len(tape.calls) < 30


def test_compiled() -> None:
    """All in one program, which compiles once."""

    def every(a: Any) -> Any:
        return sum(f(a) for f, _ in PROGRAMS.values())

    compiled = value_and_grad(every, compile="always")
    for a in CALLS:
        np.testing.assert_allclose(compiled(a)[0], every(a), rtol=1e-11)
        np.testing.assert_allclose(compiled(a)[1], slope(every, a), rtol=1e-3)
    assert compiled.cache_info().traces == 1


# ---- what does more


def grows(a: Any) -> Any:
    x, path = a * 1.0, []
    while x > 0.5:
        x = 0.7 * x
        path.append(1)
    return x * len(path)


def trades_places(a: Any) -> Any:
    x, p, q = a * 1.0, [2.0 * a], [3.0 * a]
    first = p
    while x > 0.5:
        x = 0.7 * x
        p, q = q, p
    p.append(1.0)
    return x + len(first)


def swap(x: Any, a: Any) -> Any:
    y, n = 2 * x, 1.0 * a
    while n > 0.5:
        y, x, n = x, y, 0.7 * n
    x[0] = 5.0
    return x


def trades_arrays(a: Any) -> Any:
    start = np.ones(3) * a
    return np.sum(swap(start, a)) + np.sum(start)


def written_to_after_no_round(a: Any) -> Any:
    """Without a round both names are of one array."""
    start = x = np.ones(2) * a
    while x[0] > 3.0:
        x = 0.5 * x
    x[1] = 7.0
    return np.sum(start) + np.sum(x)


class Counter:
    made = 0


def writes_to_what_was_refused(a: Any) -> Any:
    """The array of a step is written to by another name, whether it was accepted or not."""
    y, h, first = np.ones(3) * a, 0.1, None
    start = y
    for k in range(100):
        new = y - h * y * np.array([1.0, 2.0, 3.0])
        keep = new
        if np.sum((new - y) ** 2) < 0.01:
            y = new
        else:
            h = 0.5 * h
        if k % 2:
            keep[0] = keep[0] * 1.001
        first = keep if first is None else first
    return np.sum(y) + np.sum(first) + np.sum(start)


def counts_elsewhere(a: Any) -> Any:
    counter, x = Counter(), a * 1.0
    while x > 0.5:
        x = 0.7 * x
        counter.made += 1
    return x * counter.made


def left_by_an_error(a: Any) -> Any:
    x = a * 1.0
    try:
        while x > 0.5:
            x = 0.7 * x
            if x < 1.0:
                raise ValueError
    except ValueError:
        x = x * 3
    return x


def read_into_python(a: Any) -> Any:
    x, sizes = a * 1.0, 0
    while x > 0.5:
        x = 0.7 * x
        sizes += len(np.zeros(int(x)))
    return x * sizes


def comes_to_its_end(a: Any) -> Any:
    x = a * 1.0
    for k in range(5):  # noqa: B007
        step = (x * x - a) / (2 * x)
        x = x - step
        if abs(step) < 1e-3:
            break
    else:
        x = x * 3
    return x + k


def rest_of_the_last_round(a: Any) -> Any:
    x = a * 1.0
    for k in range(5):  # noqa: B007
        step = (x * x - a) / (2 * x)
        if abs(step) < 1e-3:
            break
        x = x - step
    return x + k


def goes_on_before_the_test(a: Any) -> Any:
    total = 0.0 * a
    for v in X:
        if v < 0:
            continue
        total = total + np.sin(0.1 * a * v)
        if total > 3.0:
            break
    return total


def broken_off_in_a_branch(a: Any) -> Any:
    x = a * 1.0
    for _ in range(50):
        if x > 4:
            x = x * 0.8
            if x < 6:
                break
        else:
            x = x * 1.1
    return x


def grows_until(a: Any) -> Any:
    x, path = a * 1.0, []
    for k in range(50):
        x = x * 0.7
        path.append((k, x))
        if x < 1:
            break
    return x * len(path) + path[0][1] * path[-1][0]


@pytest.mark.every(8)
@pytest.mark.parametrize(
    "f",
    [
        writes_to_what_was_refused,
        comes_to_its_end,
        rest_of_the_last_round,
        goes_on_before_the_test,
        broken_off_in_a_branch,
    ]
    + [
        grows_until,
        grows,
        trades_places,
        trades_arrays,
        written_to_after_no_round,
        counts_elsewhere,
    ]
    + [left_by_an_error, read_into_python],
)
@pytest.mark.parametrize("order", [1, -1])
def test_what_does_more_is_as_in_python(f: Program, order: int) -> None:
    derived = value_and_grad(f, compile="never")
    for a in (2.1, 41.3, 0.4, 5.3, 2.1, 3.3)[::order]:
        value, gradient = derived(a)
        assert value == pytest.approx(f(a), rel=1e-12)
        assert gradient == pytest.approx(slope(f, a), rel=1e-6)


def test_errors_are_those_of_the_round_that_raises() -> None:
    def f(a: Any) -> Any:
        x, k = a * 1.0, 0
        while x > 0.5:
            x = 0.7 * x
            k += 1
            if k > 5:
                raise RuntimeError("no convergence")
        return x

    derived = value_and_grad(f, compile="never")
    assert derived(1.0)[0] == f(1.0)
    with pytest.raises(RuntimeError, match="no convergence"):
        derived(50.0)
    assert derived(0.9)[0] == f(0.9)
