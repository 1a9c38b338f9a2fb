"""Lowering of contractions as products of matrices.

The letters of a role (rows, columns or depth) are one axis of matrices if they are adjacent in
memory, in both arrays that have them. The other letters become loops around the product. Products
are added up in the loops over the depth.

    einsum(x, w, 'nijc,cd->nijd')              out as (n i j) by d = x as (n i j) by c @ w

    the same of a part of x, x[:, 1:13, 2:14]  for n, i: out[n, i] = x[n, 1 + i, 2:14] @ w

    einsum(q, k, 'ihd,jhd->hij')               for h: out[h] = q[:, h, :] @ k[:, h, :].T

So nothing is copied for a product, unless many small ones would take longer than the copy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import Cell, Read
from tapegrad.ir.panels import Panel
from tapegrad.ir.steps import Compute, Gemm, Step
from tapegrad.ir.tape import Call, Operand
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Slice
from tapegrad.primitives.kinds import StaticIndex
from tapegrad.schedule.access import at_indices, indices_for, nest, store
from tapegrad.schedule.cost import PRODUCT, WRITE, traffic
from tapegrad.schedule.lowering import Lowering
from tapegrad.schedule.products import extents, is_gemm, product_loops

# The start of a product, in additions. In float64 a product of 12 x 8 by 8 x 16, one of a batch of
# 400 on one core with AVX-512, takes 7 ns more than its multiplications, larger ones up to 13.
STARTED = 100
# A product of a matrix and its transpose is computed in BLOCKS blocks of rows, multiples of EVEN,
# if that gains GAINED additions: 1000 x 100 takes 0.6 of the time then.
BLOCKS, EVEN = 4, 8
GAINED = 1 << 18
# The blocks read the matrix two and a half times. A byte from beyond the shared cache costs
# FROM_FAR additions: for 100,000 rows, 48 columns take longer in blocks, 64 don't.
FAR, FROM_FAR = 1 << 24, 0.3
MIN_LONG_AXIS = 8  # elements of an axis that isn't given up for a longer one with a larger stride


def product(low: Lowering, call: Call) -> None:
    if is_gemm(call, low.open):
        gemm(low, call)
    else:
        product_loops(low, call)


@dataclass(frozen=True)
class Laid:
    """The layout of an operand or the result: the cell's axis of each letter, and the start along
    all axes."""

    cell: Cell
    axes: Mapping[str, int]
    at: tuple[Affine, ...]
    # For windows, where two letters go along one axis: the step of each.
    steps: Mapping[str, int] | None = None

    def follows(self, one: str, other: str, size: Mapping[str, int]) -> bool:
        """Whether two letters can be one axis: a step along the first goes past all of the second.
        For windows any two can."""
        if self.steps is not None:
            return True
        a, b = self.axes[one], self.axes[other]
        between = all(self.cell.shape[k] == 1 for k in range(a + 1, b))
        whole = size[other] == self.cell.shape[b]
        return a < b and between and whole and self.at[b] == Affine()

    def panel(
        self, rows: str, columns: str, size: Mapping[str, int], at: Mapping[str, Affine]
    ) -> Panel:
        """The matrix with these letters as rows and columns, where the other letters are at the
        indices `at`."""
        entries = list(self.at)
        steps = self.steps or {}
        for letter, axis in self.axes.items():
            if letter in at:
                entries[axis] = entries[axis] + at[letter] * steps.get(letter, 1)
        if self.steps is not None:
            sides = rows, columns
            axes = [tuple([self.axes[k] for k in letters]) for letters in sides]
            ways = tuple([tuple([(size[k], steps[k]) for k in letters]) for letters in sides])
            shape = [math.prod(size[k] for k in letters) for letters in sides]
            return Panel(self.cell, tuple(entries), axes[0], axes[1], (shape[0], shape[1]), ways)
        along = [tuple(range(self.axes[k[0]], self.axes[k[-1]] + 1)) for k in (rows, columns)]
        many = [math.prod(size[k] for k in letters) for letters in (rows, columns)]
        return Panel(self.cell, tuple(entries), along[0], along[1], (many[0], many[1]))


@dataclass(frozen=True)
class Split:
    """The letters of each role that become axes of the matrices, those of loops around the product
    (`outer`), and those of loops that add up products (`inner`)."""

    rows: str
    columns: str
    depth: str
    outer: str
    inner: str

    def price(self, size: Mapping[str, int], itemsize: int) -> float:
        """The cost of the products, in additions."""
        work = math.prod(size[k] for k in self.rows + self.columns + self.depth)
        count = math.prod(size[k] for k in self.outer + self.inner)
        return count * (STARTED + PRODUCT * itemsize * work)


def gemm(low: Lowering, call: Call) -> None:
    """A product of matrices, into a cell of its own, or added to the sum of which it is a term."""
    terms = call.primitive.terms  # type: ignore[attr-defined]
    size = extents(call)
    found = [_laid(low, x, term) for x, term in zip(call.operands, terms, strict=False)]
    total = low.totals.get(call.out)
    cell = total.cell if total else low.result(call)
    if all(laid is not None and laid.steps is not None for laid in found):
        found[0] = None  # only one factor may be windows
    letters = terms.out if not (total and total.swapped) else _swapped(terms.out)
    out = (
        _in_rows(cell, letters)
        if total is None or total.box is None
        else _in_box(cell, letters, total.box)
    )
    if total and total.is_first:
        _fill_zeros(low, call, cell)

    # Operands whose layout allows a product aren't copied. Among the alternatives the cheapest
    # copies are made.
    best: Any = None
    for copied in itertools.product((False, True), repeat=2):
        if any(not copy and laid is None for copy, laid in zip(copied, found, strict=True)):
            continue
        tried = [None if copy else laid for copy, laid in zip(copied, found, strict=True)]
        orders = _orders(tried, terms, letters)
        x, y = (
            laid or _in_rows(Cell(tuple([size[k] for k in order]), call.out.dtype), order)
            for laid, order in zip(tried, orders, strict=True)
        )
        split = _split(terms, size, x, y, out)
        price = split.price(size, cell.dtype.itemsize)
        price += sum(_copying(z) for z, c in zip(call.operands, copied, strict=True) if c)
        if best is None or price < best[0]:
            best = price, split, tried, orders
    _, split, tried, orders = best
    x, y = (
        laid or _copied(low, operand, term, order)
        for laid, operand, term, order in zip(tried, call.operands, terms, orders, strict=False)
    )
    _emit(low, call, split, size, (out, x, y), bool(total and total.adds))


def _copying(x: Operand) -> float:
    """The cost of a copy of an operand: each element is read and written."""
    count, itemsize = x.aval.size, x.dtype.itemsize
    return count * (1 + WRITE) * traffic(itemsize, count * itemsize)


def _emit(
    low: Lowering,
    call: Call,
    split: Split,
    size: Mapping[str, int],
    laid: tuple[Laid, Laid, Laid],
    adds: bool,
) -> None:
    """Append the product, inside its loops."""
    out, x, y = laid
    outer, inner = (
        indices_for([size[k] for k in letters]) for letters in (split.outer, split.inner)
    )
    loops = zip(split.outer + split.inner, at_indices([*outer, *inner]), strict=True)
    at: dict[str, Any] = dict(loops)
    panels = [
        out.panel(split.rows, split.columns, size, at),
        x.panel(split.rows, split.depth, size, at),
        y.panel(split.depth, split.columns, size, at),
    ]
    sizes = _fronts(low, call, split, panels)
    if split.inner and not adds:
        _fill_zeros(low, call, out.cell)
        adds = True
    step = Gemm(panels[0], panels[1], panels[2], adds, call.src, sizes)
    if out.axes[split.rows[-1]] > out.axes[split.columns[-1]]:  # (x @ y).T = y.T @ x.T
        step = step.T
    if step.x.ways is not None:  # the factor whose panels are copied
        step = step.T
    blocks = None if inner or sizes else _by_symmetry(step)
    low.steps += nest([*outer, *inner], blocks or [step])


def _by_symmetry(step: Gemm) -> list[Step] | None:
    """A product of a matrix and its transpose by blocks; the blocks above the diagonal are copies
    of those below it. None for other products, and if it isn't worth it.

        out[:a, :a] = x[:a] @ x[:a].T
        out[a:b, :b] = x[a:b] @ x[:b].T,  out[:a, a:b] = out[a:b, :a].T
    """
    out, x, y = step.out, step.x, step.y
    n, depth = x.shape
    if x != y.T or step.adds or any(len(axes) > 1 for axes in (out.rows, out.columns, x.rows)):
        return None
    if n < BLOCKS * EVEN:
        return None
    itemsize = out.cell.dtype.itemsize
    twice = (BLOCKS - 1) / (2 * BLOCKS) * n * n  # elements that would be computed twice
    gained = twice * depth * PRODUCT * itemsize
    size = n * depth * itemsize
    gained -= 1.5 * size * FROM_FAR if size > FAR else 0
    copied = twice * (1 + WRITE) * traffic(itemsize, n * n * itemsize)
    if gained < GAINED + 2 * copied:
        return None
    ends = [*(round(n * k / BLOCKS / EVEN) * EVEN for k in range(1, BLOCKS)), n]
    steps: list[Step] = []
    for start, end in itertools.pairwise([0, *ends]):
        count = end - start
        block = out.in_rows(start, count).T.in_rows(0, end).T
        steps.append(Gemm(block, x.in_rows(start, count), y.T.in_rows(0, end).T, False, step.src))
        if start:
            steps += _mirrored(out, start, count, step.src)
    return steps


def _mirrored(out: Panel, start: int, count: int, src: Any) -> list[Step]:
    """Copy these rows' elements left of the diagonal to their transposed places above it."""
    indices = indices_for([start, count])
    j, i = (Affine.of(index) for index in indices)
    below = out.entry((i + start, j))
    above = out.entry((j, i + start))
    return nest(indices, [Compute(out.cell, above, ew.copy, (Read(out.cell, below),), src=src)])


