"""The solution at given times, read off while its steps are taken: one loop over the steps, and in
each of them one over the times that lie in it.

    for k in range(count):
        y', slopes = a step of size h[k]
        for i in range(first[k], first[k + 1]):
            found[i] = polynomial of y, y', slopes at times[i]

So there is one tape for any number of steps, of which a call makes as many as it takes, and nothing
is as long as the number of steps but what the derivative keeps of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.request import Request
from tapegrad.ir.tape import Aval, Builder, Literal, Tape
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Writer
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.windows import SetWindow, Window
from tapegrad.scipy.integrate.entries import entry, entry_index, recorded_on, unset
from tapegrad.scipy.integrate.rungekutta import Method
from tapegrad.scipy.outside import stopped
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.run import trace_function
from tapegrad.tracing.tracer import Tracer
from tapegrad.tracing.while_loop import while_loop

INTEGER = Aval((), np.dtype(np.int64))
FLOAT = Aval((), np.dtype(float))


def values_at(
    method: Method, span: tuple[Any, Any], y0: Any, ends: Any, count: Any, times: Any
) -> tuple[Any, Any]:
    """Values at times in order, the rows of an array, of a solution whose `count` steps end at
    `ends`; and in how many steps there are times."""
    number, zero = len(times), np.int64(0)
    begun, taken = _stepping(method, span, y0, ends)
    found = unset((number, y0.size), [begun[1], y0, count])
    state = (*begun, zero, zero, found)

    def goes_on(state: Any) -> Any:
        return state[0] < count

    def read(found: Any, rounds: Any, times: Any, first: Any, *given: Any) -> Any:
        t, h, y, y_new, *slopes = given
        terms = method.terms(t, y, y_new, h, slopes)
        loop = Loop(_reading(len(terms), y.size, number, method.alternates), 1, number)
        return recorded_on(loop, [rounds, found, times, first, t, h, y, *terms])

    def step(state: Any) -> Any:
        k, t, y, f, first, asked, found = state
        after, h, y_new, slopes = taken(k, t, y, f)
        beyond = _beyond(method.direction, times, stopped(after), first)
        beyond = np.where(k + 1 == count, number, beyond)
        some = beyond > first
        given = [beyond - first, times, first, t, h, y, y_new, *slopes]
        found = _if(some, read, [found, *given])
        return k + 1, after, y_new, slopes[-1], beyond, asked + np.where(some, 1, 0), found

    left = while_loop(goes_on, step, state, method.room)
    return left[-1], left[-2]


def last_value(method: Method, span: tuple[Any, Any], y0: Any, ends: Any, count: Any) -> Any:
    """The value after `count` steps that end at `ends`."""
    begun, taken = _stepping(method, span, y0, ends)

    def step(state: Any) -> Any:
        k, *before = state
        after, _, y, slopes = taken(k, *before)
        return k + 1, after, y, slopes[-1]

    return while_loop(lambda state: state[0] < count, step, begun, method.room)[2]


def _stepping(
    method: Method, span: tuple[Any, Any], y0: Any, ends: Any
) -> tuple[tuple[Any, ...], Callable[..., Any]]:
    """Before the first step its number, the time, the value and the slope; and the function of
    these that takes a step, and gives where it ends, its size, the value and slopes."""
    start, end = span
    last, still = stopped(end), stopped(start)
    # A start that moves takes all steps with it, and an end the last one.
    moved = start - still
    begin = start + np.float64(0)

    def taken(k: Any, t: Any, y: Any, f: Any) -> Any:
        after = entry(ends, k)
        after = np.where(after == last, end, after + moved)
        h = after - t
        return (after, h, *method.stages(t, y, f, h))

    return (np.int64(0), begin, y0, method.fun(begin, y0)), taken


def _if(some: Any, f: Callable[..., Any], xs: Sequence[Any]) -> Any:
    """f(*xs) where something holds, and else the first of these."""
    if not any(isinstance(x, Tracer) for x in (some, *xs)):
        return f(*xs) if some else xs[0]

    @unobserved
    def body(step: Any, *xs: Any) -> Any:
        return f(*xs)

    values = [np.int64(0), *xs]
    names = [f"x{k}" for k in range(len(values))]
    traced = trace_function(Request(body, values, names=names), repeats=True, apart=True)
    return recorded_on(Loop(traced.tape, 1, 1), [np.where(some, 1, 0), *xs, *traced.captured])


def _beyond(direction: float, times: Any, end: Any, first: Any) -> Any:
    """The number of the first time behind this one, from `first` on."""
    still, number = stopped(times), len(times)
    there = entry(still, np.minimum(first, number - 1))
    going = np.logical_and(first < number, direction * there <= direction * end)
    builder = Builder("beyond")
    writer = Writer(builder)
    kinds = [INTEGER, INTEGER, Aval((number,), FLOAT.dtype), FLOAT]
    _, k, *given = [writer.node(builder.input(aval)) for aval in kinds]
    k = k + 1
    inside = ew.where(k < number, k, writer.node(Literal(np.int64(number - 1))))
    at = Window(*entry_index(()))(given[0], inside)
    before = at <= given[1] if direction > 0 else at >= given[1]
    tape = builder.finish([x.operand for x in (k, ew.logical_and(k < number, before))])
    return recorded_on(
        Loop(tape, 1, number, until=True), [np.int64(number), going, first, still, end]
    )[0]


def _reading(count: int, size: int, number: int, alternates: bool) -> Tape:
    """The round of the loop over the times in a step. With so many terms the value at t + x h is
    y + x (a + x (b + ...)), where every other factor may be 1 - x."""
    builder = Builder("reading")
    writer = Writer(builder)
    kinds = [INTEGER, Aval((number, size), FLOAT.dtype), Aval((number,), FLOAT.dtype), INTEGER]
    kinds += [FLOAT, FLOAT, *[Aval((size,), FLOAT.dtype)] * (1 + count)]
    step, found, times, first, t, h, y, *terms = [
        writer.node(builder.input(aval)) for aval in kinds
    ]
    at = first + step
    x = (Window(*entry_index(()))(times, at) - t) / h
    other = writer.node(Literal(np.float64(1))) - x
    total: Any = None
    for i, term in enumerate(reversed(terms)):
        total = term if total is None else total + term
        total = total * (other if alternates and i % 2 else x)
    return builder.finish([SetWindow(*entry_index((size,)))(found, total + y, at).operand])
