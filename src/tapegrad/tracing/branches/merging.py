"""Conditionals that are seen while a function runs: two sides of a branch as two loops on the tape.

    %3 = greater(%1, %2)                  %5 = loop(int(%3), %empty, %2, if_f)
    guard %3 = True              -->      %6 = loop(int(not %3), %5, %2, else_f)
    %4 = mul(%2, 0.9)

What a side has recorded is taken from the tape, and becomes the body of a loop of one round or
none, as in `tracing.branches.cond`. Parts of arrays are taken in front of it: which part it is may
differ from round to round of a loop around, where the sides are to be the same. What a variable
holds that differs between the sides is a result of both, if it is a number, or an array that nobody
else has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through, quiet
from tapegrad.core.statics import exact_key
from tapegrad.ir.tape import Aval, Call, Literal, Operand, Var
from tapegrad.observe.activations.reconsidered import Reconsidered
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects.containers import content
from tapegrad.observe.observer import observed
from tapegrad.observe.program.source import at_line
from tapegrad.observe.sides.appends import ABSENT
from tapegrad.observe.sides.effects import Stopped
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.control import tells
from tapegrad.primitives.views import BroadcastTo
from tapegrad.tracing.branches.conditional import record_conditional
from tapegrad.tracing.branches.sides import Leaf, Side, body_of, moving_numbers, reading, split
from tapegrad.tracing.branches.writes import Lift, read_through, writes_of
from tapegrad.tracing.recording.chains import show
from tapegrad.tracing.recording.trace import traces_under_way
from tapegrad.tracing.runs.floating import watched
from tapegrad.tracing.tracers.either import EitherTracer, IntegerOrFloat
from tapegrad.tracing.tracers.tracer import (
    ArrayTracer,
    BoolTracer,
    FloatTracer,
    IntTracer,
    NumberTracer,
    ScalarTracer,
    Tracer,
    kind_of,
)

# References to what one variable of a frame holds, with those that looking takes: the variable's
# own, the variables' values here, and three on the way; and what the frame shows of its own.
_HELD = 5
_LEFT = 3  # to what nobody holds but the variable of a side that was run by itself


# ---- the side that isn't taken


def arrays_of(trace: Any, values: Iterable[Any]) -> dict[int, tuple[Any, Operand]]:
    """The arrays that variables hold, or parts of them, by id, with what they stand for now. Parts
    that have become stale are read, before either side does."""
    found = {}
    for x in values:
        if isinstance(x, Tracer) and x._trace is trace and not x._owner._doubt:
            x._read()
            if isinstance(x, ArrayTracer):
                found[id(x._owner)] = x._owner, x._owner._operand
    return found


@dataclass
class _Apart:
    """A side that was run by itself, on arrays that stand for those of the program's."""

    side: Side
    others: list[tuple[Any, Any]]  # these, and the program's
    written: dict[int, Operand]  # what those that were written to hold then: by the program's ids

    def real(self, values: dict[int, Any]) -> dict[int, Any]:
        """The program's variables in the place of those that stood for them."""
        known = {id(x): real for x, real in self.others}
        return {k: known.get(id(x), x) for k, x in values.items()}


