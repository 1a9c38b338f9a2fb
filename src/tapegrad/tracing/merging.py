"""Conditionals that are seen while a function runs: two sides of a branch as two loops on the tape.

    %3 = greater(%1, %2)                  %5 = loop(int(%3), %empty, %2, if_f)
    guard %3 = True              -->      %6 = loop(int(not %3), %5, %2, else_f)
    %4 = mul(%2, 0.9)

What a side has recorded is taken from the tape, and becomes the body of a loop of one round or none,
as in `tracing.cond`. Parts of arrays are taken in front of it: which part it is may differ from round
to round of a loop around, where the sides are to be the same. What a variable holds that differs
between the sides is a result of both, if it is a number, or an array that nobody else has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tapegrad.core.handlers import let_through, quiet
from tapegrad.core.statics import exact_key
from tapegrad.ir.tape import Aval, Builder, Call, Guard, Literal, Operand, Tape, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.kinds import Moving, View
from tapegrad.tracing.conditional import record_conditional
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.floating import watched
from tapegrad.tracing.observe.effects import Stopped
from tapegrad.tracing.observe.observer import observed
from tapegrad.tracing.tracer import FloatTracer, ScalarTracer, Tracer, kind_of, stand_in

_HELD = 4  # references to what one variable of a frame holds, with those that looking takes


class _Leaf(NamedTuple):
    """What a variable holds: as what it is known to the program, and what it is on the tape."""

    kind: type
    aval: Aval
    operand: Operand
    value: Any


class Side(NamedTuple):
    """What a side has recorded: parts of arrays, what it has computed, and guards."""

    parts: list[Call]
    calls: list[Call]
    guards: list[Guard]


# ---- the side that isn't taken


def apart(trace: Any, function: Callable[..., Any], given: Sequence[Any]) -> Side | None:
    """What a function records that isn't called by the program; None if it does what it mustn't.
    Its parts of arrays stay on the tape."""
    if trace.idle or trace.inside is not None or trace.writable is not None or watched(trace):
        return None
    builder = trace.builder
    calls, guards, refusal = len(builder.calls), len(builder.guards), trace.refusal
    trace.writable = builder.following
    try:
        done = quiet(_run)(function, given) and trace.refusal is refusal
    finally:
        trace.writable, trace.refusal = None, refusal
        parts, rest = _split(builder.calls[calls:])
        found = Side(parts, rest, builder.guards[guards:])
        builder.calls[calls:] = parts
        _drop_guards(trace, guards)
    return found if done else None


def _run(function: Callable[..., Any], given: Sequence[Any]) -> bool:
    follower = None
    with observed():
        follower = sys.gettrace()
        try:
            function(*given)
        except Stopped:
            return False
        except Exception as error:
            let_through(error)
            return False
        finally:
            sys.settrace(follower)
    return True


def refresh(trace: Any, values: Iterable[Any]) -> None:
    """Record what views show that have become stale, before either side does."""
    for x in values:
        if isinstance(x, Tracer) and x._trace is trace and not x._owner._doubt:
            x._read()


def _drop_guards(trace: Any, start: int) -> None:
    guards = trace.builder.guards
    trace._guarded.difference_update(guards[start:])
    del guards[start:]


def _split(calls: Sequence[Call]) -> tuple[list[Call], list[Call]]:
    """Which calls take parts of what was there before, and the others."""
    parts: list[Call] = []
    rest: list[Call] = []
    made: set[Operand] = set()
    for call in calls:
        of_old = made.isdisjoint(call.operands)
        if of_old and isinstance(call.primitive, View) and not isinstance(call.primitive, Moving):
            parts.append(call)
        else:
            rest.append(call)
            made.update(call.outs)
    return parts, rest


# ---- where the sides meet


def merged(trace: Any, branch: Any, values: dict[int, Any]) -> dict[int, Any] | None:
    """What variables hold from where the sides of a branch meet, for those that hold another value
    then; None where what the sides leave can't be one value. `values` are those of the side that
    was taken, by the numbers of the variables."""
    other, others = branch.other.side, branch.other.values
    slots: dict[int, tuple[_Leaf, _Leaf]] = {}
    for k, x in values.items():
        if x is others[k] or _is_alike(x, others[k]):
            continue
        mine, its = _leaf(trace, x), _leaf(trace, others[k])
        if mine is None or its is None or (mine.kind, mine.aval) != (its.kind, its.aval):
            return None
        if mine.aval.shape or not _is_number(mine.kind):
            return None
        if mine.operand != its.operand:
            slots[k] = mine, its
    builder = trace.builder
    start = branch.calls + len(other.parts)
    own = Side(*_split(builder.calls[start:]), builder.guards[branch.guards + 1 :])
    if not slots and (own.guards or other.guards):
        return None
    del builder.calls[branch.calls :]
    _drop_guards(trace, branch.guards)
    first, second = sides = (own, other) if branch.truth else (other, own)
    builder.calls += _in_order(first.parts, second.parts)
    pairs = {k: pair if branch.truth else pair[::-1] for k, pair in slots.items()}
    outs = _recorded(trace, branch.guard, sides, list(pairs.values())) if slots else ()
    return {
        k: stand_in(trace, out, mine.value, mine.aval.weak)
        for (k, (mine, _)), out in zip(slots.items(), outs, strict=True)
    }


def _in_order(first: list[Call], second: list[Call]) -> list[Call]:
    """Calls of both, the first ones first if they don't need the others."""
    made = {out for call in second for out in call.outs}
    needed = any(not made.isdisjoint(call.operands) for call in first)
    return [*second, *first] if needed else [*first, *second]


