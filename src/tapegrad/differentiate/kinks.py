"""Derivatives through kinks: by the convention, and by the sides of a tie.

`primitives.kinks` explains why. A cotangent has three parts. `mean` follows the conventions, and is
the derivative in the end. `odd` and `even` say how the cotangents on the two sides of the tie
differ from it: there, where the direction v points, and back:

    there = mean + even + odd,    back = mean + even - odd.

A pullback of a kinked function has v for its cotangent, and begins an odd part. The kinked function
itself comes later in the backward walk. It multiplies slopes of the same tie, so there the mean is
that of the products on both sides. After a tie whose slope is the mean of both sides' slopes the
even part is 0 and isn't computed. Where one tie is inside of another the even part is needed: the
inner one may move to the same side there and back, as in max(|x|, 0). On the tape of a second
derivative the parts are separate values. So in the third derivative the slopes that they are made
of are plain numbers, and don't begin parts again: they are `told` so.

A tangent has the same parts. In forward mode v is the tangent of the tie's point, and is known
before it is used: there the kinked function begins an odd part, and its pullback multiplies slopes.
If the point doesn't move, there is no direction, and the pullback keeps its sides. Forward mode of
a derivative that has sides already, which is of third order, is NaN where they matter; so is
reverse mode where a tie inside of another has two sides that aren't opposite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tapegrad.ir.tape import Call, Operand, Tape
from tapegrad.primitives.elementwise import isfinite, logical_or, not_equal, where
from tapegrad.primitives.kinks import TOLD, Sided, unless
from tapegrad.primitives.views import BroadcastTo

# A rule maps the result's cotangent to the operands' cotangents, or the operands' tangents to the
# results', along directions. With None for these, ties follow the convention.
Rule = Callable[[Any, Any], Sequence[Any]]


class Parts(NamedTuple):
    """The parts of a cotangent or tangent, or of a rule's results. None is 0."""

    mean: Any
    odd: Any = None
    even: Any = None

    def sides(self) -> tuple[Any, Any]:
        """The values there and back."""
        middle = _plus(self.mean, self.even)
        return _plus(middle, self.odd), _plus(middle, _turned(self.odd))


class Directions(NamedTuple):
    """The directions in which a point leaves its tie: there, and back. If `back` is None, it is the
    opposite."""

    there: tuple[Any, ...] = ()
    back: tuple[Any, ...] | None = None

    def returning(self) -> Sequence[Any]:
        return [_turned(d) for d in self.there] if self.back is None else self.back

    def further(self, there: Any, back: Any) -> Directions:
        """These directions and another one, which decides where these stay on the tie. `back` is
        None if it is the opposite."""
        if back is None and self.back is None:
            return Directions((*self.there, there))
        opposite = _turned(there) if back is None else back
        return Directions((*self.there, there), (*self.returning(), opposite))


class _Kinks:
    """The known directions of each kink, which is identified by its operands. `node` maps an
    operand to its node on the tape under construction."""

    def __init__(self, tape: Tape, node: Callable[[Operand], Any]) -> None:
        self._node = node
        self._known: dict[Any, Directions] = {}
        self._pullbacks: dict[Any, Call] = {}  # kink -> its pullback with the most directions
        self._unclear: set[Any] = set()  # kinks whose pullbacks have different directions
        functions = set()
        self._two_sided = False
        for call in tape.calls:
            primitive = call.primitive
            self._two_sided |= primitive.ties.leans
            key = primitive.kink(call.operands)
            if key is None:
                continue
            if isinstance(primitive, Sided):
                self._see(key, call)
            else:
                functions.add(key)
        # Two slopes of one tie are multiplied only if there are a kinked function and its pullback.
        self._two_sided |= not functions.isdisjoint(self._pullbacks)

    def _see(self, key: Any, call: Call) -> None:
        """Register a pullback."""
        other = self._pullbacks.get(key)
        if other is None or _sides(call) > _sides(other):
            self._pullbacks[key] = call
            self._unclear.discard(key)
        elif _sides(call) == _sides(other) and _own(call) != _own(other):
            self._unclear.add(key)

    def _key(self, call: Call) -> Any:
        """The key of a call's kink, or None if sides don't matter on this tape."""
        return call.primitive.kink(call.operands) if self._two_sided else None

    def _of(self, key: Any) -> Directions:
        """The directions of a kink."""
        if key is None or key not in self._pullbacks:
            return Directions()
        if key not in self._known:
            sides = _own(self._pullbacks[key])
            self._known[key] = Directions(tuple([self._nodes(side) for side in sides]))
        return self._known[key]

    def _nodes(self, side: Any) -> Any:
        """The nodes of a direction, which has a part for each of several operands."""
        return tuple(map(self._node, side)) if isinstance(side, tuple) else self._node(side)

    def _multiplied(self, key: Any, parts: Parts, rule: Rule, none: Sequence[Any]) -> Parts:
        """The parts after a slope of a tie that multiplies slopes of the same tie."""
        known = self._of(key)
        found = _multiplied(parts, known, rule, none)
        if key not in self._unclear:
            return found
        mean = found.mean
        for part in parts[1:]:
            if part is not None:
                there, back = rule(part, known.there), rule(part, known.returning())
                mean = [_known(*each) for each in zip(mean, there, back, strict=True)]
        return found._replace(mean=mean)


