"""Lowering of linear systems: operands are copied to where LAPACK overwrites them, and the copy
fuses with whatever computes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.ir.plan import Affine, At, Cell, Compute, Read, Routine
from tapegrad.ir.tape import Call, Literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives import solving
from tapegrad.primitives.solving import LUSolve, TriangularSolve
from tapegrad.schedule.access import at_indices, indices_for, nest
from tapegrad.schedule.dense import batch_at, matrix
from tapegrad.schedule.lowering import Lowering

WORK = 64  # columns of the work space of getri: its block size

# LAPACK's routines by name: the numbers of the arrays that are read, and what is computed of them,
# by the primitives that they stand for. Operands that only carry derivatives are None.
ROUTINES: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "cholesky": ((0,), lambda a: solving.cholesky.evaluate(a)),
    "cholesky_pullback": (
        (0, 1),
        lambda ct, factor: solving.cholesky_pullback.evaluate(factor, ct),
    ),
    "lu": ((0,), lambda transposed: solving.LU().evaluate(transposed.T)),
    "lu_solve": ((0, 1, 2), lambda b, f, p: LUSolve().evaluate(None, f, p, b)),
    "lu_solve_transposed": ((0, 1, 2), lambda b, f, p: LUSolve(True).evaluate(None, f, p, b)),
    "inverse_t": ((0, 2), lambda f, p: (solving.inverse_t.evaluate(None, f, p), None)),
    "slogdet": ((0, 1), lambda f, p: solving.slogdet.evaluate(None, f, p)),
    "solve_lower": ((0, 1), lambda b, t: TriangularSolve(True).evaluate(t, b)),
    "solve_upper": ((0, 1), lambda b, t: TriangularSolve(False).evaluate(t, b)),
    "solve_unit_lower": ((0, 1), lambda b, t: TriangularSolve(True, True).evaluate(t, b)),
    "solve_unit_upper": ((0, 1), lambda b, t: TriangularSolve(False, True).evaluate(t, b)),
}


def triangle(low: Lowering, call: Call) -> None:
    """`where(column <= row + offset, x, 0)`, or `>=`."""
    primitive: Any = call.primitive
    cell = low.result(call)
    indices = indices_for(cell.shape)
    at = at_indices(indices)
    row, column = at[-2:]
    assert isinstance(row, Affine)
    inside = Cell(cell.shape, np.dtype(bool), src=call.src)
    reads = Read(None, (column,)), Read(None, (row.scaled(1, primitive.offset),))
    compare = ew.less_equal if primitive.lower else ew.greater_equal
    zero = Read(None, (), Literal(cell.dtype.type(0)))
    chosen = (Read(inside, at), low.read(call.operands[0], at), zero)
    steps = [
        Compute(inside, at, compare, reads, src=call.src),
        Compute(cell, at, ew.where, chosen, src=call.src),
    ]
    low.steps += nest(indices, [*steps])


def routine(
    low: Lowering,
    call: Call,
    function: str,
    written: list[Cell],
    read: list[tuple[Cell, bool]],
    results: tuple[Cell, ...] = (),
) -> None:
    """A routine on each matrix of a batch, which is that of the first array written or result.
    Arrays are (..., rows, columns), pivots have one axis less, and work space has no batch."""
    batch = results[0].shape if results else written[0].shape[:-2]
    indices = indices_for(batch)
    at = at_indices(indices)

    def place(cell: Cell) -> At:
        axes = 1 if cell.dtype == np.int32 else 2
        return batch_at(at, cell.shape[: max(0, len(cell.shape) - axes)])

    arrays = [(c, place(c), False) for c in written] + [(c, place(c), t) for c, t in read]
    reads, evaluate = ROUTINES[function]
    step = Routine(function, tuple(arrays), len(written), results, at, reads, evaluate, call.src)
    low.steps += nest(indices, [step])


def cholesky(low: Lowering, call: Call) -> None:
    (x,) = call.operands
    factor, flag = low.results(call)
    failed = low.cells[call.outs[1]] = replace(flag, hint="failed")
    low.copy_into(factor, lambda at: low.read(x, at), call.src)
    routine(low, call, "cholesky", [factor], [], (failed,))


def cholesky_pullback(low: Lowering, call: Call) -> None:
    factor, ct = call.operands
    triangle = low.materialized(factor)
    cell = low.result(call)
    low.copy_into(cell, lambda at: low.read(ct, at), call.src)
    routine(low, call, "cholesky_pullback", [cell], [(triangle, False)])


def triangular_solve(low: Lowering, call: Call) -> None:
    t, b = call.operands
    primitive: Any = call.primitive
    stored, swapped = matrix(low, t)
    cell = low.result(call)
    low.copy_into(cell, lambda at: low.read_broadcast(b, at), call.src)
    unit = "unit_" if primitive.unit else ""
    function = f"solve_{unit}{'lower' if primitive.lower else 'upper'}"
    routine(low, call, function, [cell], [(stored, swapped)])


def lu(low: Lowering, call: Call) -> None:
    (x,) = call.operands
    factors, pivots = low.results(call)
    low.copy_into(factors, lambda at: low.read(x, (*at[:-2], at[-1], at[-2])), call.src)
    routine(low, call, "lu", [factors, pivots], [])


def lu_solve(low: Lowering, call: Call) -> None:
    _, factors, pivots, b = call.operands
    stored = [(low.materialized(x), False) for x in (factors, pivots)]
    cell = low.result(call)
    low.copy_into(cell, lambda at: low.read_broadcast(b, at), call.src)
    primitive: Any = call.primitive
    function = "lu_solve_transposed" if primitive.transposed else "lu_solve"
    routine(low, call, function, [cell], stored)


def inverse_t(low: Lowering, call: Call) -> None:
    _, factors, pivots = call.operands
    stored = low.materialized(pivots)
    cell = low.result(call)
    low.copy_into(cell, lambda at: low.read(factors, at), call.src)
    work = Cell((WORK * cell.shape[-1],), cell.dtype, hint="work", src=call.src)
    routine(low, call, "inverse_t", [cell, work], [(stored, False)])


def slogdet(low: Lowering, call: Call) -> None:
    _, factors, pivots = call.operands
    stored = [(low.materialized(x), False) for x in (factors, pivots)]
    routine(low, call, "slogdet", [], stored, tuple(low.results(call)))
