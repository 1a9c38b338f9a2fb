"""Loops stay loops: on the tape, in the plan and in the source, whatever their number of rounds."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tests.loops import growing
from tests.loops.programs import PROGRAMS
from tests.loops.programs_test import count_loops, drawn

from tapegrad import pipeline, trace, value_and_grad
from tapegrad.core.trees import flatten
from tapegrad.ir.inputs import renumbered
from tapegrad.optimize import unrolled as unrolled_tapes
from tapegrad.optimize.reroll import Rerolled
from tapegrad.primitives.kinds import Repeated

by_name = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)

# What isn't found again yet, and why. These stay unrolled, and are right.
UNROLLED = {
    "neville": "its first and last rows are shorter than a loop",
    "bisection": "a branch that goes both ways",
}
ROLLED = [program for program in PROGRAMS if program.name not in UNROLLED]
NAMES = {program.name for program in ROLLED}
by_rolled = pytest.mark.parametrize("program", ROLLED, ids=lambda program: program.name)
COMPILED = [
    p
    for p in ROLLED
    if p.name
    in (
        "rk4_vector",
        "verlet",
        "pendulum_chain",
        "double_buffers",
        "wave_1d",
        "heat_2d",
        "gray_scott",
        "thomas",
        "holt_winters",
        "kalman",
        "rts_smoother",
        "soft_edit_distance",
        "knapsack",
        "lstm",
        "both_directions",
        "conjugate_gradients",
        "written_inside",
        "nested",
        "dict_of_sums",
        "triangular_solve",
        "gram_schmidt",
        "gauss_elimination",
        "orthogonal_rows",
        "levinson",
        "matrix_chain",
        "bubble_sort",
        "option_tree",
        "attended",
        "levinson_durbin",
        *[p.name for p in growing.PROGRAMS],
    )
]
# Sums of arrays that grow have zeros in them, so that others of their terms are added first.
SUMMED = {
    "attended",
    "levinson_durbin",
    "substitution_by_slices",
    *[p.name for p in growing.PROGRAMS],
}


def unrolled(monkeypatch):
    monkeypatch.setattr(unrolled_tapes, "LONG_TAPE", 10**9)  # which a warning would tell
    monkeypatch.setattr(
        "tapegrad.optimize.reroll.reroll", lambda tape, *_: Rerolled(renumbered(tape))
    )


@functools.cache
def rolled(program):
    """Arguments of 36 rounds, and the tape of a program's call, made once for all that look at it.

    What branches may be conditionals is known from an earlier trace.
    """
    args = drawn(program, 5, 36)
    if program.name in UNROLLED:
        trace(program.function, *args)
    return args, trace(program.function, *args)[1]


@pytest.mark.every(16)
@by_name
def test_a_loop_computes_what_its_rounds_do(monkeypatch, program):
    """To the last bit: the same operations, in the same order; but for sums of what grows."""
    args, tape = rolled(program)
    unrolled(monkeypatch)
    _, plain = trace(program.function, *args)
    assert len(tape) <= len(plain)
    if program.name in SUMMED:
        assert tape.play(*args) == pytest.approx(plain.play(*args), rel=1e-13)
    else:
        assert tape.play(*args) == plain.play(*args)


@pytest.mark.every(16)
@by_rolled
def test_loops_are_those_of_the_program(program):
    _, tape = rolled(program)
    assert any(isinstance(call.primitive, Repeated) for call in tape.calls)
    found = count_loops(pipeline.source_of(tape), program.least)
    assert program.loops is None or found <= program.loops + program.passes


@pytest.mark.every(12)
@pytest.mark.parametrize("program", COMPILED, ids=lambda program: program.name)
def test_compiled_loops_compute_the_same(program):
    args = drawn(program, 6, 20)
    expected = value_and_grad(program.function, program.argnums, compile="never")(*args)
    found = value_and_grad(program.function, program.argnums, compile="always")(*args)
    for x, y in zip(flatten(found)[0], flatten(expected)[0], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_handed_on_from_round_to_round(monkeypatch, seed):
    """Variables that are the same some rounds later, and start as something else each."""
    rng = np.random.default_rng(seed)
    count = 5
    new = [0, *(rng.integers(0, 2, size=count - 1) == 0).nonzero()[0] + 1]  # what a round computes
    taken = {k: int(rng.integers(0, count)) for k in range(count) if k not in new}

    def f(x):
        held = [x[k] for k in range(count)]
        total = 0.0
        for v in x:
            made = np.tanh(v + 0.3 * held[0])
            for k, h in enumerate(held):
                total = total + np.sin(h * (k + 1)) * v
            held = [held[taken[k]] if k in taken else made for k in range(count)]
        return total, held

    x = rng.normal(size=40)
    (value, held), tape = trace(f, x)
    assert any(isinstance(call.primitive, Repeated) for call in tape.calls)
    assert flatten(tape.play(x))[0] == flatten(f(x))[0] == [value, *held]


def by_path(x, path):
    for step in path:
        x = np.sin(x) if step == "1" else x * 0.5
    return x


def with_a_loop(x, path):
    for _ in range(80):
        x = np.sin(x) * 0.9
    return by_path(x, path)


@pytest.mark.filterwarnings("ignore:.* calls in a row")
@pytest.mark.parametrize(("f", "times"), [(by_path, 11), (with_a_loop, 32)])
def test_where_each_call_takes_another_path_without_loops_few_look_for_them(f, times, monkeypatch):
    looked = []

    def counted(tape, *args, in_vain):
        looked.extend([tape] if len(tape.calls) > in_vain else [])
        return rolled(tape, *args, in_vain=in_vain)

    rolled = pipeline.rolled
    monkeypatch.setattr(pipeline, "rolled", counted)
    g = value_and_grad(f, compile="never")
    x, step = 0.7, 1e-6
    for n in range(32):
        path = f"{n:05b}"
        value, slope = g(x, path)
        assert value == f(x, path)
        assert abs(slope - (f(x + step, path) - f(x - step, path)) / (2 * step)) < 1e-8
    assert len(looked) == times


@pytest.mark.filterwarnings("ignore:.* calls in a row")
def test_a_longer_tape_is_looked_through_whatever_the_ones_before_were():
    def f(x, path):
        for k, step in enumerate(path):
            x = np.sin(x) * x if step == "1" else np.cos(x) * (k % 3)
        return x

    g = value_and_grad(f, compile="never")
    for n in range(11):
        g(0.7, f"{n:04b}")
    value, _ = g(0.7, "1" * 80)
    assert value == f(0.7, "1" * 80)
    assert any(call.primitive.repeats for call in g.tapes[0].calls)
