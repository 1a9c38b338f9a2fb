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
from typing import Any, TypeVar

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.core.trees import flatten
from tapegrad.errors import TraceError
from tapegrad.ir.inputs import renumbered, unused
from tapegrad.ir.tape import Aval
from tapegrad.primitives.loops import Loop
from tapegrad.tracing.observe.observer import changes, unobserved
from tapegrad.tracing.rounds import FIRST, Given, Round, Rounds, Steps, as_weak
from tapegrad.tracing.source import at_source, user_source
from tapegrad.tracing.trace import Trace, current_trace
from tapegrad.tracing.tracer import Tracer, record, stand_in
from tapegrad.tracing.variables import (
    Lent,
    Variables,
    alone,
    become,
    copied,
    place_of,
    revive,
    state_of,
    survivors,
    trace_numbers,
    variables,
)

T = TypeVar("T")


class Counted(Sequence[Any]):
    """The numbers of a range, for a loop whose rounds are traced once."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers

    def __iter__(self) -> Iterator[Any]:
        return _Numbers(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, k: Any) -> Any:
        found = self._numbers[k]
        return Counted(found) if isinstance(found, range) else found

    def __reversed__(self) -> Iterator[Any]:
        return _Numbers(self._numbers[::-1])

    def __repr__(self) -> str:
        return f"tapegrad.{self._numbers!r}"


class _Numbers:
    """What a `for` statement asks for its numbers. To whoever else asks they are Python's."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers
        self._rounds: Iterator[Any] | None = None
        self.is_shared = False  # whether anybody but a statement may have it

    def __iter__(self) -> Iterator[Any]:
        self.is_shared = True
        self._rounds = self._rounds or iter(self._numbers)
        return self

    def __next__(self) -> Any:
        return self._next(sys._getframe(1))

    @unobserved
    def _next(self, frame: FrameType) -> Any:
        if self._rounds is None:
            trace, place = current_trace(), place_of(frame, self)
            if trace is None or place is None:
                self._rounds = iter(self._numbers)
            else:
                self._rounds = _loop(frame, place, self._numbers, trace)
        return next(self._rounds)


def _loop(frame: FrameType, place: int, numbers: range, trace: Trace) -> Generator[Any, None, None]:
    """Yields a number for each round that the frame is to make; the loop stands for the rest. Where
    one can't, the frame makes all the rounds, as in Python's loop."""
    name, src = frame.f_code.co_name, user_source()
    lent, done = Lent(frame, place, trace), -1
    try:
        for done in range(len(numbers)):
            before = variables(frame, place)
            leaves = copied(before)
            rounds = InFrame(
                _named(f"{name}_round"),
                f"the loop of {name} over tapegrad.range",
                flatten(leaves)[1],
                src,
                frame,
                place,
                numbers,
                done,
                changes(frame),
                [before],
                [],
            )
            round_ = yield from rounds.made(rounds.round(leaves, done))
            certain, ends = done < FIRST and rounds.changes_nothing(), None
            raised = trace.raised
            if certain and before.shape == rounds.found[-1].shape and done + 1 < len(numbers):
                try:
                    ends = yield from rounds.rest(leaves, round_)
                except Exception as error:
                    let_through(error)
                    certain, trace.raised = False, raised  # they don't do the same
                if not rounds.changes_nothing():
                    raise TraceError(
                        f"{rounds.label}: the round did more when it was made again{rounds.at()}, "
                        "which can't be taken back: it depends on something else than its "
                        "variables. Use Python's range"
                    )
            if ends is not None:
                rounds.found[-1].leave(ends, trace)
                lent.give_back()
                return
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
    yield from numbers[done + 1 :]


def _named(name: str) -> Callable[..., Any]:
    """What stands for the function of a round."""

    def round_of() -> None:
        """Never called: the frame makes the rounds."""

    round_of.__name__ = name
    return round_of


