"""Playing a tape: NumPy runs it call by call. The oracle of the tests, and how first calls run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.arrays import plain
from tapegrad.errors import TapeError
from tapegrad.ir.tape import Guard, Literal, Operand, Tape, Var
from tapegrad.signature import check_leaf
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


def run(tape: Tape, values: Sequence[Any]) -> tuple[list[Any], Guard | None]:
    """The outputs for the values of all inputs, and the first guard that doesn't hold."""
    env: dict[int, Any] = {v.id: plain(x) for v, x in zip(tape.inputs, values, strict=True)}
    dead = last_uses(tape)

    def value(x: Operand) -> Any:
        return x.value if isinstance(x, Literal) else env[x.id]

    # A guard is checked as soon as its variable is known: calls after it may only work if it holds.
    guards: dict[Operand, list[Guard]] = {}
    for guard in tape.guards:
        guards.setdefault(guard.operand, []).append(guard)

    def broken(xs: Sequence[Operand]) -> Guard | None:
        waiting = (g for x in xs for g in guards.get(x, ()))
        return next((g for g in waiting if not same_bits(value(g.operand), g.expected)), None)

    found = broken([x for x in guards if isinstance(x, Literal) or x in tape.inputs])
    if found is not None:
        return [], found
    with np.errstate(all="ignore"):
        for position, call in enumerate(tape.calls):
            result = call.primitive.evaluate(*[value(x) for x in call.operands])
            if call.primitive.results == 1 and not isinstance(result, tuple):
                result = (result,)
            for out, x in zip(call.outs, result, strict=True):
                env[out.id] = x
            found = broken(call.outs) if guards else None
            if found is not None:
                return [], found
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
        check_leaf(leaf, f"the tape {tape.name}: the input {var}")
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
