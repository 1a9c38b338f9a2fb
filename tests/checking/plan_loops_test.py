"""Recurrences: rounds that were planned by themselves, each on what the last one left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.ir.plans_by_hand import N, alone, along, cell, plan, store

from tapegrad.backends.cpu.linking import linked
from tapegrad.backends.cpu.machine_code import machine_code
from tapegrad.backends.source.emit import emit
from tapegrad.checking.plan_run import run_plan
from tapegrad.checking.plan_verify import verify_allocation, verify_plan
from tapegrad.errors import InternalError
from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.allocation import Allocation, Home, Slot
from tapegrad.ir.cells import Cell, Read
from tapegrad.ir.plan import Failure, Plan, Recurrence, count_accesses, with_cells
from tapegrad.ir.steps import CheckGuard, Compute, Loop, Step
from tapegrad.ir.tape import Literal, literal
from tapegrad.primitives.elementwise import add, copy, less, mul, not_equal
from tapegrad.schedule.buffers import assign

VALUES = np.arange(N) + 1.0
I8, B1 = np.dtype(np.int64), np.dtype(bool)
T = Index(N)
NOW = Affine.of(T)  # the number of the round
X, OUT = cell(role="input", hint="x"), cell(role="output", hint="out")
COUNT = Cell((), I8, "input", "n", scalar=True)


def value(x: Any) -> Read:
    return Read(None, (), literal(x, I8 if type(x) is int else float))


def number(role: str, hint: str, dtype: Any = float) -> Cell:
    return Cell((), np.dtype(dtype), role, hint, scalar=role == "input")


def round_(inputs: Sequence[Cell], outputs: Sequence[Cell], *steps: Step, **fields: Any) -> Plan:
    return Plan("round", tuple(inputs), tuple(outputs), steps, **{"among": (T,), **fields})


def recurrence(inner: Plan, reads: Sequence[Read], outs: Sequence[Cell], **fields: Any) -> Step:
    """By default N rounds, in which arrays stay in place."""
    arrays = [c for c in outs if c.shape]
    numbers = iter(range(len(arrays)))
    homes = tuple([next(numbers) if c.shape else None for c in outs])
    given = {
        "rounds": value(N),
        "places": tuple(arrays),
        "homes": homes,
        "leaves": homes,
        "turns": tuple(range(len(arrays))),
        "allocation": Allocation((), {}),
    }
    return Recurrence(T, inner, reads=tuple(reads), outs=tuple(outs), **{**given, **fields})


def results(made: Plan, *values: Any) -> list[Any]:
    """What a plan computes: run as it is written, also in the memory that temporaries share, and as
    machine code."""
    found = run_plan(verify_plan(made), values)
    program = emit(made, assign(made))
    verify_allocation(made, program.allocation)
    shared = run_plan(made, values, program.allocation, program.nested)
    (kernel,), machine = program.kernels, machine_code(program)
    (code,) = machine.kernels.values()
    given = dict(zip(made.inputs, values, strict=True))
    memory = {
        p: np.empty(p.size if isinstance(p, Slot) else p.shape, p.dtype) for p in kernel.parameters
    }
    call = linked(kernel.name, code, machine.shared)
    status = call(*[given.get(p, memory[p]) for p in kernel.parameters])
    assert found.status == shared.status == status
    if status:
        return [status]
    compiled = [memory[cell] for cell in made.outputs]
    for one in (shared.results, compiled):
        for a, b in zip(one, found.results, strict=True):
            np.testing.assert_array_equal(a, b)
    return [x.tolist() for x in found.results]


# ---- numbers

S, NEW = number("input", "s"), number("output", "new")


def halving() -> Plan:
    """s -> s * 0.5 + x[t]"""
    half, inside = Cell((), np.dtype(float), hint="half"), replace(X, id=-1)
    times = Compute(half, (), mul, (Read(S), value(0.5)))
    return round_(
        [S, inside], [NEW], times, Compute(NEW, (), add, (Read(half), Read(inside, (NOW,))))
    )


HALVING = halving()
SUM = number("output", "sum")


def halved(**fields: Any) -> Plan:
    return plan(recurrence(HALVING, [value(1.0), Read(X)], [SUM], **fields))


def expected(steps: Sequence[int]) -> float:
    s = 1.0
    for t in steps:
        s = s * 0.5 + VALUES[t]
    return s


def test_a_number_is_carried():
    made = halved()
    assert results(made, VALUES) == [expected(range(N))]
    assert str(made) == (
        "plan f(x) -> sum\n"
        f"  inp  x : f8[{N}]\n"
        "  out  sum : f8[]\n"
        f"  sum = for i < {N}: @1(1.0, x)\n"
        "\n"
        "@1 = plan round(s, x) -> new\n"
        "  inp  s : f8[]\n"
        f"  inp  x : f8[{N}]\n"
        "  out  new : f8[]\n"
        "  half = mul(s, 0.5) : f8\n"
        "  new[()] = add(half, x[i]) : f8"
    )
    assert count_accesses(made) > N * count_accesses(HALVING)


def test_rounds_may_count_down():
    made = halved(backwards=True)
    assert f"for i < {N} down: @1" in str(made)
    assert results(made, VALUES) == [expected(range(N)[::-1])]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_value_says_how_many_rounds(backwards):
    """No more than there may be, whatever is asked for."""
    made = halved(rounds=Read(COUNT), backwards=backwards)
    assert f"for i < n of {N}{' down' * backwards}: @1" in str(made)
    for count in range(-1, N + 3):
        steps = range(min(count, N))
        found = results(made, *[{COUNT: count, X: VALUES}[c] for c in made.inputs])
        assert found == [expected(steps[::-1] if backwards else steps)]


def test_it_may_end_before():
    """s -> s * 0.5 + x[t], as long as s is less than 5"""
    going = Cell((), B1, "output", "going")
    plan_ = replace(
        HALVING,
        outputs=(NEW, going),
        steps=(*HALVING.steps, Compute(going, (), less, (Read(NEW), value(5.0)))),
    )
    made, more = Cell((), I8, "output", "made"), Cell((), B1, "output", "more")
    start = Cell((), B1, "input", "start", scalar=True)
    step = recurrence(plan_, [value(1.0), Read(X)], [SUM, made, more], until=Read(start))
    step = replace(step, homes=(None,), leaves=(None,))
    whole = plan(step)
    assert f"for i < {N} while start: @1" in str(whole)

    def found(start: bool, values: Any) -> Any:
        given = {step.until.cell: start, X: values}
        return results(whole, *[given[c] for c in whole.inputs])

    assert found(True, VALUES) == [expected(range(4)), 4, False]
    assert found(False, VALUES) == [1.0, 0, False]
    assert found(True, 0 * VALUES) == [0.5**N, N, True]


def test_the_rounds_number_is_a_number():
    """s -> s + t"""
    inner = round_([S], [NEW], Compute(NEW, (), add, (Read(S), Read(None, (NOW,)))))
    made = plan(recurrence(inner, [value(1.0)], [SUM]))
    assert "add(s, i)" in str(made)
    assert results(made) == [1.0 + sum(range(N))]


def test_two_numbers_change_places():
    a, b = number("input", "a"), number("input", "b")
    c, d = number("output", "c"), number("output", "d")
    one, two = number("output", "one"), number("output", "two")
    inner = round_([a, b], [c, d], store(c, (), b), Compute(d, (), add, (Read(a), Read(b))))
    made = plan(recurrence(inner, [value(0.0), value(1.0)], [one, two]))
    assert results(made) == [8.0, 13.0]  # of Fibonacci


# ---- arrays


def test_an_array_is_written_in_place():
    """u[t] = u[t - 1] + x[t]"""
    u, inside = cell(N + 1, role="state", hint="u"), cell(role="input", hint="x")
    term = Compute(u, (NOW + 1,), add, (Read(u, (NOW,)), Read(inside, (NOW,))))
    inner = round_([u, inside], [u], term)
    out = cell(N + 1, role="output", hint="out")
    index = Index(N + 1)
    zeros = Loop(index, (Compute(out, (Affine.of(index),), copy, (value(0.0),)),))
    made = plan(zeros, recurrence(inner, [Read(out), Read(X)], [out]))
    assert results(made, VALUES) == [[0.0, *np.cumsum(VALUES)]]


def doubling() -> tuple[Plan, Cell, Cell]:
    """old -> new, where new[j] = old[5 - j] * 2"""
    old, new = cell(role="input", hint="old"), cell(role="output", hint="new")
    j = Index(N)
    term = Compute(new, (Affine.of(j),), mul, (Read(old, (-Affine.of(j) + (N - 1),)), TWO))
    return round_([old], [new], Loop(j, (term,))), old, new


TWO = value(2.0)


def turned(rounds: Read, places: Sequence[Cell], **fields: Any) -> Plan:
    """Two places that change."""
    inner, _, _ = doubling()
    begins = along(places[0], X)
    ways = {"places": tuple(places), "homes": (0,), "leaves": (1,), "turns": (1, 0)}
    step = recurrence(inner, [Read(places[0])], [OUT], rounds=rounds, **{**ways, **fields})
    return plan(begins, step)


@pytest.mark.parametrize("rounds", [0, 1, 4, 5])
def test_arrays_turn_round_in_places(rounds):
    """They start where they have to for them to end in their own memory."""
    other = cell(hint="other")
    made = turned(value(rounds), (other, OUT) if rounds % 2 else (OUT, other))
    swap = "other, out = out, other" if rounds % 2 else "out, other = other, out"
    assert f"with {swap}" in str(made)
    assert results(made, VALUES) == [(2**rounds * VALUES[:: 1 - 2 * (rounds % 2)]).tolist()]
    assert count_accesses(made) < count_accesses(turned(value(rounds), made.steps[1].places)) + 1


@pytest.mark.parametrize("rounds", [0, 1, 4, 5])
def test_where_they_end_need_not_be_known(rounds):
    one, other = cell(hint="one"), cell(hint="other")
    made = turned(Read(COUNT), (one, other))
    found = results(made, *[{COUNT: rounds, X: VALUES}[c] for c in made.inputs])
    assert found == [(2**rounds * VALUES[:: 1 - 2 * (rounds % 2)]).tolist()]


def test_one_is_written_where_another_was():
    """(a, b) -> (b, a + b), and a + b stands where a was."""
    a, b = cell(role="input", hint="a"), cell(role="input", hint="b")
    both = cell(role="output", hint="both")
    inner = round_([a, b], [b, both], along(both, a, b))
    one, two = cell(role="output", hint="one"), cell(role="output", hint="two")
    step = recurrence(
        inner,
        [Read(one), Read(two)],
        [one, two],
        leaves=(1, 0),
        turns=(1, 0),
        allocation=Allocation((), {both: Home(a, 0)}),
    )
    made = plan(along(one, X), along(two, X, X), step)
    assert results(made, VALUES) == [(13 * VALUES + 8 * VALUES).tolist(), (34 * VALUES).tolist()]


def test_temporaries_of_a_round_live_in_scratch_memory():
    """u -> u[::-1] + 1, by way of t"""
    u, t, j = cell(role="state", hint="u"), cell(hint="t"), Index(N)
    back = Compute(t, (Affine.of(j),), copy, (Read(u, (-Affine.of(j) + (N - 1),)),))
    k = Index(N)
    more = Compute(u, (Affine.of(k),), add, (Read(t, (Affine.of(k),)), value(1.0)))
    inner = round_([u], [u], Loop(j, (back,)), Loop(k, (more,)))
    allocation = assign(inner)
    scratch = tuple([Cell((slot.size,), slot.dtype) for slot in allocation.slots])
    assert len(scratch) == 1
    step = recurrence(inner, [Read(OUT)], [OUT], allocation=allocation, scratch=scratch)
    made = plan(along(OUT, X), replace(step, rounds=value(3)))
    assert results(made, VALUES) == [(VALUES[::-1] + 3).tolist()]


def test_recurrences_inside_others():
    """s -> the sum of x[t] + u, for all u up to 3, on top of s"""
    u = Index(3)
    a, after = number("input", "a"), number("output", "after")
    half, inside = Cell((), np.dtype(float)), cell(role="input", hint="y")
    inner = replace(
        round_(
            [a, inside],
            [after],
            Compute(half, (), add, (Read(a), Read(inside, (NOW,)))),
            Compute(after, (), add, (Read(half), Read(None, (Affine.of(u),)))),
        ),
        among=(T, u),
    )
    y = cell(role="input", hint="y")
    step = replace(recurrence(inner, [Read(S), Read(y)], [NEW]), index=u, rounds=value(3))
    outer = round_([S, y], [NEW], step)
    made = plan(recurrence(outer, [value(0.0), Read(X)], [SUM]))
    assert str(made).count("= plan round") == 2
    assert results(made, VALUES) == [3 * sum(VALUES) + 3 * N]


def stopping(first: int = 1) -> Plan:
    """s -> x[t], unless that is 3."""
    inside, three = cell(role="input", hint="x"), Cell((), B1)
    compare = Compute(three, (), not_equal, (Read(inside, (NOW,)), value(3.0)))
    guard = CheckGuard(Read(three), literal(True, bool), 1)
    inner = round_(
        [S, inside],
        [NEW],
        compare,
        guard,
        store(NEW, (), inside, (NOW,)),
        failures=(Failure("guard", "3", None),),
    )
    step = recurrence(inner, [value(0.0), Read(X)], [SUM], first=first)
    return replace(plan(step), failures=tuple(Failure("guard", name, None) for name in "ab"))


def test_a_round_that_stops_stops_all():
    made = stopping()
    assert "@1(0.0, x) or stop 2 to 2" in str(made)
    assert results(made, VALUES) == [2]
    assert results(made, VALUES + 10) == [VALUES[-1] + 10]
    assert run_plan(made, [VALUES], stops=False).status == 0


# ---- what isn't well formed

OTHER = cell(hint="other")
FLAG = Cell((), B1, "input", "flag", scalar=True)


def recurrence_of(made: Plan) -> Recurrence:
    (step,) = [s for s in made.steps if isinstance(s, Recurrence)]
    return step


TURNED = turned(value(5), (OTHER, OUT))
PAIR = plan(
    along(OUT, X),
    along(pair := cell(role="output", hint="pair"), X),
    recurrence(
        round_(
            [u := cell(role="state", hint="u"), v := cell(role="state", hint="v")],
            [u, v],
            along(u, v),
        ),
        [Read(OUT), Read(pair)],
        [OUT, pair],
    ),
)

WRONG: dict[str, tuple[Plan, dict[str, Any], str]] = {
    "its plan isn't well formed": (
        halved(),
        {"plan": replace(HALVING, steps=HALVING.steps[:-1])},
        "new: this result is never written",
    ),
    "other indices": (halved(), {"index": Index(N)}, "its plan stands among other indices"),
    "too few values": (halved(), {"reads": (value(1.0),)}, "what it passes doesn't fit its plan"),
    "another shape": (
        halved(),
        {"reads": (value(1.0), Read(X, (Affine(),)))},
        "what it passes doesn't fit its plan",
    ),
    "another dtype": (
        halved(),
        {"reads": (Read(COUNT), Read(X))},
        "what it passes doesn't fit its plan",
    ),
    "not what it takes": (
        halved(),
        {"outs": (Cell((), I8, "output", "sum"),)},
        "a round doesn't leave what it takes",
    ),
    "a status too many": (stopping(), {"first": 2}, "a status of its plan has no meaning"),
    "a condition that its plan doesn't tell": (
        halved(),
        {"until": Read(FLAG)},
        "it has no condition, or leaves no count",
    ),
    "rounds that aren't an integer": (
        halved(),
        {"rounds": Read(FLAG)},
        "flag: a number of rounds isn't an integer",
    ),
    "one place twice": (TURNED, {"places": (OUT, OUT)}, "its places don't go round"),
    "places that meet": (TURNED, {"turns": (1, 1)}, "its places don't go round"),
    "a number with a place": (
        halved(),
        {"homes": (0,), "leaves": (0,), "places": (OTHER,), "turns": (0,)},
        "sum: an array has no place, or a number has one",
    ),
    "an array without": (
        PAIR,
        {"homes": (0, None), "leaves": (0, None)},
        "pair: an array has no place, or a number has one",
    ),
    "two arrays in one": (PAIR, {"homes": (0, 0)}, "two arrays have one place"),
    "left elsewhere": (
        PAIR,
        {"turns": (1, 0)},
        "a round leaves an array where the next one doesn't look",
    ),
    "an end elsewhere": (
        TURNED,
        {"rounds": value(4)},
        "out: it isn't where its array is after the last round",
    ),
    "an end that nobody knows": (
        TURNED,
        {"rounds": Read(COUNT)},
        "out: it isn't where its array is after the last round",
    ),
    "what isn't there yet": (
        halved(),
        {"reads": (value(1.0), Read(cell(hint="t")))},
        "t: it is read before it is written",
    ),
    "a number of rounds that isn't there yet": (
        halved(),
        {"rounds": Read(Cell((), I8, hint="k"))},
        "k: it is read before it is written",
    ),
    "a place in an argument": (
        PAIR,
        {"places": (X, pair), "outs": (X, pair), "reads": (Read(X), Read(pair))},
        "x: an argument is written to",
    ),
}


@pytest.mark.parametrize("made, changed, message", WRONG.values(), ids=WRONG)
def test_what_is_not_well_formed(made, changed, message):
    verify_plan(made)
    step = recurrence_of(made)
    steps = tuple([replace(s, **changed) if s is step else s for s in made.steps])
    inputs = (*made.inputs, *(c for c in (COUNT, FLAG) if c not in made.inputs))
    with pytest.raises(InternalError, match=message):
        verify_plan(replace(made, inputs=inputs, steps=steps))


def test_only_the_top_level_has_one():
    made = halved()
    with pytest.raises(InternalError, match="only the top level has such a step"):
        verify_plan(replace(made, steps=(Loop(Index(2), made.steps),)))


def test_the_places_of_a_round_are_its_own():
    """What is needed later doesn't live there."""
    kept, other = cell(hint="kept"), cell(hint="other")
    twice = cell(role="output", hint="twice")
    first, step = turned(value(4), (OUT, other)).steps
    made = plan(along(kept, X), first, step, along(twice, kept, OUT))
    assert results(made, VALUES) == [(16 * VALUES).tolist(), (17 * VALUES).tolist()]
    slot = Slot(np.dtype(float), N)
    shared = Allocation((slot,), {kept: Home(slot, 0), other: Home(slot, 0)})
    with pytest.raises(InternalError, match="kept: another cell moves into its memory"):
        verify_allocation(made, shared)
    with pytest.raises(InternalError, match="kept: it is read before it is written"):
        run_plan(made, [VALUES], shared)


