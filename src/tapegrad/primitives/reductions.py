"""Reductions over axes, and the running sums and products along one axis.

`axes` disappear from the shape; the front end restores them for `keepdims`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegrad.ir.fold import ADD, ALL, ANY, PRODUCT, SUM
from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives.base import Slice, parametric
from tapegrad.primitives.kinds import Extremal, Linear, Reduction, Running
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

# More float32 numbers than these are summed in float64. As many are added one by one inside NumPy's
# pairwise sums too; along other axes than the last NumPy adds any number of them one by one.
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

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_shape(self.kept(xs[0]))

    def evaluate(self, *xs: Any) -> Any:
        (x,) = xs
        if self.is_wide(x):
            return np.sum(x, axis=self.axes, dtype=np.float64).astype(np.float32)
        if type(x) is np.ndarray:  # what np.sum comes to
            return np.add.reduce(x, self.axes, x.dtype)
        return np.sum(x, axis=self.axes, dtype=x.dtype)

    def is_wide(self, x: Any) -> bool:
        """Whether the sum runs in float64 though its result is float32."""
        return x.dtype == np.float32 and math.prod(x.shape[a] for a in self.axes) > LONG_SUM

    def transpose(self, ct: Any, x: Aval) -> Any:
        return BroadcastTo(x.shape)(restored(ct, self.axes))


def restored(x: Any, axes: tuple[int, ...]) -> Any:
    """The reduced axes put back, with extent 1."""
    return ExpandDims(axes)(x) if axes else x


@parametric
class Prod(Reduction):
    """The product over `axes`.

    The rule multiplies in a binary tree, pairs of halves at a time, and goes back down it: exact
    to every order even where factors are zero, which dividing the product by a factor isn't.
    """

    axes: tuple[int, ...]

    name = "prod"
    of_complex = True
    fold = PRODUCT
    typed = True

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_shape(self.kept(xs[0]))

    def evaluate(self, *xs: Any) -> Any:
        return np.prod(xs[0], axis=self.axes, dtype=xs[0].dtype)

    def _gather_axes(self, x: Any) -> tuple[Any, tuple[int, ...]]:
        """The reduced axes moved last and made one; and the permutation that did it."""
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
    """The first `half` along the last axis, the second, and what is left over (or None)."""

    def part(start: int, count: int) -> Any:
        index = (*[Slice(0, n) for n in x.shape[:-1]], Slice(start, count))
        return GetItem(index)(x)

    used = half if single else 2 * half
    rest = x.shape[-1] - used
    return part(0, half), None if single else part(half, half), part(used, rest) if rest else None


class _Logical(Reduction):
    """any and all: booleans, without derivative."""

    def aval(self, *xs: Aval) -> Aval:
        return Aval(self.kept(xs[0]), np.dtype(bool))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return (None,)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None


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


class _ArgExtremum(Extremal):
    """argmax and argmin along one axis: the first of several; NaN wins; no derivative."""

    axis: int

    def aval(self, *xs: Aval) -> Aval:
        (x,) = xs
        if x.shape[self.axis] == 0:
            raise ValueError(f"attempt to get {self.name} of an empty sequence: {x}")
        shape = (*x.shape[: self.axis], *x.shape[self.axis + 1 :])
        return Aval(shape, np.dtype(np.intp))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return (None,)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None


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

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_shape(xs[0].shape)

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

    The rule doubles the reach of each product in log2(n) steps and goes back through them: exact
    where factors are zero.
    """

    axis: int

    name = "cumprod"
    of_complex = True
    fold = PRODUCT

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_shape(xs[0].shape)

    def evaluate(self, *xs: Any) -> Any:
        return np.cumprod(xs[0], self.axis, xs[0].dtype)

    def _part(self, x: Any, start: int, count: int) -> Any:
        index = [Slice(0, n) for n in x.shape]
        index[self.axis] = Slice(start, count)
        return GetItem(tuple(index))(x)

    def _steps(self, x: Any) -> list[tuple[Any, Any, int]]:
        """(earlier, later, reach) of each doubling step, first to last."""
        n, reach, steps = x.shape[self.axis], 1, []
        while reach < n:
            earlier = self._part(x, 0, n - reach)
            later = self._part(x, reach, n - reach)
            steps.append((earlier, later, reach))
            x = Concatenate(self.axis)(self._part(x, 0, reach), earlier * later)
            reach *= 2
        return steps

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        n = out.shape[self.axis]
        for earlier, later, reach in reversed(self._steps(xs[0])):
            head = self._part(ct, 0, reach)
            tail = self._part(ct, reach, n - reach)
            to_later = Concatenate(self.axis)(head, tail * earlier)
            to_earlier = Concatenate(self.axis)(tail * later, zeros(ct, head.shape))
            ct = to_later + to_earlier
        return (ct,)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        if ts[0] is None:
            return None
        n, t = out.shape[self.axis], ts[0]
        for earlier, later, reach in self._steps(xs[0]):
            t_earlier = self._part(t, 0, n - reach)
            t_later = self._part(t, reach, n - reach)
            tail = t_earlier * later + earlier * t_later
            t = Concatenate(self.axis)(self._part(t, 0, reach), tail)
        return t
