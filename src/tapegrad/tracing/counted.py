"""Python's own `for` over `tapegrad.range`, of which one round is traced for all.

    for t in tapegrad.range(n):                 loop(n, %h, %ys, %xs, body)
        h = f(h, xs[t])              -->            %x = window(%xs, step)
        ys[t] = h                                   ...
                                                    out %h, set_window(%ys, %h, step)

When the statement asks for its next number, what the traced variables hold is what is carried:
`variables.py` finds it. The tracers there become the inputs of a trace of one round, and the frame
goes on; when it comes back, what the variables hold is what the round carries on. A second round is
held against that. Then the loop is recorded, the tracers stand for what it gives, and the statement
is told that there are no more numbers. So whoever else holds such a tracer sees what it would. A
plain number that the first round changes becomes a traced one.

That holds where a round changes nothing but variables and traced arrays (`observe/effects.py`).
Elsewhere the round that was traced stands by itself, and the statement gets Python's numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.core.trees import flatten
from tapegrad.errors import InternalError, TraceError
from tapegrad.ir.inputs import unused
from tapegrad.ir.tape import Aval, Literal, Source, Tape
from tapegrad.primitives.kinds import Library, Routine
from tapegrad.primitives.loops import CALLS, NUMPYS, ROUNDS, Loop
from tapegrad.tracing.growing import Growing, Grown
from tapegrad.tracing.items import Items, Numbers, found_among
from tapegrad.tracing.observe.joins import Sides, sides_of
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.observe.seen import changes
from tapegrad.tracing.rounds import FIRST, Given, Leaf, Round, Rounds, Steps, as_weak, typed
from tapegrad.tracing.source import at_source, user_source
from tapegrad.tracing.stacking import empty_stacks, with_stacks
from tapegrad.tracing.trace import (
    Reconsidered,
    Trace,
    current_trace,
    innermost,
    traces_under_way,
)
from tapegrad.tracing.tracer import Tracer, record
from tapegrad.tracing.variables import (
    Lent,
    Variables,
    alone,
    become,
    copied,
    place_of,
    renew,
    revive,
    state_of,
    survivors,
    trace_numbers,
    trace_stored,
    variables,
)

T = TypeVar("T")


class Counted(Sequence[Any]):
    """The numbers of a range, for a loop whose rounds are traced once."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers

    def __iter__(self) -> Iterator[Any]:
        return _Numbers(Numbers(self._numbers), iter(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, k: Any) -> Any:
        found = self._numbers[k]
        return Counted(found) if isinstance(found, range) else found

    def __reversed__(self) -> Iterator[Any]:
        return reversed(range(0)) if not self._numbers else iter(Counted(self._numbers[::-1]))

    def __repr__(self) -> str:
        return f"tapegrad.{self._numbers!r}"


class _Numbers:
    """What a `for` statement asks for its entries. To whoever else asks they are Python's."""

    def __init__(self, items: Items, pythons: Iterator[Any] | None, count: Any = None) -> None:
        self._items, self._pythons, self._count = items, pythons, count
        self._rounds: Iterator[Any] | None = None
        self.is_shared = False  # whether anybody but a statement may have it

    def __iter__(self) -> Iterator[Any]:
        self.is_shared = True
        if self._rounds is None and self._pythons is not None:
            self._rounds = self._pythons
        return self

    def __next__(self) -> Any:
        return self._next(sys._getframe(1))

    @unobserved
    def _next(self, frame: FrameType) -> Any:
        if self._rounds is None:
            trace, place = current_trace(), place_of(frame, self)
            if trace is not None and place is not None:
                is_plain = self._pythons is None
                self._rounds = _loop(frame, place, self._items, trace, is_plain, self._count)
            elif self._pythons is not None:
                self._rounds = self._pythons
            else:
                raise InternalError("a loop's entries were asked for by something else")
        return next(self._rounds)


def _loop(
    frame: FrameType,
    place: int,
    items: Items,
    trace: Trace,
    is_plain: bool,
    count: Count | None,
) -> Generator[Any, None, None]:
    """Yields a number for each round that the frame is to make; the loop stands for the rest. Where
    one can't, the frame makes all the rounds, as in Python's loop."""
    name, src = frame.f_code.co_name, user_source()
    lent, done, sides = Lent(frame, place, trace), -1, sides_of(frame.f_code)
    growing = Growing(frame, place)
    try:
        if count is not None and growing.lists:  # they would have as many entries
            raise again_with(each_round(sides, place))
        if is_plain:
            trace_stored(frame, place, trace)
        for done in range(len(items)):
            before = variables(frame, place, growing.all)
            leaves = copied(before)
            rounds = InFrame(
                named(f"{name}_round"),
                f"the loop of {name} over tapegrad.range",
                flatten(leaves)[1],
                src,
                frame,
                place,
                items,
                lent,
                done,
                changes(frame),
                [before],
                [],
                {},
                growing,
                growing.lengths(),
                [],
                is_plain,
                count,
            )
            round_ = yield from rounds.made(rounds.round(leaves, done))
            certain, loop = done < FIRST and rounds.changes_nothing(), None
            raised = trace.raised
            long = count is not None or is_long(round_.tape, len(items) - done)
            if is_plain and not (certain and long):
                raise again_with(each_round(sides, place))
            more = done + 1 < len(items) or count is not None
            stays = before.shape == rounds.found[-1].shape and rounds.grown[-1].fits
            if certain and stays and more:
                try:
                    loop = yield from rounds.rest(leaves, round_)
                except Exception as error:
                    let_through(error)
                    trace.raised = raised
                    certain = False  # they don't do the same
                    if is_plain:
                        notes = rounds.branches(error, done)
                        certain = notes == []
                        if not certain:
                            notes = notes or each_round(sides, place)
                            raise again_with(notes) from error
                if is_plain and not rounds.changes_nothing():
                    raise again_with(each_round(sides, place))
                if not rounds.changes_nothing():
                    raise TraceError(
                        f"{rounds.label}: the round did more when it was made again{rounds.at()}, "
                        "which can't be taken back: it depends on something else than its "
                        "variables. Use Python's range"
                    )
            if loop is not None:
                rounds.leave(loop, trace)
                lent.give_back()
                return
            if count is not None:  # there may be no first round, at other calls
                raise again_with(each_round(sides, place))
            rounds.alone(leaves, round_, trace)
            if not certain:
                break
            trace_numbers(frame, place, before, trace)
        lent.give_back()
    except GeneratorExit:
        trace.unfinished = TraceError(
            f"the loop of {name} over tapegrad.range is left in its first rounds{at_source(src)}, "
            "by which the others are traced. Use tapegrad.while_loop, which goes on until a "
            "condition says so, or Python's range"
        )
        raise
    finally:
        growing.end()
    if isinstance(items, Numbers):
        yield from items.numbers[done + 1 :]


def is_long(body: Tape, rounds: int) -> bool:
    """Whether a loop of so many rounds is one, rather than so many calls in a row."""
    fewest = (
        NUMPYS if any(isinstance(c.primitive, (Library, Routine)) for c in body.calls) else CALLS
    )
    return rounds >= ROUNDS and rounds * _calls_of(body) >= fewest


def _calls_of(body: Tape) -> int:
    """How many calls a tape makes, with those of the loops in it."""
    inner = [c.primitive for c in body.calls if isinstance(c.primitive, Loop)]
    return len(body.calls) + sum(loop.most * _calls_of(loop.body) for loop in inner)


def again_with(notes: Sequence[tuple[set[int], int]]) -> Reconsidered:
    """Give the traces under way up: they are made again with these notes."""
    found = Reconsidered(notes, None)
    for trace in traces_under_way():
        trace.renounced = found
    return found


def each_round(sides: Sides, place: int) -> list[tuple[set[int], int]]:
    """That each round is made, also of the loops within: together they may be found again."""
    flow = sides.flow
    inner = [o for o in flow.body(place) if flow.at[o].opname == "FOR_ITER"]
    return [(sides.unrolled, each) for each in (place, *inner)]


def named(name: str) -> Callable[..., Any]:
    """What stands for the function of a round."""

    def round_of() -> None:
        """Never called: the frame makes the rounds."""

    round_of.__name__ = name
    return round_of


class Count(NamedTuple):
    """A traced number of rounds, and the most that there may be."""

    rounds: Tracer
    most: int


class Looped(NamedTuple):
    """A loop that was recorded: what the variables hold behind it; the results of a round, with
    the arrays in which those of all are stacked; and how many rounds there are."""

    ends: list[Any]
    stacks: list[tuple[Leaf, Any]]
    rounds: int


@dataclass(frozen=True, eq=False)
class InFrame(Rounds):
    """Rounds that a frame makes, behind those that are `done`. `seen` tells whether they change
    anything but variables; `found` are the variables before and after each of them, `others` the
    tracers that the first one has left elsewhere, if it does; `tests` are the branches that they
    came to, with their lines; `grown` is what each of them has appended to lists that are
    `growing`, whose `lengths` were these before."""

    frame: FrameType
    place: int
    items: Items
    lent: Lent
    done: int
    seen: Any
    found: list[Variables]
    others: list[Tracer]
    tests: dict[Any, tuple[Source | None, bool]]
    growing: Growing
    lengths: list[int]
    grown: list[Grown]
    is_plain: bool
    inner: Count | None

    @property
    def made_in(self) -> FrameType:
        return self.frame

    def trace(self, operands: Sequence[Any]) -> Trace:
        """The trace that the rounds belong to: that of the loop, if nothing traced goes in."""
        around = current_trace()
        if around is not None and not any(isinstance(x, Tracer) for x in operands):
            return around
        return super().trace(operands)

    def words(self, leaves: Sequence[Any]) -> list[str]:
        names = self.found[0].words
        return ["step" if "step" not in names else "step_", *names]

    def changes_nothing(self) -> bool:
        """Whether rounds have changed nothing but the frame's variables, and traced arrays."""
        known = self.seen is not None and not self.growing.refused
        return known and changes(self.frame) == self.seen

    def made(self, steps: Steps[T]) -> Generator[Any, None, T]:
        """What steps come to, whose rounds the frame makes: yields the number of each."""
        try:
            given = next(steps)
            while True:
                before, lengths = self.found[-1], self.growing.lengths()
                kept = [state_of(x) for x in before.tracers]
                try:
                    trace = given.step._trace
                    trace.holding = before.take_the_place_of(given.leaves, self.found)
                    answer = yield self._entry(given)
                    after = variables(self.frame, self.place, self.growing.all, trace)
                    new = copied(after)
                    after.note_kept(before, given.leaves, kept)
                    self.tests.update(trace.sources)
                    grown = self.growing.grown(lengths, trace, before, after, self.lent)
                    rows = [state_of(x) for x in grown.rows]
                    if not self.changes_nothing() and not self.is_plain:
                        self.others[:] = survivors(trace, after)
                        grown, rows = Grown(), []  # what was appended is among them
                    others = [alone(x) for x in self.others]
                finally:
                    for x, state in zip(before.tracers, kept, strict=True):
                        become(x, state)
                self.found.append(after)
                self.grown.append(grown)
                given = steps.send((new, [*self.further(answer), *others, *rows], None))
        except StopIteration as end:
            found: T = end.value
            return found
        finally:
            steps.close()

    def further(self, answer: Any) -> list[Any]:
        """What a round gives beside what it leaves in variables, and has appended."""
        return []

    @property
    def left(self) -> int:
        """How many rounds there are, at the most."""
        return len(self.items) - self.done

    def branches(self, error: Exception, done: int) -> list[tuple[set[int], int]] | None:
        """The branches by which rounds have failed, since one of them goes another way, and that
        may become one value from now on; None if it isn't by branches. There are none if a first
        round is another one than the others, by a condition of integers: it stands in front."""
        guard = getattr(error, "guard", None)
        if done == 0 and guard is not None and guard.what.startswith("an integer used as"):
            return []
        found = [
            ((sides.both, jump), counts)
            for (sides, jump), (src, counts) in self.tests.items()
            if guard is not None and src == guard.src and jump not in sides.both | sides.apart
        ]
        if not found:
            return None
        is_first = done == 0 and self.left > ROUNDS and all(counts for _, counts in found)
        return [] if is_first else [note for note, _ in found]

    def _entry(self, given: Given) -> Any:
        """The loop's number, or what else it goes through, in a round that is passed this."""
        step = given.step
        return self.items.item(step._trace, step, self.done, found_among(self.lent))

    def alone(self, leaves: Sequence[Any], round_: Round, trace: Trace) -> list[Any]:
        """The round stands by itself, and what was traced in it stands for what it gives, which is
        returned but for what it leaves in variables."""
        ends, others = self.in_front(leaves, round_, self.done)
        before, after = self.found[-2:]
        after.leave(ends, trace)
        rows = others[len(others) - len(self.grown[-1].rows) :]
        self.growing.leave(self.lengths, self.grown[-1], rows, [*before.tracers, *after.tracers])
        for x, end in zip(self.others, others, strict=False):
            revive(x, end)
        return others

    def once(self, trace: Trace, tape: Tape, inputs: Sequence[Any]) -> Sequence[Any]:
        """The round's calls, as the frame would have recorded them."""
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

    def rest(self, leaves: list[Any], round_: Round) -> Generator[Any, None, Looped | None]:
        """The loop; None if a round must stand in front of it. An error if the rounds don't do the
        same."""
        after, grown = self.found[-1], self.grown[-1]
        settled = yield from self.made(self.settled(leaves, round_, self.done))
        if (self.found[-1].shape, self.grown[-1].shape) != (after.shape, grown.shape):
            raise TraceError("the round did something else when it was made again")
        if self.found[-1].trades(self.found[-2], self.left) or not self._renew():
            raise TraceError("variables trade places")
        return None if settled is None else self.looped(*settled)

    def _renew(self) -> bool:
        return renew(self.frame, self.place, self.found[0], self.found[-1])

    def looped(self, leaves: Sequence[Any], round_: Round) -> Looped:
        """The loop, which is recorded. It carries those variables that the round changes; where it
        changes none, a number for whose sake it is held to its guards."""
        ys = [typed(y) for y in round_.ys]
        body, changed, order = self.body(round_)
        idle = [] if changed or ys else unused(body, [Aval((), np.dtype(np.int64))])
        if idle:
            body = replace(
                body,
                inputs=(body.inputs[0], *idle, *body.inputs[1:]),
                names=(body.names[0], "idle", *body.names[1:]),
                outputs=tuple(idle),
            )
        _, *operands = self.operands(leaves, round_, self.done)
        trace = self.trace(operands)
        count = self.left
        body = with_stacks(body, len(changed), ys, count, self.src)
        rounds: Any = np.int64(count)
        most = count
        if self.inner is not None:
            rounds, most = self.inner
            trace = innermost([rounds, *[x for x in operands if isinstance(x, Tracer)]])
        start = [*[np.int64(0)] * len(idle), *[operands[k] for k in changed]]
        start += empty_stacks(trace, ys, count)
        given = [rounds, *start, *[operands[k] for k in order[len(changed) :]]]
        loop = Loop(body, len(body.outputs), most)
        found = record(trace, loop, given)
        outs = found if isinstance(found, tuple) else (found,)
        return self.looped_as(round_, leaves, changed, outs, count)

    def body(self, round_: Round) -> tuple[Tape, list[int], list[int]]:
        """The tape of a round that carries those variables which it changes; their numbers, and
        those of its inputs in order."""
        tape = round_.tape
        step, *inputs = tape.inputs
        leaves = round_.leaves
        changed = [k for k in range(len(leaves)) if leaves[k].operand is not inputs[k]]
        order = [*changed, *[k for k in range(len(inputs)) if k not in changed]]
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
    ) -> Looped:
        """A loop that was recorded, and gives this: what it has changed, and stacks."""
        ends = list(leaves)
        for k, out in zip(changed, outs, strict=False):
            ends[k] = as_weak(out, round_.leaves[k])
        stacks = outs[len(changed) : len(changed) + len(self.grown[-1].rows)]
        rows = round_.ys[len(round_.ys) - len(stacks) :] if stacks else []
        return Looped(ends, [*zip(rows, stacks, strict=True)], count)

    def leave(self, loop: Looped, trace: Trace) -> None:
        """What the frame has stands for what the loop gives."""
        start, end = self.found[0], self.found[-1]
        end.leave(loop.ends, trace)
        self.growing.fill(self.lengths, self.grown[-1], loop.rounds, loop.stacks, start, end)


# ---- plain loops


class Plain:
    """What stands for the entries of a plain loop whose rounds may be traced once."""

    def __init__(self, items: Items, count: Count | None = None) -> None:
        self._items, self._count = items, count

    def __iter__(self) -> Iterator[Any]:
        return _Numbers(self._items, None, self._count)
