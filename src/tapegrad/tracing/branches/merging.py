"""Conditionals found in plain `if` statements: the two sides of a branch as two loops on the tape.

    %3 = greater(%1, %2)          %5 = loop(int(%3), %empty, %2, if_f)
    guard %3 = True         -->   %6 = loop(int(not %3), %5, %2, else_f)
    %4 = mul(%2, 0.9)

The calls that a side has recorded are taken from the tape, and become the body of a loop of one
round or none, as in `tracing.branches.cond`. Parts of arrays are read in front of the loop: which
part may differ between the rounds of a loop around, where the sides have to be equal. A variable
whose value differs between the sides is a result of the conditional (a merge), if it is a number,
or an array that nothing else refers to.
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
from tapegrad.observe.activations.retracing import Retrace
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects.containers import content
from tapegrad.observe.observer import observed
from tapegrad.observe.program.frames import COUNTED
from tapegrad.observe.program.source import at_line
from tapegrad.observe.sides.appended_items import ABSENT
from tapegrad.observe.sides.effects import Stopped
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.control import tells
from tapegrad.primitives.views import BroadcastTo
from tapegrad.tracing.branches.bodies import Leaf, Side, body_of, moving_numbers, reading, split
from tapegrad.tracing.branches.conditional import record_conditional
from tapegrad.tracing.branches.writes import Lift, read_through, writes_of
from tapegrad.tracing.recording.chains import show
from tapegrad.tracing.recording.trace import traces_under_way
from tapegrad.tracing.runs.floating_errors import watched
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
from tapegrad.tracing.tracers.union_numbers import IntegerOrFloat, UnionTracer

# The number of references to the value of a frame's variable when they are counted: the variable
# itself, `values` here, and three temporary ones, two of them in calls; without those that the
# frame shows.
_OWN_REFERENCES = 3 + 2 * COUNTED
_LEFT = 2 + COUNTED  # to the value of a variable of a side that was run by itself


# ---- the side that isn't taken


def arrays_of(trace: Any, values: Iterable[Any]) -> dict[int, tuple[Any, Operand]]:
    """The arrays that variables hold, or hold parts of, by id, with their present operands. Stale
    parts are read now, before either side runs."""
    found = {}
    for x in values:
        if isinstance(x, Tracer) and x._trace is trace and not x._owner._doubt:
            x._read()
            if isinstance(x, ArrayTracer):
                found[id(x._owner)] = x._owner, x._owner._operand
    return found


@dataclass
class _OtherSide:
    """A side that was run by itself, on copies of the program's arrays."""

    side: Side
    others: list[tuple[Any, Any]]  # pairs of a copy and the program's array
    written: dict[int, Operand]  # the final operands of written arrays, by the ids of the program's

    def real(self, values: dict[int, Any]) -> dict[int, Any]:
        """The values of variables, with the program's arrays in the place of copies."""
        known = {id(x): real for x, real in self.others}
        return {k: known.get(id(x), x) for k, x in values.items()}


def run_other_side(
    trace: Any,
    function: Callable[..., Any],
    given: Sequence[Any],
    arrays: dict[int, tuple[Any, Operand]],
) -> _OtherSide | None:
    """Record a function that the program doesn't call; None if it has an effect that isn't
    supported.

    It may write to arrays that it is given, and to its own. If it then reached one of the given
    arrays by another way, it would read the old contents, which is an error. Its reads of parts of
    arrays stay on the tape."""
    if trace.idle or trace.inside is not None or watched(trace):
        return None
    if any(isinstance(x, Tracer) and x._subclass is not None for x in given):
        return None  # it may override methods
    if any(id(getattr(x, "_root", None)) in arrays and x._trace is not trace for x in given):
        return None  # it is a view, from before a loop, of an array that the round carries
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
    return _OtherSide(side, others, left)


def _stand_ins(
    trace: Any, given: Sequence[Any], arrays: dict[int, tuple[Any, Operand]]
) -> list[tuple[Any, Any]]:
    """Copies of the program's arrays and of their views, for writes of their own."""
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
        except (Stopped, Retrace):
            return False
        except Exception as error:
            let_through(error)
            return False
        finally:
            sys.settrace(follower)
    return True


