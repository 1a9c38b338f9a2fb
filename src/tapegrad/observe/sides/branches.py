"""Merged branches: at the join, the values of both sides become one value.

A test with both outcomes in one run is likely to have both again, in other rounds at each call. So
from then on, whenever it is reached, the side that isn't taken is run too, alone, on the values of
the program's variables (`program/joins.py`). Then the program runs its own side. At the join, the
values of all live variables are known for both sides. Where they differ, the variable is set to the
result of a conditional on the tape (`tracing.branches.merging`), and the test needs no guard.

A side must have no other effect: each of its instructions is checked (`effects.py`). The side that
isn't taken stops before an effect. If the side that is taken has one, or if the values can't be
merged, the test is guarded as any other.
"""

from __future__ import annotations

import collections
import dis
import sys
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

from tapegrad.ir.tape import Guard, Var
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects.containers import content, part, put
from tapegrad.observe.program.frames import (
    MISSING,
    local,
    names_of,
    operand,
    own,
    put_locals,
    replace,
    top_of,
)
from tapegrad.observe.program.joins import RETURNED, Join, Sides, own_names, sides_of
from tapegrad.observe.program.liveness import Flow
from tapegrad.observe.sides.appended_items import Lengths, Merging, known
from tapegrad.observe.sides.effects import Effects
from tapegrad.observe.sides.owned_objects import Replaced

FEWEST = 4  # how often a test is reached before its sides are run alone
TRIES = 8  # failed sides in a row before a test stays a guard
LONGEST = 10_000  # instructions of a side
DEEPEST = 5  # nested conditionals: each level doubles the time to differentiate

# By the number of the variable or stack entry; a function's result is `RESULT`.
Values = dict[int, Any]
RESULT = -1
PLACES = -2  # parts of containers, and items appended to lists, have numbers from here downwards


@dataclass
class SideResult:
    """The record of a side, and its values at the join."""

    side: Any  # see `tracing.branches.merging`
    values: Values
    written: dict[int, Any] = field(default_factory=dict)  # the contents of arrays, by their ids
    # The values of replaced parts of containers.
    replaced: dict[tuple[int, Any], Replaced] = field(default_factory=dict)
    appended: list[list[Any]] = field(default_factory=list)  # to each of the growing lists


class _Side:
    """A side that is under way in a frame."""

    join: Join

    def left(self, a: Activation, value: Any) -> None:
        """Record that the side's frame ends and returns `value`."""
        ended = [side for side in reversed(a.branches) if side.join.offset == RETURNED]
        a.branches = []
        if ended and a.sides is not None:
            *inner, apart = ended
            for branch in inner:
                value = branch.merged(a, {RESULT: value}).get(RESULT, value)
            apart.values = {RESULT: value}
        elif ended:
            back = a.frame.f_back
            caller = getattr(back.f_trace, "__self__", None) if back is not None else None
            if not isinstance(caller, Activation) or caller.direct is not a.frame.f_code:
                return
            at = _call_at(back)
            if at is not None:
                flow = (caller.sides or sides_of(back.f_code)).flow
                caller.returning = _Returning(ended, value, flow.next[at])


@dataclass(eq=False)
class OtherSide(_Side):
    """A side that is run alone."""

    join: Join
    code: CodeType
    sides: Sides
    lists: dict[int, list[Any]]  # the lists for items that it drops: see `Join.fills`
    values: Values | None = None
    is_endless: bool = False  # on these values, as it seems

    def entered(self, a: Activation) -> None:
        """Record that the side's frame begins."""
        a.sides, a.lowered = self.sides, self.join.base - self.sides.flow.variables
        a.branches.append(self)

    def joined(self, a: Activation) -> None:
        """Record that the side has reached the join."""
        self.values = _values(a, self.join, self.sides)


