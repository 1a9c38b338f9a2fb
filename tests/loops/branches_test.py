"""A branch that goes both ways from round to round is a conditional in the loop's body."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from tests.loops.branching import LENGTH, ONE
from tests.loops.explicit_test import same
from tests.loops.once import calls_of
from tests.loops.staying import KEPT

from tapegrad import cond, grad, trace, value_and_grad
from tapegrad.observe.program.joins import sides_of

by_program = pytest.mark.parametrize("program", ONE, ids=lambda program: program.name)
RNG = np.random.default_rng(3)
USUAL = RNG.normal(size=(3, LENGTH))
CALLS = [*USUAL, abs(USUAL[0]), -abs(USUAL[1])]
RATE = 0.7


@pytest.fixture(autouse=True)
def quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def differences(f, x, rate):
    """The derivative along a direction."""
    along, eps = np.cos(np.arange(len(x))), 1e-6
    return along, (f(x + eps * along, rate) - f(x - eps * along, rate)) / (2 * eps)


def held(f, derivative, x):
    """Value and gradient are those of plain NumPy, and of differences."""
    value, (gradient, slope) = derivative(x, RATE)
    assert value == pytest.approx(f(x, RATE), rel=1e-11, abs=1e-12)
    along, expected = differences(f, x, RATE)
    assert gradient @ along == pytest.approx(expected, rel=1e-5, abs=1e-7)
    expected = (f(x, RATE + 1e-6) - f(x, RATE - 1e-6)) / 2e-6
    assert slope == pytest.approx(expected, rel=1e-5, abs=1e-7)


def anew(f):
    """The same function, with tapes of its own."""
    return lambda *args: f(*args)


@pytest.mark.every(12)
@by_program
def test_flips_are_no_new_trace(program):
    """A first call finds that they occur, and has them as guards up to there."""
    f = program.function
    for x in USUAL:
        trace(f, x, RATE)
    derivative = value_and_grad(anew(f), (0, 1), compile="never")
    for x in CALLS:
        held(f, derivative, x)
    assert derivative.cache_info().traces == 1


@pytest.mark.every(16)
@by_program
def test_it_is_a_loop_on_the_tape(program):
    for x in USUAL:
        _, tape = trace(program.function, x, RATE)
    loops = [line for line in str(tape).splitlines() if " = loop(" in line]
    assert sum("instead=True" not in line for line in loops) == program.loops
    assert any("instead=True" in line for line in loops) == program.sides
    assert len(tape) < 40  # first rounds may differ


COMPILED = ("several_cases", "expression", "clipped", "returned", "vectors", "written", "until")


def test_compiled():
    """Several in one program, which compiles once."""
    functions = [p.function for p in ONE if p.name in COMPILED]

    def every(x, rate):
        return sum(np.sin(f(x, rate)) for f in functions)

    for x in USUAL:
        trace(every, x, RATE)
    compiled = value_and_grad(anew(every), (0, 1), compile="always")
    played = value_and_grad(anew(every), (0, 1), compile="never")
    for x in CALLS:
        same(compiled(x, RATE), played(x, RATE), 1e-8)
    assert compiled.cache_info().traces == 1


@pytest.mark.every(24)
@pytest.mark.parametrize("function", KEPT, ids=lambda f: f.__name__)
def test_what_else_a_side_does_is_done(function):
    derivative = value_and_grad(anew(function), compile="never")
    for x in (*CALLS, CALLS[0]):
        x = x[:40]
        value, gradient = derivative(x)
        assert value == pytest.approx(function(x), rel=1e-11, abs=1e-12)
        along, expected = differences(lambda x, _: function(x), x, RATE)
        assert gradient @ along == pytest.approx(expected, rel=1e-4, abs=1e-6)


def roots(x):
    """Each side has no derivative where the other one is taken."""
    s = 0.0
    for t in range(len(x)):
        if x[t] > 0:
            s = 0.5 * s + np.sqrt(x[t]) * np.log(x[t])
        else:
            s = 0.9 * s + (1.0 - x[t]) ** 0.5
    return s


def test_nothing_comes_from_the_side_that_is_not_taken():
    trace(roots, USUAL[0])
    for mode in ("never", "always"):
        derivative = value_and_grad(anew(roots), compile=mode)
        for x in CALLS:
            value, gradient = derivative(x)
            assert value == pytest.approx(roots(x), rel=1e-12)
            along, expected = differences(lambda x, _: roots(x), x, RATE)
            assert gradient @ along == pytest.approx(expected, rel=1e-4)
        assert derivative.cache_info().traces == 1


def made_before(x):
    s = x[0]
    for v in x:
        root = np.sqrt(v)  # its slope is infinite, or no number, where it isn't taken
        part = s / np.maximum(v, 0.0)
        if v > 0.1:
            s = 0.5 * s + root + 0.01 * part
        else:
            s = 0.9 * s + v
    return s


def reset(x):
    s = x[0]
    for v in x:
        s = s / (np.maximum(v, 0.0) + np.maximum(s, 0.0))
        if not np.abs(s) < 10.0:
            s = 0.5 + v
    return s


def chosen_once(x):
    root = np.sqrt(x[0])
    return cond(np.isnan(root), lambda: x[0] * 0.9, lambda: root)


def gone_on(x):
    s = 1.0 + x[1] * x[1]
    root = np.sqrt(x[0])
    while s > 1.5:
        s = s * 0.7 + 0.01 * root
    return s


@pytest.mark.every(8)
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("f", [made_before, reset, chosen_once, gone_on])
def test_what_is_not_taken_has_no_slope_before_it_either(f, mode):
    along = np.cos(np.arange(LENGTH))
    with np.errstate(all="ignore"):
        trace(f, USUAL[0])
        first = value_and_grad(anew(f), compile=mode)
        second = grad(lambda x: grad(f)(x) @ along, compile="never")
        for x in CALLS:
            value, gradient = first(x)
            assert value == pytest.approx(f(x), rel=1e-12, nan_ok=True)
            if not np.isnan(value):
                _, expected = differences(lambda x, _: f(x), x, RATE)
                assert gradient @ along == pytest.approx(expected, rel=1e-4, abs=1e-6)
                assert not np.any(np.isnan(second(x)))


def test_second_derivatives():
    f = {program.name: program.function for program in ONE}["several_cases"]
    trace(f, USUAL[0], RATE)
    first = grad(f, compile="never")
    along = np.cos(np.arange(LENGTH))
    second = grad(lambda x: first(x, RATE) @ along, compile="never")
    for x in CALLS[:3]:
        expected = (first(x + 1e-6 * along, RATE) - first(x - 1e-6 * along, RATE)) / 2e-6
        assert second(x) @ along == pytest.approx(expected @ along, rel=1e-4, abs=1e-6)


def inverse(x):
    """Python's zero can't be divided by, NumPy's can."""
    s = total = 0.0
    for t in range(len(x)):
        s = s + x[t]
        if s < 0:
            s = 0.0
        total = total + (1.0 / s if t == len(x) - 1 else s)
    return total


