"""Buffers: where the stored temporaries live, and which take turns in the same memory.

A stored temporary needs memory from the first to the last top-level step that touches it. It finds
a home, in this order of preference:

- in a result, which is memory that the call needs anyway, until the result itself is written;
- in a slot of scratch memory that is free by then;
- in a new slot.

One may move in while another moves out, if the step that reads the old one writes each element of
the new one only when the element in that place has been read for the last time:

    for i: h[i] = tanh(t[i] + b[i])          # h lives where t lived

The large ones are placed first, so no slot has to grow. Where that takes much memory, it is looked
whether less is taken if those that results have no room for are placed first, or if the memory of
results is left to who finds no other. Single numbers share one slot a dtype.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.allocation import Allocation, Home, Slot, extent, left_of
from tapegrad.ir.cells import At, Cell
from tapegrad.ir.plan import Plan
from tapegrad.ir.steps import Loop, Step
from tapegrad.schedule.shrink import in_common

MUCH = 1 << 20  # bytes of scratch memory: less isn't worth looking for another way
FEW = 16  # elements: what is no larger than this shares a slot with others of its kind


@dataclass(eq=False)
class _Life:
    """A stored temporary, with the first and the last of the top-level steps that touch it."""

    cell: Cell
    first: int
    last: int
    size: int


_InPlace = Callable[[_Life, _Life], bool]  # whether one moves in where the other moves out


@dataclass(eq=False)
class _Memory:
    """A slot, or a result until it is written, and who lives where in it, by `first`."""

    home: Slot | Cell
    size: int
    tenants: list[tuple[_Life, int]] = field(default_factory=list)
    longest: int = 0

    def let(self, life: _Life, start: int) -> None:
        bisect.insort(self.tenants, (life, start), key=_first)
        self.longest = max(self.longest, life.last - life.first)

    def meanwhile(self, life: _Life) -> Iterator[tuple[_Life, int]]:
        """Who lives here at some time of a life."""
        for k in range(bisect.bisect_right(self.tenants, life.last, key=_first) - 1, -1, -1):
            other, start = self.tenants[k]
            if other.first + self.longest < life.first:
                break
            if other.last >= life.first:
                yield other, start


def _first(tenant: tuple[_Life, int]) -> int:
    return tenant[0].first


def assign(
    plan: Plan, handed: Mapping[Cell, Cell] | None = None, like: Plan | None = None
) -> Allocation:
    """A home for every stored temporary of a plan. Of a round of a loop: results that are `handed`
    the memory of inputs, where nobody else can live. For any length it is the home that it has in a
    plan `like` this one for other lengths: which of two sizes is the larger says nothing then, and
    those that have one shape in both plans take turns."""
    lives, written = _lives(plan)
    theirs = None if like is None else [life.cell for lives in _lives(like) for life in lives]
    pairs = {} if theirs is None else dict(zip((*lives, *written), theirs, strict=True))
    slots: list[Slot] = []
    homes: dict[Cell, Home] = {}
    for cell, old in (handed or {}).items():
        homes[cell] = Home(old, 0)
    written = [life for life in written if life.cell not in homes]
    for dtype in dict.fromkeys(life.cell.dtype for life in lives):
        mine = [life for life in lives if life.cell.dtype == dtype]
        few = FEW if like is None else 0
        _assign_few([life for life in mine if life.size <= few], dtype, slots, homes)
        many = [life for life in mine if life.size > few]
        results = [life for life in written if life.cell.dtype == dtype]
        together = [{*many, *results}] if like is None else _by_shape([*many, *results], pairs)
        for alike in together:
            _assign_many(
                [life for life in many if life in alike],
                [life for life in results if life in alike],
                *(dtype, plan, slots, homes, ORDERS if like is None else ORDERS[:1]),
            )
    used: dict[Slot | Cell, int] = {}
    for life in lives:
        used.setdefault(homes[life.cell].memory, len(used))
    slots.sort(key=used.__getitem__)  # in the order in which they are used
    return Allocation(tuple(slots), homes)


def is_alike(plan: Plan, like: Plan) -> bool:
    """Whether the stored values of two plans are the same but for how long they are."""
    ours, theirs = (
        [[(x.cell.dtype, len(x.cell.left)) for x in lives] for lives in _lives(p)]
        for p in (plan, like)
    )
    return ours == theirs


def _by_shape(lives: Sequence[_Life], theirs: Mapping[_Life, Cell]) -> list[set[_Life]]:
    """Those of each shape, here and in a plan like this one, in the order in which they appear."""
    found: dict[Any, set[_Life]] = {}
    for life in lives:
        found.setdefault((tuple(life.cell.left), tuple(theirs[life].left)), set()).add(life)
    return [*found.values()]


def _lives(plan: Plan) -> tuple[list[_Life], list[_Life]]:
    """When the stored temporaries live, and from when on the results are written."""
    found: dict[Cell, _Life] = {}
    for position, step in enumerate(plan.steps):
        for cell, _, _ in step.accesses():
            root = cell.root
            if root.role in ("temporary", "output") and not root.in_register:
                life = found.setdefault(root, _Life(root, position, position, extent(root)))
                life.last = position
    lives = [life for cell, life in found.items() if cell.role == "temporary"]
    return lives, [life for cell, life in found.items() if cell.role == "output"]


def _assign_few(
    lives: list[_Life], dtype: np.dtype, slots: list[Slot], homes: dict[Cell, Home]
) -> None:
    """Places in one slot for what is small, handed on to the next of the same size."""
    if not lives:
        return
    starts: dict[Cell, int] = {}
    leaving = sorted(lives, key=lambda life: life.last, reverse=True)
    free: dict[int, list[int]] = {}
    end = 0
    for life in sorted(lives, key=lambda life: life.first):
        while leaving and leaving[-1].last < life.first:
            gone = leaving.pop()
            free.setdefault(gone.size, []).append(starts[gone.cell])
        places = free.get(life.size)
        starts[life.cell] = start = places.pop() if places else end
        end = max(end, start + life.size)
    slot = Slot(dtype, end)
    slots.append(slot)
    homes.update((cell, Home(slot, start)) for cell, start in starts.items())


def _assign_many(
    lives: list[_Life],
    results: list[_Life],
    dtype: np.dtype,
    plan: Plan,
    slots: list[Slot],
    homes: dict[Cell, Home],
    orders: Sequence[_Order],
) -> None:
    """Places for arrays, in the way that takes the least scratch memory, where it takes much."""
    for result in results:
        result.last = len(plan.steps)
    in_place = cache(lambda one, other: _hands_over(one, other, plan))
    best: _Packing | None = None
    for order in orders:
        found = _packed(lives, results, dtype, in_place, order)
        if best is None or found.size < best.size:
            best = found
        if best.size * dtype.itemsize <= MUCH:
            break
    assert best is not None
    slots += best.slots
    homes.update(best.homes)


class _Order(NamedTuple):
    """In which order arrays of one size get their places, and where these are looked for first."""

    latest: bool = False  # first those that are there when results are written, else the earliest
    scratch: bool = False  # in scratch memory that is there already, else in results


ORDERS = (_Order(), _Order(scratch=True), _Order(latest=True), _Order(latest=True, scratch=True))


class _Packing(NamedTuple):
    size: int
    slots: list[Slot]
    homes: dict[Cell, Home]


def _packed(
    lives: list[_Life], results: list[_Life], dtype: np.dtype, in_place: _InPlace, order: _Order
) -> _Packing:
    """Places for arrays, the largest first: in results, in slots, in new slots."""
    memories = []
    for result in results:
        memory = _Memory(result.cell, result.size)
        memory.let(result, 0)
        memories.append(memory)
    found = _Packing(0, [], {})
    scratch: list[_Memory] = []
    first = min([result.first for result in results], default=0)

    def place_of(life: _Life) -> tuple[int, bool, int]:
        return -life.size, order.latest and life.last < first, life.first

    for life in sorted(lives, key=place_of):
        free = _latest(scratch, life)
        for memory in (*free, *memories) if order.scratch else (*memories, *free):
            start = _place(memory, life, in_place)
            if start is not None:
                break
        else:
            slot = Slot(dtype, life.size)
            found.slots.append(slot)
            memory, start = _Memory(slot, life.size), 0
            scratch.append(memory)
        memory.let(life, start)
        found.homes[life.cell] = Home(memory.home, start)
    return found._replace(size=sum(slot.size for slot in found.slots))


def _latest(slots: list[_Memory], life: _Life) -> list[_Memory]:
    """Slots that may have room, first the one that was left last: it is in the cache."""

    def left(memory: _Memory) -> int:
        before = bisect.bisect_right(memory.tenants, life.first, key=_first)
        return memory.tenants[before - 1][0].last if before else -1

    open_ = [(when, memory) for memory in slots if (when := left(memory)) <= life.first]
    return [memory for _, memory in sorted(open_, key=lambda x: -x[0])]


def _place(memory: _Memory, life: _Life, in_place: _InPlace) -> int | None:
    """The first place in a memory that is free for all of a life."""
    taken: list[tuple[int, int]] = []
    for other, start in memory.meanwhile(life):
        if life.size == other.size and start == 0 and in_place(life, other):
            taken.append((other.size, memory.size))  # this very place, or none
            continue
        taken.append((start, start + other.size))
    start = 0
    for low, high in sorted(taken):
        if low - start >= life.size:
            break
        start = max(start, high)
    return start if start + life.size <= memory.size else None


def _hands_over(one: _Life, other: _Life, plan: Plan) -> bool:
    """Whether one of two moves into the other's place in the step that both are touched by."""
    old, new = sorted((one, other), key=lambda life: (life.first, life.last))
    if not old.first < old.last == new.first:
        return False
    if new.cell.role == "temporary" and new.last == new.first:
        return False
    return _in_place(plan.steps[new.first], old.cell, new.cell)


