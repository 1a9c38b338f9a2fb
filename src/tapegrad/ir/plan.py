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
from tapegrad.ir.cells import COLUMNS as COLUMNS  # whoever works on plans finds these here too
from tapegrad.ir.cells import ROWS as ROWS
from tapegrad.ir.cells import TERMS as TERMS
from tapegrad.ir.cells import UNBOUNDED as UNBOUNDED
from tapegrad.ir.cells import Affine as Affine
from tapegrad.ir.cells import Along as Along
from tapegrad.ir.cells import At as At
from tapegrad.ir.cells import Cell as Cell
from tapegrad.ir.cells import Index as Index
from tapegrad.ir.cells import Indirect as Indirect
from tapegrad.ir.cells import Read as Read
from tapegrad.ir.cells import Share as Share
from tapegrad.ir.cells import substitute_at as substitute_at
from tapegrad.ir.fold import Fold
from tapegrad.ir.panels import Panel as Panel
from tapegrad.ir.tape import METHODS

# ---- statements and loops

Places = tuple[Affine | Indirect | None, ...]  # where along each axis; None is all along it


class Step:
    """Something the plan does; `accesses` yields (cell, index, whether it writes)."""

    src: Source | None = None

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        raise NotImplementedError

    def own(self) -> Iterator[tuple[Cell, At | None, bool]]:
        """The accesses of the step itself, without those of steps inside it."""
        return self.accesses()

    def touches(self) -> Iterator[tuple[Cell, Places | None, bool]]:
        """The accesses with, for each axis, where along it; None where that is all along it."""
        return self.accesses()

    def indices(self) -> Iterator[tuple[Cell, Along | None, bool]]:
        """The accesses with, for each axis, the loop index that alone says where along it, or the
        share of a chunk: other iterations of that loop touch other rows. None where more than that
        says it, or nothing. What is added to isn't read."""
        for cell, at, writes in self.accesses():
            alone = None
            if at is not None:
                alone = tuple([k.index if isinstance(k, Affine) else None for k in at])
            yield cell, alone, writes

    def substituted(self, mapping: Mapping[Index, Affine]) -> Step:
        raise NotImplementedError


