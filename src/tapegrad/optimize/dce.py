"""Dead code: calls that no output and no guard needs are dropped.

%3 = exp(%1)
%4 = sin(%1)     -->    %4 = sin(%1)
out %4                  out %4
"""

from __future__ import annotations

from tapegrad.ir.tape import Rewriter, Tape, Var


def remove_dead(tape: Tape) -> Tape:
    """Keep the calls that outputs and guards depend on. Inputs stay: they are the signature."""
    live = {x for x in (*tape.outputs, *(g.operand for g in tape.guards)) if isinstance(x, Var)}
    kept = []
    for call in reversed(tape.calls):
        if any(out in live for out in call.outs):
            kept.append(call)
            live.update(x for x in call.operands if isinstance(x, Var))
    if len(kept) == len(tape.calls):
        return tape
    rewriter = Rewriter(tape)
    for call in reversed(kept):
        rewriter.copy(call)
    return rewriter.finish()
