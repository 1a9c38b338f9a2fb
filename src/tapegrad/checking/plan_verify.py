"""Verification of plans and of their allocations: run after each pass in the tests and under
TAPEGRAD_DEBUG."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.allocation import Allocation, Slot, extent, left_of, span, strides
from tapegrad.ir.cells import Along, At, Cell, Indirect
from tapegrad.ir.plan import Plan, Recurrence, segments
from tapegrad.ir.plan_text import malformed, show_step
from tapegrad.ir.shares import is_one_share, rows_of
from tapegrad.ir.steps import (
    Compute,
    Cut,
    Gemm,
    Loop,
    PythonCall,
    Step,
)

# ---- plans


def verify_plan(plan: Plan, after: str = "") -> Plan:
    """Return the plan if it is well formed; otherwise raise `InternalError`. A plan is well formed
    if

    - its cells belong to it: inputs aren't written, outputs are, and each place has one cell;
    - cells are written before they are read;
    - each loop index is used inside its loop, and no index leaves its array for any value of the
      loops;
    - the plans of rounds are well formed, and find their arrays where the last round left them;
    - chunks that may run at the same time don't write to memory that others access;
    - top-level steps stand at the top level, and each status has a meaning.
    """
    if plan.among and any(isinstance(step, PythonCall) for step in plan.steps):
        return plan  # of a loop that NumPy plays: the plan is dropped
    check = _Check(plan, after)
    for cell in (*plan.inputs, *plan.outputs):
        check.cell(cell, None)
    check.bound.update(plan.among)
    check.written.update(plan.inputs)
    check.steps(plan.steps, (), plan.among)
    for cell in plan.outputs:
        if cell not in check.written and extent(cell):
            check.fail("this result is never written", cell)
    return plan


@dataclass
class _Check:
    plan: Plan
    after: str
    written: set[Cell] = field(default_factory=set)
    known: dict[int, Cell] = field(default_factory=dict)
    bound: set[Index] = field(default_factory=set)  # indices of the surrounding loops
    planned: set[int] = field(default_factory=set)  # plans of rounds that were verified, by id

    def fail(self, message: str, cell: Cell | None = None, step: Step | None = None) -> None:
        line = "" if step is None else f" in `{show_step(self.plan, step)}`"
        raise malformed(self.plan, message + line, self.after, cell)

    def steps(self, steps: Sequence[Step], loops: tuple[Loop, ...], heads: tuple[Any, ...]) -> None:
        """Check steps inside of loops. Their `heads` are what indices can depend on."""
        if not isinstance(steps, tuple):
            self.fail("its steps aren't a tuple: plans don't change")
        for step in steps:
            if isinstance(step, Loop):
                self.loop(step, loops, heads)
            else:
                self.step(step, loops, heads)

    def loop(self, loop: Loop, loops: tuple[Loop, ...], heads: tuple[Any, ...]) -> None:
        if loop.index in self.bound:
            self.fail("a loop has the index of one around it", step=loop)
        if loop.parallel and loops:
            self.fail("a loop over chunks is inside another", step=loop)
        if loop.start is not None and loop.start not in self.bound:
            self.fail("it starts where no loop around it is", step=loop)
        if loop.chunk is not None and not any(
            around.parallel and around.index is loop.chunk[0] for around in loops
        ):
            self.fail("it isn't inside the loop over its chunks", step=loop)
        if loop.chunk is not None and loop.chunk[0].extent * loop.chunk[1] < loop.index.extent:
            self.fail("its chunks don't cover it", step=loop)
        if loop.parallel:
            self.apart(loop)
        self.bound.add(loop.index)
        heads = (*heads, loop.index, loop.start, loop.step, loop.chunk)
        self.steps(loop.body, (*loops, loop), heads)
        self.bound.remove(loop.index)

    def apart(self, loop: Loop) -> None:
        """Check that chunks write to no shared memory: each has its own row of a cell, or the rows
        that its inner loop runs over."""
        rows = {**rows_of(loop.body), loop.index: 0}
        uses: dict[Cell, list[Along | None]] = {}
        written: dict[Cell, None] = {}
        for cell, along, writes in loop.indices():
            if not cell.root.in_register:
                uses.setdefault(cell.root, []).append(along if cell.alias is None else None)
                if writes:
                    written.setdefault(cell.root)
        for cell in written:
            places = [along for along in uses[cell] if along is not None]
            axes = range(len(cell.shape)) if cell.axes is None else cell.axes
            own = any(is_one_share([along[a] for along in places], rows) for a in axes)
            if len(places) < len(uses[cell]) or not own:
                self.fail("two chunks meet in it", cell, loop)

    def step(self, step: Step, loops: tuple[Loop, ...], heads: tuple[Any, ...]) -> None:
        if step.outermost and loops:
            self.fail("only the top level has such a step", step=step)
        status = getattr(step, "status", None)
        if status is not None and not 1 <= status <= len(self.plan.failures):
            self.fail(f"status {status} has no meaning", step=step)
        if isinstance(step, Recurrence):
            self.recurrence(step)
        if isinstance(step, Gemm):
            self.product(step, loops)
        self.uses(step)
        pieces = isinstance(step, Compute) and any(read.pieces for read in step.reads)
        # Most steps are those that the last pass took. A piece isn't read where its index leaves
        # its array.
        if step.inside != heads and not pieces:
            for cell, at, batch in step.parts():
                self.index(cell, at, batch, loops, step)
            vars(step)["inside"] = heads

    def product(self, step: Gemm, loops: tuple[Loop, ...]) -> None:
        """Check that the matrices fit, and that chunks cover the axis and none is empty. A product
        of fronts isn't divided."""
        extents = step.extents
        for panel, axes in step.matrices:
            if panel.shape != tuple([extents[axis] for axis in axes]):
                self.fail("a factor or the result of a product doesn't fit", panel.cell, step)
            if fault := panel.fault():
                self.fail(fault, panel.cell, step)
            if panel.ways and (panel is not step.y or (step.share and step.share.axis in axes)):
                self.fail("windows are the second factor, and aren't shared out", panel.cell, step)
        if (own := step.share) is None:
            return
        if not any(loop.parallel and loop.index is own.chunk for loop in loops):
            self.fail("it isn't inside the loop over its chunks", step=step)
        end = own.chunk.extent * own.size
        if step.sizes is not None or not end - own.size < extents[own.axis] <= end:
            self.fail("its chunks don't cover it", step=step)

    def recurrence(self, step: Recurrence) -> None:
        """Check the plan of a round, its inputs, and the renaming of its arrays."""
        inner = step.plan
        if id(inner) not in self.planned:
            self.planned.add(id(inner))
            verify_plan(inner, self.after)
        if inner.among != (*self.plan.among, step.index):
            self.fail("its plan stands among other indices", step=step)
        outside = [
            (r.cell.shape[len(r.at) :], r.cell.dtype) if r.cell else None for r in step.reads
        ]
        known = [(cell.shape, cell.dtype) for cell in inner.inputs]
        if len(outside) != len(known) or any(
            x is not None and x != y for x, y in zip(outside, known, strict=True)
        ):
            self.fail("what it passes doesn't fit its plan", step=step)
        count = step.carried
        left = [(cell.shape, cell.dtype) for cell in inner.outputs[:count]]
        if left != known[:count] or left != [(c.shape, c.dtype) for c in step.outs[:count]]:
            self.fail("a round doesn't leave what it takes", step=step)
        if step.first + len(inner.failures) > len(self.plan.failures):
            self.fail("a status of its plan has no meaning", step=step)
        flags = ["b"] if step.until is not None else []
        ends = ["i", *flags] if step.until is not None else []
        left_over = [c.dtype.kind for c in step.outs[count:]]
        if [c.dtype.kind for c in inner.outputs[count:]] != flags or left_over != ends:
            self.fail("it has no condition, or leaves no count", step=step)
        for head in (step.rounds, step.begin):
            if head is not None and head.cell is not None and head.cell.dtype.kind not in "iu":
                self.fail("a number of rounds isn't an integer", head.cell, step)
        self.turns(step)

    def turns(self, step: Recurrence) -> None:
        """Check that each round finds its arrays where the last one left them, and that they end in
        the right place."""
        places, homes, leaves = step.places, step.homes, step.leaves
        numbers = set(range(len(places)))
        if len(set(places)) < len(places) or set(step.turns) != numbers:
            self.fail("its places don't go round", step=step)
        for home, leave, cell in zip(homes, leaves, step.outs[: step.carried], strict=True):
            if (home is None) != (leave is None) or (home is None) != (not cell.shape):
                self.fail("an array has no place, or a number has one", cell, step)
        for taken in (homes, leaves):
            used = [k for k in taken if k is not None]
            if len(set(used)) < len(used):
                self.fail("two arrays have one place", step=step)
        for home, leave in zip(homes, leaves, strict=True):
            if home is not None and step.turns[home] != leave:
                self.fail("a round leaves an array where the next one doesn't look", step=step)
        for home, cell in zip(homes, step.outs, strict=False):
            if home is not None and not step.ends(home, cell):
                self.fail("it isn't where its array is after the last round", cell, step)

    def uses(self, step: Step) -> None:
        """Check the reads and writes of a step itself."""
        for cell in step.needs():
            if cell.root not in self.written:
                self.fail("it is read before it is written", cell, step)
        for cell, _, writes in step.own():
            if self.known.get(cell.id) is not cell:
                self.cell(cell, step)
            if writes:
                if cell.root.role == "input":
                    self.fail("an argument is written to", cell, step)
                self.written.add(cell.root)

    def cell(self, cell: Cell, step: Step | None) -> None:
        known = self.known.get(cell.id)
        if known is cell:
            return
        if known is not None:
            self.fail("two cells stand for one place", cell, step)
        self.known[cell.id] = cell
        if cell.alias is not None:
            self.cell(cell.alias, step)
            if cell.root.axes is not None and cell.root.left != cell.root.shape:
                self.fail("it has lost axes, and another cell shares its memory", cell.root, step)
            if prod(cell.shape) != prod(cell.root.shape) or cell.dtype != cell.root.dtype:
                self.fail("it doesn't fit the memory that it shares", cell, step)
        elif cell.role != "temporary":
            named = self.plan.inputs if cell.role == "input" else self.plan.outputs
            if cell not in named:
                self.fail(f"the plan has no such {cell.role}", cell, step)

    def index(self, cell: Cell, at: At, batch: bool, loops: tuple[Loop, ...], step: Step) -> None:
        """Check an index of an element, or of the parts of a batch."""
        if len(at) > len(cell.shape) or (len(at) < len(cell.shape) and not batch):
            self.fail(f"it has {len(cell.shape)} axes, and {len(at)} entries", cell, step)
        for k, size in zip(at, cell.shape, strict=False):
            if isinstance(k, Indirect):
                if k.extent != size:
                    self.fail(f"an index array is checked for {k.extent} of {size}", cell, step)
                continue
            if not self.bound.issuperset([i for i, _ in k.terms]):
                self.fail("an index is used outside its loop", cell, step)
            least, most = k.limited
            if least < 0 or most >= size:
                if any(loop.index.extent == 0 for loop in loops):
                    continue
                least, most = bounds(k, loops)
            if least < 0 or most >= size:
                self.fail(f"an index of {least} to {most} leaves an axis of {size}", cell, step)


