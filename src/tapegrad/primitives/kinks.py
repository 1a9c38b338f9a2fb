"""Rules of functions with kinks, and the sides of a kink that their derivatives need.

Where operands tie, a rule shares the cotangent by a convention: |x| has the slope 0 at 0, the mean
of -1 and 1. The derivative of a derivative is the derivative of the function that the first one
computes. For l |x| at x = 0 that function is 0 for every l, so its derivative along l is 0. If x
moves too, slopes of the same tie are multiplied, and the product of their means isn't the mean of
their products: |x|^2 is x^2 with the second derivative 2, on either side the product of two slopes
of equal sign. So a second derivative along v also uses, at every kink, the side to which v points.
All slopes are then those of one smooth function, which equals the program on a cone around v.
`differentiate.kinks` decides between the convention and the sides.

The direction is available. When h = pullback(x, ct) is differentiated, the cotangent of h is the
direction in which x moves along v. It is used by the pullback's own derivative, and by the rule of
|x| itself, which comes later in the backward walk. Derivatives of higher order have several
directions, which are compared lexicographically: the first that isn't 0 decides.

Each pullback is a call, so that it is recognised when it is differentiated. In the end the pass
`expand_pullbacks` replaces it by a few elementwise calls.

Names: `ct` cotangent of the kinked function's result; `c`, `c_x`, `c_y` of its operands, in
transposed maps; `d` directions; `ties` the elements that share the cotangent.
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
    """x, but NaN where the condition holds. Its derivatives are NaN there too."""
    return x / where(condition, x.constant(np.nan), x.constant(1))


class Told(tuple[Any, ...]):
    """An empty tuple of directions. It tells a rule to follow the convention, because the
    derivative's odd part is a separate value on the tape."""


TOLD = Told()


def is_told(directions: Any) -> bool:
    """Whether `directions` is the empty tuple `TOLD`."""
    return isinstance(directions, Told)


class Sided(Composite):
    """A map that is linear in its last operands and has a kink in its first `points` operands.
    These say which side counts. Where they tie, the `directions` after them do.

    `vjp` is the transposed map on the same sides. If it `pulls`, it is the pullback of the kinked
    function: then the cotangent is a further direction. In forward mode the direction is the
    points' tangent.

    If it has `steps`, its slope is a constant on each side, so its points have no cotangent.

    If it is `told`, its slope at a tie is the convention's mean, a plain number. The odd part is a
    separate value on the tape, as for a map along directions. Otherwise the next derivative begins
    an odd part.
    """

    points: int
    directions: int
    pulls: bool = False
    told: bool = False
    steps: ClassVar[bool] = False

    def direction(self, ct: Any) -> Any:
        """The direction of the points, for a cotangent of the pullback. It is positive towards the
        first operand's side."""
        return ct

    def moved(self, ts: Sequence[Any]) -> Any:
        """The direction of the points, for their tangents."""
        return self.direction(tuple(ts) if self.points > 1 else ts[0])

    def keeps_zeros(self, xs: Sequence[Any], kept: Sequence[bool]) -> bool:
        return True

    def kink(self, operands: Sequence[Any]) -> Any:
        return self.ties.origin is not None, *operands[: self.points]

    def sides(self, xs: Sequence[Any]) -> Sequence[Any]:
        """The operands that are directions."""
        return TOLD if self.told else xs[self.points : self.points + self.directions]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return self.vjp_along(self.sides(xs), ct, out, *xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return self.jvp_along(self.sides(xs), ts, out, *xs)

    def jvp_along(self, directions: Any, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        """`jvp` on the side of a kink to which the first nonzero direction points. In the linear
        operands it is the transpose of the transposed map. The points have no tangent here."""
        given = [*[None] * self.points, *ts[self.points :]]
        return pushed_by(functools.partial(self.vjp_along, directions), given, out, *xs)


@parametric
class Leaning(Composite):
    """The first operand, a derivative by the convention. The other operands are its odd and its
    even part, which give its values on the two sides of a tie. Further derivatives start from all
    of them (`differentiate.kinks`)."""

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
    """The derivative `mean` with its odd and even part. None is 0."""
    if even is None:
        return mean if odd is None else Leaning()(mean, odd)
    return Leaning()(mean, even.constant(0) if odd is None else odd, even)


# ---- |x|


@parametric
class Turned(Sided):
    """y times the sign of x. Where x is 0 the first nonzero direction takes the place of x; 0 if
    there is none."""

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
    """`x` or `y`, whichever the first nonzero direction chooses; `middle` if there is none."""
    for d in reversed(directions):
        above, below = (x, y) if larger else (y, x)
        middle = where(d > 0, above, where(d < 0, below, middle))
    return middle


@parametric
class Shared(Sided):
    """The cotangents of x and y for that of `out = maximum(x, y)`, or minimum. The chosen operand
    gets all of it. A tie is split in halves, unless a direction of x - y chooses."""

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
    """The transpose of `Shared`: c_x or c_y, or at a tie their mean."""

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
