"""When values that a played tape computes are read last, and whose memory may be written over."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.tape import Tape, Var
from tapegrad.primitives.base import Elementwise, Primitive

LARGE = 1 << 17  # bytes; what is smaller, malloc takes from memory that was freed
SMALL = 1 << 10  # bytes; what is smaller is kept until the end


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


def written_over(tape: Tape, dead: dict[int, list[int]]) -> dict[int, int]:
    """Position of a call -> id of a variable whose array its result may take.

    Both are large, made by ufuncs, and of one type; and whatever reads the variable makes new
    arrays, so nobody else knows its memory.
    """
    own: dict[int, Any] = {}
    for call in tape.calls:
        if is_ufunc(call.primitive):
            if _is_large(call.out):
                own[call.out.id] = (call.out.shape, call.out.dtype)
        elif not call.primitive.owns:
            for x in call.operands:
                if isinstance(x, Var):
                    own.pop(x.id, None)
    over: dict[int, int] = {}
    if len(own) < 2:
        return over
    free: dict[Any, list[int]] = {}
    for position, call in enumerate(tape.calls):
        gone = [var for var in dead.get(position, ()) if var in own]
        for var in gone:
            if var != call.outs[0].id:  # of which there is one only, where a ufunc makes it
                free.setdefault(own[var], []).append(var)
        if is_ufunc(call.primitive) and _is_large(call.out):
            spare = free.get((call.out.shape, call.out.dtype))
            if spare:
                over[position] = spare.pop()
    return over


def _is_large(x: Var) -> bool:
    return x.shape != () and x.aval.nbytes >= LARGE


def is_ufunc(primitive: Primitive) -> bool:
    """Whether NumPy's own function makes the result, which is a new array."""
    return isinstance(primitive, Elementwise) and isinstance(primitive.ufunc, np.ufunc)
