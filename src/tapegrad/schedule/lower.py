"""Lowering: each call of the tape becomes a loop nest of its own; views become indices.

Nothing is merged here. A nest iterates over its result's axes (a reduction over its operand's), in
row-major order, and reads its operands through whatever views stand between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tapegrad.ir.plan import Plan
from tapegrad.ir.tape import Call, Tape, Var
from tapegrad.primitives.base import Elementwise, Reduction
from tapegrad.primitives.contractions import MatMul
from tapegrad.primitives.elementwise import AsType
from tapegrad.primitives.reductions import ArgMax, ArgMin, CumProd, CumSum
from tapegrad.primitives.scatter import (
    Concatenate,
    Gather,
    Place,
    PlaceDiagonal,
    ScatterAdd,
    ScatterSet,
    SetItem,
)
from tapegrad.primitives.solving import (
    LU,
    Cholesky,
    CholeskyPullback,
    InverseT,
    LUSolve,
    SLogDet,
    Triangle,
    TriangularSolve,
)
from tapegrad.schedule import dense, scatters, sums, systems
from tapegrad.schedule.access import THROUGH
from tapegrad.schedule.lowering import Lowering

Rule = Callable[[Lowering, Call], None]


def lower(tape: Tape, hints: Mapping[Var, str] | None = None) -> Plan:
    """The plan of one nest a call. `hints` are names for variables, for the emitted source."""
    low = Lowering(tape, hints or {})
    sums.find_sums(low)
    for call in tape.calls:
        rule = _rule(low, call)
        if rule is not None:
            rule(low, call)
        low.defined.update(call.outs)
    return low.plan()


def _rule(low: Lowering, call: Call) -> Rule | None:
    """What lowers this call; None for what is read through, or added in place."""
    primitive = call.primitive
    if call.outs[0] in low.sums:
        return sums.sum_in_place
    if call.outs[0] in low.inside:
        return sums.inner_sum
    if type(primitive) in THROUGH or call.outs[0] in low.absorbed:
        return None
    if isinstance(primitive, AsType) or (isinstance(primitive, Elementwise) and primitive.scalar):
        return dense.elementwise
    if isinstance(primitive, Reduction):
        return dense.reduction
    return _RULES.get(type(primitive), dense.python_call)


_RULES: dict[type, Rule] = {
    MatMul: dense.matmul,
    CumSum: dense.running,
    CumProd: dense.running,
    ArgMax: dense.arg,
    ArgMin: dense.arg,
    Place: scatters.place,
    PlaceDiagonal: scatters.place_diagonal,
    SetItem: scatters.setitem,
    Concatenate: scatters.concatenate,
    Gather: scatters.gather,
    ScatterAdd: scatters.scatter_add,
    ScatterSet: scatters.scatter_set,
    Triangle: systems.triangle,
    TriangularSolve: systems.triangular_solve,
    Cholesky: systems.cholesky,
    CholeskyPullback: systems.cholesky_pullback,
    LU: systems.lu,
    LUSolve: systems.lu_solve,
    InverseT: systems.inverse_t,
    SLogDet: systems.slogdet,
}
