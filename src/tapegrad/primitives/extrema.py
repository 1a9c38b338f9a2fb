"""The largest and the smallest element over axes, and their rules where elements tie.

Names: as in `kinks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tapegrad.core.values import Aval
from tapegrad.ir.fold import MAX, MIN
from tapegrad.primitives.base import parametric
from tapegrad.primitives.elementwise import AsType, logical_and, where
from tapegrad.primitives.kinds import AlongAxes, Reduction
from tapegrad.primitives.kinks import Sided, is_told
from tapegrad.primitives.reductions import Sum, reducing, restored


class _OverAxes(AlongAxes, Sided):
    """A map at the ties of max or min over `axes`. The operands are x, the directions, out and the
    linear operand."""

    larger: bool
    directions: int
    points = 1
    steps = True

    def tied(self, xs: Sequence[Any]) -> tuple[Any, Any]:
        """The mask of the elements that share the cotangent, and their number."""
        x, *directions, out, _ = xs
        ties = x.equals(restored(out, self.axes))
        extremum, least = (Max, -np.inf) if self.larger else (Min, np.inf)
        for d in directions:
            among = where(ties, d, d.constant(least))
            ties = logical_and(ties, among.equals(restored(extremum(self.axes)(among), self.axes)))
        return ties, Sum(self.axes)(AsType(x.dtype)(ties))


@parametric
class SharedOver(_OverAxes):
    """The cotangent of x for that of its largest (or smallest) element. Tied elements get equal
    shares; with directions, those of them that move furthest along these."""

    axes: tuple[int, ...]
    larger: bool
    directions: int = 0
    pulls: bool = False
    told: bool = False

    name = "shared_over"

    def expand(self, *xs: Any) -> Any:
        ties, count = self.tied(xs)
        ct = xs[-1]
        return where(ties, restored(ct / count, self.axes), ct.constant(0))

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        pick = PickedOver(self.axes, self.larger, len(directions), is_told(directions))
        return (*[None] * (len(xs) - 1), pick(xs[0], *directions, xs[-2], ct))


@parametric
class PickedOver(_OverAxes):
    """The transpose of `SharedOver`: the mean over the elements that share."""

    axes: tuple[int, ...]
    larger: bool
    directions: int = 0
    told: bool = False

    name = "picked_over"

    def aval(self, *xs: Aval) -> Aval:
        return xs[-2].with_shape(xs[-2].shape)

    def expand(self, *xs: Any) -> Any:
        ties, count = self.tied(xs)
        c = xs[-1]
        return Sum(self.axes)(where(ties, c, c.constant(0))) / count

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        share = SharedOver(self.axes, self.larger, len(directions), told=is_told(directions))
        return (*[None] * (len(xs) - 1), share(xs[0], *directions, xs[-2], ct))


class _Extremum(Reduction):
    """max and min: tied elements share the cotangent equally."""

    numpys: ClassVar[Callable[..., Any]]
    of_two: ClassVar[np.ufunc]

    def aval(self, *xs: Aval) -> Aval:
        (x,) = xs
        if any(x.shape[a] == 0 for a in self.axes):
            raise ValueError(f"zero-size array to reduction operation {self.name}: {x}")
        return x.with_shape(self.kept(x))

    def evaluate(self, *xs: Any) -> Any:
        if type(xs[0]) is np.ndarray:  # the function that NumPy's calls
            return self.of_two.reduce(xs[0], self.axes)
        return self.numpys(xs[0], axis=self.axes)

    def for_types(self, *avals: Aval) -> Any:
        return reducing(self.of_two, self.axes) if avals[0].shape else self.evaluate

    def _shares(self, out: Any, x: Any) -> tuple[Any, Any]:
        ties = x.equals(restored(out, self.axes))
        count = Sum(self.axes)(AsType(x.dtype)(ties))
        return ties, count

    def kink(self, operands: Any) -> Any:
        return False, *operands

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return self.vjp_along((), ct, out, *xs)

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Any:
        told = is_told(directions)
        pullback = SharedOver(self.axes, self.name == "max", len(directions), True, told)
        return (pullback(xs[0], *directions, out, ct),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        if ts[0] is None:
            return None
        ties, count = self._shares(out, xs[0])
        share = ts[0] / restored(count, self.axes)
        return Sum(self.axes)(where(ties, share, out.constant(0)))


@parametric
class Max(_Extremum):
    """The largest element over `axes`; NaN wins."""

    axes: tuple[int, ...]

    name = "max"
    fold = MAX
    numpys = staticmethod(np.max)
    of_two = np.maximum


@parametric
class Min(_Extremum):
    """The smallest element over `axes`; NaN wins."""

    axes: tuple[int, ...]

    name = "min"
    fold = MIN
    numpys = staticmethod(np.min)
    of_two = np.minimum
