"""What serves derivatives alone: once differentiated, there is nothing left to stop, or to name.

%2 = stop_gradient(%1)
%3 = named(%2, label='h')
%4 = exp(%3)                 -->    %4 = exp(%1)

Of a value that is computed again and was kept, it is the one kept that is read. What is computed of
a matrix's factors needs the matrix no more:

%7 = lu_solve(%4, %5, %6, %1)    -->    %7 = lu_solve(%5, %5, %6, %1)
"""

from __future__ import annotations

from tapegrad.ir.tape import Call, Rewriter, Tape, everywhere
from tapegrad.optimize.dce import prune
from tapegrad.primitives.elementwise import stop_gradient
from tapegrad.primitives.kinds import Routine
from tapegrad.primitives.named import Named, kept
from tapegrad.primitives.solving import Factored


@everywhere
def drop_stops(tape: Tape) -> Tape:
    """Read what was stopped itself."""
    if not any(_serves(call) or _is_of_factors(call) for call in tape.calls):
        return tape
    rewriter = Rewriter(tape)
    for call in tape.calls:
        if _serves(call):
            rewriter.env[call.out] = rewriter.operand(call.operands[-1])
        elif _is_of_factors(call):
            _, factors, *rest = rewriter.operands(call)
            outs = rewriter.builder.again(call, [factors, factors, *rest])
            rewriter.env.update(zip(call.outs, outs, strict=True))
        else:
            rewriter.copy(call)
    return prune(rewriter.finish())  # what led to a value that was kept isn't computed again


def _serves(call: Call) -> bool:
    """Whether a call is its last operand, but for derivatives."""
    primitive = call.primitive
    return primitive is stop_gradient or primitive is kept or isinstance(primitive, Named)


def _is_of_factors(call: Call) -> bool:
    """Whether a call has no need of the matrix whose factors it has. NumPy's of complex numbers
    factor it themselves."""
    return isinstance(call.primitive, Factored) and isinstance(call.primitive, Routine)
