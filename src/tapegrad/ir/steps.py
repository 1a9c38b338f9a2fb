"""The steps of plans: the cells that each reads and writes, copies with replaced cells or indices,
and their text.

A pass asks steps by these methods. Only the emitter and the interpreter of plans tell the classes
apart.

Short names: `i`, `j` loop indices; `at` an index, one entry for each axis; `t` the printer of a
plan, which knows the names of cells.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from tapegrad.core.values import Literal, Source
from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import (
    COLUMNS,
    ROWS,
    TERMS,
    Along,
    At,
    Cell,
    Indirect,
    Read,
    Share,
    read_accesses,
)
from tapegrad.ir.changes import Changes
from tapegrad.ir.fold import SUM, Fold
from tapegrad.ir.panels import Panel
from tapegrad.ir.tape import dtype_name

Places = tuple[Affine | Indirect | None, ...]  # position along each axis; None: the whole axis
S = TypeVar("S", bound="Step")


class Step:
    """One step of a plan. `accesses` gives (cell, index, whether it writes)."""

    src: Source | None = None
    inside: ClassVar[Any] = None  # the heads of the loops inside which its indices were verified
    outermost: ClassVar[bool] = False  # whether it never stands in a loop
    of_arrays: ClassVar[bool] = False  # whether it may write elements before it has read all others

    def accesses(self) -> Iterable[tuple[Cell, At | None, bool]]:
        return self._accesses

    @cached_property
    def _accesses(self) -> tuple[tuple[Cell, At | None, bool], ...]:
        return tuple(self.found())  # passes ask again and again, and steps don't change

    def found(self) -> Iterator[tuple[Cell, At | None, bool]]:
        raise NotImplementedError

    def changed(self: S, to: Changes) -> S:
        """A copy with cells and indices replaced."""
        raise NotImplementedError

    def text(self, t: Any) -> str:
        """The step as a line of a plan's text; for a loop, its head."""
        raise NotImplementedError

    def substituted(self: S, indices: Mapping[Index, Affine]) -> S:
        """A copy with loop indices replaced."""
        return self.changed(Changes(indices=indices))

    @property
    def folds(self) -> Fold | None:
        """The operation by which the step updates its cell, or None."""
        return None

    def in_chunk(self, chunk: Index, size: int) -> Step:
        """The part of the step that one chunk computes: `size` rows of each matrix or loop."""
        raise NotImplementedError

    def needs(self) -> Iterator[Cell]:
        """The cells that the step reads. A cell that it adds to counts, a cell that it only
        overwrites doesn't."""
        return (cell for cell, _, writes in self.own() if not writes)

    def parts(self) -> Iterator[tuple[Cell, At, bool]]:
        """The step's own accesses as (cell, index, whether it covers more than one element)."""
        return ((cell, at or (), at is None) for cell, at, _ in self.own())

    def own(self) -> Iterable[tuple[Cell, At | None, bool]]:
        """The accesses of the step itself, without those of nested steps."""
        return self.accesses()

    def touches(self) -> Iterable[tuple[Cell, Places | None, bool]]:
        """The accesses with the position along each axis; None means the whole axis."""
        return self.accesses()

    def indices(self) -> Iterator[tuple[Cell, Along | None, bool]]:
        """The accesses, with the position along each axis, if that depends on a single loop index
        or share.

        Then other iterations of that loop touch other rows. An entry is None if the position
        depends on more, or on nothing. A cell that is added to counts as written, not as read.
        """
        for cell, at, writes in self.accesses():
            alone = None
            if at is not None:
                alone = tuple([k.alone if isinstance(k, Affine) else None for k in at])
            yield cell, alone, writes


@dataclass(frozen=True)
class Compute(Step):
    """`cell[at] = primitive(reads)`, or `cell[at] (+) primitive(reads)` if `combine` is a fold."""

    cell: Cell
    at: At
    primitive: Any
    reads: tuple[Read, ...]
    combine: Fold | None = None
    src: Source | None = None

    def found(self) -> Iterator[tuple[Cell, At | None, bool]]:
        for read in self.reads:
            yield from read_accesses(read)
        for k in self.at:
            if isinstance(k, Indirect):
                yield from read_accesses(k.read)
        yield self.cell, self.at, True

    @property
    def folds(self) -> Fold | None:
        return self.combine

    def needs(self) -> Iterator[Cell]:
        yield from super().needs()
        if self.combine:
            yield self.cell

    def changed(self, to: Changes) -> Compute:
        cell, at = to.element(self.cell, self.at)
        reads = tuple(map(to.read, self.reads))
        if cell is self.cell and at is self.at and all(map(operator.is_, reads, self.reads)):
            return self
        return Compute(cell, at, self.primitive, reads, self.combine, self.src)

    def text(self, t: Any) -> str:
        value = t.applied(self.primitive, map(t.read, self.reads))
        target, kind = t.target(self.cell, self.at), dtype_name(self.cell.dtype)
        return f"{target} {self.combine or ''}= {value} : {kind}"


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

    def found(self) -> Iterator[tuple[Cell, At | None, bool]]:
        yield from read_accesses(self.read)
        yield self.best, self.at, True
        yield self.cell, self.at, True

    def needs(self) -> Iterator[Cell]:
        yield from super().needs()
        yield from (self.cell, self.best)

    def changed(self, to: Changes) -> ArgUpdate:
        cell, best = to.cells((self.cell, self.best))
        at, read, position = to.at(self.at), to.read(self.read), to.affine(self.position)
        return ArgUpdate(cell, best, at, read, position, self.better, self.src)

    def text(self, t: Any) -> str:
        best, value = t.target(self.best, self.at), t.read(self.read)
        target, position = t.target(self.cell, self.at), t.entry(self.position)
        return f"if {value} {self.better} {best}: {best}, {target} = {value}, {position}"


