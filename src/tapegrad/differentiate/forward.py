"""Forward mode: the tape of a function becomes the tape of its value and a directional derivative.

Each primitive's forward rule turns the operands' tangents into the result's. A value without a
tangent is a constant; `None` stands for its tangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tapegrad.ir.inputs import unused, with_inputs
from tapegrad.ir.tape import Literal, Rewriter, Tape, Var
from tapegrad.primitives.base import Node, Writer
from tapegrad.primitives.views import BroadcastTo


def forward(tape: Tape, wrt: Sequence[int]) -> Tape:
    """The tape of (outputs..., tangents of the outputs...).

    The tangents of the inputs numbered `wrt` are further inputs, after the free ones and before the
    captured ones. Guards hold for the new tape as they did for the old one.
    """
    rewriter = Rewriter(_with_tangents(tape, wrt), name=f"jvp_{tape.name}")
    builder = rewriter.builder
    writer = Writer(builder)
    first = len(tape.free_inputs)
    tangents = {tape.inputs[k]: writer.node(builder.inputs[first + n]) for n, k in enumerate(wrt)}
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
    writer.src, writer.reason = None, ""
    done = rewriter.finish()
    outputs = list(done.outputs)
    for x in tape.outputs:
        known = tangents.get(x) if isinstance(x, Var) else None
        if known is None:
            zero = writer.node(Literal(x.dtype.type(0)))
            known = zero if x.shape == () else BroadcastTo(x.shape)(zero)
        outputs.append(known.operand)
    names = [*tape.output_names, *[f"t_{n}" if n else "" for n in tape.output_names]]
    return replace(
        done, calls=tuple(builder.calls), outputs=tuple(outputs), output_names=tuple(names)
    )


def _with_tangents(tape: Tape, wrt: Sequence[int]) -> Tape:
    """The tape with an input for the tangent of each of these inputs."""
    tangents = unused(tape, [tape.inputs[k].aval for k in wrt])
    names = [f"t_{tape.names[k]}" if tape.names and tape.names[k] else "" for k in wrt]
    return with_inputs(tape, tangents, names, before=len(tape.captured))
