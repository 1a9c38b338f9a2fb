"""The plan: loops, statements, library calls and cells, between the tape and the source.

A *cell* is a place for values: an argument, an output, or a temporary. Lowering makes one loop
nest for each call of the tape; fusing merges nests; contracting shrinks the cells that no longer
need all their axes, down to a scalar in a register.

Indices are affine in the loops' indices, so views cost nothing: they are composed into the index
with which the operand is read. Short names: `i`, `j` loop indices; `at` an index, one entry for
each axis.

Plans are immutable: a pass makes a new one. Cells are identities; a pass that says something new of
one, that it loses axes or is stored, puts another in its place (`ir/relocate.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tapegrad.ir.tape import METHODS, Aval, Literal, Source

_ids = itertools.count()


@dataclass(frozen=True, eq=False)
class Index:
    """A loop's index: runs from 0 to `extent` - 1."""

    extent: int
    id: int = field(default_factory=lambda: next(_ids))


@dataclass(frozen=True)
class Affine:
    """`const + sum of coefficient * index`."""

    terms: tuple[tuple[Index, int], ...] = ()
    const: int = 0

    @staticmethod
    def of(index: Index) -> Affine:
        return Affine(((index, 1),)) if index.extent != 1 else Affine()

    def scaled(self, factor: int, offset: int = 0) -> Affine:
        terms = tuple((i, c * factor) for i, c in self.terms) if factor else ()
        return Affine(terms, self.const * factor + offset)

    def plus(self, other: Affine) -> Affine:
        total = dict(self.terms)
        for i, c in other.terms:
            total[i] = total.get(i, 0) + c
        return Affine(tuple((i, c) for i, c in total.items() if c), self.const + other.const)

    def substitute(self, mapping: Mapping[Index, Affine]) -> Affine:
        if not any(i in mapping for i, _ in self.terms):
            return self
        result = Affine((), self.const)
        for i, c in self.terms:
            result = result.plus(mapping[i].scaled(c) if i in mapping else Affine(((i, c),)))
        return result

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest value, whatever the loops."""
        steps = [c * (i.extent - 1) for i, c in self.terms]
        return self.const + sum(s for s in steps if s < 0), self.const + sum(
            s for s in steps if s > 0
        )

    @property
    def index(self) -> Index | None:
        """The loop index that this is, alone and unchanged, or None."""
        if self.const == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0]
        return None


@dataclass(frozen=True, eq=False)
class Cell:
    """A place for values of one dtype. `role` is "input", "output" or "temporary".

    `alias` is the cell whose memory this one shares under another shape. `axes` are the axes that
    contracting leaves; None means all of them.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    role: str = "temporary"
    hint: str = ""
    src: Source | None = None
    alias: Cell | None = None
    axes: tuple[int, ...] | None = None
    scalar: bool = False  # an input passed by value
    stored: bool = False  # in memory though it has no axes: two kernels use it
    id: int = field(default_factory=lambda: next(_ids))

    @property
    def root(self) -> Cell:
        return self if self.alias is None else self.alias.root

    @property
    def left(self) -> tuple[int, ...]:
        """The extents of the axes that contracting left."""
        return self.shape if self.axes is None else tuple(self.shape[a] for a in self.axes)

    @property
    def in_register(self) -> bool:
        return (
            self.role == "temporary" and self.alias is None and self.left == () and not self.stored
        )

    @property
    def aval(self) -> Aval:
        return Aval(self.shape, self.dtype)


@dataclass(frozen=True)
class Indirect:
    """An index that an array of integers holds; negative ones count from the end."""

    read: Read
    extent: int


At = tuple[Affine | Indirect, ...]


@dataclass(frozen=True)
class Read:
    """A cell at an index, or a literal; or, of neither, the index itself, as a number."""

    cell: Cell | None
    at: At = ()
    literal: Literal | None = None

    def substitute(self, mapping: Mapping[Index, Affine]) -> Read:
        return Read(self.cell, substitute_at(self.at, mapping), self.literal)


def substitute_at(at: At, mapping: Mapping[Index, Affine]) -> At:
    return tuple(
        Indirect(k.read.substitute(mapping), k.extent)
        if isinstance(k, Indirect)
        else k.substitute(mapping)
        for k in at
    )


# ---- statements and loops


class Step:
    """Something the plan does; `accesses` yields (cell, index, whether it writes)."""

    src: Source | None = None

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        raise NotImplementedError

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
    """`cell[at] = primitive(reads)`, or `cell[at] (+) value` if `combine` names a folding.

    `combine` is "sum", "prod", "max", "min", "any", "all", "add" (exact order) or "" for a store.
    """

    cell: Cell
    at: At
    primitive: Any
    reads: tuple[Read, ...]
    combine: str = ""
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
    """`results[at] = function(arrays)`: a routine of LAPACK. Each array is a cell, the index of the
    matrix in it, and whether that stands transposed; the first `written` are overwritten.

    `evaluate` computes it with NumPy, of the arrays numbered `reads`, what is overwritten (None for
    work space), then the results.
    """

    function: str
    arrays: tuple[tuple[Cell, At, bool], ...]
    written: int
    results: tuple[Cell, ...]
    at: At
    reads: tuple[int, ...]
    evaluate: Callable[..., Any]
    src: Source | None = None

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

    def substituted(self, mapping: Mapping[Index, Affine]) -> Loop:
        return replace(self, body=tuple([s.substituted(mapping) for s in self.body]))


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
