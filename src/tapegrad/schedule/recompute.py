"""Recomputing: values that are cheaper to recompute than to keep in memory until they are read.

    for i: t[i] = x[i + 1] - x[i]          for i: u[i] = (x[i + 1] - x[i]) * 2
    for i: u[i] = t[i] * 2           -->
    for i: v[i] = t[i + 1]                 for i: v[i] = x[i + 2] - x[i + 1]

A value that is read in another loop than the one that computes it is kept in memory, or recomputed
there from other values, which are kept or recomputed in turn. A minimum cut chooses the cheapest
combination (`_Network`). This matters for the backward half of a derivative, which reads values of
the forward half.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tapegrad.core.locks import cached_property
from tapegrad.core.mincut import sink_side
from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import At, Cell, Indirect, Piece, Read, in_pieces, read_accesses
from tapegrad.ir.changes import Changes
from tapegrad.ir.plan import Plan
from tapegrad.ir.steps import ArgUpdate, CheckGuard, Compute, Loop, Step
from tapegrad.schedule.cost import SCALAR, WRITE, traffic, work_once
from tapegrad.schedule.shrink import in_common, with_loops

Path = tuple[Index, ...]  # the loops around a step, from the outside in


def recompute(plan: Plan, large: float = math.inf, price: float = 1.0) -> Plan:
    """Recompute stored temporaries where they are read, if that is cheaper. Memory costs `price`
    times as much for a value of `large` bytes or more.

    Needs `shrink` before, which tells which temporaries would be stored, and again after.
    """
    values = _Values(plan, large, price)
    again = _chosen(values)
    if again:
        steps = _Rewrite(values, again).rewritten(plan.steps, ())
        plan = drop_unread(replace(plan, steps=steps))
    return plan


# ---- what is known of each cell


@dataclass(frozen=True)
class _Site:
    """A place where a value is needed: the top-level step and the loops around, and in what part of
    their iterations."""

    nest: int
    path: Path
    at: At
    part: float = 1.0

    @property
    def times(self) -> float:
        return math.prod(i.extent for i in self.path) * self.part

    @property
    def is_plain(self) -> bool:
        """Whether each entry depends on at most one loop index, which has no limit."""
        return all(
            isinstance(k, Affine)
            and len(k.terms) <= 1
            and all(i.limit is None and i in self.path for i, _ in k.terms)
            for k in self.at
        )

    @property
    def is_in_order(self) -> bool:
        """Whether the innermost loop runs along memory, or doesn't index this value."""
        inner = self.path[-1] if self.path else None
        over = [any(i is inner for i, _ in k.terms) for k in self.at if isinstance(k, Affine)]
        return not any(over[:-1])


@dataclass(eq=False)
class _Value:
    """A cell with its writers and readers."""

    cell: Cell
    writers: list[tuple[int, Path, Step]] = field(default_factory=list)
    reads: list[_Site] = field(default_factory=list)
    taken: list[_Site] = field(default_factory=list)  # whole reads, by products and routines
    whole: bool = False  # otherwise used as one piece of memory

    @cached_property
    def step(self) -> Compute | None:
        """The elementwise step that defines a temporary, if a single plain step does; else None."""
        if self.cell.role != "temporary" or self.whole or len(self.writers) != 1:
            return None
        step = self.writers[0][2]
        if not isinstance(step, Compute) or step.combine:
            return None
        found = [k.read for r in step.reads for k in r.at if isinstance(k, Indirect)]
        if any(r.cell is None or r.cell.role != "input" or not _is_affine(r.at) for r in found):
            return None  # index arrays must be inputs, which are kept anyway
        mapped = all(isinstance(k, Affine) and (k.index or k == Affine()) for k in step.at)
        return step if mapped else None

    @cached_property
    def path(self) -> Path:
        """The loops in which the cell gets its first value. Sums continue in inner loops."""
        return min((path for _, path, _ in self.writers), key=len, default=())

    def is_local(self, site: _Site) -> bool:
        """Whether a site is inside the loops in which the value is computed."""
        path = self.path
        return site.path[: len(path)] == path

    def is_there(self, site: _Site) -> bool:
        """Whether reading the value at a new site costs nothing: it is in a register, or in memory
        that the common loops use repeatedly."""
        free = self.cell.in_register or self.path != ()
        return free and self.is_local(site) and self.is_final

    @cached_property
    def is_final(self) -> bool:
        """Whether all readers read the same value: none reads before the last write."""
        if self.cell.role == "state":
            return not self.writers
        if len(self.writers) == 1:
            return True
        return not any(
            nest > site.nest or (nest == site.nest and site.path[: len(path)] == path != ())
            for nest, path, _ in self.writers
            for site in (*self.reads, *self.taken)
            if path != self.path or nest > site.nest
        )

    @property
    def size(self) -> int:
        return math.prod(self.cell.shape)