@pytest.mark.parametrize("last", [1.0, -100.0])
def test_errors_are_those_of_python(last):
    derivative = value_and_grad(anew(inverse), compile="never")
    x = np.append(USUAL[0], 1.0)
    for each in (*USUAL, USUAL[0]):
        derivative(np.append(each, 100.0))
    x[-1] = last
    if last < 0:
        with pytest.raises(ZeroDivisionError):
            inverse(x)
        with pytest.raises(ZeroDivisionError):
            derivative(x)
    else:
        assert derivative(x)[0] == pytest.approx(inverse(x))


ASKED = {
    "isinstance": lambda s: isinstance(s, np.floating),
    "type": lambda s: type(s) is float,
    "hasattr": lambda s: hasattr(s, "dtype"),
    "getattr": lambda s: getattr(s, "dtype", None) is None,
    "an attribute": lambda s: sized(s) > 2.0,
    "the class of what follows": lambda s: isinstance(s > 0.0, np.bool_),
}


def sized(s):
    try:
        return 1.0 + s.itemsize
    except AttributeError:
        return 2.0


@pytest.mark.parametrize("asks", ASKED.values(), ids=list(ASKED))
def test_what_a_number_is_that_may_be_pythons(asks):
    """A program that asks is told as in plain Python, at each call."""

    def f(x):
        s = x[0]
        for k in range(6):
            s = s * 2.0 if x[k % 3] > 0 else 0.25
        return (s + x[2]) * (2.0 if asks(s) else 3.0)

    df = value_and_grad(f, compile="never")
    for x in ([1.0, -1.0, 2.0], [1.0, 2.0, -3.0], [1.0, 3.0, 2.0], [1.0, -1.0, -2.0]):
        value, gradient = df(np.array(x))
        assert value == f(np.array(x))
        steps = [f(np.array(x) + e) - f(np.array(x) - e) for e in 1e-4 * np.eye(3)]
        np.testing.assert_allclose(gradient, np.array(steps) / 2e-4, rtol=1e-7, atol=1e-9)


