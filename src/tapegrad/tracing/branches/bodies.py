"""The calls that the sides of a branch have recorded, as bodies of loops.

A side reads earlier values as inputs. Numbers that the program computes itself differ between the
rounds of a loop around, as in `x[t] * weights[t]`, where the sides have to be equal. So a number
that was different in an earlier round is an input, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tapegrad.ir.tape import Aval, Builder, Call, Guard, Literal, Operand, Tape, Var
from tapegrad.primitives.kinds import Moving, View


class Leaf(NamedTuple):
    """The value of a variable: its class in the program, and its type and operand on the tape."""

    kind: type
    aval: Aval
    operand: Operand
    value: Any


class Side(NamedTuple):
    """The record of a side: its reads of parts of arrays, its other calls, and its guards."""

    parts: list[Call]
    calls: list[Call]
    guards: list[Guard]


def split(calls: Sequence[Call]) -> tuple[list[Call], list[Call]]:
    """Split calls into reads of parts of earlier values, and the others."""
    parts: list[Call] = []
    rest: list[Call] = []
    made: set[Operand] = set()
    for call in calls:
        of_old = made.isdisjoint(call.operands)
        if of_old and isinstance(call.primitive, View) and not isinstance(call.primitive, Moving):
            parts.append(call)
        else:
            rest.append(call)
            made.update(call.outs)
    return parts, rest


def reading(side: Side, known: dict[Operand, Operand]) -> Side:
    """The side with some of its operands replaced."""
    if not known:
        return side
    calls = [replace(c, operands=tuple([known.get(x, x) for x in c.operands])) for c in side.calls]
    guards = [replace(g, operand=known.get(g.operand, g.operand)) for g in side.guards]
    return Side(side.parts, calls, guards)


@dataclass
class _Numbers:
    """The numbers of a side in the last round, and the positions of those that have differed."""

    shape: list[Any]
    found: list[Operand]
    moving: set[int]


def moving_numbers(
    known: dict[tuple[int, bool], _Numbers],
    key: tuple[int, bool],
    side: Side,
    ends: Sequence[Operand],
) -> set[int]:
    """The positions of a side's operands that are numbers which differ between rounds."""
    found = _read(side, ends)
    shape = [call.primitive.name for call in side.calls]
    before = known.get(key)
    moving: set[int] = set()
    if before is not None and before.shape == shape and len(before.found) == len(found):
        pairs = zip(before.found, found, strict=True)
        moving = {k for k, (x, y) in enumerate(pairs) if x != y and _are_numbers(x, y)}
        moving |= before.moving
    numbers: list[Operand] = [x if isinstance(x, Literal) else _NO_NUMBER for x in found]
    known[key] = _Numbers(shape, numbers, moving)
    return moving


_NO_NUMBER = Literal(np.bool_(False))


def _are_numbers(x: Operand, y: Operand) -> bool:
    literal = isinstance(x, Literal) and isinstance(y, Literal)
    return literal and x.aval == y.aval and x.dtype.kind == "f"


def _read(side: Side, ends: Sequence[Operand]) -> list[Operand]:
    """All operands that a side reads, in order."""
    asked = [guard.operand for guard in side.guards]
    return [*[x for call in side.calls for x in call.operands], *asked, *ends]


def body_of(
    name: str, side: Side, leaves: Sequence[Leaf], moving: set[int]
) -> tuple[Tape, list[Operand]]:
    """A side as the body of a loop, which ignores the carried values; and its operands: variables,
    and the numbers that are `moving`."""
    made = {out for call in side.calls for out in call.outs}
    ends = [leaf.operand for leaf in leaves]
    builder = Builder(name)
    builder.input(Aval((), np.dtype(np.int64)), "step")
    for leaf in leaves:
        builder.input(Aval(leaf.aval.shape, leaf.aval.dtype))
    env: dict[Operand, Operand] = {}
    inside: list[Operand | None] = []  # the inputs of moving numbers
    given: list[Operand] = []
    for k, x in enumerate(_read(side, ends)):
        moves = k in moving and isinstance(x, Literal)
        new = moves or (isinstance(x, Var) and x not in made and x not in env)
        if new:
            given.append(x)
            env[x] = var = builder.input(x.aval)
        inside.append(var if moves else None)
        if moves:
            del env[x]
    places = iter(inside)

    def known(x: Operand) -> Operand:
        moves = next(places)
        return env.get(x, x) if moves is None else moves

    for call in side.calls:
        outs = builder.again(call, [known(x) for x in call.operands])
        env.update(zip(call.outs, outs, strict=True))
    for guard in side.guards:
        builder.guards.append(replace(guard, operand=known(guard.operand)))
    return builder.finish([known(x) for x in ends]), given
