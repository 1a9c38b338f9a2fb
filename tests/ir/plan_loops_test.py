"""Loops whose number of rounds only a run knows, and loops over plans that were planned apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.ir.plans_by_hand import AT, N, alone, along, cell, plan, store, total

from tapegrad.backends.cpu.emit import emit
from tapegrad.backends.cpu.linking import linked
from tapegrad.backends.cpu.machine_code import machine_code
from tapegrad.errors import InternalError
from tapegrad.ir.allocation import Allocation
from tapegrad.ir.fold import PRODUCT, SUM
from tapegrad.ir.plan import (
    UNBOUNDED,
    Affine,
    Cell,
    CheckGuard,
    Compute,
    Failure,
    Index,
    Loop,
    Part,
    Plan,
    PlanCall,
    Read,
    Step,
    count_accesses,
)
from tapegrad.ir.plan_run import run_plan
from tapegrad.ir.plan_verify import verify_allocation, verify_plan
from tapegrad.ir.relocate import with_cells
from tapegrad.ir.tape import literal
from tapegrad.primitives.elementwise import add, copy, mul, not_equal
from tapegrad.schedule.buffers import assign

X, OUT = cell(role="input"), cell(role="output")
VALUES = np.arange(N) + 1.0
COUNT = Cell((), np.dtype(np.int64), "input", "n", scalar=True)


def zeros(out: Cell) -> Loop:
    index = Index(N)
    return Loop(index, (Compute(out, (Affine.of(index),), copy, ZERO),))


ZERO = (Read(None, (), literal(0.0, float)),)


def some(rounds: Read | None, out: Cell = OUT, source: Cell = X, extent: int = N) -> Loop:
    """for i < rounds: out[i] = source[i]"""
    index = Index(extent)
    at = (Affine.of(index),)
    return Loop(index, (store(out, at, source, at),), rounds=rounds)


OPEN = plan(zeros(OUT), some(Read(COUNT)))


def checked(made: Plan) -> Plan:
    return verify_plan(made)


def test_a_value_says_how_many_rounds():
    checked(OPEN)
    assert str(OPEN) == (
        "plan f(n, x) -> out\n"
        "  inp  n : i8[]\n"
        f"  inp  x : f8[{N}]\n"
        f"  out  out : f8[{N}]\n"
        f"  for i < {N}:\n"
        "    out[i] = 0.0 : f8\n"
        f"  for i < n of {N}:\n"
        "    out[i] = x[i] : f8"
    )
    for count in range(-1, N + 3):  # no more than there may be, whatever is asked for
        (found,) = run_plan(OPEN, [count, VALUES]).results
        np.testing.assert_array_equal(found, VALUES * (np.arange(N) < count))


def test_the_index_of_a_loop_around_says_it_too():
    """A triangle: out[i] = x[0] + ... + x[i - 1]."""
    outer, inner = Index(N), Index(N)
    term = Compute(OUT, (Affine.of(outer),), copy, (Read(X, (Affine.of(inner),)),), SUM)
    body = Loop(inner, (term,), rounds=Read(None, (Affine.of(outer),)))
    made = checked(plan(zeros(OUT), Loop(outer, (body,))))
    assert f"for j < i of {N}:" in str(made)
    (found,) = run_plan(made, [VALUES]).results
    np.testing.assert_array_equal(found, np.cumsum(VALUES) - VALUES)
    moved = body.substituted({outer: Affine.of(outer).scaled(1, 2)})
    assert moved.rounds == Read(None, (Affine(((outer, 1),), 2),))


def test_a_loop_over_no_array_needs_no_bound():
    t, result = total(), replace(total(), role="output", hint="out")
    index = Index(UNBOUNDED)
    grow = Compute(t, (), copy, (Read(None, (), literal(2.0, float)),), PRODUCT)
    made = plan(alone(t, 1.0), Loop(index, (grow,), rounds=Read(COUNT)), store(result, (), t))
    checked(made)
    assert "for i < n:" in str(made)
    assert run_plan(made, [10]).results[0] == 1024.0
    assert count_accesses(made) > UNBOUNDED


MALFORMED: dict[str, tuple[Plan, str]] = {
    "an index that leaves its array": (
        plan(zeros(OUT), some(Read(COUNT), extent=N + 1)),
        "an index of 0 to 6 leaves an axis of 6",
    ),
    "what isn't an integer": (
        plan(zeros(OUT), some(Read(X, (Affine(),)))),
        "x: a number of rounds isn't an integer",
    ),
    "what isn't there yet": (
        plan(zeros(OUT), some(Read(Cell((), np.dtype(np.int64), hint="k")))),
        "k: it is read before it is written in `for i < k of 6:`",
    ),
    "an index that no loop has": (
        plan(zeros(OUT), some(Read(None, (AT,)))),
        "an index is used outside its loop",
    ),
    "a loop that may do nothing": (
        plan(some(Read(COUNT))),
        "out: this result is never written",
    ),
    "what is read after a loop that may do nothing": (
        plan(some(Read(COUNT), t := cell()), along(OUT, t)),
        "t: it is read before it is written",
    ),
    "in parts": (
        plan(zeros(OUT), replace(some(Read(COUNT)), step=2)),
        "nobody knows its rounds, and it is cut into parts",
    ),
}


@pytest.mark.parametrize("made, message", MALFORMED.values(), ids=MALFORMED)
def test_a_loop_that_is_not_well_formed(made, message):
    if COUNT not in made.inputs and "n " not in str(made):
        made = replace(made, inputs=(*made.inputs, COUNT))
    with pytest.raises(InternalError, match=message):
        verify_plan(made)


def test_cells_of_a_loops_head_are_moved_with_the_rest():
    k = Cell((), np.dtype(np.int64), hint="k")
    made = plan(store(k, (), COUNT), zeros(OUT), some(Read(k)))
    other = replace(k, hint="other")
    assert f"for i < other of {N}:" in str(checked(with_cells(made, {k: other})))


def test_the_source_has_the_loop():
    """With a bound, so that no value lets it write beyond its array; and it compiles."""
    made = checked(OPEN)
    program = emit(made, assign(made))
    (kernel,) = program.kernels
    assert f"for i in range(min(n, {N})):" in kernel.text
    written: dict[str, Any] = {}
    exec(kernel.text, written)
    (code,) = machine_code(program).values()
    for run in (written[kernel.name], linked(kernel.name, code)):
        for count in (-1, 0, 4, N, N + 9):
            given = {"n": count, "x": VALUES, "out": np.empty(N)}
            assert run(*[given[name] for name in kernel.names]) == 0
            np.testing.assert_array_equal(given["out"], VALUES * (np.arange(N) < count))


# ---- plans that were planned by themselves


def scaled(by: float) -> Plan:
    """(t, x) -> (t * by + x, t)"""
    t, x = (replace(total(), role="input", hint=name, scalar=True) for name in "tx")
    new, old = (replace(total(), role="output", hint=name) for name in ("new", "old"))
    half = total()
    times = Compute(half, (), mul, (Read(t), Read(None, (), literal(by, float))))
    return plan(times, Compute(new, (), add, (Read(half), Read(x))), store(old, (), t))


BODY = scaled(0.5)
STATE = replace(total(), role="output", hint="state")


def scan(body: Plan, rounds: Read | None = None, **fields: Any) -> Plan:
    """state, ys[i] = body(state, xs[i]), from 1."""
    index = Index(N)
    at = (Affine.of(index),)
    step = PlanCall(body, ((STATE, ()), (X, at)), ((STATE, ()), (OUT, at)), **fields)
    return plan(alone(STATE, 1.0), zeros(OUT), Loop(index, (step,), rounds=rounds))


def expected(count: int = N) -> tuple[float, np.ndarray]:
    state, ys = 1.0, np.zeros(N)
    for i in range(count):
        ys[i] = state
        state = state * 0.5 + VALUES[i]
    return state, ys


def test_a_loop_over_a_plan_carries_what_it_reads_and_writes():
    made = checked(scan(BODY))
    state, ys = run_plan(made, [VALUES]).results
    assert (state, ys.tolist()) == (expected()[0], expected()[1].tolist())
    text = str(made)
    assert "    state, out[i] = @1(state, x[i])\n" in text
    assert text.endswith("\n\n@1 = " + str(BODY))
    assert count_accesses(made) > N * count_accesses(BODY)


@pytest.mark.parametrize("count", [0, 3, N])
def test_its_rounds_may_be_a_value(count):
    made = checked(scan(BODY, Read(COUNT)))
    state, ys = run_plan(made, [count, VALUES]).results
    assert (state, ys.tolist()) == (expected(count)[0], expected(count)[1].tolist())


def test_no_source_is_written_for_it_yet():
    made = checked(scan(BODY))
    with pytest.raises(InternalError, match="no source can be written for a PlanCall yet"):
        emit(made, assign(made))


def test_plans_call_plans_that_call_plans():
    def calling(inner: Plan) -> Plan:
        t, x = (replace(total(), role="input", hint=name, scalar=True) for name in "tx")
        new, old = (replace(total(), role="output", hint=name) for name in ("new", "old"))
        return plan(PlanCall(inner, ((t, ()), (x, ())), ((new, ()), (old, ()))))

    made = checked(scan(calling(calling(BODY))))
    state, ys = run_plan(made, [VALUES]).results
    assert (state, ys.tolist()) == (expected()[0], expected()[1].tolist())
    assert str(made).count("= plan f") == 3
    assert "@3(t, x)" in str(made)


def test_all_states_may_be_kept():
    """h[i + 1] = body(h[i]): what is written isn't what is read."""
    h = cell(N + 1, role="output", hint="h")
    first = Compute(h, (Affine(),), copy, ZERO)
    index = Index(N)
    at, after = (Affine.of(index),), (Affine.of(index).scaled(1, 1),)
    old = cell()
    step = PlanCall(BODY, ((h, at), (X, at)), ((h, after), (old, at)))
    made = checked(plan(first, Loop(index, (step,))))
    state = [0.0]
    for x in VALUES:
        state.append(state[-1] * 0.5 + x)
    assert run_plan(made, [VALUES]).results[0].tolist() == state


