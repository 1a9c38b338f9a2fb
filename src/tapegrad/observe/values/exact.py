"""Numbers that have the same bits in played and compiled code, so that guards can compare them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.tape import Literal, Operand, Var
from tapegrad.observe.values.proxy import Proxy
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.kinds import View

MAX_VALUES = 100  # maximal number of values between these and a number computed from them

_SAME_BITS = (ew.neg, ew.copy, ew.stop_gradient)
# Operations whose result IEEE 754 defines to the last bit.
_ROUNDED = (ew.add, ew.sub, ew.mul, ew.div, ew.neg, ew.sqrt, ew.root)


def is_exact(trace: Any, operand: Operand) -> bool:
    """Whether a number on a trace's tape has the same bits in both: an input, an element of one, or
    an integer."""
    x = operand
    while isinstance(x, Var) and x not in trace.builder.inputs:
        call = trace.made_by(x)
        if call is None or not (isinstance(call.primitive, View) or call.primitive in _SAME_BITS):
            return is_of_integers(trace, operand)
        x = call.operands[0]
    return True


def made_of(trace: Any, operand: Operand) -> dict[Var, Any] | None:
    """The exact numbers that this one is computed from alone, with their values; None if
    unknown."""
    found: dict[Var, Any] = {}
    waiting, seen = [operand], {operand}
    values = {**dict(trace.captured.values()), **trace.given}
    while waiting:
        x = waiting.pop()
        if isinstance(x, Literal):
            continue
        call = trace.made_by(x)
        if not is_exact(trace, x):
            if call is None or len(seen) > MAX_VALUES:
                return None
            waiting += [y for y in call.operands if y not in seen]
            seen.update(waiting)
        elif (value := _value_of(trace, x, values)) is None or np.size(value) != 1:
            return None
        else:
            found[x] = value
    return found


def _value_of(trace: Any, x: Operand, values: dict[Var, Any]) -> Any:
    """The value of such a number; None if unknown."""
    if isinstance(x, Literal):
        return x.value
    call = trace.made_by(x)
    if call is None:
        value = values.get(x)
        return value._read()[1] if isinstance(value, Proxy) else value
    given = [_value_of(trace, y, values) for y in call.operands]
    return None if any(y is None for y in given) else call.primitive.evaluate(*given)


def is_of_integers(trace: Any, operand: Operand) -> bool:
    """Whether a number is computed from integers by arithmetic alone: it has no derivative, and
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
