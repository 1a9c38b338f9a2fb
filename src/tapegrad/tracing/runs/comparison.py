"""Comparison of two traces of a function.

A function whose rounds are traced once for all must not depend on state that it changes itself: a
counter, an iterator, a list. A second trace shows that. Values are numbered; the same primitive on
the same values gets the same number, so unused calls don't matter.
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

# Traces under way, the innermost last, with their numbers of calls and of captured inputs.
Marks = Sequence[tuple[Trace, int, int]]


def marks_of(traces: Sequence[Trace]) -> Marks:
    """The present marks of these traces."""
    return [(trace, len(trace.builder.calls), len(trace.captured)) for trace in traces]


def are_alike(a: Traced, b: Traced, marks: Marks) -> bool:
    """Whether a function did the same in two traces. `marks` tell which values of the outer traces
    existed before; those recorded later were recorded anew by each trace."""
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
        """A key for the computation of a traced function."""
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
        """The number of a captured array, by its contents: an array that the function creates is a
        new one in each trace."""
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
        """A key for a primitive. If it holds functions of the user's, which may be new objects each
        time, only its other parameters and its tapes count."""
        if not (primitive.tapes or getattr(primitive, "foreign", False)):
            return primitive
        told = tuple(
            [x for x in primitive.parameters() if not (callable(x[1]) or isinstance(x[1], Tape))]
        )
        inner = tuple([self._tape(x, self._inputs(x, len(x.inputs))) for x in primitive.tapes])
        return type(primitive), told, getattr(primitive, "effect", None), inner

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))
