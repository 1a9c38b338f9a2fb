"""Conversions by quotients and remainders (flat positions <-> indices by axis, bytes <-> bits), and
`x.flat`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import copy_of, scalar
from tapegrad.tracing.frontend.operands.operands import as_operand, as_tracer, cast
from tapegrad.tracing.frontend.operands.parameters import beyond
from tapegrad.tracing.tracers.tracer import Tracer


@stands_for(np)
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
    whole = np.stack([found[axis] for axis in axes], -1)  # with NumPy's memory layout
    return tuple(whole[..., axis] for axis in axes)


def _extents(shape: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in np.atleast_1d(shape))


@stands_for(np)
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    """np.ravel_multi_index: flat positions of indices by axis."""
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
    """The shifts of eight bits from the lowest."""
    if bitorder not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")
    return np.arange(8, dtype=np.uint8)[:: -1 if bitorder == "big" else 1]


@stands_for(np)
def packbits(a: Any, axis: Any = None, bitorder: str = "big") -> Any:
    """np.packbits: eight bits to a byte. Missing bits at the end are 0."""
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


@stands_for(np)
def unpackbits(a: Any, axis: Any = None, count: Any = None, bitorder: str = "big") -> Any:
    """np.unpackbits: the first `count` of the bits of all bytes."""
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


class Flat:
    """`x.flat`: the elements of `x` in row-major order, to be read and written. Arrays of elements
    pass through the function `made`, if it is given."""

    def __init__(self, x: Tracer, made: Callable[[Any], Any] | None = None) -> None:
        self._x, self._made = x, made
        self._rest: Iterator[Any] | None = None  # an iterator over the elements not visited yet

    def __len__(self) -> int:
        return self._x.size

    def __iter__(self) -> Iterator[Any]:
        """The iterator continues where it stopped, as NumPy's does. Indexing restarts it."""
        if self._rest is None:
            self._rest = iter(self._x.reshape(-1))
        return self._rest

    def __next__(self) -> Any:
        return next(iter(self))

    def copy(self) -> Any:
        return self[:]

    @property
    def base(self) -> Tracer:
        return self._x

    def __getitem__(self, index: Any) -> Any:
        self._rest = None
        found = self._x.reshape(-1)[self._index(index)]
        if not np.ndim(found):
            return found
        return found.copy() if self._made is None else self._made(found.copy())

    def __setitem__(self, index: Any, value: Any) -> None:
        self._rest = None
        # A reshape may copy, so the write indexes `x` itself.
        index, value = self._index(index), as_operand(value)
        if np.ndim(value) and not isinstance(index, slice) and not np.ndim(index):
            np.zeros(self._x.size).flat[index] = np.zeros(np.shape(value))  # NumPy's own error
        dispatch.put(self._x, as_tracer(np.arange(self._x.size), self._x)[index], value)

    def _index(self, index: Any) -> Any:
        """An index as NumPy's flat iterator interprets it: True is the first element, False selects
        none, and a list of booleans is an error."""
        if isinstance(index, bool):
            return 0 if index else slice(0)
        given = index if isinstance(index, list) else [index]
        if any(isinstance(k, (bool, np.bool_)) for k in given):
            np.empty(self._x.size).flat[index]  # NumPy's own error
        return index
