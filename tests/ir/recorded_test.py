"""What a run has recorded is what it has recorded, however much of it is held as rounds."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from tests.loops.programs import PROGRAMS
from tests.loops.programs_test import drawn

from tapegrad import grad, jit, pipeline, trace
from tapegrad.ir import recorded
from tapegrad.ir.held import Column, Rounds
from tapegrad.ir.recorded import Recorded
from tapegrad.ir.tape import Aval, Builder, Literal, Tape, Var, one_type
from tapegrad.optimize import held
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import DECLARED
from tapegrad.primitives.views import GetItem
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.trace import Trace


@pytest.fixture(autouse=True)
def each_round_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain loops aren't traced by one round: what is recorded of their rounds is looked at."""
    monkeypatch.setattr(dispatch, "counted", lambda a: None)


FLOAT = one_type(Aval((), np.dtype(float)))
ARRAY = one_type(Aval((400,), np.dtype(float)))


@contextmanager
def recording(matched: int) -> Iterator[list[tuple[Tape, Tape, int]]]:
    """What is recorded, what is made of it, and how many calls were held, if so many of them that
    were alike are enough for that."""
    found: list[tuple[Tape, Tape, int]] = []
    rolled = pipeline.rolled

    def looked(tape: Tape, *rest: Any) -> Any:
        done = rolled(tape, *rest)
        parts = getattr(tape.calls, "parts", [])
        count = sum(part.count for part in parts if isinstance(part, Rounds))
        found.append((replace(tape, calls=tuple(tape.calls)), done[0], count))
        return done

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(recorded, "MATCHED", matched)
        patch.setattr(held, "FEW", 1)
        patch.setattr(pipeline, "rolled", looked)
        yield found


def same(f: Callable[..., Any], *args: Any, matched: int = 6) -> int:
    """Hold what is recorded, and the loops of it, against those where nothing is held; how many
    calls are held."""
    with recording(10**9):
        trace(f, *args)  # which of its branches go both ways is remembered
    with recording(matched) as some:
        out, _ = trace(f, *args)
    with recording(10**9) as none:
        expected, _ = trace(f, *args)
    assert np.asarray(out).tobytes() == np.asarray(expected).tobytes()
    for (tape, done, _), (plain, loops, count) in zip(some, none, strict=True):
        assert not count
        assert str(tape) == str(plain)
        assert tape == plain
        assert str(done) == str(loops)
    return sum(count for _, _, count in some)


@pytest.mark.parametrize("program", PROGRAMS[::6], ids=lambda program: program.name)
def test_programs_with_loops(program: Any) -> None:
    same(program.function, *drawn(program, 0, 30))


def test_most_calls_of_a_loop_are_held() -> None:
    def f(x: Any, rate: Any) -> Any:
        a, b = x[0], x[1]
        for t in range(100):
            a = a * 0.5 + b * rate
            b = b - a / 3.0 + x[t]
        return a + b

    assert same(f, np.linspace(0, 1, 100), 0.3, matched=64) > 500  # of 703


def test_numbers_that_change_late_are_kept() -> None:
    steps = [0.5] * 20 + [0.25] * 3 + [0.0, -0.0, np.nan, 1.0] + [0.5] * 20

    def f(x: Any) -> Any:
        before = first = x
        for step in steps:
            x, before, first = x * step + before, first, x
        return x

    assert same(f, np.float64(2.0)) > 70


def test_zeros_have_signs() -> None:
    def f(x: Any) -> Any:
        for t in range(60):
            x = x * 0.5 - (0.0 if t < 30 else -0.0)
        return x

    assert same(f, np.float64(-0.0)) > 50


def test_a_round_may_begin_with_what_no_other_does() -> None:
    def f(x: Any) -> Any:
        for t in range(40):
            y = x if t == 20 else x * 2.0
            kept = [y]
            for _ in range(3):
                kept.append(kept[-1] * x + kept[0])
            x = np.sin(kept[-1]) * 0.1
        return x

    assert same(f, np.float64(0.3)) > 100