class _Values(dict[Cell, _Value]):
    """The cells of a plan, with their writers and readers."""

    def __init__(self, plan: Plan, large: float, price: float) -> None:
        super().__init__()
        self.large, self.price = large, price
        for nest, top in enumerate(plan.steps):
            for path, step in with_loops([top], ()):
                for cell, at, writes, part in _accesses(step):
                    value = self.setdefault(cell.root, _Value(cell.root))
                    taken = at is None and cell is cell.root and not writes and price > 1
                    if not taken and (at is None or cell is not cell.root or not _is_affine(at)):
                        value.whole = True
                    if writes:
                        value.writers.append((nest, path, step))
                    elif taken:
                        value.taken.append(_Site(nest, path, ()))
                    else:
                        value.reads.append(_Site(nest, path, at or (), part))

    @cached_property
    def are_plain(self) -> bool:
        """Whether pieces have known ranges wherever they are read again."""
        temporaries = (value for cell, value in self.items() if cell.role == "temporary")
        return all(site.is_plain for value in temporaries for site in value.reads)


def _accesses(step: Step) -> Iterator[tuple[Cell, At | None, bool, float]]:
    """The accesses of a step, each with the part of the iterations in which it is made."""
    if isinstance(step, Compute) and any(read.pieces for read in step.reads):
        for piece in (piece for read in step.reads for piece in read.pieces):
            part = math.prod(len(inside) / index.extent for index, inside in piece.where)
            yield from ((*access, part) for access in read_accesses(piece.read))
        step = replace(step, reads=tuple([read for read in step.reads if not read.pieces]))
    yield from ((*access, 1.0) for access in step.accesses())


def _is_affine(at: At) -> bool:
    return all(isinstance(k, Affine) for k in at)


def _is_fixed(read: Read) -> bool:
    """Whether a read has no loop index, and so is in its array everywhere."""
    return not read.pieces and all(isinstance(k, Affine) and not k.terms for k in read.at)


def _operands(step: Compute) -> Iterator[Cell]:
    for read in step.reads:
        for one in (read, *[piece.read for piece in read.pieces]):
            if one.cell is not None:
                yield one.cell.root


# ---- the choice


def _chosen(values: _Values) -> set[Cell]:
    """The cells whose values are recomputed where they are read outside of their loops."""
    crossing = {
        cell: dict.fromkeys(site for site in value.reads if not value.is_local(site))
        for cell, value in values.items()
        if not cell.in_register and value.step is not None
    }
    chosen: set[Cell] = set()
    for group in _groups(values, {cell: sites for cell, sites in crossing.items() if sites}):
        network = _Network(values, group)
        if network.is_worth_a_look():
            chosen |= network.computed_again()
    return _without_chains(values, chosen)


def _without_chains(values: _Values, chosen: set[Cell]) -> set[Cell]:
    """The chosen values without those of pieces that are made of others of pieces. Each is needed
    at several places at once, so that a chain of n would be computed 2**n times."""
    chains: set[Cell] = set()  # values made of pieces, if they were all computed again
    kept: set[Cell] = set()
    for cell, value in values.items():
        if value.step is None or not (cell in chosen or cell.in_register):
            continue
        follows = not chains.isdisjoint(_operands(value.step))
        in_pieces = any(read.pieces for read in value.step.reads)
        if cell in chosen and in_pieces and follows and value.is_final:
            kept.add(cell)
        elif in_pieces or follows:
            chains.add(cell)
    return chosen - kept


Needs = dict[Cell, dict[_Site, None]]  # the sites in order, without duplicates


def _groups(values: _Values, crossing: Needs) -> list[Needs]:
    """The crossing values in groups without common operands."""
    parent: dict[Cell, Cell] = {}

    def find(cell: Cell) -> Cell:
        while parent.setdefault(cell, cell) is not cell:
            parent[cell] = cell = parent[parent[cell]]
        return cell

    for cell in crossing:
        stack, seen = [cell], {cell}
        while stack:
            step = values[stack.pop()].step
            for operand in _operands(step) if step else ():
                if operand.role == "temporary" and operand not in seen:
                    seen.add(operand)
                    parent[find(operand)] = find(cell)
                    if operand.in_register or values[operand].taken:
                        stack.append(operand)
    groups: dict[Cell, Needs] = {}
    for cell, sites in crossing.items():
        groups.setdefault(find(cell), {})[cell] = sites
    return list(groups.values())


