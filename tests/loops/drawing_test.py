"""Plain loops whose rounds draw random numbers: one round is traced for all, the numbers are those
of plain NumPy, and so is the state in which generators are left."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.loops.once import calls_of, noted

from tapegrad import grad, hessian, trace, value_and_grad

RNG, LEGACY = np.random.default_rng(0), np.random.RandomState(0)
WEIGHTS = np.array([0.3, 0.7, 1.1, -0.4])
ROUNDS = 60


class Walk:
    """A model that holds its generator."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def step(self, s: Any) -> Any:
        return s * np.exp(0.1 * self.rng.standard_normal())


WALK = Walk()


def mean_of_draws(x: Any, n: int) -> Any:
    total = 0.0
    for _ in range(n):
        total += np.exp(0.1 * noted(x) * RNG.standard_normal())
    return total / n


def nested(x: Any, n: int) -> Any:
    total = 0.0
    for _ in range(n):
        s = 1.0
        for _ in range(ROUNDS):
            s *= np.exp(0.1 * noted(x) * RNG.normal(0.0, 0.5) - 0.005 * x * x)
        total += max(s - 1.0, 0.0) + LEGACY.uniform(0, 1) * x
    return total / n


def short_inner_loop(x: Any, n: int) -> Any:
    paths = np.zeros((n, 4))
    paths[:, 0] = 1.0
    for k in range(n):
        for t in range(3):
            paths[k, t + 1] = paths[k, t] * np.exp(0.1 * noted(x) * np.random.randn())
    return np.mean(np.maximum(paths[:, -1] - 1.0, 0.0))


def arrays_that_are_written_to(x: Any, n: int) -> Any:
    out = []
    for _ in range(n):
        z = LEGACY.randn(3)
        z *= noted(x)
        z[0] = x
        out.append(np.sum(z) * random.random())
    return np.mean(out)


def integers_and_parameters(x: Any, n: int) -> Any:
    total = 0.0
    for _ in range(n):
        total += WEIGHTS[RNG.integers(4)] * noted(x) + RNG.normal(x, 0.1) * random.randint(0, 3)
    return total


def made_in_the_function(x: Any, n: int) -> Any:
    rng, total = np.random.default_rng(3), 0.0
    for _ in range(n):
        for _ in range(ROUNDS):
            total = 0.9 * total + noted(x) * rng.standard_normal() * rng.choice(WEIGHTS)
    return total


def by_an_object(x: Any, n: int) -> Any:
    s = x
    for _ in range(n):
        s = WALK.step(noted(s))
    return s


def comprehension(x: Any, n: int) -> Any:
    return np.mean([np.exp(noted(x) * RNG.normal()) for _ in range(n)])


def generator_expression(x: Any, n: int) -> Any:
    return sum(np.exp(noted(x) * RNG.random()) for _ in range(n))


def branch_on_a_draw(x: Any, n: int) -> Any:
    s = x
    for _ in range(n):
        s = s + 0.1 if RNG.random() < 0.5 else s - 0.1 * noted(x)
    return s


def first_round_is_another(x: Any, n: int) -> Any:
    s, last = x, None
    for _ in range(n):
        z = RNG.normal()
        if last is not None:
            s = s + noted(x) * z * last
        last = z
    return s


def permuted(x: Any, n: int) -> Any:
    s = 1.0 * x
    for _ in range(n):
        for w in RNG.permutation(WEIGHTS):
            s = 0.9 * s + noted(x) * w * s * 0.1
    return s


ONCE = (
    *(mean_of_draws, nested, short_inner_loop, arrays_that_are_written_to, integers_and_parameters),
    *(made_in_the_function, by_an_object, comprehension, generator_expression, branch_on_a_draw),
    permuted,
)


def one_side_draws(x: Any, n: int) -> Any:
    s = x
    for _ in range(n):
        s = s - 0.01 * RNG.random() if s > 0.5 else s + 0.02
    return s


def left_by_a_draw(x: Any, n: int) -> Any:
    s = x
    for _ in range(n):
        s = s * np.exp(0.1 * RNG.normal())
        if s < 0.8 * x:
            break
    return s


def until_the_time_is_over(x: Any, n: int) -> Any:
    t, s = 0.0, x
    while t < 0.1 * n:
        t = t + RNG.exponential(0.2)
        s = s * 1.01
    return s


def as_many_as_the_round_says(x: Any, n: int) -> Any:
    s = x
    for k in range(n):
        for _ in range(k % 3):
            s = s + 0.1 * x * RNG.normal()
    return s


