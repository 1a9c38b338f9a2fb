"""Parallelising: a long loop is cut into chunks, which several cores process.

    for i in range(n):                 chunk c of 8, a kernel by itself:
        y[i] = exp(x[i])                   t = 0
        s += y[i]             -->          for i in range(c * m, min(c * m + m, n)):
                                               y[i] = exp(x[i])
                                               t += y[i]
                                           parts[c] = t
                                       for c in range(8): s += parts[c]

A product of matrices is cut along its rows or its columns, whichever are more, or, if both are few,
along the terms of its sums. Steps after a product that work on the same rows, or on the same
matrices of a batch, belong to the same chunks:

    h = x @ y                          rows m of chunk c of 8:
    for i: for j: h[i, j] = tanh(h[i, j])
    z = h @ y             -->              h[m] = x[m] @ y
                                           for i in m: for j: h[i, j] = tanh(h[i, j])
                                           z[m] = h[m] @ y

A loop qualifies if its iterations share nothing but folds, such as sums, which can be taken chunk
by chunk. Everything else that they write is a row of the iteration's own, or local to it. The
number of chunks depends on the work, not on the number of cores, so results don't depend on that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.allocation import left_of
from tapegrad.ir.cells import COLUMNS, ROWS, TERMS, Along, At, Cell, Read, Share
from tapegrad.ir.changes import Changes
from tapegrad.ir.fold import SUM, Fold
from tapegrad.ir.panels import Panel
from tapegrad.ir.plan import Plan, is_fill, leaves, walk
from tapegrad.ir.shares import is_one_share, rows_of
from tapegrad.ir.steps import Compute, Gemm, Loop, Step
from tapegrad.ir.tape import Literal
from tapegrad.primitives.elementwise import copy
from tapegrad.schedule.cost import code_size, moved, work

# The work that makes a chunk worthwhile, in additions: some 0.05 ms. A parallel loop takes 1 us
# more if another core is looking for work, and 10 to 20 if it has to be woken.
GRAIN = 1 << 19
MAX_CHUNKS = 32  # chunks
LEAST_ROWS = 16  # rows that are multiplied by windows
LEAST_SIDE = 64  # rows or columns of a chunk of a product, each of which reads all of a factor
LEAST_TERMS = 1024  # of the sums of a chunk, whose result is written, then read by one core ...
FOUND = 1 << 21  # bytes: ... from a cache
BLOCK = 8  # rows or columns: products are computed in blocks of registers
# Cores that multiply don't wait for memory, so chunks may be shorter.
PRODUCTS_IN_GRAIN = 2
TOGETHER, LONGEST = 12, 200  # adjacent steps in one parallel loop, and their statements
LINES = 128  # bytes: cores that write closer to each other than this wait for each other
# What keeps rounds of a loop from running at the same time: ...
CALLS = "calls"  # ... calls of libraries, the place of the largest element so far
PLACES = "places"  # ... writing to places that others use
GOES_ON = "goes on"  # ... reading what a round before has folded
ADDS = "adds"  # ... folding into places that the values of an index array say
OF_CHUNKS = "found"  # the name of what chunks have folded, each for itself

Homes = Mapping[Cell, Collection[int]]  # the top-level steps that use a cell
Use = tuple[Along | None, bool, Step]  # the index of a use, whether it writes, and the step


def parallelise(
    plan: Plan, room: float = math.inf, finer: int = 1, together: int = TOGETHER
) -> Plan:
    """Cut the loops and products that are long enough and have independent rows. The private arrays
    of a loop's chunks may take `room` bytes. Chunks may be `finer`, so many times as short. Up to
    so many steps come `together` in one parallel loop."""
    known = [_facts(step, finer) for step in plan.steps]
    homes: dict[Cell, set[int]] = {}
    for number, facts in enumerate(known):
        for cell in facts.cells:
            homes.setdefault(cell, set()).add(number)
    alone = [cut_alone(step, homes, room, finer) for step in plan.steps]
    steps: list[Step] = []
    position = 0
    while position < len(plan.steps):
        few = slice(position, position + together)
        if any(facts.multiplies for facts in known[few]):
            found = _cut_together(plan.steps[few], known[few], alone[few], homes, room)
        else:
            found = Group(1, alone[position])
        position += found.taken
        if (cut := found.cut) is None:
            steps.append(plan.steps[position - 1])
            continue
        steps += found.before
        # The fills of totals come after the loop, unless other steps have added to the totals
        # before.
        fills = [s for cell in cut.folded for s in _untouched(steps, cell)]
        steps = [*(s for s in steps if s not in fills), cut.loop, *fills, *cut.totals, *found.after]
    return replace(plan, steps=tuple(steps))


class Facts(NamedTuple):
    """Facts of a step that are used repeatedly: the memory it uses and writes, whether it contains
    a product, its statements, and its work in chunks as a loop or a product."""

    cells: set[Cell]
    written: set[Cell]
    multiplies: bool
    statements: int
    grains: float


def _facts(step: Step, finer: int) -> Facts:
    uses = [(cell.root, writes) for cell, _, writes in step.accesses()]
    return Facts(
        {cell for cell, _ in uses},
        {cell for cell, writes in uses if writes},
        any(isinstance(s, Gemm) for s in leaves(step)),
        code_size(step),
        grains_of(step) * finer if isinstance(step, (Loop, Gemm)) else 0.0,
    )


class Parts(NamedTuple):
    """A loop over chunks, the cells into which the chunks fold, and the steps that fold the chunks'
    results into these."""

    loop: Loop
    folded: Collection[Cell]
    totals: list[Step]
    own: Collection[Cell] = ()  # the cells with a row for each chunk


class Group(NamedTuple):
    """The number of adjacent steps in one parallel loop, and that loop. Steps among them that
    compute a number come before or after it."""

    taken: int
    cut: Parts | None
    before: Sequence[Step] = ()
    after: Sequence[Step] = ()


def cut_alone(step: Step, homes: Homes, room: float, finer: int = 1) -> Parts | None:
    if isinstance(step, Gemm):
        return _cut_product(step, finer)
    if not isinstance(step, Loop):
        return None
    size, chunks = _chunks(step, finer)
    while chunks > 1:
        found = _cut([step], [size], chunks, homes)
        if found is None or _held(found) <= room:
            return found
        size *= 2
        chunks = math.ceil(step.index.extent / size)
    return None


def _cut_together(
    steps: Sequence[Step],
    known: Sequence[Facts],
    alone: Sequence[Parts | None],
    homes: Homes,
    room: float,
) -> Group:
    """The parallel loop that starts with the first step.

    A product is followed by steps on the rows that a chunk has just computed. Products that are too
    short alone are long enough together. No step gets fewer chunks by joining, and no step joins
    that shares nothing with the others. Single numbers in between are computed before or after. If
    a step is long by itself, short fills with zeros come before it.
    """
    best = Group(1, alone[0])
    seen: set[Cell] = set()
    group: list[Step] = []
    before: list[Step] = []
    after: list[Step] = []
    late: set[Cell] = set()  # the cells that steps in `after` use, and write
    written_late: set[Cell] = set()
    length, most, grains, multiplies = 0, 1, 0.0, False
    for count, (step, facts) in enumerate(zip(steps, known, strict=True), start=1):
        length += facts.statements
        cells = facts.cells
        is_short = isinstance(step, Compute) or (most > 1 and alone[count - 1] is None)
        if group and is_short and all(map(is_fill, leaves(step))) and not cells & (seen | late):
            before.append(step)
            continue
        if isinstance(step, Compute) and group:
            after.append(step)
            late |= cells
            written_late |= facts.written
            continue
        if not isinstance(step, (Loop, Gemm)) or length > LONGEST:
            break
        if cells & written_late or facts.written & late:
            break
        if (own := alone[count - 1]) is not None:
            most = max(most, own.loop.index.extent)
        if seen and not seen & cells and not facts.multiplies:
            break
        seen |= cells
        group.append(step)
        grains += facts.grains
        multiplies = multiplies or facts.multiplies
        if len(group) == 1 or not multiplies:
            continue
        shared = _sizes(group, grains)
        if shared is None or shared[1] < max(2, most):
            continue
        if (cut := _cut(group, *shared, homes)) is None or _held(cut) > room:
            break
        best = Group(count, cut, (*before,), (*after,))
    return best


def _untouched(steps: list[Step], cell: Cell) -> list[Step]:
    """The steps that fill a cell, if no other step has used it yet."""
    uses = [s for s in steps if any(c.root is cell.root for c, _, _ in s.accesses())]
    return uses if all(_fills(s, cell) for s in uses) else []


def _fills(step: Step, cell: Cell) -> bool:
    """Whether a step only fills this cell with a literal."""
    return all(isinstance(s, Compute) and s.cell is cell and is_fill(s) for s in leaves(step))


def _cut(steps: Sequence[Step], sizes: list[int], chunks: int, homes: Homes) -> Parts | None:
    """Loops and products in chunks, with `sizes` rows of each step in a chunk. None if their
    iterations share more than folds."""
    chunk = Index(chunks)
    shares = [step.in_chunk(chunk, size) for step, size in zip(steps, sizes, strict=True)]
    private, folded, bound = roles(shares, homes)
    if bound:
        return None
    here = (Affine.of(chunk),)
    moves: dict[Cell, Cell] = {}  # the cells that are replaced by each chunk's own
    before: list[Step] = []
    after: list[Step] = []
    again = Index(chunks)
    totals: list[Step] = []
    products = [s for s in walk(steps) if isinstance(s, Gemm)]
    whole = {panel.cell for step in products for panel, _ in step.matrices}
    for cell in private:
        shape = _apart(chunks, cell, cell in whole)
        moves[cell] = Cell(shape, cell.dtype, hint=cell.hint, stored=True)
    for cell, combine in folded.items():
        shape = _apart(chunks, cell, cell in whole)
        parts = Cell(shape, cell.dtype, hint=OF_CHUNKS, src=cell.src, stored=True)
        neutral = Read(None, (), Literal(cell.dtype.type(combine.identity(cell.dtype))))
        if cell.left:
            moves[cell] = parts
            before.append(_filled(parts, cell.left, here, neutral))
        else:  # a sum in a register
            local = moves[cell] = Cell((), cell.dtype, hint=cell.hint, src=cell.src)
            before.append(Compute(local, (), copy, (neutral,)))
            after.append(Compute(parts, here, copy, (Read(local, ()),)))
        totals.append(_total(cell, parts, Affine.of(again), combine))

    def place(cell: Cell, at: At) -> tuple[Cell, At]:
        own = moves.get(cell)
        if own is None:
            return cell, at
        return own, () if own.in_register else (*here, *left_of(cell, at))

    rows = [s.changed(Changes(place)) for s in shares]
    total: list[Step] = [Loop(again, tuple(totals))] if totals else []
    own = [cell for cell in moves.values() if cell.stored]
    return Parts(Loop(chunk, (*before, *rows, *after), parallel=True), folded, total, own)


def _held(cut: Parts) -> int:
    """The bytes of the chunks' private arrays."""
    return sum(cell.aval.nbytes for cell in cut.own)


