"""Malformed plans are found, and so are temporaries that are written over too early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.ir.plans_by_hand import AT, AT_J, I, J, N, add_up, alone, along, cell, plan, store, total

from tapegrad.checking.plan_verify import bounds, verify_allocation, verify_plan
from tapegrad.errors import InternalError
from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.allocation import Allocation, Home, Slot
from tapegrad.ir.cells import Cell, Indirect, Read
from tapegrad.ir.panels import Panel
from tapegrad.ir.plan import Plan
from tapegrad.ir.steps import CheckGuard, Cut, Gemm, Loop, Step
from tapegrad.ir.tape import Literal

X, OUT, T = cell(role="input"), cell(role="output"), cell()
GOOD = plan(along(T, X), along(OUT, T))
ONE = Affine((), 1)


def test_a_good_plan_is_returned():
    assert verify_plan(GOOD) is GOOD


def shifted() -> Loop:
    return Loop(I, (store(OUT, (AT,), X, (AT + ONE,)),))


TRUE = Literal(np.bool_(True))
INTEGERS = Cell((N,), np.dtype(np.int64), "input")
HALF = Index(N // 2)

MALFORMED: dict[str, tuple[Plan, str]] = {
    "read before written": (plan(along(OUT, T), along(T, X)), "t: it is read before it is written"),
    "a swapped read": (
        plan(along(T, X), along(cell(), T), along(OUT, cell())),
        "before it is written",
    ),
    "added to before it is there": (plan(Loop(I, (add_up(total(), X),))), "before it is written"),
    "out of bounds": (plan(shifted()), r"x: an index of 1 to 6 leaves an axis of 6"),
    "out of bounds below": (
        plan(Loop(I, (store(OUT, (-AT,), X, (AT,)),))),
        "out: an index of -5 to 0 leaves",
    ),
    "an index array for another extent": (
        plan(Loop(I, (store(OUT, (AT,), X, (Indirect(Read(INTEGERS, (AT,)), 7),)),))),
        "checked for 7 of 6",
    ),
    "too few entries": (plan(Loop(I, (store(OUT, (), X, (AT,)),))), "1 axes, and 0 entries"),
    "an index outside its loop": (plan(store(OUT, (AT,), X, (AT,))), "outside its loop"),
    "one index for two loops": (
        plan(Loop(I, (Loop(I, (store(OUT, (AT,), X, (AT,)),)),))),
        "around it",
    ),
    "an argument written to": (plan(along(OUT, X), along(X, OUT)), "an argument is written to"),
    "a result that isn't written": (
        replace(GOOD, outputs=(OUT, cell(role="output"))),
        "never written",
    ),
    "a result that isn't the plan's": (replace(GOOD, outputs=()), "no such output"),
    "an argument that isn't the plan's": (
        replace(GOOD, inputs=()),
        "it is read before|no such input",
    ),
    "a cell from before a pass": (
        plan(along(T, X), along(OUT, replace(T, axes=(0,)))),
        "two cells stand for one place|read before it is written",
    ),
    "a status without meaning": (
        plan(along(OUT, X), CheckGuard(Read(None, (), TRUE), TRUE, 1)),
        "status 1 has no meaning",
    ),
    "a cut in a loop": (plan(Loop(I, (store(OUT, (AT,), X, (AT,)), Cut()))), "only the top level"),
    "chunks that don't cover": (
        plan(
            Loop(HALF, (Loop(I, (store(OUT, (AT,), X, (AT,)),), chunk=(HALF, 1)),), parallel=True)
        ),
        "chunks don't cover it",
    ),
    "chunks that write to one place": (
        plan(Loop(HALF, (store(OUT, (Affine(),), X, (Affine(),)),), parallel=True)),
        "out: two chunks meet in it in `for i < 3 in parallel:`",
    ),
    "a chunk that reads another's rows": (
        plan(
            Loop(
                HALF,
                (
                    store(total(), (), OUT, (Affine.of(HALF),)),
                    Loop(I, (store(OUT, (AT,), X, (AT,)),), chunk=(HALF, 2)),
                ),
                parallel=True,
            )
        ),
        "out: two chunks meet in it",
    ),
    "steps that can be changed": (replace(GOOD, steps=list(GOOD.steps)), "plans don't change"),
}


@pytest.mark.parametrize(("malformed", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_plan_is_an_internal_error(malformed: Plan, message: str):
    with pytest.raises(InternalError, match=message):
        verify_plan(malformed)


def test_the_message_names_the_pass_and_the_step():
    with pytest.raises(InternalError) as caught:
        verify_plan(plan(shifted()), after="fuse")
    message = str(caught.value)
    assert message.startswith("malformed plan after fuse: x: ")
    assert "in `out[i] = x[i + 1] : f8`" in message
    assert "for i < 6:" in message


def test_what_is_empty_has_no_index():
    none = Index(0)
    at = Affine.of(none)
    out, x = cell(0, role="output"), cell(0, role="input")
    verify_plan(plan(Loop(none, (store(out, (at,), x, (at,)),))))


def test_bounds_follow_tiles_and_chunks():
    chunks, tiles, rows = Index(3), Index(100), Index(100)
    loops = [
        Loop(chunks, (), parallel=True),
        Loop(tiles, (), chunk=(chunks, 40), step=8),
        Loop(rows, (), start=tiles, step=8),
    ]
    row, first, chunk = (Affine.of(i) for i in (rows, tiles, chunks))
    assert bounds(row, loops) == (0, 99)
    assert bounds(row - first, loops) == (0, 7)
    assert bounds(first - 40 * chunk, loops) == (0, 39)


# ---- allocations


def homes(given: Plan, *shared: Cell) -> Allocation:
    """These cells in one slot, all others apart."""
    together = Slot(np.dtype(np.float64), max(np.prod(c.shape) for c in shared))
    found: dict[Cell, Home] = {}
    for each in given.steps:
        for c, _, _ in each.accesses():
            if c.role == "temporary" and not c.in_register:
                slot = together if c in shared else Slot(c.dtype, int(np.prod(c.shape)))
                found.setdefault(c, Home(slot, 0))
    return Allocation(tuple(dict.fromkeys(h.memory for h in found.values())), found)  # type: ignore[arg-type]


def accepts(given: Plan, *shared: Cell) -> bool:
    try:
        verify_allocation(given, homes(given, *shared))
    except InternalError as error:
        assert "another cell moves into its memory while it is needed" in str(error)
        return False
    return True


def in_turn(body: Callable[[Cell, Cell], Step], n: int = N) -> bool:
    """Whether `b` may live where `a` did, if `body` is all that touches both."""
    a, b = cell(n, n), cell(n, n)
    i, j = Index(n), Index(n)
    at = (Affine.of(i), Affine.of(j))
    x, out = cell(role="input"), cell(n, n, role="output")
    before = Loop(i, (Loop(j, (store(a, at, x, (Affine(),)),)),))
    after = Loop(i, (Loop(j, (store(out, at, b, at),)),))
    return accepts(plan(before, body(a, b), after), a, b)


def copied(source_at: tuple[Affine, Affine]) -> Callable[[Cell, Cell], Step]:
    def body(a: Cell, b: Cell) -> Step:
        return Loop(I, (Loop(J, (store(b, (AT, AT_J), a, source_at),)),))

    return body


def test_what_is_read_where_it_is_written_may_go():
    assert in_turn(copied((AT, AT_J)))


@pytest.mark.parametrize(
    "source_at",
    [
        (AT_J, AT),
        (AT, AT),
        (AT, Affine()),
        (Affine(), AT_J),
        (-AT + (N - 1), AT_J),
        (AT, -AT_J + (N - 1)),
    ],
    ids=["transposed", "the diagonal", "a column", "a row", "reversed", "rows reversed"],
)
def test_what_another_iteration_reads_may_not(source_at):
    assert not in_turn(copied(source_at))


def test_a_row_that_is_read_again_may_not_go():
    def body(a: Cell, b: Cell) -> Step:
        copying = Loop(J, (store(b, (AT, AT_J), a, (AT, AT_J)),))
        again = Loop(J, (store(total(), (), a, (AT, AT_J)),))
        return Loop(I, (copying, again))

    assert not in_turn(body)


def test_blas_reads_while_it_writes():
    def body(a: Cell, b: Cell) -> Step:
        return Gemm(*map(Panel.of, (b, a, a)))

    assert not in_turn(body)


def test_large_loops_are_tried_at_their_ends():
    n = 400
    i, j = Index(n), Index(n)
    at_i, at_j = Affine.of(i), Affine.of(j)

    def body(source: tuple[Affine, Affine]) -> Callable[[Cell, Cell], Step]:
        return lambda a, b: Loop(i, (Loop(j, (store(b, (at_i, at_j), a, source),)),))

    assert in_turn(body((at_i, at_j)), n)
    assert not in_turn(body((at_i, -at_j + (n - 1))), n)
    assert not in_turn(body((at_j, at_i)), n)


def test_two_that_live_together_stay_apart():
    a, b = cell(), cell()
    given = plan(along(a, X), along(b, X), along(OUT, a, b))
    assert not accepts(given, a, b)
    verify_allocation(given, homes(given, a))


def test_a_value_that_is_computed_where_it_is_read_is_read_there():
    """`t = a[0]` in front of the step that writes `b`, and nested behind it."""
    a, b, t = cell(), cell(), total()
    zero = (Affine(),)
    given = plan(
        along(a, X), store(t, (), a, zero), along(b, X), store(cell(role="output"), zero, t)
    )
    verify_allocation(given, homes(given, a, b))
    with pytest.raises(InternalError, match="while it is needed"):
        verify_allocation(given, homes(given, a, b), nested={t})


def test_registers_end_with_their_kernel():
    t = total()
    given = plan(alone(t, 1.0), Cut(), store(cell(role="output"), (Affine(),), t))
    with pytest.raises(InternalError, match="a register is used by two kernels"):
        verify_allocation(given, Allocation((), {}))


def test_homes_fit():
    slot = Slot(np.dtype(np.float64), N)
    for allocation, message in (
        (Allocation((), {}), "have a home"),
        (Allocation((slot,), {T: Home(slot, 1)}), "doesn't fit its home"),
        (Allocation((), {T: Home(slot, 0)}), "scratch memory that isn't there"),
        (Allocation((), {T: Home(X, 0)}), "isn't a result"),
        (Allocation((), {T: Home(OUT, 0)}), None),
    ):
        if message is None:
            verify_allocation(GOOD, allocation)
            continue
        with pytest.raises(InternalError, match=message):
            verify_allocation(GOOD, allocation)