@pytest.mark.parametrize("write", ["set", "add", "sort"])
def test_indices_may_be_arrays(write: str) -> None:
    def f(x: Any, k: Any) -> Any:
        y = x * 1.0
        for _ in range(60):
            if write == "set":
                y[k] = np.sin(y[k])
            elif write == "add":
                np.add.at(y, k, 0.25 * y[k])
            else:  # its derivative adds at the places where the elements were
                y = y * 0.9 + grad(lambda x: np.sum(np.sort(x) * x))(y)
        return y

    assert same(f, np.arange(5.0) / 5, np.array([1, 2, 1])) > 50


@pytest.mark.parametrize("name", [name for name, kind in DECLARED.items() if kind.movable])
def test_what_rounds_may_move_is_an_index_alone(name: str) -> None:
    assert [field.name for field in fields(DECLARED[name])] == ["index"]


def test_guards_may_differ() -> None:
    def f(x: Any) -> Any:
        total = x[0] * 0.0
        for t in range(len(x)):
            positive = x[t] > 0.0
            if t % 7 != 3:
                total = total + 2.0 * x[t] if positive else total - x[t]
            else:
                total = total + 2.0 * x[t]
        return total

    x = np.ones(60)
    same(f, x)
    derivative = grad(f)
    for k in (0, 3, 30, 58):
        x[k] = -1.0
        expected = np.array([2.0 if t % 7 == 3 or x[t] > 0 else -1.0 for t in range(60)])
        assert np.array_equal(derivative(x), expected)


def test_results_of_any_round_are_read_later() -> None:
    def f(x: Any) -> Any:
        kept = []
        for _ in range(60):
            x = np.tanh(x * 0.9) + 0.01
            kept.append(x)
        y = kept[0]
        for t in range(60):
            y = y * 0.5 + kept[59 - t] + kept[t] * kept[t // 2]
        return y + kept[17] + np.sum(np.stack(kept))

    assert same(f, np.float64(0.3)) > 100
    h = 1e-6
    slope = (f(np.float64(0.3 + h)) - f(np.float64(0.3 - h))) / (2 * h)
    assert grad(f)(0.3) == pytest.approx(slope, rel=1e-6)


def test_another_number_of_rounds_at_a_later_call() -> None:
    def f(x: Any, n: int) -> Any:
        for _ in range(n):
            x = x * 0.99 + np.sin(x) * 0.01
        return x

    compiled = jit(f)
    for n in (100, 3, 0, 250, 100):
        assert compiled(0.4, n) == pytest.approx(f(np.float64(0.4), n), rel=1e-12)


def test_types_of_older_values_may_differ() -> None:
    def record(builder: Builder) -> None:
        x = builder.input(FLOAT)
        y = builder.input(one_type(Aval((), np.dtype(np.float32))))
        rows = [builder.call(ew.sin, [x if t < 100 else y])[0] for t in range(200)]
        for row in rows:
            builder.call(ew.less, [row, row])

    plain, some = Builder("f"), Builder("f", Recorded())
    record(plain)
    record(some)
    calls = some.finish([]).calls
    assert isinstance(calls, Recorded)
    assert tuple(calls) == tuple(plain.calls)


def test_a_number_is_no_variable() -> None:
    column = Column(FLOAT)
    column.put(Literal(np.float64(5.0)))
    assert not column.goes_on(Var(7, FLOAT), 2)
    column.values = [5]
    assert column.goes_on(Var(7, FLOAT), 2)


def test_what_made_a_variable_is_found() -> None:
    builder = Builder("f", Recorded())
    x = builder.input(FLOAT)
    outs = [x]
    with Trace(builder) as running:
        for t in range(300):
            if t % 50 == 0:
                builder.fresh(FLOAT)
            outs += builder.call(ew.add, [outs[-1], x])
        for position, out in enumerate(outs[1:]):
            made = running.made_by(out)
            assert made is not None and made == builder.calls[position]
        assert running.made_by(x) is None


def stream(rng: np.random.Generator, builder: Builder) -> None:
    """Record calls as a program with loops in loops does, which are alike or nearly so."""
    array = builder.input(ARRAY)
    values: list[Any] = [builder.input(FLOAT) for _ in range(5)]
    primitives = [ew.add, ew.mul, ew.sub]

    def one(kind: int, t: int) -> None:
        if kind < 3:
            back = [values[-1 - n] for n in (kind, 2 * kind)]
            values.extend(builder.call(primitives[kind], back))
        elif kind == 3:
            values.extend(builder.call(ew.add, [values[-1], Literal(np.float64(t % 5))]))
        elif kind == 4:
            values.extend(builder.call(GetItem((t % 200,)), [array]))
        elif kind == 5:
            values.extend(builder.call(ew.sin, [values[int(rng.integers(len(values)))]]))
        elif kind == 6 and t > 5:
            values.extend(builder.call(ew.mul, [values[1], Literal(np.float64(0.5))]))
        else:
            builder.fresh(FLOAT)

    for _ in range(4):
        outer, inner = (rng.integers(0, 8, rng.integers(1, 6)) for _ in range(2))
        for t in range(int(rng.integers(1, 12))):
            for kind in outer:
                one(int(kind), t)
            for s in range(int(rng.integers(1, 10)) if rng.random() < 0.3 else 6):
                for kind in inner:
                    one(int(kind), s)


@pytest.mark.parametrize("seed", range(40))
def test_random_calls(seed: int) -> None:
    matched = 1 + seed % 8
    plain, some = Builder("f"), Builder("f", Recorded())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded, "MATCHED", matched)
        for builder in (plain, some):
            stream(np.random.default_rng(seed), builder)
    expected = tuple(plain.calls)
    calls = some.finish([]).calls
    assert tuple(calls) == expected
    assert len(calls) == len(expected)
    for at in range(0, len(expected), 3):
        assert calls[at] == expected[at]
        assert list(calls[at : at + 5]) == list(expected[at : at + 5])
        assert list(calls[at : at + 40 : 7]) == list(expected[at : at + 40 : 7])


