"""Operators that are applied again at their place come to what they came to by the long way."""

from __future__ import annotations

import itertools
import operator
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from tests.debugged import unobserved
from tests.loops.programs import PROGRAMS
from tests.loops.programs_test import drawn

import tapegrad
from tapegrad import grad, trace
from tapegrad.errors import LeakedTracerError, UnsupportedError
from tapegrad.tracing.frontend.indexing import indexing
from tapegrad.tracing.frontend.numpy import ufunc_cache
from tapegrad.tracing.operators import inline_cache
from tapegrad.tracing.operators import python as of_python
from tapegrad.tracing.tracers import elements


@contextmanager
def the_long_way() -> Iterator[None]:
    """Nothing is remembered of earlier calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inline_cache, "_applied", lambda *_: None)
        patch.setattr(inline_cache, "_applied_alone", lambda *_: None)
        patch.setattr(indexing, "part", operator.call)
        patch.setattr(elements, "_read", lambda *_: None)
        patch.setattr(elements, "_written", lambda *_: False)
        patch.setattr(ufunc_cache, "again", lambda *_: None)
        patch.setattr(of_python, "_OF_FLOATS", {})
        yield


def counted(f: Callable[..., Any], *args: Any) -> tuple[Any, Any, int]:
    """What a function's trace gives, and how many of its operators went the quick way."""
    quick = 0
    applied = inline_cache._applied

    def counting(*given: Any) -> Any:
        nonlocal quick
        found = applied(*given)
        quick += found is not None
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inline_cache, "_applied", counting)
        out, tape = trace(f, *args)
    return out, tape, quick


def same(f: Callable[..., Any], *args: Any) -> int:
    """Hold the quick way against the long one: text and values, to the last bit."""
    out, tape, quick = counted(f, *args)
    with the_long_way():
        expected, other = trace(f, *args)
    assert str(tape) == str(other)
    assert np.asarray(out).tobytes() == np.asarray(expected).tobytes()
    assert np.asarray(out).dtype == np.asarray(f(*args)).dtype
    return quick


@pytest.mark.every(8)
@pytest.mark.parametrize("program", PROGRAMS[::7], ids=lambda program: program.name)
def test_programs_with_loops(program: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(program.function, *drawn(program, 0, 12))


def test_most_operators_of_a_loop_go_the_quick_way() -> None:
    def f(x: Any, rate: Any) -> Any:
        a, b, seen = x[0], x[1], []
        for t in range(20):
            seen.insert(0, t)  # so each round is made
            a = a * 0.5 + b * rate
            b = (b - a / 3.0) * t
        return a + b

    assert same(f, np.array([1.0, 2.0]), 0.3) >= 99  # of 121


A64, A32 = np.float64(1.5), np.float32(1.5)
ODD = [
    *(2, 2.0, True, np.float32(2), np.float64(2), np.int64(2), 2**53, 2**53 + 1, 2**55),
    *(np.array([1.0, 2.0]), np.array([1.0], np.float32), np.array(2.0)),
]


@pytest.mark.parametrize("first", [A64, A32, np.array([1.0, 2.0]), np.array([1, 2]), 0.5, 3])
def test_one_place_sees_operands_of_all_kinds(first: Any) -> None:
    def f(x: Any) -> Any:
        total = x * 0.0
        for other in [*ODD, *ODD]:
            total = total + np.sum(x * other)
            total = total + np.sum(other - x)
        return total

    same(f, first)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_numbers_of_pythons_that_stand_for_an_arrays(dtype: type) -> None:
    """An element of a float64 array as a number of Python's has the type of that element on the
    tape, and doesn't widen what it meets."""
    others = [np.float32(1.5), np.float64(1.5), 0.3, 2, np.ones(2, np.float32)]
    operators = [operator.mul, operator.sub, np.add, np.maximum, operator.truediv]

    def f(x: Any) -> Any:
        y = x.item()
        numbers = [x, y, np.float32(1.0) * x, y * 1.0, np.float64(y), x.tolist() + 1, np.abs(y)]
        return [
            (apply(other, number), apply(number, other))
            for apply in operators
            for other in others
            for number in numbers
        ]

    for x in (dtype(0.7), dtype(0.9)):
        for found, wanted in zip(trace(f, x)[0], f(x), strict=True):
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b, strict=True)