def stopping() -> Plan:
    """x -> x, unless x is 3."""
    x = replace(total(), role="input", hint="x", scalar=True)
    out = replace(total(), role="output", hint="y")
    three = Cell((), np.dtype(bool))
    compare = Compute(three, (), not_equal, (Read(x), Read(None, (), literal(3.0, float))))
    guard = CheckGuard(Read(three), literal(True, bool), 1)
    return replace(plan(compare, guard, store(out, (), x)), failures=(Failure("guard", "3", None),))


def guarded(first: int) -> Plan:
    index = Index(N)
    at = (Affine.of(index),)
    step = PlanCall(stopping(), ((X, at),), ((OUT, at),), first)
    failures = tuple(Failure("guard", name, None) for name in "ab")
    return replace(plan(Loop(index, (step,))), failures=failures)


def test_a_plan_that_stops_stops_the_one_around_it():
    made = checked(guarded(1))
    assert "@1(x[i]) or stop 2 to 2" in str(made)
    assert run_plan(made, [VALUES]).status == 2
    assert run_plan(made, [VALUES + 10]).status == 0
    assert run_plan(made, [VALUES], stops=False).status == 0
    with pytest.raises(InternalError, match="a status of the plan has no meaning"):
        verify_plan(guarded(2))


def call(**fields: Any) -> Step:
    given: dict[str, tuple[Part, ...]] = {
        "reads": ((STATE, ()), (X, (Affine(),))),
        "outs": ((STATE, ()), (OUT, (Affine(),))),
    }
    return PlanCall(BODY, **{**given, **fields})