@pytest.mark.parametrize("seed", range(20))
def test_random_calls_have_the_same_runs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = [int(k) for k in rng.integers(0, 5, rng.integers(2, 7))]

    def record(builder: Builder) -> Tape:
        array = builder.input(ARRAY)
        rows: list[Var] = [builder.input(FLOAT) for _ in range(8)]
        for t in range(400):
            for kind in kinds:
                given: list[Any] = [rows[-1], rows[-2 - kind % 2]]
                if kind == 3:
                    given = [rows[-1], Literal(np.float64(0.5 if t < 70 else t))]
                primitive = GetItem((t,)) if kind == 4 else (ew.add, ew.mul, ew.sub, ew.add)[kind]
                rows.extend(builder.call(primitive, [array] if kind == 4 else given))
        return builder.finish([rows[-1], rows[-len(kinds)], rows[200]])

    plain, some = record(Builder("f")), record(Builder("f", Recorded()))
    assert isinstance(some.calls, Recorded)
    found, runs = held.found_in(some, {})
    others, expected = held.found_in(plain, {})
    assert type(found) is not type(others)
    assert list(runs) == list(expected)


def test_memory_is_that_of_one_round() -> None:
    def peak(rounds: int) -> int:
        def f(x: Any) -> Any:
            a, b = x[0], x[1]
            for _ in range(rounds):
                c = a * 0.9 - b * x[0]
                a, b = np.tanh(c) + b * 0.1, b - c * x[1] / 3.0
            return a + b

        tracemalloc.start()
        trace(f, np.array([0.5, 0.7]))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(300)
    assert peak(3000) - peak(600) < 2400 * 11 * 10  # a call alone takes several hundred bytes
