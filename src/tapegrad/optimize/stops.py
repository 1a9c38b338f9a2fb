"""What serves derivatives alone: once differentiated, there is nothing left to stop, or to name.

%2 = stop_gradient(%1)
%3 = named(%2, label='h')
%4 = exp(%3)                 -->    %4 = exp(%1)

Of a value that is computed again and was kept, it is the one kept that is read.
"""

from __future__ import annotations

from tapegrad.ir.tape import Call, Rewriter, Tape, everywhere
from tapegrad.optimize.dce import prune
from tapegrad.primitives.elementwise import stop_gradient
from tapegrad.primitives.named import Named, kept


@everywhere
def drop_stops(tape: Tape) -> Tape:
    """Read what was stopped itself."""
    if not any(map(_serves, tape.calls)):
        return tape
    rewriter = Rewriter(tape)
    for call in tape.calls:
        if _serves(call):
            rewriter.env[call.out] = rewriter.operand(call.operands[-1])
        else:
            rewriter.copy(call)
    return prune(rewriter.finish())  # what led to a value that was kept isn't computed again


def _serves(call: Call) -> bool:
    """Whether a call is its last operand, but for derivatives."""
    primitive = call.primitive
    return primitive is stop_gradient or primitive is kept or isinstance(primitive, Named)
