"""Checks that a tape is well formed: run between passes in the tests and under TAPEGRAD_DEBUG."""

from __future__ import annotations

from tapegrad.errors import InternalError
from tapegrad.ir.tape import Literal, Operand, Tape, Var


def verify(tape: Tape, after: str = "") -> Tape:
    """Return the tape if each variable is defined once, before its uses, with the type that its
    primitive gives it; otherwise raise `InternalError` with the calls around the fault."""
    defined: dict[int, Var] = {}

    def fail(message: str, position: int) -> None:
        lines = str(tape).splitlines()
        start = max(0, position + len(tape.inputs) - 9)
        around = "\n".join(lines[start : start + 20])
        stage = f" after {after}" if after else ""
        raise InternalError(
            f"malformed tape{stage}: {message}. This is a fault of tapegrad; please report it with "
            f"the tape:\n{around}"
        )

    def define(var: Var, position: int) -> None:
        if var.id in defined:
            fail(f"{var} is defined twice", position)
        defined[var.id] = var

    def use(x: Operand, position: int) -> None:
        if not isinstance(x, Literal) and defined.get(x.id) != x:
            fail(f"{x} is used but not defined before, or with another type", position)

    for var in tape.inputs:
        define(var, 0)
    for position, call in enumerate(tape.calls):
        for x in call.operands:
            use(x, position)
        avals = call.primitive.avals(*[x.aval for x in call.operands])
        if tuple((a.shape, a.dtype) for a in avals) != tuple((v.shape, v.dtype) for v in call.outs):
            types = ", ".join(map(str, avals))
            fail(f"{call.primitive} at {call.outs[0]} should give {types}", position)
        for var in call.outs:
            define(var, position)
    end = len(tape.calls)
    for x in tape.outputs:
        use(x, end)
    for guard in tape.guards:
        use(guard.operand, end)
        if guard.operand.shape != ():
            fail(f"the guard on {guard.operand} isn't a scalar", end)
    if len(tape.captured) > len(tape.inputs):
        fail("more captured arrays than inputs", end)
    return tape
