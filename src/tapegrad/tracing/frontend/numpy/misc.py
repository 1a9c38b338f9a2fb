"""Functions that are compositions of others: where, clip, rounding, comparisons, dtype queries."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.core.handlers import quiet
from tapegrad.errors import UnsupportedError
from tapegrad.observe.program.source import at_line
from tapegrad.primitives import elementwise as ew
from tapegrad.tracing.frontend.indexing.indexing import as_python, nonzero
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import scalar
from tapegrad.tracing.frontend.operands.on_complex import by_parts
from tapegrad.tracing.frontend.operands.operands import (
    as_operand,
    as_tracer,
    cast,
    cast_all,
    chosen,
    common_dtype,
    dtype_of,
    loop_dtypes,
    mask_of,
    store,
)
from tapegrad.tracing.recording.layout import lay_out
from tapegrad.tracing.tracers.attributes import is_passed
from tapegrad.tracing.tracers.tracer import Tracer

_MISSING = np._NoValue


@stands_for(np, of_complex=True)
def where(condition: Any, *xs: Any) -> Any:
    """np.where."""
    condition = as_operand(condition)
    if not xs:
        return nonzero(condition)
    x, y = (as_operand(v) for v in xs)
    if dtype_of(condition) != np.dtype(bool):
        condition = np.not_equal(condition, 0)
    dtype = common_dtype(x, y)
    x, y = (_wrapped(v, dtype) for v in (x, y))
    return ew.where(*cast_all([condition, x, y], [np.dtype(bool), dtype, dtype]))


def _wrapped(x: Any, dtype: np.dtype) -> Any:
    """A Python integer cast to a dtype that may not hold it: it wraps around, as in NumPy."""
    if dtype.kind not in "iu" or dtype_of(x) is not int:
        return x
    return ew.AsType(dtype)(x) if isinstance(x, Tracer) else np.asarray(x).astype(dtype)[()]


@stands_for(np, of_complex=True)
def clip(
    a: Any,
    a_min: Any = _MISSING,
    a_max: Any = _MISSING,
    out: Any = None,
    *,
    min: Any = _MISSING,
    max: Any = _MISSING,
    dtype: Any = None,
    casting: Any = "same_kind",
    **kwargs: Any,
) -> Any:
    """np.clip. The derivative is 0 outside the bounds, and a half at a bound (see conventions)."""
    where = kwargs.get("where", True)
    where = where if where is True else mask_of(where)
    if (a_min is _MISSING) != (a_max is _MISSING):
        missing = "a_min" if a_min is _MISSING else "a_max"
        raise TypeError(f"clip() missing 1 required positional argument: {missing!r}")
    low = min if a_min is _MISSING else a_min
    high = max if a_max is _MISSING else a_max
    bounds = [as_operand(b) for b in (low, high) if b is not _MISSING and b is not None]
    a = as_tracer(a, *bounds)
    a = ew.copy(a) if a._weak else a  # NumPy converts it to an array, whose dtype counts
    dtype = common_dtype(a, *bounds) if dtype is None else np.dtype(dtype)
    if not np.can_cast(a.dtype, dtype, casting):
        raise TypeError(
            f"Cannot cast ufunc 'clip' input 0 from {a.dtype!r} to {dtype!r} with casting rule "
            f"{casting!r}"
        )
    result = cast(a, dtype)
    if len(bounds) == 2:  # in this order -0.0 is kept where both bounds are 0.0
        result = np.minimum(high, np.maximum(low, result))
    elif low is not _MISSING and low is not None:
        result = np.maximum(result, low)
    elif bounds:
        result = np.minimum(result, high)
    if not bounds:
        result = np.positive(result)
    if out is None:
        return scalar(lay_out(chosen(where, result), kwargs.get("order", "K")))
    return store(out, result, where)


@stands_for(np.ndarray, name="clip", of_complex=True)
def _clip(x: Any, min: Any = None, max: Any = None, out: Any = None, **kwargs: Any) -> Any:
    """The method. Either bound may be left out."""
    return clip(x, min, max, out, **kwargs)


@stands_for(np.ndarray, name="conj conjugate", of_complex=True)
def _conjugate(x: Any, out: Any = None) -> Any:
    """The method. It returns the array itself if that is real, where the ufunc returns a copy."""
    is_new = x.dtype.kind == "c" or (x._is_scalar() and x.dtype.kind != "b")
    return np.conjugate(x, out=out) if is_new or out is not None else x


@stands_for(np, np.ndarray, name="round around", of_complex=True)
def round(a: Any, decimals: Any = 0, out: Any = None) -> Any:
    """np.round."""
    if a.dtype == np.bool_:
        loop_dtypes(np.rint, [a])  # np.round computes in float16 here, which can't be traced
    a = as_tracer(a, decimals)
    if a.dtype.kind in "iu" and decimals >= 0:
        result = ew.copy(a)
    elif a.dtype.kind == "c":
        result = by_parts(lambda part: _rounded(part, decimals), a)
    else:
        result = _rounded(a, decimals)
    result = cast(result, a.dtype)
    return scalar(result) if out is None else store(out, result)


def _rounded(x: Any, decimals: Any) -> Any:
    if not isinstance(decimals, Tracer) and decimals == 0:
        return np.rint(x)
    if isinstance(decimals, Tracer) and not np.abs(decimals) < 2**31:
        np.round(0.0, int(decimals._concrete))  # NumPy's own error
    scale = quiet(np.power)(10.0, np.abs(decimals))  # of a Python number, which casts no float32
    scale = scale._as_pythons() if isinstance(scale, Tracer) else float(scale)
    return np.rint(x * scale) / scale if decimals > 0 else np.rint(x / scale) * scale


@stands_for(np, of_complex=True)
def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    """np.isclose."""
    b = as_tracer(b, a)
    b = cast(b, common_dtype(b, 1.0))
    close = np.abs(np.subtract(a, b)) <= atol + rtol * np.abs(b)
    result = np.logical_or(np.logical_and(close, np.isfinite(b)), np.equal(a, b))
    if equal_nan:
        result = np.logical_or(result, np.logical_and(np.isnan(a), np.isnan(b)))
    return scalar(result)


def _are_all(x: Any) -> Any:
    """Whether all elements of an array are true, as Python's boolean."""
    found = np.all(x)
    return as_python(found) if isinstance(found, Tracer) else bool(found)


