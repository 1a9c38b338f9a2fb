"""A branch that goes both ways from round to round is a conditional in the loop's body."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tests.loops.branching import LENGTH, ONE
from tests.loops.explicit_test import same

from tapegrad import trace, value_and_grad

by_program = pytest.mark.parametrize("program", ONE, ids=lambda program: program.name)
RNG = np.random.default_rng(3)
USUAL = RNG.normal(size=(4, LENGTH))
CALLS = [*USUAL, abs(USUAL[0]), -abs(USUAL[1]), np.sort(USUAL[2]), np.sort(USUAL[2])[::-1].copy()]
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


@by_program
def test_flips_are_no_new_trace(program):
    """The first call finds that they occur, and has them as guards up to there."""
    f = program.function
    value_and_grad(anew(f), compile="never")(USUAL[0], RATE)
    derivative = value_and_grad(anew(f), (0, 1), compile="never")
    for x in CALLS:
        held(f, derivative, x)
    assert derivative.cache_info().traces == 1


@by_program
def test_it_is_a_loop_on_the_tape(program):
    trace(program.function, USUAL[0], RATE)
    _, tape = trace(program.function, USUAL[1], RATE)
    loops = [line for line in str(tape).splitlines() if " = loop(" in line]
    assert sum("instead=True" not in line for line in loops) == program.loops
    assert any("instead=True" in line for line in loops) == program.sides
    assert len(tape) < 40  # first rounds may differ


def test_compiled():
    """All in one program, which compiles once."""

    def every(x, rate):
        return sum(np.sin(p.function(x, rate)) for p in ONE)

    value_and_grad(every, compile="never")(USUAL[0], RATE)
    compiled = value_and_grad(anew(every), (0, 1), compile="always")
    played = value_and_grad(anew(every), (0, 1), compile="never")
    for x in CALLS:
        same(compiled(x, RATE), played(x, RATE), 1e-8)
    assert compiled.cache_info().traces == 1
