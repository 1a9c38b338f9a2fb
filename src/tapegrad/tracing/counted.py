"""Python's own `for` over `tapegrad.range`, of which one round is traced for all.

    for t in tapegrad.range(n):                 loop(n, %h, %ys, %xs, body)
        h = f(h, xs[t])              -->            %x = window(%xs, step)
        ys[t] = h                                   ...
                                                    out %h, set_window(%ys, %h, step)

When the statement asks for its next number, what the traced variables hold is what is carried:
`variables.py` finds it. The tracers there become the inputs of a trace of one round, and the frame
goes on; when it comes back, what the variables hold is what the round carries on. A second round is
held against that. Then the loop is recorded, the tracers stand for what it gives, and the statement
is told that there are no more numbers. So whoever else holds such a tracer sees what it would see;
one that was made in a round and is kept elsewhere is an error where it is used. A plain number that
the first round changes becomes a traced one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from tapegrad.core.trees import flatten
from tapegrad.errors import ArgumentError, TraceError
from tapegrad.ir.inputs import renumbered, unused
from tapegrad.ir.tape import Aval
from tapegrad.primitives.loops import Loop
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.rounds import FIRST, Given, Round, Rounds, Steps, as_weak, type_of
from tapegrad.tracing.source import at_line, at_source, user_source
from tapegrad.tracing.trace import Trace, current_trace
from tapegrad.tracing.tracer import Tracer, stand_in
from tapegrad.tracing.variables import (
    Lent,
    Variables,
    become,
    copied,
    place_of,
    state_of,
    trace_numbers,
    variables,
)

T = TypeVar("T")


class Counted:
    """The numbers of a range, for a loop whose rounds are traced once."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers

    def __iter__(self) -> Iterator[Any]:
        return _Numbers(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        return f"tapegrad.{self._numbers!r}"


class _Numbers:
    """What a `for` statement asks for its numbers."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers
        self._rounds: Generator[Any, None, None] | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._next(sys._getframe(1))

    @unobserved
    def _next(self, frame: FrameType) -> Any:
        if self._rounds is None:
            trace = current_trace()
            if trace is None:
                raise TraceError(
                    f"the numbers of tapegrad.range are asked for{at_line()} after the trace that "
                    "they were made in. Call tapegrad.range where the loop is"
                )
            place = place_of(frame, self)
            if place is None:
                raise TraceError(
                    f"tapegrad.range is not what a for statement goes through{at_line()}, and a "
                    "loop's round can't be told then. Write `for t in tapegrad.range(n):`, without "
                    "zip, enumerate, list or a comprehension; range and tapegrad.map take those"
                )
            self._rounds = _loop(frame, place, self._numbers, trace)
        return next(self._rounds)

    def __del__(self) -> None:
        rounds = self._rounds
        if rounds is not None:
            rounds.close()


def _loop(frame: FrameType, place: int, numbers: range, trace: Trace) -> Generator[Any, None, None]:
    """Yields a number for each round that the frame is to make; the loop stands for the rest."""
    name, src = frame.f_code.co_name, user_source()
    lent = Lent(frame, place, trace) if numbers else None
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
                [before],
            )
            round_ = yield from rounds.made(rounds.round(leaves, done))
            after = rounds.found[-1]
            settled = None
            if before.shape == after.shape:
                settled = yield from rounds.made(rounds.settled(leaves, round_, done))
            if settled is not None:
                rounds.leave(rounds.looped(trace, *settled), trace)
                break
            rounds.check(leaves, round_)
            ends, _ = rounds.in_front(leaves, round_, done)
            rounds.leave(ends, trace)
            trace_numbers(frame, place, before, trace)
        if lent is not None:
            lent.give_back()
    except GeneratorExit:
        trace.unfinished = TraceError(
            f"the loop of {name} over tapegrad.range is left in the middle{at_source(src)}, and "
            "its round is traced once for all. Use tapegrad.while_loop, which goes on until a "
            "condition says so, or Python's range"
        )
        raise


def _named(name: str) -> Callable[..., Any]:
    """What stands for the function of a round."""

    def round_of() -> None:
        """Never called: the frame makes the rounds."""

    round_of.__name__ = name
    return round_of


@dataclass(frozen=True, eq=False)
class InFrame(Rounds):
    """Rounds that a frame makes, behind those that are `done`. `found` are the variables before
    and after each of them, as they were found."""

    frame: FrameType
    place: int
    numbers: range
    done: int
    found: list[Variables]

    def words(self, leaves: Sequence[Any]) -> list[str]:
        names = self.found[0].words
        return ["step" if "step" not in names else "step_", *names]

    def name(self, k: int) -> str:
        return self.found[-1].paths[k]

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
                    after = variables(self.frame, self.place, given.step._trace)
                    new = copied(after)
                    after.note_kept(before, given.leaves, kept)
                finally:
                    for x, state in zip(before.tracers, kept, strict=True):
                        become(x, state)
                self.found.append(after)
                given = steps.send((new, [], None))
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

    def check(self, leaves: Sequence[Any], round_: Round) -> None:
        """An ArgumentError if rounds keep changing what they take."""
        if self.done < FIRST:
            return
        before, after = self.found[0], self.found[-1]
        for path, was in before.shape.items():
            now = after.shape.get(path)
            if now != was:
                raise ArgumentError(
                    f"{self.label}: {path} is {before.told(path)} before round {self.done} and "
                    f"{after.told(path)} after it{self.at()}. One round is traced for all, so what "
                    "it changes must be traced: carry numbers in variables of their own, and write "
                    "to ys[t] in the place of ys.append(...)"
                )
        if len(leaves) != len(round_.leaves):
            return
        types = [type_of(x) for x in leaves], [leaf.type for leaf in round_.leaves]
        self.check_types(*types, self.done)

    def looped(self, trace: Trace, leaves: Sequence[Any], round_: Round) -> list[Any]:
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
        if any(isinstance(x, Tracer) for x in operands):
            trace = self.trace(operands)
        rounds = np.int64(len(self.numbers) - self.done)
        given = [rounds, *[np.int64(0)] * len(idle), *[operands[k] for k in order]]
        loop = Loop(renumbered(body), len(body.outputs), int(rounds))
        outs = self.recorded(trace, loop, given)
        for k, out in zip(changed, outs, strict=not idle):
            ends[k] = as_weak(out, round_.leaves[k])
        return ends

    def leave(self, ends: Sequence[Any], trace: Trace) -> None:
        """The variables' tracers stand for these values from now on."""
        self.found[-1].leave(ends, trace)
