"""Roots of sums of squares, whose kink is a point: the origin.

The gradient of r = sqrt(z1^2 + z2^2 + ...) is z / r, and 0 at the origin by convention. r^2 and
cos(r) are smooth there, but the rule of sqrt divides 0 / 0. So the root of a sum of squares has a
rule of its own, with respect to z. Along a direction d the origin is left on the ray through d,
where z / r is the constant d / |d| (`kinks` explains directions).

Names: `zs` the squared operands; `r` the root; `n` the gradient, z / r; `ct` cotangent of r, `c` of
zs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapegrad.ir.tape import Aval
from tapegrad.ir.traits import Ties
from tapegrad.primitives.base import by_name, parametric, total
from tapegrad.primitives.batches import expanded, repeated
from tapegrad.primitives.elementwise import (
    logical_and,
    not_equal,
    sqrt,
    square,
    where,
)
from tapegrad.primitives.kinds import Composite, Linear
from tapegrad.primitives.kinks import Sided, unless
from tapegrad.primitives.views import BroadcastTo

# The way of a square into the sum: a factor, and linear calls that are applied in turn. A call is
# the name of its primitive and the one parameter.
Step = tuple[str, tuple[int, ...]]
Path = tuple[float, tuple[Step, ...]]
ALONE: Path = (1.0, ())


def _linear(steps: tuple[Step, ...]) -> list[Linear]:
    return [by_name(name)(parameter) for name, parameter in steps]


def carried(path: Path, x: Any) -> Any:
    """The square `x` after its way into the sum."""
    factor, steps = path
    for step in _linear(steps):
        x = step(x)
    return x if factor == 1 else x * factor


def brought_back(path: Path, x: Any, z: Aval) -> Any:
    """The transpose of `carried`: `x`, of the sum's shape, at each element of z."""
    factor, steps = path[0], _linear(path[1])
    avals = [z]
    for step in steps:
        avals.append(step.aval(avals[-1]))
    for step, aval in zip(reversed(steps), reversed(avals[:-1]), strict=True):
        x = step.transpose(x, aval)
    return x if factor == 1 else x * factor


def _in_rows(
    primitive: Any, size: int, mapped: Sequence[bool], xs: Sequence[Any], squared: range, ndim: int
) -> Any:
    """The primitive applied to rows, with paths that keep the rows. The operands in the range
    `squared` belong to zs, and `ndim` is the number of axes of the sum. Squares that only broadcast
    are aligned."""
    paths: list[Path] = []
    for factor, steps in primitive.paths:
        changed = [step.of_rows(size) for step in _linear(steps)]
        if None in changed:
            return None
        paths.append((factor, tuple([(p.name, *vars(p).values()) for p in changed])))
    lined = []
    for k, (x, m) in enumerate(zip(xs, mapped, strict=True)):
        plain = k in squared and not primitive.paths[squared.index(k) % len(paths)][1]
        further = ndim - (x.ndim - m) if plain else 0
        lined.append(expanded(x, further) if m else repeated(x, size, further))
    return primitive.changed(paths=tuple(paths))(*lined)


