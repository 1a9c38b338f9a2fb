"""Forward mode: the tape of a function becomes the tape of its value and a directional derivative.

Each primitive's forward rule turns the operands' tangents into the result's. A value without a
tangent is a constant; `None` stands for its tangent.
"""

from __future__ import annotations

from collections.abc import Sequence

from tapegrad.ir.tape import Literal, Operand, Rewriter, Tape, Var
from tapegrad.primitives.base import Node, Writer
from tapegrad.primitives.views import BroadcastTo


def forward(tape: Tape, wrt: Sequence[int]) -> Tape:
    """The tape of (outputs..., tangents of the outputs...).

    The tangents of the inputs numbered `wrt` are further inputs, after all others; the tape must
    have no captured inputs (pass them as free ones).
    """
    rewriter = Rewriter(tape, name=f"jvp_{tape.name}")
    builder = rewriter.builder
    writer = Writer(builder)
    tangents: dict[Var, Node] = {}
    for k in wrt:
        var = tape.inputs[k]
        tangents[var] = writer.node(
            builder.input(var.aval, f"t_{tape.names[k]}" if tape.names else "")
        )
    for call in tape.calls:
        rewriter.copy(call)
        ts = [tangents.get(x) if isinstance(x, Var) else None for x in call.operands]
        if all(t is None for t in ts):
            continue
        writer.src, writer.reason = call.src, f"tangent via {call.primitive}"
        outs = [writer.node(rewriter.operand(v)) for v in call.outs]
        xs = [writer.node(x) for x in rewriter.operands(call)]
        single = call.primitive.results == 1
        result = call.primitive.jvp(ts, outs[0] if single else tuple(outs), *xs)
        for var, t in zip(
            call.outs, (result,) if single else result or (None,) * len(outs), strict=True
        ):
            if t is not None:
                node = t if isinstance(t, Node) else writer.node(t)
                # A tangent of a constant shape is broadcast to its value's here, once.
                tangents[var] = node if node.shape == var.shape else BroadcastTo(var.shape)(node)
    outputs: list[Operand] = [rewriter.operand(x) for x in tape.outputs]
    for x in tape.outputs:
        known = tangents.get(x) if isinstance(x, Var) else None
        if known is None:
            zero = writer.node(Literal(x.dtype.type(0)))
            known = zero if x.shape == () else BroadcastTo(x.shape)(zero)
        outputs.append(known.operand)
    return builder.finish(outputs)
