"""The causes that keep a kernel on one core, each with the line of the program, and the remedy.

np.add.at(mesh, cell, x)     -->     rounds may add to the same place; a product with a matrix of
                                     ones and zeros sums the cores' partial results
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tapegrad.core.values import Source
from tapegrad.ir.affine import Index
from tapegrad.ir.cells import Cell
from tapegrad.ir.plan import Recurrence, is_parallel, leaves, most_chunks
from tapegrad.ir.steps import ArgUpdate, Gemm, Loop, Routine, Step
from tapegrad.schedule.cost import each, moved, work_once
from tapegrad.schedule.parallelise import (
    ADDS,
    CALLS,
    GOES_ON,
    GRAIN,
    OF_CHUNKS,
    PLACES,
    Homes,
    cut_alone,
    grains_of,
    roles,
)
from tapegrad.schedule.rounds import FINER

LITTLE, LIBRARY, ROUNDS, BEST = "little", "library", "rounds", "best"
SHORT, NARROW, ROOM, TOTALS = "short", "narrow", "room", "totals"


class Cause(NamedTuple):
    """One cause: its kind, its line, and its subject (a fold, a library's routine)."""

    kind: str
    src: Source | None
    what: str = ""

    def __str__(self) -> str:
        return self._filled(0)

    @property
    def fix(self) -> str:
        """The remedy."""
        return self._filled(1)

    def _filled(self, place: int) -> str:
        word = WORDS.get(self.what, self.what)
        return SAID[self.kind][place].format(what=self.what, word=word)


# Kind --> cause and remedy. docs/doing.md explains them.
SAID = {
    LITTLE: ("there is too little to do", ""),
    LIBRARY: (
        "{what} runs in a library",
        "Its threads, if it has some, are its own",
    ),
    ROUNDS: (
        "the rounds of a loop go on from each other, and no loop in one is long enough",
        "Cores share a sum, or one call of NumPy for all rounds, where that says the same",
    ),
    GOES_ON: (
        "each round goes on from the last one's running {word}",
        "One for each row of a matrix, along its rows, is shared; so is np.{what}, where only the "
        "last is needed",
    ),
    BEST: (
        "each round goes on from the last one's {what}",
        "One for each row of a matrix is shared; so is np.{word}, without the place",
    ),
    ADDS: (
        "rounds may add to the same place, as np.add.at does",
        "For few places, sort the data by place once, and sum a slice x[a:b] for each",
    ),
    PLACES: (
        "a round uses elements that another one writes",
        "Rounds that write to an array which the loop doesn't read, each its own row, are shared",
    ),
    SHORT: (
        "no loop of it is long enough",
        "The longest axis as the first one, or one call for several arrays, is shared",
    ),
    NARROW: (
        "the product has few rows and columns",
        "Products of several vectors at once, as one of matrices, are shared",
    ),
    TOTALS: (
        "one core adds up what each of them has found",
        "That takes less where fewer numbers are the result",
    ),
    ROOM: (
        "each core would need an array of its own, for which there is no room",
        "Fewer temporary arrays in a row leave room",
    ),
}


WORDS = {"prod": "product", "max": "maximum", "min": "minimum", "argmax": "max", "argmin": "min"}


def causes(steps: Sequence[Step], homes: Homes) -> list[Cause]:
    """The causes for which one core runs a kernel, or a part of a kernel with shared parts, each
    once, by decreasing work. `homes` maps a cell to the numbers of the plan's steps that use it."""
    works = {id(step): work_of(step) for step in steps}
    found = _of_steps(steps, homes)
    if not found and not any(map(most_chunks, steps)):
        little = math.fsum(works.values()) < 2 * GRAIN
        most = max(steps, key=lambda x: works[id(x)]) if steps else None
        at = None if little or most is None else _source(leaves(most))
        found.append(Cause(LITTLE if little else SHORT, at))
    return list(dict.fromkeys(found))


def _of_steps(steps: Sequence[Step], homes: Homes, finer: int = 1) -> list[Cause]:
    """The causes for which one core runs steps; in a loop's iteration chunks may be `finer`."""
    found = []
    for step in sorted(steps, key=lambda x: -work_of(x)):
        found += [
            Cause(LIBRARY, x.src, x.primitive.name) for x in leaves(step) if isinstance(x, Routine)
        ]
        if _grains(step) * finer >= 2 and not is_parallel(step):
            found += _of_step(step, homes, finer)
    return found


def work_of(step: Step) -> float:
    """The expected work of a step, in additions."""
    return float(sum(n * (work_once(x) + moved(x)) for x, n in each(step)))


def _grains(step: Step) -> float:
    """The work of a step, in units of the least work that makes a chunk worthwhile."""
    return grains_of(step) if isinstance(step, (Loop, Gemm)) else work_of(step) / GRAIN


def _of_step(step: Step, homes: Homes, finer: int) -> list[Cause]:
    """The causes for a step that has enough work to be shared."""
    if isinstance(step, Recurrence):
        of_round = step.plan.steps
        found = _of_steps(of_round, homes_of(of_round), FINER)
        return found if found or most_chunks(step) else [Cause(ROUNDS, step.src)]
    if isinstance(step, Gemm):
        return [Cause(NARROW, step.src)]
    if not isinstance(step, Loop):
        return []
    inside = leaves(step)
    if _adds_totals(step):
        return [Cause(TOTALS, _written(inside))]
    if step.index.limit is not None or step.index.extent < 2:
        return [Cause(SHORT, _source(inside))]
    half = step.in_chunk(Index(2), math.ceil(step.index.extent / 2))
    found = []
    for why, at in roles([half], homes).bound:
        if why != CALLS:  # steps of kind CALLS get causes of their own below
            found.append(Cause(why, at.src or _source(inside), _fold(at)))
        elif isinstance(at, ArgUpdate):
            found.append(Cause(BEST, at.src, "argmax" if at.better[0] == ">" else "argmin"))
    if not found and not any(isinstance(x, Routine) for x in inside):
        parts = cut_alone(step, homes, math.inf, finer)
        needs_room = parts is not None and any(cell.shape[1:] for cell in parts.own)
        found.append(Cause(ROOM if needs_room else SHORT, _source(inside)))
    return found


def _adds_totals(step: Step) -> bool:
    """Whether a step adds up the partial folds of the chunks."""
    return any(cell.hint == OF_CHUNKS and cell.stored for x in leaves(step) for cell in x.needs())


def _fold(step: Step) -> str:
    """NumPy's name of a step's fold."""
    name = step.folds.name if step.folds is not None else ""
    return {"add": "sum"}.get(name, name)


def _written(steps: Sequence[Step]) -> Source | None:
    """The line of the first cell that steps write."""
    cells = [cell.root for x in steps for cell, _, writes in x.accesses() if writes]
    return next((x.src for x in cells if x.src is not None), None)


def _source(steps: Sequence[Step]) -> Source | None:
    return next((x.src for x in steps if x.src is not None), None)


def homes_of(steps: Sequence[Step]) -> dict[Cell, set[int]]:
    """The numbers of the steps that use a cell."""
    homes: dict[Cell, set[int]] = {}
    for number, step in enumerate(steps):
        for cell, _, _ in step.accesses():
            homes.setdefault(cell.root, set()).add(number)
    return homes
