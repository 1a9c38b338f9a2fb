"""First rounds that are moved into a loop which is found later.

    for i in range(n):          round 0               loop(n, ...):
        for j in range(i):  -->     loop(n - 1, ...):    -->      loop(i, ...)
            ...                         loop(i, ...)

A round whose inner loop makes no rounds shows nothing of that loop, so it is recorded by itself, in
front. A later round has the inner loop, for any number of rounds. It counts from the first round in
front: if its guards hold for the rounds in front, too, these become rounds of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tapegrad.ir.tape import Call, Guard
from tapegrad.tracing.loops.rounds import Round, type_of
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.statements.variables import Variables


class Earlier(NamedTuple):
    """Rounds in front of a loop, from number `done` on, whose inner loops make no rounds: their
    initial values and what they have recorded. If a later round covers them, they become rounds of
    the loop."""

    done: int
    leaves: list[Any]
    before: Variables
    trace: Trace
    calls: list[Call]
    guards: list[Guard]

    @contextmanager
    def recording(self) -> Iterator[None]:
        """A context in which one of the rounds is recorded."""
        builder = self.trace.builder
        calls, guards = len(builder.calls), len(builder.guards)
        yield
        self.calls.extend(builder.calls[calls:])
        self.guards.extend(builder.guards[guards:])

    def are_like(self, leaves: Sequence[Any], before: Variables, round_: Round) -> bool:
        """Whether a round may begin with the initial values of these rounds: they have the same
        types, and the values that the round leaves unchanged are unchanged in them."""
        inputs, ends = round_.tape.inputs[1:], round_.leaves
        return self.before.shape == before.shape and all(
            type(x) is type(y)
            and type_of(x) == type_of(y)
            and x._ordered == y._ordered
            and x._value is not None
            and (end.operand is not given or x._operand is y._operand)
            for x, y, given, end in zip(self.leaves, leaves, inputs, ends, strict=False)
        )

    def forget(self) -> None:
        """Remove the rounds from the tape, except calls that others read."""
        builder, gone = self.trace.builder, {*map(id, self.calls), *map(id, self.guards)}
        for guard in self.guards:
            self.trace.forget_guard(guard)
        builder.guards[:] = [guard for guard in builder.guards if id(guard) not in gone]
        live = {guard.operand for guard in builder.guards}
        kept: list[Call] = []
        for call in reversed(builder.calls):
            if id(call) not in gone or not live.isdisjoint(call.outs):
                kept.append(call)
                live.update(call.operands)
        builder.calls[:] = reversed(kept)