@dataclass(eq=False)
class Branch(_Side):
    """The side of a test that is taken, and is under way."""

    join: Join
    sides: Sides
    trace: Any
    guard: Guard
    truth: bool
    calls: int  # the number of calls on the tape before it,
    guards: int  # of guards before its own,
    first: int  # and its first variable
    other: SideResult
    count: int  # of effects
    written: int
    bounds: dict[Any, tuple[int, int]]  # of integers
    arrays: dict[int, Any]  # reachable from the frame's variables, with contents: by id
    lengths: Lengths  # of the growing lists
    # How often dead variables hold a value, by id.
    unread: collections.Counter[int] = field(default_factory=collections.Counter)
    replaced: int = 0  # the number of replacements before it: see `owned_objects.py`
    entries: int = PLACES  # appended items have numbers from here downwards

    def joined(self, a: Activation) -> None:
        """Merge the values: the program has reached the join."""
        found = self.merged(a, _values(a, self.join, self.sides))
        _put(a, found, self.sides.flow.variables)

    def merged(self, a: Activation, values: Values) -> Values:
        """The new values of variables, for those that change by the merge."""
        found = self._merged(a, values)
        a.o.effects.owned.ended(self)
        return found

    def _merged(self, a: Activation, values: Values) -> Values:
        effects, trace, jump = a.o.effects, self.trace, self.join.jump
        places = self._places(effects)
        values |= {k: each.value for k, (each, _) in places.items()}
        self.other.values |= {k: other for k, (_, other) in places.items()}
        appended = Merging.of(self.lengths.appended(), self.other.appended)
        self.entries = first = PLACES - len(places)
        for k, pair in enumerate(appended.pairs):
            values[first - k], self.other.values[first - k] = pair
        written = effects.written[self.written :]
        ours = all(number >= self.first or at in self.arrays for at, number in written)
        found: Values | None = None
        self.unread = _unread(a, self.join, self.sides)
        if trace.alive and trace.is_innermost and effects.count == self.count and ours:
            found = dispatch.merged(trace, self, values)
        if found is None:
            _note_failure(trace, self.sides, jump)
            return {}
        trace.failed.pop((self.sides, jump), None)
        for k in places.keys() & found.keys():
            holder, key, _ = places[k][0]
            effects.owned.replaces(a.o, holder, key)
            effects.lasting += not effects.owned.is_carried(a.o, holder)
            put(holder, key, found.pop(k))
        merged = [found.pop(first - k, known(*pair)) for k, pair in enumerate(appended.pairs)]
        self.lengths.put(appended.entries(merged))
        return found

    def _places(self, effects: Effects) -> dict[int, tuple[Replaced, Any]]:
        """The parts of containers that the sides have replaced, numbered as variables are, each
        with this side's and the other side's value."""
        own = {each.place: each for each in reversed(effects.owned.replaced[self.replaced :])}
        others = self.other.replaced
        found = {}
        for number, (place, each) in enumerate((others | own).items()):
            there = each._replace(value=part(each.holder, each.key))
            found[PLACES - number] = there, others[place].value if place in others else each.value
        return found

    def is_place(self, k: int) -> bool:
        """Whether this number is of a container's part, and not of an item appended to a list."""
        return self.entries < k <= PLACES

    def is_local(self, k: int) -> bool:
        """Whether this number is of a variable, and not of a stack entry."""
        return 0 <= k < self.sides.flow.variables


@dataclass
class _Returning:
    """Sides that have ended with their function, which has returned `value`."""

    ended: list[Any]
    value: Any
    after: int  # the instruction after the call

    def arrived(self, a: Activation) -> None:
        """Merge the values: the caller resumes."""
        a.returning, value = None, self.value
        if a.frame.f_lasti != self.after or a.top() is not value:
            return
        for branch in self.ended:
            value = branch.merged(a, {RESULT: value}).get(RESULT, value)
        if value is not self.value:
            replace(a.stack, value)


def _call_at(frame: Any) -> int | None:
    """The offset of a frame's running call, whose result is pushed next; None if it runs no
    call."""
    code, at = frame.f_code.co_code, frame.f_lasti
    while at > 0 and not code[at]:
        at -= 2
    return at if dis.opname[code[at]].startswith("CALL") else None


# ---- tests


def reached(o: Any, x: Any, trace: Any, guard: Guard) -> None:
    """Record that the truth of a traced value was read by the code whose frame is four levels
    up."""
    frame = sys._getframe(4)
    a = getattr(frame.f_trace, "__self__", None)
    if not isinstance(a, Activation) or a.o is not o or a.frame is not frame:
        return
    sides = sides_of(frame.f_code) if a.sides is None else a.sides
    flow = sides.flow
    jump = flow.test_at(frame.f_lasti)
    if not trace.is_innermost:
        return
    if jump is None:
        choose(x, a, sides, trace, guard)
        return
    if not asks_directly(flow, frame.f_lasti, a, x):
        return
    if a.turning is not None and a.turning.leaves_too(jump):
        trace.sources[sides, jump] = guard.src, False
        return  # it is guarded
    if goes_both_ways(x, trace, sides, jump, guard):
        if o.effects is None:
            o.effects = Effects()
        begin(a, sides, jump, trace, guard, o.effects)