# ---- in place


def hands_over(plan: Plan, old: Cell, new: Cell) -> bool:
    """Whether a result may be written where an input of a round is, which is read for the last time
    before that."""
    reads = [k for k, step in enumerate(plan.steps) if _touches(step, old)]
    writes = [k for k, step in enumerate(plan.steps) if _touches(step, new)]
    if not writes:
        return False
    last, first = max(reads, default=-1), min(writes)
    return last < first or (last == first and _in_place(plan.steps[first], old, new))


def _touches(step: Step, cell: Cell) -> bool:
    return any(x.root is cell for x, _, _ in step.accesses())


@dataclass
class _Access:
    path: tuple[Loop, ...]  # the loops around it
    place: tuple[int, ...]  # 0, and its number in the body of each of them
    shape: tuple[int, ...]  # under which it is looked at, but for axes of one index
    at: At
    new: bool


def _in_place(step: Step, old: Cell, new: Cell) -> bool:
    """Whether a step that reads `old` for the last time may write `new` over it."""
    found = list(_accesses_in(step, old, new, (), (0,)))
    if any(access is None for access in found):
        return False
    accesses = [access for access in found if access is not None]
    shapes = {access.shape for access in accesses}
    if len(shapes) > 1 or extent(old) != extent(new):
        return False
    loops = in_common([access.path for access in accesses])
    axes = range(len(*shapes))
    for depth, loop in enumerate(loops):
        # Each iteration has rows of its own, the same in both: it is enough to look at one of them.
        if loop.index.extent != 1 and not any(
            _own_rows([(a.path[depth:], a.at[axis]) for a in accesses], loop.index) for axis in axes
        ):
            return False
    depth = len(loops)
    read = max(a.place[depth] for a in accesses if not a.new)
    write = min(a.place[depth] for a in accesses if a.new)
    if read != write:
        return read < write
    meeting = [a for a in accesses if a.place[depth] == read]
    return all(len(a.path) == depth and a.at == meeting[0].at for a in meeting)


