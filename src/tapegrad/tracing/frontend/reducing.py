"""Reductions with axis, keepdims, dtype, where, initial and out, as NumPy has them."""

from __future__ import annotations

import warnings
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
from tapegrad.tracing.frontend.memory import scalar
from tapegrad.tracing.frontend.operands import as_tracer, cast, promoted, store
from tapegrad.tracing.frontend.shaping import at_least_a_vector, ravel
from tapegrad.tracing.source import at_line
from tapegrad.tracing.tracer import Tracer

_MISSING = np._NoValue


def _axes(x: Any, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    if x.ndim == 0 and axis in (0, -1):
        return ()  # NumPy lets scalars pass as vectors here
    if isinstance(axis, list):
        axis = tuple(axis)
    return tuple(sorted(normalize_axis_tuple(axis, x.ndim)))


def _finish(out: Any, axes: tuple[int, ...], keepdims: Any, target: Any) -> Any:
    """keepdims and out=, which every reduction takes."""
    if keepdims is not _MISSING and keepdims and axes:
        out = ExpandDims(axes)(out)
    return scalar(out) if target is None else store(target, out)


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


def _like(initial: Any, result: Any) -> Any:
    """`initial=` in the dtype of the result, which it never widens."""
    if isinstance(initial, Tracer):
        return cast(initial, result.dtype)
    return np.asarray(initial).astype(result.dtype)[()]


def _fold(primitive: Any, neutral: Any, combine: Callable[..., Any]) -> Callable[..., Any]:
    """sum and prod."""

    def reduce(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = _MISSING,
        initial: Any = _MISSING,
        where: Any = _MISSING,
    ) -> Any:
        a = as_tracer(a, where, initial)
        x = cast(a, _whole_dtype(a, dtype))
        axes = _axes(x, axis)
        x = _selected(x, where, neutral)
        result = primitive(axes)(x) if axes else ew.copy(x)
        if initial is not _MISSING and initial is not None:
            result = combine(result, _like(initial, result))
        return _finish(result, axes, keepdims, out)

    return reduce


sum = _fold(Sum, 0, np.add)
prod = _fold(Prod, 1, np.multiply)


def _logical(primitive: Any, neutral: bool) -> Callable[..., Any]:
    def reduce(
        a: Any,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = _MISSING,
        *,
        where: Any = _MISSING,
    ) -> Any:
        x = a if a.dtype == np.bool_ else a != 0
        axes = _axes(x, axis)
        result = primitive(axes)(_selected(x, where, neutral)) if axes else x
        return _finish(result, axes, keepdims, out)

    return reduce


any_ = _logical(Any_, False)
all_ = _logical(All, True)


def _extremum(
    primitive: Any, of_booleans: Callable[..., Any], combine: Callable[..., Any]
) -> Callable[..., Any]:
    """max and min."""

    def reduce(
        a: Any,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = _MISSING,
        initial: Any = _MISSING,
        where: Any = _MISSING,
    ) -> Any:
        axes = _axes(a, axis)
        if where is not _MISSING and where is not True:
            if initial is _MISSING:
                raise ValueError(
                    "reduction operation does not have an identity, so to use a where mask one has "
                    "to specify 'initial'"
                )
            a = np.where(where, a, _like(initial, a))
        if a.dtype == np.bool_:
            result = of_booleans(a, axis)
        elif initial is not _MISSING and 0 in [a.shape[k] for k in axes]:
            kept = [n for k, n in enumerate(a.shape) if k not in axes]
            return _finish(np.full_like(a, initial, shape=kept), axes, keepdims, out)
        else:
            result = primitive(axes)(a) if axes else ew.copy(a)
        if initial is not _MISSING:
            result = combine(result, _like(initial, result))
        return _finish(result, axes, keepdims, out)

    return reduce


max = _extremum(Max, any_, np.maximum)
min = _extremum(Min, all_, np.minimum)


def mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = _MISSING,
    *,
    where: Any = _MISSING,
) -> Any:
    """np.mean."""
    a = as_tracer(a, where)
    if dtype is None and a.dtype.kind in "iub":
        dtype = np.float64
    total = sum(a, axis, dtype, None, keepdims, _MISSING, where)
    count = _count(a, axis, where, keepdims, total.dtype)
    if not isinstance(count, Tracer) and count == 0:
        warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=4)
    result = total / count
    return result if out is None else store(out, result)


