"""The plan: loops, statements, library calls and cells, between the tape and the source.

A *cell* is a place for values: an argument, an output, or a temporary. Lowering makes one loop
nest for each call of the tape; fusing merges nests; shrinking takes from cells the axes that they
no longer need, down to a scalar in a register.

Short names: `i`, `j` loop indices; `at` an index, one entry for each axis.

Plans are immutable: a pass makes a new one. Cells are identities; a pass that says something new of
one, that it loses axes or is stored, puts another in its place (`ir/relocate.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tapegrad.core.values import Literal, Source
from tapegrad.ir.cells import UNBOUNDED as UNBOUNDED  # whoever works on plans finds these here too
from tapegrad.ir.cells import Affine as Affine
from tapegrad.ir.cells import At as At
from tapegrad.ir.cells import Cell as Cell
from tapegrad.ir.cells import Index as Index
from tapegrad.ir.cells import Indirect as Indirect
from tapegrad.ir.cells import Read as Read
from tapegrad.ir.cells import substitute_at as substitute_at
from tapegrad.ir.fold import Fold
from tapegrad.ir.tape import METHODS

# ---- statements and loops


class Step:
    """Something the plan does; `accesses` yields (cell, index, whether it writes)."""

    src: Source | None = None

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        raise NotImplementedError

    def own(self) -> Iterator[tuple[Cell, At | None, bool]]:
        """The accesses of the step itself, without those of steps inside it."""
        return self.accesses()

    def substituted(self, mapping: Mapping[Index, Affine]) -> Step:
        raise NotImplementedError


def _read_accesses(read: Read) -> Iterator[tuple[Cell, At | None, bool]]:
    if read.cell is not None:
        yield read.cell, read.at, False
        for k in read.at:
            if isinstance(k, Indirect):
                yield from _read_accesses(k.read)


@dataclass(frozen=True)
class Compute(Step):
    """`cell[at] = primitive(reads)`, or `cell[at] (+) value` if it is combined with a fold."""

    cell: Cell
    at: At
    primitive: Any
    reads: tuple[Read, ...]
    combine: Fold | None = None
    src: Source | None = None

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        for read in self.reads:
            yield from _read_accesses(read)
        for k in self.at:
            if isinstance(k, Indirect):
                yield from _read_accesses(k.read)
        yield self.cell, self.at, True

    def substituted(self, mapping: Mapping[Index, Affine]) -> Compute:
        return Compute(
            self.cell,
            substitute_at(self.at, mapping),
            self.primitive,
            tuple(r.substitute(mapping) for r in self.reads),
            self.combine,
            self.src,
        )


@dataclass(frozen=True)
class ArgUpdate(Step):
    """`if read is better than best: best = read; cell[at] = position`."""

    cell: Cell
    best: Cell
    at: At
    read: Read
    position: Affine
    better: str
    src: Source | None = None

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        yield from _read_accesses(self.read)
        yield self.best, self.at, True
        yield self.cell, self.at, True

    def substituted(self, mapping: Mapping[Index, Affine]) -> ArgUpdate:
        return ArgUpdate(
            self.cell,
            self.best,
            substitute_at(self.at, mapping),
            self.read.substitute(mapping),
            self.position.substitute(mapping),
            self.better,
            self.src,
        )


@dataclass(frozen=True)
class Gemm(Step):
    """`out[at] = x[x_at] @ y[y_at]`, or `+=` if it `adds`: BLAS on the last two axes, which may
    stand transposed."""

    out: Cell
    x: Cell
    y: Cell
    at: At
    x_at: At
    y_at: At
    x_transposed: bool
    y_transposed: bool
    adds: bool = False
    src: Source | None = None

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        yield self.x, None, False
        yield self.y, None, False
        if self.adds:
            yield self.out, None, False
        yield self.out, None, True

    def substituted(self, mapping: Mapping[Index, Affine]) -> Gemm:
        return replace(
            self,
            at=substitute_at(self.at, mapping),
            x_at=substitute_at(self.x_at, mapping),
            y_at=substitute_at(self.y_at, mapping),
        )


@dataclass(frozen=True)
class Routine(Step):
    """`results[at] = kernel(arrays)`, the kernel of a primitive. Each array is a cell, the index of
    the matrix in it, and whether that stands transposed; the first `written` are overwritten."""

    primitive: Any
    arrays: tuple[tuple[Cell, At, bool], ...]
    written: int
    results: tuple[Cell, ...]
    at: At
    src: Source | None = None

    @property
    def read(self) -> list[int]:
        """The numbers of the arrays that it reads; others it only writes."""
        starts = [k for k, x in enumerate(self.primitive.overwrites) if x is not None]
        return [*starts, *range(self.written, len(self.arrays))]

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        for k, (cell, _, _) in enumerate(self.arrays):
            yield cell, None, False
            if k < self.written:
                yield cell, None, True
        for cell in self.results:
            yield cell, self.at, True

    def substituted(self, mapping: Mapping[Index, Affine]) -> Routine:
        arrays = tuple((c, substitute_at(at, mapping), t) for c, at, t in self.arrays)
        return replace(self, arrays=arrays, at=substitute_at(self.at, mapping))


@dataclass(frozen=True, eq=False)
class PythonCall(Step):
    """A primitive that NumPy evaluates between the kernels."""

    primitive: Any
    outs: tuple[Cell, ...]
    reads: tuple[Cell | Literal, ...]
    src: Source | None = None

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        for x in self.reads:
            if isinstance(x, Cell):
                yield x, None, False
        for out in self.outs:
            yield out, None, True

    def substituted(self, mapping: Mapping[Index, Affine]) -> PythonCall:
        return self


@dataclass(frozen=True)
class CheckRange(Step):
    """Stop with a status if the flag was raised: an index array was out of range."""

    flag: Cell
    status: int
    src: Source | None = None

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        yield self.flag, (), False

    def substituted(self, mapping: Mapping[Index, Affine]) -> CheckRange:
        return self


@dataclass(frozen=True)
class CheckGuard(Step):
    """Stop with a status if a scalar isn't what the trace took it to be."""

    read: Read
    expected: Literal
    status: int
    src: Source | None = None

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        yield from _read_accesses(self.read)

    def substituted(self, mapping: Mapping[Index, Affine]) -> CheckGuard:
        return self