@dataclass(frozen=True)
class Gemm(Step):
    """`out = x @ y`, or `out += x @ y` if it `adds`.

    With `sizes`, only the front of the matrices takes part: these numbers of rows, columns and
    terms. With `share`, only the part of one chunk is computed.
    """

    out: Panel
    x: Panel
    y: Panel
    adds: bool = False
    src: Source | None = None
    sizes: tuple[Affine, Affine, Affine] | None = None
    share: Share | None = None

    of_arrays = True

    @property
    def extents(self) -> tuple[int, int, int]:
        """The numbers of rows, columns and terms."""
        return (*self.out.shape, self.x.shape[1])

    @property
    def folds(self) -> Fold | None:
        return SUM if self.adds else None

    @property
    def T(self) -> Gemm:
        """The same product, computed as `out.T = y.T @ x.T`."""
        m, n, k = self.sizes or (None, None, None)
        sizes = None if m is None or n is None or k is None else (n, m, k)
        return replace(self, out=self.out.T, x=self.y.T, y=self.x.T, sizes=sizes)

    def in_chunk(self, chunk: Index, size: int) -> Gemm:
        return replace(self, share=Share(ROWS, chunk, size))

    @property
    def matrices(self) -> tuple[tuple[Panel, tuple[int, int]], ...]:
        """The panels of the result, x and y, each with the dimensions of its rows and columns."""
        return (self.out, (ROWS, COLUMNS)), (self.x, (ROWS, TERMS)), (self.y, (TERMS, COLUMNS))

    def indices(self) -> Iterator[tuple[Cell, Along | None, bool]]:
        for panel, axes in self.matrices:
            yield panel.cell, panel.along(axes, self.share), panel is self.out

    def found(self) -> Iterator[tuple[Cell, At | None, bool]]:
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

    def parts(self) -> Iterator[tuple[Cell, At, bool]]:
        return ((panel.cell, panel.at, True) for panel, _ in self.matrices)

    def changed(self, to: Changes) -> Gemm:
        out, x, y = (to.panel(panel) for panel, _ in self.matrices)
        share = self.share and replace(self.share, chunk=to.index(self.share.chunk))
        return replace(self, out=out, x=x, y=y, share=share)

    def text(self, t: Any) -> str:
        out, x, y = (t.panel(panel) for panel, _ in self.matrices)
        sizes = "" if self.sizes is None else f" of {', '.join(map(t.entry, self.sizes))}"
        share = "" if self.share is None else t.share(self.share)
        return f"{out} {'+' * self.adds}= {x} @ {y}{sizes}{share}"


@dataclass(frozen=True)
class Routine(Step):
    """`results[at] = kernel(arrays)`, with the kernel of a primitive. Each array is (cell, index of
    the matrix in it, whether it is transposed). The first `written` arrays are overwritten."""

    primitive: Any
    arrays: tuple[tuple[Cell, At, bool], ...]
    written: int
    results: tuple[Cell, ...]
    at: At
    src: Source | None = None

    of_arrays = True

    @property
    def read(self) -> list[int]:
        """The numbers of the arrays that are read. The others are only written."""
        starts = [k for k, x in enumerate(self.primitive.overwrites) if x is not None]
        return [*starts, *range(self.written, len(self.arrays))]

    def found(self) -> Iterator[tuple[Cell, At | None, bool]]:
        for k, (cell, _, _) in enumerate(self.arrays):
            yield cell, None, False
            if k < self.written:
                yield cell, None, True
        for cell in self.results:
            yield cell, self.at, True

    def needs(self) -> Iterator[Cell]:
        return (self.arrays[k][0] for k in self.read)

    def parts(self) -> Iterator[tuple[Cell, At, bool]]:
        yield from ((cell, at, True) for cell, at, _ in self.arrays)
        yield from ((cell, self.at, False) for cell in self.results)

    def changed(self, to: Changes) -> Routine:
        arrays = tuple([(to.cell(c), to.at(at), turned) for c, at, turned in self.arrays])
        return replace(self, arrays=arrays, results=to.cells(self.results), at=to.at(self.at))

    def text(self, t: Any) -> str:
        arrays = ", ".join(t.part(*array) for array in self.arrays)
        results = ", ".join(t.target(cell, self.at) for cell in self.results)
        return f"{results} = {self.primitive.kernel}({arrays})".removeprefix(" = ")


