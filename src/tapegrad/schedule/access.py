"""Indices: loops over a shape, and the elements that are read and written in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import At, Cell, Read
from tapegrad.ir.steps import Compute, Loop, Step
from tapegrad.ir.tape import Literal
from tapegrad.primitives import elementwise as ew


def nest(indices: Sequence[Index], body: list[Step]) -> list[Step]:
    """The body inside one loop for each index, outermost first. An extent of 1 needs no loop."""
    for index in reversed(indices):
        if index.extent != 1:
            body = [Loop(index, tuple(body))]
    return body


def indices_for(shape: Sequence[int], front: Sequence[Affine | None] = ()) -> list[Index]:
    """Indices over a shape, or over the leading elements along the axes for which `front` has a
    number of elements."""
    if not any(front):
        return [Index(n) for n in shape]
    found = []
    for n, far in zip(shape, front, strict=True):
        if far is None or far.terms:
            found.append(Index(n, far))
        else:
            found.append(Index(max(0, min(n, far.const))))
    return found


def at_indices(indices: Sequence[Index]) -> At:
    return tuple(Affine.of(i) for i in indices)


def store(cell: Cell, at: At, value: Any, src: Any) -> Compute:
    literal = Literal(cell.dtype.type(value))
    return Compute(cell, at, ew.copy, (Read(None, (), literal),), src=src)


def entries(at: Iterable[Any]) -> At:
    """The entries of an index as affine numbers."""
    return tuple([Affine((), int(k)) if isinstance(k, int) else k for k in at])


def fastest(read: Read) -> Index | None:
    """The loop index along which a read's elements are adjacent in memory; None if there is
    none."""
    last = read.at[-1] if read.at else None
    if isinstance(last, Affine) and len(last.terms) == 1:
        return last.terms[0][0]
    return None
