"""Forward mode: the tape of a function becomes the tape of its value and a directional derivative.

Each primitive's forward rule maps the operands' tangents to the result's. A value without a tangent
is a constant; `None` stands for its tangent.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tapegrad.differentiate.activity import moving
from tapegrad.differentiate.kinks import MovingKinks, Parts
from tapegrad.differentiate.loops import zeros_of
from tapegrad.differentiate.masks import Masks
from tapegrad.differentiate.reverse import at_call, with_reached
from tapegrad.errors import GradientError, RuleError
from tapegrad.ir.inputs import renumbered, unused, with_inputs
from tapegrad.ir.tape import Call, Literal, Operand, Rewriter, Tape, Var
from tapegrad.primitives.base import Node, Writer, total
from tapegrad.primitives.control import without_effects
from tapegrad.primitives.kinds import Repeated
from tapegrad.primitives.kinks import Sided, leaning
from tapegrad.primitives.spectral import Decomposition
from tapegrad.primitives.transposing import pushed_by
from tapegrad.primitives.views import BroadcastTo


def forward(tape: Tape, wrt: Sequence[int], inside: bool = False, apart: bool = False) -> Tape:
    """The tape of (outputs..., tangents of the outputs...).

    The tangents of the inputs numbered `wrt` are further inputs, after the free ones and before the
    captured ones. The guards are the old tape's. `inside` says that the tape is a round of a loop.
    With `apart`, the outputs other than tangents don't depend on the inputs for tangents: a loop
    that carries tangents is recorded beside the loop that computes the values.
    """
    rewriter = Rewriter(_with_tangents(tape, wrt), name=f"jvp_{tape.name}")
    builder = rewriter.builder
    writer = Writer(builder)
    first = len(tape.free_inputs)
    tangents = {tape.inputs[k]: writer.node(builder.inputs[first + n]) for n, k in enumerate(wrt)}
    parts = Parts(tangents, {}, {})  # mean, odd and even parts (see `kinks`)
    kinks = MovingKinks(
        tape,
        lambda x: writer.node(rewriter.operand(x)),
        lambda x: Parts(*[known.get(x) for known in parts]),
    )
    masks = Masks(builder)
    for call in tape.calls if kinks.ahead else ():
        rewriter.copy(call)
    for call in tape.calls:
        if isinstance(call.primitive, Repeated):
            _push_loop(call, rewriter, writer, tangents, apart)
            continue
        if not kinks.ahead:
            rewriter.copy(call)
        if call.primitive.flat or all(out.dtype.kind not in "fc" for out in call.outs):
            continue
        if all(known.keys().isdisjoint(call.operands) for known in parts):
            continue
        _push(call, rewriter, writer, parts, masks, kinks)
    writer.src, writer.reason = None, ""
    done = rewriter.finish()
    outputs = list(done.outputs)
    for x in tape.outputs:
        known = tangents.get(x) if isinstance(x, Var) else None
        if known is None:
            zero = writer.node(Literal(x.dtype.type(0)))
            known = zero if x.shape == () else BroadcastTo(x.shape)(zero)
        if isinstance(x, Var) and not inside:  # loops carry means only
            known = leaning(known, *[beside.get(x) for beside in parts[1:]])
        outputs.append(known.operand)
    names = [*tape.output_names, *[f"t_{n}" if n else "" for n in tape.output_names]]
    pushed = replace(
        done, calls=tuple(builder.calls), outputs=tuple(outputs), output_names=tuple(names)
    )
    return with_reached(pushed, writer)


def _push(
    call: Call,
    rewriter: Rewriter,
    writer: Writer,
    parts: Parts,
    masks: Masks,
    kinks: MovingKinks,
) -> None:
    """Compute the tangents of a call's results."""
    primitive = call.primitive
    writer.src, writer.reason = call.src, f"tangent via {primitive}"
    outs = [writer.node(rewriter.operand(v)) for v in call.outs]
    xs = [writer.node(x) for x in rewriter.operands(call)]
    single = primitive.results == 1
    out = outs[0] if single else tuple(outs)

    def rule(ts: Any, directions: Any) -> Sequence[Any]:
        if isinstance(primitive, Decomposition):
            read = [_is_read(rewriter.tape, var) for var in call.outs]
            found = primitive.tangents(read, directions or (), ts, out, *xs)
        elif directions is None:
            found = primitive.jvp(ts, out, *xs)
        elif isinstance(primitive, Sided):
            found = primitive.jvp_along(directions, ts, out, *xs)
        else:
            found = pushed_by(functools.partial(primitive.vjp_along, directions), ts, out, *xs)
        return (found,) if single else found or (None,) * len(outs)

    def masked(ts: Any, directions: Any) -> Sequence[Any]:
        """The rule applied to one operand's tangent after the other, keeping strong zeros (see
        `masks`)."""
        terms: list[Any] = []
        for k, t in enumerate(ts):
            if t is not None:
                alone = [t if n == k else None for n in range(len(ts))]
                terms += masks.keep(call, t, rule(alone, directions))
        return (total(terms),)

    ops: Any = call.operands
    taken = Parts(
        *[None if known.keys().isdisjoint(ops) else [known.get(x) for x in ops] for known in parts]
    )
    stand = any(t is not None and masks.keeps(call, t) for ts in taken if ts for t in ts)
    try:
        pushed = kinks.push(call, taken, masked if stand else rule)
    except RuleError:
        raise
    except GradientError as error:
        raise GradientError(
            f"{error}{at_call(call)}. Declare one with tapegrad.defjvp (a Function has it as its "
            "static method jvp), or keep the derivative out with tapegrad.stop_gradient"
        ) from None
    for known, found in zip(parts, pushed, strict=True):
        for var, t in zip(call.outs, found or (), strict=found is not None):
            if t is not None and var.dtype.kind in "fc":
                node = t if isinstance(t, Node) else writer.node(t)
                # A tangent of a smaller shape is broadcast to the value's shape here, and nowhere
                # else.
                known[var] = node if node.shape == var.shape else BroadcastTo(var.shape)(node)


