"""Constant folding: an elementwise call on scalar literals is its value.

    %2 = mul(2.0, 3.0)      -->    6.0, where %2 was read

NumPy computes it, in the dtype of the operands, so the bits are those of a later call. `simplify`
asks for each call, after its operands were folded.
"""

from __future__ import annotations

from collections.abc import Sequence

from tapegrad.core.handlers import quiet
from tapegrad.ir.tape import Literal, Operand
from tapegrad.primitives.base import Primitive


def folded(primitive: Primitive, operands: Sequence[Operand]) -> Literal | None:
    """The value of an elementwise call on literals; None for any other call."""
    if not primitive.pointwise:
        return None
    values, open_ = [], False
    for x in operands:
        if not isinstance(x, Literal):
            return None
        values.append(x.value)
        open_ = open_ or x.open
    (aval,) = primitive.avals(*[x.aval for x in operands])
    value = quiet(primitive.evaluate)(*values)
    return Literal(aval.dtype.type(value), open_)
