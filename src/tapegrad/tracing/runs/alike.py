"""Whether a function did the same in two traces.

One whose rounds are traced once for all must not depend on what it changes itself: a counter, an
iterator, a list. A second trace tells. Values get numbers, equal ones where the same primitive is
applied to the same values, so it doesn't matter what was recorded in vain.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Any

from tapegrad.core.statics import static_key
from tapegrad.ir.tape import Call, Literal, Operand, Tape
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.runs.traced import Traced
from tapegrad.tracing.tracers.tracer import Tracer

# Traces that are under way, the innermost last, and how many calls and captured inputs they had
Marks = Sequence[tuple[Trace, int, int]]


def marks_of(traces: Sequence[Trace]) -> Marks:
    """Where these traces are now."""
    return [(trace, len(trace.builder.calls), len(trace.captured)) for trace in traces]


def are_alike(a: Traced, b: Traced, marks: Marks) -> bool:
    """Whether a function did the same twice. What it recorded on traces around, of what was there
    at these marks, was recorded anew each time."""
    shared = {id(x) for x in a.captured} & {id(x) for x in b.captured}
    numbers = _Numbers(marks, shared)
    return a.structure == b.structure and numbers.of_trace(a) == numbers.of_trace(b)


class _Numbers:
    def __init__(self, marks: Marks, shared: set[int]) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._shared = shared
        self._around: dict[int, dict[int, int]] = {}
        for trace, calls, captured in marks:
            known = self._around[trace.level] = {}
            for var, x in islice(trace.captured.values(), captured, None):
                known[var.id] = self._captured(x)
            for call in trace.builder.calls[calls:]:
                self._define(call, known, trace.level)

    def of_trace(self, traced: Traced) -> Any:
        """What tells what a traced function did."""
        tape = traced.tape
        free = len(tape.inputs) - len(traced.captured)
        env = self._inputs(tape, free)
        for var, x in zip(tape.inputs[free:], traced.captured, strict=True):
            env[var.id] = self._captured(x)
        constants = [
            None if at is not None else (type(leaf), static_key(leaf))
            for leaf, at in zip(traced.leaves, traced.outputs, strict=True)
        ]
        return self._tape(tape, env), constants, traced.outputs

    def _inputs(self, tape: Tape, count: int) -> dict[int, int]:
        return {
            v.id: self._number(("input", k, v.shape, v.dtype))
            for k, v in enumerate(tape.inputs[:count])
        }

    def _captured(self, x: Any) -> int:
        """An array from outside, by what it holds: one that the function makes is made anew."""
        if not isinstance(x, Tracer):
            if id(x) in self._shared:
                return self._number(("object", id(x)))
            return self._number(("array", x.shape, x.dtype, x.tobytes()))
        return self._operand(x._read()[0], self._around.get(x._trace.level, {}), x._trace.level)

    def _tape(self, tape: Tape, env: dict[int, int]) -> Any:
        for call in tape.calls:
            self._define(call, env)
        return (
            tuple([self._operand(x, env) for x in tape.outputs]),
            frozenset([(self._operand(g.operand, env), g.expected) for g in tape.guards]),
        )

    def _define(self, call: Call, env: dict[int, int], level: int = 0) -> None:
        operands = tuple([self._operand(x, env, level) for x in call.operands])
        number = self._number((self._primitive(call.primitive), operands))
        for k, out in enumerate(call.outs):
            env[out.id] = self._number((number, k))

    def _operand(self, x: Operand, env: dict[int, int], level: int = 0) -> int:
        if isinstance(x, Literal):
            return self._number(("number", x))
        return env[x.id] if x.id in env else self._number(("around", level, x.id))

    def _primitive(self, primitive: Any) -> Any:
        """A primitive; of one that holds functions of the user's, which may be made anew each time,
        what else there is to it."""
        if not (primitive.tapes or getattr(primitive, "foreign", False)):
            return primitive
        told = tuple(
            [x for x in primitive.parameters() if not (callable(x[1]) or isinstance(x[1], Tape))]
        )
        inner = tuple([self._tape(x, self._inputs(x, len(x.inputs))) for x in primitive.tapes])
        return type(primitive), told, inner

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))