def test_one_place_sees_arrays_of_all_shapes() -> None:
    def f(x: Any) -> Any:
        total = 0.0
        for y in [x, x[0], x[0, 0], x.T, x[:, :1], x.astype(np.float32), x[0], x, x[0, 0]]:
            total = total + np.sum(y * 2.0 + y) + np.sum(x * y)
        return total

    same(f, np.arange(9.0).reshape(3, 3))


def test_one_place_sees_values_of_two_traces() -> None:
    def product(x: Any, y: Any) -> Any:
        return x * y

    def f(x: Any) -> Any:
        def inner(u: Any) -> Any:
            for _ in range(3):
                u = product(u, u) + product(u, x) + product(x, x)
            return u

        return grad(inner)(x * 0.5) + product(x, x)

    same(f, np.float64(0.7))
    assert np.allclose(grad(f)(0.7), numerical(f, 0.7))


@pytest.mark.parametrize("x", [np.float64(0.7), np.array([0.5, 2.0]), np.array(0.7), 0.7])
def test_functions_and_powers_of_one_operand(x: Any) -> None:
    def f(x: Any) -> Any:
        total = x * 0.0
        for t in range(6):
            for n in (2, 0.5, -1, 3, 1.5, np.float64(2), True, t % 3):
                total = total + x**n
            total = total + np.sin(x) - -x + abs(-total) * np.exp(-(x**2)) + x**-1.5
        return total

    same(f, x)


@pytest.mark.parametrize("x", [np.arange(6.0), np.arange(12.0).reshape(3, 4).T])
def test_parts_of_arrays(x: Any) -> None:
    def f(x: Any) -> Any:
        y = np.einsum("...j->...j", x) * 1.0
        whole = y.copy()
        total = 0.0
        for t in range(4):
            row, last, none = y[t], y[-1], y[2:2]
            total = total + np.sum(row) * np.sum(last) + np.sum(y[..., ::-1][t]) + np.sum(none)
            whole[t] = total
            view = whole[1:3]
            view[:1] = row
            total = total + np.sum(whole[t]) + np.sum(view[0])
        return total

    same(f, x)
    assert np.allclose(grad(f)(x), numerical(f, x), rtol=1e-4, atol=1e-3)


def test_a_view_is_read_anew_after_a_write() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        v = y[1:]
        total = x[0]
        for t in range(6):
            total = total + np.sum(v * 2.0)
            y[t % 3] = total
        return total

    same(f, np.arange(4.0))
    assert np.allclose(grad(f)(np.arange(4.0)), numerical(f, np.arange(4.0)))


def test_an_array_that_is_alone_is_written_in_place_and_no_other() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        kept, view, other = [], y[:2], y
        for t in range(5):
            y[t % 3] = y[t % 3] * 2.0 + view[0]
            kept.append(y.copy())
        z = y
        z[0] = 7.0 * x[1]
        return sum(np.sum(k) for k in kept) + np.sum(other) + np.sum(view)

    x = np.arange(1.0, 4.0)
    before = x.copy()
    same(f, x)
    assert np.array_equal(x, before)
    assert np.allclose(grad(f)(x), numerical(f, x))


def test_the_order_in_memory_is_followed() -> None:
    def g(x: Any) -> Any:
        y = np.einsum("ij,jk->ki", x, x)  # which may lie in any order
        for _ in range(4):
            y = y * 0.5 + y
        z = y.reshape(-1)
        z[0] = 0.0
        return np.sum(y)

    with pytest.raises(UnsupportedError):
        trace(g, np.arange(9.0).reshape(3, 3))


def test_errors_that_are_watched_for_are_branches() -> None:
    def quotient(x: Any, y: Any) -> Any:
        return x / y

    def f(x: Any) -> Any:
        total = x
        for t in range(8):
            if t == 4:
                with np.errstate(divide="raise"):
                    try:
                        total = quotient(total, x - 1.0)
                    except FloatingPointError:
                        total = total * 3.0
            else:
                total = quotient(total, x + t)
        return total

    g = tapegrad.jit(f)
    for x in (2.0, 1.0, 3.0, 1.0):
        assert float(g(np.float64(x))) == pytest.approx(float(f(np.float64(x))), rel=1e-12)


