"""Writes through NumPy's functions: ufunc.at, copyto, put, putmask, place, fill."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.errors import ConversionError, UnsupportedError
from tapegrad.primitives.scatter import ScatterAdd
from tapegrad.tracing.frontend.indexing import Index, fit
from tapegrad.tracing.frontend.operands import as_tracer, plain, recorded
from tapegrad.tracing.source import at_line
from tapegrad.tracing.tracer import Tracer


def check_traced(x: Any, name: str) -> None:
    if not isinstance(x, Tracer):
        raise ConversionError(
            f"{name} of a traced value into a plain NumPy array{at_line()}, which carries no "
            "derivative. Import tapegrad.numpy as np, whose np.zeros can hold it, or make the "
            "array with np.zeros_like(x) of a traced x"
        )


def ufunc_at(ufunc: np.ufunc, x: Any, index: Any, *values: Any) -> None:
    """`ufunc.at(x, index, values)` for add and subtract: repeated indices accumulate."""
    check_traced(x, f"np.{ufunc.__name__}.at")
    if ufunc not in (np.add, np.subtract):
        raise UnsupportedError(f"np.{ufunc.__name__}.at isn't supported{at_line()}")
    (value,) = values
    found = Index(x, index)
    if not found.advanced:
        x[index] = ufunc(x[index], value)
        return
    moved = found.move_first(x)
    y = found.arranged(x, fit(x, plain(value), found.result_shape(moved)))
    added = recorded(x, ScatterAdd(moved.shape), y, *found.arrays)
    moved[...] = ufunc(moved, added)


def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """np.copyto."""
    check_traced(dst, "np.copyto")
    src = plain(src)
    found = getattr(src, "dtype", type(src))  # a Python number can be cast to any dtype of its kind
    weak = isinstance(src, (bool, int)) and not isinstance(src, np.generic)
    weak = weak and (isinstance(src, bool) or dst.dtype.kind != "b")
    if not weak and not np.can_cast(found, dst.dtype, casting):  # type: ignore[arg-type]
        raise TypeError(
            f"Cannot cast array data from {np.dtype(found)!r} to {dst.dtype!r} according to the "
            f"rule {casting!r}"
        )
    dst[...] = src if where is True else np.where(where, src, dst)


def fill(x: Tracer, value: Any) -> None:
    """ndarray.fill."""
    x[...] = value


def put(a: Any, indices: Any, v: Any, mode: str = "raise") -> None:
    """np.put: the indices count through the array in row-major order; values are repeated."""
    check_traced(a, "np.put")
    ind = plain(indices)
    if mode == "wrap":
        ind = np.mod(ind, a.size)
    elif mode == "clip":
        ind = np.clip(ind, 0, a.size - 1)
    else:
        ind = ind if isinstance(ind, Tracer) else np.asarray(ind)
        if np.any((ind < -a.size) | (ind >= a.size)):
            raise IndexError(f"an index is out of bounds for an array of size {a.size}")
        ind = np.where(ind < 0, ind + a.size, ind)
    places, rest = [], ind.reshape(-1)
    for extent in reversed(a.shape):
        places.append(rest % extent)
        rest = rest // extent
    values = as_tracer(v, a).reshape(-1)
    count = int(np.prod(ind.shape, dtype=int))
    if count and values.size:
        values = values[np.arange(count) % values.size]
        a[tuple(reversed(places))] = values if places else values[-1]  # 0-d: the last one stays


def putmask(a: Any, mask: Any, values: Any) -> None:
    """np.putmask: values are repeated through the whole array, whether they are put or not."""
    check_traced(a, "np.putmask")
    listed = isinstance(values, (list, tuple)) or np.ndim(values) == 0
    values = as_tracer(values, a)
    if not listed and not np.can_cast(values.dtype, a.dtype, "same_kind"):
        raise TypeError(
            f"Cannot cast array data from {values.dtype!r} to {a.dtype!r} according to the rule "
            "'same_kind'"
        )
    if values.shape != a.shape:
        flat = values.reshape(-1)
        values = flat[np.arange(a.size) % flat.size].reshape(a.shape)
    a[...] = np.where(mask, values, a)


def place(arr: Any, mask: Any, vals: Any) -> None:
    """np.place: values are repeated through the places where the mask is true."""
    check_traced(arr, "np.place")
    flat = as_tracer(vals, arr).reshape(-1)
    if arr.ndim == 0:
        if flat.size:
            arr[...] = np.where(mask, flat[0], arr)
        return
    chosen = np.nonzero(as_tracer(mask, arr).reshape(arr.shape))
    count = chosen[0].size
    if count:
        if not flat.size:
            raise ValueError("Cannot insert from an empty array!")
        arr[chosen] = flat[np.arange(count) % flat.size]


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """np.fill_diagonal."""
    check_traced(a, "np.fill_diagonal")
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if wrap or (a.ndim > 2 and len(set(a.shape)) != 1):
        raise UnsupportedError(f"np.fill_diagonal of this form isn't supported{at_line()}")
    k = np.arange(min(a.shape))
    values = as_tracer(val, a)
    if values.ndim:
        flat = values.reshape(-1)
        values = flat[k % flat.size]
    a[(k,) * a.ndim] = values
