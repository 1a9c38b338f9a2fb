"""Along which directions a tape's kinks are crossed, while its derivative is made.

`primitives.kinks` says what for. The calls of a tape are walked backwards, so a pullback, which has
a direction for its cotangent, comes before the kinked call that it belongs to.
"""

from __future__ import annotations

from typing import Any

from tapegrad.ir.tape import Call, Tape
from tapegrad.primitives.base import Writer
from tapegrad.primitives.kinks import Sided


class Kinks:
    """The directions that are known of each kink, by the operands that have it."""

    def __init__(self, tape: Tape, writer: Writer) -> None:
        self._known: dict[Any, tuple[Any, ...]] = {}
        for call in tape.calls:
            if isinstance(call.primitive, Sided):
                key = call.primitive.kink(call.operands)
                sides = call.primitive.sides([*map(writer.node, call.operands)])
                if len(sides) > len(self._known.get(key, ())):
                    self._known[key] = tuple(sides)

    def crossed(self, call: Call, ct: Any) -> tuple[Any, ...]:
        """The directions for a call with this cotangent, which may be one of them."""
        primitive = call.primitive
        key = primitive.kink(call.operands)
        if key is None:
            return ()
        known = self._known.get(key, ())
        if isinstance(primitive, Sided) and primitive.pulls:
            known = self._known[key] = (*known, primitive.direction(ct))
        return known
