"""Dead code: calls that no output and no guard needs are dropped.

%3 = exp(%1)
%4 = sin(%1)     -->    %4 = sin(%1)
out %4                  out %4
"""

from __future__ import annotations

from dataclasses import replace

from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Call, Operand, Tape, Var, everywhere


@everywhere
def remove_dead(tape: Tape) -> Tape:
    """Drop calls that no output and no guard depends on. Inputs stay: they are the signature."""
    pruned = _prune(tape)
    return tape if pruned is tape else renumbered(pruned)


@everywhere
def prune(tape: Tape) -> Tape:
    """`remove_dead` without renumbering the variables."""
    return _prune(tape)


def _prune(tape: Tape) -> Tape:
    live: set[Operand] = {*tape.outputs, *(guard.operand for guard in tape.guards)}
    kept: list[Call] = []
    for call in reversed(tape.calls):
        if call.primitive.checks or not live.isdisjoint(call.outs):
            kept.append(call)
            live.update([x for x in call.operands if type(x) is Var])
    if len(kept) == len(tape.calls):
        return tape
    return replace(tape, calls=tuple(reversed(kept)))
