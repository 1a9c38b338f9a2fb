"""Lowering of writes into larger results, and of gathers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.ir.plan import (
    At,
    Cell,
    CheckRange,
    Compute,
    Failure,
    Indirect,
    Read,
    Step,
)
from tapegrad.ir.tape import Call, Literal, Operand, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Slice
from tapegrad.primitives.scatter import Place, PlaceDiagonal
from tapegrad.schedule.access import (
    at_indices,
    index_map,
    indices_for,
    nest,
    store,
)
from tapegrad.schedule.lowering import Lowering


def place(low: Lowering, call: Call) -> None:
    primitive: Any = call.primitive
    cell = low.result(call)
    fill_around(low, cell, primitive.index, call.src)
    into(low, cell, primitive.index, call.operands[0], "", call.src)


def into(low: Lowering, cell: Cell, index: Any, x: Operand, combine: str, src: Any) -> None:
    """`cell[index] = x`, or `+=`."""
    indices = indices_for([k.count for k in index if isinstance(k, Slice)])
    at = at_indices(indices)
    body: list[Step] = [
        Compute(cell, index_map(index, at), ew.copy, (low.read(x, at),), combine, src)
    ]
    low.steps += nest(indices, body)


def fill_around(low: Lowering, cell: Cell, index: Any, src: Any) -> None:
    """Zeros outside a box; everywhere, if the index has gaps."""
    boxes = [k if isinstance(k, Slice) else Slice(k, 1) for k in index]
    zero = cell.dtype.type(0)
    if any(k.step != 1 for k in boxes):
        indices = indices_for(cell.shape)
        low.steps += nest(indices, [store(cell, at_indices(indices), zero, src)])
        return
    for axis, (k, n) in enumerate(zip(boxes, cell.shape, strict=True)):
        before = Slice(0, k.start)
        after = Slice(k.start + k.count, n - k.start - k.count)
        for edge in (before, after):
            if edge.count == 0:
                continue
            region = [*boxes[:axis], edge, *[Slice(0, m) for m in cell.shape[axis + 1 :]]]
            indices = indices_for([r.count for r in region])
            at = index_map(region, at_indices(indices))
            low.steps += nest(indices, [store(cell, at, zero, src)])


def place_diagonal(low: Lowering, call: Call) -> None:
    cell = low.result(call)
    indices = indices_for(cell.shape)
    zero = cell.dtype.type(0)
    low.steps += nest(indices, [store(cell, at_indices(indices), zero, call.src)])
    onto_diagonal(low, cell, call, "")


def onto_diagonal(low: Lowering, cell: Cell, call: Call, combine: str) -> None:
    (x,) = call.operands
    offset = call.primitive.offset  # type: ignore[attr-defined]
    indices = indices_for(x.shape)
    at = at_indices(indices)
    row = at[-1].scaled(1, max(0, -offset))  # type: ignore[union-attr]
    column = at[-1].scaled(1, max(0, offset))  # type: ignore[union-attr]
    target = (*at[:-1], row, column)
    low.steps += nest(
        indices, [Compute(cell, target, ew.copy, (low.read(x, at),), combine, call.src)]
    )


def setitem(low: Lowering, call: Call) -> None:
    x, y = call.operands
    cell = low.writable(call, x)
    into(low, cell, call.primitive.index, y, "", call.src)  # type: ignore[attr-defined]


def concatenate(low: Lowering, call: Call) -> None:
    cell = low.result(call)
    for index, x in zip(call.primitive.pieces(*call.operands), call.operands, strict=True):  # type: ignore[attr-defined]
        into(low, cell, index, x, "", call.src)


def gather(low: Lowering, call: Call) -> None:
    x, *arrays = call.operands
    source = low.materialized(x)
    check_ranges(low, arrays, x.shape, call)
    cell = low.result(call)
    indices = indices_for(cell.shape)
    at = at_indices(indices)
    read = Read(source, indirect(low, arrays, x.shape, at))
    low.steps += nest(indices, [Compute(cell, at, ew.copy, (read,), src=call.src)])


def indirect(low: Lowering, arrays: Sequence[Operand], shape: tuple[int, ...], at: At) -> At:
    """The index into an array of `shape` that index arrays give, at an index of the result."""
    n = len(arrays[0].shape)
    entries = [Indirect(low.read(a, at[:n]), shape[k]) for k, a in enumerate(arrays)]
    return (*entries, *at[n:])


def check_ranges(
    low: Lowering, arrays: Sequence[Operand], shape: tuple[int, ...], call: Call
) -> None:
    for axis, array in enumerate(arrays):
        if not isinstance(array, Var) or (array, shape[axis]) in low.checked:
            continue
        low.checked.add((array, shape[axis]))
        n = shape[axis]
        message = f"an index is out of bounds for axis {axis} with size {n}"
        low.failures.append(Failure("index", message, call.src))
        flag = Cell((), np.dtype(bool), hint="bad", src=call.src)
        indices = indices_for(array.shape)
        at = at_indices(indices)
        low.steps.append(store(flag, (), False, call.src))
        least, most = (Read(None, (), Literal(np.int64(v))) for v in (-n, n))
        entry = low.read(array, at)
        low.steps += nest(
            indices,
            [
                Compute(flag, (), ew.less, (entry, least), "any", call.src),
                Compute(flag, (), ew.greater_equal, (entry, most), "any", call.src),
            ],
        )
        low.steps.append(CheckRange(flag, len(low.failures), call.src))


def scatter_add(low: Lowering, call: Call) -> None:
    cell = low.result(call)
    indices = indices_for(cell.shape)
    zero = cell.dtype.type(0)
    low.steps += nest(indices, [store(cell, at_indices(indices), zero, call.src)])
    add_scattered(low, cell, call)


def add_scattered(low: Lowering, cell: Cell, call: Call) -> None:
    y, *arrays = call.operands
    check_ranges(low, arrays, cell.shape, call)
    scatter(low, cell, y, arrays, "add", call)


def scatter(
    low: Lowering, cell: Cell, y: Operand, arrays: Sequence[Operand], combine: str, call: Call
) -> None:
    indices = indices_for(y.shape)
    at = at_indices(indices)
    target = indirect(low, arrays, cell.shape, at)
    low.steps += nest(
        indices, [Compute(cell, target, ew.copy, (low.read(y, at),), combine, call.src)]
    )


def scatter_set(low: Lowering, call: Call) -> None:
    x, y, *arrays = call.operands
    check_ranges(low, arrays, x.shape, call)
    scatter(low, low.writable(call, x), y, arrays, "", call)


def start_scattered(low: Lowering, cell: Cell, call: Call) -> bool:
    """Start a sum whose terms are all scattered. Returns whether this one, the first, is in it."""
    if isinstance(call.primitive, Place):
        fill_around(low, cell, call.primitive.index, call.src)
        into(low, cell, call.primitive.index, call.operands[0], "", call.src)
        return True
    indices = indices_for(cell.shape)
    zero = cell.dtype.type(0)
    low.steps += nest(indices, [store(cell, at_indices(indices), zero, call.src)])
    return False


def add_in_place(low: Lowering, cell: Cell, call: Call) -> None:
    """Add what a call scatters to a cell."""
    if isinstance(call.primitive, Place):
        into(low, cell, call.primitive.index, call.operands[0], "add", call.src)
    elif isinstance(call.primitive, PlaceDiagonal):
        onto_diagonal(low, cell, call, "add")
    else:
        add_scattered(low, cell, call)
