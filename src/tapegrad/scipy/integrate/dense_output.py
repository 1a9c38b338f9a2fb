"""Dense output at given times, interpolated while the steps are taken: a loop over the steps, and
in it a loop over the times within the step.

  for k in range(count):
      y', slopes = a step of size h[k]
      for i in range(first[k], first[k + 1]):
          found[i] = polynomial of y, y', slopes at times[i]

So one tape serves any number of steps. No array is as long as the number of steps except the
residuals that the derivative keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.extending import unobserved
from tapegrad.extending.arrays import Tracer
from tapegrad.extending.loops import while_loop
from tapegrad.extending.primitives import SetWindow, Window, Writer, entry_at
from tapegrad.extending.primitives import elementwise as ew
from tapegrad.extending.tapes import Aval, Builder, Literal, Loop, Request, Tape, trace_function
from tapegrad.scipy.integrate.entries import entry, recorded_on, unset, with_entry
from tapegrad.scipy.integrate.rungekutta import Method
from tapegrad.scipy.solver_calls import stopped

INTEGER = Aval((), np.dtype(np.int64))
FLOAT = Aval((), np.dtype(float))


def values_at(
    method: Method,
    span: tuple[Any, Any],
    y0: Any,
    ends: Any,
    count: Any,
    times: Any,
    number: Any = None,
) -> tuple[Any, Any]:
    """The values at `times`, which are in order, as rows of an array, and the number of steps with
    a time in them. The solution has `count` steps that end at `ends`. Only the first `number`
    times are used, by default all."""
    room, zero = len(times), np.int64(0)
    number = np.int64(room) if number is None else number
    begun, taken = _stepping(method, span, y0, ends)
    found = unset((room, y0.size), [begun[1], y0, count])
    state = (*begun, zero, zero, found)

    def goes_on(state: Any) -> Any:
        return state[0] < count

    def read(found: Any, rounds: Any, times: Any, first: Any, *given: Any) -> Any:
        t, h, y, y_new, *slopes = given
        terms = method.terms(t, y, y_new, h, slopes)
        loop = Loop(_reading(len(terms), y.size, room, method.alternates), 1, room)
        return recorded_on(loop, [rounds, found, times, first, t, h, y, *terms])

    def step(state: Any) -> Any:
        k, t, y, f, first, asked, found = state
        after, h, y_new, slopes = taken(k, t, y, f)
        beyond = _beyond(method.direction, times, number, stopped(after), first)
        beyond = np.where(k + 1 == count, number, beyond)
        some = beyond > first
        given = [beyond - first, times, first, t, h, y, y_new, *slopes]
        found = _if(some, read, [found, *given])
        return k + 1, after, y_new, slopes[-1], beyond, asked + np.where(some, 1, 0), found

    left = while_loop(goes_on, step, state, method.room)
    return left[-1], left[-2]


def over_steps(
    method: Method,
    span: tuple[Any, Any],
    y0: Any,
    ends: Any,
    count: Any,
    init: Sequence[Any],
    each: Callable[..., Sequence[Any]],
) -> tuple[Any, Any, Sequence[Any]]:
    """The time and the value after `count` steps that end at `ends`, and the carried values of
    `each(k, rows, slopes, carried)`, where `rows` are the times and values at both ends of a
    step."""
    begun, taken = _stepping(method, span, y0, ends)

    def step(state: Any) -> Any:
        k, t, y, f, *carried = state
        after, _, y_new, slopes = taken(k, t, y, f)
        carried = each(k, [(t, y), (after, y_new)], slopes, carried)
        return (k + 1, after, y_new, slopes[-1], *carried)

    state = (*begun, *init)
    _, t, y, _, *carried = while_loop(lambda s: s[0] < count, step, state, method.room)
    return t, y, carried


def parts_in(
    method: Method, span: tuple[Any, Any], y0: Any, ends: Any, count: Any, steps: Sequence[Any]
) -> list[tuple[Any, Any]]:
    """For each array of increasing step numbers: the `Method.parts` of these steps, and where they
    end."""
    size, stages = y0.size, method.kind.n_stages + 1
    width = 2 + size * (2 + stages)
    some = [x for x in steps if len(x)]

    def each(k: Any, rows: Any, slopes: Any, carried: Any) -> list[Any]:
        (t, y), (after, y_new) = rows
        row = np.concatenate([np.stack([t, after]), y, y_new, *slopes])
        found = []
        for numbers, array, at in zip(some, carried[::2], carried[1::2], strict=True):
            last = len(numbers)  # an unused row, overwritten by the next step
            is_wanted = entry(numbers, np.minimum(at, last - 1)) == k
            found.append(with_entry(array, np.minimum(at, last), row))
            found.append(at + np.where(np.logical_and(at < last, is_wanted), 1, 0))
        return found

    init = [x for n in some for x in (unset((len(n) + 1, width), [y0, ends, n]), np.int64(0))]
    found = over_steps(method, span, y0, ends, count, init, each)[2] if some else []
    arrays = iter([x[:-1] for x in found[::2]])
    return [_unpacked(method, next(arrays), size) if len(x) else ((), x) for x in steps]


def _unpacked(method: Method, rows: Any, size: int) -> tuple[Any, Any]:
    t, after = rows[:, 0], rows[:, 1]
    y, nexts, *k = [rows[:, at : at + size] for at in range(2, rows.shape[1], size)]
    return method.with_further(t, after - t, y, nexts, k), after


def _stepping(
    method: Method, span: tuple[Any, Any], y0: Any, ends: Any
) -> tuple[tuple[Any, ...], Callable[..., Any]]:
    """The state before the first step, `(number, time, value, slope)`, and the function that takes
    a step from a state. It returns the step's end, size, value and slopes."""
    start, end = span
    last, still = stopped(end), stopped(start)
    # A traced start moves all steps, and a traced end the last one.
    moved = start - still
    begin = start + np.float64(0)

    def taken(k: Any, t: Any, y: Any, f: Any) -> Any:
        after = entry(ends, k)
        after = np.where(after == last, end, after + moved)
        h = after - t
        return (after, h, *method.stages(t, y, f, h))

    return (np.int64(0), begin, y0, method.fun(begin, y0)), taken


