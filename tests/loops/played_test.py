"""Played loops are Python that is written for them: it says what `Loop.played` says, bit by bit."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.loops.derivatives_test import (
    CASES,
    STEP,
    cooling,
    drawn,
    f8,
    floats,
    loss,
    newton,
    put,
    tape_of,
    whole,
)

from tapegrad import defvjp, grad, jit, pipeline, primitive, scan, trace, while_loop
from tapegrad.core.values import Span
from tapegrad.differentiate.reverse import reverse
from tapegrad.errors import TapeError, TraceError
from tapegrad.ir.steps import PythonCall
from tapegrad.ir.tape import Aval, Builder, Literal
from tapegrad.primitives.elementwise import AsType, add
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.parts import AddPart, Part, PlacePart


def call_by_call(tape, values, own=()):
    """The outputs of a tape, each call evaluated by itself."""
    env = dict(zip(tape.inputs, values, strict=True))

    def value(x):
        return x.value if isinstance(x, Literal) else env[x]

    for call in tape.calls:
        xs = [value(x) for x in call.operands]
        p = call.primitive
        found = p.played(call_by_call, *xs) if p.tapes else p.evaluate(*xs)
        env.update(zip(call.outs, found if p.results > 1 else (found,), strict=True))
        for guard in tape.guards:
            if guard.operand in call.outs:
                assert env[guard.operand] == guard.expected.value
    return [value(x) for x in tape.outputs]


def check(tape, *values):
    with np.errstate(all="ignore"):
        expected = call_by_call(tape, [*values, *tape.captured])
    found = tape.play(*values)
    for a, b in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        assert np.array_equal(a, b, equal_nan=True)
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert type(a) is type(b)


@pytest.mark.every(4)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("checkpoint", ["never", 2])
def test_all_kinds_of_bodies(case, backwards, checkpoint):
    body, avals, carried, result = CASES[case]
    tape = loss(body, avals, carried, result, 6, backwards)
    values = drawn(avals)
    check(tape, *values)
    check(reverse(tape, floats(avals), checkpoint=checkpoint), *values)


def test_parts_end_before_they_start():
    """Rounds in which a part has less than no elements have none of it: read, placed and added."""
    index, moves = (0, Span(1, 2, 1, 5)), ((1, 0, -1),)
    body = Builder("body")
    step = body.input(Aval((), np.dtype(np.int64)))
    total, placed, x = [body.input(Aval(n, np.dtype(float))) for n in ((5,), (6, 8), (6, 8))]
    (part,) = body.call(Part(index, moves, 0.0), [x, step])
    (total,) = body.call(add, [total, part])
    (placed,) = body.call(add, [placed, *body.call(PlacePart((6, 8), index, moves), [part, step])])
    (placed,) = body.call(AddPart(index, moves), [placed, total, step])
    builder = Builder("parts")
    xs = [builder.input(v.aval) for v in body.inputs[1:]]
    loop = Loop(body.finish([total, placed]), 2, 6)
    tape = builder.finish(builder.call(loop, [Literal(np.int64(6)), *xs]))
    check(tape, np.zeros(5), np.zeros((6, 8)), np.arange(48.0).reshape(6, 8))


@pytest.mark.parametrize("made", [newton, cooling])
@pytest.mark.parametrize("scale", [0.0, 1.0, 5.0])
def test_conditions(made, scale):
    tape = made()
    u = np.linspace(0.1, 0.9, 6) * scale
    n = len(tape.inputs)
    values = [u, u[::-1], np.float64(0.1)] if n == 3 else [np.float64(3.0), np.float64(scale)]
    check(tape, *values)
    check(reverse(tape, range(n)), *values)


def first_steps(x):
    """Numbers of several dtypes, and comparisons."""
    k, f = np.int64(3), np.float32(0.5)
    for t in range(60):
        k = (k * 7 + t) % 11
        f = f * np.float32(0.75) + np.float32(t)
        big = x > f
        x = np.where(big, x / 3.0, x + 1.0 / (1.0 + k)) - (-x) * 0.01
    return x + f + k


def grown(x):
    """Numbers that become infinite, and NaN."""
    y = x
    for _ in range(60):
        y = y * y * 2.0
        x = x + (y - y)
    return x


def gathered(x):
    """Arrays that are large enough to be written over."""
    y = x
    for _ in range(12):
        a = np.sin(y) * 0.5
        b = a * a + y
        y = b - np.tanh(a) * 0.1
        y = y + a[::-1]
    return np.sum(y)


def nested(x):
    a = x * 1.0
    for i in range(1, 12):
        s = 0.0
        for j in range(1, 12):
            a[i, j] = a[i - 1, j] * 0.5 + s
            s = s + a[i, j - 1]
        a[i] = a[i] / (1.0 + np.sum(a[i] ** 2))
    return np.sum(a)


X = np.random.default_rng(0).standard_normal((12, 12))


@pytest.mark.parametrize(
    "f, x",
    [
        (first_steps, np.float64(0.3)),
        (grown, np.float64(3.0)),
        (gathered, np.random.default_rng(1).standard_normal(40_000)),
        (nested, X),
    ],
)
def test_programs(f, x):
    with np.errstate(all="ignore"):
        _, tape = trace(f, x)
    assert any(call.primitive.repeats for call in tape.calls)
    check(tape, x)
    gradient = reverse(tape, [0])
    check(gradient, x)


def test_what_must_not_be_written_to_is_copied():
    """An invariant of a loop, and what is read again."""

    def body(t, h, ys, x):
        there = put(x, h, t)
        twice = put(ys, h * 2.0, t)
        return whole(there * 0.3) + whole(ys) * 0.1, put(twice, h, t) + ys * 0.5

    tape = loss(body, [f8(), f8(6), f8(6)], 2, lambda h, ys: h * whole(ys))
    values = drawn([f8(), f8(6), f8(6)])
    kept = [np.array(v) for v in values]
    check(tape, *values)
    check(reverse(tape, range(3)), *values)
    for found, wanted in zip(values, kept, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_loops_in_loops_in_loops():
    """Python has room for twenty in a function."""

    def body(t, x):
        return (x * 1.01 + AsType(np.dtype(float))(t),)

    def around(inner):
        def outer(t, x):
            count = x.writer.node(Literal(np.int64(1)))
            return (Loop(tape_of(inner, STEP, f8()), 1, 1)(count, x),)

        return outer

    for _ in range(24):
        body = around(body)
    tape = loss(body, [f8()], 1, whole, 2)
    assert tape.play(np.float64(1.0)) == 1.01 * 1.01


def test_users_functions_in_rounds():
    @primitive
    def halved(x):
        return np.array([float(v) / 2 for v in np.atleast_1d(x)])

    defvjp(halved, lambda ct, out, x: ct / 2)

    def f(x):
        return np.sum(scan(lambda h, _: (halved(h) + 0.1, None), x, length=5)[0])

    np.testing.assert_allclose(grad(f, compile="never")(np.ones(3)), 0.5**5)


def test_guards_hold_in_each_round():
    """A tape says which one doesn't, and a function is traced again."""

    def f(x):
        for t in range(80):
            if x > 100.0:
                x = x - 90.0
            x = x + 0.5 * np.sin(x) + 0.1 * t
        return x

    _, tape = trace(f, -2000.0)
    assert tape.guards or any(call.primitive.checks for call in tape.calls)
    with pytest.raises(TapeError, match=r"x > 100.0|whether a condition holds|was traced where"):
        tape.play(50.0)
    assert grad(f, compile="never")(50.0) == pytest.approx(
        (f(50.0 + 1e-6) - f(50.0 - 1e-6)) / 2e-6, rel=1e-5
    )
    with pytest.raises(TraceError, match="not in all others"):
        grad(lambda x: scan(lambda h, _: (h + 1.0 if h < 3.0 else h, None), x, length=9)[0])(0.5)


