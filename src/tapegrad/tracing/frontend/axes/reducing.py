"""Reductions with NumPy's axis, keepdims, dtype, where, initial and out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from tapegrad.errors import UnsupportedError
from tapegrad.observe.program.source import at_line
from tapegrad.primitives import complexes
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.extrema import Max, Min
from tapegrad.primitives.reductions import All, Any_, ArgMax, ArgMin, CumProd, CumSum, Prod, Sum
from tapegrad.primitives.stated import Known
from tapegrad.primitives.views import ExpandDims
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import scalar
from tapegrad.tracing.frontend.operands.operands import as_tracer, cast, mask_of, store
from tapegrad.tracing.frontend.shapes.shaping import at_least_a_vector, ravel
from tapegrad.tracing.tracers.tracer import Tracer

_MISSING = np._NoValue


def axes_of(x: Any, axis: Any) -> tuple[int, ...]:
    """The axes of `axis`, as nonnegative numbers."""
    if axis is None:
        return tuple(range(x.ndim))
    if x.ndim == 0 and axis in (0, -1):
        return ()  # NumPy accepts these axes of a scalar
    if isinstance(axis, list):
        axis = tuple(axis)
    return tuple(sorted(normalize_axis_tuple(axis, x.ndim)))


def _check_axes(x: Any, axis: Any, where: Any) -> None:
    """Raise NumPy's error for an axis of a scalar, in functions that don't accept it."""
    if axis is not None and (where is _MISSING or where is True):
        normalize_axis_tuple(axis, x.ndim)


def _finish(out: Any, axes: tuple[int, ...], keepdims: Any, target: Any) -> Any:
    """A reduction's result with `keepdims` and `out=` applied."""
    if keepdims is not _MISSING and keepdims and axes:
        out = ExpandDims(axes)(out)
    return scalar(out) if target is None else store(target, out)


def reduced(primitive: Any, x: Any, axis: Any, keepdims: Any) -> Any:
    """A reduction over NumPy's axes."""
    axes = axes_of(x, axis)
    return _finish(primitive(axes)(x) if axes else ew.copy(x), axes, keepdims, None)


def selected(x: Any, where: Any, neutral: Any) -> Any:
    """`x` with the elements outside `where=` replaced by the neutral element."""
    if where is _MISSING or where is True:
        return x
    if np.ndim(where) > x.ndim:
        raise ValueError("input operand has more dimensions than allowed by the axis remapping")
    return np.where(mask_of(where), x, neutral)


def whole_dtype(x: Any, dtype: Any, out: Any = None) -> np.dtype:
    """The dtype in which np.sum and np.prod accumulate. `out=` takes part in it; without `dtype`
    and `out=`, small integers and booleans widen."""
    if dtype is not None:
        return np.dtype(dtype)
    if out is not None:
        return np.result_type(x.dtype, out.dtype)
    if x.dtype.kind == "b" or (x.dtype.kind == "i" and x.dtype.itemsize < 8):
        return np.dtype(np.int64)
    if x.dtype.kind == "u" and x.dtype.itemsize < 8:
        return np.dtype(np.uint64)
    return x.dtype


def like(initial: Any, result: Any) -> Any:
    """`initial=` in the dtype of the result."""
    if isinstance(initial, Tracer):
        return cast(initial, result.dtype)
    if type(initial) in (int, float) and result.dtype.kind in "iu":
        return result.dtype.type(int(initial))  # NumPy's OverflowError, if it doesn't fit
    return np.asarray(initial).astype(result.dtype)[()]


def _fold(
    primitive: Any, neutral: Any, of_booleans: Callable[..., Any], combine: Callable[..., Any]
) -> Callable[..., Any]:
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
        a = as_tracer(a, where, initial, out)
        x = cast(a, whole_dtype(a, dtype, out))
        axes = axes_of(x, axis)
        signed = combine is np.add and x.dtype.kind == "f" and _may_be_negative_zero(initial)
        x = selected(x, where, -0.0 if signed else neutral)
        if x.dtype == np.bool_:
            result = of_booleans(x, axis)
        else:
            result = primitive(axes)(x) if axes else combine(x, like(neutral, x))
        if signed:
            result = of_negative_zeros(result, all(np.signbit(x), axis=axes))
        if initial is not _MISSING and initial is not None:
            result = combine(result, like(initial, result))
        return _finish(result, axes, keepdims, out)

    return reduce