@dataclass(frozen=True, eq=False)
class Cut(Step):
    """Here one kernel ends and the next begins."""

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        return iter(())

    def substituted(self, mapping: Mapping[Index, Affine]) -> Cut:
        return self


@dataclass(frozen=True)
class Loop(Step):
    """`for index in range(extent): body`.

    A loop over tiles counts in steps of `step`; a loop inside a tile has that loop's index as its
    `start` and runs over up to `step` rows from there. The iterations of a `parallel` loop, chunks,
    are independent; the loop inside it that has (its index, n) as its `chunk` runs over that chunk,
    n rows.

    Where only a run knows how many rounds there are, `rounds` reads it: an integer, or the index of
    a loop around. The extent is the most that there may be, and a run makes no more, whatever it
    reads; so no index leaves its array.
    """

    index: Index
    body: tuple[Step, ...]
    start: Index | None = None
    step: int = 1
    chunk: tuple[Index, int] | None = None
    parallel: bool = False
    rounds: Read | None = None

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        yield from self.own()
        for step in self.body:
            yield from step.accesses()

    def own(self) -> Iterator[tuple[Cell, At | None, bool]]:
        return iter(()) if self.rounds is None else _read_accesses(self.rounds)

    def substituted(self, mapping: Mapping[Index, Affine]) -> Loop:
        rounds = None if self.rounds is None else self.rounds.substitute(mapping)
        return replace(self, body=tuple([s.substituted(mapping) for s in self.body]), rounds=rounds)


Part = tuple[Cell, At]  # of a cell: at the first entries of an index


