"""Fusing, recomputing and tiling change how fast a program is, not what it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.emit.check import assert_agree

from tapegrad import pipeline, trace

# Where the pipeline takes them from.
STAGES = {
    "fuse": "tapegrad.schedule.fuse.fuse",
    "recompute": "tapegrad.schedule.recompute.recompute",
    "tile": "tapegrad.schedule.tile.tile",
}


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def mlp(w, v, x, y):
    return np.mean((np.tanh(x @ w) @ v - y) ** 2)


def softmax_regression(w, x, labels):
    z = x @ w
    z = z - z.max(axis=1, keepdims=True)
    picked = z[np.arange(len(x)), labels]
    return np.mean(np.log(np.exp(z).sum(axis=1)) - picked)


def logistic_regression(w, x, y):
    z = x @ w
    return np.sum(np.logaddexp(0.0, z) - y * z)


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def around_a_product(w, x):
    t = x + 1.0
    return np.sum(np.tanh((t * 2.0) @ w) * t)


def running(x):
    return np.sum(np.cumsum(np.exp(x)) ** 2)


def gather(table, rows):
    return np.sum(np.sin(table[rows]) * table[0])


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mlp": (mlp, (normal(3, 4), normal(4), normal(300, 3), normal(300))),
    "softmax regression": (
        softmax_regression,
        (normal(3, 4), normal(300, 3), np.arange(300) % 4),
    ),
    "logistic regression": (logistic_regression, (normal(3), normal(300, 3), normal(300))),
    "rosenbrock": (rosenbrock, (normal(9),)),
    "around a product": (around_a_product, (normal(64, 64), normal(64, 64))),
    "cumsum": (running, (normal(7),)),
    "gather": (gather, (normal(5, 3), np.array([4, 0, -1, 4]))),
}


@pytest.mark.every(12)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_gradient_is_the_same_without_a_stage(monkeypatch, stage, program):
    f, args = PROGRAMS[program]
    monkeypatch.setattr(STAGES[stage], lambda plan, *_, **__: plan)
    tape = pipeline.gradient(trace(f, *args)[1], [0])
    assert_agree(tape, (*args, *tape.captured))


@pytest.mark.every(7)
@pytest.mark.parametrize("program", PROGRAMS)
def test_and_without_all_of_them(monkeypatch, program):
    f, args = PROGRAMS[program]
    for stage in STAGES:
        monkeypatch.setattr(STAGES[stage], lambda plan, *_, **__: plan)
    tape = pipeline.gradient(trace(f, *args)[1], [0])
    assert_agree(tape, (*args, *tape.captured))


@pytest.mark.every(2)
@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_matters_to_some_program(monkeypatch, stage):
    def texts() -> list[str]:
        tapes = [pipeline.gradient(trace(f, *args)[1], [0]) for f, args in PROGRAMS.values()]
        return [k.text for tape in tapes for k in pipeline.schedule(tape).kernels]

    before = texts()
    monkeypatch.setattr(STAGES[stage], lambda plan, *_, **__: plan)
    assert texts() != before