def bounds(k: Affine, loops: Sequence[Loop]) -> tuple[int, int]:
    """The least and greatest value of an index inside of loops.

    An index that counts from the start of its tile or chunk is that start plus a small number. All
    these bounds hold, and each is the narrowest for some index.
    """
    least, most = k.limited
    for loop in reversed(loops):
        if loop.start is not None:
            start, size = Affine(((loop.start, 1),)), loop.step
        elif loop.chunk is not None:
            start, size = Affine(((loop.chunk[0], loop.chunk[1]),)), loop.chunk[1]
        else:
            continue
        k = k.substitute({loop.index: start + Affine.part(Index(size))})
        least, most = max(least, k.limited[0]), min(most, k.limited[1])
    return least, most


# ---- allocations


@dataclass(frozen=True)
class Access:
    """One access of a step to memory, at a top-level position, inside of loops."""

    position: int
    loops: tuple[Loop, ...]
    cell: Cell
    at: At | None
    writes: bool


def verify_allocation(
    plan: Plan, allocation: Allocation, nested: Collection[Cell] = (), after: str = ""
) -> None:
    """Raise an InternalError if a cell is overwritten before its last read.

    `nested` are the registers whose values are computed where they are read, so that their own
    reads happen there. Two cells in the same memory may both be used in one top-level step, and for
    as many more as nested registers are read later. Then each element of the old one must be read
    before the new one is written there. That is checked by enumeration: of all iterations, or if
    these are many, of the first and last of each loop.
    """
    steps: dict[int, list[Access]] = {}
    for access in _accesses(plan.steps, frozenset(nested)):
        steps.setdefault(access.position, []).append(access)
    _check_registers(plan, steps, after)
    lives = _lives(plan, steps, allocation)
    for cell in lives:
        _check_home(plan, allocation, cell, after)
    spans = {cell: span(cell, None, allocation) for cell in lives}
    by_memory: dict[Slot | Cell, list[Cell]] = {}
    for cell, (first, _) in sorted(lives.items(), key=lambda item: item[1]):
        others = by_memory.setdefault(spans[cell].memory, [])
        others[:] = [old for old in others if lives[old][1] >= first]  # the others have ended
        for old in others:
            came, goes = lives[old]
            if not spans[old].meets(spans[cell]):
                continue
            both = [steps.get(k, ()) for k in range(first, goes + 1)]
            here = [a for accesses in both for a in accesses if a.cell.root in (old, cell)]
            too_long = first < goes and not nested
            if came == first or too_long or _overwrites(here, old, allocation):
                raise malformed(
                    plan, "another cell moves into its memory while it is needed", after, old
                )
        others.append(cell)


