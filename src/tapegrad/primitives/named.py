"""Values with names, and the values that recomputation keeps."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tapegrad.ir.tape import Aval, Call, Tape
from tapegrad.primitives.base import Elementwise, parametric
from tapegrad.primitives.elementwise import _copied
from tapegrad.primitives.kinds import Linear


@parametric
class Named(Linear):
    """An identity that gives a value its name for `checkpoint(f, keep=...)`."""

    label: str

    name = "named"
    scalar = "{0}"
    pointwise = True
    of_complex = True

    def keeps_zeros(self, xs: Any, kept: Any) -> bool:
        return any(kept)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = {xs[0]}"]

    def aval(self, *xs: Aval) -> Aval:
        return xs[0]

    def evaluate(self, *xs: Any) -> Any:
        return _copied(xs[0])

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return (ct,)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return ts[0]


class _Kept(Elementwise):
    def keeps_zeros(self, xs: Any, kept: Any) -> bool:
        return bool(kept[0])


class _RecomputeAfter(Elementwise):
    def keeps_zeros(self, xs: Any, kept: Any) -> bool:
        return bool(kept[1])


# kept(x, y) = y, where y was kept, and x is the recomputed value, which has the derivative. It is
# expensive on purpose: otherwise a loop would keep both operands, and recompute x for it.
kept = _Kept(
    lambda again, kept: _copied(kept),
    lambda out, again, kept: (1, None),
    name="kept",
    scalar="{1}",
    cost=1000,
    numpy="{1}",
    of_complex=True,
)

# recompute_after(y, x) = x, computed after y. Calls on it aren't merged with those on x.
recompute_after = _RecomputeAfter(
    lambda after, x: _copied(x),
    lambda out, after, x: (None, 1),
    name="recompute_after",
    scalar="{1}",
    cost=0,
    numpy="{1}",
    of_complex=True,
)


def named_in(tape: Tape, names: Collection[str]) -> list[Call]:
    """The calls that give a value one of these names."""
    return [c for c in tape.calls if isinstance(c.primitive, Named) and c.primitive.label in names]
