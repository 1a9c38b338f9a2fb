"""Common subexpressions: equal calls become one.

    %3 = exp(%1)            %3 = exp(%1)
    %4 = exp(%1)     -->
    %5 = add(%3, %4)        %5 = add(%3, %3)

`a * b` and `b * a` are equal too. Of equal guards one stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tapegrad.ir.tape import Rewriter, Tape, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.control import Opaque

# Those that give the same bits either way round. maximum isn't one: it may return either zero.
_COMMUTATIVE = frozenset(
    [
        ew.add,
        ew.mul,
        ew.equal,
        ew.not_equal,
        ew.logical_and,
        ew.logical_or,
        ew.logical_xor,
        ew.bitwise_and,
        ew.bitwise_or,
        ew.bitwise_xor,
    ]
)


def eliminate_common(tape: Tape) -> Tape:
    """Merge calls of one primitive on the same operands."""
    rewriter = Rewriter(tape)
    seen: dict[Any, tuple[Var, ...]] = {}
    for call in tape.calls:
        operands = tuple(rewriter.operands(call))
        unordered = call.primitive in _COMMUTATIVE
        key = (call.primitive, frozenset(operands) if unordered else operands)
        if key in seen and not isinstance(call.primitive, Opaque):  # two calls of a user's stay two
            outs = seen[key]
        else:
            outs = rewriter.builder.again(call, operands)
            seen[key] = outs
        rewriter.env.update(zip(call.outs, outs, strict=True))
    done = rewriter.finish()
    return replace(done, guards=tuple(dict.fromkeys(done.guards)))
