"""The plan: loops, statements, library calls and cells, between the tape and the source.

A *cell* is a place for values: an argument, an output, or a temporary. Lowering makes one loop
nest for each call of the tape; fusing merges nests; shrinking takes from cells the axes that they
no longer need, down to a scalar in a register.

Plans are immutable: a pass makes a new one. Cells are identities; a pass that says something new of
one, that it loses axes or is stored, puts another in its place (`with_cells`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tapegrad.core.values import Source
from tapegrad.ir.cells import UNBOUNDED, At, Cell, Index, Read
from tapegrad.ir.steps import Changes, Compute, Cut, Loop, PythonCall, Step, read_accesses
from tapegrad.ir.tape import METHODS


def cycle_of(turns: Sequence[int], place: int) -> list[int]:
    """The places that are at one, round after round, if place `turns[p]` becomes place p."""
    cycle = [place]
    while turns[cycle[-1]] != place:
        cycle.append(turns[cycle[-1]])
    return cycle


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

    outermost = of_arrays = True

    @property
    def carried(self) -> int:
        """How many values it carries."""
        return len(self.homes)

    def ends(self, home: int, cell: Cell) -> bool:
        """Whether a cell is where the array of this place is after the last round, or a copy of it,
        where nobody knows which round is the last."""
        cycle = cycle_of(self.turns, home)
        if self.rounds.literal is None or self.until is not None or self.begin is not None:
            return cell not in self.places or (len(cycle) == 1 and cell is self.places[home])
        rounds = min(int(self.rounds.literal.value), self.index.extent)
        return cell is self.places[cycle[rounds % len(cycle)]]

    def accesses(self) -> Iterator[tuple[Cell, At | None, bool]]:
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


def with_cells(plan: Plan, changed: Mapping[Cell, Cell]) -> Plan:
    """The plan with other cells in the place of some, whose aliases follow them."""
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