def test_a_side_that_tells_somebody_does_so_once():
    told = []

    def f(x):
        s = 0.0
        for t in range(len(x)):
            if x[t] > s:
                s = 0.5 * s + x[t]
                told.append(t)
            else:
                s = 0.9 * s
        return s

    value_and_grad(f, compile="never")(USUAL[0])
    found, told = told, []
    f(USUAL[0])
    assert found == told


def test_numbers_that_have_always_been_plain_stay_so_where_they_have_to(recwarn):
    def f(x):
        s = 0.0
        for t in range(len(x)):
            width = 2.0 if x[t] > 0 else 3.0
            s = s + math.exp(-width) * x[t]
        return s

    derivative = value_and_grad(f, compile="never")
    for x in (*CALLS, CALLS[0]):
        assert derivative(x)[0] == pytest.approx(f(x))


def test_a_call_by_keywords_before_and_one_of_a_method_inside():
    """The names of the first's arguments aren't those of the second's."""

    def f(x, rate):
        row = np.sum(x[None] * rate, axis=0, keepdims=True)
        out = np.zeros(len(x))
        for k in range(len(x)):
            if x[k] > 0:
                out[k] = row.ravel()[k]
            else:
                out[k] = 0.5 * out[k - 1]
        return np.sum(out * x)

    derivative = value_and_grad(f, (0, 1), compile="never")
    for x in USUAL:
        held(f, derivative, x)


def written_in_no_round(x):
    """The test holds in no round of the first call of a length, so nothing is written then."""
    b = np.zeros(len(x))
    for i in range(len(x)):
        if x[i] > 1.2:
            b[i] = x[1]
    return x[0] + b @ np.arange(1.0, len(x) + 1)


def shown_in_no_round(x):
    b = np.zeros((len(x), 2))
    last = b[:, 1]
    for i, q in enumerate(x):
        if q > 1.2:
            last[i] += q**2
        x = x * 1.0
    return x[0] + last @ np.arange(1.0, len(x) + 1)


@pytest.mark.every(4)
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("f", [written_in_no_round, shown_in_no_round])
def test_a_plain_array_that_only_the_other_side_writes_to(f, mode):
    derivative = value_and_grad(f, compile=mode)
    lengths = (8, 16, 17) if mode == "never" else (8, 16)
    for n in lengths:
        for place in (None, 0, 1, n - 1):
            x = np.linspace(0.3, 0.5, n)
            if place is not None:
                x[place] = 1.9
            value, gradient = derivative(x)
            assert value == pytest.approx(f(x), rel=1e-12)
            along = np.cos(np.arange(n))
            slope = (f(x + 1e-6 * along) - f(x - 1e-6 * along)) / 2e-6
            assert gradient @ along == pytest.approx(slope, rel=1e-7)


# ---- a condition that is asked again


def asked_again(x, rate):
    """A test that leaves the loop asks for what a branch has asked for."""
    seen, y = {}, 1.0 * rate
    for k in range(60):
        new = 0.5 * (y + x[0] ** 2 / y)
        seen[k] = k
        done = abs(new - y) < 1e-10
        if not done:
            y = new
        if done:
            break
    return y * rate


def asked_inside(x, rate):
    """Both sides ask for it again."""
    seen, s = {}, 0.0
    for k in range(len(x)):
        seen[k] = k
        up = x[k] > 0
        if up:
            s = s + (x[k] if up else 7.0 * x[k])
        else:
            s = s + rate * (x[k] if up else 3.0 * x[k])
    return s