def _count(a: Any, axis: Any, where: Any, keepdims: Any, dtype: np.dtype) -> Any:
    """How many elements go into each result: a number, or an array of this dtype."""
    if where is not _MISSING and where is not True:
        mask = np.broadcast_to(as_tracer(where, a), a.shape)
        keep = keepdims is not _MISSING and bool(keepdims)
        return cast(np.sum(mask, axis=axis, keepdims=keep), dtype)
    return int(np.prod([a.shape[k] for k in _axes(a, axis)], dtype=int))


def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = _MISSING,
    *,
    where: Any = _MISSING,
    mean: Any = _MISSING,
    correction: Any = _MISSING,
) -> Any:
    """np.var."""
    a = as_tracer(a, where, mean)
    if correction is not _MISSING:
        ddof = correction
    if dtype is None and a.dtype.kind in "iub":
        dtype = np.float64
    x = a if dtype is None else cast(a, np.dtype(dtype))
    center = _mean(x, axis, None, None, True, where=where) if mean is _MISSING else mean
    deviation = x - center
    total = sum(np.square(deviation), axis, None, None, keepdims, _MISSING, where)
    freedom = _count(a, axis, where, keepdims, total.dtype) - ddof
    if isinstance(freedom, Tracer):
        freedom = np.maximum(freedom, 0)
    elif freedom <= 0:
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=4)
        freedom = 0
    result = total / freedom
    return result if out is None else store(out, result)


_mean = mean


def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = _MISSING,
    *,
    where: Any = _MISSING,
    mean: Any = _MISSING,
    correction: Any = _MISSING,
) -> Any:
    """np.std."""
    result = np.sqrt(
        var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction)
    )
    return result if out is None else store(out, result)


def average(
    a: Any,
    axis: Any = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: Any = _MISSING,
) -> Any:
    """np.average."""
    a, w = as_tracer(a, weights), weights
    if w is None:
        result = mean(a, axis, keepdims=keepdims)
        count = _count(a, axis, _MISSING, keepdims, result.dtype)
        return (result, np.full_like(result, count)) if returned else result
    w = as_tracer(w, a)
    if w.shape != a.shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        axes = _axes(a, axis)
        if w.shape != tuple(a.shape[k] for k in axes):
            raise ValueError("Shape of weights must be consistent with shape of a along axis.")
        w = np.reshape(w, [n if k in axes else 1 for k, n in enumerate(a.shape)])
    dtype = np.result_type(a.dtype, w.dtype)
    if a.dtype.kind in "iub":
        dtype = np.result_type(dtype, np.float64)
    scale = sum(np.broadcast_to(w, a.shape), axis, dtype, None, keepdims)
    result = sum(cast(a, dtype) * cast(w, dtype), axis, None, None, keepdims) / scale
    return (result, scale) if returned else result


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _MISSING) -> Any:
    """np.ptp."""
    return _finish(max(a, axis, None, keepdims) - min(a, axis, None, keepdims), (), False, out)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """np.count_nonzero."""
    return sum(
        cast(a if a.dtype == np.bool_ else a != 0, np.dtype(np.intp)), axis, None, None, keepdims
    )


def _arg(primitive: Any) -> Callable[..., Any]:
    def reduce(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _MISSING) -> Any:
        keep = keepdims is not _MISSING and bool(keepdims)
        if axis is None:
            result = primitive(0)(ravel(a))
            return _finish(result, tuple(range(a.ndim)), keep, out)
        if a.ndim == 0 and axis in (0, -1):  # NumPy takes a scalar for a vector of one element
            return reduce(a, None, out, keepdims=keepdims)
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
        x = at_least_a_vector(x)
        result = primitive(normalize_axis_index(axis, x.ndim))(x)
        return result if out is None else store(out, result)

    return accumulate


cumsum = _running(CumSum)
cumprod = _running(CumProd)


# ---- NaN left out


def _filled(a: Any, value: Any) -> tuple[Any, Any]:
    """`a` with its NaN replaced by `value`, and where there was none."""
    there = np.logical_not(np.isnan(a))
    return np.where(there, a, value), there


def nansum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = _MISSING,
    initial: Any = _MISSING,
    where: Any = _MISSING,
) -> Any:
    """np.nansum."""
    return sum(_filled(a, 0)[0], axis, dtype, out, keepdims, initial, where)


def nanprod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = _MISSING,
    initial: Any = _MISSING,
    where: Any = _MISSING,
) -> Any:
    """np.nanprod."""
    return prod(_filled(a, 1)[0], axis, dtype, out, keepdims, initial, where)


