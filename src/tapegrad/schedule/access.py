"""Indices: loops over a shape, and the index of an operand for an index of a view of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.ir.plan import Affine, At, Cell, Compute, Index, Loop, Read, Step
from tapegrad.ir.tape import Literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.views import (
    BroadcastTo,
    Diagonal,
    ExpandDims,
    GetItem,
    Reshape,
    Squeeze,
    Transpose,
)

IDENTITY = {"sum": 0, "add": 0, "prod": 1, "any": False, "all": True}


def nest(indices: Sequence[Index], body: list[Step]) -> list[Step]:
    """The body under one loop for each index, outermost first; extents of 1 need no loop."""
    for index in reversed(indices):
        if index.extent != 1:
            body = [Loop(index, tuple(body))]
    return body


def indices_for(shape: Sequence[int]) -> list[Index]:
    return [Index(n) for n in shape]


def at_indices(indices: Sequence[Index]) -> At:
    return tuple(Affine.of(i) for i in indices)


def store(cell: Cell, at: At, value: Any, src: Any) -> Compute:
    literal = Literal(cell.dtype.type(value))
    return Compute(cell, at, ew.copy, (Read(None, (), literal),), src=src)


def identity_of(combine: str, dtype: np.dtype) -> Any:
    if combine in IDENTITY:
        return IDENTITY[combine]
    if dtype.kind == "f":
        return -np.inf if combine == "max" else np.inf
    if dtype.kind == "b":
        return combine == "min"
    info = np.iinfo(dtype)
    return info.min if combine == "max" else info.max


def fastest(read: Read) -> Index | None:
    """The loop index along which a read's elements lie next to each other."""
    last = read.at[-1] if read.at else None
    if isinstance(last, Affine) and len(last.terms) == 1:
        return last.terms[0][0]
    return None


def index_map(index: Sequence[Any], at: At) -> At:
    """The index into an array, for an index into `array[index]`."""
    rest = iter(at)
    entries: list[Any] = []
    for k in index:
        if isinstance(k, int):
            entries.append(Affine((), k))
        else:
            entry = next(rest)
            assert isinstance(entry, Affine)
            entries.append(entry.scaled(k.step, k.start))
    return tuple(entries)


def _through_transpose(p: Any, at: At, shape: Any) -> At:
    entries: list[Any] = [None] * len(at)
    for k, axis in enumerate(p.axes):
        entries[axis] = at[k]
    return tuple(entries)


def _through_broadcast(p: Any, at: At, shape: tuple[int, ...]) -> At:
    mine = at[len(at) - len(shape) :]
    return tuple(Affine() if n == 1 else k for k, n in zip(mine, shape, strict=True))


def _through_expand(p: Any, at: At, shape: Any) -> At:
    return tuple(k for a, k in enumerate(at) if a not in p.axes)


def _through_squeeze(p: Any, at: At, shape: Any) -> At:
    rest = iter(at)
    return tuple(Affine() if a in p.axes else next(rest) for a in range(len(shape)))


def _through_diagonal(p: Any, at: At, shape: Any) -> At:
    last = at[-1]
    assert isinstance(last, Affine)
    row, column = last.scaled(1, max(0, -p.offset)), last.scaled(1, max(0, p.offset))
    return (*at[:-1], row, column)


def _through_reshape(p: Any, at: At, shape: tuple[int, ...]) -> At | None:
    """A reshape that only adds and removes axes of extent 1 moves indices; others don't."""
    long = [k for k, n in zip(at, p.shape, strict=True) if n != 1]
    if [n for n in p.shape if n != 1] != [n for n in shape if n != 1]:
        return None
    rest = iter(long)
    return tuple(Affine() if n == 1 else next(rest) for n in shape)


THROUGH: dict[type, Callable[[Any, At, Any], At | None]] = {
    Reshape: _through_reshape,
    Transpose: _through_transpose,
    BroadcastTo: _through_broadcast,
    ExpandDims: _through_expand,
    Squeeze: _through_squeeze,
    GetItem: lambda p, at, shape: index_map(p.index, at),
    Diagonal: _through_diagonal,
}
