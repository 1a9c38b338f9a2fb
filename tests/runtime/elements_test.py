"""Loops whose rounds work on short arrays: what is played of their elements has the bits and types
that NumPy's operations give."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.backends.numpy import rounds
from tapegrad.backends.numpy.play import Script, repeat_whole
from tapegrad.ir.tape import Aval, Builder, Literal
from tapegrad.primitives.base import DECLARED, Slice
from tapegrad.primitives.control import CallTape
from tapegrad.primitives.elementwise import (
    AsType,
    add,
    div,
    equal,
    isnan,
    less,
    logical_and,
    mul,
    neg,
    sin,
    square,
    sub,
    where,
)
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.scatter import Concatenate, SetItem, Stack
from tapegrad.primitives.views import BroadcastTo, ExpandDims, GetItem, Place, Reshape, Transpose
from tapegrad.primitives.windows import AddWindow, SetWindow, Window, entry_at

ROOM = 20
FLOAT, INTEGER = np.dtype(float), np.dtype(np.int64)
# What rounds carry: a number, short arrays, one that isn't, and one that they fill; what they read.
CARRIED = [(), (2,), (3,), (2, 2), (7,), (ROOM, 2), (3,)]
READ = [(), (2,), (3,), (ROOM, 3)]


class Body:
    """The round of a loop, of calls that are drawn."""

    def __init__(self, seed, depth=0):
        self.rng = np.random.default_rng(seed)
        self.seed, self.depth = seed, depth
        self.builder = Builder("body")
        self.step = self.builder.input(Aval((), INTEGER))
        self.inputs = [self.builder.input(Aval(s, FLOAT)) for s in (*CARRIED, *READ)]
        self.values = list(self.inputs)
        del self.values[5], self.values[5]  # which are only written to

    def call(self, primitive, *xs):
        (out,) = self.builder.call(primitive, xs)
        if out.dtype == FLOAT:
            self.values.append(out)
        return out

    def drawn(self, *shapes):
        fit = [x for x in self.values if not shapes or x.shape in shapes]
        return fit[self.rng.integers(len(fit))]

    def grow(self):
        x = self.drawn()
        shape = x.shape
        kind = self.rng.integers(16)
        if kind < 4:
            p = (add, sub, mul, div)[kind]
            other = self.drawn((), shape, shape[1:])
            self.call(p, *((x, other) if self.rng.random() < 0.5 else (other, x)))
        elif kind == 4:
            self.call((neg, square, sin)[self.rng.integers(3)], x)
        elif kind == 5 and shape:
            index = tuple([int(self.rng.integers(n)) for n in shape])
            some = (Slice(0, shape[0]), *index[1:]) if self.rng.random() < 0.5 else index
            self.call(GetItem(some), x)
        elif kind == 6:
            self.call(Stack(0), self.drawn(()), self.drawn(()), *[self.drawn(())] * (kind % 2))
        elif kind == 7:
            self.call(Concatenate(0), self.drawn((2,)), self.drawn((3,), (2,)))
        elif kind == 8 and len(shape) == 2:
            self.call(Transpose((1, 0)), x)
            self.call(Reshape((x.aval.size,)), x)
        elif kind == 9:
            self.call(BroadcastTo((3,)), self.drawn(()))
            self.call(BroadcastTo((2, 2)), self.call(ExpandDims((1,)), self.drawn((2,))))
        elif kind == 10:
            parts = [self.call(Place((3,), (k,)), self.drawn(())) for k in (0, 2, 0)]
            self.call(add, self.call(add, parts[0], parts[1]), parts[2])
        elif kind == 11 and len(shape) == 1:
            self.call(Sum((0,)), x)
        elif kind == 12 and shape:
            index = tuple([int(self.rng.integers(n)) for n in shape])
            self.call(SetItem(index), x, self.drawn(()))
        elif kind == 13:
            test = self.call(less, x, self.drawn((), shape))
            self.call(where, test, x, Literal(np.float64(0)))
            self.mask(self.drawn(shape), x, self.drawn(shape))
        elif kind == 14:
            self.call(DECLARED["maximum"], x, self.drawn((), shape))
            self.call(Window(*entry_at(0, (3,))), self.inputs[len(CARRIED) + 3], self.step)
        elif self.depth < 1:
            self.nest()

    def mask(self, ct, x, y):
        """x * y, but 0 where that isn't a number, and ct is 0: as derivatives have it."""
        zero = Literal(np.float64(0))
        (part,) = self.builder.call(mul, [x, y])
        (is_zero,) = self.builder.call(equal, [ct, zero])
        (is_nan,) = self.builder.call(isnan, [part])
        (both,) = self.builder.call(logical_and, [is_zero, is_nan])
        self.call(where, both, zero, part)

    def nest(self):
        """A round of a further loop, or one that is made or not, or a tape."""
        inner = Body(int(self.rng.integers(1 << 30)), self.depth + 1).finish(8)
        step = self.step
        outs = [self.drawn(s) if s != (ROOM, 2) else None for s in CARRIED]
        outs[5], outs[6] = [
            self.builder.call(BroadcastTo(s), [Literal(np.float64(0))])[0] for s in CARRIED[5:]
        ]
        given = [*outs, *[self.drawn(s) if len(s) < 2 else self.inputs[-1] for s in READ]]
        kind = self.rng.integers(3)
        if kind == 2:
            found = self.builder.call(CallTape(inner), [step, *given])
        else:
            most = (1, 3)[kind]
            rounds_ = Literal(np.int64(self.rng.integers(most + 1)))
            found = self.builder.call(Loop(inner, len(CARRIED), most), [rounds_, *given])
        self.values += [x for x in found if x.shape not in ((ROOM, 2), (7,))]

    def finish(self, count):
        for _ in range(count):
            self.grow()
        outs = [self.drawn(s) for s in CARRIED[:5]]
        at = [self.step]
        filled = self.builder.call(
            SetWindow(*entry_at(0, (2,))), [self.inputs[5], self.drawn((2,)), *at]
        )
        added = self.builder.call(AddWindow((Slice(0, 3),), ()), [self.inputs[6], self.drawn((3,))])
        return self.builder.finish([*outs, *filled, *added])