def _lives(
    plan: Plan, steps: Mapping[int, Sequence[Access]], allocation: Allocation
) -> dict[Cell, tuple[int, int]]:
    """The first and last top-level step of each temporary in memory. Results live to the end, and
    the inputs of a round, over which others may be written, from its start."""
    over = {home.memory for home in allocation.homes.values()}
    found: dict[Cell, tuple[int, int]] = {}
    for position, accesses in steps.items():
        for access in accesses:
            root = access.cell.root
            if (root.role != "input" or root in over) and not root.in_register:
                first, _ = found.get(root, (-1 if root.role == "input" else position, position))
                found[root] = first, len(plan.steps) if root.role == "output" else position
    return found


def _check_registers(plan: Plan, steps: Mapping[int, Sequence[Access]], after: str) -> None:
    """Check that no register is used by two kernels. A round is in one."""
    if plan.among:
        return
    numbers = [
        number
        for number, segment in enumerate(segments(plan.steps))
        for _ in ([segment] if isinstance(segment, PythonCall) else segment)
    ]
    positions = [k for k, step in enumerate(plan.steps) if not isinstance(step, Cut)]
    kernel = dict(zip(positions, numbers, strict=True))
    home: dict[Cell, int] = {}
    for position, accesses in steps.items():
        here = kernel[position]
        for access in accesses:
            root = access.cell.root
            if root.in_register and home.setdefault(root, here) != here:
                raise malformed(plan, "a register is used by two kernels", after, root)