@dataclass(frozen=True)
class PlanCall(Step):
    """`outs = plan(reads)`: a plan that was planned by itself, on parts of cells.

    All is read before anything is written. A part that is among both is carried over: each round of
    a loop around reads what the last one wrote there. Where the plan stops with a status, this one
    stops with that and `first` added.
    """

    plan: Plan
    reads: tuple[Part, ...]
    outs: tuple[Part, ...]
    first: int = 0
    src: Source | None = None

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        for cell, _ in self.reads:
            yield cell, None, False
        for cell, _ in self.outs:
            yield cell, None, True

    def substituted(self, mapping: Mapping[Index, Affine]) -> PlanCall:
        reads, outs = (
            tuple([(cell, substitute_at(at, mapping)) for cell, at in parts])
            for parts in (self.reads, self.outs)
        )
        return replace(self, reads=reads, outs=outs)


@dataclass(frozen=True)
class Failure:
    """What a status that a kernel returns means: a guard that failed, or an index out of range.
    `error` is that of NumPy which is raised then, as Python."""

    kind: str  # "guard" or "index"
    message: str
    src: Source | None
    error: str = ""

    def what(self) -> str:
        """The assumption in words, with the user's line."""
        line = f" ({self.src})" if self.src else ""
        return f"{self.message or 'a value that the trace took for granted'}{line}"


@dataclass(frozen=True)
class Plan:
    """Steps in order, and the cells that a caller passes and gets. The statuses with which a plan
    stops count the failures from 1."""

    name: str
    inputs: tuple[Cell, ...]
    outputs: tuple[Cell, ...]
    steps: tuple[Step, ...]
    failures: tuple[Failure, ...] = ()

    def __str__(self) -> str:
        return str(METHODS["show_plan"](self))


def walk(steps: Sequence[Step]) -> Iterator[Step]:
    """All steps, those inside loops too."""
    for step in steps:
        yield step
        if isinstance(step, Loop):
            yield from walk(step.body)


def leaves(step: Step) -> list[Step]:
    """The steps inside a step that aren't loops; or the step itself."""
    return [s for s in walk([step]) if not isinstance(s, Loop)]


def count_accesses(step: Step | Plan) -> int:
    """How many accesses running a step takes, at most."""
    if isinstance(step, Plan):
        return sum(map(count_accesses, step.steps))
    if isinstance(step, Loop):
        count = step.index.extent
        if step.chunk is not None:
            count = step.chunk[1]
        elif step.start is not None:
            count = step.step
        if step.start is None:
            count = math.ceil(count / step.step)
        return count * sum(map(count_accesses, step.body))
    inside = count_accesses(step.plan) if isinstance(step, PlanCall) else 0
    whole = (math.prod(c.root.left) if at is None else 1 for c, at, _ in step.accesses())
    return 1 + inside + sum(whole)


def segments(steps: Sequence[Step]) -> list[list[Step] | PythonCall]:
    """Steps between calls of NumPy, each run of which is a kernel unless it is cut; so is each
    parallel loop."""
    found: list[list[Step] | PythonCall] = []
    is_open = False
    for step in steps:
        if isinstance(step, Cut):
            is_open = False
            continue
        alone = isinstance(step, PythonCall) or is_parallel(step)
        if isinstance(step, PythonCall):
            found.append(step)
        elif is_open and not alone:
            found[-1].append(step)  # type: ignore[union-attr]
        else:
            found.append([step])
        is_open = not alone
    return found


def is_dynamic(step: Step) -> bool:
    """Whether only a run knows how often the loops in a step go round."""
    return any(isinstance(s, Loop) and s.rounds is not None for s in walk([step]))


def is_parallel(step: Step) -> bool:
    return isinstance(step, Loop) and step.parallel


def is_fill(step: Step) -> bool:
    """Whether this stores a literal, and no more."""
    return (
        isinstance(step, Compute)
        and not step.combine
        and all(r.literal is not None for r in step.reads)
    )
