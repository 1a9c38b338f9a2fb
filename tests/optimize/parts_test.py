"""Short vectors that rounds carry become their parts, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tapes import assert_same_bits

import tapegrad as tg
from tapegrad import jacobian, pipeline, scan
from tapegrad.backends.numpy.play import run
from tapegrad.checking.tape_verify import verify
from tapegrad.optimize.scalar_replacement import part_rounds

P = np.array([1.0, 0.1, 1.5, 0.075])
U = np.array([2.0, 1.0])


def flow(p, u):
    x, y = u[0], u[1]
    return np.stack([p[0] * x - p[1] * x * y, -p[2] * y + p[3] * x * y])


def path(p, u):
    """Heun's method, whose states are kept."""
    found = np.zeros((20, 2))
    for k in range(20):
        u = u + 0.05 * flow(p, u + 0.025 * flow(p, u))
        found[k] = u
    return found


def end(p, u):
    for _ in range(20):
        u = u + 0.05 * np.array([p[0] * u[0] - p[1] * u[1], p[2] * u[0] * u[1]])
    return u


def columns(p, x):
    """Parts along the last axis, of rows; read from behind, and beside a vector and a column."""
    for _ in range(20):
        y = np.stack([np.sin(x[:, 1]) * p[0], x[:, 0] * p[1], p[2] - x[:, 2]], axis=1)
        x = 0.5 * x + 0.1 * (y[:, ::-1] * p[:3] + y * np.cos(x[:, :1]))
    return x


def pairs(p, u):
    """A loop in a loop."""
    for _ in range(5):
        for _ in range(4):
            u = u + 0.05 * flow(p, u)
        u = 0.9 * u
    return u


def until(p, u):
    def step(u):
        return u + 0.05 * flow(p, u)

    return tg.while_loop(lambda u: u[0] < 2.5, step, u)


def of_matrix(p, u):
    """The vector is read as a whole, too."""
    a = np.array([[0.9, 0.1], [-0.1, 0.9]])
    for _ in range(20):
        u = np.stack([u[0] * p[0], u[1] * p[3]]) + a @ u
    return u


def scanned(p, u):
    def step(u, _):
        u = u + 0.05 * flow(p, u)
        return u, (u, u[::-1])

    return scan(step, u, None, 20)[1][1]


X = np.arange(12.0).reshape(4, 3) / 10
CASES = [(path, U), (end, U), (columns, X), (pairs, U), (until, U), (of_matrix, U), (scanned, U)]


def loops(tape):
    found = [call.primitive for call in tape.calls if call.primitive.name == "loop"]
    return found + [inner for loop in found for inner in loops(loop.body)]


def before(f, *args):
    """The tape as the pass finds it."""
    tape = tg.trace(f, *args)[1]
    passes = [p for p in pipeline.LAST if p is not part_rounds]
    return pipeline.run_passes(pipeline.finished(pipeline.settled(tape)), passes), args


@pytest.mark.every(3)
@pytest.mark.parametrize(("f", "u"), CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_values_and_derivatives_have_the_same_bits(f, u):
    for g in (f, jacobian(f, (0, 1)), lambda p, u: tg.grad(lambda p: np.sum(f(p, u) ** 2))(p)):
        tape, args = before(g, P, u)
        given = [*args, *tape.captured]
        (expected, _), (found, _) = run(tape, given), run(verify(part_rounds(tape)), given)
        assert_same_bits(found, expected)


@pytest.mark.every(3)
@pytest.mark.parametrize(("f", "u"), CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_compiled_code_agrees_with_numpy_and_with_differences(f, u):
    np.testing.assert_allclose(tg.jit(f, compile="always")(P, u), f(P, u), rtol=1e-13)
    found = jacobian(f, compile="always")(P, u)
    for k, step in enumerate(1e-6 * np.eye(4)):
        slope = (f(P + step, u) - f(P - step, u)) / 2e-6
        np.testing.assert_allclose(found[..., k], slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("f", "carried"), [(path, 3), (end, 2), (pairs, 2)])
def test_the_state_is_numbers(f, carried):
    """No vector of a state is in memory: what is stored is the result."""
    tape = part_rounds(before(f, P, U)[0])
    for loop in loops(tape):
        assert loop.carried == carried
        assert all(x.shape == () for x in loop.body.inputs[1:3])
    assert tape.memory_report().scratch_bytes == 0


def test_directions_are_rows_that_are_written_where_they_are_read():
    """Of a Jacobian the rounds carry a row of directions for each part, and there is no copy."""
    tape = part_rounds(before(jacobian(path), P, U)[0])
    (loop,) = loops(tape)
    assert [x.shape for x in loop.body.inputs[1:6]] == [(), (), (4,), (4,), (20, 2, 4)]
    assert tape.memory_report().scratch_bytes < 20 * 2 * 4 * 8  # less than another result


def test_what_has_no_parts_stays():
    def steps(p, u):
        for _ in range(20):
            u = np.tanh(u * p[0])
        return u

    tape, _ = before(steps, P, U)
    assert part_rounds(tape) == tape


def test_rounds_that_would_be_far_longer_stay():
    def steps(p, u):
        for _ in range(20):
            u = np.stack([u[k] * p[k % 4] for k in range(8)])
            for _ in range(30):
                u = np.sin(u) * 0.9 + 0.1
        return u

    tape, _ = before(steps, P, np.arange(8.0))
    assert [loop.carried for loop in loops(part_rounds(tape))] == [
        loop.carried for loop in loops(tape)
    ]
