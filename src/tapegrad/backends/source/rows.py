"""Tests of whole rows, and the rows along which LLVM shall vectorise (`support.rolled`).

A loop may test a condition for each number that it reads, beside its other work:

    for j in range(220):
        total[j] += x[i, j]
        fits = fits & moderate(x[i, j], bound)

LLVM takes as long to compile the test as all the rest. So a function that kernels share tests all
numbers before the loop:

    fits = fits & all_moderate(x[i], 0, 220, bound)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.allocation import left_of
from tapegrad.ir.cells import At, Cell, Indirect
from tapegrad.ir.fold import ALL, Fold
from tapegrad.ir.plan import is_fill
from tapegrad.ir.steps import Compute, Loop, Step
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.elementwise import FUNCTION

SHORT_ROW = 16  # rows shorter than this are tested together
ROLLED = range(8, 65)  # extents to hide from LLVM: it vectorises longer rows anyway
LANES = 4  # of a vector; the remainder of a row is computed one by one


def is_short_row(loop: Loop, loops: Sequence[Index]) -> bool:
    """Whether `loop`, the innermost of `loops`, is short and shall be vectorised along its row.

    It sums into a register, or each row writes to its own memory: there LLVM would rather vectorise
    across rows. Or its body is one call of a function, which unrolling would repeat.
    """
    extent = loop.index.extent
    if extent not in ROLLED or loop.index.limit is not None:
        return False
    folds: set[Fold | None] = set()
    stores, cost = set(), 0
    row = loops[-2] if len(loops) > 1 else None
    for step in loop.body:
        if not isinstance(step, Compute):
            return False
        cost = max(cost, step.primitive.cost)
        if step.cell.in_register:
            folds.add(step.combine)
        else:
            stores.add(any(isinstance(k, Affine) and row in dict(k.terms) for k in step.at))
    if cost >= FUNCTION and len(loop.body) == 1 and len(loop.body[0].at) == 1:  # type: ignore[attr-defined]
        return True
    folds.discard(None)
    if folds or row is None:
        return row is not None and any(fold is not None and fold.loose for fold in folds)
    left_over = extent % LANES / extent
    return all(stores) and not (cost >= FUNCTION and left_over > 0.1)


def is_cleared(emitter: Any, loop: Loop) -> bool:
    """Whether a loop does nothing but set a vector to zero."""
    step = loop.body[0]
    if len(loop.body) > 1 or not is_fill(step) or not _is_whole(loop):
        return False
    assert isinstance(step, Compute)
    at = left_of(step.cell, step.at)
    is_vector = [*map(_alone, at)] == [loop.index] and _shape(step.cell) == (loop.index.extent,)
    if not is_vector or step.cell.dtype.kind not in "fi" or emitter.template(step) != "{0}":
        return False
    return repr(float(step.reads[0].literal.value)) == "0.0"  # type: ignore[union-attr]


class HoistedTests:
    """The tests in a loop that can be made for all numbers at once, before the loop. The numbers
    follow each other from round to round, or each round tests a short row."""

    def __init__(self, emitter: Any, loop: Loop) -> None:
        self.emitter, self.loop = emitter, loop
        # The first round, and the number of rounds; the last chunk may have fewer.
        self.begin, self.rounds = Affine(), loop.index.extent
        if loop.chunk is not None:
            self.begin, self.rounds = Affine((loop.chunk,)), loop.chunk[1]
        elif loop.start is not None:
            self.begin, self.rounds = Affine.of(loop.start), loop.step

    @cached_property
    def written(self) -> set[Cell]:
        """The cells that the loop writes to."""
        return {cell.root for cell, _, writes in self.loop.accesses() if writes}

    def rest(self) -> tuple[Step, ...]:
        """The loop's body without these tests, which are written before the loop."""
        loop = self.loop
        by_tiles = loop.step != 1 and loop.start is None
        if by_tiles or loop.index.limit is not None or self.emitter.program.axes:
            return loop.body
        body: list[Step] = []
        for step in loop.body:
            if isinstance(step, Loop) and _is_whole(step) and step.index.extent < SHORT_ROW:
                step = replace(step, body=self._without(step.body, step.index))
            if not isinstance(step, Loop) or step.body:
                body.append(step)
        return self._without(body)

    def _without(self, steps: Sequence[Step], row: Index | None = None) -> tuple[Step, ...]:
        """`steps`, of the body or of a row in it, without the tests that are made before the
        loop."""
        tests: dict[Cell | None, Compute] = {}
        gone: list[Step] = []
        for step in steps:
            if isinstance(step, Compute) and step.reads:
                test = tests.get(step.reads[0].cell)
                if self._is_test(step, row):
                    tests[step.cell] = step
                elif test and self._keeps_all(step, row):
                    self._ask(test, step, row)
                    gone += [test, step]
        return tuple([step for step in steps if not any(step is x for x in gone)])

    def _is_test(self, step: Compute, row: Index | None) -> bool:
        """Whether `step` tests a number that is in memory before the loop."""
        emitter, cell = self.emitter, step.reads[0].cell
        if not (isinstance(step.primitive, Elementwise) and step.primitive.of_all) or cell is None:
            return False
        if emitter.reads_left.get(step.cell) != 1 or emitter.writes.get(step.cell) != 1:
            return False
        if cell.in_register or cell in emitter.numbers or cell.root in self.written:
            return False
        *at, k = left_of(cell, step.reads[0].at) or (Affine(),)
        if row is not None:
            if not at or _alone(k) is not row or _shape(cell)[-1] != row.extent:
                return False
            *at, k = at
        steps = {} if isinstance(k, Indirect) else dict(k.terms)
        follows = steps.get(self.loop.index) == 1 and row not in steps
        return follows and not self._moves(tuple(at), row)

    def _keeps_all(self, step: Compute, row: Index | None) -> bool:
        """Whether `step` combines the results for all numbers in one flag."""
        is_fold = step.combine is ALL and self.emitter.template(step) == "{0}"
        return is_fold and not self._moves(step.at, row)

    def _moves(self, at: At, row: Index | None) -> bool:
        """Whether an index differs between rounds."""
        moving = {self.loop.index, row}
        return any(isinstance(k, Indirect) or moving & dict(k.terms).keys() for k in at)

    def _ask(self, test: Compute, fold: Compute, row: Index | None) -> None:
        emitter, (read, *bounds) = self.emitter, test.reads
        assert read.cell is not None
        at = left_of(read.cell, read.at)
        along, width = (-1, 1) if row is None else (-2, row.extent)
        k = at[along]
        assert isinstance(k, Affine)
        first = k.substitute({self.loop.index: self.begin})
        count = str(self.rounds * width)
        if self.rounds and self.loop.index.extent % self.rounds:
            left = emitter.entry(Affine((), self.loop.index.extent) - self.begin)
            count = f"min({self.rounds}, {left})" + f" * {width}" * (width > 1)
        array = emitter.matrix(read.cell, at[:along])
        given = [array, emitter.entry(first * width), count, *map(emitter.text, bounds)]
        flag = emitter.target(fold.cell, fold.at)
        emitter.line(f"{flag} = {flag} & all_{test.primitive.name}({', '.join(given)})")


def _is_whole(loop: Loop) -> bool:
    """Whether a loop goes over its whole extent with step 1."""
    return loop.step == 1 and not (loop.chunk or loop.start or loop.index.limit)


def _alone(k: Affine | Indirect) -> Index | None:
    """The loop index that `k` consists of; None if it is anything else."""
    return None if isinstance(k, Indirect) else k.index


def _shape(cell: Cell) -> tuple[int, ...]:
    """The extents of a cell in memory."""
    return cell.left if cell.alias is None else cell.shape