class Kinks(_Kinks):
    """Kinks in reverse mode, where the cotangents of pullbacks are directions."""

    def pull(self, call: Call, parts: Parts, rule: Rule) -> Parts:
        """The parts of the operands' cotangents, given those of the result's."""
        primitive = call.primitive
        none = (None,) * len(call.operands)
        if not self._two_sided and not primitive.ties.leans:
            return _each_part(parts, rule, none)
        if primitive.ties.leans:
            return self._pull_leaning(parts, none)
        key = self._key(call)
        if isinstance(primitive, Sided) and key is not None:
            return self._pull_pullback(call, key, parts, rule, none)
        known = self._of(key)
        if known.there and not primitive.ties.balanced:
            return Parts(rule(parts.sides()[0], known.there), none, none)
        return self._multiplied(key, parts, rule, none)

    def _pull_leaning(self, parts: Parts, none: Sequence[Any]) -> Parts:
        """The value there is the sum of the operands; back, the second one has the opposite
        sign."""
        mean, odd, even = parts
        if not self._two_sided:
            return Parts((mean, *none[1:]), (odd, *none[1:]), (even, *none[1:]))
        middle, rest = _plus(mean, even), none[3:]
        if len(none) == 2:
            return Parts((mean, None), (odd, middle), (even, odd))
        return Parts((mean, None, None, *rest), (odd, middle, odd), (even, odd, middle))

    def _pull_told(
        self, call: Call, key: Any, parts: Parts, rule: Rule, none: Sequence[Any]
    ) -> Parts:
        """The cotangents through a slope whose parts are on the tape, so that the slope is a
        number. Where its own directions stay on the tie, further ones decide."""
        found = _each_part(parts, rule, none)
        own, on_tape = _own(call), _own(self._pullbacks[key])
        directions = tuple([self._nodes(side) for side in own])
        further = (*directions, *self._of(key).there[len(on_tape) :])
        if not own or len(further) == len(own):
            return found
        decided = Parts(*[none if part is None else rule(part, further) for part in parts])
        if list(own) == list(on_tape[: len(own)]):
            return decided
        pairs = zip(found, decided, strict=True)
        return Parts(*[[_known(x, x, y) for x, y in zip(*pair, strict=True)] for pair in pairs])

    def _pull_pullback(
        self, call: Call, key: Any, parts: Parts, rule: Rule, none: Sequence[Any]
    ) -> Parts:
        primitive: Any = call.primitive
        known = before = self._of(key)
        if primitive.pulls:
            there, back = parts.sides()
            opposite = parts.odd is None and parts.even is None
            known = self._known[key] = known.further(
                primitive.direction(there), None if opposite else _turned(primitive.direction(back))
            )
        if primitive.told or (primitive.directions and primitive.steps):
            return self._pull_told(call, key, parts, rule, none)
        if parts.mean is None:
            return _begun(parts, none, known, rule)
        # The derivative with respect to the point is known along the direction only. Where the
        # pullback's own directions stay on the tie, later ones decide.
        if parts.odd is None and parts.even is None:
            decided = rule(parts.mean, known.there)
        else:
            decided = rule(parts.mean, before.there)
        if primitive.directions:
            return _begun(parts, decided, known, rule)
        count = primitive.points
        straight = [*decided[:count], *rule(parts.mean, _by_convention(known))[count:]]
        return _begun(parts, straight, known, rule)


