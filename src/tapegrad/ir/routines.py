"""What the routines of LAPACK that a plan calls read and compute, by the primitives that they stand
for. Operands that only carry derivatives are None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapegrad.ir.plan import Cell, Routine
from tapegrad.primitives import solving
from tapegrad.primitives.solving import LUSolve, TriangularSolve

# By name: the numbers of the arrays that are read, and what is computed of them. Results go into
# the arrays that the routine overwrites, then into its own results.
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


def routine_reads(step: Routine) -> tuple[Cell, ...]:
    """The arrays that a routine reads; pivots and work space it only writes."""
    return tuple(step.arrays[k][0] for k in ROUTINES[step.function][0])