def _sizes(steps: Sequence[Step], grains: float) -> tuple[list[int], int] | None:
    """The number of rows of each step in a chunk, and the number of chunks. None if the work is too
    small or can't be cut evenly."""
    if grains < 2:
        return None
    counts = [_rows(step) for step in steps]
    most = min(n // least for n, least in counts)
    if most < 2:
        return None
    chunks = min(MAX_CHUNKS, 1 << round(math.log2(grains)), 1 << most.bit_length() - 1)
    # Steps over equally many rows get equal chunks, in whole tiles.
    by = dict.fromkeys([n for n, _ in counts], 1)
    for step, (n, _) in zip(steps, counts, strict=True):
        by[n] = math.lcm(by[n], step.step if isinstance(step, Loop) else 1)
    sizes = [math.ceil(_share_of(n, chunks) / by[n]) * by[n] for n, _ in counts]
    even = all(math.ceil(n / m) == chunks for m, (n, _) in zip(sizes, counts, strict=True))
    return (sizes, chunks) if even else None


def grains_of(step: Step) -> float:
    if isinstance(step, Gemm):
        return work(step) * PRODUCTS_IN_GRAIN / GRAIN
    assert isinstance(step, Loop)
    return (work(step, least=1) + moved(step)) / GRAIN


def _rows(step: Step) -> tuple[int, int]:
    """The number of rows of a step, and the least number for a chunk. (0, 1) if it can't be cut: a
    product of leading rows, or a loop whose number of rounds isn't in the plan."""
    if isinstance(step, Gemm):
        return (step.extents[ROWS], LEAST_SIDE) if step.sizes is None else (0, 1)
    assert isinstance(step, Loop)
    return (step.index.extent, 1) if step.index.limit is None else (0, 1)


def _chunks(loop: Loop, finer: int) -> tuple[int, int]:
    """The number of rows of a chunk, and the number of chunks. This is a power of two if that comes
    out even, so that 2, 4 and 8 cores get equal shares."""
    grains = grains_of(loop) * finer
    if grains < 2:
        return 0, 0
    wanted = min(MAX_CHUNKS, 1 << round(math.log2(grains)))
    size = math.ceil(loop.index.extent / wanted / loop.step) * loop.step
    return size, math.ceil(loop.index.extent / size)


# ---- products


def _cut_product(step: Gemm, finer: int) -> Parts | None:
    """A product in chunks of its rows, its columns or its terms."""
    if step.sizes is not None or step.out.cell.alias is not None:
        return None
    *sides, terms = step.extents
    rows, columns = (n // LEAST_SIDE for n in sides)
    found = math.prod(sides) * step.out.cell.dtype.itemsize  # bytes of each chunk of terms
    sums = min(terms // LEAST_TERMS, FOUND // max(found, 1))
    counts = [rows if sides[ROWS] >= sides[COLUMNS] else 0, columns, sums]
    if step.y.ways is not None:  # windows aren't cut: each chunk copies panels of all
        counts = [sides[ROWS] // LEAST_ROWS, 0, 0]
    counts = [min(MAX_CHUNKS, int(grains_of(step) * finer), count) for count in counts]
    if len(step.out.rows) > 1 or len(step.out.columns) > 1:  # whose sums would be cut
        counts[TERMS] = 0
    most = max(counts)
    axis = counts.index(most)
    if most < 2:
        return None
    chunks = 1 << most.bit_length() - 1
    size = _share_of(step.extents[axis], chunks)
    chunk = Index(math.ceil(step.extents[axis] / size))
    here = (Affine.of(chunk),)
    if chunk.extent < 2:
        return None
    share = Share(axis, chunk, size)
    if axis != TERMS:
        return Parts(Loop(chunk, (replace(step, share=share),), parallel=True), (), [])
    out = step.out.cell
    parts = Cell((chunk.extent, *sides), out.dtype, hint=OF_CHUNKS, src=out.src, stored=True)
    product = replace(step, out=Panel.of(parts, here), adds=False, share=share)
    zero = Read(None, (), Literal(out.dtype.type(0)))

    def fill(at: At) -> Step:
        return Compute(out, step.out.entry(at), copy, (zero,))

    again = Index(chunk.extent)

    def add(at: At) -> Step:
        read = Read(parts, (Affine.of(again), *at))
        return Compute(out, step.out.entry(at), copy, (read,), SUM, step.src)

    total: list[Step] = [] if step.adds else [_nest((*sides,), fill)]
    total.append(Loop(again, (_nest((*sides,), add),)))
    return Parts(Loop(chunk, (product,), parallel=True), (), total)


def _share_of(extent: int, chunks: int) -> int:
    """The size of chunks: equal ones if that comes out even, else whole blocks."""
    size = math.ceil(extent / chunks)
    return size if extent % size == 0 else math.ceil(size / BLOCK) * BLOCK


# ---- what iterations share


class Bound(NamedTuple):
    """What keeps chunks from running at the same time: a step, and what it does."""

    why: str
    step: Step


class Roles(NamedTuple):
    """The cells in memory that are private to each chunk, those into which the chunks fold, with
    the fold, and what chunks share besides."""

    private: list[Cell]
    folded: dict[Cell, Fold]
    bound: list[Bound]


def roles(steps: Sequence[Step], homes: Homes) -> Roles:
    """What cells are to steps that are divided into chunks."""
    rows = rows_of(steps)
    uses: dict[Cell, list[Use]] = {}
    found = Roles([], {}, [])
    for step in walk(steps):
        if isinstance(step, (Compute, Gemm)):
            for cell, along, writes in step.indices():
                uses.setdefault(cell, []).append((along, writes, step))
        elif not isinstance(step, Loop):
            found.bound.append(Bound(CALLS, step))
    written = {c.root for c, own in uses.items() if any(writes for _, writes, _ in own)}
    for cell, own in uses.items():
        if cell.alias is not None and cell.root in written:
            found.bound.append(Bound(PLACES, own[0][2]))
            continue
        writers = [step for _, writes, step in own if writes]
        if not writers or _is_own_row(cell, own, rows):
            continue
        if cell.role == "temporary" and len(homes[cell]) == 1 and _starts(own):
            if not cell.in_register:
                found.private.append(cell)
            continue
        folding = [step for step in writers if step.folds is not None]
        combine = folding[0].folds if folding else None
        alike = combine is not None and all(w and x.folds == combine for _, w, x in own)
        if combine is not None and alike and not combine.ordered:
            found.folded[cell] = combine
        elif combine is not None and not cell.left:
            found.bound.append(Bound(GOES_ON, folding[0]))
        else:
            found.bound.append(Bound(ADDS if alike else PLACES, writers[0]))
    return found


def _is_own_row(cell: Cell, uses: list[Use], rows: Mapping[Index, int]) -> bool:
    """Whether each chunk uses rows of its own of a cell in memory."""
    left = range(len(cell.shape)) if cell.axes is None else cell.axes
    places = [along for along, _, _ in uses if along is not None]
    if len(places) < len(uses):
        return False
    return any(is_one_share([along[a] for along in places], rows) for a in left)


def _starts(uses: list[Use]) -> bool:
    """Whether a cell is written before it is read, by a plain store."""
    _, writes, step = uses[0]
    return writes and step.folds is None


# ---- chunks


def _nest(shape: tuple[int, ...], make: Callable[[At], Step]) -> Step:
    """`make(at)` for each index of an array."""
    indices = [Index(n) for n in shape]
    step = make(tuple(Affine.of(i) for i in indices))
    for index in reversed(indices):
        step = Loop(index, (step,))
    return step


def _apart(chunks: int, cell: Cell, whole: bool) -> tuple[int, ...]:
    """The shape of a cell with a part for each chunk. There is a gap between two parts, unless they
    are `whole` matrices or single numbers, which are written once."""
    if not cell.left or whole:
        return (chunks, *cell.left)
    first, *others = cell.left
    gap = math.ceil(LINES / (max(1, math.prod(others)) * cell.dtype.itemsize))
    return (chunks, first + gap, *others)


def _flat(cell: Cell, first: tuple[int, ...] = ()) -> Cell:
    """The cell as one with a single axis after those in `first`. A fold over all of it is then one
    loop, which is vectorised even if the axes are short."""
    left = cell.left[len(first) :]
    if len(left) < 2:
        return cell
    shape = (*first, math.prod(left))
    return Cell(shape, cell.dtype, hint=cell.hint, src=cell.src, alias=cell)


def _filled(parts: Cell, left: tuple[int, ...], here: At, value: Read) -> Step:
    return _nest(left, lambda at: Compute(parts, (*here, *at), copy, (value,)))


def _total(cell: Cell, parts: Cell, chunk: Affine, combine: Fold) -> Step:
    """Fold a chunk's part into the cell."""
    flat, of_chunks = _flat(cell), _flat(parts, parts.shape[:1])
    whole = range(len(flat.shape)) if flat.axes is None else flat.axes

    def add(at: At) -> Step:
        entries: list[Any] = [Affine()] * len(flat.shape)
        for axis, k in zip(whole, at, strict=True):
            entries[axis] = k
        return Compute(flat, tuple(entries), copy, (Read(of_chunks, (chunk, *at)),), combine)

    return _nest(flat.left, add)