def _check_home(plan: Plan, allocation: Allocation, cell: Cell, after: str) -> None:
    home = allocation.homes.get(cell)
    is_result = cell.role == "output"
    over = home is not None and is_result and bool(plan.among) and home.memory in plan.inputs
    if (home is None) != (is_result or cell.role in ("input", "state")) and not over:
        raise malformed(plan, "temporaries, and nothing else, have a home", after, cell)
    if home is None:
        return
    memory = home.memory
    if isinstance(memory, Cell) and memory not in plan.outputs and not over:
        raise malformed(plan, "it lives in what isn't a result", after, cell)
    if isinstance(memory, Slot) and memory not in allocation.slots:
        raise malformed(plan, "it lives in scratch memory that isn't there", after, cell)
    size = memory.size if isinstance(memory, Slot) else extent(memory)
    if memory.dtype != cell.dtype or home.start < 0 or home.start + extent(cell) > size:
        raise malformed(plan, "it doesn't fit its home", after, cell)


def _accesses(
    steps: Sequence[Step],
    nested: frozenset[Cell],
    loops: tuple[Loop, ...] = (),
    position: int | None = None,
) -> Iterator[Access]:
    """All accesses, in the order in which kernels make them."""
    waiting: dict[Cell, list[tuple[Cell, At | None]]] = {}  # nested register -> its reads
    for number, step in enumerate(steps):
        here = number if position is None else position
        reads: list[tuple[Cell, At | None]] = []
        for cell, at, writes in step.own():
            if not writes:
                reads += waiting.get(cell, [(cell, at)])
        if isinstance(step, Loop):
            yield from (Access(here, loops, cell, at, False) for cell, at in reads)
            yield from _accesses(step.body, nested, (*loops, step), here)
            continue
        if isinstance(step, Compute) and step.cell in nested:
            waiting[step.cell] = reads
            continue
        found = [Access(here, loops, cell, at, False) for cell, at in reads]
        written = [Access(here, loops, cell, at, True) for cell, at, w in step.accesses() if w]
        # Steps on arrays may write some elements before they have read others.
        yield from [*written, *found] if step.of_arrays else [*found, *written]


