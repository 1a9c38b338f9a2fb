"""The copies in kernels: arrays, or parts of them, that are moved and not computed; and why.

for i < 1000:
    t[i] = x[i]      --> a copy of x, which is an argument, and isn't changed
t[3] = 1.0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tapegrad.ir.cells import Cell, Indirect
from tapegrad.ir.plan import Plan, Recurrence, walk
from tapegrad.ir.report import size
from tapegrad.ir.steps import Compute, Gemm, PythonCall, Routine, Step
from tapegrad.ir.tape import Tape, Var
from tapegrad.schedule.cost import each

LEAST = 64  # bytes: smaller copies aren't reported


def copies(plan: Plan, tape: Tape) -> list[str]:
    """A sentence for each copy in the plan of a tape, the largest first."""
    found: dict[tuple[str, str], list[float]] = {}
    made = {out: call.src for call in tape.calls for out in call.outs}
    pairs = zip(plan.outputs, tape.outputs, strict=True)
    lines = {cell.root: made.get(x) for cell, x in pairs if isinstance(x, Var)}
    runs = {id(leaf): n for step in plan.steps for leaf, n in each(step)}
    for inside in _plans(plan):
        for leaf in walk(inside.steps):
            source = _copied(leaf)
            if source is None:
                continue
            target = leaf.cell.root  # type: ignore[attr-defined]
            nbytes = runs[id(leaf)] * target.dtype.itemsize
            if nbytes >= LEAST:
                reader = _reader(leaf, inside.steps)
                why = _of_reader(reader) or _of_writing(leaf, source, inside, inside is plan)
                srcs = (leaf.src, target.src, lines.get(target), reader and reader.src, source.src)
                src = next(filter(None, srcs), None)
                where = src.quoted if src is not None else "a result"
                found.setdefault((where, why), []).append(nbytes)
    largest = sorted(found.items(), key=lambda x: -sum(x[1]))
    return [
        f"{'a copy' if len(sizes) == 1 else f'{len(sizes)} copies'}, {size(int(sum(sizes)))}: "
        f"{where}. {why}"
        for (where, why), sizes in largest
    ]


def _plans(plan: Plan) -> Iterator[Plan]:
    """A plan, and the plans of its loops' iterations, recursively."""
    yield plan
    for step in walk(plan.steps):
        if isinstance(step, Recurrence):
            yield from _plans(step.plan)


def _copied(leaf: Step) -> Cell | None:
    """The array from which a step copies an element to another array; None for other steps."""
    if not isinstance(leaf, Compute) or leaf.combine or leaf.primitive.name != "copy":
        return None
    (read,) = leaf.reads
    if read.cell is None or any(isinstance(k, Indirect) for k in (*read.at, *leaf.at)):
        return None
    if leaf.cell.in_register or read.cell.in_register or not leaf.at:
        return None
    return read.cell


def _reader(leaf: Any, steps: Sequence[Step]) -> Step | None:
    """The step that takes a copied array as a whole."""
    for step in walk(steps):
        cells: list[Cell] = []
        if isinstance(step, Recurrence):
            cells = [*step.places]
        elif isinstance(step, (Routine, PythonCall, Gemm)):
            cells = [cell for cell, _, _ in step.accesses()]
        if any(cell.root is leaf.cell.root for cell in cells):
            return step
    return None


def _of_reader(step: Step | None) -> str:
    """The reason why a step that takes an array as a whole needs a copy."""
    if isinstance(step, Routine):
        return f"{step.primitive.name}, of a library, takes an array of its own"
    if isinstance(step, PythonCall):
        return f"{step.primitive.name}, called from Python, takes it as one array"
    if isinstance(step, Gemm):
        return "A product in blocks takes elements that are next to each other"
    return "The rounds of a loop change it" if step is not None else ""


def _of_writing(leaf: Any, source: Cell, plan: Plan, outermost: bool) -> str:
    """The reason why an array can't be used instead of its copy."""
    target: Cell = leaf.cell.root
    given = outermost and source in plan.inputs
    name = source.hint or "it"
    others = [x for x in walk(plan.steps) if x is not leaf and isinstance(x, Compute)]
    if any(x.cell.root is target for x in others):
        extents = [index.extent for k in leaf.at for index, _ in k.terms]
        if math.prod(extents) < math.prod(target.shape):
            return "An array is put together from parts"
        before = f"{name} is the caller's" if given else "what was there before is read later"
        return f"Elements of it are set, and {before}"
    if not outermost and target in plan.outputs:
        return "Each round leaves its own in an array of all rounds"
    if target.role == "output" and given:
        return f"What is returned shares no memory with {name}, which is the caller's"
    if target.role == "output" and source.root.role == "output":
        return "Two results share no memory"
    if target.role == "output":
        part = math.prod(target.shape) < math.prod(source.root.shape)
        than = "a part of" if part else "in another order than"
        return f"What is returned is {than} what was computed"
    if not given and _is_set_after(leaf, source, plan.steps):
        return "Its array is written over, and it is read later"
    accesses = [access for x in walk(plan.steps) for access in x.accesses()]
    read = [(cell, at) for cell, at, writes in accesses if cell.root is target and not writes]
    if any(cell is not target for cell, _ in read):
        return "It is read as an array of another shape"
    if any(isinstance(k, Indirect) for _, at in read for k in at or ()):
        return "An index array says what of it is read"
    return "Loops beside this one read it"


def _is_set_after(leaf: Any, source: Cell, steps: Sequence[Step]) -> bool:
    """Whether elements of the array are set after the copy."""
    order = [*walk(steps)]
    behind = order[next(k for k, x in enumerate(order) if x is leaf) + 1 :]
    return any(
        writes and cell.root is source.root for x in behind for cell, _, writes in x.accesses()
    )
