"""Rules through kinks, and what their derivatives have to know.

Where operands tie, a rule shares the cotangent by a convention: |x| has the slope 0 at 0, the mean
of -1 and 1. The derivative of a derivative is that of the function which the first computes: of
l |x| at x = 0 that is 0 for every l, so its derivative along l is 0. But where x moves too, slopes
of one tie are multiplied, and the product of their means isn't the mean of their products: |x|^2 is
x^2, whose second derivative is 2, on either side the product of two slopes of one sign. So beside
the convention a second derivative along v knows, at every kink, the side to which v points: all of
them then are those of one smooth function, which agrees with the program on a cone around v.
`differentiate.kinks` says where which of the two counts.

The direction is at hand. When h = pullback(x, ct) is differentiated, the cotangent of h is how x
moves along v. From there it goes to the pullback's own derivative, and to the rule of |x| itself,
which comes later in the sweep. In derivatives of higher order directions are compared one after the
other, as digits are.

Each pullback is a call, so that it is known as one when it is differentiated; the pass
`expand_pullbacks` puts its few elementwise calls in its place at last.

Names: `ct` cotangent, of the result of the kinked function; `c`, `c_x`, `c_y` of its operands, in
transposed maps; `d` directions; `ties` what shares the cotangent.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.ir.traits import Ties
from tapegrad.primitives.base import broadcast_shapes, parametric
from tapegrad.primitives.batches import aligned, all_mapped
from tapegrad.primitives.elementwise import where
from tapegrad.primitives.kinds import Composite
from tapegrad.primitives.transposing import pushed_by


def unless(condition: Any, x: Any) -> Any:
    """x, but NaN where the condition holds, as all derivatives are there."""
    return x / where(condition, x.constant(np.nan), x.constant(1))


class Told(tuple[Any, ...]):
    """No directions, for a rule by the convention whose parts on the sides stand beside it."""


TOLD = Told()


def is_told(directions: Any) -> bool:
    """Whether that is what a rule is passed for directions."""
    return isinstance(directions, Told)


class Sided(Composite):
    """Linear in the last operands; the first `points` have the kink, and say which side counts;
    where they tie, the `directions` after them do.

    `vjp` is the transposed map, of the same sides. Of one that `pulls`, the pullback of the kinked
    function, the cotangent is a further direction. In forward mode that is how the point moves.

    The slope of one with `steps` is a number on each side: its points have no cotangent.

    One that is `told` of has the convention's mean as a number: its odd part stands on the tape
    beside it, as that of one along directions does. Otherwise the next derivative begins one.
    """

    points: int
    directions: int
    pulls: bool = False
    told: bool = False
    steps: ClassVar[bool] = False

    def direction(self, ct: Any) -> Any:
        """How far it goes to the side of the first operand, for a cotangent of the pullback."""
        return ct

    def moved(self, ts: Sequence[Any]) -> Any:
        """The same for tangents of the `points`."""
        return self.direction(tuple(ts) if self.points > 1 else ts[0])

    def keeps_zeros(self, xs: Sequence[Any], kept: Sequence[bool]) -> bool:
        return True

    def kink(self, operands: Sequence[Any]) -> Any:
        return self.ties.origin is not None, *operands[: self.points]

    def sides(self, xs: Sequence[Any]) -> Sequence[Any]:
        """The directions among the operands."""
        return TOLD if self.told else xs[self.points : self.points + self.directions]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return self.vjp_along(self.sides(xs), ct, out, *xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return self.jvp_along(self.sides(xs), ts, out, *xs)

    def jvp_along(self, directions: Any, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        """`jvp`, where a kink takes the side to which the first direction points that isn't 0. Of
        the linear operands it is the transpose of the transposed map; the points only choose the
        side."""
        given = [*[None] * self.points, *ts[self.points :]]
        return pushed_by(functools.partial(self.vjp_along, directions), given, out, *xs)


@parametric
class Leaning(Composite):
    """The first operand. The others are its odd and even part, by how much it is apart from that on
    the sides of ties; further derivatives begin with all (`differentiate.kinks`)."""

    name = "leaning"
    ties = Ties(leans=True)
    of_complex = True

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_shape(broadcast_shapes(*[x.shape for x in xs]))

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        return self(*all_mapped(aligned(xs, mapped, (0,) * len(xs)), mapped, size))

    def expand(self, *xs: Any) -> Any:
        return xs[0]

    def keeps_zeros(self, xs: Sequence[Any], kept: Sequence[bool]) -> bool:
        return kept[0]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return ct, *[None] * (len(xs) - 1)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return ts[0]


def leaning(mean: Any, odd: Any, even: Any) -> Any:
    """A derivative with its parts; None is 0."""
    if even is None:
        return mean if odd is None else Leaning()(mean, odd)
    return Leaning()(mean, even.constant(0) if odd is None else odd, even)


# ---- |x|


@parametric
class Turned(Sided):
    """y times the sign of x; where x is 0, that of the first direction that isn't; else 0."""

    directions: int = 0
    pulls: bool = False
    told: bool = False

    name = "turned"
    steps = True
    cores = 0
    points = 1

    def aval(self, *xs: Aval) -> Aval:
        return xs[-1].with_shape(broadcast_shapes(*[x.shape for x in xs]))

    def expand(self, *xs: Any) -> Any:
        y = xs[-1]
        result = y.constant(0)
        for side in reversed(xs[:-1]):
            result = where(side > 0, y, where(side < 0, -y, result))
        return result

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        turned = Turned(len(directions), told=is_told(directions))(xs[0], *directions, ct)
        return (*[None] * (len(xs) - 1), turned)


