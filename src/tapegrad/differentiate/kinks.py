"""Pulling cotangents back through kinks: by the convention, and by the sides of a tie.

`primitives.kinks` says what for. A cotangent has two parts. Its `mean` is what the conventions make
of it, and what a derivative is in the end. Its `odd` part is by how much that of the side to which
v points is apart from it; on the other side of the tie it is the same with the other sign. A
pullback of a kinked function, which has v for its cotangent, begins an odd part. The kinked
function itself, which comes later in the walk backwards, multiplies slopes of the same tie, and
there the product of two odd parts is added to the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tapegrad.ir.tape import Call, Tape
from tapegrad.primitives.base import Writer
from tapegrad.primitives.elementwise import isfinite, where
from tapegrad.primitives.kinks import Sided

# A rule: the cotangents of the operands for that of the result, along directions; None says that
# ties follow the convention.
Rule = Callable[[Any, Any], Sequence[Any]]
Pair = tuple[Sequence[Any], Sequence[Any]]  # the mean and the odd cotangents of the operands


class Kinks:
    """The directions that are known of each kink, by the operands that have it."""

    def __init__(self, tape: Tape, writer: Writer) -> None:
        self._known: dict[Any, tuple[Any, ...]] = {}
        pulled, functions = set(), set()
        self._two_sided = False
        for call in tape.calls:
            primitive = call.primitive
            self._two_sided |= primitive.leans
            key = primitive.kink(call.operands)
            if key is None:
                continue
            if not isinstance(primitive, Sided):
                functions.add(key)
                continue
            pulled.add(key)
            sides = primitive.sides([*map(writer.node, call.operands)])
            if len(sides) > len(self._known.get(key, ())):
                self._known[key] = tuple(sides)
        # Where no kinked function is beside its pullback no two slopes of one tie are multiplied.
        self._two_sided |= not pulled.isdisjoint(functions)

    def pull(self, call: Call, mean: Any, odd: Any, rule: Rule) -> Pair:
        """The cotangents of a call's operands, for the two parts of that of its result. Either is
        None where there is none."""
        primitive = call.primitive
        none = (None,) * len(call.operands)
        if primitive.leans:
            whole = _plus(mean, odd) if self._two_sided else None
            return (mean, None), (odd, whole)
        key = primitive.kink(call.operands) if self._two_sided else None
        if isinstance(primitive, Sided) and key is not None:
            return self._pull_pullback(primitive, key, mean, odd, rule)
        known = self._known.get(key, ()) if key is not None else ()
        if not known:
            return (
                none if mean is None else rule(mean, None),
                none if odd is None else rule(odd, None),
            )
        if not primitive.balanced:
            return rule(_plus(mean, odd), known), none
        straight = none if mean is None else rule(mean, None)
        leaning = none if mean is None else _apart(rule(mean, known), straight)
        if odd is None:
            return straight, leaning
        turned = rule(odd, known)
        both = _apart(turned, rule(odd, None))
        return _each(_plus, straight, both), _each(_plus, leaning, turned)

    def _pull_pullback(self, primitive: Sided, key: Any, mean: Any, odd: Any, rule: Rule) -> Pair:
        whole = _plus(mean, odd)
        known = self._known.get(key, ())
        if primitive.pulls:
            known = self._known[key] = (*known, primitive.direction(whole))
        along, count = rule(whole, known), primitive.points
        if mean is None:
            return (None,) * len(along), along
        # What it says of the point itself is known along the direction alone, and where the
        # directions that it has leave a tie, the later ones decide.
        decided = along if whole is mean else rule(mean, known)
        if primitive.directions:
            straight = decided
        else:
            straight = [*decided[:count], *rule(mean, None)[count:]]
        return straight, _apart(along, straight)


def _each(combine: Callable[[Any, Any], Any], xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
    return [combine(x, y) for x, y in zip(xs, ys, strict=True)]


def _plus(x: Any, y: Any) -> Any:
    """The sum of two cotangents, of which either may be absent; of several results, of each."""
    if isinstance(x, tuple) and isinstance(y, tuple):
        return tuple(_each(_plus, x, y))
    if x is None or y is None:
        return y if x is None else x
    return x + y


def _apart(xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
    """The differences of cotangents, which infinities don't have."""
    return _each(_difference, xs, ys)


def _difference(x: Any, y: Any) -> Any:
    if x is y or y is None:
        return None if x is y else x
    return -y if x is None else where(isfinite(y), x - y, y.constant(0))
