"""What loops keep for their derivatives: `checkpoint` changes memory and time, and no bit."""

from __future__ import annotations

import math
import pickle
import tracemalloc
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.loops.derivatives_test import (
    CASES,
    cooling,
    drawn,
    f8,
    first,
    floats,
    loss,
    newton,
)

from tapegrad import (
    grad,
    gradcheck,
    jit,
    pipeline,
    scan,
    simplegrad,
    trace,
    value_and_grad,
    vjp,
    while_loop,
)
from tapegrad.backends.numpy.source import numpy_function
from tapegrad.checking import debug
from tapegrad.checking.tape_verify import verify
from tapegrad.differentiate import loop_residuals
from tapegrad.differentiate.reverse import reverse
from tapegrad.errors import ArgumentError
from tapegrad.ir.tape import Literal
from tapegrad.primitives import elementwise as ew

WAYS = ["sqrt", 1, 2, 3, 5, 40]


# ---- the schedule


@cache
def least(left, free):
    """How many rounds have to be run to come from the last of `left` rounds to the first, by trying
    out all schedules."""
    if left <= 1:
        return 0
    if free == 1:
        return left * (left - 1) // 2
    return min(m + least(left - m, free - 1) + least(m, free) for m in range(1, left))


def formula(left, free):
    """The same, as Griewank and Walther have found it."""
    r = next(r for r in range(left) if math.comb(free + r, free) >= left)
    return left * r - math.comb(free + r, free + 1) if r else 0


def rounds_run(tape, values):
    """How often the loop's body runs, while a gradient is played, call by call."""
    runs = []

    def run(inner, values, own=()):
        runs.append(inner.name)
        env = dict(zip(inner.inputs, values, strict=True))

        def value(x):
            return x.value if isinstance(x, Literal) else env[x]

        for call in inner.calls:
            xs = [value(x) for x in call.operands]
            p = call.primitive
            found = p.played(run, *xs) if p.tapes else p.evaluate(*xs)
            env.update(zip(call.outs, found if p.results > 1 else (found,), strict=True))
        return [value(x) for x in inner.outputs]

    for found, wanted in zip(run(tape, values), played(tape, values), strict=True):
        np.testing.assert_array_equal(found, wanted)
    return runs.count("body")


def played(tape, values):
    found = tape.play(*values)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.every(8)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("rounds", [2, 3, 7, 20, 21, 37])
@pytest.mark.parametrize("slots", [1, 2, 3, 4, 6, 19])
def test_no_schedule_runs_fewer_rounds(rounds, slots, backwards):
    assert least(rounds, slots) == formula(rounds, slots)
    body, avals, carried, result = CASES["fibonacci"]
    tape = loss(body, avals, carried, result, rounds, backwards)
    gradient = reverse(tape, floats(avals), checkpoint=slots)
    made = rounds_run(gradient, drawn(avals))
    # The first sweep, up to the last round, is part of the schedule; the last round isn't.
    assert made == (formula(rounds, slots) + 1 if rounds > slots else rounds)


def test_a_loop_with_a_condition_has_the_same_schedule():
    """But that its forward loop doesn't know where checkpoints are to be set."""
    tape, values = newton(), [np.float64(1.0), np.float64(1e6)]
    made = rounds_run(tape, values)
    run = rounds_run(reverse(tape, range(2), checkpoint=3), values)
    assert made > 10
    assert run == made + formula(made, 3)


# ---- results


