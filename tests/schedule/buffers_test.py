"""Temporaries take turns in the same memory, when they don't live at the same time."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from tapegrad import jit, standalone, trace, value_and_grad
from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.allocation import Allocation, Home
from tapegrad.ir.cells import At, Cell, Read
from tapegrad.ir.plan import Plan
from tapegrad.ir.steps import Compute, Loop, Step
from tapegrad.primitives.elementwise import add, copy
from tapegrad.schedule.buffers import assign, planned_peak_bytes

N = 100


def cell(*shape: int, dtype: type = np.float64, role: str = "temporary") -> Cell:
    return Cell(shape or (N,), np.dtype(dtype), role)


def step(out: Cell, *reads: Cell, at: At | None = None) -> Step:
    """A step that reads and writes these cells; by default each at its first element."""

    def place(c: Cell) -> At:
        return at or (Affine(),) * len(c.shape)

    combined = add if len(reads) > 1 else copy
    return Compute(out, place(out), combined, tuple(Read(r, place(r)) for r in reads))


def along(out: Cell, *reads: Cell) -> Step:
    """for i: out[i] = reads[i] + ..."""
    index = Index(out.shape[0])
    return Loop(index, (step(out, *reads, at=(Affine.of(index),)),))


def plan(*steps: Step) -> Plan:
    outputs = {c: None for s in steps for c, _, _ in s.accesses() if c.role == "output"}
    return Plan("f", (X,), tuple(outputs), steps)


def shared(*steps: Step) -> list[set[Cell]]:
    """Which cells share a slot, or a result's memory."""
    allocation = assign(plan(*steps))
    together: dict[object, set[Cell]] = {}
    for c, home in allocation.homes.items():
        together.setdefault(home.memory, set()).add(c)
    return list(together.values())


X = cell(role="input")


def test_what_lives_one_after_another_shares_a_slot():
    a, b, c = cell(), cell(), cell()
    assert shared(step(a, X), step(b, a), step(X, b), step(c, X), step(X, c)) == [{a, b, c}]


def test_what_lives_together_does_not():
    a, b, c = cell(), cell(), cell()
    assert shared(step(a, X), step(b, a), step(c, a, b)) == [{a}, {b}, {c}]


def test_dtypes_do_not_share():
    a, b = cell(), cell(dtype=np.float32)
    assert shared(step(a, X), step(X, a), step(b, X)) == [{a}, {b}]


def test_the_large_ones_are_placed_first_so_no_slot_grows():
    small, large = cell(20), cell(100)
    allocation = assign(plan(step(small, X), step(X, small), step(large, X)))
    assert allocation.homes[small].memory is allocation.homes[large].memory
    assert planned_peak_bytes(allocation.slots) == 100 * 8


def test_numbers_share_one_slot():
    numbers = [cell(1) for _ in range(6)]
    steps = [step(numbers[0], X)]
    for before, now in pairwise(numbers):
        steps.append(step(now, before))
    allocation = assign(plan(*steps))
    (slot,) = allocation.slots
    assert slot.size == 2
    assert [allocation.homes[n].start for n in numbers] == [0, 1, 0, 1, 0, 1]


def test_registers_inputs_and_results_need_no_slot():
    register = Cell((), np.dtype(np.float64))
    first = Compute(register, (), copy, (Read(X, (Affine(),)),))
    assert assign(plan(first, step(cell(role="output"), X))) == Allocation((), {})


# ---- in results


def test_a_result_houses_temporaries_until_it_is_written():
    a, b, out = cell(), cell(), cell(role="output")
    allocation = assign(plan(step(a, X), step(b, X), step(X, a, b), step(out, X)))
    assert allocation.slots == (allocation.homes[b].memory,)
    assert allocation.homes[a] == Home(out, 0)


def test_a_large_result_houses_several():
    a, b, out = cell(), cell(), cell(2 * N + 7, role="output")
    allocation = assign(plan(step(a, X), step(b, a), step(X, a, b), step(out, X)))
    assert allocation.slots == ()
    assert {allocation.homes[a], allocation.homes[b]} == {Home(out, 0), Home(out, N)}


