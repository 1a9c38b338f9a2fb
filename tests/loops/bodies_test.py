"""Plain loops in the functions of scan, map, while_loop and cond are loops in their bodies."""

import numpy as np
import pytest
from tests.loops.cond_test import EXPLICIT, UNROLLED
from tests.loops.explicit_test import calls, same, total

from tapegrad import grad, gradcheck, jit, trace, value_and_grad
from tapegrad.optimize import repetition

RNG = np.random.default_rng(16)
W = RNG.normal(size=(3, 3)) / 2
X = RNG.normal(size=(5, 3))
ROUNDS = 60

PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


@program
def in_a_scan(use, w, x, n):
    def step(h, x):
        for t in range(n):
            h = np.tanh(w @ h + x * 0.1) + 0.01 * t
        return h, np.sum(h)

    return use.scan(step, np.ones(3), x)


@program
def in_a_map(use, w, x, n):
    """What a round fills it reads after the loop."""

    def entry(a):
        found = []
        for t in range(n):
            found.append(np.sin(a * np.cos(float(t))) * w[0])
        return np.stack(found).sum(0) * a

    return use.map(entry, x)


@program
def in_a_while_loop(use, w, x, n):
    def body(state):
        h, k = state
        for t in range(n):
            h = h + 0.01 * np.sin(h * (1 + t % 2)) * x[0]
        return h, k + 1

    return use.while_loop(lambda s: s[1] < 4, body, (w[0], 0))[0]


@program
def in_a_conditional(use, w, x, n):
    def euler(y):
        for t in range(n):
            y = y + 0.001 * np.sin(w @ y) * (t + 1)
        return y

    return use.cond(w[0, 0] > 0, lambda: euler(x[0]), lambda: euler(np.cos(x[1])))


@program
def nested(use, w, x, n):
    """A scan in a plain loop in a scan in which there is a plain one."""

    def inner(h, a):
        for t in range(n):
            h = h * 0.9 + np.sin(a + t)
        return h, None

    def outer(h, a):
        for _ in range(3):
            h, _ = use.scan(inner, h, a)
        return h, h

    return use.scan(outer, w[0, 0], x)


@program
def before_types_change(use, w, x, n):
    """The first rounds stand in front of the loop."""

    def step(h, a):
        for t in range(n):
            h = h * 0.5 + np.sum(a) * t
        return h, h

    return use.scan(step, 1, x)


by_name = pytest.mark.parametrize("name", PROGRAMS)


@pytest.mark.every(4)
@by_name
def test_the_tape_does_not_grow_with_the_rounds(name):
    lengths = set()
    for n in (ROUNDS, 3 * ROUNDS):
        _, tape = trace(lambda w, x, n=n: PROGRAMS[name](EXPLICIT, w, x, n), W, X)
        derived = grad(lambda w, n=n: total(PROGRAMS[name](EXPLICIT, w, X, n)), compile="never")
        derived(W)
        lengths.add((calls(tape), calls(derived.tapes[0])))
    assert len(lengths) == 1
    ((one, _),) = lengths
    assert one < 3 * ROUNDS


@pytest.mark.every(8)
@by_name
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.filterwarnings("ignore:.*recorded:RuntimeWarning")
def test_values_and_gradients(name, mode, monkeypatch):
    f = PROGRAMS[name]
    found = value_and_grad(lambda w, x: total(f(EXPLICIT, w, x, ROUNDS)), (0, 1), compile=mode)
    with monkeypatch.context() as patch:
        patch.setattr(repetition, "MIN_CALLS", 10**9)
        expected = value_and_grad(
            lambda w, x: total(f(UNROLLED, w, x, ROUNDS)), (0, 1), compile="never"
        )
        values = [expected(w, X) for w in (W, -W)]
    for w, value in zip((W, -W, W), (*values, values[0]), strict=True):
        same(found(w, X), value, 1e-9)
    assert found.cache_info().traces == 1
    gradcheck(lambda w: total(f(EXPLICIT, w, X, ROUNDS)), (W,))


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["in_a_scan", "in_a_map", "in_a_conditional"])
def test_second_derivatives(name):
    f = PROGRAMS[name]

    def slope(use):
        inner = grad(lambda w: total(f(use, w, X, ROUNDS)), compile="never")
        return grad(lambda w: total(inner(w)), compile="never")

    same(slope(EXPLICIT)(W), slope(UNROLLED)(W), 1e-8)


def test_arrays_that_differ_from_round_to_round_are_read_anew_at_each_call():
    """Those that the function reaches, and those that it is passed."""
    tables = [np.full(3, float(k)) for k in range(ROUNDS)]

    def f(x, scale):
        def step(h, a):
            for table in tables:
                h = h * 0.5 + table * a * scale
            return h, None

        return EXPLICIT.scan(step, np.zeros(3), x)[0]

    derived = jit(f, compile="never")
    before = derived(X, 2.0)
    tables[-1][:] = 0.0
    after = derived(X, 2.0)
    same(after, f(X, 2.0))
    assert not np.allclose(before, after)