def two_lines_of_draws_by_turns(x: Any, n: int) -> Any:
    s = x
    for k in range(n):
        s = s + x * (RNG.normal() if k % 2 else LEGACY.rand())
    return s


OTHERWISE = (
    *(one_side_draws, left_by_a_draw, until_the_time_is_over, as_many_as_the_round_says),
    *(two_lines_of_draws_by_turns, first_round_is_another),
)


def seeded(k: int) -> None:
    RNG.bit_generator.state = np.random.default_rng(k).bit_generator.state
    WALK.rng.bit_generator.state = np.random.default_rng(k + 1).bit_generator.state
    LEGACY.seed(k)
    np.random.seed(k)
    random.seed(k)


def states() -> str:
    held = RNG.bit_generator.state, WALK.rng.bit_generator.state
    return repr((held, LEGACY.get_state(), np.random.get_state(), random.getstate()))


def from_seed(k: int, f: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    seeded(k)
    return f(*args), states()


@pytest.mark.every(17)
@pytest.mark.parametrize("f", [*ONCE, *OTHERWISE], ids=lambda f: f.__name__)
def test_the_numbers_and_states_are_those_of_plain_numpy(f: Any) -> None:
    derivative = value_and_grad(f, compile="never")
    for k, n in enumerate((ROUNDS, ROUNDS, 3 * ROUNDS, 7, ROUNDS)):
        x = 0.53 + 0.11 * k
        value, after = from_seed(k, f, x, n)
        (found, slope), left = from_seed(k, derivative, x, n)
        assert found == pytest.approx(value, rel=1e-12)
        assert left == after
        ends = [from_seed(k, f, x + h, n)[0] for h in (1e-6, -1e-6)]
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-6)


@pytest.mark.every(8)
@pytest.mark.parametrize("f", ONCE, ids=lambda f: f.__name__)
def test_a_round_is_traced_for_all(f: Any) -> None:
    runs = [
        calls_of(noted, lambda n=n: trace(lambda x: f(x, n), 0.7)) for n in (ROUNDS, 4 * ROUNDS)
    ]
    assert runs[0] == runs[1] < 40


def test_compiled_and_in_other_derivatives() -> None:
    compiled = value_and_grad(nested, compile="always")
    for k in range(2):
        (found, slope), left = from_seed(k, compiled, 0.6 + k, ROUNDS)
        (value, other), after = from_seed(
            k, value_and_grad(nested, compile="never"), 0.6 + k, ROUNDS
        )
        assert (found, slope) == pytest.approx((value, other), rel=1e-12)
        assert left == after
    second, _ = from_seed(3, hessian(mean_of_draws), 0.7, ROUNDS)
    ends = [from_seed(3, grad(mean_of_draws), 0.7 + h, ROUNDS)[0] for h in (1e-6, -1e-6)]
    assert second == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


def test_a_call_whose_guard_fails_gives_its_draws_back() -> None:
    def f(x: Any) -> Any:
        total = mean_of_draws(x, ROUNDS)
        return total if total > 1.0 else -total

    derivative = value_and_grad(f, compile="never")
    for k in range(12):
        value, after = from_seed(k, f, 1.5)
        (found, _), left = from_seed(k, derivative, 1.5)
        assert (found, left) == (pytest.approx(value, rel=1e-12), after)
    assert derivative.cache_info().traces == 2


BOTH: list[Any] = [
    *[("exponential", (0.3,), {}), ("normal", (), {}), ("normal", (0.1, 2.0), {"size": 3})],
    *[("standard_exponential", (2,), {}), ("standard_normal", (), {}), ("random", ((2,),), {})],
    *[("uniform", (-1.0, 3), {"size": (2, 2)}), ("uniform", (), {"high": 2.0})],
]
CALLS = [
    *[(rng, *call) for rng in (RNG, LEGACY) for call in BOTH],
    *[(RNG, "random", (), {"dtype": np.float32}), (LEGACY, "random_sample", (), {})],
]


@pytest.mark.every(8)
@pytest.mark.parametrize("rng, name, args, kwargs", CALLS)
def test_many_draws_at_once_are_those_of_one_after_the_other(
    rng: Any, name: str, args: Any, kwargs: Any
) -> None:
    def f(x: Any) -> Any:
        total = 0.0
        for _ in range(ROUNDS):
            total = 0.9 * total + x * np.sum(getattr(rng, name)(*args, **kwargs))
        return total

    derivative = grad(f, compile="never")
    for k in range(3):
        value, after = from_seed(k, f, 1.0)
        assert from_seed(k, derivative, 1.0) == (pytest.approx(value, rel=1e-6), after)