def test_only_places_are_forgotten_of_the_memory_that_others_share():
    kept, other = cell(hint="kept"), cell(hint="other")
    twice = cell(role="output", hint="twice")
    first, step = turned(value(4), (OUT, other)).steps
    made = plan(along(kept, X), first, step, along(twice, kept, OUT))
    slot = Slot(np.dtype(float), 2 * N)
    shared = Allocation((slot,), {kept: Home(slot, 0), other: Home(slot, N)})
    verify_allocation(made, shared)
    found = run_plan(made, [VALUES], shared).results
    np.testing.assert_array_equal(found[1], 17 * VALUES)


def test_a_temporary_that_it_reads_is_not_a_place_of_its_own():
    """x is read in each round."""
    u, x = cell(role="state", hint="u"), cell(role="input", hint="x")
    t, s = cell(hint="t"), cell(hint="s")
    inner = round_([u, x], [u], along(u, u, x))
    made = plan(along(t, X), along(s, X), recurrence(inner, [Read(s), Read(t)], [s]), along(OUT, s))
    slot = Slot(np.dtype(float), N)
    with pytest.raises(InternalError, match="another cell moves into its memory"):
        verify_allocation(made, Allocation((slot,), {t: Home(slot, 0), s: Home(slot, 0)}))


def test_its_cells_are_moved_with_the_rest():
    other = cell(hint="elsewhere")
    made = with_cells(TURNED, {OTHER: other, OUT: replace(OUT, hint="result")})
    assert "with elsewhere, result = result, elsewhere" in str(verify_plan(made))
    assert results(made, VALUES) == results(TURNED, VALUES)
    k, going = Cell((), I8, hint="k"), Cell((), B1, hint="going")
    step = replace(recurrence_of(halved()), rounds=Read(k), until=Read(going), scratch=(OTHER,))
    new = {c: replace(c, hint=f"{c.hint}2") for c in (k, going, OTHER, X, SUM)}
    (moved,) = with_cells(plan(step), new).steps
    assert moved.rounds.cell is new[k] and moved.until.cell is new[going]
    assert moved.scratch == (new[OTHER],) and moved.outs == (new[SUM],)
    assert [r.cell for r in moved.reads] == [None, new[X]]


def test_it_starts_where_a_temporary_was_computed():
    """A number in a register is read into what is carried, and one leaves it."""
    start, end = Cell((), np.dtype(float), hint="start"), Cell((), np.dtype(float), hint="end")
    result = number("output", "result")
    step = recurrence(HALVING, [Read(start), Read(X)], [end])
    made = plan(alone(start, 1.0), step, Compute(result, (), add, (Read(start), Read(end))))
    assert results(made, VALUES) == [1.0 + expected(range(N))]
    assert isinstance(step.rounds.literal, Literal)
