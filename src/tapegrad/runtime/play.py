"""Playing a tape: NumPy runs it call by call. The oracle of the tests, and how first calls run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.errors import TapeError
from tapegrad.ir.tape import Guard, Literal, Operand, Tape, Var
from tapegrad.trees import array_leaves, is_number


def last_uses(tape: Tape) -> dict[int, list[int]]:
    """Position of a call -> ids of the variables that no later call reads."""
    last: dict[int, int] = {}
    for position, call in enumerate(tape.calls):
        for x in call.operands:
            if isinstance(x, Var):
                last[x.id] = position
        for out in call.outs:
            last.setdefault(out.id, position)
    kept = {x.id for x in (*tape.outputs, *(g.operand for g in tape.guards)) if isinstance(x, Var)}
    dead: dict[int, list[int]] = {}
    for var, position in last.items():
        if var not in kept:
            dead.setdefault(position, []).append(var)
    return dead


def _guards_by_call(tape: Tape) -> dict[int, list[Guard]]:
    """Position of a call -> guards of what it defines; those of inputs and literals are at -1."""
    defined = {out: position for position, call in enumerate(tape.calls) for out in call.outs}
    found: dict[int, list[Guard]] = {}
    for guard in tape.guards:
        position = defined.get(guard.operand, -1) if isinstance(guard.operand, Var) else -1
        found.setdefault(position, []).append(guard)
    return found


def run(tape: Tape, values: Sequence[Any]) -> tuple[list[Any], Guard | None]:
    """The outputs for the values of all inputs, and the first guard that doesn't hold.

    A guard is checked as soon as its scalar is there: where it doesn't hold, what comes after may
    not even have the shapes that were traced.
    """
    env: dict[int, Any] = {v.id: x for v, x in zip(tape.inputs, values, strict=True)}
    dead = last_uses(tape)
    guards = _guards_by_call(tape)

    def value(x: Operand) -> Any:
        return x.value if isinstance(x, Literal) else env[x.id]

    def broken(position: int) -> Guard | None:
        for guard in guards.get(position, ()):
            if not same_bits(value(guard.operand), guard.expected):
                return guard
        return None

    if (guard := broken(-1)) is not None:
        return [], guard
    with np.errstate(all="ignore"):
        for position, call in enumerate(tape.calls):
            result = call.primitive.evaluate(*[value(x) for x in call.operands])
            if call.primitive.results == 1 and not isinstance(result, tuple):
                result = (result,)
            for out, x in zip(call.outs, result, strict=True):
                env[out.id] = x
            if (guard := broken(position)) is not None:
                return [], guard
            for gone in dead.get(position, ()):
                del env[gone]
    return [value(x) for x in tape.outputs], None


def same_bits(found: Any, expected: Literal) -> bool:
    """Whether a guarded scalar still has the value that the trace saw."""
    return Literal(expected.dtype.type(found)) == expected


def checked_inputs(tape: Tape, args: Sequence[Any]) -> list[Any]:
    """The values of all inputs, of a caller's arguments; a TapeError if they don't fit."""
    leaves = array_leaves(args)
    free = tape.free_inputs
    if len(leaves) != len(free):
        raise TapeError(
            f"the tape {tape.name} has {len(free)} inputs, and {len(leaves)} arrays were passed"
        )
    values = []
    for var, leaf in zip(free, leaves, strict=True):
        x = np.asarray(leaf)
        casting: Any = "same_kind" if is_number(leaf) else "safe"  # no array loses digits unseen
        if x.shape != var.shape or not np.can_cast(x.dtype, var.dtype, casting):
            raise TapeError(
                f"the input {var} of the tape {tape.name} is {var.aval}, and an array of shape "
                f"{x.shape} and dtype {x.dtype} was passed. Trace again with such arrays"
            )
        values.append(x.astype(var.dtype, copy=False))
    return [*values, *tape.captured]


def stale(tape: Tape, broken: Guard | None) -> TapeError:
    """The error for a tape that isn't the function for these values."""
    if broken is None:
        return TapeError(f"an index on the tape {tape.name} is out of range for these values")
    return TapeError(
        f"the tape {tape.name} was traced where {broken.what or broken.operand} was "
        f"{broken.expected.value} ({broken.src}), and it isn't for these values. Trace again"
    )


def play(tape: Tape, args: Sequence[Any]) -> list[Any]:
    """Play the tape on a caller's arguments, checked against its inputs."""
    results, broken = run(tape, checked_inputs(tape, args))
    if broken is not None:
        raise stale(tape, broken)
    return results
