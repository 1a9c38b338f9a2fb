"""Tapes with further inputs, and tapes with renumbered variables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tapegrad.errors import TapeError
from tapegrad.ir.tape import Aval, Call, Guard, Literal, Operand, Tape, Var


def renumbered(tape: Tape) -> Tape:
    """The tape with its variables numbered in order: the inputs first, then the results of the
    calls."""
    made = itertools.chain(tape.inputs, *[call.outs for call in tape.calls])
    if all(var.id == number for number, var in enumerate(made, start=1)):
        return tape
    numbers = itertools.count(1)
    env: dict[Operand, Var] = {}
    inputs = [_numbered(var, next(numbers), env) for var in tape.inputs]
    calls = []
    try:
        for call in tape.calls:
            operands = tuple([x if type(x) is Literal else env[x] for x in call.operands])
            outs = tuple([_numbered(var, next(numbers), env) for var in call.outs])
            calls.append(Call(call.primitive, operands, outs, call.src, call.reason))
        guards = [
            Guard(x if type(x) is Literal else env[x], guard.expected, guard.what, guard.src)
            for guard in tape.guards
            for x in (guard.operand,)
        ]
        outputs = [x if type(x) is Literal else env[x] for x in tape.outputs]
    except KeyError as error:
        raise TapeError(f"{error.args[0]} is used before the call that defines it") from None
    return Tape(
        tape.name,
        tuple(inputs),
        tuple(calls),
        tuple(outputs),
        tuple(guards),
        tape.captured,
        tape.names or ("",) * len(inputs),
        tape.output_names,
    )


def _numbered(var: Var, number: int, env: dict[Operand, Var]) -> Var:
    """Enter the variable under its new number into `env`, and return it."""
    found = env[var] = var if var.id == number else Var(number, var.aval)
    return found


def unused(tape: Tape, avals: Sequence[Aval]) -> list[Var]:
    """New variables of these types, with numbers that the tape doesn't use."""
    return [Var(number, aval) for number, aval in enumerate(avals, start=tape.last + 1)]


def known_from(tape: Tape, inputs: Iterable[Var]) -> set[Operand]:
    """The variables of a tape that depend on these inputs alone."""
    known: set[Operand] = {*inputs}
    for call in tape.calls:
        if all(isinstance(x, Literal) or x in known for x in call.operands):
            known.update(call.outs)
    return known


def with_inputs(
    tape: Tape,
    further: Sequence[Var],
    names: Sequence[str],
    captured: Sequence[Any] = (),
    before: int = 0,
) -> Tape:
    """The tape with further inputs. They come after the others, but before the last `before` ones.
    The tape's calls may read them already.

    `captured` are appended to the captured arrays of the tape. Captured arrays belong to the last
    inputs.
    """
    if not further and not captured:
        return tape
    at = len(tape.inputs) - before
    given = tape.names or ("",) * len(tape.inputs)
    return replace(
        tape,
        inputs=(*tape.inputs[:at], *further, *tape.inputs[at:]),
        captured=(*tape.captured, *captured),
        names=(*given[:at], *names, *given[at:]),
    )