def _accesses_in(
    step: Step, old: Cell, new: Cell, path: tuple[Loop, ...], place: tuple[int, ...]
) -> Iterator[_Access | None]:
    """The accesses to the two cells in order; None for one to the whole or by an index array."""
    if isinstance(step, Loop):
        for number, inner in enumerate(step.body):
            yield from _accesses_in(inner, old, new, (*path, step), (*place, number))
        return
    for cell, at, _ in step.accesses():
        root = cell.root
        if root is not old and root is not new:
            continue
        if at is None:
            yield None
            continue
        left = left_of(cell, at)
        plain = all(isinstance(k, Affine) for k in left)
        shape = tuple([n for n in cell.left if n != 1])
        left = tuple([k for k, n in zip(left, cell.left, strict=True) if n != 1])
        yield _Access(path, place, shape, left, root is new) if plain else None


def _own_rows(entries: Sequence[tuple[tuple[Loop, ...], object]], index: Index) -> bool:
    """Whether these entries of indices, inside their loops, are other rows for each value of a
    loop's index. They are if all are that index, or if all are those of loops over the rows of its
    tile, or its chunk: row 2 and the rows of chunk 2 are different ones."""
    ways = {_way(path, k, index) for path, k in entries}
    return len(ways) == 1 and None not in ways


def _way(path: tuple[Loop, ...], k: object, index: Index) -> tuple[Index, ...] | None:
    """The loops from that whose index an entry is, through those whose tiles or chunks they run
    over, to that of `index`, which isn't part of it; None if they don't lead there."""
    way: list[Index] = []
    mine = k.index if isinstance(k, Affine) else None
    while mine is not None and mine is not index:
        way.append(mine)
        mine = next((x.start or (x.chunk and x.chunk[0]) for x in path if x.index is mine), None)
    return tuple(way) if mine is index else None


def planned_peak_bytes(slots: Sequence[Slot]) -> int:
    """The scratch memory of a plan, in bytes."""
    return sum(s.size * s.dtype.itemsize for s in slots)