class _Network:
    """The choice as a minimum cut, between what is kept (source) and what is needed elsewhere
    (sink).

    A value has two nodes, `make` and `have`. The edge between them has the price of keeping the
    value. The edge from the source to `make` has the price of recomputing it. If that edge is cut,
    each operand must be available where the value is needed: an infinite edge from the operand's
    `have` to `make` ensures this. Values that are read outside of their loops have an infinite edge
    to the sink.
    """

    def __init__(self, values: _Values, crossing: Needs) -> None:
        self.values = values
        self.crossing = crossing
        self.sites: Needs = {cell: dict(sites) for cell, sites in crossing.items()}
        self.operands: dict[Cell, list[Cell]] = {}
        for cell in crossing:
            self._follow(cell)

    def _follow(self, cell: Cell) -> None:
        """Note the operands that recomputing a value would need, and where. It stops where that
        would cost more than keeping the value."""
        times = sum(s.times for s in self._apart(cell))
        seen: dict[Cell, float] = {}  # with the largest remaining budget
        stack = [(cell, self.crossing[cell], self.keep(cell))]
        while stack:
            needing, sites, budget = stack.pop()
            step = self.values[needing].step
            apart = needing in self.crossing or needing.in_register
            if step is None or not (apart or self.values[needing].taken):
                continue
            if any(read.pieces for read in step.reads) and not self.values.are_plain:
                continue
            budget -= work_once(step) * times
            if budget < 0 or seen.get(needing, -1.0) >= budget:
                continue
            seen[needing] = budget
            self.operands[needing] = list(dict.fromkeys(_operands(step)))
            for operand in self.operands[needing]:
                value = self.values[operand]
                needed = dict.fromkeys(s for s in sites if not value.is_there(s))
                self.sites.setdefault(operand, {}).update(needed)
                if needed:
                    stack.append((operand, needed, budget))

    def again(self, cell: Cell) -> float:
        """The price of recomputing a value wherever it is needed, given its operands."""
        step = self.values[cell].step
        if step is None or cell not in self.operands:
            return math.inf
        times = sum(s.times * (1 if s.is_in_order else SCALAR) for s in self._apart(cell))
        return work_once(step) * times

    def _apart(self, cell: Cell) -> list[_Site]:
        """The sites where a value is needed, one for each top-level step and index."""
        return list({(site.nest, site.at): site for site in self.sites[cell]}.values())

    def keep(self, cell: Cell) -> float:
        """The price of keeping a value: writing it, unless that is done anyway, reading it, and
        occupying memory meanwhile, which costs as much as one read."""
        value = self.values[cell]
        sites = self.sites[cell]
        if not value.is_final and cell.role != "input":
            return math.inf  # the memory is overwritten later
        footprint = self._footprint(cell)
        width = traffic(cell.dtype.itemsize, footprint)
        width *= self.values.price if footprint >= self.values.large else 1
        own = {site.nest for site in (value.taken or value.reads)}
        if not cell.in_register and (value.taken or cell not in self.crossing):  # kept anyway
            late = max((site.nest for site in sites), default=0)
            kept = cell.role == "temporary" and late > max(own, default=0)
            times: dict[int, float] = {}  # of reads, by top-level step
            for site in sites:
                times[site.nest] = times.get(site.nest, 0.0) + site.times
            read = [n for nest, n in times.items() if nest not in own]
            return width * (sum(min(value.size, n) for n in read) + kept * value.size)
        made = math.prod(i.extent for i in value.path)
        return width * (WRITE * made + value.size + sum(s.times for s in self._apart(cell)))

    def _footprint(self, cell: Cell) -> int:
        """The bytes that a value occupies while it is needed."""
        value = self.values[cell]
        sites = self.sites[cell]
        shared = in_common([value.path, *(s.path for s in sites)]) if sites else ()
        count = math.prod(i.extent for i in value.path[len(shared) :]) if sites else 1
        if not cell.in_register:  # a row becomes an array if others need it
            count = max(math.prod(cell.left), min(count, value.size))
        return count * cell.dtype.itemsize

    def is_worth_a_look(self) -> bool:
        """Whether some value is cheaper to recompute than to keep."""
        return any(self.again(cell) < self.keep(cell) for cell in self.crossing)

    def computed_again(self) -> set[Cell]:
        edges: list[tuple[object, object, float]] = []
        for cell in self.sites:
            edges.append(("source", ("make", cell.id), self.again(cell)))
            edges.append((("make", cell.id), ("have", cell.id), self.keep(cell)))
            for operand in self.operands.get(cell, ()):
                if self.sites[operand]:  # else it is in a register there
                    edges.append((("have", operand.id), ("make", cell.id), math.inf))
        for cell in self.crossing:
            edges.append((("have", cell.id), "sink", math.inf))
        needed = sink_side(edges, "source", "sink")
        return {cell for cell in self.operands if ("make", cell.id) in needed}


# ---- the rewriting


Known = dict[tuple[Any, ...], Read]  # registers, by the cell and index, or the pieces, they replace


