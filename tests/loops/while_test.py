"""while_loop: what Python's loop computes, in as many rounds as each call needs."""

import re

import numpy as np
import pytest
from tests.loops.explicit_test import calls, same, total

from tapegrad import grad, gradcheck, jit, scan, trace, value_and_grad, while_loop
from tapegrad.errors import ArgumentError, TraceError

RNG = np.random.default_rng(31)
W = RNG.normal(size=(3, 3)) / 3
X = RNG.normal(size=(6, 3))


def plain(cond, body, init, max_rounds=None):
    carry = init
    while cond(carry):
        carry = body(carry)
    return carry


def root(loop, a):
    """Newton's method, for a square root."""

    def body(state):
        x, n = state
        return 0.5 * (x + a / x), n + 1

    return loop(lambda s: np.abs(s[0] ** 2 - a) > 1e-12 * a, body, (a, 0))


def fixed_point(loop, w, x):
    def body(state):
        _, new = state
        return new, np.tanh(w @ new + x)

    return loop(lambda s: np.max(np.abs(s[0] - s[1])) > 1e-9, body, (x + 1, x))[1]


def types_change(loop, k):
    return loop(lambda s: s["n"] < 9, lambda s: {"n": s["n"] + 1, "h": s["h"] * k + 1}, START)


START = {"n": 0, "h": 1}


def shape_changes(loop, k, x):
    return loop(lambda h: np.sum(h**2) < 50, lambda h: np.sum(h) * k + x, 1.0)


def truths(loop, x):
    """What is true of numbers, and of arrays of one element."""
    h = loop(lambda s: s[1], lambda s: (np.sin(s[0]), s[1] - 1), (x, 5))[0]
    return loop(lambda s: s[1] > 0, lambda s: (np.cos(s[0]), s[1] - 1), (h, np.array([3])))


def in_a_scan(loop, x):
    """Collatz's way to 1: another number of rounds in each round of the scan."""

    def step(h, entry):
        n, k = loop(
            lambda s: s[0] > 1,
            lambda s: (np.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1),
            (entry, np.int64(0)),
        )
        return h * x + k, n

    return scan(step, 0.0, np.array([3, 7, 1, 12]))


PROGRAMS = [
    *((root, 2.0), (fixed_point, W, X[0]), (types_change, 0.5), (shape_changes, 0.9, X[0])),
    *((truths, 0.3), (in_a_scan, 0.3)),
]
by_program = pytest.mark.parametrize(
    ("f", "args"), [(f, args) for f, *args in PROGRAMS], ids=[f.__name__ for f, *_ in PROGRAMS]
)


@by_program
def test_values(f, args):
    expected = f(plain, *args) if f is not in_a_scan else f(while_loop, *args)
    same(f(while_loop, *args), expected)
    same(jit(lambda *args: f(while_loop, *args), compile="never")(*args), expected)


@pytest.mark.every(4)
@by_program
def test_gradients(f, args):
    found = value_and_grad(lambda *args: total(f(while_loop, *args)), compile="never")
    for factor in (1.0, 1.01):
        moved = [x * factor for x in args]
        if f is not in_a_scan:
            expected = value_and_grad(lambda *args: total(f(plain, *args)), compile="never")
            same(found(*moved), expected(*moved), 1e-9)
    gradcheck(lambda *args: total(f(while_loop, *args)), args)


def test_second_derivatives():
    curvature = grad(grad(lambda a: root(while_loop, a)[0]))
    assert curvature(2.0) == pytest.approx(-0.25 * 2**-1.5, rel=1e-9)


def test_compiled():
    """All in one program, which compiles once."""

    def every(k, w, x):
        found = [
            f(while_loop, *(w, x) if f is fixed_point else (k, x)[: len(a)]) for f, *a in PROGRAMS
        ]
        return total(found)

    compiled = value_and_grad(every, (0, 1, 2), compile="always")
    expected = value_and_grad(every, (0, 1, 2), compile="never")
    for factor in (1.0, 1.05):
        args = 0.7 * factor, W * factor, X[0] * factor
        same(compiled(*args), expected(*args), 1e-8)
    assert compiled.cache_info().traces == 1


