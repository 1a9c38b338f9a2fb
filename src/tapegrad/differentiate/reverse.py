"""Reverse mode: the tape of a function becomes the tape of its value and its gradients.

The calls are walked backwards. Each primitive's rule maps the cotangent of its result to cotangents
of its operands. If a variable is read several times, its cotangents are added. Rules ignore
broadcasting: `sum_to` undoes it here, and nowhere else.

Names: `ct` cotangent; `wrt` the inputs to differentiate with respect to.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from tapegrad.differentiate.activity import depends_on
from tapegrad.differentiate.kinks import Kinks, Parts
from tapegrad.differentiate.loop_residuals import Checkpoint, Differentiable, with_residuals
from tapegrad.differentiate.loops import Backward, Derive
from tapegrad.differentiate.masks import Masks
from tapegrad.errors import GradientError, RuleError
from tapegrad.ir.inputs import renumbered, unused, with_inputs
from tapegrad.ir.tape import Aval, Builder, Call, Literal, Operand, Tape, Var
from tapegrad.primitives.base import Missing, Node, Writer
from tapegrad.primitives.control import quietly
from tapegrad.primitives.kinds import Repeated
from tapegrad.primitives.kinks import leaning
from tapegrad.primitives.transposing import sum_to
from tapegrad.primitives.views import BroadcastTo
from tapegrad.primitives.windows import Placed, Total

Part = Node | Placed | Total  # a summand of a variable's cotangent


def reverse(
    tape: Tape,
    wrt: Sequence[int],
    seed: bool = False,
    keep: Sequence[int] | None = None,
    masked: Collection[int] = (),
    onto: Sequence[int] = (),
    carried: Sequence[int] = (),
    inside: bool = False,
    checkpoint: Checkpoint = "auto",
) -> Tape:
    """The tape of (outputs..., cotangents of the inputs numbered `wrt`...).

    Without `seed` the first output is a scalar, whose cotangent is 1; the others have none. With
    `seed` the cotangents of all outputs are further inputs, after the free ones and before the
    captured ones. `keep` numbers the outputs that stay on the tape; by default all do. `checkpoint`
    says what loops keep (see `keeping`).

    For a round `inside` of a loop: the seeds numbered in `masked` have strong zeros (see `masks`).
    The cotangents of `wrt[k]`, for k in `onto`, are added to further inputs, after the seeds. The
    inputs numbered in `carried` change from round to round.
    """

    def derive(
        body: Tape,
        wrt: Sequence[int],
        masked: Collection[int],
        onto: Sequence[int],
        carried: Sequence[int],
    ) -> Tape:
        """The derivative of a loop's round."""
        return reverse(
            body, wrt, True, None, masked, onto, carried, inside=True, checkpoint=checkpoint
        )

    tape, loops, again = with_residuals(tape, wrt, derive, checkpoint, carried)
    seeded = _with_seeds(tape, [tape.inputs[wrt[k]].aval for k in onto]) if seed else tape
    builder = Builder.after(seeded, f"grad_{tape.name}")
    writer = Writer(builder)
    cts: dict[Var, list[Part]] = {}
    parts = Parts(cts, {}, {})  # mean, odd and even parts (see `kinks`)
    if seed:
        free = len(tape.free_inputs)
        seeds: list[Operand] = list(builder.inputs[free : free + len(tape.outputs)])
        sums = builder.inputs[free + len(seeds) : free + len(seeds) + len(onto)]
        for k, start in zip(onto, sums, strict=True):
            cts[tape.inputs[wrt[k]]] = [Total(writer.node(start))]
    else:
        seeds = [Literal(x.dtype.type(1)) for x in tape.outputs[:1]]
    for output, ct in zip(tape.outputs, seeds, strict=False):
        if isinstance(output, Var) and output.dtype.kind in "fc":
            cts.setdefault(output, []).append(writer.node(ct))

    masks = Masks(builder, [seeds[k] for k in masked])
    kinks = Kinks(tape, writer.node)
    active = depends_on(tape, wrt)
    for call in reversed(tape.calls):
        if active.isdisjoint(call.outs):
            continue
        if all(known.keys().isdisjoint(call.outs) for known in parts):
            continue
        if inside and call.primitive.factors:  # kept for a derivative: their cotangents are 0
            continue
        if isinstance(call.primitive, Repeated) and cts.keys().isdisjoint(call.outs):
            continue
        if call.outs[0] in loops:
            _pull_back_loop(loops[call.outs[0]], writer, cts, active, masks)
        elif isinstance(call.primitive, Repeated):
            call = again.get(call.outs[0], call)
            _pull_back_loop(_run_again(call, builder, active, derive), writer, cts, active, masks)
        else:
            _pull_back(call, writer, parts, active, masks, kinks)

    writer.src, writer.reason = None, ""
    if inside:  # loops carry means only
        parts = Parts(cts, {}, {})
    gradients = [_input_cotangent(tape.inputs[k], parts, writer) for k in wrt]
    kept = range(len(tape.outputs)) if keep is None else keep
    outputs = [tape.outputs[k] for k in kept] + gradients
    builder.guards += tape.guards
    names = [tape.output_names[k] if tape.output_names else "" for k in kept]
    names += [f"d_{tape.names[k]}" if tape.names and tape.names[k] else "" for k in wrt]
    return with_reached(builder.finish(outputs, tape.captured, names), writer)


