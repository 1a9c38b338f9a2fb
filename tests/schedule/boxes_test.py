"""Arrays that are summed up in boxes of a larger one: each element of what they have in common is
written once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.emit.check import assert_agree

from tapegrad import loops, trace
from tapegrad.ir.steps import Compute
from tapegrad.ir.tape import Tape
from tapegrad.pipeline import gradient, schedule
from tapegrad.schedule.shrink import with_loops


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape)


def derivative(function, *shape: int, dtype=np.float64) -> tuple[Tape, list[np.ndarray]]:
    """The tape of the gradient of a weighted sum, so that each cotangent is another number, and
    values for it."""
    x = normal(*shape).astype(dtype)
    weights = normal(*function(x).shape).astype(dtype)
    tape = trace(lambda x, w: np.sum(function(x) * w), x, weights)[1]
    return gradient(tape, [0]), [x, weights]


def additions(tape: Tape) -> int:
    """How many elements of a result are added to, at the most, by one statement."""
    plan = schedule(tape).plan
    return max(
        math.prod(i.extent for i in around)
        for around, step in with_loops(plan.steps, ())
        if isinstance(step, Compute) and step.combine and step.cell.role == "output"
    )


def star(x):
    return x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] * x[1:-1, 2:] - 4.0 * x[1:-1, 1:-1]


def thick_star(x):
    inner = sum(x[2 + k : 38 + k, 2:-2] * (k + 0.5) for k in (-2, -1, 1, 2))
    return inner + sum(x[2:-2, 2 + k : 28 + k] * np.exp(x[2:-2, 2:-2]) for k in (-2, 1))


def upwind(x):
    return x[1:, :] * x[:-1, :] + x[1:, :] ** 2 - np.sin(x[:-1, :])


def line(x):
    return x[:-2] * 0.5 + x[2:] * x[1:-1] - x[1:-1]


def one_layer(x):
    """Of a box one entry thick, along an axis that the summed arrays don't have."""
    return x[1, :-2, 1:-1] + x[1, 2:, 1:-1] * x[1, 1:-1, 2:]


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("function", "shape"),
    [(star, (40, 30)), (thick_star, (40, 30)), (line, (600,))],
)
def test_each_element_of_the_core_is_written_once(function, shape, dtype):
    tape, values = derivative(function, *shape, dtype=dtype)
    assert additions(tape) <= 4 * shape[0]  # what is around the core
    x, weights = values
    spoilt = np.where(np.arange(x.size).reshape(shape) % 7, x, np.inf)
    assert_agree(tape, values, [spoilt, weights])


@pytest.mark.every(8)
@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (one_layer, (3, 40, 30)),
        (upwind, (40, 30)),  # there are two
        (lambda x: x[:20] + x[20:] * x[10:30], (40, 30)),  # nothing is in all boxes
        (lambda x: x[:30] + x[10:] * x[5:35], (40, 30)),  # little is
        (lambda x: x[:-2:2] + x[2::2] * x[1:-1:2], (600,)),  # there are gaps
        (star, (12, 12)),  # the array is small
        (lambda x: x[:-2, :, 1:-1] + x[2:, :, 1:-1] + x[1:-1, :, 2:], (12, 12, 12)),
        (lambda x: x[:-2, 1:-1, 1:-1] + x[2:, 2:, 1:-1] + x[1:-1, :-2, 2:], (12, 12, 12)),
    ],
)
def test_others_are_what_they_were(function, shape):
    tape, values = derivative(function, *shape)
    assert_agree(tape, values)


def test_what_is_added_is_not_kept_for_the_parts_around():
    """What they would read instead is little, of an array that is read anyhow."""

    def spread(x):
        return 0.1 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])

    tape, values = derivative(spread, 140, 130)
    assert not schedule(tape).slots
    assert_agree(tape, values)


def test_an_array_that_is_as_long_as_a_loop_has_no_core():
    """Another length is served by the same code, and a core would be shorter by more than that
    allows for."""

    def smoothed(x, w):
        def step(h, v):
            return 0.5 * h + v, None

        return loops.scan(step, 0.0, x)[0] + np.sum(line(x) * w)

    for n in (600, 700):
        x, w = normal(n), normal(n - 2)
        tape = gradient(trace(smoothed, x, w)[1], [0])
        assert additions(tape) == n - 2
        assert_agree(tape, (x, w))
