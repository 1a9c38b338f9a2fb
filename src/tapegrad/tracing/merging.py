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
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tapegrad.core.handlers import let_through, quiet
from tapegrad.core.statics import exact_key
from tapegrad.ir.tape import Aval, Builder, Call, Guard, Literal, Operand, Tape, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.kinds import Moving, View
from tapegrad.tracing.conditional import record_conditional
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.either import EitherTracer
from tapegrad.tracing.floating import watched
from tapegrad.tracing.observe.effects import Stopped
from tapegrad.tracing.observe.observer import observed
from tapegrad.tracing.trace import Reconsidered
from tapegrad.tracing.tracer import ArrayTracer, FloatTracer, ScalarTracer, Tracer, kind_of

# References to what one variable of a frame holds, with those that looking takes: the variable's
# own, the variables' values here, and three on the way.
_HELD = 5
_IS_SHOWN = sys.version_info < (3, 12)  # variables to debuggers, so there is one more
_LEFT = 3  # to what nobody holds but the variable of a side that was run by itself


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
    if trace.idle or trace.inside is not None or watched(trace):
        return None
    builder = trace.builder
    calls, guards, refusal = len(builder.calls), len(builder.guards), trace.refusal
    around, trace.writable = trace.writable, builder.following
    bounds = dict(trace.bounds)
    try:
        done = quiet(_run)(function, given) and trace.refusal is refusal
    finally:
        trace.writable, trace.refusal, trace.bounds = around, refusal, bounds
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
        except (Stopped, Reconsidered):
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
    kinds: dict[int, type] = {}
    for k, x in values.items():
        if x is others[k] or _is_alike(x, others[k]):
            continue
        mine, its = _leaf(trace, x), _leaf(trace, others[k])
        if mine is None or its is None:
            return None
        kind = _common(mine, its, branch.join.jump in branch.sides.unmixed)
        if mine.kind is ArrayTracer and mine.kind is its.kind and mine.aval == its.aval:
            held = _HELD + (branch.is_local(k) and _IS_SHOWN)
            free = _is_free(x, branch.first, held) and _is_free(others[k], branch.first, _LEFT)
            kind = ArrayTracer if free else None
        if kind is None:
            return None
        if mine.operand != its.operand or mine.kind is not its.kind:
            slots[k], kinds[k] = (mine, its), kind
    if ArrayTracer in kinds.values() and not (_are_apart(values) and _are_apart(others)):
        return None
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
    trace.bounds = branch.bounds
    outs = _recorded(trace, branch, sides, list(pairs.values())) if slots else ()
    _note_merged(trace, branch.sides, branch.join.jump, kinds.values())
    return {
        k: kinds[k](trace, out, _as_value(mine))
        for (k, (mine, _)), out in zip(slots.items(), outs, strict=True)
    }


def chosen(trace: Any, choice: Any) -> Any:
    """The one of two numbers that a condition chooses; None where that can't be one value."""
    guards = trace.builder.guards
    first, second = (_leaf(trace, x) for x in choice.numbers)
    if first is None or second is None or guards[-1] is not choice.guard:
        return None
    kind = _common(first, second, choice.at in choice.sides.unmixed)
    if kind is None:
        return None
    _drop_guards(trace, len(guards) - 1)
    _note_merged(trace, choice.sides, choice.at, [kind])
    guard = choice.guard
    operands = [guard.operand, second.operand, first.operand]
    (out,) = trace.builder.call(ew.where, operands, guard.src, trace.reason)
    return kind(trace, out, _as_value(second if guard.expected.value else first))


def _note_merged(trace: Any, sides: Any, jump: int, kinds: Iterable[type]) -> None:
    trace.merged.append((sides, jump))
    if EitherTracer in kinds:
        trace.mixed.append((sides, jump))


def _as_value(leaf: _Leaf) -> Any:
    return leaf.value if leaf.kind is ArrayTracer else leaf.aval.dtype.type(leaf.value)


def _is_free(x: Any, first: int, held: int) -> bool:
    """Whether an array in row-major order is one that a side has made, or that nobody has but the
    variable that holds it: another one may stand for it."""
    if x._root is not None or not x._ordered or x._may_alias or x._doubt:
        return False
    if not x._value.flags.c_contiguous:
        return False
    made = getattr(x._operand, "id", 0) >= first
    return made or sys.getrefcount(x) <= held + (id(x) in x._trace._written)


def _are_apart(values: dict[int, Any]) -> bool:
    """Whether no two variables hold parts of one array, as far as that can be seen."""
    owners = [id(x._owner) for x in values.values() if isinstance(x, ArrayTracer)]
    return len(set(owners)) == len(owners)


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
    if type(x) is int and abs(x) <= _EXACT:  # an integer that is a float, too
        return _Leaf(int, _FLOAT, Literal(np.float64(x)), x)
    if type(x) is float:
        return _Leaf(FloatTracer, _FLOAT, Literal(np.float64(x)), x)
    if isinstance(x, np.generic) and x.dtype.kind in "fiub":
        aval = Aval((), x.dtype)
        return _Leaf(kind_of(x, aval), aval, Literal(x), x)
    return None