@stands_for(np, of_complex=True)
def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    """np.allclose."""
    return _are_all(np.isclose(a, b, rtol, atol, equal_nan))


@stands_for(np, of_complex=True)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """np.array_equal."""
    if np.shape(a1) != np.shape(a2):
        return False
    same = np.equal(a1, a2)
    if equal_nan:
        same = np.logical_or(same, np.logical_and(np.isnan(a1), np.isnan(a2)))
    return _are_all(same)


@stands_for(np, of_complex=True)
def array_equiv(a1: Any, a2: Any) -> Any:
    """np.array_equiv."""
    try:
        np.broadcast_shapes(np.shape(a1), np.shape(a2))
    except ValueError:
        return False
    return _are_all(np.equal(a1, a2))


@stands_for(np, of_complex=True)
def imag(x: Any) -> Any:
    """np.imag."""
    return as_tracer(x).imag


@stands_for(np, of_complex=True)
def iscomplex(x: Any) -> Any:
    """np.iscomplex."""
    if x.dtype.kind == "c":
        return x.imag != 0
    return np.full(x.shape, False) if x.ndim else np.False_


@stands_for(np, of_complex=True)
def isreal(x: Any) -> Any:
    """np.isreal."""
    if x.dtype.kind == "c":
        return x.imag == 0
    return np.full(x.shape, True) if x.ndim else np.True_


# ---- questions about types and memory


def dtype_shown(x: Any) -> Any:
    """An argument as NumPy's promotion sees it: of a Python number only its kind."""
    if not isinstance(x, Tracer):
        return x
    return x.dtype if not x._weak else {"c": 0j, "f": 0.0, "b": False}.get(x.dtype.kind, 0)


@stands_for(np, of_complex=True, lists=None)
def result_type(*xs: Any) -> np.dtype:
    """np.result_type."""
    return np.result_type(*map(dtype_shown, xs))


@stands_for(np, of_complex=True, lists=None)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """np.can_cast."""
    return np.can_cast(dtype_shown(from_), to, casting)


@stands_for(np, of_complex=True)
def min_scalar_type(a: Any) -> np.dtype:
    """np.min_scalar_type. For a number it depends on the value, which is guarded."""
    if a.ndim:
        return a.dtype
    if a.dtype.kind in "fc":
        raise UnsupportedError(
            f"np.min_scalar_type of a traced real number isn't supported{at_line()}: it depends on "
            "the value. Use x.dtype"
        )
    return np.min_scalar_type(int(a) if a.dtype.kind in "iu" else bool(a))


@stands_for(np, name="may_share_memory shares_memory", of_complex=True, lists=None)
def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """np.may_share_memory and np.shares_memory, of arrays that share no memory, or all of it."""
    if isinstance(a, Tracer) and isinstance(b, Tracer) and a._owner is b._owner:
        if a._read()[0] is b._read()[0]:
            return a.size > 0
        raise UnsupportedError(
            f"whether two views of one array overlap isn't followed{at_line()}. Compare the "
            "indices that they were made with"
        )
    if all(not isinstance(x, Tracer) or is_passed(x) for x in (a, b)):
        raise UnsupportedError(
            f"whether an argument shares memory with another array isn't followed{at_line()}. Pass "
            "a flag instead"
        )
    return False


@stands_for(np, of_complex=True)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """np.meshgrid."""
    n = len(xi)
    grids = []
    for k, x in enumerate(xi):
        shape = [1] * n
        shape[k] = -1
        grids.append(np.reshape(as_tracer(x, *xi), shape))
    if indexing == "xy" and n > 1:
        grids = [np.swapaxes(g, 0, 1) for g in grids]
    if not sparse:
        full = np.broadcast_shapes(*[g.shape for g in grids])
        grids = [np.broadcast_to(g, full) for g in grids]
    return tuple(g.copy() for g in grids) if copy else tuple(grids)
