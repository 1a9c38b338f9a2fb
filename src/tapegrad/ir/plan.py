"""The plan: loops, statements, library calls and cells, between the tape and the source.

A *cell* is a place for values: an argument, an output, or a temporary. Lowering makes one loop nest
for each call of the tape; fusing merges nests; shrinking removes from cells the axes that they no
longer need, down to a scalar in a register.

Plans are immutable: a pass makes a new one. Cells are compared by identity. A pass that changes a
fact about a cell, such as its axes or whether it is stored, replaces the cell (`with_cells`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tapegrad.core.values import Source
from tapegrad.ir.cells import UNBOUNDED, At, Cell, Index, Read, read_accesses
from tapegrad.ir.changes import Changes
from tapegrad.ir.steps import Compute, Cut, Loop, PythonCall, Step
from tapegrad.ir.tape import METHODS


def cycle_of(turns: Sequence[int], place: int) -> list[int]:
    """The places that pass through `place` in successive rounds, if place `turns[p]` becomes place
    p."""
    cycle = [place]
    while turns[cycle[-1]] != place:
        cycle.append(turns[cycle[-1]])
    return cycle


@dataclass(frozen=True)
class Recurrence(Step):
    """`for index in range(rounds): plan`, where each round continues with the results of the last
    one.

    The plan of a round was made separately, and may read `index`, which counts down if the loop
    runs `backwards`. Its first inputs are the loop-carried values, and its outputs are their next
    values; its other inputs are invariant. In the outer plan, `reads` are the initial values of its
    inputs, and `outs` are the final loop-carried values.

    Loop-carried arrays live in `places`, cells of the outer plan. A round finds carried array k in
    place `homes[k]` and leaves it in place `leaves[k]`. Then the places are renamed: what was place
    `turns[p]` becomes place p. So nothing is copied from round to round. `places` is the order
    before the first round; after the last round each array is in its own cell of `outs`.
    Temporaries live where the plan's own `allocation` says, in slots for which `scratch` are cells
    of the outer plan.

    A loop with a condition has `until`: it says whether there is a first round, and the last output
    of its plan says whether there is another. The last two of `outs` are the number of rounds made
    and whether the condition still held. If the trip count is known at run time only, arrays whose
    places are renamed are copied to `outs`, which are other cells.

    With `begin`, the loop starts at that step. If the plan of a round stops with a status, the loop
    stops with that status plus `first`.
    """

    index: Index
    plan: Plan
    rounds: Read
    reads: tuple[Read, ...]
    outs: tuple[Cell, ...]
    places: tuple[Cell, ...] = ()
    homes: tuple[int | None, ...] = ()  # None for a number
    leaves: tuple[int | None, ...] = ()
    turns: tuple[int, ...] = ()
    allocation: Any = None
    scratch: tuple[Cell, ...] = ()
    backwards: bool = False
    first: int = 0
    src: Source | None = None
    until: Read | None = None
    begin: Read | None = None

    outermost = of_arrays = True

    @property
    def carried(self) -> int:
        """The number of loop-carried values."""
        return len(self.homes)

    def ends(self, home: int, cell: Cell) -> bool:
        """Whether `cell` holds the array of place `home` after the last round: as its place, or as
        a copy of it if the trip count is unknown."""
        cycle = cycle_of(self.turns, home)
        if self.rounds.literal is None or self.until is not None or self.begin is not None:
            return cell not in self.places or (len(cycle) == 1 and cell is self.places[home])
        rounds = min(int(self.rounds.literal.value), self.index.extent)
        return cell is self.places[cycle[rounds % len(cycle)]]

    def found(self) -> Iterator[tuple[Cell, At | None, bool]]:
        yield from read_accesses(self.rounds)
        for head in (self.until, self.begin):
            if head is not None:
                yield from read_accesses(head)
        for read in self.reads:
            if read.cell is not None and read.cell.shape:
                yield read.cell, None, False
            else:
                yield from read_accesses(read)
        for cell in (*self.places, *self.scratch):
            yield cell, None, True
        for cell in self.outs:
            yield cell, None if cell.shape else (), True

    def changed(self, to: Changes) -> Recurrence:
        until, begin = [None if x is None else to.read(x) for x in (self.until, self.begin)]
        return replace(
            self,
            rounds=to.read(self.rounds),
            reads=tuple(map(to.read, self.reads)),
            outs=to.cells(self.outs),
            places=to.cells(self.places),
            scratch=to.cells(self.scratch),
            until=until,
            begin=begin,
        )

    def text(self, t: Any) -> str:
        outs, reads = ", ".join(map(t.name, self.outs)), ", ".join(map(t.whole, self.reads))
        last = self.first + len(self.plan.failures)
        stops = f" or stop {self.first + 1} to {last}" if last > self.first else ""
        number, index, rounds = t.number(self.plan), self.index, t.read(self.rounds)
        most = f" of {index.extent}" if rounds not in (str(index.extent), "") else ""
        most = "" if index.extent == UNBOUNDED else most
        down = " down" * self.backwards
        names = list(map(t.name, self.places))
        turned = [names[k] for k in self.turns]
        swaps = f" with {', '.join(names)} = {', '.join(turned)}" if turned != names else ""
        condition = f" while {t.read(self.until)}" if self.until is not None else ""
        begin = f"{t.read(self.begin)} <= " if self.begin is not None else ""
        head = f"for {begin}{t.index(index)} < {rounds}{most}{down}{condition}"
        return f"{outs} = {head}: @{number}({reads}){swaps}{stops}"


@dataclass(frozen=True)
class Failure:
    """The meaning of a status that a kernel returns: a failed guard, a guard on the range of
    numbers in which sums may be reordered, or an index out of range. `error` is the NumPy error to
    raise, as Python source."""

    kind: str  # "guard", "range" or "index"
    message: str
    src: Source | None
    error: str = ""

    def what(self) -> str:
        """The assumption in words, with the user's line."""
        line = f" ({self.src})" if self.src else ""
        return f"{self.message or 'a value that the trace assumes'}{line}"


