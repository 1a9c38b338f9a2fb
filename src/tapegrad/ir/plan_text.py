"""Plans as text: loops over cells, with types, roles and the user's lines.

    plan loss(x) -> out
      inp  x : f8[5]
      out  out : f8[]
      t = 0.0 : f8                      # model.py:12
      for i < 5:
        t sum= exp(x[i]) : f8           # model.py:12
      out[()] = t : f8

Registers have a name and no index. `t sum= value` folds a value into `t`. Stored cells are declared
at the head, with their memory if an allocation is given. The plan of a recurrence's rounds prints
as `@1`, and below it as `@1 = plan ...`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tapegrad.errors import InternalError
from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.allocation import Allocation, left_of
from tapegrad.ir.cells import At, Cell, Indirect, Piece, Read, Share
from tapegrad.ir.panels import Panel
from tapegrad.ir.plan import Plan, walk
from tapegrad.ir.steps import (
    Loop,
    Step,
)
from tapegrad.ir.tape import dtype_name
from tapegrad.ir.text import show_parameter, with_nested

LETTERS = "ijklmnpqrst"
AROUND = 12  # lines of a plan that an error shows before and after
WIDTH = 56
COUNTED = "rows", "columns", "terms"


def show_plan(plan: Plan, allocation: Allocation | None = None) -> str:
    """The plan as text. With an allocation it says where each stored cell lives."""
    return "\n".join([text for text, _ in shown_lines(plan, allocation)])


def shown_lines(plan: Plan, allocation: Allocation | None = None) -> list[tuple[str, Step | None]]:
    """The lines of that text, each with the step that it shows."""
    nested: list[Plan] = []
    return with_nested(_block(plan, nested, allocation), nested, _block)


def _block(
    plan: Plan, nested: list[Plan], allocation: Allocation | None = None
) -> list[tuple[str, Step | None]]:
    text = _Text(plan, nested)
    ins, outs = (", ".join(map(text.name, cells)) for cells in (plan.inputs, plan.outputs))
    rows: list[tuple[str, str, Step | None]] = [
        (line, "", None) for line in text.declarations(allocation)
    ]
    rows += text.lines(plan.steps, "  ")
    width = min(WIDTH, max((len(left) for left, note, _ in rows if note), default=0))
    return [
        (f"plan {plan.name}({ins}) -> {outs}", None),
        *[(f"{left:{width}}  # {note}" if note else left, step) for left, note, step in rows],
        *[(f"  status {k}: {x.what()}", None) for k, x in enumerate(plan.failures, start=1)],
    ]


def show_step(plan: Plan, step: Step) -> str:
    """One step of a plan as text; for a loop, its head."""
    return _Text(plan).lines([step], "")[0][0]


def malformed(plan: Plan, message: str, after: str = "", cell: Cell | None = None) -> InternalError:
    """The error for a malformed plan. It quotes the lines around the last one that names `cell`."""
    stage = f" after {after}" if after else ""
    about = "" if cell is None else f"{_Text(plan).name(cell)}: "
    lines = str(plan).splitlines()
    if cell is not None and len(lines) > 2 * AROUND:
        name = _Text(plan).name(cell)
        named = [k for k, line in enumerate(lines) if name in line.replace("[", " ").split()]
        first = max(0, (named[-1] if named else 0) - AROUND)
        lines = lines[first : first + 2 * AROUND]
    return InternalError(
        f"malformed plan{stage}: {about}{message}. This is a fault of tapegrad; please report it "
        "with the plan:\n" + "\n".join(lines)
    )


@dataclass
class _Text:
    """The printer of one plan, with the names that it has given to cells and indices."""

    plan: Plan
    nested: list[Plan] = field(default_factory=list)  # the plans of rounds, by number
    names: dict[Cell, str] = field(default_factory=dict)
    indices: dict[Index, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)  # of a name, which is the last taken

    def __post_init__(self) -> None:
        for cell in (*self.plan.inputs, *self.plan.outputs, *self.cells()):
            self.name(cell)

    def cells(self) -> Iterator[Cell]:
        """All cells that the steps access, in order."""
        for step in walk(self.plan.steps):
            for cell, _, _ in step.own():
                yield cell.root
                yield cell

    def fresh(self, wanted: str) -> str:
        names = (f"{wanted}{k or ''}" for k in itertools.count(self.counts.get(wanted, 0)))
        name = next(n for n in names if n not in self.taken)
        self.counts[wanted] = int(name[len(wanted) :] or 0)
        self.taken.add(name)
        return name

    def name(self, cell: Cell) -> str:
        if cell not in self.names:
            usual = {"input": "x", "output": "out"}.get(cell.role, "t")
            self.names[cell] = self.fresh(cell.hint or usual)
        return self.names[cell]

    def declarations(self, allocation: Allocation | None) -> Iterator[str]:
        for word, cells in (("inp", self.plan.inputs), ("out", self.plan.outputs)):
            for cell in cells:
                leaving = "" if cell.leaving is None else f", left as {_shape(cell.leaving)}"
                yield f"  {word}  {self.name(cell)} : {_type(cell)}{leaving}"
        slots = {} if allocation is None else {s: k for k, s in enumerate(allocation.slots)}
        for cell in dict.fromkeys(self.cells()):
            if cell.role != "temporary" or cell.in_register:
                continue
            line = f"  mem  {self.name(cell)} : {_type(cell)}"
            if cell.alias is not None:
                yield f"{line} = {self.name(cell.alias)}"
            elif allocation is None:
                yield line
            else:
                home = allocation.home(cell)
                where = home.memory
                place = self.name(where) if isinstance(where, Cell) else f"scratch{slots[where]}"
                yield f"{line} in {place}" + (f" from {home.start}" if home.start else "")

    # ---- steps

    def lines(self, steps: Sequence[Step], indent: str) -> list[tuple[str, str, Step | None]]:
        """Each step as a line of text and its comment."""
        rows: list[tuple[str, str, Step | None]] = []
        for step in steps:
            rows.append((indent + step.text(self), str(step.src or ""), step))
            if isinstance(step, Loop):
                rows += self.lines(step.body, indent + "  ")
                self.taken.discard(name := self.indices.pop(step.index, ""))
                self.counts.pop(name.rstrip("0123456789"), None)
        return rows

    def number(self, plan: Plan) -> int:
        """The number under which the plan of a round prints."""
        if not any(known is plan for known in self.nested):
            self.nested.append(plan)
        return next(k for k, known in enumerate(self.nested, start=1) if known is plan)

    def share(self, own: Share) -> str:
        return f" {COUNTED[own.axis]} in chunk {self.index(own.chunk)} of {own.size}"

    def panel(self, panel: Panel) -> str:
        for matrix, turned in ((panel, False), (panel.T, True)):
            if (first := matrix.first) is not None:
                return self.part(matrix.cell, first, turned)
        at, *own = panel.left
        entries = [self.entry(k) for k in at]
        for k, (axes, name) in enumerate(zip(own, COUNTED, strict=False)):
            for a, (_, step) in zip(axes, panel.ways_of(k), strict=True):
                text = name if step == 1 else f"{step} * {name}"
                entries[a] = text if entries[a] == "0" else f"{entries[a]} + {text}"
        rows, columns = panel.shape
        return f"{self.name(panel.cell)}[{', '.join(entries)}] as {rows} by {columns}"

    def whole(self, read: Read) -> str:
        if read == Read(None):
            return "unset"
        if read.cell is None or not read.cell.shape:
            return self.read(read)
        return self.part(read.cell, read.at)

    def index(self, index: Index) -> str:
        if index not in self.indices:
            free = (letter for letter in LETTERS if letter not in self.taken)
            self.indices[index] = self.fresh(next(free, "i"))
        return self.indices[index]

    def applied(self, primitive: Any, operands: Iterable[str]) -> str:
        name, operands = str(primitive), [*operands]
        if name == "copy":
            return operands[0]
        given = primitive.parameters()
        return f"{name}({', '.join([*operands, *[f'{k}={show_parameter(v)}' for k, v in given]])})"

    # ---- places

    def read(self, read: Read) -> str:
        if read.literal is not None:
            return str(read.literal)
        if read.pieces:
            return f"({' | '.join(map(self.piece, read.pieces))})"
        if read.cell is None:
            return self.entry(read.at[0])
        return self.target(read.cell, read.at)

    def piece(self, piece: Piece) -> str:
        bounds = [f"{r.start} <= {self.index(i)} < {r.stop}" for i, r in piece.where]
        return f"{self.read(piece.read)}{' if ' * bool(bounds)}{' and '.join(bounds)}"

    def target(self, cell: Cell, at: At) -> str:
        if cell.in_register or cell.scalar:
            return self.name(cell)
        entries = ", ".join(map(self.entry, left_of(cell, at)))
        return f"{self.name(cell)}[{entries or '()'}]"

    def part(self, cell: Cell, at: At, swapped: bool = False) -> str:
        entries = f"[{', '.join(map(self.entry, at))}]" if at else ""
        return self.name(cell) + entries + (".T" if swapped else "")

    def entry(self, k: Affine | Indirect) -> str:
        if isinstance(k, Indirect):
            return self.read(k.read)
        return k.text(self.index)


def _type(cell: Cell) -> str:
    shape = cell.shape if cell.role != "temporary" or cell.alias is not None else cell.left
    return f"{dtype_name(cell.dtype)}{_shape(shape)}"


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"
