"""Which numbers have the same bits in played and compiled code, so that they can be guarded."""

from __future__ import annotations

from typing import Any

from tapegrad.ir.tape import Literal, Operand, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.kinds import View

_SAME_BITS = (ew.neg, ew.copy, ew.stop_gradient)
# Operations whose result IEEE 754 defines to the last bit
_ROUNDED = (ew.add, ew.sub, ew.mul, ew.div, ew.neg, ew.sqrt)


def is_exact(trace: Any, operand: Operand) -> bool:
    """Whether a number on the tape of a trace is: an input, an element of one, or an integer."""
    x = operand
    while isinstance(x, Var) and x not in trace.builder.inputs:
        call = trace.made_by(x)
        if call is None or not (isinstance(call.primitive, View) or call.primitive in _SAME_BITS):
            return is_of_integers(trace, operand)
        x = call.operands[0]
    return True


def is_of_integers(trace: Any, operand: Operand) -> bool:
    """Whether a number comes of integers by arithmetic alone: no derivative goes through it, and
    compiled code computes the same bits."""
    waiting = [operand]
    while waiting:
        x = waiting.pop()
        if isinstance(x, Literal) or x.dtype.kind not in "fc":
            continue
        call = trace.made_by(x)
        if call is None or not (
            call.primitive in _ROUNDED or isinstance(call.primitive, ew.AsType)
        ):
            return False
        waiting += call.operands
    return True
