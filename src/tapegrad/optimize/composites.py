"""Composites: calls that were kept whole for the sake of further derivatives.

%3 = turned(%1, %2)     -->     %3 = greater(%1, 0.0)
                                %4 = less(%1, 0.0)
                                ...
"""

from __future__ import annotations

from tapegrad.ir.tape import Rewriter, Tape, everywhere
from tapegrad.primitives.base import Writer
from tapegrad.primitives.kinds import Composite


@everywhere
def expand_composites(tape: Tape) -> Tape:
    """Put the calls that a composite stands for in its place."""
    if not any(isinstance(call.primitive, Composite) for call in tape.calls):
        return tape
    rewriter = Rewriter(tape)
    writer = Writer(rewriter.builder)
    for call in tape.calls:
        primitive = call.primitive
        if not isinstance(primitive, Composite):
            rewriter.copy(call)
            continue
        writer.src, writer.reason = call.src, call.reason
        found = primitive.expand(*map(writer.node, rewriter.operands(call)))
        results = found if primitive.results > 1 else (found,)
        rewriter.env.update(zip(call.outs, [x.operand for x in results], strict=True))
    return rewriter.finish()
