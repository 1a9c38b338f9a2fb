"""`testing.check_rule`: both modes, to second order, of rules, programs, loops and equations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

import tapegrad as tg
from tapegrad import Function, defjvp, defvjp, primitive, stop_gradient
from tapegrad.errors import ArgumentError, GradcheckError, GradientError
from tapegrad.testing import check_rule

X = np.array([0.5, -0.7, 1.2])


@pytest.fixture
def cube():
    @primitive
    def cube(x):
        return x**3

    return cube


def test_right_rules_in_either_mode(cube):
    assert check_rule(cube, X)
    defvjp(cube, lambda ct, out, x: 3 * x**2 * ct)
    assert check_rule(cube, X)
    defjvp(cube, lambda t, out, x: 3 * x**2 * t)
    assert check_rule(cube, X)


class Scaled(Function):
    """With a residual, an argument that isn't moved, and a forward rule alone."""

    @staticmethod
    def forward(ctx, z, k):
        ctx.save_for_backward(np.exp(z))
        ctx.k = k
        return k * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx, t, _):
        return ctx.k * ctx.saved_tensors[0] * t


def test_complex_numbers_nested_arguments_and_what_is_not_moved():
    assert check_rule(Scaled.apply, X + 1j, 2)
    assert check_rule(lambda p, n: {"y": np.sin(p["x"]) * p["k"], "n": n}, {"x": X, "k": 2.0}, "n")
    assert check_rule(lambda z: (np.abs(z) * np.exp(z), z.real.sum()), X + 1j)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda ct, out, x: 3.001 * x**2 * ct, "check_rule of cube: .* in reverse mode, and a c"),
        (lambda ct, out, x: 3 * x**2 * ct**2, "in reverse mode, and a central difference"),
        (lambda ct, out, x: 3 * stop_gradient(x) ** 2 * ct, "check_rule of the reverse mode of"),
    ],
)
def test_wrong_reverse_rules(cube, rule, message):
    """By a part of a thousand, not linear, and right but for what it is differentiated to."""
    defvjp(cube, rule)
    with pytest.raises(GradcheckError, match=message):
        check_rule(cube, X, modes=("reverse",))
    with pytest.raises(GradcheckError):
        check_rule(cube, X)


def test_modes_that_differ_by_less_than_differences_show(cube):
    defvjp(cube, lambda ct, out, x: 3 * x**2 * ct)
    defjvp(cube, lambda t, out, x: 3 * x**2 * t * (1 + 1e-9))
    with pytest.raises(GradcheckError, match="They are one number"):
        check_rule(cube, X)


def test_order_one_looks_at_no_second_derivatives(cube):
    defvjp(cube, lambda ct, out, x: 3 * stop_gradient(x) ** 2 * ct)
    assert check_rule(cube, X, order=1)


def test_what_it_refuses(cube):
    with pytest.raises(ArgumentError, match="modes are"):
        check_rule(cube, X, modes=("backward",))
    with pytest.raises(ArgumentError, match="order is 1 or 2"):
        check_rule(cube, X, order=3)
    with pytest.raises(ArgumentError, match="none of the arguments is a float"):
        check_rule(cube, 3)
    with pytest.raises(GradcheckError, match="takes another path"):
        check_rule(lambda x: x**3 if x > 0.0 else -(x**3), np.float64(1e-9))

    @primitive
    def opaque(x):
        return np.array([float(v) for v in x.tolist()]) if x.tolist() else x

    def rule(ct, out, x):
        return ct if np.all(np.isfinite(out)) else 0 * ct

    defvjp(opaque, rule)
    assert check_rule(opaque, X, modes=("reverse",), order=1)
    with pytest.raises(GradientError, match="a forward one can't be made of it"):
        check_rule(opaque, X)


def rounds(x):
    for k in range(20):
        x = 0.9 * x + 0.1 * np.sin(x * k)
    return x


def until(x):
    while np.sum(x * x) > 0.1:
        x = 0.8 * x + 0.01 * np.sin(x)
    return x


PROGRAMS = {
    "a loop": rounds,
    "a loop with an end that depends": until,
    "scan": lambda x: tg.scan(lambda c, u: (np.tanh(0.9 * c + u), c**2), x[0], x),
    "while_loop": lambda x: tg.while_loop(
        lambda s: np.sum(s[0] ** 2) > 0.1, lambda s: (0.8 * s[0] + 0.01 * np.sin(s[0]),), (x,)
    ),
    "cond": lambda x: tg.cond(x[0] > 0, lambda y: np.sin(y) * y[1], lambda y: y**2, x),
    "brentq": lambda x: optimize.brentq(lambda t: t**3 - x[0] * t - 2, 0, 3),
    "root": lambda x: optimize.root(lambda t: 3 * t + 0.1 * t**3 - x, 0 * x, tol=1e-13).x,
    "stop_gradient": lambda x: x * np.sin(x) + stop_gradient(2.0),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    assert check_rule(PROGRAMS[name], X)
