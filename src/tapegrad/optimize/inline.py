"""Inlining: the calls of a sub-tape replace the call that holds it.

    %2 = call(%1, tape=@1)      -->      %2 = exp(%1)

A user's primitive is inlined after differentiating, when its rule is no longer needed.
"""

from __future__ import annotations

from dataclasses import replace

from tapegrad.ir.tape import Call, Rewriter, Tape, with_inner
from tapegrad.primitives.base import Primitive
from tapegrad.primitives.control import Applied


def inline_calls(tape: Tape) -> Tape:
    """Inline the sub-tapes of plain calls."""
    return _inline(tape, ruled=False)


def inline_custom(tape: Tape) -> Tape:
    """Inline the bodies of users' primitives too: their rules are no longer needed."""
    return _inline(tape, ruled=True)


def _inline(tape: Tape, ruled: bool) -> Tape:
    tape = with_inner(tape, lambda inner: _inline(inner, ruled))
    if not any(_is_inlined(c.primitive, ruled) for c in tape.calls):
        return tape
    rewriter = Rewriter(tape)
    for call in tape.calls:
        if _is_inlined(call.primitive, ruled):
            _expand(call, call.primitive.tapes[0], rewriter)
        else:
            rewriter.copy(call)
    return rewriter.finish()


def _is_inlined(primitive: Primitive, ruled: bool) -> bool:
    if not isinstance(primitive, Applied) or not primitive.inlined:
        return False
    return ruled or not primitive.ruled


def _expand(call: Call, body: Tape, rewriter: Rewriter) -> None:
    """Copy the calls of a body to the place of the call that holds it."""
    outer = rewriter.env
    rewriter.env = dict(zip(body.inputs, rewriter.operands(call), strict=True))
    for inner in body.calls:
        rewriter.copy(replace(inner, src=inner.src or call.src, reason=inner.reason or call.reason))
    results = [rewriter.operand(x) for x in body.outputs]
    for guard in body.guards:
        rewriter.builder.guards.append(replace(guard, operand=rewriter.operand(guard.operand)))
    rewriter.env = outer
    outer.update(zip(call.outs, results, strict=True))
