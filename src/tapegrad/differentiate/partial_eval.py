"""Partial evaluation: a tape is divided into an early part and a late part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Call, Guard, Operand, Tape, Var


def partial_eval(tape: Tape, late: Sequence[int], kept: int = 0) -> tuple[Tape, Tape]:
    """The tape in two: calls that don't depend on the inputs numbered `late`, and the rest.

    The first tape keeps the other inputs, and the guards. It returns the first `kept` outputs,
    which must not depend on the late inputs, and the residuals that the second tape reads. The
    second tape takes the late inputs and the residuals; it returns the other outputs.
    """
    depends = {tape.inputs[k] for k in late}
    for call in tape.calls:
        if any(x in depends for x in call.operands):
            depends.update(call.outs)
    early = [c for c in tape.calls if not depends.issuperset(c.outs)]
    rest = [c for c in tape.calls if depends.issuperset(c.outs)]
    ends = tape.outputs[kept:]
    read: list[Operand] = [*(x for c in rest for x in c.operands), *ends]
    residuals = list(dict.fromkeys(x for x in read if isinstance(x, Var) and x not in depends))

    others = [v for k, v in enumerate(tape.inputs) if k not in late]
    first = _part(tape, others, early, [*tape.outputs[:kept], *residuals], tape.guards)
    second = _part(tape, [*(tape.inputs[k] for k in late), *residuals], rest, ends)
    return first, second


def halves(
    tape: Tape, late: Sequence[int], ends: int = 0
) -> tuple[list[Call], list[Call], list[Var]]:
    """The live calls that don't depend on the inputs numbered `late`; the other live calls; and the
    variables that these, or the outputs from `ends` on, read from the early part."""
    live: set[Operand] = {*tape.outputs, *(guard.operand for guard in tape.guards)}
    needed = []
    for call in reversed(tape.calls):
        if call.primitive.checks or not live.isdisjoint(call.outs):
            needed.append(call)
            live.update(call.operands)
    needed.reverse()
    depends: set[Operand] = {tape.inputs[k] for k in late}
    for call in needed:
        if not depends.isdisjoint(call.operands):
            depends.update(call.outs)
    early = [call for call in needed if depends.isdisjoint(call.outs)]
    rest = [call for call in needed if not depends.isdisjoint(call.outs)]
    late_outputs = tape.outputs[ends:]
    read = [*(x for call in rest for x in call.operands), *late_outputs]
    residuals = dict.fromkeys(x for x in read if isinstance(x, Var) and x not in depends)
    return early, rest, list(residuals)


def _part(
    tape: Tape,
    inputs: Sequence[Var],
    calls: Sequence[Any],
    outputs: Sequence[Operand],
    guards: Sequence[Guard] = (),
) -> Tape:
    """Some of a tape's calls as a tape of their own."""
    names = dict(zip(tape.inputs, tape.names, strict=False))
    said = tuple(names.get(v, f"%{v.id}") for v in inputs)
    found = Tape(tape.name, tuple(inputs), tuple(calls), tuple(outputs), tuple(guards), names=said)
    return renumbered(found)