def _fill_zeros(low: Lowering, call: Call, cell: Cell) -> None:
    """Fill the cell to which products are added with zeros."""
    whole = cell.shape == call.out.shape
    every = low.indices_of(call.out) if whole else indices_for(cell.shape)
    low.steps += nest(every, [store(cell, at_indices(every), 0, call.src)])


def _fronts(low: Lowering, call: Call, split: Split, panels: Sequence[Panel]) -> Any:
    """The numbers of rows, columns and terms, if any is less than all; else None."""
    terms = call.primitive.terms  # type: ignore[attr-defined]
    far = dict(zip(terms.out, low.fronts.of(call.out), strict=True))
    ends = [far[k] if len(k) == 1 else None for k in (split.rows, split.columns)]
    ends.append(low.fronts.of_depth(call))
    if all(end is None for end in ends):
        return None
    whole = (*panels[0].shape, panels[1].shape[1])
    return tuple(
        [Affine((), n) if end is None else end for n, end in zip(whole, ends, strict=True)]
    )


# ---- where operands are


def _laid(low: Lowering, x: Operand, term: str) -> Laid | None:
    """The layout of an operand, through its views. None if it isn't one of matrices: an index
    array, a step, or a repeated axis is in the way."""
    indices = [Index(n) for n in x.shape]
    read = low.read(x, at_indices(indices))
    if read.cell is None or read.cell.scalar:
        return None
    letter = {i: k for i, k in zip(indices, term, strict=True) if i.extent != 1}
    axes: dict[str, int] = {}
    steps: dict[str, int] = {}
    are_windows = False
    at: list[Affine] = []
    for axis, entry in enumerate(read.at):
        if not isinstance(entry, Affine):
            return None
        mine = [(i, c) for i, c in entry.terms if i in letter]
        for index, step in mine:
            if step < 1 or letter[index] in axes:
                return None
            axes[letter[index]], steps[letter[index]] = axis, step
        if mine and entry.range[1] >= read.cell.shape[axis]:
            return None  # only its leading elements are read
        are_windows |= len(mine) > 1
        at.append(Affine(tuple([t for t in entry.terms if t[0] not in letter]), entry.const))
    if len(axes) < len(letter) or not (are_windows or all(k == 1 for k in steps.values())):
        return None
    return Laid(read.cell, axes, tuple(at), steps if are_windows else None)


