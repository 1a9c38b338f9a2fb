"""Reductions with axis, keepdims, dtype, where, initial and out, as NumPy has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from tapegrad.errors import UnsupportedError
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.reductions import (
    All,
    Any_,
    ArgMax,
    ArgMin,
    CumProd,
    CumSum,
    Max,
    Min,
    Prod,
    Sum,
)
from tapegrad.primitives.views import ExpandDims
from tapegrad.tracing.frontend.indexing import as_tracer
from tapegrad.tracing.frontend.shaping import ravel
from tapegrad.tracing.frontend.ufuncs import cast, store
from tapegrad.tracing.source import at_line
from tapegrad.tracing.tracer import Tracer

_MISSING = np._NoValue  # type: ignore[attr-defined]


def _axes(x: Any, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    if isinstance(axis, list):
        axis = tuple(axis)
    return tuple(sorted(normalize_axis_tuple(axis, x.ndim)))


def _finish(out: Any, axes: tuple[int, ...], keepdims: Any, target: Any) -> Any:
    """keepdims and out=, which every reduction takes."""
    if keepdims is not _MISSING and keepdims and axes:
        out = ExpandDims(axes)(out)
    return out if target is None else store(target, out)


def _selected(x: Any, where: Any, neutral: Any) -> Any:
    """`x` with the elements outside `where=` replaced by the operation's neutral element."""
    if where is _MISSING or where is True:
        return x
    return np.where(where, x, neutral)


def _whole_dtype(x: Any, dtype: Any) -> np.dtype:
    """What np.sum and np.prod accumulate in: small integers and booleans widen."""
    if dtype is not None:
        return np.dtype(dtype)
    if x.dtype.kind == "b" or (x.dtype.kind == "i" and x.dtype.itemsize < 8):
        return np.dtype(np.int64)
    if x.dtype.kind == "u" and x.dtype.itemsize < 8:
        return np.dtype(np.uint64)
    return x.dtype


def _fold(primitive: Any, neutral: Any, combine: Callable[..., Any]) -> Callable[..., Any]:
    """sum and prod."""

    def reduce(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _MISSING,
        initial: Any = _MISSING, where: Any = _MISSING,
    ) -> Any:
        x = cast(a, _whole_dtype(a, dtype))
        axes = _axes(x, axis)
        result = primitive(axes)(_selected(x, where, neutral)) if axes else x + 0
        if initial is not _MISSING and initial is not None:
            result = combine(result, initial)
        return _finish(result, axes, keepdims, out)

    return reduce


sum = _fold(Sum, 0, np.add)
prod = _fold(Prod, 1, np.multiply)


def _extremum(primitive: Any, neutral: float, combine: Callable[..., Any]) -> Callable[..., Any]:
    """max and min."""

    def reduce(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = _MISSING,
        initial: Any = _MISSING, where: Any = _MISSING,
    ) -> Any:
        axes = _axes(a, axis)
        if where is not _MISSING and where is not True and initial is _MISSING:
            raise ValueError("reduction operation does not have an identity, so to use a where "
                             "mask one has to specify 'initial'")
        x = _selected(a, where, initial if where is not _MISSING else neutral)
        result = primitive(axes)(x) if axes else ew.copy(x)
        if initial is not _MISSING:
            result = combine(result, initial)
        return _finish(result, axes, keepdims, out)

    return reduce


max = _extremum(Max, -np.inf, np.maximum)
min = _extremum(Min, np.inf, np.minimum)


def _logical(primitive: Any, neutral: bool) -> Callable[..., Any]:
    def reduce(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = _MISSING, *,
        where: Any = _MISSING,
    ) -> Any:
        x = a if a.dtype == np.bool_ else a != 0
        axes = _axes(x, axis)
        result = primitive(axes)(_selected(x, where, neutral)) if axes else x
        return _finish(result, axes, keepdims, out)

    return reduce


any = _logical(Any_, False)
all = _logical(All, True)


def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _MISSING, *,
    where: Any = _MISSING,
) -> Any:
    """np.mean."""
    if dtype is None and a.dtype.kind in "iub":
        dtype = np.float64
    total = sum(a, axis, dtype, None, keepdims, _MISSING, where)
    result = total / _count(a, axis, where, keepdims)
    return result if out is None else store(out, result)


def _count(a: Any, axis: Any, where: Any, keepdims: Any = False) -> Any:
    """How many elements go into each result."""
    if where is not _MISSING and where is not True:
        mask = np.broadcast_to(where, a.shape)
        keep = keepdims is not _MISSING and bool(keepdims)
        return np.sum(mask, axis=axis, keepdims=keep)
    return int(np.prod([a.shape[k] for k in _axes(a, axis)], dtype=int))


