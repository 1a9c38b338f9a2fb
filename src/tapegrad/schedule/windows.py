"""Windows of an array that are read from its own memory: stacks of parts that only products read.

    %2 = getitem(%1, 0:12)
    %3 = getitem(%1, 1:13)                  %5[k, i] is %1[k + i]: nothing is copied for a product
    %4 = getitem(%1, 2:14)
    %5 = stack(%2, %3, %4, axis=0)

A stack of parts of such a stack is a window along one more axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tapegrad.ir.affine import MovingIndex
from tapegrad.ir.cells import At
from tapegrad.ir.readers import Readers
from tapegrad.ir.tape import Call, Operand, Var
from tapegrad.ir.updates import updated
from tapegrad.primitives.kinds import Fixed, Scatter, View
from tapegrad.schedule.access import entries
from tapegrad.schedule.lowering import Lowering
from tapegrad.schedule.products import is_gemm


@dataclass(frozen=True)
class Windows:
    """Equally spaced parts of an array, stacked along `axis`: the index of the first part, and the
    distance between two starts."""

    x: Var
    axis: int
    first: MovingIndex
    apart: tuple[int, ...]

    def read(self, at: At) -> At:
        """The index in the array of an element of the stack."""
        number: Any = at[self.axis]
        starts = [
            number * step + start for start, step in zip(self.first.start, self.apart, strict=True)
        ]
        return entries(self.first.inside(starts, (*at[: self.axis], *at[self.axis + 1 :])))


def find_windows(low: Lowering) -> None:
    """Find the stacks that needn't be computed."""
    readers = Readers(low.tape)
    written = {x for call in low.tape.calls for _, x, _ in updated(call)} | low.carried | low.state

    def is_product(call: Call) -> bool:
        return is_gemm(call, low.open) or call.outs[0] in low.windows

    for call in reversed(low.tape.calls):
        found = _windows(low, call)
        if found is None or not readers.only(call.out, is_product, is_view):
            continue
        base: Operand = found.x
        while isinstance(base, Var) and base in low.made and is_view(low.made[base]):
            (base,) = low.made[base].operands
        changes = base in written or base in low.updates
        if not changes and not any(low.fronts.of(call.out)):
            low.windows[call.out] = found


def is_view(call: Call) -> bool:
    """Whether a call is a view whose elements are at known indices."""
    primitive = call.primitive
    return isinstance(primitive, View) and not primitive.relabels and len(call.operands) == 1


def _windows(low: Lowering, call: Call) -> Windows | None:
    """The windows that a call stacks, if they are equally spaced parts of one array; else None."""
    primitive = call.primitive
    if not isinstance(primitive, Scatter) or primitive.onto != "nothing" or not call.operands[1:]:
        return None
    axis = _axis(primitive.boxes(*call.operands))
    parts = [low.made[x] for x in call.operands if isinstance(x, Var) and x in low.made]
    if axis is None or len(parts) < len(call.operands):
        return None
    x: Operand | None = None
    places: list[MovingIndex] = []
    for part in parts:
        if not isinstance(part.primitive, Fixed) or not is_view(part):
            return None
        x = part.operands[0] if x is None else x
        if part.operands[0] != x:
            return None
        places.append(part.primitive.where)
    first, second = places[0].start, places[1].start
    apart = tuple([b - a for a, b in zip(first, second, strict=True)])
    alike = all(
        place.form == places[0].form
        and place.start == tuple([a + k * b for a, b in zip(first, apart, strict=True)])
        for k, place in enumerate(places)
    )
    if not alike or not isinstance(x, Var) or min(apart) < 0 or max(apart) == 0:
        return None
    return Windows(x, axis, places[0], apart)


def _axis(boxes: Sequence[Sequence[Any]]) -> int | None:
    """The axis of a result along which operand k is entry k; None if there is none."""
    for axis, entry in enumerate(boxes[0] if boxes else ()):
        if entry == 0 and isinstance(entry, int):
            numbers = [box[axis] for box in boxes]
            return axis if numbers == [*range(len(boxes))] else None
    return None