_FLOAT = Aval((), np.dtype(np.float64), True)
_EXACT = 2**53
_EITHER = {int, FloatTracer, EitherTracer, kind_of(np.float64(0), _FLOAT)}


def _common(one: _Leaf, other: _Leaf, unmixed: bool) -> type | None:
    """What a number is that is one of these; None where they can't be one value."""
    if one.aval.shape or other.aval.shape:
        return None
    if one.kind is other.kind:
        same = one.aval == other.aval and issubclass(one.kind, (FloatTracer, ScalarTracer))
        return one.kind if same else None
    kinds = {one.kind, other.kind}
    if kinds == {FloatTracer, int}:
        return FloatTracer if not unmixed else None
    return EitherTracer if kinds <= _EITHER and not unmixed else None


def _recorded(
    trace: Any, branch: Any, sides: Sequence[Side], slots: Sequence[tuple[_Leaf, _Leaf]]
) -> Sequence[Operand]:
    """The conditional, whose results are what the sides leave in each of the slots."""
    guard, jump = branch.guard, branch.join.jump

    def record(primitive: Any, operands: Sequence[Operand]) -> tuple[Var, ...]:
        found: tuple[Var, ...] = trace.builder.call(primitive, operands, guard.src, trace.reason)
        return found

    if not any(side.calls or side.guards for side in sides):
        return [record(ew.where, [guard.operand, a.operand, b.operand])[0] for a, b in slots]
    bodies = []
    for truth, side, leaves in zip((True, False), sides, zip(*slots, strict=True), strict=True):
        name = f"{'if' if truth else 'else'}_{trace.builder.name}"
        ends = [leaf.operand for leaf in leaves]
        moving = _moving(branch.sides.numbers, (jump, truth), side, ends)
        bodies.append(_body(name, side, leaves, moving))
    return record_conditional(record, guard.operand, bodies)


# ---- a side as a round of a loop


@dataclass
class _Numbers:
    """The numbers that a side had the last time, and which of them were others before."""

    shape: list[Any]
    found: list[Operand]
    moving: set[int]


def _moving(
    known: dict[tuple[int, bool], _Numbers],
    key: tuple[int, bool],
    side: Side,
    ends: Sequence[Operand],
) -> set[int]:
    """Which of a side's operands, in order, are numbers that differ from time to time."""
    found = _read(side, ends)
    shape = [call.primitive.name for call in side.calls]
    before = known.get(key)
    moving: set[int] = set()
    if before is not None and before.shape == shape and len(before.found) == len(found):
        pairs = zip(before.found, found, strict=True)
        moving = {k for k, (x, y) in enumerate(pairs) if x != y and _are_numbers(x, y)}
        moving |= before.moving
    numbers: list[Operand] = [x if isinstance(x, Literal) else _NO_NUMBER for x in found]
    known[key] = _Numbers(shape, numbers, moving)
    return moving


_NO_NUMBER = Literal(np.bool_(False))


def _are_numbers(x: Operand, y: Operand) -> bool:
    literal = isinstance(x, Literal) and isinstance(y, Literal)
    return literal and x.aval == y.aval and x.dtype.kind == "f"


def _read(side: Side, ends: Sequence[Operand]) -> list[Operand]:
    """All that a side reads, in order."""
    asked = [guard.operand for guard in side.guards]
    return [*[x for call in side.calls for x in call.operands], *asked, *ends]


def _body(
    name: str, side: Side, leaves: Sequence[_Leaf], moving: set[int]
) -> tuple[Tape, list[Operand]]:
    """A side as a round of a loop, which doesn't look at what is there before; and what it reads:
    variables, and numbers that are `moving`."""
    made = {out for call in side.calls for out in call.outs}
    ends = [leaf.operand for leaf in leaves]
    builder = Builder(name)
    builder.input(Aval((), np.dtype(np.int64)), "step")
    for leaf in leaves:
        builder.input(Aval(leaf.aval.shape, leaf.aval.dtype))
    env: dict[Operand, Operand] = {}
    inside: list[Operand | None] = []  # of numbers that move: their input
    given: list[Operand] = []
    for k, x in enumerate(_read(side, ends)):
        moves = k in moving and isinstance(x, Literal)
        new = moves or (isinstance(x, Var) and x not in made and x not in env)
        if new:
            given.append(x)
            env[x] = var = builder.input(x.aval)
        inside.append(var if moves else None)
        if moves:
            del env[x]
    places = iter(inside)

    def known(x: Operand) -> Operand:
        moves = next(places)
        return env.get(x, x) if moves is None else moves

    for call in side.calls:
        outs = builder.again(call, [known(x) for x in call.operands])
        env.update(zip(call.outs, outs, strict=True))
    for guard in side.guards:
        builder.guards.append(replace(guard, operand=known(guard.operand)))
    return builder.finish([known(x) for x in ends]), given


dispatch.nothing = Side([], [], [])
dispatch.refresh, dispatch.apart, dispatch.merged = refresh, apart, merged
dispatch.chosen = chosen