def of_numpy(tape, values, _=()):
    found, broken = Script(tape).run(values)
    assert broken is None
    return found


def bits(x):
    x = np.asarray(x)
    return x.shape, x.dtype, np.where(np.isnan(x), np.nan, x).tobytes()


@pytest.mark.every(2)
@pytest.mark.parametrize("seed", range(150))
def test_random_rounds_of_short_arrays_are_numpys(seed, monkeypatch):
    monkeypatch.setattr(rounds, "MIN_ROUNDS", 3)
    rng = np.random.default_rng(seed)
    tape = Body(seed).finish(25)
    loop = Loop(tape, len(CARRIED), ROOM)
    shapes = [*CARRIED, *READ]
    values = [np.asarray(rng.choice([0.0, -0.0, 1.5, -0.5, 2.0], s)) for s in shapes]
    if seed % 3 == 0:
        values[1][...] = np.nan, -0.0
    if seed % 4 == 0:
        values[2][...] = -0.0
    kept = [x.copy() for x in values]
    with np.errstate(all="ignore"):
        expected = loop.played(of_numpy, np.int64(6), *[x.copy() for x in values])
    found = repeat_whole(loop, [np.int64(6), *values])
    for x, y in zip(found, expected, strict=True):
        assert bits(x) == bits(y)
    for x, y in zip(values, kept, strict=True):
        assert bits(x) == bits(y)  # it writes to no operand


def oscillator(p, y):
    def slope(y):
        return np.array([y[1], p * (1 - y[0] ** 2) * y[1] - y[0]])

    total = 0.0
    for _ in range(30):
        k = slope(y)
        y = y + 0.01 * slope(y + 0.005 * k)
        total = total + y[0] ** 2
    return total


