"""Partial evaluation: a tape in two, what can be computed early and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Call, Operand, Tape, Var


def partial_eval(tape: Tape, late: Sequence[int]) -> tuple[Tape, Tape]:
    """The tape in two: what the inputs numbered `late` have no part in, and the rest.

    The first tape keeps the other inputs, and gives the residuals that the second one reads. The
    second one's inputs are the late ones, then the residuals.
    """
    depends = {tape.inputs[k] for k in late}
    for call in tape.calls:
        if any(x in depends for x in call.operands):
            depends.update(call.outs)
    early = [c for c in tape.calls if not depends.issuperset(c.outs)]
    rest = [c for c in tape.calls if depends.issuperset(c.outs)]
    read: list[Operand] = [*(x for c in rest for x in c.operands), *tape.outputs]
    residuals = list(dict.fromkeys(x for x in read if isinstance(x, Var) and x not in depends))

    kept = [v for k, v in enumerate(tape.inputs) if k not in late]
    first = _part(tape, kept, early, residuals)
    second = _part(tape, [*(tape.inputs[k] for k in late), *residuals], rest, tape.outputs)
    return first, second


def halves(
    tape: Tape, late: Sequence[int], ends: int = 0
) -> tuple[list[Call], list[Call], list[Var]]:
    """The calls that some output needs: those which the inputs numbered `late` have no part in; the
    others; and what these, and the outputs from `ends` on, read that the late ones aren't in."""
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
    tape: Tape, inputs: Sequence[Var], calls: Sequence[Any], outputs: Sequence[Operand]
) -> Tape:
    """Some of a tape's calls as a tape of their own."""
    names = dict(zip(tape.inputs, tape.names, strict=False))
    said = tuple(names.get(v, f"%{v.id}") for v in inputs)
    return renumbered(Tape(tape.name, tuple(inputs), tuple(calls), tuple(outputs), names=said))