def _in_rows(cell: Cell, letters: str) -> Laid:
    """The layout of an array with these axes."""
    axes = {k: a for a, k in enumerate(letters) if cell.shape[a] != 1}
    return Laid(cell, axes, (Affine(),) * len(letters))


def _in_box(cell: Cell, letters: str, box: StaticIndex) -> Laid:
    """The layout of a box of an array with these axes."""
    rest = iter(letters)
    axes, at = {}, []
    for a, k in enumerate(box):
        at.append(Affine((), k.start if isinstance(k, Slice) else k))
        if isinstance(k, Slice) and (letter := next(rest)) and k.count != 1:
            axes[letter] = a
    return Laid(cell, axes, tuple(at))


def _swapped(letters: str) -> str:
    return letters[:-2] + letters[:-3:-1]


def _orders(laid: Sequence[Laid | None], terms: Any, out: str) -> tuple[str, str]:
    """The order of each operand's letters in a copy, which follows the other arrays."""
    rows, columns = ("".join(k for k in out if k in mine) for mine in (terms.rows, terms.columns))
    depth = terms.depth
    for other in laid:
        if other is not None:
            depth = "".join(sorted(terms.depth, key=lambda k: other.axes.get(k, -1)))
    return terms.batch + rows + depth, terms.batch + depth + columns


