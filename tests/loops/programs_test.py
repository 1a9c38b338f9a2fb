"""Loops are differentiated as they are written, however many rounds they have."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from tests.loops.programs import PROGRAMS

from tapegrad import value_and_grad
from tapegrad.core.trees import flatten, unflatten

SIZES = (5, 12)
STEP = 1e-4  # of differences of the fourth order

by_name = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


def drawn(program, seed, size):
    return program.make(np.random.default_rng(seed), size)


def moved(program, args, directions, step):
    """The loss after a step from the arguments along the directions of their leaves."""
    args = list(args)
    leaves, structure = flatten(tuple(args[k] for k in program.argnums))
    new = [leaf + step * d for leaf, d in zip(leaves, directions, strict=True)]
    for k, arg in zip(program.argnums, unflatten(structure, new), strict=True):
        args[k] = arg
    return float(program.function(*args))


def check(program, derivative, seed, size):
    """The value is NumPy's, and the gradient is that of differences along two directions."""
    args = drawn(program, seed, size)
    expected = float(program.function(*drawn(program, seed, size)))
    value, gradients = derivative(*args)
    assert value == pytest.approx(expected, rel=1e-10, abs=1e-12)

    rng = np.random.default_rng(seed + 1)
    gradients = flatten(gradients)[0]
    for _ in range(2):
        directions = [rng.standard_normal(np.shape(g)) for g in gradients]
        length = np.sqrt(sum(np.sum(d**2) for d in directions))
        directions = [d / length for d in directions]
        near, far = (
            moved(program, args, directions, k * STEP) - moved(program, args, directions, -k * STEP)
            for k in (1, 2)
        )
        slope = (8 * near - far) / (12 * STEP)
        found = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
        scale = max(abs(value), *(np.max(np.abs(g), initial=0.0) for g in gradients))
        assert found == pytest.approx(slope, rel=1e-7, abs=1e-10 * scale)


@pytest.mark.every(16)
@pytest.mark.parametrize("size", SIZES)
@by_name
def test_value_and_gradient(program, size):
    """A second call finds the tape of the first, with other numbers."""
    derivative = value_and_grad(program.function, program.argnums, compile="never")
    check(program, derivative, 0, size)
    check(program, derivative, 1, size)


@pytest.mark.every(16)
@by_name
def test_another_size(program):
    """One derivative serves loops of several lengths."""
    derivative = value_and_grad(program.function, program.argnums, compile="never")
    check(program, derivative, 2, 6)
    check(program, derivative, 3, 8)
    check(program, derivative, 4, 6)


def count_loops(source, least):
    """How many `for` there are in generated source that have at least so many rounds.

    Those whose rounds aren't known from the text count, too.
    """
    rounds = [rounds_of(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.For)]
    return sum(n is None or n >= least for n in rounds)


def rounds_of(loop):
    """The rounds of `for i in range(...)`, or None."""
    numbers = [number(bound) for bound in getattr(loop.iter, "args", [])]
    if not numbers or None in numbers:
        return None
    return len(range(*numbers))


def number(bound):
    """12 of `12`, of `-12` with its sign, and of `rolled(12)`; otherwise None."""
    if isinstance(bound, ast.Call) and len(bound.args) == 1:
        return number(bound.args[0])
    try:
        found = ast.literal_eval(bound)
    except ValueError:
        return None
    return found if isinstance(found, int) else None


def test_loops_are_counted_by_their_rounds():
    source = """
def kernel(x, n):
    for i in range(30):
        for j in range(rolled(4)):
            x[i, j] = 0.0
    for i in range(28, -1, -1):
        x[i] = x[i + 1]
    for i in range(n):
        x[i] = 1.0
"""
    assert count_loops(source, 5) == 3
    assert count_loops(source, 30) == 2
    assert count_loops(source, 4) == 4


def test_every_program_is_there_once():
    names = [program.name for program in PROGRAMS]
    assert len(set(names)) == len(names)
