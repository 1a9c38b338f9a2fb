"""Lowering of writes into larger results, and of gathers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tapegrad.ir.cells import At, Cell, Indirect, Read
from tapegrad.ir.fold import ADD, ANY, Fold
from tapegrad.ir.plan import Failure
from tapegrad.ir.steps import CheckRange, Compute
from tapegrad.ir.tape import Call, Literal, Operand, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Slice
from tapegrad.primitives.kinds import Indexed, Moving
from tapegrad.primitives.views import index_map
from tapegrad.schedule.access import at_indices, entries, indices_for, nest, store
from tapegrad.schedule.fronts import Front, front_of, places
from tapegrad.schedule.lowering import Lowering


def scatter(low: Lowering, call: Call) -> None:
    primitive: Any = call.primitive
    if primitive.onto == "first":
        x = call.operands[0]
        if primitive.indexed:
            check_ranges(low, call.operands[2:], x.shape, call)
        adds = isinstance(primitive, Indexed) and primitive.adds
        cell = low.writable(call, x)
        if cell.role == "state":  # the written values may be read from this memory
            y = call.operands[1]
            found = low.read(y, at_indices(indices_for(y.shape))).cell
            if isinstance(y, Var) and found is cell:
                low.cells[y] = low.materialized(y)
        write(low, cell, call, ADD if adds else None)
        return
    cell = low.result(call)
    if primitive.onto == "zeros":
        fill_zeros(low, cell, call)
    # Index arrays may repeat a place.
    write(low, cell, call, ADD if primitive.indexed else None)


def write(low: Lowering, cell: Cell, call: Call, combine: Fold | None = None) -> None:
    """Write the operands of a scatter to a cell, or combine them with its elements."""
    primitive: Any = call.primitive
    written = call.operands[1 if primitive.onto == "first" else 0 :]
    if isinstance(primitive, Moving):
        found = places(call, low.affine)
        front = front_of(call, found) if found else ()
        put(low, cell, partial(low.in_larger, call), written[0], combine, call.src, front)
        return
    if boxes := primitive.boxes(*written):
        for index, x in zip(boxes, written, strict=True):
            put(low, cell, partial(index_map, index), x, combine, call.src)
        return
    y, *arrays = written
    if primitive.indexed:
        check_ranges(low, arrays, cell.shape, call)
        put(low, cell, partial(indirect, low, arrays, cell.shape), y, combine, call.src)
    else:
        put(low, cell, primitive.write, y, combine, call.src)


def put(
    low: Lowering,
    cell: Cell,
    place: Callable[[At], Iterable[Any]],
    y: Operand,
    combine: Fold | None,
    src: Any,
    front: Front = (),
) -> None:
    """Write each element of `y`, or of its leading elements in `front`, to its place in a cell, or
    combine it with the element there."""
    indices = indices_for(y.shape, front)
    at = at_indices(indices)
    target = entries(place(at))
    low.steps += nest(indices, [Compute(cell, target, ew.copy, (low.read(y, at),), combine, src)])


def fill_zeros(low: Lowering, cell: Cell, call: Call) -> bool:
    """Fill the cell to which a call writes with zeros, or if it writes one box, the elements around
    that. Returns whether it does the latter."""
    boxes = call.primitive.boxes(*call.operands)  # type: ignore[attr-defined]
    if boxes:
        (index,) = boxes
        fill_around(low, cell, index, call.src)
    else:
        fill(low, cell, call.src)
    return bool(boxes)


def fill(low: Lowering, cell: Cell, src: Any) -> None:
    """Fill the cell with zeros."""
    indices = indices_for(cell.shape)
    low.steps += nest(indices, [store(cell, at_indices(indices), cell.dtype.type(0), src)])


def start_scattered(low: Lowering, cell: Cell, call: Call) -> bool:
    """Start a sum whose terms are all scattered. Returns whether the first term, `call`, is
    written."""
    filled = fill_zeros(low, cell, call)
    if filled:
        write(low, cell, call)
    return filled


def fill_around(low: Lowering, cell: Cell, index: Any, src: Any) -> None:
    """Fill the elements outside of a box with zeros; all elements if the index has gaps."""
    boxes = [k if isinstance(k, Slice) else Slice(k, 1) for k in index]
    zero = cell.dtype.type(0)
    if any(k.step != 1 for k in boxes):
        fill(low, cell, src)
        return
    for axis, (k, n) in enumerate(zip(boxes, cell.shape, strict=True)):
        before = Slice(0, k.start)
        after = Slice(k.start + k.count, n - k.start - k.count)
        for edge in (before, after):
            if edge.count == 0:
                continue
            region = [*boxes[:axis], edge, *[Slice(0, m) for m in cell.shape[axis + 1 :]]]
            indices = indices_for([r.count for r in region])
            at = entries(index_map(region, at_indices(indices)))
            low.steps += nest(indices, [store(cell, at, zero, src)])


def lookup(low: Lowering, call: Call) -> None:
    """The elements of an array at index arrays."""
    x, *arrays = call.operands
    source = low.materialized(x)
    check_ranges(low, arrays, x.shape, call)
    place = partial(indirect, low, arrays, x.shape)
    low.copy_into(low.result(call), lambda at: Read(source, place(at)), call.src)


def indirect(low: Lowering, arrays: Sequence[Operand], shape: tuple[int, ...], at: At) -> At:
    """The index in an array of `shape` that index arrays contain at an index of the result."""
    n = len(arrays[0].shape)
    first = [Indirect(low.read(a, at[:n]), shape[k]) for k, a in enumerate(arrays)]
    return (*first, *at[n:])


def check_ranges(
    low: Lowering, arrays: Sequence[Operand], shape: tuple[int, ...], call: Call
) -> None:
    if call.primitive.sure:  # type: ignore[attr-defined]
        return
    for axis, array in enumerate(arrays):
        check_range(low, array, axis, shape[axis], call)


def check_range(low: Lowering, array: Operand, axis: int, n: int, call: Call) -> None:
    """Append a check that the integers in an array are indices of an axis of `n` elements."""
    if not isinstance(array, Var) or (array, n) in low.checked:
        return
    low.checked.add((array, n))
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
            Compute(flag, (), ew.less, (entry, least), ANY, call.src),
            Compute(flag, (), ew.greater_equal, (entry, most), ANY, call.src),
        ],
    )
    low.steps.append(CheckRange(flag, len(low.failures), call.src))