def test_what_the_caller_has_is_left_alone():
    """Arrays that rounds write to are copied once, before."""
    x = np.ones(6)

    def f(x):
        def step(h, v):
            h[0] = h[1] * v
            return h, None

        return np.sum(scan(step, x, np.arange(1.0, 9.0))[0])

    g = grad(f, compile="never")
    for _ in range(3):
        g(x)
        np.testing.assert_array_equal(x, np.ones(6))


def test_threads_share_what_is_written():
    def f(x):
        return scan(lambda h, _: (np.tanh(h * x) + 0.1, None), x, length=200)[0]

    g = grad(f, compile="never")
    expected = {x: g(x) for x in (0.5, 0.7, 0.9)}
    wrong = []

    def work(x):
        wrong.extend(x for _ in range(20) if g(x) != expected[x])

    threads = [threading.Thread(target=work, args=(x,)) for x in (*expected, *expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_it_is_none_of_the_users_code():
    """A debugger or a trace that follows the user's own frames passes it over."""
    g = grad(lambda x: while_loop(lambda h: h < 9.0, lambda h: h * x, x), compile="never")
    for x in (2.0, 2.5, 2.0):
        g(x)
    assert g.cache_info().traces == 1


def test_a_loop_of_numpys_between_kernels_writes_to_the_place_of_its_result():
    """What it starts from is copied there, and stays where something else reads it."""

    def spectra(x):
        y = x * 2
        z = y + 0
        for k in range(300):
            z[k] = np.tanh(np.sum(np.abs(np.fft.rfft(y[:8] * z[:8]))) / 9 + z[k])
        return np.stack([z, y])

    compiled = jit(spectra, compile="always")
    for x in (np.linspace(-1, 1, 300), np.linspace(0, 2, 300)):
        np.testing.assert_allclose(compiled(x), spectra(x), rtol=1e-13)
    (tape,) = compiled.tapes
    steps = pipeline.looped(pipeline.at_its_best(tape)).plan.steps
    (call,) = [step for step in steps if isinstance(step, PythonCall)]
    assert set(call.outs) < set(call.reads)
