"""Inlining: a call that holds a sub-tape is replaced by the sub-tape's calls.

    %2 = call(%1, tape=@1)      -->      %2 = exp(%1)

A user's primitive is inlined once its rule has been applied, so after differentiating.
"""

from __future__ import annotations

from dataclasses import replace

from tapegrad.ir.tape import Call, Rewriter, Tape
from tapegrad.primitives.control import CallTape, Custom


def inline_calls(tape: Tape) -> Tape:
    """Put sub-tapes of plain calls in place."""
    return _inline(tape, (CallTape,))


def inline_custom(tape: Tape) -> Tape:
    """Put the bodies of users' primitives in place too: their rules are no longer needed."""
    return _inline(tape, (CallTape, Custom))


def _inline(tape: Tape, kinds: tuple[type, ...]) -> Tape:
    if not any(isinstance(c.primitive, kinds) for c in tape.calls):
        return tape
    rewriter = Rewriter(tape)
    for call in tape.calls:
        _expand(call, rewriter, kinds)
    return rewriter.finish()


def _expand(call: Call, rewriter: Rewriter, kinds: tuple[type, ...]) -> None:
    primitive = call.primitive
    if not isinstance(primitive, kinds):
        rewriter.copy(call)
        return
    assert isinstance(primitive, (CallTape, Custom))
    body, outer = primitive.tape, rewriter.env
    rewriter.env = dict(zip(body.inputs, rewriter.operands(call), strict=True))
    for inner in body.calls:
        inner = replace(inner, src=inner.src or call.src, reason=inner.reason or call.reason)
        _expand(inner, rewriter, kinds)
    results = [rewriter.operand(x) for x in body.outputs]
    for guard in body.guards:
        rewriter.builder.guards.append(replace(guard, operand=rewriter.operand(guard.operand)))
    rewriter.env = outer
    outer.update(zip(call.outs, results, strict=True))