def test_warnings_that_are_made_errors_are_branches() -> None:
    def quotient(x: Any, y: Any) -> Any:
        return x / y

    def f(x: Any) -> Any:
        total = x
        for t in range(6):
            with warnings.catch_warnings():
                if t == 3:
                    warnings.simplefilter("error")
                try:
                    total = quotient(total, x - 1.0 if t == 3 else x + t)
                except RuntimeWarning:
                    total = total * 3.0
        return total

    g = tapegrad.jit(f)
    for x in (2.0, 1.0, 3.0):
        assert float(g(np.float64(x))) == pytest.approx(float(f(np.float64(x))), rel=1e-12)


def test_filters_that_a_library_adds_while_it_is_imported_make_no_branches() -> None:
    """What they say of other warnings is nothing new about NumPy's, which were errors before."""

    def f(x: Any) -> Any:
        y = np.exp(x)
        warnings.simplefilter("always", category=DeprecationWarning)  # as scipy.special does
        return np.sum(np.log(y))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, tape = trace(f, np.ones(3))
    assert [call.primitive.name for call in tape.calls] == ["exp", "log", "sum"]


def test_numpys_warnings_come_as_without_a_trace() -> None:
    def f(x: Any) -> Any:
        y = x
        for _ in range(3):
            y = x / 0.0
        return y

    with warnings.catch_warnings(record=True) as plain:
        warnings.simplefilter("always")
        f(np.float64(1.0))
    with warnings.catch_warnings(record=True) as traced:
        warnings.simplefilter("always")
        trace(f, np.float64(1.0))
    assert len(plain) == len(traced) == 3


def test_floats_of_pythons_dont_warn() -> None:
    def f(w: Any) -> Any:
        for _ in range(20):
            w = w * w + 1.0 - 0.5 * w
        return w

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(trace(f, 1e30)[0]) == np.isnan(f(1e30))
    same(f, 0.25)


def test_a_leaked_value_is_refused_at_a_known_place() -> None:
    kept: list[Any] = []

    def double(x: Any) -> Any:
        return x * 2.0

    def f(x: Any) -> Any:
        for _ in range(3):
            x = double(x)
        kept.append(1)
        held.x = x
        return x

    class Held:
        x: Any = None

    held = Held()
    unobserved(grad(f))(1.0)  # nobody sees what it has left behind
    with pytest.raises(LeakedTracerError):
        double(held.x)


def test_derivatives_of_derivatives_at_one_place() -> None:
    def f(x: Any) -> Any:
        for _ in range(4):
            x = x * x * 0.5
        return x

    def both(x: Any) -> Any:
        return f(x) * grad(f)(x * 1.0)

    x = np.float64(1.3)
    assert np.allclose(grad(both)(x), numerical(both, x, 1e-5))


def numerical(f: Callable[..., Any], x: Any, h: float = 1e-6) -> Any:
    """Central differences."""
    x = np.asarray(x, np.float64)
    found = np.zeros_like(x)
    for k in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[k] = h
        found[k] = (f((x + step)[()]) - f((x - step)[()])) / (2 * h)
    return found[()]


def test_an_interrupt_leaves_nothing_half_made():
    """Nor finds another thread anything that is."""
    x = np.linspace(0.1, 0.5, 3)

    def f(x):
        return np.sin(-(2.0 * x) + x)

    for k in itertools.count(1):
        fresh = FunctionType(f.__code__.replace(), globals())  # at other places
        events = iter(range(1, k + 1))

        def strike(frame, what, _, k=k, events=events):
            if frame.f_code.co_filename == inline_cache.__file__ and next(events) == k:
                sys.setprofile(None)
                raise KeyboardInterrupt

        sys.setprofile(strike)
        try:
            trace(fresh, x)
            break
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        np.testing.assert_array_equal(trace(fresh, x)[0], f(x))
    assert k > 50


@pytest.mark.parametrize(
    "f",
    [lambda x: (x[0] / 1.0) ** 0.14285714, lambda x: (x[0] * 1.0) ** 2.3, lambda x: x[0] ** 1.7],
)
def test_powers_of_numbers_are_those_that_are_played(f):
    """NumPy's powers of numbers and of arrays differ in the last bit -> a trace has the former, as
    plain NumPy and the played tape: a solver that goes by the last bit takes one path in all."""
    for v in np.random.default_rng(0).uniform(0.1, 5.0, 100):
        x = np.array([v])
        value, tape = trace(f, x)
        assert value == f(x) == tape.play(x)
