"""Tapes without the masks of strong zeros (`differentiate.masks`), played while the results agree.

    where(logical_and(equal(ct, 0.0), isnan(x)), 0.0, x)   -->   x

A mask changes x only where it is NaN, which is rare. Sums, products and moves of x are NaN where x
was. So if the results without masks have no NaN, they are those of the tape, to the last bit. If
they have, the tape itself is played.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from tapegrad.backends.numpy.lives import mask_of
from tapegrad.core.locks import remembered
from tapegrad.ir.tape import Call, Operand, Tape, Var
from tapegrad.primitives.control import Applied
from tapegrad.primitives.kinds import Contraction, Lookup, ReadPart, Repeated, Scatter, View


@dataclass
class Unmasked:
    """A tape without masks. `telling` are the results that are NaN if a mask had an effect."""

    tape: Tape
    telling: Sequence[int]
    failed: bool = False  # after one failure it isn't tried again

    def holds(self, results: Sequence[Any]) -> bool:
        """Whether `results` are those of the tape with masks."""
        for k in self.telling:
            x = results[k]
            size = np.vdot(x, x) if np.ndim(x) else x  # a sum of squares: only NaN makes it NaN
            if size != size:
                self.failed = True
                return False
        return True


@remembered
def unmasked(tape: Tape) -> Unmasked | None:
    """The tape without masks; None if it has none, or if results can't tell whether they are
    needed."""
    sources: dict[int, set[Operand]] = {}
    bare = _without(tape, sources)
    if bare is tape or not can_be_played(tape):
        return None
    reached = _reached(bare, set(), sources)
    if reached is None:
        return None
    return Unmasked(bare, [k for k, x in enumerate(bare.outputs) if x in reached])


def _without(tape: Tape, sources: dict[int, set[Operand]]) -> Tape:
    """The tape without masks, also in loop bodies. `sources` gets the values that may be NaN, by
    tape."""
    instead: dict[Operand, Operand] = {}
    has_any = any(call.primitive.name == "where" or call.primitive.tapes for call in tape.calls)
    if not has_any:
        return tape
    made: dict[Operand, Call] = {call.outs[0]: call for call in tape.calls}
    calls: list[Call] = []
    found: set[Operand] = set()
    for call in tape.calls:
        pair = mask_of(call, made) if call.primitive.name == "where" else None
        if pair is not None:
            x = instead[call.outs[0]] = instead.get(pair[1], pair[1])
            found.add(x)
            continue
        held = call.primitive.tapes
        if held and isinstance(call.primitive, (Repeated, Applied)):
            inner = [_without(x, sources) for x in held]
            if any(a is not b for a, b in zip(inner, held, strict=True)):
                call = replace(call, primitive=call.primitive.with_tapes(inner))
        if not instead.keys().isdisjoint(call.operands):
            call = replace(call, operands=tuple([instead.get(x, x) for x in call.operands]))
        calls.append(call)
    if not found and all(a is b for a, b in zip(calls, tape.calls, strict=True)):
        return tape
    outputs = tuple([instead.get(x, x) for x in tape.outputs])
    guards = [replace(g, operand=instead.get(g.operand, g.operand)) for g in tape.guards]
    bare = replace(tape, calls=_live(calls, tape, outputs), outputs=outputs, guards=tuple(guards))
    sources[id(bare)] = found
    return bare


def _live(calls: Sequence[Call], tape: Tape, outputs: Sequence[Operand]) -> tuple[Call, ...]:
    """`calls` without those that only masks read."""
    tests = {"equal", "isnan", "logical_and"}
    live: set[Operand] = {*outputs, *[guard.operand for guard in tape.guards]}
    kept: list[Call] = []
    for call in reversed(calls):
        if call.primitive.name not in tests or call.outs[0] in live:
            kept.append(call)
            live.update(call.operands)
    return tuple(reversed(kept))


def _reached(
    tape: Tape, suspects: set[Operand], sources: dict[int, set[Operand]]
) -> set[Operand] | None:
    """All variables that may be NaN where a mask would have an effect. `suspects` are such inputs.
    None if a call might turn the NaN into another number."""
    found = suspects | sources.get(id(tape), set())
    for call in tape.calls:
        reached = _results(call, found, sources)
        if reached is None or any(x.dtype.kind != "f" for x in reached):
            return None
        found.update(reached)
    return None if any(guard.operand in found for guard in tape.guards) else found


def _results(
    call: Call, found: set[Operand], sources: dict[int, set[Operand]]
) -> Sequence[Var] | None:
    """The results of a call that may be NaN so; None if the call might hide the NaN."""
    p: Any = call.primitive
    at = [k for k, x in enumerate(call.operands) if x in found]
    if isinstance(p, Repeated):
        return _of_rounds(call, found, sources)
    if isinstance(p, Applied):
        tape: Tape = p.tapes[0]
        inside = _reached(tape, {tape.inputs[k] for k in at}, sources)
        if inside is None:
            return None
        return [out for out, x in zip(call.outs, tape.outputs, strict=True) if x in inside]
    if not at:
        return ()
    linear = {*p.algebra.linear, *p.algebra.additive}
    linear.update([len(call.operands) - 1] * bool(p.algebra.by_rows))
    moves = isinstance(p, (View, Scatter, Lookup, ReadPart, Contraction))
    return call.outs if moves or linear.issuperset(at) else None


def _of_rounds(
    call: Call, found: set[Operand], sources: dict[int, set[Operand]]
) -> Sequence[Var] | None:
    loop: Any = call.primitive
    body: Tape = loop.body
    given = loop.given(call.operands)
    if any(x in found for x in loop.heads(call.operands)):
        return None
    suspects: set[Operand] = {body.inputs[1 + k] for k, x in enumerate(given) if x in found}
    while True:
        inside = _reached(body, suspects, sources)
        if inside is None or (loop.until and body.outputs[-1] in inside):
            return None
        left = {k for k in range(loop.carried) if body.outputs[k] in inside}
        carried: set[Operand] = {body.inputs[1 + k] for k in left}
        if carried <= suspects:
            return [call.outs[k] for k in range(loop.carried) if k in left or given[k] in found]
        suspects |= carried


def can_be_played(tape: Tape) -> bool:
    """Whether a call of the tape may be abandoned and repeated: no function of the user's in it may
    have side effects."""
    return not any(
        (c.primitive.foreign and not cast(Any, c.primitive).repeatable)
        or not all(map(can_be_played, c.primitive.tapes))
        for c in tape.calls
    )