def _may_be_negative_zero(initial: Any) -> bool:
    if isinstance(initial, Tracer):
        return True
    return initial is not _MISSING and initial is not None and _is_negative_zero(initial)


def _is_negative_zero(x: Any) -> bool:
    return bool(np.all(np.equal(x, 0)) and np.all(np.signbit(np.asarray(x, float))))


def of_negative_zeros(total: Any, negative: Any) -> Any:
    """A sum with NumPy's sign of zero: -0.0 if all terms are (`negative`), where NumPy's sum starts
    with the first term instead of 0.0. The derivative is that of `total`."""
    value = np.where(negative & (total == 0), total.dtype.type(-0.0), total)
    return Known()(value, total)


def _logical(primitive: Any, neutral: bool, combine: Callable[..., Any]) -> Callable[..., Any]:
    """any and all."""

    def reduce(
        a: Any,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = _MISSING,
        *,
        where: Any = _MISSING,
        initial: Any = _MISSING,
    ) -> Any:
        a = as_tracer(a, where, initial, out)
        x = a if a.dtype == np.bool_ else a != 0
        axes = axes_of(x, axis)
        x = selected(x, where, neutral)
        result = primitive(axes)(x) if axes else ew.copy(x)
        if initial is not _MISSING:  # from ufunc.reduce
            result = combine(result, initial)
        return _finish(result, axes, keepdims, out)

    return reduce


any = stands_for(np, np.ndarray, name="any", of_complex=True)(_logical(Any_, False, np.logical_or))
all = stands_for(np, np.ndarray, name="all", of_complex=True)(_logical(All, True, np.logical_and))
sum = stands_for(np, np.ndarray, name="sum", of_complex=True)(_fold(Sum, 0, any, np.add))
prod = stands_for(np, np.ndarray, name="prod", of_complex=True)(_fold(Prod, 1, all, np.multiply))


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
        initial = _MISSING if initial is None else initial
        a = as_tracer(a, where, initial, out)
        axes = axes_of(a, axis)
        if where is not _MISSING and where is not True:
            if initial is _MISSING:
                raise ValueError(
                    "reduction operation does not have an identity, so to use a where mask one has "
                    "to specify 'initial'"
                )
            a = np.where(mask_of(where), a, like(initial, a))
        if a.dtype == np.bool_:
            if initial is _MISSING and 0 in [a.shape[k] for k in axes]:
                raise ValueError("zero-size array to reduction operation which has no identity")
            result = of_booleans(a, axis)
        elif initial is not _MISSING and 0 in [a.shape[k] for k in axes]:
            kept = [n for k, n in enumerate(a.shape) if k not in axes]
            return _finish(np.full_like(a, initial, shape=kept), axes, keepdims, out)
        else:
            result = primitive(axes)(a) if axes else ew.copy(a)
        if initial is not _MISSING:
            result = combine(result, like(initial, result))
        return _finish(result, axes, keepdims, out)

    return reduce


max = stands_for(np, np.ndarray, name="max amax")(_extremum(Max, any, np.maximum))
min = stands_for(np, np.ndarray, name="min amin")(_extremum(Min, all, np.minimum))


@stands_for(np, np.ndarray, of_complex=True)
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
    a = as_tracer(a, where, out)
    if dtype is None and a.dtype.kind in "iub":
        dtype = np.float64
    _check_real("mean", dtype)
    _check_axes(a, axis, where)
    total = sum(a, axis, whole_dtype(a, dtype, out), None, keepdims, _MISSING, where)
    count = count_of(a, axis, where, keepdims, total.dtype)
    if not isinstance(count, Tracer) and count == 0:
        warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=4)
    result = total / count
    return result if out is None else store(out, result)


def _check_real(name: str, dtype: Any) -> None:
    if dtype is not None and np.dtype(dtype).kind != "f":
        raise UnsupportedError(
            f"np.{name} with dtype={np.dtype(dtype)} isn't supported{at_line()}: NumPy rounds on "
            "the way. Use x.astype before, or on the result"
        )


