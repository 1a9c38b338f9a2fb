"""Which loops become one: those whose iterations need nothing but each other's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.tapes import tape

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import Cell, Read
from tapegrad.ir.fold import SUM
from tapegrad.ir.plan import Plan
from tapegrad.ir.steps import Compute, Loop, Step
from tapegrad.ir.tape import Literal
from tapegrad.pipeline import lowered
from tapegrad.primitives import elementwise as ew
from tapegrad.schedule.fuse import SMALL_EXTENT, fuse, gather_fills


def nested(steps: list[Step]) -> list[Any]:
    """Loops as lists; of each step, the primitive it computes, `0` for a fill."""
    found: list[Any] = []
    for step in steps:
        if isinstance(step, Loop):
            found.append(nested(step.body))
        elif isinstance(step, Compute):
            fills = all(r.literal is not None for r in step.reads)
            found.append("0" if fills else f"{step.combine or ''} {step.primitive}".strip())
    return found


CASES: dict[str, tuple[str, str, list[Any], list[Any]]] = {
    "aligned": (
        "f8[5]",
        """
        %2 = exp(%1) : f8[5]
        %3 = neg(%2) : f8[5]
        out %3
        """,
        [["exp"], ["neg"]],
        [["exp", "neg"]],
    ),
    "two axes": (
        "f8[3,4]",
        """
        %2 = exp(%1) : f8[3,4]
        %3 = neg(%2) : f8[3,4]
        out %3
        """,
        [[["exp"]], [["neg"]]],
        [[["exp", "neg"]]],
    ),
    "a shifted read is not fused": (
        "f8[5]",
        """
        %2 = exp(%1) : f8[5]
        %3 = getitem(%2, index=(Slice(4, 5, -1),)) : f8[5]
        %4 = neg(%3) : f8[5]
        out %4
        """,
        [["exp"], ["neg"]],
        [["exp"], ["neg"]],
    ),
    "a transposed read is not fused": (
        "f8[3,3]",
        """
        %2 = exp(%1) : f8[3,3]
        %3 = transpose(%2, axes=(1, 0)) : f8[3,3]
        %4 = neg(%3) : f8[3,3]
        out %4
        """,
        [[["exp"]], [["neg"]]],
        [[["exp"]], [["neg"]]],
    ),
    "loops of different lengths": (
        "f8[5]",
        """
        %2 = exp(%1) : f8[5]
        %3 = getitem(%2, index=(Slice(0, 4, 1),)) : f8[4]
        %4 = neg(%3) : f8[4]
        out %4
        """,
        [["exp"], ["neg"]],
        [["exp"], ["neg"]],
    ),
    "loops that share nothing": (
        "f8[5] f8[5]",
        """
        %3 = exp(%1) : f8[5]
        %4 = neg(%2) : f8[5]
        out %3, %4
        """,
        [["exp"], ["neg"]],
        [["exp"], ["neg"]],
    ),
    "a sum is not read inside its own loop": (
        "f8[5]",
        """
        %2 = sum(%1, axes=(0,)) : f8[]
        %3 = div(%1, %2) : f8[5]
        out %3
        """,
        ["0", ["sum copy"], ["div"]],
        ["0", ["sum copy"], ["div"]],
    ),
    "but a row's sum is, under the rows' loop": (
        "f8[3,4]",
        """
        %2 = sum(%1, axes=(1,)) : f8[3]
        %3 = neg(%2) : f8[3]
        out %3
        """,
        [["0", ["sum copy"], "copy"], ["neg"]],  # summed in a register, then copied
        [["0", ["sum copy"], "copy", "neg"]],
    ),
    "a fill is carried along": (
        "f8[5]",
        """
        %2 = exp(%1) : f8[5]
        %3 = sum(%2, axes=(0,)) : f8[]
        out %3
        """,
        [["exp"], "0", ["sum copy"], "copy"],
        ["0", ["exp", "sum copy"], "copy"],
    ),
    "and so is a single number": (
        "f8[5], f8[]",
        """
        %3 = exp(%1) : f8[5]
        %4 = neg(%2) : f8[]
        %5 = mul(%3, %4) : f8[5]
        out %5
        """,
        [["exp"], "neg", ["mul"]],
        ["neg", ["exp", "mul"]],
    ),
    "but not one that needs the first loop": (
        "f8[5]",
        """
        %2 = exp(%1) : f8[5]
        %3 = getitem(%2, index=(0,)) : f8[]
        %4 = neg(%3) : f8[]
        %5 = mul(%2, %4) : f8[5]
        out %5
        """,
        [["exp"], "neg", ["mul"]],
        [["exp"], "neg", ["mul"]],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_fusing(name):
    inputs, body, before, after = CASES[name]
    plan = lowered(tape(inputs, body))
    assert nested(plan.steps) == before
    assert nested(fuse(plan).steps) == after


def filled(cell: Cell, value: float = 0.0, combine: Any = None) -> Step:
    """A nest that puts a number everywhere in a cell, or adds it."""
    indices = [Index(n) for n in cell.shape]
    at = tuple(map(Affine.of, indices))
    read = Read(None, (), Literal(np.float64(value)))
    step: Step = Compute(cell, at, ew.copy, (read,), combine)
    for index in reversed(indices):
        step = Loop(index, (step,))
    return step


def real(*shape: int) -> Cell:
    return Cell(shape, np.dtype(float), "output")


def test_fills_of_small_arrays_are_one_loop():
    a, b, c, d = real(8), real(8), real(8, 3), real(8, 3)
    steps = filled(a), filled(b, 1.0), filled(c), filled(d, 2.0)
    (loop,) = gather_fills(Plan("f", (), (a, b, c, d), steps)).steps
    assert isinstance(loop, Loop)
    first, second, inner = loop.body
    assert isinstance(inner, Loop) and len(inner.body) == 2
    assert [s.cell for s in (first, second, *inner.body)] == [a, b, c, d]
    assert all(s.at[0] == Affine.of(loop.index) for s in (first, second, *inner.body))


@pytest.mark.parametrize(
    "other",
    [real(9), real(SMALL_EXTENT + 1), real(8, SMALL_EXTENT + 1), None, "added"],
    ids=["another range", "many rows", "many columns", "the same array", "a sum"],
)
def test_fills_that_stay_apart(other):
    n = other.shape[0] if isinstance(other, Cell) and other.shape[0] > 9 else 8
    a = real(n)
    if other == "added":
        second = filled(real(n), 1.0, SUM)
    else:
        second = filled(a if other is None else other, 1.0)
    steps = filled(a), second
    assert gather_fills(Plan("f", (), (a,), steps)).steps == steps
