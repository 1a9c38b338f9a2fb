"""The derivative of a loop is a loop: held against differences, to second order, in both modes, and
as reference source, plan and machine code say it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tapegrad import grad, pipeline, scan
from tapegrad.backends.numpy.source import numpy_function
from tapegrad.checking.tape_verify import verify
from tapegrad.differentiate import loop_residuals
from tapegrad.differentiate.forward import forward
from tapegrad.differentiate.loops import Backward
from tapegrad.differentiate.reverse import reverse
from tapegrad.ir.tape import Aval, Builder, Literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Slice, Writer
from tapegrad.primitives.contractions import matmul
from tapegrad.primitives.elementwise import AsType
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.views import GetItem
from tapegrad.primitives.windows import AddWindow, SetWindow, Window

N = 6
STEP = Aval((), np.dtype(np.int64))


def f8(*shape):
    return Aval(shape, np.dtype(float))


def tape_of(function, *avals, name="f"):
    builder = Builder(name)
    writer = Writer(builder)
    outs = function(*[writer.node(builder.input(aval)) for aval in avals])
    return verify(builder.finish([out.operand for out in outs]))


def whole(node):
    """A node's sum."""
    return Sum(tuple(range(len(node.shape))))(node) if node.shape else node


def loss(body, avals, carried, result, rounds=N, backwards=False):
    """The tape of a function of what the loop leaves."""

    def f(*xs):
        primitive = Loop(tape_of(body, STEP, *avals, name="body"), carried, rounds, backwards)
        left = primitive(xs[0].writer.node(Literal(np.int64(rounds))), *xs)
        return (result(*(left if isinstance(left, tuple) else (left,))),)

    return tape_of(f, *avals)


first = Window((0,), ((1,),))  # x[t]
put = SetWindow((0,), ((1,),))  # x[t] = y
add = AddWindow((0,), ((1,),))
before, after = (GetItem((Slice(k, N - 2),)) for k in (0, 2))
middle = (Slice(1, N - 2),)


def recurrence(t, h, ys, w, x):
    new = ew.tanh(h * w + first(x, t))
    return new, put(ys, new * h, t)


def stencil(t, u, k):
    inner = GetItem(middle)(u)
    return (SetItem(middle)(u, inner + k * (before(u) + after(u) - inner * 2.0)),)


def wave(t, old, u):
    inner = GetItem(middle)(u)
    new = inner * 2.0 - GetItem(middle)(old) + (before(u) + after(u) - inner * 2.0) * 0.1
    return u, SetItem(middle)(u, new)


def network(t, h, w, xs):
    rows = Window((0, Slice(0, 2), Slice(0, 3)), ((1, 0, 0),))
    return (ew.tanh(matmul(h, w) + rows(xs, t)),)


def fibonacci(t, a, b, w):
    return b, a * w + b


def running(t, x, w):
    """x[t + 1] += w * x[t]**2, in place"""
    y = first(x, t)
    return (AddWindow((1,), ((1,),))(x, y * y * w, t),)


def counted(t, h, k):
    """The step as a number, and an integer that is carried."""
    return h * ew.cos(AsType(np.dtype(float))(t + k) * 0.3), k + 2


def masked(t, h, x):
    """A cotangent of 0 stays 0 behind a choice, whose slope isn't finite."""
    y = first(x, t)
    root = ew.sqrt(ew.where(y > 10.0, y, y * 0.0))
    return (h * 0.5 + ew.where(y > 10.0, root, y),)


i8 = STEP
CASES = {
    "recurrence": (recurrence, [f8(), f8(N), f8(), f8(N)], 2, lambda h, ys: h * whole(ys * ys)),
    "stencil": (stencil, [f8(N), f8()], 1, lambda u: whole(u * u)),
    "wave": (wave, [f8(N), f8(N)], 2, lambda old, u: whole(u * u * old)),
    "network": (network, [f8(2, 3), f8(3, 3), f8(N, 2, 3)], 1, lambda h: whole(h * h)),
    "fibonacci": (fibonacci, [f8(), f8(), f8()], 2, lambda a, b: a * b),
    "running": (running, [f8(N + 1), f8()], 1, lambda x: whole(x * x)),
    "counted": (counted, [f8(), i8], 2, lambda h, k: h * h),
    "masked": (masked, [f8(), f8(N)], 1, lambda h: h * h),
}
over = pytest.mark.parametrize("case", CASES)
both_ways = pytest.mark.parametrize("backwards", [False, True])


def drawn(avals, seed=0):
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal(a.shape) * 0.7)[()] if a.dtype.kind == "f" else np.int64(3)
        for a in avals
    ]


