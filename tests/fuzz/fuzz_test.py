"""Random programs in plain NumPy: tapegrad computes and differentiates what they do.

`make test` runs the same few programs each time, `make fuzz` runs new ones, many more. A failing
program is printed, made as short as hypothesis can; it belongs in `regressions_test.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import event, given, note
from hypothesis import strategies as st
from tests.fuzz.programs import Program, grow
from tests.fuzz.properties import check_gradient, check_passes, check_values, refused
from tests.fuzzing import share

programs = st.randoms(use_true_random=False).map(grow)


def outcomes(check: Callable[..., list[str]], program: Program, *options: Any) -> list[str]:
    """Check a program; what came of it, call by call."""
    try:
        return check(program, *options)
    except Exception as error:
        if not refused(error):
            raise
        return ["refused"]


def hold(check: Callable[..., list[str]], program: Program, *options: Any) -> None:
    """The check, in a test of hypothesis."""
    note(f"\n{program}\n")
    for outcome in outcomes(check, program, *options):
        event(outcome)


@share(0.4)
@given(programs)
def test_values_are_those_of_numpy(program):
    hold(check_values, program)


@share(0.4)
@given(programs)
def test_gradients_are_those_of_differences(program):
    hold(check_gradient, program)


@share(0.06)
@given(programs)
def test_second_derivatives_are_those_of_differences(program):
    hold(check_gradient, program, "never", 2)


@share(0.1)
@given(programs)
def test_passes_keep_every_value(program):
    hold(check_passes, program)


@share(0.02)
@given(programs)
def test_compiled_values_are_those_of_numpy(program):
    hold(check_values, program, "always")


@share(0.02)
@given(programs)
def test_compiled_gradients_are_those_of_differences(program):
    hold(check_gradient, program, "always")


def test_nearly_all_is_compared():
    """At a kink differences say nothing, and some programs are refused; most are neither."""
    found: Counter[str] = Counter()
    for seed in range(40):
        found.update(outcomes(check_gradient, grow(random.Random(seed))))
    assert found["compared"] > 0.95 * found.total(), found