def apart(
    trace: Any,
    function: Callable[..., Any],
    given: Sequence[Any],
    arrays: dict[int, tuple[Any, Operand]],
) -> _Apart | None:
    """What a function records that isn't called by the program; None if it does what it mustn't.
    It may write to arrays that it is given, and to its own; if it comes to one of them by another
    way then, it would read what was there before. The parts of arrays that it has taken stay on the
    tape."""
    if trace.idle or trace.inside is not None or watched(trace):
        return None
    if any(isinstance(x, Tracer) and x._subclass is not None for x in given):
        return None  # with methods of its own
    if any(id(getattr(x, "_root", None)) in arrays and x._trace is not trace for x in given):
        return None  # it shows a part, from before a loop, of what the round carries
    builder, first = trace.builder, trace.builder.following
    calls, guards = len(builder.calls), len(builder.guards)
    refusal, raised, trace.raised = trace.refusal, trace.raised, ""
    bounds, written = dict(trace.bounds), set(trace._written)
    held = list(map(content, given))
    others = _stand_ins(trace, held, arrays)
    known = {id(real): x for x, real in others}
    free = {id(x): real for x, real in others}
    around, calm, supposing = trace.writable, trace.calm, trace.supposing

    def may_write(x: Any) -> bool:
        if id(x) in free:
            free[id(x)]._doubt = at_line() or " "
            if around is not None:
                around(free[id(x)])
        return id(x) in free or getattr(x._operand, "id", 0) >= first

    trace.writable, trace.supposing = may_write, True
    for cell, x in zip(given, held, strict=True):
        if cell is not x:
            cell.cell_contents = known.get(id(x), x)
    try:
        done = quiet(_run)(function, [known.get(id(x), x) for x in given])
        done = done and trace.refusal is refusal and not trace.raised
    finally:
        trace.writable, trace.refusal, trace.raised = around, refusal, raised
        trace.supposing = supposing
        trace.bounds, trace.calm = bounds, calm
        for real, _ in arrays.values():
            real._doubt = ""
        for k in trace._written.keys() - written:
            del trace._written[k]
        parts, rest = split(builder.calls[calls:])
        side = Side(parts, rest, builder.guards[guards:])
        builder.calls[calls:] = parts
        trace.take_back(guards)
    if not done:
        return None
    left = {id(real): x._operand for x, real in others if x._root is None and x._version > 0}
    return _Apart(side, others, left)


def _stand_ins(
    trace: Any, given: Sequence[Any], arrays: dict[int, tuple[Any, Operand]]
) -> list[tuple[Any, Any]]:
    """Arrays that stand for those of the program's, and for parts of them: what is written to them
    stays there."""
    found = {}
    for at, (real, _) in arrays.items():
        if not real._may_alias:
            found[at] = x = _array(trace, real._operand, real._value)
            x._ordered = real._ordered
    pairs = [(x, arrays[at][0]) for at, x in found.items()]
    for x in given:
        root = found.get(id(getattr(x, "_root", None)))
        if isinstance(x, ArrayTracer) and root is not None:
            part = _array(trace, x._operand, x._value)
            show(part, root, x._chain)
            part._ordered = x._ordered
            pairs.append((part, x))
    return pairs


def _array(trace: Any, operand: Operand, value: Any) -> Any:
    return ArrayTracer(trace, operand, value)  # type: ignore[abstract]


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


# ---- where the sides meet


