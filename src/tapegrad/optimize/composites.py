"""Composites: calls that stay whole until nothing is differentiated any more.

%3 = turned(%1, %2)     -->     %3 = greater(%1, 0.0)
                                %4 = less(%1, 0.0)
                                ...

An `ordered` composite fixes the order of its sums. It is expanded in compiled code only, into calls
that add in another order, with a guard that the results differ by rounding alone. Where the guard
fails the tape is played, and the composite itself is evaluated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tapegrad.ir.ranges import RANGE
from tapegrad.ir.tape import Builder, Call, Guard, Literal, Operand, Rewriter, Tape, Var, everywhere
from tapegrad.primitives.base import Writer
from tapegrad.primitives.kinds import Composite


@everywhere
def expand_composites(tape: Tape) -> Tape:
    """Replace each composite by the calls that it stands for, unless it is `ordered`."""
    return _expanded(tape, False)


@everywhere
def expand_ordered(tape: Tape) -> Tape:
    """Replace each `ordered` composite by calls that add in another order, with a guard that the
    results differ by rounding alone."""
    return _expanded(tape, True)


def _expanded(tape: Tape, ordered: bool) -> Tape:
    found: list[Composite | None] = [
        p if isinstance(p := call.primitive, Composite) and p.ordered == ordered else None
        for call in tape.calls
    ]
    if not any(found):
        return tape
    rewriter = _Replacer(tape)
    writer = Writer(rewriter.builder)
    for call, composite in zip(tape.calls, found, strict=True):
        if composite is None:
            rewriter.copy(call)
            continue
        writer.src, writer.reason = call.src, call.reason
        xs = list(map(writer.node, rewriter.operands(call)))
        made = composite.expand(*xs)
        results = made if composite.results > 1 else (made,)
        rewriter.env.update(zip(call.outs, [x.operand for x in results], strict=True))
        if ordered:
            fits = composite.fits(made, *xs).operand
            rewriter.builder.guards.append(Guard(fits, Literal(np.bool_(True)), RANGE, call.src))
    return replace(rewriter.finish(), matrices=tape.matrices)


class _Replacer(Rewriter):
    """A rewriter that replaces a few calls and keeps the others with their variables' numbers.
    `env` holds the replaced variables only."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.builder = Builder.after(tape, tape.name)
        self.builder.calls.clear()
        self.env: dict[Var, Operand] = {}

    def operand(self, x: Operand) -> Operand:
        return x if type(x) is Literal else self.env.get(x, x)  # type: ignore[arg-type]

    def operands(self, call: Call) -> list[Operand]:
        env = self.env
        return [x if type(x) is Literal else env.get(x, x) for x in call.operands]  # type: ignore[arg-type]

    def copy(self, call: Call) -> None:
        if not self.env.keys().isdisjoint([x for x in call.operands if type(x) is Var]):
            xs = self.operands(call)
            if any(x.aval is not y.aval for x, y in zip(xs, call.operands, strict=True)):
                return super().copy(call)
            call = Call(call.primitive, tuple(xs), call.outs, call.src, call.reason)
        self.builder.calls.append(call)
