"""Verification of tapes: run between passes in the tests and under TAPEGRAD_DEBUG, and on tapes
that users edit."""

from __future__ import annotations

from typing import NoReturn

from tapegrad.errors import InternalError, TapeError
from tapegrad.ir.tape import Aval, Call, Literal, Operand, Tape, Var
from tapegrad.ir.text import show_call


def verify(tape: Tape, after: str = "") -> Tape:
    """Return the tape if each variable is defined once, before its uses, with the type that its
    primitive gives it. Otherwise raise `InternalError` with the calls around the fault."""
    try:
        _check(tape)
    except _Malformed as fault:
        stage = f" after {after}" if after else ""
        raise InternalError(
            f"malformed tape{stage}: {fault}. This is a fault of tapegrad; please report it with "
            f"the tape:\n{fault.around}"
        ) from None
    return tape


def checked(tape: Tape, what: str) -> Tape:
    """Return a tape that a user made with `what`, if it is well formed; otherwise raise a
    `TapeError` that says where it isn't."""
    try:
        _check(tape)
    except _Malformed as fault:
        at = f" in {fault.call}" if fault.call else ""
        raise TapeError(f"{what}: {fault}{at}. The tape would be\n{fault.around}") from None
    return tape


class _Malformed(Exception):
    """A fault of a tape, with the call, if any, and the lines around it."""

    def __init__(self, message: str, tape: Tape, position: int) -> None:
        super().__init__(message)
        lines = str(tape).splitlines()
        start = max(0, position + len(tape.inputs) - 9)
        self.around = "\n".join(lines[start : start + 20])
        self.call = show_call(tape.calls[position]) if position < len(tape.calls) else ""


def _check(tape: Tape) -> None:
    defined: dict[int, Var] = {}

    def fail(message: str, position: int) -> NoReturn:
        raise _Malformed(message, tape, position)

    def define(var: Var, position: int) -> None:
        if var.id in defined:
            fail(f"{var} is defined twice", position)
        defined[var.id] = var

    def use(x: Operand, position: int) -> None:
        if not isinstance(x, Literal) and defined.get(x.id) != x:
            fail(f"{x} is used but not defined before, or with another type", position)

    def check(call: Call, position: int) -> None:
        for x in call.operands:
            use(x, position)
        try:
            avals = call.primitive.avals(*[x.aval for x in call.operands])
        except (ValueError, IndexError) as error:
            fail(f"{call.primitive} doesn't take its operands ({error})", position)
        if list(map(_type, avals)) != [_type(out.aval) for out in call.outs]:
            types = ", ".join(map(str, avals))
            fail(f"{call.primitive} should give {types}", position)
        if call.primitive.checks and not call.outs:
            fail(f"{call.primitive} has guards and gives nothing, so nothing keeps it", position)
        for out in call.outs:
            define(out, position)
        for inner in call.primitive.tapes:
            _check(inner)

    for var in tape.inputs:
        define(var, 0)
    for position, call in enumerate(tape.calls):
        check(call, position)
    end = len(tape.calls)
    for x in tape.outputs:
        use(x, end)
    for guard in tape.guards:
        use(guard.operand, end)
        if _type(guard.operand.aval) != _type(guard.expected.aval):
            fail(f"the guard on {guard.operand} doesn't expect a scalar of its type", end)
    held = [_type(Aval(x.shape, x.dtype)) for x in tape.captured]
    if held != [_type(v.aval) for v in tape.inputs[len(tape.free_inputs) :]]:
        fail("the captured arrays don't have the types of their inputs", end)
    for names, named in ((tape.names, tape.inputs), (tape.output_names, tape.outputs)):
        if names and len(names) != len(named):
            fail(f"{len(named)} inputs or outputs have {len(names)} names", end)


def _type(aval: Aval) -> tuple[object, ...]:
    """The part of a type that must agree. A Python number may stand for a scalar."""
    return aval.shape, aval.dtype
