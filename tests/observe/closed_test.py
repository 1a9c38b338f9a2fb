"""Loops that can read nothing new aren't followed instruction by instruction; all others are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapegrad import grad, jit, trace
from tapegrad.observe.activations.activation import Activation

X = np.linspace(0.2, 1.4, 7)
can_rest = pytest.mark.skipif(sys.version_info >= (3, 12), reason="every instruction is told")


def rests(f: Callable[..., Any], *args: Any) -> int:
    """How often a frame rests in a trace, whose value is that without one."""
    count = 0
    rest = Activation.rest

    def counting(self: Any, first: int, last: int) -> None:
        nonlocal count
        count += 1
        rest(self, first, last)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Activation, "rest", counting)
        out, _ = trace(f, *args)
    assert np.allclose(out, f(*args))
    return count


@can_rest
def test_sweeps_rest() -> None:
    def f(x: Any) -> Any:
        c, total = x * 1.0, 0.0
        for _ in range(3):
            for i in range(1, len(x)):
                c[i] = x[i] - 0.5 * c[i - 1] + np.sin(c[i])
            for i in range(len(x) - 2, -1, -1):
                c[i] -= 0.1 * c[i + 1]
            for y in c:
                total += y * x[1:-1].sum()
        return np.sum(c) + total

    assert rests(f, X) == 9


FACTOR, TABLE = 2.0, [1.0, 2.0, 3.0]


class Settings:
    scale = 1.5


@can_rest
def test_what_may_be_something_else_each_time_is_followed() -> None:
    settings, array, numbers = Settings(), np.ones(7), [0.5, 1.5, 2.5]

    def items(x: Any) -> Any:
        for i in range(3):
            x = x * numbers[i]
        return x

    def attributes(x: Any) -> Any:
        for _ in range(3):
            x = x * settings.scale
        return x

    def arrays(x: Any) -> Any:
        for _ in range(3):
            x = x * array
        return x

    def tests(x: Any) -> Any:
        for i in range(3):
            if x[i] > 0.5:
                x = x * 2.0
        return x

    def calls(x: Any) -> Any:
        for _ in range(3):
            x = items(x)
        return x

    for f in (items, attributes, arrays, tests, calls):
        assert rests(lambda x, f=f: np.sum(f(x)), X) == 0


def test_what_is_read_before_in_and_behind_a_loop_is_guarded() -> None:
    names: dict[str, Any] = {"np": np, "factor": 2.0, "table": [1.0, 2.0], "after": 3.0}
    held = [0.5]

    def make() -> Any:
        scale = held

        def f(x: Any) -> Any:
            total, first = x * 0.0, names["table"][0]
            for i in range(5):
                total = total + x * i * first
            total = total * scale[0]
            for _ in range(5):
                total = total + names["factor"] * x
            for i in range(5):
                total = total + x[i]
            return np.sum(total * names["after"])

        return f

    f = make()
    g = jit(f)
    for key, value in (("factor", 5.0), ("after", 7.0), ("table", [4.0, 1.0]), ("factor", 1.0)):
        assert np.allclose(g(X), f(X))
        names[key] = value
        assert np.allclose(g(X), f(X))
    held[0] = 4.0
    assert np.allclose(g(X), f(X))


def test_globals_and_cells_in_a_loop_are_guarded() -> None:
    source = """
def outer(rate):
    def f(x):
        total = x * 0.0
        for i in range(6):
            total = total * FACTOR + np.exp(x[i]) * rate
        return np.sum(total)
    def change(value):
        nonlocal rate
        rate = value
    return f, change
"""
    names: dict[str, Any] = {"np": np, "FACTOR": 2.0}
    exec(source, names)
    f, change = names["outer"](0.5)
    g = jit(f)
    assert np.allclose(g(X), f(X))
    names["FACTOR"] = 3.0
    assert np.allclose(g(X), f(X))
    change(0.25)
    assert np.allclose(g(X), f(X))


def test_an_error_in_a_loop_is_followed() -> None:
    settings = Settings()

    def f(x: Any) -> Any:
        total = 0.0
        try:
            for i in range(20):
                total = total + x[i]
        except IndexError:
            total = total * settings.scale
        return total

    g = jit(f)
    assert np.allclose(g(X), f(X))
    Settings.scale = 4.0
    try:
        assert np.allclose(g(X), f(X))
    finally:
        Settings.scale = 1.5


def test_what_comes_after_a_loop_in_the_same_frame_is_followed() -> None:
    settings = Settings()

    def f(x: Any) -> Any:
        for _ in range(3):
            for i in range(4):
                x = x * 0.5 + x[i]
            x = x * settings.scale
        return np.sum(x)

    g = jit(f)
    assert np.allclose(g(X), f(X))
    settings.scale = 3.0
    assert np.allclose(g(X), f(X))
    assert np.allclose(grad(f)(X), 3.0**3 * grad(f)(X) / 27.0)


def test_a_plain_array_that_a_loop_makes_is_followed() -> None:
    state = np.zeros(7)

    def f(x: Any) -> Any:
        y = state
        for i in range(4):
            y = y + x * i
        state[0] = 1.0
        return np.sum(y)

    df = grad(f)
    for first in (0.0, 1.0):
        assert jit(f)(X) == np.sum(state + 6 * X) - (state[0] - first)
        np.testing.assert_array_equal(df(X), np.full(7, 6.0))
        assert state[0] == 1.0
