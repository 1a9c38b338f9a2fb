"""Buffers: the memory of stored temporaries, which several of them share one after another.

A stored temporary is live from the first to the last top-level step that touches it. Its memory is,
in this order of preference,

- a result, which needs memory anyway, until the result itself is written;
- a slot of scratch memory that is free by then;
- a new slot.

A new temporary may take the place of an old one in the last step that reads the old one, if that
step writes each element of the new one after the last read of the old element in that place:

    for i: h[i] = tanh(t[i] + b[i])          # h takes the memory of t

Large temporaries are placed first, so no slot has to grow. If that takes much memory, two other
orders are tried: temporaries that can't be in results come first, or results are left to
temporaries that fit nowhere else. Single numbers share one slot for each dtype.
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

MUCH = 1 << 20  # bytes of scratch memory from which on other orders are tried
MAX_SHARED_SLOT = 16  # elements up to which temporaries share a slot with others of their dtype


@dataclass(eq=False)
class _Life:
    """The live range of a stored temporary: the first and the last top-level step that touch it."""

    cell: Cell
    first: int
    last: int
    size: int


_InPlace = Callable[[_Life, _Life], bool]  # whether one may replace the other in place


@dataclass(eq=False)
class _Memory:
    """A slot, or a result until it is written, with the temporaries that use it, sorted by
    `first`."""

    home: Slot | Cell
    size: int
    tenants: list[tuple[_Life, int]] = field(default_factory=list)
    longest: int = 0

    def let(self, life: _Life, start: int) -> None:
        bisect.insort(self.tenants, (life, start), key=_first)
        self.longest = max(self.longest, life.last - life.first)

    def meanwhile(self, life: _Life) -> Iterator[tuple[_Life, int]]:
        """The temporaries in this memory whose live ranges overlap that of `life`."""
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
    """Memory for every stored temporary of a plan.

    For the plan of a loop's round, `handed` maps results to the inputs whose memory they get;
    nothing else may use that. For kernels of any length, `like` is a plan of the same kind for
    other lengths, and memory is assigned equally in both. Which of two sizes is larger isn't known
    then, so only temporaries that have equal shapes in both plans share memory.
    """
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
        few = MAX_SHARED_SLOT if like is None else 0
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
    slots.sort(key=used.__getitem__)  # in the order of their use
    return Allocation(tuple(slots), homes)


def is_alike(plan: Plan, like: Plan) -> bool:
    """Whether the stored values of two plans differ in their lengths only."""
    ours, theirs = (
        [[(x.cell.dtype, len(x.cell.left)) for x in lives] for lives in _lives(p)]
        for p in (plan, like)
    )
    return ours == theirs


def _by_shape(lives: Sequence[_Life], theirs: Mapping[_Life, Cell]) -> list[set[_Life]]:
    """The live ranges grouped by shape, here and in a plan like this one, in the order of
    appearance."""
    found: dict[Any, set[_Life]] = {}
    for life in lives:
        found.setdefault((tuple(life.cell.left), tuple(theirs[life].left)), set()).add(life)
    return [*found.values()]


def _lives(plan: Plan) -> tuple[list[_Life], list[_Life]]:
    """The live ranges of the stored temporaries, and those of the results from their first write
    on."""
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
    """Place small temporaries in one slot. A place is reused by later ones of the same size."""
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
    """Place arrays in the order that takes the least scratch memory. Other orders are tried only if
    it takes much."""
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
    """The order in which arrays of one size are placed, and the memory that is tried first."""

    latest: bool = False  # arrays live when results are written first, else the earliest
    scratch: bool = False  # existing scratch memory first, else results


ORDERS = (_Order(), _Order(scratch=True), _Order(latest=True), _Order(latest=True, scratch=True))


class _Packing(NamedTuple):
    size: int
    slots: list[Slot]
    homes: dict[Cell, Home]


def _packed(
    lives: list[_Life], results: list[_Life], dtype: np.dtype, in_place: _InPlace, order: _Order
) -> _Packing:
    """Place arrays, the largest first: in results, in existing slots, or in new slots."""
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
    """The slots that may have room, the one that was used last first: it is in the cache."""

    def left(memory: _Memory) -> int:
        before = bisect.bisect_right(memory.tenants, life.first, key=_first)
        return memory.tenants[before - 1][0].last if before else -1

    open_ = [(when, memory) for memory in slots if (when := left(memory)) <= life.first]
    return [memory for _, memory in sorted(open_, key=lambda x: -x[0])]


def _place(memory: _Memory, life: _Life, in_place: _InPlace) -> int | None:
    """The first place in a memory that is free during a live range; None if there is none."""
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
    """Whether one of two temporaries takes the place of the other in the step that touches both."""
    old, new = sorted((one, other), key=lambda life: (life.first, life.last))
    if not old.first < old.last == new.first:
        return False
    if new.cell.role == "temporary" and new.last == new.first:
        return False
    return _in_place(plan.steps[new.first], old.cell, new.cell)


# ---- in place


def hands_over(plan: Plan, old: Cell, new: Cell) -> bool:
    """Whether a result may be written over an input of a round: the last read of the input comes
    before."""
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
    path: tuple[Loop, ...]  # the loops around it, from the outside in
    place: tuple[int, ...]  # 0, then its position in the body of each of them
    shape: tuple[int, ...]  # of the cell, without axes of extent 1
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
        # Each iteration has rows of its own, the same in both cells: it suffices to look at one
        # iteration.
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
    """The accesses to the two cells in order. None stands for one to the whole cell or through an
    index array."""
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
    """Whether these entries of indices are different rows for each value of `index`. They are if
    all of them are that index, or all are indices of loops over its tile or its chunk: row 2 and
    the rows of chunk 2 are different ones."""
    ways = {_way(path, k, index) for path, k in entries}
    return len(ways) == 1 and None not in ways


def _way(path: tuple[Loop, ...], k: object, index: Index) -> tuple[Index, ...] | None:
    """The indices from the entry `k` up to `index`, without `index`: each loop runs over the tile
    or the chunk of the next one. None if they don't lead there."""
    way: list[Index] = []
    mine = k.index if isinstance(k, Affine) else None
    while mine is not None and mine is not index:
        way.append(mine)
        mine = next((x.start or (x.chunk and x.chunk[0]) for x in path if x.index is mine), None)
    return tuple(way) if mine is index else None


def planned_peak_bytes(slots: Sequence[Slot]) -> int:
    """The scratch memory of a plan, in bytes."""
    return sum(s.size * s.dtype.itemsize for s in slots)
