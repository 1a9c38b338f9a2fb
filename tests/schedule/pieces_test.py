"""Arrays that are read from their parts: rolls, concatenations, pads and stacks are never copied,
and what is added to slices is gathered."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.emit.check import assert_agree

from tapegrad import grad, jit, set_num_threads, trace, value_and_grad
from tapegrad.ir.plan import Plan, Recurrence, walk
from tapegrad.ir.steps import Compute
from tapegrad.ir.tape import Tape
from tapegrad.pipeline import at_its_best, gradient, schedule
from tapegrad.schedule.shrink import with_loops


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape)


def plans(tape: Tape) -> list[Plan]:
    """The plan of a tape, and those of the rounds of its loops."""
    plan = schedule(tape).plan
    return [plan, *[step.plan for step in walk(plan.steps) if isinstance(step, Recurrence)]]


def written(plan: Plan) -> dict[str, int]:
    """How many elements a plan writes: of results and temporaries in memory, and how many of them
    it adds to others."""
    found = {"result": 0, "temporary": 0, "added": 0}
    for around, step in with_loops(plan.steps, ()):
        if isinstance(step, Compute) and not step.cell.in_register:
            times = math.prod(i.extent for i in around)
            role = "result" if step.cell.role == "output" else "temporary"
            found["added" if step.combine else role] += times
    return found


def heat(u, a, rounds=50):
    for _ in range(rounds):
        around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
        u = u + a * (around - 4 * u)
    return np.sum(u * u)


def test_a_round_of_the_heat_equation_writes_each_element_once():
    u = normal(40, 50)
    derived = value_and_grad(heat, compile="always")
    value, slope = derived(u, 0.1)
    expected, known = value_and_grad(heat, compile="never")(u, 0.1)
    np.testing.assert_allclose(value, expected, 1e-12)
    np.testing.assert_allclose(slope, known, 1e-9, 1e-9 * np.max(np.abs(known)))
    _, *rounds = plans(derived.tapes[0])
    assert len(rounds) == 2  # one forward, one backward
    for plan in rounds:
        assert written(plan) == {"result": u.size, "temporary": 0, "added": 0}
    assert "+=" not in derived.tapes[0].source


def rings(x):
    return np.concatenate([x[-1:], x, x[:1]]) ** 2


# Each with the elements that are computed for several places, in the function and its derivative,
# and those that the derivative adds to others.
CASES = {
    "a roll": (lambda x: np.roll(x, 3) * x, (600,), 0, 0, 0),
    "backwards": (lambda x: np.roll(x, -2)[::-1] * x, (600,), 0, 0, 0),
    "along two axes": (lambda x: np.roll(x, (1, -2), (0, 1)) * x, (40, 30), 0, 0, 0),
    "a ring": (rings, (600,), 0, 602, 2),
    "a stack": (lambda x: np.sum(np.stack([x[0], x[1], x[2]], -1) ** 3, -1), (3, 400), 0, 1200, 0),
    "of computed": (lambda x: np.roll(np.exp(x), 1, 1) * np.exp(x), (40, 30), 1200, 1200, 0),
    "rolls of rolls": (lambda x: np.roll(np.roll(np.roll(x, 1), 5), -9) * x, (600,), 0, 0, 0),
    "of rows": (lambda x: np.roll(x.T, 1, 1)[::-1] * x.T[:, ::-1], (40, 30), 0, 3600, 0),
    "of three axes": (lambda x: np.roll(x, 1, 2) - np.roll(x, 2, 0) * x, (9, 8, 10), 0, 0, 0),
    "an edge": (lambda x: np.pad(x, 1, mode="edge")[2:, :-2] * x, (40, 30), 0, 1260, 144),
    "around": (lambda x: np.pad(x, (2, 1), mode="wrap")[3:] * x, (600,), 0, 0, 3),
    "mirrored": (lambda x: np.pad(x, 2, mode="reflect")[4:] * x, (600,), 0, 0, 4),
    "a pad": (lambda x: np.pad(x, 1)[2:, 1:-1] * x, (40, 30), 0, 0, 0),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_copied(name, dtype):
    """And nothing is added up in memory, but at ends."""
    function, shape, computed, again, added = CASES[name]
    x = normal(*shape).astype(dtype)
    tape = at_its_best(trace(function, x)[1])
    expected = {"result": function(x).size, "temporary": computed, "added": 0}
    assert written(schedule(tape).plan) == expected
    assert_agree(tape, [x], [np.where(x > 0, x, np.inf)])
    weights = normal(*function(x).shape).astype(dtype)
    tape = gradient(trace(lambda x, w: np.sum(function(x) * w), x, weights)[1], [0])
    found = written(schedule(tape).plan)
    if dtype == np.float64:  # a narrower value is computed again less often
        assert found["temporary"] == again
    assert found["added"] == added
    assert_agree(tape, [x, weights])


def test_how_it_reads():
    derived = grad(lambda x: np.sum((np.roll(x, 1) - x) ** 2), compile="never")
    x = normal(600)
    np.testing.assert_allclose(derived(x), 4 * x - 2 * (np.roll(x, 1) + np.roll(x, -1)), 1e-12)
    kernel = derived.tapes[0].source.split("\n\n\n")[1]
    lines = [line for line in kernel.splitlines() if not line.lstrip().startswith("#")]
    assert lines == [
        "def grad_lambda_kernel(x, d_x):",
        "    d_x[0] = ((x[599] - x[0]) * (-2.0)) + ((x[0] - x[1]) * 2.0)",
        "    for i in range(598):  # entries 1 to 598",
        "        d_x[i + 1] = ((x[i] - x[i + 1]) * (-2.0)) + ((x[i + 1] - x[i + 2]) * 2.0)",
        "    d_x[599] = ((x[598] - x[599]) * (-2.0)) + ((x[599] - x[0]) * 2.0)",
        "    return 0",
    ]


def test_a_small_array_is_copied():
    """That is as quick, and less to compile."""
    x = normal(20)
    tape = at_its_best(trace(lambda x: np.roll(x, 1) * x, x)[1])
    assert written(schedule(tape).plan) == {"result": 20, "temporary": 20, "added": 0}


def test_zeros_around_are_added_where_they_are_written_down():
    """-0.0 + 0.0 is 0.0."""

    def function(x, y):
        return np.pad(x, 3) * 1.0 + y

    x, y = normal(600), np.full(606, -0.0)
    found = jit(function, compile="always")(x, y)
    np.testing.assert_array_equal(found, function(x, y))


def test_cores_share_the_middle():
    """Whatever their number, the result has the same bits."""

    def function(x):
        return np.sum((np.roll(x, 1) - x) ** 2 * np.sin(np.roll(x, -5)))

    x = normal(200_003)
    expected, known = value_and_grad(function, compile="never")(x)
    derived, bits = value_and_grad(function, compile="always"), set()
    try:
        for count in (1, 2, 4):
            set_num_threads(count)
            value, slope = derived(x)
            bits.add((value, slope.tobytes()))
    finally:
        set_num_threads()
    assert "parallel(" in derived.tapes[0].source
    assert len(bits) == 1
    np.testing.assert_allclose(value, expected, 1e-10)
    np.testing.assert_allclose(slope, known, 1e-9, 1e-9)


def test_what_is_written_over_is_copied_before():
    def function(x, w):
        y = x * 1.0
        total = 0.0
        for k in range(30):
            before = np.roll(y, 1)
            y[k : k + 500] = y[k : k + 500] * 0.5 + w
            total = total + np.sum(before * y)
        return total

    args = normal(600), normal(500)
    derived = value_and_grad(function, (0, 1), compile="always")
    value, slopes = derived(*args)
    np.testing.assert_allclose(value, function(*args), 1e-10)
    for one, other in zip(slopes, grad(function, (0, 1), compile="never")(*args), strict=True):
        np.testing.assert_allclose(one, other, 1e-8, 1e-9)


@pytest.mark.parametrize("shift", [1])
def test_the_code_serves_any_length(shift):
    derived = grad(lambda x: np.sum((np.roll(x, shift) - x) ** 2 * x), compile="always")
    plain = grad(lambda x: np.sum((np.roll(x, shift) - x) ** 2 * x), compile="never")
    kernels = []
    for n in (700, 600, 3000, 41):
        x = normal(n)
        np.testing.assert_allclose(derived(x), plain(x), 1e-10, 1e-12)
        kernels.append(derived.cache_info().kernels)
    assert kernels[1:] == [kernels[1]] * 3


def test_parts_of_long_nests_stay_few():
    """A nest that is split into many regions isn't fused with everything else."""

    def function(u, v):
        for _ in range(3):
            u, v = (
                u
                + sum(
                    np.roll(w, k, axis)
                    for w in (u, v, u * v)
                    for k in (1, -1)
                    for axis in (0, 1, 2)
                ),
                np.sin(v) + np.roll(u * u, 1, 0) * np.roll(v, -1, 2),
            )
        return np.sum(u * v)

    u, v = normal(9, 8, 10), normal(10, 8, 9).T
    tape = gradient(trace(function, u, v)[1], [0, 1])
    plan = schedule(tape).plan
    statements = [sum(isinstance(s, Compute) for s in walk([step])) for step in plan.steps]
    assert max(statements) < 400
    assert_agree(tape, [u, np.ascontiguousarray(v)])