def floats(avals):
    return [k for k, aval in enumerate(avals) if aval.dtype.kind == "f"]


def slope(tape, values, directions, step=1e-5):
    """The derivative of a tape's outputs along directions, by differences."""

    def at(s):
        moved = [v + s * d if d is not None else v for v, d in zip(values, directions, strict=True)]
        return float(np.sum(tape.play(*moved)))

    return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)


def random_directions(avals, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(a.shape)[()] if a.dtype.kind == "f" else None for a in avals]


def inner(gradients, directions):
    pairs = zip(gradients, [d for d in directions if d is not None], strict=True)
    return sum(float(np.sum(g * d)) for g, d in pairs)


@over
@both_ways
def test_first_derivatives(case, backwards):
    body, avals, carried, result = CASES[case]
    tape = loss(body, avals, carried, result, backwards=backwards)
    values, directions = drawn(avals), random_directions(avals)
    wrt = floats(avals)
    value, *gradients = verify(reverse(tape, wrt)).play(*values)
    assert value == tape.play(*values)
    expected = slope(tape, values, directions)
    assert inner(gradients, directions) == pytest.approx(expected, rel=1e-7, abs=1e-9)

    pushed = verify(forward(tape, wrt))
    _, tangent = pushed.play(*values, *[directions[k] for k in wrt])
    assert tangent == pytest.approx(expected, rel=1e-7, abs=1e-9)


@over
def test_second_derivatives(case):
    body, avals, carried, result = CASES[case]
    wrt = floats(avals)
    gradient = reverse(loss(body, avals, carried, result), wrt)
    values, directions = drawn(avals), random_directions(avals)
    for k in range(len(wrt)):
        builder = Builder.after(gradient, "g")
        total = whole(Writer(builder).node(gradient.outputs[1 + k]))
        tape = replace(
            gradient, calls=tuple(builder.calls), outputs=(total.operand,), output_names=()
        )
        _, *gradients = verify(reverse(tape, wrt)).play(*values)
        expected = slope(tape, values, directions)
        assert inner(gradients, directions) == pytest.approx(expected, rel=1e-6, abs=1e-8)