@parametric
class Norm(Composite):
    """sqrt(u), where u is a sum of squares. The operands are u, which determines the value, and the
    zs, which have the derivative."""

    paths: tuple[Path, ...]

    name = "norm"
    ties = Ties(origin=0)

    def expand(self, *xs: Any) -> Any:
        return sqrt(xs[0])

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        return _in_rows(self, size, mapped, xs, range(1, len(xs)), xs[0].ndim - mapped[0])

    def kink(self, operands: Sequence[Any]) -> Any:
        return True, *operands[1:]

    def length(self, u: Any, *zs: Any) -> Any:
        """The root of the sum of the squares of `zs`."""
        return _length(self.paths, zs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return self.vjp_along((), ct, out, *xs)

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return None, *norm_pullback(self.paths, directions, ct, out, *xs[1:])

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        moved = [
            carried(path, z * t)
            for path, z, t in zip(self.paths, xs[1:], ts[1:], strict=True)
            if t is not None
        ]
        return _over(total(moved), out) if moved else None


def norm_pullback(
    paths: tuple[Path, ...], directions: Sequence[Any], ct: Any, out: Any, *zs: Any
) -> Sequence[Any]:
    """The cotangents of the zs for the cotangent of the norm. A direction has one array for each
    z."""
    flat = [d for direction in directions for d in _each(direction)]
    found = NormPullback(paths, len(directions), True)(*zs, *flat, out, ct)
    return found if len(paths) > 1 else (found,)


def _each(direction: Any) -> Sequence[Any]:
    """The arrays of a direction, for each z. For a single z it is the array itself."""
    return direction if isinstance(direction, (list, tuple)) else (direction,)


@parametric
class NormPullback(Sided):
    """ct z / r. At the origin it is ct d / |d| for the first direction d that isn't 0, else 0.

    Its derivative along c is ct (c - n <n, c>) / r plus the one through ct. If the direction from
    the origin is c itself, the former is 0. Otherwise it isn't known at the origin, and is NaN.
    """

    paths: tuple[Path, ...]
    directions: int = 0
    pulls: bool = False

    name = "norm_pullback"
    ties = Ties(origin=-2)

    @property
    def points(self) -> int:  # type: ignore[override]
        return len(self.paths)

    @property
    def results(self) -> int:  # type: ignore[override]
        return len(self.paths)

    def sides(self, xs: Sequence[Any]) -> Sequence[Any]:
        m = self.points
        sides = [tuple(xs[m * k : m * (k + 1)]) for k in range(1, self.directions + 1)]
        return sides if m > 1 else [side for (side,) in sides]

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        return _in_rows(self, size, mapped, xs, range(len(xs) - 2), xs[-2].ndim - mapped[-2])

    def direction(self, ct: Any) -> Any:
        if not isinstance(ct, (tuple, list)):
            return ct
        known = next(c for c in ct if c is not None)
        return tuple(known.constant(0) if c is None else c for c in ct)

    def aval(self, *xs: Aval) -> Any:
        zs = tuple(x.with_shape(s) for x, s in zip(xs, self._shapes(xs), strict=False))
        return zs if len(zs) > 1 else zs[0]

    def _shapes(self, xs: Sequence[Any]) -> list[tuple[int, ...]]:
        """The shapes of the results: those of the zs, or those to which they broadcast."""
        zs = zip(self.paths, xs, strict=False)
        return [z.shape if steps else xs[-2].shape for (_, steps), z in zs]

    def expand(self, *xs: Any) -> Any:
        *_, r, ct = xs
        found = self._spread_over(xs[: self.points], ct, r)
        origin = r.equals(0)
        for side in self.sides(xs):
            d = self._whole(side, xs)
            length = _length(self.paths, d)
            zero = ct.constant(0)
            toward = self._spread(d, where(origin, _over(ct, length), zero))
            found = [a + b for a, b in zip(found, toward, strict=True)]
            origin = logical_and(origin, length.equals(0))
        return tuple(found) if len(found) > 1 else found[0]

    def _spread(self, zs: Sequence[Any], q: Any) -> list[Any]:
        return [z * brought_back(p, q, z.aval) for p, z in zip(self.paths, zs, strict=True)]

    @property
    def _of_two(self) -> bool:
        """Whether it is the pullback of hypot. That is finite where a square overflows, so z / r is
        computed first."""
        return self.paths == (ALONE, ALONE)

    def _spread_over(self, zs: Sequence[Any], ct: Any, r: Any) -> list[Any]:
        """ct z / r."""
        if self._of_two:
            return [_over(z, r) * ct for z in zs]
        return self._spread(zs, _over(ct, r))

    def _inner_over(self, zs: Sequence[Any], cs: Sequence[Any], r: Any) -> Any:
        """<z, c> / r."""
        if self._of_two:
            return self._inner([_over(z, r) for z in zs], cs)
        return _over(self._inner(zs, cs), r)

    def _inner(self, xs: Sequence[Any], ys: Sequence[Any]) -> Any:
        return total([carried(p, x * y) for p, x, y in zip(self.paths, xs, ys, strict=True)])

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        zs, (r, given) = xs[: self.points], xs[-2:]
        cs = self._whole(self.direction(ct), xs)
        moved = self._inner_over(zs, cs, r)
        origin = r.equals(0)
        for each in directions:
            d = self._whole(each, xs)
            length = _length(self.paths, d)
            moved = where(origin, _over(self._inner(d, cs), length), moved)
            origin = logical_and(origin, length.equals(0))
        ct_zs = self._across(zs, cs, r, given, moved)
        if not self.pulls or len(directions) > 1:
            ct_zs = [
                self._unknown(p, c, x, z, r)
                for p, c, x, z in zip(self.paths, cs, ct_zs, zs, strict=True)
            ]
        return (*ct_zs, *[None] * (len(xs) - 1 - self.points), moved)

    def jvp_along(self, directions: Any, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        """The tangent. The map from the zs to a gradient has a symmetric derivative, so both modes
        share a rule."""
        zs, moved, count = xs[: self.points], ts[: self.points], len(self.paths)
        terms: list[Sequence[Any]] = [[None] * count]
        if ts[-1] is not None:
            flat = [d for direction in directions for d in _each(direction)]
            linear = NormPullback(self.paths, len(directions))(*zs, *flat, xs[-2], ts[-1])
            terms.append(linear if count > 1 else [linear])
        if any(t is not None for t in moved):
            turned = self.vjp_along(directions, moved if count > 1 else moved[0], out, *xs)
            terms.append(turned[:count])
        found = [total(parts) for parts in zip(*terms, strict=True)]
        return tuple(found) if count > 1 else found[0]

    def _across(
        self, zs: Sequence[Any], cs: Sequence[Any], r: Any, given: Any, moved: Any
    ) -> list[Any]:
        """given (c - n <n, c>) / r. For two numbers the part across n is a product, not a
        difference."""
        if self._of_two:
            n_x, n_y = (_over(z, r) for z in zs)
            across = _over(n_x * cs[1] - n_y * cs[0], r) * given
            return [-(n_y * across), n_x * across]
        q = _over(given, r)
        turned = self._spread(zs, _over(moved * q, r))
        straight = self._spread(cs, q)
        return [a - b for a, b in zip(straight, turned, strict=True)]

    def _whole(self, ds: Any, xs: Sequence[Any]) -> list[Any]:
        """The arrays of a direction in full shape. A zero may be a scalar."""
        pairs = zip(_each(ds), self._shapes(xs), strict=True)
        return [d if d.shape == s else BroadcastTo(s)(d) for d, s in pairs]

    def _unknown(self, path: Path, c: Any, x: Any, z: Any, r: Any) -> Any:
        one, zero = r.constant(1), r.constant(0)
        origin = brought_back((1.0, path[1]), where(r.equals(0), one, zero), z.aval)
        asked = logical_and(not_equal(origin, zero), not_equal(c, zero))
        return unless(asked, x)


def _length(paths: tuple[Path, ...], zs: Sequence[Any]) -> Any:
    return sqrt(total([carried(p, square(z)) for p, z in zip(paths, zs, strict=True)]))


def _over(x: Any, r: Any) -> Any:
    """x / r, and 0 where r is 0."""
    return where(r.equals(0), r.constant(0), x / r)