WRONG: dict[str, tuple[Step, str]] = {
    "too few": (call(reads=((STATE, ()),)), "it passes 1 parts for 2 of the plan"),
    "another shape": (call(reads=((STATE, ()), (X, ()))), "x: it doesn't fit x of the plan"),
    "another dtype": (
        call(reads=((STATE, ()), (COUNT, ()))),
        "n: it doesn't fit x of the plan",
    ),
    "one cell twice": (call(outs=((STATE, ()), (STATE, ()))), "two results are written to one"),
    "out of bounds": (
        call(reads=((STATE, ()), (X, (Affine((), N),)))),
        "x: an index of 6 to 6 leaves an axis of 6",
    ),
    "not there yet": (
        call(reads=((total(), ()), (X, (Affine(),)))),
        "t: it is read before it is written",
    ),
    "a plan that isn't well formed": (
        replace(call(), plan=replace(BODY, steps=BODY.steps[:-1])),
        "old: this result is never written",
    ),
}


@pytest.mark.parametrize("step, message", WRONG.values(), ids=WRONG)
def test_a_call_that_is_not_well_formed(step, message):
    made = plan(alone(STATE, 1.0), zeros(OUT), step)
    with pytest.raises(InternalError, match=message):
        verify_plan(made)


def test_a_part_is_not_read_of_what_is_written_whole():
    whole = plan(along(cell(role="output"), cell(role="input")))
    pairs = cell(2, N, role="output", hint="pairs")
    row = (Affine(),)
    made = plan(PlanCall(whole, ((pairs, row),), ((pairs, ()),)))
    with pytest.raises(InternalError, match=r"it doesn't fit|a part of it is read"):
        verify_plan(replace(made, outputs=(pairs,)))


def test_what_is_carried_is_read_by_nobody_else_before_it_is_written_again():
    made = scan(BODY)
    (loop,) = made.steps[-1:]
    assert isinstance(loop, Loop)
    seen = cell(role="output", hint="seen")
    look = store(seen, (Affine.of(loop.index),), STATE)
    wrong = plan(*made.steps[:-1], replace(loop, body=(*loop.body, look)))
    with pytest.raises(InternalError, match="state: it was read before all its terms were in it"):
        run_plan(wrong, [VALUES])


def test_memory_of_a_plans_arguments_is_not_written_over_by_its_results():
    t, u = cell(hint="t"), cell(hint="u")
    copying = plan(along(cell(role="output"), cell(role="input")))
    made = plan(along(t, X), PlanCall(copying, ((t, ()),), ((u, ()),)), along(OUT, u))
    checked(made)
    apart = assign(made)
    verify_allocation(made, apart)
    home = apart.homes[t]
    with pytest.raises(InternalError, match="moves into its memory while it is needed"):
        verify_allocation(made, Allocation(apart.slots, {t: home, u: home}))
    moved = with_cells(made, {t: replace(t, hint="other")})
    assert "@1(other)" in str(checked(moved))