def turned(directions: Sequence[Any], x: Any, ct: Any) -> Any:
    """The pullback of |x|."""
    return Turned(len(directions), True, is_told(directions))(x, *directions, ct)


# ---- the larger and the smaller of two


def _tie(larger: bool, directions: Sequence[Any], x: Any, y: Any, middle: Any) -> Any:
    """x or y, whichever the directions choose; `middle` if none does."""
    for d in reversed(directions):
        above, below = (x, y) if larger else (y, x)
        middle = where(d > 0, above, where(d < 0, below, middle))
    return middle


@parametric
class Shared(Sided):
    """The cotangents of x and y for that of `out`, the larger of them (or the smaller): the chosen
    one gets all. A tie is split in halves, unless a direction of x - y chooses."""

    larger: bool
    directions: int = 0
    pulls: bool = False
    told: bool = False

    name = "shared"
    steps = True
    cores = 0
    points = 2
    results = 2

    def aval(self, *xs: Aval) -> tuple[Aval, Aval]:
        shape = broadcast_shapes(*[x.shape for x in xs])
        return xs[-1].with_shape(shape), xs[-1].with_shape(shape)

    def expand(self, *xs: Any) -> Any:
        x, y, *directions, out, ct = xs
        zero, half = ct.constant(0), ct * 0.5
        left = _tie(self.larger, directions, ct, zero, half)
        right = _tie(self.larger, directions, zero, ct, half)
        is_x, is_y = x.equals(out), y.equals(out)
        return (
            where(is_x, where(is_y, left, ct), zero),
            where(is_y, where(is_x, right, ct), zero),
        )

    def direction(self, ct: Any) -> Any:
        c_x, c_y = ct
        if c_x is None or c_y is None:
            return -c_y if c_x is None else c_x
        return c_x - c_y

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        (x, y), out, known = xs[:2], xs[-2], [c for c in ct if c is not None]
        both = [known[0].constant(0) if c is None else c for c in ct]
        pick = Picked(self.larger, len(directions), told=is_told(directions))
        return (*[None] * (len(xs) - 1), pick(x, y, *directions, out, *both))


@parametric
class Picked(Sided):
    """The transpose of `Shared`: c_x or c_y, or their mean."""

    larger: bool
    directions: int = 0
    told: bool = False

    name = "picked"
    steps = True
    cores = 0
    points = 2

    def aval(self, *xs: Aval) -> Aval:
        return xs[-1].with_shape(broadcast_shapes(*[x.shape for x in xs]))

    def expand(self, *xs: Any) -> Any:
        x, y, *directions, out, c_x, c_y = xs
        both = _tie(self.larger, directions, c_x, c_y, (c_x + c_y) * 0.5)
        is_x, is_y = x.equals(out), y.equals(out)
        left = where(is_y, both, c_x)
        return where(is_x, left, where(is_y, c_y, c_y.constant(0)))

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        x, y, out = *xs[:2], xs[-3]
        share = Shared(self.larger, len(directions), told=is_told(directions))
        return (*[None] * (len(xs) - 2), *share(x, y, *directions, out, ct))


def shared(larger: bool, directions: Sequence[Any], ct: Any, out: Any, x: Any, y: Any) -> Any:
    """The pullback of maximum or minimum."""
    return Shared(larger, len(directions), True, is_told(directions))(x, y, *directions, out, ct)
