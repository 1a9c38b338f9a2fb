"""Common subexpressions: equal calls become one.

    %3 = exp(%1)            %3 = exp(%1)
    %4 = exp(%1)     -->
    %5 = add(%3, %4)        %5 = add(%3, %3)

Commutative operands are put in order first, so `a * b` and `b * a` are one call.
"""

from __future__ import annotations

from typing import Any

from tapegrad.ir.tape import Rewriter, Tape, Var
from tapegrad.primitives.control import Opaque
from tapegrad.primitives.elementwise import add, equal, mul, not_equal

_COMMUTATIVE = (add, mul, equal, not_equal)


def eliminate_common(tape: Tape) -> Tape:
    """Merge calls of one primitive on the same operands."""
    rewriter = Rewriter(tape)
    seen: dict[Any, tuple[Var, ...]] = {}
    for call in tape.calls:
        operands = rewriter.operands(call)
        key: Any = (call.primitive, tuple(operands))
        if call.primitive in _COMMUTATIVE:
            key = (call.primitive, frozenset(operands), len(set(operands)))
        if key in seen and not isinstance(call.primitive, Opaque):
            rewriter.env.update(zip(call.outs, seen[key], strict=True))
            continue
        outs = rewriter.builder.call(call.primitive, operands, call.src, call.reason)
        seen[key] = outs
        rewriter.env.update(zip(call.outs, outs, strict=True))
    return rewriter.finish()