def merged(trace: Any, branch: Any, values: dict[int, Any]) -> dict[int, Any] | None:
    """What variables hold from where the sides of a branch meet, for those that hold another value
    then; None where what the sides leave can't be one value. `values` are those of the side that
    was taken, by the numbers of the variables."""
    other, others = branch.other.side, branch.other.values
    slots: dict[int, tuple[Leaf, Leaf]] = {}
    kinds: dict[int, type] = {}
    for k, x in values.items():
        if x is others[k] or _is_alike(x, others[k]):
            continue
        mine, its = _leaf(trace, x), _leaf(trace, others[k])
        if x is ABSENT:
            mine = _like(trace, its)
        if others[k] is ABSENT:
            its = _like(trace, mine)
        if mine is None or its is None:
            return None
        mine, its = _as_integers(mine, its)
        kind = _common(mine, its, branch.join.jump in branch.sides.unmixed)
        if mine.kind is ArrayTracer and mine.kind is its.kind and mine.aval == its.aval:
            held = _HELD + branch.is_local(k)
            free = (
                not branch.is_place(k)
                and (x is ABSENT or _is_free(x, branch, held))
                and (others[k] is ABSENT or _is_free(others[k], branch, _LEFT))
            )
            kind = ArrayTracer if free else None
        if kind is None:
            return None
        if mine.operand != its.operand or mine.kind is not its.kind or kind is ArrayTracer:
            slots[k], kinds[k] = (mine, its), kind
    if ArrayTracer in kinds.values() and not (_are_apart(values) and _are_apart(others)):
        return None
    builder = trace.builder
    if builder.guards[branch.guards] is not branch.guard:
        return None
    start = branch.calls + len(other.parts)
    own = Side(*split(builder.calls[start:]), builder.guards[branch.guards + 1 :])
    own, known = read_through(own)
    other, its_known = read_through(other)
    slots = {k: (_read_as(a, known), _read_as(b, its_known)) for k, (a, b) in slots.items()}
    both = (own, other) if branch.truth else (other, own)
    made: dict[Any, Call] = {out: c for side in both for c in side.calls for out in c.outs}
    lift = Lift(trace, made, branch.guard.src)
    writes = writes_of(branch, both, 0 if branch.truth else 1, lift)
    if writes is None or (not slots and not writes and (own.guards or other.guards)):
        return None
    del builder.calls[branch.calls :]
    trace.take_back(branch.guards)
    moved = {id(call) for write in writes for call in write.calls}
    same = _put_once(trace, _in_order(both[0].parts, both[1].parts))
    sides = [
        reading(side._replace(calls=[c for c in side.calls if id(c) not in moved]), same)
        for side in both
    ]
    slots = {k: (_read_as(a, same), _read_as(b, same)) for k, (a, b) in slots.items()}
    pairs = [pair if branch.truth else pair[::-1] for pair in slots.values()]
    lift.known |= same
    left = [pair for write in writes for pair in write.leaves(lift, branch.guard.operand)]
    pairs += [(_read_as(a, same), _read_as(b, same)) for a, b in left]
    if not pairs and any(tells(call.primitive) for side in sides for call in side.calls):
        pairs = [(_NOTHING, _NOTHING)]
    trace.bounds = branch.bounds
    outs = _recorded(trace, branch, sides, pairs) if pairs else ()
    _note_merged(trace, branch.sides, branch.join.jump, kinds.values())
    results = iter(outs)
    found = {k: kinds[k](trace, next(results), _as_value(mine)) for k, (mine, _) in slots.items()}
    for write in writes:
        write.put(lift, results)
    return found


def _put_once(trace: Any, parts: Sequence[Call]) -> dict[Operand, Operand]:
    """Record each part of an array once; what there is in the place of what there was."""
    known: dict[Any, Operand] = {}
    same: dict[Operand, Operand] = {}
    for call in parts:
        operands = tuple([same.get(x, x) for x in call.operands])
        key = call.primitive, operands
        if key not in known:
            avals = [call.out.aval]
            made = trace.builder.define(call.primitive, operands, avals, call.src, call.reason)
            (known[key],) = made
        same[call.out] = known[key]
    return same


def _read_as(leaf: Leaf, known: dict[Operand, Operand]) -> Leaf:
    return leaf._replace(operand=known.get(leaf.operand, leaf.operand))


def chosen(trace: Any, choice: Any) -> Any:
    """The one of two numbers that a condition chooses; None where that can't be one value."""
    guards = trace.builder.guards
    first, second = (_leaf(trace, x) for x in choice.numbers)
    if first is None or second is None or guards[-1] is not choice.guard:
        return None
    first, second = _as_integers(first, second)
    kind = _common(first, second, choice.at in choice.sides.unmixed)
    if kind is None:
        return None
    trace.take_back(len(guards) - 1)
    _note_merged(trace, choice.sides, choice.at, [kind])
    guard = choice.guard
    operands = [guard.operand, second.operand, first.operand]
    (out,) = trace.builder.call(ew.where, operands, guard.src, trace.reason)
    return kind(trace, out, _as_value(second if guard.expected.value else first))


def _note_merged(trace: Any, sides: Any, jump: int, kinds: Iterable[Any]) -> None:
    trace.merged.append((sides, jump))
    if any(kind._either for kind in kinds):
        trace.mixed.append((sides, jump))


def _as_value(leaf: Leaf) -> Any:
    return leaf.value if leaf.kind is ArrayTracer else leaf.aval.dtype.type(leaf.value)


def _is_free(x: Any, branch: Any, held: int) -> bool:
    """Whether an array in row-major order is one that a side has made, or that nobody has but the
    variable that holds it: another one may stand for it."""
    if x._root is not None or not x._ordered or x._may_alias or x._doubt:
        return False
    if not x._value.flags.c_contiguous:
        return False
    known = branch.arrays.get(id(x))
    if known is not None and (x._operand != known[1] or id(x) in branch.other.written):
        return False  # it was written to
    made = getattr(x._operand, "id", 0) >= branch.first
    held += (known is not None) + (id(x) in x._trace._written) + branch.unread[id(x)]
    held += _held_by_rounds(id(x))
    return made or sys.getrefcount(x) <= held


