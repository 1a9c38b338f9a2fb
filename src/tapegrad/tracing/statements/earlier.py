"""First rounds that a loop begins with after all.

    for i in range(n):                    round 0                       loop(n, ...):
        for j in range(i):      -->       loop(n - 1, ...):      -->        loop(i, ...)
            ...                               loop(i, ...)

A round in which a loop makes no rounds tells nothing of these, so it stands in front. One that is
traced later has the inner loop, for any number of rounds. It counts from the first round that is in
front: so where its guards hold in these, too, they are rounds of the loop.
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
    """Rounds that stand in front of a loop from the number `done` on, since loops in them make
    none: what they began with, and what they have recorded. Where a later round is theirs, too, the
    loop begins with them."""

    done: int
    leaves: list[Any]
    before: Variables
    trace: Trace
    calls: list[Call]
    guards: list[Guard]

    @contextmanager
    def recording(self) -> Iterator[None]:
        """One of them is recorded."""
        builder = self.trace.builder
        calls, guards = len(builder.calls), len(builder.guards)
        yield
        self.calls.extend(builder.calls[calls:])
        self.guards.extend(builder.guards[guards:])

    def are_like(self, leaves: Sequence[Any], before: Variables, round_: Round) -> bool:
        """Whether a round that begins with this may begin with what they did: with values of the
        same types, and what it leaves as it is they have left so."""
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
        """They don't stand there any more, but for what others read."""
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