def test_what_is_read_when_the_result_is_written_stays_out_of_it():
    a, out = cell(), cell(role="output")
    assert assign(plan(step(a, X), step(out, a, X), step(out, a))).homes[a].memory is not out


def test_a_result_houses_what_scratch_memory_has_no_room_for():
    """Large arrays: `c` can't be where the result is, so `a` leaves its place to it."""
    size = 1 << 18
    a, b, c, out = cell(size), cell(size), cell(size), cell(size, role="output")

    def turned(new: Cell, old: Cell) -> Step:
        return Compute(new, (Affine(),), copy, (Read(old, (Affine((), 1),)),))

    steps = (step(a, X), step(b, X), step(X, a, b), turned(c, b), turned(out, c))
    allocation = assign(plan(*steps))
    assert allocation.homes[b] == Home(out, 0)
    assert allocation.homes[a] == allocation.homes[c] == Home(allocation.slots[0], 0)


def test_axes_of_one_index_make_no_difference_in_place():
    """A matrix moves in where rows of one matrix each move out."""
    old, new = cell(N, 1), cell(N)
    index = Index(N)
    here = Affine.of(index)
    read = Compute(new, (here,), copy, (Read(old, (here, Affine())),))
    fill = Compute(old, (here, Affine()), copy, (Read(X, (here,)),))
    steps = (Loop(index, (fill,)), Loop(index, (read,)), along(X, new))
    assert shared(*steps) == [{old, new}]


def test_a_result_of_another_dtype_houses_nothing():
    a, out = cell(), cell(dtype=np.float32, role="output")
    assert assign(plan(step(a, X), step(X, a), step(out, X))).homes[a].memory is not out


# ---- in place


def test_one_moves_in_where_another_moves_out():
    a, b, out = cell(), cell(), cell(role="output")
    assert shared(along(a, X), along(b, a), along(out, b)) == [{a, b}]
    assert set(assign(plan(along(a, X), along(out, a))).homes.values()) == {Home(out, 0)}


@pytest.mark.parametrize(("axes", "moves_in"), [((0, 1), True), ((1, 0), False)])
def test_a_reshape_hands_over_what_it_shows(axes, moves_in):
    a, b = cell(N), cell(10, 10)
    shown = Cell((10, 10), a.dtype, alias=a)
    at = AT_I, AT_J
    moved = write(b, shown, at, (at[axes[0]], at[axes[1]]))
    nest = Loop(I, (Loop(J, (moved,)),))
    assert (shared(along(a, X), nest, step(X, b)) == [{a, b}]) == moves_in


I, J = Index(8), Index(8)
AT_I, AT_J = Affine.of(I), Affine.of(J)


@pytest.mark.parametrize(
    ("body", "moves_in"),
    [
        (lambda a, b: [Loop(J, (write(b, a, (AT_I, AT_J), (AT_I, AT_J)),))], True),
        (lambda a, b: [Loop(J, (write(b, a, (AT_J, AT_I), (AT_J, AT_I)),))], True),
        # what is read of row i is read before row i is written
        (lambda a, b: [Loop(J, (write(T, a, (), (AT_I, AT_J)),)), fill(b)], True),
        (lambda a, b: [fill(b), Loop(J, (write(T, a, (), (AT_I, AT_J)),))], False),
        # another iteration reads what this one writes
        (lambda a, b: [Loop(J, (write(b, a, (AT_I, AT_J), (AT_J, AT_I)),))], False),
        (lambda a, b: [Loop(J, (write(b, a, (AT_I, AT_J), (AT_I, Affine())),))], False),
        (lambda a, b: [Loop(J, (write(b, a, (AT_J, AT_I), (AT_I, AT_J)),))], False),
        (lambda a, b: [Loop(J, (write(b, a, (AT_J, AT_J), (AT_J, AT_J)),))], False),
        (lambda a, b: [Loop(J, (write(b, a, (AT_I, AT_J), (AT_I, AT_J + ONE)),))], False),
        # the row of `a` is read once more
        (
            lambda a, b: [
                Loop(J, (write(b, a, (AT_I, AT_J), (AT_I, AT_J)),)),
                Loop(J, (write(T, a, (), (AT_I, AT_J)),)),
            ],
            False,
        ),
    ],
)
def test_in_place_needs_that_nobody_reads_what_was_there(body, moves_in):
    a, b = cell(8, 8), cell(8, 8)
    before = Loop(I, (Loop(J, (write(a, X, (AT_I, AT_J), (AT_I,)),)),))
    after = Loop(I, (Loop(J, (write(T, b, (), (AT_I, AT_J)),)),))
    allocation = assign(plan(before, Loop(I, tuple(body(a, b))), after))
    assert (allocation.homes[a] == allocation.homes[b]) == moves_in


