"""The peak memory of a call, without its arguments, by line.

%3 = outer(%1, %1) : f8[500,500]
%4 = sin(%3)       : f8[500,500]    -->    at the peak: %3, 2 MB, and %4, 2 MB, with their lines
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tapegrad.core.values import Aval, Source
from tapegrad.ir.cells import Cell
from tapegrad.ir.memory import constants, first_read, held_at_peak, made_at
from tapegrad.ir.plan import Recurrence, walk
from tapegrad.ir.report import size
from tapegrad.ir.steps import Step
from tapegrad.ir.tape import Tape

MIN_SHARE = 0.01  # of the peak: smaller buffers are added up
CONSTANT = "constant "


class Buffer(NamedTuple):
    """Memory of a call: its contents, its bytes, the line of the program that uses it, and the text
    of that line."""

    name: str
    nbytes: int
    line: str
    text: str


def buffers_of_tape(tape: Tape) -> list[Buffer]:
    """The contents of memory at the peak of a played tape, the largest first."""
    found = _constants(tape)
    for var, call, nbytes in held_at_peak(tape):
        what = "inside of " if var is None else f"{var}: {var.aval}, of "
        found.append(_buffer(f"{what}{call.primitive.name}", nbytes, call.src))
    return _sorted(found)


def buffers_of_program(program: Any, tape: Tape) -> list[Buffer]:
    """The memory of a tape's machine code: constants, results, and scratch memory, which values of
    several lines share in turns. All of it is live during the whole call."""
    tenants: dict[Any, list[Cell]] = {slot: [] for slot in program.slots}
    for cell, home in program.allocation.homes.items():
        if home.memory in tenants:
            tenants[home.memory].append(cell)
    found = _constants(tape)
    for cell in dict.fromkeys(x.root for x in program.plan.outputs):
        found.append(_buffer(f"result {program.names[cell]}: {cell.aval}", _bytes(cell), cell.src))
    inner = dict(_of_rounds(program.plan.steps))
    lines = _lines(program.plan.steps)
    for slot, cells in tenants.items():
        held = [x for cell in cells for x in inner.get(cell, [(cell, lines.get(cell))])]
        (first, src), *others = sorted(held, key=lambda x: -_bytes(x[0]))
        word = program.names.get(first) or first.hint or "memory"
        name = f"scratch {word}: {Aval(first.left, first.dtype)}"
        turns = f", in turns with {len(others)} more" * bool(others)
        found.append(_buffer(name + turns, slot.size * slot.dtype.itemsize, src))
    return _sorted(found)


def _of_rounds(steps: Sequence[Step]) -> Iterator[tuple[Cell, list[tuple[Cell, Source | None]]]]:
    """The contents of scratch memory used by iterations of loops, with their lines, or the loop's
    line."""
    for step in walk(steps):
        if isinstance(step, Recurrence) and step.allocation is not None:
            inner, lines = dict(_of_rounds(step.plan.steps)), _lines(step.plan.steps)
            for slot, cell in zip(step.allocation.slots, step.scratch, strict=True):
                homes = step.allocation.homes.items()
                cells = [x for x, home in homes if home.memory is slot]
                held = [y for x in cells for y in inner.get(x, [(x, lines.get(x))])]
                yield cell, [(x, src or step.src) for x, src in held] or [(cell, step.src)]


def _lines(steps: Sequence[Step]) -> dict[Cell, Source]:
    """The lines of cells: their own, otherwise the line that first writes them, or reads them."""
    found: dict[Cell, Source] = {}
    uses = [(cell.root, writes, x.src) for x in walk(steps) for cell, _, writes in x.accesses()]
    for cell, _, src in sorted(uses, key=lambda use: not use[1]):
        if (known := cell.src or src) is not None:
            found.setdefault(cell, known)
    return found


def _constants(tape: Tape) -> list[Buffer]:
    """The arrays that the function captures, with the lines that made them or first read them. They
    existed before the call, or were made by the trace."""
    names = dict(zip(tape.inputs, tape.names, strict=False))
    return [
        _buffer(
            f"{CONSTANT}{names.get(x) or x}: {x.aval}",
            x.aval.nbytes,
            made_at(tape, x) or first_read(tape, x),
        )
        for x in constants(tape)
    ]


def _buffer(name: str, nbytes: int, src: Source | None) -> Buffer:
    return Buffer(name, nbytes, "" if src is None else str(src), "" if src is None else src.text)


def _bytes(cell: Cell) -> int:
    return math.prod(cell.left) * cell.dtype.itemsize


def _sorted(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Buffers, the largest first; small ones are joined into one."""
    # Constants don't count for the threshold: a large one would hide the call's own memory.
    least = MIN_SHARE * sum(x.nbytes for x in buffers if not x.name.startswith(CONSTANT))
    found = sorted([x for x in buffers if x.nbytes >= least], key=lambda x: -x.nbytes)
    rest = [x for x in buffers if x.nbytes < least]
    if len(rest) > 1:
        return [*found, Buffer(f"{len(rest)} smaller ones", sum(x.nbytes for x in rest), "", "")]
    return [*found, *rest]


def shown(buffers: Sequence[Buffer]) -> list[str]:
    """The rows of a page."""
    total = sum(x.nbytes for x in buffers)
    head = f"{size(total)} of memory beside the arguments, at the peak"
    rows = [
        f"{size(x.nbytes):>10} {x.nbytes / (total or 1):>7.1%}   {x.name}"
        + f"   {x.line}: {x.text}" * bool(x.line)
        for x in buffers
    ]
    return [head, f"{'bytes':>10} {'share':>7}   buffer", *rows] if total else [head]