MAX_ITERATIONS = 4096  # iterations: if there are more, only the first and last are tried


def _overwrites(accesses: Sequence[Access], old: Cell, allocation: Allocation) -> bool:
    """Whether an element of `old` is used after another cell was written in its place. The accesses
    are made in each iteration, in the order in which the loops run."""
    written: set[int] = set()
    values: dict[Index, int] = {}  # of the loops that run
    many = max(prod(loop.index.extent for loop in a.loops) for a in accesses) > MAX_ITERATIONS

    def meets(part: Sequence[tuple[Access, Callable[[], Collection[int]]]], depth: int) -> bool:
        start = 0
        while start < len(part):
            access, places = part[start]
            if len(access.loops) == depth:
                if access.cell.root is old:
                    if not written.isdisjoint(places()):
                        return True
                elif access.writes:
                    written.update(places())
                start += 1
                continue
            loop, end = access.loops[depth], start
            while end < len(part) and any(x is loop for x in part[end][0].loops[depth:]):
                end += 1
            inside = part[start:end]
            for value in _iterations(loop, values, many):
                values[loop.index] = value
                if meets(inside, depth + 1):
                    return True
            start = end
        return False

    return meets([(a, _places(a, values, allocation)) for a in accesses], 0)


def _places(
    access: Access, values: Mapping[Index, int], allocation: Allocation
) -> Callable[[], Collection[int]]:
    """A function that gives the positions in memory that an access may touch, for the values that
    the loop indices have by then."""
    cell, at = access.cell, access.at
    if at is None or len(at) < len(cell.shape) or not all(isinstance(k, Affine) for k in at):
        whole = span(cell, None, allocation)
        return lambda: range(whole.start, whole.stop)
    home = allocation.home(cell)
    total, clipped = Affine((), home.start), []
    for k, stride in zip(left_of(cell, at), strides(cell.left), strict=True):
        assert isinstance(k, Affine)
        if k.range[0] < 0:
            clipped.append((k, stride))
        else:
            total += k * stride

    def value(k: Affine) -> int:
        return k.const + sum([values[i] * c for i, c in k.terms])

    if clipped:
        return lambda: (value(total) + sum(max(value(k), 0) * by for k, by in clipped),)
    return lambda: (value(total),)


def _iterations(loop: Loop, values: Mapping[Index, int], many: bool) -> Sequence[int]:
    size = loop.index.extent
    if loop.chunk is not None:
        first = values[loop.chunk[0]] * loop.chunk[1]
        found: Sequence[int] = range(first, min(first + loop.chunk[1], size), loop.step)
    elif loop.start is not None:
        found = range(values[loop.start], min(values[loop.start] + loop.step, size))
    else:
        found = range(0, size, loop.step)
    return [*found[:2], *found[-1:]] if many and len(found) > 3 else found
