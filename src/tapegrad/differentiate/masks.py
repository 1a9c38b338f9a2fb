"""Strong zeros ("zeros that stand"): cotangents that stay 0, whatever slope they are multiplied
with.

`where` gives the branch not taken the cotangent 0, and so does indexing to the elements not read.
The chain rule then multiplies by slopes. If a slope is infinite or NaN, as that of the logarithm of
a 0 that `where` has replaced, 0 * inf would bring back what the program avoided:

    np.where(x > 0, np.log(x), 0.0)     # at x = 0 the logarithm has cotangent 0 and slope inf

One side of a conditional, and a loop that makes no rounds, also give values computed before them
the cotangent 0. So where there may be no rounds, zero cotangents are strong (`Loop.keeps_zeros`).

Before such a call in the program, elementwise rules therefore keep zeros: if a cotangent is 0 and
its contribution is NaN, the contribution becomes 0. A contribution that is a number is 0 anyway and
is left as it is, since a cotangent may be 0 by chance, and its product with the slope is
differentiated again. Without a choice nothing changes: such programs pay nothing, and an infinite
slope that matters is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tapegrad.ir.tape import Builder, Call, Literal, Operand, Tape, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Elementwise, Node


class Masks:
    """The cotangents on a tape under construction that have strong zeros."""

    def __init__(self, builder: Builder, masked: Sequence[Operand] = ()) -> None:
        self._builder = builder
        self._seen = len(builder.calls)
        self._masked: set[Operand] = set(masked)

    def keep(self, call: Call, ct: Node, contributions: Sequence[Any]) -> Sequence[Any]:
        """The contributions of a call with the cotangent `ct`: NaN becomes 0 where `ct` is a strong
        zero."""
        if not self.keeps(call, ct):
            return contributions
        zero = ct.equals(0)
        return [
            ew.where(ew.logical_and(zero, ew.isnan(c)), c.constant(0), c)
            if isinstance(c, Node)
            else c
            for c in contributions
        ]

    def keeps(self, call: Call, ct: Node) -> bool:
        """Whether the rule of a call with this cotangent or tangent has to keep zeros."""
        primitive = call.primitive
        if not isinstance(primitive, Elementwise) or _scales(call):
            return False
        if primitive.algebra.selects or primitive.algebra.additive:
            return False
        return self.is_masked(ct)

    def is_masked(self, ct: Node) -> bool:
        """Whether zeros in this cotangent are strong."""
        for call in self._builder.calls[self._seen :]:
            _spread(call, self._masked)
        self._seen = len(self._builder.calls)
        return ct.operand in self._masked


def masked_in(tape: Tape, masked: Iterable[Operand]) -> set[Operand]:
    """The variables of a tape with strong zeros, given that those in `masked` have them."""
    found = set(masked)
    for call in tape.calls:
        _spread(call, found)
    return found


def _spread(call: Call, masked: set[Operand]) -> None:
    """Add the results of a call to `masked` if their zeros are strong."""
    xs = call.operands
    kept = [type(x) is Var and x in masked for x in xs] if masked else [False] * len(xs)
    if call.primitive.keeps_zeros(xs, kept):
        masked.update(call.outs)


def _scales(call: Call) -> bool:
    """Whether a call multiplies or divides by a finite nonzero constant: then the slope is
    finite."""
    numbers = [x for x in call.operands if isinstance(x, Literal)]
    moving = {k for k, x in enumerate(call.operands) if isinstance(x, Var)}
    if not numbers or not moving or not moving.issubset(call.primitive.algebra.linear):
        return False
    return bool(np.isfinite(numbers[0].value)) and numbers[0].value != 0
