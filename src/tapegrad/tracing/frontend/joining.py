"""Joining and splitting: concatenate, stack, split and their relatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.primitives.scatter import Concatenate
from tapegrad.tracing.frontend.indexing import as_tracer
from tapegrad.tracing.frontend.shaping import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    expand_dims,
    ravel,
)
from tapegrad.tracing.frontend.ufuncs import cast
from tapegrad.tracing.tracer import Tracer


def _same_dtype(xs: Sequence[Any], dtype: Any = None) -> list[Tracer]:
    traced = [x for x in _flat(xs) if isinstance(x, Tracer)]
    arrays = [as_tracer(x, *traced) for x in xs]
    common = np.result_type(*[a.dtype for a in arrays]) if dtype is None else np.dtype(dtype)
    return [cast(a, common) for a in arrays]


def _flat(xs: Any) -> list[Any]:
    if isinstance(xs, (list, tuple)):
        return [e for x in xs for e in _flat(x)]
    return [xs]


def concatenate(
    arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    """np.concatenate."""
    xs = _same_dtype(list(arrays), dtype)
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    if any(x.ndim == 0 for x in xs):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    if len({x.ndim for x in xs}) != 1:
        raise ValueError(
            "all the input array dimensions must match exactly, but the arrays have "
            f"{', '.join(str(x.ndim) for x in xs)} dimensions"
        )
    axis = normalize_axis_index(axis, xs[0].ndim)
    for x in xs[1:]:
        for a, (n, m) in enumerate(zip(xs[0].shape, x.shape, strict=True)):
            if a != axis and n != m:
                raise ValueError(
                    "all the input array dimensions except for the concatenation axis must match "
                    f"exactly, but along dimension {a}, the sizes are {n} and {m}"
                )
    result = Concatenate(axis)(*xs)
    if out is None:
        return result
    from tapegrad.tracing.frontend.ufuncs import store

    return store(out, result)


def stack(arrays: Any, axis: int = 0, out: Any = None, **kwargs: Any) -> Any:
    """np.stack."""
    xs = _same_dtype(list(arrays), kwargs.get("dtype"))
    if len({x.shape for x in xs}) != 1:
        raise ValueError("all input arrays must have the same shape")
    axis = normalize_axis_index(axis, xs[0].ndim + 1)
    return concatenate([expand_dims(x, axis) for x in xs], axis, out)


def _as_list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, tuple) else [x]


def vstack(tup: Any, **kwargs: Any) -> Any:
    """np.vstack."""
    return concatenate([atleast_2d(x) for x in _traced(tup)], 0, **kwargs)


def hstack(tup: Any, **kwargs: Any) -> Any:
    """np.hstack."""
    xs = [atleast_1d(x) for x in _traced(tup)]
    return concatenate(xs, 0 if xs[0].ndim == 1 else 1, **kwargs)


def dstack(tup: Any) -> Any:
    """np.dstack."""
    return concatenate([atleast_3d(x) for x in _traced(tup)], 2)


def column_stack(tup: Any) -> Any:
    """np.column_stack."""
    return concatenate([x if x.ndim == 2 else x.reshape(-1, 1) for x in _traced(tup)], 1)


def _traced(xs: Any) -> list[Tracer]:
    xs = list(xs)
    return [as_tracer(x, *[y for y in _flat(xs) if isinstance(y, Tracer)]) for x in xs]


def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """np.append."""
    return concatenate((arr, values), axis)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """np.array_split."""
    axis = normalize_axis_index(axis, ary.ndim)
    n = ary.shape[axis]
    if np.ndim(indices_or_sections) == 0:
        parts = int(indices_or_sections)
        if parts <= 0:
            raise ValueError("number sections must be larger than 0.")
        size, more = divmod(n, parts)
        ends = np.cumsum([size + 1] * more + [size] * (parts - more))
        bounds = [0, *map(int, ends)]
    else:
        bounds = [0, *[int(k) for k in indices_or_sections], n]
    before = (slice(None),) * axis
    return [ary[(*before, slice(a, b))] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """np.split."""
    if np.ndim(indices_or_sections) == 0 and ary.shape[axis] % int(indices_or_sections):
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """np.vsplit."""
    return split(ary, indices_or_sections, 0)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """np.hsplit."""
    return split(ary, indices_or_sections, 1 if ary.ndim > 1 else 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """np.dsplit."""
    return split(ary, indices_or_sections, 2)