def asks_directly(flow: Flow, offset: int, a: Activation, x: Any) -> bool:
    """Whether the truth that is read is of the jump's own operand."""
    if flow.at[offset].opname == "COMPARE_OP":  # the result's truth; its operands may be gone
        return bool(a.numbers)
    return a.top() is x


# ---- max and min


@dataclass
class _Chosen:
    """A choice of Python's `max` or `min` between two numbers; the guard tells whether it is the
    second."""

    sides: Sides
    at: int
    trace: Any
    guard: Guard
    numbers: tuple[Any, Any]
    after: int  # the instruction after the call

    def arrived(self, a: Activation) -> None:
        """Replace the result by a merged value: the program resumes."""
        a.returning, found = None, a.top()
        if a.frame.f_lasti == self.after and any(found is x for x in self.numbers):
            value = dispatch.chosen(self.trace, self)
            if value is not None:
                replace(a.stack, value)


def choose(x: Any, a: Activation, sides: Sides, trace: Any, guard: Guard) -> None:
    """Record that C code, and no jump, has read the truth of a value. If it chooses between two
    numbers, and has had both outcomes, it needs no guard."""
    at = _call_at(a.frame)
    if at is None or at in sides.apart or trace.builder.guards[-1] is not guard:
        return
    i = sides.flow.at[at]
    if (
        i.opname != "CALL"
        or i.arg != 2
        or not any(a.top(k) is f for k in (2, 3) for f in _CHOOSING)
    ):
        return
    if goes_both_ways(x, trace, sides, at, guard):
        after = sides.flow.next[at]
        a.returning = _Chosen(sides, at, trace, guard, (a.top(1), a.top(0)), after)
        if a.o.effects is None:
            a.o.effects = Effects()  # so that each instruction is checked


_CHOOSING = (max, min)


# ---- the side that isn't taken


def goes_both_ways(x: Any, trace: Any, sides: Sides, jump: int, guard: Guard) -> bool:
    """Whether a test has had both outcomes in this run, or in an earlier one. Tests of Python's
    integers count rounds, as for a first or last one, and stay guarded."""
    if jump in sides.both:
        return True
    asked = trace.asked.setdefault((sides, jump), [0, 0])
    if trace.in_frame:
        trace.sources[sides, jump] = guard.src, _is_of_integers(x, trace, guard)
    asked[bool(guard.expected.value)] += 1
    if all(asked) and sum(asked) >= FEWEST and not _is_of_integers(x, trace, guard):
        sides.both.add(jump)
    return jump in sides.both


def _is_of_integers(x: Any, trace: Any, guard: Guard) -> bool:
    """Whether a condition depends on Python's integers alone."""
    calls = [call for call in trace.builder.calls[-2:] if guard.operand in call.outs]
    read = [v for call in calls for v in call.operands if isinstance(v, Var)]
    return bool(x._weak and read) and all(v.dtype.kind in "ib" for v in read)


def begin(
    a: Activation,
    sides: Sides,
    jump: int,
    trace: Any,
    guard: Guard,
    effects: Effects,
    last_of: int | None = None,
) -> bool:
    """Run the side that isn't taken of a merged test, and begin the other one. Returns whether that
    was possible. The test may be the final one of the `for` statement `last_of`."""
    join = sides.join(jump) if last_of is None else sides.last_join(last_of, jump)
    builder = trace.builder
    if join is None or jump in sides.apart or trace.failed.get((sides, jump), 0) >= TRIES:
        return False
    if builder.guards[-1] is not guard:  # it is an earlier guard
        return False
    a.branches = [b for b in a.branches if jump in b.join.region]  # others were left by errors
    if _depth(a) >= DEEPEST:
        return False
    trace.forget_guard(guard)  # both sides have guards of their own for the same test
    truth = taken = bool(guard.expected.value)
    if last_of is not None:  # the guard is on staying in the loop
        taken = truth is sides.flow.exits[jump].stays
    given = [local(a.address, k) for k in range(len(own_names(sides.flow.code)))]
    arrays = dispatch.arrays(trace, map(content, given))
    calls, guards, first = len(builder.calls), len(builder.guards) - 1, builder.following
    bounds = dict(trace.bounds)
    count, written, lasting = effects.count, len(effects.written), effects.lasting
    lengths, lists = Lengths(effects.growing), _lists(a, join)
    if not all(any(x is grown for grown in effects.growing) for x in lists.values()):
        return False
    other = _apart(a, sides, join, not taken, trace, given, arrays, lists)
    del given
    effects.count, effects.lasting = count, lasting
    del effects.written[written:]
    appended = lengths.take_back()
    if other is None:
        _note_failure(trace, sides, jump)
        return False
    other.appended = appended
    marks, since = (calls, guards, first), (count, written)
    branch = Branch(
        join, sides, trace, guard, truth, *marks, other, *since, bounds, arrays, lengths
    )
    branch.replaced = effects.owned.begins(branch)
    a.branches.append(branch)
    return True