def _is_read(tape: Tape, var: Var) -> bool:
    return var in tape.outputs or any(var in call.operands for call in tape.calls)


def _push_loop(
    call: Call, rewriter: Rewriter, writer: Writer, tangents: dict[Var, Any], apart: bool
) -> None:
    """Record a loop that carries tangents too and, if `apart`, the loop itself beside it."""
    loop: Any = call.primitive
    given = loop.given(call.operands)
    first = len(call.operands) - len(given) - 1
    active = moving(loop, call.operands, {x for x in given if x in tangents})
    if apart or not active:
        rewriter.copy(call)
    if not active:
        return
    body, count = forward(loop.body, active, inside=True), loop.carried
    carried = [k for k in active if k <= count]
    inputs, further = body.inputs[: len(given) + 1], body.inputs[len(given) + 1 :]
    place = dict(zip(active, further, strict=True))
    inside = [*inputs[: 1 + count], *(place[k] for k in carried), *inputs[1 + count :]]
    inside += [place[k] for k in active if k > count]
    left = len(loop.body.outputs)
    outputs = [*body.outputs[:count], *(body.outputs[left + k - 1] for k in carried)]
    outputs += body.outputs[count:left]
    names = () if not body.names else ("",) * len(inside)
    body = renumbered(
        replace(body, inputs=tuple(inside), outputs=tuple(outputs), names=names, output_names=())
    )
    writer.src, writer.reason = call.src, f"tangent via {loop}"
    xs = [writer.node(x) for x in rewriter.operands(call)]
    ts = {k: _tangent(given[k - 1], tangents, xs[first + k]) for k in active}
    start = [*loop.given(xs)[:count], *(ts[k] for k in carried)]
    rest = [*loop.given(xs)[count:], *(ts[k] for k in active if k > count)]
    primitive = loop.changed(body=without_effects(body) if apart else body, carried=len(start))
    found = primitive(*loop.heads(xs), *start, *rest)
    results = found if isinstance(found, tuple) else (found,)
    plain = [*results[:count], *results[len(start) :]]
    if not apart:
        rewriter.env.update(zip(call.outs, [x.operand for x in plain], strict=True))
    found_ts = results[count : len(start)]
    tangents.update(zip([call.outs[k - 1] for k in carried], found_ts, strict=True))


def _tangent(x: Operand, tangents: dict[Var, Any], value: Node) -> Node:
    """The tangent of a loop's operand; zeros if it has none."""
    known = tangents.get(x) if isinstance(x, Var) else None
    return zeros_of(value.writer, value.aval) if known is None else known


def _with_tangents(tape: Tape, wrt: Sequence[int]) -> Tape:
    """The tape with a further input for the tangent of each input in `wrt`."""
    tangents = unused(tape, [tape.inputs[k].aval for k in wrt])
    names = [f"t_{tape.names[k]}" if tape.names and tape.names[k] else "" for k in wrt]
    return with_inputs(tape, tangents, names, before=len(tape.captured))
