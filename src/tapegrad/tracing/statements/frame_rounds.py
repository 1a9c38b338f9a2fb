"""Rounds of a loop that the user's own frame makes.

Between two requests of a `for` statement for an entry, or two evaluations of a test, the tracers in
the frame's variables are first the inputs of the trace of one round, and then its results. The
iterator of the entries (`for_statement.py`, `for_with_exit.py`), or the handler of the test
(`while_statement.py`), yields to the frame for each round.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import FrameType
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.core.trees import flatten
from tapegrad.errors import TraceError
from tapegrad.ir.inputs import known_from, unused
from tapegrad.ir.tape import Aval, Guard, Literal, Source, Tape
from tapegrad.observe.activations.retracing import Retrace
from tapegrad.observe.program.joins import MORE, Sides
from tapegrad.observe.program.liveness import flow_of
from tapegrad.observe.queries import changes, effects_in, streams
from tapegrad.primitives.kinds import Library, Routine
from tapegrad.primitives.loops import MIN_CALLS, MIN_NUMPY_CALLS, MIN_ROUNDS, Loop
from tapegrad.tracing.loops.entries import Items, Numbers, found_among
from tapegrad.tracing.loops.failed_guards import recorded
from tapegrad.tracing.loops.rounds import FIRST, Inputs, Leaf, Round, Rounds, Steps, as_weak, typed
from tapegrad.tracing.loops.stacking import empty_stacks, with_stacks
from tapegrad.tracing.operators.integer_bounds import may_vary
from tapegrad.tracing.recording.trace import Trace, current_trace, innermost, traces_under_way
from tapegrad.tracing.statements.first_rounds import Earlier
from tapegrad.tracing.statements.growing_lists import Growing, Grown
from tapegrad.tracing.statements.round_draws import Drawing
from tapegrad.tracing.statements.variables import (
    Arrays,
    Variables,
    become,
    copied,
    renew,
    state_of,
    variables,
)
from tapegrad.tracing.tracers.tracer import Tracer

T = TypeVar("T")
ENTRIES = "whether a range has entries"


def is_long(body: Tape, rounds: int) -> bool:
    """Whether `rounds` rounds are recorded as a loop, rather than one by one."""
    fewest = (
        MIN_NUMPY_CALLS
        if any(isinstance(c.primitive, (Library, Routine)) for c in body.calls)
        else MIN_CALLS
    )
    return rounds >= MIN_ROUNDS and rounds * _calls_of(body) >= fewest


def _calls_of(body: Tape) -> int:
    """The number of calls in a tape, including those of the rounds of its loops."""
    count = len(body.calls)
    for call in body.calls:
        if isinstance(loop := call.primitive, Loop):
            of_round, rounds = _calls_of(loop.body), loop.most
            if not isinstance(call.operands[0], Literal):  # variable: half of them, no integers
                of_round -= sum(c.outs[0].dtype.kind == "i" for c in loop.body.calls)
                rounds = (rounds + 1) // 2
            count += rounds * of_round
    return count


def retrace_with(notes: Sequence[tuple[Any, int]]) -> Retrace:
    """Make the traces under way fail. Returns the exception that repeats them with these notes."""
    found = Retrace(notes, None)
    known = next((x.renounced for x in traces_under_way() if x.renounced is not None), None)
    if known is not None and not found.notes:  # a side of a branch has failed first
        found = known
    for trace in traces_under_way():
        trace.renounced = found
    return found


def renounce(notes: Sequence[tuple[Any, int]]) -> None:
    """The same where no exception can be raised."""
    retrace_with(notes)


def each_round(
    sides: Sides, place: int, count: int = 0, why: str | BaseException = MORE
) -> list[tuple[Any, Any]]:
    """The notes that each round is traced, also of inner loops, which may be found again later.
    With a `count`, this applies to loops of at most so many rounds. `explain` says `why`."""
    flow = sides.flow
    inner = [o for o in flow.body(place) if flow.at[o].opname == "FOR_ITER"]
    if count:
        return [(sides.short, (each, place, count)) for each in (place, *inner)]
    sides.note_reason([place, *inner], why)
    return [(sides.unrolled, each) for each in (place, *inner)]


def named(name: str) -> Callable[..., Any]:
    """A placeholder for the function of a round."""

    def round_of() -> None:
        """Never called: the frame makes the rounds."""

    round_of.__name__ = name
    return round_of


def with_idle(body: Tape) -> Tape:
    """The body of a loop that carries nothing, with an idle number to carry."""
    (idle,) = unused(body, [Aval((), np.dtype(np.int64))])
    return replace(
        body,
        inputs=(body.inputs[0], idle, *body.inputs[1:]),
        names=(body.names[0], "idle", *body.names[1:]),
        outputs=(idle,),
    )


def settle(trace: Trace) -> None:
    """Bring the generators of streams in a trace up to date, when no round is under way."""
    for stream in streams():
        if stream.trace is trace:
            stream.settle()


class Count(NamedTuple):
    """A traced number of rounds, and its maximum."""

    rounds: Tracer
    most: int


class RecordedLoop(NamedTuple):
    """A recorded loop: the final values of variables; a round's results with their stacked arrays;
    the number of rounds; and, if that varies between calls, the mask of the rounds made."""

    ends: list[Any]
    stacks: list[tuple[Leaf, Any]]
    rounds: int
    made: Any = None


@dataclass(frozen=True, eq=False, kw_only=True)
class FrameRounds(Rounds):
    """Rounds that a frame makes, behind the first `done`. `seen` counts changes of other state
    before them; `found` has the variables before and after each; `tests` are the branches met, with
    their lines; `grown` has what each round has appended to the `growing` lists, whose initial
    `lengths` are given."""

    frame: FrameType
    place: int
    lent: Arrays
    growing: Growing
    done: int
    seen: Any
    found: list[Variables]
    lengths: list[int]
    drawing: Drawing
    items: Items = field(default_factory=lambda: Numbers(range(0)))
    inner: Count | None = None
    earlier: Earlier | None = None
    tests: dict[Any, tuple[Source | None, bool]] = field(default_factory=dict)
    grown: list[Grown] = field(default_factory=list)

    @classmethod
    def begun(
        cls, label: str, src: Source | None, lent: Arrays, growing: Growing, done: int, **more: Any
    ) -> tuple[list[Tracer], Self]:
        """The values of the frame's variables, and its rounds from here on."""
        frame, place = growing.frame, growing.place
        before = variables(frame, place, growing.all)
        leaves = copied(before)
        rounds = cls(
            f=named(f"{frame.f_code.co_name}_round"),
            label=label,
            structure=flatten(leaves)[1],
            src=src,
            frame=frame,
            place=place,
            lent=lent,
            growing=growing,
            done=done,
            seen=changes(frame),
            found=[before],
            lengths=growing.lengths(),
            **more,
        )
        return leaves, rounds

    @property
    def made_in(self) -> FrameType:
        return self.frame

    def trace(self, operands: Sequence[Any]) -> Trace:
        """The trace that the rounds belong to: that of the loop, if they read nothing traced."""
        around = current_trace()
        if around is not None and not any(isinstance(x, Tracer) for x in operands):
            return around
        return super().trace(operands)

    def words(self, leaves: Sequence[Any]) -> list[str]:
        names = self.found[0].words
        return ["step" if "step" not in names else "step_", *names]

    def changes_nothing(self) -> bool:
        """Whether rounds have changed nothing but the frame's variables, and traced arrays."""
        known = self.seen is not None and not self.growing.refused and not self.lent.are_written
        return known and self.drawing.is_whole and changes(self.frame) == self.seen

    def is_meant(self, round_: Round) -> bool:
        """Whether the rounds should be a loop. A comprehension of numbers that depend only on the
        step is left to Python."""
        step, *inputs = round_.tape.inputs
        numbers = [
            x
            for x, leaf in zip(inputs, self.found[0].tracers, strict=False)
            if isinstance(leaf._read()[0], Literal)
        ]
        known = known_from(round_.tape, [step, *numbers])
        decides = [*[y.operand for y in round_.ys], *[g.operand for g in round_.tape.guards]]
        return not self.growing.fills or any(
            x not in known and not isinstance(x, Literal) for x in decides
        )

    def computes(self, round_: Round) -> bool:
        """Whether a round computes anything that doesn't depend on the step alone."""
        known = known_from(round_.tape, [round_.tape.inputs[0]])
        return any(known.isdisjoint(call.outs) for call in round_.tape.calls)

    def is_another(self, round_: Round) -> bool:
        """Whether this round may be shorter than others: an inner loop may make no rounds, or a
        branch go another way."""
        weight = flow_of(self.frame.f_code).weight(self.place) if self.tests else 0
        return self.left * weight >= MIN_CALLS or any(map(self._is_of_first, round_.tape.guards))

    def _is_of_first(self, guard: Guard) -> bool:
        """Whether a guard may hold only in first rounds."""
        is_index = guard.what.startswith("an integer used as")
        is_first = self.done == 0 and self.inner is None
        return (is_index and is_first) or (guard.what == ENTRIES and self.done < FIRST)

    def made(self, steps: Steps[T]) -> Generator[Any, None, T]:
        """Trace rounds that the frame makes: yield the entry of each; return the result of
        `steps`."""
        effects = effects_in(self.frame)
        carried = {} if effects is None else effects.owned.carried
        try:
            given = next(steps)
            while True:
                before, lengths = self.found[-1], self.growing.lengths()
                kept = [state_of(x) for x in before.tracers]
                try:
                    trace = given.step._trace
                    trace.holding = before.take_the_place_of(given.leaves, self.found)
                    self._fix(trace, given.leaves, kept)
                    trace.drawing = self.drawing
                    self.drawing.begins(given.step)
                    carried[self] = set(before.containers)
                    try:
                        answer = yield self._entry(given)
                    finally:
                        del carried[self]
                    for x in self.growing.filled:
                        x.ends(before)
                    after = variables(self.frame, self.place, self.growing.all, trace)
                    new = copied(after)
                    after.note_kept(before, given.leaves, kept)
                    for x in self.growing.filled:
                        x.stays(after)
                    self.tests.update(trace.sources)
                    grown = self.growing.grown(lengths, trace, before, after, self.lent)
                    rows = [state_of(x) for x in grown.rows]
                finally:
                    for x, state in zip(before.tracers, kept, strict=True):
                        become(x, state)
                self.found.append(after)
                self.grown.append(grown)
                given = steps.send((new, [*self.further(answer), *rows], None))
        except StopIteration as end:
            found: T = end.value
            return found
        finally:
            steps.close()

    def _fix(self, trace: Trace, given: Sequence[Any], before: Sequence[Tracer]) -> None:
        """Record the round's inputs that no round sets: integers keep their bounds, and are fixed
        unless outer loops set them. `before` are the variables' former values."""
        flow = flow_of(self.frame.f_code)
        stored = {
            flow.at[o].argval
            for o in flow.body(self.place)
            if flow.at[o].opname.startswith("STORE_")
        }
        trace.fixed = set()
        for x, was, path in zip(given, before, self.found[-1].paths, strict=True):
            if path.isidentifier() and path not in stored:
                if not may_vary(was):
                    trace.fixed.add(x._operand)
                shared = path in self.frame.f_code.co_cellvars + self.frame.f_code.co_freevars
                if was._operand in was._trace.bounds and not shared:
                    trace.bounds[x._operand] = was._trace.bounds[was._operand]

    def further(self, answer: Any) -> list[Any]:
        """Further results of a round, besides variables and appended entries."""
        return []

    @property
    def left(self) -> int:
        """The maximal number of rounds."""
        return len(self.items) - self.done

    def branches(self, error: Exception, done: int) -> list[tuple[Any, int]] | None:
        """The notes on branches by which rounds have failed, which become merges in the next trace;
        None if the failure has another cause. The list is empty if the first round differs by a
        condition of integers: it is then recorded in front."""
        guard = getattr(error, "guard", None)
        if guard is not None and self._is_of_first(guard):
            return []
        body, found = flow_of(self.frame.f_code).body(self.place), []
        for (sides, jump), (src, counts) in self.tests.items():
            if guard is not None and src == guard.src and jump not in sides.both | sides.apart:
                leaves = sides.exits.may_be(jump, body)
                found.append(((sides.exits if leaves else sides.both, jump), counts))
        if not found:
            return None
        is_first = done == 0 and self.left > MIN_ROUNDS and all(counts for _, counts in found)
        return [] if is_first else [*[note for note, _ in found], *self.also_failing(error, body)]

    def also_failing(self, error: Exception, body: frozenset[int]) -> list[tuple[Any, int]]:
        """The notes on further branches that go another way in some round."""
        lines = [each.src for each in getattr(error, "failing", ())]
        return [
            (sides.both, jump)
            for (sides, jump), (src, counts) in self.tests.items()
            if src in lines
            and not counts
            and jump not in sides.both | sides.apart
            and not sides.exits.may_be(jump, body)
        ]

    def _entry(self, given: Inputs) -> Any:
        """The entry of a round with these arguments: a number, or an entry of the iterable."""
        step, first = given.step, self.done
        if self.earlier is not None:
            first = self.earlier.done
            step = step + np.int64(self.done - first)
            step._trace.number = step._read()[0]
        for x in self.growing.filled:
            x.begins(step, first)
        return self.items.item(step._trace, step, first, found_among(self.lent))

    def alone(self, leaves: Sequence[Any], round_: Round, trace: Trace) -> list[Any]:
        """Record the round by itself. Its tracers get the results; returns those that are neither
        in variables nor appended."""
        self.drawing.ends(1)
        ends, others = self.in_front(leaves, round_, self.done)
        before, after = self.found[-2:]
        after.leave(ends, trace)
        settle(trace)
        rows = others[len(others) - len(self.grown[-1].rows) :]
        self.growing.leave(self.lengths, self.grown[-1], rows, [*before.tracers, *after.tracers])
        return others

    def once(self, trace: Trace, tape: Tape, inputs: Sequence[Any]) -> Sequence[Any]:
        """Record the calls of a round as if the frame had made them."""
        known: dict[Any, Any] = dict(zip(tape.inputs, inputs, strict=True))
        for call in tape.calls:
            operands = [known.get(x, x) for x in call.operands]
            outs = trace.builder.call(call.primitive, operands, call.src, call.reason)
            known.update(zip(call.outs, outs, strict=True))
        for guard in tape.guards:
            operand = known[guard.operand]
            if not isinstance(operand, Literal):
                trace.builder.guards.append(replace(guard, operand=operand))
        return [known.get(x, x) for x in tape.outputs]

    def rest(self, leaves: list[Any], round_: Round) -> Generator[Any, None, RecordedLoop | None]:
        """Record the remaining rounds as a loop; None if this round has to be in front. Raises an
        error if rounds differ."""
        after, grown = self.found[-1], self.grown[-1]
        settled = yield from self.made(self.settled(leaves, round_, self.done))
        if (self.found[-1].shape, self.grown[-1].shape) != (after.shape, grown.shape):
            raise TraceError("the round did something else when it was made again")
        if self.found[-1].trades(self.found[-2], self.left) or not self._renew():
            raise TraceError("variables trade places")
        if settled is None:
            return None
        self.drawing.go_on()
        return self._from_earlier(leaves, settled[1]) or self.looped(*settled)

    def _from_earlier(self, leaves: list[Any], round_: Round) -> RecordedLoop | None:
        """The loop that starts with earlier rounds; None if the round doesn't cover them."""
        earlier, tape = self.earlier, round_.tape
        if earlier is None or round_.ys or self.growing.all:
            return None
        step, *inputs = tape.inputs
        reading = [call for call in tape.calls if step in call.operands]
        if len(reading) != 1 or not earlier.are_like(leaves, self.found[0], round_):
            return None
        calls = tuple([call for call in tape.calls if call is not reading[0]])
        tape = replace(tape, inputs=(reading[0].out, *inputs), calls=calls)
        traced = replace(round_.traced, tape=tape)
        try:
            start = [as_weak(*x) for x in zip(earlier.leaves, round_.leaves, strict=True)]
            found = replace(self, done=earlier.done).looped(start, replace(round_, traced=traced))
        except Exception as error:
            let_through(error)
            return None
        earlier.forget()
        return found

    def _renew(self) -> bool:
        return renew(self.frame, self.place, self.found[0], self.found[-1])

    def looped(self, leaves: Sequence[Any], round_: Round) -> RecordedLoop:
        """Record the loop. It carries the variables that the round changes; if there are none, an
        idle number, so that its guards are checked."""
        ys = [typed(y) for y in round_.ys]
        body, changed, order = self.body(round_)
        is_idle = not changed and not ys
        body = with_idle(body) if is_idle else body
        _, *operands = self.operands(leaves, round_, self.done)
        trace = self.trace(operands)
        count = self.left
        body = with_stacks(body, len(changed), ys, count, self.src)
        rounds: Any = np.int64(count)
        most = count
        if self.inner is not None:
            rounds, most = self.inner
            if self.done:
                rounds, most = np.subtract(rounds, self.done), most - self.done
            trace = innermost([rounds, *[x for x in operands if isinstance(x, Tracer)]])
        start = [*[np.int64(0)] * is_idle, *[operands[k] for k in changed]]
        start += empty_stacks(trace, ys, count, filled=self.inner is None)
        given = [rounds, *start, *[operands[k] for k in order[len(changed) :]]]
        loop = Loop(body, len(body.outputs), most)
        found = recorded(trace, loop, given)
        outs = found if isinstance(found, tuple) else (found,)
        made = np.arange(count) < rounds if ys and self.inner is not None else None
        return self.looped_as(round_, leaves, changed, outs, count)._replace(made=made)

    def body(self, round_: Round) -> tuple[Tape, list[int], list[int]]:
        """The body of a loop that carries the variables that the round changes; their numbers; and
        the numbers of its inputs in order."""
        tape = round_.tape
        step, *inputs = tape.inputs
        leaves = round_.leaves
        changed = [k for k in range(len(leaves)) if leaves[k].operand is not inputs[k]]
        used: dict[Any, int] = {}
        for x in chain.from_iterable(call.operands for call in tape.calls):
            used.setdefault(x, len(used))
        others = [k for k in range(len(inputs)) if k not in changed]
        # In the order of use, so that equal loops have equal code
        order = [*changed, *sorted(others, key=lambda k: used.get(inputs[k], len(used)))]
        body = replace(
            tape,
            inputs=(step, *[inputs[k] for k in order]),
            names=(tape.names[0], *[tape.names[1 + k] for k in order]),
            outputs=tuple([leaves[k].operand for k in changed]),
        )
        return body, changed, order

    def looped_as(
        self,
        round_: Round,
        leaves: Sequence[Any],
        changed: Sequence[int],
        outs: Sequence[Any],
        count: int,
    ) -> RecordedLoop:
        """The results of a recorded loop, whose outputs are the changed variables, and stacks."""
        ends, may_be_none = list(leaves), not count or self.inner is not None
        for k, out in zip(changed, outs, strict=False):
            stays = may_be_none and self.found[0].tracers[k]._either
            leaf = round_.leaves[k]
            ends[k] = as_weak(out, replace(leaf, either=leaf.either or stays))
        stacks = outs[len(changed) : len(changed) + len(self.grown[-1].rows)]
        rows = round_.ys[len(round_.ys) - len(stacks) :] if stacks else []
        return RecordedLoop(ends, [*zip(rows, stacks, strict=True)], count)

    def leave(self, loop: RecordedLoop, trace: Trace) -> None:
        """Set the frame's variables and lists to the results of the loop."""
        self.drawing.ends(loop.rounds)
        trace.sources.update(self.tests)  # by which rounds of an outer loop may fail, too
        start, end = self.found[0], self.found[-1]
        end.leave(loop.ends, trace)
        settle(trace)
        self.growing.fill(self.lengths, self.grown[-1], loop, start, end)
        for x in self.growing.filled:
            x.leave(end)