T = Cell((), np.dtype(np.float64))
ONE = Affine((), 1)


def write(out: Cell, source: Cell, at: At, source_at: At) -> Step:
    return Compute(out, at, copy, (Read(source, source_at),))


def fill(b: Cell) -> Step:
    return Loop(J, (write(b, T, (AT_I, AT_J), ()),))


def test_the_number_of_a_chunk_is_no_row_of_it():
    """Chunk 1 reads what chunk 0 has written, though both go by the chunk's number."""
    a, b = cell(), cell()
    chunk, row = Index(2), Index(N)
    at = (Affine.of(row),)
    rows = Loop(row, (write(b, T, at, ()),), chunk=(chunk, N // 2))
    body = Loop(chunk, (write(T, a, (), (Affine.of(chunk),)), rows), parallel=True)
    allocation = assign(plan(along(a, X), body, along(cell(role="output"), b)))
    assert allocation.homes[a] != allocation.homes[b]


# ---- whole programs


def network(w1, w2, w3, x):
    h = np.maximum(np.tanh(x @ w1) @ w2, 0.0)
    return np.sum((h @ w3) ** 2)


def test_a_network_needs_little_more_than_its_results():
    """The activations and their cotangents, eight arrays, live in the gradients' memory, but
    for one, which the last gradient is computed of, and for truth values."""
    r = np.random.default_rng(0)
    args = [r.normal(size=s) for s in ((96, 64), (64, 64), (64, 48), (30, 96))]
    gradient = value_and_grad(network, argnums=(0, 1, 2), compile="always")
    value, found = gradient(*args)
    (tape,) = gradient.tapes
    assert tape.memory_report().scratch_bytes <= 30 * 64 * (8 + 2) + 256
    expected = value_and_grad(network, argnums=(0, 1, 2), compile="never")(*args)
    np.testing.assert_allclose(value, expected[0], rtol=1e-12)
    for one, other in zip(found, expected[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_results_that_housed_temporaries_are_fresh_each_time():
    """Neither a second call nor another result sees what stood there before."""

    def f(x, w):
        y = x @ w
        return np.cumsum(y[::-1], axis=0), np.sort(y, axis=0) @ w

    x, w = np.random.default_rng(0).normal(size=(2, 40, 40))
    compiled = trace(f, x, w)[1].compile()
    first = compiled(x, w)
    kept = [a.copy() for a in first]
    compiled(-x, w)
    for a, b, c in zip(first, kept, f(x, w), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.reshape(np.exp(np.flip(x)).T @ x, -1),
        lambda x: np.cumsum(x * 2, axis=0).ravel(),
        lambda x: np.reshape(np.reshape(np.cumsum(x), (3, 16)), (2, 24)),
    ],
)
def test_a_result_is_computed_where_it_leaves_under_whichever_shape(f):
    x = np.random.default_rng(0).normal(size=(8, 6))
    compiled = jit(f, compile="always")
    np.testing.assert_allclose(compiled(x), f(x), rtol=1e-12)
    source = standalone(f, x).source
    assert "reshaped(out, " in source or ".reshape(" in source
    last = source.split("return 0")[0].rstrip().splitlines()[-1]
    assert not re.fullmatch(r"\s+out\[.*\] = t\d*\[.*\]", last)


def test_two_results_never_share_memory():
    def f(x):
        y = np.cumsum(x)
        return y, np.reshape(y, (6, 8)), np.reshape(y, (8, 6))

    x = np.arange(1.0, 49)
    for results in (jit(f, compile="always")(x), jit(f, compile="never")(x)):
        for found, wanted in zip(results, f(x), strict=True):
            np.testing.assert_array_equal(found, wanted)
        results[0][:] = 0
        assert results[1].all() and results[2].all()
