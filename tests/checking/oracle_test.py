"""Under TAPEGRAD_DEBUG a schedule is held against its tape, and a wrong pass is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from tapegrad import pipeline, primitive, trace
from tapegrad.backends.source import emit as numba_source
from tapegrad.checking import oracle
from tapegrad.errors import InternalError
from tapegrad.ir.affine import Affine
from tapegrad.ir.allocation import span
from tapegrad.ir.cells import Read
from tapegrad.ir.plan import Plan
from tapegrad.ir.steps import Compute, Loop, Step
from tapegrad.ir.tape import Tape
from tapegrad.primitives.elementwise import cos, sin
from tapegrad.schedule import buffers

X = np.random.default_rng(0).normal(size=30)


def traced(f, *args) -> Tape:
    return pipeline.optimized(trace(f, *args)[1])


def changed(step: Step, change) -> Step:
    if isinstance(step, Loop):
        return replace(step, body=tuple(changed(s, change) for s in step.body))
    return change(step) if isinstance(step, Compute) else step


def wave(x):
    return np.cumsum(np.sin(x))[::-1] * x


def breaking(change):
    def broken(plan: Plan, *settings: float) -> Plan:
        return replace(plan, steps=tuple(changed(s, change) for s in plan.steps))

    return broken


def another_function(step: Compute) -> Step:
    return replace(step, primitive=cos) if step.primitive is sin else step


def another_element(step: Compute) -> Step:
    """The first element wherever another is read."""

    def first(read: Read) -> Read:
        plain = all(isinstance(k, Affine) for k in read.at)
        return replace(read, at=(Affine(),) * len(read.at)) if plain and read.at else read

    return replace(step, reads=tuple(map(first, step.reads)))


@pytest.mark.parametrize("stage", ["fuse", "recompute", "cut"])
@pytest.mark.parametrize("change", [another_function, another_element])
def test_the_pass_at_fault_is_named(monkeypatch, stage, change):
    if stage != "fuse":  # until then, `sin` may be where another pass has put it
        change = another_element
    monkeypatch.setattr(f"tapegrad.schedule.{stage}.{stage}", breaking(change))
    name = "recomputed" if stage == "recompute" else "broken"  # which is passed settings
    with pytest.raises(InternalError, match=f"after {name}, the plan of wave isn't the tape"):
        pipeline.schedule(traced(wave, X))


def test_whoever_moves_in_too_early_is_found(monkeypatch):
    monkeypatch.setattr(buffers, "_hands_over", lambda *lives: True)
    with pytest.raises(InternalError, match=r"after assign: .* while it is needed"):
        pipeline.schedule(traced(lambda x: np.cumsum(np.cumsum(x)[::-1])[::-1] * 2.0, X))


def test_an_emitter_that_forgets_what_a_nested_value_reads_is_found(monkeypatch):
    value = numba_source._KernelEmitter._value

    def forgetful(self, step):
        own = [span(c, at, self.allocation) for c, at, writes in step.accesses() if not writes]
        return replace(value(self, step), reads=tuple(own))

    monkeypatch.setattr(numba_source._KernelEmitter, "_value", forgetful)
    m = X[:9].reshape(3, 3)
    with pytest.raises(InternalError, match=r"after emit: .* while it is needed"):
        pipeline.schedule(traced(lambda m, x: m @ np.cross(m @ x, x @ m), m, X[:3]))


def test_rounding_is_no_fault():
    """What is left of sums in two orders, and what is decided by it."""

    def f(x):
        rest = np.sum(x) - np.sum(np.cumsum(x)[-1])
        return rest, rest > 0.0, rest * 1e16, expit(1e18 * rest)

    pipeline.schedule(traced(f, X))


def test_functions_of_the_user_are_not_called():
    calls = []

    @primitive
    def counted(x):
        calls.append(1)
        return np.asarray(np.sort(np.asarray(x, float).tolist()))

    tape = traced(lambda x: counted(x) * 2.0, X)
    before = len(calls)
    pipeline.schedule(tape)
    assert len(calls) == before


def test_only_debugging_costs_time(monkeypatch):
    monkeypatch.setattr(pipeline, "DEBUG", False)
    monkeypatch.setattr(oracle, "hold", None)
    pipeline.schedule(traced(wave, X))
