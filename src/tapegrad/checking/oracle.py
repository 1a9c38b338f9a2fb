"""A tape played against its plan run as it is written: what TAPEGRAD_DEBUG holds schedules to.

The values of the inputs are drawn. The plan runs at the end, with its temporaries where they will
live and its registers nested as they will be; where it goes wrong, it runs once more after each
pass, so that the error names the one at fault. Programs of many elements aren't run: the same
passes make them, and verifying looks at all of them.
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
from tapegrad.ir.plan import Plan, count_accesses
from tapegrad.ir.steps import CheckGuard
from tapegrad.ir.tape import Aval, Literal, Operand, Tape
from tapegrad.primitives.kinds import Library

if TYPE_CHECKING:
    from tapegrad.backends.source.program import Program
    from tapegrad.ir.allocation import Allocation

MOST = 4000  # accesses that running a plan may take: some 10 ms
CLOSE: dict[Any, float] = {
    **dict.fromkeys([np.dtype(np.float64), np.dtype(np.complex128)], 1e-9),
    **dict.fromkeys([np.dtype(np.float32), np.dtype(np.complex64)], 1e-4),
}
# What is further apart is measured: a tape is played again with each value moved by as much as
# adding this many terms in another order may move it.
TERMS, RUNS, SAFETY = 1000, 4, 4
JUMP = 1e-2  # a result that rounding moves by this part of itself says nothing

Passes = Sequence[Callable[[Plan], Plan]]


def hold(program: Program, tape: Tape, first: Plan, passes: Passes) -> None:
    """An `InternalError` if the program of a tape isn't what the tape says. `first` is the plan
    that the passes started from."""
    plan, allocation = program.plan, program.allocation
    verify_allocation(plan, allocation, (), "assign")
    verify_allocation(plan, allocation, program.nested, "emit")
    if count_accesses(plan) > MOST:
        return
    for values in drawn(tape):
        if differs(tape, values, plan, allocation, program.nested):
            _name_the_pass(program, tape, values, first, passes)


def _name_the_pass(
    program: Program, tape: Tape, values: list[Any], first: Plan, passes: Passes
) -> None:
    plan, stage = first, "lower"
    for step in (*passes, None):
        found = differs(tape, values, plan)
        if found or step is None:
            break
        plan, stage = step(plan), getattr(step, "func", step).__name__
    if not found:
        plan = program.plan  # that of which it says where the cells are
        stage, found = "assign", differs(tape, values, plan, program.allocation)
    if not found:
        stage = "emit"
        found = differs(tape, values, plan, program.allocation, program.nested)
    raise InternalError(
        f"after {stage}, the plan of {tape.name} isn't the tape any more: {found}\n{tape}\n{plan}"
    )


def differs(
    tape: Tape,
    values: Sequence[Any],
    plan: Plan,
    allocation: Allocation | None = None,
    nested: set[Cell] | frozenset[Cell] = frozenset(),
) -> str:
    """In what way a plan computes something else than its tape, in words."""
    try:
        expected = _played(tape, values)
    except Exception as error:  # these values aren't for this program
        let_through(error)
        return ""
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
    moved = cache(partial(_played, tape, values))  # the first of them explains most differences
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


def drawn(tape: Tape) -> Iterator[list[Any]]:
    """Values for the inputs of a tape for which it can be played."""
    free = tape.free_inputs
    libraries = [call for call in tape.calls if isinstance(call.primitive, Library)]
    pivots = {x for call in libraries for x in call.operands if x.dtype == np.int32}
    trusted = any(getattr(call.primitive, "trusts", False) for call in tape.calls)
    for integers in ((0,),) if trusted else ((0, 1, -1), (0,)):
        rng = np.random.default_rng(len(tape.calls))
        values = [_drawn(v.aval, rng, integers) for v in free]
        for k, v in enumerate(free):
            if v in pivots:  # LAPACK trusts them
                values[k] = np.broadcast_to(np.arange(1, v.shape[-1] + 1, dtype=v.dtype), v.shape)
        values += tape.captured
        try:
            _played(tape, values)
        except Exception as error:  # an index out of range, a matrix that can't be decomposed
            let_through(error)
            continue
        yield values
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
    """A call of NumPy. A user's function isn't called for this, not in a loop either: another
    stands in for it."""
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
    """The results of a tape that a call holds."""
    known = _played(tape, values, moved)
    return [_value(x, known) for x in tape.outputs]


@quiet
def _played(tape: Tape, values: Sequence[Any], moved: int = 0) -> dict[int, Any]:
    """All variables of a tape, whether its guards hold or not; each moved a little, in one of
    several ways, if `moved` says so."""
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
    """Whether two results are one up to rounding, as far as that goes without looking closer."""
    x, y = np.asarray(found), np.asarray(expected)
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        return False
    rtol = CLOSE.get(y.dtype, 0.0)
    if not rtol:
        return bool(np.array_equal(x, y))
    return bool(np.allclose(x, y, rtol, 0.0, equal_nan=True))


@quiet
def _is_rounding(found: Any, expected: np.ndarray, moved: Sequence[Any]) -> bool:
    """Whether rounding explains how far two results are apart."""
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