@pytest.mark.every(2)
@pytest.mark.parametrize("f", [asked_again, asked_inside], ids=lambda f: f.__name__)
def test_a_condition_that_is_asked_again(f):
    """What no longer is a guard since its sides are one value, is one where it is asked again."""
    derivative = value_and_grad(f, (0, 1), compile="never")
    for x in (*CALLS, 1e3 * USUAL[1], 1e-3 * USUAL[2], 30.0 * USUAL[0]):
        held(f, derivative, x)


def five_branches(x, rate):
    s, a = 0.0 * rate, rate
    for t in range(len(x)):
        s = s + 2.0 * x[t] if np.sin(3.0 * x[t]) > 0.1 * a else 0.9 * s
        if np.sin(5.0 * x[t]) > 0.0:
            a = 0.9 * a + 0.05 * s
        if s > 1.0:
            s = s - a
        else:
            a = a + 0.01 * x[t]
        if a > 1.5:
            a = 0.5 * a
        s = 0.5 * s if s < -1.0 else s
    return s + a


def five_until(x, rate):
    s, a, t = 0.0 * rate, rate, 0
    while a > 0.01 * rate:
        s = s + 2.0 * x[t] if np.sin(30.0 * a) > 0.1 else 0.9 * s
        if np.sin(50.0 * a) > 0.0:
            s = 0.9 * s + 0.05 * a
        if s > 1.0:
            s = s - a
        else:
            s = s + 0.01 * a
        if np.cos(70.0 * a) > 0.0:
            s = 0.5 * s
        s = 0.5 * s if s < 0.3 else s
        a = 0.9 * a
    return s + a


@pytest.mark.every(2)
@pytest.mark.parametrize(("f", "traces"), [(five_branches, 2), (five_until, 4)])
def test_branches_of_a_round_are_found_together(f, traces):
    """It was traced once more for each of the five. Behind one that goes the other way rounds
    compute something else, which hides some."""
    sides_of.cache_clear()
    x = np.random.default_rng(0).normal(size=200)
    derived = value_and_grad(f, (0, 1), compile="never")
    assert calls_of(f, lambda: derived(x, 0.7)) == traces
    along = np.random.default_rng(1).normal(size=200)
    for rate in (0.7, 1.1, 0.3):
        value, (slopes, slope) = derived(x, rate)
        assert value == pytest.approx(f(x, rate), rel=1e-12)
        ends = [f(x + h * along, rate + h) for h in (1e-7, -1e-7)]
        assert slopes @ along + slope == pytest.approx((ends[0] - ends[1]) / 2e-7, rel=1e-4)
    assert derived.cache_info().traces == 1


def counting(x, rate):
    count, total = 0, 0.0
    for v in x:
        if v > rate - 0.5:
            count += 1
        total += v * v * count
    return total / (count + 1)


def marking(x, rate):
    seen, total = False, 0.0
    for v in x:
        if v > rate:
            seen = True
        elif v < -rate:
            seen = False
        total += v**3 if seen else v * rate
    return total * (2 if seen else 1)


def stepping(x, rate):
    """A time stepper that meets the times of its output."""
    t, n, u = 0, 1, x * 0.1
    while t < 1.0:
        step = 0.2 / np.max(np.abs(u) + rate)
        shown = False
        if t + step > n * 0.25:
            step = n * 0.25 - t
            shown = True
        u = u + step * np.sin(u)
        t += step
        if shown or t >= 1.0:
            n += 1
    return np.sum(u**2) * n


def looking_up(x, rate):
    place, total = 0, 0.0
    for v in x:
        if v > 0:
            place = (place + 1) % 4
        else:
            place = place * 3 % 5
        total += x[place] * v**2 + rate * place
    return total


@pytest.mark.every(2)
@pytest.mark.parametrize("f", [counting, marking, stepping, looking_up], ids=lambda f: f.__name__)
def test_counters_and_flags(f):
    """Python's integers and booleans that sides leave are values of the tape."""
    f = type(f)(f.__code__.replace(), f.__globals__)
    derivative = value_and_grad(f, (0, 1), compile="never")
    for x in (*USUAL, USUAL[0] * 0.5, -USUAL[2], USUAL[1] * 2):
        held(f, derivative, x)
    assert derivative.cache_info().traces <= 2
