"""Matrices in arrays: how they read, where their elements are, and which are malformed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tapegrad.checking.plan_verify import verify_plan
from tapegrad.errors import InternalError
from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import Cell
from tapegrad.ir.changes import Changes
from tapegrad.ir.panels import Panel
from tapegrad.ir.plan import Plan
from tapegrad.ir.plan_text import show_plan
from tapegrad.ir.steps import Gemm, Loop

F8 = np.dtype(float)
ZERO, ONE, TWO = (Affine((), k) for k in range(3))
SHAPE = (2, 3, 4, 5)
I = Index(2)
AT_I = Affine.of(I)
Axes = tuple[int, ...]


def panel(
    rows: Axes,
    columns: Axes,
    shape: tuple[int, int],
    at: tuple[Affine, ...] = (ZERO,) * 4,
    cell: tuple[int, ...] = SHAPE,
) -> Panel:
    return Panel(Cell(cell, F8, "input"), at, rows, columns, shape)


# Those that are matrices of x[2, 3, 4, 5].
GOOD = {
    "x[rows, rows, columns, columns] as 6 by 20": panel((0, 1), (2, 3), (6, 20)),
    "x[i, 1]": panel((2,), (3,), (4, 5), (AT_I, ONE, ZERO, ZERO)),
    "x[i, 1].T": panel((3,), (2,), (5, 4), (AT_I, ONE, ZERO, ZERO)),
    "x[i, 1 + rows, 2, columns] as 2 by 5": panel((1,), (3,), (2, 5), (AT_I, ONE, TWO, ZERO)),
    "x[columns, 0, rows, rows] as 20 by 2": panel((2, 3), (0,), (20, 2)),
    "x[i, columns, 1 + rows, rows] as 15 by 3": panel(
        (2, 3), (1,), (15, 3), (AT_I, ZERO, ONE, ZERO)
    ),
    "x[i, 0, 2 + rows, 2 + columns] as 2 by 3": panel((2,), (3,), (2, 3), (AT_I, ZERO, TWO, TWO)),
    "x[0, i + rows, 0, columns] as 2 by 5": panel((1,), (3,), (2, 5), (ZERO, AT_I, ZERO, ZERO)),
}


@pytest.mark.parametrize("given", GOOD.values(), ids=GOOD)
def test_matrices_are_what_numpy_makes_of_them(given: Panel) -> None:
    """Its elements are those of the reshaped part, in order, also of its transpose."""
    assert given.fault() == ""
    x = np.arange(math.prod(SHAPE)).reshape(SHAPE)
    for i in range(2):
        here = Changes(indices={I: Affine((), i)}).panel(given)
        extents = [1] * 4
        for axes, n in ((here.rows, here.shape[0]), (here.columns, here.shape[1])):
            inner = math.prod(SHAPE[a] for a in axes[1:])
            extents[axes[0]] = n // inner
            for a in axes[1:]:
                extents[a] = SHAPE[a]
        part = x[tuple(slice(k.const, k.const + n) for k, n in zip(here.at, extents, strict=True))]
        others = [a for a in range(4) if a not in here.rows + here.columns]
        expected = part.transpose(*others, *here.rows, *here.columns).reshape(here.shape)
        for one in (here, here.T):
            found = np.array(
                [
                    [x[tuple(k.const for k in one.place(r, c))] for c in range(one.shape[1])]
                    for r in range(one.shape[0])
                ]
            )
            np.testing.assert_array_equal(found, expected if one is here else expected.T)


def windows(
    ways: tuple, at: tuple[Affine, ...] = (ZERO,) * 4, shape: tuple[int, int] = (12, 6)
) -> Panel:
    """Windows of x[2, 3, 4, 5]: along which axes rows and columns go, how many places, how far."""
    axes = [tuple([a for a, _, _ in side]) for side in ways]
    found = tuple([tuple([way for _, *way in side]) for side in ways])
    return Panel(Cell(SHAPE, F8, "input"), at, axes[0], axes[1], shape, found)


PLACES = ((1, 3, 1), (2, 2, 1), (3, 2, 2))
PIXELS = ((2, 2, 2), (3, 3, 1))


def test_windows_are_what_numpy_makes_of_them() -> None:
    """One behind the other along an axis, rows and columns say together where an element is."""
    given = windows((PLACES, PIXELS), (AT_I, ZERO, ZERO, ZERO))
    assert given.fault() == given.T.fault() == ""
    x = np.arange(math.prod(SHAPE)).reshape(SHAPE)
    for i in range(2):
        here = Changes(indices={I: Affine((), i)}).panel(given)
        found = [[x[tuple(k.const for k in here.place(r, c))] for c in range(6)] for r in range(12)]
        expected = [
            [x[i, c, j + 2 * h, 2 * k + w] for h in range(2) for w in range(3)]
            for c in range(3)
            for j in range(2)
            for k in range(2)
        ]
        np.testing.assert_array_equal(found, expected)
    plan = product(given)
    verify_plan(plan)
    text = "@ x[i, columns, 2 * rows + columns, rows + 2 * columns] as 6 by 12"
    assert text in show_plan(plan)


BEYOND = {
    "behind the end": windows((PLACES, ((2, 2, 3), (3, 3, 1)))),
    "behind the end of the other": windows((PLACES, ((2, 2, 2), (3, 3, 2)))),
    "that begin too late": windows((PLACES, PIXELS), (ZERO, ZERO, ONE, ZERO)),
    "that move too far": windows((PLACES, PIXELS), (ZERO, AT_I, ZERO, ZERO)),
    "in front of the beginning": windows((PLACES, PIXELS), (ZERO, ZERO, -AT_I, ZERO)),
    "backwards": windows((PLACES, ((2, 2, 2), (3, 3, -1)))),
    "of another shape": windows((PLACES, PIXELS), shape=(12, 5)),
}


@pytest.mark.parametrize("given", BEYOND.values(), ids=BEYOND)
def test_malformed_windows_are_found(given: Panel) -> None:
    assert given.fault()
    with pytest.raises(InternalError):
        verify_plan(product(given))


def test_windows_are_the_second_factor_and_no_result() -> None:
    """That is what machine code has: the first factor and the result are matrices."""
    given = windows((PLACES, PIXELS))
    x, out = Cell((5, 12), F8, "input"), Cell((5, 6), F8, "output")
    step = Gemm(Panel.of(out), Panel.of(x), given)
    plan = Plan("f", (x, given.cell), (out,), (step,))
    verify_plan(plan)
    with pytest.raises(InternalError, match="windows are the second factor"):
        verify_plan(replace(plan, steps=(step.T,)))


APART = "don't follow each other"
WHOLE = "aren't taken whole"
INSIDE = "isn't inside its cell"
NOWHERE = "isn't at an index of its cell"

FAULTS = {
    "too few entries": (panel((0,), (1,), (2, 3), (ZERO,) * 3), NOWHERE),
    "too many entries": (panel((0,), (1,), (2, 3), (ZERO,) * 5), NOWHERE),
    "one axis twice": (panel((0, 1), (1, 2), (6, 12)), NOWHERE),
    "a diagonal": (panel((1,), (1,), (3, 3)), NOWHERE),
    "no rows": (panel((), (1,), (1, 3)), APART),
    "no columns": (panel((1,), (), (3, 1)), APART),
    "an axis left out": (panel((0, 2), (3,), (8, 5)), APART),
    "axes the wrong way round": (panel((1, 0), (3,), (6, 5)), APART),
    "an axis left out of columns": (panel((0,), (1, 3), (2, 15)), APART),
    "part of a row of the inner axis": (panel((0, 1), (3,), (5, 5)), WHOLE),
    "an inner axis from its second entry on": (
        panel((0, 1), (3,), (3, 5), (ZERO, ONE, ZERO, ZERO)),
        WHOLE,
    ),
    "an inner axis that moves": (panel((1, 2), (3,), (8, 5), (ZERO, ZERO, AT_I, ZERO)), WHOLE),
    "an inner axis of columns from its second entry on": (
        panel((1,), (2, 3), (3, 15), (ZERO, ZERO, ZERO, ONE)),
        WHOLE,
    ),
    "too many rows": (panel((1,), (3,), (4, 5)), INSIDE),
    "too many columns": (panel((1,), (2, 3), (3, 25)), INSIDE),
    "behind the end": (panel((1,), (3,), (3, 5), (ZERO, ONE, ZERO, ZERO)), INSIDE),
    "behind the end at last": (panel((1,), (3,), (3, 5), (ZERO, AT_I, ZERO, ZERO)), INSIDE),
    "in front of the beginning": (
        panel((1,), (3,), (2, 5), (ZERO, Affine((), -1), ZERO, ZERO)),
        INSIDE,
    ),
    "in front of it at last": (
        panel((1,), (3,), (2, 5), (ZERO, -AT_I, ZERO, ZERO)),
        INSIDE,
    ),
    "columns behind the end": (panel((1,), (3,), (3, 4), (ZERO, ZERO, ZERO, TWO)), INSIDE),
}


@pytest.mark.parametrize(("given", "fault"), FAULTS.values(), ids=FAULTS)
def test_malformed_matrices_are_found(given: Panel, fault: str) -> None:
    assert fault in given.fault()
    assert given.T.fault()


def product(x: Panel) -> Plan:
    """out = x @ y, where x is a panel, and i runs around it if it moves."""
    (m, k), n = x.shape, 2
    y, out = Cell((k, n), F8, "input"), Cell((2, m, n), F8, "output")
    step = Gemm(Panel.of(out, (AT_I,)), x, Panel.of(y))
    step = step.T if x.ways else step
    return Plan("f", (x.cell, y), (out,), (Loop(I, (step,)),))


@pytest.mark.parametrize("name", FAULTS)
def test_plans_with_them_are_malformed(name: str) -> None:
    with pytest.raises(InternalError):
        verify_plan(product(FAULTS[name][0]))


OUTSIDE = {"behind": TWO + ONE, "in front": Affine((), -1), "at last": AT_I + TWO}


@pytest.mark.parametrize("at", OUTSIDE.values(), ids=OUTSIDE)
def test_so_are_those_outside_along_another_axis(at: Affine) -> None:
    with pytest.raises(InternalError, match="leaves an axis of 3"):
        verify_plan(product(panel((2,), (3,), (4, 5), (ZERO, at, ZERO, ZERO))))


@pytest.mark.parametrize("given", GOOD.values(), ids=GOOD)
def test_others_are_fine(given: Panel) -> None:
    verify_plan(product(given))
    verify_plan(product(given.T))


@pytest.mark.parametrize("text", GOOD)
def test_how_they_read(text: str) -> None:
    assert f" = {text} @ " in show_plan(product(GOOD[text]))