@dataclass(frozen=True, eq=False)
class PythonCall(Step):
    """A primitive that NumPy evaluates between kernels."""

    primitive: Any
    outs: tuple[Cell, ...]
    reads: tuple[Cell | Literal, ...]
    src: Source | None = None

    outermost = of_arrays = True

    def found(self) -> Iterator[tuple[Cell, At | None, bool]]:
        for x in self.reads:
            if isinstance(x, Cell):
                yield x, None, False
        for out in self.outs:
            yield out, None, True

    def needs(self) -> Iterator[Cell]:
        """The cells that the call reads, without those that it writes: the call may be the first to
        write these."""
        return (cell for cell in super().needs() if cell not in self.outs)

    def changed(self, to: Changes) -> PythonCall:
        reads = tuple([to.cell(x) if isinstance(x, Cell) else x for x in self.reads])
        return replace(self, outs=to.cells(self.outs), reads=reads)

    def text(self, t: Any) -> str:
        reads = [str(x) if isinstance(x, Literal) else t.name(x) for x in self.reads]
        outs = ", ".join(map(t.name, self.outs))
        return f"call {outs} = {t.applied(self.primitive, reads)}"


@dataclass(frozen=True)
class CheckRange(Step):
    """Stop with a status if the flag was raised, which means that an index array was out of
    range."""

    flag: Cell
    status: int
    src: Source | None = None

    outermost = True

    def found(self) -> Iterator[tuple[Cell, At | None, bool]]:
        yield self.flag, (), False

    def changed(self, to: Changes) -> CheckRange:
        return replace(self, flag=to.cell(self.flag))

    def text(self, t: Any) -> str:
        return f"stop {self.status} if {t.target(self.flag, ())}"


@dataclass(frozen=True)
class CheckGuard(Step):
    """Stop with a status if a scalar differs from the value that the guard expects."""

    read: Read
    expected: Literal
    status: int
    src: Source | None = None

    outermost = True

    def found(self) -> Iterator[tuple[Cell, At | None, bool]]:
        yield from read_accesses(self.read)

    def changed(self, to: Changes) -> CheckGuard:
        return replace(self, read=to.read(self.read))

    def text(self, t: Any) -> str:
        return f"stop {self.status} unless {t.read(self.read)} = {self.expected}"


@dataclass(frozen=True, eq=False)
class Cut(Step):
    """The end of one kernel and the start of the next."""

    outermost = True

    def found(self) -> Iterator[tuple[Cell, At | None, bool]]:
        return iter(())

    def changed(self, to: Changes) -> Cut:
        return self

    def text(self, t: Any) -> str:
        return "cut"


@dataclass(frozen=True)
class Loop(Step):
    """`for index in range(extent): body`.

    A loop over tiles counts in steps of `step`; a loop inside a tile has that loop's index as its
    `start` and runs over up to `step` rows from there. The iterations of a `parallel` loop are
    chunks, which are independent. The loop inside it that runs over the n rows of a chunk has
    `chunk` = (index of the parallel loop, n). A `part` of a loop that was split runs over these of
    its iterations.
    """

    index: Index
    body: tuple[Step, ...]
    start: Index | None = None
    step: int = 1
    chunk: tuple[Index, int] | None = None
    parallel: bool = False
    part: range | None = None

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
        for step in self.body:
            yield from step.accesses()

    def in_chunk(self, chunk: Index, size: int) -> Loop:
        return replace(self, chunk=(chunk, size))

    def own(self) -> Iterator[tuple[Cell, At | None, bool]]:
        return iter(())

    def touches(self) -> Iterator[tuple[Cell, Places | None, bool]]:
        for step in self.body:
            yield from step.touches()

    def indices(self) -> Iterator[tuple[Cell, Along | None, bool]]:
        for step in self.body:
            yield from step.indices()

    def changed(self, to: Changes) -> Loop:
        start = self.start and to.index(self.start)
        chunk = self.chunk and (to.index(self.chunk[0]), self.chunk[1])
        body = tuple([step.changed(to) for step in self.body])
        return replace(self, body=body, start=start, chunk=chunk)

    def text(self, t: Any) -> str:
        limit = self.index.limit
        extent = self.index.extent if limit is None else t.entry(limit)
        head = f"for {t.index(self.index)} < {extent}"
        if self.start is not None:
            return f"{head} in tile {t.index(self.start)} of {self.step}:"
        if self.chunk is not None:
            chunk, rows = self.chunk
            head += f" in chunk {t.index(chunk)} of {rows}"
        steps = f" by {self.step}" if self.step != 1 else ""
        return f"{head}{steps}{' in parallel' * self.parallel}:"