@pytest.mark.every(4)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_no_bit_depends_on_what_is_kept(case, backwards, slots):
    body, avals, carried, result = CASES[case]
    tape, wrt, values = (
        loss(body, avals, carried, result, 6, backwards),
        floats(avals),
        drawn(avals),
    )
    expected = reverse(tape, wrt, checkpoint="never").play(*values)
    gradient = verify(reverse(tape, wrt, checkpoint=slots))
    for found, wanted in zip(gradient.play(*values), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.every(8)
@pytest.mark.parametrize("case", ["recurrence", "wave", "network", "running", "counted", "masked"])
@pytest.mark.parametrize("slots", [1, 3])
def test_all_ways_to_run_it_agree(case, slots):
    body, avals, carried, result = CASES[case]
    tape = loss(body, avals, carried, result, 6, case == "wave")
    values = drawn(avals)
    gradient = pipeline.gradient(tape, floats(avals), checkpoint=slots)
    expected = gradient.play(*values)
    for run in (numpy_function(gradient), gradient.compile()):
        for found, wanted in zip(run(*values), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.every(4)
@pytest.mark.parametrize("made", [newton, cooling])
@pytest.mark.parametrize("slots", [1, 2, 5])
def test_conditions(made, slots):
    tape = made()
    n = len(tape.inputs)
    u = np.linspace(0.5, 0.9, 6)
    for scale in (3.0, 1.0, 0.01):  # the last makes no round
        values = [u * scale, u[::-1] * scale, np.float64(0.1)] if n == 3 else [3.0, 9.0 * scale]
        values = [np.float64(x) if np.ndim(x) == 0 else x for x in values]
        expected = reverse(tape, range(n), checkpoint="never").play(*values)
        gradient = pipeline.gradient(tape, range(n), checkpoint=slots)
        runs = [reverse(tape, range(n), checkpoint=slots).play, gradient.compile()]
        for run in (*runs, numpy_function(gradient)):
            for found, wanted in zip(run(*values), expected, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)


def oscillator(p, y0):
    y = y0
    for t in range(50):
        y = y + 0.1 * np.stack([y[1], -p[0] * y[0] - p[1] * np.tanh(y[1]) * np.cos(0.1 * t)])
    return np.sum(y**2)


def scanned(p, y0):
    def step(y, _):
        return y + 0.1 * np.stack([y[1], -p[0] * y[0] - p[1] * np.tanh(y[1])]), y[0]

    y, path = scan(step, y0, length=50)
    return np.sum(y**2) + np.sum(path)


def reversed_scan(p, xs):
    y, path = scan(lambda y, x: (np.tanh(p[0] * y + x), y * x), p[1], xs, reverse=True)
    return y + np.sum(path)


def nested(p, xs):
    def outer(h, x):
        def inner(g, _):
            return np.tanh(p[0] * g + x), None

        return scan(inner, h + p[1], length=24)[0], None

    return scan(outer, 0.1 * p[0], xs)[0]


def waiting(p, y0):
    def more(c):
        return np.sum(c**2) > 1e-4

    return np.sum(while_loop(more, lambda c: 0.9 * c - 0.01 * np.tanh(p[0] * c), y0) * p[1])


def table(p, x):
    """Each round writes to what later rounds read: all of it is what a checkpoint keeps."""
    a = np.zeros(40) + p[0]
    a[0] = x[0]
    for t in range(1, 40):
        a[t] = p[1] * a[t - 1] + np.sin(a[t // 2])
    return np.sum(a * a)


P, Y, X = np.array([1.3, 0.4]), np.array([0.3, -0.5]), np.linspace(-1.0, 1.0, 45)
FUNCTIONS = {
    "plain": (oscillator, P, Y),
    "scan": (scanned, P, Y),
    "reverse": (reversed_scan, P, X),
    "nested": (nested, P, X[:20]),
    "while": (waiting, P, Y),
    "table": (table, P, Y),
}
functions = pytest.mark.parametrize("name", FUNCTIONS)


@pytest.mark.every(4)
@functions
def test_gradients_of_functions(name):
    f, *args = FUNCTIONS[name]
    value, expected = value_and_grad(f, (0, 1), compile="never", checkpoint="never")(*args)
    gradcheck(f, args)
    for way in WAYS:
        found = value_and_grad(f, (0, 1), compile="never", checkpoint=way)(*args)
        assert found[0] == value
        for a, b in zip(found[1], expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15, err_msg=f"{name}, {way}")


@pytest.mark.every(8)
@functions
@pytest.mark.parametrize("way", ["sqrt", 3])
def test_compiled_gradients_of_functions(name, way):
    f, *args = FUNCTIONS[name]
    expected = grad(f, (0, 1), compile="never", checkpoint="never")(*args)
    found = grad(f, (0, 1), compile="always", checkpoint=way)(*args)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.every(12)
@functions
@pytest.mark.parametrize("way", ["sqrt", 2])
def test_second_derivatives(name, way):
    """Of either derivative, and of both."""
    f, p, x = FUNCTIONS[name]

    def slope(inner):
        return lambda q: np.sum(grad(f, checkpoint=inner)(q, x) * P)

    expected = grad(slope("never"), compile="never", checkpoint="never")(p)
    for inner, outer in ((way, "never"), ("never", way), (way, way)):
        found = grad(slope(inner), compile="never", checkpoint=outer)(p)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_other_ways_to_a_derivative():
    expected = grad(scanned, (0, 1), compile="never")(P, Y)
    _, pullback = vjp(scanned, P, Y, checkpoint=4)
    for _ in range(2):
        for a, b in zip(pullback(np.float64(1.0)), expected, strict=True):
            np.testing.assert_array_equal(a, b)
    _, *found = simplegrad(scanned, P, Y, checkpoint=4)(P, Y)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    stepped = jit(lambda p: p - 0.1 * grad(scanned, checkpoint=4)(p, Y), compile="never")
    np.testing.assert_array_equal(stepped(P), P - 0.1 * expected[0])


def test_each_choice_is_a_function_of_its_own():
    derived = [grad(scanned, compile="never", checkpoint=way) for way in ("auto", "never", 4)]
    for f in derived:
        f.clear_cache()
        f(P, Y)
        assert f.cache_info().traces == 1
    assert len({f.tapes[0] for f in derived}) == 2
    copy = pickle.loads(pickle.dumps(derived[-1]))
    assert copy.transformation.checkpoint == 4


@pytest.mark.parametrize("wrong", ["all", 0, -3, True, None, 2.5, ["sqrt"]])
def test_what_there_is_to_choose(wrong):
    for make in (grad, value_and_grad):
        with pytest.raises(ArgumentError, match=r'checkpoint is "auto", "never", "sqrt" or how'):
            make(scanned, checkpoint=wrong)
    with pytest.raises(ArgumentError, match=r"from 1 up, not"):
        vjp(scanned, P, Y, checkpoint=wrong)
    with pytest.raises(ArgumentError, match=r"from 1 up, not"):
        simplegrad(scanned, P, Y, checkpoint=wrong)


# ---- memory


def elements_kept(tape):
    """The largest array on a tape, or on the tapes in it."""
    inside = [elements_kept(t) for call in tape.calls for t in call.primitive.tapes]
    return max([out.aval.size for call in tape.calls for out in call.outs] + inside)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["plain", "scan", "while"])
def test_memory(name):
    f, *args = FUNCTIONS[name]
    sizes = {}
    for way in ("never", "sqrt", 3, 6):
        g = grad(f, (0, 1), compile="never", checkpoint=way)
        g(*args)
        sizes[way] = elements_kept(g.tapes[0])
    path = 50 if name == "scan" else 0  # a result
    assert sizes["never"] >= 50
    assert sizes["sqrt"] <= max(2 * 16, path)  # no arrays of one entry a segment and round
    assert sizes[3] == max(6, path)
    assert sizes[6] == max(12, path)


def test_what_is_not_read_is_not_kept():
    """A stack of results is carried, but no round reads it."""

    def f(p):
        y, path = scan(lambda y, _: (np.sin(p * y), y * y), 0.3 * p, length=1000)
        return y + np.sum(path)

    g = grad(f, compile="never", checkpoint=10)
    expected = grad(f, compile="never", checkpoint="never")(1.7)
    assert g(1.7) == expected
    report = pipeline.scratch_bytes_of(g.tapes[0])
    assert report <= 8 * (1000 + 2 * 10 + 100)


def test_linear_loops_keep_nothing_anyway():
    tape = loss(lambda t, a, b: (b, a * 0.5 + b), [f8(), f8()], 2, lambda a, b: a * b, 30)
    names = [str(c.primitive) for c in reverse(tape, range(2), checkpoint=3).calls]
    assert names.count("loop") == 2


def test_without_a_bound_a_long_condition_is_cut_too(monkeypatch):
    f, *args = FUNCTIONS["while"]
    expected = grad(f, (0, 1), compile="never", checkpoint="never")(*args)
    monkeypatch.setattr(loop_residuals, "MEMORY", 0)
    g = grad(f, (0, 1), compile="never", checkpoint="auto")
    g.clear_cache()
    for a, b in zip(g(*args), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert elements_kept(g.tapes[0]) < 40
    g.clear_cache()


def test_rounds_that_need_no_state_are_only_computed_again():
    """What isn't carried needs no checkpoints."""

    def body(t, h, xs):
        return (h + ew.exp(ew.sin(first(xs, t)) * first(xs, t)),)

    tape = loss(body, [f8(), f8(30)], 1, lambda h: h, 30)
    values = drawn([f8(), f8(30)])
    gradient = reverse(tape, range(2), checkpoint=2)
    for a, b in zip(gradient.play(*values), reverse(tape, range(2)).play(*values), strict=True):
        np.testing.assert_array_equal(a, b)


# ---- a million rounds


def lotka_volterra(p, y0):
    """Hares and foxes, by Runge and Kutta's fourth order."""
    hares, foxes = y0

    def slope(h, f):
        return h * (p[0] - p[1] * f), f * (p[3] * h - p[2])

    dt = 1e-4
    for _ in range(150):
        a, b = slope(hares, foxes)
        c, d = slope(hares + 0.5 * dt * a, foxes + 0.5 * dt * b)
        e, f = slope(hares + 0.5 * dt * c, foxes + 0.5 * dt * d)
        g, h = slope(hares + dt * e, foxes + dt * f)
        hares = hares + dt / 6 * (a + 2 * c + 2 * e + g)
        foxes = foxes + dt / 6 * (b + 2 * d + 2 * f + h)
    return hares + foxes


def of_rounds(tape, rounds):
    """A tape whose one loop makes so many rounds."""
    calls = []
    for call in tape.calls:
        if call.primitive.repeats:
            loop = call.primitive.changed(most=rounds)
            operands = (Literal(np.int64(rounds)), *call.operands[1:])
            call = replace(call, primitive=loop, operands=operands)
        calls.append(call)
    return verify(replace(tape, calls=tuple(calls)))


def test_a_million_rounds_fit_in_memory(monkeypatch):
    """As compiled code allocates it; played too, to be compared, they would take a minute."""
    monkeypatch.setattr(debug, "ON", False)
    monkeypatch.setattr(pipeline, "DEBUG", False)
    values = [np.array([1.1, 0.4, 0.4, 0.1]), np.array([1.0, 0.5])]
    _, short = trace(lotka_volterra, *values)
    tape = of_rounds(short, 10**6)
    peaks, found = {}, {}
    for way in ("never", "sqrt", 1000):
        run = pipeline.gradient(tape, (0, 1), checkpoint=way).compile()
        tracemalloc.start()
        found[way] = run(*values)
        peaks[way] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert 16e6 < peaks["never"] < 200e6
    assert peaks["sqrt"] < 200e3
    assert peaks[1000] < 60e3
    for way in ("sqrt", 1000):
        for a, b in zip(found[way], found["never"], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)
    assert of_rounds(short, 150).play(*values) == lotka_volterra(*values)
