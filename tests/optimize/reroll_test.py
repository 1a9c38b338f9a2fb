"""Calls that repeat themselves become a loop, which computes what they did, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.tapes import assert_same_bits

from tapegrad import pipeline, value_and_grad
from tapegrad.backends.numpy.play import run
from tapegrad.checking.tape_verify import verify
from tapegrad.core.request import Request
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Tape
from tapegrad.ir.text import parse
from tapegrad.optimize import repetition
from tapegrad.primitives.kinds import Repeated
from tapegrad.tracing.runs.run import trace_function

rng = np.random.default_rng(0)
S, V = 0.3, rng.uniform(0.1, 1.0, 3)
X, M = rng.uniform(0.1, 1.0, 40), rng.uniform(0.1, 1.0, (40, 3))
LARGE = rng.uniform(0.1, 1.0, 200)  # more bytes than are put in an array of entries
TABLE = rng.uniform(0.1, 1.0, (30, 200))


def rolled(f: Any, *args: Any) -> Tape:
    """The tape with loops, which gives the same bits as the one that was recorded, for these
    arguments and for others."""
    seen: list[Any] = []

    def number(tape: Tape, captured: Any, constants: Any) -> Any:
        found = pipeline.rolled(tape, captured, constants)
        seen.extend(((renumbered(tape), captured), found))
        return found

    trace_function(Request(f, args, {}).check("trace"), None, number)
    (raw, captured), (tape, further) = seen
    assert parse(str(verify(tape))) == tape
    for factor in (1.0, 0.5, -1.0):
        given = [factor * x for x in args]
        expected, broken = run(raw, [*given, *captured])
        found, other = run(tape, [*given, *further])
        assert (broken is None) == (other is None)
        if broken is None:
            assert_same_bits(found, expected)
    return tape


def loops(tape: Tape) -> list[Any]:
    """Of each loop of a tape: the rounds, how many values are carried, and the loops in it."""
    found = []
    for call in tape.calls:
        p: Any = call.primitive
        if isinstance(p, Repeated):
            found.append((p.most, p.carried, *loops(p.body)))
    return found


def names(tape: Tape) -> list[str]:
    return [str(call.primitive.name) for call in tape.calls]


def body_of(tape: Tape) -> Tape:
    """The body of the first loop."""
    return next(c.primitive.body for c in tape.calls if isinstance(c.primitive, Repeated))


# ---- what is recognised


def carried(x):
    for _ in range(40):
        x = np.sin(x) + 0.1
    return x


def several(a, b):
    for _ in range(40):
        a, b = np.sin(b), a + b
    return a, b


def invariants(x, w):
    for _ in range(40):
        x = np.sin(x * w) + w
    return x


def two_rounds_back(x):
    a = b = x
    for _ in range(40):
        a, b = b, np.sin(a) * b
    return b


def numbers(x):
    for k in range(40):
        x = np.sin(x) * (k * k) + 0.5
    return x


def integers(x):
    count = np.sum(x > 0.5)
    for k in range(40):
        x = x * 0.5 + count
        count = count + k
    return x, count


def read(x, s):
    for t in range(40):
        s = np.sin(s) + x[t]
    return s


def read_rows(x, s):
    for t in range(40):
        s = np.sin(s) + np.sum(x[t])
    return s


def read_beside(x, s):
    for t in range(1, 39):
        s = np.sin(s) + x[t - 1] * x[t + 1]
    return s


def read_backwards(x, s):
    for t in reversed(range(40)):
        s = np.sin(s) + x[t]
    return s


def every_second(x, s):
    for t in range(0, 40, 2):
        s = np.sin(s) + x[t] * s * 0.5
    return s


def written(x):
    x = x * 1.0
    for t in range(39):
        x[t + 1] = np.sin(x[t]) + x[t + 1]
    return x


def filled(x):
    out = np.zeros_like(x)
    for t in range(40):
        out[t] = np.sin(x[t]) * x[0]
    return out


def stacked(x):
    out, h = [], x[0]
    for t in range(40):
        h = np.tanh(h + x[t])
        out.append(h)
    return np.stack(out)


def stacked_last(x):
    out = []
    for t in range(40):
        out.append(np.tanh(x[t]) * x[0])
    return np.stack(out, axis=1)


def summed(x):
    return np.sum(np.stack([np.sin(x[t]) * x[0] for t in range(40)]))


def concatenated(x):
    return np.concatenate([np.sin(x[t]) * x[0] for t in range(40)])


def nested(x, s):
    for t in range(10):
        for j in range(30):
            s = np.sin(s) + x[t, j]
        s = s * 0.5
    return s


def outer_only(x, s):
    """The inner loop has too few calls to be one."""
    for t in range(40):
        for j in range(3):
            s = np.sin(s) * x[t, j]
    return s


def first_peeled(x):
    h = None
    for t in range(40):
        h = x[t] if h is None else np.sin(h) * x[t]
    return h


def period_of_three(x):
    for k in range(60):
        x = np.sin(x) if k % 3 == 0 else np.exp(-x) if k % 3 == 1 else x * 0.5
    return x


def after_each_round(s):
    found = []
    for _ in range(40):
        s = np.sin(s) + 0.1
        found.append(s)
    return found[3] + found[-1] * found[20]


def two_loops(x, s):
    for t in range(40):
        s = np.sin(s) + x[t]
    for t in range(40):
        s = np.cos(s) * x[t]
    return s


def conditions(x, s):
    for t in range(40):
        s = np.sin(s) + x[t]
        if s > 100.0:
            s = s * 0.0
    return s


def parts_of_what_a_loop_made(x):
    rows = [np.sin(x[t]) * x[0] for t in range(40)]
    s = 0.0
    for t in range(40):
        s = np.sin(s) + np.sum(rows[t])
    return s


def arrays_of_each_round(x):
    for t in range(30):
        x = np.sin(x * (t * np.arange(200))) + x
    return x


def three_lines(x, s):
    for t in range(30):
        for j in range(2):
            if j:
                s = np.sin(s) * x[t]
            else:
                s = np.cos(s)
    return s


WIDE = rng.uniform(0.1, 1.0, (10, 30))

# What each tape has of loops: their rounds, how many values they carry, and the loops in them; and
# the calls besides.
RECOGNISED: dict[Any, tuple[tuple[Any, ...], list[Any], str]] = {
    carried: ((S,), [(40, 1)], "loop"),
    several: ((S, V), [(39, 2)], "sin add loop"),  # the first round broadcasts a number
    invariants: ((V, S), [(40, 1)], "loop"),
    two_rounds_back: ((S,), [(40, 2)], "loop"),
    numbers: ((S,), [(40, 1)], "loop"),
    integers: ((V,), [(40, 2)], "greater astype sum loop"),
    read: ((X, S), [(40, 1)], "loop"),
    read_rows: ((M, S), [(40, 1)], "loop"),
    read_beside: ((X, S), [(38, 1)], "loop"),
    read_backwards: ((X, S), [(40, 1)], "loop"),
    every_second: ((X, S), [(20, 1)], "loop"),
    written: ((X,), [(39, 1)], "mul loop"),
    filled: ((M,), [(40, 1)], "astype broadcast_to copy loop"),
    stacked: ((M,), [(40, 2)], "getitem empty loop"),
    stacked_last: ((M,), [(40, 1)], "empty loop transpose"),
    summed: ((X,), [(40, 1)], "empty loop sum"),
    concatenated: ((M,), [(40, 1)], "empty loop reshape"),
    nested: ((WIDE, S), [(10, 1, (30, 1))], "loop"),
    outer_only: ((M, S), [(40, 1)], "loop"),
    first_peeled: ((X,), [(39, 1)], "getitem loop"),
    period_of_three: ((S,), [(20, 1)], "loop"),
    three_lines: ((X, S), [(30, 1)], "loop"),
    after_each_round: ((S,), [(40, 2)], "empty loop getitem getitem mul getitem add"),
    two_loops: ((X, S), [(40, 1), (40, 1)], "loop loop"),
    conditions: ((X, S), [(40, 1)], "loop"),
    parts_of_what_a_loop_made: (
        (M,),
        [(40, 1), (39, 1)],
        "empty loop loop getitem sum add",  # no round reads the last row
    ),
    arrays_of_each_round: ((LARGE,), [(30, 1)], "loop"),
}


@pytest.mark.every(8)
@pytest.mark.parametrize("f", RECOGNISED, ids=lambda f: f.__name__)
def test_a_loop_is_found_again(f):
    args, expected, calls = RECOGNISED[f]
    tape = rolled(f, *args)
    assert loops(tape) == expected
    assert " ".join(names(tape)) == calls


WINDOWS = {
    read: [("window", (0,), ((1,),))],
    read_beside: [("window", (0,), ((1,),)), ("window", (2,), ((1,),))],
    read_backwards: [("window", (39,), ((-1,),))],
    every_second: [("window", (0,), ((2,),))],
    written: [
        ("window", (0,), ((1,),)),
        ("window", (1,), ((1,),)),
        ("set_window", (1,), ((1,),)),
    ],
    numbers: [("window", (0, 0), ((1, 0),))],
}


@pytest.mark.parametrize("f", WINDOWS, ids=lambda f: f.__name__)
def test_places_that_move_are_windows(f):
    body = body_of(rolled(f, *RECOGNISED[f][0]))
    found: list[Any] = [c.primitive for c in body.calls if "window" in str(c.primitive.name)]
    assert [(p.name, p.index, p.moves) for p in found] == WINDOWS[f]


def test_a_windows_place_may_move_with_several_loops():
    inner = body_of(body_of(rolled(nested, WIDE, S)))
    (window,) = [c.primitive for c in inner.calls if c.primitive.name == "window"]
    assert sorted(window.moves) == [(0, 1), (1, 0)]


def test_guards_of_rounds_are_the_bodys():
    tape = rolled(conditions, X, S)
    assert not tape.guards
    (guard,) = body_of(tape).guards
    assert guard.what == "a condition"

    def broken(x, s):  # by the second half of what it is played for
        for t in range(40):
            s = np.sin(s) + x[t]
            if s > -0.5:
                s = s * 0.9
        return s

    rolled(broken, X, S)


def test_lines_and_names_stay():
    tape = rolled(read, X, S)
    line = read.__code__.co_firstlineno + 2
    assert f"# reroll_test.py:{line}" in str(body_of(tape))
    assert tape.names == ("x", "s")


# ---- what isn't


def irregular(s):
    for k in range(100):
        s = np.sin(s) + 0.1 if k.bit_count() % 2 else np.cos(s) * 0.9
    return s


def further_back(s):
    """A round reads what is five rounds old."""
    old = [s * k for k in range(1, 6)]
    for _ in range(40):
        old.append(np.sin(old[-5]) + old[-1])
    return old[-1]


def ordered(x):
    """Who sorts arrays that grow would sort what is behind them, too."""
    s = x[0]
    for t in range(1, 40):
        s = np.sin(s) + np.sort(x[:t])[t // 2]
    return s


def jumping(x, s):
    for t in range(40):
        s = np.sin(s) + x[t * t % 37]
    return s


def captured(x):
    for t in range(30):
        x = np.sin(x * TABLE[t]) + x
    return x


NOT: dict[Any, tuple[Any, ...]] = {
    irregular: (S,),
    ordered: (X,),
    jumping: (X, S),
    captured: (LARGE,),  # which may change before the next call
}


@pytest.mark.parametrize("f", NOT, ids=lambda f: f.__name__)
def test_what_does_not_repeat_itself_stays(f):
    assert loops(rolled(f, *NOT[f])) == []


def test_what_is_five_rounds_old_is_not_carried():
    """But rounds of five calls each are: what they read is of the round before."""
    assert repetition.MAX_DISTANCE == 4
    assert loops(rolled(further_back, S)) == [(8, 5)]


@pytest.mark.parametrize("rounds, expected", [(31, []), (32, [(32, 1)])])
def test_few_calls_stay(rounds, expected):
    def f(s):
        for _ in range(rounds):
            s = np.sin(s) + 0.1
        return s

    assert 2 * 31 < repetition.MIN_CALLS == 2 * 32
    assert loops(rolled(f, S)) == expected


@pytest.mark.parametrize("rounds, expected", [(3, []), (4, [(4, 1)])])
def test_few_rounds_stay(rounds, expected):
    def f(s):
        for _ in range(rounds):
            s = np.sin(s) + 0.1
            s = np.cos(s) * s
            s = np.exp(-s) + np.sin(s) * np.tanh(s)
            s = np.sqrt(s * s + 1.0) - np.exp(-s) * np.arctan(s) / (s * s + 2.0)
            s = np.log1p(s * s) + np.sin(s) * np.cos(s) - s * 0.25 + np.exp(-s * s)
        return s

    assert repetition.MIN_ROUNDS == 4
    assert loops(rolled(f, S)) == expected


def test_loops_of_numpys_calls_are_longer():
    def f(x, count):
        for _ in range(count):
            x = np.sort(np.sin(x)) + 0.1
        return x

    assert loops(rolled(lambda x: f(x, 40), V)) == []
    assert loops(rolled(lambda x: f(x, 80), V)) == [(80, 1)]


def counted_only(x, s):
    """What is carried is read by conditions alone."""
    seen = []
    for t in range(40):
        s = np.sin(s) + x[t]
        if s > 1.5:
            seen.append(t)
    return np.sum(x * (len(seen) + 1))


def looked_at_only(x):
    """Nothing is carried."""
    seen = []
    for t in range(40):
        if np.sin(x[t]) > 0.9:
            seen.append(t)
    return np.sum(x * (len(seen) + 1))


def looked_at_in_rows(x):
    """Nor in the loops inside."""
    seen = []
    for t in range(10):
        for j in range(40):
            if np.sin(x[j]) + 0.01 * t > 0.9:
                seen.append(t)
    return np.sum(x * (len(seen) + 1))


@pytest.mark.every(6)
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize(
    "f, further", [(counted_only, (S,)), (looked_at_only, ()), (looked_at_in_rows, ())]
)
def test_guards_hold_though_no_result_is_read(f, further, compile):
    df = value_and_grad(f, compile=compile)
    for x in (-X, X + 1.0, -X):
        value, slope = df(x, *further)
        np.testing.assert_allclose(value, f(x, *further), rtol=1e-12)
        np.testing.assert_allclose(np.sum(slope * x), value, rtol=1e-12)
    assert df.cache_info().traces == 2


def layers(ws, x):
    for w in ws:
        x = np.tanh(x @ w)
    return np.sum(x)


def test_arrays_that_are_others_in_each_round_are_looked_at_a_few_times():
    """As the weights of layers are, which are too large for an array of all of them."""
    count = 64
    raw: list[Tape] = []

    def number(tape: Tape, captured: Any, constants: Any) -> Any:
        raw.append(tape)
        return renumbered(tape), tuple(captured)

    ws = [np.full((16, 16), 0.1 * k) for k in range(count)]
    trace_function(Request(layers, (ws, np.ones((8, 16))), {}).check("trace"), None, number)
    found = repetition.Repetition(raw[0], {})
    before = found.budget.left
    assert not list(found.runs())
    assert before - found.budget.left < 8 * count  # it was 280 times as many


def test_rounds_that_differ_are_hardly_held_against_each_other(monkeypatch):
    """Where no forty-eight calls in a row come again no loop is sought."""
    order = [[np.sin, np.cos, np.tanh][k] for k in np.random.default_rng(0).integers(3, size=400)]

    def f(x):
        for function in order:
            x = function(x) * 0.5
        return x

    asked: list[int] = []
    repeated = repetition.Repetition.repeated

    def counted(self: Any, at: int, period: int) -> int:
        asked.append(at)
        return repeated(self, at, period)

    tape = trace_function(Request(f, (S,), {}).check("trace"), None, None).tape
    found = repetition.Repetition(tape, {})
    monkeypatch.setattr(repetition.Repetition, "repeated", counted)
    assert list(found.runs()) == []
    assert len(tape.calls) > 700 and not asked
