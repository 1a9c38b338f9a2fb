"""Variables and stack entries of a frame, read from memory and replaced there.

From Python 3.14 on most of them are borrowed: see `observe/program/frames.py`.
"""

from __future__ import annotations

import dis
import gc
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from tapegrad import value_and_grad
from tapegrad.observe.program import frames, watching
from tapegrad.observe.program.stack_heights import heights_of


class Thing:
    """Something that counts its references."""


class Before(watching.Follower):
    """Calls a function before each instruction of a code that has this name."""

    def __init__(self, code, name, then):
        self.code, self.codes, self.then = code, {}, then
        self.places = {i.offset for i in dis.get_instructions(code) if i.opname == name}
        self.heights = heights_of(code)

    def enter(self, frame, event, arg):
        if frame.f_code is not self.code:
            return None
        watching.follow(frame, self.codes)
        return self.step

    def step(self, frame, event, arg):
        if event == "opcode" and frame.f_lasti in self.places:
            top = frames.top_of(self.heights[frame.f_lasti >> 1])
            self.then(frame, frames.address_of(frame) + top)
        return self.step


def run(f, name, then, *args):
    assert watching.can_watch()
    told = Before(f.__code__, name, then)
    before = sys.gettrace()
    sys.settrace(told.enter)
    try:
        return f(*args)
    finally:
        sys.settrace(before)
        watching.release(told.codes)


def test_an_entry_is_replaced_and_both_are_counted():
    old, new = Thing(), Thing()
    counts = sys.getrefcount(old), sys.getrefcount(new)

    def f(x):
        return x == x, x

    def then(frame, top):
        for k in (0, 1):
            assert frames.operand(top, k) is old
            frames.replace(frames.operand_at(top, k), new)
        assert frames.operands(top) == (new, new)

    for _ in range(100):
        assert run(f, "COMPARE_OP", then, old) == (True, old)
    assert (sys.getrefcount(old), sys.getrefcount(new)) == counts


@pytest.mark.parametrize("by", [None, True, 7, 10**9, "text", ()])
def test_constants_take_the_place_of_an_entry(by):
    def f(x, y):
        return (x is y, x == y, bool(x == y))

    seen = []

    def then(frame, top):
        frames.replace(frames.operand_at(top, 1), by)
        seen.append(frames.upper(top, 2))

    for _ in range(50):
        assert run(f, "IS_OP", then, Thing(), by) == (True, False, False)
    assert all(a is by and b is by for a, b in seen)


def test_an_entry_gets_a_reference_of_its_own():
    """Whoever holds `x` only by a variable of the caller is counted, once it is asked."""
    x, found = Thing(), []
    count = sys.getrefcount(x)

    def f(y):
        return y == y

    def then(frame, top):
        address = frames.address_of(frame)
        assert frames.local(address, 0) is x
        found.append(frames.references(frames.operand_at(top, 0)))
        found.append(frames.references(frames.operand_at(top, 1)))
        found.append(sys.getrefcount(x))

    for _ in range(10):
        run(f, "COMPARE_OP", then, x)
    # The variable's and two of the stack.
    assert found[-1] >= count + 3
    assert sys.getrefcount(x) == count


def test_what_is_borrowed_from_a_variable_stays_when_that_is_set():
    """A function that is called has only borrowed its argument, and so has what it calls."""

    def innermost(z):
        frames.set_local(frames.address_of(sys._getframe(2)), 0, "new")
        return refs[-1]() is not None and z.mark

    def inner(y):
        return innermost(y), y.mark

    def outer(x):
        found = inner(x)
        return x, found

    def begun():
        x = Thing()
        x.mark = "old"
        refs.append(weakref.ref(x))
        return x

    refs = []
    for _ in range(20):
        found = outer(begun())  # in an assertion, pytest would hold it
        assert found == ("new", ("old", "old"))
    assert all(ref() is None for ref in refs)


def test_an_unbound_variable_is_set():
    def f():
        frames.set_local(frames.address_of(sys._getframe()), 0, 3)
        if sys is None:
            x = 2
        return x

    if frames.IS_TAGGED:  # before, whoever sets a variable looks first
        assert f() == 3


def test_many_traces_leak_nothing():
    """The branches of a test, a comprehension and arrays that are filled: variables and stack
    entries are replaced."""
    table = SimpleNamespace(scale=2.0)

    def f(x, n):
        total, out = 0.0, np.empty(4)
        for k in range(n):
            h = x[k % 4]
            if h > 0.5:
                h = h * 0.9
            else:
                h = h * 1.1
            total = total + h
        for k in range(4):
            out[k] = x[k] * table.scale
        return total + np.sum(out) + sum(v * v for v in x) + max(x[0], x[1])

    x = np.linspace(0.2, 0.9, 4)

    def trace():
        value_and_grad(f, compile="never")(x, 12)

    for _ in range(4):
        trace()
    gc.collect()
    before, count = sys.getallocatedblocks(), sys.getrefcount(x)
    for _ in range(20):
        trace()
    gc.collect()
    assert sys.getrefcount(x) == count
    assert sys.getallocatedblocks() - before < 20 * 200