def _copied(low: Lowering, x: Operand, term: str, order: str) -> Laid:
    """A copy of an operand, with its axes in this order."""
    size = dict(zip(term, x.shape, strict=True))
    if order == term:
        return _in_rows(low.materialized(x), order)
    cell = Cell(tuple([size[k] for k in order]), x.dtype)

    def read(at: Any) -> Read:
        entry = dict(zip(order, at, strict=True))
        return low.read(x, tuple([entry[k] for k in term]))

    far = dict(zip(term, low.fronts.of(x), strict=True))
    shape = [size[k] for k in order]
    low.copy_into(cell, read, cell.src, indices_for(shape, [far[k] for k in order]))
    return _in_rows(cell, order)


def _split(terms: Any, size: Mapping[str, int], x: Laid, y: Laid, out: Laid) -> Split:
    """Choose the letters of the matrices, as many as possible."""
    rows, columns, depth = (
        _together(letters, size, *pair)
        for letters, pair in (
            (terms.rows, (x, out)),
            (terms.columns, (y, out)),
            (terms.depth, (x, y)),
        )
    )
    outer = "".join(k for k in terms.out if k not in rows + columns)
    inner = "".join(k for k in terms.depth if k not in depth and size[k] != 1)
    return Split(rows, columns, depth, outer, inner)


def _together(letters: str, size: Mapping[str, int], one: Laid, other: Laid) -> str:
    """The letters that are one axis in both arrays: the last long enough group, since its elements
    are nearest to each other, or else the longest group."""
    long = sorted((k for k in letters if size[k] != 1), key=lambda k: one.axes[k])
    best = chain = long[0]
    for k in long[1:]:
        joined = all(laid.follows(chain[-1], k, size) for laid in (one, other))
        chain = chain + k if joined else k
        if math.prod(size[c] for c in chain) >= min(
            MIN_LONG_AXIS, math.prod(size[c] for c in best)
        ):
            best = chain
    return best
