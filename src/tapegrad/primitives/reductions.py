"""Reductions over axes, and the running sums and products along one axis.

`axes` disappear from the shape; the front end restores them for `keepdims`.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import numpy as np

from tapegrad.ir.fold import ADD, ALL, ANY, PRODUCT, SUM
from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives.base import Slice, parametric
from tapegrad.primitives.kinds import Extremal, Library, Linear, Reduction, Running, Underived
from tapegrad.primitives.scatter import Concatenate
from tapegrad.primitives.texts import axes_text
from tapegrad.primitives.views import (
    BroadcastTo,
    ExpandDims,
    GetItem,
    Reshape,
    Transpose,
    zeros,
)

# Sums of more float32 numbers than this run in float64. NumPy's pairwise sums add as many one by
# one, too. Along axes other than the last NumPy adds any number of them one by one.
LONG_SUM = 128


@parametric
class Sum(Linear, Reduction):
    """The sum over `axes`."""

    axes: tuple[int, ...]

    name = "sum"
    of_complex = True
    fold = SUM
    typed = True

    def keeps_zeros(self, xs: Any, kept: Any) -> bool:
        return any(kept)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        (x,) = call.operands
        if not self.is_wide(x):
            return super().numpy_text(outs, xs, call)
        axes = axes_text(self.axes, x.shape)
        return [f"{outs[0]} = np.sum({xs[0]}{axes}, dtype=np.float64).astype(np.float32)"]

    def evaluate(self, *xs: Any) -> Any:
        (x,) = xs
        if self.is_wide(x):
            return np.sum(x, axis=self.axes, dtype=np.float64).astype(np.float32)
        if type(x) is np.ndarray:  # the function that np.sum calls
            return np.add.reduce(x, self.axes, x.dtype)
        return np.sum(x, axis=self.axes, dtype=x.dtype)

    def for_types(self, *avals: Aval) -> Any:
        (x,) = avals
        if not x.shape or self.is_wide(x):
            return self.evaluate
        if self.axes == (0,) and len(x.shape) == 1 and x.dtype.kind in "fc":
            return np.add.reduce  # without further arguments it takes less time
        return reducing(np.add, self.axes, dtype=x.dtype)

    def is_wide(self, x: Any) -> bool:
        """Whether the sum runs in float64 although its result is float32."""
        return x.dtype == np.float32 and math.prod(x.shape[a] for a in self.axes) > LONG_SUM

    def transpose(self, ct: Any, x: Aval) -> Any:
        return BroadcastTo(x.shape)(restored(ct, self.axes))


def reducing(ufunc: np.ufunc, axes: tuple[int, ...], **options: Any) -> Any:
    """The function that reduces arrays over these axes."""
    return partial(ufunc.reduce, axis=axes, **options)


def restored(x: Any, axes: tuple[int, ...]) -> Any:
    """`x` with the reduced axes inserted, with extent 1."""
    return ExpandDims(axes)(x) if axes else x


@parametric
class ExactSum(Linear, Library):
    """The sum along the last axis, rounded once, as by `math.fsum`. NaN where that raises an
    error."""

    name = "fsum"

    def aval(self, *xs: Aval) -> Aval:
        (x,) = xs
        return x.with_shape(x.shape[:-1])

    def of_rows(self, size: int) -> Any:
        return self

    def evaluate(self, *xs: Any) -> Any:
        (x,) = xs
        return np.apply_along_axis(_rounded_once, -1, x) if x.size else np.zeros(x.shape[:-1])

    def transpose(self, ct: Any, x: Aval) -> Any:
        return BroadcastTo(x.shape)(restored(ct, (ct.ndim,)))


def _rounded_once(x: Any) -> Any:
    try:
        return math.fsum(x)
    except (OverflowError, ValueError):
        return np.nan


@parametric
class Prod(Reduction):
    """The product over `axes`.

    The rule multiplies pairs of halves in a binary tree, and goes back down it. It is exact to
    every order even if factors are zero, where the product divided by a factor is 0 / 0.
    """

    axes: tuple[int, ...]

    name = "prod"
    of_complex = True
    fold = PRODUCT
    typed = True

    def evaluate(self, *xs: Any) -> Any:
        return np.prod(xs[0], axis=self.axes, dtype=xs[0].dtype)

    def for_types(self, *avals: Aval) -> Any:
        (x,) = avals
        return reducing(np.multiply, self.axes, dtype=x.dtype) if x.shape else self.evaluate

    def _gather_axes(self, x: Any) -> tuple[Any, tuple[int, ...]]:
        """`x` with the reduced axes last and joined into one, and the permutation of its axes."""
        kept = tuple(a for a in range(x.ndim) if a not in self.axes)
        order = (*kept, *self.axes)
        moved = Transpose(order)(x)
        count = int(np.prod([x.shape[a] for a in self.axes], dtype=int))
        return Reshape((*moved.shape[: len(kept)], count))(moved), order

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        (x,) = xs
        if x.size == 0:
            return (None,)
        level, order = self._gather_axes(x)
        levels = []
        while level.shape[-1] > 1:
            half = level.shape[-1] // 2
            left, right, rest = _halves(level, half)
            levels.append((left, right))
            level = left * right
            if rest is not None:
                level = Concatenate(level.ndim - 1)(level, rest)
        grown = ExpandDims((ct.ndim,))(ct)
        for left, right in reversed(levels):
            half = left.shape[-1]
            pairs, _, rest = _halves(grown, half, single=True)
            parts = [pairs * right, pairs * left] + ([] if rest is None else [rest])
            grown = Concatenate(grown.ndim - 1)(*parts)
        moved = Reshape(tuple(x.shape[a] for a in order))(grown)
        return (Transpose(tuple(int(a) for a in np.argsort(order)))(moved),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        if ts[0] is None or xs[0].size == 0:
            return None
        level, _ = self._gather_axes(xs[0])
        tangent, _ = self._gather_axes(ts[0])
        while level.shape[-1] > 1:
            half = level.shape[-1] // 2
            left, right, rest = _halves(level, half)
            t_left, t_right, t_rest = _halves(tangent, half)
            level, tangent = left * right, t_left * right + left * t_right
            if rest is not None:
                level = Concatenate(level.ndim - 1)(level, rest)
                tangent = Concatenate(tangent.ndim - 1)(tangent, t_rest)
        return Reshape(out.shape)(tangent)


def _halves(x: Any, half: int, single: bool = False) -> tuple[Any, Any, Any]:
    """The first `half` elements along the last axis, the next `half` (None if `single`), and the
    rest, or None."""

    def part(start: int, count: int) -> Any:
        index = (*[Slice(0, n) for n in x.shape[:-1]], Slice(start, count))
        return GetItem(index)(x)

    used = half if single else 2 * half
    rest = x.shape[-1] - used
    return part(0, half), None if single else part(half, half), part(used, rest) if rest else None


class _Logical(Underived, Reduction):
    """any and all: booleans, without derivative."""

    def aval(self, *xs: Aval) -> Aval:
        return Aval(self.kept(xs[0]), np.dtype(bool))


@parametric
class Any_(_Logical):
    """Whether any element over `axes` is true."""

    axes: tuple[int, ...]

    name = "any"
    fold = ANY

    def evaluate(self, *xs: Any) -> Any:
        return np.any(xs[0], axis=self.axes)


@parametric
class All(_Logical):
    """Whether all elements over `axes` are true."""

    axes: tuple[int, ...]

    name = "all"
    fold = ALL

    def evaluate(self, *xs: Any) -> Any:
        return np.all(xs[0], axis=self.axes)


class _ArgExtremum(Underived, Extremal):
    """argmax and argmin along one axis: the first of equal elements; NaN wins; no derivative."""

    axis: int

    def aval(self, *xs: Aval) -> Aval:
        (x,) = xs
        if x.shape[self.axis] == 0:
            raise ValueError(f"attempt to get {self.name} of an empty sequence: {x}")
        shape = (*x.shape[: self.axis], *x.shape[self.axis + 1 :])
        return Aval(shape, np.dtype(np.intp))


@parametric
class ArgMax(_ArgExtremum):
    """Where the largest element along `axis` is."""

    axis: int

    name = "argmax"
    better = ">"

    def evaluate(self, *xs: Any) -> Any:
        return np.argmax(xs[0], axis=self.axis)


@parametric
class ArgMin(_ArgExtremum):
    """Where the smallest element along `axis` is."""

    axis: int

    name = "argmin"
    better = "<"

    def evaluate(self, *xs: Any) -> Any:
        return np.argmin(xs[0], axis=self.axis)


# ---- running sums and products


@parametric
class CumSum(Linear, Running):
    """The running sum along `axis`; `reverse` runs from the end."""

    axis: int
    reverse: bool = False

    name = "cumsum"
    of_complex = True
    fold = ADD

    def evaluate(self, *xs: Any) -> Any:
        (x,) = xs
        if self.reverse:
            return np.flip(np.cumsum(np.flip(x, self.axis), self.axis, x.dtype), self.axis)
        return np.cumsum(x, self.axis, x.dtype)

    def transpose(self, ct: Any, x: Aval) -> Any:
        return CumSum(self.axis, not self.reverse)(ct)


@parametric
class CumProd(Running):
    """The running product along `axis`.

    The derivative by x[j] is the product of the factors before x[j], times the sum over k of ct[k]
    and the factors between: a linear recurrence from the end. Nothing is divided, so it is exact if
    factors are zero.
    """

    axis: int

    name = "cumprod"
    of_complex = True
    fold = PRODUCT

    def evaluate(self, *xs: Any) -> Any:
        return np.cumprod(xs[0], self.axis, xs[0].dtype)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        (x,), axis = xs, self.axis
        if x.size == 0:
            return (ct,)
        sums = CumLinear(axis, reverse=True)(_but_first(x, axis), ct)
        return (_times_before(sums, out, axis),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        (t,), (x,), axis = ts, xs, self.axis
        if t is None or x.size == 0:
            return t
        return CumLinear(axis)(_but_first(x, axis), _times_before(t, out, axis))


@parametric
class CumLinear(Running):
    """The linear recurrence `out[k + 1] = x[k + 1] + factors[k] out[k]` along `axis`, from
    `out[0] = x[0]` on; `reverse`: `out[k] = x[k] + factors[k] out[k + 1]`, from the end.

    Its transpose is the recurrence in the other direction.
    """

    axis: int
    reverse: bool = False

    name = "cumlinear"
    of_complex = True
    fold = ADD

    def aval(self, *xs: Aval) -> Aval:
        factors, x = xs
        shape = list(x.shape)
        shape[self.axis] = max(0, shape[self.axis] - 1)
        if factors.shape != tuple(shape):
            raise ValueError(f"cumlinear: {factors} aren't the factors between entries of {x}")
        return x.with_shape(x.shape)

    def evaluate(self, *xs: Any) -> Any:
        factors, terms = (np.moveaxis(x, self.axis, 0) for x in xs)
        if self.reverse:
            factors, terms = factors[::-1], terms[::-1]
        if terms.ndim == 1:  # Python's numbers are ten times as fast as NumPy's
            entries = zip([0.0, *factors.tolist()], terms.tolist(), strict=False)
            steps = itertools.accumulate(entries, lambda s, e: (0.0, e[1] + e[0] * s[1]))
            out = np.array([s for _, s in steps], terms.dtype)
        else:
            out = np.array(terms)
            for k in range(1, len(out)):
                out[k] += factors[k - 1] * out[k - 1]
        return np.moveaxis(out[::-1] if self.reverse else out, 0, self.axis)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return []

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        (factors, _), axis = xs, self.axis
        ct_x = CumLinear(axis, not self.reverse)(factors, ct)
        ends = (_but_last(ct_x, axis), _but_first(out, axis))
        starts = (_but_first(ct_x, axis), _but_last(out, axis))
        after, before = ends if self.reverse else starts
        return after * before, ct_x

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        (t_factors, t_x), (factors, x), axis = ts, xs, self.axis
        if t_factors is not None:
            one = list(x.shape)
            before = _but_first(out, axis) if self.reverse else _but_last(out, axis)
            one[axis] = min(1, x.shape[axis])
            parts = [zeros(x, tuple(one)), t_factors * before]
            own = Concatenate(axis)(*(reversed(parts) if self.reverse else parts))
            t_x = own if t_x is None else t_x + own
        return None if t_x is None else CumLinear(axis, self.reverse)(factors, t_x)


def _along(x: Any, axis: int, start: int, count: int) -> Any:
    """The `count` entries from `start` on along an axis."""
    index = [Slice(0, n) for n in x.shape]
    index[axis] = Slice(start, count)
    return GetItem(tuple(index))(x)


def _but_first(x: Any, axis: int) -> Any:
    n = x.shape[axis]
    return _along(x, axis, min(1, n), max(0, n - 1))


def _but_last(x: Any, axis: int) -> Any:
    return _along(x, axis, 0, max(0, x.shape[axis] - 1))


def _times_before(x: Any, out: Any, axis: int) -> Any:
    """The entries of `x` times those of `out` one position before. The first entry is unchanged."""
    rest = _but_first(x, axis) * _but_last(out, axis)
    return Concatenate(axis)(_along(x, axis, 0, 1), rest)
