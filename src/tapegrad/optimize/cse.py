"""Common subexpression elimination: equal calls become one.

    %3 = exp(%1)            %3 = exp(%1)
    %4 = exp(%1)     -->
    %5 = add(%3, %4)        %5 = add(%3, %3)

`a * b` and `b * a` are equal too. Equal guards are merged as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tapegrad.ir.tape import Operand, Rewriter, Tape, Var, everywhere
from tapegrad.primitives.base import Primitive
from tapegrad.primitives.kinds import Unset


def identity(primitive: Primitive, operands: Sequence[Operand]) -> Any:
    """The key of a call: calls with equal keys are merged. Calls of users' functions get unique
    keys. So do arrays that loops fill, since one of two merged arrays would have to be copied."""
    if primitive.foreign or isinstance(primitive, Unset):
        return object()
    return primitive, frozenset(operands) if primitive.algebra.commutative else tuple(operands)


@everywhere
def eliminate_common(tape: Tape) -> Tape:
    """Merge calls of one primitive on the same operands."""
    rewriter = Rewriter(tape)
    seen: dict[Any, tuple[Var, ...]] = {}
    for call in tape.calls:
        operands = rewriter.operands(call)
        key = identity(call.primitive, operands)
        outs = seen.get(key)
        if outs is None:
            outs = seen[key] = rewriter.builder.again(call, operands)
        rewriter.env.update(zip(call.outs, outs, strict=True))
    done = rewriter.finish()
    return replace(done, guards=tuple(dict.fromkeys(done.guards)))