def _depth(a: Activation) -> int:
    """The number of sides that this frame runs in, including those of its callers."""
    depth, frame = 0, a.frame
    while frame is not None:
        if frame.f_code is _apart.__code__:
            depth += 1
        elif isinstance(follower := getattr(frame.f_trace, "__self__", None), Activation):
            depth += len(follower.branches)
        frame = frame.f_back
    return depth


def _apart(
    a: Activation,
    sides: Sides,
    join: Join,
    truth: bool,
    trace: Any,
    given: list[Any],
    arrays: dict[int, Any],
    lists: dict[int, list[Any]],
) -> SideResult | None:
    """The result of the side that isn't taken, run on these variables; None if it can't be
    determined."""
    flow = sides.flow
    target = flow.branch(join.jump, truth)
    if target == join.offset:
        return SideResult(dispatch.nothing, _values(a, join, sides))
    if not a.users:
        return None  # its changes wouldn't be seen
    cells = a.function.__closure__ if a.function is not None else None
    if len(cells or ()) != len(flow.code.co_freevars):
        return None
    if any(given[k] is MISSING for k in flow.live(target)):
        return None
    code = join.codes[truth]
    function = FunctionType(code, a.frame.f_globals, code.co_name, None, cells)
    o = a.o
    apart = OtherSide(join, code, sides, lists)
    o.made.add(code)
    around, o.apart = o.apart, apart
    stopping, o.effects.most = o.effects.most, o.effects.steps + LONGEST
    before = o.effects.owned.begins(apart)
    filled = [(x, content(x)) for x in given if content(x) is not x]
    try:
        found = dispatch.apart(trace, function, given, arrays)
    finally:
        o.apart, o.effects.most = around, stopping
        replaced = o.effects.owned.put_back(before)
        for cell, x in filled:  # the cell may hold a replacement of the value
            cell.cell_contents = x
        o.effects.owned.ended(apart)
    if apart.is_endless:
        sides.apart.add(join.jump)
    if found is None or apart.values is None:
        return None
    left = found.real({place: each.value for place, each in replaced.items()})
    replaced = {place: each._replace(value=left[place]) for place, each in replaced.items()}
    return SideResult(found.side, found.real(apart.values), found.written, replaced)


def _lists(a: Activation, join: Join) -> dict[int, list[Any]]:
    """The lists of comprehensions that sides append to, by the offset of the append."""
    if a.sides is not None:
        return {at: a.o.apart.lists[at] for at in join.fills}
    return {at: operand(a.address + top_of(k + 1), 0) for at, k in join.fills.items()}


def _note_failure(trace: Any, sides: Sides, jump: int) -> None:
    trace.failed[sides, jump] = trace.failed.get((sides, jump), 0) + 1


def _values(a: Activation, join: Join, sides: Sides) -> Values:
    """The values of a frame's live variables and stack entries at the join."""
    code = sides.flow.code
    live = sorted(sides.flow.live(join.offset))
    found = {k: local(a.address, k) for k in live if code.co_varnames[k] not in code.co_cellvars}
    for k in range(join.base, join.top):
        own(at := a.address + top_of(k + 1 - a.lowered))
        found[k] = operand(at, 0)
    return found


def _unread(a: Activation, join: Join, sides: Sides) -> collections.Counter[int]:
    """How often the dead variables at the join hold a value, by its id."""
    if join.offset == RETURNED:
        return collections.Counter()
    code, live = sides.flow.code, sides.flow.live(join.offset)
    names = names_of(a.address)
    shown = names if type(names) is dict else {}  # the variables when `f_locals` was read
    held = []
    for k, name in enumerate(code.co_varnames):
        x = local(a.address, k)
        if k not in live and name not in code.co_cellvars:
            held.append(id(x))
        if name in shown and (k not in live or shown[name] is not x):
            held.append(id(shown[name]))
    return collections.Counter(held)


def _put(a: Activation, values: Values, variables: int) -> None:
    """Set variables and stack entries to these values."""
    put_locals(a.frame, {k: x for k, x in values.items() if k < variables})
    for k, x in values.items():
        if k >= variables:
            replace(a.address + top_of(k + 1 - a.lowered), x)