def renamed(index: Index, mapping: Mapping[Index, Affine]) -> Index:
    """The index that stands for this one, which is said without a factor or an offset."""
    named = mapping[index].index if index in mapping else index
    assert named is not None
    return named


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
    """`out = x @ y`, or `+=` if it `adds`; of the fronts of these, if `sizes` say how many rows,
    columns and terms there are; or only what is in the `share` of a chunk."""

    out: Panel
    x: Panel
    y: Panel
    adds: bool = False
    src: Source | None = None
    sizes: tuple[Affine, Affine, Affine] | None = None
    share: Share | None = None

    @property
    def extents(self) -> tuple[int, int, int]:
        """How many rows, columns and terms there are."""
        return (*self.out.shape, self.x.shape[1])

    @property
    def matrices(self) -> tuple[tuple[Panel, tuple[int, int]], ...]:
        """The result, x and y, and what their rows and columns count."""
        return (self.out, (ROWS, COLUMNS)), (self.x, (ROWS, TERMS)), (self.y, (TERMS, COLUMNS))

    def indices(self) -> Iterator[tuple[Cell, Along | None, bool]]:
        for panel, axes in self.matrices:
            yield panel.cell, panel.along(axes, self.share), panel is self.out

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        yield self.x.cell, None, False
        yield self.y.cell, None, False
        if self.adds:
            yield self.out.cell, None, False
        yield self.out.cell, None, True

    def touches(self) -> Iterator[tuple[Cell, Places | None, bool]]:
        yield self.x.cell, self.x.outside, False
        yield self.y.cell, self.y.outside, False
        if self.adds:
            yield self.out.cell, self.out.outside, False
        yield self.out.cell, self.out.outside, True

    def substituted(self, mapping: Mapping[Index, Affine]) -> Gemm:
        out, x, y = (panel.substituted(mapping) for panel, _ in self.matrices)
        share = self.share and replace(self.share, chunk=renamed(self.share.chunk, mapping))
        return replace(self, out=out, x=x, y=y, share=share)


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
    """

    index: Index
    body: tuple[Step, ...]
    start: Index | None = None
    step: int = 1
    chunk: tuple[Index, int] | None = None
    parallel: bool = False

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        for step in self.body:
            yield from step.accesses()

    def own(self) -> Iterator[tuple[Cell, At | None, bool]]:
        return iter(())

    def touches(self) -> Iterator[tuple[Cell, Places | None, bool]]:
        for step in self.body:
            yield from step.touches()

    def indices(self) -> Iterator[tuple[Cell, Along | None, bool]]:
        for step in self.body:
            yield from step.indices()

    def substituted(self, mapping: Mapping[Index, Affine]) -> Loop:
        start = self.start and renamed(self.start, mapping)
        chunk = self.chunk and (renamed(self.chunk[0], mapping), self.chunk[1])
        body = tuple([s.substituted(mapping) for s in self.body])
        return replace(self, body=body, start=start, chunk=chunk)


@dataclass(frozen=True)
class Recurrence(Step):
    """`for index in range(rounds): plan`, each round on what the last one left.

    The plan of a round was planned by itself, among the values of `index`, which counts down if
    this runs `backwards`. Its first inputs are what is carried, and its outputs what is carried
    next; the other inputs are the same in each round. Outside, `reads` are the values of its inputs
    at first, and `outs` what is carried in the end.

    Arrays are carried in `places`, cells outside. A round finds its carried array k in place
    `homes[k]` and leaves it in place `leaves[k]`; after it the places are renamed: what was place
    `turns[p]` becomes place p. So nothing is copied from round to round. `places` say where they
    are at first, and after the last round each array is in its own `outs`. Temporaries live where
    the plan's own `allocation` says, in slots for which `scratch` are cells outside.

    One that runs `until` has a condition: whether there is a first round, and the last output of
    its plan, whether there is another. It leaves how many rounds it made and whether it would have
    gone on in the last two of `outs`. Where only a run knows how many rounds there are, arrays that
    turn round in their places are copied to `outs`, which are other cells.

    One that has a `begin` starts with that step. Where the plan stops with a status, this stops
    with that and `first` added.
    """

    index: Index
    plan: Plan
    rounds: Read
    reads: tuple[Read, ...]
    outs: tuple[Cell, ...]
    places: tuple[Cell, ...] = ()
    homes: tuple[int | None, ...] = ()  # None of what is a number
    leaves: tuple[int | None, ...] = ()
    turns: tuple[int, ...] = ()
    allocation: Any = None
    scratch: tuple[Cell, ...] = ()
    backwards: bool = False
    first: int = 0
    src: Source | None = None
    until: Read | None = None
    begin: Read | None = None

    @property
    def carried(self) -> int:
        """How many values it carries."""
        return len(self.homes)

    def ends(self, home: int, cell: Cell) -> bool:
        """Whether a cell is where the array of this place is after the last round, or a copy of it,
        where nobody knows which round is the last."""
        cycle = [home]
        while self.turns[cycle[-1]] != home:
            cycle.append(self.turns[cycle[-1]])
        if self.rounds.literal is None or self.until is not None or self.begin is not None:
            return cell not in self.places or (len(cycle) == 1 and cell is self.places[home])
        rounds = min(int(self.rounds.literal.value), self.index.extent)
        return cell is self.places[cycle[rounds % len(cycle)]]

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        yield from _read_accesses(self.rounds)
        for head in (self.until, self.begin):
            if head is not None:
                yield from _read_accesses(head)
        for read in self.reads:
            if read.cell is not None and read.cell.shape:
                yield read.cell, None, False
            else:
                yield from _read_accesses(read)
        for cell in (*self.places, *self.scratch):
            yield cell, None, True
        for cell in self.outs:
            yield cell, None if cell.shape else (), True

    def substituted(self, mapping: Mapping[Index, Affine]) -> Recurrence:
        return self


@dataclass(frozen=True)
class Failure:
    """What a status that a kernel returns means: a guard that failed, one on the range of numbers
    in which another order of sums is taken, or an index out of range. `error` is that of NumPy
    which is raised then, as Python."""

    kind: str  # "guard", "range" or "index"
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
    stops count the failures from 1. One of a round stands `among` the indices of recurrences."""

    name: str
    inputs: tuple[Cell, ...]
    outputs: tuple[Cell, ...]
    steps: tuple[Step, ...]
    failures: tuple[Failure, ...] = ()
    among: tuple[Index, ...] = ()

    def __str__(self) -> str:
        return str(METHODS["show_plan"](self))


MANY = 1 << 40  # rounds


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
    rounds = min(step.index.extent, MANY) if isinstance(step, Recurrence) else 0
    inside = rounds * count_accesses(step.plan) if isinstance(step, Recurrence) else 0
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


def is_parallel(step: Step) -> bool:
    return isinstance(step, Loop) and step.parallel


def is_fill(step: Step) -> bool:
    """Whether this stores a literal, and no more."""
    return (
        isinstance(step, Compute)
        and not step.combine
        and all(r.literal is not None for r in step.reads)
    )
