"""Sums of exponentials: logsumexp, softmax and its logarithm.

Their derivatives contain the shares p = exp(x) / sum(exp(x)), and differences such as 1 - p and
c - <p, c>, which lose all digits if one element has nearly all of the sum. A share differs from 1
by the sum of the other shares. So the largest element's term is left out of each sum, instead of
subtracted from it, and small numbers keep their digits.

Names: `x` operand; `p` the shares; `ct` cotangent, `t` tangent, `c` either of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.tape import Call
from tapegrad.primitives.base import parametric
from tapegrad.primitives.elementwise import (
    exp,
    isfinite,
    log,
    log1p,
    logical_and,
    stop_gradient,
    where,
)
from tapegrad.primitives.extrema import Max
from tapegrad.primitives.kinds import AlongAxes, Composite, Reduction
from tapegrad.primitives.reductions import Sum, restored
from tapegrad.primitives.views import BroadcastTo


def _top(axes: tuple[int, ...], x: Any) -> Any:
    """The largest element, which is subtracted before exponentials. The result doesn't depend on
    it, so it has no derivative."""
    if any(x.shape[a] == 0 for a in axes):
        kept = tuple(n for a, n in enumerate(x.shape) if a not in axes)
        return BroadcastTo(kept)(x.constant(-np.inf))
    return stop_gradient(Max(axes)(x))


def _terms(axes: tuple[int, ...], x: Any) -> tuple[Any, Any]:
    """The largest element, and exp(x - largest). The difference of equal infinities counts as 0."""
    top = _top(axes, x)
    whole = restored(top, axes)
    equal = where(x.equals(whole), x.constant(0), x.constant(-np.inf))
    return top, exp(where(isfinite(whole), x - whole, equal))


def _but_largest(axes: tuple[int, ...], x: Any, c: Any) -> Any:
    """The sum of c over all elements but the largest."""
    return Sum(axes)(where(x.equals(restored(_top(axes, x), axes)), c.constant(0), c))


def _centered(axes: tuple[int, ...], x: Any, p: Any, c: Any) -> Any:
    """c - <p, c>. The value of c at the largest element of x is first subtracted from c."""
    largest = x.equals(restored(_top(axes, x), axes))
    there = _top(axes, where(largest, c, c.constant(-np.inf)))
    rest = c - restored(there, axes)
    return rest - restored(Sum(axes)(p * rest), axes)


@parametric
class LogSumExp(Composite, Reduction):
    """log(sum(exp(x))) over `axes`: the fold by np.logaddexp. It is -inf for no elements.

    The largest element is subtracted first, so that nothing overflows. The slopes are the shares;
    they are equal if all elements are -inf.

    If `apart`, the m largest elements are kept out of the sum r of the others. The result is
    log1p(r / m) + log(m), which is right to the last digit where r is small.
    """

    axes: tuple[int, ...]
    apart: bool = False

    name = "logsumexp"

    def expand(self, *xs: Any) -> Any:
        top, terms = _terms(self.axes, xs[0])
        if not self.apart or 0 in xs[0].shape:
            return log(Sum(self.axes)(terms)) + top
        largest, nothing = terms.equals(1), terms.constant(0)
        count = Sum(self.axes)(where(largest, terms.constant(1), nothing))
        rest = Sum(self.axes)(where(largest, nothing, terms))
        return log1p(rest / count) + log(count) + top

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return (Softmax(self.axes)(xs[0]) * restored(ct, self.axes),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else Sum(self.axes)(Softmax(self.axes)(xs[0]) * ts[0])

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        axis = f", axis={self.axes[0] if len(self.axes) == 1 else self.axes}"
        return [f"{outs[0]} = np.logaddexp.reduce({xs[0]}{axis})"]


@parametric
class Softmax(AlongAxes, Composite):
    """The shares exp(x) / sum(exp(x)) over `axes`. They are equal if all elements are -inf."""

    axes: tuple[int, ...]

    name = "softmax"

    def expand(self, *xs: Any) -> Any:
        _, terms = _terms(self.axes, xs[0])
        return terms / restored(Sum(self.axes)(terms), self.axes)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return (out * _centered(self.axes, xs[0], out, ct),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return out * _centered(self.axes, xs[0], out, ts[0])


@parametric
class LogSoftmax(AlongAxes, Composite):
    """x - log(sum(exp(x))) over `axes`."""

    axes: tuple[int, ...]

    name = "log_softmax"

    def expand(self, *xs: Any) -> Any:
        top = _top(self.axes, xs[0])
        rest = xs[0] - restored(where(isfinite(top), top, top.constant(0)), self.axes)
        return rest - restored(log(Sum(self.axes)(exp(rest))), self.axes)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        """ct - p sum(ct). If only one element is the largest, its p is 1 minus the other shares."""
        axes, x = self.axes, xs[0]
        p = Softmax(axes)(x)
        largest, one = x.equals(restored(_top(axes, x), axes)), x.constant(1)
        count = Sum(axes)(where(largest, one, x.constant(0)))
        whole = Sum(axes)(ct)
        there = _but_largest(axes, x, p) * whole - _but_largest(axes, x, ct)
        alone = logical_and(largest, restored(count.equals(1), axes))
        return (where(alone, restored(there, axes), ct - p * restored(whole, axes)),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return _centered(self.axes, xs[0], Softmax(self.axes)(xs[0]), ts[0])