def with_reached(tape: Tape, writer: Writer) -> Tape:
    """The tape with captured inputs for the arrays that users' rules captured."""
    if not writer.captured:
        return tape
    reached, arrays = zip(*writer.captured.values(), strict=True)
    names = [f"r{len(tape.captured) + k}" for k in range(len(reached))]
    return renumbered(with_inputs(tape, reached, names, arrays))


def _with_seeds(tape: Tape, sums: Sequence[Aval]) -> Tape:
    """The tape with inputs for the cotangents of its outputs, and for sums of these types, after
    the free inputs."""
    seeds = unused(tape, [*(x.aval for x in tape.outputs), *sums])
    count = len(tape.outputs)
    names = ["seed"] if count == 1 else [f"seed{k}" for k in range(count)]
    names += [f"sum{k}" for k in range(len(sums))]
    return with_inputs(tape, seeds, names, before=len(tape.captured))


def _pull_back(
    call: Call,
    writer: Writer,
    parts: Parts,
    active: set[Operand],
    masks: Masks,
    kinks: Kinks,
) -> None:
    """Add this call's contributions to the cotangents of its operands."""
    if call.primitive.visible is not None:
        _refuse_residuals(call, parts.mean)
    writer.src = call.src
    writer.reason = f"cotangent of {call.outs[0]}"
    outs = [writer.node(v) for v in call.outs]
    taken = Parts(*[_taken(call, writer, known) for known in parts])
    xs = [writer.node(x) for x in call.operands]
    writer.reason = f"cotangent via {call.primitive}"
    single = call.primitive.results == 1
    out = outs[0] if single else tuple(outs)

    def rule(ct: Any, directions: Any) -> Sequence[Any]:
        if directions is None:
            found = call.primitive.vjp(ct, out, *xs)
        else:
            found = call.primitive.vjp_along(directions, ct, out, *xs)
        return masks.keep(call, ct, found) if single else found

    try:
        found = kinks.pull(call, taken, rule)
    except RuleError:
        raise
    except GradientError as error:
        raise GradientError(
            f"{error}{at_call(call)}. Declare one with tapegrad.defvjp, or keep the derivative out "
            "with tapegrad.stop_gradient"
        ) from None
    for known, contributions in zip(parts, found, strict=True):
        if contributions is not None:
            _add(call, contributions, writer, known, active)


def _taken(call: Call, writer: Writer, cts: dict[Var, list[Part]]) -> Any:
    """The cotangent of a call's result, or a tuple for several results; None if there is none."""
    if cts.keys().isdisjoint(call.outs):
        return None
    summed = [
        None
        if call.primitive.absent and var not in cts
        else _accumulated(writer, var.aval, cts.pop(var, None))
        for var in call.outs
    ]
    return summed[0] if call.primitive.results == 1 else tuple(summed)


def _run_again(
    call: Call, builder: Builder, active: set[Operand], derive: Derive
) -> Differentiable:
    """A loop that kept nothing, recorded once more as one that keeps residuals."""
    call = replace(quietly(call), reason=f"cotangent via {call.primitive}, which runs again")
    backward = Backward(call, active, derive)
    return Differentiable(backward, call, backward.forward(builder, call))


