"""Lowering: each call of the tape becomes a loop nest of its own; views become indices.

Nothing is merged here. A nest iterates over its result's axes (a reduction over its operand's), in
row-major order, and reads its operands through the views that define them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.plan import Plan
from tapegrad.ir.tape import Call, Tape, Var
from tapegrad.primitives.kinds import (
    Composite,
    Contraction,
    Extremal,
    Lookup,
    ReadPart,
    Reduction,
    Region,
    Repeated,
    Routine,
    Running,
    Scatter,
    Unset,
    View,
)
from tapegrad.schedule import dense, gemm, loops, products, scatters, sums, systems
from tapegrad.schedule.loops import PlanRound
from tapegrad.schedule.lowering import Lowering
from tapegrad.schedule.pieces import find_pieces
from tapegrad.schedule.windows import find_windows

Rule = Callable[[Lowering, Call], None]

# The lowering of calls of each kind. Other kinds are calls of NumPy.
RULES: tuple[tuple[type, Rule], ...] = (
    (Composite, dense.python_call),  # one that wasn't expanded
    (Repeated, loops.loop),
    (Unset, dense.unset),
    (Reduction, dense.reduction),
    (Contraction, gemm.product),
    (Scatter, scatters.scatter),
    (Lookup, scatters.lookup),
    (Running, dense.running),
    (Extremal, dense.extremal),
    (Region, dense.region),
    (Routine, systems.routine),
)


def lower(
    tape: Tape,
    hints: Mapping[Var, str],
    plan_round: PlanRound,
    affine: Mapping[Var, Affine] | None = None,
    carried: int = 0,
    state: Collection[int] = (),
    among: tuple[Index, ...] = (),
) -> Plan:
    """The plan with one nest for each call.

    `hints` are names of variables for the emitted source; `plan_round` plans the bodies of loops.
    If the tape is such a body, `among` are the indices of the loops around it, and inputs that are
    `affine` numbers of these have no cells. The inputs after the step are `carried` values, this
    many, and the inputs numbered in `state` are updated in place.
    """
    low = Lowering(tape, hints, plan_round, affine or {}, carried, state, among)
    find_windows(low)
    sums.find_sums(low)
    find_pieces(low)
    for call in tape.calls:
        if call.outs and call.outs[0] in low.indices:
            pass  # an affine number of the steps around
        elif (rule := _rule(low, call)) is not None:
            rule(low, call)
        low.defined.update(call.outs)
    return low.plan()


def _rule(low: Lowering, call: Call) -> Rule | None:
    """The function that lowers a call. None for a call that is read through, or added in place."""
    primitive = call.primitive
    if _is_numpys(call):
        return dense.python_call
    chosen = low.chosen(call)
    if chosen is None:
        return dense.python_call
    for axis, step in chosen.items():
        scatters.check_range(low, step, axis, low.larger(call)[axis], call)
    if call.outs[0] in low.added:
        low.cells[call.out] = low.added[call.out]
        return None
    if call.outs[0] in low.windows or call.outs[0] in low.pieces:
        return None
    if call.outs[0] in low.sums:
        return sums.sum_in_place
    if call.outs[0] in low.inside:
        return sums.inner_sum
    if isinstance(primitive, ReadPart):
        view = call.outs[0] in low.fronts.views
        copied = call.outs[0] in low.copied and low.stays(call.operands[0])
        return None if view and not copied else dense.part
    if call.outs[0] in low.copied and low.stays(call.operands[0]):
        return dense.copied_view
    if isinstance(primitive, View) or call.outs[0] in low.absorbed:
        return None
    if primitive.scalar:
        return dense.elementwise
    return next((rule for kind, rule in RULES if isinstance(primitive, kind)), dense.python_call)


def _is_numpys(call: Call) -> bool:
    """Whether a call is left to NumPy: kernels have routines for real numbers only, and not all
    functions of complex ones."""
    if isinstance(call.primitive, Routine) and all(x.dtype.kind != "f" for x in call.operands):
        return True
    if not any(x.dtype.kind == "c" for x in (*call.outs, *call.operands)):
        return False
    primitive = call.primitive
    own = getattr(primitive, "numpys", False) or isinstance(primitive, Routine)
    return own or products.is_large(call)
