"""Places in an array, as one integer and as one for each axis, and bits, as integers of eight:
quotients and remainders."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.tracing.frontend.operands.memory import copy_of, scalar
from tapegrad.tracing.frontend.operands.operands import as_tracer, cast
from tapegrad.tracing.frontend.operands.parameters import beyond


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
    each = mode if isinstance(mode, (list, tuple)) else [mode] * len(dims)
    modes = list(map(beyond, each))
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


def _weights(bitorder: str) -> np.ndarray:
    """How far each of eight bits is from the lowest."""
    if bitorder not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")
    return np.arange(8, dtype=np.uint8)[:: -1 if bitorder == "big" else 1]


def packbits(a: Any, axis: Any = None, bitorder: str = "big") -> Any:
    """np.packbits: eight bits are an integer; those that are missing at the end are 0."""
    if a.dtype.kind not in "iub":
        raise TypeError("Expected an input array of integer or boolean data type")
    weights = _weights(bitorder)
    a, axis = (a.reshape(-1), 0) if axis is None or not a.ndim else (a, axis)
    axis = normalize_axis_index(axis.__index__(), a.ndim)
    bits = np.moveaxis(a != 0, axis, -1)
    count = bits.shape[-1]
    if count % 8:
        bits = np.concatenate([bits, np.zeros((*bits.shape[:-1], -count % 8), bool)], -1)
    rows = bits.reshape(*bits.shape[:-1], -(-count // 8), 8).astype(np.uint8)
    packed = np.bitwise_or.reduce(rows << weights, axis=-1)
    return copy_of(np.moveaxis(packed, -1, axis), "C")


def unpackbits(a: Any, axis: Any = None, count: Any = None, bitorder: str = "big") -> Any:
    """np.unpackbits: the eight bits of each integer, of which `count` are taken."""
    if a.dtype != np.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    weights = _weights(bitorder)
    a, axis = (a.reshape(-1), 0) if axis is None or not a.ndim else (a, axis)
    axis = normalize_axis_index(axis.__index__(), a.ndim)
    rows = np.moveaxis(a, axis, -1)
    bits = ((rows[..., None] >> weights) & np.uint8(1)).reshape(*rows.shape[:-1], -1)
    whole = bits.shape[-1]
    if count is not None:
        count = count if count >= 0 else whole + count
        if count < 0:
            raise ValueError(f"-ve count {count - whole} exceeds the number of bits, {whole}")
        if count > whole:
            more = np.zeros((*bits.shape[:-1], count - whole), np.uint8)
            bits = np.concatenate([bits, more], -1)
        bits = bits[..., :count]
    return copy_of(np.moveaxis(bits, -1, axis), "C")
