"""Sorting and searching. A sort is a gather by the sorting indices, so its derivative scatters each
cotangent to the original position of the element."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.lib import NumpyVersion
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.errors import UnsupportedError
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.sorting import ArgPartition, ArgSort, SearchSorted
from tapegrad.tracing.frontend.calling.library_code import borrowed
from tapegrad.tracing.frontend.indexing.indexing import take_along_axis
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import lay_out_as, scalar
from tapegrad.tracing.frontend.operands.operands import as_operand, as_tracer, cast, common_dtype
from tapegrad.tracing.frontend.shapes.shaping import ravel
from tapegrad.tracing.tracers.tracer import Tracer


@stands_for(np, np.ndarray)
def argsort(a: Any, axis: Any = -1, *args: Any, **kwargs: Any) -> Any:
    """np.argsort."""
    stable, descending = _options(*args, **kwargs)
    if descending and not stable:  # the order of equal elements isn't defined
        raise UnsupportedError(
            f"np.argsort with descending=True needs stable=True as well{at_line()}"
        )
    return _order(a, axis, stable, descending)


def _options(
    kind: Any = None, order: Any = None, *, stable: Any = None, descending: Any = None
) -> tuple[bool, bool]:
    """(stable, descending). Raises NumPy's errors for arguments that exclude each other, or that
    this version lacks."""
    if order is not None:
        raise ValueError("Cannot specify order when the array has no fields.")
    if descending is not None and not _DESCENDS:
        raise TypeError("got an unexpected keyword argument 'descending'")
    if descending is not None and kind is not None:
        raise ValueError(
            "`kind` and keyword parameters can't be provided at the same time. Use only one of "
            "them."
        )
    return bool(stable) or kind in ("stable", "mergesort"), bool(descending)


_DESCENDS = NumpyVersion(np.__version__) >= "2.5.0"


def _order(a: Any, axis: Any, stable: bool, descending: bool) -> Any:
    if axis is None:
        a, axis = ravel(a), 0
    if a.ndim == 0:  # NumPy sorts a scalar as a vector of one element
        a = ravel(a)
    if descending:  # NaN is last in either order; ~a of integers is -a - 1, which can't overflow
        a = -a if a.dtype.kind in "fc" else ~a
    if a.dtype.kind == "c":
        return lexsort([a.imag, a.real], axis)
    return ArgSort(normalize_axis_index(axis, a.ndim), stable)(a)


@stands_for(np, of_complex=True)
def sort(a: Any, axis: Any = -1, *args: Any, **kwargs: Any) -> Any:
    """np.sort."""
    options = _options(*args, **kwargs)
    if axis is None:
        a, axis = ravel(a), 0
    return lay_out_as(take_along_axis(a, _order(a, axis, *options), axis), a, "K")


@stands_for(np.ndarray, name="sort", of_complex=True)
def sort_in_place(x: Tracer, axis: int = -1, *args: Any, **kwargs: Any) -> None:
    """ndarray.sort."""
    x[...] = sort(x, axis, *args, **kwargs)


@stands_for(np, np.ndarray)
def argpartition(
    a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None
) -> Any:
    """np.argpartition."""
    _options(None, order)
    if kind != "introselect":
        raise ValueError("sort kind must be 'introselect'")
    if axis is None:
        a, axis = ravel(a), 0
    if a.ndim == 0:  # NumPy treats a scalar as a vector of one element
        normalize_axis_index(axis, 1)
        a, axis = ravel(a), 0
    axis = normalize_axis_index(axis, a.ndim)
    if np.ndim(kth) > 1:
        raise ValueError("object too deep for desired array")
    if np.asarray(kth).dtype.kind not in "iub" or np.asarray(kth).dtype == np.bool_:
        raise TypeError("Partition index must be integer")
    extent, places = a.shape[axis], [int(k) for k in np.atleast_1d(kth)]
    for k in places:
        if not -extent <= k < extent and a.size:
            raise ValueError(f"kth(={k}) out of bounds ({extent})")
    return ArgPartition(axis, tuple(sorted({k % extent for k in places})) if a.size else (0,))(a)


@stands_for(np)
def partition(a: Any, kth: Any, axis: Any = -1, *args: Any, **kwargs: Any) -> Any:
    """np.partition."""
    if axis is None:
        a, axis = ravel(a), 0
    normalize_axis_index(axis, a.ndim)
    order = argpartition(a, kth, axis, *args, **kwargs)
    return lay_out_as(take_along_axis(a, order, axis), a, "K")


@stands_for(np.ndarray, name="partition")
def partition_in_place(x: Tracer, kth: Any, axis: int = -1, *args: Any, **kwargs: Any) -> None:
    """ndarray.partition."""
    x[...] = partition(x, kth, axis, *args, **kwargs)


@stands_for(np)
def lexsort(keys: Any, axis: Any = -1) -> Any:
    """np.lexsort: stable sorts by one key after the other; the last key is the primary one."""
    if isinstance(keys, Tracer) and keys.ndim == 0:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    keys = [as_tracer(key, *keys) for key in keys]
    if not keys:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    if any(key.shape != keys[0].shape for key in keys):
        raise ValueError("all keys need to be the same shape")
    if keys[0].ndim == 0:
        return scalar(np.zeros_like(keys[0], dtype=np.intp))
    axis = normalize_axis_index(axis, keys[0].ndim)
    order = ArgSort(axis, stable=True)(keys[0])
    for key in keys[1:]:
        again = ArgSort(axis, stable=True)(take_along_axis(key, order, axis))
        order = take_along_axis(order, again, axis)
    return order


@stands_for(np, np.ndarray)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """np.searchsorted."""
    a, v = as_tracer(a, v, sorter), as_tracer(v, a, sorter)
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got {side!r})")
    if sorter is not None:
        sorter = as_tracer(sorter, a)
        if a.ndim != 1:
            depth = "too deep" if a.ndim else "of too small depth"
            raise ValueError(f"object {depth} for desired array")
        if sorter.dtype.kind not in "iu":
            raise TypeError("sorter must only contain integers")
        if sorter.shape != a.shape:
            raise ValueError("sorter.size must equal a.size")
        a = a[sorter]
    dtype = common_dtype(a, v)
    search, a, v = SearchSorted(side == "right"), cast(a, dtype), cast(v, dtype)
    return search(a, v) if v.ndim else scalar(search(a, ravel(v))[0])


@stands_for(np)
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """np.digitize. Whether the bins increase or decrease is guarded."""
    x, bins = as_tracer(x, bins), as_tracer(bins, x)
    side = "left" if right else "right"
    if np.all(bins[1:] >= bins[:-1]):
        return searchsorted(bins, x, side)
    if not np.all(bins[1:] <= bins[:-1]):
        raise ValueError("bins must be monotonically increasing or decreasing")
    return bins.size - searchsorted(bins[::-1], x, side)


_sorted_unique = borrowed(np.unique)


@stands_for(np)
def unique(*args: Any, **kwargs: Any) -> Any:
    """np.unique, by NumPy's own code. Unsorted results, whose order may vary, are refused."""
    if kwargs.get("sorted") is False and not _are_sorted(args[0] if args else kwargs["ar"]):
        raise UnsupportedError(
            f"np.unique(sorted=False) leaves open in what order the elements come{at_line()}, so "
            "other calls may see another one. Leave it out, or pass True"
        )
    given = dict(zip(_UNIQUE, args, strict=False)) | kwargs
    if given.get("axis") is None or np.ndim(given["ar"]) == 1:
        return _sorted_unique(*args, **kwargs)
    return _unique_parts(**{name: x for name, x in given.items() if name != "equal_nan"})


