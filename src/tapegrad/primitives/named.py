"""Values that go by a name, and what stands around those that are computed again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tapegrad.ir.tape import Aval, Call, Tape
from tapegrad.primitives.base import Elementwise, parametric
from tapegrad.primitives.elementwise import _copied
from tapegrad.primitives.kinds import Linear


@parametric
class Named(Linear):
    """The same value, which `checkpoint(f, keep=...)` knows by its name."""

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


class _Again(Elementwise):
    def keeps_zeros(self, xs: Any, kept: Any) -> bool:
        return bool(kept[1])


# What was kept of a value that is computed again, with the derivative of the one computed again. It
# is dear: a loop that kept both operands, to have it again, would compute again what was kept.
kept = _Kept(
    lambda again, kept: _copied(kept),
    lambda out, again, kept: (1, None),
    name="kept",
    scalar="{1}",
    cost=1000,
    numpy="{1}",
    of_complex=True,
)

# A value as it is, when another one is there. What is computed of it is computed anew.
again = _Again(
    lambda after, x: _copied(x),
    lambda out, after, x: (None, 1),
    name="again",
    scalar="{1}",
    cost=0,
    numpy="{1}",
    of_complex=True,
)


def named_in(tape: Tape, names: Collection[str]) -> list[Call]:
    """The calls of a tape that name values so."""
    return [c for c in tape.calls if isinstance(c.primitive, Named) and c.primitive.label in names]
