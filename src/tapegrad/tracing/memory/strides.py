"""Reconstruction of the views that lead from an array to another one in its memory.

NumPy stores a view's start and strides, but not how it was made. The views that are found here have
the same elements, which is checked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tapegrad.core.values import Slice
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.complexes import PARTS, imag, real
from tapegrad.primitives.kinds import View
from tapegrad.primitives.views import GetItem, Reshape, Transpose

_MOST_ROWS = 64
Views = tuple[View | Elementwise, ...]


def views_between(x: np.ndarray, y: np.ndarray) -> Views | None:
    """Views that lead from `x`, which owns its memory, to `y` in this memory; None if there are
    none of a known kind."""
    if x.dtype in PARTS and PARTS[x.dtype] == y.dtype:
        for part, own in ((real, x.real), (imag, x.imag)):
            found = views_between(own, y)
            if found is not None:
                return (part, *found)
    if x.dtype != y.dtype:
        return None
    for views in _candidates(x, y):
        if _leads(views, x, y):
            return views
    return None


def _candidates(x: np.ndarray, y: np.ndarray) -> Iterator[Views]:
    if x.size == y.size:
        yield ()
        yield (Reshape(y.shape),)
    for whole in (False, True):
        picked = _picked(x, y, whole)
        if picked is not None:
            yield (*picked, Reshape(y.shape)) if whole else picked
    flat = np.reshape(x, (x.size,))
    if np.may_share_memory(flat, x):
        for shape in _shapes(x, y, flat.strides[0]):
            picked = _picked(np.reshape(flat, shape), y, True)
            if picked is not None:
                yield (Reshape(shape), *picked, Reshape(y.shape))


def _shapes(x: np.ndarray, y: np.ndarray, apart: int) -> Iterator[tuple[int, ...]]:
    """Shapes of `x`, whose elements are `apart` bytes apart, in which `y` may be a slice along the
    axes: one axis, and one for each of its strides."""
    yield (x.size,)
    steps = sorted({abs(step) // apart for step in _steps(y)} | {1}, reverse=True)
    left, shape = x.size, []
    for step in steps:
        if step and left % step == 0:
            shape.append(left // step)
            left = step
    yield tuple(shape)
    for rows in range(2, min(x.size, _MOST_ROWS)):  # rows may have been cut off anywhere
        if x.size % rows == 0:
            yield rows, x.size // rows
            yield x.size // rows, rows


def _leads(views: Views, x: np.ndarray, y: np.ndarray) -> bool:
    found = x
    for view in views:
        found = view.evaluate(found)
    same = found.shape == y.shape and np.may_share_memory(found, x)
    return same and _start(found) == _start(y) and _steps(found) == _steps(y)


def _start(x: np.ndarray) -> int:
    at: int = x.__array_interface__["data"][0]
    return at


def _steps(x: np.ndarray) -> list[int]:
    """The strides of the axes with more than one element."""
    return [step for step, extent in zip(x.strides, x.shape, strict=True) if extent > 1]


def _picked(x: np.ndarray, y: np.ndarray, whole: bool) -> Views | None:
    """Slices, integers and a transpose that lead from `x` to `y`, up to axes of extent 1; if
    `whole`, each integer keeps such an axis. None if there are none."""
    if not x.size or not y.size:
        return None
    axes = sorted(
        (k for k in range(x.ndim) if x.shape[k] > 1), key=lambda k: x.strides[k], reverse=True
    )
    offset = _start(y) - _start(x)
    begins: dict[int, int] = {}
    for k in axes:
        if x.strides[k] <= 0:
            return None
        begins[k], offset = divmod(offset, x.strides[k])
    if offset:
        return None
    index: list[int | Slice] = [begins.get(k, 0) for k in range(x.ndim)]
    order = []
    for step, extent in zip(y.strides, y.shape, strict=True):
        if extent == 1:
            continue
        found = [k for k in axes if step and abs(step) >= x.strides[k] and k not in order]
        if not found or step % x.strides[found[0]]:
            return None
        k = found[0]
        part = Slice(begins[k], extent, step // x.strides[k])
        last = part.start + (extent - 1) * part.step
        if not (0 <= part.start < x.shape[k] and 0 <= last < x.shape[k]):
            return None
        index[k] = part
        order.append(k)
    if whole:
        index = [Slice(k, 1, 1) if isinstance(k, int) else k for k in index]
        order += [k for k in range(x.ndim) if k not in order]
    ranks = sorted(order)
    turned = tuple(ranks.index(k) for k in order)
    views: Views = (GetItem(tuple(index)),)
    return (*views, Transpose(turned)) if turned != tuple(range(len(turned))) else views