def _if(some: Any, f: Callable[..., Any], xs: Sequence[Any]) -> Any:
    """f(*xs) if the condition holds, else the first of `xs`."""
    if not any(isinstance(x, Tracer) for x in (some, *xs)):
        return f(*xs) if some else xs[0]

    @unobserved
    def body(step: Any, *xs: Any) -> Any:
        return f(*xs)

    values = [np.int64(0), *xs]
    names = [f"x{k}" for k in range(len(values))]
    traced = trace_function(Request(body, values, names=names), repeats=True, apart=True)
    return recorded_on(Loop(traced.tape, 1, 1), [np.where(some, 1, 0), *xs, *traced.captured])


def _beyond(direction: float, times: Any, number: Any, end: Any, first: Any) -> Any:
    """The index of the first time after `end`, from `first` on; `number` if there is none."""
    still, room = stopped(times), len(times)
    there = entry(still, np.minimum(first, number - 1))
    going = np.logical_and(first < number, direction * there <= direction * end)
    builder = Builder("beyond")
    writer = Writer(builder)
    kinds = [INTEGER, INTEGER, Aval((room,), FLOAT.dtype), INTEGER, FLOAT]
    _, k, array, most, last = [writer.node(builder.input(aval)) for aval in kinds]
    k = k + 1
    at = Window(*entry_at(0, ()))(array, ew.where(k < most, k, most - 1))
    before = at <= last if direction > 0 else at >= last
    tape = builder.finish([x.operand for x in (k, ew.logical_and(k < most, before))])
    return recorded_on(
        Loop(tape, 1, room, until=True), [np.int64(room), going, first, still, number, end]
    )[0]


def _reading(count: int, size: int, room: int, alternates: bool) -> Tape:
    """The body of the loop over the times within a step. From `count` terms the value at t + x h
    is y + x (a + x (b + ...)); if it `alternates`, every other factor is 1 - x."""
    builder = Builder("reading")
    writer = Writer(builder)
    kinds = [INTEGER, Aval((room, size), FLOAT.dtype), Aval((room,), FLOAT.dtype), INTEGER]
    kinds += [FLOAT, FLOAT, *[Aval((size,), FLOAT.dtype)] * (1 + count)]
    step, found, times, first, t, h, y, *terms = [
        writer.node(builder.input(aval)) for aval in kinds
    ]
    at = first + step
    x = (Window(*entry_at(0, ()))(times, at) - t) / h
    other = writer.node(Literal(np.float64(1))) - x
    total: Any = None
    for i, term in enumerate(reversed(terms)):
        total = term if total is None else total + term
        total = total * (other if alternates and i % 2 else x)
    return builder.finish([SetWindow(*entry_at(0, (size,)))(found, total + y, at).operand])
