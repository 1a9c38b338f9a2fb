"""log(1 + exp(u)), marked before differentiating.

    log1p(exp(u))       -->  known(log1p(exp(u)), -log_expit(-u))
    log(1 + exp(u))     -->  known(log(1 + exp(u)), -log_expit(-u))

No value changes. The derivative is that of the second operand: the logistic function, whose own
slope is small where exp(u) is large. The chain rule would give a difference of two numbers near 1,
and NaN where exp(u) is inf.
"""

from __future__ import annotations

from tapegrad.ir.tape import Call, Literal, Operand, Rewriter, Tape, Var, everywhere
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives import special
from tapegrad.primitives.stated import Known


@everywhere
def tell_softplus(tape: Tape) -> Tape:
    """Apply the rewrite to each logarithm of this form."""
    if not any(call.primitive in (ew.log, ew.log1p) for call in tape.calls):
        return tape
    rewriter = Rewriter(tape)
    made = {call.out: call for call in tape.calls if len(call.outs) == 1}
    for call in tape.calls:
        rewriter.copy(call)
        u = _exponent(made, call)
        if u is None or call.out.dtype.kind != "f" or u.shape != call.out.shape:
            continue
        x = rewriter.operand(u)
        for primitive in (ew.neg, special.log_expit, ew.neg):
            (x,) = rewriter.builder.call(primitive, [x], call.src, call.reason)
        value = rewriter.operand(call.out)
        (told,) = rewriter.builder.call(Known(), [value, x], call.src, call.reason)
        rewriter.env[call.out] = told
    return rewriter.finish()


def _exponent(made: dict[Var, Call], call: Call) -> Operand | None:
    """u of log(1 + exp(u))."""
    if call.primitive not in (ew.log, ew.log1p):
        return None
    power = call.operands[0]
    if call.primitive is ew.log:
        total = made.get(power) if isinstance(power, Var) else None
        if total is None or total.primitive is not ew.add:
            return None
        ones = [isinstance(x, Literal) and x.value == 1 for x in total.operands]
        if True not in ones:
            return None
        power = total.operands[1 - ones.index(True)]
    found = made.get(power) if isinstance(power, Var) else None
    return found.operands[0] if found is not None and found.primitive is ew.exp else None