class MovingKinks(_Kinks):
    """Kinks in forward mode. `tangent` gives the tangent of an operand, if it has one."""

    def __init__(
        self,
        tape: Tape,
        node: Callable[[Operand], Any],
        tangent: Callable[[Operand], Parts],
    ) -> None:
        super().__init__(tape, node)
        self._tangent = tangent
        # Pullbacks of kinked functions whose points' tangents haven't been looked up yet.
        self._waiting = {
            call.primitive.kink(call.operands): call
            for call in tape.calls
            if isinstance(call.primitive, Sided) and call.primitive.pulls
        }
        # Whether some directions are computed after the kinked function.
        self.ahead = self._two_sided and any(map(_sides, self._pullbacks.values()))

    def push(self, call: Call, parts: Parts, rule: Rule) -> Parts:
        """The parts of the results' tangents, given those of the operands'. A part is None if no
        operand has one."""
        primitive = call.primitive
        none = (None,) * len(call.outs)
        if primitive.ties.leans:
            return self._push_leaning(parts)
        if isinstance(primitive, Sided) and not _moves(primitive.points, parts):
            return _each_part(parts, rule, none)  # it keeps its sides
        key = self._key(call)
        known = self._along(key)
        found = self._pushed(primitive, key, known, parts, rule, none)
        if not self.ahead or key not in self._pullbacks or not _sides(self._pullbacks[key]):
            return found
        # A derivative that has sides itself is known away from the tie only.
        ts = parts.sides()[0]
        there, back = rule(ts, known.there), rule(ts, known.returning())
        return Parts([_known(*each) for each in zip(found.mean, there, back, strict=True)])

    def _push_leaning(self, parts: Parts) -> Parts:
        """The tangents of a value with sides: what differs on the two sides, and moves differently
        there, counts for both."""
        ts = [part or (None, None, None) for part in parts]
        mean, odd, even = [[*part, None][:3] for part in ts]
        if not self._two_sided:
            return Parts((mean[0],), (None,), (None,))
        return Parts(
            (_plus(_plus(mean[0], odd[1]), even[2]),),
            (_plus(_plus(odd[0], mean[1]), _plus(even[1], odd[2])),),
            (_plus(even[0], mean[2]),),
        )

    def _pushed(
        self,
        primitive: Any,
        key: Any,
        known: Directions,
        parts: Parts,
        rule: Rule,
        none: Sequence[Any],
    ) -> Parts:
        if known.there and not primitive.ties.balanced:
            along = rule(parts.sides()[0], known.there)
            if isinstance(primitive, Sided):
                return Parts(along)
            straight = none if parts.mean is None else rule(parts.mean, None)
            return Parts(straight, _apart(along, straight))
        if not isinstance(primitive, Sided) or key is None:
            straight = none if parts.mean is None else rule(parts.mean, None)
            return _begun(parts, straight, known, rule)
        # The point moves along the direction only. The pullback's other operands pass through it as
        # through the kinked function.
        moved, linear = _split(parts, primitive.points)
        found = self._multiplied(key, linear, rule, none)
        if moved.odd is None and moved.even is None:
            turned = Parts(rule(moved.mean, known.there), none, none)
        else:
            turned = _multiplied(moved, known, rule, none)
        return Parts(*[_sum(a, b) for a, b in zip(found, turned, strict=True)])

    def _along(self, key: Any) -> Directions:
        """The directions of a kink, including the one in which its point moves."""
        known = self._of(key)
        if key in self._waiting:
            call: Any = self._waiting.pop(key)
            found = [self._tangent(x) for x in call.operands[: call.primitive.points]]
            there, back = zip(*[parts.sides() for parts in found], strict=True)
            if any(t is not None for t in there):
                opposite = all(parts.odd is None and parts.even is None for parts in found)
                returning = None if opposite else _turned(call.primitive.moved(back))
                known = known.further(call.primitive.moved(there), returning)
                self._known[key] = known
        return known


def _split(parts: Parts, count: int) -> tuple[Parts, Parts]:
    """The tangents of the points, and those of the other operands. A part is None if it has
    none."""
    first, rest = [], []
    for ts in parts:
        points = ts and [*ts[:count], *[None] * (len(ts) - count)]
        others = ts and [*[None] * count, *ts[count:]]
        first.append(points if ts and _any(points) else None)
        rest.append(others if ts and _any(others) else None)
    return Parts(*first), Parts(*rest)


def _moves(count: int, parts: Parts) -> bool:
    """Whether one of the points has a tangent."""
    return any(ts is not None and _any(ts[:count]) for ts in parts)


def _sides(call: Call) -> int:
    """The number of directions that a pullback has."""
    return int(getattr(call.primitive, "directions", 0))


def _own(call: Call) -> Sequence[Any]:
    """The directions that a pullback has."""
    primitive: Any = call.primitive
    return primitive.sides(call.operands)