def _held_by_rounds(at: int) -> int:
    """How often rounds that are under way hold what variables do."""
    known = [each.holding for each in traces_under_way() if each.holding is not None]
    return sum(holding[at] for holding in known)


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


def _leaf(trace: Any, x: Any) -> Leaf | None:
    """What a value of the program's is on the tape; None of what isn't a number or an array."""
    if isinstance(x, Tracer):
        if x._trace is not trace or x._doubt or x._root is not None:
            return None
        aval = Aval(x._aval.shape, x._aval.dtype, x._weak)
        return Leaf(type(x), aval, x._operand, x._value)
    if type(x) is int and abs(x) <= _EXACT:  # an integer that is a float, too
        return Leaf(int, _FLOAT, Literal(np.float64(x)), x)
    if type(x) is float:
        return Leaf(FloatTracer, _FLOAT, Literal(np.float64(x)), x)
    if type(x) is bool:
        return Leaf(BoolTracer, _BOOL, Literal(np.bool_(x)), x)
    if (
        isinstance(x, np.generic) and x.dtype.kind in "fiub"
    ):  # complex numbers aren't what branches leave
        aval = Aval((), x.dtype)
        return Leaf(kind_of(x, aval), aval, Literal(x), x)
    return None


def _like(trace: Any, leaf: Leaf | None) -> Leaf | None:
    """What stands for a number or array of this type that a side doesn't make."""
    if leaf is None:
        return None
    shape, zero = leaf.aval.shape, leaf.aval.dtype.type(0)
    if leaf.kind is not ArrayTracer:
        return Leaf(leaf.kind, leaf.aval, Literal(zero), zero)
    (out,) = trace.builder.call(BroadcastTo(shape), [Literal(zero)], None, trace.reason)
    return Leaf(leaf.kind, leaf.aval, out, np.zeros(shape, leaf.aval.dtype))


def _as_integers(one: Leaf, other: Leaf) -> tuple[Leaf, Leaf]:
    """Two numbers; if both are integers of Python's, as that."""
    if {one.kind, other.kind} <= {int, IntTracer}:
        one, other = (
            Leaf(IntTracer, _INT, Literal(np.int64(x.value)), x.value) if x.kind is int else x
            for x in (one, other)
        )
    return one, other


_FLOAT = Aval((), np.dtype(np.float64), True)
_INT = Aval((), np.dtype(np.int64), True)
_BOOL = Aval((), np.dtype(np.bool_), True)
_NOTHING = Leaf(IntTracer, _INT, Literal(np.int64(0)), 0)
_EXACT = 2**53
_REALS = {FloatTracer, EitherTracer, kind_of(np.float64(0), _FLOAT)}
_NUMBERS = {int, IntegerOrFloat, *_REALS}


def _common(one: Leaf, other: Leaf, unmixed: bool) -> type | None:
    """What a number is that is one of these; None where they can't be one value."""
    if one.aval.shape or other.aval.shape:
        return None
    if one.kind is other.kind:
        same = one.aval == other.aval and issubclass(one.kind, (NumberTracer, ScalarTracer))
        return one.kind if same else None
    kinds = {one.kind, other.kind}
    if unmixed or not kinds <= _NUMBERS:
        return None
    return EitherTracer if kinds <= _REALS else IntegerOrFloat


def _recorded(
    trace: Any, branch: Any, sides: Sequence[Side], slots: Sequence[tuple[Leaf, Leaf]]
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
        moving = moving_numbers(branch.sides.numbers, (jump, truth), side, ends)
        bodies.append(body_of(name, side, leaves, moving))
    return record_conditional(record, guard.operand, bodies)


dispatch.nothing = Side([], [], [])
dispatch.arrays, dispatch.apart, dispatch.merged = arrays_of, apart, merged
dispatch.chosen = chosen
