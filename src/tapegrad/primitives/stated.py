"""Derivatives that are stated, where those of a value's formula would lose digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import parametric, total
from tapegrad.primitives.kinds import Composite


@parametric
class Known(Composite):
    """The first operand, with the derivative of the second, which is equal to it."""

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
    """The first operand, a function of the `count` next ones; the last ones are its derivatives."""

    count: int

    name = "stated"
    cores = 0
    of_complex = True  # functions have complex derivatives

    def expand(self, *xs: Any) -> Any:
        return xs[0]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        slopes = xs[1 + self.count :]
        return None, *[ct * slope for slope in slopes], *[None] * self.count

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        moved = zip(ts[1 : 1 + self.count], xs[1 + self.count :], strict=True)
        return total(None if t is None else t * slope for t, slope in moved)


def stated(value: Any, *slopes: tuple[Any, Any]) -> Any:
    """The value, a function of the first of each pair, with the second as its derivative."""
    return Stated(len(slopes))(value, *[x for x, _ in slopes], *[slope for _, slope in slopes])