def _known(x: Any, there: Any, back: Any) -> Any:
    """`x`, but NaN where the two sides of a tie differ."""
    if x is None or there is None:
        return x
    return unless(not_equal(there, back), x)


def _any(ts: Sequence[Any]) -> bool:
    return any(t is not None for t in ts)


def _each_part(
    parts: Parts, rule: Rule, none: Sequence[Any], directions: Sequence[Any] | None = None
) -> Parts:
    """The rule applied to each part, by the convention or along directions."""
    return Parts(*[none if part is None else rule(part, directions) for part in parts])


def _by_convention(known: Directions) -> Sequence[Any] | None:
    """The directions argument that makes a rule follow the convention. TOLD if the kink has
    directions, whose parts are computed separately."""
    return TOLD if known.there else None


def _begun(parts: Parts, straight: Sequence[Any], known: Directions, rule: Rule) -> Parts:
    """The parts after a slope that isn't multiplied with another slope of its tie. The mean is
    `straight`, which follows the convention."""
    if not known.there:
        apart = _each_part(parts._replace(mean=None), rule, [None] * len(straight))
        return apart._replace(mean=straight)
    if parts.odd is None and parts.even is None and known.back is None:
        return Parts(straight, _apart(rule(parts.mean, known.there), straight))
    middle, odd = _of_both(parts, known, rule)
    return Parts(straight, odd, _apart(middle, straight))


def _multiplied(parts: Parts, known: Directions, rule: Rule, none: Sequence[Any]) -> Parts:
    """The parts after a slope that multiplies slopes of the same tie. Where the directions choose a
    side, the mean is that of the products on both sides."""
    straight = _each_part(parts, rule, none, _by_convention(known))
    if not known.there or all(part is None for part in parts):
        return straight
    if parts.even is None and known.back is None:
        mean, odd, _ = straight
        if parts.mean is not None:
            odd = _sum(_apart(rule(parts.mean, known.there), mean), odd)
        if parts.odd is not None:
            mean = _sum(mean, _apart(rule(parts.odd, known.there), straight.odd))
        return Parts(mean, odd, none)
    middle, odd = _of_both(parts, known, rule)
    ones = _ones(next(part for part in parts if part is not None))
    ways = [rule(ones, way) for way in (None, known.there, known.returning())]
    chosen = [
        None if x is None else logical_or(not_equal(a, x), not_equal(b, x))
        for x, a, b in zip(*ways, strict=True)
    ]
    mean = [_choice(*each) for each in zip(chosen, middle, straight.mean, strict=True)]
    even = [_choice(c, None, x) for c, x in zip(chosen, straight.even, strict=True)]
    return Parts(mean, odd, even)


def _of_both(parts: Parts, known: Directions, rule: Rule) -> tuple[list[Any], list[Any]]:
    """The mean of both sides, and half of their difference."""
    there, back = parts.sides()
    pairs = list(zip(rule(there, known.there), rule(back, known.returning()), strict=True))
    return [_half(_plus(a, b)) for a, b in pairs], [_half(_difference(a, b)) for a, b in pairs]


def _choice(chosen: Any, x: Any, y: Any) -> Any:
    """`where(chosen, x, y)`, where x and y may be absent."""
    if x is None and y is None:
        return None
    zero = (y if x is None else x).constant(0)
    return where(chosen, zero if x is None else x, zero if y is None else y)


def _ones(x: Any) -> Any:
    """1 for each element of a cotangent, or of a tuple of them."""
    if isinstance(x, (tuple, list)):
        return type(x)([_ones(each) for each in x])
    return None if x is None else BroadcastTo(x.shape)(x.constant(1))


def _half(x: Any) -> Any:
    return None if x is None else x * 0.5


def _turned(x: Any) -> Any:
    """The opposite direction or cotangent."""
    if isinstance(x, (tuple, list)):
        return type(x)([_turned(each) for each in x])
    return None if x is None else -x


def _sum(xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
    return [_plus(x, y) for x, y in zip(xs, ys, strict=True)]


def _plus(x: Any, y: Any) -> Any:
    """The sum of two cotangents, either of which may be absent; elementwise for tuples."""
    if x is None or y is None:
        return y if x is None else x
    if isinstance(x, (tuple, list)):
        return type(x)(_sum(x, y))
    return x + y


def _apart(xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
    """The differences of cotangents; 0 where these are infinite."""
    return [_difference(x, y) for x, y in zip(xs, ys, strict=True)]


def _difference(x: Any, y: Any) -> Any:
    if x is y or y is None:
        return None if x is y else x
    return -y if x is None else where(isfinite(y), x - y, y.constant(0))
