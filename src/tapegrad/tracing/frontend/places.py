"""Places in an array, as one integer and as one for each axis: quotients and remainders."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.tracing.frontend.memory import scalar
from tapegrad.tracing.frontend.operands import as_tracer, cast


def unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    """np.unravel_index: quotients and remainders by the extents."""
    indices, shape = as_tracer(indices), _extents(shape)
    if indices.dtype.kind not in "iub":
        raise TypeError("only int indices permitted")
    size = int(np.prod(shape, dtype=np.intp))
    if not np.all((indices >= 0) & (indices < size)):
        raise ValueError(f"index is out of bounds for array with size {size}")
    rest, found = cast(indices, np.intp), {}
    axes = range(len(shape))
    for axis in reversed(axes) if order == "C" else axes:
        found[axis] = rest % shape[axis]
        rest = rest // shape[axis]
    if not indices.ndim:
        return tuple(scalar(found[axis]) for axis in axes)
    whole = np.stack([found[axis] for axis in axes], -1)  # as they lie in memory
    return tuple(whole[..., axis] for axis in axes)


def _extents(shape: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in np.atleast_1d(shape))


def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    """np.ravel_multi_index: what indices, one for each axis, count to."""
    dims = _extents(dims)
    given = [as_tracer(k, *multi_index) for k in multi_index]
    if len(given) != len(dims):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(dims)}")
    if any(k.dtype.kind not in "iub" for k in given):
        raise TypeError("only int indices permitted")
    modes = [mode] * len(dims) if isinstance(mode, str) else list(mode)
    whole, step, axes = np.intp(0), 1, range(len(dims))
    for axis in reversed(axes) if order == "C" else axes:
        at, extent = cast(given[axis], np.intp), dims[axis]
        if modes[axis] == "wrap":
            at = np.mod(at, extent)
        elif modes[axis] == "clip":
            at = np.clip(at, 0, extent - 1)
        elif not np.all((at >= 0) & (at < extent)):
            raise ValueError("invalid entry in coordinates array")
        whole, step = whole + at * step, step * extent
    return scalar(whole)
