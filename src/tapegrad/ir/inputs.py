"""Tapes with further inputs, or with other variables for the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tapegrad.ir.tape import Aval, Rewriter, Tape, Var


def renumbered(tape: Tape) -> Tape:
    """The same tape with its variables numbered in order: its inputs, then what its calls give."""
    rewriter = Rewriter(tape)
    for call in tape.calls:
        rewriter.copy(call)
    return rewriter.finish()


def unused(tape: Tape, avals: Sequence[Aval]) -> list[Var]:
    """Variables of these types that the tape doesn't know."""
    return [Var(number, aval) for number, aval in enumerate(avals, start=tape.last + 1)]


def with_inputs(
    tape: Tape,
    further: Sequence[Var],
    names: Sequence[str],
    captured: Sequence[Any] = (),
    before: int = 0,
) -> Tape:
    """The tape with further inputs, behind the others but for the last `before`. The tape's calls
    may use them already. The arrays that it captured, and these, are those of its last inputs.
    """
    at = len(tape.inputs) - before
    given = tape.names or ("",) * len(tape.inputs)
    return replace(
        tape,
        inputs=(*tape.inputs[:at], *further, *tape.inputs[at:]),
        captured=(*tape.captured, *captured),
        names=(*given[:at], *names, *given[at:]),
    )
