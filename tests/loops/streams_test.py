"""Plain loops where how many random numbers are drawn depends on values: a round is traced once,
the numbers are those of plain NumPy, and so is the state in which generators are left."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
from tests.loops.drawing_test import LEGACY, RNG, ROUNDS, from_seed

from tapegrad import hessian, jacfwd, value_and_grad, vmap


def barrier(x: Any) -> Any:
    total = 0.0
    for _ in range(ROUNDS):
        s = 1.0
        for _ in range(50):
            s = s * np.exp(0.1 * x * RNG.standard_normal() - 0.005 * x * x)
            if s > 1.25:
                break
        total = total + max(s - 1.0, 0.0)
    return total / ROUNDS


def walk(x: Any) -> Any:
    s, t = 0.1 * x, 0.0
    while abs(s) < 1.0:
        s = s + 0.3 * np.random.randn() * x
        t = t + 0.01 * s
    return s + t


def jumps(x: Any) -> Any:
    s = x
    for _ in range(ROUNDS):
        s = s * 0.99 + 0.01
        if RNG.random() < 0.3:
            s = s + 0.1 * x * RNG.normal()
    return s


def one_side(x: Any) -> Any:
    s = x
    for _ in range(ROUNDS):
        s = s * 0.99 + 0.01
        if s < 0.8:
            s = s + 0.1 * x * RNG.random()
    return s + x * RNG.random()


def rejection(x: Any) -> Any:
    total = 0.0
    for _ in range(ROUNDS):
        while True:
            u, v = LEGACY.uniform(-1, 1), LEGACY.uniform(-1, 1)
            if u * u + v * v < 1:
                break
        total = total + np.exp(-x * u) * v * v
    return total


def gillespie(x: Any) -> Any:
    count, t, area = 30.0, 0.0, 0.0
    while t < 5.0:
        birth, death = x * 3.0, 0.2 * count
        dt = RNG.exponential() / (birth + death)
        t, area = t + dt, area + count * dt
        if RNG.random() * (birth + death) < birth:
            count = count + 1.0
        else:
            count = count - 1.0
    return area


def metropolis(x: Any) -> Any:
    s, total = 0.5, 0.0
    for _ in range(3 * ROUNDS):
        new = s + 0.5 * RNG.normal()
        d = -(new * new - s * s) / (2 * x * x)
        if d > 0 or RNG.random() < np.exp(d):
            s = new
        total = total + s * s * x
    return total


def own_generator(x: Any) -> Any:
    rng, total = np.random.default_rng(3), 0.0
    for _ in range(ROUNDS):
        s = x
        while s > 0.3:
            s = s * (0.5 + 0.5 * rng.random())
        total = total + s
    return total + x * rng.random()


def pythons(x: Any) -> Any:
    s = x
    for _ in range(ROUNDS):
        s = s * 0.9 + 0.1 * x * random.gauss(0, 1) if s < 0.6 else s * 0.95
    return s


def in_a_function(x: Any) -> Any:
    def step(s: Any) -> Any:
        return s + 0.1 * x * RNG.random() if RNG.random() < 0.5 else s * 0.9

    s = x
    for _ in range(3 * ROUNDS):
        s = step(s)
    return s


def queue(x: Any) -> Any:
    wait, total = 0.0, 0.0
    for _ in range(ROUNDS):
        wait = max(wait + x * RNG.exponential() - RNG.exponential(1.2), 0.0)
        total = total + wait
        if wait > 5:
            break
    return total


STREAMS = (
    *(barrier, walk, jumps, one_side, rejection, gillespie, metropolis, own_generator, pythons),
    *(in_a_function, queue),
)


def held(f: Any, derivative: Any, k: int, x: float) -> None:
    value, after = from_seed(k, f, x)
    (found, slope), left = from_seed(k, derivative, x)
    assert found == pytest.approx(value, rel=1e-12)
    assert left == after
    ends = [from_seed(k, f, x + h)[0] for h in (1e-7, -1e-7)]
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-7, rel=1e-4, abs=1e-5)


@pytest.mark.every(8)
@pytest.mark.parametrize("f", STREAMS, ids=lambda f: f.__name__)
def test_later_calls_draw_from_the_stream(f: Any) -> None:
    derivative = value_and_grad(f, compile="never")
    for k in range(12):
        held(f, derivative, k, 0.8 + 0.01 * k)
    assert derivative.cache_info().traces <= 5
    assert all(len(str(tape).splitlines()) < 250 for tape in derivative.tapes)


@pytest.mark.every(2)
@pytest.mark.parametrize("f", [barrier, jumps, walk], ids=lambda f: f.__name__)
def test_compiled(f: Any) -> None:
    derivative = value_and_grad(f, compile="always")
    for k in range(3):
        held(f, derivative, k, 0.8 + 0.01 * k)


def test_a_call_that_runs_out_of_numbers_is_traced_with_more() -> None:
    def f(x: Any, far: float) -> Any:
        s, t = 0.0 * x, 0.0
        while s < far:
            s = s + 0.1 * x * RNG.random()
            t = t + s
        return t

    derivative = value_and_grad(f, compile="never")
    for far in (1.0, 2.0, 400.0, 1.0, 500.0):
        value, after = from_seed(1, f, 0.7, far)
        (found, _), left = from_seed(1, derivative, 0.7, far)
        assert (found, left) == (pytest.approx(value, rel=1e-12), after)
    assert derivative.cache_info().traces == 2


def test_higher_derivatives_and_rows() -> None:
    second, left = from_seed(3, hessian(one_side), 0.7)
    ends = [from_seed(3, value_and_grad(one_side), 0.7 + h)[0][1] for h in (1e-6, -1e-6)]
    assert second == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-8)
    assert left == from_seed(3, one_side, 0.7)[1]
    slope, left = from_seed(3, jacfwd(one_side), 0.7)
    assert (slope, left) == (ends[0] + (ends[1] - ends[0]) / 2, from_seed(3, one_side, 0.7)[1]) or (
        slope == pytest.approx(ends[0], rel=1e-4)
    )
    xs = np.array([0.6, 0.7, 0.9])
    rows, left = from_seed(3, vmap(one_side), xs)
    plain, after = from_seed(3, lambda xs: np.array([one_side(x) for x in xs]), xs)
    assert left == after
    np.testing.assert_allclose(rows, plain, rtol=1e-12)


def of_another_kind(x: Any, s: Any) -> Any:
    return s + x * RNG.integers(5)


def of_an_array(x: Any, s: Any) -> Any:
    return s + x * np.sum(RNG.normal(size=3))


def of_a_list(x: Any, s: Any) -> Any:
    order = [1.0, 2.0, 3.0, 4.0]
    RNG.shuffle(order)
    return s + x * order[0]


def of_a_state(x: Any, s: Any) -> Any:
    return s + x * (RNG.bit_generator.state["state"]["state"] % 7)


def of_a_copy(x: Any, s: Any) -> Any:
    return s + x * copy.deepcopy(RNG).random()


def of_another_generator(x: Any, s: Any) -> Any:
    return s + x * np.random.Generator(RNG.bit_generator).random()


AFTER = (of_another_kind, of_an_array, of_a_list, of_a_state, of_a_copy, of_another_generator)


@pytest.mark.every(6)
@pytest.mark.filterwarnings("ignore:.*traced for three calls:RuntimeWarning")
@pytest.mark.parametrize("then", AFTER, ids=lambda f: f.__name__)
def test_what_looks_at_the_generator_afterwards_finds_it_where_it_is(then: Any) -> None:
    def f(x: Any) -> Any:
        return then(x, one_side(x)) + x * RNG.random()

    derivative = value_and_grad(f, compile="never")
    for k in range(6):
        held(f, derivative, k, 0.7 + 0.03 * k)


@pytest.mark.filterwarnings("ignore:.* calls in a row")
@pytest.mark.every(2)
@pytest.mark.filterwarnings("ignore:.*traced for three calls:RuntimeWarning")
@pytest.mark.parametrize("then", ["copied", "bits", "state"])
def test_a_generator_of_the_functions_own_is_looked_at_afterwards(then: str) -> None:
    def f(x: Any) -> Any:
        rng, s = np.random.default_rng(3), x
        for _ in range(ROUNDS):
            s = s * 0.99 + 0.01
            if s < 0.8:
                s = s + 0.1 * x * rng.random()
        if then == "copied":
            return s * copy.deepcopy(rng).random()
        if then == "bits":
            return s * np.random.Generator(rng.bit_generator).random()
        return s * (rng.bit_generator.state["state"]["state"] % 7)

    derivative = value_and_grad(f, compile="never")
    for k in range(6):
        held(f, derivative, k, 0.5 + 0.06 * k)
