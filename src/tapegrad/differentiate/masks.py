"""Zeros that stand: the cotangents of what a program doesn't take.

`where` gives the branch not taken the cotangent 0, and so does indexing to the elements not read.
The chain rule then multiplies by slopes, and where a slope is infinite or not a number, as that of
the logarithm of a 0 which `where` has replaced, 0 * inf would bring back what the program avoided:

    np.where(x > 0, np.log(x), 0.0)     # at x = 0 the logarithm has cotangent 0 and slope inf

A side of a conditional, and a loop that makes no rounds, give what was computed before them the
cotangent 0, too: where rounds may be none, zeros in the cotangents stand (`Loop.keeps_zeros`).

Behind such a call elementwise rules therefore keep zeros: a contribution that isn't a number, of a
cotangent that is 0, becomes 0. One that is a number is 0 anyway, and is left as it is, since a
cotangent may be 0 by chance and its product with the slope is differentiated again. What isn't
behind a choice is left alone, so programs without one pay nothing, and an infinite slope that
counts is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tapegrad.ir.tape import Builder, Call, Literal, Operand, Tape, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Elementwise, Node


class Masks:
    """Which of the cotangents on a tape under construction have zeros that stand."""

    def __init__(self, builder: Builder, masked: Sequence[Operand] = ()) -> None:
        self._builder = builder
        self._seen = len(builder.calls)
        self._masked: set[Operand] = set(masked)

    def keep(self, call: Call, ct: Node, contributions: Sequence[Any]) -> Sequence[Any]:
        """The contributions of a call with the cotangent `ct`, zero where a masked `ct` is."""
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
        """Whether the rule of a call with this cotangent, or tangent, has to keep zeros."""
        primitive = call.primitive
        if not isinstance(primitive, Elementwise) or _scales(call):
            return False
        if primitive.algebra.selects or primitive.algebra.additive:
            return False
        return self.is_masked(ct)

    def is_masked(self, ct: Node) -> bool:
        """Whether zeros in a cotangent stand."""
        for call in self._builder.calls[self._seen :]:
            _spread(call, self._masked)
        self._seen = len(self._builder.calls)
        return ct.operand in self._masked


def masked_in(tape: Tape, masked: Iterable[Operand]) -> set[Operand]:
    """The variables of a tape with zeros that stand, if those in `masked` are."""
    found = set(masked)
    for call in tape.calls:
        _spread(call, found)
    return found


def _spread(call: Call, masked: set[Operand]) -> None:
    """Whether zeros in the results of a call stand."""
    xs = call.operands
    kept = [type(x) is Var and x in masked for x in xs] if masked else [False] * len(xs)
    if call.primitive.keeps_zeros(xs, kept):
        masked.update(call.outs)


def _scales(call: Call) -> bool:
    """Whether a call multiplies or divides by a constant, whose slope is finite."""
    numbers = [x for x in call.operands if isinstance(x, Literal)]
    moving = {k for k, x in enumerate(call.operands) if isinstance(x, Var)}
    if not numbers or not moving or not moving.issubset(call.primitive.algebra.linear):
        return False
    return bool(np.isfinite(numbers[0].value)) and numbers[0].value != 0