class _Rewrite:
    """Replaces each read of a chosen value outside of its loops by a register, which is computed
    just before."""

    def __init__(self, values: _Values, again: set[Cell]) -> None:
        self.values = values
        self.again = again
        self.nest = 0

    def rewritten(self, steps: tuple[Step, ...], path: Path) -> tuple[Step, ...]:
        done: list[Step] = []
        here: Known = {}
        for number, step in enumerate(steps):
            if not path:
                self.nest = number
                here = {}  # registers may end with a top-level step, as its kernel may
            if isinstance(step, Loop):
                body = self.rewritten(step.body, (*path, step.index))
                done.append(replace(step, body=body))
            elif isinstance(step, Compute):
                reads = tuple(self._read(r, path, done, here) for r in step.reads)
                done.append(replace(step, at=self._index(step.at, path, done, here), reads=reads))
            elif isinstance(step, (ArgUpdate, CheckGuard)):
                done.append(replace(step, read=self._read(step.read, path, done, here)))
            else:
                done.append(step)
        return tuple(done)

    def _index(self, at: At, path: Path, done: list[Step], here: Known) -> At:
        """The index, with values of index arrays recomputed too."""
        return tuple(
            replace(k, read=self._read(k.read, path, done, here)) if isinstance(k, Indirect) else k
            for k in at
        )

    def _read(self, read: Read, path: Path, done: list[Step], here: Known) -> Read:
        """The read itself, or one of a register with the value, which is computed just before."""
        if read.pieces:
            return self._pieces(read, path, done, here)
        cell = read.cell
        if any(isinstance(k, Indirect) for k in read.at):
            read = replace(read, at=self._index(read.at, path, done, here))
        if cell is None or cell not in self.again:
            return read
        value = self.values[cell]
        if value.is_local(_Site(self.nest, path, read.at)):
            return read
        key = (cell, read.at)
        if key not in here:
            here[key] = self._computed(cell, self._operands(read), path, done, here)
        return here[key]

    def _operands(self, read: Read) -> list[Read]:
        """The operands by which a value is computed again."""
        step = self.values[read.cell].step  # type: ignore[index]
        assert step is not None
        mapping = {
            k.index: to
            for k, to in zip(step.at, read.at, strict=True)
            if isinstance(k, Affine) and k.index is not None and isinstance(to, Affine)
        }
        return list(map(Changes(indices=mapping).read, step.reads))

    def _computed(
        self, cell: Cell, operands: list[Read], path: Path, done: list[Step], here: Known
    ) -> Read:
        """A register with a value that is computed again."""
        step = self.values[cell].step
        assert step is not None
        reads = tuple(self._read(r, path, done, here) for r in operands)
        clone = Cell((), cell.dtype, hint=cell.hint, src=cell.src)
        done.append(Compute(clone, (), step.primitive, reads, src=step.src))
        return Read(clone, ())

    def _pieces(self, read: Read, path: Path, done: list[Step], here: Known) -> Read:
        """A read of pieces. The pieces of one value that is computed again are a register, which is
        computed of pieces of its operands."""
        again: dict[Cell, list[Piece]] = {}
        for piece in read.pieces:
            cell, site = piece.read.cell, _Site(self.nest, path, piece.read.at)
            if cell in self.again and not self.values[cell].is_local(site):
                again.setdefault(cell, []).append(piece)
        found: dict[Piece, Piece] = {}
        for cell, pieces in again.items():
            if (key := tuple(pieces)) not in here:
                where = [piece.where for piece in pieces]
                operands = [
                    reads[0]
                    if len({*reads}) == 1 and _is_fixed(reads[0])
                    else in_pieces(zip(where, reads, strict=True))
                    for reads in zip(*[self._operands(p.read) for p in pieces], strict=True)
                ]
                here[key] = self._computed(cell, operands, path, done, here)
            found.update((piece, Piece(piece.where, here[key])) for piece in pieces)
        return Read(None, pieces=tuple([found.get(piece, piece) for piece in read.pieces]))


def drop_unread(plan: Plan) -> Plan:
    """Drop steps whose results are temporaries that nothing reads."""
    return replace(plan, steps=_read_later(plan.steps, set()))


def _read_later(steps: tuple[Step, ...], read: set[Cell]) -> tuple[Step, ...]:
    """The steps without those whose results nothing reads. `read` has the cells that are read after
    them."""
    kept: list[Step] = []
    for step in reversed(steps):
        if isinstance(step, Loop):
            body = _read_later(step.body, read)
            if body:
                kept.append(replace(step, body=body))
                read |= {cell.root for cell, _, _ in step.own()}
            continue
        if isinstance(step, Compute):
            cell = step.cell
            if cell.role == "temporary" and cell.root not in read:
                continue
        plain = isinstance(step, Compute)
        read |= {cell.root for cell, _, writes in step.accesses() if not (plain and writes)}
        kept.append(step)
    return tuple(kept[::-1])