def var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
    keepdims: Any = _MISSING, *, where: Any = _MISSING, mean: Any = _MISSING,
    correction: Any = _MISSING,
) -> Any:
    """np.var."""
    if correction is not _MISSING:
        ddof = correction
    if dtype is None and a.dtype.kind in "iub":
        dtype = np.float64
    x = a if dtype is None else cast(a, np.dtype(dtype))
    center = _mean(x, axis, None, None, True, where=where) if mean is _MISSING else mean
    deviation = x - center
    total = sum(np.square(deviation), axis, None, None, keepdims, _MISSING, where)
    count = _count(a, axis, where, keepdims)
    result = total / np.maximum(count - ddof, 0)
    return result if out is None else store(out, result)


_mean = mean


def std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
    keepdims: Any = _MISSING, *, where: Any = _MISSING, mean: Any = _MISSING,
    correction: Any = _MISSING,
) -> Any:
    """np.std."""
    result = np.sqrt(
        var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction)
    )
    return result if out is None else store(out, result)


def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *,
    keepdims: Any = _MISSING,
) -> Any:
    """np.average."""
    if weights is None:
        return mean(as_tracer(a, weights), axis, keepdims=keepdims)
    if np.shape(weights) != np.shape(a):
        shape = [1] * np.ndim(a)
        for k, n in zip(_axes(a, axis), np.shape(weights), strict=True):
            shape[k] = n
        weights = np.reshape(weights, shape)
    keep = keepdims is not _MISSING and bool(keepdims)
    scale = np.sum(np.broadcast_to(weights, np.shape(a)), axis=axis, keepdims=keep)
    result = np.sum(np.multiply(a, weights), axis=axis, keepdims=keep) / scale
    return (result, scale) if returned else result


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _MISSING) -> Any:
    """np.ptp."""
    return _finish(max(a, axis, None, keepdims) - min(a, axis, None, keepdims), (), False, out)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """np.count_nonzero."""
    return sum(cast(a if a.dtype == np.bool_ else a != 0, np.dtype(np.intp)), axis, None, None, keepdims)


def _arg(primitive: Any) -> Callable[..., Any]:
    def reduce(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _MISSING) -> Any:
        keep = keepdims is not _MISSING and bool(keepdims)
        if axis is None:
            result = primitive(0)(ravel(a))
            return _finish(result, tuple(range(a.ndim)), keep, out)
        axis = normalize_axis_index(axis, a.ndim)
        return _finish(primitive(axis)(a), (axis,), keep, out)

    return reduce


argmax = _arg(ArgMax)
argmin = _arg(ArgMin)


def _running(primitive: Any) -> Callable[..., Any]:
    def accumulate(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        x = cast(a, _whole_dtype(a, dtype))
        if axis is None:
            x, axis = ravel(x), 0
        result = primitive(normalize_axis_index(axis, x.ndim))(x)
        return result if out is None else store(out, result)

    return accumulate


cumsum = _running(CumSum)
cumprod = _running(CumProd)


def diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = _MISSING, append: Any = _MISSING
) -> Any:
    """np.diff."""
    axis = normalize_axis_index(axis, a.ndim)
    parts = [p for p in (prepend, a, append) if p is not _MISSING]
    if len(parts) > 1:
        def widen(p: Any) -> Any:
            if np.ndim(p):
                return p
            shape = list(a.shape)
            shape[axis] = 1
            return np.broadcast_to(p, shape)

        a = np.concatenate([widen(p) for p in parts], axis)
    before = (slice(None),) * axis
    for _ in range(n):
        later, earlier = a[(*before, slice(1, None))], a[(*before, slice(None, -1))]
        a = np.not_equal(later, earlier) if a.dtype == np.bool_ else later - earlier
    return a


# ---- methods of ufuncs


_REDUCE: dict[np.ufunc, Callable[..., Any]] = {
    np.add: sum,
    np.multiply: prod,
    np.maximum: max,
    np.minimum: min,
    np.logical_and: all,
    np.logical_or: any,
}
_ACCUMULATE: dict[np.ufunc, Callable[..., Any]] = {np.add: cumsum, np.multiply: cumprod}


def ufunc_method(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """`ufunc.reduce`, `.accumulate`, `.outer` and `.at`."""
    name = f"np.{ufunc.__name__}.{method}"
    if method == "reduce" and ufunc in _REDUCE:
        (x,) = inputs
        given = {k: v for k, v in kwargs.items() if v is not None or k == "axis"}
        given.setdefault("axis", 0)
        return _REDUCE[ufunc](x, **given)
    if method == "accumulate" and ufunc in _ACCUMULATE:
        (x,) = inputs
        return _ACCUMULATE[ufunc](x, kwargs.get("axis", 0), kwargs.get("dtype"))
    if method == "outer":
        x, y = inputs
        x = np.asarray(x) if not isinstance(x, Tracer) else x
        return ufunc(np.reshape(x, np.shape(x) + (1,) * np.ndim(y)), y, **kwargs)
    if method == "at":
        from tapegrad.tracing.frontend.scattering import ufunc_at

        return ufunc_at(ufunc, *inputs)
    raise UnsupportedError(f"{name} isn't supported on traced arrays{at_line()}")
