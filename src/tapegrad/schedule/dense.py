"""Lowering of calls that fill their result in order: elementwise calls, reductions, running sums,
regions, and calls of NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import At, Cell, Read
from tapegrad.ir.fold import PRODUCT, Fold
from tapegrad.ir.steps import ArgUpdate, Compute, PythonCall, Step
from tapegrad.ir.tape import Call, Literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.reductions import LONG_SUM
from tapegrad.schedule.access import at_indices, indices_for, nest, store
from tapegrad.schedule.lowering import Lowering

NONE: Mapping[int, int] = MappingProxyType({})


def elementwise(low: Lowering, call: Call) -> None:
    cell = low.result(call)
    indices = low.indices_of(call.out)
    at = at_indices(indices)
    reads = tuple(low.read_broadcast(x, at) for x in call.operands)
    low.steps += nest(indices, [Compute(cell, at, call.primitive, reads, src=call.src)])


def reduction(low: Lowering, call: Call) -> None:
    """A reduction accumulates in a register if the kept axes come before the reduced ones, else in
    the result."""
    (x,) = call.operands
    primitive: Any = call.primitive
    identity = primitive.fold.identity(call.out.dtype)
    rest = iter(low.fronts.of(call.out))
    front = [
        low.fronts.neutral(x, a, identity) if a in primitive.axes else next(rest)
        for a in range(len(x.shape))
    ]
    indices = indices_for(x.shape, front)
    fold(low, call, indices, primitive.axes, primitive.fold, ew.copy, lambda at: (low.read(x, at),))


def fold(
    low: Lowering,
    call: Call,
    indices: Sequence[Index],
    axes: tuple[int, ...],
    combine: Fold,
    primitive: Any,
    reads: Callable[[At], tuple[Read, ...]],
    order: Sequence[int] | None = None,
) -> None:
    """Fold `primitive(reads)` over `axes` of an iteration space. `order` is that of the loops."""
    cell = low.result(call)
    shape = tuple([index.extent for index in indices])
    at = at_indices(indices)
    order = list(range(len(shape)) if order is None else order)
    kept = [a for a in range(len(shape)) if a not in axes]
    target = tuple(at[a] for a in kept)
    # Reduced loops inside all kept ones, then the others.
    inner: list[int] = []
    while order and order[-1] in axes:
        inner.insert(0, order.pop())
    outer = order
    split = any(a in axes for a in outer)
    wide = cell.dtype == np.float32 and combine.wide
    if split:  # partial sums are an array of twice the memory, so only where it matters
        count = math.prod(shape[a] for a in axes)
        wide = wide and (count > LONG_SUM or any(shape[a] in low.open for a in axes))
    dtype = np.dtype(np.float64) if wide else cell.dtype
    identity = combine.identity(dtype)
    done = ew.AsType(cell.dtype) if wide else ew.copy
    if not split:
        acc = cell
        if wide or (inner and outer):  # a register, wherever the result is stored
            acc = Cell(cell.shape, dtype, src=call.src)
        body: list[Step] = [store(acc, target, identity, call.src)]
        body += nest(
            [indices[a] for a in inner],
            [Compute(acc, target, primitive, reads(at), combine, call.src)],
        )
        if acc is not cell:
            body.append(Compute(cell, target, done, (Read(acc, target),), src=call.src))
        low.steps += nest([indices[a] for a in outer], body)
        return
    total = Cell(cell.shape, dtype, hint=cell.hint, src=call.src) if wide else cell
    every = indices_for(cell.shape)
    each = at_indices(every)
    low.steps += nest(every, [store(total, each, identity, call.src)])
    if not inner:
        body = [Compute(total, target, primitive, reads(at), combine, call.src)]
    else:
        part = Cell(shape, dtype, src=call.src)
        part_at = tuple(at[a] if a in outer else Affine() for a in range(len(shape)))
        part = replace(part, shape=tuple(n if a in outer else 1 for a, n in enumerate(shape)))
        body = [store(part, part_at, identity, call.src)]
        body += nest(
            [indices[a] for a in inner],
            [Compute(part, part_at, primitive, reads(at), combine, call.src)],
        )
        body.append(Compute(total, target, ew.copy, (Read(part, part_at),), combine, call.src))
    low.steps += nest([indices[a] for a in outer], body)
    if wide:
        every = indices_for(cell.shape)
        each = at_indices(every)
        step = Compute(cell, each, done, (Read(total, each),), src=call.src)
        low.steps += nest(every, [step])


def running(low: Lowering, call: Call) -> None:
    """Running sums and products: one register that is carried along the axis."""
    *factors, x = call.operands
    primitive: Any = call.primitive
    axis, combine = primitive.axis, primitive.fold
    cell = low.result(call)
    count = cell.shape[axis]
    indices = indices_for(cell.shape)
    order = [a for a in range(len(indices)) if a != axis]
    acc = Cell(tuple(cell.shape[a] for a in order), cell.dtype, src=call.src)
    acc_at = tuple(at_indices([indices[a] for a in order]))

    def place(entry: Affine) -> At:
        at = list(at_indices(indices))
        at[axis] = -entry + (count - 1) if primitive.reverse else entry
        return tuple(at)

    def add(at: At, fold: Fold | None) -> list[Step]:
        return [
            Compute(acc, acc_at, ew.copy, (low.read(x, at),), fold, call.src),
            Compute(cell, at, ew.copy, (Read(acc, acc_at),), src=call.src),
        ]

    if not factors or not count:
        body: list[Step] = [store(acc, acc_at, combine.identity(cell.dtype), call.src)]
        body += nest([indices[axis]], add(place(Affine.of(indices[axis])), combine))
    else:  # a factor belongs to two adjacent entries, so the first entry has none
        step = Index(max(0, count - 1))
        at, between = place(Affine.of(step) + 1), list(at_indices(indices))
        between[axis] = -Affine.of(step) + (count - 2) if primitive.reverse else Affine.of(step)
        factor = low.read(factors[0], tuple(between))
        body = add(place(Affine()), None)
        body += nest(
            [step],
            [Compute(acc, acc_at, ew.copy, (factor,), PRODUCT, call.src), *add(at, combine)],
        )
    low.steps += nest([indices[a] for a in order], body)


def extremal(low: Lowering, call: Call) -> None:
    (x,) = call.operands
    primitive: Any = call.primitive
    cell = low.result(call)
    indices = indices_for(x.shape)
    at = at_indices(indices)
    order = [a for a in range(len(at)) if a != primitive.axis]
    target = tuple(at[a] for a in order)
    start = tuple(Affine() if a == primitive.axis else k for a, k in enumerate(at))
    best = Cell(cell.shape, x.dtype, src=call.src)
    body: list[Step] = [
        Compute(best, target, ew.copy, (low.read(x, start),), src=call.src),
        store(cell, target, 0, call.src),
    ]
    position = at[primitive.axis]
    assert isinstance(position, Affine)
    update = ArgUpdate(cell, best, target, low.read(x, at), position, primitive.better, call.src)
    body += nest([indices[primitive.axis]], [update])
    low.steps += nest([indices[a] for a in order], body)


def region(low: Lowering, call: Call) -> None:
    """`where(column <= row + offset, x, 0)`, or `>=` for an upper region."""
    primitive: Any = call.primitive
    cell = low.result(call)
    indices = indices_for(cell.shape)
    at = at_indices(indices)
    row, column = at[-2:]
    assert isinstance(row, Affine)
    inside = Cell(cell.shape, np.dtype(bool), src=call.src)
    reads = Read(None, (column,)), Read(None, (row + primitive.offset,))
    compare = ew.less_equal if primitive.lower else ew.greater_equal
    zero = Read(None, (), Literal(cell.dtype.type(0)))
    chosen = (Read(inside, at), low.read(call.operands[0], at), zero)
    steps: list[Step] = [
        Compute(inside, at, compare, reads, src=call.src),
        Compute(cell, at, ew.where, chosen, src=call.src),
    ]
    low.steps += nest(indices, steps)


def part(low: Lowering, call: Call) -> None:
    """A part with its fill, or without it if only the elements before the fill are read."""
    primitive: Any = call.primitive
    cell = low.new_cell(call.out, call, call.out.shape)
    front = low.fronts.counts[call.out]
    if call.out not in low.fronts.views:
        whole = indices_for(cell.shape)
        low.steps += nest(whole, [store(cell, at_indices(whole), primitive.fill, call.src)])
    x, indices = call.operands[0], indices_for(cell.shape, front)
    low.copy_into(cell, lambda at: low.read(x, low.in_larger(call, at)), call.src, indices)
    low.cells[call.out] = cell


def python_call(low: Lowering, call: Call, becomes: Mapping[int, int] = NONE) -> None:
    """A call of NumPy. `becomes` maps positions of operands to the results that NumPy writes in
    their place: these operands are copied into the results' memory first."""
    outs = [Cell(out.shape, out.dtype, src=call.src) for out in call.outs]
    places = {k: outs[result] for k, result in becomes.items()}
    reads: list[Cell | Literal] = []
    for k, x in enumerate(call.operands):
        if k in places:
            if not low.is_unset(x):
                low.copy_into(places[k], partial(low.read, x), call.src)
            reads.append(places[k])
        else:
            reads.append(x if isinstance(x, Literal) else low.materialized(x))
    low.cells.update(zip(call.outs, outs, strict=True))
    # A guard's assumption, such as the number of indices, must hold before NumPy is called.
    low.check_guards()
    low.steps.append(PythonCall(call.primitive, tuple(outs), tuple(reads), call.src))


def unset(low: Lowering, call: Call) -> None:
    """No step: each call that writes to unset memory allocates its own."""


def copied_view(low: Lowering, call: Call) -> None:
    """A copy of a view whose base is written to before the view is read."""
    cell = low.new_cell(call.out, call, call.out.shape)
    low.copy_into(cell, partial(low.read, call.out), call.src, low.indices_of(call.out))
    low.cells[call.out] = cell