def _pull_back_loop(
    loop: Differentiable,
    writer: Writer,
    cts: dict[Var, list[Part]],
    active: set[Operand],
    masks: Masks,
) -> None:
    """Add a loop's contributions to the cotangents of its operands."""
    call = loop.call
    writer.src = call.src
    outs = [writer.node(v) for v in loop.outs]
    writer.reason = f"cotangent of {call.outs[0]}"
    summed = [_accumulated(writer, out.aval, cts.pop(out, None)) for out in call.outs]
    writer.reason = f"cotangent via {call.primitive}"
    if not (
        loop.backward.wrt or loop.backward.loop.instead
    ):  # its rounds depend on nothing that is differentiated
        return
    xs = [writer.node(x) for x in call.operands]
    # The loop adds to the cotangents that its invariants have so far.
    given = loop.backward.loop.given(call.operands)
    totals: dict[int, Node] = {}
    ends: dict[int, type] = {}
    for k in loop.backward.summed:
        x = given[k - 1]
        parts = cts.pop(x, None) if x in active and isinstance(x, Var) else None
        if parts is not None:
            totals[k] = _accumulated(writer, x.aval, parts)
            ends[k] = type(parts[0])
    found = loop.backward.pull(writer, summed, outs, xs, masks, totals)
    _add(call, found, writer, cts, active)
    for k, kind in ends.items():
        if kind is Total:
            x = given[k - 1]
            (end, *others) = cts[x]
            cts[x] = [Total(end), *others]


def _add(
    call: Call,
    contributions: Sequence[Any],
    writer: Writer,
    cts: dict[Var, list[Part]],
    active: set[Operand],
) -> None:
    """Add contributions to the cotangents of a call's operands."""
    for x, ct in zip(call.operands, contributions, strict=True):
        if ct is None or not isinstance(x, Var) or x not in active:
            continue
        if isinstance(ct, Missing):
            raise GradientError(f"{ct.message}{at_call(call)}")
        if not isinstance(ct, Placed):
            ct = sum_to(as_node(writer, ct), x.aval)
        cts.setdefault(x, []).append(ct)


def _refuse_residuals(call: Call, cts: dict[Var, list[Part]]) -> None:
    """Raise an error if a derivative is needed of a value that a function keeps for its rule."""
    primitive = call.primitive
    if any(out in cts for out in call.outs[primitive.visible :]):
        raise GradientError(
            f"the rule of {primitive} can't be differentiated again{at_call(call)}: it reads a "
            f"value that {primitive} computed and kept, and the body of {primitive} can't be "
            "traced. Keep only arguments and results, or return that value as a further result"
        )


def at_call(call: Call) -> str:
    """The user's line, as the end of a message."""
    return f" ({call.src.quoted})" if call.src else ""


def as_node(writer: Writer, x: Any) -> Node:
    """The node for a rule's result, which may be a literal."""
    return x if isinstance(x, Node) else writer.node(x)


def _accumulated(writer: Writer, aval: Aval, parts: list[Part] | None) -> Node:
    """The sum of a variable's cotangents, in the variable's shape."""
    if parts is None:
        return BroadcastTo(aval.shape)(writer.node(Literal(aval.dtype.type(0))))
    if len(parts) == 1 and isinstance(part := parts[0], Node) and part.shape == aval.shape:
        return part
    if isinstance(parts[0], Total):
        return parts[0].plus(parts[1:])
    whole = [part for part in parts if isinstance(part, Node)]
    placed = [part for part in parts if isinstance(part, Placed)]
    total: Any = functools.reduce(operator.add, whole) if whole else placed.pop(0).alone()
    if total.shape != aval.shape:
        total = BroadcastTo(aval.shape)(total)
    for part in placed:  # added in place, to the part that it belongs to
        total = part.onto(total)
    return total


def _input_cotangent(var: Var, parts: Parts, writer: Writer) -> Operand:
    writer.reason = f"cotangent of {var}"
    if var.shape == () and all(var not in known for known in parts):
        return Literal(var.dtype.type(0))
    mean, *beside = [
        _accumulated(writer, var.aval, known.get(var))
        if known is parts.mean or var in known or var in parts.even
        else None
        for known in parts
    ]
    return leaning(mean, *beside).operand
