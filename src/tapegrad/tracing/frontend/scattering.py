"""Writes through NumPy's functions: ufunc.at, copyto, put, fill."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.errors import ConversionError, UnsupportedError
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.scatter import ScatterAdd
from tapegrad.tracing.frontend.indexing import _Plan, _entries, _expand_ellipsis, _fitted, _is_array_index
from tapegrad.tracing.source import at_line
from tapegrad.tracing.tracer import Tracer


def ufunc_at(ufunc: np.ufunc, x: Any, index: Any, *values: Any) -> None:
    """`ufunc.at(x, index, values)` for add and subtract: repeated indices accumulate."""
    if not isinstance(x, Tracer):
        raise ConversionError(
            f"np.{ufunc.__name__}.at of a traced value into a plain NumPy array{at_line()}: make "
            "the array with np.zeros_like(x) of a traced x"
        )
    if ufunc not in (np.add, np.subtract):
        raise UnsupportedError(f"np.{ufunc.__name__}.at isn't supported{at_line()}")
    (value,) = values
    entries = _expand_ellipsis(_entries(index), x.ndim)
    if not any(_is_array_index(k) for k in entries):
        x[index] = ufunc(x[index], value)
        return
    plan = _Plan(x, entries)
    moved = plan.move_first(x)
    shape = (*plan.arrays[0].shape, *moved.shape[len(plan.arrays) :])
    order = plan.result_order(len(shape))
    y = _fitted(x, value, tuple(shape[a] for a in order))
    if order != tuple(range(len(shape))):
        y = np.transpose(y, np.argsort(order))
    added = ScatterAdd(moved.shape)(y, *plan.arrays)
    combined = (ew.add if ufunc is np.add else ew.sub)(moved, added)
    moved[...] = combined


def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """np.copyto."""
    if not isinstance(dst, Tracer):
        raise ConversionError(
            f"np.copyto of a traced value into a plain NumPy array{at_line()}: make the array "
            "with np.zeros_like(x) of a traced x"
        )
    dst[...] = src if where is True else np.where(where, src, dst)


def fill(x: Tracer, value: Any) -> None:
    """ndarray.fill."""
    x[...] = value


def put(a: Tracer, ind: Any, v: Any, mode: str = "raise") -> None:
    """np.put."""
    a.reshape(-1)[ind] = v
