"""Python's `while`, of which one round is traced for all.

    while abs(x * x - a) > 1e-9:   %going = greater(...)
        x = 0.5 * (x + a / x)  -->    loop(most, %going, %x, %a, body, until=True)

The observer sees the program test a traced value where the test may leave a loop. There a round
begins, and it ends where the test is reached again: the frame is told that the condition holds
while rounds are traced, as in `for_statement.py`, and then that it doesn't. So a round is the
execution between two evaluations of the test, wherever in the loop that is, and the variables are
those at the last one. `while a and b` has one test of both; guards of `b` apply where `a` holds.

If a round does more than that allows, the trace is repeated, and all rounds are made. The same
holds if the loop is left in another way, unless no round does so for these values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.errors import TapegradError, TraceError
from tapegrad.ir.inputs import known_from, renumbered
from tapegrad.ir.tape import Builder, Literal, Operand, Tape
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.program.exits import Exit
from tapegrad.observe.program.frames import operand, top_of
from tapegrad.observe.program.joins import Sides, sides_of
from tapegrad.observe.program.liveness import Flow, flow_of
from tapegrad.observe.program.source import at_line, user_source
from tapegrad.observe.queries import changes, effects_in, streams
from tapegrad.observe.sides.branches import asks_directly, begin
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.loops import Loop
from tapegrad.tracing.loops.failed_guards import recorded
from tapegrad.tracing.loops.rounds import FIRST, Round, typed
from tapegrad.tracing.loops.stacking import empty_stacks, with_stacks
from tapegrad.tracing.loops.trip_count import (
    FEWEST,
    UNBOUNDED,
    recorded_until,
    room_of,
    rounds_until,
)
from tapegrad.tracing.recording.trace import Trace, current_trace, traces_under_way
from tapegrad.tracing.statements.for_with_exit import EntriesWithExit
from tapegrad.tracing.statements.frame_rounds import (
    FrameRounds,
    RecordedLoop,
    each_round,
    is_long,
    retrace_with,
    with_idle,
)
from tapegrad.tracing.statements.growing_lists import Growing
from tapegrad.tracing.statements.round_draws import Drawing
from tapegrad.tracing.statements.variables import (
    Arrays,
    trace_numbers,
    trace_stored,
)
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, stand_in, to_operand

Rounds = Generator[Any, Any, None]


def asked(o: Any, x: Tracer, condition: Tracer, found: bool) -> bool | None:
    """The truth value for the program; None for the actual one of a traced value, guarded."""
    frame = sys._getframe(4)  # called for the caller of Python's __bool__
    a = getattr(frame.f_trace, "__self__", None)
    if not isinstance(a, Activation) or a.o is not o or a.frame is not frame:
        return None
    if a.sides is not None or o.apart is not None:
        return None
    sides = sides_of(frame.f_code)
    jump = sides.flow.test_at(frame.f_lasti)
    if jump is None or not sides.flow.loops:
        return None
    if not asks_directly(sides.flow, frame.f_lasti, a, x):
        return None
    trace, under_way = current_trace(), a.turning
    if trace is not None:
        trace.holds = None
    if under_way is not None and jump in under_way.exit.body:
        heard = under_way.asked(jump, condition, found)
        if heard is not None:
            return heard
    return _begin(a, sides, jump, condition, found)


def _begin(a: Activation, sides: Sides, jump: int, condition: Tracer, found: bool) -> bool | None:
    """Begin a loop here, if one round may be traced for all."""
    flow, trace, around = sides.flow, current_trace(), a.turning
    exit_ = flow.exit_of(jump)
    if exit_ is None or trace is None:
        return None
    is_idle = found is not exit_.stays  # no round here, but in other rounds of an outer loop
    if is_idle and not (trace.in_frame and jump in sides.both and flow.leads_on(jump) is None):
        return None
    if not may_begin(a, sides, exit_) or (around is not None and around.may_leave(jump)):
        return None
    going, before = condition if exit_.stays else ew.logical_not(condition), a.asked
    a.asked = None
    if flow.leads_on(jump) is not None:  # the test behind it decides
        trace.holds = None if is_idle else going
        trace_stored(a.frame, jump, trace)
        operand = to_operand(trace, condition)[0]
        a.asked = jump, going, operand, len(trace.builder.guards), _changes(a)
        return None
    if before is not None and flow.leads_on(before[0]) == jump:
        _, first, operand, count, changes_before = before
        is_known = changes_before == _changes(a)
        if is_known and (len(trace.builder.guards) == count or _taken_back(trace, operand, count)):
            going = ew.logical_and(first, going)
    for each in traces_under_way():
        each.counted.append((sides, jump))
    a.turning = WhileStatement(a, sides, jump, exit_, trace, going)
    return a.turning.begun()


def _changes(a: Activation) -> tuple[int, int] | None:
    """Counts of changes: a test that is evaluated depending on others must not change anything."""
    effects = a.o.effects
    return None if effects is None else (effects.count, len(effects.written))


def _taken_back(trace: Trace, operand: Operand, count: int) -> bool:
    """Take back the guard on an operand, if it is the only one after the first `count`."""
    guards = trace.builder.guards
    if [guard.operand for guard in guards[count:]] != [operand]:
        return False
    trace.take_back(count)
    return True


def may_begin(a: Activation, sides: Sides, exit_: Exit) -> bool:
    """Whether a loop that this test leaves may be traced for one round."""
    flow, trace = sides.flow, current_trace()
    if trace is None or trace.idle or not exit_.places.isdisjoint(sides.unrolled):
        return False
    if sides.exits.is_other(exit_):
        return False
    if a.sides is not None or a.o.apart is not None or changes(a.frame) is None:
        return False
    if any(exit_.places & b.join.region and not exit_.body <= b.join.region for b in a.branches):
        return False  # a side of a branch leaves the loop
    return flow.iterator_of(exit_) is None or _entries(a, flow, exit_) is not None


def _entries(a: Activation, flow: Flow, exit_: Exit) -> EntriesWithExit | None:
    """The iterator of a `for` statement, if one round may be traced for all."""
    place = flow.iterator_of(exit_)
    if place is None:
        return None
    found = operand(a.address + top_of(flow.height(place)), 0)
    return found if isinstance(found, EntriesWithExit) and found.may_be_rounds else None


class WhileStatement:
    """A loop of which a frame makes one round, which is traced for all."""

    def __init__(
        self, a: Activation, sides: Sides, jump: int, exit_: Exit, trace: Trace, going: Tracer
    ) -> None:
        self.activation, self.sides, self.jump, self.exit = a, sides, jump, exit_
        self.around: WhileStatement | None = a.turning
        self.trace = trace
        self._steps = self._made(going)
        self.entries = _entries(a, sides.flow, exit_)
        self._is_inside = False  # whether the frame has entered the loop itself
        self.has_answered = False  # whether the last truth that was read is an answer of `asked`
        self._other: int | None = None  # the last other test that leaves it
        # In a round: the tests before its last, and the number of guards after them
        self._holds: Any = None
        self._guards = 0
        self._changes: tuple[int, int] | None = None

    @property
    def frame(self) -> FrameType:
        return self.activation.frame

    def begun(self) -> bool:
        self.has_answered = True
        return self._next(lambda: next(self._steps))

    def asked(self, jump: int, condition: Tracer, found: bool) -> bool | None:
        """The truth value for the program in a round; None if the test isn't the loop's."""
        flow, last = self.sides.flow, jump
        while last not in self.exit.places:
            following = flow.leads_on(last)
            if following is None:
                return None
            last = following
        self.has_answered = True
        own = flow.exit_of(jump)
        assert own is not None
        going = condition if own.stays else ew.logical_not(condition)
        if self._holds is not None:
            if _changes(self.activation) != self._changes:
                raise retrace_with(each_round(self.sides, self.jump))
            self._soften()
            going = ew.logical_and(self._holds, going)
        if last is not jump and found is own.stays:
            self._holds, self._guards = going, len(_guards())
            self._changes = _changes(self.activation)
            trace = current_trace()
            assert trace is not None
            trace.holds = going
            return own.stays
        self._holds = None
        stays = self._next(lambda: self._steps.send((going, last == jump)))
        return own.stays if stays == self.exit.stays else not own.stays

    def _soften(self) -> None:
        """Weaken the guards of a test to calls in which the tests before it hold."""
        trace, guards = current_trace(), _guards()
        assert trace is not None
        for k in range(self._guards, len(guards)):
            guard = guards[k]
            trace.forget_guard(guard)
            holds = to_operand(trace, self._holds)[0]
            (other,) = trace.record(ew.where, [holds, guard.operand, guard.expected])
            guards[k] = replace(guard, operand=other)

    def _next(self, step: Callable[[], Any]) -> bool:
        """Advance the trace. Returns the truth value for the frame: it continues the loop for
        another round, or to make the rest of the last one, behind which there is no entry."""
        try:
            step()
        except StopIteration:
            self.activation.turning = self.around
            return self._left()
        except BaseException:
            self.activation.turning = self.around
            raise
        return self.exit.stays

    def _left(self) -> bool:
        """The truth value for the frame behind the loop. Both may be sides of a branch."""
        a, entries, effects = self.activation, self.entries, self.activation.o.effects
        if entries is None:
            return not self.exit.stays
        guard = entries.guard if entries.place in self.sides.both else None
        if effects is not None and guard is not None:
            begin(a, self.sides, self.jump, self.trace, guard, effects, entries.place)
        return self.exit.stays if entries.over else not self.exit.stays

    def passes(self, offset: int) -> None:
        """Note that the frame is about to run an instruction."""
        if offset in self.exit.body:
            self._is_inside = True
        elif self._is_inside:
            self.end()
            other = self._other
            if other is not None and self.sides.exits.may_be(other, self.exit.body):
                raise retrace_with([(self.sides.exits, other)])
            raise retrace_with(each_round(self.sides, self.jump))

    def leaves_too(self, jump: int) -> bool:
        """Whether a test leaves the loop as its own test does; it is remembered."""
        leaves = self.may_leave(jump)
        if leaves:
            self._other = jump
        return leaves

    def may_leave(self, jump: int) -> bool:
        """Whether another test leaves the loop, too."""
        exit_ = self.sides.flow.exit_of(jump)
        return exit_ is not None and exit_.body == self.exit.body

    def end(self) -> None:
        """End the round: the frame leaves the loop by no test."""
        self.activation.turning = self.around
        self._steps.close()
        self.trace.unfinished = TraceError(
            f"a loop was left while a round of it was traced for all{at_line()}"
        )

    def _made(self, going: Tracer) -> Rounds:
        """Wait while the frame makes each round, and end when it has made the last."""
        frame, place, trace = self.frame, self.jump, self.trace
        name, src = frame.f_code.co_name, user_source()
        lent, growing = Arrays(frame, place, trace), Growing(frame, place)
        try:
            trace_stored(frame, place, trace)
            for done in range(FIRST + 1):
                leaves, rounds = WhileRounds.begun(
                    f"a loop of {name}",
                    src,
                    lent,
                    growing,
                    done,
                    drawing=Drawing(None, self.sides, place),
                    going=going,
                    entries=self.entries,
                )
                before = rounds.found[0]
                round_, whole = yield from rounds.first(rounds.round(leaves, done))
                raised, loop = trace.raised, None
                if not rounds.changes_nothing():
                    raise retrace_with(each_round(self.sides, place))
                stays = before.shape == rounds.found[-1].shape and rounds.grown[-1].fits
                if stays and whole:
                    try:
                        loop = yield from rounds.rest(leaves, round_)
                    except Exception as error:
                        let_through(error)
                        trace.raised = raised
                        notes = rounds.branches(error, done)
                        if notes != []:
                            notes = notes or each_round(self.sides, place, why=error)
                            raise retrace_with(notes) from error
                    if not rounds.changes_nothing():
                        raise retrace_with(each_round(self.sides, place))
                if loop is not None:
                    rounds.leave(loop, trace)
                    lent.give_back()
                    return
                if not going._read()[1]:  # the round wasn't made after all
                    break
                trace.guard(going, True, "a condition")
                going = rounds.alone(leaves, round_, trace)[0]
                if not going._read()[1]:
                    trace.guard(going, False, "a condition")
                    lent.give_back()
                    return
                trace_numbers(frame, place, before, rounds.found[-1], trace)
            raise retrace_with(each_round(self.sides, place))
        except TapegradError as error:
            raise retrace_with(each_round(self.sides, place, why=error)) from error
        finally:
            growing.end()


def _guards() -> list[Any]:
    trace = current_trace()
    assert trace is not None
    return trace.builder.guards


@dataclass(frozen=True, eq=False, kw_only=True)
class WhileRounds(FrameRounds):
    """Rounds that a frame makes until a test ends them. `going`: whether there is a next one."""

    going: Any
    entries: EntriesWithExit | None
    asked_all: list[bool] = field(default_factory=list)

    def leave(self, loop: RecordedLoop, trace: Trace) -> None:
        super().leave(loop, trace)
        start, end = self.found[0], self.found[-1]
        ends = dict(zip(end.paths, end.tracers, strict=True))
        pairs = [(x, ends.get(path)) for path, x in zip(start.paths, start.tracers, strict=True)]
        moved = [x for pair in pairs if pair[0] is not pair[1] for x in pair]
        arrays = [x for x in moved if isinstance(x, ArrayTracer)]
        effects = effects_in(self.frame)
        if arrays and not loop.rounds and effects is not None:
            note = sides_of(self.frame.f_code).unrolled, self.place
            effects.loose.append((note, arrays, len(effects.written)))

    def first(self, steps: Any) -> Generator[Any, Any, tuple[Round, bool]]:
        """Trace the round. Returns it, and whether its last test was evaluated in all parts."""
        self.asked_all.clear()
        round_ = yield from self.made(steps)
        return round_, all(self.asked_all)

    @property
    def left(self) -> int:
        return UNBOUNDED if self.entries is None else self.entries.left - self.done

    def _entry(self, given: Any) -> Any:
        if self.entries is not None:
            self.entries.given, self.entries.done, self.entries.lent = given, self.done, self.lent
        return None

    def further(self, answer: Any) -> list[Any]:
        going, whole = answer
        if self.entries is not None:
            self.entries.given = None
        self.asked_all.append(whole)
        return [going]

    def looped(self, leaves: Sequence[Any], round_: Round) -> RecordedLoop:
        """Record the loop, without a condition if its number of rounds is constant."""
        going, *ys = [typed(y) for y in round_.ys]
        body, changed, order = self.body(round_)
        _, *operands = self.operands(leaves, round_, self.done)
        given = [operands[k] for k in order]
        if not changed:
            if self.entries is None:
                raise TraceError("the loop goes on for ever, or makes no round")
            body = with_idle(body)
            given = [np.int64(0), *given]
        trace = self.trace([self.going, *operands])
        until = replace(body, outputs=(*body.outputs, going.operand))
        carried = len(body.outputs)
        start = [to_operand(trace, x)[0] for x in given[:carried]]
        most = None if self.entries is None else self.left
        if not _is_known(until, start):
            until = renumbered(self._while_drawing(until, changed))
            if any(self.grown[-1].entries):
                return self._growing(leaves, round_, given, most, trace)
            room = room_of(until, trace.in_frame)
            *outs, _, more = recorded_until(trace, until, [self.going, *given], most, room)
            self._end(more, trace)
            return self.looped_as(round_, leaves, changed, outs, 0)
        count, goes_on = rounds_until(trace, until, [self.going, *given], most)
        if not is_long(body, count):
            raise TraceError("the loop is short")
        trace.guard(self.going, True, "a condition")
        self._end(stand_in(trace, Literal(goes_on), goes_on), trace)
        body = with_stacks(body, carried, ys, count, self.src)
        given[carried:carried] = empty_stacks(trace, ys, count, filled=True)
        loop = Loop(body, len(body.outputs), count)
        found = recorded(trace, loop, [np.int64(count), *given])
        outs = [*found] if isinstance(found, tuple) else [found]
        return self.looped_as(round_, leaves, changed, outs, count)

    def _growing(
        self, leaves: Sequence[Any], round_: Round, given: list[Any], most: int | None, trace: Trace
    ) -> RecordedLoop:
        """Record a loop in which lists grow: with a maximal number of rounds, of which a number
        that varies between calls is made; or with a guarded number."""
        going, *ys = [typed(y) for y in round_.ys]
        body, changed, _ = self.body(round_)
        until = replace(body, outputs=(*body.outputs, going.operand))
        until = self._while_drawing(until, changed)
        count, _ = rounds_until(trace, until, [self.going, *given], most)
        varies = self.grown[-1].may_vary and self.growing.may_vary and not streams()
        room = count
        if varies:
            room = max(FEWEST, 1 << count.bit_length()) if most is None else most
        until = with_stacks(until, len(changed), ys, room, self.src)
        carried, stacks = until.outputs[: len(changed)], until.outputs[len(changed) + 1 :]
        until = replace(until, outputs=(*carried, *stacks, until.outputs[len(changed)]))
        given[len(changed) : len(changed)] = empty_stacks(trace, ys, room, filled=False)
        *outs, rounds, more = recorded_until(trace, until, [self.going, *given], room)
        known = [] if varies else [(rounds, count), (more, bool(more._read()[1]))]
        for x, expected in known:
            trace.guard(x, expected, "how often a list grows", self.src)
        self._end(more, trace)
        found = self.looped_as(round_, leaves, changed, outs, room)
        return found._replace(made=np.arange(room) < rounds) if varies else found

    def _while_drawing(self, until: Tape, changed: Sequence[int]) -> Tape:
        """The body of a loop that ends when it has used up the numbers drawn ahead."""
        rooms = {id(stream.at): stream.ahead.room for stream in streams()}
        builder, going = Builder.after(until, until.name), until.outputs[-1]
        for k, out in zip(changed, until.outputs, strict=False):
            room = rooms.get(id(self.found[-1].tracers[k]))
            if room is not None:
                (enough,) = builder.call(ew.less_equal, [out, Literal(np.int64(room))], self.src)
                (going,) = builder.call(ew.logical_and, [going, enough], self.src)
        return replace(until, calls=tuple(builder.calls), outputs=(*until.outputs[:-1], going))

    def _end(self, more: Tracer, trace: Trace) -> None:
        """End the loop; `more` is whether its test would continue it."""
        if self.entries is None:
            what = "whether there are more rounds than there is room for"
            trace.guard(more, False, what, self.src, fixed=True)
        elif not flow_of(self.frame.f_code).meets_end(self.place):
            sides, what = sides_of(self.frame.f_code), "whether a loop comes to its end"
            self.entries.over = bool(more._read()[1])
            self.entries.guard = trace.guard(more, self.entries.over, what, self.src)
            if trace.in_frame:
                trace.sources[sides, self.entries.place] = self.src, False


def _is_known(body: Tape, start: Sequence[Any]) -> bool:
    """Whether the condition of a loop with these initial values depends only on known numbers."""
    step, *inputs = body.inputs
    carried = {k for k, x in enumerate(start) if isinstance(x, Literal)}
    while True:
        known = known_from(body, [step, *[inputs[k] for k in carried]])
        ends = {k for k, x in enumerate(body.outputs) if isinstance(x, Literal) or x in known}
        if carried <= ends:
            return len(start) in ends
        carried &= ends


dispatch.asked = asked
