"""Constant folding: an elementwise call on scalar literals is its value.

    %2 = mul(2.0, 3.0)      -->    6.0, where %2 was read

NumPy computes it, in the dtype of the operands, so the bits are those of a later call.
"""

from __future__ import annotations

import numpy as np

from tapegrad.ir.tape import Literal, Rewriter, Tape
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.elementwise import AsType
from tapegrad.primitives.views import BroadcastTo


def fold_constants(tape: Tape) -> Tape:
    """Evaluate calls whose operands are all literals."""
    rewriter = Rewriter(tape)
    for call in tape.calls:
        operands = rewriter.operands(call)
        foldable = isinstance(call.primitive, (Elementwise, AsType)) or (
            isinstance(call.primitive, BroadcastTo) and call.primitive.shape == ()
        )
        if foldable and all(isinstance(x, Literal) for x in operands):
            with np.errstate(all="ignore"):
                value = call.primitive.evaluate(*[x.value for x in operands if isinstance(x, Literal)])
            rewriter.env[call.out] = Literal(call.out.dtype.type(value))
        else:
            rewriter.copy(call)
    return rewriter.finish()