@dataclass(frozen=True)
class Plan:
    """Steps in order, and the cells that a caller passes and gets.

    A kernel that stops returns a status: status k is the k-th of `failures`, counted from 1. The
    plan of a loop's round runs `among` the indices of the recurrences around it.
    """

    name: str
    inputs: tuple[Cell, ...]
    outputs: tuple[Cell, ...]
    steps: tuple[Step, ...]
    failures: tuple[Failure, ...] = ()
    among: tuple[Index, ...] = ()

    def __str__(self) -> str:
        return str(METHODS["show_plan"](self))

    def _repr_html_(self) -> str:
        return str(METHODS["html"](self, "plan"))


MANY_ROUNDS = 1 << 40  # rounds


def walk(steps: Sequence[Step]) -> Iterator[Step]:
    """All steps, including those inside loops."""
    for step in steps:
        yield step
        if isinstance(step, Loop):
            yield from walk(step.body)


def leaves(step: Step) -> list[Step]:
    """The steps inside a step that aren't loops, or the step itself."""
    return [s for s in walk([step]) if not isinstance(s, Loop)]


def count_accesses(step: Step | Plan) -> int:
    """The most memory accesses that running a step makes."""
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
    rounds = min(step.index.extent, MANY_ROUNDS) if isinstance(step, Recurrence) else 0
    inside = rounds * count_accesses(step.plan) if isinstance(step, Recurrence) else 0
    whole = (math.prod(c.root.left) if at is None else 1 for c, at, _ in step.accesses())
    return 1 + inside + sum(whole)


def segments(steps: Sequence[Step]) -> list[list[Step] | PythonCall]:
    """The steps, divided at calls of NumPy, cuts and parallel loops. Each list of steps is one
    kernel."""
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


def most_chunks(step: Step) -> int:
    """The most chunks of a loop that cores share: of the step, or in its rounds. 0 if there is
    none."""
    if isinstance(step, Recurrence):
        return max(map(most_chunks, step.plan.steps), default=0)
    return step.index.extent if isinstance(step, Loop) and step.parallel else 0


def is_fill(step: Step) -> bool:
    """Whether the step only stores a literal."""
    return (
        isinstance(step, Compute)
        and not step.combine
        and all(r.literal is not None for r in step.reads)
    )


def with_cells(plan: Plan, changed: Mapping[Cell, Cell]) -> Plan:
    """The plan with some cells replaced. Aliases of a replaced cell follow it."""
    if not changed:
        return plan
    found = dict(changed)

    def new(cell: Cell) -> Cell:
        if cell not in found:
            base = None if cell.alias is None else new(cell.alias)
            found[cell] = cell if base is cell.alias else replace(cell, alias=base)
        return found[cell]

    to = Changes(lambda cell, at: (new(cell), at))
    return replace(
        plan,
        inputs=tuple(map(new, plan.inputs)),
        outputs=tuple(map(new, plan.outputs)),
        steps=tuple([step.changed(to) for step in plan.steps]),
    )
