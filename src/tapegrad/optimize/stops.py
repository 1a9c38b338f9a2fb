"""Calls that matter for derivatives only, removed once nothing is differentiated any more.

%2 = stop_gradient(%1) %3 = named(%2, label='h') %4 = exp(%3)                 -->    %4 = exp(%1)

If a value was kept and is also recomputed, the kept one is read. Solving with a matrix's factors no
longer needs the matrix:

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
    """Remove these calls: their readers read the operand."""
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
    return prune(rewriter.finish())  # kept values needn't be recomputed


def _serves(call: Call) -> bool:
    """Whether the value of a call is its last operand."""
    primitive = call.primitive
    return primitive is stop_gradient or primitive is kept or isinstance(primitive, Named)


def _is_of_factors(call: Call) -> bool:
    """Whether a call doesn't need the matrix whose factors it has. For complex numbers NumPy is
    called, and factors the matrix itself."""
    return isinstance(call.primitive, Factored) and isinstance(call.primitive, Routine)