def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _MISSING
) -> Any:
    """np.nanmean."""
    x, there = _filled(a, 0)
    return mean(x, axis, dtype, out, keepdims, where=there)


def nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = _MISSING,
) -> Any:
    """np.nanvar."""
    x, there = _filled(a, 0)
    return var(x, axis, dtype, out, ddof, keepdims, where=there)


def nanstd(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = _MISSING,
) -> Any:
    """np.nanstd."""
    x, there = _filled(a, 0)
    return std(x, axis, dtype, out, ddof, keepdims, where=there)


def _nan_extremum(extremum: Callable[..., Any], neutral: float) -> Callable[..., Any]:
    """nanmax and nanmin: NaN only where there is nothing else."""

    def reduce(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _MISSING) -> Any:
        if a.dtype.kind != "f":
            return extremum(a, axis, out, keepdims)
        x, there = _filled(a, neutral)
        some = any_(there, axis, None, keepdims)
        result = np.where(some, extremum(x, axis, None, keepdims), np.nan)
        return result if out is None else store(out, result)

    return reduce


nanmax = _nan_extremum(max, -np.inf)
nanmin = _nan_extremum(min, np.inf)


def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """np.nancumsum."""
    return cumsum(_filled(a, 0)[0], axis, dtype, out)


def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """np.nancumprod."""
    return cumprod(_filled(a, 1)[0], axis, dtype, out)


# ---- methods of ufuncs


def _log_sum_exp(x: Any, axis: Any = 0, **kwargs: Any) -> Any:
    """logaddexp.reduce: the largest is taken out, so that nothing overflows. Equal infinities are
    as far apart as equal numbers are."""
    x, _ = promoted(np.logaddexp, x, x)
    top = max(x, axis, None, True, initial=_MISSING if x.size else -np.inf)
    apart = np.where(np.isfinite(top), x - top, np.where(x == top, x.dtype.type(0), -np.inf))
    total = sum(np.exp(apart), axis, None, None, kwargs.get("keepdims", False))
    return np.log(total) + np.reshape(top, total.shape)


def _root_of_squares(x: Any, axis: Any = 0, **kwargs: Any) -> Any:
    """hypot.reduce."""
    return np.sqrt(sum(np.square(x), axis, None, None, kwargs.get("keepdims", False)))


def _doubling(ufunc: np.ufunc) -> Callable[..., Any]:
    """accumulate of an associative function: the reach of each element doubles, step by step."""

    def accumulate(x: Any, axis: int = 0, dtype: Any = None) -> Any:
        axis = normalize_axis_index(axis, x.ndim)
        before, reach = (slice(None),) * axis, 1
        while reach < x.shape[axis]:
            head = x[(*before, slice(None, reach))]
            tail = ufunc(x[(*before, slice(reach, None))], x[(*before, slice(None, -reach))])
            x = np.concatenate([head, tail], axis)
            reach *= 2
        return x

    return accumulate


_REDUCE: dict[np.ufunc, Callable[..., Any]] = {
    np.add: sum,
    np.multiply: prod,
    np.maximum: max,
    np.minimum: min,
    np.logical_and: all_,
    np.logical_or: any_,
    np.logaddexp: _log_sum_exp,
    np.hypot: _root_of_squares,
}
_ACCUMULATE: dict[np.ufunc, Callable[..., Any]] = {
    np.add: cumsum,
    np.multiply: cumprod,
    **{f: _doubling(f) for f in (np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp)},
}


def ufunc_method(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """`ufunc.reduce`, `.accumulate`, `.outer` and `.at`."""
    if method == "reduce" and ufunc in _REDUCE:
        (x,) = inputs
        given = {k: v for k, v in kwargs.items() if v is not None or k == "axis"}
        given.setdefault("axis", 0)
        return _REDUCE[ufunc](as_tracer(x, *kwargs.values()), **given)
    if method == "accumulate" and ufunc in _ACCUMULATE:
        (x,) = inputs
        return _ACCUMULATE[ufunc](x, kwargs.get("axis", 0), kwargs.get("dtype"))
    if method == "outer":
        x, y = inputs
        x = as_tracer(x, y)
        return ufunc(np.reshape(x, x.shape + (1,) * np.ndim(y)), y, **kwargs)
    if method == "at":
        from tapegrad.tracing.frontend.scattering import ufunc_at

        return ufunc_at(ufunc, *inputs)
    raise UnsupportedError(
        f"np.{ufunc.__name__}.{method} isn't supported on traced arrays{at_line()}"
    )