def count_of(a: Any, axis: Any, where: Any, keepdims: Any, dtype: np.dtype) -> Any:
    """The number of elements in each result: a number, or an array of this dtype."""
    if where is not _MISSING and where is not True:
        mask_of(where)  # raises NumPy's error; numbers in a list stay numbers in the count
        mask = np.broadcast_to(as_tracer(where, a), a.shape)
        mask = cast(mask, np.dtype(np.intp)) if mask.dtype.kind == "f" else mask
        keep = keepdims is not _MISSING and bool(keepdims)
        return cast(np.sum(mask, axis=axis, keepdims=keep), dtype)
    return int(np.prod([a.shape[k] for k in axes_of(a, axis)], dtype=int))


@stands_for(np, np.ndarray, of_complex=True)
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
    a = as_tracer(a, where, mean, out)
    ddof = freedom_lost(ddof, correction)
    _check_axes(a, axis, where)
    if dtype is None and a.dtype.kind in "iub":
        dtype = np.float64
    _check_real("var", dtype)
    x = a if dtype is None and out is None else cast(a, whole_dtype(a, dtype, out))
    center = (
        _mean(x, axis, None, None, True, where=where) if mean is _MISSING or mean is None else mean
    )
    deviation = x - center
    total = sum(squared_size(deviation), axis, None, None, keepdims, _MISSING, where)
    freedom = count_of(a, axis, where, keepdims, total.dtype) - ddof
    if isinstance(freedom, Tracer):
        freedom = np.maximum(freedom, 0)
    elif freedom <= 0:
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=4)
        freedom = 0
    result = total / freedom
    return result if out is None else store(out, result)


_mean = mean


def squared_size(x: Any) -> Any:
    """|x|^2; for complex numbers, the sum of the squares of their parts."""
    if x.dtype.kind == "c":
        return np.square(complexes.real(x)) + np.square(complexes.imag(x))
    return np.square(x)


def freedom_lost(ddof: Any, correction: Any) -> Any:
    """`ddof`, or `correction`, its name in the array API."""
    if correction is _MISSING:
        return ddof
    if not isinstance(ddof, Tracer) and ddof != 0:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    return correction


def root_of(variance: Callable[..., Any]) -> Callable[..., Any]:
    """The function for the standard deviation, from one for the variance."""

    def deviation(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        result = np.sqrt(variance(a, axis, dtype, None, *args, **kwargs))
        return result if out is None else store(out, result)

    return deviation


std = stands_for(np, np.ndarray, name="std", of_complex=True)(root_of(var))


@stands_for(np, of_complex=True)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """np.count_nonzero."""
    return sum(
        cast(a if a.dtype == np.bool_ else a != 0, np.dtype(np.intp)), axis, None, None, keepdims
    )


def _arg(primitive: Any) -> Callable[..., Any]:
    def reduce(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _MISSING) -> Any:
        keep = keepdims is not _MISSING and bool(keepdims)
        if out is not None and not np.can_cast(out.dtype, np.intp):
            raise TypeError(f"Cannot cast array data from {out.dtype!r} to dtype('int64')")
        if axis is None:
            result = primitive(0)(ravel(a))
            return _finish(result, tuple(range(a.ndim)), keep, out)
        if a.ndim == 0 and axis in (0, -1):  # NumPy treats a scalar as a vector of one element
            return reduce(a, None, out, keepdims=keepdims)
        axis = normalize_axis_index(axis, a.ndim)
        return _finish(primitive(axis)(a), (axis,), keep, out)

    return reduce


argmax = stands_for(np, np.ndarray, name="argmax")(_arg(ArgMax))
argmin = stands_for(np, np.ndarray, name="argmin")(_arg(ArgMin))


def _running(primitive: Any) -> Callable[..., Any]:
    def accumulate(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        a = as_tracer(a, out)
        x = cast(a, whole_dtype(a, dtype, out))
        if x.dtype == np.bool_:
            raise UnsupportedError(
                f"a running sum or product with dtype=bool isn't supported{at_line()}. Use integers"
            )
        if axis is None:
            x, axis = ravel(x), 0
        x = at_least_a_vector(x)
        result = primitive(normalize_axis_index(axis, x.ndim))(x)
        return result if out is None else store(out, result)

    return accumulate


cumsum = stands_for(np, np.ndarray, name="cumsum", of_complex=True)(_running(CumSum))
cumprod = stands_for(np, np.ndarray, name="cumprod", of_complex=True)(_running(CumProd))