@pytest.mark.parametrize("mode", ["never", "always"])
def test_a_call_that_needs_more_rounds_is_traced_with_more_room(mode):
    derived = value_and_grad(
        lambda x, n: while_loop(lambda s: s[1] < n, lambda s: (s[0] * x, s[1] + 1), (1.0, 0))[0],
        compile=mode,
    )
    for n in (5, 9, 16, 3, 20, 0, 30, 4):
        value, slope = derived(0.9, float(n))
        assert value == pytest.approx(0.9**n, rel=1e-12)
        assert slope == pytest.approx(n * 0.9 ** (n - 1), rel=1e-12)
    assert derived.cache_info().traces == 2  # room for 16 rounds, and for 32


def test_no_rounds_at_first():
    """The body isn't run on what the condition keeps from it."""
    seen = {}

    def body(x):
        seen.setdefault("run")
        return np.sqrt(x - 1)

    derived = grad(lambda x: while_loop(lambda x: x > 4, body, x))
    assert derived(2.0) == 1 and not seen
    assert derived(9.0) == pytest.approx(0.5 / np.sqrt(8))


def test_the_tape_does_not_grow_with_the_rounds():
    lengths = set()
    for n in (20, 2000):
        f = jit(
            lambda x, n=n: while_loop(lambda s: s[1] < n, lambda s: (s[0] * x, s[1] + 1), (x, 0))
        )
        f(0.9)
        lengths.add(calls(f.tapes[0]))
    assert len(lengths) == 1


def test_max_rounds():
    def halved(x):
        return while_loop(lambda x: x > 1, lambda x: x / 2, x, max_rounds=4)

    words = r"while_loop of <lambda>: the condition still holds after 4 rounds.*max_rounds"
    derived = value_and_grad(halved)
    for f in (halved, derived):
        f(16.0)
        with pytest.raises(TraceError, match=words):
            f(17.0)
    assert derived(12.0) == (0.75, 0.0625)
    assert derived.cache_info().traces == 1
    (loop,) = [c for c in trace(halved, 16.0)[1].calls if str(c.primitive) == "loop"]
    assert loop.primitive.most == 4


def test_a_loop_of_constants_is_run():
    def f(x):
        return x * while_loop(lambda n: n < 100, lambda n: n * 3, 1)

    assert grad(f)(2.0) == 243
    assert not any(str(c.primitive) == "loop" for c in trace(f, 2.0)[1].calls)


def test_what_the_functions_reach():
    limit = np.array([40.0])

    @grad
    def f(x):
        scale = 1 + x**2
        return while_loop(lambda h: np.sum(h) < limit[0], lambda h: h * scale, x)

    assert f(1.0) == pytest.approx(64 + 6 * 2 * 32)  # x * (1 + x**2)**6
    limit[0] = 4
    assert f(1.0) == pytest.approx(4 + 2 * 2 * 2)


def test_and_is_a_branch():
    def f(x):
        return while_loop(lambda s: s[0] < 9 and s[1] < 5, lambda s: (s[0] + x, s[1] + 1), (x, 0))

    with pytest.raises(TraceError, match=r"np\.logical_and in the place of `and`"):
        jit(f)(2.0)
    same(f(2.0), (10.0, 4))
    same(jit(f)(0.125), f(0.125))  # it is the second condition that ends this one


def both(f, *args):
    """The message of the error, outside of a trace and in one."""
    found = []
    for call in (f, jit(f)):
        with pytest.raises(ArgumentError) as caught:
            call(*args)
        found.append(re.sub(r" \(while_test.py:\d+: `[^`]*`\)", "", str(caught.value)))
    assert found[0] == found[1]
    return found[0]


def test_errors():
    x = np.ones(3)
    message = both(lambda x: while_loop(lambda x: x < 1, lambda x: x, x), x)
    assert "the condition is an array of shape (3,), and one truth value says" in message
    message = both(lambda x: while_loop(lambda x: x[0] < 2, lambda x: (x, x), x), x)
    assert "put together as *, and the function returned (*, *)" in message
    message = both(lambda x: while_loop(lambda x: True, lambda x: np.append(x, x), x), x)
    assert "carry is a float64 array of shape (48,) before round 4" in message
    assert "from 1 up" in both(lambda x: while_loop(lambda x: True, lambda x: x, x, 0), x)
    with pytest.raises(ArgumentError, match="while_loop needs functions, not 3"):
        while_loop(3, lambda x: x, x)
