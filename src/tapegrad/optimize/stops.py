"""Stopped gradients: once differentiated, there is nothing left to stop.

%2 = stop_gradient(%1)
%3 = exp(%2)             -->    %3 = exp(%1)
"""

from __future__ import annotations

from tapegrad.ir.tape import Rewriter, Tape, everywhere
from tapegrad.primitives.elementwise import stop_gradient


@everywhere
def drop_stops(tape: Tape) -> Tape:
    """Read what was stopped itself."""
    if not any(call.primitive is stop_gradient for call in tape.calls):
        return tape
    rewriter = Rewriter(tape)
    for call in tape.calls:
        if call.primitive is stop_gradient:
            rewriter.env[call.out] = rewriter.operand(call.operands[0])
        else:
            rewriter.copy(call)
    return rewriter.finish()