# ---- where the sides meet


def merged(trace: Any, branch: Any, values: dict[int, Any]) -> dict[int, Any] | None:
    """The merged values of variables behind a branch, where its sides leave different ones; None if
    one can't be merged. `values` are those of the taken side, by the numbers of the variables."""
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
            held = _OWN_REFERENCES + branch.is_local(k)
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
    """Record each part of an array once, and return the mapping from the sides' variables to the
    new ones."""
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
    """The choice of one of two numbers by a condition; None if they can't be merged."""
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
    """Whether a row-major array was made by a side, or only its variable refers to it, so that a
    merged array may replace it."""
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
    """The number of references to an object from the rounds under way."""
    known = [each.holding for each in traces_under_way() if each.holding is not None]
    return sum(holding[at] for holding in known)


def _are_apart(values: dict[int, Any]) -> bool:
    """Whether no two variables are known to hold views of one array."""
    owners = [id(x._owner) for x in values.values() if isinstance(x, ArrayTracer)]
    return len(set(owners)) == len(owners)


def _in_order(first: list[Call], second: list[Call]) -> list[Call]:
    """The calls of both lists, in an order that respects dependencies; the first list comes first
    if possible."""
    made = {out for call in second for out in call.outs}
    needed = any(not made.isdisjoint(call.operands) for call in first)
    return [*second, *first] if needed else [*first, *second]


def _is_alike(x: Any, y: Any) -> bool:
    """Whether two untraced values can't be told apart by any program."""
    key = exact_key(x)
    return key is not None and key == exact_key(y)


def _leaf(trace: Any, x: Any) -> Leaf | None:
    """A value of the program as a leaf on the tape; None unless it is a number or an array."""
    if isinstance(x, Tracer):
        if x._trace is not trace or x._doubt or x._root is not None:
            return None
        aval = Aval(x._aval.shape, x._aval.dtype, x._weak)
        return Leaf(type(x), aval, x._operand, x._value)
    if type(x) is int and abs(x) <= _EXACT:  # an integer that is exact as a float
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
    """A leaf of zeros for a number or array that a side doesn't define."""
    if leaf is None:
        return None
    shape, zero = leaf.aval.shape, leaf.aval.dtype.type(0)
    if leaf.kind is not ArrayTracer:
        return Leaf(leaf.kind, leaf.aval, Literal(zero), zero)
    (out,) = trace.builder.call(BroadcastTo(shape), [Literal(zero)], None, trace.reason)
    return Leaf(leaf.kind, leaf.aval, out, np.zeros(shape, leaf.aval.dtype))


def _as_integers(one: Leaf, other: Leaf) -> tuple[Leaf, Leaf]:
    """Two numbers; if both are Python integers, as traced ones."""
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
_REALS = {FloatTracer, UnionTracer, kind_of(np.float64(0), _FLOAT)}
_NUMBERS = {int, IntegerOrFloat, *_REALS}


def _common(one: Leaf, other: Leaf, unmixed: bool) -> type | None:
    """The class of a number merged from two; None if they can't be merged."""
    if one.aval.shape or other.aval.shape:
        return None
    if one.kind is other.kind:
        same = one.aval == other.aval and issubclass(one.kind, (NumberTracer, ScalarTracer))
        return one.kind if same else None
    kinds = {one.kind, other.kind}
    if unmixed or not kinds <= _NUMBERS:
        return None
    return UnionTracer if kinds <= _REALS else IntegerOrFloat


def _recorded(
    trace: Any, branch: Any, sides: Sequence[Side], slots: Sequence[tuple[Leaf, Leaf]]
) -> Sequence[Operand]:
    """Record the conditional and return its results, one for each pair of leaves."""
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
dispatch.arrays, dispatch.apart, dispatch.merged = arrays_of, run_other_side, merged
dispatch.chosen = chosen