def test_rounds_of_short_arrays_call_nothing_of_numpys(monkeypatch):
    texts = []
    code = rounds._code
    monkeypatch.setattr(rounds, "_code", lambda *given: texts.append(given[0]) or code(*given))
    value, slopes = tg.value_and_grad(oscillator, (0, 1), compile="never")(
        1.5, np.array([1.0, 0.5])
    )
    assert value == oscillator(1.5, np.array([1.0, 0.5]))
    h = 1e-6
    near = [oscillator(1.5 + s * h, np.array([1.0, 0.5])) for s in (1, -1)]
    assert abs(slopes[0] - (near[0] - near[1]) / (2 * h)) < 1e-6 * abs(slopes[0])
    assert len(texts) >= 2
    for text in texts:
        inside = text[text.index("for ") : text.rindex("return")].splitlines()[1:]
        rounds_ = [line for line in inside if line.startswith(" " * 8)]
        assert rounds_
        called = [line for line in rounds_ if "(f" in line or "= f" in line or ".tolist" in line]
        assert not called, called


@pytest.mark.parametrize("dtype", ["i8", "b1"])
def test_integers_of_arrays_wrap_as_numpys(dtype):
    builder = Builder("body")
    kinds = [((), "i8"), ((), "i8"), ((6,), "i8"), ((6,), "i8"), ((6,), dtype)]
    step, total, filled, taken, read = [
        builder.input(Aval(shape, np.dtype(kind))) for shape, kind in kinds
    ]
    (x,) = builder.call(Window(*entry_at(0, ())), [read, step])
    if dtype == "b1":
        (x,) = builder.call(AsType(np.dtype(np.int64)), [x])
    (twice,) = builder.call(mul, [x, x])
    (more,) = builder.call(add, [twice, total])
    (test,) = builder.call(less, [x, Literal(np.int64(3))])
    (one,) = builder.call(AsType(np.dtype(np.int64)), [test])
    (most,) = builder.call(where, [test, x, more])
    (other,) = builder.call(neg, [one])
    (filled,) = builder.call(SetWindow(*entry_at(0, ())), [filled, most, step])
    (taken,) = builder.call(SetWindow(*entry_at(0, ())), [taken, other, step])
    loop = Loop(builder.finish([x, filled, taken]), 3, 6)
    numbers = np.array([2**62, 3, -(2**63), 0, 2**53 + 1, 7]) if dtype == "i8" else np.arange(6) > 2
    values = [np.int64(5), np.zeros(6, np.int64), np.zeros(6, np.int64), numbers]
    with np.errstate(all="ignore"):
        expected = loop.played(of_numpy, np.int64(6), *[np.array(x)[()] for x in values])
        found = repeat_whole(loop, [np.int64(6), *values])
    for a, b in zip(found, expected, strict=True):
        assert type(a) is type(b) and bits(a) == bits(b)


def bouncing(p):
    y, v = p[0], 0.0
    for _ in range(40):
        v = v - 0.098
        y = y + v * 0.1
        if y < 0:
            y, v = -y, -p[1] * v
    return y


def test_a_side_of_a_branch_is_chosen_by_a_number_of_pythons(monkeypatch):
    texts = []
    code = rounds._code
    monkeypatch.setattr(rounds, "_code", lambda *given: texts.append(given[0]) or code(*given))
    p = np.array([0.5, 0.9])
    value, slope = tg.value_and_grad(bouncing, compile="never")(p)
    assert value == bouncing(p)
    h = 1e-7
    near = [bouncing(p + s * np.array([h, 0])) for s in (1, -1)]
    assert abs(slope[0] - (near[0] - near[1]) / (2 * h)) < 1e-5 * abs(slope[0])
    asked = [(text, name) for text in texts for name in re.findall(r"if (v\d+) > 0:", text)]
    assert asked
    for text, name in asked:
        assert re.search(rf"\b{name} = (int\(|[cv]\d+\.item\()", text), text


def test_a_tape_that_is_run_often_calls_the_functions_of_its_loops(monkeypatch):
    texts = []
    code = rounds._code
    monkeypatch.setattr(rounds, "_code", lambda *given: texts.append(given[0]) or code(*given))
    f = tg.value_and_grad(oscillator, (0, 1), compile="never")
    expected = f(1.5, np.array([1.0, 0.5]))
    of_loops = len(texts)
    for _ in range(20):
        found = f(1.5, np.array([1.0, 0.5]))
    more = texts[of_loops:]
    assert more and not any("for " in text for text in more)
    assert found[0] == expected[0] and found[1][0] == expected[1][0]
    assert np.array_equal(found[1][1], expected[1][1])
