"""Derivatives through kinks: by the convention, and by the sides of a tie.

`primitives.kinks` says what for. A cotangent has two parts. Its `mean` is what the conventions make
of it, and what a derivative is in the end. Its `odd` part is by how much that of the side to which
v points is apart from it; on the other side of the tie it is the same with the other sign. A
pullback of a kinked function, which has v for its cotangent, begins an odd part. The kinked
function itself, which comes later in the walk backwards, multiplies slopes of the same tie, and
there the product of two odd parts is added to the mean.

A tangent has the same two parts. In forward mode v is how the point of the tie moves, and is known
before anything is made of it: there the kinked function begins an odd part, and its pullback
multiplies slopes. A point that doesn't move has no direction: the pullback's sides stay. Forward
mode of a derivative that has sides already, which is of third order, is NaN where they count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.ir.tape import Call, Operand, Tape
from tapegrad.primitives.elementwise import isfinite, not_equal, where
from tapegrad.primitives.kinks import Sided

# A rule: the cotangents of the operands for that of the result, or the tangents of the results for
# those of the operands, along directions; None says that ties follow the convention.
Rule = Callable[[Any, Any], Sequence[Any]]
Pair = tuple[Sequence[Any], Sequence[Any]]  # the mean and the odd part of what a rule gives


class _Kinks:
    """The directions that are known of each kink, by the operands that have it. `node` gives what
    stands for an operand on the tape under construction."""

    def __init__(self, tape: Tape, node: Callable[[Operand], Any]) -> None:
        self._node = node
        self._known: dict[Any, tuple[Any, ...]] = {}
        self._pullbacks: dict[Any, Call] = {}  # those with most directions of their own
        functions = set()
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
            other: Any = self._pullbacks[key].primitive if key in self._pullbacks else None
            if other is None or primitive.directions > other.directions:
                self._pullbacks[key] = call
        # Where no kinked function is beside its pullback no two slopes of one tie are multiplied.
        self._two_sided |= not functions.isdisjoint(self._pullbacks)

    def _key(self, call: Call) -> Any:
        """Which kink a call has, if sides count."""
        return call.primitive.kink(call.operands) if self._two_sided else None

    def _of(self, key: Any) -> tuple[Any, ...]:
        """The directions of a kink."""
        if key is None or key not in self._pullbacks:
            return ()
        if key not in self._known:
            call: Any = self._pullbacks[key]
            sides = call.primitive.sides(call.operands)
            self._known[key] = tuple([self._nodes(side) for side in sides])
        return self._known[key]

    def _nodes(self, side: Any) -> Any:
        """A direction, which of several operands has a part for each."""
        return tuple(map(self._node, side)) if isinstance(side, tuple) else self._node(side)


class Kinks(_Kinks):
    """Reverse mode: pullbacks have their directions for cotangents."""

    def pull(self, call: Call, mean: Any, odd: Any, rule: Rule) -> Pair:
        """The cotangents of a call's operands, for the two parts of that of its result. Either is
        None where there is none."""
        primitive = call.primitive
        none = (None,) * len(call.operands)
        if primitive.leans:
            whole = _plus(mean, odd) if self._two_sided else None
            return (mean, None), (odd, whole)
        key = self._key(call)
        if isinstance(primitive, Sided) and key is not None:
            return self._pull_pullback(primitive, key, mean, odd, rule)
        known = self._of(key)
        if known and not primitive.balanced:
            return rule(_plus(mean, odd), known), none
        return _through(known, mean, odd, rule, none)

    def _pull_pullback(self, primitive: Sided, key: Any, mean: Any, odd: Any, rule: Rule) -> Pair:
        whole = _plus(mean, odd)
        known = self._of(key)
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


class MovingKinks(_Kinks):
    """Forward mode: `tangent` gives the tangent of an operand, if it has one."""

    def __init__(
        self,
        tape: Tape,
        node: Callable[[Operand], Any],
        tangent: Callable[[Operand], Any],
    ) -> None:
        super().__init__(tape, node)
        self._tangent = tangent
        # The pullbacks of kinked functions whose points haven't been asked for how they move.
        self._waiting = {
            call.primitive.kink(call.operands): call
            for call in tape.calls
            if isinstance(call.primitive, Sided) and call.primitive.pulls
        }
        # Whether directions are computed behind what has the kink.
        self.ahead = self._two_sided and any(map(_sides, self._pullbacks.values()))

    def push(self, call: Call, mean: Any, odd: Any, rule: Rule) -> Pair:
        """The tangents of a call's results, for the two parts of those of its operands. Either is
        None where no operand has any."""
        primitive = call.primitive
        none = (None,) * len(call.outs)
        if primitive.leans:
            # What is apart on the two sides and changes otherwise on either counts for both.
            (t, t_apart), (odd_t, odd_apart) = mean or (None, None), odd or (None, None)
            if not self._two_sided:
                return (t,), none
            return (_plus(t, odd_apart),), (_plus(odd_t, t_apart),)
        if isinstance(primitive, Sided) and not _moves(primitive.points, mean, odd):
            return _through((), mean, odd, rule, none)  # the sides that it has stay
        key = self._key(call)
        known = self._along(key)
        found = self._pushed(primitive, key, known, mean, odd, rule, none)
        if not self.ahead or key not in self._pullbacks or not _sides(self._pullbacks[key]):
            return found
        # Of a derivative that has sides itself only those apart from the tie are known.
        ts = _both(mean, odd)
        there, back = rule(ts, known), rule(ts, [_turned(side) for side in known])
        return [_known(x, a, b) for x, a, b in zip(found[0], there, back, strict=True)], none

    def _pushed(
        self,
        primitive: Any,
        key: Any,
        known: tuple[Any, ...],
        mean: Any,
        odd: Any,
        rule: Rule,
        none: Sequence[Any],
    ) -> Pair:
        if known and not primitive.balanced:
            along = rule(_both(mean, odd), known)
            if isinstance(primitive, Sided):
                return along, none
            straight = none if mean is None else rule(mean, None)
            return straight, _apart(along, straight)
        if isinstance(primitive, Sided) and key is not None:
            return self._push_pullback(primitive, known, mean, odd, rule, none)
        return _through(known, mean, odd, rule, none)

    def _along(self, key: Any) -> tuple[Any, ...]:
        """The directions of a kink, with that in which its point moves."""
        known = self._of(key)
        if key in self._waiting:
            call: Any = self._waiting.pop(key)
            ts = [self._tangent(x) for x in call.operands[: call.primitive.points]]
            if any(t is not None for t in ts):
                known = self._known[key] = (*known, call.primitive.moved(ts))
        return known

    def _push_pullback(
        self, primitive: Sided, known: tuple[Any, ...], mean: Any, odd: Any, rule: Rule, none: Any
    ) -> Pair:
        """The point moves along the direction alone; what the pullback is applied to goes through
        it as through the kinked function."""
        count = primitive.points
        parts = [_split(ts, count) for ts in (mean, odd)]
        (points, linear), (odd_points, odd_linear) = parts
        straight, leaning = _through(known, linear, odd_linear, rule, none)
        if points is not None:
            straight = _each(_plus, straight, rule(points, known))
        if odd_points is not None:
            leaning = _each(_plus, leaning, rule(odd_points, known))
        return straight, leaning


def _split(ts: Any, count: int) -> tuple[Any, Any]:
    """The tangents of the points and those of the others, None if there are none."""
    if ts is None:
        return None, None
    first = [*ts[:count], *[None] * (len(ts) - count)]
    rest = [*[None] * count, *ts[count:]]
    return first if _any(first) else None, rest if _any(rest) else None


def _moves(count: int, mean: Any, odd: Any) -> bool:
    """Whether one of the points has a tangent."""
    return any(ts is not None and _any(ts[:count]) for ts in (mean, odd))


def _sides(call: Call) -> int:
    """How many sides a pullback has."""
    return int(getattr(call.primitive, "directions", 0))


def _turned(side: Any) -> Any:
    """The opposite direction."""
    return tuple([-x for x in side]) if isinstance(side, tuple) else -side


def _known(x: Any, there: Any, back: Any) -> Any:
    """NaN where it makes a difference from which side a tie is seen."""
    if x is None or there is None:
        return x
    return where(not_equal(there, back), x.constant(np.nan), x)


def _both(mean: Any, odd: Any) -> Any:
    """The two parts of the operands' tangents, together."""
    return _each(_plus, mean, odd) if mean and odd else mean or odd


def _any(ts: Sequence[Any]) -> bool:
    return any(t is not None for t in ts)


def _through(known: Any, mean: Any, odd: Any, rule: Rule, none: Sequence[Any]) -> Pair:
    """The two parts behind a linear map with slopes at a kink, along directions."""
    if not known:
        return (
            none if mean is None else rule(mean, None),
            none if odd is None else rule(odd, None),
        )
    straight = none if mean is None else rule(mean, None)
    leaning = none if mean is None else _apart(rule(mean, known), straight)
    if odd is None:
        return straight, leaning
    turned = rule(odd, known)
    both = _apart(turned, rule(odd, None))
    return _each(_plus, straight, both), _each(_plus, leaning, turned)


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