@dataclass(frozen=True, eq=False)
class InFrame(Rounds):
    """Rounds that a frame makes, behind those that are `done`. `seen` tells whether they change
    anything but variables; `found` are the variables before and after each of them, `others` the
    tracers that the first one has left elsewhere, if it does."""

    frame: FrameType
    place: int
    numbers: range
    done: int
    seen: Any
    found: list[Variables]
    others: list[Tracer]

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
        """Whether rounds are known to have changed nothing but the frame's variables, and traced
        arrays."""
        return self.seen is not None and changes(self.frame) == self.seen

    def made(self, steps: Steps[T]) -> Generator[Any, None, T]:
        """What steps come to, whose rounds the frame makes: yields the number of each."""
        try:
            given = next(steps)
            while True:
                before = self.found[-1]
                kept = [state_of(x) for x in before.tracers]
                try:
                    for x, start in zip(before.tracers, given.leaves, strict=True):
                        become(x, start)
                    yield self._number(given)
                    trace = given.step._trace
                    after = variables(self.frame, self.place, trace)
                    new = copied(after)
                    after.note_kept(before, given.leaves, kept)
                    if not self.changes_nothing():
                        self.others[:] = survivors(trace, after)
                    others = [alone(x) for x in self.others]
                finally:
                    for x, state in zip(before.tracers, kept, strict=True):
                        become(x, state)
                self.found.append(after)
                given = steps.send((new, others, None))
        except StopIteration as end:
            found: T = end.value
            return found
        finally:
            steps.close()

    def _number(self, given: Given) -> Any:
        """The loop's number, in a round that is passed this: an integer of Python's."""
        trace, number = given.step._trace, given.step
        first, by = self.numbers[self.done], self.numbers.step
        if by != 1:
            number = number * np.int64(by)
        if first:
            number = number + np.int64(first)
        operand, value = number._read()
        trace.bounds[operand] = max(abs(self.numbers[0]), abs(self.numbers[-1]))
        return stand_in(trace, operand, value, weak=True)

    def alone(self, leaves: Sequence[Any], round_: Round, trace: Trace) -> None:
        """The round stands by itself, and what was traced in it stands for what it gives."""
        ends, others = self.in_front(leaves, round_, self.done)
        self.found[-1].leave(ends, trace)
        for x, end in zip(self.others, others, strict=True):
            revive(x, end)

    def rest(self, leaves: list[Any], round_: Round) -> Generator[Any, None, list[Any] | None]:
        """What the variables hold behind the loop; None if a round must stand in front of it. An
        error if the rounds don't do the same."""
        after = self.found[-1]
        settled = yield from self.made(self.settled(leaves, round_, self.done))
        if self.found[-1].shape != after.shape:
            raise TraceError("the round did something else when it was made again")
        return None if settled is None else self.looped(*settled)

    def looped(self, leaves: Sequence[Any], round_: Round) -> list[Any]:
        """What the variables hold behind the loop, which is recorded. It carries those that the
        round changes; where it changes none, a number for whose sake it is held to its guards."""
        tape, ends = round_.tape, list(leaves)
        step, *inputs = tape.inputs
        changed = [k for k in range(len(leaves)) if round_.leaves[k].operand is not inputs[k]]
        order = [*changed, *[k for k in range(len(inputs)) if k not in changed]]
        idle = [] if changed else unused(tape, [Aval((), np.dtype(np.int64))])
        body = replace(
            tape,
            inputs=(step, *idle, *[inputs[k] for k in order]),
            names=(tape.names[0], *["idle"] * len(idle), *[tape.names[1 + k] for k in order]),
            outputs=(*idle, *[round_.leaves[k].operand for k in changed]),
        )
        _, *operands = self.operands(leaves, round_, self.done)
        trace = self.trace(operands)
        rounds = np.int64(len(self.numbers) - self.done)
        given = [rounds, *[np.int64(0)] * len(idle), *[operands[k] for k in order]]
        loop = Loop(renumbered(body), len(body.outputs), int(rounds))
        found = record(trace, loop, given)
        outs = found if isinstance(found, tuple) else (found,)
        for k, out in zip(changed, outs, strict=not idle):
            ends[k] = as_weak(out, round_.leaves[k])
        return ends