def _is_alike(x: Any, y: Any) -> bool:
    """Whether two values that aren't traced are the same to any program."""
    key = exact_key(x)
    return key is not None and key == exact_key(y)


def _leaf(trace: Any, x: Any) -> _Leaf | None:
    """What a value of the program's is on the tape; None of what isn't a number or an array."""
    if isinstance(x, Tracer):
        if x._trace is not trace or x._doubt:
            return None
        operand, value = x._read()
        aval = x._aval
        return _Leaf(type(x), Aval(aval.shape, aval.dtype, x._weak), operand, value)
    if type(x) is float:
        return _Leaf(FloatTracer, Aval((), np.dtype(np.float64), True), Literal(np.float64(x)), x)
    if isinstance(x, np.generic) and x.dtype.kind in "fiub":
        aval = Aval((), x.dtype)
        return _Leaf(kind_of(x, aval), aval, Literal(x), x)
    return None


def _is_number(kind: type) -> bool:
    """Whether it is a number that nobody takes for an index or a length."""
    return issubclass(kind, (FloatTracer, ScalarTracer))


def _recorded(
    trace: Any, guard: Guard, sides: Sequence[Side], slots: Sequence[tuple[_Leaf, _Leaf]]
) -> Sequence[Operand]:
    """The conditional, whose results are what the sides leave in each of the slots."""

    def record(primitive: Any, operands: Sequence[Operand]) -> tuple[Var, ...]:
        found: tuple[Var, ...] = trace.builder.call(primitive, operands, guard.src, trace.reason)
        return found

    if not any(side.calls or side.guards for side in sides):
        return [record(ew.where, [guard.operand, a.operand, b.operand])[0] for a, b in slots]
    bodies = []
    for name, side, leaves in zip(("if", "else"), sides, zip(*slots, strict=True), strict=True):
        bodies.append(_body(f"{name}_{trace.builder.name}", side, leaves))
    return record_conditional(record, guard.operand, bodies)


def _body(name: str, side: Side, leaves: Sequence[_Leaf]) -> tuple[Tape, list[Operand]]:
    """A side as a round of a loop, which doesn't look at what is there before; and what it reads."""
    made = {out for call in side.calls for out in call.outs}
    ends = [leaf.operand for leaf in leaves]
    asked = [guard.operand for guard in side.guards]
    read = [*[x for call in side.calls for x in call.operands], *asked, *ends]
    free = list(dict.fromkeys(x for x in read if isinstance(x, Var) and x not in made))
    builder = Builder(name)
    builder.input(Aval((), np.dtype(np.int64)), "step")
    for leaf in leaves:
        builder.input(Aval(leaf.aval.shape, leaf.aval.dtype))
    env: dict[Operand, Operand] = {x: builder.input(x.aval) for x in free}
    for call in side.calls:
        outs = builder.again(call, [env.get(x, x) for x in call.operands])
        env.update(zip(call.outs, outs, strict=True))
    for guard in side.guards:
        builder.guards.append(replace(guard, operand=env.get(guard.operand, guard.operand)))
    return builder.finish([env.get(x, x) for x in ends]), list(free)


dispatch.nothing = Side([], [], [])
dispatch.refresh, dispatch.apart, dispatch.merged = refresh, apart, merged
