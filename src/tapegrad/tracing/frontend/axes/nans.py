"""Reductions that ignore NaN: those of `reducing`, of the other elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.tracing.frontend.axes import reducing
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import scalar
from tapegrad.tracing.frontend.operands.operands import as_tracer, mask_of, store

_MISSING = np._NoValue


def _filled(a: Any, value: Any) -> tuple[Any, Any]:
    """`a` with NaN replaced by `value`, and the mask of the elements that weren't NaN."""
    if a.dtype.kind not in "fc":
        return a, np.ones_like(a, dtype=bool)
    there = np.logical_not(np.isnan(a))
    return np.where(there, a, value), there


def _both(there: Any, where: Any) -> Any:
    """The mask `there`, combined with `where=`."""
    return there if where is _MISSING else np.logical_and(there, mask_of(where))


def _of_filled(function: Callable[..., Any], value: float) -> Callable[..., Any]:
    """A NaN-ignoring function: NaN is replaced by `value`, which doesn't change the result."""

    def reduce(a: Any, *args: Any, **kwargs: Any) -> Any:
        a = as_tracer(a, *args, *kwargs.values())
        return function(_filled(a, value)[0], *args, **kwargs)

    return reduce


nansum = stands_for(np, name="nansum", of_complex=True)(_of_filled(reducing.sum, 0))
nanprod = stands_for(np, name="nanprod", of_complex=True)(_of_filled(reducing.prod, 1))
nancumsum = stands_for(np, name="nancumsum", of_complex=True)(_of_filled(reducing.cumsum, 0))
nancumprod = stands_for(np, name="nancumprod", of_complex=True)(_of_filled(reducing.cumprod, 1))


@stands_for(np, of_complex=True)
def nanmean(a: Any, *args: Any, where: Any = _MISSING, **kwargs: Any) -> Any:
    """np.nanmean."""
    a = as_tracer(a, where, *args, *kwargs.values())
    if a.dtype.kind in "fc":
        _check_inexact(kwargs.get("dtype", args[1] if len(args) > 1 else None))
        a, there = _filled(a, 0)
        where = _both(there, where)
    return reducing.mean(a, *args, where=where, **kwargs)


def _check_inexact(dtype: Any) -> None:
    if dtype is not None and np.dtype(dtype).kind not in "fc":
        raise TypeError("If a is inexact, then dtype must be inexact")


@stands_for(np, of_complex=True)
def nanvar(
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
    """np.nanvar: NaN where the degrees of freedom are 0 or fewer."""
    ddof = reducing.freedom_lost(ddof, correction)
    a = as_tracer(a, where, mean, out)
    if a.dtype.kind not in "fc":
        return reducing.var(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean)
    _check_inexact(dtype)
    x, there = _filled(a, 0)
    there = _both(there, where)
    result = reducing.var(x, axis, dtype, None, ddof, keepdims, where=there, mean=mean)
    counts = reducing.count_of(a, axis, there, keepdims, result.dtype)
    result = scalar(np.where(counts > ddof, result, result.dtype.type(np.nan)))
    return result if out is None else store(out, result)


nanstd = stands_for(np, name="nanstd", of_complex=True)(reducing.root_of(nanvar))


def _nan_extremum(
    extremum: Callable[..., Any], combine: Callable[..., Any], neutral: float
) -> Callable[..., Any]:
    """nanmax or nanmin: NaN only where all elements are NaN."""

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
        if a.dtype.kind != "f":
            return extremum(a, axis, out, keepdims, initial, where)
        if where is not _MISSING and initial is _MISSING:
            return extremum(a, axis, out, keepdims, initial, where)  # NumPy's error
        x, there = _filled(a, neutral)
        there = _both(there, where)
        x = reducing.selected(x, where, a.dtype.type(neutral))
        start = neutral if initial is not _MISSING else _MISSING  # an empty reduction is valid
        result = extremum(x, axis, None, keepdims, start)
        some = reducing.any(there, axis, None, keepdims)
        result = np.where(some, result, result.dtype.type(np.nan))
        if initial is not _MISSING:
            result = combine(result, reducing.like(initial, result))
        return scalar(result) if out is None else store(out, result)

    return reduce


nanmax = stands_for(np, name="nanmax")(_nan_extremum(reducing.max, np.fmax, -np.inf))
nanmin = stands_for(np, name="nanmin")(_nan_extremum(reducing.min, np.fmin, np.inf))
