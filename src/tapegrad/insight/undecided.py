"""Conditions that NaN decides: a comparison with NaN is False (`!=`: True), whatever the number.

    y = log(-1.0) = nan
    %4 = greater(y, 0.0) = False      the other answer: True
    %5 = logical_not(%4) = True       the other answer: False
    guard %5 = True                   so NaN decides what the function does

The other answers propagate through values computed from conditions. They end where both answers
give the same result: where a number is selected, or another condition decides alone, such as
np.isnan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tapegrad.ir.tape import Call, Var


def other_answer(call: Call, xs: Sequence[Any], out: Any, others: Mapping[Any, Any]) -> Any:
    """The result of a call if comparisons with NaN had the other answer.

    `others` are the operands' values in that case. None if the result is the same, or no condition.
    """
    primitive: Any = call.primitive
    plain = not (primitive.tapes or primitive.foreign or len(call.outs) > 1)
    if not plain or np.asarray(out).dtype.kind not in "biu":
        return None
    if any(x in others for x in call.operands):
        given = [others.get(x, value) for x, value in zip(call.operands, xs, strict=True)]
        found = primitive.for_types(*[x.aval for x in call.operands])(*given)
    else:
        found = _flipped(call, xs, out)
    return None if found is None or np.array_equal(found, out) else found


def _flipped(call: Call, xs: Sequence[Any], out: Any) -> Any:
    """The result of a comparison, negated where an operand is NaN; None if the call is none.

    Comparing a value with itself is a test for NaN, and isn't negated.
    """
    if np.asarray(out).dtype.kind != "b" or len(xs) != 2 or call.operands[0] == call.operands[1]:
        return None
    if not call.primitive.pointwise or not any(isinstance(x, Var) for x in call.operands):
        return None
    odd = [np.isnan(x) for x in xs if np.asarray(x).dtype.kind in "fc"]
    return out ^ np.any(np.broadcast_arrays(*odd, out)[:-1], axis=0) if odd else None
