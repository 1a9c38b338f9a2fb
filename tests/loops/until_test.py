"""A loop that goes on until a traced condition no longer holds makes as many rounds as it takes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tests.loops import keeping, renaming  # noqa: F401  which add to `KEPT`
from tests.loops.convergent import ROLLED
from tests.loops.counting import KEPT
from tests.loops.explicit_test import same

from tapegrad import gradcheck, trace, value_and_grad
from tapegrad.observe.program.joins import sides_of
from tapegrad.runtime import reuse
from tapegrad.tracing.statements import while_statement

by_rolled = pytest.mark.parametrize("program", ROLLED, ids=lambda program: program.name)
by_kept = pytest.mark.parametrize("program", KEPT, ids=lambda program: program.name)


def argnums(args):
    return tuple(k for k, x in enumerate(args) if np.asarray(x).dtype.kind == "f")


def unrolled(program, args, monkeypatch):
    """Value and gradient of this call, its rounds each made."""
    with monkeypatch.context() as patch:
        patch.setattr(while_statement, "_begin", lambda *args: None)
        reuse.forget()  # its tapes are its own, and have no guards of rounds
        again = lambda *args: program.function(*args)  # noqa: E731
        found = value_and_grad(again, argnums(args), compile="never")(*args)
    sides_of.cache_clear()  # which knows that rounds were each made
    return found


def held(program, monkeypatch, *orders):
    """The derivatives that were called for the calls in these orders, a new one for each; what they
    found is what plain NumPy and unrolled tapes do."""
    expected = [unrolled(program, args, monkeypatch) for args in program.calls]
    for args, (value, _) in zip(program.calls, expected, strict=True):
        assert value == pytest.approx(program.function(*args), rel=1e-12, abs=1e-14)
    derivatives = []
    for order in orders:
        found = value_and_grad(program.function, argnums(program.calls[0]), compile="never")
        derivatives.append(found)
        for k in order:
            value, gradient = found(*program.calls[k])
            assert value == pytest.approx(expected[k][0], rel=1e-12, abs=1e-14)
            same(gradient, expected[k][1], 1e-8)
    return derivatives


@pytest.fixture(autouse=True)
def quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@pytest.mark.every(12)
@by_rolled
def test_another_number_of_rounds_is_no_new_trace(program, monkeypatch):
    (found,) = held(program, monkeypatch, [*range(len(program.calls)), 0])
    assert found.cache_info().traces == program.traces


def test_compiled():
    """All in one program, which compiles once."""

    def every(*calls):
        found = [p.function(*args) for p, args in zip(ROLLED, calls, strict=True)]
        return sum(np.sum(np.sin(x)) for x in found)

    compiled = value_and_grad(every, (*range(len(ROLLED) - 1),), compile="always")
    played = value_and_grad(every, (*range(len(ROLLED) - 1),), compile="never")
    for k in range(3):
        args = [p.calls[k] for p in ROLLED]
        same(compiled(*args), played(*args), 1e-8)
    assert compiled.cache_info().traces == 1


@pytest.mark.every(8)
@by_rolled
def test_gradients_are_those_of_differences(program):
    args = program.calls[0]
    numbers = argnums(args)

    def f(*floats):
        given = list(args)
        for k, x in zip(numbers, floats, strict=True):
            given[k] = x
        return program.function(*given)

    gradcheck(f, tuple(args[k] for k in numbers), rtol=1e-4, atol=1e-6)


@pytest.mark.every(2)
@by_rolled
def test_it_is_a_loop_on_the_tape(program):
    _, tape = trace(program.function, *program.calls[0])
    assert str(tape).count(" = loop(") == program.loops


@pytest.mark.every(24)
@by_kept
def test_what_depends_on_the_number_of_rounds(program, monkeypatch):
    order = [*range(len(program.calls))]
    held(program, monkeypatch, [*order, *order[::-1]], order[::-1])
