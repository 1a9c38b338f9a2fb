"""Functions that are compositions of others: where, clip, selections, tests, interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.primitives import elementwise as ew
from tapegrad.tracing.frontend.indexing import as_tracer
from tapegrad.tracing.frontend.ufuncs import cast_all, dtype_of, is_weak, plain, store
from tapegrad.tracing.source import at_line
from tapegrad.tracing.tracer import Tracer

_MISSING = np._NoValue  # type: ignore[attr-defined]


def where(condition: Any, *xs: Any) -> Any:
    """np.where."""
    condition = plain(condition)
    if not xs:
        return nonzero(condition)
    x, y = (plain(v) for v in xs)
    if dtype_of(condition) != np.dtype(bool):
        condition = np.not_equal(condition, 0)
    if is_weak(x) and is_weak(y):
        dtype = np.result_type(*[_strong(v) for v in (x, y)])
    else:
        weak = [0.0 if dtype_of(v) is float else 0 if is_weak(v) else v.dtype for v in (x, y)]
        dtype = np.result_type(*weak)
    if isinstance(condition, (bool, np.bool_)):
        condition = np.asarray(condition)
    return ew.where(*cast_all([condition, x, y], [np.dtype(bool), dtype, dtype]))


def _strong(x: Any) -> np.dtype:
    return x.dtype if isinstance(x, Tracer) else np.asarray(x).dtype


def nonzero(x: Any) -> Any:
    """np.nonzero: how many there are is guarded."""
    from tapegrad.tracing.frontend.indexing import _index_arrays

    mask = x if x.dtype == np.bool_ else x != 0
    return tuple(_index_arrays(mask, x))


def flatnonzero(x: Any) -> Any:
    """np.flatnonzero."""
    return nonzero(x.reshape(-1))[0]


def clip(
    a: Any, a_min: Any = _MISSING, a_max: Any = _MISSING, out: Any = None, *,
    min: Any = _MISSING, max: Any = _MISSING, **kwargs: Any,
) -> Any:
    """np.clip: outside the bounds the derivative is 0, at a bound a half (see conventions)."""
    low = min if a_min is _MISSING else a_min
    high = max if a_max is _MISSING else a_max
    result = a
    if low is not _MISSING and low is not None:
        result = np.maximum(result, low)
    if high is not _MISSING and high is not None:
        result = np.minimum(result, high)
    if result is a:
        result = ew.copy(a)
    return result if out is None else store(out, result)


def round_(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """np.round."""
    if a.dtype.kind in "iub" and decimals >= 0:
        result = ew.copy(a)
    elif decimals == 0:
        result = ew.rint(a)
    else:
        scale = 10.0 ** abs(decimals)
        result = np.rint(a * scale) / scale if decimals > 0 else np.rint(a / scale) * scale
    return result if out is None else store(out, result)


def fix(x: Any, out: Any = None) -> Any:
    """np.fix."""
    result = np.trunc(x)
    return result if out is None else store(out, result)


def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    """np.isclose."""
    close = np.abs(np.subtract(a, b)) <= atol + rtol * np.abs(b)
    result = np.where(np.isfinite(b), close, np.equal(a, b))
    if equal_nan:
        result = np.logical_or(result, np.logical_and(np.isnan(a), np.isnan(b)))
    return result


def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    """np.allclose."""
    return bool(np.all(isclose(a, b, rtol, atol, equal_nan)))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """np.array_equal."""
    return np.shape(a1) == np.shape(a2) and bool(np.all(np.equal(a1, a2)))


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """np.nan_to_num."""
    if not copy:
        raise UnsupportedError(f"np.nan_to_num with copy=False isn't supported{at_line()}")
    info = np.finfo(x.dtype)
    high = info.max if posinf is None else posinf
    low = info.min if neginf is None else neginf
    x = np.where(np.isnan(x), x.dtype.type(nan), x)
    x = np.where(x == np.inf, x.dtype.type(high), x)
    return np.where(x == -np.inf, x.dtype.type(low), x)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """np.select: the first condition that holds."""
    result = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = np.where(condition, choice, result)
    return result


def sinc(x: Any) -> Any:
    """np.sinc: sin(pi x) / (pi x), and 1 at 0."""
    y = np.pi * x
    away = y != 0
    safe = np.where(away, y, 1.0)
    return np.where(away, np.sin(safe) / safe, 1 - y * y / 6)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """np.trapezoid."""
    y = as_tracer(y, x, dx)
    width: Any = dx
    if x is not None:
        width = np.diff(x, axis=-1 if np.ndim(x) == 1 else axis)
        if np.ndim(x) == 1:
            shape = [1] * y.ndim
            shape[axis] = width.shape[0]
            width = np.reshape(width, shape)
    moved = np.moveaxis(y, axis, -1)
    pairs = np.moveaxis(moved[..., 1:] + moved[..., :-1], -1, axis)
    return np.sum(width * pairs / 2.0, axis=axis)


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """np.meshgrid."""
    n = len(xi)
    grids = []
    for k, x in enumerate(xi):
        shape = [1] * n
        shape[k] = -1
        grids.append(np.reshape(x, shape))
    if indexing == "xy" and n > 1:
        grids = [np.swapaxes(g, 0, 1) for g in grids]
    if not sparse:
        full = np.broadcast_shapes(*[g.shape for g in grids])
        grids = [np.broadcast_to(g, full) for g in grids]
    return tuple(grids)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm of vectors, and the Frobenius norm of matrices; derivative 0 at 0."""
    matrix = axis is None and x.ndim == 2 or isinstance(axis, tuple) and len(axis) == 2
    if ord is None and axis is None or ord in (None, "fro") and matrix or ord in (None, 2):
        if not (matrix and ord == 2):
            return np.sqrt(np.sum(np.square(x), axis=axis, keepdims=keepdims))
    if matrix:
        raise UnsupportedError(f"np.linalg.norm of a matrix with ord={ord!r} isn't supported{at_line()}")
    size = np.abs(x)
    if ord == np.inf:
        return np.max(size, axis=axis, keepdims=keepdims)
    if ord == -np.inf:
        return np.min(size, axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return np.sum(x != 0, axis=axis, keepdims=keepdims).astype(x.dtype)
    return np.power(np.sum(np.power(size, ord), axis=axis, keepdims=keepdims), 1.0 / ord)
