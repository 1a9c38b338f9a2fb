"""Temporaries share a slot of memory when they don't live at the same time."""

from __future__ import annotations

import numpy as np

from tapegrad.ir.plan import Affine, Cell, Compute, Plan, Read, Step
from tapegrad.primitives.elementwise import add, copy
from tapegrad.schedule.buffers import assign, planned_peak_bytes


def cell(size: int, dtype: type = np.float64) -> Cell:
    return Cell((size,), np.dtype(dtype))


def step(out: Cell, *reads: Cell) -> Step:
    """A step that reads and writes these cells; where in them doesn't matter here."""
    at = (Affine(),)
    return Compute(out, at, add if len(reads) > 1 else copy, tuple(Read(r, at) for r in reads))


def slots(*steps: Step) -> list[list[Cell]]:
    return [slot.cells for slot in assign(plan(*steps))]


def plan(*steps: Step) -> Plan:
    return Plan("f", [X], [], list(steps), [])


X = Cell((8,), np.dtype(np.float64), role="input")


def test_what_lives_one_after_another_shares_a_slot():
    a, b, c = cell(8), cell(8), cell(8)
    assert slots(step(a, X), step(b, a), step(c, b)) == [[a, c], [b]]


def test_what_lives_together_does_not():
    a, b, c = cell(8), cell(8), cell(8)
    assert slots(step(a, X), step(b, a), step(c, a, b)) == [[a], [b], [c]]


def test_dtypes_do_not_share():
    a, b, c = cell(8), cell(8), cell(8, np.float32)
    assert slots(step(a, X), step(b, a), step(c, b)) == [[a], [b], [c]]


def test_the_smallest_slot_that_is_large_enough_is_taken():
    large, small, end, x = cell(100), cell(5), cell(1), cell(4)
    found = assign(plan(step(large, X), step(small, X), step(end, large, small), step(x, end)))
    assert [s.cells for s in found] == [[large], [small, x], [end]]
    assert planned_peak_bytes(found) == (100 + 5 + 1) * 8


def test_a_slot_grows_when_none_is_large_enough():
    a, b, c = cell(2), cell(1), cell(9)
    found = assign(plan(step(a, X), step(b, a), step(c, b)))
    assert [(s.cells, s.size) for s in found] == [([a, c], 9), ([b], 1)]


def test_registers_inputs_and_outputs_need_no_slot():
    register = Cell((), np.dtype(np.float64))
    out = Cell((8,), np.dtype(np.float64), role="output")
    first = Compute(register, (), copy, (Read(X, (Affine(),)),))
    assert slots(first, step(out, X)) == []
