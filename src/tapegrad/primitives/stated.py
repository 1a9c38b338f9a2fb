"""Derivatives that are stated explicitly, because those of the value's formula lose digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import parametric, total
from tapegrad.primitives.kinds import Composite


@parametric
class Known(Composite):
    """The first operand, with the derivative of the second, which has the same value."""

    name = "known"
    cores = 0
    of_complex = True

    def aval(self, *xs: Aval) -> Aval:
        if xs[0].shape != xs[1].shape:
            raise ValueError(f"known: {xs[0]} and {xs[1]} differ")
        return xs[0].with_shape(xs[0].shape)

    def expand(self, *xs: Any) -> Any:
        return xs[0]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return None, ct

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return ts[1]


@parametric
class Stated(Composite):
    """The first operand, as a function of the next `count` operands. The last `count` are its
    derivatives."""

    count: int

    name = "stated"
    cores = 0
    of_complex = True  # the derivatives are complex ones

    def expand(self, *xs: Any) -> Any:
        return xs[0]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        slopes = xs[1 + self.count :]
        return None, *[ct * slope for slope in slopes], *[None] * self.count

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        moved = zip(ts[1 : 1 + self.count], xs[1 + self.count :], strict=True)
        return total(None if t is None else t * slope for t, slope in moved)


def stated(value: Any, *slopes: tuple[Any, Any]) -> Any:
    """`value` with the stated derivatives. Each pair is an operand and the derivative with respect
    to it."""
    return Stated(len(slopes))(value, *[x for x, _ in slopes], *[slope for _, slope in slopes])
