"""Activity analysis: the variables that depend on the inputs of a derivative, also across rounds of
loops."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from tapegrad.errors import ConversionError
from tapegrad.ir.plain_numbers import lost_by
from tapegrad.ir.tape import Builder, Call, Operand, Tape, Var
from tapegrad.primitives.elementwise import stop_gradient
from tapegrad.primitives.kinds import Moving, Repeated


def depends_on(tape: Tape, wrt: Sequence[int]) -> set[Operand]:
    """The floating-point variables that depend on the inputs numbered `wrt`."""
    active: set[Operand] = {tape.inputs[k] for k in wrt}
    for call in tape.calls:
        if call.primitive.flat:
            continue
        if not active.isdisjoint(call.operands):
            active.update(out for out in call.outs if out.dtype.kind in "fc")
    return active


def check_kept(tape: Tape, wrt: Sequence[int]) -> None:
    """Raise a ConversionError if a derivative with respect to the inputs numbered `wrt` would be
    lost, because a value that depends on them was used as a plain number."""
    lost = [guard for guard in tape.guards if lost_by(guard)]
    active = depends_on(tape, wrt) if lost else set()
    for guard in lost:
        if guard.operand in active:
            raise ConversionError(lost_by(guard))


def stacked(loop: Repeated) -> list[int]:
    """The numbers of the body's inputs that are arrays to which each round writes an entry of its
    own. Nothing else reads or writes them."""
    body, step = loop.body, loop.body.inputs[0]
    made = {out: call for call in body.calls for out in call.outs}
    reads = [x for call in body.calls for x in call.operands]
    reads += [*body.outputs, *(guard.operand for guard in body.guards)]
    found = []
    for k, (x, end) in enumerate(zip(body.inputs[1:], body.outputs[: loop.carried], strict=False)):
        call = made.get(end) if isinstance(end, Var) else None
        if call is None or call.operands[0] is not x or call.operands[2:] != (step,):
            continue
        p: Any = call.primitive
        if not isinstance(p, Moving) or not p.memory.updates or p.adds:
            continue
        apart = any(type(at) is int and far for at, far in zip(p.index, *p.moves, strict=False))
        if apart and reads.count(x) == reads.count(end) == 1:
            found.append(1 + k)
    return found


def moving(
    loop: Repeated,
    operands: Sequence[Operand],
    active: Collection[Operand],
    apart: Collection[int] = (),
) -> list[int]:
    """The numbers of the body's inputs that depend on active values. Carried values numbered in
    `apart` only count if they start from active ones."""
    found = {
        k
        for k, x in enumerate(loop.given(operands), start=1)
        if x in active and x.dtype.kind in "fc"
    }
    while True:
        inside = depends_on(loop.body, sorted(found))
        reached = {
            1 + k
            for k, x in enumerate(loop.body.outputs[: loop.carried])
            if x in inside and x.dtype.kind in "fc" and 1 + k not in apart
        }
        if reached <= found:
            return sorted(found)
        found |= reached


def without_unread(builder: Builder, call: Call, read: Collection[Operand]) -> Call:
    """The loop with zero derivatives for carried values that none of the values `read` after it
    depends on, such as an error estimate.

        while err > tol: x, err = step(x)   -->   err has no derivative

    The cotangent of such a value is absent, not the number 0. Rules of degenerate points
    distinguish the two.
    """
    loop: Any = call.primitive
    body = loop.body
    ends = dict(enumerate(body.outputs[: loop.carried], start=1))
    wanted = {k for k, out in enumerate(call.outs, start=1) if out in read}
    while True:
        more = {k for k in {*ends}.difference(wanted) if _leads_to(body, k, wanted)}
        if not more:
            break
        wanted |= more
    unread = [k for k, x in ends.items() if k not in wanted and x in depends_on(body, [*ends])]
    unread = [k for k in unread if isinstance(ends[k], Var) and ends[k].dtype.kind in "fc"]
    if not unread:
        return call
    inner, outputs, operands = Builder.after(body, body.name), [*body.outputs], [*call.operands]
    first = len(operands) - len(loop.given(operands)) - 1
    for k in unread:
        (outputs[k - 1],) = inner.call(stop_gradient, [ends[k]])
        (operands[first + k],) = builder.call(stop_gradient, [operands[first + k]])
    new = replace(body, calls=tuple(inner.calls), outputs=tuple(outputs))
    return replace(call, primitive=loop.with_tapes([new]), operands=tuple(operands))


def _leads_to(body: Tape, k: int, wanted: Collection[int]) -> bool:
    """Whether some of the `wanted` outputs of a round depend on its input `k`."""
    inside = depends_on(body, [k])
    return any(body.outputs[n - 1] in inside for n in wanted if n <= len(body.outputs))
