"""Comparison of a tape, played, with its plan, run step by step; used under TAPEGRAD_DEBUG.

The input values are random. The final plan is run with its temporaries in their final memory and
its registers nested as they will be. If it is wrong, the plan is run after each pass, so that the
error names the pass at fault. Large programs aren't run: they are made by the same passes, and all
plans are verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.checking.plan_run import run_plan
from tapegrad.checking.plan_verify import verify_allocation
from tapegrad.core.handlers import let_through, quiet
from tapegrad.core.values import same_bits
from tapegrad.errors import InternalError
from tapegrad.ir.cells import Cell
from tapegrad.ir.plan import Plan, Recurrence, count_accesses
from tapegrad.ir.steps import CheckGuard, Step
from tapegrad.ir.tape import Aval, Literal, Operand, Tape
from tapegrad.primitives.kinds import Library

if TYPE_CHECKING:
    from tapegrad.backends.source.program import Program
    from tapegrad.ir.allocation import Allocation

MAX_ACCESSES = 4000  # memory accesses of a plan that is run: some 10 ms
CLOSE: dict[Any, float] = {
    **dict.fromkeys([np.dtype(np.float64), np.dtype(np.complex128)], 1e-9),
    **dict.fromkeys([np.dtype(np.float32), np.dtype(np.complex64)], 1e-4),
}
# If results differ by more, the tape is played again with each value perturbed by as much as adding
# this many terms in another order may change it.
TERMS, RUNS, SAFETY = 1000, 4, 4
JUMP = 1e-2  # a result that rounding changes by this fraction proves nothing

Passes = Sequence[Callable[[Plan], Plan]]


def hold(program: Program, tape: Tape, first: Plan, passes: Passes) -> None:
    """Raise an InternalError if the program doesn't compute what the tape says. `first` is the plan
    from which the passes started."""
    plan, allocation = program.plan, program.allocation
    verify_allocation(plan, allocation, (), "assign")
    verify_allocation(plan, allocation, program.nested, "emit")
    for step in plan.steps:
        _hold_rounds(step)
    if count_accesses(plan) > MAX_ACCESSES:
        return
    for values, played in drawn(tape):
        against = partial(differs, tape, values, played)
        if against(plan, allocation, program.nested):
            _name_the_pass(program, tape, against, first, passes)


def _hold_rounds(step: Step) -> None:
    """Verify the memory of a loop's rounds."""
    if isinstance(step, Recurrence):
        verify_allocation(step.plan, step.allocation, (), "assign")
        for inner in step.plan.steps:
            _hold_rounds(inner)


def _name_the_pass(
    program: Program, tape: Tape, against: Callable[..., str], first: Plan, passes: Passes
) -> None:
    plan, stage = first, "lower"
    for step in (*passes, None):
        found = against(plan)
        if found or step is None:
            break
        plan, stage = step(plan), getattr(step, "func", step).__name__
    if not found:
        plan = program.plan  # the plan to whose cells the allocation refers
        stage, found = "assign", against(plan, program.allocation)
    if not found:
        stage = "emit"
        found = against(plan, program.allocation, program.nested)
    raise InternalError(
        f"after {stage}, the plan of {tape.name} isn't the tape any more: {found}\n{tape}\n{plan}"
    )


def differs(
    tape: Tape,
    values: Sequence[Any],
    expected: dict[int, Any],
    plan: Plan,
    allocation: Allocation | None = None,
    nested: set[Cell] | frozenset[Cell] = frozenset(),
) -> str:
    """A description of how a plan's results differ from those of its tape, whose variables have
    the `expected` values, or ""."""
    try:
        found = run_plan(plan, values, allocation, nested, stops=False, call=called)
    except InternalError as error:
        return str(error)
    if found.status:
        return f"it stops with status {found.status}"
    stops = [
        not same_bits(found.checked[s.status], s.expected)
        for s in plan.steps
        if isinstance(s, CheckGuard)
    ]
    broken = [not same_bits(_value(g.operand, expected), g.expected) for g in tape.guards]
    results = [_value(x, expected) for x in tape.outputs]
    same = any(stops) == any(broken)
    if same and all(map(_is_close, found.results, results)):
        return ""
    moved = cache(partial(_played, tape, values))  # the first explains most differences
    if not same and all(
        same_bits(_value(g.operand, moved(seed)), g.expected) != one
        for seed in range(1, RUNS + 1)
        for g, one in zip(tape.guards, broken, strict=True)
    ):
        return "its guards are others"
    for k, (one, other) in enumerate(zip(found.results, results, strict=True)):
        others: list[Any] = []
        while not _is_rounding(one, np.asarray(other), others):
            if len(others) == RUNS:
                return f"output {k} is {one}, and should be {other}"
            others.append(_value(tape.outputs[k], moved(len(others) + 1)))
    return ""


# ---- values