def _are_sorted(x: Any) -> bool:
    """Whether NumPy sorts to find equal elements of this dtype, instead of hashing."""
    by_hash = getattr(sys.modules.get("numpy.lib._arraysetops_impl"), "_unique_hash", None)
    few = np.ones(1, as_operand(x).dtype)
    return by_hash is None or by_hash(few) is NotImplemented


_UNIQUE = ("ar", "return_index", "return_inverse", "return_counts", "axis")


def _unique_parts(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    sorted: bool = True,
) -> Any:
    """np.unique along an axis: the first of each group of equal slices, in lexicographic order.
    Their number is guarded."""
    ar = as_tracer(ar)
    axis = normalize_axis_index(axis, ar.ndim)
    n = ar.shape[axis]
    moved = np.moveaxis(ar, axis, 0)
    rows = moved.reshape(n, -1 if ar.size else 0)
    if not rows.size:
        raise UnsupportedError(f"np.unique of nothing, along an axis, isn't supported{at_line()}")
    order = lexsort([rows[:, k] for k in range(rows.shape[1])][::-1])
    ordered = rows[order]
    first = np.concatenate([[True], np.any(ordered[1:] != ordered[:-1], axis=1)])
    (places,) = np.nonzero(first)
    index = order[places]
    results = [np.moveaxis(np.copy(moved[index], "C"), 0, axis)]
    if return_index:
        results.append(index)
    if return_inverse:
        kind = np.zeros_like(order)
        kind[order] = np.cumsum(first) - 1
        like = np.unique(np.zeros(ar.shape), return_inverse=True, axis=axis)[1]
        results.append(kind.reshape(like.shape))
    if return_counts:
        results.append(np.diff(np.concatenate([places, [n]])))
    return tuple(results) if len(results) > 1 else results[0]
