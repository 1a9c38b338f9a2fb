"""Lowering of routines. An operand that a kernel overwrites is copied first. The copy fuses with
the loop that computes the operand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tapegrad.ir.cells import At, Cell, Read
from tapegrad.ir.steps import Routine
from tapegrad.ir.tape import Call, Operand
from tapegrad.schedule.access import at_indices, indices_for, nest
from tapegrad.schedule.lowering import Lowering
from tapegrad.schedule.products import batch_at, matrix


def routine(low: Lowering, call: Call) -> None:
    """A kernel for each matrix of a batch. The batch is that of the first written array or
    number."""
    primitive: Any = call.primitive
    operands, takes = call.operands, matrix if primitive.strided else _whole
    read = [takes(low, operands[k]) for k in primitive.reads]
    cells = low.results(call)
    arrays, numbers = cells[: len(primitive.overwrites)], cells[len(primitive.overwrites) :]
    for k, name in enumerate(primitive.numbers):
        if name:
            numbers[k] = low.cells[call.outs[len(arrays) + k]] = replace(numbers[k], hint=name)
    for cell, start in zip(arrays, primitive.overwrites, strict=True):
        if start is not None:
            reader = partial(_started, low, operands[start], primitive.turned)
            low.copy_into(cell, reader, call.src)
    size = primitive.work(*[x.aval for x in operands])
    if size:
        arrays.append(Cell((size,), arrays[0].dtype, hint="work", src=call.src))

    batch = numbers[0].shape if numbers else arrays[0].shape[:-2]
    indices = indices_for(batch)
    at = at_indices(indices)

    def place(cell: Cell, first: At = ()) -> At:
        axes = 1 if cell.dtype == np.int32 else 2
        batch = cell.shape[len(first) : max(0, len(cell.shape) - axes)]
        return (*first, *batch_at(at, batch))

    given = [(c, place(c), False) for c in arrays]
    given += [(c, place(c, first), t) for c, first, t in read]
    step = Routine(primitive, tuple(given), len(arrays), tuple(numbers), at, call.src)
    low.steps += nest(indices, [step])


def _whole(low: Lowering, x: Operand) -> tuple[Cell, At, bool]:
    """An operand that the kernel reads as it is. If it is one matrix for the whole batch, it isn't
    repeated."""
    at = at_indices(indices_for(x.shape))
    read, core = low.read(x, at), 1 if x.dtype == np.int32 else 2
    further = len(at) - len(read.at)
    is_one = 0 < further <= len(at) - core and read.at == at[further:]
    if is_one and read.cell is not None and read.cell.shape == x.shape[further:]:
        return read.cell, (), False
    return low.materialized(x), (), False


def _started(low: Lowering, x: Operand, turned: bool, at: At) -> Read:
    """An operand, or its transpose, at an index of the array that starts as this operand."""
    return low.read_broadcast(x, (*at[:-2], at[-1], at[-2]) if turned else at)