def drawn(tape: Tape) -> Iterator[tuple[list[Any], dict[int, Any]]]:
    """Random input values with which the tape can be played, and the values of its variables."""
    free = tape.free_inputs
    libraries = [call for call in tape.calls if isinstance(call.primitive, Library)]
    pivots = {x for call in libraries for x in call.operands if x.dtype == np.int32}
    trusted = any(getattr(call.primitive, "trusts", False) for call in tape.calls)
    for integers in ((0,),) if trusted else ((0, 1, -1), (0,)):
        rng = np.random.default_rng(len(tape.calls))
        values = [_drawn(v.aval, rng, integers) for v in free]
        for k, v in enumerate(free):
            if v in pivots:  # pivots, which LAPACK doesn't check
                values[k] = np.broadcast_to(np.arange(1, v.shape[-1] + 1, dtype=v.dtype), v.shape)
        values += tape.captured
        try:
            played = _played(tape, values)
        except Exception as error:  # an index out of range, a matrix that can't be decomposed
            let_through(error)
            continue
        yield values, played
        return


def _drawn(aval: Aval, rng: np.random.Generator, integers: tuple[int, ...]) -> Any:
    if aval.dtype.kind == "f":
        return rng.uniform(0.5, 1.5, aval.shape).astype(aval.dtype)
    if aval.dtype.kind == "c":
        parts = rng.uniform(0.5, 1.5, (2, *aval.shape))
        return (parts[0] + 1j * parts[1]).astype(aval.dtype)
    if aval.dtype.kind == "b":
        return rng.integers(0, 2, aval.shape).astype(bool)
    return rng.choice(np.array(integers), aval.shape).astype(aval.dtype)


def called(primitive: Any, *xs: Any) -> Any:
    """Evaluate a primitive with NumPy. A user's function is never called for this, not in a loop
    either: another function stands in for it."""
    if primitive.tapes:
        return primitive.played(_inside, *xs)
    if not primitive.foreign:
        return primitive.evaluate(*xs)
    numbers = [np.asarray(x, float) for x in xs]
    total = sum(float(np.sum(x[np.isfinite(x)])) for x in numbers)
    found = tuple(_stand_in(aval, total) for aval in primitive.types)
    return found if primitive.results > 1 else found[0]


def _stand_in(aval: Aval, total: float) -> Any:
    if aval.dtype.kind != "f":
        return np.zeros(aval.shape, aval.dtype)
    return (0.5 + 0.01 * total + 0.1 * np.arange(aval.size)).astype(aval.dtype).reshape(aval.shape)


def _inside(tape: Tape, values: Sequence[Any], own: Any = (), moved: int = 0) -> list[Any]:
    """The results of a call's sub-tape."""
    known = _played(tape, values, moved)
    return [_value(x, known) for x in tape.outputs]


@quiet
def _played(tape: Tape, values: Sequence[Any], moved: int = 0) -> dict[int, Any]:
    """The values of all variables of a tape, whether its guards hold or not. If `moved` isn't 0, it
    selects a perturbation of the values."""
    env = {v.id: np.asarray(x, v.dtype) for v, x in zip(tape.inputs, values, strict=True)}

    def kept(x: Any) -> Any:
        x = np.asarray(x)
        if not moved or x.dtype.kind not in "fc":
            return x
        by = TERMS * np.finfo(x.dtype).eps
        return (x * (1 + by * np.sin(moved * 1e6 * np.abs(x)))).astype(x.dtype)

    for call in tape.calls:
        xs = [_value(x, env) for x in call.operands]
        held = call.primitive.tapes
        run = partial(_inside, moved=moved)
        found = call.primitive.played(run, *xs) if held else called(call.primitive, *xs)
        outs = found if isinstance(found, tuple) else (found,)
        if any(np.shape(x) != out.shape for out, x in zip(call.outs, outs, strict=True)):
            raise IndexError(f"{call.primitive} reads beyond its array")
        env.update((out.id, kept(x)) for out, x in zip(call.outs, outs, strict=True))
    return env


def _value(x: Operand, env: dict[int, Any]) -> Any:
    return x.value if isinstance(x, Literal) else env[x.id][()]


# ---- rounding


def _is_close(found: Any, expected: Any) -> bool:
    """Whether two results agree up to a fixed tolerance for rounding."""
    x, y = np.asarray(found), np.asarray(expected)
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        return False
    rtol = CLOSE.get(y.dtype, 0.0)
    if not rtol:
        return bool(np.array_equal(x, y))
    return bool(np.allclose(x, y, rtol, 0.0, equal_nan=True))


@quiet
def _is_rounding(found: Any, expected: np.ndarray, moved: Sequence[Any]) -> bool:
    """Whether rounding, as measured by the perturbed results `moved`, explains a difference."""
    if _is_close(found, expected):
        return True
    if np.shape(found) != expected.shape or not moved:
        return False
    wide = complex if expected.dtype.kind == "c" else float
    y = expected.astype(wide)
    off = np.abs(np.asarray(found, wide) - y)
    slack = SAFETY * np.max([np.abs(np.asarray(m, wide) - y) for m in moved], axis=0)
    least = CLOSE.get(expected.dtype, 0.0) * np.abs(y)
    says_nothing = ~np.isfinite(slack) | (slack > JUMP * np.abs(y))
    same = (found == expected) | (np.isnan(found) & np.isnan(y))
    says_nothing &= ~np.isnan(y) | np.any(~np.isnan(np.array(moved, wide)), axis=0)
    return bool(np.all(same | says_nothing | (off <= slack + least)))