@pytest.mark.every(16)
@over
@both_ways
def test_all_ways_to_run_a_loop_agree(case, backwards):
    """Its source in NumPy, its plan (which is run as it is scheduled) and machine code."""
    body, avals, carried, result = CASES[case]
    tape = pipeline.gradient(loss(body, avals, carried, result, backwards=backwards), floats(avals))
    values = drawn(avals, 2)
    expected = tape.play(*values)
    for run in (numpy_function(tape), tape.compile()):
        for found, wanted in zip(run(*values), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.every(4)
@pytest.mark.parametrize("rounds", [16, 23, 40])
@both_ways
def test_what_would_take_too_much_memory_is_computed_again(monkeypatch, rounds, backwards):
    """Segments, and what is left over of them; nested, if a segment is too long as well."""

    def body(t, h, ys, w, x):
        new = ew.tanh(h * w + first(x, t) + AsType(np.dtype(float))(t) * 0.01)
        return new, put(ys, new * h, t)

    avals = [f8(), f8(rounds), f8(), f8(rounds)]
    tape = loss(body, avals, 2, lambda h, ys: h * whole(ys * ys), rounds, backwards)
    values = drawn(avals)
    expected = reverse(tape, range(4)).play(*values)
    monkeypatch.setattr(loop_residuals, "MEMORY", 0)
    less = verify(reverse(tape, range(4)))
    kept = {out.shape for call in less.calls for out in call.outs}
    assert (rounds + 1,) not in kept
    for found, wanted in zip(less.play(*values), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)
    compiled = pipeline.gradient(tape, range(4)).compile()
    for found, wanted in zip(compiled(*values), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)


def until(condition, body, avals, carried, result, most=64):
    """The tape of a function of what a loop with a condition leaves."""

    def round_(t, *xs):
        new = body(t, *xs)
        return *new, condition(*new, *xs[carried:])

    def f(*xs):
        primitive = Loop(tape_of(round_, STEP, *avals, name="body"), carried, most, until=True)
        count = xs[0].writer.node(Literal(np.int64(most)))
        *left, made, _ = primitive(count, condition(*xs), *xs)
        return (result(*left) + AsType(np.dtype(float))(made) * 0.0,)

    return tape_of(f, *avals)


def newton():
    return until(
        lambda x, a: ew.square(x * x - a) > 1e-18,
        lambda t, x, a: ((x + a / x) * 0.5,),
        [f8(), f8()],
        1,
        lambda x: x,
    )


def cooling():
    """Arrays that turn round in their places, as often as it takes."""
    return until(
        lambda old, u, k: whole(u * u) > 0.2,
        lambda t, old, u, k: tuple(x * 0.8 for x in wave(t, old, u)[::-1]),
        [f8(N), f8(N), f8()],
        2,
        lambda old, u: whole(u * u * old),
    )


@pytest.mark.parametrize(
    "made, values",
    [
        (newton, [np.float64(1.0), np.float64(2.0)]),
        (newton, [np.float64(1.0), np.float64(1e4)]),
        (newton, [np.float64(3.0), np.float64(9.0)]),  # no round at all
        (cooling, [np.linspace(0.5, 0.9, N), np.linspace(1.0, 0.2, N), np.float64(0.1)]),
        (cooling, [np.linspace(5.0, 9.0, N), np.linspace(1.0, 0.2, N), np.float64(0.1)]),
    ],
)
def test_a_condition_says_when_a_loop_ends(made, values):
    tape = made()
    wrt = range(len(values))
    rng = np.random.default_rng(0)
    directions = [rng.standard_normal(np.shape(v))[()] for v in values]
    gradient = verify(reverse(tape, wrt))
    value, *gradients = gradient.play(*values)
    if values[-1] != 9.0:  # where the number of rounds doesn't change nearby
        expected = slope(tape, values, directions, 1e-6)
        assert inner(gradients, directions) == pytest.approx(expected, rel=1e-6, abs=1e-8)
    finished = pipeline.gradient(tape, wrt)
    for run in (numpy_function(finished), finished.compile()):
        for found, wanted in zip(run(*values), (value, *gradients), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("mode", ["never", "always"])
def test_second_derivatives_through_factors_that_are_kept(mode):
    """The factors of a matrix are results of the loop that keeps them, and have no derivatives."""
    rng = np.random.default_rng(3)
    w, x = rng.normal(size=(3, 3)), rng.normal(size=(5, 3))

    def step(w, h, x):
        return np.linalg.solve(w @ w.T + (1 + x[0] ** 2 + h[1] ** 2) * np.eye(3), h) + x

    def rolled(w, x):
        h, _ = scan(lambda h, x: (step(w, h, x), None), np.ones(3), x)
        return np.sum(np.sin(h))

    def plain(w, x):
        h = np.ones(3)
        for row in x:
            h = step(w, h, row)
        return np.sum(np.sin(h))

    curvatures = [
        grad(lambda w, x, f=f: np.sum(grad(f)(w, x) ** 2), compile=m)
        for f, m in ((rolled, mode), (plain, "never"))
    ]
    np.testing.assert_allclose(curvatures[0](w, x), curvatures[1](w, x), rtol=1e-9, atol=1e-12)


def test_how_far_a_loop_is_has_no_cotangent():
    """Not the number 0, of which the rule for equal singular values would say NaN: a loop that
    turns factors until the singular values rise no more, as varimax does."""

    def turned(x, rounds, tolerance):
        turn, rise = np.eye(2), 0.0
        for _ in range(rounds):
            before, factors = rise, x @ turn
            scale = np.diag(np.sum(factors**2, axis=0))
            u, s, vt = np.linalg.svd(x.T @ (factors**3 - factors @ scale / len(x)))
            turn, rise = u @ vt, np.sum(s)
            if rise < before * (1 + tolerance):
                break
        return np.sum(x @ turn * np.arange(8.0).reshape(4, 2))

    x = np.random.default_rng(3).normal(size=(4, 2))
    for tolerance in (-1.0, 1e-3):
        slopes = grad(turned, compile="never")(x, 25, tolerance)
        d = np.random.default_rng(4).normal(size=x.shape)
        ends = [turned(x + h * d, 25, tolerance) for h in (1e-6, -1e-6)]
        np.testing.assert_allclose(np.sum(slopes * d), (ends[0] - ends[1]) / 2e-6, rtol=1e-5)


def test_a_round_is_derived_once(monkeypatch):
    derived: list[str] = []
    real = Backward._round

    def counted(self, masked):
        derived.append(self.loop.body.name)
        return real(self, masked)

    monkeypatch.setattr(Backward, "_round", counted)

    def f(x):
        for _ in range(30):
            x = x + 0.1 * np.sin(x) * np.cos(x)
        return np.sum(x)

    x = np.linspace(0.1, 1.0, 3)
    slope = grad(f, compile="never")(x)
    h = 1e-6 * np.eye(3)
    np.testing.assert_allclose(slope, [(f(x + d) - f(x - d)) / 2e-6 for d in h], rtol=1e-6)
    assert len(derived) == 1
